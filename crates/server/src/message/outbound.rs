//! A message as a connection sends it: the envelope with the recipients that are due, and the content piece by piece.
//!
//! A fresh message comes from the spool's memory and touches no disk. An older one is read when it is its turn, once
//! for all that want it ([`Reading`]): the recipients at once, the content in pieces of [`PIECE_BYTES`] when the
//! session asks for them, so that a connection never holds more than a few of those.

use super::reader::MessageReader;
use super::reading::{ReadError, Reading};
use crate::intake::uncommitted::UncommittedPart;
use bytes::Bytes;
use mail::long_line::LineWatch;
use mail::{Envelope, QueueId};
use schedule::Positions;
use spool::envelope::{decode_head, decode_recipient};
use spool::{Part, Recent, State, Status, Store as _, StoredEnvelope};
use std::borrow::Cow;
use std::collections::VecDeque;

/// Octets of a stored content that are read at once.
const PIECE_BYTES: u64 = 256 << 10;
/// A connection holds content up to this size whole. It reads larger content piece by piece, which may leave memory
/// before its last piece is sent.
const HELD_BYTES_MAX: u64 = 256 << 10;
/// Content up to this size that was read before it is sent stays with the connection until then.
const KEPT_BYTES_MAX: u64 = 64 << 10;

/// A message on a connection.
#[derive(Debug)]
pub(crate) struct OutboundMessage {
    /// With the recipients of this transaction, in the order of `positions`.
    pub(crate) envelope: Envelope,
    /// Position of each recipient in the message, and its state.
    pub(crate) positions: Vec<(u32, State)>,
    /// Recipients of the message that are not done, here and elsewhere.
    pub(crate) recipients_left: usize,
    /// Octets of the content.
    pub(crate) content_bytes: u64,
    /// The content, or where it is read.
    pub(crate) content: Content,
    /// Signature fields that are sent before the content.
    pub(crate) signature: Option<Bytes>,
}

/// Where the content comes from.
#[derive(Debug)]
pub(crate) enum Content {
    /// From memory, piece by piece.
    Here(VecDeque<Bytes>),
    /// From the spool, from this octet on.
    Stored {
        /// How much was read.
        read: u64,
    },
}

/// The form of a content that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentForm {
    /// As it is stored.
    Stored,
    /// Converted for one next hop.
    Converted,
}

/// Why a message is not sent now.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// No recipient of the job is waiting any more: held, deleted, or done.
    Nothing,
    /// It could not be read.
    Unread(ReadError),
}

impl OutboundMessage {
    /// Loads the message of a job, with those of its recipients that wait and are not being bounced.
    ///
    /// # Errors
    /// Nothing is left to do for it, or the spool cannot read it.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn load(messages: &MessageReader, id: QueueId, recipients: &Positions) -> Result<Self, LoadError> {
        let is_meant = |status| status == Status::Waiting;
        match messages.reservations.unreserved(id, recipients) {
            Cow::Borrowed(_) => Self::load_those(messages, id, recipients, &is_meant).await,
            Cow::Owned(open) if open.is_empty() => Err(LoadError::Nothing),
            Cow::Owned(open) => Self::load_those(messages, id, &Positions::from(open.as_slice()), &is_meant).await,
        }
    }

    /// Loads the message for the holder of a reservation, with recipients that are held too.
    ///
    /// # Errors
    /// As [`Self::load`].
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn load_claimed(
        messages: &MessageReader,
        id: QueueId,
        recipients: &[u32],
    ) -> Result<Self, LoadError> {
        let is_meant = |status| matches!(status, Status::Waiting | Status::Held);
        Self::load_those(messages, id, &Positions::from(recipients), &is_meant).await
    }

    /// Loads the message to report the recipients, also with those that are delivered and whose report is owed.
    ///
    /// # Errors
    /// As [`Self::load`].
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn load_to_tell(
        messages: &MessageReader,
        id: QueueId,
        recipients: &Positions,
    ) -> Result<Self, LoadError> {
        Self::load_those(messages, id, recipients, &|status| matches!(status, Status::Waiting | Status::Owed)).await
    }

    async fn load_those(
        messages: &MessageReader,
        id: QueueId,
        recipients: &Positions,
        is_meant: &(dyn Fn(Status) -> bool + Sync),
    ) -> Result<Self, LoadError> {
        if let Some(early) = messages.early.get(id) {
            return early.left(recipients).map(Self::in_memory).ok_or(LoadError::Nothing);
        }
        if let Some(Recent { envelope, recipients_left, body }) = messages.spool.recent(id, recipients.iter()) {
            let is_small = envelope.body_bytes <= HELD_BYTES_MAX;
            let content = if is_small { Content::Here(body.into()) } else { Content::Stored { read: 0 } };
            return Self::assemble(id, &envelope, recipients_left, recipients, is_meant, content);
        }
        match messages.reading.part(id, recipients).await {
            Ok(Part { envelope, recipients_left }) => {
                Self::assemble(id, &envelope, recipients_left, recipients, is_meant, Content::Stored { read: 0 })
            }
            Err(ReadError::Gone) => Err(LoadError::Nothing),
            Err(why) => Err(LoadError::Unread(why)),
        }
    }

    /// Makes a message that is in memory only.
    fn in_memory(part: UncommittedPart) -> Self {
        let UncommittedPart { envelope, positions, recipients_left, content } = part;
        let content_bytes = content.len() as u64;
        let content = Content::Here(VecDeque::from([content]));
        Self { envelope, positions, recipients_left, content_bytes, content, signature: None }
    }

    fn assemble(
        id: QueueId,
        stored: &StoredEnvelope,
        recipients_left: usize,
        recipients: &Positions,
        is_meant: &(dyn Fn(Status) -> bool + Sync),
        content: Content,
    ) -> Result<Self, LoadError> {
        let unreadable = |error: spool::envelope::EnvelopeError| LoadError::Unread(ReadError::Bad(error.to_string()));
        let mut envelope = decode_head(id, &stored.head).map_err(unreadable)?;
        let mut positions = Vec::new();
        // Both are in the order of positions, so one pass is enough.
        let mut rest = stored.recipients.iter().peekable();
        for wanted in recipients.iter() {
            while rest.next_if(|one| one.position < wanted).is_some() {}
            let Some(found) = rest.next_if(|one| one.position == wanted) else { continue };
            if is_meant(found.state.status) {
                envelope.recipients.push(decode_recipient(&found.data).map_err(unreadable)?);
                positions.push((wanted, found.state));
            }
        }
        if positions.is_empty() {
            return Err(LoadError::Nothing);
        }
        Ok(Self { envelope, positions, recipients_left, content_bytes: stored.body_bytes, content, signature: None })
    }

    /// Returns the octets that are sent: signature fields and content. Before the first piece.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.signature.as_ref().map_or(0, |fields| fields.len() as u64) + self.content_bytes
    }

    /// Leaves recipients out.
    pub(crate) fn retain(&mut self, keeps: impl Fn(u32, State) -> bool) {
        let kept: Vec<bool> = self.positions.iter().map(|(position, state)| keeps(*position, *state)).collect();
        let mut these = kept.iter();
        self.envelope.recipients.retain(|_| these.next() == Some(&true));
        let mut these = kept.iter();
        self.positions.retain(|_| these.next() == Some(&true));
    }

    /// Returns the next piece of signature fields and content; `None` behind the end.
    ///
    /// # Errors
    /// The spool cannot read it.
    /// # Cancel safety
    /// No: a piece may be lost.
    pub(crate) async fn next_piece(&mut self, reading: &Reading) -> Result<Option<Bytes>, ReadError> {
        if let Some(signature) = self.signature.take() {
            return Ok(Some(signature));
        }
        let read = match &mut self.content {
            Content::Here(pieces) => return Ok(pieces.pop_front()),
            Content::Stored { read } => read,
        };
        let (id, start) = (self.envelope.id, *read);
        if start >= self.content_bytes {
            return Ok(None);
        }
        let end = (start + PIECE_BYTES).min(self.content_bytes);
        let piece = Self::part(reading, id, start, end).await?;
        if piece.is_empty() {
            return Err(ReadError::Bad(format!("its content ends at octet {start} of {}", self.content_bytes)));
        }
        *read = start + piece.len() as u64;
        Ok(Some(piece))
    }

    /// Returns whether the content has a line of more than `max` octets.
    ///
    /// Stored content is looked through once for all connections that send the message. A small one stays here, so
    /// that it is not read again to be sent.
    ///
    /// # Errors
    /// The spool cannot read it.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn has_long_line(&mut self, messages: &MessageReader, max: usize) -> Result<bool, ReadError> {
        let mut watch = LineWatch::new(max);
        if let Content::Here(pieces) = &self.content {
            return Ok(pieces.iter().any(|piece| watch.finds(piece)) || watch.ends_over());
        }
        let (id, end) = (self.envelope.id, self.content_bytes);
        if let Some(known) = messages.line_checks.get(id, max) {
            return Ok(known);
        }
        let (mut at, mut has_long_line) = (0, false);
        while at < end && !has_long_line {
            let next = (at + PIECE_BYTES).min(end);
            let piece = Self::part(&messages.reading, id, at, next).await?;
            has_long_line = watch.finds(&piece);
            at = next;
            if end <= KEPT_BYTES_MAX && piece.len() as u64 == end {
                self.content = Content::Here(VecDeque::from([piece]));
            }
        }
        let has_long_line = has_long_line || watch.ends_over();
        messages.line_checks.remember(id, max, has_long_line);
        Ok(has_long_line)
    }

    /// Returns whether the content is known to need no 8BITMIME.
    pub(crate) fn is_plain(&self) -> bool {
        match &self.content {
            Content::Here(pieces) => pieces.iter().all(|piece| piece.is_ascii()),
            Content::Stored { .. } => self.content_bytes == 0,
        }
    }

    /// Returns a part of the content.
    ///
    /// # Errors
    /// The spool cannot read it.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn part(reading: &Reading, id: QueueId, start: u64, end: u64) -> Result<Bytes, ReadError> {
        reading.content(id, start..end).await
    }

    /// Returns the whole content, which may be large; for conversions and reports.
    ///
    /// # Errors
    /// The spool cannot read it.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn whole(reading: &Reading, id: QueueId) -> Result<Vec<u8>, ReadError> {
        reading.read(move |spool| spool.body(id)).await.map(|parts| parts.concat())
    }
}
