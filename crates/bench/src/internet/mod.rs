//! A simulated internet behind real sockets: the hosts and the DNS of `sim` on loopback addresses.
//!
//! ```text
//! epoll ──► engine ──► sim::World ──► flights ──► sockets
//!              │           └────────► taken ────► ledger, tally
//!              └─ name_server, timers
//! ```
//!
//! One thread does all of it ([`engine`]), since it shares the machine with the measured server. Everything is bound to
//! loopback addresses; nothing needs privileges. docs/sim.md describes it for users.

mod engine;
mod events;
mod files;
mod name_server;
mod sockets;
mod summary;
mod timers;

pub use summary::{HostCounts, InternetSummary};

use crate::clock;
use engine::Engine;
use files::LedgerFile;
use name_server::NameServer;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd as _, OwnedFd};
use sim::{Plan, World};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Descriptors for everything that is neither a host nor a connection.
const OTHER_FILES: u64 = 512;
/// Tries to find a port that is free on all addresses.
const TRIES: usize = 20;
/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Longer than any run.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The world to start, and the files it writes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Hosts and their behaviour.
    pub plan: Plan,
    /// Where all hosts listen; 0 takes a port that is free on all addresses.
    pub port: u16,
    /// Where the DNS server listens, a loopback address; port 0 takes a free one.
    pub dns: SocketAddr,
    /// Connections at a time; more are closed without a word.
    pub connections_max: usize,
    /// The file of the ledger.
    pub ledger: Option<PathBuf>,
    /// Where the recipients are written.
    pub list: Option<PathBuf>,
    /// Where the hosts are written.
    pub map: Option<PathBuf>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternetProgress {
    /// Acknowledged messages.
    pub messages: u64,
    /// Their recipients.
    pub recipients: u64,
    /// Connections so far.
    pub connections: u64,
    /// Connections that are open.
    pub open: u64,
    /// DNS queries that were answered.
    pub queries: u64,
}

/// Why there is no simulated internet.
#[derive(Debug)]
pub enum InternetError {
    /// It cannot be as it was asked for; the text names the option.
    Options(String),
    /// The system refused something.
    Io {
        /// The object.
        what: String,
        /// The system's words.
        source: io::Error,
    },
}

impl fmt::Display for InternetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(text) => f.write_str(text),
            Self::Io { what, source } => {
                write!(f, "{what}: {source}")?;
                match what.split(' ').next() {
                    Some(option @ ("--dns" | "--port")) if source.kind() == io::ErrorKind::AddrInUse => {
                        write!(f, "; end what listens there, or choose another with {option} (port 0 takes a free one)")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for InternetError {}

/// A simulated internet that runs. Dropping it ends it.
#[derive(Debug)]
pub struct SimulatedInternet {
    port: u16,
    dns: SocketAddr,
    start_unix_us: u64,
    progress: Arc<Mutex<InternetProgress>>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<InternetSummary>>,
}

impl SimulatedInternet {
    /// Writes list and map, opens all hosts and the DNS server, and serves them on a thread of its own.
    ///
    /// # Errors
    /// The plan cannot be carried out, an address or a file cannot be had. Nothing runs then.
    pub fn start(options: &Options) -> Result<Self, InternetError> {
        let told = |what: &str| {
            let what = what.to_owned();
            move |source: io::Error| InternetError::Io { what, source }
        };
        if !options.dns.ip().is_loopback() {
            return Err(InternetError::Options(format!(
                "--dns {} is no loopback address, as 127.0.0.1:5300 is",
                options.dns
            )));
        }
        let world = World::new(options.plan.clone()).map_err(InternetError::Options)?;
        let files = world.hosts().len() as u64 + options.connections_max as u64 + OTHER_FILES;
        sockets::allow_files(files).map_err(InternetError::Options)?;
        let names = NameServer::open(options.dns).map_err(told(&format!("--dns {}", options.dns)))?;
        if let Some(path) = &options.list {
            files::list(path, &world).map_err(told(&format!("--list {}", path.display())))?;
        }
        if let Some(path) = &options.map {
            files::map(path, &world).map_err(told(&format!("--map {}", path.display())))?;
        }
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|error| told("eventfd")(error.into()))?);
        let (start, start_unix_us) = (clock::now(), clock::unix_us());
        let dns = names.at();
        let progress = Arc::new(Mutex::new(InternetProgress::default()));
        let ledger = options.ledger.as_deref();
        let what = ledger.map_or_else(String::new, |path| format!("--ledger {}", path.display()));
        let ledger = LedgerFile::open(ledger, start_unix_us).map_err(told(&what))?;
        let mut engine = open(options, world, names, ledger, (&stop, start), &progress)?;
        let port = engine.port();
        let thread = std::thread::Builder::new().name("sim".to_owned()).spawn(move || {
            let cpu = clock::cpu();
            engine.run();
            InternetSummary::new(engine, start_unix_us, start, cpu)
        });
        let thread = Some(thread.map_err(told("a thread"))?);
        Ok(Self { port, dns, start_unix_us, progress, stop, thread })
    }

    /// The port of all hosts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the DNS server listens.
    #[must_use]
    pub fn dns(&self) -> SocketAddr {
        self.dns
    }

    /// When it began, in microseconds since 1970: time 0 of the ledger.
    #[must_use]
    pub fn start_unix_us(&self) -> u64 {
        self.start_unix_us
    }

    /// Where it stands, as of a quarter of a second ago at most.
    #[must_use]
    pub fn progress(&self) -> InternetProgress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for SIGINT or SIGTERM, or until `time` is over, telling progress about once a second. Blocks the calling
    /// thread.
    ///
    /// # Errors
    /// The system gives no runtime or no handler.
    pub fn wait(&self, time: Option<Duration>, progress: &mut dyn FnMut(InternetProgress)) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut ticks = tokio::time::interval(PROGRESS_EVERY);
            let over = tokio::time::sleep(time.unwrap_or(FOREVER));
            tokio::pin!(over);
            loop {
                // All four are cancel-safe.
                tokio::select! {
                    _ = terminate.recv() => return Ok(()),
                    _ = interrupt.recv() => return Ok(()),
                    () = &mut over => return Ok(()),
                    _ = ticks.tick() => progress(self.progress()),
                }
            }
        })
    }

    /// Ends it: closes every connection, completes the ledger, sums up.
    ///
    /// # Errors
    /// Something could not be written or opened on the way.
    pub fn stop(mut self) -> Result<InternetSummary, InternetError> {
        self.ring();
        let summary = self.thread.take().and_then(|thread| thread.join().ok());
        let summary = summary.ok_or_else(|| InternetError::Options("the simulated internet panicked".to_owned()))?;
        match &summary.failed {
            Some(failed) => Err(InternetError::Options(failed.clone())),
            None => Ok(summary),
        }
    }

    fn ring(&self) {
        // It fails only when the number would overflow: then there is something to read already.
        rustix::io::write(self.stop.as_fd(), &1_u64.to_ne_bytes()).unwrap_or(0);
    }
}

impl Drop for SimulatedInternet {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.ring();
            // The call that asks for the summary reports a panic in the thread.
            drop(thread.join());
        }
    }
}

/// Opens all doors, with port 0 on a port that is free on all addresses.
fn open(
    options: &Options,
    world: World,
    names: NameServer,
    ledger: LedgerFile,
    (stop, start): (&OwnedFd, Instant),
    progress: &Arc<Mutex<InternetProgress>>,
) -> Result<Engine, InternetError> {
    let mut engine = Engine::new(world, names, ledger, (options.connections_max, start), Arc::clone(progress))
        .and_then(|engine| engine.stopped_by(stop.as_fd()))
        .map_err(|source| InternetError::Io { what: "epoll".to_owned(), source })?;
    let mut tries = if options.port == 0 { TRIES } else { 1 };
    loop {
        tries -= 1;
        let opened = match options.port {
            0 => sockets::free_port(options.plan.network).and_then(|port| engine.open_doors(port)),
            port => engine.open_doors(port),
        };
        match opened {
            Ok(()) => return Ok(engine),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            Err(source) => {
                let what = format!("--port {} on {} and the addresses after it", options.port, options.plan.network);
                return Err(InternetError::Io { what, source });
            }
        }
    }
}

/// How long a run has lasted, as seconds.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}
