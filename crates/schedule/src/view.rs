//! What an operator sees of a destination.

use std::sync::Arc;
use std::time::Duration;

/// How a destination is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It has no connection, and nothing is known against it.
    Idle,
    /// It has connections, open or opening.
    Up,
    /// It could not be reached.
    Down {
        /// The words of the last failure.
        why: Arc<str>,
        /// When it is probed next; in the past while a probe is under way.
        until: Duration,
    },
}

/// One destination as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The destination, as the spool names it.
    pub name: Arc<[u8]>,
    /// How it is.
    pub health: Health,
    /// Jobs in memory that wait for a connection.
    pub ready: usize,
    /// Jobs that a connection has.
    pub in_flight: usize,
    /// Connections, opening and closing ones included.
    pub connections: usize,
    /// Connections it may have.
    pub window: u32,
    /// The spool has, or may have, eligible recipients that are not in memory.
    pub more: bool,
}
