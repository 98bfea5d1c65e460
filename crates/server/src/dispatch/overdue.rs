//! Overdue mail: mail that waited too long at a destination that is down is not tried, so the walk over its queue
//! finds its age, and the scheduler's clock the end of a time that its sender gave. Besides, reports that are owed
//! for delivered mail.

use super::Dispatch;
use super::reservations::Reservation;
use crate::completion_guard::CompletionGuard;
use crate::context::Context;
use crate::deadline;
use crate::message::{LoadError, OutboundMessage};
use crate::next_hop::smart_hosts;
use crate::settle::{self, Attempt, AttemptOutcome, Cause};
use mail::{EnhancedCode, Envelope, Outcome, QueueId, Reply, ReplyClass};
use observe::{Event, NextHop, Severity};
use schedule::{DestinationId, Health, Overdue, Positions};
use spool::{Change, Status, Store as _};
use std::sync::Arc;
use std::time::Duration;

/// When it is looked again after a time that is over by one clock and not by another.
const CLOCK_AGAIN: Duration = Duration::from_secs(1);

/// Settles recipients that are overdue, and tells the scheduler, which gets an answer whatever becomes of this.
pub(crate) fn answer_overdue(
    dispatch: Arc<Dispatch>,
    (destination, name): (DestinationId, Arc<[u8]>),
    message: QueueId,
    recipients: Positions,
    kind: Overdue,
) -> impl Future<Output = ()> + Send {
    let owed = CompletionGuard::new({
        let (dispatch, recipients) = (Arc::clone(&dispatch), recipients.clone());
        move || {
            if kind == Overdue::ByTime {
                let again = dispatch.now() + settle::REPORT_AGAIN;
                return dispatch.timed(destination, message, &recipients, Some(again));
            }
            dispatch.settled(destination, message, &recipients, kind, settle::REPORT_AGAIN);
        }
    });
    async move {
        // Closed never.
        let permit = dispatch.tellings.acquire().await;
        if kind == Overdue::ByTime {
            let again = settle_by_time(&dispatch, &name, message, &recipients).await;
            drop(permit);
            owed.complete();
            return dispatch.timed(destination, message, &recipients, again);
        }
        let pause = settle(&dispatch, &name, message, &recipients, kind).await;
        drop(permit);
        owed.complete();
        dispatch.settled(destination, message, &recipients, kind, pause);
    }
}

/// Reports to the sender, and records the report. Returns the time until another look makes sense: none if the report
/// is made, and otherwise until it can be tried again, or until the message is as old as the walk took it to be.
///
/// Nothing is done for recipients that do not wait any more, nor are owed a report.
async fn settle(
    dispatch: &Arc<Dispatch>,
    destination: &[u8],
    message: QueueId,
    recipients: &Positions,
    kind: Overdue,
) -> Duration {
    if dispatch.context.message_store.pressure() == spool::Pressure::Poisoned {
        return settle::REPORT_AGAIN;
    }
    if kind == Overdue::Owed {
        return settle::report_owed(&dispatch.settler, message, recipients);
    }
    let (outgoing, _claim) = match load(dispatch, message, recipients).await {
        Ok(Some(loaded)) => loaded,
        Ok(None) => return Duration::ZERO,
        Err(OverdueReadError) => return settle::REPORT_AGAIN,
    };
    // RFC 4865 §4.2: what is held until a time grows no older before it
    if let Some(pause) = younger_than_thought(&dispatch.context, &outgoing.envelope, kind) {
        return pause;
    }
    let told = report_expired(dispatch, destination, &outgoing).await;
    if told == ExpiryReport::No { settle::REPORT_AGAIN } else { Duration::ZERO }
}

/// Returns to the sender, or reports as delayed, mail that is not delivered by the time that the sender gave. Returns
/// when to look again: never if the recipients do not wait any more, at [`Duration::MAX`] if they have no time that
/// is to come.
async fn settle_by_time(
    dispatch: &Arc<Dispatch>,
    destination: &[u8],
    message: QueueId,
    recipients: &Positions,
) -> Option<Duration> {
    // The wall clock may be behind that of the scheduler.
    let soon = dispatch.now() + CLOCK_AGAIN;
    let later = dispatch.now() + settle::REPORT_AGAIN;
    if dispatch.context.message_store.pressure() == spool::Pressure::Poisoned {
        return Some(later);
    }
    let (outgoing, _claim) = match load(dispatch, message, recipients).await {
        Ok(loaded) => loaded?,
        Err(OverdueReadError) => return Some(later),
    };
    let Some(at) = deadline::to_come(&outgoing.envelope) else { return Some(Duration::MAX) };
    let at = dispatch.clock.time_of(&outgoing.envelope, at);
    if dispatch.context.unix_now() < at {
        return Some(at.max(soon));
    }
    match report_expired(dispatch, destination, &outgoing).await {
        ExpiryReport::Done => None,
        ExpiryReport::Waits => Some(Duration::MAX),
        ExpiryReport::Soon | ExpiryReport::No => Some(later),
    }
}

/// It cannot be read, and the log tells the operator; or another node may own it.
struct OverdueReadError;

/// Reads overdue recipients, and reserves them; `None` if none of them waits any more, or their failure goes into a
/// report.
async fn load(
    dispatch: &Arc<Dispatch>,
    message: QueueId,
    recipients: &Positions,
) -> Result<Option<(OutboundMessage, Reservation)>, OverdueReadError> {
    if !dispatch.may_start_now(message) {
        return Err(OverdueReadError);
    }
    let is_open = |position: &u32| !dispatch.settler.has_last_result(message, *position);
    let recipients: Vec<u32> = recipients.iter().filter(is_open).collect();
    let claim = Reservation::overdue(dispatch, message, &recipients);
    if claim.recipients.is_empty() {
        return Ok(None);
    }
    match OutboundMessage::load(&dispatch.messages, message, &Positions::from(claim.recipients.as_slice())).await {
        Ok(outgoing) => Ok(Some((outgoing, claim))),
        Err(LoadError::Nothing) => Ok(None),
        Err(LoadError::Unread(why)) => {
            let text = format!("message {message} is overdue and cannot be read: {why}; {}", why.advice());
            dispatch.context.record(&Event::Spool { severity: Severity::Error, text: &text });
            Err(OverdueReadError)
        }
    }
}

/// Result of a report on overdue mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpiryReport {
    /// All recipients are done.
    Done,
    /// Some recipients wait on, and their sender was warned or did not ask for it.
    Waits,
    /// The report goes out with results of others; until then the batcher adapts the entries of the spool.
    Soon,
    /// It could not be stored or recorded.
    No,
}

/// Settles by its age mail that was not tried, and records it.
async fn report_expired(dispatch: &Arc<Dispatch>, destination: &[u8], outgoing: &OutboundMessage) -> ExpiryReport {
    let message = outgoing.envelope.id;
    let down = dispatch.lock().scheduler.destination_view(destination).map(|view| view.health);
    // Each recipient has his own reason; a host that cannot be reached is the reason of all.
    let fate = |position: u32| {
        let why = match &down {
            Some(Health::Down { why, .. }) => Some(Arc::clone(why)),
            _ => dispatch.settler.reasons.get(message, position).map(|(_, text)| text),
        };
        AttemptOutcome::Deferred(cause(why.as_deref()))
    };
    let fates = outgoing.positions.iter().map(|(position, _)| fate(*position)).collect();
    let mailer = smart_hosts::mailer(&dispatch.context.live.load().config.route);
    let attempt = Attempt { is_try: false, ..outgoing.attempt(NextHop::None, mailer, Duration::ZERO, false) };
    let changes = settle::settle(&dispatch.settler, &attempt, fates).await.changes;
    // If it cannot be recorded, the next walk finds it again.
    let waits = |change: &&Change| change.state.status == Status::Waiting;
    let untold: Vec<&Change> = changes.iter().filter(waits).filter(|change| !change.state.is_warned()).collect();
    let is_kept = |change: &&Change| dispatch.settler.dsn_batcher.pending_report(message, change.recipient).is_some();
    match dispatch.spool.record(&changes).is_ok() {
        true if !untold.is_empty() && untold.iter().all(is_kept) => ExpiryReport::Soon,
        true if untold.is_empty() && changes.iter().any(|change| waits(&change)) => ExpiryReport::Waits,
        true if untold.is_empty() => ExpiryReport::Done,
        _ => ExpiryReport::No,
    }
}

/// Returns the time until a message is overdue if it is not yet: it was held until a time and is younger than `kind`
/// says, or its sender wants no report of a delay before then.
fn younger_than_thought(context: &Context, envelope: &Envelope, kind: Overdue) -> Option<Duration> {
    let wants_to_hear = deadline::wants_to_hear(envelope);
    if envelope.release_at().is_none() && wants_to_hear.is_none() {
        return None;
    }
    let live = context.live.load();
    let delivery = &live.config.delivery;
    let given_up = envelope.waits_since() + delivery.give_up_after;
    let at = match (kind, wants_to_hear) {
        (Overdue::Warn, Some(at)) => at.min(given_up),
        (Overdue::Warn, None) => given_up.min(envelope.waits_since() + delivery.warn_after),
        _ => given_up,
    };
    let left = at.saturating_sub(context.now_of(envelope));
    (!left.is_zero()).then_some(left)
}

/// Returns the cause by the last try; takes out the reply where the text is one.
fn cause(why: Option<&str>) -> Cause {
    // RFC 3463 §3.5: delivery time expired
    let status = EnhancedCode::of(Outcome::Transient, 4, 7);
    let Some(why) = why else {
        let text = "it could not be delivered, and the last reason is not known any more".to_owned();
        return Cause::new(status, text, None);
    };
    let reply = Reply::parse(format!("{why}\r\n").as_bytes(), 1_024).ok();
    let reply = reply.filter(|reply| reply.code().class() == ReplyClass::Transient);
    let status = reply.as_ref().and_then(Reply::enhanced).unwrap_or(status);
    Cause::new(status, why.to_owned(), reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_among_the_words_is_found() {
        let told = cause(Some("452 4.2.2 Mailbox full"));
        assert_eq!(
            (told.status.to_string().as_str(), told.reply.map(|reply| reply.code().get())),
            ("4.2.2", Some(452))
        );
        for words in ["Connection refused by [127.0.0.1]", "550 5.1.1 gone", ""] {
            let told = cause(Some(words));
            assert_eq!((told.status.to_string().as_str(), told.reply), ("4.4.7", None), "{words}");
        }
        assert_eq!(cause(None).reply, None);
    }
}
