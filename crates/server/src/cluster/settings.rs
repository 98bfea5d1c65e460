//! Addresses, credentials and limits of the engines.

use std::path::PathBuf;
use std::time::Duration;

/// Servers that the key-value store has copies on, at most: one of three may fail.
const COORDINATION_REPLICAS_MAX: usize = 3;

/// How to reach the engines. [`EngineSettings::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// `host:port` of each engine, that of this node first.
    pub addresses: Vec<String>,
    /// The name of this node, as the engine shows it in its list of clients.
    pub name: String,
    /// How this node proves who it is.
    pub login: EngineLogin,
    /// TLS is required; the certificates are judged by the CAs of `ca_file`.
    pub is_tls: bool,
    /// CA certificates in PEM; without it those of the system count.
    pub ca_file: Option<PathBuf>,
    /// `host:port` where the engine of this node answers questions about its configuration (`http` in its
    /// configuration).
    pub monitor: String,
    /// Time for a connection and its login.
    pub connect_time_max: Duration,
    /// Time for a request, all questions that belong to it included. An append without an answer counts as unknown
    /// after it.
    pub request_time_max: Duration,
    /// Time between questions whether the connection lives; it counts as dead after three without an answer, and
    /// another engine is asked.
    pub ping_interval: Duration,
    /// Time between attempts to connect again, at most.
    pub reconnect_delay_max: Duration,
    /// Octets of one lane of a stream, at most; without it only the engine's own limit holds (`max_file_store`).
    pub lane_octets_max: Option<u64>,
    /// Servers that the key-value store has copies on.
    pub coordination_replicas: usize,
}

/// How a node proves who it is. Secrets are read from files that no other user may write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineLogin {
    /// Not at all.
    #[default]
    None,
    /// A user and a password.
    Password {
        /// The user.
        user: String,
        /// A file whose first line is the password.
        file: PathBuf,
    },
    /// A file whose first line is the seed of an nkey (`SU…`).
    Nkey(PathBuf),
    /// A file with a token and a seed, as `nsc` writes it (`.creds`).
    Credentials(PathBuf),
}

impl EngineSettings {
    /// The defaults for engines at these addresses, that of this node first.
    #[must_use]
    pub fn new(addresses: Vec<String>, monitor: String) -> Self {
        Self {
            coordination_replicas: addresses.len().clamp(1, COORDINATION_REPLICAS_MAX),
            addresses,
            name: "mailrace".to_owned(),
            login: EngineLogin::None,
            is_tls: false,
            ca_file: None,
            monitor,
            connect_time_max: Duration::from_secs(5),
            request_time_max: Duration::from_secs(3),
            ping_interval: Duration::from_secs(2),
            reconnect_delay_max: Duration::from_secs(1),
            lane_octets_max: None,
        }
    }
}
