//! Too many messages that are not taken, and users who look at the queue.

use super::desk::{CONFIG, Desk, Done, finish};
use std::os::unix::process::CommandExt as _;
use testkit::harness::{SOON, Server, Setup, copy_program, needs};

const MESSAGE: &str = "Subject: x\n\nhello\n";

/// Asks the server until something holds; each question is an answer of it.
fn until(server: &Server, what: &str, holds: impl Fn() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a limit for a server that does nothing")]
    let begin = std::time::Instant::now();
    while !holds() {
        server.control(&["status"], b"");
        assert!(begin.elapsed() < SOON, "still not: {what}");
    }
}

#[test]
fn of_too_many_no_more_are_taken_until_there_is_room() {
    let setup = Setup::new();
    let (aliases, list) = (setup.path("aliases"), setup.path("list"));
    std::fs::write(&aliases, format!("stuck: :include:{}\nowner-stuck: joe@x.test\n", list.display()))
        .expect("written");
    let setup = setup.set("maps.aliases", format!("[{aliases:?}]")).set("submit.files_max", "20");
    let (desk, setup) = Desk::opened(setup);
    for number in 0..20 {
        assert_eq!(
            desk.sendmail(&["-odq", "-f", "a@b.test", "stuck"], MESSAGE).exit,
            Some(0),
            "{number}: nobody counts"
        );
    }
    let mut server = setup.start();
    let full = desk.pickup().join("full");
    until(&server, "full", || full.exists());
    let refused = desk.sendmail(&["-odq", "-f", "a@b.test", "joe@x.test"], MESSAGE);
    assert!(
        refused.exit == Some(75) && refused.err.contains("20 messages wait there (submit.files_max)"),
        "{refused:?}"
    );
    let dialog = "EHLO me\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\nSubject: z\r\n\r\n.\r\nQUIT\r\n";
    assert!(desk.sendmail(&["-bs"], dialog).out.contains("\n452 4.3.1 "));
    assert_eq!(desk.waiting().len(), 20);
    let status = || testkit::harness::text(&server.control(&["status"], b""));
    until(&server, "status", || status().contains("pickup       20 messages not taken yet, TOO MANY"));
    server.wait_log("20 messages wait, of everybody: as many as submit.files_max allows");
    server.wait_log("is not taken: 451 ");
    // At once whole: the server reads it all the time.
    let whole = desk.path("list.new");
    std::fs::write(&whole, "ann@x.test\n").expect("written");
    rustix::fs::rename(&whole, &list).expect("renamed");
    until(&server, "taken", || desk.waiting().is_empty());
    until(&server, "room", || !full.exists());
    assert_eq!(desk.sendmail(&["-f", "a@b.test", "joe@x.test"], MESSAGE).exit, Some(0));
    server.wait_log("there is room again");
    let told = server.log.iter().filter(|line| line.contains("is not taken: ")).count();
    assert!((1..=10).contains(&told), "of twenty with the same reason some are told, once each: {:#?}", server.log);
}

/// The program as another user has it.
fn as_nobody(desk: &Desk, name: &str, arguments: &[&str], input: &str) -> Done {
    let copy = desk.path("copy");
    if !copy.exists() {
        copy_program(env!("CARGO_BIN_EXE_mailrace").as_ref(), &copy);
    }
    let mut command = std::process::Command::new(&copy);
    command.arg0(name).args(arguments).env("MAILRACE_CONFIG", desk.path(CONFIG)).env("HOME", "/nonexistent");
    command.uid(65_534).gid(65_534).current_dir("/");
    finish(command, input)
}

#[test]
fn users_see_of_the_queue_what_they_may() {
    // Only root can be another user.
    if !needs::root() {
        return;
    }
    for (mailq, seen) in [("everyone", Some("(2 requests)")), ("own", Some("(1 request)")), ("operators", None)] {
        let setup = Setup::new().set("control.mailq", format!("{mailq:?}"));
        let desk = Desk::of(&setup);
        let server = desk.start(setup);
        assert_eq!(desk.sendmail(&["-f", "root@mx.test", "secret@x.test"], MESSAGE).exit, Some(0));
        assert_eq!(as_nobody(&desk, "sendmail", &["-f", "me@mx.test", "mine@x.test"], MESSAGE).exit, Some(0));
        let done = as_nobody(&desk, "mailq", &[], "");
        match seen {
            Some(seen) => {
                assert!(
                    done.exit == Some(0) && done.out.contains(seen) && done.out.contains("mine@x.test"),
                    "{done:?}"
                );
                assert_eq!(done.out.contains("secret@x.test"), mailq == "everyone", "{done:?}");
            }
            None => assert!(
                done.exit == Some(77) && done.err.contains("You are not permitted to see the queue"),
                "{done:?}"
            ),
        }
        assert!(desk.run("mailq", &[], "").out.contains("(2 requests)"), "root sees all");
        // Nothing else is theirs.
        for (name, words) in [
            ("sendmail", &["-q"][..]),
            ("sendmail", &["-Qx", "-qRmine"]),
            ("sendmail", &["-bP"]),
            ("hoststat", &[]),
            ("purgestat", &[]),
            ("mailstats", &[]),
        ] {
            let done = as_nobody(&desk, name, words, "");
            assert_eq!(done.exit, Some(77), "{mailq} {name} {words:?}: {done:?}");
        }
        assert!(desk.run("mailq", &[], "").out.contains("(2 requests)"));
        drop(server);
    }
}
