//! `mailrace spool demo`: a spool at work, killed half way, recovered, compared and measured.
//!
//! The story is told while it happens, and nothing in it is arranged: the child is this program, it is killed with
//! SIGKILL wherever it is, and what it acknowledged is what came through the pipe. What the demonstration cannot show,
//! the loss of power, it says.

mod letter;
mod load;
mod report;
mod writer;

pub(super) use writer::write_until_killed;

use crate::exit::{Exit, Failure};
use crate::output::{Output, Progress, count, thousands};
use crate::place::Place;
use clap::Args;
use load::Load;
use mail::{Node, QueueId, QueueIds};
use report::{Report, Second};
use spool::disk::Disk;
use spool::disk::real::RealDisk;
use spool::inspect::Fact;
use spool::{Config, Spool, Store as _};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, Debug, Args)]
pub(crate) struct Arguments {
    /// Where the spool is made; an earlier demonstration there is removed, anything else is left alone
    #[arg(long, default_value = "./run/spool")]
    dir: PathBuf,
    /// Messages, half of them before the kill
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    messages: u64,
    /// Threads that commit messages, each one after the other, like as many clients
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    committers: u16,
    /// Bytes of each message
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(512..=262_144))]
    size: u32,
    /// Print JSON at the end instead of the story
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The spool's own defaults, with segments small enough that the messages fill some.
    fn config(&self) -> Config {
        let mut config = Config::new(&self.dir);
        let inline_least = self.size.saturating_mul(8).next_power_of_two();
        let quarter = u32::try_from(self.bytes() / 4).unwrap_or(u32::MAX).clamp(1, 64 << 20).next_power_of_two();
        config.segment_bytes = quarter.max(inline_least).clamp(1 << 20, 64 << 20);
        config.size_max = config.size_max.max(2 * self.bytes());
        config.free_min = 64 << 20;
        config
    }

    /// What the messages take in the log, about.
    fn bytes(&self) -> u64 {
        self.messages * (u64::from(self.size) + 512)
    }
}

/// Runs the demonstration.
pub(crate) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let config = arguments.config();
    let needed = arguments.bytes() + 8 * u64::from(config.segment_bytes) + config.free_min;
    let place = Place::make(&arguments.dir, needed, disk.as_ref())?;
    let mut report = Report::new(arguments, place.space.clone());
    let mut output = Output::new();
    let tell = |output: &mut Output, lines: String| {
        if !arguments.json {
            output.line(lines);
            output.flush();
        }
    };
    tell(&mut output, report.opening());

    let killed = writer::kill_half_way(arguments)?;
    let (spool, recovery) = Spool::open(arguments.config(), Arc::clone(&disk))?;
    let mut found = compare(&spool, arguments, &killed, &mut report);
    report.recovery = recovery.clone();
    tell(&mut output, report.first_half());

    let ids = QueueIds::after(Node::default(), QueueId::from_u64(recovery.largest_id).unwrap_or(QueueId::MIN));
    let load = Load { spool: &spool, disk: disk.as_ref(), arguments, start_us: place.start_us };
    report.second = second_half(&load, ids, &mut found)?;
    drop(spool);
    tell(&mut output, report.second_half());

    verify(arguments, disk.as_ref(), &found, &mut report)?;
    tell(&mut output, report.closing());
    if arguments.json {
        output.json(&report.as_json());
    }
    output.finish()?;
    Ok(report.exit())
}

/// Looks for everything that was acknowledged, byte by byte; returns all that is in the spool.
fn compare(spool: &Spool, arguments: &Arguments, killed: &HashSet<QueueId>, report: &mut Report) -> HashSet<QueueId> {
    let progress = Progress::new();
    let mut found = spool.messages();
    found.sort_unstable();
    let mut good = HashSet::with_capacity(found.len());
    for (done, id) in found.iter().enumerate() {
        if done.is_multiple_of(256) {
            progress.show(format_args!("compared {} of {}", thousands(done as u64), thousands(found.len() as u64)));
        }
        match letter::check(spool, *id, arguments.size) {
            Ok(()) => drop(good.insert(*id)),
            Err(why) => report.wrong.push(format!("{id}: {why}")),
        }
    }
    progress.clear();
    report.acknowledged = killed.len() as u64;
    report.found = found.len() as u64;
    report.unacknowledged = good.difference(killed).count() as u64;
    for id in killed.difference(&good) {
        report.lost += 1;
        report.wrong.push(format!("{id}: acknowledged and not found"));
    }
    good
}

/// Commits the other half in this process and measures it.
fn second_half(load: &Load<'_>, ids: QueueIds, found: &mut HashSet<QueueId>) -> Result<Second, Failure> {
    let progress = Progress::new();
    let (before, started_us) = (load.spool.statistics(), load.disk.now_us());
    let messages = load.arguments.messages.div_ceil(2);
    let mut times = Vec::new();
    let result = load.run(ids, messages, &mut |acknowledged| {
        found.insert(acknowledged.id);
        times.push(acknowledged.took_us);
        if times.len().is_multiple_of(256) {
            progress.show(format_args!("{} of {}", thousands(times.len() as u64), count(messages, "message")));
        }
        Ok(())
    });
    progress.clear();
    result?;
    let took_us = load.disk.now_us().saturating_sub(started_us).max(1);
    let after = load.spool.statistics();
    times.sort_unstable();
    let syncs = after.syncs - before.syncs;
    Ok(Second { took_us, times, syncs, commits: after.commits - before.commits })
}

/// Reads the closed spool from its bytes alone and looks for everything once more.
fn verify(
    arguments: &Arguments,
    disk: &dyn Disk,
    found: &HashSet<QueueId>,
    report: &mut Report,
) -> Result<(), Failure> {
    let progress = Progress::new();
    progress.show("reading everything again");
    let mut there = HashSet::with_capacity(found.len());
    let summary = spool::inspect::inspect(disk, &arguments.dir, true, &mut |fact| {
        if let Fact::Frame { id: Some(id), live: true, .. } = fact {
            there.insert(*id);
        }
    })?;
    progress.clear();
    for id in found.difference(&there) {
        report.lost += 1;
        report.wrong.push(format!("{id}: not found in the closed spool"));
    }
    report.wrong.extend(summary.damage.iter().map(ToString::to_string));
    report.verified = Some(summary);
    Ok(())
}

impl Report {
    fn exit(&self) -> Exit {
        match (self.lost, self.wrong.is_empty()) {
            (0, true) => Exit::Ok,
            (0, false) => Exit::Damaged,
            _ => Exit::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use spool::disk::Space;

    #[test]
    fn a_lost_message_fails_the_demonstration() {
        let dir = "run/spool".into();
        let arguments = Arguments { dir, messages: 2, committers: 1, size: 512, json: false };
        let file_system = "ext4".to_owned();
        let space = Space { file_system, volatile: false, copy_on_write: false, direct: true, free: 0, total: 0 };
        let mut report = Report::new(&arguments, space);
        assert_eq!(report.exit(), Exit::Ok);
        report.wrong.push("a damaged place".to_owned());
        assert_eq!(report.exit(), Exit::Damaged);
        report.lost = 1;
        assert_eq!(report.exit(), Exit::Lost);
        assert!(report.closing().contains("WRONG, 1 finding:\n  a damaged place"));
    }

    #[test]
    fn every_size_fits_its_segments() {
        for (messages, size) in [(2, 512), (20_000, 4096), (10_000_000, 262_144), (2, 262_144)] {
            let arguments = Arguments { dir: "x".into(), messages, committers: 1, size, json: false };
            let config = arguments.config();
            config.check().expect("a config that works");
            assert!(config.inline_bytes_max() >= size as usize, "{messages} of {size}");
        }
    }
}
