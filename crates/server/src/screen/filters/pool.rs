//! Idle connections to a filter, which the next question takes.
//!
//! A connection is here only between two questions: nothing is owed in either direction. The last one that came back is
//! taken first, so that as few as are needed stay open, and the others end after `filter.idle_time`. A filter may
//! close a connection at any moment; one that has done so is passed over, and a question that meets the close is asked
//! once more over a new connection ([`FilterConnection::is_stale`]).

use super::connection::{FilterConnection, FilterError};
use super::settings::FilterSettings;
use os::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A filter of the configuration with its idle connections.
#[derive(Debug)]
pub(crate) struct PooledFilter {
    /// Its table.
    pub(crate) settings: FilterSettings,
    /// The connections and the time at which each came back; the last is the youngest.
    idle: Mutex<Vec<(Instant, FilterConnection)>>,
    opened: AtomicU64,
    reused: AtomicU64,
    stale: AtomicU64,
    failed: AtomicU64,
}

/// Connections to a filter, and questions that it did not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolCounts {
    /// Connections that are open and idle.
    pub(crate) idle: u64,
    /// Connections that were made.
    pub(crate) opened: u64,
    /// Questions over a connection that was idle.
    pub(crate) reused: u64,
    /// Those of them that were asked again, since the filter had closed the connection.
    pub(crate) stale: u64,
    /// Questions that it did not answer.
    pub(crate) failed: u64,
}

impl PooledFilter {
    /// Makes a filter without connections.
    pub(crate) const fn new(settings: FilterSettings) -> Self {
        let (opened, reused, stale, failed) =
            (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { settings, idle: Mutex::new(Vec::new()), opened, reused, stale, failed }
    }

    /// Returns the counts since the configuration was loaded.
    pub(crate) fn counts(&self) -> PoolCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PoolCounts {
            idle: u64::try_from(self.lock().len()).unwrap_or(u64::MAX),
            opened: of(&self.opened),
            reused: of(&self.reused),
            stale: of(&self.stale),
            failed: of(&self.failed),
        }
    }

    /// Returns a connection on which the time with a message begins: an idle one if `may_reuse` and there is one, else
    /// a new one.
    ///
    /// # Errors
    /// As [`FilterConnection::open`].
    /// # Cancel safety
    /// Yes.
    pub(super) async fn connection(&self, may_reuse: bool) -> Result<FilterConnection, FilterError> {
        while let Some((_, mut connection)) = may_reuse.then(|| self.lock().pop()).flatten() {
            if !connection.has_unread() {
                self.reused.fetch_add(1, Ordering::Relaxed);
                connection.begin_message(self.settings.total_timeout);
                return Ok(connection);
            }
        }
        let connection = FilterConnection::open(&self.settings).await?;
        self.note_opened();
        Ok(connection)
    }

    /// Keeps a connection on which nothing is owed; closes it if enough are idle.
    pub(super) fn keep(&self, mut connection: FilterConnection) {
        connection.rest();
        let mut idle = self.lock();
        if idle.len() < usize::try_from(self.settings.idle_max).unwrap_or(usize::MAX) {
            idle.push((clock::now(), connection));
        }
    }

    /// Notes that a question met the close of an idle connection. The others are older and go, too.
    pub(super) fn lost_idle(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
        self.lock().clear();
    }

    /// Counts a connection that was made elsewhere.
    pub(super) fn note_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a question without an answer.
    pub(super) fn note_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the connections that were idle for `filter.idle_time` at `now`.
    pub(crate) fn close_idle(&self, now: Instant) {
        self.lock().retain(|(since, _)| now.saturating_duration_since(*since) < self.settings.idle_time);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, FilterConnection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
