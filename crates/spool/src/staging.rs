//! The queue in front of a committer: where sessions leave frames and recorded states, and where they are told to wait.
//!
//! A lock held for one copy of one frame; nothing here touches the disk. Frames that gather while the committer writes
//! are its next batch: there is no timer but the one that bounds how long a recorded state waits on an idle spool.

use crate::batch::{Batch, Content, MessageFrame};
use crate::buffer::AlignedBuf;
use crate::commit::{Cell, Commit};
use crate::config::Config;
use crate::disk::BLOCK;
use crate::error::Error;
use crate::format::{FLAG_FOREIGN, FrameHeader, Kind};
use crate::sections::StateEntry;
use crate::store::Chunk;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Buffers kept for the next batches.
const SPARES_MAX: usize = 3;

/// Limits of a staging queue, in bytes and microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    batch_bytes_max: usize,
    staged_bytes_max: usize,
    inline_bytes_max: usize,
    state_delay_us: u64,
    /// Bytes that an empty segment offers to batches and footer together.
    segment_room: usize,
    /// Bytes kept in each batch's buffer for recorded states that ride along.
    state_room: usize,
}

impl Limits {
    /// The limits that follow from a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        // Without header and trailer, and the padding of the footer.
        let segment_room = (config.segment_bytes as usize).saturating_sub(3 * BLOCK);
        Self {
            batch_bytes_max: config.batch_bytes_max.min(segment_room / 4),
            staged_bytes_max: config.staged_bytes_max,
            inline_bytes_max: config.inline_bytes_max(),
            state_delay_us: config.state_delay_ms * 1000,
            segment_room,
            state_room: (256 << 10).min(segment_room / 8),
        }
    }

    /// A batch larger than this starts the next one.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        self.batch_bytes_max
    }

    /// Bytes of recorded states that one batch takes.
    pub(crate) fn state_room(&self) -> usize {
        self.state_room
    }

    /// Bytes of the longest destination that can be recorded: a state entry must fit into one batch.
    pub(crate) fn name_bytes_max(&self) -> usize {
        crate::sections::NAME_BYTES_MAX.min(self.state_room / 2)
    }

    /// Bytes of frames that a batch's buffer holds.
    pub(crate) fn batch_capacity(&self) -> usize {
        self.batch_bytes_max + self.inline_bytes_max + self.state_room
    }

    /// The largest frame: it must fit into a segment together with its part of the footer, states and a LIVEMAP.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.segment_room / 4
    }
}

/// The next task of the committer.
#[derive(Debug)]
pub(crate) enum Work {
    /// Write this.
    Write(Taken),
    /// Nothing before this moment (microseconds of the disk's clock), or before something arrives.
    Sleep(Option<u64>),
    /// The spool is being closed and everything has been taken.
    Close,
}

/// A batch on its way to the disk.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) batch: Batch,
    /// Resolved together with the batch: the waiters of recorded states.
    pub(crate) states: Option<Arc<Cell>>,
    /// Bytes it counted for in the queue.
    pub(crate) staged: usize,
    /// A LIVEMAP was asked for.
    pub(crate) livemap: bool,
    /// With this batch so many recorded states are durable.
    pub(crate) recorded: Option<u64>,
}

/// The remains of a poisoned queue.
#[derive(Debug)]
pub(crate) struct Left {
    /// The cells of all callers that wait.
    pub(crate) cells: Vec<Arc<Cell>>,
    pub(crate) recorded: StagedStates,
}

/// States and ends of messages that wait for a batch.
#[derive(Debug, Default)]
pub(crate) struct StagedStates {
    states: VecDeque<StateEntry>,
    done: VecDeque<u64>,
    /// Queue ids that a failed batch has ended: each list goes into one batch, so that messages that are stored all or
    /// none are also revoked all or none.
    together: VecDeque<Vec<u64>>,
}

impl StagedStates {
    fn is_empty(&self) -> bool {
        self.states.is_empty() && self.done.is_empty() && self.together.is_empty()
    }

    fn len(&self) -> usize {
        self.states.len() + self.done.len() + self.together.iter().map(Vec::len).sum::<usize>()
    }

    fn append(&mut self, mut other: Self) {
        self.states.append(&mut other.states);
        self.done.append(&mut other.done);
        self.together.append(&mut other.together);
    }
}

#[derive(Debug)]
struct Queue {
    batches: VecDeque<(Batch, usize)>,
    spares: Vec<AlignedBuf>,
    own: StagedStates,
    foreign: StagedStates,
    states_cell: Arc<Cell>,
    /// When the oldest recorded state was recorded.
    oldest_us: Option<u64>,
    /// How many states have been recorded, and how many of them are durable, at the least.
    recorded: u64,
    flushed: u64,
    /// Bytes waiting and being written.
    staged: usize,
    /// Those who wait for room.
    room: Option<Arc<Cell>>,
    sleeping: bool,
    livemap: bool,
    closing: bool,
    poisoned: bool,
}

/// The queue in front of a committer.
#[derive(Debug)]
pub(crate) struct Staging {
    queue: Mutex<Queue>,
    work: Condvar,
    limits: Limits,
}

impl Staging {
    pub(crate) fn new(limits: Limits) -> Self {
        let queue = Queue {
            batches: VecDeque::new(),
            spares: Vec::new(),
            own: StagedStates::default(),
            foreign: StagedStates::default(),
            states_cell: Arc::default(),
            oldest_us: None,
            recorded: 0,
            flushed: 0,
            staged: 0,
            room: None,
            sleeping: false,
            livemap: false,
            closing: false,
            poisoned: false,
        };
        Self { queue: Mutex::new(queue), work: Condvar::new(), limits }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message to the open batch.
    pub(crate) fn push(&self, message: MessageFrame) -> Result<Commit, Error> {
        let MessageFrame { header, first, second, footer_bytes, content } = message;
        let bytes = header.frame_bytes();
        let mut queue = self.lock();
        self.admit(&queue, bytes)?;
        let batch = self.open_batch(&mut queue, bytes + footer_bytes);
        batch.push(header, &first, &second, footer_bytes, content);
        let commit = Commit::new(&batch.cell);
        self.staged(queue, bytes);
        Ok(commit)
    }

    /// Adds several messages to one batch. Recovery takes or drops a batch whole, so a crash leaves all of them or
    /// none.
    ///
    /// With `apart` each gets a batch of its own: the rule that the proofs must miss.
    pub(crate) fn push_all(&self, messages: Vec<MessageFrame>, apart: bool) -> Result<(), Error> {
        let sizes = |one: &MessageFrame| (one.header.frame_bytes(), one.footer_bytes);
        let (bytes, footer) = messages.iter().map(sizes).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut queue = self.lock();
        self.admit(&queue, bytes)?;
        let mut batch = self.open_batch(&mut queue, bytes + footer);
        for MessageFrame { header, first, second, footer_bytes, content } in messages {
            batch.push(header, &first, &second, footer_bytes, content);
            if apart {
                queue.batches.push_back((Batch::new(self.limits.batch_capacity().max(bytes)), 0));
                batch = self.open_batch(&mut queue, 0);
            }
        }
        self.staged(queue, bytes);
        Ok(())
    }

    /// Adds a chunk of a large body to the open batch.
    pub(crate) fn push_chunk(&self, id: u64, number: u32, chunk: Chunk) -> Result<Commit, Error> {
        let mut queue = self.lock();
        // It is in memory already, one or two of them for each session: it neither waits for room nor counts for it.
        self.admit(&queue, 0)?;
        let batch = self.open_batch(&mut queue, Batch::CHUNK_ROOM);
        batch.push_chunk(id, number, chunk);
        let commit = Commit::new(&batch.cell);
        self.staged(queue, 0);
        Ok(commit)
    }

    fn admit(&self, queue: &Queue, bytes: usize) -> Result<(), Error> {
        if queue.poisoned {
            return Err(Error::Poisoned);
        }
        if queue.closing {
            return Err(Error::Failed);
        }
        if bytes > 0 && queue.staged > 0 && queue.staged + bytes > self.limits.staged_bytes_max {
            return Err(Error::Busy);
        }
        Ok(())
    }

    /// The batch that takes a frame of `bytes`, a new one if the last is full.
    fn open_batch<'a>(&self, queue: &'a mut Queue, bytes: usize) -> &'a mut Batch {
        let limits = &self.limits;
        let fits = queue.batches.back().is_some_and(|(batch, _)| {
            batch.bytes() < limits.batch_bytes_max
                && batch.room() >= bytes + limits.state_room
                && batch.bytes() + batch.footer_bytes + bytes + 2 * limits.state_room <= limits.segment_room * 3 / 4
        });
        if !fits {
            let spare =
                if bytes + limits.state_room <= self.limits.batch_capacity() { queue.spares.pop() } else { None };
            let batch = spare
                .map_or_else(|| Batch::new(self.limits.batch_capacity().max(bytes + limits.state_room)), Batch::reuse);
            queue.batches.push_back((batch, 0));
        }
        let (batch, _) = queue.batches.back_mut().expect("one was pushed if there was none");
        batch
    }

    fn staged(&self, mut queue: MutexGuard<'_, Queue>, bytes: usize) {
        queue.staged += bytes;
        if let Some((_, staged)) = queue.batches.back_mut() {
            *staged += bytes;
        }
        self.ring(queue);
    }

    fn ring(&self, mut queue: MutexGuard<'_, Queue>) {
        let sleeping = std::mem::take(&mut queue.sleeping);
        drop(queue);
        if sleeping {
            self.work.notify_one();
        }
    }

    /// Adds recorded states and finished messages; `foreign` ones are about messages of another shard.
    pub(crate) fn record(
        &self,
        states: Vec<StateEntry>,
        done: Vec<u64>,
        foreign: bool,
        now_us: u64,
    ) -> Result<Commit, Error> {
        self.add(StagedStates { states: states.into(), done: done.into(), together: VecDeque::new() }, foreign, now_us)
    }

    /// Adds recorded states; `foreign` as in [`Staging::record`].
    pub(crate) fn add(&self, more: StagedStates, foreign: bool, now_us: u64) -> Result<Commit, Error> {
        let mut queue = self.lock();
        if queue.poisoned {
            return Err(Error::Poisoned);
        }
        if more.is_empty() && queue.recorded == queue.flushed {
            return Ok(Commit::settled(&Ok(())));
        }
        queue.recorded += more.len() as u64;
        let recorded = if foreign { &mut queue.foreign } else { &mut queue.own };
        recorded.append(more);
        let commit = Commit::new(&queue.states_cell);
        if queue.oldest_us.is_none() {
            queue.oldest_us = Some(now_us);
            // The committer may be asleep without a date.
            self.ring(queue);
        }
        Ok(commit)
    }

    /// Puts states of a failed batch back in front, with those who wait for them. The messages of `done` go together
    /// into one batch, unless they are more than one takes.
    pub(crate) fn put_back(&self, states: Vec<StateEntry>, done: Vec<u64>, foreign: bool, now_us: u64) {
        let mut queue = self.lock();
        let recorded = if foreign { &mut queue.foreign } else { &mut queue.own };
        for entry in states.into_iter().rev() {
            recorded.states.push_front(entry);
        }
        for ids in done.chunks(usable(self.limits.state_room) / 8).rev() {
            recorded.together.push_front(ids.to_vec());
        }
        queue.oldest_us.get_or_insert(now_us);
    }

    /// How many states have been recorded, and how many of them are durable at the least.
    pub(crate) fn recorded(&self) -> (u64, u64) {
        let queue = self.lock();
        (queue.recorded, queue.flushed)
    }

    /// The first `recorded` states are durable.
    pub(crate) fn flushed(&self, recorded: u64) {
        let mut queue = self.lock();
        queue.flushed = queue.flushed.max(recorded);
    }

    /// Asks for a LIVEMAP in the next batch, and for a batch soon.
    pub(crate) fn want_livemap(&self) {
        let mut queue = self.lock();
        if !queue.livemap {
            queue.livemap = true;
            self.ring(queue);
        }
    }

    /// Returns the next task of the committer; `attest` if its last batch has nothing after it that proves it was
    /// durable.
    pub(crate) fn take(&self, now_us: u64, attest: Option<u64>) -> Work {
        let mut queue = self.lock();
        self.take_locked(&mut queue, now_us, attest)
    }

    /// When [`Staging::take`] has something to write; 0 for at once.
    pub(crate) fn due_us(&self, attest: Option<u64>) -> Option<u64> {
        let queue = self.lock();
        if !queue.batches.is_empty() || queue.livemap && !queue.closing {
            return Some(0);
        }
        let until = [queue.oldest_us, attest].into_iter().flatten().min();
        until.map(|since| if queue.closing { 0 } else { since + self.limits.state_delay_us })
    }

    /// As [`Staging::take`], sleeping until there is something to do; `clock` reads the disk's clock.
    pub(crate) fn wait(&self, clock: impl Fn() -> u64, attest: Option<u64>) -> Work {
        let mut queue = self.lock();
        let mut has_yielded = false;
        loop {
            if !has_yielded && !queue.batches.is_empty() {
                // Where processors are short, threads that are about to stage run first and ride with this batch; where
                // one is idle this costs a system call. No time is waited for.
                has_yielded = true;
                drop(queue);
                std::thread::yield_now();
                queue = self.lock();
                continue;
            }
            let now_us = clock();
            match self.take_locked(&mut queue, now_us, attest) {
                Work::Sleep(until) => {
                    queue.sleeping = true;
                    queue = match until {
                        None => self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
                        Some(until) => {
                            let time = Duration::from_micros(until.saturating_sub(now_us).max(100));
                            self.work.wait_timeout(queue, time).unwrap_or_else(PoisonError::into_inner).0
                        }
                    };
                    queue.sleeping = false;
                }
                work => return work,
            }
        }
    }

    fn take_locked(&self, queue: &mut Queue, now_us: u64, attest: Option<u64>) -> Work {
        let deadline = |since: u64| since + self.limits.state_delay_us;
        let states_due = queue.oldest_us.is_some_and(|since| deadline(since) <= now_us);
        let attest_due = attest.is_some_and(|since| deadline(since) <= now_us);
        let urgent = queue.closing && (queue.oldest_us.is_some() || attest.is_some());
        let mapping = queue.livemap && !queue.closing;
        if queue.batches.is_empty() && !states_due && !attest_due && !urgent && !mapping {
            if queue.closing {
                return Work::Close;
            }
            let until = [queue.oldest_us, attest].into_iter().flatten().map(deadline).min();
            return Work::Sleep(until);
        }
        let (mut batch, staged) = queue.batches.pop_front().unwrap_or_else(|| {
            let spare = queue.spares.pop();
            (spare.map_or_else(|| Batch::new(self.limits.batch_capacity()), Batch::reuse), 0)
        });
        let states = take_recorded(queue, &mut batch, self.limits.state_room);
        let livemap = std::mem::take(&mut queue.livemap);
        let nothing_left = queue.own.is_empty() && queue.foreign.is_empty();
        Work::Write(Taken { batch, states, staged, livemap, recorded: nothing_left.then_some(queue.recorded) })
    }

    /// The committer is through with a batch: counts its bytes as gone and keeps its buffer.
    pub(crate) fn finished(&self, staged: usize, buffer: AlignedBuf) {
        let mut queue = self.lock();
        queue.staged = queue.staged.saturating_sub(staged);
        let usual = buffer.capacity()
            <= crate::buffer::round_up(crate::format::BatchHeader::SIZE + self.limits.batch_capacity());
        if usual && queue.spares.len() < SPARES_MAX {
            queue.spares.push(buffer);
        }
        if queue.staged <= self.limits.staged_bytes_max / 2
            && let Some(room) = queue.room.take()
        {
            drop(queue);
            room.settle(&Ok(()));
        }
    }

    /// Resolves when about half of the staging room is free.
    pub(crate) fn room(&self) -> Commit {
        let mut queue = self.lock();
        if queue.staged <= self.limits.staged_bytes_max / 2 || queue.poisoned {
            return Commit::settled(&Ok(()));
        }
        Commit::new(queue.room.get_or_insert_default())
    }

    /// Refuses everything from now on; returns the waiting cells and states.
    pub(crate) fn poison(&self) -> Left {
        let mut queue = self.lock();
        queue.poisoned = true;
        queue.staged = 0;
        let mut cells: Vec<_> = queue.batches.drain(..).flat_map(|(batch, _)| batch.cells()).collect();
        cells.push(std::mem::take(&mut queue.states_cell));
        cells.extend(queue.room.take());
        queue.oldest_us = None;
        // The states that it held for another shard are foreign to the next one as well.
        let mut recorded = std::mem::take(&mut queue.own);
        recorded.append(std::mem::take(&mut queue.foreign));
        Left { cells, recorded }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.lock().poisoned
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Takes no more frames; the committer writes the staged ones and ends.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closing = true;
        queue.sleeping = true;
        self.ring(queue);
    }
}

/// Moves as many recorded states as may go into the batch; returns their cell if none is left behind.
fn take_recorded(queue: &mut Queue, batch: &mut Batch, state_room: usize) -> Option<Arc<Cell>> {
    queue.oldest_us?;
    let mut room = usable(state_room.min(batch.room()));
    // The lists that may not be divided come before all that may, which would leave room for a part of them.
    let together = [&mut queue.own, &mut queue.foreign].map(|recorded| {
        let ids = take_together(&mut recorded.together, room);
        room -= ids.len() * 8;
        ids
    });
    for ((recorded, flags), ids) in [(&mut queue.own, 0), (&mut queue.foreign, FLAG_FOREIGN)].into_iter().zip(together)
    {
        room -= take_done(&mut recorded.done, ids, flags, batch, room);
        room -= take_states(&mut recorded.states, flags, batch, room);
    }
    if queue.own.is_empty() && queue.foreign.is_empty() {
        queue.oldest_us = None;
        return Some(std::mem::take(&mut queue.states_cell));
    }
    None
}

/// Moves state entries of at most `room` bytes into a STATE frame; returns their bytes.
fn take_states(from: &mut VecDeque<StateEntry>, flags: u8, batch: &mut Batch, room: usize) -> usize {
    let (mut bytes, mut taken) = (Vec::new(), Vec::new());
    while let Some(entry) = from.pop_front_if(|entry| bytes.len() + entry.encoded_len() <= room) {
        entry.write(&mut bytes);
        taken.push(entry);
    }
    push_recorded(batch, Kind::State, flags, &bytes, Content::States(taken));
    bytes.len()
}

/// The rest of `room` bytes for entries, without the headers of STATE and DONE frames.
fn usable(room: usize) -> usize {
    room.saturating_sub(4 * Batch::frame_bytes(0, 0))
}

/// Takes whole lists of queue ids of at most `room` bytes.
fn take_together(from: &mut VecDeque<Vec<u64>>, room: usize) -> Vec<u64> {
    let mut taken = Vec::new();
    while let Some(ids) = from.pop_front_if(|ids| (taken.len() + ids.len()) * 8 <= room) {
        taken.extend(ids);
    }
    taken
}

/// Moves queue ids of at most `room` bytes into a DONE frame, behind those that are `taken`; returns their bytes.
fn take_done(from: &mut VecDeque<u64>, mut taken: Vec<u64>, flags: u8, batch: &mut Batch, room: usize) -> usize {
    let more = (room / 8).min(from.len());
    taken.extend(from.drain(..more));
    let bytes: Vec<u8> = taken.iter().flat_map(|id| id.to_le_bytes()).collect();
    push_recorded(batch, Kind::Done, flags, &bytes, Content::Done(taken));
    more * 8
}

fn push_recorded(batch: &mut Batch, kind: Kind, flags: u8, bytes: &[u8], content: Content) {
    if bytes.is_empty() {
        return;
    }
    if let Some(header) = FrameHeader::over(kind, flags, 0, &[], bytes) {
        batch.push(header, &[], bytes, bytes.len(), content);
    }
}
