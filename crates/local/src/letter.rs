//! A message on its way into a mailbox or a program: its header as it should be there, its lines ended by LF alone.
//!
//! `Return-Path:` is the envelope sender and `Delivered-To:` the recipient, both before all else; a `Return-Path:` that
//! was there is another server's and is removed (RFC 5321 §4.4). A message that says too often that it was delivered to
//! this recipient before goes in a circle ([`super::loops`]). In files, lines that look like the beginning of a message
//! get a `>` before them, also those that begin with `>From `: so each can be taken away again (the form that is called
//! mboxrd).

use super::loops::{REPEATS_MAX, names_address};
use super::order::{DeliveryRequest, Verdict};
use bytes::Bytes;
use std::io::{self, Write};

/// Where content comes from.
pub trait Content {
    /// The next piece, never empty; `None` behind the end.
    ///
    /// # Errors
    /// It cannot be read, or its sender is gone.
    fn next(&mut self) -> Result<Option<Bytes>, String>;
}

/// Orders with their messages, one after the other: [`Content`] is that of the order that was given last.
pub trait Orders: Content {
    /// The next order; `None` behind the last. The rest of the message before is passed over.
    fn next_order(&mut self) -> Option<DeliveryRequest>;
}

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Begin with a `From ` line.
    pub from_line: bool,
    /// Put a `>` before lines that look like one, and end with an empty line.
    pub quotes: bool,
}

/// A message of which the header was read.
pub struct MailboxMessage<'a> {
    order: &'a DeliveryRequest,
    content: &'a mut dyn Content,
    /// The header without `Return-Path:`, and the octets behind it in the same piece.
    begin: Vec<u8>,
}

/// Why a message was not written to its end.
#[derive(Debug)]
pub enum Broken {
    /// It cannot be written.
    Write(io::Error),
    /// It cannot be read.
    Read(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl<'a> MailboxMessage<'a> {
    /// Reads the header. One of more than `header_max` octets is taken as it is behind that.
    ///
    /// # Errors
    /// The message has gone in a circle, or cannot be read.
    pub fn open(order: &'a DeliveryRequest, content: &'a mut dyn Content, header_max: u64) -> Result<Self, Verdict> {
        let mut read = Vec::new();
        let mut end = None;
        while end.is_none() && (read.len() as u64) < header_max {
            let from = read.len().saturating_sub(3);
            match content.next().map_err(unreadable_verdict)? {
                Some(piece) => read.extend_from_slice(&piece),
                None => break,
            }
            end = end_of_header(&read, from);
        }
        let (header, rest) = read.split_at(end.unwrap_or(read.len()));
        let mut begin = Vec::with_capacity(read.len());
        let mut repeats = 0;
        for field in fields(header) {
            if value_of(field, "Delivered-To").is_some_and(|value| names_address(value, &order.recipient)) {
                repeats += 1;
            }
            if value_of(field, "Return-Path").is_none() {
                begin.extend_from_slice(field);
            }
        }
        if repeats >= REPEATS_MAX {
            return Err(Verdict::failed((4, 6), format!("mail forwarding loop for {}", order.recipient)));
        }
        begin.extend_from_slice(rest);
        Ok(Self { order, content, begin })
    }

    /// The order that it belongs to.
    pub const fn order(&self) -> &'a DeliveryRequest {
        self.order
    }

    /// Whether its header has the queue id in it: then no other message has the same octets.
    pub fn is_marked(&self) -> bool {
        let id = self.order.id().as_bytes();
        !id.is_empty() && self.begin.windows(id.len()).any(|part| part == id)
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// It cannot be read or written; part of it may be written.
    pub fn write_to(&mut self, out: &mut dyn Write, form: Form) -> Result<(), Broken> {
        let order = self.order;
        if form.from_line {
            out.write_all(from_line(order).as_bytes())?;
        }
        out.write_all(first_fields(order).as_bytes())?;
        let mut lines = LineWriter { out, quotes: form.quotes, is_start: true, carry: Vec::new() };
        lines.push(&std::mem::take(&mut self.begin))?;
        while let Some(piece) = self.content.next().map_err(Broken::Read)? {
            lines.push(&piece)?;
        }
        let is_open = lines.end()?;
        if is_open {
            out.write_all(b"\n")?;
        }
        if form.quotes {
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// The line before a message in a mailbox file up to its date.
pub fn from_line_begin(order: &DeliveryRequest) -> String {
    let sender = if order.sender.is_empty() { "MAILER-DAEMON" } else { &order.sender };
    // Readers take the sender up to the first space.
    let sender: String = sender.chars().map(|letter| if letter == ' ' { '_' } else { letter }).collect();
    format!("From {sender} ")
}

/// The line before a message in a mailbox file.
pub fn from_line(order: &DeliveryRequest) -> String {
    format!("{}{}\n", from_line_begin(order), order.date)
}

/// The fields that stand before all others.
pub fn first_fields(order: &DeliveryRequest) -> String {
    format!("Return-Path: <{}>\nDelivered-To: {}\n", order.sender, order.recipient)
}

/// Returns the verdict for a message that cannot be read.
pub fn unreadable_verdict(why: String) -> Verdict {
    Verdict::deferred((3, 0), format!("the message cannot be read: {why}"))
}

/// Behind the empty line that ends a header, looked for from an octet on.
fn end_of_header(read: &[u8], from: usize) -> Option<usize> {
    if read.starts_with(b"\r\n") {
        return Some(0);
    }
    let tail = read.get(from..)?;
    tail.windows(4).position(|four| four == b"\r\n\r\n").map(|at| from + at + 2)
}

/// The fields of a header, each with its line ends and its folded lines.
fn fields(header: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = header;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = 0;
        loop {
            let line = rest.get(end..).unwrap_or_default();
            end += line.iter().position(|byte| *byte == b'\n').map_or(line.len(), |at| at + 1);
            if !matches!(rest.get(end), Some(b' ' | b'\t')) {
                break;
            }
        }
        let (field, after) = rest.split_at(end);
        rest = after;
        Some(field)
    })
}

/// The value of a field of this name.
fn value_of<'f>(field: &'f [u8], name: &str) -> Option<&'f [u8]> {
    let (before, after) = field.split_at_checked(name.len())?;
    let after = after.trim_ascii_start();
    before.eq_ignore_ascii_case(name.as_bytes()).then(|| after.strip_prefix(b":")).flatten()
}

/// Makes lines of CRLF such of LF, and quotes some of them.
struct LineWriter<'o> {
    out: &'o mut dyn Write,
    quotes: bool,
    /// The next octet begins a line.
    is_start: bool,
    /// The octets behind the last line end.
    carry: Vec<u8>,
}

/// A line of more octets is written in parts.
const CARRY_MAX: usize = 64 << 10;

impl LineWriter<'_> {
    fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        let mut rest = piece;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(at + 1);
            rest = after;
            if self.carry.is_empty() {
                self.line(line)?;
            } else {
                let mut whole = std::mem::take(&mut self.carry);
                whole.extend_from_slice(line);
                self.line(&whole)?;
                whole.clear();
                self.carry = whole;
            }
        }
        self.carry.extend_from_slice(rest);
        if self.carry.len() > CARRY_MAX {
            let part = std::mem::take(&mut self.carry);
            // Its CR may belong to a line end.
            let (now, later) = part.split_at(part.len() - usize::from(part.ends_with(b"\r")));
            self.begin(now)?;
            self.out.write_all(now)?;
            self.is_start = false;
            self.carry = later.to_vec();
        }
        Ok(())
    }

    /// A line with its end.
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        self.begin(line)?;
        match line.strip_suffix(b"\r\n") {
            Some(text) => {
                self.out.write_all(text)?;
                self.out.write_all(b"\n")?;
            }
            None => self.out.write_all(line)?,
        }
        self.is_start = true;
        Ok(())
    }

    fn begin(&mut self, line: &[u8]) -> io::Result<()> {
        if self.quotes && self.is_start && is_from(line) { self.out.write_all(b">") } else { Ok(()) }
    }

    /// Writes the rest. Whether it is a line without its end.
    fn end(&mut self) -> io::Result<bool> {
        let rest = std::mem::take(&mut self.carry);
        if !rest.is_empty() {
            self.begin(&rest)?;
            self.out.write_all(&rest)?;
            self.is_start = false;
        }
        Ok(!self.is_start)
    }
}

/// `From `, `>From `, `>>From ` and so on.
fn is_from(line: &[u8]) -> bool {
    let quotes = line.iter().take_while(|byte| **byte == b'>').count();
    line.get(quotes..).is_some_and(|rest| rest.starts_with(b"From "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Content in pieces, of which one may be a fault.
    pub(crate) struct Pieces(pub(crate) Vec<Result<&'static [u8], &'static str>>);

    impl Content for Pieces {
        fn next(&mut self) -> Result<Option<Bytes>, String> {
            if self.0.is_empty() {
                return Ok(None);
            }
            self.0.remove(0).map(|piece| Some(Bytes::from_static(piece))).map_err(str::to_owned)
        }
    }

    /// Content from a text, in pieces of some octets.
    pub(crate) struct Text(Bytes, usize);

    impl Text {
        pub(crate) fn new(text: impl AsRef<[u8]>, piece: usize) -> Self {
            Self(Bytes::copy_from_slice(text.as_ref()), piece)
        }
    }

    impl Content for Text {
        fn next(&mut self) -> Result<Option<Bytes>, String> {
            let next = self.0.split_to(self.1.min(self.0.len()));
            Ok((!next.is_empty()).then_some(next))
        }
    }

    pub(crate) fn order() -> DeliveryRequest {
        DeliveryRequest::trial()
    }

    const MBOX: Form = Form { from_line: true, quotes: true };

    fn written(text: &str, piece: usize, form: Form) -> Result<String, Verdict> {
        let order = order();
        let mut content = Text::new(text, piece);
        let mut out = Vec::new();
        MailboxMessage::open(&order, &mut content, 1 << 20)?.write_to(&mut out, form).unwrap();
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_header_is_ours_and_lines_are_of_this_machine() {
        let text = "return-path:\r\n <old@b.example>\r\nSubject: x\r\nReturn-Pathology: y\r\n\r\nReturn-Path: z\r\nFrom me\r\n>From you\r\nFromage";
        let head = "Return-Path: <ann@a.example>\nDelivered-To: joe@x.example\nSubject: x\nReturn-Pathology: y\n\nReturn-Path: z\n";
        for piece in 1..text.len() {
            assert_eq!(
                written(text, piece, MBOX).unwrap(),
                format!("From ann@a.example Fri Jan 15 08:00:00 2027\n{head}>From me\n>>From you\nFromage\n\n")
            );
            let plain = Form { from_line: false, quotes: false };
            assert_eq!(written(text, piece, plain).unwrap(), format!("{head}From me\n>From you\nFromage\n"));
        }
    }

    #[test]
    fn a_message_that_was_here_has_gone_in_a_circle() {
        for field in ["Delivered-To: joe@x.example", "DELIVERED-TO:<JOE@X.example>", "Delivered-To :\r\n joe@x.example"]
        {
            let text = |times| format!("A: b\r\n{}C: d\r\n\r\nbody\r\n", format!("{field}\r\n").repeat(times));
            for piece in [1, 7, 1_000] {
                let found = written(&text(REPEATS_MAX), piece, MBOX).unwrap_err();
                assert_eq!(found, Verdict::failed((4, 6), "mail forwarding loop for joe@x.example"));
            }
            // Any client can write a few, and a report on them would go to the address that it forged.
            assert!(written(&text(REPEATS_MAX - 1), 7, MBOX).is_ok());
        }
        // The field names another recipient, has another name, or stands in the body.
        for text in [
            "Delivered-To: joe+x@x.example\r\n",
            "X-Delivered-To: joe@x.example\r\n",
            "\r\nDelivered-To: joe@x.example\r\n",
        ] {
            assert!(written(&text.repeat(REPEATS_MAX), 1_000, MBOX).is_ok(), "{text}");
        }
    }

    #[test]
    fn odd_content_is_kept() {
        for text in ["", "x", "\r", "a\rb\r\n", "\r\n\r\n", "no header\r\n", "bare\nlf\r\n"] {
            for piece in 1..=text.len().max(1) {
                let plain = written(text, piece, Form { from_line: false, quotes: false }).unwrap();
                let (_, body) = plain.split_once("joe@x.example\n").unwrap();
                let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                assert_eq!(body, text.replace("\r\n", "\n") + end, "{text:?} by {piece}");
            }
        }
        // A line longer than is carried, cut between CR and LF.
        let long = format!("{}\r\nFrom x\r\n", "x".repeat(CARRY_MAX));
        let plain = written(&long, CARRY_MAX + 1, MBOX).unwrap();
        assert!(plain.ends_with("x\n>From x\n\n") && !plain.contains('\r'));
    }

    /// Splits a file of messages, as any reader does, and takes back the quotes.
    pub(crate) fn split(mbox: &str) -> Vec<String> {
        let mut messages: Vec<String> = Vec::new();
        let mut was_empty = true;
        for line in mbox.split_inclusive('\n') {
            if was_empty && line.starts_with("From ") {
                messages.push(String::new());
            } else if let Some(last) = messages.last_mut() {
                last.push_str(if is_from(line.as_bytes()) { line.strip_prefix('>').unwrap() } else { line });
            }
            was_empty = line == "\n";
        }
        messages
    }

    proptest! {
        #[test]
        fn messages_of_a_file_can_be_told_apart(
            texts in prop::collection::vec("(>{0,2}From |[a-z>]{0,4}|\r\n){0,12}", 0..5), piece in 1..9_usize
        ) {
            let mut mbox = String::new();
            for text in &texts {
                mbox.push_str(&written(&format!("A: b\r\n\r\n{text}"), piece, MBOX).unwrap());
            }
            let found = split(&mbox);
            prop_assert_eq!(found.len(), texts.len());
            for (text, one) in texts.iter().zip(found) {
                let (_, body) = one.split_once("\n\n").unwrap();
                let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                prop_assert_eq!(body, format!("{}{end}\n", text.replace("\r\n", "\n")));
            }
        }
    }
}
