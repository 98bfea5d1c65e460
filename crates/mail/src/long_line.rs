//! Finds lines that are longer than a next hop has to take, and folds header fields at their blanks.
//!
//! Folding keeps the meaning of a field: a reader takes the line ends out again (RFC 5322 §2.2.3). A field that a
//! signature covers is folded only if the signature holds all the same: never with the canonicalisation `simple`, and
//! with `relaxed` only where a blank stands already (RFC 6376 §3.4.1, §3.4.2). Bodies are [`crate::seven_bit`]'s task.

use std::borrow::Cow;

use crate::header::{Field, HeaderSection, Item, LineEnd};

/// Counts the octets of lines in content that comes in pieces.
#[derive(Debug)]
pub struct LineWatch {
    max: usize,
    /// Octets of the line so far, its CR included.
    octets: usize,
    /// The last octet was CR.
    has_cr: bool,
}

impl LineWatch {
    /// Watches for a line of more than `max` octets, the line end not counted.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { max, octets: 0, has_cr: false }
    }

    /// Whether this piece has a line, or ends a line, that is too long.
    pub fn finds(&mut self, piece: &[u8]) -> bool {
        let mut rest = piece;
        loop {
            // A line that begins and ends within so many octets is not too long: one search passes over many lines.
            let window = rest.get(..self.max.saturating_add(1)).unwrap_or(rest);
            if self.octets == 0
                && let Some(newline) = memchr::memrchr(b'\n', window)
            {
                rest = rest.get(newline + 1..).unwrap_or_default();
                continue;
            }
            let Some(newline) = memchr::memchr(b'\n', rest) else { return self.reads(rest) };
            if self.reads(rest.get(..newline).unwrap_or_default()) || self.is_over() {
                return true;
            }
            (self.octets, self.has_cr) = (0, false);
            rest = rest.get(newline + 1..).unwrap_or_default();
        }
    }

    /// Counts octets of a line. True when they are too many, whatever ends the line.
    fn reads(&mut self, octets: &[u8]) -> bool {
        if let Some(last) = octets.last() {
            self.octets += octets.len();
            self.has_cr = *last == b'\r';
        }
        self.octets > self.max.saturating_add(1)
    }

    const fn is_over(&self) -> bool {
        self.octets - self.has_cr as usize > self.max
    }

    /// Whether the content ends with a line without a line end that is too long.
    #[must_use]
    pub const fn ends_over(&self) -> bool {
        self.is_over()
    }
}

/// Whether content has a line of more than `max` octets, the line end not counted.
#[must_use]
pub fn has_long_line(content: &[u8], max: usize) -> bool {
    let mut watch = LineWatch::new(max);
    watch.finds(content) || watch.ends_over()
}

/// Folds the fields of a message whose lines have more than `max` octets, as far as they have blanks. The body stays.
// RFC 5322 §2.1.1: a line has at most 998 octets; RFC 5322 §2.2.3: long fields are folded
pub(crate) fn fold_header(message: &[u8], max: usize) -> Cow<'_, [u8]> {
    let header = HeaderSection::read(message, LineEnd::Crlf);
    if !has_long_line(header.as_bytes(), max) {
        return message.into();
    }
    let signatures = Signatures::read(&header);
    let mut out = Vec::with_capacity(message.len() + 256);
    for item in header.items() {
        match item {
            Item::Field(field) if has_long_line(field.raw(), max) => fold_field(&field, &signatures, max, &mut out),
            Item::Field(field) => out.extend_from_slice(field.raw()),
            Item::Malformed(lines) => out.extend_from_slice(lines.raw()),
        }
    }
    out.extend_from_slice(message.get(header.as_bytes().len()..).unwrap_or_default());
    out.into()
}

/// Whether a signature of the header covers the body.
pub(crate) fn is_signed(header: &HeaderSection<'_>) -> bool {
    header.fields().any(|field| is_signature(&field))
}

// RFC 6376 §3.5; RFC 8617 §4.1.2: a seal covers no body
fn is_signature(field: &Field<'_>) -> bool {
    field.has_name("DKIM-Signature") || field.has_name("ARC-Message-Signature")
}

/// How far a field may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Freedom {
    /// Not at all.
    None,
    /// A line may end where a blank stands.
    Blanks,
    /// A blank may be put in where the grammar of the field has room for one.
    Full,
}

/// The fields that signatures cover.
struct Signatures {
    /// Names in lower case, each with what its signature leaves free.
    covered: Vec<(String, Freedom)>,
}

impl Signatures {
    fn read(header: &HeaderSection<'_>) -> Self {
        let mut covered = Vec::new();
        for field in header.fields().filter(is_signature) {
            let freedom = freedom(&field);
            let names = tag(&field, "h").unwrap_or_default();
            covered.extend(names.split(':').map(|name| (name.to_ascii_lowercase(), freedom)));
        }
        Self { covered }
    }

    /// Returns the freedom that all signatures together leave a field.
    fn freedom(&self, field: &Field<'_>) -> Freedom {
        let of_others = self.covered.iter().filter(|(name, _)| field.has_name(name)).map(|(_, freedom)| *freedom);
        let of_others = of_others.min().unwrap_or(Freedom::Full);
        let own = if is_signature(field) {
            freedom(field)
        } else if field.name().get(..4).is_some_and(|front| front.eq_ignore_ascii_case("ARC-")) {
            // RFC 8617 §4.1.3: a seal covers the fields of all sets, relaxed
            Freedom::Blanks
        } else {
            Freedom::Full
        };
        own.min(of_others)
    }
}

/// Returns the freedom that a signature leaves the fields that it covers, itself among them.
// RFC 6376 §3.5: without c= both are simple
fn freedom(signature: &Field<'_>) -> Freedom {
    let canonicalisation = tag(signature, "c").unwrap_or_default();
    let of_header = canonicalisation.split('/').next().unwrap_or_default();
    if of_header.eq_ignore_ascii_case("relaxed") { Freedom::Blanks } else { Freedom::None }
}

/// The value of a tag without white space.
// RFC 6376 §3.2: tag-list
fn tag(signature: &Field<'_>, name: &str) -> Option<String> {
    let value = String::from_utf8_lossy(signature.value()).into_owned();
    let mut tags = value.split(';').filter_map(|tag| tag.split_once('='));
    let (_, found) = tags.find(|(key, _)| key.trim() == name)?;
    Some(found.chars().filter(|c| !c.is_ascii_whitespace()).collect())
}

/// Appends a field, its long lines folded as far as its freedom goes.
fn fold_field(field: &Field<'_>, signatures: &Signatures, max: usize, out: &mut Vec<u8>) {
    let freedom = signatures.freedom(field);
    if freedom == Freedom::None {
        return out.extend_from_slice(field.raw());
    }
    let (start, front) = (out.len(), field.value_offset().saturating_sub(field.offset()));
    fold_lines(field.raw(), front, max, out);
    if let Some(gap) = gap_of(field).filter(|_| freedom == Freedom::Full)
        && has_long_line(out.get(start..).unwrap_or_default(), max)
    {
        out.truncate(start);
        let (name, value) = field.raw().split_at_checked(front).unwrap_or_else(|| (field.raw(), &[]));
        let spaced = [name, &gap.fill(value)].concat();
        fold_lines(&spaced, front, max, out);
    }
}

/// Appends lines, those that are too long broken before blanks. The first `front` octets, the name, stay together.
fn fold_lines(lines: &[u8], front: usize, max: usize, out: &mut Vec<u8>) {
    let mut first = front;
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let end = line.strip_suffix(b"\r\n").map_or(line.len(), <[u8]>::len);
        let (text, newline) = line.split_at_checked(end).unwrap_or((line, &[]));
        let mut rest = text;
        while rest.len() > max
            && let Some((piece, after)) = break_at(rest, first, max).and_then(|at| rest.split_at_checked(at))
        {
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
            (rest, first) = (after, 0);
        }
        out.extend_from_slice(rest);
        out.extend_from_slice(newline);
        first = 0;
    }
}

/// Where a line breaks: before the last run of blanks within `max` octets, else before the first behind them. Neither
/// side is blank alone, since a line of blanks would end the header for some readers.
fn break_at(line: &[u8], front: usize, max: usize) -> Option<usize> {
    let is_blank = |at: usize| matches!(line.get(at), Some(b' ' | b'\t'));
    let text_end = line.trim_ascii_end().len();
    let begins = line.get(front..).map_or(line.len(), |rest| line.len() - rest.trim_ascii_start().len());
    let mut places = (begins.max(1)..text_end).filter(|at| is_blank(*at) && !is_blank(at - 1));
    let mut last = None;
    for at in places.by_ref() {
        if at > max {
            return last.or(Some(at));
        }
        last = Some(at);
    }
    last
}

/// Where the grammar of a field has room for a blank.
#[derive(Clone, Copy)]
enum Gap {
    /// Behind the commas of a list of addresses.
    Comma,
    /// Between two identifiers.
    Identifier,
}

// RFC 5322 §3.4, §3.6.4
fn gap_of(field: &Field<'_>) -> Option<Gap> {
    const LISTS: [&str; 10] = [
        "To",
        "Cc",
        "Bcc",
        "From",
        "Reply-To",
        "Resent-To",
        "Resent-Cc",
        "Resent-Bcc",
        "Resent-From",
        "Resent-Reply-To",
    ];
    const IDENTIFIERS: [&str; 2] = ["References", "In-Reply-To"];
    if LISTS.iter().any(|name| field.has_name(name)) {
        Some(Gap::Comma)
    } else if IDENTIFIERS.iter().any(|name| field.has_name(name)) {
        Some(Gap::Identifier)
    } else {
        None
    }
}

impl Gap {
    /// The value with a blank in each gap that has none.
    fn fill(self, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(value.len() + value.len() / 16);
        let (mut is_quoted, mut is_escaped, mut comments, mut has_gap) = (false, false, 0_usize, false);
        for byte in value {
            if has_gap && !byte.is_ascii_whitespace() && (matches!(self, Self::Comma) || *byte == b'<') {
                out.push(b' ');
            }
            out.push(*byte);
            has_gap = false;
            if is_escaped {
                is_escaped = false;
                continue;
            }
            let is_bare = !is_quoted && comments == 0;
            match byte {
                b'\\' => is_escaped = !is_bare,
                b'"' if comments == 0 => is_quoted = !is_quoted,
                b'(' if !is_quoted => comments += 1,
                b')' if !is_quoted => comments = comments.saturating_sub(1),
                b',' => has_gap = is_bare && matches!(self, Self::Comma),
                b'>' => has_gap = is_bare && matches!(self, Self::Identifier),
                _ => {}
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 30;

    fn folded(message: &str) -> String {
        String::from_utf8(fold_header(message.as_bytes(), MAX).into_owned()).unwrap()
    }

    // RFC 5322 §2.1.1 (test)
    #[test]
    fn lines_are_measured_without_their_end() {
        for (content, is_long) in [
            (&b"1234\r\n"[..], false),
            (b"12345\r\n", false),
            (b"123456\r\n", true),
            (b"12345\n", false),
            (b"123456\n", true),
            (b"12345", false),
            (b"123456", true),
            (b"12345\r", false),
            (b"a\r\n123456\r\n", true),
            (b"123456\r", true),
            (b"", false),
        ] {
            for piece in 1..=content.len().max(1) {
                let mut watch = LineWatch::new(5);
                let found = content.chunks(piece).any(|piece| watch.finds(piece)) || watch.ends_over();
                assert_eq!(found, is_long, "{} in pieces of {piece}", content.escape_ascii());
            }
        }
    }

    #[test]
    fn the_search_agrees_with_a_count_of_each_line() {
        let is_over = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).len() > 3;
        for number in 0..3_usize.pow(10) {
            let content: Vec<u8> = (0..10).map(|at| b"a\r\n"[number / 3_usize.pow(at) % 3]).collect();
            let expected = content.split(|octet| *octet == b'\n').any(is_over);
            for piece in [1, 3, 7, 10] {
                let mut watch = LineWatch::new(3);
                let found = content.chunks(piece).any(|piece| watch.finds(piece)) || watch.ends_over();
                assert_eq!(found, expected, "{} in pieces of {piece}", content.escape_ascii());
            }
        }
    }

    // RFC 5322 §2.2.3 (test)
    #[test]
    fn fields_are_folded_at_blanks() {
        for (given, wanted) in [
            ("A: short\r\n\r\nb", "A: short\r\n\r\nb"),
            (
                "Subject: aaaa bbbb cccc dddd eeee ffff\r\n\r\nbody",
                "Subject: aaaa bbbb cccc dddd\r\n eeee ffff\r\n\r\nbody",
            ),
            // A word that is too long stands alone, and nothing is broken within it.
            (
                "X: a 12345678901234567890123456789012345 b\r\n",
                "X: a\r\n 12345678901234567890123456789012345\r\n b\r\n",
            ),
            ("X: 12345678901234567890123456789012345\r\n", "X: 12345678901234567890123456789012345\r\n"),
            // Lines that are folded already, and blanks at the end.
            (
                "X: a\r\n\tbbbb cccc dddd eeee ffff gggg hhhh\r\n",
                "X: a\r\n\tbbbb cccc dddd eeee ffff gggg\r\n hhhh\r\n",
            ),
            ("X: 1234567890123456789012345678901   \r\n", "X: 1234567890123456789012345678901   \r\n"),
            ("X: aaaaaaaaaaaaaaaaaaaaaaaa     bbbbbb\r\n", "X: aaaaaaaaaaaaaaaaaaaaaaaa\r\n     bbbbbb\r\n"),
            // Lists without blanks.
            (
                "To: anna@a.example,\"b,c\"@b.example,carl@c.example\r\n",
                "To: anna@a.example,\r\n \"b,c\"@b.example,\r\n carl@c.example\r\n",
            ),
            (
                "References: <11111@a.example><22222@b.example>\r\n",
                "References: <11111@a.example>\r\n <22222@b.example>\r\n",
            ),
            ("X-To: anna@a.example,bert@b.example\r\n", "X-To: anna@a.example,bert@b.example\r\n"),
            // No field.
            ("aaaa bbbb cccc dddd eeee ffff gggg\r\n\r\n", "aaaa bbbb cccc dddd eeee ffff gggg\r\n\r\n"),
        ] {
            assert_eq!(folded(given), wanted);
            assert_eq!(folded(wanted), wanted, "folded once is enough");
        }
    }

    // RFC 6376 §3.4.1 (test), RFC 6376 §3.4.2 (test)
    #[test]
    fn signed_fields_keep_their_signature() {
        const LONG: &str = "Subject: aaaa bbbb cccc dddd eeee ffff\r\n";
        const LIST: &str = "To: anna@a.example,bert@b.example,x@c\r\n";
        let with = |signature: &str| folded(&format!("{signature}{LONG}{LIST}\r\n"));
        let is_folded = |text: &str, field: &str| !text.contains(field);
        for (signature, subject, list) in [
            ("", true, true),
            ("DKIM-Signature: h=subject:to;\r\n b=x\r\n", false, false),
            ("DKIM-Signature: c=simple/relaxed;\r\n h=Subject: To\r\n", false, false),
            ("DKIM-Signature: c=relaxed;\r\n h=Subject\r\n : To\r\n", true, false),
            ("DKIM-Signature: c=relaxed/simple;\r\n h=from\r\n", true, true),
            ("DKIM-Signature: c=relaxed;h=to\r\nDKIM-Signature: h=to\r\n", true, false),
            ("ARC-Message-Signature: c=relaxed;\r\n h=subject:to\r\n", true, false),
        ] {
            let text = with(signature);
            assert_eq!((is_folded(&text, LONG), is_folded(&text, LIST)), (subject, list), "{text}");
        }
        // A signature covers itself.
        let long = "DKIM-Signature: v=1; a=rsa; b=abcdefgh; h=from\r\n";
        assert_eq!(folded(long), long);
        assert_eq!(
            folded("DKIM-Signature: v=1; c=relaxed; a=rsa; h=from\r\n"),
            "DKIM-Signature: v=1;\r\n c=relaxed; a=rsa; h=from\r\n"
        );
    }
}
