//! Logs why messages are not accepted: once for each message and reason, again after an hour, and of many messages of
//! one user with the same reason only some, with a line that counts the others. Reasons are counted by user: a user
//! with many made-up reasons leaves room for those of others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which the reason of a message is not logged again.
const AGAIN: Duration = Duration::from_secs(3_600);
/// The time for which lines of one reason are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Lines of one reason in that time.
const LINES_MAX: u32 = 10;
/// Reasons of one user that are counted apart.
const REASONS_MAX: usize = 20;

/// The last warning about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoggedWarning {
    reason: u64,
    at: Instant,
}

#[derive(Debug)]
struct ReasonCount {
    since: Instant,
    lines: u32,
    unsaid: u64,
}

/// Recent warnings, by user.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    users: HashMap<u32, HashMap<String, ReasonCount>>,
}

/// Messages without a warning of their own.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SuppressedWarnings {
    pub(super) uid: u32,
    /// Empty: several.
    pub(super) reason: String,
    pub(super) messages: u64,
}

impl Complaints {
    /// Returns whether the reason of a message of this user is to be logged now. `before` is the last warning about
    /// it.
    pub(super) fn is_due(&mut self, uid: u32, reason: &str, before: &mut Option<LoggedWarning>, now: Instant) -> bool {
        let this = LoggedWarning { reason: hash(reason), at: now };
        if before.is_some_and(|said| said.reason == this.reason && now.saturating_duration_since(said.at) < AGAIN) {
            return false;
        }
        *before = Some(this);
        let reasons = self.users.entry(uid).or_default();
        // All others count as one reason.
        let key = if reasons.contains_key(reason) || reasons.len() < REASONS_MAX { reason } else { "" };
        let known = reasons.entry(key.to_owned()).or_insert(ReasonCount { since: now, lines: 0, unsaid: 0 });
        if known.lines < LINES_MAX {
            known.lines += 1;
            return true;
        }
        known.unsaid += 1;
        false
    }

    /// Takes reasons whose time is over, with the messages that got no warning of their own.
    pub(super) fn counted(&mut self, now: Instant) -> Vec<SuppressedWarnings> {
        let mut counted = Vec::new();
        self.users.retain(|uid, reasons| {
            reasons.retain(|reason, known| {
                let is_over = now.saturating_duration_since(known.since) >= WINDOW;
                if is_over && known.unsaid > 0 {
                    counted.push(SuppressedWarnings { uid: *uid, reason: reason.clone(), messages: known.unsaid });
                }
                !is_over
            });
            !reasons.is_empty()
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
        let begin = os::clock::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let (mut complaints, mut said) = (Complaints::default(), None);
        let mut is_due =
            |complaints: &mut Complaints, reason, seconds| complaints.is_due(7, reason, &mut said, at(seconds));
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
        let begin = os::clock::now();
        let mut complaints = Complaints::default();
        let said = (0..100_000).filter(|_| complaints.is_due(7, "full", &mut None, begin)).count();
        assert_eq!((said, complaints.counted(begin + WINDOW / 2)), (10, vec![]));
        let unsaid = SuppressedWarnings { uid: 7, reason: "full".to_owned(), messages: 99_990 };
        assert_eq!(complaints.counted(begin + WINDOW), [unsaid]);
        assert!(complaints.users.is_empty() && complaints.is_due(7, "full", &mut None, begin + WINDOW));
    }

    #[test]
    fn reasons_that_one_user_makes_up_silence_nobody_else() {
        let begin = os::clock::now();
        let mut complaints = Complaints::default();
        let said = (0..1_000).filter(|number| complaints.is_due(7, &number.to_string(), &mut None, begin)).count();
        assert_eq!(said, REASONS_MAX + 10);
        assert_eq!(complaints.users.get(&7).unwrap().len(), REASONS_MAX + 1);
        assert!(complaints.is_due(8, "full", &mut None, begin));
    }
}
