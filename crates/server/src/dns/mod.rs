//! Questions to the DNS, asked so that a slow or dead DNS costs a session only the answer.
//!
//! One [`Resolver`] serves the whole server. It adds to the library's protocol: a time limit on each question
//! (`dns.timeout`), a bound on open questions, a cache of bounded size in which errors count as answers for a short
//! while, one question where several sessions ask the same, and a breaker that stops asking a resolver that is dead.
//! Nothing here blocks a worker, and no task is started: the caller that asks drives the question, and if it goes
//! away another caller that waits for the same answer takes over.
//!
//! Other modules interpret answers: [`Resolver::reverse`] gives the verified name of a client,
//! [`Resolver::mail_hosts`] the hosts of a domain, and `admit::dnsbl` asks block lists.

mod answer;
mod breaker;
mod cache;
#[cfg(test)]
mod cost;
mod exchange;
pub mod fuzz;
mod machine;
mod mail_hosts;
pub(crate) mod overrides;
mod places;
mod reverse;
mod servers;
mod shuffle;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use filter::dns_question::{DnsAnswer, DnsQuestion, DnsRecord, RecordKind};
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use ipnet::IpNet;
use tokio::sync::watch;
use tokio::time::{Instant as Timer, timeout_at};

pub use answer::RECORDS_MAX;
use answer::{Answer, AnswerReading, CachedAnswer, Data, Kind, RecordSet};
use breaker::{Breaker, Course};
use cache::Cache;
use exchange::QuestionExchange;
pub(crate) use machine::MachineFiles;
pub use mail_hosts::{Family, HOLD_MIN, HostAddresses, LocalIdentity, MailHost, MailHosts, NoHosts};
use overrides::Overrides;
use places::Places;
pub use reverse::ClientName;
use servers::{Client, Servers};
pub use shuffle::Shuffle;

/// Open questions of sessions; more wait, within their time limit.
pub const QUESTIONS_MAX: usize = 256;
/// Open questions of deliveries, so that a storm of them takes no place from sessions; more wait likewise.
pub const DELIVERY_QUESTIONS_MAX: usize = 512;
/// Open look-ups of mail hosts, each with a few questions; more wait their turn, as long as it takes.
pub const LOOKUPS_MAX: usize = 128;
/// Further open questions of deliveries, for those that take long.
pub const SLOW_QUESTIONS_MAX: usize = 1_536;
/// Further open look-ups, for those that take long.
pub const SLOW_LOOKUPS_MAX: usize = 1_536;
/// RFC 8767 §5: how long the servers have for an answer while one is at hand whose time is over.
const STALE_PATIENCE: Duration = Duration::from_millis(1_800);
/// RFC 8767 §5: how long an answer whose time is over serves until the servers are asked again.
const STALE_TIME: Duration = Duration::from_secs(30);
/// Aliases of which the last leads nowhere that are followed.
const ALIASES_MAX: usize = 6;

/// Why there is no answer. An empty answer is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// None came in time.
    TimedOut,
    /// The resolver is dead and was not asked.
    Skipped,
    /// The resolver cannot tell: SERVFAIL, REFUSED, or a reply that is no answer.
    Failed,
    /// The name cannot be asked for.
    BadName,
    /// The cache has no answer, and the caller wants no question.
    NotKept,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "no answer from the DNS in time",
            Self::Skipped => "DNS not asked: the resolver does not answer",
            Self::Failed => "the DNS server reports a failure",
            Self::BadName => "not a name for the DNS",
            Self::NotKept => "no answer at hand",
        })
    }
}

type Key = (Box<str>, Kind);

/// Counters for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions that went out.
    pub asked: u64,
    /// Answered from the cache.
    pub cached: u64,
    /// Questions that waited for another caller's look-up of the same name.
    pub shared: u64,
    /// No answer in time.
    pub timed_out: u64,
    /// Not asked because the resolver is dead.
    pub skipped: u64,
    /// Answered although the time of the answer was over, because the servers failed.
    pub stale: u64,
    /// Answered by `[[dns.override]]`.
    pub overridden: u64,
    /// Look-ups of mail hosts that waited for one of [`LOOKUPS_MAX`] places.
    pub lookups_waited: u64,
    /// Name servers that were silent lately and are asked last.
    pub servers_silent: usize,
    /// Entries in the cache.
    pub cache_entries: usize,
    /// The resolver is being skipped now.
    pub dead: bool,
}

/// A note for the operator, logged once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsNote {
    /// The resolver does not answer; it is not asked for a while.
    Dead,
    /// It answers again.
    Alive,
    /// Something in /etc/resolv.conf or /etc/hosts does not count.
    File(String),
}

impl fmt::Display for DnsNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dead => {
                "DNS resolver does not answer; until it does, mail to domains waits, clients have no names and block \
                 lists are not asked; see dns.servers or /etc/resolv.conf"
            }
            Self::Alive => "DNS resolver answers again",
            Self::File(text) => text,
        })
    }
}

/// The settings cannot be used.
#[derive(Debug)]
pub struct SetupError(String);

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DNS cannot be set up: {}; set dns.servers", self.0)
    }
}

impl std::error::Error for SetupError {}

struct ResolverState {
    cache: Cache<Key, CachedAnswer>,
    /// Open questions, as many as there are callers at most; a caller that waits gets the answer, or sees that the
    /// one that asked is gone.
    open: HashMap<Key, watch::Receiver<Option<CachedAnswer>>>,
    breaker: Breaker,
    counts: Counts,
    notes: Vec<DnsNote>,
}

/// Limits of a question.
#[derive(Clone, Copy)]
struct QuestionLimit<'a> {
    until: Timer,
    places: &'a Places,
    /// A stale answer may serve.
    stale: bool,
    /// If not, only the cache answers.
    asks: bool,
}

/// Settings and files that a resolver is made from.
#[derive(PartialEq, Eq)]
struct ResolverOrigin {
    settings: crate::config::Dns,
    files: MachineFiles,
}

struct Inner {
    origin: ResolverOrigin,
    servers: Servers,
    overrides: Overrides,
    /// /etc/hosts, which the library looks into by itself; here to know whether a name is in it.
    hosts: Arc<Hosts>,
    timeout: Duration,
    stale_max: Duration,
    ignored_addresses: Vec<IpNet>,
    places: Places,
    delivery_places: Places,
    lookups: Places,
    state: Mutex<ResolverState>,
}

/// Access to the DNS. Clones share everything.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

impl Resolver {
    /// Makes a resolver from `[dns]`. Reads /etc/resolv.conf and /etc/hosts: blocking, for the start and for reloads.
    /// Each line that does not count becomes a note.
    ///
    /// # Errors
    /// The library takes no such settings.
    pub fn new(settings: &crate::config::Dns) -> Result<Self, SetupError> {
        Self::with(settings, MachineFiles::read(settings))
    }

    /// The same, with files that were read before.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn with(settings: &crate::config::Dns, files: MachineFiles) -> Result<Self, SetupError> {
        let setup = |error: NetError| SetupError(error.to_string());
        let mut hosts = Hosts::default();
        let hosts = hosts.read_hosts_conf(files.hosts.as_bytes()).map(|()| hosts).unwrap_or_default();
        let hosts = Arc::new(hosts);
        let client = |server: SocketAddr| {
            let library = name_server(server);
            Ok(Client {
                exchange: QuestionExchange::new(server),
                edns: client(library.clone(), true, settings.timeout, &hosts)?,
                plain: client(library, false, settings.timeout, &hosts)?,
            })
        };
        let clients = files.servers.iter().copied().map(client);
        let clients = clients.collect::<Result<Vec<_>, _>>().map_err(setup)?;
        let notes = files.warnings.iter().cloned().map(DnsNote::File).collect();
        let state = ResolverState {
            cache: Cache::new(usize::try_from(settings.cache_entries_max).unwrap_or(usize::MAX)),
            open: HashMap::new(),
            breaker: Breaker::default(),
            counts: Counts::default(),
            notes,
        };
        Ok(Self(Arc::new(Inner {
            origin: ResolverOrigin { settings: settings.clone(), files },
            servers: Servers::new(clients, Arc::clone(&hosts), settings.timeout),
            overrides: Overrides::new(&settings.overrides),
            hosts,
            timeout: settings.timeout,
            stale_max: settings.stale_max,
            ignored_addresses: settings.ignored_addresses.clone(),
            places: Places::new(QUESTIONS_MAX, 0),
            delivery_places: Places::new(DELIVERY_QUESTIONS_MAX, SLOW_QUESTIONS_MAX),
            lookups: Places::new(LOOKUPS_MAX, SLOW_LOOKUPS_MAX),
            state: Mutex::new(state),
        })))
    }

    /// Returns whether it asks the same servers in the same manner as the other, with the same /etc/hosts: kept
    /// answers are as good for one as for the other.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.0.origin == other.0.origin
    }

    /// Checks whether the machine's files say what they said when it was made.
    pub(crate) fn has_files(&self, files: &MachineFiles) -> bool {
        self.0.origin.files == *files
    }

    /// Returns the servers that are asked, in their order.
    pub(crate) fn servers(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.0.origin.files.servers.iter().copied().take(servers::SERVERS_MAX)
    }

    /// Returns the IPv4 addresses of a name; none if it does not exist. Takes `dns.timeout` at most.
    ///
    /// # Errors
    /// The DNS gave no answer.
    /// # Cancel safety
    /// Yes; but answers that came until then are lost, so a caller with a limit of its own had better take
    /// [`Resolver::a_records_within`].
    pub async fn a_records(&self, name: &str) -> Result<Vec<IpAddr>, Failure> {
        self.addresses(name, Kind::A, self.limit(self.0.timeout)).await
    }

    /// Does the same in a shorter time. That there was no answer in it is kept for a while, and not asked again.
    ///
    /// # Errors
    /// The DNS gave no answer.
    /// # Cancel safety
    /// Yes.
    pub async fn a_records_within(&self, name: &str, time_max: Duration) -> Result<Vec<IpAddr>, Failure> {
        self.addresses(name, Kind::A, self.limit(time_max)).await
    }

    /// Answers a question of sender authentication. Takes `dns.timeout` at most.
    ///
    /// # Cancel safety
    /// Yes; but answers that came until then are lost.
    pub async fn answer(&self, question: &DnsQuestion) -> DnsAnswer {
        let kind = match question.kind {
            RecordKind::A => Kind::A,
            RecordKind::Aaaa => Kind::Aaaa,
            RecordKind::Mx => Kind::Mx,
            RecordKind::Ptr => Kind::Ptr,
            RecordKind::Txt => Kind::Txt,
        };
        let plain = |name: &str| name.strip_suffix('.').unwrap_or(name).to_owned();
        match self.ask(&question.name, kind, self.limit(self.0.timeout)).await {
            Ok(found) => DnsAnswer::Records(
                found
                    .records
                    .iter()
                    .map(|data| match data {
                        Data::Address(ip) => DnsRecord::Address(*ip),
                        Data::Exchange { name, .. } => DnsRecord::Exchange(plain(name)),
                        Data::Name(name) => DnsRecord::Name(plain(name)),
                        Data::Text(text) => DnsRecord::Text(String::from_utf8_lossy(text).into_owned()),
                    })
                    .collect(),
            ),
            Err(Failure::BadName) => DnsAnswer::Records(Vec::new()),
            Err(_) => DnsAnswer::Failed,
        }
    }

    /// Returns the texts of the TXT records of a name, the strings of each joined; none if there are none. Takes
    /// `dns.timeout` at most.
    ///
    /// # Errors
    /// The DNS gave no answer.
    /// # Cancel safety
    /// Yes; but answers that came until then are lost.
    pub async fn texts(&self, name: &str) -> Result<Vec<String>, Failure> {
        let found = self.ask(name, Kind::Txt, self.limit(self.0.timeout)).await?;
        let text = |data: &Data| match data {
            Data::Text(octets) => Some(String::from_utf8_lossy(octets).into_owned()),
            Data::Address(_) | Data::Exchange { .. } | Data::Name(_) => None,
        };
        Ok(found.records.iter().filter_map(text).collect())
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let servers_silent = self.0.servers.silent_count();
        let state = self.state();
        Counts { cache_entries: state.cache.len(), dead: state.breaker.is_open(), servers_silent, ..state.counts }
    }

    /// Takes the notes to log.
    #[must_use]
    pub fn take_notes(&self) -> Vec<DnsNote> {
        std::mem::take(&mut self.state().notes)
    }

    /// Returns the limits of a session's question.
    fn limit(&self, time_max: Duration) -> QuestionLimit<'_> {
        let until = Timer::now() + time_max.min(self.0.timeout);
        QuestionLimit { until, places: &self.0.places, stale: false, asks: true }
    }

    /// Returns the limits of a delivery's question; without `asks` only the cache answers.
    fn delivery_limit(&self, asks: bool) -> QuestionLimit<'_> {
        QuestionLimit { places: &self.0.delivery_places, stale: true, asks, ..self.limit(self.0.timeout) }
    }

    async fn addresses(&self, name: &str, kind: Kind, limit: QuestionLimit<'_>) -> Result<Vec<IpAddr>, Failure> {
        Ok(self.ask(name, kind, limit).await?.addresses().collect())
    }

    /// Asks within the time limit, the waiting for a place and for others included.
    async fn ask(&self, name: &str, kind: Kind, limit: QuestionLimit<'_>) -> Answer {
        self.known(name, kind, limit).await.answer
    }

    /// Asks, and returns the answer with its time; it may be over where the limit allows it.
    async fn known(&self, name: &str, kind: Kind, limit: QuestionLimit<'_>) -> CachedAnswer {
        let key = (name.to_ascii_lowercase().into_boxed_str(), kind);
        if !limit.asks {
            // Answers out of date that serve for a while are kept like others.
            let kept = self.state().cache.get(&key, now());
            return kept.unwrap_or_else(|| CachedAnswer::failed(Failure::NotKept, now()));
        }
        // The caller that asks keeps the limit by itself; this limit is for callers that wait for the answer to
        // another's question.
        let known = timeout_at(limit.until, self.ask_or_share(&key, limit)).await;
        let known = known.unwrap_or_else(|_| CachedAnswer::failed(Failure::TimedOut, now()));
        match (&known.answer, limit.stale) {
            (Ok(_), _) if !known.is_stale => known,
            (Ok(_), false) => CachedAnswer::failed(Failure::Failed, now()),
            (Ok(_), true) => {
                self.state().counts.stale += 1;
                known
            }
            (Err(_), false) => known,
            (Err(_), true) => {
                let mut state = self.state();
                let old = state.cache.get_stale(&key, now()).filter(|old| old.answer.is_ok());
                state.counts.stale += u64::from(old.is_some());
                old.map_or(known, |old| CachedAnswer { until: now() + STALE_TIME, is_stale: true, ..old })
            }
        }
    }

    async fn ask_or_share(&self, key: &Key, limit: QuestionLimit<'_>) -> CachedAnswer {
        loop {
            let (mut other, mine) = {
                let mut state = self.state();
                if let Some(known) = state.cache.get(key, now()) {
                    state.counts.cached += 1;
                    return known;
                }
                match state.open.get(key).cloned() {
                    Some(other) => {
                        state.counts.shared += 1;
                        (other, None)
                    }
                    None => {
                        let (sender, receiver) = watch::channel(None);
                        state.open.insert(key.clone(), receiver.clone());
                        (receiver, Some(OpenQuestion { resolver: self, key, sender }))
                    }
                }
            };
            if let Some(mine) = mine {
                // On the heap: most callers find an answer, and many wait for one.
                let (answer, time) = Box::pin(self.ask_now(key, limit)).await;
                return mine.finish(answer, time);
            }
            // The caller that asked may have gone away without an answer: then this one asks.
            if let Ok(known) = other.wait_for(Option::is_some).await
                && let Some(known) = &*known
            {
                return known.clone();
            }
        }
    }

    /// Asks the resolver, unless it is dead, and returns the answer with the time for which it holds.
    async fn ask_now(&self, key: &Key, limit: QuestionLimit<'_>) -> (Answer, Duration) {
        let (name, kind) = key;
        // A little before the limit of the caller, so that the answer is kept for others.
        let mut until = Timer::now() + (limit.until - Timer::now()).mul_f32(0.95);
        if limit.stale && self.state().cache.get_stale(key, now()).is_some_and(|known| known.answer.is_ok()) {
            until = until.min(Timer::now() + STALE_PATIENCE);
        }
        let Ok(mut full_name) = Name::from_ascii(name) else { return (Err(Failure::BadName), Duration::ZERO) };
        // The domain of this machine is never appended.
        full_name.set_fqdn(true);
        let course = self.state().breaker.course(now());
        match course {
            Course::Ask => {}
            Course::Probe if timeout_at(until, self.probe()).await.unwrap_or(false) => {}
            Course::Probe | Course::Skip => {
                self.state().counts.skipped += 1;
                return (Err(Failure::Skipped), Duration::ZERO);
            }
        }
        let asking = timeout_at(until, self.ask_library(full_name, *kind));
        let Some(reading) = limit.places.run(Some(until), asking).await else {
            // The time-out comes from our own load, and is no evidence against the resolver or the name.
            self.state().counts.timed_out += 1;
            return (Err(Failure::TimedOut), Duration::ZERO);
        };
        match reading {
            Ok(AnswerReading::Answer(answer, time)) => (answer, time),
            // The second server gets its own question: the walk ends with an answer.
            Err(_) | Ok(AnswerReading::Silence | AnswerReading::EmptyIfAliasesEnd(_)) => {
                let mut state = self.state();
                state.counts.timed_out += 1;
                state.breaker.timed_out();
                AnswerReading::timed_out()
            }
        }
    }

    async fn ask_library(&self, name: Name, kind: Kind) -> AnswerReading {
        self.state().counts.asked += 1;
        let reply = self.0.servers.lookup(&name, kind.record_type()).await;
        self.note_answer(&reply);
        match answer::read(kind, &reply) {
            AnswerReading::EmptyIfAliasesEnd(time) => self.walk_aliases(name, time).await,
            reading => reading,
        }
    }

    /// Follows aliases: their end is empty, or the aliases are broken, by a loop or by more of them than the library
    /// follows.
    async fn walk_aliases(&self, name: Name, time: Duration) -> AnswerReading {
        let mut names = vec![name];
        while let Some(last) = names.last() {
            let reply = self.0.servers.lookup(last, RecordType::CNAME).await;
            self.note_answer(&reply);
            let next = match &reply {
                Ok(lookup) => lookup.answers().iter().find_map(|record| match &record.data {
                    RData::CNAME(alias) if record.name == *last => Some(alias.0.clone()),
                    _ => None,
                }),
                Err(NetError::Dns(DnsError::NoRecordsFound(_))) => None,
                Err(NetError::Timeout) => return AnswerReading::Silence,
                Err(_) => return AnswerReading::failed(),
            };
            match next {
                None => break,
                Some(next) if names.contains(&next) || names.len() > ALIASES_MAX => return AnswerReading::failed(),
                Some(next) => names.push(next),
            }
        }
        AnswerReading::empty(true, time)
    }

    fn note_answer(&self, reply: &Result<Lookup, NetError>) {
        if !reply.as_ref().is_err_and(answer::is_silence) {
            self.answered();
        }
    }

    /// Asks the resolver a question that it answers without other servers, and returns whether it does within half
    /// the time limit.
    async fn probe(&self) -> bool {
        let root = Name::root();
        let asking = self.0.servers.lookup(&root, RecordType::NS);
        let answered = tokio::time::timeout(self.0.timeout / 2, asking)
            .await
            .is_ok_and(|found| !found.as_ref().is_err_and(answer::is_silence));
        if answered {
            self.answered();
        } else {
            let mut state = self.state();
            if state.breaker.probe_failed(now()) {
                state.notes.push(DnsNote::Dead);
            }
        }
        answered
    }

    fn answered(&self) {
        let mut state = self.state();
        if state.breaker.answered() {
            state.notes.push(DnsNote::Alive);
        }
    }

    fn state(&self) -> MutexGuard<'_, ResolverState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// A question that this caller asks for all callers that want the answer. Dropped without an answer, it lets another
/// ask.
struct OpenQuestion<'a> {
    resolver: &'a Resolver,
    key: &'a Key,
    sender: watch::Sender<Option<CachedAnswer>>,
}

impl OpenQuestion<'_> {
    /// Keeps the answer for `time` and gives it to all who wait.
    fn finish(self, answer: Answer, time: Duration) -> CachedAnswer {
        let now = now();
        let known = CachedAnswer { answer, until: now + time, is_stale: false };
        let mut state = self.resolver.state();
        let is_old =
            known.answer.is_err() && state.cache.get_stale(self.key, now).is_some_and(|old| old.answer.is_ok());
        if is_old {
            // The answer in the cache outlives the failure. A failure without a question to a server (`time` is zero)
            // renews nothing.
            if !time.is_zero() {
                state.cache.renew(self.key, STALE_TIME, now, |old| {
                    old.is_stale = true;
                    old.until = now + STALE_TIME;
                });
            }
        } else {
            let stale = if known.may_serve_longer(self.key.1) { self.resolver.0.stale_max } else { Duration::ZERO };
            state.cache.put(self.key.clone(), known.clone(), time, stale, now);
        }
        drop(state);
        self.sender.send_replace(Some(known.clone()));
        known
    }
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.resolver.state().open.remove(self.key);
    }
}

/// Returns a client of one server.
fn client(
    server: NameServerConfig,
    edns: bool,
    timeout: Duration,
    hosts: &Arc<Hosts>,
) -> Result<TokioResolver, NetError> {
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    // Two tries fit into the limit, which is kept here: one packet may be lost.
    options.timeout = timeout / 2;
    options.attempts = 1;
    options.cache_size = 0;
    options.edns0 = edns;
    options.edns_payload_len = exchange::PAYLOAD;
    options.use_hosts_file = ResolveHosts::Never;
    options.max_active_requests = QUESTIONS_MAX + DELIVERY_QUESTIONS_MAX + SLOW_QUESTIONS_MAX;
    let mut client = builder.build()?;
    client.set_hosts(Arc::clone(hosts));
    Ok(client)
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    for connection in &mut server.connections {
        connection.port = address.port();
    }
    server
}

/// Returns the time of tokio's timers, by which the limits here run too: a test that stops one stops the other.
fn now() -> Instant {
    Timer::now().into_std()
}
