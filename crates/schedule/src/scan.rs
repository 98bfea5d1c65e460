//! Reading the spool's list of a destination page by page, and what each entry calls for.
//!
//! A walk begins at the start of the list. It takes eligible entries into memory while there is room, pauses while there
//! is none, and checks the age of every entry it passes. Entries that are active are stepped over, so a list that shifts
//! between two pages, or begins again, does no harm.
//!
//! An entry whose time has come is tried before it is called overdue, unless the destination is down, or the time comes while there is no
//! room (`ages`): a server that was off for a week tries everything once more before anybody is told that it failed.
//!
//! While there is no room and a time has come, or may have, a walk *looks*: it takes nothing, and the walk that paused begins anew
//! behind it. A walk for work leaves the known time at which the list is to be looked through as it is, so that each of them needs no look.
//!
//! While a destination or its site is down a walk takes nothing but, when the back-off is over, one job as a probe. The
//! members of a site share its room in turns, a page each, and one of them at a time looks for the probe. What was lost without an
//! answer is one only where there is nothing else: that which was so longest ago. It reads no further
//! than to the first that will do: a walk over the whole list has found when the first of it is too old, what came later says
//! so itself, and only where neither is so ([`Destination::unseen`]) the whole list is read once more.

use std::collections::VecDeque;
use std::time::Duration;

use mail::QueueId;

use crate::delay_notices::{ASK_AFTER, LAST_TRY};
use crate::destination::{Destination, PART_MAX, ResolveState};
use crate::job::{Action, Class, Overdue, Positions, QueueEntry};
use crate::ready_queue::{NoticeState, ReadyQueue};
use crate::settings::Settings;
use crate::site::Site;
use crate::suspect_queue::{Rank, SuspectQueue};

/// Entries of one page at most.
const PAGE: usize = 1_024;
/// And at least: most of a list may be not due. What a page has above the room is read again.
const PAGE_MIN: usize = 128;
/// The first page of a walk that looks for a probe, which is most often the first entry; each further one is twice as long.
const PAGE_PROBE: usize = 8;
/// Jobs in memory at most while no connection is greeted: after a start with a full spool many destinations wait at once.
pub(crate) const READY_UNGREETED: usize = 64;
/// `Overdue` actions of a destination that may be unanswered while it walks on.
pub(crate) const OVERDUE_MAX: usize = 1_024;
/// The same of all together: each is a task of the driver. Walks leave what is beyond it.
pub(crate) const OVERDUE_MAX_ALL: usize = 4_096;
/// And look at it again after this.
pub(crate) const TELL_AGAIN: Duration = Duration::from_secs(10);
/// Rest after a walk before the clock may begin another: due times scatter, and one walk shall serve many of them.
const REST: Duration = Duration::from_secs(1);
/// And so much for each entry that was read.
const REST_PER_ENTRY: Duration = Duration::from_micros(50);
/// Rest after a walk that looks: it is for times alone, of which none is to be kept by the second.
const LOOK_REST: Duration = Duration::from_secs(10);
/// How long what became due behind a walk waits for it.
const BEHIND_MAX: Duration = Duration::from_secs(30);
/// Rest before a walk for more work, for each entry that was read: a list of entries that are not due must not be read
/// over and over for the few behind them.
const AGAIN_PER_ENTRY: Duration = Duration::from_micros(1);

/// What a walk may take, as destination and site are now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanRoom {
    /// Nothing can be tried before: the hosts are not known, or do not answer.
    down: Option<Duration>,
    /// Jobs from walks that may be in memory, and that are.
    limit: usize,
    used: usize,
    /// From when on it may look for work; `None`: something else is to happen before.
    work_from: Option<Duration>,
    /// That is that jobs leave memory.
    is_full: bool,
    /// `Overdue` actions there may be more.
    pub(crate) tells: usize,
}

/// A walk in progress.
#[derive(Debug, Default)]
pub(crate) struct QueueScan {
    /// The last entry that was seen.
    last: Option<QueueEntry>,
    /// The last entry that was seen and left as it is. It stays in the list when all after it have gone.
    anchor: Option<QueueEntry>,
    seen: u32,
    /// It looks for one job to try, and not at the age of what it passes, which is known.
    pub(crate) is_probe: bool,
    /// It looks at the age of what it passes, and takes nothing.
    is_look: bool,
    /// It is for work: `look_at` stands for all that it has not read.
    keeps: bool,
    /// That is so for this time as well: the walk has taken it, and needs it no more at its end.
    kept: Option<Duration>,
    /// When the first of the entries that were left is to be looked at.
    next: Option<Duration>,
    /// What is tried if nothing better is found.
    aside: Option<Box<SuspectProbe>>,
}

/// Recipients that were lost before without an answer.
#[derive(Debug)]
struct SuspectProbe {
    rank: Rank,
    message: QueueId,
    recipients: Vec<u32>,
    class: Class,
    wait: NoticeState,
}

/// What is to be done with the entries of one message.
#[derive(Default)]
struct MessageActions {
    /// Those together that have waited alike.
    take: Vec<(NoticeState, Vec<u32>)>,
    class: Class,
    give_up: Vec<u32>,
    warn: Vec<u32>,
    ask: Vec<u32>,
    owed: Vec<u32>,
    /// Those in line, or in flight, whose time is not known.
    untimed: Vec<u32>,
}

impl Destination {
    /// What a walk may take now.
    pub(crate) fn room(&self, site: Option<&Site>, settings: &Settings, now: Duration) -> ScanRoom {
        if let Some(down) = &self.down {
            let work_from = (self.ready() == 0 && self.asks == ResolveState::Idle).then_some(down.until);
            let limit = usize::from(self.may_probe(now));
            return ScanRoom { down: Some(down.until), limit, used: 0, work_from, is_full: false, tells: 0 };
        }
        let Some(site) = site else {
            let (limit, used) = (settings.ready_max.clamp(1, READY_UNGREETED), self.walked());
            let is_full = used > limit / 2;
            let work_from = (!is_full).then_some(Duration::ZERO);
            return ScanRoom { down: None, limit, used, work_from, is_full, tells: 0 };
        };
        let limit = site.walk_limit(settings, now);
        let down = site.down.as_ref().map(|down| down.until);
        let work_from = site.has_walk_room(settings, now).then_some(Duration::ZERO);
        let used = if down.is_some() { 0 } else { site.line.walked() };
        ScanRoom { down, limit, used, work_from, is_full: used > limit / 2, tells: 0 }
    }

    /// When the next walk begins, if nothing happens before.
    pub(crate) fn next_walk(&self, room: &ScanRoom) -> Option<Duration> {
        if self.is_loading {
            return None;
        }
        if let Some(walk) = &self.walk {
            // One for work pauses: what it has not read may be older than it should be.
            let known = [walk.kept, self.look_at].into_iter().flatten().min();
            let look = if walk.keeps && !self.unseen { known } else { Some(Duration::ZERO) };
            let may_look = room.is_full && !walk.is_look && self.overdue < OVERDUE_MAX;
            return look.filter(|_| may_look).map(|at| at.max(self.rest_until));
        }
        let may_look = room.down.is_some() || room.work_from.is_some() || room.is_full;
        let look = if room.is_full && self.unseen { Some(Duration::ZERO) } else { self.look_at };
        let by_clock = look.filter(|_| may_look).map(|at| at.max(self.rest_until));
        let for_work = room.work_from.filter(|_| self.more).map(|from| from.max(self.again_from));
        [by_clock, for_work].into_iter().flatten().min()
    }

    /// When a walk is wanted that will have to wait for room at the site.
    pub(crate) fn wants_room_at(&self, room: &ScanRoom) -> Option<Duration> {
        let is_blocked = room.down.is_none() && room.work_from.is_none() && !room.is_full;
        self.look_at.filter(|_| is_blocked && self.walk.is_none() && !self.is_loading)
    }

    /// Whether a walk is wanted that has to wait for room at the site.
    pub(crate) fn wants_room(&self, room: &ScanRoom, now: Duration) -> bool {
        let is_blocked = !self.is_loading && room.work_from.is_none();
        let is_paused = self.walk.is_some() && room.down.is_none();
        is_blocked && (is_paused || self.more || room.down.is_none() && self.look_at.is_some_and(|at| at <= now))
    }

    /// Gives the page to read now: behind which entry, and how many.
    pub(crate) fn next_page(&mut self, room: &ScanRoom, now: Duration) -> Option<(Option<QueueEntry>, usize)> {
        if self.next_walk(room).is_some_and(|at| at <= now) {
            let is_known = !self.unseen && self.look_at.is_none_or(|at| at > now);
            let is_probe = room.down.is_some() && is_known;
            let (is_look, keeps) = (room.is_full, is_known && !room.is_full);
            self.walk = Some(Box::new(QueueScan { is_probe, is_look, keeps, ..QueueScan::default() }));
            self.more = false;
            if !is_probe {
                let unseen = std::mem::take(&mut self.unseen);
                self.looks_at_due &= keeps;
                let kept = self.look_at.take().filter(|_| keeps);
                if let Some(walk) = &mut self.walk {
                    walk.kept = kept;
                }
                if let Some(at) = self.times.as_mut().and_then(|times| times.begin_walk(unseen, now)) {
                    self.look_by(at);
                }
            }
        }
        let is_telling = self.overdue >= OVERDUE_MAX;
        if is_telling && !room.is_full && room.down.is_none() && self.walk.as_ref().is_some_and(|walk| walk.is_look) {
            // It waits for senders to be told, and the site for mail.
            self.walk = None;
            (self.more, self.unseen, self.rest_until) = (true, true, now + LOOK_REST);
            return self.next_page(room, now);
        }
        let walk = self.walk.as_ref()?;
        let limit = match room.down {
            None if walk.is_look => PAGE,
            None if room.work_from.is_none() => return None,
            None => room.limit.saturating_sub(room.used).max(PAGE_MIN),
            Some(_) if walk.is_probe => (walk.seen as usize).max(PAGE_PROBE),
            Some(_) => PAGE,
        };
        // A walk for work at a site that is up leaves to others what is to be told.
        if self.is_loading || is_telling && (walk.is_look || room.down.is_some()) {
            return None;
        }
        let is_active = |entry: &QueueEntry| self.active.contains(entry.message, entry.recipient);
        let after = walk.last.filter(is_active).or(walk.anchor);
        self.is_loading = true;
        Some((after, limit.min(PAGE)))
    }

    /// Takes the answer to a page. `line`: where its jobs go; they wait here if it has no site.
    pub(crate) fn page(
        &mut self,
        (entries, is_end): (&[QueueEntry], bool),
        mut room: ScanRoom,
        mut line: Option<&mut ReadyQueue>,
        settings: &Settings,
        now: Duration,
        actions: &mut VecDeque<Action>,
    ) {
        let is_answer = std::mem::replace(&mut self.is_loading, false);
        let ended = std::mem::take(&mut self.ended);
        let Some(mut walk) = self.walk.take().filter(|_| is_answer) else { return };
        // It may be up by now, and then this is a walk as others.
        walk.is_probe &= room.down.is_some();
        if walk.is_look {
            room.limit = 0;
        } else if room.down.is_none() {
            // It does not wait until senders are told.
            room.tells = room.tells.min(OVERDUE_MAX.saturating_sub(self.overdue));
        }
        let is_last = is_end || entries.is_empty();
        let whole = if is_last { entries } else { without_last_group(entries) };
        let (mut sorted, mut used) = (MessageActions::default(), 0);
        for group in whole.chunk_by(|one, next| one.message == next.message) {
            let Some(first) = group.first() else { continue };
            if room.used >= room.limit && !walk.is_look && (room.down.is_none() || walk.is_probe) {
                break;
            }
            if ended.contains(&first.message) {
                self.passes_by(group, &mut walk, settings, now);
            } else {
                sorted.class = first.class;
                self.sort(group, &mut sorted, &mut walk, &room, settings, now);
                if let Some(line) = line.as_deref_mut().filter(|_| !sorted.untimed.is_empty()) {
                    line.ask(first.message, self.id, &sorted.untimed, now);
                    self.looks_by(now + LOOK_REST);
                }
                sorted.untimed.clear();
                if let Some(line) = line.as_ref().filter(|_| room.down.is_some()) {
                    self.more |= walk.set_aside(first.message, &mut sorted, &line.again);
                }
                room.used += self.take(first.message, &mut sorted, line.as_deref_mut(), settings, now);
                room.tells = room.tells.saturating_sub(self.tell(first.message, &mut sorted, actions));
            }
            used += group.len();
            walk.last = group.last().copied();
        }
        walk.seen = walk.seen.saturating_add(u32::try_from(used).unwrap_or(u32::MAX));
        if is_last && used == whole.len() && room.down.is_some() && room.used < room.limit {
            room.used += self.take_aside(&mut walk, line, settings, now);
        }
        if walk.is_probe && entries.is_empty() && walk.seen == 0 && self.look_at.is_some() {
            // Nobody waits any more whose age was to be looked at. What came meanwhile is seen by a walk over all.
            self.look_by(now);
        }
        if walk.is_probe && room.used >= room.limit {
            self.more = true;
            return;
        }
        if !is_last || used < whole.len() {
            // What became due behind it is not to wait until a list that grows as fast as it is read has an end.
            if walk.next.is_none_or(|next| now < next.saturating_add(BEHIND_MAX)) {
                self.walk = Some(walk);
                return;
            }
            (self.more, self.unseen) = (true, true);
        }
        if let Some(times) = self.times.as_mut().filter(|_| !walk.is_probe && !self.unseen) {
            times.are_asked();
        }
        let rest = if walk.is_look { LOOK_REST } else { REST };
        self.rest_until = now + rest + REST_PER_ENTRY.saturating_mul(walk.seen);
        self.again_from = now + AGAIN_PER_ENTRY.saturating_mul(walk.seen);
        if let Some(next) = walk.next {
            self.look_by(next);
        }
    }

    /// Leaves what is told of a message of which something ended since: another walk is to take it, and until then it is known when
    /// to look at it.
    fn passes_by(&mut self, group: &[QueueEntry], walk: &mut QueueScan, settings: &Settings, now: Duration) {
        self.more = true;
        for entry in group {
            if entry.held || settings.fresh_waits && entry.due_s == 0 {
                continue;
            }
            self.unseen |= entry.timed && !self.knows_time(entry);
            let due = Duration::from_secs(u64::from(entry.due_s));
            let at = match due > now {
                _ if entry.owed => due,
                true => self.next_look(entry.message, due, entry.warned, settings, now),
                false => self.next_look(entry.message, Duration::MAX, entry.warned, settings, now),
            };
            walk.look_at(at.max(now + TELL_AGAIN));
        }
    }

    /// Judges the entries of one message.
    fn sort(
        &mut self,
        group: &[QueueEntry],
        sorted: &mut MessageActions,
        walk: &mut QueueScan,
        room: &ScanRoom,
        settings: &Settings,
        now: Duration,
    ) {
        for entry in group {
            let is_untimed = entry.timed && !self.knows_time(entry);
            if self.active.contains(entry.message, entry.recipient) {
                // At a site that is up it is asked for in line.
                self.unseen |= is_untimed && room.down.is_some();
                sorted.untimed.extend((is_untimed && room.down.is_none()).then_some(entry.recipient));
                continue;
            }
            walk.anchor = Some(*entry);
            if entry.held || settings.fresh_waits && entry.due_s == 0 {
                continue;
            }
            let due = Duration::from_secs(u64::from(entry.due_s));
            if entry.owed {
                match due <= now && room.tells > 0 {
                    true => sorted.owed.push(entry.recipient),
                    false => walk.look_at(if due > now { due } else { now + TELL_AGAIN }),
                }
                continue;
            }
            if let Some(kind) = self.overdue(entry, due, room.down.is_some(), settings, now) {
                sorted.tell(kind, entry.recipient, walk, room, now);
                self.unseen |= is_untimed && room.down.is_some();
                continue;
            }
            if due > now {
                self.leave_for_later(entry, (due, is_untimed), sorted, walk, room, settings, now);
                continue;
            }
            let since = Self::late_since(entry.message, due, entry.warned, settings);
            let ask = if is_untimed { now + ASK_AFTER } else { Duration::MAX };
            let wait = NoticeState { warned: entry.warned, due: since, rest: now + LAST_TRY, ask };
            if room.used + sorted.parts(&wait) < room.limit {
                sorted.take(wait, entry.recipient);
                if room.down.is_some() {
                    // It may be set aside, and not be the one that is tried.
                    self.looks_at_due = true;
                    walk.look_at(self.next_look(entry.message, Duration::MAX, entry.warned, settings, now));
                }
                self.unseen |= is_untimed && room.down.is_some();
            } else if room.down.is_some() {
                (self.more, self.looks_at_due) = (true, true);
                self.leave_for_later(entry, (Duration::MAX, is_untimed), sorted, walk, room, settings, now);
            } else {
                (self.more, self.looks_at_due) = (true, true);
                let ask = if is_untimed { now } else { Duration::MAX };
                let wait = NoticeState { warned: entry.warned, due, rest: Duration::ZERO, ask };
                let (kind, next) = self.judge(entry.message, &wait, settings, now);
                if let Some(kind) = kind {
                    sorted.tell(kind, entry.recipient, walk, room, now);
                }
                if kind == Some(Overdue::ByTime) && room.tells == 0 {
                    self.asks_again(now);
                }
                if next < Duration::MAX {
                    walk.look_at(next);
                }
            }
        }
    }

    /// What the sender is to be told of an entry that cannot be tried now, by its age.
    fn overdue(
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
        if is_ahead || self.is_young_at(entry.message, now) || due <= now && !is_down {
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
        sorted: &mut MessageActions,
        walk: &mut QueueScan,
        room: &ScanRoom,
        settings: &Settings,
        now: Duration,
    ) {
        let is_ahead = due < Duration::MAX && entry.attempts == 0;
        let due = if due < Duration::MAX { due.max(room.down.unwrap_or(Duration::ZERO)) } else { due };
        let check = if is_ahead { due } else { self.next_look(entry.message, due, entry.warned, settings, now) };
        if check > now {
            walk.look_at(check);
        } else {
            self.unseen = true;
        }
        // At a site that is up it is asked for in line.
        if is_untimed && room.down.is_some() {
            if room.tells > 0 {
                sorted.ask.push(entry.recipient);
            } else {
                walk.look_at(now + TELL_AGAIN);
                self.asks_again(now);
            }
        }
    }

    /// Whether it is known by when an entry is to be delivered, as far as there is room for that.
    fn knows_time(&self, entry: &QueueEntry) -> bool {
        self.times.as_ref().is_some_and(|times| times.rests() || times.knows(entry.message, entry.recipient))
    }

    /// Not all of the list were asked for their times: the next walk is to see to the rest.
    pub(crate) fn asks_again(&mut self, now: Duration) {
        self.unseen = true;
        if let Some(times) = &mut self.times {
            times.ask_from(now + TELL_AGAIN);
        }
    }

    /// Keeps by when recipients that wait in the spool are to be delivered.
    pub(crate) fn expect(&mut self, message: QueueId, recipients: &Positions, at: Duration) {
        if let Some(crowded_out) = self.times.get_or_insert_default().keep(message, recipients, at) {
            self.look_by(crowded_out);
        }
    }

    /// Nobody is told of the age of a message before `until`.
    pub(crate) fn is_young(&mut self, message: QueueId, until: Duration, now: Duration) {
        if until > now {
            self.times.get_or_insert_default().is_young(message, until, now);
        } else if let Some(times) = &mut self.times {
            times.is_young(message, until, now);
        }
    }

    /// Whether it is known that nobody is told of the age of a message now.
    pub(crate) fn is_young_at(&self, message: QueueId, now: Duration) -> bool {
        self.times.as_ref().is_some_and(|times| times.young_until(message, now).is_some())
    }

    /// Puts what `sort` found to be due in line. Says how many jobs that makes.
    fn take(
        &mut self,
        message: QueueId,
        sorted: &mut MessageActions,
        mut line: Option<&mut ReadyQueue>,
        settings: &Settings,
        now: Duration,
    ) -> usize {
        let mut formed = 0;
        for (wait, recipients) in sorted.take.drain(..) {
            let recipients = Positions::from(recipients.as_slice());
            if !recipients.is_empty() {
                let line = line.as_deref_mut();
                formed += self.line_up(message, recipients, sorted.class, (wait, false), line, settings, now);
            }
        }
        formed
    }

    /// Puts what was set aside in line, as the only one to try. Says how many jobs that makes.
    fn take_aside(
        &mut self,
        walk: &mut QueueScan,
        line: Option<&mut ReadyQueue>,
        settings: &Settings,
        now: Duration,
    ) -> usize {
        let Some(aside) = walk.aside.take() else { return 0 };
        let recipients = Positions::from(aside.recipients.as_slice());
        if self.active.has_any(aside.message, &recipients) {
            return 0;
        }
        self.line_up(aside.message, recipients, aside.class, (aside.wait, false), line, settings, now)
    }

    /// Has senders told of what `sort` found to be overdue. Says how many actions that makes.
    fn tell(&mut self, message: QueueId, sorted: &mut MessageActions, actions: &mut VecDeque<Action>) -> usize {
        let before = self.overdue;
        let found = [
            (&mut sorted.give_up, Overdue::GiveUp),
            (&mut sorted.warn, Overdue::Warn),
            (&mut sorted.ask, Overdue::ByTime),
            (&mut sorted.owed, Overdue::Owed),
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
            self.overdue += 1;
            actions.push_back(Action::Overdue { destination: self.id, message, recipients, kind });
        }
        self.overdue - before
    }
}

impl MessageActions {
    /// Jobs that are full, or closed by those of others, if one more recipient comes that has waited so.
    fn parts(&self, wait: &NoticeState) -> usize {
        let full: usize = self.take.iter().map(|(_, recipients)| recipients.len() / PART_MAX).sum();
        let is_there = self.take.iter().any(|(other, _)| other == wait);
        full + self.take.len() - usize::from(is_there)
    }

    fn take(&mut self, wait: NoticeState, recipient: u32) {
        match self.take.iter_mut().find(|(other, _)| *other == wait) {
            Some((_, recipients)) => recipients.push(recipient),
            None => self.take.push((wait, vec![recipient])),
        }
    }

    /// Has the sender of a recipient told, if there is room for that; else it is looked at again.
    fn tell(&mut self, kind: Overdue, recipient: u32, walk: &mut QueueScan, room: &ScanRoom, now: Duration) {
        match kind {
            _ if room.tells == 0 => walk.look_at(now + TELL_AGAIN),
            Overdue::GiveUp => self.give_up.push(recipient),
            Overdue::Warn => self.warn.push(recipient),
            Overdue::ByTime => self.ask.push(recipient),
            Overdue::Owed => self.owed.push(recipient),
        }
    }
}

impl QueueScan {
    /// Leaves those that were lost before to a time at which there is nothing else, but for the first of them. Says whether there
    /// were some.
    fn set_aside(&mut self, message: QueueId, sorted: &mut MessageActions, again: &SuspectQueue) -> bool {
        let (class, mut has_some) = (sorted.class, false);
        for (wait, recipients) in &mut sorted.take {
            recipients.retain(|recipient| {
                let Some(rank) = again.rank(message, *recipient) else { return true };
                has_some = true;
                let wait = *wait;
                match &mut self.aside {
                    Some(aside) if aside.rank == rank => {
                        aside.recipients.push(*recipient);
                        aside.wait.warned |= wait.warned;
                    }
                    Some(aside) if aside.rank < rank => {}
                    aside => {
                        *aside =
                            Some(Box::new(SuspectProbe { rank, message, recipients: vec![*recipient], class, wait }))
                    }
                }
                false
            });
        }
        has_some
    }

    /// Has an entry that was left looked at by then.
    fn look_at(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// A page without its last message, of which the next page may have more; a page of one message as it is.
fn without_last_group(entries: &[QueueEntry]) -> &[QueueEntry] {
    let message = entries.last().map(|last| last.message);
    let start = entries.iter().rposition(|entry| Some(entry.message) != message).map_or(entries.len(), |at| at + 1);
    entries.get(..start).unwrap_or(entries)
}
