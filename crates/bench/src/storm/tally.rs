//! The state that the sessions of a storm share: the next number, and the counts of results.
//!
//! All sessions run on one thread, so the lock is never waited for; it is never held across an `await`.

use super::ledger::StormLedger;
use super::message::{Letters, StormMessage};
use super::wire;
use super::{Plan, StormError};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_rustls::TlsConnector;

/// Different errors that are counted apart; further ones are counted together.
const GROUPS_MAX: usize = 64;
/// The longest time a histogram tells apart, in microseconds: one hour.
const LONGEST_US: u64 = 3_600_000_000;

/// Shared by all sessions of a run.
pub(super) struct StormState {
    pub(super) plan: Plan,
    pub(super) letters: Letters,
    pub(super) ledger: Option<StormLedger>,
    pub(super) connector: Option<TlsConnector>,
    pub(super) start: Instant,
    next: AtomicU64,
    tally: Mutex<StormTally>,
}

impl StormState {
    pub(super) fn new(plan: &Plan, ledger: Option<StormLedger>, start: Instant) -> Result<Self, StormError> {
        let told = |source| StormError::Io { what: "TLS".to_owned(), source: io::Error::other(source) };
        Ok(Self {
            letters: Letters::new(plan),
            ledger,
            connector: wire::connector(plan.tls).map_err(told)?,
            start,
            next: AtomicU64::new(0),
            tally: Mutex::new(StormTally::new()),
            plan: plan.clone(),
        })
    }

    /// The next message and, with a rate, when it is due. `None` ends a session.
    pub(super) fn next(&self, now: Instant) -> Option<(StormMessage, Option<Instant>)> {
        if self.plan.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Acquire)) {
            return None;
        }
        let end = self.plan.time.map(|time| self.start + time);
        if end.is_some_and(|end| now >= end) {
            return None;
        }
        let seq = self.next.fetch_add(1, Ordering::Relaxed);
        if self.plan.messages.is_some_and(|messages| seq >= messages) {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "fractions of a microsecond after a day")]
        let due = self.plan.rate.map(|rate| self.start + Duration::from_secs_f64(seq as f64 / rate));
        if let (Some(due), Some(end)) = (due, end)
            && due >= end
        {
            return None;
        }
        Some((self.letters.letter(seq), due))
    }

    pub(super) fn tally(&self) -> MutexGuard<'_, StormTally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The results of the messages and connections of a run.
#[derive(Clone, Debug)]
pub(super) struct StormTally {
    /// All recipients taken, and the final reply positive.
    pub(super) accepted: u64,
    /// The server said no to the message or to one of its recipients.
    pub(super) refused: u64,
    /// No connection, or it broke before the content was sent.
    pub(super) failed: u64,
    /// The content was sent and no reply came: the result is unknown.
    pub(super) unanswered: u64,
    /// Recipients and octets of accepted messages.
    pub(super) recipients: u64,
    pub(super) octets: u64,
    pub(super) connections: u64,
    /// Connections the system of the server refused.
    pub(super) connects_refused: u64,
    /// Connections that came to nothing in another way, a greeting that is not 220 included.
    pub(super) connects_failed: u64,
    pub(super) errors: BTreeMap<String, u64>,
    /// Microseconds from the final dot to the reply that acknowledged a message.
    pub(super) latency: Histogram<u64>,
    /// Microseconds from the time a message was due to the same reply; empty without a rate.
    pub(super) delay: Histogram<u64>,
    /// Microseconds from connecting to the greeting.
    pub(super) greeting: Histogram<u64>,
}

impl StormTally {
    fn new() -> Self {
        let histogram = || Histogram::new_with_max(LONGEST_US, 3).expect("the bounds are constant and right");
        Self {
            accepted: 0,
            refused: 0,
            failed: 0,
            unanswered: 0,
            recipients: 0,
            octets: 0,
            connections: 0,
            connects_refused: 0,
            connects_failed: 0,
            errors: BTreeMap::new(),
            latency: histogram(),
            delay: histogram(),
            greeting: histogram(),
        }
    }

    /// Accepted messages, and all others that are over.
    pub(super) fn so_far(&self) -> (u64, u64) {
        (self.accepted, self.refused + self.failed + self.unanswered)
    }

    /// Counts an error by its text, apart from the messages.
    pub(super) fn error(&mut self, text: &str) {
        let known = self.errors.contains_key(text) || self.errors.len() < GROUPS_MAX;
        let group = if known { text } else { "other errors" };
        *self.errors.entry(group.to_owned()).or_default() += 1;
    }

    /// Counts a message that came to nothing.
    pub(super) fn lost(&mut self, text: &str) {
        self.failed += 1;
        self.error(text);
    }

    pub(super) fn connected(&mut self, time: Duration) {
        self.connections += 1;
        self.greeting.saturating_record(micros(time));
    }

    pub(super) fn not_connected(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.connects_refused += 1;
        } else {
            self.connects_failed += 1;
        }
    }

    pub(super) fn accept(&mut self, recipients: u32, octets: usize, latency: Duration, delay: Option<Duration>) {
        self.accepted += 1;
        self.recipients += u64::from(recipients);
        self.octets += octets as u64;
        self.latency.saturating_record(micros(latency));
        if let Some(delay) = delay {
            self.delay.saturating_record(micros(delay));
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
