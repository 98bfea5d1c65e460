//! Looking through the directory: which messages are there, and whether there are too many.
//!
//! A directory that has not changed since it was looked through is not looked through again, and one that takes long is looked
//! through more rarely: the looking costs a twentieth of a core at most. Names beyond a bound wait until others have gone, so that
//! memory is bounded too.
//!
//! Files are counted here and nowhere else, since nobody but the server can list them. Of whom there are too many
//! is written down beside them (`full`), where the sendmail command reads it before it writes.

use super::directory::Directory;
use super::{MAIL, NEW, Name};
use crate::config::Submit;
use crate::env::clock;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

/// How often the directory is looked through.
const INTERVAL: Duration = Duration::from_secs(5);
/// The part of the time that may go into looking: one in so many.
const SHARE: u32 = 20;
/// A directory that changed so short a time before may change again without its time telling.
const SETTLED: Duration = Duration::from_secs(2);
/// A file so young has a command behind it that is about to ask what becomes of it.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// How often files are looked for that nobody finished.
const TIDY_INTERVAL: Duration = Duration::from_secs(600);
/// How old a file is that nobody writes any more.
const UNFINISHED_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Users who are named in `full`; it is for a few, and everybody would be `all`.
const USERS_MAX: usize = 1_000;

/// How many files there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// `submit.files_max`
    pub(super) all: usize,
    /// `submit.user_files_max`; 0 for no limit.
    pub(super) user: usize,
}

impl Limits {
    pub(super) fn of(submit: &Submit) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self { all: count(submit.files_max), user: count(submit.user_files_max) }
    }
}

/// What came of looking.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Messages, in no order.
    pub(super) names: Vec<Name>,
    /// Those of them that were written a moment ago.
    pub(super) fresh: HashSet<String>,
    /// Files that count for the limits. There may be more where names were left out.
    pub(super) files: usize,
    /// Who may hand in no more, where that has changed; empty: everybody may.
    pub(super) full: Option<String>,
    /// Why that could not be written down. Mail is taken all the same.
    pub(super) trouble: Option<String>,
}

/// What is known from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Looker {
    /// Who has written what is there; only while somebody may have too much.
    owners: HashMap<String, u32>,
    /// When the directory was changed before the last look that saw all of it, if nothing can have been missed.
    seen: Option<(i64, i64)>,
    /// Since 1970.
    tidied: Duration,
    full: Option<String>,
}

impl Looker {
    /// Looks. `None`: nothing has changed. Blocks.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(super) fn look(&mut self, directory: &Directory, limits: Limits) -> io::Result<Option<Found>> {
        let now = Duration::from_micros(clock::unix_us());
        let changed = directory.changed()?;
        let is_tidying = now.saturating_sub(self.tidied) >= TIDY_INTERVAL;
        if !is_tidying && self.seen == Some(changed) {
            return Ok(None);
        }
        let most = limits.all.saturating_mul(2).max(1_000);
        let (mut names, mut files, mut is_cut) = (Vec::new(), 0, false);
        for name in directory.names()? {
            let name = name?;
            if name.starts_with(NEW) {
                files += 1;
                let is_old = |at| now.as_secs().saturating_sub(at) > UNFINISHED_MAX.as_secs();
                if is_tidying && directory.written(&name).is_ok_and(is_old) {
                    drop(directory.remove(&name));
                }
            } else if name.starts_with(MAIL) {
                files += 1;
                names.extend(Name::read(&name));
            }
            is_cut = files >= most;
            if is_cut {
                break;
            }
        }
        if is_tidying {
            self.tidied = now;
        }
        let at = Duration::new(u64::try_from(changed.0).unwrap_or(0), u32::try_from(changed.1).unwrap_or(0));
        self.seen = (!is_cut && now.saturating_sub(at) > SETTLED).then_some(changed);
        let full = self.count(directory, &names, files, limits);
        let mut found = Found { names, files, ..Found::default() };
        if now.saturating_sub(at) <= FRESH {
            let is_fresh = |name: &&Name| {
                directory.written(&name.text()).is_ok_and(|at| now.as_secs().saturating_sub(at) <= FRESH.as_secs())
            };
            let young = found.names.iter().filter(|name| name.id.is_none()).filter(is_fresh);
            found.fresh = young.map(|name| name.base.clone()).collect();
        }
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

    /// Who has too many.
    fn count(&mut self, directory: &Directory, names: &[Name], files: usize, limits: Limits) -> String {
        let mut text = String::new();
        if files >= limits.all {
            text.push_str(&format!("all {files}\n"));
        }
        if limits.user == 0 || names.len() < limits.user {
            self.owners = HashMap::new();
            return text;
        }
        let mut owners = HashMap::with_capacity(names.len());
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for name in names {
            let known = self.owners.get(&name.base).copied();
            let Some(uid) = known.or_else(|| directory.owner(&name.text()).ok()) else { continue };
            *counts.entry(uid).or_default() += 1;
            owners.insert(name.base.clone(), uid);
        }
        self.owners = owners;
        let mut many: Vec<(u32, usize)> =
            counts.into_iter().filter(|(uid, count)| *uid != 0 && *count >= limits.user).collect();
        many.sort_unstable_by_key(|(uid, count)| (std::cmp::Reverse(*count), *uid));
        for (uid, count) in many.into_iter().take(USERS_MAX) {
            writeln!(text, "{uid} {count}").expect("a string takes everything");
        }
        text
    }
}

/// How long after a look that took `took` the next one is.
pub(super) fn pause(took: Duration) -> Duration {
    INTERVAL.max(took.saturating_mul(SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::FULL;
    use std::path::Path;

    fn name(number: usize) -> String {
        format!("mail.{number:032x}")
    }

    /// As if nobody had touched it for a while.
    fn settle(path: &Path) {
        let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
    }

    #[test]
    fn a_directory_that_has_not_changed_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = Directory::open(&path, None).unwrap();
        let limits = Limits { all: 10, user: 0 };
        for number in 0..3 {
            std::fs::write(path.join(name(number)), "").unwrap();
        }
        std::fs::write(path.join("bad.x"), "").unwrap();
        let mut looker = Looker::default();
        let found = looker.look(&directory, limits).unwrap().unwrap();
        assert_eq!((found.names.len(), found.files, found.full), (3, 3, Some(String::new())));
        assert_eq!(found.fresh.len(), 3, "somebody may be about to ask for them");
        assert!(looker.look(&directory, limits).unwrap().is_some(), "it changed a moment ago");
        settle(&path);
        assert!(looker.look(&directory, limits).unwrap().unwrap().fresh.is_empty());
        assert_eq!(looker.look(&directory, limits).unwrap(), None);
        std::fs::write(path.join(name(3)), "").unwrap();
        assert_eq!(looker.look(&directory, limits).unwrap().unwrap().names.len(), 4);
    }

    #[test]
    fn too_many_are_told_of_until_they_are_fewer() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = Directory::open(&path, None).unwrap();
        let limits = Limits { all: 4, user: 0 };
        let mut looker = Looker::default();
        (0..3).for_each(|number| std::fs::write(path.join(name(number)), "").unwrap());
        std::fs::write(path.join(FULL), "all 9\n").unwrap();
        looker.look(&directory, limits).unwrap();
        assert!(!path.join(FULL).exists(), "what an earlier server or somebody else said");
        // One that is being written takes room too.
        std::fs::write(path.join(format!("new.{:032x}", 1)), "").unwrap();
        let found = looker.look(&directory, limits).unwrap().unwrap();
        assert_eq!(
            (found.full.as_deref(), std::fs::read_to_string(path.join(FULL)).unwrap().as_str()),
            (Some("all 4\n"), "all 4\n")
        );
        assert_eq!(looker.look(&directory, limits).unwrap().unwrap().full, None, "nothing new");
        std::fs::remove_file(path.join(name(0))).unwrap();
        assert_eq!(looker.look(&directory, limits).unwrap().unwrap().full, Some(String::new()));
        assert!(!path.join(FULL).exists());
    }

    #[test]
    fn the_files_of_one_user_are_counted() {
        if crate::env::machine::uid() != 0 {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = Directory::open(&path, None).unwrap();
        for (number, uid) in [1_000, 1_000, 1_001, 0, 0, 0].into_iter().enumerate() {
            std::fs::write(path.join(name(number)), "").unwrap();
            std::os::unix::fs::chown(path.join(name(number)), Some(uid), None).unwrap();
        }
        let mut looker = Looker::default();
        let full =
            |looker: &mut Looker, user| looker.look(&directory, Limits { all: 100, user }).unwrap().unwrap().full;
        assert_eq!(full(&mut looker, 3), Some(String::new()), "root may");
        assert_eq!(full(&mut looker, 2), Some("1000 2\n".to_owned()));
        assert_eq!(full(&mut looker, 1), Some("1000 2\n1001 1\n".to_owned()));
        assert_eq!((looker.owners.len(), full(&mut looker, 0)), (6, Some(String::new())));
        assert!(looker.owners.is_empty());
    }

    #[test]
    fn names_beyond_the_bound_wait() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = Directory::open(&path, None).unwrap();
        (0..1_100).for_each(|number| std::fs::write(path.join(name(number)), "").unwrap());
        let mut looker = Looker::default();
        settle(&path);
        for _ in 0..2 {
            let found = looker.look(&directory, Limits { all: 10, user: 0 }).unwrap().unwrap();
            assert_eq!(found.files, 1_000, "looked through again, for not all was seen");
            settle(&path);
        }
    }

    #[test]
    fn long_looks_are_rare() {
        assert_eq!(pause(Duration::from_millis(1)), INTERVAL);
        assert_eq!(pause(Duration::from_secs(2)), Duration::from_secs(40));
    }
}
