//! The addresses of this machine, as the kernel shows them in `/proc/self/net` (`/proc/net` is not there under
//! systemd's `ProcSubset=pid`).
//!
//! They serve to notice that a name in the DNS leads back to us. A service that may not see them (other systems than
//! Linux) knows of its listeners' addresses and its names only.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of all interfaces, each once, without those of the loopback network; none where the kernel does not
/// show them. Reads two files of the kernel: blocking, but not on a disk. They change while we run, so ask again now
/// and then.
#[must_use]
pub fn of_this_machine() -> Vec<IpAddr> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut addresses: Vec<IpAddr> = ipv4(&read("/proc/self/net/fib_trie")).map(IpAddr::V4).collect();
    addresses.extend(ipv6(&read("/proc/self/net/if_inet6")).map(IpAddr::V6));
    addresses.retain(|address| !address.is_loopback());
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The routing table as a tree: an address stands over the lines that say what it is, and ours are `/32 host LOCAL`.
fn ipv4(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        }
        last.filter(|_| line == "/32 host LOCAL")
    })
}

/// One address in each line, as 32 hexadecimal digits.
fn ipv6(text: &str) -> impl Iterator<Item = Ipv6Addr> {
    text.lines().filter_map(|line| {
        let digits = line.split_ascii_whitespace().next().filter(|digits| digits.len() == 32)?;
        u128::from_str_radix(digits, 16).ok().map(Ipv6Addr::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_shows_them() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 127.0.0.0/31 1 0 0\n        \
                    |-- 127.0.0.0\n           /8 host LOCAL\n        |-- 127.0.0.1\n           /32 host LOCAL\n        \
                    |-- 192.0.2.2\n           /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n";
        assert_eq!(ipv4(trie).collect::<Vec<_>>(), [Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 2)]);
        let inet6 = "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n20010db8000000000000000000000002 04 40 00 82 eth0\n\nx y\n";
        let expected: [Ipv6Addr; 2] = ["fe80::fc:ff:fe00:1".parse().unwrap(), "2001:db8::2".parse().unwrap()];
        assert_eq!(ipv6(inet6).collect::<Vec<_>>(), expected);
        assert_eq!((ipv4("/32 host LOCAL\n").next(), ipv6("").next()), (None, None));
    }

    #[test]
    fn of_the_machine_that_runs_this() {
        let addresses = of_this_machine();
        assert!(addresses.is_sorted() && addresses.iter().all(|address| !address.is_loopback()));
        // A socket can be bound to each; an IPv6 address may still be tentative.
        for address in addresses.into_iter().filter(IpAddr::is_ipv4) {
            std::net::UdpSocket::bind((address, 0)).unwrap();
        }
    }
}
