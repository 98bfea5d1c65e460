//! One sample: scanners, a receiver, a server with an empty queue, a client that sends for some time.
//!
//! A second after the other the accepted and the arrived messages are noted, so that a collapse shows: the last third
//! of the time against the first.

use super::contender::{Contender, Placement};
use super::scanners::{Scanner, Scanners};
use crate::clock;
use crate::machine::say;
use crate::receiver::{Manners, Receiver};
use crate::side_by_side::programs::{machine_ticks, process_memory_max, us_each};
use crate::side_by_side::servers::{RunDirectory, RunningServer, Site, Task};
use crate::storm::{self, Plan, Sizes, StormProgress};
use std::time::Duration;

/// After the client has ended, mail is on its way while anything arrives within this time.
const QUIET: Duration = Duration::from_secs(20);
/// How often the receiver is asked then.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Octets of messages, as Postal sends them by default: up to 10 KB.
const SIZES: Sizes = Sizes { from: 512, to: 10 << 10 };

/// The load of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilteredLoad {
    pub(super) sessions: u32,
    pub(super) seconds: u64,
    /// Mail that still waits so long after the client's end counts as backlog.
    pub(super) drain: Duration,
    /// `screen.backlog_max` of servers that ask after the 250.
    pub(super) backlog: u64,
    /// How long a distant scanner waits.
    pub(super) scanner_delay: Duration,
}

/// The figures of a sample.
#[derive(Clone, Debug, Default)]
pub(super) struct FilteredSample {
    pub(super) accepted: u64,
    pub(super) arrived: u64,
    /// Messages that the client was refused, or that failed.
    pub(super) refused: u64,
    /// Accepted messages of each second.
    pub(super) each_second: Vec<f64>,
    pub(super) seconds: f64,
    /// Arrived messages a second while the client sent.
    pub(super) arrived_per_second: f64,
    /// Accepted messages that had not arrived, at the most.
    pub(super) backlog_max: u64,
    /// From the client's end until the last message arrived.
    pub(super) drained_s: f64,
    pub(super) p99_us: u64,
    pub(super) machine_us: f64,
    /// Processor time of the scanners for each message that arrived.
    pub(super) scanners_us: f64,
    /// Accepted messages a second until half of the limit of the backlog waited, where the 250 begins to be delayed.
    pub(super) until_half: Option<f64>,
    /// The most memory of the server, where it is one process.
    pub(super) memory: Option<u64>,
    pub(super) complaint: Option<String>,
}

impl FilteredSample {
    #[expect(clippy::cast_precision_loss, reason = "a number of messages")]
    pub(super) fn accepted_per_second(&self) -> f64 {
        self.accepted as f64 / self.seconds.max(1e-3)
    }

    /// The rate of the last third of the time divided by that of the first; `None` for runs under nine seconds.
    pub(super) fn held(&self) -> Option<f64> {
        let third = self.each_second.len() / 3;
        if third < 3 {
            return None;
        }
        let sum = |part: &[f64]| part.iter().sum::<f64>();
        let first = sum(self.each_second.get(..third)?);
        let last = sum(self.each_second.get(self.each_second.len() - third..)?);
        (first > 0.0).then(|| last / first)
    }
}

/// Takes a sample.
///
/// # Errors
/// Why there is no figure.
pub(super) fn sample(
    site: &Site,
    work: &RunDirectory,
    contender: &Contender,
    kinds: &[Scanner],
    load: FilteredLoad,
) -> Result<FilteredSample, String> {
    let scanners = match contender.placement {
        Placement::None => None,
        _ => Some(Scanners::start(work.path(), kinds, !contender.is_mailrace(), load.scanner_delay)?),
    };
    let hop = Receiver::start(false, Manners { chunking: true, ..Manners::default() });
    let hop = hop.map_err(|error| format!("receiver: {error}"))?;
    let (filters, milters) = scanners.as_ref().map_or_else(
        || (Vec::new(), Vec::new()),
        |scanners| (contender.settings(&scanners.at), scanners.milters.clone()),
    );
    let task = Task::Screen { to: hop.at() };
    let is_after = contender.placement == Placement::After;
    let more: Vec<String> = is_after.then(|| format!("screen.backlog_max={}", load.backlog)).into_iter().collect();
    let server = RunningServer::start_screened(site, &contender.server, task, &filters, &milters, &more)?;
    let sample = measure(&server, &hop, scanners.as_ref(), load);
    drop(server);
    drop(hop);
    sample
}

fn measure(
    server: &RunningServer<'_>,
    hop: &Receiver,
    scanners: Option<&Scanners>,
    load: FilteredLoad,
) -> Result<FilteredSample, String> {
    let plan = Plan {
        messages: None,
        time: Some(Duration::from_secs(load.seconds)),
        sessions: load.sessions,
        sizes: SIZES,
        new_connection: true,
        run: "filtered".to_owned(),
        patience: Duration::from_secs(120),
        ..Plan::new(server.at)
    };
    let (mut course, scanners_us) = (RunCourse::default(), || scanners.map_or(0.0, Scanners::cpu_us));
    let (start, ticks, scanners_before) = (clock::now(), machine_ticks(), scanners_us());
    let memory = || server.process().map(process_memory_max);
    let mut note = |progress: StormProgress| course.note(&progress, hop.count(), load.backlog, memory());
    let report = storm::run(&plan, &mut note).map_err(|error| error.to_string())?;
    let arrived_meanwhile = hop.count();
    let seconds = start.elapsed().as_secs_f64();
    let RunCourse { each_second, backlog_max, until_half, .. } = course;
    let backlog_max = backlog_max.max(report.accepted.saturating_sub(arrived_meanwhile));
    let (arrived, drained_s) = drain(hop, report.accepted, load.drain);
    let missing = report.accepted.saturating_sub(arrived);
    let complaint = (missing > 0).then(|| {
        format!("{missing} of {} messages had not arrived {:.0} s after the client's end", report.accepted, drained_s)
    });
    Ok(FilteredSample {
        accepted: report.accepted,
        arrived,
        refused: report.refused + report.failed + report.unanswered,
        each_second,
        seconds,
        arrived_per_second: count(arrived_meanwhile) / seconds.max(1e-3),
        backlog_max,
        drained_s,
        p99_us: report.latency.p99,
        machine_us: us_each(machine_ticks().saturating_sub(ticks), count(arrived.max(1))),
        scanners_us: (scanners_us() - scanners_before) / count(arrived.max(1)),
        until_half,
        memory: memory(),
        complaint,
    })
}

/// The course of a run, second by second.
#[derive(Debug, Default)]
struct RunCourse {
    /// Accepted messages of each second.
    each_second: Vec<f64>,
    backlog_max: u64,
    /// The rate of intake so far, as long as less than half of the limit waits.
    until_half: Option<f64>,
    has_reached_half: bool,
    /// Of the minute before: accepted and arrived messages.
    minute: (u64, u64),
}

impl RunCourse {
    /// Notes a second, and prints a line each minute.
    fn note(&mut self, progress: &StormProgress, arrived: u64, limit: u64, memory: Option<u64>) {
        self.each_second.push(progress.per_second);
        let backlog = progress.accepted.saturating_sub(arrived);
        self.backlog_max = self.backlog_max.max(backlog);
        self.has_reached_half |= backlog > limit / 2;
        if !self.has_reached_half {
            self.until_half = Some(count(progress.accepted) / progress.elapsed.as_secs_f64().max(1e-3));
        }
        if self.each_second.len().is_multiple_of(60) {
            let (accepted_before, arrived_before) = std::mem::replace(&mut self.minute, (progress.accepted, arrived));
            let each = |now: u64, before: u64| count(now.saturating_sub(before)) / 60.0;
            say(&format!(
                "filtered: minute {}: {:.0} messages/s accepted, {:.0} arrived, {backlog} on their way, {} refused so \
                 far, server memory {} MiB",
                self.each_second.len() / 60,
                each(progress.accepted, accepted_before),
                each(arrived, arrived_before),
                progress.others,
                memory.unwrap_or(0) >> 20,
            ));
        }
    }
}

/// Waits until all messages have arrived, or nothing comes any more; returns how many have, and the time it took.
fn drain(hop: &Receiver, accepted: u64, longest: Duration) -> (u64, f64) {
    let start = clock::now();
    let (mut there, mut last) = (hop.count(), start);
    while there < accepted && last.elapsed() < QUIET && start.elapsed() < longest {
        clock::pause(ASK_EVERY);
        let now_there = hop.count();
        if now_there > there {
            (there, last) = (now_there, clock::now());
        }
    }
    (there, last.duration_since(start).as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "a number of messages")]
fn count(messages: u64) -> f64 {
    messages as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_until_half_of_the_limit_counts_whole_seconds_before_it() {
        let mut course = RunCourse::default();
        for (second, accepted, arrived) in [(1, 100, 90), (2, 220, 150), (3, 400, 200), (4, 420, 400)] {
            let elapsed = Duration::from_secs(second);
            let progress = StormProgress { accepted, others: 0, messages: None, per_second: 1.0, elapsed };
            course.note(&progress, arrived, 300, None);
        }
        assert_eq!((course.until_half, course.backlog_max, course.each_second.len()), (Some(110.0), 200, 4));
    }

    #[test]
    fn a_collapse_shows_in_the_last_third() {
        let of = |each_second: &[f64]| FilteredSample { each_second: each_second.to_vec(), ..Default::default() };
        let steady = of(&[10.0; 12]).held().expect("long enough");
        let falls = of(&[20.0, 20.0, 20.0, 9.0, 9.0, 9.0, 5.0, 5.0, 5.0]).held().expect("long enough");
        assert!((steady - 1.0).abs() < 1e-9 && (falls - 0.25).abs() < 1e-9, "{steady} {falls}");
        assert_eq!((of(&[1.0; 8]).held(), of(&[0.0; 9]).held()), (None, None));
    }
}
