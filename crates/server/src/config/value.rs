//! Values between the TOML and the fields of [`super::Config`]: checked already, with a kind but without a key.

use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A value that its kind has accepted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    /// Counts and bytes.
    Number(i64),
    Time(Duration),
    /// Text, choices and names.
    Text(String),
    /// A file; empty for none.
    Path(PathBuf),
    Network(IpNet),
    Address(SocketAddr),
    List(Vec<Self>),
    /// The table that holds it counts once for each of these: `:25` is a listener for IPv4 and one for IPv6.
    Each(Vec<Self>),
}
