//! Counts recipients of each login in an hour: a spammer with a stolen password sends to many, and the log tells an
//! operator.
//!
//! A recipient counts when it is accepted at RCPT, in any session and from any client of the login; one of a
//! transaction that is given up counts too. Beyond `auth.recipients_hour_max` RCPT is answered 452 4.7.1, so that
//! mail of a user who sends much on purpose waits and is not lost; the first such recipient in an hour is a critical
//! line of the log.
//!
//! Invariants: the tables are bounded; logins are counted by a hash of their name under a key of this process, names
//! are kept of those over the limit alone, at most [`OVER_MAX`]. A restart forgets everything.
//!
//! Time is given; nothing here reads a clock.

use crate::sliding_window::SlidingWindows;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time in which recipients are counted.
const WINDOW: Duration = Duration::from_secs(3_600);
/// Logins over the limit that are remembered, for `status` and so that each is logged once an hour.
const OVER_MAX: usize = 1_000;

/// A login over the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoginOver {
    /// The user.
    pub(crate) user: Box<str>,
    /// The address that the first recipient over the limit came from.
    pub(crate) client: Option<IpAddr>,
    /// Recipients of the last hour when the excess was logged.
    pub(crate) count: u32,
    /// Time of that line.
    pub(crate) at: Duration,
}

/// Decision on a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// It may be accepted.
    Free,
    /// The limit is reached.
    Over {
        /// Recipients of the last hour.
        count: u32,
        /// This is the first of this hour: the caller logs it for the operator.
        is_first: bool,
    },
}

#[derive(Debug)]
struct LoginState {
    counts: SlidingWindows<u64>,
    over: BTreeMap<u64, LoginOver>,
}

/// The counts of all logins.
#[derive(Debug)]
pub(crate) struct Logins {
    state: Mutex<LoginState>,
    names: RandomState,
}

impl Default for Logins {
    fn default() -> Self {
        let state = LoginState { counts: SlidingWindows::new(WINDOW), over: BTreeMap::new() };
        Self { state: Mutex::new(state), names: RandomState::new() }
    }
}

impl Logins {
    /// Decides whether one more recipient of a login may be accepted; nothing is counted. `now` is the time since
    /// some moment that stays the same.
    pub(crate) fn ask(&self, user: &str, client: Option<IpAddr>, max: u32, now: Duration) -> Allowance {
        let key = self.names.hash_one(user);
        let mut state = self.state();
        let count = state.counts.count(&key, nanoseconds(now));
        if max == 0 || count < max {
            return Allowance::Free;
        }
        state.over.retain(|_, one| is_recent(one, now));
        let is_first = !state.over.contains_key(&key);
        if is_first && state.over.len() < OVER_MAX {
            state.over.insert(key, LoginOver { user: user.into(), client, count, at: now });
        }
        Allowance::Over { count, is_first }
    }

    /// A recipient of a login was accepted.
    pub(crate) fn count(&self, user: &str, now: Duration) {
        let key = self.names.hash_one(user);
        self.state().counts.record(key, nanoseconds(now));
    }

    /// Logins that were over the limit in the last hour, by name.
    pub(crate) fn over(&self, now: Duration) -> Vec<LoginOver> {
        let mut all: Vec<LoginOver> = self.state().over.values().filter(|one| is_recent(one, now)).cloned().collect();
        all.sort_by(|one, other| one.user.cmp(&other.user));
        all
    }

    fn state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(one: &LoginOver, now: Duration) -> bool {
    now.saturating_sub(one.at) < WINDOW
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_hour_slides_and_an_operator_is_told_once_in_it() {
        let logins = Logins::default();
        let client = Some(IpAddr::from([192, 0, 2, 1]));
        for minute in 0..10 {
            assert_eq!(logins.ask("ann", client, 10, minute * MINUTE), Allowance::Free);
            logins.count("ann", minute * MINUTE);
        }
        for is_first in [true, false, false] {
            assert_eq!(logins.ask("ann", client, 10, 20 * MINUTE), Allowance::Over { count: 10, is_first });
        }
        let over = LoginOver { user: "ann".into(), client, count: 10, at: 20 * MINUTE };
        assert_eq!(logins.over(79 * MINUTE), [over]);
        assert_eq!(logins.over(80 * MINUTE), []);
        assert_eq!(logins.ask("bob", client, 10, 20 * MINUTE), Allowance::Free);
        assert_eq!(logins.ask("ann", client, 0, 20 * MINUTE), Allowance::Free, "0: no limit");
        assert_eq!(logins.ask("ann", client, 10, 70 * MINUTE), Allowance::Free);
        for _ in 0..10 {
            logins.count("ann", 90 * MINUTE);
        }
        assert_eq!(logins.ask("ann", client, 10, 90 * MINUTE), Allowance::Over { count: 10, is_first: true });
    }

    #[test]
    fn many_logins_over_the_limit_stay_within_bounds() {
        let logins = Logins::default();
        for number in 0..2 * OVER_MAX {
            let user = number.to_string();
            logins.count(&user, MINUTE);
            assert!(matches!(logins.ask(&user, None, 1, MINUTE), Allowance::Over { is_first: true, .. }));
        }
        assert_eq!(logins.over(MINUTE).len(), OVER_MAX);
    }
}
