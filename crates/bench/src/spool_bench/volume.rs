//! Where a store is put for a measurement, and what its device did meanwhile.
//!
//! Exact device figures come from an ext4 of its own on a loop device over a file in memory: nothing else writes
//! there, and the kernel counts every sector and flush. That takes root; without it the caller is told why not.
//!
//! Invariant: whatever was made (mount, loop device, image, directories) is gone when the value is dropped.

use rustix::fs::{CWD, Mode, OFlags};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::clock;
use crate::crash::device::Delays;
use crate::crash::disk::{FuseDisk, Mounted};

/// A place for stores.
#[derive(Debug)]
pub(super) struct Volume {
    dir: PathBuf,
    device: Option<String>,
    mounted: bool,
    image: Option<PathBuf>,
    slow: Option<Mounted>,
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
        let dir = fresh(parent)?;
        Ok(Self { dir, device: None, mounted: false, image: None, slow: None })
    }

    /// A private ext4 of `bytes` on a loop device over a file below `memory`, which is in memory.
    ///
    /// # Errors
    /// Why this cannot be done here.
    pub(super) fn private_ext4(memory: &Path, bytes: u64) -> Result<Self, String> {
        let image = fresh(memory)?;
        let mut volume =
            Self { dir: image.join("mount"), device: None, mounted: false, image: Some(image.clone()), slow: None };
        fs::create_dir(&volume.dir).map_err(|e| format!("{}: {e}", volume.dir.display()))?;
        let file = image.join("image");
        fs::File::create(&file)
            .and_then(|created| created.set_len(bytes))
            .map_err(|e| format!("{}: {e}", file.display()))?;
        let path = file.display().to_string();
        // No lazy initialisation: it would write in the middle of a measurement.
        run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", &path])?;
        volume.device = Some(run("losetup", &["--find", "--show", &path])?.trim().to_owned());
        volume.mount()?;
        Ok(volume)
    }

    /// An ext4 of `bytes` on a disk in memory whose every flush takes `flush`.
    ///
    /// # Errors
    /// Why this cannot be done here.
    pub(super) fn slow_ext4(bytes: u64, flush: Duration) -> Result<Self, String> {
        let delays = Delays { flush, ..Delays::default() };
        let disk = FuseDisk::mount_ext4(bytes, delays).map_err(|stop| stop.to_string())?;
        Ok(Self { dir: disk.path().to_owned(), device: None, mounted: false, image: None, slow: Some(disk) })
    }

    fn mount(&mut self) -> Result<(), String> {
        let device = self.device.clone().unwrap_or_default();
        run("mount", &["-t", "ext4", "-o", "noatime", &device, &self.dir.display().to_string()])?;
        self.mounted = true;
        Ok(())
    }

    /// The directory to put stores in.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The counters of the device; `None` where it is not private.
    pub(super) fn device(&self) -> Option<Device> {
        let name = self.device.as_deref()?.rsplit('/').next()?;
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).ok()?;
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
        if self.slow.is_some() {
            // It takes itself away, with everything on it.
            return;
        }
        let told = |result: Result<String, String>| {
            if let Err(error) = result {
                super::say(&format!("left behind: {error}"));
            }
        };
        if self.mounted {
            let dir = self.dir.display().to_string();
            // A store that is just being closed may hold the mount for a moment.
            let mut result = run("umount", &[&dir]);
            for _ in 0..20 {
                if result.is_ok() {
                    break;
                }
                clock::pause(Duration::from_millis(250));
                result = run("umount", &[&dir]);
            }
            told(result);
        }
        if let Some(device) = &self.device {
            told(run("losetup", &["--detach", device]));
        }
        let made = self.image.as_ref().unwrap_or(&self.dir);
        told(fs::remove_dir_all(made).map(|()| String::new()).map_err(|e| format!("{}: {e}", made.display())));
    }
}

/// Makes a directory nobody else uses.
fn fresh(parent: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    for attempt in 0..100 {
        let dir = parent.join(format!("mailrace-bench-{}-{attempt}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(format!("{}: {e}", dir.display())),
        }
    }
    Err(format!("{}: no free name", parent.display()))
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {}", arguments.join(" "), words.lines().next().unwrap_or("failed")))
}
