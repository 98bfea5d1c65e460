//! `kill -9` of a relay under storms, with a ledger at both ends.
//!
//! Storms bring mail to `mailrace serve`, which passes it on to a receiver in this process. The storms' clients write
//! each 250 to their ledgers, and the receiver records arrivals. The server is killed while mail comes in, goes out and
//! is settled, and started again on what is left. Now and then, and at the end, it is given the time to pass everything
//! on, and the ends are held against each other ([`books`]): nothing acknowledged may be missing, and a message that
//! arrived twice must have been answered just before a kill.
//!
//! With a filter ([`scanner`]) every arrival must be a message that it let pass: before the 250, or after it from the
//! spool, where the kill comes between acceptance, verdict, changes and delivery.
//!
//! As with `kill`, the page cache survives: a missing sync cannot be seen here. The controls lose and repeat mail in
//! ways that need no broken server: its queue is taken away, or an older one put back.

mod books;
pub(crate) mod power;
mod scanner;

use crate::clock;
use crate::crash::host::{self, Stop};
use crate::crash::mta::{Mta, MtaFilter, What, generation_of};
use crate::crash::random::Random;
use crate::crash::report::{CrashCase, CrashReport};
use crate::crash::scene::{SESSIONS, Scene};
use crate::crash::{Context, FilterPlacement};
use crate::receiver::{Manners, Receiver};
use crate::storm;
use books::{Books, End, Passage};
use scanner::WitnessScanner;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Kills of a short run.
pub(crate) const SHORT: u64 = 12;
/// A long run ends after this time, however many kills it has had; it says how many.
const LONGEST: Duration = Duration::from_secs(900);
/// A server that is to pass everything on has lost the rest when nothing arrives for so long; a control is not waited
/// for as long.
const STALLED: (Duration, Duration) = (Duration::from_secs(90), Duration::from_secs(10));
/// After the last arrival everything is settled when nothing else comes for so long.
const QUIET: Duration = Duration::from_millis(500);
/// How often the receiver is asked.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// A delay of the receiver with which a queue builds up.
const SLOW: Duration = Duration::from_secs(2);

/// Questions to a filter of which one has no answer, under storms.
const FILTER_FAILS_EVERY: u64 = 50;

/// Runs the proof and its controls.
pub(crate) fn run(context: &Context, kills: u64, report: &mut CrashReport) {
    if let Some(filters) = context.filters {
        let name = format!("mailrace serve with a filter {}, between storms and a receiver", filters.word());
        let mut proof = CrashCase::proof("relay", name);
        let result = kill_again_and_again(context, &mut proof, kills);
        report.take(proof, result);
        let mut unasked = CrashCase::control("relay", "a filter that is not asked", |findings| findings.unscreened);
        let result = without_asking_its_filter(context, &mut unasked);
        return report.take(unasked, result);
    }
    let mut proof = CrashCase::proof("relay", "mailrace serve between storms and a receiver");
    let result = kill_again_and_again(context, &mut proof, kills);
    report.take(proof, result);

    let mut forged =
        CrashCase::control("relay", "a forged line in the ledger", |findings| u64::from(findings.lost == 1));
    let result = forge(context, &mut forged);
    report.take(forged, result);

    let all =
        |findings: &crate::crash::Findings| u64::from(findings.lost > 0 && findings.lost == findings.acknowledged);
    let mut sink = CrashCase::control("relay", "mailrace sink, which passes nothing on", all);
    let result = sink_instead(context, &mut sink);
    report.take(sink, result);

    let mut gone = CrashCase::control("relay", "the queue taken away after a kill", |findings| findings.lost);
    let result = without_its_queue(context, &mut gone);
    report.take(gone, result);

    let mut back = CrashCase::control("relay", "an older queue put back", |findings| findings.resurrected);
    let result = with_an_old_queue(context, &mut back);
    report.take(back, result);
}

fn kill_again_and_again(context: &Context, case: &mut CrashCase, kills: u64) -> Result<(), Stop> {
    let mut stage = Stage::new(context, STALLED.0)?;
    let mut random = Random::new(context.seed);
    let end = clock::now() + LONGEST;
    while case.crashes < kills && clock::now() < end {
        stage.receiver.behave(manners(&mut random));
        // One in eight dies while it starts, from the spool that the last one left.
        if case.crashes > 0 && random.percent(12) {
            let server = stage.start()?;
            clock::pause(Duration::from_millis(random.between(1, 60)));
            stage.kill(server)?;
        } else {
            stage.storm_and_kill(&mut random)?;
        }
        stage.scene.complaints(case);
        let is_last = case.crashes + 1 >= kills || clock::now() >= end;
        if !is_last && random.percent(80) {
            case.crashes += 1;
            continue;
        }
        let server = stage.drain()?;
        if is_last || random.percent(50) {
            stage.end(server)?;
        } else {
            // From now on no result is so fresh that its message may come again.
            stage.wait_for_quiet(books::WINDOW);
            stage.kill(server)?;
        }
        if is_last {
            stage.nothing_comes_back(case)?;
        }
        stage.scene.complaints(case);
        if case.count(stage.books.check()) {
            break;
        }
    }
    case.figures.extend(stage.books.figures());
    case.figures.extend(stage.scanner.as_ref().map(|scanner| ("screened", scanner.passed())));
    stage.scene.leave();
    Ok(())
}

/// The configuration has the filter, and the listener does not name it.
fn without_asking_its_filter(context: &Context, case: &mut CrashCase) -> Result<(), Stop> {
    let mut stage = Stage::new(context, STALLED.1)?;
    stage.is_asked = false;
    stage.some_storm()?;
    stage.read_ledgers()?;
    let server = stage.drain()?;
    stage.end(server)?;
    case.count(stage.books.check());
    stage.scene.leave();
    Ok(())
}

/// A line that no storm wrote: one message is missing then.
fn forge(context: &Context, case: &mut CrashCase) -> Result<(), Stop> {
    let mut stage = Stage::new(context, STALLED.1)?;
    stage.some_storm()?;
    stage.scene.forge("18446744073709551615 0ABDrxS0241664 1\n")?;
    stage.read_ledgers()?;
    let server = stage.drain()?;
    stage.end(server)?;
    case.count(stage.books.check());
    stage.scene.leave();
    Ok(())
}

fn sink_instead(context: &Context, case: &mut CrashCase) -> Result<(), Stop> {
    let mut stage = Stage::new(context, STALLED.1)?;
    stage.is_sink = true;
    stage.some_storm()?;
    stage.read_ledgers()?;
    let server = stage.drain()?;
    stage.kill(server)?;
    case.count(stage.books.check());
    stage.scene.leave();
    Ok(())
}

/// Between a kill and the restart the spool disappears, with the messages that were not passed on yet.
fn without_its_queue(context: &Context, case: &mut CrashCase) -> Result<(), Stop> {
    let mut stage = Stage::new(context, STALLED.1)?;
    stage.keeps_mail = true;
    stage.some_storm()?;
    stage.keeps_mail = false;
    stage.read_ledgers()?;
    remove(&stage.scene.spool.path)?;
    let server = stage.drain()?;
    stage.end(server)?;
    case.count(stage.books.check());
    stage.scene.leave();
    Ok(())
}

/// Everything is passed on and settled; then the server finds the spool as it was before.
fn with_an_old_queue(context: &Context, case: &mut CrashCase) -> Result<(), Stop> {
    let mut stage = Stage::new(context, STALLED.1)?;
    stage.keeps_mail = true;
    stage.some_storm()?;
    stage.keeps_mail = false;
    stage.read_ledgers()?;
    let (spool, old) = (stage.scene.spool.path.clone(), stage.scene.dir.join("old"));
    copy(&spool, &old)?;
    let server = stage.drain()?;
    stage.end(server)?;
    remove(&spool)?;
    copy(&old, &spool)?;
    let server = stage.start()?;
    server.ready()?;
    stage.wait_for_quiet(STALLED.1);
    stage.end(server)?;
    case.count(stage.books.check());
    stage.scene.leave();
    Ok(())
}

fn manners(random: &mut Random) -> Manners {
    let chunking = random.percent(50);
    let delay = Duration::from_millis(match random.below(10) {
        0..6 => 0,
        6..8 => random.between(1, 10),
        _ => random.between(10, 100),
    });
    Manners { chunking, delay }
}

/// A server that is started again and again, between storms and a receiver.
struct Stage {
    scene: Scene,
    receiver: Receiver,
    /// The filter, and when it is asked.
    scanner: Option<WitnessScanner>,
    when: &'static str,
    is_asked: bool,
    books: Books,
    /// The running or last start of the server; the first is 1.
    generation: u32,
    /// The zero of all times in the books.
    start: Instant,
    stalled: Duration,
    is_sink: bool,
    /// It accepts mail and passes nothing on, so that all of it is in the queue.
    keeps_mail: bool,
}

impl Stage {
    fn new(context: &Context, stalled: Duration) -> Result<Self, Stop> {
        let receiver =
            Receiver::start(true, Manners::default()).map_err(|error| Stop::broken("starting the receiver", error))?;
        // A message of each session may be on its way when the kill comes; two storms have a name each.
        let books = Books::new(u64::from(SESSIONS.0.max(SESSIONS.1)));
        let scene = Scene::new(context, "relay")?;
        let scanner = context.filters.map(|_| WitnessScanner::start()).transpose();
        let scanner = scanner.map_err(|error| Stop::broken("starting the scanner", error))?;
        let when = context.filters.map_or("", FilterPlacement::word);
        Ok(Self {
            scene,
            receiver,
            scanner,
            when,
            is_asked: true,
            books,
            generation: 0,
            start: clock::now(),
            stalled,
            is_sink: false,
            keeps_mail: false,
        })
    }

    /// Returns the next kind of start.
    fn next(&mut self) -> What {
        self.generation += 1;
        if self.is_sink {
            return What::Sink;
        }
        if self.keeps_mail {
            return What::Serve;
        }
        // One kind changes messages, the other does not; a message that waits may meet both.
        let kind = if self.generation.is_multiple_of(2) { "clamd" } else { "spamd" };
        let (when, is_asked) = (self.when, self.is_asked);
        let filter = self.scanner.as_ref().map(|scanner| MtaFilter { kind, at: scanner.at(), when, is_asked });
        What::Relay { to: self.receiver.at(), generation: self.generation, filter }
    }

    fn start(&mut self) -> Result<Mta, Stop> {
        let what = self.next();
        self.scene.start(what)
    }

    /// Kills a server, and records its deliveries.
    fn kill(&mut self, server: Mta) -> Result<(), Stop> {
        let at = clock::now();
        server.kill();
        self.killed(at)
    }

    /// Records a power cut before which only these messages were acknowledged, and the deliveries until then. Those
    /// that the server took between the cut and its end may arrive.
    fn cut(&mut self, at: Instant, promised: &HashMap<String, HashSet<u64>>) -> Result<(), Stop> {
        self.books.ended(self.generation, End::Killed(at.duration_since(self.start)));
        for (run, ledger) in self.scene.ledgers.drain(..) {
            let lines = storm::acknowledged(&ledger).map_err(|error| Stop::broken("reading a ledger", error))?;
            let is_promised = |seq: &u64| promised.get(&run).is_some_and(|promised| promised.contains(seq));
            let (must, may): (Vec<u64>, Vec<u64>) = lines.iter().map(|line| line.seq).partition(is_promised);
            self.books.promise(&run, must.into_iter());
            self.books.excuse(&run, may.into_iter());
            drop(fs::remove_file(ledger));
        }
        self.arrivals();
        Ok(())
    }

    fn killed(&mut self, at: Instant) -> Result<(), Stop> {
        self.books.ended(self.generation, End::Killed(at.duration_since(self.start)));
        self.read_ledgers()?;
        self.arrivals();
        Ok(())
    }

    /// Ends a server in good order: all it has done is durable then.
    fn end(&mut self, server: Mta) -> Result<(), Stop> {
        server.end()?;
        self.books.ended(self.generation, End::Orderly);
        self.arrivals();
        Ok(())
    }

    fn storm_and_kill(&mut self, random: &mut Random) -> Result<(), Stop> {
        self.fail_filter_every(FILTER_FAILS_EVERY);
        let what = self.next();
        let at = self.scene.storm_and_kill(what, random)?;
        self.killed(at)
    }

    fn fail_filter_every(&self, questions: u64) {
        if let Some(scanner) = &self.scanner {
            scanner.fail_every(questions);
        }
    }

    /// Storms and kills until something has been acknowledged; its ledgers are left to be read, and perhaps forged.
    fn some_storm(&mut self) -> Result<(), Stop> {
        let mut random = Random::new(self.scene.seed);
        while self.scene.acknowledged == 0 {
            let what = self.next();
            let at = self.scene.storm_and_kill(what, &mut random)?;
            self.books.ended(self.generation, End::Killed(at.duration_since(self.start)));
        }
        Ok(())
    }

    /// Enters what the storms since the last time saw acknowledged. Comes before their arrivals are entered.
    fn read_ledgers(&mut self) -> Result<(), Stop> {
        for (run, ledger) in self.scene.ledgers.drain(..) {
            let lines = storm::acknowledged(&ledger).map_err(|error| Stop::broken("reading a ledger", error))?;
            self.books.promise(&run, lines.iter().map(|line| line.seq));
            drop(fs::remove_file(ledger));
        }
        Ok(())
    }

    /// Records the arrivals, and returns whether there were any.
    fn arrivals(&mut self) -> bool {
        let arrivals = self.receiver.arrivals();
        for arrival in &arrivals {
            let has_passed =
                |scanner: &WitnessScanner| arrival.what.as_ref().is_ok_and(|what| scanner.has_passed(what));
            self.books.arrived(&Passage {
                what: &arrival.what,
                recipients: &arrival.recipients,
                is_screened: self.scanner.as_ref().is_none_or(has_passed),
                generation: generation_of(&arrival.hello),
                at: arrival.at.saturating_duration_since(self.start),
            });
        }
        !arrivals.is_empty()
    }

    /// Starts a server and lets it pass on its messages. It is still running then.
    fn drain(&mut self) -> Result<Mta, Stop> {
        self.receiver.behave(Manners { chunking: true, delay: Duration::ZERO });
        self.fail_filter_every(0);
        let server = self.start()?;
        server.ready()?;
        let mut last = clock::now();
        while self.books.missing() > 0 && clock::now().duration_since(last) < self.stalled {
            clock::pause(ASK_EVERY);
            if self.arrivals() {
                last = clock::now();
            }
        }
        self.wait_for_quiet(QUIET);
        Ok(server)
    }

    /// Waits until nothing has arrived for so long.
    fn wait_for_quiet(&mut self, quiet: Duration) {
        let mut last = clock::now();
        while clock::now().duration_since(last) < quiet {
            clock::pause(ASK_EVERY);
            if self.arrivals() {
                last = clock::now();
            }
        }
    }

    /// After a good end nothing may be left: neither in the spool, nor for the next start to send.
    fn nothing_comes_back(&mut self, case: &mut CrashCase) -> Result<(), Stop> {
        let left = self.left()?;
        if left > 0 && self.books.missing() == 0 {
            case.violation(format!("everything arrived, and the spool still has {left} messages"));
        }
        let server = self.start()?;
        server.ready()?;
        self.wait_for_quiet(QUIET);
        self.end(server)
    }

    /// Messages in the spool of a server that has ended.
    fn left(&self) -> Result<u64, Stop> {
        let program = self.scene.mailrace.to_string_lossy();
        let words = [OsStr::new("spool"), OsStr::new("stats"), OsStr::new("--json"), self.scene.spool.path.as_os_str()];
        let text = host::run(&program, words)?;
        let stats = serde_json::from_str::<serde_json::Value>(&text);
        let stats = stats.map_err(|error| Stop::broken("reading the statistics of the spool", error))?;
        let messages = stats.get("messages").and_then(serde_json::Value::as_u64);
        messages.ok_or_else(|| Stop::Broken("the statistics of the spool have no messages".to_owned()))
    }
}

fn remove(dir: &Path) -> Result<(), Stop> {
    fs::remove_dir_all(dir).map_err(|error| Stop::broken("taking the spool away", error))
}

/// Copies a directory with all below it.
fn copy(from: &Path, to: &Path) -> Result<(), Stop> {
    let told = |error| Stop::broken("copying the spool", error);
    let mut left: Vec<(PathBuf, PathBuf)> = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = left.pop() {
        fs::create_dir_all(&to).map_err(told)?;
        for entry in fs::read_dir(&from).map_err(told)? {
            let entry = entry.map_err(told)?;
            let copy = to.join(entry.file_name());
            if entry.file_type().map_err(told)?.is_dir() {
                left.push((entry.path(), copy));
            } else {
                fs::copy(entry.path(), copy).map_err(told)?;
            }
        }
    }
    Ok(())
}
