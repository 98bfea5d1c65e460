//! Structures as people and attackers write them, and the parts that the walk finds.

use super::*;
use proptest::prelude::*;

/// The parts as `number kind/subtype [body] faults`.
fn shown(message: &str) -> Vec<String> {
    let tree = walk(message.as_bytes(), LineEnd::Crlf, &Limits::default());
    let line = |part: &Part| {
        let body = message.get(part.body.clone()).unwrap_or("(not text)");
        let body = if part.is_leaf() { body.escape_debug().to_string() } else { "…".to_owned() };
        let faults: Vec<&str> = part.damage.iter().map(Damage::name).collect();
        let Content { kind, subtype, .. } = &part.content;
        format!("{} {kind}/{subtype} [{body}] {}", part.number, faults.join(" ")).trim().to_owned()
    };
    tree.parts.iter().map(line).collect()
}

#[track_caller]
fn check(message: &str, wanted: &[&str]) {
    assert_eq!(shown(message), wanted, "{message}");
}

// RFC 2046 §5.1.1 (test), RFC 2046 §5.1.5 (test)
#[test]
fn sound_structures() {
    check("Subject: x\r\n\r\nHello\r\n", &[r"text/plain [Hello\r\n]"]);
    check(
        "Content-Type: multipart/mixed; boundary=\"a\"\r\n\r\npreface\r\n--a\r\n\r\none\r\n--a \r\n\
         Content-Type: multipart/alternative; boundary=ab\r\n\r\n--ab\r\nContent-Type: text/html\r\n\r\ntwo\r\n\r\n\
         --ab--\r\n--a\r\nContent-Type: image/png\r\n\r\nthree\r\n--a--\r\nepilogue --a\r\n--a\r\n",
        &[
            "multipart/mixed […]",
            "1 text/plain [one]",
            "2 multipart/alternative […]",
            r"2.1 text/html [two\r\n]",
            "3 image/png [three]",
        ],
    );
    check(
        "Content-Type: multipart/digest; boundary=a\r\n\r\n--a\r\n\r\nSubject: inner\r\n\r\none\r\n--a\r\n\
         Content-Type: message/rfc822\r\n\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ntwo\r\n--b--\r\n\
         --a--\r\n",
        &[
            "multipart/digest […]",
            "1 message/rfc822 […]",
            "1.1 text/plain [one]",
            "2 message/rfc822 […]",
            "2.1 multipart/mixed […]",
            "2.1.1 text/plain [two]",
        ],
    );
}

#[test]
fn damage_hides_no_part() {
    let multipart = "Content-Type: multipart/mixed; boundary=a\r\n\r\n";
    let case = |body: &str, wanted: &[&str]| check(&format!("{multipart}{body}"), wanted);
    case("--a\r\n\r\none", &["multipart/mixed […] unterminated", "1 text/plain [one]"]);
    case("no delimiter", &["multipart/mixed […] no-delimiter"]);
    case("--a--\r\n", &["multipart/mixed […]"]);
    case(
        "--a\r\n\r\none --a\r\n--ab\r\n--a--",
        &["multipart/mixed […] ambiguous-delimiter", r"1 text/plain [one --a\r\n--ab]"],
    );
    case(
        "--a\n\none\n--a\nContent-Type: x/y\n\ntwo\n--a--\n",
        &["multipart/mixed […] bare-line-feed", "1 text/plain [one]", "2 x/y [two]"],
    );
    case(
        "--a\r\nContent-Type: x/y\r\n--a\r\n\r\ntwo\r\n--a--",
        &["multipart/mixed […]", "1 x/y []", "2 text/plain [two]"],
    );
    case(
        "--a\r\nno field\r\nContent-Type: x/y\r\nContent-Type: x/z\r\n\r\n--a--",
        &["multipart/mixed […]", "1 x/y [] malformed-header repeated-field"],
    );
    check("Content-Type: multipart/mixed\r\n\r\n--a\r\n", &[r"multipart/mixed [--a\r\n] no-boundary"]);
    check(
        "Content-Type: multipart; boundary=a\r\n\r\n--a\r\n\r\n--a--",
        &["multipart/mixed […] bad-content-type", "1 text/plain []"],
    );
    check(
        "Content-Type: multipart/mixed; boundary=a\r\nContent-Transfer-Encoding: base64\r\n\r\nLS1h\r\n",
        &[r"multipart/mixed [LS1h\r\n] encoded-structure"],
    );
    check(
        "Content-Type: text/plain; name=a.txt\r\nContent-Disposition: x; filename*=''a.exe\r\n\r\n",
        &["text/plain [] names-differ"],
    );
}

#[test]
fn an_inner_multipart_ends_with_the_outer() {
    check(
        "Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\
         \r\none\r\n--a\r\n\r\ntwo\r\n--a--\r\n",
        &["multipart/mixed […]", "1 multipart/mixed […] unterminated", "1.1 text/plain [one]", "2 text/plain [two]"],
    );
}

#[test]
fn bombs_are_bounded() {
    let limits = Limits::default();
    let many = format!("Content-Type: multipart/mixed; boundary=a\r\n\r\n{}", "--a\r\n\r\nx\r\n".repeat(10_000));
    let tree = walk(many.as_bytes(), LineEnd::Crlf, &limits);
    assert_eq!((tree.parts.len(), &*tree.limits_reached), (limits.parts_max, &["parts"][..]));

    let nest = |n: usize| format!("Content-Type: multipart/mixed; boundary=b{n}.\r\n\r\n--b{n}.\r\n");
    let deep: String = (0..10_000).map(nest).collect();
    let tree = walk(deep.as_bytes(), LineEnd::Crlf, &limits);
    assert_eq!((tree.parts.len(), &*tree.limits_reached), (limits.depth_max + 1, &["depth"][..]));

    let messages = "Content-Type: message/rfc822\r\n\r\n".repeat(10_000);
    let tree = walk(messages.as_bytes(), LineEnd::Crlf, &limits);
    assert_eq!((tree.parts.len(), &*tree.limits_reached), (limits.depth_max + 1, &["depth"][..]));

    let headers = "X-Field: value\r\n".repeat(100_000);
    let tree = walk(headers.as_bytes(), LineEnd::Crlf, &limits);
    assert_eq!(tree.limits_reached, ["header bytes", "fields"]);
}

proptest! {
    #[test]
    fn any_message_has_ranges_inside_it(pieces in proptest::collection::vec(piece(), 0..40)) {
        let message = pieces.concat();
        let tree = walk(message.as_bytes(), LineEnd::Crlf, &Limits::default());
        prop_assert!(!tree.parts.is_empty());
        for (index, part) in tree.parts.iter().enumerate() {
            prop_assert!(part.header.start <= part.header.end && part.header.end <= part.body.start);
            prop_assert!(part.body.start <= part.body.end && part.body.end <= message.len(), "{part:?}");
            prop_assert!(part.parent.is_none_or(|parent| parent < index));
            let parent = part.parent.and_then(|parent| tree.parts.get(parent));
            if let Some(parent) = parent {
                prop_assert!(parent.body.start <= part.header.start, "{parent:?} {part:?}");
                prop_assert_eq!(parent.depth + 1, part.depth);
            }
        }
    }
}

/// Pieces of messages that come close to structure.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("Content-Type: multipart/mixed; boundary=a\r\n".to_owned()),
        Just("Content-Type: multipart/digest; boundary=ab\r\n".to_owned()),
        Just("Content-Type: message/rfc822\r\n".to_owned()),
        Just("--a\r\n".to_owned()),
        Just("--ab\r\n".to_owned()),
        Just("--a--\r\n".to_owned()),
        Just("--a\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("\n".to_owned()),
        Just("--".to_owned()),
        "[a-c: \r\n-]{0,6}",
    ]
}
