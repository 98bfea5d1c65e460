//! A real spool under damage: the work of the bodies `segment_scan` and `recovery`.
//!
//! The sample is made once. Each input is a list of damages to the bytes of its segments; untouched frames must be
//! found, and a frame that reads must have the written bytes.

use super::sample::{ROOT, Sample, sample};
use super::{Input, operations};
use crate::disk::sim::{Costs, SimConfig, SimDisk};
use crate::disk::{BLOCK, Disk};
use crate::envelope::Encoded;
use crate::error::{Error, OpenError};
use crate::format::{Identity, Opened, Seed, SegmentHeader};
use crate::inspect::{Fact, inspect};
use crate::scan::{Scan, scan};
use crate::store::{NewBody, Store as _};
use crate::{Config, Spool, Stepper};
use mail::QueueId;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Damages in one input, at the most.
const DAMAGES_MAX: usize = 24;
const SECTOR: usize = 512;
/// Second octet of a damage: there is none, and the rest of the input are operations on the open spool.
const OPERATIONS: usize = 254;
/// Steps a committer gets to write one message.
const STEPS_MAX: u32 = 100;

/// The sample taken apart.
pub(super) struct Ground {
    config: Config,
    identity: Identity,
    /// All files by path.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// The committed messages.
    messages: HashMap<QueueId, Known>,
    /// The files in which the frames of each unfinished message lie.
    pub(super) lies_in: HashMap<QueueId, HashSet<PathBuf>>,
}

struct Known {
    head: Vec<u8>,
    /// Data of each recipient.
    recipients: Vec<Vec<u8>>,
    body: Vec<u8>,
}

pub(super) fn ground() -> &'static Ground {
    static GROUND: OnceLock<Ground> = OnceLock::new();
    GROUND.get_or_init(|| {
        let Sample { disk, config, messages, torn } = sample();
        let mut lies_in: HashMap<QueueId, HashSet<PathBuf>> = HashMap::new();
        let mut file = PathBuf::new();
        inspect(&disk, Path::new(ROOT), true, &mut |fact| match fact {
            Fact::Segment { path, .. } => file.clone_from(path),
            Fact::Frame { id: Some(id), live: true, .. } => {
                lies_in.entry(*id).or_default().insert(file.clone());
            }
            _ => {}
        })
        .expect("the sample is a spool");
        let known = messages.into_iter().chain([torn]).map(|kept| {
            let encoded = Encoded::new(&kept.envelope);
            let recipients = encoded.recipients().iter().map(|one| one.data.to_vec()).collect();
            let empty = NewBody::whole("", 0);
            let head = encoded.message(&[], empty).head.to_vec();
            (kept.envelope.id, Known { head, recipients, body: kept.body })
        });
        let messages = known.collect();
        let files = disk.files().into_iter().map(|(path, _)| {
            let bytes = disk.contents(&path).expect("it is listed");
            (path, bytes)
        });
        let files: Vec<_> = files.collect();
        let text = files.iter().find(|(path, _)| path.ends_with("SPOOL")).map(|(_, text)| text.clone());
        let identity = Identity::from_text(&text.unwrap_or_default()).expect("the sample has an identity");
        Ground { config, identity, files, messages, lies_in }
    })
}

impl Ground {
    /// Segments that are in use: bytes, seed and generation.
    pub(super) fn segments(&self) -> impl Iterator<Item = (&[u8], Seed, u64)> {
        self.files.iter().filter(|(path, _)| is_segment(path)).filter_map(|(_, bytes)| {
            match SegmentHeader::decode(bytes.get(..BLOCK)?) {
                Opened::As(header) => {
                    let seed = Seed::new(&self.identity.uuid, 0, header.generation);
                    Some((bytes.as_slice(), seed, header.generation))
                }
                _ => None,
            }
        })
    }
}

fn is_segment(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"))
}

/// One damage to the bytes of a file. `other` is where bytes may come from.
fn damage(input: &mut Input<'_>, bytes: &mut Vec<u8>, other: &[u8]) {
    let (how, value) = (input.0.u8().unwrap_or(0), input.0.u8().unwrap_or(0));
    let at = input.half() as usize % bytes.len().max(1);
    let (block, sector) = (at / BLOCK * BLOCK, at / SECTOR * SECTOR);
    let fill = |range: Option<&mut [u8]>, value| range.into_iter().for_each(|bytes| bytes.fill(value));
    match how % 8 {
        0..3 => fill(bytes.get_mut(at..=at), value),
        3 => super::flip(bytes, input.half()),
        4 => fill(bytes.get_mut(sector..sector + SECTOR), value),
        5 => fill(bytes.get_mut(block..block + BLOCK), 0),
        6 => {
            // As a write to the wrong place does.
            let from = usize::from(value) % (other.len() / BLOCK).max(1) * BLOCK;
            if let (Some(to), Some(from)) = (bytes.get_mut(block..block + BLOCK), other.get(from..from + BLOCK)) {
                to.copy_from_slice(from);
            }
        }
        _ if value < 8 => bytes.truncate(at),
        _ => fill(bytes.get_mut(at..at + usize::from(value)), value),
    }
}

/// Any bytes as a segment.
pub(super) fn scan_anything(data: &[u8]) {
    let mut input = Input::new(data);
    let (generation, attested) = (input.number(), input.half());
    let found = scan(data, Seed::new(&[1; 16], 0, generation), generation, attested);
    check(&found, data);
}

/// A real segment under damage.
pub(super) fn scan_damaged(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.half() as usize;
    let segments: Vec<_> = ground().segments().collect();
    let Some((whole, seed, generation)) = segments.get(choice % segments.len().max(1)) else { return };
    let attested = input.half() % (u32::try_from(whole.len()).unwrap_or(0) + 1);
    let mut bytes = whole.to_vec();
    for _ in 0..DAMAGES_MAX {
        if input.0.is_empty() {
            break;
        }
        damage(&mut input, &mut bytes, whole);
    }
    let (before, after) = (scan(whole, *seed, *generation, u32::MAX), scan(&bytes, *seed, *generation, attested));
    check(&after, &bytes);
    // A copied block may show a frame at a second place; its contents are still those that were written.
    let known: HashSet<_> =
        before.frames.iter().map(|one| (one.frame.header.id, one.frame.first, one.frame.second)).collect();
    for found in after.frames.iter().filter(|found| found.sound == (true, true)) {
        let frame = &found.frame;
        assert!(known.contains(&(frame.header.id, frame.first, frame.second)), "a frame that nobody wrote: {frame:?}");
    }
}

fn check(found: &Scan<'_>, bytes: &[u8]) {
    assert!(found.frames.is_sorted_by_key(|one| one.offset), "frames in order");
    assert!(found.frames.iter().all(|one| (one.offset as usize) < bytes.len()));
    assert!(found.torn.is_none_or(|at| (at as usize) < bytes.len()));
    assert!(found.rot.iter().all(|rot| (rot.offset as usize) < bytes.len()));
    assert!(found.batches as usize <= bytes.len() / BLOCK);
}

/// The whole spool under damage.
pub(super) fn recover_damaged(data: &[u8]) {
    let ground = ground();
    let mut input = Input::new(data);
    let mut files = ground.files.clone();
    let mut touched = HashSet::new();
    let mut lost = HashSet::new();
    for _ in 0..DAMAGES_MAX {
        if input.0.is_empty() {
            break;
        }
        let choice = usize::from(input.0.u16().unwrap_or(0));
        if choice / 256 == OPERATIONS {
            break;
        }
        let other = files.get(choice / 256 % files.len().max(1)).map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        let at = choice % files.len().max(1);
        let Some((path, bytes)) = files.get_mut(at) else { return };
        touched.insert(path.clone());
        if choice / 256 == 255 {
            lost.insert(path.clone());
        } else {
            damage(&mut input, bytes, &other);
        }
    }
    let costs = Costs::NONE;
    let disk = SimDisk::with_config(1, SimConfig { costs, ..SimConfig::default() });
    for (path, bytes) in files.iter().filter(|(path, _)| !lost.contains(path)) {
        disk.set_contents(path, bytes).expect("the disk is healthy");
    }
    let before = disk.files();
    drop(inspect(&disk, Path::new(ROOT), true, &mut |fact| drop(fact.to_string())));
    let unlocked = |files: Vec<(PathBuf, u64)>| files.into_iter().filter(|(path, _)| !path.ends_with("lock"));
    assert!(unlocked(disk.files()).eq(unlocked(before)), "looking changes nothing");
    match open(&disk, &ground.config) {
        Ok(spool) => read_all(ground, spool, &disk, &touched, &mut input),
        Err(OpenError::OtherFormat { .. }) => {}
        Err(error) => {
            assert!(touched.iter().any(|path| !is_segment(path)), "rot in segments keeps no spool closed: {error}");
        }
    }
}

fn open(disk: &SimDisk, config: &Config) -> Result<(Spool, Stepper), OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Spool::open_stepped(config.clone(), disk).map(|(spool, stepper, _)| (spool, stepper))
}

/// Reads everything, carries out the operations of the input, commits one more message, and finds that one after a
/// restart.
fn read_all(
    ground: &Ground,
    (spool, mut stepper): (Spool, Stepper),
    disk: &SimDisk,
    touched: &HashSet<PathBuf>,
    input: &mut Input<'_>,
) {
    let found: HashSet<QueueId> = spool.messages().into_iter().collect();
    for id in &found {
        let known = ground.messages.get(id).unwrap_or_else(|| panic!("{id} was never committed"));
        read_one(&spool, *id, known);
    }
    for (id, files) in ground.lies_in.iter().filter(|(_, files)| files.is_disjoint(touched)) {
        let Some(known) = ground.messages.get(id) else { continue };
        let is_there = spool.body(*id).is_ok_and(|body| body.concat() == known.body);
        assert!(
            is_there,
            "{id} was lost, and all of it lies in {files:?}, which nobody touched; damage in {touched:?}"
        );
    }
    let operated = operations::run(&spool, &mut stepper, disk, input);
    let body = NewBody::whole("Subject: still here\r\n\r\n", 23);
    let recipients = [crate::NewRecipient { data: b"", destination: b"example.org" }];
    let message = crate::NewMessage { reserved: true, ..crate::NewMessage::new(QueueId::MAX, b"", &recipients, body) };
    let Ok(commit) = spool.append(message) else { return };
    // A damaged spool may have no room left, and then refuses for as long as it is asked.
    for _ in 0..STEPS_MAX {
        if !stepper.commit(0) {
            break;
        }
    }
    let acknowledged = commit.poll_now() == Some(Ok(()));
    drop((spool, stepper));
    let (spool, _) = open(disk, &ground.config).expect("what was opened once opens again");
    assert!(!acknowledged || spool.body(QueueId::MAX).is_ok(), "what is committed after damage is kept");
    operated.check(&spool);
}

fn read_one(spool: &Spool, id: QueueId, known: &Known) {
    match spool.body(id) {
        Ok(pieces) => assert!(pieces.concat() == known.body, "{id} has a body that nobody wrote"),
        Err(error) => assert_readable(id, &error),
    }
    match spool.envelope(id) {
        Ok(stored) => {
            assert!(stored.head == known.head, "{id} has a head that nobody wrote");
            for recipient in &stored.recipients {
                assert!(
                    known.recipients.get(recipient.position as usize).is_some_and(|data| *data == recipient.data),
                    "{id} has a recipient that nobody wrote"
                );
            }
        }
        Err(error) => assert_readable(id, &error),
    }
}

fn assert_readable(id: QueueId, error: &Error) {
    assert!(matches!(error, Error::Corrupt { .. } | Error::Unreadable { .. }), "{id}: {error}");
}

/// Returns the seeds for fuzzing: every structure of the sample as it lies on the disk.
#[cfg(test)]
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let ground = ground();
    let mut seeds = Vec::new();
    for (bytes, seed, generation) in ground.segments() {
        seeds.extend(bytes.get(..BLOCK).map(<[u8]>::to_vec));
        seeds.extend(bytes.get(bytes.len() - BLOCK..).map(<[u8]>::to_vec));
        for found in scan(bytes, seed, generation, 0).frames {
            seeds.push(found.frame.first.to_vec());
            seeds.push(found.frame.second.to_vec());
            let end = found.offset as usize + found.frame.header.frame_bytes();
            seeds.extend(bytes.get(found.offset as usize..end).map(<[u8]>::to_vec));
        }
        if let Some(trailer) = crate::format::Trailer::decode(bytes.get(bytes.len() - BLOCK..).unwrap_or_default()) {
            let (at, size) = (trailer.footer.0 as usize, trailer.footer.1 as usize);
            let sealed = bytes.get(at..at + size).unwrap_or_default();
            if let crate::format::Found::Whole(frame) = crate::format::Frame::find(seed, sealed) {
                seeds.push(frame.second.to_vec());
            }
        }
    }
    for known in ground.messages.values() {
        seeds.push(known.head.clone());
        seeds.extend(known.recipients.iter().cloned());
    }
    seeds.push(ground.identity.to_text().into_bytes());
    seeds.sort();
    seeds.dedup();
    seeds
}
