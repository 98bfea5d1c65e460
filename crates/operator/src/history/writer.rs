//! The handle of the history, and the thread that writes it.
//!
//! The thread looks for entries twice a second and writes them in transactions. It stands back behind all other
//! threads where processors are short. A damaged or foreign file gets another name and a new one is made; while the
//! disk is full or the directory cannot be written, entries are dropped and counted, and it is tried again later.

use super::entry::{HistoryEntry, HistoryWindow, StepEntry};
use super::entry_queue::EntryQueue;
use super::reader::{self, SearchLimits, SearchQuestion};
use super::storage::{self, StorageError};
use super::tables::{self, TableBounds};
use crate::answers::{BestWindow, ErrorLine, HistoryAnswer, HistoryStatus};
use mail::QueueId;
use observe::Event;
use os::clock;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long entries gather.
const GATHER_TIME: Duration = Duration::from_millis(500);
/// Entries of a transaction.
const BATCH: usize = 5_000;
/// Time until a file that could not be written is tried again.
const RETRY_TIME: Duration = Duration::from_secs(30);
/// Time between two looks at the bounds of the file.
const PRUNE_INTERVAL: Duration = Duration::from_secs(20);
/// How long old messages are removed until entries that have come are written.
const PRUNE_TIME_MAX: Duration = Duration::from_millis(250);
/// How far the thread stands back behind others. Tests wait for it, also on a machine where it would get no processor.
const NICENESS: i32 = if cfg!(test) { 0 } else { 15 };
/// How long a search waits for entries that are being written.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);
/// How long the end of the server waits for the last entries.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);
const DAY_US: u64 = 86_400_000_000;

/// Gives a message for the operator to the log.
type Notify = Box<dyn Fn(&str) + Send>;

/// Where the history lies, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    /// The file.
    pub path: PathBuf,
    /// Days for which finished messages are kept.
    pub days: u64,
    /// Messages in the file.
    pub messages_max: u64,
    /// Octets of the file.
    pub size_max: u64,
}

/// The history of a running server.
#[derive(Debug)]
pub struct History {
    settings: HistorySettings,
    shared: Arc<WriterShared>,
    orders: mpsc::Sender<WriterOrder>,
    best: Mutex<Vec<BestWindow>>,
}

/// State that the handle and the thread share.
#[derive(Debug, Default)]
struct WriterShared {
    queue: EntryQueue,
    written: AtomicU64,
    bytes: AtomicU64,
    /// Files that were put aside.
    files_aside: AtomicU64,
    /// Why nothing is written at present.
    failing: Mutex<Option<String>>,
}

/// An order to the thread.
#[derive(Debug)]
enum WriterOrder {
    /// Write what there is, and say so.
    Flush(SyncSender<()>),
    /// A reader has found this damage in the file that was there after so many were put aside.
    PutAside(String, u64),
    /// Write what there is, say so and end.
    Close(SyncSender<()>),
}

/// The history of earlier runs that the server shows again.
#[derive(Debug, Default)]
pub struct EarlierRuns {
    /// Windows of the statistics.
    pub windows: Vec<HistoryWindow>,
    /// The last attempts that failed, the newest first.
    pub errors: Vec<ErrorLine>,
}

impl History {
    /// Opens the history and starts its thread; returns what it has of earlier runs. A file that cannot be used is no
    /// error: `notify` gets a message for the operator, and mail goes on.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        settings: HistorySettings,
        notify: impl Fn(&str) + Send + 'static,
    ) -> std::io::Result<(Self, EarlierRuns)> {
        let shared = Arc::new(WriterShared::default());
        let (orders, received) = mpsc::channel();
        let mut writer = HistoryWriter {
            settings: settings.clone(),
            shared: Arc::clone(&shared),
            notify: Box::new(notify),
            connection: None,
            retry_at: None,
            prune_at: clock::now(),
            steps: 0,
        };
        let (earlier, best) = writer.read_earlier_runs();
        std::thread::Builder::new().name("history".to_owned()).spawn(move || {
            // Where it is not allowed the work is done all the same.
            rustix::process::nice(NICENESS).ok();
            writer.run(&received);
        })?;
        Ok((Self { settings, shared, orders, best: Mutex::new(best) }, earlier))
    }

    /// Keeps an event of now, if it is about a message. It waits for nothing.
    pub fn record(&self, event: &Event<'_>) {
        if let Some(entry) = HistoryEntry::of_event(event, clock::unix_us()) {
            self.shared.queue.push(entry);
        }
    }

    /// Keeps that another message takes the place of a message for so many recipients. It waits for nothing.
    pub fn record_replaced(&self, id: QueueId, by: QueueId, recipients: u64) {
        let step = StepEntry::replaced(id, by, recipients, clock::unix_us());
        self.shared.queue.push(HistoryEntry::Step(Box::new(step)));
    }

    /// Keeps the counts of windows. A window that is given again replaces the one before.
    pub fn record_windows(&self, windows: Vec<HistoryWindow>) {
        let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        for window in windows {
            let (seconds, begin, sent) = (window.step, window.begin, window.counts.sent);
            match best.iter_mut().find(|one| one.seconds == seconds) {
                Some(one) if one.sent >= sent => {}
                Some(one) => (one.begin, one.sent) = (begin, sent),
                None if sent == 0 => {}
                None => best.push(BestWindow { seconds, begin, sent }),
            }
            self.shared.queue.push(HistoryEntry::Window(Box::new(window)));
        }
    }

    /// Returns the best second, minute and hour since the history began.
    #[must_use]
    pub fn best(&self) -> Vec<BestWindow> {
        self.best.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finds messages. Blocks, at most for the time of a search.
    ///
    /// # Errors
    /// The file cannot be read; the text is for the operator.
    pub fn search(&self, question: &SearchQuestion, limits: SearchLimits) -> Result<HistoryAnswer, String> {
        self.flush();
        let files_aside = self.shared.files_aside.load(Ordering::Acquire);
        let found = reader::search(&self.settings.path, question, limits);
        let mut answer = found.map_err(|error| self.failed_search(error, files_aside))?;
        answer.dropped = self.shared.queue.dropped();
        Ok(answer)
    }

    fn failed_search(&self, error: StorageError, files_aside: u64) -> String {
        let path = self.settings.path.display();
        match error {
            StorageError::Foreign(why) => {
                self.send(WriterOrder::PutAside(why.clone(), files_aside));
                format!("history {path}: {why}; it is put aside, the history begins anew")
            }
            StorageError::Unavailable(why) => format!("history {path} cannot be read: {why}; the log says more"),
        }
    }

    /// Waits for what was recorded until now, but not for long.
    fn flush(&self) {
        let (tell, told) = mpsc::sync_channel(1);
        self.send(WriterOrder::Flush(tell));
        // A writer that is busy is not waited for.
        told.recv_timeout(FLUSH_TIME_MAX).ok();
    }

    /// Writes the last entries and ends the thread. Blocks for some seconds at most.
    pub fn close(&self) {
        let (tell, told) = mpsc::sync_channel(1);
        self.send(WriterOrder::Close(tell));
        // Entries that are not written by then are lost, as in a crash.
        told.recv_timeout(CLOSE_TIME_MAX).ok();
    }

    fn send(&self, order: WriterOrder) {
        // A thread that has ended carries out no orders.
        drop(self.orders.send(order));
    }

    /// Returns its state.
    #[must_use]
    pub fn status(&self) -> HistoryStatus {
        let shared = &self.shared;
        HistoryStatus {
            path: self.settings.path.display().to_string(),
            bytes: shared.bytes.load(Ordering::Relaxed),
            bytes_max: self.settings.size_max,
            written: shared.written.load(Ordering::Relaxed),
            dropped: shared.queue.dropped(),
            failing: shared.failing.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// The thread.
struct HistoryWriter {
    settings: HistorySettings,
    shared: Arc<WriterShared>,
    notify: Notify,
    connection: Option<Connection>,
    /// The file could not be had and is tried again then.
    retry_at: Option<Instant>,
    prune_at: Instant,
    /// Steps written in this run.
    steps: i64,
}

impl HistoryWriter {
    /// Reads what the file has of earlier runs, before there is a thread.
    fn read_earlier_runs(&mut self) -> (EarlierRuns, Vec<BestWindow>) {
        let Some(connection) = self.open() else { return <_>::default() };
        let read = |connection: &Connection| -> rusqlite::Result<_> {
            let (windows, errors) = (reader::read_windows(connection)?, reader::read_errors(connection)?);
            Ok((EarlierRuns { windows, errors }, reader::read_best(connection)?))
        };
        let found = read(connection);
        found.unwrap_or_else(|error| {
            self.fail(error.into());
            <_>::default()
        })
    }

    fn run(mut self, orders: &mpsc::Receiver<WriterOrder>) {
        loop {
            match orders.recv_timeout(GATHER_TIME) {
                Ok(WriterOrder::Flush(tell)) => {
                    self.write_waiting();
                    // The searcher may have gone.
                    tell.send(()).ok();
                    self.prune();
                }
                // Of searches that find the same damage the first counts.
                Ok(WriterOrder::PutAside(why, files_aside)) => {
                    if files_aside == self.shared.files_aside.load(Ordering::Relaxed) {
                        self.fail(StorageError::Foreign(why));
                    }
                }
                Ok(WriterOrder::Close(tell)) => {
                    self.write_waiting();
                    drop(self.connection.take());
                    tell.send(()).ok();
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.write_waiting();
                    self.prune();
                }
                Err(RecvTimeoutError::Disconnected) => return self.write_waiting(),
            }
        }
    }

    /// Writes the entries that wait.
    fn write_waiting(&mut self) {
        let entries = self.shared.queue.take();
        let mut rest = entries.as_slice();
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(rest.len().min(BATCH));
            let mut steps = self.steps;
            let Some(connection) = self.open() else {
                self.shared.queue.count_dropped(rest.len());
                return;
            };
            match tables::write(connection, batch, &mut steps) {
                Ok(()) => {
                    self.steps = steps;
                    self.shared.written.fetch_add(u64::try_from(batch.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
                    self.succeed();
                }
                Err(error) => {
                    self.shared.queue.count_dropped(batch.len());
                    self.fail(error.into());
                }
            }
            rest = later;
        }
    }

    /// Removes what is beyond the bounds, if it is time to look; entries that come meanwhile wait in their queue.
    fn prune(&mut self) {
        let now = clock::now();
        if now < self.prune_at {
            return;
        }
        let unix_us = clock::unix_us();
        let bounds = TableBounds {
            oldest_us: unix_us.saturating_sub(self.settings.days.saturating_mul(DAY_US)),
            messages_max: self.settings.messages_max,
            size_max: self.settings.size_max,
            civil_now: i64::try_from(unix_us / 1_000_000).unwrap_or(0)
                + i64::from(clock::local_offset_seconds(unix_us)),
        };
        let Some(connection) = self.open() else { return };
        let mut has_more = Ok(true);
        while matches!(has_more, Ok(true)) && clock::now() < now + PRUNE_TIME_MAX {
            has_more = tables::prune(connection, &bounds);
        }
        match has_more.and_then(|more| Ok((more, tables::bytes_used(connection)?))) {
            Ok((has_more, bytes)) => {
                self.shared.bytes.store(bytes, Ordering::Relaxed);
                self.prune_at = if has_more { now } else { now + PRUNE_INTERVAL };
            }
            Err(error) => self.fail(error.into()),
        }
    }

    /// Returns the open file; `None` while it cannot be had.
    fn open(&mut self) -> Option<&mut Connection> {
        if self.connection.is_none() && self.retry_at.is_none_or(|at| clock::now() >= at) {
            let path = &self.settings.path;
            let opened = match storage::open(path) {
                Err(error @ StorageError::Foreign(_)) => {
                    self.fail(error);
                    storage::open(&self.settings.path)
                }
                other => other,
            };
            match opened {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => self.fail(error),
            }
        }
        self.connection.as_mut()
    }

    /// Closes the file after an error, and puts aside one that cannot be used.
    fn fail(&mut self, error: StorageError) {
        self.connection = None;
        let path = self.settings.path.clone();
        match error {
            StorageError::Foreign(why) => match storage::put_aside(&path, clock::unix_us() / 1_000_000) {
                Ok(aside) => {
                    self.shared.files_aside.fetch_add(1, Ordering::Release);
                    self.say(&format!(
                        "history {}: {why}; it is put aside as {}, a new one is made, and mail goes on: look at it, or remove it",
                        path.display(),
                        aside.display()
                    ));
                }
                Err(error) => self.wait(&path, &format!("{why}, and it cannot be renamed: {error}")),
            },
            StorageError::Unavailable(why) => self.wait(&path, &why),
        }
    }

    /// Waits before the file is tried again. The operator gets one message until it works.
    fn wait(&mut self, path: &Path, why: &str) {
        self.retry_at = Some(clock::now() + RETRY_TIME);
        let mut failing = self.shared.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_told = failing.replace(why.to_owned()).is_some();
        drop(failing);
        if !is_told {
            self.say(&format!(
                "history {} cannot be written: {why}; its entries are dropped until it can, and mail goes on: make room, or see \
                 who owns the directory (history.path)",
                path.display()
            ));
        }
    }

    fn succeed(&mut self) {
        self.retry_at = None;
        let mut failing = self.shared.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.take().is_some() {
            drop(failing);
            let dropped = self.shared.queue.dropped();
            self.say(&format!(
                "history {} is written again; {dropped} entries were dropped since the start",
                self.settings.path.display()
            ));
        }
    }

    fn say(&self, text: &str) {
        (self.notify)(text);
    }
}

#[cfg(test)]
mod tests;
