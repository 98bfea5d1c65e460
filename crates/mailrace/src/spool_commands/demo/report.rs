//! What the demonstration tells, and the figures in it.

use super::Arguments;
use crate::output::{bytes, count, thousands};
use crate::spool_commands::stats::{durability, space_json};
use serde_json::{Value, json};
use spool::Recovery;
use spool::disk::Space;
use spool::inspect::Summary;
use std::path::PathBuf;

/// Everything that was seen.
pub(super) struct Report {
    arguments: Arguments,
    space: Space,
    pub(super) acknowledged: u64,
    pub(super) found: u64,
    /// Found and not acknowledged: written when the kill came.
    pub(super) unacknowledged: u64,
    pub(super) lost: u64,
    pub(super) recovery: Recovery,
    pub(super) second: Second,
    pub(super) verified: Option<Summary>,
    /// Whatever is not as it should be, in words.
    pub(super) wrong: Vec<String>,
}

/// The measured half.
#[derive(Default)]
pub(super) struct Second {
    pub(super) took_us: u64,
    /// Time of each commit in microseconds, sorted.
    pub(super) times: Vec<u64>,
    pub(super) syncs: u64,
    pub(super) commits: u64,
}

impl Second {
    fn per_second(&self, number: u64) -> f64 {
        as_f64(number) * 1e6 / as_f64(self.took_us)
    }

    fn quantile(&self, percent: usize) -> u64 {
        let at = (self.times.len() * percent / 100).min(self.times.len().saturating_sub(1));
        self.times.get(at).copied().unwrap_or(0)
    }

    fn flushes(&self) -> f64 {
        as_f64(self.syncs) / as_f64(self.commits.max(1))
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people, far below 2^52")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

/// A time with its unit, three digits or so.
fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..100_000 => format!("{:.1} ms", as_f64(us) / 1e3),
        100_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{:.1} s", as_f64(us) / 1e6),
    }
}

impl Report {
    pub(super) fn new(arguments: &Arguments, space: Space) -> Self {
        Self {
            arguments: arguments.clone(),
            space,
            acknowledged: 0,
            found: 0,
            unacknowledged: 0,
            lost: 0,
            recovery: Recovery::default(),
            second: Second::default(),
            verified: None,
            wrong: Vec::new(),
        }
    }

    pub(super) fn opening(&self) -> String {
        let Arguments { dir, messages, committers, size, .. } = &self.arguments;
        format!(
            "{} of {} from {}, into a new spool at {}\nfile system: {}; a power cut: {}\n\n\
             1. A process commits them. Half way it is killed with SIGKILL, and this one recovers the spool.",
            count(*messages, "message"),
            bytes((*size).into()),
            count((*committers).into(), "committer"),
            dir.display(),
            self.space.file_system,
            durability(&self.space)
        )
    }

    pub(super) fn first_half(&self) -> String {
        let more = match self.unacknowledged {
            0 => String::new(),
            number => format!("   {} of them durable before their 250 could be sent", thousands(number)),
        };
        let torn = match self.recovery.torn {
            0 => String::new(),
            number => format!(
                ", {} cut off and dropped",
                if number == 1 { "1 batch".to_owned() } else { format!("{number} batches") }
            ),
        };
        format!(
            "{}{}{}{}\n2. This process commits the other half and closes the spool.",
            row("acknowledged", &thousands(self.acknowledged), ""),
            row("found", &thousands(self.found), &more),
            row("lost", &thousands(self.lost), ""),
            row(
                "recovery",
                &time(self.recovery.took_us),
                &format!("   {}{torn}", count(self.recovery.segments, "segment"))
            ),
        )
    }

    pub(super) fn second_half(&self) -> String {
        let Second { times, .. } = &self.second;
        let number = times.len() as u64;
        let volume = self.second.per_second(number * u64::from(self.arguments.size)) / 1e6;
        let rate = format!("{:.0}", self.second.per_second(number));
        let rate = rate.parse().map(thousands).unwrap_or(rate);
        format!(
            "{}{}{}{}{}\n3. Everything is read once more, from the closed spool.",
            row("committed", &thousands(number), ""),
            row("messages/s", &rate, ""),
            row("MB/s", &format!("{volume:.1}"), ""),
            row(
                "commit time",
                &time(self.second.quantile(50)),
                &format!("   median; 99 % within {}", time(self.second.quantile(99)))
            ),
            row("flushes", &format!("{:.3}", self.second.flushes()), "   for each commit"),
        )
    }

    pub(super) fn closing(&self) -> String {
        let dir = self.arguments.dir.display();
        let read = self.verified.as_ref().map_or_else(String::new, |summary| {
            let damage = match summary.damage.len() {
                0 => "none".to_owned(),
                number => thousands(number as u64),
            };
            let frames = format!("   {} in {}", count(summary.frames, "frame"), bytes(summary.bytes));
            row("messages", &thousands(summary.recovery.messages), &frames) + &row("damage", &damage, "")
        });
        let wrong = match self.wrong.as_slice() {
            [] => String::new(),
            wrong => {
                let shown: Vec<&str> = wrong.iter().take(10).map(String::as_str).collect();
                format!("\nWRONG, {}:\n  {}\n", count(wrong.len() as u64, "finding"), shown.join("\n  "))
            }
        };
        let program = std::env::args_os().next().map_or_else(|| "mailrace".into(), PathBuf::from);
        let next = [
            ("inspect", "the segments; --frames for every record"),
            ("verify", "every byte against its checksum"),
            ("stats", "destinations and room"),
        ];
        let next = next.map(|(command, what)| {
            let line = format!("{} spool {command} {dir}", program.display());
            format!("  {line:<46}  {what}\n")
        });
        format!(
            "{read}{wrong}\nkill -9 takes the process, not the page cache: this says nothing about a power cut. `make crash` \
             cuts the power.\n\nNext:\n{}",
            next.concat().trim_end()
        )
    }

    pub(super) fn as_json(&self) -> Value {
        let Second { took_us, times, syncs, commits } = &self.second;
        let number = times.len() as u64;
        let verified = self.verified.as_ref();
        json!({
            "directory": self.arguments.dir.display().to_string(),
            "messages": self.arguments.messages, "committers": self.arguments.committers, "size": self.arguments.size,
            "file_system": space_json(&self.space),
            "killed": {
                "acknowledged": self.acknowledged, "found": self.found, "unacknowledged": self.unacknowledged,
                "recovery_us": self.recovery.took_us, "segments": self.recovery.segments, "torn": self.recovery.torn,
            },
            "measured": {
                "committed": number, "took_us": took_us, "messages_per_second": self.second.per_second(number),
                "bytes_per_second": self.second.per_second(number * u64::from(self.arguments.size)),
                "p50_us": self.second.quantile(50), "p99_us": self.second.quantile(99),
                "commits": commits, "flushes": syncs,
            },
            "verified": {
                "messages": verified.map(|summary| summary.recovery.messages),
                "frames": verified.map(|summary| summary.frames),
                "damage": verified.map(|summary| summary.damage.len()),
            },
            "lost": self.lost,
            "wrong": self.wrong,
        })
    }
}

/// A figure with its name before it, and perhaps words after it.
fn row(name: &str, figure: &str, words: &str) -> String {
    format!("     {name:<14}{figure:>10}{words}\n")
}
