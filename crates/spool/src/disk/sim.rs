//! The simulated disk: loses power, tears and reorders writes, fails, fills up and rots, all by seed.
//!
//! A test runs the real spool on a [`SimDisk`], stops it anywhere, takes the disk as a power cut would leave it, and
//! lets a new spool recover from that. The model has these properties:
//! - Writes are seen at once but reach the medium only by [`DiskFile::sync_data`] of the same file. A power cut keeps
//!   any subset of the 512-byte sectors on their way, in any order, so that of overlapping writes any version may
//!   survive.
//! - Names become durable when the operation of [`Disk`] that changes them returns. A cut inside it leaves any step of
//!   it.
//! - A failed sync loses writes, and the next one succeeds without bringing them back, as Linux has it.
//! - Full disks, thin volumes, unreadable sectors, flipped bits, lost files, disks that lie about syncs, and time.
//!
//! ```
//! use spool::disk::{BLOCK, Disk, sim::SimDisk};
//! let disk = SimDisk::new(7);
//! disk.create_filled("/segment".as_ref(), BLOCK as u64)?;
//! disk.cut_power_after(0);
//! let block = spool::buffer::AlignedBuf::new(BLOCK);
//! assert!(disk.open("/segment".as_ref(), true)?.write_at(&[block.as_slice()], 0).is_err());
//! let after = disk.crash(1);
//! assert_eq!(after.files(), [("/segment".into(), BLOCK as u64)]);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Invariants: all that happens follows from the seeds, the configuration and the order of the calls; for threads that
//! race for the disk that order is the caller's to fix. A handle of before a crash can change nothing after it.
//!
//! Not here: hard links, files that grow, permissions, and damage of the file system's own metadata.

mod medium;
mod rng;
mod state;
mod tree;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::state::DiskState;
use self::tree::InodeId;
use super::{Disk, DiskFile, Space, assert_aligned};

/// The settings of the simulated disk. May be changed at any time with [`SimDisk::configure`].
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Reads come from the medium: after a failed sync they show the loss. Otherwise the page cache hides it.
    pub direct: bool,
    /// A power cut may also leave a sector half written.
    pub torn_sectors: bool,
    /// Syncs succeed and do nothing. For negative controls: a store that survives power cuts must fail on it.
    pub lying_sync: bool,
    /// Room is taken by the first write to each block, which may find none, not by [`Disk::create_filled`].
    pub thin: bool,
    /// The name of the file system in the answer of [`Disk::space`].
    pub file_system: &'static str,
    /// This property in the answer of [`Disk::space`].
    pub volatile: bool,
    /// This property in the answer of [`Disk::space`].
    pub copy_on_write: bool,
    /// How often operations fail at random.
    pub rates: Rates,
    /// How far each operation moves the clock.
    pub costs: Costs,
}

impl Default for SimConfig {
    /// A healthy SSD.
    fn default() -> Self {
        Self {
            direct: true,
            torn_sectors: false,
            lying_sync: false,
            thin: false,
            file_system: "sim",
            volatile: false,
            copy_on_write: false,
            rates: Rates::default(),
            costs: Costs::default(),
        }
    }
}

/// Random failures, per million operations of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of [`DiskFile::read_at`] and [`Disk::read_small`].
    pub read: u32,
    /// Of [`DiskFile::write_at`].
    pub write: u32,
    /// Of [`DiskFile::sync_data`].
    pub sync: u32,
    /// The rate for operations of [`Disk`] that change names.
    pub name: u32,
}

/// Virtual time that operations take.
///
/// Operations follow each other: the clock knows one queue, not a device that works on several at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Microseconds for a read, besides its bytes.
    pub read_us: u64,
    /// Microseconds for a write, besides its bytes.
    pub write_us: u64,
    /// Microseconds for each MiB read or written.
    pub mib_us: u64,
    /// Microseconds for a sync.
    pub sync_us: u64,
    /// Microseconds for a durable change of names.
    pub name_us: u64,
}

impl Default for Costs {
    /// A usual SSD: 1 GiB/s, 100 µs for a flush.
    fn default() -> Self {
        Self { read_us: 80, write_us: 20, mib_us: 1000, sync_us: 100, name_us: 500 }
    }
}

impl Costs {
    /// Nothing takes time; only [`SimDisk::advance`] moves the clock.
    pub const NONE: Self = Self { read_us: 0, write_us: 0, mib_us: 0, sync_us: 0, name_us: 0 };
}

/// The kinds of operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// [`DiskFile::read_at`] and [`Disk::read_small`].
    Read,
    /// [`DiskFile::write_at`].
    Write,
    /// [`DiskFile::sync_data`].
    Sync,
    /// `create_dir`, `create_filled`, `replace_small`, `rename` and `remove` of [`Disk`].
    Name,
}

/// The requests to the disk so far, whether or not they succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of [`DiskFile::read_at`] and [`Disk::read_small`].
    pub reads: u64,
    /// Bytes asked for by [`DiskFile::read_at`].
    pub bytes_read: u64,
    /// Calls of [`DiskFile::write_at`].
    pub writes: u64,
    /// Bytes given to [`DiskFile::write_at`].
    pub bytes_written: u64,
    /// Calls of [`DiskFile::sync_data`].
    pub syncs: u64,
    /// Changes of names.
    pub names: u64,
}

/// A handle on a simulated disk; clones are handles on the same one.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<DiskState>>,
}

impl SimDisk {
    /// Makes an empty disk of 1 TiB.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_config(seed, SimConfig::default())
    }

    /// Makes an empty disk of 1 TiB that is as `config` says.
    #[must_use]
    pub fn with_config(seed: u64, config: SimConfig) -> Self {
        Self::of(DiskState::new(seed, config))
    }

    fn of(state: DiskState) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        // A test that panicked inside has reported its failure; the others go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the configuration from now on. The disk is locked meanwhile, so `change` cannot use it.
    pub fn configure(&self, change: impl FnOnce(&mut SimConfig)) {
        change(&mut self.state().config);
    }

    // Ends of a disk's life.

    /// Cuts the power and returns the disk as it is when power comes back; `choice` selects what of the writes on their
    /// way survives.
    ///
    /// All handles on the old disk and its files fail from now on, but it can be asked again with another `choice`.
    /// The new disk has no locks, no planned faults, counters of zero, and the same configuration and time.
    #[must_use]
    pub fn crash(&self, choice: u64) -> Self {
        let mut state = self.state();
        state.die("the simulated machine lost power; this handle is of before");
        Self::of(state.after_crash(choice))
    }

    /// Returns the disk as a power cut now would leave it, as [`SimDisk::crash`]; the old disk lives on.
    #[must_use]
    pub fn crash_image(&self, choice: u64) -> Self {
        Self::of(self.state().after_crash(choice))
    }

    /// Kills the process: handles and locks are gone, all that was written is still seen, durable or not.
    ///
    /// After [`SimDisk::cut_power_after`] this is a process killed in the middle of an operation.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut state = self.state();
        state.die("the simulated process was killed; this handle is of before");
        Self::of(state.after_kill())
    }

    /// Plans a power cut: `n` more mutating operations succeed, the next one is cut in the middle, all after it fail.
    ///
    /// They fail with kind `Other`. Then [`SimDisk::crash`] gives the remaining state.
    pub fn cut_power_after(&self, n: u64) {
        self.state().cut_in = Some(n);
    }

    /// Mutating operations so far: writes, syncs, and changes of names. The points at which a test can cut the power.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    // Faults.

    /// Plans that the `n`-th operation of this kind from now on fails with EIO; 0 is the next one.
    ///
    /// A write may have been done in part, a change of names up to any step; a sync loses writes for good.
    pub fn fail(&self, op: Op, n: u64) {
        self.state().plan_fault(op, n);
    }

    /// Makes reads that touch `range` of this file fail with EIO, also after a crash.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn fail_reads_of(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        self.state().inode_at(path)?.bad.push(range);
        Ok(())
    }

    /// Forgets all planned and random faults and unreadable ranges, and the planned power cut.
    pub fn clear_faults(&self) {
        self.state().clear_faults();
    }

    /// Sets the room left, in bytes.
    pub fn set_free(&self, bytes: u64) {
        self.state().set_free(bytes);
    }

    /// Drops the page cache: after a failed sync of a buffered file, reads now show the loss.
    pub fn drop_caches(&self) {
        self.state().drop_caches();
    }

    // Damage and inspection, past all faults and clocks.

    /// Inverts a bit of the byte at `offset`, on the medium and for readers; outside of the file nothing happens.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        self.state().damage(path, offset..offset.saturating_add(1), || move |byte| byte ^ (1 << (bit % 8)))
    }

    /// Changes every byte of `range` at random, on the medium and for readers.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn rot(&self, path: &Path, range: Range<u64>, seed: u64) -> io::Result<()> {
        self.state().rot(path, range, seed)
    }

    /// Takes a file away, as a damaged file system or a careless administrator would. Open handles keep its contents.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn lose_file(&self, path: &Path) -> io::Result<()> {
        self.state().lose_file(path)
    }

    /// All files with their sizes, sorted by path.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.state().files()
    }

    /// The contents of a file as a reader sees them.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.state().inode_at(path)?.view.bytes())
    }

    /// Puts a file of these contents on the medium, in place of any other; makes its directories.
    ///
    /// # Errors
    /// The disk has crashed.
    pub fn set_contents(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.state().set_contents(path, contents)
    }

    /// Returns the requests to this disk.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.state().counters
    }

    /// Moves the clock.
    pub fn advance(&self, us: u64) {
        self.state().clock_us += us;
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SimDisk").field("seed", &state.seed).field("ops", &state.ops).finish_non_exhaustive()
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.state().create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.state().list(dir)
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        let inode = self.state().open(path)?;
        Ok(Box::new(SimFile { disk: self.clone(), path: path.to_owned(), inode, write }))
    }

    fn create_filled(&self, path: &Path, bytes: u64) -> io::Result<()> {
        assert_aligned([], bytes);
        self.state().create_filled(path, bytes)
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.state().read_small(path)
    }

    fn replace_small(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.state().replace_small(path, contents)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state().remove(path)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.state().space(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.state().lock(path)?;
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned() }))
    }

    fn now_us(&self) -> u64 {
        self.state().clock_us
    }
}

/// The lock, held.
struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state().unlock(&self.path);
    }
}

/// An open file; it stays usable when its name is changed or removed.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    inode: InodeId,
    write: bool,
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.disk.state().len(self.inode)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        assert_aligned([&*buf], offset);
        self.disk.state().read_at(self.inode, buf, offset)
    }

    fn write_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        assert_aligned(bufs.iter().copied(), offset);
        if !self.write {
            let text = format!("{} was opened for reading", self.path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        self.disk.state().write_at(self.inode, bufs, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().sync_data(self.inode)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.state().close(self.inode);
    }
}

#[cfg(test)]
mod tests;
