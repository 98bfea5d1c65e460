//! Steps of the wall clock that are no time in which mail waited.
//!
//! A queue id has the time of a message by the clock of its day. When that clock was wrong and a later one is right,
//! the difference between both is a step, and the age of older mail does not count it.

use std::time::Duration;

/// Steps that are kept. The two oldest become one when there are more.
pub const CLOCK_STEPS_MAX: usize = 32;
/// A message whose time lies further ahead than this was accepted under a clock that ran ahead.
const AHEAD: Duration = Duration::from_secs(24 * 3_600);

/// The clock went from one time to a later one without the time between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// The last time before the step, since 1970.
    pub from: Duration,
    /// The first time after it.
    pub to: Duration,
}

/// The known steps, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    steps: Vec<ClockStep>,
    /// The first time at which this server saw mail from the future.
    ahead_since: Option<Duration>,
}

impl ClockSteps {
    /// Adds a step; one that goes nowhere or back is none.
    pub fn add(&mut self, step: ClockStep) {
        if step.to <= step.from {
            return;
        }
        self.steps.push(step);
        if let [first, second, ..] = *self.steps.as_slice()
            && self.steps.len() > CLOCK_STEPS_MAX
        {
            // Mail of the time between both counts as younger than it is, and is tried for longer.
            self.steps.splice(..2, [ClockStep { from: first.from, to: second.to }]);
        }
    }

    /// Has mail from the future count as accepted at this time; `None`: at its own time.
    pub fn set_ahead_since(&mut self, at: Option<Duration>) {
        self.ahead_since = at;
    }

    /// The time that [`ClockSteps::set_ahead_since`] set.
    #[must_use]
    pub const fn ahead_since(&self) -> Option<Duration> {
        self.ahead_since
    }

    /// The known steps, the oldest first.
    #[must_use]
    pub fn steps(&self) -> &[ClockStep] {
        &self.steps
    }

    /// Returns the time from which the age of a message counts that got its queue id at `at`, by the present clock.
    ///
    /// The steps that came after `at` are added to it; a time within a step is its end. A time more than a day after
    /// `now` is that at which this server first saw such mail.
    #[must_use]
    pub fn counts_from(&self, at: Duration, now: Duration) -> Duration {
        let moved = self.steps.iter().fold(at, |at, step| {
            if at <= step.from { at.saturating_add(step.to - step.from) } else { at.max(step.to) }
        });
        match self.ahead_since {
            Some(since) if moved > now.saturating_add(AHEAD) => since.min(now),
            _ => moved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_step_is_no_age() {
        let mut steps = ClockSteps::default();
        let from = |steps: &ClockSteps, time| steps.counts_from(at(time), at(10_000)).as_secs();
        assert_eq!(from(&steps, 50), 50);
        steps.add(ClockStep { from: at(100), to: at(1_000) });
        steps.add(ClockStep { from: at(100), to: at(100) });
        assert_eq!(steps.steps().len(), 1);
        for (time, counts) in [(40, 940), (100, 1_000), (101, 1_000), (999, 1_000), (1_000, 1_000), (1_500, 1_500)] {
            assert_eq!(from(&steps, time), counts, "{time}");
        }
        steps.add(ClockStep { from: at(1_200), to: at(5_000) });
        for (time, counts) in [(40, 4_740), (500, 4_800), (1_200, 5_000), (1_201, 5_000), (6_000, 6_000)] {
            assert_eq!(from(&steps, time), counts, "{time}");
        }
    }

    #[test]
    fn the_oldest_steps_become_one() {
        let mut steps = ClockSteps::default();
        for number in 1..=u64::try_from(CLOCK_STEPS_MAX).unwrap() + 1 {
            steps.add(ClockStep { from: at(number * 100), to: at(number * 100 + 10) });
        }
        assert_eq!(steps.steps().len(), CLOCK_STEPS_MAX);
        assert_eq!(steps.steps()[0], ClockStep { from: at(100), to: at(210) });
        assert_eq!(steps.counts_from(at(150), at(9_000)), at(210 + 31 * 10), "no older than it is");
    }

    #[test]
    fn mail_from_the_future_ages_from_the_first_look() {
        let mut steps = ClockSteps::default();
        let (day, now) = (24 * 3_600, 1_000);
        let from = |steps: &ClockSteps, time| steps.counts_from(at(time), at(now)).as_secs();
        assert_eq!(from(&steps, 9 * day), 9 * day);
        steps.set_ahead_since(Some(at(700)));
        assert_eq!((from(&steps, 9 * day), from(&steps, day), from(&steps, 900)), (700, day, 900));
    }
}
