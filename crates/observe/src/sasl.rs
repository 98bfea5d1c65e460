//! Failed logins, in the words of the library that sendmail uses.

/// Why a login failed, by the results of the Cyrus SASL library, whose words sendmail's log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslError {
    /// `SASL_FAIL`: it could not be checked.
    Generic,
    /// `SASL_NOMECH`: the mechanism is not offered.
    Mechanism,
    /// `SASL_BADPROT`: no message of the mechanism, or given up.
    Protocol,
    /// `SASL_BADAUTH`: no such user, or the password is wrong.
    Credentials,
}

impl SaslError {
    /// The number of the result.
    #[must_use]
    pub const fn number(self) -> i8 {
        match self {
            Self::Generic => -1,
            Self::Mechanism => -4,
            Self::Protocol => -5,
            Self::Credentials => -13,
        }
    }

    /// The words of the library for it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Generic => "generic failure",
            Self::Mechanism => "no mechanism available",
            Self::Protocol => "bad protocol / cancel",
            Self::Credentials => "authentication failure",
        }
    }
}
