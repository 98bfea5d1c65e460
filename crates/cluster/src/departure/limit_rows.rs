//! Removes the rows of one node from the tables of all shared limits.
//!
//! A row is removed once it has been seen unchanged for [`ROW_WATCH`]: the lease of its last renewal is over then, so
//! its node uses no more than the reserve that stands in the row. The write is a compare-and-set against the table in
//! which the row was seen last, so a renewal in between refuses it. A node that runs and reaches the store renews its
//! rows, and the removal ends without a change. One that runs cut off goes on using its reserve, which nothing here can
//! see: only a node that is stopped may be removed.
//!
//! A node that leaves by itself uses nothing any more, and removes its own rows without the wait.

use crate::coordination::{CoordinationReply, CoordinationRequest, KeyValue};
use crate::identity::NodeId;
use crate::share::{LEASE, LEASE_MARGIN};
use crate::share_table::{ShareRow, ShareTable};
use std::collections::VecDeque;
use std::time::Duration;

/// Time for which a row of another node is watched before it is removed.
pub const ROW_WATCH: Duration = LEASE.saturating_add(LEASE_MARGIN);
/// Time after which a store that does not answer ends the removal.
const STORE_TIME: Duration = Duration::from_secs(20);
/// Pause after a request without an answer.
const RETRY_TIME: Duration = Duration::from_millis(500);
/// Pause after a conflict, and while an answer is awaited.
const PAUSE: Duration = Duration::from_millis(50);

/// An action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowAction {
    /// Ask the store; the answer goes to [`RowRemoval::answered`].
    Coordinate(CoordinationRequest),
    /// Nothing for this time.
    Rest(Duration),
    /// The removal is over.
    End(RowRemovalEnd),
}

/// The end of a removal of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowRemovalEnd {
    /// No table has a row of the node any more.
    Removed {
        /// Rows that were there.
        rows: usize,
    },
    /// The node renews the row of this table, so it runs. Rows of other tables may be removed; it writes them again.
    Renewed {
        /// The key of the table.
        key: String,
    },
    /// The store does not answer. Some rows may be removed.
    NoAnswer,
    /// A later version of mailrace wrote the table under this key.
    Unreadable {
        /// The key.
        key: String,
    },
}

/// A row that is watched.
#[derive(Clone, Debug)]
struct WatchedRow {
    key: String,
    /// The number of its renewal.
    renewals: u64,
    since: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowQuestion {
    /// A table is read for the first time.
    First,
    /// A row is looked at again, after the watch.
    Again,
    Write,
}

/// The removal of the rows of one node.
#[derive(Debug)]
pub struct RowRemoval {
    node: NodeId,
    watch: Duration,
    unread: VecDeque<String>,
    watched: VecDeque<WatchedRow>,
    question: Option<RowQuestion>,
    /// A write that is due: the table was just read.
    write: Option<CoordinationRequest>,
    unanswered_since: Option<Duration>,
    rest_until: Duration,
    rows: usize,
    end: Option<RowRemovalEnd>,
}

impl RowRemoval {
    /// Removes the rows of another node from the tables under these keys. That node must be stopped.
    #[must_use]
    pub fn of_stopped(now: Duration, node: NodeId, tables: Vec<String>) -> Self {
        Self::watching(now, node, tables, ROW_WATCH)
    }

    /// Removes the own rows of a node that uses nothing any more, and renews none.
    #[must_use]
    pub fn of_own(now: Duration, node: NodeId, tables: Vec<String>) -> Self {
        Self::watching(now, node, tables, Duration::ZERO)
    }

    /// With another time. Only a test calls it, to see that the time matters.
    #[doc(hidden)]
    #[must_use]
    pub fn watching(now: Duration, node: NodeId, tables: Vec<String>, watch: Duration) -> Self {
        Self {
            node,
            watch,
            unread: tables.into(),
            watched: VecDeque::new(),
            question: None,
            write: None,
            unanswered_since: None,
            rest_until: now,
            rows: 0,
            end: None,
        }
    }

    /// The next action; one thing at a time.
    pub fn next(&mut self, now: Duration) -> RowAction {
        if let Some(end) = &self.end {
            return RowAction::End(end.clone());
        }
        if self.unanswered_since.is_some_and(|since| now >= since + STORE_TIME) {
            return self.ends(RowRemovalEnd::NoAnswer);
        }
        if self.question.is_some() {
            return RowAction::Rest(PAUSE);
        }
        if now < self.rest_until {
            return RowAction::Rest(self.rest_until.saturating_sub(now));
        }
        if let Some(request) = self.write.take() {
            return self.ask(now, RowQuestion::Write, request);
        }
        if let Some(key) = self.unread.front().cloned() {
            return self.ask(now, RowQuestion::First, CoordinationRequest::Get { key });
        }
        match self.watched.front() {
            Some(row) if now < row.since + self.watch => RowAction::Rest((row.since + self.watch).saturating_sub(now)),
            Some(row) => {
                let key = row.key.clone();
                self.ask(now, RowQuestion::Again, CoordinationRequest::Get { key })
            }
            None => self.ends(RowRemovalEnd::Removed { rows: self.rows }),
        }
    }

    fn ends(&mut self, end: RowRemovalEnd) -> RowAction {
        self.end = Some(end.clone());
        RowAction::End(end)
    }

    fn ask(&mut self, now: Duration, question: RowQuestion, request: CoordinationRequest) -> RowAction {
        self.question = Some(question);
        self.unanswered_since.get_or_insert(now);
        RowAction::Coordinate(request)
    }

    /// Takes the answer of the store.
    pub fn answered(&mut self, now: Duration, reply: CoordinationReply) {
        let Some(question) = self.question.take() else { return };
        if reply == CoordinationReply::Unknown {
            // A write without an answer shows when the table is read again.
            self.rest_until = now + RETRY_TIME;
            return;
        }
        self.unanswered_since = None;
        match (question, reply) {
            (RowQuestion::First, CoordinationReply::Found(found)) => self.read_first(now, found.as_ref()),
            (RowQuestion::Again, CoordinationReply::Found(found)) => self.read_again(found.as_ref()),
            (RowQuestion::Write, CoordinationReply::Written { .. }) => {
                self.rows += 1;
                self.watched.pop_front();
            }
            // Another node wrote; the row is looked at again.
            _ => self.rest_until = now + PAUSE,
        }
    }

    fn read_first(&mut self, now: Duration, found: Option<&KeyValue>) {
        let Some(key) = self.unread.pop_front() else { return };
        match self.row(found) {
            Ok(Some((row, _))) => {
                self.watched.push_back(WatchedRow { key, renewals: row.renewals, since: now });
            }
            Ok(None) => {}
            Err(()) => self.end = Some(RowRemovalEnd::Unreadable { key }),
        }
    }

    fn read_again(&mut self, found: Option<&KeyValue>) {
        let Some(watched) = self.watched.front().cloned() else { return };
        match (self.row(found), found) {
            (Ok(Some((row, table))), Some(found)) if row.renewals == watched.renewals => {
                let (value, expected) = (table.without(self.node).write(), found.revision);
                self.write = Some(CoordinationRequest::Put { key: watched.key, value, expected, ttl: None });
            }
            (Ok(Some(_)), _) => self.end = Some(RowRemovalEnd::Renewed { key: watched.key }),
            (Ok(None), _) => {
                // By a write whose answer was lost.
                self.rows += 1;
                self.watched.pop_front();
            }
            (Err(()), _) => self.end = Some(RowRemovalEnd::Unreadable { key: watched.key }),
        }
    }

    /// The row of the node and its table; an error for a table of a later version.
    fn row(&self, found: Option<&KeyValue>) -> Result<Option<(ShareRow, ShareTable)>, ()> {
        let Some(found) = found else { return Ok(None) };
        let table = ShareTable::read(&found.value).ok_or(())?;
        Ok(table.row(self.node).copied().map(|row| (row, table)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const NODE: NodeId = NodeId(3);

    fn row(node: NodeId, amount: u32, renewals: u64) -> ShareRow {
        ShareRow { node, amount, demand: amount, reserve: amount, renewals, turn: 0 }
    }

    /// A store with tables, each with a row of node 1 and perhaps one of the node.
    #[derive(Default)]
    struct Tables(BTreeMap<String, (ShareTable, u64)>);

    impl Tables {
        fn with(names: &[(&str, bool)]) -> Self {
            let mut tables = Self::default();
            for (name, has_row) in names {
                let mut rows = vec![row(NodeId(1), 5, 7)];
                rows.extend(has_row.then(|| row(NODE, 4, 8)));
                tables.0.insert((*name).to_owned(), (ShareTable { limit: 12, renewals: 8, rows }, 20));
            }
            tables
        }

        fn keys(&self) -> Vec<String> {
            self.0.keys().cloned().collect()
        }

        fn perform(&mut self, request: CoordinationRequest) -> CoordinationReply {
            match request {
                CoordinationRequest::Get { key } => {
                    let found = self.0.get(&key);
                    let found = found.map(|(table, revision)| (table.write(), *revision));
                    CoordinationReply::Found(found.map(|(value, revision)| KeyValue { key, value, revision }))
                }
                CoordinationRequest::Put { key, value, expected, ttl } => {
                    assert_eq!(ttl, None);
                    let (table, revision) = self.0.get_mut(&key).unwrap();
                    if *revision != expected {
                        return CoordinationReply::Conflict;
                    }
                    (*table, *revision) = (ShareTable::read(&value).unwrap(), *revision + 1);
                    CoordinationReply::Written { revision: *revision }
                }
                _ => panic!("{request:?}"),
            }
        }

        fn renew(&mut self, key: &str, node: NodeId) {
            let (table, revision) = self.0.get_mut(key).unwrap();
            table.renewals += 1;
            let renewals = table.renewals;
            table.rows.iter_mut().filter(|row| row.node == node).for_each(|row| row.renewals = renewals);
            *revision += 1;
        }

        fn has_row(&self, key: &str) -> bool {
            self.0[key].0.row(NODE).is_some()
        }
    }

    /// Drives a removal to its end; `between` is called before each request.
    fn drive(
        removal: &mut RowRemoval,
        now: &mut Duration,
        tables: &mut Tables,
        mut between: impl FnMut(&CoordinationRequest, &mut Tables),
    ) -> RowRemovalEnd {
        for _ in 0..200 {
            match removal.next(*now) {
                RowAction::Coordinate(request) => {
                    between(&request, tables);
                    let reply = tables.perform(request);
                    removal.answered(*now, reply);
                }
                RowAction::Rest(time) => *now += time,
                RowAction::End(end) => return end,
            }
        }
        panic!("the removal does not end: {removal:?}");
    }

    #[test]
    fn rows_of_a_stopped_node_go_after_its_lease() {
        let mut tables = Tables::with(&[("limit/a", true), ("limit/b", false), ("limit/c", true)]);
        let mut now = Duration::from_secs(5);
        let mut removal = RowRemoval::of_stopped(now, NODE, tables.keys());
        let end = drive(&mut removal, &mut now, &mut tables, |_, _| {});
        assert_eq!(end, RowRemovalEnd::Removed { rows: 2 });
        assert!(!tables.has_row("limit/a") && !tables.has_row("limit/c"));
        assert!(now >= Duration::from_secs(5) + LEASE + LEASE_MARGIN, "{now:?}");
        assert_eq!(tables.0["limit/a"].0.row(NodeId(1)), Some(&row(NodeId(1), 5, 7)), "other rows stay");
    }

    #[test]
    fn a_node_that_renews_its_row_keeps_it() {
        let mut tables = Tables::with(&[("limit/a", true)]);
        let mut now = Duration::ZERO;
        let mut removal = RowRemoval::of_stopped(now, NODE, tables.keys());
        let mut reads = 0;
        let end = drive(&mut removal, &mut now, &mut tables, |request, tables| {
            reads += u32::from(matches!(request, CoordinationRequest::Get { .. }));
            if reads == 2 {
                tables.renew("limit/a", NODE);
            }
        });
        assert_eq!(end, RowRemovalEnd::Renewed { key: "limit/a".to_owned() });
        assert!(tables.has_row("limit/a"));
    }

    /// The renewal comes between the last look and the write.
    #[test]
    fn a_renewal_in_the_last_moment_refuses_the_write() {
        let mut tables = Tables::with(&[("limit/a", true)]);
        let mut now = Duration::ZERO;
        let mut removal = RowRemoval::of_stopped(now, NODE, tables.keys());
        let end = drive(&mut removal, &mut now, &mut tables, |request, tables| {
            if matches!(request, CoordinationRequest::Put { .. }) {
                tables.renew("limit/a", NODE);
            }
        });
        assert_eq!(end, RowRemovalEnd::Renewed { key: "limit/a".to_owned() });
        assert!(tables.has_row("limit/a"));
    }

    #[test]
    fn renewals_of_others_do_not_keep_the_row() {
        let mut tables = Tables::with(&[("limit/a", true)]);
        let mut now = Duration::ZERO;
        let mut removal = RowRemoval::of_stopped(now, NODE, tables.keys());
        let mut writes = 0;
        let end = drive(&mut removal, &mut now, &mut tables, |request, tables| {
            writes += u32::from(matches!(request, CoordinationRequest::Put { .. }));
            if writes == 1 {
                tables.renew("limit/a", NodeId(1));
                writes += 1;
            }
        });
        assert_eq!(end, RowRemovalEnd::Removed { rows: 1 });
    }

    #[test]
    fn a_node_removes_its_own_rows_without_a_wait() {
        let mut tables = Tables::with(&[("limit/a", true), ("limit/b", true)]);
        let mut now = Duration::ZERO;
        let mut removal = RowRemoval::of_own(now, NODE, tables.keys());
        let end = drive(&mut removal, &mut now, &mut tables, |_, _| {});
        assert_eq!((end, now), (RowRemovalEnd::Removed { rows: 2 }, Duration::ZERO));
    }

    #[test]
    fn a_store_that_does_not_answer_and_a_later_version_end_it() {
        let mut now = Duration::ZERO;
        let mut removal = RowRemoval::of_stopped(now, NODE, vec!["limit/a".to_owned()]);
        let end = loop {
            match removal.next(now) {
                RowAction::Coordinate(_) => removal.answered(now, CoordinationReply::Unknown),
                RowAction::Rest(time) => now += time,
                RowAction::End(end) => break end,
            }
        };
        assert_eq!(end, RowRemovalEnd::NoAnswer);
        assert!(now >= STORE_TIME && now < STORE_TIME * 2, "{now:?}");
        let mut removal = RowRemoval::of_stopped(now, NODE, vec!["limit/a".to_owned()]);
        assert!(matches!(removal.next(now), RowAction::Coordinate(_)));
        let value = bytes::Bytes::from_static(b"\xff");
        removal
            .answered(now, CoordinationReply::Found(Some(KeyValue { key: "limit/a".to_owned(), value, revision: 1 })));
        let end = RowRemovalEnd::Unreadable { key: "limit/a".to_owned() };
        assert_eq!(removal.next(now), RowAction::End(end));
    }
}
