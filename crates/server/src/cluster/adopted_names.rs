//! The names of adopted messages. The cluster knows a message by the queue id of the node that accepted it first. A log
//! uses a queue id once, so an adopted message has another one in the log of its adopter.

use mail::QueueId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// Adopted messages that are live, by both names.
#[derive(Debug, Default)]
pub struct AdoptedNames {
    names: RwLock<NamePairs>,
    adopted: AtomicU64,
    given_up: AtomicU64,
}

#[derive(Debug, Default)]
struct NamePairs {
    by_local: HashMap<QueueId, QueueId>,
    by_cluster: HashMap<QueueId, QueueId>,
}

impl AdoptedNames {
    /// Adds a message.
    pub fn add(&self, cluster: QueueId, local: QueueId) {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = names.by_cluster.insert(cluster, local) {
            names.by_local.remove(&old);
        }
        names.by_local.insert(local, cluster);
    }

    /// Counts an adopted message.
    pub fn count_adopted(&self) {
        self.adopted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts messages that another node has taken over.
    pub fn count_given_up(&self, messages: usize) {
        self.given_up.fetch_add(u64::try_from(messages).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Messages that were adopted since the start.
    #[must_use]
    pub fn adopted_count(&self) -> u64 {
        self.adopted.load(Ordering::Relaxed)
    }

    /// Messages that other nodes have taken over since the start.
    #[must_use]
    pub fn given_up_count(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Forgets a message that is finished.
    pub fn remove_local(&self, local: QueueId) {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = names.by_local.remove(&local) {
            names.by_cluster.remove(&cluster);
        }
    }

    /// The name in the cluster of a message of the local log.
    #[must_use]
    pub fn in_cluster(&self, local: QueueId) -> QueueId {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.by_local.get(&local).copied().unwrap_or(local)
    }

    /// Whether a message of the local log was adopted and is live.
    #[must_use]
    pub fn has_local(&self, local: QueueId) -> bool {
        self.names.read().unwrap_or_else(PoisonError::into_inner).by_local.contains_key(&local)
    }

    /// The name in the local log of a message of the cluster, if it was adopted and is live.
    #[must_use]
    pub fn adopted(&self, cluster: QueueId) -> Option<QueueId> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.by_cluster.get(&cluster).copied()
    }
}
