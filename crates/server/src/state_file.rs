//! A file beside the mail in the spool directory, with data that helps and may be lost: `hosts`, `replies`.
//!
//! The server reads it at the start, replaces it once a minute if something changed, and once more at its end. It is
//! never synced. Loss or damage of the file costs no mail, so no error here stops the server.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The path of a file, and whether it has to be written.
#[derive(Debug, Default)]
pub(crate) struct StateFile {
    /// Nowhere without a spool.
    path: Option<PathBuf>,
    /// Content of the file, for messages to the operator: "what was known of next hops".
    what: &'static str,
    has_changed: AtomicBool,
    /// One writes at a time.
    writes: Mutex<()>,
    /// The operator has got the message that it cannot be written.
    is_told: AtomicBool,
}

impl StateFile {
    /// Returns the file with this name in the spool directory. `what` is lost without it.
    pub(crate) fn new(directory: &Path, name: &str, what: &'static str) -> Self {
        Self { path: Some(directory.join(name)), what, ..Self::default() }
    }

    /// Returns its octets, at most `max`; a longer one is cut. `None` if it does not exist.
    ///
    /// # Errors
    /// Why it cannot be read, for the operator.
    pub(crate) fn read(&self, max: usize) -> Result<Option<Vec<u8>>, String> {
        match self.path.as_ref().map(|path| read(path, max)) {
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.unreadable_text(false, &error.to_string()))
            }
            None | Some(Err(_)) => Ok(None),
        }
    }

    /// Returns a message for the operator about a file that cannot be read, or only in part. It is replaced soon.
    pub(crate) fn unreadable_text(&self, is_partial: bool, why: &str) -> String {
        self.mark_changed();
        let (path, what) = (self.path.as_deref().unwrap_or_else(|| Path::new("")).display(), self.what);
        let how = if is_partial { "is known in part" } else { "is forgotten" };
        format!("{path}: {what} {how}: {why}; mail goes all the same, and the file is replaced")
    }

    /// Marks the content as changed, so that the next save writes it.
    pub(crate) fn mark_changed(&self) {
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// Writes it if something changed.
    ///
    /// # Errors
    /// It cannot be written; the one before is still there. The error is a message for the operator, once until it can
    /// be written again.
    pub(crate) fn save(&self, bytes: impl FnOnce() -> Vec<u8>) -> Result<(), String> {
        let Some(path) = self.path.as_ref().filter(|_| self.has_changed.swap(false, Ordering::Relaxed)) else {
            return Ok(());
        };
        let _turn = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        match replace(path, &bytes()) {
            Ok(()) => {
                self.is_told.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.mark_changed();
                let is_told = self.is_told.swap(true, Ordering::Relaxed);
                let (path, what) = (path.display(), self.what);
                let text = format!(
                    "{path} cannot be written: {error}; {what} is lost at the end of the server: make room, or see who owns the directory"
                );
                if is_told { Ok(()) } else { Err(text) }
            }
        }
    }
}

fn read(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(u64::try_from(max).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a file, and returns when that is durable.
///
/// # Errors
/// The old one is still there.
pub(crate) fn replace_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    drop(file);
    let replaced = written.and_then(|()| Ok(rustix::fs::rename(&new, path)?));
    if replaced.is_err() {
        drop(std::fs::remove_file(&new));
    }
    replaced?;
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    File::open(directory)?.sync_all()
}

/// Replaces a file. It is not synced: after a power cut it may be damaged, which its reader detects.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes);
    drop(file);
    let replaced = written.and_then(|()| Ok(rustix::fs::rename(&new, path)?));
    if replaced.is_err() {
        // The remains would take room where there is none.
        drop(std::fs::remove_file(&new));
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_when_something_changed_and_told_of_once() {
        let directory = tempfile::tempdir().unwrap();
        let within = directory.path().join("gone");
        let kept = StateFile::new(&within, "facts", "what we knew");
        assert_eq!((kept.read(9), kept.save(|| unreachable!())), (Ok(None), Ok(())));
        kept.mark_changed();
        let text = kept.save(|| b"one".to_vec()).unwrap_err();
        assert!(text.contains("gone/facts cannot be written: ") && text.contains("what we knew is lost"), "{text}");
        assert_eq!(kept.save(|| b"one".to_vec()), Ok(()), "told");
        std::fs::create_dir(&within).unwrap();
        assert_eq!(kept.save(|| b"one".to_vec()), Ok(()));
        assert_eq!(kept.read(9), Ok(Some(b"one".to_vec())));
        assert_eq!(kept.read(2), Ok(Some(b"on".to_vec())));
        assert_eq!(kept.save(|| unreachable!("nothing has changed")), Ok(()));
        std::fs::remove_dir_all(&within).unwrap();
        kept.mark_changed();
        assert!(kept.save(Vec::new).is_err(), "it could be written meanwhile");
    }

    #[test]
    fn what_is_nowhere_is_not_written() {
        let kept = StateFile::default();
        kept.mark_changed();
        assert_eq!((kept.save(|| unreachable!()), kept.read(9)), (Ok(()), Ok(None)));
    }
}
