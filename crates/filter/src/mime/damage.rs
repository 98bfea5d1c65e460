//! The faults of a MIME structure that rules can ask for.
//!
//! Two readers understand damaged structure differently, and that is how an attachment passes a scanner. The walk goes
//! on past each fault and notes it.

use std::fmt;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// A line of a header section is no field.
    MalformedHeader,
    /// A part has two Content-Type, Content-Disposition or Content-Transfer-Encoding fields that differ.
    RepeatedField,
    /// A Content-Type field cannot be read.
    BadContentType,
    /// A multipart has no boundary parameter, or one that no delimiter line can hold.
    NoBoundary,
    /// A multipart has no delimiter line.
    NoDelimiter,
    /// A multipart ends without its closing delimiter.
    Unterminated,
    /// A line begins like a delimiter and goes on after the boundary.
    AmbiguousDelimiter,
    /// A delimiter line stands between bare line feeds in a message whose lines end with CRLF.
    BareLineFeed,
    /// A multipart or embedded message is encoded as a whole.
    EncodedStructure,
    /// Base64 has foreign characters or ends in the middle of an octet.
    BadBase64,
    /// Quoted-printable has `=` without two hexadecimal digits.
    BadQuotedPrintable,
    /// A Content-Transfer-Encoding is not known.
    UnknownEncoding,
    /// A charset is not known, or one that hides text from scanners (UTF-7, HZ).
    UnknownCharset,
    /// Octets are none of their charset.
    BadText,
    /// The names of an attachment differ between its fields or between readers.
    NamesDiffer,
}

impl Damage {
    /// All faults in the order of the documentation.
    pub const ALL: [Self; 15] = [
        Self::MalformedHeader,
        Self::RepeatedField,
        Self::BadContentType,
        Self::NoBoundary,
        Self::NoDelimiter,
        Self::Unterminated,
        Self::AmbiguousDelimiter,
        Self::BareLineFeed,
        Self::EncodedStructure,
        Self::BadBase64,
        Self::BadQuotedPrintable,
        Self::UnknownEncoding,
        Self::UnknownCharset,
        Self::BadText,
        Self::NamesDiffer,
    ];

    /// Returns the word for the fault in rules and explanations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MalformedHeader => "malformed-header",
            Self::RepeatedField => "repeated-field",
            Self::BadContentType => "bad-content-type",
            Self::NoBoundary => "no-boundary",
            Self::NoDelimiter => "no-delimiter",
            Self::Unterminated => "unterminated",
            Self::AmbiguousDelimiter => "ambiguous-delimiter",
            Self::BareLineFeed => "bare-line-feed",
            Self::EncodedStructure => "encoded-structure",
            Self::BadBase64 => "bad-base64",
            Self::BadQuotedPrintable => "bad-quoted-printable",
            Self::UnknownEncoding => "unknown-encoding",
            Self::UnknownCharset => "unknown-charset",
            Self::BadText => "bad-text",
            Self::NamesDiffer => "names-differ",
        }
    }

    /// Finds a fault by its word.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|damage| damage.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of faults.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct DamageSet(u32);

impl DamageSet {
    /// Adds a fault.
    pub const fn add(&mut self, damage: Damage) {
        self.0 |= 1 << damage as u32;
    }

    /// Adds a fault if `is_found`.
    pub const fn add_if(&mut self, is_found: bool, damage: Damage) {
        if is_found {
            self.add(damage);
        }
    }

    /// Adds all faults of another set.
    pub const fn extend(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether the set has the fault.
    #[must_use]
    pub const fn has(self, damage: Damage) -> bool {
        self.0 & (1 << damage as u32) != 0
    }

    /// Whether no fault was found.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Walks over the faults.
    pub fn iter(self) -> impl Iterator<Item = Damage> {
        Damage::ALL.into_iter().filter(move |damage| self.has(*damage))
    }
}

impl fmt::Debug for DamageSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
