//! Numbers of a moment, for the live page, and the last errors.

use super::StatusAnswer;
use serde::{Deserialize, Serialize};

/// The answer to `errors`: the last attempts that failed, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorsAnswer {
    /// The attempts.
    pub errors: Vec<ErrorLine>,
}

/// An attempt that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorLine {
    /// Its end, in seconds since 1970.
    pub time: u64,
    /// The message.
    pub id: String,
    /// The first of its recipients.
    pub to: String,
    /// How many recipients it was for.
    pub recipients: u64,
    /// The host; empty if it did not come to one.
    pub host: String,
    /// `deferred` or `failed`.
    pub result: String,
    /// The reply, or what kept it from coming to one.
    pub text: String,
}

/// The numbers of a moment. Those of mail count from the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveSample {
    /// Milliseconds since 1970.
    pub time: u64,
    /// The version of mailrace.
    pub version: String,
    /// `hostname`.
    pub hostname: String,
    /// Seconds since the start.
    pub uptime: u64,
    /// The server begins no transaction any more.
    pub stopping: bool,
    /// Messages from clients that were accepted.
    pub accepted: u64,
    /// Transactions of clients that were refused.
    pub refused: u64,
    /// Recipients that next hops took.
    pub sent: u64,
    /// Attempts that are repeated, by recipients.
    pub deferred: u64,
    /// Recipients that were given up.
    pub failed: u64,
    /// Upper bounds of the classes of delays in seconds; the last class has none.
    pub bounds: Vec<f64>,
    /// Deliveries of each class of delays.
    pub delays: Vec<u64>,
    /// Messages in the queue.
    pub messages: u64,
    /// Recipients that wait.
    pub waiting: u64,
    /// Recipients that are held.
    pub held: u64,
    /// Destinations with recipients.
    pub destinations: u64,
    /// Connections from clients.
    pub connections_in: u64,
    /// Connections to next hops.
    pub connections_out: u64,
    /// `none`, `slow`, `full` or `poisoned`.
    pub pressure: String,
    /// The messages survive a power cut.
    pub durable: bool,
    /// Segments of the spool.
    pub segments: u64,
    /// Segments that are free.
    pub segments_free: u64,
    /// The most segments.
    pub segments_max: u64,
    /// Octets of live records.
    pub live_bytes: u64,
    /// The server keeps a history.
    pub history: bool,
}

impl LiveSample {
    /// Takes the numbers of the status at a time in milliseconds since 1970. Delays stay empty.
    #[must_use]
    pub fn of(status: &StatusAnswer, time: u64) -> Self {
        let deliveries = status.deliveries.clone().unwrap_or_default();
        let spool = &status.spool;
        Self {
            time,
            version: status.version.clone(),
            hostname: status.hostname.clone(),
            uptime: status.uptime_seconds,
            stopping: status.stopping,
            accepted: status.messages.accepted,
            refused: status.messages.refused,
            sent: deliveries.sent,
            deferred: deliveries.deferred,
            failed: deliveries.failed,
            messages: status.queue.messages,
            waiting: status.queue.waiting,
            held: status.queue.held,
            destinations: status.queue.destinations,
            connections_in: status.connections.open,
            connections_out: deliveries.connections.open + deliveries.connections.silent,
            pressure: spool.pressure.clone(),
            durable: spool.durable,
            segments: spool.segments,
            segments_free: spool.segments_free,
            segments_max: spool.segments_max,
            live_bytes: spool.live_bytes,
            history: status.history.is_some(),
            ..Self::default()
        }
    }
}

/// The answer to `config`: the configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigAnswer {
    /// Each key, in the order of the pages: `key`, `value`, `default`, and `set`, the place where it was set.
    pub values: Vec<serde_json::Value>,
}
