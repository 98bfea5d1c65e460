//! Scans the directory: finds messages, users with too many files, and old files to remove.
//!
//! Any user can fill the directory. So every entry counts for its owner, under any name; of one user the server knows
//! at most `submit.user_files_max` messages at a time, and only these count for `submit.files_max`: the others wait
//! until those have gone, and take no room from other users. An old entry that is neither a message nor in use is
//! removed ([`Cleanup`]). All names are read, and no more are kept than the limits allow.
//!
//! A directory without changes since the last scan is not scanned again, and one that takes long is scanned more
//! rarely: a scan costs a twentieth of a core at most, and has a thread of its own.
//!
//! Files are counted here only, since no other process can list them. The server writes the users with too many files
//! into a file beside them (`full`), which the sendmail command reads before it writes.

use super::directory::{PickupDirectory, PickupEntry};
use super::{BAD, NEW, Name};
use crate::config::Submit;
use crate::submit::{FULL, SOCKET};
use os::clock;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

/// How often the directory is looked through.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// The same while it has more messages than are known.
const INTERVAL_MORE: Duration = Duration::from_secs(1);
/// The share of the time that scans may take: one in so many.
const SHARE: u32 = 20;
/// A directory that changed so short a time before may change again without another time of its change.
const SETTLED: Duration = Duration::from_secs(2);
/// Age of a file below which its command may still be about to ask for its results.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// Time between two looks for unfinished files.
const TIDY_INTERVAL: Duration = Duration::from_secs(600);
/// How long a file stays that is being written.
const UNFINISHED_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Time for which a file that is no message stays for an operator to see, and other entries that users make.
pub(super) const BAD_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Time for which either stays of a user who has more in the directory than `submit.user_files_max`.
const EXCESS_MAX: Duration = Duration::from_secs(3_600);
/// Messages that are known at a time however low the limits are.
const KNOWN_MIN: usize = 1_000;
/// Users that `full` names; it is for a few, and with all of them the limit `all` holds.
const USERS_MAX: usize = 1_000;

/// The name of [`FULL`] while it is written.
const FULL_NEW: &str = "full.new";

/// How many files there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanLimits {
    /// `submit.files_max`
    pub(super) all: usize,
    /// `submit.user_files_max`; 0 for no limit.
    pub(super) user: usize,
}

impl ScanLimits {
    pub(super) fn new(submit: &Submit) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self { all: count(submit.files_max), user: count(submit.user_files_max) }
    }

    /// Returns how many files of one user count.
    fn of(self, uid: u32) -> usize {
        if uid == 0 || self.user == 0 { self.all } else { self.user.min(self.all) }
    }

    /// Returns how many messages of one user are known at a time.
    pub(super) fn known_of(self, uid: u32) -> usize {
        self.of(uid).max(KNOWN_MIN)
    }

    /// Messages that are known at a time.
    fn known(self) -> usize {
        self.all.saturating_mul(2).max(10 * KNOWN_MIN)
    }

    fn is_excessive(self, uid: u32, files: usize) -> bool {
        uid != 0 && self.user > 0 && files > self.user
    }
}

/// A message in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PickupMessage {
    pub(super) name: Name,
    /// The owner of the file.
    pub(super) uid: u32,
}

/// Result of a scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DirectoryScan {
    /// Messages in no order; of each user as many as the limit allows.
    pub(super) messages: Vec<PickupMessage>,
    /// Those of them that were written a moment ago.
    pub(super) fresh: HashSet<String>,
    /// Messages, and files that are being written, those beyond limits too.
    pub(super) files: usize,
    /// There are messages beyond the limits, for the next look.
    pub(super) has_more: bool,
    /// New content of the file `full`, if it changed: users at their limits; empty: no user is.
    pub(super) full: Option<String>,
    /// Why that file could not be written. Mail is accepted all the same.
    pub(super) trouble: Option<String>,
    pub(super) waste: Cleanup,
}

/// Entries that are no messages and old enough to be removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cleanup {
    pub(super) removed: usize,
    /// An entry that could not be removed, and why.
    pub(super) stays: Option<(String, String)>,
}

/// State that a scanner keeps between scans.
#[derive(Debug, Default)]
pub(super) struct DirectoryScanner {
    /// Owners of the messages found.
    owners: HashMap<String, u32>,
    /// Users that had more than `submit.user_files_max`.
    excessive: HashSet<u32>,
    /// When the directory was changed before the last look, and the limits then, if nothing can have been missed.
    seen: Option<((i64, i64), ScanLimits)>,
    /// Since 1970.
    tidied: Duration,
    full: Option<String>,
}

/// Counts of one scan.
#[derive(Default)]
struct Count {
    messages: Vec<PickupMessage>,
    fresh: HashSet<String>,
    files: usize,
    /// Everything in the directory, by owner.
    users: HashMap<u32, usize>,
    /// Messages in `messages`, by owner.
    kept: HashMap<u32, usize>,
    owners: HashMap<String, u32>,
    has_more: bool,
    waste: Cleanup,
}

impl DirectoryScanner {
    /// Looks. `None`: nothing has changed. `is_doubted`: the clock of the machine is wrong, and no file is removed for
    /// its age. Blocks.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(super) fn look(
        &mut self,
        directory: &PickupDirectory,
        limits: ScanLimits,
        is_doubted: bool,
    ) -> io::Result<Option<DirectoryScan>> {
        self.look_at(directory, limits, Duration::from_micros(clock::unix_us()), is_doubted)
    }

    /// Does the same at this time, since 1970.
    fn look_at(
        &mut self,
        directory: &PickupDirectory,
        limits: ScanLimits,
        now: Duration,
        is_doubted: bool,
    ) -> io::Result<Option<DirectoryScan>> {
        let changed = directory.changed()?;
        let is_tidying = !is_doubted && now.saturating_sub(self.tidied) >= TIDY_INTERVAL;
        if !is_tidying && self.seen == Some((changed, limits)) {
            return Ok(None);
        }
        let at = Duration::new(u64::try_from(changed.0).unwrap_or(0), u32::try_from(changed.1).unwrap_or(0));
        let may_be_fresh = now.saturating_sub(at) <= FRESH;
        let mut count = Count::default();
        for name in directory.names()? {
            let name = name?;
            let text = name.to_str().unwrap_or_default();
            if [FULL, FULL_NEW, SOCKET].contains(&text) {
                continue;
            }
            match Name::read(text) {
                Some(message) => {
                    self.count_message(directory, &mut count, limits, message, may_be_fresh.then_some(now))
                }
                None => self.count_other(directory, &mut count, &name, is_tidying.then_some(now)),
            }
        }
        if is_tidying {
            self.tidied = now;
        }
        self.seen = (now.saturating_sub(at) > SETTLED).then_some((changed, limits));
        self.owners = std::mem::take(&mut count.owners);
        let full = full(&count.users, limits);
        self.excessive = count
            .users
            .iter()
            .filter(|(uid, files)| limits.is_excessive(**uid, **files))
            .map(|(uid, _)| *uid)
            .collect();
        let Count { messages, fresh, files, has_more, waste, .. } = count;
        let mut found = DirectoryScan { messages, fresh, files, has_more, waste, ..DirectoryScan::default() };
        if self.full.as_ref() != Some(&full) {
            match directory.set_full(&full) {
                Ok(()) => {
                    self.full = Some(full.clone());
                    found.full = Some(full);
                }
                Err(error) => found.trouble = Some(error.to_string()),
            }
        }
        Ok(Some(found))
    }

    /// `now`: something may be fresh.
    fn count_message(
        &self,
        directory: &PickupDirectory,
        count: &mut Count,
        limits: ScanLimits,
        name: Name,
        now: Option<Duration>,
    ) {
        let entry = || {
            let text = std::ffi::CString::new(name.text()).ok()?;
            directory.entry(&text).ok()
        };
        let known = self.owners.get(&name.base).copied();
        let asked = if known.is_none() || now.is_some() { entry() } else { None };
        // It has gone meanwhile.
        let Some(uid) = known.or_else(|| asked.map(|entry| entry.uid)) else { return };
        count.files += 1;
        *count.users.entry(uid).or_default() += 1;
        let kept = count.kept.entry(uid).or_default();
        if *kept >= limits.known_of(uid) || count.messages.len() >= limits.known() {
            count.has_more = true;
            return;
        }
        *kept += 1;
        count.owners.insert(name.base.clone(), uid);
        let is_fresh =
            |now: Duration, entry: PickupEntry| now.as_secs().saturating_sub(entry.changed) <= FRESH.as_secs();
        if name.id.is_none() && now.zip(asked).is_some_and(|(now, entry)| is_fresh(now, entry)) {
            count.fresh.insert(name.base.clone());
        }
        count.messages.push(PickupMessage { name, uid });
    }

    /// Counts another entry. With `now`, old ones are removed.
    fn count_other(&self, directory: &PickupDirectory, count: &mut Count, name: &CStr, now: Option<Duration>) {
        let octets = name.to_bytes();
        let Ok(entry) = directory.entry(name) else { return };
        if let Some(now) = now
            && let Some(most) = self.time_of(octets, entry.uid)
            && now.as_secs().saturating_sub(entry.changed) > most.as_secs()
        {
            match directory.remove_any(name) {
                Ok(()) => {
                    count.waste.removed += 1;
                    return;
                }
                Err(error) => {
                    count.waste.stays = Some((name.to_string_lossy().into_owned(), error.to_string()));
                }
            }
        }
        count.files += usize::from(octets.starts_with(NEW.as_bytes()));
        *count.users.entry(entry.uid).or_default() += 1;
    }

    /// Returns how long an entry stays that is no message; `None`: it is not ours to remove.
    fn time_of(&self, name: &[u8], uid: u32) -> Option<Duration> {
        let most = match name {
            _ if name.starts_with(NEW.as_bytes()) => UNFINISHED_MAX,
            _ if name.starts_with(BAD.as_bytes()) => BAD_MAX,
            // Messages that are imported from another server, and files of an operator.
            _ if [0, os::machine::uid()].contains(&uid) => return None,
            _ => BAD_MAX,
        };
        Some(if self.excessive.contains(&uid) { most.min(EXCESS_MAX) } else { most })
    }
}

/// Returns the content of [`FULL`]: the users at their limits.
fn full(users: &HashMap<u32, usize>, limits: ScanLimits) -> String {
    let mut text = String::new();
    // Files of a user beyond the limit take no room from others.
    let all: usize = users.iter().map(|(uid, files)| (*files).min(limits.of(*uid))).sum();
    if all >= limits.all {
        writeln!(text, "all {all}").expect("a string takes everything");
    }
    let mut many: Vec<(u32, usize)> = users
        .iter()
        .filter(|(uid, files)| limits.user > 0 && **uid != 0 && **files >= limits.user)
        .map(|(uid, files)| (*uid, *files))
        .collect();
    many.sort_unstable_by_key(|(uid, files)| (std::cmp::Reverse(*files), *uid));
    for (uid, files) in many.into_iter().take(USERS_MAX) {
        writeln!(text, "{uid} {files}").expect("a string takes everything");
    }
    text
}

/// Returns how long after a look that took `took` the next one is.
pub(super) fn pause(took: Duration, has_more: bool) -> Duration {
    if has_more { INTERVAL_MORE } else { INTERVAL }.max(took.saturating_mul(SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::FULL;
    use std::path::Path;

    fn name(number: usize) -> String {
        format!("mail.{number:032x}")
    }

    /// Sets an old time, as if the directory had not changed for a while.
    fn settle(path: &Path) {
        let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
    }

    #[test]
    fn a_directory_that_has_not_changed_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = PickupDirectory::open(&path, None).unwrap();
        let limits = ScanLimits { all: 10, user: 0 };
        // However long the files take here, they are of this moment.
        let now = Duration::from_micros(clock::unix_us());
        for number in 0..3 {
            std::fs::write(path.join(name(number)), "").unwrap();
        }
        std::fs::write(path.join("bad.x"), "").unwrap();
        let mut scanner = DirectoryScanner::default();
        let found = scanner.look_at(&directory, limits, now, false).unwrap().unwrap();
        assert_eq!((found.messages.len(), found.files, found.full), (3, 3, Some(String::new())));
        assert_eq!(found.fresh.len(), 3, "somebody may be about to ask for them");
        assert!(scanner.look_at(&directory, limits, now, false).unwrap().is_some(), "it changed a moment ago");
        settle(&path);
        assert!(scanner.look(&directory, limits, false).unwrap().unwrap().fresh.is_empty());
        assert_eq!(scanner.look(&directory, limits, false).unwrap(), None);
        assert!(scanner.look(&directory, ScanLimits { all: 2, user: 0 }, false).unwrap().is_some(), "other limits");
        std::fs::write(path.join(name(3)), "").unwrap();
        assert_eq!(scanner.look(&directory, limits, false).unwrap().unwrap().messages.len(), 4);
    }

    #[test]
    fn too_many_are_told_of_until_they_are_fewer() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = PickupDirectory::open(&path, None).unwrap();
        let limits = ScanLimits { all: 4, user: 0 };
        let mut scanner = DirectoryScanner::default();
        (0..3).for_each(|number| std::fs::write(path.join(name(number)), "").unwrap());
        std::fs::write(path.join(FULL), "all 9\n").unwrap();
        scanner.look(&directory, limits, false).unwrap();
        assert!(!path.join(FULL).exists(), "what an earlier server or somebody else said");
        // One that is being written takes room too.
        std::fs::write(path.join(format!("new.{:032x}", 1)), "").unwrap();
        let found = scanner.look(&directory, limits, false).unwrap().unwrap();
        assert_eq!(
            (found.full.as_deref(), std::fs::read_to_string(path.join(FULL)).unwrap().as_str()),
            (Some("all 4\n"), "all 4\n")
        );
        assert_eq!(scanner.look(&directory, limits, false).unwrap().unwrap().full, None, "nothing new");
        std::fs::remove_file(path.join(name(0))).unwrap();
        assert_eq!(scanner.look(&directory, limits, false).unwrap().unwrap().full, Some(String::new()));
        assert!(!path.join(FULL).exists());
    }

    #[test]
    fn the_files_of_one_user_are_counted() {
        if os::machine::uid() != 0 {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = PickupDirectory::open(&path, None).unwrap();
        for (number, uid) in [1_000, 1_000, 1_001, 0, 0, 0].into_iter().enumerate() {
            std::fs::write(path.join(name(number)), "").unwrap();
            std::os::unix::fs::chown(path.join(name(number)), Some(uid), None).unwrap();
        }
        let mut scanner = DirectoryScanner::default();
        let full = |scanner: &mut DirectoryScanner, user| {
            scanner.look(&directory, ScanLimits { all: 100, user }, false).unwrap().unwrap().full
        };
        assert_eq!(full(&mut scanner, 3), Some(String::new()), "root may");
        assert_eq!(full(&mut scanner, 2), Some("1000 2\n".to_owned()));
        assert_eq!(full(&mut scanner, 1), Some("1000 2\n1001 1\n".to_owned()));
        assert_eq!((scanner.owners.len(), full(&mut scanner, 0)), (6, Some(String::new())));
    }

    #[test]
    fn of_one_user_no_more_are_known_than_he_may_have() {
        if os::machine::uid() != 0 {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = PickupDirectory::open(&path, None).unwrap();
        let (flood, one) = (KNOWN_MIN + 500, KNOWN_MIN + 501);
        for number in 0..one {
            std::fs::write(path.join(name(number)), "").unwrap();
            let uid = if number < flood { 1_000 } else { 1_001 };
            std::os::unix::fs::chown(path.join(name(number)), Some(uid), None).unwrap();
        }
        let mut scanner = DirectoryScanner::default();
        let limits = ScanLimits { all: 20, user: 10 };
        let found = scanner.look(&directory, limits, false).unwrap().unwrap();
        let of = |uid| found.messages.iter().filter(|message| message.uid == uid).count();
        assert_eq!((of(1_000), of(1_001), found.files, found.has_more), (KNOWN_MIN, 1, one, true));
        assert_eq!(found.full.as_deref(), Some(format!("1000 {flood}\n").as_str()), "not all: others have room");
        assert_eq!(scanner.owners.len(), KNOWN_MIN + 1, "no more names are kept");
        let found = scanner.look(&directory, ScanLimits { all: 11, user: 10 }, false).unwrap().unwrap();
        assert_eq!(found.full.as_deref(), Some(format!("all 11\n1000 {flood}\n").as_str()));
    }

    #[test]
    fn what_is_no_message_counts_for_its_owner_and_goes_when_it_is_old() {
        if os::machine::uid() != 0 {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = PickupDirectory::open(&path, None).unwrap();
        let give = |name: &str, uid| std::os::unix::fs::lchown(path.join(name), Some(uid), None).unwrap();
        for (name, uid) in [
            ("new.1", 1_000),
            ("bad.1", 1_000),
            ("odd \n\u{202e}", 1_000),
            ("mail.x", 1_000),
            ("wait.1", 0),
            ("wait.2", 1_000),
            ("notes", 0),
        ] {
            std::fs::write(path.join(name), "").unwrap();
            give(name, uid);
        }
        std::fs::create_dir_all(path.join("filled/inner")).unwrap();
        std::fs::create_dir(path.join("empty")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path.join("link")).unwrap();
        ["filled", "empty", "link"].into_iter().for_each(|name| give(name, 1_001));
        let now = Duration::from_micros(clock::unix_us());
        let (day, limits) = (Duration::from_secs(24 * 3_600), ScanLimits { all: 100, user: 50 });
        let left = |after: Duration, limits| {
            let mut scanner = DirectoryScanner::default();
            let found = scanner.look_at(&directory, limits, now + after, false).unwrap().unwrap();
            let mut names: Vec<_> =
                directory.names().unwrap().map(|name| name.unwrap().into_string().unwrap()).collect();
            names.sort();
            names.retain(|name| name != FULL);
            (names.join(","), found.waste, found.full.unwrap_or_default())
        };
        let all = "bad.1,empty,filled,link,mail.x,new.1,notes,odd \n\u{202e},wait.1,wait.2";
        assert_eq!(left(day / 2, limits), (all.to_owned(), Cleanup::default(), String::new()));
        let doubted = DirectoryScanner::default().look_at(&directory, limits, now + day * 400, true).unwrap().unwrap();
        assert_eq!(doubted.waste, Cleanup::default(), "a clock that is doubted removes nothing");
        let (names, waste, full) = left(day * 2, ScanLimits { all: 100, user: 4 });
        assert_eq!((names, waste.removed), (all.replace("new.1,", ""), 1));
        assert_eq!(full, "1000 4\n", "a message or not, it is one of his files");
        let (names, waste, _) = left(day * 8, limits);
        assert_eq!((names.as_str(), waste.removed), ("filled,notes,wait.1", 6), "what root has put there stays");
        assert_eq!(waste.stays.unwrap().0, "filled", "nobody but its owner can empty it");
    }

    #[test]
    fn waste_of_who_has_too_much_goes_soon() {
        let scanner = DirectoryScanner { excessive: HashSet::from([1_000]), ..DirectoryScanner::default() };
        for (name, uid, time) in [
            (&b"new.x"[..], 1_000, Some(EXCESS_MAX)),
            (b"bad.x", 1_000, Some(EXCESS_MAX)),
            (b"\xff", 1_000, Some(EXCESS_MAX)),
            (b"new.x", 1_001, Some(UNFINISHED_MAX)),
            (b"bad.x", 1_001, Some(BAD_MAX)),
            (b"bad.x", 0, Some(BAD_MAX)),
            (b"wait.x", 1_001, Some(BAD_MAX)),
            (b"wait.x", 0, None),
            (b"lost+found", 0, None),
        ] {
            assert_eq!(scanner.time_of(name, uid), time, "{} {uid}", name.escape_ascii());
        }
    }

    #[test]
    fn long_looks_are_rare() {
        assert_eq!(pause(Duration::from_millis(1), false), INTERVAL);
        assert_eq!(pause(Duration::from_millis(1), true), INTERVAL_MORE);
        assert_eq!(pause(Duration::from_secs(2), true), Duration::from_secs(40));
    }
}
