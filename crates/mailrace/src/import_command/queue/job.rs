//! One message of a queue: locked as sendmail locks it, read, understood, and written into the pickup directory.

use super::ASIDE;
use super::directories::{ControlFile, QueueDirectories, QueueDirectory};
use super::report::{Left, Summary, Why};
use super::special::Special;
use crate::exit::Failure;
use mail::submission::Lines;
use mail::{DomainName, Recipient};
use os::clock;
use route::import::queue::{ControlFileLimits, FileKind, QueueFile, QueuedMessage};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, fcntl_lock, flock, fstat, open};
use rustix::io::Errno;
use server::submit::import::{ImportedMessage, PendingImport, name_of};
use server::submit::{Filing, Submission, Terms};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The octets of one read.
const READ_BYTES: usize = 64 << 10;

/// Reads the messages of a queue.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) place: &'a QueueDirectories,
    pub(super) host: &'a DomainName,
    /// `None`: nothing is written.
    pub(super) pickup: Option<&'a Path>,
    /// The most octets that the server takes.
    pub(super) size_max: u64,
}

/// A message that was read. As long as it is here, its control file is locked.
#[derive(Debug)]
pub(super) struct Job {
    /// Files of the message in the queue; the first is the control file.
    pub(super) files: Vec<PathBuf>,
    /// `None`: nothing was written.
    pub(super) waiting: Option<PendingImport>,
    summary: Summary,
    _lock: File,
}

impl Job {
    pub(super) fn summary(self) -> Summary {
        self.summary
    }

    /// Returns the control file.
    pub(super) fn control_file(&self) -> &Path {
        &self.summary.path
    }
}

/// Returns where a file of the queue is once it was taken over.
pub(super) fn moved_aside_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    path.parent().unwrap_or_else(|| Path::new("")).join(ASIDE).join(name)
}

impl Reader<'_> {
    /// Reads a message and writes it, not durably, into the pickup directory. The inner error says why it stays.
    ///
    /// # Errors
    /// The pickup directory cannot be written; nothing of this message is in it.
    pub(super) fn read_message(
        &self,
        found: &ControlFile,
        special: &mut Special<'_>,
        known: &HashSet<String>,
    ) -> Result<Result<Job, Left>, Failure> {
        let Some(directory) = self.place.directory(found.directory) else {
            return Ok(Err(Left::new(found.file.name(), Why::Leftover, "its directory is gone")));
        };
        let path = directory.control.join(found.file.name());
        let source = path.display().to_string();
        if known.contains(&name_of(&source)) {
            let reason = "it was handed in before, and waits in the pickup directory for the server to take it";
            return Ok(Err(Left::new(path, Why::Known, reason)));
        }
        let (lock, message, recipients, data) = match self.read_control_file(directory, &found.file, &path, special) {
            Ok(read) => read,
            Err(left) => return Ok(Err(left)),
        };
        let hold = match (found.file.kind, &message.quarantine) {
            (_, Some(reason)) => Some(reason.clone()),
            (FileKind::Quarantined, None) => Some("quarantined by sendmail".to_owned()),
            _ => None,
        };
        let summary = Summary {
            path: path.clone(),
            sender: message.sender.to_string(),
            recipients: recipients.len(),
            arrived: message.arrived,
            hold: hold.clone(),
            notes: message.notes.iter().map(|note| (note.line, note.text.clone())).collect(),
        };
        let mut files = vec![path.clone(), data.path.clone()];
        files.push(directory.transcript.join(QueueFile { kind: FileKind::Transcript, ..found.file.clone() }.name()));
        let offset = clock::local_offset_seconds(message.arrived.saturating_mul(1_000_000));
        let header = message.header_section(self.host, offset, &found.file.id);
        if let Err(reason) = self.check_size(header.len() as u64 + data.bytes) {
            return Ok(Err(Left::new(path, Why::TooLarge, reason)));
        }
        let waiting = match self.pickup {
            None => None,
            Some(pickup) => {
                let submission = submission(&message, source, hold, recipients);
                match self.file_message(pickup, &submission, &header, &data, &path)? {
                    Ok(waiting) => Some(waiting),
                    Err(left) => return Ok(Err(left)),
                }
            }
        };
        Ok(Ok(Job { files, waiting, summary, _lock: lock }))
    }

    /// Writes a message, not durably, into the pickup directory. The inner error says why it stays.
    fn file_message(
        &self,
        pickup: &Path,
        submission: &Submission,
        header: &[u8],
        data: &Data,
        path: &Path,
    ) -> Result<Result<PendingImport, Left>, Failure> {
        let fails = |error: io::Error| Failure::io(pickup.display(), &error);
        let mut filing = Filing::begin_import(pickup, submission).map_err(fails)?;
        filing.write(header).map_err(fails)?;
        if let Err(error) = write_text(&data.file, &mut filing).map_err(fails)? {
            return Ok(Err(Left::new(&data.path, Why::Unreadable, error.to_string())));
        }
        // Line ends of one octet became two.
        if let Err(reason) = self.check_size(filing.content_bytes()) {
            return Ok(Err(Left::new(path, Why::TooLarge, reason)));
        }
        Ok(Ok(filing.end_import().map_err(fails)?))
    }

    /// Checks that the server takes a message of so many octets.
    fn check_size(&self, bytes: u64) -> Result<(), String> {
        if bytes <= self.size_max {
            return Ok(());
        }
        Err(format!("it has {bytes} octets, and message.size_max is {}; raise that", self.size_max))
    }

    fn read_control_file(
        &self,
        directory: &QueueDirectory,
        file: &QueueFile,
        path: &Path,
        special: &mut Special<'_>,
    ) -> Result<(File, QueuedMessage, Vec<Recipient>, Data), Left> {
        let (lock, octets) = locked(path)?;
        let message = QueuedMessage::read(&octets, self.host, &ControlFileLimits::default())
            .map_err(|error| Left::new(path, Why::Unreadable, error.0.text).at(error.0.line))?;
        let recipients =
            special.recipients(&message).map_err(|(line, why, text)| Left::new(path, why, text).at(line))?;
        let data = self.open_text(directory, file, message.data_directory.as_deref(), path)?;
        Ok((lock, message, recipients, data))
    }

    /// Opens the text of a message: beside the control file, or where the file says.
    fn open_text(
        &self,
        directory: &QueueDirectory,
        file: &QueueFile,
        named: Option<&str>,
        path: &Path,
    ) -> Result<Data, Left> {
        let name = QueueFile { kind: FileKind::Data, ..file.clone() }.name();
        let mut places = vec![directory.data.clone()];
        if let Some(named) = named {
            // Only a directory below the queue counts: otherwise the file could name any user's text.
            let there = self.place.root().join(named);
            let is_below = |place: &&QueueDirectory| place.data == there || place.data == there.join("df");
            places.extend(self.place.directories().iter().find(is_below).map(|place| place.data.clone()));
        }
        for place in places {
            let path = place.join(&name);
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match open(path.as_path(), flags, Mode::empty()) {
                Ok(opened) => {
                    let file = File::from(opened);
                    let found =
                        file.metadata().map_err(|error| Left::new(&path, Why::Unreadable, error.to_string()))?;
                    if !found.is_file() {
                        return Err(Left::new(path, Why::Unreadable, "it is no file"));
                    }
                    return Ok(Data { path, file, bytes: found.len() });
                }
                Err(Errno::NOENT) => {}
                Err(error) => return Err(Left::new(path, Why::Unreadable, io::Error::from(error).to_string())),
            }
        }
        Err(Left::new(path, Why::Unreadable, format!("its text, {name}, is missing")))
    }
}

/// Makes the envelope of the pickup file.
fn submission(message: &QueuedMessage, source: String, hold: Option<String>, recipients: Vec<Recipient>) -> Submission {
    let adopted =
        ImportedMessage { source, arrived: message.arrived, tries: message.tries, is_warned: message.is_warned, hold };
    Submission {
        sender: message.sender.clone(),
        is_chosen: false,
        on_behalf_of: None,
        adopted: Some(adopted),
        params: message.params.clone(),
        terms: Terms::default(),
        recipients,
    }
}

/// The text of a message, open.
struct Data {
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// Opens a control file, locks it in both of the ways in which a sendmail may have been built to, and reads it.
fn locked(path: &Path) -> Result<(File, Vec<u8>), Left> {
    let unreadable = |error: Errno| Left::new(path, Why::Unreadable, io::Error::from(error).to_string());
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => Left::new(path, Why::Locked, "it went away while the queue was read"),
        Errno::LOOP => Left::new(path, Why::Unreadable, "it is a symbolic link"),
        error => unreadable(error),
    })?;
    let found = fstat(&opened).map_err(unreadable)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(Left::new(path, Why::Unreadable, "it is no file"));
    }
    if found.st_mode & 0o002 != 0 {
        return Err(Left::new(path, Why::Unreadable, "everybody may write it: sendmail would not believe it either"));
    }
    let busy = |error| match error {
        Errno::WOULDBLOCK | Errno::ACCESS => Left::new(path, Why::Locked, "sendmail has it locked: it works on it"),
        error => unreadable(error),
    };
    flock(&opened, FlockOperation::NonBlockingLockExclusive).map_err(busy)?;
    fcntl_lock(&opened, FlockOperation::NonBlockingLockExclusive).map_err(busy)?;
    // sendmail writes a new file in the place of the old one.
    if !fs::symlink_metadata(path).is_ok_and(|now| now.ino() == found.st_ino && now.dev() == found.st_dev) {
        return Err(Left::new(path, Why::Locked, "it changed while it was read: sendmail works on it"));
    }
    let file = File::from(opened);
    let mut octets = Vec::new();
    let most = ControlFileLimits::default().octets_max as u64 + 1;
    let read = (&file).take(most).read_to_end(&mut octets);
    read.map_err(|error| Left::new(path, Why::Unreadable, error.to_string()))?;
    Ok((file, octets))
}

/// Writes the text with CRLF at the end of each line. The inner error is one of the text, the other of the output.
fn write_text(mut text: &File, to: &mut Filing) -> io::Result<io::Result<()>> {
    let mut lines = Lines::new(false);
    let (mut buffer, mut out) = (vec![0; READ_BYTES], Vec::new());
    loop {
        let count = match text.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok(Err(error)),
        };
        out.clear();
        if count == 0 {
            lines.finish(&mut out);
            to.write(&out)?;
            return Ok(Ok(()));
        }
        lines.push(buffer.get(..count).unwrap_or_default(), &mut out);
        to.write(&out)?;
    }
}
