//! The spool as attempts read it: a few messages at a time, on threads of their own that may wait for the disk.
//!
//! After a start all mail has to come from the disk, for as many connections as there are. Each read has a thread,
//! and each thread a heap that keeps its room: without a bound they are most of the memory. Turns come in the order
//! of requests.
//!
//! A message that goes to many destinations is read once for all of them: the spool keeps it while others want it
//! (`spool::Spool::part`), and a task that wants it while it is read waits for that instead of reading it too.
//!
//! A reader with a turn waits for the disk alone, so that turns always end.

use bytes::Bytes;
use mail::QueueId;
use os::threads::{Threads, Undone};
use schedule::Positions;
use spool::{Part, Spool, Store as _};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Messages that are read at a time.
const READS_MAX: usize = 32;

/// Why a part of a message was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// It is not in the spool any more.
    Gone,
    /// The spool cannot read it, or the content is damaged.
    Bad(String),
    /// The system gives no thread to read it with. The message is sound.
    NoThread,
}

impl ReadError {
    /// Returns the time for which another try makes no sense.
    pub(crate) const fn pause(&self) -> Duration {
        match self {
            Self::Gone | Self::Bad(_) => Duration::from_secs(3_600),
            Self::NoThread => Duration::from_secs(120),
        }
    }

    /// Returns the next step for an operator.
    pub(crate) const fn advice(&self) -> &'static str {
        match self {
            Self::Gone | Self::Bad(_) => "run mailrace spool verify on a copy",
            Self::NoThread => {
                "raise what bounds threads: TasksMax= of the systemd unit (pids.max of the cgroup), ulimit -u, kernel.threads-max"
            }
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("it is not in the spool any more"),
            Self::Bad(why) => f.write_str(why),
            Self::NoThread => f.write_str("the system gives no thread to read it with"),
        }
    }
}

impl From<spool::Error> for ReadError {
    fn from(error: spool::Error) -> Self {
        match error {
            spool::Error::Unknown(_) => Self::Gone,
            error => Self::Bad(error.to_string()),
        }
    }
}

/// Reads messages in turn.
#[derive(Debug)]
pub(crate) struct Reading {
    spool: Arc<Spool>,
    threads: Threads,
    /// Messages that are read for several tasks: one read at a time of each.
    at_work: Mutex<HashMap<QueueId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Reading {
    /// Makes it without readers.
    pub(crate) fn new(spool: Arc<Spool>) -> Self {
        Self::with_threads(spool, READS_MAX)
    }

    fn with_threads(spool: Arc<Spool>, threads_max: usize) -> Self {
        Self { spool, threads: Threads::new("reading", threads_max), at_work: Mutex::default() }
    }

    /// Returns the recipients of a message as they are now, from memory where another task has read it before.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    /// # Cancel safety
    /// Yes, as [`read`](Self::read).
    pub(super) async fn part(&self, id: QueueId, recipients: &Positions) -> Result<Part, ReadError> {
        if let Some(part) = self.spool.known_part(id, recipients.iter()) {
            return Ok(part);
        }
        let alone = self.alone(id);
        let _turn = alone.mutex.lock().await;
        if let Some(part) = self.spool.known_part(id, recipients.iter()) {
            return Ok(part);
        }
        let recipients = recipients.clone();
        self.read(move |spool| spool.part(id, recipients.as_slice())).await
    }

    /// Returns a range of a message's content, which is cut at its end.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    /// # Cancel safety
    /// Yes, as [`read`](Self::read).
    pub(super) async fn content(&self, id: QueueId, range: Range<u64>) -> Result<Bytes, ReadError> {
        if let Some(piece) = self.spool.known_body_range(id, range.clone()) {
            return Ok(piece);
        }
        let alone = self.spool.shares_body(id).then(|| self.alone(id));
        let _turn = match &alone {
            Some(alone) => Some(alone.mutex.lock().await),
            None => None,
        };
        if alone.is_some()
            && let Some(piece) = self.spool.known_body_range(id, range.clone())
        {
            return Ok(piece);
        }
        self.read(move |spool| spool.body_range(id, range)).await
    }

    /// Runs `read` when it has a turn.
    ///
    /// # Errors
    /// Those of `read`; it panicked; or there is no thread for it.
    /// # Cancel safety
    /// Yes: a read that has begun keeps its turn to its end, and its result is lost.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Spool) -> Result<T, spool::Error> + Send + 'static,
    ) -> Result<T, ReadError> {
        let spool = Arc::clone(&self.spool);
        match self.threads.run(move || read(&spool)).await {
            Ok(done) => done.map_err(ReadError::from),
            Err(Undone::BrokeOff) => Err(ReadError::Bad("reading it broke off".to_owned())),
            Err(Undone::NoThread) => Err(ReadError::NoThread),
        }
    }

    /// Simulates a system that gives no thread, or gives them again.
    #[cfg(test)]
    fn run_short(&self, is_short: bool) {
        self.threads.is_short.store(is_short, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the right to read a message, for one after the other.
    fn alone(&self, id: QueueId) -> Alone<'_> {
        Alone { reading: self, id, mutex: Arc::clone(self.at_work().entry(id).or_default()) }
    }

    fn at_work(&self) -> MutexGuard<'_, HashMap<QueueId, Arc<tokio::sync::Mutex<()>>>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that reads a message or waits for another that does. The last of them forgets the message.
struct Alone<'r> {
    reading: &'r Reading,
    id: QueueId,
    mutex: Arc<tokio::sync::Mutex<()>>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut at_work = self.reading.at_work();
        // Others take theirs under the same lock: only the table and this one hold it.
        if Arc::strong_count(&self.mutex) == 2 {
            at_work.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests;
