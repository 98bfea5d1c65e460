//! Connections of one purse that are idle, without a job in flight: which of them is closed when its place is needed.
//!
//! The one that has been idle for longest goes first. In a burst of messages to more sites than there are places that would close
//! each connection in the moment between two of its messages, for a site whose own one goes the same way, and each message
//! would cost a handshake. So a connection whose site gets one message after the other *rests* first: it keeps its place
//! for about the time in which the next one is to be expected, and not beyond its first half second. Those in line
//! have what gathered for them over one connection then. Where nothing follows, nothing is waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::job::ConnectionId;

/// A connection may keep its place by resting so long from its greeting on.
const HOLD: Duration = Duration::from_millis(500);
/// The longest rest.
const REST_MAX: Duration = Duration::from_millis(100);
/// A gap beyond this says nothing of the next one.
const PAUSE: Duration = Duration::from_millis(200);
/// A rest in gaps between messages of the site.
const GAPS: u32 = 3;

/// How often messages come for a site.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    last: Option<Duration>,
    /// The time between two of them, smoothed.
    gap: Option<Duration>,
}

impl Arrivals {
    /// A message came. What comes in the same moment is one.
    pub(crate) fn comes(&mut self, now: Duration) {
        let Some(last) = self.last.replace(now).filter(|last| *last < now) else { return };
        let gap = now - last;
        if gap > PAUSE {
            // Another burst, if it is one.
            self.gap = None;
            return;
        }
        self.gap = Some(self.gap.map_or(gap, |before| (before * 3 + gap) / 4));
    }

    /// Until when a connection rests that was greeted at a time and has nothing to do at `now`; zero if it does not.
    pub(crate) fn rest(&self, greeted: Duration, now: Duration) -> Duration {
        // What comes seldom is not waited for.
        let Some(gap) = self.gap.filter(|gap| *gap * 2 <= REST_MAX) else { return Duration::ZERO };
        let until = (now + (gap * GAPS).min(REST_MAX)).min(greeted.saturating_add(HOLD));
        if until > now { until } else { Duration::ZERO }
    }
}

/// Idle connections by the places that they got when they became idle.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections {
    ripe: BTreeMap<u64, ConnectionId>,
    /// By when their rest is over.
    resting: BTreeMap<(Duration, u64), ConnectionId>,
}

impl IdleConnections {
    /// Takes one in that rests until then; zero: it does not.
    pub(crate) fn insert(&mut self, place: u64, rests_until: Duration, id: ConnectionId) {
        if rests_until.is_zero() {
            self.ripe.insert(place, id);
        } else {
            self.resting.insert((rests_until, place), id);
        }
    }

    /// Takes one out, by what it was taken in with.
    pub(crate) fn remove(&mut self, place: u64, rests_until: Duration) {
        if self.ripe.remove(&place).is_none() {
            self.resting.remove(&(rests_until, place));
        }
    }

    /// ConnectionEnds the rests that are over.
    pub(crate) fn ripen(&mut self, now: Duration) {
        while let Some(first) = self.resting.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, place), id) = first.remove_entry();
            self.ripe.insert(place, id);
        }
    }

    /// The one to close.
    pub(crate) fn first(&self) -> Option<ConnectionId> {
        self.ripe.first_key_value().map(|(_, id)| *id)
    }

    /// When the next rest is over.
    pub(crate) fn ripens_at(&self) -> Option<Duration> {
        self.resting.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after(gaps: &[u32], greeted: u32, now: u32) -> Option<u32> {
        let mut arrivals = Arrivals::default();
        let mut at = 1_000;
        arrivals.comes(at * MS);
        for gap in gaps {
            at += gap;
            arrivals.comes(at * MS);
            arrivals.comes(at * MS);
        }
        let until = arrivals.rest(greeted * MS, now * MS);
        (!until.is_zero()).then(|| u32::try_from(until.as_millis()).unwrap() - now)
    }

    #[test]
    fn a_rest_is_as_long_as_the_next_message_may_take_and_ends_with_the_hold() {
        assert_eq!(after(&[], 1_000, 1_100), None, "nothing is known to follow");
        assert_eq!(after(&[20], 1_000, 1_100), Some(60));
        assert_eq!(after(&[20, 20, 20], 1_000, 1_100), Some(60));
        assert_eq!(after(&[50], 1_000, 1_100), Some(100));
        assert_eq!(after(&[51], 1_000, 1_100), None, "it would not come in time");
        assert_eq!(after(&[20, 201], 1_000, 1_300), None, "the burst is over");
        assert_eq!(after(&[9_000, 20], 1_000, 1_300), Some(60), "and another one begins");
        assert_eq!(after(&[20], 1_000, 1_460), Some(40));
        assert_eq!(after(&[20], 1_000, 1_500), None);
    }

    #[test]
    fn the_one_that_is_idle_for_longest_goes_first_once_it_has_rested() {
        let mut spare = IdleConnections::default();
        let id = ConnectionId;
        spare.insert(1, 30 * MS, id(1));
        spare.insert(2, Duration::ZERO, id(2));
        spare.insert(3, 20 * MS, id(3));
        assert_eq!((spare.first(), spare.ripens_at()), (Some(id(2)), Some(20 * MS)));
        spare.remove(2, Duration::ZERO);
        spare.ripen(19 * MS);
        assert_eq!(spare.first(), None);
        spare.ripen(20 * MS);
        assert_eq!((spare.first(), spare.ripens_at()), (Some(id(3)), Some(30 * MS)));
        spare.ripen(30 * MS);
        assert_eq!((spare.first(), spare.ripens_at()), (Some(id(1)), None));
        spare.remove(1, 30 * MS);
        assert_eq!(spare.first(), Some(id(3)));
        spare.insert(4, 50 * MS, id(4));
        spare.remove(4, 50 * MS);
        assert_eq!(spare.ripens_at(), None);
    }
}
