//! The half that dies: a process of its own that commits and says so on a pipe, and the one that kills it.

use super::Arguments;
use super::load::Load;
use crate::exit::{Exit, Failure};
use crate::output::{Progress, count, thousands};
use crate::place;
use mail::{Node, QueueId, QueueIds};
use spool::Spool;
use spool::disk::Disk;
use spool::disk::real::RealDisk;
use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The hidden command: commits messages and writes the queue id of each acknowledged one on a line of standard output.
///
/// When all are committed it waits to be killed, or ends with its parent.
pub(crate) fn write_until_killed(arguments: &Arguments) -> Result<Exit, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let start_us = place::start_us(&arguments.dir)?;
    let (spool, _) = Spool::open(arguments.config(), Arc::clone(&disk))?;
    let load = Load { spool: &spool, disk: disk.as_ref(), arguments, start_us };
    let mut pipe = std::io::stdout().lock();
    load.run(QueueIds::new(Node::default()), arguments.messages, &mut |acknowledged| {
        // A line is one write and shorter than the pipe's unit, so what the parent reads is whole.
        let line = format!("{}\n", acknowledged.id);
        pipe.write_all(line.as_bytes()).and_then(|()| pipe.flush()).map_err(|error| Failure::io("pipe", &error))
    })?;
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).map_err(|error| Failure::io("standard input", &error))?;
    Ok(Exit::Ok)
}

/// Starts a writer, kills it with SIGKILL when half of the messages are acknowledged, and returns those that were.
pub(super) fn kill_half_way(arguments: &Arguments) -> Result<HashSet<QueueId>, Failure> {
    let half = arguments.messages / 2;
    let mut child = start(arguments)?;
    let progress = Progress::new();
    let mut acknowledged = HashSet::new();
    let mut lines = BufReader::new(child.stdout.take().ok_or_else(|| broken("has no standard output"))?);
    let mut line = String::new();
    // After the kill the pipe still holds what was acknowledged before it.
    while {
        line.clear();
        lines.read_line(&mut line).map_err(|error| Failure::io("pipe", &error))?
    } > 0
    {
        let Some(text) = line.strip_suffix('\n') else { break };
        let id = text.parse().map_err(|error| broken(&format!("wrote what is no queue id: {error}")))?;
        acknowledged.insert(id);
        let number = acknowledged.len() as u64;
        if number == half {
            child.kill().map_err(|error| Failure::io("killing the child", &error))?;
        }
        if number.is_multiple_of(256) {
            progress.show(format_args!("{} of {}", thousands(number), count(half, "message")));
        }
    }
    progress.clear();
    let status = child.wait().map_err(|error| Failure::io("waiting for the child", &error))?;
    if (acknowledged.len() as u64) < half {
        // Its own words are on standard error.
        return Err(broken(&format!("ended before it was killed: {status}")));
    }
    Ok(acknowledged)
}

fn start(arguments: &Arguments) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::io("finding this program", &error))?;
    let mut command = Command::new(program);
    command.args(["spool", "demo-writer", "--dir"]).arg(&arguments.dir);
    for (option, value) in [
        ("--messages", arguments.messages),
        ("--committers", arguments.committers.into()),
        ("--size", arguments.size.into()),
    ] {
        command.arg(option).arg(value.to_string());
    }
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    child.map_err(|error| Failure::io("starting the child", &error))
}

fn broken(what: &str) -> Failure {
    Failure::new(Exit::Io, format!("demonstration: the child {what}; nothing was shown"))
}
