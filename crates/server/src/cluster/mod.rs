//! The engine behind the two seams of crate `cluster`: NATS JetStream.
//!
//! | Part | Task |
//! |---|---|
//! | [`Engine`] | one connection to the engines, first of all to that of this node |
//! | [`ask_engine`] | facts of one engine, for `cluster::check_engine` |
//! | [`check_engines`] | all that an operator wants to know of the engines before the start |
//! | [`ReplicaLog`] | carries out a `cluster::LogRequest` |
//! | [`Coordination`], [`Watch`] | carry out a `cluster::CoordinationRequest`, and tell of changed keys |
//! | [`SharedConfig`], [`ConfigPusher`] | carry out a `cluster::Follower` at a node, a `cluster::Push` for a command |
//! | `HostMessages` | messages about hosts that are down, for `cluster::HostStatusBoard` |
//! | [`ClusterMember`] | runs a `cluster::Node` on them and on the local log, [`LocalMail`]; leaves for good |
//! | [`NodeRemover`] | carries out a `cluster::Removal` of a dead node, for a command |
//! | [`remove_engine`] | takes the engine of a dead node out of the majority, by the system account |
//!
//! All of them are cheap to clone and answer each request by itself, so that a caller has as many under way as it
//! likes. Which requests may be under way at a time is decided by the machines of crate `cluster`, and nothing is
//! repeated here that might be stored twice. Each request ends within [`EngineSettings::request_time_max`].
//!
//! JetStream is spoken by requests of its own (`api`): the error codes decide whether mail is stored.

mod adopted_names;
mod api;
mod bundle_store;
mod by_hand;
mod command_engine;
mod config_push;
mod connection;
mod coordination;
mod copy_envelope;
mod departure;
mod direct_engines;
mod engine_access;
mod engine_checks;
mod engine_peers;
mod error;
mod facts;
mod host_messages;
mod key;
mod local_mail;
mod member;
mod member_loop;
mod member_state;
mod node_removal;
mod replica_log;
mod settings;
mod shared_config;
#[cfg(test)]
mod tests;
mod watch;

pub use adopted_names::AdoptedNames;
pub use by_hand::AbsentMail;
pub use config_push::{ConfigPusher, PushResult, bundle_name};
pub use connection::{Engine, EngineConnection};
pub use coordination::{Coordination, CoordinationAnswer};
pub(crate) use copy_envelope::CopyEnvelope;
pub use departure::{Departure, DepartureStep};
pub use engine_checks::{EngineFinding, EngineFindingState, check_engines};
pub use engine_peers::{EngineRemoval, remove_engine};
pub use error::EngineAccessError;
pub use facts::ask_engine;
pub(crate) use host_messages::HostMessages;
pub use local_mail::LocalMail;
pub use member::{ClusterMember, MemberStart, MemberStatus};
pub use node_removal::{NodeRemovalResult, NodeRemover};
pub use replica_log::{LogAnswer, ReplicaLog};
pub use settings::{EngineLogin, EngineSettings, node_settings, on_no_replica};
pub use shared_config::{SharedConfig, TakeConfig};
// Input and output of commands of operators.
pub use cluster::{BUNDLE_OCTETS_MAX, Bundle, BundleError, NodeId, PushAnswer, PushEnd, PushNode, PushOptions};
pub use cluster::{ROW_WATCH, RemovalEnd, StreamId, WaitingMail, WaitingReason};
pub use watch::{KeyChange, Watch};
