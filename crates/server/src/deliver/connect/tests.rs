//! Hosts of every kind under a paused clock: which are tried, in what order, and how long that takes.

use super::*;
use crate::config::RouteTls;
use crate::deliver::link::timer;
use crate::next_hop::Endpoint;
use crate::transport::Internet;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, duplex,
};

/// How a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Good,
    /// No connection comes about.
    Silent,
    /// It takes so many milliseconds.
    Late(u64),
    Refuses,
    /// Our network has no way.
    NoRoute,
    /// It accepts connections, and stays silent.
    Mute,
    /// It is silent after EHLO.
    Deaf,
    /// It offers TLS, and closes the connection in the handshake.
    BrokenTls,
    /// The same, and in clear it hangs up.
    OnlyTls,
    /// The same, and the handshake hangs.
    HungTls,
    /// It offers TLS, and is silent when it is to begin.
    MuteTls,
    /// It offers TLS and refuses STARTTLS.
    DeclinesTls,
    /// It offers TLS, and sends these octets in one write with the reply to STARTTLS.
    Injected(&'static [u8]),
    /// The same in a write of its own, before the handshake begins.
    InjectedApart(&'static [u8]),
    /// The same, behind the beginning of the handshake.
    InjectedLate(&'static [u8]),
    /// Sends these octets in one write with the reply to EHLO, before STARTTLS.
    InjectedEarly(&'static [u8]),
}

/// The name of the host, its address, its mood.
type Spec = (&'static str, &'static str, Mood);

struct World {
    outbound: Outbound,
    candidates: Vec<Candidate>,
    dialled: Arc<Mutex<Vec<SocketAddr>>>,
    /// Connections that were begun and not let go, at a time.
    most_under_way: Arc<AtomicUsize>,
    rule: EffectiveRule,
}

/// Counts a connection in progress while it lives.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn begin(now: &Arc<AtomicUsize>, most: &AtomicUsize) -> Self {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Self(Arc::clone(now))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets time pass on the clock that stands still otherwise.
async fn after(time: Duration) {
    drop(tokio::time::timeout(time, pending::<()>()).await);
}

async fn talk(stream: impl AsyncRead + AsyncWrite, mood: Mood, number: usize) {
    let (input, mut output) = tokio::io::split(stream);
    let mut lines = BufReader::new(input).lines();
    match mood {
        Mood::Mute => pending().await,
        Mood::OnlyTls if number > 0 => return,
        _ => {}
    }
    output.write_all(b"220 mx.test\r\n").await.unwrap();
    while let Ok(Some(line)) = lines.next_line().await {
        let reply: &[u8] = match line.split(' ').next() {
            Some("EHLO") if mood == Mood::Deaf => continue,
            Some("EHLO") if matches!(mood, Mood::Good | Mood::Late(_)) => b"250 mx.test\r\n",
            Some("EHLO") => b"250-mx.test\r\n250 STARTTLS\r\n",
            Some("STARTTLS") if mood == Mood::MuteTls => continue,
            Some("STARTTLS") if mood == Mood::DeclinesTls => b"454 4.7.0 not today\r\n",
            Some("STARTTLS") => b"220 go on\r\n",
            _ => b"500 what?\r\n",
        };
        let behind: &[u8] = match mood {
            Mood::Injected(text) if line == "STARTTLS" => text,
            Mood::InjectedEarly(text) if line.starts_with("EHLO") => text,
            _ => b"",
        };
        if output.write_all(&[reply, behind].concat()).await.is_err() {
            return;
        }
        match mood {
            Mood::DeclinesTls => {}
            Mood::HungTls if line == "STARTTLS" => pending().await,
            _ if line == "STARTTLS" => {
                if let Mood::InjectedApart(text) = mood {
                    after(Duration::from_millis(1)).await;
                    drop(output.write_all(text).await);
                }
                // The client sends a TLS record, not a line.
                let mut input = lines.into_inner();
                drop(input.read_u8().await);
                if let Mood::InjectedLate(text) = mood {
                    drop(output.write_all(text).await);
                }
                return;
            }
            _ => {}
        }
    }
}

impl World {
    fn new(specs: &[Spec]) -> Self {
        let text = "[dns]\nservers = [\"127.0.0.1:9\"]\n";
        let config = crate::config::load(text, None, &[], &crate::config::Machine::default()).unwrap().config;
        let rule = config.rule_for(b"d.test", &[]);
        let mut outbound = Outbound::trial(&Context::trial(config, None), None);
        let candidate = |(name, address, _): &Spec| Candidate {
            name: (*name).into(),
            address: Endpoint::Socket(address.parse().unwrap()),
            protocol: RouteProtocol::Smtp,
            server_name: (*name).into(),
            preference: 0,
        };
        let candidates: Vec<Candidate> = specs.iter().map(candidate).collect();
        let moods: Vec<(SocketAddr, Mood)> = specs.iter().map(|(_, ip, mood)| (ip.parse().unwrap(), *mood)).collect();
        let dialled = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let book = Arc::clone(&dialled);
        let (now, most_under_way) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let most = Arc::clone(&most_under_way);
        let internet = Internet::new(move |address| {
            let mood = moods.iter().find(|(one, _)| *one == address).unwrap().1;
            let mut dialled = book.lock().unwrap();
            let number = dialled.iter().filter(|one| **one == address).count();
            dialled.push(address);
            let under_way = UnderWay::begin(&now, &most);
            Box::pin(async move {
                let _under_way = under_way;
                match mood {
                    Mood::Silent => pending().await,
                    Mood::Refuses => return Err(io::ErrorKind::ConnectionRefused.into()),
                    Mood::NoRoute => return Err(io::ErrorKind::NetworkUnreachable.into()),
                    Mood::Late(ms) => after(Duration::from_millis(ms)).await,
                    _ => {}
                }
                let (ours, theirs) = duplex(4_096);
                tokio::spawn(talk(theirs, mood, number));
                Ok(Transport::Memory(ours))
            })
        });
        outbound.internet = Some(internet);
        Self { outbound, candidates, dialled, most_under_way, rule }
    }

    /// With this access map.
    fn access(self, entries: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access");
        std::fs::write(&path, entries).unwrap();
        self.maps(&format!("[maps]\naccess = [{:?}]\n", path.display().to_string()))
    }

    /// With these maps.
    fn maps(self, tables: &str) -> Self {
        let text = format!("[dns]\nservers = [\"127.0.0.1:9\"]\n{tables}");
        let config = crate::config::load(&text, None, &[], &crate::config::Machine::default()).unwrap().config;
        let lookups = Arc::new(crate::lookup::Lookups::new(&config));
        let loaded = crate::routing::load::load(&config, &lookups, None).unwrap();
        self.outbound.context.routing.store(Arc::new(loaded.routing));
        self
    }

    /// Opens a connection; how that took, in milliseconds.
    async fn open(&self, lane: Lane) -> (Result<Box<Link>, ConnectError>, u128) {
        self.open_at(&ConnectionSignal::default(), lane).await
    }

    async fn open_at(&self, post: &ConnectionSignal, lane: Lane) -> (Result<Box<Link>, ConnectError>, u128) {
        let began = clock::now();
        let timer = pin!(timer());
        let stopping = pin!(self.outbound.context.stop.begun());
        let mut wait = Wait::new(timer, &self.outbound.context.stop, stopping);
        let opened = open(&self.outbound, self.candidates.clone(), lane, &self.rule, post, &mut wait).await;
        (opened, since(began).as_millis())
    }

    /// Returns the addresses connected to since the last call.
    fn dialled(&self) -> Vec<String> {
        self.dialled.lock().unwrap().drain(..).map(|address| address.ip().to_string()).collect()
    }

    fn may_try(&self, address: &str) -> bool {
        self.outbound
            .hosts
            .with_table(|hosts| hosts.may_try(address.parse().unwrap(), self.outbound.context.unix_now()))
    }

    /// Returns whether TLS is not to be tried with a host so much later.
    fn tls_is_broken(&self, address: SocketAddr, later: Duration) -> bool {
        let then = self.outbound.context.unix_now() + later;
        self.outbound.hosts.with_table(|hosts| hosts.tls_is_broken(address, then))
    }
}

const ONE: &str = "192.0.2.1:25";
const TWO: &str = "192.0.2.2:25";
const SIX: &str = "[2001:db8::1]:25";

#[tokio::test(start_paused = true)]
async fn a_dead_host_is_tried_last_the_next_time() {
    let world = World::new(&[("one", ONE, Mood::Refuses), ("two", TWO, Mood::Good)]);
    for dialled in [&["192.0.2.1", "192.0.2.2"][..], &["192.0.2.2"], &["192.0.2.2"]] {
        let (opened, took) = world.open(Lane::Fast).await;
        assert_eq!(&*opened.unwrap().peer.name, "two");
        assert_eq!((world.dialled(), took), (dialled.iter().map(ToString::to_string).collect(), 0));
    }
    assert!(!world.may_try(ONE) && world.may_try(TWO));
}

#[tokio::test(start_paused = true)]
async fn when_all_have_failed_all_are_tried() {
    let world = World::new(&[("one", ONE, Mood::Refuses), ("two", TWO, Mood::Refuses)]);
    for _ in 0..3 {
        let (opened, _) = world.open(Lane::Fast).await;
        let trouble = opened.unwrap_err();
        assert_eq!((trouble.failure, trouble.text.as_str()), (Failure::Refused, "Connection refused by two"));
        assert_eq!(world.dialled(), ["192.0.2.1", "192.0.2.2"]);
    }
}

/// Other nodes of a cluster hear only of what the hosts do.
#[tokio::test(start_paused = true)]
async fn a_fault_of_this_machine_is_none_of_the_hosts() {
    let (no_route, refuses) = (("one", ONE, Mood::NoRoute), ("two", TWO, Mood::Refuses));
    for (specs, failure) in [
        (vec![no_route], Failure::Local),
        (vec![refuses, no_route], Failure::Refused),
        (vec![no_route, refuses], Failure::Refused),
    ] {
        let (opened, _) = World::new(&specs).open(Lane::Fast).await;
        assert_eq!(opened.unwrap_err().failure, failure, "{specs:?}");
    }
    let mut world = World::new(&[("one", ONE, Mood::BrokenTls)]);
    world.rule.tls = RouteTls::Required;
    assert_eq!(world.open(Lane::Fast).await.0.unwrap_err().failure, Failure::Tls);
}

#[tokio::test(start_paused = true)]
async fn lanes_have_their_own_patience() {
    let cases = [
        (Mood::Silent, 5, 30, "Connection timed out with one"),
        (Mood::Mute, 10, 300, "timeout waiting for one during client greeting"),
        (Mood::Deaf, 20, 300, "timeout waiting for one during client EHLO"),
    ];
    for (mood, fast, slow, text) in cases {
        let world = World::new(&[("one", ONE, mood)]);
        for (lane, seconds) in [(Lane::Fast, fast), (Lane::Slow, slow)] {
            let (opened, took) = world.open(lane).await;
            let trouble = opened.unwrap_err();
            assert_eq!((trouble.text.as_str(), trouble.failure), (text, Failure::Silent));
            assert_eq!(took / 1_000, seconds, "{mood:?} {lane:?}");
        }
        assert!(!world.may_try(ONE));
    }
}

#[tokio::test(start_paused = true)]
async fn many_silent_hosts_hold_the_fast_lane_for_seconds() {
    let addresses: Vec<&'static str> = (1..=16).map(|n| &*format!("192.0.2.{n}:25").leak()).collect();
    let specs: Vec<Spec> = addresses.iter().map(|address| ("mx", *address, Mood::Silent)).collect();
    let world = World::new(&specs);
    let (opened, took) = world.open(Lane::Fast).await;
    assert_eq!((opened.unwrap_err().failure, took), (Failure::Silent, 35_000));
    assert_eq!(world.dialled().len(), 7);
    // The next time those come first that were not tried.
    let (_, _) = world.open(Lane::Fast).await;
    assert_eq!(world.dialled().first().unwrap(), "192.0.2.8");
    let (_, took) = world.open(Lane::Slow).await;
    assert_eq!((world.dialled().len(), took), (16, 16 * 30_000));
}

/// The site is not to blame before all of its hosts have had their chance.
#[tokio::test(start_paused = true)]
async fn who_was_not_tried_for_lack_of_time_comes_first_the_next_time() {
    let addresses: Vec<&'static str> = (1..=5).map(|n| &*format!("192.0.2.{n}:25").leak()).collect();
    let mood = |at| if at < 4 { Mood::Mute } else { Mood::Good };
    let specs: Vec<Spec> = addresses.iter().enumerate().map(|(at, address)| ("mx", *address, mood(at))).collect();
    let world = World::new(&specs);
    let (opened, took) = world.open(Lane::Fast).await;
    let trouble = opened.unwrap_err();
    assert_eq!((trouble.has_untried, trouble.failure, took), (true, Failure::Silent, 40_000));
    let (opened, took) = world.open(Lane::Fast).await;
    assert_eq!((opened.is_ok(), took), (true, 0));
    // When all may be tried again, one of them is enough to know better.
    let world = World::new(&specs);
    let long_ago = world.outbound.context.unix_now() - Duration::from_secs(3_600);
    for address in &addresses[..4] {
        world.outbound.hosts.update(|hosts| hosts.failed(address.parse().unwrap(), long_ago));
    }
    let (opened, took) = world.open(Lane::Fast).await;
    assert_eq!((opened.is_ok(), took), (true, 10_000));
    assert_eq!(world.dialled(), ["192.0.2.1", "192.0.2.5"]);
    // Where all are dead, the site is.
    let world = World::new(&specs[..4]);
    for _ in 0..2 {
        assert!(!world.open(Lane::Fast).await.0.unwrap_err().has_untried);
    }
}

/// A host of which nothing bad is known is tried first again: the next connection would come as far as this one.
#[tokio::test(start_paused = true)]
async fn where_nothing_is_held_against_those_that_were_tried_the_site_is_to_blame() {
    let addresses: Vec<&'static str> = (1..=9).map(|n| &*format!("192.0.2.{n}:25").leak()).collect();
    let world = |first| {
        let mood = |at| if at == 0 { first } else { Mood::Late(4_900) };
        let specs: Vec<Spec> = addresses.iter().enumerate().map(|(at, address)| ("mx", *address, mood(at))).collect();
        let mut world = World::new(&specs);
        world.rule.tls = RouteTls::Required;
        world
    };
    for (first, has_untried) in [(Mood::Late(4_900), false), (Mood::Silent, true)] {
        let world = world(first);
        let trouble = world.open(Lane::Fast).await.0.unwrap_err();
        assert_eq!(world.dialled().len(), 8, "{first:?}: there was no time for the last");
        assert_eq!(trouble.has_untried, has_untried, "{first:?}: {trouble:?}");
    }
}

#[tokio::test]
async fn a_map_that_cannot_be_asked_ends_the_search() {
    let tables = "[maps]\naccess = [\"sqlite:a\"]\n\
                  [[sqlite]]\nname = \"a\"\npath = \"/nonexistent/a.db\"\nquery = \"select 1 where ?1\"\n";
    let world = World::new(&[("one", ONE, Mood::Good), ("two", TWO, Mood::Good)]).maps(tables);
    for _ in 0..2 {
        let trouble = world.open(Lane::Fast).await.0.unwrap_err();
        assert!(trouble.text.starts_with("the access map cannot be asked for one: "), "{}", trouble.text);
        assert_eq!((trouble.has_untried, trouble.is_permanent, trouble.is_ours), (false, false, false));
        assert_eq!(world.dialled(), ["192.0.2.1"]);
        assert!(world.may_try(ONE));
    }
}

/// Makes a host on a socket of its own where each handshake hangs, for 50 ms.
async fn hung_tls() -> (World, SocketAddr) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream, Mood::HungTls, 0));
        }
    });
    let mut world = World::new(&[("one", address.to_string().leak(), Mood::HungTls)]);
    world.outbound.internet = None;
    let mut config = world.outbound.context.live.load().config.clone();
    config.tls.handshake_time_max = Duration::from_millis(50);
    world.outbound.context.live.store(Arc::new(crate::active_config::ActiveConfig::new(config, None)));
    (world, address)
}

/// Where TLS is demanded it costs its time once.
#[tokio::test]
async fn a_handshake_that_hangs_is_held_against_the_host() {
    let (mut world, address) = hung_tls().await;
    world.rule.tls = RouteTls::Required;
    let trouble = world.open(Lane::Fast).await.0.unwrap_err();
    assert!(trouble.text.starts_with("TLS handshake with one failed: "), "{}", trouble.text);
    assert_eq!(trouble.failure, Failure::Silent);
    assert!(!world.may_try(&address.to_string()));
    assert!(!world.tls_is_broken(address, Duration::ZERO));
}

#[tokio::test]
async fn a_handshake_that_hangs_is_not_begun_again_for_an_hour() {
    let (world, address) = hung_tls().await;
    for is_known in [false, true, true] {
        assert_eq!(world.tls_is_broken(address, Duration::ZERO), is_known);
        let link = world.open(Lane::Fast).await.0.unwrap();
        assert!(link.tls.is_none() && link.session.is_greeted());
    }
    assert!(!world.tls_is_broken(address, Duration::from_secs(3_600)));
}

/// The silence costs its time once, is remembered for less long than a refusal, and is not how long the host takes.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_silent_about_tls_is_spoken_to_in_clear_for_an_hour() {
    const MINUTE: Duration = Duration::from_secs(60);
    let address = ONE.parse().unwrap();
    for (lane, silence) in [(Lane::Fast, 20_000), (Lane::Slow, 120_000)] {
        let world = World::new(&[("one", ONE, Mood::MuteTls)]);
        for (connections, took) in [(2, silence), (1, 0), (1, 0)] {
            let (opened, time) = world.open(lane).await;
            assert!(opened.is_ok());
            assert_eq!((world.dialled().len(), time), (connections, took), "{lane:?}");
        }
        assert!(world.tls_is_broken(address, 59 * MINUTE) && !world.tls_is_broken(address, 60 * MINUTE));
        let expected = world.outbound.hosts.with_table(|hosts| hosts.expected(address));
        assert!(expected < Some(Duration::from_secs(1)), "{expected:?}");
    }
    let world = World::new(&[("one", ONE, Mood::BrokenTls)]);
    assert!(world.open(Lane::Fast).await.0.is_ok());
    assert!(world.tls_is_broken(address, 59 * MINUTE) && !world.tls_is_broken(address, 60 * MINUTE));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_called_off_ends_and_the_next_one_begins_with_another_host() {
    for mood in [Mood::Silent, Mood::Mute, Mood::Deaf] {
        let world = World::new(&[("one", ONE, mood), ("two", TWO, Mood::Good)]);
        let post = ConnectionSignal::default();
        let needs = async {
            after(Duration::from_millis(300)).await;
            post.is_called_off.store(true, Ordering::Release);
            post.bell.notify_one();
        };
        let ((opened, took), ()) = tokio::join!(world.open_at(&post, Lane::Fast), needs);
        let trouble = opened.unwrap_err();
        assert!(trouble.is_ours && took == 300, "{mood:?}: {trouble:?} after {took} ms");
        assert_eq!(world.dialled(), ["192.0.2.1"]);
        let now = world.outbound.context.unix_now();
        let failures =
            world.outbound.hosts.with_table(|hosts| hosts.views(now).map(|one| one.failures).collect::<Vec<_>>());
        assert_eq!(failures, [0], "it was not given the time to fail");
        let (opened, _) = world.open(Lane::Fast).await;
        assert_eq!(&*opened.unwrap().peer.name, "two");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_silent_counts_though_the_last_refused() {
    let world = World::new(&[("one", ONE, Mood::Silent), ("two", TWO, Mood::Refuses)]);
    let (opened, _) = world.open(Lane::Fast).await;
    let trouble = opened.unwrap_err();
    assert_eq!((trouble.failure, trouble.text.as_str()), (Failure::Silent, "Connection refused by two"));
}

// RFC 8305 §5 (test)
#[tokio::test(start_paused = true)]
async fn a_silent_ipv6_address_gives_way_to_ipv4() {
    let specs = [("mx", SIX, Mood::Silent), ("other", TWO, Mood::Good), ("mx", ONE, Mood::Late(40))];
    let world = World::new(&specs);
    let (opened, took) = world.open(Lane::Fast).await;
    assert_eq!((opened.unwrap().peer.address.to_string().as_str(), took), (ONE, 290));
    assert_eq!(world.dialled(), ["2001:db8::1", "192.0.2.1"]);
    // It comes last now.
    let (_, took) = world.open(Lane::Fast).await;
    assert_eq!((world.dialled(), took), (vec!["192.0.2.2".to_owned()], 0));
    // In the slow lane one at a time.
    let world = World::new(&specs);
    let (opened, took) = world.open(Lane::Slow).await;
    assert_eq!((&*opened.unwrap().peer.name, took), ("other", 30_000));
}

#[tokio::test(start_paused = true)]
async fn a_slow_ipv6_address_is_asked_again_where_ipv4_says_no() {
    let world = World::new(&[("mx", SIX, Mood::Late(300)), ("mx", ONE, Mood::Refuses)]);
    let (opened, took) = world.open(Lane::Fast).await;
    assert_eq!((opened.unwrap().peer.address.to_string().as_str(), took), (SIX, 550));
    assert_eq!(world.dialled().len(), 3);
    assert!(world.may_try(SIX));
}

/// Both kinds of address belong to one host, which gets at most the connections of its limit.
#[tokio::test(start_paused = true)]
async fn a_host_with_both_kinds_of_address_never_sees_two_connections_for_one() {
    for four in [Mood::Late(40), Mood::Late(300), Mood::Refuses, Mood::Silent] {
        let world = World::new(&[("mx", SIX, Mood::Late(300)), ("mx", ONE, four)]);
        drop(world.open(Lane::Fast).await);
        assert_eq!(world.most_under_way.load(Ordering::SeqCst), 1, "{four:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn both_kinds_of_address_may_fail() {
    for (six, four, failure, took) in [
        (Mood::Silent, Mood::Silent, Failure::Silent, (5_250, 2)),
        (Mood::Silent, Mood::Refuses, Failure::Silent, (5_000, 3)),
        (Mood::Refuses, Mood::Refuses, Failure::Refused, (0, 2)),
    ] {
        let world = World::new(&[("mx", SIX, six), ("mx", ONE, four)]);
        let (opened, time) = world.open(Lane::Fast).await;
        let trouble = opened.unwrap_err();
        assert_eq!((trouble.failure, (time, world.dialled().len())), (failure, took));
        assert_eq!(trouble.peer.unwrap().address.to_string(), ONE);
        assert!(!world.may_try(SIX) && !world.may_try(ONE));
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_that_we_lack_costs_nothing_and_is_nobodys_fault() {
    let world = World::new(&[("mx", SIX, Mood::NoRoute), ("mx", ONE, Mood::Good)]);
    let (opened, took) = world.open(Lane::Fast).await;
    assert_eq!((opened.unwrap().peer.address.to_string().as_str(), took), (ONE, 0));
    assert!(world.may_try(SIX));
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_tls_broke_is_spoken_to_in_clear() {
    let world = World::new(&[("one", ONE, Mood::BrokenTls)]);
    for connections in [2, 1, 1] {
        assert!(world.open(Lane::Fast).await.0.is_ok());
        assert_eq!(world.dialled().len(), connections);
    }
    // Where TLS is required, nothing is remembered and nothing forgotten.
    let mut world = World::new(&[("one", ONE, Mood::BrokenTls)]);
    world.rule.tls = RouteTls::Required;
    for _ in 0..2 {
        let trouble = world.open(Lane::Fast).await.0.unwrap_err();
        assert!(trouble.text.starts_with("TLS handshake with one failed: "), "{}", trouble.text);
        assert_eq!(world.dialled().len(), 1);
        assert!(world.may_try(ONE));
    }
    world.rule.tls = RouteTls::None;
    assert!(world.open(Lane::Fast).await.0.is_ok());
    assert_eq!(world.dialled().len(), 1);
}

/// Otherwise a host that goes down in the middle of a handshake would have a day in clear.
#[tokio::test(start_paused = true)]
async fn tls_is_broken_only_where_clear_text_works() {
    let world = World::new(&[("one", ONE, Mood::OnlyTls)]);
    for _ in 0..2 {
        assert!(world.open(Lane::Fast).await.0.is_err());
        assert!(!world.tls_is_broken(ONE.parse().unwrap(), Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_demanded_is_asked_of_each_host() {
    let world = |one, two| World::new(&[("one", ONE, one), ("two", TWO, two)]);
    let some = world(Mood::Good, Mood::Good).access("TLS_Srv:one PERM+ENCR:112\n");
    assert_eq!(&*some.open(Lane::Fast).await.0.unwrap().peer.name, "two");
    assert!(some.may_try(ONE), "it is good enough for others");
    let all = "TLS_Srv: PERM+ENCR:112\n";
    let trouble = world(Mood::Good, Mood::Good).access(all).open(Lane::Fast).await.0.unwrap_err();
    assert!(trouble.is_permanent && trouble.status.to_string() == "5.7.0", "{trouble:?}");
    let text = "503 5.7.0 encryption too weak 0 less than 112 (TLS_Srv: PERM+ENCR:112 in ";
    assert!(trouble.text.starts_with(text) && trouble.text.ends_with("access line 1)"), "{}", trouble.text);
    // A host that may meet the demand was not reached.
    for (one, two) in [(Mood::Refuses, Mood::Good), (Mood::Good, Mood::Refuses), (Mood::BrokenTls, Mood::Good)] {
        let trouble = world(one, two).access(all).open(Lane::Fast).await.0.unwrap_err();
        assert!(
            !trouble.is_permanent && trouble.status.outcome() == Outcome::Transient,
            "{one:?} {two:?}: {trouble:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn tls_that_is_demanded_is_tried_whatever_else_is_said() {
    let world = |entries| World::new(&[("one", ONE, Mood::BrokenTls)]).access(entries);
    let quiet = world("Try_TLS:one NO\n");
    assert!(quiet.open(Lane::Fast).await.0.is_ok());
    assert_eq!(quiet.dialled().len(), 1, "no handshake has failed");
    let mut required = world("Try_TLS:one NO\n");
    required.rule.tls = RouteTls::Required;
    let mut never = world("TLS_Srv:one ENCR:112\n");
    never.rule.tls = RouteTls::None;
    for world in [required, never, world("Try_TLS:one NO\nTLS_Srv:one PERM+VERIFY\n")] {
        let trouble = world.open(Lane::Fast).await.0.unwrap_err();
        assert!(trouble.text.starts_with("TLS handshake with one failed: ") && !trouble.is_permanent, "{trouble:?}");
        assert_eq!(world.dialled().len(), 1, "never in clear");
    }
}

#[tokio::test]
async fn a_source_that_is_not_ours_is_named() {
    let mut world = World::new(&[("one", "127.0.0.1:9", Mood::Good)]);
    world.outbound.internet = None;
    (world.rule.index, world.rule.source4) = (Some(2), Some([192, 0, 2, 7].into()));
    let trouble = world.open(Lane::Fast).await.0.unwrap_err();
    assert!(trouble.text.starts_with("cannot connect to one from 192.0.2.7: "), "{}", trouble.text);
    assert!(
        trouble.text.ends_with("; name addresses of this machine in source of [[destination]] 3"),
        "{}",
        trouble.text
    );
    assert_eq!((trouble.status.to_string().as_str(), trouble.failure), ("4.3.5", Failure::Local));
    assert!(world.may_try("127.0.0.1:9"));
}

mod tls;
