//! A line of the header in a control file: `H?flags?Name: value`, with the lines that go on with it.

use super::plain;

/// A field of the header, and the condition on which a mailer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedField {
    /// Flags of mailers between the question marks; empty: all mailers send it.
    pub flags: String,
    /// Name, colon, value, with CRLF at the end of each line.
    pub text: Vec<u8>,
}

/// Marks an octet from 0x80 to 0x9f, or itself, as one of the text, since sendmail uses those for itself.
const QUOTE: u8 = 0xff;
/// Flags that every mailer of sendmail for SMTP has: date, from, message id.
const SMTP_FLAGS: [char; 3] = ['D', 'F', 'M'];

impl QueuedField {
    /// Reads what stands behind the `H`, with LF at the end of each line.
    ///
    /// # Errors
    /// It is no field: why.
    pub(super) fn read(value: &[u8]) -> Result<Self, String> {
        let (flags, text) = match value.strip_prefix(b"?") {
            None => (&[][..], value),
            Some(rest) => {
                let end = rest.iter().position(|byte| *byte == b'?');
                let end = end.ok_or_else(|| "the condition of the header line has no end".to_owned())?;
                let (flags, text) = rest.split_at(end);
                (flags, text.get(1..).unwrap_or_default())
            }
        };
        let name = text.split(|byte| matches!(byte, b':' | b'\n')).next().unwrap_or_default();
        let name = name.trim_ascii_end();
        let is_name = !name.is_empty() && name.iter().all(u8::is_ascii_graphic) && text.get(name.len()).is_some();
        if !is_name || text.iter().skip(name.len()).find(|byte| **byte != b' ').is_none_or(|byte| *byte != b':') {
            return Err(format!("\"{}\" is no header field", plain(text)));
        }
        let flags = str::from_utf8(flags).map_err(|_| "the condition of the header line is no text".to_owned())?;
        Ok(Self { flags: flags.to_owned(), text: lines(text) })
    }

    /// Whether it has this name, in any case of letters.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let found = self.text.split(|byte| *byte == b':').next().unwrap_or_default();
        found.trim_ascii_end().eq_ignore_ascii_case(name.as_bytes())
    }

    /// Whether a mailer for SMTP gets it. `Return-Path` (flag `P`) and `Full-Name` (flag `x`) are for others.
    pub(super) fn goes_out(&self, macros: &[(String, String)]) -> bool {
        if let Some(name) = self.flags.strip_prefix('$') {
            let name = name.trim_matches(['{', '}']);
            return macros.iter().any(|(known, value)| known == name && !value.is_empty());
        }
        self.flags.is_empty() || self.flags.contains(SMTP_FLAGS)
    }
}

/// Octets as they were in the message, with CRLF for LF.
fn lines(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 8);
    let mut rest = text.iter().peekable();
    while let Some(&byte) = rest.next() {
        match byte {
            QUOTE => out.extend(rest.next_if(|byte| !matches!(byte, b'\r' | b'\n'))),
            b'\n' => out.extend_from_slice(b"\r\n"),
            // A CR alone would be a line end to some.
            b'\r' => {}
            byte => out.push(byte),
        }
    }
    if !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_and_quotes() {
        let read =
            |text: &[u8]| QueuedField::read(text).map(|field| (field.flags.clone(), field.goes_out(&[]), field.text));
        let ok = |flags: &str, goes, text: &[u8]| Ok((flags.to_owned(), goes, text.to_vec()));
        assert_eq!(read(b"?P?Return-Path: <\x81g>\n"), ok("P", false, b"Return-Path: <\x81g>\r\n"));
        assert_eq!(read(b"?D?Date: x\n"), ok("D", true, b"Date: x\r\n"));
        assert_eq!(
            read(b"??Subject: \xc3\xff\x81 \xff\xff\n\tnext\n"),
            ok("", true, b"Subject: \xc3\x81 \xff\r\n\tnext\r\n")
        );
        assert_eq!(read(b"X-Old:\n"), ok("", true, b"X-Old:\r\n"));
        assert_eq!(read(b"??X-Gap : a\n"), ok("", true, b"X-Gap : a\r\n"));
        assert_eq!(read(b"??A: b\rc\n"), ok("", true, b"A: bc\r\n"));
        for bad in [&b"?D Date: x\n"[..], b"??no field\n", b"??\n", b"", b"??: x\n", b"??a b: x\n"] {
            assert!(read(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_macro_as_condition() {
        let field = QueuedField::read(b"?${why}?X-Why: x\n").unwrap();
        assert!(!field.goes_out(&[]) && field.goes_out(&[("why".to_owned(), "1".to_owned())]));
    }
}
