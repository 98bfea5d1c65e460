//! `mailrace stats`: how much mail goes, when, where to, and which waits; from logs, or of the running server.
//!
//! The kinds are those of the source's tools, which are also names of this program: `batchstat`, `realstat`, `mailstat`,
//! `mailqq`, `latedudes`. The sums are `observe::stats`, the lines of logs are read by `observe::log_reader`; here are
//! files, arguments and the forms of output. A kind implements [`Report`]; [`report`] runs it on logs or on the server.

mod batch;
mod chart;
mod civil_text;
mod clock;
mod day;
mod late;
mod live;
mod log_file;
mod logs;
mod mail_table;
mod queue;
mod real;
mod report;
mod table;

use crate::control_client::ControlTarget;
use crate::exit::{Exit, Failure};
use clap::{Args, Subcommand};
use std::path::PathBuf;

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
  74  reading or writing failed
  75  the server is busy or went away; try again
  77  no permission";

#[derive(Debug, Subcommand)]
pub(crate) enum StatsCommand {
    /// Draw a day: deliveries as spikes, their sum, arrivals, failures; in the terminal, as SVG or PNG
    #[command(after_help = HELP)]
    Batch(batch::BatchArguments),
    /// Print a line each 15 seconds: the rate of deliveries an hour, their number, and marks for deliveries and failures
    #[command(after_help = HELP)]
    Real(real::RealArguments),
    /// Print deliveries and failures by hour, with totals
    #[command(after_help = HELP)]
    Mail(SourceArguments),
    /// Print who has mail that waits, with the number of messages
    #[command(after_help = HELP)]
    Late(late::LateArguments),
    /// Print messages that wait, with the number of their recipients
    #[command(after_help = HELP)]
    Queue(SourceArguments),
    /// Print a report: totals, hours, delays, senders, recipients, hosts, reasons
    #[command(after_help = HELP)]
    Day(day::DayArguments),
}

/// Where the figures come from, and in which form they go out.
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
    }
}
