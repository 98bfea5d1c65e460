//! Turns the answer of filters into the effect on each recipient. No clock, no spool.

use super::waiting::WaitingMessage;
use crate::config::FilterReject;
use crate::screen::filters::{FilterRefusal, FilterVerdict, ReplayAnswer};
use crate::screen::{ScreenDecision, decision_of, failure_destination, hold_of};
use filter::{Final, Keeper};
use mail::{Reply, ReplyCode, ReversePath};
use spool::Hold;

/// The effect on a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecipientEffect {
    /// It waits for delivery.
    Deliver,
    /// It is held for this reason.
    Hold(Hold),
    /// It goes to this destination, which reports to the sender.
    Report(Vec<u8>),
    /// It is dropped.
    Drop,
}

/// The effect on a message.
#[derive(Clone, Debug)]
pub(super) enum MessageEffect {
    /// Nothing changes: it is asked about again.
    Later {
        /// The reason, which names the filter.
        error: String,
        /// The filter does not work.
        is_failure: bool,
    },
    /// Filters have judged it.
    Judged {
        /// The effect on recipients that a filter refused, by their number.
        refused: Vec<(usize, RecipientEffect)>,
        /// The numbers of recipients whose filters are asked again.
        undecided: Vec<usize>,
        /// The effect on all others.
        others: RecipientEffect,
        /// Its changes, for which another message takes its place.
        changes: Option<Box<FilterVerdict>>,
    },
}

/// Returns the effect of an answer. `keep_until`: the end of a quarantine, in seconds since 1970; `is_over`: the
/// message has waited for as long as it may.
pub(super) fn effect_of(
    message: &WaitingMessage,
    answer: ReplayAnswer,
    keep_until: u32,
    is_over: bool,
) -> MessageEffect {
    let of_all = |others| MessageEffect::Judged { refused: Vec::new(), undecided: Vec::new(), others, changes: None };
    match answer {
        ReplayAnswer::Later { filter, error, .. } if is_over => {
            of_all(effect_of_expiry(message, &filter, &error, keep_until))
        }
        ReplayAnswer::Later { filter, error, is_failure } => {
            MessageEffect::Later { error: format!("filter {filter}: {error}"), is_failure }
        }
        ReplayAnswer::Refused(refusal) => of_all(effect_of_refusal(message, &refusal, keep_until)),
        ReplayAnswer::Judged { verdict, refused, undecided } => {
            let refusal =
                |(number, refusal): &(usize, FilterRefusal)| (*number, effect_of_refusal(message, refusal, keep_until));
            let refused = refused.iter().map(refusal).collect();
            let others = effect_of_decision(message, &verdict, keep_until);
            let is_changed = verdict.is_changed
                || !verdict.copies.is_empty()
                || !verdict.removed.is_empty()
                || !verdict.redirects.is_empty()
                || verdict.sender.is_some();
            let changes = (is_changed && others != RecipientEffect::Drop).then_some(verdict);
            MessageEffect::Judged { refused, undecided, others, changes }
        }
    }
}

/// A decision of content rules came first, and holds the message also when filters would do so for another reason.
fn effect_of_decision(message: &WaitingMessage, verdict: &FilterVerdict, keep_until: u32) -> RecipientEffect {
    let decided = verdict.decision.clone();
    let decided = decided.and_then(|(by, place, decision)| decision_of(by, place, decision));
    if decided.as_ref().is_some_and(|decision| decision.action == Final::Discard) {
        return RecipientEffect::Drop;
    }
    let hold = message.record.then.clone().or_else(|| hold_of(&decided?, keep_until));
    hold.map_or(RecipientEffect::Deliver, RecipientEffect::Hold)
}

fn effect_of_refusal(message: &WaitingMessage, refusal: &FilterRefusal, keep_until: u32) -> RecipientEffect {
    let FilterRefusal { filter, address, reply } = refusal;
    let settings = message.filters.iter().map(|one| &one.settings).find(|settings| settings.name == *filter);
    match settings.map(|settings| settings.on_reject) {
        Some(FilterReject::Discard) => RecipientEffect::Drop,
        Some(FilterReject::Bounce) if message.envelope.sender != ReversePath::Null => {
            RecipientEffect::Report(failure_destination(reply))
        }
        Some(FilterReject::Bounce | FilterReject::Quarantine) | None => {
            quarantined(filter, &format!("{address}: refused with {reply}"), keep_until)
        }
    }
}

// RFC 3463 §3.5: X.4.7, delivery time expired
fn effect_of_expiry(message: &WaitingMessage, filter: &str, error: &str, keep_until: u32) -> RecipientEffect {
    let text = format!("filter {filter} could not check the message in time: {error}");
    if message.envelope.sender == ReversePath::Null {
        return quarantined(filter, &text, keep_until);
    }
    let text: String = text.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
    RecipientEffect::Report(failure_destination(&Reply::new(ReplyCode::of(554), None, &format!("5.4.7 {text}"))))
}

fn quarantined(by: &str, place: &str, keep_until: u32) -> RecipientEffect {
    let action = Final::Quarantine(Keeper::Administrator);
    let hold = hold_of(&ScreenDecision { by: by.to_owned(), place: place.to_owned(), action }, keep_until);
    hold.map_or(RecipientEffect::Drop, RecipientEffect::Hold)
}
