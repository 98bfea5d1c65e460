//! The seam to the replicated key-value store: compare-and-set with revisions, time to live, and lists of keys.
//!
//! Reads and writes go through the majority of the engine's servers; without a majority they are not answered. A driver
//! that watches keys under `node/` and `claim/` may hasten the machines by `Node::coordination_changed`; none needs it.

use bytes::Bytes;
use std::time::Duration;

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinationRequest {
    /// Asks for one key.
    Get {
        /// The key.
        key: String,
    },
    /// Asks for all keys with a prefix.
    List {
        /// The prefix.
        prefix: String,
    },
    /// Writes a key if its revision is the expected one.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Bytes,
        /// The revision that was read; 0 when the key must not exist.
        expected: u64,
        /// Time after which the store removes the key.
        ttl: Option<Duration>,
    },
    /// Removes a key if its revision is the expected one.
    Delete {
        /// The key.
        key: String,
        /// The revision that was read.
        expected: u64,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinationReply {
    /// The key, if it exists.
    Found(Option<KeyValue>),
    /// All keys with the prefix, by name.
    Listed(Vec<KeyValue>),
    /// The key was written or removed.
    Written {
        /// Its revision from now on; it is never used again for this key.
        revision: u64,
    },
    /// Nothing was written: the revision is another one.
    Conflict,
    /// No answer came, or one that does not say what happened.
    Unknown,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// The revision to expect in the next write.
    pub revision: u64,
}
