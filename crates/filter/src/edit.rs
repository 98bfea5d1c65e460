//! The changes that rules make to a header section: a new section from the old one, every other octet as it was.
//!
//! Edits apply in order, each to the result of the one before. A value never ends its field: it is printable when it is
//! parsed, and what is not ASCII becomes encoded words.

use mail::encoded_word::encode;
use mail::header::{Field, HeaderSection, Item, LineEnd};

use crate::action::HeaderEdit;
use crate::header_text;

/// Returns the header section (without the empty line) with the edits applied. New fields end with CRLF.
///
/// ```
/// use filter::{HeaderEdit, edit::apply};
/// use mail::header::LineEnd;
/// let edits = [HeaderEdit::TagSubject("[bulk] ".to_owned())];
/// let edited = apply(b"Subject: Hello\r\nTo: a@example.com\r\n", LineEnd::Crlf, edits.iter());
/// assert_eq!(edited, b"Subject: [bulk] Hello\r\nTo: a@example.com\r\n");
/// ```
#[must_use]
pub fn apply<'e>(section: &[u8], line_end: LineEnd, edits: impl Iterator<Item = &'e HeaderEdit>) -> Vec<u8> {
    let mut section = section.to_vec();
    for edit in edits {
        section = apply_one(&section, line_end, edit);
    }
    section
}

fn apply_one(section: &[u8], line_end: LineEnd, edit: &HeaderEdit) -> Vec<u8> {
    let header = HeaderSection::read(section, line_end);
    let mut out = Vec::with_capacity(section.len() + 128);
    let mut is_done = false;
    for item in header.items() {
        let (raw, field) = match item {
            Item::Field(field) => (field.raw(), Some(field)),
            Item::Malformed(lines) => (lines.raw(), None),
        };
        match (edit, field) {
            (HeaderEdit::Change { name, value }, Some(field)) if field.has_name(name) => {
                if !std::mem::replace(&mut is_done, true) {
                    write_field(field.name(), value, &mut out);
                }
            }
            (HeaderEdit::Remove { name, matching }, Some(field)) if field.has_name(name) => {
                let is_wanted =
                    |regex: &regex::Regex| regex.is_match(&header_text::decode(field.value().trim_ascii()).text);
                if !matching.as_ref().is_none_or(is_wanted) {
                    out.extend_from_slice(raw);
                }
            }
            (HeaderEdit::TagSubject(tag), Some(field)) if field.has_name("Subject") => {
                is_done = true;
                write_tagged(field, tag, &mut out);
            }
            _ => out.extend_from_slice(raw),
        }
    }
    match edit {
        HeaderEdit::Add { name, value } => write_new(name, value, &mut out),
        HeaderEdit::Change { name, value } if !is_done => write_new(name, value, &mut out),
        HeaderEdit::TagSubject(tag) if !is_done => write_new("Subject", tag.trim_end(), &mut out),
        _ => {}
    }
    out
}

/// Appends a field behind a section whose last line may lack its end.
fn write_new(name: &str, value: &str, out: &mut Vec<u8>) {
    if !out.is_empty() && !out.ends_with(b"\n") {
        out.extend_from_slice(b"\r\n");
    }
    write_field(name, value, out);
}

fn write_field(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(encode(value, name.len() + 2).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes the subject with the tag before it, unless the decoded subject begins with it.
fn write_tagged(field: Field<'_>, tag: &str, out: &mut Vec<u8>) {
    let old = field.raw().get(field.name().len()..).unwrap_or_default();
    let colon = memchr::memchr(b':', old).map_or(0, |at| at + 1);
    let value = old.get(colon..).unwrap_or_default();
    let text = header_text::decode(field.value().trim_ascii()).text;
    if text.starts_with(tag.trim_end()) {
        out.extend_from_slice(field.raw());
        return;
    }
    out.extend_from_slice(field.name().as_bytes());
    out.extend_from_slice(b": ");
    let tag_word = encode(tag.trim_end(), field.name().len() + 2);
    out.extend_from_slice(tag_word.as_bytes());
    let rest = value.strip_prefix(b" ").unwrap_or(value);
    // Programs do not show the space between two encoded words, so an encoded tag touches an encoded subject.
    if !rest.trim_ascii().is_empty() && !matches!(rest.first(), Some(b'\r' | b'\n')) {
        out.push(b' ');
    }
    out.extend_from_slice(rest);
    if !rest.ends_with(b"\n") {
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(section: &str, edits: &[HeaderEdit], wanted: &str) {
        let edited = apply(section.as_bytes(), LineEnd::Crlf, edits.iter());
        assert_eq!(String::from_utf8_lossy(&edited), wanted);
    }

    fn text(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn edits() {
        let old = "A: 1\r\nno field\r\na: 2\r\n folded\r\nSubject: =?utf-8?Q?=C3=A4?=\r\n";
        let add = HeaderEdit::Add { name: text("X"), value: text("\u{e4}") };
        check(old, &[add], &format!("{old}X: =?utf-8?B?w6Q=?=\r\n"));
        let change = |name| HeaderEdit::Change { name: text(name), value: text("3") };
        check(old, &[change("a")], "A: 3\r\nno field\r\nSubject: =?utf-8?Q?=C3=A4?=\r\n");
        check("A: 1", &[change("B"), change("B")], "A: 1\r\nB: 3\r\n");
        let remove =
            |matching: &str| HeaderEdit::Remove { name: text("A"), matching: regex::Regex::new(matching).ok() };
        check(old, &[remove("folded")], "A: 1\r\nno field\r\nSubject: =?utf-8?Q?=C3=A4?=\r\n");
        check("A: 1\r\nB: 2\r\n", &[remove(".")], "B: 2\r\n");
    }

    #[test]
    fn a_subject_is_tagged_once() {
        let tag = || HeaderEdit::TagSubject(text("[spam] "));
        check("subject:Hello\r\n folded\r\n", &[tag(), tag()], "subject: [spam] Hello\r\n folded\r\n");
        check("Subject:\r\n Hello\r\n", &[tag()], "Subject: [spam]\r\n Hello\r\n");
        check("Subject:\r\n", &[tag()], "Subject: [spam]\r\n");
        check("To: a\r\n", &[tag()], "To: a\r\nSubject: [spam]\r\n");
        check("Subject: =?utf-8?B?w6Q=?=\r\n", &[tag()], "Subject: [spam] =?utf-8?B?w6Q=?=\r\n");
        let encoded = HeaderEdit::TagSubject(text("[\u{e4}] "));
        check("Subject: x\r\n", &[encoded.clone(), encoded], "Subject: =?utf-8?B?W8OkXQ==?= x\r\n");
    }
}
