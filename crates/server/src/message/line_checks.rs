//! Remembers which stored messages have long lines, so that the content of a list's message is looked through once and
//! not once for each of its connections.
//!
//! Bounded: a message that was forgotten is looked through again. The content of a message never changes.

use mail::QueueId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Messages that are remembered; then all are forgotten.
const MESSAGES_MAX: usize = 1_024;

/// The results of looking for lines that are longer than a limit.
#[derive(Debug, Default)]
pub(crate) struct LineChecks(Mutex<HashMap<(QueueId, usize), bool>>);

impl LineChecks {
    fn lock(&self) -> MutexGuard<'_, HashMap<(QueueId, usize), bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a message has a line of more than `max` octets, if that is known.
    pub(crate) fn get(&self, id: QueueId, max: usize) -> Option<bool> {
        self.lock().get(&(id, max)).copied()
    }

    /// Remembers a result.
    pub(crate) fn remember(&self, id: QueueId, max: usize, has_long_line: bool) {
        let mut known = self.lock();
        if known.len() >= MESSAGES_MAX {
            known.clear();
        }
        known.insert((id, max), has_long_line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_kept_by_message_and_limit_within_bounds() {
        let checks = LineChecks::default();
        checks.remember(QueueId::MIN, 998, true);
        assert_eq!((checks.get(QueueId::MIN, 998), checks.get(QueueId::MIN, 78)), (Some(true), None));
        for number in 0..3 * MESSAGES_MAX {
            checks.remember(QueueId::MAX, number, false);
        }
        assert!(checks.lock().len() <= MESSAGES_MAX);
        assert_eq!(
            (checks.get(QueueId::MAX, 3 * MESSAGES_MAX - 1), checks.get(QueueId::MIN, 998)),
            (Some(false), None)
        );
    }
}
