//! Bounces mail for an operator: recipients fail by his command, their senders get reports, and then they are done.
//!
//! The order is that of [`settle`]: a report is durable before its recipients are done. In between no connection
//! tries them ([`Reservation`]). Recipients that a connection has at that moment stay, and so do those with a report
//! in progress.

use super::Dispatch;
use super::reservations::Reservation;
use super::task::Task;
use crate::message::{LoadError, OutboundMessage};
use crate::next_hop::smart_hosts;
use crate::settle::{self, Attempt, AttemptOutcome, Cause};
use mail::{EnhancedCode, Envelope, Outcome, QueueId, Recipient};
use observe::{NextHop, Reason};
use operator::queue::{BounceError, Bounced, GiveUpReason, RecipientSelection};
use spool::{State, Status, Store as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

impl Dispatch {
    /// Has recipients bounced. The receiver gets an answer when all of it is durable; none, if the server ends before
    /// it begins.
    pub(crate) fn bounce_some(
        &self,
        meant: Vec<RecipientSelection>,
        why: GiveUpReason,
    ) -> oneshot::Receiver<Vec<Bounced>> {
        let (answer, heard) = oneshot::channel();
        self.send(Task::Bounce { meant, why, answer });
        heard
    }
}

/// Bounces recipients of several messages, each message for itself: their reports go to the disk together.
pub(crate) async fn bounce(
    dispatch: &Arc<Dispatch>,
    meant: Vec<RecipientSelection>,
    why: &GiveUpReason,
) -> Vec<Bounced> {
    let mut tasks = JoinSet::new();
    for meant in meant {
        let (dispatch, why) = (Arc::clone(dispatch), why.clone());
        tasks.spawn(async move {
            // Closed never.
            let _permit = dispatch.tellings.acquire().await;
            one(&dispatch, &meant, &why).await
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        // A task that broke off left its recipients waiting.
        all.extend(ended.ok());
    }
    all
}

async fn one(dispatch: &Arc<Dispatch>, meant: &RecipientSelection, why: &GiveUpReason) -> Bounced {
    let id = meant.id;
    let claim = Reservation::by_command(dispatch, id, &meant.recipients);
    let active = (meant.recipients.len() - claim.recipients.len()) as u64;
    let mut bounced = Bounced { id, done: Vec::new(), active, held: 0, trouble: None };
    if claim.recipients.is_empty() {
        return bounced;
    }
    let outgoing = match OutboundMessage::load_claimed(&dispatch.messages, id, &claim.recipients).await {
        Ok(outgoing) => outgoing,
        Err(LoadError::Nothing) => return bounced,
        Err(LoadError::Unread(why)) => {
            bounced.trouble = Some(BounceError::Unreadable(why.to_string()));
            return bounced;
        }
    };
    // Asked here, since reading may have taken a while: the sender must not be told of mail that another node delivers.
    if let Some(doubt) = dispatch.ownership_doubt(id) {
        bounced.trouble = Some(BounceError::NotOwned(doubt));
        return bounced;
    }
    let fates: Vec<AttemptOutcome> =
        outgoing.positions.iter().map(|(position, _)| fate(dispatch, id, *position, why)).collect();
    let live = dispatch.context.live.load_full();
    let mailer = smart_hosts::mailer(&live.config.route);
    let attempt = outgoing.attempt(NextHop::None, mailer, Duration::ZERO, false);
    // Logged below, when it is known which recipients are done.
    let attempt = Attempt { is_try: false, is_told: true, ..attempt };
    let changes = settle::settle(&dispatch.settler, &attempt, fates.clone()).await.changes;
    let recorded = match dispatch.spool.record(&changes) {
        Ok(commit) => commit.await,
        Err(error) => Err(error),
    };
    if let Err(error) = recorded {
        bounced.trouble = Some(BounceError::NotStored(error.to_string()));
        return bounced;
    }
    // Changes, positions and recipients are in the same order, one for each.
    let mut done: Vec<((u32, State), Recipient, AttemptOutcome)> = Vec::new();
    let postmaster = live.config.postmaster();
    let places = outgoing.positions.iter().zip(&outgoing.envelope.recipients).zip(fates);
    for (change, ((place, recipient), fate)) in changes.iter().zip(places) {
        let is_last = outgoing.envelope.sender.address().is_none() && recipient.address.key() == postmaster.key();
        match change.state.status {
            Status::Done => {
                bounced.done.push(change.recipient);
                done.push((*place, recipient.clone(), fate));
            }
            // A report to the postmaster that fails is held for a person, whatever state it had before.
            Status::Held if is_last => bounced.held += 1,
            Status::Held | Status::Waiting | Status::Owed => {
                let why = "the report on it found no room in the spool; the log says more";
                bounced.trouble = Some(BounceError::NotStored(why.to_owned()));
            }
        }
    }
    for same in done.chunk_by(|one, next| one.2 == next.2) {
        let Some((_, _, fate)) = same.first() else { continue };
        let positions: Vec<_> = same.iter().map(|(place, ..)| *place).collect();
        let recipients = same.iter().map(|(_, recipient, _)| recipient.clone()).collect();
        let envelope = Envelope { recipients, ..outgoing.envelope.clone() };
        settle::log_fate(&dispatch.settler, &Attempt { envelope: &envelope, positions: &positions, ..attempt }, fate);
    }
    if bounced.trouble.is_none() {
        claim.fulfilled();
    }
    bounced
}

/// Returns how a recipient fails that an operator gives up.
fn fate(dispatch: &Dispatch, id: QueueId, position: u32, why: &GiveUpReason) -> AttemptOutcome {
    let (status, text) = match why {
        // RFC 3463 §3.1: other undefined status
        GiveUpReason::Postmaster(text) => (EnhancedCode::of(Outcome::Permanent, 0, 0), Arc::clone(text)),
        // RFC 3463 §3.5: delivery time expired
        GiveUpReason::Expired => {
            let last = dispatch.settler.reasons.get(id, position).map(|(_, text)| format!("; last: {text}"));
            let text = format!("Delivery time expired, ended by the postmaster{}", last.unwrap_or_default());
            (EnhancedCode::of(Outcome::Permanent, 4, 7), Arc::from(text))
        }
    };
    AttemptOutcome::Failed(Cause::new(status, text, None).with_reason(Reason::Other))
}
