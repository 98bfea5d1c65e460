//! `stats test`, the source's mailtest: sends small messages one after the other, each over a connection of its own,
//! and measures the time to the `250` and, where a mailbox is named, the time until the message lies there.
//!
//! The messages are those of `mailrace storm`, and a mailbox is searched for the name of their run.

use super::clock;
use super::mailbox::Mailbox;
use crate::exit::{Exit, Failure};
use crate::output::{Output, Progress, count, thousands};
use crate::terminal_text::plain;
use bench::storm::{self, Plan, Sizes};
use clap::Args;
use os::clock as monotonic;
use serde_json::{Value, json};
use server::config;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks at a mailbox: the precision of the round trip.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Columns for an address.
const ADDRESS_WIDTH: usize = 32;

#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {
    /// Addresses and lists to send to
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<String>,
    /// Server to send to
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:25")]
    to: String,
    /// Messages to each address
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// Mailbox in which they arrive, an mbox file or a Maildir: one for all addresses, or one for each in their order
    #[arg(long, value_name = "PATH")]
    mailbox: Vec<PathBuf>,
    /// Longest wait for the arrival of a message
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    wait: u64,
    /// Envelope sender [default: mailtest at the name of this machine]
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// Octets of a message, header included
    #[arg(long, value_name = "BYTES", default_value = "1k")]
    size: Sizes,
    /// Allow a server that is neither on this machine nor in a private network
    #[arg(long)]
    i_own_this_host: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The times of the messages to one address, in the order in which they were sent.
#[derive(Debug, Default)]
struct ProbeTimes {
    address: String,
    sent: u64,
    accepted: Vec<Duration>,
    arrived: Vec<Duration>,
    errors: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The arguments cannot be used together; a mailbox cannot be read.
pub(super) fn run(arguments: &ProbeArguments) -> Result<Exit, Failure> {
    if arguments.mailbox.len() > 1 && arguments.mailbox.len() != arguments.addresses.len() {
        let (boxes, addresses) = (arguments.mailbox.len(), arguments.addresses.len());
        let text = format!("{boxes} mailboxes for {addresses} addresses; name one for all, or one for each");
        return Err(Failure::new(Exit::Usage, text));
    }
    let base = plan(arguments)?;
    let line = Progress::new();
    let mut all = Vec::new();
    for (index, address) in arguments.addresses.iter().enumerate() {
        let path = arguments.mailbox.get(index).or_else(|| arguments.mailbox.first());
        let mut times = ProbeTimes { address: address.clone(), ..ProbeTimes::default() };
        for number in 0..arguments.messages {
            line.show(format_args!("{}: {} of {}", plain(address), number + 1, arguments.messages));
            let run = format!("mailtest-{}-{index}-{number}", std::process::id());
            let plan = Plan { run, lists: Arc::new([vec![address.clone()]]), ..base.clone() };
            send(&plan, path, Duration::from_secs(arguments.wait), &mut times)?;
        }
        all.push(times);
    }
    line.clear();
    print(arguments, &all)?;
    let is_complete = |times: &ProbeTimes| {
        let accepted = times.accepted.len() as u64;
        accepted == times.sent && (arguments.mailbox.is_empty() || times.arrived.len() as u64 == times.sent)
    };
    Ok(if all.iter().all(is_complete) { Exit::Ok } else { Exit::TryLater })
}

fn plan(arguments: &ProbeArguments) -> Result<Plan, Failure> {
    let from = arguments.from.clone().unwrap_or_else(|| format!("mailtest@{}", config::this_machine().hostname));
    Ok(Plan {
        own_host: arguments.i_own_this_host,
        messages: Some(1),
        sessions: 1,
        sizes: arguments.size,
        from,
        ..Plan::new(storm::resolve(&arguments.to)?)
    })
}

/// Sends one message, and waits until it is in its mailbox.
fn send(plan: &Plan, path: Option<&PathBuf>, wait: Duration, times: &mut ProbeTimes) -> Result<(), Failure> {
    let mut mailbox = path.map(|path| Mailbox::open(path)).transpose()?;
    let began = monotonic::now();
    let report = storm::run(plan, &mut |_| ())?;
    let accepted = monotonic::now().saturating_duration_since(began);
    times.sent += 1;
    if !report.is_complete() {
        let texts = report.errors.into_iter().map(|(text, _)| text);
        times.errors.extend(texts);
        return Ok(());
    }
    times.accepted.push(accepted);
    let Some(mailbox) = &mut mailbox else { return Ok(()) };
    // The header of a message of a storm, in any mailbox format.
    let mark = format!("X-Mailrace-Storm: {}/", plan.run);
    loop {
        let is_there = mailbox.has_new(mark.as_bytes())?;
        let waited = monotonic::now().saturating_duration_since(began);
        if is_there {
            times.arrived.push(waited);
            return Ok(());
        }
        if waited >= wait {
            times.errors.push(format!("not in {} after {} s", mailbox.path().display(), wait.as_secs()));
            return Ok(());
        }
        clock::pause(LOOK_EVERY);
    }
}

fn print(arguments: &ProbeArguments, all: &[ProbeTimes]) -> Result<(), Failure> {
    let mut output = Output::new();
    let hourly = messages_an_hour(all);
    if arguments.json {
        let addresses: Vec<Value> = all.iter().map(ProbeTimes::to_json).collect();
        output.print_json(&json!({ "to": arguments.to, "addresses": addresses, "messages_an_hour": hourly }));
        return output.finish();
    }
    let messages = count(arguments.messages.into(), "message");
    output.print_line(format_args!("mailtest: {}, {messages} to each address", plain(&arguments.to)));
    output.print_line(format_args!("{:<ADDRESS_WIDTH$}  {:<24}  ARRIVED", "ADDRESS", "ACCEPTED"));
    for times in all {
        let (address, accepted, arrived) = (plain(&times.address), text(&times.accepted), text(&times.arrived));
        output.print_line(format!("{address:<ADDRESS_WIDTH$}  {accepted:<24}  {arrived}").trim_end());
        times.errors.iter().for_each(|error| output.print_line(format_args!("  {}", plain(error))));
    }
    if let Some(hourly) = hourly {
        let hourly = thousands(hourly);
        output.print_line(format_args!("{hourly} messages an hour, if each waits for the 250 of the one before"));
    }
    output.finish()
}

/// Returns how many messages an hour one sender could hand in at the median time.
fn messages_an_hour(all: &[ProbeTimes]) -> Option<u64> {
    let mut accepted: Vec<Duration> = all.iter().flat_map(|times| times.accepted.iter().copied()).collect();
    accepted.sort_unstable();
    let median = accepted.get(accepted.len() / 2)?;
    u64::try_from(Duration::from_secs(3_600).as_nanos() / median.as_nanos().max(1)).ok()
}

impl ProbeTimes {
    fn to_json(&self) -> Value {
        let seconds = |times: &[Duration]| times.iter().map(Duration::as_secs_f64).collect::<Vec<f64>>();
        json!({
            "address": self.address, "sent": self.sent, "accepted": seconds(&self.accepted),
            "arrived": seconds(&self.arrived), "errors": self.errors,
        })
    }
}

/// `31.2 ms`, or `31.2 ms (29.0-45.1)` of several: the median, the shortest and the longest.
fn text(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let (Some(least), Some(median), Some(most)) = (sorted.first(), sorted.get(sorted.len() / 2), sorted.last()) else {
        return "-".to_owned();
    };
    let milliseconds = |time: &Duration| time.as_secs_f64() * 1e3;
    let median = milliseconds(median);
    if sorted.len() == 1 {
        return format!("{median:.1} ms");
    }
    format!("{median:.1} ms ({:.1}-{:.1})", milliseconds(least), milliseconds(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_median_and_its_range() {
        let times = |list: &[u64]| list.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>();
        assert_eq!(text(&times(&[])), "-");
        assert_eq!(text(&times(&[30])), "30.0 ms");
        assert_eq!(text(&times(&[45, 29, 31])), "31.0 ms (29.0-45.0)");
    }

    #[test]
    fn the_rate_is_that_of_the_source() {
        let probe = |ms| ProbeTimes { accepted: vec![Duration::from_millis(ms)], ..ProbeTimes::default() };
        assert_eq!(messages_an_hour(&[probe(30)]), Some(120_000));
        assert_eq!(messages_an_hour(&[ProbeTimes::default()]), None);
    }
}
