//! The access map: who may connect, send, receive and relay, as sendmail's `check_relay`, `check_mail` and `check_rcpt`
//! decide.
//!
//! | File | Holds |
//! |---|---|
//! | `key` | the keys under which the map is asked, in their order |
//! | [`value`] | what an entry says, and what a client is told for it |
//! | `check` | the decisions about client, sender and recipient |
//! | `relay` | the clients that may relay ([`Access::client_right`]); whether all hosts in an address are ours |
//! | [`tag`] | the other tags: limits, TLS, passwords, queue groups, copies |
//! | [`demand`] | whether a connection is what the tags of TLS demand |
//! | `lint` | entries that do not what they seem to say |
//!
//! Invariants: without an entry nothing is decided but that strangers do not relay; an entry that is read wrongly never
//! permits anything; a map that cannot be asked is [`Stop::Trouble`], for `451 4.3.0`. Where this differs from sendmail
//! on purpose is said in `docs/access.md`.
//!
//! Not here: limits themselves (`server`), whether a recipient exists ([`resolve`](crate)), the DNS.

mod check;
pub mod demand;
#[doc(hidden)]
pub mod fuzz;
mod key;
mod lint;
mod relay;
pub mod tag;
pub mod value;

#[cfg(test)]
pub(crate) mod tests;

use crate::network::{self, Networks};
use crate::question::{Ask, EntryLocation, MapEntry, Source, Stop};
use crate::refusal::Refusal;
use crate::step::Step;
use key::{Group, Tag};
use std::collections::HashMap;
use std::net::IpAddr;
pub use value::{AccessValue, ErrorText};

/// The name of the map in messages.
const MAP: &str = "access";

/// When clients and senders are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelayChecks {
    /// At once.
    #[default]
    No,
    /// With each recipient, after the recipient.
    Yes,
    /// As `Yes`, and not for recipients with `Spam:` `FRIEND`.
    Friend,
    /// As `Yes`, and only for recipients with `Spam:` `HATER`.
    Hater,
}

/// Whether a sender's address gives the right to relay. It can be forged, so this is not recommended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelayMailFrom {
    /// It does not.
    #[default]
    No,
    /// `From:user@domain RELAY` does.
    Address,
    /// `From:domain RELAY` does, too.
    Domain,
}

/// sendmail's `FEATURE`s of the access map. The default is sendmail's.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `delay_checks`
    pub delay_checks: DelayChecks,
    /// `blocklist_recipients`: entries for recipients refuse mail; else only `RELAY` counts for them.
    pub blocklist_recipients: bool,
    /// `lookupdotdomain`: keys like `From:.example.com` count.
    pub lookup_dot_domain: bool,
    /// `relaytofulladdress`: `To:user@domain RELAY` and `To:user@ RELAY` count.
    pub relay_to_full_address: bool,
    /// `relay_hosts_only`: `RELAY` of a domain is not for those below it. Class R has to be read with it, too.
    pub relay_hosts_only: bool,
    /// `relay_mail_from`
    pub relay_mail_from: RelayMailFrom,
    /// `relay_local_from`: a sender in a domain of class w may relay. It can be forged.
    pub relay_local_from: bool,
    /// Whether a client may relay because it is this machine by its address or name: `127.0.0.1` and `::1`, an address
    /// of class w, a name of ours. In sendmail it always may. Where this is off, class R and the map alone give such a
    /// client rights.
    pub relay_loopback: bool,
    /// `accept_unqualified_senders`: strangers may send as `user@localhost`.
    pub accept_unqualified_senders: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            delay_checks: DelayChecks::No,
            blocklist_recipients: false,
            lookup_dot_domain: false,
            relay_to_full_address: false,
            relay_hosts_only: false,
            relay_mail_from: RelayMailFrom::No,
            relay_local_from: false,
            relay_loopback: true,
            accept_unqualified_senders: false,
        }
    }
}

/// The map and how it is used.
#[derive(Clone, Debug, Default)]
pub struct Access {
    map: Vec<Source>,
    options: Options,
    /// Keys with a network, by their tag in lower case; without a tag under "".
    networks: HashMap<Box<str>, Networks<Box<str>>>,
    /// Tags that keys may have, a bit for each.
    tags: u32,
}

/// The result of the DNS look-up of a client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientName<'a> {
    /// The name was not looked up.
    NotAsked,
    /// This name, which has that address.
    Verified(&'a str),
    /// A name, which has other addresses.
    Forged,
    /// No name.
    NotFound,
    /// It could not be asked.
    Unavailable,
}

/// A certificate that a client showed and that was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate<'a> {
    /// The issuer, as sendmail writes it: `/C=US/O=Example/CN=Example+20CA`.
    pub issuer: &'a str,
    /// The subject.
    pub subject: &'a str,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    /// Its address; `None` for a process of this machine.
    pub ip: Option<IpAddr>,
    /// Its name.
    pub name: ClientName<'a>,
    /// The user that it logged in as.
    pub identity: Option<&'a str>,
    /// Its certificate.
    pub certificate: Option<Certificate<'a>>,
}

impl<'a> Client<'a> {
    /// A client of which only the address is known.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        Self { ip: Some(ip), name: ClientName::NotAsked, identity: None, certificate: None }
    }

    /// The same with a name.
    #[must_use]
    pub const fn named(self, name: ClientName<'a>) -> Self {
        Self { name, ..self }
    }
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The map does not say: other checks follow.
    Continue,
    /// `OK`: other checks of the same thing are spared, as that the sender's domain exists.
    Accept,
    /// As `Accept`; besides, mail to the recipient may be relayed, or the client may relay.
    Relay,
    /// Not taken.
    Refuse(Refusal),
    /// The message is taken and thrown away.
    Discard,
    /// The message is taken and held, for this reason.
    Quarantine(String),
}

/// A ruling and how it came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruled {
    /// The decision.
    pub ruling: Ruling,
    /// The decisions on the way.
    pub steps: Vec<Step>,
    /// The recipient wants its mail although other checks refuse client or sender: a friend of spam, or no hater. Only
    /// recipients have this, and only with `delay_checks`.
    pub spares_checks: bool,
}

impl Ruled {
    const fn new(ruling: Ruling, steps: Vec<Step>) -> Self {
        Self { ruling, steps, spares_checks: false }
    }
}

/// An entry and its value.
#[derive(Clone, Debug)]
struct AccessEntry {
    found: MapEntry,
    value: AccessValue,
}

impl Access {
    /// The map of these sources. Networks are found in those that are in memory.
    #[must_use]
    pub fn new(map: Vec<Source>, options: Options) -> Self {
        let mut networks: HashMap<Box<str>, Networks<Box<str>>> = HashMap::new();
        let mut tags = 0;
        for source in &map {
            let Source::Loaded(table) = source else {
                // The entries of such a source are known only after a question, so it may have every tag.
                tags = u32::MAX;
                continue;
            };
            for hit in table.iter() {
                let (tag, key) = tag::split(hit.key);
                tags |= tag.map_or(0, tag::bit);
                if let Some(network) = network_of(key) {
                    let tag = tag.map_or_else(String::new, str::to_lowercase).into();
                    networks.entry(tag).or_default().insert(network, hit.key.into());
                }
            }
        }
        Self { map, options, networks, tags }
    }

    /// Whether a key may have this tag: one in memory has it, or the map is outside. Without one, no look-up is needed.
    #[must_use]
    pub fn may_have(&self, tag: &str) -> bool {
        self.tags & tag::bit(tag) != 0
    }

    /// The sources of the map.
    #[must_use]
    pub fn map(&self) -> &[Source] {
        &self.map
    }

    /// The queue groups that sources in memory name: where, under which key, which.
    pub fn groups(&self) -> impl Iterator<Item = (EntryLocation, &str, &str)> {
        let tables = self.map.iter().filter_map(|source| match source {
            Source::Loaded(table) if self.may_have("QGRP") => Some(table),
            _ => None,
        });
        tables.flat_map(|table| {
            let is_group = |key: &str| tag::split(key).0.is_some_and(|tag| tag.eq_ignore_ascii_case("QGRP"));
            table.iter().filter(move |hit| is_group(hit.key)).map(move |hit| {
                let place = EntryLocation { map: MAP.into(), file: table.file().into(), line: hit.line };
                (place, hit.key, hit.value.trim())
            })
        })
    }

    /// How the map is used.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// The keys of an address and its networks.
    fn address(&self, tag: Tag, ip: IpAddr) -> Group {
        let tagged = self.networks.get(tag.name.to_lowercase().as_str());
        key::address(tag, ip, tagged, self.networks.get(""))
    }

    /// The first entry that one of the keys has; after one of which `skips` is true the next group is asked, or if the
    /// group of that entry forbids that, the entry comes back with `true`. All keys that have to be asked outside are
    /// asked in one round.
    fn find(
        &self,
        ask: &mut Ask<'_>,
        groups: &[Group],
        skips: impl Fn(&MapEntry) -> bool,
    ) -> Result<Option<(MapEntry, bool)>, Stop> {
        let mut open = false;
        for group in groups {
            for key in &group.keys {
                match ask.find(MAP, &self.map, key) {
                    Ok(None) => {}
                    Ok(Some(_)) if open => return Err(Stop::Open),
                    Ok(Some(found)) if !skips(&found) => return Ok(Some((found, false))),
                    Ok(Some(found)) if group.skip_ends => return Ok(Some((found, true))),
                    Ok(Some(_)) => break,
                    Err(Stop::Open) => open = true,
                    Err(trouble) if !open => return Err(trouble),
                    Err(_) => return Err(Stop::Open),
                }
            }
        }
        if open { Err(Stop::Open) } else { Ok(None) }
    }

    /// The entry that decides; `SKIP` is none. The keys are made only where there is a map.
    fn search<G: AsRef<[Group]>>(
        &self,
        ask: &mut Ask<'_>,
        groups: impl FnOnce() -> G,
    ) -> Result<Option<AccessEntry>, Stop> {
        if self.map.is_empty() {
            return Ok(None);
        }
        let is_skip = |found: &MapEntry| AccessValue::parse(&found.value) == AccessValue::Skip;
        let found = self.find(ask, groups().as_ref(), is_skip)?;
        Ok(found
            .filter(|(_, is_skip)| !is_skip)
            .map(|(found, _)| AccessEntry { value: AccessValue::parse(&found.value), found }))
    }
}

/// The network of a key that has one: with a prefix length, or an IPv6 address that is not written in full.
fn network_of(key: &str) -> Option<ipnet::IpNet> {
    let is_short = || network::without_ipv6(key).len() < key.len() && key.contains("::");
    network::cidr(key).or_else(|| network::prefix(key).filter(|_| is_short()))
}
