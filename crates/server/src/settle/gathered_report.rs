//! Makes the report on the results that the batcher has gathered ([`dsn_batcher`](super::dsn_batcher)), and records it.

use super::dsn_batcher::{Gathered, PendingReport};
use super::receipt::{owed_report, with_owed_report};
use super::{Attempt, AttemptOutcome, Cause, REPORT_AGAIN, Receipt, Settler};
use crate::completion_guard::CompletionGuard;
use crate::context::Context;
use crate::message::{LoadError, OutboundMessage};
use crate::next_hop::smart_hosts;
use mail::QueueId;
use observe::NextHop;
use schedule::Positions;
use spool::{Status, Store as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Returns whether the message may have more results to report with those of this attempt.
pub(super) fn may_have_more(context: &Context, attempt: &Attempt<'_>) -> bool {
    !attempt.is_told
        && attempt.recipients_left > attempt.positions.len()
        && attempt.envelope.sender.address().is_some()
        && !context.stop.has_begun()
}

/// Has the report made when its time comes.
pub(super) fn report_later(settler: &Arc<Settler>, id: QueueId) {
    report_after(settler, id, settler.dsn_batcher.patience(id));
}

fn report_after(settler: &Arc<Settler>, id: QueueId, pause: Duration) {
    let Some(queue) = settler.queue() else { return };
    let settler = Arc::clone(settler);
    queue.spawn(Box::pin(async move {
        tokio::select! {
            // Its recipients wait in the spool.
            () = settler.context.stop.begun() => {}
            () = tokio::time::sleep(pause) => report(&settler, id).await,
        }
    }));
}

/// Reports all that was kept of a message, and records it.
pub(super) async fn report(settler: &Arc<Settler>, id: QueueId) {
    let (fates, owed) = taken(settler, id);
    let positions: Vec<u32> = fates.keys().copied().collect();
    let (mut is_first, mut is_left) = (false, false);
    let untold = send_dsns(settler, id, fates).await.unwrap_or_else(|EnvelopeReadError| {
        is_left = true;
        BTreeMap::new()
    });
    for (position, fate) in untold {
        match settler.dsn_batcher.add(id, position, fate) {
            Gathered::First => is_first = true,
            Gathered::More => {}
            Gathered::No => is_left = true,
        }
    }
    settler.dsn_batcher.told(id, &positions);
    owed.complete();
    if is_first {
        report_after(settler, id, REPORT_AGAIN);
    }
    if is_left && let Some(queue) = settler.queue() {
        queue.look_at(id);
    }
}

/// Takes the results of a message. If the report breaks off, the results are forgotten as in a crash: their
/// recipients are tried again.
fn taken(
    settler: &Arc<Settler>,
    id: QueueId,
) -> (BTreeMap<u32, AttemptOutcome>, CompletionGuard<impl FnOnce() + use<>>) {
    let fates = settler.dsn_batcher.take(id);
    let (settler, positions) = (Arc::clone(settler), fates.keys().copied().collect::<Vec<u32>>());
    let forget = move || {
        settler.dsn_batcher.told(id, &positions);
        if let Some(queue) = settler.queue() {
            queue.look_at(id);
        }
    };
    (fates, CompletionGuard::new(forget))
}

/// The message cannot be read: the next attempt reports that.
struct EnvelopeReadError;

/// Reports to the sender, and records it. Returns the recipients without a report, with their results.
async fn send_dsns(
    settler: &Arc<Settler>,
    id: QueueId,
    mut fates: BTreeMap<u32, AttemptOutcome>,
) -> Result<BTreeMap<u32, AttemptOutcome>, EnvelopeReadError> {
    let positions: Vec<u32> = fates.keys().copied().collect();
    // The report leaves out recipients that were held, deleted or delivered meanwhile. It leaves out a delivery that
    // is not recorded yet as well: a walk finds it.
    let mut outgoing =
        match OutboundMessage::load_to_tell(&settler.messages, id, &Positions::from(positions.as_slice())).await {
            Ok(outgoing) => outgoing,
            Err(LoadError::Nothing) => return Ok(BTreeMap::new()),
            Err(_) => return Err(EnvelopeReadError),
        };
    outgoing.retain(|position, state| {
        let is_owed = matches!(fates.get(&position), Some(AttemptOutcome::Receipt(_)));
        is_owed == state.owed().is_some()
    });
    if outgoing.positions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let there: Vec<AttemptOutcome> =
        outgoing.positions.iter().filter_map(|(position, _)| fates.get(position).cloned()).collect();
    let mailer = smart_hosts::mailer(&settler.context.live.load().config.route);
    let attempt = outgoing.attempt(NextHop::None, mailer, Duration::ZERO, false);
    let attempt = Attempt { is_try: false, is_told: true, ..attempt };
    let changes = super::settle(settler, &attempt, there).await.changes;
    if settler.spool.record(&changes).is_err() {
        return Ok(fates);
    }
    let is_untold = |change: &&spool::Change| {
        let word = fates.get(&change.recipient).map(PendingReport::of);
        let waits = change.state.status == Status::Waiting;
        change.state.status == Status::Owed
            || waits && (word == Some(PendingReport::Failed) || !change.state.is_warned())
    };
    let untold: BTreeSet<u32> = changes.iter().filter(is_untold).map(|change| change.recipient).collect();
    fates.retain(|position, _| untold.contains(position));
    Ok(fates)
}

/// Adds owed reports to the kept results, as after a start, or where there was no room: they go into one report with
/// others. Returns the time for which another look makes no sense; zero if the report comes by itself.
pub(crate) fn report_owed(settler: &Arc<Settler>, id: QueueId, recipients: &Positions) -> Duration {
    let mut is_first = false;
    let mut crowded = Vec::new();
    for position in recipients.iter().filter(|position| settler.dsn_batcher.pending_report(id, *position).is_none()) {
        match settler.dsn_batcher.add(id, position, AttemptOutcome::Receipt(Receipt::default())) {
            Gathered::First => is_first = true,
            Gathered::More => {}
            Gathered::No => crowded.push(position),
        }
    }
    if is_first {
        report_later(settler, id);
    }
    if crowded.is_empty() {
        return Duration::ZERO;
    }
    // So that not every walk finds them again.
    let later = settler.context.unix_now() + REPORT_AGAIN;
    let change = |(entry, _): (spool::Entry, bytes::Bytes)| {
        let state = with_owed_report(entry.state, owed_report(entry.state)?, later)?;
        Some(spool::Change { id, recipient: entry.recipient, state, destination: None })
    };
    let changes: Vec<_> = settler.spool.states_of(id, crowded).into_iter().filter_map(change).collect();
    // If that cannot be recorded, every walk finds them.
    drop(settler.spool.record(&changes));
    REPORT_AGAIN
}

/// Returns how a report names the host of an attempt, for all of its recipients.
pub(super) fn host_of(next_hop: &NextHop<'_>) -> Option<Arc<str>> {
    let host = super::report::remote(next_hop);
    (!host.is_empty()).then(|| Arc::from(host))
}

impl Cause {
    /// Adds the host that said it.
    pub(super) fn said_by(self, host: Option<&Arc<str>>) -> Self {
        Self { host: host.cloned(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{EnhancedCode, Outcome};

    #[test]
    fn a_telling_that_breaks_off_leaves_nobody_as_if_he_were_told() {
        let (dispatch, _spool) = crate::dispatch::Dispatch::trial(crate::config::Config::default());
        let dsn_batcher = &dispatch.settler.dsn_batcher;
        let cause = Cause::new(EnhancedCode::of(Outcome::Permanent, 1, 1), "gone", None);
        for is_paid in [false, true] {
            dsn_batcher.add(QueueId::MIN, 3, AttemptOutcome::Failed(cause.clone()));
            let (fates, owed) = taken(&dispatch.settler, QueueId::MIN);
            assert_eq!((fates.len(), dsn_batcher.pending_report(QueueId::MIN, 3)), (1, Some(PendingReport::Failed)));
            if is_paid {
                owed.complete();
            } else {
                drop(owed);
            }
            assert_eq!(dsn_batcher.pending_report(QueueId::MIN, 3), is_paid.then_some(PendingReport::Failed));
        }
    }
}
