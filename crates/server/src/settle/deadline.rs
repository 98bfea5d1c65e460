//! The time by which a message is to be delivered (BY of RFC 2852): what is left of it, and what it means when it is over.
//!
//! The envelope knows the time; nothing else is kept. It is looked at before an attempt and after one, and a recipient that
//! waits is never due behind it, so that somebody looks when it is over.

// RFC 2852 §4 (gap: no report that a message with BY was relayed to a host without DELIVERBY, nor for trace T)
// RFC 2852 §4 (gap: at a destination that is down the end of the time is seen at the next attempt, warning or giving up)

use super::Cause;
use mail::{Deadline, DeliverBy, EnhancedCode, Envelope, Outcome};
use std::time::Duration;

/// By when the message is to be delivered, since 1970; `None` without such a time.
#[must_use]
pub(crate) fn deadline(envelope: &Envelope) -> Option<Duration> {
    envelope.deliver_by().map(|(at, _)| at)
}

/// What a next hop is told of the time: what is left of it.
// RFC 2852 §4: lessened by the time that has passed here
#[must_use]
pub(crate) fn left(envelope: &Envelope, now: Duration) -> Option<DeliverBy> {
    let since = Duration::from_micros(envelope.id.unix_us());
    envelope.params.by?.after(now.saturating_sub(since).as_secs())
}

/// Why the message is not sent any more, if its time is over and it comes back then.
// RFC 2852 §4: mode R
#[must_use]
pub(crate) fn too_late(envelope: &Envelope, now: Duration) -> Option<Cause> {
    let (at, deadline) = envelope.deliver_by()?;
    if now < at || !matches!(deadline, Deadline::Return(_)) {
        return None;
    }
    // RFC 3463 §3.5: delivery time expired
    let status = EnhancedCode::of(Outcome::Permanent, 4, 7);
    let text = "the time by which the sender wanted it delivered is over (RFC 2852)".to_owned();
    Some(Cause::new(status, text, None).because(observe::Reason::Other))
}

/// Whether the sender is told now that the message is late.
// RFC 2852 §4: mode N
#[must_use]
pub(crate) fn is_late(envelope: &Envelope, now: Duration) -> bool {
    envelope.deliver_by().is_some_and(|(at, deadline)| now >= at && matches!(deadline, Deadline::Notify(_)))
}

/// When a recipient is due that would be due `then`: not behind the end of the time.
#[must_use]
pub(crate) fn capped(envelope: &Envelope, then: Duration, now: Duration) -> Duration {
    match deadline(envelope) {
        // Whole seconds, and never before the end.
        Some(at) if at > now => then.min(at + Duration::from_secs(1)),
        _ => then,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Client, MailParams, Node, Protocol, QueueIds, Received, ReversePath};

    const SECOND: u64 = 1_800_000_000;

    fn envelope(params: &str) -> Envelope {
        let id = QueueIds::new(Node::default()).next(SECOND * 1_000_000);
        let received = Received { at_us: 0, client: Client::Internal, helo: None, protocol: Protocol::Local };
        let params: MailParams = params.parse().unwrap();
        Envelope { id, sender: ReversePath::Null, params, received, recipients: Vec::new() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(SECOND + seconds)
    }

    // RFC 2852 §4 (test)
    #[test]
    fn the_time_runs_out() {
        let (back, told, none) = (envelope("BY=100;RT"), envelope("BY=100;N"), envelope(""));
        let left = |envelope, seconds| left(envelope, at(seconds)).map(|by| by.to_string());
        assert_eq!(left(&back, 0).as_deref(), Some("100;RT"));
        assert_eq!((left(&back, 99).as_deref(), left(&back, 101)), (Some("1;RT"), None));
        assert_eq!((left(&told, 130).as_deref(), left(&none, 1)), (Some("-30;N"), None));
        assert!(too_late(&back, at(99)).is_none() && too_late(&told, at(500)).is_none());
        assert_eq!(too_late(&back, at(101)).map(|cause| cause.status.to_string()).as_deref(), Some("5.4.7"));
        assert!(!is_late(&told, at(99)) && is_late(&told, at(101)) && !is_late(&back, at(101)));
        assert_eq!(capped(&back, at(5_000), at(10)), at(101));
        assert_eq!((capped(&back, at(50), at(10)), capped(&told, at(5_000), at(500))), (at(50), at(5_000)));
        assert_eq!((capped(&none, at(50), at(10)), deadline(&none)), (at(50), None));
        assert_eq!(too_late(&none, at(1 << 40)), None);
    }
}
