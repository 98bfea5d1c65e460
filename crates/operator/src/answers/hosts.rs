//! The answer to `hosts`: the next hops that the server remembers.

use serde::{Deserialize, Serialize};

/// The answer to `hosts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostsAnswer {
    /// The hosts, in the order of their addresses.
    pub hosts: Vec<Host>,
}

/// One next hop. Absent values are `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Address and port.
    pub address: String,
    /// The last attempt, in seconds since 1970.
    pub seen: u64,
    /// Seconds since the last attempt.
    pub ago: u64,
    /// Failed attempts since the last one that worked.
    pub failures: u64,
    /// Seconds until the host is tried again.
    pub retry_in: Option<u64>,
    /// Seconds since TLS last worked.
    pub tls_worked_ago: Option<u64>,
    /// Seconds since TLS began to fail.
    pub tls_fails_for: Option<u64>,
    /// Seconds for which the host gets mail without TLS.
    pub in_clear_for: Option<u64>,
}
