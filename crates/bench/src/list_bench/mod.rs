//! How fast lists reach their recipients past dead and hung hosts, beside other servers.
//!
//! The command `mailrace-bench list`: starts itself again in a network of its own (`bench/peers/alone`), where
//! `mailrace sim` is the internet ([`internet`], [`world`]) with ports 25 and 53, brings lists to servers that ask this
//! DNS for hosts ([`flow`]), and reads the arrivals from the ledger of the internet ([`ledger`]). Some parts look at
//! mailrace only: a million recipients that wait for dead hosts ([`stragglers`]), limits under many sessions
//! ([`limits`]), a kill in the middle of a large list ([`restart`]), how often its body is stored ([`bodies`]). Servers
//! and cases take turns round after round ([`plan`]); [`report`] makes the tables.
//!
//! Everything shares the machine, so figures mean something beside each other only. A run does not fail because
//! something took long. It fails when there are no figures, when mail is lost or comes twice, and when another rule is
//! broken that holds on a slow machine too ([`report::ReportLine::must`], [`musts`]).

mod bodies;
mod flow;
mod internet;
mod ledger;
mod limits;
mod musts;
mod plan;
mod report;
mod restart;
mod stragglers;
mod tries;
mod world;

use crate::machine::say;
use clap::ValueEnum;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Measures lists.
#[derive(Clone, Debug, clap::Args)]
pub struct ListBenchArguments {
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
    /// The script that runs other servers; "alone" lies beside it
    #[arg(long, default_value = "bench/peers/peer")]
    peers: PathBuf,
    /// Servers, in the order of the tables; "before" is the mailrace of --before
    #[arg(long, value_delimiter = ',', default_value = "mailrace,postfix,postfix-default,exim,sendmail")]
    servers: Vec<String>,
    /// Parts to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = ListPart::ALL)]
    parts: Vec<ListPart>,
    /// Rounds of each part
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Time between a flight of commands and the replies of a host, in milliseconds
    #[arg(long, default_value_t = 20)]
    delay: u32,
    /// Octets of each message
    #[arg(long, default_value_t = 4_096)]
    bytes: usize,
    /// The longest time for the lists of one sample, in seconds; each part has a limit of its own as well
    #[arg(long, default_value_t = 600)]
    longest: u64,
    /// Hosts of the parts "large" and "restart", each with ten recipients
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    large_hosts: u32,
    /// Recipients that wait for bad hosts in the part "stragglers"; with 0 a server is compared with its like
    #[arg(long, default_value_t = 1_000_000)]
    waiting: u64,
    /// The behaviour of those hosts
    #[arg(long, value_enum, default_value_t = stragglers::Bad::Dead)]
    stragglers: stragglers::Bad,
    /// Every server does every part with lists, also those that need many minutes for it; --longest bounds each sample
    #[arg(long)]
    all_servers: bool,
    /// One round
    #[arg(long)]
    quick: bool,
    /// Where the figures go as JSON [default: list.json beside this program]
    #[arg(long)]
    json: Option<PathBuf>,
    /// This process is in its network already
    #[arg(long, hide = true)]
    inside: bool,
}

impl ListBenchArguments {
    fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds.max(1) }
    }
}

/// A part of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListPart {
    /// One message to 2,000 recipients on 1,000 hosts, of which 2 % drop packets and 2 % hang
    Single,
    /// One message to 2,000 live recipients on 1,000 hosts, with none, 10 and 30 % of all hosts bad in addition
    Share,
    /// The same with hosts that answer, 5 or 19 s late at each flight
    Slow,
    /// Ten messages in a row, with 0, 10 and 30 % bad hosts
    Ten,
    /// Two hundred of them, with 0 and 10 %
    Twohundred,
    /// One message to 8,000 live recipients on 4,000 hosts, with 1,000 more that are bad in one way: more than there
    /// are places
    Beyond,
    /// One message to 100,000 recipients on 10,000 hosts, and how often its body is in the spool
    Large,
    /// The same with kill -9 in the middle, and killed while all of it is held, beside no kill
    Restart,
    /// A million recipients wait for 5,000 dead hosts
    Stragglers,
    /// Limits of destinations under 50 sessions: with all, without a rate, without a rule
    Limits,
}

impl ListPart {
    const ALL: [Self; 10] = [
        Self::Single,
        Self::Share,
        Self::Slow,
        Self::Ten,
        Self::Twohundred,
        Self::Beyond,
        Self::Large,
        Self::Restart,
        Self::Stragglers,
        Self::Limits,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Single => "One list",
            Self::Share => "One list, by share of bad hosts",
            Self::Slow => "One list, by share of slow hosts",
            Self::Ten => "Ten lists in a row",
            Self::Twohundred => "Two hundred lists in a row",
            Self::Beyond => "More bad hosts than places",
            Self::Large => "A large list",
            Self::Restart => "A large list and a restart",
            Self::Stragglers => "Stragglers",
            Self::Limits => "Limits",
        }
    }
}

/// Runs the requested parts, prints and writes the report.
#[must_use]
pub fn run(arguments: &ListBenchArguments) -> ExitCode {
    let done = if arguments.inside { plan::run(arguments) } else { enter(arguments) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("list: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Becomes the script that makes the network and runs this program with the same words in it.
///
/// # Errors
/// The script cannot be run. The script reports its other failures itself.
fn enter(arguments: &ListBenchArguments) -> Result<(), String> {
    let alone = arguments.peers.with_file_name("alone");
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let error = Command::new(&alone).arg(own).args(std::env::args_os().skip(1)).arg("--inside").exec();
    Err(format!("{}: {error}", alone.display()))
}
