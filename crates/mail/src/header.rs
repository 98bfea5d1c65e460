//! Reading the header section of a message where it lies: no byte is copied, every byte is accounted for.
//!
//! [`HeaderSection::read`] finds the end of the section once; [`HeaderSection::items`] walks over it and yields each
//! field, or the run of lines that is none, in order. The items joined are the section: a filter that edits one field,
//! or a signer that hashes some, can work with offsets. Nothing malformed is dropped or repaired, because a field that
//! one reader skips and the next one honours is how filters are passed by.
//!
//! Reading is one pass over the section. Limits on its size and on the number of fields are the caller's, who sees
//! both. Not here: what the values mean ([`crate::encoded_word`], [`crate::header_address`]), and parsing of bodies.

use std::borrow::Cow;
use std::fmt;

/// The octets at the end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LineEnd {
    /// CRLF only, as on the wire (RFC 5322 §2.1). A bare LF is a character of its line like any other.
    #[default]
    Crlf,
    /// CRLF or bare LF, for messages from local programs and files.
    CrlfOrLf,
}

/// The header section at the beginning of a message.
///
/// ```
/// use mail::header::{HeaderSection, LineEnd};
/// let message = b"Subject: folded\r\n over lines\r\nFr om: nobody\r\n\r\nbody";
/// let header = HeaderSection::read(message, LineEnd::Crlf);
/// let subject = header.find("subject").next().expect("there is one");
/// assert_eq!(subject.unfolded(), &b"folded over lines"[..]);
/// assert_eq!(header.items().count(), 2);
/// assert_eq!(header.find("from").count(), 0);
/// assert_eq!(message.get(header.body_offset()..), Some(&b"body"[..]));
/// ```
#[derive(Clone, Copy)]
pub struct HeaderSection<'a> {
    bytes: &'a [u8],
    body_offset: usize,
    line_end: LineEnd,
}

impl<'a> HeaderSection<'a> {
    /// Finds the header section of a message: all lines up to the first empty one, or everything if there is none.
    #[must_use]
    pub fn read(message: &'a [u8], line_end: LineEnd) -> Self {
        // RFC 5322 §2.1: the header section ends before the first empty line
        let mut at = 0;
        while let Some(line) = LineRange::at(message, at, line_end) {
            if line.text_end == line.start {
                let bytes = message.get(..line.start).unwrap_or_default();
                return Self { bytes, body_offset: line.end, line_end };
            }
            at = line.end;
        }
        Self { bytes: message, body_offset: message.len(), line_end }
    }

    /// The section without the empty line.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the body begins in the message: behind the empty line, or at the end if that is missing.
    #[must_use]
    pub const fn body_offset(&self) -> usize {
        self.body_offset
    }

    /// Whether an empty line ended the section. If not, more of it may be to come, or the message has no body.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.body_offset > self.bytes.len()
    }

    /// Walks over fields and malformed lines in their order.
    #[must_use]
    pub const fn items(&self) -> Items<'a> {
        Items { bytes: self.bytes, at: 0, line_end: self.line_end }
    }

    /// Walks over the well-formed fields.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> {
        self.items().filter_map(|item| match item {
            Item::Field(field) => Some(field),
            Item::Malformed(_) => None,
        })
    }

    /// Walks over the fields of one name, in any case of letters.
    pub fn find(&self, name: &str) -> impl Iterator<Item = Field<'a>> {
        self.fields().filter(move |field| field.has_name(name))
    }
}

impl fmt::Debug for HeaderSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.items()).finish()
    }
}

/// A piece of a header section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A field.
    Field(Field<'a>),
    /// Lines that are no field.
    Malformed(Malformed<'a>),
}

/// One field: a name, a colon, a value, and the lines it is folded over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    raw: &'a [u8],
    offset: usize,
    name: &'a str,
    value: &'a [u8],
    value_offset: usize,
}

impl<'a> Field<'a> {
    /// The name as it is spelt: printable ASCII, no space, no colon.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Whether the name is `name`, in any case of letters.
    #[must_use]
    pub const fn has_name(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Returns the octets between the colon and the end of the last line, folds included: usually with a space first.
    #[must_use]
    pub const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Where the value begins in the message.
    #[must_use]
    pub const fn value_offset(&self) -> usize {
        self.value_offset
    }

    /// The value on one line, without the white space around it. Copies only if it is folded.
    #[must_use]
    pub fn unfolded(&self) -> Cow<'a, [u8]> {
        unfold(self.value.trim_ascii())
    }

    /// The whole field: name, colon, value, line end.
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Where the field begins in the message.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} at {}", self.name, self.value.escape_ascii(), self.offset)
    }
}

/// Lines where a field should be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Malformed<'a> {
    raw: &'a [u8],
    offset: usize,
    reason: MalformedReason,
}

impl<'a> Malformed<'a> {
    /// The line with its line end and the continuation lines that follow it.
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Where it begins in the message.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Why it is no field.
    #[must_use]
    pub const fn reason(&self) -> MalformedReason {
        self.reason
    }
}

impl fmt::Debug for Malformed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} \"{}\" at {}", self.reason, self.raw.escape_ascii(), self.offset)
    }
}

/// Why a line is no field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedReason {
    /// The section begins with a continuation line.
    NothingToContinue,
    /// The line has no colon. Often the body begins here and the empty line was forgotten.
    NoColon,
    /// Nothing stands before the colon, or something that cannot be a name: a space, a control or non-ASCII character.
    /// `Fr om: x` is none of `From`, `Fr` and `om`.
    Name,
    /// An mbox separator, `From ` and an envelope sender, that was left at the head of the message.
    MboxFrom,
}

impl fmt::Display for MalformedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingToContinue => "continuation line without a field before it",
            Self::NoColon => "line without a colon",
            Self::Name => "field name is empty or has a character it may not have",
            Self::MboxFrom => "mbox separator line",
        })
    }
}

/// Iterator over the items of a header section.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
    line_end: LineEnd,
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let first = LineRange::at(self.bytes, self.at, self.line_end)?;
        let mut last = first;
        // RFC 5322 §2.2.3: a line that begins with white space continues the one before; so does one that has nothing
        // else (RFC 5322 §4.2)
        while matches!(self.bytes.get(last.end), Some(b' ' | b'\t')) {
            last = LineRange::at(self.bytes, last.end, self.line_end)?;
        }
        self.at = last.end;
        let offset = first.start;
        let raw = self.bytes.get(offset..last.end)?;
        let text = self.bytes.get(offset..last.text_end)?;
        let first_line = self.bytes.get(offset..first.text_end)?;
        Some(match split_field(first_line, text) {
            Ok((name, value)) => {
                let value_offset = last.text_end - value.len();
                Item::Field(Field { raw, offset, name, value, value_offset })
            }
            // The separator of the mbox format is no field, and only the first line of a file can be one
            Err(_) if offset == 0 && raw.starts_with(b"From ") => {
                Item::Malformed(Malformed { raw, offset, reason: MalformedReason::MboxFrom })
            }
            Err(reason) => Item::Malformed(Malformed { raw, offset, reason }),
        })
    }
}

/// Splits a field's text into name and value. The colon must be on the first line.
fn split_field<'a>(first_line: &[u8], text: &'a [u8]) -> Result<(&'a str, &'a [u8]), MalformedReason> {
    if matches!(first_line.first(), Some(b' ' | b'\t')) {
        return Err(MalformedReason::NothingToContinue);
    }
    let colon = memchr::memchr(b':', first_line).ok_or(MalformedReason::NoColon)?;
    let (name, value) = text.split_at_checked(colon).ok_or(MalformedReason::NoColon)?;
    // RFC 5322 §4.5: obsolete fields may have white space between name and colon, and nowhere else
    let name = name.trim_ascii_end();
    // RFC 5322 §2.2: ftext is printable ASCII without colon
    if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
        return Err(MalformedReason::Name);
    }
    let name = str::from_utf8(name).map_err(|_| MalformedReason::Name)?;
    Ok((name, value.get(1..).unwrap_or_default()))
}

/// Takes the line ends out of a folded value; the white space after them stays (RFC 5322 §2.2.3). Copies only if there
/// are any.
#[must_use]
pub fn unfold(value: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', value).is_none() {
        return Cow::Borrowed(value);
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let (line, after) = rest.split_at_checked(end + 1).unwrap_or((rest, &[]));
        out.extend_from_slice(line);
        // Only a line end before white space is a fold; a bare LF elsewhere belongs to the text. One before a fold
        // would become a fold by taking the other out, so it goes with it.
        if matches!(after.first(), Some(b' ' | b'\t')) {
            let text_len = out.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
            out.truncate(text_len);
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// A line of the message by its offsets: `start..text_end` without line end, `start..end` with it.
#[derive(Clone, Copy)]
struct LineRange {
    start: usize,
    text_end: usize,
    end: usize,
}

impl LineRange {
    /// The line that begins at `start`; `None` at the end of `bytes`.
    fn at(bytes: &[u8], start: usize, line_end: LineEnd) -> Option<Self> {
        let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
        let newlines = memchr::memchr_iter(b'\n', rest).map(|at| start + at);
        for newline in newlines {
            let has_cr = newline > start && bytes.get(newline - 1) == Some(&b'\r');
            if has_cr || line_end == LineEnd::CrlfOrLf {
                return Some(Self { start, text_end: newline - usize::from(has_cr), end: newline + 1 });
            }
        }
        Some(Self { start, text_end: bytes.len(), end: bytes.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items as text: `name|value` or `!reason|raw`.
    fn items(message: &[u8], line_end: LineEnd) -> Vec<String> {
        HeaderSection::read(message, line_end)
            .items()
            .map(|item| match item {
                Item::Field(field) => format!("{}|{}", field.name(), field.unfolded().escape_ascii()),
                Item::Malformed(lines) => format!("!{:?}|{}", lines.reason(), lines.raw().escape_ascii()),
            })
            .collect()
    }

    // RFC 5322 §2.1 (test), RFC 5322 §2.2 (test), RFC 5322 §2.2.3 (test)
    #[test]
    fn fields_and_body() {
        let message = b"From: a@b\r\nSubject:folded\r\n over\r\n\tthree lines \r\nX-Empty:\r\n\r\nbody: no\r\n";
        assert_eq!(items(message, LineEnd::Crlf), ["From|a@b", r"Subject|folded over\tthree lines", "X-Empty|"]);
        let header = HeaderSection::read(message, LineEnd::Crlf);
        assert!(header.is_closed());
        assert_eq!(message.get(header.body_offset()..), Some(&b"body: no\r\n"[..]));
        let subject = header.find("SUBJECT").next().unwrap();
        assert_eq!((subject.offset(), subject.value()), (11, &b"folded\r\n over\r\n\tthree lines "[..]));
        assert_eq!(subject.value_offset(), 11 + "Subject:".len());
        assert!(matches!(header.find("from").next().unwrap().unfolded(), Cow::Borrowed(_)));
    }

    #[test]
    fn sections_without_body() {
        for message in [&b""[..], b"A: 1", b"A: 1\r\n", b"A: 1\r\n ", b"A: 1\r"] {
            let header = HeaderSection::read(message, LineEnd::Crlf);
            assert!(!header.is_closed(), "{}", message.escape_ascii());
            assert_eq!(header.body_offset(), message.len());
        }
        let header = HeaderSection::read(b"\r\nA: 1\r\n", LineEnd::Crlf);
        assert_eq!((header.as_bytes(), header.body_offset(), header.items().count()), (&b""[..], 2, 0));
    }

    // RFC 5322 §2.1 (test)
    #[test]
    fn bare_line_feeds_by_permission_only() {
        let message = b"A: 1\nB: 2\r\n 3\n\nbody";
        assert_eq!(items(message, LineEnd::CrlfOrLf), ["A|1", "B|2 3"]);
        assert_eq!(items(message, LineEnd::Crlf), [r"A|1\nB: 2 3\n\nbody"]);
        assert_eq!(items(b"A: 1\n\r\nbody", LineEnd::Crlf), ["A|1", "!NoColon|body"]);
        assert_eq!(items(b"A: 1\rB: 2\r\n", LineEnd::CrlfOrLf), [r"A|1\rB: 2"]);
    }

    // RFC 5322 §4.5 (test)
    #[test]
    fn what_is_no_field_is_reported_and_not_lost() {
        let message = b" lost\r\n line\r\nFr om: evil@x\r\nFrom : old@x\r\nno colon\r\n: x\r\nFr\xc3\xb6m: x\r\n more\r\nTo: y\r\n";
        assert_eq!(
            items(message, LineEnd::Crlf),
            [
                r"!NothingToContinue| lost\r\n line\r\n",
                r"!Name|Fr om: evil@x\r\n",
                "From|old@x",
                r"!NoColon|no colon\r\n",
                r"!Name|: x\r\n",
                r"!Name|Fr\xc3\xb6m: x\r\n more\r\n",
                "To|y",
            ]
        );
        let header = HeaderSection::read(message, LineEnd::Crlf);
        assert_eq!(header.find("from").map(|field| field.value()).collect::<Vec<_>>(), [b" old@x"]);
        // A colon on a continuation line does not make a name of the text before it.
        assert_eq!(items(b"From\r\n : x\r\n", LineEnd::Crlf), [r"!NoColon|From\r\n : x\r\n"]);
        assert_eq!(
            items(b"From a@b Thu Nov 20\nA: 1\n", LineEnd::CrlfOrLf),
            [r"!MboxFrom|From a@b Thu Nov 20\n", "A|1"]
        );
        assert_eq!(items(b"A: 1\nFrom a@b Thu: x\n", LineEnd::CrlfOrLf), ["A|1", r"!Name|From a@b Thu: x\n"]);
    }

    #[test]
    fn unfolding_leaves_no_folds() {
        assert_eq!(unfold(b"a\r\n b\n\tc\nd"), &b"a b\tc\nd"[..]);
        assert_eq!(unfold(b"a\n\r\n b"), &b"a b"[..]);
        assert_eq!(unfold(b"\r\n b\r\n"), &b" b\r\n"[..]);
    }

    // RFC 5322 §4.2 (test)
    #[test]
    fn blank_lines_with_spaces_continue() {
        assert_eq!(items(b"A: 1\r\n  \r\nB: 2\r\n\r\n", LineEnd::Crlf), ["A|1", "B|2"]);
        assert_eq!(items(b"A: 1\r\n  \r\n more\r\n\r\n", LineEnd::Crlf), ["A|1   more"]);
    }
}
