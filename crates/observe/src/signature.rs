//! The kinds of signatures that the server makes, as log and counters name them.

/// A kind of signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SignatureKind {
    /// A DKIM signature of own mail.
    Dkim,
    /// An ARC set on forwarded mail of others.
    Arc,
}

impl SignatureKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Dkim, Self::Arc];

    /// Returns its word in the log and in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dkim => "dkim",
            Self::Arc => "arc",
        }
    }
}
