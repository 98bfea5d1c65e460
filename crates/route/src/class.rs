//! The names of this host and the domains it relays for: sendmail's classes w (`local-host-names`) and R
//! (`relay-domains`), and how their files are read.
//!
//! A line holds one name; what follows `#` is a comment. In class w a name stands for itself, an address is written
//! `[192.0.2.1]`. In class R a name stands for itself and all below it (with `relay_hosts_only` for itself alone),
//! `.example.com` for those below it alone, `192.0.2` and `IPv6:2001:db8` for all addresses that begin so;
//! `192.0.2.0/24` is understood too.
//!
//! Invariant: a line that is no name and no network is a complaint and never matches anything.

use crate::lint::Lint;
use crate::network::{self, Networks};
use crate::question::EntryLocation;
use ipnet::IpNet;
use mail::{Domain, DomainName};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The purpose of a file of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Class w: names of this machine.
    Local,
    /// Class R: the domains and networks for which mail is relayed.
    Relay {
        /// `relay_hosts_only`: a name stands for itself alone.
        hosts_only: bool,
    },
}

/// Names and networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// In DNS form and lower case.
    names: HashSet<Box<str>>,
    /// Names below these belong, too.
    parents: HashSet<Box<str>>,
    addresses: HashSet<IpAddr>,
    networks: Networks<()>,
}

/// All classes that the decisions need.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    /// w: domains whose mail is for users and aliases of this machine.
    pub local: Class,
    /// R: mail to these and from clients with these names or addresses is relayed.
    pub relay: Class,
    /// Mail to these is taken from anyone; clients of these names have no rights.
    pub to: Class,
    /// Our own name and addresses, taken from anyone as well, whether or not they are in w.
    pub ours: Class,
    /// VirtHost: domains of virtusertable that are not in w.
    pub virt: Class,
    /// Our own name, which is in w without being listed.
    pub hostname: Option<DomainName>,
}

impl Classes {
    /// The domain as it is looked up: `localhost` and an address in class w are our own name, as in sendmail's ruleset
    /// 3.
    #[must_use]
    pub fn canonical(&self, domain: Domain) -> Domain {
        let is_ours = match &domain {
            Domain::Name(_) => self.is_localhost(&domain),
            Domain::Literal(_) => self.local.has(&domain),
        };
        match &self.hostname {
            Some(own) if is_ours => Domain::Name(own.clone()),
            _ => domain,
        }
    }

    /// Whether the domain means the machine that reads it: `localhost`, `localhost` beside our own name, a loopback
    /// address.
    #[must_use]
    pub fn is_localhost(&self, domain: &Domain) -> bool {
        match domain {
            Domain::Name(name) => {
                let beside =
                    self.hostname.as_ref().and_then(|own| own.ascii().split_once('.').map(|(_, parent)| parent));
                let rest = name.ascii().strip_prefix("localhost");
                rest.is_some_and(|rest| {
                    rest.is_empty() || rest.strip_prefix('.').is_some_and(|rest| Some(rest) == beside)
                })
            }
            Domain::Literal(literal) => {
                literal.ip().is_some_and(|ip| ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST)
            }
        }
    }

    /// Whether the domain is in class w or our own name.
    #[must_use]
    pub fn is_local(&self, domain: &Domain) -> bool {
        let is_hostname = |name: &DomainName| self.hostname.as_ref().is_some_and(|own| own.ascii() == name.ascii());
        domain.name().is_some_and(is_hostname) || self.local.has(domain)
    }
}

impl Class {
    /// Reads a file of names. `map`: its name in messages, `relay-domains`. A fault in it is in the list, and the other
    /// lines count.
    #[must_use]
    pub fn read(kind: Kind, map: &str, file: &str, text: &str) -> (Self, Vec<Lint>) {
        let mut class = Self::default();
        let mut lints = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let place = || EntryLocation { map: map.into(), file: file.into(), line: Some(number) };
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(word) = words.next() else { continue };
            if let Err((text, hint)) = class.add(kind, word) {
                lints.push(Lint::error(place(), text, hint));
            }
            if let Some(second) = words.next() {
                let text = format!("\"{second}\" stands behind \"{word}\" and is ignored");
                lints.push(Lint::error(place(), text, "write one name on a line"));
            }
        }
        (class, lints)
    }

    /// Adds an entry of a file.
    fn add(&mut self, kind: Kind, word: &str) -> Result<(), (String, String)> {
        if let Some(inside) = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let ip = network::without_ipv6(inside).parse::<IpAddr>();
            let ip = ip.map_err(|_| {
                (format!("\"{word}\" is no address"), "write [192.0.2.1] or [IPv6:2001:db8::1]".to_owned())
            })?;
            self.addresses.insert(ip.to_canonical());
            return Ok(());
        }
        // Class R is compared by parts, so a dot at the end is no fault there.
        if let Some(network) = network::cidr(word).or_else(|| network::prefix(word.strip_suffix('.').unwrap_or(word))) {
            if kind == Kind::Local {
                return Err((
                    format!("\"{word}\" is an address and no name"),
                    format!("write [{word}] if mail to that address is for this machine"),
                ));
            }
            self.networks.insert(network, ());
            return Ok(());
        }
        let (name, is_below) = word.strip_prefix('.').map_or((word, false), |name| (name, true));
        let name = DomainName::new(name).map_err(|error| {
            (format!("\"{word}\" is no name: {error}"), "write a domain, as in example.com".to_owned())
        })?;
        match kind {
            Kind::Relay { hosts_only: false } => {
                self.parents.insert(name.ascii().into());
                if !is_below {
                    self.names.insert(name.ascii().into());
                }
            }
            _ if is_below => {
                return Err((
                    format!("\"{word}\" never matches"),
                    format!("write {} and each host below it on a line of its own", name.ascii()),
                ));
            }
            _ => {
                self.names.insert(name.ascii().into());
            }
        }
        Ok(())
    }

    /// Adds a name that stands for itself.
    pub fn add_name(&mut self, name: &DomainName) {
        self.names.insert(name.ascii().into());
    }

    /// Adds a name that stands for itself and all below it.
    pub fn add_tree(&mut self, name: &DomainName) {
        self.add_name(name);
        self.parents.insert(name.ascii().into());
    }

    /// Adds an address of a literal, `[192.0.2.1]`.
    pub fn add_address(&mut self, ip: IpAddr) {
        self.addresses.insert(ip.to_canonical());
    }

    /// Adds a network of clients.
    pub fn add_network(&mut self, network: IpNet) {
        self.networks.insert(network, ());
    }

    /// Adds all that another class has.
    pub fn extend(&mut self, other: &Self) {
        self.names.extend(other.names.iter().cloned());
        self.parents.extend(other.parents.iter().cloned());
        self.addresses.extend(&other.addresses);
        for (network, ()) in other.networks.iter() {
            self.networks.insert(*network, ());
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
            && self.parents.is_empty()
            && self.addresses.is_empty()
            && self.networks.iter().next().is_none()
    }

    /// Whether a domain is in it, by its name or as an address in brackets.
    // RFC 5321 §4.1.3: an address stands for the host that has it
    #[must_use]
    pub fn has(&self, domain: &Domain) -> bool {
        match domain {
            Domain::Name(name) => self.has_ascii(name.ascii()),
            Domain::Literal(literal) => literal.ip().is_some_and(|ip| self.has_literal(ip)),
        }
    }

    /// Whether a host name is in it, in any case, with or without a dot at the end.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        DomainName::new(name).is_ok_and(|name| self.has_ascii(name.ascii()))
    }

    /// Whether `[ip]` is in it.
    #[must_use]
    pub fn has_literal(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip.to_canonical())
    }

    /// Whether a network in it holds the address of a client.
    #[must_use]
    pub fn has_ip(&self, ip: IpAddr) -> bool {
        self.networks.has(ip)
    }

    fn has_ascii(&self, name: &str) -> bool {
        if self.names.contains(name) {
            return true;
        }
        if self.parents.is_empty() {
            return false;
        }
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            if self.parents.contains(parent) {
                return true;
            }
            rest = parent;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(hosts_only: bool) -> (Class, Vec<Lint>) {
        let text = "# comment\ncls.example\n10.30\n10.31.1.\n10.32.0.0/16 # net\nx.example y.example\n.below.example\nIPv6:2001:db8\n\
                    [10.9.9.9]\nB\u{fc}cher.example\n*.star.example\n\n  \t\n";
        Class::read(Kind::Relay { hosts_only }, "relay-domains", "/etc/mail/relay-domains", text)
    }

    #[test]
    fn names_of_class_r_stand_for_all_below_them() {
        // sendmail 8.17.1 read the same lines: y.example is ignored, 10.31.1. matches, .below.example only below.
        let (class, lints) = relay(false);
        for name in
            ["cls.example", "a.CLS.example", "b.a.cls.example", "x.example", "a.below.example", "xn--bcher-kva.example"]
        {
            assert!(class.has_name(name), "{name}");
        }
        for name in
            ["example", "notcls.example", "y.example", "below.example", "star.example", "a.star.example", "", "."]
        {
            assert!(!class.has_name(name), "{name}");
        }
        for ip in ["10.30.0.1", "10.31.1.9", "10.32.255.1", "2001:db8::1", "::ffff:10.30.0.1"] {
            assert!(class.has_ip(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["10.3.0.1", "10.31.2.1", "10.33.0.1", "2001:db9::1", "10.9.9.9"] {
            assert!(!class.has_ip(ip.parse().unwrap()), "{ip}");
        }
        assert!(class.has_literal("10.9.9.9".parse().unwrap()));
        let texts: Vec<String> = lints.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts.first().map(String::as_str),
            Some(
                "relay-domains /etc/mail/relay-domains line 6: \"y.example\" stands behind \"x.example\" and is ignored; write one name on a line"
            )
        );
        assert_eq!(texts.len(), 2, "{texts:?}");
    }

    #[test]
    fn with_hosts_only_a_name_is_one_host() {
        let (class, lints) = relay(true);
        assert!(
            class.has_name("cls.example") && !class.has_name("a.cls.example") && !class.has_name("a.below.example")
        );
        assert_eq!(lints.len(), 3, "{lints:?}");
    }

    #[test]
    fn class_w_holds_names_and_addresses_in_brackets() {
        let (local, lints) = Class::read(
            Kind::Local,
            "local-host-names",
            "lhn",
            "ours.example\n[192.0.2.25]\n[IPv6:2001:db8::25]\n192.0.2.26\n.sub.example\n[x]\n",
        );
        let classes = Classes { local, hostname: DomainName::new("mx.ours.example").ok(), ..Classes::default() };
        let has = |text: &str| classes.is_local(&Domain::parse(text.as_bytes()).unwrap());
        for text in [
            "ours.example",
            "OURS.example",
            "mx.ours.example",
            "[192.0.2.25]",
            "[IPv6:2001:db8:0::25]",
            "[IPv6:::ffff:192.0.2.25]",
        ] {
            assert!(has(text), "{text}");
        }
        for text in ["sub.ours.example", "[192.0.2.26]", "a.sub.example"] {
            assert!(!has(text), "{text}");
        }
        assert_eq!(lints.len(), 3, "{lints:?}");
    }

    #[test]
    fn classes_are_joined() {
        let mut all = Class::default();
        assert!(all.is_empty());
        all.extend(&relay(false).0);
        all.add_network("192.0.2.0/25".parse().unwrap());
        all.add_tree(&DomainName::new("tree.example").unwrap());
        all.add_address("192.0.2.200".parse().unwrap());
        assert!(
            all.has_name("a.cls.example")
                && all.has_name("a.tree.example")
                && all.has_literal("192.0.2.200".parse().unwrap())
        );
        assert!(
            all.has_ip("192.0.2.1".parse().unwrap()) && !all.has_ip("192.0.2.200".parse().unwrap()) && !all.is_empty()
        );
    }
}
