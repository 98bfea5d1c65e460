//! The calls about connections: greeted, given work, done with it, failed.
//!
//! A connection belongs to its site, and so does a failure. Its unfinished jobs go back part by part, to the present
//! place of each destination.

use std::time::Duration;

use crate::job::{ConnectionId, Failure, Feedback, Job, Lag, Lane, NextJob, Positions, SiteId};
use crate::part::Part;
use crate::pool::{BudgetKind, Connection, InFlightJob, Phase};
use crate::ready_queue::Transaction;
use crate::reported_sites::{concerns_others, record};
use crate::scheduler::{Scheduler, jobs_of};
use crate::settings::Mechanism;
use crate::site_report::SiteResult;

impl Scheduler {
    /// Records that a connection was greeted and can take work: its site is up.
    pub fn greeted(&mut self, connection: ConnectionId, now: Duration) {
        let Some(found) = self.pool.get(connection) else { return };
        let (id, phase) = (found.site, found.phase);
        if let Some(site) = self.sites.get_mut(&id) {
            if !site.doubts(found) {
                site.mark_up();
            }
            if phase.is_opening() {
                site.cancels = 0;
                site.superseded = site.superseded.saturating_sub(site.is_superseded(found).into());
                self.greeting_timer.greeted(connection, now);
                if let Some(found) = self.pool.get_mut(connection) {
                    found.greeted_at = now;
                }
                let to = if phase.is_closing() { Phase::Closing } else { Phase::Awake };
                self.pool.set_phase(connection, to, &mut site.counts, &mut site.idle);
            }
            self.dirty.add_site(id, site);
        }
    }

    /// Records that a connection waits for a reply longer than the fast lane allows. Its site moves to the slow lane
    /// unless other hosts can be tried, and its place in the fast budget is free. It may get
    /// [`Action::Close`](crate::Action::Close) although it is busy.
    ///
    /// If it has jobs, nothing more is sent on it before a reply; then the driver asks for work again.
    ///
    /// Call it again when the connection begins to wait for the reply to a whole message: such connections get `Close`
    /// only while they hold more than half of all places.
    pub fn lagging(&mut self, connection: ConnectionId, lag: Lag, _now: Duration) {
        let Some(id) = self.pool.get(connection).map(|found| found.site) else { return };
        let Some(site) = self.sites.get_mut(&id) else { return };
        self.pool.set_lagging(connection, lag, &self.budget);
        if let Some(found) = self.pool.get_mut(connection) {
            site.counts.update(found, |found| found.is_at_bad_host = lag.has_others);
            let (phase, has_work) = (found.phase, !found.in_flight.is_empty());
            if has_work && matches!(phase, Phase::Idle | Phase::Awake) {
                self.pool.set_phase(connection, Phase::Busy, &mut site.counts, &mut site.idle);
            }
        }
        if !lag.has_others {
            site.lane = Lane::Slow;
        }
        self.dirty.add_site(id, site);
    }

    /// Records that the server has the first job of a connection whole and has not replied for a short time. Until that
    /// job is over nothing is sent behind it, and other connections may open in its place. Then the driver asks for
    /// work again.
    ///
    /// Includes [`silent`](Self::silent).
    pub fn stalling(&mut self, connection: ConnectionId, now: Duration) {
        let has_job = |found: &&Connection| !found.in_flight.is_empty();
        let Some(id) = self.pool.get(connection).filter(has_job).map(|found| found.site) else { return };
        if let Some(site) = self.sites.get_mut(&id) {
            self.pool.set_stalled(connection, true, &mut site.counts);
        }
        self.silent(connection, now);
    }

    /// Records that the server of a connection is silent in the first of its jobs. Until that job is over nothing is
    /// sent behind it, and its place in the fast lane is free, while fewer than
    /// [`Settings::silent_max`](crate::Settings) connections are silent. Then the driver asks for work again. This says
    /// nothing against the site.
    pub fn silent(&mut self, connection: ConnectionId, _now: Duration) {
        let Some(found) = self.pool.get(connection).filter(|found| !found.in_flight.is_empty()) else { return };
        let (id, phase) = (found.site, found.phase);
        let Some(site) = self.sites.get_mut(&id) else { return };
        self.pool.set_silent(connection, &self.budget);
        if matches!(phase, Phase::Idle | Phase::Awake) {
            self.pool.set_phase(connection, Phase::Busy, &mut site.counts, &mut site.idle);
        }
        self.dirty.add_site(id, site);
    }

    /// Records that a job got no reply, just before its [`job_done`](Self::job_done). It is tried in isolation until a
    /// reply comes; `apart`: each recipient by itself.
    pub fn unanswered(&mut self, connection: ConnectionId, job: &Job, apart: bool) {
        let Some(found) = self.pool.get_mut(connection) else { return };
        if let Some(flight) = found.in_flight.iter_mut().find(|flight| flight.is(job)) {
            flight.lost = Some(apart);
        }
    }

    /// Returns the next job for a connection. May be called while earlier jobs are in flight.
    pub fn next_job(&mut self, connection: ConnectionId, now: Duration) -> NextJob {
        if self.pool.get(connection).is_some_and(|found| found.phase.is_opening()) {
            self.greeted(connection, now);
        }
        self.return_from_silence(connection);
        let must_close = self.must_close(connection, now);
        let (lingers, minds_overload) = (self.has(Mechanism::Lingering), self.has(Mechanism::Overload));
        let Some(found) = self.pool.get_mut(connection) else { return NextJob::Close };
        if let Some(woken) = found.woken_at.take().filter(|_| minds_overload) {
            self.overload.woken(woken, now);
        }
        let id = found.site;
        let Some(site) = self.sites.get_mut(&id) else { return NextJob::Close };
        self.dirty.add_site(id, site);
        if !must_close && (found.is_silent || found.is_stalled || found.in_flight.iter().any(|flight| flight.is_alone))
        {
            self.pool.set_phase(connection, Phase::Busy, &mut site.counts, &mut site.idle);
            return NextJob::Later;
        }
        let taken = if must_close || site.usable(now) == 0 {
            None
        } else {
            site.ready_queue.next_transaction(site.limits.recipients_per_transaction, now)
        };
        // A connection that returned from silence and found no place does not wait for work.
        let must_close = must_close || taken.is_none() && found.budget_kind == BudgetKind::Silent;
        let phase = match &taken {
            _ if must_close => Phase::Closing,
            None => Phase::Idle,
            Some(_) => Phase::Busy,
        };
        if phase == Phase::Idle && lingers {
            found.set_linger(site.arrivals.linger_until(found.greeted_at, now));
        }
        self.pool.set_phase(connection, phase, &mut site.counts, &mut site.idle);
        match taken {
            None if must_close => NextJob::Close,
            None => {
                site.note_shortage(now);
                NextJob::Idle
            }
            Some(taken) => {
                site.spend(now);
                site.in_flight += 1;
                self.start_job(connection, taken, now)
            }
        }
    }

    /// Records that a job is over and its result is in the spool. `retry`: when the first deferred recipient is due.
    pub fn job_done(
        &mut self,
        connection: ConnectionId,
        job: &Job,
        feedback: Feedback,
        retry: Option<Duration>,
        now: Duration,
    ) {
        let Some((id, flight)) = self.take_job(connection, job) else { return };
        let is_lost = feedback == Feedback::NoReply;
        let is_sent = feedback != Feedback::Unsent;
        let lagged = is_lost || is_sent && self.pool.end_lag(connection, &self.budget);
        self.step += 1;
        if let Some(found) = self.pool.get_mut(connection) {
            found.jobs_answered += u32::from(!is_lost);
            found.has_lagged |= is_lost;
        }
        let lingers = self.has(Mechanism::Lingering);
        let says_nothing = is_sent && self.update_suspects(connection, id, &flight, is_lost);
        if let (Some(site), Some(found)) = (self.sites.get_mut(&id), self.pool.get_mut(connection)) {
            let was_in_doubt = site.is_in_doubt();
            if says_nothing {
                // The end of the connection says nothing about the pace either.
                site.pace.give_back((flight.started_at_step, 0), (self.step, now));
            } else {
                site.transaction_done(
                    flight.started_at_step,
                    feedback,
                    (self.step, now),
                    &self.settings,
                    &mut self.chance,
                );
            }
            if was_in_doubt && !site.is_in_doubt() {
                record(&mut self.site_changes, site, SiteResult::Up);
            }
            if is_lost {
                site.lane = if found.is_at_bad_host { site.lane } else { Lane::Slow };
            } else if is_sent {
                site.counts.update(found, |found| found.is_at_bad_host = false);
            }
            if found.phase == Phase::Idle && found.in_flight.is_empty() && lingers {
                found.set_linger(site.arrivals.linger_until(found.greeted_at, now));
            }
            if is_sent && !lagged {
                site.lane = Lane::Fast;
                self.pool.move_to_fast(connection, &self.budget);
            }
            self.dirty.add_site(id, site);
        }
        for part in std::iter::once(&flight.first).chain(&flight.others) {
            if let Some(destination) = self.destinations.get_mut(&part.destination) {
                destination.finish_part(flight.message, part, retry, &self.settings, now);
                self.dirty.add_destination(destination);
            }
        }
        self.pool.update_idle(connection);
    }

    /// Marks recipients that got no reply for isolated retry; clears the marks of those that got one. Returns true if
    /// the host disconnected again on recipients that were marked, which is no evidence against the site.
    fn update_suspects(&mut self, connection: ConnectionId, id: SiteId, flight: &InFlightJob, is_lost: bool) -> bool {
        let isolates = self.has(Mechanism::IsolatedRetry);
        let (Some(found), Some(site)) = (self.pool.get_mut(connection), self.sites.get_mut(&id)) else { return false };
        let suspects = &mut site.ready_queue.suspects;
        let Some(is_apart) = flight.lost.or_else(|| is_lost.then_some(false)) else {
            suspects.clear(flight.message, &flight.recipients);
            site.is_proven = true;
            return false;
        };
        if !isolates {
            return false;
        }
        // A host that disconnects may be too busy, unless it disconnects on the same recipients again.
        let is_known = suspects.best_rank(flight.message, &flight.recipients).is_some();
        found.is_excused |= is_lost || is_known;
        let is_first = !std::mem::replace(&mut found.has_lost, true);
        suspects.mark(flight.message, &flight.recipients, is_apart, is_first);
        is_known && !is_lost
    }

    /// Takes back a job that was not tried, to the front of its queue.
    pub fn give_back(&mut self, connection: ConnectionId, job: &Job, now: Duration) {
        let served = self.pool.get(connection).map_or(0, |found| found.jobs_answered);
        if let Some((id, flight)) = self.take_job(connection, job) {
            self.step += 1;
            if let Some(site) = self.sites.get_mut(&id) {
                site.pace.give_back((flight.started_at_step, served), (self.step, now));
            }
            self.give_back_job(flight, now);
            self.pool.update_idle(connection);
        }
    }

    /// Ends a connection that was not established, or that was refused at the greeting or the hello.
    ///
    /// Returns the jobs that left memory because the site is down now, of all its destinations, to be logged as
    /// deferred. The spool is unchanged. While other connections of the site live it is not down, and nothing is
    /// returned.
    #[must_use]
    pub fn unreachable(&mut self, connection: ConnectionId, failure: Failure, why: &str, now: Duration) -> Vec<Job> {
        self.end_connection(connection, Some((failure, why)), now)
    }

    /// Ends a connection. Its unfinished jobs are given back.
    ///
    /// A connection that ended without an answered job counts as a failure, unless it was told to close or had no job;
    /// then this returns what [`unreachable`](Self::unreachable) returns.
    #[must_use]
    pub fn closed(&mut self, connection: ConnectionId, now: Duration) -> Vec<Job> {
        self.end_connection(connection, None, now)
    }

    /// Ends a connection of which nothing follows for its site. Its unfinished jobs are given back, and if the site has
    /// work another connection opens at once.
    ///
    /// Before this call the driver makes sure that the next connection is another one: it tries other hosts of the site
    /// first, or the destination has another site by [`resolved`](Self::resolved).
    pub fn abandon(&mut self, connection: ConnectionId, now: Duration) {
        drop(self.remove_connection(connection, now));
    }

    /// Gives a transaction from the ready queue to a connection.
    fn start_job(&mut self, connection: ConnectionId, taken: Transaction, now: Duration) -> NextJob {
        let Transaction { message, first, others, split, is_alone, is_list } = taken;
        if let Some((whole, rest)) = split
            && let Some(destination) = self.destinations.get_mut(&first.destination)
        {
            destination.split_part(message, &first, &whole, rest);
        }
        for part in std::iter::once(&first).chain(&others) {
            if let Some(destination) = self.destinations.get_mut(&part.destination) {
                destination.start_part(part, now);
            }
        }
        let recipients = all_of(&first, &others);
        self.step += 1;
        let Some(found) = self.pool.get_mut(connection) else { return NextJob::Close };
        found.jobs_taken += 1;
        let job = Job { message, recipients: recipients.clone(), probe: found.probe && found.jobs_taken == 1 };
        let (started_at_step, lost, is_alone) = (self.step, None, is_alone || is_list && self.settings.isolate_lists);
        found.in_flight.push_back(InFlightJob { message, recipients, first, others, started_at_step, is_alone, lost });
        NextJob::Job(job)
    }

    /// Removes a job from its connection.
    fn take_job(&mut self, connection: ConnectionId, job: &Job) -> Option<(SiteId, InFlightJob)> {
        let found = self.pool.get_mut(connection)?;
        let at = found.in_flight.iter().position(|flight| flight.is(job))?;
        let flight = found.in_flight.remove(at)?;
        found.is_silent &= at > 0;
        let id = found.site;
        if let Some(site) = self.sites.get_mut(&id) {
            site.in_flight -= 1;
            if at == 0 {
                self.pool.set_stalled(connection, false, &mut site.counts);
            }
            self.dirty.add_site(id, site);
        }
        Some((id, flight))
    }

    /// Puts a job back, each part to the present place of its destination.
    fn give_back_job(&mut self, flight: InFlightJob, now: Duration) {
        let InFlightJob { message, first, others, .. } = flight;
        for part in others.into_iter().rev().chain(std::iter::once(first)) {
            let Some(destination) = self.destinations.get_mut(&part.destination) else { continue };
            let mut site = destination.site_in(&mut self.sites);
            destination.give_back_part(message, part, site.as_deref_mut(), &self.settings, now);
            self.dirty.add_destination(destination);
            if let (Some(site), Some(id)) = (site, destination.site) {
                self.dirty.add_site(id, site);
            }
        }
    }

    /// Ends a connection and takes its jobs back.
    fn remove_connection(&mut self, connection: ConnectionId, now: Duration) -> Option<(SiteId, Connection)> {
        let id = self.pool.get(connection)?.site;
        let site = self.sites.get_mut(&id)?;
        let mut ended = self.pool.remove(connection, &mut site.counts, &mut site.idle)?;
        site.superseded = site.superseded.saturating_sub(site.is_superseded(&ended).into());
        self.dirty.add_site(id, site);
        self.greeting_timer.stop(connection);
        site.in_flight -= ended.in_flight.len();
        self.step += 1;
        for flight in &ended.in_flight {
            site.pace.give_back((flight.started_at_step, ended.jobs_answered), (self.step, now));
        }
        while let Some(flight) = ended.in_flight.pop_back() {
            self.give_back_job(flight, now);
        }
        Some((id, ended))
    }

    /// Ends a connection, takes its jobs back, and decides whether it is a failure.
    fn end_connection(
        &mut self,
        connection: ConnectionId,
        refused: Option<(Failure, &str)>,
        now: Duration,
    ) -> Vec<Job> {
        let Some((id, ended)) = self.remove_connection(connection, now) else { return Vec::new() };
        let silence = if ended.has_lagged { Failure::Silent } else { Failure::Refused };
        let why = match (refused, ended.phase) {
            (Some(why), _) => why,
            (None, Phase::Opening) => (silence, "the connection ended before it was greeted"),
            // It was told to close before it got a job, or it had no job: no failure.
            (None, phase)
                if ended.jobs_answered == 0 && (ended.jobs_taken > 0 || !ended.was_idle && !phase.is_closing()) =>
            {
                (silence, "the connection ended before a message was tried")
            }
            _ => return Vec::new(),
        };
        self.blame_site(id, &ended, (why, refused.is_some()), now)
    }

    /// Counts a failed connection against its site. `is_known`: the driver knows the failure.
    fn blame_site(
        &mut self,
        id: SiteId,
        ended: &Connection,
        (why, is_known): ((Failure, &str), bool),
        now: Duration,
    ) -> Vec<Job> {
        self.step += 1;
        let Some(site) = self.sites.get_mut(&id) else { return Vec::new() };
        if !site.connection_failed(ended, why, (self.step, now), &self.settings, &mut self.chance) {
            return Vec::new();
        }
        if is_known && concerns_others(ended, why.0) {
            let wait = site.down.as_ref().map_or(Duration::ZERO, |down| down.until.saturating_sub(now));
            record(&mut self.site_changes, site, SiteResult::Down { failure: why.0, wait });
        }
        self.drain_site(id, ended.probe, now)
    }

    /// Has the jobs of a site that is down leave memory. Returns those that are to be logged as deferred.
    pub(crate) fn drain_site(&mut self, id: SiteId, is_probe: bool, now: Duration) -> Vec<Job> {
        let Some(site) = self.sites.get_mut(&id) else { return Vec::new() };
        let mut drained = site.ready_queue.drain();
        let logs_all = site.logs_all(drained.len(), &self.settings, now);
        for (message, part) in &drained {
            if let Some(destination) = self.destinations.get_mut(&part.destination) {
                destination.drop_part(*message, part, &self.settings, now);
                self.dirty.add_destination(destination);
            }
        }
        // Fresh jobs have not been logged yet.
        drained.retain(|(_, part)| logs_all || part.fresh);
        jobs_of(drained, is_probe)
    }
}

/// Returns the recipients of all parts.
fn all_of(first: &Part, others: &[Part]) -> Positions {
    if others.is_empty() {
        return first.recipients.clone();
    }
    let parts = std::iter::once(first).chain(others);
    let mut all: Vec<u32> = parts.flat_map(|part| part.recipients.iter()).collect();
    all.sort_unstable();
    Positions::from(all.as_slice())
}
