//! The health of single hosts: which hosts are passed over for a while, how fast they answered, whose TLS is broken.
//!
//! A site may have several hosts. One that is dead costs the site nothing while another lives: it is put behind the
//! others for a time that doubles with each failure (a circuit breaker for each host). The table serves all
//! connections, outlives restarts as a file ([`Hosts::to_bytes`]), and is an aid only: without it mail goes the same
//! way, slower.
//!
//! Invariants: never more than [`HostSettings::max`] hosts, the host that was used longest ago leaves first; a host is
//! put last and never left out, so nothing here can make a site unreachable; bytes that are damaged give an empty table
//! and the reason.
//!
//! Not here: which hosts a site has (`server::resolve`), the state of a site (`scheduler`), sockets, files. Time since
//! 1970 is given.

mod bytes;

pub use bytes::HostsDamage;

use crate::chance::Chance;
use crate::settings::back_off;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::Duration;

/// The least time that an attempt on a host is expected to take when its last attempt failed.
const FAILED_TAKES: Duration = Duration::from_secs(10);

/// Waits of a message for which a host that put it off is passed over, at least: as many as it may need to get past
/// three such hosts.
const SPARES: u32 = 4;

/// The limits of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// Hosts that are remembered, at least 1. 20,000.
    pub max: usize,
    /// How long a host is passed over after its first failure. 1 minute.
    pub first: Duration,
    /// The longest that it is. 1 hour.
    pub longest: Duration,
    /// How long a host whose TLS failed is spoken to in clear, where that is allowed. 1 hour.
    pub tls_memory: Duration,
    /// How long it is remembered that a handshake with a host succeeded. 30 days.
    pub tls_seen_memory: Duration,
}

impl Default for HostSettings {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(3_600);
        let tls_seen_memory = 30 * 24 * HOUR;
        Self { max: 20_000, first: Duration::from_secs(60), longest: HOUR, tls_memory: HOUR, tls_seen_memory }
    }
}

/// The table. A host is one address with its port.
#[derive(Debug)]
pub struct Hosts {
    settings: HostSettings,
    known: BTreeMap<SocketAddr, Host>,
    /// One entry for each known host, the oldest on top. Its number is that of a use of the host, perhaps not of the
    /// last one.
    by_use: BinaryHeap<Reverse<(u64, SocketAddr)>>,
    uses: u64,
    chance: Chance,
}

/// The record of one host. Times in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Host {
    /// Since it last carried a transaction to its end.
    failures: u16,
    /// How long its greeting and its transactions take, in microseconds, smoothed; 0: not known.
    greeting: u32,
    transaction: u32,
    /// Until when it is passed over.
    retry_at: u64,
    /// Until when the first message of the one connection that tries it is waited for.
    trial_until: u64,
    /// Until when mail that it put off may have been tried elsewhere. Forgotten with the server.
    spared_until: u64,
    /// Extensions that did not work though the host offers them, and until when they are not used. Forgotten with the
    /// server.
    avoided: AvoidedExtensions,
    avoided_until: u64,
    tls_broken_until: u64,
    /// When a handshake succeeded last; 0: never, or it no longer counts.
    tls_worked_at: u64,
    /// Since when TLS has failed after that, and when it failed last; 0: it has not.
    tls_fails_since: u64,
    tls_failed_at: u64,
    seen: u64,
    /// The number of its last use.
    used: u64,
}

/// A set of extensions of SMTP that a host offers and that do not work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvoidedExtensions(u8);

impl AvoidedExtensions {
    /// PIPELINING: commands go one by one.
    pub const PIPELINING: Self = Self(1);
    /// CHUNKING: content goes by DATA.
    pub const CHUNKING: Self = Self(2);
    /// SIZE: MAIL says no size.
    pub const SIZE: Self = Self(4);
    /// 8BITMIME: content is made 7-bit.
    pub const EIGHT_BIT_MIME: Self = Self(8);
    /// DSN: MAIL and RCPT ask for no reports.
    pub const DSN: Self = Self(16);
    /// PLAIN of AUTH: other mechanisms are tried first.
    pub const AUTH_PLAIN: Self = Self(32);
    /// LOGIN of AUTH: other mechanisms are tried first.
    pub const AUTH_LOGIN: Self = Self(64);
    /// CRAM-MD5 of AUTH: other mechanisms are tried first.
    pub const AUTH_CRAM_MD5: Self = Self(128);
    /// Each with its keyword in the reply to EHLO, and the key of `[[destination]]` that leaves it out, if any.
    const NAMES: [(Self, &'static str, Option<&'static str>); 8] = [
        (Self::PIPELINING, "PIPELINING", Some("pipelining")),
        (Self::CHUNKING, "CHUNKING", Some("chunking")),
        (Self::SIZE, "SIZE", Some("size")),
        (Self::EIGHT_BIT_MIME, "8BITMIME", Some("eight_bit_mime")),
        (Self::DSN, "DSN", Some("dsn")),
        (Self::AUTH_PLAIN, "AUTH PLAIN", None),
        (Self::AUTH_LOGIN, "AUTH LOGIN", None),
        (Self::AUTH_CRAM_MD5, "AUTH CRAM-MD5", None),
    ];

    fn names(self) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        Self::NAMES.into_iter().filter(move |(one, ..)| self.contains(*one)).map(|(_, keyword, key)| (keyword, key))
    }

    /// The keys of `[[destination]]` that leave the extensions out.
    pub fn keys(self) -> impl Iterator<Item = &'static str> {
        self.names().filter_map(|(_, key)| key)
    }

    /// Whether the set has all of the others.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The extensions of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The keywords of the set, with commas.
impl std::fmt::Display for AvoidedExtensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.names().map(|(keyword, _)| keyword).collect::<Vec<_>>().join(", "))
    }
}

/// How a host stands among the others of its site, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// As good as any.
    Good,
    /// It works as far as is known, and is left alone: it put mail off, or another connection tests whether it is back.
    Aside,
    /// It failed a short while ago.
    Failed,
}

/// The experience with TLS on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsRecord {
    /// No handshake succeeded, and none failed a short while ago.
    Unknown,
    /// TLS failed a short while ago and clear text worked: TLS is not tried for now.
    Broken,
    /// A handshake succeeded within [`HostSettings::tls_seen_memory`]: clear text instead of TLS is suspicious.
    Worked,
}

/// The record of a host for the queue views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// The host.
    pub address: SocketAddr,
    /// Failures since it last carried a transaction to its end.
    pub failures: u32,
    /// Until when it is passed over while another of its site can be tried, since 1970.
    pub retry_at: Option<Duration>,
    /// How long it takes from connecting until it is ready for mail.
    pub greeting: Option<Duration>,
    /// How long a transaction takes.
    pub transaction: Option<Duration>,
    /// Until when it is spoken to in clear because its TLS broke, since 1970.
    pub tls_broken_until: Option<Duration>,
    /// When a TLS handshake succeeded last, since 1970, if that is remembered.
    pub tls_worked_at: Option<Duration>,
    /// Since when TLS fails although it worked before, since 1970.
    pub tls_fails_since: Option<Duration>,
    /// When something was learnt of it last, since 1970.
    pub seen: Duration,
}

impl Hosts {
    /// Makes a table without hosts. Back-off is scattered by the seed.
    #[must_use]
    pub const fn new(settings: HostSettings, seed: u64) -> Self {
        Self { settings, known: BTreeMap::new(), by_use: BinaryHeap::new(), uses: 0, chance: Chance::new(seed) }
    }

    /// Other limits are in force; times that run keep their end.
    pub fn set(&mut self, settings: HostSettings) {
        self.settings = settings;
        while self.known.len() > self.settings.max.max(1) {
            self.forget_oldest();
        }
    }

    /// Hosts that are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether the table has no host.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// How a host stands now. It is passed over unless it is [`Standing::Good`].
    #[must_use]
    pub fn standing(&self, address: SocketAddr, now: Duration) -> Standing {
        let now = micros(now);
        match self.known.get(&plain(address)) {
            Some(host) if now < host.retry_at => Standing::Failed,
            Some(host) if now < host.trial_until.max(host.spared_until) => Standing::Aside,
            _ => Standing::Good,
        }
    }

    /// Whether a host is as good as any: it is not passed over, and after a back-off no other connection is testing it.
    #[must_use]
    pub fn may_try(&self, address: SocketAddr, now: Duration) -> bool {
        self.standing(address, now) == Standing::Good
    }

    /// Whether a host failed and has carried no transaction to its end since, however long ago that was.
    #[must_use]
    pub fn is_doubted(&self, address: SocketAddr) -> bool {
        self.known.get(&plain(address)).is_some_and(|host| host.failures > 0)
    }

    /// Puts hosts that are passed over behind the others, those that failed last, and changes nothing else in the
    /// order. A host without an address counts as good.
    ///
    /// `is_wary`: doubted hosts come behind the others, so that a connection that has found one host dead does not test
    /// every host that may be dead.
    pub fn order<T>(
        &self,
        hosts: &mut [T],
        address_of: impl Fn(&T) -> Option<SocketAddr>,
        is_wary: bool,
        now: Duration,
    ) {
        hosts.sort_by_cached_key(|host| {
            address_of(host).map_or((Standing::Good, false), |address| {
                (self.standing(address, now), is_wary && self.is_doubted(address))
            })
        });
    }

    /// A connection to a host begins. One that failed before is tried by this connection alone: for others it is passed
    /// over until it carried a transaction to its end or failed, for `first` at most.
    pub fn trying(&mut self, address: SocketAddr, now: Duration) {
        let limit = micros(now.saturating_add(self.settings.first));
        if let Some(host) = self.known.get_mut(&plain(address)).filter(|host| host.failures > 0) {
            host.trial_until = limit;
        }
    }

    /// A connection to a host did not come about, or ended without an answer: it is passed over.
    ///
    /// A failure while the host is passed over already does not make that time longer: the connection began before, or
    /// was a last resort.
    pub fn failed(&mut self, address: SocketAddr, now: Duration) {
        let (first, longest, seed) = (self.settings.first, self.settings.longest, self.chance.next());
        let host = self.touch(address, now);
        host.trial_until = 0;
        if micros(now) >= host.retry_at {
            host.failures = host.failures.saturating_add(1);
            let wait = back_off(u32::from(host.failures), first, longest, seed);
            host.retry_at = micros(now.saturating_add(wait));
        }
    }

    /// A host greeted and put a whole message off, or dropped it, and the message waits for `wait`: it is passed over
    /// for [`SPARES`] of these waits, and for more if its site has many hosts (`count`), whether it greets or not, so
    /// that the next tries of the message find the others.
    // RFC 5321 §5.1: each of the addresses is tried until one takes the mail
    pub fn spare(&mut self, address: SocketAddr, wait: Duration, count: usize, now: Duration) {
        // Waits that do not grow any more are all the same: one for each host, and one to be sure.
        let waits = u32::try_from(count.saturating_add(1)).unwrap_or(u32::MAX).max(SPARES);
        let until = micros(now.saturating_add(wait.saturating_mul(waits)));
        let host = self.touch(address, now);
        host.spared_until = host.spared_until.max(until);
    }

    /// Extensions of a host did not work: they are not used for `time`. Those that are avoided already are so for as
    /// long, if their time is shorter.
    pub fn avoid(&mut self, address: SocketAddr, extensions: AvoidedExtensions, time: Duration, now: Duration) {
        let before = self.avoided(address, now);
        let until = micros(now.saturating_add(time));
        let host = self.touch(address, now);
        (host.avoided, host.avoided_until) = (before.with(extensions), until.max(host.avoided_until));
    }

    /// The extensions of a host that are not used now, though it may offer them.
    #[must_use]
    pub fn avoided(&self, address: SocketAddr, now: Duration) -> AvoidedExtensions {
        let host = self.known.get(&plain(address)).filter(|host| micros(now) < host.avoided_until);
        host.map(|host| host.avoided).unwrap_or_default()
    }

    /// A host is ready for mail, `took` after the connection began. Failures are not forgotten before it took some.
    pub fn greeted(&mut self, address: SocketAddr, took: Duration, now: Duration) {
        let limit = micros(now.saturating_add(self.settings.first));
        let host = self.touch(address, now);
        host.retry_at = 0;
        // A host that greeted and then hung may hang again, so one message tests it.
        host.trial_until = if host.failures > 0 { limit } else { 0 };
        host.greeting = smoothed(host.greeting, took);
    }

    /// A transaction came to its end, `took` after it began: the host works, whatever it says of a message or a
    /// recipient.
    pub fn delivered(&mut self, address: SocketAddr, took: Duration, now: Duration) {
        let host = self.touch(address, now);
        (host.retry_at, host.trial_until, host.spared_until, host.failures) = (0, 0, 0, 0);
        host.transaction = smoothed(host.transaction, took);
    }

    /// A host's TLS does not work, while clear text does. A host that had TLS lately keeps that: only
    /// [`Self::tls_given_up`] takes it away.
    pub fn tls_failed(&mut self, address: SocketAddr, now: Duration) {
        let until = micros(now.saturating_add(self.settings.tls_memory));
        self.touch(address, now).tls_broken_until = until;
    }

    /// A handshake with a host succeeded.
    pub fn tls_worked(&mut self, address: SocketAddr, now: Duration) {
        let host = self.touch(address, now);
        (host.tls_broken_until, host.tls_fails_since, host.tls_failed_at) = (0, 0, 0);
        host.tls_worked_at = micros(now);
    }

    /// TLS with a host that had it lately does not come about. Returns since when that is so. A pause of more than
    /// `gap` between two failures begins a new period: failures far apart are no evidence that the host has lost TLS.
    pub fn tls_missing(&mut self, address: SocketAddr, gap: Duration, now: Duration) -> Duration {
        let (now_us, gap_us) = (micros(now), micros(gap));
        let host = self.touch(address, now);
        let is_new = host.tls_fails_since == 0 || now_us.saturating_sub(host.tls_failed_at) > gap_us;
        if is_new || host.tls_fails_since > now_us {
            host.tls_fails_since = now_us;
        }
        host.tls_failed_at = now_us;
        Duration::from_micros(host.tls_fails_since)
    }

    /// A host that had TLS lately has lost it as far as can be told, and clear text works: it is as one that never had
    /// TLS.
    pub fn tls_given_up(&mut self, address: SocketAddr, now: Duration) {
        self.tls_failed(address, now);
        let host = self.touch(address, now);
        (host.tls_worked_at, host.tls_fails_since, host.tls_failed_at) = (0, 0, 0);
    }

    /// The next connection tries TLS, whatever failed before.
    pub fn try_tls(&mut self, address: SocketAddr) {
        if let Some(host) = self.known.get_mut(&plain(address)) {
            host.tls_broken_until = 0;
        }
    }

    /// Returns the experience with TLS on a host.
    #[must_use]
    pub fn tls(&self, address: SocketAddr, now: Duration) -> TlsRecord {
        let memory = micros(self.settings.tls_seen_memory);
        match self.known.get(&plain(address)) {
            // Before what broke: a connection that failed beside one that succeeded proves nothing.
            Some(host) if host.has_tls(memory, micros(now)) => TlsRecord::Worked,
            Some(host) if micros(now) < host.tls_broken_until => TlsRecord::Broken,
            _ => TlsRecord::Unknown,
        }
    }

    /// Whether TLS is not to be tried with a host.
    #[must_use]
    pub fn tls_is_broken(&self, address: SocketAddr, now: Duration) -> bool {
        self.tls(address, now) == TlsRecord::Broken
    }

    /// How long a first message to a host takes from connecting to its answer, as it did before; at least 10 s for one
    /// that failed last. `None`: nothing is known.
    #[must_use]
    pub fn expected(&self, address: SocketAddr) -> Option<Duration> {
        let host = self.known.get(&plain(address))?;
        let took = Duration::from_micros(u64::from(host.greeting) + u64::from(host.transaction));
        match host.failures {
            0 => Some(took).filter(|took| !took.is_zero()),
            _ => Some(took.max(FAILED_TAKES)),
        }
    }

    /// All hosts, by address.
    pub fn views(&self, now: Duration) -> impl Iterator<Item = HostView> {
        let now = micros(now);
        let future = move |at: u64| (at > now).then(|| Duration::from_micros(at));
        let past = |at: u64| (at > 0).then(|| Duration::from_micros(at));
        let memory = micros(self.settings.tls_seen_memory);
        let known = |took: u32| (took > 0).then(|| Duration::from_micros(took.into()));
        self.known.iter().map(move |(address, host)| HostView {
            address: *address,
            failures: host.failures.into(),
            retry_at: future(host.retry_at),
            greeting: known(host.greeting),
            transaction: known(host.transaction),
            tls_broken_until: future(host.tls_broken_until),
            tls_worked_at: host.has_tls(memory, now).then(|| Duration::from_micros(host.tls_worked_at)),
            tls_fails_since: past(host.tls_fails_since).filter(|_| host.has_tls(memory, now)),
            seen: Duration::from_micros(host.seen),
        })
    }

    /// The host, which is known from now on and was used just now.
    fn touch(&mut self, address: SocketAddr, now: Duration) -> &mut Host {
        let address = plain(address);
        self.uses += 1;
        let used = self.uses;
        if !self.known.contains_key(&address) {
            while self.known.len() >= self.settings.max.max(1) {
                self.forget_oldest();
            }
            self.by_use.push(Reverse((used, address)));
        }
        let host = self.known.entry(address).or_default();
        (host.used, host.seen) = (used, micros(now));
        host
    }

    /// Forgets all hosts.
    pub fn forget_all(&mut self) {
        self.known.clear();
        self.by_use.clear();
    }

    /// Forgets the host that was used longest ago.
    fn forget_oldest(&mut self) {
        while let Some(Reverse((used, address))) = self.by_use.pop() {
            match self.known.get(&address).map(|host| host.used) {
                // It was used since: its place is further down.
                Some(last) if last > used => self.by_use.push(Reverse((last, address))),
                _ => {
                    self.known.remove(&address);
                    return;
                }
            }
        }
    }
}

impl Host {
    /// Whether a handshake succeeded within `memory` microseconds.
    const fn has_tls(&self, memory: u64, now: u64) -> bool {
        self.tls_worked_at > 0 && now.saturating_sub(self.tls_worked_at) < memory
    }
}

/// Returns the address without the parts that do not belong to the host: a flow, a scope, an IPv4 address in IPv6
/// dress.
const fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Microseconds, as late as can be said.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the known time moved a quarter of the way to the measured time; never 0.
fn smoothed(before: u32, took: Duration) -> u32 {
    let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
    match before {
        0 => took,
        _ => {
            let mixed = (u64::from(before) * 3 + u64::from(took)) / 4;
            u32::try_from(mixed).unwrap_or(u32::MAX).max(1)
        }
    }
}

#[cfg(test)]
mod tests;
