//! Submits mail without a network: one file for each message in the pickup directory, whether the server runs or not.
//!
//! The command writes the file here, with the rights of its caller, and the server takes it in `pickup`. The file is
//! written under a name that the server does not look at, synced, and renamed: it is there whole or not at all.
//! [`Filing::commit`] returns when it is durable, and then the message is accepted.
//!
//! | Name | What it is |
//! |---|---|
//! | `new.R` | a file that is being written; R are 32 random hexadecimal digits |
//! | `mail.R` | a message; the server has not begun with it |
//! | `mail.R.ID` | the same; the server tried to store it as ID |
//! | `wait.R` | a message that is taken over from another server and is still there too; see [`import`] |
//! | `bad.R` | a file that is no message, put aside; the log says why, and it is removed after seven days |
//! | `full` | who may hand in no more: a line `all COUNT`, lines `UID COUNT` |
//! | `socket` | where a command asks what became of its message |
//!
//! The bytes of a file: `MRPICKUP`, version, flags (1: the caller chose the sender), two octets for later, the octets
//! of the head and the number of recipients (32 bits each, little endian); the head: sender, parameters, the user in
//! whose name the server hands it in (with flag 2 only), where it waited before (with flag 4 only: file, time of
//! arrival in seconds since 1970, tries, `w` if its sender was warned of the delay, why it is held or nothing), terms
//! (with flag 8 only: `queue`, `tag=…`, with blanks between them), then address and parameters of each recipient,
//! each text behind its length in 32 bits; the content with CRLF at the end of each line; its octets (64 bits) and
//! SHA-256 of all before.
//!
//! Why the directory protects its files: mode 3733 and owned by the user of the server. Any user can create files in
//! it, only the server can list it, names cannot be guessed, a user cannot rename or remove a file of another (the
//! sticky bit), and a file belongs to the directory's group (the set-group-id bit of the *directory*) with mode 0640:
//! its writer and the server read it. No program needs rights of its own. The kernel tells the server the owner of a
//! file. The content of a file is only a claim of its owner: `pickup` has a table of the claims that are trusted.

pub mod fuzz;
pub mod import;

use aws_lc_rs::digest::{Context, SHA256};
use import::ImportedMessage;
use mail::{Address, MailParams, Recipient, RecipientParams, ReversePath};
use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The first octets of a file.
pub(crate) const MAGIC: &[u8; 8] = b"MRPICKUP";
/// The version that is written and the newest that is read.
pub(crate) const VERSION: u8 = 1;
/// Octets before the head.
pub const PREAMBLE_BYTES: usize = 20;
/// Octets behind the content.
pub(crate) const TRAILER_BYTES: usize = 8 + 32;
/// The most octets of a head: a million recipients of forty octets.
pub const HEAD_BYTES_MAX: usize = 64 << 20;
/// The most recipients of a message.
pub const RECIPIENTS_MAX: u32 = 1_000_000;
/// The mode of the directory.
pub const DIRECTORY_MODE: u32 = 0o3733;
/// The mode of a file.
const FILE_MODE: u32 = 0o640;
/// The name of the socket in the directory.
pub const SOCKET: &str = "socket";

const CHOSEN: u8 = 1;
const ON_BEHALF: u8 = 2;
const ADOPTED: u8 = 4;
const TERMS: u8 = 8;
/// The longest tag.
pub const TAG_CHARS_MAX: usize = 32;

/// A message as a program submits it, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The envelope's sender.
    pub sender: ReversePath,
    /// The caller chose it (`-f`), and it is not simply the caller, as the command says. The server decides by
    /// itself: any user can write a file.
    pub is_chosen: bool,
    /// The user in whose name it is submitted: only the server sets that, when it divides a message.
    pub on_behalf_of: Option<u32>,
    /// It waited at another server before: only root and the user of the server may claim that.
    pub adopted: Option<ImportedMessage>,
    /// Of the message.
    pub params: MailParams,
    /// Options besides the envelope.
    pub terms: Terms,
    /// At least one.
    pub recipients: Vec<Recipient>,
}

/// Options of a message besides its envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// It waits for a queue run (`-odq`).
    pub queue: bool,
    /// The label of its way in the log (`-L`); empty: the usual one.
    pub tag: String,
}

impl Terms {
    /// Returns as much of a word as may stand in a log: letters, digits, `-`, `_` and `.`, the first
    /// [`TAG_CHARS_MAX`].
    #[must_use]
    pub fn tag_of(word: &str) -> String {
        word.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(TAG_CHARS_MAX).collect()
    }

    fn parse(text: &str) -> Result<Self, Malformed> {
        let mut terms = Self::default();
        for word in text.split(' ') {
            match word.split_once('=') {
                None if word == "queue" => terms.queue = true,
                Some(("tag", tag)) if !tag.is_empty() && Self::tag_of(tag) == tag => terms.tag = tag.to_owned(),
                _ => return Err(Malformed(format!("this version does not know the term {word:?}"))),
            }
        }
        Ok(terms)
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = (!self.tag.is_empty()).then(|| format!("tag={}", self.tag));
        let words: Vec<String> = self.queue.then(|| "queue".to_owned()).into_iter().chain(tag).collect();
        f.write_str(&words.join(" "))
    }
}

/// A defect of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub(crate) String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

impl Submission {
    /// Preamble and head.
    ///
    /// # Errors
    /// The head is larger than [`HEAD_BYTES_MAX`], or there are more than [`RECIPIENTS_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut head = Vec::new();
        let mut field = |text: String| {
            head.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            head.extend_from_slice(text.as_bytes());
        };
        field(self.sender.address().map(ToString::to_string).unwrap_or_default());
        field(self.params.to_string());
        if let Some(uid) = self.on_behalf_of {
            field(uid.to_string());
        }
        if let Some(adopted) = &self.adopted {
            adopted.fields().into_iter().for_each(&mut field);
        }
        if self.terms != Terms::default() {
            field(self.terms.to_string());
        }
        for recipient in &self.recipients {
            field(recipient.address.to_string());
            field(recipient.params.to_string());
        }
        let octets = u32::try_from(head.len()).ok().filter(|_| head.len() <= HEAD_BYTES_MAX);
        let count = u32::try_from(self.recipients.len()).ok().filter(|count| *count <= RECIPIENTS_MAX);
        let (Some(octets), Some(count)) = (octets, count) else {
            return Err(Malformed(format!("{} recipients are more than one message can have", self.recipients.len())));
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.is_chosen, CHOSEN)
            | flag(self.on_behalf_of.is_some(), ON_BEHALF)
            | flag(self.adopted.is_some(), ADOPTED)
            | flag(self.terms != Terms::default(), TERMS);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[VERSION, flags, 0, 0]);
        bytes.extend_from_slice(&octets.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.append(&mut head);
        Ok(bytes)
    }

    /// Returns how many recipients a preamble announces.
    #[must_use]
    pub const fn recipients_in(preamble: &[u8; PREAMBLE_BYTES]) -> u32 {
        u32::from_le_bytes([preamble[16], preamble[17], preamble[18], preamble[19]])
    }

    /// Returns the octets of the head, from a preamble.
    ///
    /// # Errors
    /// It is none, or one of a newer version.
    pub fn head_bytes(preamble: &[u8; PREAMBLE_BYTES]) -> Result<usize, Malformed> {
        let [magic @ .., _, _, _, _, _, _, _, _, _, _, _, _] = preamble;
        if magic != MAGIC {
            return Err(Malformed("it does not begin as a message that was handed in".to_owned()));
        }
        let (version, octets) =
            (preamble[8], u32::from_le_bytes([preamble[12], preamble[13], preamble[14], preamble[15]]));
        if version != VERSION {
            return Err(Malformed(format!("its format is version {version}, this program reads {VERSION}")));
        }
        usize::try_from(octets)
            .ok()
            .filter(|octets| *octets <= HEAD_BYTES_MAX)
            .ok_or_else(|| Malformed(format!("its head has {octets} octets, of {HEAD_BYTES_MAX} allowed")))
    }

    /// Reads preamble and head.
    ///
    /// # Errors
    /// Preamble or head is malformed; the error describes the defect.
    pub fn decode(preamble: &[u8; PREAMBLE_BYTES], head: &[u8]) -> Result<Self, Malformed> {
        if Self::head_bytes(preamble)? != head.len() {
            return Err(Malformed("its head is cut off".to_owned()));
        }
        let (flags, count) = (preamble[9], Self::recipients_in(preamble));
        if count > RECIPIENTS_MAX {
            return Err(Malformed(format!("it has {count} recipients, of {RECIPIENTS_MAX} allowed")));
        }
        if flags & !(CHOSEN | ON_BEHALF | ADOPTED | TERMS) != 0 || preamble[10..12] != [0, 0] {
            return Err(Malformed("its head has flags that this version does not know".to_owned()));
        }
        let mut fields = Fields { rest: head };
        let bad = |what: &str, text: &str, why: &dyn fmt::Display| Malformed(format!("{what} {text:?}: {why}"));
        let sender = match fields.next()? {
            "" => ReversePath::Null,
            text => ReversePath::Address(text.parse().map_err(|error| bad("sender", text, &error))?),
        };
        let text = fields.next()?;
        let params = MailParams::parse(text.as_bytes()).map_err(|error| bad("parameters", text, &error))?;
        let on_behalf_of = match flags & ON_BEHALF {
            0 => None,
            _ => Some(fields.next()?.parse().map_err(|_| Malformed("its user is no number".to_owned()))?),
        };
        let adopted = match flags & ADOPTED {
            0 => None,
            _ => Some(ImportedMessage::read(|| fields.next())?),
        };
        let terms = match flags & TERMS {
            0 => Terms::default(),
            _ => Terms::parse(fields.next()?)?,
        };
        let mut recipients = Vec::new();
        for _ in 0..count {
            let text = fields.next()?;
            let address: Address = text.parse().map_err(|error| bad("recipient", text, &error))?;
            let text = fields.next()?;
            let params = RecipientParams::parse(text.as_bytes()).map_err(|error| bad("parameters", text, &error))?;
            recipients.push(Recipient { address, params });
        }
        if !fields.rest.is_empty() || recipients.is_empty() {
            return Err(Malformed("the number of its recipients is wrong".to_owned()));
        }
        Ok(Self { sender, is_chosen: flags & CHOSEN != 0, on_behalf_of, adopted, params, terms, recipients })
    }
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<&'a str, Malformed> {
        let take = || {
            let (length, rest) = self.rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (text, rest) = rest.split_at_checked(length)?;
            Some((str::from_utf8(text).ok()?, rest))
        };
        let (text, rest) = take().ok_or_else(|| Malformed("its head is cut off, or no text".to_owned()))?;
        self.rest = rest;
        Ok(text)
    }
}

/// The server's file with the users that are at their limits.
pub(crate) const FULL: &str = "full";
/// Octets of it that are looked at.
const FULL_BYTES_MAX: u64 = 1 << 20;

/// Checks that a user may submit a message, by the server's last count.
///
/// # Errors
/// Too many wait already; what to do.
pub fn room_for(directory: &Path, uid: u32) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(directory.join(FULL));
    let (Ok(file), Ok(owner)) = (opened, directory.metadata()) else { return Ok(()) };
    // Any user can make a file of that name, and only the server's counts.
    let is_servers = file
        .metadata()
        .is_ok_and(|found| found.is_file() && found.nlink() == 1 && [0, owner.uid()].contains(&found.uid()));
    let mut text = String::new();
    if !is_servers || file.take(FULL_BYTES_MAX).read_to_string(&mut text).is_err() {
        return Ok(());
    }
    let own = uid.to_string();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("all", count)) => {
                return Err(format!(
                    "{}: {count} messages wait there (submit.files_max); try again later, \"mailq -Ac\" lists them and the \
                     server's log says why they wait",
                    directory.display()
                ));
            }
            Some((user, count)) if user == own && uid != 0 => {
                return Err(format!(
                    "{}: {count} messages of user {uid} wait there (submit.user_files_max); try again later, the server's log says \
                     why they wait",
                    directory.display()
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A file that is being written into the directory. Dropped before [`Filing::commit`] it is removed.
pub struct Filing {
    directory: PathBuf,
    name: String,
    file: File,
    hash: Context,
    buffer: Vec<u8>,
    content_at: u64,
    content_bytes: u64,
    recipients: usize,
    is_done: bool,
}

impl fmt::Debug for Filing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filing")
            .field("name", &self.name)
            .field("content_bytes", &self.content_bytes)
            .finish_non_exhaustive()
    }
}

/// Octets of one write.
const BUFFER_BYTES: usize = 256 << 10;

impl Filing {
    /// Begins a file in `directory`.
    ///
    /// # Errors
    /// It cannot be made, or there are too many recipients.
    pub fn begin(directory: &Path, submission: &Submission) -> io::Result<Self> {
        let head = submission.encode().map_err(io::Error::other)?;
        let mut random = [0_u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::begin_as(directory, name, &head, submission.recipients.len())
    }

    fn begin_as(directory: &Path, name: String, head: &[u8], recipients: usize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        let file = options.open(directory.join(format!("new.{name}")))?;
        let mut filing = Self {
            directory: directory.to_owned(),
            name,
            file,
            hash: Context::new(&SHA256),
            buffer: Vec::new(),
            content_at: head.len() as u64,
            content_bytes: 0,
            recipients,
            is_done: false,
        };
        // The server reads it by its group, whatever the umask.
        filing.file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        filing.append(head)?;
        Ok(filing)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Appends content, whose lines end with CRLF.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, content: &[u8]) -> io::Result<()> {
        self.content_bytes += content.len() as u64;
        self.append(content)
    }

    /// Returns the octets of content so far.
    #[must_use]
    pub const fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Returns how many recipients it has.
    #[must_use]
    pub const fn recipients(&self) -> usize {
        self.recipients
    }

    /// Writes the trailer behind the content.
    fn end(&mut self) -> io::Result<()> {
        let octets = self.content_bytes.to_le_bytes();
        self.append(&octets)?;
        let digest = self.hash.clone().finish();
        self.buffer.extend_from_slice(digest.as_ref());
        self.flush()
    }

    /// Makes the file durable under its name.
    ///
    /// # Errors
    /// It cannot be; nothing will be delivered.
    pub fn commit(mut self) -> io::Result<Filed> {
        self.end()?;
        self.file.sync_all()?;
        let name = format!("mail.{}", self.name);
        // Both names are ours, and no other file is replaced: the name is random.
        #[expect(clippy::disallowed_methods, reason = "the directory is synced below as far as its rights allow")]
        std::fs::rename(self.directory.join(format!("new.{}", self.name)), self.directory.join(&name))?;
        self.is_done = true;
        match File::open(&self.directory) {
            Ok(directory) => directory.sync_all()?,
            // A user that may not list the directory cannot sync it either. The rename has changed the file too, and
            // the journals of ext4, xfs and btrfs write the rename with the file.
            Err(_) => self.file.sync_all()?,
        }
        Ok(Filed { name, file: self.file.try_clone()?, content_at: self.content_at, content_bytes: self.content_bytes })
    }
}

/// A message that was handed in.
#[derive(Debug)]
pub struct Filed {
    name: String,
    file: File,
    content_at: u64,
    content_bytes: u64,
}

impl Filed {
    /// Returns the name of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its content, also when the server has removed the file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn content(&mut self) -> io::Result<impl io::Read + '_> {
        self.file.seek(SeekFrom::Start(self.content_at))?;
        Ok((&self.file).take(self.content_bytes))
    }
}

impl Drop for Filing {
    fn drop(&mut self) {
        if !self.is_done {
            // One that stays is removed by the server after a day.
            drop(std::fs::remove_file(self.directory.join(format!("new.{}", self.name))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn submission() -> Submission {
        Submission {
            sender: ReversePath::Address("joe@h.test".parse().unwrap()),
            is_chosen: true,
            on_behalf_of: None,
            adopted: None,
            params: MailParams::parse(b"BODY=8BITMIME ENVID=a").unwrap(),
            terms: Terms::default(),
            recipients: vec![
                Recipient::new("\"a b\"@c.test".parse().unwrap()),
                Recipient {
                    address: "d@e.test".parse().unwrap(),
                    params: RecipientParams::parse(b"NOTIFY=NEVER").unwrap(),
                },
            ],
        }
    }

    fn read(bytes: &[u8]) -> Result<Submission, Malformed> {
        let (preamble, head) = bytes.split_first_chunk::<PREAMBLE_BYTES>().ok_or(Malformed(String::new()))?;
        Submission::decode(preamble, head)
    }

    #[test]
    fn what_is_written_reads_back() {
        for sender in [ReversePath::Null, submission().sender] {
            for (is_chosen, on_behalf_of) in [(false, None), (true, Some(1_000))] {
                let one = Submission { sender: sender.clone(), is_chosen, on_behalf_of, ..submission() };
                assert_eq!(read(&one.encode().unwrap()).as_ref(), Ok(&one));
                for (is_warned, hold) in [(false, None), (true, Some("a virus".to_owned()))] {
                    let source = "/var/spool/mqueue/qfX".to_owned();
                    let adopted = ImportedMessage { source, arrived: 1_700_000_000, tries: 3, is_warned, hold };
                    let old = Submission { adopted: Some(adopted), ..one.clone() };
                    assert_eq!(read(&old.encode().unwrap()), Ok(old));
                }
                for terms in [("", false), ("", true), ("tag", false), ("tag", true)] {
                    let terms = Terms { queue: terms.1, tag: terms.0.to_owned() };
                    let one = Submission { sender: sender.clone(), is_chosen, on_behalf_of, terms, ..submission() };
                    assert_eq!(read(&one.encode().unwrap()), Ok(one));
                }
            }
        }
    }

    #[test]
    fn terms_of_a_newer_version_are_refused() {
        for (text, expected) in [
            ("queue tag=a-b", Some((true, "a-b"))),
            ("hold", None),
            ("tag=", None),
            ("tag=a,relay=b", None),
            ("", None),
            ("queue  tag=x", None),
        ] {
            let read = Terms::parse(text).ok().map(|terms| (terms.queue, terms.tag));
            assert_eq!(read, expected.map(|(queue, tag)| (queue, tag.to_owned())), "{text}");
        }
        assert_eq!(Terms::tag_of("a b,c=\u{e4}\n_."), "abc_.");
        assert_eq!(Terms::tag_of(&"x".repeat(100)).len(), TAG_CHARS_MAX);
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let names = || {
            let mut names: Vec<_> =
                std::fs::read_dir(place.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let mut filing = Filing::begin(place.path(), &submission()).unwrap();
        filing.write(b"Subject: x\r\n\r\n").unwrap();
        assert!(names()[0].to_string_lossy().starts_with("new."));
        drop(filing);
        assert!(names().is_empty(), "given up");
        let mut filing = Filing::begin(place.path(), &submission()).unwrap();
        filing.write(b"Subject: x\r\n\r\n").unwrap();
        let mut filed = filing.commit().unwrap();
        assert_eq!(names(), [filed.name()]);
        let path = place.path().join(filed.name());
        let mut content = Vec::new();
        filed.content().unwrap().read_to_end(&mut content).unwrap();
        assert_eq!(content, b"Subject: x\r\n\r\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, FILE_MODE);
        let bytes = std::fs::read(path).unwrap();
        let head = submission().encode().unwrap();
        assert!(bytes.starts_with(&head) && bytes.len() == head.len() + 14 + TRAILER_BYTES);
    }

    #[test]
    fn who_may_hand_in_no_more_is_told() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(FULL);
        assert_eq!(room_for(place.path(), 1_000), Ok(()));
        std::fs::write(&path, "1000 10\n").unwrap();
        assert!(room_for(place.path(), 1_000).unwrap_err().contains("10 messages of user 1000 wait"));
        assert_eq!((room_for(place.path(), 1_001), room_for(place.path(), 100)), (Ok(()), Ok(())));
        std::fs::write(&path, "all 99\n").unwrap();
        assert!(room_for(place.path(), 0).unwrap_err().contains("99 messages wait there (submit.files_max)"));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(place.path().join("other"), "all 99\n").unwrap();
        std::os::unix::fs::symlink(place.path().join("other"), &path).unwrap();
        assert_eq!(room_for(place.path(), 1_000), Ok(()), "no link is followed");
        if os::machine::uid() == 0 {
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, "all 99\n").unwrap();
            std::os::unix::fs::chown(&path, Some(1_000), None).unwrap();
            assert_eq!(room_for(place.path(), 1_000), Ok(()), "another user's word counts for nothing");
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(at in 0usize..200, with: u8, cut in 0usize..200) {
            let mut bytes = submission().encode().unwrap();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = with;
            }
            bytes.truncate(cut.max(1));
            if let Ok(found) = read(&bytes) {
                prop_assert!(!found.recipients.is_empty());
            }
        }
    }
}
