//! The cold segments: one after the other takes moved messages, and state entries that are written again.

use crate::disk::BLOCK;
use crate::log::{OpenSegment, seal};
use crate::segments::Phase;
use crate::shard::{Shard, lock};
use std::sync::Arc;

/// How long growth, or moving, rests after the storage refused it, in microseconds.
pub(crate) const REST_US: u64 = 10_000_000;

/// Opens and closes the cold segments of a shard; one is open at most.
#[derive(Debug)]
pub(crate) struct ColdSegments {
    pub(crate) shard: Arc<Shard>,
    pub(crate) open: Option<OpenSegment>,
    /// The last cold segment, and how far it is durable.
    pub(crate) previous: (u64, u32),
    /// After cold storage failed, no cold segment is opened before this moment of the disk's clock.
    pub(crate) after_us: u64,
}

impl ColdSegments {
    pub(crate) fn new(shard: Arc<Shard>, previous: (u64, u32)) -> Self {
        Self { shard, open: None, previous, after_us: 0 }
    }

    /// Whether a segment can be opened. The last free one is the committer's: without the states and LIVEMAPs that it
    /// writes no segment becomes free again.
    pub(crate) fn may_open(&self) -> bool {
        self.may_open_of(lock(&self.shard.book).segments.free_count())
    }

    fn may_open_of(&self, free: usize) -> bool {
        free > 1 && self.shard.disk.now_us() >= self.after_us
    }

    /// Whether so many bytes of state entries, footer included, find room in the open segment, or in it and fresh ones.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let open = self.open.as_ref().map_or(0, |open| open.room(&self.shard));
        let free = lock(&self.shard.book).segments.free_count();
        let fresh = if self.may_open_of(free) { free - 1 } else { 0 };
        // Half of a fresh segment counts: header, trailer and the end that no frame fits into take some of it.
        open + fresh * (self.shard.identity.segment_bytes as usize / 2) >= bytes
    }

    /// Takes a free segment for moved messages.
    pub(crate) fn open_next(&mut self) -> bool {
        let reuse = self.shard.config.sabotage().reuse_generation;
        let slot = {
            let mut book = lock(&self.shard.book);
            if !self.may_open_of(book.segments.free_count()) {
                return false;
            }
            let slot = book.segments.open(true, reuse);
            self.shard.note_free(&book);
            slot
        };
        self.open = slot.map(|slot| OpenSegment::new(&self.shard, slot, true, self.previous));
        self.open.is_some()
    }

    /// The cold segment has taken its last batch.
    pub(crate) fn close(&mut self) {
        let Some(cold) = self.open.take() else { return };
        self.previous = cold.durable();
        lock(&self.shard.book).segments.close(cold.slot, Phase::Closed);
        let closed = cold.close();
        if closed.data_end as usize > BLOCK {
            seal(&self.shard, &closed);
        } else {
            lock(&self.shard.book).segments.get_mut(closed.slot).phase = Phase::Sealed;
        }
    }
}
