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
use crate::job::{ConnectionId, DestinationId, Failure, Feedback, Lane, Limits, Place};
use crate::line::Line;
use crate::pool::{Connection, Counts};
use crate::rate::Rate;
use crate::settings::{Settings, back_off, jitter};
use crate::stands::Stand;
use crate::view::{Health, SiteView};
use crate::walk::READY_UNGREETED;

/// A window of one connection. Windows are counted in fractions, so that each good answer can add its share.
const ONE: u64 = 1_024;
/// Pages of destinations of one site that may be unanswered: what they bring shares one room.
const WALKERS: usize = 8;
/// How much later than its time a site stands in line of which nothing is known.
const UNKNOWN_DELAY: Duration = Duration::from_millis(250);
/// And at most.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// Why nothing goes there, and until when.
#[derive(Debug)]
pub(crate) struct Down {
    pub(crate) why: Arc<str>,
    pub(crate) until: Duration,
}

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) name: Arc<[u8]>,
    /// Some destination whose hosts these are.
    pub(crate) example: Arc<[u8]>,
    pub(crate) limits: Limits,
    expected: Option<Duration>,
    pub(crate) rate: Rate,
    /// Jobs that wait for a connection.
    pub(crate) line: Line,
    pub(crate) in_flight: usize,
    pub(crate) counts: Counts,
    /// Idle connections, the one that was busy last on top, so that those not needed time out.
    pub(crate) idle: Vec<ConnectionId>,
    pub(crate) down: Option<Box<Down>>,
    /// Failures in a row.
    failures: u32,
    doubted: bool,
    pub(crate) lane: Lane,
    window: u64,
    /// Step at which the window was cut last. What began before says nothing new.
    cut_at: u64,
    /// No more connections until then: one was refused while others lived.
    crowded_until: Option<Duration>,
    /// Destinations that know it as theirs.
    pub(crate) members: usize,
    /// Members whose walks wait for room, or for the site to be up. Those that left are stepped over.
    pub(crate) waiting: VecDeque<DestinationId>,
    /// Pages of members that were asked for and not answered.
    pub(crate) walkers: usize,
    pub(crate) is_dirty: bool,
    pub(crate) stand: Option<Stand>,
    /// Since when it wants a connection that the budget does not have.
    pub(crate) wants_since: Option<Duration>,
    pub(crate) timer: Option<Duration>,
}

impl Site {
    pub(crate) fn new(place: &Place<'_>, example: Arc<[u8]>, settings: &Settings) -> Self {
        Self {
            name: place.site.into(),
            example,
            limits: place.limits,
            expected: None,
            rate: Rate::default(),
            line: Line::default(),
            in_flight: 0,
            counts: Counts::default(),
            idle: Vec::new(),
            down: None,
            failures: 0,
            doubted: false,
            lane: Lane::Fast,
            window: u64::from(settings.window_start.max(1)) * ONE,
            cut_at: 0,
            crowded_until: None,
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
    pub(crate) fn know(&mut self, place: &Place<'_>, now: Duration) {
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

    /// Transactions that could begin now if there were connections for all.
    pub(crate) fn usable(&self, now: Duration) -> usize {
        if self.line.is_empty() { 0 } else { self.work().min(self.rate.available(now)) }
    }

    /// Connections that were not told to close.
    pub(crate) const fn open(&self) -> u32 {
        self.counts.staying() + self.counts.opening
    }

    /// Connections that are about to ask for work.
    pub(crate) const fn coming(&self) -> usize {
        (self.counts.opening + self.counts.awake) as usize
    }

    /// Whether an idle connection would have something to do.
    pub(crate) fn wants_wake(&self, now: Duration) -> bool {
        !self.idle.is_empty() && self.usable(now) > self.coming()
    }

    /// Whether one connection more would have enough to do, and the site lets it.
    pub(crate) fn wants_connection(&self, settings: &Settings, now: Duration) -> bool {
        let usable = self.usable(now);
        if usable <= self.coming() || !self.lets(now) {
            return false;
        }
        let open = self.open() as usize;
        open == 0
            || usable > open.saturating_mul(settings.jobs_per_connection as usize)
            || self.counts.opening == 0 && self.patience_ends(settings).is_some_and(|at| at <= now)
    }

    /// Whether health and window allow one connection more.
    fn lets(&self, now: Duration) -> bool {
        match &self.down {
            Some(down) => down.until <= now && self.counts.all() == 0,
            None => {
                let is_crowded = self.crowded_until.is_some_and(|until| now < until) && self.counts.all() > 0;
                // One that is told to close may have a message that its server never answers, and is one of ours until then.
                !is_crowded && self.counts.all() < self.window()
            }
        }
    }

    /// When the job that has waited for longest will have waited too long.
    fn patience_ends(&self, settings: &Settings) -> Option<Duration> {
        self.line.oldest().map(|since| since.saturating_add(settings.patience))
    }

    /// Where it stands among those that want a connection: by time, and by how long it will take.
    pub(crate) fn stands_at(&self, since: Duration) -> Duration {
        since.saturating_add(self.expected.unwrap_or(UNKNOWN_DELAY).min(DELAY_MAX))
    }

    /// Whether one job may be taken to see whether the site is up again.
    pub(crate) fn may_probe(&self, now: Duration) -> bool {
        self.down.as_ref().is_some_and(|down| down.until <= now) && self.counts.all() == 0 && self.line.is_empty()
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
    pub(crate) fn finished(&mut self, taken: u64, feedback: Feedback, step: u64) {
        if feedback != Feedback::Lost {
            self.failures = 0;
            self.doubted = false;
        }
        match feedback {
            Feedback::Good => {
                let most = u64::from(self.limits.connections.max(1)) * ONE;
                self.window = (self.window + ONE * ONE / self.window).min(most.max(ONE));
            }
            Feedback::Slowdown | Feedback::Lost if taken >= self.cut_at => {
                self.window = (self.window / 2).max(ONE);
                self.cut_at = step;
            }
            Feedback::Slowdown | Feedback::Lost | Feedback::Neutral => {}
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
        if failure == Failure::Silent {
            self.lane = Lane::Slow;
        }
        let live = self.counts.live();
        if live > 0 {
            if connection.opened >= self.cut_at {
                self.window = (self.window / 2).max(u64::from(live) * ONE);
                self.cut_at = step;
            }
            self.crowded_until = Some(now + jitter(settings.down_first, chance.next()));
            return false;
        }
        if self.down.is_some() && !connection.probe {
            // It was opened before the site went down: the same failure once more.
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.doubted = true;
        // Who says nothing costs more to ask.
        let doublings = self.failures.saturating_add(u32::from(self.lane == Lane::Slow));
        let until = now + back_off(doublings, settings.down_first, settings.down_max, chance.next());
        self.down = Some(Box::new(Down { why: why.into(), until }));
        self.window = u64::from(settings.window_start.max(1)) * ONE;
        self.crowded_until = None;
        true
    }

    /// Forgets the back-off.
    pub(crate) fn retry_now(&mut self, now: Duration) {
        self.crowded_until = None;
        self.failures = 0;
        if let Some(down) = &mut self.down {
            down.until = down.until.min(now);
        }
    }

    /// When it is to be looked at although nothing happens.
    pub(crate) fn next_event(&self, settings: &Settings, now: Duration) -> Option<Duration> {
        let has_work = self.work() > self.coming();
        let is_dry = has_work && self.rate.available(now) == 0;
        let crowded = self.crowded_until.filter(|_| has_work);
        let probe = self.down.as_ref().map(|down| down.until);
        let probe = probe.filter(|_| !self.line.is_empty() || !self.waiting.is_empty());
        let rate = is_dry.then(|| self.rate.next());
        let patience = self.patience_ends(settings).filter(|_| {
            has_work && !is_dry && self.down.is_none() && self.counts.opening == 0 && self.counts.all() < self.window()
        });
        // What was spent is remembered until it does not count any more.
        let full = (self.members == 0 && self.counts.all() == 0).then(|| self.rate.full_at());
        [crowded, probe, rate, patience, full].into_iter().flatten().filter(|&at| at > now).min()
    }

    /// Whether nothing would be lost if it were forgotten.
    pub(crate) fn is_empty(&self, now: Duration) -> bool {
        self.members == 0 && self.counts.all() == 0 && self.line.is_empty() && self.rate.full_at() <= now
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
            waits_for_rate: !self.line.is_empty() && self.down.is_none() && self.rate.available(now) == 0,
        }
    }
}
