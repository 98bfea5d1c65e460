//! Servers with mail for their own machine.

use spool::disk::real::RealDisk;
use spool::{Change, Config, Spool, Store as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use testkit::client::greeted;
use testkit::harness::{Server, Setup, let_go, needs, write_program};

/// The user that every machine has and that owns nothing.
pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a test is skipped, which it prints: only root can deliver as another user.
pub(crate) fn is_skipped() -> bool {
    !needs::root()
}

pub(crate) fn give(path: &Path, uid: u32) {
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).expect("root can");
}

pub(crate) fn make_directory(setup: &Setup, name: &str, owner: u32) -> String {
    let path = setup.path(name);
    std::fs::create_dir(&path).expect("made");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    give(&path, owner);
    path.to_str().expect("a name").to_owned()
}

/// A server in a directory that others may look into.
pub(crate) fn setup() -> Setup {
    let setup = Setup::new().set("log.level", "10").set("dns.servers", "[\"127.0.0.1:1\"]");
    std::fs::set_permissions(setup.dir.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    setup.set("relay.to", "[\"x.test\"]").set("delivery.retry_first", "\"1h\"").set("delivery.retry_max", "\"1h\"")
}

/// The script that the programs of these tests are: it records its user and its arguments.
const KEEP: &str = "#!/bin/sh\n{ id -u; id -G; pwd; cat; } > \"$1\"\n";

/// A server with mailboxes in a directory of `owner`, and a directory of programs.
pub(crate) fn with_boxes(owner: u32) -> Setup {
    let setup = setup();
    let boxes = make_directory(&setup, "boxes", owner);
    let programs = make_directory(&setup, "programs", 0);
    let keep = setup.path("programs").join("keep");
    write_program(&keep, KEEP.as_bytes());
    setup
        .set("local.mailbox", format!("\"mbox:{boxes}/%u\""))
        .set("local.mailbox_group", "\"\"")
        .set("local.programs", format!("[\"{programs}\"]"))
        .set("local.files", format!("[\"{boxes}\"]"))
}

/// The user of a server.
#[derive(Clone, Copy)]
pub(crate) enum As {
    /// The user that starts it.
    Us,
    /// A user without rights.
    Nobody,
}

pub(crate) fn start(setup: Setup, who: As) -> Server {
    let mut command = setup.command();
    if let As::Nobody = who {
        command.uid(NOBODY).gid(NOBODY);
        std::fs::set_permissions(setup.path("mailrace.toml"), std::fs::Permissions::from_mode(0o644)).expect("set");
    }
    Server::start(setup, command)
}

/// Stores a message for each of these recipients and gives it its destination. Returns what a server can be started
/// from.
pub(crate) fn stored(setup: Setup, who: As, owner: u32, mail: &[(&str, String)], content: &[u8]) -> Setup {
    let mut server = start(setup, who);
    let mut client = greeted(server.address());
    for (recipient, _) in mail {
        client.expect("MAIL FROM:<ann@a.test>", "250 2.1.0");
        client.expect(&format!("RCPT TO:<{recipient}>"), "250 2.1.5");
        client.data(content);
    }
    client.quit();
    let setup = std::mem::replace(&mut server.setup, Setup::new());
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    let path = setup.path("spool");
    let config = Config { segment_bytes: 1 << 20, size_max: 32 << 20, free_min: 0, ..Config::new(&path) };
    let (spool, _) = Spool::open(config, Arc::new(RealDisk::new())).expect("a spool");
    for entry in spool.by_destination(b"x.test", None, 1_000) {
        let stored = spool.envelope(entry.id).expect("an envelope");
        let recipient = spool::envelope::decode_recipient(&stored.recipients[0].data).expect("a recipient");
        let name = recipient.address.to_string();
        let (_, destination) = mail.iter().find(|(one, _)| *one == name).expect("it was sent");
        let destination = Some(destination.clone().into_bytes());
        let change = Change { id: entry.id, recipient: entry.recipient, state: entry.state, destination };
        drop(spool.record(&[change]).expect("recorded"));
    }
    drop(spool);
    let_go(&path);
    if is_root() {
        let status = Command::new("chown").arg("-R").arg(format!("{owner}:{owner}")).arg(&path).status();
        assert!(status.expect("there is chown").success());
    }
    setup
}

/// Has all that waits tried now.
#[track_caller]
pub(crate) fn retry(server: &Server) {
    server.rests();
    assert!(server.control(&["queue", "retry", "--all"], b"").status.success());
}

/// A line of the log with all of these parts, wherever it is; waits for it.
#[track_caller]
pub(crate) fn line(server: &mut Server, parts: &[&str]) -> String {
    let is_it = |line: &String| parts.iter().all(|part| line.contains(part));
    if let Some(found) = server.log.iter().find(|line| is_it(line)) {
        return found.clone();
    }
    loop {
        let line = server.wait_log(parts[0]);
        if is_it(&line) {
            return line;
        }
    }
}
