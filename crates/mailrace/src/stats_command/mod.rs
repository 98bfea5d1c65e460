//! `mailrace stats`: how much mail goes, when, where to, and which waits; from logs, or of the running server.
//!
//! The kinds are those of the source's tools, which are also names of this program: `batchstat`, `realstat`,
//! `mailstat`, `mailqq`, `latedudes`, `mailtest`. The sums are `observe::stats`, the lines of logs are read by
//! `observe::log_reader`; here are files, arguments and the forms of output. A kind implements [`Report`]; [`report`]
//! runs it on logs or on the server.
//!
//! [`Report`]: report::Report

mod batch;
mod chart;
pub(crate) mod civil_text;
mod clock;
mod day;
mod late;
mod live;
mod log_file;
mod logs;
mod mail_day;
mod mail_table;
mod mailbox;
mod probe;
mod queue;
mod real;
mod report;
mod table;

use crate::control_client::ControlTarget;
use crate::exit::{Exit, Failure};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// The end of `--help`.
pub(crate) const HELP: &str = "\
LOGFILE: log of sendmail, Postfix or mailrace, as it is or compressed (gzip, xz, zstd, bzip2); - is standard input.
Several are read in the order of their first lines. Without one, the running server is asked.

Called by one of the names batchstat, realstat, mailstat, mailqq, latedudes, mailtest, the program does the same.

Examples:
  mailrace stats mail /var/log/mail.log.1 /var/log/mail.log
  mailrace stats real --follow /var/log/mail.log
  mailrace stats day --date yesterday /var/log/mail.log*
  mailrace stats late

Exit status:
   0  done, also if some lines are damaged; standard error says how many
  64  wrong arguments
  65  no line about mail, or a damaged archive
  66  there is no such file
  69  the server does not run
  73  the picture cannot be written
  74  reading or writing failed
  75  the server is busy or went away; try again
  77  no permission";

/// The end of `--help` of the kind that sends mail.
const PROBE_HELP: &str = "\
Examples:
  mailrace stats test -n 20 postmaster@example.com
  mailrace stats test --mailbox /var/mail/ann mylist@lists.example.com

Exit status:
   0  each message was accepted, and has arrived where a mailbox is named
  64  wrong arguments
  66  a mailbox cannot be read
  74  reading or writing failed
  75  a message was not accepted, or has not arrived
  77  no permission";

#[derive(Debug, Subcommand)]
pub(crate) enum StatsCommand {
    /// Draw a day: deliveries as spikes, their sum, arrivals, failures; in the terminal, as SVG or PNG
    #[command(after_help = HELP)]
    Batch(batch::BatchArguments),
    /// Print a line each 15 seconds: deliveries an hour, their number, and marks for deliveries and failures
    #[command(after_help = HELP)]
    Real(real::RealArguments),
    /// Print deliveries and failures by hour, with totals
    #[command(after_help = HELP)]
    Mail(SourceArguments),
    /// Print recipients or hosts whose mail waits: number of messages, age of the oldest, last reply
    #[command(after_help = HELP)]
    Late(late::LateArguments),
    /// Print messages that wait, with the number of their recipients
    #[command(after_help = HELP)]
    Queue(SourceArguments),
    /// Send messages through a server, and measure the time to their 250 and to their arrival in a mailbox
    #[command(after_help = PROBE_HELP)]
    Test(probe::ProbeArguments),
    /// Print a report: totals, hours, delays, senders, recipients, hosts, reasons
    #[command(after_help = HELP)]
    Day(day::DayArguments),
}

/// The source of the figures, and the form of the output.
#[derive(Debug, Args)]
pub(crate) struct SourceArguments {
    /// Logs to read [default: the running server is asked]
    #[arg(value_name = "LOGFILE")]
    files: Vec<PathBuf>,
    /// Go on with lines that are written from now on, also when the last file is renamed or cut; print again each 15
    /// seconds
    #[arg(long)]
    follow: bool,
    /// Year of the first line, for stamps without one [default: the last year that the age of the file allows]
    #[arg(long, value_name = "YEAR", value_parser = clap::value_parser!(i64).range(1_970..=9_998))]
    year: Option<i64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: ControlTarget,
}

/// Returns the words behind `stats` for a program of this name, with or without a path before it.
pub(crate) fn of_name(name: &Path) -> Option<&'static [&'static str]> {
    Some(match name.file_name()?.to_str()? {
        "batchstat" => &["batch"],
        "realstat" => &["real"],
        "mailstat" => &["mail"],
        "mailqq" => &["queue"],
        "mailtest" => &["test"],
        "latedudes" => &["late", "--short"],
        _ => return None,
    })
}

/// Runs a command.
///
/// # Errors
/// A file cannot be read, or has no line about mail; the server does not answer.
pub(crate) fn run(command: StatsCommand) -> Result<Exit, Failure> {
    match command {
        StatsCommand::Batch(arguments) => batch::run(arguments),
        StatsCommand::Real(arguments) => real::run(&arguments),
        StatsCommand::Mail(source) => report::run(&source, &mail_table::HourlyTable),
        StatsCommand::Late(arguments) => late::run(&arguments),
        StatsCommand::Queue(source) => report::run(&source, &queue::QueueTable),
        StatsCommand::Day(arguments) => day::run(&arguments),
        StatsCommand::Test(arguments) => probe::run(&arguments),
    }
}
