//! The committer: the one writer of a shard's hot segments, on a thread of its own.
//!
//! Takes what gathered while it was writing, gives it a place, writes and syncs it, puts it into the books, wakes the
//! waiters. [`Committer::step`] does one batch, so that a test can drive it without a thread.
//!
//! A failed write or sync ends the segment for ever: its batch is declared failed, its recorded states go with the next
//! one, and the janitor empties it. Two failures in a row make the shard read-only.

use crate::batch::{Batch, Content};
use crate::chunk_list::{ChunkList, ChunkPlace};
use crate::commit::Cell;
use crate::error::Error;
use crate::event::Event;
use crate::format::{FLAG_FOREIGN, FrameHeader, Kind};
use crate::log::OpenSegment;
use crate::segments::Phase;
use crate::shard::{Chores, Shard, count, lock};
use crate::staging::{Taken, Work};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

/// Failures in a row after which a shard takes no more writes.
const FAILURES_MAX: u32 = 2;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A batch was written, or failed.
    Worked,
    /// Nothing to do before this moment of the disk's clock, or before something arrives.
    Idle(Option<u64>),
    /// A batch waits for a free segment.
    NeedSegment,
    /// Everything was written after the queue was closed.
    Closed,
}

/// The writer of a shard's hot segments.
#[derive(Debug)]
pub(crate) struct Committer {
    shard: Arc<Shard>,
    /// Other shards, to take our states when we can no longer write.
    peers: Vec<Weak<Shard>>,
    open: Option<OpenSegment>,
    /// The last hot segment and how far it is durable.
    previous: (u64, u32),
    /// A batch that waits for a segment.
    waiting: Option<Taken>,
    /// The janitor had its rounds to make one.
    has_waited: bool,
    /// Waiters of states that went back after a failure.
    carried: Vec<Arc<Cell>>,
    failures: u32,
    /// When the last batch with messages was written, if nothing attests it yet.
    unattested: Option<u64>,
}

impl Committer {
    pub(crate) fn new(shard: Arc<Shard>, previous: (u64, u32)) -> Self {
        Self {
            shard,
            peers: Vec::new(),
            open: None,
            previous,
            waiting: None,
            has_waited: false,
            carried: Vec::new(),
            failures: 0,
            unattested: None,
        }
    }

    pub(crate) fn set_peers(&mut self, peers: Vec<Weak<Shard>>) {
        self.peers = peers;
    }

    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        loop {
            let work = match self.waiting.take() {
                Some(taken) => Work::Write(taken),
                None => self.shard.staging.wait(|| self.shard.disk.now_us(), self.to_attest()),
            };
            match self.work(work) {
                Step::NeedSegment => {
                    if !self.wait_for_segment() && self.shard.staging.is_closing() {
                        // No room for the last states: they are forgotten, and their recipients tried again.
                        break;
                    }
                }
                Step::Closed => break,
                Step::Worked | Step::Idle(_) => {}
            }
        }
    }

    /// Does at most one batch, and never waits.
    pub(crate) fn step(&mut self) -> Step {
        let work = match self.waiting.take() {
            Some(taken) => Work::Write(taken),
            None => self.shard.staging.take(self.shard.disk.now_us(), self.to_attest()),
        };
        self.work(work)
    }

    /// When [`Committer::step`] has something to do; 0 for at once.
    pub(crate) fn due_us(&self) -> Option<u64> {
        if self.waiting.is_some() { Some(0) } else { self.shard.staging.due_us(self.to_attest()) }
    }

    /// When the last batch was written, if it is to be attested and that can be done.
    fn to_attest(&self) -> Option<u64> {
        self.unattested.filter(|_| !self.shard.is_read_only())
    }

    fn work(&mut self, work: Work) -> Step {
        match work {
            Work::Write(taken) => self.commit(taken),
            Work::Sleep(until) => Step::Idle(until),
            Work::Close => {
                self.close_segment();
                Step::Closed
            }
        }
    }

    /// Waits until the janitor has found a segment; `false` if it cannot, and the waiting batch was given up.
    fn wait_for_segment(&mut self) -> bool {
        let shard = Arc::clone(&self.shard);
        let mut chores = lock(&shard.chores);
        let enough = chores.rounds + 2;
        while (shard.free.load(Ordering::Relaxed) == 0 || shard.awaits_growth())
            && chores.rounds < enough
            && !shard.is_read_only()
        {
            chores.rung = true;
            shard.bell.notify_all();
            chores = wait(&shard, chores);
        }
        let hopeless = shard.free.load(Ordering::Relaxed) == 0 && (chores.stuck || shard.is_read_only());
        drop(chores);
        if hopeless {
            self.give_up();
        }
        !hopeless
    }

    /// Declares the waiting batch failed for a lack of room; its states stay in the queue.
    pub(crate) fn give_up(&mut self) {
        if let Some(taken) = self.waiting.take() {
            self.refuse(taken);
        }
    }

    fn commit(&mut self, mut taken: Taken) -> Step {
        if self.shard.is_read_only() {
            self.refuse(taken);
            return Step::Worked;
        }
        let (bytes, footer_bytes) = (taken.batch.bytes(), taken.batch.footer_bytes);
        let wants_map = taken.livemap;
        if self.open.as_ref().is_some_and(|open| !open.fits(&self.shard, bytes, footer_bytes)) {
            self.close_segment();
        }
        let fresh = self.open.is_none();
        if fresh && !self.open_segment() {
            self.waiting = Some(taken);
            return Step::NeedSegment;
        }
        let fits =
            |more: usize| self.open.as_ref().is_some_and(|open| open.fits(&self.shard, bytes + more, footer_bytes));
        assert!(fits(0), "no batch is larger than a segment");
        let map = if fresh || wants_map { self.livemap() } else { None };
        // Without a map nothing is reclaimed on its strength, and nothing else depends on it.
        let map = map.filter(|map| fits(map.bytes()));
        self.write(&mut taken, map);
        Step::Worked
    }

    /// The open segment has taken its last batch.
    fn close_segment(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.previous = open.durable();
        lock(&self.shard.book).segments.close(open.slot, Phase::Closed);
        lock(&self.shard.chores).closed.push(open.close());
        self.shard.ring();
    }

    /// Takes a free segment. A reserved one is taken after the janitor has tried to make another: until the storage has
    /// refused that, mail is admitted which would use up the reserve.
    fn open_segment(&mut self) -> bool {
        if !std::mem::replace(&mut self.has_waited, true) && self.shard.awaits_growth() {
            return false;
        }
        let reuse = self.shard.config.sabotage().reuse_generation;
        let slot = {
            let mut book = lock(&self.shard.book);
            let slot = book.segments.open(false, reuse);
            self.shard.note_free(&book);
            slot
        };
        self.shard.ring();
        self.open = slot.map(|slot| OpenSegment::new(&self.shard, slot, false, self.previous));
        self.has_waited &= self.open.is_none();
        self.open.is_some()
    }

    /// A batch with the LIVEMAP of this moment.
    fn livemap(&self) -> Option<Batch> {
        if self.shard.config.sabotage().skip_livemap {
            return None;
        }
        let section = lock(&self.shard.book).segments.livemap().write();
        let header = FrameHeader::over(Kind::Livemap, 0, 0, &[], &section)?;
        let mut batch = Batch::new(header.frame_bytes());
        batch.push(header, &[], &section, 0, Content::Other);
        Some(batch)
    }

    /// Writes a batch, after a LIVEMAP if there is one, and settles its fate.
    fn write(&mut self, taken: &mut Taken, mut map: Option<Batch>) {
        let Some(mut open) = self.open.take() else { return };
        let map_base = open.offset;
        let base = map_base + map.as_ref().map_or(0, Batch::bytes);
        self.fill_lists(&open, base, &mut taken.batch);
        let mut batches: Vec<&mut Batch> = map.iter_mut().chain([&mut taken.batch]).collect();
        open.seal(&mut batches);
        if self.shard.config.sabotage().ack_before_sync {
            taken.batch.cell.settle(&Ok(()));
        }
        let batches: Vec<&Batch> = map.iter().chain([&taken.batch]).collect();
        if let Err(error) = open.write(&self.shard, &batches) {
            self.failed(open, taken, &error);
            return;
        }
        self.failures = 0;
        for item in map.iter().flat_map(|map| &map.items) {
            open.publish(map_base, item);
        }
        self.publish(&mut open, base, taken, map.is_some());
        self.open = Some(open);
    }

    /// Writes the chunk lists of references. One whose chunks are not all there fails, and with it the messages that
    /// are stored with it or not at all.
    fn fill_lists(&self, open: &OpenSegment, base: usize, batch: &mut Batch) {
        // Without the frames of a failed message the others have other ordinals, so the lists are made again.
        let lists = loop {
            match self.chunk_lists(open, base, batch) {
                Ok(lists) => break lists,
                Err(cell) => {
                    let mut book = lock(&self.shard.book);
                    batch.fail(&cell).into_iter().for_each(|id| book.reference_failed(id));
                }
            }
        };
        for (at, list) in lists {
            batch.fill_list(at, list);
        }
    }

    /// The chunk lists of the references in a batch, each with the index of its item.
    ///
    /// # Errors
    /// The cell of the first message whose chunks are not all there.
    fn chunk_lists(
        &self,
        open: &OpenSegment,
        base: usize,
        batch: &Batch,
    ) -> Result<Vec<(usize, ChunkList)>, Arc<Cell>> {
        let mut fresh: Vec<(u64, u32, ChunkPlace)> = Vec::new();
        let mut lists = Vec::new();
        let mut ordinal = open.next_ordinal();
        for (at, item) in batch.items.iter().enumerate() {
            match &item.content {
                Content::Chunk { number } => {
                    fresh.push((item.header.id, *number, open.chunk_place(base, item.offset, &item.header, ordinal)));
                }
                Content::Reference { header, chunks, bytes, cell, .. } => {
                    let places = lock(&self.shard.book).chunk_list(item.header.id, *chunks, *bytes, &fresh);
                    let places = places.ok_or_else(|| Arc::clone(cell))?.into();
                    let header_bytes = u32::try_from(header.len()).unwrap_or(u32::MAX);
                    lists.push((at, ChunkList { header_bytes, places }));
                }
                _ => {}
            }
            ordinal += u32::from(item.header.kind.kept());
        }
        Ok(lists)
    }

    /// Puts a durable batch into the books and wakes its waiters.
    fn publish(&mut self, open: &mut OpenSegment, base: usize, taken: &mut Taken, mapped: bool) {
        let shard = Arc::clone(&self.shard);
        let (mut commits, mut body_bytes) = (0, 0);
        {
            let mut book = lock(&shard.book);
            for item in &taken.batch.items {
                book.publish(open.slot, base, item);
            }
            let livemap = open.livemap();
            let segment = book.segments.get_mut(open.slot);
            segment.data_end = open.durable().1;
            if mapped {
                book.segments.mapped(open.slot, livemap);
            }
        }
        let cells = taken.batch.cells();
        for item in &taken.batch.items {
            open.publish(base, item);
            if item.header.is_message() {
                commits += 1;
            }
            body_bytes += match &item.content {
                Content::Message { .. } | Content::Chunk { .. } => u64::from(item.header.lengths.1),
                Content::Reference { header, .. } => header.len() as u64,
                _ => 0,
            };
            if item.header.flags & FLAG_FOREIGN != 0 && matches!(item.header.kind, Kind::State | Kind::Done) {
                lock(&shard.book).segments.get_mut(open.slot).foreign = true;
            }
        }
        if let Some(recorded) = taken.recorded {
            shard.staging.flushed(recorded);
        }
        if mapped {
            shard.mapped();
        }
        if (mapped || taken.recorded.is_some()) && shard.lacking() != (0, 0) {
            shard.ring();
        }
        count(&shard.counters.commits, commits);
        count(&shard.counters.body_bytes, body_bytes);
        self.remember(taken);
        for cell in cells {
            cell.settle(&Ok(()));
        }
        if let Some(cell) = taken.states.take() {
            self.carried.push(cell);
            for cell in self.carried.drain(..) {
                cell.settle(&Ok(()));
            }
        }
        self.unattested = (commits > 0).then(|| shard.disk.now_us());
        let batch = std::mem::replace(&mut taken.batch, Batch::none());
        shard.staging.finished(taken.staged, batch.into_buffer());
    }

    /// Keeps bodies for their first delivery.
    fn remember(&self, taken: &mut Taken) {
        let mut chunks = taken.batch.take_chunks().into_iter();
        let mut cache = lock(&self.shard.cache);
        for item in &mut taken.batch.items {
            let id = item.header.id;
            match std::mem::replace(&mut item.content, Content::Other) {
                Content::Message { waits: true, .. } => {}
                Content::Reference { waits: true, .. } => cache.remove(id),
                Content::Message { envelope, content, .. } => cache.put(id, envelope, content),
                Content::Reference { envelope, header, chunks, .. } => cache.complete(id, chunks, envelope, header),
                Content::Chunk { number } => {
                    if let Some(chunk) = chunks.next() {
                        cache.put_part(id, number, bytes::Bytes::from_owner(chunk));
                    }
                }
                _ => {}
            }
        }
    }

    /// Handles a failed write or sync: no client gets 250, no message of the batch is delivered, no batch goes to this
    /// segment any more.
    fn failed(&mut self, open: OpenSegment, taken: &mut Taken, error: &std::io::Error) {
        count(&self.shard.counters.failures, 1);
        self.shard.tell(Event::SegmentFailed {
            segment: open.slot,
            doing: "writing a batch",
            error: error.to_string(),
        });
        self.failures += 1;
        self.previous = open.durable();
        {
            let mut book = lock(&self.shard.book);
            // Frames of this batch that may have reached the disk are covered by the next LIVEMAP, as dead.
            let segment = book.segments.get_mut(open.slot);
            segment.frames = segment.frames.max(open.next_ordinal());
            book.segments.close(open.slot, Phase::Failed);
        }
        self.shard.ring();
        let empty = Taken { batch: Batch::none(), states: None, staged: 0, livemap: false, recorded: None };
        let taken = std::mem::replace(taken, empty);
        if self.failures >= FAILURES_MAX {
            self.shard.read_only.store(true, Ordering::Release);
            self.shard.tell(Event::ReadOnly { shard: self.shard.number });
        }
        self.take_back(taken, true);
        if self.shard.is_read_only() {
            self.poison();
        }
    }

    /// A batch that was not written at all.
    fn refuse(&mut self, taken: Taken) {
        self.take_back(taken, false);
    }

    /// Tells the waiters of a batch that it failed and keeps its states; `written` if some of it may be on the disk.
    fn take_back(&mut self, mut taken: Taken, written: bool) {
        let now_us = self.shard.disk.now_us();
        self.unattested = None;
        let mut revoked = Vec::new();
        let cells = taken.batch.cells();
        for item in std::mem::take(&mut taken.batch.items) {
            let foreign = item.header.flags & FLAG_FOREIGN != 0;
            match item.content {
                Content::Message { .. } => revoked.push(item.header.id),
                Content::Reference { .. } => {
                    revoked.push(item.header.id);
                    lock(&self.shard.book).reference_failed(item.header.id);
                }
                Content::Chunk { .. } => lock(&self.shard.book).chunk_failed(item.header.id),
                Content::States(entries) => self.shard.staging.put_back(entries, Vec::new(), foreign, now_us),
                Content::Done(ids) => self.shard.staging.put_back(Vec::new(), ids, foreign, now_us),
                Content::Moved { .. } | Content::Other => {}
            }
        }
        if written && !revoked.is_empty() {
            // The client gets 451 and sends again: a copy that may be on the disk must not be delivered as well.
            self.shard.staging.put_back(Vec::new(), revoked, false, now_us);
        }
        self.carried.extend(taken.states.take());
        for cell in cells {
            cell.settle(&Err(Error::Failed));
        }
        self.shard.staging.finished(taken.staged, taken.batch.into_buffer());
    }

    /// Refuses everything from now on, and hands recorded states to a shard that can still write.
    fn poison(&mut self) {
        let left = self.shard.staging.poison();
        for cell in left.cells {
            cell.settle(&Err(Error::Poisoned));
        }
        let peer = self.peers.iter().filter_map(Weak::upgrade).find(|peer| !peer.is_read_only());
        let handed = peer.and_then(|peer| peer.staging.add(left.recorded, true, peer.disk.now_us()).ok());
        let result = if handed.is_some() { Error::Failed } else { Error::Poisoned };
        for cell in self.carried.drain(..) {
            // States handed to another shard are not durable yet, so the callers that wait for them get an error.
            cell.settle(&Err(result.clone()));
        }
    }
}

impl Drop for Committer {
    /// Every waiting caller gets an answer: callers whose states found no room, and, should this thread have panicked,
    /// the rest.
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        if panicked {
            self.shard.give_up();
        }
        let fate = if panicked { Error::Poisoned } else { Error::Failed };
        for cell in self.carried.drain(..) {
            cell.settle(&Err(fate.clone()));
        }
    }
}

/// Waits for the end of a round of the janitor.
fn wait<'a>(shard: &'a Shard, chores: MutexGuard<'a, Chores>) -> MutexGuard<'a, Chores> {
    let timeout = std::time::Duration::from_millis(100);
    shard.bell.wait_timeout(chores, timeout).unwrap_or_else(PoisonError::into_inner).0
}
