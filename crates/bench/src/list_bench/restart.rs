//! The cost of a kill for a large list: in the middle of it, and while all of it is held, beside a server that is not
//! killed.
//!
//! `kill -9`, and at once the same server again on the same spool. From the ledger of the internet: when all live
//! recipients had the list, which had it twice, and how long before the kill the first of the two had come. From the
//! spool at the end: the recipients that still wait. Each recipient has had the list or waits for it; both only if he
//! had it just before a kill under way, since a recipient that waits will have it twice.
//!
//! The time of a server that was killed while it held the list runs from its second start, that of the others from the
//! first connection of the submitter. Processor time is that of both processes, memory the most of either.

use super::flow::{Submission, follow, micros, submission};
use super::internet::InternetProcess;
use super::ledger::Arrivals;
use super::report::{ReportLine, ReportLines, Told, count, line, quotients};
use super::world::large;
use super::{ListBenchArguments, ListPart};
use crate::clock;
use crate::machine::say;
use crate::side_by_side::figures::{Row, Sampled, cell};
use crate::side_by_side::programs::{process_memory_max, process_ticks, seconds};
use crate::side_by_side::servers::{RunningServer, ServerKind, Site, Task};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

/// The longest time of a sample, from the first connection.
const LONGEST: Duration = Duration::from_secs(300);
/// How often the server is asked what waits.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How long after the last arrival doubles are looked for.
const AFTER: Duration = Duration::from_secs(1);
/// A repeated message had arrived at most so long before the kill (docs/crash-tests.md: an outcome is durable 50
/// ms after it is recorded; between the answer of a host and that lies a busy machine).
const REPEATED_MAX_US: u64 = 500_000;
/// Percent of all arrivals that are the middle.
const MIDDLE: std::ops::RangeInclusive<f64> = 10.0..=90.0;

/// The treatment of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestartMode {
    Through,
    Killed,
    Held,
}

impl RestartMode {
    const ALL: [Self; 3] = [Self::Through, Self::Killed, Self::Held];

    fn text(self) -> &'static str {
        match self {
            Self::Through => "not killed",
            Self::Killed => "killed in the middle",
            Self::Held => "killed while all is held",
        }
    }
}

/// The figures of one sample.
#[derive(Clone, Debug, Default)]
struct RestartSample {
    /// The time until all live recipients had the list, in seconds.
    all_s: Option<f64>,
    /// From the second start until it accepts connections.
    ready_s: Option<f64>,
    /// Percent of all arrivals that came before the kill.
    before: Option<f64>,
    cpu_s: f64,
    memory: u64,
    arrived: usize,
    expected: usize,
    /// Recipients that did not get the list and do not wait for it.
    lost: u64,
    /// Had it and wait for it all the same.
    unrecorded: Again,
    /// Came again.
    twice: Again,
    /// Came again because the server was killed before the host could answer.
    unanswered: usize,
}

/// Deliveries that came again or will.
#[derive(Clone, Copy, Debug, Default)]
struct Again {
    count: u64,
    /// How long before the kill the oldest of it had come first, in microseconds.
    oldest_us: Option<u64>,
    /// Had come first when the server was there again.
    anew: u64,
}

impl Again {
    /// Of these first arrivals; `killed` and `ready` are when a server ended and the next was there. All are
    /// microseconds.
    fn new(first: &[u64], kill: Option<(u64, u64)>) -> Self {
        Self {
            count: first.len() as u64,
            oldest_us: kill.and_then(|(killed, _)| first.iter().map(|at| killed.saturating_sub(*at)).max()),
            anew: kill.map_or(0, |(_, ready)| first.iter().filter(|at| **at > ready).count() as u64),
        }
    }

    /// Returns the repeated deliveries that a kill in the middle does not explain, by the time when the server was
    /// back.
    fn unexplained(&self, way: RestartMode) -> u64 {
        if way == RestartMode::Killed { self.anew } else { self.count }
    }
}

impl Sampled for RestartSample {
    fn rate(&self) -> f64 {
        self.all_s.map_or(0.0, f64::recip)
    }

    fn complaint(&self) -> Option<&str> {
        None
    }
}

/// All samples, a row for each way.
#[derive(Debug)]
pub(super) struct RestartFigures {
    recipients: usize,
    rows: Vec<Row<RestartSample>>,
}

/// Takes all samples; ways take turns.
///
/// # Errors
/// Why there are no figures.
pub(super) fn measure(site: &Site, arguments: &ListBenchArguments) -> Result<RestartFigures, String> {
    let mut rows: Vec<Row<RestartSample>> = RestartMode::ALL.map(|way| Row::new(way.text())).into();
    for round in 0..arguments.rounds() {
        for turn in 0..RestartMode::ALL.len() {
            let at = (turn + round) % RestartMode::ALL.len();
            let (Some(way), Some(row)) = (RestartMode::ALL.get(at), rows.get_mut(at)) else { continue };
            let sample = sample(site, arguments, *way).map_err(|why| format!("{}: {why}", way.text()))?;
            say(&format!("list: restart: round {}: {}: {sample:?}", round + 1, way.text()));
            row.add(Ok(sample));
        }
    }
    let world = large(arguments);
    Ok(RestartFigures { recipients: world.hosts as usize * world.recipients as usize, rows })
}

fn sample(site: &Site, arguments: &ListBenchArguments, way: RestartMode) -> Result<RestartSample, String> {
    let mut internet = InternetProcess::start(site, &large(arguments))?;
    let held = if way == RestartMode::Held { vec!["delivery.mode=queue".to_owned()] } else { Vec::new() };
    let mut server = RunningServer::start_with(site, &ServerKind::Serve, Task::List, &held)?;
    let people = std::mem::take(&mut internet.people);
    let (all, expected) = (people.all.len(), people.live());
    let mut tally = Arrivals::new("restart", people.all.iter().cloned().zip(people.is_live.iter().copied()));
    let mut sample = RestartSample { expected, ..RestartSample::default() };
    let submission = Submission::start(submission(server.at, "restart", 1, arguments.bytes, vec![people.all]));
    let (mut start_us, mut killed_us) = (submission.start_us, None);
    if way != RestartMode::Through {
        if !submission.wait() {
            return Err("the list was not accepted".to_owned());
        }
        if way == RestartMode::Killed {
            until_waiting(&server, &submission, all - expected / 2)?;
        }
        sample.uses(&server);
        killed_us = Some(clock::unix_us());
        server.end(Signal::KILL);
        let start = clock::now();
        if way == RestartMode::Held {
            start_us = clock::unix_us();
        }
        server.start_again(Task::List, &[])?;
        sample.ready_s = Some(start.elapsed().as_secs_f64());
    }
    follow(&mut internet, &mut tally, expected, &submission, LONGEST, |_| {})?;
    sample.uses(&server);
    clock::pause(AFTER);
    submission.end()?;
    server.end(Signal::TERM);
    let waiting = server.who_waits()?;
    internet.finish()?;
    internet.deliveries(|taken| tally.add(taken))?;

    let since = |us: u64| us.saturating_sub(internet.start_us);
    sample.all_s = tally.moment(100, expected).map(|at| micros(at.saturating_sub(since(start_us))));
    sample.arrived = tally.arrived();
    sample.lost = tally.lost(&waiting);
    sample.unanswered = tally.again_after_silence();
    let kill = killed_us.map(since).map(|killed| {
        // Answers to messages that the killed one had sent leave a little later than it ended, and before the next one
        // is there.
        let ready = Duration::from_secs_f64(sample.ready_s.unwrap_or(0.0)).as_micros();
        (killed, killed.saturating_add(u64::try_from(ready).unwrap_or(u64::MAX)))
    });
    sample.twice = Again::new(tally.repeated(), kill);
    sample.unrecorded = Again::new(&tally.unrecorded(&waiting), kill);
    sample.before =
        kill.map(|(killed, _)| 100.0 * count(tally.arrived_by(killed) as u64) / count(expected.max(1) as u64));
    Ok(sample)
}

/// Waits until no more recipients than these wait.
fn until_waiting(server: &RunningServer<'_>, submission: &Submission, at_most: usize) -> Result<(), String> {
    while server.waiting()? > at_most as u64 {
        if submission.elapsed() > LONGEST {
            return Err(format!("more than {at_most} recipients wait after {} s", LONGEST.as_secs()));
        }
        clock::pause(ASK_EVERY);
    }
    Ok(())
}

impl RestartSample {
    /// Adds what a process has used until now.
    fn uses(&mut self, server: &RunningServer<'_>) {
        if let Some(pid) = server.process() {
            self.cpu_s += seconds(process_ticks(pid));
            self.memory = self.memory.max(process_memory_max(pid));
        }
    }

    /// Whether the kill came when it was to come. No held message may have left.
    fn is_killed_in_time(&self, way: RestartMode) -> bool {
        match way {
            RestartMode::Through => self.before.is_none(),
            RestartMode::Killed => self.before.is_some_and(|percent| MIDDLE.contains(&percent)),
            RestartMode::Held => self.before == Some(0.0),
        }
    }
}

impl RestartFigures {
    fn row(&self, way: RestartMode) -> impl Iterator<Item = &RestartSample> {
        let row = RestartMode::ALL.iter().position(|one| *one == way).and_then(|at| self.rows.get(at));
        row.into_iter().flat_map(|row| row.samples.iter().flatten())
    }

    fn all(&self) -> impl Iterator<Item = (RestartMode, &RestartSample)> {
        RestartMode::ALL.into_iter().flat_map(|way| self.row(way).map(move |sample| (way, sample)))
    }

    fn lines(&self) -> ReportLines {
        let by_through = |figure: fn(&RestartSample) -> Option<f64>| {
            let others = self.rows.first().into_iter().flat_map(|first| {
                self.rows.iter().skip(1).map(|row| format!("{}: {}", row.name, cell(&quotients(row, first, figure), 2)))
            });
            others.collect::<Vec<_>>().join("; ")
        };
        let is_whole = self.all().all(|(_, sample)| sample.arrived == sample.expected);
        let missing = self.all().map(|(_, sample)| sample.expected - sample.arrived.min(sample.expected)).max();
        let lost: u64 = self.all().map(|(_, sample)| sample.lost).sum();
        let unexplained = |of: fn(&RestartSample) -> Again| -> u64 {
            self.all().map(|(way, sample)| of(sample).unexplained(way)).sum()
        };
        let (twice, unrecorded) = (unexplained(|sample| sample.twice), unexplained(|sample| sample.unrecorded));
        let by_the_kill = |what: &str, of: fn(&RestartSample) -> Again| {
            let all = || self.row(RestartMode::Killed).map(of);
            let (most, oldest) =
                (all().map(|again| again.count).max(), all().filter_map(|again| again.oldest_us).max());
            ReportLine::must(
                format!("{what} after a kill in the middle: only what had come at most 500 ms before it"),
                format!("{} at most, {:.0} ms", most.unwrap_or(0), oldest.map_or(0.0, |us| 1e3 * micros(us))),
                oldest.is_none_or(|us| us <= REPEATED_MAX_US),
            )
        };
        let in_time = self.all().all(|(way, sample)| sample.is_killed_in_time(way));
        ReportLines(vec![
            ReportLine::plain("time by that of a server not killed", by_through(|sample| sample.all_s)),
            ReportLine::plain("processor time by that", by_through(|sample| Some(sample.cpu_s))),
            ReportLine::plain("the most memory by that", by_through(|sample| Some(count(sample.memory)))),
            ReportLine::must(
                "every live recipient had the list",
                format!("{} had not", missing.unwrap_or(0)),
                is_whole,
            ),
            ReportLine::must(format!("lost of {} recipients: 0", self.recipients), lost.to_string(), lost == 0),
            ReportLine::must("twice without a kill under way: 0", twice.to_string(), twice == 0),
            ReportLine::must(
                "had the list and wait for it, without a kill under way: 0",
                unrecorded.to_string(),
                unrecorded == 0,
            ),
            by_the_kill("twice", |sample| sample.twice),
            by_the_kill("had the list and wait for it", |sample| sample.unrecorded),
            ReportLine::must("the kill came between 10 and 90 % of the arrivals, or before all", "", in_time),
        ])
    }

    /// As tables, and for programs.
    pub(super) fn report(&self, part: ListPart) -> Told {
        let mut out = format!(
            "\n## {}\n\n| {} recipients | all live ones, s | start until ready, s | arrived before the kill, % | CPU, s \
             | memory, MiB | came twice | the same, unanswered before | had it and wait |\n|---|{}\n",
            part.title(),
            self.recipients,
            "---|".repeat(8)
        );
        for row in &self.rows {
            let figure = |digits, value: fn(&RestartSample) -> Option<f64>| cell(&row.rounds(value), digits);
            line(
                &mut out,
                format_args!(
                    "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                    row.name,
                    figure(2, |sample| sample.all_s),
                    figure(3, |sample| sample.ready_s),
                    figure(0, |sample| sample.before),
                    figure(2, |sample| Some(sample.cpu_s)),
                    figure(0, |sample| Some(count(sample.memory >> 20))),
                    figure(0, |sample| Some(count(sample.twice.count))),
                    figure(0, |sample| Some(count(sample.unanswered as u64))),
                    figure(0, |sample| Some(count(sample.unrecorded.count))),
                ),
            );
        }
        let lines = self.lines();
        out.push_str(&lines.markdown(&format!("{}: beside each other", part.title())).replace("\n## ", "\n### "));
        let samples = |row: &Row<RestartSample>| -> Value {
            let all = row.samples.iter().flatten().map(RestartSample::json);
            json!({ "name": row.name, "samples": all.collect::<Vec<_>>() })
        };
        let rows: Vec<Value> = self.rows.iter().map(samples).collect();
        let value = json!({ "part": part.title(), "recipients": self.recipients, "rows": rows });
        Told { text: out, value, broken: lines.broken() }
    }
}

impl RestartSample {
    fn json(&self) -> Value {
        json!({
            "all_seconds": self.all_s, "ready_seconds": self.ready_s, "percent_before_kill": self.before,
            "cpu_seconds": self.cpu_s, "memory_max": self.memory, "arrived": self.arrived, "expected": self.expected,
            "lost": self.lost, "unanswered": self.unanswered,
            "twice": self.twice.count, "oldest_twice_us": self.twice.oldest_us, "twice_anew": self.twice.anew,
            "unrecorded": self.unrecorded.count, "oldest_unrecorded_us": self.unrecorded.oldest_us,
            "unrecorded_anew": self.unrecorded.anew,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(change: impl FnOnce(&mut [RestartSample; 3])) -> RestartFigures {
        let one = RestartSample {
            all_s: Some(2.0),
            cpu_s: 1.0,
            memory: 100,
            arrived: 9,
            expected: 9,
            ..RestartSample::default()
        };
        let again = Again { count: 4, oldest_us: Some(REPEATED_MAX_US), anew: 0 };
        let killed =
            RestartSample { all_s: Some(3.0), before: Some(50.0), twice: again, unrecorded: again, ..one.clone() };
        let held = RestartSample { before: Some(0.0), ..one.clone() };
        let mut samples = [one, killed, held];
        change(&mut samples);
        let row = |(way, sample): (RestartMode, RestartSample)| {
            let mut row = Row::new(way.text());
            row.add(Ok(sample));
            row
        };
        RestartFigures { recipients: 10, rows: RestartMode::ALL.into_iter().zip(samples).map(row).collect() }
    }

    #[test]
    fn a_loss_or_an_old_double_makes_it_fail() {
        let broken = |change: fn(&mut [RestartSample; 3])| figures(change).lines().broken().len();
        assert_eq!(broken(|_| {}), 0);
        assert_eq!(broken(|samples| samples[1].lost = 1), 1);
        assert_eq!(broken(|samples| samples[2].arrived = 8), 1);
        let both: [fn(&mut RestartSample) -> &mut Again; 2] =
            [|sample| &mut sample.twice, |sample| &mut sample.unrecorded];
        for again in both {
            let broken = |change: &dyn Fn(&mut [RestartSample; 3])| figures(change).lines().broken().len();
            assert_eq!(broken(&|samples| again(&mut samples[0]).count = 1), 1);
            assert_eq!(broken(&|samples| again(&mut samples[2]).count = 1), 1);
            // A delivery whose result the killed server lost is sent again, or will be.
            assert_eq!(broken(&|samples| again(&mut samples[1]).count = 5), 0);
            assert_eq!(broken(&|samples| again(&mut samples[1]).oldest_us = Some(REPEATED_MAX_US + 1)), 1);
            assert_eq!(broken(&|samples| again(&mut samples[1]).anew = 1), 1);
        }
        // A kill before or after everything shows nothing.
        assert_eq!(broken(|samples| samples[1].before = Some(100.0)), 1);
        assert_eq!(broken(|samples| samples[2].before = Some(3.0)), 1);
    }

    #[test]
    fn what_comes_again_is_judged_by_when_it_came_first() {
        let of = |first: &[u64], kill| {
            let Again { count, oldest_us, anew } = Again::new(first, kill);
            (count, oldest_us, anew)
        };
        assert_eq!(of(&[], Some((50, 70))), (0, None, 0));
        assert_eq!(of(&[5, 40], None), (2, None, 0));
        // Answered before the kill, while no server was there, and by the next one.
        assert_eq!(of(&[40, 60, 71], Some((50, 70))), (3, Some(10), 1));
    }

    #[test]
    fn ratios_are_by_the_server_that_is_not_killed() {
        let told = figures(|_| {}).report(ListPart::Restart);
        assert!(
            told.text.contains("killed in the middle: 1.50 [1.50–1.50]; killed while all is held: 1.00"),
            "{}",
            told.text
        );
        assert_eq!(told.value["rows"][1]["samples"][0]["twice"], 4);
    }
}
