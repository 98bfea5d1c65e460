//! Content as it passes by: where it ends, how long it is, and which message it is. Nothing of it is kept but its
//! token.

/// The longest header line that is looked at; the rest of a longer one passes by.
const HEADER_MAX: usize = 512;
const STORM: &[u8] = b"X-Mailrace-Storm:";
const MESSAGE_ID: &[u8] = b"Message-ID:";

/// A content on its way.
#[derive(Debug, Default)]
pub(super) struct Content {
    place: Place,
    octets: u64,
    token: Vec<u8>,
    /// The token is the one of a storm, which nothing replaces.
    is_final: bool,
    is_in_body: bool,
    /// A `Message-ID:` whose value is on the next line.
    is_awaited: bool,
    line: Vec<u8>,
}

/// Whether the content is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Yes,
    No,
}

/// RFC 5321 §4.1.1.4: only CRLF.CRLF ends it, and the CRLF before it may be that of DATA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    LineStart,
    Dot,
    DotCr,
    Inside,
    Cr,
}

impl Content {
    /// Begins anew.
    pub(super) fn begin(&mut self) {
        self.place = Place::LineStart;
        self.octets = 0;
        self.token.clear();
        self.is_final = false;
        self.is_in_body = false;
        self.is_awaited = false;
        self.line.clear();
    }

    /// Its octets and its token; then begins anew.
    pub(super) fn take(&mut self) -> (u64, Box<[u8]>) {
        let taken = (self.octets, self.token.as_slice().into());
        self.begin();
        taken
    }

    /// Takes content of DATA, and returns the octets behind it.
    pub(super) fn text<'i>(&mut self, mut input: &'i [u8]) -> (&'i [u8], Ended) {
        loop {
            if self.is_in_body && self.place == Place::Inside {
                let end = input.iter().position(|octet| *octet == b'\r').unwrap_or(input.len());
                self.octets += end as u64;
                input = input.get(end..).unwrap_or_default();
            }
            let Some((octet, rest)) = input.split_first() else { return (input, Ended::No) };
            input = rest;
            self.place = match (self.place, *octet) {
                (Place::LineStart, b'.') => Place::Dot,
                (Place::Dot, b'\r') => Place::DotCr,
                (Place::DotCr, b'\n') => return (input, Ended::Yes),
                (place, octet) => {
                    // RFC 5321 §4.5.2: the dot was a doubled one, or should have been.
                    if place == Place::DotCr {
                        self.octet(b'\r');
                    }
                    self.octet(octet);
                    match (place, octet) {
                        (Place::Cr | Place::DotCr, b'\n') => Place::LineStart,
                        (_, b'\r') => Place::Cr,
                        _ => Place::Inside,
                    }
                }
            };
        }
    }

    /// Takes a piece of a chunk.
    pub(super) fn chunk(&mut self, mut input: &[u8]) {
        while !self.is_in_body {
            let Some((octet, rest)) = input.split_first() else { return };
            input = rest;
            self.octet(*octet);
        }
        self.octets += input.len() as u64;
    }

    fn octet(&mut self, octet: u8) {
        self.octets += 1;
        if self.is_in_body {
            return;
        }
        if octet == b'\n' {
            self.header_line();
            self.line.clear();
        } else if self.line.len() < HEADER_MAX {
            self.line.push(octet);
        }
    }

    fn header_line(&mut self) {
        let line = self.line.trim_ascii_end();
        if line.is_empty() {
            self.is_in_body = true;
            return;
        }
        let begins =
            |name: &[u8]| line.split_at_checked(name.len()).filter(|(begin, _)| begin.eq_ignore_ascii_case(name));
        let is_folded = line.starts_with(b" ") || line.starts_with(b"\t");
        if let Some((_, value)) = begins(STORM).filter(|_| !self.is_final) {
            self.token = value.trim_ascii().to_vec();
            self.is_final = true;
        } else if let Some((_, value)) = begins(MESSAGE_ID).filter(|_| !self.is_final) {
            self.token = value.trim_ascii().to_vec();
            self.is_awaited = self.token.is_empty();
            return;
        } else if is_folded && self.is_awaited {
            self.token = line.trim_ascii().to_vec();
        }
        self.is_awaited = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, octets: u64, token: &str, rest: &str) {
        let mut content = Content::default();
        let (left, ended) = content.text(input.as_bytes());
        assert_eq!((ended, left), (Ended::Yes, rest.as_bytes()), "{input:?}");
        assert_eq!(content.take(), (octets, token.as_bytes().into()), "{input:?}");
    }

    #[test]
    fn only_one_thing_ends_it_and_dots_are_undone() {
        check(".\r\nQUIT", 0, "", "QUIT");
        check("a\r\n.\r\n", 3, "", "");
        check("..\r\n.\r\n", 3, "", "");
        check(".a\r\n.\r\n", 3, "", "");
        check("a\n.\n.\r\n\r\n.\r\nrest", 9, "", "rest");
        check("a\r.\r\n\r\n.\r\n", 7, "", "");
        check("\r\n.\rx\r\n.\r\n", 6, "", "");
        check("\r\n.\r\r\n.\r\n", 5, "", "");
        check("\r\n\r\n.\r\n", 4, "", "");
    }

    #[test]
    fn the_token_is_that_of_the_header() {
        check("Message-ID: <a@b>\r\n\r\nX-Mailrace-Storm: 1\r\n.\r\n", 42, "<a@b>", "");
        check("X-Mailrace-Storm: r/1/c\r\nmessage-id: <a@b>\r\n\r\n.\r\n", 46, "r/1/c", "");
        check("message-id: <a@b>\r\nX-MAILRACE-STORM: r/1/c\r\n\r\n.\r\n", 46, "r/1/c", "");
        check("Message-ID:\r\n <a@b>\r\nTo: x\r\n y\r\n\r\n.\r\n", 34, "<a@b>", "");
        check("X-Message-ID: 7\r\n.\r\n", 17, "", "");
    }
}
