//! Maps in LDAP directories, and LDAP routing.
//!
//! A connection carries many questions at once and is opened anew when it broke. Servers are tried in order; one that does not
//! answer is left out for [`DEAD_TIME`]. All of it ends with `ldap.timeout`. What no server answers is trouble: mail waits.

use crate::config;
use crate::env::{blocking, clock};
use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, LdapError, Scope, SearchEntry, SearchOptions, SearchResult};
use route::question::{Answer, Question};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long a server that did not answer is not asked.
const DEAD_TIME: Duration = Duration::from_secs(5);
/// Questions at once on one connection.
const QUESTIONS_PER_CONNECTION: usize = 32;
/// The most entries whose values are put together.
const ENTRIES_MAX: i32 = 1_000;

/// Result codes (RFC 4511 §4.1.9).
const SUCCESS: u32 = 0;
const SIZE_LIMIT_EXCEEDED: u32 = 4;
const NO_SUCH_OBJECT: u32 = 32;
const BUSY: u32 = 51;
const UNAVAILABLE: u32 = 52;

/// The attributes of LDAP routing.
const HOST: &str = "mailHost";
const ADDRESS: &str = "mailRoutingAddress";

/// A directory, its connections and what it is asked.
#[derive(Debug)]
pub(super) struct Directory {
    table: config::Ldap,
    connections: Vec<tokio::sync::Mutex<Option<Open>>>,
    next: AtomicUsize,
    questions: Semaphore,
    /// For each server why it is not asked, and until when.
    dead: Mutex<Vec<Option<(Instant, String)>>>,
    numbers: AtomicUsize,
}

/// A connection.
#[derive(Clone, Debug)]
struct Open {
    ldap: Ldap,
    server: usize,
    number: usize,
}

/// An entry as far as it matters.
#[derive(Debug)]
struct Entry {
    dn: String,
    attributes: Vec<(String, Vec<String>)>,
}

/// Why there is no answer.
enum Failed {
    /// Another server may know.
    Server(String),
    /// The directory refuses the question.
    Question(String),
}

impl From<LdapError> for Failed {
    fn from(error: LdapError) -> Self {
        Self::Server(error.to_string())
    }
}

impl Directory {
    pub(super) fn new(table: &config::Ldap) -> Self {
        let connections = usize::from(table.connections);
        Self {
            connections: (0..connections).map(|_| tokio::sync::Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            questions: Semaphore::new(connections * QUESTIONS_PER_CONNECTION),
            dead: Mutex::new(vec![None; table.servers.len()]),
            numbers: AtomicUsize::new(0),
            table: table.clone(),
        }
    }

    /// The answer of the directory.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn answer(self: Arc<Self>, question: Question) -> Answer {
        let trouble = |why: String| Answer::Trouble(format!("ldap:{}: {why}", self.table.name).into());
        match timeout(self.table.timeout, self.find(&question)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => trouble(why),
            Err(_) => {
                let servers = self.table.servers.join(", ");
                trouble(format!("{servers}: no answer within {}", time_text(self.table.timeout)))
            }
        }
    }

    async fn find(&self, question: &Question) -> Result<Answer, String> {
        let (key, attributes, is_single) = match question {
            Question::Map { key, .. } => (key, vec![self.table.attribute.as_str()], self.table.separator.is_empty()),
            Question::Routing { key, .. } => (key, vec![HOST, ADDRESS], true),
            _ => return Err("it is asked for what no directory knows".to_owned()),
        };
        let filter = self.table.filter.replace("%k", &escape(key));
        let entries = self.search(&filter, &attributes, if is_single { 2 } else { ENTRIES_MAX }).await?;
        Ok(match question {
            Question::Routing { .. } => routing(&entries),
            _ => self.value(&entries),
        })
    }

    /// The value of a map: two are none, unless something stands between them.
    fn value(&self, entries: &[Entry]) -> Answer {
        let attribute = &self.table.attribute;
        let values: Vec<&str> = entries.iter().flat_map(|entry| entry.values(attribute)).map(String::as_str).collect();
        let place = |entry: &Entry| format!("ldap:{} {}", self.table.name, entry.dn).into();
        match (values.as_slice(), entries) {
            ([], _) | (_, []) => Answer::Nothing,
            ([value], [entry]) => Answer::Value { value: (*value).into(), place: place(entry) },
            (_, _) if self.table.separator.is_empty() => Answer::Nothing,
            (values, [entry, ..]) => {
                Answer::Value { value: values.join(&self.table.separator).into(), place: place(entry) }
            }
        }
    }

    /// Asks until somebody answers, each server at most twice: a connection may have been closed while it was idle.
    async fn search(&self, filter: &str, attributes: &[&str], entries_max: i32) -> Result<Vec<Entry>, String> {
        let Ok(_place) = self.questions.acquire().await else { return Err("the server stops".to_owned()) };
        let slot = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len().max(1);
        let mut why = String::new();
        for _ in 0..=2 * self.table.servers.len() {
            let (open, is_new) = self.connection(slot).await?;
            let url = self.url(open.server);
            let searching = self.search_on(open.ldap.clone(), filter, attributes, entries_max);
            let failed = match timeout(self.share(), searching).await {
                Ok(Ok(entries)) => return Ok(entries),
                Ok(Err(Failed::Question(why))) => return Err(format!("{url}: {why}")),
                Ok(Err(Failed::Server(why))) => Some(why).filter(|_| is_new),
                Err(_) => Some(format!("no answer within {}", time_text(self.share()))),
            };
            self.close(slot, &open).await;
            if let Some(failed) = failed {
                why = format!("{url}: {failed}");
                self.bury(open.server, failed);
            }
        }
        Err(why)
    }

    async fn search_on(
        &self,
        mut ldap: Ldap,
        filter: &str,
        attributes: &[&str],
        entries_max: i32,
    ) -> Result<Vec<Entry>, Failed> {
        ldap.with_timeout(self.share()).with_search_options(SearchOptions::new().sizelimit(entries_max));
        let SearchResult(found, result) = ldap.search(&self.table.base, Scope::Subtree, filter, attributes).await?;
        match result.rc {
            SUCCESS => {}
            // Two are as good as more.
            SIZE_LIMIT_EXCEEDED if entries_max == 2 && found.len() == 2 => {}
            BUSY | UNAVAILABLE => return Err(Failed::Server(result.to_string())),
            NO_SUCH_OBJECT => {
                let base = &self.table.base;
                return Err(Failed::Question(format!("ldap.base \"{base}\" is not there, or may not be read")));
            }
            _ => return Err(Failed::Question(result.to_string())),
        }
        let entry = |found| {
            let SearchEntry { dn, attrs, .. } = SearchEntry::construct(found);
            Entry { dn, attributes: attrs.into_iter().collect() }
        };
        Ok(found.into_iter().map(entry).collect())
    }

    /// A connection that is open, as far as is known, and whether it is new.
    async fn connection(&self, slot: usize) -> Result<(Open, bool), String> {
        let Some(slot) = self.connections.get(slot) else { return Err("ldap.connections is 0".to_owned()) };
        let mut kept = slot.lock().await;
        if let Some(open) = kept.as_mut()
            && !open.ldap.is_closed()
        {
            return Ok((open.clone(), false));
        }
        *kept = None;
        for (server, url) in self.table.servers.iter().enumerate() {
            if self.is_dead(server) {
                continue;
            }
            let connecting = Box::pin(self.connect(url));
            match timeout(self.share(), connecting).await {
                Ok(Ok(ldap)) => {
                    let open = Open { ldap, server, number: self.numbers.fetch_add(1, Ordering::Relaxed) };
                    *kept = Some(open.clone());
                    return Ok((open, true));
                }
                Ok(Err(why)) => self.bury(server, why),
                Err(_) => self.bury(server, format!("no connection within {}", time_text(self.share()))),
            }
        }
        drop(kept);
        let dead = self.dead();
        let said = dead
            .iter()
            .enumerate()
            .filter_map(|(server, dead)| dead.as_ref().map(|(_, why)| format!("{}: {why}", self.url(server))));
        Err(said.collect::<Vec<_>>().join("; "))
    }

    async fn connect(&self, url: &str) -> Result<Ldap, String> {
        let has_starttls = self.table.starttls && url.starts_with("ldap://");
        let settings = LdapConnSettings::new().set_starttls(has_starttls);
        let connected = LdapConnAsync::with_settings(settings, url).await;
        let (connection, mut ldap) = connected.map_err(|error| error.to_string())?;
        // It ends with its handles; what it says of its end, who asks hears too.
        tokio::spawn(async move { drop(connection.drive().await) });
        if !self.table.bind.is_empty() {
            let password = self.password().await?;
            let bound = ldap.simple_bind(&self.table.bind, &password).await.and_then(ldap3::LdapResult::success);
            bound.map_err(|error| format!("bind as \"{}\": {error}", self.table.bind))?;
        }
        Ok(ldap)
    }

    async fn password(&self) -> Result<String, String> {
        let Some(path) = self.table.password_file.clone() else {
            return Err("ldap.bind without ldap.password_file".to_owned());
        };
        let shown = path.display().to_string();
        let read = blocking::run(move || std::fs::read_to_string(path)).await;
        let text = match read {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => return Err(format!("ldap.password_file: {shown}: {error}")),
            Err(_) => return Err(format!("ldap.password_file: {shown}: the reading thread broke off")),
        };
        match text.lines().next() {
            // Servers take it for an anonymous bind, which succeeds (RFC 4513 §5.1.2).
            None | Some("") => Err(format!("ldap.password_file: {shown} has no password in its first line")),
            Some(password) => Ok(password.to_owned()),
        }
    }

    /// Forgets a connection, unless another has its place by now.
    async fn close(&self, slot: usize, open: &Open) {
        if let Some(slot) = self.connections.get(slot) {
            let mut kept = slot.lock().await;
            if kept.as_ref().is_some_and(|kept| kept.number == open.number) {
                *kept = None;
            }
        }
    }

    fn dead(&self) -> MutexGuard<'_, Vec<Option<(Instant, String)>>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bury(&self, server: usize, why: String) {
        if let Some(dead) = self.dead().get_mut(server) {
            *dead = Some((clock::now() + DEAD_TIME, why));
        }
    }

    fn is_dead(&self, server: usize) -> bool {
        let now = clock::now();
        self.dead().get(server).and_then(Option::as_ref).is_some_and(|(until, _)| now < *until)
    }

    fn url(&self, server: usize) -> &str {
        self.table.servers.get(server).map_or("", String::as_str)
    }

    /// The time of one server, so that all can be asked within the whole.
    fn share(&self) -> Duration {
        self.table.timeout / u32::try_from(self.table.servers.len() + 1).unwrap_or(u32::MAX)
    }
}

impl Entry {
    /// The values of an attribute; servers write its name as they like.
    fn values(&self, attribute: &str) -> impl Iterator<Item = &String> {
        let of_name = self.attributes.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(attribute));
        of_name.flat_map(|(_, values)| values)
    }
}

/// What entries say of an address: each attribute counts if it has one value, as with sendmail.
fn routing(entries: &[Entry]) -> Answer {
    let [entry] = entries else { return Answer::Nothing };
    let single = |attribute| {
        let mut values = entry.values(attribute);
        match (values.next(), values.next()) {
            (Some(value), None) => Some(value.as_str().into()),
            _ => None,
        }
    };
    Answer::Routing { host: single(HOST), address: single(ADDRESS) }
}

fn time_text(time: Duration) -> String {
    format!("{:.1}s", time.as_secs_f32())
}

/// A key as the value of a filter: all octets but those of plain addresses as `\xx` (RFC 4515 §3).
fn escape(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for octet in key.bytes() {
        if octet.is_ascii_alphanumeric() || b"@.-_+".contains(&octet) {
            escaped.push(char::from(octet));
        } else {
            escaped.push_str(&format!("\\{octet:02x}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_value_whatever_is_in_it() {
        for key in [
            "joe@x.test",
            "*",
            "*)(uid=*",
            "a)(|(objectClass=*",
            "\\2a",
            "a\0b",
            "jörg@müller.test",
            "%k",
            " lead and trail ",
            "",
            "\\",
            "a&b|c!d=e~f<g>h",
        ] {
            let escaped = escape(key);
            assert!(!escaped.contains(['(', ')', '*', '\0', '&', '|']), "{escaped}");
            assert_eq!(ldap3::ldap_unescape(escaped.as_str()).unwrap(), key);
            let whole = format!("(&(objectClass=person)(mail={escaped}))");
            let plain = ldap3::parse_filter("(&(objectClass=person)(mail=x))").unwrap();
            let shape = |filter: &str| {
                let text = format!("{:?}", ldap3::parse_filter(filter).unwrap());
                (text.matches("Sequence").count(), text.matches("OctetString").count())
            };
            assert_eq!(shape(&whole), shape("(&(objectClass=person)(mail=x))"), "{key} {plain:?}");
        }
        // What is not escaped does change the shape: the check can fail.
        let raw = format!("{:?}", ldap3::parse_filter("(&(objectClass=person)(mail=*)(uid=*))").unwrap());
        let plain = format!("{:?}", ldap3::parse_filter("(&(objectClass=person)(mail=x))").unwrap());
        assert_ne!(raw.matches("OctetString").count(), plain.matches("OctetString").count());
    }

    fn entry(pairs: &[(&str, &[&str])]) -> Entry {
        let own = |(name, values): &(&str, &[&str])| {
            ((*name).to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
        };
        Entry { dn: "uid=x".to_owned(), attributes: pairs.iter().map(own).collect() }
    }

    #[test]
    fn two_answers_are_none_unless_they_are_put_together() {
        let mut table = config::Ldap { name: "d".to_owned(), ..blank() };
        table.attribute = "maildrop".to_owned();
        let value = |separator: &str, entries: &[Entry]| {
            let directory = Directory::new(&config::Ldap { separator: separator.to_owned(), ..table.clone() });
            match directory.value(entries) {
                Answer::Value { value, .. } => Some(value.to_string()),
                _ => None,
            }
        };
        let (one, two) = (entry(&[("mailDrop", &["a"])]), entry(&[("maildrop", &["b", "c"])]));
        assert_eq!(value("", std::slice::from_ref(&one)).as_deref(), Some("a"));
        assert_eq!(value("", std::slice::from_ref(&two)), None);
        assert_eq!(value(", ", &[one, two]).as_deref(), Some("a, b, c"));
        assert_eq!(value(", ", &[entry(&[])]), None);
        let (host, address) = (("mailhost", &["h"][..]), ("mailRoutingAddress", &["x@y", "z@y"][..]));
        assert_eq!(routing(&[entry(&[host, address])]), Answer::Routing { host: Some("h".into()), address: None });
        assert_eq!(routing(&[entry(&[host]), entry(&[host])]), Answer::Nothing);
    }

    fn blank() -> config::Ldap {
        config::Ldap {
            name: "d".to_owned(),
            servers: vec!["ldap://127.0.0.1:1".to_owned(), "ldap://127.0.0.1:2".to_owned()],
            base: "dc=x".to_owned(),
            bind: String::new(),
            password_file: None,
            starttls: false,
            filter: "(mail=%k)".to_owned(),
            attribute: "maildrop".to_owned(),
            separator: String::new(),
            routing_domains: Vec::new(),
            bounce: true,
            detail: config::LdapDetail::Keep,
            no_domain: false,
            timeout: Duration::from_secs(5),
            connections: 2,
            cache_time: Duration::ZERO,
            negative_time: Duration::ZERO,
            stale_max: Duration::ZERO,
            cache_entries_max: 1,
        }
    }

    #[tokio::test]
    async fn servers_that_are_down_are_trouble_and_named() {
        let directory = Arc::new(Directory::new(&blank()));
        let question = Question::Routing { source: "ldap:d".into(), key: "a@b".into() };
        let Answer::Trouble(why) = Arc::clone(&directory).answer(question).await else { panic!("it is down") };
        assert!(why.starts_with("ldap:d: ldap://127.0.0.1:1: ") && why.contains("; ldap://127.0.0.1:2: "), "{why}");
        assert!(directory.is_dead(0) && directory.is_dead(1));
    }
}
