//! Envelopes of many messages, one after the other, as a look through the whole queue wants them.
//!
//! Messages that came one after the other lie one behind the other in a segment. Where a reader goes on in a segment it
//! reads the next [`WINDOW_BYTES`] at once, so that a long queue costs a read of the disk for many messages. Each frame
//! is checked as always, by the generation that its segment has now; one that the window does not hold whole and sound
//! is read by itself.

use crate::Error;
use crate::buffer::AlignedBuf;
use crate::disk::BLOCK;
use crate::format::{FrameHeader, Seed};
use crate::index::Place;
use crate::shard::{ReadMessage, Shard, lock};
use crate::spool::Spool;
use crate::store::StoredEnvelope;
use mail::QueueId;
use std::fmt;
use std::sync::Arc;

/// Octets that are read at once.
const WINDOW_BYTES: usize = 256 << 10;
/// How far behind the last message the next one may lie for the reader to read ahead.
const NEAR_BYTES: u32 = 64 << 10;

/// Part of a segment.
struct Window {
    shard: u16,
    segment: u16,
    generation: u64,
    /// The offset in the segment of its first octet.
    start: usize,
    bytes: AlignedBuf,
}

/// Reads envelopes of one spool in the order of their ids. Takes [`WINDOW_BYTES`] of memory.
#[derive(Default)]
pub struct EnvelopeReader {
    window: Option<Window>,
    /// Shard, segment, generation and offset of the message that was read last.
    last: Option<(u16, u16, u64, u32)>,
}

impl fmt::Debug for EnvelopeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvelopeReader").field("last", &self.last).finish_non_exhaustive()
    }
}

impl EnvelopeReader {
    /// Reads the envelope with the present states, always of the same spool. Blocks.
    ///
    /// # Errors
    /// As [`Store::envelope`](crate::Store::envelope).
    pub fn envelope(&mut self, spool: &Spool, id: QueueId) -> Result<StoredEnvelope, Error> {
        let shard = spool.holder(id)?;
        if let Some(message) = self.message(shard, id) {
            return shard.at_present(id, &message.envelope, message.body_bytes);
        }
        shard.envelope(id)
    }

    /// Reads a message from the window, or from the one that follows; `None`: it is to be read by itself.
    fn message(&mut self, shard: &Shard, id: QueueId) -> Option<ReadMessage> {
        let (place, generation, file) = {
            let book = lock(&shard.book);
            let place = book.index.place(id.to_u64())?;
            let segment = book.segments.get(place.segment);
            (place, segment.generation, Arc::clone(&segment.file))
        };
        let number = shard.number;
        let last = self.last.replace((number, place.segment, generation, place.offset));
        let held = self.window.as_ref().filter(|window| window.holds(number, place, generation));
        if held.is_none() {
            let follows = last.is_some_and(|(shard, segment, of, offset)| {
                (shard, segment, of) == (number, place.segment, generation)
                    && place.offset.checked_sub(offset).is_some_and(|distance| distance <= NEAR_BYTES)
            });
            if !follows {
                return None;
            }
            let start = place.offset as usize / BLOCK * BLOCK;
            let length = WINDOW_BYTES.min((shard.identity.segment_bytes as usize).checked_sub(start)?);
            let mut bytes = AlignedBuf::new(length);
            file.read_at(bytes.as_mut_slice(), start as u64).ok()?;
            self.window = Some(Window { shard: number, segment: place.segment, generation, start, bytes });
        }
        let window = self.window.as_ref()?;
        let bytes = window.bytes.as_slice().get(place.offset as usize - window.start..)?;
        envelope_in(bytes, shard.seed(generation), place).filter(|message| message.id == id.to_u64())
    }
}

impl Window {
    /// Returns whether a frame begins in this part, as its segment is now.
    fn holds(&self, shard: u16, place: Place, generation: u64) -> bool {
        let is_here = (self.shard, self.segment, self.generation) == (shard, place.segment, generation);
        is_here && (self.start..self.start + self.bytes.as_slice().len()).contains(&(place.offset as usize))
    }
}

/// Reads the envelope of a frame that begins here. `None`: it is not whole, not sound, or its content lies elsewhere.
fn envelope_in(bytes: &[u8], seed: Seed, place: Place) -> Option<ReadMessage> {
    let header = FrameHeader::decode(seed, bytes)?;
    if !header.is_message() || header.has_chunk_list() || header.frame_bytes() != place.size as usize {
        return None;
    }
    let first = bytes.get(FrameHeader::SIZE..FrameHeader::SIZE + header.lengths.0 as usize)?;
    ReadMessage::of_envelope(&header, first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::{Config, NewBody, NewMessage, NewRecipient, Store as _};

    fn id(number: u64) -> QueueId {
        QueueId::new(1_790_000_000_000_000 + number, mail::Node::default()).expect("an id")
    }

    /// Appends messages whose envelope and body differ in length.
    fn append(spool: &Spool, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let data = vec![b'r'; 10 + usize::try_from(number % 300).expect("small")];
            let recipients = [NewRecipient { data: &data, destination: b"d.test" }];
            let body = NewBody::whole("x".repeat(usize::try_from(number * 37 % 5_000).expect("small")), 0);
            spool
                .append(NewMessage::new(id(number), b"head", &recipients, body))
                .expect("room")
                .wait()
                .expect("durable");
        }
    }

    #[test]
    fn all_ways_to_read_an_envelope_agree() {
        let mut config = Config::new("spool");
        (config.segment_bytes, config.cache_bytes) = (1 << 20, 0);
        let (spool, _) = Spool::open(config, Arc::new(SimDisk::new(1))).expect("open");
        append(&spool, 0..900);
        let mut reader = EnvelopeReader::default();
        for number in (0..900).chain([5, 3, 899, 4]).chain((0..900).step_by(7)) {
            let (ahead, alone) =
                (reader.envelope(&spool, id(number)).expect("read"), spool.envelope(id(number)).expect("read"));
            assert_eq!(format!("{ahead:?}"), format!("{alone:?}"), "{number}");
        }
        // A window that was read before a message was written does not hide it.
        append(&spool, 900..1_000);
        for number in 890..1_000 {
            assert_eq!(reader.envelope(&spool, id(number)).expect("read").recipients.len(), 1, "{number}");
        }
        assert!(reader.window.is_some(), "it reads ahead");
        assert!(matches!(reader.envelope(&spool, id(5_000)), Err(Error::Unknown(_))));
    }
}
