//! Adoption by hand at this node: orders of operators, and the look at mail of absent nodes.

use super::member::ClusterMember;
use cluster::{AbsentStream, HandAdoption, HandAdoptionError, Node, NodeId};
use os::clock;
use std::time::Duration;

/// Time that a look waits for the engines of holders. One that does not answer has had two requests by then.
const LOOK_TIME_MAX: Duration = Duration::from_secs(5);
/// Time between two answers while an order stands.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Mail of absent nodes as this one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentMail {
    /// The streams of absent nodes.
    pub streams: Vec<AbsentStream>,
    /// The last orders to adopt by hand, one for each node.
    pub orders: Vec<HandAdoption>,
}

impl ClusterMember {
    /// Has this node adopt the mail of an absent node. It goes on until nothing can be tried any more, also when nobody
    /// asks for it; [`ClusterMember::absent_mail`] says how far it is.
    ///
    /// # Errors
    /// The reason why nothing was begun, with the next step.
    pub fn adopt_by_hand(&self, owner: NodeId) -> Result<(), HandAdoptionError> {
        self.shared.tell(|node, now| node.adopt_by_hand(now, owner))
    }

    /// Reads the streams of absent nodes, and waits some seconds for it. An engine that does not answer by then leaves
    /// its streams as they were known, or unread. While an order stands, the answer comes after half a second with what
    /// is known then, for a command that asks again and again.
    ///
    /// # Cancel safety
    /// Yes.
    pub async fn absent_mail(&self) -> AbsentMail {
        self.shared.tell(Node::look_at_absent);
        if self.absent_now().orders.iter().any(|order| order.is_running) {
            tokio::time::sleep(PROGRESS_INTERVAL).await;
        } else {
            // A timeout is one of the answers.
            tokio::time::timeout(LOOK_TIME_MAX, self.until(Node::has_looked)).await.ok();
        }
        self.absent_now()
    }

    fn absent_now(&self) -> AbsentMail {
        let (node, now) = (self.shared.node(), clock::since_boot());
        AbsentMail { streams: node.absent_streams(now), orders: node.hand_adoptions(now) }
    }
}
