//! The resolver against a server of its own on loopback.

use super::testing::{Manner, Server, a, ptr, resolver_of, settings, standing};
use super::*;

/// Long enough that no answer on loopback is late.
const LONG: Duration = Duration::from_secs(20);
/// For questions to which no answer will come; the clock jumps when all wait.
const SHORT: Duration = Duration::from_millis(40);

#[tokio::test]
async fn names_of_clients() {
    let server = Server::start(vec![
        ptr("192.0.2.7", "mail.example.org."),
        a("mail.example.org", "192.0.2.7"),
        ptr("192.0.2.8", "mail.example.org."),
        ptr("2001:db8::7", "six.example.org."),
        a("six.example.org", "2001:db8::7"),
        ptr("192.0.2.9", "no such.example.org."),
        ptr("192.0.2.10", "broken.example.org."),
        ptr("192.0.2.11", "other.example.org."),
        ptr("192.0.2.11", "second.example.org."),
        a("second.example.org", "192.0.2.11"),
    ])
    .await;
    let resolver = server.resolver(LONG);
    for (ip, name) in [
        ("192.0.2.7", ClientName::Verified("mail.example.org".into())),
        ("::ffff:192.0.2.7", ClientName::Verified("mail.example.org".into())),
        ("2001:db8::7", ClientName::Verified("six.example.org".into())),
        ("192.0.2.8", ClientName::Forged("mail.example.org".into())),
        ("192.0.2.9", ClientName::None),
        ("192.0.2.10", ClientName::Unknown),
        ("192.0.2.11", ClientName::Verified("second.example.org".into())),
        ("192.0.2.99", ClientName::None),
        ("127.0.0.1", ClientName::Verified("localhost".into())),
        ("::1", ClientName::Verified("localhost".into())),
    ] {
        assert_eq!(resolver.reverse(ip.parse().unwrap()).await, name, "{ip}");
    }
    assert_eq!(ClientName::Forged("a".into()).verified(), None);
}

#[test]
fn what_a_resolver_is_made_from_tells_it_from_others() {
    let system = |address: &str| vec![address.parse().unwrap()];
    let usual = settings(&[], LONG);
    let made = |settings: &crate::config::Dns, servers, hosts: &str| {
        Resolver::with(settings, MachineFiles { servers, ..MachineFiles::of(settings, hosts) }).unwrap()
    };
    let one = made(&usual, system("192.0.2.1:53"), "192.0.2.2 a\n");
    assert!(one.is_like(&made(&usual, system("192.0.2.1:53"), "192.0.2.2 a\n")));
    for (what, other) in [
        ("/etc/resolv.conf", made(&usual, system("192.0.2.3:53"), "192.0.2.2 a\n")),
        ("/etc/hosts", made(&usual, system("192.0.2.1:53"), "192.0.2.2 b\n")),
        ("dns.timeout", made(&settings(&[], SHORT), system("192.0.2.1:53"), "192.0.2.2 a\n")),
    ] {
        assert!(!one.is_like(&other), "{what}");
    }
}

#[tokio::test]
async fn answers_are_kept_errors_too() {
    let server = Server::start(vec![a("x.example", "127.0.0.2")]).await;
    let resolver = server.resolver(LONG);
    for _ in 0..3 {
        assert_eq!(resolver.a_records("X.example").await.unwrap(), [IpAddr::from([127, 0, 0, 2])]);
        assert_eq!(resolver.a_records("none.example").await.unwrap(), Vec::<IpAddr>::new());
        assert_eq!(resolver.a_records("broken.example").await, Err(Failure::Failed));
    }
    let counts = resolver.counts();
    assert_eq!((counts.asked, counts.cached, counts.cache_entries), (3, 6, 3), "{counts:?}");
    assert_eq!(resolver.a_records("bad..name").await, Err(Failure::BadName));
    assert!(server.asked() >= 3);
}

#[tokio::test]
async fn one_question_for_many() {
    let server = Server::start(vec![a("x.example", "127.0.0.2")]).await;
    let resolver = server.resolver(LONG);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let resolver = resolver.clone();
        tasks.spawn(async move { resolver.a_records("x.example").await.unwrap().len() });
    }
    assert_eq!(tasks.join_all().await, [1; 50]);
    let counts = resolver.counts();
    assert_eq!((counts.asked, counts.shared + counts.cached), (1, 49), "{counts:?}");
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn if_the_one_who_asks_goes_away_another_asks() {
    let server = Server::start(vec![a("x.example", "127.0.0.2")]).await;
    let resolver = server.resolver(LONG);
    let mut first = Box::pin(resolver.a_records("x.example"));
    let mut second = Box::pin(resolver.a_records("x.example"));
    // The first has asked, the second waits for it.
    std::future::poll_fn(|context| {
        assert!(first.as_mut().poll(context).is_pending());
        assert!(second.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    assert_eq!(resolver.counts().shared, 1);
    drop(first);
    assert_eq!(second.await.unwrap().len(), 1);
    assert_eq!(resolver.counts().asked, 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_name_costs_its_time_and_nobody_else_anything() {
    let server = Server::start(vec![]).await;
    server.silence(".");
    let resolver = server.resolver(SHORT);
    let began = tokio::time::Instant::now();
    assert_eq!(resolver.reverse("192.0.2.7".parse().unwrap()).await, ClientName::Unknown);
    assert!(began.elapsed() <= SHORT + Duration::from_millis(1), "{:?}", began.elapsed());
    // Kept for a while.
    let again = tokio::time::Instant::now();
    assert_eq!(resolver.reverse("192.0.2.7".parse().unwrap()).await, ClientName::Unknown);
    assert_eq!(again.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_dead_resolver_is_skipped() {
    let server = Server::start(vec![]).await;
    server.silence(".");
    let resolver = server.resolver(SHORT);
    for number in 0..breaker::SUSPECT_AFTER {
        assert_eq!(resolver.a_records(&format!("{number}.example")).await, Err(Failure::TimedOut));
    }
    assert_eq!(resolver.take_notes(), []);
    // This one finds that the resolver itself is dead; the others do not wait for that.
    assert_eq!(resolver.a_records("probe.example").await, Err(Failure::Skipped));
    assert_eq!(resolver.take_notes(), [DnsNote::Dead]);
    let began = tokio::time::Instant::now();
    for number in 0..100 {
        assert_eq!(resolver.a_records(&format!("skipped{number}.example")).await, Err(Failure::Skipped));
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(resolver.counts().dead);
    let domain = mail::DomainName::new("domain.example").unwrap();
    let none = resolver.mail_hosts(&domain, 25, &LocalIdentity::default(), Family::Any, 1).await.unwrap_err();
    assert!(none.is_ours && !none.permanent, "{none:?}");
    // One that is silent by itself is no fault of ours.
    let silent = server.resolver(SHORT).mail_hosts(&domain, 25, &LocalIdentity::default(), Family::Any, 1).await;
    assert!(silent.is_err_and(|none| !none.is_ours));
}

/// In real time but for the questions that get an answer.
#[tokio::test]
async fn a_zone_that_is_silent_does_not_kill_the_resolver() {
    let server = Server::start(vec![a("x.example", "127.0.0.2")]).await;
    server.silence(".dead.");
    let resolver = server.resolver(Duration::from_secs(2));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..breaker::SUSPECT_AFTER * 2 {
        let resolver = resolver.clone();
        tasks.spawn(async move { resolver.a_records(&format!("{number}.dead")).await });
    }
    assert!(tasks.join_all().await.iter().all(|answer| *answer == Err(Failure::TimedOut)));
    assert_eq!(standing(resolver.a_records("x.example")).await.0.unwrap().len(), 1);
    assert_eq!(resolver.take_notes(), []);
    // Dead for good, then alive again.
    server.silence(".");
    for _ in 0..100 {
        resolver.state().breaker.timed_out();
    }
    assert_eq!(resolver.a_records("y.example").await, Err(Failure::Skipped));
    server.speak();
    resolver.state().breaker.skip_until(now());
    assert_eq!(standing(resolver.a_records("x.example")).await.0.unwrap().len(), 1);
    assert_eq!(standing(resolver.a_records("z.example")).await.0.unwrap(), Vec::<IpAddr>::new());
    assert_eq!(resolver.take_notes(), [DnsNote::Dead, DnsNote::Alive]);
}

/// Lets the clock go on.
async fn later(seconds: u64) {
    // The clock is paused only while no task waits for a socket.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// Returns how long it took, in real time.
async fn timed<F: Future>(work: F) -> (F::Output, Duration) {
    let began = now();
    (work.await, now() - began)
}

#[tokio::test]
async fn a_silent_server_costs_one_question_and_not_each() {
    let records = || (0..40).map(|n| a(&format!("{n}.example"), "192.0.2.1")).collect();
    let (dead, alive) = (Server::start(records()).await, Server::start(records()).await);
    dead.silence(".");
    // The patience with one server, however long the time limit of a question is.
    let patience = Duration::from_secs(1);
    let resolver = resolver_of(&settings(&[dead.address, alive.address], LONG));
    let mut names = (0..40).map(|n| format!("{n}.example"));
    let mut ask = async || {
        let answer = resolver.a_records(&names.next().unwrap()).await;
        assert_eq!(answer.unwrap().len(), 1);
    };
    assert!(timed(ask()).await.1 >= patience);
    assert_eq!(resolver.counts().servers_silent, 1);
    let before = dead.asked();
    for _ in 0..20 {
        assert_eq!(standing(ask()).await.1, Duration::ZERO);
    }
    assert_eq!(dead.asked(), before);
    // Half a minute later one question tries it, and no other.
    later(31).await;
    assert!(timed(ask()).await.1 >= patience);
    let before = dead.asked();
    assert_eq!(standing(ask()).await.1, Duration::ZERO);
    assert_eq!(dead.asked(), before);
    // It is back.
    dead.speak();
    later(31).await;
    let before = alive.asked();
    for _ in 0..2 {
        assert_eq!(standing(ask()).await.1, Duration::ZERO);
    }
    assert_eq!((alive.asked(), resolver.counts().servers_silent), (before, 0));
    assert_eq!(resolver.take_notes(), []);
}

#[tokio::test]
async fn a_server_that_fails_is_followed_by_the_next_at_once() {
    let records = || vec![a("x.example", "192.0.2.1")];
    for manner in [Manner::Broken, Manner::Refused, Manner::Lame, Manner::Garbage] {
        let (bad, good) = (Server::start(records()).await, Server::start(records()).await);
        bad.answer(".", manner);
        let resolver = resolver_of(&settings(&[bad.address, good.address], LONG));
        let (answer, time) = standing(resolver.a_records("x.example")).await;
        assert_eq!((answer.unwrap().len(), time), (1, Duration::ZERO), "{manner:?}");
        assert_eq!((bad.asked() > 0, good.asked(), resolver.counts().servers_silent), (true, 1, 0), "{manner:?}");
        // All servers fail: so does the look-up.
        good.answer(".", manner);
        assert_eq!(resolver.a_records("y.example").await, Err(Failure::Failed), "{manner:?}");
        // A denial of existence is an answer, and the resolver asks no other server.
        good.speak();
        bad.speak();
        let before = good.asked();
        assert_eq!(resolver.a_records("z.example").await, Ok(vec![]));
        assert_eq!(good.asked(), before, "{manner:?}");
    }
}

#[tokio::test]
async fn a_port_where_nobody_listens_costs_nothing() {
    let good = Server::start(vec![a("x.example", "192.0.2.1")]).await;
    // At an address of its own: no server of another test gets the port meanwhile.
    let closed = std::net::UdpSocket::bind("127.45.0.1:0").unwrap().local_addr().unwrap();
    let resolver = resolver_of(&settings(&[closed, good.address], LONG));
    let (answer, time) = timed(resolver.a_records("x.example")).await;
    assert_eq!(answer.unwrap().len(), 1);
    // Where the system reports a closed port; else the server counts as silent.
    assert!(time < LONG / 2, "{time:?}");
    assert_eq!(resolver.counts().servers_silent, 1);
}

/// Each costs its time at most, and gives a failure or an answer.
#[tokio::test]
async fn hostile_servers() {
    let server = Server::start(vec![a("x.example", "192.0.2.1")]).await;
    for (manner, expected) in [
        (Manner::OtherId, Err(Failure::TimedOut)),
        (Manner::Garbage, Err(Failure::Failed)),
        (Manner::OldServer, Ok(1)),
        (Manner::Huge, Ok(RECORDS_MAX)),
        (Manner::Truncated, Ok(1)),
    ] {
        let is_silence = expected == Err(Failure::TimedOut);
        let timeout = if is_silence { Duration::from_secs(5) } else { LONG };
        let resolver = resolver_of(&settings(&[server.address], timeout));
        server.answer(".", manner);
        let (answer, time) = timed(resolver.a_records("x.example")).await;
        assert_eq!(answer.map(|ips| ips.len()), expected, "{manner:?}");
        assert!(time < 2 * timeout, "{manner:?} {time:?}");
        server.speak();
    }
}
