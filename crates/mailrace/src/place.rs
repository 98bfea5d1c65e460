//! Where the demonstration puts its spool, and the files it must not touch.
//!
//! A directory is ours if it holds the marker file with our words in it and only files of a spool. Only then are those
//! files removed, one by one by their names.

use crate::exit::{Exit, Failure};
use crate::output::bytes;
use spool::disk::{Disk, Space};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file that says whose directory this is.
const MARKER: &str = "demo";
const MARKER_TEXT: &str = "Made by a demonstration of mailrace. The next one removes this directory's spool.\n";

/// Removes an earlier demonstration and begins a new one, which takes up to `needed` bytes. Returns the room there.
///
/// # Errors
/// The directory is not ours, is in use, or has too little room; nothing is removed in the first two cases.
pub(crate) fn make_place(dir: &Path, needed: u64, disk: &dyn Disk) -> Result<Space, Failure> {
    remove_earlier(dir, disk)?;
    let fails = |error: io::Error| Failure::io(dir.display(), &error);
    disk.create_dir(dir).map_err(fails)?;
    let space = find_room(dir, needed, disk, "give it fewer --messages or another --dir")?;
    fs::write(dir.join(MARKER), MARKER_TEXT).map_err(fails)?;
    Ok(space)
}

/// Returns the room of a directory, or a failure with this next step if it is less than `needed` bytes.
pub(crate) fn find_room(dir: &Path, needed: u64, disk: &dyn Disk, step: &str) -> Result<Space, Failure> {
    let space = disk.space(dir).map_err(|error| Failure::io(dir.display(), &error))?;
    if space.free >= needed {
        return Ok(space);
    }
    let (dir, free, needed) = (dir.display(), bytes(space.free), bytes(needed));
    let message = format!("{dir}: {free} free, the demonstration takes up to {needed}; {step}");
    Err(Failure::new(Exit::CannotCreate, message))
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
    if said != MARKER_TEXT {
        return Err(not_ours(dir, &format!("it has no file {MARKER} from an earlier demonstration")));
    }
    let (mut files, mut shards) = (Vec::new(), Vec::new());
    for name in names {
        let path = dir.join(&name);
        match name.as_str() {
            "SPOOL" | "SPOOL.tmp" | "epoch" | "epoch.tmp" | "lock" | MARKER => files.push(path),
            "hosts" | "hosts.tmp" | "replies" | "replies.tmp" | "clock" | "clock.tmp" => files.push(path),
            "secret" | "secret.tmp" | "digest" | "digest.tmp" => files.push(path),
            "steering" | "steering.tmp" => files.push(path),
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
