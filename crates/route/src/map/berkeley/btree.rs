//! The access method "btree": a row of leaves in the order of keys, reached over inner pages.

use std::borrow::Cow;

use super::page::{self, File, Page};
use crate::map::complaint::{Complaints, MapFileError, shown};
use crate::map::storage::Packing;

/// Types of items; the highest bit says that it is deleted.
const DATA: u8 = 1;
const DUPLICATES: u8 = 2;
const OVERFLOW: u8 = 3;
const DELETED: u8 = 0x80;

/// Places in page 0.
const FLAGS: usize = 48;
const ROOT: usize = 88;
const RECORD_NUMBERS_ONLY: u32 = 0x02;
const SEVERAL_DATABASES: u32 = 0x20;
const COMPRESSED: u32 = 0x80;

pub(super) fn read(file: &mut File<'_>, out: &mut Packing, complaints: &mut Complaints) -> Result<(), MapFileError> {
    file.expect(page::BTREE_META, 8..=10)?;
    let word = |at| file.meta.u32(at).unwrap_or_default();
    let unsupported = [
        (RECORD_NUMBERS_ONLY, "it is a Berkeley DB of numbered records, which has no keys"),
        (SEVERAL_DATABASES, "it holds several databases"),
        (COMPRESSED, "it is compressed"),
    ];
    if let Some((_, what)) = unsupported.iter().find(|(flag, _)| word(FLAGS) & flag != 0) {
        return Err(MapFileError::unsupported(*what));
    }
    let mut leaf = first_leaf(file, word(ROOT))?;
    loop {
        read_leaf(file, &leaf, out, complaints)?;
        if leaf.next == 0 {
            return Ok(());
        }
        leaf = file.page(leaf.next, "a leaf")?;
        if leaf.kind != page::BTREE_LEAF {
            return Err(leaf.damage(format_args!("it has type {}, but a leaf leads there", leaf.kind)));
        }
    }
}

/// The leaf with the lowest keys. A page is looked at once, so this ends.
fn first_leaf<'a>(file: &mut File<'a>, root: u32) -> Result<Page<'a>, MapFileError> {
    let mut page = file.page(root, "the root")?;
    loop {
        match page.kind {
            page::BTREE_LEAF => return Ok(page),
            page::BTREE_INNER => {
                let child = page.octets.u32(page.place(0)? + 4);
                let child = child.ok_or_else(|| page.damage("item 0 lies outside of the page"))?;
                page = file.page(child, "an inner page")?;
            }
            kind => return Err(page.damage(format_args!("it has type {kind}, which is not one of a btree"))),
        }
    }
}

/// The bytes at the place of an item.
enum Item<'a> {
    Bytes(Cow<'a, [u8]>),
    Deleted,
    Duplicates,
    TooLong,
}

fn read_leaf<'a>(
    file: &mut File<'a>,
    page: &Page<'a>,
    out: &mut Packing,
    complaints: &mut Complaints,
) -> Result<(), MapFileError> {
    if !page.items.is_multiple_of(2) {
        return Err(page.damage(format_args!("it has {} items, which are no pairs", page.items)));
    }
    let max = out.entry_bytes_max();
    // Items that lie over each other would make more of a page than is in it.
    let mut room = page.octets.bytes.len();
    let mut last = None;
    for pair in 0..page.items / 2 {
        let place = page.place(2 * pair)?;
        // Several values of one key share it.
        let is_duplicate = last.replace(place) == Some(place);
        let value = item(file, page, 2 * pair + 1, max, &mut room)?;
        if is_duplicate || matches!(value, Item::Deleted) {
            if is_duplicate && !matches!(value, Item::Deleted) {
                complaints.add(None, || format!("a key on page {} has several values; the first counts", page.number));
            }
            continue;
        }
        let key = match item(file, page, 2 * pair, max, &mut room)? {
            Item::Bytes(key) => key,
            Item::Deleted => continue,
            Item::Duplicates => return Err(page.damage(format_args!("item {} is no key", 2 * pair))),
            Item::TooLong => {
                let number = page.number;
                complaints.add(None, || format!("a key on page {number} is longer than {max} octets; entry ignored"));
                continue;
            }
        };
        let shown = || shown(&key);
        match value {
            Item::Bytes(value) => out.push(&key, &value, complaints)?,
            Item::Deleted => {}
            Item::Duplicates => complaints
                .add(None, || format!("\"{}\" has many values; entry ignored: make the map again without -d", shown())),
            Item::TooLong => complaints
                .add(None, || format!("the value of \"{}\" is longer than {max} octets; entry ignored", shown())),
        }
    }
    Ok(())
}

fn item<'a>(
    file: &mut File<'a>,
    page: &Page<'a>,
    item: usize,
    max: usize,
    room: &mut usize,
) -> Result<Item<'a>, MapFileError> {
    let place = page.place(item)?;
    let cut = || page.damage(format_args!("item {item} lies outside of the page"));
    let kind = page.octets.u8(place + 2).ok_or_else(cut)?;
    if kind & DELETED != 0 {
        return Ok(Item::Deleted);
    }
    match kind {
        DATA => {
            let len = usize::from(page.octets.u16(place).ok_or_else(cut)?);
            let over = || page.damage("its items lie over each other");
            *room = room.checked_sub(len).ok_or_else(over)?;
            Ok(Item::Bytes(Cow::Borrowed(page.part(place + 3, place + 3 + len, item)?.bytes)))
        }
        OVERFLOW => {
            let first = page.octets.u32(place + 4).ok_or_else(cut)?;
            let len = page.octets.u32(place + 8).ok_or_else(cut)?;
            Ok(file.overflow(first, len, max)?.map_or(Item::TooLong, |bytes| Item::Bytes(Cow::Owned(bytes))))
        }
        DUPLICATES => Ok(Item::Duplicates),
        kind => Err(page.damage(format_args!("item {item} has the unknown type {kind}"))),
    }
}
