//! The limits of a spool, each with its default and its reason.

use crate::disk::BLOCK;
use crate::error::OpenError;
use std::path::PathBuf;

/// How a spool is laid out and how much it may take. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// The spool directory; made if it is not there.
    pub path: PathBuf,
    /// Committer threads, one directory each. Fixed when the spool is made. Default 1: one per device.
    pub shards: u16,
    /// Size of a segment file. Fixed when the spool is made. Default 64 MiB: its roll costs one flush in some sixty.
    pub segment_bytes: u32,
    /// The most all segments together may take. Default 8 GiB.
    pub size_max: u64,
    /// Growth stops while the file system has less than this free. Default 1 GiB.
    pub free_min: u64,
    /// Free segments of so many bytes are kept for a storm, filled while no mail comes; an eighth of the room at most.
    /// Default 0: none.
    pub ready_bytes: u64,
    /// A batch larger than this starts the next one, so that big mail does not hold up small mail. Default 4 MiB.
    pub batch_bytes_max: usize,
    /// Appends are refused as busy while more than this waits for the disk. Default 32 MiB.
    pub staged_bytes_max: usize,
    /// Bodies of messages not yet finished that are kept in memory for their first delivery. Default 256 MiB.
    pub cache_bytes: usize,
    /// Messages with several recipients that were read from the disk and are kept in memory for those who want them
    /// next. Each shard has an equal part of it, and keeps one message of any size. Default 32 MiB: of one shard, two
    /// or three lists of 100,000 recipients.
    pub shared_bytes: usize,
    /// The longest that a recorded state waits for a batch to ride with, in milliseconds. Default 50.
    pub state_delay_ms: u64,
    /// Segments with at most this share of live bytes, in percent, are emptied by relocation. Default 25.
    pub relocate_percent_max: u8,
    /// Segments kept from ordinary messages, for states, relocation and notices to senders. Default 2.
    pub segments_reserved: u16,
    /// An idle spool reads one sealed segment in so many milliseconds, to find rot before the mail is needed; 0 never.
    /// Default 60,000.
    pub scrub_interval_ms: u64,
    /// The identity of a new spool; chosen at random if `None`. For tests that must repeat to the letter.
    pub uuid: Option<[u8; 16]>,
    /// Ways to break the spool on purpose.
    #[cfg(feature = "sabotage")]
    pub sabotage: Sabotage,
}

/// Ways to break the spool on purpose: each leaves out one rule that the proofs must miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "sabotage"), expect(unreachable_pub, reason = "public only for the proof rigs"))]
pub struct Sabotage {
    /// Resolve commits before the sync (rule 1).
    pub ack_before_sync: bool,
    /// Write no LIVEMAP and reuse segments without one (rule 4).
    pub skip_livemap: bool,
    /// Open a used segment under its old generation (section 3).
    pub reuse_generation: bool,
    /// Write the messages of one transaction in batches of their own (rule 2).
    pub split_transactions: bool,
}

impl Config {
    /// The defaults for a spool at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            shards: 1,
            segment_bytes: 64 << 20,
            size_max: 8 << 30,
            free_min: 1 << 30,
            ready_bytes: 0,
            batch_bytes_max: 4 << 20,
            staged_bytes_max: 32 << 20,
            cache_bytes: 256 << 20,
            shared_bytes: 32 << 20,
            state_delay_ms: 50,
            relocate_percent_max: 25,
            segments_reserved: 2,
            scrub_interval_ms: 60_000,
            uuid: None,
            #[cfg(feature = "sabotage")]
            sabotage: Sabotage::default(),
        }
    }

    /// Bodies longer than this travel as chunks; a quarter of a megabyte or what a small segment allows.
    #[must_use]
    pub fn inline_bytes_max(&self) -> usize {
        (256 << 10).min(self.segment_bytes as usize / 8)
    }

    /// The most bytes of a header section, which always travels inline: at most half of the largest frame.
    #[must_use]
    pub fn header_bytes_max(&self) -> usize {
        self.inline_bytes_max()
    }

    /// Segments each shard may have.
    #[must_use]
    pub fn segments_max(&self) -> u16 {
        let per_shard = self.size_max / u64::from(self.shards.max(1)) / u64::from(self.segment_bytes.max(1));
        u16::try_from(per_shard).unwrap_or(u16::MAX)
    }

    /// Returns the steps that are left out on purpose: none, unless built for a proof rig.
    pub(crate) fn sabotage(&self) -> Sabotage {
        #[cfg(feature = "sabotage")]
        return self.sabotage;
        #[cfg(not(feature = "sabotage"))]
        Sabotage::default()
    }

    /// Checks that the values can work together.
    ///
    /// # Errors
    /// Names the value and its allowed range.
    pub fn check(&self) -> Result<(), OpenError> {
        let wrong = |what: String| Err(OpenError::Config(what));
        let bytes = self.segment_bytes as usize;
        if bytes < 16 * BLOCK || !bytes.is_multiple_of(BLOCK) {
            return wrong(format!(
                "segment_bytes = {} must be a multiple of {BLOCK} and at least {}",
                self.segment_bytes,
                16 * BLOCK
            ));
        }
        if self.segment_bytes > 1 << 30 {
            return wrong(format!("segment_bytes = {} must be at most 1 GiB", self.segment_bytes));
        }
        if self.shards == 0 || self.shards > 64 {
            return wrong(format!("shards = {} must be 1 to 64", self.shards));
        }
        let least = u64::from(self.segments_reserved) + 6;
        if u64::from(self.segments_max()) < least {
            return wrong(format!(
                "size_max = {} holds {} segments a shard; it takes at least {least}, {} bytes",
                self.size_max,
                self.segments_max(),
                least * u64::from(self.segment_bytes) * u64::from(self.shards)
            ));
        }
        if self.segments_reserved < 2 {
            return wrong(format!("segments_reserved = {} must be at least 2", self.segments_reserved));
        }
        if self.relocate_percent_max > 90 {
            return wrong(format!("relocate_percent_max = {} must be at most 90", self.relocate_percent_max));
        }
        Ok(())
    }
}
