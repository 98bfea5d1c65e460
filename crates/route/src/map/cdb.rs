//! D. J. Bernstein's constant database, with 32-bit positions: read and written.
//!
//! ```text
//! 0     256 × (position, slots) of the hash tables
//! 2048  records: length of key, length of value, key, value
//!       256 hash tables: slots of (hash, position of record), twice as many as records
//! ```
//!
//! All numbers are 32 bits, little-endian. There is no magic number: a file is told by its header, in which each table
//! begins where the one before ends.

use super::MapLimits;
use super::complaint::{Complaints, MapFileError, TooLarge};
use super::storage::Packing;

/// Octets of the header, where records begin.
const HEADER: usize = 2_048;
/// Hash tables.
const TABLES: usize = 256;

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|number| u32::from_le_bytes(*number))
}

/// Position and slots of each hash table.
fn tables(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let at = |at| number(bytes, at).map(u64::from);
    (0..TABLES).map(|table| Some((at(8 * table)?, at(8 * table + 4)?))).collect()
}

/// Whether the header is one of a cdb file, which may be cut off.
pub(super) fn looks_like_one(bytes: &[u8]) -> bool {
    let Some(tables) = tables(bytes) else { return false };
    let mut next = tables.first().map_or(0, |(position, _)| *position);
    next >= HEADER as u64
        && tables.iter().all(|(position, slots)| {
            let is_next = *position == next;
            next += 8 * slots;
            is_next
        })
}

/// Reads all records.
pub(super) fn read(
    bytes: &[u8],
    fold: bool,
    limits: &MapLimits,
    complaints: &mut Complaints,
) -> Result<Packing, MapFileError> {
    let cut = || MapFileError::damaged("its header is cut off");
    let tables = tables(bytes).ok_or_else(cut)?;
    let (end, _) = *tables.first().ok_or_else(cut)?;
    let (last, slots) = *tables.last().ok_or_else(cut)?;
    let len = last + 8 * slots;
    if (bytes.len() as u64) < len {
        return Err(MapFileError::damaged(format!("it is cut off at octet {} of {len}", bytes.len())));
    }
    let end = usize::try_from(end).unwrap_or(usize::MAX);
    let mut packing = Packing::new(fold, limits);
    let mut at = HEADER;
    let mut records = 0_u64;
    while at < end {
        let (key, value) = record(bytes, at, end)
            .ok_or_else(|| MapFileError::damaged(format!("the record at octet {at} is damaged")))?;
        packing.push(key, value, complaints)?;
        at += 8 + key.len() + value.len();
        records += 1;
    }
    let slots: u64 = tables.iter().map(|(_, slots)| slots).sum();
    if records > slots {
        return Err(MapFileError::damaged(format!(
            "it has {records} records, but its hash tables have room for {slots}"
        )));
    }
    Ok(packing)
}

/// The record at a position; it ends at `end` or before.
fn record(bytes: &[u8], at: usize, end: usize) -> Option<(&[u8], &[u8])> {
    let key = usize::try_from(number(bytes, at)?).ok()?;
    let value = usize::try_from(number(bytes, at + 4)?).ok()?;
    let start = at + 8;
    let middle = start.checked_add(key)?;
    let stop = middle.checked_add(value).filter(|stop| *stop <= end)?;
    Some((bytes.get(start..middle)?, bytes.get(middle..stop)?))
}

fn hash(key: &[u8]) -> u32 {
    key.iter().fold(5_381, |hash: u32, byte| (hash << 5).wrapping_add(hash) ^ u32::from(*byte))
}

/// Writes a database of these entries, octet for octet as they are; of equal keys, readers find the first.
///
/// # Errors
/// [`TooLarge`].
pub fn write<'a>(entries: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Result<Vec<u8>, TooLarge> {
    let number = |len: usize| u32::try_from(len).map_err(|_| TooLarge);
    let mut out = vec![0; HEADER];
    let mut tables: Vec<Vec<(u32, u32)>> = vec![Vec::new(); TABLES];
    for (key, value) in entries {
        let position = number(out.len())?;
        let hash = hash(key);
        out.extend_from_slice(&number(key.len())?.to_le_bytes());
        out.extend_from_slice(&number(value.len())?.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        if let Some(table) = tables.get_mut(usize::from(hash.to_le_bytes()[0])) {
            table.push((hash, position));
        }
    }
    for (at, table) in tables.iter().enumerate() {
        let slots = 2 * table.len();
        let entry = [number(out.len())?.to_le_bytes(), number(slots)?.to_le_bytes()].concat();
        if let Some(header) = out.get_mut(8 * at..8 * at + 8) {
            header.copy_from_slice(&entry);
        }
        for (hash, position) in filled(table, slots) {
            out.extend_from_slice(&hash.to_le_bytes());
            out.extend_from_slice(&position.to_le_bytes());
        }
    }
    number(out.len())?;
    Ok(out)
}

/// The slots of a hash table: each record in the first free one from where its hash says.
fn filled(records: &[(u32, u32)], slots: usize) -> Vec<(u32, u32)> {
    let mut table = vec![(0, 0); slots];
    for record in records {
        let start = (record.0 >> 8) as usize % slots;
        let (before, from) = table.split_at_mut(start);
        // A position of 0 is in the header: no record is there.
        if let Some(free) = from.iter_mut().chain(before).find(|slot| slot.1 == 0) {
            *free = *record;
        }
    }
    table
}
