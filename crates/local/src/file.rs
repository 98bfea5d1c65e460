//! Mailbox files, and files of aliases: messages behind one another.
//!
//! A delivery is done when the file, and the directory of a new one, were synced under all locks
//! ([`lock`](super::lock)). Several messages for the same file are appended under one lock and synced once. A message
//! is cut off again when its append fails, so that a file has whole messages. After a crash in between, half a message
//! may stand there: it is completed when the message comes again ([`again`](super::again)). Only regular files with one
//! name, of the user who writes, are written to; a link is never followed. Every refusal of the system is a deferral
//! that names the file.

use super::again::{Append, Full, SeparatorLines};
use super::letter::{Broken, Form, MailboxMessage, from_line, unreadable_verdict};
use super::lock::{Dotlock, NoLock, Turn, lock_file};
use super::medium::Medium;
use super::order::{Settings, Verdict};
use super::person::TargetUser;
use os::clock;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// The octets that are collected before a write.
const BUFFER_BYTES: usize = 64 << 10;

/// The file for mail of aliases that is thrown away.
pub(crate) const NOWHERE: &str = "/dev/null";

/// An open file, locked for as long as this lives: messages are put behind its end, and synced together.
pub(crate) struct Mailbox {
    path: PathBuf,
    person: TargetUser,
    is_new: bool,
    // In this order: the kernel's lock goes with the file, before the others.
    tail: Tail<File>,
    _dotlock: Option<Dotlock>,
    _turn: Turn,
}

impl Mailbox {
    /// Opens the mailbox of a person, or makes it.
    ///
    /// # Errors
    /// It is locked, cannot be opened, or is nothing to write to.
    pub(crate) fn open(path: &Path, person: &TargetUser, settings: &Settings) -> Result<Self, Verdict> {
        Self::open_any(path, person, settings, false)
    }

    /// Opens a file that an alias names, or makes it.
    ///
    /// # Errors
    /// The same, or it must not be written to.
    pub(crate) fn open_file(path: &Path, person: &TargetUser, settings: &Settings) -> Result<Self, Verdict> {
        Self::open_any(&allowed(path, person, settings)?, person, settings, true)
    }

    fn open_any(path: &Path, person: &TargetUser, settings: &Settings, is_alias: bool) -> Result<Self, Verdict> {
        let until = clock::now() + settings.lock_time;
        let locked = |no: NoLock| no_lock(path, person, no);
        let turn = Turn::acquire(path, until).map_err(locked)?;
        let dotlock = settings.dotlock.then(|| Dotlock::acquire(path, until)).transpose().map_err(locked)?;
        let (mut file, is_new) = loop {
            let (file, is_new) = open(path, person, is_alias)?;
            if settings.fcntl {
                lock_file(&file, until).map_err(locked)?;
            }
            // The holder of the lock may have put another file in its place.
            if is_still(path, &file) {
                break (file, is_new);
            }
            if clock::now() >= until {
                return Err(locked(NoLock::Busy("a program that replaces it".to_owned())));
            }
        };
        let length = file.seek(SeekFrom::End(0)).map_err(|error| refused_verdict(path, person, &error))?;
        let max = if settings.mailbox_size_max == 0 { u64::MAX } else { settings.mailbox_size_max };
        let (path, person, tail) = (path.to_owned(), person.clone(), Tail::new(file, length, max));
        Ok(Self { path, person, is_new, tail, _dotlock: dotlock, _turn: turn })
    }

    /// Appends a message. It is delivered when [`Mailbox::close`] says so.
    ///
    /// # Errors
    /// Why it is not delivered. The written part is cut off again.
    pub(crate) fn append(&mut self, letter: &mut MailboxMessage<'_>) -> Result<(), Verdict> {
        self.tail.append(letter).map_err(|failure| self.failed(failure))
    }

    /// Syncs the appended messages.
    ///
    /// # Errors
    /// Why none of it is delivered. The written messages are cut off again.
    pub(crate) fn close(mut self) -> Result<(), Verdict> {
        let is_empty = self.tail.end == 0;
        if self.is_new && is_empty {
            drop(std::fs::remove_file(&self.path));
            return Ok(());
        }
        let path = self.is_new.then(|| self.path.clone());
        let closed = self.tail.close(|| path.as_deref().map_or(Ok(()), sync_directory));
        closed.map_err(|failure| {
            if self.is_new && failure.uncut.is_none() {
                drop(std::fs::remove_file(&self.path));
            }
            self.failed(failure)
        })
    }

    fn failed(&self, Failure { broken, length, uncut }: Failure) -> Verdict {
        let mut verdict = match broken {
            Broken::Read(why) => unreadable_verdict(why),
            Broken::Write(error) => refused_verdict(&self.path, &self.person, &error),
        };
        if let Some(error) = uncut {
            verdict
                .text
                .push_str(&format!("; half a message stands behind octet {length} and cannot be cut off: {error}"));
        }
        verdict
    }
}

/// The end of a file, and the messages appended to it.
pub(crate) struct Tail<M> {
    medium: M,
    /// Where it was.
    begin: u64,
    /// Where it is.
    end: u64,
    /// The most octets it may have.
    max: u64,
    /// The messages that the file had at the beginning; a message may come again that is one of them.
    lines: SeparatorLines,
    /// Something was written that is not synced.
    is_dirty: bool,
}

/// Why a message was not put there.
pub(crate) struct Failure {
    broken: Broken,
    /// Where the file ended before it.
    length: u64,
    /// Why it does not end there again, if so.
    uncut: Option<io::Error>,
}

impl<M: Medium> Tail<M> {
    pub(crate) fn new(medium: M, length: u64, max: u64) -> Self {
        Self { medium, begin: length, end: length, max, lines: SeparatorLines::default(), is_dirty: false }
    }

    /// Returns the medium that holds the messages.
    #[cfg(test)]
    pub(crate) fn into_medium(self) -> M {
        self.medium
    }

    /// Appends a message, or leaves the file as it was.
    ///
    /// # Errors
    /// The refusal, and whether the file has its old length again.
    pub(crate) fn append(&mut self, letter: &mut MailboxMessage<'_>) -> Result<(), Failure> {
        let length = self.end;
        match self.write_message(letter) {
            Ok(written) => {
                self.end += written;
                // One that was there may not be synced.
                self.is_dirty = true;
                Ok(())
            }
            Err(broken) => {
                self.is_dirty = true;
                Err(Failure { broken, length, uncut: self.medium.cut(length).err() })
            }
        }
    }

    /// Writes a message and the line before it; returns the octets.
    fn write_message(&mut self, letter: &mut MailboxMessage<'_>) -> Result<u64, Broken> {
        let (medium, length) = (&mut self.medium, self.end);
        let order = letter.order();
        let looks = order.is_again && letter.is_marked();
        let candidates = if looks { self.lines.candidates(medium, self.begin, order)? } else { Vec::new() };
        let head = [gap(medium, length)?, from_line(order).as_bytes()].concat();
        let mut append = Append::new(medium, length, self.max, head, candidates);
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, &mut append);
        let written = letter.write_to(&mut out, Form { from_line: false, quotes: true });
        let flushed = written.and_then(|()| out.flush().map_err(Broken::from));
        // The rest in the buffer belongs to the message that is cut off.
        drop(out.into_parts());
        flushed?;
        append.finish()?;
        Ok(append.written())
    }

    /// Makes the appended messages and the work of `also` durable, or undoes all of them.
    ///
    /// # Errors
    /// The refusal; the file is cut to its length at the beginning.
    pub(crate) fn close(&mut self, also: impl FnOnce() -> io::Result<()>) -> Result<(), Failure> {
        if !self.is_dirty {
            return Ok(());
        }
        self.medium.sync().and_then(|()| also()).map_err(|error| {
            let cut = self.medium.cut(self.begin).and_then(|()| self.medium.sync());
            Failure { broken: Broken::Write(error), length: self.begin, uncut: cut.err() }
        })
    }
}

/// Returns the line ends that are missing between the end of a file and the beginning of a message: another program may
/// have left half a line.
fn gap(medium: &dyn Medium, length: u64) -> io::Result<&'static [u8]> {
    let mut last = [b'\n'; 2];
    let known = usize::try_from(length.min(2)).unwrap_or(2);
    if let Some(end) = last.get_mut(2 - known..).filter(|end| !end.is_empty())
        && medium.read_at(end, length - known as u64)? != known
    {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(match last {
        [b'\n', b'\n'] => b"",
        [_, b'\n'] => b"\n",
        _ => b"\n\n",
    })
}

/// Opens a file to write behind its end, or makes it. Whether it was made.
fn open(path: &Path, person: &TargetUser, is_alias: bool) -> Result<(File, bool), Verdict> {
    // Without blocking: a file that is not regular, as a pipe, is refused below.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
                Err(Errno::EXIST) => rustix::fs::open(path, flags - OFlags::CREATE - OFlags::EXCL, Mode::empty()),
                made => {
                    return Ok((File::from(made.map_err(|error| refused_verdict(path, person, &error.into()))?), true));
                }
            }
        }
        opened => opened,
    };
    let file = File::from(opened.map_err(|error| refused_verdict(path, person, &error.into()))?);
    let found = file.metadata().map_err(|error| refused_verdict(path, person, &error))?;
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

/// The real name of a file of an alias, if it may be written to: it lies in or below a directory of `local.files`, and
/// no directory on the way from there may be written to by others.
fn allowed(path: &Path, person: &TargetUser, settings: &Settings) -> Result<PathBuf, Verdict> {
    let shown = path.display();
    let no = |what: String| Verdict::deferred((2, 0), format!("{shown} {what}; nothing is written to it"));
    let is_odd = |part: Component<'_>| matches!(part, Component::ParentDir | Component::CurDir);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(no("is no file".to_owned()));
    };
    if path.components().any(is_odd) {
        return Err(no("has \"..\" in its name".to_owned()));
    }
    let real = std::fs::canonicalize(parent).map_err(|error| refused_verdict(parent, person, &error))?;
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
        let found = std::fs::symlink_metadata(directory).map_err(|error| refused_verdict(directory, person, &error))?;
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

/// Returns the verdict when the system refuses to have a file written.
pub(crate) fn refused_verdict(path: &Path, person: &TargetUser, error: &io::Error) -> Verdict {
    let (file, user) = (path.display(), &person.login.name);
    if error.get_ref().is_some_and(|inner| inner.is::<Full>()) {
        let text = format!("{file} is full: with this message it would be larger than local.mailbox_size_max allows");
        return Verdict::deferred((2, 2), text);
    }
    let (status, text) = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::DQUOT) => ((2, 2), format!("{file} is full: user {user} is over the quota of the disk (EDQUOT)")),
        Some(Errno::FBIG) => {
            let why = "larger than the limit on the size of files of the process (LimitFSIZE=, ulimit -f) or of the file system";
            ((2, 2), format!("{file} cannot be written: with this message it would be {why} (EFBIG)"))
        }
        Some(Errno::NOSPC) => ((3, 1), format!("{file} cannot be written: no space left on its disk (ENOSPC)")),
        Some(Errno::ACCESS | Errno::PERM) => {
            let groups = &person.login.groups;
            ((2, 0), format!("{file} cannot be written: permission denied to user {user} (groups {groups:?}; {error})"))
        }
        Some(Errno::ROFS) => ((3, 0), format!("{file} cannot be written: its disk is read-only (EROFS)")),
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

fn no_lock(path: &Path, person: &TargetUser, no: NoLock) -> Verdict {
    let file = path.display();
    match no {
        NoLock::Busy(who) => Verdict::deferred((2, 0), format!("{file} is locked by {who}")),
        NoLock::Error(error) => {
            let mut name = path.as_os_str().to_owned();
            name.push(".lock");
            let mut verdict = refused_verdict(Path::new(&name), person, &error);
            verdict.text.push_str("; see local.locks and local.mailbox_group");
            verdict
        }
    }
}

#[cfg(test)]
mod tests;
