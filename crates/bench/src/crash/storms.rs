//! `kill -9` of the whole server under storms, again and again on one spool.
//!
//! The server is `mailrace serve` in a process of its own, as an operator starts it. Two storms load it, one of small and
//! one of large messages that travel to the spool in chunks; what their clients saw acknowledged stands in ledgers. Then it
//! is killed, and a checker holds the spool against the ledgers. Most of what was found is marked as done, the rest
//! must still be there after the kills to come. Some kills are not followed by a check, so that the server too starts from
//! what a kill left.
//!
//! As with `kill`, the page cache survives: a missing sync cannot be seen here. What is seen is a 250 that is said too early,
//! to the wrong client or for the wrong message, content that mixes, and a message that comes twice.

mod checker;
mod mta;

pub use checker::PostCheckerArguments;
pub(crate) use checker::run as check;

use crate::clock;
use crate::crash::Context;
use crate::crash::children::{Checked, checked};
use crate::crash::host::{self, Stop};
use crate::crash::random::Random;
use crate::crash::report::{Case, Report};
use crate::crash::spools::SpoolArguments;
use crate::storm::{self, Plan, Sizes};
use mta::{Mta, What};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Kills of a short run.
pub(crate) const SHORT: u64 = 12;
/// A long run ends after this time, however many kills it has had; it says how many.
const LONGEST: Duration = Duration::from_secs(900);
/// Sessions with small and with large messages.
const SESSIONS: (u32, u32) = (8, 2);
/// Sizes of small and of large messages. The larger ones are beyond what travels in one piece.
const SIZES: (Sizes, Sizes) = (Sizes { from: 1 << 10, to: 24 << 10 }, Sizes { from: 150 << 10, to: 700 << 10 });
/// Recipients of each message.
const RECIPIENTS: u32 = 2;
/// A storm must not outlast a server that hangs.
const STORM_MAX: Duration = Duration::from_secs(60);

/// Runs the proof and its controls.
pub(crate) fn run(context: &Context, kills: u64, report: &mut Report) {
    let mut proof = Case::proof("server", "mailrace serve under storms");
    let result = kill_again_and_again(context, &mut proof, kills);
    report.take(proof, result);
    let mut forged = Case::control("server", "a forged line in the ledger", |findings| u64::from(findings.lost == 1));
    let result = one_kill(context, &mut forged, What::Serve, Some("18446744073709551615 0ABCD0000x0000 1\n"));
    report.take(forged, result);
    let all =
        |findings: &crate::crash::Findings| u64::from(findings.lost > 0 && findings.lost == findings.acknowledged);
    let mut sink = Case::control("server", "mailrace sink, which keeps nothing", all);
    let result = one_kill(context, &mut sink, What::Sink, None);
    report.take(sink, result);
}

fn kill_again_and_again(context: &Context, case: &mut Case, kills: u64) -> Result<(), Stop> {
    let mut scene = Scene::new(context)?;
    let mut random = Random::new(context.seed);
    let end = clock::now() + LONGEST;
    while case.crashes < kills && clock::now() < end {
        // One in eight dies while it starts, from what the last one left.
        if case.crashes > 0 && random.percent(12) {
            let server = scene.start(What::Serve)?;
            clock::pause(Duration::from_millis(random.between(1, 40)));
            server.kill();
        } else {
            scene.storm_and_kill(What::Serve, &mut random)?;
        }
        scene.complaints(case);
        let is_last = case.crashes + 1 >= kills;
        if !is_last && random.percent(25) {
            case.crashes += 1;
            continue;
        }
        if case.count(scene.check()?) {
            break;
        }
    }
    scene.leave();
    Ok(())
}

/// One storm, one kill, one check, with a line that no storm wrote in the ledger.
fn one_kill(context: &Context, case: &mut Case, what: What, forged: Option<&str>) -> Result<(), Stop> {
    let mut scene = Scene::new(context)?;
    // A moment late enough for something to have been acknowledged.
    let mut random = Random::new(context.seed);
    while scene.acknowledged == 0 {
        scene.storm_and_kill(what, &mut random)?;
    }
    if let (Some(line), Some((_, ledger))) = (forged, scene.ledgers.first()) {
        let mut text = fs::read_to_string(ledger).map_err(|error| Stop::broken("reading a ledger", error))?;
        text.push_str(line);
        fs::write(ledger, text).map_err(|error| Stop::broken("forging a ledger", error))?;
    }
    case.count(scene.check()?);
    scene.leave();
    Ok(())
}

/// A spool, its server's files, and what was promised for it.
struct Scene {
    dir: PathBuf,
    mailrace: PathBuf,
    spool: SpoolArguments,
    /// Names and ledgers of the storms since the last check.
    ledgers: Vec<(String, PathBuf)>,
    /// What earlier checks left in the spool.
    kept: PathBuf,
    memory: PathBuf,
    seed: u64,
    /// Storms so far.
    storms: u64,
    acknowledged: u64,
}

impl Scene {
    fn new(context: &Context) -> Result<Self, Stop> {
        let own = host::own_program("").map(|command| PathBuf::from(command.get_program()))?;
        let mailrace = own.with_file_name("mailrace");
        if !mailrace.is_file() {
            let text = format!("{} is missing; cargo build --release --package mailrace", mailrace.display());
            return Err(Stop::Broken(text));
        }
        let (dir, kept) = context.room("server")?;
        let spool =
            SpoolArguments { segment_bytes: 4 << 20, size_max: 512 << 20, ..SpoolArguments::at(dir.join("spool")) };
        let memory = kept.with_extension("ledgers");
        fs::create_dir_all(&memory).map_err(|error| Stop::broken("making a directory", error))?;
        let (seed, ledgers) = (context.seed, Vec::new());
        Ok(Self { dir, mailrace, spool, ledgers, kept, memory, seed, storms: 0, acknowledged: 0 })
    }

    fn start(&self, what: What) -> Result<Mta, Stop> {
        Mta::start(&self.mailrace, what, &self.dir, &self.spool)
    }

    /// Starts a server, lets two storms loose on it, and kills it 10 to 300 ms later.
    fn storm_and_kill(&mut self, what: What, random: &mut Random) -> Result<(), Stop> {
        let server = self.start(what)?;
        let at = server.ready()?;
        let stop = Arc::new(AtomicBool::new(false));
        let small = self.storm(at, "small", SESSIONS.0, SIZES.0, &stop, random);
        let large = self.storm(at, "large", SESSIONS.1, SIZES.1, &stop, random);
        clock::pause(Duration::from_millis(random.between(10, 300)));
        server.kill();
        stop.store(true, Ordering::Release);
        for storm in [small, large] {
            let ended = storm.join().map_err(|_| Stop::Broken("a storm panicked".to_owned()))?;
            let report = ended.map_err(|error| Stop::broken("a storm", error))?;
            self.acknowledged += report.accepted;
        }
        Ok(())
    }

    /// Lets a storm loose: one way to send or another, with a name and a ledger of its own.
    fn storm(
        &mut self,
        to: SocketAddr,
        kind: &str,
        sessions: u32,
        sizes: Sizes,
        stop: &Arc<AtomicBool>,
        random: &mut Random,
    ) -> JoinHandle<Result<storm::Report, storm::Error>> {
        self.storms += 1;
        let run = format!("{kind}-{}", self.storms);
        let ledger = self.memory.join(&run);
        self.ledgers.push((run.clone(), ledger.clone()));
        let chunking = random.percent(30);
        let plan = Plan {
            messages: None,
            time: Some(STORM_MAX),
            sessions,
            sizes,
            recipients: RECIPIENTS,
            new_connection: random.percent(25),
            pipelining: random.percent(50),
            chunking,
            split_dot: !chunking && random.percent(25),
            seed: random.next(),
            run,
            patience: Duration::from_secs(20),
            ledger: Some(ledger),
            stop: Some(Arc::clone(stop)),
            ..Plan::new(to)
        };
        thread::spawn(move || storm::run(&plan, &mut |_| {}))
    }

    /// Holds the spool against the ledgers since the last check and what was left by it.
    fn check(&mut self) -> Result<Checked, Stop> {
        let next = self.kept.with_extension("next");
        drop(fs::remove_file(&next));
        let mut command = host::own_program("crash-post-checker")?;
        command.args(self.spool.words()).arg("--kept").arg(&self.kept).arg("--next").arg(&next);
        command.arg(format!("--seed={}", self.seed.wrapping_add(self.storms)));
        // A message of each session may be on its way when the kill comes; two storms have a name each.
        command.arg(format!("--sessions={}", SESSIONS.0.max(SESSIONS.1))).arg(format!("--recipients={RECIPIENTS}"));
        for (run, ledger) in &self.ledgers {
            command.arg(format!("--ledger={run}={}", ledger.display()));
        }
        let checked = checked(command)?;
        if next.exists() {
            fs::copy(&next, &self.kept).map_err(|error| Stop::broken("keeping what was found", error))?;
        }
        for (_, ledger) in self.ledgers.drain(..) {
            drop(fs::remove_file(ledger));
        }
        Ok(checked)
    }

    /// A server must not have panicked, whatever became of the mail.
    fn complaints(&self, case: &mut Case) {
        let said = mta::complaints(&self.dir);
        if let Some(line) = said.lines().find(|line| line.contains("panicked")) {
            case.violation(format!("the server panicked: {line}"));
        }
    }

    fn leave(self) {
        remove(&self.dir);
    }
}

fn remove(dir: &Path) {
    drop(fs::remove_dir_all(dir));
}
