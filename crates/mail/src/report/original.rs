//! The third part of a report: the message it is about, or its header section.
//!
//! The returned message is as close to the original as a multipart allows: line ends become CRLF, a line beyond 998
//! octets is broken, NUL becomes `?`. Nothing else is touched; in particular the octets of the header stay as they are.

use std::borrow::Cow;

use super::Original;
use crate::encoded_word;
use crate::header::{HeaderSection, Item, LineEnd, MalformedReason};

/// RFC 5322 §2.1.1, without CRLF.
const LINE_OCTETS_MAX: usize = 998;
/// A header section is returned up to this size; the rest is of no use.
const HEADERS_OCTETS_MAX: usize = 65_536;
const SUBJECT_OCTETS_MAX: usize = 150;

/// The returned octets, and their form.
pub(super) struct ReturnedContent<'a> {
    pub(super) octets: Cow<'a, [u8]>,
    pub(super) is_whole: bool,
}

impl<'a> ReturnedContent<'a> {
    pub(super) fn of(original: Original<'a>) -> Option<Self> {
        match original {
            Original::Whole(content) => Some(Self { octets: cleaned(content, b"\r\n"), is_whole: true }),
            // The break of a long line continues its field.
            Original::Headers(content) => {
                Some(Self { octets: cleaned(header_section(content), b"\r\n "), is_whole: false })
            }
            Original::None => None,
        }
    }
}

/// The subject of the message as a person saw it, shortened and harmless.
pub(super) fn subject(original: Original<'_>) -> Option<String> {
    let field = header(original)?.find("Subject").next()?.unfolded();
    let field = field.get(..field.len().min(4 * SUBJECT_OCTETS_MAX)).unwrap_or_default();
    let text = encoded_word::decode(field, None).text;
    let text = super::harmless::line(&text, SUBJECT_OCTETS_MAX).into_owned();
    (!text.is_empty()).then_some(text)
}

/// The Message-ID of the message, if it is one that may be quoted in a field.
pub(super) fn message_id(original: Original<'_>) -> Option<String> {
    let value = header(original)?.find("Message-ID").next()?.unfolded().into_owned();
    let text = String::from_utf8(value).ok()?;
    let inner = text.strip_prefix('<')?.strip_suffix('>')?;
    // RFC 5322 §3.6.4: msg-id, of which obsolete forms with spaces or comments are not quoted
    let fits = inner.len() <= 250
        && inner.contains('@')
        && inner.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>'));
    fits.then_some(text)
}

fn header(original: Original<'_>) -> Option<HeaderSection<'_>> {
    match original {
        Original::Whole(content) | Original::Headers(content) => {
            Some(HeaderSection::read(header_section(content), LineEnd::CrlfOrLf))
        }
        Original::None => None,
    }
}

/// Returns the header section of the octets: up to the empty line, or where that is missing, to the first line that
/// cannot belong to a header.
fn header_section(content: &[u8]) -> &[u8] {
    let front = content.get(..content.len().min(HEADERS_OCTETS_MAX)).unwrap_or_default();
    let header = HeaderSection::read(front, LineEnd::CrlfOrLf);
    let section = header.as_bytes();
    if header.is_closed() {
        return section;
    }
    let stray = header.items().find_map(|item| match item {
        Item::Malformed(lines) if lines.reason() != MalformedReason::MboxFrom => Some(lines.offset()),
        _ => None,
    });
    let end = stray.unwrap_or_else(|| {
        let is_cut = front.len() < content.len();
        if is_cut { memchr::memrchr(b'\n', section).map_or(0, |at| at + 1) } else { section.len() }
    });
    section.get(..end).unwrap_or_default()
}

/// Content with CRLF line ends, no NUL and no line beyond 998 octets; a longer one is broken by `line_break`.
// RFC 5321 §2.3.8, RFC 5322 §2.1.1
fn cleaned<'a>(content: &'a [u8], line_break: &[u8]) -> Cow<'a, [u8]> {
    if is_clean(content) {
        return Cow::Borrowed(content);
    }
    let mut out = Vec::with_capacity(content.len() + content.len() / 16);
    let mut rest = content;
    while !rest.is_empty() {
        let end = memchr::memchr2(b'\r', b'\n', rest);
        let (mut line, after) = rest.split_at(end.unwrap_or(rest.len()));
        let end_octets = if after.starts_with(b"\r\n") { 2 } else { usize::from(end.is_some()) };
        rest = after.get(end_octets..).unwrap_or_default();
        // A broken header line begins with the space of `line_break`.
        let mut room = LINE_OCTETS_MAX;
        while line.len() > room {
            let (piece, behind) = line.split_at(char_boundary(line, room));
            push_without_nul(&mut out, piece);
            out.extend_from_slice(line_break);
            room = LINE_OCTETS_MAX - (line_break.len() - 2);
            line = behind;
        }
        push_without_nul(&mut out, line);
        if end.is_some() {
            out.extend_from_slice(b"\r\n");
        }
    }
    Cow::Owned(out)
}

fn is_clean(content: &[u8]) -> bool {
    if memchr::memchr(0, content).is_some() {
        return false;
    }
    let mut rest = content;
    loop {
        let end = memchr::memchr2(b'\r', b'\n', rest);
        if end.unwrap_or(rest.len()) > LINE_OCTETS_MAX {
            return false;
        }
        let Some(end) = end else { return true };
        let Some(after) = rest.get(end..).and_then(|rest| rest.strip_prefix(b"\r\n")) else { return false };
        rest = after;
    }
}

/// The last place up to `at` that does not cut a UTF-8 character, if there is one near.
fn char_boundary(line: &[u8], at: usize) -> usize {
    let is_start = |at: &usize| line.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    (at.saturating_sub(3)..=at).rev().find(is_start).unwrap_or(at)
}

fn push_without_nul(out: &mut Vec<u8>, piece: &[u8]) {
    out.extend(piece.iter().map(|byte| if *byte == 0 { b'?' } else { *byte }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_end_where_they_end() {
        for (content, section) in [
            (&b"A: 1\r\n\r\nbody\r\n"[..], &b"A: 1\r\n"[..]),
            (b"A: 1\n\nbody\n", b"A: 1\n"),
            (b"A: 1\r\nB: 2\r\n", b"A: 1\r\nB: 2\r\n"),
            (b"A: 1\r\nno header any more\r\nC: 3\r\n", b"A: 1\r\n"),
            (b"From a@b Thu\r\nA: 1\r\n", b"From a@b Thu\r\nA: 1\r\n"),
            (b"", b""),
            (b"\r\nbody", b""),
        ] {
            assert_eq!(header_section(content), section, "{}", content.escape_ascii());
        }
        let endless = b"A: 1234\r\n".repeat(10_000);
        let section = header_section(&endless);
        assert!(section.len() <= HEADERS_OCTETS_MAX && section.ends_with(b"\r\n"), "{}", section.len());
    }

    // RFC 5322 §2.1.1 (test)
    #[test]
    fn lines_are_mended() {
        assert!(matches!(cleaned(b"a\r\nb", b"\r\n"), Cow::Borrowed(_)));
        assert_eq!(cleaned(b"a\nb\rc\r\n\0\n\r", b"\r\n").escape_ascii().to_string(), r"a\r\nb\r\nc\r\n?\r\n\r\n");
        let long = "\u{fc}".repeat(1_500);
        let broken = cleaned(long.as_bytes(), b"\r\n ").into_owned();
        let broken = String::from_utf8(broken).unwrap();
        assert!(broken.split("\r\n").all(|line| line.len() <= 998));
        assert_eq!(broken.replace("\r\n ", ""), long);
        let broken = cleaned(&[0xbf; 5_000], b"\r\n").into_owned();
        assert_eq!(broken.iter().filter(|byte| **byte == 0xbf).count(), 5_000);
    }

    #[test]
    fn what_is_quoted_of_the_header() {
        let original = Original::Headers(b"Subject: =?utf-8?Q?gr=C3=BCn=0D=0ATo:_x?=\r\nMessage-ID: <a@b>\r\n\r\n");
        assert_eq!(subject(original).as_deref(), Some("gr\u{fc}n??To: x"));
        assert_eq!(message_id(original).as_deref(), Some("<a@b>"));
        for bad in ["<a b@c>", "<a@b> <c@d>", "a@b", "<\u{fc}@b>", "<a>"] {
            let header = format!("Message-ID: {bad}\r\n\r\n");
            assert_eq!(message_id(Original::Whole(header.as_bytes())), None, "{bad}");
        }
        assert_eq!(subject(Original::None), None);
    }
}
