//! Writing a segment from its first batch to its footer. The committer has one open (hot), relocation another (cold).
//!
//! A batch is laid out, written and synced by one owner; its published frames go into the footer that grows beside.

use crate::batch::{Batch, Content, Item};
use crate::buffer::{AlignedBuf, round_up};
use crate::chunk_list::{ChunkList, ChunkPlace};
use crate::disk::{BLOCK, DiskFile};
use crate::event::Event;
use crate::footer::{Closed, Footer, FooterBuilder};
use crate::format::{Found, Frame, FrameHeader, Kind, Seed, SegmentHeader, Trailer};
use crate::sections::Envelope;
use crate::segments::Phase;
use crate::shard::{Shard, count, lock};
use std::io;
use std::sync::Arc;

/// A segment that takes batches.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) slot: u16,
    pub(crate) generation: u64,
    cold: bool,
    file: Arc<dyn DiskFile>,
    seed: Seed,
    /// Where the next batch goes.
    pub(crate) offset: usize,
    batches: u64,
    /// Ordinal of the next kept frame.
    ordinal: u32,
    footer: FooterBuilder,
    livemap: u32,
    /// The first block, until it has been written.
    header: Option<AlignedBuf>,
    /// The generation and end that the next batch can name as durable.
    durable: (u64, u32),
}

impl OpenSegment {
    /// Begins with a segment that the table has just opened; `previous` is the last of its kind and how far it is
    /// durable.
    pub(crate) fn new(shard: &Shard, slot: u16, cold: bool, previous: (u64, u32)) -> Self {
        let (generation, file) = {
            let book = lock(&shard.book);
            let segment = book.segments.get(slot);
            (segment.generation, Arc::clone(&segment.file))
        };
        let mut header = AlignedBuf::new(BLOCK);
        SegmentHeader {
            uuid: shard.identity.uuid,
            generation,
            previous,
            number: slot.into(),
            bytes: shard.identity.segment_bytes,
            shard: shard.number,
            cold,
        }
        .encode(header.as_mut_slice());
        Self {
            slot,
            generation,
            cold,
            file,
            seed: shard.seed(generation),
            offset: BLOCK,
            batches: 0,
            ordinal: 0,
            footer: FooterBuilder::default(),
            livemap: 0,
            header: Some(header),
            durable: previous,
        }
    }

    /// Whether batches of so many bytes, and their share of the footer, still fit.
    pub(crate) fn fits(&self, shard: &Shard, bytes: usize, footer_bytes: usize) -> bool {
        let footer = round_up(self.footer.frame_bytes() + footer_bytes);
        self.offset + bytes + footer + BLOCK <= shard.identity.segment_bytes as usize
    }

    /// Bytes left for batches.
    pub(crate) fn room(&self, shard: &Shard) -> usize {
        let taken = self.offset + round_up(self.footer.frame_bytes()) + BLOCK;
        (shard.identity.segment_bytes as usize).saturating_sub(taken)
    }

    /// Ordinal of the next kept frame.
    pub(crate) fn next_ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Where a kept frame of a batch that starts at `base` will lie, if it is a chunk with this header and ordinal.
    pub(crate) fn chunk_place(&self, base: usize, offset: usize, header: &FrameHeader, ordinal: u32) -> ChunkPlace {
        ChunkPlace {
            generation: self.generation,
            offset: u32::try_from(base + offset).unwrap_or(u32::MAX),
            ordinal,
            bytes: header.lengths.1,
            crc: header.crcs.1,
        }
    }

    /// Seals the frames of `batches`, which will be written one after the other by one [`OpenSegment::write`].
    pub(crate) fn seal(&mut self, batches: &mut [&mut Batch]) {
        for batch in batches {
            self.batches += 1;
            self.ordinal = batch.seal(self.seed, self.ordinal, self.batches, self.durable);
        }
    }

    /// Writes sealed batches and makes them durable.
    ///
    /// # Errors
    /// The segment may not be written again.
    pub(crate) fn write(&mut self, shard: &Shard, batches: &[&Batch]) -> io::Result<()> {
        let mut pieces = Vec::new();
        let mut start = self.offset;
        if let Some(header) = &self.header {
            start -= BLOCK;
            pieces.push(header.as_slice());
        }
        for batch in batches {
            batch.pieces(&mut pieces);
        }
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.file.write_at(&pieces, start as u64)?;
        self.file.sync_data()?;
        count(&shard.counters.batches, 1);
        count(&shard.counters.syncs, 1);
        count(&shard.counters.bytes_written, bytes as u64);
        self.header = None;
        self.offset = start + bytes;
        self.durable = (self.generation, u32::try_from(self.offset).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Returns the durable part of this segment.
    pub(crate) fn durable(&self) -> (u64, u32) {
        self.durable
    }

    /// Adds a published frame to the footer; `base` is where its batch starts.
    pub(crate) fn publish(&mut self, base: usize, item: &Item) {
        let offset = u32::try_from(base + item.offset).unwrap_or(u32::MAX);
        match &item.content {
            Content::Message { envelope, .. } => {
                self.footer.add(&item.header, offset, Envelope::parse(envelope).as_ref(), None);
            }
            Content::Reference { envelope, list, .. } | Content::Moved { envelope, list } => {
                let list = list.as_ref().map(ChunkList::write);
                self.footer.add(&item.header, offset, Envelope::parse(envelope).as_ref(), list.as_deref());
            }
            Content::Chunk { .. } => self.footer.add(&item.header, offset, None, None),
            Content::States(entries) => entries.iter().for_each(|entry| self.footer.add_state(entry)),
            Content::Done(ids) => ids.iter().for_each(|id| self.footer.add_done(&id.to_le_bytes())),
            Content::Other if item.header.kind == Kind::Livemap => {
                self.livemap = u32::try_from(base).unwrap_or(u32::MAX);
            }
            Content::Other => {}
        }
    }

    /// Offset of the last batch with a LIVEMAP, 0 if none.
    pub(crate) fn livemap(&self) -> u32 {
        self.livemap
    }

    /// Ends the segment: nothing more is written to it but its footer.
    pub(crate) fn close(self) -> Closed {
        Closed {
            slot: self.slot,
            generation: self.generation,
            cold: self.cold,
            footer: self.footer,
            data_end: u32::try_from(self.offset).unwrap_or(u32::MAX),
            livemap: self.livemap,
        }
    }
}

/// Writes a segment's footer and makes it durable; recovery needs the batches no longer.
///
/// # Errors
/// The segment has no footer and is read batch by batch.
fn write_footer(shard: &Shard, closed: &Closed) -> io::Result<()> {
    let file = Arc::clone(&lock(&shard.book).segments.get(closed.slot).file);
    let seed = shard.seed(closed.generation);
    let section = closed.footer.encode();
    let Some(header) = FrameHeader::over(Kind::Seal, 0, 0, &[], &section) else {
        return Err(io::Error::other("footer larger than a frame can be"));
    };
    let size = header.frame_bytes();
    let mut frame = AlignedBuf::new(round_up(size));
    header.encode(seed, frame.as_mut_slice());
    if let Some(to) = frame.as_mut_slice().get_mut(FrameHeader::SIZE..FrameHeader::SIZE + section.len()) {
        to.copy_from_slice(&section);
    }
    let last_block = shard.identity.segment_bytes as usize - BLOCK;
    if closed.data_end as usize + frame.capacity() > last_block {
        return Err(io::Error::other("no room for the footer"));
    }
    let mut trailer = AlignedBuf::new(BLOCK);
    let footer = (closed.data_end, u32::try_from(size).unwrap_or(u32::MAX));
    Trailer {
        uuid: shard.identity.uuid,
        generation: closed.generation,
        data_end: closed.data_end,
        footer,
        number: closed.slot.into(),
        livemap: closed.livemap,
        shard: shard.number,
        cold: closed.cold,
        foreign: lock(&shard.book).segments.get(closed.slot).foreign,
    }
    .encode(trailer.as_mut_slice());
    file.write_at(&[frame.as_slice()], closed.data_end.into())?;
    file.write_at(&[trailer.as_slice()], last_block as u64)?;
    // A flush in sixty-four megabytes, and needed: were the footer lost, a reuse of the segment that a crash cuts off
    // would look like rot in its batches.
    file.sync_data()?;
    count(&shard.counters.syncs, 1);
    count(&shard.counters.bytes_written, (frame.capacity() + BLOCK) as u64);
    let mut book = lock(&shard.book);
    let segment = book.segments.get_mut(closed.slot);
    segment.footer = Some(footer);
    segment.states = closed.footer.state_count();
    if segment.phase == Phase::Closed {
        segment.phase = Phase::Sealed;
    }
    Ok(())
}

/// Writes the footer of a closed segment; the segment fails if that fails.
pub(crate) fn seal(shard: &Shard, closed: &Closed) {
    if let Err(error) = write_footer(shard, closed) {
        count(&shard.counters.failures, 1);
        shard.tell(Event::SegmentFailed {
            segment: closed.slot,
            doing: "writing its footer",
            error: error.to_string(),
        });
        lock(&shard.book).segments.get_mut(closed.slot).phase = Phase::Failed;
    }
}

/// Reads the footer of a sealed segment and hands it to `then`; `None` if it cannot be read.
pub(crate) fn with_footer<T>(shard: &Shard, slot: u16, then: impl FnOnce(&Footer<'_>) -> T) -> Option<T> {
    let (file, place, generation) = {
        let book = lock(&shard.book);
        let segment = book.segments.get(slot);
        (Arc::clone(&segment.file), segment.footer?, segment.generation)
    };
    let mut buffer = AlignedBuf::new(place.1 as usize);
    file.read_at(buffer.as_mut_slice(), place.0.into()).ok()?;
    match Frame::find(shard.seed(generation), buffer.as_slice()) {
        Found::Whole(frame) if frame.header.kind == Kind::Seal => {
            Footer::read(frame.second).map(|footer| then(&footer))
        }
        _ => None,
    }
}
