//! The spool beside a reference: the same operations on it and on a store in memory, compared after each one.
//!
//! Everything the trait `Store` lets one see is compared, but for figures that belong to one way of storing. The order
//! within a destination is one of them: the spool gives the longest waiting first, the reference sorts by queue id. So
//! pages are compared as sets with the reference, and in order with the spool's own whole list.
//!
//! After each step all envelopes, queues and lists are compared, and the bodies the step was about; all bodies after a
//! restart and at the end. A failure names seed, step and operation; the seed repeats it.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test program with small numbers"
)]

use bytes::Bytes;
use mail::QueueId;
use spool::disk::real::RealDisk;
use spool::{
    Change, Chunk, Commit, Config, Entry, Error, NewBody, NewMessage, NewRecipient, Spool, State, Statistics, Status,
    Store, StoredEnvelope,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use testkit::memory_store::MemoryStore;

const SEEDS: u64 = 16;
const STEPS: u32 = 300;
/// Seeds run at once: they wait for the disk most of the time.
const AT_ONCE: u64 = 8;
/// Above this many messages, more recipients are finished than come.
const MESSAGES_WANTED: usize = 30;
/// Small enough that most bodies are read from the disk.
const CACHE_BYTES: usize = 64 << 10;
/// Bytes of the longest header section.
const HEADER_BYTES_MAX: usize = 4 << 10;
const DESTINATIONS: [&str; 7] = ["", "a.example", "b.example", "list.example", "[192.0.2.1]", "relay", "slow.example"];

/// SplitMix64: the same stream for a seed on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }

    fn destination(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => format!("host-{}.example", self.below(200)).into_bytes(),
            _ => DESTINATIONS[self.below(DESTINATIONS.len())].as_bytes().to_vec(),
        }
    }
}

/// An operation on both stores.
#[derive(Clone, Debug)]
enum Operation {
    Append {
        id: QueueId,
        head: Vec<u8>,
        recipients: Vec<(Vec<u8>, Vec<u8>)>,
        body: Text,
    },
    /// Chunks whose transaction does not come: aborted at once, or left for the restart.
    Abandon {
        id: QueueId,
        chunks: Vec<Vec<u8>>,
        abort: bool,
    },
    Record(Vec<Change>),
    Range(QueueId, Range<u64>),
    Reopen,
}

#[derive(Clone)]
enum Text {
    Whole(Vec<u8>),
    Chunks(Vec<Vec<u8>>),
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(body) => write!(f, "{} bytes", body.len()),
            Self::Chunks(chunks) => write!(f, "chunks of {:?} bytes", chunks.iter().map(Vec::len).collect::<Vec<_>>()),
        }
    }
}

/// Chooses operations; knows only which queue ids there were.
struct Chooser {
    random: Random,
    given: u64,
    /// Ids of appended messages, also of finished ones.
    appended: Vec<QueueId>,
}

impl Chooser {
    fn new_id(&mut self) -> QueueId {
        self.given += 1 + self.random.next() % 9_999;
        QueueId::from_u64(QueueId::MIN.to_u64() + self.given).unwrap()
    }

    fn some_id(&mut self, live: &[QueueId]) -> QueueId {
        match self.random.below(12) {
            0 => QueueId::from_u64(QueueId::MAX.to_u64() - self.random.next() % 99).unwrap(),
            1 if !self.appended.is_empty() => self.appended[self.random.below(self.appended.len())],
            _ if live.is_empty() => QueueId::MIN,
            _ => live[self.random.below(live.len())],
        }
    }

    fn chunks(&mut self) -> Vec<Vec<u8>> {
        (0..=self.random.below(4))
            .map(|_| {
                let bytes = [1, 4_095, 4_096, 20_000, 70_000][self.random.below(5)];
                self.random.bytes(bytes)
            })
            .collect()
    }

    fn append(&mut self, live: &[QueueId]) -> Operation {
        // A queue id that is in use must be refused by both.
        let id = match self.random.below(20) {
            0 if !live.is_empty() => live[self.random.below(live.len())],
            _ => self.new_id(),
        };
        let head_bytes = self.random.below(200);
        let head = self.random.bytes(head_bytes);
        let recipients = (0..=self.random.below(4))
            .map(|_| {
                let bytes = self.random.below(80);
                (self.random.bytes(bytes), self.random.destination())
            })
            .collect();
        let body = if self.random.below(5) == 0 && !live.contains(&id) {
            Text::Chunks(self.chunks())
        } else {
            let bytes = [0, 1, 500, 4_000, 9_000, 60_000][self.random.below(6)];
            Text::Whole(self.random.bytes(bytes))
        };
        self.appended.push(id);
        Operation::Append { id, head, recipients, body }
    }

    fn change(&mut self, live: &[QueueId]) -> Change {
        let due = self.random.next() as u32;
        let done = if live.len() > MESSAGES_WANTED { 8 } else { 4 };
        let status = match self.random.below(10) {
            n if n < done => Status::Done,
            8 => Status::Held,
            _ => Status::Waiting,
        };
        let recipient = match self.random.below(30) {
            0 => u32::MAX,
            1 => 7,
            n => n as u32 % 4,
        };
        let destination = (self.random.below(3) == 0).then(|| self.random.destination());
        let state = State { status, attempts: self.random.next() as u8, due };
        Change { id: self.some_id(live), recipient, state, destination }
    }

    fn next(&mut self, live: &[QueueId]) -> Operation {
        match self.random.below(100) {
            0..38 => self.append(live),
            38..44 => Operation::Abandon { id: self.new_id(), chunks: self.chunks(), abort: self.random.below(2) == 0 },
            44..87 => Operation::Record((0..=self.random.below(12)).map(|_| self.change(live)).collect()),
            87..96 => {
                let (one, other) = (self.random.next() % 100_000, self.random.next() % 9_000);
                let range =
                    [0..other, one..one + other, other..other, one..u64::MAX, other..0][self.random.below(5)].clone();
                Operation::Range(self.some_id(live), range)
            }
            _ => Operation::Reopen,
        }
    }
}

/// The answer of a store to an operation.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Settled(Result<(), Error>),
    Bytes(Result<Bytes, Error>),
}

fn give_chunks(store: &dyn Store, id: QueueId, chunks: &[Vec<u8>]) -> Result<(), Error> {
    for (bytes, number) in chunks.iter().zip(0..) {
        let mut chunk = Chunk::new(bytes.len());
        chunk.push(bytes);
        store.append_chunk(id, number, chunk)?.wait()?;
    }
    Ok(())
}

fn apply(store: &dyn Store, operation: &Operation) -> Answer {
    match operation {
        Operation::Append { id, head, recipients, body } => {
            let recipients: Vec<NewRecipient<'_>> =
                recipients.iter().map(|(data, destination)| NewRecipient { data, destination }).collect();
            let body = match body {
                Text::Whole(body) => {
                    let header_bytes = (body.len() / 3).min(HEADER_BYTES_MAX);
                    NewBody::whole(Bytes::copy_from_slice(body), header_bytes as u32)
                }
                Text::Chunks(chunks) => {
                    if let Err(error) = give_chunks(store, *id, chunks) {
                        return Answer::Settled(Err(error));
                    }
                    let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
                    // Any bytes are a header section to the spool.
                    let header = Bytes::copy_from_slice(head);
                    NewBody::Chunks { header, count: chunks.len() as u32, bytes }
                }
            };
            let message = NewMessage::new(*id, head, &recipients, body);
            Answer::Settled(store.append(message).and_then(|commit| commit.wait()))
        }
        Operation::Abandon { id, chunks, abort } => {
            let given = give_chunks(store, *id, chunks);
            if *abort {
                store.abort(*id);
            }
            Answer::Settled(given)
        }
        // The handle is dropped: the change is in force at once, and closing makes it durable.
        Operation::Record(changes) => Answer::Settled(store.record(changes).map(drop)),
        Operation::Range(id, range) => Answer::Bytes(store.body_range(*id, range.clone())),
        Operation::Reopen => Answer::Settled(Ok(())),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, spool: T, reference: T) -> Result<(), String> {
    if spool == reference {
        return Ok(());
    }
    let short = |value: &T| {
        let text = format!("{value:?}");
        text.chars().take(600).collect::<String>()
    };
    Err(format!("{what}: the spool says {}, the reference {}", short(&spool), short(&reference)))
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}

fn by_place(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_unstable_by_key(|entry| (entry.id, entry.recipient));
    entries
}

/// A destination's queue, read in pages.
fn pages(store: &dyn Store, destination: &[u8], limit: usize) -> Result<Vec<Entry>, String> {
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let page = store.by_destination(destination, all.last().copied(), limit);
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(&page);
        if page.len() > limit || all.len() > 100_000 {
            return Err(format!("pages of {limit} do not end, or are too long"));
        }
    }
}

fn compare_lists(pair: &Pair, limit: usize) -> Result<(), String> {
    let (spool, reference) = (pair.spool(), pair.reference());
    same("messages", sorted(spool.messages()), sorted(reference.messages()))?;
    let destinations = sorted(reference.destinations());
    same("destinations", sorted(spool.destinations()), destinations.clone())?;
    let figures = |store: &dyn Store| {
        let Statistics { messages, recipients, destinations, .. } = store.statistics();
        (messages, recipients, destinations)
    };
    same("figures", figures(spool), figures(reference))?;
    let fixed = DESTINATIONS.iter().map(|name| Bytes::from_static(name.as_bytes()));
    for name in destinations.into_iter().map(|(name, _)| name).chain(fixed) {
        let what = format!("queue of {name:?}");
        let whole = spool.by_destination(&name, None, usize::MAX);
        same(&what, by_place(whole.clone()), by_place(reference.by_destination(&name, None, usize::MAX)))?;
        for store in [spool, reference] {
            let whole = store.by_destination(&name, None, usize::MAX);
            same(&format!("{what} in pages of {limit}"), pages(store, &name, limit)?, whole)?;
        }
    }
    Ok(())
}

fn compare_body(pair: &Pair, id: QueueId) -> Result<(), String> {
    let whole = |store: &dyn Store| store.body(id).map(|parts| Bytes::from(parts.concat()));
    same(&format!("body of {id}"), whole(pair.spool()), whole(pair.reference()))?;
    same(&format!("header section of {id}"), pair.spool().header(id), pair.reference().header(id))
}

/// Both stores, and where they lie.
struct Pair {
    directory: PathBuf,
    spool: Option<Box<dyn Store>>,
    reference: MemoryStore,
    /// The larger it is, the more the spool moves.
    relocate_percent_max: u8,
    /// The fault that is built into the spool, and whether it has happened.
    fault: Option<Fault>,
    spoilt: Arc<AtomicBool>,
}

impl Pair {
    fn new(name: &str, seed: u64, fault: Option<Fault>) -> Self {
        let directory = std::env::temp_dir().join(format!("mailrace-reference-{}-{name}-{seed}", std::process::id()));
        drop(std::fs::remove_dir_all(&directory));
        std::fs::create_dir_all(&directory).unwrap();
        Self {
            directory,
            spool: None,
            reference: MemoryStore::default(),
            relocate_percent_max: if seed.is_multiple_of(2) { 25 } else { 90 },
            fault,
            spoilt: Arc::default(),
        }
    }

    fn spool(&self) -> &dyn Store {
        self.spool.as_ref().unwrap().as_ref()
    }

    fn reference(&self) -> &dyn Store {
        &self.reference
    }

    /// Closes the stores if they are open, and opens them.
    fn open(&mut self) -> Result<(), String> {
        drop(self.spool.take());
        self.reference.reopen();
        let spool = open_spool(&self.directory.join("spool"), self.relocate_percent_max)?;
        self.spool = Some(match self.fault {
            Some(fault) => Box::new(Broken { store: spool, fault, spoilt: Arc::clone(&self.spoilt) }),
            None => spool,
        });
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(self.spool.take());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn open_spool(path: &Path, relocate_percent_max: u8) -> Result<Box<dyn Store>, String> {
    let config = Config {
        segment_bytes: 1 << 20,
        size_max: 64 << 20,
        free_min: 0,
        scrub_interval_ms: 0,
        cache_bytes: CACHE_BYTES,
        relocate_percent_max,
        ..Config::new(path)
    };
    let (spool, recovery) = Spool::open(config, Arc::new(RealDisk::new())).map_err(|error| error.to_string())?;
    match recovery.damage.as_slice() {
        [] => Ok(Box::new(spool)),
        damage => Err(format!("recovery found damage: {damage:?}")),
    }
}

fn step(pair: &mut Pair, chooser: &mut Chooser, operation: &Operation) -> Result<(), String> {
    if matches!(operation, Operation::Reopen) {
        pair.open()?;
    }
    same("answer", apply(pair.spool(), operation), apply(pair.reference(), operation))?;
    compare_lists(pair, 1 + chooser.random.below(5))?;
    let mut ids = pair.reference().messages();
    // The last few finished messages, and one that never existed.
    ids.extend(chooser.appended.iter().rev().take(5).copied().chain([QueueId::MAX]));
    for id in &ids {
        same(&format!("envelope of {id}"), pair.spool().envelope(*id), pair.reference().envelope(*id))?;
    }
    let touched = match operation {
        Operation::Append { id, .. } | Operation::Abandon { id, .. } | Operation::Range(id, _) => vec![*id],
        Operation::Record(changes) => changes.iter().map(|change| change.id).collect(),
        Operation::Reopen => ids,
    };
    touched.into_iter().try_for_each(|id| compare_body(pair, id))
}

/// The counts of the operations that the runs tried.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    appended: u64,
    finished: u64,
    relocated: u64,
    reopened: u64,
}

/// Runs the operations of a seed on both; says where they part.
fn run(name: &str, seed: u64, fault: Option<Fault>) -> Result<Tried, String> {
    let mut pair = Pair::new(name, seed, fault);
    pair.open()?;
    let mut chooser = Chooser { random: Random(seed), given: 0, appended: Vec::new() };
    let mut tried = Tried::default();
    for number in 0..STEPS {
        let operation = match number + 1 {
            STEPS => Operation::Reopen,
            _ => chooser.next(&sorted(pair.reference().messages())),
        };
        if matches!(operation, Operation::Reopen) {
            tried.reopened += 1;
            tried.relocated += pair.spool().statistics().relocated;
        }
        step(&mut pair, &mut chooser, &operation)
            .map_err(|what| format!("seed {seed}, step {number}, after {operation:?}: {what}"))?;
    }
    chooser.appended.sort_unstable();
    chooser.appended.dedup();
    tried.appended = chooser.appended.len() as u64;
    tried.finished = tried.appended - pair.reference().statistics().messages;
    Ok(tried)
}

#[test]
fn the_spool_does_what_the_reference_does() {
    let next = AtomicU64::new(0);
    let sum = Mutex::new(Tried::default());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        return;
                    }
                    let tried = run("same", seed, None).unwrap_or_else(|difference| panic!("{difference}"));
                    let mut sum = sum.lock().unwrap();
                    sum.appended += tried.appended;
                    sum.finished += tried.finished;
                    sum.relocated += tried.relocated;
                    sum.reopened += tried.reopened;
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap();
    println!("{sum:?}");
    let enough = sum.appended > SEEDS * 80 && sum.finished > SEEDS * 40 && sum.reopened > SEEDS * 4;
    assert!(enough, "too little was tried: {sum:?}");
}

/// A fault of a broken store, which happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It forgets that a recipient is done.
    ForgetDone,
    /// It gives the body of another message.
    SwapBody,
}

/// A store with a fault, which the comparison must notice.
#[derive(Debug)]
struct Broken {
    store: Box<dyn Store>,
    fault: Fault,
    spoilt: Arc<AtomicBool>,
}

impl Broken {
    fn is_first(&self, fault: Fault) -> bool {
        self.fault == fault && !self.spoilt.swap(true, Ordering::Relaxed)
    }

    fn is_waiting(&self, change: &Change) -> bool {
        let envelope = self.store.envelope(change.id);
        envelope.is_ok_and(|found| found.recipients.iter().any(|recipient| recipient.position == change.recipient))
    }
}

impl Store for Broken {
    fn append(&self, message: NewMessage<'_>) -> Result<Commit, Error> {
        self.store.append(message)
    }

    fn append_chunk(&self, id: QueueId, number: u32, chunk: Chunk) -> Result<Commit, Error> {
        self.store.append_chunk(id, number, chunk)
    }

    fn abort(&self, id: QueueId) {
        self.store.abort(id);
    }

    fn record(&self, changes: &[Change]) -> Result<Commit, Error> {
        let ends = |change: &&Change| change.state.status == Status::Done && self.is_waiting(change);
        if let Some(end) = changes.iter().find(ends)
            && self.is_first(Fault::ForgetDone)
        {
            let place = (end.id, end.recipient);
            let rest: Vec<Change> = changes.iter().filter(|one| (one.id, one.recipient) != place).cloned().collect();
            return self.store.record(&rest);
        }
        self.store.record(changes)
    }

    fn envelope(&self, id: QueueId) -> Result<StoredEnvelope, Error> {
        self.store.envelope(id)
    }

    fn body(&self, id: QueueId) -> Result<Vec<Bytes>, Error> {
        let body = self.store.body(id)?;
        for other in self.store.messages() {
            let instead = self.store.body(other)?;
            if instead.concat() != body.concat() && self.is_first(Fault::SwapBody) {
                return Ok(instead);
            }
        }
        Ok(body)
    }

    fn body_range(&self, id: QueueId, range: Range<u64>) -> Result<Bytes, Error> {
        self.store.body_range(id, range)
    }

    fn header(&self, id: QueueId) -> Result<Bytes, Error> {
        self.store.header(id)
    }

    fn destinations(&self) -> Vec<(Bytes, u64)> {
        self.store.destinations()
    }

    fn by_destination(&self, destination: &[u8], after: Option<Entry>, limit: usize) -> Vec<Entry> {
        self.store.by_destination(destination, after, limit)
    }

    fn messages(&self) -> Vec<QueueId> {
        self.store.messages()
    }

    fn statistics(&self) -> Statistics {
        self.store.statistics()
    }
}

#[test]
fn a_forgotten_done_is_noticed() {
    let difference = run("done", 0, Some(Fault::ForgetDone)).expect_err("nobody noticed");
    assert!(difference.contains("destinations: ") || difference.contains("messages: "), "{difference}");
}

#[test]
fn a_swapped_body_is_noticed() {
    let difference = run("body", 0, Some(Fault::SwapBody)).expect_err("nobody noticed");
    assert!(difference.contains("body of "), "{difference}");
}
