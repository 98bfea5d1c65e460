//! A node's part in shared configuration: examines what is offered, takes what is active, reports both.
//!
//! The driver asks [`Follower::next`] for one thing at a time and tells its result; each may take long. A bundle is
//! taken only after it has fitted beside the node's own file, and only when it is active.

use super::record::{
    ActiveRevision, BundleDigest, BundleName, CONFIG_PREFIX, ConfigView, NodeReport, PushId, report_key,
};
use crate::coordination::{CoordinationReply, CoordinationRequest};
use crate::identity::NodeId;
use bytes::Bytes;
use std::time::Duration;

/// Time between two looks at the keys without a hint that they changed.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// Time until a look that got no answer is repeated, and a bundle that could not be had is asked for again.
const RETRY_TIME: Duration = Duration::from_secs(1);
/// Time between two looks that changed keys ask for.
const HASTENED_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which an active bundle that did not fit is examined again: the own file may be another one.
const REFUSED_TIME: Duration = Duration::from_secs(60);
/// Time for which a report outlives its node.
const REPORT_TTL: Duration = Duration::from_secs(7 * 24 * 3_600);

/// An action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowAction {
    /// Ask the store; the answer goes to [`Follower::answered`].
    Coordinate(CoordinationRequest),
    /// Fetch a bundle, and see whether it fits beside the own file; the result goes to [`Follower::examined`].
    Examine(BundleName),
    /// Keep a bundle that fitted as the one in force, durably, and put it in force; the result goes to
    /// [`Follower::took`].
    Take(ActiveRevision),
    /// Nothing for this time, or until something is told.
    Rest(Duration),
}

/// The result of an examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examined {
    /// The node can work with it.
    Fits,
    /// It cannot: the first fault, with file and line.
    Refused(String),
    /// The bundle could not be had now, for this reason.
    Unavailable(String),
}

#[derive(Clone, Debug)]
enum Pending {
    Read,
    Report(NodeReport),
    ExamineActive(ActiveRevision),
    ExaminePush(PushId),
    Take(ActiveRevision),
}

/// A node's part in shared configuration.
#[derive(Debug)]
pub struct Follower {
    node: NodeId,
    pending: Option<Pending>,
    view: Option<ConfigView>,
    read_at: Duration,
    last_read: Option<Duration>,
    examine_at: Duration,
    taken: Option<(u64, BundleDigest)>,
    /// The active bundle that does not fit, and when it is examined again.
    refused: Option<(BundleDigest, String, Duration)>,
    examined: Option<(PushId, Result<(), String>)>,
    /// The active bundle that fits and is not in force yet.
    fitting: Option<BundleDigest>,
    /// Why a bundle could not be had.
    missing: Option<String>,
    /// A request had no answer: nothing is written before the keys are read again.
    is_stale: bool,
}

/// The state of a node, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowerStatus {
    /// The revision in force here.
    pub taken: Option<(u64, BundleDigest)>,
    /// The keys as they were read last; `None` before the first answer.
    pub view: Option<ConfigView>,
    /// Why the active revision is not in force here.
    pub problem: Option<String>,
}

impl FollowerStatus {
    /// Whether the active revision is in force here; true while none is known.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let active = self.view.as_ref().and_then(|view| view.active.as_ref());
        active.is_none_or(|(active, _)| self.taken == Some((active.number, active.bundle.digest)))
    }
}

impl Follower {
    /// A node that has this revision in force, from its own disk.
    #[must_use]
    pub const fn new(now: Duration, node: NodeId, taken: Option<(u64, BundleDigest)>) -> Self {
        Self {
            node,
            pending: None,
            view: None,
            read_at: now,
            last_read: None,
            examine_at: now,
            taken,
            refused: None,
            examined: None,
            fitting: None,
            missing: None,
            is_stale: false,
        }
    }

    /// A key has changed: looks soon.
    pub fn changed(&mut self, now: Duration) {
        let soon = self.last_read.map_or(now, |last| now.max(last + HASTENED_INTERVAL));
        self.read_at = self.read_at.min(soon);
    }

    /// The own file may have changed: an active bundle that did not fit is examined again.
    pub fn own_file_changed(&mut self, now: Duration) {
        if let Some((_, _, at)) = &mut self.refused {
            *at = now;
        }
    }

    /// The state for operators.
    #[must_use]
    pub fn status(&self) -> FollowerStatus {
        FollowerStatus { taken: self.taken, view: self.view.clone(), problem: self.problem() }
    }

    /// Whether this node knows which revision counts, and has it in force or goes on with an earlier one.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let Some(view) = &self.view else { return false };
        let Some((active, _)) = &view.active else { return true };
        let goes_on = self.taken.is_some() && self.refusal_of(active.bundle.digest).is_some();
        self.taken == Some((active.number, active.bundle.digest)) || goes_on
    }

    fn refusal_of(&self, digest: BundleDigest) -> Option<&str> {
        self.refused.as_ref().filter(|(refused, _, _)| *refused == digest).map(|(_, why, _)| why.as_str())
    }

    fn problem(&self) -> Option<String> {
        let view = self.view.as_ref()?;
        if let Some(key) = &view.unreadable {
            return Some(format!("a later version of mailrace wrote the key {key}; upgrade this node"));
        }
        let (active, _) = view.active.as_ref()?;
        if self.taken == Some((active.number, active.bundle.digest)) {
            return None;
        }
        self.refusal_of(active.bundle.digest).map(ToOwned::to_owned).or_else(|| self.missing.clone())
    }

    /// The next action. While something is under way only [`FollowAction::Rest`].
    pub fn next(&mut self, now: Duration) -> FollowAction {
        if self.pending.is_some() {
            return FollowAction::Rest(READ_INTERVAL);
        }
        if now >= self.read_at {
            self.last_read = Some(now);
            self.read_at = now + READ_INTERVAL;
            self.pending = Some(Pending::Read);
            return FollowAction::Coordinate(CoordinationRequest::List { prefix: CONFIG_PREFIX.to_owned() });
        }
        let rest = self.read_at.saturating_sub(now);
        let Some(view) = self.view.as_ref().filter(|_| !self.is_stale) else { return FollowAction::Rest(rest) };
        if view.unreadable.is_none() {
            if let Some(action) = self.next_active(now) {
                return action;
            }
            if let Some(action) = self.next_push(now) {
                return action;
            }
        }
        if let Some(action) = self.next_report() {
            return action;
        }
        let again = [Some(self.examine_at), self.refused.as_ref().map(|(_, _, at)| *at)];
        let again = again.into_iter().flatten().filter(|at| *at > now).map(|at| at.saturating_sub(now));
        FollowAction::Rest(again.fold(rest, Duration::min))
    }

    fn next_active(&mut self, now: Duration) -> Option<FollowAction> {
        let (active, _) = self.view.as_ref()?.active.clone()?;
        let digest = active.bundle.digest;
        if self.taken == Some((active.number, digest)) {
            return None;
        }
        // The same files may be in force under another number.
        if self.fitting == Some(digest) || self.taken.is_some_and(|(_, taken)| taken == digest) {
            self.pending = Some(Pending::Take(active.clone()));
            return Some(FollowAction::Take(active));
        }
        let is_refused = self.refused.as_ref().is_some_and(|(refused, _, at)| *refused == digest && now < *at);
        if is_refused || now < self.examine_at {
            return None;
        }
        self.pending = Some(Pending::ExamineActive(active.clone()));
        Some(FollowAction::Examine(active.bundle))
    }

    fn next_push(&mut self, now: Duration) -> Option<FollowAction> {
        let (claim, _) = self.view.as_ref()?.claim.as_ref()?;
        let is_known = self.examined.as_ref().is_some_and(|(push, _)| *push == claim.push);
        if !claim.is_offered || is_known || now < self.examine_at {
            return None;
        }
        let action = FollowAction::Examine(claim.bundle);
        self.pending = Some(Pending::ExaminePush(claim.push));
        Some(action)
    }

    fn next_report(&mut self) -> Option<FollowAction> {
        let written = self.view.as_ref()?.reports.get(&self.node);
        let wanted = self.view.as_ref()?.active.as_ref().map(|(active, _)| active.bundle.digest);
        let problem = wanted.and_then(|digest| Some((digest, self.problem()?)));
        let report = NodeReport { taken: self.taken, push: self.examined.clone(), problem };
        let value = report.to_string();
        // A long reason is cut in what is written.
        if written.is_some_and(|(written, _)| written.to_string() == value) {
            return None;
        }
        let expected = written.map_or(0, |(_, revision)| *revision);
        let kept = NodeReport::parse(value.as_bytes()).unwrap_or(report);
        self.pending = Some(Pending::Report(kept));
        Some(FollowAction::Coordinate(CoordinationRequest::Put {
            key: report_key(self.node),
            value: Bytes::from(value),
            expected,
            ttl: Some(REPORT_TTL),
        }))
    }

    /// Takes the answer of the store.
    pub fn answered(&mut self, now: Duration, reply: CoordinationReply) {
        match (self.pending.take(), reply) {
            (Some(Pending::Read), CoordinationReply::Listed(listed)) => {
                self.view = Some(ConfigView::of(&listed));
                self.is_stale = false;
            }
            (Some(Pending::Report(report)), CoordinationReply::Written { revision }) => {
                if let Some(view) = &mut self.view {
                    view.reports.insert(self.node, (report, revision));
                }
            }
            // Another life of this node, or a write whose answer was lost.
            (Some(Pending::Report(..)), CoordinationReply::Conflict) => self.read_at = now,
            (Some(Pending::Read | Pending::Report(..)), _) => {
                self.is_stale = true;
                self.read_at = now + RETRY_TIME;
            }
            (other, _) => self.pending = other,
        }
    }

    /// Takes the result of an examination.
    pub fn examined(&mut self, now: Duration, result: Examined) {
        let pending = self.pending.take();
        if let Examined::Unavailable(why) = result {
            self.missing = Some(why);
            self.examine_at = now + RETRY_TIME;
            return;
        }
        self.missing = None;
        match (pending, result) {
            (Some(Pending::ExamineActive(active)), Examined::Fits) => {
                self.refused = None;
                self.fitting = Some(active.bundle.digest);
            }
            (Some(Pending::ExamineActive(active)), Examined::Refused(why)) => self.refuse(now, &active, why),
            (Some(Pending::ExaminePush(push)), Examined::Fits) => self.examined = Some((push, Ok(()))),
            (Some(Pending::ExaminePush(push)), Examined::Refused(why)) => self.examined = Some((push, Err(why))),
            (other, _) => self.pending = other,
        }
    }

    /// Takes the result of [`FollowAction::Take`].
    pub fn took(&mut self, now: Duration, result: Result<(), String>) {
        self.fitting = None;
        match (self.pending.take(), result) {
            (Some(Pending::Take(active)), Ok(())) => {
                self.taken = Some((active.number, active.bundle.digest));
                self.refused = None;
            }
            (Some(Pending::Take(active)), Err(why)) => self.refuse(now, &active, why),
            (other, _) => self.pending = other,
        }
    }

    fn refuse(&mut self, now: Duration, active: &ActiveRevision, why: String) {
        self.refused = Some((active.bundle.digest, why, now + REFUSED_TIME));
    }
}
