//! How long mail took, as a histogram.
//!
//! A recipient is counted once, when a next hop has taken its mail; attempts before that are not counted, so the
//! figures are those of the mail and not of its retries.

use std::time::Duration;

/// The upper bounds of the classes in seconds. The last class has none.
const BOUNDS: [f64; 17] = [
    0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0,
    604_800.0,
];

/// Delays of mail from its arrival to its delivery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delays {
    classes: [u64; BOUNDS.len() + 1],
    seconds: f64,
    longest: f64,
}

impl Delays {
    /// The number of classes.
    pub const CLASSES: usize = BOUNDS.len() + 1;

    /// Counts this many recipients with one delay.
    pub fn record(&mut self, delay: Duration, recipients: u64) {
        let seconds = delay.as_secs_f64();
        let class = BOUNDS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.classes.get_mut(class) {
            *count += recipients;
        }
        // A sum of times needs no digits beyond those of the type.
        #[expect(clippy::cast_precision_loss, reason = "a count of recipients stays below 2^53")]
        let recipients = recipients as f64;
        self.seconds += seconds * recipients;
        self.longest = self.longest.max(seconds);
    }

    /// Adds the delays of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.classes.iter_mut().zip(other.classes).for_each(|(sum, count)| *sum += count);
        self.seconds += other.seconds;
        self.longest = self.longest.max(other.longest);
    }

    /// Returns the number of recipients.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Returns the sum of all delays in seconds.
    #[must_use]
    pub const fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Returns the longest delay in seconds.
    #[must_use]
    pub const fn longest(&self) -> f64 {
        self.longest
    }

    /// Returns each class: its upper bound in seconds, and its recipients. The last has no bound.
    pub fn classes(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = BOUNDS.into_iter().map(Some).chain([None]);
        bounds.zip(self.classes)
    }

    /// Returns the upper bound in seconds of the class in which this part of the mail was delivered: 0.5 for one half.
    /// It is the longest delay where that is less, and `None` where there was no mail.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a count of recipients stays below 2^53")]
        let wanted = self.count() as f64 * part;
        let mut sum = 0.0;
        for (bound, count) in self.classes() {
            #[expect(clippy::cast_precision_loss, reason = "a count of recipients stays below 2^53")]
            let count = count as f64;
            sum += count;
            if sum > 0.0 && sum >= wanted {
                return Some(bound.map_or(self.longest, |bound| bound.min(self.longest)));
            }
        }
        None
    }

    /// Makes the histogram of its parts, as [`Delays::classes`], [`Delays::seconds`] and [`Delays::longest`] give them.
    #[must_use]
    pub fn from_parts(classes: [u64; Self::CLASSES], seconds: f64, longest: f64) -> Self {
        Self { classes, seconds, longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_is_counted_once_in_the_class_of_its_delay() {
        let mut delays = Delays::default();
        assert_eq!(delays.quantile(0.5), None);
        delays.record(Duration::from_millis(5), 90);
        delays.record(Duration::from_secs(7), 9);
        delays.record(Duration::from_secs(4_000_000), 1);
        assert_eq!(delays.count(), 100);
        let some: Vec<_> = delays.classes().filter(|(_, count)| *count > 0).collect();
        assert_eq!(some, [(Some(0.01), 90), (Some(10.0), 9), (None, 1)]);
        assert_eq!([0.5, 0.9, 0.99, 1.0].map(|part| delays.quantile(part)), [0.01, 0.01, 10.0, 4_000_000.0].map(Some));
        assert_eq!(delays.longest(), 4_000_000.0);
        let mut sum = delays.clone();
        sum.add(&delays);
        assert_eq!((sum.count(), sum.seconds()), (200, 2.0 * delays.seconds()));
    }

    #[test]
    fn a_bound_belongs_to_its_class() {
        let mut delays = Delays::default();
        delays.record(Duration::from_secs(1), 1);
        assert_eq!(delays.quantile(1.0), Some(1.0));
        delays.record(Duration::ZERO, 1);
        assert_eq!(delays.classes().next(), Some((Some(0.01), 1)));
    }
}
