//! Berkeley DB without libdb: files of the access methods hash and btree are read, hash files are written.
//!
//! ```text
//! page 0   what the file is (magic, version, size of a page, checksums), and where its entries are
//! page n   hash:  a page of a bucket, or one behind it
//!          btree: an inner page, or a leaf
//!          both:  a part of an item too large for a page, or a free page
//! ```
//!
//! Files of all machines are read: the byte order is that of the magic number. A page is looked at once, so that no
//! file makes the reader loop, and the entries read are never more than the file has. An error for damage names the
//! page.

mod btree;
mod hash;
mod page;
mod write;

pub use write::write_hash;

use super::complaint::{Complaints, MapFileError};
use super::storage::Packing;
use super::{Format, MapLimits};
use page::{File, Order};

/// Magic numbers, at octet 12; version 1.85 had them at the beginning.
const MAGIC_HASH: u32 = 0x0006_1561;
const MAGIC_BTREE: u32 = 0x0005_3162;
const MAGIC_QUEUE: u32 = 0x0004_2253;
const MAGIC_HEAP: u32 = 0x0007_4582;

/// The byte order and the access method, if it is a file of Berkeley DB.
fn kind(bytes: &[u8]) -> Option<(Order, u32)> {
    let magic = *bytes.get(12..)?.first_chunk()?;
    [Order::Little, Order::Big].into_iter().find_map(|order| {
        let magic = order.u32(magic);
        matches!(magic, MAGIC_HASH | MAGIC_BTREE | MAGIC_QUEUE | MAGIC_HEAP).then_some((order, magic))
    })
}

/// Tells whether this is a file of Berkeley DB that can be read.
pub(super) fn format_of(bytes: &[u8]) -> Result<Option<Format>, MapFileError> {
    let start = bytes.first_chunk().copied().unwrap_or_default();
    if [u32::from_le_bytes(start), u32::from_be_bytes(start)].iter().any(|n| matches!(*n, MAGIC_HASH | MAGIC_BTREE)) {
        return Err(MapFileError::unsupported(
            "it is a file of Berkeley DB 1.85; files of version 3 and later are read",
        ));
    }
    match kind(bytes) {
        None => Ok(None),
        Some((_, MAGIC_HASH)) => Ok(Some(Format::BerkeleyHash)),
        Some((_, MAGIC_BTREE)) => Ok(Some(Format::BerkeleyBtree)),
        Some((_, MAGIC_QUEUE)) => Err(MapFileError::unsupported("it is a queue of Berkeley DB, not a hash or btree")),
        Some(_) => Err(MapFileError::unsupported("it is a heap of Berkeley DB, not a hash or btree")),
    }
}

/// Reads all entries.
pub(super) fn read(
    bytes: &[u8],
    fold: bool,
    limits: &MapLimits,
    complaints: &mut Complaints,
) -> Result<Packing, MapFileError> {
    let (order, magic) = kind(bytes).ok_or_else(|| MapFileError::damaged("its magic number is missing"))?;
    let mut file = File::open(bytes, order)?;
    let mut packing = Packing::new(fold, limits);
    if magic == MAGIC_HASH {
        hash::read(&mut file, &mut packing, complaints)?;
    } else {
        btree::read(&mut file, &mut packing, complaints)?;
    }
    Ok(packing)
}

/// The hash function of the access method: that of Fowler, Noll and Vo, without its start value.
fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |hash: u32, byte| hash.wrapping_mul(16_777_619) ^ u32::from(*byte))
}
