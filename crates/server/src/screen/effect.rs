//! The effect of decisions on stored messages: holds, and destinations that report a refusal.

use super::filters::FilterDecision;
use super::judgement::ScreenDecision;
use filter::{Final, Keeper};
use mail::{EnhancedCode, Outcome, Reply, ReplyClass};
use route::destination::{Destination, To};
use spool::{Hold, HoldKind};

/// Returns the decision of a filter at `place`; `None`: the message passes.
pub(crate) fn decision_of(by: String, place: String, decision: FilterDecision) -> Option<ScreenDecision> {
    let (place, action) = match decision {
        FilterDecision::Refuse(reply) | FilterDecision::Close(reply) => match reply.code().class() {
            ReplyClass::Permanent => (place, Final::Reject(reply)),
            _ => (place, Final::Defer(reply)),
        },
        FilterDecision::Discard => (place, Final::Discard),
        FilterDecision::Quarantine(reason) => (format!("{place}: {reason}"), Final::Quarantine(Keeper::Administrator)),
        FilterDecision::Hold(reason) => (format!("{place}: {reason}"), Final::Hold),
        FilterDecision::Pass | FilterDecision::Fail(_) | FilterDecision::Later(_) => return None,
    };
    Some(ScreenDecision { by, place, action })
}

/// Returns why a message is held, if the decision holds it. `keep_until`: the end of a quarantine, in seconds since
/// 1970.
pub(crate) fn hold_of(ScreenDecision { by, place, action }: &ScreenDecision, keep_until: u32) -> Option<Hold> {
    match action {
        Final::Hold => Some(Hold::new(HoldKind::Rule, by, place)),
        Final::Quarantine(keeper) => {
            let keeper = match keeper {
                Keeper::Recipient => "recipient",
                Keeper::Administrator => "administrator",
            };
            let hold = Hold::new(HoldKind::Quarantine, by, &format!("for the {keeper} by {place}"));
            Some(hold.until(keep_until))
        }
        Final::Accept | Final::Reject(_) | Final::Defer(_) | Final::Discard => None,
    }
}

/// Returns the destination that reports a refusal to the sender.
pub(crate) fn failure_destination(refusal: &Reply) -> Vec<u8> {
    let lines: Vec<&str> = refusal.lines().collect();
    let status = refusal.enhanced().unwrap_or_else(|| EnhancedCode::of(Outcome::Permanent, 7, 1));
    Destination::new(To::Error { status, text: lines.join(" ").into() }).to_bytes()
}
