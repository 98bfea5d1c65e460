//! When a recipient is tried again after a temporary failure. The driver records the time in the spool.
//!
//! The waits of sites and look-ups that are down are others: [`Settings::down_first`](crate::Settings).

use std::time::Duration;

use crate::settings::back_off;

/// The waits between the attempts of a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Wait after the first failed attempt. 5 minutes.
    pub first: Duration,
    /// Longest wait between attempts. 1 hour.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { first: Duration::from_secs(5 * 60), max: Duration::from_secs(60 * 60) }
    }
}

impl RetryPolicy {
    /// Returns how long a recipient waits after the temporary failure of its `attempts`th attempt.
    ///
    /// `first`, doubled with each attempt up to `max`, ± 25 % by the seed. Use one seed per message and attempt, so
    /// that mail that failed together is not tried together.
    #[must_use]
    pub fn retry_after(&self, attempts: u8, seed: u64) -> Duration {
        back_off(u32::from(attempts), self.first, self.max, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_longest_and_scatter_by_a_quarter() {
        let policy = RetryPolicy::default();
        for (attempts, minutes) in [(0, 5), (1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (6, 60), (127, 60), (255, 60)] {
            let middle = Duration::from_secs(60 * minutes);
            let waits: Vec<Duration> = (0..2_000).map(|seed| policy.retry_after(attempts, seed)).collect();
            let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
            assert!(*least >= middle * 3 / 4 && *least < middle * 78 / 100, "{attempts}: {least:?}");
            assert!(*most <= middle * 5 / 4 && *most > middle * 122 / 100, "{attempts}: {most:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_wait_and_extremes_do_not_overflow() {
        let policy = RetryPolicy { first: Duration::MAX, max: Duration::MAX };
        assert_eq!(policy.retry_after(200, 7), policy.retry_after(200, 7));
        assert_eq!(back_off(u32::MAX, Duration::ZERO, Duration::ZERO, 1), Duration::ZERO);
    }
}
