//! The calls about mail and about where it goes. Those about connections are in `connection_events`, the views in
//! `inspect`.
//!
//! Each call changes a destination or a site and adds it to `dirty`. `poll` looks at these until none of them wants
//! anything. Calls return jobs that left memory untried.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mail::QueueId;

use crate::chance::{ById, Chance};
use crate::connection_wait::ConnectionWaitQueue;
use crate::destination::{Destination, ResolveState, check_time};
use crate::dirty::{DirtyQueue, TimerKey};
use crate::greeting_timer::GreetingTimer;
use crate::job::{
    Action, AddResult, Class, DestinationId, Job, Positions, QueueEntry, ResolveFailure, SiteAssignment, SiteId,
};
use crate::name_index::NameIndex;
use crate::overload::Overload;
use crate::part::Part;
use crate::pool::{ConnectionBudget, ConnectionPool};
use crate::settings::{Mechanism, OVERDUE_MAX_ALL, Settings};
use crate::site::Site;
use crate::site_report::SiteChange;

/// Decides which message goes to which connection, and when.
///
/// The duties of the driver:
/// - After every call that changes something, call [`poll`](Self::poll) until it returns `None`, and again at
///   [`wake_at`](Self::wake_at).
/// - Record the result of a job in the spool *before* [`job_done`](Self::job_done), so that no scan finds the old
///   state.
/// - Before a job is tried, drop the recipients that the spool no longer lists as waiting: an operator may have held or
///   deleted them, or a scan may have delivered the message before [`add`](Self::add).
#[derive(Debug)]
pub struct Scheduler {
    /// The settings as given; in `settings`, `ready_max` is the quota of one destination.
    configured: Settings,
    pub(crate) settings: Settings,
    pub(crate) budget: ConnectionBudget,
    pub(crate) pool: ConnectionPool,
    pub(crate) destinations: ById<DestinationId, Destination>,
    pub(crate) names: NameIndex<DestinationId>,
    pub(crate) sites: ById<SiteId, Site>,
    pub(crate) site_names: NameIndex<SiteId>,
    /// Sites whose limits several machines keep together.
    pub(crate) shared: BTreeSet<SiteId>,
    /// The destinations and sites that `poll` has to look at.
    pub(crate) dirty: DirtyQueue,
    /// Sites that wait for a connection.
    pub(crate) wait_queue: ConnectionWaitQueue,
    /// Opening connections of the fast lane.
    pub(crate) greeting_timer: GreetingTimer,
    /// Whether this machine is overloaded.
    pub(crate) overload: Overload,
    /// Destinations that wait for a look-up; urgent ones go first.
    pub(crate) urgent_resolves: VecDeque<DestinationId>,
    pub(crate) normal_resolves: VecDeque<DestinationId>,
    /// `Resolve` actions without an answer.
    pub(crate) resolves_pending: usize,
    /// `Overdue` actions without an answer.
    pub(crate) overdue_pending: usize,
    pub(crate) timers: BTreeSet<(Duration, TimerKey)>,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) chance: Chance,
    next_destination: u64,
    next_site: u64,
    /// Counts the events that may change a window (openings, starts of jobs, cuts), to tell which came first.
    pub(crate) step: u64,
    /// Some recipient had a deliver-by time.
    pub(crate) has_deadlines: bool,
    /// Results that other machines should know; `None`: nobody takes them.
    pub(crate) site_changes: Option<Vec<SiteChange>>,
    /// The mechanism that a measurement switched off.
    without: Option<Mechanism>,
}

impl Scheduler {
    /// Creates an empty scheduler. The `seed` scatters its waits.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            budget: ConnectionBudget::new(settings.connections_max, settings.silent_max),
            configured: settings.clone(),
            settings,
            pool: ConnectionPool::default(),
            destinations: ById::default(),
            names: NameIndex::new(seed),
            sites: ById::default(),
            shared: BTreeSet::new(),
            site_names: NameIndex::new(seed.wrapping_add(1)),
            dirty: DirtyQueue::default(),
            wait_queue: ConnectionWaitQueue::default(),
            greeting_timer: GreetingTimer::default(),
            overload: Overload::default(),
            urgent_resolves: VecDeque::new(),
            normal_resolves: VecDeque::new(),
            resolves_pending: 0,
            overdue_pending: 0,
            timers: BTreeSet::new(),
            actions: VecDeque::new(),
            chance: Chance::new(seed),
            next_destination: 0,
            next_site: 0,
            step: 0,
            has_deadlines: false,
            site_changes: None,
            without: None,
        }
    }

    /// Switches a mechanism off, to measure its benefit.
    #[doc(hidden)]
    pub const fn switch_off(&mut self, mechanism: Mechanism) {
        self.without = Some(mechanism);
    }

    /// Returns whether a mechanism is in force.
    pub(crate) fn has(&self, mechanism: Mechanism) -> bool {
        self.without != Some(mechanism)
    }

    /// Replaces the settings. Connections above the limits end when they ask for work. All lists are scanned again, and
    /// destinations with work are resolved again.
    ///
    /// If fresh mail no longer waits for an operator, call [`restore`](Self::restore) for all destinations of the
    /// spool: the scheduler does not know one whose mail was all held.
    pub fn reconfigure(&mut self, settings: Settings, now: Duration) {
        self.budget = ConnectionBudget::new(settings.connections_max, settings.silent_max);
        self.configured = settings.clone();
        self.settings = settings;
        self.update_ready_quota();
        for id in self.names.ids() {
            if let Some(destination) = self.destinations.get_mut(&id) {
                (destination.more, destination.has_unchecked) = (true, true);
                destination.scan_by(now);
                destination.ready_check_at = Some(now);
                destination.expire_site(now);
                if let Some(deadlines) = &mut destination.deliver_by {
                    deadlines.clear_age_exemptions();
                }
                self.dirty.add_destination(destination);
            }
        }
        for id in self.site_names.ids() {
            if let Some(site) = self.sites.get_mut(&id) {
                self.dirty.add_site(id, site);
            }
        }
    }

    /// Takes a message that was just committed.
    pub fn add(&mut self, destination: &[u8], job: Job, class: Class, now: Duration) -> AddResult {
        if self.settings.hold_fresh {
            return AddResult::SpoolOnly;
        }
        let id = self.intern(destination, now);
        let Some(destination) = self.destinations.get_mut(&id) else { return AddResult::SpoolOnly };
        self.dirty.add_destination(destination);
        let mut site = destination.site_in(&mut self.sites);
        let added = destination.add(job, class, site.as_deref_mut(), &self.settings, now);
        if let (Some(site), Some(id)) = (site, destination.site) {
            self.dirty.add_site(id, site);
        }
        added
    }

    /// Records that the spool has recipients for a destination, as after a start.
    pub fn restore(&mut self, destination: &[u8], now: Duration) {
        let id = self.intern(destination, now);
        if let Some(destination) = self.destinations.get_mut(&id) {
            (destination.more, destination.has_unchecked) = (true, true);
            self.dirty.add_destination(destination);
        }
    }

    /// Records that the spool moved recipients from the list of this destination to another one. None of them may be
    /// active. Call it before any other call to the scheduler: a page that was read earlier still shows them.
    ///
    /// Call [`restore`](Self::restore) for their new destination.
    pub fn recipients_moved(&mut self, from: &[u8], message: QueueId, recipients: &Positions) {
        let found = self.names.get(from).and_then(|id| self.destinations.get_mut(&id));
        if let Some(destination) = found {
            destination.recipients_moved(message, recipients);
            self.dirty.add_destination(destination);
        }
    }

    /// Answers [`Action::Resolve`]: assigns a destination to a site. May also be called without that action, to move
    /// it.
    ///
    /// Returns the jobs that left memory because the site is down, to be logged as deferred.
    #[must_use]
    pub fn resolved(&mut self, destination: DestinationId, place: &SiteAssignment<'_>, now: Duration) -> Vec<Job> {
        self.resolve_answered(destination);
        let Some(name) = self.destinations.get(&destination).map(|found| Arc::clone(&found.name)) else {
            return Vec::new();
        };
        let id = self.intern_site(place, name);
        let is_there = self
            .destinations
            .get_mut(&destination)
            .is_some_and(|found| found.site_in(&mut self.sites).is_some() && found.site == Some(id));
        if !is_there {
            self.leave_site(destination);
        }
        let (Some(found), Some(site)) = (self.destinations.get_mut(&destination), self.sites.get_mut(&id)) else {
            return Vec::new();
        };
        site.update(place, now);
        site.destinations += usize::from(!is_there);
        site.ready_queue.withdrawn += if is_there { 0 } else { found.notices.scanned };
        found.set_site(id, place.until, now);
        site.is_forced |= std::mem::take(&mut found.is_forced);
        if found.next_deadline().is_some_and(|at| site.has_report_beyond(at)) {
            site.end_report();
        }
        let mut pending = std::mem::take(&mut found.pending);
        // A site that is down takes one job as its probe.
        let takes = if site.down.is_some() { usize::from(site.may_probe(now)) } else { pending.len() };
        let out: Vec<_> = pending.drain(takes.min(pending.len())..).collect();
        for (message, part) in pending {
            site.arrivals.record(now);
            site.ready_queue.push(message, part, now);
        }
        for (message, part) in &out {
            found.drop_part(*message, part, &self.settings, now);
        }
        self.dirty.add_destination(found);
        self.dirty.add_site(id, site);
        jobs_of(out, false)
    }

    /// Answers [`Action::Resolve`]: the hosts of a destination are unknown for now. The destination is resolved again
    /// after a back-off, which grows with each [`ResolveFailure::Domain`], or after
    /// [`resolver_recovered`](Self::resolver_recovered). Jobs in flight go on.
    ///
    /// Returns the jobs that left memory, to be logged as deferred. The spool is unchanged.
    #[must_use]
    pub fn resolve_failed(
        &mut self,
        destination: DestinationId,
        why: &str,
        blame: ResolveFailure,
        now: Duration,
    ) -> Vec<Job> {
        self.resolve_answered(destination);
        self.leave_site(destination);
        let Some(found) = self.destinations.get_mut(&destination) else { return Vec::new() };
        found.set_unresolved((why, blame), &self.settings, now, &mut self.chance);
        self.drop_if_down(destination, now)
    }

    /// Records that our own resolver answers again: destinations that waited for it are resolved within half a minute.
    pub fn resolver_recovered(&mut self, now: Duration) {
        for id in self.names.ids() {
            if let Some(destination) = self.destinations.get_mut(&id)
                && destination.resolver_recovered(now, &mut self.chance)
            {
                self.dirty.add_destination(destination);
            }
        }
    }

    /// Removes the waiting jobs of a destination with unknown hosts from memory, and returns them.
    pub(crate) fn drop_if_down(&mut self, destination: DestinationId, now: Duration) -> Vec<Job> {
        let Some(found) = self.destinations.get_mut(&destination) else { return Vec::new() };
        self.dirty.add_destination(found);
        if found.down.is_none() {
            return Vec::new();
        }
        let out: Vec<_> = std::mem::take(&mut found.pending).into();
        for (message, part) in &out {
            found.drop_part(*message, part, &self.settings, now);
        }
        jobs_of(out, false)
    }

    /// Returns the name of a destination; `None` once it is forgotten. One with an unanswered action is known.
    #[must_use]
    pub fn destination_name(&self, destination: DestinationId) -> Option<&Arc<[u8]>> {
        self.destinations.get(&destination).map(|destination| &destination.name)
    }

    /// Returns the key of a site; `None` once it is forgotten. One with connections is known.
    #[must_use]
    pub fn site_name(&self, site: SiteId) -> Option<&Arc<[u8]>> {
        self.sites.get(&site).map(|site| &site.name)
    }

    /// Returns a destination of a site, to look up its hosts: one with work, if there is one. Known as long as the
    /// site.
    #[must_use]
    pub fn example_destination(&self, site: SiteId) -> Option<&Arc<[u8]>> {
        let site = self.sites.get(&site)?;
        let next = site.ready_queue.first_destination().and_then(|id| self.destination_name(id));
        Some(next.unwrap_or(&site.example))
    }

    /// Answers [`Action::Load`]: entries in the order of the list. `is_end`: none follow.
    pub fn page_loaded(&mut self, destination: DestinationId, entries: &[QueueEntry], is_end: bool, now: Duration) {
        let Some(destination) = self.destinations.get_mut(&destination) else { return };
        if let Some(id) = destination.scan_site.take()
            && let Some(site) = self.sites.get_mut(&id)
        {
            site.pages_pending -= 1;
            self.dirty.add_site(id, site);
        }
        let mut site = destination.site_in(&mut self.sites);
        let mut room = destination.scan_room(site.as_deref(), &self.settings, now);
        room.notices = OVERDUE_MAX_ALL.saturating_sub(self.overdue_pending);
        let before = destination.overdue_pending;
        let ready_queue = site.as_deref_mut().map(|site| &mut site.ready_queue);
        destination.accept_page((entries, is_end), room, ready_queue, &self.settings, now, &mut self.actions);
        self.overdue_pending += destination.overdue_pending - before;
        self.dirty.add_destination(destination);
        let needs_attempt = std::mem::take(&mut destination.needs_attempt);
        if let (Some(site), Some(id)) = (site, destination.site) {
            if needs_attempt {
                site.end_report();
            }
            self.dirty.add_site(id, site);
        }
    }

    /// Answers [`Action::Overdue`] by age: the sender was told and the spool records it, or neither and it will be
    /// tried again. `retry_at` is now, or a later time if the sender could not be told or must not be told earlier.
    /// Until then the age of the message does not count.
    pub fn age_settled(
        &mut self,
        destination: DestinationId,
        message: QueueId,
        recipients: &Positions,
        retry_at: Duration,
        now: Duration,
    ) {
        self.notice_settled(destination, message, recipients, |destination, site, settings| {
            destination.set_age_exemption(message, retry_at, now);
            if !destination.notice_answered(message, recipients, (retry_at, true), site, settings, now) {
                // It may be due before its age counts. Without room for the exemption the scan would ask again.
                destination.scan_by(if destination.is_age_exempt(message, now) { now } else { retry_at });
            }
        });
    }

    /// Answers [`Overdue::Owed`](crate::Overdue::Owed): the report was sent, or is tried again at `retry_at`.
    pub fn report_settled(
        &mut self,
        destination: DestinationId,
        message: QueueId,
        recipients: &Positions,
        retry_at: Duration,
        now: Duration,
    ) {
        self.notice_settled(destination, message, recipients, |destination, site, settings| {
            destination.notice_answered(message, recipients, (retry_at, false), site, settings, now);
            destination.scan_by(retry_at);
        });
    }

    /// Records the deliver-by time of recipients. If they still wait at that time, [`Action::Overdue`] follows with
    /// [`Overdue::ByTime`](crate::Overdue::ByTime).
    pub fn set_deadline(&mut self, destination: &[u8], message: QueueId, recipients: &Positions, at: Duration) {
        let found = self.names.get(destination).and_then(|id| self.destinations.get_mut(&id));
        if let Some(destination) = found.filter(|_| !self.settings.hold_fresh) {
            destination.set_deadline(message, recipients, at);
            self.has_deadlines = true;
            end_report_before(at, destination, &mut self.sites, &mut self.dirty);
            self.dirty.add_destination(destination);
        }
    }

    /// Answers [`Overdue::ByTime`](crate::Overdue::ByTime): the recipients are done (`None`), or their deliver-by time
    /// is this one; [`Duration::MAX`] if they have none.
    pub fn deadline_settled(
        &mut self,
        destination: DestinationId,
        message: QueueId,
        recipients: &Positions,
        next: Option<Duration>,
        now: Duration,
    ) {
        self.notice_settled(destination, message, recipients, |destination, site, settings| {
            if !destination.notice_answered(message, recipients, (now, next.is_some()), site, settings, now) {
                // Scans skipped them meanwhile.
                destination.more = true;
                let ages = [false, true].map(|warned| check_time(message, Duration::MAX, warned, settings));
                if let Some(at) = ages.into_iter().find(|at| *at > now).filter(|_| next.is_some()) {
                    destination.scan_by(at);
                }
            }
        });
        let Some(destination) = self.destinations.get_mut(&destination) else { return };
        match (next, &mut destination.deliver_by) {
            (Some(at), _) => {
                destination.set_deadline(message, recipients, at);
                self.has_deadlines = true;
                end_report_before(at, destination, &mut self.sites, &mut self.dirty);
            }
            (None, Some(deadlines)) => deadlines.remove(message, recipients),
            (None, None) => {}
        }
        self.dirty.add_destination(destination);
    }

    /// Ends an `Overdue` action: `does` what follows for recipients that are still active because of it.
    fn notice_settled(
        &mut self,
        destination: DestinationId,
        message: QueueId,
        recipients: &Positions,
        does: impl FnOnce(&mut Destination, Option<&mut Site>, &Settings),
    ) {
        let Some(destination) = self.destinations.get_mut(&destination) else { return };
        if destination.active.has_any(message, recipients) {
            self.overdue_pending = self.overdue_pending.saturating_sub(1);
            let mut site = destination.site_in(&mut self.sites);
            does(destination, site.as_deref_mut(), &self.settings);
            if let (Some(site), Some(id)) = (site, destination.site) {
                self.dirty.add_site(id, site);
            }
        }
        self.dirty.add_destination(destination);
    }

    /// Clears the back-off of one destination and its site, or of all, and scans its list. Ignores connections that are
    /// not greeted: another one opens beside them.
    ///
    /// Due times stay: to have a recipient tried early, record an earlier due time in the spool first.
    pub fn retry_now(&mut self, destination: Option<&[u8]>, now: Duration) {
        let ids: Vec<DestinationId> = match destination {
            Some(name) => vec![self.intern(name, now)],
            None => self.names.ids(),
        };
        self.step += 1;
        for id in ids {
            if let Some(destination) = self.destinations.get_mut(&id) {
                destination.retry_now(now);
                self.dirty.add_destination(destination);
                if let Some(site) = destination.site_in(&mut self.sites)
                    && let Some(id) = destination.site
                {
                    site.retry_now(self.step, now);
                    self.dirty.add_site(id, site);
                }
            }
        }
    }

    fn intern(&mut self, name: &[u8], now: Duration) -> DestinationId {
        if let Some(id) = self.names.get(name) {
            return id;
        }
        let id = DestinationId(self.next_destination);
        self.next_destination += 1;
        let name: Arc<[u8]> = name.into();
        self.names.insert(Arc::clone(&name), id);
        self.destinations.insert(id, Destination::new(id, name, now));
        self.update_ready_quota();
        id
    }

    /// Adjusts the quota of each destination to their number.
    pub(crate) fn update_ready_quota(&mut self) {
        self.settings.ready_max = self.configured.ready_quota(self.destinations.len());
    }

    fn intern_site(&mut self, place: &SiteAssignment<'_>, example: Arc<[u8]>) -> SiteId {
        if let Some(id) = self.site_names.get(place.site) {
            return id;
        }
        let id = SiteId(self.next_site);
        self.next_site += 1;
        let site = Site::new(place, example, &self.settings);
        self.site_names.insert(Arc::clone(&site.name), id);
        self.sites.insert(id, site);
        id
    }

    /// Ends a look-up of a destination.
    fn resolve_answered(&mut self, id: DestinationId) {
        if let Some(destination) = self.destinations.get_mut(&id)
            && std::mem::replace(&mut destination.resolve_state, ResolveState::Idle) == ResolveState::Pending
        {
            self.resolves_pending -= 1;
        }
    }

    /// Removes a destination and its jobs from its site.
    pub(crate) fn leave_site(&mut self, id: DestinationId) {
        let Some(destination) = self.destinations.get_mut(&id) else { return };
        let Some(site) = destination.site_in(&mut self.sites) else { return };
        for message in destination.active.messages() {
            let parts = site.ready_queue.take_out(message, id, |_| true).into_iter();
            destination.pending.extend(parts.map(|(part, _)| (message, part)));
        }
        site.destinations -= 1;
        site.ready_queue.withdrawn -= destination.notices.scanned;
        destination.notices.forget_positions();
        if let Some(id) = destination.site.take() {
            self.dirty.add_site(id, site);
        }
        destination.waiting_site = None;
    }
}

/// Builds one job for the parts of each message.
pub(crate) fn jobs_of(parts: Vec<(QueueId, Part)>, probe: bool) -> Vec<Job> {
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

/// Ends the wait by a report alone at the site of a destination if a recipient has to be delivered before.
fn end_report_before(at: Duration, destination: &Destination, sites: &mut ById<SiteId, Site>, dirty: &mut DirtyQueue) {
    let Some(id) = destination.site else { return };
    if let Some(site) = sites.get_mut(&id).filter(|site| site.has_report_beyond(at)) {
        site.end_report();
        dirty.add_site(id, site);
    }
}
