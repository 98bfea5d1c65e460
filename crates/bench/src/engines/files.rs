//! One file per message, as Postfix does it.
//!
//! Accepting (`src/global/mail_queue.c`, `mail_stream.c` of Postfix 3.12): make a file under a temporary name, rename
//! it to its queue id, write, make it executable to mark it complete, `fsync`, close. The directory is not synced: on
//! ext4 the `fsync` of a new file commits its names too. Finishing (`deliver_completed.c`): overwrite one byte of the
//! recipient without a sync, unlink when it was the last. A later try is the file's modification time.
//!
//! No batches: every committer syncs its own file, and the journal of the file system is the only group commit.

use bytes::Bytes;
use mail::QueueId;
use spool::{Change, Chunk, Commit, Entry, Error, NewBody, NewMessage, Statistics, Store, StoredEnvelope};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use super::Body;
use super::group::{lock, part, stored};
use super::index::{Effect, Index};
use super::record::{Record, STATUS_AT, encode_new, status_byte};

/// Subdirectories the queue is spread over: one hexadecimal digit, `hash_queue_depth = 1`.
const SUBDIRECTORIES: u64 = 16;
/// A complete file ends with this, so that a partial one is known without the mode bit.
const END: &[u8] = b"X3\0\0END\n";
/// Bytes before the record: its length.
const PREFIX: usize = 8;

/// A queue directory.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    index: Mutex<Index>,
    chunks: Mutex<HashMap<u64, Vec<Chunk>>>,
    commits: AtomicU64,
    body_bytes: AtomicU64,
    failures: AtomicU64,
}

impl Files {
    /// Opens or makes the queue in `dir`, and reads the record of every file.
    ///
    /// # Errors
    /// The system's words.
    pub fn open(dir: &Path) -> Result<Self, String> {
        let mut index = Index::default();
        for number in 0..SUBDIRECTORIES {
            let sub = dir.join(format!("{number:X}"));
            let told = |e: io::Error| format!("{}: {e}", sub.display());
            fs::create_dir_all(&sub).map_err(told)?;
            for entry in fs::read_dir(&sub).map_err(told)? {
                let path = entry.map_err(told)?.path();
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let Some(id) = name.parse::<QueueId>().ok() else { continue };
                // A file without the mark or the end was never acknowledged.
                if let Ok(Some((record, _))) = read(&path) {
                    index.insert_record(id.to_u64(), &record);
                }
            }
        }
        Ok(Self {
            dir: dir.to_owned(),
            index: Mutex::new(index),
            chunks: Mutex::default(),
            commits: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    fn path(&self, id: QueueId) -> PathBuf {
        self.dir.join(format!("{:X}", id.unix_us() % SUBDIRECTORIES)).join(id.to_string())
    }

    fn store(&self, id: QueueId, record: &[u8], body: &Body) -> io::Result<()> {
        let path = self.path(id);
        let temporary = path.with_extension("new");
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        rename(&temporary, &path)?;
        let length = (record.len() as u64).to_le_bytes();
        let mut parts = vec![IoSlice::new(&length), IoSlice::new(record)];
        parts.extend(body.pieces().map(IoSlice::new));
        parts.push(IoSlice::new(END));
        write_all(&file, &mut parts)?;
        file.set_permissions(Permissions::from_mode(0o700))?;
        file.sync_all()
    }

    fn read(&self, id: QueueId) -> Result<(Record, Bytes), Error> {
        match read(&self.path(id)) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(Error::Corrupt { id, what: "file is not complete".to_owned() }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::Unknown(id)),
            Err(e) => Err(Error::Unreadable { id, what: e.to_string() }),
        }
    }

    fn mark(&self, change: &Change, effect: &Effect) -> io::Result<()> {
        let path = self.path(change.id);
        let file = OpenOptions::new().write(true).open(&path)?;
        let at = (PREFIX + STATUS_AT) as u64 + u64::from(change.recipient);
        file.write_all_at(&[status_byte(change.state.status)], at)?;
        if matches!(effect, Effect::Finished(_)) {
            return fs::remove_file(&path);
        }
        file.set_modified(UNIX_EPOCH + Duration::from_secs(u64::from(change.state.due)))
    }
}

impl Store for Files {
    /// Blocks the caller: the message is durable on return.
    fn append(&self, message: NewMessage<'_>) -> Result<Commit, Error> {
        let id = message.id.to_u64();
        let (record, body) = match &message.body {
            NewBody::Whole(bytes) => (encode_new(&message, bytes.len() as u64), Body::Whole(bytes.clone())),
            NewBody::Chunks { bytes, .. } => {
                (encode_new(&message, *bytes), Body::Chunks(lock(&self.chunks).remove(&id).unwrap_or_default()))
            }
        };
        if self.store(message.id, &record, &body).is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Failed);
        }
        let destinations = message.recipients.iter().map(|r| (spool::State::default(), r.destination));
        lock(&self.index).insert(id, body.count(), destinations);
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.body_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        Ok(Commit::settled(&Ok(())))
    }

    /// Keeps the chunk in memory until its message comes.
    fn append_chunk(&self, id: QueueId, _number: u32, chunk: Chunk) -> Result<Commit, Error> {
        lock(&self.chunks).entry(id.to_u64()).or_default().push(chunk);
        Ok(Commit::settled(&Ok(())))
    }

    fn abort(&self, id: QueueId) {
        lock(&self.chunks).remove(&id.to_u64());
    }

    fn record(&self, changes: &[Change]) -> Result<Commit, Error> {
        for change in changes {
            let effect = lock(&self.index).apply(change);
            if effect != Effect::Ignored && self.mark(change, &effect).is_err() {
                self.failures.fetch_add(1, Ordering::Relaxed);
                return Err(Error::Poisoned);
            }
        }
        Ok(Commit::settled(&Ok(())))
    }

    fn envelope(&self, id: QueueId) -> Result<StoredEnvelope, Error> {
        let (mut record, _) = self.read(id)?;
        lock(&self.index).refresh(id.to_u64(), &mut record);
        Ok(stored(record))
    }

    fn body(&self, id: QueueId) -> Result<Vec<Bytes>, Error> {
        Ok(vec![self.read(id)?.1])
    }

    fn body_range(&self, id: QueueId, range: Range<u64>) -> Result<Bytes, Error> {
        Ok(part(&self.body(id)?, range))
    }

    fn destinations(&self) -> Vec<(Bytes, u64)> {
        lock(&self.index).destinations()
    }

    fn by_destination(&self, destination: &[u8], after: Option<Entry>, limit: usize) -> Vec<Entry> {
        lock(&self.index).by_destination(destination, after, limit)
    }

    fn messages(&self) -> Vec<QueueId> {
        lock(&self.index).messages()
    }

    fn statistics(&self) -> Statistics {
        let commits = self.commits.load(Ordering::Relaxed);
        Statistics {
            commits,
            batches: commits,
            body_bytes: self.body_bytes.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            ..lock(&self.index).statistics()
        }
    }
}

/// The record and the body of a complete file; `None` when it is not complete.
fn read(path: &Path) -> io::Result<Option<(Record, Bytes)>> {
    let mut file = File::open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(length).read_to_end(&mut bytes)?;
    let bytes = Bytes::from(bytes);
    if !bytes.ends_with(END) {
        return Ok(None);
    }
    let Some(record_length) = bytes.first_chunk::<PREFIX>().map(|b| u64::from_le_bytes(*b)) else { return Ok(None) };
    let end = PREFIX.saturating_add(usize::try_from(record_length).unwrap_or(usize::MAX));
    if end > bytes.len() - END.len() {
        return Ok(None);
    }
    let Some(record) = Record::decode(&bytes.slice(PREFIX..end)) else { return Ok(None) };
    let body = bytes.slice(end..bytes.len() - END.len());
    Ok((body.len() as u64 == record.body_bytes).then_some((record, body)))
}

fn write_all(mut file: &File, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !parts.is_empty() {
        match file.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut parts, n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "Postfix renames without a sync; that is what is measured here")]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}
