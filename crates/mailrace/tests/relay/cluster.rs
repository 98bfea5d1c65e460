//! Nodes of a cluster with real engines: the mail of a node that is killed with its engine goes on at another one.

use crate::hop::{Act, At, Hop, Manners};
use crate::world::{impatient, killed, reload, send, waiting};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::client::greeted;
use testkit::harness::{SOON, Server, Setup, poll, text};
use testkit::nats::{Nats, Options};

const ID: &str = "\"00112233445566778899aabbccddeeff\"";

/// A node that sends everything to this hop.
pub(crate) fn node(hop: &Hop, engines: &[Nats], number: usize) -> Setup {
    let own = &engines[number - 1];
    let others = engines.iter().filter(|other| other.port != own.port);
    let addresses: Vec<String> = std::iter::once(own).chain(others).map(|one| format!("{:?}", one.address())).collect();
    impatient()
        .set("hostname", format!("\"mx{number}.test\""))
        .set("route.smart_host", format!("[{:?}]", hop.name()))
        .set("cluster.id", ID)
        .set("cluster.node", number.to_string())
        .set("cluster.drain_grace", "\"2s\"")
        .set("cluster.engines", format!("[{}]", addresses.join(", ")))
        .set("cluster.monitor", format!("\"127.0.0.1:{}\"", own.monitor_port))
}

/// Three nodes and their engines, which see each other.
pub(crate) fn three(hop: &Hop) -> Option<(Vec<Nats>, Vec<Server>)> {
    let engines = Nats::cluster(3, &Options::default())?;
    let servers: Vec<Server> = (1..=3).map(|number| node(hop, &engines, number).start()).collect();
    for server in &servers {
        takes_copies(server);
    }
    servers.iter().for_each(sees_both_others);
    Some((engines, servers))
}

/// Waits until one of three nodes sees the others, and may write to both: from then on it has one holder for its mail.
pub(crate) fn sees_both_others(server: &Server) {
    poll("a node that sees both others", || {
        let status = server.whole_status();
        let nodes = status["cluster"]["nodes"].as_array()?.len();
        let streams = status["cluster"]["streams"].as_array()?.iter();
        (nodes == 2 && streams.filter(|stream| stream["state"] == "open").count() == 2).then_some(())
    });
}

/// Waits until the holders have all that the log of a node has: its mail as it is now, and the ends of deliveries.
pub(crate) fn holders_have_all(server: &Server) {
    poll("holders that have all", || {
        let status = server.whole_status();
        let has_all = |stream: &Value| stream["unstored_outcomes"] == 0 && stream["lag_ms"].is_null();
        status["cluster"]["streams"].as_array()?.iter().all(has_all).then_some(())
    });
}

/// Waits until a node finds a holder for its mail.
pub(crate) fn takes_copies(server: &Server) {
    poll("a node that copies mail", || reply_to(server, b"Subject: first\r\n\r\n").starts_with("250").then_some(()));
}

/// Sends a message; the reply to it.
pub(crate) fn reply_to(server: &Server, content: &[u8]) -> String {
    let mut client = greeted(server.address());
    client.envelope();
    client.expect("DATA", "354");
    client.send(content);
    client.send(b".\r\n");
    client.reply()
}

/// A next hop that defers mail to all but `now`.
pub(crate) fn deferring() -> Manners {
    Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<later") => Act::Say("451 4.2.0 not now"),
        _ => Act::Well,
    })
}

/// How often each message came, by its subject.
pub(crate) fn came(hop: &Hop) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for mail in hop.mails() {
        let text = mail.text();
        let subject = text.lines().find_map(|line| line.strip_prefix("Subject: ")).unwrap_or("none").to_owned();
        *count.entry(subject).or_default() += 1;
    }
    count
}

#[test]
fn mail_of_a_node_that_is_killed_with_its_engine_goes_on_whole_and_once() {
    let hop = Hop::new(deferring());
    let Some((mut engines, mut servers)) = three(&hop) else { return };
    let large = "0123456789abcdef\r\n".repeat(20_000);
    let mut sent = Vec::new();
    for number in 0..40 {
        let body = if number % 10 == 0 { large.as_str() } else { "short\r\n" };
        let content = format!("Subject: m{number}\r\n\r\n{body}");
        send(&servers[0], "a@client.test", &["later@x.test", "now@x.test"], content.as_bytes());
        sent.push((format!("m{number}"), content));
    }
    poll("all deliveries that can be", || {
        let came = came(&hop);
        let is_there = sent.iter().all(|(subject, _)| came.contains_key(subject));
        (is_there && waiting(&servers[0]) == 40).then_some(())
    });
    // Their ends reach the holders within a tenth of a second, and are due at least every few seconds.
    testkit::harness::pause(std::time::Duration::from_secs(1));
    holders_have_all(&servers[0]);
    servers[0].kill();
    engines[0].kill();
    hop.behave(Manners::default());
    poll("the mail of the dead node", || {
        let came = came(&hop);
        sent.iter().all(|(subject, _)| came.get(subject) == Some(&2)).then_some(())
    });
    for mail in hop.mails() {
        let text = mail.text();
        if let Some((_, content)) = sent.iter().find(|(subject, _)| text.contains(&format!("Subject: {subject}\r\n"))) {
            assert!(text.replace("\r\n..", "\r\n.").contains(content.as_str()), "{}", &text[..text.len().min(400)]);
        }
    }
    let log = |server: &mut Server| {
        server.pass_over();
        server.log.iter().filter(|line| line.contains(": adopted=")).cloned().collect::<Vec<_>>()
    };
    let adopted = poll("a line for each message", || {
        let lines: Vec<String> = servers.iter_mut().skip(1).flat_map(log).collect();
        (lines.len() >= 40).then_some(lines)
    });
    assert_eq!(adopted.len(), 40, "{adopted:#?}");
    assert!(adopted.iter().all(|line| line.contains("duplicate=possible")), "{adopted:#?}");

    // The node comes back and leaves alone what the others have delivered.
    engines[0].restart();
    let dead = servers.remove(0);
    let back = killed(dead).start();
    poll("an empty queue", || (waiting(&back) == 0).then_some(()));
    for server in &servers {
        poll("an empty queue", || (waiting(server) == 0).then_some(()));
    }
    let twice: Vec<_> = came(&hop).into_iter().filter(|(name, count)| name.starts_with('m') && *count != 2).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn a_message_that_was_held_after_its_250_stays_held_at_the_node_that_adopts_it() {
    let hop = Hop::new(deferring());
    let Some((mut engines, mut servers)) = three(&hop) else { return };
    let mut ids = Vec::new();
    for number in 0..3 {
        let content = format!("Subject: m{number}\r\n\r\nbody\r\n");
        ids.push(send(&servers[0], "a@client.test", &["later@x.test"], content.as_bytes()));
    }
    let held = ids.remove(1);
    poll("the message is not held", || {
        let output = servers[0].control(&["queue", "hold", &held], b"");
        assert!(output.status.success(), "{}", text(&output));
        // The outcome of an attempt that is recorded just then replaces the hold.
        servers[0].rests();
        (servers[0].status("/queue/held") == 1).then_some(())
    });
    // The copy is written again within moments.
    testkit::harness::pause(std::time::Duration::from_secs(2));
    holders_have_all(&servers[0]);
    servers[0].kill();
    engines[0].kill();
    hop.behave(Manners::default());
    poll("the mail that is not held", || {
        (came(&hop).contains_key("m0") && came(&hop).contains_key("m2")).then_some(())
    });
    let left = |server: &Server| server.status("/queue/held");
    let at = poll("one message that is held", || {
        let counts: Vec<u64> = servers.iter().skip(1).map(left).collect();
        (counts.iter().sum::<u64>() == 1).then(|| 1 + counts.iter().position(|count| *count == 1).unwrap_or(0))
    });
    let listed = servers[at].control(&["queue", "list", "--json"], b"");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("held") && !came(&hop).contains_key("m1"), "{listed}");
    let output = servers[at].control(&["queue", "release", "--all"], b"");
    assert!(output.status.success(), "{}", text(&output));
    poll("the released message", || came(&hop).contains_key("m1").then_some(()));
}

/// The first line that a new client gets, and nothing if it is not let in.
fn greeting(server: &Server) -> String {
    let Ok(stream) = TcpStream::connect(server.address()) else { return String::new() };
    stream.set_read_timeout(Some(SOON)).ok();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok();
    line
}

#[test]
fn a_node_that_is_drained_ends_what_is_open_and_answers_new_sessions_with_421() {
    let hop = Hop::new(deferring());
    let Some(engines) = Nats::cluster(3, &Options::default()) else { return };
    // Longer than a busy machine takes to let a new session in.
    let patient = |number| node(&hop, &engines, number).set("cluster.drain_grace", "\"10s\"").start();
    let mut servers: Vec<Server> = (1..=3).map(patient).collect();
    servers.iter().for_each(takes_copies);
    let mut open = greeted(servers[0].address());
    open.envelope();
    open.expect("DATA", "354");
    let output = servers[0].control(&["cluster", "drain"], b"");
    assert!(output.status.success(), "{}", text(&output));
    poll("a node that is draining", || (servers[0].whole_status()["cluster"]["state"] == "draining").then_some(()));
    assert!(greeting(&servers[0]).starts_with("220"), "within cluster.drain_grace");
    poll("a refusal of new sessions", || greeting(&servers[0]).starts_with("421 4.3.2 ").then_some(()));
    open.send(b"Subject: open\r\n\r\nbody\r\n.\r\n");
    let reply = open.reply();
    assert!(reply.starts_with("250"), "{reply}");
    let ended = servers.remove(0).ended();
    assert!(ended.status.success(), "{ended:?}");
    poll("the message of the open session", || came(&hop).contains_key("open").then_some(()));
}

#[test]
fn nodes_keep_the_limits_of_a_next_hop_together() {
    const CONNECTIONS: usize = 4;
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let hop = Hop::new(Manners::default().script({
        let (open, most) = (Arc::clone(&open), Arc::clone(&most));
        move |moment| match moment.at {
            At::Mail => {
                most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                Act::Well
            }
            At::Dot => {
                testkit::harness::pause(std::time::Duration::from_millis(150));
                open.fetch_sub(1, Ordering::SeqCst);
                Act::Well
            }
            _ => Act::Well,
        }
    }));
    let Some(engines) = Nats::cluster(3, &Options::default()) else { return };
    let limited = |number| {
        let rule = format!("[{{ match = [\"hop:{}\"], connections = {CONNECTIONS} }}]", hop.name());
        node(&hop, &engines, number).set("destination", rule).set("delivery.mode", "\"queue\"").start()
    };
    let mut servers: Vec<Server> = (1..=2).map(limited).collect();
    servers.iter().for_each(takes_copies);
    for number in 0..120 {
        let content = format!("Subject: m{number}\r\n\r\nbody\r\n");
        send(&servers[number % 2], "a@client.test", &["now@x.test"], content.as_bytes());
    }
    // Mail that comes slowly needs no more than a part of the limit, so all of it is there when it begins to go.
    for server in &mut servers {
        reload(server, "delivery.mode", "\"background\"");
    }
    poll("all mail", || (came(&hop).len() >= 120).then_some(()));
    let most = most.load(Ordering::SeqCst);
    assert!(most <= CONNECTIONS, "{most} transactions at a time");
    assert!(most >= CONNECTIONS - 1, "{most} transactions at a time: a part of the limit was not used");
    // Both nodes had a part of it.
    for server in servers {
        let log = server.stop().log;
        assert!(log.iter().any(|line| line.contains("stat=Sent")), "{log:#?}");
    }
}

#[test]
fn a_node_that_is_drained_leaves_its_mail_to_the_others_which_deliver_it_once() {
    let hop = Hop::new(deferring());
    let Some((_engines, mut servers)) = three(&hop) else { return };
    for number in 0..20 {
        let content = format!("Subject: m{number}\r\n\r\nbody\r\n");
        send(&servers[0], "a@client.test", &["later@x.test", "now@x.test"], content.as_bytes());
    }
    poll("all deliveries that can be", || (came(&hop).len() >= 20).then_some(()));
    let output = servers[0].control(&["cluster", "drain"], b"");
    assert!(output.status.success(), "{}", text(&output));
    let ended = servers.remove(0).ended();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.log.iter().any(|line| line.contains("messages are with the other nodes")), "{:#?}", ended.log);
    hop.behave(Manners::default());
    poll("the mail of the node that left", || {
        let came = came(&hop);
        (0..20).all(|number| came.get(&format!("m{number}")).is_some_and(|times| *times >= 2)).then_some(())
    });
    let mut adopted = 0;
    for server in servers {
        poll("an empty queue", || (waiting(&server) == 0).then_some(()));
        let log = server.stop().log;
        let lines: Vec<&String> = log.iter().filter(|line| line.contains(": adopted=")).collect();
        assert!(lines.iter().all(|line| line.contains("duplicate=no")), "{lines:#?}");
        adopted += lines.len();
    }
    assert_eq!(adopted, 20);
    assert!(came(&hop).iter().all(|(name, times)| !name.starts_with('m') || *times == 2), "{:?}", came(&hop));
}

#[test]
fn without_another_node_mail_is_refused_or_taken_alone_as_the_listener_says() {
    let hop = Hop::good();
    let Some(engines) = Nats::start(&Options::default()).map(|one| vec![one]) else { return };
    let refusing = node(&hop, &engines, 1).start();
    let reply = reply_to(&refusing, b"Subject: none\r\n\r\n");
    assert_eq!(reply, "451 4.3.0 No second copy of the message can be stored now, try again later");
    poll("the message is gone", || (refusing.status("/queue/messages") == 0).then_some(()));
    let setup = refusing.stop_for_setup();
    let taking = setup.listen("on_no_replica = \"accept_local\"").start();
    send(&taking, "a@client.test", &["b@x.test"], b"Subject: alone\r\n\r\n");
    poll("the message", || (hop.count() == 1).then_some(()));
    assert_eq!(came(&hop).keys().cloned().collect::<Vec<_>>(), ["alone"]);
}

#[test]
fn a_node_starts_and_delivers_without_its_engine() {
    let hop = Hop::good();
    let Some(mut engines) = Nats::start(&Options::default()).map(|one| vec![one]) else { return };
    let setup = node(&hop, &engines, 1).listen("on_no_replica = \"accept_local\"").set("delivery.mode", "\"queue\"");
    let server = setup.start();
    send(&server, "a@client.test", &["b@x.test"], b"Subject: before\r\n\r\n");
    let setup = server.stop_for_setup();
    engines[0].kill();
    let server = setup.set("delivery.mode", "\"background\"").start();
    poll("mail without copies", || (hop.count() == 1).then_some(()));
    send(&server, "a@client.test", &["b@x.test"], b"Subject: after\r\n\r\n");
    poll("mail without an engine", || (hop.count() == 2).then_some(()));
}
