//! The lane of bodies of one stream: where the bodies of live messages are, and which of them keep dead ones alive.
//!
//! A lane is trimmed up to its first live body. Bodies of messages that stay for days would keep everything behind
//! them, so they are written again at the end once most of the lane is dead.

use crate::record::PieceList;
use mail::QueueId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct Body {
    first: u64,
    number: u64,
    octets: u64,
    /// A stored record refers to it.
    is_stored: bool,
}

/// The bodies of one stream.
#[derive(Debug, Default)]
pub(super) struct BodyIndex {
    /// By first sequence and number, which is unique.
    places: BTreeMap<(u64, u64), QueueId>,
    /// Each message has one, and a second one while its record is written again.
    of: BTreeMap<QueueId, Vec<Body>>,
    /// Octets of the blocks that this start has stored, from the first live one on.
    blocks: BTreeMap<u64, usize>,
    /// Their sum.
    blocks_octets: usize,
    /// Octets of all bodies in `of`.
    live_octets: u64,
    /// The sequence of the own fence; the sizes of blocks before it are not known.
    fence: u64,
    /// A compaction moves the bodies that begin up to here.
    compact_upto: u64,
}

impl BodyIndex {
    /// Notes the own fence of the lane.
    pub(super) const fn opened(&mut self, sequence: u64) {
        self.fence = sequence;
    }

    /// The sequence of the own fence; 0 before it is stored.
    pub(super) const fn opened_at(&self) -> u64 {
        self.fence
    }

    /// Notes a block with pieces.
    pub(super) fn block_stored(&mut self, sequence: u64, octets: usize) {
        let before = self.blocks.insert(sequence, octets).unwrap_or_default();
        self.blocks_octets = self.blocks_octets - before + octets;
    }

    /// Enters a body whose pieces are all stored; the record that refers to it may still be on its way.
    pub(super) fn insert(&mut self, id: QueueId, list: &PieceList) {
        let body = Body { first: list.sequences.0, number: list.body, octets: list.octets, is_stored: false };
        self.places.insert((body.first, body.number), id);
        self.of.entry(id).or_default().push(body);
        self.live_octets += body.octets;
    }

    /// The record of a message is stored; it refers to this body, and earlier ones are dead. The record of a later one
    /// may be on its way.
    pub(super) fn record_stored(&mut self, id: QueueId, number: Option<u64>) {
        self.keep(id, |body| number.is_some_and(|number| body.number >= number));
        for body in self.of.get_mut(&id).into_iter().flatten() {
            body.is_stored |= Some(body.number) == number;
        }
    }

    /// The record of this body was in no append and is given up. One that is stored or on its way stays with its body.
    pub(super) fn record_given_up(&mut self, id: QueueId, number: u64) {
        self.keep(id, |body| body.is_stored || body.number != number);
    }

    /// The message is gone.
    pub(super) fn remove(&mut self, id: QueueId) {
        self.keep(id, |_| false);
    }

    fn keep(&mut self, id: QueueId, keeps: impl Fn(&Body) -> bool) {
        let Some(bodies) = self.of.get_mut(&id) else { return };
        for body in bodies.iter().filter(|body| !keeps(body)) {
            self.places.remove(&(body.first, body.number));
            self.live_octets = self.live_octets.saturating_sub(body.octets);
        }
        bodies.retain(keeps);
        if bodies.is_empty() {
            self.of.remove(&id);
        }
    }

    /// The first sequence with a piece of a live body.
    pub(super) fn first(&self) -> Option<u64> {
        self.places.keys().next().map(|(first, _)| *first)
    }

    /// Returns the sequence up to which live bodies must be written again at the end, so that a lane most of which is
    /// dead can be trimmed; `None` while enough of it lives. `last` is the last sequence of the lane.
    pub(super) fn compacts_upto(&mut self, last: u64, octets_min: usize, piece_octets: usize) -> Option<u64> {
        let first = self.first();
        while let Some(block) = self.blocks.first_entry() {
            if first.is_some_and(|first| *block.key() >= first) {
                break;
            }
            self.blocks_octets -= block.remove();
        }
        let first = first?;
        if first > self.compact_upto {
            // Blocks of earlier starts count as half full. Their bodies are moved behind the fence once.
            let unknown = usize::try_from(self.fence.saturating_sub(first)).unwrap_or(usize::MAX);
            let octets = self.blocks_octets.saturating_add(unknown.saturating_mul(piece_octets / 2));
            if octets <= octets_min || self.live_octets.saturating_mul(2) >= octets as u64 {
                return None;
            }
            self.compact_upto = last;
        }
        Some(self.compact_upto)
    }

    /// The messages whose bodies begin up to this sequence, in the order of their bodies.
    pub(super) fn messages_upto(&self, sequence: u64) -> impl Iterator<Item = QueueId> {
        self.places.range(..=(sequence, u64::MAX)).map(|(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> QueueId {
        QueueId::new(1_767_225_600_000_000 + number, mail::Node::new(1).unwrap()).unwrap()
    }

    fn chosen(bodies: &mut BodyIndex, last: u64, octets_min: usize) -> Vec<QueueId> {
        let upto = bodies.compacts_upto(last, octets_min, 900);
        let live: u64 = bodies.of.values().flatten().map(|body| body.octets).sum();
        let sums = (bodies.blocks.values().sum::<usize>(), live);
        assert_eq!((bodies.blocks_octets, bodies.live_octets), sums, "the sums are kept");
        upto.map(|upto| bodies.messages_upto(upto).collect()).unwrap_or_default()
    }

    fn list(body: u64, first: u64) -> PieceList {
        PieceList { body, pieces: 1, octets: 900, crc: 0, sequences: (first, first) }
    }

    #[test]
    fn bodies_that_begin_in_one_block_are_counted_apart() {
        let mut bodies = BodyIndex::default();
        bodies.insert(id(1), &list(1, 5));
        bodies.insert(id(2), &list(2, 5));
        bodies.record_stored(id(1), Some(1));
        bodies.remove(id(2));
        assert_eq!(bodies.first(), Some(5), "the other message needs the block");
        bodies.remove(id(1));
        assert_eq!(bodies.first(), None);
    }

    #[test]
    fn the_stored_body_stays_until_the_next_record_is_stored() {
        let mut bodies = BodyIndex::default();
        bodies.insert(id(1), &list(1, 5));
        bodies.record_stored(id(1), Some(1));
        bodies.insert(id(1), &list(9, 40));
        bodies.record_given_up(id(1), 9);
        assert_eq!(bodies.first(), Some(5));
        bodies.insert(id(1), &list(10, 41));
        bodies.record_stored(id(1), Some(10));
        assert_eq!(bodies.first(), Some(41));
    }

    /// An append without an answer has a record, and the message was written again behind it.
    #[test]
    fn a_body_stays_while_its_record_is_on_its_way_beside_another_one() {
        for is_given_up in [false, true] {
            let mut bodies = BodyIndex::default();
            bodies.insert(id(1), &list(1, 5));
            bodies.insert(id(1), &list(2, 9));
            if is_given_up {
                bodies.record_given_up(id(1), 2);
            }
            bodies.record_stored(id(1), Some(1));
            assert_eq!(bodies.first(), Some(5));
            if !is_given_up {
                bodies.record_stored(id(1), Some(2));
                assert_eq!(bodies.first(), Some(9), "the later record refers to it");
            }
        }
    }

    #[test]
    fn a_lane_of_which_most_is_dead_is_compacted() {
        let mut bodies = BodyIndex::default();
        bodies.opened(1);
        for sequence in 2..=20 {
            bodies.block_stored(sequence, 1_000);
        }
        bodies.insert(id(1), &list(1, 2));
        assert_eq!(chosen(&mut bodies, 20, 50_000), [], "a short lane is left alone");
        assert_eq!(chosen(&mut bodies, 20, 5_000), [id(1)]);
        bodies.insert(id(1), &list(2, 21));
        bodies.block_stored(21, 1_000);
        bodies.record_stored(id(1), Some(2));
        assert_eq!(chosen(&mut bodies, 21, 5_000), []);
    }

    #[test]
    fn bodies_of_earlier_starts_are_moved_once() {
        let mut bodies = BodyIndex::default();
        bodies.opened(100);
        bodies.insert(id(1), &list(1, 7));
        assert_eq!(chosen(&mut bodies, 100, 5_000), [id(1)]);
        bodies.insert(id(1), &list(2, 101));
        bodies.block_stored(101, 1_000);
        bodies.record_stored(id(1), Some(2));
        assert_eq!(chosen(&mut bodies, 101, 5_000), []);
    }
}
