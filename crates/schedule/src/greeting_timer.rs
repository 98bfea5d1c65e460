//! Connections of the fast lane that are opening, and how long hosts usually take until they are ready for mail.
//!
//! Very many hosts that say nothing, met at once, would hold the whole lane until its time-outs are over. So when others
//! wait for a place, one that has been *quiet* for longer than hosts usually take is called off. That says nothing against
//! its host: the site is asked again, four times as patiently each time, and at last with all the time that the lane has.
//! Where nobody who was asked clearly later is ready before it, it may be we who are slow, and it has four times as long: of very
//! many who are asked at once those are known first that were quick.
//! Sites that are asked again stand in a line of their own (`stands`) and have half of the lane at most ([`ConnectionBudget`]), so
//! that there is room for those of which nothing is known yet.
//!
//! [`ConnectionBudget`]: crate::pool::ConnectionBudget

use std::collections::BTreeMap;
use std::time::Duration;

use crate::job::ConnectionId;

/// A site is asked so often; the last time nobody calls it off.
const TRIES: usize = 4;
/// How much more patient each try is.
const FACTOR: u32 = 4;
/// Before anything is known of hosts; and bounds of what they usually take.
const UNKNOWN: Duration = Duration::from_secs(1);
const LEAST: Duration = Duration::from_millis(250);
const MOST: Duration = Duration::from_secs(5);
/// TimerKey is ready sooner is on this machine, as files and programs are, and says nothing of others.
const AT_HOME: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(crate) struct GreetingTimer {
    /// When each began, by the times its site was called off before. Connections are numbered as they open.
    tries: [BTreeMap<ConnectionId, Duration>; TRIES],
    /// What hosts take, smoothed; and by how much they differ from it.
    mean: Option<Duration>,
    deviation: Duration,
    /// When the one began that began last of those that are ready.
    latest: Duration,
}

impl GreetingTimer {
    /// A connection opens to a site that was called off so many times in a row.
    pub(crate) fn opens(&mut self, id: ConnectionId, called_off: usize, now: Duration) {
        if let Some(same) = self.tries.get_mut(called_off.min(TRIES - 1)) {
            same.insert(id, now);
        }
    }

    /// A connection is ready for mail: so long that takes.
    pub(crate) fn greets(&mut self, id: ConnectionId, now: Duration) {
        let Some((_, since)) = self.ends(id) else { return };
        self.latest = self.latest.max(since);
        let took = now.saturating_sub(since);
        if took < AT_HOME {
            return;
        }
        // A few that take very long make nobody patient.
        let took = took.min(self.usual() * 2);
        let Some(mean) = self.mean else {
            (self.mean, self.deviation) = (Some(took), took / 2);
            return;
        };
        // As RFC 6298 §2 estimates round trips
        self.deviation = self.deviation * 3 / 4 + took.abs_diff(mean) / 4;
        self.mean = Some(mean * 7 / 8 + took / 8);
    }

    /// A connection is not quiet any more. Says how often its site had been called off, and when it began.
    pub(crate) fn ends(&mut self, id: ConnectionId) -> Option<(usize, Duration)> {
        let found = |(number, same): (usize, &mut BTreeMap<_, _>)| same.remove(&id).map(|since| (number, since));
        self.tries.iter_mut().enumerate().find_map(found)
    }

    /// Those whose site was called off before.
    pub(crate) fn again(&self) -> usize {
        self.tries.iter().skip(1).map(BTreeMap::len).sum()
    }

    /// The one whose patience ends first, and when; with `again` of those that were called off before.
    pub(crate) fn first(&self, again: bool) -> Option<(Duration, ConnectionId)> {
        let tries = self.tries.iter().enumerate().take(TRIES - 1).skip(usize::from(again));
        let firsts = tries.filter_map(|(number, same)| {
            let (id, since) = same.first_key_value()?;
            let patience = self.patience(number);
            let is_overtaken = self.latest >= since.saturating_add(patience / 2);
            Some((since.saturating_add(if is_overtaken { patience } else { patience * FACTOR }), *id))
        });
        firsts.min()
    }

    /// What hosts take but for the slowest.
    fn usual(&self) -> Duration {
        self.mean.map_or(UNKNOWN, |mean| (mean + 4 * self.deviation).clamp(LEAST, MOST))
    }

    fn patience(&self, called_off: usize) -> Duration {
        let times = u32::try_from(called_off).map_or(1, |number| FACTOR.saturating_pow(number));
        self.usual().saturating_mul(times)
    }
}
