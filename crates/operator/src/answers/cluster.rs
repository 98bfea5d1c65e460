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
    /// `member`, `joining`, `alone` (no majority of the engines, so nothing is adopted), `draining`, `leaving` or
    /// `refused`.
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
    /// Of them with one copy where `cluster.copies = 3` asks for two.
    pub with_fewer_copies: u64,
    /// Of them with a copy that another node may have adopted: they wait.
    pub waiting_for_stream: u64,
    /// Messages that were taken over and wait for the record of that.
    pub adopted_waiting: u64,
    /// Octets of copies that holders have stored since the start, before they were compressed.
    pub copied_bytes: u64,
    /// The same as they were stored.
    pub stored_bytes: u64,
    /// The format version in which this node writes copies: the newest that all nodes read.
    pub block_version: u16,
    /// The newest one that this node reads.
    pub block_version_newest: u16,
    /// Messages adopted since the start.
    pub adopted: u64,
    /// Messages given up to other nodes since the start.
    pub given_up: u64,
    /// The other nodes as this one sees them.
    pub nodes: Vec<ClusterNode>,
    /// Nodes that left for good and have not come back.
    pub departed: Vec<ClusterDeparted>,
    /// How far the departure of this node is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leave: Option<ClusterLeave>,
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
    /// Next hops that nodes report to each other, if `cluster.host_status` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<ClusterHosts>,
}

/// Next hops that nodes report to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterHosts {
    /// Those that other nodes report, by name; the first 100.
    pub reported: Vec<ClusterHost>,
    /// All of them.
    pub reported_count: u64,
    /// Next hops of this node whose mail waits because of a report.
    pub waiting: u64,
    /// Reports that this node sent since the start.
    pub sent: u64,
    /// Reports that it got from other nodes.
    pub received: u64,
    /// Reports that it dropped: too many in a second, or about too many next hops.
    pub dropped: u64,
    /// Messages that were no reports.
    pub unreadable: u64,
}

/// A next hop that another node reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterHost {
    /// The next hop, as its site is named at all nodes.
    pub next_hop: String,
    /// `down`, `throttled` or `tls-broken`.
    pub state: String,
    /// The node.
    pub node: u16,
    /// Seconds until this node makes an attempt of its own, at most.
    pub wait: u64,
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
    /// It leaves for good, and the others take the copies that it holds elsewhere.
    pub leaving: bool,
}

/// A node that left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterDeparted {
    /// Its number.
    pub node: u16,
    /// Messages of this node with a copy on its engine.
    pub messages: u64,
    /// When it left no other node had copies on its engine.
    pub empty: bool,
}

/// How far the departure of a node is, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterLeave {
    /// The number of the node.
    pub node: u16,
    /// `announced`, `sessions`, `adoptions`, `mail`, `copies`, `limits`, `entry`, and `left` at the end.
    pub step: String,
    /// Of the step: seconds, connections, adoptions, messages or copies that are left.
    pub remaining: u64,
    /// Messages that other nodes took over.
    pub messages: u64,
    /// Shared limits that have the part of the node back.
    pub limits: u64,
    /// Mail of other nodes with copies on its engine.
    pub copies: Vec<ClusterCopies>,
    /// Messages that stay on the disk of the node.
    pub staying: u64,
    /// The first of them.
    pub staying_ids: Vec<String>,
    /// The spool directory.
    pub spool: String,
    /// The address of its engine.
    pub engine: String,
    /// The other nodes that run.
    pub nodes: Vec<u16>,
    /// Steps that did not come to their end, each with what to do.
    pub problems: Vec<String>,
}

/// Copies of the mail of another node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterCopies {
    /// The owner of the mail.
    pub owner: u16,
    /// Messages, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
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
