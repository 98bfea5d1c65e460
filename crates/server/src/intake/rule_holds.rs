//! Holds new mail by the rules of operators (`mailrace queue hold --rule`, `queue suspend`).
//!
//! A message is stored in one state for all recipients. Where rules hold some of them it is stored held by
//! [`SORTING`], and sorted once it is durable: those that a rule holds are held by it, the others are let go. A crash
//! in between leaves it held by that name, and the next start sorts it ([`sort_after_start`]).

use super::content::FinishedContent;
use super::new_message::{NewMessage, report_waiting};
use crate::context::Context;
use crate::routing::expansions::MEMBERS_AT_ONCE;
use crate::steering::holds_of;
use mail::{Envelope, QueueId};
use observe::{Event, Severity};
use operator::queue::Steering;
use os::blocking;
use schedule::Class;
use spool::{Change, Commit, Error, Hold, HoldKind, Spool, State, Status, Store as _};
use std::collections::HashMap;
use std::sync::Arc;

/// Holds a message that is being sorted by rules.
const SORTING: &str = "hold-rules";
/// Holds a message whose comparison with rules panicked. The next start leaves it as it is: it would panic again.
const FAILED: &str = "hold-rules-failed";

/// A message that is stored and not sorted yet.
#[derive(Debug)]
pub(super) struct UnsortedMessage {
    envelope: Arc<Envelope>,
    /// The state in which recipients begin that no rule holds.
    first: State,
    /// The hold of each recipient.
    holds: Vec<Option<Hold>>,
}

/// Has messages begin held that rules hold, unless they are held anyway. Returns also those that
/// [`release_others`] has to sort.
pub(super) async fn set_rule_holds(
    context: &Arc<Context>,
    orders: &Arc<Steering>,
    mut messages: Vec<(NewMessage, FinishedContent)>,
) -> (Vec<(NewMessage, FinishedContent)>, Vec<UnsortedMessage>) {
    if orders.rules().is_empty() {
        return (messages, Vec::new());
    }
    let now = context.unix_now();
    let mut unsorted = Vec::new();
    for (message, _) in &mut messages {
        if message.first.status == Status::Held {
            continue;
        }
        let holds = match message.encoded.len() > MEMBERS_AT_ONCE {
            false => Some(holds_of(orders, &message.envelope, message.class, destinations(message), now)),
            true => {
                let (orders, message) = (Arc::clone(orders), message.clone());
                let compare = move || holds_of(&orders, &message.envelope, message.class, destinations(&message), now);
                // The panic hook reports a panic.
                blocking::run(compare).await.ok()
            }
        };
        match holds {
            Some(holds) => unsorted.extend(set_holds(message, holds)),
            None => message.hold(failed()),
        }
    }
    (messages, unsorted)
}

fn failed() -> Hold {
    let text = "could not be compared with the rules of operators, by a fault of the server that its log names; \
                \"mailrace queue release\" lets it go";
    Hold::new(HoldKind::Server, FAILED, text)
}

fn destinations(message: &NewMessage) -> impl Iterator<Item = &[u8]> {
    (0..message.envelope.recipients.len()).map(|position| message.encoded.destination(position))
}

/// Has a message begin held whose recipients have these holds; returns it if they are not all the same.
fn set_holds(message: &mut NewMessage, holds: Vec<Option<Hold>>) -> Option<UnsortedMessage> {
    let first = holds.iter().flatten().next()?.clone();
    if holds.iter().all(|hold| hold.as_ref() == Some(&first)) {
        message.hold(first);
        return None;
    }
    let unsorted = UnsortedMessage { envelope: Arc::clone(&message.envelope), first: message.first, holds };
    message.first.status = Status::Held;
    message.held = Some(Hold::new(HoldKind::Server, SORTING, "is being compared with the rules of operators"));
    message.is_partly_held = true;
    Some(unsorted)
}

/// Sorts messages that are durable: in force when this returns, durable soon.
pub(super) fn release_others(context: &Context, unsorted: &[UnsortedMessage]) {
    let Some(spool) = context.spool() else { return };
    for UnsortedMessage { envelope, first, holds } in unsorted {
        let recipients = (0..).zip(holds).map(|(position, hold)| (position, *first, hold.clone()));
        match sort(spool, envelope.id, recipients) {
            Ok(_) => report_held(context, envelope, holds),
            Err(error) => report_unsorted(context, envelope.id, &error),
        }
    }
}

/// Holds each recipient that has a hold, and lets the others wait. Returns the last change.
fn sort(
    spool: &Spool,
    id: QueueId,
    recipients: impl Iterator<Item = (u32, State, Option<Hold>)>,
) -> Result<Option<Commit>, Error> {
    let mut groups: HashMap<Option<Hold>, Vec<Change>> = HashMap::new();
    for (recipient, state, hold) in recipients {
        let status = if hold.is_some() { Status::Held } else { Status::Waiting };
        let state = State { status, ..state };
        groups.entry(hold).or_default().push(Change { id, recipient, state, destination: None });
    }
    let mut last = None;
    for (hold, changes) in groups {
        last = Some(match &hold {
            Some(hold) => spool.record_hold(&changes, hold)?,
            None => spool.record(&changes)?,
        });
    }
    Ok(last)
}

/// Logs the recipients that rules hold, those of one rule together.
fn report_held(context: &Context, envelope: &Envelope, holds: &[Option<Hold>]) {
    let mut held: HashMap<&Hold, Vec<mail::Recipient>> = HashMap::new();
    for (recipient, hold) in envelope.recipients.iter().zip(holds) {
        if let Some(hold) = hold {
            held.entry(hold).or_default().push(recipient.clone());
        }
    }
    for (hold, recipients) in held {
        let envelope = Envelope { recipients, ..envelope.clone() };
        report_waiting(context, &envelope, 0, 0, Some(hold.text()));
    }
}

fn report_unsorted(context: &Context, id: QueueId, error: &Error) {
    let text = format!(
        "{id}: rules of operators hold some of its recipients, and the others could not be let go: {error}; all are \
         held until the next start, or \"mailrace queue release {id}\""
    );
    context.record(&Event::Spool { severity: Severity::Error, text: &text });
}

/// Sorts messages that a crash left unsorted, by the rules in force. Returns their ids; durable on return. Blocks.
pub(crate) fn sort_after_start(context: &Context) -> Vec<QueueId> {
    // Without held mail there is none to sort, and a long queue is not read through.
    let Some(spool) = context.spool().filter(|spool| spool.statistics().held > 0) else { return Vec::new() };
    let orders = context.steering.orders();
    let mut sorted = Vec::new();
    for id in spool.messages() {
        let unsorted: Vec<(u32, State)> = spool
            .states(id)
            .into_iter()
            .filter(|(entry, _)| entry.state.status == Status::Held)
            .filter(|(entry, _)| spool.hold(id, entry.recipient).is_some_and(|hold| is_sorting(&hold)))
            .map(|(entry, _)| (entry.recipient, entry.state))
            .collect();
        if unsorted.is_empty() {
            continue;
        }
        let done = sort_stored(context, spool, &orders, id, &unsorted);
        match done.map(|commit| commit.map_or(Ok(()), |commit| commit.wait())) {
            Ok(Ok(())) => sorted.push(id),
            Ok(Err(error)) | Err(error) => report_unsorted(context, id, &error),
        }
    }
    sorted
}

fn is_sorting(hold: &Hold) -> bool {
    hold.kind() == HoldKind::Server && hold.by() == SORTING
}

fn sort_stored(
    context: &Context,
    spool: &Spool,
    orders: &Steering,
    id: QueueId,
    unsorted: &[(u32, State)],
) -> Result<Option<Commit>, Error> {
    let stored = spool.envelope(id)?;
    let places: HashMap<u32, &spool::StoredRecipient> =
        stored.recipients.iter().map(|one| (one.position, one)).collect();
    let Ok(envelope) = spool::envelope::decode(id, &stored) else { return Ok(None) };
    let known: HashMap<u32, mail::Recipient> =
        stored.recipients.iter().map(|one| one.position).zip(envelope.recipients.iter().cloned()).collect();
    let hold = |position: u32, state: State| {
        let (recipient, place) = (known.get(&position)?.clone(), places.get(&position)?);
        let one = Envelope { recipients: vec![recipient], ..envelope.clone() };
        let class = Class::from_bits(state.class());
        holds_of(orders, &one, class, std::iter::once(&*place.destination), context.unix_now()).pop().flatten()
    };
    sort(spool, id, unsorted.iter().map(|(position, state)| (*position, *state, hold(*position, *state))))
}
