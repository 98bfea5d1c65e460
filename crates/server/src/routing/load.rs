//! Makes a [`Routing`] from the configuration and its files.
//!
//! Every file is read while the old maps are in force; a file that has not changed is taken over. A file that cannot
//! be read, or by `maps.bad_line` one with a wrong line, leaves the map as it was; where there is no old map that is
//! an error.
//!
//! A file that another user can have written ([`Trust`]) is not read: its old content stays in force, and the log has
//! a critical line; where there is no old content, that is an error too.

use super::account_index::AccountIndex;
use super::{Admission, Routing, classes, rules};
use crate::config::{self, BadLine, Config, Mailbox, MapSource, RelayDomain};
use crate::lookup::Lookups;
use crate::next_hop::smart_hosts;
use mail::DomainName;
use os::accounts::Accounts;
use os::safe_file::{Refusal as Unread, Trust};
use route::access::{Access, DelayChecks, Options, RelayMailFrom};
use route::class::{Class, Classes, Kind};
use route::destination::{Hosts, NextHost, Protocol};
use route::map::MapLimits;
use route::resolve::{Generics, LocalMailer, Maps, Masquerade, Precedence, Router, RouterSettings};
use route::tables::ldap_routing::{Detail, LdapRouting};
use route::tables::mailer::MailerValue;
use route::{Source, Table};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files as they were read, so that unchanged ones are not read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadedFiles {
    tables: HashMap<(&'static str, PathBuf), (LoadedStamp, Arc<Table>)>,
    texts: HashMap<PathBuf, (LoadedStamp, Arc<str>)>,
    /// All files that were looked for, with their stamps.
    seen: Vec<(PathBuf, Option<LoadedStamp>)>,
    /// Files that decide about mail, each with the complaint about it.
    judged: Vec<(PathBuf, Option<String>)>,
    trust: Option<Trust>,
}

/// Attributes that change when a file is written, or gets another owner or mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LoadedStamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl LoadedStamp {
    fn of(path: &Path) -> std::io::Result<Self> {
        Ok(Self::from(&std::fs::metadata(path)?))
    }
}

impl From<&std::fs::Metadata> for LoadedStamp {
    fn from(found: &std::fs::Metadata) -> Self {
        let (modified, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
        Self { inode: found.ino(), size: found.size(), modified, changed }
    }
}

impl LoadedFiles {
    /// Returns whether a file has come, gone or changed since, or others can write it that could not, or the other
    /// way round.
    pub(crate) fn have_changed(&self) -> bool {
        self.seen.iter().any(|(path, before)| LoadedStamp::of(path).ok() != *before)
            || self
                .trust
                .as_ref()
                .is_some_and(|trust| self.judged.iter().any(|(path, before)| trust.complaint(path) != *before))
    }
}

/// Maps that were loaded, and notes for the operator.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) routing: Routing,
    pub(crate) notes: Vec<String>,
    /// Files that others can write; their former content stays in force.
    pub(crate) refused: Vec<String>,
}

/// Trust in maps of this process, by the configuration.
pub(crate) fn trust(config: &Config) -> Trust {
    Trust::maps(&config.server.user, &config.server.group, config.maps.group_writable)
}

/// Does the same for a command that looks at the configuration of a server with a user of its own.
pub(crate) fn trust_of_server(config: &Config) -> Trust {
    Trust::maps_of_server(&config.server.user, &config.server.group, config.maps.group_writable)
}

/// Reads all files that the configuration names. `old`: the maps in force.
///
/// # Errors
/// The faults of files that cannot be read and have no earlier content in force.
pub(crate) fn load(config: &Config, lookups: &Arc<Lookups>, old: Option<&Routing>) -> Result<Loaded, Vec<String>> {
    load_if(config, lookups, old, has_routing(config), trust(config))
}

/// Does the same, with the router even where there is nothing to ask, for explanations.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_always(config: &Config) -> Result<Loaded, Vec<String>> {
    load_if(config, &Arc::new(Lookups::new(config)), None, true, trust_of_server(config))
}

/// Returns which domains belong to which class, as far as the files of classes can be read.
pub(crate) fn classes(config: &Config) -> Classes {
    Loading::new(config, None, trust_of_server(config)).classes()
}

fn load_if(
    config: &Config,
    lookups: &Arc<Lookups>,
    old: Option<&Routing>,
    is_routed: bool,
    trust: Trust,
) -> Result<Loaded, Vec<String>> {
    let mut loading = Loading::new(config, old, trust);
    // Aliases are read with them.
    loading.classes = loading.classes();
    let access = Arc::new(Access::new(loading.sources("access", &config.maps.access), options(config)));
    let maps = loading.maps(&access);
    let rules = match rules::configured_rules(config) {
        Ok(rules) => rules,
        Err(faults) => {
            loading.faults.extend(faults.into_iter().map(|fault| fault.to_string()));
            Vec::new()
        }
    };
    let settings = loading.settings();
    let people = loading.people();
    let Loading { mut files, notes, refused, faults, classes, trust, .. } = loading;
    files.trust = Some(trust);
    let Some(settings) = settings.filter(|_| faults.is_empty()) else { return Err(faults) };
    let router = Router { settings, maps, classes, rules };
    let routing = Routing {
        lookups: Arc::new(lookups.with_users(&config.local)),
        admission: is_routed.then_some(Admission { router, access }),
        people,
        files,
    };
    Ok(Loaded { routing, notes, refused })
}

/// Returns whether there is anything to ask for a recipient.
fn has_routing(config: &Config) -> bool {
    let maps = &config.maps;
    let lists = [
        &maps.access,
        &maps.mailertable,
        &maps.virtusertable,
        &maps.genericstable,
        &maps.domaintable,
        &maps.smarttable,
        &maps.aliases,
    ];
    lists.iter().any(|list| !list.is_empty())
        || !config.rules.is_empty()
        || has_local(config)
        || !config.relay.to_files.is_empty()
        || config.generics.masquerade.is_some()
        || ldap_routing(config).is_some()
}

/// LDAP routing, from all directories that have domains for it; a rule of the configuration has them agree on the rest.
fn ldap_routing(config: &Config) -> Option<LdapRouting> {
    let tables: Vec<&config::Ldap> = config.ldap.iter().filter(|table| !table.routing_domains.is_empty()).collect();
    let first = *tables.first()?;
    let class = |part: fn(&config::Ldap) -> &Vec<RelayDomain>| {
        let mut class = Class::default();
        for domain in tables.iter().flat_map(|table| part(table)) {
            if let Ok(name) = DomainName::new(domain.ascii()) {
                match domain.has_subdomains() {
                    true => class.add_tree(&name),
                    false => class.add_name(&name),
                }
            }
        }
        class
    };
    let equivalents = class(|table| &table.routing_equivalents);
    Some(LdapRouting {
        sources: tables.iter().map(|table| format!("ldap:{}", table.name).into()).collect(),
        domains: class(|table| &table.routing_domains),
        equivalents: DomainName::new(&first.routing_name).ok().map(|name| (equivalents, name)),
        bounce: first.bounce,
        detail: match first.detail {
            config::LdapDetail::Keep => Detail::Keep,
            config::LdapDetail::Strip => Detail::Strip,
            config::LdapDetail::Preserve => Detail::Preserve,
        },
        no_domain: first.no_domain,
    })
}

/// Returns whether some mail stays here.
fn has_local(config: &Config) -> bool {
    let local = &config.local;
    local.own_name
        || config.maps.directory.is_some()
        || !config.maps.aliases.is_empty()
        || !local.domains.is_empty()
        || !local.domain_files.is_empty()
}

/// A map as it was read before.
type Kept = (LoadedStamp, Arc<Table>);

struct Loading<'a> {
    config: &'a Config,
    old: Option<&'a LoadedFiles>,
    files: LoadedFiles,
    notes: Vec<String>,
    refused: Vec<String>,
    faults: Vec<String>,
    classes: Classes,
    trust: Trust,
}

impl<'a> Loading<'a> {
    fn new(config: &'a Config, old: Option<&'a Routing>, trust: Trust) -> Self {
        Self {
            config,
            old: old.map(|old| &old.files),
            files: LoadedFiles::default(),
            notes: Vec::new(),
            refused: Vec::new(),
            faults: Vec::new(),
            classes: Classes::default(),
            trust,
        }
    }

    fn maps(&mut self, access: &Arc<Access>) -> Maps {
        let maps = &self.config.maps;
        Maps {
            mailertable: self.sources("mailertable", &maps.mailertable),
            virtusertable: self.sources("virtusertable", &maps.virtusertable),
            genericstable: self.sources("genericstable", &maps.genericstable),
            domaintable: self.sources("domaintable", &maps.domaintable),
            smarttable: self.sources("smarttable", &maps.smarttable),
            aliases: self.sources("aliases", &maps.aliases),
            ldap_routing: ldap_routing(self.config),
            access: Arc::clone(access),
        }
    }

    fn sources(&mut self, name: &'static str, sources: &[MapSource]) -> Vec<Source> {
        let mut found = Vec::new();
        for source in sources {
            match source {
                MapSource::File(path) => found.extend(self.table(name, path).map(Source::Loaded)),
                MapSource::Ldap(_) | MapSource::Sqlite(_) => found.push(Source::Outside(source.to_string().into())),
            }
        }
        found
    }

    /// Returns the file of a map: as it is named, or what `makemap` and `newaliases` make of it.
    fn table(&mut self, name: &'static str, path: &Path) -> Option<Arc<Table>> {
        let plain = path.as_os_str();
        for ending in ["", ".db", ".cdb"] {
            let mut candidate = plain.to_owned();
            candidate.push(ending);
            let candidate = PathBuf::from(candidate);
            match LoadedStamp::of(&candidate) {
                Ok(stamp) => {
                    self.files.seen.push((candidate.clone(), Some(stamp)));
                    return self.read_table(name, candidate, stamp);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => self.files.seen.push((candidate, None)),
                Err(error) => {
                    self.fault(format!("maps.{name}: {} cannot be read: {error}", candidate.display()));
                    return None;
                }
            }
        }
        // A file that is only looked for in the directory may be missing.
        if self.config.maps.directory.as_ref().is_none_or(|directory| directory.join(name) != path) {
            self.fault(format!("maps.{name}: there is no file {0}, nor {0}.db", path.display()));
        }
        None
    }

    fn read_table(&mut self, name: &'static str, path: PathBuf, stamp: LoadedStamp) -> Option<Arc<Table>> {
        let key = (name, path);
        let old = self.old.and_then(|old| old.tables.get(&key)).cloned();
        let complaint = self.judge(&key.1);
        if let Some((before, table)) = &old
            && *before == stamp
            && complaint.is_none()
        {
            self.files.tables.insert(key, (stamp, Arc::clone(table)));
            return Some(Arc::clone(table));
        }
        let shown = key.1.display().to_string();
        let (bytes, stamp) = match self.read(&key.1) {
            Ok(read) => read,
            Err(Unread::Io(error)) => {
                let why = format!("maps.{name}: {shown} cannot be read: {error}");
                return self.keep(key, old, why);
            }
            Err(Unread::Unsafe(why)) => return self.keep_safe(key, old, &why),
        };
        let limits = MapLimits { file_bytes_max: self.config.maps.size_max, ..MapLimits::default() };
        let read = super::aliases::read(name, &shown, bytes, &limits, &self.classes);
        let (table, complaints) = match read {
            Ok(read) => read,
            Err(why) => return self.keep(key, old, why),
        };
        if self.config.maps.bad_line == BadLine::KeepOld && !complaints.is_empty() {
            return self.keep(key, old, complaints.join("\n"));
        }
        self.notes.extend(complaints);
        if name == "access" {
            self.notes.extend(exposed(&key.1, &table));
        }
        let table = Arc::new(table);
        self.files.tables.insert(key, (stamp, Arc::clone(&table)));
        Some(table)
    }

    /// Returns the map as it was, for this reason; without one before it is a fault.
    fn keep(&mut self, key: (&'static str, PathBuf), old: Option<Kept>, why: String) -> Option<Arc<Table>> {
        let Some((before, table)) = old else {
            self.fault(why);
            return None;
        };
        self.notes.push(format!("{why}; the map stays as it was"));
        self.files.tables.insert(key, (before, Arc::clone(&table)));
        Some(table)
    }

    /// Does the same for a file that others can write.
    fn keep_safe(&mut self, key: (&'static str, PathBuf), old: Option<Kept>, why: &str) -> Option<Arc<Table>> {
        let why = format!("maps.{}: {why}", key.0);
        let Some((before, table)) = old else {
            self.fault(why);
            return None;
        };
        self.refused.push(format!("{why}; the map stays as it was until then"));
        self.files.tables.insert(key, (before, Arc::clone(&table)));
        Some(table)
    }

    /// Notes the complaint about a file, so that a change of it is seen.
    fn judge(&mut self, path: &Path) -> Option<String> {
        let complaint = self.trust.complaint(path);
        self.files.judged.push((path.to_owned(), complaint.clone()));
        complaint
    }

    /// Returns the content of a file that no other user can have written, with its stamp.
    fn read(&self, path: &Path) -> Result<(Vec<u8>, LoadedStamp), Unread> {
        let (mut file, found) = self.trust.open(path)?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok((bytes, LoadedStamp::from(&found)))
    }

    /// Returns the text of a file of names; nothing if it is only looked for and not there.
    fn text(&mut self, key: &str, name: &str, path: &Path) -> Option<Arc<str>> {
        let stamp = match LoadedStamp::of(path) {
            Ok(stamp) => stamp,
            Err(error) => {
                self.files.seen.push((path.to_owned(), None));
                let is_guess = self.config.maps.directory.as_ref().is_some_and(|at| at.join(name) == path);
                if !(is_guess && error.kind() == ErrorKind::NotFound) {
                    self.fault(format!("{key}: {} cannot be read: {error}", path.display()));
                }
                return None;
            }
        };
        self.files.seen.push((path.to_owned(), Some(stamp)));
        let complaint = self.judge(path);
        let old = self.old.and_then(|old| old.texts.get(path)).cloned();
        let (stamp, text) = match (old, complaint) {
            (Some((before, text)), None) if before == stamp => (stamp, text),
            (old, _) => match self.read_text(path) {
                Ok((text, stamp)) => (stamp, text),
                Err(Unread::Unsafe(why)) if old.is_some() => {
                    self.refused.push(format!("{key}: {why}; the list stays as it was until then"));
                    old?
                }
                Err(Unread::Unsafe(why)) => {
                    self.fault(format!("{key}: {why}"));
                    return None;
                }
                Err(Unread::Io(error)) => {
                    self.fault(format!("{key}: {} cannot be read: {error}", path.display()));
                    return None;
                }
            },
        };
        self.files.texts.insert(path.to_owned(), (stamp, Arc::clone(&text)));
        Some(text)
    }

    fn read_text(&self, path: &Path) -> Result<(Arc<str>, LoadedStamp), Unread> {
        let (bytes, stamp) = self.read(path)?;
        let text = String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8"))?;
        Ok((text.into(), stamp))
    }

    /// Notes a fault; at the start it is an error, later the map in force stays.
    fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    fn class(&mut self, kind: Kind, key: &str, name: &str, files: &[PathBuf], into: &mut Class) {
        for path in files {
            let Some(text) = self.text(key, name, path) else { continue };
            let (class, lints) = Class::read(kind, name, &path.display().to_string(), &text);
            self.notes.extend(lints.iter().map(ToString::to_string));
            into.extend(&class);
        }
    }

    fn classes(&mut self) -> Classes {
        let config = self.config;
        let mut classes = classes::of_configuration(config);
        if has_local(config) {
            classes.hostname = DomainName::new(&config.hostname).ok().filter(|_| config.local.own_name);
            classes.local.extend(&names(&config.local.domains));
            classes.local.extend(&names(&DomainName::new("localhost").into_iter().collect::<Vec<_>>()));
            let files = &config.local.domain_files;
            self.class(Kind::Local, "local.domain_files", "local-host-names", files, &mut classes.local);
        }
        let kind = Kind::Relay { hosts_only: config.access.relay_hosts_only };
        self.class(kind, "relay.to_files", "relay-domains", &config.relay.to_files, &mut classes.relay);
        classes
    }

    /// Reads accounts, for the log. Without them the log names no users; a part that needs them for more reports the
    /// error.
    fn people(&mut self) -> AccountIndex {
        let path = &self.config.local.accounts;
        self.files.seen.push((path.clone(), LoadedStamp::of(path).ok()));
        Accounts::read_with(path).map(|accounts| AccountIndex::new(self.config, &accounts)).unwrap_or_default()
    }

    fn settings(&mut self) -> Option<RouterSettings> {
        let config = self.config;
        let hostname = match DomainName::new(&config.hostname) {
            Ok(hostname) => hostname,
            Err(error) => {
                self.fault(format!("hostname: {error}"));
                return None;
            }
        };
        let mut settings = RouterSettings::new(hostname);
        settings.precedence = match config.route.precedence {
            config::Precedence::Recipient => Precedence::Recipient,
            config::Precedence::Sender => Precedence::Sender,
        };
        settings.delimiter = config.local.delimiter.chars().next();
        settings.forward = config.local.forward;
        settings.port = config.route.port;
        settings.smart_hosts = (!config.route.smart_host.is_empty()).then(|| smart_hosts::hosts(&config.route));
        settings.local = local_mailer(&config.local.mailbox);
        settings.generics = self.generics();
        settings.masquerade = self.masquerade();
        if !config.local.luser_relay.is_empty() {
            match MailerValue::parse(&config.local.luser_relay, config.route.port) {
                Ok(value) => settings.luser_relay = Some(value),
                Err(fault) => self.fault(format!("local.luser_relay: {}; {}", fault.text, fault.hint)),
            }
        }
        Some(settings)
    }

    fn generics(&mut self) -> Generics {
        let config = self.config;
        let mut domains = classes::trees(&config.generics.domains);
        let files = &config.generics.domain_files;
        self.class(Kind::Local, "generics.domain_files", "generics-domains", files, &mut domains);
        let config::Generics { envelope, headers, recipients, .. } = config.generics;
        Generics { domains, envelope, headers, recipients }
    }

    fn masquerade(&mut self) -> Option<Masquerade> {
        let generics = &self.config.generics;
        let name = generics.masquerade.as_ref()?;
        match DomainName::new(name) {
            Ok(domain) => Some(Masquerade {
                domain,
                domains: classes::trees(&generics.masquerade_domains),
                is_limited: generics.masquerade_limited,
                exceptions: classes::trees(&generics.masquerade_exceptions),
                exposed: generics.exposed_users.iter().map(|user| user.to_lowercase().into()).collect(),
            }),
            Err(error) => {
                self.fault(format!("generics.masquerade: {error}"));
                None
            }
        }
    }
}

/// Returns a warning about a file with passwords that every user can read.
fn exposed(path: &Path, table: &Table) -> Option<String> {
    let is_open = std::fs::metadata(path).is_ok_and(|found| found.mode() & 0o004 != 0);
    let is_secret = |key: &str| key.get(..9).is_some_and(|tag| tag.eq_ignore_ascii_case("AuthInfo:"));
    let path = path.display();
    (is_open && table.iter().any(|hit| is_secret(hit.key)))
        .then(|| format!("maps.access: {path} has passwords (AuthInfo:), and everybody can read it; chmod 0640 {path}"))
}

fn names(list: &[DomainName]) -> Class {
    let mut class = Class::default();
    list.iter().for_each(|name| class.add_name(name));
    class
}

fn local_mailer(mailbox: &Mailbox) -> LocalMailer {
    let hosts = |host| LocalMailer::Hosts {
        hosts: Hosts { protocol: Protocol::Lmtp, groups: vec![vec![host]] },
        accounts: false,
    };
    match mailbox {
        Mailbox::Mbox(_) | Mailbox::Maildir(_) => LocalMailer::Mailbox,
        Mailbox::LmtpSocket(path) => hosts(NextHost::Unix(path.to_string_lossy().into())),
        Mailbox::LmtpHost(host) => hosts(smart_hosts::next_host(host)),
        Mailbox::None => LocalMailer::None,
    }
}

fn options(config: &Config) -> Options {
    let access = &config.access;
    Options {
        delay_checks: match access.delay_checks {
            config::DelayChecks::No => DelayChecks::No,
            config::DelayChecks::Yes => DelayChecks::Yes,
            config::DelayChecks::Friend => DelayChecks::Friend,
            config::DelayChecks::Hater => DelayChecks::Hater,
        },
        blocklist_recipients: access.blocklist_recipients,
        lookup_dot_domain: access.lookup_dot_domain,
        relay_to_full_address: access.relay_to_full_address,
        relay_hosts_only: access.relay_hosts_only,
        relay_mail_from: if access.relay_mail_from { RelayMailFrom::Domain } else { RelayMailFrom::No },
        relay_local_from: false,
        // relay.from has the clients that may relay, this machine among them: see `admit::relay`.
        relay_loopback: false,
        accept_unqualified_senders: false,
    }
}
