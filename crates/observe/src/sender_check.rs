//! Methods of sender authentication and their results, as log and counters name them.

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CheckMethod {
    /// The reverse look-up of the client's address.
    Iprev,
    /// The right of the client to send for the domain.
    Spf,
    /// Signatures.
    Dkim,
    /// The domain in From.
    Dmarc,
    /// The chain of relays before us.
    Arc,
}

impl CheckMethod {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Iprev, Self::Spf, Self::Dkim, Self::Dmarc, Self::Arc];

    /// Returns its word in the log and in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iprev => "iprev",
            Self::Spf => "spf",
            Self::Dkim => "dkim",
            Self::Dmarc => "dmarc",
            Self::Arc => "arc",
        }
    }
}

/// A result.
// RFC 8601 §2.7
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CheckResult {
    /// There is nothing to check.
    None,
    /// The method vouches for the message.
    Pass,
    /// It does not.
    Fail,
    /// The domain says that the client probably may not send.
    SoftFail,
    /// The domain says nothing about the client.
    Neutral,
    /// The signature is not accepted here.
    Policy,
    /// The DNS could not tell.
    TempError,
    /// A record or signature cannot be used.
    PermError,
}

impl CheckResult {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Pass,
        Self::Fail,
        Self::SoftFail,
        Self::Neutral,
        Self::Policy,
        Self::TempError,
        Self::PermError,
    ];

    /// Returns the result with this word; `None` for another word.
    #[must_use]
    pub fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|result| result.name() == word).unwrap_or(Self::None)
    }

    /// Returns its word in the log and in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::SoftFail => "softfail",
            Self::Neutral => "neutral",
            Self::Policy => "policy",
            Self::TempError => "temperror",
            Self::PermError => "permerror",
        }
    }
}
