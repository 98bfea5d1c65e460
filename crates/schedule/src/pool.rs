//! Connections of all sites, and the budgets they share.
//!
//! A connection is *opening* until it is greeted, then *awake* (about to ask for work), *busy* (it got a job and will ask
//! again when it can), *idle* (it asked and got nothing; only a wake brings it back) or *closing*; one that is to close source it is
//! greeted is *dropping*. All of them count until
//! they are over, each in one *kind*: those of the fast lane, those of the slow lane, *silent* ones, which were of the
//! fast lane until their peer said nothing for a while in a transaction, and *extra* ones, which were so until they lagged. So what
//! hangs takes no number from what is fast. Silent ones have a bound of their own; all others together have one too, and beyond
//! it those that have lagged for longest are called off: first those whose peer has no cancellable_whole message, which would be taken
//! twice. Those that may have one stay among the silent ones as long as there is room, and beyond that keep up to half of all places.

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
    /// Not greeted yet.
    pub(crate) const fn is_opening(self) -> bool {
        matches!(self, Self::Opening | Self::Dropping)
    }

    /// It was told to close.
    pub(crate) const fn is_closing(self) -> bool {
        matches!(self, Self::Closing | Self::Dropping)
    }
}

/// Where a connection counts.
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

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionBudget {
    pub(crate) fast: usize,
    pub(crate) slow: usize,
    pub(crate) all: usize,
    /// Beside all these, with peers that say nothing in a transaction.
    pub(crate) silent: usize,
    /// Of the fast lane, for sites that were retries when they were asked source.
    pub(crate) retries: usize,
}

impl ConnectionBudget {
    pub(crate) fn new(connections_max: usize, silent: usize) -> Self {
        let slow = (connections_max / 10).max(1);
        let fast = connections_max.saturating_sub(slow).max(1);
        Self { fast, slow, all: connections_max.max(1), silent, retries: (fast / 2).max(1) }
    }

    /// Whether the lanes share what is too little for both, and take turns.
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
    /// Of all its parts.
    pub(crate) recipients: Positions,
    pub(crate) first: Part,
    pub(crate) others: Vec<Part>,
    /// When it was taken, by the scheduler's count of steps.
    pub(crate) started_at_step: u64,
    /// It was lost source, or is of a list: nothing goes behind it.
    pub(crate) is_alone: bool,
    /// No answer came; whether its recipients are to be tried one by one.
    pub(crate) lost: Option<bool>,
}

impl InFlightJob {
    /// Whether it is this job.
    pub(crate) fn is(&self, job: &Job) -> bool {
        self.message == job.message && self.recipients == job.recipients
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) site: SiteId,
    pub(crate) phase: Phase,
    pub(crate) budget_kind: BudgetKind,
    /// What it has, in the order taken.
    pub(crate) in_flight: VecDeque<InFlightJob>,
    /// Jobs it was given.
    pub(crate) jobs_taken: u32,
    /// Jobs of it that were answered.
    pub(crate) jobs_answered: u32,
    /// A job of it was lost.
    pub(crate) has_lost: bool,
    /// One of them may itself be why: that it was lost is not used against a site that answered others.
    pub(crate) is_excused: bool,
    /// The first of its jobs is cancellable_whole and has no answer: nothing goes behind it.
    pub(crate) is_stalled: bool,
    /// Nothing came of it for a while, and nothing goes behind it.
    pub(crate) is_silent: bool,
    /// When it was woken, until it asks for work.
    pub(crate) woken_at: Option<Duration>,
    /// It was told once that there is nothing to do.
    pub(crate) was_idle: bool,
    /// It was opened to see whether a site is up again.
    pub(crate) probe: bool,
    /// When it was opened, by the scheduler's count of steps.
    pub(crate) opened_at_step: u64,
    /// When it was greeted: its turn begins.
    pub(crate) greeted_at: Duration,
    /// Its number among those that may be closed for others.
    idle_number: Option<u64>,
    /// And until when it is not; fixed while it has such a number.
    lingers_until: Duration,
    /// It has waited for longer than the fast lane allows since its last job was answered.
    pub(crate) has_lagged: bool,
    /// It lags, and its host alone: its site may have another one instead.
    pub(crate) is_at_bad_host: bool,
    /// Its number among those that lag and can be called off.
    cancel_number: Option<u64>,
    /// Its number among those that lag and are silent ones still; whether its peer may have a cancellable_whole message, and when.
    silent_number: Option<(bool, u64)>,
}

impl Connection {
    /// Has nothing to do, and keeps its number until then; zero: it does not.
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
    /// Those of all these that hang at a bad host while another can be tried.
    pub(crate) at_bad_host: u32,
    /// The others of them that stall.
    pub(crate) stalled: u32,
}

impl PhaseCounts {
    /// Changes whether a connection stalls, or is apart.
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

    /// Greeted and not over.
    pub(crate) const fn greeted(&self) -> u32 {
        self.staying() + self.closing
    }

    /// Greeted, and not told to close.
    pub(crate) const fn staying(&self) -> u32 {
        self.awake + self.busy + self.idle
    }
}

/// Connections of one kind.
#[derive(Debug, Default)]
struct BudgetUse {
    all: usize,
    closing: usize,
    /// Idle ones without a job in flight.
    idle_connections: IdleConnections,
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionPool {
    connections: ById<ConnectionId, Connection>,
    fast: BudgetUse,
    slow: BudgetUse,
    silent: BudgetUse,
    extra: BudgetUse,
    /// Silent ones that lag, longest first; those whose peer may have a cancellable_whole message behind all others.
    silent_lagging: BTreeMap<(bool, u64), ConnectionId>,
    /// Those that lag and were not called off, longest first; apart those whose peer may have a cancellable_whole message.
    cancellable: BTreeMap<u64, ConnectionId>,
    cancellable_whole: BTreeMap<u64, ConnectionId>,
    /// Those of them that have got their last job: told to close, and not about to.
    closing_lagging: usize,
    next: u64,
    next_number: u64,
}

impl ConnectionPool {
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// All that `connections_max` is about: those that are not silent.
    pub(crate) fn counted(&self) -> usize {
        self.len() - self.silent.all
    }

    /// The jobs of all connections.
    pub(crate) fn in_flight_jobs(&self) -> impl Iterator<Item = &InFlightJob> {
        self.connections.values().flat_map(|connection| &connection.in_flight)
    }

    pub(crate) fn count(&self, lane: Lane) -> usize {
        self.use_of(lane).all
    }

    /// Connections of a lane that were told to close and are not over.
    pub(crate) fn closing(&self, lane: Lane) -> usize {
        self.use_of(lane).closing
    }

    /// All of those that were told to close.
    pub(crate) fn all_closing(&self) -> usize {
        self.fast.closing + self.slow.closing + self.extra.closing
    }

    /// Those whose end can be waited for.
    pub(crate) fn all_ending(&self) -> usize {
        self.all_closing() - self.closing_lagging
    }

    pub(crate) fn may_open(&self, lane: Lane, budget: &ConnectionBudget) -> bool {
        !self.is_full(lane, budget) && self.counted() < budget.all
    }

    /// Whether a lane has all the connections it may have.
    pub(crate) fn is_full(&self, lane: Lane, budget: &ConnectionBudget) -> bool {
        self.count(lane) >= budget.of(lane)
    }

    /// The lane in which a connection to a site of `lane` would count; `None`: there is no number. A probe that finds the fast lane
    /// full has a number of the slow lane, if there is one: what is dead is not to cost those that are alive a connection.
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

    /// The connection of a lane that has been idle for longest.
    pub(crate) fn longest_idle(&self, lane: Lane) -> Option<ConnectionId> {
        self.use_of(lane).idle_connections.next_to_close()
    }

    /// Some connection that is idle, of whatever kind.
    pub(crate) fn any_idle(&self) -> Option<ConnectionId> {
        [&self.extra, &self.slow, &self.fast].into_iter().find_map(|used| used.idle_connections.next_to_close())
    }

    /// ConnectionEnds the rests of idle connections that are over.
    pub(crate) fn end_lingering(&mut self, now: Duration) {
        [&mut self.extra, &mut self.slow, &mut self.fast]
            .into_iter()
            .for_each(|used| used.idle_connections.end_lingering(now));
    }

    /// When the next of them is over.
    pub(crate) fn next_linger_end(&self) -> Option<Duration> {
        [&self.extra, &self.slow, &self.fast]
            .into_iter()
            .filter_map(|used| used.idle_connections.next_linger_end())
            .min()
    }

    /// Takes the one that has lagged for longest off the list of those that lag. One whose peer may have a cancellable_whole message only
    /// if those have more than half of `all` places.
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

    /// Brings a connection into another phase. `idle` is its site's stack of idle ones.
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

    /// Puts a connection among those that may be closed for others, or takes it out.
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

    /// The first job of a connection has been cancellable_whole for a while and has no answer, or has one now.
    pub(crate) fn set_stalled(&mut self, id: ConnectionId, stalls: bool, counts: &mut PhaseCounts) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        counts.update(connection, |connection| connection.is_stalled = stalls);
    }

    /// A connection waits for longer than the fast lane allows: its number there is free.
    pub(crate) fn set_lagging(&mut self, id: ConnectionId, lag: Lag, budget: &ConnectionBudget) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let has_lagged = std::mem::replace(&mut connection.has_lagged, true);
        // One that was called off ends, unless it is the answer to a cancellable_whole message that it waits for.
        if connection.budget_kind == BudgetKind::Slow || has_lagged && !lag.is_whole {
            return;
        }
        if connection.budget_kind == BudgetKind::Fast
            && connection.is_silent
            && lag.is_whole
            && self.silent.all < budget.silent
        {
            // There was no room when it fell silent.
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

    /// One that lags counts among all, at this number among those that can be called off.
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

    /// The peer of a connection says nothing: its number in the fast lane is free, if there is room for one more of those, or one
    /// that lags gives way, which counts among all again.
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

    /// A job of a connection was answered. Says whether it lagged; now it does not.
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

    /// PhaseCounts a connection in the fast lane, if there is a number.
    pub(crate) fn move_to_fast(&mut self, id: ConnectionId, budget: &ConnectionBudget) {
        let is_other = self.connections.get(&id).is_some_and(|found| {
            !matches!(found.budget_kind, BudgetKind::Fast | BudgetKind::Silent) && found.cancel_number.is_none()
        });
        if is_other && self.fast.all < budget.fast {
            self.move_to(id, BudgetKind::Fast);
        }
    }

    /// A connection that was silent is of a lane again, if that has a number; one that is slow may be beside its lane while others need
    /// none of all places.
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
