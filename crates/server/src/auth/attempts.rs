//! Failed logins, counted over all sessions, and the pairs of client and user that have logged in.
//!
//! | Counted | Limit | Beyond it |
//! |---|---|---|
//! | failures of a client: an IPv4, or an IPv6 /64 | `auth.failures_per_client` | 454 without a check of the password |
//! | failures of a user name, from all clients together | `auth.failures_per_user` | the same |
//! | failures of a pair that has logged in before | `auth.failures_per_client`, for this pair alone | the same |
//!
//! The counts are those of `auth.failures_window`. A pair that has logged in is exempt from the first two, so
//! password guesses from elsewhere do not lock out a user at his usual address. A login that succeeds forgets the
//! failures of its pair. Clients in `accept.exempt` have no limit of their own: many users log in from them.
//!
//! Invariants: all tables are bounded; names are kept as hashes under a key of this process. A flood of different
//! clients and names makes a table forget earlier, which gives an attacker one window more. A restart forgets
//! everything.
//!
//! Time is given; nothing here reads a clock.

use crate::client_network::ClientNetwork;
use crate::config::Auth;
use crate::sliding_window::{KEYS_MAX, SlidingWindows};
use ipnet::IpNet;
use observe::Limit;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time for which a pair counts as one that has logged in.
const KNOWN_TIME: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The limits; 0 means none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttemptLimits {
    per_client: u32,
    per_user: u32,
    window: Duration,
    exempt: Vec<IpNet>,
}

impl AttemptLimits {
    pub(super) fn new(auth: &Auth, exempt: &[IpNet]) -> Self {
        Self {
            per_client: auth.failures_per_client,
            per_user: auth.failures_per_user,
            window: auth.failures_window,
            exempt: exempt.to_vec(),
        }
    }
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) limit: Limit,
    pub(super) max: u32,
}

type Pair = (Option<ClientNetwork>, u64);

#[derive(Debug)]
struct AttemptState {
    limits: AttemptLimits,
    clients: SlidingWindows<ClientNetwork>,
    users: SlidingWindows<u64>,
    pairs: SlidingWindows<Pair>,
    known: KnownPairs,
}

/// Counters of failed logins and known pairs; the server has one.
#[derive(Debug)]
pub(super) struct Attempts {
    state: Mutex<AttemptState>,
    /// Hashes names.
    names: RandomState,
}

impl Attempts {
    pub(super) fn new(limits: AttemptLimits) -> Self {
        let window = limits.window;
        let state = AttemptState {
            limits,
            clients: SlidingWindows::new(window),
            users: SlidingWindows::new(window),
            pairs: SlidingWindows::new(window),
            known: KnownPairs::default(),
        };
        Self { state: Mutex::new(state), names: RandomState::new() }
    }

    /// Puts other limits in force. Counts stay, unless the window changes.
    pub(super) fn set_limits(&self, limits: AttemptLimits) {
        let mut state = self.state();
        if state.limits.window != limits.window {
            let window = limits.window;
            (state.clients, state.users, state.pairs) =
                (SlidingWindows::new(window), SlidingWindows::new(window), SlidingWindows::new(window));
        }
        state.limits = limits;
    }

    /// Returns whether a password of this client and user may be checked; `Ok(true)`: the pair has logged in lately,
    /// and goes first. `now` is the time since some moment that stays the same.
    ///
    /// # Errors
    /// The limit that is reached. Nothing was counted.
    pub(super) fn admit(&self, client: Option<IpAddr>, user: &str, now: Duration) -> Result<bool, Limited> {
        let (pair, now) = (self.pair(client, user), nanoseconds(now));
        let state = self.state();
        let AttemptLimits { per_client, per_user, ref exempt, .. } = state.limits;
        let reached = |count: u32, max: u32| max != 0 && count >= max;
        let of_client = Limited { limit: Limit::AuthFailuresPerClient, max: per_client };
        if state.known.has(&pair, now) {
            return if reached(state.pairs.count(&pair, now), per_client) { Err(of_client) } else { Ok(true) };
        }
        let is_exempt = client.is_some_and(|ip| exempt.iter().any(|network| network.contains(&ip.to_canonical())));
        if let Some(key) = pair.0
            && !is_exempt
            && reached(state.clients.count(&key, now), per_client)
        {
            return Err(of_client);
        }
        if reached(state.users.count(&pair.1, now), per_user) {
            return Err(Limited { limit: Limit::AuthFailuresPerUser, max: per_user });
        }
        Ok(false)
    }

    /// Counts a failed login: a wrong password, or an unknown user.
    pub(super) fn record_failure(&self, client: Option<IpAddr>, user: &str, now: Duration) {
        let (pair, now) = (self.pair(client, user), nanoseconds(now));
        let mut state = self.state();
        if state.known.has(&pair, now) {
            return state.pairs.record(pair, now);
        }
        if let Some(key) = pair.0 {
            state.clients.record(key, now);
        }
        state.users.record(pair.1, now);
    }

    /// Records a login.
    pub(super) fn record_success(&self, client: Option<IpAddr>, user: &str, now: Duration) {
        let (pair, now) = (self.pair(client, user), nanoseconds(now));
        let mut state = self.state();
        state.pairs.forget(&pair);
        state.known.insert(pair, now);
    }

    fn pair(&self, client: Option<IpAddr>, user: &str) -> Pair {
        (client.map(ClientNetwork::new), self.names.hash_one(user))
    }

    fn state(&self) -> MutexGuard<'_, AttemptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Pairs that have logged in, with the time of their last login: those since `rotated`, and those from before.
#[derive(Debug, Default)]
struct KnownPairs {
    young: HashMap<Pair, u64>,
    old: HashMap<Pair, u64>,
    rotated: u64,
}

impl KnownPairs {
    fn has(&self, pair: &Pair, now: u64) -> bool {
        let last = self.young.get(pair).or_else(|| self.old.get(pair));
        last.is_some_and(|last| now.saturating_sub(*last) < nanoseconds(KNOWN_TIME))
    }

    fn insert(&mut self, pair: Pair, now: u64) {
        let is_full = self.young.len() >= KEYS_MAX / 2 && !self.young.contains_key(&pair);
        if is_full || now.saturating_sub(self.rotated) >= nanoseconds(KNOWN_TIME) {
            self.old = std::mem::take(&mut self.young);
            self.rotated = now;
        }
        self.young.insert(pair, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const WINDOW: Duration = Duration::from_secs(600);

    fn attempts() -> Attempts {
        let exempt = vec!["192.0.2.200/32".parse().unwrap()];
        Attempts::new(AttemptLimits { per_client: 3, per_user: 5, window: WINDOW, exempt })
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn limit(result: Result<bool, Limited>) -> Option<Limit> {
        result.err().map(|limited| limited.limit)
    }

    #[test]
    fn failures_of_a_client_count_whatever_the_user_and_the_session() {
        let attempts = attempts();
        for user in ["a", "b", "c"] {
            assert_eq!(attempts.admit(ip("192.0.2.1"), user, SECOND), Ok(false));
            attempts.record_failure(ip("192.0.2.1"), user, SECOND);
        }
        let client = Some(Limit::AuthFailuresPerClient);
        assert_eq!(limit(attempts.admit(ip("192.0.2.1"), "d", SECOND)), client);
        assert_eq!(limit(attempts.admit(ip("::ffff:192.0.2.1"), "d", SECOND)), client);
        assert_eq!(attempts.admit(ip("192.0.2.2"), "d", SECOND), Ok(false));
        // The window slides.
        assert_eq!(limit(attempts.admit(ip("192.0.2.1"), "d", WINDOW - SECOND)), client);
        assert_eq!(attempts.admit(ip("192.0.2.1"), "d", SECOND + WINDOW), Ok(false));
    }

    #[test]
    fn an_ipv6_client_is_its_64() {
        let attempts = attempts();
        for host in 1..=3 {
            attempts.record_failure(ip(&format!("2001:db8::{host}")), &format!("user{host}"), SECOND);
        }
        assert!(attempts.admit(ip("2001:db8::ffff"), "x", SECOND).is_err());
        assert!(attempts.admit(ip("2001:db8:0:1::1"), "x", SECOND).is_ok());
    }

    #[test]
    fn failures_of_a_user_count_from_all_clients() {
        let attempts = attempts();
        for host in 1..=5 {
            attempts.record_failure(ip(&format!("192.0.2.{host}")), "ann", SECOND);
        }
        let result = attempts.admit(ip("192.0.2.9"), "ann", SECOND);
        assert_eq!(result, Err(Limited { limit: Limit::AuthFailuresPerUser, max: 5 }));
        assert_eq!(attempts.admit(ip("192.0.2.9"), "bob", SECOND), Ok(false));
    }

    #[test]
    fn guessing_locks_no_user_out_of_the_place_where_he_logs_in() {
        let attempts = attempts();
        attempts.record_success(ip("192.0.2.1"), "ann", SECOND);
        for host in 1..=50 {
            // From elsewhere, and from the same address at other users.
            attempts.record_failure(ip(&format!("198.51.100.{host}")), "ann", SECOND);
            attempts.record_failure(ip("192.0.2.1"), "bob", SECOND);
        }
        assert_eq!(attempts.admit(ip("192.0.2.1"), "ann", SECOND), Ok(true));
        assert!(attempts.admit(ip("198.51.100.1"), "ann", SECOND).is_err());
        assert!(attempts.admit(ip("192.0.2.1"), "bob", SECOND).is_err());
        // The pair has a limit of its own, and a login forgets it.
        for _ in 0..3 {
            assert_eq!(attempts.admit(ip("192.0.2.1"), "ann", SECOND), Ok(true));
            attempts.record_failure(ip("192.0.2.1"), "ann", SECOND);
        }
        assert!(attempts.admit(ip("192.0.2.1"), "ann", SECOND).is_err());
        attempts.record_success(ip("192.0.2.1"), "ann", SECOND);
        assert_eq!(attempts.admit(ip("192.0.2.1"), "ann", SECOND), Ok(true));
        assert_eq!(attempts.admit(ip("192.0.2.1"), "ann", SECOND + KNOWN_TIME), Ok(false));
    }

    #[test]
    fn exempt_clients_and_limits_of_zero() {
        let attempts = attempts();
        for user in 0..9 {
            attempts.record_failure(ip("192.0.2.200"), &format!("{user}"), SECOND);
        }
        assert_eq!(attempts.admit(ip("192.0.2.200"), "x", SECOND), Ok(false));
        let limits = AttemptLimits { per_client: 0, per_user: 0, window: WINDOW, exempt: Vec::new() };
        for host in 1..=9 {
            attempts.record_failure(ip(&format!("192.0.2.{host}")), "ann", SECOND);
        }
        assert!(attempts.admit(ip("192.0.2.20"), "ann", SECOND).is_err());
        attempts.set_limits(limits);
        assert_eq!(attempts.admit(ip("192.0.2.20"), "ann", SECOND), Ok(false));
    }

    #[test]
    fn a_flood_stays_within_bounds() {
        let attempts = attempts();
        for number in 0..2 * KEYS_MAX {
            let number = u32::try_from(number).unwrap();
            let client = Some(IpAddr::from(number.to_be_bytes()));
            let user = number.to_string();
            attempts.record_failure(client, &user, SECOND);
            attempts.record_success(client, &user, SECOND);
            attempts.record_failure(client, &user, SECOND);
        }
        let state = attempts.state();
        for length in [state.clients.len(), state.users.len(), state.pairs.len()] {
            assert!(length <= KEYS_MAX, "{length}");
        }
        assert!(state.known.young.len() + state.known.old.len() <= KEYS_MAX);
    }
}
