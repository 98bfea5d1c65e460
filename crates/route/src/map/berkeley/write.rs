//! A hash file, as `makemap hash` of a sendmail with Berkeley DB 4.6 or later makes it: version 9, little-endian.
//!
//! All entries are known, so the number of buckets is chosen once: a power of two at which their pages are about half
//! full. A bucket that needs more than its page goes on behind all buckets, where large items lie too.

use std::collections::VecDeque;

use super::{MAGIC_HASH, fnv, page};
use crate::map::complaint::TooLarge;

/// Octets of a page; the size that libdb takes on most file systems.
const PAGE: usize = 4_096;
/// Octets of a page before its items.
const HEAD: usize = 26;
/// Items above this size lie on pages of their own: `ISBIG` of libdb.
const LARGE: usize = PAGE / 4;
/// Octets of a page that a bucket should fill at most, on average.
const FILL: usize = PAGE * 5 / 8;
/// Version of the format, since Berkeley DB 4.6.
const VERSION: u32 = 9;

/// An item as it lies on the page of a bucket: its type, and its octets or where they are.
type Item = Vec<u8>;

/// Pages of a file that is being made.
struct Pages {
    bytes: Vec<u8>,
}

impl Pages {
    /// The number of the next page.
    fn next(&self) -> Result<u32, TooLarge> {
        u32::try_from(self.bytes.len() / PAGE).ok().filter(|next| *next < 1 << 20).ok_or(TooLarge)
    }

    fn add(&mut self, page: &[u8]) {
        self.bytes.extend_from_slice(page);
        self.bytes.resize(self.bytes.len().next_multiple_of(PAGE), 0);
    }

    fn put(&mut self, number: u32, page: &[u8]) {
        let start = number as usize * PAGE;
        if let Some(place) = self.bytes.get_mut(start..start + page.len()) {
            place.copy_from_slice(page);
        }
    }

    /// Lays a large item on pages of its own; gives the item that leads there.
    fn large(&mut self, data: &[u8]) -> Result<Item, TooLarge> {
        let first = self.next()?;
        let mut parts: VecDeque<&[u8]> = data.chunks(PAGE - HEAD).collect();
        let mut before = 0;
        while let Some(part) = parts.pop_front() {
            let number = self.next()?;
            let next = if parts.is_empty() { 0 } else { number + 1 };
            let len = u16::try_from(part.len()).unwrap_or_default();
            let mut page = head(number, before, next, 1, len, page::OVERFLOW);
            page.extend_from_slice(part);
            self.add(&page);
            before = number;
        }
        let len = u32::try_from(data.len()).map_err(|_| TooLarge)?;
        let mut item = vec![3, 0, 0, 0];
        item.extend_from_slice(&first.to_le_bytes());
        item.extend_from_slice(&len.to_le_bytes());
        Ok(item)
    }

    fn item(&mut self, data: &[u8]) -> Result<Item, TooLarge> {
        if data.len() > LARGE { self.large(data) } else { Ok([&[1], data].concat()) }
    }
}

/// The beginning of a page. No log knows it, which is position 1 of log 0.
fn head(number: u32, before: u32, next: u32, items: u16, free_until: u16, kind: u8) -> Vec<u8> {
    let mut head = Vec::with_capacity(PAGE);
    for word in [0, 1, number, before, next] {
        head.extend_from_slice(&word.to_le_bytes());
    }
    head.extend_from_slice(&items.to_le_bytes());
    head.extend_from_slice(&free_until.to_le_bytes());
    head.extend_from_slice(&[0, kind]);
    head
}

/// A page of a bucket: places of items from the front, items from the end.
fn bucket_page(number: u32, before: u32, next: u32, items: &[Item]) -> Vec<u8> {
    let mut places = Vec::with_capacity(2 * items.len());
    let mut end = PAGE;
    for item in items {
        end -= item.len();
        places.extend_from_slice(&u16::try_from(end).unwrap_or_default().to_le_bytes());
    }
    let count = u16::try_from(items.len()).unwrap_or_default();
    let mut page = head(number, before, next, count, u16::try_from(end).unwrap_or_default(), page::HASH_SORTED);
    page.extend_from_slice(&places);
    page.resize(end, 0);
    for item in items.iter().rev() {
        page.extend_from_slice(item);
    }
    page
}

/// Writes a hash file of these entries, octet for octet as they are (`makemap -N` adds a NUL to both). Of equal keys,
/// the first is written.
///
/// # Errors
/// [`TooLarge`].
pub fn write_hash<'a>(entries: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Result<Vec<u8>, TooLarge> {
    let entries: Vec<_> = entries.into_iter().collect();
    let small = |len: usize| if len > LARGE { 12 } else { len + 1 };
    let octets: usize = entries.iter().map(|(key, value)| small(key.len()) + small(value.len()) + 4).sum();
    let buckets = octets.div_ceil(FILL).max(2).next_power_of_two();
    let mut rows: Vec<Vec<(&[u8], &[u8])>> = vec![Vec::new(); buckets];
    for (key, value) in entries {
        if let Some(row) = rows.get_mut(fnv(key) as usize & (buckets - 1)) {
            row.push((key, value));
        }
    }
    let last_bucket = u32::try_from(buckets - 1).map_err(|_| TooLarge)?;
    let mut pages = Pages { bytes: vec![0; (buckets + 1).checked_mul(PAGE).ok_or(TooLarge)?] };
    pages.next()?;
    let mut count = 0_u32;
    for (number, mut row) in (1..).zip(rows) {
        // Stable: of equal keys, the first stays the first.
        row.sort_by_key(|(key, _)| *key);
        row.dedup_by_key(|(key, _)| *key);
        count += u32::try_from(row.len()).unwrap_or_default();
        write_bucket(&mut pages, number, &row)?;
    }
    let last_page = pages.next()? - 1;
    let id = fnv(&pages.bytes);
    pages.put(0, &meta(last_bucket, count, last_page, id));
    Ok(pages.bytes)
}

/// Writes the entries of a bucket to its page, and to more if they do not fit.
fn write_bucket(pages: &mut Pages, first: u32, row: &[(&[u8], &[u8])]) -> Result<(), TooLarge> {
    let mut number = first;
    let mut before = 0;
    let mut items = Vec::new();
    let mut used = HEAD;
    for (key, value) in row {
        let (key, value) = (pages.item(key)?, pages.item(value)?);
        let room = key.len() + value.len() + 4;
        if used + room > PAGE {
            let next = pages.next()?;
            pages.add(&[0]);
            pages.put(number, &bucket_page(number, before, next, &items));
            (before, number, used) = (number, next, HEAD);
            items.clear();
        }
        used += room;
        items.extend([key, value]);
    }
    pages.put(number, &bucket_page(number, before, 0, &items));
    Ok(())
}

/// Page 0.
fn meta(last_bucket: u32, count: u32, last_page: u32, id: u32) -> Vec<u8> {
    let mut meta = Vec::with_capacity(PAGE);
    let mut word = |word: u32| meta.extend_from_slice(&word.to_le_bytes());
    for value in [0, 1, 0, MAGIC_HASH, VERSION, 4_096] {
        word(value);
    }
    word(u32::from(page::HASH_META) << 8);
    // No free pages; the last page; no parts; counts that are not maintained; no flags.
    for value in [0, last_page, 0, 0, 0, 0] {
        word(value);
    }
    // The cache of libdb tells files apart by this id, and by the inode too.
    for round in 0..5 {
        word(id.rotate_left(round) ^ round);
    }
    let buckets_low = last_bucket >> 1;
    for value in [last_bucket, last_bucket, buckets_low, 0, count, fnv(b"%$sniglet^&\0")] {
        word(value);
    }
    // All buckets lie behind page 0.
    let doublings = u32::BITS - last_bucket.leading_zeros();
    for doubling in 0..32 {
        word(u32::from(doubling <= doublings));
    }
    meta.resize(PAGE, 0);
    meta
}
