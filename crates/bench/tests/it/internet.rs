//! The simulated internet behind its sockets: doors as the kernel shows them, the storm into live hosts, DNS by UDP and
//! TCP.

use bench::internet::{InternetError, Options, SimulatedInternet};
use bench::storm;
use sim::{Change, Character, How, Plan, Share, Taken, World};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::harness::poll;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);
/// Long enough to see that nothing comes.
const SHORT: Duration = Duration::from_millis(150);

fn options(plan: Plan) -> Options {
    let dns = SocketAddr::from(([127, 0, 0, 1], 0));
    Options { plan, port: 0, dns, connections_max: 200, ledger: None, list: None, map: None }
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A host of this character.
fn host(world: &World, internet: &SimulatedInternet, character: Character) -> SocketAddr {
    let number = world.hosts().iter().position(|host| host.script.base == character).unwrap();
    SocketAddr::from((world.address(u32::try_from(number).unwrap()), internet.port()))
}

/// Returns the octets up to the end of a line.
fn line(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut octet = [0];
        stream.read_exact(&mut octet).unwrap();
        line.push(octet[0]);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn a_storm_into_a_host_is_in_the_ledger_message_by_message() {
    let plan = Plan { delay: Duration::from_millis(2), ..Plan::new(300) };
    let paths = ["storm-ledger", "storm-list", "storm-map"].map(file);
    let [ledger, list, map] = paths.clone().map(Some);
    let internet = SimulatedInternet::start(&Options { ledger, list, map, ..options(plan) }).unwrap();
    let at = SocketAddr::from(([127, 16, 0, 77], internet.port()));
    let storm = storm::Plan {
        messages: Some(200),
        sessions: 10,
        recipients: 3,
        pipelining: true,
        chunking: true,
        ..storm::Plan::new(at)
    };
    for plan in [storm.clone(), storm::Plan { chunking: false, split_dot: true, new_connection: true, ..storm }] {
        let report = storm::run(&plan, &mut |_| ()).unwrap();
        assert!(report.is_complete(), "{}", report.text());
    }
    let summary = internet.stop().unwrap();
    assert_eq!((summary.tally.messages, summary.tally.recipients, summary.tally.silent_messages), (400, 1200, 0));
    assert_eq!((summary.hosts.len(), summary.hosts[0].host, summary.hosts[0].messages), (1, 77, 400));
    assert!(summary.host_max().1 <= 20 && summary.counts.open == 0, "{:?}", summary.counts);
    // Both storms have the same tokens but for the number of the run.
    let [ledger, list, map] = paths.map(|path| std::fs::read_to_string(path).unwrap());
    let taken: Vec<Taken> = ledger.lines().skip(1).map(|line| Taken::read(line).unwrap()).collect();
    assert!(ledger.starts_with(&format!("{}{}\n", sim::ledger::HEAD, summary.start_unix_us)), "{ledger}");
    assert!(taken.iter().all(|one| one.how == How::Acknowledged && one.host == 77 && one.recipients.len() == 3));
    assert!(taken.windows(2).all(|two| two[0].at <= two[1].at));
    let octets: u64 = taken.iter().map(|one| one.octets).sum();
    assert_eq!((taken.len(), octets), (400, 400 * 4096));
    let tokens: BTreeSet<_> = taken.iter().map(|one| &one.token).collect();
    assert_eq!(tokens.len(), 200);
    assert_eq!(summary.tally.twice, 600);
    assert_eq!((list.lines().count(), list.lines().nth(300)), (600, Some("u1@d0.sim.example")));
    assert_eq!(map.lines().nth(299), Some("299 127.16.1.43 mx299.sim.example 299 live"));
}

#[test]
fn a_client_that_sends_nothing_more_still_gets_its_answers() {
    let plan = Plan { delay: Duration::from_millis(20), ..Plan::new(1) };
    let internet = SimulatedInternet::start(&options(plan)).unwrap();
    let at = SocketAddr::from(([127, 16, 0, 0], internet.port()));
    let mut stream = TcpStream::connect_timeout(&at, LONG).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"MAIL FROM:<>\r\nRCPT TO:<a@d0.sim.example>\r\nDATA\r\n.\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.lines().last().unwrap().starts_with("250 "), "{said}");
    // One that shuts its side before it said anything is let go.
    let mut silent = TcpStream::connect_timeout(&at, LONG).unwrap();
    assert!(line(&mut silent).starts_with("220 "));
    silent.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(silent.read(&mut [0; 9]).unwrap(), 0);
    let summary = internet.stop().unwrap();
    assert_eq!((summary.tally.messages, summary.tally.silent_messages, summary.counts.open), (1, 0, 0));
}

#[test]
fn doors_are_as_the_kernel_shows_them() {
    let shares = [Character::Dead, Character::Drop, Character::Hung, Character::Cut, Character::Live];
    let plan = Plan { shares: shares.map(|one| (one, Share::percent(20))).into(), ..Plan::new(50) };
    let world = World::new(plan.clone()).unwrap();
    let internet = SimulatedInternet::start(&options(plan)).unwrap();
    let at = |character| host(&world, &internet, character);
    let connect = |character| TcpStream::connect_timeout(&at(character), LONG);
    assert_eq!(connect(Character::Dead).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let dropped = TcpStream::connect_timeout(&at(Character::Drop), SHORT);
    assert_eq!(dropped.unwrap_err().kind(), ErrorKind::TimedOut);
    let mut hung = connect(Character::Hung).unwrap();
    hung.set_read_timeout(Some(SHORT)).unwrap();
    assert_eq!(hung.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut live = connect(Character::Live).unwrap();
    assert!(line(&mut live).starts_with("220 mx"));
    let mut cut = connect(Character::Cut).unwrap();
    cut.write_all(b"MAIL FROM:<>\r\nRCPT TO:<a@x>\r\nDATA\r\n.\r\n").unwrap();
    let mut said = String::new();
    cut.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("220 ") && said.lines().last().unwrap().starts_with("354 "), "{said}");
    let summary = internet.stop().unwrap();
    assert_eq!((summary.counts.connections, summary.tally.messages), (3, 0));
}

#[test]
fn a_host_goes_and_comes_back() {
    let millis = Duration::from_millis;
    // Time to see it up and down on a machine that is busy.
    let down =
        Change { from: millis(8_000), to: millis(24_000), character: Character::Dead, share: Share::percent(100) };
    let internet = SimulatedInternet::start(&options(Plan { changes: vec![down], ..Plan::new(3) })).unwrap();
    let at = SocketAddr::from(([127, 16, 0, 1], internet.port()));
    let mut open = TcpStream::connect_timeout(&at, LONG).unwrap();
    assert!(line(&mut open).starts_with("220 "));
    // An open connection is reset when it happens.
    assert_eq!(open.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(TcpStream::connect_timeout(&at, LONG).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let mut back = poll("it does not come back", || TcpStream::connect_timeout(&at, LONG).ok());
    assert!(line(&mut back).starts_with("220 "));
}

#[test]
fn names_are_answered_by_udp_and_tcp() {
    let internet = SimulatedInternet::start(&options(Plan::new(10))).unwrap();
    let mut query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    query.extend_from_slice(b"\x02d7\x03sim\x07example\0\0\x0f\0\x01");
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(LONG)).unwrap();
    udp.send_to(&query, internet.dns()).unwrap();
    let mut reply = [0; 512];
    let octets = udp.recv(&mut reply).unwrap();
    let reply = &reply[..octets];
    assert!(reply.ends_with(b"\0\x0a\x03mx7\x03sim\x07example\0"), "{reply:?}");
    let mut tcp = TcpStream::connect_timeout(&internet.dns(), LONG).unwrap();
    tcp.set_read_timeout(Some(LONG)).unwrap();
    let mut message = u16::try_from(query.len()).unwrap().to_be_bytes().to_vec();
    message.extend_from_slice(&query);
    // Two in one write, the second one cut.
    let twice = [message.as_slice(), &message].concat();
    let (begin, end) = twice.split_at(message.len() + 5);
    tcp.write_all(begin).unwrap();
    let mut same = vec![0; octets + 2];
    tcp.read_exact(&mut same).unwrap();
    assert_eq!(&same[2..], reply);
    tcp.write_all(end).unwrap();
    tcp.read_exact(&mut same).unwrap();
    assert_eq!(&same[2..], reply);
    assert_eq!(internet.stop().unwrap().queries, 3);
}

#[test]
fn connections_above_the_limit_are_closed_and_counted() {
    let internet = SimulatedInternet::start(&Options { connections_max: 2, ..options(Plan::new(3)) }).unwrap();
    let at = SocketAddr::from(([127, 16, 0, 0], internet.port()));
    let mut open: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect_timeout(&at, LONG).unwrap()).collect();
    for stream in &mut open {
        assert!(line(stream).starts_with("220 "));
    }
    let mut third = TcpStream::connect_timeout(&at, LONG).unwrap();
    assert_eq!(third.read(&mut [0; 9]).unwrap(), 0);
    let summary = internet.stop().unwrap();
    assert_eq!((summary.turned_away, summary.counts.connections, summary.counts.open_max), (1, 2, 2));
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_for_ever() {
    let internet = SimulatedInternet::start(&options(Plan::new(1))).unwrap();
    let at = SocketAddr::from(([127, 16, 0, 0], internet.port()));
    let mut stream = TcpStream::connect_timeout(&at, LONG).unwrap();
    stream.set_write_timeout(Some(SHORT)).unwrap();
    let flood = b"NOOP\r\n".repeat(10_000);
    // Answers are longer than commands: they fill the socket buffers and the backlog, and then no more input is taken.
    let written = (0..2_000).take_while(|_| stream.write_all(&flood).is_ok()).count();
    assert!(written < 1_000, "{written}");
    // Others are served meanwhile.
    assert!(line(&mut TcpStream::connect_timeout(&at, LONG).unwrap()).starts_with("220 "));
}

#[test]
fn nothing_is_bound_outside_loopback_and_limits_are_named() {
    let said = |options: Options| match SimulatedInternet::start(&options) {
        Err(InternetError::Options(text)) => text,
        other => panic!("{other:?}"),
    };
    let dns = SocketAddr::from(([0, 0, 0, 0], 0));
    assert!(said(Options { dns, ..options(Plan::new(1)) }).starts_with("--dns 0.0.0.0:0 is no loopback address"));
    let plan = Plan { network: [10, 0, 0, 1].into(), ..Plan::new(1) };
    assert!(said(options(plan)).starts_with("--network 10.0.0.1"));
    let missing = Options { ledger: Some(file("no-such-directory/ledger")), ..options(Plan::new(1)) };
    assert!(
        matches!(SimulatedInternet::start(&missing), Err(InternetError::Io { what, .. }) if what.starts_with("--ledger "))
    );
}
