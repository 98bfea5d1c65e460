//! The offers and limits of a listener. One value is shared by all its sessions and replaced as a whole by a reload.

use std::time::Duration;

/// The variant of the protocol that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// SMTP between servers (RFC 5321).
    Smtp,
    /// Mail from users (RFC 6409): AUTH may be demanded before MAIL.
    Submission,
    /// Local delivery with one reply per recipient (RFC 2033).
    Lmtp,
    /// A process on standard input: SMTP without a network, sendmail's `-bs`.
    Stdin,
}

/// The treatment of a CR without LF or a LF without CR. No choice ever lets one end DATA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BareNewline {
    /// The message is refused after its end; a command line with one is refused.
    #[default]
    Reject,
    /// `Normalize` for clients of one's own ([`super::Session::trust_client`]), `Reject` for all others.
    Own,
    /// Each becomes CRLF in the content; a command line may end with LF alone.
    Normalize,
}

/// Which clients may leave the grammar of commands where their meaning is plain: addresses without brackets, blanks,
/// no HELO, parameters behind HELO, HELO names that are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Forgiving {
    /// No client.
    #[default]
    None,
    /// Clients of one's own ([`super::Session::trust_client`]).
    Own,
    /// All clients.
    All,
}

/// How AUTH is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthOffer {
    /// Mechanism names in the order of preference, upper case; empty for no AUTH.
    pub mechanisms: Vec<Box<str>>,
    /// Offer it on connections without TLS too.
    pub without_tls: bool,
    /// Refuse MAIL before it has succeeded (`530 5.7.0`).
    pub required: bool,
}

/// The offers and limits of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Our name in the greeting, in the reply to EHLO and in trace lines.
    pub hostname: Box<str>,
    /// The variant of the protocol.
    pub dialect: Dialect,
    /// Offer STARTTLS.
    pub starttls: bool,
    /// Refuse everything but EHLO, NOOP, STARTTLS and QUIT before TLS (`530 5.7.0`).
    pub tls_required: bool,
    /// AUTH.
    pub auth: AuthOffer,
    /// Offer VRFY and EXPN; otherwise they are answered 252 and 502 without a question.
    pub verify: bool,
    /// With `verify`: offer EXPN too; otherwise it is answered 502 without a question.
    pub expand: bool,
    /// Offer DSN.
    pub dsn: bool,
    /// Offer PIPELINING. Commands that come together are carried out all the same.
    pub pipelining: bool,
    /// Bare CR or LF.
    pub bare_newline: BareNewline,
    /// Commands that leave the grammar.
    pub forgiving: Forgiving,
    /// Offer MT-PRIORITY.
    pub mt_priority: bool,
    /// Offer DELIVERBY; the least time for mode R, none told if zero. `554 5.4.7`
    pub deliver_by: Option<Duration>,
    /// Offer FUTURERELEASE where mail is submitted, for a hold of at most this, and only if
    /// [`super::Session::begins_at`] has told the time. `501 5.5.4`
    pub future_release: Option<Duration>,
    /// Limits.
    pub limits: Limits,
}

/// Limits of one session. Each has a reply; reaching it is noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of a message as it is stored, without our trace line. Offered as SIZE. `552 5.3.4`
    pub message_bytes: u64,
    /// Recipients of a transaction. Offered as LIMITS RCPTMAX. `452 4.5.3`
    pub recipients: u32,
    /// Transactions of a session. Offered as LIMITS MAILMAX; 0 for no limit. `421 4.7.0`
    pub transactions: u32,
    /// Octets of a command line with its line end. RFC 5321 §4.5.3.1.4 and the extensions ask for less. `500 5.5.2`
    pub command_line_bytes: usize,
    /// Octets of an AUTH line with its line end (RFC 4954 §4). `500 5.5.6`
    pub auth_line_bytes: usize,
    /// Octets of a line of content with its line end; 0 for no limit. `554 5.6.0`
    pub content_line_bytes: usize,
    /// Fields in the header section. `554 5.6.0`
    pub header_fields: u32,
    /// Octets of the header section. `554 5.6.0`
    pub header_bytes: u64,
    /// `Received:` fields before the message counts as looping. `554 5.4.6`
    pub hops: u32,
    /// Commands of a session that did not work before it is closed. `421 4.7.0`
    pub errors: u32,
    /// Recipients refused in a session before it is closed. `421 4.7.0`
    pub refused_recipients: u32,
    /// Commands that do nothing (NOOP, RSET, VRFY, EXPN, HELP, EHLO again) between two messages. `421 4.7.0`
    pub idle_commands: u32,
    /// Waiting for a command, or for the first octets of DATA. `421 4.4.2`
    pub command_time: Duration,
    /// From MAIL to the end of the message. `421 4.4.2`
    pub transaction_time: Duration,
    /// The whole session. `421 4.4.2`
    pub session_time: Duration,
    /// Octets a second of content, averaged over each `rate_window`; 0 for no limit. `421 4.4.2`
    pub rate_bytes: u64,
    /// Over what time the rate of content is measured; also how long content may pause.
    pub rate_window: Duration,
    /// Content kept before [`super::Step::Content`] hands it over, and before it counts as large.
    pub content_piece_bytes: usize,
}

impl Settings {
    /// SMTP under the name `hostname`, with default limits, without TLS and AUTH.
    #[must_use]
    pub fn new(hostname: &str) -> Self {
        Self {
            hostname: hostname.into(),
            dialect: Dialect::Smtp,
            starttls: false,
            tls_required: false,
            auth: AuthOffer::default(),
            verify: false,
            expand: true,
            dsn: true,
            pipelining: true,
            bare_newline: BareNewline::default(),
            forgiving: Forgiving::default(),
            mt_priority: false,
            deliver_by: None,
            future_release: None,
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 50 << 20,
            recipients: 1_000,
            transactions: 0,
            command_line_bytes: 4_096,
            auth_line_bytes: 12_288,
            content_line_bytes: 0,
            header_fields: 1_000,
            header_bytes: 256 << 10,
            hops: 50,
            errors: 20,
            refused_recipients: 100,
            idle_commands: 100,
            command_time: Duration::from_secs(300),
            transaction_time: Duration::from_secs(3_600),
            session_time: Duration::from_secs(24 * 3_600),
            rate_bytes: 100,
            rate_window: Duration::from_secs(180),
            content_piece_bytes: 64 << 10,
        }
    }
}
