//! A store that keeps nothing: shows how much of a measurement is the load itself.

use bytes::Bytes;
use mail::QueueId;
use spool::{Change, Chunk, Commit, Entry, Error, NewBody, NewMessage, Statistics, Store, StoredEnvelope};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(super) struct Nothing {
    commits: AtomicU64,
    bytes: AtomicU64,
}

impl Store for Nothing {
    fn append(&self, message: NewMessage<'_>) -> Result<Commit, Error> {
        let bytes = match &message.body {
            NewBody::Whole(bytes) => bytes.len() as u64,
            NewBody::Chunks { bytes, .. } => *bytes,
        };
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Commit::settled(&Ok(())))
    }

    fn append_chunk(&self, _: QueueId, _: u32, _: Chunk) -> Result<Commit, Error> {
        Ok(Commit::settled(&Ok(())))
    }

    fn abort(&self, _: QueueId) {}

    fn record(&self, _: &[Change]) -> Result<Commit, Error> {
        Ok(Commit::settled(&Ok(())))
    }

    fn envelope(&self, id: QueueId) -> Result<StoredEnvelope, Error> {
        Err(Error::Unknown(id))
    }

    fn body(&self, id: QueueId) -> Result<Vec<Bytes>, Error> {
        Err(Error::Unknown(id))
    }

    fn body_range(&self, id: QueueId, _: Range<u64>) -> Result<Bytes, Error> {
        Err(Error::Unknown(id))
    }

    fn destinations(&self) -> Vec<(Bytes, u64)> {
        Vec::new()
    }

    fn by_destination(&self, _: &[u8], _: Option<Entry>, _: usize) -> Vec<Entry> {
        Vec::new()
    }

    fn messages(&self) -> Vec<QueueId> {
        Vec::new()
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            commits: self.commits.load(Ordering::Relaxed),
            body_bytes: self.bytes.load(Ordering::Relaxed),
            ..Statistics::default()
        }
    }
}
