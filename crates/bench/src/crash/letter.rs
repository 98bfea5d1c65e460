//! Messages that can be recognised: everything about one follows from its queue id.
//!
//! So the checker knows without any record what a message must look like, down to the last byte, and a body that
//! belongs to another message, or half to it, is found out. Queue ids carry the cycle of the rig that made them, so
//! that a message of an earlier cycle which was already gone is told from one that never was.

use crate::crash::random::{Random, mix};
use mail::{Node, QueueId};

/// Microseconds of a queue id left to one cycle: so many messages can one writer thread make.
const CYCLE_BITS: u32 = 26;
/// Bytes of the header section of content in chunks.
pub(crate) const HEADER_BYTES: usize = 5_000;
/// The size of a chunk of a large body.
pub(crate) const CHUNK_BYTES: usize = 48 << 10;

/// A message and its planned results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedMessage {
    /// Its queue id.
    pub(crate) id: QueueId,
    /// Bytes of its body.
    pub(crate) bytes: usize,
    /// Its recipients, 1 to 5.
    pub(crate) recipients: u32,
    /// The recipient, if any, that stays in the queue long after the others.
    pub(crate) straggler: Option<u32>,
}

/// The queue id of message `number` of writer thread `thread` in cycle `cycle`.
pub(crate) fn queue_id(cycle: u64, thread: u16, number: u64) -> QueueId {
    let first = QueueId::MIN.unix_us();
    let node = Node::new(thread).unwrap_or_default();
    QueueId::new(first + (cycle << CYCLE_BITS) + number, node).unwrap_or(QueueId::MAX)
}

/// The cycle that made a queue id.
pub(crate) fn cycle_of(id: QueueId) -> u64 {
    (id.unix_us() - QueueId::MIN.unix_us()) >> CYCLE_BITS
}

impl PlannedMessage {
    /// The message of that id: mostly small, some of 50 KB, a few large enough to arrive in pieces.
    pub(crate) fn of(id: QueueId) -> Self {
        let mut random = Random::new(mix(id.to_u64()));
        let bytes = match random.below(100) {
            0..=1 => random.between(260 << 10, 420 << 10),
            2..=11 => random.between(40_000, 60_000),
            12..=14 => 0,
            _ => random.between(1, 6_000),
        };
        let recipients = u32::try_from(random.between(1, 5)).unwrap_or(1);
        let straggler = random.percent(6).then(|| u32::try_from(random.below(u64::from(recipients))).unwrap_or(0));
        Self { id, bytes: usize::try_from(bytes).unwrap_or(0), recipients, straggler }
    }

    /// Returns the octets of its envelope about the whole message.
    pub(crate) fn head(&self) -> Vec<u8> {
        stream(self.id.to_u64() ^ 1, 20 + usize::try_from(self.id.to_u64() % 60).unwrap_or(0))
    }

    /// Returns the octets of its envelope about a recipient.
    pub(crate) fn recipient(&self, position: u32) -> Vec<u8> {
        let seed = self.id.to_u64() ^ (u64::from(position) + 2);
        format!("recipient-{position}-{:016x}@{}", mix(seed), name_of(seed)).into_bytes()
    }

    /// Where a recipient goes after so many attempts; some are sent elsewhere when tried again.
    pub(crate) fn destination(&self, position: u32, attempts: u8) -> Vec<u8> {
        let moved = u64::from(attempts / 2);
        name_of(self.id.to_u64() ^ (u64::from(position) + 2) ^ (moved << 32)).into_bytes()
    }

    /// Its body.
    pub(crate) fn body(&self) -> Vec<u8> {
        stream(self.id.to_u64(), self.bytes)
    }
}

fn name_of(seed: u64) -> String {
    format!("d{}.example", mix(seed) % 97)
}

fn stream(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut data = Vec::with_capacity(bytes + 8);
    while data.len() < bytes {
        data.extend_from_slice(&random.next().to_le_bytes());
    }
    data.truncate(bytes);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_carry_their_cycle_and_are_distinct() {
        let ids = [queue_id(0, 0, 0), queue_id(0, 1, 0), queue_id(0, 0, 1), queue_id(1, 0, 0), queue_id(900_000, 3, 9)];
        assert_eq!(ids.map(cycle_of), [0, 0, 0, 1, 900_000]);
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id));
        }
    }

    #[test]
    fn every_kind_of_message_comes_up() {
        let letters: Vec<_> = (0..1000).map(|number| PlannedMessage::of(queue_id(3, 1, number))).collect();
        assert!(letters.iter().any(|letter| letter.bytes > 256 << 10));
        assert!(letters.iter().any(|letter| letter.bytes == 0));
        assert!(letters.iter().any(|letter| letter.straggler.is_some()));
        assert!(letters.iter().all(|letter| (1..=5).contains(&letter.recipients)));
        assert_ne!(letters[0].body(), letters[1].body());
    }
}
