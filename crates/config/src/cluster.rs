//! The settings of a node of a cluster: `[cluster]`.

use std::path::PathBuf;
use std::time::Duration;

/// Octets of the identity of a cluster.
const ID_OCTETS: usize = 16;

/// `[cluster]`: other nodes keep copies of queued mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The name of the cluster, 32 hex digits; empty: there is none. See [`Cluster::id_octets`].
    pub id: String,
    /// The number of this node; 0: none.
    pub node: u16,
    /// `host:port` of each engine, that of this node first.
    pub engines: Vec<String>,
    /// `host:port` of the monitor of this node's engine.
    pub monitor: String,
    /// The user at the engines; empty: none.
    pub user: String,
    /// A file whose first line is the password of the user.
    pub password_file: Option<PathBuf>,
    /// A file whose first line is the seed of an nkey.
    pub nkey_file: Option<PathBuf>,
    /// A file with a token and a seed.
    pub credentials_file: Option<PathBuf>,
    /// A user of the engines' system account, for commands alone; empty: none.
    pub system_user: String,
    /// A file whose first line is the password of this user.
    pub system_password_file: Option<PathBuf>,
    /// TLS is required at the engines.
    pub tls: bool,
    /// CA certificates in PEM that their certificates are judged by; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Copies of a message that the 250 waits for, that of the own disk included.
    pub copies: u8,
    /// Octets of one lane of a stream; 0: the engine's own limit.
    pub lane_size_max: u64,
    /// The configuration that all nodes share counts below the own file.
    pub shared: bool,
    /// Nodes tell each other which hosts are down.
    pub host_status: bool,
    /// Time for which a node that is drained still takes mail.
    pub drain_grace: Duration,
}

impl Cluster {
    /// Whether this server is a node of a cluster.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        !self.id.is_empty()
    }

    /// Returns the octets of the name; `None` where there is no cluster. A text that is no name, which the rules
    /// refuse, counts as none.
    #[must_use]
    pub fn id_octets(&self) -> Option<[u8; ID_OCTETS]> {
        let is_hex = self.id.len() == 2 * ID_OCTETS && self.id.bytes().all(|digit| digit.is_ascii_hexdigit());
        let octets = is_hex.then(|| u128::from_str_radix(&self.id, 16).ok()).flatten()?;
        Some(octets.to_be_bytes())
    }
}

/// The answer to a client whose message no other node can keep a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnNoReplica {
    /// `451`, and the message is dropped.
    TempFail,
    /// `250` when the message is on the own disk.
    AcceptLocal,
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn the_octets_of_a_name() {
        let mut cluster = Config::default().cluster;
        assert!(!cluster.is_used());
        for (id, octets) in [
            (
                "00112233445566778899aabbCCDDEEFF",
                Some([0, 17, 34, 51, 68, 85, 102, 119, 136, 153, 170, 187, 204, 221, 238, 255]),
            ),
            ("", None),
            ("+0112233445566778899aabbccddeeff", None),
            ("00112233445566778899aabbccddeef", None),
            ("00112233445566778899aabbccddeeff0", None),
            ("éé112233445566778899aabbccddee", None),
        ] {
            id.clone_into(&mut cluster.id);
            assert_eq!(cluster.id_octets(), octets, "{id}");
        }
    }
}
