//! Replaced and kept addresses, by example and at random.

use super::*;
use proptest::prelude::*;
use std::convert::Infallible;

/// Returns the value with all addresses of `in.test` moved to `out.test`, and names without a domain too.
fn moved(value: &[u8]) -> Option<Vec<u8>> {
    let host: DomainName = "in.test".parse().unwrap();
    let new = |written: &LocatedAddress| {
        let address = written.to_address(&host).filter(|address| address.domain().to_string() == "in.test");
        let out = address.map(|address| {
            let local = LocalPart::new(&format!("{}.new", address.local_part().as_str())).unwrap();
            Address::new(local, Domain::Name("out.test".parse().unwrap())).unwrap()
        });
        Ok::<_, Infallible>(out)
    };
    rewrite(value, new).unwrap()
}

fn shown(value: &str) -> String {
    moved(value.as_bytes()).map_or_else(|| "=".to_owned(), |new| String::from_utf8(new).unwrap())
}

// RFC 5322 §3.4 (test)
#[test]
fn addresses_change_and_all_else_stays() {
    for (value, expected) in [
        (" joe@in.test", " joe.new@out.test"),
        (" Joe User <joe@in.test>", " Joe User <joe.new@out.test>"),
        (" \"Joe, @ in.test\" <joe@in.test> (joe@in.test)", " \"Joe, @ in.test\" <joe.new@out.test> (joe@in.test)"),
        (" (a \\) (b)) joe@in.test (c)", " (a \\) (b)) joe.new@out.test (c)"),
        (
            " =?utf-8?q?J=C3=B6?=\r\n\t<joe@in.test>,\r\n ann@x.test",
            " =?utf-8?q?J=C3=B6?=\r\n\t<joe.new@out.test>,\r\n ann@x.test",
        ),
        (
            " team: joe@in.test, Ann <ann@in.test>;, b@in.test",
            " team: joe.new@out.test, Ann <ann.new@out.test>;, b.new@out.test",
        ),
        (" joe@IN.test", "="),
        (" joe@sub.in.test, <x@y>", "="),
        (" joe", " joe.new@out.test"),
        (" <joe>", " <joe.new@out.test>"),
        (" Doe, Joe <joe@in.test>", " Doe, Joe <joe.new@out.test>"),
        (" undisclosed-recipients:;", "="),
        (" <>", "="),
        ("", "="),
        (" \"joe b\"@in.test", " \"joe b.new\"@out.test"),
        (" \"joe\"@in.test", " joe.new@out.test"),
    ] {
        assert_eq!(shown(value), expected, "{value:?}");
    }
}

#[test]
fn what_cannot_be_read_is_left_and_its_neighbours_are_not() {
    for (value, expected) in [
        (" Joe [home] <joe@in.test>", " Joe [home] <joe.new@out.test>"),
        (" joe@in.test <joe@in.test>", " joe@in.test <joe.new@out.test>"),
        (" a@@b, joe@in.test", " a@@b, joe.new@out.test"),
        (" <@r.test:joe@in.test>, ann@in.test", " <@r.test:joe@in.test>, ann.new@out.test"),
        (" joe(x)@in.test", "="),
        (" joe @ in.test", "="),
        (" joe@in.test ann@in.test", "="),
        (" <joe@in.test> <ann@in.test>", "="),
        (" Joe <joe@in.test> x", " Joe <joe.new@out.test> x"),
        (" <joe@in.test", "="),
        (" (joe@in.test", "="),
        (" joe@in.test, \"ann <ann@in.test>", " joe.new@out.test, \"ann <ann@in.test>"),
        (" joe@in.test, (ann@in.test", " joe.new@out.test, (ann@in.test"),
        (" joe@in.test.", " joe.new@out.test"),
        (" joe@in.test..", "="),
        (" joe@in..test", "="),
        (" joe..b@in.test", " \"joe..b.new\"@out.test"),
        (" <joe.@in.test>", " <\"joe..new\"@out.test>"),
        (" ..@in.test", "="),
        (" joe@in.test\0", "="),
    ] {
        assert_eq!(shown(value), expected, "{value:?}");
    }
}

#[test]
fn octets_of_other_charsets_survive() {
    assert_eq!(moved(b" J\xf6rg <joe@in.test>").unwrap(), b" J\xf6rg <joe.new@out.test>");
    assert_eq!(moved(b" \"J\xf6, x\" <joe@in.test>").unwrap(), b" \"J\xf6, x\" <joe.new@out.test>");
    assert_eq!(moved(b" j\xf6e@in.test"), None, "nobody knows who that is");
    assert_eq!(moved(" jö@in.test".as_bytes()).unwrap(), " jö.new@out.test".as_bytes());
}

// RFC 5322 §2.1.1 (test)
#[test]
fn a_line_that_becomes_too_long_is_folded() {
    let name = "n".repeat(970);
    let value = format!(" {name} <joe@in.test>");
    assert_eq!(shown(&value), format!(" {name} <joe.new@out.test>"));
    let name = "n".repeat(982);
    let value = format!(" {name} <joe@in.test>");
    assert_eq!(shown(&value), format!(" {name} <\r\n joe.new@out.test>"));
    assert_eq!(shown(&format!(" {name},\r\n joe@in.test")), format!(" {name},\r\n joe.new@out.test"));
}

#[test]
fn large_and_deep_fields_cost_no_more_than_their_length() {
    for piece in ["(", "<", "<(", "<\"\" ", "<a@[", "\"\\", "a@in.test <", ":", "a, ", "<a.", "\r\n <a@b> c "] {
        let value = piece.repeat(1_000_000 / piece.len());
        drop::<Option<Vec<u8>>>(moved(value.as_bytes()));
    }
    let many = vec!["joe@in.test"; 20_000].join(", ");
    let new = String::from_utf8(moved(many.as_bytes()).unwrap()).unwrap();
    assert_eq!(new.replace("\r\n ", ""), many.replace("joe@in", "joe.new@out"));
    assert!(new.lines().all(|line| line.len() <= LINE_OCTETS_MAX));
}

#[test]
fn a_local_part_that_stays_keeps_its_spelling() {
    let new = |_: &LocatedAddress| Ok::<_, Infallible>(Some("joe@out.test".parse().unwrap()));
    assert_eq!(rewrite(b" \"joe\"@in.test, <joe>", new).unwrap().unwrap(), b" \"joe\"@out.test, <joe@out.test>");
    assert_eq!(rewrite(b" \"joe\"@out.test", new), Ok(None));
}

#[test]
fn a_failure_of_the_map_is_a_failure() {
    assert_eq!(rewrite(b" joe@in.test", |_| Err("down")), Err("down"));
    assert_eq!(rewrite(b" (joe@in.test)", |_| Err("down")), Ok(None));
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b"joe@in.test".to_vec()),
        1 => Just(b"ann@x.test".to_vec()),
        2 => Just(b"\r\n ".to_vec()),
        8 => proptest::sample::select(&b"ab\"\\()<>@,:;[]. \t\xf6\0"[..]).prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// The text without the line ends of folds in quotes: they are no part of the quoted text (RFC 5322 §3.2.4).
fn without_quoted_folds(text: &str) -> String {
    let (mut out, mut is_quoted) = (String::new(), false);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        is_quoted ^= first == '"';
        let length =
            if first == '\\' { rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at) } else { first.len_utf8() };
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        match behind.strip_prefix('\n') {
            Some(behind) if is_quoted && piece == "\r" => rest = behind,
            _ => out.push_str(piece),
        }
    }
    out
}

#[test]
fn a_fold_in_quotes_is_no_part_of_a_name() {
    assert_eq!(moved(b" \"a\r\n b\"@in.test").unwrap(), b" \"a b.new\"@out.test");
    assert_eq!(moved(b"\"\r\n \"").unwrap(), b"\" .new\"@out.test");
    assert_eq!(without_quoted_folds("a\r\n \"b\r\n c\\\"\r\n\"\r\n"), "a\r\n \"b c\\\"\"\r\n");
}

proptest! {
    #[test]
    fn taking_the_new_addresses_out_leaves_the_value(value in anything()) {
        if let Some(new) = moved(&value) {
            let text = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
            // A name without a domain gets one, and quotes are as they must be.
            let plain = |bytes: &[u8]| {
                let text = without_quoted_folds(&text(bytes)).replace(['"', '\\'], "").replace(".new@out.test", "@in.test");
                text.replace("@in.test.", "@in.test").replace("@in.test", "")
            };
            prop_assert_eq!(plain(&new), plain(&value));
        }
    }

    #[test]
    fn what_was_moved_stays(value in anything()) {
        if let Some(new) = moved(&value) {
            prop_assert_eq!(moved(&new), None, "{}", new.escape_ascii());
        }
    }

    #[test]
    fn without_a_match_nothing_changes(value in anything()) {
        prop_assert_eq!(rewrite(&value, |_| Ok::<_, Infallible>(None)), Ok(None));
        let same = |written: &LocatedAddress| Ok::<_, Infallible>(written.to_address(&"in.test".parse().unwrap()));
        if let Ok(Some(new)) = rewrite(&value, same) {
            prop_assert!(!new.is_empty());
        }
    }

    /// Both readers agree on lists without doubt.
    #[test]
    fn all_addresses_of_a_plain_list_are_found(
        list in prop::collection::vec(("[a-z]{1,6}", prop::option::of("[A-Z][a-z ]{0,9}")), 1..6),
    ) {
        let one = |(local, name): &(String, Option<String>)| match name {
            Some(name) => format!("{name} <{local}@in.test>"),
            None => format!("{local}@in.test"),
        };
        let value = list.iter().map(one).collect::<Vec<_>>().join(", ");
        let found: Vec<String> = located(value.as_bytes()).into_iter().map(|written| written.local).collect();
        prop_assert_eq!(found, list.iter().map(|(local, _)| local.clone()).collect::<Vec<_>>());
        let items = super::super::parse_list(&value, None).unwrap();
        prop_assert_eq!(items.len(), list.len());
    }
}
