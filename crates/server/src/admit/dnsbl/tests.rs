//! Names, scores, and lists on a loopback DNS server.

use super::*;
use crate::dns::testing::{Server, a};
use tokio::time::Instant;

fn list(zone: &str, weight: i32, answers: &[&str]) -> DnsblList {
    let answers = answers.iter().map(|network| network.parse().unwrap()).collect();
    DnsblList { zone: DomainName::new(zone).unwrap(), weight, answers }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn names() {
    let zone = DomainName::new("List.example").unwrap();
    assert_eq!(query_name(ip("192.0.2.99"), &zone), "99.2.0.192.list.example");
    assert_eq!(query_name(ip("::ffff:192.0.2.99"), &zone), "99.2.0.192.list.example");
    // RFC 5782 §2.4 (test)
    assert_eq!(
        query_name(ip("2001:db8:1:2:3:4:567:89ab"), &zone),
        "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.list.example"
    );
}

#[test]
fn scores() {
    let lists = [
        list("any.example", 4, &[]),
        list("some.example", 3, &["127.0.0.4/32", "127.0.1.0/24"]),
        list("good.example", -2, &[]),
        list("one.example", 5, &["127.0.0.1/32"]),
    ];
    #[track_caller]
    fn check(
        lists: &[DnsblList],
        answers: &[&[&str]],
        score_expected: i32,
        zones: &[usize],
        troubles: &[BlockListError],
    ) {
        let answers = answers.iter().map(|list| Ok(list.iter().map(|text| ip(text)).collect())).collect();
        let found = score(lists, answers);
        assert_eq!(found.score, score_expected, "{found:?}");
        let expected: Vec<&DomainName> = zones.iter().map(|index| &lists[*index].zone).collect();
        assert_eq!(found.listed.iter().map(|listing| &listing.zone).collect::<Vec<_>>(), expected);
        assert_eq!(found.notes.iter().map(|note| note.trouble).collect::<Vec<_>>(), troubles);
    }
    check(&lists, &[&[], &[], &[], &[]], 0, &[], &[]);
    // A weight counts once, however many answers there are.
    check(&lists, &[&["127.0.0.2", "127.0.0.3"], &["127.0.1.9", "127.0.0.2"], &[], &[]], 7, &[0, 1], &[]);
    check(&lists, &[&["127.0.0.2"], &["127.0.0.2"], &["127.0.0.2"], &[]], 2, &[0, 2], &[]);
    // Codes for errors and addresses of strangers are no listings, even beside one.
    let refuses = |code| BlockListError::Refuses(ip(code));
    check(&lists, &[&["127.255.255.254"], &[], &[], &[]], 0, &[], &[refuses("127.255.255.254")]);
    check(
        &lists,
        &[&["203.0.113.5", "127.0.0.2"], &[], &[], &[]],
        4,
        &[0],
        &[BlockListError::Foreign(ip("203.0.113.5"))],
    );
    check(&lists, &[&["127.0.0.1"], &[], &[], &["127.0.0.1"]], 5, &[3], &[refuses("127.0.0.1")]);
    let failed = score(&lists, vec![Err(Failure::TimedOut), Ok(vec![ip("127.0.0.4")])]);
    assert_eq!((failed.score, failed.notes.len()), (3, 1));
    assert!(failed.notes[0].to_string().contains("any.example is not counted"), "{}", failed.notes[0]);
    let full = [list("a.example", i32::MAX, &[]), list("b.example", 1, &[])];
    assert_eq!(score(&full, vec![Ok(vec![ip("127.0.0.2")]); 2]).score, i32::MAX);
}

fn settings(list: Vec<DnsblList>, time_max: Duration) -> Dnsbl {
    Dnsbl { list, refuse_at: 1, time_max, exempt: vec!["192.168.0.0/16".parse().unwrap()] }
}

#[tokio::test]
async fn all_lists_are_asked() {
    let server = Server::start(vec![
        a("99.2.0.192.one.example", "127.0.0.2"),
        a("99.2.0.192.three.example", "127.0.0.3"),
        a("1.0.168.192.one.example", "127.0.0.2"),
    ])
    .await;
    let long = Duration::from_secs(20);
    let resolver = server.resolver(long);
    let lists = ["one.example", "two.example", "three.example"].map(|zone| list(zone, 2, &[])).to_vec();
    let settings = settings(lists, long);
    let rights = Rights::of(&["10.0.0.0/8"], &[], "mx.example", &[]);
    let found = ask(&resolver, &settings, &rights, ip("192.0.2.99")).await;
    assert_eq!((found.score, found.listed.len(), found.notes.len()), (4, 2, 0), "{found:?}");
    let asked = server.asked();
    assert_eq!(ask(&resolver, &settings, &rights, ip("192.0.2.99")).await, found);
    for exempt in ["192.168.0.1", "10.0.0.1", "127.0.0.1", "::1", "::ffff:10.0.0.1"] {
        assert_eq!(ask(&resolver, &settings, &rights, ip(exempt)).await, Listings::default());
    }
    assert_eq!(server.asked(), asked, "kept answers and exempt clients cost no question");
}

/// In real time: the answering list has five seconds on loopback, the silent one is waited for that long.
#[tokio::test]
async fn a_silent_list_holds_up_nobody_for_long() {
    let server = Server::start(vec![a("99.2.0.192.one.example", "127.0.0.2")]).await;
    server.silence(".dead.example.");
    let time_max = Duration::from_secs(5);
    let resolver = server.resolver(Duration::from_secs(60));
    let settings = settings(vec![list("dead.example", 5, &[]), list("one.example", 2, &[])], time_max);
    let began = Instant::now();
    let found = ask(&resolver, &settings, &Rights::default(), ip("192.0.2.99")).await;
    assert!(began.elapsed() < Duration::from_secs(40), "bounded by dnsbl.time_max, not by dns.timeout");
    assert_eq!((found.score, found.notes.len()), (2, 1), "{found:?}");
    assert_eq!(found.notes[0].trouble, BlockListError::Unanswered(Failure::TimedOut));
    // The next client does not wait for a list that is known not to answer.
    let asked = server.asked();
    assert_eq!(ask(&resolver, &settings, &Rights::default(), ip("192.0.2.99")).await, found);
    assert_eq!(server.asked(), asked);
}
