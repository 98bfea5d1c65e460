//! The state of a node in the cluster as plain data, for `mailrace cluster status`, the page and metrics.

use crate::identity::{NodeId, StreamId};
use std::time::Duration;

/// Counts for status and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounts {
    /// Live messages.
    pub messages: usize,
    /// Without a copy, although one is wanted (`mr_unreplicated_messages`).
    pub unreplicated: usize,
    /// With one copy, although two are wanted (`copies = 3`).
    pub with_fewer_copies: usize,
    /// With a copy in a stream that may have another owner now.
    pub waiting_for_stream: usize,
    /// Blocks in all streams of this node, as far as they are known.
    pub blocks: usize,
    /// Octets of the blocks that holders have stored since the start, before they were compressed.
    pub copied_octets: u64,
    /// The same as they were stored.
    pub stored_octets: u64,
}

/// The state of a node in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// This node.
    pub node: NodeId,
    /// The node's own entry is written.
    pub is_member: bool,
    /// The view of the members is fresh: the key-value store has a majority and this node reaches it. Without it
    /// nothing is adopted or taken back.
    pub has_majority: bool,
    /// The block version that this node writes: the newest that all members read.
    pub block_version: u16,
    /// The newest block version that it reads.
    pub block_version_newest: u16,
    /// Counts over all mail of this node.
    pub counts: OwnerCounts,
    /// Messages that were adopted and wait for the record of their adoption; they are not delivered yet.
    pub adopted_waiting: usize,
    /// Messages with copies at holders whose mail process is gone, by holder.
    pub at_gone_holders: Vec<(NodeId, usize)>,
    /// The streams of this node.
    pub streams: Vec<StreamStatus>,
    /// Adoptions under way.
    pub adoptions: Vec<AdoptionStatus>,
    /// Mail of absent owners that cannot be adopted now, as far as this node sees it.
    pub hostages: Vec<HostageStatus>,
}

/// A stream of this node: how far it and the local log agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStatus {
    /// The stream.
    pub stream: StreamId,
    /// Its state.
    pub state: StreamState,
    /// Live messages with a stored record in it.
    pub messages: u64,
    /// The sequence of the last block that is known to be stored.
    pub stored_upto: u64,
    /// Octets of records that wait for a block.
    pub waiting_octets: usize,
    /// Completions that the holder does not have yet: they would be repeated after an adoption.
    pub unstored_completions: usize,
    /// Time since the holder last had all that the local log had; `None` when it has all now.
    pub lag: Option<Duration>,
}

/// The state of a stream of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// Its tail was not read since the start.
    Opening,
    /// Mail of earlier starts is read from it.
    Reading,
    /// Mail is written to it and delivered.
    Open,
    /// Its holder does not answer or has no room; its mail is delivered for a few seconds more.
    Stalled,
    /// Another node has fenced it and adopts its mail.
    WithAdopter,
    /// Its mail was taken back, and it is opened again when it can be reached.
    TakenBack,
}

/// An adoption by this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptionStatus {
    /// The stream.
    pub stream: StreamId,
    /// The present step, as a word.
    pub step: &'static str,
    /// Messages of the parts that are recorded.
    pub taken: usize,
    /// Messages of the present part that are not safe yet.
    pub in_part: usize,
}

/// Mail of an absent owner that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostageStatus {
    /// Its stream.
    pub stream: StreamId,
    /// Live messages by the owner's last heartbeat; `None` when this node has not seen one.
    pub messages: Option<u64>,
    /// The reason.
    pub why: HostageReason,
}

/// The reason why mail of an absent owner is not adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostageReason {
    /// The holder's engine does not answer: the mail goes on when it or the owner is back.
    HolderOutOfReach,
    /// This node has no majority of the key-value store.
    NoMajority,
    /// An adopter has stopped within a part; the part goes on when that node is back.
    PartOpen {
        /// The adopter.
        by: NodeId,
    },
    /// A later version of the program wrote the stream: it takes a node of that version.
    NewerVersion {
        /// The version of its blocks.
        version: u16,
    },
    /// The stream is damaged or lost: the mail goes on when the owner is back.
    Damaged,
}
