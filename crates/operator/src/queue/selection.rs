//! Which recipients a command is about.
//!
//! All conditions that are given must hold. Ids, age and sender choose messages; address, destination and state choose
//! among their recipients.

use super::expression::Expression;
use super::pattern::{self, Pattern};
use super::recipient_status::RecipientStatus;
use mail::{Address, Client, QueueId};
use spool::{Hold, HoldKind};
use std::time::Duration;

/// Which recipients a command is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// These messages; empty for any.
    pub ids: Vec<QueueId>,
    /// Messages of these senders.
    pub from: Option<Pattern>,
    /// Recipients with these addresses.
    pub to: Option<Pattern>,
    /// Recipients that go there: the name of a destination as lists show it, with `*` for any text.
    pub destination: Option<Box<str>>,
    /// Recipients in this state.
    pub state: Option<RecipientStatus>,
    /// Messages at least that old, in whole seconds.
    pub older: Option<Duration>,
    /// Messages younger than that, in whole seconds.
    pub younger: Option<Duration>,
    /// Messages that came after this one: the next page of a list.
    pub after: Option<QueueId>,
    /// Recipients that are in quarantine.
    pub quarantined: bool,
    /// Recipients that this rule or person holds: a name, with `*` for any text.
    pub held_by: Option<Box<str>>,
    /// Recipients for which all terms hold.
    pub expression: Option<Expression>,
    /// Messages that a process of this user handed in. No field of a request: the server sets it for guests.
    pub handed_in_by: Option<u32>,
}

impl Selection {
    /// Whether it names anything: if not, it means the whole queue.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an expression is its only condition.
    #[must_use]
    pub fn is_expression_alone(&self) -> bool {
        self.expression.is_some() && Self { expression: None, ..self.clone() }.is_everything()
    }

    /// Whether the rule or person that holds mail is its only condition.
    #[must_use]
    pub fn is_holder_alone(&self) -> bool {
        self.held_by.is_some() && Self { held_by: None, ..self.clone() }.is_everything()
    }

    /// Whether envelopes have to be read to know the selected recipients.
    pub(super) fn needs_addresses(&self) -> bool {
        let reads = self.expression.as_ref().is_some_and(Expression::needs_envelope);
        self.from.is_some() || self.to.is_some() || self.handed_in_by.is_some() || reads
    }

    /// Returns whether every message of the right age matches, whatever its recipients are.
    pub(super) fn matches_whole_messages(&self) -> bool {
        let has_conditions = self.destination.is_some() || self.state.is_some() || self.expression.is_some();
        !self.needs_addresses() && !self.needs_hold() && !has_conditions
    }

    /// Returns whether a message whose age counts from then may match.
    pub(super) fn matches_age(&self, counts_from_us: u64, now_us: u64) -> bool {
        let age = Duration::from_micros(now_us.saturating_sub(counts_from_us));
        self.older.is_none_or(|limit| age >= limit) && self.younger.is_none_or(|limit| age < limit)
    }

    /// Returns whether messages of this sender may match; `None` is the null sender.
    pub(super) fn matches_sender(&self, sender: Option<&Address>) -> bool {
        self.from.as_ref().is_none_or(|pattern| pattern.matches(sender))
    }

    /// Returns whether messages that came from this client may match.
    pub(super) fn matches_client(&self, client: Client) -> bool {
        self.handed_in_by.is_none_or(|uid| client == Client::Process { uid })
    }

    /// Returns whether only held recipients can match.
    pub(super) const fn needs_hold(&self) -> bool {
        self.quarantined || self.held_by.is_some()
    }

    /// Returns whether a recipient that is held for this reason may match.
    pub(super) fn matches_hold(&self, hold: &Hold) -> bool {
        let is_by = |name: &str| pattern::glob(&name.to_lowercase(), &hold.by().to_lowercase());
        (!self.quarantined || hold.kind() == HoldKind::Quarantine) && self.held_by.as_deref().is_none_or(is_by)
    }

    /// Returns whether a recipient may match, as far as the index knows it.
    pub(super) fn matches_destination(&self, destination: &[u8], status: impl FnOnce() -> RecipientStatus) -> bool {
        let is_there = self.destination.as_deref().is_none_or(|name| {
            let found = String::from_utf8_lossy(destination);
            pattern::glob(&name.to_lowercase(), &found.to_lowercase())
        });
        is_there && self.state.is_none_or(|state| state == status())
    }

    /// Returns whether a recipient with this address may match. A recipient whose record cannot be read has no address.
    pub(super) fn matches_address(&self, address: Option<&Address>) -> bool {
        match &self.to {
            None => true,
            Some(pattern) => address.is_some_and(|address| pattern.matches(Some(address))),
        }
    }
}
