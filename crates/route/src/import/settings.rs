//! The results so far: keys with their values and origins, listeners, lists of blocked clients, notes; and their TOML.

use super::ldap_statements::LdapStatements;
use super::{Files, Imported, Note, Weight};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Octets of a statement that notes and comments show.
const STATEMENT_MAX: usize = 100;

/// Lines that a file has at most. A place is a line, with the number of its file times this: one number for both.
const LINES_MAX: usize = 1 << 24;
/// Files that are read, with those that others include.
pub(super) const FILES_MAX: usize = 64;

/// Tables in the order in which they are written.
const TABLES: [&str; 18] = [
    "", "server", "spool", "tls", "auth", "accept", "relay", "message", "smtp", "dnsbl", "maps", "access", "local",
    "generics", "route", "delivery", "log", "submit",
];

/// A value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SettingValue {
    Text(String),
    /// A number or truth, as written.
    Bare(String),
    List(Vec<String>),
    /// Hosts in order, those of an inner list equal.
    Lists(Vec<Vec<String>>),
}

struct SettingEntry {
    table: &'static str,
    key: &'static str,
    value: SettingValue,
    lines: Vec<usize>,
}

/// A listener.
pub(super) struct Listener {
    pub(super) address: String,
    pub(super) name: Option<String>,
    /// Left out, as a comment: it would take mail without a login.
    pub(super) is_comment: bool,
    pub(super) is_implicit_tls: bool,
    pub(super) line: usize,
}

/// Statements that count only together with others.
#[derive(Default)]
pub(super) struct CombinedStatements {
    pub(super) has_msa: Option<bool>,
    pub(super) has_access: bool,
    pub(super) has_generics: bool,
    pub(super) has_relay_domains: bool,
    pub(super) is_interactive: bool,
    /// The authorities for certificates of clients and servers.
    pub(super) authorities: Option<(Vec<String>, usize)>,
    /// Clients are asked for none.
    pub(super) spares_clients: bool,
    pub(super) envelope: bool,
    pub(super) masquerade: Option<(String, usize)>,
    pub(super) certificate: Option<(Vec<String>, usize)>,
    pub(super) key: Option<(Vec<String>, usize)>,
    pub(super) entire_domain: Option<usize>,
    pub(super) hosts_only: bool,
    pub(super) smart_host: Option<(String, usize)>,
    pub(super) smart_port: Option<u16>,
    pub(super) is_local_file: bool,
    pub(super) local_file: Option<String>,
    pub(super) generics_below: bool,
    pub(super) masquerade_below: bool,
    pub(super) is_limited: bool,
    pub(super) all_recipients: bool,
    /// Users of class E, and the last line that names some.
    pub(super) exposed: (Vec<String>, usize),
    pub(super) lists: Vec<(String, usize)>,
    pub(super) ldap: LdapStatements,
}

pub(super) struct ImportedSettings<'a> {
    /// The files so far, the imported one first.
    names: Vec<String>,
    pub(super) files: Files<'a>,
    pub(super) is_there: &'a dyn Fn(&str) -> bool,
    /// The statements are defaults of a system, so they get no notes.
    pub(super) is_quiet: bool,
    entries: Vec<SettingEntry>,
    pub(super) listeners: Vec<Listener>,
    pub(super) said: CombinedStatements,
    notes: Vec<Note>,
}

impl<'a> ImportedSettings<'a> {
    pub(super) fn new(file: &str, files: Files<'a>) -> Self {
        let (entries, listeners, notes) = Default::default();
        let (names, is_there) = (vec![file.to_owned()], files.is_there);
        Self { names, files, is_there, is_quiet: false, entries, listeners, said: CombinedStatements::default(), notes }
    }

    /// Begins another file, and returns the number that its lines are counted from.
    pub(super) fn begin_file(&mut self, name: &str) -> usize {
        self.names.push(name.to_owned());
        (self.names.len() - 1) * LINES_MAX
    }

    /// How many files were read.
    pub(super) const fn files_read(&self) -> usize {
        self.names.len()
    }

    /// The path of the imported file.
    pub(super) fn main_file(&self) -> String {
        self.names.first().cloned().unwrap_or_default()
    }

    /// The files so far.
    pub(super) fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Our name, where the file says it.
    pub(super) fn hostname(&self) -> Option<String> {
        self.text_of("hostname").map(str::to_owned)
    }

    /// Takes a value out of a list.
    pub(super) fn remove(&mut self, name: &str, one: &str) {
        let (table, key) = name.split_once('.').unwrap_or(("", name));
        self.entries.retain_mut(|entry| match &mut entry.value {
            SettingValue::List(list) if (entry.table, entry.key) == (table, key) => {
                list.retain(|other| other != one);
                !list.is_empty()
            }
            _ => true,
        });
    }

    /// Sets a key, `table.key`; the last statement counts, as in m4.
    pub(super) fn set(&mut self, name: &'static str, value: SettingValue, line: usize) {
        let (table, key) = name.split_once('.').unwrap_or(("", name));
        self.entries.retain(|entry| (entry.table, entry.key) != (table, key));
        self.entries.push(SettingEntry { table, key, value, lines: vec![line] });
    }

    pub(super) fn flag(&mut self, name: &'static str, value: bool, line: usize) {
        self.set(name, SettingValue::Bare(value.to_string()), line);
    }

    /// Adds to a list, once.
    /// A user who may name another sender.
    pub(super) fn trust(&mut self, user: &str, line: usize) {
        if user.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
            self.add("submit.trusted", user, line);
        } else {
            self.missing(line, user, "this is no name of a user", "add the user to submit.trusted");
        }
    }

    pub(super) fn add(&mut self, name: &'static str, one: impl Into<String>, line: usize) {
        let (table, key) = name.split_once('.').unwrap_or(("", name));
        let one = one.into();
        match self.entries.iter_mut().find(|entry| (entry.table, entry.key) == (table, key)) {
            Some(SettingEntry { value: SettingValue::List(list), lines, .. }) => {
                if !list.contains(&one) {
                    list.push(one);
                }
                if line > 0 && !lines.contains(&line) {
                    lines.push(line);
                }
            }
            _ => self.set(name, SettingValue::List(vec![one]), line),
        }
    }

    /// Remembers the masquerade name; its effect depends on other statements.
    pub(super) fn masquerade(&mut self, name: &str, line: usize) {
        match super::values::domain(name) {
            Some(name) => self.said.masquerade = Some((name, line)),
            None => {
                self.missing(line, &format!("MASQUERADE_AS {name}"), "this is no domain", "set generics.masquerade")
            }
        }
    }

    /// Remembers users who keep their domain.
    pub(super) fn exposed(&mut self, users: &str, line: usize) {
        let (exposed, last) = &mut self.said.exposed;
        for user in users.split_whitespace().map(str::to_lowercase) {
            if !exposed.contains(&user) {
                exposed.push(user);
            }
            *last = line;
        }
    }

    /// Adds a network that may relay; this machine always may.
    pub(super) fn relay_from(&mut self, network: String, line: usize) {
        for own in ["127.0.0.0/8", "::1/128"] {
            self.add("relay.from", own, line);
        }
        self.add("relay.from", network, line);
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let (table, key) = name.split_once('.').unwrap_or(("", name));
        self.entries.iter().any(|entry| (entry.table, entry.key) == (table, key))
    }

    fn text_of(&self, name: &str) -> Option<&str> {
        let (table, key) = name.split_once('.').unwrap_or(("", name));
        self.entries.iter().find_map(|entry| match &entry.value {
            SettingValue::Text(text) if (entry.table, entry.key) == (table, key) => Some(text.as_str()),
            _ => None,
        })
    }

    pub(super) fn note(&mut self, weight: Weight, line: usize, statement: &str, reason: impl Into<String>, hint: &str) {
        if self.is_quiet {
            return;
        }
        let file = self.names.get(line / LINES_MAX).cloned().unwrap_or_default();
        let (line, statement) = (line % LINES_MAX, short(statement));
        self.notes.push(Note { weight, file, line, statement, reason: reason.into(), hint: hint.to_owned() });
    }

    pub(super) fn missing(&mut self, line: usize, statement: &str, reason: impl Into<String>, hint: &str) {
        self.note(Weight::Missing, line, statement, reason, hint);
    }

    pub(super) fn differs(&mut self, line: usize, statement: &str, reason: impl Into<String>, hint: &str) {
        self.note(Weight::Differs, line, statement, reason, hint);
    }

    pub(super) fn needless(&mut self, line: usize, statement: &str, reason: impl Into<String>) {
        self.note(Weight::Needless, line, statement, reason, "");
    }

    /// Puts together what counts together, and writes it all.
    pub(super) fn finish(mut self) -> Imported {
        self.finish_tls();
        self.finish_authorities();
        self.finish_senders();
        self.finish_access();
        self.finish_route();
        self.finish_maps();
        self.finish_listeners();
        self.notes.sort_by_key(|note| (self.names.iter().position(|name| *name == note.file), note.line));
        Imported { toml: self.toml(), notes: self.notes }
    }

    fn finish_tls(&mut self) {
        match (self.said.certificate.take(), self.said.key.take()) {
            (Some((certificates, line)), Some((keys, of_key))) if certificates.len() == keys.len() => {
                self.set("tls.certificate", SettingValue::List(certificates), line);
                self.set("tls.key", SettingValue::List(keys), of_key);
            }
            (None, None) => {}
            (one, other) => {
                let line = one.or(other).map_or(0, |(_, line)| line);
                let reason = "as many keys as certificates are needed for TLS, and one of them is missing";
                self.missing(line, "confSERVER_CERT, confSERVER_KEY", reason, "set tls.certificate and tls.key");
            }
        }
    }

    /// In sendmail the same file vouches for clients and for servers.
    fn finish_authorities(&mut self) {
        let Some((files, line)) = self.said.authorities.take() else { return };
        let asks_clients = !self.said.spares_clients;
        let (there, gone): (Vec<String>, Vec<String>) = files.into_iter().partition(|file| (self.is_there)(file));
        // sendmail goes on without a file that is not there.
        let reason = if there.is_empty() {
            "there is no such file; servers are judged by the CAs of the system"
        } else {
            "there is no such file"
        };
        let hint = if asks_clients { "set tls.client_ca and tls.ca_files" } else { "set tls.ca_files" };
        for file in gone {
            self.missing(line, &format!("confCACERT {file}"), reason, hint);
        }
        if there.is_empty() {
            return;
        }
        if asks_clients {
            self.set("tls.client_ca", SettingValue::List(there.clone()), line);
        }
        self.set("tls.ca_files", SettingValue::List(there), line);
    }

    fn finish_senders(&mut self) {
        let masquerade = self.said.masquerade.take();
        if masquerade.is_none() {
            // Without a name to stand for them these mean nothing.
            self.entries.retain(|entry| entry.table != "generics" || !entry.key.starts_with("masquerade_"));
        }
        if masquerade.is_none() && !self.said.has_generics {
            return;
        }
        let line = masquerade.as_ref().map_or(0, |(_, line)| *line);
        if let Some((name, line)) = masquerade {
            self.set("generics.masquerade", SettingValue::Text(name), line);
            if self.said.is_limited {
                self.flag("generics.masquerade_limited", true, 0);
            }
            let (exposed, line) = std::mem::take(&mut self.said.exposed);
            self.set("generics.exposed_users", SettingValue::List(exposed), line);
        }
        self.flag("generics.envelope", self.said.envelope, 0);
        if self.said.all_recipients {
            self.flag("generics.recipients", true, 0);
        }
        let reason = "header fields are rewritten in mail of clients that may send anywhere, and not in mail of others";
        self.differs(
            line,
            "MASQUERADE_AS, FEATURE(`genericstable')",
            reason,
            "see \"generics.headers\" in docs/routing.md",
        );
        if std::mem::take(&mut self.said.generics_below) {
            self.with_subdomains("domains");
        }
        if std::mem::take(&mut self.said.masquerade_below) {
            self.with_subdomains("masquerade_domains");
        }
    }

    /// Domains of a list in `generics` include the names below them.
    fn with_subdomains(&mut self, key: &str) {
        let entry = self.entries.iter_mut().find(|entry| entry.table == "generics" && entry.key == key);
        if let Some(SettingEntry { value: SettingValue::List(list), .. }) = entry {
            for domain in list.iter_mut().filter(|domain| !domain.starts_with('.')) {
                domain.insert(0, '.');
            }
        }
    }

    fn finish_access(&mut self) {
        if self.said.has_access && !self.has("access.blocklist_recipients") {
            self.flag("access.blocklist_recipients", false, 0);
        }
        if self.said.hosts_only
            && let Some(entry) = self.entries.iter_mut().find(|entry| entry.table == "relay" && entry.key == "to")
            && let SettingValue::List(list) = &mut entry.value
        {
            list.iter_mut().for_each(|name| *name = name.trim_start_matches('.').to_owned());
        }
        if let Some(line) = self.said.entire_domain.take() {
            let domain =
                self.text_of("hostname").and_then(|name| name.split_once('.')).map(|(_, domain)| domain.to_owned());
            match domain.filter(|domain| !is_registry(domain)) {
                Some(domain) => self.add("relay.to", format!(".{domain}"), line),
                None => self.missing(
                    line,
                    "FEATURE(`relay_entire_domain')",
                    "the domain is not written in the file, or may be one that many share",
                    "set relay.to = [\".your-domain\"]",
                ),
            }
        }
        if !self.said.has_relay_domains && (self.is_there)("/etc/mail/relay-domains") {
            self.add("relay.to_files", "/etc/mail/relay-domains", 0);
        }
        if self.said.is_local_file {
            let file = self.said.local_file.take().unwrap_or_else(|| "/etc/mail/local-host-names".to_owned());
            self.add("local.domain_files", file, 0);
        }
        if !self.has("message.size_max") {
            let reason = "sendmail has no limit without confMAX_MESSAGE_SIZE; ours is 50MiB";
            self.differs(0, "confMAX_MESSAGE_SIZE", reason, "set message.size_max for larger messages");
        }
    }

    fn finish_route(&mut self) {
        let Some((text, line)) = self.said.smart_host.take() else { return };
        let statement = format!("SMART_HOST {text}");
        match super::values::hosts(&text, self.said.smart_port.unwrap_or(25)) {
            Ok(hosts) => {
                self.set("route.smart_host", SettingValue::Lists(hosts.groups), line);
                if hosts.has_mx {
                    let reason =
                        "sendmail looks up MX records of a name without brackets; here its addresses are looked up";
                    self.differs(line, &statement, reason, "write the hosts of its MX records, if it has some");
                }
            }
            Err(reason) => self.missing(line, &statement, reason, "set route.smart_host"),
        }
    }

    fn finish_maps(&mut self) {
        if !self.has("maps.aliases") {
            self.add("maps.aliases", "/etc/mail/aliases", 0);
        }
    }

    fn finish_listeners(&mut self) {
        let mut seen = BTreeSet::new();
        let listeners = std::mem::take(&mut self.listeners);
        for listener in listeners {
            if listener.is_implicit_tls && !self.has("tls.certificate") {
                let reason = "TLS from the first byte needs a certificate";
                self.missing(
                    listener.line,
                    &listener.address,
                    reason,
                    "set tls.certificate and tls.key, and add the listener",
                );
            } else if listener.is_comment || seen.insert(listener.address.clone()) {
                self.listeners.push(listener);
            } else {
                self.missing(listener.line, &listener.address, "a second listener on this address", "");
            }
        }
    }

    fn toml(&self) -> String {
        let mut text =
            format!("# From {}. Look it over with: mailrace check --config FILE\n", plain(&self.main_file()));
        for table in TABLES {
            let entries: Vec<&SettingEntry> = self.entries.iter().filter(|entry| entry.table == table).collect();
            if !entries.is_empty() {
                let head = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
                let _infallible = write!(text, "\n{head}");
            }
            for entry in entries {
                let _infallible =
                    writeln!(text, "{} = {}{}", entry.key, written(&entry.value), origin(&entry.lines, &self.names));
            }
        }
        for (zone, line) in &self.said.lists {
            let _infallible =
                write!(text, "\n[[dnsbl.list]]\nzone = {}{}\n", quoted(zone), origin(&[*line], &self.names));
        }
        self.said.ldap.tables.iter().for_each(|table| text.push_str(table));
        for listener in &self.listeners {
            text.push_str(&self.listener(listener));
        }
        text
    }

    fn listener(&self, listener: &Listener) -> String {
        let mut table =
            format!("[[listen]]\naddress = {}{}\n", quoted(&listener.address), origin(&[listener.line], &self.names));
        if let Some(name) = &listener.name {
            let _infallible = writeln!(table, "name = {}", quoted(name));
        }
        if listener.is_implicit_tls {
            table.push_str("tls = \"implicit\"\n");
        }
        if self.said.is_interactive {
            table.push_str("acknowledge = \"interactive\"\n");
        }
        if listener.is_comment {
            table.push_str("protocol = \"submission\"\n");
            table = table.lines().fold(String::new(), |text, line| text + "# " + line + "\n");
        }
        format!("\n{table}")
    }
}

/// Where a key comes from: lines of the imported file, and of others with their names.
pub(super) fn origin(places: &[usize], names: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let of_file = places.iter().filter(|place| **place % LINES_MAX > 0 && **place / LINES_MAX == number);
        let lines: Vec<String> = of_file.map(|place| (place % LINES_MAX).to_string()).collect();
        let name = if number == 0 { String::new() } else { format!("{}: ", plain(name)) };
        match lines.len() {
            0 => {}
            1 => parts.push(format!("{name}line {}", lines.concat())),
            _ => parts.push(format!("{name}lines {}", lines.join(", "))),
        }
    }
    if parts.is_empty() { String::new() } else { format!("  # {}", parts.join("; ")) }
}

pub(super) fn written(value: &SettingValue) -> String {
    let list = |list: &[String]| format!("[{}]", list.iter().map(|one| quoted(one)).collect::<Vec<_>>().join(", "));
    match value {
        SettingValue::Text(text) => quoted(text),
        SettingValue::Bare(text) => text.clone(),
        SettingValue::List(one) => list(one),
        SettingValue::Lists(groups) => {
            let groups = groups.iter().map(|group| match group.as_slice() {
                [one] => quoted(one),
                some => list(some),
            });
            format!("[{}]", groups.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A basic string of TOML.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _infallible = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A statement on one line, and not too much of it.
fn short(text: &str) -> String {
    let text = plain(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match text.char_indices().nth(STATEMENT_MAX) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// Whether a domain may be one under which anybody registers names: `org`, `co.uk`, `com.au`. Relaying for it would be
/// relaying for strangers, so a short name below a country counts as one too.
fn is_registry(domain: &str) -> bool {
    match domain.split('.').collect::<Vec<_>>().as_slice() {
        [second, country] => country.len() == 2 && second.len() <= 3,
        [] | [_] => true,
        _ => false,
    }
}
