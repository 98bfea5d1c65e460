//! Rules about `[[destination]]` and `[[dns.override]]`: tables of which the first that fits counts.

use super::super::{AddressFamily, DestinationRule, DnsOverride, Host, NextHop, RelayDomain};
use super::Rules;
use crate::{DNS_ADDRESSES_MAX, DNS_HOSTS_MAX};
use std::collections::BTreeMap;
use std::net::IpAddr;

impl Rules<'_> {
    pub(super) fn destinations(&mut self) {
        let mut seen = Seen::default();
        for (index, rule) in self.config().destinations.iter().enumerate() {
            self.matches(index, rule, &mut seen);
            self.source(index, &rule.source);
            let config = self.config();
            if rule.connections > config.delivery.connections_max
                && self.loaded.places.of("destination.connections", index).is_some()
            {
                self.warn(
                    &[("destination.connections", index), ("delivery.connections_max", 0)],
                    "destination.connections is larger than delivery.connections_max, which is for all destinations together"
                        .to_owned(),
                    "",
                );
            }
            if !rule.hello.as_str().contains('.') && self.loaded.places.of("destination.hello", index).is_some() {
                self.warn(
                    &[("destination.hello", index)],
                    format!(
                        "destination.hello: \"{}\" has no dot; many servers refuse mail from such a name",
                        rule.hello
                    ),
                    "write the full name, such as \"mta1.example.net\"",
                );
            }
        }
    }

    fn matches(&mut self, index: usize, rule: &DestinationRule, seen: &mut Seen) {
        let keys = [("destination.match", index), ("route.smart_host", 0)];
        if rule.matches.is_empty() {
            self.error(&keys[..1], "destination.match names no next hop".to_owned(), "name one, or remove the table");
        }
        let route = &self.config().route;
        for next_hop in &rule.matches {
            if let Some(first) = seen.before(next_hop, index) {
                let line = self.loaded.places.of("destination.match", first).map_or(0, |place| place.line);
                self.warn(
                    &keys[..1],
                    format!("destination.match: \"{next_hop}\" never counts: the table with match in line {line} fits before"),
                    "move this table up, or remove the entry",
                );
            }
            if matches!(next_hop, NextHop::Group(_)) {
                continue;
            }
            let is_smart = matches!(next_hop, NextHop::Hop(_));
            if route.smart_host.is_empty() && is_smart {
                self.warn(
                    &keys,
                    format!("destination.match: \"{next_hop}\" fits nothing: there is no route.smart_host"),
                    "write the domain, or mx: and the name of its MX host",
                );
            } else if !route.smart_host.is_empty() && !is_smart {
                self.warn(
                    &keys,
                    format!("destination.match: \"{next_hop}\" fits nothing while route.smart_host takes all mail"),
                    "write hop: and a host of route.smart_host",
                );
            } else if let NextHop::Hop(hop) = next_hop
                && !route.smart_host.iter().flatten().any(|host| host.is_same(hop))
            {
                self.warn(
                    &keys,
                    format!("destination.match: \"{next_hop}\" fits nothing: route.smart_host has no such host"),
                    "write it as it stands there, with its port",
                );
            }
        }
    }

    fn source(&mut self, index: usize, source: &[IpAddr]) {
        let keys = [("destination.source", index), ("delivery.address_family", 0)];
        for ip in source {
            if !is_host(*ip) {
                let text = format!("destination.source: {ip} is no address that a machine has");
                self.error(&keys[..1], text, "name an address of this machine, or none for the kernel's choice");
            }
            let family = self.config().delivery.address_family;
            if family != AddressFamily::Any && (family == AddressFamily::Ipv4) != ip.is_ipv4() {
                let text = format!("destination.source: {ip} is never used, because of delivery.address_family");
                self.warn(&keys, text, "");
            }
        }
        for (is_ipv4, name) in [(true, "IPv4"), (false, "IPv6")] {
            let mut of_family = source.iter().filter(|ip| ip.is_ipv4() == is_ipv4);
            if let (Some(first), Some(second)) = (of_family.next(), of_family.next()) {
                let text = format!("destination.source: {first} and {second} are both {name}");
                self.error(&keys[..1], text, "name one address of each family");
            }
        }
    }

    pub(super) fn overrides(&mut self) {
        let mut seen = Seen::default();
        for (index, one) in self.config().dns.overrides.iter().enumerate() {
            let key = ("dns.override.domain", index);
            if let Some(first) = seen.domain_before(&one.domain, index) {
                let line = self.loaded.places.of("dns.override.domain", first).map_or(0, |place| place.line);
                self.warn(
                    &[key],
                    format!(
                        "dns.override.domain: \"{}\" never counts: the table with domain in line {line} fits before",
                        one.domain
                    ),
                    "move this table up, or remove it",
                );
            }
            self.answer(index, one);
        }
    }

    fn answer(&mut self, index: usize, one: &DnsOverride) {
        let (domain, mx, address) =
            (("dns.override.domain", index), ("dns.override.mx", index), ("dns.override.address", index));
        let name = &one.domain;
        match (one.mx.is_empty(), one.address.is_empty()) {
            (true, true) => self.error(
                &[domain, mx, address],
                format!("the [[dns.override]] of \"{name}\" has no answer"),
                "set mx or address",
            ),
            (false, false) => self.error(
                &[mx, address, domain],
                format!("the [[dns.override]] of \"{name}\" has mx and address"),
                "keep one; an address of an MX host stands in brackets: mx = [\"[192.0.2.9]\"]",
            ),
            _ => {}
        }
        if one.mx.iter().any(Vec::is_empty) {
            self.error(
                &[mx],
                "dns.override.mx has a list without a host".to_owned(),
                "remove it, or name a host in it",
            );
        }
        let hosts = one.mx.iter().flatten().count();
        if hosts > DNS_HOSTS_MAX {
            self.error(&[mx], format!("dns.override.mx names {hosts} hosts"), &format!("name {DNS_HOSTS_MAX} at most"));
        }
        if one.address.len() > DNS_ADDRESSES_MAX {
            let text = format!("dns.override.address names {} addresses", one.address.len());
            self.error(&[address], text, &format!("name {DNS_ADDRESSES_MAX} at most"));
        }
        let of_hosts =
            one.mx.iter().flatten().filter_map(|host| if let Host::Address(ip) = host { Some(*ip) } else { None });
        for (key, ip) in of_hosts.map(|ip| (mx, ip)).chain(one.address.iter().map(|ip| (address, *ip))) {
            if !is_host(ip) {
                self.error(&[key], format!("{}: {ip} is no address that a machine has", key.0), "");
            }
        }
        if !self.config().route.smart_host.is_empty() && !one.mx.is_empty() {
            self.warn(
                &[mx, ("route.smart_host", 0)],
                format!("the MX hosts of \"{name}\" are never asked for while route.smart_host takes all mail"),
                "",
            );
        }
    }
}

/// Whether one machine can have it.
fn is_host(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[0] != 0 && !ip.is_broadcast() && !ip.is_multicast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    }
}

/// Entries of the tables so far, as they are written, and their tables.
#[derive(Default)]
struct Seen(BTreeMap<String, usize>);

impl Seen {
    /// The table before this one that takes whatever this entry fits; adds the entry.
    fn before(&mut self, next_hop: &NextHop, index: usize) -> Option<usize> {
        if let NextHop::Domain(domain) = next_hop {
            return self.domain_before(domain, index);
        }
        let first = *self.0.entry(next_hop.to_string().to_ascii_lowercase()).or_insert(index);
        (first < index).then_some(first)
    }

    fn domain_before(&mut self, domain: &RelayDomain, index: usize) -> Option<usize> {
        let name = domain.ascii();
        let above = name.match_indices('.').filter_map(|(at, _)| name.get(at..).map(str::to_owned));
        let mut takers = vec![format!(".{name}")];
        takers.extend(above);
        if !domain.has_subdomains() {
            takers.push(name.to_owned());
        }
        let first = takers.iter().filter_map(|taker| self.0.get(taker)).copied().min();
        let own = if domain.has_subdomains() { format!(".{name}") } else { name.to_owned() };
        self.0.entry(own).or_insert(index);
        first.filter(|first| *first < index)
    }
}
