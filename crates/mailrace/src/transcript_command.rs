//! `mailrace transcript`: the SMTP dialogs with a destination, while they go on.

use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::terminal_text::plain;
use clap::Args;
use operator::answers::{self, TranscriptLine};
use operator::control::{Request, TRANSCRIPT_LINES_MAX, TRANSCRIPT_TIME_MAX, TranscriptOrder};
use operator::queue;
use std::time::Duration;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
DESTINATION is one as the queue names it, its hosts, or one host; * stands for any text. A connection that is open is
shown from its next message on. Secrets of AUTH are masked, the content of messages is shown as its size.

Examples:
  mailrace transcript slow.example
  mailrace transcript 'mx1.*' --for 1m --json

Exit status:
   0  done: the time is over, or there were enough lines
  64  wrong arguments
  69  the server does not run
  75  too many transcripts are open
  77  no permission";

#[derive(Debug, Args)]
pub(crate) struct TranscriptArguments {
    /// A destination, its hosts, or one host
    #[arg(value_name = "DESTINATION")]
    destination: String,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", default_value = "10m", value_parser = time)]
    time: Duration,
    /// End after so many lines
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=TRANSCRIPT_LINES_MAX))]
    lines: u64,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: ControlTarget,
}

/// Runs `mailrace transcript`.
pub(crate) fn run(arguments: &TranscriptArguments) -> Result<Exit, Failure> {
    let TranscriptArguments { destination, time, lines, json, target } = arguments;
    let mut control = Control::connect(&target.path())?;
    let order = TranscriptOrder { destination: destination.clone(), time: *time, lines: *lines };
    let mut output = Output::new();
    let last = control.ask_for_list(&Request::Transcript(Box::new(order)), |line| {
        let read: TranscriptLine = answers::from_line(line)?;
        if !read.direction.is_empty() {
            match json {
                true => output.print_json(line),
                false => output.print_line(shown(&read)),
            }
            output.flush();
        }
        Ok(output.is_read())
    })?;
    if let Some(missed @ 1..) = last.and_then(|last| last.get("missed")?.as_u64()) {
        eprintln!("mailrace: {missed} lines were missed: they came faster than they were taken");
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// `17:40:12.345 4711 mx1.slow.example > MAIL FROM:<a@b.test>`, in UTC.
fn shown(line: &TranscriptLine) -> String {
    let TranscriptLine { at, connection, host, direction, text } = line;
    let (ms, s) = (at / 1_000 % 1_000, at / 1_000_000 % 86_400);
    let (hours, minutes, seconds) = (s / 3_600, s / 60 % 60, s % 60);
    let (host, text) = (plain(host), plain(text));
    format!("{hours:02}:{minutes:02}:{seconds:02}.{ms:03} {connection} {host} {direction} {text}")
}

fn time(text: &str) -> Result<Duration, String> {
    let time = queue::age(text).filter(|time| !time.is_zero() && *time <= TRANSCRIPT_TIME_MAX);
    time.ok_or_else(|| "from 1s to 1h, as in 10m".to_owned())
}
