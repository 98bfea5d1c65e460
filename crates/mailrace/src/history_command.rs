//! `mailrace history`: what became of past messages, from the history of the running server.

use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use crate::output::{Output, count, short_bytes, thousands};
use crate::stats_command::civil_text::iso;
use crate::terminal_text::plain;
use clap::Args;
use mail::QueueId;
use operator::answers::{HistoryAnswer, HistoryMessage, HistoryStep};
use operator::control::{HistoryQuestion, Request};
use os::clock;

/// Messages of one answer of the server.
const PAGE: u64 = 500;
/// The column of texts below a step.
const INDENT: usize = 26;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Terms stand side by side and must all hold; ! before one turns it round:
  from:@example.org  to:ann@example.org  host:mx1.example  client:192.0.2.*
  before:2026-11-27T14:30  after:2h  status:failed  reply~\"mailbox full\"
States are waiting, held, sent, failed, discarded, deleted. Other words are
looked for in ids, addresses, hosts and replies.

Examples:
  mailrace history to:ann@example.org
  mailrace history status:failed after:2d
  mailrace history 6AK9BQPE592284

Exit status:
   0  done
  64  wrong arguments
  66  the history does not have this message
  69  the server does not run
  75  too many searches at once; try again
  77  no permission
  78  the server keeps no history: history.path is not set";

#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// A queue id for the way of one message, or terms; without any the youngest messages
    #[arg(value_name = "ID|TERM")]
    words: Vec<String>,
    /// Messages at most
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    limit: u64,
    /// Print JSON, one object for each message
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: ControlTarget,
}

/// Runs `mailrace history`.
///
/// # Errors
/// No server, no permission, no history, a wrong term.
pub(crate) fn run(arguments: &HistoryArguments) -> Result<Exit, Failure> {
    let mut output = Output::new();
    let id = match arguments.words.as_slice() {
        [word] => word.parse::<QueueId>().ok(),
        _ => None,
    };
    match id {
        Some(id) => show(arguments, id, &mut output)?,
        None => list(arguments, &mut output)?,
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn ask(arguments: &HistoryArguments, question: HistoryQuestion) -> Result<HistoryAnswer, Failure> {
    Control::connect(&arguments.target.path())?.ask_for(&Request::History(Box::new(question)))
}

/// Prints the way of one message.
fn show(arguments: &HistoryArguments, id: QueueId, output: &mut Output) -> Result<(), Failure> {
    let answer = ask(arguments, HistoryQuestion { id: Some(id), limit: 1, ..HistoryQuestion::default() })?;
    let Some(message) = answer.messages.first() else {
        let text = format!("{id}: the history does not have this message; history.days and history.size_max bound it");
        return Err(Failure::new(Exit::NoInput, text));
    };
    if arguments.json {
        output.print_json(&serde_json::to_value(message).unwrap_or_default());
        return Ok(());
    }
    print_head(output, message);
    message.steps.iter().for_each(|step| print_step(output, step));
    if message.steps.is_empty() {
        output.print_line("  nothing has happened to it yet");
    }
    Ok(())
}

/// Prints the messages that fit, page by page.
fn list(arguments: &HistoryArguments, output: &mut Output) -> Result<(), Failure> {
    let expression = quoted(&arguments.words);
    let (mut after, mut left, mut found) = (None, arguments.limit, 0_u64);
    while left > 0 && output.is_read() {
        let question = HistoryQuestion { expression: expression.clone(), after, limit: left.min(PAGE), id: None };
        let answer = ask(arguments, question)?;
        for message in &answer.messages {
            if arguments.json {
                output.print_json(&serde_json::to_value(message).unwrap_or_default());
            } else {
                print_listed(output, message);
            }
        }
        let number = u64::try_from(answer.messages.len()).unwrap_or(u64::MAX);
        (left, found) = (left.saturating_sub(number), found + number);
        after = answer.next.as_deref().and_then(|next| next.parse::<QueueId>().ok());
        if after.is_none() {
            break;
        }
    }
    if arguments.json {
        return Ok(());
    }
    if found == 0 {
        output.print_line("no message of the history fits");
    } else if after.is_some() {
        output.print_line(format_args!("there may be more; --limit {} shows them", arguments.limit.saturating_mul(10)));
    }
    Ok(())
}

/// The words of the command line as one expression: a value that a shell has freed of its quotes gets them again.
fn quoted(words: &[String]) -> String {
    let quote = |word: &String| {
        if !word.contains([' ', '"']) {
            return word.clone();
        }
        // A whole expression in quotes of the shell stays as it is.
        if words.len() == 1 {
            return word.clone();
        }
        format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn sender(message: &HistoryMessage) -> String {
    message.from.as_deref().map_or_else(|| "(came before the history)".to_owned(), |from| format!("<{}>", plain(from)))
}

/// `2026-11-27 14:02:11`
fn local_time(ms: u64) -> String {
    let offset = i64::from(clock::local_offset_seconds(ms.saturating_mul(1_000)));
    iso(i64::try_from(ms / 1_000).unwrap_or(0) + offset).replace('T', " ")
}

fn recipients(step: &HistoryStep, shown: usize) -> String {
    let names: Vec<String> = step.to.iter().take(shown).map(|to| plain(to)).collect();
    let more = step.more_recipients + u64::try_from(step.to.len().saturating_sub(shown)).unwrap_or(0);
    match (names.as_slice(), more) {
        ([], 0) => String::new(),
        ([], more) => count(more, "recipient"),
        (_, 0) => names.join(", "),
        (_, more) => format!("{} and {} more", names.join(", "), thousands(more)),
    }
}

fn print_listed(output: &mut Output, message: &HistoryMessage) {
    let (time, size) = (local_time(message.arrived_ms), short_bytes(message.size));
    let (id, state) = (plain(&message.id), plain(&message.status));
    output.print_line(format_args!("{id}  {time}  {state:<9} {size:>5}  {}", sender(message)));
    for step in &message.steps {
        let host = if step.host.is_empty() { String::new() } else { format!("  by {}", plain(&step.host)) };
        output.print_line(format_args!("    {}{host}", recipients(step, 2)));
        if !step.reply.is_empty() {
            output.print_line(format_args!("      {}: {}", plain(&step.kind), plain(&step.reply)));
        }
    }
}

fn print_head(output: &mut Output, message: &HistoryMessage) {
    output.print_line(plain(&message.id));
    let mut row = |name: &str, value: String| output.print_line(format_args!("  {name:<12} {value}"));
    row("from", sender(message));
    row("arrived", local_time(message.arrived_ms));
    if message.from.is_some() {
        row("came from", plain(&message.client));
        row("size", count(message.size, "byte"));
    }
    if !message.message_id.is_empty() {
        row("message id", plain(&message.message_id));
    }
    let (sent, failed, all) = (thousands(message.sent), thousands(message.failed), thousands(message.recipients));
    row("state", format!("{}; recipients {all}, sent {sent}, failed {failed}", plain(&message.status)));
}

/// Writes how long the phases took: `connect 12 ms, greeting 40 ms`; those below a millisecond in microseconds.
fn phases(step: &HistoryStep) -> String {
    let time = |us: u64| if us < 1_000 { format!("{us} µs") } else { format!("{} ms", thousands(us / 1_000)) };
    let texts: Vec<String> = step.phases.iter().map(|one| format!("{} {}", plain(&one.phase), time(one.us))).collect();
    texts.join(", ")
}

fn print_step(output: &mut Output, step: &HistoryStep) {
    let took = step.took_ms.map(|ms| format!(" in {}.{:03} s", ms / 1_000, ms % 1_000)).unwrap_or_default();
    let host = if step.host.is_empty() { String::new() } else { format!(" by {}", plain(&step.host)) };
    let (time, kind) = (local_time(step.time_ms), plain(&step.kind));
    output.print_line(format_args!("  {time}  {kind}{took}{host}"));
    for text in [phases(step), recipients(step, 20), plain(&step.reply)] {
        if !text.is_empty() {
            output.print_line(format_args!("{:INDENT$}{text}", ""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_shell_make_one_expression() {
        let words = |list: &[&str]| quoted(&list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["to:@b.test", "reply~no such \"user\""]), "to:@b.test \"reply~no such \\\"user\\\"\"");
        assert_eq!(words(&["to:@b.test reply~\"no such\""]), "to:@b.test reply~\"no such\"");
        assert_eq!(words(&[]), "");
    }
}
