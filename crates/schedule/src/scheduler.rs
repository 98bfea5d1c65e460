//! The calls: what happened goes in, what to do comes out.
//!
//! Each call changes one destination and marks it; [`Scheduler::poll`] looks at marked ones in turn until none of them
//! wants anything. Whoever wants a connection that the budget does not have stands in line for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mail::QueueId;

use crate::chance::{ById, Chance};
use crate::destination::Destination;
use crate::job::{
    Action, Added, Class, ConnectionId, DestinationId, Failure, Feedback, Job, Lane, Place, Positions, SiteId, Take,
    Waiting,
};
use crate::pool::{Flight, Phase, Pool};
use crate::settings::Settings;
use crate::view::{SiteView, View};

/// Decides which message goes to which connection, and when.
///
/// The driver's duties:
/// - After every call that changes something, call [`poll`](Self::poll) until it gives `None`, and again when
///   [`wake_at`](Self::wake_at) has come.
/// - Record in the spool what became of a job *before* [`done`](Self::done) is called, so that no walk finds the old
///   state.
/// - Before a job is tried, drop those of its recipients that the spool no longer has as waiting: an operator may have
///   held or deleted them meanwhile, or a walk may have delivered a message before [`add`](Self::add) told of it.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    pool: Pool,
    destinations: ById<DestinationId, Destination>,
    names: BTreeMap<Arc<[u8]>, DestinationId>,
    /// Destinations to be looked at by `poll`.
    dirty: VecDeque<DestinationId>,
    /// Destinations that want their first connection when the budget has one; they come first.
    hungry: VecDeque<DestinationId>,
    /// Destinations that want one connection more.
    greedy: VecDeque<DestinationId>,
    timers: BTreeSet<(Duration, DestinationId)>,
    actions: VecDeque<Action>,
    chance: Chance,
    next_destination: u64,
    /// Counts what may change a window: openings, takings and cuts. Says what was before what.
    step: u64,
}

impl Scheduler {
    /// Makes a scheduler that knows of nothing. The `seed` scatters its waits.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            pool: Pool::default(),
            destinations: ById::default(),
            names: BTreeMap::new(),
            dirty: VecDeque::new(),
            hungry: VecDeque::new(),
            greedy: VecDeque::new(),
            timers: BTreeSet::new(),
            actions: VecDeque::new(),
            chance: Chance::new(seed),
            next_destination: 0,
            step: 0,
        }
    }

    /// Puts other limits in force. Connections above them end as they ask for work; lists are looked through again.
    ///
    /// If fresh mail no longer waits, call [`restore`](Self::restore) for the destinations of the spool: one whose mail
    /// all waited for a person is not known here.
    pub fn set(&mut self, settings: Settings, now: Duration) {
        self.settings = settings;
        let all: Vec<DestinationId> = self.names.values().copied().collect();
        for id in all {
            if let Some(destination) = self.destinations.get_mut(&id) {
                destination.more = true;
                destination.look_by(now);
                mark(&mut self.dirty, id, destination);
            }
        }
    }

    /// Takes a fresh message that was committed just now.
    pub fn add(&mut self, destination: &[u8], job: Job, _class: Class, now: Duration) -> Added {
        if self.settings.fresh_waits {
            return Added::Waits;
        }
        let id = self.intern(destination);
        let Some(destination) = self.destinations.get_mut(&id) else { return Added::Waits };
        mark(&mut self.dirty, id, destination);
        destination.add(job, &self.settings, now)
    }

    /// Says that the spool has recipients for a destination, as at the start.
    pub fn restore(&mut self, destination: &[u8], _now: Duration) {
        let id = self.intern(destination);
        if let Some(destination) = self.destinations.get_mut(&id) {
            destination.more = true;
            mark(&mut self.dirty, id, destination);
        }
    }

    /// Gives the next thing to do; `None` when there is nothing until something happens or [`wake_at`](Self::wake_at).
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            self.fire(now);
            self.feed_one();
            if let Some(close) = self.make_room() {
                return Some(close);
            }
            let id = self.dirty.pop_front()?;
            let Some(destination) = self.destinations.get_mut(&id) else { continue };
            destination.is_dirty = false;
            if let Some(action) = self.serve(id, now) {
                // To the end of the line: others are served before it opens a second connection.
                if let Some(destination) = self.destinations.get_mut(&id) {
                    mark(&mut self.dirty, id, destination);
                }
                return Some(action);
            }
            self.rest(id, now);
        }
    }

    /// When to call [`poll`](Self::poll) although nothing happened.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// The name of a destination; `None` once it is forgotten. One with connections or an unanswered action is known.
    #[must_use]
    pub fn name(&self, destination: DestinationId) -> Option<&Arc<[u8]>> {
        self.destinations.get(&destination).map(|destination| &destination.name)
    }

    /// Answers [`Action::Resolve`]: where the mail of a destination goes. May also be called unasked, to move it.
    ///
    /// Returns the jobs that left memory because that site is down, to be logged as deferred.
    #[must_use]
    pub fn placed(&mut self, _destination: DestinationId, _place: &Place<'_>, _now: Duration) -> Vec<Job> {
        Vec::new()
    }

    /// Answers [`Action::Resolve`]: the hosts of a destination cannot be known for now. It is asked again after a back-off.
    ///
    /// Returns the jobs that left memory, to be logged as deferred; what the spool says of them stands.
    #[must_use]
    pub fn unplaced(&mut self, _destination: DestinationId, _why: &str, _now: Duration) -> Vec<Job> {
        Vec::new()
    }

    /// Says that the hosts of a site are not what its key says any more. Ends the connection without blame, takes its
    /// jobs back, and asks for all that waits there where it goes.
    pub fn misplaced(&mut self, _connection: ConnectionId, _now: Duration) {}

    /// Says that a connection waits for a reply longer than the fast lane allows: its site goes to the slow lane, and
    /// its place in the fast budget is free. It may get [`Action::Close`] although it is busy.
    pub fn lagging(&mut self, _connection: ConnectionId, _now: Duration) {}

    /// Some destination of a site, to look up its hosts: one with work, if there is one. Known while the site is.
    #[must_use]
    pub fn a_destination(&self, site: SiteId) -> Option<&Arc<[u8]>> {
        self.name(DestinationId(site.0))
    }

    /// The key of a site; `None` once it is forgotten. One with connections is known.
    #[must_use]
    pub fn site_name(&self, site: SiteId) -> Option<&Arc<[u8]>> {
        self.name(DestinationId(site.0))
    }

    /// All sites in the order of their names.
    pub fn sites(&self) -> impl Iterator<Item = SiteView> + '_ {
        std::iter::empty()
    }

    /// Answers [`Action::Load`]: entries in the order of the list; `is_end` when there are none behind them.
    pub fn loaded(&mut self, destination: DestinationId, entries: &[Waiting], is_end: bool, now: Duration) {
        let id = destination;
        if let Some(destination) = self.destinations.get_mut(&id) {
            destination.page(id, entries, is_end, &self.settings, now, &mut self.actions);
            mark(&mut self.dirty, id, destination);
        }
    }

    /// Answers [`Action::Overdue`]: the sender was told and the spool knows it; or neither, and it will be tried again.
    /// The list is looked at again at the time `again`: now, or later when it could not be told.
    pub fn settled(&mut self, destination: DestinationId, message: QueueId, recipients: &Positions, again: Duration) {
        let id = destination;
        if let Some(destination) = self.destinations.get_mut(&id) {
            if destination.active.has_any(message, recipients) {
                destination.release(message, recipients);
                destination.overdue = destination.overdue.saturating_sub(1);
                destination.look_by(again);
            }
            mark(&mut self.dirty, id, destination);
        }
    }

    /// Says that a connection was greeted and can take work: the destination is alive.
    pub fn ready(&mut self, connection: ConnectionId, _now: Duration) {
        let Some(found) = self.pool.get_mut(connection) else { return };
        let (id, phase) = (found.destination, found.phase);
        if let Some(destination) = self.destinations.get_mut(&id) {
            if phase == Phase::Opening {
                self.pool.turn(connection, Phase::Awake, &mut destination.counts, &mut destination.idle);
            }
            destination.revive();
            mark(&mut self.dirty, id, destination);
        }
    }

    /// Gives a connection its next job. May be called while earlier ones are in flight.
    pub fn take(&mut self, connection: ConnectionId, now: Duration) -> Take {
        if self.pool.get_mut(connection).is_some_and(|found| found.phase == Phase::Opening) {
            self.ready(connection, now);
        }
        let must_close = self.must_close(connection);
        let Some(found) = self.pool.get_mut(connection) else { return Take::Close };
        let id = found.destination;
        let Some(destination) = self.destinations.get_mut(&id) else { return Take::Close };
        mark(&mut self.dirty, id, destination);
        let phase = if must_close {
            Phase::Closing
        } else if destination.ready.is_empty() {
            Phase::Idle
        } else {
            Phase::Busy
        };
        let answer = match phase {
            Phase::Busy => destination.ready.pop_front().map(|ready| {
                self.step += 1;
                found.taken += 1;
                destination.in_flight += 1;
                let job = Job {
                    message: ready.message,
                    recipients: ready.recipients,
                    probe: found.probe && found.taken == 1,
                };
                let recipients = job.recipients.clone();
                found.flights.push_back(Flight {
                    message: job.message,
                    recipients,
                    warned: ready.warned,
                    taken: self.step,
                });
                Take::Job(job)
            }),
            Phase::Idle => Some(Take::Idle),
            Phase::Opening | Phase::Awake | Phase::Closing => None,
        };
        self.pool.turn(connection, phase, &mut destination.counts, &mut destination.idle);
        answer.unwrap_or(Take::Close)
    }

    /// Says that a job is over and recorded; `retry`: when the first recipient that was deferred is due.
    ///
    pub fn done(
        &mut self,
        connection: ConnectionId,
        job: &Job,
        feedback: Feedback,
        retry: Option<Duration>,
        _now: Duration,
    ) {
        let Some(found) = self.pool.get_mut(connection) else { return };
        let is_it = |flight: &Flight| flight.message == job.message && flight.recipients == job.recipients;
        let Some(at) = found.flights.iter().position(is_it) else { return };
        let Some(flight) = found.flights.remove(at) else { return };
        found.served = true;
        let id = found.destination;
        self.step += 1;
        if let Some(destination) = self.destinations.get_mut(&id) {
            destination.finished(&flight, feedback, retry, self.step, &self.settings);
            mark(&mut self.dirty, id, destination);
        }
        self.pool.judge_spare(connection);
    }

    /// Puts a job that was not tried back, first in line.
    pub fn give_back(&mut self, connection: ConnectionId, job: &Job, _now: Duration) {
        let Some(found) = self.pool.get_mut(connection) else { return };
        let is_it = |flight: &Flight| flight.message == job.message && flight.recipients == job.recipients;
        let Some(at) = found.flights.iter().position(is_it) else { return };
        let Some(flight) = found.flights.remove(at) else { return };
        let id = found.destination;
        if let Some(destination) = self.destinations.get_mut(&id) {
            destination.take_back(flight);
            mark(&mut self.dirty, id, destination);
        }
        self.pool.judge_spare(connection);
    }

    /// Says that no connection came about, or that it was refused at the greeting or the hello. Ends the connection.
    ///
    /// Returns the jobs that left memory because the destination is down now, to be logged as deferred; what the spool
    /// says of them stands. While other connections of the destination live it is not down, and nothing is returned.
    #[must_use]
    pub fn unreachable(&mut self, connection: ConnectionId, _failure: Failure, why: &str, now: Duration) -> Vec<Job> {
        self.end(connection, Some(why), now)
    }

    /// Says that a connection is over. Its jobs that are not done are taken as given back.
    ///
    /// A connection that ended without a job done, and not because it was told to or had none, counts as a failure; so
    /// this returns what [`unreachable`](Self::unreachable) returns.
    #[must_use]
    pub fn closed(&mut self, connection: ConnectionId, now: Duration) -> Vec<Job> {
        self.end(connection, None, now)
    }

    /// Forgets the back-off of a destination, or of all that are known, and looks through its list.
    ///
    /// Due times stand: to have a recipient tried before its time, record an earlier one in the spool first.
    pub fn retry_now(&mut self, destination: Option<&[u8]>, now: Duration) {
        let ids: Vec<DestinationId> = match destination {
            Some(name) => vec![self.intern(name)],
            None => self.names.values().copied().collect(),
        };
        for id in ids {
            if let Some(destination) = self.destinations.get_mut(&id) {
                destination.retry_now(now);
                mark(&mut self.dirty, id, destination);
            }
        }
    }

    /// One destination; `None` when nothing is known of it.
    #[must_use]
    pub fn state(&self, destination: &[u8]) -> Option<View> {
        let id = self.names.get(destination)?;
        self.destinations.get(id).map(|destination| destination.view(&self.settings))
    }

    /// All destinations in the order of their names.
    pub fn views(&self) -> impl Iterator<Item = View> + '_ {
        self.names.values().filter_map(|id| self.destinations.get(id)).map(|found| found.view(&self.settings))
    }

    /// Connections of all destinations, opening and closing ones included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pool.len()
    }

    /// Whether a recipient of a destination is in memory, in flight, or overdue and not settled.
    #[must_use]
    pub fn is_active(&self, destination: &[u8], message: QueueId, recipient: u32) -> bool {
        let found = self.names.get(destination).and_then(|id| self.destinations.get(id));
        found.is_some_and(|destination| destination.active.contains(message, recipient))
    }

    /// Whether a connection has a job with this recipient. Looks at all connections: for people who ask.
    #[must_use]
    pub fn is_in_flight(&self, message: QueueId, recipient: u32) -> bool {
        self.pool.flights().any(|flight| flight.message == message && flight.recipients.contains(recipient))
    }

    fn intern(&mut self, name: &[u8]) -> DestinationId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = DestinationId(self.next_destination);
        self.next_destination += 1;
        let name: Arc<[u8]> = name.into();
        self.names.insert(Arc::clone(&name), id);
        self.destinations.insert(id, Destination::new(name, &self.settings));
        id
    }

    /// Marks the destinations whose time has come.
    fn fire(&mut self, now: Duration) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            if let Some(destination) = self.destinations.get_mut(&id) {
                destination.timer = None;
                mark(&mut self.dirty, id, destination);
            }
        }
    }

    /// If the budget has a connection, lets the first in line look whether it still wants one.
    fn feed_one(&mut self) {
        if self.pool.len() >= self.settings.connections_max.max(1) {
            return;
        }
        let is_first = !self.hungry.is_empty();
        let line = if is_first { &mut self.hungry } else { &mut self.greedy };
        let Some(id) = line.pop_front() else { return };
        if let Some(destination) = self.destinations.get_mut(&id) {
            *if is_first { &mut destination.is_hungry } else { &mut destination.is_greedy } = false;
            if !destination.is_dirty {
                destination.is_dirty = true;
                self.dirty.push_front(id);
            }
        }
    }

    /// How many wait for the budget.
    fn in_line(&self) -> usize {
        self.hungry.len() + self.greedy.len()
    }

    /// Closes an idle connection if its place is needed.
    fn make_room(&mut self) -> Option<Action> {
        let (all, most) = (self.pool.len(), self.settings.connections_max.max(1));
        if self.pool.closing() + most >= self.in_line() + all {
            return None;
        }
        let connection = self.pool.longest_idle()?;
        let id = self.pool.get_mut(connection)?.destination;
        let destination = self.destinations.get_mut(&id)?;
        self.pool.turn(connection, Phase::Closing, &mut destination.counts, &mut destination.idle);
        Some(Action::Close(connection))
    }

    /// Gives what a marked destination wants.
    fn serve(&mut self, id: DestinationId, now: Duration) -> Option<Action> {
        let destination = self.destinations.get_mut(&id)?;
        if let Some((after, limit)) = destination.next_page(&self.settings, now) {
            return Some(Action::Load { destination: id, after, limit });
        }
        if destination.ready.len() > destination.coming()
            && let Some(&connection) = destination.idle.last()
        {
            self.pool.turn(connection, Phase::Awake, &mut destination.counts, &mut destination.idle);
            return Some(Action::Wake(connection));
        }
        if !destination.wants_connection(&self.settings, now) {
            return None;
        }
        if self.pool.len() < self.settings.connections_max.max(1) {
            self.step += 1;
            let is_probe = destination.down.is_some();
            let connection = self.pool.open(id, &mut destination.counts, is_probe, self.step);
            return Some(Action::Open { site: SiteId(id.0), connection, lane: Lane::Fast });
        }
        let (line, stands) = if destination.open() == 0 {
            (&mut self.hungry, &mut destination.is_hungry)
        } else {
            (&mut self.greedy, &mut destination.is_greedy)
        };
        if !std::mem::replace(stands, true) {
            line.push_back(id);
        }
        self.make_room()
    }

    /// Forgets a destination that wants nothing and has nothing, or sets its timer.
    fn rest(&mut self, id: DestinationId, now: Duration) {
        let Some(destination) = self.destinations.get_mut(&id) else { return };
        let next = if destination.is_empty() { None } else { destination.next_event(&self.settings, now) };
        if next != destination.timer {
            if let Some(before) = destination.timer {
                self.timers.remove(&(before, id));
            }
            if let Some(at) = next {
                debug_assert!(at > now, "what is due was done");
                self.timers.insert((at, id));
            }
            destination.timer = next;
        }
        if destination.is_empty() {
            self.names.remove(&destination.name);
            self.destinations.remove(&id);
        }
    }

    /// Whether a connection that asks for work is to end instead.
    fn must_close(&mut self, connection: ConnectionId) -> bool {
        let (all, closing, in_line) = (self.pool.len(), self.pool.closing(), self.in_line());
        let nobody_idle = self.pool.longest_idle().is_none();
        let Some(found) = self.pool.get_mut(connection) else { return true };
        let Some(destination) = self.destinations.get(&found.destination) else { return true };
        // Who has two connections more than the first in line gives one up.
        let first = self.hungry.front().or_else(|| self.greedy.front()).and_then(|first| self.destinations.get(first));
        let gives_way = nobody_idle
            && in_line > closing
            && all >= self.settings.connections_max.max(1)
            && first.is_some_and(|first| destination.open() >= 2 + first.open());
        found.phase == Phase::Closing
            || found.taken >= 1_000
            || destination.counts.staying() > destination.window(&self.settings)
            || all - closing > self.settings.connections_max.max(1)
            || gives_way
    }

    /// Ends a connection, takes its jobs back, and judges it.
    fn end(&mut self, connection: ConnectionId, refused: Option<&str>, now: Duration) -> Vec<Job> {
        let Some(id) = self.pool.get_mut(connection).map(|found| found.destination) else { return Vec::new() };
        let Some(destination) = self.destinations.get_mut(&id) else { return Vec::new() };
        mark(&mut self.dirty, id, destination);
        let Some(mut ended) = self.pool.remove(connection, &mut destination.counts, &mut destination.idle) else {
            return Vec::new();
        };
        while let Some(flight) = ended.flights.pop_back() {
            destination.take_back(flight);
        }
        let why = match (refused, ended.phase) {
            (Some(why), _) => why,
            (None, Phase::Opening) => "the connection ended before it was greeted",
            // Told to close before it got anything, or had nothing to do: that says nothing.
            (None, phase) if !ended.served && (ended.taken > 0 || !ended.idled && phase != Phase::Closing) => {
                "the connection ended before a message was tried"
            }
            _ => return Vec::new(),
        };
        self.step += 1;
        destination.failed(&ended, why, (self.step, now), &self.settings, &mut self.chance)
    }
}

/// Has `poll` look at a destination.
fn mark(dirty: &mut VecDeque<DestinationId>, id: DestinationId, destination: &mut Destination) {
    if !destination.is_dirty {
        destination.is_dirty = true;
        dirty.push_back(id);
    }
}
