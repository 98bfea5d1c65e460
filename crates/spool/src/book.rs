//! The state of a shard in memory: the queue, the segments, bodies that are arriving, messages on the move.
//!
//! One lock guards it. The methods here keep queue and segments in step; they never touch the disk.

use crate::batch::{Content, Item};
use crate::chunk_list::{ChunkList, ChunkPlace};
use crate::format::FrameHeader;
use crate::hold::{Hold, HoldKind};
use crate::index::{Applied, FoundRecipient, Gone, Index, Place};
use crate::sections::{Envelope, Listed, Sequenced, StateEntry};
use crate::segments::Segments;
use crate::store::{Change, State, Status};
use mail::QueueId;
use std::collections::HashMap;

/// A large body whose chunks are coming in.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    places: Vec<Option<ChunkPlace>>,
    /// Chunks given to the staging queue and not yet published.
    staged: u32,
    aborted: bool,
    pub(crate) failed: bool,
    /// Its message is on the way to the disk: too late to abort.
    committing: bool,
}

/// The copy of a frame that relocation is writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MovedFrame {
    pub(crate) segment: u16,
    pub(crate) ordinal: u32,
    pub(crate) size: u32,
}

/// The result of recording changes.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) states: Vec<StateEntry>,
    pub(crate) ended: EndedHolds,
    /// Messages that are finished.
    pub(crate) done: Vec<u64>,
}

/// The holds that changes ended.
#[derive(Debug, Default)]
pub(crate) struct EndedHolds {
    /// Recipients that were held for the reason that the changes end, if they end one.
    pub(crate) of_reason: Vec<(QueueId, u32)>,
    /// Messages with recipients that were held and wait now.
    pub(crate) released: Vec<QueueId>,
}

/// The effect of changes on a hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldChange<'a> {
    /// Only recipients that are held for this reason are changed.
    pub(crate) from: Option<HoldKind>,
    /// Why those are held that the changes hold.
    pub(crate) to: Option<&'a Hold>,
}

/// The knowledge of a shard.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) index: Index,
    pub(crate) segments: Segments,
    pub(crate) arriving: HashMap<u64, Arriving>,
    pub(crate) moving: HashMap<u64, Vec<MovedFrame>>,
}

impl Book {
    pub(crate) fn new(segments: Segments) -> Self {
        Self { index: Index::default(), segments, arriving: HashMap::new(), moving: HashMap::new() }
    }

    /// Puts a durable frame of the hot segment into the books; `base` is where its batch starts.
    pub(crate) fn publish(&mut self, segment: u16, base: usize, item: &Item) {
        let header = &item.header;
        if !header.kind.kept() {
            return;
        }
        let place = Place {
            segment,
            offset: u32::try_from(base + item.offset).unwrap_or(u32::MAX),
            size: u32::try_from(header.frame_bytes()).unwrap_or(u32::MAX),
            ordinal: header.ordinal,
        };
        self.segments.get_mut(segment).add(place.ordinal, place.size);
        match &item.content {
            Content::Message { envelope, .. } => self.insert(header.id, place, None, envelope),
            Content::Reference { envelope, header: section, .. } => {
                let chunks = self.arriving.remove(&header.id).map(|arriving| arriving.places).unwrap_or_default();
                let header_bytes = u32::try_from(section.len()).unwrap_or(u32::MAX);
                let chunks = ChunkList { header_bytes, places: chunks.into_iter().flatten().collect() };
                for chunk in &chunks.places {
                    self.unpin(chunk);
                }
                self.insert(header.id, place, Some(chunks), envelope);
            }
            Content::Chunk { number } => self.chunk_arrived(header, *number, place),
            _ => {}
        }
    }

    fn insert(&mut self, id: u64, place: Place, chunks: Option<ChunkList>, envelope: &[u8]) {
        let envelope = Envelope::parse(envelope).expect("it was encoded by this program");
        let added = self.index.insert(id, place, chunks.clone(), recipients(&envelope));
        if added.is_none() {
            // Two transactions under one queue id: the first stays.
            self.kill(&Gone { place, chunks });
        }
    }

    fn chunk_arrived(&mut self, header: &FrameHeader, number: u32, place: Place) {
        let segment = self.segments.get_mut(place.segment);
        let chunk = ChunkPlace {
            generation: segment.generation,
            offset: place.offset,
            ordinal: place.ordinal,
            bytes: header.lengths.1,
            crc: header.crcs.1,
        };
        match self.arriving.get_mut(&header.id) {
            Some(arriving) if !arriving.aborted => {
                segment.pins += 1;
                arriving.staged -= 1;
                let at = number as usize;
                if arriving.places.len() <= at {
                    arriving.places.resize(at + 1, None);
                }
                if let Some(slot) = arriving.places.get_mut(at) {
                    *slot = Some(chunk);
                }
            }
            other => {
                segment.kill(place.ordinal, place.size);
                if let Some(arriving) = other {
                    arriving.staged -= 1;
                    if arriving.staged == 0 {
                        self.arriving.remove(&header.id);
                    }
                }
            }
        }
    }

    fn unpin(&mut self, chunk: &ChunkPlace) {
        if let Some(slot) = self.segments.slot_of(chunk.generation) {
            self.segments.get_mut(slot).pins -= 1;
        }
    }

    /// Counts a chunk as given to the staging queue; `false` if its body has failed already.
    pub(crate) fn chunk_staged(&mut self, id: u64) -> bool {
        let arriving = self.arriving.entry(id).or_default();
        if arriving.failed || arriving.aborted {
            return false;
        }
        arriving.staged += 1;
        true
    }

    /// A chunk did not reach the disk, or was not even staged.
    pub(crate) fn chunk_failed(&mut self, id: u64) {
        if let Some(arriving) = self.arriving.get_mut(&id) {
            arriving.staged -= 1;
            arriving.failed = true;
            if arriving.aborted && arriving.staged == 0 {
                self.arriving.remove(&id);
            }
        }
    }

    /// The places of all chunks of an arriving body, those of the batch being written in `fresh`.
    pub(crate) fn chunk_list(
        &mut self,
        id: u64,
        count: u32,
        bytes: u64,
        fresh: &[(u64, u32, ChunkPlace)],
    ) -> Option<Vec<ChunkPlace>> {
        let arriving = self.arriving.get(&id).filter(|arriving| !arriving.failed && !arriving.aborted)?;
        let mut places = arriving.places.clone();
        places.resize(count as usize, None);
        for (_, number, place) in fresh.iter().filter(|(of, ..)| *of == id) {
            *places.get_mut(*number as usize)? = Some(*place);
        }
        let places: Vec<_> = places.into_iter().collect::<Option<_>>()?;
        let total: u64 = places.iter().map(|place| u64::from(place.bytes)).sum();
        if total != bytes {
            return None;
        }
        if let Some(arriving) = self.arriving.get_mut(&id) {
            arriving.committing = true;
        }
        Some(places)
    }

    /// The message of an arriving body did not become durable: its chunks are dead.
    pub(crate) fn reference_failed(&mut self, id: u64) {
        if let Some(arriving) = self.arriving.get_mut(&id) {
            arriving.committing = false;
        }
        self.abort(id);
    }

    /// Forgets an arriving body: its chunks are dead. Nothing happens once its message is on the way to the disk.
    pub(crate) fn abort(&mut self, id: u64) {
        if self.arriving.get(&id).is_some_and(|arriving| arriving.committing) {
            return;
        }
        let Some(mut arriving) = self.arriving.remove(&id) else { return };
        for chunk in std::mem::take(&mut arriving.places).into_iter().flatten() {
            self.unpin(&chunk);
            self.kill_chunk(&chunk);
        }
        if arriving.staged > 0 {
            arriving.aborted = true;
            self.arriving.insert(id, arriving);
        }
    }

    fn kill_chunk(&mut self, chunk: &ChunkPlace) {
        if let Some(slot) = self.segments.slot_of(chunk.generation) {
            self.segments.get_mut(slot).kill(chunk.ordinal, chunk_frame_bytes(chunk));
        }
    }

    /// Counts the frames of a message that has gone as dead.
    pub(crate) fn kill(&mut self, gone: &Gone) {
        self.segments.get_mut(gone.place.segment).kill(gone.place.ordinal, gone.place.size);
        for chunk in gone.chunks.iter().flat_map(|list| &list.places) {
            self.kill_chunk(chunk);
        }
    }

    /// A message has left the index: its frames and their copies on the move are dead.
    fn finish(&mut self, id: u64, gone: &Gone) {
        self.kill(gone);
        self.move_fails(id);
    }

    /// Applies changes in memory and returns the states to write.
    ///
    /// A destination longer than `name_max` cannot be written; the recipient keeps the one it has.
    pub(crate) fn record(&mut self, changes: &[Change], hold: HoldChange<'_>, name_max: usize) -> Recorded {
        let mut to = Recorded::default();
        for change in changes {
            let id = change.id.to_u64();
            if let Some(from) = hold.from {
                if self.index.hold(id, change.recipient).is_none_or(|hold| hold.kind() != from) {
                    continue;
                }
                to.ended.of_reason.push((change.id, change.recipient));
            }
            let destination = change.destination.as_deref().filter(|name| name.len() <= name_max);
            let was_held = self.index.is_held(id, change.recipient);
            match self.index.change(id, change.recipient, change.state, destination, hold.to) {
                Applied::Nothing => {}
                Applied::Changed(sequenced) => {
                    if was_held && sequenced.state.status == Status::Waiting {
                        to.ended.released.push(change.id);
                    }
                    let destination = destination.map(Into::into);
                    let hold = self.index.hold(id, change.recipient).cloned();
                    to.states.push(StateEntry { id, position: change.recipient, sequenced, destination, hold });
                }
                Applied::Finished(gone) => {
                    self.finish(id, &gone);
                    to.done.push(id);
                }
            }
        }
        to
    }

    /// Applies a state found on the disk; `true` if it finished its message.
    pub(crate) fn replay(
        &mut self,
        id: u64,
        position: u32,
        to: Sequenced,
        destination: Option<&[u8]>,
        hold: Option<Hold>,
    ) -> bool {
        match self.index.replay(id, position, to, destination, hold) {
            Applied::Finished(gone) => {
                self.finish(id, &gone);
                true
            }
            _ => false,
        }
    }

    /// Takes a message out whose DONE was found on the disk.
    pub(crate) fn replay_done(&mut self, id: u64) -> bool {
        let Some(gone) = self.index.remove(id) else { return false };
        self.finish(id, &gone);
        true
    }

    /// Copies of a message are about to be written; `false` if it has finished already.
    pub(crate) fn move_begins(&mut self, id: u64) -> bool {
        let live = self.index.contains(id);
        if live {
            self.moving.insert(id, Vec::new());
        }
        live
    }

    /// One copy has its place: in the books before it is written, so that no LIVEMAP takes it for younger than itself.
    ///
    /// `false` if the message has finished meanwhile: the copy must not be written.
    pub(crate) fn move_writes(&mut self, id: u64, frame: MovedFrame) -> bool {
        let Some(frames) = self.moving.get_mut(&id) else { return false };
        frames.push(frame);
        self.segments.get_mut(frame.segment).add(frame.ordinal, frame.size);
        true
    }

    /// Ends a move whose copies are durable: the message lies there now, the old frames are dead.
    pub(crate) fn move_ends(&mut self, id: u64, place: Place, chunks: Option<ChunkList>) -> bool {
        if self.moving.remove(&id).is_none() {
            // It finished meanwhile; its copies were counted as dead then.
            return false;
        }
        let Some(old) = self.index.relocate(id, place, chunks) else { return false };
        self.kill(&old);
        true
    }

    /// The copies did not become durable: they are dead, the message lies where it lay.
    pub(crate) fn move_fails(&mut self, id: u64) {
        for frame in self.moving.remove(&id).unwrap_or_default() {
            self.segments.get_mut(frame.segment).kill(frame.ordinal, frame.size);
        }
    }
}

/// The recipients of an envelope as the index wants them: one by one, finished ones without a destination.
pub(crate) fn recipients<'a>(envelope: &Envelope<'a>) -> impl Iterator<Item = FoundRecipient<'a>> + use<'a> {
    envelope.iter().flatten().flat_map(|listed| {
        let (sequenced, destination, hold, count) = match listed {
            Listed::One(state, recipient, hold) => (state, Some(recipient.destination), hold, 1),
            Listed::Finished(count) => (finished(), None, None, count),
        };
        std::iter::repeat_n(FoundRecipient { sequenced, destination, hold }, count as usize)
            .take(crate::files::RECIPIENTS_MAX)
    })
}

/// The state of a recipient in a run of finished ones.
pub(crate) fn finished() -> Sequenced {
    Sequenced { state: State { status: Status::Done, attempts: 0, due: 0 }, sequence: 0 }
}

/// Bytes of the frame of a chunk.
pub(crate) fn chunk_frame_bytes(chunk: &ChunkPlace) -> u32 {
    u32::try_from(crate::batch::Batch::frame_bytes(8, chunk.bytes as usize)).unwrap_or(u32::MAX)
}
