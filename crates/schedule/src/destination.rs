//! One destination, a list of the spool: its jobs in memory and its site.
//!
//! The driver assigns its *site*, and is asked again when the answer is old. Its jobs wait in the ready queue of the
//! site, or here while it has none. A destination with unknown hosts is down by itself, with a back-off of its own.
//! Health, window and connections belong to the site. `scan` reads its list.
//!
//! Two quotas bound the memory, so that neither kind of mail keeps the other out: one for the fresh jobs of each
//! destination, one for the jobs of each site that came from scans. A class may fill only a part of the first quota,
//! and so may a single message.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mail::QueueId;

use crate::active_recipients::ActiveRecipients;
use crate::chance::{ById, Chance};
use crate::deliver_by::DeliverByTimes;
use crate::job::{AddResult, Class, DestinationId, Job, Positions, ResolveFailure, SiteId};
use crate::part::{NoticeState, Part};
use crate::pending_notices::PendingNotices;
use crate::ready_queue::ReadyQueue;
use crate::scan_state::QueueScan;
use crate::settings::{ATTEMPT_TIME, PART_MAX, Settings, back_off, jitter, on_grid, within};
use crate::site::{DownState, Site};
use crate::view::{DestinationView, Health};

/// How long an idle destination is kept while its site has connections, so that it need not be resolved again.
const KEEP_IDLE: Duration = Duration::from_secs(60);
/// Shortest time between two look-ups.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(1);
/// The same while the site is down and nothing is in memory: the hosts may have changed.
const RESOLVE_INTERVAL_DOWN: Duration = Duration::from_secs(15 * 60);

/// Wait while our own resolver fails and does not recover.
const RESOLVER_RETRY: Duration = Duration::from_secs(5 * 60);
/// Look-ups after its recovery are spread over this time.
const RESOLVER_SPREAD: Duration = Duration::from_secs(30);

/// The state of the look-up of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolveState {
    Idle,
    Queued,
    Pending,
}

#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) id: DestinationId,
    pub(crate) name: Arc<[u8]>,
    /// When the scheduler learned of it. It may have older mail.
    pub(crate) known_since: Duration,
    pub(crate) site: Option<SiteId>,
    /// Until when `site` holds.
    site_valid_until: Duration,
    /// When it is resolved again although nothing is in memory, while the site is down.
    site_recheck_at: Duration,
    pub(crate) resolve_state: ResolveState,
    /// Jobs that wait for a site.
    pub(crate) pending: VecDeque<(QueueId, Part)>,
    /// Set while its hosts are unknown.
    pub(crate) down: Option<Box<DownState>>,
    /// An operator asked for an attempt before its site was known.
    pub(crate) is_forced: bool,
    /// A recipient must not expire before an attempt: a report of another machine alone keeps its site down.
    pub(crate) needs_attempt: bool,
    /// Whether our own resolver is the cause.
    is_resolver_fault: bool,
    failures: u32,
    pub(crate) active: ActiveRecipients,
    /// Its waiting parts by class, here or in the ready queue of its site.
    ready: [usize; 3],
    /// How many of them are fresh.
    fresh: usize,
    in_flight: usize,
    pub(crate) scan: Option<Box<QueueScan>>,
    /// A page is being read.
    pub(crate) is_loading: bool,
    /// The site whose `pages_pending` counts its page.
    pub(crate) scan_site: Option<SiteId>,
    /// The site where it waits for room for a scan.
    pub(crate) waiting_site: Option<SiteId>,
    /// Messages with a job that ended while a page is being read: the page may show the old state.
    pub(crate) ended: BTreeSet<QueueId>,
    /// The list may have eligible entries that are not active.
    pub(crate) more: bool,
    /// The list may have entries with an unchecked age or deliver-by time, which `scan_at` does not cover.
    pub(crate) has_unchecked: bool,
    /// When the list has to be scanned at the latest.
    pub(crate) scan_at: Option<Duration>,
    /// `scan_at` covers entries that are due and wait for room or for the probe.
    pub(crate) scan_at_covers_due: bool,
    /// No scan by the clock before this time.
    pub(crate) scan_not_before: Duration,
    /// No scan for more work before this time.
    pub(crate) refill_not_before: Duration,
    /// `Overdue` actions without an answer.
    pub(crate) overdue_pending: usize,
    /// Parts that left the ready queue because of an `Overdue` action.
    pub(crate) notices: PendingNotices,
    /// When its waiting parts have to be checked for notices.
    pub(crate) ready_check_at: Option<Duration>,
    /// The deliver-by times of waiting recipients.
    pub(crate) deliver_by: Option<Box<DeliverByTimes>>,
    used_at: Duration,
    keep_until: Option<Duration>,
    pub(crate) is_dirty: bool,
    pub(crate) timer: Option<Duration>,
}

/// Returns how many fresh jobs of a class may be in memory: bulk leaves room for other classes, and only urgent mail
/// may take all.
fn class_quota(class: Class, ready_max: usize) -> usize {
    let most = ready_max.max(1);
    match class {
        Class::Urgent => most,
        Class::Normal => most - most / 8,
        Class::Bulk => most.div_ceil(2),
    }
}

impl Destination {
    pub(crate) fn new(id: DestinationId, name: Arc<[u8]>, now: Duration) -> Self {
        Self {
            id,
            name,
            known_since: now,
            site: None,
            site_valid_until: Duration::ZERO,
            site_recheck_at: Duration::ZERO,
            resolve_state: ResolveState::Idle,
            pending: VecDeque::new(),
            down: None,
            is_forced: false,
            needs_attempt: false,
            is_resolver_fault: false,
            failures: 0,
            active: ActiveRecipients::default(),
            ready: [0; 3],
            fresh: 0,
            in_flight: 0,
            scan: None,
            is_loading: false,
            scan_site: None,
            waiting_site: None,
            ended: BTreeSet::new(),
            more: false,
            has_unchecked: false,
            scan_at: None,
            scan_at_covers_due: false,
            scan_not_before: Duration::ZERO,
            refill_not_before: Duration::ZERO,
            overdue_pending: 0,
            notices: PendingNotices::default(),
            ready_check_at: None,
            deliver_by: None,
            used_at: Duration::ZERO,
            keep_until: None,
            is_dirty: false,
            timer: None,
        }
    }

    /// Enqueues a fresh message if there is room.
    pub(crate) fn add(
        &mut self,
        job: Job,
        class: Class,
        site: Option<&mut Site>,
        settings: &Settings,
        now: Duration,
    ) -> AddResult {
        self.used_at = now;
        if self.active.has_any(job.message, &job.recipients) {
            // A scan read it from the spool before this call.
            return AddResult::Ready;
        }
        let limit = site.as_deref().map_or(PART_MAX, |site| site.limits.recipients_per_transaction.clamp(1, PART_MAX));
        let (down, may_probe) = match (&self.down, site.as_deref()) {
            (Some(down), _) => (Some(down), self.may_probe(now)),
            (None, Some(site)) => (site.down.as_ref(), site.may_probe(now)),
            (None, None) => (None, false),
        };
        if let Some(down) = down {
            if !may_probe || job.recipients.len() > limit {
                let answer = AddResult::Down { why: Arc::clone(&down.why), retry_at: down.until };
                self.more = true;
                self.scan_by(check_time(job.message, Duration::MAX, false, settings));
                return answer;
            }
        } else {
            let jobs = job.recipients.len().div_ceil(limit);
            let is_list = jobs > (settings.ready_max / 8).max(1);
            if is_list || self.fresh + self.notices.fresh + jobs > class_quota(class, settings.ready_max) {
                self.more = true;
                self.scan_by(check_time(job.message, Duration::MAX, false, settings));
                return AddResult::SpoolOnly;
            }
        }
        let ready_queue = site.map(|site| {
            site.arrivals.record(now);
            &mut site.ready_queue
        });
        // It is tried before any notice.
        let notice = NoticeState { not_before: now + ATTEMPT_TIME, ..NoticeState::FRESH };
        self.enqueue(job.message, job.recipients, class, (notice, true), ready_queue, settings, now);
        AddResult::Ready
    }

    /// Splits recipients that are not active into parts and enqueues them. Returns the number of parts.
    ///
    /// `fresh`: the message came with `add`, not from a scan.
    #[expect(clippy::too_many_arguments, reason = "all of it is said of one part")]
    pub(crate) fn enqueue(
        &mut self,
        message: QueueId,
        recipients: Positions,
        class: Class,
        (notice, fresh): (NoticeState, bool),
        mut ready_queue: Option<&mut ReadyQueue>,
        settings: &Settings,
        now: Duration,
    ) -> usize {
        let mut recipients = recipients;
        self.schedule_ready_check(message, &notice, settings, now);
        let lost = ready_queue
            .as_ref()
            .map_or_else(Vec::new, |ready_queue| ready_queue.suspects.split_off(message, &mut recipients));
        let mut put = |recipients: Positions| {
            self.active.insert(message, recipients.clone());
            let part = Part { destination: self.id, recipients, class, notice, fresh };
            count(&mut self.ready, class, 1);
            self.fresh += usize::from(fresh);
            match &mut ready_queue {
                Some(ready_queue) => ready_queue.push(message, part, now),
                None => self.pending.push_back((message, part)),
            }
        };
        let formed = lost.len();
        lost.into_iter().for_each(&mut put);
        if recipients.is_empty() {
            return formed;
        }
        if recipients.len() <= PART_MAX && recipients.as_slice().is_sorted_by(|one, next| one < next) {
            put(recipients);
            return formed + 1;
        }
        let mut sorted = recipients.as_slice().to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let parts = sorted.chunks(PART_MAX);
        let formed = formed + parts.len();
        parts.for_each(|part| put(Positions::from(part)));
        formed
    }

    /// Finds the site of this destination.
    pub(crate) fn site_in<'a>(&self, sites: &'a mut ById<SiteId, Site>) -> Option<&'a mut Site> {
        sites.get_mut(&self.site?)
    }

    /// Returns the number of waiting parts.
    pub(crate) fn ready(&self) -> usize {
        self.ready.iter().sum()
    }

    /// Returns how many of them came from scans, those withdrawn for a notice included.
    pub(crate) fn scanned(&self) -> usize {
        self.ready() - self.fresh + self.notices.scanned
    }

    /// Returns whether one job may be enqueued as the probe of unknown hosts.
    pub(crate) fn may_probe(&self, now: Duration) -> bool {
        self.down.as_ref().is_some_and(|down| down.until <= now)
            && self.ready() == 0
            && self.resolve_state == ResolveState::Idle
    }

    /// Uncounts a part that a connection takes or that leaves memory.
    pub(crate) fn uncount_part(&mut self, part: &Part) {
        uncount(&mut self.ready, part.class, 1);
        self.fresh -= usize::from(part.fresh);
    }

    /// Counts a part that returns to the queue.
    pub(crate) fn count_part(&mut self, part: &Part) {
        count(&mut self.ready, part.class, 1);
        self.fresh += usize::from(part.fresh);
    }

    /// Removes a waiting part from memory untried.
    pub(crate) fn drop_part(&mut self, message: QueueId, part: &Part, settings: &Settings, now: Duration) {
        self.uncount_part(part);
        self.release(message, &part.recipients);
        self.leave_to_scan(message, part, settings, now);
        if !self.is_loading && self.scan.take().is_some_and(|scan| !scan.is_probe) {
            self.ask_deadlines_again(now);
        }
    }

    /// Leaves a part to the next scan of the list, because the destination is down. An overdue recipient must not wait
    /// for the probe. If the ages of all other entries are known, the list is not read for this one.
    pub(crate) fn leave_to_scan(&mut self, message: QueueId, part: &Part, settings: &Settings, now: Duration) {
        self.more = true;
        // Its deliver-by time has not been asked for.
        self.has_unchecked |= part.notice.ask_at < Duration::MAX;
        let is_known = !self.has_unchecked && self.scan.as_ref().is_none_or(|scan| scan.is_probe);
        let at =
            if is_known { self.next_check(message, Duration::MAX, part.notice.warned, settings, now) } else { now };
        self.scan_by(at);
    }

    /// Counts a part that a connection took.
    pub(crate) fn start_part(&mut self, part: &Part, now: Duration) {
        self.uncount_part(part);
        self.in_flight += 1;
        self.used_at = now;
        self.is_forced = false;
    }

    /// Keeps the rest of a part in the queue.
    pub(crate) fn split_part(&mut self, message: QueueId, part: &Part, whole: &Positions, rest: Positions) {
        self.active.split(message, whole, part.recipients.clone(), rest);
        self.count_part(part);
    }

    /// Ends a part whose transaction is over.
    pub(crate) fn finish_part(
        &mut self,
        message: QueueId,
        part: &Part,
        retry: Option<Duration>,
        settings: &Settings,
        now: Duration,
    ) {
        self.in_flight -= 1;
        self.release(message, &part.recipients);
        if let Some(due) = retry {
            self.scan_by(self.next_check(message, due, part.notice.warned, settings, now));
        } else if let Some(deadlines) = &mut self.deliver_by {
            deadlines.remove(message, &part.recipients);
        }
        // It may cover only the ages of recipients that are done now.
        if self.active.is_empty() && !self.more && self.scan_at_covers_due {
            self.scan_by(now);
        }
    }

    /// Puts an untried part back to the front. `site` is its present site, not always that of the connection.
    pub(crate) fn give_back_part(
        &mut self,
        message: QueueId,
        part: Part,
        site: Option<&mut Site>,
        settings: &Settings,
        now: Duration,
    ) {
        self.in_flight -= 1;
        let mut part = part;
        part.notice.not_before = part.notice.not_before.max(now + ATTEMPT_TIME);
        self.put_back(message, part, None, site, settings, now);
    }

    /// Forgets recipients that moved to another list.
    pub(crate) fn recipients_moved(&mut self, message: QueueId, recipients: &Positions) {
        if self.is_loading {
            self.ended.insert(message);
        }
        if let Some(deadlines) = &mut self.deliver_by {
            deadlines.remove(message, recipients);
        }
    }

    /// Frees recipients that were active.
    pub(crate) fn release(&mut self, message: QueueId, recipients: &Positions) {
        self.active.remove(message, recipients);
        self.active.shrink();
        if self.is_loading {
            self.ended.insert(message);
        }
    }

    /// Returns whether it has to be resolved now.
    pub(crate) fn wants_resolve(&self, site: Option<&Site>, now: Duration) -> bool {
        if self.resolve_state != ResolveState::Idle || self.down.as_ref().is_some_and(|down| now < down.until) {
            return false;
        }
        match site {
            None => !self.pending.is_empty(),
            Some(_) if self.ready() > 0 => now >= self.site_valid_until,
            Some(site) => self.resolve_recheck_at(site).is_some_and(|at| at <= now),
        }
    }

    /// Returns when it is resolved again although nothing is in memory.
    fn resolve_recheck_at(&self, site: &Site) -> Option<Duration> {
        let has_mail = self.more || self.scan_at.is_some();
        (has_mail && site.down.is_some()).then(|| self.site_valid_until.max(self.site_recheck_at))
    }

    /// Returns whether its look-up goes first: for fresh or urgent mail.
    pub(crate) fn is_urgent(&self) -> bool {
        self.fresh > 0 || self.ready.first().is_some_and(|urgent| *urgent > 0)
    }

    /// Assigns its site until `until`.
    pub(crate) fn set_site(&mut self, site: SiteId, until: Duration, now: Duration) {
        self.site = Some(site);
        self.site_valid_until = until.max(now.saturating_add(RESOLVE_INTERVAL));
        self.site_recheck_at = now.saturating_add(RESOLVE_INTERVAL_DOWN);
        self.failures = 0;
        if self.down.take().is_some() {
            // Its scans so far only looked for a probe.
            (self.more, self.has_unchecked) = (true, true);
        }
    }

    /// Puts it in back-off because its hosts are unknown.
    pub(crate) fn set_unresolved(
        &mut self,
        (why, blame): (&str, ResolveFailure),
        settings: &Settings,
        now: Duration,
        chance: &mut Chance,
    ) {
        self.is_resolver_fault = blame == ResolveFailure::Resolver;
        let wait = if self.is_resolver_fault {
            jitter(RESOLVER_RETRY.min(settings.down_max), chance.next())
        } else {
            self.failures = self.failures.saturating_add(1);
            back_off(self.failures, settings.down_first, settings.down_max, chance.next())
        };
        let until = on_grid(now, wait);
        self.down = Some(Box::new(DownState::own(why, until, false, until)));
        self.more = true;
        if self.has_unchecked {
            self.scan_by(now);
        }
    }

    /// Ends a wait for our own resolver soon, and returns whether there was one.
    pub(crate) fn resolver_recovered(&mut self, now: Duration, chance: &mut Chance) -> bool {
        let Some(down) = self.down.as_mut().filter(|_| self.is_resolver_fault) else { return false };
        self.is_resolver_fault = false;
        down.until = down.until.min(now + within(RESOLVER_SPREAD, chance.next()));
        true
    }

    /// Has its site resolved again before the next use.
    pub(crate) fn expire_site(&mut self, now: Duration) {
        self.site_valid_until = self.site_valid_until.min(now);
    }

    /// Clears the back-off, and scans the list as soon as possible.
    pub(crate) fn retry_now(&mut self, now: Duration) {
        self.more = true;
        self.scan_by(now);
        (self.scan_not_before, self.refill_not_before) = (now, now);
        self.failures = 0;
        self.is_forced = true;
        if let Some(down) = &mut self.down {
            down.until = down.until.min(now);
        }
    }

    /// Has the list scanned at `at` or earlier.
    pub(crate) fn scan_by(&mut self, at: Duration) {
        self.scan_at = Some(self.scan_at.map_or(at, |before| before.min(at)));
    }

    /// Returns when a recipient that is due at `due` needs attention, age exemptions included.
    pub(crate) fn next_check(
        &self,
        message: QueueId,
        due: Duration,
        warned: bool,
        settings: &Settings,
        now: Duration,
    ) -> Duration {
        let exemption = self.deliver_by.as_ref().and_then(|deadlines| deadlines.active_age_exemption(message, now));
        exemption.map_or_else(|| check_time(message, due, warned, settings), |until| due.min(until))
    }

    /// Returns the next time at which it needs attention without an event.
    pub(crate) fn next_event(&self, site: Option<&Site>, settings: &Settings, now: Duration) -> Option<Duration> {
        let room = self.scan_room(site, settings, now);
        let scan = self.next_scan_at(&room).or_else(|| self.blocked_scan_at(&room));
        let ready_check = self.ready_check_at.filter(|_| self.ready() > 0);
        let check =
            site.and_then(|site| self.resolve_recheck_at(site)).filter(|_| self.resolve_state == ResolveState::Idle);
        [scan, ready_check, check, self.next_deadline(), self.keep_until]
            .into_iter()
            .flatten()
            .filter(|&at| at > now)
            .min()
    }

    /// Returns the next deliver-by time.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.deliver_by.as_ref().and_then(|deadlines| deadlines.next_at())
    }

    /// Returns whether it can be forgotten without loss.
    pub(crate) fn is_unused(&self) -> bool {
        self.ready() == 0
            && self.active.is_empty()
            && self.scan.is_none()
            && !self.is_loading
            && !self.more
            && self.scan_at.is_none()
            && self.resolve_state == ResolveState::Idle
    }

    /// Returns whether it is kept although it is unused, because mail may follow. Sets its timer seldom, not for each
    /// message.
    pub(crate) fn is_kept(&mut self, site: Option<&Site>, now: Duration) -> bool {
        if self.keep_until.is_some_and(|until| until <= now) {
            self.keep_until = None;
        }
        let is_worth_keeping = site.is_some_and(|site| site.counts.total() > 0 && now < self.site_valid_until)
            && now < self.used_at.saturating_add(KEEP_IDLE);
        if is_worth_keeping && self.keep_until.is_none() {
            self.keep_until = Some(self.used_at.saturating_add(KEEP_IDLE));
        }
        is_worth_keeping
    }

    /// Returns `Down` if its hosts are unknown, else the health of its site.
    pub(crate) fn health(&self, site: Option<&Site>) -> Health {
        match &self.down {
            Some(down) => Health::Down { why: Arc::clone(&down.why), until: down.until },
            None => site.map_or(Health::Idle, Site::health),
        }
    }

    pub(crate) fn view(&self, site: Option<&Site>) -> DestinationView {
        let health = self.health(site);
        DestinationView {
            name: Arc::clone(&self.name),
            site: site.map(|site| Arc::clone(&site.name)),
            health,
            lane: site.map_or(crate::job::Lane::Fast, |site| site.lane),
            ready: self.ready(),
            ready_by_class: self.ready,
            in_flight: self.in_flight,
            connections: site.map_or(0, |site| site.counts.total() as usize),
            window: site.map_or(0, Site::window),
            limits: site.map(|site| site.limits),
            pace: site.and_then(|site| site.pace.known()),
            reported_by: site.filter(|_| self.down.is_none()).and_then(Site::reported_by),
            more: self.more || self.scan.is_some(),
        }
    }
}

fn count(ready: &mut [usize; 3], class: Class, more: usize) {
    if let Some(ready) = ready.get_mut(class.index()) {
        *ready += more;
    }
}

fn uncount(ready: &mut [usize; 3], class: Class, less: usize) {
    if let Some(ready) = ready.get_mut(class.index()) {
        *ready -= less;
    }
}

/// Returns when a recipient that is due at `due` needs attention: then, or when it becomes overdue.
pub(crate) fn check_time(message: QueueId, due: Duration, warned: bool, settings: &Settings) -> Duration {
    let created = settings.created(message, Duration::MAX);
    let at = due.min(created.saturating_add(settings.give_up_after));
    match settings.warn_after {
        Some(after) if !warned => at.min(created.saturating_add(after)),
        _ => at,
    }
}
