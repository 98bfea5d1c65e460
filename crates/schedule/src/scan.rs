//! Reading the spool's list of a destination page by page, and what each entry calls for.
//!
//! A scan begins at the start of the list. It takes eligible entries into memory while there is room, pauses while there
//! is none, and checks the age of every entry it passes. Entries that are active are stepped over, so a list that shifts
//! between two pages, or begins again, does no harm.
//!
//! An entry whose time has come is tried before it is called overdue, unless the destination is down, or the time comes while there is no
//! room (`ages`): a server that was off for a week tries everything once more before anybody is told that it failed.
//!
//! While there is no room and a time has come, or may have, a scan *looks*: it takes nothing, and the scan that paused begins anew
//! behind it. A scan for work leaves the known time at which the list is to be looked through as it is, so that each of them needs no look.
//!
//! While a destination or its site is down a scan takes nothing but, when the back-off is over, one job as a probe. The
//! members of a site share its room in turns, a page each, and one of them at a time looks for the probe. What was lost without an
//! answer is one only where there is nothing else: that which was so longest ago. It reads no further
//! than to the first that will do: a scan over the whole list has found when the first of it is too old, what came later says
//! so itself, and only where neither is so ([`Destination::unseen`]) the whole list is read once more.

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

/// Entries of one page at most.
const PAGE: usize = 1_024;
/// And at least: most of a list may be not due. What a page has above the room is read again.
const PAGE_MIN: usize = 128;
/// The first page of a scan that looks for a probe, which is most often the first entry; each further one is twice as long.
const PAGE_PROBE: usize = 8;
/// Rest after a scan before the clock may begin another: due deadlines scatter, and one scan shall serve many of them.
const SCAN_PAUSE: Duration = Duration::from_secs(1);
/// And so much for each entry that was read.
const SCAN_PAUSE_PER_ENTRY: Duration = Duration::from_micros(50);
/// Rest after a scan that looks: it is for deadlines alone, of which none is to be kept by the second.
const NOTICE_SCAN_PAUSE: Duration = Duration::from_secs(10);
/// How long what became due behind a scan waits for it.
const OVERTAKEN_MAX: Duration = Duration::from_secs(30);
/// Rest before a scan for more work, for each entry that was read: a list of entries that are not due must not be read
/// over and over for the few behind them.
const REFILL_PAUSE_PER_ENTRY: Duration = Duration::from_micros(1);

impl Destination {
    /// What a scan may take now.
    pub(crate) fn scan_room(&self, site: Option<&Site>, settings: &Settings, now: Duration) -> ScanRoom {
        if let Some(down) = &self.down {
            let work_from = (self.ready() == 0 && self.resolve_state == ResolveState::Idle).then_some(down.until);
            let limit = usize::from(self.may_probe(now));
            return ScanRoom { down: Some(down.until), limit, used: 0, work_from, is_full: false, notices: 0 };
        }
        let Some(site) = site else {
            let (limit, used) = (settings.ready_max.clamp(1, READY_UNGREETED), self.from_scans());
            let is_full = used > limit / 2;
            let work_from = (!is_full).then_some(Duration::ZERO);
            return ScanRoom { down: None, limit, used, work_from, is_full, notices: 0 };
        };
        let limit = site.scan_limit(settings, now);
        let down = site.down.as_ref().map(|down| down.until);
        let work_from = site.has_scan_room(settings, now).then_some(Duration::ZERO);
        let used = if down.is_some() { 0 } else { site.ready_queue.from_scans() };
        ScanRoom { down, limit, used, work_from, is_full: used > limit / 2, notices: 0 }
    }

    /// When the next scan begins, if nothing happens before.
    pub(crate) fn next_scan_at(&self, room: &ScanRoom) -> Option<Duration> {
        if self.is_loading {
            return None;
        }
        if let Some(scan) = &self.scan {
            // One for work pauses: what it has not read may be older than it should be.
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

    /// When a scan is wanted that will have to wait for room at the site.
    pub(crate) fn blocked_scan_at(&self, room: &ScanRoom) -> Option<Duration> {
        let is_blocked = room.down.is_none() && room.work_from.is_none() && !room.is_full;
        self.scan_at.filter(|_| is_blocked && self.scan.is_none() && !self.is_loading)
    }

    /// Whether a scan is wanted that has to wait for room at the site.
    pub(crate) fn waits_for_room(&self, room: &ScanRoom, now: Duration) -> bool {
        let is_blocked = !self.is_loading && room.work_from.is_none();
        let is_paused = self.scan.is_some() && room.down.is_none();
        is_blocked && (is_paused || self.more || room.down.is_none() && self.scan_at.is_some_and(|at| at <= now))
    }

    /// Gives the page to read now: behind which entry, and how many.
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
            // It waits for senders to be told, and the site for mail.
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
        // A scan for work at a site that is up leaves to others what is to be told.
        if self.is_loading || has_many_notices && (scan.is_notice_only || room.down.is_some()) {
            return None;
        }
        let is_active = |entry: &QueueEntry| self.active.contains(entry.message, entry.recipient);
        let after = scan.last.filter(is_active).or(scan.anchor);
        self.is_loading = true;
        Some((after, limit.min(PAGE)))
    }

    /// Takes the answer to a page. `line`: where its jobs go; they wait here if it has no site.
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
        // It may be up by now, and then this is a scan as others.
        scan.is_probe &= room.down.is_some();
        if scan.is_notice_only {
            room.limit = 0;
        } else if room.down.is_none() {
            // It does not wait until senders are told.
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
            // Nobody waits any more whose age was to be looked at. What came meanwhile is seen by a scan over all.
            self.scan_by(now);
        }
        if scan.is_probe && room.used >= room.limit {
            self.more = true;
            return;
        }
        if !is_last || used < whole.len() {
            // What became due behind it is not to wait until a list that grows as fast as it is read has an end.
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

    /// Leaves what is told of a message of which something ended since: another scan is to take it, and until then it is known when
    /// to look at it.
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

    /// Judges the entries of one message.
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
                // At a site that is up it is asked for in line.
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
            if let Some(kind) = self.overdue_kind(entry, due, room.down.is_some(), settings, now) {
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
                    // It may be set suspect, and not be the one that is tried.
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

    /// What the sender is to be told of an entry that cannot be tried now, by its age.
    fn overdue_kind(
        &self,
        entry: &QueueEntry,
        due: Duration,
        is_down: bool,
        settings: &Settings,
        now: Duration,
    ) -> Option<Overdue> {
        let age = now.saturating_sub(Duration::from_micros(entry.message.unix_us()));
        // Nobody has tried it, and it is for later: it was given that time when it came, and grows no older before.
        let is_ahead = due > now && entry.attempts == 0;
        if is_ahead || self.is_age_exempt(entry.message, now) || due <= now && !is_down {
            None
        } else if age >= settings.give_up_after {
            Some(Overdue::GiveUp)
        } else {
            (!entry.warned && settings.warn_after.is_some_and(|after| age >= after)).then_some(Overdue::Warn)
        }
    }

    /// Leaves an entry that is not due, or waits for the probe (`due` is [`Duration::MAX`]): only its age can come before.
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
        // At a site that is up it is asked for in line.
        if is_untimed && room.down.is_some() {
            if room.notices > 0 {
                actions_for.ask_deadline.push(entry.recipient);
            } else {
                scan.check_by(now + NOTICE_RETRY);
                self.ask_deadlines_again(now);
            }
        }
    }

    /// Whether it is known by when an entry is to be delivered, as far as there is room for that.
    fn knows_deadline(&self, entry: &QueueEntry) -> bool {
        self.deliver_by
            .as_ref()
            .is_some_and(|deadlines| deadlines.asking_paused() || deadlines.contains(entry.message, entry.recipient))
    }

    /// Not all of the list were asked for their deadlines: the next scan is to see to the rest.
    pub(crate) fn ask_deadlines_again(&mut self, now: Duration) {
        self.has_unchecked = true;
        if let Some(deadlines) = &mut self.deliver_by {
            deadlines.allow_ask_from(now + NOTICE_RETRY);
        }
    }

    /// Keeps by when recipients that wait in the spool are to be delivered.
    pub(crate) fn set_deadline(&mut self, message: QueueId, recipients: &Positions, at: Duration) {
        if let Some(evicted) = self.deliver_by.get_or_insert_default().insert(message, recipients, at) {
            self.scan_by(evicted);
        }
    }

    /// Nobody is told of the age of a message before `until`.
    pub(crate) fn set_age_exemption(&mut self, message: QueueId, until: Duration, now: Duration) {
        if until > now {
            self.deliver_by.get_or_insert_default().set_age_exemption(message, until, now);
        } else if let Some(deadlines) = &mut self.deliver_by {
            deadlines.set_age_exemption(message, until, now);
        }
    }

    /// Whether it is known that nobody is told of the age of a message now.
    pub(crate) fn is_age_exempt(&self, message: QueueId, now: Duration) -> bool {
        self.deliver_by.as_ref().is_some_and(|deadlines| deadlines.active_age_exemption(message, now).is_some())
    }

    /// Puts what `sort` found to be due in line. Says how many jobs that makes.
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

    /// Puts what was set suspect in line, as the only one to try. Says how many jobs that makes.
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

    /// Has senders told of what `sort` found to be overdue. Says how many actions that makes.
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

/// A page without its last message, of which the next page may have more; a page of one message as it is.
fn without_last_group(entries: &[QueueEntry]) -> &[QueueEntry] {
    let message = entries.last().map(|last| last.message);
    let start = entries.iter().rposition(|entry| Some(entry.message) != message).map_or(entries.len(), |at| at + 1);
    entries.get(..start).unwrap_or(entries)
}
