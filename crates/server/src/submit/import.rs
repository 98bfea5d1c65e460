//! Imports messages that another server of this machine has accepted and promised to deliver, and passes on the
//! responsibility for them.
//!
//! At any time exactly one of the two servers has the message. One rename, atomic for other programs, decides which:
//!
//! | Step | In the pickup directory | In the other queue |
//! |---|---|---|
//! | written, durable | `wait.R`, which the server leaves alone | the message |
//! | changes hands | `wait.R` | moved aside, durable |
//! | released | `mail.R`, the server takes it | moved aside |
//!
//! R is a digest of the name of the file that the message had there, so that the next run can decide after a crash:
//! where the other queue still has the message, `wait.R` is written anew; where it was moved aside, `wait.R` is
//! released; and where neither is there, the other server has delivered it, and `wait.R` is removed.
//!
//! Any user can make files in the directory, and R is no secret: a `wait.R` counts only if it belongs to root or to
//! the user that reads it, and a release replaces nothing.

use super::{Filing, Malformed, PREAMBLE_BYTES, Submission};
use aws_lc_rs::digest::{SHA256, digest};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, fstat, open, renameat_with};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// Prefix of `R`.
const WAIT: &str = "wait.";
/// Octets of the digest of which a name is made.
const NAME_BYTES: usize = 16;

/// Where a message waited before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedMessage {
    /// The file in which its envelope was.
    pub source: String,
    /// The time at which it came there, in seconds since 1970.
    pub arrived: u64,
    /// How often it was tried there.
    pub tries: u32,
    /// Its sender was warned of the delay.
    pub is_warned: bool,
    /// It is held, for this reason.
    pub hold: Option<String>,
}

impl ImportedMessage {
    pub(super) fn fields(&self) -> [String; 5] {
        let warned = if self.is_warned { "w" } else { "" };
        let hold = self.hold.clone().unwrap_or_default();
        [self.source.clone(), self.arrived.to_string(), self.tries.to_string(), warned.to_owned(), hold]
    }

    pub(super) fn read<'a>(mut next: impl FnMut() -> Result<&'a str, Malformed>) -> Result<Self, Malformed> {
        fn number<T: std::str::FromStr>(text: &str) -> Result<T, Malformed> {
            text.parse().map_err(|_| Malformed(format!("{text:?} is no number of a message that waited elsewhere")))
        }
        let source = next()?.to_owned();
        let (arrived, tries) = (number(next()?)?, number(next()?)?);
        let is_warned = match next()? {
            "" => false,
            "w" => true,
            other => return Err(Malformed(format!("{other:?} says nothing of a warning"))),
        };
        let hold = Some(next()?.to_owned()).filter(|reason| !reason.is_empty());
        Ok(Self { source, arrived, tries, is_warned, hold })
    }
}

/// A message of another queue that is written, and is not the server's yet.
#[derive(Debug)]
pub struct PendingImport {
    directory: PathBuf,
    name: String,
    file: File,
}

/// Returns the R of a message by the file in which its envelope is.
#[must_use]
pub fn name_of(source: &str) -> String {
    let digest = digest(&SHA256, source.as_bytes());
    digest.as_ref().iter().take(NAME_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

impl Filing {
    /// Begins the file of a message that waited elsewhere; one that an earlier run has not finished is replaced.
    ///
    /// # Errors
    /// It cannot be made, or has too many recipients.
    pub fn begin_import(directory: &Path, submission: &Submission) -> io::Result<Self> {
        let head = submission.encode().map_err(io::Error::other)?;
        let source = submission.adopted.as_ref().map_or("", |adopted| &adopted.source);
        let name = name_of(source);
        match std::fs::remove_file(directory.join(format!("new.{name}"))) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Self::begin_as(directory, name, &head, submission.recipients.len())
    }

    /// Writes the rest. The file is not durable, and the server does not look at it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end_import(mut self) -> io::Result<PendingImport> {
        self.end()?;
        self.is_done = true;
        let file = self.file.try_clone()?;
        Ok(PendingImport { directory: self.directory.clone(), name: self.name.clone(), file })
    }
}

impl PendingImport {
    /// Makes the content of the file durable, and gives it the name under which the next run finds it. The name is
    /// durable after [`sync`].
    ///
    /// # Errors
    /// It is not.
    pub fn make_durable(&self) -> io::Result<()> {
        self.file.sync_all()?;
        rename(&self.directory, &format!("new.{}", self.name), &format!("{WAIT}{}", self.name))
    }

    /// Gives it to the server. The name is durable after [`sync`].
    ///
    /// # Errors
    /// It is not the server's.
    pub fn release(&self) -> io::Result<()> {
        release(&self.directory, &self.name)
    }

    /// Forgets a message that is still the other server's.
    pub fn forget(self) {
        for prefix in ["new.", WAIT] {
            // The next run finds a file that stays, or the server removes it after a day.
            drop(std::fs::remove_file(self.directory.join(format!("{prefix}{}", self.name))));
        }
    }
}

/// Gives a message to the server by its R.
///
/// # Errors
/// It is not the server's.
pub fn release(directory: &Path, name: &str) -> io::Result<()> {
    let (from, to) = (directory.join(format!("{WAIT}{name}")), directory.join(format!("mail.{name}")));
    match renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE) {
        // The file system cannot do it in one step.
        Err(Errno::INVAL | Errno::NOSYS) if !to.exists() => {
            rename(directory, &format!("{WAIT}{name}"), &format!("mail.{name}"))
        }
        done => Ok(done?),
    }
}

/// Forgets a message by its R.
///
/// # Errors
/// It is still there.
pub fn forget(directory: &Path, name: &str) -> io::Result<()> {
    std::fs::remove_file(directory.join(format!("{WAIT}{name}")))
}

/// Makes names in the directory durable.
///
/// # Errors
/// They may not be.
pub fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the messages of an earlier run: R of each, and where it waited or why that cannot be read.
///
/// # Errors
/// The directory cannot be listed.
pub fn earlier_messages(directory: &Path) -> io::Result<Vec<(String, Result<ImportedMessage, String>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) = name.strip_prefix(WAIT) {
            found.push((name.to_owned(), adopted(&directory.join(format!("{WAIT}{name}")))));
        }
    }
    Ok(found)
}

fn adopted(path: &Path) -> Result<ImportedMessage, String> {
    let read = || -> io::Result<Submission> {
        let opened = open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        let owner = fstat(&opened)?.st_uid;
        if ![0, os::machine::uid()].contains(&owner) {
            return Err(io::Error::other(format!("user {owner} has put it there, who may not take over messages")));
        }
        let mut file = File::from(opened);
        let mut preamble = [0; PREAMBLE_BYTES];
        file.read_exact(&mut preamble)?;
        let mut head = vec![0; Submission::head_bytes(&preamble).map_err(io::Error::other)?];
        file.read_exact(&mut head)?;
        Submission::decode(&preamble, &head).map_err(io::Error::other)
    };
    let submission = read().map_err(|error| error.to_string())?;
    submission.adopted.ok_or_else(|| "it does not say where it waited".to_owned())
}

#[expect(clippy::disallowed_methods, reason = "the caller syncs the directory once for many files")]
fn rename(directory: &Path, from: &str, to: &str) -> io::Result<()> {
    std::fs::rename(directory.join(from), directory.join(to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{MailParams, Recipient, ReversePath};

    fn submission(source: &str) -> Submission {
        let adopted = ImportedMessage { source: source.to_owned(), arrived: 1, tries: 0, is_warned: false, hold: None };
        Submission {
            sender: ReversePath::Null,
            is_chosen: false,
            on_behalf_of: None,
            adopted: Some(adopted),
            params: MailParams::default(),
            terms: crate::submit::Terms::default(),
            recipients: vec![Recipient::new("a@b.test".parse().unwrap())],
        }
    }

    fn names(place: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(place).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_message_waits_until_it_is_released() {
        let place = tempfile::tempdir().unwrap();
        let name = name_of("/q/qfX");
        // A run that was killed while it wrote.
        std::fs::write(place.path().join(format!("new.{name}")), "half").unwrap();
        for _ in 0..2 {
            let mut filing = Filing::begin_import(place.path(), &submission("/q/qfX")).unwrap();
            filing.write(b"Subject: x\r\n\r\n").unwrap();
            filing.end_import().unwrap().make_durable().unwrap();
            assert_eq!(names(place.path()), [format!("wait.{name}")], "the next run writes it anew");
        }
        let found = earlier_messages(place.path()).unwrap();
        assert_eq!(found, [(name.clone(), Ok(submission("/q/qfX").adopted.unwrap()))]);
        std::fs::write(place.path().join(format!("mail.{name}")), "of somebody").unwrap();
        assert_eq!(release(place.path(), &name).unwrap_err().kind(), ErrorKind::AlreadyExists, "nothing is replaced");
        std::fs::remove_file(place.path().join(format!("mail.{name}"))).unwrap();
        if os::machine::is_root() {
            let path = place.path().join(format!("wait.{name}"));
            std::os::unix::fs::chown(&path, Some(4_711), None).unwrap();
            assert!(earlier_messages(place.path()).unwrap()[0].1.as_ref().unwrap_err().contains("4711"));
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        release(place.path(), &name).unwrap();
        assert_eq!(names(place.path()), [format!("mail.{name}")]);
        let mut filing = Filing::begin_import(place.path(), &submission("/q/qfY")).unwrap();
        filing.write(b"x\r\n").unwrap();
        let waiting = filing.end_import().unwrap();
        waiting.make_durable().unwrap();
        waiting.forget();
        std::fs::write(place.path().join("wait.0"), "no message").unwrap();
        assert!(matches!(earlier_messages(place.path()).unwrap().as_slice(), [(name, Err(_))] if name == "0"));
    }
}
