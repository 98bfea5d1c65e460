//! The MTA's side of the milter protocol, without sockets and clocks.
//!
//! A driver owns the connection to a filter. [`Offer`] and [`Agreement`] negotiate; [`MilterSession`] turns the steps
//! of an SMTP session into packets and the filter's packets into an [`Answer`] for each step; edits of the end of body
//! are collected in [`Edits`] and are real only with a final answer that keeps the message. A filter that dies, lies
//! about its actions or breaks the form costs its own edits, never half of them: the driver drops the session and
//! applies the failure rule to the untouched message.
//!
//! States of a session: *connection* (connect, HELO) → *transaction* (MAIL to end of body) → *connection*. `accept` in
//! the first ends the filter's interest in the connection, in the second in the message. State of a transaction never
//! reaches the next one: [`MilterSession::abort`] and the answer to the end of body reset it.
//!
//! Sizes: a packet has at most what the negotiation allows (64 KiB, 256 KiB or 1 MiB), and its length is checked before
//! it is kept. Edits are bounded by [`EditLimits`].

mod edits;
mod headers;
mod macros;
mod negotiation;
mod packet;
mod reply;
mod session;
#[cfg(test)]
mod tests;

pub use edits::{Edit, EditLimits, Edits};
pub use headers::{HeaderField, apply_header_edits};
pub use macros::{MacroStage, write_macros};
pub use negotiation::{Actions, Agreement, Offer, Steps, VERSION_NEWEST, VERSION_OLDEST};
pub use packet::{Packet, PacketReader, write_packet};
pub use reply::ReplyText;
pub use session::{Answer, ClientAddress, MacroValues, MilterSession, Received, Sent, Stage};

use std::fmt;

/// A fault of a filter, or of what answers at its address. The connection is of no use afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MilterError {
    /// A packet's length is zero or over the limit: another protocol answers at this address.
    NoMilter {
        /// The four octets that stand where a length belongs.
        length: [u8; 4],
        /// The limit.
        bytes_max: usize,
    },
    /// The filter speaks a version out of 2 to 6.
    Version {
        /// That version.
        version: u32,
    },
    /// The filter wants what was not offered.
    NotOffered {
        /// `actions` or `steps`.
        what: &'static str,
        /// The flags too many.
        flags: u32,
    },
    /// The filter makes a change that it did not announce in the negotiation.
    NotAnnounced {
        /// The reply octet.
        command: u8,
    },
    /// A packet that does not belong into this step.
    Unexpected {
        /// The reply octet.
        command: u8,
        /// The step.
        stage: &'static str,
    },
    /// A packet whose data cannot be read, or would break the message.
    Malformed {
        /// The reply octet.
        command: u8,
        /// The fault.
        what: &'static str,
    },
    /// The filter makes more changes than are allowed.
    TooMuch {
        /// The name of the limit.
        limit: &'static str,
        /// Its value.
        value: usize,
    },
}

impl fmt::Display for MilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reply = |command: &u8| char::from(*command).escape_default().to_string();
        match self {
            Self::NoMilter { length, bytes_max } => write!(
                f,
                "this is no milter: it begins with \"{}\" where a packet length of at most {bytes_max} belongs",
                length.escape_ascii()
            ),
            Self::Version { version } => write!(
                f,
                "the filter speaks version {version} of the protocol; {VERSION_OLDEST} to {VERSION_NEWEST} are known"
            ),
            Self::NotOffered { what, flags } => write!(f, "the filter wants {what} that were not offered: {flags:#x}"),
            Self::NotAnnounced { command } => {
                write!(f, "the filter sends \"{}\", which it did not announce", reply(command))
            }
            Self::Unexpected { command, stage } => write!(f, "the filter answers {stage} with \"{}\"", reply(command)),
            Self::Malformed { command, what } => write!(f, "the filter's packet \"{}\" has {what}", reply(command)),
            Self::TooMuch { limit, value } => write!(f, "the filter's changes exceed {limit} ({value})"),
        }
    }
}

impl std::error::Error for MilterError {}
