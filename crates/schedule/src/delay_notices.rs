//! Notices for due mail that waits at a site that is up: its delay, its expiry, and its deliver-by time.
//!
//! A site may accept less than what waits for it, because of its rate, its pace or the connection budget. When the
//! first notice time of a destination comes, all its waiting parts are checked. Overdue parts leave the ready queue,
//! become `Overdue` actions as in a scan, and return to their position. Their room stays reserved.
//!
//! A notice time counts if it comes while the recipient waits here. If it was over when the recipient became due, or
//! before this server knew the destination, the recipient is tried first; only the delay is reported, after [`GRACE`].

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use mail::QueueId;

use crate::destination::Destination;
use crate::job::{Action, DestinationId, Overdue, Positions};
use crate::part::{NoticeState, Part};
use crate::pending_notices::PendingNotice;
use crate::ready_queue::{QueuePosition, ReadyQueue};
use crate::scheduler::Scheduler;
use crate::settings::{NOTICE_RETRY, OVERDUE_MAX, OVERDUE_MAX_ALL, Settings};
use crate::site::Site;

/// How long a recipient that was overdue before it could be tried waits for its attempt before its delay is reported.
const GRACE: Duration = Duration::from_secs(3_600);
/// A recipient that was overdue by at most this when it became due, or known, counts as overdue here: scans have
/// pauses.
const LATE_TOLERANCE: Duration = Duration::from_secs(5 * 60);
/// Shortest time between two checks of the waiting parts.
const READY_CHECK_PAUSE: Duration = Duration::from_secs(10);
/// Addition for each part that was checked.
const READY_CHECK_PAUSE_PER_PART: Duration = Duration::from_micros(100);

impl Scheduler {
    /// Emits the notices for waiting parts of a destination that are due.
    pub(crate) fn send_notices(&mut self, id: DestinationId, now: Duration) {
        let Some(destination) = self.destinations.get_mut(&id) else { return };
        let mut site = destination.site_in(&mut self.sites);
        let before = destination.ready();
        destination.expire_deadlines(site.as_deref_mut(), &mut self.overdue_pending, now, &mut self.actions);
        destination.check_ready(site.as_deref_mut(), &mut self.overdue_pending, &self.settings, now, &mut self.actions);
        if let (Some(site), Some(id)) = (site, destination.site.filter(|_| destination.ready() < before)) {
            self.dirty.add_site(id, site);
        }
    }
}

impl Destination {
    /// Returns the notice that is due for a waiting recipient, and when it needs attention next.
    pub(crate) fn next_notice(
        &self,
        message: QueueId,
        notice: &NoticeState,
        settings: &Settings,
        now: Duration,
    ) -> (Option<Overdue>, Duration) {
        let created = settings.created(message, now);
        let was_off = created.saturating_add(LATE_TOLERANCE) < self.known_since;
        let known = if was_off { self.known_since } else { Duration::ZERO };
        let grace = if was_off { known + GRACE } else { Duration::ZERO };
        let exemption =
            self.deliver_by.as_ref().and_then(|deadlines| deadlines.age_exemption(message)).unwrap_or_default();
        let over = created.saturating_add(settings.give_up_after).max(exemption);
        let counts = |at: Duration, from: Duration| at.saturating_add(LATE_TOLERANCE) > from;
        let give_up = if counts(over, known.max(notice.late_since)) {
            over.max(grace).max(notice.not_before)
        } else {
            Duration::MAX
        };
        let late = settings.warn_after.filter(|_| !notice.warned).map(|after| {
            let late = created.saturating_add(after).max(exemption);
            let late = if counts(late, notice.late_since) { late } else { notice.late_since + GRACE };
            late.max(grace).max(notice.not_before)
        });
        // No delay warning at or after the expiry time: the recipient is about to fail.
        let late = late.filter(|late| now.max(*late) < over).unwrap_or(Duration::MAX);
        let kind = match () {
            () if give_up <= now => Some(Overdue::GiveUp),
            () if late <= now => Some(Overdue::Warn),
            () if notice.ask_at <= now => Some(Overdue::ByTime),
            () => None,
        };
        let next = [give_up, late, notice.ask_at].into_iter().filter(|at| *at > now).min();
        (kind, next.unwrap_or(Duration::MAX))
    }

    /// Returns `due` if the recipient was already overdue by then, else zero.
    pub(crate) fn already_late_since(message: QueueId, due: Duration, warned: bool, settings: &Settings) -> Duration {
        let created = settings.created(message, Duration::MAX);
        let gives_up = created.saturating_add(settings.give_up_after);
        let warns = settings.warn_after.filter(|_| !warned).map(|after| created.saturating_add(after));
        if due >= warns.map_or(gives_up, |warns| warns.min(gives_up)) { due } else { Duration::ZERO }
    }

    /// Schedules a check of the waiting parts for the next notice of a part.
    pub(crate) fn schedule_ready_check(
        &mut self,
        message: QueueId,
        notice: &NoticeState,
        settings: &Settings,
        now: Duration,
    ) {
        let (kind, next) = self.next_notice(message, notice, settings, now);
        let at = if kind.is_some() { now + READY_CHECK_PAUSE } else { next };
        if at < Duration::MAX {
            self.check_ready_by(at);
        }
    }

    /// Has the waiting parts checked at `at` or earlier.
    pub(crate) fn check_ready_by(&mut self, at: Duration) {
        self.ready_check_at = Some(self.ready_check_at.map_or(at, |before| before.min(at)));
    }

    /// Returns whether it or its site is down.
    fn is_down(&self, site: Option<&Site>) -> bool {
        self.down.is_some() || site.is_some_and(|site| site.down.is_some())
    }

    /// Returns whether the waiting part is the probe and is about to be tried, not waiting for a place or for the rate.
    fn is_probing(&self, site: Option<&Site>) -> bool {
        self.down.is_some() || site.is_some_and(|site| site.down.is_some() && site.about_to_ask() > 0)
    }

    /// Emits notices for waiting parts that are overdue. `all_pending`: unanswered `Overdue` actions of all
    /// destinations.
    fn check_ready(
        &mut self,
        mut site: Option<&mut Site>,
        all_pending: &mut usize,
        settings: &Settings,
        now: Duration,
        actions: &mut VecDeque<Action>,
    ) {
        if self.ready_check_at.is_none_or(|at| at > now) {
            return;
        }
        let is_probing = self.is_probing(site.as_deref());
        let mut left =
            OVERDUE_MAX.saturating_sub(self.overdue_pending).min(OVERDUE_MAX_ALL.saturating_sub(*all_pending));
        if self.ready() == 0 || is_probing || left == 0 {
            self.ready_check_at = (self.ready() > 0).then_some(now + NOTICE_RETRY);
            return;
        }
        let rest = READY_CHECK_PAUSE
            + READY_CHECK_PAUSE_PER_PART.saturating_mul(u32::try_from(self.ready()).unwrap_or(u32::MAX));
        let pending = std::mem::take(&mut self.pending);
        let (mut stay, mut found) = (VecDeque::new(), Vec::new());
        let mut next = Duration::MAX;
        let mut judge = |message: QueueId, part: &Part| {
            let (kind, at) = self.next_notice(message, &part.notice, settings, now);
            if kind.is_some() && left > 0 {
                left -= 1;
                return kind;
            }
            next = next.min(if kind.is_some() { now + NOTICE_RETRY } else { at });
            None
        };
        if let Some(site) = site.as_deref_mut() {
            for message in self.active.messages() {
                let mut kinds = VecDeque::new();
                let parts = site.ready_queue.take_out(message, self.id, |part| {
                    let kind = judge(message, part);
                    kinds.extend(kind);
                    kind.is_some()
                });
                found.extend(
                    parts.into_iter().zip(kinds).map(|((part, position), kind)| (message, part, position, kind)),
                );
            }
        }
        for (message, part) in pending {
            match judge(message, &part) {
                Some(kind) => found.push((message, part, None, kind)),
                None => stay.push_back((message, part)),
            }
        }
        self.pending = stay;
        self.ready_check_at = (next < Duration::MAX).then(|| next.max(now.saturating_add(rest)));
        for (message, part, position, kind) in found {
            let ready_queue = site.as_deref_mut().map(|site| &mut site.ready_queue);
            *all_pending += 1;
            self.withdraw(message, PendingNotice { part, position, kind }, ready_queue, actions);
        }
    }

    /// Emits the notice for a part that was taken out of the queue.
    fn withdraw(
        &mut self,
        message: QueueId,
        pending: PendingNotice,
        ready_queue: Option<&mut ReadyQueue>,
        actions: &mut VecDeque<Action>,
    ) {
        self.uncount_part(&pending.part);
        if let Some(ready_queue) = ready_queue {
            ready_queue.withdrawn += usize::from(!pending.part.fresh);
        }
        self.overdue_pending += 1;
        let (recipients, kind) = (pending.part.recipients.clone(), pending.kind);
        actions.push_back(Action::Overdue { destination: self.id, message, recipients, kind });
        self.notices.insert(message, pending);
    }

    /// Emits notices for recipients whose deliver-by time is over. Those in flight are left to their attempt and
    /// checked again later. `all_pending`: unanswered `Overdue` actions of all destinations.
    fn expire_deadlines(
        &mut self,
        mut site: Option<&mut Site>,
        all_pending: &mut usize,
        now: Duration,
        actions: &mut VecDeque<Action>,
    ) {
        let Some(mut deadlines) = self.deliver_by.take() else { return };
        let is_probing = self.is_probing(site.as_deref());
        let (kind, mut later) = (Overdue::ByTime, Vec::new());
        while deadlines.next_at().is_some_and(|at| at <= now) {
            if self.overdue_pending >= OVERDUE_MAX || *all_pending >= OVERDUE_MAX_ALL {
                deadlines.not_before = now + NOTICE_RETRY;
                break;
            }
            let Some((message, all)) = deadlines.pop_due(now) else { break };
            let (busy, idle): (Vec<u32>, Vec<u32>) = all.iter().partition(|one| self.active.contains(message, *one));
            if !idle.is_empty() {
                let recipients = Positions::from(idle.as_slice());
                self.active.insert(message, recipients.clone());
                self.overdue_pending += 1;
                *all_pending += 1;
                actions.push_back(Action::Overdue { destination: self.id, message, recipients, kind });
            }
            if busy.is_empty() {
                continue;
            }
            let parts = if is_probing { Vec::new() } else { self.take_out(message, &busy, site.as_deref_mut()) };
            let out: BTreeSet<u32> = parts.iter().flat_map(|(part, _)| part.recipients.iter()).collect();
            for (part, position) in parts {
                *all_pending += 1;
                let ready_queue = site.as_deref_mut().map(|site| &mut site.ready_queue);
                self.withdraw(message, PendingNotice { part, position, kind }, ready_queue, actions);
            }
            later.push((message, busy.into_iter().filter(|one| !out.contains(one)).collect::<Positions>()));
        }
        for (message, recipients) in later.into_iter().filter(|(_, recipients)| !recipients.is_empty()) {
            if let Some(evicted) = deadlines.insert(message, &recipients, now + NOTICE_RETRY) {
                self.scan_by(evicted);
            }
        }
        self.deliver_by = Some(deadlines);
    }

    /// Removes the waiting parts of a message that have some of these recipients, which are in ascending order.
    fn take_out(
        &mut self,
        message: QueueId,
        recipients: &[u32],
        site: Option<&mut Site>,
    ) -> Vec<(Part, Option<QueuePosition>)> {
        let is_it = |part: &Part| part.recipients.iter().any(|recipient| recipients.binary_search(&recipient).is_ok());
        if let Some(site) = site {
            return site.ready_queue.take_out(message, self.id, is_it);
        }
        let (out, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|(of, part)| *of == message && is_it(part));
        self.pending = stay;
        out.into_iter().map(|(_, part)| (part, None)).collect()
    }

    /// Ends an `Overdue` action. A part that was withdrawn returns to the queue if it may wait on (`is_left`);
    /// otherwise the recipients are only in the spool. Returns whether it went back. `again`: when the sender is told,
    /// if not yet.
    pub(crate) fn notice_answered(
        &mut self,
        message: QueueId,
        recipients: &Positions,
        (again, is_left): (Duration, bool),
        mut site: Option<&mut Site>,
        settings: &Settings,
        now: Duration,
    ) -> bool {
        self.overdue_pending = self.overdue_pending.saturating_sub(1);
        let pending = self.notices.remove(message, recipients);
        if let (Some(pending), Some(site)) = (&pending, site.as_deref_mut()) {
            site.ready_queue.withdrawn -= usize::from(!pending.part.fresh);
        }
        let Some(PendingNotice { mut part, position, kind }) =
            pending.filter(|pending| is_left && pending.kind != Overdue::GiveUp)
        else {
            self.release(message, recipients);
            return false;
        };
        match kind {
            Overdue::Warn => part.notice.warned |= again <= now,
            _ => part.notice.ask_at = Duration::MAX,
        }
        self.put_back(message, part, position, site, settings, now);
        true
    }

    /// Puts an untried part back: to its position, or to the front.
    pub(crate) fn put_back(
        &mut self,
        message: QueueId,
        part: Part,
        position: Option<QueuePosition>,
        site: Option<&mut Site>,
        settings: &Settings,
        now: Duration,
    ) {
        if self.is_down(site.as_deref()) {
            self.release(message, &part.recipients);
            return self.leave_to_scan(message, &part, settings, now);
        }
        self.count_part(&part);
        self.schedule_ready_check(message, &part.notice, settings, now);
        match site {
            Some(site) => site.ready_queue.put_back(message, part, position, now),
            None => self.pending.push_front((message, part)),
        }
    }
}
