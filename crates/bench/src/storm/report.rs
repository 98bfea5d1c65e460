//! The report of a storm, for people and for programs.

use super::tally::StormTally;
use super::{Plan, Tls};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The report of a run.
#[derive(Clone, Debug)]
pub struct StormReport {
    /// The server.
    pub to: String,
    /// Name of the run in its messages.
    pub run: String,
    /// How messages were sent, in words.
    pub way: String,
    /// Messages acknowledged with all their recipients.
    pub accepted: u64,
    /// Messages the server said no to.
    pub refused: u64,
    /// Messages that never got as far as a complete content.
    pub failed: u64,
    /// Messages whose content was sent and never answered; the server may have them.
    pub unanswered: u64,
    /// Messages of `--messages` that the time did not suffice for.
    pub not_sent: u64,
    /// Recipients of accepted messages.
    pub recipients: u64,
    /// Octets of accepted messages.
    pub octets: u64,
    /// Wall time.
    pub elapsed: Duration,
    /// Processor time of this program.
    pub cpu: Duration,
    /// Connections that were greeted.
    pub connections: u64,
    /// Connections the system refused.
    pub connects_refused: u64,
    /// Connections that failed otherwise.
    pub connects_failed: u64,
    /// Errors by text.
    pub errors: Vec<(String, u64)>,
    /// Time from the final dot to the final reply.
    pub latency: Percentiles,
    /// Time from when a message was due to the final reply, so that waiting for a session counts; only with a rate.
    pub delay: Option<Percentiles>,
    /// Time from connecting to the greeting.
    pub greeting: Percentiles,
}

/// Times in microseconds; all 0 if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// The median.
    pub p50: u64,
    /// 90 of 100 took no longer.
    pub p90: u64,
    /// 99 of 100 took no longer.
    pub p99: u64,
    /// 999 of 1,000 took no longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: histogram.max() }
    }

    fn text(self) -> String {
        if self == Self::default() {
            return "-".to_owned();
        }
        let Self { p50, p90, p99, p999, max } = self;
        let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(milliseconds);
        format!("p50 {p50}  p90 {p90}  p99 {p99}  p99.9 {p999}  max {max} ms")
    }

    fn json(self) -> Value {
        json!({ "p50": self.p50, "p90": self.p90, "p99": self.p99, "p999": self.p999, "max": self.max })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time for a person")]
fn milliseconds(us: u64) -> String {
    format!("{:.2}", us as f64 / 1000.0)
}

impl StormReport {
    pub(super) fn new(plan: &Plan, tally: &StormTally, elapsed: Duration, cpu: Duration) -> Self {
        let mut errors: Vec<(String, u64)> = tally.errors.iter().map(|(text, count)| (text.clone(), *count)).collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let (accepted, others) = tally.so_far();
        Self {
            to: plan.to.to_string(),
            run: plan.run.clone(),
            way: way(plan),
            accepted,
            refused: tally.refused,
            failed: tally.failed,
            unanswered: tally.unanswered,
            not_sent: plan.messages.map_or(0, |messages| messages.saturating_sub(accepted + others)),
            recipients: tally.recipients,
            octets: tally.octets,
            elapsed,
            cpu,
            connections: tally.connections,
            connects_refused: tally.connects_refused,
            connects_failed: tally.connects_failed,
            errors,
            latency: Percentiles::of(&tally.latency),
            delay: plan.rate.map(|_| Percentiles::of(&tally.delay)),
            greeting: Percentiles::of(&tally.greeting),
        }
    }

    /// Whether every message that was begun was accepted, and at least one was.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.accepted > 0 && self.refused + self.failed + self.unanswered == 0
    }

    /// Accepted messages per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub fn per_second(&self) -> f64 {
        self.accepted as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }

    /// Processor time of this program for each accepted message, in microseconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a quotient")]
    pub fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.accepted.max(1) as f64
    }

    /// The report for a person, lines with their ends.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "figures for a person")]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            let _infallible = writeln!(text, "{name:<13}{value}");
        };
        row("storm", format!("{} of run {}: {}", self.to, self.run, self.way));
        let seconds = self.elapsed.as_secs_f64();
        row("accepted", format!("{} messages, {} recipients", self.accepted, self.recipients));
        row(
            "rate",
            format!(
                "{:.0} messages/s, {:.1} MB/s, in {seconds:.2} s",
                self.per_second(),
                self.octets as f64 / 1e6 / seconds.max(1e-6)
            ),
        );
        row("latency", format!("{}, from the final dot to 250", self.latency.text()));
        if let Some(delay) = self.delay {
            row("delay", format!("{}, from the time a message was due to 250", delay.text()));
        }
        row("greeting", format!("{}, from connect", self.greeting.text()));
        row(
            "connections",
            format!("{} greeted, {} refused, {} failed", self.connections, self.connects_refused, self.connects_failed),
        );
        let cpu = if self.accepted > 0 { format!("{:.1}", self.cpu_us()) } else { "-".to_owned() };
        row("processor", format!("{cpu} us for each accepted message, of the storm itself"));
        let Self { refused, failed, unanswered, not_sent, .. } = self;
        if refused + failed + unanswered + not_sent > 0 {
            row(
                "NOT ACCEPTED",
                format!("{refused} refused, {failed} failed, {unanswered} unanswered, {not_sent} not sent"),
            );
        }
        for (error, count) in &self.errors {
            row("", format!("{count:>9}  {}", error.escape_debug()));
        }
        text
    }

    /// The report for a program.
    #[must_use]
    pub fn json(&self) -> Value {
        let errors: Vec<Value> =
            self.errors.iter().map(|(text, count)| json!({ "text": text, "count": count })).collect();
        json!({
            "to": self.to,
            "run": self.run,
            "way": self.way,
            "complete": self.is_complete(),
            "messages": {
                "accepted": self.accepted, "refused": self.refused, "failed": self.failed,
                "unanswered": self.unanswered, "not_sent": self.not_sent,
            },
            "recipients": self.recipients,
            "bytes": self.octets,
            "seconds": self.elapsed.as_secs_f64(),
            "messages_per_second": self.per_second(),
            "connections": {
                "greeted": self.connections, "refused": self.connects_refused, "failed": self.connects_failed,
            },
            "latency_us": self.latency.json(),
            "delay_us": self.delay.map(Percentiles::json),
            "greeting_us": self.greeting.json(),
            "storm_cpu_us_per_message": self.cpu_us(),
            "errors": errors,
        })
    }
}

/// The way of a plan in words.
fn way(plan: &Plan) -> String {
    let mut words = vec![format!("{} sessions", plan.sessions)];
    words.push(if plan.new_connection { "a connection for each message" } else { "kept alive" }.to_owned());
    let (from, to) = (plan.sizes.from, plan.sizes.to);
    words.push(if from == to { format!("{from} bytes") } else { format!("{from} to {to} bytes") });
    if plan.recipients_of(0) > 1 {
        words.push(format!("{} recipients", plan.recipients_of(0)));
    }
    match plan.tls {
        Tls::None => {}
        Tls::Starttls => words.push("STARTTLS, certificate not checked".to_owned()),
        Tls::Implicit => words.push("TLS, certificate not checked".to_owned()),
    }
    let flags = [
        (plan.lmtp, "LMTP"),
        (plan.pipelining, "pipelining"),
        (plan.chunking, "BDAT"),
        (plan.split_dot, "the dot by itself"),
        (plan.own_text, "texts of their own"),
    ];
    words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, word)| (*word).to_owned()));
    if let Some(rate) = plan.rate {
        words.push(format!("{rate} messages/s"));
    }
    words.join(", ")
}
