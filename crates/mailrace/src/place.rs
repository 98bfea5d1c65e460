//! Where demonstrations put their spools, and what they must not touch.
//!
//! A directory is ours if it holds the marker file with our words in it and nothing but what a spool has. Only then are
//! those files removed, one by one by their names.

use crate::exit::{Exit, Failure};
use crate::output::bytes;
use spool::disk::{Disk, Space};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The file that says whose directory this is.
const MARKER: &str = "demo";
const MARKER_TEXT: &str = "Made by a demonstration of mailrace. The next one removes this directory's spool.\n";
/// What it said before.
const MARKER_TEXT_OLD: &str = "Made by mailrace spool demo. The next demonstration removes this directory's spool.\n";

/// A directory made ready.
pub(crate) struct Place {
    /// When the marker was written, in microseconds since 1970: near enough to now for queue ids.
    pub(crate) start_us: u64,
    pub(crate) space: Space,
}

impl Place {
    /// Removes an earlier demonstration and begins a new one, which takes up to `needed` bytes.
    ///
    /// # Errors
    /// The directory is not ours, is in use, or has too little room; nothing is removed in the first two cases.
    pub(crate) fn make(dir: &Path, needed: u64, disk: &dyn Disk) -> Result<Self, Failure> {
        remove_earlier(dir, disk)?;
        let fails = |error: io::Error| Failure::io(dir.display(), &error);
        disk.create_dir(dir).map_err(fails)?;
        let space = disk.space(dir).map_err(fails)?;
        if space.free < needed {
            let message = format!(
                "{}: {} free, the demonstration takes up to {}; give it fewer --messages or another --dir",
                dir.display(),
                bytes(space.free),
                bytes(needed)
            );
            return Err(Failure::new(Exit::CannotCreate, message));
        }
        fs::write(dir.join(MARKER), MARKER_TEXT).map_err(fails)?;
        Ok(Self { start_us: start_us(dir)?, space })
    }
}

/// When the demonstration began, in microseconds since 1970.
pub(crate) fn start_us(dir: &Path) -> Result<u64, Failure> {
    let path = dir.join(MARKER);
    let written = fs::metadata(&path).and_then(|metadata| metadata.modified());
    let written = written.map_err(|error| Failure::io(path.display(), &error))?;
    let since = written.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since.as_micros()).unwrap_or(0))
}

fn remove_earlier(dir: &Path, disk: &dyn Disk) -> Result<(), Failure> {
    let fails = |error: io::Error| Failure::io(dir.display(), &error);
    match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fails(error)),
        Ok(metadata) if !metadata.is_dir() => return Err(not_ours(dir, "it is no directory")),
        Ok(_) => {}
    }
    let names = disk.list(dir).map_err(fails)?;
    if names.is_empty() {
        return Ok(());
    }
    let said = fs::read_to_string(dir.join(MARKER)).unwrap_or_default();
    if ![MARKER_TEXT, MARKER_TEXT_OLD].contains(&said.as_str()) {
        return Err(not_ours(dir, &format!("it has no file {MARKER} from an earlier demonstration")));
    }
    let (mut files, mut shards) = (Vec::new(), Vec::new());
    for name in names {
        let path = dir.join(&name);
        match name.as_str() {
            "SPOOL" | "SPOOL.tmp" | "epoch" | "epoch.tmp" | "lock" | MARKER => files.push(path),
            "hosts" | "hosts.tmp" | "replies" | "replies.tmp" => files.push(path),
            _ if is_shard(&name) && path.is_dir() => {
                files.extend(segments(&path, disk)?);
                shards.push(path);
            }
            _ => return Err(not_ours(dir, &format!("the demonstration did not make {name:?}"))),
        }
    }
    let _lock = disk.lock(&dir.join("lock")).map_err(|error| Failure::io("demonstration", &error))?;
    files.iter().try_for_each(fs::remove_file).map_err(fails)?;
    shards.iter().try_for_each(fs::remove_dir).map_err(fails)
}

fn is_shard(name: &str) -> bool {
    name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_digit())
}

fn segments(shard: &Path, disk: &dyn Disk) -> Result<Vec<PathBuf>, Failure> {
    let names = disk.list(shard).map_err(|error| Failure::io(shard.display(), &error))?;
    let is_segment = |name: &String| ["seg-", "new-", "bad-"].iter().any(|prefix| name.starts_with(prefix));
    match names.iter().find(|name| !is_segment(name)) {
        Some(name) => Err(not_ours(shard, &format!("the demonstration did not make {name:?}"))),
        None => Ok(names.iter().map(|name| shard.join(name)).collect()),
    }
}

fn not_ours(dir: &Path, why: &str) -> Failure {
    let message = format!("{}: not touched, {why}; choose another directory with --dir", dir.display());
    Failure::new(Exit::CannotCreate, message)
}
