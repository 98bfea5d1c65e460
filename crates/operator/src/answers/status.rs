//! The answer to `status`.

use super::{ClusterAnswer, DestinationLine, HistoryStatus, LimitLine, RuleLine};
use serde::{Deserialize, Serialize};
use spool::{Pressure, Statistics};

/// The answer to `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusAnswer {
    /// The version of mailrace.
    pub version: String,
    /// `hostname`.
    pub hostname: String,
    /// The process.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// The clocks, while that of the machine is implausible; `null` while the server goes by it.
    pub clock: Option<ClockStatus>,
    /// The server begins no transaction any more.
    pub stopping: bool,
    /// Tasks that delay the stop of the server; `null` before a stop.
    pub stop: Option<StopStatus>,
    /// The file of the configuration in force; `null` without one.
    pub config: Option<String>,
    /// The rights that the process has given up; `null` in a sink.
    pub hardening: Option<String>,
    /// Addresses of the listeners.
    pub listen: Vec<String>,
    /// Where HTTP is answered; `null` if it is off.
    pub http: Option<String>,
    /// Connections from clients.
    pub connections: ConnectionCounts,
    /// Messages from clients.
    pub messages: AcceptedMessages,
    /// Recipients from clients.
    pub recipients: RefusedRecipients,
    /// Decisions of content rules and filters.
    pub screen: ScreenCounts,
    /// The filters of the configuration.
    pub filters: Vec<FilterStatus>,
    /// Results of sender authentication.
    pub sender_checks: SenderCheckCounts,
    /// Signatures of mail that leaves.
    pub signatures: SignatureCounts,
    /// Messages that wait for filters after their 250; `null` in a sink.
    pub screen_queue: Option<ScreenQueueStatus>,
    /// Logins that had more than `auth.recipients_hour_max` recipients in the last hour.
    pub logins_over: Vec<LoginOverLimit>,
    /// Results of deliveries; `null` if this server does not deliver.
    pub deliveries: Option<DeliveryCounts>,
    /// The queue.
    pub queue: QueueStatus,
    /// The pickup directory.
    pub pickup: PickupStatus,
    /// Expansions of long lists.
    pub expansions: ExpansionCounts,
    /// The log.
    pub log: LogStatus,
    /// The history; absent without `history.path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryStatus>,
    /// The cluster; absent on a machine alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterAnswer>,
    /// The webhooks; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<WebhookStatus>,
    /// The spool.
    pub spool: SpoolStatus,
}

/// The state of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebhookStatus {
    /// Its name.
    pub name: String,
    /// Where requests go, without a query.
    pub url: String,
    /// Events that wait.
    pub waiting: u64,
    /// The most.
    pub waiting_max: u64,
    /// Events that were taken since the start.
    pub sent: u64,
    /// Events that were dropped since the start.
    pub dropped: u64,
    /// Why the last request was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
}

/// Clocks that disagree, in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockStatus {
    /// The clock of the machine.
    pub machine: u64,
    /// The time by which mail is retried and ages.
    pub server: u64,
}

/// Tasks that delay the stop of the server, beside its sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopStatus {
    /// Transactions with next hops in progress.
    pub deliveries: u64,
    /// The rest of `server.shutdown_grace`, in seconds.
    pub seconds_left: u64,
}

/// Connections from clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionCounts {
    /// Open now.
    pub open: u64,
    /// `accept.connections_max`.
    pub max: u64,
    /// Since the start.
    pub total: u64,
    /// Refused by a limit since the start.
    pub refused: u64,
}

/// Messages from clients since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AcceptedMessages {
    /// Messages answered with 250.
    pub accepted: u64,
    /// Transactions without an accepted message.
    pub refused: u64,
    /// Messages accepted per second, over the last minute.
    pub accepted_per_second: f64,
}

/// Recipients from clients since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedRecipients {
    /// Recipients answered with 4xx or 5xx.
    pub refused: u64,
}

/// Decisions of content rules and filters since the start, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScreenCounts {
    /// The evaluation of rules ended without a change.
    pub accept: u64,
    /// Refused with a 5yz reply.
    pub reject: u64,
    /// Refused with a 4yz reply.
    pub defer: u64,
    /// Accepted and dropped.
    pub discard: u64,
    /// Held for the decision of a recipient or an administrator.
    pub quarantine: u64,
    /// Held for an operator.
    pub hold: u64,
    /// The header section was changed.
    pub edit: u64,
    /// Sent elsewhere, or elsewhere too, or in another order.
    pub reroute: u64,
    /// Refused with a 4yz reply, since it could not be judged.
    pub not_judged: u64,
}

/// A filter and the connections to it since the configuration was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilterStatus {
    /// `filter.name`.
    pub name: String,
    /// `filter.address`.
    pub address: String,
    /// Connections that are open for the next message.
    pub idle: u64,
    /// Connections that were made.
    pub opened: u64,
    /// Questions over a connection that was open before.
    pub reused: u64,
    /// Those of them that were asked again over a new connection, since the filter had closed the old one.
    pub stale: u64,
    /// Questions that it did not answer, for which `filter.on_failure` decided.
    pub failed: u64,
}

/// Results of sender authentication since the start, by method; one of each method for a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SenderCheckCounts {
    /// The reverse look-up of the client's address.
    pub iprev: ResultCounts,
    /// The right of the client to send for the domain.
    pub spf: ResultCounts,
    /// Signatures.
    pub dkim: ResultCounts,
    /// The domain in From.
    pub dmarc: ResultCounts,
    /// The chain of relays before this server.
    pub arc: ResultCounts,
}

/// Signatures of mail that leaves, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SignatureCounts {
    /// DKIM signatures of own mail.
    pub dkim: MadeCounts,
    /// ARC sets on forwarded mail of others.
    pub arc: MadeCounts,
}

/// Signatures of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MadeCounts {
    /// Those that were made.
    pub made: u64,
    /// Those that could not be made; the messages left without them.
    pub failed: u64,
}

/// Messages by the result of a method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultCounts {
    /// There is nothing to check.
    pub none: u64,
    /// The method vouches for the message.
    pub pass: u64,
    /// It does not.
    pub fail: u64,
    /// The domain says that the client probably may not send.
    pub softfail: u64,
    /// The domain says nothing about the client.
    pub neutral: u64,
    /// The signature is not accepted here.
    pub policy: u64,
    /// The DNS could not tell.
    pub temperror: u64,
    /// A record or signature cannot be used.
    pub permerror: u64,
}

/// Messages that wait for filters after their 250.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScreenQueueStatus {
    /// Messages.
    pub messages: u64,
    /// `screen.backlog_max`.
    pub messages_max: u64,
    /// Their octets.
    pub bytes: u64,
    /// `screen.backlog_bytes_max`.
    pub bytes_max: u64,
    /// Milliseconds by which the 250 of one more is delayed.
    pub delay_ms: u64,
    /// By list of filters.
    pub filters: Vec<FilterQueueStatus>,
}

/// Messages that wait for the same list of filters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilterQueueStatus {
    /// The names of the filters, with commas.
    pub filters: String,
    /// Messages that wait, with those that filters have now.
    pub messages: u64,
    /// Messages that filters have now.
    pub running: u64,
    /// The last failure; `null` when the filters answer.
    pub failing: Option<String>,
    /// Seconds until the next try; `null` when the filters answer.
    pub retry_in: Option<u64>,
}

/// A login with too many recipients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoginOverLimit {
    /// Its name.
    pub user: String,
    /// The last client; `null` if it is not known.
    pub client: Option<String>,
    /// Recipients in an hour.
    pub recipients: u64,
    /// Seconds since the limit was passed.
    pub ago: u64,
}

/// Results of deliveries since the start, by recipients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeliveryCounts {
    /// Taken by a next hop.
    pub sent: u64,
    /// Attempts that are repeated.
    pub deferred: u64,
    /// Given up.
    pub failed: u64,
    /// Recipients sent per second, over the last minute.
    pub sent_per_second: f64,
    /// Connections to next hops.
    pub connections: DeliveryConnections,
}

/// Connections to next hops.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeliveryConnections {
    /// Those that count for `delivery.connections_max`.
    pub open: u64,
    /// `delivery.connections_max`.
    pub max: u64,
    /// Those to silent hosts, beside the others.
    pub silent: u64,
    /// `delivery.connections_silent_max`.
    pub silent_max: u64,
}

/// The queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Messages.
    pub messages: u64,
    /// Recipients that are not done.
    pub recipients: u64,
    /// Of these, the ones that are not held.
    pub waiting: u64,
    /// Of these, the ones that are held.
    pub held: u64,
    /// Destinations with recipients.
    pub destinations: u64,
    /// Messages wait for a command: `delivery.mode` is `queue`.
    pub on_command: bool,
    /// The fullest destinations.
    pub fullest: Vec<DestinationLine>,
    /// Suspensions and hold rules in force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleLine>,
    /// Limits of destinations that operators have set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitLine>,
}

/// The pickup directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PickupStatus {
    /// Files that are not taken yet.
    pub files: u64,
    /// A user has so many files that more are refused.
    pub full: bool,
}

/// Expansions of long lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExpansionCounts {
    /// Expansions since the start.
    pub made: u64,
    /// RCPTs since the start that a cached expansion answered.
    pub shared: u64,
    /// RCPTs since the start that were answered 451 because too many waited.
    pub refused: u64,
    /// RCPTs that wait for a thread.
    pub waiting: u64,
    /// Cached expansions.
    pub kept: u64,
    /// Their memory in octets, about.
    pub kept_bytes: u64,
}

/// The log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogStatus {
    /// Lines dropped since the start.
    pub dropped: u64,
    /// Why the log cannot be written; `null` if it can.
    pub failing: Option<FailingLog>,
    /// Lines that wait for the target.
    pub waiting: u64,
}

/// A log that cannot be written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailingLog {
    /// The file or service.
    pub target: String,
    /// The error.
    pub reason: String,
}

/// The spool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpoolStatus {
    /// `spool.path`.
    pub path: String,
    /// Its file system.
    pub file_system: String,
    /// The messages survive a power cut.
    pub durable: bool,
    /// `none`, `slow`, `full` or `poisoned`.
    pub pressure: String,
    /// Messages.
    pub messages: u64,
    /// Recipients.
    pub recipients: u64,
    /// Held recipients.
    pub held: u64,
    /// Destinations.
    pub destinations: u64,
    /// Octets of live records.
    pub live_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Free segments.
    pub segments_free: u64,
    /// Segments put aside.
    pub segments_bad: u64,
    /// The most segments.
    pub segments_max: u64,
    /// Commits.
    pub commits: u64,
    /// Batches.
    pub batches: u64,
    /// Syncs.
    pub syncs: u64,
    /// Octets written.
    pub bytes_written: u64,
    /// Octets of content written.
    pub body_bytes: u64,
    /// Messages relocated.
    pub relocated: u64,
    /// Failed writes.
    pub failures: u64,
    /// Reads from the cache.
    pub cache_hits: u64,
    /// Reads beside the cache.
    pub cache_misses: u64,
    /// Shared contents found.
    pub shared_hits: u64,
    /// Shared contents not found.
    pub shared_misses: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// Memory of the cache.
    pub cache_bytes: u64,
    /// Memory of shared contents.
    pub shared_bytes: u64,
}

impl SpoolStatus {
    /// Fills in the numbers of the spool. Path and file system stay empty, and `durable` is false.
    #[must_use]
    pub fn new(pressure: Pressure, statistics: &Statistics) -> Self {
        Self {
            pressure: pressure_name(pressure).to_owned(),
            messages: statistics.messages,
            recipients: statistics.recipients,
            held: statistics.held,
            destinations: statistics.destinations,
            live_bytes: statistics.live_bytes,
            segments: statistics.segments,
            segments_free: statistics.segments_free,
            segments_bad: statistics.segments_bad,
            segments_max: statistics.segments_max,
            commits: statistics.commits,
            batches: statistics.batches,
            syncs: statistics.syncs,
            bytes_written: statistics.bytes_written,
            body_bytes: statistics.body_bytes,
            relocated: statistics.relocated,
            failures: statistics.failures,
            cache_hits: statistics.cache_hits,
            cache_misses: statistics.cache_misses,
            shared_hits: statistics.shared_hits,
            shared_misses: statistics.shared_misses,
            index_bytes: statistics.index_bytes,
            cache_bytes: statistics.cache_bytes,
            shared_bytes: statistics.shared_bytes,
            ..Self::default()
        }
    }
}

fn pressure_name(pressure: Pressure) -> &'static str {
    match pressure {
        Pressure::None => "none",
        Pressure::Slow => "slow",
        Pressure::Full => "full",
        Pressure::Poisoned => "poisoned",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_spool_has_its_numbers() {
        let statistics = Statistics { messages: 12, recipients: 20, held: 3, syncs: 4, ..Statistics::default() };
        let status = SpoolStatus::new(Pressure::Slow, &statistics);
        let expected = SpoolStatus {
            pressure: "slow".to_owned(),
            messages: 12,
            recipients: 20,
            held: 3,
            syncs: 4,
            ..SpoolStatus::default()
        };
        assert_eq!(status, expected);
    }
}
