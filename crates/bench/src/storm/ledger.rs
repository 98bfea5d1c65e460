//! The ledger: a line for each message a server has acknowledged, for rigs that kill the server and look for the mail.
//!
//! A line is `SEQ ID MICROSECONDS` (since 1970; the id is `-` where the reply named none). A thread of its own writes,
//! so that a slow disk does not slow the storm. The lines are in the file, not synced, soon after their reply; all of
//! them when the run has ended. The ledger survives the server under test, not a power cut.

use super::StormError;
use crate::clock;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

/// An open ledger.
#[derive(Debug)]
pub(super) struct StormLedger {
    /// `None` once closed. Held only for a push or for closing.
    inner: Mutex<Option<Inner>>,
}

#[derive(Debug)]
struct Inner {
    lines: Sender<String>,
    thread: JoinHandle<io::Result<()>>,
}

impl StormLedger {
    /// Opens a file to append to.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self, StormError> {
        let told = |source| StormError::Io { what: format!("--ledger {}", path.display()), source };
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(told)?;
        // As many lines as messages are on their way to the disk; the storm's own rate bounds them.
        let (lines, waiting) = channel();
        let thread =
            std::thread::Builder::new().name("ledger".to_owned()).spawn(move || write(file, &waiting)).map_err(told)?;
        Ok(Self { inner: Mutex::new(Some(Inner { lines, thread })) })
    }

    /// Adds a message that was acknowledged now.
    pub(super) fn add(&self, seq: u64, id: &str) {
        let line = format!("{seq} {id} {}\n", clock::unix_us());
        if let Some(inner) = &*self.inner.lock().unwrap_or_else(PoisonError::into_inner) {
            // A writer that ended has failed, and `close` says so.
            drop(inner.lines.send(line));
        }
    }

    /// Waits until every line is in the file.
    ///
    /// # Errors
    /// Something could not be written.
    pub(super) fn close(&self) -> io::Result<()> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Inner { lines, thread }) = inner else { return Ok(()) };
        drop(lines);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the writer of the ledger panicked")))
    }
}

fn write(file: File, waiting: &Receiver<String>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    while let Ok(line) = waiting.recv() {
        file.write_all(line.as_bytes())?;
        while let Ok(line) = waiting.try_recv() {
            file.write_all(line.as_bytes())?;
        }
        file.flush()?;
    }
    Ok(())
}
