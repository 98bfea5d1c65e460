//! A server that is killed again and again on one spool, and the storms that load it meanwhile.
//!
//! Shared by the rigs `server` and `relay`: the checks after a kill are theirs.

use crate::clock;
use crate::crash::Context;
use crate::crash::host::{self, Stop};
use crate::crash::mta::{self, Mta, What};
use crate::crash::random::Random;
use crate::crash::report::CrashCase;
use crate::crash::spools::SpoolArguments;
use crate::storm::{self, Plan, Sizes};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Sessions with small and with large messages.
pub(super) const SESSIONS: (u32, u32) = (8, 2);
/// Sizes of small and of large messages. The larger ones are beyond what travels in one piece.
const SIZES: (Sizes, Sizes) = (Sizes { from: 1 << 10, to: 24 << 10 }, Sizes { from: 150 << 10, to: 700 << 10 });
/// Recipients of each message.
pub(super) const RECIPIENTS: u32 = 2;
/// A storm must not outlast a server that hangs.
const STORM_MAX: Duration = Duration::from_secs(60);

/// A spool, its server's files, and the promises for it.
pub(super) struct Scene {
    pub(super) dir: PathBuf,
    pub(super) mailrace: PathBuf,
    pub(super) spool: SpoolArguments,
    /// Names and ledgers of the storms since they were last taken.
    pub(super) ledgers: Vec<(String, PathBuf)>,
    /// The messages that earlier checks left in the spool.
    pub(super) kept: PathBuf,
    memory: PathBuf,
    pub(super) seed: u64,
    /// Storms so far.
    pub(super) storms: u64,
    pub(super) acknowledged: u64,
}

impl Scene {
    pub(super) fn new(context: &Context, rig: &str) -> Result<Self, Stop> {
        let own = host::own_program("").map(|command| PathBuf::from(command.get_program()))?;
        let mailrace = own.with_file_name("mailrace");
        if !mailrace.is_file() {
            let text = format!("{} is missing; cargo build --release --package mailrace", mailrace.display());
            return Err(Stop::Broken(text));
        }
        let (dir, kept) = context.room(rig)?;
        let spool =
            SpoolArguments { segment_bytes: 4 << 20, size_max: 512 << 20, ..SpoolArguments::at(dir.join("spool")) };
        let memory = kept.with_extension("ledgers");
        fs::create_dir_all(&memory).map_err(|error| Stop::broken("making a directory", error))?;
        let (seed, ledgers) = (context.seed, Vec::new());
        Ok(Self { dir, mailrace, spool, ledgers, kept, memory, seed, storms: 0, acknowledged: 0 })
    }

    pub(super) fn start(&self, what: What) -> Result<Mta, Stop> {
        Mta::start(&self.mailrace, what, &self.dir, &self.spool)
    }

    /// Starts a server, lets two storms loose on it, and kills it 10 to 300 ms later. Returns when it was killed.
    pub(super) fn storm_and_kill(&mut self, what: What, random: &mut Random) -> Result<Instant, Stop> {
        self.storm_and(what, random, |_| Ok(())).map(|(killed, ())| killed)
    }

    /// The same with a deed before the kill, which gets names and ledgers of the storms. The time is that of the deed.
    pub(super) fn storm_and<T>(
        &mut self,
        what: What,
        random: &mut Random,
        deed: impl FnOnce(&[(String, PathBuf)]) -> Result<T, Stop>,
    ) -> Result<(Instant, T), Stop> {
        let server = self.start(what)?;
        let at = server.ready()?;
        let stop = Arc::new(AtomicBool::new(false));
        let small = self.storm(at, "small", SESSIONS.0, SIZES.0, &stop, random);
        let large = self.storm(at, "large", SESSIONS.1, SIZES.1, &stop, random);
        clock::pause(Duration::from_millis(random.between(10, 300)));
        let killed = clock::now();
        let done = deed(&self.ledgers);
        server.kill();
        stop.store(true, Ordering::Release);
        for storm in [small, large] {
            let ended = storm.join().map_err(|_| Stop::Broken("a storm panicked".to_owned()))?;
            let report = ended.map_err(|error| Stop::broken("a storm", error))?;
            self.acknowledged += report.accepted;
        }
        Ok((killed, done?))
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
    ) -> JoinHandle<Result<storm::StormReport, storm::StormError>> {
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

    /// A server must not have panicked, whether mail was lost or not.
    pub(super) fn complaints(&self, case: &mut CrashCase) {
        let said = mta::complaints(&self.dir);
        if let Some(line) = said.lines().find(|line| line.contains("panicked")) {
            case.violation(format!("the server panicked: {line}"));
        }
    }

    /// Adds a line that no storm wrote to a ledger.
    pub(super) fn forge(&self, line: &str) -> Result<(), Stop> {
        let Some((_, ledger)) = self.ledgers.first() else { return Ok(()) };
        let mut text = fs::read_to_string(ledger).map_err(|error| Stop::broken("reading a ledger", error))?;
        text.push_str(line);
        fs::write(ledger, text).map_err(|error| Stop::broken("forging a ledger", error))
    }

    pub(super) fn leave(self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}
