//! fjall 3: bodies and records in one tree each, one batch per group, journal synced with `fdatasync`.
//!
//! Bodies are kept apart from their keys, as its documentation advises for large values, and nothing is compressed:
//! mail on the way is short-lived. A chunked body is one value per chunk.

use bytes::Bytes;
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use std::fmt;
use std::path::Path;

use super::{Engine, EngineError, Operation};

/// Pieces a body may have: 16 MiB of chunks, far above what is measured.
const PIECES_MAX: u32 = 64;

pub(super) struct Fjall {
    database: Database,
    records: Keyspace,
    bodies: Keyspace,
}

impl Fjall {
    pub(super) fn open(dir: &Path) -> Result<Self, EngineError> {
        let database = Database::builder(dir.join("fjall")).journal_compression(CompressionType::None).open()?;
        let plain = || KeyspaceCreateOptions::default().data_block_compression_policy(CompressionPolicy::disabled());
        let separated = KvSeparationOptions::default().compression(CompressionType::None);
        let records = database.keyspace("records", plain)?;
        let bodies = database.keyspace("bodies", || plain().with_kv_separation(Some(separated)))?;
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
