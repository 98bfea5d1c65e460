//! Opens a spool as the rigs want it: small segments, so that rolls, recycling and relocation happen all the time.

use crate::crash::findings::Findings;
use clap::{Args, ValueEnum};
use spool::disk::real::RealDisk;
use spool::{Config, OpenError, Recovery, Sabotage, Spool};
use std::path::PathBuf;
use std::sync::Arc;

/// Where a spool lies and how large it may become.
#[derive(Args, Clone, Debug)]
pub(crate) struct SpoolArguments {
    /// The spool directory.
    #[arg(long = "spool")]
    pub(crate) path: PathBuf,
    /// Size of a segment.
    #[arg(long, default_value_t = 512 << 10)]
    pub(crate) segment_bytes: u32,
    /// The most all segments may take.
    #[arg(long, default_value_t = 24 << 20)]
    pub(crate) size_max: u64,
    /// The pool grows while the file system has more than this free.
    #[arg(long, default_value_t = 1 << 20)]
    pub(crate) free_min: u64,
    /// The fault to build into the spool.
    #[arg(long, value_enum)]
    pub(crate) sabotage: Option<Saboteur>,
}

/// The faults that can be built into a spool, each of which a rig must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Saboteur {
    /// Tells its callers that a batch is durable before it is synced.
    AckBeforeSync,
    /// Uses segments again although no map of live frames says that their states may go.
    SkipLivemap,
    /// Uses a segment again under the generation it had.
    ReuseGeneration,
}

impl Saboteur {
    /// Its name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AckBeforeSync => "ack-before-sync",
            Self::SkipLivemap => "skip-livemap",
            Self::ReuseGeneration => "reuse-generation",
        }
    }

    /// Returns the finding that the fault must cause.
    pub(crate) fn leads_to(self) -> fn(&Findings) -> u64 {
        match self {
            Self::AckBeforeSync => |findings| findings.lost,
            Self::SkipLivemap => |findings| findings.resurrected,
            Self::ReuseGeneration => {
                |findings| findings.resurrected + findings.lost + findings.unreadable + findings.unusable
            }
        }
    }
}

impl SpoolArguments {
    /// A spool at `path` with the sizes of the rigs.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), segment_bytes: 512 << 10, size_max: 24 << 20, free_min: 1 << 20, sabotage: None }
    }

    /// The command line that says the same.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("--spool={}", self.path.display()),
            format!("--segment-bytes={}", self.segment_bytes),
            format!("--size-max={}", self.size_max),
            format!("--free-min={}", self.free_min),
        ];
        words.extend(self.sabotage.map(|saboteur| format!("--sabotage={}", saboteur.name())));
        words
    }

    fn config(&self) -> Config {
        let mut config = Config::new(&self.path);
        config.segment_bytes = self.segment_bytes;
        config.size_max = self.size_max;
        config.free_min = self.free_min;
        config.batch_bytes_max = 256 << 10;
        config.staged_bytes_max = 4 << 20;
        config.cache_bytes = 1 << 20;
        config.sabotage = Sabotage {
            ack_before_sync: self.sabotage == Some(Saboteur::AckBeforeSync),
            skip_livemap: self.sabotage == Some(Saboteur::SkipLivemap),
            reuse_generation: self.sabotage == Some(Saboteur::ReuseGeneration),
            split_transactions: false,
        };
        config
    }
}

/// Opens the spool on the real disk; also says what recovery found.
///
/// # Errors
/// As the spool says.
pub(crate) fn open(arguments: &SpoolArguments) -> Result<(Arc<Spool>, Recovery), OpenError> {
    let (spool, recovery) = Spool::open(arguments.config(), Arc::new(RealDisk::new()))?;
    Ok((Arc::new(spool), recovery))
}
