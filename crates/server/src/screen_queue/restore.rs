//! Finds the messages that wait for filters after a start. Messages that take the place of others come first, so that
//! no message is screened whose verdict is stored.

use super::ScreenQueue;
use super::apply::{end_replaced, let_go};
use super::record::ScreeningRecord;
use super::waiting::held;
use mail::QueueId;
use observe::{Event, Severity};
use spool::envelope::decode_screening;
use spool::{HoldKind, Spool, State, Status, Store as _};

/// A message that a start has found.
#[derive(Debug)]
enum FoundMessage {
    /// It waits for these filters, and has so many octets.
    Waiting(QueueId, String, u64),
    /// It takes the place of another.
    Replacement(QueueId),
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
    for one in &found {
        if let FoundMessage::Replacement(id) = one
            && let Err(why) = finish(queue, *id).await
        {
            let text = format!("message {id}, which filters have changed, stays held until the next start: {why}");
            queue.context.record(&Event::Spool { severity: Severity::Error, text: &text });
        }
    }
    let now = queue.context.unix_now();
    let mut backlog = queue.backlog();
    for one in found {
        if let FoundMessage::Waiting(id, chain, bytes) = one {
            backlog.add(id, &chain, bytes, now);
        }
    }
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
    let hold = holds.filter_map(|(entry, _)| spool.hold(id, entry.recipient)).find(|one| one.kind().is_unscreened())?;
    if hold.kind() == HoldKind::Replacement {
        return Some(FoundMessage::Replacement(id));
    }
    // The list of filters may be longer than the reason has room for. Where the message cannot be read its worker says
    // so.
    let stored = spool.envelope(id).ok();
    let record = stored.as_ref().and_then(|stored| decode_screening(&stored.head).ok()?);
    let record = record.and_then(|text| ScreeningRecord::parse(&text).ok());
    let chain = record.map_or_else(|| hold.by().to_owned(), |record| record.filters.join(","));
    Some(FoundMessage::Waiting(id, chain, stored.map_or(0, |stored| stored.body_bytes)))
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
    let_go(queue, id, &recipients, record.then.as_ref()).await?;
    queue.dispatch.look_at(id);
    Ok(())
}
