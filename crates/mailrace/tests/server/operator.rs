//! The control socket of the running server: `status` and `smtp`.

use crate::client::greeted;
use crate::harness::{Setup, control, text};

#[test]
fn status_counts() {
    let server = Setup::new().start();
    let mut client = greeted(server.address());
    client.message(b"one\r\n");
    client.message(b"two\r\n");
    client.envelope();
    client.expect("DATA", "354");
    client.send(b"Received: x\r\n".repeat(60).as_slice());
    client.send(b".\r\n");
    assert!(client.reply().starts_with("554 5.4.6"));
    let output = server.control(&["status", "--json"], b"");
    assert!(output.status.success(), "{}", text(&output));
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let number = |place: &str| status.pointer(place).and_then(serde_json::Value::as_u64);
    assert_eq!(number("/messages/accepted"), Some(2), "{status}");
    assert_eq!(number("/messages/refused"), Some(1), "{status}");
    assert_eq!(number("/connections/open"), Some(1), "{status}");
    assert_eq!(number("/connections/total"), Some(1), "{status}");
    assert_eq!(number("/spool/messages"), Some(2), "{status}");
    assert_eq!(number("/pid"), Some(server.pid().into()));
    assert_eq!(status["listen"], serde_json::json!([server.address().to_string()]));
    assert_eq!(status["hostname"], "mx.test");
    let said = text(&server.control(&["status"], b""));
    assert!(said.contains("messages     2 accepted, 1 refused; ") && said.contains("1 of 10,000 open"), "{said}");
}

#[test]
fn a_session_over_standard_input() {
    let mut server = Setup::new().set("relay.from", "[]").start();
    let input = "EHLO me\nMAIL FROM:<root@mx.test>\nRCPT TO:<a@elsewhere.test>\nDATA\nSubject: x\n\n.\nQUIT\n"
        .replace('\n', "\r\n");
    let output = server.control(&["smtp"], input.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let said = text(&output);
    assert!(
        said.starts_with("220 mx.test ESMTP") && said.contains("\r\n250 2.0.0 ") && said.contains("\r\n221 "),
        "{said}"
    );
    assert!(!said.contains("STARTTLS") && !said.contains("AUTH"), "{said}");
    let line = server.wait_log("from=<root@mx.test>");
    assert!(line.contains("daemon=stdin, relay=root@localhost"), "{line}");
    // Input that ends in the middle is no message.
    let output =
        server.control(&["smtp"], b"EHLO me\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\nhalf\r\n");
    assert!(!text(&output).contains("250 2.0.0 "), "{}", text(&output));
    let letters = server.letters_after_kill();
    assert_eq!(letters.len(), 1);
    let trace = letters[0].trace();
    assert!(trace.starts_with("Received: ") && trace.contains(" by mx.test (mailrace)"), "{trace}");
    assert!(letters[0].content.ends_with(b"Subject: x\r\n\r\n"), "{}", letters[0].content.escape_ascii());
}

#[test]
fn many_ask_at_once() {
    let server = Setup::new().start();
    let path = &server.setup.path("control");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(control(path, &["status"], b"").status.success()));
        }
        // One reload at a time; who comes second may have to ask again.
        let reloads: Vec<_> = (0..3).map(|_| scope.spawn(|| control(path, &["reload"], b"").status.code())).collect();
        for reload in reloads {
            assert!(matches!(reload.join().expect("it ends"), Some(0 | 75)));
        }
    });
}
