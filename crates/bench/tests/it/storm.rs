//! The storm against small servers that check every octet, and against servers that misbehave.

use bench::receiver::Receiver;
use bench::storm::{Plan, Sizes, StormReport, Tls, run};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a server behaves.
#[derive(Clone, Copy, Default)]
struct Manners {
    greeting: Option<&'static str>,
    /// Answers to RCPT by the number of the recipient, then 250.
    rcpt: &'static [&'static str],
    /// Answer to the content.
    content: Option<&'static str>,
    /// Closes without a word after so many messages of a connection.
    messages: Option<usize>,
    /// Closes instead of answering the content.
    silent: bool,
    /// Takes the second message of a connection whole and closes without any reply to it.
    mute: bool,
    lmtp: bool,
    tls: Tls,
}

#[derive(Default)]
struct Seen {
    messages: Vec<Vec<u8>>,
    recipients: usize,
    connections: usize,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

struct Server {
    at: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

impl Server {
    fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Seen::default())));
        let shared = Arc::clone(&seen);
        let tls = (manners.tls != Tls::None).then(certificate);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, tls) = (Arc::clone(&shared), tls.clone());
                // A client that goes away in the middle is the test's own doing.
                std::thread::spawn(move || drop(serve(stream.unwrap(), manners, tls, &seen)));
            }
        });
        Self { at, seen }
    }

    fn plan(&self) -> Plan {
        Plan { messages: Some(50), sessions: 4, patience: Duration::from_secs(60), ..Plan::new(self.at) }
    }
}

fn certificate() -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap())
}

fn serve(tcp: TcpStream, manners: Manners, tls: Option<Arc<ServerConfig>>, seen: &Mutex<Seen>) -> std::io::Result<()> {
    seen.lock().unwrap().connections += 1;
    tcp.set_nodelay(true)?;
    let secure = |tcp: TcpStream| StreamOwned::new(ServerConnection::new(tls.clone().unwrap()).unwrap(), tcp);
    let mut io: BufReader<Box<dyn Stream>> = match manners.tls {
        Tls::Implicit => BufReader::new(Box::new(secure(tcp.try_clone()?))),
        Tls::None | Tls::Starttls => BufReader::new(Box::new(tcp.try_clone()?)),
    };
    let say =
        |io: &mut BufReader<Box<dyn Stream>>, text: &str| io.get_mut().write_all(format!("{text}\r\n").as_bytes());
    say(&mut io, manners.greeting.unwrap_or("220 here"))?;
    let (mut recipients, mut messages, mut line) = (0, 0, String::new());
    let answers = |recipients: usize| if manners.lmtp { recipients } else { 1 };
    loop {
        line.clear();
        if io.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let command = line.trim_end();
        let is_mute = manners.mute && messages == 1;
        if is_mute && !command.starts_with("BDAT") && command != "QUIT" {
            continue;
        }
        let content = match command.split([' ', ':']).next().unwrap() {
            "EHLO" | "LHLO" => {
                say(&mut io, "250-here\r\n250 PIPELINING")?;
                continue;
            }
            "STARTTLS" => {
                say(&mut io, "220 go")?;
                io = BufReader::new(Box::new(secure(tcp.try_clone()?)));
                continue;
            }
            "RCPT" => {
                let answer = manners.rcpt.get(recipients).copied().unwrap_or("250 ok");
                recipients += 1;
                say(&mut io, answer)?;
                continue;
            }
            "QUIT" => return say(&mut io, "221 bye"),
            "DATA" => {
                say(&mut io, "354 go")?;
                let mut content = Vec::new();
                while !content.ends_with(b"\r\n.\r\n") {
                    if io.read_until(b'\n', &mut content)? == 0 {
                        return Ok(());
                    }
                }
                content.truncate(content.len() - 3);
                content
            }
            "BDAT" => {
                let mut content = vec![0; command.split(' ').nth(1).unwrap().parse().unwrap()];
                assert!(command.ends_with(" LAST"));
                io.read_exact(&mut content)?;
                content
            }
            _ => {
                recipients = 0;
                say(&mut io, "250 ok")?;
                continue;
            }
        };
        if manners.silent {
            return Ok(());
        }
        {
            let mut seen = seen.lock().unwrap();
            seen.messages.push(content);
            seen.recipients += recipients;
        }
        if is_mute {
            return Ok(());
        }
        for _ in 0..answers(recipients) {
            say(&mut io, manners.content.unwrap_or("250 2.0.0 0123456789 Message accepted for delivery"))?;
        }
        (recipients, messages) = (0, messages + 1);
        if manners.messages == Some(messages) {
            return Ok(());
        }
    }
}

fn storm(plan: &Plan) -> StormReport {
    run(plan, &mut |_| {}).unwrap()
}

/// Runs a plan against a polite server; every message arrives once and whole.
#[track_caller]
fn arrives(manners: Manners, change: impl FnOnce(&mut Plan)) -> (StormReport, Arc<Mutex<Seen>>) {
    let server = Server::start(manners);
    let mut plan = server.plan();
    (plan.lmtp, plan.tls) = (manners.lmtp, manners.tls);
    change(&mut plan);
    let report = storm(&plan);
    assert!(report.is_complete(), "{}", report.text());
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen.messages.len() as u64, report.accepted);
    assert_eq!(seen.recipients as u64, report.recipients);
    let mut by_seq = BTreeMap::new();
    for message in &seen.messages {
        let text = std::str::from_utf8(message).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mark = head.lines().find_map(|line| line.strip_prefix("X-Mailrace-Storm: ")).unwrap();
        let [run, seq, crc] = mark.split('/').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((run, crc), (plan.run.as_str(), format!("{:08x}", crc32c::crc32c(body.as_bytes())).as_str()));
        assert!((plan.sizes.from..=plan.sizes.to).contains(&message.len()));
        by_seq.insert(seq.parse::<u64>().unwrap(), message.len() as u64);
    }
    assert_eq!(by_seq.len(), seen.messages.len(), "a message came twice");
    assert_eq!(by_seq.values().sum::<u64>(), report.octets);
    drop(seen);
    (report, server.seen)
}

#[test]
fn every_way_brings_every_message_whole() {
    let ways: [fn(&mut Plan); 9] = [
        |_| {},
        |plan| plan.pipelining = true,
        |plan| plan.chunking = true,
        |plan| (plan.pipelining, plan.chunking) = (true, true),
        |plan| plan.split_dot = true,
        |plan| (plan.recipients, plan.pipelining) = (7, true),
        |plan| plan.sizes = Sizes { from: 500, to: 200_000 },
        |plan| (plan.new_connection, plan.sources) = (true, 9),
        |plan| plan.rate = Some(5000.0),
    ];
    for way in ways {
        arrives(Manners::default(), way);
        arrives(Manners { lmtp: true, ..Manners::default() }, way);
    }
}

#[test]
fn tls_before_and_after_the_greeting() {
    for tls in [Tls::Starttls, Tls::Implicit] {
        let manners = Manners { tls, ..Manners::default() };
        arrives(manners, |plan| plan.sizes = Sizes { from: 500, to: 300_000 });
        arrives(manners, |plan| (plan.new_connection, plan.pipelining, plan.messages) = (true, true, Some(8)));
    }
}

#[test]
fn connections_are_kept_or_new() {
    let (report, seen) = arrives(Manners::default(), |_| {});
    assert_eq!((report.connections, seen.lock().unwrap().connections), (4, 4));
    let (report, seen) = arrives(Manners::default(), |plan| plan.new_connection = true);
    assert_eq!((report.connections, seen.lock().unwrap().connections), (50, 50));
}

#[test]
fn a_server_that_closes_between_messages_costs_none() {
    for pipelining in [false, true] {
        let manners = Manners { messages: Some(3), ..Manners::default() };
        let (report, _) = arrives(manners, |plan| plan.pipelining = pipelining);
        assert!(report.connections >= 50 / 3, "{}", report.text());
    }
}

/// Checks the counts when a server refuses: accepted, refused, failed, unanswered, and the first error.
#[track_caller]
fn counts(manners: Manners, change: impl Fn(&mut Plan), wanted: (u64, u64, u64, u64), error: &str) {
    let server = Server::start(manners);
    let mut plan = Plan { messages: Some(3), sessions: 1, ..server.plan() };
    change(&mut plan);
    let report = storm(&plan);
    let seen = (report.accepted, report.refused, report.failed, report.unanswered);
    assert_eq!(seen, wanted, "{}", report.text());
    assert!(!report.is_complete());
    assert!(report.errors[0].0.contains(error), "{}", report.text());
    assert_eq!(report.errors.iter().map(|(_, count)| count).sum::<u64>(), 3);
}

#[test]
fn a_message_that_left_whole_is_not_brought_again() {
    let server = Server::start(Manners { mute: true, ..Manners::default() });
    let plan = Plan { messages: Some(3), sessions: 1, pipelining: true, chunking: true, ..server.plan() };
    let report = storm(&plan);
    assert_eq!((report.accepted, report.unanswered), (2, 1), "{}", report.text());
    assert_eq!(server.seen.lock().unwrap().messages.len(), 3, "one of them came twice");
}

#[test]
fn refusals_are_counted_by_their_text() {
    for pipelining in [false, true] {
        for chunking in [false, true] {
            let way = |plan: &mut Plan| {
                (plan.pipelining, plan.chunking, plan.recipients) = (pipelining, chunking, 2);
            };
            let all = Manners { rcpt: &["550 5.1.1 who?", "550 5.1.1 who?"], ..Manners::default() };
            counts(all, way, (0, 3, 0, 0), "550 5.1.1 who?");
            let some = Manners { rcpt: &["250 ok", "452 4.5.3 too many"], ..Manners::default() };
            counts(some, way, (0, 3, 0, 0), "452 4.5.3 too many");
            let none = Manners { content: Some("452 4.3.1 full"), ..Manners::default() };
            counts(none, way, (0, 3, 0, 0), "452 4.3.1 full");
            let silent = Manners { silent: true, ..Manners::default() };
            counts(silent, way, (0, 0, 0, 3), "after the content");
        }
    }
    let busy = Manners { greeting: Some("421 4.3.2 busy"), ..Manners::default() };
    counts(busy, |_| {}, (0, 0, 3, 0), "greeting: 421 4.3.2 busy");
}

#[test]
fn nobody_listens() {
    // An address that no other test binds: the port stays free.
    let at = TcpListener::bind("127.9.8.1:0").unwrap().local_addr().unwrap();
    let report = storm(&Plan { messages: Some(3), sessions: 3, ..Plan::new(at) });
    let text = report.text();
    assert_eq!((report.failed, report.connects_refused), (3, 3), "{text}");
    assert!(text.contains("\nlatency      -, from") && text.contains("\nprocessor    - us for each"), "{text}");
}

#[test]
fn the_ledger_has_a_line_for_each_acknowledged_message() {
    let path = std::env::temp_dir().join(format!("mailrace-storm-ledger-{}", std::process::id()));
    arrives(Manners::default(), |plan| plan.ledger = Some(path.clone()));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut seqs: Vec<u64> = Vec::new();
    for line in text.lines() {
        let [seq, id, time] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((id, time.len()), ("0123456789", 16), "{line}");
        seqs.push(seq.parse().unwrap());
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (0..50).collect::<Vec<_>>());
}

#[test]
fn the_time_ends_a_storm() {
    let (report, _) = arrives(Manners::default(), |plan| {
        (plan.messages, plan.time) = (None, Some(Duration::from_secs(4)));
    });
    assert!(report.accepted > 0 && report.elapsed < Duration::from_secs(60));
}

#[test]
fn lists_of_any_length_take_turns() {
    let receiver = Receiver::start(true, bench::receiver::Manners { chunking: true, ..Default::default() }).unwrap();
    let list = |name: &str, count: usize| (0..count).map(|n| format!("{name}{n}@x.example")).collect::<Vec<_>>();
    let lists = [list("a", 2_500), list("b", 1)];
    for chunking in [false, true] {
        let before = receiver.arrivals().len();
        let plan = Plan {
            messages: Some(3),
            sessions: 1,
            pipelining: true,
            chunking,
            lists: lists.to_vec().into(),
            ..Plan::new(receiver.at())
        };
        let report = run(&plan, &mut |_| {}).unwrap();
        assert_eq!((report.accepted, report.recipients), (3, 5_001), "{:?}", report.errors);
        let arrivals = receiver.arrivals().split_off(before);
        let seen: Vec<&Vec<String>> = arrivals.iter().map(|arrival| &arrival.recipients).collect();
        assert_eq!(seen, [&lists[0], &lists[1], &lists[0]]);
        assert!(arrivals.iter().all(|arrival| arrival.what.is_ok()));
    }
}

#[test]
fn a_refusal_in_the_middle_of_a_long_list_ends_the_transaction() {
    let mut answers = vec!["250 ok"; 1_200];
    answers.push("550 no");
    let server = Server::start(Manners { rcpt: answers.leak(), ..Manners::default() });
    let list: Vec<String> = (0..5_000).map(|n| format!("u{n}@x.example")).collect();
    let plan = Plan { messages: Some(1), sessions: 1, pipelining: true, lists: vec![list].into(), ..server.plan() };
    let report = run(&plan, &mut |_| {}).unwrap();
    assert_eq!((report.accepted, report.refused), (0, 1));
    assert_eq!(report.errors, [("550 no".to_owned(), 1)]);
    assert!(server.seen.lock().unwrap().messages.is_empty());
}
