//! Recipients of one message at one destination that wait or are in flight, and what their sender may hear of them.

use std::time::Duration;

use crate::job::{Class, DestinationId, Positions};

/// What senders may hear of recipients that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoticeState {
    /// The sender was told of the delay already.
    pub(crate) warned: bool,
    /// Since when it is due, if it was late before: it is tried before that counts.
    pub(crate) late_since: Duration,
    /// Nobody is told of its age before.
    pub(crate) not_before: Duration,
    /// When it is asked by when it is to be delivered, if that is not known.
    pub(crate) ask_at: Duration,
}

impl NoticeState {
    /// Of what just came.
    pub(crate) const FRESH: Self =
        Self { warned: false, late_since: Duration::ZERO, not_before: Duration::ZERO, ask_at: Duration::MAX };
}

/// Recipients of one message at one destination that wait, or that a connection has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) destination: DestinationId,
    pub(crate) recipients: Positions,
    pub(crate) class: Class,
    pub(crate) notice: NoticeState,
    /// It came into memory when it was committed, and not by a walk.
    pub(crate) fresh: bool,
}
