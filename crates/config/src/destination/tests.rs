//! Rules that fit next hops, and the values that apply then.

use super::super::{Machine, load, render};
use super::*;

fn config(text: &str) -> Config {
    load(text, None, &[], &Machine::default()).unwrap_or_else(|problems| panic!("{}", render(&problems))).config
}

fn rule(entry: &str) -> String {
    format!("[[destination]]\nmatch = ['{entry}']\n")
}

#[test]
fn entries() {
    for (entry, destination, mx, fits) in [
        ("example.com", "example.com", &[][..], true),
        ("Example.COM", "example.com", &[], true),
        ("example.com", "a.example.com", &[], false),
        (".example.com", "example.com", &[], true),
        (".example.com", "a.b.example.com", &[], true),
        (".example.com", "badexample.com", &[], false),
        ("bücher.example", "xn--bcher-kva.example", &[], true),
        // The name of an MX host is not the domain.
        ("example.com", "other.example", &["example.com"], false),
        ("mx:mx1.example.com", "other.example", &["mx1.example.com"], true),
        ("mx:mx1.example.com", "mx1.example.com", &["other.example"], false),
        ("mx:*.outlook.com", "a.example", &["a-example.mail.protection.outlook.com."], true),
        ("mx:*.outlook.com", "a.example", &["mx.a.example", "A.Mail.OUTLOOK.com"], true),
        ("mx:*.outlook.com", "a.example", &["outlook.com"], false),
        ("mx:*.outlook.com", "a.example", &["x.outlook.com.evil.example"], false),
        ("mx:mx*.example.com", "a.example", &["mx.example.com"], true),
        ("mx:mx*.example.com", "a.example", &["mx1.eu.example.com"], true),
        ("mx:mx*.*.example.com", "a.example", &["mx1.example.com"], false),
        ("mx:*", "a.example", &["anything"], true),
        ("mx:*", "a.example", &[], false),
        ("mx:*", "[192.0.2.1]", &["anything"], false),
        ("mx:*a*b*", "a.example", &["xxaxxxb"], true),
        ("mx:*a*b*", "a.example", &["xxbxxxa"], false),
        ("[192.0.2.1]", "[192.0.2.1]", &[], true),
        ("[192.0.2.1]", "[192.0.2.10]", &[], false),
        ("[2001:db8:0::1]", "[IPv6:2001:db8::1]", &[], true),
        ("hop:[192.0.2.1]:25", "smtp:[192.0.2.1]:25", &[], true),
        ("hop:[192.0.2.1]", "smtp:[192.0.2.1]:25", &[], true),
        ("hop:[192.0.2.1]:26", "smtp:[192.0.2.1]:25", &[], false),
        ("hop:B.example:2525", "smtp:[192.0.2.1]:25,(a.example:25|b.example:2525)", &[], true),
        ("hop:[2001:db8::1]:24", "lmtp:[2001:db8::1]:24", &[], true),
        ("hop:a.example", "a.example", &["a.example"], false),
        ("group:slow", "a.example group=slow", &[], true),
        ("group:slow", "smtp:[192.0.2.1]:25 hello=x.example group=slow copy", &[], true),
        ("group:slow", "a.example group=slower", &[], false),
        ("group:slow", "file:joe:/x group=slow", &[], false),
        ("a.example", "a.example from=192.0.2.7 group=slow", &[], true),
        (".", "x", &[], false),
    ] {
        if entry == "." {
            assert_eq!(entry.parse::<NextHop>(), Err(NoNextHop));
            continue;
        }
        let found = config(&rule(entry)).rule_for(destination.as_bytes(), mx).index;
        assert_eq!(found.is_some(), fits, "{entry} {destination} {mx:?}");
        let next_hop: NextHop = entry.parse().expect("an entry");
        assert_eq!(next_hop.to_string().parse(), Ok(next_hop));
    }
}

#[test]
fn what_is_no_entry() {
    for text in [
        "",
        "*",
        "*.example.com",
        "a b",
        "192.0.2.1",
        "2001:db8::1",
        "[192.0.2.1]:25",
        "[mx.example.com]",
        "mx:",
        "mx:.a",
        "mx:a..b",
        "mx:a b",
        "mx:bücher.*",
        "hop:",
        "hop:a:0",
        "smtp:a",
        "a@b",
        "a.",
    ] {
        assert_eq!(text.parse::<NextHop>(), Err(NoNextHop), "{text}");
    }
    assert_eq!(NextHop::meant("*.example.com").as_deref(), Some(".example.com"));
    assert_eq!(NextHop::meant("mx:.outlook.com").as_deref(), Some("mx:*.outlook.com"));
    assert_eq!(NextHop::meant("[192.0.2.1]:25").as_deref(), Some("hop:[192.0.2.1]:25"));
}

/// A pattern with many stars must not cost more than the product of the lengths.
#[test]
fn patterns_are_cheap() {
    let pattern: MxPattern = format!("{}b", "*a".repeat(31)).parse().expect("a pattern");
    assert!(!pattern.matches(&"a".repeat(100_000)));
}

#[test]
fn the_first_that_fits_counts_alone() {
    let config = config(
        "delivery.connections_per_destination = 7\nroute.tls = 'required'\nhostname = 'mx.example.net'\n\
         [[destination]]\nmatch = 'a.example'\nconnections = 2\nmessages_per_second = 0.5\n\
         [[destination]]\nmatch = ['mx:*.big.example', '.example']\nmessages_per_connection = 20\ntls = 'none'\n\
         source = ['2001:db8::7', '192.0.2.7']\nhello = 'Out.example.net'\nrecipients_per_transaction = 3",
    );
    let all = EffectiveRule {
        index: None,
        set_limit: None,
        connections: 7,
        messages_per_second: None,
        recipients_per_transaction: 100,
        messages_per_connection: 1_000,
        is_shared: false,
        source4: None,
        source6: None,
        hello: None,
        tls: RouteTls::Required,
        extensions: UsedExtensions { pipelining: true, chunking: true, size: true, eight_bit_mime: true, dsn: true },
    };
    assert_eq!(config.rule_for(b"a.test", &["mx.a.test"]), all);
    assert_eq!(config.rule_for(b"\xff", &[]), all);
    let first = EffectiveRule {
        index: Some(0),
        connections: 2,
        messages_per_second: Some(500),
        is_shared: true,
        ..all.clone()
    };
    assert_eq!(config.rule_for(b"a.example", &["mx1.big.example"]), first);
    let second = EffectiveRule {
        index: Some(1),
        is_shared: true,
        messages_per_connection: 20,
        recipients_per_transaction: 3,
        source4: Some([192, 0, 2, 7].into()),
        source6: "2001:db8::7".parse().ok(),
        hello: Some("out.example.net".into()),
        tls: RouteTls::None,
        ..all
    };
    assert_eq!(config.rule_for(b"b.test", &["mx1.big.example"]), second);
    assert_eq!(config.rule_for(b"b.example", &[]), second);
}

#[test]
fn a_limit_that_was_set_counts_before_the_rule_and_leaves_its_other_values() {
    let text = "hostname = 'a.test'\n[[destination]]\nmatch = '.b.test'\nconnections = 9\nhello = 'h.test'\n";
    let mut config = load(text, None, &[], &Machine::default()).expect("good").config;
    let limit = |next_hop: &str, connections, rate: Option<u32>| SetLimit {
        next_hop: next_hop.parse().expect("a next hop"),
        connections,
        messages_per_second: rate.map(Rate::of_milli),
    };
    config.set_limits = vec![limit("x.b.test", Some(2), None), limit("mx:*.c.test", None, Some(500))];
    let rule = config.rule_for(b"x.b.test", &[]);
    assert_eq!((rule.index, rule.set_limit, rule.connections, rule.messages_per_second), (Some(0), Some(0), 2, None));
    assert_eq!(rule.hello.as_deref(), Some("h.test"));
    let rule = config.rule_for(b"d.test", &["mx1.c.test"]);
    assert_eq!((rule.index, rule.set_limit, rule.messages_per_second), (None, Some(1), Some(500)));
    assert_eq!(config.rule_for(b"y.b.test", &[]).set_limit, None);
}
