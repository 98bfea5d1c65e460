//! Hosts of domains whose DNS is sound, odd or broken, from a server of our own on loopback.

use super::super::now;
use super::super::testing::{Manner, Server, a, cname, mx, resolver_of, settings, standing};
use super::choose::HostCandidate;
use super::*;
use crate::config::Dns;
use crate::dns::places::QUICK;
use crate::dns::{Data, LOOKUPS_MAX, RecordSet};
use hickory_resolver::proto::rr::RData;
use os::test_deadline::TestDeadline;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::task::Poll;
use std::time::Duration;

mod ignored;

/// Long enough that no answer on loopback is late.
const LONG: Duration = Duration::from_secs(20);
/// For questions to which no answer will come; the clock jumps when all wait.
const SHORT: Duration = Duration::from_millis(40);
/// In real time, for a few questions without answer beside some with one.
const MIDDLE: Duration = Duration::from_secs(5);

fn domain(name: &str) -> DomainName {
    DomainName::new(name).unwrap()
}

fn us() -> LocalIdentity {
    LocalIdentity {
        names: vec!["MX.us.example".into(), "us.example".into()],
        listeners: vec!["0.0.0.0:25".parse().unwrap(), "192.0.2.200:587".parse().unwrap()],
        addresses: vec!["192.0.2.99".parse().unwrap(), "2001:db8::99".parse().unwrap()],
    }
}

async fn ask(resolver: &Resolver, name: &str, seed: u64) -> Result<MailHosts, NoHosts> {
    resolver.mail_hosts(&domain(name), 25, &us(), Family::Any, seed).await
}

/// `10 a.example 192.0.2.1 192.0.2.2, 20 …`, addresses and hosts of one preference sorted; or `5.1.2 text`.
fn show(answer: &Result<MailHosts, NoHosts>) -> String {
    match answer {
        Ok(found) => {
            let mut hosts = found.hosts.clone();
            for host in &mut hosts {
                host.addresses.sort();
            }
            hosts.sort_by_key(|host| (host.preference, host.name.clone()));
            let host = |host: &MailHost| {
                let addresses: Vec<String> = host.addresses.iter().map(ToString::to_string).collect();
                format!("{} {} {}", host.preference, host.name, addresses.join(" "))
            };
            hosts.iter().map(host).collect::<Vec<_>>().join(", ")
        }
        Err(none) => {
            assert_eq!(none.permanent, none.status.outcome() == Outcome::Permanent);
            format!("{} {}", none.status, none.text)
        }
    }
}

fn zone() -> Vec<(String, RData)> {
    vec![
        mx("one.example", 10, "mx.one.example"),
        a("mx.one.example", "192.0.2.1"),
        a("mx.one.example", "2001:db8::1"),
        mx("toboth.example", 10, "both.example"),
        a("both.example", "192.0.2.12"),
        a("both.example", "2001:db8::12"),
        mx("two.example", 20, "B.two.example"),
        mx("two.example", 10, "a.two.example"),
        a("a.two.example", "192.0.2.2"),
        a("b.two.example", "192.0.2.3"),
        mx("twice.example", 30, "a.two.example"),
        mx("twice.example", 10, "a.two.example"),
        mx("twice.example", 40, "same.twice.example"),
        a("same.twice.example", "192.0.2.2"),
        a("nomx.example", "192.0.2.4"),
        a("nomx.example", "::ffff:192.0.2.4"),
        mx("null.example", 0, "."),
        a("null.example", "192.0.2.5"),
        mx("nullandmore.example", 0, "."),
        mx("nullandmore.example", 10, "mx.one.example"),
        mx("toalias.example", 10, "alias.example"),
        cname("alias.example", "alias2.example"),
        cname("alias2.example", "a.two.example"),
        cname("aliasdomain.example", "two.example"),
        cname("aliasnomx.example", "nomx.example"),
        cname("aliasnowhere.example", "missing.example"),
        cname("loop1.example", "loop2.example"),
        cname("loop2.example", "loop1.example"),
        cname("self.example", "self.example"),
        mx("toloop.example", 10, "loop1.example"),
        mx("nowhere.example", 10, "missing.example"),
        mx("noaddress.example", 10, "empty.example"),
        mx("below.empty.example", 10, "x.example"),
        mx("somebad.example", 5, "missing.example"),
        mx("somebad.example", 10, "mx.one.example"),
        mx("literal.example", 10, "192.0.2.1"),
        mx("literal.example", 10, "bad name.example"),
        mx("literal2.example", 10, "192.0.2.1"),
        mx("literal2.example", 20, "mx.one.example"),
        mx("zeros.example", 10, "zero.example"),
        a("zero.example", "0.0.0.0"),
        a("zero.example", "::"),
        a("zero.example", "224.0.0.1"),
        mx("partbroken.example", 10, "broken.partbroken.example"),
        mx("partbroken.example", 20, "mx.one.example"),
        mx("allbroken.example", 10, "broken.allbroken.example"),
        mx("allbroken.example", 20, "missing.example"),
        mx("sixbroken.example", 10, "six.example"),
        a("six.example", "192.0.2.6"),
        mx("backup.example", 10, "mx.one.example"),
        mx("backup.example", 20, "mx.us.example"),
        mx("backup.example", 20, "a.two.example"),
        mx("backup.example", 30, "b.two.example"),
        mx("best.example", 10, "mx.us.example"),
        mx("best.example", 20, "a.two.example"),
        mx("byaddress.example", 10, "other.example"),
        mx("byaddress.example", 20, "a.two.example"),
        a("other.example", "192.0.2.99"),
        mx("byaddress2.example", 10, "mx.one.example"),
        mx("byaddress2.example", 20, "other.example"),
        a("ouraddress.example", "127.0.0.9"),
        mx("primarygone.example", 10, "missing.example"),
        mx("primarygone.example", 20, "mx.us.example"),
        mx("primarybroken.example", 10, "broken.primarybroken.example"),
        mx("primarybroken.example", 20, "mx.us.example"),
        a("us.example", "192.0.2.77"),
        a("xn--bcher-kva.example", "192.0.2.8"),
    ]
}

// RFC 5321 §5.1 (test), RFC 7505 §3 (test), RFC 7505 §4.1 (test)
#[tokio::test]
async fn what_answers_lead_to() {
    let server = Server::start(zone()).await;
    server.answer("lame.example.", Manner::Lame);
    server.answer("refused.example.", Manner::Refused);
    let resolver = server.resolver(LONG);
    let not_found = |name: &str| format!("Host unknown (Name server: {name}: host not found)");
    let no_data = |name: &str| format!("Host unknown (Name server: {name}: no data known)");
    let later = |name: &str| format!("4.4.3 Name server: {name}: host name lookup failure");
    let to_us = "5.4.6 config error: mail loops back to me (MX problem?)".to_owned();
    for (name, expected) in [
        ("ONE.example", "10 mx.one.example 192.0.2.1 2001:db8::1".to_owned()),
        ("two.example", "10 a.two.example 192.0.2.2, 20 b.two.example 192.0.2.3".to_owned()),
        // The same host and the same address once.
        ("twice.example", "10 a.two.example 192.0.2.2".to_owned()),
        ("nomx.example", "0 nomx.example 192.0.2.4".to_owned()),
        ("bücher.example", "0 xn--bcher-kva.example 192.0.2.8".to_owned()),
        ("null.example", "5.1.10 null.example does not accept mail (null MX, RFC 7505)".to_owned()),
        ("nullandmore.example", "10 mx.one.example 192.0.2.1 2001:db8::1".to_owned()),
        ("toalias.example", "10 alias.example 192.0.2.2".to_owned()),
        ("aliasdomain.example", "10 a.two.example 192.0.2.2, 20 b.two.example 192.0.2.3".to_owned()),
        ("aliasnomx.example", "0 aliasnomx.example 192.0.2.4".to_owned()),
        ("aliasnowhere.example", format!("5.1.2 {}", not_found("aliasnowhere.example"))),
        ("loop1.example", later("loop1.example")),
        ("self.example", later("self.example")),
        ("toloop.example", later("loop1.example")),
        ("missing.example", format!("5.1.2 {}", not_found("missing.example"))),
        ("empty.example", format!("5.1.2 {}", no_data("empty.example"))),
        ("nowhere.example", format!("5.4.4 {}", not_found("missing.example"))),
        ("noaddress.example", format!("5.4.4 {}", no_data("empty.example"))),
        ("somebad.example", "10 mx.one.example 192.0.2.1 2001:db8::1".to_owned()),
        ("literal.example", "5.4.4 Host unknown (Name server: literal.example: MX records name no host)".to_owned()),
        ("literal2.example", "20 mx.one.example 192.0.2.1 2001:db8::1".to_owned()),
        ("zeros.example", "5.4.4 Host unreachable (Name server: zero.example: no mail goes to ::)".to_owned()),
        ("broken.example", later("broken.example")),
        ("lame.example", later("lame.example")),
        ("refused.example", later("refused.example")),
        ("partbroken.example", "20 mx.one.example 192.0.2.1 2001:db8::1".to_owned()),
        ("allbroken.example", later("broken.allbroken.example")),
        ("backup.example", "10 mx.one.example 192.0.2.1 2001:db8::1".to_owned()),
        ("best.example", to_us.clone()),
        ("byaddress.example", to_us.clone()),
        ("byaddress2.example", "10 mx.one.example 192.0.2.1 2001:db8::1".to_owned()),
        ("ouraddress.example", to_us.clone()),
        ("us.example", to_us.clone()),
        ("primarygone.example", to_us.clone()),
        ("primarybroken.example", later("broken.primarybroken.example")),
        ("localhost", to_us.clone()),
        ("x.invalid", format!("5.1.2 {}", not_found("x.invalid"))),
    ] {
        assert_eq!(show(&ask(&resolver, name, 1).await), expected, "{name}");
        assert_eq!(show(&ask(&resolver, name, 2).await), expected, "{name} again");
    }
}

/// The same where the DNS leaves out parts: no SOA in empty answers, and aliases without the records of their
/// targets.
#[tokio::test]
async fn sparing_servers_are_understood() {
    let long = |number: usize| cname(&format!("long{number}.example"), &format!("long{}.example", number + 1));
    let mut records = zone();
    records.extend((0..20).map(long));
    records.push(a("long20.example", "192.0.2.20"));
    let server = Server::start(records).await;
    server.answer(".", Manner::Bare);
    server.answer(".", Manner::AliasOnly);
    let resolver = server.resolver(LONG);
    for (name, expected) in [
        ("aliasdomain.example", "10 a.two.example 192.0.2.2, 20 b.two.example 192.0.2.3"),
        ("toalias.example", "10 alias.example 192.0.2.2"),
        ("aliasnomx.example", "0 aliasnomx.example 192.0.2.4"),
        ("nomx.example", "0 nomx.example 192.0.2.4"),
        ("empty.example", "5.1.2 Host unknown (Name server: empty.example: no data known)"),
        ("loop1.example", "4.4.3 Name server: loop1.example: host name lookup failure"),
        ("self.example", "4.4.3 Name server: self.example: host name lookup failure"),
        ("long0.example", "4.4.3 Name server: long0.example: host name lookup failure"),
        ("long16.example", "0 long16.example 192.0.2.20"),
    ] {
        assert_eq!(show(&ask(&resolver, name, 1).await), expected, "{name}");
    }
}

#[tokio::test]
async fn who_we_are() {
    let us = us();
    for (address, port, expected) in [
        ("127.0.0.1", 25, true),
        ("127.0.0.1", 2525, false),
        ("192.0.2.99", 25, true),
        ("::ffff:192.0.2.99", 25, true),
        ("192.0.2.200", 25, true),
        ("192.0.2.200", 587, true),
        ("192.0.2.99", 587, false),
        ("192.0.2.98", 25, false),
        // The listener takes IPv4 only.
        ("2001:db8::99", 25, false),
        ("::1", 25, false),
    ] {
        assert_eq!(us.is_address(address.parse().unwrap(), port), expected, "{address} {port}");
    }
    let both = LocalIdentity { listeners: vec!["[::]:25".parse().unwrap(), "0.0.0.0:2525".parse().unwrap()], ..us };
    assert!(both.is_address("2001:db8::99".parse().unwrap(), 25));
    assert!(!both.is_address("192.0.2.99".parse().unwrap(), 25));
    assert!(both.is_address("192.0.2.99".parse().unwrap(), 2525));
    assert!(!both.is_address("192.0.2.200".parse().unwrap(), 2525));
    assert!(both.is_name("us.EXAMPLE") && !both.is_name("s.example"));
    // Another port of this machine is another server: a set-up for tests, or a filter behind us.
    let server = Server::start(zone()).await;
    let resolver = server.resolver(LONG);
    let answer = resolver.mail_hosts(&domain("ouraddress.example"), 2526, &both, Family::Any, 0).await;
    assert_eq!(show(&answer), "0 ouraddress.example 127.0.0.9");
}

#[tokio::test]
async fn families() {
    let server = Server::start(zone()).await;
    let resolver = server.resolver(LONG);
    for (name, family, expected) in [
        ("one.example", Family::Ipv4, "10 mx.one.example 192.0.2.1"),
        ("one.example", Family::Ipv6, "10 mx.one.example 2001:db8::1"),
        ("nomx.example", Family::Ipv6, "5.1.2 Host unknown (Name server: nomx.example: no data known)"),
    ] {
        let answer = resolver.mail_hosts(&domain(name), 25, &us(), family, 0).await;
        assert_eq!(show(&answer), expected, "{name} {family:?}");
    }
    assert!(server.take_questions().contains(&"AAAA mx.one.example.".to_owned()));
    let resolver = server.resolver(LONG);
    resolver.mail_hosts(&domain("one.example"), 25, &us(), Family::Ipv4, 0).await.unwrap();
    assert_eq!(server.take_questions(), ["A mx.one.example.", "MX one.example."]);
    // By turns, IPv6 first.
    let records =
        (0..6).flat_map(|n| [a("x.example", &format!("192.0.2.{n}")), a("x.example", &format!("2001:db8::{n}"))]);
    let server = Server::start(records.chain([a("x.example", "192.0.2.7")]).collect()).await;
    let addresses = server.resolver(LONG).host_addresses("x.example", Family::Any, 3).await.unwrap().addresses;
    let is_six: Vec<bool> = addresses.iter().map(IpAddr::is_ipv6).collect();
    assert_eq!(is_six, [true, false, true, false, true, false, true, false, true, false, true, false, false]);
}

/// Broken servers answer for A and not for AAAA.
#[tokio::test]
async fn one_family_is_enough() {
    let server = Server::start(zone()).await;
    let resolver = server.resolver(LONG);
    server.answer("six.example.", Manner::Broken);
    assert_eq!(
        show(&ask(&resolver, "sixbroken.example", 0).await),
        "4.4.3 Name server: six.example: host name lookup failure"
    );
    let hosts = "192.0.2.6 six.example\n";
    let resolver = server.resolver_with_hosts(LONG, hosts);
    assert_eq!(show(&ask(&resolver, "sixbroken.example", 0).await), "10 six.example 192.0.2.6");
}

#[tokio::test]
async fn names_of_the_hosts_file_are_hosts() {
    let server = Server::start(zone()).await;
    let resolver = server.resolver_with_hosts(LONG, "192.0.2.50 lan.example lan\n192.0.2.51 mx.one.example\n");
    assert_eq!(show(&ask(&resolver, "lan.example", 0).await), "0 lan.example 192.0.2.50");
    assert_eq!(show(&ask(&resolver, "lan", 0).await), "0 lan 192.0.2.50");
    assert_eq!(show(&ask(&resolver, "one.example", 0).await), "10 mx.one.example 192.0.2.51 2001:db8::1");
    assert!(show(&ask(&resolver, "wan.example", 0).await).starts_with("5.1.2 "));
}

// RFC 5321 §5.1 (test): equal preference shares the load
#[tokio::test]
async fn equal_hosts_share_the_load_of_one_answer() {
    let mut records: Vec<_> = (0..4).map(|n| mx("x.example", 10, &format!("h{n}.example"))).collect();
    records.extend((0..4).map(|n| a(&format!("h{n}.example"), &format!("192.0.2.{n}"))));
    records.extend([mx("x.example", 20, "backup.example"), a("backup.example", "192.0.2.9")]);
    records.extend((10..14).map(|n| a("many.example", &format!("192.0.2.{n}"))));
    let server = Server::start(records).await;
    let resolver = server.resolver(LONG);
    let (mut first, mut first_address) = (BTreeMap::new(), BTreeMap::new());
    for seed in 0..4_000 {
        let hosts = ask(&resolver, "x.example", seed).await.unwrap().hosts;
        assert_eq!(&*hosts[4].name, "backup.example");
        *first.entry(hosts[0].name.clone()).or_insert(0_u32) += 1;
        let addresses = resolver.host_addresses("many.example", Family::Any, seed).await.unwrap().addresses;
        *first_address.entry(addresses[0]).or_insert(0_u32) += 1;
    }
    assert!(first.len() == 4 && first.values().all(|count| (900..1_100).contains(count)), "{first:?}");
    assert!(
        first_address.len() == 4 && first_address.values().all(|count| (900..1_100).contains(count)),
        "{first_address:?}"
    );
    // A question counts once, even if it was sent twice because its answer was late.
    assert_eq!(resolver.counts().asked, 13, "MX, and A and AAAA of six hosts, once each");
    assert_eq!(ask(&resolver, "x.example", 7).await, ask(&resolver, "x.example", 7).await);
}

#[tokio::test]
async fn answers_are_believed_as_long_as_they_say() {
    let server = Server::start(zone()).await;
    let resolver = server.resolver(LONG);
    server.hold(60);
    for (name, questions) in [("two.example", 5), ("missing.example", 1), ("empty.example", 3)] {
        let (before, answer) = (server.asked(), show(&ask(&resolver, name, 0).await));
        assert_eq!(server.asked() - before, questions, "{name}");
        later(45).await;
        assert_eq!(show(&ask(&resolver, name, 0).await), answer);
        assert_eq!(server.asked() - before, questions, "{name} is known");
        later(16).await;
        assert_eq!(show(&ask(&resolver, name, 0).await), answer);
        assert_eq!(server.asked() - before, 2 * questions, "{name} is asked again");
    }
    // RFC 1035 §3.2.1 (test): for this use only, but for the names of the hosts, which are believed for some seconds
    server.hold(0);
    let before = server.asked();
    ask(&resolver, "one.example", 0).await.unwrap();
    ask(&resolver, "one.example", 0).await.unwrap();
    assert_eq!(server.asked() - before, 5);
    // Long, but not longer than an hour.
    server.hold(1_000_000);
    let resolver = server.resolver(LONG);
    ask(&resolver, "nomx.example", 0).await.unwrap();
    let before = server.asked();
    later(3_601).await;
    ask(&resolver, "nomx.example", 0).await.unwrap();
    assert_eq!(server.asked() - before, 3);
    // A failure is over soon.
    server.answer("two.example.", Manner::Broken);
    assert!(!ask(&resolver, "two.example", 0).await.unwrap_err().permanent);
    server.speak();
    later(6).await;
    ask(&resolver, "two.example", 0).await.unwrap();
}

#[tokio::test]
async fn limits_of_an_answer() {
    let mut records: Vec<_> = (0..100).map(|n| mx("x.example", 100 - n, &format!("h{n}.example"))).collect();
    records.extend((0..100).map(|n| a(&format!("h{n}.example"), &format!("203.0.113.{n}"))));
    records.extend([
        mx("big.example", 10, "bulk.example"),
        mx("big.example", 20, "small.example"),
        a("small.example", "192.0.2.1"),
    ]);
    records.extend((0..60).map(|n| a("bulk.example", &format!("198.51.100.{n}"))));
    let server = Server::start(records).await;
    server.answer(".", Manner::Truncated);
    let resolver = server.resolver(LONG);
    let hosts = ask(&resolver, "x.example", 0).await.unwrap().hosts;
    let preferences: Vec<u16> = hosts.iter().map(|host| host.preference).collect();
    assert_eq!(preferences, (1..=16).collect::<Vec<u16>>(), "the best of them");
    let found = ask(&resolver, "big.example", 0).await.unwrap();
    let counts: Vec<usize> = found.hosts.iter().map(|host| host.addresses.len()).collect();
    assert_eq!((counts, found.addresses().count()), (vec![31, 1], 32));
    assert_eq!(resolver.host_addresses("bulk.example", Family::Any, 0).await.unwrap().addresses.len(), 32);
}

#[tokio::test]
async fn a_host_whose_servers_are_silent_delays_the_others_by_the_time_limit_only() {
    let server = Server::start(vec![
        mx("x.example", 10, "dead.example"),
        mx("x.example", 20, "alive.example"),
        a("alive.example", "192.0.2.1"),
    ])
    .await;
    server.silence("dead.example.");
    let resolver = server.resolver(MIDDLE);
    assert_eq!(show(&ask(&resolver, "x.example", 0).await), "20 alive.example 192.0.2.1");
    // And not again for the next message.
    let before = server.asked();
    let (again, time) = standing(ask(&resolver, "x.example", 0)).await;
    assert_eq!((show(&again).as_str(), time), ("20 alive.example 192.0.2.1", Duration::ZERO));
    assert_eq!(server.asked(), before);
}

#[tokio::test(start_paused = true)]
async fn silence_is_a_deferral_and_takes_its_time() {
    let server = Server::start(vec![]).await;
    server.silence(".");
    let resolver = server.resolver(SHORT);
    let began = now();
    assert_eq!(show(&ask(&resolver, "x.example", 0).await), "4.4.3 Name server: x.example: host name lookup failure");
    assert!(now() - began <= SHORT + Duration::from_millis(1));
    assert_eq!(
        show(&resolver.host_addresses("y.example", Family::Any, 0).await.map(|_| unreachable!("nobody answers"))),
        "4.4.3 Name server: y.example: host name lookup failure"
    );
}

/// In a storm each caller waits its turn, and none gets an error because there were too many.
#[tokio::test(start_paused = true)]
async fn more_than_there_are_places_wait() {
    let server = Server::start(vec![]).await;
    server.silence(".");
    let resolver = server.resolver(SHORT);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..=LOOKUPS_MAX {
        let resolver = resolver.clone();
        tasks.spawn(async move { (number, ask(&resolver, &format!("{number}.example"), 0).await, now()) });
        tokio::task::yield_now().await;
    }
    let mut ends: Vec<_> = tasks.join_all().await;
    ends.sort_by_key(|(_, _, end)| *end);
    assert_eq!(ends.last().map(|(number, ..)| *number), Some(LOOKUPS_MAX));
    assert!(ends.iter().all(|(_, answer, _)| !answer.as_ref().unwrap_err().permanent));
    assert_eq!(resolver.counts().lookups_waited, 1);
}

/// Look-ups of names whose servers are silent, until all quick places are taken and one more stands in line.
async fn crowd(resolver: &Resolver) -> tokio::task::JoinSet<()> {
    let mut crowd = tokio::task::JoinSet::new();
    let before = resolver.counts().lookups_waited;
    for number in 0..=LOOKUPS_MAX {
        let resolver = resolver.clone();
        crowd.spawn(async move { drop(ask(&resolver, &format!("{number}.dead.example"), 0).await) });
    }
    let patience = TestDeadline::new("nobody stands in line");
    while resolver.counts().lookups_waited == before {
        patience.check();
        tokio::task::yield_now().await;
    }
    crowd
}

#[tokio::test]
async fn what_is_known_stands_in_no_line() {
    let server = Server::start(vec![mx("x.example", 10, "mx.x.example"), a("mx.x.example", "192.0.2.1")]).await;
    server.hold(30);
    let resolver = resolver_of(&Dns { stale_max: Duration::from_secs(3_600), ..settings(&[server.address], LONG) });
    let (known, none) = ("10 mx.x.example 192.0.2.1", "5.1.2 Host unknown (Name server: none.test: host not found)");
    assert_eq!(show(&ask(&resolver, "x.example", 0).await), known);
    assert_eq!(show(&ask(&resolver, "none.test", 0).await), none);
    server.silence(".");
    tokio::time::pause();
    let others = crowd(&resolver).await;
    let (began, before) = (now(), resolver.counts());
    assert_eq!(show(&ask(&resolver, "x.example", 0).await), known);
    assert_eq!(show(&ask(&resolver, "none.test", 0).await), none);
    assert_eq!(resolver.host_addresses("mx.x.example", Family::Ipv4, 0).await.unwrap().addresses.len(), 1);
    assert_eq!(now() - began, Duration::ZERO);
    // Each answer counts once.
    assert_eq!(resolver.counts().cached - before.cached, 3 + 1 + 1);
    // Negative control: a look-up with an unknown part waits.
    let unknown = resolver.host_addresses("x.x.example", Family::Ipv4, 0);
    assert!(tokio::time::timeout(LONG / 100, unknown).await.is_err());
    drop(others);
    // The answers are out of date, the servers are silent, and for a while they are not asked again.
    tokio::time::advance(Duration::from_secs(31)).await;
    assert_eq!(show(&ask(&resolver, "x.example", 0).await), known);
    let others = crowd(&resolver).await;
    let (began, before) = (now(), resolver.counts());
    assert!(ask(&resolver, "x.example", 0).await.unwrap().is_stale);
    assert_eq!((now() - began, resolver.counts().stale - before.stale), (Duration::ZERO, 3));
    drop(others);
    // A failure that is known is an answer too.
    let failed = show(&ask(&resolver, "x.x.example", 0).await);
    let _others = crowd(&resolver).await;
    let began = now();
    assert_eq!(show(&ask(&resolver, "x.x.example", 0).await), failed);
    assert_eq!((now() - began, &*failed), (Duration::ZERO, "4.4.3 Name server: x.x.example: host name lookup failure"));
}

#[tokio::test]
async fn deliveries_and_sessions_have_places_of_their_own() {
    let server = Server::start(zone()).await;
    let resolver = server.resolver(MIDDLE);
    let taken = resolver.0.delivery_places.take_all(crate::dns::DELIVERY_QUESTIONS_MAX).await;
    assert_eq!(standing(resolver.a_records("nomx.example")).await.0.unwrap().len(), 1);
    let names: Vec<String> =
        (0..10).map(|number| format!("{number}.example")).chain(["one.example".to_owned()]).collect();
    for answer in futures_util::future::join_all(names.iter().map(|name| ask(&resolver, name, 0))).await {
        assert!(!answer.unwrap_err().permanent);
    }
    drop(taken);
    // The failure came from our own load: nothing is known about the name, and nothing is held against the resolver.
    let before = server.asked();
    standing(ask(&resolver, "one.example", 0)).await.0.unwrap();
    assert_eq!(server.asked() - before, 3);
    assert!(server.take_questions().iter().all(|question| !question.starts_with("NS")), "not probed");
}

/// Lets the clock go on.
async fn later(seconds: u64) {
    // The clock is paused only while no task waits for a socket.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn names_whose_servers_are_silent_do_not_hold_others() {
    let server = Server::start(zone()).await;
    server.silence(".dead.example.");
    let resolver = server.resolver(LONG);
    let work = async {
        let _others = crowd(&resolver).await;
        let mut asking = std::pin::pin!(ask(&resolver, "one.example", 0));
        assert!(std::future::poll_fn(|context| Poll::Ready(asking.as_mut().poll(context).is_pending())).await);
        // The others have other places from now on.
        tokio::time::advance(QUICK + Duration::from_millis(1)).await;
        asking.await
    };
    let (answer, time) = standing(work).await;
    assert_eq!(show(&answer), "10 mx.one.example 192.0.2.1 2001:db8::1");
    assert!(time <= 2 * QUICK, "{time:?}");
}

// RFC 8767 §4 (test)
#[tokio::test]
async fn answers_serve_longer_while_the_servers_fail() {
    let server = Server::start(zone()).await;
    let settings = Dns { stale_max: Duration::from_secs(3_600), ..settings(&[server.address], MIDDLE) };
    let resolver = resolver_of(&settings);
    server.hold(60);
    let text = "10 mx.one.example 192.0.2.1 2001:db8::1";
    let no_answer = |name: &str| format!("4.4.3 Name server: {name}: host name lookup failure");
    let (fresh, _) = standing(ask(&resolver, "one.example", 0)).await;
    assert!(show(&fresh) == text && !fresh.unwrap().is_stale);
    assert!(standing(ask(&resolver, "null.example", 0)).await.0.unwrap_err().permanent);
    assert!(standing(ask(&resolver, "missing.example", 0)).await.0.unwrap_err().permanent);
    for manner in [Manner::Broken, Manner::Silent] {
        later(61).await;
        server.answer(".", manner);
        let stale = ask(&resolver, "one.example", 0).await;
        assert_eq!(show(&stale), text, "{manner:?}");
        let stale = stale.unwrap();
        assert!(stale.is_stale && stale.until <= now() + Duration::from_secs(30) && resolver.counts().stale >= 3);
        // The servers are not asked for a while.
        let before = server.asked();
        assert_eq!(show(&ask(&resolver, "one.example", 0).await), text);
        assert_eq!(server.asked(), before);
        // Sessions get the failure.
        assert!(resolver.a_records("mx.one.example").await.is_err());
        // No message is returned by an answer out of date.
        assert_eq!(show(&ask(&resolver, "null.example", 0).await), no_answer("null.example"));
        assert_eq!(show(&ask(&resolver, "missing.example", 0).await), no_answer("missing.example"));
        server.speak();
        later(31).await;
        let (fresh, _) = standing(ask(&resolver, "one.example", 0)).await;
        assert!(show(&fresh) == text && !fresh.unwrap().is_stale, "{manner:?}");
        assert!(standing(ask(&resolver, "null.example", 0)).await.0.unwrap_err().permanent);
        assert!(standing(ask(&resolver, "missing.example", 0)).await.0.unwrap_err().permanent);
    }
    // Not for ever.
    server.answer(".", Manner::Broken);
    later(3_661).await;
    assert_eq!(show(&ask(&resolver, "one.example", 0).await), no_answer("one.example"));
}

#[tokio::test]
async fn when_to_ask_again() {
    let server = Server::start(zone()).await;
    let resolver = server.resolver(LONG);
    let ask = async |name: &str| {
        let until = standing(ask(&resolver, name, 0)).await.0.unwrap().until - now();
        // The rest of the time, rounded up to a second.
        (until + Duration::from_millis(999)).as_secs()
    };
    server.hold(90);
    assert_eq!(ask("one.example").await, 90);
    server.hold(0);
    assert_eq!(ask("two.example").await, HOLD_MIN.as_secs());
    later(6).await;
    server.hold(1_000_000);
    assert_eq!(ask("toboth.example").await, 3_600);
    // The answer that there is no MX record, or no IPv6 address, is kept for a shorter time.
    assert_eq!(ask("nomx.example").await, 900);
    assert_eq!(ask("two.example").await, 900);
    // One of two hosts is unknown for now.
    assert_eq!(ask("partbroken.example").await, 60);
}

fn overrides(text: &str) -> Vec<DnsOverride> {
    let config = crate::config::load(text, None, &[], &crate::config::Machine::default());
    config.unwrap_or_else(|problems| panic!("{}", crate::config::render(&problems))).config.dns.overrides
}

#[tokio::test]
async fn answers_of_the_configuration() {
    let server = Server::start(zone()).await;
    let overrides = overrides(
        "dns.override = [
            { domain = 'one.example', mx = ['[192.0.2.30]', ['b.two.example', 'OTHER.test', '[2001:db8::30]']] },
            { domain = 'other.test', address = ['192.0.2.31', '2001:db8::31'] },
            { domain = 'us.test', address = '192.0.2.99' },
            { domain = 'six.test', address = '2001:db8::32' },
            { domain = 'nowhere.test', mx = ['missing.example'] },
            { domain = 'b.test', mx = ['mx.us.example', '[192.0.2.33]'] },
            { domain = '.test', mx = 'b.two.example' },
        ]",
    );
    let settings = Dns { overrides, ..settings(&[server.address], LONG) };
    let resolver = resolver_of(&settings);
    for (name, expected) in [
        (
            "one.example",
            "0 [192.0.2.30] 192.0.2.30, 1 [2001:db8::30] 2001:db8::30, 1 b.two.example 192.0.2.3, 1 other.test 192.0.2.31 \
             2001:db8::31",
        ),
        ("Other.test", "0 other.test 192.0.2.31 2001:db8::31"),
        ("test", "0 b.two.example 192.0.2.3"),
        ("a.b.c.test", "0 b.two.example 192.0.2.3"),
        ("two.example", "10 a.two.example 192.0.2.2, 20 b.two.example 192.0.2.3"),
        // Mistakes of the configuration are no fault of the mail.
        ("us.test", "4.4.4 config error: dns.override of us.test: config error: mail loops back to me (MX problem?)"),
        ("b.test", "4.4.4 config error: dns.override of b.test: config error: mail loops back to me (MX problem?)"),
        (
            "nowhere.test",
            "4.4.4 config error: dns.override of nowhere.test: Host unknown (Name server: missing.example: host not found)",
        ),
    ] {
        assert_eq!(show(&ask(&resolver, name, 1).await), expected, "{name}");
    }
    let before = server.asked();
    let six = resolver.mail_hosts(&domain("six.test"), 25, &us(), Family::Ipv4, 0).await;
    assert_eq!(
        show(&six),
        "4.4.4 config error: dns.override of six.test: Host unknown (Name server: six.test: no data known)"
    );
    let found = ask(&resolver, "other.test", 0).await.unwrap();
    assert!(found.until > now() + Duration::from_secs(3_500) && !found.is_stale);
    let other = resolver.host_addresses("other.test", Family::Ipv4, 0).await.unwrap();
    assert_eq!(other.addresses, [IpAddr::from([192, 0, 2, 31])]);
    assert_eq!(server.asked(), before, "nobody was asked");
    // Sessions ask the DNS.
    assert_eq!(resolver.a_records("other.test").await, Ok(vec![]));
    assert!(resolver.counts().overridden >= 8);
}

fn some_answer() -> impl Strategy<Value = (u16, u8, Addresses)> {
    let addresses = prop_oneof![
        4 => prop::collection::vec((any::<bool>(), 1..40_u8), 1..40).prop_map(|ips| Addresses::Some(
            ips.into_iter().map(|(six, n)| if six {
                IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)])
            } else {
                IpAddr::from([192, 0, 2, n])
            }).collect()
        )),
        1 => any::<bool>().prop_map(|exists| Addresses::None { exists }),
        1 => Just(Addresses::Unknown(Failure::TimedOut)),
    ];
    (0..4_u16, any::<u8>(), addresses)
}

proptest! {
    /// For any answers of the DNS, the choice keeps the limits, has the best hosts first, each address once, only
    /// addresses of the answers, and a permanent failure only where no answer is missing.
    #[test]
    fn choices_keep_their_limits(
        mut found in prop::collection::vec(some_answer(), 0..=DNS_HOSTS_MAX),
        seed in any::<u64>(),
        is_ours in any::<bool>(),
    ) {
        found.sort_by_key(|(preference, ..)| *preference);
        let said: HashSet<IpAddr> = found.iter().flat_map(|(_, _, answer)| match answer {
            Addresses::Some(ips) => ips.clone(),
            _ => Vec::new(),
        }).collect();
        let unknown = found.iter().any(|(_, _, answer)| matches!(answer, Addresses::Unknown(_)));
        let mut before = HashSet::new();
        // Those with an address that none before them has.
        let of_their_own = found.iter().filter(|(_, _, answer)| match answer {
            Addresses::Some(ips) => ips.iter().filter(|ip| before.insert(**ip)).count() > 0,
            _ => false,
        }).count();
        let hosts = found.into_iter().map(|(preference, name, answer)| {
            (HostCandidate { preference, name: format!("h{name}.example").into(), address: None }, answer)
        }).collect();
        match choose("x.example", hosts, is_ours, &mut Shuffle::new(seed)) {
            Ok(hosts) => {
                prop_assert!(!hosts.is_empty() && hosts.len() <= DNS_HOSTS_MAX);
                prop_assert!(hosts.iter().all(|host| !host.addresses.is_empty()));
                prop_assert!(hosts.is_sorted_by_key(|host| host.preference));
                let all: Vec<IpAddr> = hosts.iter().flat_map(|host| host.addresses.clone()).collect();
                let each: HashSet<IpAddr> = all.iter().copied().collect();
                prop_assert!(each.is_subset(&said) && each.len() == all.len());
                prop_assert!(all.len() <= DNS_ADDRESSES_MAX);
                // No room is lost, neither to a host that is another one by name only, nor to one before it.
                prop_assert_eq!(all.len(), DNS_ADDRESSES_MAX.min(said.len()));
                prop_assert_eq!(hosts.len(), of_their_own);
            }
            Err(none) => {
                prop_assert!(said.is_empty());
                prop_assert_eq!(none.permanent, !unknown);
                prop_assert_eq!(none.status == LOOP, is_ours && !unknown);
            }
        }
    }

    /// From records with any names only host names come through, each once and at its best preference, and their
    /// order does not depend on that of the records.
    #[test]
    fn names_of_records_are_checked(
        records in prop::collection::vec((0..4_u16, prop_oneof!["[a-cA-C]\\.", "[ -~]{0,70}\\.?", "\\PC{0,5}", "1\\.2\\.3\\.[0-9]\\.?"]), 1..20),
    ) {
        let data = |(preference, name): &(u16, String)| Data::Exchange { preference: *preference, name: name.as_str().into() };
        let read = |records: &[(u16, String)]| {
            let found = RecordSet { records: records.iter().map(data).collect(), exists: true };
            let mut hosts = candidates("x.example", &found)?;
            hosts.sort_by(|a, b| a.name.cmp(&b.name));
            Ok::<_, NoHosts>(hosts.into_iter().map(|host| (host.name, host.preference)).collect::<Vec<_>>())
        };
        let hosts = read(&records);
        let reversed: Vec<_> = records.iter().rev().cloned().collect();
        prop_assert_eq!(&hosts, &read(&reversed));
        match hosts {
            Ok(hosts) => for (index, (name, preference)) in hosts.iter().enumerate() {
                prop_assert!(DomainName::new(name).is_ok_and(|own| own.ascii() == &**name) && name.parse::<IpAddr>().is_err());
                prop_assert!(index == 0 || hosts[index - 1].0 != *name);
                let own = records.iter().filter(|(_, own)| {
                    DomainName::new(own.strip_suffix('.').unwrap_or(own)).is_ok_and(|own| own.ascii() == &**name)
                });
                prop_assert_eq!(own.map(|(preference, _)| *preference).min(), Some(*preference));
            },
            Err(none) => prop_assert!(none.permanent && (none.status == NULL_MX) == records.iter().all(|(_, name)| name == ".")),
        }
    }
}
