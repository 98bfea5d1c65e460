//! Loads certificates, password files and thread counts, for the start and for reloads.

use super::start_error::StartError;
use crate::auth::Authenticator;
use crate::config::{self, Config, ListenTls, Loaded};
use crate::signing::SigningKeys;
use crate::tls::Acceptor;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
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

/// Reads certificates, if there are any. Those that cannot be used and that no listener needs are warned of.
pub(super) fn load_tls(config: &Config, warnings: &mut Vec<String>) -> Result<Option<Arc<Acceptor>>, StartError> {
    if config.tls.certificate.is_empty() {
        return Ok(None);
    }
    match Acceptor::load(&config.tls) {
        Ok(acceptor) => Ok(Some(Arc::new(acceptor))),
        Err(problems) if config.listen.iter().all(|listen| listen.tls == ListenTls::None) => {
            warnings.extend(problems.iter().map(|problem| format!("{problem} (no listener has TLS now)")));
            Ok(None)
        }
        Err(problems) => Err(StartError::Config(lines(&problems))),
    }
}

/// Reads the keys of DKIM signatures.
pub(super) fn load_signing_keys(config: &Config) -> Result<Arc<SigningKeys>, StartError> {
    SigningKeys::load(&config.dkim, &config.arc).map(Arc::new).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(|fault| format!("dkim.key.file: {fault}")).collect();
        StartError::Config(lines(&faults))
    })
}

/// Warns of files of TLS, DKIM and HTTP that root has read and this user, which the process has become, cannot read
/// again.
pub(super) fn unreadable_files(config: &Config, user: &str) -> Vec<String> {
    let tls = &config.tls;
    let of = |key, files: &'_ [PathBuf]| files.iter().map(move |path| (key, path.clone())).collect::<Vec<_>>();
    let dkim: Vec<PathBuf> = config.dkim.keys.iter().map(|key| key.file.clone()).collect();
    let tokens: Vec<PathBuf> = config.http.tokens.iter().map(|token| token.file.clone()).collect();
    let files = [
        of("tls.certificate", &tls.certificate),
        of("tls.key", &tls.key),
        of("tls.client_ca", &tls.client_ca),
        of("dkim.key.file", &dkim),
        of("http.token.file", &tokens),
        of("http.certificate", &config.http.certificate),
        of("http.key", &config.http.key),
        of("http.client_ca", &config.http.client_ca),
    ];
    let denied = |path: &PathBuf| File::open(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    let denied = files.into_iter().flatten().filter(|(_, path)| denied(path));
    denied.map(|(key, path)| config::unreadable_by_server(key, &path, user)).collect()
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
