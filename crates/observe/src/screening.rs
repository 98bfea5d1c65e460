//! The kinds of decisions of *screen*.

/// A decision of a content rule or a filter on a message, or on some of its recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ScreenVerdict {
    /// No later rule looks at it.
    Accept,
    /// Refused with a 5yz reply.
    Reject,
    /// Refused with a 4yz reply.
    Defer,
    /// Accepted and dropped.
    Discard,
    /// Held for the decision of a recipient or an administrator.
    Quarantine,
    /// Held for an operator.
    Hold,
    /// Its header section was changed.
    Edit,
    /// It goes elsewhere, or elsewhere too, or in another order.
    Reroute,
    /// It could not be judged.
    NotJudged,
}

impl ScreenVerdict {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Accept,
        Self::Reject,
        Self::Defer,
        Self::Discard,
        Self::Quarantine,
        Self::Hold,
        Self::Edit,
        Self::Reroute,
        Self::NotJudged,
    ];

    /// The word in the log and in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::Defer => "defer",
            Self::Discard => "discard",
            Self::Quarantine => "quarantine",
            Self::Hold => "hold",
            Self::Edit => "edit",
            Self::Reroute => "reroute",
            Self::NotJudged => "not_judged",
        }
    }
}
