//! Finds the messages that wait for filters after a start. Messages that take the place of others come first, so that
//! no message is screened whose verdict is stored; one that was claimed for a message that was not stored waits again.

use super::ScreenQueue;
use super::record::ScreeningRecord;
use super::replace::{end_replaced, let_go, put_back};
use super::waiting::held;
use mail::QueueId;
use observe::{Event, Severity};
use spool::envelope::decode_screening;
use spool::{Hold, HoldKind, Spool, State, Status, Store as _};
use std::collections::HashSet;

/// A message that a start has found.
#[derive(Debug)]
enum FoundMessage {
    /// It waits for filters.
    Waiting(FoundWaiting),
    /// It takes the place of another, if it can be read.
    Replacement(QueueId, Option<QueueId>),
}

/// A message that waits for filters.
#[derive(Debug)]
struct FoundWaiting {
    id: QueueId,
    /// The names of its filters.
    filters: Vec<String>,
    /// Its octets.
    bytes: u64,
    /// Another was to take its place.
    is_claimed: bool,
}

/// Finds all messages, ends those that were replaced, and lets go of those in their place.
///
/// # Cancel safety
/// Yes: the next start goes on.
pub(super) async fn restore(queue: &ScreenQueue) {
    let found = match queue.dispatch.messages.reading.read(|spool| Ok(find(spool))).await {
        Ok(found) => found,
        Err(why) => {
            let text = format!("mail that waits for filters cannot be found: {why}; {}; restart", why.advice());
            return queue.context.record(&Event::Spool { severity: Severity::Error, text: &text });
        }
    };
    let mut replaced = HashSet::new();
    for one in &found {
        let FoundMessage::Replacement(id, old) = one else { continue };
        replaced.extend(*old);
        if let Err(why) = finish(queue, *id).await {
            let text = format!("message {id}, which filters have changed, stays held until the next start: {why}");
            queue.context.record(&Event::Spool { severity: Severity::Error, text: &text });
        }
    }
    let now = queue.context.unix_now();
    for one in found {
        let FoundMessage::Waiting(FoundWaiting { id, filters, bytes, is_claimed }) = one else { continue };
        let is_replaced = is_claimed && replaced.contains(&id);
        // Recipients without a verdict have stayed in it.
        if is_replaced && !has_waiting(queue, id) {
            continue;
        }
        if is_claimed
            && !is_replaced
            && let Err(why) = put_back(queue, id, &filters).await
        {
            let text =
                format!("message {id}, which filters were about to change, stays held until the next start: {why}");
            queue.context.record(&Event::Spool { severity: Severity::Error, text: &text });
            continue;
        }
        queue.backlog().add(id, &filters.join(","), bytes, now);
    }
}

/// Returns whether a recipient of the message waits for filters.
fn has_waiting(queue: &ScreenQueue, id: QueueId) -> bool {
    let spool = &queue.dispatch.spool;
    let states = spool.states(id);
    let mut held = states.iter().filter(|(entry, _)| entry.state.status == Status::Held);
    held.any(|(entry, _)| spool.hold(id, entry.recipient).is_some_and(|hold| hold.kind() == HoldKind::Screen))
}

/// Looks through the queue. Blocks.
fn find(spool: &Spool) -> Vec<FoundMessage> {
    let mut ids = spool.messages();
    ids.sort_unstable();
    ids.into_iter().filter_map(|id| found(spool, id)).collect()
}

fn found(spool: &Spool, id: QueueId) -> Option<FoundMessage> {
    let states = spool.states(id);
    let holds = states.iter().filter(|(entry, _)| entry.state.status == Status::Held);
    let holds: Vec<Hold> = holds.filter_map(|(entry, _)| spool.hold(id, entry.recipient)).collect();
    let is_claimed = holds.iter().any(|hold| hold.kind() == HoldKind::Replacement);
    let hold = holds.iter().find(|hold| hold.kind().is_unscreened())?;
    let stored = spool.envelope(id).ok();
    let record = stored.as_ref().and_then(|stored| decode_screening(&stored.head).ok()?);
    let record = record.and_then(|text| ScreeningRecord::parse(&text).ok());
    if is_claimed && record.as_ref().is_none_or(|record| record.replaces.is_some()) {
        return Some(FoundMessage::Replacement(id, record.and_then(|record| record.replaces)));
    }
    // The list of filters may be longer than the reason has room for. Where the message cannot be read its worker says
    // so.
    let filters = record.map_or_else(|| hold.by().split(',').map(str::to_owned).collect(), |record| record.filters);
    Some(FoundMessage::Waiting(FoundWaiting {
        id,
        filters,
        bytes: stored.map_or(0, |stored| stored.body_bytes),
        is_claimed,
    }))
}

/// Ends the message whose place this one takes, and lets this one go.
async fn finish(queue: &ScreenQueue, id: QueueId) -> Result<(), String> {
    let stored = queue.dispatch.messages.reading.read(move |spool| spool.envelope(id)).await;
    let stored = stored.map_err(|why| why.to_string())?;
    let record = decode_screening(&stored.head).map_err(|error| error.to_string())?;
    let record = ScreeningRecord::parse(&record.ok_or("it has no record of screen")?)?;
    let old = record.replaces.ok_or("its record names no message")?;
    end_replaced(queue, old).await?;
    let recipients: Vec<(u32, State)> = held(&queue.dispatch.spool, &stored, id, HoldKind::Replacement)
        .into_iter()
        .map(|one| (one.position, one.state))
        .collect();
    let _held = let_go(queue, id, &recipients, record.then.as_ref()).await?;
    queue.dispatch.look_at(id);
    Ok(())
}
