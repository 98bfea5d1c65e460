//! The stop *resolve*: each recipient gets a destination, and a destination gets the hosts to try.
//!
//! A destination is the name under which the spool keeps a queue, a [`route::Destination`]: the domain of the recipient
//! in its DNS form, an address literal, or hosts that a map, a rule or `route.smart_host` names:
//! `smtp:[192.0.2.1]:25,(a.example:25|b.example:25)`. The name is given when the message is stored and says where its
//! mail belongs; which hosts that means is asked when mail is due and the last answer has expired, so that a change in
//! the DNS, in mailertable or in the configuration holds for mail that waits.
//!
//! Destinations whose mail goes to the same hosts in the same manner share a [`Site`]: one window, one pace, one
//! health. Its name says all that must be the same: `mx1.example|mx2.example,backup.example:25 tls=opportunistic`,
//! equal hosts with `|` between them, and behind it where they differ from the usual, the source address, the name we
//! go by, and the rule. *dispatch* keeps the answer ([`SiteCache`]) and hands it to connections.
//!
//! Invariant: a DNS that is broken is a deferral. Only an answer that says that there is no such host is a failure.

mod cache;
mod site;

use crate::config::{AddressFamily, Config, EffectiveRule, RouteProtocol};
use crate::dns::{Family, LocalIdentity, MailHost, NoHosts, Resolver};
use crate::next_hop::smart_hosts::{self, bounded};
use crate::next_hop::{Endpoint, local};
use crate::routing::{DomainRoute, Routing};
pub(crate) use cache::SiteCache;
use mail::{AddressLiteral, Domain, DomainName, EnhancedCode, Outcome};
use os::clock;
use route::destination::{Destination, Hosts, NextHost, Protocol, To};
use route::{Answers, Ask, Stop};
pub(crate) use site::{Candidate, Site, SiteHosts};
use site::{HostBlock, HostCandidates, LookupTime};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Time for which a site holds whose hosts the configuration names.
const CONFIGURED_FOR: Duration = Duration::from_secs(3_600);

/// Time for which the DNS's answer that there is no host holds.
const NOWHERE_FOR: Duration = Duration::from_secs(60);

/// When hosts of a list without an answer are asked for again while others have one.
const PART_FOR: Duration = Duration::from_secs(60);

/// How long a site is believed for which a map outside this process was asked.
const MAPS_FOR: Duration = Duration::from_secs(60);

/// Returns the site of a destination whose hosts need no question to anybody: addresses by configuration or map, an
/// address literal, and what stays on this machine.
pub(crate) fn site_at_once(config: &Config, routing: &Routing, destination: &[u8]) -> Option<Site> {
    let answers = Answers::new();
    match target(config, routing, &mut Ask::new(&answers), destination) {
        Ok(DestinationTarget::Hosts(hosts, own)) => {
            let at_once = |preference, host: &NextHost| match host {
                NextHost::Address(ip, port) => Some(block_of(preference, vec![by_address(*ip, *port, preference)])),
                NextHost::Unix(path) => Some(block_of(preference, vec![by_socket(path, preference)])),
                NextHost::Name(..) | NextHost::Mx(..) => None,
            };
            let named = hosts.groups.iter().zip(0..).flat_map(|(group, at)| group.iter().map(move |host| (at, host)));
            let blocks: Option<Vec<HostBlock>> = named.map(|(at, host)| at_once(at, host)).collect();
            Some(of_list(config, &hosts, &own, blocks?, None))
        }
        Ok(DestinationTarget::Literal(literal, own)) => of_literal(config, destination, &literal, &own),
        Ok(DestinationTarget::Here(to)) => Some(here(config, destination, to)),
        Ok(DestinationTarget::Mx(..)) | Err(_) => None,
    }
}

/// Meaning of a destination under the present configuration.
enum DestinationTarget {
    /// This machine.
    Here(To),
    /// These hosts.
    Hosts(Hosts, ConnectionOptions),
    /// This address.
    Literal(Domain, ConnectionOptions),
    /// The MX hosts of a domain.
    Mx(DomainName, ConnectionOptions),
}

/// Options of a destination for its connections.
#[derive(Clone, Debug, Default)]
struct ConnectionOptions {
    source4: Option<std::net::Ipv4Addr>,
    source6: Option<std::net::Ipv6Addr>,
    hello: Option<Box<str>>,
    group: Option<Box<str>>,
}

/// Why there is no target.
enum NoTarget {
    /// A source has to be asked first.
    Open,
    /// Makes the error for a destination without hosts.
    NoHosts(NoHosts),
}

fn target(
    config: &Config,
    routing: &Routing,
    ask: &mut Ask<'_>,
    destination: &[u8],
) -> Result<DestinationTarget, NoTarget> {
    if let Some(to) = local::target(config, destination) {
        return Ok(DestinationTarget::Here(to));
    }
    if let Some(hosts) = local::mailbox_server(config).filter(|_| destination == b"local:") {
        return Ok(DestinationTarget::Hosts(hosts, ConnectionOptions::default()));
    }
    let read = Destination::parse(destination);
    match &read {
        // A recipient that was refused goes to no host, also where all mail goes to smart hosts.
        Ok(Destination { to: To::Error { status, text }, .. }) => return Err(refused(*status, text)),
        Ok(read) if read.is_rerouted => {
            if let Some(target) = rerouted_target(read) {
                return Ok(target);
            }
        }
        _ => {}
    }
    let smart = (!config.route.smart_host.is_empty()).then(|| smart_hosts::hosts(&config.route));
    if let Some(hosts) = smart.clone().filter(|_| routing.is_plain()) {
        return Ok(DestinationTarget::Hosts(hosts, ConnectionOptions::default()));
    }
    let Ok(read) = read else {
        // A name that was cut is that of a long list of smart hosts.
        return match (smart, smart_hosts::is_list(destination)) {
            (Some(hosts), true) => Ok(DestinationTarget::Hosts(hosts, ConnectionOptions::default())),
            (None, true) => Err(NoTarget::NoHosts(gone())),
            _ => Err(NoTarget::NoHosts(no_host(destination))),
        };
    };
    let own = ConnectionOptions { source4: read.source4, source6: read.source6, hello: read.hello, group: read.group };
    match read.to {
        To::Hosts(hosts) if !routing.is_plain() => Ok(DestinationTarget::Hosts(hosts, own)),
        // The smart hosts are gone: the mail gets the destinations of its domains, if not just now.
        To::Hosts(_) => Err(NoTarget::NoHosts(gone())),
        To::Literal(literal) => match Domain::parse(literal.as_bytes()) {
            Ok(literal) => Ok(match smart {
                Some(hosts) => DestinationTarget::Hosts(hosts, own),
                None => DestinationTarget::Literal(literal, own),
            }),
            Err(_) => Err(NoTarget::NoHosts(no_host(destination))),
        },
        To::Domain(domain) => domain_target(routing, ask, destination, &domain, own),
        To::Error { status, text } => Err(refused(status, &text)),
        To::Local | To::Program { .. } | To::File { .. } => Err(NoTarget::NoHosts(no_host(destination))),
    }
}

/// Returns where mail goes that an operator or a content rule sent elsewhere: neither maps nor smart hosts change that.
fn rerouted_target(read: &Destination) -> Option<DestinationTarget> {
    let Destination { source4, source6, hello, group, .. } = read.clone();
    let own = ConnectionOptions { source4, source6, hello, group };
    match &read.to {
        To::Hosts(hosts) => Some(DestinationTarget::Hosts(hosts.clone(), own)),
        To::Literal(literal) => Some(DestinationTarget::Literal(Domain::parse(literal.as_bytes()).ok()?, own)),
        To::Domain(domain) => Some(DestinationTarget::Mx(DomainName::new(domain).ok()?, own)),
        To::Local | To::Program { .. } | To::File { .. } | To::Error { .. } => None,
    }
}

/// Makes the error of a recipient that was refused with this code and text.
fn refused(status: EnhancedCode, text: &str) -> NoTarget {
    let permanent = status.outcome() == Outcome::Permanent;
    NoTarget::NoHosts(NoHosts { permanent, status, text: text.to_owned(), is_ours: false })
}

/// Finds the way of mail for a domain: its mailertable entry, the smart hosts or its MX hosts.
fn domain_target(
    routing: &Routing,
    ask: &mut Ask<'_>,
    destination: &[u8],
    domain: &str,
    own: ConnectionOptions,
) -> Result<DestinationTarget, NoTarget> {
    let deferred = |status, text| NoTarget::NoHosts(NoHosts { permanent: false, status, text, is_ours: false });
    match routing.way_of(ask, domain) {
        Ok(DomainRoute::Hosts(hosts)) => Ok(DestinationTarget::Hosts(hosts, own)),
        Ok(DomainRoute::Mx) => match DomainName::new(domain) {
            Ok(domain) => Ok(DestinationTarget::Mx(domain, own)),
            Err(_) => Err(NoTarget::NoHosts(no_host(destination))),
        },
        Ok(DomainRoute::Local) => {
            let text =
                format!("mailertable says that {domain} is here now; its mail follows when nothing of it is under way");
            Err(deferred(EnhancedCode::of(Outcome::Transient, 4, 4), text))
        }
        Ok(DomainRoute::Refused(status, text)) => {
            let permanent = status.outcome() == Outcome::Permanent;
            Err(NoTarget::NoHosts(NoHosts { permanent, status, text, is_ours: false }))
        }
        // The hosts of a domain are found with any amount of work; if not, they are asked for again.
        Err(Stop::Open | Stop::TooMuchWork) => Err(NoTarget::Open),
        Err(Stop::Trouble(why)) => Err(deferred(EnhancedCode::of(Outcome::Transient, 4, 3), why.to_string())),
    }
}

fn gone() -> NoHosts {
    let status = EnhancedCode::of(Outcome::Transient, 4, 4);
    NoHosts { permanent: false, status, text: "its smart hosts are configured no more".to_owned(), is_ours: false }
}

fn no_host(destination: &[u8]) -> NoHosts {
    let status = EnhancedCode::of(Outcome::Permanent, 1, 2);
    let text = format!("\"{}\" is no host that mail can go to", String::from_utf8_lossy(destination));
    NoHosts { permanent: true, status, text, is_ours: false }
}

/// Returns the site of mail that no host takes: over it the mail is refused for this reason.
pub(crate) fn nowhere(config: &Config, destination: &[u8], no: NoHosts) -> Site {
    let name = [b"!", destination].concat().into();
    let until = clock::now() + NOWHERE_FOR;
    Site {
        name,
        rule: config.rule_for(destination, &[]),
        until,
        hosts: SiteHosts::Refused(no),
        lookup_time: LookupTime::default(),
    }
}

/// Finds where the mail of a destination goes now.
///
/// `seed` chooses the hosts of a domain that has more than are used.
///
/// # Errors
/// Why there is no host; whether that is for good.
/// # Cancel safety
/// Yes: a question that nobody waits for is asked again.
pub(crate) async fn site(
    config: &Config,
    routing: &Routing,
    resolver: &Resolver,
    destination: &[u8],
    us: &LocalIdentity,
    seed: u64,
) -> Result<Site, NoHosts> {
    let family = match config.delivery.address_family {
        AddressFamily::Any => Family::Any,
        AddressFamily::Ipv4 => Family::Ipv4,
        AddressFamily::Ipv6 => Family::Ipv6,
    };
    let names = NameLookup { resolver, us, family, seed };
    let mut asks = 0;
    let found = routing.decide(|ask| {
        asks += 1;
        match target(config, routing, ask, destination) {
            Err(NoTarget::Open) => Err(Stop::Open),
            Err(NoTarget::NoHosts(no)) => Ok(Err(no)),
            Ok(target) => Ok(Ok(target)),
        }
    });
    let target = match found.await {
        Ok(target) => target?,
        Err(why) => {
            let status = EnhancedCode::of(Outcome::Transient, 4, 3);
            return Err(NoHosts { permanent: false, status, text: why.to_string(), is_ours: false });
        }
    };
    let mut site = match target {
        DestinationTarget::Here(to) => here(config, destination, to),
        DestinationTarget::Hosts(hosts, own) => {
            let (blocks, until) = by_list(&hosts, names).await?;
            of_list(config, &hosts, &own, blocks, until)
        }
        DestinationTarget::Literal(literal, own) => {
            of_literal(config, destination, &literal, &own).ok_or_else(|| no_host(destination))?
        }
        DestinationTarget::Mx(domain, own) => by_domain(config, destination, &domain, &own, names).await?,
    };
    if asks > 1 {
        // A change of a map outside is seen only by a new question.
        site.until = site.until.min(clock::now() + MAPS_FOR);
    }
    Ok(site)
}

/// Returns the site of mail that is delivered here: that of its queue, since each program and each file is one of its
/// own.
fn here(config: &Config, destination: &[u8], to: To) -> Site {
    let mut rule = config.rule_for(destination, &[]);
    // One at a time: the result of one is recorded before the next is begun.
    rule.recipients_per_transaction = 1;
    // Programs and files are of this machine.
    rule.is_shared = false;
    rule.connections = local::connections(config, &to);
    Site {
        name: destination.into(),
        rule,
        until: clock::now() + CONFIGURED_FOR,
        hosts: SiteHosts::Local(to),
        lookup_time: LookupTime::default(),
    }
}

/// The resolver for names, and its parameters.
#[derive(Clone, Copy)]
struct NameLookup<'a> {
    resolver: &'a Resolver,
    us: &'a LocalIdentity,
    family: Family,
    seed: u64,
}

/// The site of hosts that are named one by one, until their addresses expire.
fn of_list(
    config: &Config,
    hosts: &Hosts,
    own: &ConnectionOptions,
    mut blocks: Vec<HostBlock>,
    until: Option<Instant>,
) -> Site {
    if hosts.protocol == Protocol::Lmtp {
        let hosts = blocks.iter_mut().flat_map(|block| &mut block.hosts);
        hosts.flat_map(|host| &mut host.candidates).for_each(|one| one.protocol = RouteProtocol::Lmtp);
    }
    let mut name = bounded(hosts.to_string());
    let mut asked = name.clone();
    if let Some(group) = &own.group {
        asked.extend_from_slice(format!(" group={group}").as_bytes());
    }
    let rule = with_own(config.rule_for(&asked, &[]), own);
    name.extend_from_slice(limit_of(config, &rule).as_bytes());
    name.extend_from_slice(manner(own).as_bytes());
    name.extend_from_slice(apart(config, own).as_bytes());
    let until = until.unwrap_or_else(|| clock::now() + CONFIGURED_FOR);
    Site { name: name.into(), rule, until, hosts: SiteHosts::Remote(blocks), lookup_time: LookupTime::default() }
}

/// Returns the part of a site's name for the limit that an operator has set: its mail is counted apart.
fn limit_of(config: &Config, rule: &EffectiveRule) -> String {
    let limit = rule.set_limit.and_then(|index| config.set_limits.get(index));
    limit.map_or_else(String::new, |limit| format!(" limit={}", limit.next_hop))
}

/// Returns a rule with the options of the destination itself, which override those of the rule.
fn with_own(mut rule: EffectiveRule, own: &ConnectionOptions) -> EffectiveRule {
    rule.source4 = own.source4.or(rule.source4);
    rule.source6 = own.source6.or(rule.source6);
    rule.hello = own.hello.clone().or(rule.hello);
    rule
}

/// Returns the part of a site's name for the queue group, if a rule sets its mail apart.
fn apart(config: &Config, own: &ConnectionOptions) -> String {
    let group = own.group.as_ref().filter(|group| config.has_group(group));
    group.map_or_else(String::new, |group| format!(" group={group}"))
}

/// Returns the part of a site's name for its own connection options.
fn manner(own: &ConnectionOptions) -> String {
    let mut text = String::new();
    for source in [own.source4.map(IpAddr::from), own.source6.map(IpAddr::from)].into_iter().flatten() {
        text.push_str(&format!(" from={source}"));
    }
    if let Some(hello) = &own.hello {
        text.push_str(&format!(" hello={hello}"));
    }
    text
}

/// Returns the site of hosts and their preferences, which stand in the order of these.
fn of_hosts(
    config: &Config,
    destination: &[u8],
    own: &ConnectionOptions,
    hosts: &[(&str, u16)],
    until: Option<Instant>,
    block: HostBlock,
) -> Site {
    // A literal is no name.
    let names: Vec<&str> = hosts.iter().map(|(name, _)| *name).filter(|name| !name.starts_with('[')).collect();
    let rule = with_own(config.rule_for(destination, &names), own);
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
    name.push_str(&limit_of(config, &rule));
    name.push_str(&apart(config, own));
    let until = until.unwrap_or_else(|| clock::now() + CONFIGURED_FOR);
    Site {
        name: name.into_bytes().into(),
        rule,
        until,
        hosts: SiteHosts::Remote(vec![block]),
        lookup_time: LookupTime::default(),
    }
}

/// Finds the addresses of hosts that are named one by one, and how long they hold.
async fn by_list(hosts: &Hosts, names: NameLookup<'_>) -> Result<(Vec<HostBlock>, Option<Instant>), NoHosts> {
    let mut asking = Vec::new();
    for (group, preference) in hosts.groups.iter().zip(0..) {
        asking.extend(group.iter().map(|host| addresses_of(host, preference, names)));
    }
    // All at once: hosts whose name servers are silent cost the time of one of them.
    let (mut blocks, mut until, mut trouble) = (Vec::new(), None::<Instant>, None);
    let mut hold = |other: Option<Instant>| until = until.into_iter().chain(other).min();
    for answer in futures_util::future::join_all(asking).await {
        match answer {
            Ok((block, its)) => {
                blocks.push(block);
                hold(its);
            }
            // A host that we name and the DNS does not know is a mistake of ours, not of the sender.
            Err(no) => trouble = Some(NoHosts { permanent: false, ..no }),
        }
    }
    match trouble {
        Some(trouble) if blocks.is_empty() => return Err(trouble),
        Some(_) => hold(Some(clock::now() + PART_FOR)),
        None => {}
    }
    Ok((blocks, until))
}

/// Finds the addresses of one host that is named, and how long they hold.
async fn addresses_of(
    host: &NextHost,
    preference: u16,
    names: NameLookup<'_>,
) -> Result<(HostBlock, Option<Instant>), NoHosts> {
    let NameLookup { resolver, us, family, seed } = names;
    match host {
        NextHost::Address(ip, port) => Ok((block_of(preference, vec![by_address(*ip, *port, preference)]), None)),
        NextHost::Name(name, port) => {
            let found = resolver.host_addresses(name, family, seed).await?;
            let at = |ip| named(name, SocketAddr::new(ip, *port), preference);
            Ok((block_of(preference, found.addresses.into_iter().map(at).collect()), Some(found.until)))
        }
        NextHost::Mx(name, port) => {
            let domain = DomainName::new(name).map_err(|_| no_host(name.as_bytes()))?;
            let found = resolver.mail_hosts(&domain, *port, us, family, seed).await?;
            let hosts = found.hosts.iter().map(|host| candidates_of(host, *port, preference)).collect();
            Ok((HostBlock { preference, hosts }, Some(found.until)))
        }
        NextHost::Unix(path) => Ok((block_of(preference, vec![by_socket(path, preference)]), None)),
    }
}

fn block_of(preference: u16, candidates: Vec<Candidate>) -> HostBlock {
    HostBlock { preference, hosts: vec![HostCandidates { preference, candidates }] }
}

/// The addresses of an MX host, with the preference of what stands for it in a list.
fn candidates_of(host: &MailHost, port: u16, preference: u16) -> HostCandidates {
    let at = |ip: &IpAddr| named(&host.name, SocketAddr::new(*ip, port), preference);
    HostCandidates { preference: host.preference, candidates: host.addresses.iter().map(at).collect() }
}

async fn by_domain(
    config: &Config,
    destination: &[u8],
    domain: &DomainName,
    own: &ConnectionOptions,
    names: NameLookup<'_>,
) -> Result<Site, NoHosts> {
    let NameLookup { resolver, us, family, seed } = names;
    let port = config.route.port;
    let found = resolver.mail_hosts(domain, port, us, family, seed).await?;
    let hosts: Vec<(&str, u16)> = found.exchanges.iter().map(|(name, preference)| (&**name, *preference)).collect();
    let block = found.hosts.iter().map(|host| candidates_of(host, port, host.preference)).collect();
    let block = HostBlock { preference: 0, hosts: block };
    Ok(of_hosts(config, destination, own, &hosts, Some(found.until), block))
}

/// The site of an address literal.
fn of_literal(config: &Config, destination: &[u8], literal: &Domain, own: &ConnectionOptions) -> Option<Site> {
    let candidate = by_literal(config, literal)?;
    let name = candidate.name.clone();
    Some(of_hosts(config, destination, own, &[(&name, 0)], None, block_of(0, vec![candidate])))
}

/// Returns the host of an address literal.
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
    let (address, protocol) = (Endpoint::Socket(SocketAddr::new(ip, port)), RouteProtocol::Smtp);
    Candidate { name, address, protocol, server_name, preference }
}

fn by_socket(path: &str, preference: u16) -> Candidate {
    let (address, server_name) = (Endpoint::Unix(path.into()), "localhost".into());
    Candidate { name: path.into(), address, protocol: RouteProtocol::Lmtp, server_name, preference }
}

/// Returns a host that was found by its name.
pub(crate) fn named(name: &str, address: SocketAddr, preference: u16) -> Candidate {
    let name = name.strip_suffix('.').unwrap_or(name);
    let (address, protocol) = (Endpoint::Socket(address), RouteProtocol::Smtp);
    Candidate { name: name.into(), address, protocol, server_name: name.into(), preference }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::testing::{Server, a};

    async fn found(smart_host: &str, destination: &[u8]) -> Result<Vec<Candidate>, NoHosts> {
        let text = format!("[route]\nsmart_host = {smart_host}\n[dns]\nservers = [\"127.0.0.1:9\"]\n");
        let config = crate::config::load(&text, None, &[], &crate::config::Machine::default()).unwrap().config;
        let resolver = Resolver::new(&config.dns).unwrap();
        site(&config, &Routing::plain(), &resolver, destination, &LocalIdentity::default(), 1)
            .await
            .map(|site| site.candidates(1))
    }

    #[tokio::test]
    async fn mail_of_smart_hosts_that_are_gone_waits() {
        let name = b"smtp:[192.0.2.1]:25";
        let none = found("[]", name).await.unwrap_err();
        assert!(!none.permanent, "{none}");
        // A name that is no destination has failed.
        assert!(found("[]", b"no domain").await.unwrap_err().permanent);
    }

    #[tokio::test]
    async fn equal_hosts_take_turns_and_others_keep_their_order() {
        let hosts = "[\"[192.0.2.1]:25\", [\"[192.0.2.2]:26\", \"[192.0.2.3]:27\"]]";
        let found = found(hosts, b"a.example").await.unwrap();
        let mut addresses: Vec<String> = found.iter().map(|one| one.address.to_string()).collect();
        addresses[1..].sort_unstable();
        assert_eq!(addresses, ["192.0.2.1:25", "192.0.2.2:26", "192.0.2.3:27"]);
        assert_eq!(&*found[0].name, "[192.0.2.1]");
    }

    #[tokio::test]
    async fn hosts_that_nobody_tells_of_cost_their_time_once() {
        let server = Server::start(vec![a("one.test", "192.0.2.1"), a("two.test", "192.0.2.2")]).await;
        let dead = "e.dead.test:25,f.dead.test:25,g.dead.test:25,h.dead.test:25";
        let list = format!("one.test:25,(c.dead.test:25|d.dead.test:25|two.test:25),{dead}");
        let text = format!("[dns]\nservers = [\"{}\"]\n[delivery]\naddress_family = \"ipv4\"", server.address);
        let config = crate::config::load(&text, None, &[], &crate::config::Machine::default()).unwrap().config;
        let resolver = Resolver::new(&config.dns).unwrap();
        for name in ["one.test", "two.test"] {
            assert_eq!(resolver.host_addresses(name, Family::Ipv4, 0).await.unwrap().addresses.len(), 1, "{name}");
        }
        server.silence("dead.test.");
        tokio::time::pause();
        let hosts = match Destination::parse(format!("smtp:{list}").as_bytes()).unwrap().to {
            To::Hosts(hosts) => hosts,
            other => panic!("{other:?}"),
        };
        let us = LocalIdentity::default();
        let names = NameLookup { resolver: &resolver, us: &us, family: Family::Ipv4, seed: 1 };
        let began = tokio::time::Instant::now();
        let (blocks, until) = by_list(&hosts, names).await.unwrap();
        assert!(began.elapsed() <= config.dns.timeout, "{:?}", began.elapsed());
        assert!(began.elapsed() > config.dns.timeout / 2, "the silent ones were not asked");
        assert!(until.is_some_and(|until| until <= clock::now() + PART_FOR), "the silent ones are asked again soon");
        let found = of_list(&config, &hosts, &ConnectionOptions::default(), blocks, until).candidates(1);
        let addresses: Vec<String> = found.iter().map(|one| one.address.to_string()).collect();
        assert_eq!(addresses, ["192.0.2.1:25", "192.0.2.2:25"]);
        assert_eq!(found.iter().map(|one| one.preference).collect::<Vec<_>>(), [0, 1]);
    }

    #[tokio::test]
    async fn a_literal_is_the_host() {
        let four = found("[]", b"[192.0.2.7]").await.unwrap();
        assert_eq!(four[0].address.to_string(), "192.0.2.7:25");
        let six = found("[]", b"[IPv6:2001:db8::1]").await.unwrap();
        assert_eq!(six[0].address.to_string(), "[2001:db8::1]:25");
    }
}
