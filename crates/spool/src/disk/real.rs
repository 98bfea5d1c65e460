//! The real file system, on Linux.
//!
//! [`RealDisk`] is the [`Disk`] of production: direct input and output where the file system has it, files whose
//! blocks were all written once before use, every change of a name followed by a sync of its directory.
//!
//! Why so: an overwrite of written blocks with `fdatasync` costs one device flush and no journal commit, while
//! appending or writing into merely preallocated blocks costs two flushes and seven times the bytes (measured on ext4).
//!
//! Invariants: memory, offsets and lengths are multiples of [`BLOCK`], asserted on every call; a failed sync is
//! reported once and never repeated here; files are 0600, directories 0700.
//!
//! Not here: fault injection (`sim`, or a rig below the file system), and any knowledge of the meaning of the bytes.

mod place;

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Advice, AtFlags, CWD, FallocateFlags, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno;

use super::{BLOCK, Disk, DiskFile, Space, assert_aligned, dir_of, tmp_of};
use crate::buffer::{AlignedBuf, round_down};

/// Size of one write while a new file is filled, in bytes: large enough for full device speed, small enough for memory.
const FILL_BYTES: usize = 1 << 20;

/// Most slices one `pwritev` takes (`IOV_MAX` of Linux).
const SLICES_MAX: usize = 1024;

/// How often a read or write may make no progress of a whole block before it is an error.
const STALLS_MAX: u32 = 3;

/// Writes zeroes without moving data where the device can (Linux 6.17); not yet named in rustix.
const FALLOC_FL_WRITE_ZEROES: u32 = 0x80;

/// The [`Disk`] of the operating system.
#[derive(Debug)]
pub struct RealDisk {
    origin: Instant,
}

impl RealDisk {
    /// Makes a handle; touches nothing.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock the ban points to")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for RealDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut todo: Vec<&Path> = dir.ancestors().filter(|a| !a.as_os_str().is_empty()).collect();
        todo.reverse();
        for dir in todo.into_iter().filter(|a| a.parent().is_some()) {
            let made = match DirBuilder::new().mode(0o700).create(dir) {
                Ok(()) => true,
                Err(_) if dir.is_dir() => false,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    let text = format!("{} is no directory; move it away, or name another path", dir.display());
                    return Err(io::Error::new(ErrorKind::AlreadyExists, text));
                }
                Err(e) => return Err(e),
            };
            // Also for one that was there: an earlier run may have died between its making and its sync.
            match sync_dir(dir_of(dir)) {
                Err(e) if !made && e.kind() == ErrorKind::PermissionDenied => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            // A name that is not UTF-8 is not ours; shown with replacement characters it matches none of ours either.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(write).open(path)?;
        let direct = make_direct(&file);
        let bytes = file.metadata()?.len();
        Ok(Box::new(RealFile { file, bytes, direct }))
    }

    fn create_filled(&self, path: &Path, bytes: u64) -> io::Result<()> {
        assert_aligned([], bytes);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let direct = make_direct(&file);
        if let Err(e) = fill(&file, direct, bytes) {
            // Half a file would keep the room of which there was too little. The trait allows it to stay if it must.
            std::fs::remove_file(path).ok();
            return Err(e);
        }
        sync_dir(dir_of(path))
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn replace_small(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let tmp = tmp_of(path);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&tmp)?;
        file.write_all(contents)?;
        file.sync_all()?;
        rustix::fs::rename(&tmp, path)?;
        sync_dir(dir_of(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if dir_of(from) != dir_of(to) {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("{} and {} are in different directories", from.display(), to.display()),
            ));
        }
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // NFS and some others have no such flag; the spool's lock keeps other writers away between the two calls.
            Err(Errno::INVAL | Errno::NOSYS) => {
                if std::fs::symlink_metadata(to).is_ok() {
                    return Err(ErrorKind::AlreadyExists.into());
                }
                rustix::fs::rename(from, to)?;
            }
            other => other?,
        }
        sync_dir(dir_of(to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)?;
        sync_dir(dir_of(path))
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        place::space(dir, probe_direct(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        // Not truncated on opening: the text belongs to the holder of the lock.
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(e)) => return Err(e),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let holder = match (&file).take(32).read_to_string(&mut text) {
                    Ok(_) if !text.trim().is_empty() => format!("process {}", text.trim()),
                    _ => "another process".to_owned(),
                };
                return Err(io::Error::new(ErrorKind::WouldBlock, holder));
            }
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Box::new(Lock { file }))
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The spool's lock; the kernel lets go of it when the descriptor is closed, also by a crash.
struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While still locked, so that the text never names a process that has nothing to do with the spool any more.
        // If it fails, the next holder overwrites it.
        self.file.set_len(0).ok();
    }
}

/// An open file and the operations that its file system allows.
#[derive(Debug)]
struct RealFile {
    file: File,
    bytes: u64,
    direct: bool,
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        assert_aligned([&*buf], offset);
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if !self.direct {
            // Written pages leave the cache, so that the device answers. Where the advice is not taken we cannot help
            // it.
            let bytes = std::num::NonZeroU64::new(buf.len() as u64);
            rustix::fs::fadvise(&self.file, offset, bytes, Advice::DontNeed).ok();
        }
        read_all(buf, offset, |part, at| self.file.read_at(part, at))
    }

    fn write_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        assert_aligned(bufs.iter().copied(), offset);
        let bytes: u64 = bufs.iter().map(|b| b.len() as u64).sum();
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("write of {bytes} bytes at {offset} goes past the end of the file at {}", self.bytes),
            ));
        }
        write_all(bufs, offset, |slices, at| Ok(rustix::io::pwritev(&self.file, slices, at)?))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Fills `buf` by calls of `read`, which may return less; goes on at a block boundary, as direct reads must.
fn read_all(buf: &mut [u8], offset: u64, mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>) -> io::Result<()> {
    let (mut done, mut stalls) = (0, 0);
    while let Some(part) = buf.get_mut(done..).filter(|part| !part.is_empty()) {
        let wanted = part.len();
        match read(part, offset + done as u64) {
            Ok(n) if n == wanted => return Ok(()),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) if n >= BLOCK => done += round_down(n),
            // A file that ends inside a block answers like this for ever.
            Ok(_) if stalls == STALLS_MAX => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => stalls += 1,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes all of `bufs` by calls of `write`, which may do less; goes on at a block boundary, as direct writes must.
fn write_all(
    bufs: &[&[u8]],
    offset: u64,
    mut write: impl FnMut(&[IoSlice<'_>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let total: usize = bufs.iter().map(|b| b.len()).sum();
    let (mut done, mut stalls) = (0, 0);
    while done < total {
        match write(&slices_after(bufs, done), offset + done as u64) {
            Ok(n) if done + n >= total => return Ok(()),
            Ok(n) if n >= BLOCK => done += round_down(n),
            Ok(_) if stalls == STALLS_MAX => return Err(ErrorKind::WriteZero.into()),
            Ok(_) => stalls += 1,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Returns the rest of `bufs` behind `done` bytes, as much of it as one call takes.
fn slices_after<'a>(bufs: &[&'a [u8]], mut done: usize) -> Vec<IoSlice<'a>> {
    let mut slices = Vec::with_capacity(bufs.len().min(SLICES_MAX));
    for buf in bufs {
        let rest = buf.get(done..).unwrap_or_default();
        done = done.saturating_sub(buf.len());
        if !rest.is_empty() {
            slices.push(IoSlice::new(rest));
            if slices.len() == SLICES_MAX {
                break;
            }
        }
    }
    slices
}

/// Makes input and output of `file` direct if that works for blocks of [`BLOCK`]; tells whether it did.
///
/// After opening rather than with it: a file system without O_DIRECT may make a new file and then refuse to open it.
fn make_direct(file: &File) -> bool {
    let Ok(plain) = rustix::fs::fcntl_getfl(file) else {
        return false;
    };
    // Reads need not be recorded; only the owner of a file may ask for that, and it is no matter if we may not.
    let plain = match rustix::fs::fcntl_setfl(file, plain | OFlags::NOATIME) {
        Ok(()) => plain | OFlags::NOATIME,
        Err(_) => plain,
    };
    if rustix::fs::fcntl_setfl(file, plain | OFlags::DIRECT).is_err() {
        return false;
    }
    takes_blocks(file) || rustix::fs::fcntl_setfl(file, plain).is_err()
}

/// Whether a file with O_DIRECT really is direct, and content with blocks of [`BLOCK`].
fn takes_blocks(file: &File) -> bool {
    if let Ok(stat) = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let fits = |align: u32| align != 0 && align as usize <= BLOCK;
        return fits(stat.stx_dio_mem_align) && fits(stat.stx_dio_offset_align);
    }
    // Before Linux 6.1, or a file system that does not tell: a read of one block does.
    let mut block = AlignedBuf::new(BLOCK);
    let read = file.read_at(block.as_mut_slice(), 0);
    !read.is_err_and(|e| e.raw_os_error() == Some(Errno::INVAL.raw_os_error()))
}

/// Whether files in `dir` take direct input and output, asked of a file made for it; `false` if none can be made.
fn probe_direct(dir: &Path) -> bool {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags(OFlags::TMPFILE.bits().cast_signed()).open(dir);
    if let Ok(file) = unnamed {
        return make_direct(&file);
    }
    // File systems without unnamed files: overlay before Linux 6.3, NFS, some FUSE.
    let path = dir.join(format!(".probe-{}", std::process::id()));
    let Ok(file) = options.create_new(true).open(&path) else {
        return false;
    };
    let direct = make_direct(&file);
    std::fs::remove_file(&path).ok();
    direct
}

/// Gives the new `file` its blocks, all written with zeroes and durable.
fn fill(file: &File, direct: bool, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return file.sync_all();
    }
    let allocate = |flags| rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, 0, bytes));
    match allocate(FallocateFlags::from_bits_retain(FALLOC_FL_WRITE_ZEROES)) {
        Ok(()) => return file.sync_all(),
        // The kernel, the file system or the device cannot: we move the zeroes ourselves.
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {}
        Err(e) => return Err(e.into()),
    }
    // All room at once: tells early that there is too little, and gives few extents. Alone it would not do, because
    // each first write into such blocks changes metadata.
    match allocate(FallocateFlags::empty()) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(e) => return Err(e.into()),
    }
    let zeroes = AlignedBuf::new(FILL_BYTES);
    let mut at = 0;
    while at < bytes {
        let left = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(FILL_BYTES);
        let part = zeroes.as_slice().get(..left).unwrap_or_default();
        write_all(&[part], at, |slices, at| Ok(rustix::io::pwritev(file, slices, at)?))?;
        at += left as u64;
    }
    file.sync_all()?;
    if !direct {
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed).ok();
    }
    Ok(())
}

/// Makes the names in `dir` durable.
fn sync_dir(dir: &Path) -> io::Result<()> {
    match File::open(dir)?.sync_all() {
        // Some FUSE, 9p and SMB file systems have no sync of directories; there names are as durable as they make them.
        Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
        other => other,
    }
}

/// Asks the scheduler for short time slices (100 µs) for the calling thread, so that it waits less for a busy core.
///
/// Meant for the threads that wait for a flush: they use little time, but each turn they wait is added to every commit.
/// The thread's nice value stays. Linux before 6.12 has nothing to set, and a thread that the operator gave another
/// scheduling class is left alone: both are a success.
/// # Errors
/// Another error of the system, such as `PermissionDenied` in a container; nothing was changed and nothing is lost.
#[expect(unsafe_code, reason = "neither std nor rustix wraps sched_setattr")]
pub fn shorten_slice() -> io::Result<()> {
    const SLICE_NS: u64 = 100_000;
    const CALLING_THREAD: libc::pid_t = 0;
    const NO_FLAGS: libc::c_uint = 0;
    /// The size that the first kernels with this call expect (`SCHED_ATTR_SIZE_VER0`); later ones take it too.
    const BYTES: u32 = 48;
    const { assert!(size_of::<libc::sched_attr>() == BYTES as usize) };
    let mut attr = libc::sched_attr {
        size: BYTES,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `BYTES` bytes to `attr`, which is that large, plain data, and alive over the
    // call.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, CALLING_THREAD, &raw mut attr, BYTES, NO_FLAGS) };
    if got != 0 {
        return accept_old_kernel(io::Error::last_os_error());
    }
    if attr.sched_policy.cast_signed() != libc::SCHED_OTHER {
        return Ok(());
    }
    attr.size = BYTES;
    attr.sched_runtime = SLICE_NS;
    // SAFETY: the kernel reads `attr.size` bytes of `attr`, which is that large and alive over the call.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, CALLING_THREAD, &raw const attr, NO_FLAGS) };
    if set != 0 {
        return accept_old_kernel(io::Error::last_os_error());
    }
    Ok(())
}

/// An old kernel cannot shorten slices, which is no failure.
fn accept_old_kernel(e: io::Error) -> io::Result<()> {
    match e.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS) => Ok(()),
        _ => Err(e),
    }
}

#[cfg(test)]
mod tests;
