//! Reading the spool's list of a destination page by page, and what each entry calls for.
//!
//! A walk begins at the start of the list. It takes eligible entries into memory while there is room, pauses while there
//! is none, and checks the age of every entry it passes. Entries that are active are stepped over, so a list that shifts
//! between two pages, or begins again, does no harm.
//!
//! An entry whose time has come is tried before it is called overdue, unless the destination is down: a server that was
//! off for a week tries everything once more before anybody is told that it failed.
//!
//! While a destination is down a walk takes nothing but, when the back-off is over, one job as a probe.
//!
//! Left for later: what waits for long becomes one entry of its destination, drained over one connection.

use std::collections::VecDeque;
use std::time::Duration;

use mail::QueueId;

use crate::destination::{Destination, check_at};
use crate::job::{Action, DestinationId, Overdue, Positions, Waiting};
use crate::settings::Settings;

/// Entries of one page at most.
const PAGE: usize = 1_024;
/// And at least: most of a list may be not due. What a page has above the room is read again.
const PAGE_MIN: usize = 128;
/// Jobs in memory at most while no connection is greeted: after a start with a full spool many destinations wait at once.
const READY_UNGREETED: usize = 64;
/// `Overdue` actions of a destination that may be unanswered while it walks on.
const OVERDUE_MAX: usize = 1_024;
/// Rest after a walk before the clock may begin another: due times scatter, and one walk shall serve many of them.
const REST: Duration = Duration::from_secs(1);
/// And so much for each entry that was read.
const REST_PER_ENTRY: Duration = Duration::from_micros(50);
/// Rest before a walk for more work, for each entry that was read: a list of entries that are not due must not be read
/// over and over for the few behind them.
const AGAIN_PER_ENTRY: Duration = Duration::from_micros(1);

/// Whether a page was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loading {
    No,
    Yes,
    /// Its answer comes too late and is not looked at.
    Stale,
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
    give_up: Vec<u32>,
    warn: Vec<u32>,
}

impl Destination {
    /// Jobs it may have in memory from a walk.
    fn ready_limit(&self, settings: &Settings) -> usize {
        let limit = settings.ready_max.max(1);
        if self.counts.live() == 0 { limit.min(READY_UNGREETED) } else { limit }
    }

    fn has_room(&self, settings: &Settings) -> bool {
        self.ready.len() <= self.ready_limit(settings) / 2
    }

    /// When the next walk begins, if nothing happens before.
    pub(crate) fn next_walk(&self, settings: &Settings) -> Option<Duration> {
        if self.walk.is_some() || self.loading != Loading::No {
            return None;
        }
        let by_clock = self.look_at.map(|at| at.max(self.rest_until));
        let for_work = self.more.then_some(self.again_from);
        let (by_clock, for_work) = match &self.down {
            None if self.has_room(settings) => (by_clock, for_work),
            None => (None, None),
            Some(down) if self.ready.is_empty() && self.counts.all() == 0 => {
                (by_clock, for_work.map(|at| at.max(down.until)))
            }
            Some(_) => (by_clock, None),
        };
        [by_clock, for_work].into_iter().flatten().min()
    }

    /// Gives the page to read now: behind which entry, and how many.
    pub(crate) fn next_page(&mut self, settings: &Settings, now: Duration) -> Option<(Option<Waiting>, usize)> {
        if self.next_walk(settings).is_some_and(|at| at <= now) {
            self.walk = Some(Box::default());
            self.more = false;
            self.look_at = None;
        }
        let room = match &self.down {
            None if !self.has_room(settings) => return None,
            None => self.ready_limit(settings) - self.ready.len(),
            Some(_) => PAGE,
        };
        let walk = self.walk.as_ref()?;
        if self.loading != Loading::No || self.overdue >= OVERDUE_MAX {
            return None;
        }
        let is_active = |entry: &Waiting| self.active.contains(entry.message, entry.recipient);
        let after = walk.last.filter(is_active).or(walk.anchor);
        self.loading = Loading::Yes;
        Some((after, room.clamp(PAGE_MIN, PAGE)))
    }

    /// Takes the answer to a page.
    pub(crate) fn page(
        &mut self,
        id: DestinationId,
        entries: &[Waiting],
        is_end: bool,
        settings: &Settings,
        now: Duration,
        actions: &mut VecDeque<Action>,
    ) {
        let is_answer = self.loading == Loading::Yes;
        self.loading = Loading::No;
        let ended = std::mem::take(&mut self.ended);
        let Some(mut walk) = self.walk.take().filter(|_| is_answer) else { return };
        let is_last = is_end || entries.is_empty();
        let whole = if is_last { entries } else { without_last_group(entries) };
        let (mut sorted, mut used) = (Sorted::default(), 0);
        for group in whole.chunk_by(|one, next| one.message == next.message) {
            let Some(first) = group.first() else { continue };
            if self.down.is_none() && self.ready.len() >= self.ready_limit(settings) {
                break;
            }
            if ended.contains(&first.message) {
                self.more = true;
            } else {
                self.sort(group, &mut sorted, &mut walk, settings, now);
                self.act(id, first.message, &mut sorted, settings, actions);
            }
            used += group.len();
            walk.last = group.last().copied();
        }
        walk.seen = walk.seen.saturating_add(u32::try_from(used).unwrap_or(u32::MAX));
        if !is_last || used < whole.len() {
            self.walk = Some(walk);
            return;
        }
        self.rest_until = now + REST + REST_PER_ENTRY.saturating_mul(walk.seen);
        self.again_from = now + AGAIN_PER_ENTRY.saturating_mul(walk.seen);
        if let Some(next) = walk.next {
            self.look_by(next);
        }
    }

    /// Judges the entries of one message.
    fn sort(&mut self, group: &[Waiting], sorted: &mut Sorted, walk: &mut Walk, settings: &Settings, now: Duration) {
        let largest = 100_usize.max(1);
        let (limit, until) = match &self.down {
            None => (self.ready_limit(settings), Duration::ZERO),
            Some(down) => (usize::from(down.until <= now && self.counts.all() == 0), down.until),
        };
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
            if due > now || self.down.is_some() {
                if age >= settings.give_up_after {
                    sorted.give_up.push(entry.recipient);
                    continue;
                }
                if !entry.warned && settings.warn_after.is_some_and(|after| age >= after) {
                    sorted.warn.push(entry.recipient);
                    continue;
                }
            }
            if due <= now && self.ready.len() + sorted.take.len() / largest < limit {
                sorted.take.push(entry.recipient);
                sorted.warned &= entry.warned;
                continue;
            }
            self.more |= due <= now;
            // What is due already waits for room or for the probe; only its age can come before.
            let due = if due <= now { Duration::MAX } else { due.max(until) };
            let check = check_at(entry.message, due, entry.warned, settings);
            if check > now {
                walk.next = Some(walk.next.map_or(check, |next| next.min(check)));
            }
        }
    }

    /// Does what `sort` found, and empties it.
    fn act(
        &mut self,
        id: DestinationId,
        message: QueueId,
        sorted: &mut Sorted,
        settings: &Settings,
        actions: &mut VecDeque<Action>,
    ) {
        if !sorted.take.is_empty() {
            self.line_up(message, Positions::from(sorted.take.as_slice()), sorted.warned, settings);
            sorted.take.clear();
        }
        for (overdue, kind) in [(&mut sorted.give_up, Overdue::GiveUp), (&mut sorted.warn, Overdue::Warn)] {
            if overdue.is_empty() {
                continue;
            }
            overdue.sort_unstable();
            let recipients = Positions::from(overdue.as_slice());
            overdue.clear();
            self.active.insert(message, recipients.clone());
            self.overdue += 1;
            actions.push_back(Action::Overdue { destination: id, message, recipients, kind });
        }
    }
}

/// A page without its last message, of which the next page may have more; a page of one message as it is.
fn without_last_group(entries: &[Waiting]) -> &[Waiting] {
    let message = entries.last().map(|last| last.message);
    let start = entries.iter().rposition(|entry| Some(entry.message) != message).map_or(entries.len(), |at| at + 1);
    entries.get(..start).unwrap_or(entries)
}
