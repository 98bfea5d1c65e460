//! `mailrace spool`: commands on the directory of a spool, one file each.
//!
//! They read a spool that no process has open, or a copy of one, and change nothing in it.

mod inspect;
mod stats;
mod verify;

use crate::exit::{Exit, Failure};
use crate::output::Progress;
use clap::{Args, Subcommand};
use spool::Damage;
use spool::disk::Disk;
use spool::disk::real::RealDisk;
use spool::inspect::{Fact, Summary};
use std::path::{Path, PathBuf};

#[derive(Debug, Subcommand)]
pub(crate) enum SpoolCommand {
    /// Print what is in a spool: its segments, and with --frames every record in them
    Inspect(inspect::InspectArguments),
    /// Read everything and compare it with its checksums
    Verify(SpoolTarget),
    /// Count what a spool holds: messages, destinations, segments, room
    Stats(stats::StatsArguments),
}

/// The spool a command reads.
#[derive(Debug, Args)]
pub(crate) struct SpoolTarget {
    /// Directory of the spool, the one with the file SPOOL in it; a copy or a read-only one will do
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs a command.
pub(crate) fn run(command: SpoolCommand) -> Result<Exit, Failure> {
    match command {
        SpoolCommand::Inspect(arguments) => inspect::run(&arguments),
        SpoolCommand::Verify(arguments) => verify::run(&arguments),
        SpoolCommand::Stats(arguments) => stats::run(&arguments),
    }
}

/// Reads a whole spool; shows progress on a terminal.
fn read(dir: &Path, frames: bool, visit: &mut dyn FnMut(&Fact)) -> Result<Summary, Failure> {
    let disk = RealDisk::new();
    check_is_spool(&disk, dir)?;
    let segments = segment_files(&disk, dir).filter(|name| name.starts_with("seg-")).count();
    let progress = Progress::new();
    let mut seen = 0;
    progress.show(format_args!("{}: reading headers and footers", dir.display()));
    let summary = spool::inspect::inspect(&disk, dir, frames, &mut |fact| {
        if matches!(fact, Fact::Segment { .. }) {
            seen += 1;
            progress.show(format_args!("{}: segment {seen} of {segments}", dir.display()));
        }
        visit(fact);
    });
    progress.clear();
    Ok(summary?)
}

/// Stops before a lock file is made in a directory that is no spool.
fn check_is_spool(disk: &dyn Disk, dir: &Path) -> Result<(), Failure> {
    let names = disk.list(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Failure::new(
            Exit::NoInput,
            format!("{}: there is no such directory; name the one that holds the file SPOOL", dir.display()),
        ),
        _ => Failure::io(dir.display(), &error),
    })?;
    if names.iter().any(|name| name == "SPOOL" || name == "00") {
        return Ok(());
    }
    let message = format!("{}: not a spool, it has no file SPOOL; name the directory that holds it", dir.display());
    Err(Failure::new(Exit::NoInput, message))
}

/// Names of the files in all shards; none of a shard that cannot be listed.
fn segment_files(disk: &dyn Disk, dir: &Path) -> impl Iterator<Item = String> {
    let is_shard = |name: &String| name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_digit());
    let shards: Vec<String> = disk.list(dir).unwrap_or_default().into_iter().filter(is_shard).collect();
    shards.into_iter().flat_map(move |shard| disk.list(&dir.join(shard)).unwrap_or_default())
}

/// A damaged place for other programs.
fn damage_json(damage: &Damage) -> serde_json::Value {
    serde_json::json!({
        "file": damage.path.display().to_string(),
        "offset": damage.offset,
        "bytes": damage.bytes,
        "id": damage.id.map(|id| id.to_string()),
        "message": damage.what,
    })
}

/// The status of a command that has read a spool.
fn exit_of(summary: &Summary) -> Exit {
    if summary.damage.is_empty() { Exit::Ok } else { Exit::Damaged }
}

/// Returns the line about a torn tail, if there is one.
fn torn_line(torn: u64) -> Option<String> {
    let batches = if torn == 1 { "batch" } else { "batches" };
    (torn > 0).then(|| format!("{torn} {batches} cut off while written, dropped whole; nobody was told 250 for it"))
}
