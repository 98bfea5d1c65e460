//! Shows devices in memory as files, one `N.img` each, so that the kernel can put loop devices on them.
//!
//! The smallest file system that does it: a root directory that finds names and lists none, files of fixed size that
//! are read, written and synced past the page cache. A sync of the file is a flush of the device.

use crate::crash::device::{Device, Failed};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of the first device's file; the root directory is 1.
const FIRST: u64 = 2;
/// How long the kernel may remember a name or a size. Neither ever changes while a device exists.
const REMEMBER: Duration = Duration::from_secs(1);

/// The devices by number, shared with the code that makes and drops them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    all: Arc<Mutex<BTreeMap<u64, Arc<Device>>>>,
}

impl Devices {
    /// Adds a device under a number never used before.
    pub(crate) fn add(&self, number: u64, device: Device) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(device));
    }

    /// Finds a device.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Device>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).get(&number).map(Arc::clone)
    }

    /// Forgets a device; requests for it fail from now on.
    pub(crate) fn remove(&self, number: u64) -> bool {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&number).is_some()
    }
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Images {
    devices: Devices,
}

impl Images {
    /// Shows `devices`.
    pub(crate) fn new(devices: Devices) -> Self {
        Self { devices }
    }

    fn device(&self, inode: INodeNo) -> Option<Arc<Device>> {
        self.devices.get(inode.0.checked_sub(FIRST)?)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = if inode == INodeNo::ROOT {
            (FileType::Directory, 0o700, 0)
        } else {
            (FileType::RegularFile, 0o600, self.device(inode)?.bytes())
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for Images {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Both are wishes: without them the loop device is slower, not wrong.
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).ok();
        config.set_max_write(1 << 20).ok();
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.strip_suffix(".img")).and_then(|name| name.parse::<u64>().ok());
        let found = number.and_then(|number| self.attributes(INodeNo(number + FIRST)));
        match found {
            Some(attributes) => reply.entry(&REMEMBER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&REMEMBER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode) {
            Some(attributes) if size.is_none_or(|size| size == attributes.size) => reply.attr(&REMEMBER, &attributes),
            _ => reply.error(Errno::EPERM),
        }
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Nothing of a device may stay in the page cache of its file: reads from the cache test nothing.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.device(inode).map(|device| device.read(offset, size as usize)) {
            Some(Ok(data)) => reply.data(&data),
            Some(Err(Failed)) => reply.error(Errno::EIO),
            None => reply.error(Errno::ENXIO),
        }
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.device(inode).map(|device| device.write(offset, data)) {
            Some(Ok(())) => reply.written(u32::try_from(data.len()).unwrap_or(0)),
            Some(Err(Failed)) => reply.error(Errno::EIO),
            None => reply.error(Errno::ENXIO),
        }
    }

    fn flush(&self, _request: &Request, _inode: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // The close of a file handle, not the flush of a device: nothing becomes durable by it.
        reply.ok();
    }

    fn fsync(&self, _request: &Request, inode: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        match self.device(inode).map(|device| device.flush()) {
            Some(Ok(())) => reply.ok(),
            Some(Err(Failed)) => reply.error(Errno::EIO),
            None => reply.error(Errno::ENXIO),
        }
    }
}
