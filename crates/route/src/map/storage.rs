//! Entries in memory, and how one is found.
//!
//! All keys and values lie in one text. Beside it lies a hash table of 32-bit slots, three quarters full, that says
//! where entries begin; bits that the offset leaves free hold a part of the hash, so that a look-up reads seldom more
//! than one line of the cache from each of the two. An entry is what a slot points to: duplicates and lines with
//! mistakes stay in the text, but nothing leads there.

use super::Hit;
use super::complaint::{Complaints, MapFileError, shown};
use super::{MapLimits, line};

/// How the text is laid out.
#[derive(Debug)]
enum Layout {
    /// A file of lines as it came, with keys folded in place. The number of lines before each block of [`BLOCK`] octets
    /// is kept.
    Lines(Box<[u32]>),
    /// Key, NUL, value, NUL; and the lines of entries by their offsets, if they have any.
    Packed(Box<[(u32, u32)]>),
}

/// How far from a known line number an entry may begin: this much is read to count lines.
const BLOCK: usize = 128;

/// All entries of a table.
#[derive(Debug)]
pub(super) struct Storage {
    text: String,
    layout: Layout,
    slots: Box<[u32]>,
    /// Bits of a slot that are an offset; the others are a part of the hash.
    offset_bits: u32,
    len: usize,
}

const EMPTY: u32 = u32::MAX;

impl Storage {
    /// Entries of a file of lines that begin at `offsets`. Of equal keys the first counts.
    pub(super) fn of_lines(text: String, offsets: &[u32], complaints: &mut Complaints) -> Self {
        let mut blocks = Vec::with_capacity(text.len() / BLOCK + 1);
        let mut lines = 0_u32;
        for block in text.as_bytes().chunks(BLOCK) {
            blocks.push(lines);
            // Lines are at most octets, which fit.
            lines += u32::try_from(count_lines(block)).unwrap_or_default();
        }
        Self::index(text, Layout::Lines(blocks.into_boxed_slice()), offsets, complaints)
    }

    fn index(mut text: String, layout: Layout, offsets: &[u32], complaints: &mut Complaints) -> Self {
        text.shrink_to_fit();
        let offset_bits = usize::BITS - text.len().leading_zeros();
        let slots = vec![EMPTY; offsets.len() + offsets.len() / 3 + 1].into_boxed_slice();
        let mut storage = Self { text, layout, slots, offset_bits, len: 0 };
        for offset in offsets {
            let (key, _) = storage.entry(*offset);
            let hash = hash(key.as_bytes());
            match storage.slot_of(key, hash) {
                Ok(first) => {
                    let first = storage.line_of(first);
                    let line = storage.line_of(*offset);
                    complaints.add(line, || duplicate(key, first));
                }
                Err(at) => {
                    let slot = storage.slot(*offset, hash);
                    if let Some(free) = storage.slots.get_mut(at) {
                        *free = slot;
                        storage.len += 1;
                    }
                }
            }
        }
        storage
    }

    /// The value of a slot.
    fn slot(&self, offset: u32, hash: u64) -> u32 {
        // The upper half of the hash chooses the place, the lower half is the mark.
        let mark = u32::try_from(hash & u64::from(u32::MAX)).unwrap_or_default();
        offset | mark.checked_shl(self.offset_bits).unwrap_or_default()
    }

    /// The offset of the entry of a key, or where its slot would be.
    fn slot_of(&self, key: &str, hash: u64) -> Result<u32, usize> {
        let mark = self.slot(0, hash);
        let may_be_there = self.may_be_key(key);
        let offset_mask = u32::MAX.checked_shr(32 - self.offset_bits.min(32)).unwrap_or_default();
        // The upper half of the hash as a fraction of the table.
        let slots = self.slots.len() as u64;
        let start = usize::try_from(((hash >> 32) * slots) >> 32).unwrap_or_default();
        let (before, from) = self.slots.split_at_checked(start).unwrap_or((&[], &self.slots));
        for (at, slot) in (start..).zip(from).chain((0..).zip(before)) {
            if *slot == EMPTY {
                return Err(at);
            }
            if slot & !offset_mask == mark && may_be_there && self.is_key(slot & offset_mask, key) {
                return Ok(slot & offset_mask);
            }
        }
        // A quarter of the slots is free.
        Err(self.slots.len())
    }

    /// Whether a key holds nothing that ends one.
    fn may_be_key(&self, key: &str) -> bool {
        match self.layout {
            Layout::Lines(_) => !key.bytes().any(line::ends_key),
            Layout::Packed(_) => memchr::memchr(0, key.as_bytes()).is_none(),
        }
    }

    /// Whether this key begins at an offset, and ends there.
    fn is_key(&self, offset: u32, key: &str) -> bool {
        let rest = self.text.as_bytes().get(offset as usize..).unwrap_or_default();
        let end = rest.strip_prefix(key.as_bytes()).and_then(|rest| rest.first());
        end.is_some_and(|end| match self.layout {
            Layout::Lines(_) => line::ends_key(*end),
            Layout::Packed(_) => *end == 0,
        })
    }

    /// The key that begins at an offset, and the value behind it.
    fn entry(&self, offset: u32) -> (&str, &str) {
        let rest = self.text.get(offset as usize..).unwrap_or_default();
        match self.layout {
            Layout::Lines(_) => line::entry(rest),
            Layout::Packed(_) => {
                let (key, rest) = until_nul(rest);
                (key, until_nul(rest).0)
            }
        }
    }

    /// The line of an entry.
    fn line_of(&self, offset: u32) -> Option<u32> {
        let blocks = match &self.layout {
            Layout::Lines(blocks) => blocks,
            Layout::Packed(lines) => {
                let at = lines.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
                return lines.get(at).map(|(_, line)| *line);
            }
        };
        let offset = offset as usize;
        let block = offset / BLOCK;
        let between = self.text.as_bytes().get(block * BLOCK..offset)?;
        let before = u32::try_from(count_lines(between)).unwrap_or_default();
        Some(blocks.get(block)? + before + 1)
    }

    /// The entry with exactly this key.
    pub(super) fn find(&self, key: &str) -> Option<Hit<'_>> {
        let offset = self.slot_of(key, hash(key.as_bytes())).ok()?;
        let (key, rest) = self.text.get(offset as usize..)?.split_at_checked(key.len())?;
        let value = match self.layout {
            Layout::Lines(_) => line::value(rest),
            Layout::Packed(_) => until_nul(rest.get(1..)?).0,
        };
        Some(Hit { key, value, line: self.line_of(offset) })
    }

    /// The entry with this key in lower case.
    pub(super) fn find_folded(&self, key: &str) -> Option<Hit<'_>> {
        // Names and addresses are shorter than 256 octets, nearly always.
        let mut buffer = [0; 256];
        if !key.is_ascii() {
            let mut folded = key.to_owned().into_bytes();
            fold(&mut folded);
            return self.find(str::from_utf8(&folded).ok()?);
        }
        if !key.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return self.find(key);
        }
        let Some(folded) = buffer.get_mut(..key.len()) else { return self.find(&key.to_ascii_lowercase()) };
        folded.copy_from_slice(key.as_bytes());
        folded.make_ascii_lowercase();
        self.find(str::from_utf8(folded).ok()?)
    }

    /// All entries in the order of the text.
    pub(super) fn iter(&self) -> impl Iterator<Item = Hit<'_>> {
        let mut next = 0_usize;
        let mut line = 0_u32;
        std::iter::from_fn(move || {
            loop {
                let rest = self.text.get(next..).filter(|rest| !rest.is_empty())?;
                let offset = u32::try_from(next).ok()?;
                line += 1;
                let (key, value) = self.entry(offset);
                next += match self.layout {
                    Layout::Lines(_) => memchr::memchr(b'\n', rest.as_bytes()).map_or(rest.len(), |end| end + 1),
                    Layout::Packed(_) => key.len() + value.len() + 2,
                };
                if self.slot_of(key, hash(key.as_bytes())) == Ok(offset) {
                    let line = match self.layout {
                        Layout::Lines(_) => Some(line),
                        Layout::Packed(_) => self.line_of(offset),
                    };
                    return Some(Hit { key, value, line });
                }
            }
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let blocks = match &self.layout {
            Layout::Lines(blocks) => size_of_val(&**blocks),
            Layout::Packed(lines) => size_of_val(&**lines),
        };
        self.text.capacity() + size_of_val(&*self.slots) + blocks
    }
}

fn duplicate(key: &str, first: Option<u32>) -> String {
    let key = shown(key.as_bytes());
    match first {
        Some(line) => format!("\"{key}\" stands already in line {line}, which counts; entry ignored"),
        None => format!("\"{key}\" is there twice; the first counts"),
    }
}

fn until_nul(text: &str) -> (&str, &str) {
    let end = memchr::memchr(0, text.as_bytes()).unwrap_or(text.len());
    (text.get(..end).unwrap_or_default(), text.get(end + 1..).unwrap_or_default())
}

fn count_lines(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// A hash of a key. The maps are the operator's own files, so no attacker chooses keys that collide.
fn hash(key: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = key.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(23) ^ word).wrapping_mul(ODD);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        mix(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    mix(u64::from_le_bytes(last));
    // Every bit of the key in every bit of the hash.
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ (hash >> 32)
}

/// Turns a key into lower case in place.
///
/// ASCII, and all letters of which the other case takes as many octets in UTF-8; the few others (as the Turkish dotted
/// İ) stay, in the map as in the key that is looked up.
pub(super) fn fold(key: &mut [u8]) {
    key.make_ascii_lowercase();
    if key.is_ascii() {
        return;
    }
    let Ok(text) = str::from_utf8(key) else { return };
    let mut folded = Vec::with_capacity(key.len());
    for c in text.chars() {
        let mut lower = c.to_lowercase();
        let same = |l: &char| l.len_utf8() == c.len_utf8();
        let c = lower.next().filter(same).filter(|_| lower.next().is_none()).unwrap_or(c);
        folded.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    if folded.len() == key.len() {
        key.copy_from_slice(&folded);
    }
}

/// Replaces bytes that are not UTF-8 by question marks; returns whether there were any.
pub(super) fn replace_invalid(bytes: &mut [u8]) -> bool {
    let mut start = 0;
    let mut any = false;
    while let Some(rest) = bytes.get_mut(start..) {
        let Err(error) = str::from_utf8(rest) else { break };
        any = true;
        let valid = error.valid_up_to();
        let end = error.error_len().map_or(rest.len(), |len| valid + len);
        if let Some(bad) = rest.get_mut(valid..end) {
            bad.fill(b'?');
        }
        start += end;
    }
    any
}

/// Entries of a database on their way into a storage.
#[derive(Debug)]
pub(super) struct Packing {
    text: Vec<u8>,
    offsets: Vec<u32>,
    lines: Vec<(u32, u32)>,
    fold: bool,
    limits: MapLimits,
    has_alias_token: bool,
}

impl Packing {
    pub(super) fn new(fold: bool, limits: &MapLimits) -> Self {
        Self { text: Vec::new(), offsets: Vec::new(), lines: Vec::new(), fold, limits: *limits, has_alias_token: false }
    }

    /// Octets of the longest item that is worth reading.
    pub(super) fn entry_bytes_max(&self) -> usize {
        self.limits.entry_bytes_max
    }

    /// Takes an entry, with or without the NUL that `makemap -N` and `newaliases` put at the ends.
    ///
    /// # Errors
    /// There are more entries, or more octets in them, than the limits allow.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8], complaints: &mut Complaints) -> Result<(), MapFileError> {
        let key = key.strip_suffix(b"\0").unwrap_or(key);
        let value = value.strip_suffix(b"\0").unwrap_or(value);
        // newaliases writes this last: the file is complete.
        if key == b"@" && value == b"@" {
            self.has_alias_token = true;
            return Ok(());
        }
        if key.len() + value.len() > self.limits.entry_bytes_max {
            complaints.add(None, || too_long(key, key.len() + value.len(), &self.limits));
            return Ok(());
        }
        let value = value.trim_ascii();
        if memchr::memchr(0, key).is_some() || memchr::memchr(0, value).is_some() {
            complaints.add(None, || format!("\"{}\" has a NUL in it; entry ignored", shown(key)));
            return Ok(());
        }
        if str::from_utf8(key).is_err() {
            complaints.add(None, || format!("key \"{}\" is not UTF-8; entry ignored", shown(key)));
            return Ok(());
        }
        if self.offsets.len() >= self.limits.entries_max {
            return Err(too_many(&self.limits));
        }
        let offset = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        let octets = self.text.len() as u64 + key.len() as u64 + value.len() as u64 + 2;
        if octets >= u64::from(u32::MAX) {
            return Err(MapFileError::too_large("its keys and values have more than 4 GiB"));
        }
        self.offsets.push(offset);
        self.text.extend_from_slice(key);
        if self.fold {
            self.text.get_mut(offset as usize..).map(fold);
        }
        self.text.push(0);
        let start = self.text.len();
        self.text.extend_from_slice(value);
        if self.text.get_mut(start..).is_some_and(replace_invalid) {
            complaints.add(None, || not_utf8(key));
        }
        self.text.push(0);
        Ok(())
    }

    /// Says from which line the entries came that were pushed since `before`, a number of entries.
    pub(super) fn number(&mut self, before: usize, line: u32) {
        let new = self.offsets.get(before..).unwrap_or_default();
        self.lines.extend(new.iter().map(|offset| (*offset, line)));
    }

    /// How many entries were taken, duplicates among them.
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// The storage, and whether the entry `@:@` was there.
    pub(super) fn finish(self, complaints: &mut Complaints) -> (Storage, bool) {
        // Keys are UTF-8 and values were made so.
        let text = String::from_utf8(self.text).unwrap_or_default();
        let layout = Layout::Packed(self.lines.into_boxed_slice());
        (Storage::index(text, layout, &self.offsets, complaints), self.has_alias_token)
    }
}

pub(super) fn too_long(key: &[u8], len: usize, limits: &MapLimits) -> String {
    format!("\"{}\" and its value have {len} octets, of {} allowed; entry ignored", shown(key), limits.entry_bytes_max)
}

pub(super) fn too_many(limits: &MapLimits) -> MapFileError {
    MapFileError::too_large(format!("it has more than {} entries", limits.entries_max))
}

pub(super) fn not_utf8(key: &[u8]) -> String {
    format!("the value of \"{}\" is not UTF-8; what is not, is read as question marks", shown(key))
}
