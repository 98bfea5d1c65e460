//! The lines of deliveries, to the letter.

use crate::hop::{Act, At, Hop, Manners};
use crate::world::{ends_empty, relay, send, wait_line};
use serde_json::Value;
use testkit::harness::{SLACK, time};

const CONTENT: &[u8] = b"Subject: x\r\n\r\n0123456789\r\n";

fn hop() -> Hop {
    Hop::new(Manners::default().script(|moment| match (moment.at, moment.connection) {
        (At::Rcpt, _) if moment.line.contains("<nobody") => Act::Say("550 5.1.1 <nobody@d.test>: no such user, sorry"),
        (At::Rcpt, _) if moment.line.contains("<later") => Act::Say("450 4.2.0 Greylisted, come back"),
        (At::Dot, _) => Act::Say("250 2.0.0 Ok: queued as 4F1D2A"),
        _ => Act::Well,
    }))
}

/// Returns the text behind `to=` of a line, with times and priority checked and taken out.
#[track_caller]
fn form(line: &str, id: &str) -> String {
    let (_, rest) = line.split_once(&format!(": {id}: ")).unwrap_or_else(|| panic!("{line}"));
    let part = |name: &str| {
        let start = rest.find(&format!(", {name}=")).unwrap_or_else(|| panic!("{name}: {line}")) + name.len() + 3;
        rest[start..].split(',').next().expect("a value").to_owned()
    };
    let [delay, xdelay, pri] = ["delay", "xdelay", "pri"].map(part);
    // Nothing here is waited for.
    assert!(time(&delay) <= SLACK && time(&xdelay) <= SLACK, "{line}");
    let pri: u64 = pri.parse().expect("a number");
    assert!((30_000..200_000).contains(&pri), "{line}");
    let out = rest.replace(&format!(", delay={delay}, xdelay={xdelay}"), ", DELAYS");
    out.replace(&format!("pri={pri}"), "pri=N")
}

#[test]
fn lines_in_sendmails_form() {
    let hop = hop();
    let mut server = relay(&[&hop]).set("delivery.retry_first", "\"1h\"").start();
    let relay = format!("relay={0} {0}", hop.ip());
    let id = send(&server, "<>", &["b@d.test", "c@d.test"], CONTENT);
    let line = wait_line(&mut server, &[&id, "to=<b@d.test>,<c@d.test>", "stat=Sent"]);
    assert_eq!(
        form(&line, &id),
        format!(
            "to=<b@d.test>,<c@d.test>, DELAYS, mailer=esmtp, pri=N, {relay}, dsn=2.0.0, stat=Sent (Ok: queued as 4F1D2A)"
        )
    );
    let id = send(&server, "<>", &["later@d.test"], CONTENT);
    let line = wait_line(&mut server, &[&id, "to=<later@d.test>"]);
    assert_eq!(
        form(&line, &id),
        format!(
            "to=<later@d.test>, DELAYS, mailer=esmtp, pri=N, {relay}, dsn=4.2.0, \
             reply=450 4.2.0 Greylisted,\\040come back, stat=Deferred: 450 4.2.0 Greylisted, come back"
        )
    );
    let id = send(&server, "<>", &["<nobody@d.test> NOTIFY=NEVER"], CONTENT);
    let line = wait_line(&mut server, &[&id, "to=<nobody@d.test>"]);
    assert_eq!(
        form(&line, &id),
        format!(
            "to=<nobody@d.test>, DELAYS, mailer=esmtp, pri=N, {relay}, dsn=5.1.1, \
             reply=550 5.1.1 <nobody@d.test>: no such user,\\040sorry, stat=User unknown"
        )
    );
}

#[test]
fn lines_in_json() {
    let hop = hop();
    let mut server = relay(&[&hop]).set("log.format", "\"json\"").set("delivery.retry_first", "\"1h\"").start();
    send(&server, "<>", &["b@d.test", "<nobody@d.test> NOTIFY=NEVER", "later@d.test"], CONTENT);
    let mut value = |event: &str| -> Value {
        let line = crate::world::any_line(&mut server, &[&format!("\"event\":\"{event}\""), "<"]);
        serde_json::from_str(&line).expect("JSON")
    };
    let ip = hop.address.ip().to_string();
    for (event, to, dsn, code, text) in [
        ("sent", "<b@d.test>", "2.0.0", 250, "Ok: queued as 4F1D2A"),
        ("deferred", "<later@d.test>", "4.2.0", 450, "450 4.2.0 Greylisted, come back"),
        ("failed", "<nobody@d.test>", "5.1.1", 550, "User unknown"),
    ] {
        let line = value(event);
        assert_eq!(line["to"], serde_json::json!([to]), "{line}");
        assert_eq!((&line["dsn"], &line["reply_code"]), (&dsn.into(), &code.into()), "{line}");
        assert_eq!(
            (&line["text"], &line["relay_ip"], &line["mailer"]),
            (&text.into(), &ip.as_str().into(), &"esmtp".into())
        );
        assert!(line["delay"].is_number() && line["xdelay"].is_number() && line["pri"].is_number(), "{line}");
    }
}

/// A peer's words stay within their field.
#[test]
fn replies_cannot_forge_lines() {
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Dot => Act::Say("250 2.0.0 ok), stat=Deferred: \x1b[31mforged\tX: to=<x@y.test>, stat=Sent"),
        _ => Act::Well,
    }));
    let mut server = relay(&[&hop]).start();
    let id = send(&server, "<>", &["b@d.test"], CONTENT);
    let line = wait_line(&mut server, &[&format!("{id}: to=<b@d.test>")]);
    assert!(!line.contains('\x1b') && !line.contains('\t'), "{line}");
    let (_, stat) = line.split_once(", stat=").expect("one");
    assert!(stat.starts_with("Sent (ok)"), "{line}");
    ends_empty(server);
}
