//! The connection of an operator's command to the engines, in a runtime of its own.

use super::connection::Engine;
use super::coordination::Coordination;
use super::error::EngineAccessError;
use super::settings::EngineSettings;
use crate::config;
use cluster::{ClusterId, CoordinationReply, CoordinationRequest, NodeId};
use std::time::Duration;

/// The access of a command.
#[derive(Debug)]
pub(super) struct CommandEngine {
    pub(super) runtime: tokio::runtime::Runtime,
    pub(super) engine: Engine,
    pub(super) settings: EngineSettings,
    pub(super) cluster: ClusterId,
    /// The node at which the command runs.
    pub(super) node: NodeId,
}

impl CommandEngine {
    /// Connects to an engine of the configuration, which has a cluster. Waits some seconds for an answer.
    ///
    /// # Errors
    /// No engine answers or takes the login; with the next step.
    pub(super) fn connect(config: &config::Cluster, command: &str) -> Result<Self, EngineAccessError> {
        let settings = |why: &str| EngineAccessError::Settings { why: why.to_owned() };
        let (Some(mut engines), Some(id)) = (EngineSettings::from_config(config), config.id_octets()) else {
            return Err(settings("cluster.id is not set: this server is no node of a cluster"));
        };
        engines.name = format!("mailrace cluster {command} at node {}", config.node);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| settings(&format!("the runtime: {error}")))?;
        let engine = runtime.block_on(Engine::connect(&engines))?;
        Ok(Self { runtime, engine, settings: engines, cluster: ClusterId(id), node: NodeId(config.node) })
    }

    /// Asks the store, and waits for the answer.
    pub(super) fn ask(&self, request: &CoordinationRequest) -> CoordinationReply {
        self.runtime.block_on(self.store().carry_out(request)).reply
    }

    /// The store.
    pub(super) fn store(&self) -> Coordination {
        Coordination::new(self.engine.clone())
    }

    /// Waits.
    pub(super) fn rest(&self, time: Duration) {
        // A timer is made within the runtime.
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }
}
