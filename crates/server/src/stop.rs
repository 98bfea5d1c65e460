//! The signal that the server stops, and the count of the connections that it waits for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// The end of the server: no new transactions, open ones finish.
#[derive(Default)]
pub(crate) struct Stop {
    has_begun: AtomicBool,
    answers_new: AtomicBool,
    begins: Notify,
    open: AtomicUsize,
    last_closed: Notify,
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("has_begun", &self.has_begun()).field("open", &self.open()).finish_non_exhaustive()
    }
}

impl Stop {
    /// Begins the end and wakes every connection.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
        self.begins.notify_waiters();
    }

    /// Has new connections answered with 421 until the process ends: their hosts have other nodes to go to. Called
    /// before [`Stop::begin`]; without it the ports close, which tells the next start of the server that they are
    /// free.
    pub(crate) fn answer_new(&self) {
        self.answers_new.store(true, Ordering::SeqCst);
    }

    /// Returns whether new connections are answered although the end has begun.
    pub(crate) fn answers_new(&self) -> bool {
        self.answers_new.load(Ordering::SeqCst)
    }

    /// Returns whether the end has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::SeqCst)
    }

    /// Resolves when the end begins, or at once if it has.
    pub(crate) async fn begun(&self) {
        let mut begins = std::pin::pin!(self.begins.notified());
        // Registered before the flag is read, so that a beginning in between is not missed.
        begins.as_mut().enable();
        if !self.has_begun() {
            begins.await;
        }
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Resolves when no connection is open.
    pub(crate) async fn drained(&self) {
        loop {
            let mut last = std::pin::pin!(self.last_closed.notified());
            last.as_mut().enable();
            if self.open() == 0 {
                return;
            }
            last.await;
        }
    }
}

/// Counts one connection while it lives.
#[derive(Debug)]
pub(crate) struct ConnectionCount(Arc<Stop>);

impl ConnectionCount {
    /// Counts a connection.
    pub(crate) fn new(stop: &Arc<Stop>) -> Self {
        stop.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(stop))
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.last_closed.notify_waiters();
        }
    }
}
