//! Where a store is put for a measurement, and what its device did meanwhile.
//!
//! Exact device figures come from an ext4 of its own on a loop device over a file in memory: nothing else writes
//! there, and the kernel counts every sector and flush. That takes root; without it the caller is told why not.
//!
//! Invariant: whatever was made (mount, loop device, image, directories) is gone when the value is dropped.

use rustix::fs::{CWD, Mode, OFlags};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::crash::device::Delays;
use crate::crash::disk::{FuseDisk, Mounted};
use crate::crash::host::{Workplace, require_images, run};

/// A place for stores.
#[derive(Debug)]
pub(super) struct Volume {
    dir: PathBuf,
    made: Made,
}

/// What is to be undone.
#[derive(Debug)]
enum Made {
    /// The directory.
    Directory,
    /// A loop device (`loop0`) and a mount, which go with their workplace.
    Private { device: String, _workplace: Workplace },
    /// A slow disk, which takes itself away.
    Slow { _disk: Mounted },
}

/// What the device has done since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Device {
    pub(super) bytes_written: u64,
    pub(super) flushes: u64,
}

impl Volume {
    /// A new directory in an existing one.
    ///
    /// # Errors
    /// The system's words.
    pub(super) fn directory(parent: &Path) -> Result<Self, String> {
        for attempt in 0..100 {
            let dir = parent.join(format!("mailrace-bench-{}-{attempt}", std::process::id()));
            match fs::create_dir(&dir) {
                Ok(()) => return Ok(Self { dir, made: Made::Directory }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(format!("{}: {e}", dir.display())),
            }
        }
        Err(format!("{}: no free name", parent.display()))
    }

    /// A private ext4 of `bytes` on a loop device over a file in memory.
    ///
    /// # Errors
    /// Why this cannot be done here.
    pub(super) fn private_ext4(bytes: u64) -> Result<Self, String> {
        require_images().map_err(|stop| stop.to_string())?;
        let workplace = Workplace::new().map_err(|stop| stop.to_string())?;
        let (image, dir) = (workplace.memory().join("image"), workplace.disk().join("mount"));
        let told = |e: std::io::Error| format!("{}: {e}", image.display());
        fs::File::create(&image).and_then(|file| file.set_len(bytes)).map_err(told)?;
        fs::create_dir(&dir).map_err(told)?;
        let call = |program: &str, arguments: &[&str]| {
            let all = arguments.iter().map(|word| (*word).as_ref());
            run::<_, &std::ffi::OsStr>(program, all).map_err(|stop| stop.to_string())
        };
        let path = image.display().to_string();
        // No lazy initialisation: it would write in the middle of a measurement.
        call("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", &path])?;
        let device = call("losetup", &["--find", "--show", &path])?;
        call("mount", &["-t", "ext4", "-o", "noatime", &device, &dir.display().to_string()])?;
        let device = device.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Self { dir, made: Made::Private { device, _workplace: workplace } })
    }

    /// An ext4 of `bytes` on a disk in memory whose every flush takes `flush`.
    ///
    /// # Errors
    /// Why this cannot be done here.
    pub(super) fn slow_ext4(bytes: u64, flush: Duration) -> Result<Self, String> {
        let delays = Delays { flush, ..Delays::default() };
        let disk = FuseDisk::mount_ext4(bytes, delays).map_err(|stop| stop.to_string())?;
        Ok(Self { dir: disk.path().to_owned(), made: Made::Slow { _disk: disk } })
    }

    /// The directory to put stores in.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The counters of the device; `None` where it is not private.
    pub(super) fn device(&self) -> Option<Device> {
        let Made::Private { device, .. } = &self.made else { return None };
        let stat = fs::read_to_string(format!("/sys/block/{device}/stat")).ok()?;
        let fields: Vec<u64> = stat.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        // Documentation/block/stat.rst: write sectors (of 512 bytes) are the seventh field, flushes the sixteenth.
        Some(Device { bytes_written: fields.get(6)? * 512, flushes: *fields.get(15)? })
    }

    /// Writes back everything the file system holds.
    pub(super) fn settle(&self) {
        let opened = rustix::fs::openat(CWD, &self.dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        if let Ok(dir) = opened
            && let Err(error) = rustix::fs::syncfs(&dir)
        {
            super::say(&format!("cannot write back {}: {error}", self.dir.display()));
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if matches!(self.made, Made::Directory)
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            super::say(&format!("left behind: {}: {error}", self.dir.display()));
        }
    }
}
