//! The task that carries out the actions of a cluster node.
//!
//! It asks the machines for actions after each event and at the times that they name. The engine's list of streams is
//! asked for every few seconds, and changed keys only hasten questions.

use super::local_mail::LocalMail;
use super::member_state::MemberShared;
use super::watch::{KeyChange, Watch};
use bytes::Bytes;
use cluster::{
    Accepted, Action, CoordinationReply, LogOperation, LogReply, LogRequest, NODE_PREFIX, NodeId, StoredBody, StreamId,
    Token,
};
use mail::QueueId;
use os::clock;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time between two questions for the list of streams.
const LIST_INTERVAL: Duration = Duration::from_secs(3);
/// Time until the engine is looked for again while there is none to watch.
const WATCH_RETRY_TIME: Duration = Duration::from_millis(500);
/// The longest rest of the machines, should they name no time.
const REST_MAX: Duration = Duration::from_secs(1);
/// Time until the local log is asked again to forget messages, or to take one.
const LOCAL_RETRY_TIME: Duration = Duration::from_secs(1);

/// The task.
#[derive(Debug)]
pub(super) struct MemberLoop<L> {
    shared: Arc<MemberShared>,
    local: Arc<L>,
    node: NodeId,
    /// Own streams whose names the local log keeps.
    kept: Arc<Mutex<BTreeSet<StreamId>>>,
    /// The last problem of a request that was logged.
    said: Arc<Mutex<Option<String>>>,
}

impl<L> Clone for MemberLoop<L> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            local: Arc::clone(&self.local),
            node: self.node,
            kept: Arc::clone(&self.kept),
            said: Arc::clone(&self.said),
        }
    }
}

impl<L: LocalMail> MemberLoop<L> {
    pub(super) fn new(shared: Arc<MemberShared>, local: Arc<L>, node: NodeId, kept: Vec<StreamId>) -> Self {
        let kept = Arc::new(Mutex::new(kept.into_iter().collect()));
        Self { shared, local, node, kept, said: Arc::default() }
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let mut problem = self.shared.engine.problem();
        // A problem of the start is new to the log.
        if problem.borrow().is_some() {
            problem.mark_changed();
        }
        let mut list = tokio::time::interval(LIST_INTERVAL);
        list.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut watch = None;
        loop {
            let rest = self.carry_out_all();
            self.shared.rests.notify_waiters();
            tokio::select! {
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(rest) => {}
                _ = list.tick() => self.list_streams(),
                change = next_change(&mut watch, &self.shared) => self.changed(change),
                Ok(()) = problem.changed() => {
                    let text = problem.borrow_and_update().as_ref().map(ToString::to_string);
                    self.local.engine_problem(text.as_deref());
                }
            }
        }
    }

    /// Carries out all that the machines want now; returns the time until they want more.
    fn carry_out_all(&self) -> Duration {
        loop {
            let now = clock::since_boot();
            let (action, wake_at, refusal) = {
                let mut node = self.shared.node();
                let action = node.poll(now, clock::unix_us());
                (action, node.wake_at(), node.refusal().map(ToString::to_string))
            };
            if let Some(refusal) = refusal {
                self.say(Some(format!("this node takes no mail and delivers none: {refusal}")));
                self.shared.refuse_all();
                return REST_MAX;
            }
            match action {
                Some(action) => self.carry_out(action),
                None => return wake_at.map_or(REST_MAX, |at| at.saturating_sub(now)).min(REST_MAX),
            }
        }
    }

    fn carry_out(&self, action: Action) {
        let this = self.clone();
        match action {
            Action::Log { token, request } => drop(tokio::spawn(async move { this.ask_log(token, request).await })),
            Action::Coordinate { token, request } => drop(tokio::spawn(async move {
                let reply = match this.shared.engine.in_use() {
                    Some(engine) => {
                        let answer = engine.store.carry_out(&request).await;
                        this.say(answer.problem);
                        answer.reply
                    }
                    None => CoordinationReply::Unknown,
                };
                this.shared.tell(|node, now| node.coordination_answered(now, clock::unix_us(), token, reply));
            })),
            Action::Answer { id, answer } => self.shared.answer(id, answer),
            Action::Read { id } => drop(tokio::spawn(async move {
                let message = this.local.read(id).await;
                this.shared.tell(|node, now| node.read(now, id, message));
            })),
            Action::Store(message) => drop(tokio::spawn(async move { this.store(*message).await })),
            Action::Complete(completions) => self.local.complete(completions),
            Action::Forget { stream, messages } => {
                drop(tokio::spawn(async move { this.forget(stream, messages).await }));
            }
            Action::Report(report) => self.local.report(report),
        }
    }

    async fn ask_log(&self, token: Token, request: LogRequest) {
        let reply = match self.shared.engine.in_use() {
            Some(engine) if self.is_kept(&request).await => {
                let answer = engine.log.carry_out(&request).await;
                self.say(answer.problem);
                answer.reply
            }
            _ => LogReply::Unknown,
        };
        // The writer uses the octets of a stored block again, if nobody else has them.
        drop(request);
        self.shared.tell(|node, now| node.log_answered(now, token, reply));
    }

    /// Has the local log keep the name of an own stream before it is made; true for other requests.
    async fn is_kept(&self, request: &LogRequest) -> bool {
        let stream = request.stream;
        let is_new = request.operation == LogOperation::Create
            && stream.owner == self.node
            && !self.kept.lock().unwrap_or_else(PoisonError::into_inner).contains(&stream);
        if !is_new {
            return true;
        }
        let is_kept = self.local.keep_stream(stream).await;
        if is_kept {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(stream);
        }
        is_kept
    }

    async fn store(&self, mut message: Accepted) {
        let id = message.id;
        let StoredBody::Whole(body) = std::mem::replace(&mut message.body, StoredBody::Whole(Bytes::new())) else {
            // The machines give whole messages; one in pieces would be incomplete.
            return self.shared.tell(|node, now| node.store_refused(now, id));
        };
        loop {
            match self.local.store(message.clone(), body.clone()).await {
                Some(true) => return self.shared.tell(|node, now| node.stored(now, id)),
                Some(false) => return self.shared.tell(|node, now| node.store_refused(now, id)),
                None => tokio::time::sleep(LOCAL_RETRY_TIME).await,
            }
        }
    }

    async fn forget(&self, stream: StreamId, messages: Vec<(QueueId, u16)>) {
        while !self.local.forget(messages.clone()).await {
            tokio::time::sleep(LOCAL_RETRY_TIME).await;
        }
        self.shared.tell(|node, now| node.forgotten(now, stream));
    }

    /// Asks for the list of streams; without an answer the last one counts.
    fn list_streams(&self) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let Some(engine) = shared.engine.in_use() else { return };
            if let Ok(streams) = engine.log.streams().await {
                shared.tell(|node, _| node.known_streams(&streams));
            }
        });
    }

    fn changed(&self, change: KeyChange) {
        match change {
            KeyChange::Key(key) => self.shared.tell(|node, now| node.coordination_changed(now, &key)),
            KeyChange::Any => self.shared.tell(|node, now| node.coordination_changed(now, NODE_PREFIX)),
        }
    }

    /// Logs the problem of a request, once until another one comes.
    fn say(&self, problem: Option<String>) {
        let Some(problem) = problem else { return };
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.as_ref() != Some(&problem) {
            self.local.engine_problem(Some(&problem));
            *said = Some(problem);
        }
    }
}

/// Waits for the next changed key; a watch is made when there is an engine.
///
/// # Cancel safety
/// Yes.
async fn next_change(watch: &mut Option<Watch>, shared: &MemberShared) -> KeyChange {
    loop {
        match watch {
            Some(watch) => return watch.next().await,
            None => match shared.engine.in_use().map(|in_use| in_use.engine.clone()) {
                Some(engine) => *watch = Some(Watch::new(engine)),
                None => tokio::time::sleep(WATCH_RETRY_TIME).await,
            },
        }
    }
}
