//! Rules: their places, their effects, and copies.

use super::*;
use crate::question::EntryLocation;

fn rule(at: At, sender: &[&str], recipient: &[&str], action: RuleAction) -> Rule {
    Rule {
        name: "rule 1".into(),
        place: EntryLocation { map: "rule".into(), file: "mailrace.toml".into(), line: Some(12) },
        at,
        sender: Patterns::parse(sender).unwrap(),
        recipient: Patterns::parse(recipient).unwrap(),
        client: Vec::new(),
        action,
    }
}

fn via(text: &str) -> RuleAction {
    RuleAction { via: Some(MailerValue::parse(text, 25).unwrap()), ..RuleAction::default() }
}

fn copies(texts: &[&str]) -> RuleAction {
    let copies = texts.iter().map(|text| CopyTo::parse(text, 25).unwrap()).collect();
    RuleAction { copies, ..RuleAction::default() }
}

#[test]
fn a_rule_stands_at_its_place() {
    let mut router = router(&[
        ("virtusertable", &[("info@v.test", "x@partner.test")]),
        ("mailertable", &[("partner.test", "smtp:[10.1.1.1]")]),
    ]);
    let hub = "(smtp:[10.9.9.9]:25)";
    for (at, to, is_hub) in [
        (At::First, "info@v.test", true),
        (At::First, "joe@v.test", true),
        (At::BeforeVirtual, "info@v.test", true),
        (At::BeforeLocal, "info@v.test", true),
        (At::BeforeLocal, "joe@v.test", true),
        (At::BeforeMailertable, "joe@v.test", false),
        (At::BeforeMailertable, "x@partner.test", true),
        (At::BeforeMailertable, "x@[192.0.2.7]", true),
        (At::Last, "x@partner.test", false),
        (At::Last, "x@b.example", true),
    ] {
        router.rules = vec![rule(at, &[], &[], via("smtp:[10.9.9.9]"))];
        let said = way(&router, "<s@x.example>", to);
        assert_eq!(said.contains(hub), is_hub, "{at:?} {to}: {said}");
    }
    router.rules = vec![rule(At::First, &[], &["info@v.test"], via("smtp:[10.9.9.9]"))];
    assert_eq!(way(&router, "<s@x.example>", "info@v.test"), format!("info@v.test → smtp:[10.9.9.9]:25 {hub}"));
    router.rules = vec![rule(At::BeforeLocal, &[], &["info@v.test"], via("smtp:[10.9.9.9]"))];
    assert!(!way(&router, "<s@x.example>", "info@v.test").contains(hub), "virtusertable has renamed it");
}

#[test]
fn the_first_rule_that_fits_counts() {
    let mut router = router(&[]);
    router.rules = vec![
        rule(At::BeforeMailertable, &["boss@corp.example"], &[], via("smtp:[10.1.0.1]")),
        rule(At::BeforeMailertable, &["@corp.example"], &["@partner.test"], via("smtp:[10.1.0.2]")),
        rule(At::BeforeMailertable, &[], &["@partner.test"], via("smtp:[10.1.0.3]")),
        rule(At::BeforeMailertable, &["<>"], &[], via("smtp:[10.1.0.4]")),
    ];
    router.rules.push(Rule {
        client: vec!["192.0.2.0/24".parse().unwrap()],
        ..rule(At::BeforeMailertable, &["client@x.example"], &[], via("smtp:[10.1.0.5]"))
    });
    router.rules.push(Rule {
        client: vec!["198.51.100.0/24".parse().unwrap()],
        ..rule(At::BeforeMailertable, &["other@x.example"], &[], via("smtp:[10.1.0.6]"))
    });
    for (from, to, host) in [
        ("<boss@corp.example>", "x@partner.test", "10.1.0.1"),
        ("<ann@corp.example>", "x@partner.test", "10.1.0.2"),
        ("<ann@x.example>", "x@partner.test", "10.1.0.3"),
        ("<>", "x@b.example", "10.1.0.4"),
        ("<client@x.example>", "x@b.example", "10.1.0.5"),
        ("<other@x.example>", "x@b.example", "x@b.example → b.example"),
    ] {
        let said = way(&router, from, to);
        assert!(said.contains(host), "{from} {to}: {said}");
    }
}

#[test]
fn mail_is_held_queued_refused_or_leaves_by_another_address() {
    let mut router = router(&[("mailertable", &[("partner.test", "smtp:[10.1.1.1]")])]);
    router.rules = vec![
        rule(
            At::First,
            &["held@corp.example"],
            &[],
            RuleAction { hold: Some("look at it".into()), queue_only: true, ..RuleAction::default() },
        ),
        rule(
            At::First,
            &["soon@corp.example"],
            &[],
            RuleAction { acknowledge: Some(Acknowledge::Race), ..RuleAction::default() },
        ),
        rule(
            At::First,
            &["bulk@corp.example"],
            &[],
            RuleAction {
                source4: "192.0.2.7".parse().ok(),
                source6: "2001:db8::7".parse().ok(),
                hello: Some("mta1.example".into()),
                ..RuleAction::default()
            },
        ),
        rule(
            At::First,
            &[],
            &["no@partner.test"],
            RuleAction {
                reject: Some(Refusal::new(550, "5.7.1".parse().unwrap(), "not from here")),
                ..RuleAction::default()
            },
        ),
    ];
    for (from, to, outcome) in [
        (
            "<held@corp.example>",
            "x@partner.test",
            "x@partner.test → partner.test (smtp:[10.1.1.1]:25) held: look at it queued",
        ),
        ("<held@corp.example>", "joe@v.test", "joe@v.test → local: held: look at it queued"),
        ("<soon@corp.example>", "joe@v.test", "joe@v.test → local: Race"),
        (
            "<held@corp.example>",
            "no@partner.test",
            "no@partner.test → partner.test (smtp:[10.1.1.1]:25) held: look at it queued",
        ),
        (
            "<bulk@corp.example>",
            "x@b.example",
            "x@b.example → b.example from=192.0.2.7 from=2001:db8::7 hello=mta1.example",
        ),
        ("<bulk@corp.example>", "joe@v.test", "joe@v.test → local:"),
        ("<s@x.example>", "no@partner.test", "550 5.7.1 not from here"),
    ] {
        assert_eq!(way(&router, from, to), outcome, "{from} {to}");
    }
    let resolution = resolve(&router, "<s@x.example>", "no@partner.test").unwrap();
    let found = resolution.steps[0].found.as_ref().unwrap();
    assert_eq!((&*found.place.file, found.place.line), ("mailrace.toml", Some(12)));
}

#[test]
fn the_same_mail_goes_to_two_servers() {
    let mut router = router(&[("mailertable", &[("partner.test", "smtp:[10.1.1.1]")])]);
    router.rules = vec![rule(At::BeforeMailertable, &[], &["@partner.test"], copies(&["smtp:[10.1.1.2]"]))];
    assert_eq!(
        way(&router, "<s@x.example>", "x@partner.test"),
        "x@partner.test → partner.test (smtp:[10.1.1.1]:25); x@partner.test → smtp:[10.1.1.2]:25 copy (smtp:[10.1.1.2]:25)"
    );
    let Outcome::Deliver(deliveries) = resolve(&router, "<s@x.example>", "x@partner.test").unwrap().outcome else {
        panic!()
    };
    assert_eq!([deliveries[0].is_copy, deliveries[1].is_copy], [false, true]);
    assert_eq!(deliveries[1].copy_dsn, CopyDsn::Never);
    router.rules[0].action.copy_dsn = CopyDsn::AsOriginal;
    let Outcome::Deliver(deliveries) = resolve(&router, "<s@x.example>", "x@partner.test").unwrap().outcome else {
        panic!()
    };
    assert_eq!(deliveries[1].copy_dsn, CopyDsn::AsOriginal);
    // A rule of copies alone does not end the search; copies of several rules add up.
    router.rules.push(rule(At::BeforeMailertable, &[], &[], copies(&["journal@archive.test"])));
    router.rules.push(rule(At::BeforeMailertable, &[], &[], via("smtp:[10.5.5.5]")));
    assert_eq!(
        way(&router, "<s@x.example>", "x@partner.test"),
        "x@partner.test → smtp:[10.5.5.5]:25 (smtp:[10.5.5.5]:25); x@partner.test → smtp:[10.1.1.2]:25 copy \
         (smtp:[10.1.1.2]:25); journal@archive.test → smtp:[10.5.5.5]:25 copy (smtp:[10.5.5.5]:25)"
    );
}

#[test]
fn a_copy_makes_no_copy_and_harms_nobody() {
    let mut router = router(&[
        ("virtusertable", &[("gone@v.test", "error:nouser 550 No such user")]),
        ("mailertable", &[("bad.test", "smtp:[")]),
    ]);
    // The journal fits its own rule, and two rules copy to each other's addresses.
    router.rules = vec![
        rule(At::First, &[], &[], copies(&["a@archive.test"])),
        rule(At::First, &[], &[], copies(&["b@archive.test", "a@archive.test"])),
    ];
    assert_eq!(
        way(&router, "<s@x.example>", "x@y.test"),
        "x@y.test → y.test; a@archive.test → archive.test copy; b@archive.test → archive.test copy"
    );
    // A recipient that gets the mail anyway gets no copy.
    assert_eq!(
        way(&router, "<s@x.example>", "a@archive.test"),
        "a@archive.test → archive.test; b@archive.test → archive.test copy"
    );
    // A copy that is refused is told, and the mail is delivered.
    router.rules = vec![rule(At::First, &[], &[], copies(&["gone@v.test", "nobody@v.test"]))];
    assert_eq!(
        way(&router, "<s@x.example>", "x@y.test"),
        "x@y.test → y.test; gone@v.test failed: 550 5.0.0 <x@y.test>... No such user; \
         nobody@v.test failed: 550 5.1.1 <x@y.test>... User unknown"
    );
    // Mail that is refused is not copied.
    router.rules = vec![rule(At::First, &[], &[], copies(&["a@archive.test"]))];
    assert_eq!(way(&router, "<s@x.example>", "nobody@v.test"), "550 5.1.1 <nobody@v.test>... User unknown");
    // A copy that cannot be placed now lets the client try again: it may be the archive that the law wants.
    router.rules = vec![rule(At::First, &[], &[], copies(&["a@bad.test"]))];
    assert!(way(&router, "<s@x.example>", "x@y.test").starts_with("trouble: "));
}
