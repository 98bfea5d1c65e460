//! The result of a run: for people as text, for programs as JSON. The keys are in docs/sim.md, section 4.

use super::engine::Engine;
use super::seconds;
use crate::clock;
use serde_json::{Value, json};
use sim::Tally;
use sim::world::Counts;
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

/// The result of a run.
#[derive(Debug)]
pub struct InternetSummary {
    /// When it began, in microseconds since 1970.
    pub start_unix_us: u64,
    /// How long it ran.
    pub time: Duration,
    /// Processor time of this process meanwhile.
    pub cpu: Duration,
    /// The messages that were taken.
    pub tally: Tally,
    /// Connections and refusals.
    pub counts: Counts,
    /// Connections that were closed at once, because there were too many.
    pub turned_away: u64,
    /// DNS queries that were answered.
    pub queries: u64,
    /// Recipients of the list.
    pub list: u64,
    /// Every host that was connected to.
    pub hosts: Vec<HostCounts>,
    /// The first failure on the way.
    pub(super) failed: Option<String>,
}

/// The counts of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCounts {
    /// Its number.
    pub host: u32,
    /// Connections that it accepted.
    pub connections: u32,
    /// The most that were open.
    pub open_max: u32,
    /// Messages that it acknowledged.
    pub messages: u32,
    /// Their recipients.
    pub recipients: u64,
}

impl InternetSummary {
    pub(super) fn new(engine: Engine, start_unix_us: u64, start: Instant, cpu: Duration) -> Self {
        let hosts = (0..).zip(engine.world.hosts()).filter(|(_, host)| host.connections > 0);
        let hosts = hosts.map(|(number, host)| HostCounts {
            host: number,
            connections: host.connections,
            open_max: host.open_max,
            messages: host.messages,
            recipients: host.recipients,
        });
        let hosts = hosts.collect();
        let written = engine.ledger.close();
        Self {
            start_unix_us,
            time: clock::now().saturating_duration_since(start),
            cpu: clock::cpu().saturating_sub(cpu),
            counts: engine.world.counts().clone(),
            list: engine.world.list_len(),
            tally: engine.tally,
            turned_away: engine.turned_away,
            queries: engine.names.queries,
            hosts,
            failed: engine.failed.or_else(|| written.err().map(|error| format!("--ledger: {error}"))),
        }
    }

    /// The most connections a single host accepted, and the most it had open.
    #[must_use]
    pub fn host_max(&self) -> (u32, u32) {
        let most = |of: fn(&HostCounts) -> u32| self.hosts.iter().map(of).max().unwrap_or(0);
        (most(|host| host.connections), most(|host| host.open_max))
    }

    /// The summary as one JSON value; with `with_hosts` every host as well.
    #[must_use]
    pub fn json(&self, with_hosts: bool) -> Value {
        let tally = &self.tally;
        let (host_connections_max, host_open_max) = self.host_max();
        let [at_50, at_95, at_100] = tally.marks.map(|mark| mark.map(seconds));
        let refused: serde_json::Map<String, Value> =
            self.counts.refused.iter().map(|(code, count)| (code.to_string(), json!(count))).collect();
        let mut value = json!({
            "event": "summary",
            "start_unix_us": self.start_unix_us,
            "seconds": seconds(self.time),
            "cpu_seconds": seconds(self.cpu),
            "connections": self.counts.connections,
            "connections_open_max": self.counts.open_max,
            "host_connections_max": host_connections_max,
            "host_open_max": host_open_max,
            "turned_away": self.turned_away,
            "messages": tally.messages,
            "recipients": tally.recipients,
            "octets": tally.octets,
            "silent_messages": tally.silent_messages,
            "silent_recipients": tally.silent_recipients,
            "twice": tally.twice,
            "refused": refused,
            "list": {
                "recipients": self.list,
                "live": tally.live,
                "taken": tally.live_taken,
                "at_50": at_50,
                "at_95": at_95,
                "at_100": at_100,
            },
            "first": tally.first.map(seconds),
            "last": tally.last.map(seconds),
            "per_second": tally.per_second,
            "dns_queries": self.queries,
        });
        if with_hosts {
            let hosts = self.hosts.iter();
            let hosts = hosts.map(|h| json!([h.host, h.connections, h.open_max, h.messages, h.recipients]));
            let hosts: Value = hosts.collect();
            if let Some(object) = value.as_object_mut() {
                object.insert("hosts".to_owned(), hosts);
            }
        }
        value
    }

    /// The summary for people, in lines.
    #[must_use]
    pub fn text(&self) -> String {
        let tally = &self.tally;
        let mut text = String::new();
        let mut line = |line: fmt::Arguments<'_>| {
            // Writing to a String cannot fail.
            let _infallible = writeln!(text, "{line}");
        };
        line(format_args!(
            "{} messages for {} recipients taken in {:.1} s, {} octets",
            tally.messages,
            tally.recipients,
            seconds(self.time),
            tally.octets
        ));
        if let (Some(first), Some(last)) = (tally.first, tally.last) {
            line(format_args!("the first after {:.3} s, the last after {:.3} s", seconds(first), seconds(last)));
        }
        line(format_args!("{} of {} listed recipients at live hosts got a message", tally.live_taken, tally.live));
        for (mark, percent) in tally.marks.iter().zip(sim::tally::MARKS) {
            if let Some(at) = mark {
                line(format_args!("{percent:>5} % of these recipients after {:.3} s", seconds(*at)));
            }
        }
        let (most, open) = self.host_max();
        line(format_args!(
            "{} connections, at most {} at a time; to one host at most {most}, {open} at a time",
            self.counts.connections, self.counts.open_max
        ));
        if tally.silent_messages > 0 {
            line(format_args!(
                "{} more messages for {} recipients were taken without an answer",
                tally.silent_messages, tally.silent_recipients
            ));
        }
        if tally.twice > 0 {
            line(format_args!("{} times a recipient got a message again", tally.twice));
        }
        if self.turned_away > 0 {
            line(format_args!("{} connections above --connections-max were closed", self.turned_away));
        }
        if !self.counts.refused.is_empty() {
            let codes = self.counts.refused.iter().map(|(code, count)| format!("{code}: {count}"));
            line(format_args!("refusals by code: {}", codes.collect::<Vec<_>>().join(", ")));
        }
        line(format_args!("{} DNS queries answered; {:.2} s of processor time", self.queries, seconds(self.cpu)));
        text
    }
}
