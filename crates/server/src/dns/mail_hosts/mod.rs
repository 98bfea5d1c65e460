//! Finds the hosts for mail of a domain: MX records, and the addresses of the hosts they name.
//!
//! The stop is resolve. The result is either hosts in the order to try them, or a reason why there are none, with the
//! one decision that matters: whether another try can help. Only a clear answer of the DNS is permanent; an answer
//! that looks broken is not.
//!
//! Not here: smart hosts and other routes of the configuration, which need [`Resolver::host_addresses`] only.

mod choose;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use mail::{DomainName, EnhancedCode, Outcome};

use super::shuffle::Shuffle;
use super::{CachedAnswer, Failure, Kind, QuestionLimit, Resolver, now};
use crate::config::{DNS_ADDRESSES_MAX, DNS_HOSTS_MAX, DnsOverride};
use choose::{Addresses, candidates, choose, order};

/// The least time for which callers keep an answer, whatever its time to live.
pub const HOLD_MIN: Duration = Duration::from_secs(5);
/// How long an answer of the configuration holds, and any answer at most.
const HOLD_MAX: Duration = Duration::from_secs(3_600);
/// When hosts without an answer are asked for again while others have one.
const HOLD_PART: Duration = Duration::from_secs(60);

/// Family of the addresses to use.
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

/// Names and addresses of this server, so that it does not send mail to itself.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LocalIdentity {
    /// `hostname` and all other names of this server, in any case, without the last dot.
    pub names: Vec<Box<str>>,
    /// Addresses on which this server listens for mail; an address of zeros for all addresses of this machine of its
    /// family.
    pub listeners: Vec<SocketAddr>,
    /// The addresses of this machine, if they are known; those that listeners name, and loopback, need not be here.
    /// See [`os::addresses`].
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

/// The hosts of a domain, in the order to try them; at least one, at most [`DNS_HOSTS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailHosts {
    /// By preference, and at random where that is the same.
    pub hosts: Vec<MailHost>,
    /// All names that mail goes to with their preferences, also of those hosts that have no address just now: the same
    /// for all domains with the same hosts, in no order.
    pub exchanges: Vec<(Box<str>, u16)>,
    /// When it has to be asked for again: the end of the shortest time to live in it, an hour away at most and
    /// [`HOLD_MIN`] at least.
    pub until: Instant,
    /// Some of it is out of date, and the name servers gave no other answer.
    pub is_stale: bool,
}

/// The addresses of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddresses {
    /// In the order to try; at least one, at most [`DNS_ADDRESSES_MAX`].
    pub addresses: Vec<IpAddr>,
    /// As [`MailHosts::until`].
    pub until: Instant,
}

impl MailHosts {
    /// Names and addresses in the order to try them; at most [`DNS_ADDRESSES_MAX`].
    pub fn addresses(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        self.hosts.iter().flat_map(|host| host.addresses.iter().map(|address| (&*host.name, *address)))
    }
}

/// Why there is no host to send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoHosts {
    /// Another try will not help.
    pub permanent: bool,
    /// For reports and log lines; its class agrees with `permanent`.
    pub status: EnhancedCode,
    /// In sendmail's words, for `stat=` and for reports.
    pub text: String,
    /// Our own resolver does not answer: the domain is not to blame.
    pub is_ours: bool,
}

/// RFC 3463 §3.2: bad destination system address.
const NO_SUCH_DOMAIN: EnhancedCode = EnhancedCode::of(Outcome::Permanent, 1, 2);
// RFC 7505 §4.1
const NULL_MX: EnhancedCode = EnhancedCode::of(Outcome::Permanent, 1, 10);
/// RFC 3463 §3.5: directory server failure.
const NO_ANSWER: EnhancedCode = EnhancedCode::of(Outcome::Transient, 4, 3);
/// RFC 3463 §3.5: unable to route.
const NO_ROUTE: EnhancedCode = EnhancedCode::of(Outcome::Permanent, 4, 4);
const NO_ROUTE_NOW: EnhancedCode = EnhancedCode::of(Outcome::Transient, 4, 4);
/// RFC 3463 §3.5: routing loop detected.
const LOOP: EnhancedCode = EnhancedCode::of(Outcome::Permanent, 4, 6);

impl NoHosts {
    fn permanent(status: EnhancedCode, text: impl Into<String>) -> Self {
        Self { permanent: true, status, text: text.into(), is_ours: false }
    }

    fn no_answer(name: &str, failure: Failure) -> Self {
        if failure == Failure::BadName {
            return Self::unknown(NO_SUCH_DOMAIN, name, false);
        }
        let text = format!("Name server: {name}: host name lookup failure");
        Self { permanent: false, status: NO_ANSWER, text, is_ours: failure == Failure::Skipped }
    }

    fn unknown(status: EnhancedCode, name: &str, exists: bool) -> Self {
        let what = if exists { "no data known" } else { "host not found" };
        Self::permanent(status, format!("Host unknown (Name server: {name}: {what})"))
    }

    /// Makes the failure for an address that is no mail host, whatever the name servers of the domain say.
    fn ignored(name: &str, ip: IpAddr) -> Self {
        let hint = if choose::is_host(ip) { "; see dns.ignored_addresses" } else { "" };
        Self::permanent(NO_ROUTE, format!("Host unreachable (Name server: {name}: no mail goes to {ip}{hint})"))
    }

    /// Makes the failure for a configuration that leads nowhere: no fault of a message.
    fn of_override(domain: &str, none: &Self) -> Self {
        let text = format!("config error: dns.override of {domain}: {}", none.text);
        Self { permanent: false, status: NO_ROUTE_NOW, text, is_ours: false }
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

impl LocalIdentity {
    fn is_name(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Returns whether a connection to this address ends at one of our listeners.
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

/// Parameters of a look-up.
#[derive(Clone, Copy)]
struct HostQuery<'a> {
    domain: &'a str,
    given: Option<&'a DnsOverride>,
    port: u16,
    us: &'a LocalIdentity,
    family: Family,
    seed: u64,
}

/// Time until which a result holds, and counts of the answers that it is made of.
#[derive(Clone, Debug, Default)]
struct Hold {
    until: Option<Instant>,
    is_stale: bool,
    /// The cache lacks an answer, and the caller wants no question.
    lacks: bool,
    /// Answers, and those of them that are out of date.
    answers: u64,
    stale_answers: u64,
    exchanges: Vec<(Box<str>, u16)>,
}

impl Hold {
    fn note(&mut self, known: &CachedAnswer) {
        let until = if known.answer.is_ok() { known.until } else { now() + HOLD_PART };
        self.add(Self {
            until: Some(until),
            is_stale: known.is_stale,
            lacks: matches!(known.answer, Err(Failure::NotKept)),
            answers: 1,
            stale_answers: known.is_stale.into(),
            exchanges: Vec::new(),
        });
    }

    fn add(&mut self, other: Self) {
        self.until = self.until.into_iter().chain(other.until).min();
        self.is_stale |= other.is_stale;
        self.lacks |= other.lacks;
        self.answers += other.answers;
        self.stale_answers += other.stale_answers;
    }

    fn until(self) -> Instant {
        let now = now();
        self.until.map_or(now + HOLD_MAX, |until| until.clamp(now + HOLD_MIN, now + HOLD_MAX))
    }
}

impl Resolver {
    /// Returns the hosts that take mail for `domain` at `port`, in the order to try them. `seed` orders hosts of
    /// equal preference and the addresses of each host: take another one for each connection, and the load is shared.
    ///
    /// `[[dns.override]]` comes before the DNS. Takes `dns.timeout` at most for the MX records and again for the
    /// addresses, and in a storm the time until it is its turn; no time where the cache has all.
    ///
    /// # Errors
    /// There is none, for now or for good. Never for good by the configuration, or by answers out of date.
    /// # Cancel safety
    /// Yes.
    pub async fn mail_hosts(
        &self,
        domain: &DomainName,
        port: u16,
        us: &LocalIdentity,
        family: Family,
        seed: u64,
    ) -> Result<MailHosts, NoHosts> {
        let domain = domain.ascii();
        let given = self.0.overrides.of(domain);
        self.state().counts.overridden += u64::from(given.is_some());
        let wanted = HostQuery { domain, given, port, us, family, seed };
        let mut hold = Hold::default();
        let mut found = self.look_up(wanted, false, &mut hold).await;
        if self.is_lacking(&hold) {
            hold = Hold::default();
            found = self.in_turn(self.look_up(wanted, true, &mut hold)).await;
        }
        match found {
            Ok(hosts) => {
                let exchanges = std::mem::take(&mut hold.exchanges);
                Ok(MailHosts { hosts, exchanges, is_stale: hold.is_stale, until: hold.until() })
            }
            Err(none) if none.permanent && given.is_some() => Err(NoHosts::of_override(domain, &none)),
            Err(none) if none.permanent && hold.is_stale => Err(NoHosts::no_answer(domain, Failure::Failed)),
            Err(none) => Err(none),
        }
    }

    /// Returns the addresses of a host that the configuration names, without a look at MX records, in the order to
    /// try them: IPv6 and IPv4 by turns, each in the order that `seed` gives.
    ///
    /// # Errors
    /// There is none, for now or for good. The DNS gives the permanent reason; but a wrong host in the configuration is
    /// no fault of a message, and the caller had better try again later.
    /// # Cancel safety
    /// Yes.
    pub async fn host_addresses(&self, name: &str, family: Family, seed: u64) -> Result<HostAddresses, NoHosts> {
        let (mut found, mut hold) = self.addresses_of(name, family, self.delivery_limit(false)).await;
        if self.is_lacking(&hold) {
            // The time limit begins with the turn.
            let asking = async { self.addresses_of(name, family, self.delivery_limit(true)).await };
            (found, hold) = self.in_turn(asking).await;
        }
        match found {
            Addresses::Some(mut addresses) => {
                order(&mut addresses, &mut Shuffle::new(seed));
                addresses.truncate(DNS_ADDRESSES_MAX);
                Ok(HostAddresses { addresses, until: hold.until() })
            }
            Addresses::None { exists } => Err(NoHosts::unknown(NO_SUCH_DOMAIN, name, exists)),
            Addresses::Ignored(ip) => Err(NoHosts::ignored(name, ip)),
            Addresses::Unknown(failure) => Err(NoHosts::no_answer(name, failure)),
        }
    }

    /// Returns whether a server has to be asked. A look-up that the cache answers takes no place, so names whose
    /// servers are silent do not hold it up.
    fn is_lacking(&self, hold: &Hold) -> bool {
        if !hold.lacks {
            let counts = &mut self.state().counts;
            counts.cached += hold.answers;
            counts.stale += hold.stale_answers;
        }
        hold.lacks
    }

    /// Looks up when it is its turn; a look-up that takes long lets others go on.
    async fn in_turn<F: Future>(&self, looking: F) -> F::Output {
        if self.0.lookups.is_full() {
            self.state().counts.lookups_waited += 1;
        }
        self.0.lookups.run(None, looking).await.expect("without a time limit it gets a place")
    }

    /// Without `asks` it ends at once, and `hold` notes whether the cache lacked something.
    async fn look_up(&self, wanted: HostQuery<'_>, asks: bool, hold: &mut Hold) -> Result<Vec<MailHost>, NoHosts> {
        let HostQuery { domain, given, port, us, family, seed } = wanted;
        let mut candidates = match given {
            Some(given) => choose::configured_candidates(domain, given),
            None => {
                let known = self.known(domain, Kind::Mx, self.delivery_limit(asks)).await;
                hold.note(&known);
                let found = known.answer.map_err(|failure| NoHosts::no_answer(domain, failure))?;
                if !found.exists && !self.is_in_hosts_file(domain) {
                    return Err(NoHosts::unknown(NO_SUCH_DOMAIN, domain, false));
                }
                candidates(domain, &found)?
            }
        };
        let named_us = candidates.iter().filter(|host| us.is_name(&host.name)).map(|host| host.preference).min();
        // RFC 5321 §5.1: an equal or worse preference than ours would bring the mail back to us
        candidates.retain(|host| named_us.is_none_or(|ours| host.preference < ours));
        if candidates.is_empty() {
            return Err(NoHosts::is_us());
        }
        hold.exchanges = candidates.iter().map(|host| (host.name.clone(), host.preference)).collect();
        let mut shuffle = Shuffle::new(seed);
        // RFC 5321 §5.1: hosts of equal preference at random
        shuffle.shuffle(&mut candidates);
        candidates.sort_by_key(|host| host.preference);
        candidates.truncate(DNS_HOSTS_MAX);

        let limit = self.delivery_limit(asks);
        let asking = candidates.iter().map(|host| async move {
            match host.address {
                Some(ip) => (Addresses::of(vec![ip], family), Hold::default()),
                None => self.addresses_of(&host.name, family, limit).await,
            }
        });
        let (mut answers, holds): (Vec<Addresses>, Vec<Hold>) =
            futures_util::future::join_all(asking).await.into_iter().unzip();
        holds.into_iter().for_each(|other| hold.add(other));
        for (host, answer) in candidates.iter().zip(&mut answers) {
            if given.is_none() && self.given_addresses(&host.name).is_none() {
                answer.ignore(&self.0.ignored_addresses);
            }
        }
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

    async fn addresses_of(&self, name: &str, family: Family, limit: QuestionLimit<'_>) -> (Addresses, Hold) {
        if let Some(given) = self.given_addresses(name) {
            return (Addresses::of(given.to_vec(), family), Hold::default());
        }
        let ask = async |kind, other_family| {
            if family == other_family { None } else { Some(self.known(name, kind, limit).await) }
        };
        let (six, four) = tokio::join!(ask(Kind::Aaaa, Family::Ipv4), ask(Kind::A, Family::Ipv6));
        let (mut addresses, mut exists, mut failure, mut hold) = (Vec::new(), false, None, Hold::default());
        for known in [six, four].into_iter().flatten() {
            hold.note(&known);
            match known.answer {
                Ok(found) => {
                    exists |= found.exists;
                    addresses.extend(found.addresses());
                }
                Err(reason) => failure = Some(reason),
            }
        }
        let addresses = match (Addresses::of(addresses, family), failure) {
            (known @ Addresses::Some(_), _) => known,
            (_, Some(reason)) => Addresses::Unknown(reason),
            (Addresses::None { .. }, None) => Addresses::None { exists },
            (ignored, None) => ignored,
        };
        (addresses, hold)
    }

    /// Returns the addresses that the configuration gives a host.
    fn given_addresses(&self, name: &str) -> Option<&[IpAddr]> {
        self.0.overrides.of(name).map(|given| &*given.address).filter(|given| !given.is_empty())
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
    /// Returns whether mail may be sent to addresses of this kind.
    const fn has(self, ip: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Ipv4 => ip.is_ipv4(),
            Self::Ipv6 => ip.is_ipv6(),
        }
    }
}
