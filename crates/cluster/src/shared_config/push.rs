//! One push: claims the store, uploads, offers, waits for the nodes, activates.
//!
//! The claim keeps two pushes from waiting for each other's nodes; it has a time to live, so that one that broke off is
//! no obstacle for long. It decides nothing: the revision is activated by a compare-and-set against the state that the
//! push began with, so of two pushes from one state one wins, whatever became of their claims.

use super::record::{
    ACTIVE_KEY, ActiveRevision, BundleDigest, BundleName, CONFIG_PREFIX, ConfigView, PUSH_KEY, PushClaim, PushId,
};
use crate::coordination::{CoordinationReply, CoordinationRequest, KeyValue};
use crate::identity::{ClusterId, NodeId};
use crate::membership::{NODE_PREFIX, NodeEntry};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time to live of a claim.
const CLAIM_TTL: Duration = Duration::from_secs(60);
/// Time after which a claim is written again.
const CLAIM_RENEW: Duration = Duration::from_secs(15);
/// Time that nodes have to examine an offer.
const ANSWER_TIME: Duration = Duration::from_secs(45);
/// Time that nodes have to take what is active.
const TAKE_TIME: Duration = Duration::from_secs(30);
/// Time between two looks at the nodes.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Time after which a store that does not answer ends the push.
const ENGINE_TIME: Duration = Duration::from_secs(20);
/// Pause after a request without an answer.
const RETRY_TIME: Duration = Duration::from_millis(500);

/// The wishes of the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushOptions {
    /// Activate although nodes refuse or do not answer.
    pub force: bool,
    /// Stop before the activation.
    pub dry_run: bool,
}

/// An action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushAction {
    /// Ask the store; the answer goes to [`Push::answered`].
    Coordinate(CoordinationRequest),
    /// Remove bundles that are not among these; the result goes to [`Push::uploaded`].
    Clean(Vec<BundleDigest>),
    /// Store a piece of the bundle; the result goes to [`Push::uploaded`].
    Upload(u32),
    /// Nothing for this time.
    Rest(Duration),
    /// The push is over.
    End(PushEnd),
}

/// How a push ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushEnd {
    /// These files are active already.
    AlreadyActive(ActiveRevision),
    /// Another push is under way.
    Busy(PushClaim),
    /// Nodes refuse or do not answer; [`Push::nodes`] says which. Nothing was changed.
    NotReady,
    /// All nodes are ready; nothing was changed.
    WouldActivate,
    /// Another push has activated this meanwhile. Nothing was changed.
    Overtaken(ActiveRevision),
    /// The claim was lost before the activation. Nothing was changed.
    ClaimLost,
    /// It is active. [`Push::nodes`] says which nodes have it in force.
    Activated(ActiveRevision),
    /// The store does not answer. After the activation was sent it may be active.
    NoAnswer {
        /// The activation was sent.
        may_be_active: bool,
    },
    /// The bundle could not be stored, for this reason. Nothing was changed.
    NotStored(String),
    /// A later version of mailrace wrote this key. Nothing was changed.
    Unreadable(String),
}

/// A node as a push sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushNode {
    /// Its host name; empty for one that does not run.
    pub name: String,
    /// Its answer.
    pub answer: PushAnswer,
}

/// The answer of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushAnswer {
    /// None yet.
    Waiting,
    /// It runs, and takes no shared configuration, or does not come to it.
    Silent,
    /// It does not run. It takes the active revision when it starts.
    Away,
    /// The files fit there.
    Ready,
    /// They do not, for this reason.
    Refused(String),
    /// It has them in force.
    Taken,
    /// They are active, and it could not take them, for this reason.
    NotTaken(String),
}

#[derive(Clone, Debug, PartialEq)]
enum PushStep {
    Begin,
    Claim,
    Clean,
    Upload(u32),
    Offer,
    Wait,
    Activate,
    /// The answer to the activation was lost or a conflict.
    Confirm,
    Release(PushEnd),
    Settle,
    Over(PushEnd),
}

/// The object of the outstanding request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Question {
    Keys,
    Nodes,
    Write,
}

/// A push.
#[derive(Debug)]
pub struct Push {
    cluster: ClusterId,
    node: NodeId,
    id: PushId,
    bundle: BundleName,
    options: PushOptions,
    step: PushStep,
    question: Option<Question>,
    view: ConfigView,
    /// Live nodes by name.
    live: BTreeMap<NodeId, String>,
    /// The active revision that the push began with, and its revision in the store.
    base: Option<Option<(ActiveRevision, u64)>>,
    claim: Option<(u64, Duration)>,
    activated: Option<ActiveRevision>,
    nodes: BTreeMap<NodeId, PushNode>,
    rest_until: Duration,
    answered_at: Duration,
    waits_since: Duration,
    /// The keys were read after the nodes.
    keys_are_fresh: bool,
}

impl Push {
    /// A push of a bundle from this node. `id` must be another one for each push.
    #[must_use]
    pub fn new(
        now: Duration,
        (cluster, node): (ClusterId, NodeId),
        id: PushId,
        bundle: BundleName,
        options: PushOptions,
    ) -> Self {
        Self {
            cluster,
            node,
            id,
            bundle,
            options,
            step: PushStep::Begin,
            question: None,
            view: ConfigView::default(),
            live: BTreeMap::new(),
            base: None,
            claim: None,
            activated: None,
            nodes: BTreeMap::new(),
            rest_until: now,
            answered_at: now,
            waits_since: now,
            keys_are_fresh: false,
        }
    }

    /// All nodes that are known, with their answers.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<NodeId, PushNode> {
        &self.nodes
    }

    /// The next action; one thing at a time.
    pub fn next(&mut self, now: Duration) -> PushAction {
        if let PushStep::Over(end) = &self.step {
            return PushAction::End(end.clone());
        }
        if self.question.is_some() {
            return PushAction::Rest(LOOK_INTERVAL);
        }
        if now.saturating_sub(self.answered_at) >= ENGINE_TIME {
            let end = match (&self.step, &self.activated) {
                // Only the claim and the wait for the nodes are left.
                (PushStep::Release(end), _) => end.clone(),
                (PushStep::Settle, Some(active)) => PushEnd::Activated(active.clone()),
                (step, _) => {
                    PushEnd::NoAnswer { may_be_active: matches!(step, PushStep::Activate | PushStep::Confirm) }
                }
            };
            self.step = PushStep::Over(end.clone());
            return PushAction::End(end);
        }
        if now < self.rest_until {
            return PushAction::Rest(self.rest_until.saturating_sub(now));
        }
        let must_renew = self.claim.is_some_and(|(_, at)| now.saturating_sub(at) >= CLAIM_RENEW);
        match &self.step {
            PushStep::Upload(_) | PushStep::Wait if must_renew => self.write_claim(now),
            PushStep::Begin | PushStep::Confirm => self.read_keys(),
            PushStep::Claim | PushStep::Offer => self.write_claim(now),
            PushStep::Clean => PushAction::Clean(self.kept()),
            PushStep::Upload(piece) => PushAction::Upload(*piece),
            PushStep::Wait | PushStep::Settle if self.keys_are_fresh => {
                self.keys_are_fresh = false;
                self.question = Some(Question::Nodes);
                PushAction::Coordinate(CoordinationRequest::List { prefix: NODE_PREFIX.to_owned() })
            }
            PushStep::Wait | PushStep::Settle => self.read_keys(),
            PushStep::Activate => self.activate(),
            PushStep::Release(end) => match self.claim {
                Some((expected, _)) => {
                    self.question = Some(Question::Write);
                    PushAction::Coordinate(CoordinationRequest::Delete { key: PUSH_KEY.to_owned(), expected })
                }
                None => {
                    self.step = PushStep::Over(end.clone());
                    self.next(now)
                }
            },
            PushStep::Over(end) => PushAction::End(end.clone()),
        }
    }

    fn read_keys(&mut self) -> PushAction {
        self.question = Some(Question::Keys);
        PushAction::Coordinate(CoordinationRequest::List { prefix: CONFIG_PREFIX.to_owned() })
    }

    fn write_claim(&mut self, now: Duration) -> PushAction {
        self.question = Some(Question::Write);
        let is_offered = matches!(self.step, PushStep::Offer | PushStep::Wait);
        let claim = PushClaim { push: self.id, by: self.node, bundle: self.bundle, is_offered };
        let expected = self.claim.map_or(0, |(revision, _)| revision);
        // The age counts from the sending.
        self.claim = self.claim.map(|(revision, _)| (revision, now));
        let value = Bytes::from(claim.to_string());
        PushAction::Coordinate(CoordinationRequest::Put {
            key: PUSH_KEY.to_owned(),
            value,
            expected,
            ttl: Some(CLAIM_TTL),
        })
    }

    /// Bundles that are needed: the active one, the one before, and this one.
    fn kept(&self) -> Vec<BundleDigest> {
        let active = self.base.iter().flatten().map(|(active, _)| active);
        let kept = active.flat_map(|active| [Some(active.bundle), active.previous]).flatten();
        kept.chain([self.bundle]).map(|bundle| bundle.digest).collect()
    }

    fn activate(&mut self) -> PushAction {
        let base = self.base.clone().flatten();
        let active = ActiveRevision {
            number: self.view.next_number(),
            bundle: self.bundle,
            previous: base.as_ref().map(|(active, _)| active.bundle),
            push: self.id,
            by: self.node,
        };
        self.question = Some(Question::Write);
        let value = Bytes::from(active.to_string());
        let expected = base.map_or(0, |(_, revision)| revision);
        self.activated = Some(active);
        PushAction::Coordinate(CoordinationRequest::Put { key: ACTIVE_KEY.to_owned(), value, expected, ttl: None })
    }

    /// Takes the result of [`PushAction::Clean`] or [`PushAction::Upload`]; an error ends the push.
    pub fn uploaded(&mut self, now: Duration, result: Result<(), String>) {
        if let Err(why) = result {
            return self.release(PushEnd::NotStored(why));
        }
        self.answered_at = now;
        match self.step {
            PushStep::Clean => self.step = PushStep::Upload(0),
            PushStep::Upload(piece) if piece + 1 < self.bundle.pieces() => self.step = PushStep::Upload(piece + 1),
            PushStep::Upload(_) => self.step = PushStep::Offer,
            _ => {}
        }
    }

    /// Takes the answer of the store.
    pub fn answered(&mut self, now: Duration, reply: CoordinationReply) {
        let Some(question) = self.question.take() else { return };
        if reply == CoordinationReply::Unknown {
            self.rest_until = now + RETRY_TIME;
            match (&self.step, question) {
                // Whether it was written shows when the keys are read.
                (PushStep::Activate, _) => self.step = PushStep::Confirm,
                (PushStep::Claim, Question::Write) => self.step = PushStep::Begin,
                _ => {}
            }
            return;
        }
        self.answered_at = now;
        match (question, reply) {
            (Question::Keys, CoordinationReply::Listed(listed)) => self.keys_read(now, &listed),
            (Question::Nodes, CoordinationReply::Listed(listed)) => self.nodes_read(now, &listed),
            (Question::Write, CoordinationReply::Written { revision }) => self.written(now, revision),
            (Question::Write, CoordinationReply::Conflict) => self.conflict(),
            // An answer to another request.
            _ => self.rest_until = now + RETRY_TIME,
        }
    }

    fn written(&mut self, now: Duration, revision: u64) {
        match &self.step {
            PushStep::Claim => {
                self.claim = Some((revision, now));
                self.step = PushStep::Clean;
            }
            PushStep::Offer => {
                self.claim = Some((revision, now));
                self.step = PushStep::Wait;
                self.waits_since = now;
            }
            PushStep::Upload(_) | PushStep::Wait => self.claim = Some((revision, now)),
            PushStep::Activate => {
                self.waits_since = now;
                self.step = PushStep::Settle;
            }
            PushStep::Release(end) => self.step = PushStep::Over(end.clone()),
            _ => {}
        }
    }

    fn conflict(&mut self) {
        match &self.step {
            // Another claim came first; or a renewal of this one was written and its answer lost.
            PushStep::Claim | PushStep::Upload(_) | PushStep::Offer | PushStep::Wait => self.step = PushStep::Begin,
            PushStep::Activate => self.step = PushStep::Confirm,
            PushStep::Release(end) => self.step = PushStep::Over(end.clone()),
            _ => {}
        }
    }

    fn keys_read(&mut self, now: Duration, listed: &[KeyValue]) {
        self.view = ConfigView::of(listed);
        if let Some(key) = self.view.unreadable.clone() {
            return self.release(PushEnd::Unreadable(key));
        }
        match self.step {
            PushStep::Begin => self.begin(now),
            PushStep::Confirm => self.confirm(now),
            PushStep::Wait | PushStep::Settle => {
                if self.step == PushStep::Wait && !self.is_mine() {
                    return self.begin(now);
                }
                self.keys_are_fresh = true;
            }
            _ => {}
        }
    }

    fn is_mine(&self) -> bool {
        self.view.claim.as_ref().is_some_and(|(claim, _)| claim.push == self.id)
    }

    /// Looks at the state of the store before anything is claimed, and after a claim is in doubt.
    fn begin(&mut self, now: Duration) {
        let active = self.view.active.clone();
        if let Some(base) = &self.base {
            if base.as_ref().map(|(_, revision)| *revision) != active.as_ref().map(|(_, revision)| *revision) {
                let end = active.map_or(PushEnd::ClaimLost, |(active, _)| PushEnd::Overtaken(active));
                return self.release(end);
            }
        } else if let Some((active, _)) = active.as_ref().filter(|(active, _)| active.bundle == self.bundle) {
            self.step = PushStep::Over(PushEnd::AlreadyActive(active.clone()));
            return;
        }
        let had_claim = self.claim.is_some();
        self.base = Some(active);
        match self.view.claim.clone() {
            Some((claim, revision)) if claim.push == self.id => {
                self.claim = Some((revision, now));
                self.waits_since = now;
                self.step = if had_claim && claim.is_offered { PushStep::Wait } else { PushStep::Clean };
            }
            Some((claim, _)) => {
                self.claim = None;
                let end = if had_claim { PushEnd::ClaimLost } else { PushEnd::Busy(claim) };
                self.step = PushStep::Over(end);
            }
            None if had_claim => {
                self.claim = None;
                self.step = PushStep::Over(PushEnd::ClaimLost);
            }
            None => self.step = PushStep::Claim,
        }
    }

    /// Finds out what became of an activation.
    fn confirm(&mut self, now: Duration) {
        let base = self.base.clone().flatten();
        match self.view.active.clone() {
            Some((active, _)) if active.push == self.id => {
                self.activated = Some(active);
                self.waits_since = now;
                self.step = PushStep::Settle;
            }
            active if active == base => self.step = PushStep::Activate,
            Some((active, _)) => self.release(PushEnd::Overtaken(active)),
            None => self.release(PushEnd::ClaimLost),
        }
    }

    fn nodes_read(&mut self, now: Duration, listed: &[KeyValue]) {
        let entries = listed.iter().filter_map(|found| NodeEntry::parse(&found.value));
        let live = entries.filter(|entry| entry.cluster == self.cluster && !entry.is_draining);
        self.live = live.map(|entry| (entry.node, entry.name)).collect();
        self.rest_until = now + LOOK_INTERVAL;
        let time_max = if self.activated.is_some() { TAKE_TIME } else { ANSWER_TIME };
        let is_late = now.saturating_sub(self.waits_since) >= time_max;
        self.judge_nodes(is_late);
        let is_waiting = self.nodes.values().any(|node| node.answer == PushAnswer::Waiting);
        if is_waiting && !is_late {
            return;
        }
        if let Some(active) = self.activated.clone() {
            return self.release(PushEnd::Activated(active));
        }
        let fits = |node: &PushNode| matches!(node.answer, PushAnswer::Ready | PushAnswer::Away);
        let is_ready = !self.live.is_empty() && self.nodes.values().all(fits);
        match (is_ready || self.options.force, self.options.dry_run) {
            (false, _) => self.release(PushEnd::NotReady),
            (true, true) => self.release(if is_ready { PushEnd::WouldActivate } else { PushEnd::NotReady }),
            (true, false) => self.step = PushStep::Activate,
        }
    }

    fn judge_nodes(&mut self, is_late: bool) {
        let known = self.view.reports.keys().chain(self.live.keys());
        let known: BTreeSet<NodeId> = known.copied().collect();
        self.nodes = known.into_iter().map(|node| (node, self.judge_node(node, is_late))).collect();
    }

    fn judge_node(&self, node: NodeId, is_late: bool) -> PushNode {
        let report = self.view.reports.get(&node).map(|(report, _)| report);
        let Some(name) = self.live.get(&node).cloned() else {
            return PushNode { name: String::new(), answer: PushAnswer::Away };
        };
        let none = || if is_late { PushAnswer::Silent } else { PushAnswer::Waiting };
        let answer = match (&self.activated, report) {
            (Some(active), Some(report)) if report.taken == Some((active.number, active.bundle.digest)) => {
                PushAnswer::Taken
            }
            (Some(active), Some(report)) => match &report.problem {
                Some((digest, why)) if *digest == active.bundle.digest => PushAnswer::NotTaken(why.clone()),
                _ => none(),
            },
            (None, Some(report)) => match &report.push {
                Some((push, Ok(()))) if *push == self.id => PushAnswer::Ready,
                Some((push, Err(why))) if *push == self.id => PushAnswer::Refused(why.clone()),
                _ => none(),
            },
            (_, None) => none(),
        };
        PushNode { name, answer }
    }

    /// Gives the claim back, and ends.
    fn release(&mut self, end: PushEnd) {
        self.step = PushStep::Release(end);
    }
}
