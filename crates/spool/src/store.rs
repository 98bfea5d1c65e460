//! The operations that the rest of mailrace needs of a spool, and no others.
//!
//! The narrow trait keeps a second back end possible; the tests run the same operations on one in memory and compare.
//! The values here cross that border.

use crate::buffer::AlignedBuf;
use crate::commit::Commit;
use crate::disk::BLOCK;
use crate::error::Error;
use crate::hold::Hold;
use bytes::Bytes;
use mail::QueueId;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// A transaction to be made durable as a whole.
#[derive(Clone, Debug)]
pub struct NewMessage<'a> {
    /// Its queue id, never used before.
    pub id: QueueId,
    /// The envelope's part about the whole message; opaque to the spool.
    pub head: &'a [u8],
    /// Its recipients, at least one. A recipient is known by its position here for ever.
    pub recipients: &'a [NewRecipient<'a>],
    /// Its header section and body.
    pub body: NewBody,
    /// May use the segments kept from ordinary messages: notices to senders, and mail the operator submits.
    pub reserved: bool,
    /// The state in which all its recipients begin: their class, and when they are due at the earliest. One that is
    /// done already, or owed something, is stored as waiting.
    pub state: State,
    /// Why its recipients are held, if they begin held.
    pub hold: Option<&'a Hold>,
    /// No attempt follows at once: the message takes no room among those that are kept in memory for one.
    pub waits: bool,
}

impl<'a> NewMessage<'a> {
    /// A message whose recipients wait, without a class, in segments for ordinary messages.
    #[must_use]
    pub fn new(id: QueueId, head: &'a [u8], recipients: &'a [NewRecipient<'a>], body: NewBody) -> Self {
        Self { id, head, recipients, body, reserved: false, state: State::default(), hold: None, waits: false }
    }
}

/// One recipient of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct NewRecipient<'a> {
    /// The envelope's part about this recipient; opaque to the spool.
    pub data: &'a [u8],
    /// Where it goes, as far as known: a domain or a next hop, at most 65,534 bytes. Queues are kept by this name.
    pub destination: &'a [u8],
}

/// Where the content of a new message comes from. The header section includes the empty line behind it; it has at most
/// [`Config::header_bytes_max`](crate::Config::header_bytes_max) bytes.
#[derive(Clone, Debug)]
pub enum NewBody {
    /// All of it is in memory.
    Whole {
        /// Header section and body.
        content: Bytes,
        /// Where the body begins in it.
        body_offset: u32,
    },
    /// The body was appended by [`Store::append_chunk`] under the same queue id.
    Chunks {
        /// The header section, which may still have changed after the last chunk.
        header: Bytes,
        /// How many chunks, numbered from 0.
        count: u32,
        /// Bytes of all chunks.
        bytes: u64,
    },
}

impl NewBody {
    /// Content in memory, whose body begins at `body_offset`.
    pub fn whole(content: impl Into<Bytes>, body_offset: u32) -> Self {
        Self::Whole { content: content.into(), body_offset }
    }

    /// Bytes of the header section.
    pub(crate) fn header_bytes(&self) -> usize {
        match self {
            Self::Whole { body_offset, .. } => *body_offset as usize,
            Self::Chunks { header, .. } => header.len(),
        }
    }
}

/// A new state of a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The message.
    pub id: QueueId,
    /// The recipient's position in its transaction.
    pub recipient: u32,
    /// Its new state.
    pub state: State,
    /// Its new destination, if that changed; one of over 65,534 bytes is ignored.
    pub destination: Option<Vec<u8>>,
}

/// The state of one recipient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The work that is left for it.
    pub status: Status,
    /// Delivery attempts so far, the class of the message and its mark, and whether the sender was warned: see
    /// [`State::tries`], [`State::class`], [`State::is_marked`] and [`State::is_warned`]. For owed work, its number in
    /// place of the attempts: [`State::owed`].
    pub attempts: u8,
    /// When it is to be tried next, in seconds since 1970; 0 for one that was not tried or released yet. For owed work,
    /// its time.
    pub due: u32,
}

impl State {
    /// The most attempts that are counted of a message of class 0.
    pub const TRIES_MAX: u8 = 0x1f;
    /// And of one of another class: the mark takes a bit.
    pub const TRIES_MAX_CLASSED: u8 = 0x0f;
    /// The highest number of owed work: it stands in place of the attempts.
    pub const OWED_MAX: u8 = Self::TRIES_MAX_CLASSED;
    /// The highest class.
    pub const CLASS_MAX: u8 = 2;
    /// In [`State::attempts`]: where the class begins.
    const CLASS_SHIFT: u8 = 5;
    /// The stored value for class 0 with the mark.
    const MARKED_0: u8 = 3;
    /// In [`State::attempts`] of another class than 0: the mark.
    const MARK: u8 = 0x10;
    /// In [`State::attempts`]: the sender was told of the delay.
    const WARNED: u8 = 0x80;

    /// Delivery attempts so far; stays at [`State::tries_max`].
    #[must_use]
    pub const fn tries(self) -> u8 {
        self.attempts & self.tries_max()
    }

    /// The most attempts that are counted in this class.
    #[must_use]
    pub const fn tries_max(self) -> u8 {
        if self.class() == 0 { Self::TRIES_MAX } else { Self::TRIES_MAX_CLASSED }
    }

    const fn class_bits(self) -> u8 {
        self.attempts >> Self::CLASS_SHIFT & 3
    }

    /// The class of its message, 0 to [`State::CLASS_MAX`]; its meaning is the caller's.
    #[must_use]
    pub const fn class(self) -> u8 {
        match self.class_bits() {
            Self::MARKED_0 => 0,
            class => class,
        }
    }

    /// Whether its message has the mark; its meaning is the caller's.
    #[must_use]
    pub const fn is_marked(self) -> bool {
        match self.class_bits() {
            0 => false,
            Self::MARKED_0 => true,
            _ => self.attempts & Self::MARK != 0,
        }
    }

    /// The same in another class, 0 where there is none such, with the mark or without it.
    #[must_use]
    pub const fn of_class(self, class: u8, is_marked: bool) -> Self {
        let bits = match (class, is_marked) {
            (1..=Self::CLASS_MAX, false) => class << Self::CLASS_SHIFT,
            (1..=Self::CLASS_MAX, true) => class << Self::CLASS_SHIFT | Self::MARK,
            (_, false) => 0,
            (_, true) => Self::MARKED_0 << Self::CLASS_SHIFT,
        };
        let empty = Self { attempts: bits, ..self };
        let tries = if self.tries() < empty.tries_max() { self.tries() } else { empty.tries_max() };
        Self { attempts: bits | tries | self.attempts & Self::WARNED, ..self }
    }

    /// The same, with nothing to deliver any more and something owed, to be looked for at a time since 1970. The caller
    /// chooses the number `what`, at most [`State::OWED_MAX`].
    #[must_use]
    pub fn owing(self, what: u8, due: Duration) -> Self {
        let attempts = self.attempts & !self.tries_max() | what.min(Self::OWED_MAX);
        Self { status: Status::Owed, attempts, ..self.until(due) }
    }

    /// Returns the number of the owed work, if there is some.
    #[must_use]
    pub const fn owed(self) -> Option<u8> {
        match self.status {
            Status::Owed => Some(self.tries()),
            Status::Waiting | Status::Held | Status::Done => None,
        }
    }

    /// Whether the sender was told of the delay.
    #[must_use]
    pub const fn is_warned(self) -> bool {
        self.attempts & Self::WARNED != 0
    }

    /// The same with one attempt more.
    #[must_use]
    pub const fn tried(self) -> Self {
        let more = if self.tries() < self.tries_max() { 1 } else { 0 };
        Self { attempts: self.attempts + more, ..self }
    }

    /// The same, waiting for a time since 1970.
    #[must_use]
    pub fn until(self, due: Duration) -> Self {
        Self { status: Status::Waiting, due: u32::try_from(due.as_secs()).unwrap_or(u32::MAX), ..self }
    }

    /// The same, and the sender was told of the delay.
    #[must_use]
    pub const fn warned(self) -> Self {
        Self { attempts: self.attempts | Self::WARNED, ..self }
    }
}

/// The work that is left for a recipient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// Deliver when due.
    #[default]
    Waiting,
    /// Keep until a person releases it.
    Held,
    /// Delivered, bounced or deleted: nothing more. For ever.
    Done,
    /// There is nothing to deliver any more, but its owner owes something for it, as a report: [`State::owed`].
    Owed,
}

/// A stored envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEnvelope {
    /// As given in [`NewMessage::head`].
    pub head: Bytes,
    /// Bytes of the content: header section and body.
    pub body_bytes: u64,
    /// Bytes of the header section, and so where the body begins in the content.
    pub body_offset: u32,
    /// All recipients that are not done, by position.
    pub recipients: Vec<StoredRecipient>,
}

/// A message in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// With those recipients that were asked for, in the order in which they were.
    pub envelope: StoredEnvelope,
    /// Recipients that are not done, asked for or not.
    pub recipients_left: usize,
    /// The whole content in pieces.
    pub body: Vec<Bytes>,
}

/// Some recipients of a message, and the parts about the whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// With those recipients that were asked for and are not done, in the order in which they were asked for.
    pub envelope: StoredEnvelope,
    /// Recipients that are not done, asked for or not.
    pub recipients_left: usize,
}

/// A stored recipient that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecipient {
    /// Its position in the transaction.
    pub position: u32,
    /// As given in [`NewRecipient::data`].
    pub data: Bytes,
    /// Its destination now.
    pub destination: Bytes,
    /// Its state now.
    pub state: State,
}

/// A recipient in the queue of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The message.
    pub id: QueueId,
    /// The recipient's position in it.
    pub recipient: u32,
    /// Its state.
    pub state: State,
}

/// Figures of a spool since it was opened, and its content now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages that are not finished.
    pub messages: u64,
    /// Recipients that are not done.
    pub recipients: u64,
    /// Recipients that are held; among those that are not done.
    pub held: u64,
    /// Destinations with recipients that are not done.
    pub destinations: u64,
    /// Bytes of frames of unfinished messages.
    pub live_bytes: u64,
    /// Segment files, of them free, of them retired after a failure.
    pub segments: u64,
    /// Free segments.
    pub segments_free: u64,
    /// Segments retired after a storage failure, kept for a person to look at.
    pub segments_bad: u64,
    /// The most segments there may be.
    pub segments_max: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Batches written.
    pub batches: u64,
    /// Calls that made writes durable.
    pub syncs: u64,
    /// Bytes given to the file system.
    pub bytes_written: u64,
    /// Bytes of committed content.
    pub body_bytes: u64,
    /// Messages moved to cold segments.
    pub relocated: u64,
    /// Writes or syncs that failed.
    pub failures: u64,
    /// Reads answered from fresh messages in memory.
    pub cache_hits: u64,
    /// Reads of whole bodies answered from the disk.
    pub cache_misses: u64,
    /// Reads answered from messages that were read before and are kept for other recipients.
    pub shared_hits: u64,
    /// Reads that went to the disk, and kept the message if others may want it.
    pub shared_misses: u64,
    /// Memory of the index, in bytes.
    pub index_bytes: u64,
    /// Memory for fresh messages, in bytes.
    pub cache_bytes: u64,
    /// Memory for messages that are kept for other recipients, in bytes.
    pub shared_bytes: u64,
}

impl Statistics {
    /// The sum of two, for stores of several parts.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            recipients: self.recipients + other.recipients,
            held: self.held + other.held,
            destinations: self.destinations + other.destinations,
            live_bytes: self.live_bytes + other.live_bytes,
            segments: self.segments + other.segments,
            segments_free: self.segments_free + other.segments_free,
            segments_bad: self.segments_bad + other.segments_bad,
            segments_max: self.segments_max + other.segments_max,
            commits: self.commits + other.commits,
            batches: self.batches + other.batches,
            syncs: self.syncs + other.syncs,
            bytes_written: self.bytes_written + other.bytes_written,
            body_bytes: self.body_bytes + other.body_bytes,
            relocated: self.relocated + other.relocated,
            failures: self.failures + other.failures,
            cache_hits: self.cache_hits + other.cache_hits,
            cache_misses: self.cache_misses + other.cache_misses,
            shared_hits: self.shared_hits + other.shared_hits,
            shared_misses: self.shared_misses + other.shared_misses,
            index_bytes: self.index_bytes + other.index_bytes,
            cache_bytes: self.cache_bytes + other.cache_bytes,
            shared_bytes: self.shared_bytes + other.shared_bytes,
        }
    }
}

/// A durable store of messages.
pub trait Store: Send + Sync + fmt::Debug {
    /// Takes the transaction; the returned handle resolves when it is on stable storage.
    ///
    /// All recipients commit together or none does. Does not block on the disk.
    /// # Errors
    /// `Full`, `Busy`, `TooLarge`, `HeaderTooLarge`, `Exists`, `Poisoned`: nothing was written. The handle: `Failed`.
    /// # Cancel safety
    /// Dropping the handle does not undo the commit: the message may be delivered although no 250 was sent
    /// (RFC 5321 §6.1, RFC 1047).
    fn append(&self, message: NewMessage<'_>) -> Result<Commit, Error>;

    /// Takes the next piece of a large body, in order, before its transaction. Not durable before the transaction is.
    ///
    /// Wait for the handle before giving the next but one, so that memory stays bounded; for that it is never `Busy`.
    /// # Errors
    /// `Full`, `TooLarge`, `Poisoned`; `Failed` if an earlier piece failed. Then [`Store::abort`] the earlier pieces.
    fn append_chunk(&self, id: QueueId, number: u32, chunk: Chunk) -> Result<Commit, Error>;

    /// Forgets the chunks of a transaction that will not come.
    fn abort(&self, id: QueueId);

    /// Records what became of recipients; in force at once, durable with the next batch or within `state_delay_ms`.
    ///
    /// A message whose last recipient is done is finished and forgotten. The handle need not be waited for: a crash
    /// forgets at most the changes of the last `state_delay_ms`. Changes of recipients that are done or unknown are
    /// ignored.
    /// # Errors
    /// `Poisoned`: suspend deliveries, or recipients get their mail twice after a restart.
    fn record(&self, changes: &[Change]) -> Result<Commit, Error>;

    /// Reads an envelope with the present states of its recipients.
    ///
    /// # Errors
    /// `Unknown`, `Corrupt`, `Unreadable`.
    fn envelope(&self, id: QueueId) -> Result<StoredEnvelope, Error>;

    /// Reads the whole content, header section and body, as pieces in order.
    ///
    /// # Errors
    /// `Unknown`, `Corrupt`, `Unreadable`.
    fn body(&self, id: QueueId) -> Result<Vec<Bytes>, Error>;

    /// Reads a part of the content; shorter where the content ends.
    ///
    /// # Errors
    /// `Unknown`, `Corrupt`, `Unreadable`.
    fn body_range(&self, id: QueueId, range: Range<u64>) -> Result<Bytes, Error>;

    /// Reads the header section, the empty line behind it included.
    ///
    /// # Errors
    /// `Unknown`, `Corrupt`, `Unreadable`.
    fn header(&self, id: QueueId) -> Result<Bytes, Error>;

    /// Destinations with recipients that are not done, and how many, in no order.
    fn destinations(&self) -> Vec<(Bytes, u64)>;

    /// At most `limit` recipients of a destination, the longest waiting first, from `after` on.
    fn by_destination(&self, destination: &[u8], after: Option<Entry>, limit: usize) -> Vec<Entry>;

    /// Every unfinished message, in no order.
    fn messages(&self) -> Vec<QueueId>;

    /// Figures for metrics and people.
    fn statistics(&self) -> Statistics;
}

/// A piece of a large body in memory laid out so that it goes to the disk without being copied.
///
/// Its first block is kept for the frame's header; the bytes of the body follow.
#[derive(Debug)]
pub struct Chunk {
    pub(crate) buffer: AlignedBuf,
    filled: usize,
    /// Checksum of the bytes, once [`Chunk::seal`] was called.
    pub(crate) crc: u32,
}

impl Chunk {
    /// An empty chunk for at most `bytes_max` bytes of body.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { buffer: AlignedBuf::new(BLOCK + bytes_max), filled: 0, crc: 0 }
    }

    /// Bytes of body in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether it has no bytes of body.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// The part not yet filled; tell [`Chunk::fill`] how much of it was used.
    #[must_use]
    pub fn room(&mut self) -> &mut [u8] {
        self.buffer.as_mut_slice().get_mut(BLOCK + self.filled..).unwrap_or_default()
    }

    /// Counts `bytes` of the room as filled, at most all of it.
    pub fn fill(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.buffer.capacity() - BLOCK);
    }

    /// Copies as much of `bytes` as has room, and says how much that was.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let room = self.room();
        let n = room.len().min(bytes.len());
        if let (Some(to), Some(from)) = (room.get_mut(..n), bytes.get(..n)) {
            to.copy_from_slice(from);
        }
        self.fill(n);
        n
    }

    /// Computes the checksum, outside of any lock.
    pub(crate) fn seal(&mut self) {
        self.crc = crc32c::crc32c(self.data());
    }

    /// The bytes of body.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.buffer.as_slice().get(BLOCK..BLOCK + self.filled).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self.data()
    }
}
