//! The answers of the DNS: addresses of the host's name, their names, MX and SPF records of its domains.

use super::{FindingState, SetupFinding};
use crate::config::Config;
use crate::dns::{ClientName, Resolver};
use filter::dns_question::{DnsAnswer, DnsAnswers, DnsQuestion, DnsRecord, RecordKind};
use filter::spf::{self, SpfCode, SpfRequest};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// An address that no packet reaches (RFC 5737): a route to it tells the address that packets to the world have.
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 25);
/// Questions of one SPF record.
const QUESTIONS_MAX: usize = 50;

pub(super) async fn check(config: &Config, resolver: &Resolver, domains: &[String], now: u64) -> Vec<SetupFinding> {
    let name = config.hostname.as_str();
    let mut found = Vec::new();
    let addresses = match addresses(resolver, name).await {
        Err(()) => {
            found.push(no_answer("address", name));
            Vec::new()
        }
        Ok(addresses) => {
            found.push(address_finding(name, &addresses));
            addresses
        }
    };
    for ip in &addresses {
        found.push(pointer(resolver, name, *ip).await);
    }
    for domain in domains {
        found.push(exchange(resolver, name, domain).await);
        found.push(sender_policy(config, resolver, domain, &addresses, now).await);
    }
    found
}

async fn addresses(resolver: &Resolver, name: &str) -> Result<Vec<IpAddr>, ()> {
    let mut addresses = Vec::new();
    for kind in [RecordKind::A, RecordKind::Aaaa] {
        for record in ask(resolver, kind, name).await? {
            if let DnsRecord::Address(ip) = record {
                addresses.push(ip);
            }
        }
    }
    Ok(addresses)
}

async fn ask(resolver: &Resolver, kind: RecordKind, name: &str) -> Result<Vec<DnsRecord>, ()> {
    let Some(question) = DnsQuestion::new(kind, name) else { return Ok(Vec::new()) };
    match resolver.answer(&question).await {
        DnsAnswer::Records(records) => Ok(records),
        DnsAnswer::Failed => Err(()),
    }
}

fn no_answer(check: &'static str, name: &str) -> SetupFinding {
    let text = "the DNS gives no answer now; run setup again with --dry-run, and see dns.servers or /etc/resolv.conf";
    SetupFinding::new(check, name, FindingState::Unknown, text)
}

fn address_finding(name: &str, addresses: &[IpAddr]) -> SetupFinding {
    if !addresses.is_empty() {
        let text = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return SetupFinding::new("address", name, FindingState::Ok, format!("has {text}"));
    }
    let (record, hint) = match own_address() {
        Some(ip) if !is_private(ip) => (address_record(name, ip), ""),
        _ => (
            format!("{name}. IN A <public address>"),
            "; this machine has a private address: publish the one that the world sees",
        ),
    };
    let text = format!("has no address: other servers refuse mail of such a host{hint}");
    SetupFinding::new("address", name, FindingState::Missing, text).publish(record)
}

fn address_record(name: &str, ip: IpAddr) -> String {
    format!("{name}. IN {} {ip}", if ip.is_ipv4() { "A" } else { "AAAA" })
}

/// Returns the address that connections to the world come from. No packet is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

async fn pointer(resolver: &Resolver, name: &str, ip: IpAddr) -> SetupFinding {
    let record = format!("{} IN PTR {name}.", reverse_name(ip));
    let object = ip.to_string();
    let owner = "whoever gave you the address sets the record";
    match resolver.reverse(ip).await {
        ClientName::Verified(found) if found.eq_ignore_ascii_case(name) => {
            SetupFinding::new("ptr", &object, FindingState::Ok, format!("has the name {found}"))
        }
        ClientName::Verified(found) => {
            let text = format!("has the name {found}, not {name}; many servers accept that, some do not; {owner}");
            SetupFinding::new("ptr", &object, FindingState::Differs, text).publish(record)
        }
        ClientName::Forged(found) => {
            let text =
                format!("has the name {found}, which does not lead back to it: many servers refuse that; {owner}");
            SetupFinding::new("ptr", &object, FindingState::Differs, text).publish(record)
        }
        ClientName::None => {
            let text = format!("has no name: many servers refuse mail from it; {owner}");
            SetupFinding::new("ptr", &object, FindingState::Missing, text).publish(record)
        }
        ClientName::Unknown => no_answer("ptr", &object),
    }
}

/// Returns the name of an address in the DNS, with its last dot.
fn reverse_name(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(ip) => {
            let digits = ip.octets().into_iter().rev().flat_map(|octet| [octet & 15, octet >> 4]);
            digits.map(|digit| format!("{digit:x}.")).collect::<String>() + "ip6.arpa."
        }
    }
}

async fn exchange(resolver: &Resolver, name: &str, domain: &str) -> SetupFinding {
    let record = format!("{domain}. IN MX 10 {name}.");
    let Ok(records) = ask(resolver, RecordKind::Mx, domain).await else { return no_answer("mx", domain) };
    let hosts: Vec<String> = records
        .into_iter()
        .filter_map(|record| if let DnsRecord::Exchange(host) = record { Some(host) } else { None })
        .collect();
    if hosts.iter().any(|host| host.eq_ignore_ascii_case(name)) {
        return SetupFinding::new("mx", domain, FindingState::Ok, format!("its mail comes to {name}"));
    }
    // RFC 5321 §5.1
    let found = match hosts.as_slice() {
        [] => (FindingState::Missing, "has no MX record: its mail goes to the address of the domain".to_owned()),
        hosts => (FindingState::Differs, format!("its mail goes to {}, not to {name}", hosts.join(", "))),
    };
    SetupFinding::new("mx", domain, found.0, found.1).publish(record)
}

/// Checks that the SPF record of a domain lets this host send. A smart host sends in its place, and its addresses are
/// known to its operator alone.
async fn sender_policy(
    config: &Config,
    resolver: &Resolver,
    domain: &str,
    addresses: &[IpAddr],
    now: u64,
) -> SetupFinding {
    let is_direct = config.route.smart_host.is_empty();
    let Ok(records) = ask(resolver, RecordKind::Txt, domain).await else { return no_answer("spf", domain) };
    let texts = records.into_iter().filter_map(|one| if let DnsRecord::Text(text) = one { Some(text) } else { None });
    let is_policy = |text: &String| text.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case("v=spf1"));
    let policies: Vec<String> = texts.filter(is_policy).collect();
    let record = format!("{domain}. IN TXT \"v=spf1 mx {}-all\"", if is_direct { "" } else { "include:<smart host> " });
    let Some(policy) = policies.first() else {
        let text = "has no SPF record: large providers refuse or mark its mail";
        return SetupFinding::new("spf", domain, FindingState::Missing, text).publish(record);
    };
    if !is_direct {
        let text = format!("has {policy:?}; it must name the addresses of the smart host");
        return SetupFinding::new("spf", domain, FindingState::Ok, text);
    }
    for ip in addresses {
        let sender = format!("postmaster@{domain}");
        let request =
            SpfRequest { ip: *ip, helo: &config.hostname, sender: &sender, receiver: &config.hostname, time: now };
        let (code, reason) = evaluate(resolver, &request).await;
        match code {
            SpfCode::Pass => {}
            SpfCode::TempError => return no_answer("spf", domain),
            other => {
                let text = format!(
                    "{policy:?} gives {} for {ip} ({reason}); add \"a:{}\" or \"mx\"",
                    other.name(),
                    config.hostname
                );
                return SetupFinding::new("spf", domain, FindingState::Differs, text);
            }
        }
    }
    match addresses {
        [] => SetupFinding::new(
            "spf",
            domain,
            FindingState::Unknown,
            format!("has {policy:?}; this host has no address yet"),
        ),
        _ => SetupFinding::new("spf", domain, FindingState::Ok, format!("{policy:?} lets this host send")),
    }
}

async fn evaluate(resolver: &Resolver, request: &SpfRequest<'_>) -> (SpfCode, String) {
    let mut answers = DnsAnswers::default();
    for _ in 0..QUESTIONS_MAX {
        match spf::check(request, &answers) {
            Ok(result) => return (result.code, result.reason),
            Err(question) => {
                let answer = resolver.answer(&question).await;
                answers.insert(question, answer);
            }
        }
    }
    (SpfCode::TempError, "too many questions".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_addresses_are_those_of_the_dns() {
        assert_eq!(reverse_name("192.0.2.7".parse().unwrap()), "7.2.0.192.in-addr.arpa.");
        let name = reverse_name("2001:db8::1".parse().unwrap());
        assert!(name.starts_with("1.0.0.0.") && name.ends_with("8.b.d.0.1.0.0.2.ip6.arpa."), "{name}");
    }

    #[test]
    fn addresses_that_the_world_does_not_see_are_not_published() {
        for ip in ["10.1.2.3", "192.168.0.1", "127.0.0.1", "169.254.1.1", "100.64.0.1", "fd00::1", "fe80::1", "::1"] {
            assert!(is_private(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["192.0.2.1", "100.63.0.1", "2001:db8::1"] {
            assert!(!is_private(ip.parse().unwrap()), "{ip}");
        }
    }
}
