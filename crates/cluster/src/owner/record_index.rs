//! The lane of messages of one stream: which block has the record of each live message.
//!
//! Invariant: `octets` is the sum over all blocks. The owner asks for it whenever it looks for work, so it must not
//! depend on the length of the stream.

use mail::QueueId;
use std::collections::BTreeMap;

/// A stored block of the lane of messages.
#[derive(Clone, Debug, Default)]
struct IndexedBlock {
    octets: usize,
    /// Messages that live and whose record is here, with its octets.
    ids: Vec<(QueueId, usize)>,
}

/// The stored blocks of one lane, from the first that must be there on.
#[derive(Debug, Default)]
pub(super) struct RecordIndex {
    blocks: BTreeMap<u64, IndexedBlock>,
    octets: usize,
}

impl RecordIndex {
    /// Enters a stored block with its octets; 0 for a block that counts for nothing, as a fence.
    pub(super) fn block_stored(&mut self, sequence: u64, octets: usize) {
        let block = self.blocks.entry(sequence).or_default();
        self.octets = self.octets - block.octets + octets;
        block.octets = octets;
    }

    /// Enters a message whose record of so many octets is in a block.
    pub(super) fn insert(&mut self, sequence: u64, id: QueueId, octets: usize) {
        self.blocks.entry(sequence).or_default().ids.push((id, octets));
    }

    /// Removes a message from a block; returns the octets of its record.
    pub(super) fn remove(&mut self, sequence: u64, id: QueueId) -> Option<usize> {
        let block = self.blocks.get_mut(&sequence)?;
        let place = block.ids.iter().position(|(one, _)| *one == id)?;
        Some(block.ids.swap_remove(place).1)
    }

    /// Removes blocks without live messages from the front, up to this one, which stays.
    pub(super) fn drop_dead_front(&mut self, last: u64) {
        while let Some(first) = self.blocks.first_entry() {
            if !first.get().ids.is_empty() || *first.key() >= last {
                break;
            }
            self.octets -= first.remove().octets;
        }
    }

    /// The first block.
    pub(super) fn first(&self) -> Option<u64> {
        self.blocks.keys().next().copied()
    }

    /// Octets of all blocks.
    pub(super) const fn octets(&self) -> usize {
        self.octets
    }

    /// Blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The live messages of the blocks up to this one, in their order.
    pub(super) fn messages_upto(&self, sequence: u64) -> impl Iterator<Item = QueueId> {
        self.blocks.range(..=sequence).flat_map(|(_, block)| &block.ids).map(|(id, _)| *id)
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.octets = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> QueueId {
        QueueId::new(1_767_225_600_000_000 + number, mail::Node::new(1).unwrap()).unwrap()
    }

    #[test]
    fn octets_are_the_sum_of_the_blocks_after_any_steps() {
        let mut index = RecordIndex::default();
        let sum = |index: &RecordIndex| index.blocks.values().map(|block| block.octets).sum::<usize>();
        for step in 0..200_u64 {
            let sequence = step * 7 % 50;
            match step % 5 {
                0 | 1 => index.block_stored(sequence, 100 + usize::try_from(step).unwrap()),
                2 => index.insert(sequence, id(sequence), 10),
                3 => drop(index.remove(sequence, id(sequence))),
                _ => index.drop_dead_front(sequence / 2),
            }
            assert_eq!(index.octets(), sum(&index), "after step {step}");
        }
        index.clear();
        assert_eq!((index.octets(), index.len()), (0, 0));
    }

    #[test]
    fn the_front_is_dropped_up_to_the_first_live_message() {
        let mut index = RecordIndex::default();
        (1..=4).for_each(|sequence| index.block_stored(sequence, 100));
        index.insert(3, id(3), 60);
        index.drop_dead_front(4);
        assert_eq!((index.first(), index.octets()), (Some(3), 200));
        assert_eq!(index.messages_upto(3).collect::<Vec<_>>(), [id(3)]);
        assert_eq!((index.remove(3, id(9)), index.remove(3, id(3))), (None, Some(60)));
        index.drop_dead_front(4);
        assert_eq!((index.first(), index.octets()), (Some(4), 100), "the last block stays");
    }
}
