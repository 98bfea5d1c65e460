//! The answer to `connections`: those to next hops.

use serde::{Deserialize, Serialize};

/// A connection to a next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionLine {
    /// Its number, by which it is ended.
    pub connection: u64,
    /// The destination for which it was opened.
    pub destination: String,
    /// The hosts of that destination.
    pub site: String,
    /// The host it leads to; empty before one was reached.
    pub host: String,
    /// Seconds since it was opened.
    pub age: u64,
    /// The messages on their way over it.
    pub messages: Vec<String>,
}

/// The answer to `connections`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionsAnswer {
    /// The oldest first.
    pub connections: Vec<ConnectionLine>,
}

/// A line of `transcript`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TranscriptLine {
    /// Microseconds since 1970.
    pub at: u64,
    /// The number of the connection.
    pub connection: u64,
    /// The host.
    pub host: String,
    /// `>` to the host, `<` from it, `*` about the connection; empty on a line that only shows that the server lives.
    pub direction: String,
    /// A command or a line of a reply, without secrets; content of messages as its size.
    pub text: String,
}
