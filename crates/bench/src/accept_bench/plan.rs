//! Which samples are taken, in which order.
//!
//! Within a round the contenders take turns, and the first one changes from round to round, so that heat or a slow
//! phase hits each of them in turn. A contender that cannot run is left out with its reason and not asked again.

use super::clients::{AcceptSample, LoadClient, sample};
use super::report::{AcceptReport, AcceptTable};
use super::{AcceptBenchArguments, AcceptPart, idle};
use crate::machine::{self, Machine, say};
use crate::side_by_side::figures::Row;
use crate::side_by_side::servers::{RunDirectory, RunningServer, ServerKind, Site, Task, beside, peer};
use crate::storm::{self, Plan};
use std::fs;
use std::io::Write as _;
use std::time::Duration;

/// Sessions of the storm at twice the capacity.
const CROWD: u32 = 400;

/// A running benchmark.
struct AcceptBench<'a> {
    arguments: &'a AcceptBenchArguments,
    site: Site,
    rounds: usize,
    seconds: f64,
    report: AcceptReport,
    /// Capacity with a connection for each message, as the part "sink" found it.
    capacity: Option<f64>,
}

/// Takes all samples, prints and writes the report.
///
/// # Errors
/// Why nothing could be measured, or where the report could not be written.
pub(super) fn run(arguments: &AcceptBenchArguments) -> Result<(), String> {
    let work = RunDirectory::new(&arguments.dir)?;
    let beside = beside()?;
    let mailrace = arguments.mailrace.clone().unwrap_or_else(|| beside.join("mailrace"));
    let site = Site::new(mailrace, arguments.peers.clone(), &work, arguments.memory.clone())?;
    let site = site.with_before(arguments.before.clone())?;
    let report = AcceptReport {
        machine: Machine::look(),
        file_system: machine::file_system(&arguments.dir),
        tables: Vec::new(),
        facts: Vec::new(),
        left_out: Vec::new(),
    };
    let (rounds, seconds) =
        if arguments.quick { (1, 0.3) } else { (arguments.rounds.max(1), arguments.seconds.max(0.1)) };
    let mut bench = AcceptBench { arguments, site, rounds, seconds, report, capacity: None };
    for part in &arguments.parts {
        bench.part(*part);
    }
    let report = bench.report;
    let to = arguments.json.clone().unwrap_or_else(|| beside.join("accept.json"));
    fs::write(&to, format!("{:#}\n", report.json())).map_err(|e| format!("{}: {e}", to.display()))?;
    std::io::stdout().lock().write_all(report.markdown().as_bytes()).map_err(|e| format!("standard output: {e}"))?;
    say(&format!("accept: all samples are in {}", to.display()));
    Ok(())
}

impl AcceptBench<'_> {
    fn part(&mut self, part: AcceptPart) {
        match part {
            AcceptPart::Sink => self.beside_sink(),
            AcceptPart::First => {
                let (sessions, bytes) = (100, 4096);
                let load = LoadClient::Storm { sessions, bytes, new_connection: false, tls: false, split_dot: false };
                let kinds = [ServerKind::Serve, ServerKind::Sink];
                self.table("The first storm of a fresh spool beside a sink that stores nothing", load, &kinds);
            }
            AcceptPart::Memory => {
                let load = storm(100, 4096);
                self.table("Disk beside memory", load, &[ServerKind::Serve, ServerKind::ServeMemory]);
            }
            AcceptPart::Peers => self.beside_peers(),
            AcceptPart::Single => {
                let load =
                    LoadClient::Storm { sessions: 1, bytes: 4096, new_connection: false, tls: false, split_dot: true };
                let kinds = self.kinds_with_peers(&[ServerKind::Serve, ServerKind::Sink]);
                self.table("One connection, the dot by itself", load, &kinds);
                self.milliseconds();
            }
            AcceptPart::Idle => self.idle(),
            AcceptPart::Overload => self.overload(),
            AcceptPart::Before => {
                for (sessions, new_connection) in [(20, false), (100, false), (20, true)] {
                    let load =
                        LoadClient::Storm { sessions, bytes: 4096, new_connection, tls: false, split_dot: false };
                    self.table("Beside another build", load, &[ServerKind::Serve, ServerKind::Before]);
                }
            }
        }
    }

    fn beside_sink(&mut self) {
        let kinds = [ServerKind::Serve, ServerKind::Sink];
        for tls in [false, true] {
            for new_connection in [false, true] {
                for bytes in [4096, 51_200] {
                    for sessions in [20, 100] {
                        let load = LoadClient::Storm { sessions, bytes, new_connection, tls, split_dot: false };
                        self.table("Durable beside a sink that stores nothing", load, &kinds);
                    }
                }
            }
        }
    }

    fn beside_peers(&mut self) {
        let kinds = self.kinds_with_peers(&[ServerKind::Serve]);
        let source = |new_connection| LoadClient::Source { sessions: 20, bytes: 4096, new_connection };
        for load in [source(false), source(true), LoadClient::Postal { threads: 20, kilobytes: 4 }] {
            self.table("Beside other servers, queue only (OpenSMTPD does not sync)", load, &kinds);
        }
    }

    fn kinds_with_peers(&mut self, ours: &[ServerKind]) -> Vec<ServerKind> {
        let names = match peer(&self.site, &["names"]) {
            Ok(names) => names,
            Err(why) => {
                self.report.left_out.push(format!("other servers: {why}"));
                String::new()
            }
        };
        ours.iter().cloned().chain(names.split_whitespace().map(|name| ServerKind::Peer(name.to_owned()))).collect()
    }

    /// Measures all contenders under one load.
    fn table(&mut self, part: &'static str, load: LoadClient, kinds: &[ServerKind]) {
        say(&format!("accept: {part}: {}", load.name()));
        let mut rows: Vec<Row<_>> = kinds.iter().map(|kind| Row::new(kind.name())).collect();
        for round in 0..self.rounds {
            for turn in 0..kinds.len() {
                let at = (turn + round) % kinds.len();
                let (Some(kind), Some(row)) = (kinds.get(at), rows.get_mut(at)) else { continue };
                let is_out = row.samples.last().is_some_and(Option::is_none);
                let taken = if is_out {
                    Err("not asked again".to_owned())
                } else {
                    sample(&self.site, kind, load, (self.arguments.settle, self.seconds))
                };
                if is_out {
                    row.samples.push(None);
                } else {
                    row.add(taken);
                }
            }
        }
        let is_overload_case = load
            == LoadClient::Storm { sessions: 100, bytes: 4096, new_connection: true, tls: false, split_dot: false };
        if is_overload_case && let Some(row) = rows.first() {
            self.capacity = best(&row.samples);
        }
        self.report.tables.push(AcceptTable { part, load: load.name(), rows });
    }

    /// The rates of the last table as times.
    fn milliseconds(&mut self) {
        let Some(table) = self.report.tables.last() else { return };
        let facts = table.rows.iter().filter_map(|row| {
            let rate = best(&row.samples)?;
            Some((table.part, row.name.clone(), format!("{:.2} ms for each message", 1000.0 / rate)))
        });
        self.report.facts.extend(facts.collect::<Vec<_>>());
    }

    fn idle(&mut self) {
        let wanted =
            if self.arguments.quick { 500.min(self.arguments.connections) } else { self.arguments.connections };
        say(&format!("accept: {wanted} idle connections"));
        match idle::measure(&self.site, wanted) {
            Ok(seen) => {
                #[expect(clippy::cast_precision_loss, reason = "sizes for a person")]
                let (each, all) = (seen.bytes_each as f64 / 1024.0, seen.bytes_all as f64 / f64::from(1 << 20));
                let figure =
                    format!("{} connections, {each:.1} KiB for each, {all:.0} MiB resident in all", seen.connections);
                self.report.facts.push(("Idle connections", "mailrace serve".to_owned(), figure));
            }
            Err(why) => self.report.left_out.push(format!("idle connections: {why}")),
        }
    }

    fn overload(&mut self) {
        let seconds = if self.arguments.quick { 5.0 } else { self.arguments.overload_seconds };
        let load = LoadClient::Storm { sessions: 100, bytes: 4096, new_connection: true, tls: false, split_dot: false };
        let capacity = match self.capacity.map_or_else(
            || {
                sample(&self.site, &ServerKind::Serve, load, (self.arguments.settle, self.seconds))
                    .map(|sample| sample.per_second)
            },
            Ok,
        ) {
            Ok(capacity) => capacity,
            Err(why) => return self.report.left_out.push(format!("overload: {why}")),
        };
        say(&format!("accept: {seconds} s at twice the capacity of {capacity:.0} messages/s"));
        if let Err(why) = self.twice(capacity, seconds) {
            self.report.left_out.push(format!("overload: {why}"));
        }
    }

    fn twice(&mut self, capacity: f64, seconds: f64) -> Result<(), String> {
        let server = RunningServer::start(&self.site, &ServerKind::Serve, Task::Keep { tls: false })?;
        let plan = Plan {
            messages: None,
            time: Some(Duration::from_secs_f64(seconds)),
            sessions: CROWD,
            new_connection: true,
            rate: Some(2.0 * capacity),
            sources: 200,
            ..Plan::new(server.at)
        };
        let storm = storm::run(&plan, &mut |_| {}).map_err(|e| e.to_string())?;
        let kept = server.stop_and_count()?.ok_or("the server has no spool")?;
        #[expect(clippy::cast_precision_loss, reason = "times for a person")]
        let ms = |us: u64| us as f64 / 1000.0;
        let lost = storm.accepted.saturating_sub(kept);
        let verdict = if lost == 0 { String::new() } else { format!(", {lost} ACKNOWLEDGED MESSAGES LOST") };
        let lines = [
            ("offered", format!("{:.0} messages/s by {CROWD} sessions, a connection for each", 2.0 * capacity)),
            ("accepted", format!("{} ({:.0}/s); {kept} kept{verdict}", storm.accepted, storm.per_second())),
            ("connections refused", format!("{}; failed otherwise {}", storm.connects_refused, storm.connects_failed)),
            ("refused, failed, unanswered", format!("{}, {}, {}", storm.refused, storm.failed, storm.unanswered)),
            ("final dot to 250", format!("p99 {:.1} ms, max {:.1} ms", ms(storm.latency.p99), ms(storm.latency.max))),
            (
                "connect to greeting",
                format!("p99 {:.1} ms, max {:.1} ms", ms(storm.greeting.p99), ms(storm.greeting.max)),
            ),
        ];
        let part = "A storm at twice the capacity";
        self.report.facts.extend(lines.into_iter().map(|(name, figure)| (part, name.to_owned(), figure)));
        for (text, count) in storm.errors.iter().take(5) {
            self.report.facts.push((part, "error".to_owned(), format!("{count} x {}", text.escape_debug())));
        }
        Ok(())
    }
}

fn storm(sessions: u32, bytes: usize) -> LoadClient {
    LoadClient::Storm { sessions, bytes, new_connection: false, tls: false, split_dot: false }
}

/// The median rate of some samples.
fn best(samples: &[Option<AcceptSample>]) -> Option<f64> {
    let mut rates: Vec<f64> = samples.iter().flatten().map(|sample| sample.per_second).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}
