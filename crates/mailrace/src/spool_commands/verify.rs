//! `mailrace spool verify`: every byte against its checksum, every footer against its segment.

use super::{SpoolTarget, damage_json, exit_of, read, torn_line};
use crate::exit::{Exit, Failure};
use crate::output::{Output, below, bytes, count};
use serde_json::json;
use spool::Damage;
use spool::inspect::Summary;
use std::path::Path;

pub(crate) fn run(target: &SpoolTarget) -> Result<Exit, Failure> {
    let summary = read(&target.dir, false, &mut |_| {})?;
    let mut output = Output::new();
    if target.json {
        let recovery = &summary.recovery;
        output.print_json(&json!({
            "directory": target.dir.display().to_string(), "sound": summary.damage.is_empty(),
            "segments": recovery.segments, "frames": summary.frames, "bytes": summary.bytes,
            "messages": recovery.messages, "recipients": recovery.recipients, "torn": recovery.torn,
            "livemaps_lost": recovery.livemaps_lost, "damage": summary.damage.iter().map(damage_json).collect::<Vec<_>>(),
        }));
    } else {
        lines(&mut output, &target.dir, &summary);
    }
    output.finish()?;
    Ok(exit_of(&summary))
}

fn lines(output: &mut Output, dir: &Path, summary: &Summary) {
    let recovery = &summary.recovery;
    let (segments, frames) = (count(recovery.segments, "segment"), count(summary.frames, "frame"));
    let verdict = match summary.damage.len() {
        0 => "sound".to_owned(),
        damaged => format!("DAMAGED, {}", count(damaged as u64, "place")),
    };
    output.print_line(format_args!("{}: {verdict}", dir.display()));
    output.print_line(format_args!("  read    {segments}, {frames}, {}", bytes(summary.bytes)));
    let (messages, recipients) = (count(recovery.messages, "message"), count(recovery.recipients, "recipient"));
    output.print_line(format_args!("  holds   {messages} for {recipients}"));
    if let Some(line) = torn_line(recovery.torn) {
        output.print_line(format_args!("  torn    {line}"));
    }
    for Damage { path, offset, bytes, id, what } in &summary.damage {
        let message = id.map(|id| format!(", message {id}")).unwrap_or_default();
        output
            .print_line(format_args!("  DAMAGE  {} offset {offset}, {bytes} bytes: {what}{message}", below(dir, path)));
    }
    if !summary.damage.is_empty() {
        output.print_line(
            "\nCopy the directory before anything else. mailrace starts with it all the same: whatever still reads is kept, \
             and a message\nwhose body is damaged stays in the queue. Look at the disk and the kernel log.",
        );
    }
}
