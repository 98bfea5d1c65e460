//! The block versions that the nodes read, and the one that this node may write.
//!
//! A version is written when all members read it. Without a majority all entries expire, and the first look behind it
//! shows none of the nodes that live. So the version rises only after some time of fresh views, and a node that is
//! missing counts for an hour as it was. A start knows only the nodes that it has seen itself.

use super::NodeEntry;
use crate::identity::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for which a node counts that is missing from the view.
const READER_TIME: Duration = Duration::from_secs(3_600);

/// The nodes that this node has seen.
#[derive(Debug)]
pub(super) struct Readers {
    /// The start of the time in which the view never was too old.
    steady_since: Duration,
    /// The newest block version that each reads, and when the view last had it.
    newest: BTreeMap<NodeId, (u16, Duration)>,
}

impl Readers {
    pub(super) const fn new(now: Duration) -> Self {
        Self { steady_since: now, newest: BTreeMap::new() }
    }

    /// Takes a view. `was_fresh` says that the one before it was not too old.
    pub(super) fn look<'a>(&mut self, now: Duration, was_fresh: bool, view: impl Iterator<Item = &'a NodeEntry>) {
        if !was_fresh {
            self.steady_since = now;
        }
        self.newest.extend(view.map(|entry| (entry.node, (entry.reads.newest, now))));
        self.newest.retain(|_, (_, seen_at)| now < *seen_at + READER_TIME);
    }

    /// Forgets nodes that left for good.
    pub(super) fn forget(&mut self, departed: &[NodeId]) {
        self.newest.retain(|node, _| !departed.contains(node));
    }

    /// The version to write; `steady_for` is the time of fresh views behind which it may rise.
    pub(super) fn version(&self, now: Duration, own: &NodeEntry, steady_for: Duration) -> u16 {
        let newest = self.newest.values().map(|(newest, _)| *newest).min().unwrap_or(own.reads.newest);
        let newest = newest.clamp(own.reads.oldest, own.reads.newest);
        if now < self.steady_since + steady_for { newest.min(own.writes) } else { newest }
    }
}
