//! An operator who watches and tries: `mailrace deliver-test`, `transcript`, `destination connections` and `abort`.

use crate::hop::{Act, At, Hop, Manners};
use crate::wire::tls_config;
use crate::world::{any_line, by_literal, ends_empty, relay, send};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::harness::{Server, poll, program, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\na secret line\r\n";

#[track_caller]
fn json(server: &Server, words: &[&str], exit: i32) -> Value {
    let output = server.control(&[words, &["--json"]].concat(), b"");
    assert_eq!(output.status.code(), Some(exit), "{words:?}: {}", text(&output));
    serde_json::from_slice(output.stdout.split(|octet| *octet == b'\n').next().expect("a line")).expect("JSON")
}

#[test]
fn a_delivery_is_tried_without_mail() {
    let mut hop = Hop::good();
    let server = relay(&[&hop]).start();
    let answer = json(&server, &["deliver-test", "ann@d.test"], 0);
    assert_eq!(answer["by"], "server");
    let host = &answer["destinations"][0]["hosts"][0];
    assert_eq!((&host["ok"], host["tls"].is_null()), (&Value::Bool(true), true), "{answer}");
    for phase in ["connect_ms", "greeting_ms", "ehlo_ms"] {
        assert!(host[phase].as_f64().is_some(), "{phase}: {answer}");
    }
    assert!(host["greeting"].as_str().unwrap().starts_with("220"), "{answer}");
    assert!(host["extensions"].as_array().unwrap().contains(&Value::from("8BITMIME")), "{answer}");
    assert!(answer["destinations"][0]["dns_ms"].as_f64().is_some());
    assert_eq!(hop.talks()[0].iter().filter(|line| line.starts_with("MAIL")).count(), 0, "{:?}", hop.talks());
    // The same for people, and without the server by its configuration.
    let shown = text(&server.control(&["deliver-test", "d.test"], b""));
    assert!(
        shown.contains("  ready  ") && shown.contains("connect ") && shown.contains("by the running server"),
        "{shown}"
    );
    let config = server.setup.write();
    let alone =
        program().args(["deliver-test", "d.test", "--without-server", "--config"]).arg(&config).output().unwrap();
    assert!(alone.status.success() && text(&alone).contains("by the configuration"), "{}", text(&alone));
    hop.behave(Manners { tls: Some(tls_config()), ..Manners::offering(&["STARTTLS"]) });
    let answer = json(&server, &["deliver-test", "d.test"], 0);
    let host = &answer["destinations"][0]["hosts"][0];
    assert!(host["tls"]["version"].as_str().unwrap().starts_with("TLSv1."), "{answer}");
    assert_eq!((&host["tls"]["verified"], host["ehlo_tls_ms"].is_f64()), (&Value::Bool(false), true), "{answer}");
    // A host that is not there, and one that refuses.
    hop.shut();
    let answer = json(&server, &["deliver-test", "d.test"], 69);
    assert_eq!(answer["destinations"][0]["hosts"][0]["failed"]["phase"], "connect", "{answer}");
    hop.reopen();
    hop.behave(Manners::default().script(|moment| match moment.at {
        At::Greeting => Act::SayAndClose("554 5.7.1 not you"),
        _ => Act::Well,
    }));
    let answer = json(&server, &["deliver-test", "d.test"], 69);
    let failed = &answer["destinations"][0]["hosts"][0]["failed"];
    assert_eq!((&failed["phase"], failed["text"].as_str()), (&Value::from("greeting"), Some("554 5.7.1 not you")));
    let output = server.control(&["deliver-test", "no such place"], b"");
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert_eq!(hop.count(), 0);
    ends_empty(server);
}

/// Starts a transcript of a name that no destination has. `None`: the client that has gone still has its place.
fn watching(server: &mut Server) -> Option<Child> {
    let mut command = program();
    command.args(["transcript", "x.test", "--control"]).arg(server.setup.path("control"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let is_refused = poll("it is taken or refused", || {
        let ended = child.try_wait().expect("it is a child").map(|_| true);
        ended.or_else(|| server.has_logged("queue=transcript").then_some(false))
    });
    (!is_refused).then_some(child)
}

#[test]
fn a_transcript_shows_the_dialog_and_no_content() {
    let hop = Hop::good();
    let mut server = relay(&[&hop]).start();
    let mut child = program()
        .args(["transcript", "*", "--json", "--control"])
        .arg(server.setup.path("control"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    any_line(&mut server, &["queue=transcript", "to=*"]);
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    hop.wait(1);
    let stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut lines = Vec::new();
    for line in stdout.lines() {
        let line: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
        let line = format!("{} {}", line["direction"].as_str().unwrap(), line["text"].as_str().unwrap());
        let is_end = line.starts_with("< 250") && lines.iter().any(|one: &String| one.contains("octets of content"));
        lines.push(line);
        if is_end {
            break;
        }
    }
    // A client that goes away ends it.
    drop(child.kill());
    drop(child.wait());
    for part in
        ["* connected", "< 220", "> EHLO ", "> MAIL FROM:<a@client.test>", "> RCPT TO:<b@d.test>", "< 354", "> ."]
    {
        assert!(lines.iter().any(|line| line.starts_with(part)), "{part}: {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("secret") || line.contains("Subject")), "{lines:#?}");
    // Nothing is watched for a name that no destination has; places are limited.
    let mut others: Vec<_> = (0..8).map(|_| poll("there is a place", || watching(&mut server))).collect();
    let refused = || {
        let output = server.control(&["transcript", "x.test", "--for", "1s"], b"");
        (output.status.code() == Some(75)).then(|| text(&output))
    };
    assert!(poll("there is no place left", refused).contains("8 transcripts are open"));
    others.iter_mut().for_each(|child| drop(child.kill()));
    others.iter_mut().for_each(|child| drop(child.wait()));
    ends_empty(server);
}

#[test]
fn a_connection_is_ended_and_its_message_tried_again() {
    let hangs = Arc::new(AtomicBool::new(false));
    let has_hung = Arc::clone(&hangs);
    // The first RCPT has no answer.
    let hop = Hop::new(Manners::default().script(move |moment| match moment.at {
        At::Rcpt if !has_hung.swap(true, Ordering::AcqRel) => Act::Hang,
        _ => Act::Well,
    }));
    let domain = format!("[{}]", hop.address.ip());
    let mut server = by_literal(std::slice::from_ref(&hop)).start();
    let id = send(&server, "a@client.test", &[&format!("b@{domain}")], CONTENT);
    let open = |server: &Server| {
        let output = server.control(&["destination", "connections", &domain, "--json"], b"");
        let line: Value = serde_json::from_slice(output.stdout.split(|octet| *octet == b'\n').next()?).ok()?;
        (line["messages"][0] == id.as_str()).then(|| line["connection"].as_u64().unwrap().to_string())
    };
    poll("the hop hangs", || hangs.load(Ordering::Acquire).then_some(()));
    let number = poll("the message is on its way", || open(&server));
    let said = text(&server.control(&["destination", "abort", &number], b""));
    assert!(said.contains("is ended"), "{said}");
    any_line(&mut server, &["b@", "stat=Deferred: an operator ended the connection"]);
    any_line(&mut server, &["queue=abort", &format!("to=connection {number} of {domain}")]);
    hop.wait(1);
    let output = server.control(&["destination", "abort", &number], b"");
    assert!(output.status.code() == Some(64) && text(&output).contains("there is no connection"), "{}", text(&output));
    ends_empty(server);
    assert_eq!(hop.count(), 1);
}
