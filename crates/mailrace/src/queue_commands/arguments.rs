//! The arguments of `mailrace queue`, and the commands made from them.

use super::is_meant;
use crate::control_client::ControlTarget;
use crate::exit::{Exit, Failure};
use clap::{Args, Subcommand};
use mail::{CivilTime, QueueId};
use operator::queue::{self, Action, Expression, GroupBy, LIST_MAX, Pattern, RecipientStatus, Selection};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

/// Recipients that have waited for this long are late, unless --older says otherwise.
const LATE: Duration = Duration::from_secs(3_600);

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show messages, the oldest first, with a few recipients of each
    #[command(after_help = super::HELP)]
    List(ListArguments),
    /// Show everything that is known of messages
    #[command(after_help = super::PLAIN_HELP)]
    Show(ShowArguments),
    /// Show destinations and their state, the fullest first
    #[command(after_help = super::PLAIN_HELP)]
    Destinations(DestinationsArguments),
    /// Count who has waited for an hour or more, the most first
    #[command(visible_alias = "latedudes", after_help = super::HELP)]
    Stragglers(StragglersArguments),
    /// Try what waits now, due or not
    #[command(after_help = super::HELP)]
    Retry(ChangeArguments),
    /// Keep what waits until it is released, or for a time; with --rule what comes from now on
    #[command(after_help = super::HELP)]
    Hold(HoldArguments),
    /// Hold what waits and what comes, until it is resumed, or for a time
    #[command(after_help = super::RULE_HELP)]
    Suspend(SuspendArguments),
    /// End a suspension or a rule of "hold --rule", and release what it holds
    #[command(after_help = super::RULE_HELP)]
    Resume(ResumeArguments),
    /// Show suspensions and rules of "hold --rule"
    #[command(after_help = super::RULE_HELP)]
    Rules(RulesArguments),
    /// Let what is held wait for delivery again
    #[command(after_help = super::HELP)]
    Release(ReleaseArguments),
    /// Take out of the queue for good; senders are not told
    #[command(after_help = super::HELP)]
    Delete(ChangeArguments),
    /// Give up now; senders get a report as for any failure
    #[command(after_help = super::HELP)]
    Bounce(BounceArguments),
    /// Give up now as too old; senders get a report as for any mail that has expired
    #[command(after_help = super::HELP)]
    Expire(ChangeArguments),
    /// Count messages and recipients
    #[command(after_help = super::HELP)]
    Count(CountArguments),
    /// Send what waits to another destination, and try it now
    #[command(after_help = super::HELP)]
    Reroute(RerouteArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Messages, by their queue ids (- reads them from standard input), or an expression
    #[arg(value_name = "ID|EXPRESSION")]
    words: Vec<String>,
    #[command(flatten)]
    conditions: Conditions,
    /// Show at most so many messages; 0 for all
    #[arg(long, value_name = "N", default_value_t = LIST_MAX, value_parser = limit, allow_negative_numbers = true)]
    limit: u64,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// Messages, by their queue ids; - reads them from standard input
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Show the header section as well
    #[arg(long)]
    headers: bool,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct DestinationsArguments {
    /// Show at most so many; 0 for all
    #[arg(long, value_name = "N", default_value_t = LIST_MAX, value_parser = limit, allow_negative_numbers = true)]
    limit: u64,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct StragglersArguments {
    /// An expression
    #[arg(value_name = "EXPRESSION")]
    words: Vec<String>,
    /// Group counts by destination, recipient, or host (where their mail goes)
    #[arg(long, value_name = "WHAT", default_value = "destination", value_parser = by)]
    by: GroupBy,
    #[command(flatten)]
    conditions: Conditions,
    /// Show at most so many lines; 0 for all
    #[arg(long, value_name = "N", default_value_t = LIST_MAX, value_parser = limit, allow_negative_numbers = true)]
    limit: u64,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct ChangeArguments {
    /// Messages, by their queue ids (- reads them from standard input), or an expression
    #[arg(value_name = "ID|EXPRESSION")]
    words: Vec<String>,
    #[command(flatten)]
    conditions: Conditions,
    /// The whole queue
    #[arg(long, conflicts_with_all = ["words", "from", "to", "destination", "state", "older", "younger"])]
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
pub(crate) struct HoldArguments {
    #[command(flatten)]
    change: ChangeArguments,
    /// Hold mail that comes from now on, for which all terms hold: from: to: destination: client: class:
    #[arg(long, value_name = "EXPRESSION", value_parser = Expression::parse,
          conflicts_with_all = ["words", "from", "to", "destination", "state", "older", "younger", "all"])]
    rule: Option<Expression>,
    #[command(flatten)]
    hold: HoldOptions,
}

/// Why and how long.
#[derive(Debug, Args)]
pub(crate) struct HoldOptions {
    /// Why, in a line for whoever looks at the queue
    #[arg(long, value_name = "TEXT", value_parser = queue::parse_reason)]
    reason: Option<Box<str>>,
    /// Release it after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = hold_time)]
    hold_time: Option<Duration>,
    /// Release it at this time: 18:30 (the next one, UTC) or 2026-12-01T18:30Z
    #[arg(long, value_name = "TIME", value_parser = until, conflicts_with = "hold_time")]
    until: Option<Duration>,
}

impl HoldOptions {
    fn time(&self) -> Option<Duration> {
        self.hold_time.or(self.until)
    }
}

#[derive(Debug, Args)]
pub(crate) struct SuspendArguments {
    /// An expression of from: to: destination: client: class:
    #[arg(value_name = "EXPRESSION", required = true)]
    words: Vec<String>,
    /// Show what would be held of what waits, and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    hold: HoldOptions,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArguments {
    /// The name, as suspension-3 or rule-4
    #[arg(value_name = "NAME")]
    name: String,
    /// Leave the mail held that it holds; it is released as any other then
    #[arg(long)]
    keep: bool,
    /// Show what would be released, and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct RulesArguments {
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArguments {
    #[command(flatten)]
    change: ChangeArguments,
    /// Deliver also mail that its filters have not judged
    #[arg(long)]
    unscreened: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BounceArguments {
    #[command(flatten)]
    change: ChangeArguments,
    /// Why, in a line for the senders and the log
    #[arg(long, value_name = "TEXT", value_parser = queue::parse_reason)]
    reason: Option<Box<str>>,
}

#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    /// Messages, by their queue ids (- reads them from standard input), or an expression
    #[arg(value_name = "ID|EXPRESSION")]
    words: Vec<String>,
    #[command(flatten)]
    conditions: Conditions,
    #[command(flatten)]
    form: AnswerForm,
}

#[derive(Debug, Args)]
pub(crate) struct RerouteArguments {
    #[command(flatten)]
    change: ChangeArguments,
    /// Where to: a domain, an address in brackets, or hosts as in smtp:[192.0.2.1]:25
    #[arg(long, value_name = "DESTINATION")]
    via: String,
}

/// Which messages and recipients.
#[derive(Debug, Args)]
struct Conditions {
    /// Messages of this sender
    #[arg(long, value_name = "ADDRESS", value_parser = Pattern::parse)]
    from: Option<Pattern>,
    /// Recipients with this address
    #[arg(long, value_name = "ADDRESS", value_parser = Pattern::parse)]
    to: Option<Pattern>,
    /// Recipients of this destination, as lists name it; * for any text
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Recipients in this state: waiting, held, active
    #[arg(long, value_name = "STATE", value_parser = standing)]
    state: Option<RecipientStatus>,
    /// Messages at least that old
    #[arg(long, value_name = "AGE", value_parser = age)]
    older: Option<Duration>,
    /// Messages younger than that
    #[arg(long, value_name = "AGE", value_parser = age)]
    younger: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct AnswerForm {
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: ControlTarget,
}

/// The command, the socket to send it to, and the form of the answer.
pub(super) struct Orders {
    pub(super) command: queue::Command,
    pub(super) path: PathBuf,
    pub(super) json: bool,
}

impl QueueCommand {
    /// Returns the command of the arguments; `None` if ids were to come from standard input and none came.
    ///
    /// # Errors
    /// A word is no id, or there is no condition.
    pub(super) fn into_orders(self) -> Result<Option<Orders>, Failure> {
        match self {
            Self::List(ListArguments { words, conditions, limit, form }) => {
                let Some(selection) = conditions.with(&words)? else { return Ok(None) };
                Ok(Some(form.orders(Action::List, selection, limit, |_| {})))
            }
            Self::Show(ShowArguments { ids, headers, form }) => {
                let Some(ids) = read_ids(&ids)? else { return Ok(None) };
                let selection = Selection { ids, ..Selection::default() };
                Ok(Some(form.orders(Action::Show, selection, 0, |command| command.headers = headers)))
            }
            Self::Destinations(DestinationsArguments { limit, form }) => {
                Ok(Some(form.orders(Action::Destinations, Selection::default(), limit, |_| {})))
            }
            Self::Stragglers(StragglersArguments { words, by, conditions, limit, form }) => {
                let Some(mut selection) = conditions.with(&words)? else { return Ok(None) };
                selection.older.get_or_insert(LATE);
                Ok(Some(form.orders(Action::Stragglers, selection, limit, |command| command.by = by)))
            }
            Self::Retry(arguments) => arguments.into_orders(Action::Retry),
            Self::Hold(HoldArguments { change, rule: None, hold }) => {
                let orders = change.into_orders(Action::Hold)?;
                Ok(orders.map(|mut orders| {
                    orders.command.hold_time = hold.time();
                    orders.command.reason = hold.reason;
                    orders
                }))
            }
            Self::Hold(HoldArguments { change, rule: Some(expression), hold }) => {
                let ChangeArguments { dry_run, form, .. } = change;
                Ok(Some(form.rule_orders(Action::HoldRule, expression, dry_run, hold)))
            }
            Self::Suspend(SuspendArguments { words, dry_run, hold, form }) => {
                let (expression, ids) = split_words(&words)?;
                let Some(expression) = expression.filter(|_| ids.is_empty()) else {
                    let text = "queue suspend: an expression says which, as in 'to:@slow.example class:bulk'";
                    return Err(Failure::new(Exit::Usage, text));
                };
                Ok(Some(form.rule_orders(Action::Suspend, expression, dry_run, hold)))
            }
            Self::Resume(ResumeArguments { name, keep, dry_run, form }) => {
                let selection = Selection { held_by: Some(name.into()), ..Selection::default() };
                Ok(Some(form.orders(Action::Resume, selection, 0, |command| {
                    (command.keep_held, command.dry_run) = (keep, dry_run);
                })))
            }
            Self::Rules(RulesArguments { form }) => {
                Ok(Some(form.orders(Action::Rules, Selection::default(), 0, |_| {})))
            }
            Self::Expire(arguments) => arguments.into_orders(Action::Expire),
            Self::Release(ReleaseArguments { change, unscreened }) => {
                let orders = change.into_orders(Action::Release)?;
                Ok(orders.map(|mut orders| {
                    orders.command.unscreened = unscreened;
                    orders
                }))
            }
            Self::Delete(arguments) => arguments.into_orders(Action::Delete),
            Self::Count(CountArguments { words, conditions, form }) => {
                let Some(selection) = conditions.with(&words)? else { return Ok(None) };
                Ok(Some(form.orders(Action::Count, selection, 0, |_| {})))
            }
            Self::Reroute(RerouteArguments { change, via }) => {
                let orders = change.into_orders(Action::Reroute)?;
                Ok(orders.map(|mut orders| {
                    orders.command.destination = Some(via.into());
                    orders
                }))
            }
            Self::Bounce(BounceArguments { change, reason }) => {
                let orders = change.into_orders(Action::Bounce)?;
                Ok(orders.map(|mut orders| {
                    orders.command.reason = reason;
                    orders
                }))
            }
        }
    }
}

impl ChangeArguments {
    fn into_orders(self, action: Action) -> Result<Option<Orders>, Failure> {
        let Self { words, conditions, all, limit, dry_run, form } = self;
        let Some(selection) = conditions.with(&words)? else { return Ok(None) };
        is_meant(action, &selection, all)?;
        Ok(Some(form.orders(action, selection, limit, |command| command.dry_run = dry_run)))
    }
}

impl AnswerForm {
    pub(super) fn orders(
        self,
        action: Action,
        selection: Selection,
        limit: u64,
        set: impl FnOnce(&mut queue::Command),
    ) -> Orders {
        let mut command = queue::Command::new(action, selection);
        command.limit = Some(limit).filter(|limit| *limit > 0);
        set(&mut command);
        Orders { command, path: self.target.path(), json: self.json }
    }
}

impl AnswerForm {
    fn rule_orders(self, action: Action, expression: Expression, dry_run: bool, hold: HoldOptions) -> Orders {
        let selection = Selection { expression: Some(expression), ..Selection::default() };
        self.orders(action, selection, 0, |command| {
            command.dry_run = dry_run;
            command.hold_time = hold.time();
            command.reason = hold.reason;
        })
    }
}

impl Conditions {
    /// Returns the selection of words and conditions; `None` if ids were to come from standard input and none came.
    fn with(self, words: &[String]) -> Result<Option<Selection>, Failure> {
        let Self { from, to, destination, state, older, younger } = self;
        let (expression, ids) = split_words(words)?;
        let Some(ids) = read_ids(&ids)? else { return Ok(None) };
        let destination = destination.map(Into::into);
        Ok(Some(Selection { ids, from, to, destination, state, older, younger, expression, ..Selection::default() }))
    }
}

/// Splits the words of a command line into an expression and ids. A word with blanks may be an expression of its own,
/// as in `'to:@a.example age>2h'`.
fn split_words(words: &[String]) -> Result<(Option<Expression>, Vec<String>), Failure> {
    let (terms, ids): (Vec<String>, Vec<String>) = words.iter().cloned().partition(|word| Expression::is_term(word));
    if terms.is_empty() {
        return Ok((None, ids));
    }
    // The shell has taken the quotes away that stood around the value of a word of its own.
    let terms = terms.iter().map(|term| match term.split_once(['~', ':']) {
        Some((name, value)) if value.contains(' ') && !value.contains(['"', ':', '~', '<', '>']) => {
            let operator = term.get(name.len()..=name.len()).unwrap_or_default();
            format!("{name}{operator}\"{value}\"")
        }
        _ => term.clone(),
    });
    let text = terms.collect::<Vec<_>>().join(" ");
    let expression = Expression::parse(&text).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    Ok((Some(expression), ids))
}

/// The ids that are named; `None` if none came from standard input.
pub(super) fn read_ids(words: &[String]) -> Result<Option<Vec<QueueId>>, Failure> {
    let mut ids = Vec::new();
    for word in words {
        if word == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| Failure::io("standard input", &error))?;
            for word in text.split_whitespace() {
                ids.push(read_id(word)?);
            }
        } else {
            ids.push(read_id(word)?);
        }
    }
    Ok(if ids.is_empty() && !words.is_empty() { None } else { Some(ids) })
}

fn read_id(word: &str) -> Result<QueueId, Failure> {
    word.parse().map_err(|_| {
        let example = "they have 14 letters and digits, as in 6AK9BQPE592284";
        Failure::new(Exit::Usage, format!("{word:?} is no queue id; {example}"))
    })
}

pub(super) fn limit(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a number from 0, and 0 is for all".to_owned())
}

fn by(text: &str) -> Result<GroupBy, String> {
    let names = GroupBy::ALL.map(GroupBy::name).join(", ");
    GroupBy::from_name(text).ok_or_else(|| format!("one of {names}"))
}

fn standing(text: &str) -> Result<RecipientStatus, String> {
    let names = RecipientStatus::ALL.map(RecipientStatus::name).join(", ");
    RecipientStatus::from_name(text).ok_or_else(|| format!("one of {names}"))
}

/// Reads the time for which mail is held.
fn hold_time(text: &str) -> Result<Duration, String> {
    let time = age(text)?;
    match time.is_zero() || time > queue::HOLD_TIME_MAX {
        true => Err("from 1s to 3650d, as in 2h".to_owned()),
        false => Ok(time),
    }
}

/// Reads a moment that is to come, and returns the time until then.
fn until(text: &str) -> Result<Duration, String> {
    let now = os::clock::unix_us() / 1_000_000;
    let at = moment(text, now).filter(|at| *at > now);
    let at = at.ok_or("a time to come, as 18:30 or 2026-12-01T18:30Z, in UTC")?;
    Ok(Duration::from_secs(at - now).min(queue::HOLD_TIME_MAX))
}

/// Reads `18:30` as the next one after `now`, and `2026-12-01T18:30Z` with or without seconds; seconds since 1970.
fn moment(text: &str, now: u64) -> Option<u64> {
    if let Some((hours, minutes)) = text.split_once(':').filter(|(hours, _)| hours.len() <= 2) {
        let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
        if hours > 23 || minutes > 59 {
            return None;
        }
        let today = now - now % 86_400 + hours * 3_600 + minutes * 60;
        return Some(if today > now { today } else { today + 86_400 });
    }
    let numbers: Option<Vec<i64>> =
        text.trim_end_matches('Z').split(['-', 'T', ':']).map(|number| number.parse().ok()).collect();
    let [year, month, day, hour, minute, rest @ ..] = numbers.as_deref()? else { return None };
    let second = match rest {
        [] => 0,
        [second] => *second,
        _ => return None,
    };
    let civil = CivilTime { year: *year, month: *month, day: *day, hour: *hour, minute: *minute, second };
    u64::try_from(civil.to_unix()?).ok()
}

/// Reads `90m`, `1d12h`; every number has its unit.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no age; write a number of s, m, h, d or w, as in 90m or 1d12h");
    queue::age(text).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_of_today_or_have_a_date() {
        // 2026-11-27T17:30:00Z
        let now = 1_795_800_600;
        assert_eq!(moment("18:30", now), Some(now + 3_600));
        assert_eq!(moment("17:30", now), Some(now + 86_400));
        assert_eq!(moment("2026-11-28T17:30Z", now), Some(now + 86_400));
        assert_eq!(moment("2026-11-27T17:30:05", now), Some(now + 5));
        for text in ["24:00", "18", "tomorrow", "2026-13-01T00:00", "2026-11-27", ""] {
            assert_eq!(moment(text, now), None, "{text}");
        }
    }

    #[test]
    fn limits_are_numbers_from_0() {
        assert_eq!(limit("0"), Ok(0));
        for text in ["-1", "all", "1.5", ""] {
            assert!(limit(text).is_err_and(|said| said.contains("a number from 0")), "{text}");
        }
    }

    #[test]
    fn words_are_ids_or_one_expression() {
        let words = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            split_words(&words).map(|(expression, ids)| (expression.map(|one| one.as_str().to_owned()), ids))
        };
        let of = |words_of: &[&str]| words(words_of).unwrap_or_else(|_| panic!("{words_of:?}"));
        assert_eq!(of(&["6AK9BQPE592284", "-"]), (None, vec!["6AK9BQPE592284".to_owned(), "-".to_owned()]));
        assert_eq!(of(&["to:@a.example", "age>2h"]).0.as_deref(), Some("to:@a.example age>2h"));
        assert_eq!(of(&["to:@a.example age>2h"]).0.as_deref(), Some("to:@a.example age>2h"));
        assert_eq!(of(&["reply~too busy", "!held:*"]).0.as_deref(), Some("reply~\"too busy\" !held:*"));
        assert!(words(&["age:2h"]).is_err());
    }

    #[test]
    fn ages_have_units() {
        for (text, seconds) in [("90m", 5_400), ("1d12h", 129_600), ("0s", 0), ("2w", 1_209_600)] {
            assert_eq!(age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "h", "1h5", "1.5h", "-1h", "99999999999999999999d", "18446744073709551615w", "1 h"] {
            assert!(age(text).is_err(), "{text}");
        }
    }
}
