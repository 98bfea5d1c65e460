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
use mail::{EnhancedCode, Envelope, Outcome};
use observe::{NextHop, Reason};
use operator::queue::{BounceError, Bounced, RecipientSelection};
use spool::{Status, Store as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

impl Dispatch {
    /// Has recipients bounced. The receiver gets an answer when all of it is durable; none, if the server ends before
    /// it begins.
    pub(crate) fn bounce_some(&self, meant: Vec<RecipientSelection>, why: Arc<str>) -> oneshot::Receiver<Vec<Bounced>> {
        let (answer, heard) = oneshot::channel();
        self.send(Task::Bounce { meant, why, answer });
        heard
    }
}

/// Bounces recipients of several messages, each message for itself: their reports go to the disk together.
pub(crate) async fn bounce(dispatch: &Arc<Dispatch>, meant: Vec<RecipientSelection>, why: &Arc<str>) -> Vec<Bounced> {
    let mut tasks = JoinSet::new();
    for meant in meant {
        let (dispatch, why) = (Arc::clone(dispatch), Arc::clone(why));
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

async fn one(dispatch: &Arc<Dispatch>, meant: &RecipientSelection, why: &Arc<str>) -> Bounced {
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
    // RFC 3463 §3.1: other undefined status
    let status = EnhancedCode::of(Outcome::Permanent, 0, 0);
    let fate = AttemptOutcome::Failed(Cause::new(status, Arc::clone(why), None).with_reason(Reason::Other));
    let fates = vec![fate.clone(); outgoing.positions.len()];
    let live = dispatch.context.live.load_full();
    let mailer = smart_hosts::mailer(&live.config.route);
    let attempt = outgoing.attempt(NextHop::None, mailer, Duration::ZERO, false);
    // Logged below, when it is known which recipients are done.
    let attempt = Attempt { is_try: false, is_told: true, ..attempt };
    let changes = settle::settle(&dispatch.settler, &attempt, fates).await.changes;
    let recorded = match dispatch.spool.record(&changes) {
        Ok(commit) => commit.await,
        Err(error) => Err(error),
    };
    if let Err(error) = recorded {
        bounced.trouble = Some(BounceError::NotStored(error.to_string()));
        return bounced;
    }
    // Changes, positions and recipients are in the same order, one for each.
    let (mut positions, mut recipients) = (Vec::new(), Vec::new());
    let postmaster = live.config.postmaster();
    for ((change, place), recipient) in changes.iter().zip(&outgoing.positions).zip(&outgoing.envelope.recipients) {
        let is_last = outgoing.envelope.sender.address().is_none() && recipient.address.key() == postmaster.key();
        match change.state.status {
            Status::Done => {
                bounced.done.push(change.recipient);
                positions.push(*place);
                recipients.push(recipient.clone());
            }
            // A report to the postmaster that fails is held for a person, whatever state it had before.
            Status::Held if is_last => bounced.held += 1,
            Status::Held | Status::Waiting | Status::Owed => {
                let why = "the report on it found no room in the spool; the log says more";
                bounced.trouble = Some(BounceError::NotStored(why.to_owned()));
            }
        }
    }
    let envelope = Envelope { recipients, ..outgoing.envelope.clone() };
    settle::log_fate(&dispatch.settler, &Attempt { envelope: &envelope, positions: &positions, ..attempt }, &fate);
    if bounced.trouble.is_none() {
        claim.fulfilled();
    }
    bounced
}
