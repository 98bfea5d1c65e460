//! `[[destination]]`: rules by next hop, and the values for one when the defaults are filled in.
//!
//! The stop is resolve: when it is known which queue mail waits in and which hosts take it, [`Config::rule_for`] says
//! with which limits, from which address and under which name it goes. The first rule that fits counts, alone: keys it
//! does not have come from `[delivery]` and `[route]`, not from a later rule.
//!
//! Pure: no rule depends on an address, so what holds for a next hop changes with the configuration and with the names
//! of its MX hosts only.

use super::{Config, Host, HostPort, Rate, RelayDomain, RouteTls};
use mail::DomainName;
use route::access::tag::is_group;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// One `[[destination]]` with all its values; those that were not set are the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationRule {
    /// Which next hops it is for; one that fits is enough.
    pub matches: Vec<NextHop>,
    /// Connections at once.
    pub connections: u32,
    /// Transactions over all connections.
    pub messages_per_second: Rate,
    /// Recipients of a message in one transaction.
    pub recipients_per_transaction: u32,
    /// Messages over one connection.
    pub messages_per_connection: u32,
    /// Where connections come from; at most one of each family.
    pub source: Vec<IpAddr>,
    /// The name for EHLO.
    pub hello: DomainName,
    /// TLS.
    pub tls: RouteTls,
    /// PIPELINING is used where it is offered.
    pub pipelining: bool,
    /// CHUNKING is.
    pub chunking: bool,
    /// SIZE is.
    pub size: bool,
    /// 8BITMIME is.
    pub eight_bit_mime: bool,
    /// DSN is.
    pub dsn: bool,
    /// In a cluster the limits hold for all nodes together.
    pub shared: bool,
}

/// A limit of next hops that an operator has set at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetLimit {
    /// The next hops.
    pub next_hop: NextHop,
    /// Connections at once, if that is limited.
    pub connections: Option<u32>,
    /// Transactions over all connections, if that is limited.
    pub messages_per_second: Option<Rate>,
}

/// Extensions that are used with a next hop that offers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedExtensions {
    /// PIPELINING
    pub pipelining: bool,
    /// CHUNKING
    pub chunking: bool,
    /// SIZE
    pub size: bool,
    /// 8BITMIME
    pub eight_bit_mime: bool,
    /// DSN
    pub dsn: bool,
}

/// The limits and settings that apply to a next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveRule {
    /// The rule, counted from 0 in the order of the file; `None` where none fits.
    pub index: Option<usize>,
    /// The limit that an operator has set, counted from 0 in [`Config::set_limits`]; `None` where none fits.
    pub set_limit: Option<usize>,
    /// Connections at once, at least one.
    pub connections: u32,
    /// Transactions in a thousand seconds over all connections: 500 is one in two seconds. `None`: as fast as it goes.
    pub messages_per_second: Option<u32>,
    /// Recipients of a message in one transaction, at least one.
    pub recipients_per_transaction: u32,
    /// Messages over one connection, at least one.
    pub messages_per_connection: u32,
    /// In a cluster connections and rate hold for all nodes together.
    pub is_shared: bool,
    /// Where connections to IPv4 come from; `None`: the kernel chooses.
    pub source4: Option<Ipv4Addr>,
    /// Where connections to IPv6 come from; `None`: the kernel chooses.
    pub source6: Option<Ipv6Addr>,
    /// The name for EHLO where it is not `hostname`, in its DNS form.
    pub hello: Option<Box<str>>,
    /// TLS.
    pub tls: RouteTls,
    /// Which extensions are used where they are offered.
    pub extensions: UsedExtensions,
}

impl Config {
    /// Returns the rule for the mail of a queue with the name `destination` that goes to MX hosts with the names `mx`.
    ///
    /// `mx` is empty for smart hosts and for address literals, and the domain itself where that is its own host. Names
    /// may end with a dot. Costs some nanoseconds for each entry of each rule.
    #[must_use]
    pub fn rule_for(&self, destination: &[u8], mx: &[&str]) -> EffectiveRule {
        let name = str::from_utf8(destination).unwrap_or_default();
        // Behind the hosts stands what mail has of its own.
        let mut words = name.split(' ');
        let target = Target::of(words.next().unwrap_or_default());
        let group = words.find_map(|word| word.strip_prefix("group=")).filter(|_| !matches!(target, Target::Other));
        let fits = |rule: &DestinationRule| rule.matches.iter().any(|next_hop| next_hop.fits(&target, mx, group));
        let found = self.destinations.iter().enumerate().find(|(_, rule)| fits(rule));
        let rule = found.map_or_else(|| self.rule_of_all(), |(index, rule)| self.rule_of(index, rule));
        let mut limits = self.set_limits.iter().enumerate();
        match limits.find(|(_, limit)| limit.next_hop.fits(&target, mx, group)) {
            Some((index, limit)) => limited(rule, index, limit),
            None => rule,
        }
    }

    fn rule_of(&self, index: usize, rule: &DestinationRule) -> EffectiveRule {
        EffectiveRule {
            index: Some(index),
            set_limit: None,
            connections: rule.connections,
            messages_per_second: rule.messages_per_second.limit(),
            recipients_per_transaction: rule.recipients_per_transaction,
            messages_per_connection: rule.messages_per_connection,
            is_shared: rule.shared,
            source4: rule.source.iter().find_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None }),
            source6: rule.source.iter().find_map(|ip| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None }),
            hello: (rule.hello.as_str() != self.hostname).then(|| rule.hello.ascii().into()),
            tls: rule.tls,
            extensions: UsedExtensions {
                pipelining: rule.pipelining,
                chunking: rule.chunking,
                size: rule.size,
                eight_bit_mime: rule.eight_bit_mime,
                dsn: rule.dsn,
            },
        }
    }

    /// Whether a rule is for a queue group.
    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        let is_it = |next_hop: &NextHop| matches!(next_hop, NextHop::Group(name) if **name == *group);
        self.destinations.iter().any(|rule| rule.matches.iter().any(is_it))
    }

    /// Returns the values that apply where no rule fits.
    fn rule_of_all(&self) -> EffectiveRule {
        EffectiveRule {
            index: None,
            set_limit: None,
            connections: self.delivery.connections_per_destination,
            messages_per_second: None,
            recipients_per_transaction: self.delivery.recipients_per_transaction,
            messages_per_connection: self.delivery.messages_per_connection,
            is_shared: false,
            source4: None,
            source6: None,
            hello: None,
            tls: self.route.tls,
            extensions: UsedExtensions {
                pipelining: self.delivery.pipelining,
                chunking: self.delivery.chunking,
                size: true,
                eight_bit_mime: true,
                dsn: true,
            },
        }
    }
}

/// Returns a rule with the limit that an operator has set.
fn limited(rule: EffectiveRule, index: usize, limit: &SetLimit) -> EffectiveRule {
    EffectiveRule {
        set_limit: Some(index),
        connections: limit.connections.unwrap_or(rule.connections).max(1),
        messages_per_second: limit.messages_per_second.map_or(rule.messages_per_second, Rate::limit),
        ..rule
    }
}

/// The name of a queue, read once for all rules.
enum Target {
    Domain(DomainName),
    Literal(IpAddr),
    SmartHosts(Vec<HostPort>),
    /// Nothing that a rule can name.
    Other,
}

impl Target {
    fn of(name: &str) -> Self {
        // As `resolve::smart_hosts` writes it.
        if let Some(hosts) = name.strip_prefix("smtp:").or_else(|| name.strip_prefix("lmtp:")) {
            let hosts = hosts.split([',', '(', ')', '|']).filter_map(|host| host.parse().ok());
            return Self::SmartHosts(hosts.collect());
        }
        match name.parse::<Host>() {
            Ok(Host::Name(name)) => Self::Domain(name),
            Ok(Host::Address(ip)) => Self::Literal(ip),
            Err(_) => Self::Other,
        }
    }
}

/// An entry of `destination.match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// `example.com`, `.example.com`: a domain, or with all below it.
    Domain(RelayDomain),
    /// `[192.0.2.1]`: mail to users at this address.
    Literal(IpAddr),
    /// `mx:*.example.com`: domains one of whose MX hosts has such a name.
    Mx(MxPattern),
    /// `hop:smart.example.com:25`: a host of `route.smart_host`.
    Hop(HostPort),
    /// `group:slow`: mail of a queue group, wherever it goes.
    Group(Box<str>),
}

impl NextHop {
    fn fits(&self, target: &Target, mx: &[&str], group: Option<&str>) -> bool {
        match (self, target) {
            (Self::Group(name), _) => group == Some(name),
            (Self::Domain(domain), Target::Domain(name)) => domain.matches(name),
            (Self::Literal(ip), Target::Literal(other)) => ip == other,
            (Self::Mx(pattern), Target::Domain(_)) => mx.iter().any(|name| pattern.matches(name)),
            (Self::Hop(hop), Target::SmartHosts(hosts)) => hosts.iter().any(|host| host.is_same(hop)),
            _ => false,
        }
    }

    /// Returns the entry that the writer of a wrong text may have meant; the caller reads it before proposing it.
    pub(super) fn meant(text: &str) -> Option<String> {
        if let Some(pattern) = text.strip_prefix("mx:") {
            let pattern = pattern.trim_end_matches('.');
            return Some(match pattern.strip_prefix('.') {
                Some(below) => format!("mx:*.{below}"),
                None => format!("mx:{pattern}"),
            });
        }
        if let Some(below) = text.strip_prefix("*.") {
            return Some(format!(".{}", below.trim_end_matches('.')));
        }
        if text.parse::<IpAddr>().is_ok() {
            return Some(format!("[{text}]"));
        }
        if text.parse::<HostPort>().is_ok() {
            return Some(format!("hop:{text}"));
        }
        let name = text.trim_start_matches('@').trim_end_matches('.');
        (name != text).then(|| name.to_owned())
    }
}

impl FromStr for NextHop {
    type Err = NoNextHop;

    fn from_str(text: &str) -> Result<Self, NoNextHop> {
        if let Some(pattern) = text.strip_prefix("mx:") {
            return pattern.parse().map(Self::Mx);
        }
        if let Some(hop) = text.strip_prefix("hop:") {
            return hop.parse().map(Self::Hop).map_err(|_| NoNextHop);
        }
        if let Some(group) = text.strip_prefix("group:") {
            return if is_group(group) { Ok(Self::Group(group.into())) } else { Err(NoNextHop) };
        }
        if text.starts_with('[') {
            return match text.parse() {
                Ok(Host::Address(ip)) => Ok(Self::Literal(ip)),
                _ => Err(NoNextHop),
            };
        }
        // An address without brackets is no domain.
        if text.parse::<IpAddr>().is_ok() {
            return Err(NoNextHop);
        }
        text.parse().map(Self::Domain).map_err(|_| NoNextHop)
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(domain) => domain.fmt(f),
            Self::Literal(ip) => write!(f, "[{ip}]"),
            Self::Mx(pattern) => write!(f, "mx:{pattern}"),
            Self::Hop(hop) => write!(f, "hop:{hop}"),
            Self::Group(group) => write!(f, "group:{group}"),
        }
    }
}

/// The text names no next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNextHop;

/// A host name in which `*` stands for any letters, dots among them, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MxPattern(Box<str>);

impl MxPattern {
    /// Whether a host has such a name; case does not matter, nor a dot at the end.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.strip_suffix('.').unwrap_or(name).as_bytes());
        let (mut p, mut n) = (0, 0);
        // Behind the last star, and where its letters end for now: only the last one has to be tried anew.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match (pattern.get(p), name.get(n)) {
                (Some(b'*'), _) => {
                    p += 1;
                    star = Some((p, n));
                }
                (Some(letter), Some(other)) if letter.eq_ignore_ascii_case(other) => (p, n) = (p + 1, n + 1),
                _ => match &mut star {
                    Some((behind, end)) => {
                        *end += 1;
                        (p, n) = (*behind, *end);
                    }
                    None => return false,
                },
            }
        }
        pattern.get(p..).is_some_and(|rest| rest.iter().all(|letter| *letter == b'*'))
    }
}

impl FromStr for MxPattern {
    type Err = NoNextHop;

    fn from_str(text: &str) -> Result<Self, NoNextHop> {
        // With letters in place of the stars it is a name.
        let is_name = text.is_ascii() && DomainName::new(&text.replace('*', "x")).is_ok();
        if is_name { Ok(Self(text.to_ascii_lowercase().into())) } else { Err(NoNextHop) }
    }
}

impl fmt::Display for MxPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
