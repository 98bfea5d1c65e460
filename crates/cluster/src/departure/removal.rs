//! Removes a dead node from the cluster: nothing of it may run, and no mail of it may wait.
//!
//! | Step | It goes on when |
//! |---|---|
//! | the entries of all nodes are read | there is none of the node |
//! | the ends of the streams are read | no mail waits for the node or its engine, or the operator forces it |
//! | the rows of the node are watched and removed | none was renewed meanwhile |
//! | the entries are read again | there is still none of the node |
//! | its mark is written | |
//!
//! A step that was carried out without an answer does no harm when it is carried out again, so the whole may be.

use super::limit_rows::{RowAction, RowRemoval, RowRemovalEnd};
use super::waiting_mail::{StreamQuestion, WaitingMail, WaitingMailSearch};
use crate::coordination::{CoordinationReply, CoordinationRequest, KeyValue};
use crate::identity::{ClusterId, Lane, NodeId, StreamId};
use crate::membership::{DepartureMark, NODE_PREFIX, NodeEntry};
use crate::replica_log::{LogOperation, LogReply, LogRequest};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time after which a store that does not answer ends the removal.
const STORE_TIME: Duration = Duration::from_secs(20);
/// Pause after a request without an answer.
const RETRY_TIME: Duration = Duration::from_millis(500);

/// An action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovalAction {
    /// Ask the store; the answer goes to [`Removal::answered`].
    Coordinate(CoordinationRequest),
    /// Ask the log; the answer goes to [`Removal::log_answered`].
    Log(LogRequest),
    /// List all streams; the list goes to [`Removal::streams_listed`].
    Streams,
    /// List the keys of all shared limits; the list goes to [`Removal::tables_listed`].
    Tables,
    /// Nothing for this time.
    Rest(Duration),
    /// The removal is over.
    End(RemovalEnd),
}

/// The end of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovalEnd {
    /// The node runs: its entry is there. Rows may be removed when it came back meanwhile; it writes them again.
    Runs(Box<NodeEntry>),
    /// The node renews the row of this table, so it runs.
    Renewed {
        /// The key of the table.
        key: String,
    },
    /// Mail waits for the node; [`Removal::waiting`] has it. Nothing was changed.
    MailWaits,
    /// Nothing is known of such a node. Nothing was changed.
    NotKnown,
    /// The node is removed.
    Removed {
        /// Rows of shared limits that were there.
        rows: usize,
        /// It had left before.
        had_left: bool,
    },
    /// The store does not answer. The removal can be repeated.
    NoAnswer,
    /// A list could not be had, for this reason. The removal can be repeated.
    NotListed(String),
    /// A later version of mailrace wrote the value of this key.
    Unreadable {
        /// The key.
        key: String,
    },
}

#[derive(Debug)]
enum RemovalStep {
    Entries,
    Streams,
    Mail(Box<WaitingMailSearch>),
    Tables,
    Rows(Box<RowRemoval>),
    EntriesAgain,
    Mark,
    Over(RemovalEnd),
}

/// The removal of a dead node.
#[derive(Debug)]
pub struct Removal {
    cluster: ClusterId,
    by: NodeId,
    node: NodeId,
    is_forced: bool,
    step: RemovalStep,
    is_asked: bool,
    unanswered_since: Option<Duration>,
    rest_until: Duration,
    live: BTreeSet<NodeId>,
    marks: BTreeMap<NodeId, (DepartureMark, u64)>,
    waiting: Vec<WaitingMail>,
    rows: usize,
    /// The node had left before; `None` before the first look.
    had_left: Option<bool>,
    /// Streams have its number.
    has_streams: bool,
}

impl Removal {
    /// Removes `node` from a cluster, at the node `by`. `is_forced`: also if mail waits for it.
    #[must_use]
    pub const fn new(now: Duration, cluster: ClusterId, by: NodeId, node: NodeId, is_forced: bool) -> Self {
        Self {
            cluster,
            by,
            node,
            is_forced,
            step: RemovalStep::Entries,
            is_asked: false,
            unanswered_since: None,
            rest_until: now,
            live: BTreeSet::new(),
            marks: BTreeMap::new(),
            waiting: Vec::new(),
            rows: 0,
            had_left: None,
            has_streams: false,
        }
    }

    /// Mail that waits for the node or its engine.
    #[must_use]
    pub fn waiting(&self) -> &[WaitingMail] {
        &self.waiting
    }

    /// True while the rows of the node are watched, which takes [`ROW_WATCH`](super::ROW_WATCH).
    #[must_use]
    pub const fn is_watching(&self) -> bool {
        matches!(self.step, RemovalStep::Rows(_))
    }

    /// The next action; one thing at a time.
    pub fn next(&mut self, now: Duration) -> RemovalAction {
        if self.unanswered_since.is_some_and(|since| now >= since + STORE_TIME) {
            self.step = RemovalStep::Over(RemovalEnd::NoAnswer);
        }
        if let RemovalStep::Rows(rows) = &mut self.step {
            match rows.next(now) {
                RowAction::Coordinate(request) => return RemovalAction::Coordinate(request),
                RowAction::Rest(time) => return RemovalAction::Rest(time),
                RowAction::End(end) => self.rows_removed(end),
            }
        }
        if let RemovalStep::Over(end) = &self.step {
            return RemovalAction::End(end.clone());
        }
        if self.is_asked {
            return RemovalAction::Rest(RETRY_TIME);
        }
        if now < self.rest_until {
            return RemovalAction::Rest(self.rest_until.saturating_sub(now));
        }
        let action = match &self.step {
            RemovalStep::Streams => RemovalAction::Streams,
            RemovalStep::Tables => RemovalAction::Tables,
            RemovalStep::Mail(search) => match search.question() {
                Some(StreamQuestion::Tail(stream)) => {
                    let request = LogRequest { stream, lane: Lane::Messages, operation: LogOperation::Tail };
                    RemovalAction::Log(request)
                }
                Some(StreamQuestion::Claim(stream)) => {
                    RemovalAction::Coordinate(CoordinationRequest::Get { key: stream.claim_key() })
                }
                None => return self.mail_known(now),
            },
            RemovalStep::Mark => RemovalAction::Coordinate(self.write_mark()),
            _ => RemovalAction::Coordinate(CoordinationRequest::List { prefix: NODE_PREFIX.to_owned() }),
        };
        self.is_asked = true;
        if matches!(action, RemovalAction::Coordinate(_)) {
            self.unanswered_since.get_or_insert(now);
        }
        action
    }

    fn write_mark(&self) -> CoordinationRequest {
        let (cluster, node, by) = (self.cluster, self.node, self.by);
        // Its engine may have copies of mail of others, which they make anew.
        let mark = DepartureMark { cluster, node, by, is_empty: false };
        let expected = self.marks.get(&node).map_or(0, |(_, revision)| *revision);
        let value = Bytes::from(mark.to_string());
        CoordinationRequest::Put { key: DepartureMark::key(node), value, expected, ttl: None }
    }

    fn mail_known(&mut self, now: Duration) -> RemovalAction {
        if let RemovalStep::Mail(search) = &self.step {
            self.waiting = search.found().to_vec();
        }
        let is_refused = !self.waiting.is_empty() && !self.is_forced;
        self.step = if is_refused { RemovalStep::Over(RemovalEnd::MailWaits) } else { RemovalStep::Tables };
        self.next(now)
    }

    fn rows_removed(&mut self, end: RowRemovalEnd) {
        self.step = match end {
            RowRemovalEnd::Removed { rows } => {
                self.rows = rows;
                RemovalStep::EntriesAgain
            }
            RowRemovalEnd::Renewed { key } => RemovalStep::Over(RemovalEnd::Renewed { key }),
            RowRemovalEnd::NoAnswer => RemovalStep::Over(RemovalEnd::NoAnswer),
            RowRemovalEnd::Unreadable { key } => RemovalStep::Over(RemovalEnd::Unreadable { key }),
        };
    }

    /// Takes the list of all streams, or the reason why there is none.
    pub fn streams_listed(&mut self, list: Result<&[StreamId], String>) {
        self.is_asked = false;
        match list {
            Ok(streams) => {
                self.has_streams = streams.iter().any(|one| one.owner == self.node || one.holder == self.node);
                let empty = self.marks.values().filter(|(mark, _)| mark.is_empty && !self.live.contains(&mark.node));
                let empty = empty.map(|(mark, _)| mark.node).collect();
                let who = (self.cluster, self.node);
                let search = WaitingMailSearch::new(who, streams, self.live.clone(), &empty);
                self.step = RemovalStep::Mail(Box::new(search));
            }
            Err(why) => self.step = RemovalStep::Over(RemovalEnd::NotListed(why)),
        }
    }

    /// Takes the keys of all shared limits, or the reason why there are none.
    pub fn tables_listed(&mut self, now: Duration, list: Result<Vec<String>, String>) {
        self.is_asked = false;
        self.step = match list {
            Ok(tables) => RemovalStep::Rows(Box::new(RowRemoval::of_stopped(now, self.node, tables))),
            Err(why) => RemovalStep::Over(RemovalEnd::NotListed(why)),
        };
    }

    /// Takes the answer of the log.
    pub fn log_answered(&mut self, now: Duration, reply: &LogReply) {
        self.is_asked = false;
        if *reply == LogReply::Unknown {
            self.rest_until = now + RETRY_TIME;
        }
        if let RemovalStep::Mail(search) = &mut self.step {
            search.tail_read(reply);
        }
    }

    /// Takes the answer of the store.
    pub fn answered(&mut self, now: Duration, reply: CoordinationReply) {
        if let RemovalStep::Rows(rows) = &mut self.step {
            return rows.answered(now, reply);
        }
        self.is_asked = false;
        if reply == CoordinationReply::Unknown {
            self.rest_until = now + RETRY_TIME;
            if matches!(self.step, RemovalStep::Mark) {
                // It may be written.
                self.step = RemovalStep::EntriesAgain;
            }
            return;
        }
        self.unanswered_since = None;
        match (&mut self.step, reply) {
            (RemovalStep::Entries | RemovalStep::EntriesAgain, CoordinationReply::Listed(list)) => {
                self.entries_read(&list);
            }
            (RemovalStep::Mail(search), CoordinationReply::Found(found)) => search.claim_read(found.as_ref()),
            (RemovalStep::Mark, CoordinationReply::Written { .. }) => self.removed(),
            (RemovalStep::Mark, CoordinationReply::Conflict) => self.step = RemovalStep::EntriesAgain,
            _ => self.rest_until = now + RETRY_TIME,
        }
    }

    fn entries_read(&mut self, list: &[KeyValue]) {
        let entries = list.iter().filter_map(|found| NodeEntry::parse(&found.value));
        let entries: Vec<NodeEntry> = entries.filter(|entry| entry.cluster == self.cluster).collect();
        if let Some(entry) = entries.iter().find(|entry| entry.node == self.node) {
            self.step = RemovalStep::Over(RemovalEnd::Runs(Box::new(entry.clone())));
            return;
        }
        self.live = entries.iter().map(|entry| entry.node).collect();
        let marks = list.iter().filter_map(|found| Some((DepartureMark::parse(&found.value)?, found.revision)));
        let marks = marks.filter(|(mark, _)| mark.cluster == self.cluster);
        self.marks = marks.map(|(mark, revision)| (mark.node, (mark, revision))).collect();
        let has_mark = self.marks.contains_key(&self.node);
        let had_left = *self.had_left.get_or_insert(has_mark);
        match self.step {
            RemovalStep::Entries => self.step = RemovalStep::Streams,
            // Its own mark says more of its engine; ours may have been written without an answer.
            _ if has_mark => self.removed(),
            _ if !had_left && !self.has_streams && self.rows == 0 => {
                self.step = RemovalStep::Over(RemovalEnd::NotKnown);
            }
            _ => self.step = RemovalStep::Mark,
        }
    }

    fn removed(&mut self) {
        let had_left = self.had_left.unwrap_or(false);
        self.step = RemovalStep::Over(RemovalEnd::Removed { rows: self.rows, had_left });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ROW_WATCH, WaitingReason};
    use super::*;
    use crate::block::BlockVersions;
    use crate::identity::Incarnation;
    use crate::share_table::{ShareRow, ShareTable};

    const CLUSTER: ClusterId = ClusterId([7; 16]);
    const DEAD: NodeId = NodeId(3);
    const STREAM: StreamId = StreamId { owner: DEAD, holder: NodeId(1), generation: 0 };

    fn entry(node: u16) -> NodeEntry {
        NodeEntry {
            cluster: CLUSTER,
            node: NodeId(node),
            name: format!("mx{node}"),
            incarnation: Incarnation(1),
            start: 1,
            reads: BlockVersions::default(),
            writes: 1,
            is_draining: false,
            is_departing: false,
            clock_us: 0,
        }
    }

    /// A cluster as a removal sees it.
    struct Cluster {
        keys: BTreeMap<String, (Bytes, u64)>,
        revision: u64,
        streams: Vec<StreamId>,
        tail: LogReply,
        /// Answers to writes of marks that are lost.
        lost: u32,
        now: Duration,
        /// An entry that appears when the first row is removed.
        comes_back: Option<NodeEntry>,
    }

    impl Cluster {
        fn new() -> Self {
            let mut cluster = Self {
                keys: BTreeMap::new(),
                revision: 0,
                streams: vec![STREAM],
                tail: LogReply::Tail { sequence: 0, block: None },
                lost: 0,
                now: Duration::ZERO,
                comes_back: None,
            };
            cluster.put(NodeEntry::key(NodeId(1)), entry(1).to_string().into());
            let row = |node, amount| ShareRow { node, amount, demand: 9, reserve: 4, renewals: 1, turn: 0 };
            let rows = vec![row(NodeId(1), 6), row(DEAD, 4)];
            cluster.put("limit/x".to_owned(), ShareTable { limit: 12, renewals: 1, rows }.write());
            cluster
        }

        fn put(&mut self, key: String, value: Bytes) {
            self.revision += 1;
            self.keys.insert(key, (value, self.revision));
        }

        fn rows(&self) -> usize {
            ShareTable::read(&self.keys["limit/x"].0).unwrap().rows.len()
        }

        fn perform(&mut self, request: CoordinationRequest) -> CoordinationReply {
            let found = |key: &str, (value, revision): &(Bytes, u64)| KeyValue {
                key: key.to_owned(),
                value: value.clone(),
                revision: *revision,
            };
            match request {
                CoordinationRequest::Get { key } => {
                    CoordinationReply::Found(self.keys.get(&key).map(|stored| found(&key, stored)))
                }
                CoordinationRequest::List { prefix } => {
                    let listed = self.keys.iter().filter(|(key, _)| key.starts_with(&prefix));
                    CoordinationReply::Listed(listed.map(|(key, stored)| found(key, stored)).collect())
                }
                CoordinationRequest::Put { key, value, expected, .. } => {
                    if self.keys.get(&key).map_or(0, |(_, revision)| *revision) != expected {
                        return CoordinationReply::Conflict;
                    }
                    let is_mark = key.starts_with("node/left/");
                    self.put(key, value);
                    if let Some(entry) = self.comes_back.take() {
                        self.put(NodeEntry::key(entry.node), entry.to_string().into());
                    }
                    if is_mark && self.lost > 0 {
                        self.lost -= 1;
                        return CoordinationReply::Unknown;
                    }
                    CoordinationReply::Written { revision: self.revision }
                }
                CoordinationRequest::Delete { .. } => panic!("nothing is deleted"),
            }
        }

        fn remove(&mut self, node: NodeId, is_forced: bool) -> (RemovalEnd, Vec<WaitingMail>) {
            let mut removal = Removal::new(self.now, CLUSTER, NodeId(1), node, is_forced);
            for _ in 0..200 {
                match removal.next(self.now) {
                    RemovalAction::Coordinate(request) => {
                        let reply = self.perform(request);
                        removal.answered(self.now, reply);
                    }
                    RemovalAction::Log(request) => {
                        assert_eq!((request.stream, request.operation), (STREAM, LogOperation::Tail));
                        removal.log_answered(self.now, &self.tail);
                    }
                    RemovalAction::Streams => removal.streams_listed(Ok(&self.streams)),
                    RemovalAction::Tables => removal.tables_listed(self.now, Ok(vec!["limit/x".to_owned()])),
                    RemovalAction::Rest(time) => self.now += time,
                    RemovalAction::End(end) => return (end, removal.waiting().to_vec()),
                }
            }
            panic!("the removal does not end: {removal:?}");
        }

        fn mark(&self) -> Option<DepartureMark> {
            DepartureMark::parse(&self.keys.get("node/left/3")?.0)
        }
    }

    #[test]
    fn a_dead_node_without_mail_is_removed_after_its_lease() {
        let mut cluster = Cluster::new();
        let (end, waiting) = cluster.remove(DEAD, false);
        assert_eq!(end, RemovalEnd::Removed { rows: 1, had_left: false });
        assert_eq!((waiting, cluster.rows()), (Vec::new(), 1));
        assert!(cluster.now >= ROW_WATCH, "{:?}", cluster.now);
        let mark = DepartureMark { cluster: CLUSTER, node: DEAD, by: NodeId(1), is_empty: false };
        assert_eq!(cluster.mark(), Some(mark));
        assert_eq!(cluster.remove(DEAD, false).0, RemovalEnd::Removed { rows: 0, had_left: true });
    }

    /// The negative control: not by force either.
    #[test]
    fn a_node_that_runs_is_never_removed() {
        let mut cluster = Cluster::new();
        cluster.put(NodeEntry::key(DEAD), entry(3).to_string().into());
        for is_forced in [false, true] {
            let (end, _) = cluster.remove(DEAD, is_forced);
            assert_eq!(end, RemovalEnd::Runs(Box::new(entry(3))));
        }
        assert_eq!((cluster.rows(), cluster.mark()), (2, None));
    }

    #[test]
    fn a_node_that_comes_back_meanwhile_gets_no_mark() {
        let mut cluster = Cluster::new();
        cluster.comes_back = Some(entry(3));
        assert_eq!(cluster.remove(DEAD, false).0, RemovalEnd::Runs(Box::new(entry(3))));
        assert_eq!(cluster.mark(), None);
    }

    #[test]
    fn waiting_mail_refuses_the_removal_and_force_names_it() {
        let mut cluster = Cluster::new();
        cluster.tail = LogReply::Unknown;
        let waiting = WaitingMail { stream: STREAM, messages: None, why: WaitingReason::HolderOutOfReach };
        assert_eq!(cluster.remove(DEAD, false), (RemovalEnd::MailWaits, vec![waiting.clone()]));
        assert_eq!((cluster.rows(), cluster.mark()), (2, None), "nothing was changed");
        let removed = RemovalEnd::Removed { rows: 1, had_left: false };
        assert_eq!(cluster.remove(DEAD, true), (removed, vec![waiting]));
        assert!(cluster.mark().is_some());
    }

    #[test]
    fn a_number_that_no_node_had_is_not_known() {
        let mut cluster = Cluster::new();
        cluster.streams.clear();
        assert_eq!(cluster.remove(NodeId(9), false).0, RemovalEnd::NotKnown);
        assert!(!cluster.keys.contains_key("node/left/9"));
    }

    #[test]
    fn a_mark_without_an_answer_is_found() {
        let mut cluster = Cluster::new();
        cluster.lost = 1;
        assert_eq!(cluster.remove(DEAD, false).0, RemovalEnd::Removed { rows: 1, had_left: false });
    }
}
