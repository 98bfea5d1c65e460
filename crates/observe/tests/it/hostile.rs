//! Any text of a peer in a value makes one line, bounded, with the fields that we wrote and no others.

use crate::kinds::{self, Values};
use mail::{Reply, ReplyCode};
use observe::{Event, Fate, Limit, Ruleset, Stat, json, sendmail};
use proptest::prelude::*;
use std::net::IpAddr;

/// Text as a peer would choose it who wants to write our log.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ -~]{1,12}",
        1 => any::<String>(),
        1 => Just(", relay=evil.test [10.0.0.1]".to_owned()),
        1 => Just("\r\nNov 20 13:00:00 mx sendmail[1]: ".to_owned()),
        1 => Just("\u{202e}\u{85}\u{2028}\0\u{1b}[2J".to_owned()),
        1 => Just("ü, ".to_owned()),
        1 => Just("x".repeat(700)),
        1 => Just("\n".repeat(700)),
        1 => Just("\",\\".to_owned()),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn values() -> impl Strategy<Value = Values> {
    let list = proptest::collection::vec(text(), 0..12);
    let reply = (prop_oneof![Just(421), Just(550)], text())
        .prop_map(|(code, text)| Reply::new(ReplyCode::of(code), None, &text));
    let limit = proptest::sample::select(Limit::ALL.to_vec());
    let ruleset = proptest::sample::select(Ruleset::ALL.to_vec());
    (text(), text(), text(), list, any::<u64>(), any::<bool>(), any::<IpAddr>(), (limit, ruleset, reply)).prop_map(
        |(a, b, c, list, number, flag, address, (limit, ruleset, reply))| Values {
            a,
            b,
            c,
            list,
            number,
            flag,
            address,
            limit,
            ruleset,
            reply,
        },
    )
}

/// A reader as operators have them: drops the id, splits at `, ` and the first `=`; the field that may stand last takes
/// the rest.
fn read(line: &str) -> Vec<(&str, &str)> {
    let mut rest = match line.split_once(": ") {
        Some((id, rest)) if id.bytes().all(|b| b.is_ascii_alphanumeric()) => rest,
        _ => line,
    };
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let field = if ["reject=", "stat=", "why=", "action="].iter().any(|last| rest.starts_with(last)) {
            std::mem::take(&mut rest)
        } else {
            let (field, after) = rest.split_once(", ").unwrap_or((rest, ""));
            rest = after;
            field
        };
        fields.push(field.split_once('=').unwrap_or((field, "")));
    }
    fields
}

/// Undoes `\ooo`; only exact where the text had no backslash.
fn unescape(value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = value.bytes();
    while let Some(b) = bytes.next() {
        if b == b'\\' {
            let octal: String = bytes.by_ref().take(3).map(char::from).collect();
            out.push(u8::from_str_radix(&octal, 8).unwrap());
        } else {
            out.push(b);
        }
    }
    out
}

/// The value is the text, or its beginning and the mark of a cut.
fn assert_holds(value: &str, text: &str) {
    if text.contains('\\') {
        return;
    }
    match value.strip_suffix("...") {
        Some(begin) if unescape(value) != text.as_bytes() => assert!(text.as_bytes().starts_with(&unescape(begin))),
        _ => assert_eq!(unescape(value), text.as_bytes()),
    }
}

/// The keys that a line of this event has after its words, where all of it is `key=value`.
fn keys(event: &Event<'_>) -> Option<Vec<&'static str>> {
    let mut keys = Vec::new();
    match event {
        Event::Accepted { msgid, bodytype, mt_priority, identity, .. } => {
            keys.extend(["from", "size", "class", "nrcpts"]);
            keys.extend(msgid.map(|_| "msgid"));
            keys.extend(bodytype.map(|_| "bodytype"));
            keys.extend(["proto", "daemon"]);
            keys.extend(mt_priority.map(|_| "mt_priority"));
            keys.extend(identity.map(|_| "authid"));
            keys.push("relay");
        }
        Event::TransactionRefused { .. } => {
            keys.extend(["from", "size", "class", "nrcpts", "proto", "daemon", "relay"]);
        }
        // Of these the address stands alone.
        Event::Rejected { ruleset: Ruleset::Vrfy | Ruleset::Expn, .. } => return None,
        Event::Rejected { arg1, arg2, .. } => {
            keys.push("ruleset");
            keys.extend(arg1.map(|_| "arg1"));
            keys.extend(arg2.map(|_| "arg2"));
            keys.extend(["relay", "reject"]);
        }
        Event::Ruled { fate, .. } => {
            keys.extend(["ruleset", "arg1", "relay"]);
            keys.push(if let Fate::Quarantine(_) = fate { "quarantine" } else { "discard" });
        }
        Event::StartTls { subject, issuer, why, .. } => {
            keys.extend(["STARTTLS", "relay", "version", "verify", "cipher", "bits"]);
            keys.extend(subject.map(|_| "cert-subject"));
            keys.extend(issuer.map(|_| "cert-issuer"));
            keys.extend(why.map(|_| "verifymsg"));
        }
        Event::Auth { .. } => keys.extend(["AUTH", "relay", "authid", "mech", "bits"]),
        Event::LimitReached { .. } => keys.extend(["limit", "max", "relay"]),
        Event::DnsblListed { .. } => keys.extend(["dnsbl", "answer", "weight", "relay"]),
        Event::Queued { quarantine, .. } => {
            keys.extend(["to", "delay", "mailer", "pri"]);
            keys.extend(quarantine.map(|_| "quarantine"));
            keys.push("stat");
        }
        Event::Signed { failure, .. } => {
            keys.extend(["signature", "domain", "selector", "result"]);
            keys.extend(failure.map(|_| "why"));
        }
        Event::SenderChecked { results, why, .. } => {
            keys.extend(["auth", "author"]);
            keys.extend(results.iter().map(|(method, _)| method.name()));
            keys.extend((!why.is_empty()).then_some("why"));
        }
        Event::Screened { .. } => keys.extend(["screen", "by", "place", "to", "action"]),
        Event::RecipientsDiscarded { .. } => keys.extend(["to", "delay", "stat"]),
        Event::Delivery { controller, reply, relay, stat, .. } => {
            keys.push("to");
            keys.extend(controller.map(|_| "ctladdr"));
            keys.extend(["delay", "xdelay", "mailer", "pri"]);
            keys.extend((*relay != observe::NextHop::None).then_some("relay"));
            keys.push("dsn");
            keys.extend(reply.filter(|_| !matches!(stat, Stat::Sent(_))).map(|_| "reply"));
            keys.push("stat");
        }
        Event::StartTlsClient { relay, .. } => {
            keys.push("STARTTLS");
            keys.extend((*relay != observe::NextHop::None).then_some("relay"));
            keys.extend(["version", "verify", "cipher", "bits"]);
        }
        Event::DestinationDown { .. } => keys.extend(["destination", "state", "retry", "why"]),
        Event::DestinationUp { .. } => keys.extend(["destination", "state", "down"]),
        Event::QuarantineDigest { .. } => keys.extend(["digest", "messages", "to"]),
        Event::Adopted { .. } => keys.extend(["adopted", "duplicate"]),
        Event::HoldEnded { .. } => keys.extend(["hold", "recipients", "by", "why"]),
        Event::StandingOrder { by, .. } => {
            keys.extend(["order", "name"]);
            keys.extend(by.map(|by| if matches!(by, observe::CommandBy::User(_)) { "uid" } else { "http" }));
            keys.push("why");
        }
        Event::QueueCommand { by, copy, to, .. } => {
            keys.extend(["queue", "messages", "recipients"]);
            keys.push(if matches!(by, observe::CommandBy::User(_)) { "uid" } else { "http" });
            keys.extend(copy.map(|_| "copy"));
            keys.extend(to.map(|_| "to"));
        }
        _ => return None,
    }
    Some(keys)
}

/// Every value of a `to=` line at its bound: nothing is cut off at the end.
#[test]
fn a_delivery_fits_into_its_line() {
    let long = "\u{1}".repeat(2_000);
    let reply = Reply::new(ReplyCode::of(451), None, &format!("4.999.999 {}", "a, b\n".repeat(400)));
    let to = [long.as_str(), long.as_str()];
    let mut line = String::new();
    let time = sendmail::Civil { month: 12, day: 31, hour: 23, minute: 59, second: 60 };
    sendmail::prefix(time, Some(&long), &long, u32::MAX, &mut line);
    let event = Event::Delivery {
        controller: Some(observe::Controller { address: &long, owner: Some((u32::MAX, u32::MAX)) }),
        id: kinds::queue_id(),
        to: &to,
        delay: std::time::Duration::MAX,
        xdelay: std::time::Duration::MAX,
        phases: mail::PhaseTimes::default(),
        mailer: &long,
        priority: i64::MIN,
        relay: observe::NextHop::Host { name: Some(&long), address: IpAddr::V6(std::net::Ipv6Addr::from(u128::MAX)) },
        dsn: mail::EnhancedCode::of(mail::Outcome::Transient, 999, 999),
        reply: Some(&reply),
        stat: Stat::Deferred(&long),
        reason: Some(observe::Reason::Blacklist),
    };
    assert!(sendmail::write(&event, &mut line).is_some(), "a second line for the second recipient");
    assert!(line.ends_with("\\001..."), "{line}");
    assert!(line.len() <= sendmail::LINE_MAX, "{}", line.len());
    let stat = line.split_once(", stat=Deferred: ").unwrap().1;
    assert_eq!(stat.len(), 399);
}

/// JSON keeps text exactly, up to its bound.
fn cut(text: &str) -> &str {
    if text.len() <= json::STRING_MAX { text } else { &text[..text.floor_char_boundary(json::STRING_MAX)] }
}

proptest! {
    // Failures belong into `golden` as a case, not into a file of seeds.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_line_is_one_line_and_splits_into_its_fields(kind in 0..kinds::COUNT, v in values()) {
        let to: Vec<&str> = v.list.iter().map(String::as_str).collect();
        let event = kinds::event(kind, &v, &to);
        prop_assert_eq!(kinds::kind(&event), kind);
        let mut line = String::new();
        let time = sendmail::Civil { month: 12, day: 31, hour: 23, minute: 59, second: 60 };
        sendmail::prefix(time, Some(&v.a), &v.b, u32::MAX, &mut line);
        let prefix = line.len();
        let rest = sendmail::write(&event, &mut line);
        prop_assert!(line.len() <= sendmail::LINE_MAX, "{}", line.len());
        prop_assert!(!line.chars().any(|c| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c)), "{line}");

        if let Some(keys) = keys(&event) {
            let fields = read(&line[prefix..]);
            let more = rest.is_some();
            let found: Vec<&str> = fields.iter().map(|(key, _)| *key).filter(|key| !(more && *key == "[more]")).collect();
            prop_assert_eq!(found, keys, "{}", line);
            let value = |key: &str| fields.iter().find(|(found, _)| *found == key).unwrap().1;
            match event {
                Event::Accepted { .. } | Event::TransactionRefused { .. } => assert_holds(value("from"), &v.a),
                Event::Rejected { arg1: Some(arg1), .. } => assert_holds(value("arg1"), arg1),
                Event::Auth { .. } => assert_holds(value("authid"), &v.a),
                Event::Delivery { stat: Stat::Failed(text), .. } => assert_holds(value("stat"), text),
                Event::Delivery { stat: Stat::Deferred(text), .. } if !text.is_empty() => {
                    assert_holds(value("stat").strip_prefix("Deferred: ").unwrap(), text);
                }
                Event::Delivery { stat: Stat::Sent(text), .. } if !text.is_empty() => {
                    assert_holds(value("stat").strip_prefix("Sent (").unwrap().strip_suffix(')').unwrap(), text);
                }
                Event::DestinationDown { .. } => assert_holds(value("why"), &v.a),
                _ => {}
            }
        }
    }

    #[test]
    fn json_parses_and_holds_what_was_said(kind in 0..kinds::COUNT, v in values()) {
        let to: Vec<&str> = v.list.iter().map(String::as_str).collect();
        let event = kinds::event(kind, &v, &to);
        let mut line = String::new();
        json::write(&event, "2026-11-20T13:00:00.000001Z", &mut line);
        prop_assert!(!line.chars().any(|c| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c)), "{line}");
        prop_assert!(line.len() <= 32 << 10, "{}", line.len());
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        let string = |key: &str| object[key].as_str().unwrap_or_else(|| panic!("{key} in {line}"));
        prop_assert_eq!(string("ts"), "2026-11-20T13:00:00.000001Z");
        prop_assert_eq!(string("event"), event.name());
        prop_assert_eq!(object["level"].as_u64(), Some(u64::from(event.level())));
        prop_assert_eq!(object.get("stop").is_some(), event.stop().is_some());
        prop_assert_eq!(object.get("id").is_some(), event.id().is_some());
        if event.relay().is_some() {
            prop_assert_eq!(string(if v.flag { "client_name" } else { "client_user" }), cut(&v.c));
            if v.flag {
                prop_assert_eq!(string("client_ip").parse::<IpAddr>().unwrap(), v.address);
            }
        }
        match event {
            Event::Accepted { size, msgid, .. } => {
                prop_assert_eq!(string("from"), cut(&v.a));
                prop_assert_eq!(object["size"].as_u64(), Some(size));
                prop_assert_eq!(object.get("msgid").map(|msgid| msgid.as_str().unwrap()), msgid.map(cut));
            }
            Event::Rejected { reply, .. } => {
                prop_assert_eq!(object["reply_code"].as_u64(), Some(u64::from(reply.code().get())));
                let text = reply.lines().collect::<Vec<_>>().join(" ");
                prop_assert_eq!(string("reply"), cut(&text));
            }
            Event::Delivery { reply, stat, .. } => {
                prop_assert_eq!(string("stat"), stat.word());
                prop_assert_eq!(string("text"), cut(stat.text()));
                prop_assert_eq!(object.get("reply").is_some(), reply.is_some());
            }
            Event::Reported { .. } | Event::Unreportable { .. } => prop_assert_eq!(string("text"), cut(&v.a)),
            Event::DestinationDown { .. } => prop_assert_eq!(string("why"), cut(&v.a)),
            Event::AuthFailed { .. } => prop_assert_eq!(string("reason"), cut(&v.a)),
            Event::StartTls { .. } => prop_assert_eq!(string("cipher"), cut(&v.a)),
            Event::ForeignProtocol { .. } => prop_assert_eq!(string("command"), cut(&v.a)),
            _ => {}
        }
    }
}
