//! Moving living frames out of segments that are nearly dead, or that failed, into cold segments.
//!
//! The messages of all chosen segments are copied in one run, sorted by destination: a retry later reads them in a row.
//! A copy carries the states of the moment, so old state entries about it are no longer needed.
//!
//! Order: the ordinal of a copy is in the books before it is written; the books point to the copy, and the source
//! counts as dead, only after it is durable.

use crate::batch::{Batch, Content};
use crate::book::MovedFrame;
use crate::chunk_list::{ChunkList, ChunkPlace};
use crate::cold::{ColdSegments, REST_US};
use crate::event::Event;
use crate::footer::FooterBuilder;
use crate::format::{FLAG_CHUNKS, FrameHeader, Kind};
use crate::hold::Hold;
use crate::index::Place;
use crate::log::with_footer;
use crate::sections::{Envelope, Listed, StateEntry};
use crate::segments::Phase;
use crate::shard::{ReadError, Shard, count, lock};
use crate::store::Chunk;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One run of moving.
#[derive(Debug)]
pub(crate) struct Relocation<'a> {
    cold: &'a mut ColdSegments,
    batch: Batch,
    /// Places of the chunks written in this run whose message is not written yet.
    chunks: Vec<ChunkPlace>,
    /// Cold storage failed or ran out: nothing more can be moved now.
    halted: bool,
}

impl<'a> Relocation<'a> {
    fn new(cold: &'a mut ColdSegments) -> Self {
        let capacity = cold.shard.limits.batch_capacity();
        Self { cold, batch: Batch::new(capacity), chunks: Vec::new(), halted: false }
    }

    /// Empties the first of the given segments, as many as one run takes; `false` if none became empty.
    pub(crate) fn run(cold: &'a mut ColdSegments, victims: &[u16]) -> bool {
        let bytes_max = u64::from(cold.shard.identity.segment_bytes) / 2;
        let mut chosen = Vec::new();
        let (mut bytes, mut total) = (0, 0);
        for &slot in victims {
            bytes += lock(&cold.shard.book).segments.get(slot).live_bytes;
            if bytes > bytes_max && !chosen.is_empty() {
                break;
            }
            total = bytes;
            chosen.push(slot);
        }
        // Each run must leave fewer segments in use than it found, or sparse cold segments would be moved round and
        // round: the moved frames fit into the open one, or the run empties two for the one it opens.
        let room = cold.open.as_ref().map_or(0, |open| open.room(&cold.shard) as u64);
        if (chosen.len() < 2 || !cold.may_open()) && total + total / 4 > room {
            return false;
        }
        let ids = chosen.iter().flat_map(|slot| live_in(&cold.shard, *slot)).collect();
        let mut run = Self::new(cold);
        run.copy_all(ids);
        let book = lock(&run.cold.shard.book);
        chosen.into_iter().any(|slot| book.segments.get(slot).live == 0)
    }

    /// Moves everything out of a failed segment; a frame that cannot be read stays, and keeps the segment.
    pub(crate) fn evacuate(cold: &'a mut ColdSegments, slot: u16) {
        let ids = living_by_index(&cold.shard, slot);
        let mut run = Self::new(cold);
        run.copy_all(ids.into_iter().collect());
    }

    /// Writes state entries into the cold segment; `true` when they are durable.
    pub(crate) fn states(cold: &'a mut ColdSegments, entries: Vec<StateEntry>) -> bool {
        let mut run = Self::new(cold);
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let room = run.cold.shard.limits.state_room();
            let (mut bytes, mut some) = (Vec::new(), Vec::new());
            while let Some(entry) =
                entries.next_if(|entry| some.is_empty() || bytes.len() + entry.encoded_len() <= room)
            {
                entry.write(&mut bytes);
                some.push(entry);
            }
            let Some(header) = FrameHeader::over(Kind::State, 0, 0, &[], &bytes) else { return false };
            run.make_room(header.frame_bytes(), bytes.len());
            run.batch.push(header, &[], &bytes, bytes.len(), Content::States(some));
            run.flush();
        }
        run.attest();
        !run.halted
    }

    fn copy_all(&mut self, ids: BTreeSet<u64>) {
        let mut sorted: Vec<(Bytes, u64)> = {
            let book = lock(&self.cold.shard.book);
            ids.into_iter().filter_map(|id| Some((book.index.destination(id)?, id))).collect()
        };
        sorted.sort();
        for (_, id) in sorted {
            if self.halted {
                return;
            }
            if lock(&self.cold.shard.book).move_begins(id) && !self.copy(id) {
                lock(&self.cold.shard.book).move_fails(id);
            }
        }
        self.flush();
        self.attest();
    }

    /// Writes one more batch, which proves that the last one is durable: moved frames soon have no other copy, and no
    /// batch may follow here.
    fn attest(&mut self) {
        let batch = Batch::new(0);
        let fits = self.cold.open.as_ref().is_some_and(|open| open.fits(&self.cold.shard, batch.bytes(), 0));
        if !self.halted && fits {
            self.halted |= self.write(batch).is_none();
        }
    }

    /// Lays one message into the cold batch; `false` if it stays where it is.
    fn copy(&mut self, id: u64) -> bool {
        let shard = Arc::clone(&self.cold.shard);
        let Some((place, generation, file)) = ({
            let book = lock(&shard.book);
            book.index.place(id).map(|place| {
                let segment = book.segments.get(place.segment);
                (place, segment.generation, Arc::clone(&segment.file))
            })
        }) else {
            return false;
        };
        let message = match shard.read_frame(&file, generation, place, true) {
            Ok(message) => message,
            Err(error) => return self.unreadable(id, place, &error),
        };
        let Some(envelope) = shard.present_section(id, &message.envelope) else { return false };
        let list = match &message.chunks {
            None => None,
            Some(chunks) => match self.copy_chunks(id, &chunks.places) {
                Ok(places) => Some(ChunkList { header_bytes: chunks.header_bytes, places: places.into() }),
                Err((place, error)) => return self.unreadable(id, place, &error),
            },
        };
        if self.halted {
            return false;
        }
        let (flags, list_bytes, second) = match &list {
            None => (0, 0, message.content),
            Some(list) => {
                let list = list.write();
                (FLAG_CHUNKS, list.len(), [&*message.content, &list].concat().into())
            }
        };
        let Some(header) = FrameHeader::over(Kind::Moved, flags, id, &envelope, &second) else { return false };
        let parsed = Envelope::parse(&envelope);
        let add = |(n, bytes): (usize, usize), listed| match listed {
            Listed::One(_, recipient, hold) => {
                (n + 2, bytes + recipient.destination.len() + hold.as_ref().map_or(0, Hold::encoded_len))
            }
            Listed::Finished(_) => (n, bytes),
        };
        let (recipients, names) = parsed.iter().flat_map(Envelope::iter).flatten().fold((1, 0), add);
        let footer = FooterBuilder::message_bytes(recipients, names, list_bytes);
        self.make_room(header.frame_bytes(), footer);
        if self.halted {
            return false;
        }
        let content = Content::Moved { envelope: envelope.clone(), list };
        self.batch.push(header, &envelope, &second, footer, content);
        true
    }

    /// Copies the chunks of a large body; their new places, when they are durable.
    fn copy_chunks(&mut self, id: u64, chunks: &[ChunkPlace]) -> Result<Vec<ChunkPlace>, (Place, ReadError)> {
        self.flush();
        self.chunks.clear();
        for (chunk, number) in chunks.iter().zip(0..) {
            let found = {
                let book = lock(&self.cold.shard.book);
                let slot = book.segments.slot_of(chunk.generation);
                slot.map(|slot| (slot, Arc::clone(&book.segments.get(slot).file)))
            };
            let place = Place { segment: u16::MAX, offset: chunk.offset, size: 0, ordinal: chunk.ordinal };
            let Some((slot, file)) = found else {
                return Err((place, ReadError::Damaged("the segment of a chunk is gone")));
            };
            let place = Place { segment: slot, ..place };
            let bytes = self.cold.shard.read_chunk_frame(&file, chunk, id).map_err(|error| (place, error))?;
            let mut copy = Chunk::new(bytes.len().max(1));
            copy.push(&bytes);
            copy.seal();
            let room = Batch::CHUNK_ROOM;
            if self.batch.room() < room || self.batch.bytes() > self.cold.shard.limits.batch_bytes_max() {
                self.flush();
            }
            self.batch.push_chunk(id, number, copy);
        }
        self.flush();
        Ok(std::mem::take(&mut self.chunks))
    }

    /// Damage found while copying: the message stays, and its segment with it.
    fn unreadable(&mut self, id: u64, place: Place, error: &ReadError) -> bool {
        let (what, damaged) = match error {
            ReadError::Damaged(what) => ((*what).to_owned(), true),
            ReadError::Io(error) => (format!("cannot be read: {error}"), false),
        };
        let shard = &self.cold.shard;
        let mut book = lock(&shard.book);
        if book.index.place(id).is_none() {
            // It finished while it was read.
            return false;
        }
        if usize::from(place.segment) < book.segments.len() {
            let segment = book.segments.get_mut(place.segment);
            if damaged || segment.phase == Phase::Failed {
                segment.phase = Phase::Damaged;
            }
        }
        drop(book);
        shard.tell(Event::Damage {
            segment: place.segment,
            offset: place.offset,
            id: mail::QueueId::from_u64(id),
            what,
        });
        false
    }

    fn make_room(&mut self, bytes: usize, footer_bytes: usize) {
        let limits = &self.cold.shard.limits;
        let full = self.batch.bytes() + bytes > limits.batch_bytes_max() || self.batch.room() < bytes;
        if full || !self.fits(bytes, footer_bytes) {
            self.flush();
        }
        if self.batch.room() < bytes {
            self.batch = Batch::new(bytes);
        }
    }

    fn fits(&self, bytes: usize, footer_bytes: usize) -> bool {
        let (all, footer) =
            (self.batch.bytes() + crate::buffer::round_up(bytes), self.batch.footer_bytes + footer_bytes);
        self.cold.open.as_ref().is_some_and(|open| open.fits(&self.cold.shard, all, footer))
    }

    /// Writes the batch, in a fresh cold segment if it does not fit the open one.
    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if self.halted || !self.fits(0, 0) {
            self.cold.close();
            self.halted |= !self.cold.open_next();
        }
        let capacity = self.cold.shard.limits.batch_capacity();
        let batch = std::mem::replace(&mut self.batch, Batch::new(0));
        let ids = moved_ids(&batch);
        let written = if self.halted { None } else { self.write(batch) };
        match written {
            Some(batch) => self.batch = Batch::reuse(batch.into_buffer()),
            None => {
                self.halted = true;
                self.batch = Batch::new(capacity);
                let mut book = lock(&self.cold.shard.book);
                ids.into_iter().for_each(|id| book.move_fails(id));
            }
        }
    }

    /// Writes and publishes a batch that fits; `None` if the storage failed.
    fn write(&mut self, mut batch: Batch) -> Option<Batch> {
        let shard = Arc::clone(&self.cold.shard);
        let mut cold = self.cold.open.take()?;
        let base = cold.offset;
        let first = cold.next_ordinal();
        {
            let mut book = lock(&shard.book);
            let mut ordinal = first;
            for at in 0..batch.items.len() {
                let Some(header) = batch.items.get(at).map(|item| item.header) else { break };
                let size = u32::try_from(header.frame_bytes()).unwrap_or(u32::MAX);
                let frame = MovedFrame { segment: cold.slot, ordinal, size };
                if !header.kind.kept() {
                    continue;
                }
                if book.move_writes(header.id, frame) {
                    ordinal += 1;
                } else {
                    // It finished meanwhile. A copy written now would be younger than the LIVEMAP that lets its DONE
                    // go.
                    batch.void(at);
                }
            }
        }
        cold.seal(&mut [&mut batch]);
        if let Err(error) = cold.write(&shard, &[&batch]) {
            count(&shard.counters.failures, 1);
            shard.tell(Event::SegmentFailed {
                segment: cold.slot,
                doing: "moving mail into it",
                error: error.to_string(),
            });
            self.cold.previous = cold.durable();
            self.cold.after_us = shard.disk.now_us() + REST_US;
            lock(&shard.book).segments.close(cold.slot, Phase::Failed);
            return None;
        }
        let mut book = lock(&shard.book);
        for item in &batch.items {
            cold.publish(base, item);
            let header = &item.header;
            let place = Place {
                segment: cold.slot,
                offset: u32::try_from(base + item.offset).unwrap_or(u32::MAX),
                size: u32::try_from(header.frame_bytes()).unwrap_or(u32::MAX),
                ordinal: header.ordinal,
            };
            match &item.content {
                Content::Chunk { .. } => self.chunks.push(cold.chunk_place(base, item.offset, header, header.ordinal)),
                Content::Moved { list, .. } => {
                    let has_moved = book.move_ends(header.id, place, list.clone());
                    count(&shard.counters.relocated, u64::from(has_moved));
                }
                _ => {}
            }
        }
        book.segments.get_mut(cold.slot).data_end = cold.durable().1;
        drop(book);
        self.cold.open = Some(cold);
        Some(batch)
    }
}

/// The messages whose move depends on a batch.
fn moved_ids(batch: &Batch) -> Vec<u64> {
    batch.items.iter().filter(|item| item.header.kind.kept()).map(|item| item.header.id).collect()
}

/// Unfinished messages with a frame in the segment.
fn live_in(shard: &Shard, slot: u16) -> Vec<u64> {
    let by_footer = with_footer(shard, slot, |footer| {
        let book = lock(&shard.book);
        let segment = book.segments.get(slot);
        let rows = footer.rows.iter().zip(0_u32..);
        rows.filter(|(_, ordinal)| segment.is_live(*ordinal)).map(|(row, _)| row.id).collect()
    });
    by_footer.unwrap_or_else(|| living_by_index(shard, slot))
}

/// The same, without the footer.
fn living_by_index(shard: &Shard, slot: u16) -> Vec<u64> {
    let book = lock(&shard.book);
    let generation = book.segments.get(slot).generation;
    let here = |place: Place, chunks: Option<&ChunkList>| {
        let mut places = chunks.into_iter().flat_map(|list| &list.places);
        place.segment == slot || places.any(|chunk| chunk.generation == generation)
    };
    book.index.places().filter(|(_, place, chunks)| here(*place, *chunks)).map(|(id, ..)| id).collect()
}
