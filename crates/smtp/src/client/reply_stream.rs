//! The replies of a server, for a short conversation that is no [`ClientSession`](super::ClientSession): a filter that
//! takes mail by SMTP, the test of a delivery.

use mail::Reply;
use std::fmt;

use super::replies::{Form, ReplyReader, Room};
use super::settings::ClientLimits;

/// Octets of a greeting that an error shows.
const SHOWN_BYTES: usize = 32;

/// The octets are no reply of SMTP, or more than a reply may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyFault {
    why: &'static str,
    beginning: String,
}

impl fmt::Display for ReplyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is no SMTP server: it begins with \"{}\" ({})", self.beginning, self.why)
    }
}

impl std::error::Error for ReplyFault {}

/// Replies of a server, in whatever pieces they come.
#[derive(Debug)]
pub struct ReplyStream {
    reader: ReplyReader,
    form: Form,
    limits: ClientLimits,
    input: Vec<u8>,
    /// The first octets since the last reply.
    beginning: Vec<u8>,
}

impl ReplyStream {
    /// Makes a stream that reads replies as deliveries do: it skips lines without a code, and cuts long ones.
    #[must_use]
    pub fn lenient(limits: ClientLimits) -> Self {
        Self::new(Form::Lenient, limits)
    }

    /// Makes a stream for a server that speaks by the book: the first octet that breaks the form of a reply is a fault.
    #[must_use]
    pub fn strict(limits: ClientLimits) -> Self {
        Self::new(Form::Strict, limits)
    }

    fn new(form: Form, limits: ClientLimits) -> Self {
        Self { reader: ReplyReader::default(), form, limits, input: Vec::new(), beginning: Vec::new() }
    }

    /// Takes octets that have come.
    pub fn push(&mut self, octets: &[u8]) {
        self.input.extend_from_slice(octets);
    }

    /// Returns the next whole reply, if there is one.
    ///
    /// # Errors
    /// A reply is longer than `reply_octets`, or a strict stream has met what is no reply. Nothing is read after it.
    // RFC 5321 §4.2.1
    pub fn next_reply(&mut self) -> Result<Option<Reply>, ReplyFault> {
        let room = SHOWN_BYTES.saturating_sub(self.beginning.len());
        self.beginning.extend(self.input.iter().take(room));
        // An opening of another protocol may have no line end.
        if self.form == Form::Strict && self.beginning.iter().take(3).any(|octet| !octet.is_ascii_digit()) {
            return Err(fault(&self.beginning, "there is no reply code"));
        }
        let (used, raw) =
            self.reader.read(&self.input, self.form, &self.limits).map_err(|why| fault(&self.beginning, why))?;
        let reply = raw.map(|raw| raw.reply_in(Room::all(&self.limits)));
        self.input.drain(..used);
        if reply.is_some() {
            self.beginning.clear();
        }
        Ok(reply)
    }

    /// Returns why no reply is there, if what came since the last one is no reply.
    #[must_use]
    pub fn noise(&self) -> Option<ReplyFault> {
        self.reader.has_only_noise().then(|| fault(&self.beginning, "there is no reply code"))
    }
}

fn fault(beginning: &[u8], why: &'static str) -> ReplyFault {
    ReplyFault { why, beginning: beginning.escape_ascii().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_in_any_pieces() {
        let text = b"220 mx ESMTP\r\n250-mx\r\n250-8BITMIME\r\n250 XFORWARD NAME addr\r\n250 2.0.0 Ok\r\n";
        for make in [ReplyStream::lenient, ReplyStream::strict] {
            for piece in 1..text.len() {
                let (mut stream, mut found) = (make(ClientLimits::default()), Vec::new());
                for octets in text.chunks(piece) {
                    stream.push(octets);
                    while let Some(reply) = stream.next_reply().expect("a reply") {
                        found.push(reply);
                    }
                }
                assert_eq!(found.len(), 3, "{piece}");
                assert_eq!(found[1].lines().collect::<Vec<_>>(), ["mx", "8BITMIME", "XFORWARD NAME addr"]);
            }
        }
    }

    #[test]
    fn all_lines_of_a_long_answer_are_there() {
        let lines: String = (0..100).map(|number| format!("250-EXTENSION{number} {}\r\n", "x".repeat(100))).collect();
        let mut stream = ReplyStream::strict(ClientLimits::default());
        stream.push(format!("{lines}250 LAST\r\n").as_bytes());
        let reply = stream.next_reply().expect("a reply").expect("it is whole");
        assert_eq!((reply.lines().count(), reply.lines().last()), (101, Some("LAST")));
    }

    #[test]
    fn another_protocol_is_named_by_a_strict_stream() {
        for text in ["UNKNOWN COMMAND\n", "\0\0\0\rO", "22x hello\r\n", "220-a\r\n250 b\r\n", "+"] {
            let mut stream = ReplyStream::strict(ClientLimits::default());
            stream.push(text.as_bytes());
            let error = stream.next_reply().expect_err("no reply").to_string();
            assert!(error.starts_with("this is no SMTP server: it begins with \""), "{error}");
        }
        let mut stream = ReplyStream::lenient(ClientLimits::default());
        stream.push(b"+OK POP3 ready\r\n");
        assert_eq!(stream.next_reply(), Ok(None));
        let noise = stream.noise().expect("no reply came").to_string();
        assert!(noise.contains("it begins with \"+OK POP3 ready\\r\\n\""), "{noise}");
        stream.push(b"220 hello\r\n");
        assert_eq!(stream.next_reply().expect("a reply").map(|reply| reply.code().get()), Some(220));
    }

    #[test]
    fn a_reply_without_an_end_is_a_fault() {
        for make in [ReplyStream::lenient, ReplyStream::strict] {
            let limits = ClientLimits { reply_octets: 16 << 10, ..ClientLimits::default() };
            let mut stream = make(limits.clone());
            stream.push(&vec![b'2'; limits.reply_octets + 1]);
            let error = stream.next_reply().expect_err("a line without end").to_string();
            assert!(error.ends_with("(a reply is too long)"), "{error}");
        }
    }
}
