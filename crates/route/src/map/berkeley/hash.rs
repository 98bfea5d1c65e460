//! The access method "hash": buckets of pages in which keys and values take turns.
//!
//! Items fill a page from its end, so each ends where the one before it begins. Bucket `b` begins on page
//! `b + spares[⌈log2(b + 1)⌉]`: the number of buckets doubles, and `spares` says how many other pages came in between.

use std::borrow::Cow;

use super::page::{self, File, Octets, Page};
use crate::map::complaint::{Complaints, MapFileError, shown};
use crate::map::storage::Packing;

/// Types of items.
const DATA: u8 = 1;
const DUPLICATES: u8 = 2;
const OFF_PAGE: u8 = 3;
const OFF_PAGE_DUPLICATES: u8 = 4;

/// Places in page 0.
const FLAGS: usize = 48;
const MAX_BUCKET: usize = 72;
const SPARES: usize = 96;
const SEVERAL_DATABASES: u32 = 2;

pub(super) fn read(file: &mut File<'_>, out: &mut Packing, complaints: &mut Complaints) -> Result<(), MapFileError> {
    file.expect(page::HASH_META, 7..=10)?;
    let word = |at| file.meta.u32(at).unwrap_or_default();
    if word(FLAGS) & SEVERAL_DATABASES != 0 {
        return Err(MapFileError::unsupported("it holds several databases"));
    }
    let max_bucket = word(MAX_BUCKET);
    if max_bucket as usize >= file.pages() {
        let buckets = u64::from(max_bucket) + 1;
        let what =
            format_args!("it tells of {buckets} buckets, but there are {} pages; it may be cut off", file.pages());
        return Err(page::damage(0, what));
    }
    for bucket in 0..=max_bucket {
        // ⌈log2(bucket + 1)⌉ is the number of bits of the bucket.
        let doubling = (u32::BITS - bucket.leading_zeros()) as usize;
        let spare = file.meta.u32(SPARES + 4 * doubling).unwrap_or_default();
        let mut number = bucket.wrapping_add(spare);
        loop {
            let page = file.page(number, "a bucket")?;
            match page.kind {
                0 => {}
                page::HASH_SORTED | page::HASH_UNSORTED => read_page(file, &page, out, complaints)?,
                kind => return Err(page.damage(format_args!("it has type {kind}, but bucket {bucket} leads there"))),
            }
            number = page.next;
            if number == 0 {
                break;
            }
        }
    }
    Ok(())
}

fn read_page(
    file: &mut File<'_>,
    page: &Page<'_>,
    out: &mut Packing,
    complaints: &mut Complaints,
) -> Result<(), MapFileError> {
    if !page.items.is_multiple_of(2) {
        return Err(page.damage(format_args!("it has {} items, which are no pairs", page.items)));
    }
    let mut end = page.octets.bytes.len();
    for pair in 0..page.items / 2 {
        let mut item = |item| {
            let start = page.place(item)?;
            let octets = page.part(start, end, item)?;
            end = start;
            Ok(octets)
        };
        let (key, value) = (item(2 * pair)?, item(2 * pair + 1)?);
        let max = out.entry_bytes_max();
        let Some(key) = bytes_of(file, page, key, max)? else {
            complaints
                .add(None, || format!("a key on page {} is longer than {max} octets; entry ignored", page.number));
            continue;
        };
        let value = match value.u8(0) {
            Some(DUPLICATES) => {
                complaints.add(None, || format!("\"{}\" has several values; the first counts", shown(&key)));
                first_duplicate(page, value)?
            }
            Some(OFF_PAGE_DUPLICATES) => {
                complaints.add(None, || {
                    format!("\"{}\" has many values; entry ignored: make the map again without -d", shown(&key))
                });
                continue;
            }
            _ => match bytes_of(file, page, value, max)? {
                Some(value) => value,
                None => {
                    complaints.add(None, || {
                        format!("the value of \"{}\" is longer than {max} octets; entry ignored", shown(&key))
                    });
                    continue;
                }
            },
        };
        out.push(&key, &value, complaints)?;
    }
    Ok(())
}

/// Returns the bytes of an item; none when it is too long.
fn bytes_of<'a>(
    file: &mut File<'_>,
    page: &Page<'_>,
    item: Octets<'a>,
    max: usize,
) -> Result<Option<Cow<'a, [u8]>>, MapFileError> {
    match item.bytes.split_first() {
        Some((&DATA, data)) => Ok(Some(Cow::Borrowed(data))),
        Some((&OFF_PAGE, _)) => {
            let (Some(first), Some(len)) = (item.u32(4), item.u32(8)) else {
                return Err(page.damage("a reference to a large item is cut off"));
            };
            Ok(file.overflow(first, len, max)?.map(Cow::Owned))
        }
        Some((kind, _)) => Err(page.damage(format_args!("an item has the unknown type {kind}"))),
        None => Err(page.damage("an item has no octets")),
    }
}

/// The first of several values on one page: each stands between its length and its length.
fn first_duplicate<'a>(page: &Page<'_>, item: Octets<'a>) -> Result<Cow<'a, [u8]>, MapFileError> {
    let len = item.u16(1).map(usize::from);
    let value = len.and_then(|len| item.bytes.get(3..3 + len));
    value.map(Cow::Borrowed).ok_or_else(|| page.damage("several values of one key are cut off"))
}
