//! Group commit by leader and followers, in front of an engine that has one writer.
//!
//! Whoever brings the first message of a batch leads it: waits for the batch before to be written, takes whatever has
//! gathered meanwhile, writes it in one durable transaction and wakes the others. No timer, no thread of its own on the
//! way of a message: with one committer nothing is handed over. Changes of recipients ride along; a thread
//! writes them when nothing has come to ride with for 50 ms, as the spool does.
//!
//! Invariants: one batch is written at a time; a batch has at most one leader; a message is in the index exactly when
//! its batch is durable and it is not finished.

use bytes::Bytes;
use mail::QueueId;
use spool::{
    Change, Chunk, Commit, Entry, Error, NewBody, NewMessage, Settle, Statistics, Status, Store, StoredEnvelope,
    StoredRecipient,
};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::index::{Effect, Index};
use super::record::{Record, encode_new};
use super::{Body, Engine, Operation};

/// The longest that a change of a recipient waits for a batch to ride with.
const STATE_DELAY: Duration = Duration::from_millis(50);
/// Bytes that may wait to be written; more is refused as busy. Above what 200 committers of 1 MB bring.
const QUEUED_BYTES_MAX: usize = 512 << 20;

/// An engine with group commit in front.
#[derive(Debug)]
pub struct Grouped<E: Engine> {
    shared: Arc<Shared<E>>,
    flusher: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<E: Engine> {
    engine: E,
    queue: Mutex<Queue>,
    /// Signalled when a batch has been written.
    turn: Condvar,
    /// Signalled when the store closes.
    closing: Condvar,
    index: Mutex<Index>,
    chunks: Mutex<HashMap<u64, Vec<Chunk>>>,
    commits: AtomicU64,
    batches: AtomicU64,
    body_bytes: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    batch: Batch,
    /// The batch that gathers has a leader.
    led: bool,
    writing: bool,
    poisoned: bool,
    closed: bool,
}

#[derive(Debug, Default)]
struct Batch {
    operations: Vec<Operation>,
    inserted: Vec<(u64, u32, Vec<Bytes>)>,
    bytes: usize,
    settle: Option<Settle>,
}

impl<E: Engine> Grouped<E> {
    /// Puts group commit in front of the engine and reads what it holds.
    ///
    /// # Errors
    /// The engine's words, or that a thread could not be started.
    pub fn new(engine: E) -> Result<Self, String> {
        let mut index = Index::default();
        let mut damaged = 0_u64;
        engine
            .scan(&mut |id, record| match Record::decode(&Bytes::copy_from_slice(record)) {
                Some(record) => index.insert_record(id, &record),
                None => damaged += 1,
            })
            .map_err(|e| e.to_string())?;
        if damaged > 0 {
            return Err(format!("{damaged} records of the engine cannot be read back"));
        }
        let shared = Arc::new(Shared {
            engine,
            queue: Mutex::default(),
            turn: Condvar::new(),
            closing: Condvar::new(),
            index: Mutex::new(index),
            chunks: Mutex::default(),
            commits: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        });
        let flusher = {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name("state-flush".to_owned());
            builder.spawn(move || shared.flush_states()).map_err(|e| format!("no thread for states: {e}"))?
        };
        Ok(Self { shared, flusher: Some(flusher) })
    }
}

impl<E: Engine> Drop for Grouped<E> {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.closing.notify_all();
        if let Some(flusher) = self.flusher.take()
            && flusher.join().is_err()
        {
            self.shared.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<E: Engine> Shared<E> {
    /// Takes the lead if nobody has it, else joins the batch; gives the handle of the batch.
    fn join<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> Commit {
        if queue.led {
            return queue.batch.commit();
        }
        queue.led = true;
        Commit::settled(&self.lead(queue))
    }

    /// Waits for its turn and writes the batch, whose lead the caller has taken.
    fn lead<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> Result<(), Error> {
        while queue.writing {
            queue = self.turn.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let batch = std::mem::take(&mut queue.batch);
        queue.led = false;
        queue.writing = true;
        let poisoned = queue.poisoned;
        drop(queue);

        let result = if poisoned { Err(Error::Poisoned) } else { self.write(&batch) };

        let mut queue = lock(&self.queue);
        queue.writing = false;
        queue.poisoned |= result.is_err();
        drop(queue);
        self.turn.notify_all();
        if let Some(settle) = batch.settle {
            settle.settle(&result);
        }
        result
    }

    fn write(&self, batch: &Batch) -> Result<(), Error> {
        if let Err(error) = self.engine.write(&batch.operations) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            crate::spool_bench::say(&format!("engine failed: {error}"));
            return Err(Error::Failed);
        }
        let mut index = lock(&self.index);
        for (id, pieces, destinations) in &batch.inserted {
            index.insert(*id, *pieces, destinations.iter().map(|name| (spool::State::default(), name.as_ref())));
        }
        drop(index);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.commits.fetch_add(batch.inserted.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Writes changes nobody else took along; ends when the store closes, after the last of them.
    fn flush_states(&self) {
        loop {
            let queue = lock(&self.queue);
            let closed = queue.closed;
            let queue = if closed {
                queue
            } else {
                self.closing.wait_timeout(queue, STATE_DELAY).unwrap_or_else(PoisonError::into_inner).0
            };
            if !queue.batch.operations.is_empty() && !queue.led {
                let mut queue = queue;
                queue.led = true;
                if self.lead(queue).is_err() {
                    return;
                }
            } else if closed {
                return;
            }
        }
    }

    fn record_of(&self, id: QueueId) -> Result<Record, Error> {
        let unreadable = |what: String| Error::Unreadable { id, what };
        let bytes = self.engine.record(id.to_u64()).map_err(|e| unreadable(e.to_string()))?;
        let mut record = Record::decode(&bytes.ok_or(Error::Unknown(id))?)
            .ok_or_else(|| Error::Corrupt { id, what: "record".to_owned() })?;
        lock(&self.index).refresh(id.to_u64(), &mut record);
        Ok(record)
    }
}

impl Batch {
    fn commit(&mut self) -> Commit {
        match &self.settle {
            Some(settle) => settle.commit(),
            None => {
                let (commit, settle) = Commit::pair();
                self.settle = Some(settle);
                commit
            }
        }
    }
}

impl<E: Engine> Store for Grouped<E> {
    /// Blocks the caller when it leads: the batch has been written on return.
    fn append(&self, message: NewMessage<'_>) -> Result<Commit, Error> {
        let shared = &*self.shared;
        let id = message.id.to_u64();
        if lock(&shared.index).contains(id) {
            return Err(Error::Exists(message.id));
        }
        let (record, body) = match &message.body {
            NewBody::Whole(bytes) => (encode_new(&message, bytes.len() as u64), Body::Whole(bytes.clone())),
            NewBody::Chunks { bytes, .. } => {
                let chunks = lock(&shared.chunks).remove(&id).unwrap_or_default();
                (encode_new(&message, *bytes), Body::Chunks(chunks))
            }
        };
        let destinations = message.recipients.iter().map(|r| Bytes::copy_from_slice(r.destination)).collect();
        let (body_bytes, pieces) = (body.len(), body.count());
        let mut queue = lock(&shared.queue);
        if queue.poisoned {
            return Err(Error::Poisoned);
        }
        if queue.batch.bytes > QUEUED_BYTES_MAX {
            return Err(Error::Busy);
        }
        queue.batch.bytes += record.len() + body_bytes;
        queue.batch.operations.push(Operation::Insert { id, record, body });
        queue.batch.inserted.push((id, pieces, destinations));
        shared.body_bytes.fetch_add(body_bytes as u64, Ordering::Relaxed);
        Ok(shared.join(queue))
    }

    /// Keeps the chunk in memory: the engines have no place for half a message.
    fn append_chunk(&self, id: QueueId, _number: u32, chunk: Chunk) -> Result<Commit, Error> {
        lock(&self.shared.chunks).entry(id.to_u64()).or_default().push(chunk);
        Ok(Commit::settled(&Ok(())))
    }

    fn abort(&self, id: QueueId) {
        lock(&self.shared.chunks).remove(&id.to_u64());
    }

    fn record(&self, changes: &[Change]) -> Result<Commit, Error> {
        let shared = &*self.shared;
        let mut operations = Vec::with_capacity(changes.len());
        for change in changes {
            let effect = lock(&shared.index).apply(change);
            let id = change.id.to_u64();
            match effect {
                Effect::Ignored => {}
                Effect::Finished(pieces) => operations.push(Operation::Remove { id, pieces }),
                Effect::Changed => {
                    operations.push(Operation::Replace { id, record: shared.record_of(change.id)?.encode() });
                }
            }
        }
        let mut queue = lock(&shared.queue);
        if queue.poisoned {
            return Err(Error::Poisoned);
        }
        queue.batch.operations.append(&mut operations);
        Ok(queue.batch.commit())
    }

    fn envelope(&self, id: QueueId) -> Result<StoredEnvelope, Error> {
        // The engine holds a finished message until the batch that removes it is written.
        if !lock(&self.shared.index).contains(id.to_u64()) {
            return Err(Error::Unknown(id));
        }
        Ok(stored(self.shared.record_of(id)?))
    }

    fn body(&self, id: QueueId) -> Result<Vec<Bytes>, Error> {
        if !lock(&self.shared.index).contains(id.to_u64()) {
            return Err(Error::Unknown(id));
        }
        self.shared.engine.body(id.to_u64()).map_err(|e| Error::Unreadable { id, what: e.to_string() })
    }

    fn body_range(&self, id: QueueId, range: Range<u64>) -> Result<Bytes, Error> {
        Ok(part(&self.body(id)?, range))
    }

    fn destinations(&self) -> Vec<(Bytes, u64)> {
        lock(&self.shared.index).destinations()
    }

    fn by_destination(&self, destination: &[u8], after: Option<Entry>, limit: usize) -> Vec<Entry> {
        lock(&self.shared.index).by_destination(destination, after, limit)
    }

    fn messages(&self) -> Vec<QueueId> {
        lock(&self.shared.index).messages()
    }

    fn statistics(&self) -> Statistics {
        let shared = &*self.shared;
        Statistics {
            commits: shared.commits.load(Ordering::Relaxed),
            batches: shared.batches.load(Ordering::Relaxed),
            body_bytes: shared.body_bytes.load(Ordering::Relaxed),
            failures: shared.failures.load(Ordering::Relaxed),
            ..lock(&shared.index).statistics()
        }
    }
}

/// A record as the trait gives it.
pub(super) fn stored(record: Record) -> StoredEnvelope {
    let recipients = (0_u32..)
        .zip(record.recipients)
        .filter(|(_, recipient)| recipient.state.status != Status::Done)
        .map(|(position, r)| StoredRecipient { position, data: r.data, destination: r.destination, state: r.state })
        .collect();
    StoredEnvelope { head: record.head, body_bytes: record.body_bytes, recipients }
}

/// A part of a body given in pieces.
pub(super) fn part(pieces: &[Bytes], range: Range<u64>) -> Bytes {
    let all: Vec<u8> = pieces.concat();
    let end = usize::try_from(range.end).unwrap_or(usize::MAX).min(all.len());
    let start = usize::try_from(range.start).unwrap_or(usize::MAX).min(end);
    Bytes::from(all).slice(start..end)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::EngineError;
    use mail::{Node, QueueIds};
    use spool::{NewRecipient, State};
    use std::sync::atomic::AtomicBool;

    /// Counts what it is given, and fails when told to.
    #[derive(Debug, Default)]
    struct Fake {
        operations: Arc<AtomicU64>,
        broken: Arc<AtomicBool>,
    }

    impl Engine for Fake {
        fn write(&self, operations: &[Operation]) -> Result<(), EngineError> {
            if self.broken.load(Ordering::SeqCst) {
                return Err("broken".into());
            }
            self.operations.fetch_add(operations.len() as u64, Ordering::SeqCst);
            Ok(())
        }

        fn record(&self, _: u64) -> Result<Option<Bytes>, EngineError> {
            Ok(None)
        }

        fn body(&self, _: u64) -> Result<Vec<Bytes>, EngineError> {
            Ok(Vec::new())
        }

        fn scan(&self, _: &mut dyn FnMut(u64, &[u8])) -> Result<(), EngineError> {
            Ok(())
        }
    }

    fn append(store: &impl Store, id: QueueId) -> Result<(), Error> {
        let recipients = [NewRecipient { data: b"", destination: b"here" }];
        let body = NewBody::Whole(Bytes::from_static(b"text"));
        store
            .append(NewMessage {
                id,
                head: b"",
                recipients: &recipients,
                body,
                reserved: false,
                state: State::default(),
            })?
            .wait()
    }

    #[test]
    fn everybody_is_committed_once_and_closing_writes_what_is_left() {
        let fake = Fake::default();
        let written = Arc::clone(&fake.operations);
        let store = Grouped::new(fake).unwrap();
        let ids = Mutex::new(QueueIds::new(Node::default()));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let id = lock(&ids).next(0);
                        append(&store, id).unwrap();
                        let state = State { status: Status::Done, attempts: 1, due: 0 };
                        drop(store.record(&[Change { id, recipient: 0, state, destination: None }]).unwrap());
                    }
                });
            }
        });
        let statistics = store.statistics();
        assert_eq!((statistics.commits, statistics.messages), (1_600, 0));
        drop(store);
        assert_eq!(written.load(Ordering::SeqCst), 3_200);
    }

    #[test]
    fn a_failed_write_poisons() {
        let fake = Fake::default();
        let broken = Arc::clone(&fake.broken);
        let store = Grouped::new(fake).unwrap();
        let mut ids = QueueIds::new(Node::default());
        append(&store, ids.next(0)).unwrap();
        broken.store(true, Ordering::SeqCst);
        assert_eq!(append(&store, ids.next(0)), Err(Error::Failed));
        broken.store(false, Ordering::SeqCst);
        assert_eq!(append(&store, ids.next(0)), Err(Error::Poisoned));
    }
}
