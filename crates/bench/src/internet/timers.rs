//! Times at which something is to be done, soonest first: one queue for all connections.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Times with the place of a connection.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Duration, u32)>>,
}

impl Timers {
    pub(super) fn add(&mut self, due: Duration, place: u32) {
        self.heap.push(Reverse((due, place)));
    }

    /// The soonest time.
    pub(super) fn next(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// Takes the due entries, soonest first.
    pub(super) fn due(&mut self, now: Duration) -> Option<(Duration, u32)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_its_order() {
        let mut timers = Timers::default();
        let milli = Duration::from_millis;
        for (due, place) in [(30, 1), (10, 2), (20, 3)] {
            timers.add(milli(due), place);
        }
        assert_eq!(timers.due(milli(9)), None);
        assert_eq!(timers.due(milli(20)), Some((milli(10), 2)));
        assert_eq!(timers.due(milli(20)), Some((milli(20), 3)));
        assert_eq!((timers.due(milli(20)), timers.next()), (None, Some(milli(30))));
    }
}
