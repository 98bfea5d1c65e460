//! Carries out the effect of a verdict. Each function returns when its step is durable; `mod.rs` has the order.

use super::ScreenQueue;
use super::effect::{MessageEffect, RecipientEffect};
use super::record_changes::{record_from, released, report_dropped};
use super::replace::replace;
use super::waiting::WaitingMessage;
use crate::intake::{enqueue_stored, report_waiting};
use crate::routing::expansions::MEMBERS_AT_ONCE;
use crate::steering::holds_of;
use bytes::Bytes;
use mail::Envelope;
use operator::queue::Steering;
use os::blocking;
use schedule::Class;
use spool::{Change, Hold, HoldKind, State, Status};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Carries out the effect on a message.
///
/// # Errors
/// The spool takes nothing now, or a look-up failed: what is not done yet waits, and is screened again.
/// # Cancel safety
/// Yes: a start goes on where this ended.
pub(super) async fn apply(queue: &ScreenQueue, message: WaitingMessage, effect: MessageEffect) -> Result<(), String> {
    let MessageEffect::Judged { refused, undecided, others, changes } = effect else { return Ok(()) };
    let waiting = still_waiting(queue, &message);
    let apart: HashSet<usize> = refused.iter().map(|(number, _)| *number).chain(undecided).collect();
    let refused = refused.into_iter().filter(|(number, _)| waiting.contains(number));
    carry_out_each(queue, &message, refused).await?;
    let is_meant = |number: &usize| waiting.contains(number) && !apart.contains(number);
    let numbers: Vec<usize> = (0..message.recipients.len()).filter(is_meant).collect();
    match changes {
        _ if numbers.is_empty() => Ok(()),
        Some(verdict) => Box::pin(replace(queue, &message, &numbers, &verdict, others)).await,
        None if others == RecipientEffect::Deliver => Box::pin(let_pass(queue, &message, numbers)).await,
        None => carry_out(queue, &message, &numbers, &others).await,
    }
}

/// Carries out the effect on each recipient; those with the same effect share a record.
async fn carry_out_each(
    queue: &ScreenQueue,
    message: &WaitingMessage,
    effects: impl Iterator<Item = (usize, RecipientEffect)>,
) -> Result<(), String> {
    let mut groups: Vec<(RecipientEffect, Vec<usize>)> = Vec::new();
    for (number, effect) in effects {
        match groups.iter_mut().find(|(known, _)| *known == effect) {
            Some((_, numbers)) => numbers.push(number),
            None => groups.push((effect, vec![number])),
        }
    }
    for (effect, numbers) in &groups {
        carry_out(queue, message, numbers, effect).await?;
    }
    Ok(())
}

/// Lets recipients pass, but for those that rules of operators hold.
async fn let_pass(queue: &ScreenQueue, message: &WaitingMessage, numbers: Vec<usize>) -> Result<(), String> {
    // Held until all states are recorded: a suspension that is set meanwhile waits for them.
    let orders = queue.context.steering.orders();
    let holds = holds_by_rules(&orders, message, queue.context.unix_now()).await?;
    let effects = numbers.into_iter().map(|number| {
        let hold = holds.get(number).cloned().flatten();
        (number, hold.map_or(RecipientEffect::Deliver, RecipientEffect::Hold))
    });
    carry_out_each(queue, message, effects).await
}

/// Returns the hold of each recipient by rules of operators, as [`holds_of`]; of many recipients on a thread where that
/// blocks no connection.
async fn holds_by_rules(
    orders: &Arc<Steering>,
    message: &WaitingMessage,
    now: Duration,
) -> Result<Vec<Option<Hold>>, String> {
    if orders.rules().is_empty() {
        return Ok(Vec::new());
    }
    let (orders, envelope) = (Arc::clone(orders), message.envelope.clone());
    let class = Class::from_bits(message.first_state().class());
    let destinations: Vec<Bytes> = message.recipients.iter().map(|(_, _, destination)| destination.clone()).collect();
    let compare = move || holds_of(&orders, &envelope, class, destinations.iter().map(|name| &**name), now);
    match message.recipients.len() > MEMBERS_AT_ONCE {
        true => blocking::run(compare).await.map_err(|_| "comparing it with hold rules broke off".to_owned()),
        false => Ok(compare()),
    }
}

/// Returns the numbers of those recipients that wait still: an operator may have released or deleted some.
fn still_waiting(queue: &ScreenQueue, message: &WaitingMessage) -> HashSet<usize> {
    let (spool, id) = (&queue.dispatch.spool, message.envelope.id);
    let waits = |(position, ..): &(u32, State, Bytes)| {
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
    let change = |(recipient, state, _): &(u32, State, Bytes)| {
        // A report does not wait for the time that the sender gave.
        let due = if destination.is_some() { 0 } else { state.due };
        let state = State { status, due, ..*state };
        Change { id, recipient: *recipient, state, destination: destination.clone() }
    };
    let changes: Vec<Change> = numbers.iter().filter_map(|at| message.recipients.get(*at)).map(change).collect();
    let hold = if let RecipientEffect::Hold(hold) = effect { Some(hold) } else { None };
    let changed = record_from(queue, HoldKind::Screen, &changes, hold).await?;
    let is_changed = |number: &&usize| message.recipients.get(**number).is_some_and(|one| changed.contains(&one.0));
    let numbers: Vec<usize> = numbers.iter().filter(is_changed).copied().collect();
    if numbers.is_empty() {
        return Ok(());
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
