//! Replies out of pieces of input.
//!
//! A reply that lies whole in the input is used where it is; only one that comes in pieces is copied. Every octet is
//! looked at once. What is no reply, or passes a limit, ends the conversation: behind it nobody knows which reply
//! belongs to which command.

use mail::{Reply, ReplyCode};
use memchr::memchr;

use super::settings::Limits;

/// How much of a reply becomes a value; what is cut is said in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    lines: usize,
    octets: usize,
}

impl Room {
    /// What a person reads of it: in the log, in a report, in the queue.
    const USUAL: Self = Self { lines: 20, octets: 4 << 10 };
    /// What tells one from another.
    const LITTLE: Self = Self { lines: 4, octets: 512 };
    /// Octets that the replies to single recipients of a transaction may have; the others have little.
    const ALL_OCTETS: usize = 64 << 10;

    /// For one more reply to a recipient, when those before have so many octets.
    pub(super) const fn beside(octets: usize) -> Self {
        if octets < Self::ALL_OCTETS { Self::USUAL } else { Self::LITTLE }
    }
}

/// A whole reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    /// Of all its lines.
    pub(super) code: ReplyCode,
    octets: &'a [u8],
}

impl<'a> Raw<'a> {
    /// The reply as a value, or its beginning.
    pub(super) fn reply(&self) -> Reply {
        self.reply_in(Room::USUAL)
    }

    /// As much of the reply as there is room for.
    pub(super) fn reply_in(&self, room: Room) -> Reply {
        // The reader takes no line that the parser refuses; if it did, the code is what counts.
        let reply = Reply::parse_beginning(self.octets, room.lines, room.octets);
        reply.unwrap_or_else(|_| Reply::new(self.code, None, ""))
    }

    /// Its lines without codes and line ends.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let octets = self.octets.strip_suffix(b"\n").unwrap_or(self.octets);
        octets.split(|octet| *octet == b'\n').map(|line| line.get(4..).unwrap_or_default().trim_ascii_end())
    }
}

/// The reply that has not yet ended.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    held: Vec<u8>,
    /// Where the line that has not ended begins in `held`.
    line_from: usize,
    lines: usize,
    code: Option<ReplyCode>,
    /// What is held was given out.
    is_given: bool,
}

impl ReplyReader {
    /// Uses input up to the end of a reply, or all of it. An error says what is wrong with it.
    pub(super) fn read<'a>(
        &'a mut self,
        input: &'a [u8],
        limits: &Limits,
    ) -> Result<(usize, Option<Raw<'a>>), &'static str> {
        if self.is_given {
            self.clear();
        }
        let is_held = !self.held.is_empty();
        let mut used = 0;
        while let Some(rest) = input.get(used..)
            && let Some(end) = memchr(b'\n', rest)
        {
            let line = rest.get(..=end).unwrap_or(rest);
            used += line.len();
            let code = if is_held {
                self.held.extend_from_slice(line);
                let from = std::mem::replace(&mut self.line_from, self.held.len());
                judge(self.held.get(from..).unwrap_or_default(), self.code, limits)?
            } else {
                judge(line, self.code, limits)?
            };
            self.lines += 1;
            if let (code, true) = code {
                self.is_given = true;
                let octets = if is_held { &self.held } else { input.get(..used).unwrap_or(input) };
                return Ok((used, Some(Raw { code, octets })));
            }
            self.code = Some(code.0);
            if self.lines >= limits.reply_lines {
                return Err("a reply has too many lines");
            }
        }
        if !is_held {
            self.line_from = used;
        }
        self.held.extend_from_slice(if is_held { input.get(used..).unwrap_or_default() } else { input });
        if self.held.len() - self.line_from >= limits.reply_line_octets {
            return Err(LINE_TOO_LONG);
        }
        Ok((input.len(), None))
    }

    /// Forgets a reply that was given out, when nothing follows it.
    pub(super) fn release(&mut self) {
        if self.is_given {
            self.clear();
        }
    }

    fn clear(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        held.clear();
        // A server that once said much need not cost its memory for hours.
        held.shrink_to(1_024);
        *self = Self { held, ..Self::default() };
    }
}

const LINE_TOO_LONG: &str = "a line of a reply is too long";

/// Reads a line with its line end: the code, and whether it is the last one.
// RFC 5321 §4.2: a client takes a code alone, with a space, or with a hyphen where lines follow
// RFC 5321 §2.3.8 (gap: a line of a reply may end with LF alone; servers that do so are old and harmless)
fn judge(line: &[u8], before: Option<ReplyCode>, limits: &Limits) -> Result<(ReplyCode, bool), &'static str> {
    if line.len() > limits.reply_line_octets {
        return Err(LINE_TOO_LONG);
    }
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (Some(digits), separator) = (line.first_chunk::<3>(), line.get(3)) else {
        return Err("a line is no reply");
    };
    let number = digits.iter().fold(0, |number, digit| number * 10 + u16::from(digit.wrapping_sub(b'0')));
    let code = ReplyCode::new(number).filter(|_| digits.iter().all(u8::is_ascii_digit));
    let code = code.ok_or("a line is no reply")?;
    // RFC 5321 §4.2.1: the code of all lines is the same
    if before.is_some_and(|before| before != code) {
        return Err("the lines of a reply have different codes");
    }
    match separator {
        None | Some(b' ') => Ok((code, true)),
        Some(b'-') => Ok((code, false)),
        Some(_) => Err("a line is no reply"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], piece: usize, limits: &Limits) -> Result<Vec<(u16, String)>, &'static str> {
        let mut reader = ReplyReader::default();
        let mut out = Vec::new();
        for piece in input.chunks(piece) {
            let mut rest = piece;
            while !rest.is_empty() {
                let (used, found) = reader.read(rest, limits)?;
                if let Some(raw) = found {
                    let lines: Vec<String> = raw.lines().map(|line| line.escape_ascii().to_string()).collect();
                    assert_eq!(raw.reply().code(), raw.code);
                    assert!(Reply::parse(raw.octets, usize::MAX).is_ok());
                    out.push((raw.code.get(), lines.join("|")));
                }
                rest = &rest[used..];
            }
        }
        Ok(out)
    }

    // RFC 5321 §4.2 (test)
    #[test]
    fn replies_in_any_pieces() {
        let input = b"220 mx.test ESMTP\r\n250-a\r\n250-\r\n250 b \xff\n550\r\n250-c\n250\n354 \r\n421 x";
        let wanted = [(220, "mx.test ESMTP"), (250, "a||b \\xff"), (550, ""), (250, "c|"), (354, "")]
            .map(|(a, b)| (a, b.to_owned()));
        for piece in 1..input.len() + 1 {
            assert_eq!(read(input, piece, &Limits::default()).unwrap(), wanted, "in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_reply() {
        let limits = Limits { reply_line_octets: 20, reply_lines: 3, ..Limits::default() };
        for input in [
            &b"hello\r\n"[..],
            b"\r\n",
            b"25\r\n",
            b"250_x\r\n",
            b"2500\r\n",
            b"199 x\r\n",
            b"600 x\r\n",
            b"2a0 x\r\n",
            b":50 x\r\n",
            b"250-a\r\n251 b\r\n",
            b"250-a\r\n250-b\r\n250-c\r\n250 d\r\n",
            b"250 01234567890123456\r\n",
            b"250-0123456789012345678901234567890",
        ] {
            for piece in [1, 3, 100] {
                assert!(read(input, piece, &limits).is_err(), "{:?}", input.escape_ascii().to_string());
            }
        }
        assert!(read(b"250-a\r\n250-b\r\n250 c\r\n250 01234567890123\r\n", 1, &limits).is_ok());
    }
}
