//! Rigs that try to make a real spool lose mail: kill its process, cut the power of its disk, make its disk fail.
//!
//! Each rig runs the writer (`writer`), a program that accepts mail and keeps a ledger of its promises, breaks it in
//! its way (`kill`, `images`, `faults`) and compares the remaining spool with the ledger (`checker`). Each also runs
//! spools broken on purpose and must notice. A fourth rig (`storms`) kills the whole server under a load of mail, a
//! fifth (`relay`) one that passes the mail on. `docs/crash-tests.md` says what is and is not proved by them.
//!
//! The disk of `images` and `faults` is memory behind FUSE behind a loop device (`device`, `cut`, `fuse`, `server`,
//! `disk`); `host` undoes their changes to the machine. Rigs outside this crate get such disks from `power_disk`.

mod checker;
mod children;
pub mod cut;
pub mod device;
pub mod disk;
mod faults;
mod findings;
mod fuse;
pub mod host;
mod images;
mod kill;
mod ledger;
mod letter;
mod mta;
mod power_disk;
mod random;
mod relay;
mod report;
mod scene;
mod server;
mod spools;
mod storms;
mod writer;

use clap::{Args, Subcommand, ValueEnum};
use host::{Stop, Workplace};
use report::CrashReport;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub use checker::CheckerArguments;
pub use findings::Findings;
pub use power_disk::PowerDiskArguments;
pub use storms::PostCheckerArguments;
pub use writer::WriterArguments;

/// Kills and images of a full run.
const FULL: u64 = 1000;
/// Kills of a short run.
const SHORT_KILLS: u64 = 15;
/// Images of a short run.
const SHORT_IMAGES: u64 = 20;

/// The subcommands of the rigs.
#[derive(Debug, Subcommand)]
pub enum CrashCommand {
    /// Try to make the spool lose mail: kill -9, power cuts, failing disks
    Crash(CrashArguments),
    /// Keep disks at directories whose power can be cut, for other rigs
    PowerDisk(PowerDiskArguments),
    /// The program under test; ends with its input.
    #[command(hide = true)]
    CrashWriter(WriterArguments),
    /// Holds a spool against a ledger.
    #[command(hide = true)]
    CrashChecker(CheckerArguments),
    /// Holds the spool of a killed server against ledgers of storms.
    #[command(hide = true)]
    CrashPostChecker(PostCheckerArguments),
    /// The process behind a disk.
    #[command(hide = true)]
    CrashDisk {
        /// Where to mount it.
        mount_point: PathBuf,
    },
    /// Cleans up when its input ends.
    #[command(hide = true)]
    CrashJanitor {
        /// The directories to remove.
        dirs: Vec<PathBuf>,
    },
}

/// The rigs to run, and their settings.
#[derive(Args, Clone, Debug)]
pub struct CrashArguments {
    /// 15 kills of the spool, 12 of the server, 12 of the relay, 5 of its power and 20 images instead of 1,000 each
    #[arg(long)]
    short: bool,
    /// Run one rig only
    #[arg(long, value_enum)]
    only: Option<Rig>,
    /// Has the mail of the rigs relay and power pass a filter; without it that of power passes one before the 250, then
    /// one after it
    #[arg(long, value_enum)]
    filters: Option<FilterPlacement>,
    /// Crash images to take
    #[arg(long)]
    images: Option<u64>,
    /// Kills
    #[arg(long)]
    kills: Option<u64>,
    /// Begin of all random choices; the moments themselves remain the machine's
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// One of the rigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rig {
    Kill,
    Images,
    Faults,
    Server,
    Relay,
    /// The relay with a filter on a disk that loses power
    Power,
}

/// When the filter of a relay is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FilterPlacement {
    /// Before the client gets its 250
    Before,
    /// From the spool
    After,
}

impl FilterPlacement {
    /// The word of the configuration.
    const fn word(self) -> &'static str {
        match self {
            Self::Before => "before-250",
            Self::After => "after-250",
        }
    }
}

/// The values that the rigs of a run share.
#[derive(Debug)]
struct Context {
    workplace: Arc<Workplace>,
    seed: u64,
    kills: u64,
    images: u64,
    short: bool,
    filters: Option<FilterPlacement>,
}

impl Context {
    /// A fresh directory on disk, and the name of a ledger in memory.
    fn room(&self, name: &str) -> Result<(PathBuf, PathBuf), Stop> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = self.workplace.disk().join(format!("{name}-{number}"));
        std::fs::create_dir_all(&dir).map_err(|error| Stop::broken("making a directory", error))?;
        let ledger = self.workplace.memory().join(format!("{name}-{number}.ledger"));
        std::fs::write(&ledger, []).map_err(|error| Stop::broken("making a ledger", error))?;
        Ok((dir, ledger))
    }
}

/// Runs a subcommand.
pub fn run(part: CrashCommand) -> ExitCode {
    let result = match part {
        CrashCommand::Crash(arguments) => return crash(&arguments),
        CrashCommand::CrashWriter(arguments) => writer::run(arguments),
        CrashCommand::CrashChecker(arguments) => checker::run(&arguments),
        CrashCommand::CrashPostChecker(arguments) => storms::check(&arguments),
        CrashCommand::CrashDisk { mount_point } => server::serve(&mount_point, io::stdin().lock(), io::stdout()),
        CrashCommand::PowerDisk(arguments) => power_disk::run(arguments, io::stdin().lock(), io::stdout()),
        CrashCommand::CrashJanitor { dirs } => {
            host::janitor(&dirs);
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "{error}"));
            ExitCode::FAILURE
        }
    }
}

fn crash(arguments: &CrashArguments) -> ExitCode {
    let workplace = match Workplace::new() {
        Ok(workplace) => Arc::new(workplace),
        Err(stop) => {
            drop(writeln!(io::stderr(), "{stop}"));
            return ExitCode::FAILURE;
        }
    };
    let count = |asked: Option<u64>, short| asked.unwrap_or(if arguments.short { short } else { FULL });
    let context = Context {
        workplace,
        seed: arguments.seed,
        kills: count(arguments.kills, SHORT_KILLS),
        images: count(arguments.images, SHORT_IMAGES),
        short: arguments.short,
        filters: arguments.filters,
    };
    let wanted = |rig| arguments.only.is_none_or(|only| only == rig);
    let mut report = CrashReport::default();
    if wanted(Rig::Kill) {
        kill::run(&context, &mut report);
    }
    if wanted(Rig::Server) {
        storms::run(&context, count(arguments.kills, storms::SHORT), &mut report);
    }
    if wanted(Rig::Relay) {
        relay::run(&context, count(arguments.kills, relay::SHORT), &mut report);
    }
    if wanted(Rig::Power) {
        relay::power::run(&context, count(arguments.kills, relay::power::SHORT), &mut report);
    }
    if wanted(Rig::Images) {
        images::run(&context, &mut report);
    }
    if wanted(Rig::Faults) {
        faults::run(&context, &mut report);
    }
    let printed = !arguments.json || report.print_json(context.seed).is_ok();
    if printed && report.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
