//! Mail of absent nodes, and the orders of operators to adopt it by hand, as plain data.

use crate::identity::{NodeId, StreamId};
use crate::status::HostageReason;
use std::fmt;
use std::time::Duration;

/// A stream of a node that is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentStream {
    /// The stream.
    pub stream: StreamId,
    /// Live messages by the owner's last heartbeat, without those that this node took; `None` when this node has not
    /// seen one.
    pub messages: Option<u64>,
    /// Its state.
    pub state: AbsentState,
}

/// The state of a stream whose owner is absent, as this node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentState {
    /// Its tail was not read yet.
    Unread,
    /// The engine has no block of it: nothing was ever written to it, or the engine has lost all.
    Empty,
    /// No adopter has fenced it.
    Owned {
        /// The node that adopts it without an order once it is silent, if there is one.
        next: Option<NodeId>,
    },
    /// A node that runs adopts it.
    UnderWay {
        /// The node.
        by: NodeId,
        /// Time since the adoption began, or since this node first saw the present tail.
        since: Duration,
        /// The step, if the node is this one.
        step: Option<&'static str>,
        /// Messages of recorded parts, if the node is this one.
        taken: usize,
    },
    /// Its adopter is gone, and no part is known to be open: another node goes on.
    Stopped {
        /// The adopter.
        by: NodeId,
    },
    /// Its adoption is over.
    Adopted {
        /// The node that ended it.
        by: NodeId,
    },
    /// It cannot be adopted now.
    Waits(HostageReason),
}

impl AbsentState {
    /// True when no mail of the stream waits for an adopter or for its owner.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Empty | Self::Adopted { .. })
    }
}

/// An order to adopt the mail of a node by hand, and its result so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandAdoption {
    /// The node whose mail is adopted.
    pub owner: NodeId,
    /// Messages that this node has taken from its streams since the order.
    pub taken: usize,
    /// Time since the order, or from the order to its end.
    pub time: Duration,
    /// The order stands: this node tries to adopt what is left.
    pub is_running: bool,
    /// It ended since the owner is back.
    pub is_owner_back: bool,
}

/// The reason why an order to adopt by hand is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandAdoptionError {
    /// The mail is that of the asked node itself.
    OwnMail,
    /// The node runs: its mail is its own.
    Alive {
        /// Its name.
        name: String,
        /// It gives its mail up.
        is_draining: bool,
    },
    /// The asked node gives its own mail up, or its entry is not written yet.
    NoMember,
    /// The asked node has no fresh view of the members: it cannot tell that the other one is absent.
    NoMajority,
    /// No stream has mail of the node.
    NoStream {
        /// Nodes that have streams.
        owners: Vec<NodeId>,
    },
}

impl fmt::Display for HandAdoptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnMail => {
                f.write_str("it is the node that was asked, whose mail is its own; ask another node to adopt it")
            }
            Self::Alive { name, is_draining: false } => write!(
                f,
                "it runs (\"{name}\"), or has run in the last 15 s, so its mail is its own; drain it (mailrace cluster \
                 drain there) or stop it, and try again when its entry is gone"
            ),
            Self::Alive { name, is_draining: true } => {
                write!(f, "it (\"{name}\") gives its mail up by itself now; try again when it has ended")
            }
            Self::NoMember => {
                f.write_str("this node does not take part now; ask another node (mailrace cluster status says why)")
            }
            Self::NoMajority => f.write_str(
                "no majority of the engines answers, so this node cannot tell who is absent; start more of them \
                 (mailrace cluster verify says which answer)",
            ),
            Self::NoStream { owners } if owners.is_empty() => f.write_str("no node has copies of mail at others"),
            Self::NoStream { owners } => {
                let owners: Vec<String> = owners.iter().map(|owner| owner.0.to_string()).collect();
                write!(f, "no node has copies of its mail; there are copies of mail of nodes {}", owners.join(", "))
            }
        }
    }
}

impl std::error::Error for HandAdoptionError {}
