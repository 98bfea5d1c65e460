//! The time by which a message is to be delivered (BY of RFC 2852): the rest of it, and the effect of its end.
//!
//! The envelope has the time. It is checked before an attempt and after one, and a recipient that waits is never due
//! later, so that its end is noticed. Where no attempt is possible, the scheduler checks that time
//! (`dispatch::overdue`).

use mail::{Deadline, DeliverBy, Envelope};
use spool::State;
use std::time::Duration;

/// By when the message is to be delivered, since 1970; `None` without such a time.
#[must_use]
pub(crate) fn deadline(envelope: &Envelope) -> Option<Duration> {
    envelope.deliver_by().map(|(at, _)| at)
}

/// Returns the time at which a recipient that still waits is returned, or its sender gets a report of the delay;
/// `None` without such a time, and for a message that was late when it came: its sender was warned before.
#[must_use]
pub(crate) fn to_come(envelope: &Envelope) -> Option<Duration> {
    let (at, deadline) = envelope.deliver_by()?;
    match deadline {
        // RFC 2852 §4, §4.1.3: at or below zero, the host that relayed it has warned the sender
        Deadline::Notify(..=0) => None,
        Deadline::Notify(_) | Deadline::Return(_) => Some(at),
    }
}

/// Returns until when it is tried, since 1970.
// RFC 3464 §2.3.9; RFC 2852 §4.1.3: mode R, which comes back when its time is over
#[must_use]
pub(crate) fn tried_until(envelope: &Envelope, give_up_after: Duration) -> Duration {
    let given_up = envelope.waits_since().saturating_add(give_up_after);
    match envelope.deliver_by() {
        Some((at, Deadline::Return(_))) => given_up.min(at),
        _ => given_up,
    }
}

/// Returns the BY parameter for a next hop: the time that is left.
// RFC 2852 §4.1.4: lessened by the time that has passed here
#[must_use]
pub(crate) fn remaining(envelope: &Envelope, now: Duration) -> Option<DeliverBy> {
    let since = Duration::from_micros(envelope.id.unix_us());
    envelope.params.by?.after(now.saturating_sub(since).as_secs())
}

/// Returns whether the message is not sent any more, since its time is over and it comes back then.
// RFC 2852 §4.1.3: mode R
#[must_use]
pub(crate) fn is_over(envelope: &Envelope, now: Duration) -> bool {
    envelope.deliver_by().is_some_and(|(at, deadline)| now >= at && matches!(deadline, Deadline::Return(_)))
}

/// Returns when the sender wants a report that the message is late; `None` without such a time. Before it he gets no
/// report of a delay.
// RFC 2852 §4.1.3: mode N, a report of a delay at that time; RFC 2852 §4.1.4.2: and of a relay before it
#[must_use]
pub(crate) fn wants_to_hear(envelope: &Envelope) -> Option<Duration> {
    let (at, deadline) = envelope.deliver_by()?;
    matches!(deadline, Deadline::Notify(1..)).then_some(at)
}

/// Returns whether the sender now gets a report that the message is late.
// RFC 2852 §4.1.3: mode N
#[must_use]
pub(crate) fn is_late(envelope: &Envelope, now: Duration) -> bool {
    wants_to_hear(envelope).is_some_and(|at| now >= at)
}

/// Returns whether the sender gets a report that a next hop accepted the message: the next hop does not know the time
/// of the sender, or he asked for a report of each relay.
// RFC 2852 §4.1.4.2: mode N. RFC 2852 §4.1.4: trace T
#[must_use]
pub(crate) fn wants_trace(envelope: &Envelope, passes_by: bool, before: State) -> bool {
    let Some(by) = envelope.params.by else { return false };
    let is_last_word = matches!(by.deadline(), Deadline::Notify(1..)) && !passes_by && !before.is_warned();
    by.trace() || is_last_word
}

/// Returns when a recipient is due that would be due `then`: not behind the end of the time, which `by_clock` turns
/// into a time of the server's clock.
#[must_use]
pub(crate) fn cap_due(
    envelope: &Envelope,
    then: Duration,
    now: Duration,
    by_clock: impl Fn(Duration) -> Duration,
) -> Duration {
    match deadline(envelope).map(by_clock) {
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

    // RFC 2852 §4.1.3 (test), RFC 2852 §4.1.4 (test)
    #[test]
    fn the_time_runs_out() {
        let (back, told, none) = (envelope("BY=100;RT"), envelope("BY=100;N"), envelope(""));
        let left = |envelope, seconds| remaining(envelope, at(seconds)).map(|by| by.to_string());
        assert_eq!(left(&back, 0).as_deref(), Some("100;RT"));
        assert_eq!((left(&back, 99).as_deref(), left(&back, 101)), (Some("1;RT"), None));
        assert_eq!((left(&told, 130).as_deref(), left(&none, 1)), (Some("-30;N"), None));
        assert!(!is_over(&back, at(99)) && !is_over(&told, at(500)) && is_over(&back, at(101)));
        assert!(!is_late(&told, at(99)) && is_late(&told, at(101)) && !is_late(&back, at(101)));
        let cap_due = |envelope: &Envelope, then, now| cap_due(envelope, then, now, |at| at);
        assert_eq!(cap_due(&back, at(5_000), at(10)), at(101));
        assert_eq!((cap_due(&back, at(50), at(10)), cap_due(&told, at(5_000), at(500))), (at(50), at(5_000)));
        assert_eq!((cap_due(&none, at(50), at(10)), deadline(&none)), (at(50), None));
        let until = |envelope, seconds| tried_until(envelope, Duration::from_secs(seconds));
        assert_eq!([&back, &told, &none].map(|one| until(one, 70)), [at(70); 3]);
        assert_eq!([&back, &told, &none].map(|one| until(one, 130)), [at(100), at(130), at(130)]);
        assert!(!is_over(&none, at(1 << 40)));
        // The host that relayed the message when it was late has warned the sender.
        let late = envelope("BY=-30;N");
        assert!(!is_late(&late, at(0)) && !is_late(&envelope("BY=0;N"), at(500)));
        let fresh = State::default();
        let traced = |params: &str, passes_by, before| wants_trace(&envelope(params), passes_by, before);
        assert!(traced("BY=9;N", false, fresh) && traced("BY=9;NT", true, fresh) && traced("BY=9;RT", true, fresh));
        assert!(
            !traced("BY=9;N", true, fresh) && !traced("BY=9;N", false, fresh.warned()) && !traced("", false, fresh)
        );
        assert!(!traced("BY=-9;N", false, fresh) && !traced("BY=9;R", false, fresh));
        assert_eq!((to_come(&late), to_come(&told), to_come(&none)), (None, Some(at(100)), None));
        assert_eq!([&late, &told, &back, &none].map(wants_to_hear), [None, Some(at(100)), None, None]);
    }
}
