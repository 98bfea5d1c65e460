//! One destination: its health, its window, and the jobs that wait in memory.
//!
//! It is *up* until it fails, and then *down* until a connection is greeted. While it is down nothing of it is in memory
//! but, at the time of the probe, one job. It is *doubted* from its failure until a transaction came to an end, and has
//! one connection so long. The walk through its list is in `walk`.
//!
//! Left for later: the line of ready jobs is first come, first served. With priority classes it becomes one line for
//! each class, served by deficit round robin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mail::QueueId;

use crate::active::Active;
use crate::chance::Chance;
use crate::job::{Added, ConnectionId, Feedback, Job, Positions};
use crate::pool::{Connection, Counts, Flight};
use crate::settings::{Settings, back_off, jitter};
use crate::view::{Health, View};
use crate::walk::{Loading, Walk};

/// A window of one connection. Windows are counted in fractions, so that each good answer can add its share.
const ONE: u64 = 1_024;

/// A job that waits in memory.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) message: QueueId,
    pub(crate) recipients: Positions,
    /// The sender was told of the delay already.
    pub(crate) warned: bool,
}

#[derive(Debug)]
pub(crate) struct Down {
    pub(crate) why: Arc<str>,
    pub(crate) until: Duration,
}

#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) name: Arc<[u8]>,
    /// Jobs that wait for a connection, the next one in front.
    pub(crate) ready: VecDeque<Ready>,
    pub(crate) active: Active,
    pub(crate) in_flight: usize,
    pub(crate) counts: Counts,
    /// Idle connections, the one that was busy last on top, so that those not needed time out.
    pub(crate) idle: Vec<ConnectionId>,
    pub(crate) down: Option<Box<Down>>,
    /// Failures in a row.
    failures: u32,
    doubted: bool,
    window: u64,
    /// Step at which the window was cut last. What began before says nothing new.
    cut_at: u64,
    /// No more connections until then: one was refused while others lived.
    pub(crate) crowded_until: Option<Duration>,
    pub(crate) walk: Option<Box<Walk>>,
    pub(crate) loading: Loading,
    /// Messages of which a job ended while a page was being read: the page may show what was before.
    pub(crate) ended: Vec<QueueId>,
    /// The list may have eligible entries that are not active.
    pub(crate) more: bool,
    /// When the list is to be looked through at the latest.
    pub(crate) look_at: Option<Duration>,
    /// No walk by the clock before.
    pub(crate) rest_until: Duration,
    /// No walk for more work before.
    pub(crate) again_from: Duration,
    /// `Overdue` actions that were not answered yet.
    pub(crate) overdue: usize,
    pub(crate) is_dirty: bool,
    /// It stands in line for its first connection.
    pub(crate) is_hungry: bool,
    /// It stands in line for one connection more.
    pub(crate) is_greedy: bool,
    pub(crate) timer: Option<Duration>,
}

impl Destination {
    pub(crate) fn new(name: Arc<[u8]>, settings: &Settings) -> Self {
        Self {
            name,
            ready: VecDeque::new(),
            active: Active::default(),
            in_flight: 0,
            counts: Counts::default(),
            idle: Vec::new(),
            down: None,
            failures: 0,
            doubted: false,
            window: u64::from(settings.window_start.max(1)) * ONE,
            cut_at: 0,
            crowded_until: None,
            walk: None,
            loading: Loading::No,
            ended: Vec::new(),
            more: false,
            look_at: None,
            rest_until: Duration::ZERO,
            again_from: Duration::ZERO,
            overdue: 0,
            is_dirty: false,
            is_hungry: false,
            is_greedy: false,
            timer: None,
        }
    }

    /// Takes a fresh message into memory if it is its turn.
    pub(crate) fn add(&mut self, job: Job, settings: &Settings, now: Duration) -> Added {
        if self.active.has_any(job.message, &job.recipients) {
            // A walk saw it in the spool before its owner came to say so.
            return Added::Ready;
        }
        let is_read = !self.more && self.walk.is_none() && self.loading == Loading::No;
        if let Some(down) = &self.down {
            let may_probe = is_read && down.until <= now && self.ready.is_empty() && self.counts.all() == 0;
            if !may_probe || job.recipients.len() > 100_usize.max(1) {
                self.more = true;
                return Added::Down { why: Arc::clone(&down.why), retry_at: down.until };
            }
        } else {
            let jobs = job.recipients.len().div_ceil(100_usize.max(1));
            if !is_read || self.ready.len() + jobs > settings.ready_max.max(1) {
                self.more = true;
                return Added::Waits;
            }
        }
        self.line_up(job.message, job.recipients, false, settings);
        Added::Ready
    }

    /// Forms jobs of recipients that are not active, and puts them at the end of the line.
    pub(crate) fn line_up(&mut self, message: QueueId, recipients: Positions, warned: bool, settings: &Settings) {
        let largest = 100_usize.max(1);
        if recipients.len() <= largest && recipients.as_slice().is_sorted() {
            self.active.insert(message, recipients.clone());
            self.ready.push_back(Ready { message, recipients, warned });
            return;
        }
        let mut sorted = recipients.as_slice().to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        for part in sorted.chunks(largest) {
            let recipients = Positions::from(part);
            self.active.insert(message, recipients.clone());
            self.ready.push_back(Ready { message, recipients, warned });
        }
    }

    /// Connections it may have now.
    pub(crate) fn window(&self, settings: &Settings) -> u32 {
        let window = u32::try_from(self.window / ONE).unwrap_or(u32::MAX);
        if self.doubted { 1 } else { window.clamp(1, 20_u32.max(1)) }
    }

    /// Whether one connection more would have something to do, and the destination lets it.
    pub(crate) fn wants_connection(&self, settings: &Settings, now: Duration) -> bool {
        if self.ready.len() <= self.coming() {
            return false;
        }
        match &self.down {
            Some(down) => down.until <= now && self.counts.all() == 0,
            None => {
                let is_crowded = self.crowded_until.is_some_and(|until| now < until) && self.counts.all() > 0;
                // One that is told to close may have a message that its server never answers, and is one of ours until then.
                !is_crowded && self.counts.all() < self.window(settings)
            }
        }
    }

    /// Connections that were not told to close.
    pub(crate) const fn open(&self) -> u32 {
        self.counts.staying() + self.counts.opening
    }

    /// Connections that are about to ask for work.
    pub(crate) fn coming(&self) -> usize {
        (self.counts.opening + self.counts.awake) as usize
    }

    /// A connection was greeted. What is known of the list was learned for a probe only.
    pub(crate) fn revive(&mut self) {
        if self.down.take().is_some() {
            self.more = true;
        }
    }

    /// A transaction came to an end.
    pub(crate) fn finished(
        &mut self,
        flight: &Flight,
        feedback: Feedback,
        retry: Option<Duration>,
        step: u64,
        settings: &Settings,
    ) {
        self.in_flight -= 1;
        self.release(flight.message, &flight.recipients);
        self.failures = 0;
        self.doubted = false;
        match feedback {
            Feedback::Good => {
                let most = u64::from(20_u32.max(1)) * ONE;
                self.window = (self.window + ONE * ONE / self.window).min(most);
            }
            Feedback::Slowdown if flight.taken >= self.cut_at => {
                self.window = (self.window / 2).max(ONE);
                self.cut_at = step;
            }
            Feedback::Slowdown | Feedback::Neutral => {}
        }
        if let Some(due) = retry {
            self.look_by(check_at(flight.message, due, flight.warned, settings));
        }
    }

    /// Frees recipients that were active.
    pub(crate) fn release(&mut self, message: QueueId, recipients: &Positions) {
        self.active.remove(message, recipients);
        self.active.shrink();
        if self.loading == Loading::Yes {
            self.ended.push(message);
        }
    }

    /// Takes a job back that was not tried.
    pub(crate) fn take_back(&mut self, flight: Flight) {
        self.in_flight -= 1;
        if self.down.is_some() {
            self.release(flight.message, &flight.recipients);
            self.more = true;
        } else {
            let Flight { message, recipients, warned, .. } = flight;
            self.ready.push_front(Ready { message, recipients, warned });
        }
    }

    /// Judges a connection that came to nothing; returns the jobs that leave memory because the destination is down now.
    ///
    /// A destination where others live is not down: it takes no more connections than these.
    pub(crate) fn failed(
        &mut self,
        connection: &Connection,
        why: &str,
        (step, now): (u64, Duration),
        settings: &Settings,
        chance: &mut Chance,
    ) -> Vec<Job> {
        let live = self.counts.live();
        if live > 0 {
            if connection.opened >= self.cut_at {
                self.window = (self.window / 2).max(u64::from(live) * ONE);
                self.cut_at = step;
            }
            self.crowded_until = Some(now + jitter(settings.down_first, chance.next()));
            return Vec::new();
        }
        if self.down.is_some() && !connection.probe {
            // It was opened before the destination went down: the same failure once more.
            return Vec::new();
        }
        self.failures = self.failures.saturating_add(1);
        self.doubted = true;
        let until = now + back_off(self.failures, settings.down_first, settings.down_max, chance.next());
        let was_up = self.down.replace(Box::new(Down { why: why.into(), until })).is_none();
        self.window = u64::from(settings.window_start.max(1)) * ONE;
        self.crowded_until = None;
        self.more = true;
        if self.walk.take().is_some() || was_up {
            // What is too old is not to wait for the probe.
            self.look_by(now);
        }
        if self.loading == Loading::Yes {
            self.loading = Loading::Stale;
        }
        let mut jobs = Vec::with_capacity(self.ready.len());
        for Ready { message, recipients, .. } in std::mem::take(&mut self.ready) {
            self.release(message, &recipients);
            jobs.push(Job { message, recipients, probe: connection.probe });
        }
        jobs
    }

    /// Forgets the back-off, and looks through the list as soon as can be.
    pub(crate) fn retry_now(&mut self, now: Duration) {
        self.more = true;
        self.look_by(now);
        (self.rest_until, self.again_from) = (now, now);
        self.crowded_until = None;
        self.failures = 0;
        if let Some(down) = &mut self.down {
            down.until = down.until.min(now);
        }
    }

    /// Has the list looked through by then.
    pub(crate) fn look_by(&mut self, at: Duration) {
        self.look_at = Some(self.look_at.map_or(at, |before| before.min(at)));
    }

    /// When it is to be looked at although nothing happens.
    pub(crate) fn next_event(&self, settings: &Settings, now: Duration) -> Option<Duration> {
        let crowded = self.crowded_until.filter(|&until| until > now && self.ready.len() > self.coming());
        let probe = self.down.as_ref().map(|down| down.until).filter(|&until| until > now && !self.ready.is_empty());
        [crowded, probe, self.next_walk(settings)].into_iter().flatten().min()
    }

    /// Whether nothing would be lost if it were forgotten.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
            && self.active.is_empty()
            && self.counts.all() == 0
            && self.walk.is_none()
            && self.loading == Loading::No
            && !self.more
            && self.look_at.is_none()
            && !self.is_hungry
            && !self.is_greedy
    }

    pub(crate) fn view(&self, settings: &Settings) -> View {
        let health = match &self.down {
            Some(down) => Health::Down { why: Arc::clone(&down.why), until: down.until },
            None if self.counts.all() == 0 => Health::Idle,
            None => Health::Up,
        };
        View {
            name: Arc::clone(&self.name),
            site: None,
            lane: crate::job::Lane::Fast,
            ready_by_class: [0, self.ready.len(), 0],
            limits: None,
            health,
            ready: self.ready.len(),
            in_flight: self.in_flight,
            connections: self.counts.all() as usize,
            window: self.window(settings),
            more: self.more || self.walk.is_some(),
        }
    }
}

/// When a recipient that is due at `due` is to be looked at: then, or when it becomes overdue before.
pub(crate) fn check_at(message: QueueId, due: Duration, warned: bool, settings: &Settings) -> Duration {
    let created = Duration::from_micros(message.unix_us());
    let at = due.min(created.saturating_add(settings.give_up_after));
    match settings.warn_after {
        Some(after) if !warned => at.min(created.saturating_add(after)),
        _ => at,
    }
}
