//! Doubts about keys.

use super::super::Options;
use super::super::tag::{Keys, TAGS};
use super::{CheckedEntry, LintMessage, error, warning};
use crate::network;
use std::net::{IpAddr, Ipv6Addr};

/// Checks the key of an entry. The first doubt is enough.
pub(super) fn check(line: &CheckedEntry<'_>, options: &Options, doubts: &mut Vec<LintMessage>) {
    let first = unknown_tag(line)
        .or_else(|| empty(line))
        .or_else(|| network(line))
        .or_else(|| spelling(line, options))
        .or_else(|| kind(line))
        .or_else(|| untagged(line));
    doubts.extend(first);
}

/// The key with another text behind its tag.
fn write(line: &CheckedEntry<'_>, body: &str) -> String {
    line.known.map_or_else(|| format!("write {body}"), |known| format!("write {}:{body}", known.name))
}

fn is_ipv4(body: &str) -> bool {
    network::without_ipv6(body).len() == body.len() && network::prefix(body).is_some() && !body.contains("::")
}

fn is_ipv6(body: &str) -> bool {
    network::without_ipv6(body).len() < body.len()
}

/// A word before a colon that is no tag.
fn unknown_tag(line: &CheckedEntry<'_>) -> Option<LintMessage> {
    if line.tag.is_some() || is_ipv6(line.body) || line.body.starts_with('[') {
        return None;
    }
    let (word, rest) = line.body.split_once(':')?;
    if word.bytes().all(|byte| byte.is_ascii_hexdigit())
        && rest.bytes().all(|byte| byte.is_ascii_hexdigit() || b":/.".contains(&byte))
    {
        return Some(error("an IPv6 address needs \"IPv6:\" before it", format!("write Connect:IPv6:{}", line.body)));
    }
    let near = TAGS.iter().map(|known| (distance(&known.name.to_lowercase(), &word.to_lowercase()), known.name)).min();
    let hint = match near {
        Some((distance, name)) if distance <= 2 => format!("write {name}:{rest}"),
        _ => format!("the tags are {}", TAGS.map(|known| known.name).join(", ")),
    };
    Some(error(format!("\"{word}:\" is no tag, so the key never matches"), hint))
}

/// How many letters have to be changed, added, removed, or exchanged with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().take(32).collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, x) in (1..).zip(&a) {
        let mut row = vec![i];
        for (j, y) in (1..).zip(&b) {
            let at = |back: usize, column: usize| {
                rows.get(rows.len().wrapping_sub(back))
                    .and_then(|row| row.get(column))
                    .copied()
                    .unwrap_or(usize::MAX / 2)
            };
            let left = row.last().copied().unwrap_or_default();
            let mut best = (at(1, j) + 1).min(left + 1).min(at(1, j - 1) + usize::from(x != y));
            if i > 1 && j > 1 && a.get(i - 2) == Some(y) && b.get(j - 2) == Some(x) {
                best = best.min(at(2, j - 2) + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or_default()
}

fn empty(line: &CheckedEntry<'_>) -> Option<LintMessage> {
    let known = line.known.filter(|known| line.body.is_empty() && !known.has_default)?;
    Some(error(format!("\"{}:\" alone is never looked up", known.name), "write what it is for behind the tag"))
}

/// Networks and addresses of clients.
fn network(line: &CheckedEntry<'_>) -> Option<LintMessage> {
    let body = line.body;
    if let Some((_, length)) =
        body.split_once('/').filter(|(ip, _)| network::without_ipv6(ip).parse::<IpAddr>().is_ok())
    {
        let Some(network) = network::cidr(body) else {
            let text = format!("/{length} is no length of a prefix");
            return Some(error(text, "write an address and the length of its prefix, as in 192.0.2.0/24"));
        };
        if network.trunc() != network {
            let prefix = if is_ipv6(body) { "IPv6:" } else { "" };
            return Some(warning(
                format!("it is the network {}", network.trunc()),
                write(line, &format!("{prefix}{}", network.trunc())),
            ));
        }
    }
    if let Some(short) = body.strip_suffix('.').filter(|short| is_ipv4(short)) {
        return Some(error("an address with a dot at its end never matches", write(line, short)));
    }
    if line.is_for("Connect")
        && body.contains(':')
        && body.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte))
    {
        return Some(error("an IPv6 address needs \"IPv6:\" before it", write(line, &format!("IPv6:{body}"))));
    }
    let groups = network::without_ipv6(body);
    if is_ipv6(body) && groups.ends_with("::") && groups.parse::<Ipv6Addr>().is_ok() {
        let hint = format!("{} for the network", write(line, &format!("IPv6:{}", groups.trim_end_matches(':'))));
        return Some(warning(format!("it is the one address {groups}, no network"), hint));
    }
    None
}

/// Spellings under which nothing is looked up.
fn spelling(line: &CheckedEntry<'_>, options: &Options) -> Option<LintMessage> {
    let body = line.body;
    if line.known.is_some_and(|known| known.keys == Keys::Any) {
        return None;
    }
    if body == "<>" || body == "@" {
        return Some(error("the null sender is always accepted", "remove it"));
    }
    if body.contains('"') {
        return Some(error("keys are looked up without quotes", write(line, &body.replace('"', ""))));
    }
    let (user, domain) = body.rsplit_once('@').map_or((None, body), |(user, domain)| (Some(user), domain));
    if domain.contains('*') || user.is_some_and(|user| user.strip_suffix("+*").unwrap_or(user).contains('*')) {
        let plain = body.replace("*.", "").replace('*', "");
        return Some(error(
            "\"*\" is no wildcard; a domain stands for all below it",
            write(line, plain.trim_start_matches('@')),
        ));
    }
    if user == Some("") {
        return Some(error("a domain is looked up without \"@\"", write(line, domain)));
    }
    if let Some(domain) = domain.strip_suffix('.') {
        return Some(error(
            "names are looked up without a dot at their end",
            write(line, &body.replace(&format!("{domain}."), domain)),
        ));
    }
    if let (Some(rest), false, None) = (domain.strip_prefix('.'), options.lookup_dot_domain, user) {
        let hint = format!("{}, or set lookup_dot_domain", write(line, rest));
        return Some(error("keys with a dot at their beginning are not looked up", hint));
    }
    None
}

/// Keys of another kind than the tag asks for.
fn kind(line: &CheckedEntry<'_>) -> Option<LintMessage> {
    let (known, body) = (line.known?, line.body);
    let is_ip = is_ipv4(body) || is_ipv6(body) || network::cidr(body).is_some();
    match known.keys {
        Keys::Hosts | Keys::Ips if body.contains('@') => {
            Some(error(format!("{}: is for hosts", known.name), format!("write From:{body}")))
        }
        Keys::Ips if !is_ip && !body.is_empty() => {
            Some(error(format!("{}: looks at addresses alone", known.name), "write the address of the host"))
        }
        Keys::Addresses | Keys::Domains if is_ip => {
            Some(error(format!("{}: is for mail addresses", known.name), format!("write Connect:{body}")))
        }
        Keys::Domains if body.contains('@') => {
            let domain = body.rsplit_once('@').map_or("", |(_, domain)| domain);
            Some(error(format!("{}: looks at domains alone", known.name), write(line, domain)))
        }
        _ => None,
    }
}

fn untagged(line: &CheckedEntry<'_>) -> Option<LintMessage> {
    if line.tag.is_some() {
        return None;
    }
    let body = line.body;
    let hint = if body.contains('@') {
        format!("write From:{body} or To:{body}")
    } else if is_ipv4(body) || is_ipv6(body) || network::cidr(body).is_some() {
        format!("write Connect:{body}")
    } else {
        format!("write Connect:{body}, From:{body} or To:{body}")
    };
    Some(warning("keys without a tag count for clients, senders and recipients alike, and are deprecated", hint))
}
