//! Tests of the list of policies: the order, the deciding policy, and the rulings of the usual list.

use super::*;
use crate::admit::dnsbl::Listing;
use crate::config::{Accept, Dnsbl};
use mail::{Address, DomainName};
use std::time::Duration;

fn client(ip: &str) -> Client {
    Client::Network((ip.parse::<IpAddr>().unwrap(), 4_000).into())
}

fn rights() -> relay::Rights {
    relay::Rights::of(&["10.0.0.0/8"], &["ours.example"], "mx.ours.example", &[])
}

fn usual() -> Policies {
    let dnsbl = Dnsbl { list: Vec::new(), refuse_at: 10, time_max: Duration::ZERO, exempt: Vec::new() };
    Policies::usual(rights(), &dnsbl)
}

fn listings(score: i32) -> Listings {
    let listing = |zone: &str, weight| Listing {
        zone: DomainName::new(zone).unwrap(),
        weight,
        answers: vec!["127.0.0.2".parse().unwrap()],
    };
    Listings { listed: vec![listing("a.example", score), listing("good.example", -1)], score, notes: Vec::new() }
}

fn facts<'a>(ip: &str, listings: &'a Listings, sender: Option<&'a ReversePath>) -> Facts<'a> {
    let client_name = &ClientName::Unknown;
    Facts { client: client(ip), client_name, helo: None, identity: None, sender, recipients: 0, listings }
}

fn recipient(address: &str) -> Recipient {
    Recipient::new(Address::parse(address.as_bytes()).unwrap())
}

fn text(verdict: &Verdict) -> String {
    let (Verdict::AcceptWith(reply) | Verdict::Refuse(reply) | Verdict::Close(reply)) = verdict else {
        return "yes".into();
    };
    let mut wire = Vec::new();
    reply.write_to(&mut wire);
    String::from_utf8(wire).unwrap().trim_end().into()
}

#[test]
fn senders() {
    let none = Listings::default();
    for (ip, sender, expected) in [
        ("198.51.100.7", "<>", "yes"),
        ("198.51.100.7", "<a@b.example>", "yes"),
        ("198.51.100.7", "<a@[198.51.100.7]>", "yes"),
        (
            "198.51.100.7",
            "<a@b.Invalid>",
            "553 5.1.8 <a@b.Invalid>... Domain of sender address a@b.Invalid does not exist",
        ),
        (
            "198.51.100.7",
            "<a@localhost>",
            "553 5.1.8 <a@localhost>... Domain of sender address a@localhost does not exist",
        ),
        ("198.51.100.7", "<a@[127.0.0.1]>", "553 5.1.8 <a@[127.0.0.1]>... Address literal of no host"),
        ("198.51.100.7", "<a@[x-new:1]>", "553 5.1.7 <a@[x-new:1]>... Address literal of unknown kind"),
        ("10.0.0.7", "<root@localhost>", "yes"),
    ] {
        let sender = ReversePath::parse(sender.as_bytes()).unwrap();
        let decision = usual().sender(&facts(ip, &none, Some(&sender)));
        assert_eq!(text(&decision.verdict), expected);
        assert_eq!(decision.by, (expected != "yes").then_some("sender"));
    }
}

#[test]
fn the_null_sender_may_write_to_several() {
    let none = Listings::default();
    let null = ReversePath::Null;
    let facts = Facts { recipients: 3, ..facts("198.51.100.7", &none, Some(&null)) };
    assert_eq!(usual().recipient(&facts, &recipient("d@ours.example")).verdict, Verdict::Accept);
}

#[test]
fn recipients() {
    let refused = "554 5.7.1 Service unavailable; client [198.51.100.7] rejected: listed at a.example";
    let denied = "550 5.7.1 <u@other.example>... Relaying denied";
    for (ip, score, address, expected, by) in [
        ("198.51.100.7", 0, "u@ours.example", "yes", None),
        ("198.51.100.7", 0, "u@other.example", denied, Some("relay")),
        ("198.51.100.7", 9, "u@ours.example", "yes", None),
        ("198.51.100.7", 10, "u@ours.example", refused, Some("dnsbl")),
        ("198.51.100.7", 10, "Postmaster@ours.example", "yes", None),
        (
            "198.51.100.7",
            10,
            "postmaster@other.example",
            "550 5.7.1 <postmaster@other.example>... Relaying denied",
            Some("relay"),
        ),
        ("10.0.0.7", 10, "u@other.example", "yes", None),
    ] {
        let listings = listings(score);
        let decision = usual().recipient(&facts(ip, &listings, None), &recipient(address));
        assert_eq!((text(&decision.verdict).as_str(), decision.by), (expected, by), "{ip} {score} {address}");
    }
    let listings = listings(10);
    let user = Facts { identity: Some("user"), ..facts("198.51.100.7", &listings, None) };
    assert_eq!(usual().recipient(&user, &recipient("u@other.example")).verdict, Verdict::Accept);
}

#[test]
fn the_first_with_an_opinion_decides() {
    #[derive(Debug)]
    struct Always(&'static str, Ruling);
    impl Policy for Always {
        fn name(&self) -> &'static str {
            self.0
        }
        fn helo(&self, _: &Facts<'_>) -> Ruling {
            self.1.clone()
        }
    }
    let none = Listings::default();
    let list = |rulings: Vec<Ruling>| {
        let names = ["first", "second", "third"];
        Policies::new(
            names.into_iter().zip(rulings).map(|(name, ruling)| Box::new(Always(name, ruling)) as _).collect(),
        )
    };
    let accept = Ruling::Decide(Verdict::Accept);
    let no = Ruling::Decide(refuse(550, "5.7.1 No"));
    let decide = |rulings| list(rulings).helo(&facts("198.51.100.7", &none, None)).by;
    assert_eq!(decide(vec![Ruling::Continue, no.clone(), accept.clone()]), Some("second"));
    assert_eq!(decide(vec![Ruling::Continue, accept, no]), Some("second"));
    assert_eq!(decide(vec![Ruling::Continue]), None);
}

#[test]
fn pauses() {
    let seconds = Duration::from_secs;
    let network = |text: &str| vec![text.parse().unwrap()];
    let accept = Accept {
        backlog: 1,
        connections_max: 1,
        connections_per_client: 0,
        rate_per_client: 0,
        rate: 0,
        exempt: Vec::new(),
        greet_pause: seconds(3),
        greet_pause_for: vec![
            (network("10.1.0.0/16"), seconds(1)),
            (network("198.51.100.0/24"), seconds(9)),
            (network("198.51.0.0/16"), seconds(8)),
        ],
        reverse_dns: true,
        xclient: Vec::new(),
    };
    for (ip, pause) in [
        ("203.0.113.1", 3),
        ("::ffff:198.51.100.1", 9),
        ("198.51.7.1", 8),
        ("127.0.0.1", 0),
        ("::1", 0),
        ("10.0.0.7", 0),
        ("10.1.0.7", 1),
    ] {
        assert_eq!(greet_pause(ip.parse().unwrap(), &accept, &rights()), seconds(pause), "{ip}");
    }
}
