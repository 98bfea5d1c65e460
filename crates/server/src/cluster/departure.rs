//! This node leaves the cluster for good: it hands its mail over, waits for the other nodes to take the copies that it
//! holds, gives its parts of shared limits back, and says that it left.
//!
//! No step is a condition of the next one: a node whose operator has it leave goes in the end, and the result names all
//! that was not done. Mail that no other node took stays in the local log.

use super::member::ClusterMember;
use cluster::{LIMIT_PREFIX, Node, NodeId, RowAction, RowRemoval, RowRemovalEnd};
use os::clock;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time without progress after which a step of the hand-over ends: longer than an adopter waits for a holder.
const STALL_TIME: Duration = Duration::from_secs(120);
/// Time without progress of the other nodes that take the copies on the engine of this node.
const COPIES_STALL_TIME: Duration = Duration::from_secs(30);
/// Time for the mark and the removal of the entry.
const ENTRY_TIME: Duration = Duration::from_secs(15);
/// Time between two looks.
const LOOK_TIME: Duration = Duration::from_millis(200);

/// The step of a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureStep {
    /// Adoptions by this node come to their end.
    Adoptions,
    /// Other nodes adopt the mail of this node.
    Mail,
    /// Other nodes take their copies on the engine of this node elsewhere.
    Copies,
    /// The rows in the tables of shared limits are removed.
    Limits,
    /// The entry is removed.
    Entry,
}

/// How a departure ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Other nodes have all mail that had a copy.
    pub is_handed_over: bool,
    /// Rows of shared limits that were removed, or the reason why some may be left.
    pub rows: Result<usize, String>,
    /// Owners whose mail has copies on the engine of this node, each with their number if it is known.
    pub copies: Vec<(NodeId, Option<u64>)>,
    /// The mark is written and the entry removed.
    pub has_left: bool,
}

impl ClusterMember {
    /// Says that this node leaves for good: as [`ClusterMember::announce_drain`], and the other nodes take the copies
    /// that it holds elsewhere.
    pub fn announce_departure(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.shared.tell(Node::announce_departure);
    }

    /// Whether [`ClusterMember::announce_departure`] was called.
    #[must_use]
    pub fn is_departing(&self) -> bool {
        self.shared.node().is_departing()
    }

    /// Leaves, after [`ClusterMember::drain`] and the last transaction. `told` gets each step with the number of
    /// messages or copies that are left, again and again.
    ///
    /// # Cancel safety
    /// No: what was done stays done, and the node takes no part any more. Its mail stays in the local log until another
    /// node has taken it.
    pub async fn depart(&self, told: impl Fn(DepartureStep, usize)) -> Departure {
        self.shared.tell(|node, _| node.close_limits());
        let closed_at = clock::since_boot();
        let adoptions = |node: &Node| (node.adoptions() == 0, node.adoptions());
        self.until_none(STALL_TIME, adoptions, |left| told(DepartureStep::Adoptions, left)).await;
        self.shared.tell(|node, _| node.release());
        let mail = |node: &Node| (node.is_handed_over(), node.not_handed_over());
        let is_handed_over = self.until_none(STALL_TIME, mail, |left| told(DepartureStep::Mail, left)).await;
        self.list_streams().await;
        let copies = |node: &Node| {
            let held = node.copies_held();
            let left: u64 = held.iter().map(|(_, copies)| copies.unwrap_or(1)).sum();
            (held.is_empty(), usize::try_from(left).unwrap_or(usize::MAX))
        };
        self.until_none(COPIES_STALL_TIME, copies, |left| told(DepartureStep::Copies, left)).await;
        told(DepartureStep::Limits, 0);
        let rows = self.remove_rows(closed_at).await;
        told(DepartureStep::Entry, 0);
        let copies = self.shared.node().copies_held();
        self.shared.tell(|node, now| node.depart(now, copies.is_empty()));
        let is_gone = |node: &Node| !node.is_member();
        let has_left = tokio::time::timeout(ENTRY_TIME, self.until(is_gone)).await.is_ok();
        Departure { is_handed_over, rows, copies, has_left }
    }

    /// Looks until this is over, or its number has not become less for some time. Returns whether it is over.
    async fn until_none(
        &self,
        stall_time: Duration,
        look: impl Fn(&Node) -> (bool, usize),
        told: impl Fn(usize),
    ) -> bool {
        let (mut least, mut since) = (usize::MAX, clock::since_boot());
        loop {
            let (is_over, left) = look(&self.shared.node());
            let now = clock::since_boot();
            if is_over || now >= since + stall_time {
                return is_over;
            }
            if left < least {
                (least, since) = (left, now);
            }
            told(left);
            tokio::time::sleep(LOOK_TIME).await;
        }
    }

    /// Tells the machines of streams that were made a moment ago.
    async fn list_streams(&self) {
        let Some(engine) = self.engine_in_use() else { return };
        if let Ok(streams) = engine.log.streams().await {
            self.shared.tell(|node, _| node.known_streams(&streams));
        }
    }

    /// Removes the own rows from all tables of shared limits, which are renewed no more since some time; returns their
    /// number.
    async fn remove_rows(&self, closed_at: Duration) -> Result<usize, String> {
        let engine = self.engine_in_use().ok_or_else(|| "the engine is not in use".to_owned())?;
        // A renewal that was under way then may have been written late.
        let until = closed_at + engine.engine.request_time_max();
        tokio::time::sleep(until.saturating_sub(clock::since_boot())).await;
        let tables = engine.store.keys(LIMIT_PREFIX).await.map_err(|error| error.to_string())?;
        let mut removal = RowRemoval::of_own(clock::since_boot(), NodeId(self.node.get()), tables);
        loop {
            match removal.next(clock::since_boot()) {
                RowAction::Coordinate(request) => {
                    let answer = engine.store.carry_out(&request).await;
                    removal.answered(clock::since_boot(), answer.reply);
                }
                RowAction::Rest(time) => tokio::time::sleep(time).await,
                RowAction::End(RowRemovalEnd::Removed { rows }) => return Ok(rows),
                RowAction::End(RowRemovalEnd::NoAnswer) => {
                    return Err("no majority of the engines answers".to_owned());
                }
                RowAction::End(RowRemovalEnd::Renewed { key } | RowRemovalEnd::Unreadable { key }) => {
                    return Err(format!("a later version of mailrace wrote the key {key}"));
                }
            }
        }
    }
}
