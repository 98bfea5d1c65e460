//! Connections of the fast lane that are opening, and how long hosts usually take until they are ready for mail.
//!
//! Very many hosts that say nothing, met at once, would hold the whole lane until its time-outs are over. So when others
//! wait for a place, one that has been *quiet* for longer than hosts usually take is called off. That says nothing against
//! its host: the site is asked retries_only, four times as patiently each time, and at last with all the time that the lane has.
//! Where nobody who was asked clearly later is ready before it, it may be we who are slow, and it has four times as long: of very
//! many who are asked at once those are known first that were quick.
//! Sites that are asked retries_only stand in a line of their own (`stands`) and have half of the lane at most ([`ConnectionBudget`]), so
//! that there is room for those of which nothing is known yet.
//!
//! [`ConnectionBudget`]: crate::pool::ConnectionBudget

use std::collections::BTreeMap;
use std::time::Duration;

use crate::job::ConnectionId;

/// A site is asked so often; the last time nobody calls it off.
const ATTEMPTS: usize = 4;
/// How much more patient each try is.
const FACTOR: u32 = 4;
/// Before anything is known of hosts; and bounds of what they usually take.
const TIMEOUT_UNKNOWN: Duration = Duration::from_secs(1);
const TIMEOUT_MIN: Duration = Duration::from_millis(250);
const TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// TimerKey is ready sooner is on this machine, as files and programs are, and says nothing of others.
const LOCAL_MAX: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(crate) struct GreetingTimer {
    /// When each began, by the times its site was called off before. Connections are numbered as they open.
    starts: [BTreeMap<ConnectionId, Duration>; ATTEMPTS],
    /// What hosts take, smoothed; and by how much they differ from it.
    mean: Option<Duration>,
    deviation: Duration,
    /// When the one began that began last of those that are ready.
    latest_start: Duration,
}

impl GreetingTimer {
    /// A connection opens to a site that was called off so many times in a row.
    pub(crate) fn start(&mut self, id: ConnectionId, cancels: usize, now: Duration) {
        if let Some(same) = self.starts.get_mut(cancels.min(ATTEMPTS - 1)) {
            same.insert(id, now);
        }
    }

    /// A connection is ready for mail: so long that takes.
    pub(crate) fn greeted(&mut self, id: ConnectionId, now: Duration) {
        let Some((_, since)) = self.stop(id) else { return };
        self.latest_start = self.latest_start.max(since);
        let took = now.saturating_sub(since);
        if took < LOCAL_MAX {
            return;
        }
        // A few that take very long make nobody patient.
        let took = took.min(self.usual_time() * 2);
        let Some(mean) = self.mean else {
            (self.mean, self.deviation) = (Some(took), took / 2);
            return;
        };
        // As RFC 6298 §2 estimates round trips
        self.deviation = self.deviation * 3 / 4 + took.abs_diff(mean) / 4;
        self.mean = Some(mean * 7 / 8 + took / 8);
    }

    /// A connection is not quiet any more. Says how often its site had been called off, and when it began.
    pub(crate) fn stop(&mut self, id: ConnectionId) -> Option<(usize, Duration)> {
        let found = |(number, same): (usize, &mut BTreeMap<_, _>)| same.remove(&id).map(|since| (number, since));
        self.starts.iter_mut().enumerate().find_map(found)
    }

    /// Those whose site was called off before.
    pub(crate) fn retries(&self) -> usize {
        self.starts.iter().skip(1).map(BTreeMap::len).sum()
    }

    /// The one whose timeout ends first, and when; with `retries_only` of those that were called off before.
    pub(crate) fn next_timeout(&self, retries_only: bool) -> Option<(Duration, ConnectionId)> {
        let starts = self.starts.iter().enumerate().take(ATTEMPTS - 1).skip(usize::from(retries_only));
        let firsts = starts.filter_map(|(number, same)| {
            let (id, since) = same.first_key_value()?;
            let timeout = self.timeout(number);
            let is_overtaken = self.latest_start >= since.saturating_add(timeout / 2);
            Some((since.saturating_add(if is_overtaken { timeout } else { timeout * FACTOR }), *id))
        });
        firsts.min()
    }

    /// What hosts take but for the slowest.
    fn usual_time(&self) -> Duration {
        self.mean.map_or(TIMEOUT_UNKNOWN, |mean| (mean + 4 * self.deviation).clamp(TIMEOUT_MIN, TIMEOUT_MAX))
    }

    fn timeout(&self, cancels: usize) -> Duration {
        let times = u32::try_from(cancels).map_or(1, |number| FACTOR.saturating_pow(number));
        self.usual_time().saturating_mul(times)
    }
}
