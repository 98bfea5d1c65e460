//! The seam to the engine's durable log: the requests that the machines make, and the answers they expect.
//!
//! A stream lies on one server of the engine. The machines rely on these properties of it, each of which a driver must
//! keep:
//!
//! - an append is stored on stable storage before it is answered with [`LogReply::Appended`];
//! - an append whose `expected_last` is not the sequence of the stream's last block is not stored;
//! - sequences rise by one with each append and never fall, also after a trim;
//! - a tail or scan answers from the server that decides about appends, not from another copy.
//!
//! A request without an answer is answered by the driver with [`LogReply::Unknown`], or not at all: each machine has
//! its own time limits, and a late answer does no harm.

use crate::identity::{Lane, StreamId};
use bytes::Bytes;

/// A request to the engine about one lane of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// The stream.
    pub stream: StreamId,
    /// The lane.
    pub lane: Lane,
    /// The operation.
    pub operation: LogOperation,
}

/// An operation of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOperation {
    /// Makes the lane if it does not exist: one replica, at the holder, sync before each answer, discard new when full.
    Create,
    /// Stores a block behind the block with sequence `expected_last`; 0 for the first.
    Append {
        /// The last sequence that the writer knows.
        expected_last: u64,
        /// The block.
        block: Bytes,
    },
    /// Asks for the last block.
    Tail,
    /// Asks for blocks from a sequence on, in order.
    Scan {
        /// The first sequence wanted; blocks that were trimmed are left out.
        from: u64,
        /// Octets of all blocks together; one block comes in any case.
        octets_max: usize,
    },
    /// Removes blocks.
    Trim {
        /// The last sequence to remove; the last block of the lane stays.
        upto: u64,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogReply {
    /// The lane exists.
    Created,
    /// The block is on stable storage.
    Appended {
        /// Its sequence.
        sequence: u64,
    },
    /// The block was not stored: another block has the place.
    WrongLast,
    /// The last block.
    Tail {
        /// The sequence of the last block that was ever stored; 0 in a new lane.
        sequence: u64,
        /// That block; `None` in a new lane, or when the engine lost it.
        block: Option<Bytes>,
    },
    /// Blocks in order.
    Scanned {
        /// Each with its sequence.
        blocks: Vec<(u64, Bytes)>,
        /// No block is behind these.
        is_end: bool,
    },
    /// The blocks are gone.
    Trimmed,
    /// The block was not stored: the disk or the lane is full.
    Full,
    /// The engine is reached and has no such lane.
    NoStream,
    /// No answer came, or one that does not say what happened: the request may have been carried out, or may be later.
    Unknown,
}
