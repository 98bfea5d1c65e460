//! A cursor over bytes, shared by the parsers of this crate and of content rules: look, take, and know the position for
//! the error message.
//!
//! It never copies, never panics and never runs past the end; what a byte means is the parser's business.

/// A position in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    /// Begins at the first of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset of the next byte.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Whether every byte is taken.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Returns the next byte and leaves it.
    #[must_use]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Takes the next byte, whatever it is.
    #[expect(clippy::should_implement_trait, reason = "a parser takes bytes one by one and never loops over them")]
    pub fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Takes the next byte if it is `byte`.
    pub fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes bytes as long as they are `wanted`.
    pub fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.rest();
        let len = rest.iter().position(|byte| !wanted(*byte)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    /// Passes white space and comments, nested ones too.
    // RFC 5322 §3.2.2
    pub fn skip_comments(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'(' => depth += 1,
                b')' if depth > 0 => depth -= 1,
                b'\\' if depth > 0 => {
                    self.next();
                }
                byte if depth > 0 || byte.is_ascii_whitespace() => {}
                _ => return,
            }
            self.next();
        }
    }

    /// Returns the octets that have not been taken.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns the octets taken since `start`, an earlier [`Scan::at`].
    #[must_use]
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }
}

/// The value of a hexadecimal digit, in either case.
#[must_use]
pub const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
