//! How fast a counter grows, over the last minute, for `status`.
//!
//! The owner of the counter adds its value about once a second; the rate holds a minute of values.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time that a rate is taken over.
const WINDOW: Duration = Duration::from_secs(60);
/// Values that are kept, also if they are added faster.
const SAMPLES_MAX: usize = 128;

/// The last values of a counter.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Adds the value of this moment.
    pub fn add_sample(&mut self, now: Instant, value: u64) {
        // The newest one that is a whole window old stays: the rate is taken from there.
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW) {
            self.samples.pop_front();
        }
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, value));
    }

    /// How much the counter has grown per second up to `value` now; 0 while nothing is known.
    #[must_use]
    pub fn per_second(&self, now: Instant, value: u64) -> f64 {
        let Some((at, first)) = self.samples.front() else { return 0.0 };
        let seconds = now.saturating_duration_since(*at).as_secs_f64();
        let grown = u32::try_from(value.saturating_sub(*first)).unwrap_or(u32::MAX);
        if seconds > 0.0 { f64::from(grown) / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_minute() {
        let begin = os::clock::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(at(0), 5), 0.0);
        rate.add_sample(at(0), 0);
        assert_eq!((rate.per_second(at(0), 5), rate.per_second(at(10), 50)), (0.0, 5.0));
        // A burst of 600 in the first second, then nothing.
        for second in 1..=200 {
            rate.add_sample(at(second), 600);
        }
        assert_eq!(rate.per_second(at(200), 600), 0.0, "long ago");
        assert!(rate.samples.len() <= 62, "{}", rate.samples.len());
        assert_eq!(rate.per_second(at(200), 1_200), 10.0);
        for _ in 0..1_000 {
            rate.add_sample(at(201), 600);
        }
        assert!(rate.samples.len() <= SAMPLES_MAX);
    }
}
