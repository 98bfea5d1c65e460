//! Content for DATA: a dot more on lines that begin with one, and the end.
//!
//! A line ends in CRLF, in any pieces. Runs between dots are handed on without a copy.

use bytes::Bytes;
use memchr::memmem;

use super::output::Output;

/// Where the content stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dots {
    /// At the beginning, or behind CRLF.
    #[default]
    LineStart,
    /// Behind CR.
    Cr,
    /// Within a line.
    Text,
}

impl Dots {
    /// Writes a piece of content.
    // RFC 5321 §4.5.2: a dot is put in front of a line that begins with one
    // RFC 5321 §2.3.8 (gap: content is CRLF text as its acceptor guarantees; a bare CR or LF goes out as it is)
    pub(super) fn write(&mut self, piece: &Bytes, out: &mut Output) {
        let octets = &piece[..];
        let mut run = 0;
        match (*self, octets) {
            (Self::LineStart, [b'.', ..]) => out.text(b"."),
            (Self::Cr, [b'\n', b'.', ..]) => {
                out.text(b"\n.");
                run = 1;
            }
            _ => {}
        }
        for hit in memmem::find_iter(octets, b"\r\n.") {
            let dot = hit + 2;
            out.piece(piece.slice(run..dot));
            out.text(b".");
            run = dot;
        }
        out.piece(piece.slice(run..));
        *self = match octets {
            [] => *self,
            [.., b'\r', b'\n'] => Self::LineStart,
            [b'\n'] if *self == Self::Cr => Self::LineStart,
            [.., b'\r'] => Self::Cr,
            _ => Self::Text,
        };
    }

    /// Writes the end: a last line that has none gets its CRLF.
    // RFC 5321 §4.1.1.4: the end is CRLF.CRLF, and its first CRLF ends the last line
    pub(super) fn end(self, out: &mut Output) {
        out.text(if self == Self::LineStart { b".\r\n" } else { b"\r\n.\r\n" });
    }
}

/// Returns content as DATA sends it, with its end. `pieces`: the content, cut anywhere.
// RFC 5321 §4.5.2
#[must_use]
pub fn data_octets(pieces: impl IntoIterator<Item = Bytes>) -> Vec<u8> {
    let (mut out, mut dots) = (Output::default(), Dots::default());
    for piece in pieces {
        dots.write(&piece, &mut out);
    }
    dots.end(&mut out);
    out.into_octets()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(pieces: &[&[u8]]) -> Vec<u8> {
        data_octets(pieces.iter().map(|piece| Bytes::copy_from_slice(piece)))
    }

    // RFC 5321 §4.5.2 (test)
    #[test]
    fn dots_are_doubled() {
        for (content, wanted) in [
            (&b""[..], &b".\r\n"[..]),
            (b".", b"..\r\n.\r\n"),
            (b"a.b\r\n.\r\n..c\r\n", b"a.b\r\n..\r\n...c\r\n.\r\n"),
            (b"a\r\n.\r", b"a\r\n..\r\r\n.\r\n"),
            (b"\n.\r.\r\r\n.", b"\n.\r.\r\r\n..\r\n.\r\n"),
        ] {
            assert_eq!(written(&[content]), wanted);
            let octets: Vec<&[u8]> = content.chunks(1).collect();
            assert_eq!(written(&octets), wanted);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Cut anywhere, the result is that of looking around at each octet.
        #[test]
        fn any_pieces(
            parts in proptest::collection::vec(
                proptest::sample::select(vec![&b"."[..], b"\r", b"\n", b"\r\n", b"\r\n.", b"a", &[b'x'; 600]]), 0..30),
            size in 1..40_usize,
        ) {
            let content = parts.concat();
            let mut wanted = Vec::new();
            for (at, octet) in content.iter().enumerate() {
                if *octet == b'.' && (at == 0 || content[..at].ends_with(b"\r\n")) {
                    wanted.push(b'.');
                }
                wanted.push(*octet);
            }
            if !(content.is_empty() || content.ends_with(b"\r\n")) {
                wanted.extend_from_slice(b"\r\n");
            }
            wanted.extend_from_slice(b".\r\n");
            let pieces: Vec<&[u8]> = content.chunks(size).collect();
            prop_assert_eq!(written(&pieces), wanted);
        }
    }
}
