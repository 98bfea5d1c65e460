//! The stop *commit* for messages whose delivery begins before they are durable: `race` and `interactive`.
//!
//! An [`UncommittedMessage`] is in memory, in line for its next hops, and not in the spool. Its sender has no answer
//! yet, and gets one when either every recipient was accepted by a next hop, or the message is durable: no promise
//! rests on memory.
//!
//! - `race` writes the message at once. The server answers 250 when the message is durable or every next hop has it,
//!   whichever is first.
//! - `interactive` writes it when a next hop defers or refuses, cannot be reached, or takes longer than
//!   `delivery.interactive_time`. The server answers 250 when every next hop has it, or when it is durable.
//!
//! Crashes: before the answer the sender keeps the message and sends it again, and a next hop that had accepted it
//! gets it twice. After the answer the message is in the spool or delivered. With `race` the answer may come before
//! the result is recorded: a crash then repeats the delivery, as it may for any result of the last 50 ms.
//!
//! Only a message whose delivery needs no report goes this way: small enough to be in memory, without NOTIFY=SUCCESS,
//! HOLDFOR or BY. All others are durable first.

use super::copies::append;
use super::framed_message::FramedMessage;
use super::header_end::in_memory;
use super::{Enqueue, NewMessage};
use crate::config::Acknowledge;
use crate::context::Context;
use bytes::Bytes;
use mail::report::{Kind, wants};
use mail::{Envelope, QueueId};
use schedule::{Class, Positions};
use spool::envelope::Encoded;
use spool::{Change, Error, Spool, State, Store as _};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify as Bell, oneshot, watch};

/// Content of all early messages together; beyond it messages are durable first.
pub(crate) const EARLY_BYTES_MAX: usize = 64 << 20;

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In memory only, as far as is known.
    InMemory,
    /// In the spool.
    Stored,
    /// Its sender got a refusal, or is gone.
    Gone,
}

#[derive(Debug, Default)]
struct Progress {
    /// Recipients that a next hop has accepted, each with the change to record.
    taken: BTreeMap<u32, Change>,
    /// Another recipient needs the message in the spool.
    is_wanted: bool,
}

/// A message that may be delivered before it is durable.
#[derive(Debug)]
pub(crate) struct UncommittedMessage {
    /// The envelope without recipients.
    head: Envelope,
    recipients: Vec<mail::Recipient>,
    content: Bytes,
    /// The state in which its recipients begin.
    first: State,
    progress: Mutex<Progress>,
    /// `progress` has changed.
    bell: Bell,
    stage: watch::Sender<Stage>,
}

/// A message that is in memory alone, with some of its recipients.
#[derive(Debug)]
pub(crate) struct UncommittedPart {
    /// With these recipients.
    pub(crate) envelope: Envelope,
    /// Their positions in the message, and their states.
    pub(crate) positions: Vec<(u32, State)>,
    /// Recipients of the message that no next hop has taken.
    pub(crate) recipients_left: usize,
    pub(crate) content: Bytes,
}

impl UncommittedMessage {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether every recipient was taken by a next hop.
    fn is_taken(&self) -> bool {
        self.progress().taken.len() >= self.recipients.len()
    }

    /// Returns the message with those of the recipients that no next hop has taken; `None` if all have been taken.
    pub(crate) fn left(&self, recipients: &Positions) -> Option<UncommittedPart> {
        let progress = self.progress();
        let mut envelope = self.head.clone();
        let mut positions = Vec::new();
        for position in recipients.iter().filter(|position| !progress.taken.contains_key(position)) {
            let at = usize::try_from(position).ok().and_then(|at| self.recipients.get(at));
            if let Some(recipient) = at {
                envelope.recipients.push(recipient.clone());
                positions.push((position, self.first));
            }
        }
        if positions.is_empty() {
            return None;
        }
        let recipients_left = self.recipients.len() - progress.taken.len();
        Some(UncommittedPart { envelope, positions, recipients_left, content: self.content.clone() })
    }

    /// Keeps deliveries until the message is stored. False: it is stored, and the caller records these in the spool.
    pub(crate) fn absorb(&self, changes: &[Change]) -> bool {
        let mut progress = self.progress();
        if *self.stage.borrow() == Stage::Stored {
            return false;
        }
        progress.taken.extend(changes.iter().map(|change| (change.recipient, change.clone())));
        drop(progress);
        self.bell.notify_one();
        true
    }

    /// Has the message stored, and waits until it is. False: it will not be, since its sender keeps it.
    ///
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn store(&self) -> bool {
        self.want();
        let mut stage = self.stage.subscribe();
        let reached = stage.wait_for(|stage| *stage != Stage::InMemory).await;
        reached.is_ok_and(|stage| *stage == Stage::Stored)
    }

    /// Asks for the message to be stored, as part of it waits for longer than a sender can.
    pub(crate) fn want(&self) {
        self.progress().is_wanted = true;
        self.bell.notify_one();
    }

    /// Resolves with true when a next hop has accepted every recipient; with false when the message is wanted in the
    /// spool.
    async fn outcome(&self, minds_wish: bool) -> bool {
        loop {
            {
                let progress = self.progress();
                if progress.taken.len() >= self.recipients.len() {
                    return true;
                }
                if minds_wish && progress.is_wanted {
                    return false;
                }
            }
            // The bell keeps a permit for a task that waits after it was rung.
            self.bell.notified().await;
        }
    }
}

/// All messages that are early now.
#[derive(Debug, Default)]
pub(crate) struct UncommittedMessages {
    messages: Mutex<HashMap<QueueId, Arc<UncommittedMessage>>>,
    /// Octets of content.
    bytes: AtomicUsize,
}

impl UncommittedMessages {
    fn messages(&self) -> MutexGuard<'_, HashMap<QueueId, Arc<UncommittedMessage>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the message, if it is early.
    pub(crate) fn get(&self, id: QueueId) -> Option<Arc<UncommittedMessage>> {
        // Without messages in these modes the lock is not taken.
        if self.bytes.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.messages().get(&id).cloned()
    }

    /// Takes a message in; `None` if there is no room for its content.
    fn begin(&self, envelope: &Envelope, content: &Bytes, first: State) -> Option<Arc<UncommittedMessage>> {
        let bytes = content.len().max(1);
        if self.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes > EARLY_BYTES_MAX {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            return None;
        }
        let early = Arc::new(UncommittedMessage {
            head: Envelope { recipients: Vec::new(), ..envelope.clone() },
            recipients: envelope.recipients.clone(),
            content: content.clone(),
            first,
            progress: Mutex::default(),
            bell: Bell::new(),
            stage: watch::Sender::new(Stage::InMemory),
        });
        self.messages().insert(envelope.id, Arc::clone(&early));
        Some(early)
    }

    /// Ends the early state: the message is in the spool, or never will be; results go to the spool from now on.
    fn end(&self, early: &UncommittedMessage, stored: Option<&Spool>) {
        let progress = early.progress();
        if let Some(spool) = stored {
            let taken: Vec<Change> = progress.taken.values().cloned().collect();
            if !taken.is_empty() {
                // If the deliveries cannot be recorded they are repeated, as after a crash.
                drop(spool.record(&taken));
            }
        }
        early.stage.send_replace(if stored.is_some() { Stage::Stored } else { Stage::Gone });
        drop(progress);
        if self.messages().remove(&early.head.id).is_some() {
            self.bytes.fetch_sub(early.content.len().max(1), Ordering::AcqRel);
        }
    }
}

/// Ends an early message that is not being stored.
struct UncommittedGuard {
    queue: Arc<dyn Enqueue>,
    early: Arc<UncommittedMessage>,
    is_ended: bool,
}

impl UncommittedGuard {
    fn end(&mut self, stored: Option<&Spool>) {
        self.is_ended = true;
        self.queue.uncommitted().end(&self.early, stored);
    }
}

impl Drop for UncommittedGuard {
    fn drop(&mut self) {
        if !self.is_ended {
            self.end(None);
        }
    }
}

/// A message as it is committed.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) envelope: Envelope,
    pub(crate) encoded: Arc<Encoded>,
    /// Up to [`super::PIECE_BYTES`].
    pub(crate) content: Bytes,
    pub(crate) class: Class,
}

/// Returns whether a message may be delivered before it is durable.
pub(crate) fn may_be_early(envelope: &Envelope) -> bool {
    let is_plain = |one: &mail::Recipient| !wants(one.params.notify, Kind::Relayed);
    envelope.params.hold.is_none() && envelope.params.by.is_none() && envelope.recipients.iter().all(is_plain)
}

/// Delivers a message and stores it, in the mode `how`; `Ok` when it may be acknowledged.
///
/// Recipients without a delivery are in line already: the caller reports nothing to *dispatch*.
///
/// # Errors
/// As [`spool::Store::append`]; some recipients may have got the message, and the sender sends it again.
/// # Cancel safety
/// A message that is being written gets into the spool; before, nothing of it stays.
pub(crate) async fn commit(
    context: &Arc<Context>,
    queue: Option<&Arc<dyn Enqueue>>,
    how: Acknowledge,
    message: Message,
) -> Result<u64, Error> {
    let Message { envelope, encoded, content, class } = message;
    let (bytes, first) = (content.len() as u64, super::first_state(&envelope, class));
    let (Some(queue), Some(spool)) = (queue, context.spool().cloned()) else { return Ok(bytes) };
    let Some(early) = queue.uncommitted().begin(&envelope, &content, first) else {
        let body = in_memory(content, spool.header_bytes_max());
        append(&context.message_store, &[FramedMessage::alone(&encoded, body, first)]).await?;
        if !context.live.load().queues_only() {
            let kind = crate::routing::message_properties::MessageProperties::default();
            let message = NewMessage {
                envelope: Arc::new(envelope),
                encoded,
                first,
                kind,
                class,
                held: None,
                is_partly_held: false,
                accepts_local: false,
            };
            queue.enqueue(&message, bytes, class);
        }
        return Ok(bytes);
    };
    let mut guard = UncommittedGuard { queue: Arc::clone(queue), early: Arc::clone(&early), is_ended: false };
    if !queue.enqueue_uncommitted(&envelope, &encoded, class) {
        early.want();
    }
    if how == Acknowledge::Interactive {
        let patience = context.live.load().config.delivery.interactive_time;
        if tokio::time::timeout(patience, early.outcome(true)).await == Ok(true) {
            return Ok(bytes);
        }
    }
    // The writer is a task of its own: its message is in the spool whether or not the session lives on.
    let (tell, mut written) = oneshot::channel();
    let context = Arc::clone(context);
    queue.spawn(Box::pin(async move {
        let body = in_memory(content, spool.header_bytes_max());
        let stored = append(&context.message_store, &[FramedMessage::alone(&encoded, body, first)]).await;
        let mut deferred = Vec::new();
        if stored.is_ok() {
            // Before the message counts as stored: recipients that a next hop defers meanwhile are still in progress,
            // and do not get a second job.
            let is_left = |position: u32| !guard.early.progress().taken.contains_key(&position);
            deferred = guard.queue.enqueue_rest(&envelope, &encoded, class, &is_left);
        }
        guard.end(stored.is_ok().then_some(&*spool));
        guard.queue.log_down(&envelope, bytes, &deferred);
        // The session may have its answer, or be gone.
        drop(tell.send(stored));
    }));
    tokio::select! {
        biased;
        // At the end of the server no task may write it any more: then the sender keeps it.
        stored = &mut written => match stored.unwrap_or(Err(Error::Failed)) {
            Err(_) if early.is_taken() => {}
            stored => stored?,
        },
        is_taken = early.outcome(false) => debug_assert!(is_taken, "only that is waited for"),
    }
    Ok(bytes)
}
