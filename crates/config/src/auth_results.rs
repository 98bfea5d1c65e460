//! Settings of sender authentication: `[auth_results]`, and the effects that listeners give to failures.

use mail::DomainName;
use std::time::Duration;

/// Checks of senders, and the field about their results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthResults {
    /// The checks that are made; none: nothing is checked.
    pub checks: Vec<SenderCheck>,
    /// The name of this server in the field.
    pub id: String,
    /// How long the DNS has for a message, before and after its content has come.
    pub time_max: Duration,
    /// The effect of a failure for a domain with `p=reject`.
    pub dmarc_reject: SenderFailure,
    /// The effect of a failure for a domain with `p=quarantine`.
    pub dmarc_quarantine: SenderFailure,
    /// The effect of a failed SPF.
    pub spf_fail: SenderFailure,
    /// The effect of an address without a name that leads back to it.
    pub iprev_fail: SenderFailure,
    /// The effect of a check that gets no answer from the DNS.
    pub temperror: SenderTempError,
    /// Accept messages with several From fields, or with several domains in it.
    pub several_from: bool,
    /// Domains, with all below them, whose ARC seals make up for a failed DMARC.
    pub trusted_arc_sealers: Vec<DomainName>,
}

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderCheck {
    /// The reverse look-up of the client's address.
    Iprev,
    /// SPF.
    Spf,
    /// DKIM.
    Dkim,
    /// DMARC.
    Dmarc,
    /// ARC.
    Arc,
}

/// The effect of a failed check, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SenderFailure {
    /// The result is reported, nothing else.
    None,
    /// The message gets a header field that names the failure.
    Tag,
    /// It is held in quarantine.
    Quarantine,
    /// It is refused.
    Reject,
}

/// The effect of a check that gets no answer from the DNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderTempError {
    /// The message passes.
    Pass,
    /// The client tries again.
    Defer,
}
