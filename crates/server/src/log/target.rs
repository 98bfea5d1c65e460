//! Where lines end up: a stream that takes many at once, or a socket that takes one datagram for each.
//!
//! This module neither retries nor reports; [`super::writer`] does. [`Lines`] remember what was written, so that a
//! second attempt continues where the first one stopped.

use super::Target;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Lines in one piece of memory, and how far they are written.
#[derive(Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
    /// Octets that are written.
    done: usize,
    /// Lines that the target will never take.
    skipped: u64,
}

impl Lines {
    pub(super) fn push(&mut self, line: &str) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.ends.push(self.bytes.len());
    }

    /// Returns how many there are.
    pub(super) const fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns how many are not, or not wholly, written.
    pub(super) fn unwritten(&self) -> u64 {
        u64::try_from(self.count() - self.finished()).unwrap_or(u64::MAX)
    }

    /// Returns how many the target would never take.
    pub(super) const fn skipped(&self) -> u64 {
        self.skipped
    }

    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.done = 0;
        self.skipped = 0;
    }

    /// Has a line that was written in part written anew: its beginning is in another file.
    pub(super) fn restart_partial_line(&mut self) {
        self.done = self.finished().checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
    }

    fn finished(&self) -> usize {
        self.ends.partition_point(|end| *end <= self.done)
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.done..).unwrap_or_default()
    }

    /// Returns the next whole line.
    fn next(&self) -> Option<&[u8]> {
        let end = *self.ends.get(self.finished())?;
        self.bytes.get(self.done..end)
    }
}

/// A target in use.
pub(super) enum Sink {
    /// File or standard output.
    Stream {
        /// `None`: standard output.
        path: Option<PathBuf>,
        file: Option<File>,
    },
    /// syslog or journald.
    Datagrams { path: PathBuf, socket: Option<UnixDatagram> },
}

impl Sink {
    pub(super) fn new(target: &Target) -> Self {
        match target {
            Target::Stdout => Self::Stream { path: None, file: None },
            Target::File(path) => Self::Stream { path: Some(path.clone()), file: None },
            Target::Syslog(path) | Target::Journald(path) => Self::Datagrams { path: path.clone(), socket: None },
        }
    }

    /// Returns its name for messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Stream { path: None, .. } => "standard output".to_owned(),
            Self::Stream { path: Some(path), .. } | Self::Datagrams { path, .. } => path.display().to_string(),
        }
    }

    /// Opens the file again, or connects again with the next line. If the file cannot be opened, the old one stays in
    /// use.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::Stream { path, file } => *file = Some(open(path.as_deref())?),
            Self::Datagrams { socket, .. } => *socket = None,
        }
        Ok(())
    }

    /// Whether the file in use is not the one at its path: it was renamed, deleted or replaced.
    pub(super) fn has_moved(&self) -> bool {
        let Self::Stream { path: Some(path), file: Some(file) } = self else { return false };
        let place = |found: Metadata| (found.dev(), found.ino());
        let Ok(own) = file.metadata() else { return false };
        match fs::symlink_metadata(path) {
            Ok(found) => place(found) != place(own),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Writes the rest of the lines. After an error it may be called again.
    pub(super) fn write(&mut self, lines: &mut Lines) -> io::Result<()> {
        match self {
            Self::Stream { path, file } => {
                let file = match file {
                    Some(file) => file,
                    None => file.insert(open(path.as_deref())?),
                };
                write_stream(file, lines)
            }
            Self::Datagrams { path, socket } => write_datagrams(path, socket, lines),
        }
    }
}

/// Opens the file, and creates it if it does not exist. A symbolic link is not followed: a user that may write to the
/// directory of the log could otherwise have lines written, and a file made, wherever this process may.
pub(super) fn open(path: Option<&Path>) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NOCTTY).bits().cast_signed();
    match path {
        Some(path) => match OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path) {
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Err(io::Error::other(
                "it is a symbolic link, which is not followed: name the file itself, or \"-\" for standard output",
            )),
            opened => opened,
        },
        // Its own handle, past the buffer and the lock of `std::io::stdout`: a write is one system call.
        None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
    }
}

fn write_stream(file: &mut File, lines: &mut Lines) -> io::Result<()> {
    while !lines.rest().is_empty() {
        match file.write(lines.rest()) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => lines.done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_datagrams(path: &Path, socket: &mut Option<UnixDatagram>, lines: &mut Lines) -> io::Result<()> {
    // The daemon may have been restarted since the last line: one new connection is no error.
    let mut fresh = false;
    while let Some(line) = lines.next() {
        let connected = match socket {
            Some(socket) => socket,
            None => {
                fresh = true;
                socket.insert(connect(path)?)
            }
        };
        match connected.send(line) {
            Ok(_) => lines.done += line.len(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Longer than the daemon's socket takes: it would be refused for ever.
            Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                lines.done += line.len();
                lines.skipped += 1;
            }
            Err(error) => {
                *socket = None;
                if fresh {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_torn_is_written_anew_in_another_file() {
        let mut lines = Lines::default();
        lines.push("one\n");
        lines.push("two\n");
        lines.push("three\n");
        for (done, left, rest) in
            [(0, 3, "one\ntwo\nthree\n"), (4, 2, "two\nthree\n"), (6, 2, "two\nthree\n"), (14, 0, "")]
        {
            lines.done = done;
            assert_eq!(lines.unwritten(), left);
            lines.restart_partial_line();
            assert_eq!(lines.rest(), rest.as_bytes());
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_file_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (log, target) = (place.path().join("log"), place.path().join("target"));
        let mut sink = Sink::new(&Target::File(log.clone()));
        let write = |sink: &mut Sink, text: &str| {
            let mut lines = Lines::default();
            lines.push(text);
            sink.write(&mut lines)
        };
        write(&mut sink, "one\n").unwrap();
        // A user that may rename in the directory puts a link there, to a file that exists and to one that would be
        // created.
        for is_there in [true, false] {
            rustix::fs::rename(&log, place.path().join("log.1")).unwrap();
            if is_there {
                fs::write(&target, "precious\n").unwrap();
            } else {
                fs::remove_file(&target).unwrap();
            }
            std::os::unix::fs::symlink(&target, &log).unwrap();
            let error = sink.reopen().unwrap_err();
            assert!(error.to_string().contains("symbolic link"), "{error}");
            write(&mut sink, "two\n").unwrap();
            assert_eq!(fs::read_to_string(&target).ok().as_deref(), is_there.then_some("precious\n"));
            assert!(fs::read_to_string(place.path().join("log.1")).unwrap().ends_with("two\n"), "the old one stays");
            assert!(open(Some(&log)).is_err());
            fs::remove_file(&log).unwrap();
            sink.reopen().unwrap();
            write(&mut sink, "three\n").unwrap();
            assert_eq!(fs::read_to_string(&log).unwrap(), "three\n", "the control: a file of its own is made");
        }
    }

    #[test]
    fn a_second_attempt_goes_on_where_the_first_one_stopped() {
        let mut lines = Lines::default();
        lines.push("one\n");
        lines.done = 2;
        let mut file = tempfile::tempfile().unwrap();
        write_stream(&mut file, &mut lines).unwrap();
        assert_eq!(lines.unwritten(), 0);
        assert_eq!(file.metadata().unwrap().len(), 2);
    }
}
