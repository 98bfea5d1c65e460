//! Looking into a stopped or copied spool: the output of `mailrace spool inspect` and `verify`.
//!
//! Reads every byte of every segment, changes nothing. The recovery of a start decides which frames live.

use crate::book::Book;
use crate::chunk_list::{self, ChunkList};
use crate::disk::Disk;
use crate::error::OpenError;
use crate::files::{Candidate, SegmentReader};
use crate::footer::Footer;
use crate::format::{Frame, Identity, Kind, Seed};
use crate::hold::Hold;
use crate::recovery;
use crate::report::{Damage, Recovery};
use crate::scan::{Scan, scan};
use crate::sections::{Envelope, Listed, Livemap, read_ids, read_states};
use mail::QueueId;
use std::fmt;
use std::path::{Path, PathBuf};

/// Something found in a spool, in the order in which it lies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The spool itself.
    Spool {
        /// Version of its format.
        format: u32,
        /// Its identity, in hexadecimal.
        uuid: String,
        /// Its shards.
        shards: u16,
        /// Bytes of each segment.
        segment_bytes: u32,
    },
    /// A segment; its frames follow.
    Segment {
        /// The file.
        path: PathBuf,
        /// Generation it was opened under; 0 if never.
        generation: u64,
        /// `free`, `unsealed`, or `sealed`.
        phase: &'static str,
        /// Holds moved messages.
        cold: bool,
        /// Batches in it.
        batches: u32,
        /// End of its durable batches.
        data_end: u32,
        /// Frames of unfinished messages, and their bytes.
        live: (u32, u64),
    },
    /// A frame.
    Frame {
        /// Offset in the segment.
        offset: u32,
        /// Its type, as in the documentation of the format.
        kind: String,
        /// Bytes with header.
        bytes: u32,
        /// The message.
        id: Option<QueueId>,
        /// Needed for an unfinished message.
        live: bool,
        /// The content in words, for a person.
        detail: String,
    },
    /// Bytes that should read and do not.
    Damage(Damage),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spool { format, uuid, shards, segment_bytes } => {
                write!(f, "spool {uuid}, format {format}, {shards} shards, segments of {segment_bytes} bytes")
            }
            Self::Segment { path, generation, phase, cold, batches, data_end, live } => write!(
                f,
                "{}: generation {}.{}, {}{phase}, {batches} batches up to {data_end}, {} live frames of {} bytes",
                path.display(),
                generation >> 32,
                generation & 0xffff_ffff,
                if *cold { "cold, " } else { "" },
                live.0,
                live.1
            ),
            Self::Frame { offset, kind, bytes, id, live, detail } => {
                let live = if *live { "live" } else { "" };
                let id = id.map_or_else(String::new, |id| id.to_string());
                write!(f, "  {offset:>10} {kind:<8}{bytes:>9}  {live:<5}{id:<15}{detail}")
            }
            Self::Damage(damage) => write!(f, "DAMAGE {damage}"),
        }
    }
}

/// The totals of a spool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The result that recovery would have.
    pub recovery: Recovery,
    /// Frames of all kinds.
    pub frames: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Everything that is damaged, as recovery or the full reading found it.
    pub damage: Vec<Damage>,
    /// Unfinished messages by destination, the most waiting first.
    pub destinations: Vec<(String, u64)>,
}

/// Reads the whole spool at `root` and tells `visit` of everything in it.
///
/// `visit` gets frames only if `frames`; damage it gets always.
/// # Errors
/// The spool cannot be opened: see [`OpenError`]. Damage is not an error.
pub fn inspect(disk: &dyn Disk, root: &Path, frames: bool, visit: &mut dyn FnMut(&Fact)) -> Result<Summary, OpenError> {
    let identity = recovery::identity(disk, root)?.ok_or_else(|| OpenError::NotASpool {
        path: root.to_owned(),
        reason: format!("there is no file {}; name the directory that holds it", recovery::IDENTITY),
    })?;
    // Only a spool that was in use has the file; a copy need not, and is not given one.
    let in_use = disk.list(root).is_ok_and(|names| names.iter().any(|name| name == crate::spool::LOCK));
    let _lock = if in_use {
        match crate::spool::take_lock(root, disk) {
            Err(error @ OpenError::Locked { .. }) => return Err(error),
            // On a read-only file system it cannot be locked and need not be.
            other => other.ok(),
        }
    } else {
        None
    };
    let uuid = identity.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    visit(&Fact::Spool {
        format: crate::VERSION,
        uuid,
        shards: identity.shards,
        segment_bytes: identity.segment_bytes,
    });
    let mut summary = Summary::default();
    let mut destinations = std::collections::HashMap::new();
    for shard in 0..identity.shards {
        let recovered = recovery::shard(disk, root, identity, shard, false)?;
        summary.recovery.add(&recovered.report);
        for (name, waiting) in recovered.book.index.by_destination_counts() {
            *destinations.entry(String::from_utf8_lossy(&name).into_owned()).or_insert(0) += waiting;
        }
        let reader = SegmentReader {
            disk,
            identity,
            shard,
            directory: root.join(format!("{shard:02}")),
            report: Recovery::default(),
            lenient: true,
        };
        Inspector { reader, book: &recovered.book, frames, visit, summary: &mut summary, identity }.run()?;
    }
    let mut seen = std::collections::HashSet::new();
    let all = summary.recovery.damage.iter().chain(&summary.damage).cloned().collect::<Vec<_>>();
    summary.damage = all.into_iter().filter(|damage| seen.insert((damage.path.clone(), damage.offset))).collect();
    for damage in &summary.damage {
        visit(&Fact::Damage(damage.clone()));
    }
    summary.destinations = destinations.into_iter().collect();
    summary.destinations.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(summary)
}

struct Inspector<'a, 'v> {
    reader: SegmentReader<'a>,
    book: &'a Book,
    frames: bool,
    visit: &'v mut dyn FnMut(&Fact),
    summary: &'v mut Summary,
    identity: Identity,
}

impl Inspector<'_, '_> {
    fn run(mut self) -> Result<(), OpenError> {
        for candidate in self.reader.candidates(false)?.iter().flatten() {
            self.segment(candidate)?;
        }
        self.summary.damage.append(&mut self.reader.report.damage);
        Ok(())
    }

    fn segment(&mut self, candidate: &Candidate) -> Result<(), OpenError> {
        let known = self.book.segments.get(candidate.slot);
        let generation = if known.generation > 0 { known.generation } else { candidate.generation };
        let seed = Seed::new(&self.identity.uuid, self.reader.shard, generation);
        let bytes = self.reader.read_all(candidate)?;
        self.summary.bytes += bytes.as_slice().len() as u64;
        let free = known.phase == crate::segments::Phase::Free;
        // The frames of a free segment are not used, so damage in it does not count.
        let attested = if free { 0 } else { known.data_end };
        let found = if generation > 0 { scan(bytes.as_slice(), seed, generation, attested) } else { Scan::default() };
        let phase = match (free, candidate.trailer) {
            (true, _) => "free",
            (_, Some(_)) => "sealed",
            (_, None) => "unsealed",
        };
        (self.visit)(&Fact::Segment {
            path: candidate.path.clone(),
            generation,
            phase,
            cold: candidate.cold,
            batches: found.batches,
            data_end: found.data_end,
            live: (known.live, known.live_bytes),
        });
        self.summary.frames += found.frames.len() as u64;
        if self.frames {
            for scanned in &found.frames {
                let fact = self.frame(candidate.slot, scanned.offset, &scanned.frame, scanned.sound);
                (self.visit)(&fact);
            }
        }
        if free {
            return Ok(());
        }
        for rot in &found.rot {
            let id = rot.id.and_then(QueueId::from_u64);
            self.damage(candidate, rot.offset, rot.bytes, id, rot.what.to_owned());
        }
        self.compare(candidate, &found)
    }

    fn damage(&mut self, candidate: &Candidate, offset: u32, bytes: u32, id: Option<QueueId>, what: String) {
        self.summary.damage.push(Damage { path: candidate.path.clone(), offset, bytes, id, what });
    }

    /// The footer must tell of every kept frame what the batches say.
    fn compare(&mut self, candidate: &Candidate, found: &Scan<'_>) -> Result<(), OpenError> {
        let Some(section) = self.reader.footer(candidate)? else { return Ok(()) };
        let Some(footer) = Footer::read(&section) else {
            let offset = candidate.trailer.map_or(0, |trailer| trailer.footer.0);
            self.damage(candidate, offset, 0, None, "the footer makes no sense".to_owned());
            return Ok(());
        };
        for scanned in found.frames.iter().filter(|scanned| scanned.frame.header.kind.kept()) {
            let header = scanned.frame.header;
            let row = footer.rows.get(header.ordinal as usize);
            let same = row.is_some_and(|row| {
                row.kind == Some(header.kind) && row.offset == scanned.offset && row.id == header.id
            });
            if !same {
                let what = format!("the footer tells otherwise of frame {}", header.ordinal);
                self.damage(candidate, scanned.offset, 0, QueueId::from_u64(header.id), what);
            }
        }
        Ok(())
    }

    fn frame(&self, slot: u16, offset: u32, frame: &Frame<'_>, sound: (bool, bool)) -> Fact {
        let header = &frame.header;
        let live = header.kind.kept() && self.book.segments.get(slot).is_live(header.ordinal);
        let mut detail = describe(frame);
        if sound != (true, true) {
            detail.push_str("; the body is damaged");
        }
        Fact::Frame {
            offset,
            kind: header.kind.to_string(),
            bytes: u32::try_from(header.frame_bytes()).unwrap_or(u32::MAX),
            id: if header.kind.kept() { QueueId::from_u64(header.id) } else { None },
            live,
            detail,
        }
    }
}

/// Returns the content of a frame, in words.
fn describe(frame: &Frame<'_>) -> String {
    match frame.header.kind {
        Kind::Message | Kind::Reference | Kind::Moved => {
            let Some(envelope) = Envelope::parse(frame.first) else { return "the envelope makes no sense".to_owned() };
            format!("{}; {}", describe_content(frame), describe_recipients(&envelope))
        }
        Kind::Chunk => format!("{} bytes of body", frame.second.len()),
        Kind::State => {
            let states = read_states(frame.second).map(|state| {
                let state_now = state.sequenced.state;
                // For owed work the number says which.
                let (status, tries) = (state_now.status, state_now.owed().unwrap_or_else(|| state_now.tries()));
                let warned = if state_now.is_warned() { " warned" } else { "" };
                let class = match state_now.class() {
                    0 => String::new(),
                    class => format!(" class {class}"),
                };
                let mark = if state_now.is_marked() { " marked" } else { "" };
                let hold = state.hold.as_ref().map(describe_hold).unwrap_or_default();
                format!("{}/{} {status:?} {tries}{class}{mark}{warned}{hold}", name_of(state.id), state.position)
            });
            enumerate("states", states)
        }
        Kind::Done => enumerate("finished messages", read_ids(frame.second).map(name_of)),
        Kind::Livemap => Livemap::read(frame.second).map_or_else(
            || "makes no sense".to_owned(),
            |map| {
                let live: u32 =
                    map.segments.iter().flat_map(|segment| &segment.bits).map(|word| word.count_ones()).sum();
                format!("{live} live frames in {} segments", map.segments.len())
            },
        ),
        Kind::Pad | Kind::Seal => String::new(),
    }
}

/// Header section and body of a message, in words.
fn describe_content(frame: &Frame<'_>) -> String {
    let Some((content, list)) = chunk_list::split(frame) else { return "a body offset that makes no sense".to_owned() };
    if !frame.header.has_chunk_list() {
        let header_bytes = crate::sections::body_offset(frame.first).unwrap_or(0) as usize;
        let body_bytes = content.len().saturating_sub(header_bytes);
        return format!("header section of {header_bytes} bytes, body of {body_bytes}");
    }
    let Some(list) = ChunkList::read(list) else { return "a chunk list that makes no sense".to_owned() };
    let body_bytes = list.content_bytes() - u64::from(list.header_bytes);
    let (header_bytes, chunks) = (content.len(), list.places.len());
    format!("header section of {header_bytes} bytes, body of {body_bytes} in {chunks} chunks")
}

fn name_of(id: u64) -> String {
    QueueId::from_u64(id).map_or_else(|| format!("{id:x}"), |id| id.to_string())
}

/// How many there are, and the first of them.
fn enumerate(what: &str, names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let shown = names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > 5 { ", …" } else { "" };
    format!("{} {what}: {shown}{more}", names.len())
}

fn describe_recipients(envelope: &Envelope<'_>) -> String {
    let mut names: Vec<String> = Vec::new();
    let (mut finished, mut first_hold) = (0, None);
    for listed in envelope.iter().flatten() {
        match listed {
            Listed::One(_, recipient, hold) => {
                names.push(String::from_utf8_lossy(recipient.destination).into_owned());
                first_hold = first_hold.or(hold);
            }
            Listed::Finished(count) => finished += count,
        }
    }
    let waiting = names.len();
    names.sort();
    names.dedup();
    let shown = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(3);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let done = if finished > 0 { format!(", {finished} done before") } else { String::new() };
    let hold = first_hold.as_ref().map(describe_hold).unwrap_or_default();
    format!("{waiting} recipients at {shown}{more}{done}{hold}")
}

/// Why recipients are held, in words.
fn describe_hold(hold: &Hold) -> String {
    let by = if hold.by().is_empty() { String::new() } else { format!(" {}", hold.by()) };
    let until = hold.ends_at().map_or_else(String::new, |until| format!(" until {until}"));
    format!(" held by {}{by}{until}: {}", hold.kind().name(), hold.text())
}
