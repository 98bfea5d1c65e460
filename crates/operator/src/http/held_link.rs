//! A message in quarantine behind a link of a digest, and the answers about the link.

use mail::QueueId;

/// The facts that the recipient of a message in quarantine is shown. Texts are on one line, and may have any other
/// character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldFacts {
    /// The message.
    pub id: QueueId,
    /// The recipient's address.
    pub recipient: String,
    /// The author as the message says, decoded.
    pub from: String,
    /// Its subject, decoded.
    pub subject: String,
    /// When it came, in microseconds since 1970.
    pub came_us: u64,
    /// Octets of its content.
    pub size: u64,
    /// The rule that keeps it.
    pub by: String,
    /// When it is deleted, in seconds since 1970, if it is.
    pub ends: Option<u32>,
}

/// The answer about a link of a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkAnswer {
    /// The message is in quarantine.
    Held(Box<HeldFacts>),
    /// The message was released by this request.
    Released(Box<HeldFacts>),
    /// The message is not in quarantine any more.
    Gone,
    /// The time of the link is over.
    Expired,
    /// The link was not made by this server.
    Forged,
    /// It cannot be done now, for this reason.
    Failed(String),
}
