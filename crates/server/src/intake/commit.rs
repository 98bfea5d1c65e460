//! Stores the messages of one transaction, all or none, and enqueues them.
//!
//! The messages go into the spool in one batch with one sync ([`Spool::append_all`]): a crash leaves all of them or
//! none.
//!
//! A batch has the size limit of one message. The messages of a larger transaction (lists with hundreds of thousands
//! of members and several owners) are stored one after another, the message with the queue id of the transaction
//! last: where it is, all are, and the pickup directory relies on that after a crash. If one of them cannot be
//! stored, those before it are declared done, and no recipient gets them. Only then a crash between two messages
//! leaves some of them; the client, which has no answer, sends the transaction again.

use super::Enqueue;
use super::content::FinishedContent;
use super::copies::append;
use super::framed_message::{FramedMessage, withdrawal};
use super::new_message::{NewMessage, Origin, report_waiting};
use super::rule_holds::{release_others, set_rule_holds};
use crate::context::Context;
use crate::message_store::MessageStore;
use crate::routing::expansions::MEMBERS_AT_ONCE;
use crate::sabotage::{Sabotage, is_sabotaged};
use observe::{Event, Severity};
use os::blocking;
use spool::{Change, Error, Store as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The durable messages of a transaction.
#[derive(Debug)]
#[must_use = "without enqueue the messages wait for the next start"]
pub(crate) struct StoredTransaction {
    origin: Origin,
    messages: Vec<NewMessage>,
    /// Octets of content of each message.
    bytes: u64,
}

impl StoredTransaction {
    /// Returns the messages, the one with the name of the transaction first.
    pub(crate) fn messages(&self) -> &[NewMessage] {
        &self.messages
    }

    /// Puts each message that is due in line of `queue`, and logs those that wait. A sink has no queue.
    ///
    /// `octets`: of the content that the client sent, for the priority in the log.
    ///
    /// # Cancel safety
    /// Not cancel-safe: a message that is not in line is after the next start.
    pub(crate) async fn enqueue(self, context: &Arc<Context>, queue: Option<&Arc<dyn Enqueue>>, octets: u64) {
        let Self { origin, messages, bytes } = self;
        let (context, queue) = (Arc::clone(context), queue.cloned());
        run_where_it_fits(messages, move |messages| {
            for message in messages {
                if origin != Origin::Report {
                    log_waiting(&context, message, octets);
                }
                if let Some(queue) = &queue {
                    enqueue_stored(&context, queue.as_ref(), message, bytes);
                }
            }
        })
        .await;
    }
}

/// Makes all messages of a transaction durable, or none. Each has its finished content.
///
/// # Errors
/// As [`Spool::append_all`]. No message of the transaction will be delivered, except where the spool fails so hard that
/// it takes no change either; that is logged.
/// # Cancel safety
/// Not cancel-safe: a dropped call may leave the messages in the spool.
pub(crate) async fn commit(
    context: &Arc<Context>,
    origin: Origin,
    messages: Vec<(NewMessage, FinishedContent)>,
) -> Result<StoredTransaction, Error> {
    // Held until the messages are in the spool: a suspension that is set meanwhile waits for them.
    let orders = context.steering.orders();
    let (messages, others) = set_rule_holds(context, &orders, messages).await;
    let message_store = &context.message_store;
    let bytes = messages.first().map_or(0, |(_, content)| content.bytes);
    let stored = store_all(message_store, &messages, (origin, context.live.load().queues_only())).await;
    if let Err((error, stored_from)) = stored {
        messages.iter().take(stored_from).for_each(|(_, content)| content.abandon(message_store));
        let stored: Vec<NewMessage> = messages.into_iter().skip(stored_from).map(|(message, _)| message).collect();
        let context = Arc::clone(context);
        run_where_it_fits(stored, move |stored| roll_back(&context, stored)).await;
        return Err(error);
    }
    release_others(context, &others);
    drop(orders);
    let messages = messages.into_iter().map(|(message, _)| message).collect();
    Ok(StoredTransaction { origin, messages, bytes })
}

/// Stores all messages: in one batch, or one after another if they are too large for that, the first of them last. On
/// an error also returns from which position on messages are stored. `queues_only`: no message is attempted at once.
pub(super) async fn store_all(
    message_store: &MessageStore,
    messages: &[(NewMessage, FinishedContent)],
    (origin, queues_only): (Origin, bool),
) -> Result<(), (Error, usize)> {
    if let MessageStore::Discard { messages: count, bytes, .. } = message_store {
        for (_, content) in messages {
            count.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(content.bytes, Ordering::Relaxed);
        }
        return Ok(());
    }
    let framed: Vec<FramedMessage> = messages
        .iter()
        .map(|(message, content)| {
            let (encoded, body) = (Arc::clone(&message.encoded), content.body.clone());
            let hold = message.hold_reason(origin);
            let reserved = origin == Origin::Report;
            let is_read_soon = hold.as_ref().is_some_and(|hold| hold.kind().is_unscreened());
            let waits = !is_read_soon && (queues_only || !message.is_due() || message.first.due > 0);
            let accepts_local = reserved || message.accepts_local;
            let (first, state) = (content.first, message.first);
            FramedMessage { first, encoded, body, state, hold, reserved, waits, accepts_local }
        })
        .collect();
    match append_together(message_store, &framed).await {
        Err(Error::TooLarge { .. }) if framed.len() > 1 => {}
        stored => return stored.map_err(|error| (error, framed.len())),
    }
    for (number, message) in framed.iter().enumerate().rev() {
        append(message_store, std::slice::from_ref(message)).await.map_err(|error| (error, number + 1))?;
    }
    Ok(())
}

/// Appends all messages in one batch.
///
/// # Errors
/// As [`append`]; nothing of them is stored.
async fn append_together(message_store: &MessageStore, messages: &[FramedMessage]) -> Result<(), Error> {
    if messages.len() > 1 && is_sabotaged(Sabotage::KeepPartOfTransaction) {
        return Err(Error::TooLarge { bytes: 0, max: 0 });
    }
    append(message_store, messages).await
}

/// Declares stored messages of a transaction that failed done.
fn roll_back(context: &Context, stored: &[NewMessage]) {
    if is_sabotaged(Sabotage::KeepPartOfTransaction) {
        return;
    }
    let Some(spool) = context.spool() else { return };
    for message in stored {
        let id = message.envelope.id;
        let changes: Vec<Change> = withdrawal(id, message.envelope.recipients.len(), message.first).collect();
        if let Err(error) = spool.record(&changes) {
            let text = format!("{id} was not taken and cannot be removed: {error}; it may be delivered twice");
            context.record(&Event::Spool { severity: Severity::Error, text: &text });
        }
    }
}

/// Puts a durable message in line, or has it looked at when it is due.
pub(crate) fn enqueue_stored(context: &Context, queue: &dyn Enqueue, message: &NewMessage, bytes: u64) {
    if message.is_partly_held || message.kind.queue_only && message.kind.hold.is_none() {
        queue.enqueue_later(message);
    }
    if message.is_due() && !context.live.load().queues_only() {
        queue.enqueue(message, bytes, message.class);
    }
}

/// Logs a message that waits for an operator, or that is held.
fn log_waiting(context: &Context, message: &NewMessage, octets: u64) {
    let NewMessage { envelope, kind, .. } = message;
    if kind.hold.is_some() || kind.queue_only {
        report_waiting(context, envelope, octets, 0, kind.hold.as_ref().map(|why| &*why.text));
    }
}

/// Works on messages here if they have few recipients, else on a thread where it blocks no connection.
async fn run_where_it_fits(messages: Vec<NewMessage>, work: impl FnOnce(&[NewMessage]) + Send + 'static) {
    if messages.iter().map(|message| message.encoded.len()).sum::<usize>() <= MEMBERS_AT_ONCE {
        return work(&messages);
    }
    // The panic hook reports a panic.
    drop(blocking::run(move || work(&messages)).await);
}
