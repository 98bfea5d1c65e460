//! Text of peers in a log: nothing of it acts on a terminal or in a page, whichever kind and form shows it.

use super::{Logs, stats};
use serde_json::{Value, json};
use std::process::Output;

/// Commands to a terminal (ESC, C1 CSI), a title (OSC), NUL, a direction, a line separator, an invisible tag, markup,
/// and octets that are no UTF-8: an overlong slash, a surrogate, a lone continuation.
const HOSTILE: [&[u8]; 9] = [
    b"\x1b[2J\x1b[31m",
    "\u{9b}2J".as_bytes(),
    b"\x1b]0;title\x07",
    b"\x00\x08\x7f\r",
    "\u{202e}\u{2066}".as_bytes(),
    "\u{2028}\u{200b}\u{feff}".as_bytes(),
    "\u{e0041}".as_bytes(),
    b"<script>alert(1)</script>&\"'",
    b"\xc0\xaf\xed\xa0\x80\xbf",
];

/// Lines of every server with this text in each place that a peer chooses.
fn log(hostile: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    let mut push = |parts: [&str; 4]| {
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                log.extend_from_slice(hostile);
            }
            log.extend_from_slice(part.as_bytes());
        }
        log.push(b'\n');
    };
    let sendmail = "Nov 27 13:00:00 mx sm-mta[1]: 6AR3Q3e2000001: ";
    let postfix = "Nov 27 13:00:01 mx postfix/smtp[2]: DE5899840B5: ";
    push([&format!("{sendmail}from=<a"), "@b>, size=40, class=0, nrcpts=3, msgid=<1", ">, relay=c", " [10.0.0.1]"]);
    for (dsn, stat) in [("2.0.0", "Sent"), ("4.2.0", "Deferred"), ("5.1.1", "User unknown")] {
        let to = format!("{sendmail}to=<x{dsn}");
        push([&to, "@b>, delay=00:00:01, relay=h", &format!(" [10.0.0.2], dsn={dsn}, stat={stat}: "), ""]);
    }
    push([&format!("{sendmail}ruleset=check_rcpt, arg1=<y"), ">, reject=550 5.7.1 ", "", ""]);
    push([&format!("{postfix}client=c"), "[10.0.0.3]", "", ""]);
    let qmgr = postfix.replace("smtp[", "qmgr[");
    push([&format!("{qmgr}from=<p"), "@b>, size=7, nrcpt=2 (queue active)", "", ""]);
    for status in ["sent", "deferred", "bounced"] {
        let to = format!("{postfix}to=<z{status}");
        push([&to, "@b>, relay=m", &format!("[10.0.0.4]:25, delay=1, dsn=4.0.0, status={status} (host said "), ")"]);
    }
    push([
        "Nov 27 13:00:01 mx postfix/smtpd[2]: NOQUEUE: reject: RCPT from c",
        "[10.0.0.3]: 554 5.7.1 ",
        "; from=<x>",
        "",
    ]);
    // In JSON the text is escaped, and read back as it was.
    let text = String::from_utf8_lossy(hostile);
    for (event, more) in [
        ("accepted", json!({ "from": format!("<j{text}@b>"), "size": 7, "nrcpts": 2, "client_name": text })),
        ("deferred", json!({ "to": [format!("<k{text}@b>")], "delay": 1.0, "relay": text, "text": text })),
        ("failed", json!({ "to": [format!("<l{text}@b>")], "delay": 1.0, "relay": text, "text": text })),
        ("rejected", json!({ "reply": text })),
    ] {
        let mut line =
            format!("{{\"ts\":\"2026-11-27T20:00:02.000000Z\",\"event\":\"{event}\",\"id\":\"6AR3Q3e2000002\"");
        for (key, value) in more.as_object().expect("an object") {
            line.push_str(&format!(",\"{key}\":{value}"));
        }
        log.extend_from_slice(line.as_bytes());
        log.extend_from_slice(b"}\n");
    }
    log
}

fn is_harmless(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = text.chars().find(|c| mail::is_unprintable(*c) && *c != '\n');
    assert_eq!(found, None, "{what}: {text:?}");
}

#[test]
fn nothing_acts_on_a_terminal_or_in_a_page() {
    let kinds: [&[&str]; 10] = [
        &["batch"],
        &["real"],
        &["mail"],
        &["late"],
        &["late", "--short"],
        &["late", "--by", "host"],
        &["queue"],
        &["day"],
        &["day", "--html"],
        &["day", "--date", "2026-11-27"],
    ];
    let logs = Logs::new();
    for (number, hostile) in HOSTILE.into_iter().enumerate() {
        // Its name is hostile too, as a person may be led to name it.
        let path = logs.write(&format!("log{number}\u{1b}[31m\u{202e}"), log(hostile));
        for kind in kinds {
            for form in [&[][..], &["--json"]] {
                if kind.contains(&"--html") && !form.is_empty() {
                    continue;
                }
                let words = [kind, form, &["--year", "2026"]].concat();
                let output: Output = stats(&words, &[&path]).output().expect("it runs");
                assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
                is_harmless(&format!("{words:?} stdout"), &output.stdout);
                is_harmless(&format!("{words:?} stderr"), &output.stderr);
                let text = String::from_utf8_lossy(&output.stdout);
                if kind.contains(&"--html") {
                    assert!(!text.contains("<script") && !text.contains("alert(1)<"), "{text}");
                }
                // The lines were counted, whatever stands in them.
                if kind == ["mail"] && !form.is_empty() {
                    let value: Value = serde_json::from_str(&text).expect("JSON");
                    let total = &value["total"];
                    assert_eq!(
                        (&total["sent"], &total["deferred"], &total["failed"]),
                        (&2.into(), &3.into(), &3.into())
                    );
                    assert_eq!((&total["arrivals"], &total["refused"]), (&3.into(), &3.into()), "{value}");
                    assert_eq!(value["lines"]["broken"], 0, "{value}");
                }
            }
        }
        let (_, error) = super::run(stats(&["mail"], &[&logs.path(&format!("missing{number}\u{1b}[31m"))]), 66);
        is_harmless("the failure", error.as_bytes());
    }
}

/// A control: the check of this test finds each of its texts.
#[test]
fn the_check_finds_what_acts() {
    let found = |hostile: &[u8]| std::panic::catch_unwind(|| is_harmless("control", hostile)).is_err();
    let markup = HOSTILE.iter().filter(|hostile| hostile.starts_with(b"<")).count();
    assert_eq!(HOSTILE.iter().filter(|hostile| found(hostile)).count(), HOSTILE.len() - markup);
}
