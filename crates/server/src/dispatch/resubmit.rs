//! Sends copies of messages in quarantine, for an operator: to the recipients for whom they are kept, or to another
//! address.
//!
//! A copy has the content and the envelope of the original, a queue id of its own, so that its time in the queue begins
//! now, and a field on top that tells of the quarantine. It goes the way that its recipients have; another address is
//! routed like that of a report, and nobody gets a report on it. The copy is durable before the recipients are done
//! with the original: a crash in between leaves both.

use super::Dispatch;
use super::reservations::Reservation;
use super::task::Task;
use crate::context::Context;
use crate::intake::{
    self, Enqueue, NewMessage, Origin, PIECE_BYTES, StoredTransaction, TransactionContent, first_state,
};
use crate::message::{LoadError, OutboundMessage, ReadError};
use crate::routing::expansions::{
    ClientKey, Expanded, ExpansionRequest, ExpansionSettings, HeldTurn, PlannedMessage, PlannedMessages, Resolved,
};
use crate::routing::message_properties::MessageProperties;
use crate::routing::plan::Plan;
use crate::sabotage::{Sabotage, is_sabotaged};
use bytes::Bytes;
use mail::{Address, Envelope, MailParams, Notify, Recipient, RecipientParams, submission};
use operator::queue::{Resubmission, ResubmitError, Resubmitted};
use os::clock;
use route::resolve::{Outcome, Resolution};
use schedule::Class;
use spool::envelope::Encoded;
use spool::{Change, State, Status, Store as _};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Octets of a content that are copied at once.
const COPY_BYTES: u64 = 256 << 10;

impl Dispatch {
    /// Has a copy of a message sent. The receiver gets an answer when that is durable; none, if the server ends before
    /// it begins.
    pub(crate) fn resubmit_soon(&self, order: Resubmission) -> oneshot::Receiver<Result<Resubmitted, ResubmitError>> {
        let (answer, heard) = oneshot::channel();
        self.send(Task::Resubmit { order, answer });
        heard
    }
}

/// Sends a copy of a message.
///
/// # Errors
/// As [`operator::queue::DeliveryControl::resubmit`].
/// # Cancel safety
/// No: a copy may be durable whose recipients are not done with the original.
pub(crate) async fn resubmit(dispatch: &Arc<Dispatch>, order: Resubmission) -> Result<Resubmitted, ResubmitError> {
    let id = order.meant.id;
    let claim = Reservation::by_command(dispatch, id, &order.meant.recipients);
    let mut original = match OutboundMessage::load_claimed(&dispatch.messages, id, &claim.recipients).await {
        Ok(original) => original,
        Err(LoadError::Nothing) => return Ok(Resubmitted::default()),
        Err(LoadError::Unread(why)) => return Err(unreadable(&why)),
    };
    original.retain(|_, state| state.status == Status::Held);
    if original.positions.is_empty() {
        return Ok(Resubmitted::default());
    }
    let (messages, _turn) = match &order.to {
        None => (vec![released(dispatch, &original)], None),
        Some(address) => forwarded(&dispatch.context, &original, address).await?,
    };
    let Some(copy) = messages.first().map(|message| message.envelope.id) else {
        return Err(ResubmitError::Refused("the maps drop what is for this address".to_owned()));
    };
    // A copy for another address leaves the original as it is, wherever that is.
    if order.to.is_none()
        && let Some(doubt) = dispatch.ownership_doubt(id)
    {
        return Err(ResubmitError::NotOwned(doubt));
    }
    let field = trace_field(dispatch, &original, order.to.is_some());
    if is_sabotaged(Sabotage::EndBeforeCopy) {
        end_original(dispatch, &original).await.map_err(|error| ResubmitError::NotStored(error.to_string()))?;
    }
    let stored = store(dispatch, &original, messages, field).await?;
    let ended = match order.to {
        None => end_original(dispatch, &original).await,
        Some(_) => Ok(()),
    };
    let queue = Arc::clone(dispatch) as Arc<dyn Enqueue>;
    stored.enqueue(&dispatch.context, Some(&queue), original.content_bytes).await;
    ended.map_err(|error| {
        let text = format!("released as {copy}, but it stays in quarantine, too: delete it there: {error}");
        ResubmitError::NotStored(text)
    })?;
    if order.to.is_none() {
        claim.fulfilled();
    }
    Ok(Resubmitted { copy: Some(copy), recipients: original.positions.iter().map(|(position, _)| *position).collect() })
}

/// Makes the copy for the recipients of the original, which go where they would have gone.
fn released(dispatch: &Dispatch, original: &OutboundMessage) -> NewMessage {
    let id = dispatch.context.message_store.next_id();
    let envelope = Envelope { id, ..original.envelope.clone() };
    let states = dispatch.spool.states(original.envelope.id);
    let destination = |position: u32| {
        let found = states.iter().find(|(entry, _)| entry.recipient == position);
        found.map(|(_, destination)| destination.to_vec())
    };
    let known: Option<Vec<Vec<u8>>> = original.positions.iter().map(|(position, _)| destination(*position)).collect();
    let encoded = match known {
        Some(destinations) => Encoded::with(&envelope, destinations),
        None => dispatch.context.live.load().encode(&envelope),
    };
    let class = class_of(original);
    NewMessage {
        first: first_state(&envelope, class),
        envelope: Arc::new(envelope),
        encoded: Arc::new(encoded),
        kind: MessageProperties::default(),
        class,
        held: None,
        is_partly_held: false,
        accepts_local: false,
    }
}

/// Makes the copies for another address: one, or several if the maps make several of it.
///
/// # Errors
/// The maps refuse the address, or cannot be asked.
async fn forwarded(
    context: &Arc<Context>,
    original: &OutboundMessage,
    address: &Address,
) -> Result<(Vec<NewMessage>, HeldTurn), ResubmitError> {
    let refused = |text: String| ResubmitError::Refused(format!("<{address}>: {text}"));
    let MailParams { body, smtputf8, requiretls, .. } = original.envelope.params;
    let params = MailParams { body, smtputf8, requiretls, ..MailParams::default() };
    // The sender may be forged, and knows nothing of this address.
    let recipient = Recipient {
        address: address.clone(),
        params: RecipientParams { notify: Some(Notify::NEVER), ..RecipientParams::default() },
    };
    let id = context.message_store.next_id();
    let recipients = vec![recipient.clone()];
    let envelope = Envelope { id, params, recipients, ..original.envelope.clone() };
    let routing = context.routing.load_full();
    let (planned, turn) = if routing.is_plain() {
        let encoded = Arc::new(context.live.load().encode(&envelope));
        let kind = MessageProperties::default();
        (vec![PlannedMessage { envelope: Arc::new(envelope), encoded, kind }], None)
    } else {
        let wanted = ExpansionRequest {
            client: ClientKey::Internal,
            sender: envelope.sender.clone(),
            recipient: address.clone(),
            ip: None,
            is_local_submission: true,
        };
        let settings = ExpansionSettings::of(&context.live.load().config.maps);
        let resolved = context.expansions.resolve(&routing, &wanted, &settings).await;
        let mut plan = Plan::default();
        let added = match resolved.map_err(|error| refused(error.to_string()))? {
            Resolved::Short(Resolution { outcome: Outcome::Deliver(deliveries), failed, .. }) => {
                plan.add(&recipient, deliveries, failed)
            }
            Resolved::Long(Expanded::Members(members)) => plan.add_members(&recipient, members),
            Resolved::Short(Resolution { outcome: Outcome::Refuse(refusal), .. })
            | Resolved::Long(Expanded::Refused(refusal)) => {
                return Err(refused(format!("{} {} {}", refusal.code, refusal.status, refusal.text)));
            }
            Resolved::Short(Resolution { outcome: Outcome::Discard, .. }) | Resolved::Long(Expanded::Discarded) => {
                return Err(refused("the maps drop what is for this address".to_owned()));
            }
        };
        added.map_err(|_| refused("the maps make too many messages of it".to_owned()))?;
        let more = (1..plan.len()).map(|_| context.message_store.next_id());
        let ids = std::iter::once(id).chain(more).collect();
        let made = context.expansions.messages(ClientKey::Internal, plan, envelope, ids).await;
        let PlannedMessages { messages, turn } = made.map_err(|error| refused(error.to_string()))?;
        (messages, turn)
    };
    let class = class_of(original);
    Ok((planned.into_iter().map(|planned| NewMessage::new(context, planned, class)).collect(), turn))
}

fn class_of(original: &OutboundMessage) -> Class {
    original.positions.first().map_or(Class::Normal, |(_, state)| Class::from_bits(state.class()))
}

/// Returns the field that a copy gets. It names no recipient and no operator: both are in the log.
fn trace_field(dispatch: &Dispatch, original: &OutboundMessage, is_forward: bool) -> String {
    let id = original.envelope.id;
    let position = original.positions.first().map(|(position, _)| *position);
    let hold = position.and_then(|position| dispatch.spool.hold(id, position));
    let by: String =
        hold.map(|hold| hold.by().chars().filter(char::is_ascii_graphic).take(64).collect()).unwrap_or_default();
    let now_us = clock::unix_us();
    let date = submission::date(now_us, clock::local_offset_seconds(now_us));
    let hostname = &dispatch.context.live.load().config.hostname;
    let name = if is_forward { "X-Quarantine-Forward" } else { "X-Quarantine-Release" };
    format!("{name}: {id} of {hostname}\r\n\t(kept by {by}); {date}\r\n")
}

/// Stores copies of the content with the field on top, all or none.
async fn store(
    dispatch: &Arc<Dispatch>,
    original: &OutboundMessage,
    messages: Vec<NewMessage>,
    field: String,
) -> Result<StoredTransaction, ResubmitError> {
    let (context, store) = (&dispatch.context, &dispatch.context.message_store);
    let first = messages.first().map_or(original.envelope.id, |message| message.envelope.id);
    let mut content = TransactionContent::of(first, messages.iter().map(|message| message.envelope.id));
    let rest = match copy_content(dispatch, original, &mut content).await {
        Ok(rest) => rest,
        Err(why) => {
            content.abandon(store);
            return Err(unreadable(&why));
        }
    };
    let not_stored = |error: spool::Error| ResubmitError::NotStored(error.to_string());
    let mut finished = content.finish(store, messages, rest).await.map_err(not_stored)?;
    for (_, content) in &mut finished {
        content.edit_header(store, |section| [field.as_bytes(), section].concat());
    }
    intake::commit(context, Origin::Session, finished).await.map_err(not_stored)
}

/// Copies the content, and returns what of small content is left to end it with.
async fn copy_content(
    dispatch: &Dispatch,
    original: &OutboundMessage,
    content: &mut TransactionContent,
) -> Result<Bytes, ReadError> {
    let (id, end) = (original.envelope.id, original.content_bytes);
    let mut at = 0;
    while at < end {
        let piece = OutboundMessage::part(&dispatch.messages.reading, id, at, (at + COPY_BYTES).min(end)).await?;
        if piece.is_empty() {
            return Err(ReadError::Bad(format!("its content ends at octet {at} of {end}")));
        }
        at += piece.len() as u64;
        if at == piece.len() as u64 && at == end && piece.len() <= PIECE_BYTES {
            return Ok(piece);
        }
        content.push(&dispatch.context.message_store, &piece).await;
    }
    Ok(Bytes::new())
}

/// Declares the recipients done with the original.
async fn end_original(dispatch: &Dispatch, original: &OutboundMessage) -> Result<(), spool::Error> {
    let id = original.envelope.id;
    let done = |(recipient, state): &(u32, State)| {
        let state = State { status: Status::Done, ..*state };
        Change { id, recipient: *recipient, state, destination: None }
    };
    let changes: Vec<Change> = original.positions.iter().map(done).collect();
    dispatch.spool.record(&changes)?.await
}

fn unreadable(why: &ReadError) -> ResubmitError {
    ResubmitError::Unreadable(format!("{why}; {}", why.advice()))
}

#[cfg(test)]
mod tests;
