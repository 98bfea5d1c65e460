//! The part before the `@`, held by its meaning: `"a.b"` and `a.b` are the same local part `a.b`.
//!
//! Quotes belong to the wire. They are taken off on reading and put back on writing when the meaning needs them, so
//! that `"a@b"@d` neither loses its quotes on relay nor becomes another address. Upper and lower case are kept and
//! differ: only the host that owns the mailbox knows their meaning (RFC 5321 §2.4). No Unicode normalisation for the
//! same reason.

use std::fmt::{self, Write as _};

use super::error::{AddressError, AddressParseError, AddressReason};
use super::{ADDRESS_OCTETS_MAX, is_atext};
use crate::scan::Scan;

/// The name of the mailbox at the host that the domain names. May be empty (`""@d`), holds no control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalPart(Box<str>);

impl LocalPart {
    /// The longest local part that RFC 5321 §4.5.3.1.1 makes every server accept, in octets as written.
    ///
    /// Longer ones are read too: bounce addresses that encode a recipient (VERP, SRS) exceed it in real mail, and the
    /// RFC asks not to impose the limit where one need not. [`LocalPart::is_oversize`] tells whether a local part is
    /// longer.
    pub const RFC_OCTETS_MAX: usize = 64;

    /// Takes the meaning of a local part: `a@b`, not `"a@b"`.
    ///
    /// # Errors
    /// On control characters, and when the written form cannot fit into any address.
    pub fn new(meaning: &str) -> Result<Self, AddressError> {
        if let Some((at, _)) = meaning.char_indices().find(|(_, c)| c.is_control()) {
            return Err(AddressError::new(meaning.as_bytes(), AddressParseError::new(at, AddressReason::Control)));
        }
        let local = Self(meaning.into());
        // The shortest address has a domain of one letter.
        if local.written_len() + "@d".len() > ADDRESS_OCTETS_MAX {
            return Err(AddressError::new(
                meaning.as_bytes(),
                AddressParseError::new(meaning.len(), AddressReason::TooLong),
            ));
        }
        Ok(local)
    }

    /// The meaning, without quotes. To write it, use `Display`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it can only be written in quotes.
    #[must_use]
    pub fn needs_quotes(&self) -> bool {
        needs_quotes(&self.0)
    }

    /// Length of the written form in octets.
    #[must_use]
    pub fn written_len(&self) -> usize {
        if self.needs_quotes() {
            self.0.len() + "\"\"".len() + self.0.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count()
        } else {
            self.0.len()
        }
    }

    /// Whether it is longer than [`LocalPart::RFC_OCTETS_MAX`].
    #[must_use]
    pub fn is_oversize(&self) -> bool {
        self.written_len() > Self::RFC_OCTETS_MAX
    }

    /// Reads a local part up to the `@` that must follow, and takes that too. The text is UTF-8 without C1 controls.
    pub(super) fn scan(scan: &mut Scan<'_>) -> Result<Self, AddressParseError> {
        let meaning = if scan.take(b'"') { quoted_string(scan)? } else { dot_string(scan)? };
        Ok(Self(meaning.into()))
    }
}

impl fmt::Display for LocalPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_local_part(f, &self.0)
    }
}

impl fmt::Debug for LocalPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalPart({self})")
    }
}

// RFC 5321 §4.1.2: Dot-string, else Quoted-string
fn needs_quotes(meaning: &str) -> bool {
    // An empty atom stands between two dots, the begin and the end counted as such.
    let mut before = b'.';
    let is_plain = |byte: u8| {
        let fits = if byte == b'.' { before != b'.' } else { is_atext(byte) };
        before = byte;
        fits
    };
    !meaning.bytes().all(is_plain) || before == b'.'
}

/// Writes a local part, with quotes where its meaning needs them. Backslashes stand before quote and backslash only,
/// and before control characters, which a [`LocalPart`] never has and a header address may.
// RFC 5321 §4.1.2
pub(crate) fn write_local_part(f: &mut fmt::Formatter<'_>, meaning: &str) -> fmt::Result {
    if !needs_quotes(meaning) {
        return f.write_str(meaning);
    }
    f.write_str("\"")?;
    for c in meaning.chars() {
        if matches!(c, '"' | '\\') || c.is_ascii_control() {
            f.write_char('\\')?;
        }
        f.write_char(c)?;
    }
    f.write_str("\"")
}

// RFC 5321 §4.1.2: Dot-string = Atom *("." Atom); RFC 6531 §3.3 adds non-ASCII to the atoms
// RFC 5321 §4.1.2 (gap: dots may stand first, last and beside each other; such mailboxes exist)
fn dot_string(scan: &mut Scan<'_>) -> Result<String, AddressParseError> {
    let start = scan.at();
    let mut has_atom = false;
    loop {
        has_atom |= !scan.take_while(is_atext).is_empty();
        let reason = match scan.peek() {
            Some(b'.') => {
                scan.next();
                continue;
            }
            Some(b'@') if has_atom => break,
            None | Some(b'>') if has_atom => AddressReason::NoDomain,
            None | Some(b'>') if scan.at() == start => AddressReason::Empty,
            Some(b'@') if scan.at() == start => AddressReason::NoLocalPart,
            Some(b'@') | None => AddressReason::Dot,
            Some(byte) if byte.is_ascii_control() => AddressReason::Control,
            Some(_) => AddressReason::Character,
        };
        return Err(AddressParseError::new(scan.at(), reason));
    }
    let meaning = text(scan.since(start), start)?;
    scan.next();
    Ok(meaning)
}

// RFC 5321 §4.1.2: Quoted-string = DQUOTE *QcontentSMTP DQUOTE; RFC 6531 §3.3 adds non-ASCII to qtextSMTP
fn quoted_string(scan: &mut Scan<'_>) -> Result<String, AddressParseError> {
    let start = scan.at();
    let mut meaning = Vec::new();
    loop {
        meaning.extend_from_slice(scan.take_while(|byte| byte >= b' ' && !matches!(byte, b'"' | b'\\' | 0x7f)));
        let at = scan.at();
        match scan.next() {
            Some(b'"') => break,
            Some(b'\\') => match scan.next() {
                Some(byte @ b' '..=b'~') => meaning.push(byte),
                Some(_) => return Err(AddressParseError::new(at, AddressReason::QuotedPair)),
                None => return Err(AddressParseError::new(at, AddressReason::OpenQuote)),
            },
            Some(_) => return Err(AddressParseError::new(at, AddressReason::Control)),
            None => return Err(AddressParseError::new(at, AddressReason::OpenQuote)),
        }
    }
    let after = scan.at();
    if !scan.take(b'@') {
        let reason = if scan.is_at_end() { AddressReason::NoDomain } else { AddressReason::AfterQuote };
        return Err(AddressParseError::new(after, reason));
    }
    text(&meaning, start)
}

/// Text cut from UTF-8 at ASCII characters is UTF-8 again.
fn text(bytes: &[u8], at: usize) -> Result<String, AddressParseError> {
    str::from_utf8(bytes)
        .map(String::from)
        .map_err(|e| AddressParseError::new(at + e.valid_up_to(), AddressReason::NotUtf8))
}
