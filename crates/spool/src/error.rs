//! The errors of the spool, by the action that the caller can take.

use mail::QueueId;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why an operation of an open spool was refused or failed. Cheap to clone: every waiter of a failed batch gets one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No room that this class of message may use; nothing was written. Answer `452 4.3.1` and say so in the metrics.
    Full,
    /// More bytes wait for the disk than `staged_bytes_max`; nothing was taken. Stop reading, wait for room, repeat.
    Busy,
    /// The batch that held this write failed; it will not be delivered. Answer `451 4.3.0`, the client tries again.
    Failed,
    /// The spool takes no more writes of this kind: storage failed twice in a row on every shard. Answer `421 4.3.0`,
    /// stop delivering (outcomes could not be recorded), call a person.
    Poisoned,
    /// The message is larger than one frame or one segment can hold. Answer `552 5.3.4`.
    TooLarge {
        /// Bytes the frame would take.
        bytes: u64,
        /// Bytes it may take.
        max: u64,
    },
    /// The header section is larger than the spool stores apart from the body. Count its last fields to the body.
    HeaderTooLarge {
        /// Bytes of the header section.
        bytes: u64,
        /// Bytes it may have.
        max: u64,
    },
    /// The message was stored and withdrawn: no other node of the cluster took the copy that it must have. Answer
    /// `451 4.3.0`, the client tries again.
    NoCopy,
    /// A message of this queue id is in the spool already.
    Exists(QueueId),
    /// No message of this queue id is in the spool: finished, deleted, or never accepted.
    Unknown(QueueId),
    /// The stored bytes of this message do not match their checksum. The place is kept for `mailrace spool verify`.
    Corrupt {
        /// The message.
        id: QueueId,
        /// Segment, offset and the fault.
        what: String,
    },
    /// Reading failed below the spool; the message stays queued. Try later.
    Unreadable {
        /// The message.
        id: QueueId,
        /// Segment, offset and the system's words.
        what: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("spool full: no free segment; raise spool.size_max or free disk space"),
            Self::Busy => f.write_str("spool busy: more bytes wait for the disk than spool.staged_bytes_max"),
            Self::Failed => f.write_str("write to the spool failed; the transaction was not stored"),
            Self::Poisoned => f.write_str(
                "spool takes no more writes: storage failed twice in a row; check the kernel log, then restart",
            ),
            Self::TooLarge { bytes, max } => write!(f, "message needs {bytes} bytes in the spool, {max} is the most"),
            Self::HeaderTooLarge { bytes, max } => {
                write!(
                    f,
                    "header section of {bytes} bytes, {max} is the most that the spool stores apart from the body"
                )
            }
            Self::NoCopy => f.write_str(
                "no other node of the cluster takes a copy; see mailrace cluster status, or set listen.on_no_replica",
            ),
            Self::Exists(id) => write!(f, "queue id {id} is in the spool already"),
            Self::Unknown(id) => write!(f, "queue id {id} is not in the spool"),
            Self::Corrupt { id, what } => {
                write!(f, "{id}: stored bytes are damaged: {what}; run mailrace spool verify")
            }
            Self::Unreadable { id, what } => write!(f, "{id}: cannot be read now: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// Why a spool directory could not be opened. Nothing in it was changed, unless said otherwise.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has the spool open.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The text of the lock file about its holder.
        holder: String,
    },
    /// Written by a mailrace with another format, newer or older.
    OtherFormat {
        /// The file that says so.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The version that this program reads.
        supported: u32,
    },
    /// The directory holds something that is not a spool, or whose identity file is damaged.
    NotASpool {
        /// The file or directory.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A configured value cannot work.
    Config(String),
    /// The system refused.
    Io {
        /// The action that failed.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { path, holder } => {
                write!(f, "{}: the spool is in use by {holder}; stop that process first", path.display())
            }
            Self::OtherFormat { path, found, supported } if found > supported => write!(
                f,
                "{}: spool format {found} is newer than {supported}, the newest this program reads; use the newer mailrace",
                path.display()
            ),
            Self::OtherFormat { path, found, supported } => write!(
                f,
                "{}: spool format {found} is older than {supported}, the only one this program reads; no mail is lost: \
                 start the mailrace that wrote it, let it deliver until its queue is empty, then move the spool away",
                path.display()
            ),
            Self::NotASpool { path, reason } => write!(f, "{}: not a usable spool: {reason}", path.display()),
            Self::Config(what) => write!(f, "spool configuration: {what}"),
            Self::Io { doing, path, source } => write!(f, "{}: {doing}: {source}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
