//! Every reply that the session makes by itself, in one table.
//!
//! Texts follow sendmail's, which clients and log readers know. Codes come from the RFC named beside them, enhanced
//! codes from RFC 3463 and RFC 5248. Foreign bytes are cut and made printable before they stand in a reply.

use std::borrow::Cow;
use std::fmt::Write as _;

use mail::{EnhancedCode, HoldSeconds, HoldTime, Reply, ReplyCode};

use super::content::ContentError;
use super::settings::Limits;

/// Octets of a foreign word that a reply or a note repeats.
pub(super) const SHOWN_OCTETS: usize = 64;

/// A refusal that no driver was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal<'a> {
    Unrecognized(&'a [u8]),
    NotImplemented,
    Syntax(&'static str),
    NoParameters(&'static str),
    HeloName,
    BareNewline,
    ControlCharacter,
    LineTooLong,
    AuthLineTooLong,
    HeloFirst,
    NestedMail,
    MailFirst(&'static str),
    RecipientFirst(&'static str),
    DuringChunks(&'static str),
    NotAfterChunks,
    BinaryNeedsChunks,
    DuringTransaction(&'static str),
    SenderSyntax(String),
    RecipientSyntax(String),
    NeedsSmtpUtf8,
    Parameter(String),
    UnknownParameter(String),
    TooManyRecipients,
    MessageSize(u64),
    HeldTooLong(HoldSeconds, HoldTime),
    HeldUntilPast,
    TooSoon(u64),
    ChunkSyntax,
    TurnedAway,
    TlsFirst,
    TlsActive,
    AuthFirst,
    AuthNeedsTls,
    AuthTwice,
    AuthMechanism,
    AuthCancelled,
    AuthCoding,
    XclientSyntax(&'static str),
    NoExpand,
    NoSuchHere,
    Content(ContentError),
}

/// Why the session is closed, always with 421.
// RFC 5321 §3.8, §4.2.2: a server that closes says 421
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    ShutDown,
    TimedOut,
    TooSlow,
    SessionTooLong,
    TooManyErrors,
    TooManyRefused,
    TooManyIdle,
    TooManyTransactions,
    Foreign,
    AfterNewline,
    AfterChunk,
}

impl CloseReason {
    pub(super) fn reply(self, host: &str) -> Reply {
        let (status, text) = match self {
            Self::ShutDown => ("4.3.2", "Shutting down, closing connection"),
            Self::TimedOut => ("4.4.2", "Timeout, closing connection"),
            Self::TooSlow => ("4.4.2", "Content comes too slowly, closing connection"),
            Self::SessionTooLong => ("4.4.2", "Session lasts too long, closing connection"),
            Self::TooManyErrors => ("4.7.0", "Too many errors, closing connection"),
            Self::TooManyRefused => ("4.7.0", "Too many refused recipients, closing connection"),
            Self::TooManyIdle => ("4.7.0", "Too many commands without mail, closing connection"),
            Self::TooManyTransactions => ("4.7.0", "Too many messages in this session, closing connection"),
            Self::Foreign => ("4.7.0", "This is not SMTP, closing connection"),
            Self::AfterNewline => ("4.7.0", "What follows cannot be told apart, closing connection"),
            Self::AfterChunk => ("4.7.0", "Length of the chunk is unknown, closing connection"),
        };
        Reply::new(ReplyCode::of(421), status.parse().ok(), &format!("{host} {text}"))
    }
}

impl Refusal<'_> {
    /// The reply.
    pub(super) fn reply(&self, limits: &Limits) -> Reply {
        let (code, status, text) = self.parts(limits);
        // RFC 6531 §3.7.4.1: replies are ASCII for a client that did not ask for more; other characters come from
        // foreign text here
        let text = if text.is_ascii() { text } else { text.replace(|c: char| !c.is_ascii(), "?").into() };
        Reply::new(ReplyCode::of(code), status.parse::<EnhancedCode>().ok(), &text)
    }

    fn parts(&self, limits: &Limits) -> (u16, &'static str, Cow<'static, str>) {
        let own = |code, status, text: String| (code, status, Cow::Owned(text));
        let fixed = |code, status, text: &'static str| (code, status, Cow::Borrowed(text));
        match self {
            // RFC 5321 §4.2.4: 500 for an unknown command, 502 for a known one that is not there
            Self::Unrecognized(verb) => own(500, "5.5.1", format!("Command unrecognized: \"{}\"", printable(verb))),
            Self::NotImplemented => fixed(502, "5.5.1", "Command not implemented"),
            Self::Syntax(usage) => own(501, "5.5.2", format!("Syntax error, expected: {usage}")),
            // RFC 5321 §4.1.1: a parameter where none is allowed gets 501
            Self::NoParameters(verb) => own(501, "5.5.4", format!("{verb} takes no parameters")),
            Self::HeloName => fixed(501, "5.5.2", "Give a domain name or an address literal"),
            Self::BareNewline => fixed(500, "5.5.2", "Bare <CR> or <LF> in a command, lines end with <CR><LF>"),
            Self::ControlCharacter => fixed(500, "5.5.2", "Control character in a command"),
            // RFC 5321 §4.5.3.1.9
            Self::LineTooLong => fixed(500, "5.5.2", "Line too long"),
            // RFC 4954 §4: 500 5.5.6 for an AUTH line that is too long
            Self::AuthLineTooLong => fixed(500, "5.5.6", "Authentication exchange line is too long"),
            Self::HeloFirst => fixed(503, "5.5.1", "Polite people say HELO first"),
            Self::NestedMail => fixed(503, "5.5.1", "Sender already specified"),
            Self::MailFirst(verb) => own(503, "5.5.1", format!("Need MAIL before {verb}")),
            Self::RecipientFirst(verb) => own(503, "5.5.1", format!("Need RCPT (recipient) before {verb}")),
            Self::DuringChunks(verb) => own(503, "5.5.1", format!("{verb} not allowed between BDAT commands")),
            Self::NotAfterChunks => fixed(503, "5.5.1", "DATA and BDAT cannot be mixed"),
            Self::BinaryNeedsChunks => fixed(503, "5.5.1", "BODY=BINARYMIME requires BDAT"),
            Self::DuringTransaction(verb) => own(503, "5.5.1", format!("{verb} not allowed during a mail transaction")),
            // RFC 3463 §3.2: X.1.7 and X.1.3 are bad syntax of sender and recipient
            Self::SenderSyntax(why) => own(501, "5.1.7", format!("Sender address not understood: {why}")),
            Self::RecipientSyntax(why) => own(501, "5.1.3", format!("Recipient address not understood: {why}")),
            // RFC 6531 §3.5
            Self::NeedsSmtpUtf8 => fixed(553, "5.6.7", "Address is not ASCII and SMTPUTF8 was not requested"),
            Self::Parameter(why) => own(501, "5.5.4", why.clone()),
            // RFC 5321 §4.1.1.11
            Self::UnknownParameter(why) => own(555, "5.5.4", why.clone()),
            // RFC 5321 §4.5.3.1.10
            Self::TooManyRecipients => fixed(452, "4.5.3", "Too many recipients"),
            // RFC 1870 §6.1, §6.3
            Self::MessageSize(max) => own(552, "5.3.4", format!("Message size exceeds maximum of {max} octets")),
            // RFC 4865 §4.2
            Self::HeldTooLong(longest, latest) => {
                own(501, "5.5.4", format!("Held for at most {longest} seconds, until {latest} at the latest"))
            }
            Self::HeldUntilPast => fixed(501, "5.5.4", "HOLDUNTIL is over"),
            // RFC 2852 §4: 555 for a well-formed value that cannot be honoured
            Self::TooSoon(least) => own(555, "5.5.4", format!("Delivery in less than {least} seconds is not promised")),
            Self::ChunkSyntax => fixed(501, "5.5.4", "Syntax error, expected: BDAT SIZE [LAST]"),
            Self::TurnedAway => fixed(503, "5.5.1", "No service here, only QUIT is left"),
            // RFC 3207 §4
            Self::TlsFirst => fixed(530, "5.7.0", "Must issue a STARTTLS command first"),
            Self::TlsActive => fixed(503, "5.5.1", "TLS is already active"),
            // RFC 4954 §6
            Self::AuthFirst => fixed(530, "5.7.0", "Authentication required"),
            Self::AuthNeedsTls => fixed(538, "5.7.11", "Encryption required for authentication"),
            Self::AuthTwice => fixed(503, "5.5.1", "Already authenticated"),
            Self::AuthMechanism => fixed(504, "5.5.4", "Authentication mechanism not offered"),
            Self::AuthCancelled => fixed(501, "5.7.0", "Authentication cancelled"),
            Self::AuthCoding => fixed(501, "5.5.2", "Cannot decode base64"),
            Self::XclientSyntax(why) => own(501, "5.5.4", format!("Bad XCLIENT attribute: {why}")),
            Self::NoExpand => fixed(502, "5.7.0", "Sorry, we do not allow this operation"),
            Self::NoSuchHere => fixed(550, "5.1.1", "User unknown"),
            Self::Content(problem) => content(*problem, limits),
        }
    }
}

fn content(problem: ContentError, limits: &Limits) -> (u16, &'static str, Cow<'static, str>) {
    let own = |code, status, text: String| (code, status, Cow::Owned(text));
    match problem {
        ContentError::BareNewline => (
            554,
            "5.6.0",
            Cow::Borrowed("Bare <CR> or <LF> in the message, lines end with <CR><LF> (RFC 5321 section 2.3.8)"),
        ),
        ContentError::Nul => (554, "5.6.0", Cow::Borrowed("NUL in the message (RFC 5322 section 4)")),
        ContentError::Size => {
            own(552, "5.3.4", format!("Message size exceeds maximum of {} octets", limits.message_bytes))
        }
        ContentError::Line => {
            own(554, "5.6.0", format!("Line in the message exceeds maximum of {} octets", limits.content_line_bytes))
        }
        ContentError::HeaderSize => {
            own(554, "5.6.0", format!("Header section exceeds maximum of {} octets", limits.header_bytes))
        }
        ContentError::HeaderFields => {
            own(554, "5.6.0", format!("Header section exceeds maximum of {} fields", limits.header_fields))
        }
        // RFC 3463 §3.5: X.4.6 is a routing loop
        ContentError::Hops => own(554, "5.4.6", format!("Too many hops, {} reached", limits.hops)),
    }
}

/// The beginning of foreign bytes, fit to stand in a reply or a log line.
pub(super) fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.get(..SHOWN_OCTETS).unwrap_or(bytes).utf8_chunks() {
        text.extend(chunk.valid().chars().map(|c| if c.is_control() { '?' } else { c }));
        if !chunk.invalid().is_empty() {
            text.push('?');
        }
    }
    if bytes.len() > SHOWN_OCTETS {
        text.push_str("...");
    }
    text
}

/// Appends formatted text to bytes that are sent.
pub(super) fn say(out: &mut Vec<u8>, args: std::fmt::Arguments<'_>) {
    /// Lets `fmt` write bytes.
    struct Bytes<'a>(&'a mut Vec<u8>);
    impl std::fmt::Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // A Vec takes everything, and Display of our own values does not fail.
    Bytes(out).write_fmt(args).expect("writing to a Vec cannot fail");
}
