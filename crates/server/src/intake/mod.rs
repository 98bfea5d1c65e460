//! The stop *commit*: a whole transaction goes into the spool, and `250` is said when it is durable.
//!
//! A [`MessageStore`] is where messages go: the spool, or nowhere (`mailrace sink`). A [`Content`] is one message on its way
//! there. Small content is kept in memory until the end; larger content goes to the spool in chunks while it arrives,
//! and no connection holds more than [`RAM_BYTES_MAX`] of it: the piece that the session hands over, the chunk that is
//! filled, and the chunk that is written. A chunk is begun only when the one before is on the disk.
//!
//! A crash, or a client that goes away, at any point before the end leaves chunks that no message names; the spool counts
//! them as dead. A client that goes away after the end may get its message delivered without having seen the `250`
//! (RFC 5321 §6.1).

mod class;
mod report;

pub(crate) use class::{HeaderHints, class_of};
pub(crate) use report::submit_report;

use crate::env::{blocking, clock};
use crate::routing::expansions::MEMBERS_AT_ONCE;
use crate::settle::deadline;
#[cfg(test)]
use crate::simulation::{Sabotage, is_sabotaged};
use bytes::Bytes;
use mail::{Envelope, PastIds, QueueId, QueueIds};
use schedule::Class;
use spool::envelope::Encoded;
use spool::{Chunk, Commit, Error, NewBody, Pressure, Spool, State, Store};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most content of one message that a connection holds in memory.
pub const RAM_BYTES_MAX: usize = 2 * PIECE_BYTES + 2 * CHUNK_BYTES;
/// Content up to this travels inline; beyond, it goes in chunks. A piece that grows past it by what one read brings may hold
/// twice as much, since it grows by doubling.
pub const PIECE_BYTES: usize = 64 << 10;
/// The most that is read from a connection at once, into a buffer that all connections of a thread share.
pub const READ_BYTES: usize = 32 << 10;
/// Room that small content may keep unused in memory.
const SLACK_BYTES: usize = 512;
/// Content in one chunk: as much as leaves the sum within 256 KiB, and with its header a multiple of a block.
const CHUNK_BYTES: usize = 60 << 10;
/// The smallest segment that takes chunks and inline content of these sizes: a frame has a quarter of it at most, and a
/// chunk half of that.
pub const SEGMENT_BYTES_MIN: u32 = 1 << 20;
const _: () = assert!(RAM_BYTES_MAX <= 256 << 10, "docs and the issue of limits promise 256 KiB");

/// Where accepted messages go.
#[derive(Debug)]
pub enum MessageStore {
    /// The durable store.
    Spool {
        /// It.
        spool: Arc<Spool>,
        /// Names for new messages.
        ids: Mutex<QueueIds>,
        /// Names for messages that came before, to another server.
        past: Mutex<PastIds>,
    },
    /// Nowhere: messages are counted and forgotten. What `mailrace sink` is made of.
    Discard {
        /// Names, all the same.
        ids: Mutex<QueueIds>,
        /// Messages.
        messages: AtomicU64,
        /// Octets of content, with trace lines.
        bytes: AtomicU64,
    },
}

impl MessageStore {
    /// Keeps messages in `spool`, which was opened as its `epoch`th time.
    #[must_use]
    pub fn spool(spool: Arc<Spool>, ids: QueueIds, epoch: u64) -> Self {
        Self::Spool { spool, ids: Mutex::new(ids), past: Mutex::new(PastIds::of_epoch(epoch)) }
    }

    /// Keeps nothing.
    #[must_use]
    pub fn discard(ids: QueueIds) -> Self {
        Self::Discard { ids: Mutex::new(ids), messages: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// The name of a new message.
    pub fn next_id(&self) -> QueueId {
        let (Self::Spool { ids, .. } | Self::Discard { ids, .. }) = self;
        ids.lock().unwrap_or_else(PoisonError::into_inner).next(clock::unix_us())
    }

    /// The name of a message that came at `at_us`, in microseconds since 1970, and waited elsewhere until now.
    pub(crate) fn past_id(&self, at_us: u64) -> QueueId {
        let Self::Spool { past, spool, .. } = self else { return self.next_id() };
        let mut past = past.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let id = past.next(at_us, clock::unix_us());
            if spool.states(id).is_empty() {
                return id;
            }
        }
    }

    /// How hard the store is pressed.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        match self {
            Self::Spool { spool, .. } => spool.pressure(),
            Self::Discard { .. } => Pressure::None,
        }
    }

    /// What a spool holds and has done; zeroes for a sink.
    #[must_use]
    pub fn statistics(&self) -> spool::Statistics {
        match self {
            Self::Spool { spool, .. } => spool.statistics(),
            Self::Discard { .. } => spool::Statistics::default(),
        }
    }

    /// Messages and octets forgotten so far; zero for a spool, whose own figures say more.
    #[must_use]
    pub fn forgotten(&self) -> (u64, u64) {
        match self {
            Self::Spool { .. } => (0, 0),
            Self::Discard { messages, bytes, .. } => (messages.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed)),
        }
    }
}

/// The content of one message while it arrives.
#[derive(Debug)]
pub struct Content {
    id: QueueId,
    /// Chunks given to the spool.
    chunks: u32,
    /// Octets in them.
    bytes: u64,
    filling: Option<Chunk>,
    writing: Option<Commit>,
    /// What went wrong; the rest of the content is dropped.
    failed: Option<Error>,
}

impl Content {
    /// Nothing has come yet of the message `id`.
    #[must_use]
    pub const fn new(id: QueueId) -> Self {
        Self { id, chunks: 0, bytes: 0, filling: None, writing: None, failed: None }
    }

    /// The name of the message.
    #[must_use]
    pub const fn id(&self) -> QueueId {
        self.id
    }

    /// Whether all of it will come with [`Self::commit`].
    #[must_use]
    pub const fn is_small(&self) -> bool {
        self.chunks == 0 && self.filling.is_none() && self.failed.is_none()
    }

    /// Takes the next piece of a large message. After a failure it takes all and keeps nothing; [`Self::commit`] tells.
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

    /// Makes the message durable with the `rest` of its content. Its frames are in the spool when this returns `Ok`. All
    /// recipients begin in the state `first`, see [`first_state`].
    ///
    /// # Errors
    /// As [`Store::append`]; nothing of the message will be delivered, except after `Failed`, where a frame that did
    /// reach the disk is declared done by the spool.
    /// # Cancel safety
    /// Not cancel-safe before the transaction was given to the spool; afterwards the message is in it whatever happens
    /// here.
    pub async fn commit(
        mut self,
        message_store: &MessageStore,
        envelope: &Arc<Encoded>,
        rest: Vec<u8>,
        first: State,
    ) -> Result<u64, Error> {
        let spool = match message_store {
            MessageStore::Spool { spool, .. } => Arc::clone(spool),
            MessageStore::Discard { messages, bytes, .. } => {
                let size = self.bytes + rest.len() as u64;
                messages.fetch_add(1, Ordering::Relaxed);
                bytes.fetch_add(size, Ordering::Relaxed);
                return Ok(size);
            }
        };
        let (body, bytes) = if self.is_small() {
            let bytes = rest.len() as u64;
            let mut rest = rest;
            if rest.capacity() > rest.len() + rest.len() / 4 + SLACK_BYTES {
                // It stays in the cache until it is delivered: what it grew by is given back.
                rest.shrink_to_fit();
            }
            (NewBody::Whole(Bytes::from(rest)), bytes)
        } else {
            self.push(message_store, &rest).await;
            drop(rest);
            self.hand_over(&spool);
            self.wait_for_chunk().await;
            (NewBody::Chunks { count: self.chunks, bytes: self.bytes }, self.bytes)
        };
        let result = match self.failed.take() {
            Some(error) => Err(error),
            None => append(&spool, envelope, body, first, false).await,
        };
        if result.is_err() && self.chunks > 0 {
            spool.abort(self.id);
        }
        result.map(|()| bytes)
    }

    /// Forgets what has come: the transaction ended without a message.
    pub fn abandon(self, message_store: &MessageStore) {
        if let MessageStore::Spool { spool, .. } = message_store
            && self.chunks > 0
        {
            spool.abort(self.id);
        }
    }

    /// Gives the chunk that was filled to the spool.
    fn hand_over(&mut self, spool: &Spool) {
        let Some(chunk) = self.filling.take().filter(|_| self.failed.is_none()) else { return };
        let bytes = chunk.len() as u64;
        match spool.append_chunk(self.id, self.chunks, chunk) {
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

/// The state in which the recipients of a new message begin: their class, a mark where the sender gave a time by which it is to be
/// delivered, and that they are due when the message is released, so that a crash forgets none of it.
// RFC 4865 §4.2: it is kept until then
pub(crate) fn first_state(envelope: &Envelope, class: Class) -> State {
    let state = State::default().of_class(class.bits(), deadline::to_come(envelope).is_some());
    match envelope.release_at() {
        // Up to the next second: never too early.
        Some(at) => state.until(at + Duration::from_millis(999)),
        None => state,
    }
}

async fn append(
    spool: &Arc<Spool>,
    encoded: &Arc<Encoded>,
    body: NewBody,
    state: State,
    reserved: bool,
) -> Result<(), Error> {
    let hand_over = move |spool: &Spool, encoded: &Encoded, body: NewBody| {
        let recipients = encoded.recipients();
        spool.append(spool::NewMessage { reserved, state, ..encoded.message(&recipients, body) })
    };
    loop {
        let handed_over = if encoded.len() > MEMBERS_AT_ONCE {
            let (spool, encoded, body) = (Arc::clone(spool), Arc::clone(encoded), body.clone());
            let done = blocking::run(move || hand_over(&spool, &encoded, body)).await;
            // It panicked: nobody knows whether it is in the spool, as after a write that failed.
            done.unwrap_or(Err(Error::Failed))
        } else {
            hand_over(spool, encoded, body.clone())
        };
        match handed_over {
            #[cfg(test)]
            Ok(_) if is_sabotaged(Sabotage::AnswerEarly) => return Ok(()),
            Ok(commit) => return commit.await,
            // The disk is behind: this client waits, and with it the network.
            Err(Error::Busy) => spool.room(encoded.id()).await?,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
pub(crate) mod uncommitted;
