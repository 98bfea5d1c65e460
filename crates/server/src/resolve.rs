//! The stop *resolve*: each recipient gets a destination, and a destination gets the hosts to try.
//!
//! A destination is the name under which the spool keeps a queue: the domain of the recipient in its DNS form, an address
//! literal, or the text of the smart hosts, `smtp:[192.0.2.1]:25,(a.example:25|b.example:25)`, when `route.smart_host` takes all
//! mail. The name is given when the message is stored and says where its mail belongs; which hosts that means is asked
//! anew for each connection, so that a change in the DNS or in the configuration holds for mail that waits.
//!
//! Destinations whose mail goes to the same hosts in the same manner share a [`Site`]: one window, one pace, one health. Its
//! name says all that must be the same: `mx1.example|mx2.example,backup.example:25 tls=opportunistic`, equal hosts with `|`
//! between them, and behind it where they differ from the usual, the source address, the name we go by, and the rule.
//!
//! Invariant: a DNS that is broken is a deferral. Only an answer that says that there is no such host is a failure.

use crate::config::{AddressFamily, Config, EffectiveRule, Host, HostPort, Mailbox, Route, RouteProtocol};
use crate::deliver::{Where, local};
use crate::dns::{Family, MailHost, NoHosts, Ourselves, Resolver};
use crate::env::clock;
use mail::{Address, AddressLiteral, Domain, EnhancedCode, Outcome};
use route::destination::To;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The most addresses that one connection tries, one after the other.
pub(crate) const CANDIDATES_MAX: usize = 16;

/// How long a site is taken for granted whose hosts the configuration names.
const CONFIGURED_FOR: Duration = Duration::from_secs(3_600);

/// How long the DNS is believed that there is no host.
const NOWHERE_FOR: Duration = Duration::from_secs(60);

/// Where the mail of some destinations goes, and how.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The same for all destinations that go there.
    pub(crate) name: Vec<u8>,
    /// What holds for it.
    pub(crate) rule: EffectiveRule,
    /// Until when the DNS says so.
    pub(crate) until: Instant,
    /// The addresses to try, in their order; at most [`CANDIDATES_MAX`]. Empty if they were not asked for.
    pub(crate) candidates: Vec<Candidate>,
}

/// One address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The host as the log names it: its name, or its address in brackets.
    pub(crate) name: Box<str>,
    /// Where it listens.
    pub(crate) address: Where,
    /// What is spoken to it.
    pub(crate) protocol: RouteProtocol,
    /// Its name for TLS; an address where there is none.
    pub(crate) server_name: Box<str>,
    /// Hosts of the same number are as good as each other; smaller ones come first.
    pub(crate) preference: u16,
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
    destination.contains(&b':')
        && ![b"[".as_slice(), b"local:", b"prog:", b"file:"].iter().any(|no| destination.starts_with(no))
}

/// The site of a destination whose hosts need no question to the DNS: smart hosts, and an address literal. Without candidates.
pub(crate) fn site_at_once(config: &Config, destination: &[u8]) -> Option<Site> {
    if let Some(to) = local::what(config, destination) {
        return Some(here(config, destination, &to));
    }
    if let Some(socket) = mailbox_socket(config, destination) {
        return Some(of_mailbox_server(config, vec![socket]));
    }
    if is_mailboxes(destination) {
        return None;
    }
    if !config.route.smart_host.is_empty() {
        return Some(of_smart_hosts(config, Vec::new()));
    }
    if !destination.starts_with(b"[") {
        return None;
    }
    let candidate = by_literal(config, &str::from_utf8(destination).ok()?.parse().ok()?)?;
    Some(of_hosts(config, destination, &[(&candidate.name, 0)], None, Vec::new()))
}

/// Where mail goes that no host takes: a site of its own, over which it is refused.
pub(crate) fn nowhere(config: &Config, destination: &[u8]) -> Site {
    let mut name = b"!".to_vec();
    name.extend_from_slice(destination);
    Site { name, rule: config.rule_for(destination, &[]), until: clock::now() + NOWHERE_FOR, candidates: Vec::new() }
}

/// Where the mail of a destination goes now, with the addresses to try.
///
/// `turn` is a number that differs from connection to connection: hosts of equal rank take turns by it.
///
/// # Errors
/// Why there is no host; whether that is for good.
/// # Cancel safety
/// Yes: a question that nobody waits for is asked again.
pub(crate) async fn site(
    config: &Config,
    resolver: &Resolver,
    destination: &[u8],
    us: &Ourselves,
    turn: u64,
) -> Result<Site, NoHosts> {
    let family = match config.delivery.address_family {
        AddressFamily::Any => Family::Any,
        AddressFamily::Ipv4 => Family::Ipv4,
        AddressFamily::Ipv6 => Family::Ipv6,
    };
    let mut site = if let Some(to) = local::what(config, destination) {
        here(config, destination, &to)
    } else if let (true, Mailbox::LmtpHost(host)) = (is_mailboxes(destination), &config.local.mailbox) {
        let found = by_list(&[vec![host.clone()]], resolver, family, turn).await?;
        let of_lmtp = |one| Candidate { protocol: RouteProtocol::Lmtp, ..one };
        of_mailbox_server(config, found.into_iter().map(of_lmtp).collect())
    } else if let Some(socket) = mailbox_socket(config, destination) {
        of_mailbox_server(config, vec![socket])
    } else if config.route.smart_host.is_empty() {
        by_domain(config, resolver, destination, us, family, turn).await?
    } else {
        let found = by_list(&config.route.smart_host, resolver, family, turn).await?;
        let of_route = |one| Candidate { protocol: config.route.protocol, ..one };
        of_smart_hosts(config, found.into_iter().map(of_route).collect())
    };
    site.candidates.truncate(CANDIDATES_MAX);
    Ok(site)
}

/// The site of mail that is delivered here: that of its queue, since each program and each file is one of its own.
fn here(config: &Config, destination: &[u8], to: &To) -> Site {
    let mut rule = config.rule_for(destination, &[]);
    // One at a time: what became of one is recorded before the next is begun.
    rule.recipients_per_transaction = 1;
    rule.connections = local::connections(config, to);
    Site { name: destination.to_vec(), rule, until: clock::now() + CONFIGURED_FOR, candidates: Vec::new() }
}

/// Whether a queue is that of mailboxes.
fn is_mailboxes(destination: &[u8]) -> bool {
    destination == b"local:"
}

/// The socket of the server that has the mailboxes, if it listens at one of the file system.
fn mailbox_socket(config: &Config, destination: &[u8]) -> Option<Candidate> {
    let Mailbox::LmtpSocket(path) = &config.local.mailbox else { return None };
    let name = path.to_string_lossy();
    is_mailboxes(destination).then(|| Candidate {
        name: (*name).into(),
        address: Where::Unix(path.clone()),
        protocol: RouteProtocol::Lmtp,
        server_name: "localhost".into(),
        preference: 0,
    })
}

/// The site of the server that has the mailboxes.
fn of_mailbox_server(config: &Config, candidates: Vec<Candidate>) -> Site {
    let name = config.local.mailbox.to_string().into_bytes();
    let rule = config.rule_for(&name, &[]);
    Site { name, rule, until: clock::now() + CONFIGURED_FOR, candidates }
}

fn of_smart_hosts(config: &Config, candidates: Vec<Candidate>) -> Site {
    let name = smart_hosts(&config.route);
    let rule = config.rule_for(&name, &[]);
    Site { name, rule, until: clock::now() + CONFIGURED_FOR, candidates }
}

/// The site of hosts and their preferences, which stand in the order of these.
fn of_hosts(
    config: &Config,
    destination: &[u8],
    hosts: &[(&str, u16)],
    until: Option<Instant>,
    candidates: Vec<Candidate>,
) -> Site {
    // A literal is no name.
    let names: Vec<&str> = hosts.iter().map(|(name, _)| *name).filter(|name| !name.starts_with('[')).collect();
    let rule = config.rule_for(destination, &names);
    let mut sorted = hosts.to_vec();
    sorted.sort_unstable_by_key(|&(name, preference)| (preference, name));
    let mut name = String::new();
    let mut last = None;
    for (host, preference) in sorted {
        match last.replace(preference) {
            None => {}
            Some(before) if before == preference => name.push('|'),
            Some(_) => name.push(','),
        }
        name.push_str(host);
    }
    name.push_str(&format!(":{} tls={}", config.route.port, rule.tls.word()));
    for source in [rule.source4.map(IpAddr::from), rule.source6.map(IpAddr::from)].into_iter().flatten() {
        name.push_str(&format!(" from={source}"));
    }
    if let Some(hello) = &rule.hello {
        name.push_str(&format!(" hello={hello}"));
    }
    if let Some(number) = rule.index {
        name.push_str(&format!(" rule={}", number + 1));
    }
    let until = until.unwrap_or_else(|| clock::now() + CONFIGURED_FOR);
    Site { name: name.into_bytes(), rule, until, candidates }
}

async fn by_list(
    groups: &[Vec<HostPort>],
    resolver: &Resolver,
    family: Family,
    turn: u64,
) -> Result<Vec<Candidate>, NoHosts> {
    let mut found = Vec::new();
    let mut trouble = None;
    for (group, preference) in groups.iter().zip(0..) {
        let start = usize::try_from(turn % group.len().max(1) as u64).unwrap_or(0);
        for host in group.iter().cycle().skip(start).take(group.len()) {
            match &host.host {
                Host::Address(ip) => found.push(by_address(*ip, host.port, preference)),
                Host::Name(name) => match resolver.host_addresses(name.ascii(), family, turn).await {
                    Ok(addresses) => {
                        let at = |ip| named(name.ascii(), SocketAddr::new(ip, host.port), preference);
                        found.extend(addresses.into_iter().map(at));
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
) -> Result<Site, NoHosts> {
    let port = config.route.port;
    let text = str::from_utf8(destination).unwrap_or_default();
    let domain = match text.parse::<Domain>() {
        Ok(Domain::Name(name)) => name,
        Ok(literal @ Domain::Literal(_)) if let Some(candidate) = by_literal(config, &literal) => {
            let name = candidate.name.clone();
            return Ok(of_hosts(config, destination, &[(&name, 0)], None, vec![candidate]));
        }
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
    let found = resolver.mail_hosts(&domain, port, us, family, turn).await?;
    let hosts: Vec<(&str, u16)> = found.exchanges.iter().map(|(name, preference)| (&**name, *preference)).collect();
    let at = |host: &MailHost| {
        let (name, preference) = (host.name.clone(), host.preference);
        host.addresses.clone().into_iter().map(move |ip| named(&name, SocketAddr::new(ip, port), preference))
    };
    let candidates = found.hosts.iter().flat_map(at).collect();
    Ok(of_hosts(config, destination, &hosts, Some(found.until), candidates))
}

/// The host of an address literal.
// RFC 5321 §4.1.3: a literal is the host itself
fn by_literal(config: &Config, domain: &Domain) -> Option<Candidate> {
    match domain {
        Domain::Literal(AddressLiteral::V4(ip)) => Some(by_address((*ip).into(), config.route.port, 0)),
        Domain::Literal(AddressLiteral::V6(ip)) => Some(by_address((*ip).into(), config.route.port, 0)),
        _ => None,
    }
}

fn by_address(ip: IpAddr, port: u16, preference: u16) -> Candidate {
    let (name, server_name) = (format!("[{ip}]").into(), ip.to_string().into());
    let (address, protocol) = (Where::Socket(SocketAddr::new(ip, port)), RouteProtocol::Smtp);
    Candidate { name, address, protocol, server_name, preference }
}

fn named(name: &str, address: SocketAddr, preference: u16) -> Candidate {
    let name = name.strip_suffix('.').unwrap_or(name);
    let (address, protocol) = (Where::Socket(address), RouteProtocol::Smtp);
    Candidate { name: name.into(), address, protocol, server_name: name.into(), preference }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(smart_host: &str, destination: &[u8]) -> Result<Vec<Candidate>, NoHosts> {
        let text = format!("[route]\nsmart_host = {smart_host}\n[dns]\nservers = [\"127.0.0.1:9\"]\n");
        let config = crate::config::load(&text, None, &[], &crate::config::Machine::default()).unwrap().config;
        let resolver = Resolver::new(&config.dns).unwrap();
        site(&config, &resolver, destination, &Ourselves::default(), 1).await.map(|site| site.candidates)
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
