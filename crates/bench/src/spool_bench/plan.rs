//! Which measurements are made, in which order, and what to do when one cannot be made.
//!
//! A part has its place, its loads and its rounds. Within a round the stores take turns at each load, and who begins
//! moves on from load to load and round to round: what heats up or slows down hits each of them in turn.

use std::path::Path;
use std::time::{Duration, Instant};

use super::bodies::Bodies;
use super::load::{Load, Measurement, measure};
use super::machine::{self, Machine};
use super::report::{Report, Row, figure, size};
use super::volume::Volume;
use super::{Arguments, BYTES_MAX, DEVICE, HEADLINE, MEMORY, Part, SLOW, STRAGGLERS, THROUGHPUT, recovery};
use crate::clock;
use crate::engines::{Kind, Room};

/// Size of the private file system, and of the slow disk; both are in memory and take what is written.
const IMAGE_BYTES: u64 = 6 << 30;
/// The flush of the slow disk.
const SLOW_FLUSH: Duration = Duration::from_millis(8);
/// The least warm-up, in seconds: longer than messages are on their way, so that finishing has begun.
const WARM_UP: f64 = 0.6;
/// Rounds of a part at most, whatever the command line says.
const ROUNDS_MAX: usize = 100;

/// Share of the machine used by others from which on a measurement is disturbed.
const DISTURBED: f64 = 0.08;
/// How often a disturbed measurement is made, at most; the least disturbed counts.
const ATTEMPTS: usize = 3;

/// One part, ready to run.
struct Job {
    title: &'static str,
    stores: Vec<Kind>,
    loads: Vec<Load>,
    rounds: usize,
}

/// A running plan.
struct Plan<'a> {
    arguments: &'a Arguments,
    bodies: Bodies,
    begun: Instant,
    report: Report,
    /// Measurements that count although they were disturbed.
    disturbed: usize,
}

/// Makes all measurements that were asked for.
///
/// # Errors
/// Why nothing could be measured at all.
pub(super) fn run(arguments: &Arguments) -> Result<Report, String> {
    let free = machine::free(&arguments.dir);
    if free < BYTES_MAX + (2 << 30) {
        return Err(format!(
            "{}: {} bytes free; the benchmark takes up to {BYTES_MAX} there and leaves 2 GiB; give another --dir",
            arguments.dir.display(),
            free
        ));
    }
    let report = Report {
        machine: Machine::look(),
        file_system: machine::file_system(&arguments.dir),
        rows: Vec::new(),
        remarks: Vec::new(),
        recovery: Vec::new(),
        failed: false,
    };
    let mut plan = Plan { arguments, bodies: Bodies::new(), begun: clock::now(), report, disturbed: 0 };
    for kind in arguments.stores.iter().filter(|kind| !kind.is_built()) {
        plan.remark(format!("{} left out: this program was built without --features engines", kind.name()));
    }
    for part in &arguments.parts {
        if plan.is_over() {
            plan.remark(format!("left out for lack of time: {part:?} and what follows; see --minutes"));
            break;
        }
        plan.part(*part);
    }
    if plan.disturbed > 0 {
        let (disturbed, all) = (plan.disturbed, plan.report.rows.len());
        plan.remark(format!(
            "{disturbed} of {all} measurements were disturbed by other programs and count all the same"
        ));
    }
    Ok(plan.report)
}

impl Plan<'_> {
    fn part(&mut self, part: Part) {
        let memory = self.arguments.memory.clone();
        let dir = self.arguments.dir.clone();
        match part {
            Part::Headline => {
                let job = self.job(HEADLINE, &[64], &[4, 50], 2.0, 5);
                self.on_directory(&job, &dir);
            }
            // The parts before have shown that everything runs.
            Part::Throughput if self.arguments.quick => {}
            Part::Throughput => {
                let (committers, sizes) = (self.arguments.committers.clone(), self.arguments.sizes.clone());
                let job = self.job(THROUGHPUT, &committers, &sizes, 0.7, 3);
                self.on_directory(&job, &dir);
            }
            Part::Memory => {
                let sizes = self.arguments.sizes.clone();
                let job = self.job(MEMORY, &[64], &sizes, 0.8, 1);
                self.on_directory(&job, &memory);
            }
            Part::Device => {
                let sizes = self.arguments.sizes.clone();
                let job = self.job(DEVICE, &[1, 16, 64], &sizes, 1.0, 1);
                match Volume::private_ext4(IMAGE_BYTES) {
                    Ok(volume) => self.on(&job, &volume, 256 << 20),
                    Err(why) => self.remark(format!("\"{DEVICE}\" skipped: {why}")),
                }
            }
            Part::Stragglers => self.stragglers(&dir),
            Part::Slow => self.slow(),
            Part::Recovery => self.recovery(&dir),
        }
    }

    fn stragglers(&mut self, dir: &Path) {
        let mut job = self.job(STRAGGLERS, &[64], &[4, 50], 2.0, 5);
        job.stores.retain(|kind| *kind == Kind::Mailrace);
        job.loads = job
            .loads
            .iter()
            .flat_map(|load| [Load { stragglers: 0, ..*load }, Load { stragglers: 1, ..*load }])
            .collect();
        self.on_directory(&job, dir);
    }

    fn slow(&mut self) {
        let mut job = self.job(SLOW, &[1, 16, 64, 200], &[4], 1.5, 1);
        if self.arguments.quick {
            job.loads.retain(|load| load.committers == 64);
        }
        match Volume::slow_ext4(IMAGE_BYTES, SLOW_FLUSH) {
            Ok(volume) => self.on(&job, &volume, 256 << 20),
            Err(why) => self.remark(format!("\"{SLOW}\" skipped: {why}")),
        }
    }

    fn recovery(&mut self, dir: &Path) {
        if !self.arguments.stores.contains(&Kind::Mailrace) {
            return;
        }
        let messages = if self.arguments.quick { self.arguments.messages.min(20_000) } else { self.arguments.messages };
        let volume = match Volume::directory(dir) {
            Ok(volume) => volume,
            Err(why) => return self.remark(format!("recovery skipped: {why}")),
        };
        match recovery::measure(volume.dir(), messages, &self.bodies) {
            Ok((values, remarks)) => {
                self.report.recovery = values;
                for remark in remarks {
                    self.remark(remark);
                }
            }
            Err(why) => self.failure(format!("recovery: {why}")),
        }
    }

    fn job(&self, title: &'static str, committers: &[usize], sizes: &[usize], seconds: f64, rounds: usize) -> Job {
        let arguments = self.arguments;
        let quick = arguments.quick;
        let seconds = arguments.seconds.unwrap_or(if quick { 0.25 } else { seconds }).clamp(0.05, 600.0);
        let warm_up = Duration::from_secs_f64(if quick { 0.15 } else { WARM_UP.max(seconds / 2.0).min(2.0) });
        let mut loads = Vec::new();
        for size in sizes.iter().filter(|size| !quick || **size <= 50) {
            for committers in committers.iter().filter(|number| !quick || matches!(number, 1 | 64)) {
                loads.push(Load {
                    committers: (*committers).clamp(1, 1_000),
                    body_bytes: (*size).clamp(1, 16 << 10) << 10,
                    stragglers: arguments.stragglers,
                    warm_up,
                    measured: Duration::from_secs_f64(seconds),
                });
            }
        }
        let stores = arguments.stores.iter().copied().filter(|kind| kind.is_built()).collect();
        let rounds = if quick { 1 } else { arguments.rounds.unwrap_or(rounds).clamp(1, ROUNDS_MAX) };
        Job { title, stores, loads, rounds }
    }

    fn on_directory(&mut self, job: &Job, parent: &Path) {
        match Volume::directory(parent) {
            Ok(volume) => self.on(job, &volume, 1 << 30),
            Err(why) => self.remark(format!("\"{}\" skipped: {why}", job.title)),
        }
    }

    fn on(&mut self, job: &Job, volume: &Volume, free_min: u64) {
        let room = Room { bytes_max: BYTES_MAX, free_min };
        let mut stores = job.stores.clone();
        for round in 0..job.rounds {
            for load in &job.loads {
                let turn = usize::from(stores.len() > 1);
                stores.rotate_left(turn);
                for kind in stores.clone() {
                    if self.is_over() {
                        return self.remark(format!(
                            "\"{}\": stopped in round {} for lack of time",
                            job.title,
                            round + 1
                        ));
                    }
                    self.cell(job.title, kind, load, round, volume, room);
                }
            }
        }
    }

    fn cell(&mut self, part: &'static str, kind: Kind, load: &Load, round: usize, volume: &Volume, room: Room) {
        let place = format!("{}, {} committers, {}", kind.name(), load.committers, size(load.body_bytes));
        let mut least: Option<Measurement> = None;
        for _ in 0..ATTEMPTS {
            self.wait_for_quiet();
            match measure(kind, *load, volume, room, &self.bodies) {
                Ok(measurement) => {
                    say(part, round, &place, &measurement);
                    if least.is_none_or(|least| measurement.others < least.others) {
                        least = Some(measurement);
                    }
                    if measurement.others < DISTURBED || self.arguments.patience == 0 || self.is_over() {
                        break;
                    }
                }
                Err(why) => return self.failure(format!("\"{part}\": {place}: {why}")),
            }
        }
        let Some(measurement) = least else { return };
        self.disturbed += usize::from(measurement.others >= DISTURBED);
        let (committers, body_bytes, stragglers) = (load.committers, load.body_bytes, load.stragglers);
        self.report.rows.push(Row { part, kind, committers, body_bytes, stragglers, round, measurement });
    }

    /// Waits until other programs leave the machine alone, or patience is at an end.
    fn wait_for_quiet(&self) {
        const LOOK: Duration = Duration::from_millis(100);
        for _ in 0..self.arguments.patience.saturating_mul(10).min(6_000) {
            let (before, since) = (machine::others_ticks(), clock::now());
            clock::pause(LOOK);
            let ticks = machine::others_ticks().saturating_sub(before);
            if machine::share(ticks, clock::now() - since) < DISTURBED {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        (clock::now() - self.begun).as_secs_f64() > self.arguments.minutes * 60.0
    }

    fn failure(&mut self, text: String) {
        self.report.failed = true;
        self.remark(text);
    }

    fn remark(&mut self, text: String) {
        super::say(&text);
        if !self.report.remarks.contains(&text) {
            self.report.remarks.push(text);
        }
    }
}

fn say(part: &str, round: usize, place: &str, measurement: &Measurement) {
    super::say(&format!(
        "{part}, round {}: {place}: {}/s, {} µs CPU, p50 {} µs, p99 {} µs{}",
        round + 1,
        figure(measurement.messages_per_second),
        figure(measurement.cpu_us),
        figure(measurement.p50_us),
        figure(measurement.p99_us),
        details(measurement),
    ));
}

/// What is worth a remark only where it happens.
fn details(measurement: &Measurement) -> String {
    let mut text = String::new();
    if measurement.segments > 0 {
        text += &format!(", {} segments", measurement.segments);
    }
    if measurement.relocated > 0.0 {
        text += &format!(", {:.2} % moved", measurement.relocated * 100.0);
    }
    if measurement.others >= DISTURBED {
        text += &format!(", others used {:.0} % of the machine", measurement.others * 100.0);
    }
    if measurement.refused > 0 {
        text += &format!(", {} refusals", measurement.refused);
    }
    text
}
