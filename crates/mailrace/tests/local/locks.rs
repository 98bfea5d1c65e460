//! Locks of other programs on a mailbox file: they are waited for, and they hold while we write.

use crate::office::{As, NOBODY, give, is_skipped, line, retry, start, stored, with_boxes};
use crate::workers::workers_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::harness::{Server, needs, poll};
use testkit::lock_holder::holder;

/// Programs that lock mailbox files, and where they are.
const LOCKERS: [(&str, &str); 2] = [("dotlockfile", "/usr/bin/dotlockfile"), ("procmail", "/usr/bin/lockfile")];

/// A server with a message for a mailbox that is there.
fn waiting(lock_time: &str) -> (Server, PathBuf) {
    let setup = with_boxes(NOBODY).set("local.lock_time_max", format!("\"{lock_time}\""));
    let path = setup.path("boxes").join("nobody");
    let setup = stored(setup, As::Us, 0, &[("nobody@x.test", "local:".to_owned())], b"Subject: x\r\n\r\nx\r\n");
    std::fs::write(&path, "From x Fri Jan 15 08:00:00 2027\nSubject: old\n\nold\n\n").expect("written");
    give(&path, NOBODY);
    (start(setup, As::Us), path)
}

/// Whether a program could lock it, once and without waiting.
fn locks(program: &str, lock: &Path) -> bool {
    let arguments: &[&str] = if program.ends_with("dotlockfile") { &["-l", "-r", "0"] } else { &["-r", "0"] };
    let status = Command::new(program).args(arguments).arg(lock).stderr(Stdio::null()).status();
    status.expect("it runs").success()
}

#[test]
fn lock_files_of_other_programs_are_waited_for() {
    if is_skipped() {
        return;
    }
    for (name, program) in LOCKERS {
        if !needs::has(name, program) {
            continue;
        }
        // Held too long: the mail waits.
        let (mut server, path) = waiting("1s");
        let lock = path.with_extension("lock");
        assert!(locks(program, &lock) && lock.exists(), "{program}");
        let before = std::fs::read(&path).expect("a mailbox");
        retry(&server);
        line(&mut server, &["to=<nobody@x.test>", "stat=Deferred", "dsn=4.2.0", "is locked by", "nobody.lock"]);
        assert_eq!(std::fs::read(&path).expect("a mailbox"), before, "{program}");
        assert!(lock.exists(), "it is not ours to remove");
        std::fs::remove_file(&lock).expect("removed");
        retry(&server);
        line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
        assert!(!lock.exists() && server.stop().status.success());
        // The lock is released while the delivery waits: the mail arrives.
        let (mut server, path) = waiting("1m");
        assert!(locks(program, &lock_of(&path)));
        retry(&server);
        poll("nobody waits", || (!workers_of(&server, NOBODY).is_empty()).then_some(()));
        assert!(!std::fs::read_to_string(&path).expect("a mailbox").contains("Subject: x\n"));
        std::fs::remove_file(lock_of(&path)).expect("removed");
        line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
        assert!(server.stop().status.success());
    }
}

fn lock_of(path: &Path) -> PathBuf {
    path.with_extension("lock")
}

#[test]
fn other_programs_do_not_get_a_lock_while_we_have_it() {
    if is_skipped() {
        return;
    }
    for (name, program) in LOCKERS {
        if !needs::has(name, program) {
            continue;
        }
        let (mut server, path) = waiting("1m");
        // The kernel's lock keeps the delivery where it has the lock file already.
        let Some(mut holder) = holder(&path) else { return };
        retry(&server);
        let lock = lock_of(&path);
        // With the number of its process in it.
        let text = || std::fs::read_to_string(&lock).ok().filter(|text| !text.is_empty());
        poll("no lock file", text);
        assert!(!locks(program, &lock), "{program}");
        drop(holder.stdin.take());
        holder.wait().expect("it ends");
        line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
        poll("the lock stays", || (!lock.exists()).then_some(()));
        assert!(locks(program, &lock), "the control: nobody has it");
        assert!(server.stop().status.success());
    }
}

#[test]
fn a_mail_reader_finds_what_was_delivered() {
    if is_skipped() || needs::program("s-nail").is_none() {
        return;
    }
    let (mut server, path) = waiting("1m");
    retry(&server);
    line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
    let listed = Command::new("s-nail").args(["-n", "-R", "-H", "-f"]).arg(&path).env("MAILRC", "/dev/null").output();
    let text = String::from_utf8_lossy(&listed.expect("it runs").stdout).into_owned();
    assert!(server.stop().status.success());
    assert!(text.contains("old") && text.contains("ann@a.test") && text.trim().lines().count() == 2, "{text}");
}
