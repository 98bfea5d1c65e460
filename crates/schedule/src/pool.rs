//! Connections of all sites, and the budgets that they share.
//!
//! A connection is *opening* until it is greeted, then *awake* (about to ask for work), *busy* (it has a job and asks
//! again when it can), *idle* (it asked and got nothing; only a wake-up brings it back) or *closing*. One that has to
//! close before it is greeted is *dropping*. Each connection counts until it is over, in one kind of the budget: fast
//! lane, slow lane, *silent* (of the fast lane, until its peer was silent in a transaction) or *extra* (the same, until
//! it lagged). A connection that hangs thus takes no place of the fast lane. Silent connections have a bound of their
//! own. All others together have one too: beyond it those that lagged longest are cancelled, first those whose peer has
//! no whole message, because that would be sent twice. Those whose peer may have one stay silent while there is room,
//! and beyond that keep up to half of all places.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mail::QueueId;

use crate::chance::ById;
use crate::idle_connections::IdleConnections;
use crate::job::{ConnectionId, Job, Lag, Lane, Positions, SiteId};
use crate::part::Part;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Opening,
    Dropping,
    Awake,
    Busy,
    Idle,
    Closing,
}

impl Phase {
    /// Returns whether it is not greeted yet.
    pub(crate) const fn is_opening(self) -> bool {
        matches!(self, Self::Opening | Self::Dropping)
    }

    /// Returns whether it was told to close.
    pub(crate) const fn is_closing(self) -> bool {
        matches!(self, Self::Closing | Self::Dropping)
    }
}

/// The budget in which a connection counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetKind {
    Fast,
    Slow,
    Silent,
    Extra,
}

impl BudgetKind {
    const fn of(lane: Lane) -> Self {
        match lane {
            Lane::Fast => Self::Fast,
            Lane::Slow => Self::Slow,
        }
    }
}

/// The maximum number of connections of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionBudget {
    pub(crate) fast: usize,
    pub(crate) slow: usize,
    pub(crate) all: usize,
    /// Beside all others: connections with a silent peer in a transaction.
    pub(crate) silent: usize,
    /// Connections of the fast lane, for sites whose last attempt was cancelled before the greeting.
    pub(crate) retries: usize,
}

impl ConnectionBudget {
    pub(crate) fn new(connections_max: usize, silent: usize) -> Self {
        let slow = (connections_max / 10).max(1);
        let fast = connections_max.saturating_sub(slow).max(1);
        Self { fast, slow, all: connections_max.max(1), silent, retries: (fast / 2).max(1) }
    }

    /// Returns whether the budget is too small for both lanes, which then take turns.
    pub(crate) const fn is_shared(&self) -> bool {
        self.all < self.fast + self.slow
    }

    pub(crate) const fn of(&self, lane: Lane) -> usize {
        match lane {
            Lane::Fast => self.fast,
            Lane::Slow => self.slow,
        }
    }
}

/// A job that a connection has.
#[derive(Debug)]
pub(crate) struct InFlightJob {
    pub(crate) message: QueueId,
    /// The recipients of all parts.
    pub(crate) recipients: Positions,
    pub(crate) first: Part,
    pub(crate) others: Vec<Part>,
    /// The scheduler's step at its start.
    pub(crate) started_at_step: u64,
    /// It is an isolated retry, or belongs to a list: nothing is sent behind it.
    pub(crate) is_alone: bool,
    /// It got no reply; whether its recipients are retried one by one.
    pub(crate) lost: Option<bool>,
}

impl InFlightJob {
    /// Returns whether it is this job.
    pub(crate) fn is(&self, job: &Job) -> bool {
        self.message == job.message && self.recipients == job.recipients
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) site: SiteId,
    pub(crate) phase: Phase,
    pub(crate) budget_kind: BudgetKind,
    /// Its jobs, in the order of their start.
    pub(crate) in_flight: VecDeque<InFlightJob>,
    /// Jobs that it got.
    pub(crate) jobs_taken: u32,
    /// Jobs that were answered.
    pub(crate) jobs_answered: u32,
    /// A job got no reply.
    pub(crate) has_lost: bool,
    /// One of its jobs may be the cause of the failure: it does not count against a site that answered others.
    pub(crate) is_excused: bool,
    /// The server has its first job whole and has not replied: nothing is sent behind it.
    pub(crate) is_stalled: bool,
    /// The server is silent in its first job: nothing is sent behind it.
    pub(crate) is_silent: bool,
    /// When it was woken, until it asks for work.
    pub(crate) woken_at: Option<Duration>,
    /// It was told once that there is no work.
    pub(crate) was_idle: bool,
    /// It probes a site that is down.
    pub(crate) probe: bool,
    /// The scheduler's step when it opened.
    pub(crate) opened_at_step: u64,
    /// When it was greeted: its time slice starts.
    pub(crate) greeted_at: Duration,
    /// Its number among the idle connections.
    idle_number: Option<u64>,
    /// Until when it lingers; fixed while it has such a number.
    lingers_until: Duration,
    /// It has lagged since its last answered job.
    pub(crate) has_lagged: bool,
    /// It lags while its site can try other hosts.
    pub(crate) is_at_bad_host: bool,
    /// Its number among the lagging connections that can be cancelled.
    cancel_number: Option<u64>,
    /// Its number among the silent connections that lag, behind whether its peer may have a whole message.
    silent_number: Option<(bool, u64)>,
}

impl Connection {
    /// Lets an idle connection linger until `until`; zero: not at all.
    pub(crate) const fn set_linger(&mut self, until: Duration) {
        if self.idle_number.is_none() {
            self.lingers_until = until;
        }
    }
}

/// Connections of one site in each phase.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PhaseCounts {
    pub(crate) opening: u32,
    pub(crate) awake: u32,
    pub(crate) busy: u32,
    pub(crate) idle: u32,
    pub(crate) closing: u32,
    /// How many of all these are at a bad host while another one can be tried.
    pub(crate) at_bad_host: u32,
    /// How many of the others are stalled.
    pub(crate) stalled: u32,
}

impl PhaseCounts {
    /// Changes whether a connection is stalled or at a bad host, and counts that.
    pub(crate) fn update(&mut self, connection: &mut Connection, change: impl FnOnce(&mut Connection)) {
        let of = |one: &Connection| (u32::from(one.is_stalled && !one.is_at_bad_host), u32::from(one.is_at_bad_host));
        let (stalled, was_apart) = of(connection);
        change(connection);
        let (stalls, is_apart) = of(connection);
        self.stalled = self.stalled + stalls - stalled;
        self.at_bad_host = self.at_bad_host + is_apart - was_apart;
    }

    fn of(&mut self, phase: Phase) -> &mut u32 {
        match phase {
            Phase::Opening | Phase::Dropping => &mut self.opening,
            Phase::Awake => &mut self.awake,
            Phase::Busy => &mut self.busy,
            Phase::Idle => &mut self.idle,
            Phase::Closing => &mut self.closing,
        }
    }

    pub(crate) const fn total(&self) -> u32 {
        self.greeted() + self.opening
    }

    /// Returns how many are greeted and not over.
    pub(crate) const fn greeted(&self) -> u32 {
        self.staying() + self.closing
    }

    /// Returns how many are greeted and not told to close.
    pub(crate) const fn staying(&self) -> u32 {
        self.awake + self.busy + self.idle
    }
}

/// Connections of one kind.
#[derive(Debug, Default)]
struct BudgetUse {
    all: usize,
    closing: usize,
    /// Idle connections without a job in flight.
    idle_connections: IdleConnections,
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionPool {
    connections: ById<ConnectionId, Connection>,
    fast: BudgetUse,
    slow: BudgetUse,
    silent: BudgetUse,
    extra: BudgetUse,
    /// Silent connections that lag, longest first; those whose peer may have a whole message come last.
    silent_lagging: BTreeMap<(bool, u64), ConnectionId>,
    /// Lagging connections that can be cancelled, longest first; those whose peer may have a whole message are kept
    /// apart.
    cancellable: BTreeMap<u64, ConnectionId>,
    cancellable_whole: BTreeMap<u64, ConnectionId>,
    /// How many of them are closing and have their last job.
    closing_lagging: usize,
    next: u64,
    next_number: u64,
}

impl ConnectionPool {
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns how many connections count in `connections_max`: all but silent ones.
    pub(crate) fn counted(&self) -> usize {
        self.len() - self.silent.all
    }

    /// Returns the jobs of all connections.
    pub(crate) fn in_flight_jobs(&self) -> impl Iterator<Item = &InFlightJob> {
        self.connections.values().flat_map(|connection| &connection.in_flight)
    }

    pub(crate) fn count(&self, lane: Lane) -> usize {
        self.use_of(lane).all
    }

    /// Returns how many connections of a lane are closing.
    pub(crate) fn closing(&self, lane: Lane) -> usize {
        self.use_of(lane).closing
    }

    /// Returns how many connections are closing, silent ones excluded.
    pub(crate) fn all_closing(&self) -> usize {
        self.fast.closing + self.slow.closing + self.extra.closing
    }

    /// Returns how many of them will end soon.
    pub(crate) fn all_ending(&self) -> usize {
        self.all_closing() - self.closing_lagging
    }

    pub(crate) fn may_open(&self, lane: Lane, budget: &ConnectionBudget) -> bool {
        !self.is_full(lane, budget) && self.counted() < budget.all
    }

    /// Returns whether a lane has all the connections that it may have.
    pub(crate) fn is_full(&self, lane: Lane, budget: &ConnectionBudget) -> bool {
        self.count(lane) >= budget.of(lane)
    }

    /// Returns the lane in which a new connection to a site of `lane` counts; `None`: there is no place. If the fast
    /// lane is full its probes may use the slow lane, so that dead sites cost live ones no place.
    pub(crate) fn lane_for(&self, lane: Lane, is_probe: bool, budget: &ConnectionBudget) -> Option<Lane> {
        let lends = is_probe && self.is_full(Lane::Fast, budget);
        [Some(lane), lends.then_some(Lane::Slow)].into_iter().flatten().find(|lane| self.may_open(*lane, budget))
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    /// Returns the connection of a lane that is idle for longest.
    pub(crate) fn longest_idle(&self, lane: Lane) -> Option<ConnectionId> {
        self.use_of(lane).idle_connections.next_to_close()
    }

    /// Returns an idle connection of any kind.
    pub(crate) fn any_idle(&self) -> Option<ConnectionId> {
        [&self.extra, &self.slow, &self.fast].into_iter().find_map(|used| used.idle_connections.next_to_close())
    }

    /// Ends the lingering of connections whose time is over.
    pub(crate) fn end_lingering(&mut self, now: Duration) {
        [&mut self.extra, &mut self.slow, &mut self.fast]
            .into_iter()
            .for_each(|used| used.idle_connections.end_lingering(now));
    }

    /// Returns when the next lingering ends.
    pub(crate) fn next_linger_end(&self) -> Option<Duration> {
        [&self.extra, &self.slow, &self.fast]
            .into_iter()
            .filter_map(|used| used.idle_connections.next_linger_end())
            .min()
    }

    /// Removes and returns the connection that lagged longest. One whose peer may have a whole message is returned only
    /// while these hold more than half of `all` places.
    pub(crate) fn cancel_lagging(&mut self, all: usize) -> Option<ConnectionId> {
        let is_too_many = self.cancellable_whole.len() > (all / 2).max(1);
        let (_, id) = match self.cancellable.pop_first() {
            None if is_too_many => self.cancellable_whole.pop_first(),
            found => found,
        }?;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.cancel_number = None;
            self.closing_lagging -= usize::from(connection.phase.is_closing());
        }
        Some(id)
    }

    pub(crate) fn open(
        &mut self,
        site: SiteId,
        counts: &mut PhaseCounts,
        lane: Lane,
        probe: bool,
        opened_at_step: u64,
    ) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        counts.opening += 1;
        let budget_kind = BudgetKind::of(lane);
        self.use_mut(budget_kind).all += 1;
        let connection = Connection {
            site,
            phase: Phase::Opening,
            budget_kind,
            in_flight: VecDeque::new(),
            jobs_taken: 0,
            jobs_answered: 0,
            has_lost: false,
            is_excused: false,
            is_stalled: false,
            is_silent: false,
            woken_at: None,
            was_idle: false,
            probe,
            opened_at_step,
            greeted_at: Duration::ZERO,
            idle_number: None,
            lingers_until: Duration::ZERO,
            has_lagged: false,
            is_at_bad_host: false,
            cancel_number: None,
            silent_number: None,
        };
        self.connections.insert(id, connection);
        id
    }

    /// Moves a connection to another phase. `idle` is the stack of idle connections of its site.
    pub(crate) fn set_phase(
        &mut self,
        id: ConnectionId,
        to: Phase,
        counts: &mut PhaseCounts,
        idle: &mut Vec<ConnectionId>,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let from = std::mem::replace(&mut connection.phase, to);
        if from == to {
            return;
        }
        let (kind, lags) = (connection.budget_kind, connection.cancel_number.is_some());
        *counts.of(from) -= 1;
        *counts.of(to) += 1;
        if from == Phase::Idle {
            idle.retain(|&other| other != id);
        }
        if to == Phase::Idle {
            connection.was_idle = true;
            idle.push(id);
        }
        if from.is_closing() {
            self.use_mut(kind).closing -= 1;
            self.closing_lagging -= usize::from(lags);
        }
        if to.is_closing() {
            self.use_mut(kind).closing += 1;
            self.closing_lagging += usize::from(lags);
        }
        self.update_idle(id);
    }

    /// Adds a connection to the idle ones of its kind, or removes it.
    pub(crate) fn update_idle(&mut self, id: ConnectionId) {
        let number = self.next_number;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_idle = connection.phase == Phase::Idle && connection.in_flight.is_empty();
        let (kind, lingers_until) = (connection.budget_kind, connection.lingers_until);
        match (is_idle, connection.idle_number) {
            (true, None) => {
                connection.idle_number = Some(number);
                self.next_number += 1;
                self.use_mut(kind).idle_connections.insert(number, lingers_until, id);
            }
            (false, Some(number)) => {
                connection.idle_number = None;
                self.use_mut(kind).idle_connections.remove(number, lingers_until);
            }
            _ => {}
        }
    }

    /// Records whether the first job of a connection is whole at the server without a reply.
    pub(crate) fn set_stalled(&mut self, id: ConnectionId, stalls: bool, counts: &mut PhaseCounts) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        counts.update(connection, |connection| connection.is_stalled = stalls);
    }

    /// Records that a connection waits longer than the fast lane allows: its place there is free.
    pub(crate) fn set_lagging(&mut self, id: ConnectionId, lag: Lag, budget: &ConnectionBudget) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let has_lagged = std::mem::replace(&mut connection.has_lagged, true);
        // A cancelled connection ends, unless it waits for the reply to a whole message.
        if connection.budget_kind == BudgetKind::Slow || has_lagged && !lag.is_whole {
            return;
        }
        if connection.budget_kind == BudgetKind::Fast
            && connection.is_silent
            && lag.is_whole
            && self.silent.all < budget.silent
        {
            // There was no room when it became silent.
            self.move_to(id, BudgetKind::Silent);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.budget_kind == BudgetKind::Silent {
            let (_, number) = connection.silent_number.take().unwrap_or((false, self.next_number));
            self.next_number += 1;
            self.silent_lagging.remove(&(false, number));
            connection.silent_number = Some((lag.is_whole, number));
            self.silent_lagging.insert((lag.is_whole, number), id);
            return;
        }
        let number = connection.cancel_number.unwrap_or(self.next_number);
        self.next_number += 1;
        self.make_cancellable(id, number, lag.is_whole);
    }

    /// Counts a lagging connection in `connections_max`, with this number among those that can be cancelled.
    fn make_cancellable(&mut self, id: ConnectionId, number: u64, is_whole: bool) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.cancel_number.replace(number).is_none() {
            self.closing_lagging += usize::from(connection.phase.is_closing());
        }
        self.cancellable.remove(&number);
        let list = if is_whole { &mut self.cancellable_whole } else { &mut self.cancellable };
        list.insert(number, id);
        self.move_to(id, BudgetKind::Extra);
    }

    /// Records that the peer of a connection is silent. Its place in the fast lane is free if there is room for one
    /// more silent connection, or if one that lags can be moved back to `connections_max`.
    pub(crate) fn set_silent(&mut self, id: ConnectionId, budget: &ConnectionBudget) {
        let Some(found) = self.connections.get_mut(&id) else { return };
        found.is_silent = true;
        if found.budget_kind != BudgetKind::Fast {
            return;
        }
        if self.silent.all == budget.silent {
            let Some(((is_whole, number), late)) = self.silent_lagging.pop_first() else { return };
            self.make_cancellable(late, number, is_whole);
        }
        if self.silent.all < budget.silent {
            self.move_to(id, BudgetKind::Silent);
        }
    }

    /// Records that a job of a connection was answered. Returns whether it lagged.
    pub(crate) fn end_lag(&mut self, id: ConnectionId, budget: &ConnectionBudget) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let lagged = std::mem::take(&mut connection.has_lagged);
        if let Some(number) = connection.silent_number.take() {
            self.silent_lagging.remove(&number);
        } else if let Some(number) = connection.cancel_number.take() {
            self.cancellable.remove(&number);
            self.cancellable_whole.remove(&number);
            self.closing_lagging -= usize::from(connection.phase.is_closing());
            if self.slow.all < budget.slow {
                self.move_to(id, BudgetKind::Slow);
            }
        }
        lagged
    }

    /// Moves a connection to the fast lane, if there is a place.
    pub(crate) fn move_to_fast(&mut self, id: ConnectionId, budget: &ConnectionBudget) {
        let is_other = self.connections.get(&id).is_some_and(|found| {
            !matches!(found.budget_kind, BudgetKind::Fast | BudgetKind::Silent) && found.cancel_number.is_none()
        });
        if is_other && self.fast.all < budget.fast {
            self.move_to(id, BudgetKind::Fast);
        }
    }

    /// Moves a connection that was silent to a lane, if there is a place. A slow one may count beside its lane while
    /// `connections_max` has room.
    pub(crate) fn return_to_lane(&mut self, id: ConnectionId, lane: Lane, budget: &ConnectionBudget) {
        if self.may_open(lane, budget) {
            self.move_to(id, BudgetKind::of(lane));
        } else if lane == Lane::Slow && self.counted() < budget.all {
            self.move_to(id, BudgetKind::Extra);
        }
    }

    /// Forgets a connection that is over.
    pub(crate) fn remove(
        &mut self,
        id: ConnectionId,
        counts: &mut PhaseCounts,
        idle: &mut Vec<ConnectionId>,
    ) -> Option<Connection> {
        let mut connection = self.connections.remove(&id)?;
        *counts.of(connection.phase) -= 1;
        counts
            .update(&mut connection, |connection| (connection.is_stalled, connection.is_at_bad_host) = (false, false));
        let used = self.use_mut(connection.budget_kind);
        used.all -= 1;
        used.closing -= usize::from(connection.phase.is_closing());
        if let Some(number) = connection.idle_number {
            used.idle_connections.remove(number, connection.lingers_until);
        }
        if let Some(number) = connection.cancel_number {
            self.cancellable.remove(&number);
            self.cancellable_whole.remove(&number);
            self.closing_lagging -= usize::from(connection.phase.is_closing());
        }
        if let Some(number) = connection.silent_number {
            self.silent_lagging.remove(&number);
        }
        if connection.phase == Phase::Idle {
            idle.retain(|&other| other != id);
        }
        Some(connection)
    }

    fn move_to(&mut self, id: ConnectionId, to: BudgetKind) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let from = std::mem::replace(&mut connection.budget_kind, to);
        if let Some(number) = connection.silent_number.take_if(|_| from == BudgetKind::Silent) {
            self.silent_lagging.remove(&number);
        }
        let is_closing = usize::from(connection.phase.is_closing());
        let spare = connection.idle_number.map(|number| (number, connection.lingers_until));
        let source = self.use_mut(from);
        source.all -= 1;
        source.closing -= is_closing;
        if let Some((number, lingers_until)) = spare {
            source.idle_connections.remove(number, lingers_until);
        }
        let target = self.use_mut(to);
        target.all += 1;
        target.closing += is_closing;
        if let Some((number, lingers_until)) = spare {
            target.idle_connections.insert(number, lingers_until, id);
        }
    }

    const fn use_mut(&mut self, kind: BudgetKind) -> &mut BudgetUse {
        match kind {
            BudgetKind::Fast => &mut self.fast,
            BudgetKind::Slow => &mut self.slow,
            BudgetKind::Silent => &mut self.silent,
            BudgetKind::Extra => &mut self.extra,
        }
    }

    const fn use_of(&self, lane: Lane) -> &BudgetUse {
        match lane {
            Lane::Fast => &self.fast,
            Lane::Slow => &self.slow,
        }
    }
}
