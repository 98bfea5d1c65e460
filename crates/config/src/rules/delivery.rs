//! Rules about the next hop and about times and numbers of delivery.

use super::super::number::time_text;
use super::super::{Host, HostPort, Listen, RouteProtocol};
use super::Rules;
use std::net::SocketAddr;

impl Rules<'_> {
    pub(super) fn route(&mut self) {
        let route = &self.config().route;
        let keys = [("route.smart_host", 0)];
        if route.smart_host.iter().any(Vec::is_empty) {
            self.error(
                &keys,
                "route.smart_host has a list without a host".to_owned(),
                "remove it, or name a host in it",
            );
        }
        let hosts = || route.smart_host.iter().flatten();
        for host in hosts() {
            let is_ours = |listen: &&Listen| is_same(host, listen.address);
            if let Some(listen) = self.config().listen.iter().find(is_ours) {
                self.error(
                    &keys,
                    format!("route.smart_host: {host} is our own listener {}; mail would go round", listen.address),
                    "name the host behind this one",
                );
            }
        }
        if route.protocol == RouteProtocol::Lmtp {
            let keys = [("route.protocol", 0), ("route.smart_host", 0)];
            if route.smart_host.is_empty() {
                self.error(
                    &keys,
                    "route.protocol: MX hosts do not speak LMTP".to_owned(),
                    "name the mailbox server with its port in route.smart_host, or set \"smtp\"",
                );
            }
            // RFC 2033 §5
            for host in hosts().filter(|host| host.port == 25) {
                self.error(
                    &[("route.smart_host", 0), ("route.protocol", 0)],
                    format!("route.smart_host: {host} is the port of SMTP, and route.protocol is \"lmtp\""),
                    &format!("write the port, such as \"{}:24\"", host.host),
                );
            }
        }
        if !route.smart_host.is_empty() && route.port != 25 {
            self.warn(
                &[("route.port", 0), ("route.smart_host", 0)],
                format!("route.port: {} has no effect with route.smart_host", route.port),
                "write the port behind each host of route.smart_host",
            );
        }
    }

    pub(super) fn delivery(&mut self) {
        let config = self.config();
        let delivery = &config.delivery;
        if delivery.connections_per_destination > delivery.connections_max {
            self.warn(
                &[("delivery.connections_per_destination", 0), ("delivery.connections_max", 0)],
                "delivery.connections_per_destination is larger than delivery.connections_max: one destination can take all \
                 connections"
                    .to_owned(),
                "lower delivery.connections_per_destination",
            );
        }
        if delivery.retry_first > delivery.retry_max {
            self.warn(
                &[("delivery.retry_first", 0), ("delivery.retry_max", 0)],
                format!(
                    "delivery.retry_first: {} is longer than delivery.retry_max, {}, which counts",
                    time_text(delivery.retry_first),
                    time_text(delivery.retry_max)
                ),
                "",
            );
        }
        for (fast, key, slow, other) in [
            (delivery.fast_connect_time, "delivery.fast_connect_time", delivery.connect_time, "delivery.connect_time"),
            (
                delivery.fast_greeting_time,
                "delivery.fast_greeting_time",
                delivery.greeting_time,
                "delivery.greeting_time",
            ),
            (delivery.fast_command_time, "delivery.fast_command_time", delivery.command_time, "delivery.command_time"),
            (delivery.end_time, "delivery.end_time", delivery.transaction_time, "delivery.transaction_time"),
        ] {
            if fast > slow {
                let (fast, slow) = (time_text(fast), time_text(slow));
                self.warn(
                    &[(key, 0), (other, 0)],
                    format!("{key}: {fast} is longer than {other}, {slow}, which counts"),
                    "",
                );
            }
        }
        let give_up = time_text(delivery.give_up_after);
        for (time, key, effect) in [
            (delivery.retry_first, "delivery.retry_first", "each message is tried once"),
            (delivery.warn_after, "delivery.warn_after", "nobody is told that his message waits"),
        ] {
            // The default of warn_after assumes the default time to live: it is no fault when only a shorter time to
            // live is set.
            let is_meant = key == "delivery.retry_first" || self.loaded.places.of(key, 0).is_some();
            if time >= delivery.give_up_after && is_meant {
                let time = time_text(time);
                let text = format!("{key}: {time} is not shorter than delivery.give_up_after, {give_up}; {effect}");
                self.warn(&[(key, 0), ("delivery.give_up_after", 0)], text, "");
            }
        }
        if delivery.postmaster.is_none() && config.postmaster_here().is_none() {
            self.error(
                &[("hostname", 0), ("delivery.postmaster", 0)],
                format!("hostname: \"{}\" is too long for the address of its postmaster", config.hostname),
                "set delivery.postmaster",
            );
        }
    }
}

/// True if who connects to the host reaches the listener.
fn is_same(host: &HostPort, listener: SocketAddr) -> bool {
    let Host::Address(address) = host.host else { return false };
    let is_all = listener.ip().is_unspecified() && listener.is_ipv4() == address.is_ipv4();
    host.port == listener.port() && (listener.ip() == address || is_all && address.is_loopback())
}
