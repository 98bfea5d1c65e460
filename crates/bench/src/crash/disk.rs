//! A real ext4 on a loop device on a disk in memory whose power can be cut: the client side of `server`.
//!
//! For the crash rigs, and for measurements on a slow disk ([`FuseDisk::mount_ext4`]). Needs root, FUSE, loop devices
//! and mkfs.ext4. Everything is undone on drop, and by the janitor if the program dies first.

use crate::clock;
use crate::crash::cut::Survivors;
use crate::crash::device::{Counts, Delays, Fault, Operation};
use crate::crash::host::{self, Stop, Workplace};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a loop device lost to another program in the same moment is asked for again.
const ATTACH_TRIES: u32 = 10;

/// The server of devices, running.
#[derive(Debug)]
pub struct FuseDisk {
    dir: PathBuf,
    line: Mutex<DiskConnection>,
    // Last, so that the janitor sweeps after the server was told to end.
    _workplace: Option<Arc<Workplace>>,
}

#[derive(Debug)]
struct DiskConnection {
    server: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    mounts: u64,
}

impl FuseDisk {
    /// Starts a server with its mounts below `workplace`.
    ///
    /// # Errors
    /// `Skipped`: this machine cannot; `Broken`: it failed.
    pub fn start(workplace: &Arc<Workplace>) -> Result<Arc<Self>, Stop> {
        host::require_images()?;
        let dir = workplace.disk().join("fuse");
        fs::create_dir_all(&dir).map_err(|error| Stop::broken("making the mount point", error))?;
        // A group of its own: an interrupt from the terminal must not take the disk away before the file system on it.
        let mut server = host::own_program("crash-disk")?
            .arg(&dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Stop::broken("starting the disk", error))?;
        let input = server.stdin.take();
        let output = server.stdout.take().ok_or_else(|| Stop::Broken("the disk has no output".to_owned()))?;
        let mut line = DiskConnection { server, input, output: BufReader::new(output), mounts: 0 };
        line.answer().map_err(|error| Stop::Skipped(format!("FUSE cannot be mounted: {error}")))?;
        Ok(Arc::new(Self { dir, line: Mutex::new(line), _workplace: Some(Arc::clone(workplace)) }))
    }

    /// Makes an ext4 of `bytes` on a new disk and mounts it, with a server and a workplace of its own.
    ///
    /// # Errors
    /// `Skipped`: this machine cannot; `Broken`: it failed.
    pub fn mount_ext4(bytes: u64, delays: Delays) -> Result<Mounted, Stop> {
        let disk = Self::start(&Arc::new(Workplace::new()?))?;
        let mounted = disk.create(bytes, "")?;
        mounted.drive().set_delays(delays)?;
        Ok(mounted)
    }

    /// Makes an ext4 of `bytes` on a new disk and mounts it with `options`.
    ///
    /// # Errors
    /// `Broken`: a program failed.
    pub fn create(self: &Arc<Self>, bytes: u64, options: &str) -> Result<Mounted, Stop> {
        self.create_on(bytes, None, options)
    }

    /// Makes an ext4 of `bytes` on a new disk and mounts it at `dir`, an existing directory.
    ///
    /// # Errors
    /// `Broken`: a program failed.
    pub fn create_at(self: &Arc<Self>, dir: &Path, bytes: u64) -> Result<Mounted, Stop> {
        self.create_on(bytes, Some(dir), "")
    }

    fn create_on(self: &Arc<Self>, bytes: u64, dir: Option<&Path>, options: &str) -> Result<Mounted, Stop> {
        let drive = self.drive(&self.ask(&format!("new {bytes}"))?)?;
        let attached = drive.attach()?;
        // 4 KiB blocks for any size; tables written now, because a thread that writes them later disturbs counts.
        let make = ["-q", "-F", "-b", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-m", "0"];
        host::run("mkfs.ext4", make.iter().map(AsRef::as_ref).chain([attached.device.as_os_str()]))?;
        let mounted = attached.mount(dir, options)?;
        // The writes of mkfs and mount are not under test: a superblock torn here would only be noise.
        host::run("sync", ["-f".as_ref(), mounted.path().as_os_str()])?;
        Ok(mounted)
    }

    /// Cuts the power of disks, one immediately after the other: their requests fail from now on, and
    /// [`Drive::image`] has the remains.
    ///
    /// # Errors
    /// `Broken`: the disk process is gone.
    pub fn cut_power<'a>(&self, drives: impl Iterator<Item = &'a Drive>) -> Result<(), Stop> {
        let numbers: String = drives.map(|drive| format!(" {}", drive.number)).collect();
        self.ask(&format!("off{numbers}")).map(drop)
    }

    fn drive(self: &Arc<Self>, number: &str) -> Result<Drive, Stop> {
        let number = number.parse().map_err(|_| Stop::Broken(format!("the disk answered {number:?}")))?;
        Ok(Drive { disk: Arc::clone(self), number })
    }

    fn ask(&self, command: &str) -> Result<String, Stop> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || Stop::Broken("the disk process is gone".to_owned());
        let input = line.input.as_mut().ok_or_else(gone)?;
        writeln!(input, "{command}").and_then(|()| input.flush()).map_err(|_| gone())?;
        line.answer()
    }

    fn mount_point(&self) -> Result<PathBuf, Stop> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.mounts += 1;
        let path = self.dir.with_file_name(format!("mount-{}", line.mounts));
        fs::create_dir_all(&path).map_err(|error| Stop::broken("making a mount point", error))?;
        Ok(path)
    }
}

impl Drop for FuseDisk {
    fn drop(&mut self) {
        let line = self.line.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(line.input.take());
        drop(line.server.wait());
    }
}

impl DiskConnection {
    fn answer(&mut self) -> Result<String, Stop> {
        let mut answer = String::new();
        let read = self.output.read_line(&mut answer);
        let answer = answer.trim_end();
        match answer.split_once(' ').unwrap_or((answer, "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            ("error", rest) => Err(Stop::Broken(format!("the disk refused: {rest}"))),
            _ => Err(Stop::Broken(format!("the disk process is gone ({read:?})"))),
        }
    }
}

/// One disk of the server. Dropping it forgets its contents.
#[derive(Debug)]
pub struct Drive {
    disk: Arc<FuseDisk>,
    number: u64,
}

/// The parts of a crash image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Image {
    /// Sectors that were pending, counted once per write.
    pub pending: u64,
    /// How many of them are in the image.
    pub kept: u64,
}

impl Drive {
    /// Copies the disk as a power cut at this moment leaves it; the original runs on.
    ///
    /// # Errors
    /// `Broken`: the disk process is gone.
    pub fn image(&self, survivors: Survivors, seed: u64) -> Result<(Self, Image), Stop> {
        let answer = self.ask(&format!("image {} {} {seed}", self.number, survivors.name()))?;
        let [number, pending, kept] = numbers(&answer)?;
        Ok((Self { disk: Arc::clone(&self.disk), number }, Image { pending, kept }))
    }

    /// Sets how long requests take from now on.
    ///
    /// # Errors
    /// `Broken`: the disk process is gone.
    pub fn set_delays(&self, delays: Delays) -> Result<(), Stop> {
        let (flush, write) = (delays.flush.as_micros(), delays.write.as_micros());
        self.ask(&format!("delay {} {flush} {write}", self.number)).map(drop)
    }

    /// From now on flushes are answered and make nothing durable.
    ///
    /// # Errors
    /// `Broken`: the disk process is gone.
    pub fn ignore_flushes(&self) -> Result<(), Stop> {
        self.ask(&format!("ignore-flushes {}", self.number)).map(drop)
    }

    /// Makes requests fail.
    ///
    /// # Errors
    /// `Broken`: the disk process is gone.
    pub fn add_fault(&self, fault: &Fault) -> Result<(), Stop> {
        let operation = match fault.operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
        };
        let Fault { skip, times, ranges, .. } = fault;
        let ranges: String = ranges.iter().map(|range| format!(" {}-{}", range.start, range.end)).collect();
        self.ask(&format!("fault {} {operation} {skip} {times}{ranges}", self.number)).map(drop)
    }

    /// Ends all faults.
    ///
    /// # Errors
    /// `Broken`: the disk process is gone.
    pub fn clear_faults(&self) -> Result<(), Stop> {
        self.ask(&format!("clear {}", self.number)).map(drop)
    }

    /// Returns the requests to the disk so far.
    ///
    /// # Errors
    /// `Broken`: the disk process is gone.
    pub fn counts(&self) -> Result<Counts, Stop> {
        let [reads, writes, bytes_written, flushes, failed] = numbers(&self.ask(&format!("counts {}", self.number))?)?;
        Ok(Counts { reads, writes, bytes_written, flushes, failed })
    }

    /// Mounts the ext4 that is on the disk; the kernel replays its journal.
    ///
    /// # Errors
    /// `Broken`: no loop device, or the file system does not mount.
    pub fn mount(self, options: &str) -> Result<Mounted, Stop> {
        self.attach()?.mount(None, options)
    }

    /// The same at `dir`, an existing directory.
    ///
    /// # Errors
    /// As [`Drive::mount`].
    pub fn mount_at(self, dir: &Path) -> Result<Mounted, Stop> {
        self.attach()?.mount(Some(dir), "")
    }

    fn attach(self) -> Result<Attached, Stop> {
        let file = self.disk.dir.join(format!("{}.img", self.number));
        let arguments = ["--direct-io=on".as_ref(), "--show".as_ref(), "-f".as_ref(), file.as_os_str()];
        let mut tries = 0;
        loop {
            match host::run("losetup", arguments) {
                Ok(device) => return Ok(Attached { device: PathBuf::from(device), drive: self }),
                Err(stop) if tries >= ATTACH_TRIES => return Err(stop),
                Err(_) => tries += 1,
            }
            clock::pause(Duration::from_millis(20));
        }
    }

    fn ask(&self, command: &str) -> Result<String, Stop> {
        self.disk.ask(command)
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        drop(self.ask(&format!("drop {}", self.number)));
    }
}

fn numbers<const N: usize>(answer: &str) -> Result<[u64; N], Stop> {
    let numbers: Vec<u64> = answer.split(' ').filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_| Stop::Broken(format!("the disk answered {answer:?}")))
}

/// A disk with a loop device. Field order is drop order: first the device, then the contents.
#[derive(Debug)]
struct Attached {
    device: PathBuf,
    drive: Drive,
}

impl Attached {
    /// Mounts at a directory of the caller, or at one made for it.
    fn mount(self, dir: Option<&Path>, options: &str) -> Result<Mounted, Stop> {
        let path = dir.map_or_else(|| self.drive.disk.mount_point(), |dir| Ok(dir.to_owned()))?;
        let is_own = dir.is_none();
        let options = if options.is_empty() { "noatime".to_owned() } else { format!("noatime,{options}") };
        let mounted = host::run(
            "mount",
            [
                "-t".as_ref(),
                "ext4".as_ref(),
                "-o".as_ref(),
                options.as_ref(),
                self.device.as_os_str(),
                path.as_os_str(),
            ],
        );
        match mounted {
            Ok(_) => Ok(Mounted { path, is_own, attached: self }),
            Err(stop) => {
                if is_own {
                    drop(fs::remove_dir(&path));
                }
                Err(stop)
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        drop(host::run("losetup", ["-d".as_ref(), self.device.as_os_str()]));
    }
}

/// A mounted disk. Dropping it unmounts and forgets everything on it.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    /// The directory was made for it.
    is_own: bool,
    attached: Attached,
}

impl Mounted {
    /// The root of the file system.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk under it, to change or to copy while it is mounted.
    #[must_use]
    pub fn drive(&self) -> &Drive {
        &self.attached.drive
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        host::unmount(&self.path);
        if self.is_own {
            drop(fs::remove_dir(&self.path));
        }
    }
}
