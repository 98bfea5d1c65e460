//! Rules between values: what each of them allows and all together do not.
//!
//! A rule reports at the key that was set; it is silent where one of its keys could not be read, since the value it
//! would judge is not the one that was written.

mod auth_results;
mod cluster;
mod delivery;
mod destination;
mod dkim;
mod http;
mod local;
mod lookup;
mod screen;
mod webhook;

use super::instance::instance;
use super::loaded::Loaded;
use super::number::{size_text, time_text};
use super::parameters::find;
use super::problem::{Problem, Severity, SourceLocation};
use super::{Config, Listen, ListenTls};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// A finding before it has a place: the keys it is about, the one to show first.
struct Rules<'a> {
    loaded: &'a Loaded,
    problems: Vec<Problem>,
}

/// All problems of a configuration as a whole, in no order.
pub(crate) fn check(loaded: &Loaded) -> Vec<Problem> {
    let mut rules = Rules { loaded, problems: Vec::new() };
    rules.spool();
    rules.listeners();
    rules.tls_files();
    rules.passwords();
    rules.networks();
    rules.block_lists();
    rules.limits();
    rules.local();
    rules.lookups();
    rules.route();
    rules.delivery();
    rules.destinations();
    rules.dkim();
    rules.arc();
    rules.overrides();
    rules.http();
    rules.webhooks();
    rules.cluster();
    rules.filters();
    rules.quarantine_digest();
    rules.auth_results();
    rules.user();
    rules.problems
}

impl<'a> Rules<'a> {
    /// Adds a problem unless a key of it could not be read. Its place is the first of the keys that was set.
    fn add(&mut self, severity: Severity, keys: &[(&'static str, usize)], text: String, suggestion: &str) {
        if keys.iter().any(|(key, _)| self.loaded.places.is_unread(key)) {
            return;
        }
        let places = &self.loaded.places;
        let table = |(key, index): &(&'static str, usize)| {
            key.rsplit_once('.').and_then(|(table, _)| places.of_table(table, *index))
        };
        let set = keys.iter().find_map(|(key, index)| places.of(key, *index).map(|place| (place, *key, *index)));
        let first = keys.first().copied().unwrap_or_default();
        let (place, (key, index)) = match set {
            Some((place, key, index)) => (Some(place), (key, index)),
            None => (keys.iter().find_map(table), first),
        };
        let name = find(key).map_or_else(String::new, |parameter| instance(parameter, index));
        let mut problem = SourceLocation::problem(place, severity, name, text);
        problem.suggestion = (!suggestion.is_empty()).then(|| suggestion.to_owned());
        self.problems.push(problem);
    }

    fn error(&mut self, keys: &[(&'static str, usize)], text: String, suggestion: &str) {
        self.add(Severity::Error, keys, text, suggestion);
    }

    fn warn(&mut self, keys: &[(&'static str, usize)], text: String, suggestion: &str) {
        self.add(Severity::Warning, keys, text, suggestion);
    }

    /// Outlives the borrow of the rules, which problems are added to.
    const fn config(&self) -> &'a Config {
        &self.loaded.config
    }

    fn spool(&mut self) {
        let config = self.config();
        let spool = &config.spool;
        let (segment, shards) = (u64::from(spool.segment_bytes), u64::from(spool.shards));
        let text = |bytes: u64| size_text(i64::try_from(bytes).unwrap_or(i64::MAX));
        let keys = [("spool.size_max", 0), ("spool.segment_bytes", 0), ("spool.shards", 0)];
        if !segment.is_multiple_of(4_096) {
            let (below, above) = (segment - segment % 4_096, segment.next_multiple_of(4_096));
            self.error(
                &[("spool.segment_bytes", 0)],
                format!("spool.segment_bytes: {segment} is no multiple of 4KiB"),
                &format!("write {below} or {above}"),
            );
        } else if spool.size_max < 8 * segment * shards {
            self.error(
                &keys,
                format!(
                    "spool.size_max: {} has no room for eight segments of {} a shard, with spool.shards = {shards}",
                    text(spool.size_max),
                    text(segment)
                ),
                &format!("set spool.size_max to \"{}\" or more", text(8 * segment * shards)),
            );
        }
        if config.message.size_max > spool.size_max / 2 {
            self.error(
                &[("message.size_max", 0), ("spool.size_max", 0)],
                format!(
                    "message.size_max: {} is more than half of spool.size_max, {}",
                    text(config.message.size_max),
                    text(spool.size_max)
                ),
                "a message of that size would fill the spool; make it smaller, or the spool larger",
            );
        }
    }

    fn listeners(&mut self) {
        let listeners = &self.config().listen;
        let mut seen = BTreeMap::new();
        for (index, listen) in listeners.iter().enumerate() {
            let address = listen.address;
            if address.port() != 0
                && let Some(first) = seen.insert(address, index)
            {
                let text = match self.loaded.places.of("listen.address", first) {
                    Some(place) => format!("a second listener on {address}; the first is in line {}", place.line),
                    None => format!("a second listener on {address}"),
                };
                self.error(&[("listen.address", index)], text, "remove one of them");
            }
            self.listener(index, listen);
        }
    }

    fn listener(&mut self, index: usize, listen: &Listen) {
        let config = self.config();
        let address = listen.address;
        let word = if listen.tls == ListenTls::Implicit { "implicit" } else { "starttls" };
        if listen.tls != ListenTls::None && config.tls.certificate.is_empty() {
            self.error(
                &[("listen.tls", index), ("tls.certificate", 0)],
                format!("listener {address} has tls = \"{word}\", and there is no certificate"),
                "set tls.certificate and tls.key, or tls = \"none\"",
            );
        }
        if listen.tls_required && listen.tls == ListenTls::None {
            self.error(
                &[("listen.tls_required", index), ("listen.tls", index)],
                format!("listener {address} demands TLS and offers none; it could take no mail"),
                "set tls = \"starttls\" or \"implicit\", or tls_required = false",
            );
        }
        if listen.auth_required {
            let keys = [("listen.auth_required", index), ("listen.protocol", index)];
            if config.auth.file.is_none() && config.auth.program.is_empty() {
                let keys = [keys[0], keys[1], ("auth.file", 0), ("auth.program", 0)];
                self.error(
                    &keys,
                    format!("listener {address} demands AUTH, and there is nothing to check a password with"),
                    "set auth.file or auth.program, or auth_required = false",
                );
            } else if config.auth.mechanisms.is_empty() {
                self.error(
                    &[("auth.mechanisms", 0), keys[0], keys[1]],
                    format!("auth.mechanisms is empty, and listener {address} demands AUTH"),
                    "name a mechanism, or set auth_required = false",
                );
            }
            if listen.tls == ListenTls::None && !config.auth.without_tls {
                self.error(
                    &[keys[0], keys[1], ("listen.tls", index), ("auth.without_tls", 0)],
                    format!("listener {address} demands AUTH, which is offered under TLS only, and it has no TLS"),
                    "set tls, or auth.without_tls = true",
                );
            }
        }
        if is_everybody(&listen.proxy_protocol) && !address.ip().is_loopback() {
            self.warn(
                &[("listen.proxy_protocol", index)],
                format!(
                    "listener {address} takes a PROXY header from everybody: whoever reaches it can claim any address"
                ),
                "name the load balancers: proxy_protocol = [\"10.0.0.5\"]",
            );
        }
    }

    fn tls_files(&mut self) {
        let tls = &self.config().tls;
        match (tls.certificate.len(), tls.key.len()) {
            (0, 0) => {}
            (_, 0) => self.error(
                &[("tls.certificate", 0), ("tls.key", 0)],
                "tls.certificate without tls.key".to_owned(),
                "name the file of its key: tls.key = \"…\"",
            ),
            (0, _) => self.error(
                &[("tls.key", 0), ("tls.certificate", 0)],
                "tls.key without tls.certificate".to_owned(),
                "name the file of its certificate: tls.certificate = \"…\"",
            ),
            (certificates, keys) if certificates != keys => self.error(
                &[("tls.key", 0), ("tls.certificate", 0)],
                format!("tls.certificate names {certificates} and tls.key {keys} files"),
                "name as many keys as certificates, in the same order",
            ),
            _ => {}
        }
    }

    fn passwords(&mut self) {
        let auth = &self.config().auth;
        if auth.file.is_some() && !auth.program.is_empty() {
            self.error(
                &[("auth.program", 0), ("auth.file", 0)],
                "auth.file and auth.program are both set".to_owned(),
                "keep one of them",
            );
        }
        if auth.program.first().is_some_and(|program| !program.starts_with('/')) {
            self.error(
                &[("auth.program", 0)],
                format!("auth.program: \"{}\" does not begin with \"/\"", auth.program.first().map_or("", |p| p)),
                "write the whole path; no search path is used",
            );
        }
        if auth.without_tls && (auth.file.is_some() || !auth.program.is_empty()) {
            self.warn(
                &[("auth.without_tls", 0)],
                "auth.without_tls: passwords may cross the network in clear text".to_owned(),
                "",
            );
        }
    }

    fn networks(&mut self) {
        let config = self.config();
        if config.relay.from.iter().any(|network| network.prefix_len() == 0) {
            self.warn(
                &[("relay.from", 0)],
                "relay.from names every address: this is an open relay, and others will block it".to_owned(),
                "name your own networks only; others use AUTH",
            );
        }
        if config.accept.xclient.iter().any(|network| network.prefix_len() == 0) {
            self.warn(
                &[("accept.xclient", 0)],
                "accept.xclient names every address: whoever connects can claim any address".to_owned(),
                "name the hosts that speak for others",
            );
        }
    }

    fn block_lists(&mut self) {
        let dnsbl = &self.config().dnsbl;
        let mut seen = BTreeSet::new();
        for (index, list) in dnsbl.list.iter().enumerate() {
            if !seen.insert(list.zone.ascii().to_owned()) {
                self.error(
                    &[("dnsbl.list.zone", index)],
                    format!("a second list with zone \"{}\"", list.zone),
                    "remove one, or put their answers together",
                );
            }
        }
        let sum: i64 = dnsbl.list.iter().map(|list| i64::from(list.weight.max(0))).sum();
        if !dnsbl.list.is_empty() && sum < i64::from(dnsbl.refuse_at) {
            self.warn(
                &[("dnsbl.refuse_at", 0), ("dnsbl.list.weight", 0)],
                format!(
                    "dnsbl.refuse_at: {} is more than all lists together weigh, {sum}; nobody is refused",
                    dnsbl.refuse_at
                ),
                "lower it, or raise weights",
            );
        }
    }

    fn limits(&mut self) {
        let config = self.config();
        let smtp = &config.smtp;
        for (less, key, more, other) in [
            (smtp.command_time_max, "smtp.command_time_max", smtp.session_time_max, "smtp.session_time_max"),
            (smtp.transaction_time_max, "smtp.transaction_time_max", smtp.session_time_max, "smtp.session_time_max"),
        ] {
            if less > more {
                self.warn(
                    &[(key, 0), (other, 0)],
                    format!(
                        "{key}: {} is longer than {other}, {}, which ends before",
                        time_text(less),
                        time_text(more)
                    ),
                    "",
                );
            }
        }
        if config.message.header_bytes_max > config.message.size_max {
            self.warn(
                &[("message.header_bytes_max", 0), ("message.size_max", 0)],
                "message.header_bytes_max is larger than message.size_max, which is reached before".to_owned(),
                "",
            );
        }
        if config.accept.connections_per_client > config.accept.connections_max {
            self.warn(
                &[("accept.connections_per_client", 0), ("accept.connections_max", 0)],
                "accept.connections_per_client is larger than accept.connections_max: one client can take all connections"
                    .to_owned(),
                "",
            );
        }
        if config.message.recipients_max < 100 {
            self.warn(
                &[("message.recipients_max", 0)],
                format!(
                    "message.recipients_max: {} is less than the 100 that RFC 5321 asks for",
                    config.message.recipients_max
                ),
                "",
            );
        }
        if !config.hostname.contains('.') {
            let keys = [("hostname", 0)];
            if self.loaded.places.of("hostname", 0).is_some() {
                let text =
                    format!("hostname: \"{}\" has no dot; many servers refuse mail from such a name", config.hostname);
                self.warn(&keys, text, "write the full name, such as \"mx.example.com\"");
            }
        }
    }

    fn user(&mut self) {
        let server = &self.config().server;
        let is_root = self.loaded.machine.is_root;
        if !server.group.is_empty() && server.user.is_empty() {
            self.error(
                &[("server.group", 0), ("server.user", 0)],
                "server.group without server.user".to_owned(),
                "set server.user too",
            );
        } else if !server.user.is_empty() && !is_root {
            self.warn(
                &[("server.user", 0)],
                format!("server.user: only root can become \"{}\"; without root it has no effect", server.user),
                "",
            );
        } else if server.user.is_empty() && is_root && !self.loaded.machine.has_own_user {
            self.warn(
                &[("server.user", 0)],
                "the server would stay root after it has bound its ports".to_owned(),
                "set server.user = \"mailrace\", a user that owns the spool",
            );
        }
    }
}

/// True if a network of each family, or of IPv4, has no prefix.
fn is_everybody(networks: &[IpNet]) -> bool {
    networks.iter().any(|network| network.prefix_len() == 0)
}
