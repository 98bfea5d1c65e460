//! One answer to the question where the mail of a destination goes. The scheduler and every connection of an attempt go
//! by the same [`Site`].
//!
//! The hosts stay in their groups, so that each connection gets its own order of those that are equal
//! ([`Site::candidates`]): the answer may serve for an hour, and its first host is not to take all mail meanwhile.

use crate::config::{EffectiveRule, RouteProtocol};
use crate::dns::{NoHosts, Shuffle};
use crate::next_hop::Endpoint;
use os::clock;
use route::destination::To;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The most addresses that one connection tries, one after the other.
const CANDIDATES_MAX: usize = 16;

/// A look-up that takes less asked no name server.
const ASKED_FROM: Duration = Duration::from_micros(100);

/// A place where the mail of some destinations goes: hosts and rule.
#[derive(Debug)]
pub(crate) struct Site {
    /// The same for all destinations that go there.
    pub(crate) name: Box<[u8]>,
    /// The limits and settings of its connections.
    pub(crate) rule: EffectiveRule,
    /// When it has to be asked for again.
    pub(crate) until: Instant,
    pub(crate) hosts: SiteHosts,
    pub(crate) lookup_time: LookupTime,
}

/// How long the look-up of a site took. The first attempt after it is told, and no other.
#[derive(Debug, Default)]
pub(crate) struct LookupTime(AtomicU32);

impl LookupTime {
    /// Sets the time. An answer from memory has none.
    pub(crate) fn set(&self, took: Duration) {
        if took >= ASKED_FROM {
            self.0.store(u32::try_from(took.as_micros()).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Takes the time, if no attempt has been told.
    pub(crate) fn take(&self) -> Option<Duration> {
        // Most connections find none, and write nothing.
        let is_there = self.0.load(Ordering::Relaxed) > 0;
        let us = if is_there { self.0.swap(0, Ordering::Relaxed) } else { 0 };
        (us > 0).then(|| Duration::from_micros(u64::from(us)))
    }
}

/// The hosts that take the mail of a site.
#[derive(Clone, Debug)]
pub(crate) enum SiteHosts {
    /// This machine.
    Local(To),
    /// Other hosts, the better ones first.
    Remote(Vec<HostBlock>),
    /// Nothing: its mail is refused for this reason.
    Refused(NoHosts),
}

/// Hosts that stay together: one that the configuration names, or all MX hosts of a domain.
#[derive(Clone, Debug)]
pub(crate) struct HostBlock {
    /// Blocks of the same number are as good as each other; smaller ones come first.
    pub(super) preference: u16,
    pub(super) hosts: Vec<HostCandidates>,
}

/// One host.
#[derive(Clone, Debug)]
pub(super) struct HostCandidates {
    /// The same among the hosts of a block.
    pub(super) preference: u16,
    pub(super) candidates: Vec<Candidate>,
}

/// One address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The host as the log names it: its name, or its address in brackets.
    pub(crate) name: Box<str>,
    /// Where it listens.
    pub(crate) address: Endpoint,
    /// The protocol that it speaks.
    pub(crate) protocol: RouteProtocol,
    /// Its name for TLS; an address where there is none.
    pub(crate) server_name: Box<str>,
    /// Hosts of the same number are as good as each other; smaller ones come first.
    pub(crate) preference: u16,
}

impl Site {
    /// Whether it still holds.
    pub(crate) fn is_valid(&self) -> bool {
        clock::now() < self.until
    }

    /// Returns the addresses that one connection tries, in their order. Equal hosts, and the addresses of each host,
    /// are in the order that `turn` gives, a number that differs from connection to connection.
    // RFC 5321 §5.1: hosts of equal preference at random
    pub(crate) fn candidates(&self, turn: u64) -> Vec<Candidate> {
        let SiteHosts::Remote(blocks) = &self.hosts else { return Vec::new() };
        let (mut shuffle, mut all) = (Shuffle::new(turn), Vec::new());
        for equal in blocks.chunk_by(|one, next| one.preference == next.preference) {
            for block in shuffled(equal, &mut shuffle) {
                for equal in block.hosts.chunk_by(|one, next| one.preference == next.preference) {
                    for host in shuffled(equal, &mut shuffle) {
                        let is_ipv6 = |one: &&Candidate| one.address.ip().is_some_and(|ip| ip.is_ipv6());
                        let candidates = host.candidates.iter().collect();
                        all.extend(shuffle.by_family(candidates, is_ipv6).into_iter().cloned());
                    }
                }
            }
        }
        all.truncate(CANDIDATES_MAX);
        all
    }

    /// Returns whether a host of it may be another one at another machine: a socket in the file system, or an address
    /// of this machine alone.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        let SiteHosts::Remote(blocks) = &self.hosts else { return true };
        let mut hosts = blocks.iter().flat_map(|block| &block.hosts).flat_map(|host| &host.candidates);
        hosts.any(|host| host.address.is_of_this_machine())
    }

    /// Returns all addresses with a port, the better hosts first.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let SiteHosts::Remote(blocks) = &self.hosts else { return Vec::new() };
        let hosts = blocks.iter().flat_map(|block| &block.hosts);
        hosts.flat_map(|host| &host.candidates).filter_map(|one| one.address.socket()).collect()
    }
}

fn shuffled<'a, T>(items: &'a [T], shuffle: &mut Shuffle) -> Vec<&'a T> {
    let mut items: Vec<&T> = items.iter().collect();
    shuffle.shuffle(&mut items);
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::named;
    use std::collections::BTreeMap;

    fn host(name: &str, preference: u16, addresses: &[&str]) -> HostCandidates {
        let candidates = addresses.iter().map(|one| named(name, one.parse().unwrap(), preference)).collect();
        HostCandidates { preference, candidates }
    }

    fn site(blocks: Vec<HostBlock>) -> Site {
        let rule = crate::config::Config::default().rule_for(b"d.test", &[]);
        let until = clock::now() + Duration::from_secs(60);
        Site {
            name: b"s".as_slice().into(),
            rule,
            until,
            hosts: SiteHosts::Remote(blocks),
            lookup_time: LookupTime::default(),
        }
    }

    fn names(site: &Site, turn: u64) -> Vec<String> {
        site.candidates(turn).iter().map(|one| one.address.to_string()).collect()
    }

    #[test]
    fn equal_hosts_and_addresses_share_the_connections_of_one_answer() {
        let equal = [
            host("a.test", 10, &["192.0.2.1:25", "192.0.2.2:25"]),
            host("b.test", 10, &["192.0.2.3:25", "192.0.2.4:25"]),
            host("c.test", 20, &["192.0.2.5:25"]),
        ];
        let site = site(vec![HostBlock { preference: 0, hosts: equal.to_vec() }]);
        let mut first: BTreeMap<String, u32> = BTreeMap::new();
        // Connections of one site have numbers of every second one, for instance.
        for turn in (0..4_000).step_by(2) {
            let order = names(&site, turn);
            assert_eq!((order.len(), order[4].as_str()), (5, "192.0.2.5:25"));
            let of_first = |name: &str| matches!(name, "192.0.2.1:25" | "192.0.2.2:25");
            assert_eq!(
                of_first(&order[0]),
                of_first(&order[1]),
                "the addresses of a host follow each other: {order:?}"
            );
            *first.entry(order[0].clone()).or_default() += 1;
        }
        assert_eq!(first.len(), 4);
        assert!(first.values().all(|count| (400..600).contains(count)), "{first:?}");
    }

    #[test]
    fn hosts_of_a_list_keep_their_order_and_families_alternate() {
        let mx = vec![host("m1.test", 5, &["192.0.2.1:25"]), host("m2.test", 7, &["192.0.2.2:25"])];
        let both = host("x.test", 0, &["192.0.2.3:25", "192.0.2.4:25", "[2001:db8::3]:25"]);
        let site = site(vec![
            HostBlock { preference: 0, hosts: mx },
            HostBlock { preference: 0, hosts: vec![both] },
            HostBlock { preference: 1, hosts: vec![host("y.test", 1, &["192.0.2.9:25"])] },
        ]);
        for turn in 0..64 {
            let order = names(&site, turn);
            let at = |name: &str| order.iter().position(|one| one == name).unwrap();
            assert_eq!(at("192.0.2.1:25") + 1, at("192.0.2.2:25"), "an MX list inside a group keeps its order");
            let [six, four, other] = ["[2001:db8::3]:25", "192.0.2.3:25", "192.0.2.4:25"].map(at);
            assert!(six < four && six < other && four.abs_diff(other) == 1, "{order:?}");
            assert_eq!(at("192.0.2.9:25"), 5);
        }
    }

    #[test]
    fn a_connection_tries_a_bounded_number_of_addresses() {
        let many: Vec<String> = (0..40).map(|number| format!("192.0.2.{number}:25")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let site = site(vec![HostBlock { preference: 0, hosts: vec![host("a.test", 0, &many)] }]);
        assert_eq!((site.candidates(1).len(), site.addresses().len()), (CANDIDATES_MAX, 40));
        assert_ne!(names(&site, 1), names(&site, 2));
    }
}
