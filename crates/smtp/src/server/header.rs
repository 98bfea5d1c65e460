//! Watches the header section go by: how many fields, how many octets, how many hops, which Message-ID, which
//! precedence, and the earlier recipients.
//!
//! It sees content in its stored form, cut anywhere, and keeps no more than the beginning of one line. The section ends
//! at the first empty line, and also at the first line that can be no field, as sendmail has it: a message without any
//! header must not run into the limits for headers. Meaning of fields is not read here; filters read the stored
//! message.

use memchr::memchr;

/// How much of a line is looked at: a name, and a Message-ID that the log shows.
const LINE_OCTETS: usize = 320;
/// Octets kept of a Message-ID.
const MESSAGE_ID_OCTETS: usize = 256;
/// `Delivered-To:` fields whose values are kept; further ones are not looked at.
const DELIVERED_TO_FIELDS: usize = 100;

/// The fields that have been seen.
#[derive(Debug)]
pub(super) struct HeaderWatch {
    /// Beginning of the line that has not yet ended.
    line: Vec<u8>,
    open: bool,
    bytes: u64,
    fields: u32,
    hops: u32,
    message_id: MessageId,
    precedence: Option<i32>,
    has_list_id: bool,
    delivered_to: Vec<Box<[u8]>>,
    /// A `Delivered-To:` has begun and its value is on the next line.
    is_delivered_to_folded: bool,
}

#[derive(Debug)]
enum MessageId {
    NotSeen,
    /// The field has begun and its value is on the next line.
    Folded,
    Seen(Box<str>),
}

impl HeaderWatch {
    pub(super) const fn new() -> Self {
        Self {
            line: Vec::new(),
            open: true,
            bytes: 0,
            fields: 0,
            hops: 0,
            message_id: MessageId::NotSeen,
            precedence: None,
            has_list_id: false,
            delivered_to: Vec::new(),
            is_delivered_to_folded: false,
        }
    }

    /// The section has not yet ended.
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// Octets of the section so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fields so far.
    pub(super) const fn fields(&self) -> u32 {
        self.fields
    }

    /// `Received:` fields so far.
    pub(super) const fn hops(&self) -> u32 {
        self.hops
    }

    /// The first Message-ID.
    pub(super) fn message_id(&self) -> Option<&str> {
        match &self.message_id {
            MessageId::Seen(id) => Some(id),
            MessageId::NotSeen | MessageId::Folded => None,
        }
    }

    /// The first `Precedence:`, by sendmail's table; 0 without one, and for words that are not in it.
    pub(super) fn precedence(&self) -> i32 {
        self.precedence.unwrap_or(0)
    }

    /// There is a `List-Id:`.
    pub(super) const fn has_list_id(&self) -> bool {
        self.has_list_id
    }

    /// The values of the first `Delivered-To:` fields.
    pub(super) fn delivered_to(&self) -> &[Box<[u8]>] {
        &self.delivered_to
    }

    /// More octets, for the count of octets alone.
    pub(super) const fn count(&mut self, octets: u64) {
        self.bytes += octets;
    }

    /// More of a line, without its line end.
    pub(super) fn text(&mut self, text: &[u8]) {
        let room = LINE_OCTETS.saturating_sub(self.line.len());
        self.line.extend_from_slice(text.get(..room).unwrap_or(text));
    }

    /// The line is complete.
    pub(super) fn line_end(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        self.look_at(&line);
        line.clear();
        if self.open {
            self.line = line;
        }
    }

    /// Octets of a binary body, where LF ends a line whether or not a CR stands before it.
    pub(super) fn binary(&mut self, mut octets: &[u8]) {
        while self.open
            && let Some(end) = memchr(b'\n', octets)
        {
            let (line, rest) = octets.split_at_checked(end + 1).unwrap_or((octets, &[]));
            self.text(line.get(..end).unwrap_or(line));
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
            self.line_end();
            octets = rest;
        }
        if self.open {
            self.text(octets);
        }
    }

    fn look_at(&mut self, line: &[u8]) {
        let folded = matches!(line.first(), Some(b' ' | b'\t'));
        if folded && self.fields > 0 {
            if matches!(self.message_id, MessageId::Folded) {
                self.set_message_id(line);
            }
            if self.is_delivered_to_folded {
                self.add_delivered_to(line);
            }
            return;
        }
        self.is_delivered_to_folded = false;
        if matches!(self.message_id, MessageId::Folded) {
            self.message_id = MessageId::NotSeen;
        }
        // RFC 5322 §2.2: field-name ":" body, the name printable; RFC 5322 §4.5: spaces before the colon
        let colon = memchr(b':', line);
        let name = colon.and_then(|at| line.get(..at)).map(<[u8]>::trim_ascii_end);
        let Some(name) = name.filter(|name| !name.is_empty() && name.iter().all(u8::is_ascii_graphic)) else {
            // A line from an mbox file stands before the fields of mail that programs hand on.
            self.open = self.fields == 0 && (line.starts_with(b"From ") || line.starts_with(b">From "));
            return;
        };
        self.fields = self.fields.saturating_add(1);
        if name.eq_ignore_ascii_case(b"Received") {
            self.hops = self.hops.saturating_add(1);
        } else if name.eq_ignore_ascii_case(b"Message-ID") && matches!(self.message_id, MessageId::NotSeen) {
            self.message_id = MessageId::Folded;
            let value = colon.and_then(|at| line.get(at + 1..)).unwrap_or_default();
            self.set_message_id(value);
        } else if name.eq_ignore_ascii_case(b"Precedence") && self.precedence.is_none() {
            self.precedence = Some(precedence(colon.and_then(|at| line.get(at + 1..)).unwrap_or_default()));
        } else if name.eq_ignore_ascii_case(b"List-Id") {
            // RFC 2919 §2
            self.has_list_id = true;
        } else if name.eq_ignore_ascii_case(b"Delivered-To") {
            self.is_delivered_to_folded = true;
            self.add_delivered_to(colon.and_then(|at| line.get(at + 1..)).unwrap_or_default());
        }
    }

    // RFC 9228 §2: the field as it is in use, one address in it
    fn add_delivered_to(&mut self, value: &[u8]) {
        let value = value.trim_ascii();
        if !value.is_empty() && self.delivered_to.len() < DELIVERED_TO_FIELDS {
            self.delivered_to.push(value.into());
        }
        self.is_delivered_to_folded &= value.is_empty();
    }

    fn set_message_id(&mut self, value: &[u8]) {
        let value = String::from_utf8_lossy(value.trim_ascii());
        if value.is_empty() {
            return;
        }
        let mut id: String = value.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        id.truncate(id.floor_char_boundary(MESSAGE_ID_OCTETS));
        self.message_id = MessageId::Seen(id.into());
    }
}

/// Returns the priority of a word: the `P` lines of sendmail's configuration.
fn precedence(value: &[u8]) -> i32 {
    const TABLE: [(&str, i32); 5] =
        [("special-delivery", 100), ("first-class", 0), ("list", -30), ("bulk", -60), ("junk", -100)];
    let value = value.trim_ascii();
    TABLE.iter().find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(value)).map_or(0, |(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn watch(lines: &[&str]) -> HeaderWatch {
        let mut watch = HeaderWatch::new();
        for line in lines {
            if watch.is_open() {
                let (a, b) = line.split_at(line.floor_char_boundary(line.len() / 2));
                watch.text(a.as_bytes());
                watch.text(b.as_bytes());
                watch.line_end();
            }
        }
        watch
    }

    // RFC 5321 §6.3 (test), RFC 5322 §2.2 (test)
    #[test]
    fn fields_and_hops() {
        let seen = watch(&["Received: a", "\tb: c", "rEcEiVeD : d", "X: y", "", "Received: not a field"]);
        assert_eq!((seen.fields(), seen.hops(), seen.is_open()), (3, 2, false));
        assert_eq!(watch(&["hello", "Received: x"]).fields(), 0);
        assert_eq!(watch(&["From a@b Thu", "Received: x"]).hops(), 1);
        assert_eq!(watch(&["A: b", "From a@b Thu", "Received: x"]).hops(), 0);
        assert!(!watch(&[" folded nothing"]).is_open());
        assert!(!watch(&[&"x".repeat(400)]).is_open());
    }

    #[test]
    fn message_ids() {
        assert_eq!(watch(&["message-id:<a@b> ", "Message-ID: <c@d>"]).message_id(), Some("<a@b>"));
        assert_eq!(watch(&["Message-ID:", " <a@b>"]).message_id(), Some("<a@b>"));
        assert_eq!(watch(&["Message-ID:", "A: b", " <a@b>"]).message_id(), None);
        assert_eq!(watch(&["Message-ID: a\u{1}\u{7f}b"]).message_id(), Some("a??b"));
        let long = watch(&[&format!("Message-ID: {}", "ü".repeat(300))]);
        assert_eq!(long.message_id().map(str::len), Some(256));
    }

    // RFC 2919 §2 (test)
    #[test]
    fn bulk_is_seen() {
        let seen = |lines: &[&str]| {
            let watch = watch(lines);
            (watch.precedence(), watch.has_list_id())
        };
        assert_eq!(seen(&["Precedence: bulk"]), (-60, false));
        assert_eq!(seen(&["precedence :\tLIST ", "Precedence: junk"]), (-30, false));
        assert_eq!(seen(&["Precedence: special-delivery", "List-Id: <a.b>"]), (100, true));
        for lines in [["Precedence: bulky", "", "List-Id: x"], ["X-Precedence: bulk", "", "Precedence: bulk"]] {
            assert_eq!(seen(&lines), (0, false), "{lines:?}");
        }
    }

    // RFC 9228 §2 (test)
    #[test]
    fn former_deliveries_are_seen() {
        let seen = |lines: &[&str]| {
            let watch = watch(lines);
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            watch.delivered_to().iter().map(|value| text(value)).collect::<Vec<_>>()
        };
        assert_eq!(seen(&["delivered-TO :\ta@b ", "X: y", "Delivered-To: <c@d>"]), ["a@b", "<c@d>"]);
        assert_eq!(seen(&["Delivered-To:", " a@b", " c@d"]), ["a@b"]);
        for lines in
            [["Delivered-To:", "X: y", " a@b"], ["X: y", "", "Delivered-To: a@b"], ["X-Delivered-To: a@b", "", ""]]
        {
            assert_eq!(seen(&lines), [""; 0], "{lines:?}");
        }
        assert_eq!(seen(&["Delivered-To: a@b"; 1_000]).len(), DELIVERED_TO_FIELDS);
    }

    #[test]
    fn binary_lines() {
        for piece in 1..20 {
            let mut watch = HeaderWatch::new();
            for octets in b"Received: a\r\nX: y\nMessage-ID: z\r\n\r\n\0\n\nA: b\n".chunks(piece) {
                if watch.is_open() {
                    watch.binary(octets);
                }
            }
            assert_eq!((watch.fields(), watch.hops(), watch.message_id()), (3, 1, Some("z")), "{piece}");
        }
    }
}
