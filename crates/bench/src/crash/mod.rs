//! Rigs that try to make a real spool lose mail: kill its process, cut the power of its disk, make its disk fail.
//!
//! So far the disk: memory behind FUSE behind a loop device (`device`, `cut`, `fuse`, `server`, `disk`), on which a real ext4
//! lies, whose power can be cut and whose requests can be slow or fail. What it does to the machine is undone by `host`.

pub mod cut;
pub mod device;
pub mod disk;
mod fuse;
pub mod host;
mod random;
mod server;

use clap::Subcommand;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The subcommands of the rigs.
#[derive(Debug, Subcommand)]
pub enum Part {
    /// The process behind a disk.
    #[command(hide = true)]
    CrashDisk {
        /// Where to mount it.
        mount_point: PathBuf,
    },
    /// Cleans up when its input ends.
    #[command(hide = true)]
    CrashJanitor {
        /// What to remove.
        dirs: Vec<PathBuf>,
    },
}

/// Runs a subcommand.
pub fn run(part: Part) -> ExitCode {
    let result = match part {
        Part::CrashDisk { mount_point } => server::serve(&mount_point, io::stdin().lock(), io::stdout()),
        Part::CrashJanitor { dirs } => {
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
