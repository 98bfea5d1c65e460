//! The lines of an answer to `queue`.

use super::steering::{LimitLine, RuleLine};
use super::{is_false, is_zero, to_fields};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One line of an answer before the last.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueLine {
    /// Says how far a long command has come.
    Progress(ProgressLine),
    /// Names an id that is not in the queue.
    Missing(MissingLine),
    /// Names a message whose envelope cannot be read.
    Unreadable(UnreadableLine),
    /// Names a message that another node of the cluster may own.
    NotOwned(NotOwnedLine),
    /// Shows a message.
    Message(Box<MessageLine>),
    /// Shows a piece of the content of the message on the line before.
    Content(ContentLine),
    /// Shows a destination.
    Destination(Box<DestinationLine>),
    /// Shows a group of recipients that have waited for long.
    Straggler(Box<StragglerLine>),
    /// Shows a hold rule or a suspension.
    Rule(Box<RuleLine>),
}

/// The kind of the ordinary lines of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// Messages.
    Messages,
    /// Destinations.
    Destinations,
    /// Groups of recipients.
    Stragglers,
    /// Hold rules and suspensions.
    Rules,
}

impl QueueLine {
    /// Turns the line into its fields.
    #[must_use]
    pub fn to_fields(&self) -> Map<String, Value> {
        match self {
            Self::Progress(line) => to_fields(line),
            Self::Missing(line) => to_fields(line),
            Self::Unreadable(line) => to_fields(line),
            Self::NotOwned(line) => to_fields(line),
            Self::Message(line) => to_fields(line),
            Self::Content(line) => to_fields(line),
            Self::Destination(line) => to_fields(line),
            Self::Straggler(line) => to_fields(line),
            Self::Rule(line) => to_fields(line),
        }
    }

    /// Reads a line of a command whose ordinary lines are of this kind.
    ///
    /// # Errors
    /// A field has another type than expected.
    pub fn from_line(line: &Value, kind: LineKind) -> Result<Self, serde_json::Error> {
        let has = |field: &str| line.get(field).is_some();
        Ok(match kind {
            _ if has("seen") => Self::Progress(super::from_line(line)?),
            _ if has("missing") => Self::Missing(super::from_line(line)?),
            _ if has("octets") => Self::Content(super::from_line(line)?),
            _ if has("unreadable") => Self::Unreadable(super::from_line(line)?),
            _ if has("not_owned") => Self::NotOwned(super::from_line(line)?),
            LineKind::Messages => Self::Message(super::from_line(line)?),
            LineKind::Destinations => Self::Destination(super::from_line(line)?),
            LineKind::Stragglers => Self::Straggler(super::from_line(line)?),
            LineKind::Rules => Self::Rule(super::from_line(line)?),
        })
    }
}

/// Says how far a long command has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgressLine {
    /// Messages looked at.
    pub seen: u64,
    /// Messages in all.
    pub of: u64,
}

/// Names an id that is not in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MissingLine {
    /// The id.
    pub missing: String,
}

/// Names a message whose envelope cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnreadableLine {
    /// The id.
    pub unreadable: String,
    /// The error.
    pub trouble: String,
}

/// Names a message that a command did not end, since another node of the cluster may own it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotOwnedLine {
    /// The id.
    pub not_owned: String,
    /// Why this is not certain, and the next step.
    pub trouble: String,
}

/// Shows a piece of the content of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContentLine {
    /// The message.
    pub of: String,
    /// Octets of the content before it.
    pub at: u64,
    /// The octets in base64.
    pub octets: String,
}

/// Shows a message, or a part of its recipients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageLine {
    /// Its queue id.
    pub id: String,
    /// Arrival, in seconds since 1970.
    pub arrived: u64,
    /// Seconds since the arrival.
    pub age: u64,
    /// Recipients that are not done.
    pub waiting: u64,
    /// Octets of content, if the envelope was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The sender, empty for the null sender, if the envelope was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `BODY=` of the envelope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Why the envelope cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// `release` and `forward` of mail in quarantine: the queue id of the copy that was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    /// Recipients that the command selected.
    pub recipients: Vec<RecipientLine>,
    /// Selected recipients that this line leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_recipients: u64,
    /// `show`: the client that handed the message in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// `show`: the protocol keyword.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// `show`: the end of the transaction, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// `show`: the name in HELO or EHLO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helo: Option<String>,
    /// `show`: the parameters of MAIL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<String>,
    /// `show` with headers: the header section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    /// `show`: the state of the destinations, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub destinations: BTreeMap<String, DestinationStatus>,
}

/// One recipient of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecipientLine {
    /// Its position in the envelope.
    pub position: u32,
    /// The destination it waits for.
    pub destination: String,
    /// `waiting`, `held`, `active` or `delivered`.
    pub state: String,
    /// Attempts so far; absent for a delivered recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tries: Option<u64>,
    /// Its address, if the envelope was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The parameters of RCPT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<String>,
    /// `urgent` or `bulk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The sender has a delay notice.
    #[serde(skip_serializing_if = "is_false")]
    pub warned: bool,
    /// The next attempt, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<u32>,
    /// The time that the sender asked for, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u32>,
    /// The next attempt while the destination is down, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<u64>,
    /// The kind of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_kind: Option<String>,
    /// The last failure in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it is held, if somebody said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldLine>,
}

/// Why a recipient is held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HoldLine {
    /// `operator`, `rule`, `server`, `import`, `quarantine`, `screen` (it waits for its filters) or `replacement` (as
    /// filters changed it, for a moment).
    pub kind: String,
    /// The name of the person or the rule, or the filters with commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The time until which it is meant, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u32>,
}

/// The state of a destination, as far as the queue manager knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DestinationStatus {
    /// Connections to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Messages on these connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Connections that it may have now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The hosts of its mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The rate of its `[[destination]]` rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_second: Option<f64>,
    /// The limit that an operator has set for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_limit: Option<LimitLine>,
    /// The rate learned from its replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learned_messages_per_second: Option<f64>,
    /// `connection`, `rate` or `pace`: what mail that is due waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Seconds of the wait for a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_since: Option<u64>,
    /// `delivery.connections_max`, if mail waits for a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<u64>,
    /// Messages in memory that wait for a connection.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready: u64,
    /// The spool has more that is due.
    #[serde(skip_serializing_if = "is_false")]
    pub has_more: bool,
    /// `slow`, if its hosts were silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Why it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
    /// Seconds until it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in: Option<u64>,
    /// It is down and tried now.
    #[serde(skip_serializing_if = "is_false")]
    pub trying: bool,
    /// The node of the cluster by whose report it is down, or down for longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_by: Option<u16>,
}

/// A destination with the recipients that wait for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DestinationLine {
    /// Its name.
    pub destination: String,
    /// Recipients that wait for it.
    pub recipients: u64,
    /// Its state.
    #[serde(flatten)]
    pub status: DestinationStatus,
}

/// A group of recipients that have waited for long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StragglerLine {
    /// The address, of a group by recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The hosts, of a group by host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The destination, of any other group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// How many destinations the hosts serve, of a group by host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destinations: Option<u64>,
    /// Some of these destinations, of a group by host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named: Option<Vec<String>>,
    /// Recipients in the group.
    pub recipients: u64,
    /// Messages in the group.
    pub messages: u64,
    /// Age of the oldest message, in seconds.
    pub oldest: u64,
    /// The newest failure in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The state of the destination, or of the first one of the hosts.
    #[serde(flatten)]
    pub status: DestinationStatus,
}

/// The last line of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueTotals {
    /// Messages that the command selected; absent for `destinations`, as the next three.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Recipients that the command selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipients: Option<u64>,
    /// Ids that are not in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<u64>,
    /// Messages whose envelope cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<u64>,
    /// Messages that another node of the cluster may own, and that were left alone; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_owned: Option<u64>,
    /// Messages, groups or destinations beyond the limit.
    pub more: u64,
    /// Messages beyond the limit that were not looked at; absent for `destinations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<u64>,
    /// Destinations shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destinations: Option<u64>,
    /// Recipients that a change left as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchanged: Option<u64>,
    /// Recipients that keep the time of their sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// Recipients with an attempt in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<u64>,
    /// Recipients that wait for filters, and were left alone; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unscreened: Option<u64>,
    /// The rule or suspension that was set, or ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Nothing was changed.
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
    /// Only the messages of the asking user were looked at.
    #[serde(skip_serializing_if = "is_false")]
    pub own: bool,
}
