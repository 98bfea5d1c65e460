//! Effects of a reload on deliveries, and refused reloads.

use crate::office::{As, NOBODY, is_skipped, line, start, stored, with_boxes};
use testkit::harness::{Setup, text};

#[test]
fn what_the_privileged_process_was_told_at_the_start_is_not_changed_silently() {
    if is_skipped() {
        return;
    }
    let setup = with_boxes(NOBODY).set("server.user", "\"daemon\"");
    let (boxes, _directory) = (setup.path("boxes"), setup.dir.clone());
    let mail = [("nobody-lists@x.test", "local:".to_owned()), ("nobody+lists@x.test", "local:".to_owned())];
    let setup = stored(setup, As::Us, 1, &mail, b"Subject: x\r\n\r\nx\r\n");
    let mut server = start(setup, As::Us);
    for (key, value, word) in [
        ("local.mailbox", format!("\"mbox:{}/other-%u\"", boxes.display()), "other-%u"),
        ("local.uid_min", "1".to_owned(), "from 1000 to 1"),
        ("local.programs", "[\"/\"]".to_owned(), "[\"/\"]"),
        ("local.files", "[\"/\"]".to_owned(), "[\"/\"]"),
        ("local.accounts", "\"/etc/mail/passwd\"".to_owned(), "/etc/mail/passwd"),
        ("local.deliveries_max", "3".to_owned(), "from 20 to 3"),
    ] {
        let setup = std::mem::replace(&mut server.setup, Setup::new());
        let before = setup.write();
        let kept = std::fs::read(&before).expect("read");
        server.setup = setup;
        let mut changed = String::from_utf8(kept.clone()).expect("text");
        changed = changed
            .lines()
            .filter(|line| !line.starts_with(&format!("{key} =")))
            .map(|line| format!("{line}\n"))
            .collect();
        std::fs::write(&before, format!("{changed}{key} = {value}\n")).expect("written");
        let output = server.control(&["reload"], b"");
        let said = text(&output);
        assert_eq!(output.status.code(), Some(78), "{said}");
        for part in [key, word, "takes effect after a restart", "nothing was changed"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        line(&mut server, &["configuration not reloaded, the old one stays", key]);
        std::fs::write(&before, kept).expect("written");
    }
    // The character before a detail goes with each order.
    let setup = std::mem::replace(&mut server.setup, Setup::new());
    server.setup = setup.set("local.delimiter", "\"-\"");
    server.setup.write();
    let output = server.control(&["reload"], b"");
    assert!(output.status.success(), "{}", text(&output));
    assert!(server.control(&["queue", "retry", "--all"], b"").status.success());
    line(&mut server, &["to=<nobody-lists@x.test>", "stat=Sent"]);
    line(&mut server, &["to=<nobody+lists@x.test>", "dsn=5.1.1", "stat=User unknown"]);
    assert!(server.stop().status.success());
    assert!(boxes.join("nobody").exists() && !boxes.join("other-nobody").exists());
}
