//! Lists as they come in headers, the obsolete forms, refused lists and the place of the fault.

use proptest::prelude::*;

use super::*;
use crate::encoded_word;

/// The list as text: `name|address`, groups as `name:[..]`.
fn show(text: &str) -> String {
    let decoded = |name: &str| encoded_word::decode(name.as_bytes(), None).text;
    let mailbox = |mailbox: &Mailbox| match mailbox.name() {
        Some(name) => format!("{}|{}", decoded(name), mailbox.address()),
        None => mailbox.address().to_string(),
    };
    let members = |item: &AddressItem| item.mailboxes().iter().map(mailbox).collect::<Vec<_>>().join(", ");
    let local = DomainName::new("local.example").unwrap();
    match parse_list(text, Some(&local)) {
        Ok(items) => items
            .iter()
            .map(|item| match item {
                AddressItem::Mailbox(_) => members(item),
                AddressItem::Group(group) => format!("{}:[{}]", group.name(), members(item)),
            })
            .collect::<Vec<_>>()
            .join("; "),
        Err(error) => format!("{} {:?}", error.position(), error.reason()),
    }
}

// RFC 5322 §3.4 (test), RFC 5322 §3.4.1 (test), RFC 5322 §3.2.5 (test)
#[test]
fn lists() {
    for (text, shown) in [
        ("a@b", "a@b"),
        ("Joe Q. Public <john.q.public@example.com>", "Joe Q. Public|john.q.public@example.com"),
        (r#""Joe \"Giant\" Box" <a@b>,"c@d"@e"#, r#"Joe "Giant" Box|a@b; "c@d"@e"#),
        ("=?utf-8?Q?J=C3=BCrg?= =?utf-8?Q?_M?= <a@b>", "Jürg M|a@b"),
        ("\"=?gb2312?B?xOO6ww==?=\" <a@b>", "你好|a@b"),
        ("Jürg <a@b>", "Jürg|a@b"),
        ("A Group:Ed <ed@x>,joe@y, John <jd@z>;", "A Group:[Ed|ed@x, joe@y, John|jd@z]"),
        ("undisclosed-recipients:;", "undisclosed-recipients:[]"),
        ("a@b, G: c@d; , e@f", "a@b; G:[c@d]; e@f"),
        ("Pete(A nice \\) chap) <pete(his account)@silly.test(his host)>", "Pete|pete@silly.test"),
        ("root, \"Cron Daemon\" <cron>", "root@local.example; Cron Daemon|cron@local.example"),
        ("", ""),
        (" (nobody)", ""),
    ] {
        assert_eq!(show(text), shown, "{text}");
    }
    assert_eq!(parse_list("root", None).unwrap_err().reason(), AddressReason::NoDomain);
}

// RFC 5322 §4.4 (test), RFC 5322 §4.1 (test), RFC 5322 §4.2 (test)
#[test]
fn obsolete_forms() {
    for (text, shown) in [
        (
            "Mary Smith <@node.test,@other.test:mary@example.net>, , jdoe@test . example",
            "Mary Smith|mary@example.net; jdoe@test.example",
        ),
        ("<,@a, @b,:c@d>", "c@d"),
        ("john . doe @ example . com", "john.doe@example.com"),
        ("\"a b\" . c@d", "\"a b.c\"@d"),
        ("a..b@c", "\"a..b\"@c"),
        ("<a.@c>", "\"a.\"@c"),
        (".a (x) . . \"b\" @c", "\".a..b\"@c"),
        ("a\r\n \r\n\t@b", "a@b"),
        ("\"a\r\n b\"@c", "\"a b\"@c"),
    ] {
        assert_eq!(show(text), shown, "{text}");
    }
}

#[test]
fn refusals() {
    for (text, shown) in [
        ("a@b c@d", "4 Character"),
        ("a b", "2 Character"),
        ("a b@c", "2 Character"),
        ("<a@b", "4 Open"),
        ("<a@b> x", "6 Character"),
        ("<>", "1 Empty"),
        ("G: a@b", "6 Open"),
        ("G: H: a@b;;", "5 Character"),
        ("a@b;", "3 Character"),
        (":a@b", "0 Character"),
        ("(a@b", "0 Open"),
        ("a@b\r\nX: y", "3 Control"),
        ("a\nb@c", "1 Control"),
        ("\"a@b", "4 OpenQuote"),
        ("a@[1", "4 OpenLiteral"),
        ("..@c", "2 Dot"),
        ("a.b c@d", "4 Character"),
        ("a@b.", "4 Dot"),
    ] {
        assert_eq!(show(text), shown, "{text:?}");
    }
    let deep = "(".repeat(100_000);
    assert_eq!(parse_list(&deep, None).unwrap_err().reason(), AddressReason::Open);
}

#[test]
fn only_some_fit_an_envelope() {
    let address = |text: &str| AddrSpec::parse(text).unwrap().to_address().map(|address| address.to_string());
    assert_eq!(address("(x) \"a\" . b @ [ 192.0.2.1 ]").unwrap_err().reason(), AddressReason::Character);
    assert_eq!(address("(x) \"a\" . b @ d . Example"), Ok("a.b@d.Example".into()));
    assert_eq!(address("a@b/c").unwrap_err().reason(), AddressReason::Trailing);
    assert_eq!(address("\"\\\u{7}\"@b").unwrap_err().reason(), AddressReason::Control);
}

proptest! {
    #[test]
    fn written_addresses_are_read_back(
        local in any::<String>(),
        domain in r"[a-z0-9/]{1,9}(\.[a-zü]{1,5}){0,3}|\[[!-Z^-~ ]{0,9}\]",
    ) {
        let address = AddrSpec { local: local.into(), domain: domain.into() };
        prop_assert_eq!(AddrSpec::parse(&address.to_string()), Ok(address));
    }

    #[test]
    fn every_envelope_address_is_one_of_the_header(address in crate::address::tests::any_address()) {
        let read = AddrSpec::parse(&address.to_string()).and_then(|spec| spec.to_address());
        prop_assert_eq!(read, Ok(address));
    }
}
