//! Pages of a file, and items that are larger than one.

use crate::map::complaint::MapFileError;

/// Octets of a page before its items, when it has no checksum; and with one.
const HEAD: usize = 26;
const HEAD_CHECKSUM: usize = 32;
/// Octets of page 0 that mean something, which are those in its checksum.
const META: usize = 512;

/// Types of pages.
pub(super) const HASH_UNSORTED: u8 = 2;
pub(super) const BTREE_INNER: u8 = 3;
pub(super) const BTREE_LEAF: u8 = 5;
pub(super) const OVERFLOW: u8 = 7;
pub(super) const HASH_META: u8 = 8;
pub(super) const BTREE_META: u8 = 9;
pub(super) const HASH_SORTED: u8 = 13;

/// The order of octets in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }
}

/// Octets in which numbers stand at known places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Octets<'a> {
    pub(super) bytes: &'a [u8],
    order: Order,
}

impl<'a> Octets<'a> {
    pub(super) fn u32(&self, at: usize) -> Option<u32> {
        self.bytes.get(at..)?.first_chunk().map(|bytes| self.order.u32(*bytes))
    }

    pub(super) fn u16(&self, at: usize) -> Option<u16> {
        self.bytes.get(at..)?.first_chunk().map(|bytes| self.order.u16(*bytes))
    }

    pub(super) fn u8(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    pub(super) fn part(&self, from: usize, to: usize) -> Option<Self> {
        Some(Octets { bytes: self.bytes.get(from..to)?, order: self.order })
    }
}

/// Damage of a page.
pub(super) fn damage(page: u32, what: impl std::fmt::Display) -> MapFileError {
    MapFileError::damaged(format!("page {page}: {what}"))
}

/// A page that holds items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page<'a> {
    pub(super) number: u32,
    pub(super) octets: Octets<'a>,
    pub(super) kind: u8,
    /// The page behind this one, in a bucket, in a row of leaves, or in an item; 0 for none.
    pub(super) next: u32,
    /// How many items there are.
    pub(super) items: usize,
    /// Where the places of items begin.
    head: usize,
}

impl<'a> Page<'a> {
    /// Where an item begins.
    pub(super) fn place(&self, item: usize) -> Result<usize, MapFileError> {
        let place = self.octets.u16(self.head + 2 * item).map(usize::from);
        let min = self.head + 2 * self.items;
        place
            .filter(|place| (min..self.octets.bytes.len()).contains(place))
            .ok_or_else(|| self.damage(format_args!("item {item} lies outside of the page")))
    }

    pub(super) fn damage(&self, what: impl std::fmt::Display) -> MapFileError {
        damage(self.number, what)
    }

    /// Octets of an item, from one place to another.
    pub(super) fn part(&self, from: usize, to: usize, item: usize) -> Result<Octets<'a>, MapFileError> {
        self.octets.part(from, to).ok_or_else(|| self.damage(format_args!("item {item} lies outside of the page")))
    }
}

/// A file, and which of its pages were looked at.
#[derive(Debug)]
pub(super) struct File<'a> {
    pub(super) meta: Octets<'a>,
    order: Order,
    bytes: &'a [u8],
    page_bytes: usize,
    has_checksums: bool,
    seen: Vec<bool>,
}

impl<'a> File<'a> {
    /// Checks the fields of page 0 that all access methods have.
    pub(super) fn open(bytes: &'a [u8], order: Order) -> Result<Self, MapFileError> {
        let meta = bytes.get(..META).ok_or_else(|| {
            MapFileError::damaged(format!("it is cut off: {} octets, of {META} at least in a first page", bytes.len()))
        })?;
        let meta = Octets { bytes: meta, order };
        let number = |at| meta.u32(at).unwrap_or_default();
        if meta.u8(24) != Some(0) {
            return Err(MapFileError::unsupported("it is encrypted"));
        }
        let page_bytes = number(20) as usize;
        if !page_bytes.is_power_of_two() || !(512..=65_536).contains(&page_bytes) {
            return Err(damage(0, format_args!("a page cannot have {page_bytes} octets")));
        }
        let flags = meta.u8(26).unwrap_or_default();
        if flags & !1 != 0 {
            return Err(MapFileError::unsupported("it is one of several files of a partitioned database"));
        }
        let pages = bytes.len() / page_bytes;
        if pages == 0 {
            return Err(MapFileError::damaged(format!(
                "it is cut off: {} octets, of {page_bytes} in a page",
                bytes.len()
            )));
        }
        let mut seen = vec![false; pages];
        if let Some(first) = seen.first_mut() {
            *first = true;
        }
        let file = Self { meta, order, bytes, page_bytes, has_checksums: flags & 1 != 0, seen };
        if file.has_checksums {
            file.check(0, meta, 492)?;
        }
        Ok(file)
    }

    /// Asserts what page 0 says about the access method.
    pub(super) fn expect(&self, kind: u8, versions: std::ops::RangeInclusive<u32>) -> Result<(), MapFileError> {
        let version = self.meta.u32(16).unwrap_or_default();
        if !versions.contains(&version) {
            let (first, last) = (versions.start(), versions.end());
            let what = format!("its format has version {version}; {first} to {last} are read");
            return Err(MapFileError::unsupported(what));
        }
        match self.meta.u8(25) {
            Some(found) if found == kind => Ok(()),
            found => Err(damage(0, format_args!("it has type {}, not {kind}", found.unwrap_or_default()))),
        }
    }

    /// How many pages the file has.
    pub(super) fn pages(&self) -> usize {
        self.seen.len()
    }

    /// Takes a page that was not read before.
    pub(super) fn page(&mut self, number: u32, from: &str) -> Result<Page<'a>, MapFileError> {
        let index = number as usize;
        let pages = self.pages();
        let Some(seen) = self.seen.get_mut(index) else {
            return Err(damage(
                number,
                format_args!("{from} leads there, but the file has {pages} pages; is it cut off?"),
            ));
        };
        if std::mem::replace(seen, true) {
            return Err(damage(number, format_args!("{from} leads there, and so does something else")));
        }
        let start = index * self.page_bytes;
        let bytes = self.bytes.get(start..start + self.page_bytes).unwrap_or_default();
        let octets = Octets { bytes, order: self.order };
        let word = |at| octets.u32(at).unwrap_or_default();
        let kind = octets.u8(25).unwrap_or_default();
        let head = if self.has_checksums { HEAD_CHECKSUM } else { HEAD };
        let items = usize::from(octets.u16(20).unwrap_or_default());
        let page = Page { number, octets, kind, next: word(16), items, head };
        // Buckets are made in groups; those without entries are zeroes.
        if kind == 0 && word(8) == 0 && items == 0 {
            return Ok(page);
        }
        if self.has_checksums {
            self.check(number, octets, 28)?;
        }
        if word(8) != number {
            return Err(damage(number, format_args!("it calls itself page {}", word(8))));
        }
        if kind != OVERFLOW && head + 2 * items > bytes.len() {
            return Err(damage(number, format_args!("it cannot hold {items} items")));
        }
        Ok(page)
    }

    /// Compares a checksum, which is made with zeroes in its own place.
    fn check(&self, number: u32, octets: Octets<'_>, at: usize) -> Result<(), MapFileError> {
        let bytes = octets.bytes;
        let (before, behind) = (bytes.get(..at).unwrap_or_default(), bytes.get(at + 4..).unwrap_or_default());
        let all = before.iter().chain(&[0; 4]).chain(behind);
        // Chris Torek's hash function.
        let sum = all.fold(0_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        if octets.u32(at) == Some(sum) {
            return Ok(());
        }
        Err(damage(number, "its checksum is wrong"))
    }

    /// An item that lies on pages of its own, the first of which is `first`; nothing when it is longer than `max`.
    pub(super) fn overflow(&mut self, first: u32, len: u32, max: usize) -> Result<Option<Vec<u8>>, MapFileError> {
        let len = len as usize;
        if len > self.bytes.len() {
            return Err(damage(first, format_args!("an item of {len} octets cannot begin here")));
        }
        if len > max {
            return Ok(None);
        }
        let mut item = Vec::with_capacity(len);
        let mut number = first;
        while number != 0 {
            let page = self.page(number, "a large item")?;
            if page.kind != OVERFLOW {
                return Err(page.damage(format_args!("it has type {}, but a large item leads there", page.kind)));
            }
            let octets = usize::from(page.octets.u16(22).unwrap_or_default());
            let part = page.part(page.head, page.head + octets, 0)?;
            item.extend_from_slice(part.bytes);
            if item.len() > len {
                break;
            }
            number = page.next;
        }
        if item.len() != len {
            return Err(damage(first, format_args!("the large item here has {} octets, not {len}", item.len())));
        }
        Ok(Some(item))
    }
}
