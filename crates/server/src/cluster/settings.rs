//! Addresses, credentials and limits of the engines, and what `[cluster]` of the configuration says about them.

use crate::config;
use cluster::{ClusterId, Incarnation, NodeId, OnNoReplica, Settings};
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
    /// The settings that `[cluster]` gives; `None` where there is no cluster.
    #[must_use]
    pub fn from_config(config: &config::Cluster) -> Option<Self> {
        let settings = Self::new(config.engines.clone(), config.monitor.clone());
        config.is_used().then(|| Self {
            name: format!("mailrace node {}", config.node),
            login: EngineLogin::from_config(config),
            is_tls: config.tls,
            ca_file: config.ca_file.clone(),
            lane_octets_max: (config.lane_size_max > 0).then_some(config.lane_size_max),
            ..settings
        })
    }

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

impl EngineLogin {
    /// The rules of the configuration let one way be set at most.
    fn from_config(config: &config::Cluster) -> Self {
        match (&config.password_file, &config.nkey_file, &config.credentials_file) {
            (Some(file), _, _) => Self::Password { user: config.user.clone(), file: file.clone() },
            (None, Some(file), _) => Self::Nkey(file.clone()),
            (None, None, Some(file)) => Self::Credentials(file.clone()),
            (None, None, None) => Self::None,
        }
    }
}

/// The settings of a node that `[cluster]` gives, for this life and start of its local log; `None` where there is no
/// cluster.
#[must_use]
pub fn node_settings(config: &config::Cluster, incarnation: Incarnation, start: u32) -> Option<Settings> {
    let cluster = ClusterId(config.id_octets()?);
    let copies = usize::from(config.copies);
    Some(Settings { copies, ..Settings::new(cluster, NodeId(config.node), incarnation, start) })
}

/// The answer of a listener to a client whose message has no holder.
#[must_use]
pub const fn on_no_replica(config: config::OnNoReplica) -> OnNoReplica {
    match config {
        config::OnNoReplica::TempFail => OnNoReplica::TempFail,
        config::OnNoReplica::AcceptLocal => OnNoReplica::AcceptLocal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(lines: &str) -> config::Cluster {
        let head =
            "[cluster]\nid = '000102030405060708090a0b0c0d0e0f'\nnode = 3\nengines = ['10.0.0.3', 'mx1.test:4223']";
        let loaded = config::load(&format!("{head}\n{lines}\n"), None, &[], &config::Machine::default());
        loaded.unwrap_or_else(|problems| panic!("{}", config::render(&problems))).config.cluster
    }

    #[test]
    fn a_server_without_the_section_is_no_node() {
        let config = config::Config::default().cluster;
        assert!(EngineSettings::from_config(&config).is_none());
        assert!(node_settings(&config, Incarnation(1), 1).is_none());
    }

    #[test]
    fn engines_and_node() {
        let config = config("copies = 3\ntls = true\nca_file = '/ca.pem'\nlane_size_max = '1GiB'\n");
        let engines = EngineSettings::from_config(&config).unwrap();
        assert_eq!(engines.addresses, ["10.0.0.3:4222", "mx1.test:4223"]);
        assert_eq!((engines.monitor.as_str(), engines.name.as_str()), ("127.0.0.1:8222", "mailrace node 3"));
        assert_eq!((engines.is_tls, engines.ca_file.as_deref()), (true, Some(Path::new("/ca.pem"))));
        assert_eq!((engines.lane_octets_max, engines.coordination_replicas), (Some(1 << 30), 2));
        let node = node_settings(&config, Incarnation(7), 4).unwrap();
        assert_eq!(node.cluster.to_string(), config.id);
        assert_eq!((node.node, node.incarnation, node.start, node.copies), (NodeId(3), Incarnation(7), 4, 3));
    }

    #[test]
    fn logins() {
        for (lines, login) in [
            ("", EngineLogin::None),
            ("user = 'mr'\npassword_file = '/p'", EngineLogin::Password { user: "mr".to_owned(), file: "/p".into() }),
            ("nkey_file = '/n'", EngineLogin::Nkey("/n".into())),
            ("credentials_file = '/c'", EngineLogin::Credentials("/c".into())),
        ] {
            let engines = EngineSettings::from_config(&config(lines)).unwrap();
            assert_eq!((engines.login, engines.lane_octets_max), (login, None), "{lines}");
        }
    }
}
