//! Ids for messages that are older than they are here: those that waited at another server before.
//!
//! The id of a message says since when it waits, and its age counts from there. A generator for the present cannot give
//! such an id, since its ids only rise. This one gives ids of any moment, and each only once.

use crate::queue_id::{Node, QueueId};
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000;

/// Gives ids of moments in the past, each once.
///
/// ```
/// use mail::{Node, PastIds};
/// let mut ids = PastIds::of_epoch(Node::default(), 7);
/// let now = 1_795_000_000_000_000;
/// let (first, second) = (ids.next(1_790_000_000_000_000, now), ids.next(1_790_000_000_000_000, now));
/// assert!(first < second && second.unix_us() == 1_790_000_000_000_001);
/// ```
#[derive(Clone, Debug)]
pub struct PastIds {
    node: Node,
    /// The next free microsecond of each second from which ids were given.
    next: BTreeMap<u64, u64>,
}

impl PastIds {
    /// The first of the nodes whose ids are those of taken over mail. No generator for the present has one of these.
    pub const NODE_FIRST: u16 = 2_048;

    /// A generator for one opening of a spool, whose openings are counted by `epoch`: no two have the same node before
    /// there were two thousand, or 32 on a `node` of a cluster.
    #[must_use]
    pub fn of_epoch(node: Node, epoch: u64) -> Self {
        let number = node.share_of(Self::NODE_FIRST, epoch);
        Self { node: Node::new(Self::NODE_FIRST + number).unwrap_or(Node::MAX), next: BTreeMap::new() }
    }

    /// The id of a moment, or of the first microsecond behind it that has none yet. Both times in microseconds since
    /// 1970; a moment that lies behind `now_us` counts as now, and one before 2020 as the beginning of that year.
    pub fn next(&mut self, at_us: u64, now_us: u64) -> QueueId {
        let mut us = at_us.min(now_us).clamp(QueueId::MIN.unix_us(), QueueId::MAX.unix_us());
        loop {
            let second = us / SECOND;
            let next = self.next.entry(second).or_insert(us);
            us = us.max(*next);
            if us / SECOND == second {
                *next = us + 1;
                return QueueId::new(us, self.node).unwrap_or(QueueId::MAX);
            }
            // A million in one second: the next has room.
            us = (second + 1) * SECOND;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_id_is_given_once_and_says_since_when() {
        let mut ids = PastIds::of_epoch(Node::default(), 3);
        let base = 1_790_000_000 * SECOND;
        let mut seen = HashSet::new();
        for at in [base, base, base + 999_999, base, base + SECOND, base + 5, base - SECOND] {
            let id = ids.next(at, u64::MAX);
            assert!(seen.insert(id), "{id:?}");
            assert!(id.unix_us().abs_diff(at) <= SECOND && id.unix_us() >= at, "{id:?} for {at}");
            assert_eq!(id.node().get(), PastIds::NODE_FIRST + 3);
        }
        // Ids at the end of a second push others into the next.
        assert_eq!(ids.next(base + 999_999, u64::MAX).unix_us(), base + SECOND + 3);
    }

    #[test]
    fn nodes_of_a_cluster_give_no_id_twice() {
        let past = |node, epoch| PastIds::of_epoch(Node::new(node).unwrap(), epoch).node.get();
        let nodes: HashSet<u16> = (1..=63).flat_map(|node| (0..32).map(move |epoch| past(node, epoch))).collect();
        assert_eq!(nodes.len(), 63 * 32);
        assert!(nodes.iter().all(|node| *node >= PastIds::NODE_FIRST));
        assert_eq!(past(5, 1), past(5, 33));
        let is_of = |number, node| Node::new(number).unwrap().is_of(Node::new(node).unwrap());
        for node in 1..=63 {
            let of_node: Vec<u16> = (0..=Node::MAX.get()).filter(|number| is_of(*number, node)).collect();
            let own = (0..32).map(|epoch| past(node, epoch));
            let beside = (0..16).map(|number| 1_024 + node * 16 + number);
            assert_eq!(of_node, [node].into_iter().chain(beside).chain(own).collect::<Vec<_>>(), "{node}");
        }
    }

    #[test]
    fn nothing_is_in_the_future_or_before_2020() {
        let mut ids = PastIds::of_epoch(Node::default(), 0);
        let now = 1_790_000_000 * SECOND;
        assert_eq!(ids.next(u64::MAX, now).unix_us(), now);
        assert_eq!(ids.next(0, now).unix_us(), QueueId::MIN.unix_us());
    }

    #[test]
    fn two_openings_share_no_id() {
        let of = |epoch| PastIds::of_epoch(Node::default(), epoch).next(1_790_000_000 * SECOND, u64::MAX);
        assert_ne!(of(1), of(2));
        assert!((0..5_000).all(|epoch| of(epoch).node() >= Node::new(PastIds::NODE_FIRST).unwrap()));
    }
}
