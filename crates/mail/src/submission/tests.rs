//! The form of completed submitted messages, and that no octet of them is lost.

use super::*;
use proptest::prelude::*;

fn host() -> DomainName {
    DomainName::new("h.test").unwrap()
}

fn completed(message: &str, takes_recipients: bool) -> String {
    let with = Completion {
        host: &host(),
        from: "joe@h.test",
        full_name: "Joe (the) User",
        unix_us: 1_795_345_796_000_000,
        offset_seconds: 3_600,
        unique: "20261122.1",
        takes_recipients,
    };
    String::from_utf8(Draft::read(message.as_bytes()).complete(&with)).unwrap()
}

#[test]
fn what_is_missing_is_added() {
    assert_eq!(
        completed("Subject: x\r\n\r\nhi\r\n", false),
        "Date: Sun, 22 Nov 2026 12:09:56 +0100\r\nFrom: \"Joe (the) User\" <joe@h.test>\r\n\
         Message-Id: <20261122.1@h.test>\r\nSubject: x\r\n\r\n"
    );
    let whole = "Date: d\r\nFrom: a@b.test\r\nMessage-ID: <m>\r\nTo: c@d.test\r\n\r\n";
    assert_eq!(completed(whole, false), whole, "nothing of what is there changes");
    let full = completed("Full-Name: Big\r\nReturn-Path: <x@y>\r\n\r\n", false);
    assert!(
        full.contains("From: Big <joe@h.test>\r\n") && !full.contains("Full-Name") && !full.contains("x@y"),
        "{full}"
    );
}

#[test]
fn names_get_our_domain_where_addresses_stand() {
    let text = completed("From: root\r\nTo: ann,\r\n joe (me)\r\nSubject: root\r\nX-To: root\r\n\r\n", false);
    assert!(
        text.contains(
            "From: root@h.test\r\nTo: ann@h.test,\r\n joe@h.test (me)\r\nSubject: root\r\nX-To: root\r\n\r\n"
        ),
        "{text}"
    );
    let text = completed("To: ann", false);
    assert!(text.ends_with("To: ann@h.test\r\n\r\n"), "{text:?}");
}

#[test]
fn a_message_that_is_sent_again_keeps_its_own_fields() {
    let text = completed("Resent-To: ann\r\nTo: joe\r\nFrom: x@y.test\r\n\r\n", true);
    for part in [
        "Resent-Date: ",
        "Resent-From: \"Joe",
        "Resent-Message-Id: <",
        "Date: ",
        "Message-Id: <",
        "Resent-To: ann@h.test",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("\r\nFrom: x@y.test\r\n") && text.matches("\r\nFrom:").count() == 1, "{text}");
}

#[test]
fn recipients_come_from_the_header() {
    let read = |text: &str| {
        let named = Draft::read(text.as_bytes()).recipients(&host());
        (
            named.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            named.bad.into_iter().map(|bad| bad.0).collect::<Vec<_>>(),
        )
    };
    let text = "To: ann, \"J, U\" <joe@b.test>\r\nCc: team: a@b.test, c;\r\nbcc: ann\r\nSubject: y@z.test\r\n\r\nTo: body@x.test\r\n";
    assert_eq!(read(text).0, ["ann@h.test", "joe@b.test", "a@b.test", "c@h.test"]);
    assert_eq!(read("To: a\r\nResent-Cc: b\r\nBcc: c\r\n\r\n").0, ["b@h.test"]);
    assert_eq!(read("To: a@@b.test, c\r\n\r\n"), (vec!["c@h.test".to_owned()], vec!["a@@b.test".to_owned()]));
    assert_eq!(read("Subject: x\r\n\r\n"), (Vec::new(), Vec::new()));
    assert_eq!(read("To: undisclosed-recipients:;\r\n\r\n"), (Vec::new(), Vec::new()));
    for nobody in
        ["undisclosed recipient;", "Undisclosed recipients ;", "\"undisclosed-recipients\";", "unlisted-recipients;"]
    {
        let text = format!("To: {nobody}\r\nBcc: ann\r\n\r\n");
        assert_eq!(read(&text), (vec!["ann@h.test".to_owned()], Vec::new()), "{nobody}");
    }
    for wrong in ["a@@b.test;", "joe;", "undisclosed recipient", "x y@b.test;"] {
        assert_eq!(read(&format!("To: {wrong}\r\n\r\n")).1.len(), 1, "{wrong}");
    }
    let bytes = b"To: j\xf6@b.test, k\r\n\r\n";
    let named = Draft::read(bytes).recipients(&host());
    assert_eq!((named.addresses.len(), named.bad.len()), (1, 1), "octets that are no text are no address: {named:?}");
}

#[test]
fn blind_copies_are_blind() {
    let text = "Bcc: ann\r\nTo: joe\r\n\r\n";
    assert!(
        completed(text, false).contains("Bcc: ann@h.test"),
        "the program says the recipients, its header is its own"
    );
    let blind = completed(text, true);
    assert!(!blind.contains("ann") && !blind.contains("Bcc") && !blind.contains("undisclosed"), "{blind}");
    assert!(completed("Bcc: ann\r\n\r\n", true).contains("To: undisclosed-recipients:;\r\n\r\n"));
}

#[test]
fn the_header_ends_where_lines_are_no_fields() {
    for (message, body) in [
        ("Subject: x\r\nhello\r\n\r\nTo: no\r\n", "hello\r\n\r\nTo: no\r\n"),
        ("hello\r\n", "hello\r\n"),
        ("\r\nTo: no\r\n", "To: no\r\n"),
        ("From joe Mon Jan\r\nSubject: x\r\n\r\nb\r\n", "b\r\n"),
        ("", ""),
    ] {
        let draft = Draft::read(message.as_bytes());
        assert_eq!(message.get(draft.body_offset()..), Some(body));
    }
    assert_eq!(Draft::read(b"Received: a\r\nReceived: b\r\n\r\n").hops(), 2);
}

#[test]
fn names_of_people() {
    assert_eq!(full_name("Joe & Sons,Room 5,x", "miller"), "Joe Miller Sons");
    assert_eq!(full_name("", "x"), "");
    assert_eq!(phrase("a.b"), "\"a.b\"");
    assert_eq!(phrase("J\u{f6}rg O'Neil"), "J\u{f6}rg O'Neil");
    assert_eq!(warning("h", "j\r\noe", "<a@b>"), b"X-Authentication-Warning: h: joe set sender to <a@b> using -f\r\n");
    assert_eq!(named("ann, Joe <j@b.test>", &host()).unwrap().len(), 2);
    assert!(named("a@@b", &host()).is_err());
}

proptest! {
    #[test]
    fn any_message_gets_a_header_section(message in "(?s)([A-Za-z-]{0,6}:? ?[a@<>,\"( ]{0,8}\r\n ?){0,6}.{0,20}", takes: bool) {
        let text = completed(&message, takes);
        let section = HeaderSection::read(text.as_bytes(), LineEnd::Crlf);
        prop_assert!(section.is_closed() && section.body_offset() == text.len());
        prop_assert!(section.items().all(|item| matches!(item, Item::Field(_))));
        prop_assert_eq!(section.find("from").count().min(1), 1);
        drop::<HeaderRecipients>(Draft::read(message.as_bytes()).recipients(&host()));
    }
}

#[test]
fn what_was_complete_before_stays_as_it_is() {
    let text = b"From joe Sun Nov 22\r\nReturn-Path: <x@y.test>\r\nTo: joe\r\nBcc: ann\r\nX:  a\r\n b\r\n\r\nbody\r\n";
    assert_eq!(Draft::read(text).relayed(), b"To: joe\r\nBcc: ann\r\nX:  a\r\n b\r\n\r\n");
}

// RFC 5321 §4.1.1.3 (test)
#[test]
fn a_route_before_an_address_is_ignored() {
    let named =
        |text: &str| named(text, &host()).map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(named("@a.test:u@b.test").unwrap(), ["u@b.test"]);
    assert_eq!(named("@a,@c:u@b").unwrap(), ["u@b"]);
    assert!(named("@a.test").is_err());
}
