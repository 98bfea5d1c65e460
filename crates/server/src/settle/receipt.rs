//! What is owed to a sender who wants to hear of good news: that his message was delivered, or relayed.
//!
//! A recipient who has his mail is recorded at once, or a crash would deliver it again. Where the report on him goes
//! out with those on others he is recorded as *owed* (`spool::Status::Owed`): nobody tries him again, his age does not
//! count, and no command holds or retries him. He is done when the report is durable. What his host answered is in
//! memory alone ([`gather`](super::gather)); after a start a walk finds him, and the report says that it is not known
//! any more.

use super::{AttemptOutcome, RecipientDecision};
use mail::Reply;
use mail::report::Kind;
use spool::{State, Status};
use std::sync::Arc;
use std::time::Duration;

/// What a report says where the answer was forgotten.
pub(super) const FORGOTTEN: &str = "It was taken, and what was answered then is not known any more.";

/// What is known of a delivery that is reported later: nothing after a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// What was answered, if that is known.
    pub(super) reply: Option<Reply>,
    /// By whom.
    pub(super) host: Option<Arc<str>>,
}

impl Receipt {
    /// What it takes to keep it, beside itself.
    pub(super) fn octets(&self) -> usize {
        self.reply.as_ref().map_or(0, Reply::text_octets) + self.host.as_ref().map_or(0, |host| host.len())
    }
}

/// Good news as the spool keeps it, where it is good.
const fn number(kind: Kind) -> Option<u8> {
    Some(match kind {
        Kind::Failed | Kind::Delayed => return None,
        Kind::Delivered => 1,
        Kind::Relayed => 2,
        Kind::Traced => 3,
        Kind::Expanded => 4,
    })
}

/// The good news that is owed of a recipient in this state.
pub(super) fn owed(state: State) -> Option<Kind> {
    Some(match state.owed()? {
        1 => Kind::Delivered,
        3 => Kind::Traced,
        4 => Kind::Expanded,
        // What nobody wrote claims as little as may be.
        _ => Kind::Relayed,
    })
}

/// The state of a recipient of whom this is owed; `None` for bad news.
pub(super) fn owing(state: State, kind: Kind, due: Duration) -> Option<State> {
    number(kind).map(|number| state.owing(number, due))
}

/// What became of a recipient whose report is owed.
pub(super) fn judged(fate: AttemptOutcome, kind: Kind, state: State) -> RecipientDecision {
    RecipientDecision { fate, kind: Some(kind), state: State { status: Status::Done, ..state } }
}
