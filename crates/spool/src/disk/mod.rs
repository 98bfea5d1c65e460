//! The interface between the spool and the storage of its bytes.
//!
//! Everything the spool asks of an operating system is in these two traits, so that the same code
//! runs on a real file system ([`real`]) and on a deterministic simulated one ([`sim`]) that loses power,
//! tears sectors, reorders writes, fails, fills up and rots by seed.
//!
//! Invariants: offsets, lengths and addresses given to [`DiskFile`] are multiples of [`BLOCK`]; nothing is
//! durable before [`DiskFile::sync_data`] (contents) or the method of [`Disk`] that says so (names) has returned.
//! A failed `sync_data` tells that some earlier write may be lost for good: the caller never repeats it.
//!
//! Not here: the meaning of the bytes (`format`), the time to write them (`shard`).

pub mod real;
pub mod sim;

pub use crate::buffer::BLOCK;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The suffix that [`Disk::replace_small`] adds to the name of the file it prepares; a crash may leave one, the next
/// call reuses it.
pub const TMP_SUFFIX: &str = ".tmp";

/// A file system as the spool needs it. Paths are those given by the configuration, or below them.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Makes the directory (and its parents) durable; an existing one is fine.
    ///
    /// # Errors
    /// The error of the system; nothing else was changed.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Names of the entries of `dir`, sorted.
    ///
    /// # Errors
    /// `NotFound`, permission, and the like.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Opens an existing file for reading and, if `write`, for overwriting in place.
    ///
    /// # Errors
    /// `NotFound`, permission, and the like.
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a file of `bytes` (a multiple of [`BLOCK`]) whose blocks have all been written with zeroes.
    ///
    /// On return the contents and the name are durable, so that later overwrites change no metadata.
    /// # Errors
    /// `StorageFull`, `AlreadyExists` and others; a part of the file may be left under the name.
    fn create_filled(&self, path: &Path, bytes: u64) -> io::Result<()>;

    /// Reads a small file whole.
    ///
    /// # Errors
    /// `NotFound`, permission, and the like.
    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Replaces a small file as a whole: after a crash either the old or the new contents are there. Durable on return.
    ///
    /// A crash may also leave the file of the same name with [`TMP_SUFFIX`] added, whose content is of no use.
    ///
    /// # Errors
    /// The old contents are still there, or the new ones.
    fn replace_small(&self, path: &Path, contents: &[u8]) -> io::Result<()>;

    /// Renames within one directory; durable on return. An existing `to` is never replaced.
    ///
    /// # Errors
    /// `AlreadyExists`: nothing changed. Otherwise one of the two names is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file; durable on return.
    ///
    /// # Errors
    /// The file is still there.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns the kind of the file system that holds `dir`, and its free room.
    ///
    /// # Errors
    /// The error of the system.
    fn space(&self, dir: &Path) -> io::Result<Space>;

    /// Takes the one lock of the spool directory, held until the returned value is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock`: another process holds it; the text says which one.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;

    /// Monotonic time in microseconds, from an origin of the disk's choice.
    fn now_us(&self) -> u64;
}

/// An open file of fixed size.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Size in bytes.
    ///
    /// # Errors
    /// The error of the system.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset`, past any cache of this machine where the file system allows it.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end; a device error otherwise.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bufs`, one after the other, from `offset`; goes on after short writes.
    ///
    /// Not durable on return.
    /// # Errors
    /// Any part may have been written.
    fn write_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()>;

    /// Makes all writes of this file that have returned durable (`fdatasync`).
    ///
    /// # Errors
    /// Any write since the last success may be lost for good, and a repeated call may lie: never repeat it.
    fn sync_data(&self) -> io::Result<()>;
}

/// The kind of a file system, and its free room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its name as an administrator knows it: `ext4`, `xfs`, `tmpfs`.
    pub file_system: String,
    /// Its contents do not survive a power cut (tmpfs, ramfs, overlay on tmpfs).
    pub volatile: bool,
    /// It writes changed blocks elsewhere (btrfs, zfs, bcachefs): preallocation does not hold, each sync moves
    /// metadata.
    pub copy_on_write: bool,
    /// Writes and reads bypass the page cache (O_DIRECT works).
    pub direct: bool,
    /// Bytes an unprivileged process may still allocate.
    pub free: u64,
    /// Size in bytes.
    pub total: u64,
}

/// Stops a caller whose offset, lengths or addresses are not multiples of [`BLOCK`].
///
/// Such a bug works on one file system and fails on the next, so both disks look for it on every call.
fn assert_aligned<'a>(bufs: impl IntoIterator<Item = &'a [u8]>, offset: u64) {
    let block = BLOCK as u64;
    assert!(offset.is_multiple_of(block), "offset {offset} is not a multiple of {BLOCK}");
    for buf in bufs {
        assert!(buf.len().is_multiple_of(BLOCK), "length {} is not a multiple of {BLOCK}", buf.len());
        assert!(buf.is_empty() || buf.as_ptr().addr().is_multiple_of(BLOCK), "memory is not aligned to {BLOCK}");
    }
}

/// The directory of `path`; `.` for a bare name.
fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// The name under which [`Disk::replace_small`] prepares `path`.
fn tmp_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TMP_SUFFIX);
    name.into()
}
