//! Opening connections of the fast lane, and how long hosts usually need until they are ready for mail.
//!
//! Many silent hosts at once would hold the whole lane until their time-outs. So while other sites wait for a place, a
//! connection that is not greeted in the usual time is cancelled. This says nothing against its host: the site gets
//! further attempts with four times the time each, and the last one keeps the time-outs of the lane. If no connection
//! that opened clearly later is ready earlier, this machine may be slow, and the time is four times as long: of many
//! connections that open at once the fastest are known first. Sites with a cancelled attempt wait in a queue of their
//! own (`connection_wait`) and have at most half of the lane ([`ConnectionBudget`]), so that unknown sites find room.
//!
//! [`ConnectionBudget`]: crate::pool::ConnectionBudget

use std::collections::BTreeMap;
use std::time::Duration;

use crate::job::ConnectionId;

/// Attempts of a site; the last one is not cancelled.
const ATTEMPTS: usize = 4;
/// Factor between the times of two attempts.
const FACTOR: u32 = 4;
/// The usual time before any is known, and its bounds.
const TIMEOUT_UNKNOWN: Duration = Duration::from_secs(1);
const TIMEOUT_MIN: Duration = Duration::from_millis(250);
const TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// A connection that is ready sooner is local, a file or a program, and says nothing about hosts.
const LOCAL_MAX: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(crate) struct GreetingTimer {
    /// Start times by attempt. Connections are numbered as they open.
    starts: [BTreeMap<ConnectionId, Duration>; ATTEMPTS],
    /// The smoothed time that hosts need, and its mean deviation.
    mean: Option<Duration>,
    deviation: Duration,
    /// The latest start time of a connection that is ready.
    latest_start: Duration,
}

impl GreetingTimer {
    /// Starts the timer of a connection to a site with this many cancelled attempts in a row.
    pub(crate) fn start(&mut self, id: ConnectionId, cancels: usize, now: Duration) {
        if let Some(same) = self.starts.get_mut(cancels.min(ATTEMPTS - 1)) {
            same.insert(id, now);
        }
    }

    /// Stops the timer of a connection that is ready, and learns from its time.
    pub(crate) fn greeted(&mut self, id: ConnectionId, now: Duration) {
        let Some((_, since)) = self.stop(id) else { return };
        self.latest_start = self.latest_start.max(since);
        let took = now.saturating_sub(since);
        if took < LOCAL_MAX {
            return;
        }
        // A few very slow hosts must not raise the limit for all.
        let took = took.min(self.usual_time() * 2);
        let Some(mean) = self.mean else {
            (self.mean, self.deviation) = (Some(took), took / 2);
            return;
        };
        // As RFC 6298 §2 estimates round trips
        self.deviation = self.deviation * 3 / 4 + took.abs_diff(mean) / 4;
        self.mean = Some(mean * 7 / 8 + took / 8);
    }

    /// Stops the timer of a connection. Returns its number of cancelled attempts and its start time.
    pub(crate) fn stop(&mut self, id: ConnectionId) -> Option<(usize, Duration)> {
        let found = |(number, same): (usize, &mut BTreeMap<_, _>)| same.remove(&id).map(|since| (number, since));
        self.starts.iter_mut().enumerate().find_map(found)
    }

    /// Returns how many connections are further attempts.
    pub(crate) fn retries(&self) -> usize {
        self.starts.iter().skip(1).map(BTreeMap::len).sum()
    }

    /// Returns the connection whose time ends first, and when; `retries_only`: among further attempts.
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

    /// Returns the time that all but the slowest hosts need.
    fn usual_time(&self) -> Duration {
        self.mean.map_or(TIMEOUT_UNKNOWN, |mean| (mean + 4 * self.deviation).clamp(TIMEOUT_MIN, TIMEOUT_MAX))
    }

    fn timeout(&self, cancels: usize) -> Duration {
        let times = u32::try_from(cancels).map_or(1, |number| FACTOR.saturating_pow(number));
        self.usual_time().saturating_mul(times)
    }
}
