//! Values between the TOML and the fields of [`super::Config`]: checked already, with a kind but without a key.

use super::Rate;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A value that its kind has accepted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    /// Counts and bytes.
    Number(i64),
    Time(Duration),
    /// So many a second.
    Rate(Rate),
    /// Text, choices and names.
    Text(String),
    /// A file; empty for none.
    Path(PathBuf),
    Network(IpNet),
    Address(SocketAddr),
    /// An address without a port.
    Ip(IpAddr),
    List(Vec<Self>),
    /// The table that holds it counts once for each of these: `:25` is a listener for IPv4 and one for IPv6.
    Each(Vec<Self>),
}
