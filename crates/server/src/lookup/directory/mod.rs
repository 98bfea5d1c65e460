//! Maps in LDAP directories, and LDAP routing.
//!
//! A connection carries many questions at once and is opened anew after it breaks. Servers are tried in order; one
//! that does not answer is left out for [`DEAD_TIME`]. A connection that answered before and now does not says
//! nothing about its server, which may have been restarted: it is opened once more. `ldap.timeout` limits all of it.
//! A question that no server answers gives trouble: mail waits.
//!
//! References to other directories are not followed. A search that returns references and no entry gives trouble,
//! unless `ldap.referrals` says that they do not matter.

mod dial;
mod entry;
pub(crate) mod fuzz;

use crate::config::{self, LdapReferrals};
use dial::dial;
use entry::DirectoryEntry;
use futures_util::FutureExt as _;
use ldap3::{Ldap, LdapError, LdapResult, Scope, SearchOptions, SearchResult};
use os::clock;
use route::question::{Answer, Question};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long a server that did not answer is not asked.
const DEAD_TIME: Duration = Duration::from_secs(5);
/// Questions at once on one connection.
const QUESTIONS_PER_CONNECTION: usize = 32;
/// Questions after which a connection is opened anew: the library keeps the number of each.
const QUESTIONS_PER_LIFE: usize = 100_000;
/// The most entries whose values are put together.
const ENTRIES_MAX: i32 = 1_000;

/// Result codes (RFC 4511 §4.1.9).
const SUCCESS: u32 = 0;
const OPERATIONS_ERROR: u32 = 1;
const TIME_LIMIT_EXCEEDED: u32 = 3;
const SIZE_LIMIT_EXCEEDED: u32 = 4;
const STRONGER_AUTH_REQUIRED: u32 = 8;
const REFERRAL: u32 = 10;
const ADMIN_LIMIT_EXCEEDED: u32 = 11;
const CONFIDENTIALITY_REQUIRED: u32 = 13;
const NO_SUCH_OBJECT: u32 = 32;
const INAPPROPRIATE_AUTHENTICATION: u32 = 48;
const INSUFFICIENT_ACCESS_RIGHTS: u32 = 50;
const BUSY: u32 = 51;
const UNAVAILABLE: u32 = 52;
const OTHER: u32 = 80;

/// The attributes of LDAP routing.
const HOST: &str = "mailHost";
const ADDRESS: &str = "mailRoutingAddress";

/// A directory, its connections and its query.
#[derive(Debug)]
pub(super) struct Directory {
    table: config::Ldap,
    connections: Vec<tokio::sync::Mutex<Option<LdapConnection>>>,
    next: AtomicUsize,
    questions: Semaphore,
    /// For each server the reason why it is not asked, and until when.
    dead: Mutex<Vec<Option<(Instant, String)>>>,
    numbers: AtomicUsize,
}

/// A connection.
#[derive(Clone, Debug)]
struct LdapConnection {
    ldap: Ldap,
    server: usize,
    number: usize,
    /// Whether it ever answered a question.
    has_answered: Arc<AtomicBool>,
    questions: Arc<AtomicUsize>,
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
        Self::Server(dial::text(&error))
    }
}

impl Directory {
    /// Returns the settings that it was made from.
    pub(super) const fn table(&self) -> &config::Ldap {
        &self.table
    }

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

    /// Returns the answer of the directory.
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

    /// Returns the value of a map: two are none, unless something stands between them.
    fn value(&self, entries: &[DirectoryEntry]) -> Answer {
        let attribute = &self.table.attribute;
        let values: Vec<&str> = entries.iter().flat_map(|entry| entry.values(attribute)).map(String::as_str).collect();
        let place = |entry: &DirectoryEntry| format!("ldap:{} {}", self.table.name, entry.dn).into();
        match (values.as_slice(), entries) {
            ([], _) | (_, []) => Answer::Nothing,
            ([value], [entry]) => Answer::Value { value: (*value).into(), place: place(entry) },
            (_, _) if self.table.separator.is_empty() => Answer::Nothing,
            (values, [entry, ..]) => {
                Answer::Value { value: values.join(&self.table.separator).into(), place: place(entry) }
            }
        }
    }

    /// Asks until a server answers, each at most twice: a connection may have been closed while it was idle.
    async fn search(&self, filter: &str, attributes: &[&str], entries_max: i32) -> Result<Vec<DirectoryEntry>, String> {
        let Ok(_place) = self.questions.acquire().await else { return Err("the server stops".to_owned()) };
        let slot = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len().max(1);
        let mut why = String::new();
        for _ in 0..=2 * self.table.servers.len() {
            let open = self.connection(slot).await?;
            open.questions.fetch_add(1, Ordering::Relaxed);
            let searching = self.search_on(open.ldap.clone(), filter, attributes, entries_max);
            let failed = match timeout(self.share(), searching).await {
                Ok(Ok(entries)) => {
                    open.has_answered.store(true, Ordering::Relaxed);
                    return Ok(entries);
                }
                Ok(Err(Failed::Question(why))) => {
                    open.has_answered.store(true, Ordering::Relaxed);
                    return Err(format!("{}: {why}", self.url(open.server)));
                }
                Ok(Err(Failed::Server(why))) => why,
                Err(_) => format!("no answer within {}", time_text(self.share())),
            };
            why = format!("{}: {failed}", self.url(open.server));
            if !open.has_answered.load(Ordering::Relaxed) {
                self.bury(open.server, failed);
            }
            self.close(slot, &open).await;
        }
        Err(why)
    }

    async fn search_on(
        &self,
        mut ldap: Ldap,
        filter: &str,
        attributes: &[&str],
        entries_max: i32,
    ) -> Result<Vec<DirectoryEntry>, Failed> {
        let seconds = i32::try_from(self.share().as_secs() + 1).unwrap_or(i32::MAX);
        ldap.with_search_options(SearchOptions::new().sizelimit(entries_max).timelimit(seconds));
        let searching = ldap.search(&self.table.base, Scope::Subtree, filter, attributes);
        // The library panics at a result whose form is wrong.
        let searched = AssertUnwindSafe(searching).catch_unwind().await;
        let malformed = |what| Failed::Server(format!("it sends {what} that breaks the protocol"));
        let SearchResult(found, result) = searched.map_err(|_| malformed("a result"))??;
        match result.rc {
            SUCCESS => {}
            // Two are as good as more.
            SIZE_LIMIT_EXCEEDED if entries_max == 2 && found.len() == 2 => {}
            BUSY | UNAVAILABLE | OTHER => return Err(Failed::Server(dial::result_text(&result))),
            _ => return Err(Failed::Question(self.refused(&result, found.len()))),
        }
        if found.is_empty() && !result.refs.is_empty() && self.table.referrals == LdapReferrals::Defer {
            let others = result.refs.join(", ");
            return Err(Failed::Question(format!(
                "nothing is found here, and {others} may know more; ask that server too, set ldap.base to what is below it, or set \
                 ldap.referrals = \"ignore\" if it knows no recipients"
            )));
        }
        let entries: Option<Vec<_>> = found.into_iter().map(|found| entry::read(found.0)).collect();
        entries.ok_or_else(|| malformed("an entry"))
    }

    /// Words the refusal of the directory, with the next step for the operator.
    fn refused(&self, result: &LdapResult, found: usize) -> String {
        let said = dial::result_text(result);
        let who = match self.table.bind.as_str() {
            "" => "without ldap.bind".to_owned(),
            bind => format!("as \"{bind}\""),
        };
        let base = &self.table.base;
        match result.rc {
            NO_SUCH_OBJECT => format!("ldap.base \"{base}\" is not there, or may not be read {who}: {said}"),
            INSUFFICIENT_ACCESS_RIGHTS | INAPPROPRIATE_AUTHENTICATION => {
                format!("\"{base}\" may not be searched {who}: {said}")
            }
            OPERATIONS_ERROR if self.table.bind.is_empty() => format!("{said}; it may want ldap.bind"),
            STRONGER_AUTH_REQUIRED | CONFIDENTIALITY_REQUIRED => {
                format!("{said}; set ldap.starttls = true, write ldaps://, or set ldap.bind")
            }
            TIME_LIMIT_EXCEEDED | ADMIN_LIMIT_EXCEEDED => {
                format!("{said}; the directory needs an index for the attributes of ldap.filter {}", self.table.filter)
            }
            SIZE_LIMIT_EXCEEDED => {
                format!("{said} after {found} entries; narrow ldap.filter, or raise the directory's limit")
            }
            REFERRAL => {
                let others = result.refs.join(", ");
                format!("ldap.base \"{base}\" is not here but at {others}; name that server in ldap.servers")
            }
            _ => said,
        }
    }

    /// Returns a connection that is open, as far as is known.
    async fn connection(&self, slot: usize) -> Result<LdapConnection, String> {
        let Some(slot) = self.connections.get(slot) else { return Err("ldap.connections is 0".to_owned()) };
        let mut kept = slot.lock().await;
        if let Some(open) = kept.as_mut()
            && !open.ldap.is_closed()
            && open.questions.load(Ordering::Relaxed) < QUESTIONS_PER_LIFE
        {
            return Ok(open.clone());
        }
        *kept = None;
        for (server, url) in self.table.servers.iter().enumerate() {
            if self.is_dead(server) {
                continue;
            }
            let dialling = Box::pin(dial(&self.table, url));
            match timeout(self.share(), dialling).await {
                Ok(Ok(ldap)) => {
                    let open = LdapConnection {
                        ldap,
                        server,
                        number: self.numbers.fetch_add(1, Ordering::Relaxed),
                        has_answered: Arc::default(),
                        questions: Arc::default(),
                    };
                    *kept = Some(open.clone());
                    return Ok(open);
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

    /// Forgets a connection, unless another has its place by now.
    async fn close(&self, slot: usize, open: &LdapConnection) {
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

    /// Returns the time of one server, so that all can be asked within the whole.
    fn share(&self) -> Duration {
        self.table.timeout / u32::try_from(self.table.servers.len() + 1).unwrap_or(u32::MAX)
    }
}

impl DirectoryEntry {
    /// Returns the values of an attribute; servers write its name as they like.
    fn values(&self, attribute: &str) -> impl Iterator<Item = &String> {
        let of_name = self.attributes.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(attribute));
        of_name.flat_map(|(_, values)| values)
    }
}

/// Returns the routing that entries give for an address: each attribute counts if it has one value, as with sendmail.
fn routing(entries: &[DirectoryEntry]) -> Answer {
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

/// Returns a key as the value of a filter: all octets but those of plain addresses as `\xx` (RFC 4515 §3).
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
        // A value that is not escaped changes the shape, so the check can fail.
        let raw = format!("{:?}", ldap3::parse_filter("(&(objectClass=person)(mail=x)(uid=y))").unwrap());
        let plain = format!("{:?}", ldap3::parse_filter("(&(objectClass=person)(mail=x))").unwrap());
        assert_ne!(raw.matches("OctetString").count(), plain.matches("OctetString").count());
    }

    fn entry(pairs: &[(&str, &[&str])]) -> DirectoryEntry {
        let own = |(name, values): &(&str, &[&str])| {
            ((*name).to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
        };
        DirectoryEntry { dn: "uid=x".to_owned(), attributes: pairs.iter().map(own).collect() }
    }

    #[test]
    fn two_answers_are_none_unless_they_are_put_together() {
        let mut table = config::Ldap { name: "d".to_owned(), ..blank() };
        table.attribute = "maildrop".to_owned();
        let value = |separator: &str, entries: &[DirectoryEntry]| {
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

    pub(super) fn blank() -> config::Ldap {
        config::Ldap {
            name: "d".to_owned(),
            servers: vec!["ldap://127.0.0.1:1".to_owned(), "ldap://127.0.0.1:2".to_owned()],
            base: "dc=x".to_owned(),
            bind: String::new(),
            password_file: None,
            starttls: false,
            ca_file: None,
            referrals: LdapReferrals::Defer,
            filter: "(mail=%k)".to_owned(),
            attribute: "maildrop".to_owned(),
            separator: String::new(),
            routing_domains: Vec::new(),
            routing_equivalents: Vec::new(),
            routing_name: String::new(),
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
