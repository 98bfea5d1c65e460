//! Where mail for a domain goes: MX records, and the addresses of the hosts they name.
//!
//! The stop is resolve. The DNS's answer is either hosts in the order to try them, or a reason why there are none, with
//! the one decision that matters: whether another try can help. Only a clear answer of the DNS is permanent; whatever
//! looks broken is not.
//!
//! Not here: smart hosts and other routes of the configuration, which need [`Resolver::host_addresses`] only.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use mail::{DomainName, EnhancedCode};

use super::Resolver;

/// Hosts of one domain that are returned.
pub const HOSTS_MAX: usize = 16;
/// Addresses of all hosts of one domain together that are returned.
pub const ADDRESSES_MAX: usize = 32;

/// What addresses to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Family {
    /// IPv6 and IPv4.
    #[default]
    Any,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

/// Who we are, so that mail is not sent to ourselves.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ourselves {
    /// `hostname` and all other names that we go by, in any case, without the last dot.
    pub names: Vec<Box<str>>,
    /// Where we listen for mail; an address of zeros for all addresses of this machine.
    pub listeners: Vec<SocketAddr>,
    /// The addresses of this machine, if they are known; those that listeners name and loopback need not be here.
    pub addresses: Vec<IpAddr>,
}

/// One host that takes mail for a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailHost {
    /// Lower case, without the last dot.
    pub name: Box<str>,
    /// In the order to try; at least one.
    pub addresses: Vec<IpAddr>,
    /// Of the MX record; 0 where the domain has none and is its own host.
    pub preference: u16,
}

/// The hosts of a domain, in the order to try them; at least one, at most [`HOSTS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailHosts {
    /// By preference, and at random where that is the same.
    pub hosts: Vec<MailHost>,
}

impl MailHosts {
    /// Names and addresses in the order to try them; at most [`ADDRESSES_MAX`].
    pub fn addresses(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        self.hosts.iter().flat_map(|host| host.addresses.iter().map(|address| (&*host.name, *address)))
    }
}

/// Why there is no host to send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoHosts {
    /// Another try will not help.
    pub permanent: bool,
    /// For reports and log lines; its class says the same as `permanent`.
    pub status: EnhancedCode,
    /// In sendmail's words, for `stat=` and for reports.
    pub text: String,
}

impl fmt::Display for NoHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for NoHosts {}

impl Resolver {
    /// The hosts that take mail for `domain` at `port`, in the order to try them. `seed` orders hosts of equal preference
    /// and the addresses of each host: take another one for each connection, and the load is shared.
    ///
    /// Takes `dns.timeout` at most for the MX records and again for the addresses, and in a storm the time until it is
    /// its turn.
    ///
    /// # Errors
    /// There is none, for now or for good.
    /// # Cancel safety
    /// Cancel safe.
    #[expect(clippy::unused_async, reason = "being written")]
    pub async fn mail_hosts(
        &self,
        _domain: &DomainName,
        _port: u16,
        _us: &Ourselves,
        _family: Family,
        _seed: u64,
    ) -> Result<MailHosts, NoHosts> {
        Err(NoHosts {
            permanent: false,
            status: EnhancedCode::of(mail::Outcome::Transient, 4, 3),
            text: "being written".to_owned(),
        })
    }

    /// The addresses of a host that the configuration names, without a look at MX records, in the order to try them: IPv6
    /// and IPv4 by turns, each in the order that `seed` gives.
    ///
    /// # Errors
    /// There is none, for now or for good. A permanent reason is what the DNS says; that the configuration names such a
    /// host is no fault of a message, and the caller had better try again later.
    /// # Cancel safety
    /// Cancel safe.
    #[expect(clippy::unused_async, reason = "being written")]
    pub async fn host_addresses(&self, _name: &str, _family: Family, _seed: u64) -> Result<Vec<IpAddr>, NoHosts> {
        Err(NoHosts {
            permanent: false,
            status: EnhancedCode::of(mail::Outcome::Transient, 4, 3),
            text: "being written".to_owned(),
        })
    }
}
