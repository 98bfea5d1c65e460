//! SPF (RFC 7208): whether a client may send mail in the name of a domain.
//!
//! [`check`] is called again with each answer of the DNS that it asks for, until it has a result; work before a missing
//! answer is repeated, and is little. The limits of RFC 7208 §4.6.4 bound it: ten terms that ask the DNS, ten addresses
//! of an `mx` or `ptr`, and [`VOID_LOOKUPS_MAX`].

mod evaluation;
mod expand;
mod record;

pub use evaluation::{VOID_LOOKUPS_MAX, check};

use crate::result_code::result_code;
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

result_code! {
    /// The result of a check, as `Authentication-Results` names it.
    SpfCode {
        /// The domain has no record, or there is no domain.
        None = "none",
        /// The domain says nothing about the client.
        Neutral = "neutral",
        /// The client may send.
        Pass = "pass",
        /// The client may not send.
        Fail = "fail",
        /// The client probably may not send.
        SoftFail = "softfail",
        /// The DNS cannot tell now.
        TempError = "temperror",
        /// The record cannot be used.
        PermError = "permerror",
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
