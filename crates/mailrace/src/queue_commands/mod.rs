//! `mailrace queue`: looks at the queue of the running server, and changes it.
//!
//! Each command is one request, or several where many ids are named; `operator::queue` selects the messages and
//! changes them. Here arguments are read and answers printed. `mailrace spool` reads the spool of a stopped server.

mod arguments;
pub(crate) mod content;
mod quarantine;
mod text;
pub(crate) mod why;

use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use arguments::Orders;
pub(crate) use arguments::QueueCommand;
pub(crate) use quarantine::QuarantineCommand;

use mail::QueueId;
use operator::answers::QueueTotals;
use operator::control::Request;
use operator::queue::{self, Action};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The end of every command's help.
macro_rules! ending {
    () => {
        "\
What was delivered or deleted is in the log, not here.

Exit status:
   0  done, also if no message was meant
  64  wrong arguments, or the server is of another version
  65  some envelopes cannot be read; the others were dealt with
  66  some ids are not in the queue; the others were dealt with
  69  the server does not run; mailrace spool looks into a stopped one
  74  reading, writing or changing failed
  75  the server is busy or went away; try again
  77  no permission"
    };
}

/// The help of commands without conditions.
pub(crate) const PLAIN_HELP: &str = ending!();

/// The help of commands with conditions.
pub(crate) const HELP: &str = concat!(
    "\
ADDRESS: a whole address, @DOMAIN, or * for any text, as in '*-bounces@*';
'<>' is the null sender. Case does not count.
AGE: numbers with s, m, h, d or w, as in 90m or 1d12h.

EXPRESSION: terms side by side, as in 'to:@slow.example age>2h reply~busy'.
from: to: destination: host: held: client: reason: (* for any text), state:
class: compare, reply~ looks for text within, age size tries take > or <, !
before a term turns it round. A value with blanks stands in double quotes.

A message is meant if all conditions hold. --to, --destination and --state
choose among its recipients, and a command touches only those.

retry leaves alone what is held, and bounce what is being delivered. Mail that
its sender wants sent later (HOLDFOR, HOLDUNTIL) is neither retried nor, once
released, sent before that unless an id names it.

",
    ending!()
);

/// The help of commands on rules.
pub(crate) const RULE_HELP: &str = concat!(
    "\
A suspension or a rule is compared with mail when it comes: EXPRESSION has from:
to: destination: client: (* for any text) and class:, ! before a term turns it
round. Mail that it holds names it: \"mailrace queue list held:suspension-3\",
\"mailrace why\". It stays in force over restarts.

Examples:
  mailrace queue suspend destination:slow.example --for 2h --reason 'they move'
  mailrace queue suspend 'from:@lists.example destination:*.example class:bulk'
  mailrace queue hold --rule to:@slow.example --until 18:30 --reason 'they move'
  mailrace queue rules
  mailrace queue resume suspension-3

",
    ending!()
);

/// Ids in one request, which has a limited length.
const IDS_MAX: usize = 2_000;

/// Runs a command.
///
/// # Errors
/// No server, no permission, wrong arguments; the server could not do it.
pub(crate) fn run(command: QueueCommand) -> Result<Exit, Failure> {
    carry_out(command.into_orders()?)
}

/// Runs a command on mail in quarantine.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_quarantine(command: QuarantineCommand) -> Result<Exit, Failure> {
    carry_out(command.into_orders()?)
}

fn carry_out(orders: Option<Orders>) -> Result<Exit, Failure> {
    let Some(orders) = orders else {
        // A list of ids that came out empty must not be taken for the whole queue.
        eprintln!("mailrace: no ids on standard input; nothing was done");
        return Ok(Exit::Ok);
    };
    let mut control = Control::connect(&orders.path).map_err(|failure| without_server(failure, &orders.path))?;
    let mut output = Output::new();
    let mut printer = text::Printer::new(&orders.command, orders.json);
    let mut sums = Map::new();
    let mut is_stopped = false;
    for command in split_into_requests(orders.command) {
        let may_stop = !command.action.changes_mail();
        let request = Request::Queue(Box::new(command));
        let last = control.ask_for_list(&request, |line| {
            printer.print_line(&mut output, line)?;
            Ok(output.is_read() || !may_stop)
        })?;
        let Some(last) = last else {
            is_stopped = true;
            break;
        };
        add(&mut sums, &last);
    }
    let line = Value::Object(sums);
    let totals: QueueTotals = control.decode_line(&line)?;
    if !is_stopped {
        printer.print_end(&mut output, &totals, &line);
    }
    output.finish()?;
    let count = |number: Option<u64>| number.unwrap_or(0);
    Ok(match (count(totals.missing), count(totals.not_owned), count(totals.unreadable)) {
        (0, 0, 0) => Exit::Ok,
        (0, 0, _) => Exit::Damaged,
        (0, ..) => Exit::TryLater,
        _ => Exit::NoInput,
    })
}

/// Splits the ids of a command into requests that are short enough.
pub(crate) fn split_into_requests(command: queue::Command) -> Vec<queue::Command> {
    if command.selection.ids.len() <= IDS_MAX {
        return vec![command];
    }
    let parts = command.selection.ids.chunks(IDS_MAX).map(|ids: &[QueueId]| {
        let mut part = command.clone();
        part.selection.ids = ids.to_vec();
        part
    });
    parts.collect()
}

/// Adds the numbers of one answer to those of the answers before, also numbers that this version does not know.
fn add(totals: &mut Map<String, Value>, last: &Value) {
    for (name, value) in last.as_object().into_iter().flatten() {
        let before = totals.get(name).and_then(Value::as_u64).unwrap_or(0);
        let sum = value.as_u64().map_or_else(|| value.clone(), |value| json!(before + value));
        totals.insert(name.clone(), sum);
    }
}

fn without_server(failure: Failure, path: &Path) -> Failure {
    if failure.exit != Exit::Unavailable {
        return failure;
    }
    let text = format!(
        "{}: no server answers there, and its queue is looked at through it; start mailrace, name its control.path with --control, or use \"mailrace spool inspect\" on a stopped one",
        path.display()
    );
    Failure::new(Exit::Unavailable, text)
}

/// The orders of a command line that selects recipients.
fn is_meant(action: Action, selection: &queue::Selection, all: bool) -> Result<(), Failure> {
    if action.changes_mail() && selection.is_everything() && !all {
        let text = format!("queue {}: say which: ids, a condition such as --to, or --all", action.name());
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ids_go_in_several_requests_that_fit() {
        let id = |number: u64| QueueId::from_u64(QueueId::MIN.to_u64() + number).unwrap();
        let selection = queue::Selection { ids: (0..4_001).map(id).collect(), ..queue::Selection::default() };
        let parts = split_into_requests(queue::Command::new(Action::Delete, selection.clone()));
        let lengths: Vec<usize> = parts.iter().map(|part| part.selection.ids.len()).collect();
        assert_eq!(lengths, [2_000, 2_000, 1]);
        assert_eq!(parts.iter().flat_map(|part| part.selection.ids.clone()).collect::<Vec<_>>(), selection.ids);
        for part in parts {
            let line = Request::Queue(Box::new(part)).to_line();
            assert!(line.len() < operator::control::LINE_BYTES_MAX, "{}", line.len());
        }
    }

    #[test]
    fn figures_are_added_and_flags_kept() {
        let mut totals = Map::new();
        add(&mut totals, &json!({ "ok": true, "messages": 2, "dry_run": true }));
        add(&mut totals, &json!({ "ok": true, "messages": 3, "missing": 1 }));
        assert_eq!(Value::Object(totals), json!({ "ok": true, "messages": 5, "missing": 1, "dry_run": true }));
    }
}
