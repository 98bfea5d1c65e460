//! Each doubt, and entries about which there is none.

use super::*;
use crate::question::{EntryLocation, Source};
use std::sync::Arc;

/// The doubts about one map of these lines, each `severity line: text`.
fn doubts(router: &mut Router, name: &str, lines: &[(&str, &str)]) -> Vec<String> {
    let entries = lines.iter().zip(1..).map(|((key, value), line)| (*key, *value, line));
    let table = crate::map::Table::from_lines(name, name, entries).table;
    let sources = vec![Source::Loaded(Arc::new(table))];
    match name {
        "mailertable" => router.maps.mailertable = sources,
        "virtusertable" => router.maps.virtusertable = sources,
        "genericstable" => router.maps.genericstable = sources,
        "domaintable" => router.maps.domaintable = sources,
        _ => router.maps.smarttable = sources,
    }
    let lints = router.lint();
    assert!(lints.iter().all(|lint| !lint.hint.is_empty() && lint.place.line.is_some()), "{lints:?}");
    lints.iter().map(|lint| format!("{} {}", lint.place.line.unwrap(), lint.text)).collect()
}

#[track_caller]
fn check(said: &[String], expected: &[(u32, &str)]) {
    for (line, part) in expected {
        let is_said = said.iter().any(|said| said.starts_with(&format!("{line} ")) && said.contains(part));
        assert!(is_said, "line {line} {part}: {said:#?}");
    }
    assert_eq!(said.len(), expected.len(), "{said:#?}");
}

#[test]
fn of_mailertable() {
    let mut router = router(&[("domaintable", &[("renamed.test", "new.test")])]);
    let said = doubts(
        &mut router,
        "mailertable",
        &[
            ("a.test", "smtp:[10.0.0.5"),
            ("b.test", "bare.host.name"),
            ("v.test", "smtp:[10.0.0.1]"),
            ("joe@c.test", "smtp:[10.0.0.1]"),
            ("*.d.test", "smtp:[10.0.0.1]"),
            ("e.test.", "smtp:[10.0.0.1]"),
            (".f.test", "smtp:[10.0.0.1]"),
            ("g.test", "smtp:%1.example"),
            (".", "smtp:%2.example"),
            ("h.test", "error:nohost text"),
            ("i.test", "error:5.1.2:550 Moved, see http://x"),
            ("j.test", "relay:oracle.example"),
            ("k.test", "smtp:[192.0.2.25]"),
            ("l.test", "smtp:10.0.0.1"),
            ("m.test", "smtp:[10.0.0.1]:2525"),
            ("n.test", "nosuch:x"),
            ("renamed.test", "smtp:[10.0.0.1]"),
            ("fine.test", "smtp:[10.0.0.1]:[10.0.0.2]"),
            (".fine.test", "relay:%1.%2.example"),
            ("ok.test", "error:5.1.6:\"550 moved, see http://x\""),
            ("ok2.test", "error:550 moved"),
            ("ok3.test", "local:"),
        ],
    );
    check(
        &said,
        &[
            (1, "lacks \"]\""),
            (2, "has no mailer"),
            (3, "one of our own domains"),
            (4, "is an address and never fits"),
            (5, "a leading dot"),
            (6, "ends with a dot"),
            (7, "f.test itself has no entry"),
            (8, "%1 in"),
            (9, "%2 in"),
            (10, "no reply code"),
            (10, "taken for text"),
            (11, "no quotes"),
            (12, "is this server"),
            (13, "is this server"),
            (14, "without brackets"),
            (15, "a number"),
            (16, "no mailer \"nosuch\""),
            (17, "another name in domaintable"),
        ],
    );
}

#[test]
fn of_virtusertable() {
    let mut router = router(&[]);
    router.classes.virt = class(&["virt.test", "virt2.test"]);
    let said = doubts(
        &mut router,
        "virtusertable",
        &[
            ("joe", "ann"),
            ("a@elsewhere.test", "ann"),
            ("a@virt.test", "ann"),
            ("a@v.test", "b@v.test, c@v.test"),
            ("l1@v.test", "l2@v.test"),
            ("l2@v.test", "L1@v.test"),
            ("e1@v.test", "error:nouser:550"),
            ("e2@v.test", "error:nouser text"),
            ("e3@v.test", "error:nouser 550 gone; see http://x"),
            ("m@v.test", "smtp:x@y.example"),
            ("@w3.test", "@new.example"),
            ("d+x@v.test", "a-%2@b.example"),
            ("p@v.test", "x%4@b.example"),
            ("prog@v.test", "\"|/bin/cat\""),
            ("same@v.test", "same@v.test"),
            ("fine@v.test", "joe"),
            ("s+*@v.test", "s-%2@crm.example"),
            ("@virt2.test", "%1%3@mail.example"),
            ("ok@v.test", "error:nouser 550 No such user"),
            ("ok2@v.test", "error:5.7.0:\"550 no, not here\""),
            ("chain@v.test", "fine@v.test"),
        ],
    );
    check(
        &said,
        &[
            (1, "has no domain"),
            (2, "not one of our domains"),
            (3, "no entry @virt.test"),
            (4, "no address"),
            (5, "leads back to itself"),
            (7, "no reply code"),
            (7, "colon"),
            (8, "no reply code"),
            (9, "no quotes"),
            (10, "is dropped"),
            (11, "sendmail refuses"),
            (12, "%2 in"),
            (13, "%4 in"),
            (14, "only aliases"),
        ],
    );
}

#[test]
fn of_the_other_tables() {
    let mut router = router(&[]);
    router.settings.generics.domains = class(&["g.test"]);
    let said = doubts(
        &mut router,
        "domaintable",
        &[
            ("a.test", "b.test"),
            ("b.test", "c.test"),
            (".d.test", "e.test"),
            ("f.test", "no domain"),
            ("g.test", "g.test"),
            ("h.test", "i.test"),
        ],
    );
    check(&said, &[(1, "not asked any more"), (3, "never fits"), (4, "is no domain"), (5, "its own other name")]);
    router.maps.domaintable.clear();
    let said = doubts(
        &mut router,
        "genericstable",
        &[
            ("joe", "joe@corp.example"),
            ("a@other.test", "b@corp.example"),
            ("c", "d e"),
            ("f@g.test", "f%1@x.example"),
            ("g+*", "g.%1@x.example"),
        ],
    );
    check(&said, &[(2, "never asked"), (3, "no address"), (4, "%1 in")]);
    router.maps.genericstable.clear();
    let said = doubts(
        &mut router,
        "smarttable",
        &[
            ("<>", "relay:[a]"),
            ("boss@corp.example", "relay:[a"),
            ("@b.test.", "relay:[a]"),
            ("@", "relay:[a]"),
            ("own@b.test", "oracle.example"),
        ],
    );
    check(&said, &[(1, "never fits"), (2, "lacks"), (3, "ends with a dot")]);
}

#[test]
fn of_a_smarttable_that_is_never_asked_and_of_rules() {
    let mut router = router(&[("smarttable", &[("boss@corp.example", "relay:[crypt]")])]);
    let said = doubts(&mut router, "mailertable", &[("a.test", "smtp:[10.0.0.1]"), (".", "esmtp:[smart.example]")]);
    check(&said, &[(2, "smarttable with its 1 entries is never asked")]);
    router.settings.precedence = Precedence::Sender;
    assert_eq!(router.lint(), []);
    let rule = |name: &str, action: RuleAction| Rule {
        name: name.into(),
        place: EntryLocation { map: "rule".into(), file: "mailrace.toml".into(), line: Some(1) },
        at: At::First,
        sender: Patterns::parse::<&str>(&[]).unwrap(),
        recipient: Patterns::parse::<&str>(&[]).unwrap(),
        client: Vec::new(),
        action,
    };
    let hold = || RuleAction { hold: Some("x".into()), ..RuleAction::default() };
    router.rules = vec![rule("rule 1", hold()), rule("rule 2", RuleAction::default()), rule("rule 3", hold())];
    let said: Vec<String> = router.lint().iter().map(|lint| lint.text.clone()).collect();
    assert_eq!(
        said,
        [
            "rule 2 does nothing, and no later rule is asked for what fits it",
            "rule 2 is never asked: rule 1 before it is for all mail",
            "rule 3 is never asked: rule 1 before it is for all mail",
        ]
    );
}
