//! A block device in memory that loses writes that were not flushed, fails on request, and can be copied at any moment.
//!
//! It keeps two views of its pages: the bytes that a power cut leaves for certain (`stable`) and the bytes that a read
//! returns (`current`), and between them the writes since the last flush in the order of their arrival. A crash image
//! is the stable view with any set of those writes applied sector by sector: a cache writes back in any order, and a
//! power cut may tear a write between two sectors.
//!
//! Invariants: a write is pending before it is answered; a flush makes durable exactly the writes answered before it
//! began (so writes that arrive while a slow flush waits stay pending); without power nothing changes any more; pages
//! are shared between views and images and copied when written. Not here: how requests get in (`fuse`) and requests for
//! images (`server`).

use crate::clock;
use crate::crash::cut::{Cut, SECTOR, Survivors, sectors};
use crate::crash::random::Random;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The unit of sharing between views.
const PAGE: usize = 4096;
/// The cache of the device: more pending bytes than this and the oldest are written back, as a real disk does.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// The most faults waiting to happen.
const FAULTS_MAX: usize = 64;

type Page = Arc<[u8; PAGE]>;

/// Which request a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads that touch the range.
    Read,
    /// Writes that touch the range; of a failed write the first half of the sectors arrives.
    Write,
    /// Flushes while a write in the range is pending. Half of its pending sectors, chosen at random, are lost for good.
    Flush,
}

/// Requests that are to fail with an input/output error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which requests.
    pub operation: Operation,
    /// How many of them pass first.
    pub skip: u64,
    /// How many fail then; `u64::MAX` for all.
    pub times: u64,
    /// In which bytes of the device.
    pub ranges: Vec<Range<u64>>,
}

/// How long requests take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Added to each flush. Eight milliseconds is a rotating disk.
    pub flush: Duration,
    /// Added to each write.
    pub write: Duration,
}

/// The requests to a device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Requests failed on purpose.
    pub failed: u64,
}

/// The device failed; a driver reports this as an input/output error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

/// The device.
#[derive(Debug)]
pub(crate) struct Device {
    bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stable: Vec<Option<Page>>,
    current: Vec<Option<Page>>,
    pending: VecDeque<Arc<Write>>,
    pending_bytes: usize,
    next: u64,
    delays: Delays,
    faults: Vec<Fault>,
    counts: Counts,
    losses: Random,
    has_power: bool,
    ignores_flushes: bool,
}

#[derive(Debug)]
struct Write {
    number: u64,
    offset: u64,
    data: Vec<u8>,
}

impl Device {
    /// A device of `bytes`, rounded up to whole pages, all zero.
    pub(crate) fn new(bytes: u64) -> Self {
        let pages = usize::try_from(bytes.div_ceil(PAGE as u64)).unwrap_or(0);
        Self::of(vec![None; pages])
    }

    fn of(pages: Vec<Option<Page>>) -> Self {
        let state = State {
            stable: pages.clone(),
            current: pages,
            pending: VecDeque::new(),
            pending_bytes: 0,
            next: 0,
            delays: Delays::default(),
            faults: Vec::new(),
            counts: Counts::default(),
            losses: Random::new(1),
            has_power: true,
            ignores_flushes: false,
        };
        Self { bytes: (state.stable.len() * PAGE) as u64, state: Mutex::new(state) }
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads `length` bytes from `offset`, fewer at the end of the device.
    ///
    /// # Errors
    /// A fault asked for it, or the power is cut.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Failed> {
        let end = offset.saturating_add(length as u64).min(self.bytes);
        let mut state = self.state();
        state.counts.reads += 1;
        if !state.has_power || state.fails(Operation::Read, &(offset..end)) {
            return Err(Failed);
        }
        let mut data = Vec::with_capacity(length);
        let mut at = offset;
        while at < end {
            let (page, within) = place(at);
            let n = (PAGE - within).min(length - data.len()).min(usize::try_from(end - at).unwrap_or(PAGE));
            match state.current.get(page) {
                Some(Some(page)) => data.extend_from_slice(page.get(within..within + n).unwrap_or_default()),
                _ => data.resize(data.len() + n, 0),
            }
            at += n as u64;
        }
        Ok(data)
    }

    /// Takes `data` at `offset` into the cache of the device.
    ///
    /// # Errors
    /// Not whole sectors, past the end, or the power is cut: nothing arrived. A fault asked for it: half of the sectors
    /// arrived.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Failed> {
        let end = offset.checked_add(data.len() as u64).ok_or(Failed)?;
        if end > self.bytes || !offset.is_multiple_of(SECTOR as u64) || !data.len().is_multiple_of(SECTOR) {
            return Err(Failed);
        }
        let delay = self.state().delays.write;
        if !delay.is_zero() {
            clock::pause(delay);
        }
        let mut state = self.state();
        state.counts.writes += 1;
        if !state.has_power {
            return Err(Failed);
        }
        if state.fails(Operation::Write, &(offset..end)) {
            let half = data.len() / SECTOR / 2 * SECTOR;
            state.take(offset, data.get(..half).unwrap_or_default());
            return Err(Failed);
        }
        state.counts.bytes_written += data.len() as u64;
        state.take(offset, data);
        Ok(())
    }

    /// Makes every write that was answered before this call durable.
    ///
    /// # Errors
    /// A fault asked for it; some pending sectors within its range are lost for good, without any later sign. Or the
    /// power was cut before the end: nothing became durable.
    pub(crate) fn flush(&self) -> Result<(), Failed> {
        let (upto, delay) = {
            let mut state = self.state();
            state.counts.flushes += 1;
            if let Some(fault) = state.fails_flush() {
                state.lose(&fault);
                return Err(Failed);
            }
            (state.next, state.delays.flush)
        };
        if !delay.is_zero() {
            clock::pause(delay);
        }
        let mut state = self.state();
        if !state.has_power {
            return Err(Failed);
        }
        while !state.ignores_flushes && state.pending.front().is_some_and(|write| write.number < upto) {
            state.write_back_oldest();
        }
        Ok(())
    }

    /// The device as a power cut at this moment leaves it.
    pub(crate) fn image(&self, survivors: Survivors, seed: u64) -> (Self, Cut) {
        // Under the lock only references are copied; the writer on the device goes on meanwhile.
        let (mut pages, pending) = {
            let state = self.state();
            (state.stable.clone(), state.pending.iter().map(Arc::clone).collect::<Vec<_>>())
        };
        let (kept, cut) = survivors.choose(pending.iter().map(|write| (write.offset, write.data.as_slice())), seed);
        for (offset, data) in kept {
            put(&mut pages, offset, data);
        }
        (Self::of(pages), cut)
    }

    /// Cuts the power: all requests fail from now on, flushes that wait included. Images show the remains.
    pub(crate) fn cut_power(&self) {
        self.state().has_power = false;
    }

    /// From now on flushes are answered and make nothing durable. Only writes pushed out of the full cache are.
    pub(crate) fn ignore_flushes(&self) {
        self.state().ignores_flushes = true;
    }

    /// Sets how long requests take from now on.
    pub(crate) fn set_delays(&self, delays: Delays) {
        self.state().delays = delays;
    }

    /// Adds a fault to those waiting to happen. More than a fixed number replaces the oldest.
    pub(crate) fn add_fault(&self, fault: Fault) {
        let mut state = self.state();
        if state.faults.len() >= FAULTS_MAX {
            state.faults.remove(0);
        }
        state.faults.push(fault);
    }

    /// Forgets all faults; the device works again.
    pub(crate) fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Returns the requests so far.
    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }
}

impl State {
    fn take(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        put(&mut self.current, offset, data);
        self.pending_bytes += data.len();
        self.pending.push_back(Arc::new(Write { number: self.next, offset, data: data.to_vec() }));
        self.next += 1;
        while self.pending_bytes > PENDING_BYTES_MAX {
            self.write_back_oldest();
        }
    }

    fn write_back_oldest(&mut self) {
        if let Some(write) = self.pending.pop_front() {
            put(&mut self.stable, write.offset, &write.data);
            self.pending_bytes -= write.data.len();
        }
    }

    fn fails(&mut self, operation: Operation, touched: &Range<u64>) -> bool {
        let hit = |fault: &&mut Fault| fault.operation == operation && fault.touches(touched);
        self.faults.iter_mut().find(hit).is_some_and(Fault::strike) && {
            self.counts.failed += 1;
            true
        }
    }

    fn fails_flush(&mut self) -> Option<Fault> {
        let pending = &self.pending;
        let hit = |fault: &&mut Fault| {
            fault.operation == Operation::Flush && pending.iter().any(|write| fault.touches(&write.range()))
        };
        let fault = self.faults.iter_mut().find(hit)?;
        fault.strike().then(|| {
            self.counts.failed += 1;
            fault.clone()
        })
    }

    /// Drops half of the pending sectors where `fault` is, as a disk that gave up on its cache.
    fn lose(&mut self, fault: &Fault) {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        self.current.clone_from(&self.stable);
        for write in pending {
            let lossy = fault.touches(&write.range());
            for (offset, sector) in sectors(write.offset, &write.data) {
                if !lossy || !self.losses.percent(50) {
                    self.take(offset, sector);
                }
            }
        }
    }
}

impl Write {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.data.len() as u64
    }
}

impl Fault {
    fn touches(&self, bytes: &Range<u64>) -> bool {
        self.ranges.iter().any(|range| range.start < bytes.end && bytes.start < range.end)
    }

    /// Counts one request that it applies to, and says whether that one fails.
    fn strike(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let fails = self.times > 0;
        if self.times != u64::MAX {
            self.times = self.times.saturating_sub(1);
        }
        fails
    }
}

/// The page of an offset, and the offset in it.
fn place(offset: u64) -> (usize, usize) {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    (offset / PAGE, offset % PAGE)
}

fn put(pages: &mut [Option<Page>], offset: u64, data: &[u8]) {
    let mut at = offset;
    let mut rest = data;
    while !rest.is_empty() {
        let (page, within) = place(at);
        let (now, later) = rest.split_at(rest.len().min(PAGE - within));
        let Some(slot) = pages.get_mut(page) else { return };
        let page = Arc::make_mut(slot.get_or_insert_with(|| Arc::new([0; PAGE])));
        if let Some(to) = page.get_mut(within..within + now.len()) {
            to.copy_from_slice(now);
        }
        at += now.len() as u64;
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(fill: u8) -> Vec<u8> {
        vec![fill; SECTOR]
    }

    fn fault(operation: Operation, skip: u64, times: u64, range: Range<u64>) -> Fault {
        Fault { operation, skip, times, ranges: Vec::from([range]) }
    }

    fn first(device: &Device) -> u8 {
        device.read(0, SECTOR).unwrap()[0]
    }

    #[test]
    fn only_flushed_writes_survive_when_all_pending_are_lost() {
        let device = Device::new(1 << 20);
        device.write(0, &sector(1)).unwrap();
        device.flush().unwrap();
        device.write(0, &sector(2)).unwrap();
        assert_eq!(first(&device), 2);
        assert_eq!(first(&device.image(Survivors::None, 1).0), 1);
        assert_eq!(first(&device.image(Survivors::All, 1).0), 2);
        device.flush().unwrap();
        assert_eq!(first(&device.image(Survivors::None, 1).0), 2);
    }

    #[test]
    fn a_device_without_power_fails_every_request_and_changes_no_more() {
        let device = Device::new(1 << 20);
        device.write(0, &sector(1)).unwrap();
        device.flush().unwrap();
        device.write(0, &sector(2)).unwrap();
        device.cut_power();
        assert_eq!(device.read(0, SECTOR), Err(Failed));
        assert_eq!(device.write(0, &sector(3)), Err(Failed));
        assert_eq!(device.flush(), Err(Failed));
        assert_eq!(first(&device.image(Survivors::All, 1).0), 2);
        let image = device.image(Survivors::None, 1).0;
        assert_eq!(first(&image), 1);
        image.write(0, &sector(4)).unwrap();
        image.flush().unwrap();
        assert_eq!(first(&image.image(Survivors::None, 1).0), 4, "an image has power");
    }

    #[test]
    fn a_flush_that_waits_when_the_power_is_cut_makes_nothing_durable() {
        let device = Device::new(1 << 20);
        device.write(0, &sector(1)).unwrap();
        device.set_delays(Delays { flush: Duration::from_secs(3), ..Delays::default() });
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| device.flush());
            while device.counts().flushes == 0 {
                std::thread::yield_now();
            }
            device.cut_power();
            assert_eq!(flush.join().unwrap(), Err(Failed));
        });
        assert_eq!(first(&device.image(Survivors::None, 1).0), 0);
    }

    #[test]
    fn ignored_flushes_are_answered_and_make_nothing_durable() {
        let device = Device::new(1 << 20);
        device.write(0, &sector(1)).unwrap();
        device.flush().unwrap();
        device.ignore_flushes();
        device.write(0, &sector(2)).unwrap();
        device.flush().unwrap();
        assert_eq!(first(&device), 2);
        assert_eq!(first(&device.image(Survivors::None, 1).0), 1);
        assert_eq!(first(&device.image(Survivors::All, 1).0), 2);
    }

    #[test]
    fn a_random_half_tears_writes_and_turns_their_order_round() {
        let device = Device::new(1 << 20);
        device.write(0, &vec![1; 16 * SECTOR]).unwrap();
        device.write(0, &vec![2; 16 * SECTOR]).unwrap();
        let mut seen = [false; 3];
        let data = device.image(Survivors::Half, 7).0.read(0, 16 * SECTOR).unwrap();
        for torn in data.chunks(SECTOR) {
            assert!(torn.iter().all(|byte| *byte == torn[0]), "a sector is never torn");
            seen[usize::from(torn[0])] = true;
        }
        assert_eq!(seen, [true; 3]);
    }

    #[test]
    fn an_image_is_a_device_of_its_own() {
        let device = Device::new(1 << 20);
        device.write(0, &sector(1)).unwrap();
        let (image, cut) = device.image(Survivors::All, 1);
        assert_eq!((cut.pending, cut.kept), (1, 1));
        image.write(0, &sector(9)).unwrap();
        assert_eq!((first(&device), first(&image)), (1, 9));
        assert_eq!(first(&image.image(Survivors::None, 1).0), 1);
    }

    #[test]
    fn faults_pass_some_fail_some_and_end() {
        let device = Device::new(1 << 20);
        device.add_fault(fault(Operation::Write, 1, 1, 4096..8192));
        device.write(4096, &sector(1)).unwrap();
        device.write(0, &sector(1)).unwrap();
        assert_eq!(device.write(4096, &[2; 2 * SECTOR]), Err(Failed));
        let torn = device.read(4096, 2 * SECTOR).unwrap();
        assert_eq!((torn[0], torn[SECTOR]), (2, 0), "half of a failed write arrives");
        device.write(4096, &sector(3)).unwrap();
        device.add_fault(fault(Operation::Read, 0, u64::MAX, 0..512));
        assert_eq!(device.read(0, 512), Err(Failed));
        device.clear_faults();
        assert_eq!(device.read(0, 512).unwrap(), sector(1));
        assert_eq!(device.counts().failed, 2);
    }

    #[test]
    fn a_failed_flush_loses_some_of_its_range_for_good() {
        let device = Device::new(1 << 20);
        device.write(0, &sector(5)).unwrap();
        device.write(8192, &[7; 64 * SECTOR]).unwrap();
        device.add_fault(fault(Operation::Flush, 0, 1, 8192..1 << 20));
        assert_eq!(device.flush(), Err(Failed));
        device.flush().unwrap();
        let image = device.image(Survivors::None, 1).0;
        assert_eq!(first(&image), 5);
        let survived = image.read(8192, 64 * SECTOR).unwrap().chunks(SECTOR).filter(|sector| sector[0] == 7).count();
        assert!((1..64).contains(&survived), "{survived} of 64");
    }
}
