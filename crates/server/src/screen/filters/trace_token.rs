//! The trace token of a message that a filter gives back: a header field with the queue id, the question to the filter,
//! and the filters that the message has passed, with a tag that nobody else can make.
//!
//! ```text
//! X-Mailrace-Trace: 6AK9BQPE592284 9f86d081884c7d65 rules,amavis 3b0c…
//! ```

use crate::secret_key::SecretKey;
use mail::QueueId;
use mail::header::{HeaderSection, Item, LineEnd};

/// The name of the field.
pub(crate) const TRACE_FIELD: &str = "X-Mailrace-Trace";
/// The purpose of its tag.
const PURPOSE: &str = "filter trace";

/// A token whose tag was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceToken {
    /// The message that the filter was asked about.
    pub(crate) id: QueueId,
    /// The number of the question.
    pub(crate) question: u64,
    /// The filters that the message has passed, the one that was asked last.
    pub(crate) filters: Vec<String>,
}

impl TraceToken {
    /// Returns the text with its tag.
    pub(super) fn to_text(&self, key: &SecretKey) -> String {
        let text = format!("{} {:016x} {}", self.id, self.question, self.filters.join(","));
        key.sign(PURPOSE, &text, ' ')
    }

    /// Reads a text, folded or not; `None`: it is forged, or damaged.
    pub(super) fn parse(text: &str, key: &SecretKey) -> Option<Self> {
        let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let words: Vec<&str> = key.signed(PURPOSE, &text, ' ')?.split(' ').collect();
        let [id, question, filters] = words.as_slice() else { return None };
        let filters = filters.split(',').map(str::to_owned).collect();
        Some(Self { id: id.parse().ok()?, question: u64::from_str_radix(question, 16).ok()?, filters })
    }
}

/// Returns the values of all trace fields of a message, the first one first.
pub(crate) fn trace_fields(content: &[u8]) -> Vec<String> {
    let header = HeaderSection::read(content, LineEnd::Crlf);
    header.find(TRACE_FIELD).map(|field| String::from_utf8_lossy(&field.unfolded()).trim().to_owned()).collect()
}

/// Returns a header section without trace fields. `has_trace`: the first field is the `Received` field that this server
/// has put there, which goes, too.
pub(crate) fn without_trace_fields(section: &[u8], has_trace: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(section.len());
    for (at, item) in HeaderSection::read(section, LineEnd::Crlf).items().enumerate() {
        match item {
            Item::Field(field) if field.has_name(TRACE_FIELD) => {}
            Item::Field(field) if has_trace && at == 0 && field.has_name("Received") => {}
            Item::Field(field) => out.extend_from_slice(field.raw()),
            Item::Malformed(lines) => out.extend_from_slice(lines.raw()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_no_part_of_it_can_be_changed() {
        let key = SecretKey::of_process();
        let filters = vec!["a".to_owned(), "amavis".to_owned()];
        let token = TraceToken { id: QueueId::MIN, question: 42, filters };
        let text = token.to_text(&key);
        assert_eq!(TraceToken::parse(&text, &key), Some(token));
        assert_eq!(TraceToken::parse(&text.replace(' ', "\r\n\t"), &key).map(|token| token.question), Some(42));
        assert_eq!(TraceToken::parse(&text, &SecretKey::of_process()), None);
        for at in 0..text.len() {
            let mut octets = text.clone().into_bytes();
            octets[at] = if octets[at] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(octets).expect("ASCII");
            assert_eq!(TraceToken::parse(&changed, &key), None, "{changed}");
        }
        for text in ["", "a b c d", &format!("{text} e"), &text[..text.len() - 2]] {
            assert_eq!(TraceToken::parse(text, &key), None, "{text}");
        }
    }

    #[test]
    fn fields_are_found_and_removed_wherever_they_are() {
        let content = b"Received: own\r\nX-Mailrace-Trace: one\r\nA: 1\r\nx-mailrace-TRACE : two\r\n three\r\nB: 2\r\n";
        assert_eq!(trace_fields(content), ["one", "two three"]);
        assert_eq!(without_trace_fields(content, true), b"A: 1\r\nB: 2\r\n");
        assert_eq!(without_trace_fields(content, false), b"Received: own\r\nA: 1\r\nB: 2\r\n");
    }
}
