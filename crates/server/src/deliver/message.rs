//! A message as a connection sends it: the envelope with the recipients that are due, and the content piece by piece.
//!
//! A fresh message comes from the spool's memory and touches no disk. An older one is read by the threads that may wait:
//! the envelope at once, the content in pieces of [`PIECE_BYTES`] when the session asks for them, so that a connection
//! never holds more than a few of those.

use crate::dispatch::Dispatch;
use crate::env::blocking;
use bytes::Bytes;
use mail::{Envelope, QueueId};
use schedule::Positions;
use spool::envelope::{decode_head, decode_recipient};
use spool::{Recent, Spool, State, Status, Store as _, StoredEnvelope};
use std::collections::VecDeque;
use std::sync::Arc;

/// How much of a stored content is read at once.
const PIECE_BYTES: u64 = 256 << 10;
/// Content up to this is held whole by its connection. Larger one is asked for piece by piece, and may leave memory before
/// its last piece is sent.
const HELD_BYTES_MAX: u64 = 256 << 10;

/// A message on a connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// With the recipients of this transaction, in the order of `positions`.
    pub(crate) envelope: Envelope,
    /// Where each recipient stands in the message, and its state.
    pub(crate) positions: Vec<(u32, State)>,
    /// Recipients of the message that are not done, here and elsewhere.
    pub(crate) recipients_left: usize,
    /// Octets of the content.
    pub(crate) content_bytes: u64,
    /// The content, or where it is read.
    pub(crate) content: Content,
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

/// Why a message is not sent now.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// No recipient of the job is waiting any more: held, deleted, or done.
    Nothing,
    /// The spool cannot read it.
    Unreadable(String),
}

impl Outgoing {
    /// Loads the message of a job.
    ///
    /// # Errors
    /// Nothing is left to do for it, or the spool cannot read it.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn load(dispatch: &Dispatch, id: QueueId, recipients: &Positions) -> Result<Self, Unfit> {
        if let Some(early) = dispatch.early.get(id) {
            return early.outgoing(recipients);
        }
        let spool = &dispatch.spool;
        if let Some(Recent { envelope, recipients_left, body }) = spool.recent(id, recipients.iter()) {
            let is_small = envelope.body_bytes <= HELD_BYTES_MAX;
            let content = if is_small { Content::Here(body.into()) } else { Content::Stored { read: 0 } };
            return Self::assemble(id, &envelope, recipients_left, recipients, content);
        }
        let store = Arc::clone(spool);
        let stored = blocking::run(move || store.envelope(id)).await;
        match stored {
            Ok(Ok(stored)) => {
                Self::assemble(id, &stored, stored.recipients.len(), recipients, Content::Stored { read: 0 })
            }
            Ok(Err(spool::Error::Unknown(_))) => Err(Unfit::Nothing),
            Ok(Err(error)) => Err(Unfit::Unreadable(error.to_string())),
            Err(_) => Err(Unfit::Unreadable("the reading thread broke off".to_owned())),
        }
    }

    /// A message that is in memory only.
    pub(crate) fn early(
        envelope: Envelope,
        positions: Vec<(u32, State)>,
        recipients_left: usize,
        content: Bytes,
    ) -> Self {
        let content_bytes = content.len() as u64;
        Self { envelope, positions, recipients_left, content_bytes, content: Content::Here(VecDeque::from([content])) }
    }

    fn assemble(
        id: QueueId,
        stored: &StoredEnvelope,
        recipients_left: usize,
        recipients: &Positions,
        content: Content,
    ) -> Result<Self, Unfit> {
        let unreadable = |error: spool::envelope::EnvelopeError| Unfit::Unreadable(error.to_string());
        let mut envelope = decode_head(id, &stored.head).map_err(unreadable)?;
        let mut positions = Vec::new();
        // Both are in the order of positions: one pass.
        let mut rest = stored.recipients.iter().peekable();
        for wanted in recipients.iter() {
            while rest.next_if(|one| one.position < wanted).is_some() {}
            let Some(found) = rest.next_if(|one| one.position == wanted) else { continue };
            if found.state.status == Status::Waiting {
                envelope.recipients.push(decode_recipient(&found.data).map_err(unreadable)?);
                positions.push((wanted, found.state));
            }
        }
        if positions.is_empty() {
            return Err(Unfit::Nothing);
        }
        Ok(Self { envelope, positions, recipients_left, content_bytes: stored.body_bytes, content })
    }

    /// The next piece of the content; `None` behind its end.
    ///
    /// # Errors
    /// The spool cannot read it.
    /// # Cancel safety
    /// No: a piece may be lost.
    pub(crate) async fn next_piece(&mut self, spool: &Arc<Spool>) -> Result<Option<Bytes>, String> {
        let read = match &mut self.content {
            Content::Here(pieces) => return Ok(pieces.pop_front()),
            Content::Stored { read } => read,
        };
        let (id, start) = (self.envelope.id, *read);
        if start >= self.content_bytes {
            return Ok(None);
        }
        let end = (start + PIECE_BYTES).min(self.content_bytes);
        let piece = read_range(spool, id, start, end).await?;
        if piece.is_empty() {
            return Err(format!("its content ends at octet {start} of {}", self.content_bytes));
        }
        *read = start + piece.len() as u64;
        Ok(Some(piece))
    }

    /// Whether the content is known to need no 8BITMIME.
    pub(crate) fn is_plain(&self) -> bool {
        match &self.content {
            Content::Here(pieces) => pieces.iter().all(|piece| piece.is_ascii()),
            Content::Stored { .. } => self.content_bytes == 0,
        }
    }

    /// A part of the content.
    ///
    /// # Errors
    /// The spool cannot read it.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn part(spool: &Arc<Spool>, id: QueueId, start: u64, end: u64) -> Result<Bytes, String> {
        read_range(spool, id, start, end).await
    }

    /// The whole content, which may be large; for conversions and reports.
    ///
    /// # Errors
    /// The spool cannot read it.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn whole(spool: &Arc<Spool>, id: QueueId) -> Result<Vec<u8>, String> {
        let store = Arc::clone(spool);
        let read = blocking::run(move || store.body(id)).await;
        match read {
            Ok(Ok(parts)) => Ok(parts.concat()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the reading thread broke off".to_owned()),
        }
    }
}

async fn read_range(spool: &Arc<Spool>, id: QueueId, start: u64, end: u64) -> Result<Bytes, String> {
    let store = Arc::clone(spool);
    match blocking::run(move || store.body_range(id, start..end)).await {
        Ok(Ok(piece)) => Ok(piece),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the reading thread broke off".to_owned()),
    }
}
