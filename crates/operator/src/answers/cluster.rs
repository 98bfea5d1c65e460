//! The answer about the cluster: this node, its copies, the others, and mail that moves between them.

use serde::{Deserialize, Serialize};

/// The node of a cluster that this server is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterAnswer {
    /// The cluster, 32 hex digits.
    pub cluster: String,
    /// The number of this node.
    pub node: u16,
    /// `member`, `joining`, `alone` (no majority of the engines, so nothing is adopted), `draining` or `refused`.
    pub state: String,
    /// The reason why this node must not take part, with the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The reason why the engine is not in use, with the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_problem: Option<String>,
    /// Live messages that the cluster knows of this node.
    pub messages: u64,
    /// Of them without the copy that they should have.
    pub unreplicated: u64,
    /// Of them with a copy that another node may have adopted: they wait.
    pub waiting_for_stream: u64,
    /// Messages that were taken over and wait for the record of that.
    pub adopted_waiting: u64,
    /// Messages adopted since the start.
    pub adopted: u64,
    /// Messages given up to other nodes since the start.
    pub given_up: u64,
    /// The other nodes as this one sees them.
    pub nodes: Vec<ClusterNode>,
    /// The streams with copies of the mail of this node.
    pub streams: Vec<ClusterStream>,
    /// Adoptions by this node that are under way.
    pub adoptions: Vec<ClusterAdoption>,
    /// Mail of absent nodes that cannot be adopted now.
    pub hostages: Vec<ClusterHostage>,
    /// The configuration that all nodes share, if `cluster.shared` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ClusterConfigAnswer>,
    /// Limits of next hops that all nodes keep together, as far as this node uses them.
    pub limits: Vec<ClusterLimit>,
}

/// The configuration that all nodes share, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterConfigAnswer {
    /// The revision that counts; absent before the first push, and while the engine has not answered since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<ClusterConfigRevision>,
    /// The revision in force at this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<ClusterConfigRevision>,
    /// Both are the same, as far as this node knows.
    pub current: bool,
    /// Why the revision that counts is not in force here, with file and line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// All nodes that have told their revision in the last week.
    pub nodes: Vec<ClusterConfigNode>,
}

/// A revision of the shared configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterConfigRevision {
    /// Counted from 1.
    pub number: u64,
    /// SHA-256 of its files.
    pub files: String,
}

/// The shared configuration at a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterConfigNode {
    /// Its number.
    pub node: u16,
    /// It runs.
    pub running: bool,
    /// The revision in force there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<ClusterConfigRevision>,
    /// Why the revision that counts is not in force there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A limit of a next hop that all nodes keep together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterLimit {
    /// `connections` or `messages_per_second`.
    pub kind: String,
    /// The next hop, as its site is named.
    pub next_hop: String,
    /// The limit for all nodes.
    pub limit: f64,
    /// The share of this node.
    pub share: f64,
    /// The amount that this node could use.
    pub wanted: f64,
}

/// Another node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterNode {
    /// Its number.
    pub node: u16,
    /// Its host name.
    pub name: String,
    /// It takes no new mail and no new copies.
    pub draining: bool,
}

/// A stream with copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterStream {
    /// The node whose engine has it.
    pub holder: u16,
    /// `opening`, `reading`, `open`, `stalled`, `with adopter` or `taken back`.
    pub state: String,
    /// Live messages with a record in it.
    pub messages: u64,
    /// Outcomes that the holder does not know yet: an adopter would deliver these again.
    pub unstored_outcomes: u64,
    /// Octets that wait for a block.
    pub waiting_bytes: u64,
    /// Milliseconds since the holder last had all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
}

/// An adoption under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterAdoption {
    /// The node whose mail is taken over.
    pub owner: u16,
    /// The node whose engine has the copies.
    pub holder: u16,
    /// The present step.
    pub step: String,
    /// Messages taken so far.
    pub taken: u64,
}

/// Mail of an absent node that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterHostage {
    /// The node.
    pub owner: u16,
    /// The node whose engine has the copies.
    pub holder: u16,
    /// Messages, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// The reason, with the next step.
    pub why: String,
}
