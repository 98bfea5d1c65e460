//! The other side of a conversation, as sendmail's log names it.

use std::net::IpAddr;

/// The peer of a connection: the value of `relay=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relay<'a> {
    /// A client on the network: `name [ip]`, `[ip]` or `name [ip] (may be forged)`; IPv6 as `[IPv6:2001:db8::1]`.
    Host {
        /// The name that the DNS gives for the address, if it gives one.
        name: Option<&'a str>,
        /// After PROXY protocol and XCLIENT, if those are in use.
        address: IpAddr,
        /// The name does not lead back to the address.
        may_be_forged: bool,
    },
    /// A process on this machine: `user@localhost`.
    Local {
        /// The login name of its user, or the number if there is no name.
        user: &'a str,
    },
}

impl Relay<'_> {
    /// A client whose name is not known.
    #[must_use]
    pub const fn address(address: IpAddr) -> Self {
        Self::Host { name: None, address, may_be_forged: false }
    }
}
