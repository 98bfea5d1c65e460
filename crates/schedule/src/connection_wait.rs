//! TimerKey stands in line for a connection that the budget does not have.
//!
//! Four lines for each lane: sites without a connection, those that were asked before and were quiet, those that are down and are to
//! be probed, and those that want one more. So whoever was alive does not wait behind all that is dead; but after [`LIVE_TURNS`] of them there is a probe, and
//! nobody is kept out. TimerKey was quiet comes in turn with the first ones by his time, as long as there is room for such. Inside a line the order is the time at which a site wanted it, later by what its hosts are expected
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
    hungry: BTreeSet<(Duration, SiteId)>,
    quiet: BTreeSet<(Duration, SiteId)>,
    probes: BTreeSet<(Duration, SiteId)>,
    greedy: BTreeSet<(Duration, SiteId)>,
    /// Hungry and quiet ones that went while a probe waited.
    streak: u32,
}

impl ConnectionWaitQueue {
    pub(crate) fn insert(&mut self, site: SiteId, stand: &Waiter) {
        self.line(stand).insert((stand.at, site));
    }

    pub(crate) fn remove(&mut self, site: SiteId, stand: &Waiter) {
        self.line(stand).remove(&(stand.at, site));
    }

    /// How many wait, but those that were quiet.
    pub(crate) fn len(&self, lane: Lane) -> usize {
        let lines = self.lines(lane);
        lines.hungry.len() + lines.probes.len() + lines.greedy.len()
    }

    /// How many wait that were quiet.
    pub(crate) fn quiet(&self, lane: Lane) -> usize {
        self.lines(lane).quiet.len()
    }

    /// TimerKey is next; `takes_quiet`: there is room for one that was quiet.
    pub(crate) fn first(&self, lane: Lane, takes_quiet: bool) -> Option<SiteId> {
        let LaneQueues { hungry, quiet, probes, greedy, streak } = self.lines(lane);
        let probe = probes.first();
        let due = probe.filter(|_| *streak >= LIVE_TURNS);
        let quiet = quiet.first().filter(|_| takes_quiet);
        let first = || hungry.first().into_iter().chain(quiet).min();
        due.or_else(first).or(probe).or_else(|| greedy.first()).map(|(_, site)| *site)
    }

    /// The first of those that are to be probed.
    pub(crate) fn first_probe(&self, lane: Lane) -> Option<SiteId> {
        self.lines(lane).probes.first().map(|(_, site)| *site)
    }

    /// Somebody left the line since it was the first.
    pub(crate) fn has_turn(&mut self, stand: &Waiter) {
        self.last = Some(stand.lane);
        let lines = self.lines_mut(stand.lane);
        match stand.want {
            WaitKind::First | WaitKind::Retry if !lines.probes.is_empty() => {
                lines.streak = lines.streak.saturating_add(1)
            }
            WaitKind::First | WaitKind::Retry | WaitKind::Extra => {}
            WaitKind::Probe => lines.streak = 0,
        }
    }

    /// The lanes in the order in which they are fed from a budget that they share.
    pub(crate) fn turns(&self) -> [Lane; 2] {
        if self.last == Some(Lane::Fast) { [Lane::Slow, Lane::Fast] } else { [Lane::Fast, Lane::Slow] }
    }

    const fn lines(&self, lane: Lane) -> &LaneQueues {
        match lane {
            Lane::Fast => &self.fast,
            Lane::Slow => &self.slow,
        }
    }

    const fn lines_mut(&mut self, lane: Lane) -> &mut LaneQueues {
        match lane {
            Lane::Fast => &mut self.fast,
            Lane::Slow => &mut self.slow,
        }
    }

    const fn line(&mut self, stand: &Waiter) -> &mut BTreeSet<(Duration, SiteId)> {
        let lines = self.lines_mut(stand.lane);
        match stand.want {
            WaitKind::First => &mut lines.hungry,
            WaitKind::Retry => &mut lines.quiet,
            WaitKind::Probe => &mut lines.probes,
            WaitKind::Extra => &mut lines.greedy,
        }
    }
}
