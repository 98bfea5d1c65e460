//! The properties of a message besides its content: sender, recipients, conditions, and how it came.
//!
//! An [`Envelope`] is made at the end of a transaction, stored with the message, taken apart by recipient and
//! destination, and written as commands to the next hop. All its parts are public values that cannot be wrong one by
//! one, so another crate may store them field by field. The text of [`MailParams`], [`RecipientParams`],
//! [`crate::Address`] and [`Protocol`] reads back to the same value and serves as their stored form.
//!
//! Not here: the content, the state of delivery, and data that this server adds (routing, tries).

mod extension;
mod mail_params;
mod rcpt_params;
mod received;

pub use extension::{Extension, Extensions};
pub use mail_params::{
    Body, Deadline, DeliverBy, EnvId, Hold, HoldSeconds, HoldTime, MailParams, MtPriority, Ret, Submitter,
};
pub use rcpt_params::{Notify, OriginalRecipient, RecipientParams};
pub use received::{Client, HeloName, Protocol, Received, Session, UnknownProtocol};

use crate::address::{Address, ReversePath};
use crate::queue_id::QueueId;
use std::time::Duration;

/// One message on its way, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Its name here.
    pub id: QueueId,
    /// The address that reports of failed delivery go to.
    pub sender: ReversePath,
    /// The parameters of `MAIL FROM:`.
    pub params: MailParams,
    /// How it came.
    pub received: Received,
    /// The recipients. May be empty while a message is quarantined or all recipients were removed by a filter.
    pub recipients: Vec<Recipient>,
}

impl Envelope {
    /// Whether every next hop must offer SMTPUTF8: the client said so, or an address cannot be written in ASCII.
    #[must_use]
    pub fn needs_smtputf8(&self) -> bool {
        // RFC 6531 §3.4
        self.params.smtputf8
            || self.sender.address().is_some_and(|address| address.to_ascii().is_none())
            || self.recipients.iter().any(|recipient| recipient.address.to_ascii().is_none())
    }

    /// When delivery begins, since 1970: `None` for a message that is not held. It may have passed.
    // RFC 4865 §4.2: HOLDFOR counts from submission, which is when the message got its name
    #[must_use]
    pub fn release_at(&self) -> Option<Duration> {
        match self.params.hold? {
            Hold::For(seconds) => Some(self.submitted() + Duration::from_secs(seconds.get().into())),
            Hold::Until(time) => Some(Duration::from_secs(u64::try_from(time.unix_seconds()).unwrap_or(0))),
        }
    }

    /// Since when it waits for delivery, since 1970: since it was submitted, or released.
    #[must_use]
    pub fn waits_since(&self) -> Duration {
        let submitted = self.submitted();
        self.release_at().map_or(submitted, |at| at.max(submitted))
    }

    /// The deadline of delivery, since 1970, and the action then. For a message that was late when it came the deadline
    /// lies before its arrival.
    // RFC 2852 §4: counted from when the command was received
    #[must_use]
    pub fn deliver_by(&self) -> Option<(Duration, Deadline)> {
        let deadline = self.params.by?.deadline();
        let at = match deadline {
            Deadline::Return(seconds) => self.submitted() + Duration::from_secs(seconds.get().into()),
            Deadline::Notify(seconds) => {
                let distance = Duration::from_secs(seconds.unsigned_abs().into());
                if seconds < 0 { self.submitted().saturating_sub(distance) } else { self.submitted() + distance }
            }
        };
        Some((at, deadline))
    }

    fn submitted(&self) -> Duration {
        Duration::from_micros(self.id.unix_us())
    }
}

/// One addressee of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// Where it goes.
    pub address: Address,
    /// The parameters of `RCPT TO:`.
    pub params: RecipientParams,
}

impl Recipient {
    /// A recipient without parameters.
    #[must_use]
    pub const fn new(address: Address) -> Self {
        Self { address, params: RecipientParams { notify: None, orcpt: None } }
    }
}

#[cfg(test)]
mod tests;
