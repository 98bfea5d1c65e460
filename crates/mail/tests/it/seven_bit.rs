//! Conversion to 7 bits, seen by a reader that is not the crate's: each leaf decodes to its old octets.

use crate::mime::Entity;
use mail::seven_bit::{Converted, Reason, is_seven_bit};
use proptest::prelude::*;

/// The content with nothing left in 8 bits, or why something is left.
fn convert(content: &[u8]) -> Result<Vec<u8>, Reason> {
    let Converted { content, left } = mail::seven_bit::convert(content);
    left.map_or(Ok(content), Err)
}

/// Converts, and checks what always holds.
fn converted(content: &[u8]) -> Entity {
    let out = convert(content).unwrap();
    assert!(is_seven_bit(&out), "{}", out.escape_ascii());
    assert!(out.len() <= content.len() * 3 / 2 + 200, "{} octets from {}", out.len(), content.len());
    assert_eq!(convert(&out).as_ref(), Ok(&out), "converted once is enough");
    Entity::read(&out)
}

// RFC 6152 §3 (test), RFC 2045 §2.7 (test)
#[test]
fn what_is_seven_bit() {
    assert!(is_seven_bit(b"A: 1\r\n\r\nbody\r\n") && is_seven_bit(b""));
    assert!(is_seven_bit(b"A: \0\r\n\r\nbody\r\n"));
    for content in [&b"A: 1\r\n\r\nbo\0dy\r\n"[..], b"A: 1\r\n\r\n\xff", b"A: \xfc\r\n\r\n", b"A: \0\r\n\r\n\0"] {
        assert!(!is_seven_bit(content), "{}", content.escape_ascii());
    }
    let plain = b"A: 1\r\nContent-Transfer-Encoding: 8bit\r\n\r\nbody";
    assert_eq!(convert(plain).unwrap(), plain);
}

// RFC 2045 §6.7 (test), RFC 6152 §3 (test)
#[test]
fn text_becomes_quoted_printable() {
    let body = "From here \r\n.\r\nthe gr\u{fc}n=green\ttab\t\r\nthis line is rather long, longer than the seventy-six octets that are allowed\r\nend";
    let content = format!(
        "Subject: x\r\nMIME-Version: 1.0\r\nContent-Transfer-Encoding: 8BIT\r\nContent-Type: text/plain;\r\n charset=utf-8\r\n\r\n{body}"
    );
    let out = convert(content.as_bytes()).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/plain;\r\n charset=utf-8\r\n\
         Content-Transfer-Encoding: quoted-printable\r\n\r\n\
         =46rom here=20\r\n=2E\r\nthe gr=C3=BCn=3Dgreen\ttab=09\r\n\
         this line is rather long, longer than the seventy-six octets that are allow=\r\ned\r\nend"
    );
    assert_eq!(converted(content.as_bytes()).body, body.as_bytes());
}

// RFC 2045 §6.7 (test), RFC 2046 §5.1.1 (test)
#[test]
fn a_soft_line_break_makes_no_boundary() {
    for dashes in 0..80 {
        let line = format!("{}--b{}", "x".repeat(dashes), "y".repeat(90));
        for (encoding, mark) in [("8bit", "\u{fc}"), ("quoted-printable", "=C3=BC")] {
            let body = format!("{mark}{line}\r\n");
            let content = format!(
                "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\
                 Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{body}\r\n--b--\r\n"
            );
            let shortened = mail::seven_bit::shorten_lines(content.as_bytes(), 78).content;
            for out in [convert(content.as_bytes()).unwrap(), shortened] {
                let text = String::from_utf8(out).unwrap();
                assert_eq!(text.matches("\r\n--b").count(), 2, "{text}");
                let unfolded = text.replace("=\r\n", "").replace("=2D", "-");
                assert!(unfolded.contains(&format!("{line}\r\n")), "{text}");
            }
        }
    }
}

// RFC 2045 §6.8 (test)
#[test]
fn what_is_no_text_becomes_base64() {
    let body: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    let mut content = b"Content-Type: image/png\r\nMime-Version: 1.0\r\n\r\n".to_vec();
    content.extend_from_slice(&body);
    let entity = converted(&content);
    assert_eq!(entity.field("content-transfer-encoding"), Some("base64"));
    assert_eq!(entity.body, body);
    // Text that would nearly all be escaped is shorter that way too.
    let chinese = format!("MIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\n{}\r\n", "\u{4f60}\u{597d}".repeat(50));
    let entity = converted(chinese.as_bytes());
    assert_eq!(entity.field("content-transfer-encoding"), Some("base64"));
    assert!(chinese.as_bytes().ends_with(&entity.body));
}

// RFC 1428 §3 (test), RFC 2045 §4 (test)
#[test]
fn messages_without_mime_get_it() {
    for (body, charset) in
        [("gr\u{fc}n and much else\r\n".as_bytes(), "utf-8"), (b"gr\xfcn and much else\r\n", "unknown-8bit")]
    {
        let entity = converted(&[b"Subject: x\r\n\r\n", body].concat());
        assert_eq!(entity.field("mime-version"), Some("1.0"));
        assert_eq!(entity.parameter("content-type", "charset").as_deref(), Some(charset));
        assert_eq!(entity.body, body);
    }
    assert_eq!(converted(b"\r\nonly a body: \xfc").body, b"only a body: \xfc");
}

#[test]
fn header_fields_stay_as_they_are() {
    let content = b"Subject: gr\xfcn\r\nX: 1\r\nMIME-Version: 1.0\r\n\r\nplain\r\n";
    assert_eq!(convert(content).unwrap(), content);
    let out =
        convert(b"Subject: gr\xfcn\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\ngr\xfcn gras\r\n").unwrap();
    assert!(
        out.starts_with(b"Subject: gr\xfcn\r\n") && out.ends_with(b"\r\n\r\ngr=FCn gras\r\n"),
        "{}",
        out.escape_ascii()
    );
}

// RFC 2046 §5.1 (test)
#[test]
fn multiparts_are_converted_leaf_by_leaf() {
    let content = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"a b\"\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\
        pre\u{e4}mble\r\n--a bc\r\n--a b \t\r\n\r\nplain\r\n--a b\r\n--a b\r\nContent-Type: text/html\r\n\r\n<p>gr\u{fc}n \r\n\r\n\
        --a b\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n\r\nSubject: inner\r\n\r\nwei\u{df} wie Schnee\r\n\
        --a b\r\nContent-Type: multipart/alternative; boundary=\"a b1\"\r\n\r\n--a b1\r\n\r\nschn\u{f6}de Welt\r\n--a b1--\r\n\
        --a b--\r\nepil\u{f6}gue\r\n";
    let entity = converted(content.as_bytes());
    assert_eq!(entity.field("content-transfer-encoding"), Some("7bit"));
    let leaves: Vec<String> = entity.leaves().into_iter().map(|leaf| String::from_utf8(leaf).unwrap()).collect();
    assert_eq!(leaves, ["plain", "", "<p>gr\u{fc}n \r\n", "wei\u{df} wie Schnee", "schn\u{f6}de Welt"]);
    let raw = String::from_utf8(convert(content.as_bytes()).unwrap()).unwrap();
    assert!(raw.contains("\r\npre??mble\r\n--a bc\r\n--a b \t\r\n\r\nplain\r\n--a b\r\n--a b\r\n"), "{raw}");
    assert!(raw.ends_with("--a b--\r\nepil??gue\r\n"), "{raw}");
}

#[test]
fn a_digest_is_made_of_messages() {
    let content = b"MIME-Version: 1.0\r\nContent-Type: multipart/digest; boundary=b\r\n\r\n--b\r\n\r\nSubject: one\r\n\r\ngr\xfcn oder was\r\n--b--\r\n";
    let out = String::from_utf8(convert(content).unwrap()).unwrap();
    assert!(out.contains("--b\r\nContent-Transfer-Encoding: 7bit\r\n\r\nSubject: one\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=unknown-8bit\r\n"), "{out}");
    assert!(out.contains("\r\n\r\ngr=FCn oder was\r\n--b--\r\n"), "{out}");
}

#[test]
fn a_multipart_that_is_cut_off_ends_with_its_last_part() {
    let content = b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ngr\xfcn und gelb";
    assert!(
        convert(content)
            .unwrap()
            .ends_with(b"--b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\ngr=FCn und gelb")
    );
    let content = b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\xfc\r\n--b";
    assert!(convert(content).unwrap().ends_with(b"\r\n\r\n?\r\n--b"));
}

#[test]
fn damaged_quoted_printable_is_mended() {
    let content = b"MIME-Version: 1.0\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: Quoted-Printable\r\n\r\ngr\xfcn =3D=\r\n\x00\r\n";
    let entity = converted(content);
    assert_eq!(entity.body, b"gr\xfcn =\0\r\n");
}

/// Parts without a reading that all readers share go out as they are, with the reason.
// RFC 1847 §2.1 (test), RFC 2045 §6.4 (test)
#[test]
fn what_cannot_be_converted_stays_as_it_is() {
    let deep = (0..40)
        .map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}x\r\n\r\n--b{n}x\r\n"))
        .collect::<String>();
    for (header, reason) in [
        ("Content-Type: multipart/signed; boundary=b", Reason::Protected),
        ("Content-Type: Multipart/Encrypted; boundary=b", Reason::Protected),
        ("Content-Type: multipart/mixed", Reason::Malformed),
        ("Content-Type: multipart/mixed; boundary=none", Reason::Malformed),
        ("Content-Type: multipart/mixed; boundary=none\r\nContent-Transfer-Encoding: base64", Reason::Malformed),
        ("Content-Type: multipart/mixed; boundary=b; boundary=c", Reason::Malformed),
        ("Content-Type: text/plain\r\nContent-Type: multipart/mixed; boundary=b", Reason::Malformed),
        ("Content-Type: multipart/mixed; boundary=b\r\nContent-Type: multipart/mixed; boundary=c", Reason::Malformed),
        ("Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64", Reason::Malformed),
        ("Content-Transfer-Encoding: base64", Reason::Malformed),
        ("Content-Transfer-Encoding: 8bit\r\nContent-Transfer-Encoding: quoted-printable", Reason::Malformed),
        ("Content-Transfer-Encoding: x-uuencode", Reason::Malformed),
        ("Content-Type: message/partial; id=1", Reason::NotEncodable),
        ("Content-Type: message/delivery-status", Reason::NotEncodable),
    ] {
        let content = format!("MIME-Version: 1.0\r\n{header}\r\n\r\n--b\r\n\r\ngr\u{fc}n\r\n--b--\r\n");
        let found = mail::seven_bit::convert(content.as_bytes());
        assert_eq!(found, Converted { content: content.into_bytes(), left: Some(reason) }, "{header}");
    }
    let content = format!("MIME-Version: 1.0\r\n{}\r\n\r\ngr\u{fc}n\r\n", deep.trim_end());
    let found = mail::seven_bit::convert(content.as_bytes());
    assert_eq!(found.left, Some(Reason::TooDeep));
    assert!(found.content.ends_with("gr\u{fc}n\r\n".as_bytes()));
    // RFC 6532 §3.7: this message type may be encoded.
    let entity =
        converted("MIME-Version: 1.0\r\nContent-Type: message/global\r\n\r\nSubject: gr\u{fc}n\r\n\r\n".as_bytes());
    assert_eq!(entity.body, "Subject: gr\u{fc}n\r\n\r\n".as_bytes());
}

/// Mistakes that all readers read alike: the parts are converted, and decode to the same octets.
#[test]
fn mistakes_that_readers_pass_over_are_passed_over() {
    let body = "--b\r\n\r\ngr\u{fc}n und gelb\r\n--b--\r\n";
    for header in [
        "Content-Type: multipart/mixed; boundary=b\r\nContent-Transfer-Encoding: base64",
        "Content-Type: multipart/mixed; boundary=b\r\nContent-Transfer-Encoding: quoted-printable",
        "Content-Type: multipart/mixed; boundary=b\r\nContent-Transfer-Encoding: x-unknown",
        "Content-Type: multipart/mixed; boundary=b; boundary=b",
    ] {
        let content = format!("MIME-Version: 1.0\r\n{header}\r\n\r\n{body}");
        let entity = converted(content.as_bytes());
        assert_eq!(entity.field("content-transfer-encoding"), Some("7bit"), "{header}");
        assert_eq!(entity.leaves(), ["gr\u{fc}n und gelb".as_bytes()], "{header}");
    }
    // The reader of these tests takes no field twice.
    for (header, encoded) in [
        ("Content-Type: text/plain; charset=utf-8\r\nContent-Type: text/html", "gr=C3=BCn und gelb"),
        (
            "Content-Type: image/png\r\nContent-Type: application/octet-stream",
            "LS1iDQoNCmdyw7xuIHVuZCBnZWxiDQotLWItLQ0K",
        ),
        (
            "Content-Type: multipart/mixed; boundary=b\r\nContent-Type: multipart/mixed; boundary=\"b\"",
            "gr=C3=BCn und gelb\r\n--b--",
        ),
    ] {
        let content = format!("MIME-Version: 1.0\r\n{header}\r\n\r\n{body}");
        let out = String::from_utf8(convert(content.as_bytes()).unwrap()).unwrap();
        assert!(out.contains(header) && out.contains(encoded), "{out}");
    }
    let inner = "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\ngr\u{fc}n und gelb\r\n";
    let content = format!(
        "MIME-Version: 1.0\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{inner}"
    );
    assert_eq!(converted(content.as_bytes()).leaves(), ["gr\u{fc}n und gelb\r\n".as_bytes()]);
}

/// A report whose status has 8-bit octets, and a signed part among others: the parts around them are converted.
#[test]
fn the_parts_around_one_that_stays_are_converted() {
    for (kind, reason) in [
        ("message/delivery-status", Reason::NotEncodable),
        ("message/disposition-notification", Reason::NotEncodable),
        ("multipart/signed; boundary=c", Reason::Protected),
        ("text/plain\r\nContent-Transfer-Encoding: base64", Reason::Malformed),
    ] {
        let content = format!(
            "MIME-Version: 1.0\r\nContent-Type: multipart/report; boundary=b\r\n\r\n\
             --b\r\n\r\ngr\u{fc}n und gelb\r\n--b\r\nContent-Type: {kind}\r\n\r\nDiagnostic-Code: smtp; 550 n\u{f6}\r\n\
             --b\r\nContent-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\nsch\u{f6}ne Welt\r\n--b--\r\n"
        );
        let found = mail::seven_bit::convert(content.as_bytes());
        assert_eq!(found.left, Some(reason), "{kind}");
        let text = String::from_utf8(found.content.clone()).unwrap();
        assert!(
            text.contains(&format!("Content-Type: {kind}\r\n\r\nDiagnostic-Code: smtp; 550 n\u{f6}\r\n")),
            "{text}"
        );
        assert!(text.contains("gr=C3=BCn und gelb\r\n") && text.contains("sch=C3=B6ne Welt\r\n"), "{text}");
        // The part that stays decides the encoding of the whole, not that of its neighbours.
        let encodings: Vec<&str> = text.matches("Content-Transfer-Encoding: 8bit\r\n").collect();
        let header = text.split("\r\n\r\n").next().unwrap_or_default();
        assert!(encodings.len() == 1 && header.ends_with(": 8bit"), "{text}");
        assert_eq!(mail::seven_bit::convert(&found.content), found, "converted once is enough");
    }
}

/// Only 8-bit octets in a header need SMTPUTF8: of the message, of a part, of a message in it, also in unchanged parts.
// RFC 6531 §3.4 (test)
#[test]
fn headers_with_eight_bit_octets_are_found() {
    let signed = |part: &str| {
        format!(
            "Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n{part}\r\n\r\ngr\u{fc}n\r\n--b\r\n\r\nz\r\n--b--\r\n"
        )
    };
    for (content, expected) in [
        ("Subject: x\r\n\r\nx\r\n".to_owned(), false),
        ("Subject: x\r\n\r\ngr\u{fc}n\r\n".to_owned(), false),
        ("Subject: gr\u{fc}n\r\n\r\nx\r\n".to_owned(), true),
        (signed("Content-Type: text/plain"), false),
        (signed("Content-Description: gr\u{fc}n"), true),
        ("Content-Type: message/rfc822\r\n\r\nSubject: gr\u{fc}n\r\n\r\nx\r\n".to_owned(), true),
        ("Content-Type: message/delivery-status\r\n\r\nDiagnostic-Code: x; gr\u{fc}n\r\n".to_owned(), false),
        ("Content-Transfer-Encoding: x-uuencode\r\n\r\ngr\u{fc}n\r\n".to_owned(), false),
        ("Content-Type: multipart/mixed\r\n\r\n--b\r\nX: gr\u{fc}n\r\n".to_owned(), false),
    ] {
        let content = format!("MIME-Version: 1.0\r\n{content}");
        assert_eq!(mail::seven_bit::has_eight_bit_header(content.as_bytes()), expected, "{content}");
    }
}

// The depth could make the time quadratic, so it is bounded.
#[test]
fn hostile_content_takes_linear_time() {
    let many = format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n{}\u{fc}\r\n",
        "--b\r\n".repeat(200_000)
    );
    assert!(convert(many.as_bytes()).is_ok());
    let nested = "Content-Type: message/rfc822\r\n\r\n".repeat(100_000) + "\u{fc}";
    assert_eq!(convert(nested.as_bytes()), Err(Reason::TooDeep));
    let broken = "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n".repeat(100_000) + "\u{fc}";
    assert!(convert(broken.as_bytes()).is_ok());
    let comment = format!("Content-Type: {}\r\n\r\n\u{fc}", "(".repeat(500_000));
    assert!(convert(comment.as_bytes()).is_ok());
}

/// Returns an entity and the content of its leaves.
#[derive(Clone, Debug)]
enum Tree {
    Leaf { kind: usize, body: Vec<u8> },
    Parts(Vec<Self>),
    Message(Box<Self>),
}

impl Tree {
    /// Writes the entity; `number` makes boundaries unlike each other.
    fn write(&self, out: &mut Vec<u8>, number: &mut usize) {
        match self {
            Self::Leaf { kind, body } => {
                let kind = ["text/plain; charset=utf-8", "text/html", "application/octet-stream", "image/png"][*kind];
                out.extend_from_slice(
                    format!("Content-Type: {kind}\r\nContent-Transfer-Encoding: binary\r\n\r\n").as_bytes(),
                );
                out.extend_from_slice(body);
            }
            Self::Parts(parts) => {
                *number += 1;
                let boundary = format!("=_{number}");
                out.extend_from_slice(
                    format!("Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n").as_bytes(),
                );
                for part in parts {
                    out.extend_from_slice(format!("\r\n--{boundary}\r\n").as_bytes());
                    part.write(out, number);
                }
                out.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
            }
            Self::Message(inner) => {
                out.extend_from_slice(b"Content-Type: message/rfc822\r\n\r\nMIME-Version: 1.0\r\n");
                inner.write(out, number);
            }
        }
    }

    fn leaves(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Leaf { body, .. } => vec![body.clone()],
            Self::Parts(parts) => parts.iter().flat_map(Self::leaves).collect(),
            Self::Message(inner) => inner.leaves(),
        }
    }
}

fn any_tree() -> impl Strategy<Value = Tree> {
    let piece = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b" \r\n".to_vec()),
        Just(b"From .=\t".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\n".to_vec()),
        Just("gr\u{fc}n".as_bytes().to_vec()),
        Just(vec![b'x'; 80]),
        prop::collection::vec(any::<u8>(), 0..30),
    ];
    let body = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    let leaf = (0..4_usize, body).prop_map(|(kind, body)| Tree::Leaf { kind, body });
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Tree::Parts),
            inner.prop_map(|tree| Tree::Message(Box::new(tree))),
        ]
    })
}

proptest! {
    #[test]
    fn every_leaf_decodes_to_what_it_was(tree in any_tree()) {
        let mut content = b"MIME-Version: 1.0\r\n".to_vec();
        tree.write(&mut content, &mut 0);
        let out = convert(&content).unwrap();
        prop_assert!(is_seven_bit(&out));
        prop_assert_eq!(convert(&out), Ok(out.clone()));
        let found = Entity::read(&out).leaves();
        let wanted = tree.leaves();
        // A trailing line end of base64 at the top level is no part of the encoded octets.
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn any_octets_are_converted_or_stay(content in prop::collection::vec(any::<u8>(), 0..200)) {
        let found = mail::seven_bit::convert(&content);
        prop_assert!(found.content.len() <= 3 * content.len() + 200);
        prop_assert_eq!(mail::seven_bit::convert(&found.content), found);
    }

    /// Octets in a part that stays are never changed, and the parts beside it decode to their old octets.
    #[test]
    fn a_part_that_stays_is_not_changed(tree in any_tree(), kept in "[ a-z\u{e4}]{1,30}") {
        let mut content = b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=outer\r\n\r\n--outer\r\n".to_vec();
        tree.write(&mut content, &mut 0);
        let part = format!("\r\n--outer\r\nContent-Type: message/delivery-status\r\n\r\n{kept}\u{fc}\r\n--outer--\r\n");
        content.extend_from_slice(part.as_bytes());
        let found = mail::seven_bit::convert(&content);
        prop_assert_eq!(found.left, Some(Reason::NotEncodable));
        prop_assert!(found.content.ends_with(part.as_bytes()));
        let mut leaves = Entity::read(&found.content).leaves();
        prop_assert_eq!(leaves.pop(), Some(format!("{kept}\u{fc}").into_bytes()));
        prop_assert_eq!(leaves, tree.leaves());
    }
}

/// Shortens the lines of content to `max` octets, and checks that what is shortened once is so for good.
fn shortened(content: &[u8], max: usize) -> Vec<u8> {
    let out = mail::seven_bit::shorten_lines(content, max).content;
    assert_eq!(mail::seven_bit::shorten_lines(&out, max).content, out);
    out
}

// RFC 5322 §2.1.1 (test), RFC 5321 §4.5.3.1.6 (test)
#[test]
fn long_lines_are_encoded() {
    let long = "yes=\u{fc} and so on and on ".repeat(100);
    let plain = format!("Subject: x\r\n\r\nshort\r\n{long}\r\nend\r\n");
    let out = shortened(plain.as_bytes(), 998);
    assert!(out.is_ascii() && out.split(|byte| *byte == b'\n').all(|line| line.len() <= 78));
    let entity = Entity::read(&out);
    assert_eq!(entity.field("content-transfer-encoding"), Some("quoted-printable"));
    assert_eq!(entity.leaves(), [format!("short\r\n{long}\r\nend\r\n").into_bytes()]);
    // ASCII text without a type stays ASCII text.
    let out = shortened(format!("Subject: x\r\n\r\n{}\r\n", "y".repeat(999)).as_bytes(), 998);
    assert_eq!(Entity::read(&out).field("content-type"), None);
    // Short lines stay, with 8-bit octets and all.
    let short = format!("Subject: x\r\n\r\n{}\r\n\u{fc}\r\n", "y".repeat(998));
    assert_eq!(shortened(short.as_bytes(), 998), short.as_bytes());
}

#[test]
fn only_the_parts_with_long_lines_are_encoded() {
    let long = "z".repeat(2_000);
    let content = format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ngr\u{fc}n\r\n\
         --b\r\nContent-Type: text/html\r\n\r\n{long}\r\n\
         --b\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n\
         --b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{}\r\n\
         --b\r\nContent-Type: message/rfc822\r\n\r\nTo: {}\r\n\r\nx\r\n--b--\r\n",
        "QUJD".repeat(300),
        "a=3Db".repeat(300),
        "a@b.example, ".repeat(100),
    );
    let out = shortened(content.as_bytes(), 998);
    assert!(!mail::long_line::has_long_line(&out, 998));
    let text = String::from_utf8(out.clone()).unwrap();
    assert!(text.contains("\r\n\r\ngr\u{fc}n\r\n--b") && text.contains("Content-Transfer-Encoding: 8bit"), "{text}");
    let leaves = Entity::read(&out).leaves();
    assert_eq!(leaves[1], long.as_bytes());
    assert_eq!(leaves[2], b"ABC".repeat(300));
    assert_eq!(leaves[3], b"a=b".repeat(300));
}

// RFC 6376 §5.5 (test)
#[test]
fn signed_bodies_stay() {
    let body = format!("{}\r\n", "y".repeat(2_000));
    for signature in ["DKIM-Signature: c=relaxed; h=from", "ARC-Message-Signature: i=1; h=from"] {
        let content = format!("{signature}\r\nX: {}\r\n\r\n{body}", "a ".repeat(700));
        let out = String::from_utf8(shortened(content.as_bytes(), 998)).unwrap();
        assert!(out.starts_with(signature) && out.ends_with(&format!("\r\n\r\n{body}")));
        assert!(!mail::long_line::has_long_line(out.split("\r\n\r\n").next().unwrap().as_bytes(), 998));
    }
    let signed = format!("Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n\r\n{body}--b--\r\n");
    assert_eq!(shortened(signed.as_bytes(), 998), signed.as_bytes());
}

proptest! {
    #[test]
    fn every_leaf_with_long_lines_decodes_to_what_it_was(tree in any_tree()) {
        let mut content = b"MIME-Version: 1.0\r\n".to_vec();
        tree.write(&mut content, &mut 0);
        let out = shortened(&content, 78);
        prop_assert!(!mail::long_line::has_long_line(&out, 78), "{}", out.escape_ascii());
        prop_assert_eq!(Entity::read(&out).leaves(), tree.leaves());
    }
}
