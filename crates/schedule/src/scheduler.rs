//! The calls: what happened goes in.
//!
//! Each call changes a destination or a site and marks it; `poll` (in `serve`) looks at marked ones in turn until none of
//! them wants anything. What a call returns are jobs that left memory untried.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mail::QueueId;

use crate::chance::{ById, Chance};
use crate::destination::{Asks, Destination};
use crate::job::{
    Action, Added, Class, ConnectionId, DestinationId, Failure, Feedback, Job, Lane, Place, Positions, SiteId, Take,
    Waiting,
};
use crate::line::{Part, Taken};
use crate::pool::{Budget, Connection, Flight, Phase, Pool};
use crate::serve::{Marks, Who};
use crate::settings::Settings;
use crate::site::Site;
use crate::stands::Stands;
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
    pub(crate) settings: Settings,
    pub(crate) budget: Budget,
    pub(crate) pool: Pool,
    pub(crate) destinations: ById<DestinationId, Destination>,
    pub(crate) names: BTreeMap<Arc<[u8]>, DestinationId>,
    pub(crate) sites: ById<SiteId, Site>,
    pub(crate) site_names: BTreeMap<Arc<[u8]>, SiteId>,
    /// What `poll` is to look at.
    pub(crate) marks: Marks,
    /// Sites that want a connection the budget does not have.
    pub(crate) stands: Stands,
    /// Destinations to be asked about, pressing ones first.
    pub(crate) pressing: VecDeque<DestinationId>,
    pub(crate) asking: VecDeque<DestinationId>,
    /// `Resolve` actions that were not answered.
    pub(crate) asked: usize,
    pub(crate) timers: BTreeSet<(Duration, Who)>,
    pub(crate) actions: VecDeque<Action>,
    chance: Chance,
    next_destination: u64,
    next_site: u64,
    /// Counts what may change a window: openings, takings and cuts. Says what was before what.
    pub(crate) step: u64,
}

impl Scheduler {
    /// Makes a scheduler that knows of nothing. The `seed` scatters its waits.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            budget: Budget::new(settings.connections_max),
            settings,
            pool: Pool::default(),
            destinations: ById::default(),
            names: BTreeMap::new(),
            sites: ById::default(),
            site_names: BTreeMap::new(),
            marks: Marks::default(),
            stands: Stands::default(),
            pressing: VecDeque::new(),
            asking: VecDeque::new(),
            asked: 0,
            timers: BTreeSet::new(),
            actions: VecDeque::new(),
            chance: Chance::new(seed),
            next_destination: 0,
            next_site: 0,
            step: 0,
        }
    }

    /// Puts other limits in force. Connections above them end as they ask for work; lists are looked through again, and
    /// where the mail of a destination goes is asked again when it has some.
    ///
    /// If fresh mail no longer waits, call [`restore`](Self::restore) for the destinations of the spool: one whose mail
    /// all waited for a person is not known here.
    pub fn set(&mut self, settings: Settings, now: Duration) {
        self.budget = Budget::new(settings.connections_max);
        self.settings = settings;
        for id in self.names.values() {
            if let Some(destination) = self.destinations.get_mut(id) {
                destination.more = true;
                destination.look_by(now);
                destination.doubt_place(now);
                self.marks.destination(destination);
            }
        }
        for id in self.site_names.values() {
            if let Some(site) = self.sites.get_mut(id) {
                self.marks.site(*id, site);
            }
        }
    }

    /// Takes a fresh message that was committed just now.
    pub fn add(&mut self, destination: &[u8], job: Job, class: Class, now: Duration) -> Added {
        if self.settings.fresh_waits {
            return Added::Waits;
        }
        let id = self.intern(destination);
        let Some(destination) = self.destinations.get_mut(&id) else { return Added::Waits };
        self.marks.destination(destination);
        let mut site = site_of(&mut self.sites, destination, &mut self.marks);
        let added = destination.add(job, class, site.as_deref_mut(), &self.settings, now);
        if let (Some(site), Some(id)) = (site, destination.site) {
            self.marks.site(id, site);
        }
        added
    }

    /// Says that the spool has recipients for a destination, as at the start.
    pub fn restore(&mut self, destination: &[u8], _now: Duration) {
        let id = self.intern(destination);
        if let Some(destination) = self.destinations.get_mut(&id) {
            destination.more = true;
            self.marks.destination(destination);
        }
    }

    /// Answers [`Action::Resolve`]: where the mail of a destination goes. May also be called unasked, to move it.
    ///
    /// Returns the jobs that left memory because that site is down, to be logged as deferred.
    #[must_use]
    pub fn placed(&mut self, destination: DestinationId, place: &Place<'_>, now: Duration) -> Vec<Job> {
        self.answered(destination);
        let Some(name) = self.destinations.get(&destination).map(|found| Arc::clone(&found.name)) else {
            return Vec::new();
        };
        let id = self.intern_site(place, name);
        let is_there = self
            .destinations
            .get_mut(&destination)
            .is_some_and(|found| site_of(&mut self.sites, found, &mut self.marks).is_some() && found.site == Some(id));
        if !is_there {
            self.leave(destination);
        }
        self.step += 1;
        let (Some(found), Some(site)) = (self.destinations.get_mut(&destination), self.sites.get_mut(&id)) else {
            return Vec::new();
        };
        site.know(place, now);
        site.members += usize::from(!is_there);
        found.is_placed(id, place.until, self.step, now);
        let mut pending = std::mem::take(&mut found.pending);
        // A site that is down takes one, to see whether it still is.
        let takes = if site.down.is_some() { usize::from(site.may_probe(now)) } else { pending.len() };
        let out: Vec<_> = pending.drain(takes.min(pending.len())..).collect();
        for (message, part) in pending {
            site.line.push(message, part, now);
        }
        for (message, part) in &out {
            found.drop_part(*message, part, now);
        }
        self.marks.destination(found);
        self.marks.site(id, site);
        jobs_of(out, false)
    }

    /// Answers [`Action::Resolve`]: the hosts of a destination cannot be known for now. It is asked again after a
    /// back-off; what is in flight goes on.
    ///
    /// Returns the jobs that left memory, to be logged as deferred; what the spool says of them stands.
    #[must_use]
    pub fn unplaced(&mut self, destination: DestinationId, why: &str, now: Duration) -> Vec<Job> {
        self.answered(destination);
        self.leave(destination);
        let Some(found) = self.destinations.get_mut(&destination) else { return Vec::new() };
        found.is_unplaced(why, &self.settings, now, &mut self.chance);
        let out: Vec<_> = std::mem::take(&mut found.pending).into();
        for (message, part) in &out {
            found.drop_part(*message, part, now);
        }
        self.marks.destination(found);
        jobs_of(out, false)
    }

    /// The name of a destination; `None` once it is forgotten. One with an unanswered action is known.
    #[must_use]
    pub fn name(&self, destination: DestinationId) -> Option<&Arc<[u8]>> {
        self.destinations.get(&destination).map(|destination| &destination.name)
    }

    /// The key of a site; `None` once it is forgotten. One with connections is known.
    #[must_use]
    pub fn site_name(&self, site: SiteId) -> Option<&Arc<[u8]>> {
        self.sites.get(&site).map(|site| &site.name)
    }

    /// Some destination of a site, to look up its hosts: one with work, if there is one. Known while the site is.
    #[must_use]
    pub fn a_destination(&self, site: SiteId) -> Option<&Arc<[u8]>> {
        let site = self.sites.get(&site)?;
        let next = site.line.first_destination().and_then(|id| self.name(id));
        Some(next.unwrap_or(&site.example))
    }

    /// Answers [`Action::Load`]: entries in the order of the list; `is_end` when there are none behind them.
    pub fn loaded(&mut self, destination: DestinationId, entries: &[Waiting], is_end: bool, now: Duration) {
        let Some(destination) = self.destinations.get_mut(&destination) else { return };
        if let Some(id) = destination.walks_at.take()
            && let Some(site) = self.sites.get_mut(&id)
        {
            site.walkers -= 1;
            self.marks.site(id, site);
        }
        let mut site = site_of(&mut self.sites, destination, &mut self.marks);
        let room = destination.room(site.as_deref(), &self.settings, now);
        let line = site.as_deref_mut().map(|site| &mut site.line);
        destination.page((entries, is_end), room, line, &self.settings, now, &mut self.actions);
        self.marks.destination(destination);
        if let (Some(site), Some(id)) = (site, destination.site) {
            self.marks.site(id, site);
        }
    }

    /// Answers [`Action::Overdue`]: the sender was told and the spool knows it; or neither, and it will be tried again.
    /// The list is looked at again at the time `again`: now, or later when it could not be told.
    pub fn settled(&mut self, destination: DestinationId, message: QueueId, recipients: &Positions, again: Duration) {
        if let Some(destination) = self.destinations.get_mut(&destination) {
            if destination.active.has_any(message, recipients) {
                destination.release(message, recipients);
                destination.overdue = destination.overdue.saturating_sub(1);
                destination.look_by(again);
            }
            self.marks.destination(destination);
        }
    }

    /// Says that a connection was greeted and can take work: its site is alive.
    pub fn ready(&mut self, connection: ConnectionId, _now: Duration) {
        let Some(found) = self.pool.get(connection) else { return };
        let (id, phase) = (found.site, found.phase);
        if let Some(site) = self.sites.get_mut(&id) {
            if phase == Phase::Opening {
                self.pool.turn(connection, Phase::Awake, &mut site.counts, &mut site.idle);
            }
            site.revive();
            self.marks.site(id, site);
        }
    }

    /// Says that a connection waits for a reply longer than the fast lane allows: its site goes to the slow lane, and
    /// its place in the fast budget is free. It may get [`Action::Close`] although it is busy.
    pub fn lagging(&mut self, connection: ConnectionId, _now: Duration) {
        let Some(id) = self.pool.get(connection).map(|found| found.site) else { return };
        self.pool.lag(connection);
        if let Some(site) = self.sites.get_mut(&id) {
            site.lane = Lane::Slow;
            self.marks.site(id, site);
        }
    }

    /// Gives a connection its next job. May be called while earlier ones are in flight.
    pub fn take(&mut self, connection: ConnectionId, now: Duration) -> Take {
        if self.pool.get(connection).is_some_and(|found| found.phase == Phase::Opening) {
            self.ready(connection, now);
        }
        let must_close = self.must_close(connection);
        let Some(found) = self.pool.get_mut(connection) else { return Take::Close };
        let id = found.site;
        let Some(site) = self.sites.get_mut(&id) else { return Take::Close };
        self.marks.site(id, site);
        let taken = if must_close || site.usable(now) == 0 {
            None
        } else {
            site.line.take(site.limits.recipients_per_transaction, now)
        };
        let phase = match &taken {
            _ if must_close => Phase::Closing,
            None => Phase::Idle,
            Some(_) => Phase::Busy,
        };
        self.pool.turn(connection, phase, &mut site.counts, &mut site.idle);
        match taken {
            None if must_close => Take::Close,
            None => Take::Idle,
            Some(taken) => {
                site.rate.spend(now);
                site.in_flight += 1;
                self.fly(connection, taken, now)
            }
        }
    }

    /// Says that a job is over and recorded; `retry`: when the first recipient that was deferred is due.
    pub fn done(
        &mut self,
        connection: ConnectionId,
        job: &Job,
        feedback: Feedback,
        retry: Option<Duration>,
        _now: Duration,
    ) {
        let Some((id, flight)) = self.land(connection, job) else { return };
        if let Some(found) = self.pool.get_mut(connection) {
            found.served = true;
        }
        let lagged = self.pool.recover(connection, &self.budget);
        self.step += 1;
        if let Some(site) = self.sites.get_mut(&id) {
            site.finished(flight.taken, feedback, self.step);
            if !lagged {
                site.lane = Lane::Fast;
                self.pool.hurry(connection, &self.budget);
            }
            self.marks.site(id, site);
        }
        for part in std::iter::once(&flight.first).chain(&flight.others) {
            if let Some(destination) = self.destinations.get_mut(&part.destination) {
                destination.finished(flight.message, part, retry, &self.settings);
                self.marks.destination(destination);
            }
        }
        self.pool.judge_spare(connection);
    }

    /// Puts a job that was not tried back, first in line.
    pub fn give_back(&mut self, connection: ConnectionId, job: &Job, now: Duration) {
        if let Some((_, flight)) = self.land(connection, job) {
            self.take_back(flight, now);
            self.pool.judge_spare(connection);
        }
    }

    /// Says that no connection came about, or that it was refused at the greeting or the hello. Ends the connection.
    ///
    /// Returns the jobs that left memory because the site is down now, of all its destinations, to be logged as
    /// deferred; what the spool says of them stands. While other connections of the site live it is not down, and
    /// nothing is returned.
    #[must_use]
    pub fn unreachable(&mut self, connection: ConnectionId, failure: Failure, why: &str, now: Duration) -> Vec<Job> {
        self.end(connection, Some((failure, why)), now)
    }

    /// Says that a connection is over. Its jobs that are not done are taken as given back.
    ///
    /// A connection that ended without a job done, and not because it was told to or had none, counts as a failure; so
    /// this returns what [`unreachable`](Self::unreachable) returns.
    #[must_use]
    pub fn closed(&mut self, connection: ConnectionId, now: Duration) -> Vec<Job> {
        self.end(connection, None, now)
    }

    /// Says that the hosts of a site are not what its key says any more. Ends the connection without blame, takes its
    /// jobs back, and asks for all that waits there where it goes.
    pub fn misplaced(&mut self, connection: ConnectionId, now: Duration) {
        let Some(id) = self.pool.get(connection).map(|found| found.site) else { return };
        let Some(site) = self.sites.get_mut(&id) else { return };
        let Some(ended) = self.pool.remove(connection, &mut site.counts, &mut site.idle) else { return };
        self.step += 1;
        site.stale_at = self.step;
        site.in_flight -= ended.flights.len();
        let waiting = std::mem::take(&mut site.waiting);
        let drained = site.line.drain();
        self.marks.site(id, site);
        for destination in waiting {
            if let Some(destination) = self.destinations.get_mut(&destination) {
                self.marks.destination(destination);
            }
        }
        for (message, part) in drained {
            let Some(destination) = self.destinations.get_mut(&part.destination) else { continue };
            if destination.site == Some(id) {
                destination.is_misplaced(now);
            }
            let is_there = site_of(&mut self.sites, destination, &mut self.marks).is_some();
            debug_assert!(!is_there, "who was placed before is not there any more");
            destination.pending.push_back((message, part));
            self.marks.destination(destination);
        }
        for flight in ended.flights.into_iter().rev() {
            self.take_back(flight, now);
        }
    }

    /// Forgets the back-off of a destination and its site, or of all that are known, and looks through its list.
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
                self.marks.destination(destination);
                if let Some(site) = site_of(&mut self.sites, destination, &mut self.marks)
                    && let Some(id) = destination.site
                {
                    site.retry_now(now);
                    self.marks.site(id, site);
                }
            }
        }
    }

    /// One destination; `None` when nothing is known of it.
    #[must_use]
    pub fn state(&self, destination: &[u8]) -> Option<View> {
        self.names.get(destination).and_then(|id| self.view(*id))
    }

    /// All destinations in the order of their names.
    pub fn views(&self) -> impl Iterator<Item = View> + '_ {
        self.names.values().filter_map(|id| self.view(*id))
    }

    /// All sites in the order of their names, as they are at `now`.
    pub fn sites(&self, now: Duration) -> impl Iterator<Item = SiteView> + '_ {
        self.site_names.values().filter_map(|id| self.sites.get(id)).map(move |site| site.view(now))
    }

    /// Connections of all sites, opening and closing ones included.
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

    fn view(&self, id: DestinationId) -> Option<View> {
        let destination = self.destinations.get(&id)?;
        let site = destination.site.and_then(|id| self.sites.get(&id));
        Some(destination.view(site.filter(|site| destination.placed_at > site.stale_at)))
    }

    fn intern(&mut self, name: &[u8]) -> DestinationId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = DestinationId(self.next_destination);
        self.next_destination += 1;
        let name: Arc<[u8]> = name.into();
        self.names.insert(Arc::clone(&name), id);
        self.destinations.insert(id, Destination::new(id, name));
        id
    }

    fn intern_site(&mut self, place: &Place<'_>, example: Arc<[u8]>) -> SiteId {
        if let Some(id) = self.site_names.get(place.site) {
            return *id;
        }
        let id = SiteId(self.next_site);
        self.next_site += 1;
        let site = Site::new(place, example, &self.settings);
        self.site_names.insert(Arc::clone(&site.name), id);
        self.sites.insert(id, site);
        id
    }

    /// A question where mail goes was answered.
    fn answered(&mut self, id: DestinationId) {
        if let Some(destination) = self.destinations.get_mut(&id)
            && std::mem::replace(&mut destination.asks, Asks::No) == Asks::Asked
        {
            self.asked -= 1;
        }
    }

    /// Takes a destination and its jobs away from its site.
    fn leave(&mut self, id: DestinationId) {
        let Some(destination) = self.destinations.get_mut(&id) else { return };
        let Some(site) = site_of(&mut self.sites, destination, &mut self.marks) else { return };
        for message in destination.active.messages() {
            let parts = site.line.remove(message, id).into_iter();
            destination.pending.extend(parts.map(|part| (message, part)));
        }
        site.members -= 1;
        if let Some(id) = destination.site.take() {
            self.marks.site(id, site);
        }
        destination.waits_at = None;
    }

    /// Gives a connection what was taken from the line for it.
    fn fly(&mut self, connection: ConnectionId, taken: Taken, now: Duration) -> Take {
        let Taken { message, first, others, split } = taken;
        if let Some((whole, rest)) = split
            && let Some(destination) = self.destinations.get_mut(&first.destination)
        {
            destination.splits(message, &first, &whole, rest);
        }
        for part in std::iter::once(&first).chain(&others) {
            if let Some(destination) = self.destinations.get_mut(&part.destination) {
                destination.takes_off(part, now);
            }
        }
        let recipients = all_of(&first, &others);
        self.step += 1;
        let Some(found) = self.pool.get_mut(connection) else { return Take::Close };
        found.taken += 1;
        let job = Job { message, recipients: recipients.clone(), probe: found.probe && found.taken == 1 };
        found.flights.push_back(Flight { message, recipients, first, others, taken: self.step });
        Take::Job(job)
    }

    /// Takes a job from its connection.
    fn land(&mut self, connection: ConnectionId, job: &Job) -> Option<(SiteId, Flight)> {
        let found = self.pool.get_mut(connection)?;
        let is_it = |flight: &Flight| flight.message == job.message && flight.recipients == job.recipients;
        let at = found.flights.iter().position(is_it)?;
        let flight = found.flights.remove(at)?;
        let id = found.site;
        if let Some(site) = self.sites.get_mut(&id) {
            site.in_flight -= 1;
            self.marks.site(id, site);
        }
        Some((id, flight))
    }

    /// Puts what a connection had back, each part to where its destination is now.
    fn take_back(&mut self, flight: Flight, now: Duration) {
        let Flight { message, first, others, .. } = flight;
        for part in others.into_iter().rev().chain(std::iter::once(first)) {
            let Some(destination) = self.destinations.get_mut(&part.destination) else { continue };
            let mut site = site_of(&mut self.sites, destination, &mut self.marks);
            destination.take_back(message, part, site.as_deref_mut(), now);
            self.marks.destination(destination);
            if let (Some(site), Some(id)) = (site, destination.site) {
                self.marks.site(id, site);
            }
        }
    }

    /// Ends a connection, takes its jobs back, and judges it.
    fn end(&mut self, connection: ConnectionId, refused: Option<(Failure, &str)>, now: Duration) -> Vec<Job> {
        let Some(found) = self.pool.get(connection) else { return Vec::new() };
        let (id, lags) = (found.site, found.is_lagging());
        let Some(site) = self.sites.get_mut(&id) else { return Vec::new() };
        self.marks.site(id, site);
        let Some(mut ended) = self.pool.remove(connection, &mut site.counts, &mut site.idle) else {
            return Vec::new();
        };
        site.in_flight -= ended.flights.len();
        while let Some(flight) = ended.flights.pop_back() {
            self.take_back(flight, now);
        }
        let silence = if lags { Failure::Silent } else { Failure::Refused };
        let why = match (refused, ended.phase) {
            (Some(why), _) => why,
            (None, Phase::Opening) => (silence, "the connection ended before it was greeted"),
            // Told to close before it got anything, or had nothing to do: that says nothing.
            (None, phase) if !ended.served && (ended.taken > 0 || !ended.idled && phase != Phase::Closing) => {
                (silence, "the connection ended before a message was tried")
            }
            _ => return Vec::new(),
        };
        self.fail(id, &ended, why, now)
    }

    /// Blames a site for a connection that came to nothing.
    fn fail(&mut self, id: SiteId, ended: &Connection, why: (Failure, &str), now: Duration) -> Vec<Job> {
        self.step += 1;
        let Some(site) = self.sites.get_mut(&id) else { return Vec::new() };
        if !site.failed(ended, why, (self.step, now), &self.settings, &mut self.chance) {
            return Vec::new();
        }
        let drained = site.line.drain();
        for (message, part) in &drained {
            if let Some(destination) = self.destinations.get_mut(&part.destination) {
                destination.drop_part(*message, part, now);
                self.marks.destination(destination);
            }
        }
        jobs_of(drained, ended.probe)
    }
}

/// The site of a destination, if that still holds.
pub(crate) fn site_of<'a>(
    sites: &'a mut ById<SiteId, Site>,
    destination: &mut Destination,
    marks: &mut Marks,
) -> Option<&'a mut Site> {
    let id = destination.site?;
    let site = sites.get_mut(&id)?;
    if destination.placed_at > site.stale_at {
        return Some(site);
    }
    site.members -= 1;
    marks.site(id, site);
    destination.site = None;
    destination.waits_at = None;
    None
}

/// The recipients of all parts.
fn all_of(first: &Part, others: &[Part]) -> Positions {
    if others.is_empty() {
        return first.recipients.clone();
    }
    let parts = std::iter::once(first).chain(others);
    let mut all: Vec<u32> = parts.flat_map(|part| part.recipients.iter()).collect();
    all.sort_unstable();
    Positions::from(all.as_slice())
}

/// One job for the parts of each message.
fn jobs_of(parts: Vec<(QueueId, Part)>, probe: bool) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::with_capacity(parts.len());
    for together in parts.chunk_by(|one, next| one.0 == next.0) {
        let mut all: Vec<u32> = together.iter().flat_map(|(_, part)| part.recipients.iter()).collect();
        all.sort_unstable();
        if let Some((message, ..)) = together.first() {
            jobs.push(Job { message: *message, recipients: Positions::from(all.as_slice()), probe });
        }
    }
    jobs
}
