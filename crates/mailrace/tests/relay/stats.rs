//! `mailrace stats` of a running server: the figures are those of its log.

use crate::hop::{Act, At, Hop, Manners};
use crate::world::{any_line, relay, retrying, send, wait_line};
use serde_json::Value;
use testkit::client::greeted;
use testkit::harness::{Server, poll, program, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// `mailrace stats …` of the running server.
#[track_caller]
fn stats(server: &Server, words: &[&str]) -> String {
    let output = server.control(&[&["stats"], words].concat(), b"");
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[track_caller]
fn json(server: &Server, kind: &[&str]) -> Value {
    let text = stats(server, &[kind, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn hop() -> Hop {
    Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<later") => Act::Say("450 4.2.0 Greylisted, come back"),
        At::Rcpt if moment.line.contains("<nobody") => Act::Say("550 5.1.1 no such user"),
        _ => Act::Well,
    }))
}

/// Starts a server that has delivered, deferred, failed, reported and refused; the id of the message that waits.
fn busy(hop: &Hop, format: &str) -> (Server, String) {
    let setup = retrying(relay(&[hop]).set("log.format", format), "1h");
    let mut server = setup.start();
    let waiting = send(&server, "a@client.test", &["b@d.test", "c@d.test", "later@d.test"], CONTENT);
    let other = send(&server, "<>", &["b@d.test"], CONTENT);
    send(&server, "a@client.test", &["nobody@d.test"], CONTENT);
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@client.test> SIZE=999999999", "552");
    client.quit();
    // Three messages and the report to their sender.
    hop.wait(3);
    for part in ["<later@d.test>", "<nobody@d.test>", "<a@client.test>"] {
        any_line(&mut server, &[part, if format.contains("json") { "\"delay\":" } else { "stat=" }]);
    }
    for parts in [&[waiting.as_str(), "<b@d.test>"][..], &[other.as_str(), "<b@d.test>"], &["Message size exceeds"]] {
        any_line(&mut server, parts);
    }
    server.rests();
    server.pass_over();
    (server, waiting)
}

#[test]
fn live_figures_are_those_of_the_log() {
    for format in ["\"sendmail\"", "\"json\""] {
        let hop = hop();
        let (server, _) = busy(&hop, format);
        let path = server.setup.path("maillog");
        std::fs::write(&path, server.log.join("\n")).expect("written");
        let output = program().args(["stats", "day", "--json"]).arg(&path).output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output));
        let logged: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let live = json(&server, &["day"]);
        let counts = |value: &Value| {
            let mut total = value["total"].as_object().expect("an object").clone();
            // The log has the size of the message, an attempt that of its content.
            assert!(total.remove("sent_bytes").and_then(|bytes| bytes.as_u64()) > Some(0), "{value}");
            total
        };
        assert_eq!(counts(&live), counts(&logged), "{format}: {:#?}", server.log);
        let total = &live["total"];
        assert_eq!(
            (&total["arrivals"], &total["sent"], &total["deferred"]),
            (&3.into(), &4.into(), &1.into()),
            "{live}"
        );
        assert_eq!(
            (&total["failed"], &total["reports"], &total["refused"]),
            (&1.into(), &1.into(), &1.into()),
            "{live}"
        );
        for list in [
            "senders",
            "recipients",
            "hosts_that_took_mail",
            "reasons_for_deferral",
            "reasons_for_failure",
            "reasons_for_refusal",
        ] {
            assert_eq!(live[list], logged[list], "{format}, {list}");
        }
        assert_eq!(json(&server, &["mail"])["total"], live["total"]);
        assert_eq!(json(&server, &["batch"])["total"], live["total"]);
    }
}

#[test]
fn waiting_mail_and_rates_of_now() {
    let hop = hop();
    let (mut server, id) = busy(&hop, "\"sendmail\"");
    let late = poll("a second has passed", || Some(stats(&server, &["late"])).filter(|text| text.contains("later@")));
    assert!(late.lines().count() == 2 && late.contains("450 4.2.0 Greylisted, come back"), "{late}");
    assert_eq!(stats(&server, &["late", "--short"]), "   1 later@d.test\n");
    let hosts = json(&server, &["late", "--by", "host"]);
    assert_eq!(hosts["late"][0]["messages"], 1, "{hosts}");
    let queue = stats(&server, &["queue"]);
    assert!(queue.contains(&format!("\n1 {id} ")) && queue.ends_with("1 recipient of 1 message\n"), "{queue}");
    assert_eq!(json(&server, &["queue"])["messages"][0]["from"], "a@client.test");
    let real = stats(&server, &["real", "--interval", "1", "--lines", "2"]);
    assert!(real.lines().count() == 2 && real.lines().all(|line| line.ends_with("     0/  0")), "{real}");
    let mail = stats(&server, &["mail"]);
    assert!(mail.ends_with("Totals         2/     2      3/     4\n"), "{mail}");
    let batch = stats(&server, &["batch"]);
    assert!(batch.contains(": 4 delivered, 2 not delivered, 3 messages came\n"), "{batch}");
    assert!(stats(&server, &["day", "--html"]).contains("<td>4</td><td>recipients delivered</td>"));
    // A second message in an interval is in its line.
    send(&server, "<>", &["x@d.test"], CONTENT);
    wait_line(&mut server, &["to=<x@d.test>", "stat=Sent"]);
    assert!(stats(&server, &["mail"]).ends_with("Totals         2/     2      4/     5\n"));
}
