//! A message as filters see it: fields and the body. Edits of a filter are applied to it, so that the next filter sees
//! them.
//!
//! Filters do not see the trace field of this server, and see the fields with results of sender authentication, which
//! stand above it. Here the trace field is first; where the message is joined again, results are on top.

use filter::milter::{Edit, HeaderField, apply_header_edits};
use mail::header::{HeaderSection, Item, LineEnd};

/// The fields that this server has put on top of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnFields {
    /// Fields with results of sender authentication, which filters see.
    pub(crate) results: usize,
    /// Fields below these that filters do not see. The last one is the trace field.
    pub(crate) hidden: usize,
}

impl OwnFields {
    /// The trace field below some results.
    pub(crate) const fn with_results(results: usize) -> Self {
        Self { results, hidden: 1 }
    }

    /// Returns those that a message still has, of which content rules may have removed some. In doubt filters see all.
    pub(crate) fn left_in(self, content: &[u8]) -> Self {
        let header = HeaderSection::read(content, LineEnd::Crlf);
        let is_trace = |item: &Item<'_>| matches!(item, Item::Field(field) if field.has_name("Received"));
        let trace = header.items().position(|item| is_trace(&item));
        match trace {
            Some(at) if at + 1 == self.results + self.hidden => self,
            Some(0) => Self::with_results(0),
            _ => Self { results: 0, hidden: 0 },
        }
    }
}

/// A message in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterContent {
    /// The fields in order. Lines that are no field have an empty name, and their octets with the line end as value.
    fields: Vec<HeaderField>,
    /// The number of fields on top that filters do not see.
    own: usize,
    /// Fields with results of sender authentication, as they were.
    results: Vec<HeaderField>,
    /// The body behind the empty line.
    body: Vec<u8>,
    /// The body is the whole body.
    is_complete: bool,
}

impl FilterContent {
    /// Takes a message apart that has these fields of ours on top; `is_complete`: it is the whole message.
    pub(crate) fn read(content: &[u8], OwnFields { results, hidden }: OwnFields, is_complete: bool) -> Self {
        let header = HeaderSection::read(content, LineEnd::Crlf);
        let body = content.get(header.body_offset()..).unwrap_or_default().to_vec();
        let mut fields: Vec<HeaderField> = header.items().map(field_of).collect();
        let results = fields.get(..results).unwrap_or_default().to_vec();
        if let Some(own) = fields.get_mut(..results.len() + hidden) {
            own.rotate_left(results.len());
        }
        Self { own: fields.len().min(hidden), fields, results, body, is_complete }
    }

    /// Returns the fields of ours that stand on top where the message is joined again.
    pub(crate) fn own_fields(&self) -> OwnFields {
        let results = self.fields.iter().filter(|field| self.results.contains(field)).count();
        OwnFields { results, hidden: self.own }
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
        let is_result = |field: &&HeaderField| self.results.contains(field);
        write_fields(self.fields.iter().filter(is_result), &mut out);
        write_fields(self.fields.iter().filter(|field| !is_result(field)), &mut out);
        out
    }

    /// Returns the message without our own fields, as scanners get it.
    pub(super) fn without_own(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.len() + 4_096);
        write_fields(self.shown().iter(), &mut out);
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

/// Ends each line with CR LF, the last one too. The next hop may take a line that ends with a bare CR or LF for the end
/// of the message (RFC 5321 §2.3.8).
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
    if !out.is_empty() && !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn field_of(item: Item<'_>) -> HeaderField {
    match item {
        Item::Field(field) => HeaderField { name: field.name().into(), value: field.value().into() },
        Item::Malformed(lines) => HeaderField { name: Vec::new(), value: lines.raw().into() },
    }
}

fn write_fields<'a>(fields: impl Iterator<Item = &'a HeaderField>, out: &mut Vec<u8>) {
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
        let content = FilterContent::read(message, OwnFields::with_results(0), true);
        assert_eq!(content.whole(), message);
        assert_eq!(content.shown().len(), 3);
        assert!(content.without_own().starts_with(b"Subject: a\r\n"));
    }

    #[test]
    fn a_new_body_has_whole_line_ends() {
        let mut content = FilterContent::read(b"A: 1\r\n\r\nbody\r\n", OwnFields::with_results(0), true);
        content.apply(&[], Some(b"one\ntwo\r\n\n.\nthree\r.\r\r\nend".to_vec()));
        assert_eq!(content.body(), b"one\r\ntwo\r\n\r\n.\r\nthree\r\n.\r\n\r\nend\r\n");
    }

    #[test]
    fn the_next_filter_sees_the_changes_of_the_one_before() {
        let mut content =
            FilterContent::read(b"Received: own\r\nA: 1\r\n\r\nbody\r\n", OwnFields::with_results(0), true);
        let add = |name: &str| Edit::InsertHeader { index: 1, name: name.into(), value: b" new".to_vec() };
        content.apply(&[add("B")], None);
        content.apply(&[add("C")], Some(b"other\r\n".to_vec()));
        assert_eq!(content.whole(), b"Received: own\r\nC: new\r\nB: new\r\nA: 1\r\n\r\nother\r\n");
    }

    #[test]
    fn results_are_shown_and_stay_on_top() {
        let message =
            b"Authentication-Results: mx; spf=pass\r\nX-Sender-Check: a\r\nReceived: own\r\nA: 1\r\n\r\nbody\r\n";
        let mut content = FilterContent::read(message, OwnFields::with_results(2), true);
        assert_eq!(content.whole(), message);
        assert!(
            content.without_own().starts_with(b"Authentication-Results: mx; spf=pass\r\nX-Sender-Check: a\r\nA: 1\r\n")
        );
        for index in [0, 1, 9] {
            content.apply(&[Edit::InsertHeader { index, name: b"B".to_vec(), value: index.to_string().into() }], None);
        }
        let delete = |name: &[u8]| Edit::ChangeHeader { index: 1, name: name.to_vec(), value: None };
        content.apply(&[delete(b"X-Sender-Check"), delete(b"Received")], None);
        assert_eq!(
            content.whole(),
            b"Authentication-Results: mx; spf=pass\r\nB:0\r\nReceived: own\r\nB:1\r\nA: 1\r\nB:9\r\n\r\nbody\r\n"
        );
        assert_eq!(FilterContent::read(b"A: 1\r\n\r\n", OwnFields::with_results(3), true).whole(), b"A: 1\r\n\r\n");
    }
}
