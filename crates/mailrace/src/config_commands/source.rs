//! Arguments that name a configuration, for every command that needs one.

use crate::exit::{Exit, Failure};
use clap::Args;
use server::config::{self, Loaded, Problem};
use std::io;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Source {
    /// Configuration file [default: $MAILRACE_CONFIG, else /etc/mailrace/mailrace.toml if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set a value in place of the file's, as in log.level=10; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Source {
    /// The full name of the file that is read; `None` for defaults only.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let named = config::choose(self.config.clone(), std::env::var_os(config::VARIABLE), |path| path.exists());
        // Relative paths in the file begin at its directory, so its own name is made absolute.
        named.map(|path| std::path::absolute(&path).unwrap_or(path))
    }

    /// The values set in place of the file's, as `KEY=VALUE`.
    pub(crate) fn overrides(&self) -> &[String] {
        &self.set
    }

    /// Returns the source that the server reads again at a reload.
    pub(crate) fn for_reloads(&self) -> server::ConfigSource {
        server::ConfigSource { path: self.path(), overrides: self.set.clone(), machine: config::this_machine() }
    }

    /// Reads the configuration; the inner error has everything that is wrong with it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(&self) -> Result<Result<Loaded, Vec<Problem>>, Failure> {
        let path = self.path();
        config::open(path.as_deref(), &self.set, &config::this_machine()).map_err(|error| {
            let name = path.unwrap_or_default();
            match error.kind() {
                io::ErrorKind::NotFound => Failure::new(
                    Exit::Config,
                    format!(
                        "{}: there is no such file; \"mailrace config defaults\" prints one to begin with",
                        name.display()
                    ),
                ),
                _ => Failure::io(name.display(), &error),
            }
        })
    }
}
