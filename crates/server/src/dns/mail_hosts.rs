//! Where mail for a domain goes: MX records, and the addresses of the hosts they name.
//!
//! The stop is resolve. The DNS's answer is either hosts in the order to try them, or a reason why there are none, with
//! the one decision that matters: whether another try can help. Only a clear answer of the DNS is permanent; whatever
//! looks broken is not.
//!
//! Not here: smart hosts and other routes of the configuration, which need [`Resolver::host_addresses`] only.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use mail::{DomainName, EnhancedCode, Outcome};
use tokio::sync::SemaphorePermit;

use super::shuffle::Shuffle;
use super::{Data, Failure, Found, Kind, Limit, Resolver, together};

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
    /// Where we listen for mail; an address of zeros for all addresses of this machine of its family.
    pub listeners: Vec<SocketAddr>,
    /// The addresses of this machine, if they are known; those that listeners name, and loopback, need not be here.
    /// See [`crate::env::addresses`].
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

/// RFC 3463 §3.2: bad destination system address.
const NO_SUCH_DOMAIN: EnhancedCode = EnhancedCode::of(Outcome::Permanent, 1, 2);
// RFC 7505 §4.1
const NULL_MX: EnhancedCode = EnhancedCode::of(Outcome::Permanent, 1, 10);
/// RFC 3463 §3.5: directory server failure.
const NO_ANSWER: EnhancedCode = EnhancedCode::of(Outcome::Transient, 4, 3);
/// RFC 3463 §3.5: unable to route.
const NO_ROUTE: EnhancedCode = EnhancedCode::of(Outcome::Permanent, 4, 4);
/// RFC 3463 §3.5: routing loop detected.
const LOOP: EnhancedCode = EnhancedCode::of(Outcome::Permanent, 4, 6);

impl NoHosts {
    fn permanent(status: EnhancedCode, text: impl Into<String>) -> Self {
        Self { permanent: true, status, text: text.into() }
    }

    fn no_answer(name: &str, failure: Failure) -> Self {
        if failure == Failure::BadName {
            return Self::unknown(NO_SUCH_DOMAIN, name, false);
        }
        let text = format!("Name server: {name}: host name lookup failure");
        Self { permanent: false, status: NO_ANSWER, text }
    }

    fn unknown(status: EnhancedCode, name: &str, exists: bool) -> Self {
        let what = if exists { "no data known" } else { "host not found" };
        Self::permanent(status, format!("Host unknown (Name server: {name}: {what})"))
    }

    fn is_us() -> Self {
        Self::permanent(LOOP, "config error: mail loops back to me (MX problem?)")
    }
}

impl fmt::Display for NoHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for NoHosts {}

impl Ourselves {
    fn is_name(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Whether a connection to this address ends at one of our listeners.
    fn is_address(&self, ip: IpAddr, port: u16) -> bool {
        let ip = ip.to_canonical();
        let is_here = || {
            ip.is_loopback()
                || self.addresses.iter().any(|own| own.to_canonical() == ip)
                || self.listeners.iter().any(|listener| listener.ip().to_canonical() == ip)
        };
        self.listeners.iter().filter(|listener| listener.port() == port).any(|listener| {
            let own = listener.ip().to_canonical();
            own == ip || (own.is_unspecified() && own.is_ipv4() == ip.is_ipv4() && is_here())
        })
    }
}

/// A host that may take the mail, before its addresses are known.
#[derive(Debug)]
struct Candidate {
    preference: u16,
    name: Box<str>,
}

/// What the DNS says about the addresses of a host.
#[derive(Clone, Debug)]
enum Addresses {
    Some(Vec<IpAddr>),
    /// There are none; and whether the name exists.
    None {
        exists: bool,
    },
    Unknown(Failure),
}

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
    pub async fn mail_hosts(
        &self,
        domain: &DomainName,
        port: u16,
        us: &Ourselves,
        family: Family,
        seed: u64,
    ) -> Result<MailHosts, NoHosts> {
        let _turn = self.turn().await;
        let domain = domain.ascii();
        let found = self.ask(domain, Kind::Mx, self.delivery_limit()).await;
        let found = found.map_err(|failure| NoHosts::no_answer(domain, failure))?;
        if !found.exists && !self.is_in_hosts_file(domain) {
            return Err(NoHosts::unknown(NO_SUCH_DOMAIN, domain, false));
        }
        let mut candidates = candidates(domain, &found)?;
        let named_us = candidates.iter().filter(|host| us.is_name(&host.name)).map(|host| host.preference).min();
        // RFC 5321 §5.1: an equal or worse preference than ours would bring the mail back to us
        candidates.retain(|host| named_us.is_none_or(|ours| host.preference < ours));
        if candidates.is_empty() {
            return Err(NoHosts::is_us());
        }
        let mut shuffle = Shuffle::new(seed);
        // RFC 5321 §5.1: hosts of equal preference at random
        shuffle.shuffle(&mut candidates);
        candidates.sort_by_key(|host| host.preference);
        candidates.truncate(HOSTS_MAX);

        let limit = self.delivery_limit();
        let asking = candidates.iter().map(|host| self.addresses_of(&host.name, family, limit));
        let answers = together::all(asking).await;
        let is_us = |ip: &IpAddr| us.is_address(*ip, port);
        let ours = candidates.iter().zip(&answers).filter_map(|(host, answer)| match answer {
            Addresses::Some(addresses) if addresses.iter().any(is_us) => Some(host.preference),
            _ => None,
        });
        let ours = ours.chain(named_us).min();
        let all = candidates.into_iter().zip(answers);
        let better = all.filter(|(host, _)| ours.is_none_or(|ours| host.preference < ours)).collect();
        choose(domain, better, ours.is_some(), &mut shuffle)
    }

    /// The addresses of a host that the configuration names, without a look at MX records, in the order to try them: IPv6
    /// and IPv4 by turns, each in the order that `seed` gives.
    ///
    /// # Errors
    /// There is none, for now or for good. A permanent reason is what the DNS says; that the configuration names such a
    /// host is no fault of a message, and the caller had better try again later.
    /// # Cancel safety
    /// Cancel safe.
    pub async fn host_addresses(&self, name: &str, family: Family, seed: u64) -> Result<Vec<IpAddr>, NoHosts> {
        let _turn = self.turn().await;
        match self.addresses_of(name, family, self.delivery_limit()).await {
            Addresses::Some(mut addresses) => {
                order(&mut addresses, &mut Shuffle::new(seed));
                addresses.truncate(ADDRESSES_MAX);
                Ok(addresses)
            }
            Addresses::None { exists } => Err(NoHosts::unknown(NO_SUCH_DOMAIN, name, exists)),
            Addresses::Unknown(failure) => Err(NoHosts::no_answer(name, failure)),
        }
    }

    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(turn) = self.0.lookups.try_acquire() {
            return Some(turn);
        }
        self.state().counts.lookups_waited += 1;
        // Nobody closes it.
        self.0.lookups.acquire().await.ok()
    }

    async fn addresses_of(&self, name: &str, family: Family, limit: Limit<'_>) -> Addresses {
        let ask = async |kind, other_family| {
            if family == other_family { None } else { Some(self.ask(name, kind, limit).await) }
        };
        let (six, four) = tokio::join!(ask(Kind::Aaaa, Family::Ipv4), ask(Kind::A, Family::Ipv6));
        let (mut addresses, mut exists, mut failure) = (Vec::new(), false, None);
        for answer in [six, four].into_iter().flatten() {
            match answer {
                Ok(found) => {
                    exists |= found.exists;
                    addresses.extend(found.addresses().map(|ip| ip.to_canonical()).filter(|ip| family.has(*ip)));
                }
                Err(reason) => failure = Some(reason),
            }
        }
        match failure {
            _ if !addresses.is_empty() => Addresses::Some(addresses),
            Some(reason) => Addresses::Unknown(reason),
            None => Addresses::None { exists },
        }
    }

    fn is_in_hosts_file(&self, name: &str) -> bool {
        let Ok(mut name) = Name::from_ascii(name) else { return false };
        name.set_fqdn(true);
        [RecordType::A, RecordType::AAAA]
            .into_iter()
            .any(|kind| self.0.hosts.lookup_static_host(&Query::query(name.clone(), kind)).is_some())
    }
}

impl Family {
    /// Whether mail can be sent to this address, and may be.
    fn has(self, ip: IpAddr) -> bool {
        let (is_host, family) = match ip {
            IpAddr::V4(ip) => (ip.octets()[0] != 0 && !ip.is_broadcast() && !ip.is_multicast(), Self::Ipv4),
            IpAddr::V6(ip) => (!ip.is_unspecified() && !ip.is_multicast(), Self::Ipv6),
        };
        is_host && (self == Self::Any || self == family)
    }
}

/// The hosts that an answer to the question for MX records names, each once; the domain itself if there are no records.
fn candidates(domain: &str, found: &Found) -> Result<Vec<Candidate>, NoHosts> {
    // RFC 5321 §5.1: without MX records the domain is its own host, of preference 0
    if found.records.is_empty() {
        return Ok(vec![Candidate { preference: 0, name: domain.into() }]);
    }
    let exchanges = || {
        found.records.iter().filter_map(|data| match data {
            Data::Exchange { preference, name } => Some((*preference, &**name)),
            Data::Address(_) | Data::Name(_) => None,
        })
    };
    // RFC 7505 §3; beside other records it means nothing, and is no host name either
    if exchanges().all(|(_, name)| name == ".") {
        return Err(NoHosts::permanent(NULL_MX, format!("{domain} does not accept mail (null MX, RFC 7505)")));
    }
    let mut hosts: Vec<Candidate> = Vec::new();
    // Foreign bytes: only what is a host name comes through. An address here is a mistake that others do not forgive either.
    for (preference, name) in exchanges() {
        let Ok(name) = DomainName::new(name.strip_suffix('.').unwrap_or(name)) else { continue };
        let name = name.ascii();
        if name.parse::<IpAddr>().is_ok() {
            continue;
        }
        match hosts.iter_mut().find(|host| *host.name == *name) {
            Some(host) => host.preference = host.preference.min(preference),
            None => hosts.push(Candidate { preference, name: name.into() }),
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

/// Takes the hosts that have addresses, within the limits. `is_ours` says that we are behind all these hosts.
fn choose(
    domain: &str,
    found: Vec<(Candidate, Addresses)>,
    is_ours: bool,
    shuffle: &mut Shuffle,
) -> Result<MailHosts, NoHosts> {
    let (mut hosts, mut known, mut taken): (Vec<MailHost>, _, HashSet<IpAddr>) =
        (Vec::new(), Vec::new(), HashSet::new());
    let (mut unknown, mut none) = (None, None);
    for (host, answer) in found {
        match answer {
            Addresses::Some(addresses) => known.push((host, addresses)),
            Addresses::Unknown(failure) => unknown = unknown.or_else(|| Some(NoHosts::no_answer(&host.name, failure))),
            Addresses::None { exists } => {
                let status = if *host.name == *domain { NO_SUCH_DOMAIN } else { NO_ROUTE };
                none = none.or_else(|| Some(NoHosts::unknown(status, &host.name, exists)));
            }
        }
    }
    let mut later = known.len();
    for (host, mut addresses) in known {
        later -= 1;
        // A name for the same machine is not another machine.
        addresses.retain(|ip| !taken.contains(ip));
        order(&mut addresses, shuffle);
        // Each host keeps room for one address of those behind it.
        addresses.truncate(ADDRESSES_MAX.saturating_sub(taken.len() + later));
        taken.extend(&addresses);
        if !addresses.is_empty() {
            hosts.push(MailHost { name: host.name, addresses, preference: host.preference });
        }
    }
    match unknown {
        _ if !hosts.is_empty() => Ok(MailHosts { hosts }),
        // What the others lack does not matter while one of them may have it.
        Some(reason) => Err(reason),
        None if is_ours => Err(NoHosts::is_us()),
        None => Err(none.unwrap_or_else(|| NoHosts::unknown(NO_ROUTE, domain, true))),
    }
}

/// Brings addresses of one host into the order to try them: IPv6 and IPv4 by turns, so that neither a dead IPv6 nor a dead
/// IPv4 costs more than one try, each kind at random.
fn order(addresses: &mut Vec<IpAddr>, shuffle: &mut Shuffle) {
    addresses.sort_unstable();
    addresses.dedup();
    shuffle.shuffle(addresses);
    let (four, six): (Vec<IpAddr>, Vec<IpAddr>) = addresses.drain(..).partition(IpAddr::is_ipv4);
    let both = four.len().min(six.len());
    let (mut four, mut six) = (four.into_iter(), six.into_iter());
    for _ in 0..both {
        addresses.extend(six.next().into_iter().chain(four.next()));
    }
    addresses.extend(six.chain(four));
}
