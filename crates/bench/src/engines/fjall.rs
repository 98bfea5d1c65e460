//! fjall 3: bodies and records in one tree each, one batch per group, journal synced with `fdatasync`.
//!
//! Settings as measured best for this load: bodies in the tree (kept apart from their keys they cost half as much
//! again, because they die young), nothing compressed, memtables of 256 MiB so that much mail is finished before it is
//! flushed. A chunked body is one value per chunk.

use bytes::Bytes;
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::fmt;
use std::path::Path;

use super::{Engine, EngineError, Operation};

/// Pieces a body may have: 16 MiB of chunks, far above what is measured.
const PIECES_MAX: u32 = 64;

/// Memtable, as much memory as the spool may use for bodies.
const MEMTABLE_BYTES: u64 = 256 << 20;
/// Journals kept at most: two memtables of each keyspace.
const JOURNALS_BYTES: u64 = 1 << 30;

pub(super) struct Fjall {
    database: Database,
    records: Keyspace,
    bodies: Keyspace,
}

impl Fjall {
    pub(super) fn open(dir: &Path) -> Result<Self, EngineError> {
        let database = Database::builder(dir.join("fjall"))
            .journal_compression(CompressionType::None)
            .max_journaling_size(JOURNALS_BYTES)
            .open()?;
        let plain = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                .data_block_compression_policy(CompressionPolicy::disabled())
        };
        let records = database.keyspace("records", plain)?;
        let bodies = database.keyspace("bodies", plain)?;
        Ok(Self { database, records, bodies })
    }
}

impl fmt::Debug for Fjall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fjall").finish_non_exhaustive()
    }
}

impl Engine for Fjall {
    fn write(&self, operations: &[Operation]) -> Result<(), EngineError> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for operation in operations {
            match operation {
                Operation::Insert { id, record, body } => {
                    batch.insert(&self.records, id.to_be_bytes(), record.as_slice());
                    for (number, piece) in (0..PIECES_MAX).zip(body.pieces()) {
                        batch.insert(&self.bodies, key(*id, number), piece);
                    }
                }
                Operation::Replace { id, record } => batch.insert(&self.records, id.to_be_bytes(), record.as_slice()),
                Operation::Remove { id, pieces } => {
                    batch.remove(&self.records, id.to_be_bytes());
                    for number in 0..*pieces {
                        batch.remove(&self.bodies, key(*id, number));
                    }
                }
            }
        }
        Ok(batch.commit()?)
    }

    fn record(&self, id: u64) -> Result<Option<Bytes>, EngineError> {
        Ok(self.records.get(id.to_be_bytes())?.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn body(&self, id: u64) -> Result<Vec<Bytes>, EngineError> {
        let mut found = Vec::new();
        for number in 0..PIECES_MAX {
            let Some(value) = self.bodies.get(key(id, number))? else { break };
            found.push(Bytes::copy_from_slice(&value));
        }
        Ok(found)
    }

    fn scan(&self, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), EngineError> {
        for guard in self.records.iter() {
            let (id, record) = guard.into_inner()?;
            each(u64::from_be_bytes(id.as_ref().try_into()?), &record);
        }
        Ok(())
    }
}

fn key(id: u64, number: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}
