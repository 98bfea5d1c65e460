//! Puts a message that filters have changed in place of the one that waits. `mod.rs` has the order of the steps.

use super::effect::RecipientEffect;
use super::record::ScreeningRecord;
use super::record_changes::{record_from, released, report_dropped};
use super::waiting::WaitingMessage;
use super::{ScreenQueue, screen_hold};
use crate::intake::{
    NewMessage, Origin, PIECE_BYTES, TransactionContent, commit, enqueue_stored, inline, report_waiting,
    resolve_redirects,
};
use crate::sabotage::{Sabotage, is_sabotaged};
use crate::screen::filters::FilterVerdict;
use crate::steering::holds_of;
use mail::{Envelope, QueueId, Recipient};
use observe::Event;
use operator::queue::Steering;
use spool::{Change, Hold, HoldKind, State, Status, Store as _};
use std::sync::Arc;

/// Octets of a stored body that are read at once.
const BODY_PIECE_BYTES: u64 = 256 << 10;

/// Stores the changed message in place of one that waits, ends that one, and lets the new one go. Recipients whose wait
/// an operator has ended meanwhile keep the old one.
///
/// # Errors
/// The spool takes nothing now, or a look-up failed: the message waits as before, or, where the changed one is stored,
/// the next start goes on.
pub(super) async fn replace(
    queue: &ScreenQueue,
    message: &WaitingMessage,
    numbers: &[usize],
    verdict: &FilterVerdict,
    effect: RecipientEffect,
) -> Result<(), String> {
    let old = message.envelope.id;
    let claimed = claim(queue, message, numbers).await?;
    if claimed.is_empty() {
        return Ok(());
    }
    let then = if let RecipientEffect::Hold(hold) = effect { Some(hold) } else { None };
    let stored = store(queue, message, &claimed, verdict, then).await;
    let Some(StoredReplacement { new, then, orders }) = (match stored {
        Ok(new) => new,
        Err(why) => {
            put_back(queue, old, &message.record.filters).await?;
            return Err(why);
        }
    }) else {
        end_replaced(queue, old).await?;
        let dropped = claimed.iter().filter_map(|at| message.envelope.recipients.get(*at));
        report_dropped(&queue.context, old, dropped.map(|one| &one.address));
        return Ok(());
    };
    let envelope = &new.envelope;
    let owner = envelope.sender.to_string();
    let owner = owner.trim_matches(['<', '>']);
    queue.context.record(&Event::Cloned { first: old, id: envelope.id, owner });
    end_replaced(queue, old).await?;
    if let Some(history) = &queue.context.history {
        history.record_replaced(old, envelope.id, u64::try_from(claimed.len()).unwrap_or(u64::MAX));
    }
    let positions: Vec<(u32, State)> = (0..).zip(&envelope.recipients).map(|(at, _)| (at, new.first)).collect();
    match let_go(queue, envelope.id, &positions, then.as_ref()).await? {
        // An operator has deleted some.
        few if few < positions.len() => queue.dispatch.look_at(envelope.id),
        _ => match &then {
            None => enqueue_stored(&queue.context, queue.dispatch.as_ref(), &new, message.size),
            Some(hold) => report_waiting(&queue.context, envelope, message.size, 0, Some(hold.text())),
        },
    }
    drop(orders);
    Ok(())
}

/// The changed message in the spool.
struct StoredReplacement {
    new: NewMessage,
    /// The hold that follows.
    then: Option<Hold>,
    /// The orders of operators that decide about that. Held until the message is let go: a suspension that is set
    /// meanwhile waits for it.
    orders: Arc<Steering>,
}

/// Ends the wait of these recipients for the verdict, so that no operator ends it in another way from here on. Returns
/// the numbers of those that waited still. Durable before the changed message is, so that no crash leaves that one
/// beside a message that can be released.
async fn claim(queue: &ScreenQueue, message: &WaitingMessage, numbers: &[usize]) -> Result<Vec<usize>, String> {
    let id = message.envelope.id;
    let changes = numbers.iter().filter_map(|number| message.recipients.get(*number)).map(|(recipient, state, _)| {
        let state = State { status: Status::Held, ..*state };
        Change { id, recipient: *recipient, state, destination: None }
    });
    let changes: Vec<Change> = changes.collect();
    if is_sabotaged(Sabotage::ReplaceUnclaimed) {
        return Ok(numbers.to_vec());
    }
    let reason = Hold::new(HoldKind::Replacement, &message.record.filters.join(","), "another takes its place");
    let claimed = record_from(queue, HoldKind::Screen, &changes, Some(&reason)).await?;
    let is_claimed = |number: &&usize| message.recipients.get(**number).is_some_and(|one| claimed.contains(&one.0));
    Ok(numbers.iter().filter(is_claimed).copied().collect())
}

/// Has the claimed recipients of a message wait for their filters again: no other message takes its place.
pub(super) async fn put_back(queue: &ScreenQueue, id: QueueId, filters: &[String]) -> Result<(), String> {
    let changes = claimed_recipients(queue, id, Status::Held);
    record_from(queue, HoldKind::Replacement, &changes, Some(&screen_hold(filters))).await.map(drop)
}

/// Returns the change of each claimed recipient of a message to this state.
fn claimed_recipients(queue: &ScreenQueue, id: QueueId, status: Status) -> Vec<Change> {
    let spool = &queue.dispatch.spool;
    let kind = if is_sabotaged(Sabotage::ReplaceUnclaimed) { HoldKind::Screen } else { HoldKind::Replacement };
    let is_held = |recipient| spool.hold(id, recipient).is_some_and(|hold| hold.kind() == kind);
    let change =
        |recipient, state: State| Change { id, recipient, state: State { status, ..state }, destination: None };
    let states = spool.states(id).into_iter().filter(|(entry, _)| is_held(entry.recipient));
    states.map(|(entry, _)| change(entry.recipient, entry.state)).collect()
}

/// Stores the changed message, held, and returns it; `None`: it has no recipient. When it is durable, the verdict is.
async fn store(
    queue: &ScreenQueue,
    message: &WaitingMessage,
    numbers: &[usize],
    verdict: &FilterVerdict,
    then: Option<Hold>,
) -> Result<Option<StoredReplacement>, String> {
    let old = message.envelope.id;
    let recipients = changed_recipients(queue, message, numbers, verdict).await?;
    if recipients.is_empty() {
        return Ok(None);
    }
    // The age of the message counts on.
    let id = queue.context.message_store.past_id(old.unix_us());
    let (recipients, destinations): (Vec<Recipient>, Vec<Vec<u8>>) = recipients.into_iter().unzip();
    let sender = verdict.sender.clone().unwrap_or_else(|| message.envelope.sender.clone());
    let envelope = Envelope { id, sender, recipients, ..message.envelope.clone() };
    let waits = released(&envelope, destinations, message.first_state());
    let content = changed_content(queue, message, id, verdict).await?;
    let orders = queue.context.steering.orders();
    // A message that takes the place of another is held whole where a rule of an operator holds one recipient.
    let by_rule = || {
        let destinations = waits.recipients().map(|(_, destination)| destination);
        holds_of(&orders, &envelope, waits.class, destinations, queue.context.unix_now()).into_iter().flatten().next()
    };
    let then = then.or_else(by_rule);
    let record = ScreeningRecord { then: then.clone(), replaces: Some(old), ..ScreeningRecord::new(Vec::new()) };
    let mut new = waits.clone();
    let reason = Hold::new(HoldKind::Replacement, &message.record.filters.join(","), &format!("in place of {old}"));
    new.wait_for_filters(&record.to_text(), reason);
    let stored = content.finish(&queue.context.message_store, vec![new], content_rest(message, verdict)).await;
    let stored = stored.map_err(|error| error.to_string())?;
    // It is held, so there is nothing to put in line yet.
    drop(commit(&queue.context, Origin::Session, stored).await.map_err(|error| error.to_string())?);
    Ok(Some(StoredReplacement { new: waits, then, orders }))
}

/// Ends a message whose place another has taken: its claimed recipients are done.
pub(super) async fn end_replaced(queue: &ScreenQueue, old: QueueId) -> Result<(), String> {
    if is_sabotaged(Sabotage::KeepReplaced) {
        return Ok(());
    }
    let done = claimed_recipients(queue, old, Status::Done);
    if !done.is_empty() {
        record_from(queue, HoldKind::Replacement, &done, None).await?;
    }
    Ok(())
}

/// Lets a message go that has taken the place of another, which is done; `then`: to be held for another reason. Returns
/// the number of its recipients that were held until then.
pub(super) async fn let_go(
    queue: &ScreenQueue,
    id: QueueId,
    recipients: &[(u32, State)],
    then: Option<&Hold>,
) -> Result<usize, String> {
    let status = if then.is_some() { Status::Held } else { Status::Waiting };
    let change = |(recipient, state): &(u32, State)| Change {
        id,
        recipient: *recipient,
        state: State { status, ..*state },
        destination: None,
    };
    let changes: Vec<Change> = recipients.iter().map(change).collect();
    record_from(queue, HoldKind::Replacement, &changes, then).await.map(|changed| changed.len())
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
