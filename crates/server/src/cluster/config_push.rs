//! Carries out a `cluster::Push` for `mailrace cluster push`, by a connection of its own.

use super::bundle_store::{BundleStore, name_of};
use super::connection::Engine;
use super::coordination::Coordination;
use super::error::EngineAccessError;
use super::settings::EngineSettings;
use crate::config;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use cluster::{
    Bundle, BundleName, CONFIG_PREFIX, ClusterId, ConfigView, CoordinationReply, CoordinationRequest, NodeId, Push,
    PushAction, PushEnd, PushId, PushNode, PushOptions,
};
use os::clock;
use std::collections::BTreeMap;

/// Access of an operator's command to the shared configuration of a cluster.
#[derive(Debug)]
pub struct ConfigPusher {
    runtime: tokio::runtime::Runtime,
    engine: Engine,
    settings: EngineSettings,
    cluster: ClusterId,
    node: NodeId,
}

/// The end of a push, and the nodes at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushResult {
    /// The end.
    pub end: PushEnd,
    /// The answers of the nodes.
    pub nodes: BTreeMap<NodeId, PushNode>,
}

impl ConfigPusher {
    /// Connects to an engine of the configuration, which has a cluster. Waits some seconds for an answer.
    ///
    /// # Errors
    /// No engine answers or takes the login; with the next step.
    pub fn connect(config: &config::Cluster) -> Result<Self, EngineAccessError> {
        let settings = |why: &str| EngineAccessError::Settings { why: why.to_owned() };
        let (Some(mut engines), Some(id)) = (EngineSettings::from_config(config), config.id_octets()) else {
            return Err(settings("cluster.id is not set: this server is no node of a cluster"));
        };
        engines.name = format!("mailrace cluster push at node {}", config.node);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| settings(&format!("the runtime: {error}")))?;
        let engine = runtime.block_on(Engine::connect(&engines))?;
        Ok(Self { runtime, engine, settings: engines, cluster: ClusterId(id), node: NodeId(config.node) })
    }

    /// Reads the keys of shared configuration.
    ///
    /// # Errors
    /// No majority of the engines answers.
    pub fn view(&self) -> Result<ConfigView, String> {
        let request = CoordinationRequest::List { prefix: CONFIG_PREFIX.to_owned() };
        match self.ask(&request) {
            CoordinationReply::Listed(listed) => Ok(ConfigView::of(&listed)),
            _ => Err("no majority of the engines answers; \"mailrace cluster verify\" says which do".to_owned()),
        }
    }

    /// Reads a bundle.
    ///
    /// # Errors
    /// It cannot be had, with the reason.
    pub fn fetch(&self, name: BundleName) -> Result<Bundle, String> {
        self.runtime.block_on(BundleStore::new(self.engine.clone()).fetch(name))
    }

    /// Pushes a bundle. `told` gets each answer of a node when it changes.
    ///
    /// # Errors
    /// There is no random number.
    pub fn push(
        &self,
        bundle: &Bundle,
        options: PushOptions,
        mut told: impl FnMut(NodeId, &PushNode),
    ) -> Result<PushResult, String> {
        let octets = bundle.encode();
        let name = name_of(&octets);
        let mut id = [0; 8];
        SystemRandom::new().fill(&mut id).map_err(|_| "the system gives no random number".to_owned())?;
        let id = PushId(u64::from_le_bytes(id));
        let mut push = Push::new(clock::since_boot(), (self.cluster, self.node), id, name, options);
        let bundles = BundleStore::new(self.engine.clone());
        let mut nodes: BTreeMap<NodeId, PushNode> = BTreeMap::new();
        loop {
            let action = push.next(clock::since_boot());
            if *push.nodes() != nodes {
                for (node, now) in push.nodes().iter().filter(|(node, now)| nodes.get(*node) != Some(*now)) {
                    told(*node, now);
                }
                nodes.clone_from(push.nodes());
            }
            match action {
                PushAction::Coordinate(request) => {
                    let reply = self.ask(&request);
                    push.answered(clock::since_boot(), reply);
                }
                PushAction::Clean(kept) => {
                    let replicas = self.settings.coordination_replicas;
                    let result = self.runtime.block_on(bundles.prepare(replicas, &kept));
                    push.uploaded(clock::since_boot(), result.map_err(|error| error.to_string()));
                }
                PushAction::Upload(piece) => {
                    let result = self.runtime.block_on(bundles.put(name, &octets, piece));
                    push.uploaded(clock::since_boot(), result.map_err(|error| error.to_string()));
                }
                // A timer is made within the runtime.
                PushAction::Rest(time) => self.runtime.block_on(async { tokio::time::sleep(time).await }),
                PushAction::End(end) => return Ok(PushResult { end, nodes }),
            }
        }
    }

    fn ask(&self, request: &CoordinationRequest) -> CoordinationReply {
        self.runtime.block_on(Coordination::new(self.engine.clone()).carry_out(request)).reply
    }
}

/// The name that a bundle has in the engine.
#[must_use]
pub fn bundle_name(bundle: &Bundle) -> BundleName {
    name_of(&bundle.encode())
}
