//! How fast mail is accepted durably, beside a sink of the same code that stores nothing and beside other servers.
//!
//! The command `mailrace-bench accept`: starts servers (`side_by_side`) as child processes, each sample a fresh one
//! with an empty queue, brings mail to them in several ways ([`clients`]), in turns, round after round, and prints
//! medians, spreads and paired ratios ([`report`]). After each sample with `mailrace serve` the messages in its spool
//! are compared with those that were acknowledged.
//!
//! Clients and servers share the machine, so figures mean something beside each other only. No figure makes it fail.
//! Not here: whether mail survives crashes (`crash`).

mod clients;
mod idle;
mod plan;
mod report;

use crate::machine::say;
use clap::ValueEnum;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures accepting mail.
#[derive(Clone, Debug, clap::Args)]
pub struct AcceptBenchArguments {
    /// Where spools and queues are put; the file system of this directory is what is measured
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// A directory in memory (tmpfs), for the part "memory"
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// The program mailrace [default: beside this program]
    #[arg(long)]
    mailrace: Option<PathBuf>,
    /// Another build of it, for the part "before"
    #[arg(long)]
    before: Option<PathBuf>,
    /// The script that runs other servers
    #[arg(long, default_value = "bench/peers/peer")]
    peers: PathBuf,
    /// Parts to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = AcceptPart::ALL)]
    parts: Vec<AcceptPart>,
    /// Rounds of each part
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each sample
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seconds from the start of a server to its first mail: time to fill segments ahead
    #[arg(long, default_value_t = 0.0)]
    settle: f64,
    /// Seconds of the storm at twice the capacity
    #[arg(long, default_value_t = 60.0)]
    overload_seconds: f64,
    /// Connections of the part "idle"
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// A smoke run of about a minute
    #[arg(long)]
    quick: bool,
    /// Where the figures go as JSON [default: accept.json beside this program]
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A part of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AcceptPart {
    /// mailrace beside its own sink: sessions, sizes, connections, TLS
    Sink,
    /// The first storm of a fresh spool beside the sink: 100 sessions kept alive, 4 KB; only when it is asked for
    First,
    /// On disk and in memory
    Memory,
    /// Beside other servers in queue-only mode, with smtp-source and postal
    Peers,
    /// One connection that sends the dot by itself
    Single,
    /// Connections that do nothing
    Idle,
    /// A storm at twice the capacity
    Overload,
    /// Beside another build of mailrace (--before): sessions and connections, in turns; only when it is asked for
    Before,
}

impl AcceptPart {
    const ALL: [Self; 6] = [Self::Sink, Self::Memory, Self::Peers, Self::Single, Self::Idle, Self::Overload];
}

/// Runs the requested cases, prints and writes the report.
#[must_use]
pub fn run(arguments: &AcceptBenchArguments) -> ExitCode {
    match plan::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("accept: {error}"));
            ExitCode::FAILURE
        }
    }
}
