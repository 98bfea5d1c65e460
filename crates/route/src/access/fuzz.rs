//! Bodies for fuzzers: the access map and the files of classes w and R, see [`crate::fuzz`].

use super::demand::Secured;
use super::tag::{AuthInfo, TlsDemand};
use super::{Access, AccessValue, Client, DelayChecks, Options, Ruled, Ruling};
use crate::class::{Class, Classes, Kind};
use crate::map::Table;
use crate::question::{Answers, Ask, Source, Stop};
use mail::{Address, ReversePath};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A map of the lines, one key and one value each; the first line holds a sender and a recipient.
///
/// Asserted: every refusal is one line with a code of a refusal, a stranger relays only where the map says `RELAY`, and
/// no lint and no step breaks a line.
pub fn access_map(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let (sender, recipient) = lines.next().unwrap_or_default().split_once(' ').unwrap_or_default();
    let entries =
        lines.filter_map(|line| line.split_once([' ', '\t'])).map(|(key, value)| (key.to_owned(), value.to_owned()));
    let table = Table::from_entries("access", entries.take(1_000));
    let may_relay = table.iter().any(|hit| value(hit.value) == AccessValue::Relay);
    let bits = data.len();
    let options = Options {
        delay_checks: if bits & 1 > 0 { DelayChecks::Friend } else { DelayChecks::No },
        blocklist_recipients: bits & 2 > 0,
        lookup_dot_domain: bits & 4 > 0,
        relay_to_full_address: bits & 8 > 0,
        relay_hosts_only: bits & 16 > 0,
        ..Options::default()
    };
    let access = Access::new(vec![Source::Loaded(Arc::new(table))], options);
    for lint in access.lint() {
        assert!(!lint.hint.is_empty() && !lint.text.is_empty(), "{lint}");
    }
    let sender = sender.parse().map_or(ReversePath::Null, ReversePath::Address);
    let recipient = recipient.parse::<Address>();
    let classes = Classes::default();
    for ip in [IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3)), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()] {
        let client = Client::of(ip);
        sound(decided(|ask| access.connect(ask, &client)), may_relay);
        let numbers = (decided(|ask| access.rate(ask, ip)), decided(|ask| access.connections(ask, ip)));
        for (tag, number) in [("ClientRate", numbers.0), ("ClientConn", numbers.1)] {
            assert!(number.is_none() || access.may_have(tag), "{tag}");
        }
        if let Some(demand) = decided(|ask| access.tls_client(ask, &client)) {
            let refusal = decided(|ask| access.lacks(ask, &demand, &Secured::default()));
            let told = refusal.as_ref().map_or_else(String::new, ToString::to_string);
            assert_eq!(
                refusal.is_none(),
                !demand.value.verify && demand.value.bits == 0 && demand.value.further.is_empty()
            );
            assert!(told.len() <= 510 && !told.chars().any(char::is_control), "{told:?}");
        }
        sound(decided(|ask| access.sender(ask, &client, &sender, &classes)), false);
        if let Ok(recipient) = &recipient {
            sound(decided(|ask| access.recipient(ask, &client, &sender, recipient, &classes)), may_relay);
            assert_eq!(decided(|ask| access.bcc(ask, recipient)), decided(|ask| access.bcc(ask, recipient)));
        }
    }
}

fn decided<T>(decide: impl FnOnce(&mut Ask<'_>) -> Result<T, Stop>) -> T {
    decide(&mut Ask::new(&Answers::new())).expect("nothing has to be asked")
}

fn sound(ruled: Ruled, may_relay: bool) {
    match ruled.ruling {
        Ruling::Refuse(refusal) => {
            let told = refusal.to_string();
            assert!((400..600).contains(&refusal.code) && told.len() <= 510, "{told}");
            assert!(!told.chars().any(char::is_control), "{told:?}");
            assert_eq!(u16::from(refusal.status.outcome().digit()), refusal.code / 100, "{told}");
        }
        Ruling::Relay => assert!(may_relay, "{:?}", ruled.steps),
        Ruling::Continue | Ruling::Accept | Ruling::Discard | Ruling::Quarantine(_) => {}
    }
}

fn value(text: &str) -> AccessValue {
    let value = AccessValue::parse(text);
    if let AccessValue::Error(error) = &value {
        let told = error.refusal(None);
        assert!(told.text.len() <= text.len().max("Access denied".len()) * 3, "{told}");
    }
    if let Some(demand) = TlsDemand::parse(text) {
        assert!(demand.further.len() <= text.len(), "{demand:?}");
    }
    if let Some(info) = AuthInfo::parse(text) {
        assert!(info.user.is_some() || info.identity.is_some());
    }
    value
}

/// Checks a file of names: a name counts in any case of letters, and a fault is reported.
pub fn class_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for kind in [Kind::Local, Kind::Relay { hosts_only: false }, Kind::Relay { hosts_only: true }] {
        let (class, lints) = Class::read(kind, "class", "file", &text);
        assert!(lints.len() <= 2 * text.lines().count());
        for word in text.split_whitespace().take(1_000) {
            assert_eq!(class.has_name(word), class.has_name(&word.to_ascii_uppercase()), "{word}");
        }
        assert!(!class.is_empty() || !class.has_name("example.com"));
    }
}
