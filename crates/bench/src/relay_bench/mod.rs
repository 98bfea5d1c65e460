//! How fast mail is accepted and passed on to one next hop, beside other servers.
//!
//! The command `mailrace-bench relay`: a client brings messages to a server, the server passes them on, a receiver
//! counts them ([`hop`]). A sample ([`flow`]) lasts until the last message has arrived; servers take turns within each
//! round ([`plan`]), and the table of a load is printed as soon as its rounds are over ([`report`]).
//!
//! Client, server and receiver share the machine, so figures mean something beside each other only, and processor time
//! is that of all of them. No figure makes it fail. Not here: accepting alone (`accept_bench`), and whether mail
//! survives crashes on its way (`crash`).

mod flow;
mod hop;
mod plan;
mod report;

use crate::machine::say;
use clap::ValueEnum;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures passing mail on.
#[derive(Clone, Debug, clap::Args)]
pub struct RelayBenchArguments {
    /// Where spools and queues are put; the file system of this directory is what is measured
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// A directory in memory (tmpfs), for what is not measured
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// The program mailrace [default: beside this program]
    #[arg(long)]
    mailrace: Option<PathBuf>,
    /// Another build of it, for the server "before"
    #[arg(long)]
    before: Option<PathBuf>,
    /// The script that runs other servers
    #[arg(long, default_value = "bench/peers/peer")]
    peers: PathBuf,
    /// Servers, in the order of the tables; "direct" is no server, the client sends to the receiver; "before" is the
    /// mailrace of --before, "history" mailrace with a history, "page" the same with an open page
    #[arg(long, value_delimiter = ',', default_value = "mailrace,postfix,exim,sendmail,opensmtpd,direct")]
    servers: Vec<String>,
    /// Loads to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = RelayLoad::ALL)]
    parts: Vec<RelayLoad>,
    /// Rounds of each load
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The most messages of a sample
    #[arg(long, default_value_t = 20_000)]
    messages: u64,
    /// Seconds from the start of a server to its first mail: time to fill segments ahead
    #[arg(long, default_value_t = 0.0)]
    settle: f64,
    /// A slow server gets as many messages as it passes on in this time, in seconds
    #[arg(long, default_value_t = 15.0)]
    seconds: f64,
    /// Sizes of messages
    #[arg(long, value_delimiter = ',', default_value = "4096,51200")]
    sizes: Vec<usize>,
    /// Sessions of the client
    #[arg(long, value_delimiter = ',', default_value = "20,100")]
    sessions: Vec<u32>,
    /// Processes of Postal: connections that it has open at a time
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,10,20")]
    processes: Vec<u32>,
    /// Seconds for which Postal sends
    #[arg(long, default_value_t = 10.0)]
    postal_seconds: f64,
    /// A smoke run: one round of few messages
    #[arg(long)]
    quick: bool,
    /// Where the figures go as JSON [default: relay.json beside this program]
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RelayLoad {
    /// smtp-source to smtp-sink, connections kept alive
    Source,
    /// smtp-source to smtp-sink, a connection for each message
    New,
    /// mailrace's own storm to a receiver that offers CHUNKING and looks at every message
    Storm,
    /// Postal to smtp-sink, 0 to 10 KB, a connection for each message
    Postal,
}

impl RelayLoad {
    const ALL: [Self; 4] = [Self::Source, Self::New, Self::Storm, Self::Postal];
}

/// Runs the requested cases, prints and writes the report.
#[must_use]
pub fn run(arguments: &RelayBenchArguments) -> ExitCode {
    match plan::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("relay: {error}"));
            ExitCode::FAILURE
        }
    }
}
