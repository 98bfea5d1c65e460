//! The bytes of a simulated file: the bytes on the medium, the bytes that a read sees, and the writes in between.
//!
//! Invariants: `view` is `stable` with `pending` applied in order, except after a failed sync and until the next one,
//! when a buffered file still shows what the medium has lost. Pages are shared between images and copied on write,
//! so that a crash image costs little more than a vector of pointers per file with unsynced writes.
//!
//! Not here: names (`tree`), and which operation fails when (`state`).

#![expect(clippy::indexing_slicing, reason = "test equipment: a wrong index is its own bug and must stop the test")]

use std::ops::Range;
use std::sync::Arc;

use super::rng::Rng;
use crate::disk::BLOCK;

/// The bytes that a device writes wholly or not at all.
pub(super) const SECTOR: usize = 512;

/// All sectors of a page.
const WHOLE: u8 = 0xff;

const _: () = assert!(BLOCK == SECTOR * u8::BITS as usize, "a page has one bit per sector");

type Page = [u8; BLOCK];

/// The contents of a file. Pages never written are not there and read as zeroes.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) len: u64,
    pages: Arc<Vec<Option<Arc<Page>>>>,
}

impl Image {
    /// Makes an image of `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut image = Self { len: bytes.len() as u64, ..Self::default() };
        for (n, chunk) in bytes.chunks(BLOCK).enumerate() {
            image.put(n, padded(chunk));
        }
        image
    }

    fn page(&self, n: usize) -> Option<&Arc<Page>> {
        self.pages.get(n)?.as_ref()
    }

    fn slot(&mut self, n: usize) -> &mut Option<Arc<Page>> {
        let pages = Arc::make_mut(&mut self.pages);
        if pages.len() <= n {
            pages.resize(n + 1, None);
        }
        &mut pages[n]
    }

    fn put(&mut self, n: usize, page: Arc<Page>) {
        *self.slot(n) = Some(page);
    }

    fn page_mut(&mut self, n: usize) -> &mut Page {
        Arc::make_mut(self.slot(n).get_or_insert_with(|| Arc::new([0; BLOCK])))
    }

    /// Pages that were ever written.
    pub(super) fn pages_used(&self) -> u64 {
        self.pages.iter().flatten().count() as u64
    }

    /// Bytes of the pages in a range that were never written.
    pub(super) fn bytes_missing(&self, offset: u64, bytes: usize) -> u64 {
        let first = index(offset) / BLOCK;
        let missing = (first..first + bytes / BLOCK).filter(|n| self.page(*n).is_none()).count();
        (missing * BLOCK) as u64
    }

    /// Copies the bytes from `offset` to `buf`; the caller has checked the range.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) {
        let mut at = index(offset);
        let mut rest = buf;
        while !rest.is_empty() {
            let (n, start) = (at / BLOCK, at % BLOCK);
            let (part, after) = rest.split_at_mut(rest.len().min(BLOCK - start));
            match self.page(n) {
                Some(page) => part.copy_from_slice(&page[start..start + part.len()]),
                None => part.fill(0),
            }
            at += part.len();
            rest = after;
        }
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; index(self.len)];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Changes every byte of `range` that is within the file.
    pub(super) fn damage(&mut self, range: Range<u64>, mut change: impl FnMut(u8) -> u8) {
        for at in index(range.start)..index(range.end.min(self.len)) {
            if let Some(byte) = self.page_mut(at / BLOCK).get_mut(at % BLOCK) {
                *byte = change(*byte);
            }
        }
    }

    /// Takes the `sectors` of a write; with `torn`, some of them only in part.
    fn merge(&mut self, write: &Write, sectors: u8, mut torn: Option<&mut Rng>) {
        if sectors == WHOLE && torn.is_none() {
            self.put(write.page, Arc::clone(&write.data));
        } else if sectors != 0 {
            let page = self.page_mut(write.page);
            for sector in (0..BLOCK / SECTOR).filter(|bit| sectors >> bit & 1 == 1) {
                let part = torn.as_deref_mut().map_or(0..SECTOR, tear);
                let at = sector * SECTOR + part.start..sector * SECTOR + part.end;
                page[at.clone()].copy_from_slice(&write.data[at]);
            }
        }
    }

    /// Cuts off the bytes beyond `len`, or grows with zeroes.
    fn set_len(&mut self, len: u64) {
        if len < self.len {
            let keep = index(len);
            let pages = Arc::make_mut(&mut self.pages);
            pages.truncate(keep.div_ceil(BLOCK));
            if !keep.is_multiple_of(BLOCK) && self.page(keep / BLOCK).is_some() {
                self.page_mut(keep / BLOCK)[keep % BLOCK..].fill(0);
            }
        }
        self.len = len;
    }
}

/// The part of a sector that was written when the power went: mostly all, else its beginning or its end.
fn tear(rng: &mut Rng) -> Range<usize> {
    let at = rng.index(SECTOR);
    match rng.below(8) {
        0 => 0..at,
        1 => at..SECTOR,
        _ => 0..SECTOR,
    }
}

/// A page of a write that is not yet on the medium for sure.
#[derive(Clone, Debug)]
struct Write {
    /// Tells which pages were written by one call.
    call: u64,
    page: usize,
    sectors: u8,
    data: Arc<Page>,
}

/// A file without its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) stable: Image,
    pub(super) view: Image,
    pending: Vec<Write>,
    calls: u64,
    /// Handles on it.
    pub(super) open: u32,
    /// Ranges that the medium can no longer read.
    pub(super) bad: Vec<Range<u64>>,
}

impl Inode {
    /// A file whose contents are all on the medium.
    pub(super) fn of(image: Image) -> Self {
        Self { stable: image.clone(), view: image, ..Self::default() }
    }

    /// Replaces all contents for good, for those who have it open, too.
    pub(super) fn replace(&mut self, image: Image) {
        *self = Self { open: self.open, ..Self::of(image) };
    }

    /// Writes whole pages from `offset`; with `cut`, only a random part of their sectors.
    pub(super) fn write(&mut self, bufs: &[&[u8]], offset: u64, mut cut: Option<&mut Rng>) {
        let first = index(offset) / BLOCK;
        let pages = || bufs.iter().flat_map(|buf| buf.chunks(BLOCK));
        let mut pick = cut.as_deref_mut().map(|rng| Pick::new(Mode::any(rng), pages().count(), rng));
        self.calls += 1;
        for (n, chunk) in pages().enumerate() {
            let mut write = Write { call: self.calls, page: first + n, sectors: WHOLE, data: padded(chunk) };
            if let (Some(pick), Some(rng)) = (&mut pick, cut.as_deref_mut()) {
                write.sectors = pick.sectors(n, &write, rng);
                if write.sectors == 0 {
                    continue;
                }
            }
            self.view.merge(&write, write.sectors, None);
            self.pending.push(write);
        }
    }

    /// Replaces the contents of a new file, not yet on the medium; with `cut`, only a random beginning of them.
    pub(super) fn write_small(&mut self, contents: &[u8], cut: Option<&mut Rng>) {
        let bytes = cut.map_or(contents.len(), |rng| rng.index(contents.len() + 1));
        self.write(&[&contents[..bytes]], 0, None);
        self.view.len = bytes as u64;
    }

    /// Puts all on the medium.
    pub(super) fn settle(&mut self) {
        for write in self.pending.drain(..) {
            if let Some(page) = self.view.page(write.page) {
                self.stable.put(write.page, Arc::clone(page));
            }
        }
        self.stable.len = self.view.len;
    }

    /// Answers a sync with an error: some writes are lost, and none is waiting any more.
    ///
    /// Linux does the same: pages are marked clean although they were not written, and the next sync finds nothing to
    /// do. A direct reader sees the medium, any other still sees the pages.
    pub(super) fn lose_some(&mut self, direct: bool, torn: bool, rng: &mut Rng) {
        let len = self.view.len;
        self.stable = self.survivors(Mode::any(rng), torn, rng);
        self.stable.set_len(len);
        self.pending.clear();
        if direct {
            self.view = self.stable.clone();
        }
    }

    /// Forgets clean pages, so that the next reads come from the medium.
    pub(super) fn drop_cache(&mut self) {
        let len = self.view.len;
        self.view = self.stable.clone();
        for write in &self.pending {
            self.view.merge(write, write.sectors, None);
        }
        self.view.len = len;
    }

    /// The file after a power cut: the medium, and a part of the pending writes.
    pub(super) fn after_crash(&self, mode: Mode, torn: bool, rng: &mut Rng) -> Self {
        Self { bad: self.bad.clone(), ..Self::of(self.survivors(mode, torn, rng)) }
    }

    fn survivors(&self, mode: Mode, torn: bool, rng: &mut Rng) -> Image {
        let mut image = self.stable.clone();
        let mut pick = Pick::new(mode, self.pending.len(), rng);
        for (n, write) in self.pending.iter().enumerate() {
            let sectors = pick.sectors(n, write, rng);
            image.merge(write, sectors, torn.then_some(&mut *rng));
        }
        if self.view.len != self.stable.len {
            let len = length_after_crash(self.stable.len, self.view.len, rng);
            image.len = self.view.len;
            image.set_len(len);
        }
        image
    }
}

/// The length of a file that was growing or shrinking when the power went: before, after, or on the way.
fn length_after_crash(from: u64, to: u64, rng: &mut Rng) -> u64 {
    let unit = if rng.one_in(4) { SECTOR as u64 } else { BLOCK as u64 };
    match rng.below(3) {
        0 => from,
        1 => to,
        _ => from.min(to) + rng.below(from.abs_diff(to) / unit + 1) * unit,
    }
}

/// Which of the writes on their way a power cut lets through.
///
/// Mostly patterns that a wrong recovery is likely to trip over; plain coin tosses find those only in short lists.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    Nothing,
    Everything,
    /// Those up to one, which is torn.
    Beginning,
    /// Those after one, which is torn: later writes overtook earlier ones.
    End,
    /// All but one page, which is torn.
    AllButOne,
    /// One page alone, torn.
    OneOnly,
    /// Each call wholly or not.
    Calls,
    /// Each page wholly or not.
    Pages,
    /// Each sector with this chance in eight.
    Sectors(u8),
}

impl Mode {
    pub(super) fn any(rng: &mut Rng) -> Self {
        match rng.below(20) {
            0..=1 => Self::Nothing,
            2..=3 => Self::Everything,
            4..=6 => Self::Beginning,
            7..=8 => Self::End,
            9..=10 => Self::AllButOne,
            11..=12 => Self::OneOnly,
            13..=14 => Self::Calls,
            15..=16 => Self::Pages,
            17 => Self::Sectors(1),
            18 => Self::Sectors(4),
            _ => Self::Sectors(7),
        }
    }
}

/// A mode with its state on the walk over a list of writes.
struct Pick {
    mode: Mode,
    /// The write in question, for the modes that have one.
    one: usize,
    /// The last call and its coin.
    call: (u64, u8),
}

impl Pick {
    fn new(mode: Mode, writes: usize, rng: &mut Rng) -> Self {
        Self { mode, one: rng.index(writes), call: (0, 0) }
    }

    /// The sectors of the `n`-th write that get through.
    fn sectors(&mut self, n: usize, write: &Write, rng: &mut Rng) -> u8 {
        let coin = |rng: &mut Rng| if rng.one_in(2) { WHOLE } else { 0 };
        let pattern = match self.mode {
            Mode::Nothing => 0,
            Mode::Everything => WHOLE,
            Mode::Beginning | Mode::End | Mode::AllButOne | Mode::OneOnly if n == self.one => rng.byte(),
            Mode::Beginning => all_if(n < self.one),
            Mode::End => all_if(n > self.one),
            Mode::AllButOne => WHOLE,
            Mode::OneOnly => 0,
            Mode::Calls => {
                if self.call.0 != write.call {
                    self.call = (write.call, coin(rng));
                }
                self.call.1
            }
            Mode::Pages => coin(rng),
            Mode::Sectors(chance) => {
                (0..u8::BITS).fold(0, |bits, bit| bits | u8::from(rng.below(8) < u64::from(chance)) << bit)
            }
        };
        pattern & write.sectors
    }
}

fn all_if(yes: bool) -> u8 {
    if yes { WHOLE } else { 0 }
}

/// A page of `chunk`, which is at most that long, and zeroes.
fn padded(chunk: &[u8]) -> Arc<Page> {
    Arc::<[u8]>::from(chunk).try_into().unwrap_or_else(|short: Arc<[u8]>| {
        let mut page = [0; BLOCK];
        for (to, from) in page.iter_mut().zip(short.iter()) {
            *to = *from;
        }
        Arc::new(page)
    })
}

/// An offset as an index; the simulator runs where memory is as large as its files.
pub(super) fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("simulated files fit into memory")
}
