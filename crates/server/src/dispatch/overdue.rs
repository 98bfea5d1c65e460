//! Mail that waited too long at a destination that is down: nobody tries it, so its age is seen by the walk over its queue.

use super::Dispatch;
use crate::deliver::{Outgoing, Unfit};
use crate::resolve;
use crate::service::Service;
use crate::settle::{self, Attempt, Cause, Fate};
use mail::{EnhancedCode, Envelope, Outcome, QueueId, Reply, ReplyClass};
use observe::{Event, NextHop, Severity};
use schedule::{Health, Overdue, Positions};
use spool::{Status, Store as _};
use std::sync::Arc;
use std::time::Duration;

/// Tells the sender, and records what he was told. Returns how long it makes no sense to look again: not at all if he was
/// told, and otherwise until it can be tried again, or until the message is as old as was thought.
///
/// Nothing is done for recipients that do not wait any more.
pub(super) async fn settle(
    service: &Arc<Service>,
    dispatch: &Arc<Dispatch>,
    destination: &[u8],
    message: QueueId,
    recipients: &Positions,
    kind: Overdue,
) -> Duration {
    if service.keeper.pressure() == spool::Pressure::Poisoned {
        return settle::TELL_AGAIN;
    }
    let outgoing = match Outgoing::load(dispatch, message, recipients).await {
        Ok(outgoing) => outgoing,
        Err(Unfit::Nothing) => return Duration::ZERO,
        Err(Unfit::Unreadable(why)) => {
            let text =
                format!("message {message} is overdue and cannot be read: {why}; run mailrace spool verify on a copy");
            service.tell(&Event::Spool { severity: Severity::Error, text: &text });
            return settle::TELL_AGAIN;
        }
    };
    // RFC 4865 §4: what is held until a time grows no older before it
    if let Some(pause) = younger_than_thought(service, &outgoing.envelope, kind) {
        return pause;
    }
    let down = dispatch.lock().scheduler.state(destination).map(|view| view.health);
    // Each recipient has his own reason; a host that cannot be reached is the reason of all.
    let fate = |position: u32| {
        let why = match &down {
            Some(Health::Down { why, .. }) => Some(Arc::clone(why)),
            _ => dispatch.reasons.of(message, position).map(|(_, text)| text),
        };
        Fate::Deferred(cause(why.as_deref()))
    };
    let fates = outgoing.positions.iter().map(|(position, _)| fate(*position)).collect();
    let mailer = resolve::mailer(&service.live.load().config.route);
    let attempt = Attempt { is_try: false, ..outgoing.attempt(NextHop::None, mailer, Duration::ZERO, false) };
    let settled = settle::settle(service, &attempt, fates).await;
    let changes = settle::untried(settled.changes, &outgoing.positions);
    // If it cannot be recorded, the next walk finds it again.
    let is_told = changes.iter().all(|change| change.state.status != Status::Waiting || change.state.is_warned());
    if dispatch.spool.record(&changes).is_ok() && is_told { Duration::ZERO } else { settle::TELL_AGAIN }
}

/// How long a message that was held until a time has not waited yet for as long as `kind` says.
fn younger_than_thought(service: &Service, envelope: &Envelope, kind: Overdue) -> Option<Duration> {
    envelope.release_at()?;
    let live = service.live.load();
    let delivery = &live.config.delivery;
    let after = if kind == Overdue::Warn { delivery.warn_after } else { delivery.give_up_after };
    let left = (envelope.waits_since() + after).saturating_sub(service.unix_now());
    (!left.is_zero()).then_some(left)
}

/// What is known of the last try, with the reply taken out of its words where they are one.
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
