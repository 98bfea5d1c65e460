//! The values that go into and out of a node: new mail, actions, answers, reports.

use crate::coordination::CoordinationRequest;
use crate::identity::{Epoch, Lane, NodeId, StreamId};
use crate::record::{Accepted, Completion};
use crate::replica_log::LogRequest;
use bytes::Bytes;
use mail::QueueId;
use std::time::Duration;

/// The name of a request; its answer carries it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    pub(crate) purpose: Purpose,
    pub(crate) attempt: u64,
}

/// The machine that a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Purpose {
    OwnerWrite(StreamId, Lane),
    OwnerScan(StreamId),
    OwnerScrub(StreamId),
    OwnerTrim(StreamId),
    OwnerTrimBodies(StreamId),
    OwnerCreate(StreamId),
    OwnerClaim(StreamId),
    AdopterWrite(StreamId),
    AdopterScan(StreamId),
    AdopterTrim(StreamId),
    AdopterClaim(StreamId),
    AdopterParts,
    MemberPut,
    MemberList,
    MemberDelete,
    MemberMark,
    /// A shared limit, by its number at this node.
    Limit(u64),
}

/// A message that this node accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Its name.
    pub id: QueueId,
    /// When it was queued, in microseconds since 1970.
    pub queued_at_us: u64,
    /// When it is returned, in microseconds since 1970; 0 when the retry policy decides.
    pub expires_at_us: u64,
    /// Recipients after all expansion.
    pub recipients: u32,
    /// The envelope as the local log writes it.
    pub envelope: Bytes,
    /// Its content.
    pub content: Content,
}

/// The content of a new message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Header section and body.
    Whole(Bytes),
    /// Went out by `Node::stream_body` while it arrived.
    Streamed,
}

/// The rule for new mail while no holder takes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnNoReplica {
    /// The client gets a temporary error.
    TempFail,
    /// The local log alone is enough; the message counts as unreplicated until a holder has a copy.
    AcceptLocal,
}

/// The answer that a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptAnswer {
    /// 250: all copies are on stable storage.
    Replicated,
    /// 250: the local log has it, and no copy is known.
    LocalOnly,
    /// 451 4.3.0: no holder has it; the local log must drop the message without delivery.
    TempFail,
}

/// A message that the local log has when the node starts, or in answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalMessage {
    /// Its name.
    pub id: QueueId,
    /// Number of times that another node took it over.
    pub hops: u16,
    /// Its recipients.
    pub recipients: u32,
    /// Those that are finished.
    pub finished: Vec<u32>,
}

/// Something that the driver does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Asks the engine's log, and calls `Node::log_answered`.
    Log {
        /// To be given back.
        token: Token,
        /// The request.
        request: LogRequest,
    },
    /// Asks the key-value store, and calls `Node::coordination_answered`.
    Coordinate {
        /// To be given back.
        token: Token,
        /// The request.
        request: CoordinationRequest,
    },
    /// Answers the client of a message.
    Answer {
        /// The message.
        id: QueueId,
        /// The answer.
        answer: AcceptAnswer,
    },
    /// Reads a message from the local log, and calls `Node::read`. Its client may still wait for an answer, after
    /// `Node::stored`.
    Read {
        /// The message.
        id: QueueId,
    },
    /// Stores a message of another node in the local log, and calls `Node::stored` when it is durable.
    ///
    /// The log must not take it if it has, or had within a day, the same id with these hops or more, finished or not,
    /// and then calls `Node::store_refused`. One with fewer hops is replaced.
    Store(Box<Accepted>),
    /// Records completions that the copy has and the local log lost in a crash.
    Complete(Vec<Completion>),
    /// Drops messages that another node has taken over, without delivery or report, keeps their ids and hops for a day,
    /// and calls `Node::forgotten` when this is durable.
    Forget {
        /// The stream they were taken from.
        stream: StreamId,
        /// Each with the hops that it had; one with more hops stays.
        messages: Vec<(QueueId, u16)>,
    },
    /// Logs an event.
    Report(Report),
}

/// An event for log, metrics and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A holder did not answer in time, or has no room: new mail goes to others.
    HolderStalled {
        /// The stream.
        stream: StreamId,
        /// The holder has no room.
        is_full: bool,
    },
    /// The owner lost a stream to another node.
    Fenced {
        /// The stream.
        stream: StreamId,
        /// The epoch of the fence.
        epoch: Epoch,
        /// The node that raised it.
        by: NodeId,
    },
    /// Copies were lost; they are made anew.
    CopiesLost {
        /// The stream.
        stream: StreamId,
        /// The reason.
        why: String,
    },
    /// The owner took its mail back from a stream that is out of reach, and copies it elsewhere.
    TakenBack {
        /// The stream.
        stream: StreamId,
        /// Messages.
        messages: usize,
    },
    /// Mail waits since its stream is out of reach and another node may have it.
    Hostage {
        /// The stream.
        stream: StreamId,
        /// The reason.
        why: &'static str,
    },
    /// Messages of this node are with another node now.
    GivenUp {
        /// The stream.
        stream: StreamId,
        /// Messages.
        messages: usize,
    },
    /// An adoption began: the stream is fenced.
    AdoptionBegan {
        /// The stream.
        stream: StreamId,
        /// Time until mail is taken over.
        wait: Duration,
    },
    /// A message was adopted whose recipients may have had it already (`duplicate=possible` in the log).
    PossibleDuplicate {
        /// The message.
        id: QueueId,
    },
    /// The owner delivers a message that another node may have adopted: the stream with the list of what was taken is
    /// lost. Recipients may get it twice (`duplicate=possible` in the log).
    AdoptionUnknown {
        /// The message.
        id: QueueId,
    },
    /// The owner delivers a message of an earlier start that no adopter took and no stream has: a result that the local
    /// log lost may have been in a stream that was adopted. Recipients may get it twice (`duplicate=possible` in the
    /// log).
    ResultUnknown {
        /// The message.
        id: QueueId,
    },
    /// A block of a stream under adoption cannot be read; its mail stays with the former owner.
    BlockPassedOver {
        /// The stream.
        stream: StreamId,
        /// Its sequence.
        sequence: u64,
        /// The reason.
        why: String,
    },
    /// An adoption ended.
    AdoptionEnded {
        /// The stream.
        stream: StreamId,
        /// Messages taken over.
        messages: usize,
        /// The rest went back to the owner, which returned.
        is_handed_back: bool,
    },
}
