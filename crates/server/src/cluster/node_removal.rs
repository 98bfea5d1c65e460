//! Carries out a `cluster::Removal` for `mailrace cluster leave --node`, by a connection of its own.

use super::command_engine::CommandEngine;
use super::error::EngineAccessError;
use super::replica_log::ReplicaLog;
use crate::config;
use cluster::{LIMIT_PREFIX, NodeId, Removal, RemovalAction, RemovalEnd, WaitingMail};
use os::clock;

/// Access of an operator's command to the members of a cluster.
#[derive(Debug)]
pub struct NodeRemover(CommandEngine);

/// The end of a removal, and mail that waits for the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRemovalResult {
    /// The end.
    pub end: RemovalEnd,
    /// Mail that no other node has.
    pub waiting: Vec<WaitingMail>,
}

impl NodeRemover {
    /// Connects to an engine of the configuration, which has a cluster. Waits some seconds for an answer.
    ///
    /// # Errors
    /// No engine answers or takes the login; with the next step.
    pub fn connect(config: &config::Cluster) -> Result<Self, EngineAccessError> {
        CommandEngine::connect(config, "leave").map(Self)
    }

    /// Removes a dead node. `watches` is called once when its rows of shared limits are watched, which takes
    /// [`cluster::ROW_WATCH`].
    #[must_use]
    pub fn remove(&self, node: NodeId, is_forced: bool, mut watches: impl FnMut()) -> NodeRemovalResult {
        let Self(access) = self;
        let log = ReplicaLog::new(access.engine.clone(), access.settings.lane_octets_max);
        let mut removal = Removal::new(clock::since_boot(), access.cluster, access.node, node, is_forced);
        let mut is_told = false;
        loop {
            match removal.next(clock::since_boot()) {
                RemovalAction::Coordinate(request) => {
                    let reply = access.ask(&request);
                    removal.answered(clock::since_boot(), reply);
                }
                RemovalAction::Log(request) => {
                    let reply = access.runtime.block_on(log.carry_out(&request)).reply;
                    removal.log_answered(clock::since_boot(), &reply);
                }
                RemovalAction::Streams => {
                    let streams = access.runtime.block_on(log.streams()).map_err(|error| error.to_string());
                    removal.streams_listed(streams.as_deref().map_err(Clone::clone));
                }
                RemovalAction::Tables => {
                    let tables = access.runtime.block_on(access.store().keys(LIMIT_PREFIX));
                    removal.tables_listed(clock::since_boot(), tables.map_err(|error| error.to_string()));
                }
                RemovalAction::Rest(time) => {
                    if removal.is_watching() && !std::mem::replace(&mut is_told, true) {
                        watches();
                    }
                    access.rest(time);
                }
                RemovalAction::End(end) => return NodeRemovalResult { end, waiting: removal.waiting().to_vec() },
            }
        }
    }
}
