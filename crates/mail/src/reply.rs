//! The answer of a server: a three-digit code, perhaps an enhanced status code, and lines of text.
//!
//! One value serves both directions: our server builds replies and writes them, our client reads those of others and
//! the queue keeps them as the reason of a deferral. Invariants of a [`Reply`]: at least one line of text (which may be
//! empty); no line holds a control character; no line is longer on the wire than RFC 5321 §4.5.3.1.5 allows; the
//! enhanced code is of the same class as the code. Reading a reply piece by piece from a connection is the SMTP
//! client's business; [`Reply::parse`] takes a complete one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::decimal::push_decimal;
use crate::enhanced_code::{EnhancedCode, Outcome};

/// RFC 5321 §4.5.3.1.5: a reply line, with code and line end.
const LINE_OCTETS_MAX: usize = 512;
/// Code, separator and line end.
const LINE_FRAME_OCTETS: usize = "250-\r\n".len();

/// A reply code, 200 to 599.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyCode(u16);

/// The class of a reply code for the client: its first digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyClass {
    /// 2: done.
    Success,
    /// 3: go on (354 after DATA, 334 in AUTH).
    Intermediate,
    /// 4: not now; try again.
    Transient,
    /// 5: not like this; do not try again.
    Permanent,
}

impl ReplyCode {
    /// Makes a code; `None` outside 200..=599. The second digit may be any: hosts send 571 and the like, although
    /// RFC 5321 §4.2.1 gives a meaning to 0 to 5 only.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 200 && code <= 599 { Some(Self(code)) } else { None }
    }

    /// Makes a code that is written in our source: `ReplyCode::of(250)`.
    ///
    /// # Panics
    /// Outside 200..=599; at compile time if the code is a constant.
    #[must_use]
    pub const fn of(code: u16) -> Self {
        Self::new(code).expect("reply codes are 200 to 599")
    }

    /// The code as a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the class.
    #[must_use]
    pub const fn class(self) -> ReplyClass {
        // RFC 5321 §4.2.1: an unexpected code is treated by its first digit
        match self.0 / 100 {
            2 => ReplyClass::Success,
            3 => ReplyClass::Intermediate,
            4 => ReplyClass::Transient,
            _ => ReplyClass::Permanent,
        }
    }

    /// The outcome it stands for; none for intermediate replies.
    #[must_use]
    pub const fn outcome(self) -> Option<Outcome> {
        match self.class() {
            ReplyClass::Success => Some(Outcome::Success),
            ReplyClass::Intermediate => None,
            ReplyClass::Transient => Some(Outcome::Transient),
            ReplyClass::Permanent => Some(Outcome::Permanent),
        }
    }

    fn parse(digits: &[u8]) -> Option<Self> {
        let is_code = digits.len() == 3 && digits.iter().all(u8::is_ascii_digit);
        str::from_utf8(digits).ok().filter(|_| is_code)?.parse().ok().and_then(Self::new)
    }
}

impl FromStr for ReplyCode {
    type Err = ReplyError;

    fn from_str(text: &str) -> Result<Self, ReplyError> {
        Self::parse(text.as_bytes()).ok_or(ReplyError::Code { line: 1 })
    }
}

impl fmt::Display for ReplyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ReplyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplyCode({})", self.0)
    }
}

/// A complete reply. A clone shares its text: one reply may be the answer to very many recipients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    code: ReplyCode,
    enhanced: Option<EnhancedCode>,
    /// Never empty.
    lines: Arc<[Box<str>]>,
    /// The last line says how much is missing.
    is_cut: bool,
}

impl Reply {
    /// Makes a reply of our own. `text` may have several lines, separated by `\n`; lines too long for the wire are
    /// broken at a space if there is one. A text that begins with an enhanced code of the right class gives that code
    /// when `enhanced` is `None`, since on the wire there is no difference.
    ///
    /// # Panics
    /// When `enhanced` is not of the class of `code`: replies are written in our source, not by peers.
    #[must_use]
    pub fn new(code: ReplyCode, enhanced: Option<EnhancedCode>, text: &str) -> Self {
        assert!(
            enhanced.is_none_or(|enhanced| code.outcome() == Some(enhanced.outcome())),
            "{code} with {enhanced:?}: the classes differ",
        );
        Self::from_lines(code, enhanced, text.split('\n').map(printable).collect())
    }

    /// Reads a complete reply of another server: one line, or several of which all but the last have `-` after the
    /// code.
    ///
    /// Bare LF is read as a line end, missing text is read as empty, bytes that are not UTF-8 become U+FFFD and control
    /// characters `?`. An enhanced code is taken off all lines if the first has it and its class fits.
    ///
    /// # Errors
    /// When `bytes` are longer than `octets_max`, not a whole reply, more than a reply, or a line has no code or
    /// another.
    pub fn parse(bytes: &[u8], octets_max: usize) -> Result<Self, ReplyError> {
        if bytes.len() > octets_max {
            return Err(ReplyError::TooLong { octets_max });
        }
        Self::parse_beginning(bytes, usize::MAX, usize::MAX)
    }

    /// Reads a complete reply as [`Reply::parse`] does, however long it is, and keeps its beginning: at most
    /// `lines_max` of its lines, and of their text `octets_max` octets. The last of these lines says how much is
    /// missing: `[... 380000 octets more]`.
    ///
    /// # Errors
    /// When `bytes` are not a whole reply, more than a reply, or a line has no code or another.
    pub fn parse_beginning(bytes: &[u8], lines_max: usize, octets_max: usize) -> Result<Self, ReplyError> {
        let mut code = None;
        let mut number = 0;
        let mut beginning = Beginning { texts: Vec::new(), lines_max, room: octets_max, missing: 0 };
        let mut rest = bytes;
        loop {
            number += 1;
            let end = memchr::memchr(b'\n', rest).ok_or(ReplyError::Incomplete)?;
            let (line, after) = rest.split_at_checked(end + 1).ok_or(ReplyError::Incomplete)?;
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            rest = after;

            let (digits, text) = line.split_at_checked(3).ok_or(ReplyError::Code { line: number })?;
            let this = ReplyCode::parse(digits).ok_or(ReplyError::Code { line: number })?;
            // RFC 5321 §4.2.1: the code of all lines is the same
            if *code.get_or_insert(this) != this {
                return Err(ReplyError::Code { line: number });
            }
            // RFC 5321 §4.2: a client accepts a code without text, and a code alone
            let (is_last, text) = match text.split_first() {
                None => (true, text),
                Some((b' ', text)) => (true, text),
                Some((b'-', text)) => (false, text),
                Some(_) => return Err(ReplyError::Code { line: number }),
            };
            beginning.add(text);
            if is_last {
                return if rest.is_empty() {
                    let is_cut = beginning.missing > 0;
                    Ok(Self { is_cut, ..Self::from_lines(this, None, beginning.into_texts()) })
                } else {
                    Err(ReplyError::Trailing)
                };
            }
        }
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> ReplyCode {
        self.code
    }

    /// The enhanced code, if there is one.
    #[must_use]
    pub const fn enhanced(&self) -> Option<EnhancedCode> {
        self.enhanced
    }

    /// The enhanced code, or `X.0.0` by the class of the code, as bounces need one (RFC 3464 §2.3.4). `None` for
    /// intermediate replies.
    #[must_use]
    pub fn status(&self) -> Option<EnhancedCode> {
        self.enhanced.or_else(|| self.code.outcome().map(|outcome| EnhancedCode::of(outcome, 0, 0)))
    }

    /// The lines of text without codes; at least one.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &str> {
        self.lines.iter().map(AsRef::as_ref)
    }

    /// Whether it was longer, see [`Reply::parse_beginning`].
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Octets of the text of all lines.
    #[must_use]
    pub fn text_octets(&self) -> usize {
        self.lines().map(str::len).sum()
    }

    /// Appends the reply as it goes over the wire.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let mut enhanced = String::new();
        if let Some(code) = self.enhanced {
            code.push_to(&mut enhanced);
            enhanced.push(' ');
        }
        let mut code = String::new();
        push_decimal(&mut code, self.code.0);
        let mut lines = self.lines().peekable();
        while let Some(line) = lines.next() {
            let separator = if lines.peek().is_some() { "-" } else { " " };
            // RFC 2034 §4: every line of a reply has the enhanced code
            for part in [&code, separator, &enhanced, line, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
    }

    fn from_lines(code: ReplyCode, mut enhanced: Option<EnhancedCode>, mut lines: Vec<String>) -> Self {
        let fits = |found: EnhancedCode| Some(found.outcome()) == code.outcome();
        if enhanced.is_none() {
            enhanced =
                lines.first().and_then(|line| EnhancedCode::split(line)).map(|(found, _)| found).filter(|c| fits(*c));
            for line in &mut lines {
                if let Some((found, rest)) = EnhancedCode::split(line)
                    && Some(found) == enhanced
                {
                    *line = rest.to_owned();
                }
            }
        }
        let enhanced_octets = enhanced.map_or(0, EnhancedCode::octets_with_space);
        let text_max = LINE_OCTETS_MAX - LINE_FRAME_OCTETS - enhanced_octets;
        let lines = if lines.iter().all(|line| line.len() <= text_max) {
            lines.into_iter().map(String::into_boxed_str).collect()
        } else {
            lines.iter().flat_map(|line| broken(line, text_max)).map(Into::into).collect()
        };
        Self { code, enhanced, lines, is_cut: false }
    }
}

/// Writes code and text in one line, as a log shows it: `550 5.1.1 No such user`.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)?;
        if let Some(enhanced) = self.enhanced {
            write!(f, " {enhanced}")?;
        }
        self.lines().filter(|line| !line.is_empty()).try_for_each(|line| write!(f, " {line}"))
    }
}

/// The lines of a reply that are kept.
struct Beginning {
    texts: Vec<String>,
    lines_max: usize,
    /// The octets that may still be kept.
    room: usize,
    /// Octets that are not kept.
    missing: usize,
}

impl Beginning {
    fn add(&mut self, line: &[u8]) {
        // Longer than any character.
        const NEAR: usize = 4;
        if self.missing > 0 || self.texts.len() >= self.lines_max {
            self.missing += line.len() + LINE_FRAME_OCTETS;
            return;
        }
        let near = line.get(..self.room.saturating_add(NEAR)).unwrap_or(line);
        let mut text = printable(&String::from_utf8_lossy(near));
        let is_cut = near.len() < line.len() || text.len() > self.room;
        if is_cut {
            text.truncate(text.floor_char_boundary(self.room));
            self.missing = line.len().saturating_sub(text.len()).max(1);
        }
        self.room = self.room.saturating_sub(text.len());
        self.texts.push(text);
    }

    fn into_texts(mut self) -> Vec<String> {
        if self.missing > 0 {
            if self.texts.len() >= self.lines_max {
                self.missing += self.texts.pop().map_or(0, |last| last.len());
            }
            self.texts.push(format!("[... {} octets more]", self.missing));
        }
        self.texts
    }
}

fn printable(text: &str) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Breaks a line into pieces of at most `max` octets, after a space if one is near enough.
fn broken(line: &str, max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while rest.len() > max {
        let hard = rest.floor_char_boundary(max);
        let space = rest.get(..hard).and_then(|front| front.rfind(' '));
        let (piece, after) = rest.split_at(space.map_or(hard, |space| space + 1));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// Why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// Longer than the caller's limit.
    TooLong {
        /// The limit, in octets.
        octets_max: usize,
    },
    /// The last line is missing or has no line end.
    Incomplete,
    /// A line, counted from 1, does not begin with a code, or with another code than the first.
    Code {
        /// Its number.
        line: usize,
    },
    /// Something follows the last line: an answer to a question not asked.
    Trailing,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { octets_max } => write!(f, "reply is longer than {octets_max} octets"),
            Self::Incomplete => f.write_str("reply breaks off"),
            Self::Code { line } => {
                write!(f, "line {line} of the reply has no code from 200 to 599, or not that of line 1")
            }
            Self::Trailing => f.write_str("something follows the reply"),
        }
    }
}

impl std::error::Error for ReplyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn code(code: u16) -> ReplyCode {
        ReplyCode::of(code)
    }

    fn wire(reply: &Reply) -> String {
        let mut out = Vec::new();
        reply.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn parse(bytes: &[u8]) -> Result<Reply, ReplyError> {
        Reply::parse(bytes, 4_096)
    }

    // RFC 5321 §4.2 (test), RFC 2034 §4 (test)
    #[test]
    fn replies_are_written() {
        let ok = Reply::new(code(250), "2.1.5".parse().ok(), "Recipient ok");
        assert_eq!(wire(&ok), "250 2.1.5 Recipient ok\r\n");
        let ehlo = Reply::new(code(250), None, "mx.example\nPIPELINING\nSIZE 1000");
        assert_eq!(wire(&ehlo), "250-mx.example\r\n250-PIPELINING\r\n250 SIZE 1000\r\n");
        let hostile = Reply::new(code(550), "5.1.1".parse().ok(), "no <a\r\n250 ok>");
        assert_eq!(wire(&hostile), "550-5.1.1 no <a?\r\n550 5.1.1 250 ok>\r\n");
        assert_eq!(hostile.to_string(), "550 5.1.1 no <a? 250 ok>");
        assert_eq!(wire(&Reply::new(code(354), None, "")), "354 \r\n");
    }

    // RFC 5321 §4.5.3.1.5 (test)
    #[test]
    fn long_lines_are_broken() {
        let text = "word ".repeat(300);
        let reply = Reply::new(code(550), "5.7.1".parse().ok(), &text);
        let wire = wire(&reply);
        assert!(wire.split_inclusive("\r\n").all(|line| line.len() <= 512));
        assert_eq!(reply.lines().collect::<String>(), text);
        let reply = Reply::new(code(550), None, &"ü".repeat(600));
        assert_eq!(reply.lines().map(|line| line.chars().count()).collect::<Vec<_>>(), [253, 253, 94]);
    }

    #[test]
    #[should_panic(expected = "the classes differ")]
    fn classes_must_agree() {
        drop(Reply::new(code(450), "5.1.1".parse().ok(), "never mind"));
    }

    // RFC 5321 §4.2 (test), RFC 5321 §4.2.1 (test)
    #[test]
    fn replies_of_others_are_read() {
        let reply = parse(b"550-5.1.1 No such user\r\n550-5.1.1 here\r\n550 5.1.1\r\n").unwrap();
        assert_eq!((reply.code(), reply.enhanced()), (code(550), "5.1.1".parse().ok()));
        assert_eq!(reply.lines().collect::<Vec<_>>(), ["No such user", "here", ""]);
        assert_eq!(reply.code().class(), ReplyClass::Permanent);

        let reply = parse(b"250\n").unwrap();
        assert_eq!(
            (reply.lines().collect::<Vec<_>>(), reply.status().unwrap().to_string()),
            (vec![""], "2.0.0".into())
        );
        // The class of the enhanced code does not fit: it is text.
        let reply = parse(b"450 5.7.1 greylisted \xe4\x07\r\n").unwrap();
        assert_eq!((reply.enhanced(), reply.lines().next()), (None, Some("5.7.1 greylisted \u{fffd}?")));
        assert_eq!(parse(b"571 no\r\n").unwrap().status().unwrap().to_string(), "5.0.0");
        assert_eq!(parse(b"354 go\r\n").unwrap().status(), None);
    }

    #[test]
    fn the_beginning_of_a_long_reply_is_kept() {
        let beginning = |bytes: &[u8], lines, octets| {
            let reply = Reply::parse_beginning(bytes, lines, octets).unwrap();
            let text = reply.lines().map(str::to_owned).collect::<Vec<_>>().join("|");
            assert_eq!(reply.is_cut(), text.ends_with(" octets more]"), "{text}");
            text
        };
        let three = b"550-5.1.1 one\r\n550-5.1.1 two\r\n550 5.1.1 three\r\n";
        assert_eq!(beginning(three, 3, 100), "one|two|three");
        assert_eq!(beginning(three, 2, 100), "one|[... 26 octets more]");
        assert_eq!(beginning(three, 9, 12), "one|5.1|[... 23 octets more]");
        assert_eq!(
            beginning("550 \u{20ac}\u{20ac}\u{20ac}\r\n".as_bytes(), 9, 7),
            "\u{20ac}\u{20ac}|[... 3 octets more]"
        );
        // A byte that is not UTF-8 takes three bytes in the text.
        let noise = [&b"451 "[..], &[0xff; 3_000], b"\r\n"].concat();
        let reply = Reply::parse_beginning(&noise, 20, 1_000).unwrap();
        assert!((1_000..1_100).contains(&reply.text_octets()) && reply.to_string().ends_with(" octets more]"));
        assert_eq!(Reply::parse_beginning(b"550-a\r\n551 b\r\n", 1, 1), Err(ReplyError::Code { line: 2 }));
        let long = b"451-xxxxxxxxxxxxxxxx\r\n".repeat(10_000);
        assert_eq!(beginning(&[&long[..], b"451 end\r\n"].concat(), 20, 4_096).split('|').count(), 20);
        // A host that says the same of itself is not cut.
        assert!(!Reply::parse_beginning(b"451 [... 9 octets more]\r\n", 20, 100).unwrap().is_cut());
        let clone = reply.clone();
        assert!(std::ptr::eq(clone.lines().next().unwrap(), reply.lines().next().unwrap()), "a clone shares its text");
    }

    #[test]
    fn what_is_no_reply() {
        for (bytes, error) in [
            (&b""[..], ReplyError::Incomplete),
            (b"250 ok", ReplyError::Incomplete),
            (b"250-ok\r\n", ReplyError::Incomplete),
            (b"\r\n", ReplyError::Code { line: 1 }),
            (b"25 ok\r\n", ReplyError::Code { line: 1 }),
            (b"150 ok\r\n", ReplyError::Code { line: 1 }),
            (b"600 ok\r\n", ReplyError::Code { line: 1 }),
            (b"+50 ok\r\n", ReplyError::Code { line: 1 }),
            (b"250:ok\r\n", ReplyError::Code { line: 1 }),
            (b"250-a\r\n251 b\r\n", ReplyError::Code { line: 2 }),
            (b"250 a\r\n250 b\r\n", ReplyError::Trailing),
        ] {
            assert_eq!(parse(bytes), Err(error), "{}", bytes.escape_ascii());
        }
        assert_eq!(Reply::parse(b"250 ok\r\n", 7), Err(ReplyError::TooLong { octets_max: 7 }));
    }

    proptest! {
        #[test]
        fn written_replies_are_read_back(
            number in 200..600_u16,
            subject in 0..9_u16,
            has_status in any::<bool>(),
            text in r"(\PC|[25]\.1\.[0-9] |\n| ){0,800}",
        ) {
            let code = code(number);
            let enhanced = code.outcome().filter(|_| has_status).and_then(|class| EnhancedCode::new(class, subject, 1));
            let reply = Reply::new(code, enhanced, &text);
            let wire = wire(&reply);
            prop_assert!(wire.split_inclusive("\r\n").all(|line| line.len() <= 512));
            prop_assert_eq!(Reply::parse(wire.as_bytes(), wire.len()), Ok(reply));
        }
    }
}
