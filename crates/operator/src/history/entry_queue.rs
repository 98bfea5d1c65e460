//! The queue between the server's threads and the writer of the history.
//!
//! A caller holds the lock for the time of one push and wakes nothing: the writer looks by itself.

use super::entry::HistoryEntry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries that may wait.
const ENTRIES_MAX: usize = 200_000;
/// Their octets.
const BYTES_MAX: usize = 48 << 20;

/// Entries that are not written yet. Beyond its bounds entries are dropped and counted.
#[derive(Debug, Default)]
pub(super) struct EntryQueue {
    waiting: Mutex<WaitingEntries>,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct WaitingEntries {
    entries: Vec<HistoryEntry>,
    bytes: usize,
}

impl EntryQueue {
    /// Puts an entry at the end, or counts it as dropped.
    pub(super) fn push(&self, entry: HistoryEntry) {
        let bytes = entry.bytes();
        let mut waiting = self.lock();
        if waiting.entries.len() >= ENTRIES_MAX || waiting.bytes + bytes > BYTES_MAX {
            drop(waiting);
            self.count_dropped(1);
            return;
        }
        waiting.bytes += bytes;
        waiting.entries.push(entry);
    }

    /// Takes all entries.
    pub(super) fn take(&self) -> Vec<HistoryEntry> {
        let mut waiting = self.lock();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.entries)
    }

    pub(super) fn count_dropped(&self, entries: usize) {
        self.dropped.fetch_add(u64::try_from(entries).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, WaitingEntries> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::HistoryWindow;
    use observe::stats::Counts;

    #[test]
    fn entries_beyond_the_bound_are_counted() {
        let queue = EntryQueue::default();
        let window =
            |begin| HistoryEntry::Window(Box::new(HistoryWindow { step: 1, begin, counts: Counts::default() }));
        for number in 0..ENTRIES_MAX + 3 {
            queue.push(window(i64::try_from(number).unwrap()));
        }
        assert_eq!((queue.take().len(), queue.dropped()), (ENTRIES_MAX, 3));
        queue.push(window(0));
        assert_eq!((queue.take().len(), queue.dropped()), (1, 3));
    }
}
