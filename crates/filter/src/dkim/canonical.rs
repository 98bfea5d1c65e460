//! The canonical forms that DKIM hashes (RFC 6376 §3.4).
//!
//! A body is converted while it comes, in pieces of any size, and in constant memory. A lone CR or LF is content.

/// Octets that are collected before they are passed on.
const BUFFER_BYTES: usize = 4 << 10;

/// A canonicalization algorithm of DKIM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Canonicalization {
    /// Nothing is changed but empty lines at the end of the body.
    #[default]
    Simple,
    /// Runs of white space count as one blank, and white space at the end of a line does not count.
    Relaxed,
}

/// A body on its way to its canonical form.
#[derive(Clone, Debug)]
pub struct CanonicalBody {
    kind: Canonicalization,
    out: Vec<u8>,
    /// Line ends that have come and count only if content follows.
    line_ends: usize,
    /// White space that has come and counts only if content follows on its line.
    has_blank: bool,
    /// The last octet was CR.
    has_cr: bool,
    /// Content has come.
    has_content: bool,
}

impl CanonicalBody {
    /// Begins a body.
    #[must_use]
    pub fn new(kind: Canonicalization) -> Self {
        let out = Vec::with_capacity(BUFFER_BYTES);
        Self { kind, out, line_ends: 0, has_blank: false, has_cr: false, has_content: false }
    }

    /// Takes the next piece. `sink` gets octets of the canonical form.
    pub fn push(&mut self, piece: &[u8], sink: &mut impl FnMut(&[u8])) {
        let mut rest = piece;
        while let Some((octet, behind)) = rest.split_first() {
            let had_cr = std::mem::take(&mut self.has_cr);
            if had_cr && *octet == b'\n' {
                self.line_ends += 1;
                self.has_blank = false;
                rest = behind;
                continue;
            }
            if had_cr {
                self.content(b"\r", sink);
            }
            match octet {
                b'\r' => {
                    self.has_cr = true;
                    rest = behind;
                }
                b' ' | b'\t' if self.kind == Canonicalization::Relaxed => {
                    self.has_blank = true;
                    rest = behind;
                }
                _ => {
                    let length = self.run_length(rest);
                    let (run, behind) = rest.split_at_checked(length).unwrap_or((rest, &[]));
                    self.content(run, sink);
                    rest = behind;
                }
            }
        }
    }

    /// Ends the body. `sink` gets the last octets of the canonical form.
    pub fn finish(mut self, sink: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.has_cr) {
            self.content(b"\r", sink);
        }
        // RFC 6376 §3.4.3: a body without content is one line end; §3.4.4: or nothing
        if self.has_content || self.kind == Canonicalization::Simple {
            self.out.extend_from_slice(b"\r\n");
        }
        sink(&self.out);
    }

    /// Returns how many octets from the beginning of `rest`, which begins with content, pass as they are.
    fn run_length(&self, rest: &[u8]) -> usize {
        let is_blank = |octet: u8| self.kind == Canonicalization::Relaxed && (octet == b' ' || octet == b'\t');
        rest.iter().position(|octet| *octet == b'\r' || is_blank(*octet)).unwrap_or(rest.len())
    }

    fn content(&mut self, run: &[u8], sink: &mut impl FnMut(&[u8])) {
        self.has_content = true;
        for _ in 0..std::mem::take(&mut self.line_ends) {
            self.append(b"\r\n", sink);
        }
        if std::mem::take(&mut self.has_blank) {
            self.append(b" ", sink);
        }
        self.append(run, sink);
    }

    fn append(&mut self, octets: &[u8], sink: &mut impl FnMut(&[u8])) {
        if self.out.len() + octets.len() > BUFFER_BYTES {
            sink(&self.out);
            self.out.clear();
        }
        if octets.len() > BUFFER_BYTES {
            return sink(octets);
        }
        self.out.extend_from_slice(octets);
    }
}

/// Appends a header field in the relaxed form, without a line end. `value` is what follows the colon.
// RFC 6376 §3.4.2: name in lower case, unfolded, runs of white space are one blank, none around the value
pub fn relax_field(name: &str, value: &[u8], to: &mut Vec<u8>) {
    to.extend(name.trim_end().bytes().map(|octet| octet.to_ascii_lowercase()));
    to.push(b':');
    let mut has_blank = false;
    let start = to.len();
    for octet in value {
        match octet {
            b'\r' | b'\n' => {}
            b' ' | b'\t' => has_blank = true,
            _ => {
                if has_blank && to.len() > start {
                    to.push(b' ');
                }
                has_blank = false;
                to.push(*octet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(kind: Canonicalization, pieces: &[&[u8]]) -> Vec<u8> {
        let (mut body, mut found) = (CanonicalBody::new(kind), Vec::new());
        let mut sink = |octets: &[u8]| found.extend_from_slice(octets);
        pieces.iter().for_each(|piece| body.push(piece, &mut sink));
        body.finish(&mut sink);
        found
    }

    // RFC 6376 §3.4.3 (test), RFC 6376 §3.4.4 (test)
    #[test]
    fn bodies_in_both_forms() {
        for (body, simple, relaxed) in [
            ("", "\r\n", ""),
            ("\r\n", "\r\n", ""),
            ("\r\n\r\n", "\r\n", ""),
            ("a", "a\r\n", "a\r\n"),
            ("a\r\n", "a\r\n", "a\r\n"),
            ("a\r\n\r\n\r\n", "a\r\n", "a\r\n"),
            (" C \r\nD \t E\r\n\r\n\r\n", " C \r\nD \t E\r\n", " C\r\nD E\r\n"),
            ("a\r\n \r\n\t\r\n", "a\r\n \r\n\t\r\n", "a\r\n"),
            (" \r\n", " \r\n", ""),
            ("\r\n\r\na\r\n\r\nb", "\r\n\r\na\r\n\r\nb\r\n", "\r\n\r\na\r\n\r\nb\r\n"),
            ("a\rb\n\r\n", "a\rb\n\r\n", "a\rb\n\r\n"),
            ("a \r", "a \r\r\n", "a \r\r\n"),
            ("a\t\tb", "a\t\tb\r\n", "a b\r\n"),
        ] {
            assert_eq!(canonical(Canonicalization::Simple, &[body.as_bytes()]), simple.as_bytes(), "{body:?}");
            assert_eq!(canonical(Canonicalization::Relaxed, &[body.as_bytes()]), relaxed.as_bytes(), "{body:?}");
        }
    }

    // RFC 6376 §3.4.5 (test)
    #[test]
    fn fields_in_the_relaxed_form() {
        let relaxed = |name: &str, value: &str| {
            let mut found = Vec::new();
            relax_field(name, value.as_bytes(), &mut found);
            String::from_utf8(found).unwrap()
        };
        assert_eq!(relaxed("A", " X\r\n"), "a:X");
        assert_eq!(relaxed("B ", " Y\t\r\n\tZ  \r\n"), "b:Y Z");
        assert_eq!((relaxed("c", ""), relaxed("c", " \r\n ")), ("c:".to_owned(), "c:".to_owned()));
    }

    proptest! {
        #[test]
        fn the_ends_of_pieces_change_nothing(body in "[ab \t\r\n]{0,40}", cuts in prop::collection::vec(0usize..41, 0..4)) {
            let body = body.as_bytes();
            let mut at: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
            at.extend([0, body.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
            for kind in [Canonicalization::Simple, Canonicalization::Relaxed] {
                prop_assert_eq!(canonical(kind, &pieces), canonical(kind, &[body]));
            }
        }

        #[test]
        fn a_canonical_body_stays_as_it_is(body in "[ab \t\r\n]{0,40}") {
            for kind in [Canonicalization::Simple, Canonicalization::Relaxed] {
                let once = canonical(kind, &[body.as_bytes()]);
                prop_assert_eq!(canonical(kind, &[&once]), once);
            }
        }
    }

    #[test]
    fn long_bodies_pass_in_pieces() {
        let line = [vec![b'x'; 3 * BUFFER_BYTES], b"  y\r\n".to_vec()].concat();
        let expected = [vec![b'x'; 3 * BUFFER_BYTES], b" y\r\n".to_vec()].concat().repeat(3);
        assert_eq!(canonical(Canonicalization::Relaxed, &[&line.repeat(3)]), expected);
    }
}
