//! Dialogs of the address parser: the addresses read, their written form, the refused ones and the place of the fault.

use proptest::prelude::*;

use super::*;

fn address(text: &str) -> Address {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

/// (text, position of the fault, reason)
fn check_refused<T: fmt::Debug>(parse: fn(&[u8]) -> Result<T, AddressError>, cases: &[(&[u8], usize, AddressReason)]) {
    for (text, position, reason) in cases {
        let error = parse(text).expect_err(&text.escape_ascii().to_string());
        assert_eq!((error.position(), error.reason()), (*position, *reason), "{error}");
    }
}

// RFC 5321 §4.1.2 (test)
#[test]
fn quotes_belong_to_the_wire() {
    for (text, meaning, written) in [
        ("a.b@d.example", "a.b", "a.b@d.example"),
        (r#""a.b"@d.example"#, "a.b", "a.b@d.example"),
        (r#""a@b"@d.example"#, "a@b", r#""a@b"@d.example"#),
        (r#""a\@b"@d.example"#, "a@b", r#""a@b"@d.example"#),
        (r#""a\\\"b"@d.example"#, r#"a\"b"#, r#""a\\\"b"@d.example"#),
        (r#"""@d.example"#, "", r#"""@d.example"#),
        (r#""a..b"@d.example"#, "a..b", r#""a..b"@d.example"#),
        ("a..b@d.example", "a..b", r#""a..b"@d.example"#),
        ("a.@d.example", "a.", r#""a."@d.example"#),
        (".a@d.example", ".a", r#"".a"@d.example"#),
        ("..ü...@d.example", "..ü...", r#""..ü..."@d.example"#),
        (r#"" "@d.example"#, " ", r#"" "@d.example"#),
        ("\"ü ß\"@d.example", "ü ß", "\"ü ß\"@d.example"),
    ] {
        let parsed = address(text);
        assert_eq!(parsed.local_part().as_str(), meaning);
        assert_eq!(parsed.to_string(), written);
        assert_eq!(address(written), parsed);
        assert_eq!(parsed.local_part().written_len(), written.len() - "@d.example".len());
    }
}

// RFC 5321 §4.1.2 (test)
#[test]
fn refusals_say_where_and_why() {
    use AddressReason as R;
    check_refused(
        Address::parse,
        &[
            (b"", 0, R::Empty),
            (b"@d", 0, R::NoLocalPart),
            (b"a", 1, R::NoDomain),
            (b"a@", 2, R::NoDomain),
            (b".@d", 1, R::Dot),
            (b"..@d", 2, R::Dot),
            (b"..", 2, R::Dot),
            (b"a..", 3, R::NoDomain),
            (b".a b@d", 2, R::Character),
            (b"a b@d", 1, R::Character),
            (b"a\r\nb@d", 1, R::Control),
            (b"a@b@d", 3, R::Trailing),
            (b"\"a\"b@d", 3, R::AfterQuote),
            (b"\"a", 2, R::OpenQuote),
            (b"\"a\"", 3, R::NoDomain),
            (b"\"a\nb\"@d", 2, R::Control),
            (b"\"a\\\x01\"@d", 2, R::QuotedPair),
            (b"a@b..d", 4, R::Dot),
            (b"a@d.", 4, R::Dot),
            (b"a@-d", 2, R::Hyphen),
            (b"a@d-.e", 2, R::Hyphen),
            (b"a@[192.0.2.1", 12, R::OpenLiteral),
            (b"a@[192.0.2]", 2, R::Literal),
            (b"a@[1 2]", 4, R::Character),
            (b"a@d ", 3, R::Trailing),
            (b"a\xff@d", 1, R::NotUtf8),
            (b"a@d\xc3", 3, R::NotUtf8),
            ("a\u{85}@d".as_bytes(), 1, R::Control),
        ],
    );
    let error = Address::parse(b"a\x07\xff@d").unwrap_err();
    assert_eq!(error.to_string(), r#"address "a\u{7}\xff@d" refused at byte 2: it is not UTF-8"#);
}

// RFC 5321 §4.1.3 (test)
#[test]
fn literals_are_addresses() {
    for (text, written) in [
        ("u@[127.0.0.1]", "u@[127.0.0.1]"),
        ("u@[IPv6:2001:DB8:0::1]", "u@[IPv6:2001:db8::1]"),
        ("u@[ipv6:::]", "u@[IPv6:::]"),
        ("u@[IPv6:::ffff:192.0.2.1]", "u@[IPv6:::ffff:192.0.2.1]"),
        ("u@[X-net:a:b]", "u@[X-net:a:b]"),
    ] {
        assert_eq!(address(text).to_string(), written);
    }
    use AddressReason::Literal;
    check_refused(
        Domain::parse,
        &[
            (b"[]", 0, Literal),
            (b"[2001:db8::1]", 0, Literal),
            (b"[IPv6:192.0.2.1]", 0, Literal),
            (b"[IPv6:fe80::1%eth0]", 0, Literal),
            (b"[010.0.0.1]", 0, Literal),
            (b"[X-net:]", 0, Literal),
            (b"[abcd:1]", 0, Literal),
        ],
    );
    assert_eq!(
        "[192.0.2.1]".parse::<Domain>().unwrap(),
        AddressLiteral::from(std::net::IpAddr::from([192, 0, 2, 1])).into()
    );
}

// RFC 5321 §4.5.3.1.1 (test), RFC 5321 §4.5.3.1.2 (test), RFC 5321 §4.5.3.1.3 (test)
#[test]
fn limits_of_length() {
    let local = "l".repeat(64);
    assert!(!address(&format!("{local}@d")).local_part().is_oversize());
    assert!(address(&format!("{local}l@d")).local_part().is_oversize());

    let label = "a".repeat(63);
    let name = format!("{label}.{label}.{label}.{}", "b".repeat(61));
    assert_eq!(name.len(), 253);
    assert!(DomainName::new(&name).is_ok());
    let reason = |text: &str| DomainName::new(text).unwrap_err().reason();
    assert_eq!(reason(&format!("{name}b")), AddressReason::DomainTooLong);
    assert_eq!(reason(&format!("{label}a.d")), AddressReason::LabelTooLong);

    let longest = name.get(2..).unwrap().to_owned();
    assert!(Address::parse(format!("ab@{longest}").as_bytes()).is_ok());
    let error = Address::parse(format!("abc@{longest}").as_bytes()).unwrap_err();
    assert_eq!(error.reason(), AddressReason::TooLong);
    assert!(LocalPart::new(&"l".repeat(252)).is_ok());
    assert!(LocalPart::new(&"l".repeat(253)).is_err());
    assert!(LocalPart::new(&" ".repeat(251)).is_err());
}

// RFC 6531 §3.2 (test), RFC 6531 §3.3 (test)
#[test]
fn internationalised_addresses() {
    let parsed = address("用户@Bücher.example");
    assert_eq!(parsed.to_string(), "用户@Bücher.example");
    assert_eq!(parsed.domain().name().unwrap().ascii(), "xn--bcher-kva.example");
    assert_eq!(parsed.to_ascii(), None);
    assert!(!parsed.is_ascii());

    let user = address("user@Bücher.example");
    assert_eq!(user.to_ascii().unwrap().to_string(), "user@xn--bcher-kva.example");
    assert_eq!(user.key(), address("user@XN--BCHER-KVA.example").key());
    assert_eq!(address("user@xn--bcher-kva.example").domain().name().unwrap().unicode(), "bücher.example");
}

// RFC 6531 §3.3 (test)
#[test]
fn names_in_disguise_are_refused() {
    for name in [
        "ｅxample.example",       // full-width letters map to ASCII
        "exam\u{ad}ple.example",  // the soft hyphen vanishes
        "example\u{3002}example", // the ideographic full stop becomes a dot
        "a\u{2024}b.example",     // so does the one-dot leader
        "\u{212a}elvin.example",  // the Kelvin sign becomes a k
        "ü\u{ff0f}.example",      // a slash
        "ü_.example",
        "-ü.example",
        "\u{202e}abc.example",
    ] {
        assert!(DomainName::new(name).is_err(), "{name}");
    }
}

// RFC 5321 §2.4 (test)
#[test]
fn keys_fold_the_domain_only() {
    assert_eq!(address("A@D.Example").key().as_str(), "A@d.example");
    assert_ne!(address("a@d.example").key(), address("A@d.example").key());
    assert_eq!(address(r#""a"@d"#).key(), address("a@D").key());
    assert_ne!(address(r#""a@b"@d"#).key().as_str(), "a@b@d");
    assert_eq!(address("a@[IPv6:2001:DB8::1]").key(), address("a@[IPv6:2001:db8:0::1]").key());
}

// RFC 5321 §4.1.1.3 (test), RFC 5321 §4.5.1 (test), RFC 5321 §4.5.5 (test)
#[test]
fn paths() {
    assert_eq!("<>".parse::<ReversePath>(), Ok(ReversePath::Null));
    assert_eq!("<a@b>".parse(), Ok(ReversePath::Address(address("a@b"))));
    assert_eq!("<@one.example,@[192.0.2.1]:a@b>".parse(), Ok(ReversePath::Address(address("a@b"))));
    assert_eq!("<POSTmaster>".parse(), Ok(ForwardPath::Postmaster));
    assert_eq!("<postmaster@d>".parse(), Ok(ForwardPath::Address(address("postmaster@d"))));
    let host = DomainName::new("mx.example").unwrap();
    assert_eq!(ForwardPath::Postmaster.into_address(&host), Ok(address("postmaster@mx.example")));

    let (path, rest) = ReversePath::split(b"<\"a>b\"@c> SIZE=1").unwrap();
    assert_eq!((path.to_string().as_str(), rest), ("<\"a>b\"@c>", &b" SIZE=1"[..]));

    use AddressReason as R;
    check_refused(
        ReversePath::parse,
        &[
            (b"", 0, R::NoBracket),
            (b" <a@b>", 0, R::NoBracket),
            (b"a@b", 0, R::NoBracket),
            (b"<a@b", 4, R::Open),
            (b"<a@b >", 4, R::Character),
            (b"<a@b>>", 5, R::Trailing),
            (b"<@d>", 1, R::NoLocalPart),
            (b"<@d,a@b>", 4, R::Route),
            (b"<@d a@b>", 1, R::Route),
            (b"<@d:>", 4, R::Empty),
            (b"<postmaster>", 11, R::NoDomain),
            (b"<a@>", 3, R::NoDomain),
        ],
    );
    check_refused(ForwardPath::parse, &[(b"<>", 1, R::Empty), (b"<postmasters>", 12, R::NoDomain)]);
}

fn any_local_part() -> impl Strategy<Value = LocalPart> {
    prop_oneof!["[a-z.]{0,20}", r#"[ -~]{0,30}"#, r"\PC{0,20}"]
        .prop_filter_map("too long", |text| LocalPart::new(&text).ok())
}

/// Any address that can be.
pub(crate) fn any_address() -> impl Strategy<Value = Address> {
    let name =
        prop_oneof![r"[A-Za-z0-9_]{1,20}(\.[a-z]([a-z-]{0,10}[a-z])?){0,4}", r"[a-zäöüéñ]{1,9}\.(рф|example|中国)"];
    let domain = prop_oneof![
        name.prop_filter_map("not a name", |text| DomainName::new(&text).ok()).prop_map(Domain::Name),
        any::<std::net::IpAddr>().prop_map(|ip| AddressLiteral::from(ip).into()),
    ];
    (any_local_part(), domain).prop_filter_map("too long", |(local, domain)| Address::new(local, domain).ok())
}

proptest! {
    // RFC 5321 §4.1.2 (test)
    #[test]
    fn written_addresses_are_read_back(address in any_address()) {
        let text = address.to_string();
        prop_assert_eq!(text.parse::<Address>(), Ok(address.clone()));
        let path = ReversePath::Address(address.clone());
        prop_assert_eq!(path.to_string().parse(), Ok(path));
        let key = address.key();
        prop_assert_eq!(key.as_str().parse::<Address>().map(|again| again.key()), Ok(key));
        let local = address.local_part();
        prop_assert_eq!(LocalPart::new(local.as_str()), Ok(local.clone()));
    }
}
