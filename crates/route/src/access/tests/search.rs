//! Properties of the search, and networks.

use super::*;
use mail::{Domain, LocalPart};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn connect(access: &Access, ip: IpAddr) -> Ruled {
    known(|ask| access.connect(ask, &Client::of(ip)))
}

#[test]
fn the_longest_network_decides_however_it_is_written() {
    let access = Access::new(
        vec![table(&[
            ("Connect:10.0.0.0/8", "ERROR:5.7.1:\"550 eight\""),
            ("Connect:10.1.2.0/23", "OK"),
            ("Connect:10.1.2", "ERROR:5.7.1:\"550 twenty-four\""),
            ("Connect:10.1.2.128/25", "DISCARD"),
            ("10.1.2.130", "ERROR:5.7.1:\"550 bare\""),
            ("Connect:IPv6:2001:db8::/32", "ERROR:5.7.1:\"550 six\""),
            ("Connect:2001:db8:1::/48", "OK"),
            ("Connect:IPv6:2001:db8::1", "DISCARD"),
        ])],
        Options::default(),
    );
    for (ip, want) in [
        ("10.9.9.9", "550 5.7.1 eight"),
        ("10.1.3.1", "OK"),
        ("10.1.2.1", "550 5.7.1 twenty-four"),
        ("10.1.2.129", "DISCARD"),
        ("10.1.2.130", "550 5.7.1 bare"),
        ("::ffff:10.1.3.1", "OK"),
        ("2001:db8::2", "550 5.7.1 six"),
        ("2001:db8:1::2", "OK"),
        ("2001:db8::1", "DISCARD"),
    ] {
        let ruled = connect(&access, ip.parse().unwrap());
        assert_eq!(ruled.steps.first().map(|step| step.text.as_str()), Some(want), "{ip}");
    }
    assert_eq!(connect(&access, "192.0.2.1".parse().unwrap()).ruling, Ruling::Continue);
}

#[test]
fn skip_ends_the_search_of_its_group() {
    let entries = [
        ("From:b.example", "SKIP"),
        ("From:example", "REJECT"),
        ("From:u@c.example", "SKIP"),
        ("From:c.example", "REJECT"),
    ];
    let access = Access::new(vec![table(&entries)], Options::default());
    let classes = classes("", "", false);
    let client = Client::of("198.51.100.7".parse().unwrap());
    for (sender, want) in [
        ("x@a.b.example", "+"),
        ("x@a.example", "550 5.7.1 <x@a.example>... Access denied"),
        ("u@c.example", "+"),
        ("u+d@c.example", "+"),
        ("v@c.example", "550 5.7.1 <v@c.example>... Access denied"),
    ] {
        assert_eq!(told(&known(|ask| access.sender(ask, &client, &path(sender), &classes))), want, "{sender}");
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]\\.[a-c]\\.test", "[a-c]\\.test", "test", Just("[10.1.2.3]".to_owned())]
}

fn mailbox() -> impl Strategy<Value = (String, String)> {
    (prop_oneof!["[uv](\\+[de]?)?", "u%[a-c]\\.test", "[a-c]\\.test!u", "[ -~]{1,12}"], name())
}

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u8>().prop_map(|octet| IpAddr::from(Ipv4Addr::new(10, octet % 3, octet / 3 % 3, octet / 9 % 3))),
        any::<u8>().prop_map(|group| IpAddr::from(Ipv6Addr::new(
            0x2001,
            0xdb8,
            0,
            u16::from(group % 4),
            0,
            0,
            0,
            u16::from(group / 4 % 4)
        ))),
    ]
}

fn key() -> impl Strategy<Value = String> {
    let body = prop_oneof![
        name(),
        mailbox().prop_map(|(local, domain)| format!("{local}@{domain}")),
        mailbox().prop_map(|(local, _)| format!("{local}@")),
        "10(\\.[0-2]){0,3}",
        (ip(), 0_u8..=128).prop_map(|(ip, length)| format!("{ip}/{length}")),
        "IPv6:2001(:db8(:0(:[0-3])?)?)?",
        "\\PC{0,12}",
    ];
    (prop_oneof![Just(""), Just("Connect:"), Just("From:"), Just("To:"), Just("Spam:"), Just("ClientRate:")], body)
        .prop_map(|(tag, body)| format!("{tag}{body}"))
}

fn options() -> impl Strategy<Value = Options> {
    any::<u8>().prop_map(|bits| Options {
        delay_checks: [DelayChecks::No, DelayChecks::Yes, DelayChecks::Friend, DelayChecks::Hater]
            [usize::from(bits & 3)],
        blocklist_recipients: bits & 4 > 0,
        lookup_dot_domain: bits & 8 > 0,
        relay_to_full_address: bits & 16 > 0,
        relay_hosts_only: bits & 32 > 0,
        ..Options::default()
    })
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("OK".to_owned()),
        Just("REJECT".to_owned()),
        Just("SKIP".to_owned()),
        Just("FRIEND".to_owned()),
        "\\PC{0,20}"
    ]
}

proptest! {
    #[test]
    fn without_an_entry_that_says_so_no_stranger_relays(
        entries in proptest::collection::vec((key(), value()), 0..20),
        options in options(), ip in ip(), sender in mailbox(), recipient in mailbox(),
    ) {
        let classes = classes("a.test", "b.test", options.relay_hosts_only);
        let entries: Vec<(&str, &str)> = entries.iter().filter(|(_, value)| AccessValue::parse(value) != AccessValue::Relay).map(|(key, value)| (&**key, &**value)).collect();
        let access = Access::new(vec![table(&entries)], options);
        let of = |(local, domain): &(String, String)| Address::new(LocalPart::new(local).ok()?, Domain::parse(domain.as_bytes()).ok()?).ok();
        let (Some(sender), Some(recipient)) = (of(&sender), of(&recipient)) else { return Ok(()) };
        let client = Client::of(ip);
        let sender = ReversePath::Address(sender);
        for ruled in [known(|ask| access.connect(ask, &client)), known(|ask| access.sender(ask, &client, &sender, &classes))] {
            prop_assert_ne!(ruled.ruling, Ruling::Relay);
        }
        let ruled = known(|ask| access.recipient(ask, &client, &sender, &recipient, &classes));
        let is_ours = ["a.test", "b.test"].iter().any(|ours| recipient.domain().to_string().to_lowercase().ends_with(ours));
        prop_assert!(is_ours || matches!(ruled.ruling, Ruling::Refuse(_) | Ruling::Discard), "{:?}", ruled);
        let _lints = access.lint();
    }

    #[test]
    fn what_is_not_in_the_map_never_decides(
        entries in proptest::collection::vec((key(), value()), 0..20), options in options(), ip in ip(), sender in mailbox(),
    ) {
        // Each decision names an entry of the map, under the key it has there; without this entry it is not made.
        let classes = classes("a.test", "", false);
        let mut left: Vec<(&str, &str)> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
        let Some(sender) = LocalPart::new(&sender.0).ok().and_then(|local| Address::new(local, Domain::parse(sender.1.as_bytes()).ok()?).ok()) else { return Ok(()) };
        let sender = ReversePath::Address(sender);
        let options = Options { delay_checks: DelayChecks::No, ..options };
        for _ in 0..=entries.len() {
            let access = Access::new(vec![table(&left)], options);
            let client = Client::of(ip);
            let ruled = [known(|ask| access.connect(ask, &client)), known(|ask| access.sender(ask, &client, &sender, &classes))];
            let Some(found) = ruled.iter().flat_map(|ruled| &ruled.steps).find_map(|step| step.found.clone()) else {
                prop_assert!(ruled.iter().all(|ruled| ruled.ruling == Ruling::Continue));
                return Ok(());
            };
            let before = left.len();
            left.retain(|(key, _)| key.to_lowercase() != found.key.to_lowercase());
            prop_assert!(left.len() < before, "{:?} is in the map", found);
        }
        prop_assert!(false, "more decisions than entries");
    }

    #[test]
    fn networks_decide_as_a_search_of_all_would(
        entries in proptest::collection::vec((ip(), 0_u8..=128, any::<bool>()), 0..20), ip in ip(),
    ) {
        let networks: Vec<(ipnet::IpNet, bool)> = entries.iter().filter_map(|(ip, length, bare)| Some((ipnet::IpNet::new(*ip, *length).ok()?.trunc(), *bare))).collect();
        let keys: Vec<String> = networks.iter().map(|(network, bare)| format!("{}{network}", if *bare { "" } else { "Connect:" })).collect();
        let lines: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, "OK")).collect();
        let ruled = connect(&Access::new(vec![table(&lines)], Options::default()), ip);
        // The longest prefix; of two as long, that with a tag.
        let best = networks.iter().filter(|(network, _)| network.contains(&ip)).max_by_key(|(network, bare)| (network.prefix_len(), !bare));
        let want = best.map(|(network, bare)| format!("{}{network}", if *bare { "" } else { "Connect:" }).to_lowercase());
        let found = ruled.steps.first().and_then(|step| step.found.as_ref()).map(|found| found.key.to_lowercase());
        prop_assert_eq!(found, want);
    }
}
