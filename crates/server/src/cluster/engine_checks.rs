//! Checks of all engines of `[cluster]` and of the running nodes, for `mailrace cluster verify`.
//!
//! Every result is an [`EngineFinding`]: its state and a sentence with the next step. Engines are asked side by side,
//! by connections of their own. Nothing is changed, except that each read of the nodes writes its message
//! (`coordination`). The monitor of this node's engine is asked alone: those of others listen on their own machines.

use super::connection::{self, Engine, EngineConnection};
use super::coordination::Coordination;
use super::engine_peers::is_system_account;
use super::error::EngineAccessError;
use super::facts::{has_streams, is_sync_always, of_monitor};
use super::settings::EngineSettings;
use super::{api, key};
use crate::config;
use async_nats::{Client, ServerInfo};
use cluster::{
    BlockVersions, ClusterId, CoordinationReply, CoordinationRequest, EngineFacts, Incarnation, MembershipError,
    NODE_PREFIX, NodeEntry, NodeId, check_engine, judge_node,
};
use futures_util::future::join_all;
use os::clock;
use serde_json::Value;
use tokio::sync::watch;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineFindingState {
    /// As it should be.
    Ok,
    /// It cannot be known from here.
    Unknown,
    /// There is no answer.
    Away,
    /// The login is refused.
    Refused,
    /// A configuration is wrong.
    Wrong,
}

impl EngineFindingState {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Away => "away",
            Self::Refused => "refused",
            Self::Wrong => "wrong",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineFinding {
    /// The kind: `connect`, `version`, `jetstream`, `name`, `sync`, `tags`, `leader`, `id`, `clock`,
    /// `system`.
    pub check: &'static str,
    /// The address of the engine, or the node.
    pub object: String,
    /// The result.
    pub state: EngineFindingState,
    /// A sentence for the operator, with the next step.
    pub text: String,
}

/// An engine that answers.
struct Reached {
    address: String,
    client: Client,
    info: ServerInfo,
}

/// Asks all engines of the configuration, and the nodes that run; nothing where there is no cluster.
///
/// Waits some seconds for each answer that does not come; call it on a thread that may wait.
///
/// # Errors
/// There is no runtime.
pub fn check_engines(config: &config::Cluster) -> Result<Vec<EngineFinding>, String> {
    let (Some(settings), Some(id)) = (EngineSettings::from_config(config), config.id_octets()) else {
        return Ok(Vec::new());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the runtime: {error}"))?;
    let mut found = runtime.block_on(check(&settings, ClusterId(id), NodeId(config.node)));
    let has_engine = found.iter().any(|one| one.check == "connect" && one.state == EngineFindingState::Ok);
    if let Some(system) = EngineSettings::of_system_account(config).filter(|_| has_engine) {
        found.push(runtime.block_on(check_system(&system, &config.system_user)));
    }
    Ok(found)
}

async fn check(settings: &EngineSettings, cluster: ClusterId, node: NodeId) -> Vec<EngineFinding> {
    let mut found = Vec::new();
    let reached = join_all(settings.addresses.iter().map(|address| reach(settings, address))).await;
    let own_name = reached.iter().flatten().next().and_then(|engine| engine.info.cluster.clone());
    for (at, result) in reached.iter().enumerate() {
        let (engine, is_own) = match result {
            Ok(engine) => (engine, at == 0),
            Err(finding) => {
                found.push(finding.clone());
                continue;
            }
        };
        found.push(engine.ok("connect", format!("server \"{}\"", engine.info.server_name)));
        found.push(engine.version());
        found.push(engine.jetstream(settings).await);
        found.push(engine.name(own_name.as_deref(), settings.addresses.len()));
        if is_own {
            found.push(engine.sync(settings).await);
            found.extend(engine.of_monitor(settings, node).await);
        } else {
            let text = "sync_interval and tags: only its monitor tells; run \"mailrace cluster verify\" at that node";
            found.push(engine.finding("sync", EngineFindingState::Unknown, text));
        }
    }
    if let Some(engine) = reached.iter().flatten().next() {
        found.extend(engine.nodes(settings, cluster, node).await);
    }
    found
}

/// Whether `cluster leave --node` will be able to take an engine out of the majority.
async fn check_system(settings: &EngineSettings, user: &str) -> EngineFinding {
    let (state, text) = match is_system_account(settings).await {
        Ok(true) => (EngineFindingState::Ok, "a user of the system account".to_owned()),
        Ok(false) => {
            let text = "it is no user of the system account: put it into \"accounts { $SYS { users: [...] } }\" of each \
                        nats-server and restart it, or remove cluster.system_user";
            (EngineFindingState::Wrong, text.to_owned())
        }
        Err(error) => (state_of(&error), error.to_string()),
    };
    EngineFinding { check: "system", object: format!("cluster.system_user \"{user}\""), state, text }
}

async fn reach(settings: &EngineSettings, address: &String) -> Result<Reached, EngineFinding> {
    let opened = async {
        let options = connection::options(settings).await?.max_reconnects(1);
        connection::open(settings, options, std::slice::from_ref(address)).await
    };
    let client = opened.await.map_err(|error| EngineFinding {
        check: "connect",
        object: address.clone(),
        state: state_of(&error),
        text: error.to_string(),
    })?;
    Ok(Reached { address: address.clone(), info: client.server_info(), client })
}

const fn state_of(error: &EngineAccessError) -> EngineFindingState {
    match error {
        EngineAccessError::Unreachable { .. } | EngineAccessError::Request { .. } => EngineFindingState::Away,
        EngineAccessError::Login { .. } => EngineFindingState::Refused,
        EngineAccessError::Settings { .. } | EngineAccessError::Unfit(_) | EngineAccessError::Uncertain { .. } => {
            EngineFindingState::Wrong
        }
    }
}

impl Reached {
    fn finding(&self, check: &'static str, state: EngineFindingState, text: impl Into<String>) -> EngineFinding {
        EngineFinding { check, object: self.address.clone(), state, text: text.into() }
    }

    fn ok(&self, check: &'static str, text: impl Into<String>) -> EngineFinding {
        self.finding(check, EngineFindingState::Ok, text)
    }

    fn wrong(&self, check: &'static str, text: impl Into<String>) -> EngineFinding {
        self.finding(check, EngineFindingState::Wrong, text)
    }

    /// The finding of facts of this engine: `text`, or the reason against it.
    fn judged(&self, check: &'static str, text: &str, has_streams: bool, is_sync_always: bool) -> EngineFinding {
        let (address, version) = (self.address.clone(), self.info.version.clone());
        match check_engine(&EngineFacts { address, version, is_sync_always, has_streams }) {
            Ok(()) => self.ok(check, text),
            Err(error) => self.wrong(check, error.to_string()),
        }
    }

    fn version(&self) -> EngineFinding {
        self.judged("version", &format!("nats-server {}", self.info.version), true, true)
    }

    fn engine(&self, settings: &EngineSettings) -> Engine {
        let (_, connection) = watch::channel(EngineConnection::default());
        Engine::from_parts(self.client.clone(), connection, settings.request_time_max)
    }

    async fn jetstream(&self, settings: &EngineSettings) -> EngineFinding {
        match has_streams(&self.engine(settings)).await {
            Ok(has_streams) => self.judged("jetstream", "enabled for this account", has_streams, true),
            Err(error) => {
                let text = format!("{error}; start nats-server at more than half of the nodes, look at cluster.routes");
                self.finding("jetstream", EngineFindingState::Away, text)
            }
        }
    }

    /// Whether this engine has the same cluster of nats-server as the first one.
    fn name(&self, expected: Option<&str>, engines: usize) -> EngineFinding {
        match (self.info.cluster.as_deref(), expected) {
            (None, _) if engines == 1 => self.ok("name", "a server without others"),
            (Some(found), Some(expected)) if found == expected => self.ok("name", format!("cluster \"{found}\"")),
            (found, expected) => {
                let named = |name: Option<&str>| name.map_or_else(|| "none".to_owned(), |name| format!("\"{name}\""));
                let text = format!(
                    "its cluster is {}, that of the first engine {}; set the same \"cluster {{ name }}\" and routes in \
                     the configuration of each nats-server and restart it",
                    named(found),
                    named(expected)
                );
                self.wrong("name", text)
            }
        }
    }

    async fn sync(&self, settings: &EngineSettings) -> EngineFinding {
        match is_sync_always(settings, &self.info.server_id).await {
            Ok(is_sync_always) => self.judged("sync", "data is on the disk before the answer", true, is_sync_always),
            Err(why) => self.wrong("sync", why.of(&self.address, &settings.monitor).to_string()),
        }
    }

    /// The tags and the leader; nothing where the monitor does not answer, which the check of `sync` says.
    async fn of_monitor(&self, settings: &EngineSettings, node: NodeId) -> Vec<EngineFinding> {
        let mut found = Vec::new();
        if let Ok(answer) = of_monitor(settings, "/varz", &self.info.server_id).await {
            found.push(self.tags(&answer, node));
        }
        if let Ok(answer) = of_monitor(settings, "/jsz", &self.info.server_id).await {
            found.extend(self.leader(&answer, settings.addresses.len()));
        }
        found
    }

    fn tags(&self, varz: &Value, node: NodeId) -> EngineFinding {
        let listed = varz.get("tags").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let tags: Vec<&str> = listed.iter().filter_map(Value::as_str).filter(|tag| tag.starts_with("node:")).collect();
        let wanted = format!("node:{}", node.0);
        match tags.as_slice() {
            [tag] if *tag == wanted => self.ok("tags", wanted),
            tags => {
                let shown = if tags.is_empty() { "no tag node:N".to_owned() } else { tags.join(", ") };
                let text = format!(
                    "it has {shown}, and this is node {}: copies for it would go elsewhere or nowhere; set \
                     server_tags: [\"{wanted}\"] in its configuration and restart it, or correct cluster.node",
                    node.0
                );
                self.wrong("tags", text)
            }
        }
    }

    /// The leader of JetStream and the number of servers; nothing of a server without others.
    fn leader(&self, jsz: &Value, engines: usize) -> Option<EngineFinding> {
        let meta = jsz.get("meta_cluster")?;
        let size = meta.get("cluster_size").and_then(Value::as_u64).unwrap_or(0);
        let leader = meta.get("leader").and_then(Value::as_str).filter(|name| !name.is_empty());
        let engines = u64::try_from(engines).unwrap_or(u64::MAX);
        Some(match leader {
            None => {
                let text = format!(
                    "JetStream has no leader: not more than half of {size} servers reach each other; start nats-server \
                     at the other nodes, look at cluster.routes"
                );
                self.finding("leader", EngineFindingState::Away, text)
            }
            Some(leader) if size < engines => {
                let text = format!(
                    "\"{leader}\" leads {size} servers, and cluster.engines names {engines}; start the others, look at \
                     cluster.routes"
                );
                self.finding("leader", EngineFindingState::Away, text)
            }
            Some(leader) => self.ok("leader", format!("\"{leader}\" leads {size} servers")),
        })
    }

    /// The nodes that run: the cluster that each belongs to, and their clocks and versions beside those of this node.
    async fn nodes(&self, settings: &EngineSettings, cluster: ClusterId, node: NodeId) -> Vec<EngineFinding> {
        let engine = self.engine(settings);
        let none = "no node has run yet: clocks and the id are compared when one runs";
        let bucket = api::call(&engine, &format!("STREAM.INFO.{}", key::BUCKET_STREAM), &Value::Null).await;
        match bucket {
            Ok(_) => {}
            Err(error) if error.is(api::STREAM_NOT_FOUND) => {
                return vec![self.finding("id", EngineFindingState::Unknown, none)];
            }
            Err(error) => {
                let text = error.of(&format!("bucket \"{}\"", key::BUCKET)).to_string();
                return vec![self.finding("id", EngineFindingState::Away, text)];
            }
        }
        let list = CoordinationRequest::List { prefix: NODE_PREFIX.to_owned() };
        let answer = Coordination::new(engine).carry_out(&list).await;
        let CoordinationReply::Listed(list) = answer.reply else {
            let why = answer.problem.unwrap_or_else(|| "no answer".to_owned());
            let text = format!("keys of the nodes: {why}; start nats-server at more than half of the nodes");
            return vec![self.finding("id", EngineFindingState::Away, text)];
        };
        let entries: Vec<NodeEntry> = list.iter().filter_map(|stored| NodeEntry::parse(&stored.value)).collect();
        if entries.is_empty() {
            return vec![self.finding(
                "id",
                EngineFindingState::Unknown,
                "no node runs: clocks are compared when one does",
            )];
        }
        judged_nodes(&own_entry(cluster, node), &entries)
    }
}

/// This node as it would be if it ran now.
fn own_entry(cluster: ClusterId, node: NodeId) -> NodeEntry {
    let reads = BlockVersions::default();
    NodeEntry {
        cluster,
        node,
        name: String::new(),
        incarnation: Incarnation(0),
        start: 0,
        reads,
        writes: reads.oldest,
        is_draining: false,
        is_departing: false,
        clock_us: clock::unix_us(),
    }
}

/// Judges this node by each entry.
fn judged_nodes(ours: &NodeEntry, entries: &[NodeEntry]) -> Vec<EngineFinding> {
    let (same, other): (Vec<&NodeEntry>, Vec<&NodeEntry>) =
        entries.iter().partition(|entry| entry.cluster == ours.cluster);
    let object = |entry: &NodeEntry| format!("node {} \"{}\"", entry.node.0, entry.name);
    let finding = |entry: &NodeEntry, check, state, text| EngineFinding { check, object: object(entry), state, text };
    let mut found: Vec<EngineFinding> = other
        .into_iter()
        .map(|entry| {
            let error = MembershipError::OtherCluster { found: entry.cluster, ours: ours.cluster };
            finding(entry, "id", EngineFindingState::Wrong, error.to_string())
        })
        .collect();
    for entry in same {
        found.push(finding(entry, "id", EngineFindingState::Ok, "of this cluster".to_owned()));
        if entry.node != ours.node {
            found.push(match judge_node(ours, std::slice::from_ref(entry)) {
                Ok(()) => finding(entry, "clock", EngineFindingState::Ok, "near the clock of this node".to_owned()),
                Err(error) => finding(entry, "clock", EngineFindingState::Wrong, error.to_string()),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds since 1970 of the clock of this node.
    const NOW: u64 = 1_800_000_000;

    fn entry(cluster: u8, node: u16, clock_s: u64) -> NodeEntry {
        let name = format!("mx{node}");
        NodeEntry { name, clock_us: clock_s * 1_000_000, ..own_entry(ClusterId([cluster; 16]), NodeId(node)) }
    }

    #[test]
    fn nodes_are_judged_one_by_one() {
        let entries = [entry(1, 3, NOW), entry(1, 1, NOW - 70), entry(1, 2, NOW - 100), entry(2, 4, NOW)];
        let found = judged_nodes(&entry(1, 3, NOW), &entries);
        let lines: Vec<String> =
            found.iter().map(|one| format!("{} {} {} {}", one.state.word(), one.check, one.object, one.text)).collect();
        assert_eq!(lines.len(), 6, "{lines:?}");
        for (line, begins) in lines.iter().zip([
            "wrong id node 4 \"mx4\" the engine holds cluster 0202",
            "ok id node 3 \"mx3\" of this cluster",
            "ok id node 1 \"mx1\" of this cluster",
            "ok clock node 1 \"mx1\" near",
            "ok id node 2 \"mx2\" of this cluster",
            "wrong clock node 2 \"mx2\" the clock of this node is 100 s ahead",
        ]) {
            assert!(line.starts_with(begins), "{line}");
        }
    }
}
