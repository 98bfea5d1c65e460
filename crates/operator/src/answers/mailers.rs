//! The answer to `mailers`: messages and octets by mailer since the start.

use serde::{Deserialize, Serialize};

/// The answer to `mailers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MailersAnswer {
    /// The counts of each mailer, by name.
    pub mailers: Vec<MailerCounts>,
    /// The start of the server, in seconds since 1970.
    pub since: u64,
    /// Connections from clients.
    pub connections: u64,
    /// Connections to next hops; absent, as this server does not count them.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub connections_to: u64,
    /// Connections from clients that a limit refused.
    pub connections_refused: u64,
}

/// The counts of one mailer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MailerCounts {
    /// Its name.
    pub mailer: String,
    /// Messages accepted from it.
    pub messages_from: u64,
    /// Octets of those messages.
    pub bytes_from: u64,
    /// Messages delivered by it.
    pub messages_to: u64,
    /// Octets of those messages.
    pub bytes_to: u64,
    /// Transactions from it that were refused.
    pub rejected: u64,
}
