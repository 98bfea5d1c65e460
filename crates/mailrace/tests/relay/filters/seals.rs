//! ARC sets on forwarded mail: dkimpy verifies them, broken chains are not continued, and sets of trusted sealers make
//! up for a failed DMARC.

use super::senders::{ZONE, checking, from, reply, results};
use crate::hop::Hop;
use crate::world::{any_line, ends_empty};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::client::id;
use testkit::harness::program;
use testkit::name_server::NameServer;
use testkit::needs;

/// Verifies the chain of a message with dkimpy: prints its result and the reason. dkimpy refuses Ed25519 in a chain by
/// this table alone, which knows RSA; what it does with a signature is the same as for DKIM.
const DKIMPY: &str = "\
import sys, hashlib, dkim, dkim.crypto
dkim.crypto.ARC_HASH_ALGORITHMS[b'ed25519-sha256'] = hashlib.sha256
records = dict(line.split(' TXT ') for line in open(sys.argv[1]).read().splitlines() if ' TXT ' in line)
def dns(name, timeout=5):
    name = name.decode() if isinstance(name, bytes) else name
    return records.get(name.rstrip('.'), '').encode()
result, _, reason = dkim.ARC(sys.stdin.buffer.read()).verify(dnsfunc=dns)
print(result.decode(), reason)
";

/// Returns what dkimpy finds; `None`: it is not installed.
#[track_caller]
fn arcverify(zone: &Path, content: &[u8]) -> Option<String> {
    let python = "/usr/bin/python3";
    for (module, package) in [("dkim", "python3-dkim"), ("nacl", "python3-nacl")] {
        let import = format!("import {module}");
        if !Command::new(python).args(["-c", &import]).output().is_ok_and(|output| output.status.success()) {
            needs::skip(package, "is not installed");
            return None;
        }
    }
    let mut command = Command::new(python);
    command.args(["-c", DKIMPY]).arg(zone).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 runs");
    child.stdin.take().expect("a pipe").write_all(content).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).split_whitespace().next().map(str::to_owned)
}

/// Makes a key for mx.test; its table for the configuration, and its line for the zone.
fn key(place: &Path, selector: &str, algorithm: &str) -> (String, String) {
    let file = place.join(format!("{selector}.pem"));
    let output = program()
        .args(["dkim", "generate", "--json", "--domain", "mx.test", "--selector", selector])
        .args(["--algorithm", algorithm, "--out"])
        .arg(&file)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    let table = format!("{{ domain = \"mx.test\", selector = {selector:?}, file = {file:?}, sign = false }}");
    (table, format!("{} TXT {}\n", text("name"), text("text")))
}

/// A zone with the keys of mx.test, in a file, and their tables.
fn zone(place: &Path) -> (String, String) {
    let (rsa, rsa_record) = key(place, "rsa", "rsa2048");
    let (ed, ed_record) = key(place, "ed", "ed25519");
    let zone = format!("{ZONE}{rsa_record}{ed_record}");
    std::fs::write(place.join("zone"), &zone).expect("written");
    (zone, format!("[{rsa}, {ed}]"))
}

// RFC 8617 §5.1 (test)
#[test]
fn sets_of_forwarded_mail_are_verified_by_dkimpy() {
    let place = tempfile::tempdir().expect("a directory");
    let (zone, keys) = zone(place.path());
    let file = place.path().join("zone");
    for selector in ["rsa", "ed"] {
        let (hop, names) = (Hop::good(), NameServer::start(&zone));
        let setup = checking(&hop, &names, &[""]).set("dkim.key", &keys).set("arc.seal", "true");
        let mut server = setup.set("arc.selector", format!("\"{selector}\"")).start();
        id(&reply(server.address(), "192.0.2.1", "x@a.test", &from("x@a.test")));
        let first = hop.wait(1)[0].text();
        assert!(first.starts_with("ARC-Seal: i=1; a=") && first.contains(" cv=none;"), "{first}");
        assert!(first.contains("\r\nARC-Authentication-Results: i=1; mx.test;\r\n\tiprev=pass"), "{first}");
        let line = any_line(&mut server, &["signature=arc", "result=ok"]);
        assert!(line.contains(&format!("domain=mx.test, selector={selector}")), "{line}");
        if let Some(found) = arcverify(&file, first.as_bytes()) {
            assert_eq!(found, "pass", "{selector}");
            // The hash of the body, and the signature of the seal.
            for (text, other) in [("hello", "hallo"), ("iprev=pass", "iprev=fail")] {
                assert_eq!(arcverify(&file, first.replace(text, other).as_bytes()).as_deref(), Some("fail"), "{text}");
            }
        }
        id(&reply(server.address(), "192.0.2.3", "x@soft.test", first.as_bytes()));
        let second = hop.wait(2)[1].text();
        assert!(second.starts_with("ARC-Seal: i=2; a=") && second.contains(" cv=pass;"), "{second}");
        assert!(second.contains("\r\n\tarc=pass\r\n\t header.d=mx.test"), "{second}");
        if let Some(found) = arcverify(&file, second.as_bytes()) {
            assert_eq!(found, "pass", "{selector}");
        }
        // A broken chain is not continued, and mail of own users has no chain.
        let broken = second.replace("hello", "hallo");
        id(&reply(server.address(), "192.0.2.3", "x@soft.test", broken.as_bytes()));
        let third = hop.wait(3)[2].text();
        assert!(third.contains("\tarc=fail") && !third.contains("ARC-Seal: i=3"), "{third}");
        id(&reply(server.address(), "198.51.100.7", "x@a.test", &from("x@a.test")));
        assert!(!hop.wait(4)[3].text().contains("ARC-"), "{}", hop.wait(4)[3].text());
        let counts = &server.whole_status()["signatures"];
        assert_eq!((counts["arc"]["made"].as_u64(), counts["dkim"]["made"].as_u64()), (Some(2), Some(0)), "{counts}");
        ends_empty(server);
    }
}

// RFC 8617 §7.2.1 (test)
#[test]
fn trusted_sealers_make_up_for_a_failed_dmarc() {
    let place = tempfile::tempdir().expect("a directory");
    let (zone, keys) = zone(place.path());
    let (hop, names) = (Hop::good(), NameServer::start(&zone));
    let sealing = checking(&hop, &names, &[""]).set("dkim.key", &keys).set("arc.seal", "true").start();
    // One message that DMARC passed there, and one that failed.
    id(&reply(sealing.address(), "192.0.2.1", "x@bank.test", &from("x@bank.test")));
    id(&reply(sealing.address(), "192.0.2.1", "x@a.test", &from("x@bank.test")));
    let mails = hop.wait(2);
    let (good, forged) = (mails[0].text(), mails[1].text());
    ends_empty(sealing);
    let strict = |trusted: &str| {
        let hop = Hop::good();
        let setup = checking(&hop, &names, &[", dmarc_reject = \"reject\""]);
        (setup.set("auth_results.trusted_arc_sealers", format!("[{trusted}]")).start(), hop)
    };
    let send = |address, content: &str| reply(address, "192.0.2.3", "x@soft.test", content.as_bytes());
    let (mut server, hop) = strict("\"mx.test\"");
    id(&send(server.address(), &good));
    let (found, _) = results(&hop.wait(1)[0].text());
    assert!(
        found.contains("\ndmarc=pass reason=\"arc=pass of mx.test, which is trusted, in place of fail\""),
        "{found}"
    );
    any_line(&mut server, &["auth=pass", "author=bank.test", "why=dmarc: arc=pass of mx.test in place of fail"]);
    assert!(send(server.address(), &forged).starts_with("550 5.7.1 "), "DMARC failed before, too");
    assert!(send(server.address(), &good.replace("hello", "hallo")).starts_with("550 5.7.1 "), "changed mail");
    ends_empty(server);
    let (server, _hop) = strict("\"other.test\"");
    assert!(send(server.address(), &good).starts_with("550 5.7.1 "), "a stranger has sealed it");
    ends_empty(server);
}
