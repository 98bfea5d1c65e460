//! `stats late`: recipients with mail that waits, as the source's latedudes; in the long form with the age of the
//! oldest, the host and the last reply, by recipient or by host.

use super::report::{self, Report};
use super::{SourceArguments, civil_text};
use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use crate::output::{Output, age, thousands};
use crate::terminal_text::plain;
use clap::{Args, ValueEnum};
use observe::stats::{Fact, LateRecipient, LateRecipients};
use operator::answers::{LineKind, QueueLine, QueueTotals, StragglerLine};
use operator::control::Request;
use operator::queue::{Action, Command, GroupBy, Selection};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Columns for the address and the host.
const NAME_WIDTH: usize = 32;

#[derive(Debug, Args)]
pub(crate) struct LateArguments {
    #[command(flatten)]
    source: SourceArguments,
    /// Add up by recipient or by host
    #[arg(long, value_enum, default_value_t = LateBy::Recipient)]
    by: LateBy,
    /// Print the number of messages and the name alone, as the source's latedudes
    #[arg(long)]
    short: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LateBy {
    Recipient,
    Host,
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read, or the server does not answer.
pub(super) fn run(arguments: &LateArguments) -> Result<Exit, Failure> {
    report::run(&arguments.source, &LateTable { by: arguments.by, is_short: arguments.short })
}

struct LateTable {
    by: LateBy,
    is_short: bool,
}

/// From a log, or from the server.
enum LateSums {
    Logs(Box<LateRecipients>),
    Server { lines: Vec<LateLine>, left_out: u64 },
}

/// One line of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LateLine {
    name: String,
    messages: u64,
    attempts: Option<u64>,
    /// Seconds for which the oldest waits.
    oldest: u64,
    host: String,
    reply: String,
}

impl Report for LateTable {
    type Sums = LateSums;

    fn empty(&self) -> LateSums {
        LateSums::Logs(Box::default())
    }

    fn record(&self, sums: &mut LateSums, time: i64, fact: &Fact<'_>) {
        if let LateSums::Logs(late) = sums {
            late.record(time, fact);
        }
    }

    fn ask(&self, control: &mut Control) -> Result<LateSums, Failure> {
        let mut command = Command::new(Action::Stragglers, Selection::default());
        command.by = match self.by {
            LateBy::Recipient => GroupBy::Recipient,
            LateBy::Host => GroupBy::Host,
        };
        // Mail that was not tried yet is not late.
        command.selection.older = Some(Duration::from_secs(1));
        command.limit = Some(0);
        let mut lines = Vec::new();
        let last = control.ask_for_list(&Request::Queue(Box::new(command)), |line| {
            if let QueueLine::Straggler(line) = QueueLine::from_line(line, LineKind::Stragglers)? {
                lines.push(LateLine::of_server(*line));
            }
            Ok(true)
        })?;
        let totals: QueueTotals = control.decode_line(&last.unwrap_or_else(|| json!({})))?;
        lines.sort_by(|a, b| (a.messages, &a.name).cmp(&(b.messages, &b.name)));
        Ok(LateSums::Server { lines, left_out: totals.unseen.unwrap_or(0) })
    }

    fn print(&self, output: &mut Output, sums: &LateSums, now: i64) -> Result<(), Failure> {
        let lines = self.lines(sums, now);
        if !self.is_short {
            output.print_line(format_args!("MESSAGES  OLDEST  {:<NAME_WIDTH$}  LAST REPLY", self.head()));
        }
        for line in &lines {
            if self.is_short {
                output.print_line(format_args!("{:>4} {}", line.messages, plain(&line.name)));
                continue;
            }
            let (name, host, reply) = (plain(&line.name), plain(&line.host), plain(&line.reply));
            let at = if host.is_empty() || self.by == LateBy::Host { String::new() } else { format!("{host}: ") };
            let oldest = age(line.oldest);
            output.print_line(format_args!("{:>8}  {oldest:>6}  {name:<NAME_WIDTH$}  {at}{reply}", line.messages));
        }
        let left_out = left_out(sums);
        if left_out > 0 {
            output.print_line(format_args!("{} more that there was no room to tell apart", thousands(left_out)));
        }
        Ok(())
    }

    fn to_json(&self, sums: &LateSums, now: i64) -> Value {
        let line = |line: &LateLine| {
            let mut fields = json!({
                "messages": line.messages, "oldest": line.oldest, "host": line.host, "reply": line.reply,
            });
            let object = fields.as_object_mut().expect("made as an object");
            object.insert(self.head().to_lowercase(), line.name.clone().into());
            if let Some(attempts) = line.attempts {
                object.insert("attempts".to_owned(), attempts.into());
            }
            fields
        };
        let lines: Vec<Value> = self.lines(sums, now).iter().map(line).collect();
        json!({ "time": civil_text::iso(now), "late": lines, "left_out": left_out(sums) })
    }
}

fn left_out(sums: &LateSums) -> u64 {
    match sums {
        LateSums::Logs(late) => late.left_out(),
        LateSums::Server { left_out, .. } => *left_out,
    }
}

impl LateTable {
    fn head(&self) -> &'static str {
        match self.by {
            LateBy::Recipient => "RECIPIENT",
            LateBy::Host => "HOST",
        }
    }

    fn lines(&self, sums: &LateSums, now: i64) -> Vec<LateLine> {
        match sums {
            LateSums::Server { lines, .. } => lines.clone(),
            LateSums::Logs(late) => {
                let lines = late.list().into_iter().map(|one| LateLine::of_log(one, now));
                if self.by == LateBy::Host { by_host(lines) } else { lines.collect() }
            }
        }
    }
}

/// Adds up the lines of each host. The reply is that of the recipient with the most messages.
fn by_host(lines: impl Iterator<Item = LateLine>) -> Vec<LateLine> {
    let mut hosts: BTreeMap<String, (LateLine, u64)> = BTreeMap::new();
    for line in lines {
        let name = if line.host.is_empty() { "(no host was found)".to_owned() } else { line.host.clone() };
        let (sum, most) = hosts.entry(name.clone()).or_default();
        sum.name = name;
        sum.host = line.host;
        sum.messages += line.messages;
        sum.attempts = Some(sum.attempts.unwrap_or(0) + line.attempts.unwrap_or(0));
        sum.oldest = sum.oldest.max(line.oldest);
        if line.messages >= *most {
            (*most, sum.reply) = (line.messages, line.reply);
        }
    }
    let mut lines: Vec<LateLine> = hosts.into_values().map(|(line, _)| line).collect();
    lines.sort_by(|a, b| (a.messages, &a.name).cmp(&(b.messages, &b.name)));
    lines
}

impl LateLine {
    fn of_log(one: LateRecipient, now: i64) -> Self {
        Self {
            name: one.address,
            messages: one.messages,
            attempts: Some(one.attempts),
            oldest: u64::try_from(now.saturating_sub(one.oldest)).unwrap_or(0),
            host: one.host,
            reply: one.reply,
        }
    }

    fn of_server(line: StragglerLine) -> Self {
        let host = line.status.site.unwrap_or_default();
        Self {
            name: line.to.or(line.host).unwrap_or_default(),
            messages: line.messages,
            attempts: None,
            oldest: line.oldest,
            host,
            reply: line.reason.or(line.status.down).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_by_host() {
        let line = |name: &str, messages, host: &str, reply: &str| LateLine {
            name: name.to_owned(),
            messages,
            attempts: Some(1),
            oldest: messages,
            host: host.to_owned(),
            reply: reply.to_owned(),
        };
        let lines = [line("a@x", 1, "mx.x", "450 a"), line("b@x", 7, "mx.x", "450 b"), line("c@y", 2, "", "no host")];
        let hosts = by_host(lines.into_iter());
        let [y, x] = hosts.as_slice() else { panic!("{hosts:?}") };
        assert_eq!((y.name.as_str(), y.messages), ("(no host was found)", 2));
        assert_eq!((x.name.as_str(), x.messages, x.oldest, x.reply.as_str()), ("mx.x", 8, 7, "450 b"));
    }
}
