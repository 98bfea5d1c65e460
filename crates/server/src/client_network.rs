//! The client that a limit counts.

use std::net::IpAddr;

/// A client, or an IPv6 network, that shares the limits per client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientNetwork {
    V4(u32),
    V6(u64),
}

impl ClientNetwork {
    /// Returns the client that has this address.
    pub(crate) fn new(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip.to_bits()),
            IpAddr::V6(ip) => Self::V6(u64::try_from(ip.to_bits() >> 64).expect("64 bits are left")),
        }
    }
}
