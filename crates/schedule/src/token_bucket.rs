//! The rate of a site: a bucket that holds the tokens of one second, at least one.
//!
//! Kept as the time at which the bucket is full again (the *virtual scheduling* of GCRA), so no timer refills it, and
//! rounding never allows more.

use std::time::Duration;

const MICRO: u128 = 1_000_000;

/// The bucket of one site. Without a limit it is never empty.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    limit: Option<u32>,
    /// Nanoseconds between two tokens, rounded up.
    period: u128,
    /// The number of tokens that the bucket holds.
    burst: u128,
    /// When it is full again, in nanoseconds since 1970.
    full: u128,
}

impl TokenBucket {
    /// Sets the limit, in transactions per 1,000 seconds. Spent tokens stay spent.
    pub(crate) fn set(&mut self, limit: Option<u32>, now: Duration) {
        self.set_with_burst(limit, Duration::from_secs(1), now);
    }

    /// Sets the limit for a bucket that holds the tokens of `span`, at least one.
    pub(crate) fn set_with_burst(&mut self, limit: Option<u32>, span: Duration, now: Duration) {
        let milli = u128::from(limit.unwrap_or(1).max(1));
        let burst = (milli * span.as_millis() / 1_000_000).max(1);
        if limit == self.limit && burst == self.burst {
            return;
        }
        self.limit = limit;
        self.period = 1_000_000_000_000_u128.div_ceil(milli);
        self.burst = burst;
        self.full = self.full.min(now.as_nanos() + self.burst * self.period);
    }

    /// Sets the limit for a machine that has a part of a rate: it keeps its tokens, or none, and a larger part brings
    /// none at once.
    pub(crate) fn set_keeping_tokens(&mut self, limit: Option<u32>, keeps: bool, now: Duration) {
        // In millionths, so that what a token has grown is kept when the part changes often.
        let missing = self.full.saturating_sub(now.as_nanos());
        let grown = (self.burst * self.period).saturating_sub(missing) * MICRO;
        let tokens = if keeps && self.limit.is_some() { grown / self.period } else { 0 };
        self.set(limit, now);
        let tokens = tokens.min(self.burst * MICRO);
        self.full = now.as_nanos() + ((self.burst * MICRO - tokens) * self.period).div_ceil(MICRO);
    }

    /// Returns the number of tokens.
    pub(crate) fn available(&self, now: Duration) -> usize {
        if self.limit.is_none() {
            return usize::MAX;
        }
        let missing = self.full.saturating_sub(now.as_nanos()).div_ceil(self.period);
        usize::try_from(self.burst.saturating_sub(missing)).unwrap_or(usize::MAX)
    }

    /// Spends a token.
    pub(crate) fn spend(&mut self, now: Duration) {
        if self.limit.is_some() {
            self.full = self.full.max(now.as_nanos()) + self.period;
        }
    }

    /// Returns a token.
    pub(crate) const fn refund(&mut self) {
        self.full = self.full.saturating_sub(self.period);
    }

    /// Returns the limit, in transactions per 1,000 seconds.
    pub(crate) const fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Returns when the next token comes, if there is none.
    pub(crate) fn next_at(&self) -> Duration {
        nanos(self.full.saturating_sub((self.burst.saturating_sub(1)) * self.period))
    }

    /// Returns when it can be forgotten that tokens were spent.
    pub(crate) fn full_at(&self) -> Duration {
        if self.limit.is_none() { Duration::ZERO } else { nanos(self.full) }
    }
}

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Duration = Duration::from_secs(1_800_000_000);

    proptest! {
        #[test]
        fn no_window_of_time_has_more_than_its_rate_and_one_burst(
            milli in 1_u32..20_000,
            steps in prop::collection::vec((0_u64..3_000, 0_usize..8), 1..200),
        ) {
            let mut rate = TokenBucket::default();
            rate.set(Some(milli), START);
            let (mut now, mut spent) = (START, Vec::new());
            for (ms, tries) in steps {
                now += Duration::from_millis(ms);
                for _ in 0..tries {
                    if rate.available(now) > 0 {
                        rate.spend(now);
                        spent.push(now);
                    } else {
                        prop_assert!(rate.next_at() > now);
                    }
                }
            }
            let burst = f64::from((milli / 1_000).max(1));
            for (first, from) in spent.iter().enumerate() {
                for (last, to) in spent.iter().enumerate().skip(first) {
                    let most = (*to - *from).as_secs_f64() * f64::from(milli) / 1_000.0 + burst;
                    let count = u32::try_from(last - first + 1).unwrap();
                    prop_assert!(f64::from(count) <= most + 1e-6, "{} in {:?} at {} milli", count, *to - *from, milli);
                }
            }
        }

        #[test]
        fn the_next_token_comes_at_the_time_given(milli in 1_u32..50_000) {
            let mut rate = TokenBucket::default();
            rate.set(Some(milli), START);
            let mut now = START;
            let burst = usize::try_from((milli / 1_000).max(1)).unwrap();
            prop_assert_eq!(rate.available(now), burst);
            for _ in 0..3 * burst.min(50) {
                while rate.available(now) > 0 {
                    rate.spend(now);
                }
                now = rate.next_at();
                prop_assert_eq!(rate.available(now), 1);
            }
        }
    }

    #[test]
    fn without_a_limit_there_is_always_one_and_a_faster_limit_frees_at_once() {
        let mut rate = TokenBucket::default();
        rate.spend(START);
        assert_eq!((rate.available(START), rate.full_at()), (usize::MAX, Duration::ZERO));
        rate.set(Some(1), START);
        rate.spend(START);
        assert_eq!((rate.available(START), rate.next_at()), (0, START + Duration::from_secs(1_000)));
        rate.set(Some(1_000), START);
        assert!(rate.next_at() <= START + Duration::from_secs(1));
        rate.set(None, START);
        assert_eq!(rate.available(START), usize::MAX);
    }
}
