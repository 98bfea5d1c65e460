//! A command on the queue, to and from the fields of a request.
//!
//! `docs/operation.md` has the fields. A command that changes mail needs a condition or `all`, and must not have both.

use super::expression::Expression;
use super::pattern::Pattern;
use super::recipient_status::RecipientStatus;
use super::selection::Selection;
use crate::answers::LineKind;
use crate::answers::reply::{shortened, shortened_json};
use mail::{Address, QueueId};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Messages that `list` and `destinations` show unless the request says otherwise.
pub const LIST_MAX: u64 = 100;
/// Recipients of each message that `list` shows unless the request says otherwise.
pub const LISTED_RECIPIENTS: u64 = 20;
/// The most recipients of each message that a request may have `list` show; their line has a few megabytes.
pub const LISTED_RECIPIENTS_MAX: u64 = 10_000;
/// Octets of the words that a bounce may have.
pub(super) const REASON_BYTES_MAX: usize = 200;

/// The action of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Show messages, a few recipients of each.
    List,
    /// Show all there is to know of messages that are named.
    Show,
    /// Show destinations, the fullest first.
    Destinations,
    /// Show who has been waiting for long, added up.
    Stragglers,
    /// Try what waits now.
    Retry,
    /// Keep what waits until it is released.
    Hold,
    /// Let go of what is held.
    Release,
    /// Take out of the queue, for ever, without a DSN.
    Delete,
    /// Fail for good, and tell the senders.
    Bounce,
    /// Count messages, and show none.
    Count,
    /// Send what waits elsewhere.
    Reroute,
    /// Send a copy of what is in quarantine to another address.
    Forward,
    /// Show the content of messages that are named.
    Content,
    /// Fail for good as mail that is too old, and tell the senders.
    Expire,
    /// Hold mail that comes from now on.
    HoldRule,
    /// Hold what waits and what comes, until it is resumed.
    Suspend,
    /// End a rule or a suspension, and release what it holds.
    Resume,
    /// Show rules and suspensions.
    Rules,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 18] = [
        Self::List,
        Self::Show,
        Self::Destinations,
        Self::Stragglers,
        Self::Retry,
        Self::Hold,
        Self::Release,
        Self::Delete,
        Self::Bounce,
        Self::Count,
        Self::Reroute,
        Self::Forward,
        Self::Content,
        Self::Expire,
        Self::HoldRule,
        Self::Suspend,
        Self::Resume,
        Self::Rules,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Show => "show",
            Self::Destinations => "destinations",
            Self::Stragglers => "stragglers",
            Self::Retry => "retry",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Delete => "delete",
            Self::Bounce => "bounce",
            Self::Count => "count",
            Self::Reroute => "reroute",
            Self::Forward => "forward",
            Self::Content => "content",
            Self::Expire => "expire",
            Self::HoldRule => "hold-rule",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Rules => "rules",
        }
    }

    /// Returns the kind of the ordinary lines that answer it.
    #[must_use]
    pub const fn line_kind(self) -> LineKind {
        match self {
            Self::Destinations => LineKind::Destinations,
            Self::Stragglers => LineKind::Stragglers,
            Self::Rules => LineKind::Rules,
            _ => LineKind::Messages,
        }
    }

    /// Returns whether it holds mail, with a reason and for a time.
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(self, Self::Hold | Self::HoldRule | Self::Suspend)
    }

    /// Returns whether it changes mail.
    #[must_use]
    pub const fn changes_mail(self) -> bool {
        !matches!(
            self,
            Self::List | Self::Show | Self::Destinations | Self::Stragglers | Self::Count | Self::Content | Self::Rules
        )
    }
}

/// How stragglers are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// By the destination they wait for.
    #[default]
    Destination,
    /// By their addresses.
    Recipient,
    /// By the hosts their mail goes to, which many destinations may share.
    Host,
}

impl GroupBy {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Destination, Self::Recipient, Self::Host];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Destination => "destination",
            Self::Recipient => "recipient",
            Self::Host => "host",
        }
    }

    /// The way of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// The longest time for which mail is held: ten years.
pub const HOLD_TIME_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// A command on the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The action.
    pub action: Action,
    /// The selection. Everything only if `all` was given, or where nothing is changed.
    pub selection: Selection,
    /// At most so many messages, or destinations; `None` for all.
    pub limit: Option<u64>,
    /// Recipients of each message that `list` shows, [`LISTED_RECIPIENTS_MAX`] at most.
    pub recipients: u64,
    /// Only show what would be changed.
    pub dry_run: bool,
    /// Show the header section as well.
    pub headers: bool,
    /// Release also mail that its filters have not judged.
    pub unscreened: bool,
    /// How stragglers are added up.
    pub by: GroupBy,
    /// Why mail is bounced, in words for its senders, or held; as [`reason`] reads it.
    pub reason: Option<Box<str>>,
    /// Time for which mail is held, in whole seconds; `None`: until it is released.
    pub hold_time: Option<Duration>,
    /// Where mail is sent instead: a destination as `queue list` names it.
    pub destination: Option<Box<str>>,
    /// The address that gets a copy of mail in quarantine.
    pub forward_to: Option<Address>,
    /// `resume`: mail that the rule holds stays held.
    pub keep_held: bool,
}

/// Parses the reason that an operator gives to senders: printable ASCII, which the log and every report repeat.
///
/// # Errors
/// Says what may stand there.
pub fn parse_reason(text: &str) -> Result<Box<str>, String> {
    let text = text.trim();
    let is_plain = text.bytes().all(|octet| matches!(octet, b' '..=b'~'));
    match is_plain && !text.is_empty() && text.len() <= REASON_BYTES_MAX {
        true => Ok(text.into()),
        false => Err(format!("a reason is one line of printable ASCII, {REASON_BYTES_MAX} characters at most")),
    }
}

/// Parses the address that gets a copy of mail in quarantine.
///
/// # Errors
/// It is no address.
pub fn parse_forward_address(text: &str) -> Result<Address, String> {
    Address::parse(text.as_bytes())
        .map_err(|error| format!("{:?} is no address: {error}; write it as bob@example.com", shortened(text)))
}

impl Command {
    /// A command with the usual limit.
    #[must_use]
    pub const fn new(action: Action, selection: Selection) -> Self {
        let limit = match action {
            Action::List | Action::Destinations | Action::Stragglers => Some(LIST_MAX),
            _ => None,
        };
        Self {
            action,
            selection,
            limit,
            recipients: LISTED_RECIPIENTS,
            dry_run: false,
            headers: false,
            unscreened: false,
            by: GroupBy::Destination,
            reason: None,
            hold_time: None,
            destination: None,
            forward_to: None,
            keep_held: false,
        }
    }

    /// The fields of the request.
    #[must_use]
    pub fn to_fields(&self) -> Map<String, Value> {
        let Selection {
            ids,
            from,
            to,
            destination,
            state,
            older,
            younger,
            after,
            quarantined,
            held_by,
            expression,
            handed_in_by: _,
        } = &self.selection;
        let mut fields = Map::from_iter([("action".to_owned(), json!(self.action.name()))]);
        let mut put = |name: &str, value: Option<Value>| {
            fields.extend(value.map(|value| (name.to_owned(), value)));
        };
        let names = || ids.iter().map(|id| Value::String(id.to_string())).collect();
        put("ids", (!ids.is_empty()).then(names));
        put("from", from.as_ref().map(|pattern| json!(pattern.as_str())));
        put("to", to.as_ref().map(|pattern| json!(pattern.as_str())));
        put("destination", destination.as_ref().map(|name| json!(name)));
        put("state", state.map(|state| json!(state.name())));
        put("older", older.map(|age| json!(age.as_secs())));
        put("younger", younger.map(|age| json!(age.as_secs())));
        put("after", after.map(|id| json!(id.to_string())));
        put("quarantined", quarantined.then_some(json!(true)));
        put("held_by", held_by.as_ref().map(|name| json!(name)));
        put("expression", expression.as_ref().map(|expression| json!(expression.as_str())));
        put("limit", Some(json!(self.limit.unwrap_or(0))));
        put("recipients", (self.recipients != LISTED_RECIPIENTS).then(|| json!(self.recipients)));
        put("all", (self.action.changes_mail() && self.selection.is_everything()).then_some(json!(true)));
        put("dry_run", self.dry_run.then_some(json!(true)));
        put("headers", self.headers.then_some(json!(true)));
        put("unscreened", self.unscreened.then_some(json!(true)));
        put("by", (self.by != GroupBy::default()).then(|| json!(self.by.name())));
        put("reason", self.reason.as_ref().map(|reason| json!(reason)));
        put("new_destination", self.destination.as_ref().map(|name| json!(name)));
        put("forward_to", self.forward_to.as_ref().map(|address| json!(address.to_string())));
        put("keep_held", self.keep_held.then_some(json!(true)));
        put("for", self.hold_time.map(|time| json!(time.as_secs())));
        fields
    }

    /// Reads the fields of a request, all of which must be known.
    ///
    /// # Errors
    /// Names the field, its value and its allowed values.
    pub fn from_fields(fields: Map<String, Value>) -> Result<Self, String> {
        let mut fields = Fields(fields);
        let names = Action::ALL.map(Action::name).join(", ");
        let word =
            fields.text("action")?.ok_or_else(|| format!("\"queue\" lacks the field \"action\": one of {names}"))?;
        let action = Action::ALL.into_iter().find(|action| action.name() == word);
        let action = action.ok_or_else(|| format!("\"action\" is {:?}, not one of {names}", shortened(&word)))?;
        let selection = Selection {
            ids: fields.ids()?,
            from: fields.pattern("from")?,
            to: fields.pattern("to")?,
            destination: fields.text("destination")?.map(Into::into),
            state: fields.status()?,
            older: fields.number("older")?.map(Duration::from_secs),
            younger: fields.number("younger")?.map(Duration::from_secs),
            after: fields.id("after")?,
            quarantined: fields.flag("quarantined")?,
            held_by: fields.text("held_by")?.map(Into::into),
            expression: fields.expression()?,
            handed_in_by: None,
        };
        let all = fields.flag("all")?;
        let mut command = Self::new(action, selection);
        match fields.number("limit")? {
            None => {}
            Some(0) => command.limit = None,
            limit => command.limit = limit,
        }
        command.recipients = fields.number("recipients")?.unwrap_or(LISTED_RECIPIENTS);
        command.dry_run = fields.flag("dry_run")?;
        command.headers = fields.flag("headers")?;
        command.unscreened = fields.flag("unscreened")?;
        command.by = fields.by()?.unwrap_or_default();
        let words = fields.text("reason")?;
        command.reason =
            words.map(|words| parse_reason(&words)).transpose().map_err(|error| format!("\"reason\": {error}"))?;
        command.hold_time = fields.number("for")?.map(Duration::from_secs);
        command.destination = fields.text("new_destination")?.map(Into::into);
        command.forward_to = fields.text("forward_to")?.map(|text| parse_forward_address(&text)).transpose()?;
        command.keep_held = fields.flag("keep_held")?;
        fields.end()?;
        command.check(all)?;
        Ok(command)
    }

    fn check(&self, all: bool) -> Result<(), String> {
        let name = self.action.name();
        let is_everything = self.selection.is_everything();
        match self.action {
            Action::Show | Action::Content if self.selection.ids.is_empty() => Err(format!("\"{name}\" needs \"ids\"")),
            Action::Destinations | Action::Rules if !is_everything => Err(format!("\"{name}\" takes no conditions")),
            Action::HoldRule | Action::Suspend if !self.selection.is_expression_alone() => {
                Err(format!("\"{name}\" needs \"expression\", and takes no other condition"))
            }
            Action::Resume if !self.selection.is_holder_alone() => {
                Err("\"resume\" needs \"held_by\", the name of a rule, and takes no other condition".to_owned())
            }
            Action::HoldRule | Action::Suspend | Action::Resume if self.limit.is_some() => {
                Err(format!("\"{name}\" takes no \"limit\""))
            }
            action if self.keep_held && action != Action::Resume => {
                Err(format!("\"{name}\" ends no rule: no \"keep_held\""))
            }
            action if action.changes_mail() && is_everything && !all => {
                Err(format!("\"{name}\" needs ids or another condition, or \"all\":true for the whole queue"))
            }
            action if self.recipients != LISTED_RECIPIENTS && action != Action::List => {
                Err(format!("\"{name}\" takes no \"recipients\""))
            }
            _ if self.recipients > LISTED_RECIPIENTS_MAX => {
                Err(format!("\"recipients\" is {}, not a number up to {LISTED_RECIPIENTS_MAX}", self.recipients))
            }
            _ if all && !is_everything => Err("\"all\" means the whole queue and stands with no condition".to_owned()),
            action if self.selection.after.is_some() && action != Action::List => {
                Err(format!("\"{name}\" has no pages: no \"after\""))
            }
            action if self.dry_run && !action.changes_mail() => {
                Err(format!("\"{name}\" changes nothing: no \"dry_run\""))
            }
            action if self.by != GroupBy::default() && action != Action::Stragglers => {
                Err(format!("\"{name}\" adds nothing up: no \"by\""))
            }
            action if self.reason.is_some() && action != Action::Bounce && !action.holds() => {
                Err(format!("\"{name}\" tells nobody: no \"reason\""))
            }
            Action::Reroute if self.destination.is_none() => Err("\"reroute\" needs \"new_destination\"".to_owned()),
            action if self.destination.is_some() && action != Action::Reroute => {
                Err(format!("\"{name}\" sends nothing elsewhere: no \"new_destination\""))
            }
            Action::Forward if self.forward_to.is_none() => Err("\"forward\" needs \"forward_to\"".to_owned()),
            Action::Forward if !self.selection.quarantined => {
                Err("\"forward\" is for mail in quarantine: it needs \"quarantined\":true".to_owned())
            }
            action if self.forward_to.is_some() && action != Action::Forward => {
                Err(format!("\"{name}\" forwards nothing: no \"forward_to\""))
            }
            action if self.hold_time.is_some() && !action.holds() => {
                Err(format!("\"{name}\" holds nothing: no \"for\""))
            }
            _ if self.hold_time.is_some_and(|time| time.is_zero() || time > HOLD_TIME_MAX) => Err(format!(
                "\"for\" is no number from 1 to {}, the seconds for which mail is held",
                HOLD_TIME_MAX.as_secs()
            )),
            action if self.unscreened && action != Action::Release => {
                Err(format!("\"{name}\" releases nothing: no \"unscreened\""))
            }
            action if self.headers && action != Action::Show => Err(format!("\"{name}\" shows no \"headers\"")),
            _ => Ok(()),
        }
    }
}

/// Fields that are taken one by one.
struct Fields(Map<String, Value>);

impl Fields {
    fn take<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        let found = read(&value);
        found.map(Some).ok_or_else(|| format!("{name:?} is {}, not {wanted}", shortened_json(&value)))
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        self.take(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        self.take(name, "a number from 0", Value::as_u64)
    }

    fn flag(&mut self, name: &str) -> Result<bool, String> {
        self.take(name, "true or false", Value::as_bool).map(|flag| flag.unwrap_or(false))
    }

    fn pattern(&mut self, name: &str) -> Result<Option<Pattern>, String> {
        let text = self.text(name)?;
        text.map(|text| Pattern::parse(&text)).transpose().map_err(|error| format!("{name:?}: {error}"))
    }

    fn expression(&mut self) -> Result<Option<Expression>, String> {
        let text = self.text("expression")?;
        text.map(|text| Expression::parse(&text)).transpose().map_err(|error| format!("\"expression\": {error}"))
    }

    fn status(&mut self) -> Result<Option<RecipientStatus>, String> {
        let wanted = RecipientStatus::ALL.map(RecipientStatus::name).join(", ");
        self.take("state", &format!("one of {wanted}"), |value| RecipientStatus::from_name(value.as_str()?))
    }

    fn by(&mut self) -> Result<Option<GroupBy>, String> {
        let wanted = GroupBy::ALL.map(GroupBy::name).join(", ");
        self.take("by", &format!("one of {wanted}"), |value| GroupBy::from_name(value.as_str()?))
    }

    fn id(&mut self, name: &str) -> Result<Option<QueueId>, String> {
        self.take(name, "a queue id", |value| value.as_str()?.parse().ok())
    }

    fn ids(&mut self) -> Result<Vec<QueueId>, String> {
        let list = self.take("ids", "a list of strings", |value| value.as_array().cloned())?.unwrap_or_default();
        let read = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let mut ids = Vec::with_capacity(list.len());
        for value in &list {
            ids.push(read(value).ok_or_else(|| format!("\"ids\": {} is no queue id", shortened_json(value)))?);
        }
        Ok(ids)
    }

    fn end(self) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(field) => Err(format!("\"queue\" has no field {:?}", shortened(field))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Command, String> {
        Command::from_fields(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn commands_read_back() {
        let selections = [
            Selection::default(),
            Selection { ids: vec![QueueId::MIN, QueueId::MAX], ..Selection::default() },
            Selection {
                from: Pattern::parse("<>").ok(),
                to: Pattern::parse("@b.test").ok(),
                destination: Some("[192.0.2.1]".into()),
                state: Some(RecipientStatus::Held),
                older: Some(Duration::from_secs(60)),
                younger: Some(Duration::from_secs(3_600)),
                ..Selection::default()
            },
            Selection { quarantined: true, held_by: Some("chinese_*".into()), ..Selection::default() },
            Selection { held_by: Some("suspension-3".into()), ..Selection::default() },
            Selection { expression: Expression::parse("age>2h reply~\"too busy\"").ok(), ..Selection::default() },
        ];
        for (action, selection) in
            Action::ALL.into_iter().flat_map(|action| selections.clone().map(|one| (action, one)))
        {
            for (limit, flag, by) in [(None, false, GroupBy::Host), (Some(7), true, GroupBy::Recipient)] {
                let dry_run = flag && action.changes_mail();
                let headers = flag && action == Action::Show;
                let by = if action == Action::Stragglers { by } else { GroupBy::Destination };
                let takes_reason = action == Action::Bounce || action.holds();
                let reason = (flag && takes_reason).then(|| "the list is closed".into());
                let hold_time = (flag && action.holds()).then(|| Duration::from_secs(3_600));
                let recipients = if flag && action == Action::List { LISTED_RECIPIENTS_MAX } else { LISTED_RECIPIENTS };
                let selection = selection.clone();
                let command = Command {
                    action,
                    selection: selection.clone(),
                    limit,
                    recipients,
                    dry_run,
                    headers,
                    unscreened: flag && action == Action::Release,
                    by,
                    reason,
                    hold_time,
                    destination: (action == Action::Reroute).then(|| "[192.0.2.1]".into()),
                    forward_to: (action == Action::Forward).then(|| Address::parse(b"abuse@b.test").unwrap()),
                    keep_held: flag && action == Action::Resume,
                };
                let again = Command::from_fields(command.to_fields());
                let is_wrong = match action {
                    Action::HoldRule | Action::Suspend => !selection.is_expression_alone() || limit.is_some(),
                    Action::Resume => !selection.is_holder_alone() || limit.is_some(),
                    Action::Rules => !selection.is_everything(),
                    _ => false,
                };
                if is_wrong
                    || action == Action::Destinations && !selection.is_everything()
                    || matches!(action, Action::Show | Action::Content) && selection.ids.is_empty()
                    || action == Action::Forward && !selection.quarantined
                {
                    assert!(again.is_err());
                } else {
                    assert_eq!(again, Ok(command));
                }
            }
        }
        let list = read(r#"{"action":"list"}"#).unwrap();
        assert_eq!(list, Command::new(Action::List, Selection::default()));
        assert_eq!(list.limit, Some(LIST_MAX));
        assert_eq!(read(r#"{"action":"list","limit":0}"#).unwrap().limit, None);
    }

    #[test]
    fn other_fields_are_refused_with_a_reason() {
        let long = "x".repeat(REASON_BYTES_MAX);
        assert_eq!(parse_reason(&format!(" {long} ")), Ok(long.as_str().into()));
        assert!(parse_reason(&format!("{long}x")).is_err());
        for (text, part) in [
            ("{}", "lacks the field \"action\""),
            (r#"{"action":"purge"}"#, "\"purge\", not one of list, show"),
            (r#"{"action":7}"#, "7, not a string"),
            (r#"{"action":"delete"}"#, "needs ids or another condition"),
            (r#"{"action":"hold","ids":[]}"#, "needs ids or another condition"),
            (r#"{"action":"delete","all":true,"to":"@b.test"}"#, "stands with no condition"),
            (r#"{"action":"delete","to":"b.test"}"#, "\"to\": \"b.test\" is no address"),
            (r#"{"action":"delete","t":"b.test"}"#, "no field \"t\""),
            (r#"{"action":"list","by":"recipient"}"#, "adds nothing up"),
            (r#"{"action":"stragglers","by":"mx"}"#, "not one of destination, recipient, host"),
            (r#"{"action":"show"}"#, "needs \"ids\""),
            (r#"{"action":"content","quarantined":true}"#, "needs \"ids\""),
            (r#"{"action":"forward","quarantined":true}"#, "needs \"forward_to\""),
            (r#"{"action":"forward","forward_to":"a@b.test","to":"@b.test"}"#, "it needs \"quarantined\":true"),
            (r#"{"action":"forward","forward_to":"b.test","quarantined":true}"#, "\"b.test\" is no address"),
            (r#"{"action":"release","forward_to":"a@b.test","quarantined":true}"#, "forwards nothing"),
            (r#"{"action":"show","ids":["x"]}"#, "\"x\" is no queue id"),
            (r#"{"action":"show","ids":"x"}"#, "not a list"),
            (r#"{"action":"list","limit":-1}"#, "-1, not a number"),
            (r#"{"action":"list","state":"dead"}"#, "\"dead\", not one of waiting, held, active"),
            (r#"{"action":"list","dry_run":true}"#, "changes nothing"),
            (r#"{"action":"bounce"}"#, "needs ids or another condition"),
            (r#"{"action":"delete","all":true,"reason":"x"}"#, "tells nobody"),
            (r#"{"action":"bounce","all":true,"reason":" "}"#, "\"reason\": a reason is one line"),
            (r#"{"action":"bounce","all":true,"reason":"a\nTo: b"}"#, "\"reason\": a reason is one line"),
            (r#"{"action":"bounce","all":true,"reason":"\u00fc"}"#, "printable ASCII"),
            (r#"{"action":"reroute","all":true}"#, "needs \"new_destination\""),
            (r#"{"action":"retry","all":true,"new_destination":"b.test"}"#, "sends nothing elsewhere"),
            (r#"{"action":"release","all":true,"for":60}"#, "holds nothing"),
            (r#"{"action":"suspend","all":true}"#, "needs \"expression\""),
            (r#"{"action":"hold-rule","expression":"to:@b.test","limit":3}"#, "takes no \"limit\""),
            (r#"{"action":"resume","expression":"to:@b.test"}"#, "needs \"held_by\""),
            (r#"{"action":"hold","all":true,"keep_held":true}"#, "ends no rule"),
            (r#"{"action":"hold","all":true,"for":0}"#, "from 1 to 315360000"),
            (r#"{"action":"hold","all":true,"for":315360001}"#, "from 1 to 315360000"),
            (r#"{"action":"list","expression":"age:2h"}"#, "\"expression\": \"age:2h\": age takes no ':'"),
            (r#"{"action":"list","after":"x"}"#, "\"after\" is \"x\", not a queue id"),
            (r#"{"action":"count","after":"6AK9BQPE592284"}"#, "has no pages"),
            (r#"{"action":"list","headers":true}"#, "shows no \"headers\""),
            (r#"{"action":"destinations","from":"<>"}"#, "no conditions"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
