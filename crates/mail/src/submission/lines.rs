//! The lines of a local program as lines of mail, and where its message ends.

/// Turns any line end into CRLF while the message comes in pieces.
///
/// LF, CRLF, a CR alone, and CRs before a LF (as programs write that convert twice) each end one line. A line with a
/// single dot, from one LF to the next but for CRs, ends the message, unless dots are ignored. The last line
/// gets its end if it lacks it.
///
/// ```
/// use mail::submission::Lines;
/// let (mut lines, mut out) = (Lines::new(true), Vec::new());
/// assert!(!lines.push(b"a\nb\r", &mut out) && lines.push(b"\n.\nleft out", &mut out));
/// lines.finish(&mut out);
/// assert_eq!(out, b"a\r\nb\r\n");
/// ```
#[derive(Clone, Debug)]
pub struct Lines {
    ends_at_dot: bool,
    state: State,
    is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the beginning of a line.
    Start,
    /// Behind a dot that begins a line and is not written yet.
    Dot,
    /// The same, and a CR.
    DotCr,
    /// Within a line.
    Within,
    /// Behind a CR that is not written yet.
    Cr,
}

impl Lines {
    /// Nothing has come yet. Without `ends_at_dot` a line with a dot is one like others (`-i`).
    #[must_use]
    pub const fn new(ends_at_dot: bool) -> Self {
        Self { ends_at_dot, state: State::Start, is_over: false }
    }

    /// Appends the lines of a piece. True: the message has ended, and the rest is not part of it.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> bool {
        let mut rest = piece;
        while let Some(&byte) = rest.first().filter(|_| !self.is_over) {
            if self.state == State::Within {
                // Most of a message.
                let plain = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                let (line, behind) = rest.split_at(plain);
                out.extend_from_slice(line);
                rest = behind;
                if plain > 0 {
                    continue;
                }
            }
            rest = rest.get(1..).unwrap_or_default();
            self.step(byte, out);
        }
        self.is_over
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.state = match (self.state, byte) {
            (State::Start, b'.') if self.ends_at_dot => State::Dot,
            (State::Dot, b'\r') => State::DotCr,
            (State::Dot | State::DotCr, b'\n') => {
                self.is_over = true;
                State::Start
            }
            (State::DotCr, b'\r') => State::DotCr,
            (State::Dot, _) => {
                out.extend_from_slice(&[b'.', byte]);
                State::Within
            }
            // A CR alone ends a line of mail, and no line of a program: its dot is text.
            (State::DotCr, _) => {
                out.extend_from_slice(b".\r\n");
                self.state = State::Within;
                return self.step(byte, out);
            }
            (State::Cr, b'\r') => State::Cr,
            (State::Cr, b'\n') | (_, b'\n') => {
                out.extend_from_slice(b"\r\n");
                State::Start
            }
            (_, b'\r') => State::Cr,
            (State::Cr, _) => {
                out.extend_from_slice(b"\r\n");
                // A dot behind a CR alone begins no line of a program.
                self.state = State::Within;
                return self.step(byte, out);
            }
            (State::Start | State::Within, _) => {
                out.push(byte);
                State::Within
            }
        };
    }

    /// Ends the last line, at the end of the input.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match self.state {
            State::Within | State::Cr => out.extend_from_slice(b"\r\n"),
            // A line with a dot and no end: the program meant the end all the same.
            State::Start | State::Dot | State::DotCr => {}
        }
        self.state = State::Start;
        self.is_over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(input: &[u8], ends_at_dot: bool) -> Vec<u8> {
        let (mut lines, mut out) = (Lines::new(ends_at_dot), Vec::new());
        lines.push(input, &mut out);
        lines.finish(&mut out);
        out
    }

    #[test]
    fn every_line_end_becomes_crlf() {
        for (input, expected) in [
            (&b""[..], &b""[..]),
            (b"a", b"a\r\n"),
            (b"a\n\nb\n", b"a\r\n\r\nb\r\n"),
            (b"a\r\nb\r\r\nc\r", b"a\r\nb\r\nc\r\n"),
            (b"a\rb", b"a\r\nb\r\n"),
            (b"..\n.a\n", b"..\r\n.a\r\n"),
        ] {
            assert_eq!(whole(input, true).escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }

    #[test]
    fn a_dot_ends_the_message_unless_it_is_ignored() {
        for input in [&b"a\n.\nb\n"[..], b"a\r\n.\r\nb\r\n", b"a\n.\r\r\nb", b"a\n.\r", b"a\n."] {
            assert_eq!(whole(input, true), b"a\r\n", "{}", input.escape_ascii());
        }
        for (input, expected) in [
            (&b"a\n.\rb\nc\n"[..], &b"a\r\n.\r\nb\r\nc\r\n"[..]),
            (b"a\r.\nb\n", b"a\r\n.\r\nb\r\n"),
            (b"a\n.\r.\nb\n", b"a\r\n.\r\n.\r\nb\r\n"),
            (b"a\n. \nb\n", b"a\r\n. \r\nb\r\n"),
            (b"a\n..\nb\n", b"a\r\n..\r\nb\r\n"),
        ] {
            assert_eq!(whole(input, true).escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
        assert_eq!(whole(b"a\n.\nb\n", false), b"a\r\n.\r\nb\r\n");
        assert_eq!(whole(b".", false), b".\r\n");
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(input in "[a.\r\n]{0,40}", at in 0usize..40, dot: bool) {
            let at = at.min(input.len());
            let (mut lines, mut out) = (Lines::new(dot), Vec::new());
            lines.push(&input.as_bytes()[..at], &mut out);
            lines.push(&input.as_bytes()[at..], &mut out);
            lines.finish(&mut out);
            prop_assert_eq!(&out, &whole(input.as_bytes(), dot));
            // No line end but CRLF is left, and CRLF ends the last line.
            let bare = String::from_utf8(out).unwrap().replace("\r\n", "");
            prop_assert!(!bare.contains(['\r', '\n']));
        }
    }
}
