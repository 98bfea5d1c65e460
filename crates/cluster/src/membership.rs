//! The members of the cluster: a node's own entry, the view of the others, and the reasons to refuse a node.
//!
//! An entry is one line of text under `node/NUMBER`, written again every [`Settings::membership_interval`] with
//! compare-and-set and a time to live. A node that is missing from a fresh view may be adopted from; ownership itself
//! does not hang on the entry but on the shadow streams. A node that left for good has a [`DepartureMark`] in the place
//! of its entry, below the same prefix, so that one look shows both.

mod mark;
mod readers;
#[cfg(test)]
mod tests;

use crate::action::{Action, Purpose, Token};
use crate::block::BlockVersions;
use crate::coordination::{CoordinationReply, CoordinationRequest, KeyValue};
use crate::identity::{ClusterId, Incarnation, NodeId};
use crate::settings::Settings;
use bytes::Bytes;
pub use mark::DepartureMark;
use readers::Readers;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The prefix of all entries.
pub const NODE_PREFIX: &str = "node/";

/// Clock difference above which a node is refused: wait times of clients and retries would be wrong, and the order of
/// queue ids.
pub const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(60);

/// Age that an entry of a node may have: of one that writes no more, its time to live.
const ENTRY_AGE_MAX: Duration = Duration::from_secs(15);

/// Time between two looks that a watch asks for.
const HASTENED_INTERVAL: Duration = Duration::from_millis(250);

/// Intervals after which a view is too old to adopt by.
const VIEW_INTERVALS_MAX: u32 = 3;

/// Times to live of an entry for which the view must be fresh before a later block version is written.
const STEADY_TTLS: u32 = 2;

/// The entry of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// Its number.
    pub node: NodeId,
    /// Its name, without blanks.
    pub name: String,
    /// The life of its local log.
    pub incarnation: Incarnation,
    /// Starts of its local log.
    pub start: u32,
    /// The block versions that it reads.
    pub reads: BlockVersions,
    /// The block version that it writes.
    pub writes: u16,
    /// It takes no new mail and holds no new copies.
    pub is_draining: bool,
    /// It leaves the cluster for good: the other nodes take the copies that it holds elsewhere.
    pub is_departing: bool,
    /// Its clock, in microseconds since 1970, when the entry was written.
    pub clock_us: u64,
}

impl NodeEntry {
    /// The key of the entry.
    #[must_use]
    pub fn key(node: NodeId) -> String {
        format!("{NODE_PREFIX}{}", node.0)
    }

    /// Reads an entry; `None` for any other text. Fields that are not known are passed over, so that a later version
    /// may add some.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.strip_prefix("mailrace-node-1 ")?;
        let field = |name: &str| text.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        // An entry without these two is of a program that knows version 1 alone.
        let number = |name: &str| field(name).map_or(Some(1), |text| text.parse().ok());
        Some(Self {
            cluster: ClusterId::parse(field("cluster")?)?,
            node: NodeId(field("node")?.parse().ok()?),
            name: field("name")?.to_owned(),
            incarnation: Incarnation(field("incarnation")?.parse().ok()?),
            start: field("start")?.parse().ok()?,
            reads: BlockVersions { oldest: number("oldest")?, newest: number("blocks")? },
            writes: number("writes")?,
            is_draining: field("drain")? == "1",
            is_departing: field("depart") == Some("1"),
            clock_us: field("clock")?.parse().ok()?,
        })
    }
}

impl fmt::Display for NodeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mailrace-node-1 cluster={} node={} name={} incarnation={} start={} blocks={} oldest={} writes={} drain={} clock={}",
            self.cluster,
            self.node.0,
            self.name,
            self.incarnation.0,
            self.start,
            self.reads.newest,
            self.reads.oldest,
            self.writes,
            u8::from(self.is_draining),
            self.clock_us
        )?;
        if self.is_departing { f.write_str(" depart=1") } else { Ok(()) }
    }
}

/// The reason why this node must not run in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipError {
    /// The store belongs to another cluster.
    OtherCluster {
        /// The cluster of the entry that was found.
        found: ClusterId,
        /// The cluster of this node.
        ours: ClusterId,
    },
    /// Another node lives under this node's number.
    TwoNodes {
        /// Its entry.
        other: Box<NodeEntry>,
    },
    /// The number belongs to another name.
    NumberTaken {
        /// The number.
        node: NodeId,
        /// The name it belongs to.
        name: String,
        /// The name of this node.
        ours: String,
    },
    /// The clock of this node differs from that of most others.
    Clock {
        /// Seconds by which this node is ahead; negative when it is behind.
        ahead_s: i64,
        /// A node it was compared with.
        other: String,
    },
    /// A node of the cluster and this one have no block version that both read, or it writes one that this one does not
    /// read.
    BlockVersion {
        /// The node.
        other: String,
        /// The versions that it reads.
        reads: BlockVersions,
        /// The version that it writes.
        writes: u16,
        /// The versions that this program reads.
        ours: BlockVersions,
    },
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCluster { found, ours } => write!(
                f,
                "the engine holds cluster {found}, this node belongs to {ours}; point the node to its own engine, or \
                 join the other cluster with an empty spool"
            ),
            Self::TwoNodes { other } => write!(
                f,
                "a node \"{}\" with number {} is running (incarnation {}, start {}); stop it, or give this node a \
                 name of its own",
                other.name, other.node.0, other.incarnation.0, other.start
            ),
            Self::NumberTaken { node, name, ours } => write!(
                f,
                "number {} belongs to node \"{name}\", this node is \"{ours}\"; join the cluster again to get a number",
                node.0
            ),
            Self::Clock { ahead_s, other } => write!(
                f,
                "the clock of this node is {} s {} the clock of node \"{other}\", {} s are allowed; set the clock \
                 (chronyc makestep) and start again",
                ahead_s.unsigned_abs(),
                if *ahead_s < 0 { "behind" } else { "ahead of" },
                CLOCK_DIFFERENCE_MAX.as_secs()
            ),
            Self::BlockVersion { other, reads, writes, ours } => {
                let next = if ours.newest < reads.newest { "this node" } else { "that node first" };
                write!(
                    f,
                    "node \"{other}\" writes blocks of version {writes} and reads {reads}, this program reads {ours}; \
                     upgrade {next}"
                )
            }
        }
    }
}

impl std::error::Error for MembershipError {}

/// The decision about an entry that has this node's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnEntryDecision {
    /// It is of an earlier start of this node: overwrite it.
    Take,
    /// It may be of a node that lives: look again after an interval, or until it is gone.
    Wait,
    /// This node must not run.
    Refuse(MembershipError),
}

/// Judges an entry under this node's number. `has_changed` says that it was written again while this node watched.
#[must_use]
pub fn judge_own_entry(ours: &NodeEntry, found: &NodeEntry, has_changed: bool) -> OwnEntryDecision {
    if found.cluster != ours.cluster {
        let error = MembershipError::OtherCluster { found: found.cluster, ours: ours.cluster };
        return OwnEntryDecision::Refuse(error);
    }
    if found.name != ours.name {
        let error = MembershipError::NumberTaken { node: ours.node, name: found.name.clone(), ours: ours.name.clone() };
        return OwnEntryDecision::Refuse(error);
    }
    if found.incarnation == ours.incarnation && found.start < ours.start {
        return OwnEntryDecision::Take;
    }
    if has_changed {
        return OwnEntryDecision::Refuse(MembershipError::TwoNodes { other: Box::new(found.clone()) });
    }
    OwnEntryDecision::Wait
}

/// Judges this node by the entries of the others: cluster, clock, block version.
///
/// The clock counts as wrong when it differs from more than half of the others. `others` must be fresh.
///
/// # Errors
/// The first reason against this node.
pub fn judge_node(ours: &NodeEntry, others: &[NodeEntry]) -> Result<(), MembershipError> {
    let others: Vec<&NodeEntry> = others.iter().filter(|other| other.node != ours.node).collect();
    if let Some(other) = others.iter().find(|other| other.cluster != ours.cluster) {
        return Err(MembershipError::OtherCluster { found: other.cluster, ours: ours.cluster });
    }
    let is_strange = |other: &&&NodeEntry| ours.reads.common(other.reads).is_none() || other.writes > ours.reads.newest;
    if let Some(other) = others.iter().find(is_strange) {
        let (other, reads, writes) = (other.name.clone(), other.reads, other.writes);
        return Err(MembershipError::BlockVersion { other, reads, writes, ours: ours.reads });
    }
    let difference = |other: &NodeEntry| ours.clock_us.abs_diff(other.clock_us);
    let is_off = |other: &&&NodeEntry| {
        // The clock of the entry stands still since it was written.
        let age = if ours.clock_us > other.clock_us { ENTRY_AGE_MAX } else { Duration::ZERO };
        Duration::from_micros(difference(other)) > CLOCK_DIFFERENCE_MAX + age
    };
    let off: Vec<&&NodeEntry> = others.iter().filter(is_off).collect();
    match off.first() {
        Some(other) if off.len() * 2 > others.len() => {
            let seconds = i64::try_from(difference(other) / 1_000_000).unwrap_or(i64::MAX);
            let ahead_s = if ours.clock_us > other.clock_us { seconds } else { -seconds };
            Err(MembershipError::Clock { ahead_s, other: other.name.clone() })
        }
        _ => Ok(()),
    }
}

/// Keeps the own entry and the view of the others.
#[derive(Debug)]
pub(crate) struct Membership {
    settings: Settings,
    entry: NodeEntry,
    /// The revision of the own entry, once it is written.
    revision: Option<u64>,
    /// An entry under the own number that was seen, with its revision.
    seen: Option<u64>,
    put_at: Duration,
    list_at: Duration,
    attempt: u64,
    put_attempt: u64,
    list_attempt: u64,
    list_sent_at: Duration,
    view: BTreeMap<NodeId, NodeEntry>,
    /// Marks of nodes that left, with their revisions.
    marks: BTreeMap<NodeId, (DepartureMark, u64)>,
    /// The mark that is written before the own entry is removed.
    own_mark: Option<DepartureMark>,
    /// When the last answered look was asked for.
    viewed_at: Option<Duration>,
    readers: Readers,
    refusal: Option<MembershipError>,
    is_leaving: bool,
    /// The last put was answered.
    is_confirmed: bool,
    /// The one before the put under way was answered, so a conflict means another writer.
    would_be_rival: bool,
    rivals: u32,
    /// Writes of others to the own entry that were seen before the first own one.
    changes: u32,
}

/// Foreign writes to the own entry above which another node must be running under its name.
const RIVALS_MAX: u32 = 2;

impl Membership {
    pub(crate) fn new(now: Duration, settings: Settings, name: String) -> Self {
        let entry = NodeEntry {
            cluster: settings.cluster,
            node: settings.node,
            name,
            incarnation: settings.incarnation,
            start: settings.start,
            reads: settings.block_versions,
            writes: settings.block_version,
            is_draining: false,
            is_departing: false,
            clock_us: 0,
        };
        Self {
            settings,
            entry,
            revision: None,
            seen: None,
            put_at: now,
            list_at: now,
            attempt: 0,
            put_attempt: 0,
            list_attempt: 0,
            list_sent_at: now,
            view: BTreeMap::new(),
            marks: BTreeMap::new(),
            own_mark: None,
            viewed_at: None,
            readers: Readers::new(now),
            refusal: None,
            is_leaving: false,
            is_confirmed: false,
            would_be_rival: false,
            rivals: 0,
            changes: 0,
        }
    }

    /// The reason why this node stopped, if it did.
    pub(crate) const fn refusal(&self) -> Option<&MembershipError> {
        self.refusal.as_ref()
    }

    /// True while the own entry is written.
    pub(crate) const fn is_member(&self) -> bool {
        self.revision.is_some() && self.refusal.is_none()
    }

    /// Takes the hint that a key below `node/`, or any of them, was written or removed.
    ///
    /// The entries of the view are renewed all the time: a look at each of these would cost the square of the number of
    /// nodes. The next regular look is soon enough for them, so only an entry that is new hastens it.
    pub(crate) fn changed(&mut self, now: Duration, key: &str) {
        if !self.view.keys().any(|node| NodeEntry::key(*node) == key) {
            self.list_at = self.list_at.min(now.max(self.list_sent_at + HASTENED_INTERVAL));
        }
    }

    pub(crate) const fn set_draining(&mut self, now: Duration) {
        self.entry.is_draining = true;
        self.put_at = now;
    }

    /// Tells the others that this node leaves for good.
    pub(crate) const fn set_departing(&mut self, now: Duration) {
        self.entry.is_departing = true;
        self.set_draining(now);
    }

    pub(crate) const fn is_draining(&self) -> bool {
        self.entry.is_draining
    }

    /// Removes the own entry.
    pub(crate) const fn leave(&mut self, now: Duration) {
        self.is_leaving = true;
        self.put_at = now;
    }

    /// Writes the own mark, and removes the own entry then.
    pub(crate) const fn depart(&mut self, now: Duration, is_empty: bool) {
        let (cluster, node) = (self.entry.cluster, self.entry.node);
        self.own_mark = Some(DepartureMark { cluster, node, by: node, is_empty });
        self.leave(now);
    }

    /// True while the view may be used to say that a node is gone.
    pub(crate) fn is_fresh(&self, now: Duration) -> bool {
        self.viewed_at.is_some_and(|at| now < at + self.settings.membership_interval * VIEW_INTERVALS_MAX)
    }

    /// The entry of a node in the last view.
    pub(crate) fn entry(&self, node: NodeId) -> Option<&NodeEntry> {
        self.view.get(&node)
    }

    /// True while this node leaves for good.
    pub(crate) const fn is_departing(&self) -> bool {
        self.entry.is_departing
    }

    /// True for a node that runs and does not leave for good.
    pub(crate) fn stays(&self, node: NodeId) -> bool {
        self.entry(node).is_some_and(|entry| !entry.is_departing)
    }

    /// The nodes that run and do not leave for good.
    pub(crate) fn staying(&self) -> impl Iterator<Item = NodeId> {
        self.view.values().filter(|entry| !entry.is_departing).map(|entry| entry.node)
    }

    /// Marks of nodes that left and have not come back.
    pub(crate) fn departed(&self) -> impl Iterator<Item = &DepartureMark> {
        self.marks.values().map(|(mark, _)| mark).filter(|mark| !self.view.contains_key(&mark.node))
    }

    /// True for a node that left and has not come back.
    pub(crate) fn has_departed(&self, node: NodeId) -> bool {
        self.departed().any(|mark| mark.node == node)
    }

    /// The block version to write.
    pub(crate) const fn version(&self) -> u16 {
        self.entry.writes
    }

    /// All entries of the last view.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &NodeEntry> {
        self.view.values()
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let put_at = if self.may_put() { self.put_at } else { self.list_at };
        self.refusal.is_none().then(|| put_at.min(self.list_at))
    }

    /// The first look comes before the first put: it may show a reason not to run.
    const fn may_put(&self) -> bool {
        self.viewed_at.is_some() && (self.seen.is_none() || self.revision.is_some())
    }

    pub(crate) fn poll(&mut self, now: Duration, wall_us: u64) -> Option<Action> {
        if self.refusal.is_some() {
            return None;
        }
        if now >= self.list_at {
            self.list_at = now + self.settings.membership_interval;
            self.attempt += 1;
            self.list_attempt = self.attempt;
            self.list_sent_at = now;
            let request = CoordinationRequest::List { prefix: NODE_PREFIX.to_owned() };
            return Some(self.coordinate(Purpose::MemberList, self.list_attempt, request));
        }
        if now < self.put_at || !self.may_put() {
            return None;
        }
        self.put_at = now + self.settings.membership_interval;
        self.attempt += 1;
        self.put_attempt = self.attempt;
        self.entry.clock_us = wall_us;
        if let Some(action) = self.poll_mark() {
            return Some(action);
        }
        let key = NodeEntry::key(self.entry.node);
        let expected = self.revision.unwrap_or(0);
        if self.is_leaving {
            let request = CoordinationRequest::Delete { key, expected };
            return self.revision.is_some().then(|| self.coordinate(Purpose::MemberDelete, self.attempt, request));
        }
        let value = Bytes::from(self.entry.to_string());
        let ttl = Some(self.settings.membership_ttl);
        let request = CoordinationRequest::Put { key, value, expected, ttl };
        // An entry that expired is no rival; a conflict soon after an answered put is one.
        self.would_be_rival = std::mem::take(&mut self.is_confirmed) && expected != 0;
        Some(self.coordinate(Purpose::MemberPut, self.put_attempt, request))
    }

    /// Writes the own mark before the entry is removed, or removes the mark of an earlier time before there is an
    /// entry.
    fn poll_mark(&mut self) -> Option<Action> {
        let key = DepartureMark::key(self.entry.node);
        let found = self.marks.get(&self.entry.node).map(|(_, revision)| *revision);
        match (self.own_mark, found) {
            (Some(mark), found) => {
                let (value, expected) = (Bytes::from(mark.to_string()), found.unwrap_or(0));
                let request = CoordinationRequest::Put { key, value, expected, ttl: None };
                Some(self.coordinate(Purpose::MemberMark, self.attempt, request))
            }
            (None, Some(expected)) if !self.is_leaving => {
                let request = CoordinationRequest::Delete { key, expected };
                Some(self.coordinate(Purpose::MemberMark, self.attempt, request))
            }
            _ => None,
        }
    }

    fn coordinate(&self, purpose: Purpose, attempt: u64, request: CoordinationRequest) -> Action {
        let _ = self;
        Action::Coordinate { token: Token { purpose, attempt }, request }
    }

    pub(crate) fn answered(&mut self, now: Duration, wall_us: u64, token: Token, reply: CoordinationReply) {
        match (token.purpose, reply) {
            (Purpose::MemberPut, CoordinationReply::Written { revision }) if token.attempt == self.put_attempt => {
                self.revision = Some(revision);
                self.is_confirmed = true;
            }
            (Purpose::MemberPut, CoordinationReply::Conflict) if token.attempt == self.put_attempt => {
                // Expired, written by an attempt without an answer, or another node: the next look says which.
                self.rivals += u32::from(std::mem::take(&mut self.would_be_rival));
                self.revision = None;
                self.seen = Some(0);
                self.list_at = now;
            }
            (Purpose::MemberMark, CoordinationReply::Written { .. }) => {
                // The next look shows it too.
                self.own_mark = None;
                self.marks.remove(&self.entry.node);
                self.put_at = now;
            }
            (Purpose::MemberMark, CoordinationReply::Conflict) => self.list_at = now,
            (Purpose::MemberDelete, CoordinationReply::Written { .. }) => self.revision = None,
            (Purpose::MemberDelete, CoordinationReply::Conflict) => {
                // Removed, expired, or written by a put under way: the next look says which.
                self.revision = None;
                self.list_at = now;
            }
            (Purpose::MemberList, CoordinationReply::Listed(list))
                // A process that stood still gets answers that are old.
                if token.attempt == self.list_attempt
                    && now < self.list_sent_at + self.settings.membership_interval * VIEW_INTERVALS_MAX =>
            {
                let was_fresh = self.is_fresh(now);
                self.viewed_at = Some(self.list_sent_at);
                self.look(wall_us, &list);
                self.readers.look(now, was_fresh, self.view.values());
                let departed: Vec<NodeId> = self.departed().map(|mark| mark.node).collect();
                self.readers.forget(&departed);
                let steady_for = self.settings.membership_ttl * STEADY_TTLS;
                self.entry.writes = self.readers.version(now, &self.entry, steady_for);
            }
            _ => {}
        }
    }

    fn look(&mut self, wall_us: u64, list: &[KeyValue]) {
        self.view.clear();
        self.marks.clear();
        let mut own = None;
        for kv in list {
            if let Some(mark) = DepartureMark::parse(&kv.value).filter(|mark| mark.cluster == self.entry.cluster) {
                self.marks.insert(mark.node, (mark, kv.revision));
            }
            let Some(entry) = NodeEntry::parse(&kv.value) else { continue };
            if entry.node == self.entry.node {
                own = Some((entry.clone(), kv.revision));
            }
            self.view.insert(entry.node, entry);
        }
        let is_joining = self.revision.is_none();
        self.entry.clock_us = wall_us;
        let others: Vec<NodeEntry> = self.view.values().cloned().collect();
        match judge_node(&self.entry, &others) {
            Err(error) if is_joining && !self.is_leaving => self.refusal = Some(error),
            _ => {}
        }
        match own {
            None if is_joining => self.seen = None,
            Some((found, revision)) if is_joining => {
                let is_ours = found.incarnation == self.entry.incarnation && found.start == self.entry.start;
                if is_ours && self.rivals > RIVALS_MAX {
                    self.refusal = Some(MembershipError::TwoNodes { other: Box::new(found) });
                    return;
                }
                if is_ours && self.put_attempt > 0 {
                    // A put without an answer was carried out.
                    (self.revision, self.seen) = (Some(revision), None);
                    return;
                }
                // One change may be a late write of the process before this one.
                self.changes += u32::from(self.seen.is_some_and(|seen| seen != 0 && seen != revision));
                let has_changed = self.changes > 1;
                match judge_own_entry(&self.entry, &found, has_changed) {
                    OwnEntryDecision::Take => (self.revision, self.seen) = (Some(revision), None),
                    OwnEntryDecision::Wait => self.seen = Some(revision),
                    OwnEntryDecision::Refuse(error) => self.refusal = Some(error),
                }
            }
            _ => {}
        }
    }
}
