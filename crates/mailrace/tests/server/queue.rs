//! `mailrace queue` against a server that accepts and does not deliver.

use serde_json::Value;
use testkit::client::{Plain, greeted};
use testkit::harness::{Server, Setup, control, poll, text};

/// A server that keeps accepted mail.
fn server() -> Server {
    Setup::new().start()
}

/// Sends a message; its queue id.
#[track_caller]
fn send(client: &mut Plain, from: &str, to: &[&str]) -> String {
    client.expect(&format!("MAIL FROM:<{from}>"), "250 2.1.0");
    for recipient in to {
        client.expect(&format!("RCPT TO:<{recipient}>"), "250 2.1.5");
    }
    client.data(b"Subject: x\r\nTo: somebody\r\n\r\nhello\r\n")
}

/// Runs `mailrace queue …`, and returns its status, output and standard error.
fn queue(server: &Server, words: &[&str], input: &str) -> (Option<i32>, String, String) {
    let output = server.control(&[&["queue"], words].concat(), input.as_bytes());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn done(server: &Server, words: &[&str]) -> String {
    let (exit, said, complaints) = queue(server, words, "");
    assert_eq!((exit, complaints.as_str()), (Some(0), ""), "{words:?}: {said}");
    said
}

/// The objects that `--json` prints.
#[track_caller]
fn objects(server: &Server, words: &[&str]) -> Vec<Value> {
    let text = done(server, &[words, &["--json"]].concat());
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

#[test]
fn the_queue_is_listed_and_shown() {
    let server = server();
    assert_eq!(done(&server, &["list"]), "the queue is empty\n");
    assert_eq!(done(&server, &["list", "--to", "*@example.com"]), "no such message in the queue\n");
    let mut client = greeted(server.address());
    let long = format!("{}@example.net", "l".repeat(60));
    let first = send(&mut client, "ann@client.test", &["bob@example.com", "carol@example.net", &long]);
    let second = send(&mut client, "", &["ann@client.test"]);
    let listed = done(&server, &["list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0], "ID                 AGE   SIZE  SENDER, RECIPIENTS");
    assert!(lines[1].starts_with(&first) && lines[1].ends_with("  <ann@client.test>"), "{listed}");
    assert_eq!(lines[2], "    bob@example.com                         waiting, new");
    assert_eq!(lines[4], format!("    {long}"), "an address is never cut");
    assert!(lines[5].ends_with("  waiting, new") && lines[6].starts_with(&second), "{listed}");
    assert_eq!(lines.last(), Some(&"2 messages, 4 recipients"));
    assert!(lines.iter().all(|line| line.len() <= 80), "{listed}");
    let limited = done(&server, &["list", "--limit", "1"]);
    assert!(limited.ends_with("1 message, 3 recipients\n1 more message; --limit 0 for all\n"), "{limited}");

    let found = objects(&server, &["list", "--to", "@example.net"]);
    assert_eq!((found.len(), &found[0]["id"], &found[0]["waiting"]), (1, &first.as_str().into(), &3.into()));
    assert_eq!(found[0]["recipients"].as_array().expect("a list").len(), 2);
    assert_eq!(objects(&server, &["list", "--from", "<>"])[0]["id"], second.as_str());
    for nothing in [&["--from", "*@other.test"][..], &["--older", "1h"], &["--state", "held"], &["--destination", "x"]]
    {
        assert_eq!(objects(&server, &[&["list"], nothing].concat()), Vec::<Value>::new(), "{nothing:?}");
    }
    assert_eq!(objects(&server, &["list", "--younger", "1h", "--state", "waiting"]).len(), 2);

    let shown = done(&server, &["show", "--headers", &first]);
    for part in ["from         <ann@client.test>\n", ", which calls itself client.test, by ESMTP\n", "  | Subject: x\n"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("hello"), "no body: {shown}");
    let destinations = done(&server, &["destinations"]);
    assert_eq!(destinations.lines().nth(1), Some("         2  example.net"), "{destinations}");
}

#[test]
fn holding_and_releasing() {
    // The next hop cannot be reached, so attempts leave the messages in the queue.
    let mut server = Setup::new().set("route.smart_host", "[\"[127.0.0.1]:1\"]").start();
    let mut client = greeted(server.address());
    let id = send(&mut client, "ann@client.test", &["bob@example.com", "carol@example.net"]);
    let other = send(&mut client, "ann@client.test", &["bob@example.com"]);
    assert_eq!(done(&server, &["hold", &id, "-n"]).lines().count(), 3, "a preview");
    assert_eq!(done(&server, &["hold", "--to", "BOB@example.com", &id]), "1 recipient of 1 message held\n");
    let line = server.wait_log("queue=hold");
    assert!(line.contains("messages=1, recipients=1, uid="), "{line}");
    let states = |server: &Server| -> Vec<Value> {
        let listed = objects(server, &["list"]);
        let recipients = listed.iter().flat_map(|line| line["recipients"].as_array().expect("a list"));
        recipients.map(|one| one["state"].clone()).collect()
    };
    assert_eq!(states(&server), ["held", "waiting", "waiting"]);
    assert_eq!((server.status("/queue/held"), server.status("/queue/waiting")), (1, 2));
    let said = done(&server, &["retry", "--all"]);
    assert!(said.starts_with("2 recipients of 2 messages to be tried now\n1 recipient held: "), "{said}");
    assert_eq!(done(&server, &["release", "--state", "held"]), "1 recipient of 1 message released\n");
    assert_eq!(done(&server, &["release", "--all"]), "nothing to do\n3 recipients not held\n");
    // A recipient is active during an attempt, for a moment.
    poll("not all wait", || (states(&server) == ["waiting", "waiting", "waiting"]).then_some(()));
    assert!(objects(&server, &["show", &other])[0]["recipients"][0]["due"].as_u64() > Some(0), "it is due");
    // A held recipient stays held after a kill, and keeps its reason.
    done(&server, &["hold", "--reason", "asked by ann", &other]);
    let shown = done(&server, &["show", &other]);
    assert!(shown.contains("held by operator ") && shown.contains(": asked by ann"), "{shown}");
    let path = server.setup.path("spool");
    server.kill();
    let mut config = spool::Config::new(&path);
    config.free_min = 0;
    let (spool, _) =
        spool::Spool::open(config, std::sync::Arc::new(spool::disk::real::RealDisk::new())).expect("a spool");
    let states = spool.states(other.parse().expect("an id"));
    assert_eq!(states[0].0.state.status, spool::Status::Held);
    let hold = spool.hold(states[0].0.id, states[0].0.recipient).expect("a reason");
    assert_eq!((hold.kind(), hold.text()), (spool::HoldKind::Operator, "asked by ann"));
}

#[test]
fn a_hold_with_an_end_is_released() {
    let setup = Setup::new().set("route.smart_host", "[\"[127.0.0.1]:1\"]").set("delivery.mode", "\"background\"");
    let setup = setup.set("delivery.retry_first", "\"1h\"").set("delivery.retry_max", "\"1h\"");
    let mut server = setup.start();
    let mut client = greeted(server.address());
    let id = send(&mut client, "ann@client.test", &["bob@example.com", "carol@example.net"]);
    let states = |server: &Server| -> Vec<Value> {
        let listed = objects(server, &["list"]);
        let recipients = listed.iter().flat_map(|line| line["recipients"].as_array().expect("a list"));
        recipients.map(|one| one["state"].clone()).collect()
    };
    poll("not all wait", || (states(&server) == ["waiting", "waiting"]).then_some(()));
    // One recipient for a moment, the other for long.
    done(&server, &["hold", "--to", "bob@example.com", "--for", "1s", "--reason", "asked by ann", &id]);
    done(&server, &["hold", "--to", "carol@example.net", "--for", "2h", &id]);
    let shown = done(&server, &["show", &id]);
    assert!(shown.contains("held by operator ") && (shown.contains(" for 1h") || shown.contains(" for 2h")), "{shown}");
    let line = server.wait_log("hold=ended");
    assert!(line.contains(&format!("{id}: hold=ended, recipients=1, by=")), "{line}");
    assert!(line.ends_with(", why=asked by ann"), "{line}");
    // It is tried at once, perhaps before that line.
    let alone = "to=<bob@example.com>, ";
    if !server.log.iter().any(|line| line.contains(alone)) {
        server.wait_log(alone);
    }
    poll("not released", || (states(&server) == ["waiting", "held"]).then_some(()));
    // The release is durable when the line is there, and the other hold keeps its end.
    let path = server.setup.path("spool");
    server.kill();
    let mut config = spool::Config::new(&path);
    config.free_min = 0;
    let (spool, _) =
        spool::Spool::open(config, std::sync::Arc::new(spool::disk::real::RealDisk::new())).expect("a spool");
    let states = spool.states(id.parse().expect("an id"));
    let found: Vec<_> = states.iter().map(|(entry, _)| entry.state.status).collect();
    assert_eq!(found, [spool::Status::Waiting, spool::Status::Held]);
    let (held, _) = states[1];
    assert!(spool.hold(held.id, held.recipient).and_then(|hold| hold.ends_at()).is_some());
    assert!(spool.ended_holds(u32::MAX, 9).len() == 1 && spool.ended_holds(1, 9).is_empty());
}

#[test]
fn what_is_deleted_is_gone_and_named() {
    let mut server = server();
    let mut client = greeted(server.address());
    let first = send(&mut client, "ann@client.test", &["bob@example.com", "carol@example.net"]);
    let second = send(&mut client, "", &["bob@example.com"]);
    let third = send(&mut client, "dan@client.test", &["eve@example.com"]);
    let preview = done(&server, &["delete", "--to", "bob@*", "--dry-run"]);
    let said = done(&server, &["delete", "--to", "bob@*"]);
    let expected =
        format!("{first} from=<ann@client.test> to=<bob@example.com>\n{second} from=<> to=<bob@example.com>\n");
    assert_eq!(said, format!("{expected}2 recipients of 2 messages deleted\n"));
    assert_eq!(
        preview,
        format!("{expected}dry run, nothing was changed: 2 recipients of 2 messages would be deleted\n")
    );
    let line = server.wait_log(&format!("{second}: queue=delete"));
    assert!(line.contains("messages=1, recipients=1, uid="), "{line}");
    server.wait_log(": queue=delete, messages=2, recipients=2");
    // An id that has gone is said to be gone, and the others are dealt with.
    let (exit, said, complaints) = queue(&server, &["delete", &second, &third], "");
    assert_eq!((exit, said.lines().count()), (Some(66), 2), "{said}");
    assert!(complaints.contains(&format!("{second}: not in the queue")), "{complaints}");
    // Ids from standard input, and none at all, which is not all.
    let (exit, said, complaints) = queue(&server, &["delete", "-"], "\n");
    assert_eq!((exit, said.as_str()), (Some(0), ""));
    assert!(complaints.contains("no ids on standard input"), "{complaints}");
    assert_eq!(queue(&server, &["delete", "-"], &format!("{first}\n")).0, Some(0));
    assert!(server.letters_after_kill().is_empty(), "deleted is deleted, also after a crash");
}

#[test]
fn wrong_words_touch_nothing() {
    let server = server();
    let mut client = greeted(server.address());
    send(&mut client, "ann@client.test", &["bob@example.com"]);
    for (words, part) in [
        (&["delete"][..], "say which"),
        (&["hold"], "say which"),
        (&["delete", "--all", "--to", "@example.com"], "cannot be used with"),
        (&["delete", "--to", "example.com"], "write @DOMAIN"),
        (&["bounce"], "say which"),
        (&["bounce", "--all", "--reason", "two\nlines"], "one line of printable ASCII"),
        (&["bounce", "--all", "--reason", ""], "one line of printable ASCII"),
        (&["delete", "--all", "--reason", "none"], "unexpected argument"),
        (&["delete", "nonsense"], "\"nonsense\" is no queue id"),
        (&["list", "--older", "3"], "is no age"),
        (&["list", "--state", "dead"], "waiting, held, active"),
        (&["show"], "required"),
        (&["purge"], "purge"),
    ] {
        let (exit, said, complaints) = queue(&server, words, "");
        assert_eq!((exit, said.as_str()), (Some(64), ""), "{words:?}: {complaints}");
        assert!(complaints.contains(part), "{words:?}: {complaints}");
    }
    assert_eq!(objects(&server, &["list"]).len(), 1);
    let dir = server.setup.path("nowhere");
    let output = control(&dir, &["queue", "list"], b"");
    assert_eq!(output.status.code(), Some(69));
    assert!(text(&output).contains("mailrace spool inspect"), "{}", text(&output));
}
