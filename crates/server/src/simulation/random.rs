//! Random numbers from a seed, the same on every machine.

use std::time::Duration;

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Returns the stream of a seed, and of a part of the run: parts do not disturb each other.
    pub(super) fn new(seed: u64, part: u64) -> Self {
        let mut random = Self(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.next();
        random
    }

    /// splitmix64
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `least` to `most`, both possible.
    pub(super) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// True `percent` times of a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// Picks one of these.
    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.next()).unwrap() % of.len()]
    }

    /// Picks a time between, in milliseconds.
    pub(super) fn time(&mut self, least: Duration, most: Duration) -> Duration {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap();
        Duration::from_millis(self.within(millis(least), millis(most)))
    }
}
