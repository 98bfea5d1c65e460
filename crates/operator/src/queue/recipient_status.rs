//! The state of a recipient in the words of commands and answers.

use spool::{State, Status};

/// The state of a recipient as commands show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecipientStatus {
    /// It waits for its time.
    Waiting,
    /// It is kept until it is released.
    Held,
    /// An attempt is under way.
    Active,
    /// It is delivered, and its sender is about to hear of that.
    Delivered,
}

impl RecipientStatus {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Held, Self::Active, Self::Delivered];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Active => "active",
            Self::Delivered => "delivered",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Returns the status of a recipient in this state. One that was held during an attempt is held.
    pub(super) fn of_state(state: State, is_active: impl FnOnce() -> bool) -> Self {
        match state.status {
            Status::Held => Self::Held,
            Status::Owed => Self::Delivered,
            _ if is_active() => Self::Active,
            _ => Self::Waiting,
        }
    }
}
