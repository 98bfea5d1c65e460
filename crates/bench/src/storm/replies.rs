//! Replies of a server, read from the octets of the socket (RFC 5321 §4.2).
//!
//! Lenient where servers differ and nothing is at stake: the text may hold anything, a reply may end in a bare LF. A
//! line without a code is an error, and so is one that never ends.

/// The longest reply, all its lines together. KumoMTA (2026-08) says something of every recipient in one.
const REPLY_MAX: usize = 4 << 20;

/// A reply: its code and the text of its last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) code: u16,
    /// Text of all lines, separated by LF, without codes.
    pub(super) text: String,
}

impl Reply {
    pub(super) fn is_positive(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Code and first line, as errors are grouped.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.code, self.text.lines().next().unwrap_or(""))
    }

    /// The server closes the connection (RFC 5321 §3.8).
    pub(super) fn is_goodbye(&self) -> bool {
        self.code == 421
    }
}

/// Octets received and not yet read as replies. Kept by a session for all its connections.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    octets: Vec<u8>,
    at: usize,
}

impl Buffer {
    /// Forgets everything, as after STARTTLS and before a new connection.
    pub(super) fn clear(&mut self) {
        self.octets.clear();
        self.at = 0;
    }

    pub(super) fn add(&mut self, octets: &[u8]) {
        if self.at == self.octets.len() {
            self.clear();
        }
        self.octets.extend_from_slice(octets);
    }

    /// Takes the next complete reply; `Ok(None)` needs more octets.
    ///
    /// # Errors
    /// The octets are no reply.
    pub(super) fn take(&mut self) -> Result<Option<Reply>, String> {
        let waiting = self.octets.get(self.at..).unwrap_or_default();
        let mut length = 0;
        let mut text = String::new();
        for line in waiting.split_inclusive(|byte| *byte == b'\n') {
            let Some(content) = line.strip_suffix(b"\n") else { break };
            let content = content.strip_suffix(b"\r").unwrap_or(content);
            length += line.len();
            let (code, more, words) = parts(content)?;
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&String::from_utf8_lossy(words));
            if !more {
                self.at += length;
                return Ok(Some(Reply { code, text }));
            }
        }
        if waiting.len() > REPLY_MAX {
            return Err(format!("a reply of more than {REPLY_MAX} octets"));
        }
        Ok(None)
    }
}

/// Code, whether more lines follow, text.
fn parts(line: &[u8]) -> Result<(u16, bool, &[u8]), String> {
    let no_reply = || format!("not a reply: {:?}", String::from_utf8_lossy(line.get(..60).unwrap_or(line)));
    let code = line.get(..3).filter(|code| code.iter().all(u8::is_ascii_digit)).ok_or_else(no_reply)?;
    let code = code.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    match line.get(3) {
        None => Ok((code, false, b"")),
        Some(b' ') => Ok((code, false, line.get(4..).unwrap_or_default())),
        Some(b'-') => Ok((code, true, line.get(4..).unwrap_or_default())),
        Some(_) => Err(no_reply()),
    }
}

/// The queue id in a reply to a message, where a server names one in a way that is known.
///
/// Known: `250 2.0.0 ID Message accepted` (sendmail, mailrace), `250 2.0.0 Ok: queued as ID` (Postfix), `250 OK id=ID`
/// (Exim), `250 2.0.0 ID Message accepted for delivery` (OpenSMTPD). Anything else is `-`.
pub(super) fn queue_id(text: &str) -> &str {
    let last_line = text.lines().last().unwrap_or("");
    let mut words = last_line.split_ascii_whitespace();
    if let Some((_, id)) = last_line.split_once("queued as ").or_else(|| last_line.split_once("id=")) {
        return id.split_ascii_whitespace().next().unwrap_or("-");
    }
    let first = words.next().unwrap_or("");
    let id = if is_enhanced(first) { words.next().unwrap_or("") } else { first };
    let looks_like_one = id.len() >= 6 && id.bytes().any(|byte| byte.is_ascii_digit());
    if looks_like_one { id } else { "-" }
}

/// Whether a word is an enhanced status code (RFC 3463 §2).
fn is_enhanced(word: &str) -> bool {
    word.split('.').count() == 3 && word.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(input: &str, wanted: &[(u16, &str)]) {
        // In one piece and octet by octet.
        for step in [input.len().max(1), 1] {
            let mut buffer = Buffer::default();
            let mut replies = Vec::new();
            for piece in input.as_bytes().chunks(step) {
                buffer.add(piece);
                while let Some(reply) = buffer.take().unwrap() {
                    replies.push((reply.code, reply.text));
                }
            }
            let seen: Vec<(u16, &str)> = replies.iter().map(|(code, text)| (*code, text.as_str())).collect();
            assert_eq!(seen, wanted, "{input:?}");
        }
    }

    #[test]
    fn replies_are_read() {
        // RFC 5321 §4.2.1 (test)
        reads("250 OK\r\n354 go\r\n", &[(250, "OK"), (354, "go")]);
        reads("250-a\r\n250-SIZE 1\r\n250 b\r\n221 bye\r\n", &[(250, "a\nSIZE 1\nb"), (221, "bye")]);
        reads("250\r\n250 \r\n250 x\n", &[(250, ""), (250, ""), (250, "x")]);
        reads("250-more\r\n250 unfinished", &[]);
    }

    #[test]
    fn what_is_no_reply() {
        for input in ["hello\r\n", "2x0 a\r\n", "250\ta\r\n", "\r\n", "25"] {
            let mut buffer = Buffer::default();
            buffer.add(input.as_bytes());
            assert_eq!(buffer.take().is_err(), input.ends_with('\n'), "{input:?}");
        }
        let mut buffer = Buffer::default();
        buffer.add(&vec![b'2'; REPLY_MAX + 1]);
        assert!(buffer.take().is_err());
    }

    #[test]
    fn queue_ids_of_known_servers() {
        for (text, id) in [
            ("2.0.0 0A1B2C3D4E Message accepted for delivery", "0A1B2C3D4E"),
            ("2.0.0 Ok: queued as 4F1B2A3C", "4F1B2A3C"),
            ("OK id=1abcde-000001-2X", "1abcde-000001-2X"),
            ("5KHD0m1c001234 Message accepted for delivery", "5KHD0m1c001234"),
            ("2.0.0 Ok", "-"),
            ("", "-"),
        ] {
            assert_eq!(queue_id(text), id, "{text}");
        }
    }
}
