//! Command lines out of pieces of input.
//!
//! A line that lies whole in the input is used where it is; only a line that comes in pieces is copied, up to the
//! limit. The rest of a line over the limit is dropped. A line ends at LF here; the session decides whether a CR stood
//! before it, and whether that matters.

use memchr::memchr;
use zeroize::Zeroize as _;

/// The line that has not yet ended.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    held: Vec<u8>,
    /// The line is over the limit; `held` keeps its last octet alone.
    overlong: bool,
}

/// A line has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// It is the input that was used.
    InInput,
    /// [`LineReader::take`] has it.
    Held,
    /// It was longer than allowed.
    TooLong {
        /// It ended with LF alone.
        bare: bool,
    },
}

impl LineReader {
    /// Uses input up to the end of the line, and says whether it was found. `max` counts the line end.
    pub(super) fn read(&mut self, input: &[u8], max: usize) -> (usize, Option<LineEnd>) {
        let end = memchr(b'\n', input);
        let used = end.map_or(input.len(), |at| at + 1);
        let piece = input.get(..used).unwrap_or(input);
        if self.held.is_empty() && end.is_some() && piece.len() <= max && !self.overlong {
            return (used, Some(LineEnd::InInput));
        }
        if self.overlong || self.held.len() + piece.len() > max {
            return (used, self.swallow(piece, end.is_some()));
        }
        self.held.extend_from_slice(piece);
        (used, end.map(|_| LineEnd::Held))
    }

    /// The line that was found in pieces. Give the buffer back with [`LineReader::give_back`].
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Takes the buffer back for the next line.
    pub(super) fn give_back(&mut self, mut buffer: Vec<u8>) {
        // It may have been a line with a password.
        buffer.zeroize();
        // A client that once sent a long AUTH line need not cost its memory for hours.
        if buffer.capacity() <= 1_024 {
            buffer.clear();
            self.held = buffer;
        }
    }

    /// Drops its octets.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The first two octets of the line whose beginning is held and whose next octets are `input`.
    pub(super) fn first_two(&self, input: &[u8]) -> Option<[u8; 2]> {
        let mut octets = self.held.iter().chain(input).copied();
        if self.overlong { None } else { Some([octets.next()?, octets.next()?]) }
    }

    /// Whether the line whose beginning is held and whose next octets are `input` begins so, in any case of letters.
    pub(super) fn begins_with(&self, prefix: &[u8], input: &[u8]) -> bool {
        let mut octets = self.held.iter().chain(input);
        !self.overlong
            && prefix.iter().all(|wanted| octets.next().is_some_and(|octet| octet.eq_ignore_ascii_case(wanted)))
    }

    fn swallow(&mut self, piece: &[u8], ended: bool) -> Option<LineEnd> {
        self.overlong = true;
        if ended {
            let mut back = piece.iter().rev().skip(1).chain(self.held.last()).copied();
            let bare = back.next() != Some(b'\r');
            self.clear();
            return Some(LineEnd::TooLong { bare });
        }
        let last = piece.last().copied();
        if let Some(last) = last {
            self.held.clear();
            self.held.shrink_to(1_024);
            self.held.push(last);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], piece: usize, max: usize) -> Vec<String> {
        let mut reader = LineReader::default();
        let mut out = Vec::new();
        for piece in input.chunks(piece) {
            let mut rest = piece;
            while !rest.is_empty() {
                let (used, found) = reader.read(rest, max);
                match found {
                    Some(LineEnd::InInput) => out.push(rest[..used].escape_ascii().to_string()),
                    Some(LineEnd::Held) => {
                        let line = reader.take();
                        out.push(line.escape_ascii().to_string());
                        reader.give_back(line);
                    }
                    Some(LineEnd::TooLong { bare }) => out.push(format!("too long, {bare}")),
                    None => assert_eq!(used, rest.len()),
                }
                rest = &rest[used..];
            }
        }
        out
    }

    // RFC 5321 §4.5.3.1.4 (test)
    #[test]
    fn pieces_do_not_matter() {
        let input = b"abc\r\n\r\n123456\r\n1234567\r\nlonger than that\nd\nlonger than that\r\n\n";
        let wanted = [
            "abc\\r\\n",
            "\\r\\n",
            "123456\\r\\n",
            "too long, false",
            "too long, true",
            "d\\n",
            "too long, false",
            "\\n",
        ];
        for piece in 1..=input.len() {
            assert_eq!(lines(input, piece, 8), wanted, "in pieces of {piece}");
        }
    }
}
