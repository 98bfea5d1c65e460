//! The Content-Type of a part, as far as its structure depends on it: type, subtype, boundary (RFC 2045 §5).
//!
//! A field that readers may understand in two ways (two types of which one has parts, two boundaries) is refused rather
//! than guessed.

use super::Reason;
use crate::header::HeaderSection;
use crate::scan::Scan;

/// RFC 2046 §5.1.1: a boundary has 1 to 70 characters; longer ones occur.
const BOUNDARY_OCTETS_MAX: usize = 512;

/// Type and subtype in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentType {
    pub(super) kind: String,
    pub(super) subtype: String,
    pub(super) boundary: Option<Vec<u8>>,
}

impl ContentType {
    /// Reads the field of a part, if it has one.
    pub(super) fn of(header: &HeaderSection<'_>) -> Result<Option<Self>, Reason> {
        let mut fields = header.find("Content-Type");
        let Some(field) = fields.next() else { return Ok(None) };
        let first = Self::parse(&field.unfolded())?;
        for field in fields {
            // Whichever a reader takes, it decodes the same octets.
            let other = Self::parse(&field.unfolded())?;
            if other != first && (first.has_parts() || other.has_parts()) {
                return Err(Reason::Malformed);
            }
        }
        Ok(Some(first))
    }

    fn has_parts(&self) -> bool {
        matches!(self.kind.as_str(), "multipart" | "message")
    }

    /// Returns the type of a part without the field.
    // RFC 2045 §5.2, RFC 2046 §5.1.5
    pub(super) fn default_of(is_in_digest: bool) -> Self {
        let (kind, subtype) = if is_in_digest { ("message", "rfc822") } else { ("text", "plain") };
        Self { kind: kind.to_owned(), subtype: subtype.to_owned(), boundary: None }
    }

    /// message/global and its relatives, which alone among the message types may be encoded (RFC 6532 §3.7, RFC 6533
    /// §4).
    pub(super) fn is_global(&self) -> bool {
        self.kind == "message" && self.subtype.starts_with("global")
    }

    fn parse(value: &[u8]) -> Result<Self, Reason> {
        let mut scan = Scan::new(value);
        let kind = token(&mut scan);
        scan.skip_comments();
        if !scan.take(b'/') {
            // RFC 2045 §5.2: what cannot be read is plain text; but not if another reader might find parts in it
            let is_leaf = !matches!(kind.as_str(), "multipart" | "message");
            return if is_leaf { Ok(Self::default_of(false)) } else { Err(Reason::Malformed) };
        }
        let subtype = token(&mut scan);
        let mut boundary = None;
        loop {
            scan.skip_comments();
            if !scan.take(b';') {
                // A reader that looks further may find a boundary in the rest.
                let is_composite = matches!(kind.as_str(), "multipart" | "message");
                return if scan.is_at_end() || !is_composite {
                    Ok(Self { kind, subtype, boundary })
                } else {
                    Err(Reason::Malformed)
                };
            }
            let name = token(&mut scan);
            scan.skip_comments();
            if !scan.take(b'=') {
                continue;
            }
            let text = parameter_value(&mut scan);
            if name == "boundary" || name.starts_with("boundary*") {
                // RFC 2046 §5.1.1: 7-bit, and no space at its end
                let fits = name == "boundary"
                    && (1..=BOUNDARY_OCTETS_MAX).contains(&text.len())
                    && text.iter().all(|byte| matches!(byte, b' '..=b'~'))
                    && !text.ends_with(b" ");
                if !fits || boundary.as_ref().is_some_and(|before| *before != text) {
                    return Err(Reason::Malformed);
                }
                boundary = Some(text);
            }
        }
    }
}

/// The first token of a value, in lower case: all that Content-Transfer-Encoding has.
pub(super) fn first_word(value: &[u8]) -> String {
    token(&mut Scan::new(value))
}

/// Takes a token behind white space and comments. Octets that are not ASCII make it another word, never a known one.
fn token(scan: &mut Scan<'_>) -> String {
    scan.skip_comments();
    // RFC 2045 §5.1: tspecials end a token
    let text = scan.take_while(|byte| {
        !byte.is_ascii_whitespace() && !byte.is_ascii_control() && !b"()<>@,;:\\\"/[]?=".contains(&byte)
    });
    String::from_utf8_lossy(text).to_ascii_lowercase()
}

fn parameter_value(scan: &mut Scan<'_>) -> Vec<u8> {
    scan.skip_comments();
    if !scan.take(b'"') {
        return scan.take_while(|byte| !byte.is_ascii_whitespace() && !matches!(byte, b';' | b'(' | b'"')).to_vec();
    }
    let mut out = Vec::new();
    while let Some(byte) = scan.next() {
        match byte {
            b'"' => break,
            b'\\' => out.extend(scan.next()),
            byte => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str) -> Option<(String, Option<String>)> {
        let found = ContentType::parse(value.as_bytes()).ok()?;
        let boundary = found.boundary.map(|boundary| String::from_utf8(boundary).unwrap());
        Some((format!("{}/{}", found.kind, found.subtype), boundary))
    }

    // RFC 2045 §5.1 (test)
    #[test]
    fn content_types() {
        for (value, kind, boundary) in [
            ("text/plain", "text/plain", None),
            ("Text / HTML (a (b) \\) c); charset=\"a;b\"", "text/html", None),
            ("multipart/mixed; boundary=abc", "multipart/mixed", Some("abc")),
            ("multipart/mixed;boundary = \"a \\\"b;c\" ; x=y;", "multipart/mixed", Some("a \"b;c")),
            ("multipart/mixed; x; Boundary=----=_Part_1", "multipart/mixed", Some("----=_Part_1")),
            ("multipart/mixed; boundary=a; boundary=\"a\"", "multipart/mixed", Some("a")),
            ("text", "text/plain", None),
            ("", "text/plain", None),
            ("text/plain garbage", "text/plain", None),
        ] {
            assert_eq!(parse(value), Some((kind.to_owned(), boundary.map(str::to_owned))), "{value}");
        }
        for value in [
            "multipart",
            "multipart/mixed boundary=a",
            "multipart/mixed; boundary=\"\"",
            "multipart/mixed; boundary=\"a \"",
            "multipart/mixed; boundary=a; boundary=b",
            "multipart/mixed; boundary*0=a",
            "multipart/mixed; boundary=\u{fc}",
        ] {
            assert_eq!(parse(value), None, "{value}");
        }
        assert_eq!(first_word(b" (x) Base64 (y)"), "base64");
    }
}
