//! The smart hosts of the configuration, and the destinations that name them.

use crate::config::{Host, HostPort, Route, RouteProtocol};
use mail::Address;
use route::destination::{Hosts, NextHost, Protocol};

/// Returns the destination of mail for this address where no map says anything.
pub(crate) fn destination(route: &Route, address: &Address) -> Vec<u8> {
    if route.smart_host.is_empty() {
        return spool::envelope::default_destination(address);
    }
    destination_of_all(route)
}

/// Returns the destination of all mail that goes to the smart hosts.
pub(crate) fn destination_of_all(route: &Route) -> Vec<u8> {
    bounded(hosts(route).to_string())
}

/// Returns the smart hosts as a destination has them.
pub(crate) fn hosts(route: &Route) -> Hosts {
    let protocol = match route.protocol {
        RouteProtocol::Smtp => Protocol::Smtp,
        RouteProtocol::Lmtp => Protocol::Lmtp,
    };
    Hosts { protocol, groups: route.smart_host.iter().map(|group| group.iter().map(next_host).collect()).collect() }
}

/// Returns a host of the configuration as a destination has it.
pub(crate) fn next_host(host: &HostPort) -> NextHost {
    match &host.host {
        Host::Address(ip) => NextHost::Address(*ip, host.port),
        Host::Name(name) => NextHost::Name(name.ascii().into(), host.port),
    }
}

/// Cuts a name to the length that the spool takes; a list so long is still one destination.
pub(crate) fn bounded(mut name: String) -> Vec<u8> {
    name.truncate(name.floor_char_boundary(route::destination::TEXT_BYTES_MAX));
    name.into_bytes()
}

/// Returns how the log names the way to the next hop while no host has answered.
pub(crate) fn mailer(route: &Route) -> &'static str {
    match route.protocol {
        RouteProtocol::Lmtp if !route.smart_host.is_empty() => "lmtp",
        _ => "esmtp",
    }
}

/// Returns whether a destination names smart hosts, of this configuration or another.
pub(crate) fn is_list(destination: &[u8]) -> bool {
    destination.contains(&b':')
        && ![b"[".as_slice(), b"local:", b"prog:", b"file:", b"error:"].iter().any(|no| destination.starts_with(no))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_hosts_differ_from_other_destinations() {
        for (destination, is) in [
            (&b"smtp:[192.0.2.1]:25"[..], true),
            (b"a.example:25", true),
            (b"a.example", false),
            (b"[IPv6:2001:db8::1]", false),
            (b"local:", false),
            (b"error:5.1.1:no", false),
        ] {
            assert_eq!(is_list(destination), is, "{}", String::from_utf8_lossy(destination));
        }
    }

    #[test]
    fn a_long_list_is_cut_to_what_the_spool_takes() {
        let name = bounded("\u{e4}".repeat(route::destination::TEXT_BYTES_MAX));
        assert!(name.len() <= route::destination::TEXT_BYTES_MAX && String::from_utf8(name).is_ok());
    }
}
