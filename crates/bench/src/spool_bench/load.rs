//! One measurement: committers that append and wait, and messages that are finished a little later.
//!
//! Each committer is a thread: takes a queue id, appends one message with one recipient, waits until it is durable. A
//! message is marked done when it is old enough or enough younger ones have come (delivery at once, with its lag); of
//! every hundred, `stragglers` stay for good. A warm-up is not measured. Afterwards the store is closed, opened again,
//! and every message that was acknowledged and not finished is read back and compared.

use bytes::Bytes;
use mail::{Node, QueueId, QueueIds};
use spool::{Change, Chunk, Commit, Error, NewBody, NewMessage, NewRecipient, State, Statistics, Status, Store};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::bodies::{Bodies, HEAD, RECIPIENT, mix};
use super::machine;
use super::volume::{Device, Volume};
use crate::clock;
use crate::engines::{CHUNK_BYTES, Contender, Kind, Room};

/// Messages that are on their way at a time, at most, of small mail.
const LAG_MESSAGES: usize = 4_096;
/// Bytes of bodies on their way at a time, at most.
const LAG_BYTES: usize = 256 << 20;
/// The longest that a message is on its way.
const LAG: Duration = Duration::from_millis(500);
/// How often one message is offered again to a store that is busy or full before the run is given up.
const OFFERS_MAX: u32 = 20_000;
/// Messages one committer sends at most; ends a run whose clock stands.
const MESSAGES_MAX: u64 = 20_000_000;

const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

/// What is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) committers: usize,
    pub(super) body_bytes: usize,
    /// Messages of a hundred that stay for the whole run.
    pub(super) stragglers: u64,
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measurement {
    pub(super) messages_per_second: f64,
    pub(super) cpu_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Messages per batch the store wrote.
    pub(super) batch: f64,
    /// Flushes of the device per batch; only on a private device.
    pub(super) flushes_per_batch: Option<f64>,
    /// Flushes of the device per message; only on a private device.
    pub(super) flushes_per_message: Option<f64>,
    /// Bytes the device was given per byte of body; only on a private device.
    pub(super) device_bytes: Option<f64>,
    /// Bytes the store gave to the file system per byte of body, as far as it counts them.
    pub(super) written: f64,
    /// Messages moved to other segments per message taken.
    pub(super) relocated: f64,
    /// Segment files at the end.
    pub(super) segments: u64,
    /// Times a message had to be offered again.
    pub(super) refused: u64,
    /// Unfinished messages read back and found right.
    pub(super) verified: u64,
    /// Share of the machine that other programs used meanwhile, 0 to 1.
    pub(super) others: f64,
}

/// What all committers of a run use.
struct Run<'a> {
    load: Load,
    store: &'a dyn Contender,
    bodies: &'a Bodies,
    ids: Mutex<QueueIds>,
    phase: AtomicU8,
    failed: AtomicBool,
    messages: AtomicU64,
    refused: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// What one committer brings home.
#[derive(Default)]
struct Harvest {
    latencies_ns: Vec<u32>,
    unfinished: Vec<QueueId>,
}

/// The state of the world at a moment of a run.
struct Moment {
    at: Instant,
    cpu: Duration,
    others_ticks: u64,
    messages: u64,
    statistics: Statistics,
    device: Option<Device>,
}

/// Runs the load on a new store of this kind on `volume`.
///
/// # Errors
/// What failed: the store, or the comparison of what it kept.
pub(super) fn measure(
    kind: Kind,
    load: Load,
    volume: &Volume,
    room: Room,
    bodies: &Bodies,
) -> Result<Measurement, String> {
    let dir = volume.dir().join("store");
    std::fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let result = measure_in(kind, load, volume, &dir, room, bodies);
    std::fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    volume.settle();
    result
}

fn measure_in(
    kind: Kind,
    load: Load,
    volume: &Volume,
    dir: &std::path::Path,
    room: Room,
    bodies: &Bodies,
) -> Result<Measurement, String> {
    let store = kind.open(dir, room)?;
    let (mut measurement, unfinished) = run(&*store, load, volume, bodies)?;
    let closed_us = clock::unix_us();
    drop(store);
    if kind != Kind::Nothing {
        let store = kind.open(dir, room)?;
        measurement.verified = verify(&*store, &unfinished, closed_us, load.body_bytes, bodies)?;
        drop(store);
    }
    Ok(measurement)
}

fn run(
    store: &dyn Contender,
    load: Load,
    volume: &Volume,
    bodies: &Bodies,
) -> Result<(Measurement, Vec<QueueId>), String> {
    let run = Run {
        load,
        store,
        bodies,
        ids: Mutex::new(QueueIds::new(Node::default())),
        phase: AtomicU8::new(WARM_UP),
        failed: AtomicBool::new(false),
        messages: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        failure: Mutex::new(None),
    };
    let look = || Moment {
        at: clock::now(),
        cpu: clock::cpu(),
        others_ticks: machine::others_ticks(),
        messages: run.messages.load(Ordering::Relaxed),
        statistics: store.statistics(),
        device: volume.device(),
    };
    let (start, end, last, harvests) = std::thread::scope(|scope| {
        let committers: Vec<_> = (0..load.committers)
            .map(|number| {
                scope.spawn({
                    let run = &run;
                    move || run.commit(number)
                })
            })
            .collect();
        run.rest(load.warm_up);
        if volume.device().is_some() {
            volume.settle();
        }
        let start = look();
        run.phase.store(MEASURED, Ordering::Relaxed);
        run.rest(load.measured);
        let end = look();
        run.phase.store(OVER, Ordering::Relaxed);
        let harvests: Vec<Option<Harvest>> = committers.into_iter().map(|c| c.join().ok()).collect();
        let last = look();
        (start, end, last, harvests)
    });
    if let Some(failure) = run.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(failure);
    }
    let mut latencies = Vec::new();
    let mut unfinished = Vec::new();
    for harvest in harvests {
        let harvest = harvest.ok_or("a committer panicked")?;
        latencies.extend(harvest.latencies_ns);
        unfinished.extend(harvest.unfinished);
    }
    latencies.sort_unstable();
    let mut measurement = summarise(&start, &end, &latencies);
    measurement.refused = run.refused.load(Ordering::Relaxed);
    if let (Some(before), Some(after)) = (start.device, last.device) {
        // Everything between the first look and the last acknowledgement; bytes also what was still to be written back.
        let messages = (last.messages - start.messages).max(1) as f64;
        let batches = (last.statistics.batches - start.statistics.batches).max(1) as f64;
        let flushes = (after.flushes - before.flushes) as f64;
        volume.settle();
        let bytes = volume.device().map_or(0, |device| device.bytes_written) - before.bytes_written;
        measurement.flushes_per_batch = Some(flushes / batches);
        measurement.flushes_per_message = Some(flushes / messages);
        measurement.device_bytes = Some(bytes as f64 / (messages * load.body_bytes as f64));
    }
    Ok((measurement, unfinished))
}

fn summarise(start: &Moment, end: &Moment, latencies: &[u32]) -> Measurement {
    let messages = (end.messages - start.messages).max(1) as f64;
    let batches = end.statistics.batches.saturating_sub(start.statistics.batches).max(1) as f64;
    let percentile = |percent: usize| {
        let at = latencies.len() * percent / 100;
        latencies.get(at).map_or(0.0, |ns| f64::from(*ns) / 1e3)
    };
    Measurement {
        messages_per_second: messages / (end.at - start.at).as_secs_f64(),
        cpu_us: (end.cpu - start.cpu).as_secs_f64() * 1e6 / messages,
        p50_us: percentile(50),
        p99_us: percentile(99),
        batch: messages / batches,
        others: machine::share(end.others_ticks.saturating_sub(start.others_ticks), end.at - start.at),
        written: end.statistics.bytes_written.saturating_sub(start.statistics.bytes_written) as f64
            / end.statistics.body_bytes.saturating_sub(start.statistics.body_bytes).max(1) as f64,
        relocated: end.statistics.relocated.saturating_sub(start.statistics.relocated) as f64 / messages,
        segments: end.statistics.segments,
        ..Measurement::default()
    }
}

impl Run<'_> {
    /// Lets the committers work; returns early when one of them has failed.
    fn rest(&self, time: Duration) {
        let end = clock::now() + time;
        while !self.failed.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() {
                return;
            }
            clock::pause(left.min(Duration::from_millis(100)));
        }
    }

    fn commit(&self, number: usize) -> Harvest {
        let mut harvest = Harvest::default();
        if let Err(failure) = self.work(number, &mut harvest) {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
            self.failed.store(true, Ordering::Relaxed);
        }
        harvest
    }

    fn work(&self, number: usize, harvest: &mut Harvest) -> Result<(), String> {
        let lag = LAG_MESSAGES.min(LAG_BYTES / self.load.body_bytes.max(1)) / self.load.committers;
        let mut on_their_way: VecDeque<(QueueId, Instant)> = VecDeque::new();
        for _ in 0..MESSAGES_MAX {
            let phase = self.phase.load(Ordering::Relaxed);
            if phase == OVER || self.failed.load(Ordering::Relaxed) {
                break;
            }
            let id = self.ids.lock().unwrap_or_else(PoisonError::into_inner).next(clock::unix_us());
            let body = self.bodies.body(id, self.load.body_bytes);
            let begun = clock::now();
            self.append(id, body)?;
            let committed = clock::now();
            self.messages.fetch_add(1, Ordering::Relaxed);
            if phase == MEASURED && self.phase.load(Ordering::Relaxed) == MEASURED {
                harvest.latencies_ns.push(u32::try_from((committed - begun).as_nanos()).unwrap_or(u32::MAX));
            }
            if mix(id.to_u64() ^ number as u64) % 100 < self.load.stragglers {
                harvest.unfinished.push(id);
            } else {
                on_their_way.push_back((id, committed));
            }
            // At most two, so that a backlog shrinks and no message waits for a hundred others to be finished.
            for _ in 0..2 {
                let due = on_their_way.front().is_some_and(|(_, since)| {
                    on_their_way.len() > lag.max(1) || committed.saturating_duration_since(*since) > LAG
                });
                if due && let Some((id, _)) = on_their_way.pop_front() {
                    self.finish(id)?;
                }
            }
        }
        harvest.unfinished.extend(on_their_way.into_iter().map(|(id, _)| id));
        Ok(())
    }

    fn append(&self, id: QueueId, body: Bytes) -> Result<(), String> {
        let recipients = [NewRecipient { data: RECIPIENT, destination: self.bodies.destination(id) }];
        let bytes = body.len() as u64;
        let whole = body.len() <= CHUNK_BYTES;
        let body =
            if whole { NewBody::Whole(body) } else { NewBody::Chunks { count: self.append_chunks(id, &body)?, bytes } };
        let message =
            NewMessage { id, head: HEAD, recipients: &recipients, body, reserved: false, state: State::default() };
        let commit = self.offer(id, || self.store.append(message.clone()))?;
        commit.wait().map_err(|e| format!("commit of {id}: {e}"))
    }

    /// Gives the body in chunks, waiting for each before giving the next but one.
    fn append_chunks(&self, id: QueueId, body: &Bytes) -> Result<u32, String> {
        let mut commits: VecDeque<Commit> = VecDeque::new();
        let mut count = 0;
        for piece in body.chunks(CHUNK_BYTES) {
            if commits.len() > 1
                && let Some(commit) = commits.pop_front()
            {
                commit.wait().map_err(|e| format!("chunk of {id}: {e}"))?;
            }
            let commit = self.offer(id, || {
                let mut chunk = Chunk::new(CHUNK_BYTES);
                chunk.push(piece);
                self.store.append_chunk(id, count, chunk)
            })?;
            commits.push_back(commit);
            count += 1;
        }
        Ok(count)
    }

    /// Offers something until it is taken.
    fn offer(&self, id: QueueId, mut give: impl FnMut() -> Result<Commit, Error>) -> Result<Commit, String> {
        for _ in 0..OFFERS_MAX {
            match give() {
                Ok(commit) => return Ok(commit),
                Err(refusal @ (Error::Busy | Error::Full)) => {
                    let busy = refusal == Error::Busy;
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    match self.store.room(id) {
                        Some(room) if busy => room.wait().map_err(|e| format!("room for {id}: {e}"))?,
                        _ => clock::pause(Duration::from_micros(200)),
                    }
                }
                Err(error) => return Err(format!("append of {id}: {error}")),
            }
        }
        Err(format!("append of {id}: refused {OFFERS_MAX} times: {:?}", self.store.statistics()))
    }

    fn finish(&self, id: QueueId) -> Result<(), String> {
        let state = State { status: Status::Done, attempts: 1, due: 0 };
        let change = Change { id, recipient: 0, state, destination: None };
        // Nobody waits for a change of state; it rides with a later batch.
        self.store.record(&[change]).map(drop).map_err(|e| format!("finishing {id}: {e}"))
    }
}

/// Reads back every message that must be there and compares it; the store may hold no other.
fn verify(
    store: &dyn Store,
    unfinished: &[QueueId],
    closed_us: u64,
    body_bytes: usize,
    bodies: &Bodies,
) -> Result<u64, String> {
    let held: HashSet<QueueId> = store.messages().into_iter().collect();
    if let Some(lost) = unfinished.iter().find(|id| !held.contains(id)) {
        return Err(format!("LOST: {lost} was acknowledged and is not there after opening again"));
    }
    if held.len() != unfinished.len() {
        let expected: HashSet<&QueueId> = unfinished.iter().collect();
        let ages = held.iter().filter(|id| !expected.contains(id)).map(|id| closed_us.saturating_sub(id.unix_us()));
        let ages: Vec<u64> = ages.collect();
        let (youngest, oldest) = (ages.iter().min().unwrap_or(&0) / 1000, ages.iter().max().unwrap_or(&0) / 1000);
        return Err(format!(
            "{} messages finished before a clean close are there again, taken {youngest} to {oldest} ms before it",
            ages.len()
        ));
    }
    for id in unfinished {
        let body = store.body(*id).map_err(|e| format!("reading back: {e}"))?.concat();
        if body != bodies.body(*id, body_bytes) {
            return Err(format!("WRONG: the body of {id} is not what was given"));
        }
        let envelope = store.envelope(*id).map_err(|e| format!("reading back: {e}"))?;
        let right = envelope.head == HEAD
            && envelope.recipients.iter().all(|r| r.data == RECIPIENT && r.destination == bodies.destination(*id));
        if !right || envelope.recipients.len() != 1 {
            return Err(format!("WRONG: the envelope of {id} is not what was given"));
        }
    }
    Ok(unfinished.len() as u64)
}
