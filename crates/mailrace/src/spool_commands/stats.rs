//! `mailrace spool stats`: the amount of mail in a spool, by destination, and its file system.

use super::{SpoolTarget, exit_of, read, segment_files};
use crate::exit::{Exit, Failure};
use crate::output::{Output, bytes, count, thousands};
use clap::Args;
use serde_json::{Value, json};
use spool::disk::real::RealDisk;
use spool::disk::{Disk as _, Space};
use spool::inspect::{Fact, Summary};
use std::path::Path;

#[derive(Debug, Args)]
pub(crate) struct StatsArguments {
    #[command(flatten)]
    target: SpoolTarget,
    /// How many destinations to list, those with the most recipients first
    #[arg(long, default_value_t = 10)]
    top: usize,
}

/// Segment files by their state.
#[derive(Default)]
struct Segments {
    bytes_each: u32,
    free: u64,
    unsealed: u64,
    sealed: u64,
    /// Those of the unsealed and sealed ones with moved messages.
    cold: u64,
    bad: u64,
    live_frames: u64,
    live_bytes: u64,
}

impl Segments {
    fn add(&mut self, fact: &Fact) {
        match fact {
            Fact::Spool { segment_bytes, .. } => self.bytes_each = *segment_bytes,
            Fact::Segment { phase, cold, live, .. } => {
                match *phase {
                    "free" => self.free += 1,
                    "sealed" => self.sealed += 1,
                    _ => self.unsealed += 1,
                }
                self.cold += u64::from(*cold && *phase != "free");
                self.live_frames += u64::from(live.0);
                self.live_bytes += live.1;
            }
            Fact::Frame { .. } | Fact::Damage(_) => {}
        }
    }

    fn all(&self) -> u64 {
        self.free + self.unsealed + self.sealed
    }
}

pub(crate) fn run(arguments: &StatsArguments) -> Result<Exit, Failure> {
    let SpoolTarget { dir, json } = &arguments.target;
    let mut segments = Segments::default();
    let summary = read(dir, false, &mut |fact| segments.add(fact))?;
    let disk = RealDisk::new();
    let bad = segment_files(&disk, dir).filter(|name| name.starts_with("bad-")).count();
    segments.bad = bad as u64;
    let space = disk.space(dir).map_err(|error| Failure::io(dir.display(), &error))?;
    let mut output = Output::new();
    if *json {
        output.print_json(&as_json(dir, arguments.top, &summary, &segments, &space));
    } else {
        lines(&mut output, dir, arguments.top, &summary, &segments, &space);
    }
    output.finish()?;
    Ok(exit_of(&summary))
}

fn lines(output: &mut Output, dir: &Path, top: usize, summary: &Summary, segments: &Segments, space: &Space) {
    let recovery = &summary.recovery;
    let mut row = |name: &str, text: String| output.print_line(format_args!("{name:<14}{text}"));
    row("spool", dir.display().to_string());
    let destinations = summary.destinations.len() as u64;
    row("messages", thousands(recovery.messages));
    row("recipients", format!("{} at {}", thousands(recovery.recipients), count(destinations, "destination")));
    let live_frames = count(segments.live_frames, "frame");
    row("live", format!("{} in {live_frames}", bytes(segments.live_bytes)));
    let size = bytes(segments.bytes_each.into());
    let Segments { free, unsealed, sealed, cold, bad, .. } = segments;
    row("segments", format!("{} of {size}: {free} free, {sealed} sealed, {unsealed} unsealed", segments.all()));
    row("", format!("{cold} of them with moved messages; {bad} retired after a failure"));
    row("file system", format!("{}, {} of {} free", space.file_system, bytes(space.free), bytes(space.total)));
    row("power cut", durability(space).to_owned());
    if !summary.damage.is_empty() {
        let places = count(summary.damage.len() as u64, "place");
        row("DAMAGE", format!("{places}; run mailrace spool verify {}", dir.display()));
    }
    if top > 0 && !summary.destinations.is_empty() {
        output.print_line(format_args!("\n{:>12}  destination", "recipients"));
        for (name, waiting) in summary.destinations.iter().take(top) {
            output.print_line(format_args!("{:>12}  {}", thousands(*waiting), name.escape_debug()));
        }
        let rest = summary.destinations.len().saturating_sub(top);
        if rest > 0 {
            output.print_line(format_args!("{:>12}  and {} more", "", thousands(rest as u64)));
        }
    }
}

/// Returns the effect of a power cut on this file system.
fn durability(space: &Space) -> &'static str {
    match (space.volatile, space.copy_on_write) {
        (true, _) => "volatile: takes everything here; fit for tests only",
        (false, true) => "durable; slow, because this file system writes changed blocks elsewhere",
        (false, false) => "durable, as far as the disk obeys a flush",
    }
}

/// Returns the properties of the file system of a directory, for other programs.
fn space_json(space: &Space) -> Value {
    json!({
        "name": space.file_system, "volatile": space.volatile, "copy_on_write": space.copy_on_write,
        "free_bytes": space.free, "total_bytes": space.total,
    })
}

fn as_json(dir: &Path, top: usize, summary: &Summary, segments: &Segments, space: &Space) -> Value {
    let list: Vec<Value> = summary
        .destinations
        .iter()
        .take(top)
        .map(|(name, waiting)| json!({ "destination": name, "recipients": waiting }))
        .collect();
    json!({
        "directory": dir.display().to_string(),
        "messages": summary.recovery.messages,
        "recipients": summary.recovery.recipients,
        "destinations": summary.destinations.len(),
        "top": list,
        "live_frames": segments.live_frames,
        "live_bytes": segments.live_bytes,
        "segments": {
            "all": segments.all(), "bytes_each": segments.bytes_each, "free": segments.free, "sealed": segments.sealed,
            "unsealed": segments.unsealed, "cold": segments.cold, "bad": segments.bad,
        },
        "file_system": space_json(space),
        "damage": summary.damage.len(),
    })
}
