//! Servers with next hops, and their state at the end.

use crate::hop::Hop;
use testkit::client::{Plain, greeted};
use testkit::harness::{Ended, Server, Setup, letters, poll, text};

/// A server that sends everything to these hosts, in this order, and repeats after a second.
pub(crate) fn relay(hops: &[&Hop]) -> Setup {
    let names: Vec<String> = hops.iter().map(|hop| format!("{:?}", hop.name())).collect();
    impatient().set("route.smart_host", format!("[{}]", names.join(", ")))
}

/// A server that sends mail to the domains of its recipients, at the port of these hops. Without a DNS: domains are
/// address literals.
pub(crate) fn by_literal(hops: &[Hop]) -> Setup {
    let port = hops.first().expect("there is one").address.port();
    impatient().set("route.port", port.to_string())
}

/// The shortest pauses there are.
pub(crate) fn impatient() -> Setup {
    let second = "\"1s\"";
    Setup::new()
        .set("delivery.mode", "\"background\"")
        .set("delivery.retry_first", second)
        .set("delivery.retry_max", second)
        .set("delivery.connect_time", "\"5s\"")
        .set("log.level", "10")
        .set("dns.servers", "[\"127.0.0.1:1\"]")
}

/// With this pause before each attempt but the first.
pub(crate) fn retrying(setup: Setup, pause: &str) -> Setup {
    let pause = format!("{pause:?}");
    setup.set("delivery.retry_first", pause.as_str()).set("delivery.retry_max", pause.as_str())
}

/// Sends a message; its queue id.
#[track_caller]
pub(crate) fn send(server: &Server, from: &str, to: &[&str], content: &[u8]) -> String {
    let mut client = greeted(server.address());
    let id = send_over(&mut client, from, to, content);
    client.quit();
    id
}

/// The same over a connection. `from` and `to` are addresses, or the whole rest of the command.
#[track_caller]
pub(crate) fn send_over(client: &mut Plain, from: &str, to: &[&str], content: &[u8]) -> String {
    let path = |text: &str| if text.starts_with('<') { text.to_owned() } else { format!("<{text}>") };
    client.expect(&format!("MAIL FROM:{}", path(from)), "250 2.1.0");
    for recipient in to {
        client.expect(&format!("RCPT TO:{}", path(recipient)), "250 2.1.5");
    }
    client.data(content)
}

/// Ends the server and expects that its spool is empty: everything was delivered or reported.
#[track_caller]
pub(crate) fn ends_empty(server: Server) -> Ended {
    let (path, _dir) = (server.setup.path("spool"), server.setup.dir.clone());
    poll("there is still mail in the queue", || (waiting(&server) == 0).then_some(()));
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    let left: Vec<String> =
        letters(&path).iter().map(|letter| format!("{} {:?}", letter.id, letter.envelope.recipients)).collect();
    assert!(left.is_empty(), "still in the spool: {left:#?}\n{:#?}", ended.log);
    ended
}

/// Recipients that wait or are under way.
#[track_caller]
pub(crate) fn waiting(server: &Server) -> u64 {
    server.status("/queue/waiting")
}

/// Kills the server, and returns its setup to start again.
pub(crate) fn killed(mut server: Server) -> Setup {
    server.kill();
    std::mem::replace(&mut server.setup, Setup::new())
}

/// Ends the server in good order, and returns its setup to start again.
#[track_caller]
pub(crate) fn stopped(mut server: Server) -> (Ended, Setup) {
    let setup = std::mem::replace(&mut server.setup, Setup::new());
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    (ended, setup)
}

/// Changes the configuration and has the server read it.
#[track_caller]
pub(crate) fn reload(server: &mut Server, key: &str, value: &str) {
    let setup = std::mem::replace(&mut server.setup, Setup::new());
    server.setup = setup.set(key, value);
    server.setup.write();
    let output = server.control(&["reload"], b"");
    assert!(output.status.success(), "{}", text(&output));
}

/// Waits for a line of the log that has all of these parts; lines before it are read over.
#[track_caller]
pub(crate) fn wait_line(server: &mut Server, parts: &[&str]) -> String {
    let (first, others) = parts.split_first().expect("there is one");
    loop {
        let line = server.wait_log(first);
        if others.iter().all(|part| line.contains(part)) {
            return line;
        }
    }
}

/// Lines of the log with all of these parts.
pub(crate) fn lines<'a>(log: &'a [String], parts: &[&str]) -> Vec<&'a str> {
    log.iter().filter(|line| parts.iter().all(|part| line.contains(part))).map(String::as_str).collect()
}

/// A line of the log with all of these parts, wherever it is; waits for it.
#[track_caller]
pub(crate) fn any_line(server: &mut Server, parts: &[&str]) -> String {
    let is_it = |line: &String| parts.iter().all(|part| line.contains(part));
    let found = server.log.iter().find(|line| is_it(line)).cloned();
    found.unwrap_or_else(|| wait_line(server, parts))
}
