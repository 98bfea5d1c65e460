//! One destination, a list of the spool: what of it is in memory, and where its mail goes.
//!
//! It has a *site* from the moment the driver says which, and asks again when that answer is old. Its jobs wait in the
//! line of the site, or here while it has none. If nobody knows its hosts it is down by itself, with a back-off of its
//! own; health, window and connections are the site's. The walk through its list is in `walk`.
//!
//! Memory has two quotas, so that neither keeps the other out: for jobs that came fresh, of each destination, and for
//! those that walks found, of each site. A class may fill a part of the first only, and so may a single message.

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

/// How long a destination is kept after its last work while its site has connections: it need not be placed anew.
const KEEP_IDLE: Duration = Duration::from_secs(60);
/// The least time between two questions where the mail goes.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(1);
/// The same for one whose site is down and of which nothing is in memory: its hosts may be others by now.
const RESOLVE_INTERVAL_DOWN: Duration = Duration::from_secs(15 * 60);

/// The wait while our own resolver is dead, if nobody says before that it is back.
const RESOLVER_RETRY: Duration = Duration::from_secs(5 * 60);
/// Once it is back, within this.
const RESOLVER_SPREAD: Duration = Duration::from_secs(30);
/// Answers in a row that were wrong, until the hosts of a destination count as not known.
const SITE_CHANGES_MAX: u32 = 5;
/// Why the hosts of a destination are not known that was `misplaced` again and again; for the log.
pub const HOSTS_CHANGED: &str = "its mail hosts change at each look-up";

/// Whether it was asked where the mail goes.
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
    /// Since when it is known. It may have mail that is older.
    pub(crate) known_since: Duration,
    pub(crate) site: Option<SiteId>,
    /// Until when that holds.
    site_valid_until: Duration,
    /// And when it is asked although nothing is in memory, since the site is down.
    site_recheck_at: Duration,
    pub(crate) resolve_state: ResolveState,
    /// It is not asked before.
    resolve_not_before: Duration,
    /// How often its site was not what it was said to be, in a row.
    site_changes: u32,
    /// Jobs that wait for a site.
    pub(crate) pending: VecDeque<(QueueId, Part)>,
    /// Its hosts are not known.
    pub(crate) down: Option<Box<DownState>>,
    /// That is the fault of our own resolver.
    is_resolver_fault: bool,
    failures: u32,
    pub(crate) active: ActiveRecipients,
    /// Parts of it that wait, here or in the line of its site, by class.
    ready: [usize; 3],
    /// Those of them that came fresh.
    fresh: usize,
    in_flight: usize,
    pub(crate) scan: Option<Box<QueueScan>>,
    /// A page was asked for.
    pub(crate) is_loading: bool,
    /// The site whose pages_pending it is one of.
    pub(crate) scan_site: Option<SiteId>,
    /// The site at which it waits for room.
    pub(crate) waiting_site: Option<SiteId>,
    /// Messages of which a job ended while a page was being read: the page may show what was before.
    pub(crate) ended: BTreeSet<QueueId>,
    /// The list may have eligible entries that are not active.
    pub(crate) more: bool,
    /// It may have entries whose age, or whose time, nobody has looked at: `look_at` does not stand for them.
    pub(crate) has_unchecked: bool,
    /// When the list is to be looked through at the latest.
    pub(crate) scan_at: Option<Duration>,
    /// It stands for some that were due, and waited for room or for the probe.
    pub(crate) scan_at_covers_due: bool,
    /// No walk by the clock before.
    pub(crate) scan_not_before: Duration,
    /// No walk for more work before.
    pub(crate) refill_not_before: Duration,
    /// `Overdue` actions that were not answered yet.
    pub(crate) overdue_pending: usize,
    /// What is out of the line since senders are being told of it.
    pub(crate) notices: PendingNotices,
    /// When what is in line is to be looked through.
    pub(crate) ready_check_at: Option<Duration>,
    /// By when what waits is to be delivered, where somebody said so.
    pub(crate) deliver_by: Option<Box<DeliverByTimes>>,
    used_at: Duration,
    keep_until: Option<Duration>,
    pub(crate) is_dirty: bool,
    pub(crate) timer: Option<Duration>,
}

/// Jobs that fresh mail of a class may have in memory: bulk leaves room for others, and only urgent mail takes all.
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
            resolve_not_before: Duration::ZERO,
            site_changes: 0,
            pending: VecDeque::new(),
            down: None,
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

    /// Takes a fresh message into memory if there is room.
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
            // A walk saw it in the spool before its owner came to say so.
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
        // It is tried first, also where nothing may wait.
        let notice = NoticeState { not_before: now + ATTEMPT_TIME, ..NoticeState::FRESH };
        self.enqueue(job.message, job.recipients, class, (notice, true), ready_queue, settings, now);
        AddResult::Ready
    }

    /// Forms parts of recipients that are not active, and puts them in line. Says how many.
    ///
    /// `fresh`: whether the message came when it was committed.
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

    /// Parts that wait.
    pub(crate) fn ready(&self) -> usize {
        self.ready.iter().sum()
    }

    /// Those of them that walks found, and that are to come back.
    pub(crate) fn from_scans(&self) -> usize {
        self.ready() - self.fresh + self.notices.from_scans
    }

    /// Whether one job may be taken to see whether its hosts are known again.
    pub(crate) fn may_probe(&self, now: Duration) -> bool {
        self.down.as_ref().is_some_and(|down| down.until <= now)
            && self.ready() == 0
            && self.resolve_state == ResolveState::Idle
    }

    /// A part goes to a connection, or out of memory.
    pub(crate) fn uncount_part(&mut self, part: &Part) {
        uncount(&mut self.ready, part.class, 1);
        self.fresh -= usize::from(part.fresh);
    }

    /// A part that was out of the line is to be in it again.
    pub(crate) fn count_part(&mut self, part: &Part) {
        count(&mut self.ready, part.class, 1);
        self.fresh += usize::from(part.fresh);
    }

    /// A part that was in line leaves memory untried.
    pub(crate) fn drop_part(&mut self, message: QueueId, part: &Part, settings: &Settings, now: Duration) {
        self.uncount_part(part);
        self.release(message, &part.recipients);
        self.leave_to_scan(message, part, settings, now);
        if !self.is_loading && self.scan.take().is_some_and(|scan| !scan.is_probe) {
            self.ask_deadlines_again(now);
        }
    }

    /// A part goes back to the list of a destination that is down. What is too old is not to wait for the probe; but
    /// where the age of all else is known, the list is not read for this one.
    pub(crate) fn leave_to_scan(&mut self, message: QueueId, part: &Part, settings: &Settings, now: Duration) {
        self.more = true;
        // Nobody has asked by when it is to be delivered.
        self.has_unchecked |= part.notice.ask_at < Duration::MAX;
        let is_known = !self.has_unchecked && self.scan.as_ref().is_none_or(|scan| scan.is_probe);
        let at =
            if is_known { self.next_check(message, Duration::MAX, part.notice.warned, settings, now) } else { now };
        self.scan_by(at);
    }

    /// A part was taken by a connection.
    pub(crate) fn start_part(&mut self, part: &Part, now: Duration) {
        self.uncount_part(part);
        self.in_flight += 1;
        self.used_at = now;
    }

    /// The rest of a part stays in line.
    pub(crate) fn split_part(&mut self, message: QueueId, part: &Part, whole: &Positions, rest: Positions) {
        self.active.split(message, whole, part.recipients.clone(), rest);
        self.count_part(part);
    }

    /// A transaction with a part came to an end.
    pub(crate) fn finish_part(
        &mut self,
        message: QueueId,
        part: &Part,
        retry: Option<Duration>,
        settings: &Settings,
        now: Duration,
    ) {
        self.in_flight -= 1;
        self.site_changes = 0;
        self.release(message, &part.recipients);
        if let Some(due) = retry {
            self.scan_by(self.next_check(message, due, part.notice.warned, settings, now));
        } else if let Some(deadlines) = &mut self.deliver_by {
            deadlines.remove(message, &part.recipients);
        }
        // It may stand for the age of those alone that are done now.
        if self.active.is_empty() && !self.more && self.scan_at_covers_due {
            self.scan_by(now);
        }
    }

    /// Takes a part back that was not tried, first in line; `site` is its own, which need not be the connection's.
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

    /// Recipients of a message are in another list now.
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

    /// Whether it is to be asked now where its mail goes.
    pub(crate) fn wants_resolve(&self, site: Option<&Site>, now: Duration) -> bool {
        if self.resolve_state != ResolveState::Idle
            || now < self.resolve_not_before
            || self.down.as_ref().is_some_and(|down| now < down.until)
        {
            return false;
        }
        match site {
            None => !self.pending.is_empty(),
            Some(_) if self.ready() > 0 => now >= self.site_valid_until,
            Some(site) => self.resolve_recheck_at(site).is_some_and(|at| at <= now),
        }
    }

    /// When it is asked although nothing is in memory.
    fn resolve_recheck_at(&self, site: &Site) -> Option<Duration> {
        let has_mail = self.more || self.scan_at.is_some();
        (has_mail && site.down.is_some())
            .then(|| self.site_valid_until.max(self.site_recheck_at).max(self.resolve_not_before))
    }

    /// Whether it comes before others when it asks: for mail that just came, or is urgent.
    pub(crate) fn is_urgent(&self) -> bool {
        self.fresh > 0 || self.ready.first().is_some_and(|urgent| *urgent > 0)
    }

    /// It was said where its mail goes.
    pub(crate) fn set_site(&mut self, site: SiteId, until: Duration, now: Duration) {
        self.site = Some(site);
        self.site_valid_until = until.max(now.saturating_add(RESOLVE_INTERVAL));
        self.site_recheck_at = now.saturating_add(RESOLVE_INTERVAL_DOWN);
        self.failures = 0;
        if self.down.take().is_some() {
            // What is known of the list was learned for a probe only.
            (self.more, self.has_unchecked) = (true, true);
        }
    }

    /// Its hosts are not known for now.
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
        self.down = Some(Box::new(DownState { why: crate::site::truncated(why), until, greets: false }));
        self.more = true;
        if self.has_unchecked {
            self.scan_by(now);
        }
    }

    /// Our own resolver answers again: if that was all, it is asked soon. Says whether.
    pub(crate) fn resolver_recovered(&mut self, now: Duration, chance: &mut Chance) -> bool {
        let Some(down) = self.down.as_mut().filter(|_| self.is_resolver_fault) else { return false };
        self.is_resolver_fault = false;
        down.until = down.until.min(now + within(RESOLVER_SPREAD, chance.next()));
        true
    }

    /// Its site is not what it was said to be: it is asked again, the sooner the rarer that was. When that was all there
    /// was for [`SITE_CHANGES_MAX`] times, its hosts are not known.
    pub(crate) fn count_site_change(&mut self, settings: &Settings, now: Duration, chance: &mut Chance) {
        if self.site_changes > 0 {
            self.resolve_not_before = now + (RESOLVE_INTERVAL * (1 << self.site_changes.min(6)));
        }
        self.site_changes = self.site_changes.saturating_add(1);
        if let Some(too_many) = self.site_changes.checked_sub(SITE_CHANGES_MAX) {
            // They were found in between, and that did not help.
            self.failures = too_many;
            self.set_unresolved((HOSTS_CHANGED, ResolveFailure::Domain), settings, now, chance);
        }
    }

    /// What was said of its place is to be asked anew.
    pub(crate) fn expire_site(&mut self, now: Duration) {
        self.site_valid_until = self.site_valid_until.min(now);
    }

    /// Forgets the back-off, and looks through the list as soon as can be.
    pub(crate) fn retry_now(&mut self, now: Duration) {
        self.more = true;
        self.scan_by(now);
        (self.scan_not_before, self.refill_not_before, self.resolve_not_before) = (now, now, now);
        self.failures = 0;
        if let Some(down) = &mut self.down {
            down.until = down.until.min(now);
        }
    }

    /// Has the list looked through by then.
    pub(crate) fn scan_by(&mut self, at: Duration) {
        self.scan_at = Some(self.scan_at.map_or(at, |before| before.min(at)));
    }

    /// When a recipient that is due at `due` is to be looked at, with what is known of its message.
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

    /// When it is to be looked at although nothing happens.
    pub(crate) fn next_event(&self, site: Option<&Site>, settings: &Settings, now: Duration) -> Option<Duration> {
        let room = self.scan_room(site, settings, now);
        let scan = self.next_scan_at(&room).or_else(|| self.blocked_scan_at(&room));
        let ready_check = self.ready_check_at.filter(|_| self.ready() > 0);
        let ask = Some(self.resolve_not_before).filter(|_| !self.pending.is_empty());
        let check =
            site.and_then(|site| self.resolve_recheck_at(site)).filter(|_| self.resolve_state == ResolveState::Idle);
        let deadline = self.deliver_by.as_ref().and_then(|deadlines| deadlines.next_at());
        [scan, ready_check, ask, check, deadline, self.keep_until].into_iter().flatten().filter(|&at| at > now).min()
    }

    /// Whether nothing would be lost if it were forgotten.
    pub(crate) fn is_unused(&self) -> bool {
        self.ready() == 0
            && self.active.is_empty()
            && self.scan.is_none()
            && !self.is_loading
            && !self.more
            && self.scan_at.is_none()
            && self.resolve_state == ResolveState::Idle
    }

    /// Whether it is kept although it is empty, for what may come soon. The time is set seldom, not by each message.
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

    /// DownState when its hosts are not known; else as its site is.
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

/// When a recipient that is due at `due` is to be looked at: then, or when it becomes overdue before.
pub(crate) fn check_time(message: QueueId, due: Duration, warned: bool, settings: &Settings) -> Duration {
    let created = Duration::from_micros(message.unix_us());
    let at = due.min(created.saturating_add(settings.give_up_after));
    match settings.warn_after {
        Some(after) if !warned => at.min(created.saturating_add(after)),
        _ => at,
    }
}
