//! An open spool: its shards, their threads, and the lock that keeps others out.

use crate::book::{EndedHolds, HoldChange};
use crate::commit::Commit;
use crate::committer::{Committer, Step};
use crate::config::Config;
use crate::disk::Disk;
use crate::error::{Error, OpenError};
use crate::event::Event;
use crate::format::{EPOCH_SHIFT, Identity};
use crate::hold::{Hold, HoldKind};
use crate::janitor::Janitor;
use crate::pressure::Pressure;
use crate::recovery::{self, Recovered};
use crate::report::Recovery;
use crate::sections::StateEntry;
use crate::shard::{Shard, lock};
use crate::store::{Change, Chunk, Entry, NewMessage, Part, Recent, Statistics, Store, StoredEnvelope};
use bytes::Bytes;
use mail::QueueId;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Slots of the index that are read in one turn of the lock when all messages are listed.
const SLOTS_AT_ONCE: usize = 16_384;

/// Name of the lock file.
pub(crate) const LOCK: &str = "lock";

/// An open spool. Cheap to share by `Arc`; closing it writes the staged frames and ends its threads.
pub struct Spool {
    shards: Vec<Arc<Shard>>,
    threads: Vec<(JoinHandle<()>, JoinHandle<()>)>,
    lock: Option<Box<dyn Send + Sync>>,
    done_observer: OnceLock<DoneObserver>,
    hold_observer: OnceLock<HoldObserver>,
}

/// Told of messages of which recipients were held (`true`) or released; one may be named several times.
pub type HoldObserver = Box<dyn Fn(&[QueueId], bool) + Send + Sync>;

/// Told of recipients that are done, as message and position.
pub type DoneObserver = Box<dyn Fn(&[(QueueId, u32)]) + Send + Sync>;

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

/// Drives an open spool without threads, for simulations: one step at a time, in an order of the caller's choice.
#[derive(Debug)]
pub struct Stepper {
    committers: Vec<Committer>,
    pub(crate) janitors: Vec<Janitor>,
}

impl Stepper {
    /// Shards to step.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.committers.len()
    }

    /// Lets the committer of a shard write at most one batch; `false` if it had nothing to do yet.
    ///
    /// When it needs a segment, the janitor is stepped for it.
    pub fn commit(&mut self, shard: usize) -> bool {
        let (Some(committer), Some(janitor)) = (self.committers.get_mut(shard), self.janitors.get_mut(shard)) else {
            return false;
        };
        match committer.step() {
            Step::Worked => true,
            Step::Idle(_) | Step::Closed => false,
            Step::NeedSegment => {
                janitor.round();
                if committer.step() == Step::NeedSegment {
                    committer.give_up();
                }
                true
            }
        }
    }

    /// When the committer of a shard has something to do, by the clock of the disk; 0 for at once, `None` for not
    /// before something arrives.
    #[must_use]
    pub fn due_us(&self, shard: usize) -> Option<u64> {
        self.committers.get(shard).and_then(Committer::due_us)
    }

    /// Lets the janitor of a shard do what there is to do; `false` if there was nothing.
    pub fn tidy(&mut self, shard: usize) -> bool {
        self.janitors.get_mut(shard).is_some_and(Janitor::round)
    }
}

impl Spool {
    /// Opens the spool at `config.path`, making one if there is none, recovers it and starts its threads.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing was changed but leftovers of unfinished growth.
    pub fn open(config: Config, disk: Arc<dyn Disk>) -> Result<(Self, Recovery), OpenError> {
        let (mut spool, stepper, recovery) = Self::open_stepped(config, disk)?;
        let pairs = stepper.committers.into_iter().zip(stepper.janitors);
        for (number, (committer, janitor)) in pairs.enumerate() {
            let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
                let path = spool.shards.first().map(|shard| shard.directory.clone()).unwrap_or_default();
                let thread = std::thread::Builder::new().name(name).spawn(work);
                thread.map_err(OpenError::io("starting a thread for", path))
            };
            let first = spawn(
                format!("commit-{number:02}"),
                Box::new(move || {
                    // Without it a busy machine makes each commit wait for a whole time slice of another process.
                    drop(crate::disk::real::shorten_slice());
                    committer.run();
                }),
            )?;
            let second = spawn(format!("janitor-{number:02}"), Box::new(move || janitor.run()))?;
            spool.threads.push((first, second));
        }
        Ok((spool, recovery))
    }

    /// Opens the spool without threads: nothing is written but by the [`Stepper`].
    ///
    /// # Errors
    /// As [`Spool::open`].
    pub fn open_stepped(mut config: Config, disk: Arc<dyn Disk>) -> Result<(Self, Stepper, Recovery), OpenError> {
        config.check()?;
        let started_us = disk.now_us();
        disk.create_dir(&config.path).map_err(OpenError::io("making the directory", &config.path))?;
        let lock = take_lock(&config.path, disk.as_ref())?;
        let known = recovery::identity(disk.as_ref(), &config.path)?;
        let identity = known.map_or_else(|| create(&config, disk.as_ref()), Ok)?;
        // The layout was fixed when the spool was made.
        (config.shards, config.segment_bytes) = (identity.shards, identity.segment_bytes);
        config.check()?;
        let mut report = Recovery { created: known.is_none(), ..Recovery::default() };
        let mut recovered = Vec::new();
        for number in 0..identity.shards {
            let shard = recovery::shard(disk.as_ref(), &config.path, identity, number, true)?;
            report.add(&shard.report);
            recovered.push(shard);
        }
        report.epoch = begin_epoch(disk.as_ref(), &config.path, &mut recovered)?;
        let (shards, stepper) = assemble(&config, identity, &disk, recovered);
        report.took_us = disk.now_us() - started_us;
        let mut stepper = stepper;
        for janitor in &mut stepper.janitors {
            janitor.prepare();
        }
        Ok((
            Self {
                shards,
                threads: Vec::new(),
                lock: Some(lock),
                done_observer: OnceLock::new(),
                hold_observer: OnceLock::new(),
            },
            stepper,
            report,
        ))
    }

    /// The shard that new messages of this id go to: the first that can write, from a place the id chooses.
    pub(crate) fn home(&self, id: QueueId) -> Result<&Arc<Shard>, Error> {
        let start = self.home_number(id);
        let order = (0..self.shards.len()).map(|step| (start + step) % self.shards.len());
        order.filter_map(|number| self.shards.get(number)).find(|shard| !shard.is_read_only()).ok_or(Error::Poisoned)
    }

    fn home_number(&self, id: QueueId) -> usize {
        // The time in microseconds is in the high bits; its low ones spread well enough.
        usize::try_from(id.unix_us() % self.shards.len().max(1) as u64).unwrap_or(0)
    }

    /// The shard that holds the message.
    pub(crate) fn holder(&self, id: QueueId) -> Result<&Arc<Shard>, Error> {
        if let [only] = self.shards.as_slice() {
            return Ok(only);
        }
        let start = self.home_number(id);
        let order = (0..self.shards.len()).map(|step| (start + step) % self.shards.len());
        order.filter_map(|number| self.shards.get(number)).find(|shard| shard.contains(id)).ok_or(Error::Unknown(id))
    }

    /// Takes messages of one transaction. They are stored all or none: one frame each, in one batch with one sync,
    /// which recovery takes or drops whole.
    ///
    /// All go to the shard of message `first`, where [`Spool::append_chunk_of`] puts the chunks of their bodies.
    ///
    /// # Errors
    /// As [`Store::append`]; nothing of any message was taken. `TooLarge`: also if all frames together exceed the limit
    /// of one. The handle is `Failed` for all, also if the chunks of one are not all there; call [`Store::abort`] for
    /// those in chunks if this call fails.
    /// # Cancel safety
    /// As [`Store::append`].
    pub fn append_all(&self, first: QueueId, messages: &[NewMessage<'_>]) -> Result<Commit, Error> {
        match messages {
            [] => Ok(Commit::settled(&Ok(()))),
            [only] => self.home(first)?.append(only),
            _ => self.home(first)?.append_all(messages),
        }
    }

    /// Takes the next piece of the body of a message that [`Spool::append_all`] will store together with message
    /// `first`.
    ///
    /// # Errors
    /// As [`Store::append_chunk`].
    pub fn append_chunk_of(&self, first: QueueId, id: QueueId, number: u32, chunk: Chunk) -> Result<Commit, Error> {
        self.home(first)?.append_chunk(id, number, chunk)
    }

    /// The identity that was chosen when the spool was made.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.shards.first().map_or([0; 16], |shard| shard.identity.uuid)
    }

    /// The most bytes of a header section: [`Config::header_bytes_max`].
    #[must_use]
    pub fn header_bytes_max(&self) -> usize {
        self.shards.first().map_or(0, |shard| shard.config.header_bytes_max())
    }

    /// Shards. The writes of two of them become durable in no order.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// How hard the spool is pressed.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let pressures = self.shards.iter().map(|shard| shard.pressure());
        // A shard that cannot write does not count while another can.
        let writable = pressures.filter(|pressure| *pressure != Pressure::Poisoned).max();
        writable.unwrap_or(Pressure::Poisoned)
    }

    /// Resolves when an append that was refused as `Busy` may be repeated.
    pub fn room(&self, id: QueueId) -> Commit {
        match self.home(id) {
            Ok(shard) => shard.staging.room(),
            Err(error) => Commit::settled(&Err(error)),
        }
    }

    /// A message with those of the `wanted` recipients that are not done, and its content, if it is still in memory.
    /// Costs what the recipients cost that are wanted, however many others the message has.
    ///
    /// Never reads from the disk; for the first delivery of a fresh message. `None` says nothing of the message; ask
    /// [`Store::envelope`] and [`Store::body`] on a thread that may wait for a disk.
    #[must_use]
    pub fn recent(&self, id: QueueId, wanted: impl IntoIterator<Item = u32>) -> Option<Recent> {
        self.holder(id).ok()?.recent(id, wanted.into_iter())
    }

    /// The `wanted` recipients of a message, as [`part`](Self::part) has them, if it was read before and is still in
    /// memory.
    ///
    /// Never reads from the disk; `None` says nothing of the message.
    #[must_use]
    pub fn known_part(&self, id: QueueId, wanted: impl IntoIterator<Item = u32>) -> Option<Part> {
        self.holder(id).ok()?.known_part(id, wanted.into_iter())
    }

    /// The `wanted` recipients of a message that are not done. May read from the disk.
    ///
    /// A message of which other recipients are left is kept in memory for those who want them (`shared_bytes`), so that
    /// one with very many destinations is not read whole for each of them. States and destinations are those of this
    /// moment.
    ///
    /// # Errors
    /// As [`Store::envelope`].
    pub fn part(&self, id: QueueId, wanted: &[u32]) -> Result<Part, Error> {
        self.holder(id)?.part(id, wanted)
    }

    /// A range of the content, cut at its end, if that is in one piece in memory. Never reads from the disk.
    #[must_use]
    pub fn known_body_range(&self, id: QueueId, range: Range<u64>) -> Option<Bytes> {
        self.holder(id).ok()?.known_body_range(id, &range)
    }

    /// Whether several recipients are left who may want the content, and reading a range of it puts it in memory for
    /// them.
    #[must_use]
    pub fn shares_body(&self, id: QueueId) -> bool {
        self.holder(id).is_ok_and(|shard| shard.shares_body(id))
    }

    /// The recipients of a message that are not done, by position, with their destinations; none of a message that is
    /// finished or unknown. From memory.
    #[must_use]
    pub fn states(&self, id: QueueId) -> Vec<(Entry, Bytes)> {
        self.holder(id).ok().and_then(|shard| shard.states(id)).unwrap_or_default()
    }

    /// Those of the `wanted` recipients of a message that are not done, as [`states`](Self::states) has them, in the
    /// order in which they are asked for. The cost grows with the wanted recipients alone.
    #[must_use]
    pub fn states_of(&self, id: QueueId, wanted: impl IntoIterator<Item = u32>) -> Vec<(Entry, Bytes)> {
        self.holder(id).map(|shard| shard.states_of(id, wanted.into_iter())).unwrap_or_default()
    }

    /// Records changes as [`Store::record`], with the reason why those recipients are held that the changes hold. It is
    /// durable with their states, and disappears when they are released.
    ///
    /// # Errors
    /// As [`Store::record`].
    pub fn record_hold(&self, changes: &[Change], hold: &Hold) -> Result<Commit, Error> {
        self.record_because(changes, HoldChange { from: None, to: Some(hold) }).map(|(commit, _)| commit)
    }

    /// Records changes of those recipients that are held for the reason `from`, and returns these; others are left
    /// alone. Of two callers that end one hold only the first does. The rest is as in [`Spool::record_hold`]; `hold` is
    /// why those are held then that the changes hold.
    ///
    /// # Errors
    /// As [`Store::record`].
    pub fn record_from(
        &self,
        from: HoldKind,
        changes: &[Change],
        hold: Option<&Hold>,
    ) -> Result<(Commit, Vec<(QueueId, u32)>), Error> {
        let (commit, ended) = self.record_because(changes, HoldChange { from: Some(from), to: hold })?;
        Ok((commit, ended.of_reason))
    }

    /// Why a recipient is held, if it is and somebody said so. From memory.
    #[must_use]
    pub fn hold(&self, id: QueueId, recipient: u32) -> Option<Hold> {
        lock(&self.holder(id).ok()?.book).index.hold(id.to_u64(), recipient).cloned()
    }

    /// Recipients whose hold has ended at `now`, seconds since 1970, as message and position: `max` of each shard at
    /// most. They stay held: the caller records what becomes of them. From memory.
    #[must_use]
    pub fn ended_holds(&self, now: u32, max: usize) -> Vec<(QueueId, u32)> {
        let of_shard = |shard: &Arc<Shard>| lock(&shard.book).index.ended_holds(now, max);
        let ended = self.shards.iter().flat_map(of_shard);
        ended.filter_map(|(id, position)| Some((QueueId::from_u64(id)?, position))).collect()
    }

    /// Has `observer` told of each recipient whose end is recorded from now on, whoever records it: after it is in
    /// force, perhaps before it is durable, and perhaps again. It must not block. A second observer is ignored.
    pub fn observe_done(&self, observer: DoneObserver) {
        drop(self.done_observer.set(observer));
    }

    /// Has `observer` told of each message that is held or released from now on, whoever records it: in force and
    /// perhaps not yet durable. The end of a held recipient is no release. It must not block. A second observer is
    /// ignored.
    pub fn observe_holds(&self, observer: HoldObserver) {
        drop(self.hold_observer.set(observer));
    }

    fn record_because(&self, changes: &[Change], hold: HoldChange<'_>) -> Result<(Commit, EndedHolds), Error> {
        let recorded = self.record_in_shards(changes, hold)?;
        if let Some(observer) = self.done_observer.get() {
            let is_done = |change: &&Change| {
                let name = (change.id, change.recipient);
                change.state.status == crate::store::Status::Done
                    && (hold.from.is_none() || recorded.1.of_reason.contains(&name))
            };
            let done: Vec<_> = changes.iter().filter(is_done).map(|change| (change.id, change.recipient)).collect();
            if !done.is_empty() {
                observer(&done);
            }
        }
        if let Some(observer) = self.hold_observer.get() {
            if hold.to.is_some() {
                let held: Vec<QueueId> = changes.iter().map(|change| change.id).collect();
                observer(&held, true);
            } else if !recorded.1.released.is_empty() {
                observer(&recorded.1.released, false);
            }
        }
        Ok(recorded)
    }

    fn record_in_shards(&self, changes: &[Change], hold: HoldChange<'_>) -> Result<(Commit, EndedHolds), Error> {
        if let [only] = self.shards.as_slice() {
            return only.record(changes, hold, None);
        }
        let mut all = (Commit::settled(&Ok(())), EndedHolds::default());
        for shard in &self.shards {
            let mine: Vec<Change> = changes.iter().filter(|change| shard.contains(change.id)).cloned().collect();
            if mine.is_empty() {
                continue;
            }
            let instead =
                if shard.is_read_only() { self.shards.iter().find(|other| !other.is_read_only()) } else { None };
            let (commit, ended) = shard.record(&mine, hold, instead.map(AsRef::as_ref))?;
            all.0 = all.0.and(commit);
            all.1.of_reason.extend(ended.of_reason);
            all.1.released.extend(ended.released);
        }
        Ok(all)
    }

    /// Returns the events since the last call that an operator should read.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.shards.iter().flat_map(|shard| shard.take_events()).collect()
    }
}

pub(crate) fn take_lock(root: &Path, disk: &dyn Disk) -> Result<Box<dyn Send + Sync>, OpenError> {
    let path = root.join(LOCK);
    disk.lock(&path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::WouldBlock {
            return OpenError::Locked { path: path.clone(), holder: error.to_string() };
        }
        OpenError::io("locking", path.clone())(error)
    })
}

/// Makes the identity of a new spool.
fn create(config: &Config, disk: &dyn Disk) -> Result<Identity, OpenError> {
    let path = config.path.join(recovery::IDENTITY);
    // Keys of the standard library's hash maps come from the system's random numbers.
    let random = || RandomState::new().hash_one(0_u8).to_le_bytes();
    let uuid = config.uuid.unwrap_or_else(|| {
        let mut uuid = [0; 16];
        for (to, from) in uuid.iter_mut().zip(random().into_iter().chain(random())) {
            *to = from;
        }
        uuid
    });
    let identity = Identity { uuid, shards: config.shards, segment_bytes: config.segment_bytes };
    disk.replace_small(&path, identity.to_text().as_bytes()).map_err(OpenError::io("writing", path))?;
    Ok(identity)
}

/// Takes a number for this opening of the spool that no other had, and starts all generations from it.
///
/// A segment that a crash cut off before its header was durable leaves frames of an unknown generation; the epoch keeps
/// that generation from being given out again.
fn begin_epoch(disk: &dyn Disk, root: &Path, recovered: &mut [Recovered]) -> Result<u64, OpenError> {
    let path = root.join(recovery::EPOCH);
    let used = recovered.iter().map(|shard| shard.book.segments.next_generation() >> EPOCH_SHIFT).max().unwrap_or(0);
    let epoch = used.max(recovery::epoch(disk, root)) + 1;
    disk.replace_small(&path, format!("{epoch}\n").as_bytes()).map_err(OpenError::io("writing", path))?;
    for shard in recovered {
        shard.book.segments.skip_generations(epoch << EPOCH_SHIFT);
    }
    Ok(epoch)
}

/// Puts recovered shards together, and hands states that were found elsewhere to the shards they belong to.
fn assemble(
    config: &Config,
    identity: Identity,
    disk: &Arc<dyn Disk>,
    recovered: Vec<Recovered>,
) -> (Vec<Arc<Shard>>, Stepper) {
    let maps: Arc<[AtomicU64]> = recovered.iter().map(|_| AtomicU64::new(0)).collect();
    let mut shards = Vec::new();
    let mut stepper = Stepper { committers: Vec::new(), janitors: Vec::new() };
    let mut foreign = Vec::new();
    for (one, number) in recovered.into_iter().zip(0_u16..) {
        let shard = Arc::new(Shard::new(number, identity, config, disk, one.book, Arc::clone(&maps)));
        lock(&shard.chores).closed = one.closed;
        let [hot, cold] = one.previous;
        stepper.committers.push(Committer::new(Arc::clone(&shard), hot));
        stepper.janitors.push(Janitor::new(Arc::clone(&shard), cold));
        foreign.push(one.foreign);
        shards.push(shard);
    }
    for (number, committer) in stepper.committers.iter_mut().enumerate() {
        let others = shards.iter().enumerate().filter(|(other, _)| *other != number);
        committer.set_peers(others.map(|(_, shard)| Arc::downgrade(shard)).collect());
    }
    for (states, done) in foreign {
        for shard in &shards {
            adopt(shard, &states, &done);
        }
    }
    (shards, stepper)
}

/// Applies states of a shard's messages that another shard had written for it, and writes them at home.
fn adopt(shard: &Shard, states: &[StateEntry], done: &[u64]) {
    let mut book = lock(&shard.book);
    let mine: Vec<StateEntry> = states.iter().filter(|entry| book.index.contains(entry.id)).cloned().collect();
    let mut ended: Vec<u64> = done.iter().copied().filter(|id| book.replay_done(*id)).collect();
    for entry in &mine {
        let (destination, hold) = (entry.destination.as_deref(), entry.hold.clone());
        if book.replay(entry.id, entry.position, entry.sequenced, destination, hold) {
            ended.push(entry.id);
        }
    }
    if mine.is_empty() && ended.is_empty() {
        return;
    }
    // Durable with the first batch; until then the foreign frames stay where they are.
    drop(shard.staging.record(mine, ended, false, shard.disk.now_us()));
}

impl Store for Spool {
    fn append(&self, message: NewMessage<'_>) -> Result<Commit, Error> {
        // A body in chunks belongs where its chunks are.
        self.home(message.id)?.append(&message)
    }

    fn append_chunk(&self, id: QueueId, number: u32, chunk: Chunk) -> Result<Commit, Error> {
        self.home(id)?.append_chunk(id, number, chunk)
    }

    fn abort(&self, id: QueueId) {
        for shard in &self.shards {
            shard.abort(id);
        }
    }

    fn record(&self, changes: &[Change]) -> Result<Commit, Error> {
        self.record_because(changes, HoldChange::default()).map(|(commit, _)| commit)
    }

    fn envelope(&self, id: QueueId) -> Result<StoredEnvelope, Error> {
        self.holder(id)?.envelope(id)
    }

    fn body(&self, id: QueueId) -> Result<Vec<Bytes>, Error> {
        self.holder(id)?.body(id)
    }

    fn body_range(&self, id: QueueId, range: Range<u64>) -> Result<Bytes, Error> {
        self.holder(id)?.body_range(id, range)
    }

    fn header(&self, id: QueueId) -> Result<Bytes, Error> {
        self.holder(id)?.header(id)
    }

    fn destinations(&self) -> Vec<(Bytes, u64)> {
        let mut all = std::collections::HashMap::new();
        for shard in &self.shards {
            for (name, waiting) in lock(&shard.book).index.by_destination_counts() {
                *all.entry(name).or_insert(0) += waiting;
            }
        }
        all.into_iter().collect()
    }

    fn by_destination(&self, destination: &[u8], after: Option<Entry>, limit: usize) -> Vec<Entry> {
        // Shard by shard: `after` says how far the walk has come.
        let start = after.and_then(|entry| self.shards.iter().position(|shard| shard.contains(entry.id)));
        let mut entries = Vec::new();
        for (number, shard) in self.shards.iter().enumerate().skip(start.unwrap_or(0)) {
            let from = after.filter(|_| start == Some(number));
            entries.extend(shard.by_destination(destination, from, limit - entries.len()));
            if entries.len() >= limit {
                break;
            }
        }
        entries
    }

    fn messages(&self) -> Vec<QueueId> {
        let mut ids = Vec::new();
        for shard in &self.shards {
            let messages = lock(&shard.book).index.messages();
            ids.reserve(usize::try_from(messages).unwrap_or(0));
            let mut next = Some(0);
            while let Some(from) = next {
                next = lock(&shard.book).index.ids_from(from, SLOTS_AT_ONCE, &mut ids);
            }
        }
        ids
    }

    fn statistics(&self) -> Statistics {
        self.shards.iter().map(|shard| shard.statistics()).fold(Statistics::default(), |sum, one| sum.plus(&one))
    }
}

impl Drop for Spool {
    /// Writes the staged frames, seals the open segments and ends the threads.
    fn drop(&mut self) {
        for shard in &self.shards {
            shard.staging.close();
        }
        for (shard, (committer, janitor)) in self.shards.iter().zip(self.threads.drain(..)) {
            // A panic of a thread was printed when it happened; nothing is acknowledged that was not synced.
            drop(committer.join());
            lock(&shard.chores).closing = true;
            shard.ring();
            drop(janitor.join());
        }
        for shard in &self.shards {
            for cell in shard.staging.poison().cells {
                cell.settle(&Err(Error::Failed));
            }
            shard.read_only.store(true, Ordering::Release);
        }
        drop(self.lock.take());
    }
}
