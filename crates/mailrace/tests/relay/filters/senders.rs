//! Sender authentication as others see it: the field in delivered mail, replies, the log and the counters, with records
//! in a name server on loopback and signatures of dkimpy.

use super::milter;
use super::scripted::{Act, Milter, go_on, packet};
use crate::hop::Hop;
use crate::world::{any_line, ends_empty, lines, relay};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::client::{Plain, connect, id};
use testkit::harness::{Server, Setup, program};
use testkit::name_server::NameServer;
use testkit::needs;

pub(super) const ZONE: &str = "\
a.test TXT v=spf1 ip4:192.0.2.1 -all
soft.test TXT v=spf1 ~all
neutral.test TXT v=spf1 ?all
empty.test A 192.0.2.50
twice.test TXT v=spf1 -all
twice.test TXT v=spf1 +all
open.test SERVFAIL
bank.test TXT v=spf1 ip4:192.0.2.1 -all
_dmarc.bank.test TXT v=DMARC1; p=reject; sp=quarantine
_dmarc.strict.test TXT v=DMARC1; p=reject; aspf=s; adkim=s
_dmarc.mild.test TXT v=DMARC1; p=quarantine
_dmarc.closed.test SERVFAIL
192.0.2.1 PTR mx.a.test
mx.a.test A 192.0.2.1
192.0.2.2 PTR mx.a.test
192.0.2.4 PTR mx.open.test
mx.open.test SERVFAIL
";

/// A server that checks clients which the header of a proxy names, and sends mail for d.test to this hop.
pub(super) fn checking(hop: &Hop, names: &NameServer, listeners: &[&str]) -> Setup {
    let listeners: Vec<String> = listeners
        .iter()
        .map(|more| format!("{{address = \"127.0.0.1:0\", proxy_protocol = [\"127.0.0.1\"]{more}}}"))
        .collect();
    relay(&[hop])
        .set("listen", format!("[{}]", listeners.join(", ")))
        .set("relay.to", "[\"d.test\"]")
        .set("relay.from", "[\"198.51.100.0/24\"]")
        .set("accept.reverse_dns", "true")
        .set("dns.servers", format!("[\"{}\"]", names.address))
        .set("auth_results.checks", "[\"iprev\", \"spf\", \"dkim\", \"dmarc\", \"arc\"]")
}

/// A session of a client with this address.
pub(super) fn stranger(address: SocketAddr, ip: &str) -> Plain {
    let mut client = connect(address);
    client.send(format!("PROXY TCP4 {ip} 192.0.2.250 4660 25\r\n").as_bytes());
    client.hello();
    client
}

/// Sends a message for d.test from this client; the last reply.
pub(super) fn reply(address: SocketAddr, ip: &str, sender: &str, content: &[u8]) -> String {
    let mut client = stranger(address, ip);
    client.expect(&format!("MAIL FROM:<{sender}>"), "250 2.1.0");
    client.expect("RCPT TO:<b@d.test>", "250 2.1.5");
    client.expect("DATA", "354");
    client.send(content);
    client.send(b".\r\n");
    let reply = client.reply();
    client.quit();
    reply
}

/// A message of this author.
pub(super) fn from(author: &str) -> Vec<u8> {
    format!("From: {author}\r\nTo: b@d.test\r\nSubject: x\r\n\r\nhello\r\n").into_bytes()
}

/// Returns the results on top of a delivered message, a line for each method, and the rest of the message.
#[track_caller]
pub(super) fn results(text: &str) -> (String, String) {
    let (field, rest) = text.split_once("\r\nReceived: ").expect("our trace field");
    let field = field.strip_prefix("Authentication-Results: mx.test;").unwrap_or_else(|| panic!("{text}"));
    (field.replace("\r\n\t ", " ").replace(";\r\n\t", "\n").replace("\r\n\t", ""), rest.to_owned())
}

#[test]
fn results_stand_on_top_and_in_the_log() {
    let (hop, names) = (Hop::good(), NameServer::start(ZONE));
    let mut server = checking(&hop, &names, &[""]).start();
    let rows = [
        ("192.0.2.1", "x@a.test", "x@a.test", "iprev=pass policy.iprev=192.0.2.1", "spf=pass", "dmarc=none"),
        ("192.0.2.2", "x@a.test", "x@bank.test", "iprev=fail", "spf=fail", "dmarc=fail"),
        ("192.0.2.3", "x@soft.test", "x@sub.bank.test", "iprev=permerror", "spf=softfail", "policy.dmarc=quarantine"),
        ("192.0.2.4", "x@neutral.test", "x@mild.test", "iprev=temperror", "spf=neutral", "policy.dmarc=quarantine"),
        ("192.0.2.1", "x@empty.test", "x@a.b.c.bank.test", "iprev=pass", "spf=none", "header.from=a.b.c.bank.test"),
        ("192.0.2.1", "x@twice.test", "x@closed.test", "iprev=pass", "spf=permerror", "dmarc=temperror"),
        ("192.0.2.1", "x@open.test", "x@bank.test", "iprev=pass", "spf=temperror", "dmarc=temperror"),
        // The walk up the tree finds the policy, and SPF of a domain beside it is aligned.
        ("192.0.2.1", "x@bank.test", "x@www.bank.test", "iprev=pass", "smtp.mailfrom=bank.test", "dmarc=pass"),
        ("192.0.2.1", "", "x@bank.test", "iprev=pass", "smtp.helo=client.test", "dmarc=fail"),
        ("192.0.2.1", "x@a.test", "nobody", "iprev=pass", "spf=pass", "dmarc=permerror"),
    ];
    for (number, (ip, sender, author, iprev, spf, dmarc)) in rows.iter().enumerate() {
        let answer = reply(server.address(), ip, sender, &from(author));
        let queued = id(&answer);
        let (found, rest) = results(&hop.wait(number + 1)[number].text());
        for part in [iprev, spf, &"\ndkim=none", dmarc] {
            assert!(found.contains(part), "{sender} {author}: {part} in {found}");
        }
        assert!(rest.ends_with(&String::from_utf8(from(author)).expect("ASCII")), "{rest}");
        let line = any_line(&mut server, &[&queued, "auth="]);
        let word = |text: &str| text.trim_start_matches('\n').split(' ').next().unwrap_or_default().to_owned();
        for part in [iprev, spf, dmarc].into_iter().filter(|part| !part.contains('.') || part.contains("iprev=")) {
            assert!(line.contains(&word(part)), "{line}");
        }
    }
    let counts = &server.whole_status()["sender_checks"];
    assert_eq!((counts["spf"]["pass"].as_u64(), counts["spf"]["temperror"].as_u64()), (Some(3), Some(1)), "{counts}");
    assert_eq!((counts["dkim"]["none"].as_u64(), counts["arc"]["none"].as_u64()), (Some(10), Some(10)), "{counts}");
    assert_eq!(counts["dmarc"]["temperror"], 2, "{counts}");
    let log = ends_empty(server).log;
    assert!(!lines(&log, &["auth=pass", "author=www.bank.test", "dmarc=pass"]).is_empty(), "{log:#?}");
    assert!(!lines(&log, &["auth=fail", "why=", "dmarc: no aligned pass of spf or dkim"]).is_empty(), "{log:#?}");
}

#[test]
fn mail_of_own_clients_and_other_listeners_is_not_checked() {
    let (hop, names) = (Hop::good(), NameServer::start(ZONE));
    let setup = checking(&hop, &names, &["", ", auth_results = false, name = \"off\""]);
    let server = setup.set("auth_results.dmarc_reject", "\"reject\"").start();
    let other = server.addresses[1];
    assert!(reply(server.address(), "192.0.2.1", "x@a.test", &from("x@bank.test")).starts_with("550 5.7.1 "));
    id(&reply(server.address(), "198.51.100.7", "x@a.test", &from("x@bank.test")));
    id(&reply(other, "192.0.2.1", "x@a.test", &from("x@bank.test")));
    for mail in hop.wait(2) {
        assert!(!mail.text().contains("Authentication-Results"), "{}", mail.text());
    }
    let log = ends_empty(server).log;
    assert_eq!(lines(&log, &["auth="]).len(), 1, "{log:#?}");
}

#[test]
fn fields_in_our_name_are_removed_and_no_others() {
    let (hop, names) = (Hop::good(), NameServer::start(ZONE));
    let server = checking(&hop, &names, &[""]).start();
    let forged = [
        "Authentication-Results: mx.test; dmarc=pass\r\n",
        "authentication-results:\r\n\t(a (comment)) MX.Test 1;\r\n\tspf=pass\r\n",
        "AUTHENTICATION-RESULTS : \"mx.test\" ; dkim=pass\r\n",
        "Authentication-Results: mx.test.; dkim=pass\r\n",
    ];
    let kept = "Authentication-Results: other.test; spf=pass smtp.mailfrom=mx.test\r\n";
    // In one piece, and in several, the last of which are in the spool before the end.
    for (number, lines) in [1, 5_000].into_iter().enumerate() {
        let body = "0123456789abcdef0123456789abcdef\r\n".repeat(lines);
        let own = format!("From: x@a.test\r\n{kept}Subject: x\r\n");
        let content = format!("{}{own}{}\r\n{body}", forged[..2].concat(), forged[2..].concat());
        id(&reply(server.address(), "192.0.2.1", "x@a.test", content.as_bytes()));
        let text = hop.wait(number + 1)[number].text();
        let (found, rest) = results(&text);
        assert!(found.contains("spf=pass"), "{found}");
        assert!(rest.ends_with(&format!("\r\n{own}\r\n{body}")), "{rest:.600}");
        assert_eq!(text.matches("mx.test;").count(), 1, "{text:.600}");
    }
    ends_empty(server);
}

#[test]
fn each_listener_has_its_policy() {
    let (hop, names) = (Hop::good(), NameServer::start(ZONE));
    let listeners = [
        ", dmarc_reject = \"reject\", name = \"strict\"",
        ", dmarc_reject = \"quarantine\"",
        ", spf_fail = \"reject\", iprev_fail = \"tag\"",
        ", dmarc_quarantine = \"reject\"",
    ];
    let mut server = checking(&hop, &names, &listeners).set("auth_results.dmarc_reject", "\"tag\"").start();
    let at: Vec<SocketAddr> = server.addresses.clone();
    let failed = |server: SocketAddr, ip: &str| reply(server, ip, "x@a.test", &from("x@bank.test"));
    let refusal = "550 5.7.1 Refused by the DMARC policy of bank.test: neither SPF nor DKIM vouches for it";
    assert_eq!(failed(at[0], "192.0.2.1"), refusal);
    any_line(&mut server, &["screen=reject, by=dmarc, place=listen.dmarc_reject, to=<b@d.test>", refusal]);
    any_line(&mut server, &["ruleset=check_eom", "reject=550 5.7.1 Refused by the DMARC policy"]);
    // An aligned method, or another policy of the domain: nothing follows.
    id(&reply(at[0], "192.0.2.1", "x@bank.test", &from("x@bank.test")));
    id(&reply(at[0], "192.0.2.1", "x@a.test", &from("x@sub.bank.test")));
    assert_eq!(failed(at[2], "192.0.2.9"), "550 5.7.23 SPF of a.test does not allow [192.0.2.9] to send its mail");
    let held = id(&failed(at[1], "192.0.2.1"));
    // The common policy.
    id(&failed(at[3], "192.0.2.1"));
    id(&reply(at[2], "192.0.2.9", "x@soft.test", &from("x@soft.test")));
    assert!(reply(at[3], "192.0.2.1", "x@a.test", &from("x@mild.test")).starts_with("550 5.7.1 "));
    let mails = hop.wait(4);
    let tags: Vec<String> = mails
        .iter()
        .filter_map(|mail| {
            mail.text().lines().find_map(|line| line.strip_prefix("X-Sender-Check: ").map(str::to_owned))
        })
        .collect();
    let tagged = ["dmarc=fail for bank.test, whose policy is reject", "iprev=permerror for [192.0.2.9]"];
    assert!(tagged.iter().all(|tag| tags.iter().any(|found| found == tag)) && tags.len() == 2, "{tags:?}");
    let shown = server.control(&["queue", "show", &held], b"");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("listen.dmarc_reject: dmarc=fail for bank.test"), "{shown}");
    assert!(server.control(&["quarantine", "release", &held], b"").status.success());
    let released = hop.wait(5)[4].text();
    let (release, rest) = released.split_once("\r\nAuthentication-Results: ").expect("results");
    assert!(release.starts_with("X-Quarantine-Release: ") && release.contains("\r\n\t(kept by dmarc); "), "{release}");
    assert!(results(&format!("Authentication-Results: {rest}")).0.contains("policy.dmarc=reject"));
    ends_empty(server);
}

#[test]
fn several_authors_are_refused_unless_they_are_allowed() {
    let (hop, names) = (Hop::good(), NameServer::start(ZONE));
    for is_allowed in [false, true] {
        let setup = checking(&hop, &names, &[""]).set("auth_results.several_from", is_allowed.to_string());
        let server = setup.start();
        for author in ["x@a.test\r\nFrom: x@bank.test", "x@a.test, y@bank.test", "x@a.test\r\nFROM : x@a.test"] {
            let answer = reply(server.address(), "192.0.2.1", "x@a.test", &from(author));
            let wanted = if is_allowed { "250 2.0.0" } else { "550 5.7.1 Message refused: " };
            assert!(answer.starts_with(wanted), "{author}: {answer}");
        }
        id(&reply(server.address(), "192.0.2.1", "x@a.test", &from("x@a.test, y@A.test")));
        ends_empty(server);
    }
    assert_eq!(hop.wait(5).len(), 5);
}

#[test]
fn trouble_of_the_dns_is_never_the_policy_of_a_domain() {
    let (hop, names) = (Hop::good(), NameServer::start(ZONE));
    for effect in ["pass", "defer"] {
        let mut setup = checking(&hop, &names, &[""]).set("auth_results.temperror", format!("{effect:?}"));
        for key in ["dmarc_reject", "dmarc_quarantine", "spf_fail", "iprev_fail"] {
            setup = setup.set(&format!("auth_results.{key}"), "\"reject\"");
        }
        // Nothing listens there.
        let server = setup.set("dns.servers", "[\"127.0.0.1:1\"]").set("dns.timeout", "\"1s\"").start();
        let answer = reply(server.address(), "192.0.2.2", "x@a.test", &from("x@bank.test"));
        let wanted = if effect == "pass" { "250 2.0.0" } else { "451 4.7.24 SPF of a.test cannot be checked now" };
        assert!(answer.starts_with(wanted), "{answer}");
        let log = ends_empty(server).log;
        let said = ["auth=temperror", "iprev=temperror", "spf=temperror", "dmarc=temperror"];
        assert_eq!(lines(&log, &said).len(), 1, "{log:#?}");
    }
    let (found, _) = results(&hop.wait(1)[0].text());
    assert!(found.contains("dmarc=temperror") && found.contains("spf=temperror"), "{found}");
    assert_eq!(hop.count(), 1);
}

#[test]
fn check_asks_the_name_servers() {
    let (hop, names) = (Hop::good(), NameServer::start(ZONE));
    let checked = |setup: Setup| {
        let output = program().arg("check").arg("--config").arg(setup.write()).output().expect("it runs");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{said}");
        said
    };
    let is_warned = |said: &str| said.contains("auth_results.checks: no answer from the DNS (127.0.0.1:1)");
    assert!(!is_warned(&checked(checking(&hop, &names, &[""]))));
    let dead = || checking(&hop, &names, &[""]).set("dns.servers", "[\"127.0.0.1:1\"]").set("dns.timeout", "\"1s\"");
    let said = checked(dead());
    assert!(is_warned(&said), "{said}");
    assert!(!is_warned(&checked(dead().set("auth_results.checks", "[]"))));
}

const RULES: &str = "\
rule soft {
  match all {
    auth spf = softfail
    auth dkim = none
    auth iprev = permerror
  }
  reject \"550 5.7.20 No passing signature\"
}
rule policy {
  match all {
    auth dmarc = fail
    auth dmarc-policy = reject
    auth arc = none
  }
  add header X-Policy \"reject\"
}
rule field {
  match any {
    header Authentication-Results ~ /^mx\\.test;.*spf=pass/
  }
  add header X-Field \"seen\"
}
";

/// A milter that inserts a field at this place.
fn inserting(place: u8, field: &'static [u8]) -> Milter {
    Milter::new(move |_, command, _| match command {
        'E' => Act::Send([packet(b'i', &[&[0, 0, 0, place], field].concat()), packet(b'c', b"")].concat()),
        _ => go_on(),
    })
}

#[test]
fn rules_and_filters_see_results() {
    let (hop, names) = (Hop::good(), NameServer::start(ZONE));
    for (number, when) in ["before-250", "after-250"].into_iter().enumerate() {
        let first = inserting(0, b"X-First\0was here\0");
        let filter = inserting(1, b"X-Milter\0was here\0");
        let setup = checking(&hop, &names, &[", filters = [\"first\", \"seer\"]"]);
        std::fs::write(setup.path("a.rules"), RULES).expect("written");
        let rules = format!("[{:?}]", setup.path("a.rules"));
        let (one, other) = (milter(first.address, ""), milter(filter.address, &format!("when = {when:?}")));
        let table = format!("[{{name = \"first\", {one}}}, {{name = \"seer\", {other}}}]");
        let server = setup.set("screen.rules", rules).set("filter", table).start();
        let refused = reply(server.address(), "192.0.2.9", "x@soft.test", &from("x@soft.test"));
        assert_eq!(refused, "550 5.7.20 No passing signature");
        id(&reply(server.address(), "192.0.2.1", "x@a.test", &from("x@bank.test")));
        let text = hop.wait(number + 1)[number].text();
        let (found, rest) = results(&text);
        assert!(found.contains("dmarc=fail"), "{found}");
        assert!(found.ends_with("\r\nX-First: was here"), "below the results, above our trace field: {found}");
        let below = rest.split_once("\r\nX-Milter: was here\r\n").expect("the field").0;
        assert!(below.lines().skip(1).all(|line| line.starts_with('\t')), "right below our trace field: {rest}");
        assert!(rest.contains("\r\nX-Policy: reject\r\nX-Field: seen\r\n"), "{rest}");
        let seen = filter.seen();
        let fields: Vec<&str> = seen.iter().filter(|packet| packet.0 == 'L').map(|packet| packet.1.as_str()).collect();
        assert!(fields[0].starts_with("Authentication-Results") && fields[0].contains("mx.test"), "{fields:?}");
        assert!(fields[1].starts_with("From"), "filters do not see fields of ours above: {when} {fields:?}");
        ends_empty(server);
    }
}

/// The interpreter that finds the packages of Debian.
const PYTHON: &str = "/usr/bin/python3";

/// Signs a message with dkimpy, or seals it.
const SIGN: &str = "\
import sys, dkim
what, key, domain = sys.argv[1], open(sys.argv[2], 'rb').read(), sys.argv[3].encode()
message = sys.stdin.buffer.read()
if what == 'arc':
    fields = b''.join(dkim.arc_sign(message, b's', domain, key, b'list.test'))
else:
    fields = dkim.sign(message, b's', domain, key, canonicalize=(b'relaxed', what.encode()))
sys.stdout.buffer.write(fields + message)
";

/// Runs dkimpy; `None`, and says so, where it is not installed.
fn signed(what: &str, key: &Path, domain: &str, content: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new(PYTHON)
        .args(["-c", SIGN, what])
        .arg(key)
        .arg(domain)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take().expect("a pipe").write_all(content).ok()?;
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("No module named") {
        needs::skip("python3-dkim", "is not installed");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(output.stdout)
}

/// Makes an RSA key of a domain; its record as a line of a zone.
fn key_of(domain: &str, file: &Path) -> String {
    let output = program()
        .args(["dkim", "generate", "--json", "--selector", "s", "--domain", domain, "--out"])
        .arg(file)
        .output()
        .expect("it runs");
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    format!("{} TXT {}\n", made["name"].as_str().expect("a name"), made["text"].as_str().expect("a text"))
}

/// Sends a message from a client that SPF knows nothing of; the results.
#[track_caller]
fn delivered(server: &Server, hop: &Hop, content: &[u8]) -> String {
    let count = hop.count();
    id(&reply(server.address(), "192.0.2.1", "x@empty.test", content));
    results(&hop.wait(count + 1)[count].text()).0
}

#[test]
fn signatures_and_seals_of_dkimpy_are_verified() {
    let (hop, place) = (Hop::good(), tempfile::tempdir().expect("a directory"));
    let file = |name: &str| place.path().join(name);
    let records = [key_of("bank.test", &file("bank")), key_of("list.test", &file("list"))].concat();
    let names = NameServer::start(&format!("{ZONE}{records}lost._domainkey.bank.test SERVFAIL\n"));
    let server = checking(&hop, &names, &[""]).start();
    let text = |content: &[u8]| String::from_utf8(content.to_vec()).expect("ASCII");
    let mut last = Vec::new();
    for (form, lines) in [("relaxed", 1), ("simple", 1), ("relaxed", 9_000), ("simple", 9_000)] {
        let body = "two  blanks \r\n\r\n and more of them\t\r\n".repeat(lines);
        let content = format!("From: x@www.bank.test\r\nSubject: x\r\n\r\n{body}\r\n\r\n").into_bytes();
        let Some(content) = signed(form, &file("bank"), "bank.test", &content) else { return };
        let found = delivered(&server, &hop, &content);
        assert!(found.contains("\ndkim=pass header.d=bank.test header.s=s header.a=rsa-sha256"), "{form}: {found}");
        assert!(
            found.contains("\ndmarc=pass reason=\"dkim of bank.test\" header.from=www.bank.test"),
            "{form}: {found}"
        );
        let changed = text(&content).replacen("more of them", "more of us", 1);
        let found = delivered(&server, &hop, changed.as_bytes());
        assert!(found.contains("\ndkim=fail reason=\"the body is not what was signed\""), "{form}: {found}");
        assert!(found.contains("\ndmarc=fail"), "{form}: {found}");
        let lost = text(&content).replacen("s=s;", "s=lost;", 1);
        let found = delivered(&server, &hop, lost.as_bytes());
        assert!(found.contains("\ndkim=temperror") && found.contains("\ndmarc=temperror"), "{form}: {found}");
        if lines == 1 {
            last = content;
        }
    }
    // A list changes the message and seals the results that it found.
    let list =
        [b"Authentication-Results: list.test; dkim=pass; dmarc=pass\r\n", last.as_slice(), b"-- \r\nlist\r\n"].concat();
    let Some(sealed) = signed("arc", &file("list"), "list.test", &list) else { return };
    let found = delivered(&server, &hop, &sealed);
    assert!(found.contains("\narc=pass header.d=list.test") && found.contains("\ndmarc=fail"), "{found}");
    let broken = text(&sealed).replacen("dkim=pass", "dkim=fail", 1);
    let found = delivered(&server, &hop, broken.as_bytes());
    assert!(found.contains("\narc=fail"), "{found}");
    ends_empty(server);
}
