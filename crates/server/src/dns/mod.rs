//! Questions to the DNS, asked so that a slow or dead DNS costs a session nothing but the answer.
//!
//! One [`Resolver`] serves the whole server. It adds to the library's protocol: a time limit on each question
//! (`dns.timeout`), a bound on questions under way, a cache of bounded size in which errors count as answers for a short
//! while, one question where several sessions ask the same, and a breaker that stops asking a resolver that is dead.
//! Nothing here blocks a worker, and no task is started: whoever asks drives the question, and if it goes away another
//! one who waits for the same answer takes over.
//!
//! Not here: what answers mean. [`Resolver::reverse`] gives the verified name of a client; `admit::dnsbl` asks block
//! lists.

mod breaker;
mod cache;
mod mail_hosts;
mod reverse;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant as Timer, timeout_at};

use breaker::{Breaker, Course};
use cache::Cache;
pub use mail_hosts::{ADDRESSES_MAX, Family, HOSTS_MAX, MailHost, MailHosts, NoHosts, Ourselves};
pub use reverse::ClientName;

/// Questions under way; more wait, within their time limit.
pub const QUESTIONS_MAX: usize = 256;
/// Records that are kept of one answer.
pub const RECORDS_MAX: usize = 32;

/// How long answers are believed at most. The block lists' own times are minutes; a name that moves is seen soon.
const POSITIVE_MAX: Duration = Duration::from_secs(3_600);
/// How long "there is none" is believed at most, and where the zone does not say how long.
const NEGATIVE_MAX: Duration = Duration::from_secs(900);
const NEGATIVE_DEFAULT: Duration = Duration::from_secs(60);
/// How long a failure is taken for the answer, so that a storm does not ask again for each connection.
const FAILURE: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    A,
    Aaaa,
    Ptr,
}

/// One record of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Data {
    Address(IpAddr),
    Name(Box<str>),
}

/// Why there is no answer. An empty answer is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// None came in time.
    TimedOut,
    /// The resolver is dead and was not asked.
    Skipped,
    /// The resolver says that it cannot tell: SERVFAIL, REFUSED, or an answer that is none.
    Failed,
    /// The name cannot be asked for.
    BadName,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "no answer from the DNS in time",
            Self::Skipped => "DNS not asked: the resolver does not answer",
            Self::Failed => "the DNS server reports a failure",
            Self::BadName => "not a name for the DNS",
        })
    }
}

type Answer = Result<Arc<[Data]>, Failure>;
type Key = (Box<str>, Kind);

/// What happened so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions that went out.
    pub asked: u64,
    /// Answered from the cache.
    pub cached: u64,
    /// Waited for the same question of somebody else.
    pub shared: u64,
    /// No answer in time.
    pub timed_out: u64,
    /// Not asked because the resolver is dead.
    pub skipped: u64,
    /// Entries in the cache.
    pub cache_entries: usize,
    /// The resolver is being skipped now.
    pub dead: bool,
}

/// Something an operator wants to read, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsNote {
    /// The resolver does not answer; it is not asked for a while.
    Dead,
    /// It answers again.
    Alive,
}

impl fmt::Display for DnsNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dead => {
                "DNS resolver does not answer; clients have no names and block lists are not asked until it does; see \
                 dns.servers or /etc/resolv.conf"
            }
            Self::Alive => "DNS resolver answers again",
        })
    }
}

/// The settings cannot be used.
#[derive(Debug)]
pub struct SetupError(String);

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DNS cannot be set up: {}; set dns.servers, or repair /etc/resolv.conf", self.0)
    }
}

impl std::error::Error for SetupError {}

struct State {
    cache: Cache<Key, Answer>,
    /// Questions under way, as many as there are callers at most; who waits gets the answer, or learns that the one who
    /// asked is gone.
    open: HashMap<Key, watch::Receiver<Option<Answer>>>,
    breaker: Breaker,
    counts: Counts,
    notes: Vec<DnsNote>,
}

struct Inner {
    hickory: TokioResolver,
    timeout: Duration,
    places: Semaphore,
    state: Mutex<State>,
}

/// The way to the DNS. Clones share everything.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

impl Resolver {
    /// Makes a resolver from `[dns]`. Reads /etc/resolv.conf and /etc/hosts: blocking, for the start and for reloads.
    ///
    /// # Errors
    /// When the system's configuration cannot be read or used.
    pub fn new(settings: &crate::config::Dns) -> Result<Self, SetupError> {
        let setup = |error: NetError| SetupError(error.to_string());
        let mut builder = if settings.servers.is_empty() {
            TokioResolver::builder_tokio().map_err(setup)?
        } else {
            let servers = settings.servers.iter().map(|server| name_server(*server)).collect();
            TokioResolver::builder_with_config(
                ResolverConfig::from_parts(None, Vec::new(), servers),
                TokioRuntimeProvider::default(),
            )
        };
        let options = builder.options_mut();
        // Two tries fit into the limit, which is kept here: one packet may be lost.
        options.timeout = settings.timeout / 2;
        options.attempts = 1;
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Always;
        options.max_active_requests = QUESTIONS_MAX;
        let state = State {
            cache: Cache::new(usize::try_from(settings.cache_entries_max).unwrap_or(usize::MAX)),
            open: HashMap::new(),
            breaker: Breaker::default(),
            counts: Counts::default(),
            notes: Vec::new(),
        };
        Ok(Self(Arc::new(Inner {
            hickory: builder.build().map_err(setup)?,
            timeout: settings.timeout,
            places: Semaphore::new(QUESTIONS_MAX),
            state: Mutex::new(state),
        })))
    }

    /// The IPv4 addresses of a name; none if it does not exist. Takes `dns.timeout` at most.
    ///
    /// # Errors
    /// When the DNS did not tell.
    /// # Cancel safety
    /// Cancel safe; but what was learned until then is lost, so a caller with a limit of its own had better take
    /// [`Resolver::a_records_within`].
    pub async fn a_records(&self, name: &str) -> Result<Vec<IpAddr>, Failure> {
        self.addresses(name, Kind::A, self.until(self.0.timeout)).await
    }

    /// The same in a shorter time. That there was no answer in it is kept for a while, and not asked again.
    ///
    /// # Errors
    /// When the DNS did not tell.
    /// # Cancel safety
    /// Cancel safe.
    pub async fn a_records_within(&self, name: &str, time_max: Duration) -> Result<Vec<IpAddr>, Failure> {
        self.addresses(name, Kind::A, self.until(time_max)).await
    }

    /// The IPv6 addresses of a name; as [`Resolver::a_records`].
    ///
    /// # Errors
    /// When the DNS did not tell.
    /// # Cancel safety
    /// Cancel safe.
    pub async fn aaaa_records(&self, name: &str) -> Result<Vec<IpAddr>, Failure> {
        self.addresses(name, Kind::Aaaa, self.until(self.0.timeout)).await
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.state();
        Counts { cache_entries: state.cache.len(), dead: state.breaker.is_open(), ..state.counts }
    }

    /// Takes what is to be logged.
    #[must_use]
    pub fn take_notes(&self) -> Vec<DnsNote> {
        std::mem::take(&mut self.state().notes)
    }

    fn until(&self, time_max: Duration) -> Timer {
        Timer::now() + time_max.min(self.0.timeout)
    }

    async fn addresses(&self, name: &str, kind: Kind, until: Timer) -> Result<Vec<IpAddr>, Failure> {
        let answer = self.ask(name, kind, until).await?;
        Ok(answer.iter().filter_map(|data| if let Data::Address(ip) = data { Some(*ip) } else { None }).collect())
    }

    /// Asks within the time limit, the waiting for a place and for others included.
    async fn ask(&self, name: &str, kind: Kind, until: Timer) -> Answer {
        let key = (name.to_ascii_lowercase().into_boxed_str(), kind);
        // Whoever asks gives up in time by itself; this is for those who wait for somebody else's answer.
        timeout_at(until, self.ask_or_share(&key, until)).await.unwrap_or(Err(Failure::TimedOut))
    }

    async fn ask_or_share(&self, key: &Key, until: Timer) -> Answer {
        loop {
            let (mut other, mine) = {
                let mut state = self.state();
                if let Some(answer) = state.cache.get(key, now()) {
                    state.counts.cached += 1;
                    return answer;
                }
                match state.open.get(key).cloned() {
                    Some(other) => {
                        state.counts.shared += 1;
                        (other, None)
                    }
                    None => {
                        let (sender, receiver) = watch::channel(None);
                        state.open.insert(key.clone(), receiver.clone());
                        (receiver, Some(Open { resolver: self, key, sender }))
                    }
                }
            };
            if let Some(mine) = mine {
                // A little before the limit of the caller, so that the answer is kept for others.
                let limit = (until - Timer::now()).mul_f32(0.95);
                let (answer, time) = match tokio::time::timeout(limit, self.ask_now(key)).await {
                    Ok(answer) => answer,
                    Err(_) => self.silent(),
                };
                mine.finish(&answer, time);
                return answer;
            }
            // Whoever asked may have gone away without an answer: then this one asks.
            if let Ok(answer) = other.wait_for(Option::is_some).await
                && let Some(answer) = &*answer
            {
                return answer.clone();
            }
        }
    }

    /// Asks the resolver, unless it is dead, and says how long the answer holds.
    async fn ask_now(&self, (name, kind): &Key) -> (Answer, Duration) {
        let course = self.state().breaker.course(now());
        match course {
            Course::Ask => {}
            Course::Probe if self.probe().await => {}
            Course::Probe | Course::Skip => {
                self.state().counts.skipped += 1;
                return (Err(Failure::Skipped), Duration::ZERO);
            }
        }
        let Ok(mut full_name) = Name::from_ascii(name) else { return (Err(Failure::BadName), Duration::ZERO) };
        // Never with the domain of this machine behind it.
        full_name.set_fqdn(true);
        let Ok(_place) = self.0.places.acquire().await else { return (Err(Failure::Failed), Duration::ZERO) };
        self.state().counts.asked += 1;
        let found = self.0.hickory.lookup(full_name, kind.record_type()).await;
        if !is_silence(&found) {
            self.answered();
        }
        match found {
            Ok(lookup) => {
                let records = lookup.answers().iter();
                let ttl = records.clone().map(|record| record.ttl).min().unwrap_or(0);
                let data: Arc<[Data]> =
                    records.filter_map(|record| kind.data(&record.data)).take(RECORDS_MAX).collect();
                (Ok(data), Duration::from_secs(ttl.into()).min(POSITIVE_MAX))
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(none)))
                if matches!(none.response_code, ResponseCode::NoError | ResponseCode::NXDomain) =>
            {
                // RFC 2308 §5
                let time = none.negative_ttl.map_or(NEGATIVE_DEFAULT, |ttl| Duration::from_secs(ttl.into()));
                (Ok(Arc::from([])), time.min(NEGATIVE_MAX))
            }
            Err(NetError::Timeout) => self.silent(),
            Err(_) => (Err(Failure::Failed), FAILURE),
        }
    }

    /// Counts a question without an answer.
    fn silent(&self) -> (Answer, Duration) {
        let mut state = self.state();
        state.counts.timed_out += 1;
        state.breaker.timed_out();
        (Err(Failure::TimedOut), FAILURE)
    }

    /// Whether the resolver answers a question that needs nobody else, within half the time limit.
    async fn probe(&self) -> bool {
        let asking = self.0.hickory.lookup(Name::root(), RecordType::NS);
        let answered = tokio::time::timeout(self.0.timeout / 2, asking).await.is_ok_and(|found| !is_silence(&found));
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// A question that this caller asks for all who want the answer. Dropped without an answer, it lets another ask.
struct Open<'a> {
    resolver: &'a Resolver,
    key: &'a Key,
    sender: watch::Sender<Option<Answer>>,
}

impl Open<'_> {
    fn finish(self, answer: &Answer, time: Duration) {
        self.resolver.state().cache.put(self.key.clone(), answer.clone(), time, now());
        self.sender.send_replace(Some(answer.clone()));
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.resolver.state().open.remove(self.key);
    }
}

impl Kind {
    const fn record_type(self) -> RecordType {
        match self {
            Self::A => RecordType::A,
            Self::Aaaa => RecordType::AAAA,
            Self::Ptr => RecordType::PTR,
        }
    }

    /// The record, if it is of this kind: aliases on the way are not.
    fn data(self, record: &RData) -> Option<Data> {
        match (self, record) {
            (Self::A, RData::A(a)) => Some(Data::Address(a.0.into())),
            (Self::Aaaa, RData::AAAA(aaaa)) => Some(Data::Address(aaaa.0.into())),
            (Self::Ptr, RData::PTR(name)) => Some(Data::Name(name.0.to_ascii().into())),
            _ => None,
        }
    }
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    for connection in &mut server.connections {
        connection.port = address.port();
    }
    server
}

/// Whether nothing at all came back.
fn is_silence<T>(found: &Result<T, NetError>) -> bool {
    matches!(found, Err(NetError::Timeout | NetError::NoConnections | NetError::Busy | NetError::Io(_)))
}

/// The time of tokio's timers, by which the limits here run too: a test that stops one stops the other.
fn now() -> Instant {
    Timer::now().into_std()
}
