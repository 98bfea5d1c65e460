//! One sample: a simulated internet, a server with an empty queue, messages to all of its list in a row; the clock runs
//! from the first connection of the submitter until every live recipient has every message, or until patience ends.
//!
//! Submitter, server and internet share the machine. Its processor time is read at both ends.

use super::internet::{InternetProcess, ProcessSummary};
use super::ledger::Arrivals;
use super::world::World;
use crate::clock;
use crate::machine::say;
use crate::side_by_side::figures::Sampled;
use crate::side_by_side::programs::{machine_ticks, process_memory_max, process_ticks, process_written, seconds};
use crate::side_by_side::servers::{RunningServer, ServerKind, Site, Task};
use crate::storm::{self, Plan, Sizes};
use memmap2::{Advice, MmapMut};
use sim::Taken;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the ledger is read.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// How often a person is told.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// A server whose mail no longer arrives has stopped, or waits for a host that does not answer.
const STALLED: Duration = Duration::from_secs(30);

/// About what a server, an internet and their files take in a sample of ten lists.
const WARM: usize = 256 << 20;
const PAGE: usize = 4_096;

/// The longest wait of the submitter for a reply.
const PATIENCE: Duration = Duration::from_secs(120);

/// The case that is measured.
#[derive(Clone, Debug)]
pub(super) struct ListCase {
    pub(super) name: String,
    pub(super) world: World,
    pub(super) messages: u64,
    pub(super) bytes: usize,
    /// The longest time from the first connection.
    pub(super) longest: Duration,
}

/// The figures of one sample. Times are seconds from the first connection of the submitter.
#[derive(Clone, Debug, Default)]
pub(super) struct ListSample {
    /// The last message had its 250.
    pub(super) accepted_s: Option<f64>,
    /// A share of all arrivals had come.
    pub(super) at_50: Option<f64>,
    pub(super) at_95: Option<f64>,
    pub(super) at_100: Option<f64>,
    /// Arrivals waited for, and arrivals.
    pub(super) live: usize,
    pub(super) arrived: usize,
    /// Arrivals that had come before, and arrivals that were not sent.
    pub(super) twice: u64,
    pub(super) strange: u64,
    pub(super) internet: ProcessSummary,
    /// Processor time: the machine; the server, where it is one process.
    pub(super) machine_s: f64,
    pub(super) server_s: Option<f64>,
    /// The most memory and the bytes written, where the server is one process.
    pub(super) memory: Option<u64>,
    pub(super) written: Option<u64>,
    pub(super) complaint: Option<String>,
}

impl Sampled for ListSample {
    fn rate(&self) -> f64 {
        self.at_100.map_or(0.0, f64::recip)
    }

    fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }
}

/// Messages on their way to a server, from a thread of their own.
pub(super) struct Submission {
    start: Instant,
    pub(super) start_us: u64,
    done: JoinHandle<Result<Option<Instant>, String>>,
}

impl Submission {
    /// Begins to send messages to lists, which take turns.
    pub(super) fn start(plan: Plan) -> Self {
        let (told, accepted) = channel();
        let plan = Plan { told: Some(told), ..plan };
        let (start, start_us) = (clock::now(), clock::unix_us());
        let listener = std::thread::spawn(move || accepted.iter().map(|_| clock::now()).last());
        let done = std::thread::spawn(move || {
            let wanted = plan.messages;
            let report = storm::run(&plan, &mut |_| {}).map_err(|e| e.to_string());
            drop(plan);
            let last = listener.join().map_err(|_| "the listener of the submitter ended in a panic".to_owned())?;
            let report = report?;
            if wanted.is_some_and(|wanted| wanted != report.accepted) {
                let why = report.errors.first().map_or("", |(text, _)| text.as_str());
                return Err(format!(
                    "{} messages were accepted of {wanted:?}: {}",
                    report.accepted,
                    why.escape_debug()
                ));
            }
            Ok(last)
        });
        Self { start, start_us, done }
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.is_finished()
    }

    /// Waits for the end of all sending; false if that does not come.
    pub(super) fn wait(&self) -> bool {
        while !self.is_done() && self.elapsed() < PATIENCE {
            clock::pause(ASK_EVERY / 10);
        }
        self.is_done()
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits for the last 250; seconds from the start.
    ///
    /// # Errors
    /// Not all messages were accepted.
    pub(super) fn end(self) -> Result<f64, String> {
        let last = self.done.join().map_err(|_| "the submitter ended in a panic".to_owned())??;
        Ok(last.map_or(0.0, |last| last.duration_since(self.start).as_secs_f64()))
    }
}

/// A plan for messages of one size over one connection to whole lists.
pub(super) fn submission(to: SocketAddr, run: &str, messages: u64, bytes: usize, lists: Vec<Vec<String>>) -> Plan {
    Plan {
        messages: Some(messages),
        sessions: 1,
        sizes: Sizes { from: bytes, to: bytes },
        pipelining: true,
        lists: Arc::from(lists),
        run: run.to_owned(),
        patience: PATIENCE,
        ..Plan::new(to)
    }
}

/// Follows the ledger until all of `expected` have arrived, or no more is to be expected. `see` sees every delivery.
///
/// # Errors
/// The ledger cannot be read.
pub(super) fn follow(
    internet: &mut InternetProcess,
    tally: &mut Arrivals,
    expected: usize,
    submission: &Submission,
    longest: Duration,
    mut see: impl FnMut(&Taken),
) -> Result<(), String> {
    let mut next_word = TELL_EVERY;
    let (mut before, mut since) = (0, Duration::ZERO);
    loop {
        internet.deliveries(|taken| {
            tally.add(taken);
            see(taken);
        })?;
        let (arrived, now) = (tally.arrived(), submission.elapsed());
        if arrived > before || !submission.is_done() {
            (before, since) = (arrived, now);
        }
        if arrived >= expected || now > longest || now.saturating_sub(since) > STALLED {
            return Ok(());
        }
        if now >= next_word {
            next_word += TELL_EVERY;
            say(&format!("list:   {arrived} of {expected} after {:.0} s", now.as_secs_f64()));
        }
        clock::pause(ASK_EVERY);
    }
}

/// Takes a sample.
///
/// # Errors
/// Why there is no figure.
pub(super) fn sample(site: &Site, kind: &ServerKind, case: &ListCase) -> Result<ListSample, String> {
    warm_memory();
    let mut internet = InternetProcess::start(site, &case.world)?;
    let server = RunningServer::start(site, kind, Task::List)?;
    let people = std::mem::take(&mut internet.people);
    if people.live() != case.world.live() {
        return Err(format!("the internet has {} live recipients, not {}", people.live(), case.world.live()));
    }
    let expected = people.live() * usize::try_from(case.messages).unwrap_or(usize::MAX);
    let mut tally = Arrivals::new("list", people.all.iter().cloned().zip(people.is_live.iter().copied()));
    let plan = submission(server.at, "list", case.messages, case.bytes, vec![people.all]);

    let process = server.process();
    let marks = (machine_ticks(), process.map(process_ticks), process.map(process_written));
    let submission = Submission::start(plan);
    follow(&mut internet, &mut tally, expected, &submission, case.longest, |_| {})?;
    let machine_s = seconds(machine_ticks().saturating_sub(marks.0));
    let server_s = process.zip(marks.1).map(|(pid, before)| seconds(process_ticks(pid).saturating_sub(before)));
    let written = process.zip(marks.2).map(|(pid, before)| process_written(pid).saturating_sub(before));
    let memory = process.map(process_memory_max);
    let elapsed = submission.elapsed().as_secs_f64();
    let start_us = submission.start_us.saturating_sub(internet.start_us);
    // Before the submitter is asked: one that still sends would wait for its patience to end.
    let is_done = submission.is_done();
    drop(server);
    let accepted = submission.end();
    if is_done && let Err(why) = &accepted {
        return Err(why.clone());
    }
    let summary = internet.finish()?;
    internet.deliveries(|taken| tally.add(taken))?;
    let at = |percent| tally.moment(percent, expected).map(|at| micros(at.saturating_sub(start_us)));
    let mut complaints = Vec::new();
    let arrived = tally.arrived();
    if arrived < expected {
        complaints.push(format!("{arrived} of {expected} live recipients had their mail after {elapsed:.0} s"));
    }
    if tally.twice + tally.strange > 0 {
        complaints.push(format!("{} deliveries were made twice, {} are unknown", tally.twice, tally.strange));
    }
    Ok(ListSample {
        accepted_s: accepted.ok(),
        at_50: at(50),
        at_95: at(95),
        at_100: at(100),
        live: expected,
        arrived,
        twice: tally.twice,
        strange: tally.strange,
        internet: summary,
        machine_s,
        server_s,
        memory,
        written,
        complaint: (!complaints.is_empty()).then(|| complaints.join("; ")),
    })
}

/// Makes the machine have free memory at hand: a hypervisor takes back memory that was free for seconds, and its next
/// use costs more processor time than some samples have. If there is no such memory, the figures are only less exact.
fn warm_memory() {
    let Ok(mut block) = MmapMut::map_anon(WARM) else { return };
    // As the server's allocator asks for it.
    if block.advise(Advice::HugePage).is_ok() {
        block.iter_mut().step_by(PAGE).for_each(|octet| *octet = 1);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time")]
pub(super) fn micros(us: u64) -> f64 {
    us as f64 / 1e6
}
