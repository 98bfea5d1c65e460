//! The changes that the rigs make to the machine, and how they are undone: directories, mounts, loop devices, child
//! programs.
//!
//! Everything of a run lies below two directories whose names carry the number of the process that owns them. One
//! function, [`sweep`], undoes all of it: unmounts, detaches, removes. It runs in a small process of its own (the
//! janitor) that waits for the end of its input, so it also runs when the owner is interrupted or killed; and the next
//! run sweeps what a killed janitor left.

use crate::clock;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The beginning of every name the rigs make.
const PREFIX: &str = "mailrace-crash-";
/// Directories in memory; the ledger lies there because it must not share a fate with the disk under test.
const MEMORY: &str = "/dev/shm";
/// Tries before a busy mount is detached lazily, 50 ms apart.
const UNMOUNT_TRIES: u32 = 40;

/// Why a rig did not finish.
#[derive(Debug)]
pub enum Stop {
    /// This machine cannot run it; names the missing part.
    Skipped(String),
    /// It could not be carried out; says what broke.
    Broken(String),
}

impl Stop {
    /// Broken, with the failed action.
    pub(crate) fn broken(doing: &str, error: impl std::fmt::Display) -> Self {
        Self::Broken(format!("{doing}: {error}"))
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Skipped(why) => write!(f, "skipped: {why}"),
            Self::Broken(why) => write!(f, "broken: {why}"),
        }
    }
}

impl std::error::Error for Stop {}

/// The directories of a run. Dropping it removes everything below them.
#[derive(Debug)]
pub struct Workplace {
    disk: PathBuf,
    memory: PathBuf,
    janitor: Option<Child>,
}

impl Workplace {
    /// Sweeps what dead runs left, makes the directories, starts the janitor.
    ///
    /// # Errors
    /// A directory cannot be made or the program not started again as its own janitor.
    pub fn new() -> Result<Self, Stop> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let memory_root = if Path::new(MEMORY).is_dir() { PathBuf::from(MEMORY) } else { std::env::temp_dir() };
        sweep_leftovers(&[std::env::temp_dir(), memory_root.clone()]);
        let name = format!("{PREFIX}{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let (disk, memory) = (std::env::temp_dir().join(&name).join("disk"), memory_root.join(&name).join("memory"));
        for dir in [&disk, &memory] {
            fs::create_dir_all(dir).map_err(|error| Stop::broken(&format!("making {}", dir.display()), error))?;
        }
        let janitor = own_program("crash-janitor")?
            .args(roots(&[&disk, &memory]))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Stop::broken("starting the janitor", error))?;
        Ok(Self { disk, memory, janitor: Some(janitor) })
    }

    /// A directory on the file system of temporary files.
    #[must_use]
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// A directory in memory.
    #[must_use]
    pub fn memory(&self) -> &Path {
        &self.memory
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        if let Some(mut janitor) = self.janitor.take() {
            drop(janitor.stdin.take());
            drop(janitor.wait());
        }
    }
}

fn roots<'a>(dirs: &[&'a PathBuf]) -> Vec<&'a Path> {
    dirs.iter().filter_map(|dir| dir.parent()).collect()
}

/// The janitor: waits for the end of its input, then sweeps the directories.
pub(crate) fn janitor(dirs: &[PathBuf]) {
    drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
    for dir in dirs {
        sweep(dir);
    }
}

fn sweep_leftovers(parents: &[PathBuf]) {
    for entry in parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|owner| owner.parse::<u32>().is_ok() && !alive(owner)) {
            sweep(&entry.path());
        }
    }
}

/// Any process of that number counts: better leave something lying than take it from under a run.
fn alive(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

/// Unmounts everything below `dir` and, wherever they are mounted, loop devices on files below it; detaches these, and
/// removes it.
pub(crate) fn sweep(dir: &Path) {
    // The file systems on loop devices go first, the FUSE file system that holds their images last.
    for kind in ["ext4", ""] {
        let devices = loops_below(dir);
        for mounted in mounts_of(&devices).into_iter().chain(mounts_below(dir, kind)) {
            unmount(&mounted);
        }
        for device in devices {
            drop(run("losetup", [OsStr::new("-d"), device.as_os_str()]));
        }
    }
    drop(fs::remove_dir_all(dir));
}

fn mounts_below(dir: &Path, kind: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mount_table()
        .into_iter()
        .filter(|mount| mount.path.starts_with(dir) && (kind.is_empty() || mount.kind == kind))
        .map(|mount| mount.path)
        .collect();
    found.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    found
}

fn mounts_of(devices: &[PathBuf]) -> Vec<PathBuf> {
    mount_table().into_iter().filter(|mount| devices.contains(&mount.device)).map(|mount| mount.path).collect()
}

/// A line of the table of mounts.
struct MountEntry {
    device: PathBuf,
    path: PathBuf,
    kind: String,
}

fn mount_table() -> Vec<MountEntry> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let mut path = || words.next().map(|word| PathBuf::from(word.replace("\\040", " ")));
        Some(MountEntry { device: path()?, path: path()?, kind: words.next()?.to_owned() })
    };
    table.lines().filter_map(entry).collect()
}

fn loops_below(dir: &Path) -> Vec<PathBuf> {
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    blocks
        .filter(|block| {
            let backing = fs::read_to_string(block.path().join("loop/backing_file")).unwrap_or_default();
            Path::new(backing.trim_end()).starts_with(dir)
        })
        .map(|block| Path::new("/dev").join(block.file_name()))
        .collect()
}

/// Unmounts, waiting a while for processes that still use it; then detaches without waiting.
pub(crate) fn unmount(path: &Path) {
    for _ in 0..UNMOUNT_TRIES {
        if run("umount", [path.as_os_str()]).is_ok() || mounts_below(path, "").is_empty() {
            return;
        }
        clock::pause(Duration::from_millis(50));
    }
    drop(run("umount", [OsStr::new("-l"), path.as_os_str()]));
}

/// Runs a program to its end and returns its output.
///
/// # Errors
/// It cannot be started, or fails: with its output.
pub(crate) fn run<I, S>(program: &str, arguments: I) -> Result<String, Stop>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    // The programs of an administrator, although the caller may be none by its environment.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Stop::broken(&format!("starting {program}"), error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    Err(Stop::broken(program, String::from_utf8_lossy(&output.stderr).trim_end()))
}

/// This program, to be started again with another subcommand.
pub(crate) fn own_program(subcommand: &str) -> Result<Command, Stop> {
    let path = std::env::current_exe().map_err(|error| Stop::broken("finding this program", error))?;
    let mut command = Command::new(path);
    command.arg(subcommand);
    Ok(command)
}

/// Checks that block-level images can be made and mounted here.
///
/// # Errors
/// `Skipped`: names the missing part.
pub(crate) fn require_images() -> Result<(), Stop> {
    let root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")));
    if !root {
        return Err(Stop::Skipped("mounting needs root".to_owned()));
    }
    if fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        return Err(Stop::Skipped("no /dev/fuse".to_owned()));
    }
    if run("losetup", ["-f"]).is_err() {
        return Err(Stop::Skipped("no free loop device".to_owned()));
    }
    if run("mkfs.ext4", ["-V"]).is_err() {
        return Err(Stop::Skipped("no mkfs.ext4".to_owned()));
    }
    Ok(())
}
