//! Long lists: expanded once for each version of their file, beside other sessions, and delivered whole.

use crate::hop::{Hop, Manners};
use crate::world::{by_literal, ends_empty, impatient, send};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use testkit::client::greeted;
use testkit::harness::{Server, Setup, letters, poll};

const CONTENT: &[u8] = b"Subject: to all\r\n\r\nhello\r\n";

/// A setup with aliases, in which `FILE` stands for the file of members.
fn with_list(setup: Setup, aliases: &str, members: &str) -> Setup {
    let (list, file) = (setup.path("members"), setup.path("aliases"));
    std::fs::write(&list, members).expect("written");
    std::fs::write(&file, aliases.replace("FILE", &list.display().to_string())).expect("written");
    setup.set("local.mailbox", "\"none\"").set("maps.aliases", format!("[{:?}]", file.display().to_string()))
}

/// A server that keeps accepted mail, so that it can be counted.
fn keeping(aliases: &str, members: &str) -> Setup {
    let setup = impatient().set("delivery.mode", "\"queue\"").set("spool.size_max", "\"256MiB\"");
    with_list(setup.set("spool.segment_bytes", "\"16MiB\""), aliases, members)
}

fn members(count: usize) -> String {
    let mut text = String::new();
    (0..count).for_each(|number| writeln!(text, "user{number}@host{}.test", number % 50).expect("a string"));
    text
}

/// The recipients of all messages in the spool of a server that has ended.
fn recipients(server: Server) -> Vec<Vec<String>> {
    let (path, _dir) = (server.setup.path("spool"), server.setup.dir.clone());
    assert!(server.stop().status.success());
    let of = |one: &testkit::harness::Letter| one.envelope.recipients.iter().map(|to| to.address.to_string()).collect();
    letters(&path).iter().map(of).collect()
}

#[test]
fn a_list_is_expanded_once_for_each_version_of_its_file() {
    let server = keeping("list: :include:FILE\ntwin: list\nsmall: a@x.test, b@x.test\n", &members(3_000)).start();
    let made = || server.status("/expansions/made");
    let mut client = greeted(server.address());
    for _ in 0..5 {
        client.expect("MAIL FROM:<a@client.test>", "250");
        (0..10).for_each(|_| drop(client.expect("RCPT TO:<list@mx.test>", "250 2.1.5")));
        client.expect("RCPT TO:<small@mx.test>", "250 2.1.5");
        client.expect("RSET", "250");
    }
    for _ in 0..4 {
        let mut other = greeted(server.address());
        other.expect("MAIL FROM:<b@client.test>", "250");
        other.expect("RCPT TO:<list@mx.test>", "250 2.1.5");
    }
    assert_eq!((made(), server.status("/expansions/shared")), (1, 53));
    // A changed file counts for the next RCPT.
    send(&server, "a@client.test", &["list@mx.test"], CONTENT);
    std::fs::write(server.setup.path("members"), members(3_000) + "late@x.test\n").expect("written");
    send(&server, "a@client.test", &["list@mx.test", "twin@mx.test"], CONTENT);
    assert_eq!(made(), 3, "the file has two versions, and the second two names");
    // A list that cannot be read is no list without members.
    std::fs::remove_file(server.setup.path("members")).expect("removed");
    client.expect("MAIL FROM:<a@client.test>", "250");
    client.expect("RCPT TO:<list@mx.test>", "451 4.3.0");
    client.quit();
    assert!(server.status("/expansions/kept_bytes") < 10 << 20);
    let mut sizes: Vec<usize> = recipients(server).iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [3_000, 3_001], "nobody twice, although two names lead to each");
}

#[test]
fn lists_in_one_transaction_have_their_order_their_owners_and_nobody_twice() {
    let aliases = "one: :include:FILE\ntwo: one, extra@x.test\nowner-two: boss@x.test\n";
    let server = keeping(aliases, &members(1_000)).start();
    let to = ["before@x.test", "user7@host7.test", "one@mx.test", "two@mx.test", "after@x.test", "user9@host9.test"];
    send(&server, "a@client.test", &to, CONTENT);
    send(&server, "a@client.test", &["two@mx.test", "one@mx.test"], CONTENT);
    let mut messages = recipients(server);
    messages.sort_by_key(Vec::len);
    let sizes: Vec<usize> = messages.iter().map(Vec::len).collect();
    // before, user7, the others of the list, after; extra with the owner for a sender; and the second with all of them
    // so.
    assert_eq!(sizes, [1, 1_001, 1_002]);
    let all: usize = messages.iter().map(Vec::len).sum();
    let different: BTreeSet<&String> = messages.iter().flatten().collect();
    assert_eq!((all, different.len()), (2_004, 1_003));
    let first = messages.iter().find(|to| to[0] == "before@x.test").expect("it is there");
    assert_eq!(first[..4], ["before@x.test", "user7@host7.test", "user0@host0.test", "user1@host1.test"]);
    assert_eq!(first.iter().filter(|to| *to == "user7@host7.test").count(), 1);
}

#[test]
fn other_sessions_go_on_while_a_list_is_expanded() {
    let server = keeping("list: :include:FILE\nother: b@x.test\n", &members(8_000)).start();
    let mut slow = greeted(server.address());
    slow.expect("MAIL FROM:<a@client.test>", "250");
    let mut client = greeted(server.address());
    // The list is asked for in one session; it has its answer after many of the other were answered.
    slow.send(b"RCPT TO:<list@mx.test>\r\n");
    slow.stream.set_nonblocking(true).expect("set");
    poll("the expansion has not begun", || (server.status("/expansions/made") == 1).then_some(()));
    let mut answered = 0;
    let is_expanded = || {
        let mut octet = [0];
        match slow.stream.peek(&mut octet) {
            Ok(_) => true,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    };
    while !is_expanded() {
        client.expect("MAIL FROM:<b@client.test>", "250");
        client.expect("RCPT TO:<other@mx.test>", "250 2.1.5");
        client.data(CONTENT);
        answered += 1;
    }
    slow.stream.set_nonblocking(false).expect("set");
    assert!(slow.reply().starts_with("250 2.1.5"));
    assert!(answered > 0, "somebody had mail accepted meanwhile");
    // A session that goes away while its list is expanded takes nothing with it. One that goes before the list was
    // read, which no event tells of, ends the expansion.
    let made = || server.status("/expansions/made");
    let is_kept = (1..=20).any(|version| {
        std::fs::write(server.setup.path("members"), members(8_000 + version)).expect("written");
        let before = made();
        let mut gone = greeted(server.address());
        gone.expect("MAIL FROM:<a@client.test>", "250");
        gone.send(b"RCPT TO:<list@mx.test>\r\n");
        poll("the expansion has not begun", || (made() == before + 1).then_some(()));
        drop(gone);
        client.expect("MAIL FROM:<b@client.test>", "250");
        client.expect("RCPT TO:<list@mx.test>", "250 2.1.5");
        client.expect("RSET", "250");
        made() == before + 1
    });
    assert!(is_kept, "what was begun is kept for others");
    client.quit();
}

#[test]
fn memory_for_lists_is_bounded_and_a_list_beyond_it_is_used() {
    let aliases = "a: :include:FILE\nb: a, b@x.test\nc: a, c@x.test\nd: a, d@x.test\n";
    let server = keeping(aliases, &members(800)).set("maps.expansions_size_max", "\"256KiB\"").start();
    for _ in 0..2 {
        for list in ["a", "b", "c", "d"] {
            send(&server, "s@client.test", &[&format!("{list}@mx.test")], CONTENT);
            assert!(server.status("/expansions/kept_bytes") <= 256 << 10);
        }
    }
    assert!(server.status("/expansions/kept") < 4);
    std::fs::write(server.setup.path("members"), members(4_000)).expect("written");
    send(&server, "s@client.test", &["a@mx.test"], CONTENT);
    assert!(server.status("/expansions/kept_bytes") <= 256 << 10);
    let all: usize = recipients(server).iter().map(Vec::len).sum();
    assert_eq!(all, 2 * (4 * 800 + 3) + 4_000);
}

#[test]
fn every_member_of_a_long_list_gets_the_mail() {
    let hops = Hop::neighbours(vec![Manners::default(); 3]);
    let mut list = String::new();
    for number in 0..1_200 {
        writeln!(list, "{}", hops[number % 3].mailbox(&format!("m{number}"))).expect("a string");
    }
    let server = with_list(by_literal(&hops), "list: :include:FILE\n", &list).start();
    send(&server, "a@client.test", &["list@mx.test"], CONTENT);
    for hop in &hops {
        hop.wait_until("all", |mails| mails.iter().map(|mail| mail.rcpts.len()).sum::<usize>() == 400);
    }
    ends_empty(server);
    let all: usize = hops.iter().flat_map(Hop::mails).map(|mail| mail.rcpts.len()).sum();
    assert_eq!(all, 1_200, "nobody has it twice");
}
