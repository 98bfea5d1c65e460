//! A node's share of a limit that all nodes keep together, as connections to a site or messages in a second.
//!
//! A share is a lease: the node uses it while its last renewal was sent less than [`LEASE`] ago. A row that others have
//! seen unchanged for longer returns to the pool, except for a *reserve* of `limit / nodes`. Without a majority of the
//! store no row can be renewed, and each node falls to its reserve; since nobody else may take the reserve, all nodes
//! together stay below the limit also when some of them still reach the store.
//!
//! An amount is lowered in use before it is lowered in the table, and raised in use after.
//!
//! A limit below the number of nodes has no reserve. Its single shares rotate: a node gives one back after
//! [`ROTATE_MESSAGES`] messages or [`ROTATE_IDLE`] without use while another one wants it.

use crate::coordination::{CoordinationReply, CoordinationRequest};
use crate::identity::NodeId;
use crate::share_table::{ShareRow, ShareTable};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time from the sending of a renewal in which its share may be used.
pub const LEASE: Duration = Duration::from_secs(10);
/// Time that others wait longer, for clocks of different speed.
pub const LEASE_MARGIN: Duration = Duration::from_secs(1);
/// Time between renewals.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// Messages after which a single share is given back if another node wants it.
pub const ROTATE_MESSAGES: u32 = 100;
/// Time without use after which a single share is given back if another node wants it.
pub const ROTATE_IDLE: Duration = Duration::from_secs(30);
/// Time for which a node that gave a single share back does not take it again.
const ROTATE_PAUSE: Duration = Duration::from_secs(4);

/// A wish for the store; its answer goes to [`Share::answered`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRequest {
    /// To be given back.
    pub attempt: u64,
    /// The request.
    pub request: CoordinationRequest,
}

#[derive(Clone, Debug)]
enum ShareStep {
    Idle,
    Reading,
    /// The table that was written, and when it was sent.
    Writing {
        table: ShareTable,
        sent_at: Duration,
    },
}

/// A node's share of one limit.
#[derive(Debug)]
pub struct Share {
    key: String,
    node: NodeId,
    limit: u32,
    /// Nodes that belong to the cluster, also those that are down.
    members: BTreeSet<NodeId>,
    demand: u32,
    in_use: u32,
    /// The amount of the own row, and when its renewal was sent.
    held: u32,
    held_at: Option<Duration>,
    /// The bound for new uses while the own row is to be lowered.
    bound: u32,
    step: ShareStep,
    attempt: u64,
    ask_at: Duration,
    /// Since when each other row has been seen unchanged.
    seen: BTreeMap<NodeId, (u64, Duration)>,
    used_at: Duration,
    messages: u32,
    /// A single share goes back as soon as its use ends.
    is_giving: bool,
    pause_until: Duration,
}

impl Share {
    /// A share of nothing; the store gives the first one.
    ///
    /// `members` are all nodes that belong to the cluster, also those that are down.
    #[must_use]
    pub fn new(now: Duration, key: String, node: NodeId, limit: u32, members: BTreeSet<NodeId>) -> Self {
        Self {
            key,
            node,
            limit,
            members,
            demand: 0,
            in_use: 0,
            held: 0,
            held_at: None,
            bound: 0,
            step: ShareStep::Idle,
            attempt: 0,
            ask_at: now,
            seen: BTreeMap::new(),
            used_at: now,
            messages: 0,
            is_giving: false,
            pause_until: Duration::ZERO,
        }
    }

    /// Sets what this node could use now, beyond any limit.
    pub const fn set_demand(&mut self, demand: u32) {
        self.demand = demand;
    }

    /// Sets the limit and the members.
    ///
    /// Both must be the same at all nodes: a member that is removed at one node keeps its reserve at the others until
    /// they know it too.
    pub fn set_limit(&mut self, limit: u32, members: BTreeSet<NodeId>) {
        (self.limit, self.members) = (limit, members);
    }

    /// True when the driver should end uses soon, because it is another node's turn.
    #[must_use]
    pub const fn is_giving_back(&self) -> bool {
        self.is_giving
    }

    /// The amount that may be in use now.
    #[must_use]
    pub fn amount(&self, now: Duration) -> u32 {
        if self.is_giving { 0 } else { self.usable(now).min(self.bound) }
    }

    fn usable(&self, now: Duration) -> u32 {
        let is_leased = self.held_at.is_some_and(|at| now < at + LEASE);
        if is_leased { self.held } else { self.held.min(self.reserve()) }
    }

    /// The part that no other node may take.
    fn reserve(&self) -> u32 {
        self.limit / u32::try_from(self.members.len().max(1)).unwrap_or(u32::MAX)
    }

    /// Begins one use, if there is room.
    pub fn acquire(&mut self, now: Duration) -> bool {
        let has_room = self.in_use < self.amount(now);
        if has_room {
            self.in_use += 1;
            self.used_at = now;
        }
        has_room
    }

    /// Uses that must end now, since the share became smaller while they were under way.
    #[must_use]
    pub fn excess(&self, now: Duration) -> u32 {
        self.in_use.saturating_sub(self.usable(now))
    }

    /// Ends one use, after some messages.
    pub fn release(&mut self, now: Duration, messages: u32) {
        self.in_use = self.in_use.saturating_sub(1);
        self.messages = self.messages.saturating_add(messages);
        self.used_at = now;
    }

    /// The next time at which [`Share::poll`] has something to do.
    #[must_use]
    pub const fn wake_at(&self) -> Duration {
        self.ask_at
    }

    /// Returns the next request.
    pub fn poll(&mut self, now: Duration) -> Option<ShareRequest> {
        if now < self.ask_at {
            return None;
        }
        self.step = ShareStep::Reading;
        self.ask_at = now + RENEW_INTERVAL;
        self.attempt += 1;
        Some(ShareRequest { attempt: self.attempt, request: CoordinationRequest::Get { key: self.key.clone() } })
    }

    /// Takes the answer to a request, and may return another request.
    pub fn answered(&mut self, now: Duration, attempt: u64, reply: CoordinationReply) -> Option<ShareRequest> {
        if attempt != self.attempt {
            return None;
        }
        match (std::mem::replace(&mut self.step, ShareStep::Idle), reply) {
            (ShareStep::Reading, CoordinationReply::Found(found)) => {
                let revision = found.as_ref().map_or(0, |kv| kv.revision);
                let table = match &found {
                    Some(kv) => ShareTable::read(&kv.value)?,
                    None => ShareTable::default(),
                };
                let table = self.change(now, table);
                self.attempt += 1;
                let value = table.write();
                self.step = ShareStep::Writing { table, sent_at: now };
                let request = CoordinationRequest::Put { key: self.key.clone(), value, expected: revision, ttl: None };
                Some(ShareRequest { attempt: self.attempt, request })
            }
            (ShareStep::Writing { table, sent_at }, CoordinationReply::Written { .. }) => {
                self.held = table.row(self.node).map_or(0, |row| row.amount);
                self.held_at = Some(sent_at);
                self.bound = self.held;
                if self.is_giving && self.held == 0 {
                    (self.is_giving, self.messages) = (false, 0);
                }
                None
            }
            (_, CoordinationReply::Conflict) => {
                // Another node wrote; the wait differs from node to node, so that they do not meet again.
                self.ask_at = now + Duration::from_millis(20 + u64::from(self.node.0 % 16) * 15);
                None
            }
            _ => None,
        }
    }

    /// The table with the own row renewed and the rows of silent nodes reduced.
    fn change(&mut self, now: Duration, mut table: ShareTable) -> ShareTable {
        for row in &table.rows {
            let seen = self.seen.entry(row.node).or_insert((row.renewals, now));
            if seen.0 != row.renewals {
                *seen = (row.renewals, now);
            }
        }
        let (node, reserve) = (self.node, self.reserve());
        for row in table.rows.iter_mut().filter(|row| row.node != node) {
            let since = self.seen.get(&row.node).map_or(now, |(_, since)| *since);
            if now >= since + LEASE + LEASE_MARGIN {
                let kept = if self.members.contains(&row.node) { reserve } else { 0 };
                (row.amount, row.demand) = (row.amount.min(kept), 0);
            }
        }
        table.rows.retain(|row| row.amount > 0 || row.demand > 0 || row.node == node);
        let before = table.row(node).copied();
        let held = before.map_or(0, |row| row.amount);
        // An own row whose write had no answer counts as not held: only a written answer raises the use.
        self.held = self.held.min(held);
        let latest = table.rows.iter().map(|row| row.renewals).max().unwrap_or(0);
        let others: u32 = table.rows.iter().filter(|row| row.node != node).map(|row| row.amount).sum();
        table.rows.retain(|row| row.node != node);
        let own = ShareRow {
            node,
            amount: held,
            demand: self.demand.max(self.in_use),
            // Above all rows, so that no count comes twice even when a row was removed in between.
            renewals: latest + 1,
            turn: before.map_or(0, |row| row.turn),
        };
        let place = table.rows.partition_point(|row| row.node < node);
        table.rows.insert(place, own);
        // A lower limit takes effect as the rows shrink; the table keeps the larger one until they fit.
        let sum = others.saturating_add(held);
        table.limit = self.limit.max(sum);
        let fair = ShareTable { limit: self.limit, rows: table.rows.clone() };
        let mut amount = self.rotated(now, &fair).min(self.limit.saturating_sub(others));
        // Uses under way cannot be given away, as far as the row has them.
        amount = amount.max(self.in_use.min(held));
        let turn = table.rows.iter().map(|row| row.turn).max().unwrap_or(0) + 1;
        if let Some(row) = table.rows.get_mut(place) {
            row.amount = amount;
            if self.is_giving {
                row.turn = turn;
            }
        }
        self.bound = self.bound.min(amount);
        let sum = others.saturating_add(amount);
        table.limit = self.limit.max(sum);
        table
    }

    /// The amount wanted by demand, or none when it is another node's turn.
    fn rotated(&mut self, now: Duration, table: &ShareTable) -> u32 {
        let wanting = table.rows.iter().filter(|row| row.demand > 0).count();
        let is_single = (self.limit as usize) < wanting;
        if !is_single {
            return table.fair_amount(self.node);
        }
        let is_over = self.messages >= ROTATE_MESSAGES || now >= self.used_at + ROTATE_IDLE;
        if self.held > 0 && is_over && table.is_wanted_by_others(self.node) {
            self.is_giving = true;
        }
        if self.is_giving && self.in_use == 0 {
            self.pause_until = now + ROTATE_PAUSE;
        }
        if self.is_giving || now < self.pause_until { 0 } else { table.fair_amount(self.node) }
    }
}

/// Divides a rate by the share: tokens in micro-messages, with a burst of at most one second.
#[derive(Debug)]
pub struct SharedRate {
    tokens: u64,
    filled_at: Duration,
}

const MICRO: u64 = 1_000_000;

impl SharedRate {
    /// Begins without tokens, so that a restart does not add a burst.
    #[must_use]
    pub const fn new(now: Duration) -> Self {
        Self { tokens: 0, filled_at: now }
    }

    /// Takes one message, if `share` messages in a second allow it now.
    pub fn take(&mut self, now: Duration, share: u32) -> bool {
        let passed = u64::try_from(now.saturating_sub(self.filled_at).as_micros()).unwrap_or(u64::MAX);
        self.filled_at = now.max(self.filled_at);
        let most = u64::from(share) * MICRO;
        self.tokens = self.tokens.saturating_add(passed.saturating_mul(u64::from(share))).min(most);
        let has_one = self.tokens >= MICRO;
        if has_one {
            self.tokens -= MICRO;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_burst_of_a_second_at_most() {
        let mut rate = SharedRate::new(Duration::ZERO);
        assert!(!rate.take(Duration::ZERO, 5));
        let hour = Duration::from_secs(3_600);
        assert_eq!((0..100).filter(|_| rate.take(hour, 5)).count(), 5);
        let taken = (0..100_u64).filter(|at| rate.take(hour + Duration::from_millis(100 * at), 5)).count();
        assert!((49..=50).contains(&taken), "{taken}");
        assert!(!rate.take(hour * 2, 0), "no share, no message");
    }
}
