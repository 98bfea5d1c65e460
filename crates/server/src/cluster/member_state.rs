//! The state that a cluster member's handle and its tasks share: the machines, and clients that wait for an answer.

use super::engine_access::EngineAccess;
use cluster::{AcceptAnswer, Node};
use mail::QueueId;
use os::clock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Answers that clients wait for when the first message comes; the table grows.
const WAITING_ANSWERS: usize = 1_024;

/// State that the handle and the tasks share.
#[derive(Debug)]
pub(super) struct MemberShared {
    node: Mutex<Node>,
    waiting: Mutex<HashMap<QueueId, oneshot::Sender<AcceptAnswer>>>,
    /// The machines may have something to do.
    pub(super) wake: Notify,
    /// The machines have nothing to do for now.
    pub(super) rests: Notify,
    pub(super) engine: Arc<EngineAccess>,
}

impl MemberShared {
    pub(super) fn node(&self) -> MutexGuard<'_, Node> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new(node: Node, engine: Arc<EngineAccess>) -> Self {
        Self {
            node: Mutex::new(node),
            waiting: Mutex::new(HashMap::with_capacity(WAITING_ANSWERS)),
            wake: Notify::new(),
            rests: Notify::new(),
            engine,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<QueueId, oneshot::Sender<AcceptAnswer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the machines of an event, and has them looked after.
    pub(super) fn tell<T>(&self, event: impl FnOnce(&mut Node, Duration) -> T) -> T {
        let told = event(&mut self.node(), clock::since_boot());
        self.wake.notify_one();
        told
    }

    /// The answer to a message that the machines get next.
    pub(super) fn wait_for_answer(&self, id: QueueId) -> oneshot::Receiver<AcceptAnswer> {
        let (tell, told) = oneshot::channel();
        self.waiting().insert(id, tell);
        told
    }

    /// Answers all clients of a node that must not take part: it has no copies and delivers nothing.
    pub(super) fn refuse_all(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        for client in waiting.into_values() {
            client.send(AcceptAnswer::TempFail).ok();
        }
    }

    pub(super) fn answer(&self, id: QueueId, answer: AcceptAnswer) {
        let waiting = self.waiting().remove(&id);
        if let Some(waiting) = waiting {
            // A client that has gone asks no more; its message stays as the answer says.
            waiting.send(answer).ok();
        }
    }
}
