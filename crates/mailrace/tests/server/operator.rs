//! The control socket of the running server: `status` and `smtp`.

use testkit::client::greeted;
use testkit::harness::{Setup, control, text};

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
    let status = server.whole_status();
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
fn status_counts_what_is_refused_before_its_content_too() {
    let rule = "[{recipient = [\"no.example\"], reject = \"550 5.7.1 not there\"}]";
    let senders = Setup::new();
    std::fs::write(senders.path("access"), "From:bad.example REJECT\n").expect("written");
    let access = format!("[{:?}]", senders.path("access"));
    let mut server = senders.set("route.rule", rule).set("maps.access", access).start();
    let mut client = greeted(server.address());
    for _ in 0..3 {
        client.expect("MAIL FROM:<a@client.test>", "250");
        client.expect("RCPT TO:<b@no.example>", "550 5.7.1 not there");
        client.expect("RSET", "250");
    }
    client.expect("MAIL FROM:<a@client.test>", "250");
    client.expect("RCPT TO:<b@no.example>", "550");
    client.expect("RCPT TO:<b@example.com>", "250");
    client.data(b"taken\r\n");
    client.expect("MAIL FROM:<a@bad.example>", "5");
    client.expect("RSET", "250");
    client.quit();
    let status = server.whole_status();
    server.wait_log("ruleset=check_mail");
    let rejected = |ruleset: &str| server.log.iter().filter(|line| line.contains(ruleset)).count();
    assert_eq!((rejected("check_mail"), rejected("check_rcpt")), (1, 4), "{:#?}", server.log);
    assert_eq!(status["messages"]["accepted"], 1, "{status}");
    assert_eq!(status["messages"]["refused"], 4, "{status}");
    assert_eq!(status["recipients"]["refused"], 4, "{status}");
    let said = text(&server.control(&["status"], b""));
    assert!(said.contains("messages     1 accepted, 4 refused, 4 recipients refused; "), "{said}");
}

#[test]
fn status_says_that_the_log_cannot_be_written() {
    let server = Setup::new().set("log.path", "\"/dev/full\"").start();
    greeted(server.address()).message(b"one\r\n");
    let said = testkit::harness::poll("nothing is said of the log", || {
        let said = text(&server.control(&["status"], b""));
        said.contains("  LOG ").then_some(said)
    });
    assert!(said.contains("/dev/full cannot be written: No space left on device"), "{said}");
    let status = server.whole_status();
    let failing = &status["log"]["failing"];
    assert_eq!(failing["target"], "/dev/full", "{status}");
    assert!(failing["reason"].as_str().is_some_and(|why| why.starts_with("No space left on device")), "{status}");
    assert!(status["log"]["waiting"].as_u64().is_some_and(|lines| lines > 0), "{status}");
}

#[test]
fn a_configuration_that_is_named_relatively_has_whole_paths() {
    let mut setup = Setup::new();
    for key in ["spool.path", "control.path"] {
        let name = key.split('.').next().unwrap_or_default();
        setup = setup.set(key, format!("{name:?}"));
    }
    setup.write();
    let mut command = testkit::harness::program();
    command.args(["serve", "--config", "mailrace.toml"]).current_dir(setup.dir.path());
    let server = testkit::harness::Server::start(setup, command);
    let status = server.whole_status();
    let here = server.setup.path("spool").display().to_string();
    assert_eq!(status["spool"]["path"], here, "{status}");
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
        // One reload at a time; the second one may have to ask again.
        let reloads: Vec<_> = (0..3).map(|_| scope.spawn(|| control(path, &["reload"], b"").status.code())).collect();
        for reload in reloads {
            assert!(matches!(reload.join().expect("it ends"), Some(0 | 75)));
        }
    });
}
