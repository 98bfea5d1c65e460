//! In a cluster only the owner of a message delivers it. This is asked when an attempt starts and again immediately
//! before the end of the content (`docs/cluster.md`). On a machine alone both are always so. Before an operator ends a
//! message by hand, the same is asked: the adopter of the message delivers it, so a report that says otherwise is
//! wrong.
//!
//! Octets that have left this process cannot be called back: a next hop that reads nothing for longer than the owner's
//! time may get the end of a message that another node has adopted meanwhile. That node reports it as a possible
//! duplicate.

use super::Dispatch;
use crate::cluster::ClusterMember;
use cluster::OwnershipDoubt;
use mail::QueueId;
use operator::queue::EndDoubt;
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

    /// Returns why another node may own the message; `None` if this node surely does. Asked immediately before the
    /// report of an end by hand is written.
    pub(crate) fn ownership_doubt(&self, message: QueueId) -> Option<String> {
        if self.may_end(message) {
            return None;
        }
        self.end_doubt(message).map(|doubt| doubt.text)
    }

    /// Returns why an operator must not end the message by hand now; `None` if he may.
    pub(crate) fn end_doubt(&self, message: QueueId) -> Option<EndDoubt> {
        let member = self.context.message_store.cluster()?;
        let doubt = member.doubt_about_end(message).filter(|_| self.messages.early.get(message).is_none())?;
        Some(EndDoubt { text: doubt_text(member, doubt), may_pass: doubt.may_pass() })
    }
}

/// Returns the reason in words for the operator, with the next step.
fn doubt_text(member: &ClusterMember, doubt: OwnershipDoubt) -> String {
    let elsewhere = "next: wait until this node has left the message or owns it again (\"mailrace cluster status\"), and \
        repeat the command, here or at the node whose log has \"adopted=\" with this id";
    match doubt {
        OwnershipDoubt::Refused => {
            let why = member.refusal().unwrap_or_else(|| "the reason has just ended; repeat the command".to_owned());
            format!("this node does not take part in the cluster, so another node may own the message: {why}")
        }
        OwnershipDoubt::Leaving => "this node gives its mail to other nodes; next: repeat the command at the node \
            whose log has \"adopted=\" with this id"
            .to_owned(),
        OwnershipDoubt::Unknown => format!(
            "this node does not know yet whether another node has adopted the message: the engine has not answered \
             since the start, or an adoption is under way; {elsewhere}"
        ),
        OwnershipDoubt::Adopted(stream) => {
            format!("another node adopts the mail with copies at {}, or has adopted it; {elsewhere}", stream.holder)
        }
        OwnershipDoubt::Silent(stream) => format!(
            "{} has stored nothing of this node for so long that another node may adopt the message; {elsewhere}",
            stream.holder
        ),
        OwnershipDoubt::Behind(stream) => format!(
            "{} does not store the ends of messages in time, so a node that adopts the message would deliver it; next: \
             repeat the command when \"mailrace cluster status\" shows that its copies are up to date",
            stream.holder
        ),
    }
}
