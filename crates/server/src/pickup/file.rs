//! A file of the pickup directory, looked at before a word of it is believed.
//!
//! It is opened below the open directory and no link is followed; what was opened is asked for its owner, not the name. All of
//! it is read once before anything of it is used, and it must be whole to the last octet. Its owner may still change it
//! afterwards: what he then sends is his own mail, and the checks of the session hold for it like for any other.

use crate::submit::{Filing, HEAD_BYTES_MAX, Malformed, PREAMBLE_BYTES, Submission, TRAILER_BYTES};
use aws_lc_rs::digest::{Context, SHA256};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// What is read at once.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// A message that was handed in.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) submission: Submission,
    /// Who wrote it, as the kernel says.
    pub(super) uid: u32,
    /// When it was finished, in seconds since 1970.
    pub(super) finished: u64,
    file: File,
    content_at: u64,
    pub(super) content_bytes: u64,
}

/// Why there is no message.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The file is gone.
    Gone,
    /// It will never be one.
    Bad(String),
    /// The system did not let us read it; it may later.
    Io(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            io::ErrorKind::UnexpectedEof => Self::Bad("it is cut off".to_owned()),
            _ => Self::Io(error),
        }
    }
}

impl From<Malformed> for Trouble {
    fn from(error: Malformed) -> Self {
        Self::Bad(error.to_string())
    }
}

impl Handed {
    /// Opens a file of the directory and checks all of it. Blocks.
    ///
    /// # Errors
    /// Why it is no message.
    pub(super) fn open(directory: BorrowedFd<'_>, name: &str, content_max: u64) -> Result<Self, Trouble> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(directory, name, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::LOOP => Trouble::Bad("it is a symbolic link".to_owned()),
            rustix::io::Errno::NXIO | rustix::io::Errno::NODEV => Trouble::Bad("it is no file".to_owned()),
            error => io::Error::from(error).into(),
        })?;
        let found = fstat(&opened).map_err(io::Error::from)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Trouble::Bad("it is no file".to_owned()));
        }
        if found.st_nlink != 1 {
            return Err(Trouble::Bad(format!("it has {} names", found.st_nlink)));
        }
        let bytes = u64::try_from(found.st_size).unwrap_or(0);
        let most = content_max.saturating_add((PREAMBLE_BYTES + HEAD_BYTES_MAX + TRAILER_BYTES) as u64);
        if bytes > most {
            return Err(Trouble::Bad(format!("it has {bytes} octets, of {most} allowed")));
        }
        let file = File::from(opened);
        let mut preamble = [0; PREAMBLE_BYTES];
        file.read_exact_at(&mut preamble, 0)?;
        let mut head = vec![0; Submission::head_bytes(&preamble)?];
        file.read_exact_at(&mut head, PREAMBLE_BYTES as u64)?;
        let submission = Submission::decode(&preamble, &head)?;
        let ours = crate::env::machine::uid();
        let uid = match submission.on_behalf_of {
            None => found.st_uid,
            Some(uid) if [0, ours].contains(&found.st_uid) => uid,
            Some(_) => return Err(Trouble::Bad("it is in the name of another user".to_owned())),
        };
        if submission.adopted.is_some() && ![0, ours].contains(&found.st_uid) {
            return Err(Trouble::Bad("it says that it waited elsewhere, and its writer may not say so".to_owned()));
        }
        let content_at = (PREAMBLE_BYTES + head.len()) as u64;
        let content_bytes = bytes
            .checked_sub(content_at + TRAILER_BYTES as u64)
            .ok_or_else(|| Trouble::Bad("it is cut off".to_owned()))?;
        let handed = Self {
            submission,
            uid,
            finished: u64::try_from(found.st_mtime).unwrap_or(0),
            file,
            content_at,
            content_bytes,
        };
        let mut hash = Context::new(&SHA256);
        hash.update(&preamble);
        hash.update(&head);
        handed.verify(hash)?;
        Ok(handed)
    }

    fn verify(&self, mut hash: Context) -> Result<(), Trouble> {
        let mut lines = LineEnds::default();
        let mut at = 0;
        while at < self.content_bytes {
            let piece = self.piece(at)?;
            hash.update(&piece);
            lines.take(&piece);
            at += piece.len() as u64;
        }
        let mut trailer = [0; TRAILER_BYTES];
        self.file.read_exact_at(&mut trailer, self.content_at + self.content_bytes)?;
        let (octets, digest) = trailer.split_at(8);
        hash.update(octets);
        if octets != self.content_bytes.to_le_bytes() || hash.finish().as_ref() != digest {
            return Err(Trouble::Bad("its check sum is wrong: it is damaged or was changed".to_owned()));
        }
        if !lines.are_right() {
            return Err(Trouble::Bad("its lines do not all end with CRLF".to_owned()));
        }
        Ok(())
    }

    /// A piece of the content from this octet on; empty at its end. Blocks.
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

    /// The first octets of the content, up to a number. Blocks.
    ///
    /// # Errors
    /// As [`Handed::piece`].
    pub(super) fn beginning(&self, most: u64) -> io::Result<Vec<u8>> {
        let bytes = self.content_bytes.min(most);
        let mut content = vec![0; usize::try_from(bytes).unwrap_or(0)];
        self.file.read_exact_at(&mut content, self.content_at)?;
        Ok(content)
    }
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
    use crate::submit::adoption::Adopted;
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

    fn open(place: &Path, name: &str) -> Result<Handed, String> {
        let directory = File::open(place).unwrap();
        Handed::open(directory.as_fd(), name, 1 << 20).map_err(|trouble| match trouble {
            Trouble::Gone => "gone".to_owned(),
            Trouble::Bad(text) => text,
            Trouble::Io(error) => panic!("{error}"),
        })
    }

    #[test]
    fn what_was_filed_is_taken_with_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let content = b"Subject: x\r\n\r\n".repeat(10_000);
        let handed = open(place.path(), &filed(place.path(), &content)).unwrap();
        assert_eq!((handed.uid, handed.content_bytes), (crate::env::machine::uid(), content.len() as u64));
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
        let adopted = Adopted { source: "qfX".to_owned(), arrived: 1, tries: 0, is_warned: false, hold: None };
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
        if crate::env::machine::is_root() {
            // The control: the same file of somebody else.
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
        for content in [&b"a\nb\r\n"[..], b"a\rb\r\n", b"a", b"a\r\n\r"] {
            assert!(open(place.path(), &filed(place.path(), content)).unwrap_err().contains("CRLF"));
        }
        assert!(open(place.path(), &filed(place.path(), b"")).is_ok());
        let large = vec![b'x'; (1 << 20) + HEAD_BYTES_MAX + 100];
        std::fs::write(path("mail.large"), &large).unwrap();
        assert!(open(place.path(), "mail.large").unwrap_err().contains("allowed"));
    }
}
