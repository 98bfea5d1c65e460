//! `stats queue`: messages that wait with the number of their recipients, as the source's mailqq prints them.

use super::report::Report;
use super::{civil_text, clock};
use crate::control_client::Control;
use crate::exit::Failure;
use crate::output::{Output, count};
use crate::sendmail::request_list;
use crate::terminal_text::plain;
use observe::stats::{Fact, WaitingMessages};
use operator::answers::MessageLine;
use operator::queue::{Action, Command, Selection};
use serde_json::{Value, json};

/// The table of messages.
pub(super) struct QueueTable;

/// From a log, or from the server.
pub(super) enum QueueSums {
    Logs(Box<WaitingMessages>),
    Server(Vec<QueueTableRow>),
}

/// One message of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueTableRow {
    id: String,
    recipients: u64,
    size: u64,
    /// Civil time.
    arrived: i64,
    from: String,
    is_active: bool,
}

impl Report for QueueTable {
    type Sums = QueueSums;

    fn empty(&self) -> QueueSums {
        QueueSums::Logs(Box::default())
    }

    fn record(&self, sums: &mut QueueSums, time: i64, fact: &Fact<'_>) {
        if let QueueSums::Logs(waiting) = sums {
            waiting.record(time, fact);
        }
    }

    fn ask(&self, control: &mut Control) -> Result<QueueSums, Failure> {
        let mut command = Command::new(Action::List, Selection::default());
        command.limit = Some(0);
        let mut messages: Vec<QueueTableRow> =
            request_list(control, command)?.into_iter().map(QueueTableRow::of_server).collect();
        messages.sort_by(|a, b| (a.recipients, &a.id).cmp(&(b.recipients, &b.id)));
        Ok(QueueSums::Server(messages))
    }

    fn print(&self, output: &mut Output, sums: &QueueSums, _now: i64) -> Result<(), Failure> {
        output.print_line("nrecipients  length  date              sender");
        let messages = messages(sums);
        for message in &messages {
            output.print_line(line(message));
        }
        let recipients = messages.iter().map(|message| message.recipients).sum();
        let number = messages.len().try_into().unwrap_or(u64::MAX);
        output.print_line(format_args!("{} of {}", count(recipients, "recipient"), count(number, "message")));
        Ok(())
    }

    fn to_json(&self, sums: &QueueSums, now: i64) -> Value {
        let message = |message: QueueTableRow| {
            json!({
                "id": message.id, "recipients": message.recipients, "size": message.size,
                "arrived": civil_text::iso(message.arrived), "from": message.from, "active": message.is_active,
            })
        };
        let messages: Vec<Value> = messages(sums).into_iter().map(message).collect();
        let left_out = match sums {
            QueueSums::Logs(waiting) => waiting.left_out(),
            QueueSums::Server(_) => 0,
        };
        json!({ "time": civil_text::iso(now), "messages": messages, "left_out": left_out })
    }
}

fn messages(sums: &QueueSums) -> Vec<QueueTableRow> {
    match sums {
        QueueSums::Server(messages) => messages.clone(),
        QueueSums::Logs(waiting) => {
            let message = |one: observe::stats::WaitingMessage| QueueTableRow {
                id: one.id,
                recipients: one.recipients,
                size: one.size,
                arrived: one.arrived,
                from: one.from,
                is_active: false,
            };
            waiting.list().into_iter().map(message).collect()
        }
    }
}

/// `3 IAA10524*  423 Sat Feb 22 08:52 <inet-access@earth.com>`; the mark stands for an attempt that is under way.
fn line(message: &QueueTableRow) -> String {
    let mark = if message.is_active { '*' } else { ' ' };
    let (id, from, date) = (plain(&message.id), plain(&message.from), civil_text::minute(message.arrived));
    format!("{} {id}{mark}{:>5} {date} <{from}>", message.recipients, message.size)
}

impl QueueTableRow {
    fn of_server(line: MessageLine) -> Self {
        Self {
            is_active: line.recipients.iter().any(|one| one.state == "active"),
            id: line.id,
            recipients: line.waiting,
            size: line.size.unwrap_or(0),
            arrived: clock::civil_of(line.arrived),
            from: line.from.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::CivilTime;

    #[test]
    fn lines_are_those_of_the_source() {
        let at = |hour, minute| CivilTime { year: 1997, month: 2, day: 22, hour, minute, second: 9 }.to_unix().unwrap();
        let message = |id: &str, recipients, size, arrived, is_active| {
            let (id, from) = (id.to_owned(), "inet-access@earth.com".to_owned());
            line(&QueueTableRow { id, recipients, size, arrived, from, is_active })
        };
        let plain = message("BAA08598", 3, 1_554, at(1, 2), false);
        assert_eq!(plain, "3 BAA08598  1554 Sat Feb 22 01:02 <inet-access@earth.com>");
        let active = message("IAA10524", 3, 423, at(8, 52), true);
        assert_eq!(active, "3 IAA10524*  423 Sat Feb 22 08:52 <inet-access@earth.com>");
    }
}
