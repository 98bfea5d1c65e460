//! How a client speaks and how long it waits. One value is shared by all sessions with a kind of next hop.

use std::sync::Arc;
use std::time::Duration;

use super::login::Login;

/// The variant of the protocol that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientDialect {
    /// SMTP (RFC 5321).
    #[default]
    Smtp,
    /// Local delivery with one reply per recipient (RFC 2033).
    Lmtp,
}

/// Whether the connection is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TlsUse {
    /// STARTTLS is never said.
    Never,
    /// STARTTLS when it is offered. A server that offers it and then refuses it is spoken to in clear.
    #[default]
    IfOffered,
    /// The session ends before a transaction when STARTTLS is not offered or refused.
    Required,
}

/// How a client speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The variant of the protocol.
    pub dialect: ClientDialect,
    /// The argument of EHLO, HELO or LHLO: a name, or an address literal with its brackets.
    pub hello: Box<str>,
    /// Encryption.
    pub tls: TlsUse,
    /// The login, before the first transaction.
    pub login: Option<Arc<Login>>,
    /// Use PIPELINING where it is offered.
    pub pipelining: bool,
    /// Use CHUNKING where it is offered.
    pub chunking: bool,
    /// Use SIZE where it is offered.
    pub size: bool,
    /// Use 8BITMIME where it is offered.
    pub eight_bit_mime: bool,
    /// Use DSN where it is offered.
    pub dsn: bool,
    /// Limits.
    pub limits: ClientLimits,
}

/// Limits of one session. Times begin when the last octet was sent or the last reply was complete, whichever is later.
// RFC 5321 §4.5.3.2: the defaults
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Waiting for the greeting.
    pub greeting: Duration,
    /// Waiting for the reply to EHLO, HELO or LHLO, and for each reply to AUTH.
    pub hello: Duration,
    /// Waiting for the reply to STARTTLS, and for the handshake.
    pub tls: Duration,
    /// Waiting for the reply to MAIL.
    pub mail: Duration,
    /// Waiting for the reply to RCPT.
    pub rcpt: Duration,
    /// Waiting for the 354 to DATA.
    pub data: Duration,
    /// Output goes without progress for this long.
    pub block: Duration,
    /// Waiting for the reply to the content.
    pub end: Duration,
    /// Waiting for the reply to RSET.
    pub rset: Duration,
    /// Waiting for the reply to RSET, MAIL, RCPT and DATA while the server can have no message whole, if that is less.
    /// A client that gives up then makes no duplicate. No limit by default.
    pub hurry: Duration,
    /// From the beginning of a transaction, or the end of the one before it, until all of it was sent; then `end` more
    /// until all is answered. It ends those that take or say a little now and then. 30 minutes.
    pub transaction: Duration,
    /// Waiting for a reply after a line without a code came in its place, if that is less than the time of the command
    /// and the server can have no message whole.
    pub noise: Duration,
    /// Waiting for the reply to QUIT, and for the end of a connection whose end the server has announced with 421.
    pub farewell: Duration,
    /// Octets that are kept of a line of a reply.
    pub reply_line_octets: usize,
    /// Lines that are kept of a reply.
    pub reply_lines: usize,
    /// Octets of a reply, with the octets skipped before it and in it; more end the session.
    pub reply_octets: usize,
    /// Transactions that may be open at a time.
    pub transactions_ahead: usize,
    /// Octets of content that may be sent before the recipients are known to be accepted, in all open transactions
    /// together; also octets of output that may wait before more content is asked for.
    pub content_ahead_octets: usize,
}

impl ClientSettings {
    /// SMTP as `hello`, with default limits, with all that the server offers.
    #[must_use]
    pub fn new(hello: &str) -> Self {
        Self {
            dialect: ClientDialect::Smtp,
            hello: hello.into(),
            tls: TlsUse::IfOffered,
            login: None,
            pipelining: true,
            chunking: true,
            size: true,
            eight_bit_mime: true,
            dsn: true,
            limits: ClientLimits::default(),
        }
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        Self {
            // RFC 5321 §4.5.3.2.1: greeting
            greeting: minutes(5),
            hello: minutes(5),
            tls: minutes(2),
            // RFC 5321 §4.5.3.2.2: MAIL
            mail: minutes(5),
            // RFC 5321 §4.5.3.2.3: RCPT
            rcpt: minutes(5),
            // RFC 5321 §4.5.3.2.4: DATA
            data: minutes(2),
            // RFC 5321 §4.5.3.2.5: a block of content
            block: minutes(3),
            // RFC 5321 §4.5.3.2.6: the end of the content
            end: minutes(10),
            rset: minutes(2),
            hurry: Duration::MAX,
            transaction: minutes(30),
            noise: Duration::from_secs(10),
            farewell: Duration::from_secs(5),
            reply_line_octets: 2_048,
            reply_lines: 200,
            reply_octets: 512 << 10,
            transactions_ahead: 4,
            content_ahead_octets: 256 << 10,
        }
    }
}
