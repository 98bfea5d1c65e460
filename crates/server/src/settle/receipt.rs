//! Reports that are owed to a sender who asked for good news: that his message was delivered, or relayed.
//!
//! A recipient with its mail is recorded at once, or a crash would deliver the message again. Where the report on it
//! goes out together with others it is recorded as *owed* (`spool::Status::Owed`): it is not tried again, its age
//! does not count, and no command holds or retries it. It is done when the report is durable. The host's reply is in
//! memory alone ([`dsn_batcher`](super::dsn_batcher)); after a start a walk over the spool's lists finds the
//! recipient, and the report says that the reply is not known any more.

use super::{AttemptOutcome, RecipientDecision};
use mail::Reply;
use mail::report::Kind;
use spool::{State, Status};
use std::sync::Arc;
use std::time::Duration;

/// Text of a report where the reply was forgotten.
pub(super) const FORGOTTEN: &str = "It was taken, and what was answered then is not known any more.";

/// Reply to a delivery that is reported later; empty after a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The reply, if it is known.
    pub(super) reply: Option<Reply>,
    /// The host that gave it.
    pub(super) host: Option<Arc<str>>,
}

impl Receipt {
    /// Returns the octets that it takes besides its own size.
    pub(super) fn octets(&self) -> usize {
        self.reply.as_ref().map_or(0, Reply::text_octets) + self.host.as_ref().map_or(0, |host| host.len())
    }
}

/// Returns the number by which the spool keeps a kind of good news; `None` for bad news.
const fn number(kind: Kind) -> Option<u8> {
    Some(match kind {
        Kind::Failed | Kind::Delayed => return None,
        Kind::Delivered => 1,
        Kind::Relayed => 2,
        Kind::Traced => 3,
        Kind::Expanded => 4,
    })
}

/// Returns the good news that is owed of a recipient in this state.
pub(super) fn owed_report(state: State) -> Option<Kind> {
    Some(match state.owed()? {
        1 => Kind::Delivered,
        3 => Kind::Traced,
        4 => Kind::Expanded,
        // A number that no version has written claims as little as possible.
        _ => Kind::Relayed,
    })
}

/// Returns the state of a recipient whose report of this kind is owed; `None` for bad news.
pub(super) fn with_owed_report(state: State, kind: Kind, due: Duration) -> Option<State> {
    number(kind).map(|number| state.owing(number, due))
}

/// Makes the decision for a recipient whose report is owed.
pub(super) fn receipt_decision(fate: AttemptOutcome, kind: Kind, state: State) -> RecipientDecision {
    RecipientDecision { fate, kind: Some(kind), state: State { status: Status::Done, ..state } }
}
