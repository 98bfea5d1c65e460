//! Remembers the signatures of stored messages, so that a message for many next hops is signed once and not once for
//! each of its connections.
//!
//! Bounded: a message that was forgotten is signed again. The content of a message never changes; after a reload the
//! keys may be others.

use crate::signing::SigningKeys;
use bytes::Bytes;
use mail::QueueId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Messages that are remembered; then all are forgotten. An entry has about a kilobyte.
const MESSAGES_MAX: usize = 1_024;

/// The signature fields of messages as they are stored; empty: the message is not signed.
#[derive(Debug, Default)]
pub(crate) struct Signatures(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// The keys that signed.
    keys: Option<Arc<SigningKeys>>,
    fields: HashMap<QueueId, Bytes>,
}

impl Signatures {
    fn of(&self, keys: &Arc<SigningKeys>) -> MutexGuard<'_, Remembered> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.keys.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, keys)) {
            *known = Remembered { keys: Some(Arc::clone(keys)), fields: HashMap::new() };
        }
        known
    }

    /// Returns the signature fields of a message by these keys, if they are known.
    pub(crate) fn get(&self, keys: &Arc<SigningKeys>, id: QueueId) -> Option<Bytes> {
        self.of(keys).fields.get(&id).cloned()
    }

    /// Remembers signature fields.
    pub(crate) fn remember(&self, keys: &Arc<SigningKeys>, id: QueueId, fields: Bytes) {
        let mut known = self.of(keys);
        if known.fields.len() >= MESSAGES_MAX {
            known.fields.clear();
        }
        known.fields.insert(id, fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_kept_within_bounds_until_the_keys_change() {
        let (signatures, keys) = (Signatures::default(), Arc::new(SigningKeys::default()));
        signatures.remember(&keys, QueueId::MIN, Bytes::from_static(b"a"));
        assert_eq!(signatures.get(&keys, QueueId::MIN).as_deref(), Some(&b"a"[..]));
        let others = Arc::new(SigningKeys::default());
        assert_eq!(signatures.get(&others, QueueId::MIN), None);
        assert_eq!(signatures.get(&keys, QueueId::MIN), None);
        assert!(signatures.of(&keys).fields.len() <= MESSAGES_MAX);
    }
}
