//! Chooses hosts: candidates of an MX answer, and of them those that have addresses, in their order. Pure.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use mail::DomainName;

use super::super::shuffle::Shuffle;
use super::super::{Data, Failure, RecordSet};
use super::{Family, MailHost, NO_ROUTE, NO_SUCH_DOMAIN, NULL_MX, NoHosts};
use crate::config::{DNS_ADDRESSES_MAX, DnsOverride, Host};

/// A host that may take the mail, before its addresses are known.
#[derive(Debug)]
pub(super) struct HostCandidate {
    pub(super) preference: u16,
    pub(super) name: Box<str>,
    /// Where it is an address, with the name in brackets.
    pub(super) address: Option<IpAddr>,
}

/// Answer of the DNS about the addresses of a host.
#[derive(Clone, Debug)]
pub(super) enum Addresses {
    Some(Vec<IpAddr>),
    /// There are none; and whether the name exists.
    None {
        exists: bool,
    },
    /// No mail goes to any of them; this one is the first.
    Ignored(IpAddr),
    Unknown(Failure),
}

impl Addresses {
    /// Returns the addresses to which mail of this family can go.
    pub(super) fn of(addresses: Vec<IpAddr>, family: Family) -> Self {
        let mut addresses: Vec<IpAddr> =
            addresses.into_iter().map(|ip| ip.to_canonical()).filter(|ip| family.has(*ip)).collect();
        let first = addresses.first().copied();
        addresses.retain(|ip| is_host(*ip));
        match first {
            None => Self::None { exists: true },
            Some(ip) if addresses.is_empty() => Self::Ignored(ip),
            Some(_) => Self::Some(addresses),
        }
    }

    /// Removes addresses that the DNS of another domain must not name: those of `networks`, also where they are
    /// embedded in an IPv6 address.
    pub(super) fn ignore(&mut self, networks: &[IpNet]) {
        let Self::Some(addresses) = self else { return };
        let first = addresses.first().copied();
        let is_ignored = |ip: &IpAddr| networks.iter().any(|network| network.contains(ip));
        addresses.retain(|ip| !is_ignored(ip) && embedded(*ip).is_none_or(|ip| is_host(ip) && !is_ignored(&ip)));
        if let (true, Some(ip)) = (addresses.is_empty(), first) {
            *self = Self::Ignored(ip);
        }
    }
}

/// Returns whether an address can be that of a host, if any.
pub(super) fn is_host(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[0] != 0 && !ip.is_broadcast() && !ip.is_multicast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    }
}

/// Returns the IPv4 address to which a translator or a tunnel sends packets for this one.
// RFC 6052 §2.1: 64:ff9b::/96; RFC 3056 §2: 2002::/16
fn embedded(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(ip) = ip else { return None };
    let octets = ip.octets();
    let four = match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => octets.last_chunk(),
        [0x2002, ..] => octets.get(2..6).and_then(|four| four.first_chunk()),
        _ => None,
    };
    four.map(|four: &[u8; 4]| Ipv4Addr::from(*four).into())
}

/// Returns the hosts that the configuration names for a domain, each once.
pub(super) fn configured_candidates(domain: &str, given: &DnsOverride) -> Vec<HostCandidate> {
    if given.mx.is_empty() {
        return vec![HostCandidate { preference: 0, name: domain.into(), address: None }];
    }
    let mut hosts: Vec<HostCandidate> = Vec::new();
    for (preference, group) in (0..).zip(&given.mx) {
        for host in group {
            let (name, address): (Box<str>, _) = match host {
                Host::Name(name) => (name.ascii().into(), None),
                Host::Address(ip) => (format!("[{ip}]").into(), Some(*ip)),
            };
            if hosts.iter().all(|other| other.name != name) {
                hosts.push(HostCandidate { preference, name, address });
            }
        }
    }
    hosts
}

/// Returns the hosts that an answer to the question for MX records names, each once; the domain itself if there are
/// no records.
pub(super) fn candidates(domain: &str, found: &RecordSet) -> Result<Vec<HostCandidate>, NoHosts> {
    // RFC 5321 §5.1: without MX records the domain is its own host, of preference 0
    if found.records.is_empty() {
        return Ok(vec![HostCandidate { preference: 0, name: domain.into(), address: None }]);
    }
    let exchanges = || {
        found.records.iter().filter_map(|data| match data {
            Data::Exchange { preference, name } => Some((*preference, &**name)),
            Data::Address(_) | Data::Name(_) | Data::Text(_) => None,
        })
    };
    // RFC 7505 §3; beside other records it means nothing, and is no host name either
    if exchanges().all(|(_, name)| name == ".") {
        return Err(NoHosts::permanent(NULL_MX, format!("{domain} does not accept mail (null MX, RFC 7505)")));
    }
    let mut hosts: Vec<HostCandidate> = Vec::new();
    // Foreign bytes: only host names come through. An address here is a mistake that other servers do not accept
    // either.
    for (preference, name) in exchanges() {
        let Ok(name) = DomainName::new(name.strip_suffix('.').unwrap_or(name)) else { continue };
        let name = name.ascii();
        if name.parse::<IpAddr>().is_ok() {
            continue;
        }
        match hosts.iter_mut().find(|host| *host.name == *name) {
            Some(host) => host.preference = host.preference.min(preference),
            None => hosts.push(HostCandidate { preference, name: name.into(), address: None }),
        }
    }
    // RFC 5321 §5.1: MX records of which none can be used are an error; the domain's own address is not asked for
    if hosts.is_empty() {
        return Err(NoHosts::permanent(
            NO_ROUTE,
            format!("Host unknown (Name server: {domain}: MX records name no host)"),
        ));
    }
    Ok(hosts)
}

/// Takes the hosts that have addresses, within the limits. `is_ours`: all these hosts are this server.
pub(super) fn choose(
    domain: &str,
    found: Vec<(HostCandidate, Addresses)>,
    is_ours: bool,
    shuffle: &mut Shuffle,
) -> Result<Vec<MailHost>, NoHosts> {
    let (mut hosts, mut known): (Vec<MailHost>, Vec<(HostCandidate, Vec<IpAddr>)>) = (Vec::new(), Vec::new());
    let (mut unknown, mut ignored, mut none) = (None, None, None);
    for (host, answer) in found {
        match answer {
            Addresses::Some(addresses) => known.push((host, addresses)),
            Addresses::Unknown(failure) => unknown = unknown.or_else(|| Some(NoHosts::no_answer(&host.name, failure))),
            Addresses::Ignored(ip) => ignored = ignored.or_else(|| Some(NoHosts::ignored(&host.name, ip))),
            Addresses::None { exists } => {
                let status = if *host.name == *domain { NO_SUCH_DOMAIN } else { NO_ROUTE };
                none = none.or_else(|| Some(NoHosts::unknown(status, &host.name, exists)));
            }
        }
    }
    // Two names of the same machine are not two machines: an address belongs to the first host that has it.
    let mut owned = HashSet::new();
    for (_, addresses) in &mut known {
        addresses.retain(|ip| owned.insert(*ip));
    }
    known.retain(|(_, addresses)| !addresses.is_empty());
    let (mut room, mut later) = (DNS_ADDRESSES_MAX, known.len());
    for (host, mut addresses) in known {
        later -= 1;
        order(&mut addresses, shuffle);
        // Each host leaves room for one address of each host behind it.
        addresses.truncate(room.saturating_sub(later));
        room -= addresses.len();
        if !addresses.is_empty() {
            hosts.push(MailHost { name: host.name, addresses, preference: host.preference });
        }
    }
    match unknown {
        _ if !hosts.is_empty() => Ok(hosts),
        // Other hosts without addresses do not matter while this one may have some.
        Some(reason) => Err(reason),
        None if is_ours => Err(NoHosts::is_us()),
        None => Err(ignored.or(none).unwrap_or_else(|| NoHosts::unknown(NO_ROUTE, domain, true))),
    }
}

/// Brings addresses of one host into the order to try them: IPv6 and IPv4 by turns, so that neither a dead IPv6 nor a
/// dead IPv4 costs more than one try, each kind at random.
pub(super) fn order(addresses: &mut Vec<IpAddr>, shuffle: &mut Shuffle) {
    addresses.sort_unstable();
    addresses.dedup();
    *addresses = shuffle.by_family(std::mem::take(addresses), IpAddr::is_ipv6);
}
