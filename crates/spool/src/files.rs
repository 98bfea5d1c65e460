//! Reading a shard's segment files: headers and their substitutes, footers, LIVEMAPs.
//!
//! Lists the files and the damage; `recovery` decides the effect on mail. Changes nothing.

use crate::buffer::AlignedBuf;
use crate::disk::{BLOCK, Disk, DiskFile};
use crate::error::OpenError;
use crate::footer::Footer;
use crate::format::{
    BatchHeader, EPOCH_SHIFT, Found, Frame, Identity, Kind, Opened, Seed, SegmentHeader, Trailer, VERSION,
};
use crate::report::{Damage, Recovery};
use crate::scan::scan;
use crate::sections::Livemap;
use crate::segments::segment_name;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment file while the spool is opened.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) slot: u16,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) generation: u64,
    pub(crate) cold: bool,
    pub(crate) previous: (u64, u32),
    pub(crate) trailer: Option<Trailer>,
    /// All its bytes, if there is no footer.
    pub(crate) bytes: Option<AlignedBuf>,
    pub(crate) opened: bool,
}

/// Reads a shard's segments without changing anything.
pub(crate) struct SegmentReader<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) identity: Identity,
    pub(crate) shard: u16,
    pub(crate) directory: PathBuf,
    pub(crate) report: Recovery,
    /// Goes on over what cannot be read: for looking, not for opening.
    pub(crate) lenient: bool,
}

/// Recipients of one message that are believed: more do not fit into a frame, even of finished ones.
pub(crate) const RECIPIENTS_MAX: usize = 1 << 24;

/// The largest segment number; files of larger ones are not ours.
pub(crate) const SLOT_MAX: u16 = 65_000;

/// Epochs tried for a segment whose header does not read, the youngest first.
const EPOCHS_TRIED: u64 = 4096;

/// How often a read is tried before it is believed to fail.
const READ_TRIES: usize = 3;

impl SegmentReader<'_> {
    pub(crate) fn seed(&self, generation: u64) -> Seed {
        Seed::new(&self.identity.uuid, self.shard, generation)
    }

    pub(crate) fn damage(&mut self, path: &Path, offset: u32, bytes: u32, id: Option<u64>, what: impl Into<String>) {
        let id = id.and_then(mail::QueueId::from_u64);
        self.report.damage.push(Damage { path: path.to_owned(), offset, bytes, id, what: what.into() });
    }

    /// Opens every segment file and reads header and trailer. Index is the slot; `None` where there is no usable file.
    pub(crate) fn candidates(&mut self, write: bool) -> Result<Vec<Option<Candidate>>, OpenError> {
        let names = match self.disk.list(&self.directory) {
            // A start was cut off between the identity and the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names.map_err(OpenError::io("listing", &self.directory))?,
        };
        let mut candidates = Vec::new();
        for name in names {
            let Some(slot) = name.strip_prefix("seg-").and_then(|number| number.parse::<u16>().ok()) else { continue };
            if segment_name(slot) != name || slot > SLOT_MAX {
                continue;
            }
            let at = usize::from(slot);
            if candidates.len() <= at {
                candidates.resize_with(at + 1, || None);
            }
            let candidate = self.candidate(slot, write)?;
            if let Some(entry) = candidates.get_mut(at) {
                *entry = candidate;
            }
            self.report.segments += 1;
        }
        Ok(candidates)
    }

    fn candidate(&mut self, slot: u16, write: bool) -> Result<Option<Candidate>, OpenError> {
        let path = self.directory.join(segment_name(slot));
        let file: Arc<dyn DiskFile> = self.disk.open(&path, write).map_err(OpenError::io("opening", &path))?.into();
        let size = file.len().map_err(OpenError::io("measuring", &path))?;
        if size != u64::from(self.identity.segment_bytes) {
            self.damage(&path, 0, 0, None, format!("{size} bytes long instead of {}", self.identity.segment_bytes));
            return Ok(None);
        }
        let mut block = AlignedBuf::new(BLOCK);
        self.read(&path, &file, block.as_mut_slice(), 0)?;
        let mut header = SegmentHeader::decode(block.as_slice());
        self.read(&path, &file, block.as_mut_slice(), BLOCK as u64)?;
        if header == Opened::Never && BatchHeader::begins(block.as_slice()) {
            header = Opened::Unreadable;
        }
        let last = u64::from(self.identity.segment_bytes) - BLOCK as u64;
        self.read(&path, &file, block.as_mut_slice(), last)?;
        if let Some(found) = Trailer::version(block.as_slice()).filter(|version| *version != VERSION) {
            return Err(OpenError::OtherFormat { path, found, supported: VERSION });
        }
        let trailer = Trailer::decode(block.as_slice());
        let ours = |uuid: &[u8; 16], shard: u16| *uuid == self.identity.uuid && shard == self.shard;
        let trailer = trailer.filter(|of| ours(&of.uuid, of.shard) && of.number == u32::from(slot));
        let mut candidate = Candidate {
            slot,
            path: path.clone(),
            file,
            generation: 0,
            cold: false,
            previous: (0, 0),
            trailer,
            bytes: None,
            opened: true,
        };
        match header {
            Opened::Never => candidate.opened = false,
            Opened::OtherFormat(found) => return Err(OpenError::OtherFormat { path, found, supported: VERSION }),
            Opened::As(header) if header.uuid != self.identity.uuid => {
                self.damage(&path, 0, 4096, None, "belongs to another spool; move it away");
                return Ok(None);
            }
            Opened::As(header) if ours(&header.uuid, header.shard) && header.number == u32::from(slot) => {
                candidate.generation = header.generation;
                candidate.cold = header.cold;
                candidate.previous = header.previous;
                candidate.trailer = trailer.filter(|trailer| trailer.generation == header.generation);
            }
            // The header of another segment is as good as none.
            Opened::As(_) | Opened::Unreadable => {}
        }
        Ok(Some(candidate))
    }

    /// Finds the generation of segments without a header by their batches.
    ///
    /// Returns their slots: whether the header was ever durable is not known yet.
    pub(crate) fn without_header(
        &mut self,
        candidates: &mut [Option<Candidate>],
        epoch: u64,
    ) -> Result<Vec<u16>, OpenError> {
        let known = candidates.iter().flatten().map(|candidate| candidate.generation >> EPOCH_SHIFT).max().unwrap_or(0);
        let newest = known.max(epoch) + 1;
        let epochs = newest.saturating_sub(EPOCHS_TRIED)..=newest;
        let mut slots = Vec::new();
        // A block that was written to the wrong place has a batch of another segment, which must not lose its name.
        let mut taken: HashSet<u64> = candidates.iter().flatten().map(|candidate| candidate.generation).collect();
        for candidate in candidates.iter_mut().flatten().filter(|one| one.opened && one.generation == 0) {
            let bytes = self.read_all(candidate)?;
            let (uuid, shard) = (self.identity.uuid, self.shard);
            let blocks = bytes.as_slice().chunks(BLOCK).skip(1);
            let found = blocks.filter_map(|block| BatchHeader::generation(&uuid, shard, epochs.clone(), block));
            let found = found.filter(|generation| !taken.contains(generation)).max();
            let Some(generation) = found else {
                // Neither header nor batches can be read: the frames are lost. The LIVEMAP tells whether there were
                // any.
                candidate.trailer = None;
                slots.push(candidate.slot);
                continue;
            };
            candidate.generation = generation;
            taken.insert(generation);
            candidate.trailer = candidate.trailer.filter(|trailer| trailer.generation == generation);
            let frames = scan(bytes.as_slice(), self.seed(generation), generation, 0).frames;
            candidate.cold = frames.iter().any(|found| found.frame.header.kind == Kind::Moved);
            candidate.bytes = Some(bytes);
            slots.push(candidate.slot);
        }
        Ok(slots)
    }

    /// Fills `bytes` from the file.
    ///
    /// A read error is not taken for rot: opening on half of the knowledge would bring finished mail back.
    fn read(&mut self, path: &Path, file: &Arc<dyn DiskFile>, bytes: &mut [u8], offset: u64) -> Result<(), OpenError> {
        let mut error = None;
        for _ in 0..READ_TRIES {
            match file.read_at(bytes, offset) {
                Ok(()) => return Ok(()),
                Err(failed) => error = Some(failed),
            }
        }
        let error = error.unwrap_or_else(|| io::ErrorKind::Other.into());
        if !self.lenient {
            let doing = "reading it while opening the spool (copy the spool to a sound disk, with ddrescue if need be, and open the copy)";
            return Err(OpenError::io(doing, path)(error));
        }
        // One bad place must not hide the rest: block by block, zeroes where nothing can be read.
        for (block, at) in bytes.chunks_mut(BLOCK).zip((offset..).step_by(BLOCK)) {
            if file.read_at(block, at).is_err() {
                block.fill(0);
                let at = u32::try_from(at).unwrap_or(u32::MAX);
                self.damage(path, at, 4096, None, format!("cannot be read: {error}"));
            }
        }
        Ok(())
    }

    /// Reads a whole segment.
    pub(crate) fn read_all(&mut self, candidate: &Candidate) -> Result<AlignedBuf, OpenError> {
        let mut bytes = AlignedBuf::new(self.identity.segment_bytes as usize);
        self.read(&candidate.path, &candidate.file, bytes.as_mut_slice(), 0)?;
        Ok(bytes)
    }

    /// Reads the footer section of a sealed segment.
    pub(crate) fn footer(&mut self, candidate: &Candidate) -> Result<Option<Vec<u8>>, OpenError> {
        let Some(Trailer { footer: (offset, size), .. }) = candidate.trailer else { return Ok(None) };
        let end = offset as usize + size as usize;
        if !(offset as usize).is_multiple_of(BLOCK) || end > self.identity.segment_bytes as usize {
            return Ok(None);
        }
        let mut buffer = AlignedBuf::new(size as usize);
        self.read(&candidate.path, &candidate.file, buffer.as_mut_slice(), offset.into())?;
        Ok(match Frame::find(self.seed(candidate.generation), buffer.as_slice()) {
            // One that matches its checksum and still makes no sense is as good as none: the batches serve.
            Found::Whole(frame) if frame.header.kind == Kind::Seal && Footer::read(frame.second).is_some() => {
                Some(frame.second.to_vec())
            }
            _ => None,
        })
    }

    /// Reads the LIVEMAP in the batch at `offset`.
    fn livemap_at(&mut self, candidate: &Candidate, offset: u32) -> Result<Option<Livemap>, OpenError> {
        let seed = self.seed(candidate.generation);
        let size = self.identity.segment_bytes as usize;
        let mut head = AlignedBuf::new(BLOCK);
        if !(offset as usize).is_multiple_of(BLOCK) || offset as usize + BLOCK > size {
            return Ok(None);
        }
        self.read(&candidate.path, &candidate.file, head.as_mut_slice(), offset.into())?;
        let Some(header) = BatchHeader::decode(seed, head.as_slice()) else { return Ok(None) };
        if offset as usize + header.bytes as usize > size {
            return Ok(None);
        }
        let mut batch = AlignedBuf::new(header.bytes as usize);
        self.read(&candidate.path, &candidate.file, batch.as_mut_slice(), offset.into())?;
        let frames = batch.as_slice().get(BatchHeader::SIZE..).unwrap_or_default();
        Ok(match Frame::find(seed, frames) {
            Found::Whole(frame) if frame.header.kind == Kind::Livemap => Livemap::read(frame.second),
            _ => None,
        })
    }

    /// The youngest LIVEMAP that reads, with the generation of its segment.
    pub(crate) fn livemap(&mut self, candidates: &[Option<Candidate>]) -> Result<Option<(u64, Livemap)>, OpenError> {
        let mut hot: Vec<&Candidate> =
            candidates.iter().flatten().filter(|c| c.opened && !c.cold && c.generation > 0).collect();
        hot.sort_by_key(|candidate| std::cmp::Reverse(candidate.generation));
        for candidate in hot {
            let (found, expected) = match (&candidate.bytes, candidate.trailer) {
                (Some(bytes), _) => (self.last_livemap(bytes.as_slice(), candidate.generation), false),
                (None, Some(trailer)) if trailer.livemap != 0 => (self.livemap_at(candidate, trailer.livemap)?, true),
                _ => (None, false),
            };
            if found.is_none() && expected {
                self.report.livemaps_lost += 1;
                let offset = candidate.trailer.map_or(0, |trailer| trailer.livemap);
                let path = candidate.path.clone();
                self.damage(&path, offset, 0, None, "the LIVEMAP is damaged; an older one serves");
                let bytes = self.read_all(candidate)?;
                if let Some(map) = self.last_livemap(bytes.as_slice(), candidate.generation) {
                    return Ok(Some((candidate.generation, map)));
                }
            }
            if let Some(map) = found {
                return Ok(Some((candidate.generation, map)));
            }
        }
        Ok(None)
    }

    fn last_livemap(&self, bytes: &[u8], generation: u64) -> Option<Livemap> {
        let found = scan(bytes, self.seed(generation), generation, 0);
        let maps = found.frames.iter().rev().filter(|found| found.frame.header.kind == Kind::Livemap);
        maps.filter_map(|found| Livemap::read(found.frame.second)).next()
    }

    /// How far each generation is durable, as others say it.
    pub(crate) fn attested(&self, candidates: &[Option<Candidate>], map: Option<&Livemap>) -> HashMap<u64, u32> {
        let mut attested = HashMap::new();
        let mut say = |(generation, end): (u64, u32)| {
            let known: &mut u32 = attested.entry(generation).or_default();
            *known = end.max(*known);
        };
        for candidate in candidates.iter().flatten() {
            say(candidate.previous);
            if let Some(trailer) = candidate.trailer {
                say((trailer.generation, trailer.data_end));
            }
            if let Some(bytes) = &candidate.bytes {
                crate::scan::durable(bytes.as_slice(), self.seed(candidate.generation)).into_iter().for_each(&mut say);
            }
        }
        for segment in map.iter().flat_map(|map| &map.segments) {
            say((segment.generation, segment.data_end));
        }
        attested
    }
}
