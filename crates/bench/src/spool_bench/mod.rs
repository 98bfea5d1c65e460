//! How fast the spool is, beside storage engines and one file per message, on the machine at hand.
//!
//! The command `mailrace-bench spool`: runs every store under the same load ([`load`]) in turns, round after round, in
//! rotating order, and prints medians, spreads and paired ratios ([`report`]). Exact device figures come from a private
//! file system ([`volume`]). `docs/benchmarking.md` explains the figures, `docs/benchmarks.md` keeps a set of them.
//!
//! Bounded: in time by `--minutes`, on disk by [`BYTES_MAX`] a store (one store at a time) and the size of the recovery
//! run; everything made is removed. Not here: whether mail survives crashes (`crash`).

mod bodies;
mod load;
pub(crate) mod machine;
mod plan;
mod recovery;
mod report;
mod volume;

use clap::ValueEnum;
use spool::disk::real::RealDisk;
use spool::{Config, Spool};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use crate::engines::{Contender, Kind, Room};

/// Bytes a store may take on disk.
const BYTES_MAX: u64 = 4 << 30;

/// Below this line of the documentation stand the figures.
const MARKER: &str = "<!-- figures of mailrace-bench spool --markdown -->";

const HEADLINE: &str = "64 committers";
const THROUGHPUT: &str = "By committers and size";
const DEVICE: &str = "What the device does";
const MEMORY: &str = "In memory (tmpfs)";
const SLOW: &str = "Slow disk (8 ms a flush)";
const STRAGGLERS: &str = "Stragglers";

/// Measures the spool beside storage engines.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where the stores are put; the file system of this directory is what is measured
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// A directory in memory (tmpfs), for the part "memory"
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// Parts to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// Stores to compare
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Mailrace, Kind::Fjall, Kind::Redb, Kind::Sqlite, Kind::Files])]
    stores: Vec<Kind>,
    /// Numbers of committers of the part "throughput"
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64, 200])]
    committers: Vec<usize>,
    /// Sizes of bodies in KiB
    #[arg(long, value_delimiter = ',', default_values_t = [4, 50, 1024])]
    sizes: Vec<usize>,
    /// Messages of a hundred that are never finished, in all parts but "stragglers"
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    stragglers: u64,
    /// Rounds of each part; default by part
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of each measurement; default by part
    #[arg(long)]
    seconds: Option<f64>,
    /// Messages of the recovery run, 4 KiB each
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// Minutes the whole may take; what does not fit is left out and said
    #[arg(long, default_value_t = 15.0)]
    minutes: f64,
    /// Seconds to wait at a time for other programs to leave the machine alone; disturbed measurements are repeated
    #[arg(long, default_value_t = 5)]
    patience: u64,
    /// A smoke run of less than a minute
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of Markdown
    #[arg(long)]
    json: bool,
    /// Also renew the figures in this page (docs/benchmarks.md), which stand below its marker
    #[arg(long)]
    markdown: Option<PathBuf>,
}

/// A part of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 64 committers, 4 KB and 50 KB, more rounds: the ratios of the targets
    Headline,
    /// Flushes and bytes, exact, on a private ext4
    Device,
    /// The cost of 1 % of messages that stay
    Stragglers,
    /// A disk with a flush of 8 ms
    Slow,
    /// tmpfs
    Memory,
    /// A million queued messages: opening, memory, verification
    Recovery,
    /// All numbers of committers with all sizes
    Throughput,
}

impl Part {
    const ALL: [Self; 7] =
        [Self::Headline, Self::Device, Self::Stragglers, Self::Slow, Self::Memory, Self::Recovery, Self::Throughput];
}

/// Runs what was asked for and prints it.
#[must_use]
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = match plan::run(arguments) {
        Ok(report) => report,
        Err(error) => {
            say(&error);
            return ExitCode::FAILURE;
        }
    };
    let text = if arguments.json { report.json() } else { report.markdown() };
    if let Some(page) = &arguments.markdown
        && let Err(error) = renew(page, &report.markdown())
    {
        say(&error);
        return ExitCode::FAILURE;
    }
    let printed = std::io::stdout().lock().write_all(text.as_bytes());
    if printed.is_err() || report.failed {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Replaces what stands below the marker of a page.
fn renew(page: &Path, figures: &str) -> Result<(), String> {
    let told = |e: std::io::Error| format!("{}: {e}", page.display());
    let text = std::fs::read_to_string(page).map_err(told)?;
    let Some((head, _)) = text.split_once(MARKER) else {
        return Err(format!("{} lacks the line \"{MARKER}\"; nothing was written", page.display()));
    };
    // The headings of the report become those of a section of the page.
    let figures = figures.replace("\n## ", "\n### ");
    std::fs::write(page, format!("{head}{MARKER}\n\n{figures}")).map_err(told)
}

/// Where the spool lies in the directory of a store.
fn spool_path(dir: &Path) -> PathBuf {
    dir.join("spool")
}

/// Opens the spool of mailrace in `dir`, with its defaults but for the room it may take.
pub(crate) fn open_spool(dir: &Path, room: Room) -> Result<Box<dyn Contender>, String> {
    let config = Config { size_max: room.bytes_max, free_min: room.free_min, ..Config::new(spool_path(dir)) };
    let (spool, recovery) = Spool::open(config, Arc::new(RealDisk::new())).map_err(|e| e.to_string())?;
    for damage in &recovery.damage {
        say(&format!("damage: {damage}"));
    }
    Ok(Box::new(spool))
}

/// Says something to the person at the terminal, apart from the report.
pub(crate) fn say(text: &str) {
    // A closed terminal is no reason to stop measuring.
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}
