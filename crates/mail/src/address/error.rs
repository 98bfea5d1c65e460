//! An error of an address: the value, the place in it and the reason, for the peer's reply and for the log.

use std::fmt;

/// How much of a refused value an error keeps, in bytes.
const VALUE_BYTES_MAX: usize = 320;

/// Why bytes are not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressReason {
    /// Nothing is there.
    Empty,
    /// A byte that no UTF-8 text has in this place (RFC 6531 §3.3).
    NotUtf8,
    /// A control character, ASCII or not.
    Control,
    /// A character that may not stand in this place without quotes, or not at all.
    Character,
    /// A dot at the beginning or end of a part, or two in a row.
    Dot,
    /// Nothing before the `@`.
    NoLocalPart,
    /// No `@`, or nothing after it.
    NoDomain,
    /// A quoted string without its closing quote.
    OpenQuote,
    /// Text between the closing quote and the `@`.
    AfterQuote,
    /// A backslash before something that cannot be quoted by it.
    QuotedPair,
    /// An address literal without its closing bracket.
    OpenLiteral,
    /// Brackets around something that is neither an IPv4 address, nor `IPv6:` and such an address, nor `tag:content`.
    Literal,
    /// A label of the domain begins or ends with a hyphen.
    Hyphen,
    /// The domain is not ASCII and has no form for the DNS (RFC 5891), or looks like another one that is ASCII.
    Idna,
    /// A label of the domain is longer than 63 octets in its DNS form.
    LabelTooLong,
    /// The domain is longer than 255 octets, or 253 in its DNS form.
    DomainTooLong,
    /// The whole address is longer than 254 octets.
    TooLong,
    /// A path does not begin with `<`.
    NoBracket,
    /// A path or a comment is not closed.
    Open,
    /// A source route that is not `@domain,@domain:`.
    Route,
    /// Something follows where the value should end.
    Trailing,
}

impl AddressReason {
    /// The reason in words, to follow "because".
    const fn text(self) -> &'static str {
        match self {
            Self::Empty => "it is empty",
            Self::NotUtf8 => "it is not UTF-8",
            Self::Control => "it has a control character",
            Self::Character => "it has a character that cannot stand there",
            Self::Dot => "a dot stands first, last or beside another",
            Self::NoLocalPart => "nothing stands before the @",
            Self::NoDomain => "it has no domain",
            Self::OpenQuote => "a quote is not closed",
            Self::AfterQuote => "text follows the quoted part",
            Self::QuotedPair => "the backslash quotes nothing it can",
            Self::OpenLiteral => "a bracket is not closed",
            Self::Literal => "the brackets hold no IP address; IPv6 needs the prefix IPv6:",
            Self::Hyphen => "a label of the domain begins or ends with a hyphen",
            Self::Idna => "the domain is no valid internationalised name",
            Self::LabelTooLong => "a label of the domain is longer than 63 octets",
            Self::DomainTooLong => "the domain is too long",
            Self::TooLong => "it is longer than 254 octets",
            Self::NoBracket => "it does not begin with <",
            Self::Open => "its closing mark is missing",
            Self::Route => "its source route is malformed",
            Self::Trailing => "something follows its end",
        }
    }
}

/// A value that is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    value: Box<str>,
    position: usize,
    reason: AddressReason,
}

impl AddressError {
    pub(crate) fn new(value: &[u8], fault: AddressParseError) -> Self {
        let shown = value.get(..VALUE_BYTES_MAX).unwrap_or(value);
        let mut text = String::new();
        for chunk in shown.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() { text.extend(c.escape_unicode()) } else { text.push(c) }
            }
            text.extend(chunk.invalid().escape_ascii().map(char::from));
        }
        Self { value: text.into(), position: fault.at, reason: fault.reason }
    }

    /// The refused value, up to 320 bytes of it, fit to print: controls and bytes that are not UTF-8 are escaped.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Offset in bytes of the fault in the value as it was given.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// The reason.
    #[must_use]
    pub const fn reason(&self) -> AddressReason {
        self.reason
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address \"{}\" refused at byte {}: {}", self.value, self.position, self.reason.text())
    }
}

impl std::error::Error for AddressError {}

/// A reason and its place, on the way out of a parser that does not hold the whole value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressParseError {
    pub(crate) at: usize,
    pub(crate) reason: AddressReason,
}

impl AddressParseError {
    pub(crate) const fn new(at: usize, reason: AddressReason) -> Self {
        Self { at, reason }
    }

    /// Counts the place from the beginning of a value in which the parsed part stands at `offset`.
    pub(crate) const fn shifted(self, offset: usize) -> Self {
        Self { at: self.at + offset, reason: self.reason }
    }
}
