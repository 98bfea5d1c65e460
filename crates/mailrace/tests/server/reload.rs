//! A reload is whole or not at all, and closes no connection.

use rustix::process::Signal;
use std::net::TcpStream;
use testkit::client::{connect, greeted};
use testkit::harness::{Server, Setup, poll, text};

/// Writes the file with one more setting.
fn change(server: &mut Server, key: &str, value: &str) {
    let setup = std::mem::replace(&mut server.setup, Setup::new());
    server.setup = setup.set(key, value);
    server.setup.write();
}

fn reload(server: &Server) -> (Option<i32>, String) {
    let output = server.control(&["reload"], b"");
    (output.status.code(), text(&output))
}

#[test]
fn changed_limits_hold_for_new_sessions() {
    let mut server = Setup::new().start();
    let mut old = greeted(server.address());
    assert!(old.command("EHLO a.test").contains("250-SIZE 10485760\n"));
    change(&mut server, "message.size_max", "\"2KiB\"");
    let (status, said) = reload(&server);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.starts_with("reloaded\n") && said.contains("message.size_max"), "{said}");
    server.wait_log("configuration reloaded: file=");
    // A session from before the reload keeps its offers.
    old.message(&b"123456789012345678\r\n".repeat(200));
    assert!(greeted(server.address()).command("EHLO a.test").contains("250-SIZE 2048\n"));
    let said =
        "reloaded, no setting changed\n  waiting mail keeps its times: nothing that says where it goes changed\n";
    assert_eq!(reload(&server), (Some(0), said.to_owned()));
    let line = server.wait_log("configuration reloaded: file=");
    assert!(line.ends_with(", waiting mail keeps its times"), "{line}");
}

#[test]
fn a_broken_file_changes_nothing() {
    let mut server = Setup::new().start();
    change(&mut server, "message.size_max", "\"2KiB\"");
    change(&mut server, "message.hop_max", "7");
    change(&mut server, "smtp.errors_max", "\"many\"");
    let (status, said) = reload(&server);
    assert_eq!(status, Some(78), "{said}");
    for part in ["2 errors", "mailrace.toml:", "message.hop_max", "message.hops_max", "smtp.errors_max"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let line = server.wait_log("configuration not reloaded, the old one stays: file=");
    assert!(line.contains("errors=2, ") && line.contains("hops_max") && line.contains("errors_max"), "{line}");
    assert!(greeted(server.address()).command("EHLO a.test").contains("250-SIZE 10485760\n"));
    // By signal too.
    server.signal(Signal::HUP);
    server.wait_log("configuration not reloaded, the old one stays: file=");
    assert!(greeted(server.address()).command("EHLO a.test").contains("250-SIZE 10485760\n"));
    server.setup.values_remove("message.hop_max");
    server.setup.values_remove("smtp.errors_max");
    server.setup.write();
    server.signal(Signal::HUP);
    server.wait_log("configuration reloaded: file=");
    assert!(greeted(server.address()).command("EHLO a.test").contains("250-SIZE 2048\n"));
    // One problem is one.
    change(&mut server, "message.hop_max", "7");
    // The one before may not be over yet: its line comes first.
    let said = poll("a reload goes on", || Some(reload(&server)).filter(|(status, _)| *status != Some(75))).1;
    assert!(said.contains("1 error in the configuration"), "{said}");
    std::fs::remove_file(server.setup.path("mailrace.toml")).expect("removed");
    let (status, said) = reload(&server);
    assert_eq!(status, Some(78), "{said}");
    assert!(said.contains("mailrace.toml: ") && said.contains("cannot be read"), "{said}");
}

#[test]
fn listeners_come_and_go() {
    let mut server = Setup::new().start();
    server.wait_log("listening: ");
    let first = server.address();
    let mut old = greeted(first);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("bound").port();
    // A port that is taken: nothing changes, and the message names its owner.
    change(&mut server, "listen", &format!("[{{address = \"127.0.0.1:{port}\"}}]"));
    let (status, said) = reload(&server);
    assert!(status == Some(78) && said.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{status:?} {said}");
    greeted(first).quit();

    drop(taken);
    let listen = format!("[{{address = \"127.0.0.1:0\"}}, {{address = \"127.0.0.1:{port}\", connections_max = 1}}]");
    change(&mut server, "listen", &listen);
    // A process that another test is just starting has our sockets until it is itself.
    poll("the port stays taken", || (reload(&server).0 == Some(0)).then_some(()));
    server.wait_log("listening: ");
    let second = ([127, 0, 0, 1], port).into();
    let mut new = greeted(second);
    assert!(connect(second).reply().starts_with("421 4.3.2 "), "its limit holds");

    change(&mut server, "listen", &format!("[{{address = \"127.0.0.1:{port}\"}}]"));
    assert_eq!(reload(&server).0, Some(0));
    poll("somebody still listens", || TcpStream::connect(first).is_err().then_some(()));
    // Sessions outlive their listener.
    old.message(b"old\r\n");
    new.message(b"new\r\n");
    greeted(second).quit();
    let status = text(&server.control(&["status"], b""));
    assert!(status.contains(&format!("listens      127.0.0.1:{port}\n")), "{status}");
    // And back again.
    change(&mut server, "listen", "[{address = \"127.0.0.1:0\"}]");
    assert_eq!(reload(&server).0, Some(0));
    let line = server.wait_log("listening: ");
    let address = line.split("address=").nth(1).and_then(|rest| rest.split(',').next()).expect("an address");
    greeted(address.parse().expect("an address")).quit();
}

#[test]
fn what_needs_a_restart_is_said() {
    let mut server = Setup::new().start();
    change(&mut server, "spool.size_max", "\"64MiB\"");
    let (status, said) = reload(&server);
    assert!(said.contains("spool.size_max") && said.contains("restart"), "{status:?} {said}");
}
