//! What a server offers in its reply to EHLO or LHLO.

/// What a server offers. The default is what one offers that knows only HELO: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// PIPELINING (RFC 2920)
    pub pipelining: bool,
    /// CHUNKING (RFC 3030)
    pub chunking: bool,
    /// 8BITMIME (RFC 6152)
    pub eight_bit_mime: bool,
    /// BINARYMIME (RFC 3030)
    pub binary_mime: bool,
    /// SMTPUTF8 (RFC 6531)
    pub smtputf8: bool,
    /// DSN (RFC 3461)
    pub dsn: bool,
    /// STARTTLS (RFC 3207)
    pub starttls: bool,
    /// ENHANCEDSTATUSCODES (RFC 2034)
    pub enhanced: bool,
    /// AUTH (RFC 4954)
    pub auth: bool,
    /// DELIVERBY (RFC 2852)
    pub deliverby: bool,
    /// REQUIRETLS (RFC 8689)
    pub requiretls: bool,
    /// MT-PRIORITY (RFC 6710)
    pub mt_priority: bool,
    /// FUTURERELEASE (RFC 4865)
    pub future_release: bool,
    /// SIZE (RFC 1870): `None` when it is not offered, `Some(0)` when no limit is told.
    pub size: Option<u64>,
    /// LIMITS (RFC 9422)
    pub limits: PeerLimits,
}

/// Limits that a server tells (RFC 9422 §4); `None` when it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerLimits {
    /// MAILMAX: transactions in a session.
    pub transactions: Option<u32>,
    /// RCPTMAX: recipients in a transaction.
    pub recipients: Option<u32>,
    /// RCPTDOMAINMAX: domains of recipients in a transaction.
    pub domains: Option<u32>,
}
