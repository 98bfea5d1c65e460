//! `cluster.adopted` in the spool directory: the messages of other nodes that the spool has, or had within a day, and
//! own messages that another node has taken over.
//!
//! | Octets of an entry | |
//! |---|---|
//! | 8 | queue id in the cluster |
//! | 8 | queue id here |
//! | 2 | hops |
//! | 1 | 1 taking, 2 taken, 3 given up to another node |
//! | 8 | time in microseconds since 1970 |
//! | 4 | CRC-32C of the octets before |
//!
//! Little-endian. The later entry of a message holds. Entries are appended by one thread, all that wait with one sync.
//! A crash can leave a part of the last ones: those that do not read at the end were not relied on. The start writes
//! the file anew with those that still count.

use mail::QueueId;
use spool::disk::Disk as _;
use spool::disk::real::RealDisk;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Name of the file.
const NAME: &str = "cluster.adopted";
/// Octets of an entry.
const ENTRY: usize = 31;
/// Time for which a finished message is remembered, in microseconds.
const KEPT_US: u64 = 86_400 * 1_000_000;

/// How far an adoption has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The message is about to be stored.
    Taking,
    /// The spool has it, or had it.
    Taken,
    /// Another node has taken it over.
    GivenUp,
}

/// A message that this node has, had, or gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdoptedEntry {
    pub(super) cluster: QueueId,
    pub(super) local: QueueId,
    pub(super) hops: u16,
    pub(super) step: Step,
    pub(super) at_us: u64,
}

type Waiting = (Vec<u8>, oneshot::Sender<bool>);

/// The file, and its content in memory.
#[derive(Debug)]
pub(super) struct AdoptedLog {
    entries: Mutex<BTreeMap<QueueId, AdoptedEntry>>,
    writer: Sender<Waiting>,
}

impl AdoptedLog {
    /// Reads the file and writes it anew with the entries that count: those of live messages, and others of the last
    /// day. A message that was being taken when the node stopped counts as taken if the spool has it, and else is
    /// dropped.
    ///
    /// # Errors
    /// The file cannot be read or replaced.
    pub(super) fn open(directory: &Path, now_us: u64, is_live: impl Fn(QueueId) -> bool) -> io::Result<Self> {
        let path = directory.join(NAME);
        let octets = match std::fs::read(&path) {
            Ok(octets) => octets,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut entries = BTreeMap::new();
        for entry in octets.as_chunks::<ENTRY>().0.iter().map_while(AdoptedEntry::read) {
            entries.insert(entry.cluster, entry);
        }
        entries.retain(|_, entry| {
            let is_live = is_live(entry.local);
            if entry.step == Step::Taking {
                entry.step = Step::Taken;
                return is_live;
            }
            is_live || entry.at_us.saturating_add(KEPT_US) > now_us
        });
        let octets: Vec<u8> = entries.values().flat_map(AdoptedEntry::write).collect();
        RealDisk::new().replace_small(&path, &octets)?;
        let file = OpenOptions::new().append(true).open(&path)?;
        let (writer, waiting) = mpsc::channel();
        std::thread::Builder::new().name("adopted".to_owned()).spawn(move || write_all(file, &waiting))?;
        Ok(Self { entries: Mutex::new(entries), writer })
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<QueueId, AdoptedEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry of a message of the cluster.
    pub(super) fn get(&self, cluster: QueueId) -> Option<AdoptedEntry> {
        self.entries().get(&cluster).copied()
    }

    /// All that is known.
    pub(super) fn all(&self) -> Vec<AdoptedEntry> {
        self.entries().values().copied().collect()
    }

    /// Adds entries; durable when it returns true. On false they count in memory only.
    ///
    /// # Cancel safety
    /// They are written all the same.
    pub(super) async fn add(&self, new: &[AdoptedEntry]) -> bool {
        let octets = new.iter().flat_map(AdoptedEntry::write).collect();
        self.entries().extend(new.iter().map(|entry| (entry.cluster, *entry)));
        let (tell, told) = oneshot::channel();
        self.writer.send((octets, tell)).is_ok() && told.await.unwrap_or(false)
    }
}

/// Writes what waits, with one sync. After an error nothing more is written: the place of the next entry is unknown.
fn write_all(mut file: File, waiting: &Receiver<Waiting>) {
    let mut is_whole = true;
    while let Ok(first) = waiting.recv() {
        let batch: Vec<Waiting> = std::iter::once(first).chain(waiting.try_iter()).collect();
        let octets: Vec<u8> = batch.iter().flat_map(|(octets, _)| octets.iter().copied()).collect();
        is_whole = is_whole && file.write_all(&octets).is_ok() && file.sync_data().is_ok();
        for (_, tell) in batch {
            // One that does not wait any more needs no answer.
            tell.send(is_whole).ok();
        }
    }
}

impl AdoptedEntry {
    fn write(&self) -> [u8; ENTRY] {
        let mut octets = Vec::with_capacity(ENTRY);
        octets.extend_from_slice(&self.cluster.to_u64().to_le_bytes());
        octets.extend_from_slice(&self.local.to_u64().to_le_bytes());
        octets.extend_from_slice(&self.hops.to_le_bytes());
        octets.push(match self.step {
            Step::Taking => 1,
            Step::Taken => 2,
            Step::GivenUp => 3,
        });
        octets.extend_from_slice(&self.at_us.to_le_bytes());
        octets.extend_from_slice(&crc32c::crc32c(&octets).to_le_bytes());
        octets.try_into().expect("the lengths add up")
    }

    fn read(octets: &[u8; ENTRY]) -> Option<Self> {
        let (rest, crc) = octets.split_last_chunk::<4>()?;
        let (cluster, rest_of) = rest.split_first_chunk::<8>()?;
        let (local, rest_of) = rest_of.split_first_chunk::<8>()?;
        let (hops, rest_of) = rest_of.split_first_chunk::<2>()?;
        let (step, at_us) = rest_of.split_first_chunk::<1>()?;
        let step = match step {
            [1] => Step::Taking,
            [2] => Step::Taken,
            [3] => Step::GivenUp,
            _ => return None,
        };
        (crc32c::crc32c(rest) == u32::from_le_bytes(*crc)).then_some(())?;
        Some(Self {
            cluster: QueueId::from_u64(u64::from_le_bytes(*cluster))?,
            local: QueueId::from_u64(u64::from_le_bytes(*local))?,
            hops: u16::from_le_bytes(*hops),
            step,
            at_us: u64::from_le_bytes(at_us.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> QueueId {
        QueueId::from_u64(QueueId::MIN.to_u64() + 1 + number * 4096).unwrap()
    }

    fn entry(number: u64, step: Step, at_us: u64) -> AdoptedEntry {
        AdoptedEntry { cluster: id(number), local: id(number + 100), hops: 2, step, at_us }
    }

    #[tokio::test]
    async fn entries_outlive_a_start_as_long_as_they_count() {
        let place = tempfile::tempdir().unwrap();
        let now = 2 * KEPT_US;
        let log = AdoptedLog::open(place.path(), now, |_| false).unwrap();
        let taken = entry(1, Step::Taken, now);
        let live = entry(2, Step::Taken, 5);
        let stored = entry(4, Step::Taking, now);
        let all = [taken, live, entry(3, Step::Taken, 5), stored, entry(5, Step::Taking, now)];
        assert!(log.add(&all).await);
        let given = entry(6, Step::GivenUp, now);
        assert!(log.add(&[entry(6, Step::Taken, now), given]).await);
        assert_eq!(log.get(id(5)), Some(entry(5, Step::Taking, now)));
        drop(log);

        let is_live = |one| [id(102), id(104)].contains(&one);
        let log = AdoptedLog::open(place.path(), now + 1, is_live).unwrap();
        let stored = AdoptedEntry { step: Step::Taken, ..stored };
        assert_eq!(log.all(), [taken, live, stored, given]);
        drop(log);
        // A torn end costs the entries that were not durable.
        let path = place.path().join(NAME);
        let octets = std::fs::read(&path).unwrap();
        assert_eq!(octets.len(), 4 * ENTRY);
        std::fs::write(&path, &octets[..4 * ENTRY - 1]).unwrap();
        assert_eq!(AdoptedLog::open(place.path(), now + 1, is_live).unwrap().all(), [taken, live, stored]);
    }
}
