//! Milters as Debian has them that judge by the work of others: opendmarc reads the results of this server,
//! spamass-milter asks SpamAssassin.

use super::programs::{Running, run_on_socket, spamd, write};
use super::senders::{checking, from, reply};
use crate::hop::Hop;
use crate::world::{ends_empty, lines, send};
use std::process::{Command, Stdio};
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

/// A shell that runs a program with the name servers of a file.
const WITH_RESOLV_CONF: &str = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";

/// Runs opendmarc, whose DNS is this one; `None`: that is not possible here.
fn opendmarc_with_dns(directory: &std::path::Path, names: &NameServer, more: &str) -> Option<(Running, String)> {
    let program = needs::program("opendmarc")?;
    let own = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !own.is_ok_and(|status| status.success()) {
        needs::skip("unshare -m", "is not allowed");
        return None;
    }
    let socket = directory.join("socket");
    let resolv_conf = write(directory, "resolv.conf", &format!("nameserver {}\n", names.address.ip()));
    let ignored = write(directory, "ignored", "192.0.2.99\n");
    let settings = format!(
        "Socket local:{}\nAuthservID opendmarc.test\nTrustedAuthservIDs mx.test\nIgnoreHosts {ignored}\n\
         SPFSelfValidate false\nSyslog false\nBackground false\nDNSTimeout 5\n{more}",
        socket.display(),
    );
    let config = write(directory, "conf", &settings);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", WITH_RESOLV_CONF, &resolv_conf]).arg(program).args(["-f", "-c", &config]);
    Some((run_on_socket(&mut command, &socket), on_socket(&socket)))
}

/// The result and the policy of DMARC in a field of this server or of opendmarc: `fail reject`.
fn dmarc_of(text: &str, id: &str) -> String {
    let field = text.split("Authentication-Results: ").find(|field| field.starts_with(id)).unwrap_or_default();
    let result = field.split("dmarc=").nth(1).and_then(|rest| rest.split([' ', ';', '\r']).next());
    let found = ["p=reject", "policy.dmarc=reject", "p=quarantine", "policy.dmarc=quarantine"];
    let policy = found.iter().find(|one| field.contains(*one)).and_then(|one| one.split('=').nth(1));
    format!("{} {}", result.unwrap_or("no field"), policy.unwrap_or_default())
}

#[test]
fn opendmarc_judges_by_the_published_policy_as_this_server_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(names) = NameServer::on_port_53(super::senders::ZONE) else {
        return needs::skip("port 53", "may not be used by this user");
    };
    let hop = Hop::good();
    let messages = [
        ("192.0.2.1", "x@bank.test", "x@bank.test", "pass"),
        ("192.0.2.2", "x@a.test", "x@bank.test", "fail"),
        // With relaxed alignment opendmarc of Debian takes all of .test for one organisation.
        ("192.0.2.1", "x@a.test", "x@strict.test", "fail"),
        ("192.0.2.2", "x@a.test", "x@mild.test", "fail"),
        ("192.0.2.1", "x@a.test", "x@a.test", "none"),
    ];
    // Without a decision of its own, opendmarc writes what it found.
    let Some((running, filter)) = opendmarc_with_dns(directory.path(), &names, "RejectFailures false\n") else {
        return;
    };
    let start = |filter: &str, effect: &str| {
        checking(&hop, &names, &[", filters = [\"dmarc\"]"])
            .set("auth_results.dmarc_reject", format!("{effect:?}"))
            .set("filter", format!("[{{name = \"dmarc\", {filter}}}]"))
            .start()
    };
    let server = start(&filter, "none");
    for (number, (ip, sender, author, result)) in messages.into_iter().enumerate() {
        id(&reply(server.address(), ip, sender, &from(author)));
        let text = hop.wait(number + 1)[number].text();
        let (ours, theirs) = (dmarc_of(&text, "mx.test"), dmarc_of(&text, "opendmarc.test"));
        assert!(ours.starts_with(result), "{author}: {text}");
        assert_eq!(ours.split(' ').next(), theirs.split(' ').next(), "{author}: {text}");
        if result == "fail" {
            assert_eq!(ours, theirs, "{author}: {text}");
        }
    }
    ends_empty(server);
    drop(running);
    // Its refusal is passed on, of the messages that this server refuses by itself.
    let directory = tempfile::tempdir().expect("a directory");
    let Some((_running, filter)) = opendmarc_with_dns(directory.path(), &names, "RejectFailures true\n") else {
        return;
    };
    let (theirs, ours) = (start(&filter, "none"), start(&filter, "reject"));
    for (ip, sender, author, _) in messages {
        let replies = [&theirs, &ours].map(|server| reply(server.address(), ip, sender, &from(author)));
        let domain = author.trim_start_matches("x@");
        let is_refused = sender == "x@a.test" && matches!(domain, "bank.test" | "strict.test");
        let said = |text: &str| if is_refused { format!("550 5.7.1 {text}{domain}") } else { "250 2.0.0".to_owned() };
        let wanted = said("rejected by DMARC policy for ");
        assert!(replies[0].starts_with(&wanted), "{author}: {replies:?}");
        let wanted = said("Refused by the DMARC policy of ");
        assert!(replies[1].starts_with(&wanted), "{author}: {replies:?}");
    }
    let log = ends_empty(theirs).log;
    assert_eq!(lines(&log, &["screen=reject", "by=dmarc", "rejected by DMARC policy for "]).len(), 2, "{log:#?}");
    ends_empty(ours);
}

#[test]
fn spamass_milter_marks_and_rejects_spam() {
    let (Some(program), Some(_)) = (needs::program("spamass-milter"), needs::program("spamc")) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let Some((_spamd, address)) = spamd(directory.path()) else { return };
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let hop = Hop::good();
    let run = |name: &str, options: &[&str]| -> (Running, String) {
        let socket = directory.path().join(name);
        let mut command = Command::new(&program);
        command.arg("-p").arg(&socket).args(options).args(["--", "-d", &ip, "-p", &port]);
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
