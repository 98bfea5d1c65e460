//! Idle connections of one kind, without a job in flight: which of them closes when its place is needed.
//!
//! The one that is idle for longest closes first. In a burst of messages to more sites than there are places, this
//! would close each connection between two of its messages, and each message would cost a handshake. So a connection
//! whose site gets one message after the other *lingers*: it keeps its place for about the time until the next message,
//! within half a second of its greeting. Waiting sites meanwhile gather messages for one connection. If no message is
//! expected the connection does not linger.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::job::ConnectionId;

/// A connection may linger for this long after its greeting.
const LINGER_WITHIN: Duration = Duration::from_millis(500);
/// Longest lingering at a time.
const LINGER_MAX: Duration = Duration::from_millis(100);
/// A longer gap says nothing about the next one.
const BURST_GAP_MAX: Duration = Duration::from_millis(200);
/// Lingering in gaps between messages of the site.
const LINGER_GAPS: u32 = 3;

/// How often messages arrive for a site.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    last: Option<Duration>,
    /// The smoothed time between two messages.
    gap: Option<Duration>,
}

impl Arrivals {
    /// Records a message. Messages at the same moment count as one.
    pub(crate) fn record(&mut self, now: Duration) {
        let Some(last) = self.last.replace(now).filter(|last| *last < now) else { return };
        let gap = now - last;
        if gap > BURST_GAP_MAX {
            // This may be the start of another burst.
            self.gap = None;
            return;
        }
        self.gap = Some(self.gap.map_or(gap, |before| (before * 3 + gap) / 4));
    }

    /// Returns until when an idle connection lingers that was greeted at `greeted`; zero: not at all.
    pub(crate) fn linger_until(&self, greeted: Duration, now: Duration) -> Duration {
        // Rare messages are not waited for.
        let Some(gap) = self.gap.filter(|gap| *gap * 2 <= LINGER_MAX) else { return Duration::ZERO };
        let until = (now + (gap * LINGER_GAPS).min(LINGER_MAX)).min(greeted.saturating_add(LINGER_WITHIN));
        if until > now { until } else { Duration::ZERO }
    }
}

/// Idle connections by the numbers that they got when they became idle.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections {
    closable: BTreeMap<u64, ConnectionId>,
    /// By the end of their lingering.
    lingering: BTreeMap<(Duration, u64), ConnectionId>,
}

impl IdleConnections {
    /// Adds a connection that lingers until `lingers_until`; zero: not at all.
    pub(crate) fn insert(&mut self, number: u64, lingers_until: Duration, id: ConnectionId) {
        if lingers_until.is_zero() {
            self.closable.insert(number, id);
        } else {
            self.lingering.insert((lingers_until, number), id);
        }
    }

    /// Removes a connection, by the values that it was added with.
    pub(crate) fn remove(&mut self, number: u64, lingers_until: Duration) {
        if self.closable.remove(&number).is_none() {
            self.lingering.remove(&(lingers_until, number));
        }
    }

    /// Ends the lingering of connections whose time is over.
    pub(crate) fn end_lingering(&mut self, now: Duration) {
        while let Some(first) = self.lingering.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, number), id) = first.remove_entry();
            self.closable.insert(number, id);
        }
    }

    /// Returns the connection to close.
    pub(crate) fn next_to_close(&self) -> Option<ConnectionId> {
        self.closable.first_key_value().map(|(_, id)| *id)
    }

    /// Returns when the next lingering ends.
    pub(crate) fn next_linger_end(&self) -> Option<Duration> {
        self.lingering.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn linger_after(gaps: &[u32], greeted: u32, now: u32) -> Option<u32> {
        let mut arrivals = Arrivals::default();
        let mut at = 1_000;
        arrivals.record(at * MS);
        for gap in gaps {
            at += gap;
            arrivals.record(at * MS);
            arrivals.record(at * MS);
        }
        let until = arrivals.linger_until(greeted * MS, now * MS);
        (!until.is_zero()).then(|| u32::try_from(until.as_millis()).unwrap() - now)
    }

    #[test]
    fn a_rest_is_as_long_as_the_next_message_may_take_and_ends_with_the_hold() {
        assert_eq!(linger_after(&[], 1_000, 1_100), None, "nothing is known to follow");
        assert_eq!(linger_after(&[20], 1_000, 1_100), Some(60));
        assert_eq!(linger_after(&[20, 20, 20], 1_000, 1_100), Some(60));
        assert_eq!(linger_after(&[50], 1_000, 1_100), Some(100));
        assert_eq!(linger_after(&[51], 1_000, 1_100), None, "it would not come in time");
        assert_eq!(linger_after(&[20, 201], 1_000, 1_300), None, "the burst is over");
        assert_eq!(linger_after(&[9_000, 20], 1_000, 1_300), Some(60), "and another one begins");
        assert_eq!(linger_after(&[20], 1_000, 1_460), Some(40));
        assert_eq!(linger_after(&[20], 1_000, 1_500), None);
    }

    #[test]
    fn the_one_that_is_idle_for_longest_goes_first_once_it_has_rested() {
        let mut idle = IdleConnections::default();
        let id = ConnectionId;
        idle.insert(1, 30 * MS, id(1));
        idle.insert(2, Duration::ZERO, id(2));
        idle.insert(3, 20 * MS, id(3));
        assert_eq!((idle.next_to_close(), idle.next_linger_end()), (Some(id(2)), Some(20 * MS)));
        idle.remove(2, Duration::ZERO);
        idle.end_lingering(19 * MS);
        assert_eq!(idle.next_to_close(), None);
        idle.end_lingering(20 * MS);
        assert_eq!((idle.next_to_close(), idle.next_linger_end()), (Some(id(3)), Some(30 * MS)));
        idle.end_lingering(30 * MS);
        assert_eq!((idle.next_to_close(), idle.next_linger_end()), (Some(id(1)), None));
        idle.remove(1, 30 * MS);
        assert_eq!(idle.next_to_close(), Some(id(3)));
        idle.insert(4, 50 * MS, id(4));
        idle.remove(4, 50 * MS);
        assert_eq!(idle.next_linger_end(), None);
    }
}
