//! Why recipients were deferred last, for people who ask: `mailrace queue show`, and the report when it is given up.
//!
//! Kept in memory and bounded; the oldest go first. After a start nothing is known until the next attempt.

use mail::QueueId;
use observe::Reason;
use spool::Status;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reasons that are kept.
const REASONS_MAX: usize = 20_000;
/// Octets of one.
const REASON_BYTES_MAX: usize = 512;

type Key = (QueueId, u32);

/// The last reasons.
#[derive(Debug, Default)]
pub(crate) struct Reasons(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    texts: HashMap<Key, (Reason, Arc<str>)>,
    /// In order of their first mention; may name what has gone.
    order: VecDeque<Key>,
    /// The text given last: most failures come in rows.
    last: Option<Arc<str>>,
}

impl Reasons {
    /// Forgets the reason of a recipient that is done.
    pub(crate) fn forget(&self, id: QueueId, recipient: u32) {
        self.kept().texts.remove(&(id, recipient));
    }

    /// Keeps the reason of a recipient that waits or is held, and forgets that of one that is done.
    pub(crate) fn remember(&self, id: QueueId, recipient: u32, status: Status, reason: Reason, text: &str) {
        if status == Status::Done {
            return self.forget(id, recipient);
        }
        let mut kept = self.kept();
        let text = text.get(..text.floor_char_boundary(REASON_BYTES_MAX)).unwrap_or_default();
        let text = match &kept.last {
            Some(last) if **last == *text => Arc::clone(last),
            _ => Arc::from(text),
        };
        kept.last = Some(Arc::clone(&text));
        if kept.texts.insert((id, recipient), (reason, text)).is_none() {
            kept.order.push_back((id, recipient));
        }
        while kept.order.len() > REASONS_MAX {
            if let Some(oldest) = kept.order.pop_front() {
                kept.texts.remove(&oldest);
            }
        }
    }

    /// The reason of a recipient, if it is known, in a word and in words.
    pub(crate) fn of(&self, id: QueueId, recipient: u32) -> Option<(Reason, Arc<str>)> {
        self.kept().texts.get(&(id, recipient)).cloned()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> QueueId {
        QueueId::from_u64(QueueId::MIN.to_u64() + number).unwrap()
    }

    #[test]
    fn the_latest_counts_and_the_oldest_go() {
        let reasons = Reasons::default();
        reasons.remember(id(0), 0, Status::Waiting, Reason::Rate, "first");
        reasons.remember(id(0), 0, Status::Waiting, Reason::Block, "second");
        assert_eq!(reasons.of(id(0), 0), Some((Reason::Block, "second".into())));
        assert_eq!(reasons.of(id(0), 1), None);
        reasons.remember(id(0), 0, Status::Done, Reason::Other, "over");
        assert_eq!(reasons.of(id(0), 0), None);
        for number in 0..=REASONS_MAX as u64 {
            reasons.remember(id(number), 1, Status::Waiting, Reason::Other, &"x".repeat(2 * REASON_BYTES_MAX));
        }
        assert_eq!(reasons.of(id(0), 1), None, "the oldest went");
        assert_eq!(reasons.of(id(REASONS_MAX as u64), 1).map(|(_, text)| text.len()), Some(REASON_BYTES_MAX));
        assert!(reasons.kept().texts.len() <= REASONS_MAX);
    }
}
