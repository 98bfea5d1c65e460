//! Who stands in line for a connection that the budget does not have.
//!
//! One line for each lane, those without a connection before those that want one more. Inside a line the order is the time
//! at which a site wanted it, later by what its hosts are expected to take: who was fast before comes first, and as that is
//! bounded nobody waits for ever.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::job::{Lane, SiteId};

/// A place in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) lane: Lane,
    /// It has no connection yet.
    pub(crate) is_first: bool,
    pub(crate) at: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Stands {
    fast: Lines,
    slow: Lines,
}

#[derive(Debug, Default)]
struct Lines {
    hungry: BTreeSet<(Duration, SiteId)>,
    greedy: BTreeSet<(Duration, SiteId)>,
}

impl Stands {
    pub(crate) fn insert(&mut self, site: SiteId, stand: &Stand) {
        self.line(stand).insert((stand.at, site));
    }

    pub(crate) fn remove(&mut self, site: SiteId, stand: &Stand) {
        self.line(stand).remove(&(stand.at, site));
    }

    /// How many wait.
    pub(crate) fn len(&self, lane: Lane) -> usize {
        let lines = self.lines(lane);
        lines.hungry.len() + lines.greedy.len()
    }

    /// Who is next.
    pub(crate) fn first(&self, lane: Lane) -> Option<SiteId> {
        let lines = self.lines(lane);
        lines.hungry.first().or_else(|| lines.greedy.first()).map(|(_, site)| *site)
    }

    const fn lines(&self, lane: Lane) -> &Lines {
        match lane {
            Lane::Fast => &self.fast,
            Lane::Slow => &self.slow,
        }
    }

    const fn line(&mut self, stand: &Stand) -> &mut BTreeSet<(Duration, SiteId)> {
        let lines = match stand.lane {
            Lane::Fast => &mut self.fast,
            Lane::Slow => &mut self.slow,
        };
        if stand.is_first { &mut lines.hungry } else { &mut lines.greedy }
    }
}
