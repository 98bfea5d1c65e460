//! Prints answers about the queue for people in 80 columns, or as they came.
//!
//! Text that came from other servers is shown without its control characters. A remark that is no part of the JSON goes
//! to standard error.

mod destination;
mod message;

pub(super) use message::next_attempt;

use crate::output::{Output, Progress, count, thousands};
use crate::terminal_text::plain;
use operator::answers::{MessageLine, MissingLine, NotOwnedLine, QueueLine, QueueTotals, RuleLine, UnreadableLine};
use operator::queue::{Action, Command};
use serde_json::Value;

/// Prints the lines of an answer.
pub(super) struct Printer {
    action: Action,
    dry_run: bool,
    json: bool,
    /// Nothing was left out on purpose.
    is_all: bool,
    /// The head of the list is printed.
    has_head: bool,
    /// The message that was shown last: its further recipients have no head of their own.
    id: Option<String>,
    /// How far a long command has come.
    progress: Progress,
}

impl Printer {
    pub(super) fn new(command: &Command, json: bool) -> Self {
        let Command { action, dry_run, .. } = *command;
        let is_all = command.selection.is_everything();
        Self { action, dry_run, json, is_all, has_head: false, id: None, progress: Progress::new() }
    }

    /// Prints a line of the answer.
    ///
    /// # Errors
    /// The line has a field of another type than expected. A line that is printed as JSON may have that.
    pub(super) fn print_line(&mut self, output: &mut Output, line: &Value) -> Result<(), serde_json::Error> {
        let read = QueueLine::from_line(line, self.action.line_kind());
        if let Ok(QueueLine::Progress(line)) = &read {
            let percent = (line.seen * 100).checked_div(line.of).unwrap_or(100);
            let seen = thousands(line.seen);
            self.progress.show(format_args!("{seen} of {} messages, {percent} %", thousands(line.of)));
            return Ok(());
        }
        self.progress.clear();
        if self.json {
            output.print_json(line);
            return Ok(());
        }
        match read? {
            QueueLine::Progress(_) => {}
            QueueLine::Missing(MissingLine { missing }) => eprintln!(
                "mailrace: {missing}: not in the queue: delivered, bounced or deleted, as the log says, or never here"
            ),
            QueueLine::Unreadable(UnreadableLine { unreadable, trouble }) => {
                eprintln!("mailrace: {unreadable}: its addresses cannot be read: {}", plain(&trouble));
            }
            QueueLine::NotOwned(NotOwnedLine { not_owned, trouble }) => {
                eprintln!("mailrace: {not_owned}: left as it is: {}", plain(&trouble));
            }
            // No command that is printed asks for it.
            QueueLine::Content(_) => {}
            QueueLine::Message(line) => self.print_message(output, &line),
            QueueLine::Destination(line) => {
                self.print_head(output, "RECIPIENTS  DESTINATION");
                destination::print_destination(output, &line);
            }
            QueueLine::Rule(line) => {
                self.has_head = true;
                print_rule(output, &line);
            }
            QueueLine::Straggler(line) => {
                self.print_head(output, "RECIPIENTS  MESSAGES  OLDEST  WHO");
                destination::print_straggler(output, &line);
            }
        }
        Ok(())
    }

    fn print_message(&mut self, output: &mut Output, line: &MessageLine) {
        match self.action {
            Action::List => {
                self.print_head(output, "ID                 AGE   SIZE  SENDER, RECIPIENTS");
                message::print_listed(output, line);
            }
            Action::Show => {
                if self.id.as_ref() != Some(&line.id) {
                    if self.id.replace(line.id.clone()).is_some() {
                        output.print_line("");
                    }
                    message::print_head(output, line);
                }
                message::print_shown(output, line);
            }
            _ => message::print_changed(output, line),
        }
    }

    /// Prints the head of the list above its first line.
    fn print_head(&mut self, output: &mut Output, text: &str) {
        if !std::mem::replace(&mut self.has_head, true) {
            output.print_line(text);
        }
    }

    /// Prints the end of the answer: the sums of its last lines, and as JSON `line`.
    pub(super) fn print_end(&self, output: &mut Output, totals: &QueueTotals, line: &Value) {
        self.progress.clear();
        if self.json {
            if self.action.changes_mail() || self.action == Action::Count {
                output.print_json(line);
            } else if let Some(more) = self.more(totals) {
                eprintln!("mailrace: {more}");
            }
            return;
        }
        let (messages, recipients) = (totals.messages.unwrap_or(0), totals.recipients.unwrap_or(0));
        match self.action {
            Action::Show => {}
            Action::Rules if !self.has_head => output.print_line("no suspension and no hold rule is in force"),
            Action::Rules => {}
            Action::HoldRule | Action::Suspend | Action::Resume => self.print_ruled(output, totals),
            Action::Destinations if totals.destinations.unwrap_or(0) == 0 => output.print_line("the queue is empty"),
            Action::Destinations => {}
            Action::Stragglers if recipients == 0 => {
                output.print_line("nobody has been waiting for so long: an hour, or what --older says")
            }
            Action::Stragglers => {
                output.print_line(format_args!("{} of {}", count(recipients, "recipient"), count(messages, "message")));
            }
            Action::List if messages == 0 && totals.own => {
                output.print_line(
                    "no mail of yours is waiting; what others have handed in is shown to operators (control.mailq)",
                );
            }
            Action::List if messages == 0 && self.is_all => output.print_line("the queue is empty"),
            Action::List if messages == 0 => output.print_line("no such message in the queue"),
            Action::List | Action::Count => {
                output.print_line(format_args!("{}, {}", count(messages, "message"), count(recipients, "recipient")))
            }
            action => self.print_changed(output, action, totals),
        }
        if let Some(more) = self.more(totals) {
            output.print_line(more);
        }
    }

    /// Prints the rule that was set or ended, and what that did to mail.
    fn print_ruled(&self, output: &mut Output, totals: &QueueTotals) {
        let name = plain(totals.rule.as_deref().unwrap_or("the rule"));
        match (self.action, self.dry_run) {
            (Action::HoldRule, true) => {
                return output.print_line("dry run, nothing was changed: the rule is a good one");
            }
            (_, true) => {}
            (Action::Resume, false) => output.print_line(format_args!("{name} has ended")),
            (_, false) => output.print_line(format_args!(
                "{name} is in force, also after a restart; \"mailrace queue resume {name}\" ends it"
            )),
        }
        if self.action != Action::HoldRule {
            self.print_changed(output, self.action, totals);
        }
    }

    /// Says what the limit left out.
    fn more(&self, totals: &QueueTotals) -> Option<String> {
        let noun = match self.action {
            Action::Destinations => "destination",
            Action::Stragglers => "line",
            _ => "message",
        };
        match (totals.more, totals.unseen.unwrap_or(0)) {
            (0, 0) => None,
            // More groups than are kept in memory; no limit shows them.
            (more, unseen) if unseen > 0 && self.action == Action::Stragglers => Some(format!(
                "{}, and {} that found no room in them; --older, --to or --destination to look at fewer",
                count(more, "more line"),
                count(unseen, "recipient")
            )),
            (0, unseen) => Some(format!("{} were not looked at; --limit 0 for all", count(unseen, noun))),
            (more, _) => {
                Some(format!("{} more {noun}{}; --limit 0 for all", thousands(more), if more == 1 { "" } else { "s" }))
            }
        }
    }

    /// Prints what a change did.
    fn print_changed(&self, output: &mut Output, action: Action, totals: &QueueTotals) {
        let (messages, recipients) = (totals.messages.unwrap_or(0), totals.recipients.unwrap_or(0));
        let what = format!("{} of {}", count(recipients, "recipient"), count(messages, "message"));
        let done = match action {
            Action::Retry => "to be tried now",
            Action::Hold | Action::Suspend => "held",
            Action::Release | Action::Resume => "released",
            Action::Bounce => "bounced",
            Action::Expire => "expired",
            Action::Reroute => "sent elsewhere",
            Action::Forward => "forwarded",
            _ => "deleted",
        };
        output.print_line(match (self.dry_run, recipients) {
            (false, 0) if action == Action::Suspend => "nothing else was to be held; new mail is".to_owned(),
            (false, 0) if action == Action::Resume => "it held no mail".to_owned(),
            (_, 0) => "nothing to do".to_owned(),
            (true, _) => format!("dry run, nothing was changed: {what} would be {done}"),
            (false, _) => format!("{what} {done}"),
        });
        let unchanged = totals.unchanged.unwrap_or(0);
        if unchanged > 0 {
            let what = count(unchanged, "recipient");
            output.print_line(match action {
                Action::Retry => format!("{what} held: mailrace queue release lets go of them"),
                Action::Hold | Action::Suspend => format!("{what} held before"),
                Action::Reroute => format!("{what} there before, or already delivered"),
                Action::Bounce | Action::Expire => {
                    format!("{what} held: reports to the postmaster; mailrace queue delete takes them out")
                }
                _ => format!("{what} not held"),
            });
        }
        let kept = totals.kept.unwrap_or(0);
        if kept > 0 {
            let (what, whose, them) = match kept {
                1 => ("1 recipient".to_owned(), "its sender's", "the message"),
                _ => (count(kept, "recipient"), "their senders'", "the messages"),
            };
            output.print_line(format_args!("{what} kept until {whose} time; name {them} by id to send now"));
        }
        if let Some(waiting) = totals.unscreened {
            let what = match waiting {
                1 => "1 recipient waits".to_owned(),
                _ => format!("{} wait", count(waiting, "recipient")),
            };
            output.print_line(match action {
                Action::Release => format!("{what} for filters; --unscreened delivers without them"),
                _ => format!("{what} for filters, which are asked again by themselves: mailrace status"),
            });
        }
        let active = totals.active.unwrap_or(0);
        let what = count(active, "recipient");
        if active > 0 && matches!(action, Action::Bounce | Action::Expire | Action::Reroute) {
            output.print_line(format_args!("{what} being delivered right now, and left alone"));
        }
        if active > 0 && matches!(action, Action::Hold | Action::Suspend | Action::Delete) {
            output.print_line(format_args!("{what} being delivered right now: what is under way may still arrive"));
        }
    }
}

/// Prints a suspension or a hold rule on two lines.
fn print_rule(output: &mut Output, line: &RuleLine) {
    let RuleLine { rule, expression, reason, set_by, set_at, until } = line;
    output.print_line(format_args!("{}  {}", plain(rule), plain(expression)));
    let reason = reason.as_deref().map(|reason| format!("{}; ", plain(reason))).unwrap_or_default();
    let date = |seconds: u64| mail::submission::date(seconds.saturating_mul(1_000_000), 0);
    let until = until.map_or_else(|| "until it is resumed".to_owned(), |until| format!("until {}", date(until)));
    output.print_line(format_args!("    {reason}set by {} at {}, {until}", plain(set_by), date(*set_at)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator::queue::Selection;

    #[test]
    fn the_end_says_what_the_limit_left_out() {
        let more = |action, more, unseen: Option<u64>| {
            let totals = QueueTotals { more, unseen, ..QueueTotals::default() };
            Printer::new(&Command::new(action, Selection::default()), false).more(&totals)
        };
        assert_eq!(more(Action::List, 0, None), None);
        assert_eq!(more(Action::List, 1, None).unwrap(), "1 more message; --limit 0 for all");
        assert_eq!(more(Action::List, 0, Some(1_200)).unwrap(), "1,200 messages were not looked at; --limit 0 for all");
        assert_eq!(more(Action::Destinations, 2, None).unwrap(), "2 more destinations; --limit 0 for all");
        assert_eq!(more(Action::Stragglers, 2, None).unwrap(), "2 more lines; --limit 0 for all");
        let full = more(Action::Stragglers, 2, Some(1)).unwrap();
        assert!(full.starts_with("2 more lines, and 1 recipient that found no room in them; "), "{full}");
    }
}
