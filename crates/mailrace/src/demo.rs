//! `mailrace demo`: a relay, a storm, a kill -9 and a count; then a relay that stays up to be tried.
//!
//! The relay that is killed is this program started again as `mailrace serve`. It dies by SIGKILL with its sessions in
//! the middle of their messages. The acknowledged messages are counted by the storm's clients, and the arrived messages
//! by a next hop in this process. The report says that a kill does not show a loss of power.

mod books;
pub(crate) mod children;
pub(crate) mod clock;
mod report;
mod storms;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::place::make_place;
use crate::serve::start_failure;
use bench::receiver::{Manners, Receiver};
use children::{Relay, Sink};
use clap::Args;
use report::StoryReport;
use server::config;
use server::start::Prepared;
use spool::disk::real::RealDisk;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

/// The end of `--help`.
pub(crate) const HELP: &str = "\
Everything lies in one directory, ./run: the spool, the log, the control socket. The next demonstration removes the spool
of the last one, and nothing that it did not make.

Exit status:
   0  no acknowledged message was lost
   1  acknowledged mail was lost
  65  something else than was sent has arrived
  69  the address cannot be had
  73  the directory may not be used
  74  reading or writing failed, or a server went away
  75  an earlier demonstration still runs";

/// Room that a demonstration may need: five segments and the storms.
const ROOM: u64 = 400 << 20;

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArguments {
    /// Where the relay listens; port 0 takes a free one
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
    /// Where the relay has its page; port 0 takes a free one; none if another program listens there
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8025")]
    http: SocketAddr,
    /// End after the count instead of staying up
    #[arg(long)]
    exit: bool,
    /// The address of the page, if it is free.
    #[arg(skip)]
    page: Option<SocketAddr>,
}

impl DemoArguments {
    fn spool(&self) -> PathBuf {
        self.dir.join("spool")
    }

    fn control(&self) -> PathBuf {
        self.dir.join("control")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The configuration of a relay to this next hop, as `--set` takes it.
    fn settings(&self, next_hop: SocketAddr) -> Vec<String> {
        let mut settings = vec![
            format!("spool.path={}", self.spool().display()),
            "spool.size_max=2GiB".to_owned(),
            "spool.free_min=64MiB".to_owned(),
            "spool.ready_bytes=0".to_owned(),
            format!("control.path={}", self.control().display()),
            // The sendmail command is not used.
            "submit.directory=\"\"".to_owned(),
            format!("log.path={}", self.log().display()),
            format!("listen=[{{address=\"{}\"}}]", self.listen),
            format!("route.smart_host=[\"[{}]:{}\"]", next_hop.ip(), next_hop.port()),
        ];
        if let Some(page) = self.page {
            // All mail of the demonstration is its own, so every user of this machine may change it.
            settings.extend([format!("http.address={page}"), "http.without_token=operate".to_owned()]);
        }
        if config::this_machine().is_root {
            // The directory is root's, and another user might not get there.
            settings.push("server.user=root".to_owned());
        }
        settings
    }
}

/// Runs the demonstration.
pub(crate) fn run(arguments: &DemoArguments) -> Result<Exit, Failure> {
    is_free(arguments.listen)?;
    let arguments = &DemoArguments { page: free_page(arguments.http), ..arguments.clone() };
    let disk = RealDisk::new();
    let space = make_place(&arguments.spool(), ROOM, &disk)?;
    let ledger = arguments.dir.join(format!("ledger-{}", std::process::id()));
    let mut output = Output::new();
    let mut tell = |text: String| {
        output.print_line(text);
        output.flush();
    };

    let sink = Sink::start()?;
    let relay = Relay::start(arguments, sink.address(), None)?;
    let report = StoryReport { arguments: arguments.clone(), space };
    tell(report.opening_text(&relay, &sink));
    tell(report.measured_text(&storms::run_measured_storm(arguments, relay, sink)?));

    let receiver = Receiver::start(true, Manners::default());
    let receiver = receiver.map_err(|error| Failure::io("starting the next hop", &error))?;
    tell(report.before_the_kill(receiver.at()));
    let second = storms::run_killed_storm(arguments, &receiver, &ledger);
    // Made above, and read.
    drop(std::fs::remove_file(&ledger));
    let second = second?;
    tell(report.killed_text(&second));
    output.finish()?;
    if arguments.exit || second.counted.exit() != Exit::Ok {
        return Ok(second.counted.exit());
    }
    // Its thread ends here: the relay to come has this process to itself.
    drop(receiver);
    stay_up(arguments, &report)
}

/// Returns the address of the page, with the port that the system chose if 0 was asked for; `None` if it is taken, or
/// other machines would reach it.
fn free_page(wanted: SocketAddr) -> Option<SocketAddr> {
    let listener = wanted.ip().is_loopback().then(|| TcpListener::bind(wanted).ok()).flatten()?;
    listener.local_addr().ok()
}

/// Fails early, with the words of the server, if something else listens there.
fn is_free(listen: SocketAddr) -> Result<(), Failure> {
    let setting = format!("listen=[{{address=\"{listen}\"}}]");
    let loaded = config::load("", None, &[setting], &config::this_machine())
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

/// A relay in this process, on the same spool and with a sink as next hop, until a signal ends it.
fn stay_up(arguments: &DemoArguments, report: &StoryReport) -> Result<Exit, Failure> {
    let sink = Sink::start()?;
    let settings = arguments.settings(sink.address());
    let loaded = config::load("", None, &settings, &config::this_machine())
        .map_err(|problems| Failure::new(Exit::Config, config::render(&problems)))?;
    let source = server::ConfigSource { path: None, overrides: settings, machine: config::this_machine() };
    let prepared = Prepared::new(&loaded, source).map_err(start_failure)?;
    let ready = |addresses: &[SocketAddr]| {
        let mut output = Output::new();
        output.print_line(report.commands_text(addresses.first().copied().unwrap_or(arguments.listen), &sink));
        // The output may be closed.
        drop(output.finish());
    };
    let ended = prepared.run(ready).map_err(start_failure)?;
    let taken = sink.end()?;
    let mut output = Output::new();
    output.print_line(report.end_text(ended.cut_off, taken));
    output.finish()?;
    Ok(Exit::Ok)
}
