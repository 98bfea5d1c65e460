//! This node as a member of the cluster: the machines of crate `cluster`, the engine and the local log together.
//!
//! [`ClusterMember`] takes events from all threads and answers questions at once. One task, `member_loop`, carries out
//! what the machines want. Requests to the engine and to the local log have tasks of their own, so that none waits for
//! another.

use super::adopted_names::AdoptedNames;
use super::engine_access::{EngineAccess, EngineInUse};
use super::host_messages::HostMessages;
use super::local_mail::LocalMail;
use super::member_loop::MemberLoop;
use super::member_state::MemberShared;
use super::settings::EngineSettings;
use bytes::Bytes;
use cluster::{
    AcceptAnswer, ClusterId, ClusterStatus, DepartureMark, LimitGrant, LimitStatus, LimitUse, LocalMessage, NewMessage,
    Node, NodeEntry, OnNoReplica, Outcome, OwnershipDoubt, Settings, StreamId,
};
use mail::QueueId;
use os::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Time that a start waits for the engine's list of streams; without it the remembered ones count.
const LIST_TIME_MAX: Duration = Duration::from_secs(5);
/// Time between two questions for that list while the engine is reached.
const LIST_RETRY_TIME: Duration = Duration::from_millis(50);

/// This node in the cluster. Clones share it; it runs until the last one is dropped.
#[derive(Clone, Debug)]
pub struct ClusterMember {
    pub(super) shared: Arc<MemberShared>,
    names: Arc<AdoptedNames>,
    pub(super) node: mail::Node,
    cluster: ClusterId,
    pub(super) is_draining: Arc<AtomicBool>,
    _tasks: Arc<[MemberTask; 2]>,
}

/// The identity of this node, and the state of its local log.
#[derive(Debug)]
pub struct MemberStart {
    /// Times, identity and number of copies.
    pub settings: Settings,
    /// The name of the node.
    pub name: String,
    /// All live mail of the local log.
    pub mail: Vec<LocalMessage>,
    /// Streams that [`LocalMail::keep_stream`] kept.
    pub streams: Vec<StreamId>,
    /// The names of adopted messages; the local log adds and removes them.
    pub names: Arc<AdoptedNames>,
}

/// A task that ends with its handle.
#[derive(Debug)]
struct MemberTask(JoinHandle<()>);

impl Drop for MemberTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The state of a node and of its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The machines.
    pub cluster: ClusterStatus,
    /// The reason why this node must not take part, with the next step.
    pub refusal: Option<String>,
    /// The reason why the engine is not in use, with the next step.
    pub engine_problem: Option<String>,
    /// It takes no new mail and starts no delivery.
    pub is_draining: bool,
    /// The cluster.
    pub cluster_id: ClusterId,
}

impl ClusterMember {
    /// Starts this node with the mail of its log. An engine that is out of reach or unfit keeps no mail from being
    /// delivered that this node surely owns; the status says why it is not used.
    ///
    /// Waits some seconds for the engine's list of streams.
    ///
    /// # Cancel safety
    /// Yes.
    pub async fn start<L: LocalMail>(engine: EngineSettings, start: MemberStart, local: Arc<L>) -> Self {
        let MemberStart { settings, name, mail, mut streams, names } = start;
        let engine = Arc::new(EngineAccess::new(engine));
        let keeper = Arc::clone(&engine);
        let keeping = MemberTask(tokio::spawn(async move { keeper.keep().await }));
        // The engine's list and the kept names: each may lack some of the other.
        streams.extend(first_list(&engine).await);
        streams.sort_unstable();
        streams.dedup();
        let (number, cluster) = (settings.node.0, settings.cluster);
        let node = Node::new(clock::since_boot(), settings.clone(), name, &streams, mail);
        let shared = Arc::new(MemberShared::new(node, engine));
        let machines = MemberLoop::new(Arc::clone(&shared), local, settings.node, streams);
        let tasks = Arc::new([keeping, MemberTask(tokio::spawn(machines.run()))]);
        let node = mail::Node::new(number).unwrap_or_default();
        Self { shared, names, node, cluster, is_draining: Arc::default(), _tasks: tasks }
    }

    /// Begins to copy a new message; the answer comes when its copies are on stable storage, or cannot be. Meanwhile
    /// the caller stores the message in the local log, and tells [`ClusterMember::stored`] or
    /// [`ClusterMember::store_refused`]. With [`AcceptAnswer::TempFail`] the local log drops it without delivery;
    /// a node that is refused gives no other answer.
    ///
    /// # Cancel safety
    /// The message is copied all the same.
    pub fn accept(&self, message: NewMessage, policy: OnNoReplica) -> impl Future<Output = AcceptAnswer> + use<> {
        let told = self.shared.wait_for_answer(message.id);
        self.shared.tell(|node, now| node.accept(now, message, policy));
        // Without an answer the node has ended: nothing is known of a copy.
        async { told.await.unwrap_or(AcceptAnswer::TempFail) }
    }

    /// Sends a piece of a large body while it arrives; `accept` with `Content::Streamed` ends it.
    pub fn stream_body(&self, id: QueueId, octets: &Bytes) {
        self.shared.tell(|node, now| node.stream_body(now, id, octets));
    }

    /// Ends a body whose transaction failed.
    pub fn abort_body(&self, id: QueueId) {
        self.shared.tell(|node, _| node.abort_body(id));
    }

    /// The local log has a new message on stable storage.
    pub fn stored(&self, id: QueueId) {
        self.shared.tell(|node, now| node.stored(now, id));
    }

    /// The local log could not store a new message.
    pub fn store_refused(&self, id: QueueId) {
        self.shared.tell(|node, now| node.store_refused(now, id));
    }

    /// A recipient is finished, or all that are left.
    pub fn completed(&self, id: QueueId, recipient: Option<u32>, outcome: Outcome) {
        self.shared.tell(|node, now| node.completed(now, id, recipient, outcome));
    }

    /// Recipients of messages of the local log are done, in any way.
    pub fn done_in_log(&self, done: &[(QueueId, u32)]) {
        let done: Vec<_> = done.iter().map(|(id, recipient)| (self.names.in_cluster(*id), *recipient)).collect();
        self.shared.tell(|node, now| {
            for (id, recipient) in done {
                node.completed(now, id, Some(recipient), Outcome::Delivered);
            }
        });
    }

    /// Messages of the local log were held or released.
    pub fn held_in_log(&self, messages: &[QueueId], is_held: bool) {
        let messages: Vec<_> = messages.iter().map(|id| self.names.in_cluster(*id)).collect();
        self.shared.tell(|node, now| messages.into_iter().for_each(|id| node.changed(now, id, is_held)));
    }

    /// Recipients of a message of the local log were given another destination.
    pub fn rerouted_in_log(&self, message: QueueId) {
        let id = self.names.in_cluster(message);
        self.shared.tell(|node, now| node.changed(now, id, true));
    }

    /// Whether the cluster has nothing to do with a message of the local log: it came before this machine joined.
    #[must_use]
    pub fn is_foreign(&self, local: QueueId) -> bool {
        !local.node().is_of(self.node) && !self.names.has_local(local)
    }

    /// True if a delivery of this message of the local log may start now.
    #[must_use]
    pub fn may_start_delivery(&self, local: QueueId) -> bool {
        self.is_foreign(local)
            || self.shared.node().may_start_delivery(clock::since_boot(), self.names.in_cluster(local))
    }

    /// True if the end of the content of this message of the local log may be sent now; asked immediately before it.
    #[must_use]
    pub fn may_send_final_dot(&self, local: QueueId) -> bool {
        self.is_foreign(local)
            || self.shared.node().may_send_final_dot(clock::since_boot(), self.names.in_cluster(local))
    }

    /// The reason why an operator must not end this message of the local log by hand now; `None` if he may.
    #[must_use]
    pub fn doubt_about_end(&self, local: QueueId) -> Option<OwnershipDoubt> {
        if self.is_foreign(local) {
            return None;
        }
        self.shared.node().doubt_about_end(clock::since_boot(), self.names.in_cluster(local))
    }

    /// The reason why this node must not take part, with the next step.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.shared.node().refusal().map(ToString::to_string)
    }

    /// Reports on a next hop with a limit that all nodes keep together; returns what may be done there until the next
    /// report, which comes within a second.
    #[must_use]
    pub fn use_limit(&self, name: &str, usage: LimitUse) -> LimitGrant {
        self.shared.tell(|node, now| node.use_limit(now, name, usage))
    }

    /// Shared limits that this node uses, by name.
    #[must_use]
    pub fn limits(&self) -> Vec<LimitStatus> {
        self.shared.node().limits(clock::since_boot())
    }

    /// The state of the node and its engine.
    #[must_use]
    pub fn status(&self) -> MemberStatus {
        let (cluster, refusal) = {
            let node = self.shared.node();
            (node.status(clock::since_boot()), node.refusal().map(ToString::to_string))
        };
        let engine_problem = self.shared.engine.problem().borrow().as_ref().map(ToString::to_string);
        let is_draining = self.is_draining();
        MemberStatus { cluster, refusal, engine_problem, is_draining, cluster_id: self.cluster }
    }

    /// Whether the engine may be used now.
    #[must_use]
    pub fn has_engine(&self) -> bool {
        self.engine_in_use().is_some()
    }

    /// The engine, while it may be used.
    pub(super) fn engine_in_use(&self) -> Option<Arc<EngineInUse>> {
        self.shared.engine.in_use()
    }

    /// Messages about hosts between the nodes.
    #[must_use]
    pub(crate) fn host_messages(&self) -> HostMessages {
        HostMessages::new(Arc::clone(&self.shared.engine), self.cluster)
    }

    /// The other nodes that this one sees.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeEntry> {
        let is_other = |entry: &&NodeEntry| entry.node.0 != self.node.get();
        self.shared.node().members().filter(is_other).cloned().collect()
    }

    /// Nodes that left the cluster for good and have not come back.
    #[must_use]
    pub fn departed(&self) -> Vec<DepartureMark> {
        self.shared.node().departed().copied().collect()
    }

    /// Messages that came from other nodes and went to them.
    #[must_use]
    pub fn moves(&self) -> &AdoptedNames {
        &self.names
    }

    /// Says that this node leaves soon: others bring it no new copies, and its status says `draining`. It takes and
    /// delivers mail as before.
    pub fn announce_drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.shared.tell(Node::announce_drain);
    }

    /// Stops new mail and new deliveries; transactions under way go on.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.shared.tell(Node::drain);
    }

    /// Whether [`ClusterMember::announce_drain`] or [`ClusterMember::drain`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Gives the mail of this node to its holders, after the last transaction has ended, and leaves. False if not all
    /// holders know it within this time: they adopt as after a crash.
    ///
    /// # Cancel safety
    /// The mail may be given up all the same.
    pub async fn hand_over(&self, time_max: Duration) -> bool {
        self.shared.tell(|node, _| node.release());
        let is_released = tokio::time::timeout(time_max, self.until(Node::is_released)).await.is_ok();
        self.shared.tell(Node::leave);
        let is_gone = |node: &Node| !node.is_member();
        is_released && tokio::time::timeout(time_max, self.until(is_gone)).await.is_ok()
    }

    /// Waits until the machines have come to this.
    pub(super) async fn until(&self, is_so: impl Fn(&Node) -> bool) {
        loop {
            let mut rests = std::pin::pin!(self.shared.rests.notified());
            // Registered before the look, so that a change in between is not missed.
            rests.as_mut().enable();
            if is_so(&self.shared.node()) {
                return;
            }
            rests.await;
        }
    }
}

/// Asks the engine for its streams before there are machines; none if it does not answer soon.
async fn first_list(engine: &EngineAccess) -> Vec<StreamId> {
    let list = async {
        loop {
            if let Some(in_use) = engine.in_use()
                && let Ok(streams) = in_use.log.streams().await
            {
                return streams;
            }
            tokio::time::sleep(LIST_RETRY_TIME).await;
        }
    };
    tokio::time::timeout(LIST_TIME_MAX, list).await.unwrap_or_default()
}
