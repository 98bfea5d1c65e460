//! Carries out the effect of a verdict. Each function returns when its step is durable; `mod.rs` has the order.

use super::ScreenQueue;
use super::effect::{MessageEffect, RecipientEffect};
use super::record::ScreeningRecord;
use super::waiting::WaitingMessage;
use crate::context::Context;
use crate::intake::{
    NewMessage, Origin, PIECE_BYTES, TransactionContent, commit, enqueue_stored, inline, report_waiting,
    resolve_redirects,
};
use crate::routing::message_properties::MessageProperties;
use crate::sabotage::{Sabotage, is_sabotaged};
use crate::screen::filters::FilterVerdict;
use mail::{Address, Envelope, QueueId, Recipient};
use observe::Event;
use schedule::Class;
use spool::envelope::Encoded;
use spool::{Change, Hold, HoldKind, State, Status, Store as _};
use std::collections::HashSet;
use std::sync::Arc;

/// Octets of a stored body that are read at once.
const BODY_PIECE_BYTES: u64 = 256 << 10;

/// Carries out the effect on a message.
///
/// # Errors
/// The spool takes nothing now, or a look-up failed: what is not done yet waits, and is screened again.
/// # Cancel safety
/// Yes: a start goes on where this ended.
pub(super) async fn apply(queue: &ScreenQueue, message: WaitingMessage, effect: MessageEffect) -> Result<(), String> {
    let MessageEffect::Judged { refused, others, changes } = effect else { return Ok(()) };
    let waiting = still_waiting(queue, &message);
    let is_refused = |number: usize| refused.iter().any(|(one, _)| *one == number);
    for (number, effect) in &refused {
        if waiting.contains(number) {
            carry_out(queue, &message, &[*number], effect).await?;
        }
    }
    let numbers: Vec<usize> =
        (0..message.recipients.len()).filter(|number| waiting.contains(number) && !is_refused(*number)).collect();
    if numbers.is_empty() {
        return Ok(());
    }
    match changes {
        Some(verdict) => Box::pin(replace(queue, &message, &numbers, &verdict, others)).await,
        None => carry_out(queue, &message, &numbers, &others).await,
    }
}

/// Returns the numbers of those recipients that wait still: an operator may have released or deleted some.
fn still_waiting(queue: &ScreenQueue, message: &WaitingMessage) -> HashSet<usize> {
    let (spool, id) = (&queue.dispatch.spool, message.envelope.id);
    let waits = |(position, ..): &(u32, State, bytes::Bytes)| {
        spool.hold(id, *position).is_some_and(|hold| hold.kind() == HoldKind::Screen)
    };
    message.recipients.iter().enumerate().filter(|(_, one)| waits(one)).map(|(number, _)| number).collect()
}

/// Changes the state of some recipients in one record, and has them delivered if that follows.
async fn carry_out(
    queue: &ScreenQueue,
    message: &WaitingMessage,
    numbers: &[usize],
    effect: &RecipientEffect,
) -> Result<(), String> {
    let (context, id) = (&queue.context, message.envelope.id);
    let (status, destination) = match effect {
        RecipientEffect::Deliver => (Status::Waiting, None),
        RecipientEffect::Report(to) => (Status::Waiting, Some(to.clone())),
        RecipientEffect::Hold(_) => (Status::Held, None),
        RecipientEffect::Drop => (Status::Done, None),
    };
    let change = |(recipient, state, _): &(u32, State, bytes::Bytes)| {
        // A report does not wait for the time that the sender gave.
        let due = if destination.is_some() { 0 } else { state.due };
        let state = State { status, due, ..*state };
        Change { id, recipient: *recipient, state, destination: destination.clone() }
    };
    let changes: Vec<Change> = numbers.iter().filter_map(|at| message.recipients.get(*at)).map(change).collect();
    let hold = if let RecipientEffect::Hold(hold) = effect { Some(hold) } else { None };
    record(queue, &changes, hold).await?;
    for change in &changes {
        queue.dispatch.settler.reasons.forget(id, change.recipient);
    }
    let these = || numbers.iter().filter_map(|at| message.envelope.recipients.get(*at));
    match effect {
        RecipientEffect::Deliver if message.is_whole && numbers.len() == message.recipients.len() => {
            let destinations = message.recipients.iter().map(|(_, _, to)| to.to_vec()).collect();
            let released = released(&message.envelope, destinations, message.first_state());
            enqueue_stored(context, queue.dispatch.as_ref(), &released, message.size);
        }
        RecipientEffect::Deliver | RecipientEffect::Report(_) => queue.dispatch.look_at(id),
        RecipientEffect::Hold(hold) => {
            let envelope = Envelope { recipients: these().cloned().collect(), ..message.envelope.clone() };
            report_waiting(context, &envelope, message.size, 0, Some(hold.text()));
        }
        RecipientEffect::Drop => report_dropped(context, id, these().map(|one| &one.address)),
    }
    Ok(())
}

fn report_dropped<'a>(context: &Context, id: QueueId, addresses: impl Iterator<Item = &'a Address>) {
    context.record_discarded(id, addresses);
    context.record(&Event::Discarded { id });
}

/// Records changes, and waits until they are durable.
async fn record(queue: &ScreenQueue, changes: &[Change], hold: Option<&Hold>) -> Result<(), String> {
    let spool = &queue.dispatch.spool;
    let recorded = match hold {
        Some(hold) => spool.record_hold(changes, hold),
        None => spool.record(changes),
    };
    match recorded {
        Ok(commit) => commit.await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a message that waits for delivery, as dispatch takes it.
fn released(envelope: &Envelope, destinations: Vec<Vec<u8>>, state: State) -> NewMessage {
    let class = Class::from_bits(state.class());
    NewMessage {
        envelope: Arc::new(envelope.clone()),
        encoded: Arc::new(Encoded::with(envelope, destinations)),
        first: State { status: Status::Waiting, ..state },
        // It is looked at when the time has come until which it waits.
        kind: MessageProperties { queue_only: state.due > 0, ..MessageProperties::default() },
        class,
        held: None,
    }
}

/// Stores the changed message in place of one that waits, ends that one, and lets the new one go.
async fn replace(
    queue: &ScreenQueue,
    message: &WaitingMessage,
    numbers: &[usize],
    verdict: &FilterVerdict,
    effect: RecipientEffect,
) -> Result<(), String> {
    let old = message.envelope.id;
    let recipients = changed_recipients(queue, message, numbers, verdict).await?;
    if recipients.is_empty() {
        return carry_out(queue, message, numbers, &RecipientEffect::Drop).await;
    }
    // The age of the message counts on.
    let id = queue.context.message_store.past_id(old.unix_us());
    let (recipients, destinations): (Vec<Recipient>, Vec<Vec<u8>>) = recipients.into_iter().unzip();
    let sender = verdict.sender.clone().unwrap_or_else(|| message.envelope.sender.clone());
    let envelope = Envelope { id, sender, recipients, ..message.envelope.clone() };
    let then = if let RecipientEffect::Hold(hold) = effect { Some(hold) } else { None };
    let record = ScreeningRecord { then, replaces: Some(old), ..ScreeningRecord::new(Vec::new()) };
    let mut new = released(&envelope, destinations, message.first_state());
    let waits = new.clone();
    let reason = Hold::new(HoldKind::Replacement, &message.record.filters.join(","), &format!("in place of {old}"));
    new.wait_for_filters(&record.to_text(), reason);
    let content = changed_content(queue, message, id, verdict).await?;
    let stored = content.finish(&queue.context.message_store, vec![new], content_rest(message, verdict)).await;
    let stored = stored.map_err(|error| error.to_string())?;
    // It is held, so there is nothing to put in line yet.
    drop(commit(&queue.context, Origin::Session, stored).await.map_err(|error| error.to_string())?);
    let owner = envelope.sender.to_string();
    let owner = owner.trim_matches(['<', '>']);
    queue.context.record(&Event::Cloned { first: old, id, owner });
    end_replaced(queue, old).await?;
    let positions: Vec<(u32, State)> = (0..).zip(&envelope.recipients).map(|(at, _)| (at, waits.first)).collect();
    let_go(queue, id, &positions, record.then.as_ref()).await?;
    match &record.then {
        None => enqueue_stored(&queue.context, queue.dispatch.as_ref(), &waits, message.size),
        Some(hold) => report_waiting(&queue.context, &envelope, message.size, 0, Some(hold.text())),
    }
    Ok(())
}

/// Ends a message whose place another has taken: those of its recipients that wait for filters are done.
pub(super) async fn end_replaced(queue: &ScreenQueue, old: QueueId) -> Result<(), String> {
    let spool = &queue.dispatch.spool;
    let waits = |recipient: u32| spool.hold(old, recipient).is_some_and(|hold| hold.kind() == HoldKind::Screen);
    let done: Vec<Change> = spool
        .states(old)
        .into_iter()
        .filter(|(entry, _)| waits(entry.recipient))
        .map(|(entry, _)| {
            let state = State { status: Status::Done, ..entry.state };
            Change { id: old, recipient: entry.recipient, state, destination: None }
        })
        .collect();
    if done.is_empty() || is_sabotaged(Sabotage::KeepReplaced) {
        return Ok(());
    }
    record(queue, &done, None).await
}

/// Lets a message go that has taken the place of another, which is done; `then`: to be held for another reason.
pub(super) async fn let_go(
    queue: &ScreenQueue,
    id: QueueId,
    recipients: &[(u32, State)],
    then: Option<&Hold>,
) -> Result<(), String> {
    let status = if then.is_some() { Status::Held } else { Status::Waiting };
    let change = |(recipient, state): &(u32, State)| Change {
        id,
        recipient: *recipient,
        state: State { status, ..*state },
        destination: None,
    };
    let changes: Vec<Change> = recipients.iter().map(change).collect();
    record(queue, &changes, then).await
}

/// Returns the recipients that the changed message has, each with its destination.
async fn changed_recipients(
    queue: &ScreenQueue,
    message: &WaitingMessage,
    numbers: &[usize],
    verdict: &FilterVerdict,
) -> Result<Vec<(Recipient, Vec<u8>)>, String> {
    let FilterVerdict { copies, removed, redirects, .. } = verdict;
    let mut recipients = Vec::new();
    for number in numbers.iter().filter(|_| redirects.is_empty()) {
        let (Some(one), Some((_, _, destination))) =
            (message.envelope.recipients.get(*number), message.recipients.get(*number))
        else {
            continue;
        };
        if !removed.iter().any(|address| address.key() == one.address.key()) {
            recipients.push((one.clone(), destination.to_vec()));
        }
    }
    let routing = queue.context.routing.load_full();
    let routing = (!routing.is_plain()).then_some(&routing);
    for addresses in [copies, redirects] {
        let resolved = resolve_redirects(&queue.context, routing, &message.envelope, addresses).await;
        recipients.extend(resolved.map_err(|why| why.to_string())?);
    }
    Ok(recipients)
}

/// Returns the content that is small enough to stay in memory until the message is stored.
fn content_rest(message: &WaitingMessage, verdict: &FilterVerdict) -> bytes::Bytes {
    if !has_whole(message, verdict) {
        return bytes::Bytes::new();
    }
    let whole = message.content.whole();
    if whole.len() <= PIECE_BYTES { inline(whole) } else { bytes::Bytes::new() }
}

/// Whether all of the changed content is in memory.
fn has_whole(message: &WaitingMessage, verdict: &FilterVerdict) -> bool {
    message.content.is_complete() || verdict.has_new_body
}

/// Brings large content into the spool, small content not yet.
async fn changed_content(
    queue: &ScreenQueue,
    message: &WaitingMessage,
    id: QueueId,
    verdict: &FilterVerdict,
) -> Result<TransactionContent, String> {
    let store = &queue.context.message_store;
    let mut content = TransactionContent::new(id);
    if has_whole(message, verdict) {
        let whole = message.content.whole();
        if whole.len() > PIECE_BYTES {
            content.push(store, &whole).await;
        }
        return Ok(content);
    }
    let mut header = message.content.header();
    if message.is_closed {
        header.extend_from_slice(b"\r\n");
    }
    content.push(store, &header).await;
    let (old, mut at) = (message.envelope.id, message.body_offset);
    while at < message.size {
        let end = (at + BODY_PIECE_BYTES).min(message.size);
        let read = queue.dispatch.messages.reading.read(move |spool| spool.body_range(old, at..end)).await;
        match read {
            Ok(piece) if !piece.is_empty() => {
                content.push(store, &piece).await;
                at += piece.len() as u64;
            }
            unread => {
                content.abandon(store);
                return Err(unread.err().map_or_else(|| format!("its content ends at octet {at}"), |e| e.to_string()));
            }
        }
    }
    Ok(content)
}
