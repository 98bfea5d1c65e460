//! Time limits, sizes and identity of a node.

use crate::block::{Block, BlockError, BlockVersions};
use crate::identity::{ClusterId, Incarnation, Lane, NodeId, StreamId};
use bytes::Bytes;
use std::time::Duration;

/// The settings of a node. [`Settings::new`] has the defaults; all nodes of a cluster must have the same
/// [`Settings::own_time`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster.
    pub cluster: ClusterId,
    /// This node.
    pub node: NodeId,
    /// The life of the local log.
    pub incarnation: Incarnation,
    /// Number of this start of the local log, counted by the log itself from 1.
    pub start: u32,
    /// Copies of a message that the 250 waits for, the local log included: 1, 2 or 3.
    pub copies: usize,
    /// Time from the sending of the last stored append in which the owner may deliver mail of a stream. Adopters wait
    /// it out.
    pub own_time: Duration,
    /// Time that an adopter waits beyond [`Settings::own_time`]: for clocks of different speed, and for the way of a
    /// final dot.
    pub adoption_margin: Duration,
    /// Time between heartbeats of an idle stream.
    pub heartbeat: Duration,
    /// Time without an answer after which an append counts as unknown.
    pub append_timeout: Duration,
    /// Time between questions for the tail of a stream that is out of reach.
    pub tail_interval: Duration,
    /// Time without a stored block after which the owner takes the mail of a stream back and copies it elsewhere.
    /// The claim is written `append_timeout` and `tail_interval` later, unless the holder is back by then. Longer than
    /// `own_time`; the mail is not delivered in between. Copies that were taken back never count again.
    pub take_back_after: Duration,
    /// The same for a stream that was not read since the start of the owner.
    pub unread_wait_max: Duration,
    /// Time that the owner waits for what adopters have to do: for the end of an adoption whose blocks are lost or out
    /// of reach, and, before it opens a stream again, for the end of a part of an earlier start.
    pub adopter_wait_max: Duration,
    /// Time without a block before a stream is adopted.
    pub silence: Duration,
    /// Completions in one record.
    pub done_batch: usize,
    /// Time that a completion waits for others.
    pub done_delay: Duration,
    /// Completions that are not yet stored at the holder above which no delivery starts: they would be repeated after
    /// an adoption.
    pub done_unstored_max: usize,
    /// Age of the oldest of them above which no delivery starts.
    pub done_lag_max: Duration,
    /// Octets that wait for one stream above which new mail goes to another holder, if there is one.
    pub waiting_octets_min: usize,
    /// Octets that may wait for one stream whose holder is fast; a slow one has what it stores in `append_timeout`, and
    /// `waiting_octets_min` at least.
    pub waiting_octets_max: usize,
    /// Messages that are read from the local log at a time, to be copied anew.
    pub reads_max: usize,
    /// Octets of a body above which it goes in pieces.
    pub inline_body_max: usize,
    /// Octets of a piece.
    pub piece_octets: usize,
    /// Octets of the records of a block of messages below which it is not compressed. Bodies in pieces never are: such
    /// large ones are nearly always base64.
    pub compressed_octets_min: usize,
    /// Octets of a stream without compression below which it is not compacted.
    pub compaction_octets_min: usize,
    /// Stored octets asked for in one scan.
    pub scan_octets: usize,
    /// Time between two looks at the blocks of a stream, [`Settings::scan_octets`] each.
    pub scrub_interval: Duration,
    /// Messages of one part of an adoption.
    pub part_messages_max: usize,
    /// Time between puts of the node's entry, and between looks at the other entries.
    pub membership_interval: Duration,
    /// Time to live of the entry.
    pub membership_ttl: Duration,
    /// Block versions that this program reads. Only a test changes them.
    #[doc(hidden)]
    pub block_versions: BlockVersions,
    /// The version that it writes: the newest that all members read.
    #[doc(hidden)]
    pub block_version: u16,
    /// Rules that a test may leave out to see that it notices.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

/// Rules to leave out.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sabotage {
    /// Blocks in flight beyond the first.
    pub window_extra: usize,
    /// An adopter does not wait for the end of the owner's time.
    pub no_wait: bool,
    /// An adopter by order of an operator does not wait for the end of the owner's time.
    pub no_wait_by_hand: bool,
    /// An adopter with a new disk goes on at once with a part that it began with the disk before.
    pub no_former_copies: bool,
    /// An adopter does not apply DONE records.
    pub no_done: bool,
    /// An adopter and an owner change the claim without looking at its content.
    pub no_claim: bool,
    /// An owner writes a first copy again in a later epoch without a decision in the claim.
    pub no_decision: bool,
    /// An owner counts copies that the claim says it has back.
    pub keeps_moved: bool,
    /// An adopter of second copies leaves mail to a holder of first copies that looks alive, and ends them.
    pub no_first_wait: bool,
}

impl Settings {
    /// Reads a block of a stream.
    pub(crate) fn read_block(&self, stream: StreamId, lane: Lane, octets: &Bytes) -> Result<Block, BlockError> {
        Block::read_of_versions(self.cluster, self.block_versions, stream, lane, octets)
    }

    /// The defaults.
    #[must_use]
    pub fn new(cluster: ClusterId, node: NodeId, incarnation: Incarnation, start: u32) -> Self {
        Self {
            cluster,
            node,
            incarnation,
            start,
            copies: 2,
            own_time: Duration::from_secs(12),
            adoption_margin: Duration::from_secs(1),
            heartbeat: Duration::from_secs(2),
            append_timeout: Duration::from_secs(3),
            tail_interval: Duration::from_secs(1),
            take_back_after: Duration::from_secs(20),
            unread_wait_max: Duration::from_secs(60),
            adopter_wait_max: Duration::from_secs(60),
            silence: Duration::from_secs(15),
            done_batch: 256,
            done_delay: Duration::from_millis(100),
            done_unstored_max: 512,
            done_lag_max: Duration::from_secs(3),
            waiting_octets_min: 2 << 20,
            waiting_octets_max: 64 << 20,
            reads_max: 64,
            inline_body_max: 192 << 10,
            piece_octets: 240 << 10,
            compressed_octets_min: 2 << 10,
            compaction_octets_min: 4 << 20,
            scan_octets: 1 << 20,
            scrub_interval: Duration::from_secs(10),
            part_messages_max: 1_024,
            membership_interval: Duration::from_secs(2),
            membership_ttl: Duration::from_secs(15),
            block_versions: BlockVersions::default(),
            block_version: BlockVersions::default().oldest,
            sabotage: Sabotage::default(),
        }
    }
}
