//! TimerKey stands in line for a connection that the budget does not have.
//!
//! Four queues for each lane: sites without a connection, those that were asked before and were retry_queue, those that are down and are to
//! be probed, and those that want one more. So whoever was alive does not wait behind all that is dead; but after [`LIVE_TURNS`] of them there is a probe, and
//! nobody is kept out. TimerKey was retry_queue comes in turn with the first ones by his time, as long as there is room for such. Inside a line the order is the time at which a site wanted it, later by what its hosts are expected
//! to take: who was fast before comes first, and as that is bounded nobody in a line waits for ever.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::job::{Lane, SiteId};

/// Sites without a connection that go before a probe that waits.
const LIVE_TURNS: u32 = 4;

/// What a site wants a connection for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitKind {
    /// It has none yet.
    First,
    /// It has none, and was called off before it was greeted.
    Retry,
    /// To see whether it is up again.
    Probe,
    /// One more.
    Extra,
}

/// A place in a line.
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
    /// The lane whose turn was last.
    last: Option<Lane>,
}

#[derive(Debug, Default)]
struct LaneQueues {
    first_queue: BTreeSet<(Duration, SiteId)>,
    retry_queue: BTreeSet<(Duration, SiteId)>,
    probe_queue: BTreeSet<(Duration, SiteId)>,
    extra_queue: BTreeSet<(Duration, SiteId)>,
    /// Hungry and retry_queue ones that went while a probe waited.
    streak: u32,
}

impl ConnectionWaitQueue {
    pub(crate) fn insert(&mut self, site: SiteId, waiter: &Waiter) {
        self.queue_mut(waiter).insert((waiter.at, site));
    }

    pub(crate) fn remove(&mut self, site: SiteId, waiter: &Waiter) {
        self.queue_mut(waiter).remove(&(waiter.at, site));
    }

    /// How many wait, but those that were retry_queue.
    pub(crate) fn len(&self, lane: Lane) -> usize {
        let queues = self.queues(lane);
        queues.first_queue.len() + queues.probe_queue.len() + queues.extra_queue.len()
    }

    /// How many wait that were retry_queue.
    pub(crate) fn retries(&self, lane: Lane) -> usize {
        self.queues(lane).retry_queue.len()
    }

    /// TimerKey is next; `with_retry`: there is room for one that was retry_queue.
    pub(crate) fn next(&self, lane: Lane, with_retry: bool) -> Option<SiteId> {
        let LaneQueues { first_queue, retry_queue, probe_queue, extra_queue, streak } = self.queues(lane);
        let probe = probe_queue.first();
        let due = probe.filter(|_| *streak >= LIVE_TURNS);
        let retry_queue = retry_queue.first().filter(|_| with_retry);
        let first = || first_queue.first().into_iter().chain(retry_queue).min();
        due.or_else(first).or(probe).or_else(|| extra_queue.first()).map(|(_, site)| *site)
    }

    /// The first of those that are to be probed.
    pub(crate) fn next_probe(&self, lane: Lane) -> Option<SiteId> {
        self.queues(lane).probe_queue.first().map(|(_, site)| *site)
    }

    /// Somebody left the line since it was the first.
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

    /// The lanes in the order in which they are fed from a budget that they share.
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
