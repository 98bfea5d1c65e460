//! Copies by `bcc:` and queue groups by `QGRP:` of the access map.

use super::*;
use crate::access::{Access, Options};
use crate::question::EntryLocation;

/// A router with this access map.
fn tagged(entries: &[(&str, &str)]) -> Router {
    let mut router = router(&[("mailertable", &[("m.test", "esmtp:[192.0.2.1]"), ("bad.test", "error:nohost gone")])]);
    router.maps.access = Access::new(map("access", entries), Options::default()).into();
    router
}

#[test]
fn a_copy_goes_by_the_domain_of_the_recipient() {
    let router = tagged(&[
        ("bcc:d.test", "archive@a.test"),
        ("bcc:own.d.test", "\"\""),
        ("bcc:v.test", "archive@a.test"),
        ("bcc:a.test", "further@b.test"),
        ("bcc:bad.test", "archive@a.test"),
        ("bcc:lost.test", "nobody@v.test"),
    ]);
    let way = |recipient: &str| way(&router, "<x@y.test>", recipient);
    assert_eq!(way("u@d.test"), "u@d.test → d.test; archive@a.test → a.test copy");
    assert_eq!(way("u@sub.d.test"), "u@sub.d.test → sub.d.test; archive@a.test → a.test copy");
    assert_eq!(way("u@own.d.test"), "u@own.d.test → own.d.test");
    assert_eq!(way("u@other.test"), "u@other.test → other.test");
    // The domain that was asked for counts, whatever address gets the mail then.
    assert_eq!(way("joe@v.test"), "joe@v.test → local:; archive@a.test → a.test copy");
    // A copy leads to no other, and no recipient is its own copy.
    assert_eq!(way("archive@a.test"), "archive@a.test → a.test; further@b.test → b.test copy");
    let own = tagged(&[("bcc:a.test", "archive@a.test")]);
    assert_eq!(super::way(&own, "<x@y.test>", "archive@a.test"), "archive@a.test → a.test");
    // A refused recipient leaves no copy, and a refused copy harms nothing.
    assert!(way("u@bad.test").contains("gone") && !way("u@bad.test").contains("archive"), "{}", way("u@bad.test"));
    assert!(
        way("u@lost.test").starts_with("u@lost.test → lost.test; nobody@v.test failed: "),
        "{}",
        way("u@lost.test")
    );
}

#[test]
fn a_copy_adds_to_those_of_rules_and_is_explained() {
    let mut router = tagged(&[("bcc:d.test", "archive@a.test")]);
    let action = RuleAction { copies: vec![CopyTo::Address("rule@b.test".parse().unwrap())], ..RuleAction::default() };
    router.rules.push(Rule {
        name: "route.rule[0]".into(),
        place: EntryLocation { map: "rule".into(), file: "route.rule[0]".into(), line: None },
        at: At::First,
        sender: Patterns::parse::<&str>(&[]).unwrap(),
        recipient: Patterns::parse(&["@d.test"]).unwrap(),
        client: Vec::new(),
        action,
    });
    let way = way(&router, "<x@y.test>", "u@d.test");
    assert_eq!(way, "u@d.test → d.test; archive@a.test → a.test copy; rule@b.test → b.test copy");
    let steps = resolve(&router, "<x@y.test>", "u@d.test").unwrap().steps;
    let step = steps.iter().find(|step| step.stage == "bcc").expect("it is told");
    assert_eq!(step.found.as_ref().map(|found| &*found.key), Some("bcc:d.test"));
}

#[test]
fn a_queue_group_is_part_of_the_destination() {
    let router = tagged(&[
        ("QGRP:slow.test", "slow"),
        ("QGRP:u@fast.slow.test", "fast"),
        ("QGRP:m.test", "slow"),
        ("QGRP:v.test", "slow"),
        ("QGRP:two.test", "two words"),
    ]);
    let way = |recipient: &str| way(&router, "<x@y.test>", recipient);
    assert_eq!(way("u@slow.test"), "u@slow.test → slow.test group=slow");
    assert_eq!(way("u@fast.slow.test"), "u@fast.slow.test → fast.slow.test group=fast");
    assert_eq!(way("v@fast.slow.test"), "v@fast.slow.test → fast.slow.test group=slow");
    assert_eq!(way("u@m.test"), "u@m.test → m.test group=slow (smtp:[192.0.2.1]:25)");
    assert_eq!(way("joe@v.test"), "joe@v.test → local:");
    assert_eq!(way("u@two.test"), "u@two.test → two.test");
}

#[test]
fn a_map_outside_is_asked_and_its_trouble_is_trouble() {
    let mut router = router(&[]);
    router.maps.access = Access::new(vec![Source::Outside("ldap:access".into())], Options::default()).into();
    let answer = |question: &Question| match question {
        Question::Map { key, .. } if &**key == "bcc:d.test" => {
            Answer::Value { value: "archive@a.test".into(), place: "ldap:access x".into() }
        }
        Question::Map { key, .. } if &**key == "QGRP:a.test" => {
            Answer::Value { value: "slow".into(), place: "ldap:access y".into() }
        }
        _ => Answer::Nothing,
    };
    let say = |resolution| told(&resolution);
    let there = resolve_with(&router, "<x@y.test>", "u@d.test", answer);
    assert_eq!(say(there), "u@d.test → d.test; archive@a.test → a.test group=slow copy");
    let down = resolve_with(&router, "<x@y.test>", "u@d.test", |question| match question {
        Question::Map { key, .. } if key.starts_with("QGRP:") => Answer::Trouble("down".into()),
        _ => Answer::Nothing,
    });
    assert_eq!(say(down), "trouble: down");
}
