//! Scanners: programs that judge a whole message, each asked in a protocol of its own.
//!
//! | Scanner | Module | Protocol |
//! |---|---|---|
//! | clamd | [`clamd`] | `zIDSESSION`, `zINSTREAM`, `zPING`, `zVERSION` |
//! | spamd of SpamAssassin | [`spamd`] | `SPAMC/1.5`: CHECK, HEADERS, SYMBOLS, PING |
//! | rspamd | [`rspamd`] | HTTP/1.1, `POST /checkv2`, a reply in JSON |
//!
//! Each module writes a request into a buffer of the driver and reads a reply, without sockets and clocks. Every reply
//! becomes a [`ScanResult`], so that the configuration can say in the same words what follows. "Not scanned, since it
//! is too large" ([`ScanAction::TooLarge`]) is neither clean nor a failure: the same message would come back for ever
//! if it were deferred. A reply of another protocol is a [`ScannerError`] that names what answers.

pub mod clamd;
mod field_edit;
mod response;
pub mod rspamd;
pub mod spamd;
#[cfg(test)]
mod tests;

pub use field_edit::{FieldEdit, FieldNumber, as_milter_edits};
pub use response::{Response, ResponseReader};

use std::fmt;

/// The score of a message and the score from which on it counts as spam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Points of the message; finite.
    pub points: f64,
    /// Points from which on the scanner acts; finite.
    pub threshold: f64,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}/{:.1}", self.points, self.threshold)
    }
}

/// The scanner's word about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanAction {
    /// Nothing speaks against it.
    Pass,
    /// It is probably spam: deliver it with a mark.
    Tag,
    /// The same, with this value of its subject: encoded, folded with CR LF, without the blank behind the colon.
    TagSubject(String),
    /// Refuse it for good, with the scanner's words if it has some.
    Reject(Option<String>),
    /// Refuse it temporarily (greylisting, a rate), with a 4yz reply.
    Defer(Option<String>),
    /// Take it and drop it.
    Discard,
    /// Take it and keep it for a decision.
    Quarantine,
    /// It was not looked at, or not as a whole, since it exceeds a limit of the scanner, which this names.
    TooLarge(String),
    /// The scanner could not judge it now: the failure rule of the configuration applies. The text is for the operator.
    Failed(String),
}

/// All that a scanner says about a message.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanResult {
    /// Its word.
    pub action: ScanAction,
    /// The name of a virus or other threat.
    pub threat: Option<String>,
    /// The score, of scanners that count.
    pub score: Option<Score>,
    /// Names of rules that hold, in the scanner's order.
    pub rules: Vec<String>,
    /// Changes of the header section that it asks for.
    pub edits: Vec<FieldEdit>,
}

impl ScanResult {
    /// Makes a result of an action alone.
    #[must_use]
    pub const fn of(action: ScanAction) -> Self {
        Self { action, threat: None, score: None, rules: Vec::new(), edits: Vec::new() }
    }
}

/// A fault of a scanner, or of what answers at its address. The connection is of no use afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScannerError {
    /// Another protocol answers.
    OtherProtocol {
        /// The protocol that was expected.
        expected: &'static str,
        /// The beginning of the answer, escaped and cut.
        begins: String,
    },
    /// The reply has the form of the protocol at its beginning only.
    Malformed {
        /// The protocol.
        protocol: &'static str,
        /// The fault.
        what: &'static str,
    },
    /// The reply is longer than is read.
    TooLong {
        /// The protocol.
        protocol: &'static str,
        /// The name of the limit.
        limit: &'static str,
        /// Its value.
        value: usize,
    },
    /// The connection ended before the reply did.
    Incomplete {
        /// The protocol.
        protocol: &'static str,
    },
}

impl ScannerError {
    /// Makes an error that shows the beginning of an answer.
    pub(crate) fn other_protocol(expected: &'static str, octets: &[u8]) -> Self {
        /// Octets that are shown.
        const SHOWN: usize = 40;
        let begins = octets.get(..SHOWN).unwrap_or(octets).escape_ascii().to_string();
        Self::OtherProtocol { expected, begins }
    }
}

impl fmt::Display for ScannerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherProtocol { expected, begins } => {
                write!(f, "this is no {expected}: its answer begins with \"{begins}\"")
            }
            Self::Malformed { protocol, what } => write!(f, "the reply of {protocol} has {what}"),
            Self::TooLong { protocol, limit, value } => {
                write!(f, "the reply of {protocol} exceeds {limit} ({value} octets)")
            }
            Self::Incomplete { protocol } => write!(f, "{protocol} closed the connection within its reply"),
        }
    }
}

impl std::error::Error for ScannerError {}

/// Makes text of a scanner fit for a log line and a header field: one line, without controls, of at most `octets_max`.
pub(crate) fn clean(text: &str, octets_max: usize) -> String {
    let mut clean: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.truncate(clean.floor_char_boundary(octets_max));
    clean
}
