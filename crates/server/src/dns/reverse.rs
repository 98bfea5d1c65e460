//! The name of a client's address, which counts only when its addresses contain the client's.

use std::net::IpAddr;

use hickory_resolver::proto::rr::Name;
use mail::DomainName;

use super::{Data, Kind, Resolver};

/// Names of one address that are tried; an address with more is a shared one.
const NAMES_MAX: usize = 4;

/// Name of a client by the DNS.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ClientName {
    /// The name, whose addresses contain the client's.
    Verified(Box<str>),
    /// The address has this name, but the name does not have this address: `may be forged` in logs and trace lines.
    Forged(Box<str>),
    /// The address has no name.
    None,
    /// Not asked, or the DNS gave no answer in time.
    #[default]
    Unknown,
}

impl ClientName {
    /// Returns the name, if it is verified: the only one that may decide anything.
    #[must_use]
    pub fn verified(&self) -> Option<&str> {
        if let Self::Verified(name) = self { Some(name) } else { None }
    }
}

impl Resolver {
    /// Returns the name of an address. Takes `dns.timeout` at most for all its questions together.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn reverse(&self, ip: IpAddr) -> ClientName {
        let ip = ip.to_canonical();
        // RFC 6761 §6.3: the name belongs to these addresses, whatever a server answers; some do not know them.
        if ip.is_loopback() {
            return ClientName::Verified("localhost".into());
        }
        let limit = self.limit(self.0.timeout);
        let Ok(found) = self.ask(&Name::from(ip).to_ascii(), Kind::Ptr, limit).await else {
            return ClientName::Unknown;
        };
        // Foreign bytes: only host names come through.
        let names = found.records.iter().filter_map(|data| match data {
            Data::Name(name) => DomainName::new(name.strip_suffix('.').unwrap_or(name)).ok(),
            Data::Address(_) | Data::Exchange { .. } | Data::Text(_) => None,
        });
        let (mut forged, mut unknown) = (None, false);
        for name in names.take(NAMES_MAX) {
            let kind = if ip.is_ipv4() { Kind::A } else { Kind::Aaaa };
            match self.addresses(name.as_str(), kind, limit).await {
                Ok(addresses) if addresses.contains(&ip) => return ClientName::Verified(name.as_str().into()),
                Ok(_) => forged = forged.or(Some(name)),
                Err(_) => unknown = true,
            }
        }
        match forged {
            _ if unknown => ClientName::Unknown,
            Some(name) => ClientName::Forged(name.as_str().into()),
            None => ClientName::None,
        }
    }
}
