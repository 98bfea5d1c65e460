//! Counts in windows of equal length, of which the last ones are kept.

use super::counts::Counts;
use std::collections::VecDeque;

/// One window of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The second with which it begins.
    pub begin: i64,
    /// Its counts.
    pub counts: Counts,
}

/// The last windows, each of `step` seconds.
#[derive(Clone, Debug)]
pub struct Series {
    step: i64,
    length_max: usize,
    /// The number of the first window, counted from second 0 of the axis.
    first: i64,
    windows: VecDeque<Counts>,
    left_out: u64,
}

impl Series {
    /// Makes an empty series that keeps `length_max` windows of `step` seconds. Both are at least 1.
    #[must_use]
    pub fn new(step: u32, length_max: usize) -> Self {
        let (step, length_max) = (i64::from(step.max(1)), length_max.max(1));
        Self { step, length_max, first: 0, windows: VecDeque::new(), left_out: 0 }
    }

    /// Returns the length of a window in seconds.
    #[must_use]
    pub const fn step(&self) -> i64 {
        self.step
    }

    /// Returns the counts of the window of this second, and makes it and the windows up to it. `None`: it is older than
    /// all that are kept.
    pub fn window_at(&mut self, time: i64) -> Option<&mut Counts> {
        let number = time.div_euclid(self.step);
        if self.windows.is_empty() {
            self.first = number;
        }
        if number < self.first && !self.grow_back(number) {
            self.left_out += 1;
            return None;
        }
        let mut at = usize::try_from(number.abs_diff(self.first)).ok()?;
        if at >= self.windows.len() {
            at = self.grow_to(at);
        }
        self.windows.get_mut(at)
    }

    /// Drops all windows if the oldest begins after this second: a clock that was set back counts from there on.
    pub fn restart_before(&mut self, time: i64) {
        if time.div_euclid(self.step) < self.first {
            self.windows.clear();
        }
    }

    /// Makes windows before the first, as far as there is room; returns whether the window of this number is there.
    fn grow_back(&mut self, number: i64) -> bool {
        let missing = usize::try_from(self.first.abs_diff(number)).unwrap_or(usize::MAX);
        if missing > self.length_max - self.windows.len().min(self.length_max) {
            return false;
        }
        (0..missing).for_each(|_| self.windows.push_front(Counts::default()));
        self.first = number;
        true
    }

    /// Makes windows behind the last up to this place, drops the oldest beyond the limit, and returns the new place.
    fn grow_to(&mut self, at: usize) -> usize {
        let drop = at.saturating_sub(self.length_max - 1);
        if drop >= self.windows.len() {
            self.windows.clear();
        } else {
            self.windows.drain(..drop);
        }
        self.first = self.first.saturating_add_unsigned(u64::try_from(drop).unwrap_or(u64::MAX));
        let last = at - drop;
        self.windows.resize(last + 1, Counts::default());
        last
    }

    /// Returns the windows in their order, the empty ones too.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = Slot> + ExactSizeIterator {
        let (first, step) = (self.first, self.step);
        self.windows.iter().enumerate().map(move |(index, counts)| {
            let number = first.saturating_add(i64::try_from(index).unwrap_or(i64::MAX));
            Slot { begin: number.saturating_mul(step), counts: *counts }
        })
    }

    /// Returns the counts of the window of this second; zeros where it is not kept.
    #[must_use]
    pub fn counts_at(&self, time: i64) -> Counts {
        let number = time.div_euclid(self.step);
        let at = usize::try_from(number.abs_diff(self.first)).ok().filter(|_| number >= self.first);
        at.and_then(|at| self.windows.get(at)).copied().unwrap_or_default()
    }

    /// Returns the sum of all windows.
    #[must_use]
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.windows.iter().for_each(|counts| total.add(counts));
        total
    }

    /// Returns how many facts were older than the oldest window.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(series: &Series) -> Vec<(i64, u64)> {
        series.slots().map(|slot| (slot.begin, slot.counts.arrivals)).collect()
    }

    fn put(series: &mut Series, time: i64) {
        if let Some(counts) = series.window_at(time) {
            counts.arrivals += 1;
        }
    }

    #[test]
    fn the_last_windows_are_kept() {
        let mut series = Series::new(15, 3);
        for time in [30, 44, 45, 75] {
            put(&mut series, time);
        }
        assert_eq!(arrivals(&series), [(30, 2), (45, 1), (60, 0), (75, 1)].get(1..).unwrap());
        put(&mut series, 44);
        assert_eq!((series.left_out(), series.counts_at(46).arrivals, series.counts_at(44).arrivals), (1, 1, 0));
        put(&mut series, 10_000_000);
        assert_eq!(arrivals(&series), [(9_999_960, 0), (9_999_975, 0), (9_999_990, 1)]);
        assert_eq!(series.total().arrivals, 1);
    }

    #[test]
    fn windows_before_the_first_are_made_where_there_is_room() {
        let mut series = Series::new(1, 4);
        for time in [-2, -4, -5, -6, -4] {
            put(&mut series, time);
        }
        assert_eq!(arrivals(&series), [(-5, 1), (-4, 2), (-3, 0), (-2, 1)]);
        assert_eq!(series.left_out(), 1);
    }

    #[test]
    fn a_clock_that_is_set_back_counts_again() {
        let mut series = Series::new(1, 4);
        for time in [100, 101, 102, 103, 50] {
            put(&mut series, time);
        }
        assert_eq!((series.left_out(), series.total().arrivals), (1, 4));
        series.restart_before(101);
        assert_eq!(series.total().arrivals, 4, "101 is kept");
        series.restart_before(50);
        put(&mut series, 50);
        assert_eq!(arrivals(&series), [(50, 1)]);
    }

    #[test]
    fn far_jumps_take_no_time_and_no_memory() {
        let mut series = Series::new(1, 4);
        for time in [0, i64::MAX, 5, i64::MIN] {
            put(&mut series, time);
        }
        assert!(series.slots().len() <= 4);
    }
}
