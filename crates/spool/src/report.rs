//! The report of an opening: mail that was found, segments that were read, and bytes that did not read.
//!
//! `files` and `recovery` fill it in; [`Spool::open`](crate::Spool::open) hands it to the caller.

use std::fmt;
use std::path::PathBuf;

/// The result of opening a spool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The spool was made just now.
    pub created: bool,
    /// Unfinished messages.
    pub messages: u64,
    /// Their recipients that are not done.
    pub recipients: u64,
    /// Segment files.
    pub segments: u64,
    /// Segments that had no footer and were read batch by batch.
    pub scanned: u64,
    /// Batches that had not become durable and were dropped whole: no 250 was sent for them.
    pub torn: u64,
    /// Shards whose youngest LIVEMAP did not read; the one before served.
    pub livemaps_lost: u64,
    /// Durable frames that did not read.
    pub damage: Vec<Damage>,
    /// The largest queue id seen, so that new ones are larger.
    pub largest_id: u64,
    /// The number of this opening, which no other had; 0 where the spool was only looked at.
    pub epoch: u64,
    /// Time it took, in microseconds.
    pub took_us: u64,
}

/// Durable bytes that did not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
    /// The message, if that can be told.
    pub id: Option<mail::QueueId>,
    /// The damage.
    pub what: String,
}

impl Recovery {
    /// Adds what another shard found.
    pub(crate) fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.recipients += other.recipients;
        self.segments += other.segments;
        self.scanned += other.scanned;
        self.torn += other.torn;
        self.livemaps_lost += other.livemaps_lost;
        self.damage.extend_from_slice(&other.damage);
        self.largest_id = self.largest_id.max(other.largest_id);
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} offset {} ({} bytes): {}", self.path.display(), self.offset, self.bytes, self.what)?;
        self.id.map_or(Ok(()), |id| write!(f, ", message {id}"))
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} messages for {} recipients in {} segments, {} of them read batch by batch, {} torn batches dropped, {} damaged places, {} ms",
            self.messages,
            self.recipients,
            self.segments,
            self.scanned,
            self.torn,
            self.damage.len(),
            self.took_us / 1000
        )
    }
}
