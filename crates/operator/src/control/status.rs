//! Turns the state of the server into the answer to `status`.
//!
//! Field names are part of the protocol, `docs/operation.md` lists them; new ones may come, none changes its meaning.

use super::answer::Answer;
use crate::answers::{
    AcceptedMessages, ConnectionCounts, DeliveryConnections, DeliveryCounts, DestinationLine, ExpansionCounts,
    FailingLog, LogStatus, LoginOverLimit, PickupStatus, QueueStatus, RefusedRecipients, SpoolStatus, StatusAnswer,
    StopStatus, to_fields,
};
use spool::{Pressure, Statistics};
use std::path::PathBuf;
use std::time::Duration;

/// What a server that stops waits for, beside its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// Transactions with next hops that are under way.
    pub deliveries: u64,
    /// How long at most: what is left of `server.shutdown_grace`.
    pub left: Duration,
}

/// How the server is.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Of mailrace.
    pub version: String,
    /// `hostname`.
    pub hostname: String,
    /// Number of the process.
    pub pid: u32,
    /// Since the start.
    pub uptime: Duration,
    /// No transaction begins any more, and what is waited for.
    pub stopping: Option<Stopping>,
    /// The file of the configuration in force, if there is one.
    pub config: Option<PathBuf>,
    /// What the process has given up after its start, if it is no sink.
    pub hardening: Option<String>,
    /// Addresses that are listened on.
    pub listen: Vec<String>,
    /// Sessions that are open now.
    pub connections: u64,
    /// `accept.connections_max`.
    pub connections_max: u64,
    /// Sessions since the start.
    pub connections_total: u64,
    /// Connections turned away since the start, by any limit.
    pub connections_refused: u64,
    /// Messages answered with 250 since the start.
    pub messages_accepted: u64,
    /// Transactions since the start of which no message came, since the sender, every recipient or the content was
    /// answered with 4xx or 5xx.
    pub messages_refused: u64,
    /// Recipients answered with 4xx or 5xx at RCPT since the start, those of messages that were accepted for others
    /// too.
    pub recipients_refused: u64,
    /// Messages accepted per second, over the last minute.
    pub accepted_rate: f64,
    /// What became of recipients since the start, if this server delivers.
    pub deliveries: Option<Deliveries>,
    /// Messages wait for a command: `delivery.mode` is `queue`.
    pub queues_only: bool,
    /// The fullest destinations, as `queue destinations` shows them.
    pub fullest: Vec<DestinationLine>,
    /// Logins that had more than `auth.recipients_hour_max` recipients in the last hour.
    pub logins_over: Vec<LoginOverLimit>,
    /// Files in the pickup directory that are not taken yet.
    pub pickup_files: u64,
    /// So many that somebody may hand in no more.
    pub pickup_full: bool,
    /// What long lists become.
    pub expansions: ExpansionFigures,
    /// Lines the log had to drop since the start.
    pub log_dropped: u64,
    /// Why the log cannot be written now.
    pub log_failing: Option<FailingLog>,
    /// Lines that wait for the log's target.
    pub log_waiting: u64,
    /// `spool.path`.
    pub spool_path: PathBuf,
    /// What it is on: `ext4`, `tmpfs`.
    pub file_system: String,
    /// A power cut takes the mail with it.
    pub volatile: bool,
    /// How short of room the spool is.
    pub pressure: Pressure,
    /// What it holds.
    pub spool: Statistics,
}

/// Expansions of long lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpansionFigures {
    /// Expansions since the start.
    pub made: u64,
    /// RCPTs since the start that were answered from one that was kept.
    pub shared: u64,
    /// RCPTs since the start that were answered 451 since too many waited.
    pub refused: u64,
    /// RCPTs that wait for a thread.
    pub waiting: u64,
    /// Expansions that are kept.
    pub kept: u64,
    /// About how many octets of memory those take.
    pub kept_bytes: u64,
}

/// What became of recipients since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deliveries {
    /// Taken by a next hop.
    pub sent: u64,
    /// Attempts that are to be repeated.
    pub deferred: u64,
    /// Given up.
    pub failed: u64,
    /// Recipients taken by a next hop per second, over the last minute.
    pub sent_rate: f64,
    /// Connections to next hops that hold a place of `delivery.connections_max`.
    pub connections: u64,
    /// That limit.
    pub connections_max: u64,
    /// Connections beside these whose hosts are silent.
    pub silent: u64,
    /// And their limit, `delivery.connections_silent_max`.
    pub silent_max: u64,
}

impl Status {
    /// The answer.
    #[must_use]
    pub fn into_answer(self) -> Answer {
        Answer::Done(to_fields(&self.to_answer()))
    }

    fn to_answer(&self) -> StatusAnswer {
        let spool = &self.spool;
        let stop =
            self.stopping.map(|Stopping { deliveries, left }| StopStatus { deliveries, seconds_left: left.as_secs() });
        StatusAnswer {
            version: self.version.clone(),
            hostname: self.hostname.clone(),
            pid: self.pid,
            uptime_seconds: self.uptime.as_secs(),
            stopping: stop.is_some(),
            stop,
            config: self.config.as_ref().map(|path| path.display().to_string()),
            hardening: self.hardening.clone(),
            listen: self.listen.clone(),
            connections: ConnectionCounts {
                open: self.connections,
                max: self.connections_max,
                total: self.connections_total,
                refused: self.connections_refused,
            },
            messages: AcceptedMessages {
                accepted: self.messages_accepted,
                refused: self.messages_refused,
                accepted_per_second: self.accepted_rate,
            },
            recipients: RefusedRecipients { refused: self.recipients_refused },
            logins_over: self.logins_over.clone(),
            deliveries: self.deliveries.map(Deliveries::counts),
            queue: QueueStatus {
                messages: spool.messages,
                recipients: spool.recipients,
                waiting: spool.recipients.saturating_sub(spool.held),
                held: spool.held,
                destinations: spool.destinations,
                on_command: self.queues_only,
                fullest: self.fullest.clone(),
            },
            pickup: PickupStatus { files: self.pickup_files, full: self.pickup_full },
            expansions: ExpansionCounts {
                made: self.expansions.made,
                shared: self.expansions.shared,
                refused: self.expansions.refused,
                waiting: self.expansions.waiting,
                kept: self.expansions.kept,
                kept_bytes: self.expansions.kept_bytes,
            },
            log: LogStatus { dropped: self.log_dropped, failing: self.log_failing.clone(), waiting: self.log_waiting },
            spool: self.spool_status(),
        }
    }

    fn spool_status(&self) -> SpoolStatus {
        let spool = &self.spool;
        SpoolStatus {
            path: self.spool_path.display().to_string(),
            file_system: self.file_system.clone(),
            durable: !self.volatile,
            pressure: pressure_name(self.pressure).to_owned(),
            messages: spool.messages,
            recipients: spool.recipients,
            held: spool.held,
            destinations: spool.destinations,
            live_bytes: spool.live_bytes,
            segments: spool.segments,
            segments_free: spool.segments_free,
            segments_bad: spool.segments_bad,
            segments_max: spool.segments_max,
            commits: spool.commits,
            batches: spool.batches,
            syncs: spool.syncs,
            bytes_written: spool.bytes_written,
            body_bytes: spool.body_bytes,
            relocated: spool.relocated,
            failures: spool.failures,
            cache_hits: spool.cache_hits,
            cache_misses: spool.cache_misses,
            shared_hits: spool.shared_hits,
            shared_misses: spool.shared_misses,
            index_bytes: spool.index_bytes,
            cache_bytes: spool.cache_bytes,
            shared_bytes: spool.shared_bytes,
        }
    }
}

impl Deliveries {
    fn counts(self) -> DeliveryCounts {
        let Self { sent, deferred, failed, sent_rate, connections, connections_max, silent, silent_max } = self;
        let connections = DeliveryConnections { open: connections, max: connections_max, silent, silent_max };
        DeliveryCounts { sent, deferred, failed, sent_per_second: sent_rate, connections }
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
