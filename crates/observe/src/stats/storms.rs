//! Storms: stretches of minutes with much mail, found in the windows of the statistics.

use super::counts::Counts;
use super::series::Series;

/// Quiet minutes that end a storm.
const QUIET_MINUTES: i64 = 5;

/// A stretch of minutes with much mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailStorm {
    /// The first second of its first minute.
    pub begin: i64,
    /// The first second after its last minute.
    pub end: i64,
    /// It may go on: its last minute was a moment ago.
    pub is_running: bool,
    /// All counts of it.
    pub counts: Counts,
    /// The most messages that came in a minute.
    pub arrivals_minute: u64,
    /// The most recipients that next hops took in a minute.
    pub sent_minute: u64,
}

/// Finds the storms in windows of a minute, the youngest first: a minute belongs to one if it has `least` messages,
/// recipients of messages or deliveries, and minutes with less do if they lie between such minutes.
#[must_use]
pub fn find_storms(minutes: &Series, now: i64, least: u64) -> Vec<MailStorm> {
    let mut storms: Vec<MailStorm> = Vec::new();
    // Windows since the last minute of the storm, which belong to it if it goes on.
    let mut between = Counts::default();
    for slot in minutes.slots() {
        let Counts { arrivals, arrived_recipients, sent, .. } = slot.counts;
        let end = slot.begin.saturating_add(minutes.step());
        if arrivals.max(arrived_recipients).max(sent) < least.max(1) {
            between.add(&slot.counts);
            continue;
        }
        let quiet = minutes.step().saturating_mul(QUIET_MINUTES);
        match storms.last_mut().filter(|storm| slot.begin.saturating_sub(storm.end) < quiet) {
            Some(storm) => {
                storm.counts.add(&between);
                storm.counts.add(&slot.counts);
                storm.end = end;
                storm.arrivals_minute = storm.arrivals_minute.max(arrivals);
                storm.sent_minute = storm.sent_minute.max(sent);
            }
            None => storms.push(MailStorm {
                begin: slot.begin,
                end,
                is_running: false,
                counts: slot.counts,
                arrivals_minute: arrivals,
                sent_minute: sent,
            }),
        }
        between = Counts::default();
    }
    if let Some(last) = storms.last_mut() {
        last.is_running = now.saturating_sub(last.end) < minutes.step().saturating_mul(QUIET_MINUTES);
    }
    storms.reverse();
    storms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(counts: &[(i64, u64, u64)]) -> Series {
        let mut series = Series::new(60, 1_000);
        for (minute, arrivals, sent) in counts {
            let window = series.window_at(minute * 60).unwrap();
            (window.arrivals, window.sent) = (*arrivals, *sent);
        }
        series
    }

    #[test]
    fn minutes_with_much_mail_are_one_storm_until_it_is_quiet() {
        let series =
            minutes(&[(0, 3, 3), (10, 500, 20), (11, 5, 400), (13, 100, 300), (14, 2, 1), (40, 0, 200), (41, 1, 1)]);
        let storms = find_storms(&series, 41 * 60, 100);
        let found: Vec<_> = storms
            .iter()
            .map(|one| (one.begin / 60, one.end / 60, one.counts.arrivals, one.counts.sent, one.is_running))
            .collect();
        assert_eq!(found, [(40, 41, 0, 200, true), (10, 14, 605, 720, false)]);
        assert_eq!((storms[1].arrivals_minute, storms[1].sent_minute), (500, 400));
    }

    #[test]
    fn little_mail_is_no_storm() {
        assert_eq!(find_storms(&minutes(&[(0, 3, 3), (1, 99, 99)]), 60, 100), []);
        assert_eq!(find_storms(&Series::new(60, 9), 0, 0), []);
    }
}
