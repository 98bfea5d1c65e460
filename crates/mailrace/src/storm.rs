//! `mailrace storm`: a storm of mail against a server of one's own, and its report.
//!
//! Reads arguments and prints; the storm itself is `bench::storm`.

use crate::exit::{Exit, Failure};
use crate::output::{Output, Progress, thousands};
use bench::storm::{self, Plan, Sizes, StormError, Tls};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// The end of `--help`.
pub(crate) const HELP: &str = "\
Each message is unique and has a field \"X-Mailrace-Storm: RUN/SEQ/CRC\": the name of the run, the number of the message, \
and the CRC-32C of its body. The same seed makes the same messages.

Exit status:
   0  every message was accepted
  64  wrong arguments
  74  the ledger could not be written
  75  some message was not accepted; the report says why";

// The library for command lines takes {n} for a line end, unless something stands in it: a sequence that resets
// colours, which is not printed where there are none.
const RCPT_HELP: &str =
    "Envelope recipient; {\u{1b}[0mn} becomes the number of the recipient, {seq} that of the message";

/// Sends a storm.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct StormArguments {
    /// Server to send to
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// Messages to send [default: 2030, or as many as fit into --seconds]
    #[arg(long, short = 'n', value_name = "N")]
    messages: Option<u64>,
    /// Begin no message after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Connections to keep open at a time
    #[arg(long, short, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sessions: u32,
    /// Octets of a message, header included, or a range; k and M may follow
    #[arg(long, default_value = "4k", value_name = "BYTES[-BYTES]")]
    size: Sizes,
    /// Recipients of each message
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    recipients: u32,
    /// Make a new connection for each message
    #[arg(long)]
    new_connection: bool,
    /// Messages to begin per second; the report then also says how late they were answered, counted from when each was
    /// due
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Use STARTTLS; the certificate is not checked
    #[arg(long, conflicts_with = "tls_implicit")]
    tls: bool,
    /// Use TLS from the first octet; the certificate is not checked
    #[arg(long)]
    tls_implicit: bool,
    /// Speak LMTP, which has a reply for each recipient
    #[arg(long)]
    lmtp: bool,
    /// Write the content and its final dot separately, as Postal and Net::SMTP do
    #[arg(long, conflicts_with = "chunking")]
    split_dot: bool,
    /// Send MAIL, RCPT and DATA in one write
    #[arg(long)]
    pipelining: bool,
    /// Send BDAT instead of DATA; with --pipelining a whole transaction is one write
    #[arg(long)]
    chunking: bool,
    /// Envelope sender
    #[arg(long, default_value = "storm@storm.example", value_name = "ADDRESS")]
    from: String,
    #[arg(long, help = RCPT_HELP, default_value = "user{n}@storm.example", value_name = "ADDRESS")]
    rcpt: String,
    /// Give each message a text of its own; otherwise all share one, as those of a storm do
    #[arg(long)]
    own_text: bool,
    /// Number from which sizes and texts are made
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Name of this run, which every message has [default: the process number]
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Spread connections over this many source addresses from 127.0.0.1 on
    #[arg(long, default_value_t = 0, value_name = "N")]
    sources: u8,
    /// Longest wait for a connection or a reply
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    timeout: Duration,
    /// Append a line "SEQ ID MICROSECONDS" for each acknowledged message to this file
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Allow a server that is neither on this machine nor in a private network
    #[arg(long)]
    i_own_this_host: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0);
    number
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .ok_or_else(|| "seconds above 0, as in 60".to_owned())
}

/// Runs the command.
pub(crate) fn run(arguments: &StormArguments) -> Result<Exit, Failure> {
    let plan = plan(arguments)?;
    let line = Progress::new();
    let report = storm::run(&plan, &mut |at| {
        let of = at.messages.map_or_else(String::new, |messages| format!(" of {}", thousands(messages)));
        line.show(format_args!(
            "{:>4} s  {}{of} accepted, {:.0}/s, {} not",
            at.elapsed.as_secs(),
            thousands(at.accepted),
            at.per_second,
            thousands(at.others)
        ));
    });
    line.clear();
    let report = report?;
    let mut output = Output::new();
    if arguments.json {
        output.print_json(&report.json());
    } else {
        output.print_line(report.text().trim_end());
    }
    output.finish()?;
    Ok(if report.is_complete() { Exit::Ok } else { Exit::TryLater })
}

fn plan(arguments: &StormArguments) -> Result<Plan, Failure> {
    let defaults = Plan::new(storm::resolve(&arguments.to)?);
    let messages = match (arguments.messages, arguments.seconds) {
        (None, None) => defaults.messages,
        (messages, _) => messages,
    };
    Ok(Plan {
        own_host: arguments.i_own_this_host,
        messages,
        time: arguments.seconds,
        sessions: arguments.sessions,
        sizes: arguments.size,
        recipients: arguments.recipients,
        new_connection: arguments.new_connection,
        rate: arguments.rate,
        tls: match (arguments.tls, arguments.tls_implicit) {
            (_, true) => Tls::Implicit,
            (true, false) => Tls::Starttls,
            (false, false) => Tls::None,
        },
        lmtp: arguments.lmtp,
        split_dot: arguments.split_dot,
        pipelining: arguments.pipelining,
        chunking: arguments.chunking,
        from: arguments.from.clone(),
        rcpt: arguments.rcpt.clone(),
        own_text: arguments.own_text,
        seed: arguments.seed,
        run: arguments.run.clone().unwrap_or_else(|| std::process::id().to_string()),
        sources: arguments.sources,
        patience: arguments.timeout,
        ledger: arguments.ledger.clone(),
        ..defaults
    })
}

impl From<StormError> for Failure {
    fn from(error: StormError) -> Self {
        let exit = match &error {
            StormError::Plan(_) => Exit::Usage,
            StormError::Io { .. } => Exit::Io,
        };
        Self::new(exit, error.to_string())
    }
}
