//! The simulated disk itself: decides which operation succeeds, and does whole or part of it.
//!
//! Each mutating operation is a list of steps. [`DiskState::begin`] tells how it ends; one that is cut or fails does
//! some of its steps, chosen at random, and `tree` and `medium` decide what a power cut leaves of them.
//!
//! Here are faults, room and open files; the operations that change names are in `names`.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::medium::{Image, Inode, Mode};
use super::rng::Rng;
use super::tree::{InodeId, NameChange, Tree};
use super::{Counters, Op, Rates, SimConfig};
use crate::disk::{BLOCK, Space, dir_of};

/// Size of a new disk in bytes.
const TOTAL: u64 = 1 << 40;

/// The uses of the random streams' salts.
const SALT_FAULTS: u64 = 1;
const SALT_CRASH: u64 = 2;
const SALT_ROT: u64 = 3;

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    /// The power goes in the middle of it.
    Cut,
    /// The device answers with an error in the middle of it.
    Fails,
}

impl Fate {
    fn result(self) -> io::Result<()> {
        match self {
            Self::Whole => Ok(()),
            Self::Cut => Err(io::Error::other("power lost")),
            Self::Fails => Err(Errno::IO.into()),
        }
    }
}

/// All there is of a disk.
#[derive(Clone)]
pub(super) struct DiskState {
    pub(super) seed: u64,
    pub(super) config: SimConfig,
    pub(super) clock_us: u64,
    pub(super) ops: u64,
    pub(super) cut_in: Option<u64>,
    pub(super) counters: Counters,
    rng: Rng,
    /// Why nothing works any more.
    dead: Option<&'static str>,
    /// Which operations of a kind, counted from the start, are to fail.
    planned: BTreeMap<u8, BTreeSet<u64>>,
    tree: Tree,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    locks: BTreeSet<PathBuf>,
    /// Bytes that files may take altogether.
    room: u64,
}

impl DiskState {
    pub(super) fn new(seed: u64, config: SimConfig) -> Self {
        Self {
            seed,
            config,
            clock_us: 0,
            ops: 0,
            cut_in: None,
            counters: Counters::default(),
            rng: Rng::new(seed, SALT_FAULTS),
            dead: None,
            planned: BTreeMap::new(),
            tree: Tree::default(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            locks: BTreeSet::new(),
            room: TOTAL,
        }
    }

    // Ends and beginnings.

    /// Stops the disk; its content can still be read.
    pub(super) fn die(&mut self, why: &'static str) {
        self.dead = Some(why);
    }

    /// The disk as a power cut leaves it.
    pub(super) fn after_crash(&self, choice: u64) -> Self {
        let mut rng = Rng::new(self.seed ^ choice.rotate_left(32), SALT_CRASH);
        let tree = self.tree.after_crash(&mut rng);
        // Often the same for all files, because a wrong file usually differs from a right one.
        let common = rng.one_in(2).then(|| Mode::any(&mut rng));
        let torn = self.config.torn_sectors;
        let after = |inode: &Inode, rng: &mut Rng| {
            let mode = common.unwrap_or_else(|| Mode::any(rng));
            inode.after_crash(mode, torn, rng)
        };
        let files = tree.live.files.values();
        let inodes = files.filter_map(|id| Some((*id, after(self.inodes.get(id)?, &mut rng)))).collect();
        Self {
            config: self.config.clone(),
            clock_us: self.clock_us,
            next_inode: self.next_inode,
            room: self.room,
            tree,
            inodes,
            ..Self::new(rng.next(), SimConfig::default())
        }
    }

    /// The disk as a killed process leaves it.
    pub(super) fn after_kill(&self) -> Self {
        let mut state = Self {
            cut_in: None,
            dead: None,
            locks: BTreeSet::new(),
            ops: 0,
            counters: Counters::default(),
            planned: BTreeMap::new(),
            ..self.clone()
        };
        for inode in state.inodes.values_mut() {
            inode.open = 0;
        }
        state.collect();
        state
    }

    fn alive(&self) -> io::Result<()> {
        self.dead.map_or(Ok(()), |why| Err(io::Error::other(why)))
    }

    // Faults.

    pub(super) fn plan_fault(&mut self, op: Op, n: u64) {
        let nth = self.seen(op) + n;
        self.planned.entry(op as u8).or_default().insert(nth);
    }

    pub(super) fn clear_faults(&mut self) {
        self.planned.clear();
        self.cut_in = None;
        self.config.rates = Rates::default();
        for inode in self.inodes.values_mut() {
            inode.bad.clear();
        }
    }

    fn seen(&self, op: Op) -> u64 {
        match op {
            Op::Read => self.counters.reads,
            Op::Write => self.counters.writes,
            Op::Sync => self.counters.syncs,
            Op::Name => self.counters.names,
        }
    }

    /// Counts an operation, lets its time pass and decides how it ends.
    fn begin(&mut self, op: Op, bytes: usize) -> io::Result<Fate> {
        self.alive()?;
        let nth = self.seen(op);
        let bytes = bytes as u64;
        let (costs, rates) = (self.config.costs, self.config.rates);
        let (count, us, rate) = match op {
            Op::Read => (&mut self.counters.reads, costs.read_us, rates.read),
            Op::Write => (&mut self.counters.writes, costs.write_us, rates.write),
            Op::Sync => (&mut self.counters.syncs, costs.sync_us, rates.sync),
            Op::Name => (&mut self.counters.names, costs.name_us, rates.name),
        };
        *count += 1;
        self.clock_us += us + bytes * costs.mib_us / (1 << 20);
        match op {
            Op::Read => self.counters.bytes_read += bytes,
            Op::Write => self.counters.bytes_written += bytes,
            Op::Sync | Op::Name => {}
        }
        if op != Op::Read {
            self.ops += 1;
            match &mut self.cut_in {
                Some(0) => {
                    self.die("power lost");
                    return Ok(Fate::Cut);
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
        let planned = self.planned.get_mut(&(op as u8)).is_some_and(|planned| planned.remove(&nth));
        let fails = planned || self.rng.chance(rate);
        Ok(if fails { Fate::Fails } else { Fate::Whole })
    }

    /// How many of its steps an operation does.
    fn steps(&mut self, fate: Fate, all: u64) -> u64 {
        match fate {
            Fate::Whole => all,
            // All of them, too: done, but the caller never hears of it.
            Fate::Cut | Fate::Fails => self.rng.below(all + 1),
        }
    }

    // Room.

    fn used(&self) -> u64 {
        let block = BLOCK as u64;
        let used = |inode: &Inode| match self.config.thin {
            true => inode.view.pages_used() * block,
            false => inode.view.len.next_multiple_of(block),
        };
        self.tree.live.files.values().filter_map(|id| self.inodes.get(id)).map(used).sum()
    }

    fn free(&self) -> u64 {
        self.room.saturating_sub(self.used())
    }

    pub(super) fn set_free(&mut self, bytes: u64) {
        self.room = self.used().saturating_add(bytes);
    }

    pub(super) fn space(&self, dir: &Path) -> io::Result<Space> {
        self.alive()?;
        self.dir_must_exist(dir)?;
        Ok(Space {
            file_system: self.config.file_system.to_owned(),
            volatile: self.config.volatile,
            copy_on_write: self.config.copy_on_write,
            direct: self.config.direct,
            free: self.free(),
            total: self.room,
        })
    }

    // Names.

    fn id(&self, path: &Path) -> io::Result<InodeId> {
        self.tree.live.files.get(path).copied().ok_or_else(|| not_found(path))
    }

    fn inode(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.get_mut(&id).expect("a file with a name or a handle has contents")
    }

    /// The file of this name, whether or not the disk is alive.
    pub(super) fn inode_at(&mut self, path: &Path) -> io::Result<&mut Inode> {
        let id = self.id(path)?;
        Ok(self.inode(id))
    }

    fn add_inode(&mut self, inode: Inode) -> InodeId {
        let id = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(id, inode);
        id
    }

    fn dir_must_exist(&self, dir: &Path) -> io::Result<()> {
        if self.tree.live.has_dir(dir) { Ok(()) } else { Err(not_found(dir)) }
    }

    fn name_must_be_new(&self, path: &Path) -> io::Result<()> {
        self.dir_must_exist(dir_of(path))?;
        if self.tree.live.files.contains_key(path) || self.tree.live.has_dir(path) {
            return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{} exists", path.display())));
        }
        Ok(())
    }

    fn settle(&mut self, id: InodeId) {
        if !self.config.lying_sync {
            self.inode(id).settle();
        }
    }

    fn commit(&mut self, dir: &Path) {
        if !self.config.lying_sync {
            self.tree.commit(dir);
            self.collect();
        }
    }

    /// Drops files that have neither name nor handle.
    fn collect(&mut self) {
        let named = self.tree.reachable();
        self.inodes.retain(|id, inode| inode.open > 0 || named.contains(id));
    }

    // Open files.

    pub(super) fn open(&mut self, path: &Path) -> io::Result<InodeId> {
        self.alive()?;
        let id = self.id(path)?;
        self.inode(id).open += 1;
        Ok(id)
    }

    pub(super) fn close(&mut self, id: InodeId) {
        self.inode(id).open -= 1;
        if self.inode(id).open == 0 {
            self.collect();
        }
    }

    pub(super) fn len(&mut self, id: InodeId) -> io::Result<u64> {
        self.alive()?;
        Ok(self.inode(id).view.len)
    }

    pub(super) fn read_at(&mut self, id: InodeId, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.begin(Op::Read, buf.len())?.result()?;
        let inode = self.inode(id);
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= inode.view.len);
        let Some(end) = end else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        if inode.bad.iter().any(|bad| bad.start < end && offset < bad.end) {
            return Err(Errno::IO.into());
        }
        inode.view.read(buf, offset);
        Ok(())
    }

    pub(super) fn write_at(&mut self, id: InodeId, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        self.alive()?;
        let free = if self.config.thin { self.free() } else { u64::MAX };
        let len = self.inode(id).view.len;
        if offset.checked_add(bytes as u64).is_none_or(|end| end > len) {
            let text = format!("write of {bytes} bytes at {offset} goes past the end of the file at {len}");
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let fate = self.begin(Op::Write, bytes)?;
        let inode = self.inodes.get_mut(&id).expect("a file with a handle has contents");
        let full = fate == Fate::Whole && bytes as u64 > free && inode.view.bytes_missing(offset, bytes) > free;
        match fate {
            Fate::Whole if !full => inode.write(bufs, offset, None),
            _ => inode.write(bufs, offset, Some(&mut self.rng)),
        }
        if full { Err(Errno::NOSPC.into()) } else { fate.result() }
    }

    pub(super) fn sync_data(&mut self, id: InodeId) -> io::Result<()> {
        let fate = self.begin(Op::Sync, 0)?;
        match fate {
            Fate::Whole => self.settle(id),
            // The device may have had time for all of it; otherwise the crash decides which part is left.
            Fate::Cut => {
                if self.rng.one_in(4) {
                    self.settle(id);
                }
            }
            Fate::Fails => {
                let (direct, torn) = (self.config.direct, self.config.torn_sectors);
                let inode = self.inodes.get_mut(&id).expect("a file with a handle has contents");
                inode.lose_some(direct, torn, &mut self.rng);
            }
        }
        fate.result()
    }

    pub(super) fn drop_caches(&mut self) {
        self.inodes.values_mut().for_each(Inode::drop_cache);
    }

    // Damage and inspection.

    pub(super) fn damage<C: FnMut(u8) -> u8>(
        &mut self,
        path: &Path,
        range: Range<u64>,
        change: impl Fn() -> C,
    ) -> io::Result<()> {
        self.alive()?;
        let inode = self.inode_at(path)?;
        inode.stable.damage(range.clone(), change());
        inode.view.damage(range, change());
        Ok(())
    }

    pub(super) fn rot(&mut self, path: &Path, range: Range<u64>, seed: u64) -> io::Result<()> {
        self.damage(path, range, || {
            let mut rng = Rng::new(seed, SALT_ROT);
            // Never zero, so that each byte changes.
            move |byte| byte ^ (rng.byte() % u8::MAX + 1)
        })
    }

    pub(super) fn lose_file(&mut self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.id(path)?;
        self.tree.forget(path);
        self.collect();
        Ok(())
    }

    pub(super) fn files(&self) -> Vec<(PathBuf, u64)> {
        let len = |id| self.inodes.get(id).map_or(0, |inode| inode.view.len);
        self.tree.live.files.iter().map(|(path, id)| (path.clone(), len(id))).collect()
    }

    pub(super) fn set_contents(&mut self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.alive()?;
        for dir in dir_of(path).ancestors().filter(|dir| !self.tree.live.has_dir(dir)).collect::<Vec<_>>() {
            self.tree.change_for_good(&NameChange::MakeDir(dir.to_owned()));
        }
        let image = Image::of(contents);
        match self.id(path) {
            // In place, so that open handles see it.
            Ok(id) => self.inode(id).replace(image),
            Err(_) => {
                let id = self.add_inode(Inode::of(image));
                self.tree.change_for_good(&NameChange::Link(path.to_owned(), id));
            }
        }
        Ok(())
    }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(ErrorKind::NotFound, format!("{} does not exist", path.display()))
}
