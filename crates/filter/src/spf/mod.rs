//! SPF (RFC 7208): whether a client may send mail in the name of a domain.
//!
//! [`check`] is called again with each answer of the DNS that it asks for, until it has a result; work before a missing
//! answer is repeated, and is little. The limits of RFC 7208 §4.6.4 bound it: ten terms that ask the DNS, ten addresses
//! of an `mx` or `ptr`, and [`VOID_LOOKUPS_MAX`].

mod evaluation;
mod expand;
mod record;

pub use evaluation::{VOID_LOOKUPS_MAX, check};

use std::fmt;
use std::net::IpAddr;

/// The sender whose right is asked for.
#[derive(Clone, Copy, Debug)]
pub struct SpfRequest<'a> {
    /// The address of the client.
    pub ip: IpAddr,
    /// Its name in HELO or EHLO.
    pub helo: &'a str,
    /// The sender of the envelope; empty for reports, which are checked as `postmaster@HELO`.
    pub sender: &'a str,
    /// The name of this host, for explanations.
    pub receiver: &'a str,
    /// Seconds since 1970, for explanations.
    pub time: u64,
}

/// The result of a check, as `Authentication-Results` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpfCode {
    /// The domain has no record, or there is no domain.
    None,
    /// The domain says nothing about the client.
    Neutral,
    /// The client may send.
    Pass,
    /// The client may not send.
    Fail,
    /// The client probably may not send.
    SoftFail,
    /// The DNS cannot tell now.
    TempError,
    /// The record cannot be used.
    PermError,
}

impl SpfCode {
    /// Returns its word.
    // RFC 8601 §2.7.2
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Neutral => "neutral",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::SoftFail => "softfail",
            Self::TempError => "temperror",
            Self::PermError => "permerror",
        }
    }
}

impl fmt::Display for SpfCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A result with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpfResult {
    /// The result.
    pub code: SpfCode,
    /// The domain that was checked.
    pub domain: String,
    /// The term that decided, or the fault.
    pub reason: String,
    /// The words of the domain for a `fail`. They are text of a stranger.
    pub explanation: Option<String>,
}
