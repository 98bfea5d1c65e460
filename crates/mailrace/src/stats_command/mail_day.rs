//! A day of mail by minutes, as text and pictures draw it.

use super::civil_text;
use crate::output::thousands;
use observe::stats::{Counts, Series};

/// Minutes of a day.
pub(super) const MINUTES: usize = 1_440;

/// A day by minutes.
pub(super) struct DayOfMail {
    /// The first second.
    pub(super) begin: i64,
    /// The counts of each minute.
    pub(super) minutes: Vec<Counts>,
}

impl DayOfMail {
    /// Takes the minutes of the day that begins at this second.
    pub(super) fn of(series: &Series, begin: i64) -> Self {
        let minutes = (0..MINUTES as i64).map(|minute| series.counts_at(begin + 60 * minute)).collect();
        Self { begin, minutes }
    }

    /// Returns the counts of the day.
    pub(super) fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.minutes.iter().for_each(|counts| total.add(counts));
        total
    }

    /// Returns the highest rate of deliveries an hour, over a minute.
    pub(super) fn peak(&self) -> u64 {
        self.minutes.iter().map(|counts| counts.sent * 60).max().unwrap_or(0)
    }

    /// Returns the highest rate of attempts without success.
    pub(super) fn peak_unsent(&self) -> u64 {
        self.minutes.iter().map(|counts| counts.unsent() * 60).max().unwrap_or(0)
    }

    /// Returns the date and the sums in words.
    pub(super) fn title(&self) -> String {
        let total = self.total();
        format!(
            "{} {}: {} delivered, {} not delivered, {} messages came",
            civil_text::weekday(self.begin),
            civil_text::day(self.begin),
            thousands(total.sent),
            thousands(total.unsent()),
            thousands(total.arrivals)
        )
    }
}
