//! Measures the cost of scanners: mail from a client through a server with SpamAssassin and ClamAV to one next hop.
//!
//! The command `mailrace-bench filtered`: a client sends messages of up to 10 KB, a connection for each, for a set
//! time; servers without filters, with scanners before the 250 and after it take turns. All contenders of a round ask
//! fresh scanners of the same configuration ([`scanners`]). A collapse shows in the ratio of the last third of the time
//! to the first ([`flow`]), a growing queue in the backlog.
//!
//! Client, scanners, server and receiver share the machine. No figure makes it fail.

mod contender;
mod distant;
mod flow;
mod report;
mod scanners;

use crate::machine::{self, Machine, say};
use crate::side_by_side::figures::Row;
use crate::side_by_side::servers::{RunDirectory, Site, beside};
use contender::Contender;
use flow::{FilteredLoad, sample};
use report::{FilteredReport, FilteredTable};
use scanners::Scanner;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures servers with scanners.
#[derive(Clone, Debug, clap::Args)]
pub struct FilteredBenchArguments {
    /// Where spools and queues are put; the file system of this directory is what is measured
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// A directory in memory (tmpfs), for what is not measured
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// The program mailrace [default: beside this program]
    #[arg(long)]
    mailrace: Option<PathBuf>,
    /// The script that runs other servers
    #[arg(long, default_value = "bench/peers/peer")]
    peers: PathBuf,
    /// Servers and placements, in the order of the table
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "mailrace,mailrace-before,mailrace-after,postfix,postfix-before"
    )]
    contenders: Vec<String>,
    /// Scanners that each message passes
    #[arg(long, value_enum, value_delimiter = ',', default_value = "spamd,clamd")]
    scanners: Vec<Scanner>,
    /// Sessions of the client
    #[arg(long, value_delimiter = ',', default_value = "1,20")]
    sessions: Vec<u32>,
    /// Seconds for which the client sends
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// The longest wait for mail that is still on its way when the client has ended, in seconds
    #[arg(long, default_value_t = 120)]
    drain: u64,
    /// Messages that may wait for scanners after the 250
    #[arg(long, default_value_t = 10_000)]
    backlog: u64,
    /// How long the scanner "distant" waits before it answers, in milliseconds
    #[arg(long, default_value_t = 5)]
    scanner_delay: u64,
    /// Rounds of each load
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// A smoke run: one round of a few seconds
    #[arg(long)]
    quick: bool,
    /// Where the figures go as JSON [default: filtered.json beside this program]
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the requested cases, prints and writes the report.
#[must_use]
pub fn run(arguments: &FilteredBenchArguments) -> ExitCode {
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("filtered: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &FilteredBenchArguments) -> Result<(), String> {
    let known = |name: &String| {
        let names = Contender::NAMES.join(", ");
        Contender::from_name(name).ok_or_else(|| format!("--contenders: there is no {name:?}; the names are: {names}"))
    };
    let contenders = arguments.contenders.iter().map(known).collect::<Result<Vec<_>, _>>()?;
    let work = RunDirectory::new(&arguments.dir)?;
    let beside = beside()?;
    let mailrace = arguments.mailrace.clone().unwrap_or_else(|| beside.join("mailrace"));
    let site = Site::new(mailrace, arguments.peers.clone(), &work, arguments.memory.clone())?;
    let (rounds, seconds) = if arguments.quick { (1, 3) } else { (arguments.rounds.max(1), arguments.seconds.max(1)) };
    let mut report =
        FilteredReport { machine: Machine::look(), file_system: machine::file_system(&arguments.dir), tables: vec![] };
    print(&report.head())?;
    for &sessions in &arguments.sessions {
        let load = FilteredLoad {
            sessions,
            seconds,
            drain: Duration::from_secs(arguments.drain),
            backlog: arguments.backlog,
            scanner_delay: Duration::from_millis(arguments.scanner_delay),
        };
        let names: Vec<&str> = arguments.scanners.iter().map(|scanner| scanner.name()).collect();
        let name = format!("{sessions} sessions for {seconds} s, up to 10 KB, scanners: {}", names.join(", "));
        let mut rows: Vec<Row<_>> = contenders.iter().map(|contender| Row::new(contender.name())).collect();
        for round in 0..rounds {
            for turn in 0..contenders.len() {
                let at = (turn + round) % contenders.len();
                let (Some(contender), Some(row)) = (contenders.get(at), rows.get_mut(at)) else { continue };
                if row.is_out() {
                    row.samples.push(None);
                    continue;
                }
                let taken = sample(&site, &work, contender, &arguments.scanners, load);
                let figure = match &taken {
                    Ok(sample) => format!("{:.0} messages/s accepted", sample.accepted_per_second()),
                    Err(why) => why.clone(),
                };
                say(&format!("filtered: {name}: round {}: {}: {figure}", round + 1, row.name));
                row.add(taken);
            }
        }
        let table = FilteredTable { load: name, rows };
        print(&table.markdown())?;
        report.tables.push(table);
    }
    let to = arguments.json.clone().unwrap_or_else(|| beside.join("filtered.json"));
    fs::write(&to, format!("{:#}\n", report.json())).map_err(|error| format!("{}: {error}", to.display()))?;
    say(&format!("filtered: all samples are in {}", to.display()));
    Ok(())
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| format!("standard output: {error}"))
}
