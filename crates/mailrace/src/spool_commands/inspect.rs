//! `mailrace spool inspect`: the segments of a spool, and the frames in them.

use super::{SpoolTarget, damage_json, exit_of, read, torn_line};
use crate::exit::{Exit, Failure};
use crate::output::{Output, below, bytes, count, thousands};
use clap::Args;
use serde_json::{Value, json};
use spool::inspect::{Fact, Summary};
use std::path::Path;

#[derive(Debug, Args)]
#[command(
    after_help = "With --json: one object on each line; its member \"fact\" is spool, segment, frame, damage or \
                        summary. Frames follow their segment."
)]
pub(crate) struct InspectArguments {
    #[command(flatten)]
    target: SpoolTarget,
    /// Print every record too: offset, type, bytes, whether an unfinished message needs it, queue id, contents
    #[arg(long)]
    frames: bool,
}

pub(crate) fn run(arguments: &InspectArguments) -> Result<Exit, Failure> {
    let SpoolTarget { dir, json } = &arguments.target;
    let mut output = Output::new();
    let summary = read(dir, arguments.frames, &mut |fact| {
        if *json {
            output.print_json(&fact_json(fact));
        } else {
            fact_lines(&mut output, dir, fact);
        }
    })?;
    if *json {
        output.print_json(&summary_json(&summary));
    } else {
        summary_lines(&mut output, dir, &summary);
    }
    output.finish()?;
    Ok(exit_of(&summary))
}

fn fact_lines(output: &mut Output, root: &Path, fact: &Fact) {
    match fact {
        Fact::Spool { format, uuid, shards, segment_bytes } => {
            let size = bytes((*segment_bytes).into());
            let shards = count((*shards).into(), "shard");
            output.print_line(format_args!("spool {uuid}, format {format}, {shards}, segments of {size}\n"));
            output.print_line(format_args!(
                "{:<16}{:<15}{:>10}{:>9}{:>14}{:>13}{:>14}",
                "segment", "state", "generation", "batches", "used bytes", "live frames", "live bytes"
            ));
        }
        Fact::Segment { path, generation, phase, cold, batches, data_end, live } => {
            let state = if *cold { format!("{phase}, cold") } else { (*phase).to_owned() };
            // The epoch and the counter in it, as the documentation writes them.
            let generation = format!("{}.{}", generation >> 32, generation & 0xffff_ffff);
            output.print_line(format_args!(
                "{:<16}{state:<15}{generation:>10}{batches:>9}{:>14}{:>13}{:>14}",
                below(root, path).to_string(),
                thousands((*data_end).into()),
                thousands(live.0.into()),
                thousands(live.1)
            ));
        }
        Fact::Frame { .. } => output.print_line(fact),
        // In the summary.
        Fact::Damage(_) => {}
    }
}

fn summary_lines(output: &mut Output, dir: &Path, summary: &Summary) {
    let recovery = &summary.recovery;
    output.print_line(format_args!(
        "\n{} for {}, {} in {}",
        count(recovery.messages, "unfinished message"),
        count(recovery.recipients, "recipient"),
        count(summary.frames, "frame"),
        bytes(summary.bytes)
    ));
    if let Some(line) = torn_line(recovery.torn) {
        output.print_line(line);
    }
    for damage in &summary.damage {
        output.print_line(format_args!("DAMAGE {damage}"));
    }
    if !summary.damage.is_empty() {
        output.print_line(format_args!("what to do: mailrace spool verify {}", dir.display()));
    }
}

fn fact_json(fact: &Fact) -> Value {
    match fact {
        Fact::Spool { format, uuid, shards, segment_bytes } => json!({
            "fact": "spool", "format": format, "uuid": uuid, "shards": shards, "segment_bytes": segment_bytes,
        }),
        Fact::Segment { path, generation, phase, cold, batches, data_end, live } => json!({
            "fact": "segment", "file": path.display().to_string(), "generation": generation, "phase": phase, "cold": cold,
            "batches": batches, "data_end": data_end, "live_frames": live.0, "live_bytes": live.1,
        }),
        Fact::Frame { offset, kind, bytes, id, live, detail } => json!({
            "fact": "frame", "offset": offset, "type": kind, "bytes": bytes, "id": id.map(|id| id.to_string()),
            "live": live, "detail": detail,
        }),
        Fact::Damage(damage) => {
            let mut value = damage_json(damage);
            if let Some(members) = value.as_object_mut() {
                members.insert("fact".to_owned(), "damage".into());
            }
            value
        }
    }
}

fn summary_json(summary: &Summary) -> Value {
    let recovery = &summary.recovery;
    json!({
        "fact": "summary", "messages": recovery.messages, "recipients": recovery.recipients,
        "segments": recovery.segments, "scanned": recovery.scanned, "torn": recovery.torn,
        "livemaps_lost": recovery.livemaps_lost, "frames": summary.frames, "bytes": summary.bytes,
        "damage": summary.damage.len(),
    })
}
