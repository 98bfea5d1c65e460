//! Connections of all sites, and the budgets they share.
//!
//! A connection is *opening* until it is greeted, then *awake* (about to ask for work), *busy* (it got a job and will ask
//! again when it can), *idle* (it asked and got nothing; only a wake brings it back) or *closing*; one that is to close before it is
//! greeted is *dropping*. All of them count until
//! they are over, each in one *purse*: those of the fast lane, those of the slow lane, *silent* ones, which were of the
//! fast lane until their peer said nothing for a while in a transaction, and *extra* ones, which were so until they lagged. So what
//! hangs takes no place from what is fast. Silent ones have a bound of their own; all others together have one too, and beyond
//! it those that have lagged for longest are called off: first those whose peer has no whole message, which would be taken
//! twice. Those that may have one stay among the silent ones as long as there is room, and beyond that keep up to half of all places.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mail::QueueId;

use crate::chance::ById;
use crate::idle_connections::IdleConnections;
use crate::job::{ConnectionId, Job, Lag, Lane, Positions, SiteId};
use crate::ready_queue::Part;

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
    /// Of the fast lane, for sites that were quiet when they were asked before.
    pub(crate) quiet: usize,
}

impl ConnectionBudget {
    pub(crate) fn new(connections_max: usize, silent: usize) -> Self {
        let slow = (connections_max / 10).max(1);
        let fast = connections_max.saturating_sub(slow).max(1);
        Self { fast, slow, all: connections_max.max(1), silent, quiet: (fast / 2).max(1) }
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
    pub(crate) taken: u64,
    /// It was lost before, or is of a list: nothing goes behind it.
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
    pub(crate) purse: BudgetKind,
    /// What it has, in the order taken.
    pub(crate) flights: VecDeque<InFlightJob>,
    /// Jobs it was given.
    pub(crate) taken: u32,
    /// Jobs of it that were answered.
    pub(crate) served: u32,
    /// A job of it was lost.
    pub(crate) has_lost: bool,
    /// One of them may itself be why: that it was lost is not held against a site that answered others.
    pub(crate) is_excused: bool,
    /// The first of its jobs is whole and has no answer: nothing goes behind it.
    pub(crate) stalls: bool,
    /// Nothing came of it for a while, and nothing goes behind it.
    pub(crate) is_silent: bool,
    /// When it was woken, until it asks for work.
    pub(crate) woken: Option<Duration>,
    /// It was told once that there is nothing to do.
    pub(crate) idled: bool,
    /// It was opened to see whether a site is up again.
    pub(crate) probe: bool,
    /// When it was opened, by the scheduler's count of steps.
    pub(crate) opened: u64,
    /// When it was greeted: its turn begins.
    pub(crate) greeted: Duration,
    /// Its place among those that may be closed for others.
    spare: Option<u64>,
    /// And until when it is not; fixed while it has such a place.
    rests_until: Duration,
    /// It has waited for longer than the fast lane allows since its last job was answered.
    pub(crate) lagged: bool,
    /// It lags, and its host alone: its site may have another one instead.
    pub(crate) is_apart: bool,
    /// Its place among those that lag and can be called off.
    lags: Option<u64>,
    /// Its place among those that lag and are silent ones still; whether its peer may have a whole message, and when.
    stays: Option<(bool, u64)>,
}

impl Connection {
    /// Has nothing to do, and keeps its place until then; zero: it does not.
    pub(crate) const fn rests(&mut self, until: Duration) {
        if self.spare.is_none() {
            self.rests_until = until;
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
    pub(crate) apart: u32,
    /// The others of them that stall.
    pub(crate) stalling: u32,
}

impl PhaseCounts {
    /// Changes whether a connection stalls, or is apart.
    pub(crate) fn sets(&mut self, connection: &mut Connection, change: impl FnOnce(&mut Connection)) {
        let of = |one: &Connection| (u32::from(one.stalls && !one.is_apart), u32::from(one.is_apart));
        let (stalled, was_apart) = of(connection);
        change(connection);
        let (stalls, is_apart) = of(connection);
        self.stalling = self.stalling + stalls - stalled;
        self.apart = self.apart + is_apart - was_apart;
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

    pub(crate) const fn all(&self) -> u32 {
        self.live() + self.opening
    }

    /// Greeted and not over.
    pub(crate) const fn live(&self) -> u32 {
        self.staying() + self.closing
    }

    /// Greeted, and not told to close.
    pub(crate) const fn staying(&self) -> u32 {
        self.awake + self.busy + self.idle
    }
}

/// Connections of one purse.
#[derive(Debug, Default)]
struct BudgetUse {
    all: usize,
    closing: usize,
    /// Idle ones without a job in flight.
    spare: IdleConnections,
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionPool {
    connections: ById<ConnectionId, Connection>,
    fast: BudgetUse,
    slow: BudgetUse,
    silent: BudgetUse,
    extra: BudgetUse,
    /// Silent ones that lag, longest first; those whose peer may have a whole message behind all others.
    staying: BTreeMap<(bool, u64), ConnectionId>,
    /// Those that lag and were not called off, longest first; apart those whose peer may have a whole message.
    lagging: BTreeMap<u64, ConnectionId>,
    whole: BTreeMap<u64, ConnectionId>,
    /// Those of them that have got their last job: told to close, and not about to.
    stuck: usize,
    next: u64,
    next_place: u64,
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
    pub(crate) fn flights(&self) -> impl Iterator<Item = &InFlightJob> {
        self.connections.values().flat_map(|connection| &connection.flights)
    }

    pub(crate) fn count(&self, lane: Lane) -> usize {
        self.lane(lane).all
    }

    /// Connections of a lane that were told to close and are not over.
    pub(crate) fn closing(&self, lane: Lane) -> usize {
        self.lane(lane).closing
    }

    /// All of those that were told to close.
    pub(crate) fn all_closing(&self) -> usize {
        self.fast.closing + self.slow.closing + self.extra.closing
    }

    /// Those whose end can be waited for.
    pub(crate) fn all_ending(&self) -> usize {
        self.all_closing() - self.stuck
    }

    pub(crate) fn may_open(&self, lane: Lane, budget: &ConnectionBudget) -> bool {
        !self.is_full(lane, budget) && self.counted() < budget.all
    }

    /// Whether a lane has all the connections it may have.
    pub(crate) fn is_full(&self, lane: Lane, budget: &ConnectionBudget) -> bool {
        self.count(lane) >= budget.of(lane)
    }

    /// The lane in which a connection to a site of `lane` would count; `None`: there is no place. A probe that finds the fast lane
    /// full has a place of the slow lane, if there is one: what is dead is not to cost those that are alive a connection.
    pub(crate) fn place(&self, lane: Lane, is_probe: bool, budget: &ConnectionBudget) -> Option<Lane> {
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
        self.lane(lane).spare.first()
    }

    /// Some connection that is idle, of whatever purse.
    pub(crate) fn any_idle(&self) -> Option<ConnectionId> {
        [&self.extra, &self.slow, &self.fast].into_iter().find_map(|held| held.spare.first())
    }

    /// ConnectionEnds the rests of idle connections that are over.
    pub(crate) fn ripen(&mut self, now: Duration) {
        [&mut self.extra, &mut self.slow, &mut self.fast].into_iter().for_each(|held| held.spare.ripen(now));
    }

    /// When the next of them is over.
    pub(crate) fn ripens_at(&self) -> Option<Duration> {
        [&self.extra, &self.slow, &self.fast].into_iter().filter_map(|held| held.spare.ripens_at()).min()
    }

    /// Takes the one that has lagged for longest off the list of those that lag. One whose peer may have a whole message only
    /// if those have more than half of `all` places.
    pub(crate) fn call_off(&mut self, all: usize) -> Option<ConnectionId> {
        let is_too_many = self.whole.len() > (all / 2).max(1);
        let (_, id) = match self.lagging.pop_first() {
            None if is_too_many => self.whole.pop_first(),
            found => found,
        }?;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.lags = None;
            self.stuck -= usize::from(connection.phase.is_closing());
        }
        Some(id)
    }

    pub(crate) fn open(
        &mut self,
        site: SiteId,
        counts: &mut PhaseCounts,
        place: Lane,
        probe: bool,
        opened: u64,
    ) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        counts.opening += 1;
        let purse = BudgetKind::of(place);
        self.held(purse).all += 1;
        let connection = Connection {
            site,
            phase: Phase::Opening,
            purse,
            flights: VecDeque::new(),
            taken: 0,
            served: 0,
            has_lost: false,
            is_excused: false,
            stalls: false,
            is_silent: false,
            woken: None,
            idled: false,
            probe,
            opened,
            greeted: Duration::ZERO,
            spare: None,
            rests_until: Duration::ZERO,
            lagged: false,
            is_apart: false,
            lags: None,
            stays: None,
        };
        self.connections.insert(id, connection);
        id
    }

    /// Brings a connection into another phase. `idle` is its site's stack of idle ones.
    pub(crate) fn turn(&mut self, id: ConnectionId, to: Phase, counts: &mut PhaseCounts, idle: &mut Vec<ConnectionId>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let from = std::mem::replace(&mut connection.phase, to);
        if from == to {
            return;
        }
        let (purse, lags) = (connection.purse, connection.lags.is_some());
        *counts.of(from) -= 1;
        *counts.of(to) += 1;
        if from == Phase::Idle {
            idle.retain(|&other| other != id);
        }
        if to == Phase::Idle {
            connection.idled = true;
            idle.push(id);
        }
        if from.is_closing() {
            self.held(purse).closing -= 1;
            self.stuck -= usize::from(lags);
        }
        if to.is_closing() {
            self.held(purse).closing += 1;
            self.stuck += usize::from(lags);
        }
        self.judge_spare(id);
    }

    /// Puts a connection among those that may be closed for others, or takes it out.
    pub(crate) fn judge_spare(&mut self, id: ConnectionId) {
        let place = self.next_place;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_spare = connection.phase == Phase::Idle && connection.flights.is_empty();
        let (purse, rests_until) = (connection.purse, connection.rests_until);
        match (is_spare, connection.spare) {
            (true, None) => {
                connection.spare = Some(place);
                self.next_place += 1;
                self.held(purse).spare.insert(place, rests_until, id);
            }
            (false, Some(place)) => {
                connection.spare = None;
                self.held(purse).spare.remove(place, rests_until);
            }
            _ => {}
        }
    }

    /// The first job of a connection has been whole for a while and has no answer, or has one now.
    pub(crate) fn stall(&mut self, id: ConnectionId, stalls: bool, counts: &mut PhaseCounts) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        counts.sets(connection, |connection| connection.stalls = stalls);
    }

    /// A connection waits for longer than the fast lane allows: its place there is free.
    pub(crate) fn lag(&mut self, id: ConnectionId, lag: Lag, budget: &ConnectionBudget) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let has_lagged = std::mem::replace(&mut connection.lagged, true);
        // One that was called off ends, unless it is the answer to a whole message that it waits for.
        if connection.purse == BudgetKind::Slow || has_lagged && !lag.is_whole {
            return;
        }
        if connection.purse == BudgetKind::Fast
            && connection.is_silent
            && lag.is_whole
            && self.silent.all < budget.silent
        {
            // There was no room when it fell silent.
            self.shift(id, BudgetKind::Silent);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.purse == BudgetKind::Silent {
            let (_, place) = connection.stays.take().unwrap_or((false, self.next_place));
            self.next_place += 1;
            self.staying.remove(&(false, place));
            connection.stays = Some((lag.is_whole, place));
            self.staying.insert((lag.is_whole, place), id);
            return;
        }
        let place = connection.lags.unwrap_or(self.next_place);
        self.next_place += 1;
        self.can_be_called_off(id, place, lag.is_whole);
    }

    /// One that lags counts among all, at this place among those that can be called off.
    fn can_be_called_off(&mut self, id: ConnectionId, place: u64, is_whole: bool) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.lags.replace(place).is_none() {
            self.stuck += usize::from(connection.phase.is_closing());
        }
        self.lagging.remove(&place);
        let list = if is_whole { &mut self.whole } else { &mut self.lagging };
        list.insert(place, id);
        self.shift(id, BudgetKind::Extra);
    }

    /// The peer of a connection says nothing: its place in the fast lane is free, if there is room for one more of those, or one
    /// that lags gives way, which counts among all again.
    pub(crate) fn falls_silent(&mut self, id: ConnectionId, budget: &ConnectionBudget) {
        let Some(found) = self.connections.get_mut(&id) else { return };
        found.is_silent = true;
        if found.purse != BudgetKind::Fast {
            return;
        }
        if self.silent.all == budget.silent {
            let Some(((is_whole, place), late)) = self.staying.pop_first() else { return };
            self.can_be_called_off(late, place, is_whole);
        }
        if self.silent.all < budget.silent {
            self.shift(id, BudgetKind::Silent);
        }
    }

    /// A job of a connection was answered. Says whether it lagged; now it does not.
    pub(crate) fn recover(&mut self, id: ConnectionId, budget: &ConnectionBudget) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let lagged = std::mem::take(&mut connection.lagged);
        if let Some(place) = connection.stays.take() {
            self.staying.remove(&place);
        } else if let Some(place) = connection.lags.take() {
            self.lagging.remove(&place);
            self.whole.remove(&place);
            self.stuck -= usize::from(connection.phase.is_closing());
            if self.slow.all < budget.slow {
                self.shift(id, BudgetKind::Slow);
            }
        }
        lagged
    }

    /// PhaseCounts a connection in the fast lane, if there is a place.
    pub(crate) fn hurry(&mut self, id: ConnectionId, budget: &ConnectionBudget) {
        let is_other = self
            .connections
            .get(&id)
            .is_some_and(|found| !matches!(found.purse, BudgetKind::Fast | BudgetKind::Silent) && found.lags.is_none());
        if is_other && self.fast.all < budget.fast {
            self.shift(id, BudgetKind::Fast);
        }
    }

    /// A connection that was silent is of a lane again, if that has a place; one that is slow may be beside its lane while others need
    /// none of all places.
    pub(crate) fn returns(&mut self, id: ConnectionId, lane: Lane, budget: &ConnectionBudget) {
        if self.may_open(lane, budget) {
            self.shift(id, BudgetKind::of(lane));
        } else if lane == Lane::Slow && self.counted() < budget.all {
            self.shift(id, BudgetKind::Extra);
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
        counts.sets(&mut connection, |connection| (connection.stalls, connection.is_apart) = (false, false));
        let held = self.held(connection.purse);
        held.all -= 1;
        held.closing -= usize::from(connection.phase.is_closing());
        if let Some(place) = connection.spare {
            held.spare.remove(place, connection.rests_until);
        }
        if let Some(place) = connection.lags {
            self.lagging.remove(&place);
            self.whole.remove(&place);
            self.stuck -= usize::from(connection.phase.is_closing());
        }
        if let Some(place) = connection.stays {
            self.staying.remove(&place);
        }
        if connection.phase == Phase::Idle {
            idle.retain(|&other| other != id);
        }
        Some(connection)
    }

    fn shift(&mut self, id: ConnectionId, to: BudgetKind) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let from = std::mem::replace(&mut connection.purse, to);
        if let Some(place) = connection.stays.take_if(|_| from == BudgetKind::Silent) {
            self.staying.remove(&place);
        }
        let is_closing = usize::from(connection.phase.is_closing());
        let spare = connection.spare.map(|place| (place, connection.rests_until));
        let before = self.held(from);
        before.all -= 1;
        before.closing -= is_closing;
        if let Some((place, rests_until)) = spare {
            before.spare.remove(place, rests_until);
        }
        let after = self.held(to);
        after.all += 1;
        after.closing += is_closing;
        if let Some((place, rests_until)) = spare {
            after.spare.insert(place, rests_until, id);
        }
    }

    const fn held(&mut self, purse: BudgetKind) -> &mut BudgetUse {
        match purse {
            BudgetKind::Fast => &mut self.fast,
            BudgetKind::Slow => &mut self.slow,
            BudgetKind::Silent => &mut self.silent,
            BudgetKind::Extra => &mut self.extra,
        }
    }

    const fn lane(&self, lane: Lane) -> &BudgetUse {
        match lane {
            Lane::Fast => &self.fast,
            Lane::Slow => &self.slow,
        }
    }
}
