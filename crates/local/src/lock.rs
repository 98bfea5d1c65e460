//! Locks on mailbox files, in this order: this process' own turn, the lock file `FILE.lock`, the kernel's lock on the
//! file.
//!
//! A lock file has the number of its process in it. One whose process is gone, or that is older than [`STALE_AFTER`]
//! and of a process that cannot be known, is removed: it is moved away first, and put back if it was not the one that
//! was looked at. The kernel's lock is that of `fcntl`, which belongs to a process; so inside one process [`Turn`]
//! keeps deliveries apart.
//!
//! Every wait is bounded by the caller's time. A crash leaves a lock file, which the next delivery finds stale.

use os::clock;
use rustix::fs::{FlockOperation, Mode, OFlags, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A lock file without a running owner is stale after this; the same as in liblockfile.
const STALE_AFTER: Duration = Duration::from_secs(300);
/// How long a process waits before it looks again.
const PAUSE: Duration = Duration::from_millis(50);

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum NoLock {
    /// Another process has it, and the time is over.
    Busy(String),
    /// It cannot be made.
    Error(io::Error),
}

/// Files that are written by this process now.
static BUSY: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static FREED: Condvar = Condvar::new();

/// The right of one thread of this process to write to a file.
#[derive(Debug)]
pub(crate) struct Turn(PathBuf);

impl Turn {
    /// Acquires the lock, waiting for its holder until a time.
    ///
    /// # Errors
    /// It was not free in time.
    pub(crate) fn acquire(path: &Path, until: Instant) -> Result<Self, NoLock> {
        let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        while busy.contains(path) {
            let Some(left) = until.checked_duration_since(clock::now()).filter(|left| !left.is_zero()) else {
                return Err(NoLock::Busy("another delivery of this server".to_owned()));
            };
            busy = FREED.wait_timeout(busy, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        busy.insert(path.to_owned());
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        BUSY.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        FREED.notify_all();
    }
}

/// A lock file, removed when it goes.
#[derive(Debug)]
pub(crate) struct Dotlock(PathBuf);

impl Dotlock {
    /// Makes `FILE.lock`, waiting for its holder until a time.
    ///
    /// # Errors
    /// It is there and not stale, or cannot be made.
    pub(crate) fn acquire(file: &Path, until: Instant) -> Result<Self, NoLock> {
        let mut name = file.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        loop {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644)) {
                Ok(made) => {
                    let lock = Self(path);
                    // A disk without room for it is told here, and the lock goes again.
                    let mut made = File::from(made);
                    write!(made, "{}", std::process::id()).map_err(NoLock::Error)?;
                    return Ok(lock);
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(NoLock::Error(error.into())),
            }
            if !remove_stale(&path).map_err(NoLock::Error)? {
                if clock::now() >= until {
                    return Err(NoLock::Busy(format!("{}", path.display())));
                }
                std::thread::park_timeout(PAUSE);
            }
        }
    }
}

impl Drop for Dotlock {
    fn drop(&mut self) {
        // One that stays is stale, and removed by the next.
        drop(std::fs::remove_file(&self.0));
    }
}

/// Removes a lock file that no process holds. Whether it is gone.
fn remove_stale(path: &Path) -> io::Result<bool> {
    let found = match look(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    if !found.is_stale() {
        return Ok(false);
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    match rustix::fs::rename(path, &aside) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(true),
        Err(error) => return Err(error.into()),
    }
    let moved = look(&aside);
    if moved.as_ref().is_ok_and(|moved| moved.inode != found.inode || !moved.is_stale()) {
        // Another process was faster and this is its lock, so it is put back. A process that took the lock meanwhile
        // waits at the kernel's lock.
        drop(std::fs::hard_link(&aside, path));
    }
    std::fs::remove_file(&aside)?;
    Ok(true)
}

/// The properties of a lock file.
struct LockFile {
    inode: u64,
    age: Duration,
    /// 0 where it does not say.
    pid: i32,
}

fn look(path: &Path) -> io::Result<LockFile> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let (metadata, text) = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            let metadata = file.metadata()?;
            let mut text = String::new();
            // A text that is no number names no process.
            drop(file.take(16).read_to_string(&mut text));
            (metadata, text)
        }
        // The file is another user's: only its age counts.
        Err(Errno::ACCESS | Errno::LOOP | Errno::NXIO) => (std::fs::symlink_metadata(path)?, String::new()),
        Err(error) => return Err(error.into()),
    };
    let written = Duration::from_secs(u64::try_from(metadata.mtime()).unwrap_or(0));
    let age = Duration::from_micros(clock::unix_us()).saturating_sub(written);
    Ok(LockFile { inode: metadata.ino(), age, pid: text.trim().parse().unwrap_or(0) })
}

impl LockFile {
    fn is_stale(&self) -> bool {
        match Pid::from_raw(self.pid.max(0)) {
            Some(pid) => matches!(test_kill_process(pid), Err(Errno::SRCH)),
            None => self.age >= STALE_AFTER,
        }
    }
}

/// Locks an open file against other processes, for as long as this process has it open.
///
/// # Errors
/// It is locked for longer, or the file system knows no locks.
pub(crate) fn lock_file(file: &File, until: Instant) -> Result<(), NoLock> {
    loop {
        match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN | Errno::ACCESS) if clock::now() < until => std::thread::park_timeout(PAUSE),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                return Err(NoLock::Busy("another program that has it open".to_owned()));
            }
            Err(error) => return Err(NoLock::Error(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{FileTimes, OpenOptions};
    use std::time::SystemTime;

    fn soon() -> Instant {
        clock::now() + Duration::from_millis(120)
    }

    #[test]
    fn a_lock_file_keeps_others_out_until_it_goes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("joe");
        let lock = Dotlock::acquire(&file, soon()).unwrap();
        let path = directory.path().join("joe.lock");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), std::process::id().to_string());
        assert!(matches!(Dotlock::acquire(&file, clock::now()), Err(NoLock::Busy(name)) if name.ends_with("joe.lock")));
        drop(lock);
        assert!(!path.exists());
        drop(Dotlock::acquire(&file, clock::now()).unwrap());
        assert!(matches!(Dotlock::acquire(&directory.path().join("no/joe"), soon()), Err(NoLock::Error(_))));
    }

    #[test]
    fn a_stale_lock_file_goes_and_a_live_one_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (file, path) = (directory.path().join("joe"), directory.path().join("joe.lock"));
        // The number of a process that is gone: a child that was waited for.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        std::fs::write(&path, pid.to_string()).unwrap();
        drop(Dotlock::acquire(&file, clock::now()).unwrap());
        // A file without the number of a process: its age counts.
        for text in ["", "0", "-1", "nobody"] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(Dotlock::acquire(&file, clock::now()), Err(NoLock::Busy(_))), "{text:?} is young");
            let old =
                SystemTime::UNIX_EPOCH + Duration::from_micros(clock::unix_us()) - STALE_AFTER - Duration::from_secs(2);
            OpenOptions::new().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(old)).unwrap();
            drop(Dotlock::acquire(&file, clock::now()).unwrap());
        }
        // A lock of this process is never stale, however old.
        std::fs::write(&path, std::process::id().to_string()).unwrap();
        let file_of = OpenOptions::new().write(true).open(&path).unwrap();
        file_of.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).unwrap();
        assert!(matches!(Dotlock::acquire(&file, clock::now()), Err(NoLock::Busy(_))));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn threads_take_turns() {
        let path = Path::new("/nowhere/turns");
        let turn = Turn::acquire(path, clock::now()).unwrap();
        assert!(matches!(Turn::acquire(path, soon()), Err(NoLock::Busy(_))));
        let waiting = std::thread::spawn(|| {
            Turn::acquire(Path::new("/nowhere/turns"), clock::now() + Duration::from_secs(60)).is_ok()
        });
        drop(turn);
        assert!(waiting.join().unwrap());
    }
}
