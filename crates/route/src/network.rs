//! Networks by their prefix: which of many holds an address, the longest first.
//!
//! One hash look-up for each length that occurs, so a million entries cost no more than ten.

use ipnet::IpNet;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// Values of networks. The first of two values for one network counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Networks<T> {
    entries: HashMap<IpNet, T>,
    /// The lengths that occur, longest first: of IPv4, of IPv6.
    lengths: [Vec<u8>; 2],
}

impl<T> Default for Networks<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), lengths: [Vec::new(), Vec::new()] }
    }
}

impl<T> Networks<T> {
    /// Adds a network; bits behind its prefix are ignored. `false` if it was there already.
    pub(crate) fn insert(&mut self, network: IpNet, value: T) -> bool {
        let network = network.trunc();
        if self.entries.contains_key(&network) {
            return false;
        }
        self.entries.insert(network, value);
        let [v4, v6] = &mut self.lengths;
        let lengths = if network.addr().is_ipv4() { v4 } else { v6 };
        if let Err(at) = lengths.binary_search_by(|length| network.prefix_len().cmp(length)) {
            lengths.insert(at, network.prefix_len());
        }
        true
    }

    /// The value of the network of this length that holds the address.
    pub(crate) fn of_length(&self, ip: IpAddr, length: u8) -> Option<&T> {
        self.entries.get(&IpNet::new(ip, length).ok()?.trunc())
    }

    /// All values whose network holds the address, the longest first.
    pub(crate) fn holding(&self, ip: IpAddr) -> impl Iterator<Item = &T> {
        let ip = ip.to_canonical();
        let [v4, v6] = &self.lengths;
        let lengths = if ip.is_ipv4() { v4 } else { v6 };
        lengths.iter().filter_map(move |length| self.of_length(ip, *length))
    }

    /// Whether one of them holds the address.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.holding(ip).next().is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&IpNet, &T)> {
        self.entries.iter()
    }
}

/// A network as it is written: `192.0.2.0/24`, `2001:db8::/32`, and with sendmail's `IPv6:` before it.
pub(crate) fn cidr(text: &str) -> Option<IpNet> {
    let (ip, length) = without_ipv6(text).split_once('/')?;
    if !(1..=3).contains(&length.len()) || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    IpNet::new(ip.parse().ok()?, length.parse().ok()?).ok()
}

/// The octets or groups that a prefix of sendmail names: `192.0.2`, `IPv6:2001:db8`, without a separator at the end.
pub(crate) fn prefix(text: &str) -> Option<IpNet> {
    let groups = without_ipv6(text);
    if groups.len() == text.len() {
        return octets(text);
    }
    if let Ok(ip) = groups.parse::<Ipv6Addr>() {
        return IpNet::new(ip.into(), 128).ok();
    }
    let mut segments = [0_u16; 8];
    let mut count = 0;
    for (segment, group) in segments.iter_mut().zip(groups.split(':')) {
        if !(1..=4).contains(&group.len()) {
            return None;
        }
        *segment = u16::from_str_radix(group, 16).ok()?;
        count += 1;
    }
    (groups.split(':').count() == usize::from(count))
        .then(|| IpNet::new(Ipv6Addr::from(segments).into(), count * 16).ok())?
}

fn octets(text: &str) -> Option<IpNet> {
    let mut octets = [0_u8; 4];
    let mut count = 0;
    for (octet, part) in octets.iter_mut().zip(text.split('.')) {
        let is_number = (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        *octet = part.parse().ok().filter(|_| is_number && (part == "0" || !part.starts_with('0')))?;
        count += 1;
    }
    (text.split('.').count() == usize::from(count)).then(|| IpNet::new(octets.into(), count * 8).ok())?
}

/// The text behind `IPv6:`, in any case.
pub(crate) fn without_ipv6(text: &str) -> &str {
    match text.get(..5) {
        Some(start) if start.eq_ignore_ascii_case("ipv6:") => text.get(5..).unwrap_or_default(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn networks_as_they_are_written() {
        let shown = |net: Option<IpNet>| net.map(|net| net.to_string());
        for (text, want) in [
            ("192.0.2.0/24", Some("192.0.2.0/24")),
            ("IPv6:2001:db8::/32", Some("2001:db8::/32")),
            ("ipv6:2001:db8::/32", Some("2001:db8::/32")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("192.0.2/24", None),
            ("192.0.2.0/33", None),
            ("192.0.2.0/+4", None),
            ("192.0.2.0", None),
        ] {
            assert_eq!(shown(cidr(text)).as_deref(), want, "{text}");
        }
        for (text, want) in [
            ("192.0.2.1", Some("192.0.2.1/32")),
            ("192.0.2", Some("192.0.2.0/24")),
            ("10", Some("10.0.0.0/8")),
            ("IPv6:2001:db8", Some("2001:db8::/32")),
            ("IPv6:2001:db8:0:0:0:0:0:1", Some("2001:db8::1/128")),
            ("IPv6:2001:db8::1", Some("2001:db8::1/128")),
            ("10.", None),
            ("10.1.2.3.4", None),
            ("010.1", None),
            ("256", None),
            ("IPv6:", None),
            ("IPv6:2001:", None),
            ("IPv6:1:2:3:4:5:6:7:8:9", None),
            ("2001:db8", None),
            ("example", None),
        ] {
            assert_eq!(shown(prefix(text)).as_deref(), want, "{text}");
        }
    }

    fn network() -> impl Strategy<Value = IpNet> {
        // Few bits vary, so that networks contain each other.
        prop_oneof![
            (0_u32..8, 0_u8..=32).prop_map(|(bits, length)| IpNet::new(
                std::net::Ipv4Addr::from(bits << 29 | bits).into(),
                length
            )
            .unwrap()),
            (0_u128..8, 0_u8..=128).prop_map(|(bits, length)| IpNet::new(
                Ipv6Addr::from(bits << 125 | bits).into(),
                length
            )
            .unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn the_longest_prefix_is_that_of_a_search_of_all(list in proptest::collection::vec(network(), 0..40), at in network()) {
            let mut networks = Networks::default();
            for (number, network) in list.iter().enumerate() {
                networks.insert(*network, number);
            }
            let ip = at.addr();
            let mut all: Vec<_> = list.iter().enumerate().filter(|(_, network)| network.contains(&ip)).collect();
            all.sort_by_key(|(number, network)| (u8::MAX - network.prefix_len(), *number));
            all.dedup_by_key(|(_, network)| network.prefix_len());
            let want: Vec<usize> = all.into_iter().map(|(number, _)| number).collect();
            let found: Vec<usize> = networks.holding(ip.to_canonical()).copied().collect();
            prop_assert!(!ip.is_ipv6() || ip.to_canonical().is_ipv4() || found == want);
            prop_assert!(!ip.is_ipv4() || found == want);
        }
    }
}
