//! The body of one message on its way into the spool.
//!
//! Small content stays in memory until the end. The body of larger content goes to the spool in chunks while it
//! arrives, and no connection holds more than [`RAM_BYTES_MAX`] of it: the piece that the session passes on, the chunk
//! that is filled, and the chunk that is written. A chunk begins only after the chunk before it is on the disk. The
//! header section, which stays in memory, is the concern of [`super::TransactionContent`].
//!
//! A crash, or a client that disconnects, before the end leaves chunks that no message names; the spool counts them as
//! dead.

use super::copies;
use super::header_end::in_memory;
use crate::config::SEGMENT_BYTES_MIN;
use crate::message_store::MessageStore;
use bytes::Bytes;
use mail::QueueId;
use mail::header::{HeaderSection, LineEnd};
use spool::{Chunk, Commit, Error, NewBody, Store as _};

/// The most of the body of one message that a connection holds in memory.
pub const RAM_BYTES_MAX: usize = 2 * PIECE_BYTES + 2 * CHUNK_BYTES;
/// Content up to this travels inline; larger content goes in chunks. A piece that grows past it by one read may hold
/// twice as much, since it grows by doubling.
pub const PIECE_BYTES: usize = 64 << 10;
/// Unused room that small content may keep in memory.
const SLACK_BYTES: usize = 512;
/// Content in one chunk: the sum stays within 256 KiB, and a chunk with its header is a multiple of a block.
pub(super) const CHUNK_BYTES: usize = 60 << 10;
const _: () =
    assert!(RAM_BYTES_MAX <= 256 << 10, "the documentation of limits promises 256 KiB beside the header section");
// A frame may fill a quarter of a segment, and a chunk half of that.
const _: () = assert!(CHUNK_BYTES * 8 <= SEGMENT_BYTES_MIN as usize);

/// The body of one message while it arrives.
#[derive(Debug)]
pub(super) struct ArrivingBody {
    /// The first message of the transaction: the chunks of all its messages go to the shard of this one.
    first: QueueId,
    id: QueueId,
    /// Chunks given to the spool.
    chunks: u32,
    /// Octets of body that were taken.
    bytes: u64,
    filling: Option<Chunk>,
    writing: Option<Commit>,
    /// The first error; the rest of the content is dropped.
    failed: Option<Error>,
}

impl ArrivingBody {
    /// Begins the body of message `id`, which is stored in one transaction with message `first` (often the same).
    pub(super) const fn new(first: QueueId, id: QueueId) -> Self {
        Self { first, id, chunks: 0, bytes: 0, filling: None, writing: None, failed: None }
    }

    /// The name of the message.
    pub(super) const fn id(&self) -> QueueId {
        self.id
    }

    /// Takes the next piece of the body of a large message. After a failure it drops all further pieces;
    /// [`Self::finish`] returns the error.
    ///
    /// # Cancel safety
    /// Not cancel-safe: a dropped call may have lost a part of `piece`. Call [`Self::abandon`] then.
    pub(super) async fn push(&mut self, message_store: &MessageStore, piece: &[u8]) {
        if let MessageStore::Discard { .. } = message_store {
            self.bytes += piece.len() as u64;
            return;
        }
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
                self.hand_over(message_store);
            }
        }
    }

    /// Ends small content, none of which has come before.
    pub(super) fn finish_small(self, body: NewBody) -> FinishedContent {
        let bytes = match &body {
            NewBody::Whole { content, .. } => content.len() as u64,
            NewBody::Chunks { header, bytes, .. } => header.len() as u64 + bytes,
        };
        FinishedContent { first: self.first, id: self.id, body, bytes }
    }

    /// Ends large content whose body has come. Its chunks are in the spool when this returns.
    ///
    /// # Errors
    /// As [`Spool::append_chunk_of`]; the chunks are forgotten.
    /// # Cancel safety
    /// Not cancel-safe: a dropped call leaves chunks that no message names; the spool counts them as dead.
    pub(super) async fn finish(
        mut self,
        message_store: &MessageStore,
        header: Bytes,
    ) -> Result<FinishedContent, Error> {
        self.hand_over(message_store);
        self.wait_for_chunk().await;
        if let Some(error) = self.failed.take() {
            self.abandon(message_store);
            return Err(error);
        }
        let bytes = header.len() as u64 + self.bytes;
        let header_bytes = u32::try_from(header.len()).unwrap_or(u32::MAX);
        let body = match self.chunks {
            0 => NewBody::whole(header, header_bytes),
            count => NewBody::Chunks { header, count, bytes: self.bytes },
        };
        Ok(FinishedContent { first: self.first, id: self.id, body, bytes })
    }

    /// Forgets the body that has come: another comes in its place. An error so far stays.
    pub(super) async fn begin_again(&mut self, message_store: &MessageStore) {
        // The spool takes no chunk of the same name while one is on its way to the disk.
        self.wait_for_chunk().await;
        if let MessageStore::Spool { spool, .. } = message_store
            && self.chunks > 0
        {
            spool.abort(self.id);
            copies::abort(message_store, self.id);
        }
        (self.chunks, self.bytes, self.filling) = (0, 0, None);
    }

    /// Forgets the chunks in the spool: the transaction ended without a message.
    pub(super) fn abandon(self, message_store: &MessageStore) {
        if let MessageStore::Spool { spool, .. } = message_store
            && self.chunks > 0
        {
            spool.abort(self.id);
            copies::abort(message_store, self.id);
        }
    }

    /// Appends the filled chunk to the spool, and sends it to the holder of a copy.
    fn hand_over(&mut self, message_store: &MessageStore) {
        let Some(chunk) = self.filling.take().filter(|_| self.failed.is_none()) else { return };
        let MessageStore::Spool { spool, .. } = message_store else { return };
        copies::stream(message_store, self.id, chunk.data());
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
    /// Replaces the fields of the header section by what `edit` makes of them. The body stays as it is.
    pub(crate) fn edit_header(&mut self, message_store: &MessageStore, edit: impl FnOnce(&[u8]) -> Vec<u8>) {
        let (header, body) = match &self.body {
            NewBody::Whole { content, body_offset } => {
                let (header, body) = content.split_at(content.len().min(*body_offset as usize));
                (header, Some(body))
            }
            NewBody::Chunks { header, .. } => (&**header, None),
        };
        let fields = HeaderSection::read(header, LineEnd::Crlf).as_bytes().len();
        let mut edited = edit(header.get(..fields).unwrap_or(header));
        edited.extend_from_slice(header.get(fields..).unwrap_or_default());
        self.bytes = self.bytes - header.len() as u64 + edited.len() as u64;
        self.body = match (body, &self.body) {
            (Some(body), _) => {
                edited.extend_from_slice(body);
                in_memory(edited.into(), message_store.header_bytes_max())
            }
            (None, NewBody::Chunks { count, bytes, .. }) => {
                NewBody::Chunks { header: edited.into(), count: *count, bytes: *bytes }
            }
            (None, whole @ NewBody::Whole { .. }) => whole.clone(),
        };
    }

    /// Forgets the chunks in the spool: the message is not stored.
    pub(crate) fn abandon(&self, message_store: &MessageStore) {
        if let (MessageStore::Spool { spool, .. }, NewBody::Chunks { .. }) = (message_store, &self.body) {
            spool.abort(self.id);
            copies::abort(message_store, self.id);
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
