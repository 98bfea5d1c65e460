//! The SMTP extensions whose parameters an envelope may carry, and sets of them.
//!
//! A server compares the set that a command uses with the set it offered; a client compares it with the set of the next
//! hop.

use std::fmt;

/// An extension, by its EHLO keyword.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Extension {
    /// `SIZE` (RFC 1870)
    Size,
    /// `8BITMIME` (RFC 6152)
    EightBitMime,
    /// `BINARYMIME` (RFC 3030)
    BinaryMime,
    /// `SMTPUTF8` (RFC 6531)
    SmtpUtf8,
    /// `DSN` (RFC 3461)
    Dsn,
    /// `AUTH` (RFC 4954)
    Auth,
    /// `MT-PRIORITY` (RFC 6710)
    MtPriority,
    /// `REQUIRETLS` (RFC 8689)
    RequireTls,
    /// `FUTURERELEASE` (RFC 4865)
    FutureRelease,
    /// `DELIVERBY` (RFC 2852)
    DeliverBy,
}

impl Extension {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Size,
        Self::EightBitMime,
        Self::BinaryMime,
        Self::SmtpUtf8,
        Self::Dsn,
        Self::Auth,
        Self::MtPriority,
        Self::RequireTls,
        Self::FutureRelease,
        Self::DeliverBy,
    ];

    /// The keywords of its parameters of MAIL and RCPT.
    #[must_use]
    pub const fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Size => &["SIZE"],
            Self::EightBitMime | Self::BinaryMime => &["BODY"],
            Self::SmtpUtf8 => &["SMTPUTF8"],
            Self::Dsn => &["RET", "ENVID", "NOTIFY", "ORCPT"],
            Self::Auth => &["AUTH"],
            Self::MtPriority => &["MT-PRIORITY"],
            Self::RequireTls => &["REQUIRETLS"],
            Self::FutureRelease => &["HOLDFOR", "HOLDUNTIL"],
            Self::DeliverBy => &["BY"],
        }
    }

    /// The keyword in the reply to EHLO.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Size => "SIZE",
            Self::EightBitMime => "8BITMIME",
            Self::BinaryMime => "BINARYMIME",
            Self::SmtpUtf8 => "SMTPUTF8",
            Self::Dsn => "DSN",
            Self::Auth => "AUTH",
            Self::MtPriority => "MT-PRIORITY",
            Self::RequireTls => "REQUIRETLS",
            Self::FutureRelease => "FUTURERELEASE",
            Self::DeliverBy => "DELIVERBY",
        }
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.keyword())
    }
}

/// A set of extensions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extensions(u16);

impl Extensions {
    /// Whether `extension` is in the set.
    #[must_use]
    pub const fn contains(self, extension: Extension) -> bool {
        self.0 & (1 << extension as u8) != 0
    }

    /// The set with one more extension.
    #[must_use]
    pub const fn with(self, extension: Extension) -> Self {
        Self(self.0 | (1 << extension as u8))
    }

    /// Returns the extensions in this set and not in `offered`.
    #[must_use]
    pub const fn without(self, offered: Self) -> Self {
        Self(self.0 & !offered.0)
    }

    /// The members in the order of [`Extension::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Extension> {
        Extension::ALL.into_iter().filter(move |extension| self.contains(*extension))
    }
}

impl FromIterator<Extension> for Extensions {
    fn from_iter<I: IntoIterator<Item = Extension>>(extensions: I) -> Self {
        extensions.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
