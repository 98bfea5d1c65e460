//! The scrubber: reads one sealed segment after the other while the spool is idle, to find rot before the mail is
//! needed.

use crate::buffer::AlignedBuf;
use crate::event::Event;
use crate::scan::scan;
use crate::segments::Phase;
use crate::shard::{Shard, lock};
use std::sync::Arc;

/// Where the scrubber is.
#[derive(Debug, Default)]
pub(crate) struct Scrubber {
    next: u16,
}

impl Scrubber {
    /// Reads the next segment with living frames; damaged frames are reported, and the others are moved out of the
    /// segment.
    pub(crate) fn step(&mut self, shard: &Shard) {
        if shard.config.scrub_interval_ms == 0 {
            return;
        }
        let Some((slot, generation, data_end, file)) = self.choose(shard) else { return };
        self.next = slot + 1;
        let mut buffer = AlignedBuf::new(shard.identity.segment_bytes as usize);
        if let Err(error) = file.read_at(buffer.as_mut_slice(), 0) {
            let what = format!("scrubbing: cannot be read: {error}");
            shard.tell(Event::Damage { segment: slot, offset: 0, id: None, what });
            return;
        }
        let found = scan(buffer.as_slice(), shard.seed(generation), generation, data_end);
        let mut book = lock(&shard.book);
        let segment = book.segments.get_mut(slot);
        if segment.generation != generation || segment.phase != Phase::Sealed || found.rot.is_empty() {
            return;
        }
        segment.phase = Phase::Failed;
        drop(book);
        for rot in found.rot {
            let id = rot.id.and_then(mail::QueueId::from_u64);
            shard.tell(Event::Damage { segment: slot, offset: rot.offset, id, what: rot.what.to_owned() });
        }
        shard.ring();
    }

    fn choose(&self, shard: &Shard) -> Option<(u16, u64, u32, Arc<dyn crate::disk::DiskFile>)> {
        let book = lock(&shard.book);
        let worth = book.segments.iter().filter(|(_, segment)| segment.phase == Phase::Sealed && segment.live > 0);
        let (mut first, mut next) = (None, None);
        for (slot, segment) in worth {
            let chosen = || Some((slot, segment.generation, segment.data_end, Arc::clone(&segment.file)));
            if first.is_none() {
                first = chosen();
            }
            if next.is_none() && slot >= self.next {
                next = chosen();
            }
        }
        next.or(first)
    }
}
