//! `mailrace dkim` as a user meets it: a key, its record, the record in the DNS, and messages that others signed.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use testkit::harness::program;
use testkit::name_server::NameServer;
use testkit::needs;

/// The interpreter that finds the packages of Debian.
const PYTHON: &str = "/usr/bin/python3";

#[track_caller]
fn run(arguments: &[&str], exit: i32) -> String {
    let output = program().arg("dkim").args(arguments).output().expect("it runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

/// Makes a key of example.org, and returns its record as a line of a zone.
fn generated(place: &Path, selector: &str, algorithm: &str) -> String {
    let file = place.join(format!("{selector}.pem"));
    let file = file.to_str().expect("UTF-8");
    let arguments = [
        "generate",
        "--json",
        "--domain",
        "example.org",
        "--selector",
        selector,
        "--algorithm",
        algorithm,
        "--out",
        file,
    ];
    let made: Value = serde_json::from_str(&run(&arguments, 0)).expect("JSON");
    assert!(run(&arguments, 73).contains("name a new file"), "a key is never written over");
    let again: Value =
        serde_json::from_str(&run(&["dns", "--json", "--domain", "example.org", "--selector", selector, file], 0))
            .expect("JSON");
    assert_eq!(made, again);
    format!("{} TXT {}\n", made["name"].as_str().expect("a name"), made["text"].as_str().expect("a text"))
}

/// A configuration with two keys and this name server.
fn configuration(place: &Path, server: &NameServer) -> String {
    let mut text = format!("hostname = \"mx.example.org\"\n[dns]\nservers = [\"{}\"]\n", server.address);
    for selector in ["one", "two"] {
        let file = place.join(format!("{selector}.pem"));
        text.push_str(&format!("[[dkim.key]]\ndomain = \"example.org\"\nselector = \"{selector}\"\nfile = {file:?}\n"));
    }
    let path = place.join("mailrace.toml");
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn records_are_compared_with_the_dns() {
    let place = tempfile::tempdir().expect("a directory");
    let (one, two) = (generated(place.path(), "one", "rsa2048"), generated(place.path(), "two", "ed25519"));
    let server = NameServer::start(&format!("{one}{two}"));
    let config = configuration(place.path(), &server);
    let text = run(&["check", "--config", &config], 0);
    assert!(text.contains("one._domainkey.example.org: ok, rsa of 2048 bits"), "{text}");
    assert!(text.contains("two._domainkey.example.org: ok, ed25519"), "{text}");
    server.change(&one);
    let text = run(&["check", "--json", "--config", &config], 65);
    let states: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((states[0]["state"].as_str(), states[1]["state"].as_str()), (Some("ok"), Some("missing")));
    let text = run(&["check", "--config", &config], 65);
    assert!(text.contains("no record in the DNS; publish what \"mailrace dkim dns"), "{text}");
    let file = place.path().join("two.pem");
    let line = run(&["dns", "--config", &config, file.to_str().expect("UTF-8")], 0);
    assert!(line.starts_with("two._domainkey.example.org. IN TXT ( \"v=DKIM1; h=sha256; k=ed25519; p="), "{line}");
}

/// Signs a message with dkimpy, in each pair of canonical forms.
const SIGN: &str = "\
import sys, dkim
place, algorithm, selector, header, body = [part.encode() for part in sys.argv[1:6]]
message = sys.stdin.buffer.read()
if algorithm == b'ed25519-sha256':
    import base64
    pem = open(place + b'/' + selector + b'.pem').read().split('\\n')
    key = base64.b64encode(base64.b64decode(''.join(pem[1:-2]))[-32:])
else:
    key = open(place + b'/' + selector + b'.pem', 'rb').read()
field = dkim.sign(message, selector, b'example.org', key, canonicalize=(header, body), signature_algorithm=algorithm)
sys.stdout.buffer.write(field + message)
";

// RFC 6376 §6.1 (test)
#[test]
fn messages_that_dkimpy_signed_are_verified_and_changes_are_seen() {
    use std::io::Write as _;
    let there = Command::new(PYTHON).args(["-c", "import dkim, nacl"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        return needs::skip("python3-dkim", "is not installed");
    }
    let place = tempfile::tempdir().expect("a directory");
    let (one, two) = (generated(place.path(), "one", "rsa2048"), generated(place.path(), "two", "ed25519"));
    let server = NameServer::start(&format!("{one}{two}_dmarc.example.org TXT v=DMARC1; p=reject\n"));
    let config = configuration(place.path(), &server);
    let verified = |content: &[u8]| {
        let path = place.path().join("message");
        std::fs::write(&path, content).expect("written");
        run(&["verify", "--config", &config, path.to_str().expect("UTF-8")], 0)
    };
    let message = b"From: A <a@example.org>\r\nTo: b@d.test\r\nSubject:  two  blanks\r\n\tand a fold \r\n\r\n a  b \r\n\r\n \r\nend\r\n\r\n\r\n";
    for (algorithm, selector) in [("rsa-sha256", "one"), ("ed25519-sha256", "two")] {
        for (header, body) in
            [("relaxed", "relaxed"), ("simple", "simple"), ("relaxed", "simple"), ("simple", "relaxed")]
        {
            let mut child = Command::new(PYTHON)
                .args(["-c", SIGN])
                .arg(place.path())
                .args([algorithm, selector, header, body])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("python3 runs");
            child.stdin.take().expect("a pipe").write_all(message).expect("it reads");
            let output = child.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{output:?}");
            let signed = output.stdout;
            let text = verified(&signed);
            assert!(text.contains("dkim=pass") && text.contains("dmarc=pass"), "{algorithm} {header}/{body}: {text}");
            let changed = String::from_utf8(signed.clone()).expect("ASCII").replace("end", "End");
            let text = verified(changed.as_bytes());
            assert!(text.contains("dkim=fail") && text.contains("dmarc=fail"), "{algorithm} {header}/{body}: {text}");
            let changed = String::from_utf8(signed).expect("ASCII").replace("A <a@", "B <a@");
            assert!(verified(changed.as_bytes()).contains("dkim=fail"), "{algorithm} {header}/{body}");
        }
    }
}
