//! Processes that have become users and are kept: their rights, the attacks of their user, and the deliveries that an
//! attack affects.

use crate::office::{As, NOBODY, is_skipped, line, retry, start, stored, with_boxes};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use testkit::harness::{Server, poll};
use testkit::lock_holder::holder;

/// Another user that every Debian has.
const GAMES: u32 = 5;

/// The processes that deliver as a user for a server.
pub(crate) fn workers_of(server: &Server, uid: u32) -> Vec<Pid> {
    let parent_of = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:\t")?.parse::<i32>().ok())
    };
    let ours = i32::try_from(server.pid()).expect("a number");
    let is_it = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let owner = std::fs::metadata(format!("/proc/{pid}/cwd")).is_ok();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        owner
            && line.windows(21).any(|part| part == b"local-delivery\0worker")
            && status.lines().any(|line| line == format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}"))
            && parent_of(*pid).and_then(parent_of) == Some(ours)
    };
    let all = std::fs::read_dir("/proc").expect("proc").filter_map(Result::ok);
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_it).filter_map(Pid::from_raw).collect()
}

fn count(path: &std::path::Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.matches("\nSubject: x\n").count())
}

/// A server with so much mail for two users, which it does not deliver before it is told to.
fn waiting(kind: &str, messages: usize) -> (Server, PathBuf) {
    let setup = with_boxes(NOBODY).set("server.user", "\"daemon\"");
    let boxes = setup.path("boxes");
    std::fs::set_permissions(&boxes, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("set");
    let setup = setup.set("local.mailbox", format!("\"{kind}:{}/%u\"", boxes.display()));
    let setup = setup.set("local.domains", "[\"local.test\"]");
    let mut mail = Vec::new();
    for _ in 0..messages {
        mail.extend([("nobody@x.test", "local:".to_owned()), ("games@x.test", "local:".to_owned())]);
    }
    (start(stored(setup, As::Us, 1, &mail, b"Subject: x\r\n\r\nx\r\n"), As::Us), boxes)
}

#[test]
fn a_worker_serves_its_user_and_is_nobody_else() {
    if is_skipped() {
        return;
    }
    let (mut server, boxes) = waiting("mbox", 20);
    retry(&server);
    for _ in 0..40 {
        server.wait_log("stat=Sent");
    }
    let (ours, theirs) = (workers_of(&server, NOBODY), workers_of(&server, GAMES));
    assert!(ours.len() == 1 && theirs.len() == 1, "one each: {ours:?} {theirs:?}");
    for (name, uid) in [("nobody", NOBODY), ("games", GAMES)] {
        let found = std::fs::metadata(boxes.join(name)).expect("a mailbox");
        assert_eq!((found.uid(), count(&boxes.join(name))), (uid, 20), "{name}");
    }
    let pid = ours[0].as_raw_nonzero().to_string();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    for wanted in [format!("Gid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}"), "CapPrm:\t0000000000000000".to_owned()] {
        assert!(status.lines().any(|line| line == wanted), "{wanted} in {status}");
    }
    // Its user may not look into it: neither into its memory nor its open files.
    let reads = |pid: &str, file: &str| {
        let mut command = Command::new("ls");
        command.arg("-l").arg(format!("/proc/{pid}/{file}/")).uid(NOBODY).gid(NOBODY);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("there is ls").success()
    };
    assert!(!reads(&pid, "fd") && !reads(&pid, "map_files"));
    // The control: a process of his own.
    let mut own = Command::new("sleep").arg("60").uid(NOBODY).gid(NOBODY).spawn().expect("there is sleep");
    let own_pid = own.id().to_string();
    poll("his own", || reads(&own_pid, "fd").then_some(()));
    own.kill().expect("killed");
    own.wait().expect("it is dead");
    // It ends with its server.
    let pid = server.pid();
    assert!(server.stop().status.success());
    poll("a worker is left", || (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
    for worker in [ours[0], theirs[0]] {
        let path = format!("/proc/{}", worker.as_raw_nonzero());
        poll("a worker is left", || (!std::path::Path::new(&path).exists()).then_some(()));
    }
}

#[test]
fn a_worker_that_is_killed_while_it_waits_is_replaced() {
    if is_skipped() {
        return;
    }
    let (mut server, boxes) = waiting("maildir", 1);
    retry(&server);
    for _ in 0..2 {
        server.wait_log("stat=Sent");
    }
    let before = workers_of(&server, NOBODY);
    assert_eq!(before.len(), 1);
    kill_process(before[0], Signal::KILL).expect("killed");
    poll("it does not end", || (!workers_of(&server, NOBODY).contains(&before[0])).then_some(()));
    let mut client = testkit::client::greeted(server.address());
    client.expect("MAIL FROM:<ann@a.test>", "250 2.1.0");
    client.expect("RCPT TO:<nobody@local.test>", "250 2.1.5");
    client.data(b"Subject: x\r\n\r\nx\r\n");
    client.quit();
    retry(&server);
    line(&mut server, &["to=<nobody@local.test>", "stat=Sent"]);
    assert_ne!(workers_of(&server, NOBODY), before);
    assert_eq!(std::fs::read_dir(boxes.join("nobody/new")).expect("a Maildir").count(), 2);
    assert!(server.stop().status.success());
}

#[test]
fn a_worker_that_is_killed_at_work_leaves_its_own_mail_alone_in_doubt() {
    if is_skipped() {
        return;
    }
    let (mut server, boxes) = waiting("mbox", 3);
    let path = boxes.join("nobody");
    std::fs::write(&path, "").expect("written");
    crate::office::give(&path, NOBODY);
    let Some(mut holder) = holder(&path) else { return };
    retry(&server);
    poll("games gets not all", || (count(&boxes.join("games")) == 3).then_some(()));
    // It has the lock file and waits for the kernel's lock.
    let lock = boxes.join("nobody.lock");
    poll("it does not come so far", || lock.exists().then_some(()));
    let workers = workers_of(&server, NOBODY);
    assert_eq!(workers.len(), 1);
    kill_process(workers[0], Signal::KILL).expect("killed");
    line(&mut server, &["to=<nobody@x.test>", "stat=Deferred", "it is not known whether the message was delivered"]);
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    // The lock file that it left is of a process that is gone.
    poll("the mail does not come", || {
        retry(&server);
        (count(&path) == 3).then_some(())
    });
    assert_eq!(count(&boxes.join("games")), 3);
    // The mail is there a moment before the lock is let go.
    poll("the lock stays", || (!lock.exists()).then_some(()));
    assert!(server.stop().status.success());
}
