//! Reports to senders of messages that were handed in, where the spool has no room.

use super::desk::{Desk, taken, wait_until_empty};
use std::time::{Duration, SystemTime};
use testkit::harness::{Letter, Server, Setup, letters, poll};

/// A message of about so many octets.
fn message(octets: usize) -> String {
    format!("Subject: lunch\n\n{}", "a line of thirty-two octets....\n".repeat(octets / 32))
}

fn reports(letters: &[Letter]) -> Vec<&Letter> {
    letters.iter().filter(|letter| letter.envelope.sender.address().is_none()).collect()
}

/// The only file that waits.
#[track_caller]
fn only(desk: &Desk) -> String {
    let waiting = desk.waiting();
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    waiting.into_iter().next().expect("one")
}

/// Waits until the only file was tried so many times more: each time it gets another name.
fn tried(desk: &Desk, times: usize) {
    for _ in 0..times {
        let before = only(desk);
        poll("the file is not tried again", || (only(desk) != before).then_some(()));
    }
}

#[test]
fn who_is_refused_is_told_of_once_although_the_others_wait() {
    let setup = Setup::new().set("spool.size_max", "\"8MiB\"").set("message.size_max", "\"4MiB\"");
    let aliases = setup.path("aliases");
    std::fs::write(&aliases, "known: joe@x.test\n").expect("written");
    let setup = setup.set("maps.aliases", format!("[{aliases:?}]"));
    let (desk, setup) = Desk::opened(setup);
    let mut server = setup.start();
    // Together they do not fit, and the first leaves room enough to begin with the second.
    assert_eq!(desk.sendmail(&["-f", "me@b.test", "first@x.test"], &message(2_500_000)).exit, Some(0));
    wait_until_empty(&server, &desk.pickup());
    let words = ["-odq", "-f", "me@b.test", "unknown@mx.test", "joe@x.test"];
    assert_eq!(desk.sendmail(&words, &message(3_900_000)).exit, Some(0));
    server.wait_log("is not taken: 452 4.3.1");
    tried(&desk, 2);
    let stored = letters(&server.stop_for_setup().path("spool"));
    let told = reports(&stored);
    assert_eq!((stored.len(), told.len()), (2, 1), "the first message, and one report: {told:?}");
    let report = String::from_utf8_lossy(&told[0].content);
    assert!(report.contains("Final-Recipient: rfc822; unknown@mx.test") && !report.contains("joe@x.test"), "{report}");
}

/// Hands in messages one after the other, large ones and then smaller ones, until one of each size is not taken.
fn fill(desk: &Desk, server: &mut Server) {
    // Some twice: a line about a refused file may come late, when the file is gone.
    for octets in [900_000, 200_000, 200_000, 50_000, 50_000] {
        let content = message(octets);
        let mut is_refused = false;
        while !is_refused {
            assert_eq!(desk.sendmail(&["-odq", "-f", "me@b.test", "f@x.test"], &content).exit, Some(0));
            poll("the message is neither taken nor refused", || {
                is_refused = server.has_logged("is not taken: 452 4.3.1");
                (is_refused || desk.waiting().is_empty()).then_some(())
            });
        }
        // The server may give the file another name at the same time.
        while let Some(name) = desk.waiting().first() {
            drop(std::fs::remove_file(desk.pickup().join(name)));
        }
    }
}

#[test]
fn a_report_returns_less_where_there_is_room_for_small_mail_only() {
    let returned = |is_full: bool| {
        let setup = Setup::new().set("spool.size_max", "\"8MiB\"").set("message.size_max", "\"4MiB\"");
        let setup = setup.set("delivery.return_bytes_max", "\"1MiB\"");
        let (desk, mut setup) = Desk::opened(setup);
        if is_full {
            let mut server = setup.start();
            fill(&desk, &mut server);
            setup = server.stop_for_setup();
        }
        // So old that it is given up where it is not taken; no server takes a message with so many fields.
        let setup = setup.set("message.header_fields_max", "10");
        let fields: String = (0..20).map(|number| format!("X-{number}: y\n")).collect();
        let words = ["-odq", "-f", "me@b.test", "joe@x.test"];
        assert_eq!(desk.sendmail(&words, &(fields + &message(200_000))).exit, Some(0));
        let file = std::fs::File::options().write(true).open(desk.pickup().join(only(&desk))).expect("there");
        #[expect(clippy::disallowed_methods, reason = "the age of a file")]
        let old = SystemTime::now() - Duration::from_secs(30 * 24 * 3_600);
        file.set_modified(old).expect("ours");
        let stored = taken(setup);
        let told = reports(&stored);
        assert_eq!(told.len(), 1, "{told:?}");
        String::from_utf8_lossy(&told[0].content).into_owned()
    };
    let (whole, less) = (returned(false), returned(true));
    assert!(whole.contains("Content-Type: message/rfc822") && whole.len() > 200_000, "{whole}");
    assert!(less.contains("Content-Type: text/rfc822-headers") && less.len() < 64 << 10, "{less}");
    assert!(less.contains("\r\nSubject: lunch\r\n"), "{less}");
}
