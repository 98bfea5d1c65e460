//! Where a next hop listens.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Where a next hop listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// At an address.
    Socket(SocketAddr),
    /// A socket in the file system of this machine. The table of hosts has no state of it.
    Unix(PathBuf),
}

impl Endpoint {
    /// Returns the address, where there is one.
    pub(crate) const fn socket(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns whether another machine has another host there.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.ip().is_none_or(|ip| ip.is_loopback() || ip.is_unspecified())
    }

    /// Returns its IP address.
    pub(crate) const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Socket(address) => Some(address.ip()),
            Self::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Socket(address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
