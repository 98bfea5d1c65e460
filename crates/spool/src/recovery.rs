//! Opening a spool: from the bytes in the segments to the books in memory (`docs/spool.md` section 6).
//!
//! Reads headers, the youngest LIVEMAP and footers; reads whole segments only where there is no footer. Changes nothing
//! but leftovers of unfinished growth. Never panics on any bytes, and never drops a frame that it could read.

use crate::book::{Book, chunk_frame_bytes};
use crate::chunk_list::{self, ChunkList};
use crate::disk::{BLOCK, Disk, TMP_SUFFIX};
use crate::error::OpenError;
use crate::files::{Candidate, RECIPIENTS_MAX, SegmentReader};
use crate::footer::{Closed, Footer, FooterBuilder, Row};
use crate::format::{FLAG_FOREIGN, FrameHeader, Identity, Kind};
use crate::index::{FoundRecipient, Place};
use crate::report::Recovery;
use crate::scan::{Rot, Scan, scan};
use crate::sections::{Envelope, Livemap, MappedSegment, StateEntry, read_ids, read_states};
use crate::segments::{Missing, Phase, Segment, Segments};
use crate::store::Status;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A recovered shard.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) book: Book,
    /// The last hot and the last cold segment, and how far each is durable.
    pub(crate) previous: [(u64, u32); 2],
    /// Segments whose footer is to be written.
    pub(crate) closed: Vec<Closed>,
    /// States and finished messages that belong to other shards.
    pub(crate) foreign: (Vec<StateEntry>, Vec<u64>),
    pub(crate) report: Recovery,
}

/// Name of the identity file.
pub(crate) const IDENTITY: &str = "SPOOL";

/// Name of the file with the number of times that the spool has been opened.
pub(crate) const EPOCH: &str = "epoch";

/// How many times the spool has been opened, as far as its file tells; the segments tell the rest.
pub(crate) fn epoch(disk: &dyn Disk, root: &Path) -> u64 {
    let text = disk.read_small(&root.join(EPOCH)).unwrap_or_default();
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse::<u32>().ok());
    number.unwrap_or(0).into()
}

/// Reads the identity of the spool at `root`, or `None` if there is no spool yet.
pub(crate) fn identity(disk: &dyn Disk, root: &Path) -> Result<Option<Identity>, OpenError> {
    let path = root.join(IDENTITY);
    let text = match disk.read_small(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let names = disk.list(root).unwrap_or_default();
            if names.iter().any(|name| name == "00") {
                let reason = format!("it has shard directories but no file {IDENTITY}; restore that file from a copy");
                return Err(OpenError::NotASpool { path: root.to_owned(), reason });
            }
            return Ok(None);
        }
        Err(error) => return Err(OpenError::io("reading", path)(error)),
    };
    let identity = Identity::from_text(&text).map_err(|why| match why {
        Ok(found) => OpenError::OtherFormat { path: path.clone(), found, supported: crate::format::VERSION },
        Err(reason) => OpenError::NotASpool { path: path.clone(), reason },
    })?;
    // The values in the file must be usable: everything else is computed from them.
    let (bytes, shards) = (identity.segment_bytes as usize, identity.shards);
    if !bytes.is_multiple_of(BLOCK) || !(16 * BLOCK..=1 << 30).contains(&bytes) || !(1..=64).contains(&shards) {
        let reason = format!("{shards} shards of segments of {bytes} bytes cannot be");
        return Err(OpenError::NotASpool { path, reason });
    }
    Ok(Some(identity))
}

/// The data that a segment contributes: its footer, read or rebuilt.
struct Loaded {
    section: Vec<u8>,
    foreign: bool,
    /// To be sealed: it had no footer.
    closed: Option<Closed>,
    phase: Phase,
    data_end: u32,
}

/// Opens one shard; without `write` nothing is changed, not even leftovers.
pub(crate) fn shard(
    disk: &dyn Disk,
    root: &Path,
    identity: Identity,
    number: u16,
    write: bool,
) -> Result<Recovered, OpenError> {
    let directory = root.join(format!("{number:02}"));
    if write {
        disk.create_dir(&directory).map_err(OpenError::io("making the directory", &directory))?;
        sweep(disk, &directory)?;
    }
    let mut reader =
        SegmentReader { disk, identity, shard: number, directory, report: Recovery::default(), lenient: !write };
    let mut candidates = reader.candidates(write)?;
    for entry in candidates.iter_mut().flatten() {
        let sealed = reader.footer(entry)?.is_some();
        if entry.opened && entry.generation > 0 && !sealed {
            entry.bytes = Some(reader.read_all(entry)?);
        }
    }
    let lost = reader.without_header(&mut candidates, epoch(disk, root))?;
    // First on the word of the batches alone: a LIVEMAP that did not become durable must not be believed.
    let doubtful = judge_headerless(&mut reader, &mut candidates, &lost, None);
    let map = reader.livemap(&candidates)?;
    judge_headerless(&mut reader, &mut candidates, &doubtful, map.as_ref().map(|(_, map)| map));
    Builder::new(reader, map).build(candidates)
}

/// Removes what unfinished growth and replacing left behind.
fn sweep(disk: &dyn Disk, directory: &Path) -> Result<(), OpenError> {
    for name in disk.list(directory).map_err(OpenError::io("listing", directory))? {
        if name.starts_with("new-") || name.ends_with(TMP_SUFFIX) {
            let path = directory.join(&name);
            disk.remove(&path).map_err(OpenError::io("removing a leftover", &path))?;
        }
    }
    Ok(())
}

/// Tells damaged headers from those that a crash kept from the disk together with their first batch.
///
/// Returns the slots for which only a LIVEMAP could tell; they count as not opened until it does.
fn judge_headerless(
    reader: &mut SegmentReader<'_>,
    candidates: &mut [Option<Candidate>],
    lost: &[u16],
    map: Option<&Livemap>,
) -> Vec<u16> {
    let attested = reader.attested(candidates, map);
    let mut doubtful = Vec::new();
    for slot in lost {
        let Some(candidate) = candidates.get_mut(usize::from(*slot)).and_then(Option::as_mut) else { continue };
        let of_slot = |segment: &&MappedSegment| segment.number == u32::from(*slot) && !segment.is_dead();
        let mapped = map.and_then(|map| map.segments.iter().find(of_slot));
        let path = candidate.path.clone();
        candidate.opened = true;
        if candidate.generation > 0 && attested.get(&candidate.generation).is_some_and(|end| *end as usize > BLOCK) {
            reader.damage(&path, 0, 4096, None, "the header is damaged; its batches tell what it was");
        } else if let Some(mapped) = mapped {
            let live: u32 = mapped.bits.iter().map(|word| word.count_ones()).sum();
            reader.damage(&path, 0, 4096, None, format!("header and batches are damaged; {live} frames are lost"));
            candidate.opened = candidate.generation > 0;
        } else {
            // No frame in it was acknowledged: a reuse was cut off while its first batch was written.
            candidate.opened = false;
            doubtful.push(*slot);
        }
    }
    doubtful
}

/// A state entry and where it was found.
struct FoundState {
    entry: StateEntry,
    is_foreign: bool,
    slot: u16,
}

/// The entries that tell of one recipient's present state: their segments, the best first by the number before the
/// slot.
#[derive(Default)]
struct Needed {
    /// The youngest with the present sequence: names a destination, generation, slot.
    last: Option<(bool, u64, u16)>,
    /// The last that names a destination: sequence, generation, slot.
    destination: Option<(u16, u64, u16)>,
}

/// Fills the books of one shard.
struct Builder<'a> {
    reader: SegmentReader<'a>,
    map: Option<(u64, Livemap)>,
    book: Book,
    states: Vec<FoundState>,
    done: Vec<(u64, bool)>,
    closed: Vec<Closed>,
}

impl<'a> Builder<'a> {
    fn new(reader: SegmentReader<'a>, map: Option<(u64, Livemap)>) -> Self {
        let book = Book::new(Segments::new(reader.identity.segment_bytes));
        Self { reader, map, book, states: Vec::new(), done: Vec::new(), closed: Vec::new() }
    }

    fn build(mut self, candidates: Vec<Option<Candidate>>) -> Result<Recovered, OpenError> {
        let attested = self.reader.attested(&candidates, self.map.as_ref().map(|(_, map)| map));
        if let Some((_, map)) = &self.map {
            self.book.segments.skip_generations(map.next_generation.saturating_sub(1));
        }
        self.book.segments.set_maps(u64::from(self.map.is_some()));
        let mut previous = [(0, 0); 2];
        for (entry, slot) in candidates.into_iter().zip(0_u16..) {
            let Some(candidate) = entry else {
                let phase = Phase::Retired;
                self.book.segments.add(Segment { phase, ..Segment::new(Arc::new(Missing)) });
                continue;
            };
            let loaded = self.load(&candidate, &attested)?;
            let segment =
                Segment { generation: candidate.generation, cold: candidate.cold, ..Segment::new(candidate.file) };
            let [hot, cold] = &mut previous;
            let last = if candidate.cold { cold } else { hot };
            match loaded {
                None => {
                    self.book.segments.add(segment);
                    if candidate.generation > last.0 {
                        let end = attested.get(&candidate.generation).copied().unwrap_or(0);
                        *last = (candidate.generation, end);
                    }
                }
                Some(loaded) => {
                    if candidate.generation > last.0 {
                        *last = (candidate.generation, loaded.data_end);
                    }
                    let sealed = loaded.phase == Phase::Sealed;
                    let footer = candidate.trailer.filter(|_| sealed).map(|trailer| trailer.footer);
                    let foreign = loaded.foreign;
                    let (phase, data_end) = (loaded.phase, loaded.data_end);
                    let maps_at_close = u64::from(!self.closed_before_map(candidate.generation, data_end));
                    // Dead by the map already: no younger one need tell.
                    let dead =
                        maps_at_close == 0 && self.mapped(candidate.generation).is_some_and(MappedSegment::is_dead);
                    let maps_at_death = dead.then_some(0);
                    let segment = Segment { phase, data_end, footer, foreign, maps_at_close, maps_at_death, ..segment };
                    self.book.segments.add(segment);
                    self.closed.extend(loaded.closed);
                    self.add_segment(slot, &loaded.section, foreign);
                }
            }
        }
        let foreign = self.replay();
        // Only now: the chunks of a message that ended may be gone already.
        self.add_chunks();
        let mut report = self.reader.report;
        report.messages = self.book.index.messages();
        report.recipients = self.book.index.recipients();
        report.largest_id = report.largest_id.max(self.book.index.places().map(|(id, ..)| id).max().unwrap_or(0));
        Ok(Recovered { book: self.book, previous, closed: self.closed, foreign, report })
    }

    fn mapped(&self, generation: u64) -> Option<&MappedSegment> {
        let (_, map) = self.map.as_ref()?;
        map.segments.iter().find(|segment| segment.generation == generation)
    }

    /// Whether nothing was written to the segment after the LIVEMAP.
    fn closed_before_map(&self, generation: u64, data_end: u32) -> bool {
        let mapped = self.mapped(generation).is_some_and(|mapped| mapped.data_end == data_end);
        mapped && self.map.as_ref().is_some_and(|(of, _)| *of != generation)
    }

    /// Whether the LIVEMAP says that the segment had nothing of use when it was written.
    fn is_free(&self, candidate: &Candidate) -> bool {
        let older = self.map.as_ref().is_some_and(|(_, map)| candidate.generation < map.next_generation);
        !candidate.opened || candidate.generation == 0 || older && self.mapped(candidate.generation).is_none()
    }

    /// The footer of a segment, read or rebuilt; `None` if the segment is free.
    fn load(&mut self, candidate: &Candidate, attested: &HashMap<u64, u32>) -> Result<Option<Loaded>, OpenError> {
        if self.is_free(candidate) {
            return Ok(None);
        }
        match &candidate.bytes {
            None => {
                let footer = self.reader.footer(candidate)?;
                let (Some(trailer), Some(section)) = (candidate.trailer, footer) else { return Ok(None) };
                Ok(Some(Loaded {
                    section,
                    foreign: trailer.foreign,
                    closed: None,
                    phase: Phase::Sealed,
                    data_end: trailer.data_end,
                }))
            }
            Some(bytes) => {
                self.reader.report.scanned += 1;
                let seed = self.reader.seed(candidate.generation);
                let known = attested.get(&candidate.generation).copied().unwrap_or(0);
                let mut found = scan(bytes.as_slice(), seed, candidate.generation, known);
                let mapped = self.mapped(candidate.generation);
                if mapped.is_some_and(|mapped| mapped.is_dead() && known <= mapped.data_end) {
                    // Its durable frames were all dead already, so this may be a reuse that was cut off: the
                    // overwritten frames are not missed.
                    found.rot.clear();
                }
                self.reader.report.torn += u64::from(found.torn.is_some());
                for rot in &found.rot {
                    self.report_rot(candidate, rot);
                }
                Ok(Some(rebuild(candidate, &found)))
            }
        }
    }

    fn report_rot(&mut self, candidate: &Candidate, rot: &Rot) {
        self.reader.damage(&candidate.path, rot.offset, rot.bytes, rot.id, rot.what);
    }

    /// Puts the living messages of a segment into the books, and keeps its states for later.
    fn add_segment(&mut self, slot: u16, section: &[u8], foreign: bool) {
        let footer = Footer::read(section).expect("load gives only footers that read");
        let generation = self.book.segments.get(slot).generation;
        for (row, ordinal) in footer.rows.iter().zip(0_u32..) {
            if !row.is_message() || self.mapped(generation).is_some_and(|segment| !segment.is_live(ordinal)) {
                continue;
            }
            self.add_message(slot, ordinal, row, &footer);
        }
        let states =
            footer.states.iter().map(|state| FoundState { entry: state.to_entry(), is_foreign: foreign, slot });
        let segment = self.book.segments.get_mut(slot);
        // Dead frames count too: the next LIVEMAP must cover them, or they would pass for younger than it.
        segment.frames = u32::try_from(footer.rows.len()).unwrap_or(u32::MAX);
        self.states.extend(states);
        // Messages that ended before the LIVEMAP was written are dead by the map.
        if foreign || self.map.as_ref().is_none_or(|(of, _)| generation >= *of) {
            self.done.extend(read_ids(footer.done).map(|id| (id, foreign)));
        }
        if let Some(largest) = read_ids(footer.done).chain(footer.rows.iter().map(|row| row.id)).max() {
            self.reader.report.largest_id = self.reader.report.largest_id.max(largest);
        }
    }

    fn add_message(&mut self, slot: u16, ordinal: u32, row: &Row<'_>, footer: &Footer<'_>) {
        if mail::QueueId::from_u64(row.id).is_none() {
            return;
        }
        let place = Place { segment: slot, offset: row.offset, size: row.size, ordinal };
        let chunks = (!row.list.is_empty()).then(|| ChunkList::read(row.list).unwrap_or_default());
        let recipients = row.recipients().flat_map(|(sequenced, destination, hold)| {
            let destination = destination.and_then(|index| footer.destinations.get(index as usize).copied());
            let count = if sequenced.state.status == Status::Done { sequenced.state.due } else { 1 };
            let found = FoundRecipient { sequenced, destination, hold };
            std::iter::repeat_n(found, count as usize).take(RECIPIENTS_MAX)
        });
        let Some(known) = self.book.index.place(row.id) else {
            if self.book.index.insert(row.id, place, chunks, recipients).is_some() {
                self.book.segments.get_mut(slot).add(ordinal, row.size);
            }
            return;
        };
        // Two copies: the younger one serves, and of two states of a recipient the younger one holds. A copy in a cold
        // segment is younger than its original, for any generations: both kinds of segment are open at a time.
        let states: Vec<FoundRecipient<'_>> = recipients.collect();
        let age = |place: Place| {
            let segment = self.book.segments.get(place.segment);
            (segment.cold, segment.generation, place.ordinal)
        };
        if age(place) > age(known) {
            if let Some(old) = self.book.index.relocate(row.id, place, chunks) {
                self.book.segments.get_mut(old.place.segment).kill(old.place.ordinal, old.place.size);
            }
            self.book.segments.get_mut(slot).add(ordinal, row.size);
        }
        for (FoundRecipient { sequenced, destination, hold }, position) in states.into_iter().zip(0..) {
            self.book.replay(row.id, position, sequenced, destination, hold);
        }
    }

    /// Chunks live by the messages that name them.
    fn add_chunks(&mut self) {
        let named: Vec<_> =
            self.book.index.places().filter_map(|(id, _, chunks)| Some((id, chunks?.places.to_vec()))).collect();
        for (id, chunks) in named {
            for chunk in chunks {
                let slot = self.book.segments.slot_of(chunk.generation);
                let segment = slot.map(|slot| self.book.segments.get_mut(slot));
                match segment.filter(|segment| chunk.ordinal < segment.frames && !segment.is_live(chunk.ordinal)) {
                    Some(segment) => segment.add(chunk.ordinal, chunk_frame_bytes(&chunk)),
                    None => {
                        let path = self.reader.directory.clone();
                        let what =
                            format!("a part of its body is not in the segment of generation {}", chunk.generation);
                        self.reader.damage(&path, chunk.offset, chunk.bytes, Some(id), what);
                    }
                }
            }
        }
    }

    /// Applies states and ends messages; returns what belongs to other shards.
    fn replay(&mut self) -> (Vec<StateEntry>, Vec<u64>) {
        let mut foreign = (Vec::new(), Vec::new());
        // A later state leaves out a destination that an earlier one has set.
        self.states.sort_by_key(|found| (found.entry.sequenced.sequence, found.entry.destination.is_some()));
        for FoundState { entry, is_foreign, .. } in &self.states {
            if *is_foreign && !self.book.index.contains(entry.id) {
                foreign.0.push(entry.clone());
            } else {
                let (destination, hold) = (entry.destination.as_deref(), entry.hold.clone());
                self.book.replay(entry.id, entry.position, entry.sequenced, destination, hold);
            }
        }
        for (id, is_foreign) in std::mem::take(&mut self.done) {
            if !self.book.replay_done(id) && is_foreign {
                foreign.1.push(id);
            }
        }
        self.count_needed_states();
        foreign
    }

    /// Counts for each segment the state entries that no younger one repeats: those are to be carried over before
    /// reuse.
    fn count_needed_states(&mut self) {
        let mut needed: HashMap<(u64, u32), Needed> = HashMap::new();
        for FoundState { entry, slot, .. } in &self.states {
            let Some(now) = self.book.index.any_state(entry.id, entry.position) else { continue };
            let generation = self.book.segments.get(*slot).generation;
            let (sequence, names) = (entry.sequenced.sequence, entry.destination.is_some());
            let of = needed.entry((entry.id, entry.position)).or_default();
            if sequence >= now.sequence {
                of.last = of.last.max(Some((names, generation, *slot)));
            }
            if names {
                of.destination = of.destination.max(Some((sequence, generation, *slot)));
            }
        }
        for slot in 0..u16::try_from(self.book.segments.len()).unwrap_or(u16::MAX) {
            self.book.segments.get_mut(slot).states = 0;
        }
        for Needed { last, destination } in needed.into_values() {
            let (named, last) = last.map_or((false, None), |(named, _, slot)| (named, Some(slot)));
            let destination = destination.filter(|_| !named).map(|(_, _, slot)| slot);
            for slot in last.into_iter().chain(destination) {
                self.book.segments.get_mut(slot).states += 1;
            }
        }
    }
}

/// Makes the footer that a scanned segment lacks.
fn rebuild(candidate: &Candidate, found: &Scan<'_>) -> Loaded {
    let mut footer = FooterBuilder::default();
    let mut foreign = false;
    let mut kept: Vec<_> = found.frames.iter().filter(|found| found.frame.header.kind.kept()).collect();
    kept.sort_by_key(|found| found.frame.header.ordinal);
    for scanned in kept {
        let FrameHeader { ordinal, .. } = scanned.frame.header;
        // No segment holds more frames than it has room for their headers.
        if ordinal as usize > found.data_end as usize / FrameHeader::SIZE {
            continue;
        }
        let envelope = Envelope::parse(scanned.frame.first);
        let list = scanned.frame.header.has_chunk_list().then(|| chunk_list::split(&scanned.frame)).flatten();
        footer.add(&scanned.frame.header, scanned.offset, envelope.as_ref(), list.map(|(_, list)| list));
    }
    for scanned in &found.frames {
        let header = &scanned.frame.header;
        match header.kind {
            Kind::State => footer.add_states(scanned.frame.second),
            Kind::Done => footer.add_done(scanned.frame.second),
            _ => continue,
        }
        foreign |= header.flags & FLAG_FOREIGN != 0;
        debug_assert!(header.kind != Kind::State || read_states(scanned.frame.second).count() > 0);
    }
    let section = footer.encode();
    let closed = Closed {
        slot: candidate.slot,
        generation: candidate.generation,
        cold: candidate.cold,
        footer,
        data_end: found.data_end,
        livemap: found.livemap,
    };
    // A segment with rot is emptied of readable frames and kept as it is; any other gets the footer it lacks.
    let (phase, closed) = if found.rot.is_empty() { (Phase::Closed, Some(closed)) } else { (Phase::Failed, None) };
    Loaded { section, foreign, closed, phase, data_end: found.data_end }
}
