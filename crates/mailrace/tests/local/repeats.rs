//! Mail whose `Delivered-To:` fields say that it was here before: a client outside cannot make the server send reports
//! with them, and loops end.

use crate::office::{As, NOBODY, is_skipped, line, start, with_boxes};
use std::io::Write as _;
use std::process::Stdio;
use testkit::client::greeted;
use testkit::harness::{Server, Setup, letters, program};

const FIELD: &str = "Delivered-To: nobody@x.test\r\n";

fn setup() -> Setup {
    let setup = with_boxes(NOBODY).set("local.domains", "[\"x.test\"]");
    let aliases = setup.path("aliases");
    std::fs::write(&aliases, "info: nobody\nfar: nobody, ann@x.far.test\nprog: \"|keep out\"\n").expect("written");
    setup.set("maps.aliases", format!("[{aliases:?}]"))
}

/// Sends a message from outside, and returns the last reply.
fn send(server: &Server, recipients: &[&str], header: &str) -> String {
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<forged@victim.test>", "250 2.1.0");
    for recipient in recipients {
        client.expect(&format!("RCPT TO:<{recipient}@x.test>"), "250 2.1.5");
    }
    client.expect("DATA", "354 ");
    client.send(format!("{header}Subject: x\r\n\r\nx\r\n.\r\n").as_bytes());
    let reply = client.reply();
    client.quit();
    reply
}

#[test]
fn mail_that_all_its_recipients_had_is_refused_at_the_end_of_data() {
    if is_skipped() {
        return;
    }
    let mut server = start(setup(), As::Us);
    let two = format!("{FIELD}DELIVERED-to :\r\n <Nobody+b@X.test>\r\n");
    let program = "Delivered-To: prog@x.test\r\n";
    for (recipients, header) in [
        (&["nobody"][..], FIELD),
        (&["info"], FIELD),
        (&["info", "nobody"], FIELD),
        (&["nobody+b", "nobody"], &two),
        (&["prog"], program),
    ] {
        let reply = send(&server, recipients, header);
        assert!(reply.starts_with("554 5.4.6 <"), "{recipients:?} {header}: {reply}");
    }
    line(&mut server, &["ruleset=check_eom", "reject=554 5.4.6"]);
    for (recipients, header) in [
        (&["nobody", "nobody+b"][..], FIELD),
        (&["far"], FIELD),
        (&["nobody"], "Delivered-To: nobody+b@x.test\r\n"),
        (&["nobody"], "X-Delivered-To: nobody@x.test\r\n"),
        (&["nobody"], "Subject: y\r\n\r\nDelivered-To: nobody@x.test\r\n"),
    ] {
        let reply = send(&server, recipients, header);
        assert!(reply.starts_with("250 "), "{recipients:?} {header}: {reply}");
    }
    assert!(server.stop().status.success());
}

#[test]
fn no_field_from_outside_makes_a_report() {
    if is_skipped() {
        return;
    }
    let setup = setup();
    let (boxes, spool, directory) = (setup.path("boxes"), setup.path("spool"), setup.dir.clone());
    let mut server = start(setup.set("delivery.mode", "\"background\""), As::Us);
    assert!(send(&server, &["nobody", "nobody+b"], FIELD).starts_with("250 "));
    line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
    assert!(send(&server, &["nobody", "nobody+b"], &FIELD.repeat(10)).starts_with("250 "));
    line(&mut server, &["to=<nobody@x.test>", "dsn=5.4.6", "stat=mail forwarding loop for nobody@x.test"]);
    // A user of this machine may send on a message that he got.
    let mut command = program();
    command.args(["sendmail", "-f", "root@mx.test", "nobody@x.test"]).stdin(Stdio::piped());
    let mut child = command.env("MAILRACE_CONFIG", directory.path().join("mailrace.toml")).spawn().expect("it runs");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(format!("{FIELD}Subject: redirected\n\n").replace('\r', "").as_bytes()).expect("it reads");
    drop(input);
    assert!(child.wait().expect("it ends").success());
    line(&mut server, &["to=<nobody@x.test>", "ctladdr=<root@mx.test>", "stat=Sent"]);
    server.rests();
    assert!(server.stop().status.success());
    let text = std::fs::read_to_string(boxes.join("nobody")).expect("a mailbox");
    assert_eq!(text.matches("\nSubject: x\n").count(), 3, "all but the one that was given up: {text}");
    assert_eq!(text.matches("\nSubject: redirected\n").count(), 1, "{text}");
    let left = letters(&spool);
    assert!(left.is_empty(), "a report to somebody whom anybody can name: {left:?}");
}
