//! `mailrace demo`: a server, a storm, a kill -9 and a count; then a server that stays up to be tried.
//!
//! Nothing is arranged: the server that is killed is this program started again as `mailrace serve`, it dies by SIGKILL with
//! its sessions in the middle of their messages, and what was acknowledged is what the storm's clients saw. Then its spool is
//! opened and each message read. What a kill cannot show, the loss of power, is said.

mod report;
mod victim;

use crate::exit::{Exit, Failure};
use crate::output::{Output, Progress, thousands};
use crate::place::Place;
use crate::serve::failure;
use bench::storm::{self, Plan};
use clap::Args;
use report::{Counted, Report};
use server::config::{self, Machine};
use server::serve::Prepared;
use spool::disk::real::RealDisk;
use spool::{Spool, Store as _};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use victim::Victim;

/// What `--help` says at its end.
pub(crate) const HELP: &str = "\
Everything lies in one directory, ./run: the spool, the log, the control socket. The next demonstration removes the spool
of the last one, and nothing that it did not make.

Exit status:
   0  no acknowledged message was lost
   1  acknowledged mail was lost
  69  the address cannot be had
  73  the directory may not be used
  74  reading or writing failed
  75  an earlier demonstration still runs";

/// Room that a demonstration may need: five segments and the storms.
const ROOM: u64 = 400 << 20;

#[derive(Clone, Debug, Args)]
pub(crate) struct Arguments {
    /// Where the server listens; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:2525")]
    listen: SocketAddr,
    /// Where spool, log and control socket are made
    #[arg(long, default_value = "./run")]
    dir: PathBuf,
    /// Messages of each of the two storms
    #[arg(long, default_value_t = 2_030, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    messages: u64,
    /// Connections at a time
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    sessions: u32,
    /// End after the count instead of staying up
    #[arg(long)]
    exit: bool,
}

impl Arguments {
    fn spool(&self) -> PathBuf {
        self.dir.join("spool")
    }

    fn control(&self) -> PathBuf {
        self.dir.join("control")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The configuration of both servers, as `--set` takes it.
    fn settings(&self) -> Vec<String> {
        vec![
            format!("spool.path={}", self.spool().display()),
            "spool.size_max=2GiB".to_owned(),
            "spool.free_min=64MiB".to_owned(),
            format!("control.path={}", self.control().display()),
            format!("log.path={}", self.log().display()),
            format!("listen=[{{address=\"{}\"}}]", self.listen),
            "delivery.mode=queue".to_owned(),
        ]
    }

    fn plan(&self, to: SocketAddr, run: &str) -> Plan {
        Plan {
            messages: Some(self.messages),
            sessions: self.sessions,
            // Names that no storm of an earlier demonstration has had.
            run: format!("{run}-{}", std::process::id()),
            ..Plan::new(to)
        }
    }
}

/// Runs the demonstration.
pub(crate) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    is_free(arguments.listen)?;
    let disk = RealDisk::new();
    let place = Place::make(&arguments.spool(), ROOM, &disk)?;
    let ledger = arguments.dir.join(format!("ledger-{}", std::process::id()));
    let mut output = Output::new();
    let mut tell = |text: String| {
        output.line(text);
        output.flush();
    };

    let victim = Victim::start(arguments)?;
    let report = Report { arguments: arguments.clone(), space: place.space };
    tell(report.opening(victim.address, victim.process));
    let first = measured_storm(&arguments.plan(victim.address, "first"))?;
    if !first.is_complete() {
        return Err(Failure::new(Exit::Io, format!("not every message was accepted:\n{}", first.text())));
    }
    tell(report.storm(&first, &victim.status()?));

    let plan = Plan { ledger: Some(ledger.clone()), ..arguments.plan(victim.address, "second") };
    let result = kill_in_the_middle(victim, plan)
        .and_then(|()| storm::acknowledged(&ledger).map_err(|error| Failure::io(ledger.display(), &error)));
    // Made above, and read.
    drop(std::fs::remove_file(&ledger));
    let counted = count(arguments, &first.run, &result?)?;
    tell(report.count(&counted));
    output.finish()?;
    if arguments.exit || counted.exit() != Exit::Ok {
        return Ok(counted.exit());
    }
    stay_up(arguments, &report)
}

/// Fails early, with the words of the server, if something else listens there.
fn is_free(listen: SocketAddr) -> Result<(), Failure> {
    let setting = format!("listen=[{{address=\"{listen}\"}}]");
    let loaded = config::load("", None, &[setting], &Machine::here())
        .map_err(|problems| Failure::new(Exit::Config, config::render(&problems)))?;
    match server::accept::listener::bind(&loaded.config.listen, Vec::new(), 1, 1) {
        Ok(_) => Ok(()),
        Err(errors) => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let message =
                format!("{}\nor choose another one here: mailrace demo --listen 127.0.0.1:2526", errors.join("\n"));
            Err(Failure::new(Exit::Unavailable, message))
        }
    }
}

fn measured_storm(plan: &Plan) -> Result<storm::Report, Failure> {
    let line = Progress::new();
    let report = storm::run(plan, &mut |at| {
        line.show(format_args!("     {} accepted, {:.0}/s", thousands(at.accepted), at.per_second));
    });
    line.clear();
    Ok(report?)
}

/// Sends a storm and kills the server with SIGKILL when half of it is acknowledged.
fn kill_in_the_middle(victim: Victim, mut plan: Plan) -> Result<(), Failure> {
    let (told, acknowledged) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    (plan.told, plan.stop) = (Some(told), Some(Arc::clone(&stop)));
    let half = usize::try_from(plan.messages.unwrap_or(2) / 2).unwrap_or(1);
    let killer = std::thread::spawn(move || {
        let seen = acknowledged.iter().take(half).count();
        let killed = victim.kill();
        // Nobody is there any more to take the rest.
        stop.store(true, Ordering::Release);
        (seen, killed)
    });
    let storm = storm::run(&plan, &mut |_| {});
    // The last sender, without which the thread would wait for ever if the storm did not start.
    drop(plan);
    let (seen, killed) =
        killer.join().map_err(|_| Failure::new(Exit::Io, "the thread that kills the server panicked; report a bug"))?;
    let report = storm?;
    killed?;
    if seen < half {
        let message = format!("the storm ended before the server could be killed:\n{}", report.text());
        return Err(Failure::new(Exit::Io, message));
    }
    Ok(())
}

/// Opens the spool of the dead server and looks for everything that was acknowledged, byte by byte.
fn count(arguments: &Arguments, first: &str, second: &[storm::Acknowledged]) -> Result<Counted, Failure> {
    let loaded = config::load("", None, &arguments.settings(), &Machine::here())
        .map_err(|problems| Failure::new(Exit::Config, config::render(&problems)))?;
    let (spool, recovery) = Spool::open(loaded.config.spool(), Arc::new(RealDisk::new()))?;
    let mut counted = Counted { acknowledged: second.len() as u64, recovery, ..Counted::default() };
    let mut of_first = BTreeSet::new();
    let mut of_second = BTreeSet::new();
    let line = Progress::new();
    for (done, id) in spool.messages().into_iter().enumerate() {
        if done.is_multiple_of(256) {
            line.show(format_args!("     {} read", thousands(done as u64)));
        }
        counted.found += 1;
        let body = spool.body(id).map_err(|error| error.to_string());
        match body.and_then(|pieces| storm::arrived(&pieces.concat()).map_err(|error| error.to_string())) {
            Ok(message) if message.run == first => {
                if !of_first.insert(message.seq) {
                    counted.wrong.push(format!("{id}: message {message} is there twice"));
                }
            }
            Ok(message) => {
                if !of_second.insert(message.seq) {
                    counted.wrong.push(format!("{id}: message {message} is there twice"));
                }
                if second.iter().any(|line| line.seq == message.seq && line.id != id.to_string()) {
                    counted.wrong.push(format!("{id}: message {message} was acknowledged under another name"));
                }
            }
            Err(why) => counted.wrong.push(format!("{id}: {why}")),
        }
    }
    line.clear();
    let lost_of_first = arguments.messages - of_first.len() as u64;
    let lost_of_second = second.iter().filter(|line| !of_second.contains(&line.seq)).count() as u64;
    counted.lost = lost_of_first + lost_of_second;
    counted.earlier = arguments.messages;
    counted.unanswered = of_second.len() as u64 - (counted.acknowledged - lost_of_second);
    Ok(counted)
}

/// A server in this process, on the spool that was just looked at, until a signal ends it.
fn stay_up(arguments: &Arguments, report: &Report) -> Result<Exit, Failure> {
    let settings = arguments.settings();
    let loaded = config::load("", None, &settings, &Machine::here())
        .map_err(|problems| Failure::new(Exit::Config, config::render(&problems)))?;
    let source = server::Source { path: None, overrides: settings, machine: Machine::here() };
    let prepared = Prepared::new(&loaded, source).map_err(failure)?;
    let ready = |addresses: &[SocketAddr]| {
        let mut output = Output::new();
        output.line(report.invitation(addresses.first().copied().unwrap_or(arguments.listen)));
        // Nobody may be there to read it.
        drop(output.finish());
    };
    let ended = prepared.run(ready).map_err(failure)?;
    let mut output = Output::new();
    output.line(report.farewell(ended.cut_off));
    output.finish()?;
    Ok(Exit::Ok)
}
