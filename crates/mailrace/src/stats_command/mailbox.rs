//! A mailbox that is watched for new messages: an mbox file or a Maildir. It is read and never changed.

use super::log_file::failed;
use crate::exit::Failure;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Octets of a message of a Maildir that are searched: its header section.
const HEADER_MAX: u64 = 64 << 10;

/// A mailbox, and the part of it that was there before.
pub(super) enum Mailbox {
    /// Octets that were searched.
    Mbox { path: PathBuf, searched: u64 },
    /// Files that were searched.
    Maildir { path: PathBuf, searched: HashSet<OsString> },
}

impl Mailbox {
    /// Opens a mailbox. An mbox file that is not there is empty.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        match std::fs::metadata(path) {
            Ok(data) if data.is_dir() => {
                let searched = files(path).map_err(|error| failed(path, &error))?.into_iter().map(|(name, _)| name);
                Ok(Self::Maildir { path: path.to_owned(), searched: searched.collect() })
            }
            Ok(data) => Ok(Self::Mbox { path: path.to_owned(), searched: data.len() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self::Mbox { path: path.to_owned(), searched: 0 })
            }
            Err(error) => Err(failed(path, &error)),
        }
    }

    /// Returns where it is.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Mbox { path, .. } | Self::Maildir { path, .. } => path,
        }
    }

    /// Returns whether a message with this text in its header section has come since the last look.
    ///
    /// # Errors
    /// The mailbox cannot be read.
    pub(super) fn has_new(&mut self, mark: &[u8]) -> Result<bool, Failure> {
        match self {
            Self::Mbox { path, searched } => search_mbox(path, searched, mark).map_err(|error| failed(path, &error)),
            Self::Maildir { path, searched } => {
                search_maildir(path, searched, mark).map_err(|error| failed(path, &error))
            }
        }
    }
}

fn search_mbox(path: &Path, searched: &mut u64, mark: &[u8]) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let length = file.metadata()?.len();
    // A reader has taken mail out.
    *searched = (*searched).min(length);
    file.seek(SeekFrom::Start(*searched))?;
    let mut new = Vec::new();
    file.read_to_end(&mut new)?;
    if memchr::memmem::find(&new, mark).is_some() {
        return Ok(true);
    }
    // The mark may be written in two parts.
    let rest = new.len().saturating_sub(mark.len());
    *searched += u64::try_from(rest).unwrap_or(0);
    Ok(false)
}

fn search_maildir(path: &Path, searched: &mut HashSet<OsString>, mark: &[u8]) -> io::Result<bool> {
    for (name, file) in files(path)? {
        if searched.contains(&name) {
            continue;
        }
        let mut header = Vec::new();
        match File::open(&file) {
            Ok(file) => file.take(HEADER_MAX).read_to_end(&mut header)?,
            // A reader has moved it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if memchr::memmem::find(&header, mark).is_some() {
            return Ok(true);
        }
        searched.insert(name);
    }
    Ok(false)
}

/// Returns the messages of a Maildir with their names.
fn files(path: &Path) -> io::Result<Vec<(OsString, PathBuf)>> {
    let mut found = Vec::new();
    for directory in ["new", "cur"] {
        let entries = match std::fs::read_dir(path.join(directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            found.push((entry.file_name(), entry.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_mail_is_found_and_old_mail_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mbox");
        std::fs::write(&path, "From a\nX: mark/1\n\n").unwrap();
        let mut mailbox = Mailbox::open(&path).unwrap();
        assert!(!mailbox.has_new(b"mark/").unwrap(), "it was there before");
        let append = |text: &str| std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + text).unwrap();
        append("From b\nX: ma");
        assert!(!mailbox.has_new(b"mark/").unwrap());
        append("rk/2\n\n");
        assert!(mailbox.has_new(b"mark/").unwrap(), "in two parts");
        std::fs::write(&path, "").unwrap();
        assert!(!mailbox.has_new(b"mark/").unwrap());
        append("X: mark/3");
        assert!(mailbox.has_new(b"mark/").unwrap(), "after a reader has emptied it");

        let maildir = directory.path().join("maildir");
        std::fs::create_dir_all(maildir.join("new")).unwrap();
        std::fs::write(maildir.join("new/1"), "X: mark/1").unwrap();
        let mut mailbox = Mailbox::open(&maildir).unwrap();
        assert!(!mailbox.has_new(b"mark/").unwrap());
        std::fs::write(maildir.join("new/2"), "X: other").unwrap();
        std::fs::write(maildir.join("new/3"), "X: mark/3").unwrap();
        assert!(mailbox.has_new(b"mark/").unwrap());
        assert!(Mailbox::open(&directory.path().join("none")).is_ok_and(|mut none| !none.has_new(b"m").unwrap()));
    }
}
