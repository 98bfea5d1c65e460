//! The calls about connections: greeted, given work, done with it, come to nothing.
//!
//! A connection belongs to its site, and so does the blame when it comes to nothing. What it had goes back part by part,
//! to where the destination of each part is by then.

use std::time::Duration;

use crate::job::{ConnectionId, Failure, Feedback, Job, Lane, Positions, SiteId, Take};
use crate::line::{Part, Taken};
use crate::pool::{Connection, Flight, Phase};
use crate::scheduler::{Scheduler, jobs_of, site_of};

impl Scheduler {
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
        let is_lost = feedback == Feedback::Lost;
        let lagged = is_lost || self.pool.recover(connection, &self.budget);
        if let Some(found) = self.pool.get_mut(connection) {
            found.served |= !is_lost;
            found.lagged |= is_lost;
        }
        self.step += 1;
        if let Some(site) = self.sites.get_mut(&id) {
            site.finished(flight.taken, feedback, self.step);
            if is_lost {
                site.lane = Lane::Slow;
            } else if !lagged {
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
    /// A connection that ended without a job answered, and not because it was told to or had none, counts as a failure;
    /// so this returns what [`unreachable`](Self::unreachable) returns.
    #[must_use]
    pub fn closed(&mut self, connection: ConnectionId, now: Duration) -> Vec<Job> {
        self.end(connection, None, now)
    }

    /// Says that the hosts of a destination are not those of the site any more that the connection was opened for. Ends
    /// the connection without blame, takes its jobs back, and asks for the destination where it goes; what else waits at
    /// the site gets another connection. If nothing else belongs to the site, nothing is left there.
    ///
    /// A destination that is told this five times without a job done in between is in back-off, as if it were
    /// [`unplaced`](Self::unplaced). Returns the jobs that left memory by that, to be logged as deferred because of
    /// [`MISPLACED`](crate::MISPLACED).
    #[must_use]
    pub fn misplaced(&mut self, connection: ConnectionId, destination: &[u8], now: Duration) -> Vec<Job> {
        let Some(id) = self.pool.get(connection).map(|found| found.site) else { return Vec::new() };
        let Some(site) = self.sites.get_mut(&id) else { return Vec::new() };
        let Some(ended) = self.pool.remove(connection, &mut site.counts, &mut site.idle) else { return Vec::new() };
        site.in_flight -= ended.flights.len();
        self.marks.site(id, site);
        for flight in ended.flights.into_iter().rev() {
            self.take_back(flight, now);
        }
        let Some(whose) = self.names.get(destination).copied() else { return Vec::new() };
        let Some(found) = self.destinations.get_mut(&whose) else { return Vec::new() };
        // Otherwise it was placed anew meanwhile.
        if found.site != Some(id) {
            return Vec::new();
        }
        found.is_misplaced(&self.settings, now, &mut self.chance);
        self.leave(whose);
        self.drop_if_down(whose, now)
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
            let mut site = site_of(&mut self.sites, destination);
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
        let (id, lags) = (found.site, found.lagged);
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
