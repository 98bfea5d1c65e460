//! Nothing is lost between a file and the spool, whenever the server is killed, and hardly anything comes twice.

use super::desk::{Desk, taken, wait_until_empty};
use std::collections::BTreeMap;
use testkit::harness::{Letter, Setup, letters};

fn subject(letter: &Letter) -> String {
    let text = String::from_utf8_lossy(&letter.content).into_owned();
    text.split("Subject: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap_or_default().to_owned()
}

/// Subjects that are missing, and how many came more than once.
fn account(promised: &[String], letters: &[Letter]) -> (Vec<String>, usize) {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for letter in letters {
        *found.entry(subject(letter)).or_default() += 1;
    }
    let missing = promised.iter().filter(|one| !found.contains_key(*one)).cloned().collect();
    (missing, found.values().filter(|count| **count > 1).count())
}

#[test]
fn a_message_that_is_in_the_spool_is_not_taken_again() {
    let (desk, setup) = Desk::opened(Setup::new());
    assert_eq!(desk.sendmail(&["joe@a.test"], "Subject: once\n\nx\n").exit, Some(0));
    let name = desk.waiting().remove(0);
    let file = std::fs::read(desk.pickup().join(&name)).expect("there");
    let pickup = desk.pickup();
    let server = setup.start();
    wait_until_empty(&server, &pickup);
    let setup = server.stop_for_setup();
    let stored = letters(&setup.path("spool"));
    // A crash after the message was stored and before its file was removed leaves this file.
    let again = pickup.join(format!("{name}.{}", stored[0].id));
    std::fs::write(&again, &file).expect("written");
    let letters = taken(setup);
    assert_eq!((letters.len(), again.exists()), (1, false));
}

#[test]
fn a_message_that_is_not_in_the_spool_is_taken_whatever_its_name_says() {
    // The control of the test before: an id in the name alone keeps nothing out.
    let (desk, setup) = Desk::opened(Setup::new());
    assert_eq!(desk.sendmail(&["joe@a.test"], "Subject: twice\n\nx\n").exit, Some(0));
    let name = desk.waiting().remove(0);
    let id = mail::QueueId::MIN;
    let (from, to) = (desk.pickup().join(&name), desk.pickup().join(format!("{name}.{id}")));
    std::fs::copy(&from, to).and_then(|_| std::fs::remove_file(from)).expect("renamed");
    let letters = taken(setup);
    assert_eq!((letters.len(), letters[0].id == id), (1, false), "stored under an id that nobody has used");
}

#[test]
fn files_that_are_no_messages_are_put_aside() {
    let (desk, setup) = Desk::opened(Setup::new());
    let name = format!("mail.{}", "0".repeat(32));
    std::fs::write(desk.pickup().join(&name), "no message").expect("written");
    let whole = desk.sendmail(&["joe@a.test"], "Subject: x\n\nx\n");
    assert_eq!(whole.exit, Some(0));
    let pickup = desk.pickup();
    assert_eq!(taken(setup).len(), 1);
    assert!(pickup.join(format!("bad.{}", "0".repeat(32))).exists());
}

#[test]
fn a_server_that_is_killed_all_the_time_loses_nothing() {
    const MESSAGES: usize = 120;
    let (desk, setup) = Desk::opened(Setup::new());
    let pickup = desk.pickup();
    let mut setup = setup;
    let promised: Vec<String> = (0..MESSAGES).map(|number| format!("m{number}")).collect();
    let sender = {
        let promised = promised.clone();
        std::thread::spawn(move || {
            for subject in promised {
                let done = desk.sendmail(&["-odq", "joe@a.test"], &format!("Subject: {subject}\n\nx\n"));
                assert_eq!(done.exit, Some(0), "{done:?}");
            }
        })
    };
    let mut kills = 0;
    while !sender.is_finished() {
        let mut server = setup.start();
        // The server is killed at a random point after some questions.
        for _ in 0..kills % 5 {
            server.control(&["status"], b"");
        }
        server.kill();
        kills += 1;
        setup = std::mem::replace(&mut server.setup, Setup::new());
    }
    sender.join().expect("all were handed in");
    let server = setup.start();
    wait_until_empty(&server, &pickup);
    let letters = server.letters_after_kill();
    let (missing, twice) = account(&promised, &letters);
    assert!(missing.is_empty(), "{kills} kills, lost: {missing:?}");
    assert_eq!(twice, 0, "a kill repeats nothing: the name of the file says what is stored");
    println!("{MESSAGES} messages, {kills} kills");
}

#[test]
fn the_account_sees_a_loss() {
    // The control: a file that is removed is missed.
    let (desk, setup) = Desk::opened(Setup::new());
    let promised: Vec<String> = (0..3).map(|number| format!("m{number}")).collect();
    for subject in &promised {
        assert_eq!(desk.sendmail(&["joe@a.test"], &format!("Subject: {subject}\n\nx\n")).exit, Some(0));
    }
    let lost = desk.waiting().remove(1);
    std::fs::remove_file(desk.pickup().join(lost)).expect("removed");
    let letters = taken(setup);
    assert_eq!(account(&promised, &letters).0.len(), 1);
}
