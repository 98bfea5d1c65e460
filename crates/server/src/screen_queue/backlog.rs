//! The messages that wait for filters, by the list of their filters, and the time at which each is due. Time is an
//! argument.
//!
//! Each list of filters is a *chain* with messages and workers of its own, so that a slow filter delays only mail that
//! waits for it. A filter that fails makes its chain pause, twice as long each time; then one message is the probe.
//! The message that failed waits for a time of its own, twice as long each time, so that one that no filter survives
//! does not stand before the others.

use mail::QueueId;
use observe::Limit;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Pause after a failure.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// The longest delay of a 250 while the backlog is near its limit.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// The part of the limit at which delays begin.
const DELAYS_FROM: f64 = 0.5;

/// The limits of the backlog.
#[derive(Clone, Copy, Debug)]
pub(super) struct BacklogLimits {
    /// `screen.backlog_max`
    pub(super) messages: u64,
    /// `screen.backlog_bytes_max`
    pub(super) bytes: u64,
}

/// A message that waits.
#[derive(Debug)]
struct WaitingEntry {
    chain: Arc<str>,
    bytes: u64,
    /// Questions without a verdict so far.
    failures: u32,
    due: Duration,
    is_running: bool,
}

/// A list of filters.
#[derive(Debug, Default)]
struct Chain {
    /// Messages that nobody works on, the first due first.
    waiting: BTreeSet<(Duration, QueueId)>,
    running: usize,
    /// Failures since the last verdict.
    failures: u32,
    paused_until: Duration,
    /// The last failure.
    error: Option<Arc<str>>,
}

/// The state of a list of filters, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainView {
    /// The names of the filters, with commas.
    pub(crate) filters: Arc<str>,
    /// Messages that wait, those at work included.
    pub(crate) messages: usize,
    /// Messages that are at work.
    pub(crate) running: usize,
    /// The last failure, until a filter answers.
    pub(crate) error: Option<Arc<str>>,
    /// The end of the pause.
    pub(crate) paused_until: Duration,
}

/// All messages that wait.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    entries: HashMap<QueueId, WaitingEntry>,
    chains: BTreeMap<Arc<str>, Chain>,
    /// Octets of all, reserved ones included.
    bytes: u64,
    /// Messages that are about to be stored.
    reserved: u64,
}

impl Backlog {
    /// Returns the number of messages and octets.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.entries.len() as u64 + self.reserved, self.bytes)
    }

    /// Reserves room for messages that are about to be stored.
    ///
    /// # Errors
    /// The limit that has no room; nothing is reserved.
    pub(super) fn reserve(&mut self, messages: u64, bytes: u64, limits: BacklogLimits) -> Result<(), Limit> {
        let (known, known_bytes) = self.size();
        if known + messages > limits.messages {
            return Err(Limit::ScreenBacklogMax);
        }
        // One message alone may be larger than all together.
        if known > 0 && known_bytes.saturating_add(bytes) > limits.bytes {
            return Err(Limit::ScreenBacklogBytesMax);
        }
        self.reserved += messages;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives reserved room back.
    pub(super) const fn release(&mut self, messages: u64, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(messages);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Returns the delay of a 250: none up to half of a limit, then growing with its square.
    pub(super) fn delay(&self, limits: BacklogLimits) -> Duration {
        let (messages, bytes) = self.size();
        let part = |of: u64, max: u64| of as f64 / max.max(1) as f64;
        let fill = part(messages, limits.messages).max(part(bytes, limits.bytes)).min(1.0);
        let above = ((fill - DELAYS_FROM) / (1.0 - DELAYS_FROM)).max(0.0);
        DELAY_MAX.mul_f64(above * above)
    }

    /// Returns whether a message is there.
    pub(super) fn has(&self, id: QueueId) -> bool {
        self.entries.contains_key(&id)
    }

    /// Adds a message that is due now. Does nothing if it is known.
    pub(super) fn add(&mut self, id: QueueId, chain: &str, bytes: u64, now: Duration) {
        if self.entries.contains_key(&id) {
            return;
        }
        let chain = self.chains.get_key_value(chain).map_or_else(|| Arc::from(chain), |(known, _)| Arc::clone(known));
        self.chains.entry(Arc::clone(&chain)).or_default().waiting.insert((now, id));
        self.bytes += bytes;
        self.entries.insert(id, WaitingEntry { chain, bytes, failures: 0, due: now, is_running: false });
    }

    /// Takes the next message that may be asked about.
    pub(super) fn next(&mut self, now: Duration, workers: usize) -> Option<QueueId> {
        let has_turn = |chain: &&mut Chain| match chain.failures {
            0 => chain.running < workers,
            _ => chain.running == 0 && chain.paused_until <= now,
        };
        for chain in self.chains.values_mut().filter(has_turn) {
            let Some((due, id)) = chain.waiting.first().copied().filter(|(due, _)| *due <= now) else { continue };
            chain.waiting.remove(&(due, id));
            chain.running += 1;
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.is_running = true;
            }
            return Some(id);
        }
        None
    }

    /// Returns when the next message may be asked about, if one waits for a time and for no worker.
    pub(super) fn next_time(&self, workers: usize) -> Option<Duration> {
        let time = |chain: &Chain| {
            let (due, _) = chain.waiting.first()?;
            let workers = if chain.failures > 0 { 1 } else { workers };
            (chain.running < workers).then(|| if chain.failures > 0 { (*due).max(chain.paused_until) } else { *due })
        };
        self.chains.values().filter_map(time).min()
    }

    /// The filters of a message answered: its chain works, and its worker is free.
    pub(super) fn answered(&mut self, id: QueueId) {
        if let Some(chain) = self.stop_running(id) {
            (chain.failures, chain.error) = (0, None);
        }
    }

    /// The message waits no more. With the last one its chain is forgotten, failure included: nobody waits for it, and
    /// its filters may be no part of the configuration any more.
    pub(super) fn remove(&mut self, id: QueueId) {
        let _chain = self.stop_running(id);
        let Some(entry) = self.entries.remove(&id) else { return };
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        if let Some(chain) = self.chains.get_mut(&entry.chain) {
            chain.waiting.remove(&(entry.due, id));
            if chain.waiting.is_empty() && chain.running == 0 {
                self.chains.remove(&entry.chain);
            }
        }
    }

    /// The message got no verdict and is asked about again. `error`: a filter of its chain does not work.
    pub(super) fn later(&mut self, id: QueueId, error: Option<&str>, now: Duration) {
        if let (Some(chain), Some(error)) = (self.stop_running(id), error) {
            // Of failures at the same time one counts.
            if chain.failures == 0 || chain.paused_until <= now {
                chain.failures = chain.failures.saturating_add(1);
                chain.paused_until = now + pause(chain.failures);
            }
            chain.error = Some(Arc::from(error));
        }
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.failures = entry.failures.saturating_add(1);
        entry.due = now + pause(entry.failures);
        if let Some(chain) = self.chains.get_mut(&entry.chain) {
            chain.waiting.insert((entry.due, id));
        }
    }

    /// The message is asked about again at once: some of its recipients have a verdict, and others have none yet.
    pub(super) fn again(&mut self, id: QueueId, now: Duration) {
        let _chain = self.stop_running(id);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.due = now;
        if let Some(chain) = self.chains.get_mut(&entry.chain) {
            chain.waiting.insert((now, id));
        }
    }

    /// Makes all messages due: the configuration has changed.
    pub(super) fn retry_all(&mut self, now: Duration) {
        for chain in self.chains.values_mut() {
            chain.paused_until = chain.paused_until.min(now);
            chain.waiting =
                std::mem::take(&mut chain.waiting).into_iter().map(|(due, id)| (due.min(now), id)).collect();
        }
        for entry in self.entries.values_mut() {
            entry.due = entry.due.min(now);
        }
    }

    /// Returns the state of each chain.
    pub(super) fn views(&self) -> Vec<ChainView> {
        let view = |(filters, chain): (&Arc<str>, &Chain)| ChainView {
            filters: Arc::clone(filters),
            messages: chain.waiting.len() + chain.running,
            running: chain.running,
            error: chain.error.clone(),
            paused_until: chain.paused_until,
        };
        self.chains.iter().map(view).collect()
    }

    /// Takes the worker from a message that is at work, and returns its chain.
    fn stop_running(&mut self, id: QueueId) -> Option<&mut Chain> {
        let entry = self.entries.get_mut(&id)?;
        let chain = self.chains.get_mut(&entry.chain)?;
        if !std::mem::take(&mut entry.is_running) {
            return None;
        }
        chain.running = chain.running.saturating_sub(1);
        Some(chain)
    }
}

/// Returns the pause after so many failures.
fn pause(failures: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BacklogLimits = BacklogLimits { messages: 100, bytes: 1_000 };

    fn id(number: u64) -> QueueId {
        QueueId::from_u64(QueueId::MIN.to_u64() + number).unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_slow_chain_does_not_delay_another() {
        let mut backlog = Backlog::default();
        for number in 0..10 {
            backlog.add(id(number), "slow", 1, at(0));
        }
        backlog.add(id(20), "fast", 1, at(0));
        let taken: Vec<QueueId> = std::iter::from_fn(|| backlog.next(at(0), 3)).collect();
        assert_eq!(taken.len(), 4, "three of the slow chain, and the one of the fast one");
        assert!(taken.contains(&id(20)) && taken.contains(&id(0)) && !taken.contains(&id(3)));
        backlog.remove(id(20));
        backlog.answered(id(0));
        assert_eq!(backlog.next(at(0), 3), Some(id(3)), "a worker is free once the filters have answered");
        assert_eq!(backlog.size(), (10, 10));
        backlog.remove(id(0));
        assert_eq!(backlog.size(), (9, 9));
    }

    #[test]
    fn a_chain_that_fails_pauses_and_is_probed_with_one_message() {
        let mut backlog = Backlog::default();
        for number in 0..6 {
            backlog.add(id(number), "clamav", 1, at(0));
        }
        let first: Vec<QueueId> = std::iter::from_fn(|| backlog.next(at(0), 4)).collect();
        assert_eq!(first.len(), 4);
        for one in &first {
            backlog.later(*one, Some("connect: refused"), at(1));
        }
        assert_eq!(backlog.next(at(2), 4), None, "four failures at a time are one pause");
        assert_eq!(backlog.next_time(4), Some(at(3)));
        assert_eq!(backlog.views()[0].error.as_deref(), Some("connect: refused"));
        let probe = backlog.next(at(3), 4).unwrap();
        assert_eq!((probe, backlog.next(at(3), 4)), (id(4), None), "one that was not asked about, and one alone");
        assert_eq!(backlog.next_time(4), None, "the probe decides");
        backlog.later(probe, Some("connect: refused"), at(3));
        assert_eq!(backlog.next(at(6), 4), None, "the pause doubles");
        let probe = backlog.next(at(7), 4).unwrap();
        backlog.answered(probe);
        assert!(backlog.views()[0].error.is_none());
        assert_eq!(std::iter::from_fn(|| backlog.next(at(7), 4)).count(), 4, "it works again");
    }

    #[test]
    fn a_message_that_no_filter_survives_does_not_stop_the_others() {
        let mut backlog = Backlog::default();
        for number in 0..40 {
            backlog.add(id(number), "weak", 1, at(0));
        }
        let (mut now, mut passed, mut fatal) = (0, 0, 0);
        while passed < 39 && now < 1_000 {
            let Some(one) = backlog.next(at(now), 1) else {
                now += 1;
                continue;
            };
            if one == id(0) {
                fatal += 1;
                backlog.later(one, Some("closed"), at(now));
            } else {
                backlog.answered(one);
                backlog.remove(one);
                passed += 1;
            }
        }
        assert_eq!(passed, 39);
        assert!(now <= 10 && fatal <= 3, "{now} s, {fatal} failures");
    }

    #[test]
    fn a_failure_is_forgotten_when_nobody_waits_for_the_filter() {
        let mut backlog = Backlog::default();
        backlog.add(id(0), "gone", 1, at(0));
        let first = backlog.next(at(0), 1).unwrap();
        backlog.later(first, Some("there is no [[filter]] with this name"), at(0));
        assert!(backlog.views()[0].error.is_some());
        // An operator has released the message.
        backlog.remove(first);
        assert!(backlog.views().is_empty() && backlog.next_time(1).is_none());
    }

    #[test]
    fn an_answer_of_4yz_concerns_one_message() {
        let mut backlog = Backlog::default();
        backlog.add(id(0), "grey", 1, at(0));
        backlog.add(id(1), "grey", 1, at(0));
        let first = backlog.next(at(0), 1).unwrap();
        backlog.later(first, None, at(0));
        assert_eq!(backlog.next(at(0), 1), Some(id(1)));
        backlog.remove(id(1));
        assert_eq!((backlog.next(at(1), 1), backlog.next_time(1)), (None, Some(at(2))));
        backlog.retry_all(at(1));
        assert_eq!(backlog.next(at(1), 1), Some(first), "a reload has it asked about at once");
        backlog.remove(first);
        assert!(backlog.views().is_empty() && backlog.size() == (0, 0));
    }

    #[test]
    fn the_backlog_has_limits_and_delays_grow_towards_them() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.reserve(1, 5_000, LIMITS), Ok(()), "one message may be larger than the limit");
        assert_eq!(backlog.delay(LIMITS), DELAY_MAX);
        assert_eq!(backlog.reserve(1, 1, LIMITS), Err(Limit::ScreenBacklogBytesMax));
        backlog.release(1, 5_000);
        let mut last = Duration::ZERO;
        for number in 0..100 {
            assert_eq!(backlog.reserve(1, 1, LIMITS), Ok(()));
            backlog.release(1, 1);
            backlog.add(id(number), "x", 1, at(0));
            let delay = backlog.delay(LIMITS);
            assert!(delay >= last && (number >= 50 || delay.is_zero()), "{number}: {delay:?}");
            last = delay;
        }
        assert_eq!(last, DELAY_MAX);
        assert_eq!(backlog.reserve(1, 1, LIMITS), Err(Limit::ScreenBacklogMax));
        backlog.add(id(5), "x", 1, at(0));
        assert_eq!(backlog.size(), (100, 100), "a message is there once");
    }

    #[test]
    fn pauses_double_up_to_their_limit() {
        assert_eq!([1, 2, 3, 8, 9, 40, u32::MAX].map(|n| pause(n).as_secs()), [2, 4, 8, 256, 300, 300, 300]);
    }
}
