//! redb 4: a table of records and one of bodies, one transaction per group, the default durability (one `fdatasync`).

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;

use super::{Engine, EngineError, Operation};

const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
const BODIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("bodies");
/// Cache, as much as the spool may use for bodies.
const CACHE_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub(super) struct Redb {
    database: Database,
}

impl Redb {
    pub(super) fn open(dir: &Path) -> Result<Self, EngineError> {
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(dir.join("redb"))?;
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.open_table(BODIES)?;
        transaction.commit()?;
        Ok(Self { database })
    }
}

impl Engine for Redb {
    fn write(&self, operations: &[Operation]) -> Result<(), EngineError> {
        let transaction = self.database.begin_write()?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            let mut bodies = transaction.open_table(BODIES)?;
            for operation in operations {
                match operation {
                    Operation::Insert { id, record, body } => {
                        records.insert(id, record.as_slice())?;
                        let mut place = bodies.insert_reserve(id, body.len())?;
                        let mut rest = place.as_mut();
                        for piece in body.pieces() {
                            let (to, after) = rest.split_at_mut(piece.len());
                            to.copy_from_slice(piece);
                            rest = after;
                        }
                    }
                    Operation::Replace { id, record } => {
                        records.insert(id, record.as_slice())?;
                    }
                    Operation::Remove { id, .. } => {
                        records.remove(id)?;
                        bodies.remove(id)?;
                    }
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn record(&self, id: u64) -> Result<Option<Bytes>, EngineError> {
        let table = self.database.begin_read()?.open_table(RECORDS)?;
        Ok(table.get(id)?.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn body(&self, id: u64) -> Result<Vec<Bytes>, EngineError> {
        let table = self.database.begin_read()?.open_table(BODIES)?;
        Ok(table.get(id)?.map(|value| Bytes::copy_from_slice(value.value())).into_iter().collect())
    }

    fn scan(&self, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), EngineError> {
        let table = self.database.begin_read()?.open_table(RECORDS)?;
        for row in table.iter()? {
            let (id, record) = row?;
            each(id.value(), record.value());
        }
        Ok(())
    }
}
