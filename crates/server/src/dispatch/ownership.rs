//! In a cluster only the owner of a message delivers it. This is asked when an attempt starts and again immediately
//! before the end of the content (`docs/cluster.md`). On a machine alone both are always so.
//!
//! Octets that have left this process cannot be called back: a next hop that reads nothing for longer than the owner's
//! time may get the end of a message that another node has adopted meanwhile. That node reports it as a possible
//! duplicate.

use super::Dispatch;
use mail::QueueId;
use std::time::Duration;
use tokio::time::Instant;

/// Time until a message is looked at again that this node may not deliver now.
pub(crate) const OWNERSHIP_RETRY_TIME: Duration = Duration::from_secs(2);
/// Time that an attempt waits for the ownership of its message: just after a start or an adoption it comes soon.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Time between two looks meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

impl Dispatch {
    /// Returns whether a delivery of the message may start now; waits a little for it.
    ///
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn may_start(&self, message: QueueId) -> bool {
        let until = Instant::now() + WAIT_MAX;
        loop {
            if self.may_start_now(message) {
                return true;
            }
            if Instant::now() >= until || self.context.stop.has_begun() {
                return false;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Returns whether a delivery of the message, or a report on it, may start now.
    pub(crate) fn may_start_now(&self, message: QueueId) -> bool {
        let Some(member) = self.context.message_store.cluster() else { return true };
        // The sender of one that is not stored yet keeps it.
        member.may_start_delivery(message) || self.messages.early.get(message).is_some()
    }

    /// Returns whether the end of the content of the message may be sent now.
    pub(crate) fn may_end(&self, message: QueueId) -> bool {
        let Some(member) = self.context.message_store.cluster() else { return true };
        member.may_send_final_dot(message) || self.messages.early.get(message).is_some()
    }
}
