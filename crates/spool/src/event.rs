//! The events inside the spool that a person may have to know, as values; the server writes them to the log.

use std::fmt;
use std::path::PathBuf;

/// Something an operator should read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write or sync failed; the segment is not used any more.
    SegmentFailed {
        /// Its number.
        segment: u16,
        /// What failed.
        doing: &'static str,
        /// The system's words.
        error: String,
    },
    /// A failed segment was emptied and renamed.
    SegmentRetired {
        /// Its number.
        segment: u16,
        /// Where it is now.
        path: PathBuf,
    },
    /// The shard takes no more writes.
    ReadOnly {
        /// Its number.
        shard: u16,
    },
    /// The pool could not grow.
    GrowthRefused {
        /// Where.
        directory: PathBuf,
        /// The system's words.
        error: String,
    },
    /// Stored bytes do not match their checksum.
    Damage {
        /// Its segment.
        segment: u16,
        /// Where in it.
        offset: u32,
        /// The message, if that can be told.
        id: Option<mail::QueueId>,
        /// The damage.
        what: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SegmentFailed { segment, doing, error } => write!(
                f,
                "segment {segment}: {doing} failed: {error}; it will be emptied and renamed; check the disk and the kernel log"
            ),
            Self::SegmentRetired { segment, path } => write!(
                f,
                "segment {segment}: emptied after a failure, now {}; keep it for analysis or delete it",
                path.display()
            ),
            Self::ReadOnly { shard } => write!(
                f,
                "shard {shard:02}: two writes in a row failed, no more are tried; replace the disk or free it, then restart"
            ),
            Self::GrowthRefused { directory, error } => {
                write!(
                    f,
                    "{}: the pool cannot grow: {error}; free disk space or lower spool.size_max",
                    directory.display()
                )
            }
            Self::Damage { segment, offset, id, what } => {
                write!(f, "segment {segment} offset {offset}: {what}")?;
                match id {
                    Some(id) => write!(f, " (message {id}); run mailrace spool verify on a copy"),
                    None => f.write_str("; run mailrace spool verify on a copy"),
                }
            }
        }
    }
}
