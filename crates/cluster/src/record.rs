//! The records of a block: what happened to mail, and to the stream that holds its copies.
//!
//! One format serves the wire, the stream and recovery (`docs/cluster.md` has the bytes). Numbers are little-endian. A
//! record is a tag, a length and as many octets; the reader takes any octets, allocates no more than they hold, and
//! never panics.
//!
//! Invariant: a record that was written reads back as the same value, and no two spellings read as the same record.

use crate::identity::{Epoch, NodeId, StreamId};
use bytes::{Bytes, BytesMut};
use mail::QueueId;

/// The recipients of a message, at most.
pub const RECIPIENTS_MAX: u32 = 1 << 24;

const TAG_ACCEPT: u8 = 1;
const TAG_DONE: u8 = 2;
const TAG_HEARTBEAT: u8 = 3;
const TAG_FENCE: u8 = 4;
const TAG_RELEASE: u8 = 5;
const TAG_ADOPTED: u8 = 6;
const TAG_PIECE: u8 = 7;
/// Tag and length.
pub(crate) const RECORD_HEAD: usize = 5;

/// One entry of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A message is in the stream from here on, until it is done. A later one of the same id replaces it.
    Accept(Accepted),
    /// Recipients are finished.
    Done(Vec<Completion>),
    /// The owner lives; nothing else changed.
    Heartbeat {
        /// Messages of the stream that are not done.
        live: u64,
    },
    /// Blocks of lower epochs are refused from here on.
    Fence(Fence),
    /// The owner gave up the stream as planned: nothing of it is in delivery, an adopter need not wait.
    Release,
    /// An adopter has taken over messages of this stream; they are in its own log and shadow stream.
    Adopted(Adopted),
    /// A piece of a large body, in the lane of bodies.
    Piece(Piece),
}

/// A message with its copy, as ACCEPT holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its name, unique in the cluster.
    pub id: QueueId,
    /// Number of times that another node took it over. A higher one replaces a lower one wherever both are known.
    pub hops: u16,
    /// A recipient may have had it already, because its former owner did not give it up as planned.
    pub may_be_duplicate: bool,
    /// When it was queued, in microseconds since 1970.
    pub queued_at_us: u64,
    /// When it is returned, in microseconds since 1970; 0 when the retry policy decides.
    pub expires_at_us: u64,
    /// Its recipients after all expansion, at most [`RECIPIENTS_MAX`]; completions count them from 0.
    pub recipients: u32,
    /// Recipients that were done before this record, ascending.
    pub finished: Vec<u32>,
    /// Another stream with a copy, if there are two.
    pub twin: Option<Twin>,
    /// The envelope as the local log writes it.
    pub envelope: Bytes,
    /// Header section and body.
    pub body: StoredBody,
}

/// The other one of two copies of a message, as a record names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    /// Its stream.
    pub stream: StreamId,
    /// The epoch of that stream when the record was written; a fence of it may come later.
    pub epoch: Epoch,
    /// The record with this mark is the first copy, the one in `stream` the second. The first decides who adopts.
    pub is_first: bool,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredBody {
    /// In the record.
    Whole(Bytes),
    /// In the lane of bodies.
    Pieces(PieceList),
}

/// The place of a large body in the lane of bodies of the same stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceList {
    /// The body's number, unique in the stream and epoch.
    pub body: u64,
    /// Pieces, from number 0.
    pub pieces: u32,
    /// Octets of the whole body.
    pub octets: u64,
    /// CRC-32C of the whole body.
    pub crc: u32,
    /// Sequences of the first and last block with a piece of it.
    pub sequences: (u64, u64),
}

impl PieceList {
    /// The number of a body that is the `count`th of this start of its owner.
    pub(crate) const fn number(start: u32, count: u64) -> u64 {
        (start as u64) << 32 | count
    }

    /// The start of the owner that wrote the body.
    pub(crate) const fn start(&self) -> u32 {
        (self.body >> 32) as u32
    }
}

/// The end of one recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The message.
    pub id: QueueId,
    /// Number of the recipient; `None` for all that are left.
    pub recipient: Option<u32>,
    /// The reason.
    pub outcome: Outcome,
}

/// The reason why a recipient is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The next hop has it.
    Delivered,
    /// It failed, and a report is queued where one was due.
    Failed,
    /// This copy ends; the message lives on by another one, here or at the node that adopted it.
    Moved,
    /// The client got no 250, or an operator removed it.
    Withdrawn,
}

/// The content of FENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The epoch from here on.
    pub epoch: Epoch,
    /// The node that raised it.
    pub by: NodeId,
    /// An adoption begins; false for the fence by which an owner opens its own stream.
    pub is_adoption: bool,
}

/// The content of ADOPTED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The epoch of the adopter's fence.
    pub epoch: Epoch,
    /// The adopter.
    pub by: NodeId,
    /// All mail of blocks up to this sequence has been looked at.
    pub upto: u64,
    /// No further part follows.
    pub is_last: bool,
    /// The messages taken, each with the hops that it had before.
    pub taken: Vec<(QueueId, u16)>,
}

/// The content of PIECE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The body's number.
    pub body: u64,
    /// Number of the piece, from 0.
    pub number: u32,
    /// Its octets.
    pub octets: Bytes,
}

impl Record {
    /// Appends the record to a block under construction.
    pub fn write(&self, out: &mut BytesMut) {
        let start = out.len();
        out.extend_from_slice(&[self.tag(), 0, 0, 0, 0]);
        match self {
            Self::Accept(accepted) => accepted.write(out),
            Self::Done(completions) => completions.iter().for_each(|one| one.write(out)),
            Self::Heartbeat { live } => put(out, &live.to_le_bytes()),
            Self::Fence(fence) => {
                put(out, &fence.epoch.0.to_le_bytes());
                put(out, &fence.by.0.to_le_bytes());
                put(out, &[u8::from(fence.is_adoption)]);
            }
            Self::Release => {}
            Self::Adopted(adopted) => adopted.write(out),
            Self::Piece(piece) => {
                put(out, &piece.body.to_le_bytes());
                put(out, &piece.number.to_le_bytes());
                put(out, &piece.octets);
            }
        }
        let length = u32::try_from(out.len() - start - RECORD_HEAD).unwrap_or(u32::MAX);
        if let Some(field) = out.get_mut(start + 1..start + RECORD_HEAD) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }

    const fn tag(&self) -> u8 {
        match self {
            Self::Accept(_) => TAG_ACCEPT,
            Self::Done(_) => TAG_DONE,
            Self::Heartbeat { .. } => TAG_HEARTBEAT,
            Self::Fence(_) => TAG_FENCE,
            Self::Release => TAG_RELEASE,
            Self::Adopted(_) => TAG_ADOPTED,
            Self::Piece(_) => TAG_PIECE,
        }
    }

    /// Octets of the record in a block, or a little more.
    #[must_use]
    pub fn octets(&self) -> usize {
        RECORD_HEAD
            + match self {
                Self::Accept(accepted) => {
                    let body = match &accepted.body {
                        StoredBody::Whole(bytes) => bytes.len(),
                        StoredBody::Pieces(_) => 40,
                    };
                    64 + accepted.envelope.len() + body + 4 * accepted.finished.len()
                }
                Self::Done(completions) => completions.len() * Completion::OCTETS,
                Self::Adopted(adopted) => 32 + adopted.taken.len() * 10,
                Self::Piece(piece) => 12 + piece.octets.len(),
                Self::Heartbeat { .. } | Self::Fence(_) | Self::Release => 16,
            }
    }

    /// Reads the record at the front; `None` when the octets are no record. The rest stays in `from`.
    pub(crate) fn read(from: &mut Cursor) -> Option<Self> {
        let tag = from.u8()?;
        let length = from.u32()? as usize;
        let mut content = Cursor(from.bytes(length)?);
        let content = &mut content;
        let record = match tag {
            TAG_ACCEPT => Self::Accept(Accepted::read(content)?),
            TAG_DONE => {
                if !content.len().is_multiple_of(Completion::OCTETS) || content.len() == 0 {
                    return None;
                }
                let count = content.len() / Completion::OCTETS;
                Self::Done((0..count).map(|_| Completion::read(content)).collect::<Option<_>>()?)
            }
            TAG_HEARTBEAT => Self::Heartbeat { live: content.u64()? },
            TAG_FENCE => Self::Fence(Fence {
                epoch: Epoch(content.u64()?),
                by: NodeId(content.u16()?),
                is_adoption: content.flag()?,
            }),
            TAG_RELEASE => Self::Release,
            TAG_ADOPTED => Self::Adopted(Adopted::read(content)?),
            TAG_PIECE => {
                let (body, number, length) = (content.u64()?, content.u32()?, content.len());
                Self::Piece(Piece { body, number, octets: content.bytes(length)? })
            }
            _ => return None,
        };
        (content.len() == 0).then_some(record)
    }
}

impl Accepted {
    fn write(&self, out: &mut BytesMut) {
        put(out, &self.id.to_u64().to_le_bytes());
        put(out, &self.hops.to_le_bytes());
        let twin = match self.twin {
            None => 0,
            Some(Twin { is_first: true, .. }) => 2,
            Some(Twin { is_first: false, .. }) => 4,
        };
        let pieces = if matches!(self.body, StoredBody::Pieces(_)) { 8 } else { 0 };
        put(out, &[u8::from(self.may_be_duplicate) | twin | pieces]);
        put(out, &self.queued_at_us.to_le_bytes());
        put(out, &self.expires_at_us.to_le_bytes());
        put(out, &self.recipients.to_le_bytes());
        put(out, &length(self.finished.len()));
        self.finished.iter().for_each(|one| put(out, &one.to_le_bytes()));
        if let Some(twin) = self.twin {
            put(out, &twin.stream.owner.0.to_le_bytes());
            put(out, &twin.stream.holder.0.to_le_bytes());
            put(out, &twin.stream.generation.to_le_bytes());
            put(out, &twin.epoch.0.to_le_bytes());
        }
        put(out, &length(self.envelope.len()));
        put(out, &self.envelope);
        match &self.body {
            StoredBody::Whole(bytes) => put(out, bytes),
            StoredBody::Pieces(list) => {
                put(out, &list.body.to_le_bytes());
                put(out, &list.pieces.to_le_bytes());
                put(out, &list.octets.to_le_bytes());
                put(out, &list.crc.to_le_bytes());
                put(out, &list.sequences.0.to_le_bytes());
                put(out, &list.sequences.1.to_le_bytes());
            }
        }
    }

    fn read(from: &mut Cursor) -> Option<Self> {
        let id = QueueId::from_u64(from.u64()?)?;
        let (hops, flags) = (from.u16()?, from.u8()?);
        let is_first = match flags & 6 {
            0 => None,
            2 => Some(true),
            4 => Some(false),
            _ => return None,
        };
        if flags & !15 != 0 {
            return None;
        }
        let (queued_at_us, expires_at_us, recipients) = (from.u64()?, from.u64()?, from.u32()?);
        let count = from.u32()? as usize;
        if recipients > RECIPIENTS_MAX || count > from.len() / 4 {
            return None;
        }
        let finished: Vec<u32> = (0..count).map(|_| from.u32()).collect::<Option<_>>()?;
        let ascending = finished.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
        if !ascending || finished.last().is_some_and(|last| *last >= recipients) {
            return None;
        }
        let twin = match is_first {
            None => None,
            Some(is_first) => {
                let (owner, holder) = (NodeId(from.u16()?), NodeId(from.u16()?));
                let stream = StreamId { owner, holder, generation: from.u32()? };
                Some(Twin { stream, epoch: Epoch(from.u64()?), is_first })
            }
        };
        let envelope = from.u32()? as usize;
        let envelope = from.bytes(envelope)?;
        let body = if flags & 8 == 0 {
            let length = from.len();
            StoredBody::Whole(from.bytes(length)?)
        } else {
            StoredBody::Pieces(PieceList {
                body: from.u64()?,
                pieces: from.u32()?,
                octets: from.u64()?,
                crc: from.u32()?,
                sequences: (from.u64()?, from.u64()?),
            })
        };
        let may_be_duplicate = flags & 1 != 0;
        Some(Self {
            id,
            hops,
            may_be_duplicate,
            queued_at_us,
            expires_at_us,
            recipients,
            finished,
            twin,
            envelope,
            body,
        })
    }
}

impl Completion {
    const OCTETS: usize = 13;
    const ALL: u32 = u32::MAX;

    fn write(&self, out: &mut BytesMut) {
        put(out, &self.id.to_u64().to_le_bytes());
        put(out, &self.recipient.unwrap_or(Self::ALL).to_le_bytes());
        let outcome = match self.outcome {
            Outcome::Delivered => 0,
            Outcome::Failed => 1,
            Outcome::Moved => 2,
            Outcome::Withdrawn => 3,
        };
        put(out, &[outcome]);
    }

    fn read(from: &mut Cursor) -> Option<Self> {
        let id = QueueId::from_u64(from.u64()?)?;
        let recipient = from.u32()?;
        let outcome = match from.u8()? {
            0 => Outcome::Delivered,
            1 => Outcome::Failed,
            2 => Outcome::Moved,
            3 => Outcome::Withdrawn,
            _ => return None,
        };
        Some(Self { id, recipient: (recipient != Self::ALL).then_some(recipient), outcome })
    }
}

impl Adopted {
    fn write(&self, out: &mut BytesMut) {
        put(out, &self.epoch.0.to_le_bytes());
        put(out, &self.by.0.to_le_bytes());
        put(out, &self.upto.to_le_bytes());
        put(out, &[u8::from(self.is_last)]);
        for (id, hops) in &self.taken {
            put(out, &id.to_u64().to_le_bytes());
            put(out, &hops.to_le_bytes());
        }
    }

    fn read(from: &mut Cursor) -> Option<Self> {
        let (epoch, by, upto) = (Epoch(from.u64()?), NodeId(from.u16()?), from.u64()?);
        let is_last = from.flag()?;
        if !from.len().is_multiple_of(10) {
            return None;
        }
        let count = from.len() / 10;
        let taken = (0..count).map(|_| Some((QueueId::from_u64(from.u64()?)?, from.u16()?)));
        Some(Self { epoch, by, upto, is_last, taken: taken.collect::<Option<_>>()? })
    }
}

fn put(out: &mut BytesMut, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}

fn length(of: usize) -> [u8; 4] {
    u32::try_from(of).unwrap_or(u32::MAX).to_le_bytes()
}

/// Reads little-endian numbers from the front of shared octets; `None` when they end.
#[derive(Clone, Debug)]
pub(crate) struct Cursor(pub(crate) Bytes);

impl Cursor {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<Bytes> {
        (count <= self.0.len()).then(|| self.0.split_to(count))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.0.first_chunk()?;
        let _taken = self.0.split_to(N);
        Some(array)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// 0 or 1.
    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Exactly `N` octets.
    pub(crate) fn octets<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.array()
    }
}
