//! Milters as Debian has them that judge by the work of others: opendmarc reads the results of this server,
//! spamass-milter asks SpamAssassin.

use super::programs::{Running, run_on_socket, spamd, write};
use super::senders::{checking, from, reply};
use crate::hop::Hop;
use crate::world::{ends_empty, lines, send};
use std::process::Command;
use testkit::client::{greeted, id};
use testkit::harness::needs;
use testkit::name_server::NameServer;

/// Settings of a milter on a UNIX socket.
fn on_socket(path: &std::path::Path) -> String {
    format!("kind = \"milter\", address = \"unix:{}\"", path.display())
}

#[test]
fn opendmarc_reads_the_results_of_this_server() {
    let Some(program) = needs::program("opendmarc") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let (socket, history) = (directory.path().join("socket"), directory.path().join("history"));
    let ignored = write(directory.path(), "ignored", "192.0.2.99\n");
    let settings = format!(
        "Socket local:{}\nAuthservID opendmarc.test\nTrustedAuthservIDs mx.test\nHistoryFile {}\nIgnoreHosts {ignored}\n\
         SPFSelfValidate false\nSyslog false\nBackground false\nRejectFailures false\nRecordAllMessages true\n",
        socket.display(),
        history.display(),
    );
    let config = write(directory.path(), "conf", &settings);
    let _running = run_on_socket(Command::new(program).args(["-f", "-c", &config]), &socket);
    let (hop, names) = (Hop::good(), NameServer::start(super::senders::ZONE));
    let server = checking(&hop, &names, &[", filters = [\"dmarc\"]"])
        .set("filter", format!("[{{name = \"dmarc\", {}}}]", on_socket(&socket)))
        .start();
    id(&reply(server.address(), "192.0.2.1", "x@a.test", &from("x@a.test")));
    id(&reply(server.address(), "192.0.2.2", "x@a.test", &from("x@a.test")));
    let mails = hop.wait(2);
    for mail in &mails {
        let text = mail.text();
        assert!(text.contains("Authentication-Results: opendmarc.test; dmarc="), "{text}");
        assert!(text.contains("Authentication-Results: mx.test;\r\n\tiprev="), "{text}");
    }
    let log = ends_empty(server).log;
    assert!(lines(&log, &["screen=not_judged"]).is_empty(), "{log:#?}");
    // SPF of the first message passed (0), that of the second one failed (7).
    let history = std::fs::read_to_string(history).expect("a history");
    let spf: Vec<&str> = history.lines().filter_map(|line| line.strip_prefix("spf ")).collect();
    assert_eq!(spf, ["0", "7"], "{history}");
    assert_eq!(history.matches("\nfrom a.test\n").count(), 2, "{history}");
}

#[test]
fn spamass_milter_marks_and_rejects_spam() {
    let (Some(program), Some(_)) = (needs::program("spamass-milter"), needs::program("spamc")) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let Some((_spamd, address)) = spamd(directory.path()) else { return };
    let hop = Hop::good();
    let run = |name: &str, options: &[&str]| -> (Running, String) {
        let socket = directory.path().join(name);
        let mut command = Command::new(&program);
        command
            .arg("-p")
            .arg(&socket)
            .args(options)
            .args(["--", "-d", "127.0.0.1", "-p"])
            .arg(address.port().to_string());
        (run_on_socket(&mut command, &socket), on_socket(&socket))
    };
    let spam = b"Subject: x\r\n\r\na test pattern of spamd\r\n";
    let (_marks, filter) = run("marks", &["-m"]);
    let server = super::filtered(&hop, &[("spam", filter)]).start();
    send(&server, "a@client.test", &["b@example.com"], spam);
    send(&server, "a@client.test", &["b@example.com"], b"X-Spam-Flag: YES\r\nSubject: y\r\n\r\nhello\r\n");
    let mails = hop.wait(2);
    let of = |subject: &str| mails.iter().map(|mail| mail.text()).find(|text| text.contains(subject)).expect("it came");
    let found = of("Subject: x");
    assert!(
        found.contains("\r\nX-Spam-Flag: YES\r\n") && found.contains("\r\nX-Spam-Status: Yes, score=7.5 "),
        "{found}"
    );
    let found = of("Subject: y");
    assert!(!found.contains("X-Spam-Flag: YES") && found.contains("\r\nX-Spam-Status: No, "), "{found}");
    let log = ends_empty(server).log;
    assert!(lines(&log, &["screen=not_judged"]).is_empty(), "{log:#?}");
    let (_rejects, filter) = run("rejects", &["-m", "-r", "7"]);
    let server = super::filtered(&hop, &[("spam", filter)]).start();
    let mut client = greeted(server.address());
    client.envelope();
    client.expect("DATA", "354");
    client.send(spam);
    client.send(b".\r\n");
    let refusal = client.reply();
    assert!(refusal.starts_with("550 5.7.1 Blocked by SpamAssassin"), "{refusal}");
    client.quit();
    let log = ends_empty(server).log;
    assert_eq!(lines(&log, &["screen=reject", "by=spam"]).len(), 1, "{log:#?}");
}
