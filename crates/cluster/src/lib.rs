//! Keeps queued mail alive when a machine dies: copies, ownership, adoption, shared limits, membership.
//!
//! The server reports events to a [`Node`] and carries out its actions. Copies go into *shadow streams* of an engine
//! (a durable log with compare-and-append), and coordination into its replicated key-value store; both are seams of
//! requests and answers. The crate has no consensus and no replication of its own: the tail of a shadow stream says
//! which node owns its mail (`docs/cluster.md` describes all of it).
//!
//! The crate is pure: no clock, disk, socket, async, thread, lock or global. The same calls give the same answers.
//!
//! | File | What it holds |
//! |---|---|
//! | `identity` | cluster, nodes, streams, epochs |
//! | `record`, `block`, `compression` | the bytes of blocks and records, their reader and writer |
//! | `replica_log`, `coordination` | the two seams to the engine |
//! | `claim` | the key that decides between owner and adopter |
//! | `stream_writer` | writes one lane of a stream with one block in flight |
//! | `owner` | accepts mail, places copies, says what may be delivered |
//! | `adopter` | takes over the mail of a node that is gone |
//! | `departure` | what a node leaves behind that is gone for good: its rows of shared limits, its mark |
//! | `membership`, `engine` | who takes part, and the reasons to refuse a node or an engine |
//! | `node` | all of these behind one interface |
//! | `rendezvous` | the order of holders |
//! | `share`, `share_table`, `shared_limits` | shares of limits that all nodes keep together |
//! | `shared_config` | configuration and maps that all nodes share |
//! | `host_status` | hosts that are down, told to the other nodes |
//! | `status` | the state of a node as plain data |
//! | `absent` | mail of absent nodes, and orders to adopt it by hand, as plain data |
//! | `settings`, `action` | the values that go in and out |
//! | `fuzz` | bodies for fuzzers |

#![forbid(unsafe_code)]

mod absent;
mod action;
mod adopter;
mod block;
mod claim;
mod compression;
mod coordination;
mod departure;
mod engine;
pub mod fuzz;
mod host_status;
mod identity;
mod membership;
mod node;
mod owner;
mod record;
mod rendezvous;
mod replica_log;
mod settings;
mod share;
mod share_table;
mod shared_config;
mod shared_limits;
mod status;
mod stream_writer;

pub use absent::{AbsentState, AbsentStream, HandAdoption, HandAdoptionError};
pub use action::{AcceptAnswer, Action, Content, LocalMessage, NewMessage, OnNoReplica, Report, Token};
pub use block::{
    BLOCK_BYTES_LIMIT, BLOCK_BYTES_MAX, BLOCK_BYTES_SHRINKING_MAX, BLOCK_HEADER, BLOCK_VERSION, Block, BlockError,
    BlockHeader, BlockVersions, Chain,
};
pub use claim::{AdoptedCopy, Claim, ClaimError, OwnerLife};
pub use coordination::{CoordinationReply, CoordinationRequest, KeyValue};
pub use departure::{
    ROW_WATCH, Removal, RemovalAction, RemovalEnd, RowAction, RowRemoval, RowRemovalEnd, WaitingMail, WaitingReason,
};
pub use engine::{ENGINE_VERSION_MIN, EngineError, EngineFacts, check_engine};
pub use host_status::{
    HEARD_PER_SECOND_MAX, HOST_STATUS_MAX, HostNews, HostReport, HostState, HostStatus, HostStatusBoard,
    HostStatusCounts, PUBLISH_INTERVAL, PUBLISHED_PER_SECOND_MAX,
};
pub use identity::{ClusterId, Epoch, Incarnation, Lane, NodeId, StreamId};
pub use membership::{
    CLOCK_DIFFERENCE_MAX, DepartureMark, MembershipError, NODE_PREFIX, NodeEntry, OwnEntryDecision, judge_node,
    judge_own_entry,
};
pub use node::Node;
pub use owner::OwnershipDoubt;
pub use record::{
    Accepted, Adopted, Completion, Fence, Outcome, Piece, PieceList, RECIPIENTS_MAX, Record, StoredBody, Twin,
};
pub use rendezvous::holders_of;
pub use replica_log::{LogOperation, LogReply, LogRequest};
#[doc(hidden)]
pub use settings::Sabotage;
pub use settings::Settings;
pub use share::{LEASE, LEASE_MARGIN, RENEW_INTERVAL, ROTATE_IDLE, ROTATE_MESSAGES, Share, ShareRequest};
pub use share_table::{ShareRow, ShareTable};
pub use shared_config::{
    ActiveRevision, BUNDLE_FILES_MAX, BUNDLE_OCTETS_MAX, Bundle, BundleDigest, BundleError, BundleFile, BundleName,
    CONFIG_PREFIX, ConfigView, Examined, FollowAction, Follower, FollowerStatus, NodeReport, Push, PushAction,
    PushAnswer, PushClaim, PushEnd, PushId, PushNode, PushOptions, bundle_path_fault,
};
pub use shared_limits::{LIMIT_PREFIX, LimitGrant, LimitStatus, LimitUse, SHARED_LIMITS_MAX};
pub use status::{AdoptionStatus, ClusterStatus, HostageReason, HostageStatus, OwnerCounts, StreamState, StreamStatus};
