//! DNS block lists: the names to ask for a client's address, the weight of the answers, and the refusal.
//!
//! All lists are asked at once when the client connects, while the greeting waits anyway; [`ask`] is the only part with
//! I/O, and takes `dnsbl.time_max` at most. Each list that has the client adds its weight; from `dnsbl.refuse_at` on
//! the client's recipients are refused. That happens at RCPT and not at the greeting, so that a wrongly listed sender
//! still reaches the postmaster, that users who log in from a listed line can send, and that the log knows sender and
//! recipient. A list that does not answer, or answers nonsense, counts nothing: mail must not depend on it.
//!
//! Source: RFC 5782; the codes for errors are those that Spamhaus documents and others have taken over.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::IpNet;
use mail::{DomainName, Recipient};
use tokio::task::JoinSet;

use super::relay::Rights;
use super::{Facts, Policy, Ruling, refuse};
use crate::config::{Dnsbl, DnsblList};
use crate::dns::{Failure, Resolver};

/// Entries of the lists for a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listings {
    /// Lists with an entry for it, in the order of the configuration.
    pub listed: Vec<Listing>,
    /// Sum of their weights.
    pub score: i32,
    /// Problems with lists, to be logged, not more than once in a while for each list.
    pub notes: Vec<Note>,
}

/// One list that has the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The list.
    pub zone: DomainName,
    /// `dnsbl.list.weight`.
    pub weight: i32,
    /// Its answers that count.
    pub answers: Vec<IpAddr>,
}

/// Something is wrong with a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The list.
    pub zone: DomainName,
    /// The problem.
    pub trouble: BlockListError,
}

/// A problem with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockListError {
    /// It answers with a code for an error: it does not serve this resolver.
    Refuses(IpAddr),
    /// It answers with an address outside 127.0.0.0/8: the domain has another owner now, or the resolver lies.
    Foreign(IpAddr),
    /// The DNS gave no answer.
    Unanswered(Failure),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = &self.zone;
        match self.trouble {
            BlockListError::Refuses(code) => write!(
                f,
                "block list {zone} refuses to serve us (answer {code}) and is not counted; most lists do not serve public \
                 resolvers: set dns.servers to one of your own"
            ),
            BlockListError::Foreign(answer) => write!(
                f,
                "block list {zone} answers {answer}, which is no code of a list, and is not counted; remove it from \
                 dnsbl.list if it is dead"
            ),
            BlockListError::Unanswered(failure) => write!(f, "block list {zone} is not counted: {failure}"),
        }
    }
}

/// Returns the name under which a list has an address: `7.2.0.192.zone`, or its nibbles for IPv6.
// RFC 5782 §2.1, §2.4
#[must_use]
pub fn query_name(ip: IpAddr, zone: &DomainName) -> String {
    let labels: Vec<String> = match ip.to_canonical() {
        IpAddr::V4(ip) => ip.octets().iter().rev().map(u8::to_string).collect(),
        IpAddr::V6(ip) => ip.octets().iter().rev().map(|octet| format!("{:x}.{:x}", octet & 15, octet >> 4)).collect(),
    };
    format!("{}.{}", labels.join("."), zone.ascii())
}

/// Weighs the answers of the lists. `answers` has one entry for each list, in the same order.
#[must_use]
pub fn score(lists: &[DnsblList], answers: Vec<Result<Vec<IpAddr>, Failure>>) -> Listings {
    let mut found = Listings::default();
    for (list, answers) in lists.iter().zip(answers) {
        let mut note = |trouble| found.notes.push(Note { zone: list.zone.clone(), trouble });
        let mut counting = Vec::new();
        match answers {
            Err(failure) => note(BlockListError::Unanswered(failure)),
            Ok(answers) => {
                for answer in answers {
                    match judge(list, answer) {
                        BlockListAnswer::Counts => counting.push(answer),
                        BlockListAnswer::OtherCode => {}
                        BlockListAnswer::BlockListError(trouble) => note(trouble),
                    }
                }
            }
        }
        if !counting.is_empty() {
            found.score = found.score.saturating_add(list.weight);
            found.listed.push(Listing { zone: list.zone.clone(), weight: list.weight, answers: counting });
        }
    }
    found
}

enum BlockListAnswer {
    Counts,
    OtherCode,
    BlockListError(BlockListError),
}

fn judge(list: &DnsblList, answer: IpAddr) -> BlockListAnswer {
    let IpAddr::V4(code) = answer else { return BlockListAnswer::BlockListError(BlockListError::Foreign(answer)) };
    // Spamhaus: 127.255.255.252 to .255 say that zone, resolver or rate are refused.
    if code.octets().starts_with(&[127, 255, 255]) {
        return BlockListAnswer::BlockListError(BlockListError::Refuses(answer));
    }
    // RFC 5782 §2.1: answers are in 127.0.0.0/8
    if !code.is_loopback() {
        return BlockListAnswer::BlockListError(BlockListError::Foreign(answer));
    }
    if list.answers.iter().any(|network| network.contains(&answer)) {
        return BlockListAnswer::Counts;
    }
    // URIBL and SURBL say with 127.0.0.1 that they refuse the resolver.
    if code == Ipv4Addr::LOCALHOST {
        return BlockListAnswer::BlockListError(BlockListError::Refuses(answer));
    }
    if list.answers.is_empty() { BlockListAnswer::Counts } else { BlockListAnswer::OtherCode }
}

/// Asks all lists at once about a client; lists that have not answered after `dnsbl.time_max` count nothing. Clients in
/// `dnsbl.exempt` or `relay.from`, and loopback, are not asked about.
///
/// # Cancel safety
/// Yes: answers that have not come yet are lost.
pub async fn ask(resolver: &Resolver, settings: &Dnsbl, rights: &Rights, client: IpAddr) -> Listings {
    if settings.list.is_empty() || is_exempt(settings, rights, client) {
        return Listings::default();
    }
    let answers = ask_all(resolver, &settings.list, settings.time_max, client).await;
    score(&settings.list, answers)
}

fn is_exempt(settings: &Dnsbl, rights: &Rights, client: IpAddr) -> bool {
    let client = client.to_canonical();
    client.is_loopback()
        || rights.is_from(client)
        || settings.exempt.iter().any(|network: &IpNet| network.contains(&client))
}

async fn ask_all(
    resolver: &Resolver,
    lists: &[DnsblList],
    time_max: Duration,
    client: IpAddr,
) -> Vec<Result<Vec<IpAddr>, Failure>> {
    let mut answers = vec![Err(Failure::TimedOut); lists.len()];
    // Dropping the set ends its tasks.
    let mut tasks = JoinSet::new();
    for (index, list) in lists.iter().enumerate() {
        let (resolver, name) = (resolver.clone(), query_name(client, &list.zone));
        tasks.spawn(async move { (index, resolver.a_records_within(&name, time_max).await) });
    }
    while let Some(Ok((index, answer))) = tasks.join_next().await {
        if let Some(slot) = answers.get_mut(index) {
            *slot = answer;
        }
    }
    answers
}

/// The policy that refuses clients by their entries in block lists.
#[derive(Clone, Debug)]
pub struct Blocklist {
    refuse_at: i32,
    rights: Rights,
}

impl Blocklist {
    /// Refuses from `dnsbl.refuse_at` on, except clients that `rights` trust.
    #[must_use]
    pub const fn new(settings: &Dnsbl, rights: Rights) -> Self {
        Self { refuse_at: settings.refuse_at, rights }
    }
}

impl Policy for Blocklist {
    fn name(&self) -> &'static str {
        "dnsbl"
    }

    fn recipient(&self, facts: &Facts<'_>, recipient: &Recipient) -> Ruling {
        let Listings { listed, score, .. } = facts.listings;
        let zones: Vec<&str> =
            listed.iter().filter(|listing| listing.weight > 0).map(|listing| listing.zone.as_str()).collect();
        let Some(ip) = facts.ip().filter(|_| !zones.is_empty() && *score >= self.refuse_at) else {
            return Ruling::Continue;
        };
        // RFC 5321 §4.5.1: the postmaster is there for those who are refused elsewhere
        let to_postmaster = recipient.address.local_part().as_str().eq_ignore_ascii_case("postmaster");
        if to_postmaster || self.rights.is_trusted(facts.client, facts.identity) {
            return Ruling::Continue;
        }
        let text = format!("5.7.1 Service unavailable; client [{ip}] rejected: listed at {}", zones.join(", "));
        Ruling::Decide(refuse(554, &text))
    }
}

#[cfg(test)]
mod tests;
