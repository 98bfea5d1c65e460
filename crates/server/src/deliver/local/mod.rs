//! Mail for people, programs and files of this machine: the last stop of a message here.
//!
//! [`run`] is the life of a connection that leads nowhere else: it takes jobs as one to another host does, and has each
//! recipient delivered by [`deliver`]. The crate `local` writes mailboxes and runs programs; [`local_delivery`] chooses
//! the process that does it, and which orders are carried out together.
//!
//! Invariant: a recipient is done when its copy is durable, or a program has taken the message. A crash before that
//! is recorded repeats the delivery: a Maildir has one copy all the same, and so has a mailbox file that was not
//! changed since.

use ::local::order::{DeliveryEnd, DeliveryRequest, Verdict, What};
use ::local::privileged::HandoverResult;

use super::connect_error::ConnectError;
use super::{AttemptWork, settle};
use crate::context::Context;
use crate::dispatch::{ConnectTarget, ConnectionSignal};
use crate::local_delivery::{self, LocalJob, Source};
use crate::message::{Content, OutboundMessage};
use crate::outbound::Outbound;
use crate::settle::{AttemptOutcome, Cause};
use mail::{Address, EnhancedCode, Outcome, Recipient, Reply, ReplyCode};
use observe::{Event, NextHop, Severity};
use os::clock;
use route::destination::To;
use schedule::{ConnectionId, Feedback, Job, NextJob};
use spool::State;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinSet;

/// Delivers the mail of a queue until there is no work.
///
/// # Cancel safety
/// No: a delivery may stay unrecorded. The server's end waits for it.
pub(super) async fn run(mut work: AttemptWork<'_>, to: To, way: &ConnectTarget, post: &ConnectionSignal) {
    let (context, dispatch, connection) = (work.context, work.dispatch, work.connection);
    dispatch.reached(way, connection);
    while !context.stop.has_begun() && !post.is_called_off.load(Ordering::Acquire) {
        match dispatch.take(connection) {
            NextJob::Job(job) => {
                Box::pin(one(&mut work, &to, &job)).await;
                work.flush();
            }
            NextJob::Close => break,
            NextJob::Idle | NextJob::Later => {
                let idle_time = context.live.load().config.delivery.idle_time;
                tokio::select! {
                    () = post.bell.notified() => {}
                    () = context.stop.begun() => {}
                    () = tokio::time::sleep(idle_time) => break,
                }
            }
        }
    }
    drop(dispatch.closed(ConnectionId::clone(&connection)));
}

/// Carries out a job.
async fn one(work: &mut AttemptWork<'_>, to: &To, job: &Job) {
    let Some(mut outgoing) = work.load(job).await else { return };
    let now = work.context.now_of(&outgoing.envelope);
    if let Some(cause) = Cause::too_late(&outgoing.envelope, now) {
        return work
            .fail(job, &ConnectError { text: cause.text.to_string(), ..ConnectError::deferral((4, 7), String::new()) })
            .await;
    }
    let began = clock::now();
    let what = what_of(to);
    let fates = deliver(work.outbound, &what, &mut outgoing).await;
    let xdelay = clock::now().saturating_duration_since(began);
    let feedback = match fates.iter().any(|fate| matches!(fate, AttemptOutcome::Delivered(_))) {
        true => Feedback::Good,
        false => Feedback::Neutral,
    };
    let name = what.name();
    let attempt = settle::Attempt {
        is_final: true,
        name: name.as_deref(),
        owner: what.user().and_then(|user| work.context.routing.load().user(user)),
        ..outgoing.attempt(NextHop::None, what.mailer(), xdelay, false)
    };
    Box::pin(work.settle(job, &attempt, fates, feedback)).await;
}

fn what_of(to: &To) -> What {
    match to {
        To::Program { user, command } => What::Program { user: user.to_string(), command: command.to_string() },
        To::File { user, path } => What::File { user: user.to_string(), path: path.to_string() },
        To::Local | To::Domain(_) | To::Literal(_) | To::Hosts(_) | To::Error { .. } => What::Mailbox,
    }
}

/// Delivers a message to each of its recipients. Returns the result of each.
///
/// # Cancel safety
/// No: a delivery that has begun is finished, and its result is lost.
pub(crate) async fn deliver(outbound: &Outbound, what: &What, outgoing: &mut OutboundMessage) -> Vec<AttemptOutcome> {
    let context = &outbound.context;
    let mut tasks = JoinSet::new();
    for (at, recipient) in outgoing.envelope.recipients.iter().enumerate() {
        let Some((position, state)) = outgoing.positions.get(at) else { continue };
        let order = order_of(context, what, outgoing, recipient, (*position, *state));
        let letters = LocalJob { order, source: source_of(context, outgoing) };
        let local_delivery = Arc::clone(&outbound.local_delivery);
        tasks.spawn(async move { (at, local_delivery::deliver(local_delivery, letters).await) });
    }
    let broke_off = || Verdict::deferred((3, 0), "the delivering task broke off");
    let mut verdicts: Vec<Verdict> = outgoing.positions.iter().map(|_| broke_off()).collect();
    while let Some(joined) = tasks.join_next().await {
        let Ok((at, handed)) = joined else { continue };
        let verdict = match handed {
            HandoverResult::Verdict(verdict) => verdict,
            HandoverResult::Gone(verdict) => {
                context.record(&Event::Spool { severity: Severity::Critical, text: &verdict.text });
                verdict
            }
        };
        if let Some(place) = verdicts.get_mut(at) {
            *place = verdict;
        }
    }
    verdicts.into_iter().map(|verdict| fate(verdict.without_file_name(what))).collect()
}

/// Returns the content of a message for a thread that may wait.
fn source_of(context: &Context, outgoing: &OutboundMessage) -> Source {
    match (&outgoing.content, context.spool()) {
        (Content::Here(pieces), _) => Source::Here(pieces.iter().filter(|piece| !piece.is_empty()).cloned().collect()),
        (Content::Stored { .. }, Some(spool)) => {
            Source::Stored { spool: Arc::clone(spool), id: outgoing.envelope.id, read: 0, end: outgoing.content_bytes }
        }
        (Content::Stored { .. }, None) => Source::Here(VecDeque::new()),
    }
}

fn order_of(
    context: &Context,
    what: &What,
    outgoing: &OutboundMessage,
    recipient: &Recipient,
    (position, state): (u32, State),
) -> DeliveryRequest {
    let envelope = &outgoing.envelope;
    let address = &recipient.address;
    let at_us = clock::unix_us();
    let live = context.live.load();
    let config = &live.config;
    // Before this start it may have been begun, and nothing noted. The clock of the machine does not tell: it may have
    // been set since.
    let is_older = !context.message_store.has_named(envelope.id);
    let sender = envelope.sender.address().map(Address::to_string).unwrap_or_default();
    DeliveryRequest {
        what: what.clone(),
        unique: format!("{}R{position}", envelope.id),
        received: envelope.received.at_us / 1_000_000,
        host: config.hostname.clone(),
        sender,
        recipient: address.to_string(),
        local: address.local_part().as_str().to_owned(),
        domain: address.domain().to_string(),
        original: recipient.params.orcpt.as_ref().map(ToString::to_string).unwrap_or_default(),
        delimiter: config.local.delimiter.chars().next(),
        // The limit does not count our trace fields, nor fields that a filter may have added.
        header_max: config.message.header_bytes_max.saturating_mul(2).max(1 << 20),
        bytes: outgoing.content_bytes,
        is_again: state.tries() > 0 || is_older,
        date: mail::report::date_of_mbox(at_us, clock::local_offset_seconds(at_us)),
    }
}

fn fate(verdict: Verdict) -> AttemptOutcome {
    let Verdict { end, status: (subject, detail), text } = verdict;
    match end {
        DeliveryEnd::Delivered => {
            let code = ReplyCode::new(250).expect("250 is a code");
            AttemptOutcome::Delivered(Reply::new(code, Some(EnhancedCode::of(Outcome::Success, 0, 0)), ""))
        }
        DeliveryEnd::Deferred => {
            AttemptOutcome::Deferred(Cause::new(EnhancedCode::of(Outcome::Transient, subject, detail), text, None))
        }
        DeliveryEnd::Failed => {
            AttemptOutcome::Failed(Cause::new(EnhancedCode::of(Outcome::Permanent, subject, detail), text, None))
        }
    }
}
