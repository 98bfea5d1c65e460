//! The answers of the control socket as structs.
//!
//! Field names are part of the protocol; `docs/operation.md` lists them. New fields may come, no field changes its
//! meaning. A field that is `None` is absent from the JSON, unless its comment says that it is `null`. A reader takes
//! the default for an absent field, so that a command also understands a server of another version.

mod cluster;
mod cluster_adopt;
mod connections;
mod history;
mod hosts;
mod live;
mod mailers;
mod queue;
mod refusal;
mod reload;
pub(crate) mod reply;
mod statistics;
mod status;
mod steering;
mod storms;

pub use cluster::{
    ClusterAdoption, ClusterAnswer, ClusterConfigAnswer, ClusterConfigNode, ClusterConfigRevision, ClusterCopies,
    ClusterDeparted, ClusterHost, ClusterHostage, ClusterHosts, ClusterLeave, ClusterLimit, ClusterNode, ClusterStream,
};
pub use cluster_adopt::{AbsentNode, AbsentNodesAnswer, AbsentStreamLine, HandAdoptionLine};
pub use connections::{ConnectionLine, ConnectionsAnswer, TranscriptLine};
pub use history::{BestWindow, HistoryAnswer, HistoryMessage, HistoryStatus, HistoryStep, PhaseTime};
pub use hosts::{Host, HostsAnswer};
pub use live::{ConfigAnswer, ErrorLine, ErrorsAnswer, LiveSample};
pub use mailers::{MailerCounts, MailersAnswer};
pub use queue::{
    ContentLine, DestinationLine, DestinationStatus, HoldLine, LineKind, MessageLine, MissingLine, NotOwnedLine,
    ProgressLine, QueueLine, QueueTotals, RecipientLine, StragglerLine, UnreadableLine,
};
pub use refusal::{ProblemLine, RefusalLine};
pub use reload::ReloadAnswer;
pub use statistics::{DelayCounts, NameCount, StatisticsAnswer, WindowLines};
pub use status::{
    AcceptedMessages, ClockStatus, ConnectionCounts, DeliveryConnections, DeliveryCounts, ExpansionCounts, FailingLog,
    FilterQueueStatus, FilterStatus, LogStatus, LoginOverLimit, MadeCounts, PickupStatus, QueueStatus,
    RefusedRecipients, ResultCounts, ScreenCounts, ScreenQueueStatus, SenderCheckCounts, SignatureCounts, SpoolStatus,
    StatusAnswer, StopStatus, WebhookStatus,
};
pub use steering::{LimitLine, LimitsAnswer, RuleLine};
pub use storms::{StormLine, StormsAnswer};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Turns an answer into the fields of its line.
#[must_use]
pub fn to_fields(answer: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(answer) {
        Ok(Value::Object(fields)) => fields,
        // Every answer is a struct of strings, numbers, lists and structs.
        other => unreachable!("{other:?} is no object"),
    }
}

/// Reads an answer from its line.
///
/// # Errors
/// A field has another type than the answer gives it.
pub fn from_line<T: DeserializeOwned>(line: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(line)
}

/// Whether a flag is absent from the JSON.
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Whether a count is absent from the JSON.
fn is_zero(count: &u64) -> bool {
    *count == 0
}
