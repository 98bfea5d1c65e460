//! Sends copies of messages in quarantine: to their recipients, who are done with the original then, or to another
//! address.
//!
//! A copy has a queue id of its own, so that its time in the queue begins anew, and a field that tells of the
//! quarantine. It is durable before the original is touched: a crash in between leaves both.

use super::change::ChangeTotals;
use super::delivery_control::{DeliveryControl, RecipientSelection, Resubmission, ResubmitError, Resubmitted};
use super::owner_check::OwnerCheck;
use super::scan::FoundMessage;
use mail::{Address, QueueId};

/// Sends copies of messages, one after the other.
#[derive(Debug)]
pub(super) struct Resubmissions<'a> {
    delivery: &'a dyn DeliveryControl,
    /// The address that gets the copies; `None`: the recipients.
    to: Option<&'a Address>,
    owner: OwnerCheck<'a>,
    pub(super) totals: ChangeTotals,
}

impl<'a> Resubmissions<'a> {
    pub(super) const fn new(delivery: &'a dyn DeliveryControl, to: Option<&'a Address>) -> Self {
        let totals = ChangeTotals { messages: 0, recipients: 0, unchanged: 0, active: 0 };
        Self { delivery, to, owner: OwnerCheck::new(delivery), totals }
    }

    /// Sends a copy of a message, and drops from it the recipients that are left alone. Returns the id of the copy;
    /// `None`: nothing is left to be done.
    ///
    /// Blocks until the copy is durable and its recipients are done.
    ///
    /// # Errors
    /// As [`DeliveryControl::resubmit`].
    pub(super) fn apply(&mut self, found: &mut FoundMessage) -> Result<Option<QueueId>, ResubmitError> {
        // A copy for another address leaves the message as it is.
        if self.to.is_none()
            && let Some(doubt) = self.owner.doubt(found.id)
        {
            return Err(ResubmitError::NotOwned(doubt));
        }
        let recipients: Vec<u32> = found.recipients.iter().map(|one| one.position).collect();
        let count = recipients.len();
        let meant = RecipientSelection { id: found.id, recipients };
        let Resubmitted { copy, recipients } = self.delivery.resubmit(Resubmission { meant, to: self.to.cloned() })?;
        found.recipients.retain(|one| recipients.contains(&one.position));
        self.totals.messages += u64::from(copy.is_some());
        self.totals.recipients += found.recipients.len() as u64;
        self.totals.unchanged += (count - found.recipients.len()) as u64;
        Ok(copy)
    }
}
