//! The answer to `history`: messages of the past, and the way of one.

use serde::{Deserialize, Serialize};

/// The answer to `history`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryAnswer {
    /// Messages, the youngest first.
    pub messages: Vec<HistoryMessage>,
    /// There may be more: the value of `after` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The time for one search was over before the end of the history; `next` goes on.
    #[serde(skip_serializing_if = "super::is_false")]
    pub cut: bool,
    /// Entries that were dropped since the start, because the disk or the processor could not keep up.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub dropped: u64,
}

/// A message of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryMessage {
    /// The queue id.
    pub id: String,
    /// Its arrival, in milliseconds since 1970.
    pub arrived_ms: u64,
    /// The sender, empty for the null sender; absent if the history began later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Octets.
    pub size: u64,
    /// Recipients at the arrival.
    pub recipients: u64,
    /// The client: `name [address]`, or the user of this machine.
    pub client: String,
    /// `Message-ID:`; empty if there is none.
    pub message_id: String,
    /// `waiting`, `held`, `sent`, `failed`, `discarded`, `deleted`, or `moved`: it goes on as another message.
    pub status: String,
    /// Recipients that a next hop has taken.
    pub sent: u64,
    /// Recipients that were given up.
    pub failed: u64,
    /// The last change, in milliseconds since 1970.
    pub changed_ms: u64,
    /// The steps of its way: in a list the one that was looked for, or the last; of one message all.
    pub steps: Vec<HistoryStep>,
    /// Steps that are not shown.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub more_steps: u64,
}

/// A step of a message on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryStep {
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// `sent`, `deferred`, `failed`, `held`, `released`, `discarded`, `screened`, `report`, `split`, `moved`,
    /// `deleted`, `bounced` or `command`.
    pub kind: String,
    /// The recipients.
    pub to: Vec<String>,
    /// Recipients that are not shown.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub more_recipients: u64,
    /// The host: `name [address]`; empty if it did not come to one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// `esmtp`, `local` and the like.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mailer: String,
    /// The enhanced status code.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// The reply, or what happened.
    pub reply: String,
    /// How long the attempt took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// How long its phases took, in their order. An attempt over a connection that was open begins with `mail`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseTime>,
}

/// A phase of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseTime {
    /// `dns`, `connect`, `greeting`, `ehlo`, `tls`, `auth`, `mail`, `rcpt` or `content`.
    pub phase: String,
    /// Microseconds.
    pub us: u64,
}

/// The state of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryStatus {
    /// The file.
    pub path: String,
    /// Octets of the file that hold something.
    pub bytes: u64,
    /// The most.
    pub bytes_max: u64,
    /// Entries written since the start.
    pub written: u64,
    /// Entries dropped since the start.
    pub dropped: u64,
    /// Why nothing is written at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
}

/// The best window of its length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BestWindow {
    /// Its length in seconds.
    pub seconds: i64,
    /// Its first second, in the civil time of the server.
    pub begin: i64,
    /// Recipients that next hops took in it.
    pub sent: u64,
}
