//! The table of a shard's segments: the free segments, the frames that live in the others, and the conditions of their
//! reuse.
//!
//! Invariants (`docs/spool.md` rule 4): a segment becomes free only when no frame in it is live, no arriving body has
//! chunks in it, and two LIVEMAPs younger than its last batch are durable. Everything here is bookkeeping in memory;
//! the janitor does the work.

use crate::disk::DiskFile;
use crate::sections::{Livemap, MappedSegment};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// The use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In the pool.
    Free,
    /// Being written.
    Open,
    /// Written to its end or closed by recovery; the footer is to be written.
    Closed,
    /// Footer written.
    Sealed,
    /// A write or sync of it failed: to be emptied, then renamed away.
    Failed,
    /// Holds frames that cannot be read back: kept as it is while they are in the queue.
    Damaged,
    /// Gone from the directory; the slot is not used again before a restart.
    Retired,
}

/// Stands for a file that is not there, so that slots keep the numbers of the files.
#[derive(Debug)]
pub(crate) struct Missing;

impl DiskFile for Missing {
    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn write_at(&self, _: &[&[u8]], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// One segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) phase: Phase,
    pub(crate) generation: u64,
    pub(crate) cold: bool,
    /// End of its durable batches.
    pub(crate) data_end: u32,
    /// Kept frames published so far.
    pub(crate) frames: u32,
    pub(crate) bits: Vec<u64>,
    pub(crate) live: u32,
    pub(crate) live_bytes: u64,
    /// Chunks of bodies that are still arriving: the segment may be neither moved nor reused.
    pub(crate) pins: u32,
    /// State entries in it.
    pub(crate) states: u32,
    /// It has frames about other shards' messages.
    pub(crate) foreign: bool,
    /// LIVEMAPs that were durable when its last batch was written.
    pub(crate) maps_at_close: u64,
    /// Offset of the last batch with a LIVEMAP, 0 if none.
    pub(crate) livemap: u32,
    /// SEAL frame: offset and size.
    pub(crate) footer: Option<(u32, u32)>,
    /// LIVEMAPs that were durable when it was first seen dead. One younger than that must tell of its death before it
    /// is reused: else a reuse that a crash cuts off looks like rot in frames that may live.
    pub(crate) maps_at_death: Option<u64>,
    /// Its state entries are durable elsewhere once so many recorded states are durable. Counted when no frame of it
    /// lived any more, so that with them the ends of all its messages are durable too.
    pub(crate) carried: Option<u64>,
}

impl Segment {
    pub(crate) fn new(file: Arc<dyn DiskFile>) -> Self {
        Self {
            file,
            phase: Phase::Free,
            generation: 0,
            cold: false,
            data_end: 0,
            frames: 0,
            bits: Vec::new(),
            live: 0,
            live_bytes: 0,
            pins: 0,
            states: 0,
            foreign: false,
            maps_at_close: 0,
            livemap: 0,
            footer: None,
            carried: None,
            maps_at_death: None,
        }
    }

    fn is_dead(&self) -> bool {
        self.phase == Phase::Sealed && self.live == 0 && self.pins == 0 && !self.foreign
    }

    pub(crate) fn is_live(&self, ordinal: u32) -> bool {
        self.bits.get(ordinal as usize / 64).is_some_and(|word| word >> (ordinal % 64) & 1 == 1)
    }

    /// Publishes a frame as live.
    pub(crate) fn add(&mut self, ordinal: u32, size: u32) {
        let word = ordinal as usize / 64;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if let Some(bits) = self.bits.get_mut(word) {
            let bit = 1 << (ordinal % 64);
            assert!(*bits & bit == 0, "a frame is published once");
            *bits |= bit;
        }
        self.frames = self.frames.max(ordinal.saturating_add(1));
        self.live += 1;
        self.live_bytes += u64::from(size);
    }

    /// Counts a frame as dead; one that is dead already stays so.
    pub(crate) fn kill(&mut self, ordinal: u32, size: u32) {
        if !self.is_live(ordinal) {
            return;
        }
        if let Some(bits) = self.bits.get_mut(ordinal as usize / 64) {
            *bits &= !(1 << (ordinal % 64));
        }
        self.live -= 1;
        self.live_bytes = self.live_bytes.saturating_sub(u64::from(size));
    }
}

/// All segments of a shard.
#[derive(Debug)]
pub(crate) struct Segments {
    /// By slot, which is also the number in the file's name.
    slots: Vec<Segment>,
    free: Vec<u16>,
    by_generation: HashMap<u64, u16>,
    next_generation: u64,
    /// LIVEMAPs made durable since the spool was opened.
    maps: u64,
    /// Size of a segment, in bytes.
    bytes: u32,
}

#[expect(clippy::indexing_slicing, reason = "slots come from this table alone; a bad one is our own bug")]
impl Segments {
    pub(crate) fn new(bytes: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_generation: HashMap::new(), next_generation: 1, maps: 0, bytes }
    }

    pub(crate) fn get(&self, slot: u16) -> &Segment {
        &self.slots[usize::from(slot)]
    }

    pub(crate) fn get_mut(&mut self, slot: u16) -> &mut Segment {
        &mut self.slots[usize::from(slot)]
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Segment)> {
        (0_u16..).zip(&self.slots)
    }

    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn count(&self, phase: Phase) -> usize {
        self.slots.iter().filter(|segment| segment.phase == phase).count()
    }

    /// Segments that can be used, now or after their contents have gone.
    pub(crate) fn usable(&self) -> usize {
        self.slots.len() - self.count(Phase::Retired)
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.next_generation
    }

    /// Adds a segment to the table; its number is the next slot.
    pub(crate) fn add(&mut self, segment: Segment) -> u16 {
        let slot = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        self.next_generation = self.next_generation.max(segment.generation + 1);
        match segment.phase {
            Phase::Free => self.free.push(slot),
            Phase::Retired => {}
            _ => {
                self.by_generation.insert(segment.generation, slot);
            }
        }
        self.slots.push(segment);
        slot
    }

    /// Makes sure that generations up to and with `generation` are never used again.
    pub(crate) fn skip_generations(&mut self, generation: u64) {
        self.next_generation = self.next_generation.max(generation + 1);
    }

    pub(crate) fn slot_of(&self, generation: u64) -> Option<u16> {
        self.by_generation.get(&generation).copied()
    }

    /// Takes a free segment and opens it under a new generation.
    pub(crate) fn open(&mut self, cold: bool, reuse_generation: bool) -> Option<u16> {
        let slot = self.free.pop()?;
        let mut generation = self.next_generation;
        let segment = &mut self.slots[usize::from(slot)];
        if reuse_generation && segment.generation != 0 {
            generation = segment.generation;
        } else {
            self.next_generation += 1;
        }
        let file = Arc::clone(&segment.file);
        *segment = Segment { phase: Phase::Open, generation, cold, ..Segment::new(file) };
        self.by_generation.insert(generation, slot);
        Some(slot)
    }

    /// A LIVEMAP has become durable in this segment, in the batch at `offset`.
    pub(crate) fn mapped(&mut self, slot: u16, offset: u32) {
        self.maps += 1;
        self.slots[usize::from(slot)].livemap = offset;
    }

    /// The last batch of a segment has been written.
    pub(crate) fn close(&mut self, slot: u16, phase: Phase) {
        let maps = self.maps;
        let segment = &mut self.slots[usize::from(slot)];
        segment.phase = phase;
        segment.maps_at_close = maps;
    }

    /// Whether the rules allow the segment to be used again, apart from its state entries.
    pub(crate) fn reclaimable(&self, slot: u16, without_maps: bool) -> bool {
        self.is_dead(slot) && (without_maps || self.has_maps(slot))
    }

    /// Notes for dead segments when they were first seen so.
    pub(crate) fn note_dead(&mut self) {
        let maps = self.maps;
        for segment in self.slots.iter_mut().filter(|segment| segment.is_dead()) {
            segment.maps_at_death.get_or_insert(maps);
        }
    }

    /// Whether two LIVEMAPs younger than the segment are durable, one of them younger than its death; one must do when
    /// no segment is free to write on.
    pub(crate) fn has_maps(&self, slot: u16) -> bool {
        let segment = self.get(slot);
        let enough = if self.free.is_empty() { 1 } else { 2 };
        let death_told = segment.maps_at_death.is_none_or(|maps| self.maps > maps);
        self.maps >= segment.maps_at_close + enough && death_told
    }

    /// How many LIVEMAPs are known to be durable when the spool is opened: the one that was read, or none.
    pub(crate) fn set_maps(&mut self, maps: u64) {
        self.maps = maps;
    }

    /// Whether only LIVEMAPs are missing for the segment to be used again.
    pub(crate) fn is_dead(&self, slot: u16) -> bool {
        self.get(slot).is_dead()
    }

    /// Lets go of the foreign frames in segments of generations before `first`.
    pub(crate) fn release_foreign(&mut self, first: u64) {
        for segment in self.slots.iter_mut().filter(|segment| segment.generation < first) {
            segment.foreign = false;
        }
    }

    /// Gives a segment back to the pool.
    pub(crate) fn release(&mut self, slot: u16) {
        let segment = &mut self.slots[usize::from(slot)];
        assert!(segment.live == 0 && segment.pins == 0, "only a dead segment is released");
        segment.phase = Phase::Free;
        segment.carried = None;
        segment.maps_at_death = None;
        segment.bits = Vec::new();
        let generation = segment.generation;
        if self.by_generation.get(&generation) == Some(&slot) {
            self.by_generation.remove(&generation);
        }
        self.free.push(slot);
    }

    /// An emptied segment has left the directory under its name.
    pub(crate) fn retire(&mut self, slot: u16) {
        let segment = &mut self.slots[usize::from(slot)];
        assert!(segment.live == 0, "only an emptied segment is retired");
        segment.phase = Phase::Retired;
        self.by_generation.remove(&segment.generation);
    }

    /// The LIVEMAP of this moment. The segment `opening` has nothing in it yet.
    pub(crate) fn livemap(&self) -> Livemap {
        let used = self.iter().filter(|(_, segment)| !matches!(segment.phase, Phase::Free | Phase::Retired));
        let segments = used
            .map(|(slot, segment)| MappedSegment {
                generation: segment.generation,
                number: slot.into(),
                data_end: segment.data_end,
                frames: segment.frames,
                bits: segment.bits.clone(),
            })
            .collect();
        Livemap { next_generation: self.next_generation, segments }
    }

    /// Segments worth emptying, the best first: little alive, and old enough that the living frames will stay.
    ///
    /// Weighs benefit against cost as (1 − u) × age ÷ (1 + u), u being the share of live bytes.
    pub(crate) fn victims(&self, percent_max: u8) -> Vec<u16> {
        let capacity = f64::from(self.bytes);
        let mut victims: Vec<_> = self
            .iter()
            .filter(|(_, segment)| segment.phase == Phase::Sealed && segment.live > 0 && segment.pins == 0)
            .filter(|(_, segment)| segment.live_bytes * 100 <= u64::from(percent_max) * u64::from(self.bytes))
            .map(|(slot, segment)| {
                #[expect(clippy::cast_precision_loss, reason = "a ranking")]
                let (live, age) = (segment.live_bytes as f64, (self.next_generation - segment.generation) as f64);
                let used = live / capacity;
                (slot, (1.0 - used) * age / (1.0 + used))
            })
            .collect();
        victims.sort_by(|a, b| b.1.total_cmp(&a.1));
        victims.into_iter().map(|(slot, _)| slot).collect()
    }
}

/// Name of a segment file.
pub(crate) fn segment_name(slot: u16) -> String {
    format!("seg-{slot:06}")
}
