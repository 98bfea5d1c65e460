//! Reading the spool's list of a destination page by page, and what each entry calls for.
//!
//! A walk begins at the start of the list. It takes eligible entries into memory while there is room, pauses while there
//! is none, and checks the age of every entry it passes. Entries that are active are stepped over, so a list that shifts
//! between two pages, or begins again, does no harm.
//!
//! An entry whose time has come is tried before it is called overdue, unless the destination is down: a server that was
//! off for a week tries everything once more before anybody is told that it failed.
//!
//! While a destination or its site is down a walk takes nothing but, when the back-off is over, one job as a probe. The
//! members of a site share its room in turns, a page each, and one of them at a time looks for the probe.

use std::collections::VecDeque;
use std::time::Duration;

use mail::QueueId;

use crate::destination::{Asks, Destination, PART_MAX, check_at};
use crate::job::{Action, Class, Overdue, Positions, Waiting};
use crate::line::Line;
use crate::settings::Settings;
use crate::site::Site;

/// Entries of one page at most.
const PAGE: usize = 1_024;
/// And at least: most of a list may be not due. What a page has above the room is read again.
const PAGE_MIN: usize = 128;
/// Jobs in memory at most while no connection is greeted: after a start with a full spool many destinations wait at once.
pub(crate) const READY_UNGREETED: usize = 64;
/// `Overdue` actions of a destination that may be unanswered while it walks on.
const OVERDUE_MAX: usize = 1_024;
/// The same of all together: each is a task of the driver. Walks leave what is beyond it.
pub(crate) const OVERDUE_MAX_ALL: usize = 4_096;
/// And look at it again after this.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// Rest after a walk before the clock may begin another: due times scatter, and one walk shall serve many of them.
const REST: Duration = Duration::from_secs(1);
/// And so much for each entry that was read.
const REST_PER_ENTRY: Duration = Duration::from_micros(50);
/// How long what became due behind a walk waits for it.
const BEHIND_MAX: Duration = Duration::from_secs(30);
/// Rest before a walk for more work, for each entry that was read: a list of entries that are not due must not be read
/// over and over for the few behind them.
const AGAIN_PER_ENTRY: Duration = Duration::from_micros(1);

/// What a walk may take, as destination and site are now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Nothing can be tried before: the hosts are not known, or do not answer.
    down: Option<Duration>,
    /// Jobs from walks that may be in memory, and that are.
    limit: usize,
    used: usize,
    /// From when on it may look for work; `None`: something else is to happen before.
    work_from: Option<Duration>,
    /// `Overdue` actions there may be.
    pub(crate) tells: usize,
}

/// A walk in progress.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The last entry that was seen.
    last: Option<Waiting>,
    /// The last entry that was seen and left as it is. It stays in the list when all after it have gone.
    anchor: Option<Waiting>,
    seen: u32,
    /// When the first of the entries that were left is to be looked at.
    next: Option<Duration>,
}

/// What is to be done with the entries of one message.
#[derive(Default)]
struct Sorted {
    take: Vec<u32>,
    warned: bool,
    class: Class,
    give_up: Vec<u32>,
    warn: Vec<u32>,
}

impl Destination {
    /// What a walk may take now.
    pub(crate) fn room(&self, site: Option<&Site>, settings: &Settings, now: Duration) -> Room {
        if let Some(down) = &self.down {
            let work_from = (self.ready() == 0 && self.asks == Asks::No).then_some(down.until);
            let limit = usize::from(self.may_probe(now));
            return Room { down: Some(down.until), limit, used: 0, work_from, tells: 0 };
        }
        let Some(site) = site else {
            let (limit, used) = (settings.ready_max.clamp(1, READY_UNGREETED), self.walked());
            let work_from = (used <= limit / 2).then_some(Duration::ZERO);
            return Room { down: None, limit, used, work_from, tells: 0 };
        };
        let limit = site.walk_limit(settings, now);
        let down = site.down.as_ref().map(|down| down.until);
        let work_from = site.has_walk_room(settings, now).then_some(Duration::ZERO);
        Room { down, limit, used: if down.is_some() { 0 } else { site.line.walked() }, work_from, tells: 0 }
    }

    /// When the next walk begins, if nothing happens before.
    pub(crate) fn next_walk(&self, room: &Room) -> Option<Duration> {
        if self.walk.is_some() || self.is_loading {
            return None;
        }
        let may_look = room.down.is_some() || room.work_from.is_some();
        let by_clock = self.look_at.filter(|_| may_look).map(|at| at.max(self.rest_until));
        let for_work = room.work_from.filter(|_| self.more).map(|from| from.max(self.again_from));
        [by_clock, for_work].into_iter().flatten().min()
    }

    /// When a walk is wanted that will have to wait for room at the site.
    pub(crate) fn wants_room_at(&self, room: &Room) -> Option<Duration> {
        let is_blocked = room.down.is_none() && room.work_from.is_none();
        self.look_at.filter(|_| is_blocked && self.walk.is_none() && !self.is_loading)
    }

    /// Whether a walk is wanted that has to wait for room at the site.
    pub(crate) fn wants_room(&self, room: &Room, now: Duration) -> bool {
        let is_blocked = !self.is_loading && room.work_from.is_none();
        let is_paused = self.walk.is_some() && room.down.is_none();
        is_blocked && (is_paused || self.more || room.down.is_none() && self.look_at.is_some_and(|at| at <= now))
    }

    /// Gives the page to read now: behind which entry, and how many.
    pub(crate) fn next_page(&mut self, room: &Room, now: Duration) -> Option<(Option<Waiting>, usize)> {
        if self.next_walk(room).is_some_and(|at| at <= now) {
            self.walk = Some(Box::default());
            self.more = false;
            self.look_at = None;
        }
        let limit = match room.down {
            None if room.work_from.is_none() => return None,
            None => room.limit.saturating_sub(room.used),
            Some(_) => PAGE,
        };
        let walk = self.walk.as_ref()?;
        if self.is_loading || self.overdue >= OVERDUE_MAX {
            return None;
        }
        let is_active = |entry: &Waiting| self.active.contains(entry.message, entry.recipient);
        let after = walk.last.filter(is_active).or(walk.anchor);
        self.is_loading = true;
        Some((after, limit.clamp(PAGE_MIN, PAGE)))
    }

    /// Takes the answer to a page. `line`: where its jobs go; they wait here if it has no site.
    pub(crate) fn page(
        &mut self,
        (entries, is_end): (&[Waiting], bool),
        mut room: Room,
        mut line: Option<&mut Line>,
        settings: &Settings,
        now: Duration,
        actions: &mut VecDeque<Action>,
    ) {
        let is_answer = std::mem::replace(&mut self.is_loading, false);
        let ended = std::mem::take(&mut self.ended);
        let Some(mut walk) = self.walk.take().filter(|_| is_answer) else { return };
        let is_last = is_end || entries.is_empty();
        let whole = if is_last { entries } else { without_last_group(entries) };
        let (mut sorted, mut used) = (Sorted::default(), 0);
        for group in whole.chunk_by(|one, next| one.message == next.message) {
            let Some(first) = group.first() else { continue };
            if room.down.is_none() && room.used >= room.limit {
                break;
            }
            if ended.contains(&first.message) {
                self.more = true;
            } else {
                sorted.class = first.class;
                self.sort(group, &mut sorted, &mut walk, &room, settings, now);
                room.used += self.take(first.message, &mut sorted, line.as_deref_mut(), now);
                room.tells = room.tells.saturating_sub(self.tell(first.message, &mut sorted, actions));
            }
            used += group.len();
            walk.last = group.last().copied();
        }
        walk.seen = walk.seen.saturating_add(u32::try_from(used).unwrap_or(u32::MAX));
        if !is_last || used < whole.len() {
            // What became due behind it is not to wait until a list that grows as fast as it is read has an end.
            if walk.next.is_none_or(|next| now < next.saturating_add(BEHIND_MAX)) {
                self.walk = Some(walk);
                return;
            }
            self.more = true;
        }
        self.rest_until = now + REST + REST_PER_ENTRY.saturating_mul(walk.seen);
        self.again_from = now + AGAIN_PER_ENTRY.saturating_mul(walk.seen);
        if let Some(next) = walk.next {
            self.look_by(next);
        }
    }

    /// Judges the entries of one message.
    fn sort(
        &mut self,
        group: &[Waiting],
        sorted: &mut Sorted,
        walk: &mut Walk,
        room: &Room,
        settings: &Settings,
        now: Duration,
    ) {
        let until = room.down.unwrap_or(Duration::ZERO);
        sorted.warned = true;
        for entry in group {
            if self.active.contains(entry.message, entry.recipient) {
                continue;
            }
            walk.anchor = Some(*entry);
            if entry.held || settings.fresh_waits && entry.due_s == 0 {
                continue;
            }
            let due = Duration::from_secs(u64::from(entry.due_s));
            let age = now.saturating_sub(Duration::from_micros(entry.message.unix_us()));
            // Nobody has tried it, and it is for later: it was given that time when it came, and grows no older before.
            let is_ahead = due > now && entry.attempts == 0;
            if !is_ahead && (due > now || room.down.is_some()) {
                let overdue = if age >= settings.give_up_after {
                    Some(&mut sorted.give_up)
                } else if !entry.warned && settings.warn_after.is_some_and(|after| age >= after) {
                    Some(&mut sorted.warn)
                } else {
                    None
                };
                if let Some(overdue) = overdue {
                    if room.tells > 0 {
                        overdue.push(entry.recipient);
                    } else {
                        walk.look_at(now + TELL_AGAIN);
                    }
                    continue;
                }
            }
            if due <= now && room.used + sorted.take.len() / PART_MAX < room.limit {
                sorted.take.push(entry.recipient);
                sorted.warned &= entry.warned;
                continue;
            }
            self.more |= due <= now;
            // What is due already waits for room or for the probe; only its age can come before.
            let due = if due <= now { Duration::MAX } else { due.max(until) };
            let check = if is_ahead { due } else { check_at(entry.message, due, entry.warned, settings) };
            if check > now {
                walk.look_at(check);
            }
        }
    }

    /// Puts what `sort` found to be due in line. Says how many jobs that makes.
    fn take(&mut self, message: QueueId, sorted: &mut Sorted, line: Option<&mut Line>, now: Duration) -> usize {
        if sorted.take.is_empty() {
            return 0;
        }
        let recipients = Positions::from(sorted.take.as_slice());
        sorted.take.clear();
        self.line_up(message, recipients, sorted.class, (sorted.warned, false), line, now)
    }

    /// Has senders told of what `sort` found to be overdue. Says how many actions that makes.
    fn tell(&mut self, message: QueueId, sorted: &mut Sorted, actions: &mut VecDeque<Action>) -> usize {
        let before = self.overdue;
        for (overdue, kind) in [(&mut sorted.give_up, Overdue::GiveUp), (&mut sorted.warn, Overdue::Warn)] {
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

impl Walk {
    /// Has an entry that was left looked at by then.
    fn look_at(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// A page without its last message, of which the next page may have more; a page of one message as it is.
fn without_last_group(entries: &[Waiting]) -> &[Waiting] {
    let message = entries.last().map(|last| last.message);
    let start = entries.iter().rposition(|entry| Some(entry.message) != message).map_or(entries.len(), |at| at + 1);
    entries.get(..start).unwrap_or(entries)
}
