//! The stop *resolve*: each recipient gets a destination, and a destination gets the hosts to try.
//!
//! A destination is the name under which the spool keeps a queue: the domain of the recipient in its DNS form, an address
//! literal, or the text of the smart hosts, `smtp:[192.0.2.1]:25,(a.example:25|b.example:25)`, when `route.smart_host` takes all
//! mail. The name is given when the message is stored and says where its mail belongs; which hosts that means is asked
//! anew for each connection, so that a change in the DNS or in the configuration holds for mail that waits.
//!
//! Invariant: a DNS that is broken is a deferral. Only an answer that says that there is no such host is a failure.

use crate::config::{AddressFamily, Config, Host, HostPort, Route, RouteProtocol};
use crate::dns::{Family, NoHosts, Ourselves, Resolver};
use mail::{Address, AddressLiteral, Domain, EnhancedCode, Outcome};
use std::net::{IpAddr, SocketAddr};

/// The most addresses that one connection tries, one after the other.
pub(crate) const CANDIDATES_MAX: usize = 16;

/// One address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The host as the log names it: its name, or its address in brackets.
    pub(crate) name: Box<str>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its name for TLS; an address where there is none.
    pub(crate) server_name: Box<str>,
}

/// The queue that mail for this address waits in.
pub(crate) fn destination(route: &Route, address: &Address) -> Vec<u8> {
    if route.smart_host.is_empty() {
        return spool::envelope::default_destination(address);
    }
    smart_hosts(route)
}

/// The name of the queue of all mail that goes to the smart hosts.
pub(crate) fn smart_hosts(route: &Route) -> Vec<u8> {
    let mut name = String::from(match route.protocol {
        RouteProtocol::Smtp => "smtp:",
        RouteProtocol::Lmtp => "lmtp:",
    });
    for (number, group) in route.smart_host.iter().enumerate() {
        if number > 0 {
            name.push(',');
        }
        let hosts: Vec<String> = group.iter().map(ToString::to_string).collect();
        match hosts.as_slice() {
            [only] => name.push_str(only),
            several => name.push_str(&format!("({})", several.join("|"))),
        }
    }
    // The spool bounds names; a list so long is still one queue.
    name.truncate(name.floor_char_boundary(4_096));
    name.into_bytes()
}

/// How the log names the way to the next hop, while no host has answered.
pub(crate) fn mailer(route: &Route) -> &'static str {
    match route.protocol {
        RouteProtocol::Lmtp if !route.smart_host.is_empty() => "lmtp",
        _ => "esmtp",
    }
}

/// Whether mail in this queue was meant for smart hosts, whichever they were.
pub(crate) fn is_smart_hosts(destination: &[u8]) -> bool {
    destination.contains(&b':') && !destination.starts_with(b"[")
}

/// The addresses to try for a destination, in their order; at most [`CANDIDATES_MAX`].
///
/// `turn` is a number that differs from connection to connection: hosts of equal rank take turns by it.
///
/// # Errors
/// Why there are none; whether that is for good.
/// # Cancel safety
/// Yes: a question that nobody waits for is asked again.
pub(crate) async fn candidates(
    config: &Config,
    resolver: &Resolver,
    destination: &[u8],
    us: &Ourselves,
    turn: u64,
) -> Result<Vec<Candidate>, NoHosts> {
    let family = match config.delivery.address_family {
        AddressFamily::Any => Family::Any,
        AddressFamily::Ipv4 => Family::Ipv4,
        AddressFamily::Ipv6 => Family::Ipv6,
    };
    let mut found = if config.route.smart_host.is_empty() {
        by_domain(config, resolver, destination, us, family, turn).await?
    } else {
        by_list(&config.route.smart_host, resolver, family, turn).await?
    };
    found.truncate(CANDIDATES_MAX);
    Ok(found)
}

async fn by_list(
    groups: &[Vec<HostPort>],
    resolver: &Resolver,
    family: Family,
    turn: u64,
) -> Result<Vec<Candidate>, NoHosts> {
    let mut found = Vec::new();
    let mut trouble = None;
    for group in groups {
        let start = usize::try_from(turn % group.len().max(1) as u64).unwrap_or(0);
        for host in group.iter().cycle().skip(start).take(group.len()) {
            match &host.host {
                Host::Address(ip) => found.push(by_address(*ip, host.port)),
                Host::Name(name) => match resolver.host_addresses(name.ascii(), family, turn).await {
                    Ok(addresses) => {
                        found.extend(
                            addresses.into_iter().map(|ip| named(name.ascii(), SocketAddr::new(ip, host.port))),
                        );
                    }
                    // A smart host that the DNS does not know is a mistake of ours, not of the sender.
                    Err(no) => trouble = Some(NoHosts { permanent: false, ..no }),
                },
            }
        }
    }
    match trouble {
        Some(trouble) if found.is_empty() => Err(trouble),
        _ => Ok(found),
    }
}

async fn by_domain(
    config: &Config,
    resolver: &Resolver,
    destination: &[u8],
    us: &Ourselves,
    family: Family,
    turn: u64,
) -> Result<Vec<Candidate>, NoHosts> {
    let port = config.route.port;
    let text = str::from_utf8(destination).unwrap_or_default();
    let domain = match text.parse::<Domain>() {
        Ok(Domain::Name(name)) => name,
        // RFC 5321 §4.1.3: a literal is the host itself
        Ok(Domain::Literal(AddressLiteral::V4(ip))) => return Ok(vec![by_address(ip.into(), port)]),
        Ok(Domain::Literal(AddressLiteral::V6(ip))) => return Ok(vec![by_address(ip.into(), port)]),
        // The smart hosts are gone: it is given the destinations of its domains, if not just now.
        _ if is_smart_hosts(destination) => {
            let status = EnhancedCode::of(Outcome::Transient, 4, 4);
            return Err(NoHosts {
                permanent: false,
                status,
                text: "its smart hosts are configured no more".to_owned(),
            });
        }
        _ => {
            let status = EnhancedCode::of(Outcome::Permanent, 1, 2);
            return Err(NoHosts {
                permanent: true,
                status,
                text: format!("\"{text}\" is no host that mail can go to"),
            });
        }
    };
    let hosts = resolver.mail_hosts(&domain, port, us, family, turn).await?;
    Ok(hosts.addresses().map(|(name, ip)| named(name, SocketAddr::new(ip, port))).collect())
}

fn by_address(ip: IpAddr, port: u16) -> Candidate {
    Candidate { name: format!("[{ip}]").into(), address: SocketAddr::new(ip, port), server_name: ip.to_string().into() }
}

fn named(name: &str, address: SocketAddr) -> Candidate {
    let name = name.strip_suffix('.').unwrap_or(name);
    Candidate { name: name.into(), address, server_name: name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(smart_host: &str, destination: &[u8]) -> Result<Vec<Candidate>, NoHosts> {
        let text = format!("[route]\nsmart_host = {smart_host}\n[dns]\nservers = [\"127.0.0.1:9\"]\n");
        let config = crate::config::load(&text, None, &[], &crate::config::Machine::default()).unwrap().config;
        let resolver = Resolver::new(&config.dns).unwrap();
        candidates(&config, &resolver, destination, &Ourselves::default(), 1).await
    }

    #[tokio::test]
    async fn mail_of_smart_hosts_that_are_gone_waits() {
        let name = b"smtp:[192.0.2.1]:25";
        assert!(is_smart_hosts(name) && !is_smart_hosts(b"[IPv6:2001:db8::1]") && !is_smart_hosts(b"a.example"));
        let none = found("[]", name).await.unwrap_err();
        assert!(!none.permanent, "{none}");
        // A destination that is none at all has failed.
        assert!(found("[]", b"no domain").await.unwrap_err().permanent);
    }

    #[tokio::test]
    async fn equal_hosts_take_turns_and_others_keep_their_order() {
        let hosts = "[\"[192.0.2.1]:25\", [\"[192.0.2.2]:26\", \"[192.0.2.3]:27\"]]";
        let found = found(hosts, b"a.example").await.unwrap();
        let addresses: Vec<String> = found.iter().map(|one| one.address.to_string()).collect();
        assert_eq!(addresses, ["192.0.2.1:25", "192.0.2.3:27", "192.0.2.2:26"]);
        assert_eq!(&*found[0].name, "[192.0.2.1]");
    }

    #[tokio::test]
    async fn a_literal_is_the_host() {
        let four = found("[]", b"[192.0.2.7]").await.unwrap();
        assert_eq!(four[0].address.to_string(), "192.0.2.7:25");
        let six = found("[]", b"[IPv6:2001:db8::1]").await.unwrap();
        assert_eq!(six[0].address.to_string(), "[2001:db8::1]:25");
    }
}
