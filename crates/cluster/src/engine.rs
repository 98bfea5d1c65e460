//! Whether an engine is fit to hold copies of mail: decisions on facts that a driver asked for.

use std::fmt;

/// The oldest version of nats-server that is taken.
pub const ENGINE_VERSION_MIN: (u32, u32, u32) = (2, 15, 2);

/// Facts about an engine, as it gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineFacts {
    /// Its address, for messages.
    pub address: String,
    /// Its version, as `2.15.2`.
    pub version: String,
    /// Its `sync_interval` is `always`: an append is synced before its answer.
    pub is_sync_always: bool,
    /// JetStream is enabled for the account.
    pub has_streams: bool,
}

/// The reason why an engine is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// Its version is too old, or no version.
    Version {
        /// Its address.
        address: String,
        /// Its version.
        version: String,
    },
    /// It answers appends before they are on the disk.
    Sync {
        /// Its address.
        address: String,
    },
    /// It has no streams.
    NoStreams {
        /// Its address.
        address: String,
    },
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = ENGINE_VERSION_MIN;
        match self {
            Self::Version { address, version } => write!(
                f,
                "engine {address} has version \"{version}\", {major}.{minor}.{patch} or newer is needed; \
                 upgrade nats-server on that node"
            ),
            Self::Sync { address } => write!(
                f,
                "engine {address} answers before data is on the disk, a power cut would lose copies of mail; \
                 set \"jetstream {{ sync_interval: always }}\" in its configuration and restart it"
            ),
            Self::NoStreams { address } => {
                write!(
                    f,
                    "engine {address} has JetStream disabled, as a server or for this account; enable it in its \
                     configuration, with sync_interval: always"
                )
            }
        }
    }
}

impl std::error::Error for EngineError {}

/// Decides whether an engine may hold copies.
///
/// # Errors
/// The first reason against it. A node must not start cluster mode with such an engine.
pub fn check_engine(facts: &EngineFacts) -> Result<(), EngineError> {
    let address = facts.address.clone();
    if parse_version(&facts.version).is_none_or(|version| version < ENGINE_VERSION_MIN) {
        return Err(EngineError::Version { address, version: facts.version.clone() });
    }
    if !facts.has_streams {
        return Err(EngineError::NoStreams { address });
    }
    if !facts.is_sync_always {
        return Err(EngineError::Sync { address });
    }
    Ok(())
}

/// The three numbers of a version; a pre-release such as `2.15.2-RC.1` counts as older than its release.
fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (numbers, is_release) = match text.split_once(['-', '+']) {
        Some((numbers, rest)) => (numbers, text.contains('+') || rest.is_empty()),
        None => (text, true),
    };
    let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok());
    let version = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() {
        return None;
    }
    match version {
        (major, minor, patch) if !is_release => Some((major, minor, patch.checked_sub(1)?)),
        version => Some(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(version: &str, is_sync_always: bool, has_streams: bool, says: Option<&str>) {
        let facts =
            EngineFacts { address: "10.0.0.2:4222".into(), version: version.into(), is_sync_always, has_streams };
        match (check_engine(&facts), says) {
            (Ok(()), None) => {}
            (Err(error), Some(says)) => assert!(error.to_string().contains(says), "{error}"),
            other => panic!("{version}: {other:?}"),
        }
    }

    #[test]
    fn engines_are_judged() {
        for version in ["2.15.2", "v2.15.2", "2.16.0", "3.0.0", "2.15.3-RC.1", "2.15.2+build7"] {
            check(version, true, true, None);
        }
        for version in ["2.15.1", "2.9.10", "2.15.2-RC.4", "", "2.15", "two", "2.15.2.1"] {
            check(version, true, true, Some("2.15.2 or newer"));
        }
        check("2.15.2", false, true, Some("sync_interval: always"));
        check("2.15.2", true, false, Some("JetStream disabled"));
    }
}
