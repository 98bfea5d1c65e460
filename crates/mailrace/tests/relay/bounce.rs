//! `mailrace queue bounce`: mail that an operator gives up, and the reports to its senders.

use crate::hop::{Act, At, Hop, Manners};
use crate::report::Report;
use crate::world::{any_line, ends_empty, lines, relay, retrying, send, wait_line, waiting};
use serde_json::Value;
use std::sync::atomic::Ordering;
use testkit::harness::{Server, Setup, poll, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// `mailrace queue bounce …`, which works.
#[track_caller]
fn bounce(server: &Server, words: &[&str]) -> String {
    let output = server.control(&[&["queue", "bounce"], words].concat(), b"");
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns a host that puts off recipients with certain names, and a setup that retries late.
fn putting_off() -> (Hop, Setup) {
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<later") => Act::Say("451 4.7.1 not yet"),
        _ => Act::Well,
    }));
    let setup = retrying(relay(&[&hop]), "1h");
    (hop, setup)
}

#[test]
fn a_list_that_is_bounced_makes_one_report_with_the_reason() {
    let (hop, setup) = putting_off();
    let mut server = setup.start();
    let to = ["later1@d.test", "later2@d.test", "other@d.test", "later3@e.test", "later4@e.test"];
    let id = send(&server, "list@client.test", &to, CONTENT);
    hop.wait(1);
    for name in ["later1", "later2", "later3", "later4"] {
        any_line(&mut server, &[name, "stat=Deferred: 451"]);
    }
    server.rests();
    let words = ["--to", "later*", "--reason", "the list is closed"];
    let listed: String = ["later1@d.test", "later2@d.test", "later3@e.test", "later4@e.test"]
        .map(|to| format!("{id} from=<list@client.test> to=<{to}>\n"))
        .concat();
    assert_eq!(
        bounce(&server, &[&words[..], &["--dry-run"]].concat()),
        format!("{listed}dry run, nothing was changed: 4 recipients of 1 message would be bounced\n")
    );
    assert_eq!((waiting(&server), hop.count()), (4, 1), "nothing was done");
    assert_eq!(bounce(&server, &words), format!("{listed}4 recipients of 1 message bounced\n"));
    let mails = hop.wait(2);
    let ended = ends_empty(server);
    assert_eq!(hop.count(), 2, "one report");
    let report = Report::of(&mails[1]);
    assert_eq!(mails[1].all_to(), ["list@client.test"]);
    let field = |name: &str| -> Vec<&str> { report.recipients.iter().map(|one| one[name].as_str()).collect() };
    assert_eq!(field("action"), ["failed"; 4]);
    assert_eq!(field("status"), ["5.0.0"; 4]);
    assert!(field("final-recipient").iter().all(|to| to.starts_with("rfc822; later")), "{report:#?}");
    assert!(report.words.contains("Given up by the postmaster: the list is closed"), "{}", report.words);
    assert_eq!(report.returned_subject, "x");
    let failed = lines(&ended.log, &["stat=Given up by the postmaster: the list is closed"]);
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert!(
        failed[0].contains("dsn=5.0.0") && (1..=4).all(|n| failed[0].contains(&format!("<later{n}@"))),
        "{failed:?}"
    );
    let of_message = lines(&ended.log, &[&format!("{id}: queue=bounce"), "messages=1, recipients=4, uid="]);
    assert_eq!((of_message.len(), lines(&ended.log, &[": queue=bounce"]).len()), (1, 2), "{:#?}", ended.log);
}

#[test]
fn who_wants_to_hear_nothing_hears_nothing_and_the_null_sender_is_the_postmasters() {
    let (hop, setup) = putting_off();
    let mut server = setup.start();
    send(&server, "<a@client.test>", &["<later1@d.test> NOTIFY=NEVER"], CONTENT);
    let null = send(&server, "<>", &["<later2@d.test>"], CONTENT);
    for name in ["later1", "later2"] {
        any_line(&mut server, &[name, "stat=Deferred: 451"]);
    }
    server.rests();
    // A held recipient is bounced like a waiting one.
    let held = server.control(&["queue", "hold", &null], b"");
    assert!(held.status.success(), "{}", text(&held));
    let output = server.control(&["queue", "bounce", "--all", "--json"], b"");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let last: Value = serde_json::from_str(said.lines().last().expect("a line")).expect("an object");
    let figures = ["ok", "messages", "recipients", "active", "unchanged"].map(|name| last[name].clone());
    assert_eq!(figures, [Value::from(true), 2.into(), 2.into(), 0.into(), 0.into()], "{said}");
    let mails = hop.wait(1);
    ends_empty(server);
    assert_eq!(hop.count(), 1);
    assert!(mails[0].to().starts_with("postmaster@"), "{}", mails[0].to());
    assert!(Report::of(&mails[0]).words.contains("Given up by the postmaster"), "{}", mails[0].text());
}

#[test]
fn what_is_being_delivered_is_left_alone() {
    let (hop, gate) = Hop::gated_at_dot();
    let mut server = relay(&[&hop]).set("delivery.pipelining", "false").start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    poll("it is being delivered", || {
        let output = server.control(&["queue", "list", "--state", "active", "--json"], b"");
        (!output.stdout.is_empty()).then_some(())
    });
    let left = "nothing to do\n1 recipient being delivered right now, and left alone\n";
    assert_eq!(bounce(&server, &["--all", "--dry-run"]), left);
    assert_eq!(bounce(&server, &["--all"]), left);
    gate.store(true, Ordering::Release);
    wait_line(&mut server, &["to=<b@d.test>", "stat=Sent"]);
    ends_empty(server);
    assert_eq!(hop.count(), 1, "and no report");
}
