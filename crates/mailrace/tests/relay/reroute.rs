//! `mailrace queue reroute` and `count`: mail that waits for a host that does not take it goes to another one.

use crate::hop::{Act, At, Hop, Manners};
use crate::world::{any_line, ends_empty, relay, retrying, send, waiting};
use testkit::harness::{Server, poll, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// The output of `mailrace queue …`, which works.
#[track_caller]
fn queue(server: &Server, words: &[&str]) -> String {
    let output = server.control(&[&["queue"], words].concat(), b"");
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn an_expression_counts_mail_and_sends_it_to_another_host() {
    let refusing = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<later") => Act::Say("451 4.7.1 not yet"),
        _ => Act::Well,
    }));
    let other = Hop::good();
    let mut server = retrying(relay(&[&refusing]), "1h").start();
    let first = send(&server, "a@client.test", &["later1@d.test", "later2@e.test"], CONTENT);
    send(&server, "b@client.test", &["later3@d.test"], CONTENT);
    for name in ["later1", "later2", "later3"] {
        any_line(&mut server, &[name, "stat=Deferred: 451"]);
    }
    server.rests();
    assert_eq!(queue(&server, &["count"]), "2 messages, 3 recipients\n");
    assert_eq!(queue(&server, &["count", "reply~\"not yet\" to:@d.test"]), "2 messages, 2 recipients\n");
    assert_eq!(queue(&server, &["count", "from:b@client.test", "tries>0"]), "1 message, 1 recipient\n");
    assert_eq!(queue(&server, &["count", "reply~greylist"]), "0 messages, 0 recipients\n");
    let counted: serde_json::Value = serde_json::from_str(&queue(&server, &["count", "--json"])).expect("JSON");
    assert_eq!((&counted["messages"], &counted["recipients"]), (&2.into(), &3.into()), "{counted}");
    let why = |what: &str| {
        let output = server.control(&["why", what], b"");
        (output.status.code(), text(&output))
    };
    let (code, said) = why(&first);
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{said}");
    for part in [
        "for <later1@d.test> (from <a@client.test>",
        "waits, ",
        "It was tried once; last: 451 4.7.1 not yet",
        "Its next attempt is in ",
        "delivery.give_up_after",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(why("e.test").1.lines().count(), 1);
    assert_eq!(why("nobody@e.test").0, Some(66));
    let via = format!("smtp:{}", other.name());
    let words = ["reroute", "--via", &via, "to:@d.test from:a@*"];
    let preview = queue(&server, &[&words[..], &["-n"]].concat());
    assert!(preview.ends_with("dry run, nothing was changed: 1 recipient of 1 message would be sent elsewhere\n"));
    assert_eq!(other.count(), 0);
    assert_eq!(queue(&server, &words), "1 recipient of 1 message sent elsewhere\n");
    let mails = other.wait(1);
    assert_eq!(mails[0].all_to(), ["later1@d.test"]);
    poll("the recipient waits still", || (waiting(&server) == 2).then_some(()));
    // Held mail stays held there, and a configuration that is read anew moves it to no other place.
    queue(&server, &["hold", &first]);
    assert_eq!(queue(&server, &["reroute", "--via", &via, &first]), "1 recipient of 1 message sent elsewhere\n");
    assert!(server.control(&["reload"], b"").status.success());
    assert_eq!((other.count(), waiting(&server)), (1, 1));
    queue(&server, &["release", &first]);
    assert_eq!(other.wait(2)[1].all_to(), ["later2@e.test"]);
    queue(&server, &["delete", "--all"]);
    ends_empty(server);
    assert_eq!(refusing.count(), 0);
}

#[test]
fn wrong_words_are_named_and_change_nothing() {
    let server = relay(&[&Hop::good()]).start();
    for (words, part) in [
        (["reroute", "--all", "--via", "smtp:[192.0.2.1]"].as_slice(), "has no port"),
        (&["reroute", "--all", "--via", "local:"], "no destination of other hosts; write a domain"),
        (&["reroute", "--via", "b.test"], "say which: ids, a condition"),
        (&["list", "age:2h"], "age takes no ':'; write it as in age>2h"),
        (&["delete", "whom:x"], "there is no \"whom\"; the names are from, to"),
    ] {
        let output = server.control(&[&["queue"], words].concat(), b"");
        assert!(!output.status.success() && text(&output).contains(part), "{words:?}: {}", text(&output));
    }
    ends_empty(server);
}
