//! The start: its messages when it fails, and the sockets and rights that root and systemd give it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use testkit::client::greeted;
use testkit::harness::{SOON, Server, Setup, failed, program, words};

#[test]
fn mistakes_in_the_configuration() {
    for (key, value, parts) in [
        ("message.sizemax", "5", ["message.sizemax", "message.size_max"]),
        ("message.size_max", "\"5 apples\"", ["message.size_max", "5 apples"]),
        ("tls.certificate", "\"/nowhere/cert.pem\"", ["tls.certificate", "tls.key"]),
        ("dns.servers", "[\"nowhere\"]", ["dns.servers", "nowhere"]),
    ] {
        let setup = Setup::new().set(key, value);
        let (status, said) = setup.fails();
        assert_eq!(status, Some(78), "{said}");
        assert!(said.contains("mailrace.toml:"), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!setup.path("spool").exists(), "nothing was touched");
    }
    let mut command = program();
    command.args(["serve", "--config", "/nowhere/mailrace.toml"]);
    let (status, said) = failed(command);
    assert!(status == Some(78) && said.contains("/nowhere/mailrace.toml: there is no such file"), "{status:?} {said}");
    let mut command = program();
    command.args(["serve", "--set", "frob=1"]);
    let (status, said) = failed(command);
    assert!(status == Some(78) && said.contains("frob"), "{status:?} {said}");
}

#[test]
fn files_that_are_not_there() {
    let setup = Setup::new().set("tls.certificate", "\"/nowhere/c.pem\"").set("tls.key", "\"/nowhere/k.pem\"");
    let (status, said) = setup.fails();
    assert!(status == Some(78) && said.contains("/nowhere/c.pem"), "{status:?} {said}");
    let setup = Setup::new().set("auth.file", "\"/nowhere/users\"").set("auth.without_tls", "true");
    let (status, said) = setup.fails();
    assert!(status == Some(78) && said.contains("/nowhere/users"), "{status:?} {said}");
}

#[test]
fn one_spool_has_one_server() {
    let server = Setup::new().start();
    let control = server.setup.path("other-control");
    let second = Setup::new()
        .set("spool.path", format!("{:?}", server.setup.path("spool")))
        .set("control.path", format!("{control:?}"));
    let (status, said) = second.fails();
    assert_eq!(status, Some(75), "{said}");
    assert!(said.contains("spool") && said.contains("in use"), "{said}");
    assert!(!control.exists(), "its control socket is gone");
    greeted(server.address()).message(b"hi\r\n");
}

#[test]
fn one_port_and_one_control_socket_have_one_server() {
    let server = Setup::new().start();
    let address = server.address();
    let second = Setup::new().set("listen", format!("[{{address = \"{address}\"}}]"));
    let (status, said) = second.fails();
    assert_eq!(status, Some(69), "{said}");
    assert!(
        said.contains(&format!("cannot listen on {address}: mailrace, pid {}, listens there", server.pid())),
        "{said}"
    );
    let second = Setup::new().set("control.path", format!("{:?}", server.setup.path("control")));
    let (status, said) = second.fails();
    assert_eq!(status, Some(75), "{said}");
    assert!(said.contains("control"), "{said}");
    assert!(server.control(&["status"], b"").status.success(), "the first is not disturbed");
}

#[test]
fn a_spool_that_is_none() {
    let setup = Setup::new();
    std::fs::write(setup.path("spool"), "a file").expect("written");
    let (status, said) = setup.fails();
    assert!(status.is_some_and(|status| status >= 64) && said.contains("spool"), "{status:?} {said}");
}

#[test]
fn root_becomes_the_user_that_is_configured() {
    if !os::machine::is_root() {
        return;
    }
    // The user must reach the spool.
    let setup = Setup::new().set("server.user", "\"nobody\"");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(setup.dir.path(), permissions).expect("set");
    let server = setup.start();
    let status = testkit::harness::read(format!("/proc/{}/status", server.pid()).as_ref());
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
        line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let uids = field("Uid:");
    assert!(uids.iter().all(|uid| uid != "0" && *uid == uids[0]), "{uids:?}");
    assert!(field("Gid:").iter().all(|gid| gid != "0"));
    assert_eq!(field("CapEff:"), ["0000000000000000"]);
    assert_eq!(field("CapBnd:").len() + field("NoNewPrivs:").len(), 2);
    greeted(server.address()).message(b"hi\r\n");
    assert!(server.control(&["reload"], b"").status.success());
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");

    let (status, said) = Setup::new().set("server.user", "\"no-such-user\"").fails();
    assert!(status == Some(78) && said.contains("server.user") && said.contains("no-such-user"), "{status:?} {said}");
}

#[test]
fn sockets_and_reports_of_systemd() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = socket.local_addr().expect("bound");
    let setup = Setup::new().set("listen", format!("[{{address = \"{address}\"}}]"));
    let notify = UnixDatagram::bind(setup.path("notify")).expect("bound");
    // Read all the time: a datagram to a full socket is lost.
    let (teller, told) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 1_000];
        while let Ok(size) = notify.recv(&mut bytes) {
            drop(teller.send(String::from_utf8_lossy(&bytes[..size]).into_owned()));
        }
    });
    // All up to one that begins so, that one last.
    let reports = |begin: &str| {
        let mut seen: Vec<String> = Vec::new();
        while !seen.last().is_some_and(|last| last.starts_with(begin)) {
            assert!(seen.len() < 100, "no {begin:?} beside the signs of life: {seen:?}");
            seen.push(told.recv_timeout(SOON).expect("a report"));
        }
        seen
    };
    let serve = setup.command();
    let mut command = Command::new("sh");
    // Standard input is the socket; it becomes descriptor 3 of a process whose number is known only to itself.
    command.arg("-c").arg("LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 0</dev/null").arg("sh").args(words(&serve));
    command.stdin(Stdio::from(OwnedFd::from(socket))).env("NOTIFY_SOCKET", setup.path("notify"));
    command.env("WATCHDOG_USEC", "2000000");
    let server = Server::start(setup, command);
    assert_eq!(server.address(), address);
    let ready = reports("READY=1\n");
    assert!(
        ready.last().is_some_and(|last| last.contains(&format!("STATUS=accepting mail on {address}"))),
        "{ready:?}"
    );
    assert!(ready.iter().rev().skip(1).all(|early| early == "WATCHDOG=1\n"), "{ready:?}");
    greeted(address).message(b"hi\r\n");
    reports("WATCHDOG=1\n");
    assert!(server.control(&["reload"], b"").status.success());
    let seen = reports("READY=1");
    assert!(seen.iter().any(|text| text.starts_with("RELOADING=1\nMONOTONIC_USEC=")), "{seen:?}");
    server.signal(rustix::process::Signal::TERM);
    reports("STOPPING=1\n");
    assert_eq!(server.ended().status.code(), Some(0));
}
