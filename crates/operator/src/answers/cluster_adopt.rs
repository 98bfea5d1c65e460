//! The answer about mail of absent nodes of a cluster, and about orders to adopt it by hand.

use serde::{Deserialize, Serialize};

/// Absent nodes as one node sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AbsentNodesAnswer {
    /// The node that was asked.
    pub node: u16,
    /// The nodes that are absent, and those with an order to adopt their mail by hand.
    pub nodes: Vec<AbsentNode>,
}

/// A node that is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AbsentNode {
    /// Its number.
    pub node: u16,
    /// The streams with copies of its mail.
    pub streams: Vec<AbsentStreamLine>,
    /// The last order to adopt its mail at the node that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<HandAdoptionLine>,
}

/// A stream of an absent node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AbsentStreamLine {
    /// The node whose engine has it.
    pub holder: u16,
    /// Counted from 0; one more after the stream lost data.
    pub generation: u32,
    /// `unknown`, `no mail`, `not begun`, `under way`, `broken off`, `adopted`, `holder away`, `no majority`,
    /// `part open`, `later version` or `damaged`.
    pub state: String,
    /// Live messages by the last count of the owner, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// The node that adopts it, has adopted it, or broke off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<u16>,
    /// Milliseconds since the adoption under way began, or since the asked node first saw its present state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Messages that the asked node has taken in the adoption under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<u64>,
    /// Mail of it waits, or may wait.
    pub left: bool,
    /// The state in words.
    pub why: String,
    /// The next step of the operator; empty if there is none.
    pub next: String,
}

/// An order to adopt by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandAdoptionLine {
    /// Messages that the asked node has adopted since the order.
    pub adopted: u64,
    /// Milliseconds since the order, or until its end.
    pub time_ms: u64,
    /// The order stands.
    pub running: bool,
    /// It ended since the node is back.
    pub node_back: bool,
}
