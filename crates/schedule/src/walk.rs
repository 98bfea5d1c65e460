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
//! members of a site share its room in turns, a page each, and one of them at a time looks for the probe. What was lost without an
//! answer is one only where there is nothing else: that which was so longest ago. It reads no further
//! than to the first that will do: a walk over the whole list has found when the first of it is too old, what came later says
//! so itself, and only where neither is so ([`Destination::unseen`]) the whole list is read once more.

use std::collections::VecDeque;
use std::time::Duration;

use mail::QueueId;

use crate::again::{Again, Rank};
use crate::destination::{Asks, Destination, PART_MAX};
use crate::job::{Action, Class, Overdue, Positions, Waiting};
use crate::line::Line;
use crate::settings::Settings;
use crate::site::Site;

/// Entries of one page at most.
const PAGE: usize = 1_024;
/// And at least: most of a list may be not due. What a page has above the room is read again.
const PAGE_MIN: usize = 128;
/// The first page of a walk that looks for a probe, which is most often the first entry; each further one is twice as long.
const PAGE_PROBE: usize = 8;
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
    /// It looks for one job to try, and not at the age of what it passes, which is known.
    pub(crate) is_probe: bool,
    /// When the first of the entries that were left is to be looked at.
    next: Option<Duration>,
    /// What is tried if nothing better is found.
    aside: Option<Box<Aside>>,
}

/// Recipients that were lost before without an answer.
#[derive(Debug)]
struct Aside {
    rank: Rank,
    message: QueueId,
    recipients: Vec<u32>,
    class: Class,
    warned: bool,
}

/// What is to be done with the entries of one message.
#[derive(Default)]
struct Sorted {
    take: Vec<u32>,
    warned: bool,
    class: Class,
    give_up: Vec<u32>,
    warn: Vec<u32>,
    ask: Vec<u32>,
    owed: Vec<u32>,
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
            let is_probe = room.down.is_some() && !self.unseen && self.look_at.is_none_or(|at| at > now);
            self.walk = Some(Box::new(Walk { is_probe, ..Walk::default() }));
            self.more = false;
            if !is_probe {
                let unseen = std::mem::take(&mut self.unseen);
                self.looks_at_due = false;
                self.look_at = self.times.as_mut().and_then(|times| times.begin_walk(unseen, now));
            }
        }
        let walk = self.walk.as_ref()?;
        let limit = match room.down {
            None if room.work_from.is_none() => return None,
            None => room.limit.saturating_sub(room.used).max(PAGE_MIN),
            Some(_) if walk.is_probe => (walk.seen as usize).max(PAGE_PROBE),
            Some(_) => PAGE,
        };
        if self.is_loading || self.overdue >= OVERDUE_MAX {
            return None;
        }
        let is_active = |entry: &Waiting| self.active.contains(entry.message, entry.recipient);
        let after = walk.last.filter(is_active).or(walk.anchor);
        self.is_loading = true;
        Some((after, limit.min(PAGE)))
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
        // It may be up by now, and then this is a walk as others.
        walk.is_probe &= room.down.is_some();
        let is_last = is_end || entries.is_empty();
        let whole = if is_last { entries } else { without_last_group(entries) };
        let (mut sorted, mut used) = (Sorted::default(), 0);
        for group in whole.chunk_by(|one, next| one.message == next.message) {
            let Some(first) = group.first() else { continue };
            if room.used >= room.limit && (room.down.is_none() || walk.is_probe) {
                break;
            }
            if ended.contains(&first.message) {
                self.more = true;
            } else {
                sorted.class = first.class;
                self.sort(group, &mut sorted, &mut walk, &room, settings, now);
                if let Some(line) = line.as_ref().filter(|_| room.down.is_some()) {
                    self.more |= walk.set_aside(first.message, &mut sorted, &line.again);
                }
                room.used += self.take(first.message, &mut sorted, line.as_deref_mut(), now);
                room.tells = room.tells.saturating_sub(self.tell(first.message, &mut sorted, actions));
            }
            used += group.len();
            walk.last = group.last().copied();
        }
        walk.seen = walk.seen.saturating_add(u32::try_from(used).unwrap_or(u32::MAX));
        if is_last && used == whole.len() && room.down.is_some() && room.used < room.limit {
            room.used += self.take_aside(&mut walk, line, now);
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
            let is_untimed = entry.timed && !self.knows_time(entry);
            if self.active.contains(entry.message, entry.recipient) {
                self.unseen |= is_untimed;
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
            let age = now.saturating_sub(Duration::from_micros(entry.message.unix_us()));
            // Nobody has tried it, and it is for later: it was given that time when it came, and grows no older before.
            let is_ahead = due > now && entry.attempts == 0;
            let young = self.times.as_ref().and_then(|times| times.young_until(entry.message, now));
            if !is_ahead && young.is_none() && (due > now || room.down.is_some()) {
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
                    self.unseen |= is_untimed;
                    continue;
                }
            }
            if due <= now && room.used + sorted.take.len() / PART_MAX < room.limit {
                sorted.take.push(entry.recipient);
                sorted.warned &= entry.warned;
                self.unseen |= is_untimed;
                continue;
            }
            self.more |= due <= now;
            self.looks_at_due |= due <= now;
            // What is due already waits for room or for the probe; only its age can come before.
            let due = if due <= now { Duration::MAX } else { due.max(until) };
            let check = if is_ahead { due } else { self.next_look(entry.message, due, entry.warned, settings, now) };
            if check > now {
                walk.look_at(check);
            } else {
                // It is tried first, if it can be.
                self.unseen = true;
            }
            if !is_untimed {
                continue;
            }
            // Its attempt asks by when it is to be delivered, unless there can be none now.
            match room.down {
                None => self.unseen = true,
                Some(_) if room.tells > 0 => sorted.ask.push(entry.recipient),
                Some(_) => {
                    walk.look_at(now + TELL_AGAIN);
                    self.asks_again(now);
                }
            }
        }
    }

    /// Whether it is known by when an entry is to be delivered, as far as there is room for that.
    fn knows_time(&self, entry: &Waiting) -> bool {
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

    /// Has senders told whose time is over, but of what is in line or under way: that is looked at when it is tried.
    /// `told`: `Overdue` actions of all destinations.
    pub(crate) fn expire(&mut self, told: &mut usize, now: Duration, actions: &mut VecDeque<Action>) {
        let Some(mut times) = self.times.take() else { return };
        while times.next().is_some_and(|at| at <= now) {
            if self.overdue >= OVERDUE_MAX || *told >= OVERDUE_MAX_ALL {
                times.rest_until = now + TELL_AGAIN;
                break;
            }
            let Some((message, recipients)) = times.due(now) else { break };
            let all = recipients.len();
            let idle = |one: &u32| !self.active.contains(message, *one);
            let recipients: Positions = recipients.iter().filter(idle).collect();
            // If these leave memory untried, a walk is to find them.
            self.unseen |= recipients.len() < all;
            if !recipients.is_empty() {
                self.active.insert(message, recipients.clone());
                self.overdue += 1;
                *told += 1;
                let kind = Overdue::ByTime;
                actions.push_back(Action::Overdue { destination: self.id, message, recipients, kind });
            }
        }
        self.times = Some(times);
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

    /// Puts what was set aside in line, as the only one to try. Says how many jobs that makes.
    fn take_aside(&mut self, walk: &mut Walk, line: Option<&mut Line>, now: Duration) -> usize {
        let Some(aside) = walk.aside.take() else { return 0 };
        let recipients = Positions::from(aside.recipients.as_slice());
        if self.active.has_any(aside.message, &recipients) {
            return 0;
        }
        self.line_up(aside.message, recipients, aside.class, (aside.warned, false), line, now)
    }

    /// Has senders told of what `sort` found to be overdue. Says how many actions that makes.
    fn tell(&mut self, message: QueueId, sorted: &mut Sorted, actions: &mut VecDeque<Action>) -> usize {
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

impl Walk {
    /// Leaves those that were lost before to a time at which there is nothing else, but for the first of them. Says whether there
    /// were some.
    fn set_aside(&mut self, message: QueueId, sorted: &mut Sorted, again: &Again) -> bool {
        let (class, warned, before) = (sorted.class, sorted.warned, sorted.take.len());
        sorted.take.retain(|recipient| {
            let Some(rank) = again.rank(message, *recipient) else { return true };
            match &mut self.aside {
                Some(aside) if aside.rank == rank => aside.recipients.push(*recipient),
                Some(aside) if aside.rank < rank => {}
                aside => *aside = Some(Box::new(Aside { rank, message, recipients: vec![*recipient], class, warned })),
            }
            false
        });
        sorted.take.len() < before
    }

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
