//! The janitor: footers, reuse, relocation, retirement and growth, on a thread of its own beside the committer.
//!
//! Keeps a few segments free, by the cheapest means first: take back dead segments, empty nearly dead ones, make a new
//! file. [`Janitor::round`] does all there is to do at the moment, so that a test can drive it without a thread.
//!
//! Invariants: copies are durable before the books point to them; state entries of live messages are written again
//! before their segment is reused; nothing is ever written to a segment that failed.

use crate::cold::{ColdSegments, REST_US};
use crate::event::Event;
use crate::format::Kind;
use crate::log::{seal, with_footer};
use crate::relocate::Relocation;
use crate::sections::{ReadState, StateEntry};
use crate::segments::{Phase, Segment, segment_name};
use crate::shard::{Shard, lock};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Segments beyond the limit that may be made when only one is free: one each for states and moves, and one more for
/// each.
const EXCESS_MAX: u64 = 4;
/// Dead segments of a spool with room enough wait at least so long for a LIVEMAP of their own, in microseconds.
const MAP_US: u64 = 60_000_000;
/// States that are looked up in one turn of the lock; intake and deliveries wait for it meanwhile.
const STATES_AT_ONCE: usize = 1_000;

/// The keeper of a shard's pool.
#[derive(Debug)]
pub(crate) struct Janitor {
    pub(crate) shard: Arc<Shard>,
    /// The segments that take moved messages and carried states.
    pub(crate) cold: ColdSegments,
    /// Growth is not tried before this moment of the disk's clock.
    grow_after_us: u64,
    /// The storage refused the last segment: until it takes one, no mail is admitted in the hope of more.
    is_refused: bool,
    /// Where nothing is lacking, no LIVEMAP is asked for before this moment.
    map_after_us: u64,
    /// How many states were recorded when the committer was last asked to write states of a dead segment again.
    carried_by_committer: u64,
    scrub: crate::scrub::Scrubber,
    pub(crate) ahead: crate::ahead::Ahead,
}

impl Janitor {
    pub(crate) fn new(shard: Arc<Shard>, previous: (u64, u32)) -> Self {
        Self {
            cold: ColdSegments::new(Arc::clone(&shard), previous),
            map_after_us: shard.disk.now_us() + MAP_US,
            shard,
            grow_after_us: 0,
            is_refused: false,
            carried_by_committer: 0,
            scrub: crate::scrub::Scrubber::default(),
            ahead: crate::ahead::Ahead::default(),
        }
    }

    /// Works until the spool is closed.
    pub(crate) fn run(mut self) {
        let mut rested = Duration::ZERO;
        loop {
            let progress = self.round();
            let shard = Arc::clone(&self.shard);
            let mut chores = lock(&shard.chores);
            chores.rounds += 1;
            chores.stuck = !progress;
            shard.bell.notify_all();
            if chores.closing && chores.closed.is_empty() {
                break;
            }
            let pause = self.ahead.pause(&self.shard);
            let rest = pause.unwrap_or_else(|| self.rest());
            let mut timed_out = false;
            if !chores.rung && !progress {
                let (guard, timeout) = shard.bell.wait_timeout(chores, rest).unwrap_or_else(PoisonError::into_inner);
                (chores, timed_out) = (guard, timeout.timed_out());
            }
            rested = if timed_out { rested + rest } else { Duration::ZERO };
            if timed_out && pause.is_some() {
                drop(chores);
                self.fill_ahead();
                chores = lock(&shard.chores);
            }
            if rested >= self.scrub_interval() {
                rested = Duration::ZERO;
                drop(chores);
                self.scrub.step(&shard);
                chores = lock(&shard.chores);
            }
            chores.rung = false;
        }
        self.cold.close();
        self.footers();
    }

    fn scrub_interval(&self) -> Duration {
        Duration::from_millis(self.shard.config.scrub_interval_ms.clamp(1_000, 60_000))
    }

    /// Returns how long it waits for work. Where room is lacking mail is refused, or will be soon, and no event says
    /// that other programs made room.
    fn rest(&self) -> Duration {
        let refused = Duration::from_micros(REST_US);
        if self.shard.lacking() == (0, 0) { self.scrub_interval() } else { self.scrub_interval().min(refused) }
    }

    /// Makes the first segments ready, before the first write.
    pub(crate) fn prepare(&mut self) {
        self.round();
    }

    /// Does what there is to do; `false` if there was nothing, or nothing that could be done.
    pub(crate) fn round(&mut self) -> bool {
        let mut progress = self.footers();
        progress |= self.evacuate();
        progress |= self.reclaim();
        // With room enough nothing tries to grow; the next refusal says again that it is not possible.
        self.is_refused &= self.shard.lacking() != (0, 0);
        self.note_growable();
        let used = lock(&self.shard.book).segments.usable() as u64;
        let attainable = used + self.shard.growable.load(Ordering::Relaxed);
        self.shard.attainable.store(attainable.min(self.shard.config.segments_max().into()), Ordering::Relaxed);
        let excess = used.saturating_sub(self.shard.config.segments_max().into());
        self.shard.excess.store(excess, Ordering::Relaxed);
        while self.shard.lacking() != (0, 0) && !self.shard.is_read_only() {
            let (free, dead) = self.free_and_dead();
            let (to_go_on, to_accept) = self.shard.lacking();
            let reserved = usize::from(self.shard.config.segments_reserved);
            // Dead segments become free with the next LIVEMAPs; moving more meanwhile would only use up the free ones.
            if dead >= to_go_on.max(to_accept) && free >= reserved {
                break;
            }
            let worth = dead < to_go_on || dead < to_accept && free > reserved;
            // The committer waits for growth, and moving takes a segment first.
            let more = self.shard.awaits_growth() && self.grow()
                || worth && self.relocate()
                || self.grow()
                || free < 2 && self.grow_beyond();
            if !more {
                break;
            }
            progress = true;
            // Segments close while this loop works; without their footers they could not come back.
            self.footers();
            self.reclaim();
        }
        self.ask_for_map();
        progress
    }

    /// Asks for the LIVEMAP that dead segments wait for: at once where segments are lacking or one failed, otherwise
    /// from time to time. Each new segment brings one too, but an idle spool opens none.
    fn ask_for_map(&mut self) {
        let failed = lock(&self.shard.book).segments.count(Phase::Failed) > 0;
        let now_us = self.shard.disk.now_us();
        if (failed || self.shard.lacking() != (0, 0) || now_us >= self.map_after_us) && self.maps_missing() {
            self.map_after_us = now_us + MAP_US;
            self.shard.staging.want_livemap();
        }
    }

    fn free_and_dead(&self) -> (usize, usize) {
        let book = lock(&self.shard.book);
        let dead = book.segments.iter().filter(|(slot, _)| book.segments.is_dead(*slot)).count();
        (book.segments.free_count(), dead)
    }

    fn maps_missing(&self) -> bool {
        let book = lock(&self.shard.book);
        let waits = |slot| book.segments.is_dead(slot) || book.segments.get(slot).phase == Phase::Failed;
        book.segments.iter().any(|(slot, _)| waits(slot) && !book.segments.has_maps(slot))
    }

    /// Writes the footers of closed segments.
    fn footers(&mut self) -> bool {
        let closed = std::mem::take(&mut lock(&self.shard.chores).closed);
        for one in &closed {
            seal(&self.shard, one);
        }
        !closed.is_empty()
    }

    /// Empties segments whose write or sync failed, and renames them away.
    fn evacuate(&mut self) -> bool {
        let failed: Vec<(u16, bool)> = {
            let book = lock(&self.shard.book);
            // Frames about other shards' messages are nowhere else.
            let ready = |one: &Segment| one.phase == Phase::Failed && one.pins == 0 && !one.foreign;
            let failed = book.segments.iter().filter(|(_, one)| ready(one));
            failed.map(|(slot, _)| (slot, book.segments.has_maps(slot))).collect()
        };
        let mut progress = false;
        for (slot, has_maps) in failed {
            if lock(&self.shard.book).segments.get(slot).live > 0 {
                Relocation::evacuate(&mut self.cold, slot);
            }
            // Its DONEs are needed until LIVEMAPs have replaced them, its states until they are written again; and only
            // when nothing in it lives any more is it known which ends of messages must be durable first.
            let emptied = lock(&self.shard.book).segments.get(slot).live == 0;
            progress |= emptied && has_maps && self.carried(slot, true) && self.retire(slot);
        }
        progress
    }

    /// Whether everything that the segment's state entries said is durable elsewhere; writes them again if need be.
    ///
    /// An entry is left behind when its message is finished, and then its DONE must be durable first.
    fn carried(&mut self, slot: u16, without_footer: bool) -> bool {
        let (carried, states) = {
            let book = lock(&self.shard.book);
            let segment = book.segments.get(slot);
            (segment.carried, segment.states)
        };
        let since = match carried {
            Some(since) => since,
            None => {
                let needed = without_footer || states > 0;
                if needed && self.committer_carries() {
                    return false;
                }
                let written =
                    !needed || if without_footer { self.carry_scanned(slot) } else { self.carry_states(slot) };
                if !written {
                    return false;
                }
                let mut book = lock(&self.shard.book);
                let (recorded, _) = self.shard.staging.recorded();
                book.segments.get_mut(slot).carried = Some(recorded);
                recorded
            }
        };
        let (_, flushed) = self.shard.staging.recorded();
        flushed >= since
    }

    /// Writes the states of a segment without footer again.
    fn carry_scanned(&mut self, slot: u16) -> bool {
        let (file, generation, data_end) = {
            let book = lock(&self.shard.book);
            let segment = book.segments.get(slot);
            (Arc::clone(&segment.file), segment.generation, segment.data_end)
        };
        let mut bytes = crate::buffer::AlignedBuf::new(self.shard.identity.segment_bytes as usize);
        if file.read_at(bytes.as_mut_slice(), 0).is_err() {
            // States that cannot be read cannot be carried: some recipients are tried earlier than planned.
            return true;
        }
        let found = crate::scan::scan(bytes.as_slice(), self.shard.seed(generation), generation, data_end);
        let sections = found.frames.iter().filter(|found| found.frame.header.kind == Kind::State);
        let entries = present(&self.shard, sections.flat_map(|found| crate::sections::read_states(found.frame.second)));
        self.carry(entries)
    }

    /// Writes states again: into a cold segment, or, where none can be had, with the states that the committer writes.
    ///
    /// The committer gets those of one segment at a time, since its own segment may be the last.
    fn carry(&mut self, entries: Vec<StateEntry>) -> bool {
        let bytes = entries.iter().map(|entry| 2 * entry.encoded_len()).sum::<usize>() + 2 * crate::disk::BLOCK;
        if entries.is_empty() || self.cold.has_room(bytes) {
            return Relocation::states(&mut self.cold, entries);
        }
        let staging = &self.shard.staging;
        let recorded = staging.record(entries, Vec::new(), false, self.shard.disk.now_us());
        (self.carried_by_committer, _) = staging.recorded();
        recorded.is_ok()
    }

    /// Whether states of a segment wait for the committer, and others would too.
    fn committer_carries(&self) -> bool {
        let (_, flushed) = self.shard.staging.recorded();
        flushed < self.carried_by_committer && !self.cold.may_open()
    }

    /// Renames an emptied segment to `bad-…`, for a person to look at.
    fn retire(&self, slot: u16) -> bool {
        let shard = &self.shard;
        let generation = {
            let mut book = lock(&shard.book);
            let segment = book.segments.get_mut(slot);
            if segment.live > 0 {
                return false;
            }
            segment.generation
        };
        let from = shard.directory.join(segment_name(slot));
        let to = shard.directory.join(format!("bad-{slot:06}-{generation}"));
        match shard.disk.rename(&from, &to) {
            Ok(()) => {
                lock(&shard.book).segments.retire(slot);
                shard.tell(Event::SegmentRetired { segment: slot, path: to });
                true
            }
            Err(error) => {
                // Its frames have copies or are dead, so it can do no harm under its old name.
                let mut book = lock(&shard.book);
                book.segments.get_mut(slot).phase = Phase::Retired;
                drop(book);
                shard.tell(Event::SegmentFailed { segment: slot, doing: "renaming it away", error: error.to_string() });
                true
            }
        }
    }

    /// Takes dead segments back into the pool, their state entries carried over.
    fn reclaim(&mut self) -> bool {
        let without_maps = self.shard.config.sabotage().skip_livemap;
        let dead: Vec<u16> = {
            let mut book = lock(&self.shard.book);
            self.shard.release_foreign(&mut book);
            book.segments.note_dead();
            let slots = book.segments.iter().map(|(slot, _)| slot);
            let mut dead: Vec<u16> = slots.filter(|slot| book.segments.reclaimable(*slot, without_maps)).collect();
            // Where room is short, the few states of one make the room for the many of another.
            dead.sort_by_key(|slot| book.segments.get(*slot).states);
            dead
        };
        let mut progress = false;
        for slot in dead {
            if self.carried(slot, false) {
                let mut book = lock(&self.shard.book);
                book.segments.release(slot);
                self.shard.note_free(&book);
                progress = true;
            }
        }
        progress
    }

    /// Writes the state entries of a segment that are about unfinished messages again; `false` if that was not
    /// possible.
    fn carry_states(&mut self, slot: u16) -> bool {
        let entries = with_footer(&self.shard, slot, |footer| present(&self.shard, footer.states.iter().cloned()));
        match entries {
            Some(entries) => self.carry(entries),
            None => self.carry_scanned(slot),
        }
    }

    /// Empties the segments that are nearly dead.
    fn relocate(&mut self) -> bool {
        let victims = lock(&self.shard.book).segments.victims(self.shard.config.relocate_percent_max);
        if self.cold.open.is_none() && !self.cold.may_open() {
            return false;
        }
        !victims.is_empty() && Relocation::run(&mut self.cold, &victims)
    }

    /// Adds a segment to the pool, while the limits and the file system allow.
    fn grow(&mut self) -> bool {
        if self.growable() == 0 {
            return false;
        }
        match self.add_segment() {
            Ok(()) => {
                self.is_refused = false;
                self.note_growable();
                true
            }
            Err(error) => self.growth_refused(&error),
        }
    }

    /// Adds a segment although the limit is reached: only the last is free, so nothing can be moved, and soon no state
    /// be written.
    fn grow_beyond(&mut self) -> bool {
        let used = lock(&self.shard.book).segments.usable() as u64;
        let excess = (used + 1).saturating_sub(u64::from(self.shard.config.segments_max()));
        let slots = lock(&self.shard.book).segments.len();
        if excess > EXCESS_MAX
            || slots > usize::from(crate::files::SLOT_MAX)
            || self.shard.disk.now_us() < self.grow_after_us
        {
            return false;
        }
        match self.add_segment() {
            Ok(()) => {
                self.is_refused = false;
                self.shard.excess.store(excess, Ordering::Relaxed);
                true
            }
            Err(error) => self.growth_refused(&error),
        }
    }

    fn growth_refused(&mut self, error: &std::io::Error) -> bool {
        self.grow_after_us = self.shard.disk.now_us() + REST_US;
        self.is_refused = true;
        self.note_growable();
        self.shard.tell(Event::GrowthRefused { directory: self.shard.directory.clone(), error: error.to_string() });
        false
    }

    fn note_growable(&self) {
        let growable = if self.is_refused { 0 } else { self.growable() };
        self.shard.growable.store(growable, Ordering::Relaxed);
    }

    /// Segments that limits and file system allow at this moment.
    pub(crate) fn growable(&self) -> u64 {
        let shard = &self.shard;
        if shard.disk.now_us() < self.grow_after_us {
            return 0;
        }
        let (used, slots) = {
            let book = lock(&shard.book);
            (book.segments.usable() as u64, book.segments.len())
        };
        let by_limit = u64::from(shard.config.segments_max())
            .saturating_sub(used)
            .min(u64::from(crate::files::SLOT_MAX).saturating_sub(slots as u64));
        // Some file systems report nothing, or nothing true: with 0 a segment that cannot be filled says it.
        if shard.config.free_min == 0 {
            return by_limit;
        }
        let free = shard.disk.space(&shard.directory).map_or(0, |space| space.free);
        let by_disk = free.saturating_sub(shard.config.free_min) / u64::from(shard.identity.segment_bytes);
        by_limit.min(by_disk)
    }

    /// Fills one segment for a storm, if nothing is written meanwhile. Returns whether it did.
    pub(crate) fn fill_ahead(&mut self) -> bool {
        if !self.ahead.may_fill(&self.shard) {
            return false;
        }
        if self.add_segment().is_err() {
            self.ahead.refused(&self.shard);
            return false;
        }
        self.is_refused = false;
        self.note_growable();
        true
    }

    /// Makes one segment more, filled with zeroes. Durable on return.
    pub(crate) fn add_segment(&self) -> std::io::Result<()> {
        let shard = &self.shard;
        let slot = lock(&shard.book).segments.len();
        let path = shard.directory.join(segment_name(u16::try_from(slot).unwrap_or(u16::MAX)));
        let file = match shard.disk.open(&path, true) {
            // An earlier try was made durable and then reported as failed.
            Ok(file) if file.len()? == u64::from(shard.identity.segment_bytes) => file,
            _ => {
                let fresh = shard.directory.join(format!("new-{slot:06}"));
                let made = shard.disk.create_filled(&fresh, shard.identity.segment_bytes.into());
                let opened = made.and_then(|()| shard.disk.open(&fresh, true));
                let named = opened.and_then(|file| shard.disk.rename(&fresh, &path).map(|()| file));
                // The begun file is of no use; when it cannot be removed, the next start does it.
                named.inspect_err(|_| drop(shard.disk.remove(&fresh)))?
            }
        };
        let file: Arc<dyn crate::disk::DiskFile> = file.into();
        let mut book = lock(&shard.book);
        book.segments.add(Segment::new(file));
        shard.note_free(&book);
        drop(book);
        // The committer may wait for it.
        shard.bell.notify_all();
        Ok(())
    }
}

/// The present states of the recipients of unfinished messages that some state entries are about.
fn present<'a>(shard: &Shard, states: impl Iterator<Item = ReadState<'a>>) -> Vec<StateEntry> {
    let mut seen = HashSet::new();
    let mut entries = Vec::new();
    let mut states = states.map(|ReadState { id, position, .. }| (id, position)).filter(|one| seen.insert(*one));
    let mut wanted = Vec::with_capacity(STATES_AT_ONCE);
    let mut found = Vec::with_capacity(STATES_AT_ONCE);
    loop {
        // Nothing grows under the lock: to grow a list of a million takes as long as thousands of look-ups.
        wanted.extend(states.by_ref().take(STATES_AT_ONCE));
        if wanted.is_empty() {
            return entries;
        }
        let book = lock(&shard.book);
        for (id, position) in wanted.drain(..) {
            let Some(sequenced) = book.index.any_state(id, position) else { continue };
            let destination = book.index.destination_of(id, position).map(Into::into);
            let hold = book.index.hold(id, position).cloned();
            found.push(StateEntry { id, position, sequenced, destination, hold });
        }
        drop(book);
        entries.append(&mut found);
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Without it segments run out and the committer would wait for ever.
            self.shard.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::{Config, Pressure, Spool};

    #[test]
    fn while_mail_is_refused_it_looks_for_room_every_ten_seconds() {
        let disk = SimDisk::new(1);
        let mut config = Config::new("/spool");
        (config.segment_bytes, config.size_max, config.free_min) = (1 << 20, 48 << 20, 1 << 30);
        (config.shards, config.scrub_interval_ms) = (1, 60_000);
        disk.set_free(1 << 20);
        let (spool, mut stepper, _) = Spool::open_stepped(config, Arc::new(disk.clone())).expect("a spool");
        let janitor = stepper.janitors.first_mut().expect("a shard");
        janitor.round();
        assert_eq!((spool.pressure(), janitor.rest()), (Pressure::Full, Duration::from_secs(10)));
        disk.set_free(4 << 30);
        disk.advance(REST_US);
        janitor.round();
        assert_eq!((spool.pressure(), janitor.rest()), (Pressure::None, Duration::from_secs(60)));
    }

    /// A file system that reports less free space than a segment, and takes segments all the same.
    #[test]
    fn without_free_min_the_reported_space_decides_nothing() {
        for (free_min, pressure) in [(0, Pressure::None), (1, Pressure::Full)] {
            let disk = SimDisk::new(1);
            let mut config = Config::new("/spool");
            (config.segment_bytes, config.size_max, config.free_min) = (1 << 20, 48 << 20, free_min);
            config.shards = 1;
            disk.configure(|disk| disk.thin = true);
            disk.set_free((1 << 20) - 1);
            let (spool, mut stepper, _) = Spool::open_stepped(config, Arc::new(disk.clone())).expect("a spool");
            stepper.janitors.first_mut().expect("a shard").round();
            assert_eq!(spool.pressure(), pressure, "{free_min}");
        }
    }
}
