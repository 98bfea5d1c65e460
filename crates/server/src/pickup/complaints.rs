//! Says why messages are not taken: once for each message and reason, again after an hour, and of many messages with the same
//! reason only some, with a line that counts the others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a message's reason is not said again.
const AGAIN: Duration = Duration::from_secs(3_600);
/// The time for which lines of one reason are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Lines of one reason in that time.
const LINES_MAX: u32 = 10;
/// Reasons that are told apart.
const REASONS_MAX: usize = 100;

/// What was said of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    reason: u64,
    at: Instant,
}

#[derive(Debug)]
struct Reason {
    since: Instant,
    lines: u32,
    unsaid: u64,
}

/// What was said of late.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    reasons: HashMap<String, Reason>,
}

impl Complaints {
    /// Whether the reason of a message is to be said now. `before` is what was said of it.
    pub(super) fn is_due(&mut self, reason: &str, before: &mut Option<Said>, now: Instant) -> bool {
        let this = Said { reason: hash(reason), at: now };
        if before.is_some_and(|said| said.reason == this.reason && now.saturating_duration_since(said.at) < AGAIN) {
            return false;
        }
        *before = Some(this);
        // All others count as one reason.
        let key = if self.reasons.contains_key(reason) || self.reasons.len() < REASONS_MAX { reason } else { "" };
        let known = self.reasons.entry(key.to_owned()).or_insert(Reason { since: now, lines: 0, unsaid: 0 });
        if known.lines < LINES_MAX {
            known.lines += 1;
            return true;
        }
        known.unsaid += 1;
        false
    }

    /// Reasons whose time is over, with the messages of which nothing was said.
    pub(super) fn counted(&mut self, now: Instant) -> Vec<(String, u64)> {
        let mut counted = Vec::new();
        self.reasons.retain(|reason, known| {
            let is_over = now.saturating_duration_since(known.since) >= WINDOW;
            if is_over && known.unsaid > 0 {
                counted.push((reason.clone(), known.unsaid));
            }
            !is_over
        });
        counted.sort_unstable();
        counted
    }
}

fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_when_it_changes_and_after_an_hour() {
        let begin = crate::env::clock::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let (mut complaints, mut said) = (Complaints::default(), None);
        let mut is_due =
            |complaints: &mut Complaints, reason, seconds| complaints.is_due(reason, &mut said, at(seconds));
        let said: Vec<bool> = [
            ("full", 0),
            ("full", 1),
            ("full", 3_599),
            ("no", 3_599),
            ("full", 3_600),
            ("full", 7_199),
            ("full", 7_200),
        ]
        .into_iter()
        .map(|(reason, seconds)| {
            complaints.counted(at(seconds));
            is_due(&mut complaints, reason, seconds)
        })
        .collect();
        assert_eq!(said, [true, false, false, true, true, false, true]);
    }

    #[test]
    fn of_many_some_are_said_and_the_others_counted() {
        let begin = crate::env::clock::now();
        let mut complaints = Complaints::default();
        let said = (0..100_000).filter(|_| complaints.is_due("full", &mut None, begin)).count();
        assert_eq!((said, complaints.counted(begin + WINDOW / 2)), (10, vec![]));
        assert_eq!(complaints.counted(begin + WINDOW), [("full".to_owned(), 99_990)]);
        assert!(complaints.is_due("full", &mut None, begin + WINDOW));
        for number in 0..1_000 {
            complaints.is_due(&number.to_string(), &mut None, begin);
        }
        assert!(complaints.reasons.len() <= REASONS_MAX + 1);
    }
}
