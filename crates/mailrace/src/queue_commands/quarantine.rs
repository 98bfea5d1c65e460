//! The arguments of `mailrace quarantine`: commands on the queue that touch only recipients in quarantine.

use super::arguments::{AnswerForm, Orders, age, limit, read_ids};
use crate::exit::{Exit, Failure};
use clap::{Args, Subcommand};
use mail::Address;
use operator::queue::{Action, LIST_MAX, Pattern, Selection, parse_forward_address};
use std::time::Duration;

/// The end of every command's help.
const HELP: &str = "\
ADDRESS: a whole address, @DOMAIN, or * for any text, as in '*-bounces@*'.
AGE: numbers with s, m, h, d or w, as in 90m or 1d12h.

Mail is in quarantine if a content rule says so (action quarantine). A message
is meant if all conditions hold; a command touches only recipients that are in
quarantine. Every change is a line in the log.

release sends a copy with a queue id of its own, whose time in the queue begins
now, and a field X-Quarantine-Release; forward sends one to another address, and
the message stays in quarantine for its recipients.";

#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// Show messages in quarantine, the oldest first: who gets them, and which rule keeps them
    #[command(after_help = HELP)]
    List(QuarantineListArguments),
    /// Show everything that is known of messages, with their header sections
    #[command(after_help = HELP)]
    Show(QuarantineShowArguments),
    /// Deliver messages to the recipients for whom they are kept
    #[command(after_help = HELP)]
    Release(QuarantineChangeArguments),
    /// Send a copy to another address; the messages stay in quarantine
    #[command(after_help = HELP)]
    Forward(QuarantineForwardArguments),
    /// Drop messages for good; senders are not told
    #[command(after_help = HELP)]
    Delete(QuarantineChangeArguments),
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineListArguments {
    /// Messages, by their queue ids; - reads them from standard input
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    conditions: QuarantineConditions,
    /// Show at most so many messages; 0 for all
    #[arg(long, value_name = "N", default_value_t = LIST_MAX, value_parser = limit, allow_negative_numbers = true)]
    limit: u64,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineShowArguments {
    /// Messages, by their queue ids; - reads them from standard input
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineChangeArguments {
    /// Messages, by their queue ids; - reads them from standard input
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    conditions: QuarantineConditions,
    /// All mail in quarantine
    #[arg(long, conflicts_with_all = ["ids", "from", "to", "rule", "older", "younger"])]
    all: bool,
    /// Touch at most so many messages, the oldest; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = limit, allow_negative_numbers = true)]
    limit: u64,
    /// Show what would be touched, and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineForwardArguments {
    /// Messages, by their queue ids; - reads them from standard input
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// The address that gets the copy
    #[arg(long, value_name = "ADDRESS", value_parser = parse_forward_address)]
    to: Address,
    /// Show what would be sent, and send nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    form: AnswerForm,
}

/// Which messages and recipients.
#[derive(Debug, Args)]
struct QuarantineConditions {
    /// Messages of this sender
    #[arg(long, value_name = "ADDRESS", value_parser = Pattern::parse)]
    from: Option<Pattern>,
    /// Recipients with this address
    #[arg(long, value_name = "ADDRESS", value_parser = Pattern::parse)]
    to: Option<Pattern>,
    /// Kept by this rule; * for any text
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Messages at least that old
    #[arg(long, value_name = "AGE", value_parser = age)]
    older: Option<Duration>,
    /// Messages younger than that
    #[arg(long, value_name = "AGE", value_parser = age)]
    younger: Option<Duration>,
}

impl QuarantineCommand {
    /// Returns the command of the arguments; `None` if ids were to come from standard input and none came.
    ///
    /// # Errors
    /// A word is no id, or there is no condition.
    pub(super) fn into_orders(self) -> Result<Option<Orders>, Failure> {
        match self {
            Self::List(QuarantineListArguments { ids, conditions, limit, form }) => {
                let Some(selection) = conditions.with(&ids)? else { return Ok(None) };
                Ok(Some(form.orders(Action::List, selection, limit, |_| {})))
            }
            Self::Show(QuarantineShowArguments { ids, form }) => {
                let Some(ids) = read_ids(&ids)? else { return Ok(None) };
                let selection = Selection { ids, quarantined: true, ..Selection::default() };
                Ok(Some(form.orders(Action::Show, selection, 0, |command| command.headers = true)))
            }
            Self::Release(arguments) => arguments.into_orders(Action::Release),
            Self::Forward(QuarantineForwardArguments { ids, to, dry_run, form }) => {
                let Some(ids) = read_ids(&ids)? else { return Ok(None) };
                let selection = Selection { ids, quarantined: true, ..Selection::default() };
                Ok(Some(form.orders(Action::Forward, selection, 0, |command| {
                    command.dry_run = dry_run;
                    command.forward_to = Some(to);
                })))
            }
            Self::Delete(arguments) => arguments.into_orders(Action::Delete),
        }
    }
}

impl QuarantineChangeArguments {
    fn into_orders(self, action: Action) -> Result<Option<Orders>, Failure> {
        let Self { ids, conditions, all, limit, dry_run, form } = self;
        let Some(selection) = conditions.with(&ids)? else { return Ok(None) };
        if !all && selection == (Selection { quarantined: true, ..Selection::default() }) {
            let text = format!("quarantine {}: say which: ids, a condition such as --to, or --all", action.name());
            return Err(Failure::new(Exit::Usage, text));
        }
        Ok(Some(form.orders(action, selection, limit, |command| command.dry_run = dry_run)))
    }
}

impl QuarantineConditions {
    fn with(self, ids: &[String]) -> Result<Option<Selection>, Failure> {
        let Self { from, to, rule, older, younger } = self;
        let Some(ids) = read_ids(ids)? else { return Ok(None) };
        let held_by = rule.map(Into::into);
        Ok(Some(Selection { ids, from, to, older, younger, held_by, quarantined: true, ..Selection::default() }))
    }
}
