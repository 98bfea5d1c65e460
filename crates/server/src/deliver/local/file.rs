//! Mailbox files, and files of aliases: messages behind one another.
//!
//! A delivery is done when the file, and the directory of a new one, were synced under all locks ([`lock`](super::lock)). What is written when
//! something fails is cut off again, so that a file has whole messages; after a crash of the machine in between, half a message
//! may stand there, and the message follows again. Only regular files with one name, of the user who writes, are written to; a
//! link is never followed. Every refusal of the system is a deferral that names the file.

use super::letter::{Broken, Form, Letter, unreadable};
use super::lock::{Dotlock, NoLock, Turn, lock_file};
use super::order::{Settings, Verdict};
use super::person::Person;
use crate::env::clock;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

/// What is written before it goes to the system.
const BUFFER_BYTES: usize = 64 << 10;

/// Where mail of aliases may go that nobody wants.
const NOWHERE: &str = "/dev/null";

/// Something that a message is put behind the end of.
pub(crate) trait Medium: Write {
    /// Makes it as long as it was.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Returns when all of it is on stable storage.
    fn sync(&mut self) -> io::Result<()>;
}

impl Medium for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Puts a message into the mailbox of a person.
pub(crate) fn into_mailbox(letter: &mut Letter<'_>, path: &Path, person: &Person, settings: &Settings) -> Verdict {
    put(letter, path, person, settings, false).unwrap_or_else(|verdict| verdict)
}

/// Puts a message behind the end of a file that an alias names.
pub(crate) fn into_file(letter: &mut Letter<'_>, path: &str, person: &Person, settings: &Settings) -> Verdict {
    if path == NOWHERE {
        return Verdict::delivered();
    }
    allowed(Path::new(path), person, settings)
        .and_then(|path| put(letter, &path, person, settings, true))
        .unwrap_or_else(|verdict| verdict)
}

fn put(
    letter: &mut Letter<'_>,
    path: &Path,
    person: &Person,
    settings: &Settings,
    is_alias: bool,
) -> Result<Verdict, Verdict> {
    let until = clock::now() + settings.lock_time;
    let locked = |no: NoLock| no_lock(path, person, no);
    let _turn = Turn::take(path, until).map_err(locked)?;
    let _dotlock = settings.dotlock.then(|| Dotlock::take(path, until)).transpose().map_err(locked)?;
    let (mut file, is_new) = loop {
        let (file, is_new) = open(path, person, is_alias)?;
        if settings.fcntl {
            lock_file(&file, until).map_err(locked)?;
        }
        // Whoever had the lock may have put another file in its place.
        if is_still(path, &file) {
            break (file, is_new);
        }
        if clock::now() >= until {
            return Err(locked(NoLock::Busy("a program that replaces it".to_owned())));
        }
    };
    let failed = |error: io::Error| refused(path, person, &error);
    let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let gap = gap(&file, length).map_err(failed)?;
    let max = if settings.mailbox_size_max == 0 { u64::MAX } else { settings.mailbox_size_max };
    let appended = append(&mut file, length, max, gap, letter);
    let synced = appended
        .and_then(|()| if is_new { sync_directory(path).map_err(|error| (error.into(), None)) } else { Ok(()) });
    match synced {
        Ok(()) => Ok(Verdict::delivered()),
        Err((broken, uncut)) => {
            if is_new && length == 0 {
                drop(std::fs::remove_file(path));
            }
            let mut verdict = match broken {
                Broken::Read(why) => unreadable(why),
                Broken::Write(error) => refused(path, person, &error),
            };
            if let Some(error) = uncut {
                verdict
                    .text
                    .push_str(&format!("; half a message stands behind octet {length} and cannot be cut off: {error}"));
            }
            Err(verdict)
        }
    }
}

/// Writes a message behind `length` octets and syncs it, or leaves as many as there were.
///
/// # Errors
/// What was refused, and why the half message could not be cut off, if so.
pub(crate) fn append(
    medium: &mut dyn Medium,
    length: u64,
    max: u64,
    gap: &[u8],
    letter: &mut Letter<'_>,
) -> Result<(), (Broken, Option<io::Error>)> {
    let form = Form { from_line: true, quotes: true };
    let mut bounded = Bounded { medium, left: max.saturating_sub(length) };
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, &mut bounded);
    let written = out.write_all(gap).map_err(Broken::from).and_then(|()| letter.write_to(&mut out, form));
    let flushed = written.and_then(|()| out.flush().map_err(Broken::from));
    // What is left in it belongs to the message that is cut off.
    drop(out.into_parts());
    let synced = flushed.and_then(|()| medium.sync().map_err(Broken::from));
    synced.map_err(|broken| {
        let cut = medium.cut(length).and_then(|()| medium.sync());
        (broken, cut.err())
    })
}

/// Takes no more than fits.
struct Bounded<'m> {
    medium: &'m mut dyn Medium,
    left: u64,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(Errno::FBIG.into());
        }
        let written = self.medium.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.medium.flush()
    }
}

/// What is missing between the end of a file and the beginning of a message: somebody else may have left half a line.
fn gap(file: &File, length: u64) -> io::Result<&'static [u8]> {
    let mut last = [b'\n'; 2];
    let known = usize::try_from(length.min(2)).unwrap_or(2);
    if let Some(end) = last.get_mut(2 - known..) {
        file.read_exact_at(end, length - known as u64)?;
    }
    Ok(match last {
        [b'\n', b'\n'] => b"",
        [_, b'\n'] => b"\n",
        _ => b"\n\n",
    })
}

/// Opens a file to write behind its end, or makes it. Whether it was made.
fn open(path: &Path, person: &Person, is_alias: bool) -> Result<(File, bool), Verdict> {
    // Without blocking: what is no regular file, as a pipe, is found out here.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
                Err(Errno::EXIST) => rustix::fs::open(path, flags - OFlags::CREATE - OFlags::EXCL, Mode::empty()),
                made => return Ok((File::from(made.map_err(|error| refused(path, person, &error.into()))?), true)),
            }
        }
        opened => opened,
    };
    let file = File::from(opened.map_err(|error| refused(path, person, &error.into()))?);
    let found = file.metadata().map_err(|error| refused(path, person, &error))?;
    let wrong = if !found.is_file() {
        Some("is no regular file".to_owned())
    } else if found.nlink() != 1 {
        Some(format!("has {} names, and one of them may be somebody else's", found.nlink()))
    } else if found.uid() != person.login.uid {
        Some(format!("belongs to user {} and not to {}", found.uid(), person.login.name))
    } else if found.mode() & 0o002 != 0 {
        Some("may be written to by everybody".to_owned())
    } else if is_alias && found.mode() & 0o6111 != 0 {
        Some("is a program".to_owned())
    } else {
        None
    };
    match wrong {
        None => Ok((file, false)),
        Some(what) => Err(Verdict::deferred((2, 0), format!("{} {what}; nothing is written to it", path.display()))),
    }
}

/// Whether a name is still that of an open file.
fn is_still(path: &Path, file: &File) -> bool {
    let (Ok(now), Ok(ours)) = (std::fs::symlink_metadata(path), file.metadata()) else { return false };
    (now.dev(), now.ino()) == (ours.dev(), ours.ino())
}

/// Syncs the directory that a file lies in, so that its name is durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// The real name of a file of an alias, if it may be written to: it lies in or below a directory of `local.files`, and no
/// directory on the way from there may be written to by others.
fn allowed(path: &Path, person: &Person, settings: &Settings) -> Result<PathBuf, Verdict> {
    let shown = path.display();
    let no = |what: String| Verdict::deferred((2, 0), format!("{shown} {what}; nothing is written to it"));
    let is_odd = |part: Component<'_>| matches!(part, Component::ParentDir | Component::CurDir);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(no("is no file".to_owned()));
    };
    if path.components().any(is_odd) {
        return Err(no("has \"..\" in its name".to_owned()));
    }
    let real = std::fs::canonicalize(parent).map_err(|error| refused(parent, person, &error))?;
    let roots = settings.files.iter().filter_map(|root| match root.strip_prefix("%h") {
        Some(_) if !person.login.home.starts_with('/') => None,
        Some(rest) => std::fs::canonicalize(format!("{}{rest}", person.login.home)).ok(),
        None => std::fs::canonicalize(root).ok(),
    });
    let fits = |root: &PathBuf| {
        let Ok(below) = real.strip_prefix(root) else { return false };
        let is_hidden = |part: &std::ffi::OsStr| part.as_encoded_bytes().starts_with(b".");
        !is_hidden(name) && !below.iter().any(is_hidden)
    };
    let Some(root) = roots.filter(fits).max_by_key(|root| root.as_os_str().len()) else {
        return Err(no("lies in none of the directories of local.files, or begins with a dot there".to_owned()));
    };
    for directory in real.ancestors().take_while(|directory| *directory != root) {
        let found = std::fs::symlink_metadata(directory).map_err(|error| refused(directory, person, &error))?;
        if found.mode() & 0o022 != 0 || found.uid() != 0 && found.uid() != person.login.uid {
            return Err(no(format!(
                "lies in {}, which others than {} may change (add it to local.files if that is right)",
                directory.display(),
                person.login.name
            )));
        }
    }
    Ok(real.join(name))
}

/// What it means that the system refuses to have a file written.
pub(crate) fn refused(path: &Path, person: &Person, error: &io::Error) -> Verdict {
    let (file, user) = (path.display(), &person.login.name);
    let (status, text) = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::DQUOT) => ((2, 2), format!("{file} is full: user {user} is over the quota of the disk")),
        Some(Errno::FBIG) => {
            ((2, 2), format!("{file} is full: with this message it would be larger than local.mailbox_size_max allows"))
        }
        Some(Errno::NOSPC) => ((3, 1), format!("{file} cannot be written: no space left on its disk")),
        Some(Errno::ACCESS | Errno::PERM) => {
            let groups = &person.login.groups;
            ((2, 0), format!("{file} cannot be written: permission denied to user {user} (groups {groups:?})"))
        }
        Some(Errno::ROFS) => ((3, 0), format!("{file} cannot be written: its disk is read-only")),
        Some(Errno::LOOP | Errno::MLINK) => {
            ((2, 0), format!("{file} is a symbolic link; nothing is written through it"))
        }
        Some(Errno::NOENT) => ((2, 0), format!("{file} cannot be written: its directory does not exist")),
        Some(Errno::ISDIR) => {
            ((2, 0), format!("{file} is a directory; for a Maildir set local.mailbox = \"maildir:…\""))
        }
        Some(Errno::NXIO) => ((2, 0), format!("{file} is no regular file; nothing is written to it")),
        _ => ((3, 0), format!("{file} cannot be written: {error}")),
    };
    Verdict::deferred(status, text)
}

fn no_lock(path: &Path, person: &Person, no: NoLock) -> Verdict {
    let file = path.display();
    match no {
        NoLock::Busy(who) => Verdict::deferred((2, 0), format!("{file} is locked by {who}")),
        NoLock::Error(error) => {
            let mut name = path.as_os_str().to_owned();
            name.push(".lock");
            let mut verdict = refused(Path::new(&name), person, &error);
            verdict.text.push_str("; see local.locks and local.mailbox_group");
            verdict
        }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
