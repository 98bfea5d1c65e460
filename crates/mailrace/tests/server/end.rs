//! The end: open transactions finish, nothing that was accepted is lost, and it does not take long.

use rustix::process::Signal;
use std::net::TcpStream;
use testkit::client::{connect, greeted, id};
use testkit::harness::{Setup, letters, poll};

#[test]
fn sigterm_lets_transactions_finish() {
    let mut server = Setup::new().start();
    let address = server.address();
    let mut idle = greeted(address);
    let mut in_data = greeted(address);
    in_data.envelope();
    in_data.expect("DATA", "354");
    in_data.send(b"half\r\n");
    let mut in_envelope = greeted(address);
    in_envelope.envelope();
    server.signal(Signal::TERM);
    let reply = idle.reply();
    assert!(reply.starts_with("421 4.3.2 mx.test "), "{reply}");
    assert_eq!(idle.reply(), "closed");
    server.wait_log("stopping daemon: why=SIGTERM, connections=3");
    // The line is written before the port is closed.
    poll("somebody still listens", || TcpStream::connect(address).is_err().then_some(()));
    in_data.send(b"whole\r\n.\r\n");
    let first = id(&in_data.reply());
    assert!(in_data.reply().starts_with("421 4.3.2 "));
    in_envelope.expect("DATA", "354");
    in_envelope.send(b"too\r\n.\r\nMAIL FROM:<a@b.test>\r\n");
    let second = id(&in_envelope.reply());
    assert!(in_envelope.reply().starts_with("421 4.3.2 "));
    let path = server.setup.path("spool");
    let (control, _dir) = (server.setup.path("control"), server.setup.dir.clone());
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(
        ended.log.last().is_some_and(|line| line.ends_with("stopped daemon: cut_off=0, deliveries_cut_off=0")),
        "{ended:?}"
    );
    let stored: Vec<String> = letters(&path).iter().map(|letter| letter.id.to_string()).collect();
    assert_eq!(stored, [first, second]);
    assert!(!control.exists(), "the control socket is gone");
}

#[test]
fn the_grace_has_an_end() {
    let server = Setup::new().set("server.shutdown_grace", "\"0s\"").start();
    let mut client = greeted(server.address());
    client.envelope();
    client.expect("DATA", "354");
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0));
    assert!(
        ended.log.last().is_some_and(|line| line.ends_with("stopped daemon: cut_off=1, deliveries_cut_off=0")),
        "{ended:?}"
    );
    assert_eq!(client.reply(), "closed");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Setup::new().set("server.shutdown_grace", "\"1h\"").start();
    let mut client = greeted(server.address());
    client.envelope();
    server.signal(Signal::TERM);
    server.wait_log("stopping daemon");
    client.expect("NOOP", "250");
    server.signal(Signal::INT);
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.log.last().is_some_and(|line| line.ends_with("cut_off=1, deliveries_cut_off=0")), "{ended:?}");
}

#[test]
fn the_status_is_told_until_the_end() {
    let mut server = Setup::new().set("server.shutdown_grace", "\"1h\"").start();
    let mut client = greeted(server.address());
    client.envelope();
    server.signal(Signal::TERM);
    server.wait_log("stopping daemon");
    let output = server.control(&["status"], b"");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains(", stopping\n"), "{output:?}");
    let left = text.split_once("  STOPPING     1 session and 0 deliveries under way; ").map(|(_, rest)| rest);
    let seconds = left.and_then(|rest| rest.split_once(" s at most")).and_then(|(left, _)| left.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| (3_000..=3_600).contains(&seconds)), "{text}");
    let refused = server.control(&["queue", "list"], b"");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("going down"), "{refused:?}");
    client.expect("QUIT", "221");
    let control = server.setup.path("control");
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(!control.exists(), "the control socket is gone");
}

/// Clients that are before their greeting have nothing to lose and are not waited for.
#[test]
fn who_is_not_greeted_yet_holds_nothing_up() {
    let setup = Setup::new().set("server.shutdown_grace", "\"1h\"").set("relay.from", "[\"192.0.2.0/24\"]");
    let listen = "[{address = \"127.0.0.1:0\"}, {address = \"127.0.0.2:0\", proxy_protocol = [\"127.0.0.0/8\"]}, \
                   {address = \"127.0.0.3:0\", tls = \"implicit\"}]";
    let setup = crate::tls::with_certificate(setup).set("listen", listen).set("log.level", "20");
    let setup = setup.set("accept.greet_pause_for", "[{networks = [\"127.0.0.0/8\"], pause = \"300s\"}]");
    let mut server = setup.start();
    let clients: Vec<_> = server.addresses.iter().map(|address| connect(*address)).collect();
    // All three are counted before the signal comes.
    poll("not all are counted", || (server.status("/connections/open") == 3).then_some(()));
    server.signal(Signal::TERM);
    server.wait_log("stopping daemon");
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0));
    assert!(ended.log.last().is_some_and(|line| line.ends_with("cut_off=0, deliveries_cut_off=0")), "{ended:?}");
    for (client, reply) in clients.into_iter().zip(["421 4.3.2 ", "421 4.3.2 ", "closed"]) {
        let said = { client }.reply();
        assert!(said.starts_with(reply), "{said}");
    }
}
