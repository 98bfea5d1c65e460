//! One site, the next hop of one or many destinations: its health, window, lane and ready queue.
//!
//! It is *up* until it fails, and then *down* until a connection is greeted. While it is down its only job in memory is
//! the probe. It is *doubted* from a failure to the next finished transaction, and has one connection meanwhile. A
//! silence moves it to the slow lane; a job answered in time moves it back.
//!
//! Each destination knows its site; the site only counts its destinations. Their scans wait here for room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::chance::Chance;
use crate::connection_wait::{WaitKind, Waiter};
use crate::idle_connections::Arrivals;
use crate::job::{ConnectionId, DestinationId, Failure, Feedback, Lane, Limits, SiteAssignment, SiteShare};
use crate::overload::Overload;
use crate::pace::Pace;
use crate::pool::{Connection, PhaseCounts};
use crate::ready_queue::ReadyQueue;
use crate::settings::{READY_UNGREETED, Settings, back_off, jitter, on_grid};
use crate::site_report::AppliedReport;
use crate::token_bucket::TokenBucket;
use crate::view::{Health, SiteView};

/// A window of one connection. Windows are fractions, so that each good answer can add its share.
const ONE: u64 = 1_024;
/// Maximum number of pages being read for the destinations of one site: their entries share one room.
const PAGES_PENDING_MAX: usize = 8;
/// The first back-off of a host that refuses or breaks off a message is shorter by this factor than that of an
/// unreachable one.
const REFUSED_DIVISOR: u32 = 8;
/// Up to this many jobs are logged each time their site goes down; more of them once in `LOG_ALL_PAUSES` times
/// `down_first`.
const LOG_ALL_MAX: usize = 8;
const LOG_ALL_PAUSES: u32 = 5;
/// Octets of a failure reason that are kept per site and per destination.
const WHY_OCTETS_MAX: usize = 512;
/// Expected connect time of an unknown site.
const UNKNOWN_DELAY: Duration = Duration::from_millis(250);
/// Longest expected connect time.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// Why and until when the site is down.
#[derive(Debug)]
pub(crate) struct DownState {
    pub(crate) why: Arc<str>,
    pub(crate) until: Duration,
    /// The host greets and then refuses: only the greeting of the probe counts.
    pub(crate) greets: bool,
    /// The end of the back-off of this machine; `None` if it found no failure itself.
    pub(crate) own_until: Option<Duration>,
    /// The time from which reports of other machines do not put the next attempt off any further.
    pub(crate) report_limit: Duration,
    /// The report by which it is down, or down for longer.
    pub(crate) report: Option<AppliedReport>,
}

impl DownState {
    /// A failure that this machine found, with its back-off.
    pub(crate) fn own(why: &str, until: Duration, greets: bool, report_limit: Duration) -> Self {
        Self { why: truncated(why), until, greets, own_until: Some(until), report_limit, report: None }
    }

    /// Returns whether only other machines found a failure.
    pub(crate) const fn is_only_reported(&self) -> bool {
        self.own_until.is_none()
    }
}

/// Shortens a failure reason to [`WHY_OCTETS_MAX`], at a character boundary and with a mark. Another server may have
/// written it.
pub(crate) fn truncated(why: &str) -> Arc<str> {
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
    /// A destination with these hosts.
    pub(crate) example: Arc<[u8]>,
    pub(crate) limits: Limits,
    /// The part of the limits that this machine may use, if several share them.
    pub(crate) share: Option<SiteShare>,
    /// Transactions that were started.
    pub(crate) started: u64,
    expected: Option<Duration>,
    /// The configured rate.
    rate: TokenBucket,
    /// The learned pace.
    pub(crate) pace: Pace,
    /// How often messages arrive for it.
    pub(crate) arrivals: Arrivals,
    /// Jobs that wait for a connection.
    pub(crate) ready_queue: ReadyQueue,
    pub(crate) in_flight: usize,
    pub(crate) counts: PhaseCounts,
    /// Idle connections, the latest one last. It is used first, so that connections that are not needed time out.
    pub(crate) idle: Vec<ConnectionId>,
    pub(crate) down: Option<Box<DownState>>,
    /// Consecutive failures.
    failures: u32,
    pub(crate) doubted: bool,
    /// Another machine reported a failure, and this one has no result since.
    pub(crate) is_reported: bool,
    /// An operator asked for an attempt, and this machine has no result since: reports do not put it off.
    pub(crate) is_forced: bool,
    /// When another machine's report that it is up last ended a back-off of this one.
    pub(crate) up_taken_at: Option<Duration>,
    /// A reply came since the last failure that was excused.
    pub(crate) is_proven: bool,
    /// Connections that opened before this step and are not greeted do not count: `retry_now` was called.
    superseded_before: u64,
    /// How many connections that are.
    pub(crate) superseded: u32,
    /// When all jobs that left memory with it were last returned for the log.
    all_logged_at: Option<Duration>,
    pub(crate) lane: Lane,
    window: u64,
    /// Step of the last cut of the window. Transactions that began earlier do not cut it again.
    cut_at: u64,
    /// No further connection until then: one was refused while others lived.
    crowded_until: Option<Duration>,
    /// Consecutive connections that were cancelled before the greeting.
    pub(crate) cancels: usize,
    /// Destinations with this site.
    pub(crate) destinations: usize,
    /// Destinations whose scans wait for room, or for the site to be up. Those that left are skipped.
    pub(crate) scans_waiting: VecDeque<DestinationId>,
    /// Pages of its destinations that are being read.
    pub(crate) pages_pending: usize,
    pub(crate) is_dirty: bool,
    pub(crate) waiter: Option<Waiter>,
    /// Since when it waits for a place.
    pub(crate) wants_since: Option<Duration>,
    pub(crate) timer: Option<Duration>,
}

impl Site {
    pub(crate) fn new(place: &SiteAssignment<'_>, example: Arc<[u8]>, settings: &Settings) -> Self {
        Self {
            name: place.site.into(),
            example,
            limits: place.limits,
            share: None,
            started: 0,
            expected: None,
            rate: TokenBucket::default(),
            pace: Pace::default(),
            arrivals: Arrivals::default(),
            ready_queue: ReadyQueue::default(),
            in_flight: 0,
            counts: PhaseCounts::default(),
            idle: Vec::new(),
            down: None,
            failures: 0,
            doubted: false,
            is_reported: false,
            is_forced: false,
            up_taken_at: None,
            is_proven: false,
            superseded_before: 0,
            superseded: 0,
            all_logged_at: None,
            lane: Lane::Fast,
            window: u64::from(settings.window_start.max(1)) * ONE,
            cut_at: 0,
            crowded_until: None,
            cancels: 0,
            destinations: 0,
            scans_waiting: VecDeque::new(),
            pages_pending: 0,
            is_dirty: false,
            waiter: None,
            wants_since: None,
            timer: None,
        }
    }

    /// Updates the limits and the expected connect time.
    pub(crate) fn update(&mut self, place: &SiteAssignment<'_>, now: Duration) {
        self.limits = place.limits;
        self.expected = place.expected;
        match self.share {
            Some(share) => self.set_share(share, now),
            None => self.rate.set(place.limits.messages_per_second, now),
        }
    }

    /// Sets its configured rate.
    pub(crate) fn set_rate(&mut self, limit: Option<u32>, now: Duration) {
        self.rate.set(limit, now);
    }

    /// Sets the part of its limits that this machine may use. A rate begins without tokens, and one of zero loses
    /// them: another machine may have used them.
    pub(crate) fn set_share(&mut self, share: SiteShare, now: Duration) {
        let had = self.share.and_then(|share| share.messages_per_second).filter(|rate| *rate > 0);
        self.share = Some(share);
        let rate = share.messages_per_second.map(|rate| rate.min(self.limits.messages_per_second.unwrap_or(u32::MAX)));
        self.rate.set_keeping_tokens(rate, had.is_some(), now);
    }

    /// Returns how many connections its limits allow.
    pub(crate) fn connections_max(&self) -> u32 {
        let most = self.limits.connections.max(1);
        self.share.map_or(most, |share| share.connections.min(most))
    }

    /// Returns how many connections it may have now.
    pub(crate) fn window(&self) -> u32 {
        let window = u32::try_from(self.window / ONE).unwrap_or(u32::MAX);
        if self.doubted { 1 } else { window.clamp(1, self.limits.connections.max(1)) }
    }

    /// Returns the number of transactions that the queued jobs need.
    pub(crate) fn work(&self) -> usize {
        self.ready_queue.transactions(self.limits.recipients_per_transaction)
    }

    /// Returns the number of transactions that rate and pace allow now.
    fn available(&self, now: Duration) -> usize {
        let is_barred = self.share.is_some_and(|share| share.messages_per_second == Some(0));
        if is_barred { 0 } else { self.rate.available(now).min(self.pace.available(now)) }
    }

    /// Spends a token for a transaction that starts.
    pub(crate) fn spend(&mut self, now: Duration) {
        self.started += 1;
        self.rate.spend(now);
        self.pace.spend(now);
        self.note_shortage(now);
    }

    /// Records that jobs wait for rate or pace.
    pub(crate) fn note_shortage(&mut self, now: Duration) {
        if !self.ready_queue.is_empty() {
            self.pace.note_shortage(now);
        }
    }

    /// Returns how many transactions could start now with enough connections.
    pub(crate) fn usable(&self, now: Duration) -> usize {
        if self.ready_queue.is_empty() { 0 } else { self.work().min(self.available(now)) }
    }

    /// Returns how many connections are not closing.
    pub(crate) const fn open(&self) -> u32 {
        self.counts.staying() + self.counts.opening
    }

    /// Returns how many connections are about to ask for work.
    pub(crate) const fn about_to_ask(&self) -> usize {
        (self.counts.opening + self.counts.awake).saturating_sub(self.superseded) as usize
    }

    /// Returns how many connections nothing waits for: nothing is sent behind their job, or their greeting is not
    /// expected.
    const fn not_waited_for(&self) -> u32 {
        self.counts.stalled + self.superseded
    }

    /// Returns the same plus those at a bad host.
    const fn useless(&self) -> u32 {
        self.not_waited_for() + self.counts.at_bad_host
    }

    /// Returns how many connections count in the window. As many again that nothing waits for may exist beside it, and
    /// those at a bad host.
    pub(crate) fn counted(&self) -> u32 {
        self.counts
            .total()
            .saturating_sub(self.not_waited_for().min(self.window()))
            .saturating_sub(self.counts.at_bad_host)
    }

    /// Returns whether an idle connection would get a job.
    pub(crate) fn wants_wake(&self, now: Duration) -> bool {
        !self.idle.is_empty() && self.usable(now) > self.about_to_ask()
    }

    /// Returns whether one more connection would have enough work, and may be opened.
    pub(crate) fn wants_connection(&self, settings: &Settings, overload: Overload, now: Duration) -> bool {
        let usable = self.usable(now);
        if usable <= self.about_to_ask() || !self.allows_connection(now) {
            return false;
        }
        let open = self.open().min(self.counts.total().saturating_sub(self.not_waited_for())) as usize;
        let is_much = || usable > open.saturating_mul(settings.jobs_per_connection as usize);
        let is_old =
            || self.counts.opening == self.superseded && self.job_wait_ends(settings).is_some_and(|at| at <= now);
        open == 0 || overload.until(now).is_none() && (is_much() || is_old())
    }

    /// Returns whether health and window allow one more connection.
    fn allows_connection(&self, now: Duration) -> bool {
        match &self.down {
            Some(down) => down.until <= now && self.counts.total() <= self.useless() && self.is_below_limit(),
            None => {
                let is_crowded = self.crowded_until.is_some_and(|until| now < until);
                !(is_crowded && self.counts.total() > self.superseded) && self.has_room()
            }
        }
    }

    /// Returns whether it has fewer connections than its window and its limit.
    fn has_room(&self) -> bool {
        // A closing connection may have a message that its server never answers, and counts until it ends.
        let window = if self.cancels > 0 { 1 } else { self.window() };
        self.counted() < window && self.is_below_limit()
    }

    /// Returns whether it has more connections than its window or its limit.
    pub(crate) fn has_too_many(&self) -> bool {
        let staying = self.counts.staying();
        staying.min(self.counted()) > self.window() || staying > self.connections_max()
    }

    /// Returns whether its limit allows one more connection.
    fn is_below_limit(&self) -> bool {
        self.counts.total() < self.connections_max()
    }

    /// Returns when the oldest job has waited for `job_wait_max`.
    fn job_wait_ends(&self, settings: &Settings) -> Option<Duration> {
        self.ready_queue.oldest().map(|since| since.saturating_add(settings.job_wait_max))
    }

    /// Returns its key in the wait queue: the start of the wait plus the expected connect time. Urgent mail ranks ahead
    /// of all that.
    pub(crate) fn wait_key(&self, since: Duration) -> Duration {
        let expected = if self.is_retry() { DELAY_MAX } else { self.expected.unwrap_or(UNKNOWN_DELAY) };
        let ahead = if self.ready_queue.has_urgent() { DELAY_MAX } else { Duration::ZERO };
        since.saturating_add(expected.min(DELAY_MAX)).saturating_sub(ahead)
    }

    /// Returns what it would wait for.
    pub(crate) fn wait_kind(&self) -> WaitKind {
        match self.open() {
            _ if self.is_retry() => WaitKind::Retry,
            0 if self.down.is_some() => WaitKind::Probe,
            0 => WaitKind::First,
            _ => WaitKind::Extra,
        }
    }

    /// Returns whether its last attempt in the fast lane was cancelled before the greeting.
    fn is_retry(&self) -> bool {
        self.cancels > 0 && self.lane == Lane::Fast && self.down.is_none()
    }

    /// Returns whether one job may be enqueued as the probe.
    pub(crate) fn may_probe(&self, now: Duration) -> bool {
        let is_time = self.down.as_ref().is_some_and(|down| down.until <= now);
        is_time && self.counts.total() <= self.useless() && self.ready_queue.is_empty()
    }

    /// Returns how many jobs from scans it may have in memory.
    pub(crate) fn scan_limit(&self, settings: &Settings, now: Duration) -> usize {
        let limit = settings.ready_max.max(1);
        match &self.down {
            Some(_) => usize::from(self.may_probe(now)),
            None if self.counts.greeted() == 0 => limit.min(READY_UNGREETED),
            None => limit,
        }
    }

    /// Returns whether one more of its destinations may scan for work.
    pub(crate) fn has_scan_room(&self, settings: &Settings, now: Duration) -> bool {
        match &self.down {
            Some(_) => self.may_probe(now) && self.pages_pending == 0,
            None => {
                self.ready_queue.scanned() <= self.scan_limit(settings, now) / 2
                    && self.pages_pending < PAGES_PENDING_MAX
            }
        }
    }

    /// Marks it as up: a connection was greeted.
    pub(crate) fn mark_up(&mut self) {
        self.down = None;
    }

    /// Updates pace, window and health by a transaction that started at step `taken`.
    pub(crate) fn transaction_done(
        &mut self,
        taken: u64,
        feedback: Feedback,
        (step, now): (u64, Duration),
        settings: &Settings,
        chance: &mut Chance,
    ) {
        match feedback {
            // A host that refuses a recipient still bears the message.
            Feedback::Good | Feedback::Neutral => self.pace.accepted(taken, now),
            Feedback::Unsent => return self.pace.give_back((taken, 0), (step, now)),
            Feedback::Slowdown if settings.learn_pace => {
                self.pace.deferred(taken, (step, now), settings.down_first, chance);
            }
            Feedback::Slowdown | Feedback::Broken | Feedback::NoReply => {}
        }
        // A host that refuses a message as too much, or breaks off in it, may do so each time.
        if matches!(feedback, Feedback::Good | Feedback::Neutral) {
            self.failures = 0;
            (self.doubted, self.is_reported, self.is_forced) = (false, false, false);
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

    /// Judges a failed connection. Returns whether the site is down by it, so that its jobs leave memory.
    ///
    /// A site with other live connections is not down: it opens no more than these.
    pub(crate) fn connection_failed(
        &mut self,
        connection: &Connection,
        (failure, why): (Failure, &str),
        (step, now): (u64, Duration),
        settings: &Settings,
        chance: &mut Chance,
    ) -> bool {
        // One poisonous message or recipient is not held against a site that answers others; nor is a connection that
        // nothing waits for.
        let is_excused = connection.is_excused && std::mem::take(&mut self.is_proven);
        let is_judged = self.down.as_ref().is_none_or(|down| down.until > now) || self.counts.total() > 0;
        // Stalled connections, and those at a bad host, may never get a reply.
        let live = self.counts.greeted().saturating_sub(self.counts.stalled + self.counts.at_bad_host);
        let is_superseded = is_judged && self.is_superseded(connection);
        if !is_superseded {
            self.lane = if failure == Failure::Silent { Lane::Slow } else { self.lane };
            self.cancels = 0;
        }
        if is_excused || is_superseded {
            self.doubted |= live == 0;
            return false;
        }
        let is_dismissed = failure == Failure::Throttled;
        let is_paced =
            is_dismissed && settings.learn_pace && self.pace.refused((step, now), settings.down_first, chance);
        if live > 0 {
            if connection.opened_at_step >= self.cut_at {
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
            // It opened before the site went down: the same failure again.
            return false;
        }
        // That message alone may be the cause.
        let is_known = self.failures > 0 && connection.is_excused && self.ready_queue.suspects.is_one_batch();
        // Another machine has come this far with its back-off.
        let reported_step = self.down.as_ref().and_then(|down| down.report.as_ref()).map_or(0, |report| report.step);
        self.failures = self.failures.saturating_add(u32::from(!is_known)).max(reported_step);
        (self.doubted, self.is_reported, self.is_forced) = (true, false, false);
        // A probe of a silent host costs more.
        let doublings = self.failures.saturating_add(u32::from(self.lane == Lane::Slow));
        let greets = !connection.phase.is_opening();
        // A host that refused a message in time may accept one soon.
        let first = match failure {
            Failure::Refused | Failure::Silent | Failure::Tls | Failure::Local => settings.down_first,
            Failure::Throttled | Failure::Broken => settings.down_first / REFUSED_DIVISOR,
        };
        // A host that accepted mail until now may count per minute.
        let max = if is_dismissed && self.pace.is_stop_recent(now) { first * 2 } else { settings.down_max };
        let until = on_grid(now, back_off(doublings, first, max, chance.next()));
        self.down = Some(Box::new(DownState::own(why, until, greets, now + settings.down_max)));
        // After the pause the queue drains over one connection: the host may be weak, and other clients return as well.
        self.window = ONE;
        self.crowded_until = None;
        true
    }

    /// Returns whether the greeting of this connection says nothing, because the site greets and then refuses.
    pub(crate) fn doubts(&self, connection: &Connection) -> bool {
        !connection.probe && self.down.as_ref().is_some_and(|down| down.greets)
    }

    /// Returns whether all of `jobs` that leave memory are to be logged: a host that flaps would fill the log.
    pub(crate) fn logs_all(&mut self, jobs: usize, settings: &Settings, now: Duration) -> bool {
        if jobs <= LOG_ALL_MAX {
            return true;
        }
        let logs = self.all_logged_at.is_none_or(|last| now >= last + settings.down_first * LOG_ALL_PAUSES);
        if logs {
            self.all_logged_at = Some(now);
        }
        logs
    }

    /// Returns whether a connection is not greeted and opened before the last `retry_now`.
    pub(crate) fn is_superseded(&self, connection: &Connection) -> bool {
        connection.phase.is_opening() && connection.opened_at_step < self.superseded_before
    }

    /// Clears the back-off. Connections that are opening may hang: they do not count.
    pub(crate) fn retry_now(&mut self, step: u64, now: Duration) {
        if self.counts.greeted() == 0 {
            (self.superseded_before, self.superseded) = (step, self.counts.opening);
        }
        self.crowded_until = None;
        (self.failures, self.cancels) = (0, 0);
        self.pace = Pace::default();
        self.is_forced = true;
        if let Some(down) = &mut self.down {
            (down.until, down.report_limit) = (down.until.min(now), down.report_limit.min(now));
            down.report = None;
        }
    }

    /// Returns the next time at which it needs attention without an event.
    pub(crate) fn next_event(&self, settings: &Settings, overload: Overload, now: Duration) -> Option<Duration> {
        let has_work = self.work() > self.about_to_ask();
        let is_dry = has_work && self.available(now) == 0;
        let crowded = self.crowded_until.filter(|_| has_work);
        let probe = self.down.as_ref().map(|down| down.until);
        let probe = probe.filter(|_| !self.ready_queue.is_empty() || !self.scans_waiting.is_empty());
        let next = |available: usize, at: Duration| if available == 0 { at } else { now };
        let rate = next(self.rate.available(now), self.rate.next_at());
        let pace = next(self.pace.available(now), self.pace.next_at());
        let rate = is_dry.then(|| rate.max(pace));
        let job_wait = self.job_wait_ends(settings).filter(|_| {
            has_work && !is_dry && self.down.is_none() && self.counts.opening == self.superseded && self.has_room()
        });
        let overloaded = overload.until(now).filter(|_| has_work && !is_dry && self.down.is_none() && self.has_room());
        // Spent tokens are remembered until they do not matter.
        let full = (self.destinations == 0 && self.counts.total() == 0).then(|| self.full_at());
        [crowded, probe, rate, job_wait, overloaded, full].into_iter().flatten().filter(|&at| at > now).min()
    }

    /// Returns whether it can be forgotten without loss.
    pub(crate) fn is_empty(&self, now: Duration) -> bool {
        self.destinations == 0 && self.counts.total() == 0 && self.ready_queue.is_empty() && self.full_at() <= now
    }

    /// Returns when its rate and pace can be forgotten.
    fn full_at(&self) -> Duration {
        self.rate.full_at().max(self.pace.full_at())
    }

    pub(crate) fn health(&self) -> Health {
        match &self.down {
            Some(down) => Health::Down { why: Arc::clone(&down.why), until: down.until },
            None if self.counts.total() == 0 => Health::Idle,
            None => Health::Up,
        }
    }

    pub(crate) fn view(&self, now: Duration) -> SiteView {
        SiteView {
            name: Arc::clone(&self.name),
            destinations: self.destinations,
            health: self.health(),
            lane: self.lane,
            ready: self.ready_queue.len(),
            in_flight: self.in_flight,
            connections: self.counts.total() as usize,
            window: self.window(),
            limits: self.limits,
            share: self.share,
            pace: self.pace.known(),
            reported_by: self.reported_by(),
            waits_for_rate: !self.ready_queue.is_empty() && self.down.is_none() && self.available(now) == 0,
            waits_since: self.wants_since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_in_part() {
        assert_eq!(&*truncated("421 4.3.2 not now"), "421 4.3.2 not now");
        let whole = "x".repeat(WHY_OCTETS_MAX);
        assert_eq!(*truncated(&whole), *whole);
        for front in 0..4 {
            let why = truncated(&format!("{}{}", "x".repeat(front), "\u{20ac}".repeat(100_000)));
            assert!(
                (WHY_OCTETS_MAX - 3..=WHY_OCTETS_MAX).contains(&why.len()) && why.ends_with("\u{20ac}..."),
                "{why}"
            );
        }
    }
}
