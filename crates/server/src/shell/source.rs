//! The file and the command line that the configuration comes from.

use crate::config::{self, Loaded, Machine};
use std::path::{Path, PathBuf};

/// Where the configuration comes from.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    /// The file, if there is one.
    pub path: Option<PathBuf>,
    /// `--set` of the command line.
    pub overrides: Vec<String>,
    /// The host name and the rights that defaults depend on.
    pub machine: Machine,
}

impl ConfigSource {
    /// Reads it, over the revision of the shared configuration that is in force.
    ///
    /// # Errors
    /// Every problem.
    pub fn read(&self) -> Result<Loaded, Vec<config::Problem>> {
        self.read_over(None)
    }

    /// Reads it over the shared configuration in a directory.
    ///
    /// # Errors
    /// Every problem.
    pub(crate) fn read_over(&self, shared: Option<&Path>) -> Result<Loaded, Vec<config::Problem>> {
        let path = self.path.as_deref();
        let bytes = path.map_or_else(|| Ok(Vec::new()), std::fs::read);
        let bytes = bytes.map_err(|error| vec![unreadable(path, &error)])?;
        let loaded = config::read_over_shared(bytes, path, shared, &self.overrides, &self.machine)?;
        config::check_own_file(&loaded, &config::RealFiles).map_or(Ok(loaded), |problem| Err(vec![problem]))
    }
}

fn unreadable(path: Option<&Path>, error: &std::io::Error) -> config::Problem {
    let text = format!("the configuration cannot be read: {error}");
    let step = Some("name another file with --config, or correct its rights".to_owned());
    let file = path.unwrap_or_else(|| Path::new("")).display().to_string();
    config::Problem {
        expected: "a file in TOML".to_owned(),
        ..config::Problem::of_file(config::Severity::Error, file, 0, text, step)
    }
}
