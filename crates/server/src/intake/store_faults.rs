//! Warnings about messages that the spool did not store: one a minute for each kind of error, with the number of
//! messages that had no line of their own. The refusal of each message is logged with its reply all the same.

use spool::Error;
use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two warnings about errors of one kind.
const APART: Duration = Duration::from_secs(60);

/// The last warnings of all sessions, by kind of error; there are about ten kinds.
#[derive(Debug, Default)]
pub(crate) struct StoreFaults {
    kinds: Mutex<Vec<KindOfFault>>,
}

#[derive(Debug)]
struct KindOfFault {
    kind: Discriminant<Error>,
    logged_at: Instant,
    unlogged: u64,
}

impl StoreFaults {
    /// Counts an error. Returns how many messages since the last warning had the same kind of error, if a warning is
    /// due.
    pub(crate) fn count(&self, error: &Error, now: Instant) -> Option<u64> {
        let kind = discriminant(error);
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = kinds.iter_mut().find(|known| known.kind == kind) else {
            kinds.push(KindOfFault { kind, logged_at: now, unlogged: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(known.logged_at) < APART {
            known.unlogged += 1;
            return None;
        }
        known.logged_at = now;
        Some(std::mem::take(&mut known.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_a_warning_a_minute_and_a_count() {
        let begin = os::clock::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let faults = StoreFaults::default();
        let due = [
            (Error::NoCopy, 0),
            (Error::NoCopy, 0),
            (Error::Full, 1),
            (Error::NoCopy, 59),
            (Error::NoCopy, 60),
            (Error::NoCopy, 61),
            (Error::Full, 60),
            (Error::Full, 61),
        ]
        .map(|(error, seconds)| faults.count(&error, at(seconds)));
        assert_eq!(due, [Some(0), None, Some(0), None, Some(2), None, None, Some(1)]);
    }
}
