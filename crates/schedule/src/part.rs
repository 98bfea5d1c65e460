//! Recipients of one message at one destination that wait or are in flight, and the notices that they may cause.

use std::time::Duration;

use crate::job::{Class, DestinationId, Positions};

/// Which notices a waiting recipient may cause, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoticeState {
    /// The sender got the delay warning.
    pub(crate) warned: bool,
    /// When it became due, if it was already overdue then: its attempt goes first.
    pub(crate) late_since: Duration,
    /// No notice about its age before this time.
    pub(crate) not_before: Duration,
    /// When its unknown deliver-by time is asked for.
    pub(crate) ask_at: Duration,
}

impl NoticeState {
    /// The state of a fresh message.
    pub(crate) const FRESH: Self =
        Self { warned: false, late_since: Duration::ZERO, not_before: Duration::ZERO, ask_at: Duration::MAX };
}

/// Recipients of one message at one destination that wait or are in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) destination: DestinationId,
    pub(crate) recipients: Positions,
    pub(crate) class: Class,
    pub(crate) notice: NoticeState,
    /// It came with `add`, not from a scan.
    pub(crate) fresh: bool,
}
