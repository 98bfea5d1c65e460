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
    /// Reads it.
    ///
    /// # Errors
    /// Every problem.
    pub fn read(&self) -> Result<Loaded, Vec<config::Problem>> {
        let text = match self.path.as_deref().map(std::fs::read_to_string) {
            None => String::new(),
            Some(Ok(text)) => text,
            Some(Err(error)) => return Err(vec![unreadable(self.path.as_deref(), &error)]),
        };
        let loaded = config::load(&text, self.path.as_deref(), &self.overrides, &self.machine)?;
        config::check_own_file(&loaded, &config::RealFiles).map_or(Ok(loaded), |problem| Err(vec![problem]))
    }
}

fn unreadable(path: Option<&Path>, error: &std::io::Error) -> config::Problem {
    config::Problem {
        severity: config::Severity::Error,
        file: path.map(|path| path.display().to_string()).unwrap_or_default(),
        line: 0,
        column: 0,
        width: 0,
        source: String::new(),
        key: String::new(),
        text: format!("the configuration cannot be read: {error}"),
        expected: "a file in TOML".to_owned(),
        suggestion: Some("name another file with --config, or correct its rights".to_owned()),
    }
}
