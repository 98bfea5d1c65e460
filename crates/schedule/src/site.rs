//! One site, the next hop of one or many destinations: its health, its window, its lane, and the jobs in its line.
//!
//! It is *up* until it fails, and then *down* until a connection is greeted. While it is down nothing of it is in memory
//! but, at the time of the probe, one job. It is *doubted* from its failure until a transaction came to an end, and has
//! one connection so long. It is in the slow lane from a silence until a job was done in good time.
//!
//! Which destinations it has is known by number only; each of them knows its site. Their walks wait here for room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::chance::Chance;
use crate::connection_wait::{WaitKind, Waiter};
use crate::idle_connections::Arrivals;
use crate::job::{ConnectionId, DestinationId, Failure, Feedback, Lane, Limits, SiteAssignment};
use crate::overload::Overload;
use crate::pace::Pace;
use crate::pool::{Connection, PhaseCounts};
use crate::ready_queue::ReadyQueue;
use crate::scan::READY_UNGREETED;
use crate::settings::{Settings, back_off, jitter, on_grid};
use crate::token_bucket::TokenBucket;
use crate::view::{Health, SiteView};

/// A window of one connection. Windows are counted in fractions, so that each good answer can add its share.
const ONE: u64 = 1_024;
/// Pages of destinations of one site that may be unanswered: what they bring shares one room.
const WALKERS: usize = 8;
/// The first pause of a host that says 421 to a message, or breaks off in it, is so much shorter than that of one that cannot be
/// reached.
const TURNED_AWAY_PART: u32 = 8;
/// Jobs that are logged each time their site goes down; more of them once in so many times `down_first`.
const TOLD_ALWAYS: usize = 8;
const TOLD_AGAIN: u32 = 5;
/// Octets of the reason why nothing goes to a site, and as many for a destination.
const WHY_OCTETS_MAX: usize = 512;
/// How much later than its time a site stands in line of which nothing is known.
const UNKNOWN_DELAY: Duration = Duration::from_millis(250);
/// And at most.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// Why nothing goes there, and until when.
#[derive(Debug)]
pub(crate) struct DownState {
    pub(crate) why: Arc<str>,
    pub(crate) until: Duration,
    /// It greets, and then turns away: a greeting says nothing, but that of the probe.
    pub(crate) greets: bool,
}

/// As much of a reason as is kept: whole characters, and a mark where some are missing. Other servers may have written it.
pub(crate) fn kept(why: &str) -> Arc<str> {
    const MARK: &str = "...";
    if why.len() <= WHY_OCTETS_MAX {
        return why.into();
    }
    let end = why.floor_char_boundary(WHY_OCTETS_MAX - MARK.len());
    format!("{}{MARK}", why.get(..end).unwrap_or_default()).into()
}

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) name: Arc<[u8]>,
    /// Some destination whose hosts these are.
    pub(crate) example: Arc<[u8]>,
    pub(crate) limits: Limits,
    expected: Option<Duration>,
    /// What its limits allow.
    rate: TokenBucket,
    /// What it was found to bear.
    pub(crate) pace: Pace,
    /// How often messages come for it.
    pub(crate) arrivals: Arrivals,
    /// Jobs that wait for a connection.
    pub(crate) line: ReadyQueue,
    pub(crate) in_flight: usize,
    pub(crate) counts: PhaseCounts,
    /// Idle connections, the one that was busy last on top, so that those not needed time out.
    pub(crate) idle: Vec<ConnectionId>,
    pub(crate) down: Option<Box<DownState>>,
    /// Failures in a row.
    failures: u32,
    doubted: bool,
    /// Something was answered since a job that was lost was excused last.
    pub(crate) is_proven: bool,
    /// What opened before this step and is not greeted is not waited for: somebody wants it tried now.
    retried_at: u64,
    /// Connections that are so.
    pub(crate) passed_by: u32,
    /// When all that left memory with it was returned last, to be logged.
    told: Option<Duration>,
    pub(crate) lane: Lane,
    window: u64,
    /// Step at which the window was cut last. What began before says nothing new.
    cut_at: u64,
    /// No more connections until then: one was refused while others lived.
    crowded_until: Option<Duration>,
    /// How often it was called off in a row, before it was greeted.
    pub(crate) called_off: usize,
    /// Destinations that know it as theirs.
    pub(crate) members: usize,
    /// Members whose walks wait for room, or for the site to be up. Those that left are stepped over.
    pub(crate) waiting: VecDeque<DestinationId>,
    /// Pages of members that were asked for and not answered.
    pub(crate) walkers: usize,
    pub(crate) is_dirty: bool,
    pub(crate) stand: Option<Waiter>,
    /// Since when it wants a connection that the budget does not have.
    pub(crate) wants_since: Option<Duration>,
    pub(crate) timer: Option<Duration>,
}

impl Site {
    pub(crate) fn new(place: &SiteAssignment<'_>, example: Arc<[u8]>, settings: &Settings) -> Self {
        Self {
            name: place.site.into(),
            example,
            limits: place.limits,
            expected: None,
            rate: TokenBucket::default(),
            pace: Pace::default(),
            arrivals: Arrivals::default(),
            line: ReadyQueue::default(),
            in_flight: 0,
            counts: PhaseCounts::default(),
            idle: Vec::new(),
            down: None,
            failures: 0,
            doubted: false,
            is_proven: false,
            retried_at: 0,
            passed_by: 0,
            told: None,
            lane: Lane::Fast,
            window: u64::from(settings.window_start.max(1)) * ONE,
            cut_at: 0,
            crowded_until: None,
            called_off: 0,
            members: 0,
            waiting: VecDeque::new(),
            walkers: 0,
            is_dirty: false,
            stand: None,
            wants_since: None,
            timer: None,
        }
    }

    /// Takes over what is known of it now.
    pub(crate) fn know(&mut self, place: &SiteAssignment<'_>, now: Duration) {
        self.limits = place.limits;
        self.expected = place.expected;
        self.rate.set(place.limits.messages_per_second, now);
    }

    /// Connections it may have now.
    pub(crate) fn window(&self) -> u32 {
        let window = u32::try_from(self.window / ONE).unwrap_or(u32::MAX);
        if self.doubted { 1 } else { window.clamp(1, self.limits.connections.max(1)) }
    }

    /// Transactions that the jobs in line need.
    fn work(&self) -> usize {
        self.line.transactions(self.limits.recipients_per_transaction)
    }

    /// Transactions for which rate and pace have room now.
    fn available(&self, now: Duration) -> usize {
        self.rate.available(now).min(self.pace.available(now))
    }

    /// A transaction begins.
    pub(crate) fn spend(&mut self, now: Duration) {
        self.rate.spend(now);
        self.pace.spend(now);
        self.runs_dry(now);
    }

    /// Nothing more can go now: what waits feels the pace.
    pub(crate) fn runs_dry(&mut self, now: Duration) {
        if !self.line.is_empty() {
            self.pace.runs_dry(now);
        }
    }

    /// Transactions that could begin now if there were connections for all.
    pub(crate) fn usable(&self, now: Duration) -> usize {
        if self.line.is_empty() { 0 } else { self.work().min(self.available(now)) }
    }

    /// Connections that were not told to close.
    pub(crate) const fn open(&self) -> u32 {
        self.counts.staying() + self.counts.opening
    }

    /// Connections that are about to ask for work.
    pub(crate) const fn coming(&self) -> usize {
        (self.counts.opening + self.counts.awake).saturating_sub(self.passed_by) as usize
    }

    /// Connections for which nothing waits: behind what they have nothing goes, or nobody counts on their greeting.
    const fn set_aside(&self) -> u32 {
        self.counts.stalling + self.passed_by
    }

    /// These, and those that hang at a bad host while another can be tried.
    const fn useless(&self) -> u32 {
        self.set_aside() + self.counts.apart
    }

    /// Those that count in its window. Beside it there may be as many again that are set aside, and those that hang at other
    /// hosts than the next one goes to.
    pub(crate) fn counted(&self) -> u32 {
        self.counts.all().saturating_sub(self.set_aside().min(self.window())).saturating_sub(self.counts.apart)
    }

    /// Whether an idle connection would have something to do.
    pub(crate) fn wants_wake(&self, now: Duration) -> bool {
        !self.idle.is_empty() && self.usable(now) > self.coming()
    }

    /// Whether one connection more would have enough to do, and the site lets it.
    pub(crate) fn wants_connection(&self, settings: &Settings, late: Overload, now: Duration) -> bool {
        let usable = self.usable(now);
        if usable <= self.coming() || !self.lets(now) {
            return false;
        }
        let open = self.open().min(self.counts.all().saturating_sub(self.set_aside())) as usize;
        let is_much = || usable > open.saturating_mul(settings.jobs_per_connection as usize);
        let is_old =
            || self.counts.opening == self.passed_by && self.patience_ends(settings).is_some_and(|at| at <= now);
        open == 0 || late.until(now).is_none() && (is_much() || is_old())
    }

    /// Whether health and window allow one connection more.
    fn lets(&self, now: Duration) -> bool {
        match &self.down {
            Some(down) => down.until <= now && self.counts.all() <= self.useless() && self.lets_all(),
            None => {
                let is_crowded = self.crowded_until.is_some_and(|until| now < until);
                !(is_crowded && self.counts.all() > self.passed_by) && self.has_room()
            }
        }
    }

    /// Whether it has less connections than its window and its limit.
    fn has_room(&self) -> bool {
        // One that is told to close may have a message that its server never answers, and is one of ours until then.
        let window = if self.called_off > 0 { 1 } else { self.window() };
        self.counted() < window && self.lets_all()
    }

    /// Whether it has more of them.
    pub(crate) fn has_too_many(&self) -> bool {
        let staying = self.counts.staying();
        staying.min(self.counted()) > self.window() || staying > self.limits.connections.max(1)
    }

    /// Whether its limit allows one connection more.
    fn lets_all(&self) -> bool {
        self.counts.all() < self.limits.connections.max(1)
    }

    /// When the job that has waited for longest will have waited too long.
    fn patience_ends(&self, settings: &Settings) -> Option<Duration> {
        self.line.oldest().map(|since| since.saturating_add(settings.patience))
    }

    /// Where it stands among those that want a connection: by time, and by how long it will take; urgent mail as if it had waited
    /// for longer than that can be.
    pub(crate) fn stands_at(&self, since: Duration) -> Duration {
        let expected = if self.is_quiet() { DELAY_MAX } else { self.expected.unwrap_or(UNKNOWN_DELAY) };
        let ahead = if self.line.has_urgent() { DELAY_MAX } else { Duration::ZERO };
        since.saturating_add(expected.min(DELAY_MAX)).saturating_sub(ahead)
    }

    /// What it wants a connection for, if it wants one.
    pub(crate) fn want(&self) -> WaitKind {
        match self.open() {
            _ if self.is_quiet() => WaitKind::Retry,
            0 if self.down.is_some() => WaitKind::Probe,
            0 => WaitKind::First,
            _ => WaitKind::Extra,
        }
    }

    /// Whether it was called off in the fast lane, and is to be asked again.
    fn is_quiet(&self) -> bool {
        self.called_off > 0 && self.lane == Lane::Fast && self.down.is_none()
    }

    /// Whether one job may be taken to see whether the site is up again.
    pub(crate) fn may_probe(&self, now: Duration) -> bool {
        let is_time = self.down.as_ref().is_some_and(|down| down.until <= now);
        is_time && self.counts.all() <= self.useless() && self.line.is_empty()
    }

    /// Jobs it may have in memory from walks.
    pub(crate) fn walk_limit(&self, settings: &Settings, now: Duration) -> usize {
        let limit = settings.ready_max.max(1);
        match &self.down {
            Some(_) => usize::from(self.may_probe(now)),
            None if self.counts.live() == 0 => limit.min(READY_UNGREETED),
            None => limit,
        }
    }

    /// Whether one more of its members may look for work.
    pub(crate) fn has_walk_room(&self, settings: &Settings, now: Duration) -> bool {
        match &self.down {
            Some(_) => self.may_probe(now) && self.walkers == 0,
            None => self.line.walked() <= self.walk_limit(settings, now) / 2 && self.walkers < WALKERS,
        }
    }

    /// A connection was greeted.
    pub(crate) fn revive(&mut self) {
        self.down = None;
    }

    /// A transaction is over, taken at step `taken`.
    pub(crate) fn finished(
        &mut self,
        taken: u64,
        feedback: Feedback,
        (step, now): (u64, Duration),
        settings: &Settings,
        chance: &mut Chance,
    ) {
        match feedback {
            // TimerKey refuses a recipient bears the message.
            Feedback::Good | Feedback::Neutral => self.pace.taken(taken, now),
            Feedback::Unsent => return self.pace.give_back((taken, 0), (step, now)),
            Feedback::Slowdown if settings.learns_pace => {
                self.pace.put_off(taken, (step, now), settings.down_first, chance);
            }
            Feedback::Slowdown | Feedback::Broken | Feedback::NoReply => {}
        }
        // TimerKey says that it is too much, or breaks off, may do so each time.
        if matches!(feedback, Feedback::Good | Feedback::Neutral) {
            self.failures = 0;
            self.doubted = false;
            self.down = None;
        }
        match feedback {
            Feedback::Good => {
                let most = u64::from(self.limits.connections.max(1)) * ONE;
                self.window = (self.window + ONE * ONE / self.window).min(most.max(ONE));
            }
            Feedback::Slowdown | Feedback::Broken | Feedback::NoReply if taken >= self.cut_at => {
                self.window = (self.window / 2).max(ONE);
                self.cut_at = step;
            }
            Feedback::Slowdown | Feedback::Broken | Feedback::NoReply | Feedback::Neutral | Feedback::Unsent => {}
        }
    }

    /// Judges a connection that came to nothing. Says whether the site is down by it, so that its jobs leave memory.
    ///
    /// A site where others live is not down: it takes no more connections than these.
    pub(crate) fn failed(
        &mut self,
        connection: &Connection,
        (failure, why): (Failure, &str),
        (step, now): (u64, Duration),
        settings: &Settings,
        chance: &mut Chance,
    ) -> bool {
        // One message, or one recipient, is not held against a site that answers others; nor what nobody waits for.
        let is_excused = connection.is_excused && std::mem::take(&mut self.is_proven);
        let is_judged = self.down.as_ref().is_none_or(|down| down.until > now) || self.counts.all() > 0;
        // Those that hang, or wait for the answer to a whole message, may all do so in vain.
        let live = self.counts.live().saturating_sub(self.counts.stalling + self.counts.apart);
        let is_passed_by = is_judged && self.is_passed_by(connection);
        if !is_passed_by {
            self.lane = if failure == Failure::Silent { Lane::Slow } else { self.lane };
            self.called_off = 0;
        }
        if is_excused || is_passed_by {
            self.doubted |= live == 0;
            return false;
        }
        let is_dismissed = failure == Failure::Throttled;
        let is_paced =
            is_dismissed && settings.learns_pace && self.pace.turned_away((step, now), settings.down_first, chance);
        if live > 0 {
            if connection.opened >= self.cut_at {
                self.window = (self.window / 2).max(u64::from(live) * ONE);
                self.cut_at = step;
            }
            self.crowded_until = Some(now + jitter(settings.down_first, chance.next()));
            return false;
        }
        if is_paced {
            return false;
        }
        if self.down.is_some() && !connection.probe {
            // It was opened before the site went down: the same failure once more.
            return false;
        }
        // It may be that message alone.
        let is_known = self.failures > 0 && connection.is_excused && self.line.again.is_one_lot();
        self.failures = self.failures.saturating_add(u32::from(!is_known));
        self.doubted = true;
        // TimerKey says nothing costs more to ask.
        let doublings = self.failures.saturating_add(u32::from(self.lane == Lane::Slow));
        let greets = !connection.phase.is_opening();
        // TimerKey turned a message away in good time may take one soon.
        let first = match failure {
            Failure::Refused | Failure::Silent => settings.down_first,
            Failure::Throttled | Failure::Broken => settings.down_first / TURNED_AWAY_PART,
        };
        // And who took some until now may count by the minute.
        let max = if is_dismissed && self.pace.is_stopped(now) { first * 2 } else { settings.down_max };
        let until = on_grid(now, back_off(doublings, first, max, chance.next()));
        self.down = Some(Box::new(DownState { why: kept(why), until, greets }));
        // What waits for who is back begins over one connection: it may be weak yet, and others knock as well.
        self.window = ONE;
        self.crowded_until = None;
        true
    }

    /// Whether the greeting of this connection says nothing, since the site greets and turns away.
    pub(crate) fn doubts(&self, connection: &Connection) -> bool {
        !connection.probe && self.down.as_ref().is_some_and(|down| down.greets)
    }

    /// Whether all that leaves memory now, so many jobs, is to be logged: a host that comes and goes would fill the log with
    /// the same.
    pub(crate) fn tells(&mut self, jobs: usize, settings: &Settings, now: Duration) -> bool {
        if jobs <= TOLD_ALWAYS {
            return true;
        }
        let tells = self.told.is_none_or(|told| now >= told + settings.down_first * TOLD_AGAIN);
        if tells {
            self.told = Some(now);
        }
        tells
    }

    /// Whether a connection is not greeted, and was opened before somebody wanted the site tried.
    pub(crate) fn is_passed_by(&self, connection: &Connection) -> bool {
        connection.phase.is_opening() && connection.opened < self.retried_at
    }

    /// Forgets the back-off. What is opening may hang: it is not waited for.
    pub(crate) fn retry_now(&mut self, step: u64, now: Duration) {
        if self.counts.live() == 0 {
            (self.retried_at, self.passed_by) = (step, self.counts.opening);
        }
        self.crowded_until = None;
        (self.failures, self.called_off) = (0, 0);
        self.pace = Pace::default();
        if let Some(down) = &mut self.down {
            down.until = down.until.min(now);
        }
    }

    /// When it is to be looked at although nothing happens.
    pub(crate) fn next_event(&self, settings: &Settings, late: Overload, now: Duration) -> Option<Duration> {
        let has_work = self.work() > self.coming();
        let is_dry = has_work && self.available(now) == 0;
        let crowded = self.crowded_until.filter(|_| has_work);
        let probe = self.down.as_ref().map(|down| down.until);
        let probe = probe.filter(|_| !self.line.is_empty() || !self.waiting.is_empty());
        let next = |available: usize, at: Duration| if available == 0 { at } else { now };
        let rate = next(self.rate.available(now), self.rate.next());
        let pace = next(self.pace.available(now), self.pace.next());
        let rate = is_dry.then(|| rate.max(pace));
        let patience = self.patience_ends(settings).filter(|_| {
            has_work && !is_dry && self.down.is_none() && self.counts.opening == self.passed_by && self.has_room()
        });
        let late = late.until(now).filter(|_| has_work && !is_dry && self.down.is_none() && self.has_room());
        // What was spent is remembered until it does not count any more.
        let full = (self.members == 0 && self.counts.all() == 0).then(|| self.full_at());
        [crowded, probe, rate, patience, late, full].into_iter().flatten().filter(|&at| at > now).min()
    }

    /// Whether nothing would be lost if it were forgotten.
    pub(crate) fn is_empty(&self, now: Duration) -> bool {
        self.members == 0 && self.counts.all() == 0 && self.line.is_empty() && self.full_at() <= now
    }

    /// When it can be forgotten what went there.
    fn full_at(&self) -> Duration {
        self.rate.full_at().max(self.pace.full_at())
    }

    pub(crate) fn health(&self) -> Health {
        match &self.down {
            Some(down) => Health::Down { why: Arc::clone(&down.why), until: down.until },
            None if self.counts.all() == 0 => Health::Idle,
            None => Health::Up,
        }
    }

    pub(crate) fn view(&self, now: Duration) -> SiteView {
        SiteView {
            name: Arc::clone(&self.name),
            destinations: self.members,
            health: self.health(),
            lane: self.lane,
            ready: self.line.len(),
            in_flight: self.in_flight,
            connections: self.counts.all() as usize,
            window: self.window(),
            limits: self.limits,
            pace: self.pace.known(),
            waits_for_rate: !self.line.is_empty() && self.down.is_none() && self.available(now) == 0,
            waits_since: self.wants_since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_in_part() {
        assert_eq!(&*kept("421 4.3.2 not now"), "421 4.3.2 not now");
        let whole = "x".repeat(WHY_OCTETS_MAX);
        assert_eq!(*kept(&whole), *whole);
        for front in 0..4 {
            let why = kept(&format!("{}{}", "x".repeat(front), "\u{20ac}".repeat(100_000)));
            assert!(
                (WHY_OCTETS_MAX - 3..=WHY_OCTETS_MAX).contains(&why.len()) && why.ends_with("\u{20ac}..."),
                "{why}"
            );
        }
    }
}
