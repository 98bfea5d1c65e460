//! Wait queues for connections when the connection limit is reached.
//!
//! Four per lane: `first` (the site has no connection), `retry` (its last attempt was cancelled before the greeting),
//! `probe` (the site is down) and `extra` (it wants one more). The order is `first` and `retry` merged by time, `retry`
//! only within its quota; then `probe`; then `extra`. After [`LIVE_TURNS`] grants a waiting probe goes next, so no
//! queue starves. Within a queue the key is the start of the wait plus the expected connect time, which is bounded, so
//! no site starves.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::job::{Lane, SiteId};

/// Grants of `first` and `retry` before a waiting probe.
const LIVE_TURNS: u32 = 4;

/// The kind of connection that a site waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitKind {
    /// Its first connection.
    First,
    /// The same, after an attempt that was cancelled before the greeting.
    Retry,
    /// A probe of whether it is up again.
    Probe,
    /// One more connection.
    Extra,
}

/// A site in a wait queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) lane: Lane,
    pub(crate) want: WaitKind,
    pub(crate) at: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionWaitQueue {
    fast: LaneQueues,
    slow: LaneQueues,
    /// The lane of the last grant.
    last: Option<Lane>,
}

#[derive(Debug, Default)]
struct LaneQueues {
    first_queue: BTreeSet<(Duration, SiteId)>,
    retry_queue: BTreeSet<(Duration, SiteId)>,
    probe_queue: BTreeSet<(Duration, SiteId)>,
    extra_queue: BTreeSet<(Duration, SiteId)>,
    /// Grants of `first` and `retry` while a probe waits.
    streak: u32,
}

impl ConnectionWaitQueue {
    pub(crate) fn insert(&mut self, site: SiteId, waiter: &Waiter) {
        self.queue_mut(waiter).insert((waiter.at, site));
    }

    pub(crate) fn remove(&mut self, site: SiteId, waiter: &Waiter) {
        self.queue_mut(waiter).remove(&(waiter.at, site));
    }

    /// Returns how many sites wait, `retry` excluded.
    pub(crate) fn len(&self, lane: Lane) -> usize {
        let queues = self.queues(lane);
        queues.first_queue.len() + queues.probe_queue.len() + queues.extra_queue.len()
    }

    /// Returns how many sites wait in `retry`.
    pub(crate) fn retries(&self, lane: Lane) -> usize {
        self.queues(lane).retry_queue.len()
    }

    /// Returns the next site. `with_retry`: the quota of `retry` has room.
    pub(crate) fn next(&self, lane: Lane, with_retry: bool) -> Option<SiteId> {
        let LaneQueues { first_queue, retry_queue, probe_queue, extra_queue, streak } = self.queues(lane);
        let probe = probe_queue.first();
        let due = probe.filter(|_| *streak >= LIVE_TURNS);
        let retry_queue = retry_queue.first().filter(|_| with_retry);
        let first = || first_queue.first().into_iter().chain(retry_queue).min();
        due.or_else(first).or(probe).or_else(|| extra_queue.first()).map(|(_, site)| *site)
    }

    /// Returns the next site that waits for a probe.
    pub(crate) fn next_probe(&self, lane: Lane) -> Option<SiteId> {
        self.queues(lane).probe_queue.first().map(|(_, site)| *site)
    }

    /// Records that a waiter got its connection.
    pub(crate) fn granted(&mut self, waiter: &Waiter) {
        self.last = Some(waiter.lane);
        let queues = self.queues_mut(waiter.lane);
        match waiter.want {
            WaitKind::First | WaitKind::Retry if !queues.probe_queue.is_empty() => {
                queues.streak = queues.streak.saturating_add(1)
            }
            WaitKind::First | WaitKind::Retry | WaitKind::Extra => {}
            WaitKind::Probe => queues.streak = 0,
        }
    }

    /// Returns the order in which the lanes get places of a shared budget.
    pub(crate) fn lane_order(&self) -> [Lane; 2] {
        if self.last == Some(Lane::Fast) { [Lane::Slow, Lane::Fast] } else { [Lane::Fast, Lane::Slow] }
    }

    const fn queues(&self, lane: Lane) -> &LaneQueues {
        match lane {
            Lane::Fast => &self.fast,
            Lane::Slow => &self.slow,
        }
    }

    const fn queues_mut(&mut self, lane: Lane) -> &mut LaneQueues {
        match lane {
            Lane::Fast => &mut self.fast,
            Lane::Slow => &mut self.slow,
        }
    }

    const fn queue_mut(&mut self, waiter: &Waiter) -> &mut BTreeSet<(Duration, SiteId)> {
        let queues = self.queues_mut(waiter.lane);
        match waiter.want {
            WaitKind::First => &mut queues.first_queue,
            WaitKind::Retry => &mut queues.retry_queue,
            WaitKind::Probe => &mut queues.probe_queue,
            WaitKind::Extra => &mut queues.extra_queue,
        }
    }
}
