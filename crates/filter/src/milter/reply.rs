//! Reply texts that a filter gives in place of a plain refusal.

use mail::{EnhancedCode, Reply, ReplyCode};

use super::MilterError;

/// Lines of one reply.
const LINES_MAX: usize = 32;
/// Octets of the text of a line: RFC 5321 §4.5.3.1.5 has 512 with code and line end.
const LINE_BYTES_MAX: usize = 500;

/// A reply to the SMTP client with the filter's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyText {
    /// Three digits, 400 to 559.
    pub code: u16,
    /// Enhanced status code of the same class, if the filter gave one (RFC 3463).
    pub enhanced: Option<String>,
    /// Text by lines, without codes; printable ASCII.
    pub lines: Vec<String>,
}

impl ReplyText {
    /// Makes a reply of the server. A filter that gave no enhanced code gets `X.7.1`.
    ///
    /// # Panics
    /// Never: the code was checked when the text was read.
    #[must_use]
    pub fn to_reply(&self) -> Reply {
        let code = ReplyCode::new(self.code).expect("400 to 559");
        let outcome = code.outcome().expect("4yz and 5yz have one");
        let enhanced = self.enhanced.as_deref().and_then(|code| code.parse().ok());
        let enhanced = enhanced.unwrap_or_else(|| EnhancedCode::of(outcome, 7, 1)).with_outcome(outcome);
        Reply::new(code, Some(enhanced), &self.lines.join("\n"))
    }

    /// Reads the data of a packet `y`: `550 5.7.1 text` or lines `550-5.7.1 text` that end with CR LF, then NUL.
    ///
    /// `%%` stands for `%`, as the library of filters writes it. Octets that are no printable ASCII become `?`, lines
    /// are cut at 500 octets.
    ///
    /// # Errors
    /// The NUL is missing or not the last octet; a code is no 4yz or 5yz; lines have different codes; an enhanced code
    /// is of another class; there are more than 32 lines.
    pub(super) fn read(data: &[u8]) -> Result<Self, MilterError> {
        let bad = |what| MilterError::Malformed { command: b'y', what };
        let Some((0, text)) = data.split_last() else { return Err(bad("a reply without its NUL")) };
        if text.contains(&0) {
            return Err(bad("a NUL within its reply"));
        }
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let rows: Vec<&[u8]> = text.split(|&octet| octet == b'\n').collect();
        if rows.len() > LINES_MAX {
            return Err(bad("a reply of more than 32 lines"));
        }
        let mut reply = Self { code: 0, enhanced: None, lines: Vec::with_capacity(rows.len()) };
        for (number, row) in rows.iter().enumerate() {
            let row = row.strip_suffix(b"\r").unwrap_or(row);
            let (code, rest) = row.split_first_chunk::<3>().ok_or_else(|| bad("a reply without a code"))?;
            if !matches!(code, [b'4' | b'5', b'0'..=b'5', b'0'..=b'9']) {
                return Err(bad("a reply code that is no 4yz or 5yz"));
            }
            let code = code.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
            if number > 0 && code != reply.code {
                return Err(bad("different codes in one reply"));
            }
            reply.code = code;
            let last = number + 1 == rows.len();
            let rest = match rest {
                [] => rest,
                [b' ', rest @ ..] => rest,
                [b'-', rest @ ..] if !last => rest,
                _ => return Err(bad("a reply code that is followed by neither a blank nor another line")),
            };
            let (enhanced, text) = split_enhanced(rest);
            if let Some(enhanced) = enhanced {
                if enhanced.as_bytes().first() != row.first() {
                    return Err(bad("an enhanced code of another class than its reply"));
                }
                reply.enhanced.get_or_insert(enhanced);
            }
            reply.lines.push(printable(text));
        }
        Ok(reply)
    }
}

/// Splits `5.7.1 text`; subject and detail have one to three digits.
fn split_enhanced(text: &[u8]) -> (Option<String>, &[u8]) {
    let mut words = text.splitn(2, |&octet| octet == b' ');
    let (word, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let parts: Vec<&[u8]> = word.split(|&octet| octet == b'.').collect();
    let number = |part: &&[u8]| (1..=3).contains(&part.len()) && part.iter().all(u8::is_ascii_digit);
    if matches!(parts.as_slice(), [[_], _, _]) && parts.iter().all(number) {
        (Some(String::from_utf8_lossy(word).into_owned()), rest)
    } else {
        (None, text)
    }
}

/// Cleans and bounds the text of a line.
fn printable(text: &[u8]) -> String {
    let mut line = String::with_capacity(text.len());
    let mut octets = text.iter().copied().peekable();
    while let Some(octet) = octets.next() {
        if octet == b'%' {
            octets.next_if_eq(&b'%');
        }
        line.push(if octet == b' ' || octet.is_ascii_graphic() { char::from(octet) } else { '?' });
        if line.len() == LINE_BYTES_MAX {
            break;
        }
    }
    line
}
