//! Removal of files that crashes left below `tmp` of a Maildir.
//!
//! A file there that was not changed for 36 hours belongs to a delivery that is gone: that is the rule of Maildirs. A
//! process looks into a directory once in [`INTERVAL`]. A file that cannot be removed stays; mail is delivered all the
//! same.

use os::clock;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Files that were not changed for so long go.
const OLD: Duration = Duration::from_secs(36 * 3_600);
/// How often a directory is looked into.
const INTERVAL: Duration = Duration::from_secs(3_600);
/// Directories that are remembered.
const KNOWN_MAX: usize = 10_000;

static LOOKED_AT: Mutex<Option<HashMap<PathBuf, Instant>>> = Mutex::new(None);

/// Removes old files from a directory, if it was not looked into lately.
pub(super) fn remove_old_files(tmp: &Path) {
    if is_due(tmp, clock::now()) {
        remove_old(tmp, clock::unix_us() / 1_000_000);
    }
}

fn is_due(tmp: &Path, now: Instant) -> bool {
    let mut guard = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    let known = guard.get_or_insert_with(HashMap::new);
    if known.get(tmp).is_some_and(|last| now.saturating_duration_since(*last) < INTERVAL) {
        return false;
    }
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(tmp.to_owned(), now);
    true
}

fn remove_old(tmp: &Path, now: u64) {
    let Ok(entries) = std::fs::read_dir(tmp) else { return };
    for entry in entries.filter_map(Result::ok) {
        // The entry itself, not what a link leads to.
        let Ok(found) = entry.metadata() else { continue };
        let changed = u64::try_from(found.mtime().max(found.atime())).unwrap_or(0);
        if found.is_file() && now.saturating_sub(changed) > OLD.as_secs() {
            drop(std::fs::remove_file(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes};
    use std::time::SystemTime;

    #[test]
    fn old_files_go_and_young_ones_stay() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let now = Duration::from_micros(clock::unix_us());
        let touch = |name: &str, changed: Duration, read: Duration| {
            let times = FileTimes::new();
            let times =
                times.set_modified(SystemTime::UNIX_EPOCH + changed).set_accessed(SystemTime::UNIX_EPOCH + read);
            File::create(at(name)).unwrap().set_times(times).unwrap();
        };
        let minute = Duration::from_secs(60);
        touch("old", now - OLD - minute, now - OLD - minute);
        touch("read", now - OLD - minute, now - minute);
        touch("young", now - OLD + minute, now - OLD + minute);
        std::fs::create_dir(at("directory")).unwrap();
        remove_old_files(directory.path());
        let there = |name: &str| at(name).exists();
        assert_eq!(["old", "read", "young", "directory"].map(there), [false, true, true, true]);
        // Not again at once, and again after a while.
        touch("old", now - OLD - minute, now - OLD - minute);
        remove_old_files(directory.path());
        assert!(there("old"));
        assert!(!is_due(directory.path(), clock::now()) && is_due(directory.path(), clock::now() + INTERVAL));
    }
}
