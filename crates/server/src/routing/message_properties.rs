//! The properties by which the recipients of a transaction are divided into messages.

use mail::ReversePath;
use route::resolve::{Delivery, Failed, HoldReason};

/// Properties that the recipients of one message share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MessageProperties {
    /// The sender, where it is not that of the transaction.
    pub(crate) sender: Option<ReversePath>,
    /// Why it is held.
    pub(crate) hold: Option<HoldReason>,
    /// It waits until an operator sends it.
    pub(crate) queue_only: bool,
    /// The scope of content rules that its recipients have.
    pub(crate) scope: u16,
}

impl MessageProperties {
    /// Returns the kind of the message that a delivery goes into.
    pub(super) fn of(delivery: &Delivery) -> Self {
        Self {
            sender: delivery.sender.clone(),
            hold: delivery.hold.clone(),
            queue_only: delivery.queue_only,
            ..Self::default()
        }
    }

    /// Returns the kind of the message in which a recipient fails.
    pub(super) fn of_failed(failed: &Failed) -> Self {
        Self { sender: failed.sender.clone(), ..Self::default() }
    }
}
