//! Content of one message on its way into the spool.
//!
//! Small content stays in memory until the end. Larger content goes to the spool in chunks while it arrives, and no
//! connection holds more than [`RAM_BYTES_MAX`] of it: the piece that the session passes on, the chunk that is filled,
//! and the chunk that is written. A chunk begins only after the chunk before it is on the disk.
//!
//! A crash, or a client that disconnects, before the end leaves chunks that no message names; the spool counts them as
//! dead.

use super::MessageStore;
use crate::config::SEGMENT_BYTES_MIN;
use bytes::Bytes;
use mail::QueueId;
use spool::{Chunk, Commit, Error, NewBody, Spool, Store as _};

/// The most content of one message that a connection holds in memory.
pub const RAM_BYTES_MAX: usize = 2 * PIECE_BYTES + 2 * CHUNK_BYTES;
/// Content up to this travels inline; larger content goes in chunks. A piece that grows past it by one read may hold
/// twice as much, since it grows by doubling.
pub const PIECE_BYTES: usize = 64 << 10;
/// The most that is read from a connection at once, into a buffer that all connections of a thread share.
pub const READ_BYTES: usize = 32 << 10;
/// Unused room that small content may keep in memory.
const SLACK_BYTES: usize = 512;
/// Content in one chunk: the sum stays within 256 KiB, and a chunk with its header is a multiple of a block.
pub(super) const CHUNK_BYTES: usize = 60 << 10;
const _: () = assert!(RAM_BYTES_MAX <= 256 << 10, "the documentation of limits promises 256 KiB");
// A frame may fill a quarter of a segment, and a chunk half of that.
const _: () = assert!(CHUNK_BYTES * 8 <= SEGMENT_BYTES_MIN as usize);

/// The content of one message while it arrives.
#[derive(Debug)]
pub struct Content {
    /// The first message of the transaction: the chunks of all its messages go to the shard of this one.
    first: QueueId,
    id: QueueId,
    /// Chunks given to the spool.
    chunks: u32,
    /// Octets in them.
    bytes: u64,
    filling: Option<Chunk>,
    writing: Option<Commit>,
    /// The first error; the rest of the content is dropped.
    failed: Option<Error>,
}

impl Content {
    /// Begins the content of message `id`, which is stored in one transaction with message `first` (often the same).
    #[must_use]
    pub const fn new(first: QueueId, id: QueueId) -> Self {
        Self { first, id, chunks: 0, bytes: 0, filling: None, writing: None, failed: None }
    }

    /// The name of the message.
    #[must_use]
    pub const fn id(&self) -> QueueId {
        self.id
    }

    /// Whether all of it will come with [`Self::finish`].
    #[must_use]
    pub const fn is_small(&self) -> bool {
        self.chunks == 0 && self.filling.is_none() && self.failed.is_none()
    }

    /// Takes the next piece of a large message. After a failure it drops all further pieces; [`Self::finish`] returns
    /// the error.
    ///
    /// # Cancel safety
    /// Not cancel-safe: a dropped call may have lost a part of `piece`. Call [`Self::abandon`] then.
    pub async fn push(&mut self, message_store: &MessageStore, piece: &[u8]) {
        let spool = match message_store {
            MessageStore::Spool { spool, .. } => spool,
            MessageStore::Discard { .. } => {
                self.bytes += piece.len() as u64;
                return;
            }
        };
        let mut rest = piece;
        while !rest.is_empty() && self.failed.is_none() {
            let taken = match &mut self.filling {
                Some(chunk) => chunk.push(rest),
                None => {
                    self.wait_for_chunk().await;
                    self.filling = Some(Chunk::new(CHUNK_BYTES));
                    continue;
                }
            };
            rest = rest.get(taken..).unwrap_or_default();
            if !rest.is_empty() {
                self.hand_over(spool);
            }
        }
    }

    /// Ends the content with its `rest`. Large content is in the spool as chunks when this returns; small content stays
    /// in memory.
    ///
    /// # Errors
    /// As [`Spool::append_chunk_of`]; the chunks are forgotten.
    /// # Cancel safety
    /// Not cancel-safe: a dropped call leaves chunks that no message names; the spool counts them as dead.
    pub async fn finish(mut self, message_store: &MessageStore, rest: Bytes) -> Result<FinishedContent, Error> {
        let MessageStore::Spool { spool, .. } = message_store else {
            let bytes = self.bytes + rest.len() as u64;
            return Ok(FinishedContent { first: self.first, id: self.id, body: NewBody::Whole(Bytes::new()), bytes });
        };
        if self.is_small() {
            let bytes = rest.len() as u64;
            return Ok(FinishedContent { first: self.first, id: self.id, body: NewBody::Whole(rest), bytes });
        }
        self.push(message_store, &rest).await;
        drop(rest);
        self.hand_over(spool);
        self.wait_for_chunk().await;
        match self.failed.take() {
            None => {
                let body = NewBody::Chunks { count: self.chunks, bytes: self.bytes };
                Ok(FinishedContent { first: self.first, id: self.id, body, bytes: self.bytes })
            }
            Some(error) => {
                self.abandon(message_store);
                Err(error)
            }
        }
    }

    /// Forgets the chunks in the spool: the transaction ended without a message.
    pub fn abandon(self, message_store: &MessageStore) {
        if let MessageStore::Spool { spool, .. } = message_store
            && self.chunks > 0
        {
            spool.abort(self.id);
        }
    }

    /// Appends the filled chunk to the spool.
    fn hand_over(&mut self, spool: &Spool) {
        let Some(chunk) = self.filling.take().filter(|_| self.failed.is_none()) else { return };
        let bytes = chunk.len() as u64;
        match spool.append_chunk_of(self.first, self.id, self.chunks, chunk) {
            Ok(commit) => {
                self.chunks += 1;
                self.bytes += bytes;
                self.writing = Some(commit);
            }
            Err(error) => self.failed = Some(error),
        }
    }

    async fn wait_for_chunk(&mut self) {
        if let Some(commit) = self.writing.take()
            && let Err(error) = commit.await
        {
            self.failed.get_or_insert(error);
        }
    }
}

/// The whole content of one message, as a store takes it: in memory, or as chunks that are in the spool.
#[derive(Debug)]
pub struct FinishedContent {
    pub(super) first: QueueId,
    id: QueueId,
    pub(super) body: NewBody,
    /// Octets of content.
    pub(super) bytes: u64,
}

impl FinishedContent {
    /// Forgets the chunks in the spool: the message is not stored.
    pub(crate) fn abandon(&self, message_store: &MessageStore) {
        if let (MessageStore::Spool { spool, .. }, NewBody::Chunks { .. }) = (message_store, &self.body) {
            spool.abort(self.id);
        }
    }
}

/// Content that stays in memory until it is delivered, without the room that its buffer grew by.
pub(crate) fn inline(mut content: Vec<u8>) -> Bytes {
    if content.capacity() > content.len() + content.len() / 4 + SLACK_BYTES {
        content.shrink_to_fit();
    }
    Bytes::from(content)
}
