//! Users, aliases and forwards between the maps.

use super::*;

const ALIASES: &[(&str, &str)] = &[
    ("list", "ann@b.example, joe, nobody, info@v.test"),
    ("owner-list", "list-admin"),
    ("self", "self@v.test, x@b.example"),
    ("joe-both", "joe@v.test, joe@w.test, joe"),
    ("a", "b@v.test"),
    ("b", "a@v.test"),
    ("prog", "\"|/usr/bin/vacation joe\""),
    ("file", "/var/mail/archive"),
    ("gone", "error:5.1.6:\"550 he has left\""),
    ("deep0", "deep1@v.test"),
    ("postbox", "postmaster"),
    ("wide", "x1@w2.test, x2@w2.test, x3@w2.test"),
    ("target", "y@c.example, z@c.example"),
];

fn world() -> Router {
    let deep: Vec<(String, String)> = (0..20).map(|n| (format!("deep{n}"), format!("deep{}@v.test", n + 1))).collect();
    let mut aliases: Vec<(&str, &str)> = ALIASES.to_vec();
    aliases.extend(deep.iter().skip(1).map(|(key, value)| (key.as_str(), value.as_str())));
    router(&[
        ("aliases", &aliases),
        ("virtusertable", &[("info@v.test", "x@partner.test"), ("@w2.test", "target"), ("wild@v.test", "list")]),
        ("mailertable", &[("partner.test", "smtp:[10.1.1.1]"), ("here.test", "local:")]),
    ])
}

#[test]
fn members_go_through_the_maps_from_the_start() {
    let router = world();
    for (to, outcome) in [
        (
            "list@v.test",
            "joe@v.test → local: as <list-admin@oracle.example>; ann@b.example → b.example as <list-admin@oracle.example>; \
             x@partner.test → partner.test (smtp:[10.1.1.1]:25) as <list-admin@oracle.example>; \
             nobody@v.test failed: 550 5.1.1 <list@v.test>... User unknown",
        ),
        ("joe-both@v.test", "joe@v.test → local:"),
        ("prog@v.test", "prog@v.test → prog::/usr/bin/vacation joe"),
        ("file@w.test", "file@w.test → file::/var/mail/archive"),
        ("gone@v.test", "550 5.1.6 <gone@v.test>... he has left"),
        ("postmaster@v.test", "root@v.test → local:"),
        ("PostMaster@oracle.example", "root@oracle.example → local:"),
        ("postbox@v.test", "root@v.test → local:"),
        // Three addresses that are one user give each member one mail.
        ("wide@v.test", "y@c.example → c.example; z@c.example → c.example"),
        ("target@here.test", "y@c.example → c.example; z@c.example → c.example"),
        ("joe+box@v.test", "joe+box@v.test → local:"),
        ("JOE@v.test", "joe@v.test → local:"),
    ] {
        assert_eq!(way(&router, "<s@x.example>", to), outcome, "{to}");
    }
}

#[test]
fn loops_end() {
    let router = world();
    for to in ["a@v.test", "b@w.test", "a@oracle.example"] {
        let said = way(&router, "<s@x.example>", to);
        assert_eq!(said, format!("554 5.4.6 <{to}>... aliasing/forwarding loop broken"));
    }
    let said = way(&router, "<s@x.example>", "deep0@v.test");
    assert!(
        said.starts_with("554 5.4.6 <deep0@v.test>... aliasing/forwarding loop broken (11 aliases deep; 10 max)"),
        "{said}"
    );
    // As in sendmail, a name that leads to itself among others is a user; here it is none.
    let said = way(&router, "<s@x.example>", "self@v.test");
    assert!(said.starts_with("x@b.example → b.example"), "{said}");
}

#[test]
fn a_user_who_forwards_to_himself_keeps_a_copy() {
    let router = world();
    let forward = |question: &Question| match question {
        Question::Forward { user, .. } if &**user == "joe" => Answer::Text {
            text: "\\joe, joe@partner.test, \"|/bin/cat\"".into(),
            file: "/srv/joe/.forward".into(),
            owner: Some("joe".into()),
        },
        other => answer(other),
    };
    let said = told(&resolve_with(&router, "<s@x.example>", "joe@v.test", forward));
    assert_eq!(
        said,
        "joe@v.test → prog:joe:/bin/cat; joe@v.test → local:; joe@partner.test → partner.test (smtp:[10.1.1.1]:25)"
    );
}

#[test]
fn rules_and_copies_of_members() {
    let mut router = world();
    let rule = Rule {
        name: "rule 1".into(),
        place: crate::question::EntryLocation { map: "rule".into(), file: "mailrace.toml".into(), line: Some(1) },
        at: At::BeforeMailertable,
        sender: Patterns::parse::<&str>(&[]).unwrap(),
        recipient: Patterns::parse(&["@c.example"]).unwrap(),
        client: Vec::new(),
        action: RuleAction { copies: vec![CopyTo::parse("smtp:[10.8.8.8]", 25).unwrap()], ..RuleAction::default() },
    };
    router.rules = vec![rule];
    assert_eq!(
        way(&router, "<s@x.example>", "target@v.test"),
        "y@c.example → c.example; z@c.example → c.example; y@c.example → smtp:[10.8.8.8]:25 copy (smtp:[10.8.8.8]:25); \
         z@c.example → smtp:[10.8.8.8]:25 copy (smtp:[10.8.8.8]:25)"
    );
    router.rules[0].at = At::First;
    router.rules[0].recipient = Patterns::parse::<&str>(&[]).unwrap();
    // Copied at the first place, its members are not copied again.
    assert_eq!(
        way(&router, "<s@x.example>", "target@v.test"),
        "y@c.example → c.example; z@c.example → c.example; \
         target@v.test → smtp:[10.8.8.8]:25 copy (smtp:[10.8.8.8]:25)"
    );
}
