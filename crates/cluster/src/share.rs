//! A node's share of a limit that all nodes keep together, as connections to a site or messages in a second.
//!
//! A share is a lease: the node uses it while its last renewal was sent less than [`LEASE`] ago. A row that others have
//! seen unchanged for longer returns to the pool, except for the *reserve* that stands in it: `limit / nodes` by the
//! view of its owner. Without a majority of the store no row can be renewed, and each node falls to its reserve; since
//! nobody else may take the reserve, all nodes together stay below the limit also when some of them still reach the
//! store. The row of a node that is gone for good keeps its reserve until an operator removes the node.
//!
//! Amount and reserve are lowered in use before they are lowered in the table, and raised in use after. A driver that
//! hands out uses without asking each time tells how many it may hand out, and the row keeps these.
//!
//! A limit below the number of nodes has no reserve. Its single shares rotate: a node gives one back after
//! [`ROTATE_MESSAGES`] messages or [`ROTATE_IDLE`] without use while another one wants it.

use crate::coordination::{CoordinationReply, CoordinationRequest};
use crate::identity::NodeId;
use crate::share_table::{ShareRow, ShareTable};
use std::collections::BTreeMap;
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
/// Time until a node that wants more looks at a table that another one changed: its write and ours do not meet.
const HASTENED_WAIT: Duration = Duration::from_millis(50);
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
    /// The table that was written, the amount that the node should have by it, and when it was sent.
    Writing {
        table: ShareTable,
        target: u32,
        sent_at: Duration,
    },
}

/// A node's share of one limit.
#[derive(Debug)]
pub struct Share {
    key: String,
    node: NodeId,
    limit: u32,
    /// Nodes of the cluster, also those that are down, as this node knows it.
    nodes: u32,
    demand: u32,
    in_use: u32,
    /// The amount that the driver hands out without asking.
    granted: u32,
    /// The amount of the own row, and when its renewal was sent.
    held: u32,
    /// The part that may be used when the row cannot be renewed: no more than stands in the table.
    reserve: u32,
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
    /// `nodes` belong to the cluster, also those that are down. Nodes whose numbers differ stay below the limit too.
    #[must_use]
    pub const fn new(now: Duration, key: String, node: NodeId, limit: u32, nodes: u32) -> Self {
        Self {
            key,
            node,
            limit,
            nodes,
            demand: 0,
            in_use: 0,
            granted: 0,
            held: 0,
            reserve: 0,
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

    /// Sets what this node could use now, beyond any limit. The first demand is told to the store at once.
    pub fn set_demand(&mut self, now: Duration, demand: u32) {
        if self.demand == 0 && demand > 0 && self.held < demand {
            self.ask_at = self.ask_at.min(now);
        }
        self.demand = demand;
    }

    /// Sets the limit and the number of nodes.
    pub const fn set_limit(&mut self, limit: u32, nodes: u32) {
        (self.limit, self.nodes) = (limit, nodes);
    }

    /// Takes what a driver does that hands out uses by itself: how many are under way, how many there may be until
    /// the next report, and the messages since the last one. It hands out no more than [`Share::amount`].
    pub fn report(&mut self, now: Duration, in_use: u32, granted: u32, messages: u32) {
        if in_use > 0 {
            self.used_at = now;
        }
        let had = self.in_use.max(self.granted);
        (self.in_use, self.granted) = (in_use, granted);
        self.messages = self.messages.saturating_add(messages);
        // Another node may wait for what is free now.
        if had > self.bound && in_use.max(granted) <= self.bound && self.held > self.bound {
            self.ask_at = self.ask_at.min(now);
        }
    }

    /// The key of the table.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The amount of the own row, as the store last confirmed it.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// True when nothing is used, wanted or held.
    #[must_use]
    pub const fn is_unused(&self) -> bool {
        self.demand == 0 && self.in_use == 0 && self.granted == 0 && self.held == 0
    }

    /// Looks at the table soon, if this node wants more than it has: another node changed it.
    pub fn hasten(&mut self, now: Duration) {
        if self.demand > self.held {
            self.ask_at = self.ask_at.min(now + HASTENED_WAIT);
        }
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
        if is_leased { self.held } else { self.held.min(self.reserve) }
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
                let (table, target) = self.change(now, table);
                self.attempt += 1;
                let value = table.write();
                self.step = ShareStep::Writing { table, target, sent_at: now };
                let request = CoordinationRequest::Put { key: self.key.clone(), value, expected: revision, ttl: None };
                Some(ShareRequest { attempt: self.attempt, request })
            }
            (ShareStep::Writing { table, target, sent_at }, CoordinationReply::Written { .. }) => {
                let row = table.row(self.node);
                (self.held, self.reserve) = row.map_or((0, 0), |row| (row.amount, row.reserve));
                self.held_at = Some(sent_at);
                // The amount above the target is given up in use first, and in the table at the next renewal.
                self.bound = self.held.min(target);
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

    /// The table with the own row renewed and the rows of silent nodes reduced, and the amount that this node should
    /// have: the row has more while that is in use.
    fn change(&mut self, now: Duration, mut table: ShareTable) -> (ShareTable, u32) {
        for row in &table.rows {
            let seen = self.seen.entry(row.node).or_insert((row.renewals, now));
            if seen.0 != row.renewals {
                *seen = (row.renewals, now);
            }
        }
        let node = self.node;
        for row in table.rows.iter_mut().filter(|row| row.node != node) {
            let since = self.seen.get(&row.node).map_or(now, |(_, since)| *since);
            if now >= since + LEASE + LEASE_MARGIN {
                (row.amount, row.demand) = (row.amount.min(row.reserve), 0);
            }
        }
        table.rows.retain(|row| row.amount > 0 || row.demand > 0 || row.node == node);
        let before = table.row(node).copied();
        let held = before.map_or(0, |row| row.amount);
        // An own row whose write had no answer counts as not held: only a written answer raises the use.
        self.held = self.held.min(held);
        table.renewals += 1;
        let others: u32 = table.rows.iter().filter(|row| row.node != node).map(|row| row.amount).sum();
        table.rows.retain(|row| row.node != node);
        let own = ShareRow {
            node,
            amount: held,
            demand: self.demand.max(self.in_use),
            reserve: 0,
            renewals: table.renewals,
            turn: before.map_or(0, |row| row.turn),
        };
        let place = table.rows.partition_point(|row| row.node < node);
        table.rows.insert(place, own);
        let fair = ShareTable { limit: self.limit, ..table.clone() };
        let target = self.rotated(now, &fair).min(self.limit.saturating_sub(others));
        // Uses under way, and those that the driver may begin, cannot be given away, as far as the row has them.
        let amount = target.max(self.in_use.max(self.granted).min(held));
        let reserve = (self.limit / self.nodes.max(1)).min(amount);
        let turn = table.rows.iter().map(|row| row.turn).max().unwrap_or(0) + 1;
        if let Some(row) = table.rows.get_mut(place) {
            (row.amount, row.reserve) = (amount, reserve);
            if self.is_giving {
                row.turn = turn;
            }
        }
        self.bound = self.bound.min(target);
        self.reserve = self.reserve.min(reserve);
        // A lower limit takes effect as the rows shrink; the table keeps the larger one until they fit.
        table.limit = self.limit.max(others.saturating_add(amount));
        (table, target)
    }

    /// The amount wanted by demand, or none when it is another node's turn.
    fn rotated(&mut self, now: Duration, table: &ShareTable) -> u32 {
        let wanting = table.rows.iter().filter(|row| row.demand > 0).count();
        let is_single = (self.limit as usize) < wanting;
        if !is_single {
            // There is one for each node that wants some: none waits for what was to be given back.
            self.is_giving = false;
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
