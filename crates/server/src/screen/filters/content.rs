//! A message as filters see it: fields, of which the first are our own, and the body. Edits of a filter are applied to
//! it, so that the next filter sees them.

use filter::milter::{Edit, HeaderField, apply_header_edits};
use mail::header::{HeaderSection, Item, LineEnd};

/// A message in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterContent {
    /// The fields in order. Lines that are no field have an empty name, and their octets with the line end as value.
    fields: Vec<HeaderField>,
    /// The number of fields on top that this server wrote.
    own: usize,
    /// The body behind the empty line.
    body: Vec<u8>,
    /// The body is the whole body.
    is_complete: bool,
}

impl FilterContent {
    /// Takes a message apart whose first `own` fields are ours; `is_complete`: it is the whole message.
    pub(crate) fn read(content: &[u8], own: usize, is_complete: bool) -> Self {
        let header = HeaderSection::read(content, LineEnd::Crlf);
        let body = content.get(header.body_offset()..).unwrap_or_default().to_vec();
        let fields: Vec<HeaderField> = header.items().map(field_of).collect();
        Self { own: own.min(fields.len()), fields, body, is_complete }
    }

    /// Whether it is the whole message.
    pub(crate) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the fields that filters are shown.
    pub(super) fn shown(&self) -> &[HeaderField] {
        self.fields.get(self.own..).unwrap_or_default()
    }

    /// Returns the body.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the header section without the empty line.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_fields(&self.fields, &mut out);
        out
    }

    /// Returns the message without our own fields, as scanners get it.
    pub(super) fn without_own(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.len() + 4_096);
        write_fields(self.shown(), &mut out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }

    /// Returns the whole message.
    pub(crate) fn whole(&self) -> Vec<u8> {
        let mut out = self.header();
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }

    /// Applies the changes of one filter.
    pub(super) fn apply(&mut self, edits: &[Edit], body: Option<Vec<u8>>) {
        self.own = apply_header_edits(&mut self.fields, self.own, edits);
        if let Some(body) = body {
            self.body = with_line_ends(body);
        }
    }
}

/// Ends lines with CR LF where a filter ended them with a bare CR or LF, which the next hop may take for the end of the
/// message (RFC 5321 §2.3.8).
fn with_line_ends(body: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let mut octets = body.into_iter().peekable();
    while let Some(octet) = octets.next() {
        match octet {
            b'\r' => {
                octets.next_if_eq(&b'\n');
                out.extend_from_slice(b"\r\n");
            }
            b'\n' => out.extend_from_slice(b"\r\n"),
            octet => out.push(octet),
        }
    }
    out
}

fn field_of(item: Item<'_>) -> HeaderField {
    match item {
        Item::Field(field) => HeaderField { name: field.name().into(), value: field.value().into() },
        Item::Malformed(lines) => HeaderField { name: Vec::new(), value: lines.raw().into() },
    }
}

fn write_fields(fields: &[HeaderField], out: &mut Vec<u8>) {
    for field in fields {
        out.extend_from_slice(&field.name);
        if !field.name.is_empty() {
            out.push(b':');
        }
        out.extend_from_slice(&field.value);
        if !field.value.ends_with(b"\r\n") {
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_same_when_it_is_joined_again() {
        let message = b"Received: x\r\n\tby y\r\nSubject: a\r\nno field\r\nB:b\r\n\r\nbody\r\n".as_slice();
        let content = FilterContent::read(message, 1, true);
        assert_eq!(content.whole(), message);
        assert_eq!(content.shown().len(), 3);
        assert!(content.without_own().starts_with(b"Subject: a\r\n"));
    }

    #[test]
    fn a_new_body_has_whole_line_ends() {
        let mut content = FilterContent::read(b"A: 1\r\n\r\nbody\r\n", 0, true);
        content.apply(&[], Some(b"one\ntwo\r\n\n.\nthree\r.\r\r\nend".to_vec()));
        assert_eq!(content.body(), b"one\r\ntwo\r\n\r\n.\r\nthree\r\n.\r\n\r\nend");
    }

    #[test]
    fn the_next_filter_sees_the_changes_of_the_one_before() {
        let mut content = FilterContent::read(b"Received: own\r\nA: 1\r\n\r\nbody\r\n", 1, true);
        let add = |name: &str| Edit::InsertHeader { index: 1, name: name.into(), value: b" new".to_vec() };
        content.apply(&[add("B")], None);
        content.apply(&[add("C")], Some(b"other\r\n".to_vec()));
        assert_eq!(content.whole(), b"Received: own\r\nC: new\r\nB: new\r\nA: 1\r\n\r\nother\r\n");
    }
}
