//! Reads a file of the pickup directory and checks it before any of it is used.
//!
//! Any user of this machine can write one by hand. The server opens it below the open directory, without following a
//! link and without waiting for the other end of a FIFO; it checks type, owner, group and number of names of the open
//! file, not of the name. A file that was made elsewhere and linked or moved here has another group than the
//! directory gives to its files. The server reads all of it once before it uses any of it, the file must be whole to
//! the last octet, and the octets that are stored must be the same again: a file that changes meanwhile is not
//! accepted. The file does not say who wrote it, except files of root and of the server itself.
//!
//! | In the file | Believed |
//! |---|---|
//! | sender chosen by the caller (flag 1) | no: the server compares the sender with the owner |
//! | in the name of a user (flag 2), waited elsewhere (flag 4) | of root and the server's user; else the file is bad |
//! | octets, number of recipients | as far as the size of the file and the limits allow |
//! | parameters of MAIL and RCPT | as in any session of a process |

use crate::submit::{Filing, HEAD_BYTES_MAX, Malformed, PREAMBLE_BYTES, Submission, TRAILER_BYTES};
use aws_lc_rs::digest::{Context, SHA256};
use mail::Reply;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Octets of one read.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// A file with a larger head, or more recipients, takes room of [`HEADS_KIB`] while it is being stored.
const LARGE_HEAD_BYTES: usize = 64 << 10;
const LARGE_RECIPIENTS: u32 = 1_000;
/// KiB of large heads that are in memory at the same time: as much as one head may have.
pub(super) const HEADS_KIB: usize = HEAD_BYTES_MAX >> 10;
/// Octets of a SHA-256.
const DIGEST_BYTES: usize = 32;
/// Recipients that count as a KiB: many short ones take more memory than their octets.
const RECIPIENTS_PER_KIB: u32 = 16;

/// A recipient of a submitted file by its position, and the reply that refused it.
pub(super) type Refused = (usize, Reply);

/// A file that was opened, of which nothing but the preamble was read.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    /// Its owner by the kernel.
    owner: u32,
    finished: u64,
    bytes: u64,
    preamble: [u8; PREAMBLE_BYTES],
    head_bytes: usize,
}

/// A message that was handed in.
#[derive(Debug)]
pub(super) struct SubmittedFile {
    pub(super) submission: Submission,
    /// The user that wrote it, by the kernel.
    pub(super) uid: u32,
    /// The time at which it was finished, in seconds since 1970, by its owner's clock.
    pub(super) finished: u64,
    file: File,
    content_at: u64,
    pub(super) content_bytes: u64,
    digest: [u8; DIGEST_BYTES],
}

/// Why there is no message.
#[derive(Debug)]
pub(super) enum PickupFileError {
    /// The file is gone.
    Gone,
    /// The file will never be a message.
    Bad(String),
    /// The system did not let us read it; it may later.
    Io(io::Error),
}

impl From<io::Error> for PickupFileError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            io::ErrorKind::UnexpectedEof => Self::Bad("it is cut off".to_owned()),
            _ => Self::Io(error),
        }
    }
}

impl From<Malformed> for PickupFileError {
    fn from(error: Malformed) -> Self {
        Self::Bad(error.to_string())
    }
}

impl Opened {
    /// Opens a file of the directory. Blocks, but its owner cannot prolong that.
    ///
    /// # Errors
    /// Why it is no message.
    pub(super) fn open(directory: BorrowedFd<'_>, name: &str, content_max: u64) -> Result<Self, PickupFileError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(directory, name, flags, Mode::empty()).map_err(|error| match error {
            Errno::LOOP => PickupFileError::Bad("it is a symbolic link".to_owned()),
            Errno::NXIO | Errno::NODEV => PickupFileError::Bad("it is no file".to_owned()),
            Errno::ACCESS => is_closed(directory, name).unwrap_or_else(|| io::Error::from(error).into()),
            error => io::Error::from(error).into(),
        })?;
        let found = fstat(&opened).map_err(io::Error::from)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(PickupFileError::Bad("it is no file".to_owned()));
        }
        if found.st_nlink != 1 {
            return Err(PickupFileError::Bad(format!("it has {} names", found.st_nlink)));
        }
        let group = fstat(directory).map_err(io::Error::from)?.st_gid;
        if found.st_gid != group && !is_ours(found.st_uid) {
            let text = format!(
                "its group is {}, and what is made here has {group}: it was made elsewhere, or before the directory had that group (then \
                 chgrp it and give it its name with mail. again)",
                found.st_gid
            );
            return Err(PickupFileError::Bad(text));
        }
        let bytes = u64::try_from(found.st_size).unwrap_or(0);
        let most = content_max.saturating_add((PREAMBLE_BYTES + HEAD_BYTES_MAX + TRAILER_BYTES) as u64);
        if bytes > most {
            return Err(PickupFileError::Bad(format!("it has {bytes} octets, of {most} allowed")));
        }
        let file = File::from(opened);
        let mut preamble = [0; PREAMBLE_BYTES];
        file.read_exact_at(&mut preamble, 0)?;
        let head_bytes = Submission::head_bytes(&preamble)?;
        if (PREAMBLE_BYTES + head_bytes + TRAILER_BYTES) as u64 > bytes {
            return Err(PickupFileError::Bad("it is cut off".to_owned()));
        }
        let finished = u64::try_from(found.st_mtime).unwrap_or(0);
        Ok(Self { file, owner: found.st_uid, finished, bytes, preamble, head_bytes })
    }

    /// Returns the KiB of [`HEADS_KIB`] that it takes; `None` for the many that are small.
    pub(super) fn large_kib(&self) -> Option<u32> {
        let recipients = Submission::recipients_in(&self.preamble);
        let is_large = self.head_bytes > LARGE_HEAD_BYTES || recipients > LARGE_RECIPIENTS;
        is_large.then(|| {
            let octets = u32::try_from(self.head_bytes >> 10).unwrap_or(u32::MAX);
            let most = u32::try_from(HEADS_KIB).unwrap_or(u32::MAX);
            octets.max(recipients / RECIPIENTS_PER_KIB).clamp(1, most)
        })
    }

    /// Reads and checks all of it. Blocks.
    ///
    /// # Errors
    /// Why it is no message.
    pub(super) fn read(self) -> Result<SubmittedFile, PickupFileError> {
        let Self { file, owner, finished, bytes, preamble, head_bytes } = self;
        let mut head = vec![0; head_bytes];
        file.read_exact_at(&mut head, PREAMBLE_BYTES as u64)?;
        let submission = Submission::decode(&preamble, &head)?;
        let uid = match submission.on_behalf_of {
            None => owner,
            Some(uid) if is_ours(owner) => uid,
            Some(_) => return Err(PickupFileError::Bad("it is in the name of another user".to_owned())),
        };
        if submission.adopted.is_some() && !is_ours(owner) {
            return Err(PickupFileError::Bad(
                "it says that it waited elsewhere, and its writer may not say so".to_owned(),
            ));
        }
        let content_at = (PREAMBLE_BYTES + head.len()) as u64;
        let content_bytes = bytes
            .checked_sub(content_at + TRAILER_BYTES as u64)
            .ok_or_else(|| PickupFileError::Bad("it is cut off".to_owned()))?;
        let digest = [0; DIGEST_BYTES];
        let mut handed = SubmittedFile { submission, uid, finished, file, content_at, content_bytes, digest };
        let mut hash = Context::new(&SHA256);
        hash.update(&preamble);
        hash.update(&head);
        handed.verify(hash)?;
        Ok(handed)
    }
}

/// Returns whether a file of this user may speak for others: it is root's or the server's own.
fn is_ours(uid: u32) -> bool {
    [0, os::machine::uid()].contains(&uid)
}

/// Decides why a file cannot be read: if its owner made it so, it is bad. Otherwise this machine forbids it in some
/// other way, and the message waits.
fn is_closed(directory: BorrowedFd<'_>, name: &str) -> Option<PickupFileError> {
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    let mode = found.st_mode & 0o777;
    if is_file && mode & 0o040 != 0 {
        return None;
    }
    Some(PickupFileError::Bad(format!("its mode is {mode:03o}, which does not let the server read it")))
}

impl SubmittedFile {
    fn verify(&mut self, mut hash: Context) -> Result<(), PickupFileError> {
        let mut lines = LineEnds::default();
        let mut content = Context::new(&SHA256);
        let mut at = 0;
        while at < self.content_bytes {
            let piece = self.piece(at)?;
            hash.update(&piece);
            content.update(&piece);
            lines.take(&piece);
            at += piece.len() as u64;
        }
        let mut trailer = [0; TRAILER_BYTES];
        self.file.read_exact_at(&mut trailer, self.content_at + self.content_bytes)?;
        let (octets, digest) = trailer.split_at(8);
        hash.update(octets);
        if octets != self.content_bytes.to_le_bytes() || hash.finish().as_ref() != digest {
            return Err(PickupFileError::Bad("its check sum is wrong: it is damaged or was changed".to_owned()));
        }
        if !lines.are_right() {
            return Err(PickupFileError::Bad("its lines do not all end with CRLF".to_owned()));
        }
        self.digest = digest_of(content);
        Ok(())
    }

    /// Returns a check that content which is read again is the same.
    pub(super) fn again(&self) -> SameContent {
        SameContent { lines: LineEnds::default(), content: Context::new(&SHA256), digest: self.digest }
    }

    /// Returns a piece of the content from this octet on; empty at its end. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or the file has become shorter.
    pub(super) fn piece(&self, at: u64) -> io::Result<Vec<u8>> {
        let left = self.content_bytes.saturating_sub(at);
        let mut piece = vec![0; usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES)];
        self.file.read_exact_at(&mut piece, self.content_at + at)?;
        Ok(piece)
    }

    /// Puts the message into the directory again, as one for these recipients and one for the others. Blocks.
    ///
    /// # Errors
    /// It cannot be written. Some of it may be there.
    pub(super) fn divide(&self, directory: &Path, apart: &HashSet<usize>) -> io::Result<()> {
        for is_apart in [true, false] {
            let all = self.submission.recipients.iter().enumerate();
            let recipients = all.filter(|(at, _)| apart.contains(at) == is_apart).map(|(_, one)| one.clone()).collect();
            let part = Submission { recipients, on_behalf_of: Some(self.uid), ..self.submission.clone() };
            let mut filing = Filing::begin(directory, &part)?;
            let mut at = 0;
            while at < self.content_bytes {
                let piece = self.piece(at)?;
                at += piece.len() as u64;
                filing.write(&piece)?;
            }
            filing.commit()?;
        }
        Ok(())
    }

    /// Leaves out the recipients at these places of the file; returns the places of the others.
    pub(super) fn leave_out(&mut self, places: &HashSet<usize>) -> Vec<usize> {
        let all = std::mem::take(&mut self.submission.recipients).into_iter().enumerate();
        let left = all.filter(|(place, _)| !places.contains(place));
        let (places, recipients) = left.unzip();
        self.submission.recipients = recipients;
        places
    }

    /// Returns the first octets of the content, up to a number. Blocks.
    ///
    /// # Errors
    /// As [`SubmittedFile::piece`].
    pub(super) fn beginning(&self, most: u64) -> io::Result<Vec<u8>> {
        let bytes = self.content_bytes.min(most);
        let mut content = vec![0; usize::try_from(bytes).unwrap_or(0)];
        self.file.read_exact_at(&mut content, self.content_at)?;
        Ok(content)
    }
}

/// Sees whether content that is read a second time has been changed since the first.
pub(super) struct SameContent {
    lines: LineEnds,
    content: Context,
    digest: [u8; DIGEST_BYTES],
}

impl SameContent {
    /// Takes the next piece, before it goes anywhere.
    ///
    /// # Errors
    /// It has line ends that no message has: it was changed.
    pub(super) fn take(&mut self, piece: &[u8]) -> io::Result<()> {
        self.content.update(piece);
        self.lines.take(piece);
        if self.lines.is_wrong { Err(has_changed()) } else { Ok(()) }
    }

    /// Checks that all of the content came and is the same.
    ///
    /// # Errors
    /// It was changed.
    pub(super) fn finish(self) -> io::Result<()> {
        let is_same = self.lines.are_right() && digest_of(self.content) == self.digest;
        if is_same { Ok(()) } else { Err(has_changed()) }
    }
}

fn has_changed() -> io::Error {
    io::Error::other("the file has changed while it was read")
}

fn digest_of(content: Context) -> [u8; DIGEST_BYTES] {
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(content.finish().as_ref());
    digest
}

/// Whether CR and LF come in pairs only, and last.
#[derive(Debug, Default)]
struct LineEnds {
    is_wrong: bool,
    last: u8,
    any: bool,
}

impl LineEnds {
    fn take(&mut self, piece: &[u8]) {
        for &byte in piece {
            self.is_wrong |= (byte == b'\n') != (self.last == b'\r');
            self.last = byte;
            self.any = true;
        }
    }

    fn are_right(&self) -> bool {
        !self.is_wrong && (!self.any || self.last == b'\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::Filing;
    use crate::submit::import::ImportedMessage;
    use mail::{MailParams, Recipient, ReversePath};
    use std::os::fd::AsFd as _;

    fn filed(place: &Path, content: &[u8]) -> String {
        let submission = Submission {
            sender: ReversePath::Null,
            is_chosen: false,
            on_behalf_of: None,
            adopted: None,
            params: MailParams::default(),
            terms: crate::submit::Terms::default(),
            recipients: vec![Recipient::new("a@b.test".parse().unwrap())],
        };
        let mut filing = Filing::begin(place, &submission).unwrap();
        filing.write(content).unwrap();
        filing.commit().unwrap().name().to_owned()
    }

    fn open(place: &Path, name: &str) -> Result<SubmittedFile, String> {
        let directory = File::open(place).unwrap();
        Opened::open(directory.as_fd(), name, 1 << 20).and_then(Opened::read).map_err(|trouble| match trouble {
            PickupFileError::Gone => "gone".to_owned(),
            PickupFileError::Bad(text) => text,
            PickupFileError::Io(error) => panic!("{error}"),
        })
    }

    #[test]
    fn what_was_filed_is_taken_with_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let content = b"Subject: x\r\n\r\n".repeat(10_000);
        let handed = open(place.path(), &filed(place.path(), &content)).unwrap();
        assert_eq!((handed.uid, handed.content_bytes), (os::machine::uid(), content.len() as u64));
        assert_eq!(handed.beginning(u64::MAX).unwrap(), content);
        assert_eq!(handed.piece(content.len() as u64 - 2).unwrap(), b"\r\n");
        assert_eq!(open(place.path(), "mail.none").unwrap_err(), "gone");
    }

    #[test]
    fn a_message_can_be_divided_and_keeps_its_user() {
        let place = tempfile::tempdir().unwrap();
        let submission = Submission {
            sender: ReversePath::Null,
            is_chosen: false,
            on_behalf_of: Some(4_711),
            adopted: None,
            params: MailParams::default(),
            terms: crate::submit::Terms::default(),
            recipients: ["a@b.test", "c@d.test", "e@f.test"].map(|one| Recipient::new(one.parse().unwrap())).into(),
        };
        let mut filing = Filing::begin(place.path(), &submission).unwrap();
        filing.write(b"x\r\n").unwrap();
        let name = filing.commit().unwrap().name().to_owned();
        let whole = open(place.path(), &name).unwrap();
        assert_eq!(whole.uid, 4_711, "the server itself has written it");
        whole.divide(place.path(), &HashSet::from([1])).unwrap();
        std::fs::remove_file(place.path().join(&name)).unwrap();
        let parts = std::fs::read_dir(place.path()).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap());
        let mut parts: Vec<_> = parts.map(|name| open(place.path(), &name).unwrap()).collect();
        parts.sort_by_key(|part| part.submission.recipients.len());
        let counts: Vec<_> =
            parts.iter().map(|part| (part.uid, part.submission.recipients.len(), part.content_bytes)).collect();
        assert_eq!(counts, [(4_711, 1, 3), (4_711, 2, 3)]);
    }

    #[test]
    fn only_root_and_the_server_say_that_a_message_waited_elsewhere() {
        let place = tempfile::tempdir().unwrap();
        let adopted = ImportedMessage { source: "qfX".to_owned(), arrived: 1, tries: 0, is_warned: false, hold: None };
        let submission = Submission {
            sender: ReversePath::Null,
            is_chosen: false,
            on_behalf_of: None,
            adopted: Some(adopted.clone()),
            params: MailParams::default(),
            terms: crate::submit::Terms::default(),
            recipients: vec![Recipient::new("a@b.test".parse().unwrap())],
        };
        let name = Filing::begin(place.path(), &submission).unwrap().commit().unwrap().name().to_owned();
        assert_eq!(open(place.path(), &name).unwrap().submission.adopted, Some(adopted));
        if os::machine::is_root() {
            // The control: the same file of another user.
            std::os::unix::fs::chown(place.path().join(&name), Some(4_711), None).unwrap();
            assert!(open(place.path(), &name).unwrap_err().contains("waited elsewhere"));
        }
    }

    #[test]
    fn nothing_else_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let name = filed(place.path(), b"x\r\n");
        std::os::unix::fs::symlink(path(&name), path("mail.link")).unwrap();
        assert!(open(place.path(), "mail.link").unwrap_err().contains("symbolic link"));
        std::fs::hard_link(path(&name), path("mail.second")).unwrap();
        assert!(open(place.path(), &name).unwrap_err().contains("2 names"));
        std::fs::remove_file(path("mail.second")).unwrap();
        std::fs::create_dir(path("mail.dir")).unwrap();
        assert!(open(place.path(), "mail.dir").unwrap_err().contains("no file"));
        let whole = std::fs::read(path(&name)).unwrap();
        assert!(open(place.path(), &name).is_ok());
        // Every octet that is changed or lost is seen.
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x20;
            std::fs::write(path("mail.x"), &changed).unwrap();
            assert!(open(place.path(), "mail.x").is_err(), "{at}");
            std::fs::write(path("mail.x"), &whole[..at]).unwrap();
            assert!(open(place.path(), "mail.x").is_err(), "{at}");
        }
        // A large one that takes no room on the disk.
        File::create(path("mail.holes")).unwrap().set_len(10 << 30).unwrap();
        assert!(open(place.path(), "mail.holes").unwrap_err().contains("10737418240 octets"));
        rustix::fs::mknodat(rustix::fs::CWD, path("mail.fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(open(place.path(), "mail.fifo").unwrap_err().contains("no file"), "nobody waits for a writer");
        let _socket = std::os::unix::net::UnixListener::bind(path("mail.socket")).unwrap();
        assert!(open(place.path(), "mail.socket").unwrap_err().contains("no file"));
        for content in [&b"a\nb\r\n"[..], b"a\rb\r\n", b"a", b"a\r\n\r"] {
            assert!(open(place.path(), &filed(place.path(), content)).unwrap_err().contains("CRLF"));
        }
        assert!(open(place.path(), &filed(place.path(), b"")).is_ok());
        let large = vec![b'x'; (1 << 20) + HEAD_BYTES_MAX + 100];
        std::fs::write(path("mail.large"), &large).unwrap();
        assert!(open(place.path(), "mail.large").unwrap_err().contains("allowed"));
    }

    #[test]
    fn what_was_made_elsewhere_is_not_taken() {
        if !os::machine::is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let name = filed(place.path(), b"x\r\n");
        let path = place.path().join(&name);
        std::os::unix::fs::chown(&path, Some(1_000), None).unwrap();
        assert_eq!(open(place.path(), &name).unwrap().uid, 1_000);
        // As if a user moved or linked a file of another user here: a file that is made here has the group of the
        // directory.
        std::os::unix::fs::chown(&path, Some(1_000), Some(1_000)).unwrap();
        assert!(open(place.path(), &name).unwrap_err().contains("its group is 1000"));
        std::os::unix::fs::chown(&path, Some(0), Some(1_000)).unwrap();
        assert!(open(place.path(), &name).is_ok(), "root may put there what was kept elsewhere");
    }

    #[test]
    fn content_that_changes_after_it_was_checked_is_seen() {
        let place = tempfile::tempdir().unwrap();
        let content = b"Subject: x\r\n\r\nbody\r\n";
        for (from, to, is_seen) in [("body", "Body", true), ("y\r\n", "y\n.", true), ("x\r\n", "x\r\n", false)] {
            let name = filed(place.path(), content);
            let handed = open(place.path(), &name).unwrap();
            let path = place.path().join(&name);
            let mut bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(from.len()).rposition(|part| part == from.as_bytes()).unwrap();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            std::fs::write(&path, bytes).unwrap();
            let mut same = handed.again();
            let seen = same.take(&handed.piece(0).unwrap()).and_then(|()| same.finish());
            assert_eq!(seen.is_err(), is_seen, "{from:?} {to:?}");
        }
    }

    #[test]
    fn large_lists_take_room_by_octets_and_by_recipients() {
        let place = tempfile::tempdir().unwrap();
        let kib = |head: u32, recipients: u32| {
            let mut bytes = b"MRPICKUP\x01\0\0\0".to_vec();
            bytes.extend_from_slice(&head.to_le_bytes());
            bytes.extend_from_slice(&recipients.to_le_bytes());
            std::fs::write(place.path().join("mail.x"), bytes).unwrap();
            File::options().write(true).open(place.path().join("mail.x")).unwrap().set_len(100 << 20).unwrap();
            let directory = File::open(place.path()).unwrap();
            Opened::open(directory.as_fd(), "mail.x", 1 << 30).unwrap().large_kib()
        };
        let most = u32::try_from(HEAD_BYTES_MAX).unwrap();
        assert_eq!((kib(100, 1), kib(64 << 10, 1_000)), (None, None));
        assert_eq!((kib(65 << 10, 1), kib(100, 16_000)), (Some(65), Some(1_000)));
        assert_eq!((kib(most, 1), kib(100, u32::MAX)), (Some(65_536), Some(65_536)));
    }
}
