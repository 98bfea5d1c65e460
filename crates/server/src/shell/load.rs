//! Loads certificates, password files and thread counts, for the start and for reloads.

use super::start::StartError;
use crate::auth::Authenticator;
use crate::config::{self, Config, Loaded};
use crate::tls::Acceptor;
use std::fmt;
use std::sync::Arc;

/// Worker threads: as configured, or one for each core.
pub(super) fn threads(config: &Config) -> u16 {
    let cores =
        || std::thread::available_parallelism().map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX));
    if config.server.threads == 0 { cores() } else { config.server.threads }
}

/// Reads the password file, if users are configured. Also used by reloads.
pub(super) fn open_authenticator(config: &Config) -> Result<Option<Arc<Authenticator>>, StartError> {
    if config.auth.file.is_none() && config.auth.program.is_empty() {
        return Ok(None);
    }
    let authenticator = Authenticator::open_for(config);
    let authenticator = authenticator.map_err(|problems| StartError::Config(lines(&problems)))?;
    authenticator.count_attempts(&config.auth, &config.accept.exempt, None);
    Ok(Some(authenticator))
}

/// Reads certificates, if there are any.
pub(super) fn load_tls(config: &Config) -> Result<Option<Arc<Acceptor>>, StartError> {
    if config.tls.certificate.is_empty() {
        return Ok(None);
    }
    let loaded = Acceptor::load(&config.tls);
    loaded.map(|acceptor| Some(Arc::new(acceptor))).map_err(|problems| StartError::Config(lines(&problems)))
}

/// Adds to each fault of a named file the line of the configuration that names it.
pub(super) fn with_places(loaded: Option<&Loaded>, faults: Vec<String>) -> Vec<String> {
    let place = |fault: String| match loaded {
        // A text of several lines has its places in it.
        Some(loaded) if !fault.contains('\n') => loaded.problem(config::Severity::Error, fault).line(),
        _ => fault,
    };
    faults.into_iter().map(place).collect()
}

pub(super) fn lines<T: fmt::Display>(problems: &[T]) -> String {
    joined_by(problems, "\n")
}

pub(super) fn joined_by<T: fmt::Display>(values: &[T], between: &str) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}
