//! Texts of files that were read, as far as they fit into [`BYTES_MAX`]; the one that was not used for longest goes
//! first.

use super::path::Stamp;
use route::question::Reader;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Octets of all texts together. A text that alone has more is used and not kept.
const BYTES_MAX: u64 = 64 << 20;
/// Entries for files, at most.
const ENTRIES_MAX: usize = 20_000;
/// Octets of an entry besides its text.
const ENTRY_BYTES: u64 = 512;

/// A file and its reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    pub(super) reader: Reader,
    /// The file, or home and detail.
    pub(super) name: Box<str>,
}

/// State of a file.
#[derive(Clone, Debug)]
pub(super) enum FileEntry {
    /// There is none.
    Absent,
    /// It counts for nothing, for this reason.
    Refused(Arc<str>),
    /// Its text.
    Text { text: Arc<str>, is_exclusive: bool },
}

/// A version of a file.
#[derive(Clone, Debug)]
pub(super) struct FileCacheEntry {
    pub(super) known: FileEntry,
    /// Its full name, and the version; `None`: nothing tells versions apart.
    pub(super) version: Option<(Arc<str>, Stamp)>,
    /// The file may change once more without another time of change.
    pub(super) is_young: bool,
    /// When a process with the rights of the reader has last seen it.
    pub(super) seen_at: Instant,
}

#[derive(Debug)]
pub(super) struct FileCache {
    bytes_max: u64,
    state: Mutex<FileCacheState>,
}

#[derive(Debug, Default)]
struct FileCacheState {
    entries: HashMap<FileKey, (FileCacheEntry, u64)>,
    bytes: u64,
    /// Counts uses.
    now: u64,
}

impl Default for FileCache {
    fn default() -> Self {
        Self { bytes_max: BYTES_MAX, state: Mutex::default() }
    }
}

impl FileCacheEntry {
    fn bytes(&self) -> u64 {
        let text = if let FileEntry::Text { text, .. } = &self.known { text.len() as u64 } else { 0 };
        ENTRY_BYTES + text
    }
}

impl FileCache {
    pub(super) fn get(&self, key: &FileKey) -> Option<FileCacheEntry> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now += 1;
        let now = state.now;
        let (entry, used) = state.entries.get_mut(key)?;
        *used = now;
        Some(entry.clone())
    }

    pub(super) fn insert(&self, key: FileKey, entry: FileCacheEntry) {
        let bytes = entry.bytes();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.remove(&key);
        if bytes > self.bytes_max {
            return;
        }
        if state.bytes + bytes > self.bytes_max || state.entries.len() >= ENTRIES_MAX {
            state.make_room(bytes, self.bytes_max);
        }
        state.now += 1;
        state.bytes += bytes;
        let now = state.now;
        state.entries.insert(key, (entry, now));
    }

    pub(super) fn remove(&self, key: &FileKey) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl FileCacheState {
    fn remove(&mut self, key: &FileKey) {
        if let Some((entry, _)) = self.entries.remove(key) {
            self.bytes = self.bytes.saturating_sub(entry.bytes());
        }
    }

    /// Forgets entries that were not used for longest: a quarter of them, or as many as needed.
    fn make_room(&mut self, bytes: u64, bytes_max: u64) {
        let mut by_use: Vec<(u64, FileKey)> =
            self.entries.iter().map(|(key, (_, used))| (*used, key.clone())).collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        let some = by_use.len().div_ceil(4);
        for (number, (_, key)) in by_use.iter().enumerate() {
            if number >= some && self.bytes + bytes <= bytes_max {
                break;
            }
            self.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::clock;

    fn key(name: usize) -> FileKey {
        FileKey { reader: Reader::Aliases, name: name.to_string().into() }
    }

    fn entry(bytes: usize) -> FileCacheEntry {
        let known = FileEntry::Text { text: "x".repeat(bytes).into(), is_exclusive: true };
        FileCacheEntry { known, version: None, is_young: false, seen_at: clock::now() }
    }

    #[test]
    fn all_texts_together_are_bounded_and_the_one_in_use_stays() {
        let cache = FileCache { bytes_max: 100_000, ..FileCache::default() };
        for name in 0..500 {
            cache.insert(key(name), entry(4_000));
            assert!(name == 0 || cache.get(&key(0)).is_some(), "it is used again and again, and gone at {name}");
            let state = cache.state.lock().unwrap();
            let bytes: u64 = state.entries.values().map(|(entry, _)| entry.bytes()).sum();
            assert!(bytes == state.bytes && bytes <= 100_000);
        }
        cache.insert(key(0), entry(100_001));
        assert!(cache.get(&key(0)).is_none(), "too large for all of it");
        for name in 0..ENTRIES_MAX + 10 {
            cache.insert(key(name), FileCacheEntry { known: FileEntry::Absent, ..entry(0) });
        }
        assert!(cache.state.lock().unwrap().entries.len() <= ENTRIES_MAX);
    }
}
