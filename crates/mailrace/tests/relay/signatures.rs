//! DKIM signatures as next hops get them: other implementations verify them, whatever form the content has, and see
//! each change.

use crate::hop::{Act, At, Hop, Mail, Manners, Moment};
use crate::world::{ends_empty, relay, send};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use testkit::client::stuffed;
use testkit::harness::{program, run_with_input};
use testkit::needs;

/// A key in a file, and the TXT record that `mailrace dkim generate` prints for it.
struct Key {
    name: String,
    text: String,
    value: String,
}

/// Makes a key for example.org.
#[track_caller]
fn key(place: &Path, selector: &str, algorithm: &str) -> Key {
    let file = place.join(format!("{selector}.pem"));
    let output = program()
        .args(["dkim", "generate", "--json", "--domain", "example.org", "--selector", selector])
        .args(["--algorithm", algorithm, "--out"])
        .arg(&file)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    let value = format!("{{ domain = \"example.org\", selector = {selector:?}, file = {file:?} }}");
    Key { name: text("name"), text: text("text"), value }
}

/// The interpreter that finds the packages of Debian.
const PYTHON: &str = "/usr/bin/python3";

/// Verifies each signature of a message with dkimpy: prints `True` or `False` for each.
const DKIMPY: &str = "\
import sys, dkim
records = dict(line.split('\\t') for line in open(sys.argv[1]).read().splitlines())
def dns(name, timeout=5):
    name = name.decode() if isinstance(name, bytes) else name
    return records.get(name.rstrip('.'), '').encode()
verifier = dkim.DKIM(sys.stdin.buffer.read())
for number in range(int(sys.argv[2])):
    try:
        print(verifier.verify(number, dnsfunc=dns))
    except dkim.DKIMException as error:
        print(False, error)
";

/// Returns which of the first two signatures dkimpy accepts.
#[track_caller]
fn dkimpy(place: &Path, keys: &[Key], content: &[u8]) -> Vec<bool> {
    use std::io::Write as _;
    let records: String = keys.iter().map(|key| format!("{}\t{}\n", key.name, key.text)).collect();
    let file = place.join("records");
    std::fs::write(&file, records).expect("written");
    let mut child = Command::new(PYTHON)
        .args(["-c", DKIMPY])
        .arg(&file)
        .arg(keys.len().to_string())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3 runs");
    child.stdin.take().expect("a pipe").write_all(content).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.starts_with("True")).collect()
}

/// Returns whether opendkim accepts a signature of each key.
#[track_caller]
fn opendkim(place: &Path, program: &Path, keys: &[Key], content: &[u8]) -> bool {
    let (records, file) = (place.join("opendkim.keys"), place.join("message"));
    let text: String = keys.iter().map(|key| format!("{} {}\n", key.name, key.text)).collect();
    std::fs::write(&records, text).expect("written");
    std::fs::write(&file, content).expect("written");
    let conf = place.join("opendkim.conf");
    std::fs::write(&conf, format!("TestPublicKeys {}\nMode v\nSyslog no\n", records.display())).expect("written");
    let output = Command::new(program).arg("-x").arg(&conf).arg("-vv").arg("-t").arg(&file).output().expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("dkim="), "{said}");
    said.matches("dkim=pass").count() == keys.len()
}

fn dkimpy_is_there() -> bool {
    let asked = Command::new(PYTHON).args(["-c", "import dkim, nacl"]).output();
    let is_there = asked.is_ok_and(|output| output.status.success());
    if !is_there {
        needs::skip("python3-dkim", "is not installed");
    }
    is_there
}

const FIELDS: &str = "From: \"A B\" <a@news.example.org>\r\nTo: b@d.test,\r\n\tc@d.test\r\nSubject:  two   blanks \r\n \tand a fold\r\n\
                      Date: Thu, 1 Jan 2026 00:00:00 +0000\r\nMessage-ID: <1@example.org>\r\n";

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let long_ids: Vec<String> = (0..40).map(|number| format!("<{}@{number}.client.test>", "x".repeat(40))).collect();
    let text = |rest: &str| format!("{FIELDS}{rest}").into_bytes();
    vec![
        ("plain", text("\r\nHello\r\n")),
        ("blanks", text("\r\n \t a  b \t \r\n\r\n  \r\n\t\r\n\r\n")),
        ("empty body", text("\r\n")),
        ("blank lines", text("\r\n\r\n\r\n")),
        ("dots", text("\r\n.\r\n..\r\n...a\r\n")),
        (
            "lists",
            text(
                "List-Id: <l.example.org>\r\nList-Unsubscribe: <https://example.org/u>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\nReply-To: c@d.test\r\nReply-To: e@d.test\r\n\r\nx\r\n",
            ),
        ),
        (
            "eight bit",
            text(
                "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\ngr\u{fc}\u{df}e  \r\n",
            ),
        ),
        ("long lines", text(&format!("References: {}\r\n\r\n{}\r\n", long_ids.join(" "), "y".repeat(3_000)))),
        ("large", text(&format!("\r\n{}", "0123456789 abcdef  \r\n".repeat(40_000)))),
    ]
}

/// Sends all messages to a hop with these extensions, and returns what arrived.
fn arrived(keys: &[Key], offers: &[&'static str]) -> Vec<(&'static str, Arc<Mail>)> {
    let hop = Hop::new(Manners::offering(offers));
    let values: Vec<&str> = keys.iter().map(|key| key.value.as_str()).collect();
    // The large ones are read from the disk.
    let server =
        relay(&[&hop]).set("dkim.key", format!("[{}]", values.join(", "))).set("spool.cache_bytes", "\"64KiB\"");
    let server = server.start();
    let mut found = Vec::new();
    for (number, (name, content)) in messages().into_iter().enumerate() {
        send(&server, "<a@client.test> BODY=8BITMIME", &["b@d.test"], &stuffed(&content));
        let mails = hop.wait(number + 1);
        let mail = Arc::clone(&mails[number]);
        if offers.contains(&"SIZE") {
            assert!(mail.mail.contains(&format!("SIZE={}", mail.content.len())), "{name}: {}", mail.mail);
        }
        found.push((name, mail));
    }
    ends_empty(server);
    found
}

// RFC 6376 §3.7 (test), RFC 8463 §3 (test)
#[test]
fn other_implementations_verify_signatures_and_see_changes() {
    let place = tempfile::tempdir().expect("a directory");
    let keys = [key(place.path(), "rsa", "rsa2048"), key(place.path(), "ed", "ed25519")];
    let has_dkimpy = dkimpy_is_there();
    let opendkim_program = needs::program("opendkim");
    for offers in [&["PIPELINING", "8BITMIME", "SIZE"][..], &["CHUNKING", "SIZE"]] {
        for (name, mail) in arrived(&keys, offers) {
            let content = &mail.content;
            let text = String::from_utf8_lossy(content);
            assert!(
                text.starts_with("DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=example.org;"),
                "{text:.200}"
            );
            assert!(text.contains("\r\nDKIM-Signature: v=1; a=ed25519-sha256;"), "{name}");
            let changed = {
                let mut changed = content.clone();
                let at = changed.windows(9).position(|found| found == b"Subject: ").expect("it has one");
                changed.splice(at..at, b"Subject: another\r\n".iter().copied());
                changed
            };
            if has_dkimpy {
                assert_eq!(dkimpy(place.path(), &keys, content), [true, true], "{name} {offers:?}");
                let added = [content.as_slice(), b"more\r\n"].concat();
                assert_eq!(dkimpy(place.path(), &keys, &added), [false, false], "{name}: a changed body");
                assert_eq!(dkimpy(place.path(), &keys, &changed), [false, false], "{name}: a second Subject");
            }
            if let Some(program) = &opendkim_program {
                assert!(opendkim(place.path(), program, &keys, content), "{name} {offers:?}");
                assert!(!opendkim(place.path(), program, &keys, &changed), "{name}: a second Subject");
            }
        }
    }
}

#[test]
fn mail_of_others_is_not_signed_and_reports_are() {
    let place = tempfile::tempdir().expect("a directory");
    let keys = [key(place.path(), "ed", "ed25519")];
    let refuses = |moment: &Moment<'_>| match moment.at {
        At::Rcpt if moment.line.contains("bad@") => Act::Say("550 5.1.1 no such user"),
        _ => Act::Well,
    };
    let hop = Hop::new(Manners::default().script(refuses));
    let server = relay(&[&hop])
        .set("dkim.key", format!("[{}]", keys[0].value))
        .set("hostname", "\"mx.example.org\"")
        .set("accept.xclient", "[\"127.0.0.0/8\"]")
        .set("relay.to", "[\"d.test\"]");
    let mut server = server.start();
    let content = |from: &str| format!("From: {from}\r\nSubject: x\r\n\r\nx\r\n").into_bytes();
    let is_signed = |number: usize| hop.wait(number + 1)[number].text().contains("DKIM-Signature:");
    send(&server, "a@example.org", &["b@d.test"], &content("a@example.org"));
    assert!(is_signed(0));
    server.wait_log(": signature=dkim, domain=example.org, selector=ed, result=ok");
    for (number, from) in
        ["a@other.test", "a@badexample.org", "a@example.org\r\nFrom: b@example.org"].iter().enumerate()
    {
        send(&server, "a@example.org", &["b@d.test"], &content(from));
        assert!(!is_signed(number + 1), "{from}");
    }
    // The report about a recipient that is refused comes from mx.example.org.
    send(&server, "a@client.test", &["bad@d.test"], &content("a@other.test"));
    let report = hop.wait(5)[4].text();
    assert!(report.contains("\r\nFrom: Mail Delivery System <MAILER-DAEMON@mx.example.org>"), "{report}");
    assert!(report.starts_with("DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed; d=example.org;"), "{report}");
    // A stranger may send to d.test, in the name of anybody.
    let mut client = testkit::client::greeted(server.address());
    client.expect("XCLIENT ADDR=192.0.2.7 NAME=[UNAVAILABLE]", "220");
    client.expect("EHLO stranger.test", "250");
    crate::world::send_over(&mut client, "a@example.org", &["b@d.test"], &content("a@example.org"));
    client.quit();
    assert!(!is_signed(5), "mail of a stranger");
    let counts = &server.whole_status()["signatures"]["dkim"];
    assert_eq!(*counts, serde_json::json!({ "made": 2, "failed": 0 }), "a message and a report");
    ends_empty(server);
}

#[test]
fn keys_that_cannot_sign_refuse_start_and_check() {
    let place = tempfile::tempdir().expect("a directory");
    let (file, config) = (place.path().join("bad.pem"), place.path().join("mailrace.toml"));
    std::fs::write(&file, "no key\n").expect("written");
    let text = format!("[[dkim.key]]\ndomain = \"example.org\"\nselector = \"s\"\nfile = {file:?}\n");
    std::fs::write(&config, text).expect("written");
    let output = run_with_input(program().arg("check").arg("--config").arg(&config), "");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("mailrace.toml:4:") && said.contains("bad.pem:1: no private key in PEM"), "{said}");
}
