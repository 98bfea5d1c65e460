//! Header sections before and after, by example and at random; and their cost.

use super::*;
use crate::resolve::header::{last_field, section_end};
use mail::header::{HeaderSection, LineEnd};
use proptest::prelude::*;

fn outside() -> Router {
    let mut router = router(&[
        (
            "genericstable",
            &[("joe", "Joe.Doe@corp.example"), ("ann@g.test", "Ann.Arbor@corp.example"), ("unq", "other")],
        ),
        ("domaintable", &[("old.test", "new.test")]),
    ]);
    router.settings.generics =
        Generics { domains: class(&["g.test"]), envelope: false, headers: true, recipients: false };
    router.settings.masquerade = Some(Masquerade {
        domain: "corp.example".parse().unwrap(),
        domains: Class::default(),
        is_limited: false,
        exceptions: Class::default(),
        exposed: vec!["root".into()],
    });
    router
}

fn rewritten(router: &Router, section: &str) -> String {
    let new = router.header(&mut Ask::new(&Answers::new()), section.as_bytes()).unwrap();
    new.map_or_else(|| "=".to_owned(), |new| String::from_utf8(new).unwrap())
}

#[test]
fn senders_have_other_names_in_the_header() {
    let router = outside();
    for (section, expected) in [
        ("From: Joe <joe@g.test>\r\nTo: ann@g.test\r\n", "From: Joe <Joe.Doe@corp.example>\r\nTo: ann@g.test\r\n"),
        ("Subject: joe@g.test\r\nX-From: joe@g.test\r\n", "="),
        ("From: x@far.test\r\nSender: joe\r\n", "From: x@far.test\r\nSender: Joe.Doe@corp.example\r\n"),
        ("reply-TO:joe@g.test,\r\n\tunq@g.test", "reply-TO:Joe.Doe@corp.example,\r\n\tother@corp.example"),
        ("From: root@oracle.example\r\n", "="),
        ("From: ann@v.test\r\nFrom: joe@g.test\r\n", "From: ann@corp.example\r\nFrom: Joe.Doe@corp.example\r\n"),
        (
            "Resent-From: ann@v.test\r\nResent-To: ann@v.test\r\n",
            "Resent-From: ann@corp.example\r\nResent-To: ann@v.test\r\n",
        ),
        ("To: a@old.test, b@v.test\r\n", "To: a@new.test, b@v.test\r\n"),
        ("From: root@localhost\r\n", "From: root@oracle.example\r\n"),
        ("From : ann@v.test\r\n", "From : ann@corp.example\r\n"),
        ("Fr om: ann@v.test\r\nFrom: ann@v.test\r\n", "Fr om: ann@v.test\r\nFrom: ann@corp.example\r\n"),
    ] {
        assert_eq!(rewritten(&router, section), expected, "{section:?}");
    }
    let mut all = router;
    all.settings.generics.recipients = true;
    assert_eq!(
        rewritten(&all, "To: Ann <ann@g.test>, b@v.test\r\nCc: x@far.test\r\n"),
        "To: Ann <Ann.Arbor@corp.example>, b@corp.example\r\nCc: x@far.test\r\n"
    );
    all.settings.generics.headers = false;
    assert!(!all.has_headers());
}

#[test]
fn all_that_has_to_be_asked_is_asked_at_once() {
    let mut router = outside();
    router.maps.genericstable = vec![Source::Outside("ldap:people".into())];
    let answers = Answers::new();
    let mut ask = Ask::new(&answers);
    let section = b"From: joe@g.test, ann@g.test\r\nSender: x@g.test\r\nReply-To: y@far.test\r\n";
    assert!(matches!(router.header(&mut ask, section), Err(Stop::Open)));
    assert_eq!(ask.into_open().len(), 7, "addresses, users, @g.test");
}

#[test]
fn a_map_that_cannot_be_asked_is_trouble() {
    let mut router = outside();
    router.maps.genericstable = vec![Source::Outside("ldap:people".into())];
    let mut answers = Answers::new();
    for _ in 0..10 {
        let mut ask = Ask::new(&answers);
        match router.header(&mut ask, b"From: joe@g.test\r\n") {
            Err(Stop::Open) => {
                let open = ask.into_open();
                open.into_iter().for_each(|question| answers.insert(question, Answer::Trouble("down".into())));
            }
            end => {
                assert!(matches!(end, Err(Stop::Trouble(_))), "{end:?}");
                assert_eq!(router.header(&mut Ask::new(&answers), b"From: x@far.test\r\n"), Ok(None));
                return;
            }
        }
    }
    panic!("it asks for ever");
}

#[test]
fn the_section_ends_where_no_field_is() {
    for (content, end) in [
        ("A: 1\r\nB: 2\r\n\r\nbody", Some(12)),
        ("A: 1\r\nB: 2\r\n", None),
        ("A: 1\r\nhello", None),
        ("A: 1\r\nhello\r\nB: 2\r\n", Some(6)),
        ("A: 1\r\nhello\r\n\r\n", Some(6)),
        ("A: 1\r\nFrom joe Mon\r\nB: 2\r\n\r\n", Some(26)),
        ("\r\nbody", Some(0)),
        ("", None),
    ] {
        assert_eq!(section_end(content.as_bytes()), end, "{content:?}");
    }
    assert_eq!(last_field(b"A: 1\r\nB: 2\r\n 3"), 6);
}

proptest! {
    #[test]
    fn where_it_ends_does_not_depend_on_pieces(content in "([A-C]{0,2}[:]?( [a-b]{0,3})?(\r\n){1,2} ?){0,8}", cut in 0usize..60) {
        let whole = section_end(content.as_bytes());
        if let Some(early) = section_end(&content.as_bytes()[..cut.min(content.len())]) {
            prop_assert_eq!(Some(early), whole);
        }
    }

    #[test]
    fn rewriting_again_changes_nothing(
        fields in prop::collection::vec(("(From|To|Sender|Subject|Reply-To)", "[a-z\"<>(),. ]{0,6}(joe|ann|unq)@(g|v|far).test[>),;\" ]{0,4}"), 0..6),
        all: bool,
    ) {
        let mut router = outside();
        router.settings.generics.recipients = all;
        let section: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let ask = |section: &[u8]| router.header(&mut Ask::new(&Answers::new()), section).unwrap();
        if let Some(new) = ask(section.as_bytes()) {
            prop_assert_eq!(ask(&new), None);
            let names = |text: &[u8]| HeaderSection::read(text, LineEnd::Crlf).fields().map(|field| field.name().to_owned()).collect::<Vec<_>>();
            prop_assert_eq!(names(&new), names(section.as_bytes()));
            let kept = |text: &[u8]| text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"Subject:")).map(<[u8]>::to_vec).collect::<Vec<_>>();
            prop_assert_eq!(kept(&new), kept(section.as_bytes()));
        }
    }
}

/// `cargo test --release -p mailrace-route -- --ignored --nocapture speed_of_headers`
#[test]
#[ignore = "prints times; a release build tells more"]
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn speed_of_headers() {
    let usual: String = (0..12).map(|n| format!("X-Field-{n}: something of some length, as it is usual\r\n")).collect();
    let section = |from: &str| {
        format!("Received: from a by b;\r\n\tdate\r\nFrom: Joe User <{from}>\r\nTo: x@far.test\r\n{usual}")
    };
    let router = outside();
    for (what, section) in [("nothing to change", section("joe@far.test")), ("one address", section("joe@g.test"))] {
        let began = std::time::Instant::now();
        for _ in 0..100_000 {
            let content = std::hint::black_box(section.as_bytes());
            let end = section_end(content).unwrap_or(content.len());
            drop(router.header(&mut Ask::new(&Answers::new()), &content[..end]));
        }
        println!("{what}: {:?} a message, {} octets of header", began.elapsed() / 100_000, section.len());
    }
}
