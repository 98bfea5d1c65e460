//! The lines of the log about attempts: one for the recipients that share a result.

use super::{Attempt, AttemptOutcome, Cause, RecipientDecision, Settler};
use crate::context::Context;
use mail::{EnhancedCode, Envelope, Outcome};
use observe::{Controller, Event, NextHop, Stat};
use spool::{State, Status};
use std::time::Duration;

/// Logs an attempt that failed because the destination cannot be reached.
pub(crate) fn log_deferred(settler: &Settler, attempt: &Attempt<'_>, cause: &Cause) {
    let reason = cause.reason(&settler.context.live.load().reasons);
    let cause = Cause { reason: Some(reason), ..cause.clone() };
    for (position, _) in attempt.positions {
        settler.reasons.remember(attempt.envelope.id, *position, Status::Waiting, reason, &cause.text);
        // Without a host nothing was attempted.
        if !matches!(attempt.next_hop, NextHop::None) {
            settler.reasons.count_unsent(attempt.envelope.id, *position);
        }
    }
    log_fate(settler, attempt, &AttemptOutcome::Deferred(cause));
}

/// Logs recipients with the same result.
pub(crate) fn log_fate(settler: &Settler, attempt: &Attempt<'_>, fate: &AttemptOutcome) {
    let judged = |(_, state): &(u32, State)| RecipientDecision { fate: fate.clone(), kind: None, state: *state };
    let judged: Vec<RecipientDecision> = attempt.positions.iter().map(judged).collect();
    log(settler, attempt, &judged);
}

/// Writes one line for the recipients that share a result.
pub(super) fn log(settler: &Settler, attempt: &Attempt<'_>, judged: &[RecipientDecision]) {
    let envelope = attempt.envelope;
    let delay = settler.context.age_of(envelope.id);
    let names: Vec<String> = envelope.recipients.iter().map(|one| format!("<{}>", one.address)).collect();
    let mut is_logged = vec![false; judged.len()];
    for (number, one) in judged.iter().enumerate() {
        // Mail that only grew old was logged when it was tried.
        if is_logged.get(number) == Some(&true) || !attempt.is_try && matches!(one.fate, AttemptOutcome::Deferred(_)) {
            continue;
        }
        let mut to = Vec::new();
        for ((other, name), logged) in judged.iter().zip(&names).zip(&mut is_logged).skip(number) {
            if !*logged && other.fate == one.fate {
                *logged = true;
                to.push(name.as_str());
            }
        }
        log_one(settler, attempt, &to, one, delay);
    }
}

fn log_one(settler: &Settler, attempt: &Attempt<'_>, to: &[&str], one: &RecipientDecision, delay: Duration) {
    let text;
    let reason = match &one.fate {
        AttemptOutcome::Delivered(_) | AttemptOutcome::Receipt(_) => None,
        AttemptOutcome::Deferred(cause) | AttemptOutcome::Failed(cause) => cause.reason,
    };
    let (dsn, reply, stat) = match &one.fate {
        AttemptOutcome::Delivered(reply) => {
            text = reply.lines().next().unwrap_or_default().to_owned();
            let dsn = reply.status().unwrap_or(EnhancedCode::of(Outcome::Success, 0, 0));
            (dsn, Some(reply), Stat::Sent(&text))
        }
        // The delivery was logged when it happened.
        AttemptOutcome::Receipt(_) => return,
        AttemptOutcome::Deferred(cause) => (cause.status, cause.reply.as_ref(), Stat::Deferred(&cause.text)),
        AttemptOutcome::Failed(cause) => {
            (cause.status.with_outcome(Outcome::Permanent), cause.reply.as_ref(), Stat::Failed(&cause.text))
        }
    };
    let name = attempt.name.map(|name| [name]);
    // As sendmail does: the owner of a program or a file; else the sender, where he has an account here.
    let sender = if name.is_none() { account_of_sender(&settler.context, attempt.envelope) } else { None };
    let (to, controller) = match (&name, &sender) {
        (Some(name), _) => {
            let address = to.first().copied();
            let to = if *name == [""] { to } else { name.as_slice() };
            (to, address.map(|address| Controller { address, owner: attempt.owner }))
        }
        (None, Some((address, owner))) => (to, Some(Controller { address, owner: Some(*owner) })),
        (None, None) => (to, None),
    };
    settler.context.record(&Event::Delivery {
        id: attempt.envelope.id,
        to,
        controller,
        delay,
        xdelay: attempt.xdelay,
        phases: attempt.phases,
        mailer: attempt.mailer,
        priority: crate::log::priority(
            attempt.content_bytes,
            attempt.recipients_left,
            one.state.tries().saturating_sub(1),
            0,
        ),
        relay: attempt.next_hop,
        dsn,
        reply,
        stat,
        reason,
    });
    if matches!(stat, Stat::Sent(_)) {
        settler.context.mailer_statistics.count_sent(attempt.mailer, attempt.content_bytes);
        settler.context.live_statistics.count_sent(attempt.content_bytes);
    }
}

/// Returns the sender of a message and the numbers of his account, if he has one here.
pub(crate) fn account_of_sender(context: &Context, envelope: &Envelope) -> Option<(String, (u32, u32))> {
    let sender = envelope.sender.address()?;
    let owner = context.routing.load().account_of(sender)?;
    Some((format!("<{sender}>"), owner))
}
