//! Deliveries as users: by a server that was started as root, by one that gave root up, and by one that never had it.

use crate::office::{As, NOBODY, give, is_skipped, line, start, stored, with_boxes};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::MetadataExt as _;
use testkit::harness::{Setup, poll};

fn everything(setup: &Setup) -> Vec<(&'static str, String)> {
    let boxes = setup.path("boxes").display().to_string();
    vec![
        ("nobody+lists@x.test", "local:".to_owned()),
        ("root@x.test", "local:".to_owned()),
        ("gone@x.test", "local:".to_owned()),
        ("prog@x.test", format!("prog:nobody:keep \"{boxes}/by program\"")),
        ("games@x.test", format!("prog:games:keep {boxes}/no")),
        ("rootprog@x.test", format!("prog:root:keep {boxes}/no")),
        ("shell@x.test", format!("prog:nobody:keep {boxes}/no; id")),
        ("elsewhere@x.test", "prog:nobody:/bin/cat".to_owned()),
        ("archive@x.test", format!("file:nobody:{boxes}/archive")),
        ("outside@x.test", "file:nobody:/tmp/outside".to_owned()),
        ("nowhere@x.test", "file:nobody:/dev/null".to_owned()),
    ]
}

fn as_users(setup: Setup, owner_of_spool: u32) {
    let mail = everything(&setup);
    let content = b"Subject: x\r\nReturn-Path: <old@x.test>\r\n\r\nFrom here\r\n";
    let setup = stored(setup, As::Us, owner_of_spool, &mail, content);
    let (boxes, _directory) = (setup.path("boxes"), setup.dir.clone());
    let mut server = start(setup.set("delivery.mode", "\"background\""), As::Us);
    let sent = line(&mut server, &["to=<nobody+lists@x.test>", "stat=Sent"]);
    assert!(sent.contains("mailer=local,") && sent.contains("dsn=2.0.0") && !sent.contains("ctladdr"), "{sent}");
    let sent = line(&mut server, &["ctladdr=<prog@x.test> (65534/65534)", "stat=Sent"]);
    assert!(sent.contains("to=<prog@x.test>, ") && sent.contains("mailer=prog,"), "{sent}");
    let sent = line(&mut server, &["ctladdr=<archive@x.test>", "stat=Sent"]);
    assert!(sent.contains("to=<archive@x.test>, ") && sent.contains("mailer=*file*,"), "{sent}");
    line(&mut server, &["ctladdr=<nowhere@x.test>", "to=<nowhere@x.test>", "stat=Sent"]);
    line(&mut server, &["to=<gone@x.test>", "dsn=5.1.1", "stat=User unknown"]);
    for (who, words) in [
        ("to=<root@x.test>", "nothing is delivered as root"),
        ("ctladdr=<games@x.test>", "below local.uid_min"),
        ("ctladdr=<rootprog@x.test>", "below local.uid_min"),
        ("ctladdr=<shell@x.test>", "means something to a shell"),
        ("ctladdr=<elsewhere@x.test>", "is in none of the directories of local.programs"),
        ("ctladdr=<outside@x.test>", "lies in none of the directories of local.files"),
    ] {
        let said = line(&mut server, &[who, "stat=Deferred", words]);
        // The reply shows no content of a user's file.
        assert!(!["; id", "/bin/cat", "/tmp/outside", "keep "].iter().any(|text| said.contains(text)), "{said}");
    }
    assert!(server.stop().status.success());
    for name in ["nobody", "by program", "archive"] {
        let found = std::fs::metadata(boxes.join(name)).expect("there");
        assert_eq!((found.uid(), found.mode() & 0o777), (NOBODY, 0o600), "{name}");
    }
    let text = std::fs::read_to_string(boxes.join("nobody")).expect("a mailbox");
    let head = "\nReturn-Path: <ann@a.test>\nDelivered-To: nobody+lists@x.test\nReceived: ";
    assert!(text.starts_with("From ann@a.test ") && text.contains(head), "{text}");
    assert!(text.contains("\n\n>From here\n\n") && !text.contains("old@x.test") && !text.contains('\r'), "{text}");
    let told = std::fs::read_to_string(boxes.join("by program")).expect("its output");
    assert!(told.starts_with(&format!("{NOBODY}\n{NOBODY}\n/\nFrom ann@a.test ")), "{told}");
    assert!(told.contains("Delivered-To: prog@x.test\n") && told.contains("\n\nFrom here\n"), "{told}");
    assert!(!boxes.join("no").exists());
}

#[test]
fn a_server_that_is_root_delivers_as_users() {
    if is_skipped() {
        return;
    }
    as_users(with_boxes(NOBODY), 0);
}

#[test]
fn a_server_that_gave_root_up_delivers_as_users() {
    if is_skipped() {
        return;
    }
    as_users(with_boxes(NOBODY).set("server.user", "\"daemon\""), 1);
}

#[test]
fn without_root_only_its_own_mail_is_delivered() {
    if is_skipped() {
        return;
    }
    let setup = with_boxes(NOBODY);
    give(setup.dir.path(), NOBODY);
    let (boxes, _directory) = (setup.path("boxes"), setup.dir.clone());
    let mail = [
        ("nobody@x.test", "local:".to_owned()),
        ("games@x.test", "local:".to_owned()),
        ("prog@x.test", format!("prog::keep {}/by-program", boxes.display())),
    ];
    let setup = stored(setup, As::Nobody, NOBODY, &mail, b"Subject: x\r\n\r\nx\r\n");
    let setup = setup.set("local.programs_as_server", "true");
    let mut server = start(setup.set("delivery.mode", "\"background\""), As::Nobody);
    line(&mut server, &["to=<nobody@x.test>", "mailer=local", "stat=Sent"]);
    line(&mut server, &["ctladdr=<prog@x.test>", "stat=Sent"]);
    line(
        &mut server,
        &["to=<games@x.test>", "stat=Deferred", "only root can deliver as user games", "start it as root"],
    );
    assert!(server.stop().status.success());
    assert!(std::fs::read_to_string(boxes.join("nobody")).expect("a mailbox").contains("Subject: x\n"));
    assert!(boxes.join("by-program").exists());
}

/// Spool, keys and passwords are the server's, so programs that have its rights have them too.
#[test]
fn without_root_no_program_has_the_rights_of_the_server() {
    if is_skipped() {
        return;
    }
    let setup = with_boxes(NOBODY);
    give(setup.dir.path(), NOBODY);
    let aliases = setup.path("aliases");
    std::fs::write(&aliases, "prog: \"|keep /dev/null\"\n").expect("written");
    let boxes = setup.path("boxes");
    let setup = setup.set("maps.aliases", format!("[{aliases:?}]"));
    let mail = [
        ("prog@x.test", format!("prog::keep {}/by-program", boxes.display())),
        ("joe@x.test", format!("prog:nobody:keep {}/by-program", boxes.display())),
        ("exit@x.test", "prog::exit 67".to_owned()),
        ("archive@x.test", format!("file::{}/archive", boxes.display())),
        ("nowhere@x.test", "file::/dev/null".to_owned()),
    ];
    let setup = stored(setup, As::Nobody, NOBODY, &mail, b"Subject: x\r\n\r\nx\r\n");
    let _directory = setup.dir.clone();
    let mut server = start(setup.set("delivery.mode", "\"background\""), As::Nobody);
    let said = line(&mut server, &["program destinations of aliases wait (", "aliases line 1: prog"]);
    assert!(said.contains("local.programs_as_server = true"), "{said}");
    for who in ["prog", "joe"] {
        let address = format!("ctladdr=<{who}@x.test>");
        line(&mut server, &[&address, "dsn=4.3.5", "stat=Deferred", "not started as root", "local.programs_as_server"]);
    }
    line(&mut server, &["ctladdr=<exit@x.test>", "stat=User unknown"]);
    line(&mut server, &["ctladdr=<archive@x.test>", "mailer=*file*", "stat=Sent"]);
    line(&mut server, &["ctladdr=<nowhere@x.test>", "stat=Sent"]);
    assert!(server.stop().status.success());
    assert!(boxes.join("archive").exists() && !boxes.join("by-program").exists());
}

/// The process of a server that stays root.
fn helper_of(server: u32) -> Option<Pid> {
    std::fs::read_dir("/proc").expect("proc").filter_map(Result::ok).find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let is_it = line.windows(21).any(|part| part == b"local-delivery\0helper")
            && status.lines().any(|line| line == format!("PPid:\t{server}"));
        is_it.then(|| Pid::from_raw(pid)).flatten()
    })
}

/// Whether a process has a handler for SIGTERM: one that was just started has none yet.
fn handles_term(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("it lives");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).expect("the kernel shows it");
    u64::from_str_radix(caught, 16).expect("a number") & (1 << (Signal::TERM.as_raw() - 1)) != 0
}

/// Whether all that a process had is closed: no process has that number, or only its parent has to collect its status.
fn is_gone(pid: Pid) -> bool {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    std::fs::read_to_string(path)
        .map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

#[test]
fn mail_waits_when_the_helper_is_gone() {
    if is_skipped() {
        return;
    }
    let setup = with_boxes(NOBODY).set("server.user", "\"daemon\"");
    let mail = [("nobody@x.test", "local:".to_owned()), ("nobody+x@x.test", "local:".to_owned())];
    let setup = stored(setup, As::Us, 1, &mail, b"Subject: x\r\n\r\nx\r\n");
    let mut server = start(setup, As::Us);
    let helper = helper_of(server.pid()).expect("it is there");
    poll("the helper handles no signal", || handles_term(helper).then_some(()));
    // The helper ignores a service manager's signal to all processes: the server still waits for deliveries.
    kill_process(helper, Signal::TERM).expect("told");
    assert!(helper_of(server.pid()).is_some());
    kill_process(helper, Signal::KILL).expect("killed");
    poll("it does not end", || helper_of(server.pid()).is_none().then_some(()));
    // It has no command line before its sockets are closed.
    poll("it is not gone", || is_gone(helper).then_some(()));
    assert!(server.control(&["queue", "retry", "--all"], b"").status.success());
    for who in ["to=<nobody@x.test>", "to=<nobody+x@x.test>"] {
        line(&mut server, &[who, "stat=Deferred", "is gone", "restart mailrace"]);
    }
    let setup = std::mem::replace(&mut server.setup, Setup::new());
    let ended = server.stop();
    let told = ended.log.iter().filter(|line| line.contains("is gone") && !line.contains("to=")).count();
    assert_eq!(told, 1, "once for the operator: {:#?}", ended.log);
    // The next start has one.
    let (boxes, _directory) = (setup.path("boxes"), setup.dir.clone());
    let mut server = start(setup.set("delivery.mode", "\"background\""), As::Us);
    let pid = server.pid();
    assert!(server.control(&["queue", "retry", "--all"], b"").status.success());
    for who in ["to=<nobody@x.test>", "to=<nobody+x@x.test>"] {
        line(&mut server, &[who, "stat=Sent"]);
    }
    assert!(server.stop().status.success());
    assert!(helper_of(pid).is_none(), "it ends with its server");
    assert_eq!(std::fs::read_to_string(boxes.join("nobody")).expect("a mailbox").matches("\nSubject: x\n").count(), 2);
}
