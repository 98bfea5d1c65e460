//! Reads the spool's list of a destination page by page, and decides what each entry needs.
//!
//! A scan starts at the beginning of the list. It enqueues eligible entries while there is room, pauses while there is
//! none, and checks the age of every entry that it passes. It skips active entries, so a list that shifts between two
//! pages, or starts again, does no harm.
//!
//! An overdue entry is tried before a notice is sent, unless the destination is down, or the time comes while there is
//! no room (`delay_notices`): a server that was off for a week tries everything once before any sender gets a failure.
//!
//! While there is no room and a notice may be due, a *notice-only* scan takes nothing, and the paused scan starts anew
//! after it. A scan for work keeps `scan_at`, the known time of the next notice, so that not each of them needs a
//! notice-only scan.
//!
//! While a destination or its site is down a scan takes only one job, the probe, after the back-off. The destinations
//! of a site use its room in turns, a page each, and one of them at a time looks for the probe. Marked recipients
//! (`suspect_queue`) are probed only if there is nothing else, the oldest mark first. A scan for the probe ends at the
//! first suitable entry. The ages of the rest are covered by earlier scans of the whole list and by later arrivals;
//! where they are not (`Destination::has_unchecked`), the whole list is read once more.

use std::collections::VecDeque;
use std::time::Duration;

use mail::QueueId;

use crate::destination::{Destination, ResolveState};
use crate::job::{Action, Overdue, Positions, QueueEntry};
use crate::part::NoticeState;
use crate::ready_queue::ReadyQueue;
use crate::scan_state::{MessageActions, QueueScan, ScanRoom};
use crate::settings::{ASK_DEADLINE_AFTER, ATTEMPT_TIME, NOTICE_RETRY, OVERDUE_MAX, READY_UNGREETED, Settings};
use crate::site::Site;

/// Maximum number of entries of a page.
const PAGE: usize = 1_024;
/// Minimum number: most entries may not be due. Entries beyond the room are read again.
const PAGE_MIN: usize = 128;
/// First page of a scan for a probe, which mostly takes the first entry. Each further page is twice as long.
const PAGE_PROBE: usize = 8;
/// Pause after a scan before the clock starts another: due times scatter, and one scan has to serve many of them.
const SCAN_PAUSE: Duration = Duration::from_secs(1);
/// Addition for each entry that was read.
const SCAN_PAUSE_PER_ENTRY: Duration = Duration::from_micros(50);
/// Pause after a notice-only scan: notices need not be exact to the second.
const NOTICE_SCAN_PAUSE: Duration = Duration::from_secs(10);
/// How long entries behind a scan may be overdue before it starts anew.
const OVERTAKEN_MAX: Duration = Duration::from_secs(30);
/// Pause before a scan for more work, for each entry that was read: a list of entries that are not due must not be read
/// over and over for the few behind them.
const REFILL_PAUSE_PER_ENTRY: Duration = Duration::from_micros(1);

impl Destination {
    /// Returns what a scan may take now.
    pub(crate) fn scan_room(&self, site: Option<&Site>, settings: &Settings, now: Duration) -> ScanRoom {
        if let Some(down) = &self.down {
            let work_from = (self.ready() == 0 && self.resolve_state == ResolveState::Idle).then_some(down.until);
            let limit = usize::from(self.may_probe(now));
            let (down, is_only_reported) = (Some(down.until), false);
            return ScanRoom { down, is_only_reported, limit, used: 0, work_from, is_full: false, notices: 0 };
        }
        let Some(site) = site else {
            let (limit, used) = (settings.ready_max.clamp(1, READY_UNGREETED), self.scanned());
            let is_full = used > limit / 2;
            let work_from = (!is_full).then_some(Duration::ZERO);
            return ScanRoom { down: None, is_only_reported: false, limit, used, work_from, is_full, notices: 0 };
        };
        let limit = site.scan_limit(settings, now);
        let down = site.down.as_ref().map(|down| down.until);
        let is_only_reported = site.down.as_ref().is_some_and(|down| down.is_only_reported());
        let work_from = site.has_scan_room(settings, now).then_some(Duration::ZERO);
        let used = if down.is_some() { 0 } else { site.ready_queue.scanned() };
        ScanRoom { down, is_only_reported, limit, used, work_from, is_full: used > limit / 2, notices: 0 }
    }

    /// Returns when the next scan starts without an event.
    pub(crate) fn next_scan_at(&self, room: &ScanRoom) -> Option<Duration> {
        if self.is_loading {
            return None;
        }
        if let Some(scan) = &self.scan {
            // A scan for work pauses: entries behind it may be overdue.
            let known = [scan.kept_scan_at, self.scan_at].into_iter().flatten().min();
            let look = if scan.keeps_scan_at && !self.has_unchecked { known } else { Some(Duration::ZERO) };
            let may_look = room.is_full && !scan.is_notice_only && self.overdue_pending < OVERDUE_MAX;
            return look.filter(|_| may_look).map(|at| at.max(self.scan_not_before));
        }
        let may_look = room.down.is_some() || room.work_from.is_some() || room.is_full;
        let look = if room.is_full && self.has_unchecked { Some(Duration::ZERO) } else { self.scan_at };
        let by_clock = look.filter(|_| may_look).map(|at| at.max(self.scan_not_before));
        let for_work = room.work_from.filter(|_| self.more).map(|from| from.max(self.refill_not_before));
        [by_clock, for_work].into_iter().flatten().min()
    }

    /// Returns when a scan is wanted that has to wait for room at the site.
    pub(crate) fn blocked_scan_at(&self, room: &ScanRoom) -> Option<Duration> {
        let is_blocked = room.down.is_none() && room.work_from.is_none() && !room.is_full;
        self.scan_at.filter(|_| is_blocked && self.scan.is_none() && !self.is_loading)
    }

    /// Returns whether a scan waits for room at the site.
    pub(crate) fn waits_for_room(&self, room: &ScanRoom, now: Duration) -> bool {
        let is_blocked = !self.is_loading && room.work_from.is_none();
        let is_paused = self.scan.is_some() && room.down.is_none();
        is_blocked && (is_paused || self.more || room.down.is_none() && self.scan_at.is_some_and(|at| at <= now))
    }

    /// Returns the page to read now: the entry to start after, and the maximum number of entries.
    pub(crate) fn next_page(&mut self, room: &ScanRoom, now: Duration) -> Option<(Option<QueueEntry>, usize)> {
        if self.next_scan_at(room).is_some_and(|at| at <= now) {
            let is_known = !self.has_unchecked && self.scan_at.is_none_or(|at| at > now);
            let is_probe = room.down.is_some() && is_known;
            let (is_notice_only, keeps_scan_at) = (room.is_full, is_known && !room.is_full);
            self.scan = Some(Box::new(QueueScan { is_probe, is_notice_only, keeps_scan_at, ..QueueScan::default() }));
            self.more = false;
            if !is_probe {
                let unseen = std::mem::take(&mut self.has_unchecked);
                self.scan_at_covers_due &= keeps_scan_at;
                let kept_scan_at = self.scan_at.take().filter(|_| keeps_scan_at);
                if let Some(scan) = &mut self.scan {
                    scan.kept_scan_at = kept_scan_at;
                }
                if let Some(at) = self.deliver_by.as_mut().and_then(|deadlines| deadlines.begin_scan(unseen, now)) {
                    self.scan_by(at);
                }
            }
        }
        let has_many_notices = self.overdue_pending >= OVERDUE_MAX;
        if has_many_notices
            && !room.is_full
            && room.down.is_none()
            && self.scan.as_ref().is_some_and(|scan| scan.is_notice_only)
        {
            // The scan waits for notices, while the site waits for mail.
            self.scan = None;
            (self.more, self.has_unchecked, self.scan_not_before) = (true, true, now + NOTICE_SCAN_PAUSE);
            return self.next_page(room, now);
        }
        let scan = self.scan.as_ref()?;
        let limit = match room.down {
            None if scan.is_notice_only => PAGE,
            None if room.work_from.is_none() => return None,
            None => room.limit.saturating_sub(room.used).max(PAGE_MIN),
            Some(_) if scan.is_probe => (scan.entries_read as usize).max(PAGE_PROBE),
            Some(_) => PAGE,
        };
        // A scan for work at a site that is up skips notices without room.
        if self.is_loading || has_many_notices && (scan.is_notice_only || room.down.is_some()) {
            return None;
        }
        let is_active = |entry: &QueueEntry| self.active.contains(entry.message, entry.recipient);
        let after = scan.last.filter(is_active).or(scan.anchor);
        self.is_loading = true;
        Some((after, limit.min(PAGE)))
    }

    /// Takes a page. Its jobs go to `ready_queue`, or wait here if there is no site.
    pub(crate) fn accept_page(
        &mut self,
        (entries, is_end): (&[QueueEntry], bool),
        mut room: ScanRoom,
        mut ready_queue: Option<&mut ReadyQueue>,
        settings: &Settings,
        now: Duration,
        actions: &mut VecDeque<Action>,
    ) {
        let is_answer = std::mem::replace(&mut self.is_loading, false);
        let ended = std::mem::take(&mut self.ended);
        let Some(mut scan) = self.scan.take().filter(|_| is_answer) else { return };
        // The site may be up by now: then this is a normal scan.
        scan.is_probe &= room.down.is_some();
        if scan.is_notice_only {
            room.limit = 0;
        } else if room.down.is_none() {
            // A scan for work does not wait for notices.
            room.notices = room.notices.min(OVERDUE_MAX.saturating_sub(self.overdue_pending));
        }
        let is_last = is_end || entries.is_empty();
        let whole = if is_last { entries } else { without_last_group(entries) };
        let (mut actions_for, mut used) = (MessageActions::default(), 0);
        for group in whole.chunk_by(|one, next| one.message == next.message) {
            let Some(first) = group.first() else { continue };
            if room.used >= room.limit && !scan.is_notice_only && (room.down.is_none() || scan.is_probe) {
                break;
            }
            if ended.contains(&first.message) {
                self.skip_changed(group, &mut scan, settings, now);
            } else {
                actions_for.class = first.class;
                self.classify(group, &mut actions_for, &mut scan, &room, settings, now);
                if let Some(ready_queue) =
                    ready_queue.as_deref_mut().filter(|_| !actions_for.without_deadline.is_empty())
                {
                    ready_queue.ask_deadline_at(first.message, self.id, &actions_for.without_deadline, now);
                    self.check_ready_by(now + NOTICE_SCAN_PAUSE);
                }
                actions_for.without_deadline.clear();
                if let Some(ready_queue) = ready_queue.as_ref().filter(|_| room.down.is_some()) {
                    self.more |= scan.set_suspects_aside(first.message, &mut actions_for, &ready_queue.suspects);
                }
                room.used +=
                    self.enqueue_due(first.message, &mut actions_for, ready_queue.as_deref_mut(), settings, now);
                room.notices = room.notices.saturating_sub(self.emit_notices(first.message, &mut actions_for, actions));
            }
            used += group.len();
            scan.last = group.last().copied();
        }
        scan.entries_read = scan.entries_read.saturating_add(u32::try_from(used).unwrap_or(u32::MAX));
        if is_last && used == whole.len() && room.down.is_some() && room.used < room.limit {
            room.used += self.enqueue_suspect(&mut scan, ready_queue, settings, now);
        }
        if scan.is_probe && entries.is_empty() && scan.entries_read == 0 && self.scan_at.is_some() {
            // No entry is left whose age was to be checked. A full scan finds what arrived meanwhile.
            self.scan_by(now);
        }
        if scan.is_probe && room.used >= room.limit {
            self.more = true;
            return;
        }
        if !is_last || used < whole.len() {
            // Overdue entries behind the scan must not wait for the end of a list that grows as fast as it is read.
            if scan.next.is_none_or(|next| now < next.saturating_add(OVERTAKEN_MAX)) {
                self.scan = Some(scan);
                return;
            }
            (self.more, self.has_unchecked) = (true, true);
        }
        if let Some(deadlines) = self.deliver_by.as_mut().filter(|_| !scan.is_probe && !self.has_unchecked) {
            deadlines.all_asked();
        }
        let rest = if scan.is_notice_only { NOTICE_SCAN_PAUSE } else { SCAN_PAUSE };
        self.scan_not_before = now + rest + SCAN_PAUSE_PER_ENTRY.saturating_mul(scan.entries_read);
        self.refill_not_before = now + REFILL_PAUSE_PER_ENTRY.saturating_mul(scan.entries_read);
        if let Some(next) = scan.next {
            self.scan_by(next);
        }
    }

    /// Skips a message of which a job ended while the page was read: the entries may be old. Another scan takes it, and
    /// `scan_at` covers it until then.
    fn skip_changed(&mut self, group: &[QueueEntry], scan: &mut QueueScan, settings: &Settings, now: Duration) {
        self.more = true;
        for entry in group {
            if entry.held || settings.hold_fresh && entry.due_s == 0 {
                continue;
            }
            self.has_unchecked |= entry.timed && !self.knows_deadline(entry);
            let due = Duration::from_secs(u64::from(entry.due_s));
            let at = match due > now {
                _ if entry.owed => due,
                true => self.next_check(entry.message, due, entry.warned, settings, now),
                false => self.next_check(entry.message, Duration::MAX, entry.warned, settings, now),
            };
            scan.check_by(at.max(now + NOTICE_RETRY));
        }
    }

    /// Decides what the entries of one message need.
    fn classify(
        &mut self,
        group: &[QueueEntry],
        actions_for: &mut MessageActions,
        scan: &mut QueueScan,
        room: &ScanRoom,
        settings: &Settings,
        now: Duration,
    ) {
        for entry in group {
            let is_untimed = entry.timed && !self.knows_deadline(entry);
            if self.active.contains(entry.message, entry.recipient) {
                // At a site that is up `check_ready` asks for it.
                self.has_unchecked |= is_untimed && room.down.is_some();
                actions_for.without_deadline.extend((is_untimed && room.down.is_none()).then_some(entry.recipient));
                continue;
            }
            scan.anchor = Some(*entry);
            if entry.held || settings.hold_fresh && entry.due_s == 0 {
                continue;
            }
            let due = Duration::from_secs(u64::from(entry.due_s));
            if entry.owed {
                match due <= now && room.notices > 0 {
                    true => actions_for.owed.push(entry.recipient),
                    false => scan.check_by(if due > now { due } else { now + NOTICE_RETRY }),
                }
                continue;
            }
            let kind = self.overdue_kind(entry, due, room.down.is_some(), settings, now);
            // By a report alone nothing expires: it is tried first.
            let is_spared = room.is_only_reported && due <= now && kind == Some(Overdue::GiveUp);
            self.needs_attempt |= is_spared;
            if let Some(kind) = kind.filter(|_| !is_spared) {
                actions_for.add_notice(kind, entry.recipient, scan, room, now);
                self.has_unchecked |= is_untimed && room.down.is_some();
                continue;
            }
            if due > now {
                self.leave_for_later(entry, (due, is_untimed), actions_for, scan, room, settings, now);
                continue;
            }
            let since = Self::already_late_since(entry.message, due, entry.warned, settings);
            let ask = if is_untimed { now + ASK_DEADLINE_AFTER } else { Duration::MAX };
            let notice =
                NoticeState { warned: entry.warned, late_since: since, not_before: now + ATTEMPT_TIME, ask_at: ask };
            if room.used + actions_for.parts_with(&notice) < room.limit {
                actions_for.add_due(notice, entry.recipient);
                if room.down.is_some() {
                    // It may be set aside as a suspect, and not become the probe.
                    self.scan_at_covers_due = true;
                    scan.check_by(self.next_check(entry.message, Duration::MAX, entry.warned, settings, now));
                }
                self.has_unchecked |= is_untimed && room.down.is_some();
            } else if room.down.is_some() {
                (self.more, self.scan_at_covers_due) = (true, true);
                self.leave_for_later(entry, (Duration::MAX, is_untimed), actions_for, scan, room, settings, now);
            } else {
                (self.more, self.scan_at_covers_due) = (true, true);
                let ask = if is_untimed { now } else { Duration::MAX };
                let notice =
                    NoticeState { warned: entry.warned, late_since: due, not_before: Duration::ZERO, ask_at: ask };
                let (kind, next) = self.next_notice(entry.message, &notice, settings, now);
                if let Some(kind) = kind {
                    actions_for.add_notice(kind, entry.recipient, scan, room, now);
                }
                if kind == Some(Overdue::ByTime) && room.notices == 0 {
                    self.ask_deadlines_again(now);
                }
                if next < Duration::MAX {
                    scan.check_by(next);
                }
            }
        }
    }

    /// Returns the notice for an entry that cannot be tried now, by its age.
    fn overdue_kind(
        &self,
        entry: &QueueEntry,
        due: Duration,
        is_down: bool,
        settings: &Settings,
        now: Duration,
    ) -> Option<Overdue> {
        let age = now.saturating_sub(settings.created(entry.message, now));
        // A message that was scheduled for later does not age before that time.
        let is_ahead = due > now && entry.attempts == 0;
        if is_ahead || self.is_age_exempt(entry.message, now) || due <= now && !is_down {
            None
        } else if age >= settings.give_up_after {
            Some(Overdue::GiveUp)
        } else {
            (!entry.warned && settings.warn_after.is_some_and(|after| age >= after)).then_some(Overdue::Warn)
        }
    }

    /// Leaves an entry that is not due, or that waits for the probe (`due` is [`Duration::MAX`]): the next event is its
    /// age.
    #[expect(clippy::too_many_arguments, reason = "all of it is known of one entry")]
    fn leave_for_later(
        &mut self,
        entry: &QueueEntry,
        (due, is_untimed): (Duration, bool),
        actions_for: &mut MessageActions,
        scan: &mut QueueScan,
        room: &ScanRoom,
        settings: &Settings,
        now: Duration,
    ) {
        let is_ahead = due < Duration::MAX && entry.attempts == 0;
        let due = if due < Duration::MAX { due.max(room.down.unwrap_or(Duration::ZERO)) } else { due };
        let check = if is_ahead { due } else { self.next_check(entry.message, due, entry.warned, settings, now) };
        if check > now {
            scan.check_by(check);
        } else {
            self.has_unchecked = true;
        }
        // At a site that is up `check_ready` asks for it.
        if is_untimed && room.down.is_some() {
            if room.notices > 0 {
                actions_for.ask_deadline.push(entry.recipient);
            } else {
                scan.check_by(now + NOTICE_RETRY);
                self.ask_deadlines_again(now);
            }
        }
    }

    /// Returns whether the deliver-by time of an entry is known, or has no room.
    fn knows_deadline(&self, entry: &QueueEntry) -> bool {
        self.deliver_by
            .as_ref()
            .is_some_and(|deadlines| deadlines.asking_paused() || deadlines.contains(entry.message, entry.recipient))
    }

    /// Has the next scan ask for the deliver-by times that this one could not ask for.
    pub(crate) fn ask_deadlines_again(&mut self, now: Duration) {
        self.has_unchecked = true;
        if let Some(deadlines) = &mut self.deliver_by {
            deadlines.allow_ask_from(now + NOTICE_RETRY);
        }
    }

    /// Records the deliver-by time of recipients that wait in the spool.
    pub(crate) fn set_deadline(&mut self, message: QueueId, recipients: &Positions, at: Duration) {
        if let Some(evicted) = self.deliver_by.get_or_insert_default().insert(message, recipients, at) {
            self.scan_by(evicted);
        }
    }

    /// Exempts a message from age notices until `until`.
    pub(crate) fn set_age_exemption(&mut self, message: QueueId, until: Duration, now: Duration) {
        if until > now {
            self.deliver_by.get_or_insert_default().set_age_exemption(message, until, now);
        } else if let Some(deadlines) = &mut self.deliver_by {
            deadlines.set_age_exemption(message, until, now);
        }
    }

    /// Returns whether a message is exempt from age notices now.
    pub(crate) fn is_age_exempt(&self, message: QueueId, now: Duration) -> bool {
        self.deliver_by.as_ref().is_some_and(|deadlines| deadlines.active_age_exemption(message, now).is_some())
    }

    /// Enqueues the due recipients that `classify` found. Returns the number of jobs.
    fn enqueue_due(
        &mut self,
        message: QueueId,
        actions_for: &mut MessageActions,
        mut ready_queue: Option<&mut ReadyQueue>,
        settings: &Settings,
        now: Duration,
    ) -> usize {
        let mut formed = 0;
        for (notice, recipients) in actions_for.due.drain(..) {
            let recipients = Positions::from(recipients.as_slice());
            if !recipients.is_empty() {
                let ready_queue = ready_queue.as_deref_mut();
                formed +=
                    self.enqueue(message, recipients, actions_for.class, (notice, false), ready_queue, settings, now);
            }
        }
        formed
    }

    /// Enqueues the suspect as the probe. Returns the number of jobs.
    fn enqueue_suspect(
        &mut self,
        scan: &mut QueueScan,
        ready_queue: Option<&mut ReadyQueue>,
        settings: &Settings,
        now: Duration,
    ) -> usize {
        let Some(suspect) = scan.suspect.take() else { return 0 };
        let recipients = Positions::from(suspect.recipients.as_slice());
        if self.active.has_any(suspect.message, &recipients) {
            return 0;
        }
        self.enqueue(suspect.message, recipients, suspect.class, (suspect.notice, false), ready_queue, settings, now)
    }

    /// Emits the `Overdue` actions that `classify` found. Returns their number.
    fn emit_notices(
        &mut self,
        message: QueueId,
        actions_for: &mut MessageActions,
        actions: &mut VecDeque<Action>,
    ) -> usize {
        let before = self.overdue_pending;
        let found = [
            (&mut actions_for.give_up, Overdue::GiveUp),
            (&mut actions_for.warn, Overdue::Warn),
            (&mut actions_for.ask_deadline, Overdue::ByTime),
            (&mut actions_for.owed, Overdue::Owed),
        ];
        for (overdue, kind) in found {
            if overdue.is_empty() {
                continue;
            }
            overdue.sort_unstable();
            overdue.dedup();
            let recipients = Positions::from(overdue.as_slice());
            overdue.clear();
            self.active.insert(message, recipients.clone());
            self.overdue_pending += 1;
            actions.push_back(Action::Overdue { destination: self.id, message, recipients, kind });
        }
        self.overdue_pending - before
    }
}

/// Returns a page without its last message, which may continue on the next page. Keeps a page of one message.
fn without_last_group(entries: &[QueueEntry]) -> &[QueueEntry] {
    let message = entries.last().map(|last| last.message);
    let start = entries.iter().rposition(|entry| Some(entry.message) != message).map_or(entries.len(), |at| at + 1);
    entries.get(..start).unwrap_or(entries)
}
