//! The state of a session between two calls of its driver: what input means, the open question, the open transaction.

use std::fmt;

use mail::{HeloName, Reply};
use zeroize::Zeroizing;

use super::Transaction;
use super::content::Content;

/// The meaning of the next input.
#[derive(Debug)]
pub(super) enum Phase {
    /// Before the greeting.
    Pause,
    Command,
    AuthLine,
    Data,
    Chunk(Chunk),
    Asked(PendingQuestion),
    Handshake,
    Closing,
}

/// The open question, with the values that only its answer needs.
#[derive(Debug)]
pub(super) enum PendingQuestion {
    Helo,
    Mail,
    Recipient,
    Data,
    /// Data, at the first BDAT.
    FirstChunk {
        octets: u64,
        last: bool,
    },
    Message,
    Auth,
    Look,
    Xclient,
    /// The line of a command that is not known.
    Unknown(Box<[u8]>),
}

/// Which of the three verbs, and the name.
#[derive(Clone, Debug)]
pub(super) struct Hello {
    pub(super) name: HeloName,
    pub(super) extended: bool,
}

/// The open transaction.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    pub(super) transaction: Transaction,
    /// From the acceptance of [`super::Question::Data`] on.
    pub(super) content: Option<Content>,
}

/// The counts that a session's limits apply to.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) errors: u32,
    pub(super) refused_recipients: u32,
    pub(super) idle: u32,
    pub(super) transactions: u32,
}

/// A chunk whose octets are coming.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Octets of it, and those still to come.
    pub(super) octets: u64,
    pub(super) left: u64,
    pub(super) last: bool,
    /// The octets are dropped, and this is answered behind them, so many times.
    pub(super) refusal: Option<(Reply, usize)>,
}

/// An exchange that has begun.
pub(super) struct AuthExchange {
    pub(super) mechanism: Box<str>,
    pub(super) response: Option<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for AuthExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthExchange").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}
