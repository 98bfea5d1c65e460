//! The settings of the history: `[history]`.

use std::path::PathBuf;

/// The file with the way of past messages and the statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The file; none: no history is kept.
    pub path: Option<PathBuf>,
    /// Days for which finished messages are kept.
    pub days: u32,
    /// Messages in the file.
    pub messages_max: u64,
    /// Octets of the file.
    pub size_max: u64,
}
