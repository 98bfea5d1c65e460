//! One shard: the state that sessions, its committer and its janitor share, and the operations that need neither
//! thread.
//!
//! Lock order: book before staging queue; no other two are held together. No lock is held across a read, a write or a
//! sync.

use crate::batch::{Batch, Content, MessageFrame};
use crate::book::{Book, EndedHolds, HoldChange, Recorded};
use crate::buffer::{AlignedBuf, round_down, round_up};
use crate::cache::{Cache, CachedMessage};
use crate::chunk_list::{self, ChunkList, ChunkPlace};
use crate::commit::{Cell, Commit};
use crate::config::Config;
use crate::disk::{Disk, DiskFile};
use crate::error::Error;
use crate::event::Event;
use crate::footer::{Closed, FooterBuilder};
use crate::format::{Found, Frame, FrameHeader, Identity, Kind, Seed};
use crate::hold::Hold;
use crate::index::Place;
use crate::pressure::Pressure;
use crate::read_cache::SharedMessages;
use crate::sections::{Envelope, EnvelopeWriter, Sequenced};
use crate::segments::Phase;
use crate::staging::{Limits, Staging};
use crate::store::{
    Change, Chunk, Entry, NewBody, NewMessage, NewRecipient, Part, Recent, State, Statistics, Status, StoredEnvelope,
    StoredRecipient,
};
use bytes::Bytes;
use mail::QueueId;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Locks; a panic elsewhere does not make the queue unreadable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Figures that only grow.
#[derive(Debug, Default)]
pub(crate) struct ShardCounters {
    pub(crate) commits: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) body_bytes: AtomicU64,
    pub(crate) relocated: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) cache_hits: AtomicU64,
    pub(crate) cache_misses: AtomicU64,
    pub(crate) shared_hits: AtomicU64,
    pub(crate) shared_misses: AtomicU64,
}

/// Adds to a figure.
pub(crate) fn count(figure: &AtomicU64, by: u64) {
    figure.fetch_add(by, Ordering::Relaxed);
}

/// The tasks of the janitor.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    /// Segments whose footer is to be written.
    pub(crate) closed: Vec<Closed>,
    /// There may be something else to do.
    pub(crate) rung: bool,
    /// Rounds the janitor has finished, for those who wait for one.
    pub(crate) rounds: u64,
    /// The last round could do nothing for a lack of segments.
    pub(crate) stuck: bool,
    pub(crate) closing: bool,
}

/// The state that sessions, committer and janitor share.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) number: u16,
    pub(crate) directory: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) config: Config,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) limits: Limits,
    pub(crate) staging: Staging,
    pub(crate) book: Mutex<Book>,
    pub(crate) cache: Mutex<Cache>,
    /// Messages that were read and are wanted again.
    pub(crate) shared: Mutex<SharedMessages>,
    pub(crate) counters: ShardCounters,
    pub(crate) chores: Mutex<Chores>,
    /// Rung for the janitor, and by it when a round ends.
    pub(crate) bell: Condvar,
    /// Segments that could still be added to the pool.
    pub(crate) growable: AtomicU64,
    /// Segments there can be at the most, as limits and file system are.
    pub(crate) attainable: AtomicU64,
    /// Segments beyond the limit, made when nothing else was left.
    pub(crate) excess: AtomicU64,
    /// Free segments; a copy of the book's figure, for admission.
    pub(crate) free: AtomicU64,
    /// Two writes in a row failed.
    pub(crate) read_only: AtomicBool,
    /// LIVEMAPs that each shard has made durable since the spool was opened.
    maps: Arc<[AtomicU64]>,
    /// Segments of smaller generations were there when the spool was opened.
    first_generation: u64,
    /// Events that an operator should read.
    events: Mutex<Vec<Event>>,
}

/// Below this share of the segments a caller should slow down, and below this one ordinary messages are refused.
const SLOW_PERCENT: u64 = 20;
const FULL_PERCENT: u64 = 10;

/// Segments beyond the reserved ones that are to be free, or to be had.
const FREE_EXTRA: u64 = 2;

/// Events kept until they are taken; the oldest go first.
const EVENTS_MAX: usize = 1000;

impl Shard {
    pub(crate) fn new(
        number: u16,
        identity: Identity,
        config: &Config,
        disk: &Arc<dyn Disk>,
        book: Book,
        maps: Arc<[AtomicU64]>,
    ) -> Self {
        let limits = Limits::of(config);
        let free = book.segments.free_count() as u64;
        let first_generation = book.segments.next_generation();
        Self {
            number,
            directory: config.path.join(format!("{number:02}")),
            identity,
            config: config.clone(),
            disk: Arc::clone(disk),
            limits,
            staging: Staging::new(limits),
            book: Mutex::new(book),
            cache: Mutex::new(Cache::new(config.cache_bytes / usize::from(config.shards.max(1)))),
            shared: Mutex::new(SharedMessages::new(config.shared_bytes / usize::from(config.shards.max(1)))),
            counters: ShardCounters::default(),
            chores: Mutex::default(),
            bell: Condvar::new(),
            growable: AtomicU64::new(0),
            attainable: AtomicU64::new(config.segments_max().into()),
            excess: AtomicU64::new(0),
            free: AtomicU64::new(free),
            read_only: AtomicBool::new(false),
            maps,
            first_generation,
            events: Mutex::default(),
        }
    }

    /// Ends the shard after a panic of one of its threads: no frame is taken any more, and no caller waits.
    pub(crate) fn give_up(&self) {
        self.read_only.store(true, Ordering::Release);
        for cell in self.staging.poison().cells {
            cell.settle(&Err(Error::Poisoned));
        }
        self.tell(Event::ReadOnly { shard: self.number });
    }

    /// Keeps an event for the log.
    pub(crate) fn tell(&self, event: Event) {
        let mut events = lock(&self.events);
        if events.len() >= EVENTS_MAX {
            events.remove(0);
        }
        events.push(event);
    }

    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.events))
    }

    /// A LIVEMAP of this shard has become durable.
    pub(crate) fn mapped(&self) {
        if let Some(maps) = self.maps.get(usize::from(self.number)) {
            maps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets go of other shards' states that were found on opening, once every shard has covered them by its own
    /// LIVEMAPs.
    pub(crate) fn release_foreign(&self, book: &mut Book) {
        if self.maps.iter().all(|maps| maps.load(Ordering::Relaxed) >= 2) {
            book.segments.release_foreign(self.first_generation);
        }
    }

    pub(crate) fn seed(&self, generation: u64) -> Seed {
        Seed::new(&self.identity.uuid, self.number, generation)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Wakes the janitor.
    pub(crate) fn ring(&self) {
        lock(&self.chores).rung = true;
        self.bell.notify_all();
    }

    /// Segments that the pool lacks: free ones to go on with, and room for ordinary mail to be taken again.
    pub(crate) fn lacking(&self) -> (usize, usize) {
        let free = self.free.load(Ordering::Relaxed);
        let to_go_on = (u64::from(self.config.segments_reserved) + FREE_EXTRA).saturating_sub(free);
        let to_accept = (self.kept() + FREE_EXTRA).saturating_sub(self.available());
        let number = |of: u64| usize::try_from(of).unwrap_or(usize::MAX);
        (number(to_go_on), number(to_accept))
    }

    /// Segments that ordinary mail may not use.
    fn kept(&self) -> u64 {
        let share = self.attainable.load(Ordering::Relaxed) * FULL_PERCENT / 100;
        u64::from(self.config.segments_reserved).max(share)
    }

    /// Whether only reserved segments are free and the pool can grow: the committer then waits for the janitor.
    pub(crate) fn awaits_growth(&self) -> bool {
        let reserved = u64::from(self.config.segments_reserved);
        self.free.load(Ordering::Relaxed) <= reserved && self.growable.load(Ordering::Relaxed) > 0
    }

    /// Brings the copy of the number of free segments up to date.
    pub(crate) fn note_free(&self, book: &Book) {
        self.free.store(book.segments.free_count() as u64, Ordering::Relaxed);
    }

    /// Segments free or to be had within the limit.
    fn available(&self) -> u64 {
        let free = self.free.load(Ordering::Relaxed) + self.growable.load(Ordering::Relaxed);
        free.saturating_sub(self.excess.load(Ordering::Relaxed))
    }

    /// How hard the pool is pressed.
    pub(crate) fn pressure(&self) -> Pressure {
        let attainable = self.attainable.load(Ordering::Relaxed);
        if self.is_read_only() {
            Pressure::Poisoned
        } else if self.admit(false).is_err() {
            Pressure::Full
        } else if self.available() * 100 < attainable * SLOW_PERCENT {
            Pressure::Slow
        } else {
            Pressure::None
        }
    }

    pub(crate) fn admit(&self, reserved: bool) -> Result<(), Error> {
        if reserved {
            return Ok(());
        }
        if self.available() <= self.kept() { Err(Error::Full) } else { Ok(()) }
    }

    pub(crate) fn append(&self, message: &NewMessage<'_>) -> Result<Commit, Error> {
        self.admit(message.reserved)?;
        let is_whole = matches!(message.body, NewBody::Whole { .. });
        let cell = (!is_whole).then(Arc::<Cell>::default);
        let frame = self.lay_out(message, cell.as_ref())?;
        let batch = self.staging.push(frame)?;
        Ok(cell.map_or(batch, |cell| Commit::new(&cell)))
    }

    /// Takes several messages that are stored all or none.
    pub(crate) fn append_all(&self, messages: &[NewMessage<'_>]) -> Result<Commit, Error> {
        self.admit(messages.iter().all(|message| message.reserved))?;
        let cell = Arc::<Cell>::default();
        let mut frames = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            if messages.iter().take(at).any(|other| other.id == message.id) {
                return Err(Error::Exists(message.id));
            }
            frames.push(self.lay_out(message, Some(&cell))?);
        }
        let bytes: usize = frames.iter().map(|frame| frame.header.frame_bytes()).sum();
        let max = self.limits.frame_bytes_max();
        if bytes > max {
            return Err(Error::TooLarge { bytes: bytes as u64, max: max as u64 });
        }
        self.staging.push_all(frames, self.config.sabotage().split_transactions)?;
        Ok(Commit::new(&cell))
    }

    /// The frame of a message; `cell` is its own or that of the messages that are stored with it.
    fn lay_out(&self, message: &NewMessage<'_>, cell: Option<&Arc<Cell>>) -> Result<MessageFrame, Error> {
        let header_bytes = self.header_bytes(&message.body)?;
        let count = u32::try_from(message.recipients.len()).map_err(|_| self.too_large(usize::MAX))?;
        let envelope = encode_envelope(message, header_bytes, count).ok_or_else(|| self.too_large(usize::MAX))?;
        let hold_bytes = message.hold.map_or(0, Hold::encoded_len);
        let names = message.recipients.iter().map(|recipient| recipient.destination.len() + hold_bytes).sum();
        let footer = |list: usize| FooterBuilder::message_bytes(message.recipients.len(), names, list);
        self.lay_out_section(message.id, envelope, &message.body, footer, (message.waits, cell))
    }

    fn too_large(&self, bytes: usize) -> Error {
        Error::TooLarge { bytes: bytes as u64, max: self.limits.frame_bytes_max() as u64 }
    }

    /// The frame of a message with its envelope section. `footer_bytes` says what it adds to the footer with a chunk
    /// list of this length; `waits` and `cell` are as in [`Content`].
    pub(crate) fn lay_out_section(
        &self,
        id: QueueId,
        envelope: Bytes,
        body: &NewBody,
        footer_bytes: impl FnOnce(usize) -> usize,
        (waits, cell): (bool, Option<&Arc<Cell>>),
    ) -> Result<MessageFrame, Error> {
        let number = id.to_u64();
        if lock(&self.book).index.contains(number) {
            return Err(Error::Exists(id));
        }
        let (kind, second, list) = match body {
            NewBody::Whole { content, .. } => (Kind::Message, content.clone(), 0),
            NewBody::Chunks { header, count, .. } => (Kind::Reference, header.clone(), ChunkList::encoded_len(*count)),
        };
        let bytes = Batch::frame_bytes(envelope.len(), list + second.len());
        if bytes > self.limits.frame_bytes_max() {
            return Err(self.too_large(bytes));
        }
        let mut header = FrameHeader::over(kind, 0, number, &envelope, &second).ok_or_else(|| self.too_large(bytes))?;
        let content = match body {
            NewBody::Whole { content, .. } => {
                Content::Message { envelope: envelope.clone(), content: content.clone(), cell: cell.cloned(), waits }
            }
            NewBody::Chunks { header: section, count, bytes } => {
                header.lengths.1 = u32::try_from(second.len() + list).unwrap_or(u32::MAX);
                let cell = cell.cloned().unwrap_or_default();
                let (envelope, section) = (envelope.clone(), section.clone());
                Content::Reference { envelope, header: section, chunks: *count, bytes: *bytes, list: None, cell, waits }
            }
        };
        Ok(MessageFrame { header, first: envelope, second, footer_bytes: footer_bytes(list), content })
    }

    /// The length of the header section, which is within its limit and within the content.
    pub(crate) fn header_bytes(&self, body: &NewBody) -> Result<u32, Error> {
        let bytes = body.header_bytes();
        let max = match body {
            NewBody::Whole { content, .. } => self.config.header_bytes_max().min(content.len()),
            NewBody::Chunks { .. } => self.config.header_bytes_max(),
        };
        let too_large = Error::HeaderTooLarge { bytes: bytes as u64, max: max as u64 };
        if bytes > max { Err(too_large) } else { u32::try_from(bytes).map_err(|_| too_large) }
    }

    pub(crate) fn append_chunk(&self, id: QueueId, number: u32, mut chunk: Chunk) -> Result<Commit, Error> {
        self.admit(false)?;
        chunk.seal();
        let most = self.limits.frame_bytes_max();
        if chunk.len() > most / 2 {
            return Err(Error::TooLarge { bytes: chunk.len() as u64, max: most as u64 / 2 });
        }
        if !lock(&self.book).chunk_staged(id.to_u64()) {
            return Err(Error::Failed);
        }
        self.staging.push_chunk(id.to_u64(), number, chunk).inspect_err(|_| {
            let mut book = lock(&self.book);
            book.chunk_failed(id.to_u64());
        })
    }

    pub(crate) fn abort(&self, id: QueueId) {
        lock(&self.book).abort(id.to_u64());
        lock(&self.cache).remove(id.to_u64());
        lock(&self.shared).remove(id.to_u64());
        self.ring();
    }

    pub(crate) fn contains(&self, id: QueueId) -> bool {
        lock(&self.book).index.contains(id.to_u64())
    }

    /// Applies changes in memory and leaves them in a staging queue: this shard's, or that of `instead` if it cannot
    /// write.
    ///
    /// One step under the book's lock: a caller that sees a message finished can rely on its DONE being in the queue.
    /// Also returns the recipients that were held for the reason `hold.from`; others are as they were.
    pub(crate) fn record(
        &self,
        changes: &[Change],
        hold: HoldChange<'_>,
        instead: Option<&Self>,
    ) -> Result<(Commit, EndedHolds), Error> {
        let now_us = self.disk.now_us();
        let staging = instead.map_or(&self.staging, |other| &other.staging);
        if staging.is_poisoned() {
            return Err(Error::Poisoned);
        }
        let mut book = lock(&self.book);
        let Recorded { states, ended, done } = book.record(changes, hold, self.limits.name_bytes_max());
        let finished = done.clone();
        let commit = staging.record(states, done, instead.is_some(), now_us);
        drop(book);
        if !finished.is_empty() {
            let mut cache = lock(&self.cache);
            finished.iter().for_each(|id| cache.remove(*id));
            drop(cache);
            let mut shared = lock(&self.shared);
            finished.iter().for_each(|id| shared.remove(*id));
        }
        Ok((commit?, ended))
    }

    pub(crate) fn by_destination(&self, destination: &[u8], after: Option<Entry>, limit: usize) -> Vec<Entry> {
        lock(&self.book).index.by_destination(destination, after, limit)
    }

    /// Reads the envelope with the present states.
    pub(crate) fn envelope(&self, id: QueueId) -> Result<StoredEnvelope, Error> {
        let cached = lock(&self.cache).envelope(id.to_u64());
        let (section, body_bytes) = match cached {
            Some(found) => found,
            None => self.read_message(id, false).map(|found| (found.envelope, found.body_bytes))?,
        };
        self.at_present(id, &section, body_bytes)
    }

    /// A message with some of its recipients, if it is in memory.
    pub(crate) fn recent(&self, id: QueueId, wanted: impl Iterator<Item = u32>) -> Option<Recent> {
        let number = id.to_u64();
        let CachedMessage { envelope: section, places, pieces } = lock(&self.cache).message(number)?;
        let place = |position: u32| places.get(position as usize).copied();
        let body_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let Part { envelope, recipients_left } = self.part_of(number, &section, body_bytes, wanted, place)?;
        count(&self.counters.cache_hits, 1);
        Some(Recent { envelope, recipients_left, body: pieces })
    }

    /// The recipients of a message that are not done, with their destinations.
    pub(crate) fn states(&self, id: QueueId) -> Option<Vec<(Entry, Bytes)>> {
        let states = lock(&self.book).index.states(id.to_u64())?;
        let live = states.into_iter().zip(0_u32..).filter(|((one, _), _)| one.state.status != Status::Done);
        let entry = |recipient, one: Sequenced| Entry { id, recipient, state: one.state };
        Some(live.map(|((one, name), position)| (entry(position, one), name.unwrap_or_default())).collect())
    }

    /// Some recipients of a message that are not done, with their destinations.
    pub(crate) fn states_of(&self, id: QueueId, wanted: impl Iterator<Item = u32>) -> Vec<(Entry, Bytes)> {
        let book = lock(&self.book);
        let state = |recipient| {
            let (state, destination) = book.index.state_of(id.to_u64(), recipient)?;
            Some((Entry { id, recipient, state }, destination))
        };
        wanted.filter_map(state).collect()
    }

    /// A stored envelope section with the states its recipients have now.
    pub(crate) fn at_present(&self, id: QueueId, section: &Bytes, body_bytes: u64) -> Result<StoredEnvelope, Error> {
        let number = id.to_u64();
        let states = lock(&self.book).index.states(number).ok_or(Error::Unknown(id))?;
        let envelope = Envelope::parse(section)
            .ok_or_else(|| Error::Corrupt { id, what: "the envelope makes no sense".to_owned() })?;
        let mut recipients = Vec::new();
        for (position, _, recipient) in envelope.positions() {
            let Some((sequenced, Some(destination))) = states.get(position as usize) else { continue };
            if sequenced.state.status == Status::Done {
                continue;
            }
            let data = section.slice_ref(recipient.data);
            recipients.push(StoredRecipient {
                position,
                data,
                destination: destination.clone(),
                state: sequenced.state,
            });
        }
        let (head, body_offset) = (section.slice_ref(envelope.head), envelope.body_offset);
        Ok(StoredEnvelope { head, body_bytes, body_offset, recipients })
    }

    /// Reads the content in pieces.
    pub(crate) fn body(&self, id: QueueId) -> Result<Vec<Bytes>, Error> {
        if let Some(pieces) = lock(&self.cache).content(id.to_u64()) {
            count(&self.counters.cache_hits, 1);
            return Ok(pieces);
        }
        if let Some(body) = lock(&self.shared).get(id.to_u64()).and_then(|kept| kept.body) {
            count(&self.counters.shared_hits, 1);
            return Ok(vec![body]);
        }
        count(&self.counters.cache_misses, 1);
        loop {
            let found = self.read_to_share(id)?;
            let Some(chunks) = found.chunks else { return Ok(vec![found.content]) };
            let header = (!found.content.is_empty()).then_some(Ok(found.content));
            let parts = chunks.places.iter().map(|chunk| self.read_chunk(id, chunk));
            match header.into_iter().chain(parts).collect() {
                Ok(pieces) => return Ok(pieces),
                Err(error) => self.same_chunks(id, &chunks, error)?,
            }
        }
    }

    /// Reads the header section.
    pub(crate) fn header(&self, id: QueueId) -> Result<Bytes, Error> {
        let number = id.to_u64();
        let cached = {
            let cache = lock(&self.cache);
            cache.envelope(number).zip(cache.content(number)).map(|((envelope, _), content)| (envelope, content))
        };
        let (envelope, first) = match cached {
            Some((envelope, content)) => (envelope, content.into_iter().next().unwrap_or_default()),
            None => {
                let found = self.read_message(id, true)?;
                (found.envelope, found.content)
            }
        };
        let end = crate::sections::body_offset(&envelope).unwrap_or(0);
        Ok(cut(&first, 0, &(0..end.into())))
    }

    /// `Ok` if the message moved while it was read, so that reading again makes sense; `Unknown` if it finished.
    fn same_chunks(&self, id: QueueId, chunks: &ChunkList, error: Error) -> Result<(), Error> {
        let book = lock(&self.book);
        match book.index.chunks(id.to_u64()) {
            _ if !book.index.contains(id.to_u64()) => Err(Error::Unknown(id)),
            Some(now) if now != chunks => Ok(()),
            _ => Err(error),
        }
    }

    /// Reads a part of the content.
    pub(crate) fn body_range(&self, id: QueueId, range: Range<u64>) -> Result<Bytes, Error> {
        loop {
            let chunks = lock(&self.book).index.chunks(id.to_u64()).cloned();
            let Some(chunks) = chunks else {
                let parts = self.body(id)?;
                return Ok(parts.first().map(|body| cut(body, 0, &range)).unwrap_or_default());
            };
            if chunks.places.is_empty() {
                return Err(Error::Corrupt { id, what: "its chunk list cannot be read".to_owned() });
            }
            let read = match self.chunks_to_share(id, &chunks) {
                Some(whole) => whole.map(|body| cut(&body, 0, &range)),
                None => self.chunk_range(id, &chunks, &range).map(Bytes::from),
            };
            match read {
                Ok(bytes) => return Ok(bytes),
                Err(error) => self.same_chunks(id, &chunks, error)?,
            }
        }
    }

    pub(crate) fn chunk_range(&self, id: QueueId, chunks: &ChunkList, range: &Range<u64>) -> Result<Vec<u8>, Error> {
        let cached = lock(&self.cache).chunks(id.to_u64());
        let mut bytes = Vec::new();
        if range.start < chunks.header_bytes.into() {
            let header = match &cached {
                Some((header, _)) => header.clone(),
                None => self.read_message(id, true)?.content,
            };
            bytes.extend_from_slice(&cut(&header, 0, range));
        }
        for (at, (held, chunk)) in chunks.ranges().enumerate() {
            if held.start < range.end && held.end > range.start {
                let part = match cached.as_ref().and_then(|(_, parts)| parts.get(at)) {
                    Some(part) => part.clone(),
                    None => self.read_chunk(id, chunk)?,
                };
                bytes.extend_from_slice(&cut(&part, held.start, range));
            }
        }
        Ok(bytes)
    }

    /// Reads a message's frame; `whole` with its second section.
    pub(crate) fn read_message(&self, id: QueueId, whole: bool) -> Result<ReadMessage, Error> {
        let mut tried = None;
        loop {
            let found = {
                let book = lock(&self.book);
                let place = book.index.place(id.to_u64()).ok_or(Error::Unknown(id))?;
                let segment = book.segments.get(place.segment);
                (place, segment.generation, Arc::clone(&segment.file))
            };
            let (place, generation, file) = found;
            match self.read_frame(&file, generation, place, whole) {
                Ok(message) if message.id == id.to_u64() => return Ok(message),
                // Moved while it was read: look again; at the same place it is damage.
                Ok(_) | Err(ReadError::Damaged(_)) if tried != Some(place) => tried = Some(place),
                Ok(_) => return Err(self.corrupt(id, place, "another message lies there")),
                Err(ReadError::Damaged(what)) => return Err(self.corrupt(id, place, what)),
                Err(ReadError::Io(error)) => {
                    let what = format!("segment {} offset {}: {error}", place.segment, place.offset);
                    return Err(Error::Unreadable { id, what });
                }
            }
        }
    }

    fn corrupt(&self, id: QueueId, place: Place, what: &str) -> Error {
        Error::Corrupt {
            id,
            what: format!("shard {:02} segment {} offset {}: {what}", self.number, place.segment, place.offset),
        }
    }

    /// Reads and checks the frame of a message.
    pub(crate) fn read_frame(
        &self,
        file: &Arc<dyn DiskFile>,
        generation: u64,
        place: Place,
        whole: bool,
    ) -> Result<ReadMessage, ReadError> {
        let seed = self.seed(generation);
        let (start, skip) = (round_down(place.offset as usize), place.offset as usize % crate::disk::BLOCK);
        let wanted = if whole { skip + place.size as usize } else { skip + (place.size as usize).min(8 << 10) };
        let mut buffer = AlignedBuf::new(round_up(wanted));
        file.read_at(buffer.as_mut_slice(), start as u64).map_err(ReadError::Io)?;
        let bytes = buffer.as_slice().get(skip..).unwrap_or_default();
        let header = FrameHeader::decode(seed, bytes).ok_or(ReadError::Damaged("no frame of this generation"))?;
        if !header.is_message() || header.frame_bytes() != place.size as usize {
            return Err(ReadError::Damaged("a different frame lies there"));
        }
        let first_end = FrameHeader::SIZE + header.lengths.0 as usize;
        if !whole && (first_end > bytes.len() || header.has_chunk_list()) && wanted < skip + place.size as usize {
            return self.read_frame(file, generation, place, true);
        }
        let first = bytes.get(FrameHeader::SIZE..first_end).unwrap_or_default();
        let message = ReadMessage::of_envelope(&header, first);
        let mut message = message.ok_or(ReadError::Damaged("the envelope does not match its checksum"))?;
        if whole || header.has_chunk_list() {
            let Found::Whole(frame) = Frame::find(seed, bytes) else {
                if !whole {
                    // The envelope is sound: its sender can be told. Without a list in memory the size is wrong, but
                    // never 0: a reader of the body gets an error.
                    let book = lock(&self.book);
                    let known = book.index.chunks(header.id).filter(|chunks| !chunks.places.is_empty());
                    message.body_bytes = known.map_or(message.body_bytes, ChunkList::content_bytes);
                    drop(book);
                    return Ok(message);
                }
                return Err(ReadError::Damaged("the body does not match its checksum"));
            };
            let (content, list) =
                chunk_list::split(&frame).ok_or(ReadError::Damaged("the body offset makes no sense"))?;
            if header.has_chunk_list() {
                let chunks = ChunkList::read(list).filter(|chunks| chunks.header_bytes as usize == content.len());
                let chunks = chunks.ok_or(ReadError::Damaged("the chunk list makes no sense"))?;
                message.body_bytes = chunks.content_bytes();
                message.chunks = Some(chunks);
            }
            let range = skip + first_end..skip + first_end + content.len();
            message.content = Bytes::from_owner(Slice { buffer, range });
        }
        Ok(message)
    }

    fn read_chunk(&self, id: QueueId, chunk: &ChunkPlace) -> Result<Bytes, Error> {
        let found = {
            let book = lock(&self.book);
            book.segments.slot_of(chunk.generation).map(|slot| (slot, Arc::clone(&book.segments.get(slot).file)))
        };
        let Some((slot, file)) = found else {
            let what = format!("the segment of generation {} with a chunk of it is gone", chunk.generation);
            return Err(Error::Corrupt { id, what });
        };
        let place = Place { segment: slot, offset: chunk.offset, size: 0, ordinal: chunk.ordinal };
        match self.read_chunk_frame(&file, chunk, id.to_u64()) {
            Ok(bytes) => Ok(bytes),
            Err(ReadError::Damaged(what)) => Err(self.corrupt(id, place, what)),
            Err(ReadError::Io(error)) => {
                Err(Error::Unreadable { id, what: format!("segment {slot} offset {}: {error}", chunk.offset) })
            }
        }
    }

    /// Reads and checks a chunk.
    pub(crate) fn read_chunk_frame(
        &self,
        file: &Arc<dyn DiskFile>,
        chunk: &ChunkPlace,
        id: u64,
    ) -> Result<Bytes, ReadError> {
        let (start, skip) = (round_down(chunk.offset as usize), chunk.offset as usize % crate::disk::BLOCK);
        let bytes = Batch::frame_bytes(8, chunk.bytes as usize);
        let mut buffer = AlignedBuf::new(round_up(skip + bytes));
        file.read_at(buffer.as_mut_slice(), start as u64).map_err(ReadError::Io)?;
        let found = Frame::find(self.seed(chunk.generation), buffer.as_slice().get(skip..).unwrap_or_default());
        match found {
            Found::Whole(frame)
                if frame.header.kind == Kind::Chunk && frame.header.id == id && frame.header.crcs.1 == chunk.crc =>
            {
                let at = skip + FrameHeader::SIZE + 8;
                let range = at..at + frame.second.len();
                Ok(Bytes::from_owner(Slice { buffer, range }))
            }
            Found::Whole(_) => Err(ReadError::Damaged("another frame lies there")),
            Found::Damaged(..) => Err(ReadError::Damaged("a chunk does not match its checksum")),
            Found::Nothing => Err(ReadError::Damaged("no chunk of this generation")),
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let figure = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let book = lock(&self.book);
        let segments = &book.segments;
        let live_bytes = segments.iter().map(|(_, segment)| segment.live_bytes).sum();
        Statistics {
            messages: book.index.messages(),
            recipients: book.index.recipients(),
            held: book.index.held(),
            destinations: book.index.destinations(),
            live_bytes,
            segments: segments.usable() as u64,
            segments_free: segments.free_count() as u64,
            segments_bad: (segments.count(Phase::Retired)
                + segments.count(Phase::Failed)
                + segments.count(Phase::Damaged)) as u64,
            segments_max: u64::from(self.config.segments_max()),
            commits: figure(&self.counters.commits),
            batches: figure(&self.counters.batches),
            syncs: figure(&self.counters.syncs),
            bytes_written: figure(&self.counters.bytes_written),
            body_bytes: figure(&self.counters.body_bytes),
            relocated: figure(&self.counters.relocated),
            failures: figure(&self.counters.failures),
            cache_hits: figure(&self.counters.cache_hits),
            cache_misses: figure(&self.counters.cache_misses),
            shared_hits: figure(&self.counters.shared_hits),
            shared_misses: figure(&self.counters.shared_misses),
            index_bytes: book.index.bytes(),
            cache_bytes: lock(&self.cache).bytes() as u64,
            shared_bytes: lock(&self.shared).bytes() as u64,
        }
    }
}

/// The envelope section of a new message; `None` if it is too long.
pub(crate) fn encode_envelope(message: &NewMessage<'_>, header_bytes: u32, count: u32) -> Option<Bytes> {
    let mut writer = EnvelopeWriter::new(header_bytes, message.head, count).ok()?;
    let status = if message.state.status == Status::Held { Status::Held } else { Status::Waiting };
    let first = Sequenced { state: State { status, ..message.state }, sequence: 0 };
    for recipient in message.recipients {
        let NewRecipient { data, destination } = *recipient;
        writer.recipient(first, NewRecipient { data, destination }, message.hold).ok()?;
    }
    Some(writer.into_bytes().into())
}

/// A message's frame as it was read.
#[derive(Debug)]
pub(crate) struct ReadMessage {
    pub(crate) id: u64,
    pub(crate) envelope: Bytes,
    /// The part of the content in the frame: all of it, or the header section if the body is in chunks.
    pub(crate) content: Bytes,
    /// Bytes of the whole content.
    pub(crate) body_bytes: u64,
    pub(crate) chunks: Option<ChunkList>,
}

impl ReadMessage {
    /// Makes a message without its content of the header of its frame and the first section. `None`: they do not match.
    pub(crate) fn of_envelope(header: &FrameHeader, first: &[u8]) -> Option<Self> {
        (crc32c::crc32c(first) == header.crcs.0).then(|| Self {
            id: header.id,
            envelope: Bytes::copy_from_slice(first),
            content: Bytes::new(),
            body_bytes: u64::from(header.lengths.1),
            chunks: None,
        })
    }
}

/// The part of some content that is in a range; `from` begins at `start` of it.
pub(crate) fn cut(from: &Bytes, start: u64, range: &Range<u64>) -> Bytes {
    let clamp = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX).min(from.len());
    from.slice(clamp(range.start)..clamp(range.end).max(clamp(range.start)))
}

/// Why a frame could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    Io(std::io::Error),
    Damaged(&'static str),
}

/// A part of an aligned buffer, as the owner of shared bytes.
struct Slice {
    buffer: AlignedBuf,
    range: Range<usize>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice().get(self.range.clone()).unwrap_or_default()
    }
}
