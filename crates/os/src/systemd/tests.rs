//! Reports to a manager that is a datagram socket, and variables as a table. The sockets of a unit need a process of
//! its own: `tests/privileges.rs`.

use super::*;
use std::cell::Cell;
use std::time::Duration;

/// A manager's end and the way to it.
fn manager(watchdog: Option<Duration>) -> (tempfile::TempDir, UnixDatagram, Manager) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let passed = Passed::read(|name| (name == "NOTIFY_SOCKET").then(|| path.clone().into_os_string()), 1);
    let manager = Manager { watchdog, ..passed.manager };
    (dir, socket, manager)
}

fn heard(socket: &UnixDatagram) -> Vec<String> {
    let mut buffer = [0; 1024];
    std::iter::from_fn(|| {
        socket.recv(&mut buffer).ok().map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned())
    })
    .collect()
}

#[test]
fn a_life_as_the_manager_hears_it() {
    let (_dir, socket, manager) = manager(None);
    manager.ready("127.0.0.1:2525");
    manager.reloading();
    manager.status("12 connections\nREADY=1");
    manager.stopping("2 transactions open");
    manager.extend(Duration::from_secs(30));
    let heard = heard(&socket);
    let [ready, reloading, status, stopping, extended] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!(ready, "READY=1\nSTATUS=127.0.0.1:2525\n");
    let us = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().trim_end();
    assert!(us.parse::<u64>().unwrap() > 0);
    assert_eq!(status, "STATUS=12 connections READY=1\n");
    assert_eq!(stopping, "STOPPING=1\nSTATUS=2 transactions open\n");
    assert_eq!(extended, "EXTEND_TIMEOUT_USEC=30000000\n");
}

#[test]
fn a_manager_that_is_gone_disturbs_nobody() {
    let (dir, socket, manager) = manager(None);
    drop(socket);
    drop(dir);
    manager.ready("");
    Manager::default().ready("");
}

#[test]
fn a_name_without_a_file() {
    let name = format!("@mailrace-test-{}", std::process::id());
    let address = address_of(OsStr::new(&name)).unwrap();
    let Ok(socket) = UnixDatagram::bind_addr(&address) else {
        return println!("skipped: no abstract names on this machine");
    };
    socket.set_nonblocking(true).unwrap();
    Manager::at(address, None).status("here");
    assert_eq!(heard(&socket), ["STATUS=here\n"]);
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_is_fed_while_the_server_lives() {
    let (_dir, socket, manager) = manager(Some(Duration::from_secs(30)));
    let alive = Cell::new(true);
    let fed = |after: u64| {
        let (manager, alive) = (&manager, &alive);
        tokio::time::timeout(Duration::from_secs(after), manager.watch(|| alive.get()))
    };
    assert!(fed(46).await.is_err());
    assert_eq!(heard(&socket), ["WATCHDOG=1\n"; 4], "at 0, 15, 30 and 45 seconds");
    alive.set(false);
    assert!(fed(100).await.is_err());
    assert_eq!(heard(&socket), [""; 0]);
    assert!(tokio::time::timeout(Duration::from_secs(1), Manager::default().watch(|| true)).await.is_ok());
}

#[test]
fn variables_for_others_are_not_for_us() {
    let read = |pairs: &[(&str, &str)]| {
        Passed::read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()), 7)
    };
    let period = |pairs| read(pairs).manager.watchdog;
    assert_eq!(read(&[("LISTEN_PID", "7"), ("LISTEN_FDS", "2")]).count, 2);
    assert_eq!(read(&[("LISTEN_PID", "8"), ("LISTEN_FDS", "2")]).count, 0);
    assert_eq!(read(&[("LISTEN_FDS", "2")]).count, 0);
    assert_eq!(read(&[("LISTEN_PID", "7"), ("LISTEN_FDS", "-1")]).count, 0);
    assert_eq!(read(&[("LISTEN_PID", "7"), ("LISTEN_FDS", "2147483647")]).count, PASSED_MAX);
    assert_eq!(period(&[("WATCHDOG_USEC", "30000000")]), Some(Duration::from_secs(30)));
    assert_eq!(period(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "7")]), Some(Duration::from_secs(30)));
    assert_eq!(period(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "8")]), None);
    assert_eq!(period(&[("WATCHDOG_USEC", "0")]), None);
    assert!(read(&[("NOTIFY_SOCKET", "relative")]).manager.address.is_none());
}
