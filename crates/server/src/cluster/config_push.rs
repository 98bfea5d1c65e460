//! Carries out a `cluster::Push` for `mailrace cluster push`, by a connection of its own.

use super::bundle_store::{BundleStore, name_of};
use super::command_engine::CommandEngine;
use super::error::EngineAccessError;
use crate::config;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use cluster::{
    Bundle, BundleName, CONFIG_PREFIX, ConfigView, CoordinationReply, CoordinationRequest, NodeId, Push, PushAction,
    PushEnd, PushId, PushNode, PushOptions,
};
use os::clock;
use std::collections::BTreeMap;

/// Access of an operator's command to the shared configuration of a cluster.
#[derive(Debug)]
pub struct ConfigPusher(CommandEngine);

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
        CommandEngine::connect(config, "push").map(Self)
    }

    /// Reads the keys of shared configuration.
    ///
    /// # Errors
    /// No majority of the engines answers.
    pub fn view(&self) -> Result<ConfigView, String> {
        let request = CoordinationRequest::List { prefix: CONFIG_PREFIX.to_owned() };
        match self.0.ask(&request) {
            CoordinationReply::Listed(listed) => Ok(ConfigView::of(&listed)),
            _ => Err("no majority of the engines answers; \"mailrace cluster verify\" says which do".to_owned()),
        }
    }

    /// Reads a bundle.
    ///
    /// # Errors
    /// It cannot be had, with the reason.
    pub fn fetch(&self, name: BundleName) -> Result<Bundle, String> {
        self.0.runtime.block_on(BundleStore::new(self.0.engine.clone()).fetch(name))
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
        let Self(access) = self;
        let octets = bundle.encode();
        let name = name_of(&octets);
        let mut id = [0; 8];
        SystemRandom::new().fill(&mut id).map_err(|_| "the system gives no random number".to_owned())?;
        let id = PushId(u64::from_le_bytes(id));
        let mut push = Push::new(clock::since_boot(), (access.cluster, access.node), id, name, options);
        let bundles = BundleStore::new(access.engine.clone());
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
                    let reply = access.ask(&request);
                    push.answered(clock::since_boot(), reply);
                }
                PushAction::Clean(kept) => {
                    let replicas = access.settings.coordination_replicas;
                    let result = access.runtime.block_on(bundles.prepare(replicas, &kept));
                    push.uploaded(clock::since_boot(), result.map_err(|error| error.to_string()));
                }
                PushAction::Upload(piece) => {
                    let result = access.runtime.block_on(bundles.put(name, &octets, piece));
                    push.uploaded(clock::since_boot(), result.map_err(|error| error.to_string()));
                }
                PushAction::Rest(time) => access.rest(time),
                PushAction::End(end) => return Ok(PushResult { end, nodes }),
            }
        }
    }
}

/// The name that a bundle has in the engine.
#[must_use]
pub fn bundle_name(bundle: &Bundle) -> BundleName {
    name_of(&bundle.encode())
}
