//! Limits of the scheduler, and how long to wait after a failure.

use std::time::Duration;

use crate::chance::splitmix;

/// Jobs in memory at most while no connection is greeted: after a start with a full spool many destinations wait at once.
pub(crate) const READY_UNGREETED: usize = 64;
/// `Overdue` actions of a destination that may be unanswered while it walks on.
pub(crate) const OVERDUE_MAX: usize = 1_024;
/// The same of all together: each is a task of the driver. Walks leave what is beyond it.
pub(crate) const OVERDUE_MAX_ALL: usize = 4_096;
/// And look at it again after this.
pub(crate) const NOTICE_RETRY: Duration = Duration::from_secs(10);
/// Recipients of one part in memory at most. A transaction may have more, or fewer, by the limits of the site.
pub(crate) const PART_MAX: usize = 100;
/// What is put in line, or back, although its time is over has so long for its attempt.
pub(crate) const ATTEMPT_TIME: Duration = Duration::from_secs(60);
/// After so long in line it is asked by when a recipient is to be delivered, if that is not known.
pub(crate) const ASK_DEADLINE_AFTER: Duration = Duration::from_secs(20);

/// The limits. All can be changed while it runs, by [`Scheduler::set`](crate::Scheduler::set).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Connections of the whole server, opening ones included, at least one. A tenth of them, at least one, is the slow lane's,
    /// the rest the fast lane's; if there is only one, the lanes take turns. Those that lag take from the fast lane until it needs them. 1,000.
    pub connections_max: usize,
    /// Connections beside these whose peers have said nothing for a while in a transaction: they hold no place of the fast lane,
    /// into which they come back with an answer. 2,000.
    pub silent_max: usize,
    /// Connections a site may have before anything is known of it; its own limit is [`Limits`](crate::Limits). 5.
    pub window_start: u32,
    /// Jobs that wait for each connection of a site before one more is opened: half a second of work at a host 30 ms away. 16.
    pub jobs_per_connection: u32,
    /// How long a job waits before one more connection is opened for it. 0.5 s.
    pub job_wait_max: Duration,
    /// How long a connection keeps its place although a site without one waits for it: destinations share what there are of
    /// connections by time, in turns of this. 5 s.
    pub time_slice: Duration,
    /// `Resolve` actions that may be unanswered. 256.
    pub resolves_max: usize,
    /// Jobs in memory that wait for a connection: fresh ones of a destination, and as many more of a site that walks
    /// found in the spool. 1,024.
    pub ready_max: usize,
    /// The same of all destinations together: where there are many, the share of each is smaller, but not below 16. 500,000.
    pub jobs_max: usize,
    /// NoticeState after the first failed attempt of a message. 5 minutes.
    pub retry_first: Duration,
    /// The longest wait between attempts of a message. 1 hour.
    pub retry_max: Duration,
    /// NoticeState after a site was found unreachable, or the hosts of a destination were not found. 1 minute.
    pub down_first: Duration,
    /// The longest wait between probes of a site. 1 hour.
    pub down_max: Duration,
    /// Age at which the sender hears of the delay; `None`: never. 4 hours.
    pub warn_after: Option<Duration>,
    /// Age at which a recipient that still waits fails. 5 days.
    pub give_up_after: Duration,
    /// The pace of a site is learned from what it refuses as too much. True; false is for comparison.
    pub learn_pace: bool,
    /// Nothing goes behind a transaction of a list on its connection. True; false is for comparison.
    pub isolate_lists: bool,
    /// Fresh mail waits for a person: entries whose `due_s` is 0 are not eligible. False.
    pub hold_fresh: bool,
}

impl Default for Settings {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        Self {
            connections_max: 1_000,
            silent_max: 2_000,
            window_start: 5,
            jobs_per_connection: 16,
            job_wait_max: Duration::from_millis(500),
            time_slice: Duration::from_secs(5),
            resolves_max: 256,
            ready_max: 1_024,
            jobs_max: 500_000,
            retry_first: Duration::from_secs(5 * MINUTE),
            retry_max: Duration::from_secs(HOUR),
            down_first: Duration::from_secs(MINUTE),
            down_max: Duration::from_secs(HOUR),
            warn_after: Some(Duration::from_secs(4 * HOUR)),
            give_up_after: Duration::from_secs(5 * 24 * HOUR),
            learn_pace: true,
            isolate_lists: true,
            hold_fresh: false,
        }
    }
}

/// What each destination may have in memory however many there are.
const READY_QUOTA_MIN: usize = 16;

impl Settings {
    /// The share of one of `destinations` in `jobs_max`.
    pub(crate) fn ready_quota(&self, destinations: usize) -> usize {
        let share = (self.jobs_max / destinations.max(1)).max(READY_QUOTA_MIN);
        self.ready_max.min(share)
    }
}

/// How long a recipient waits after its `attempts`th attempt failed for now.
///
/// `retry_first`, doubled with each attempt up to `retry_max`, and up to a quarter more or less by the seed.
/// Give each message and attempt its own seed, so that what failed together is not tried together.
#[must_use]
pub fn retry_after(attempts: u8, settings: &Settings, seed: u64) -> Duration {
    back_off(u32::from(attempts), settings.retry_first, settings.retry_max, seed)
}

/// `first · 2^(failures − 1)`, at most `max`, ± 25 % by the seed.
pub(crate) fn back_off(failures: u32, first: Duration, max: Duration, seed: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    jitter(first.saturating_mul(1 << doublings).min(max), seed)
}

/// The moments at which back-offs end: those of many hosts are over together, and one wake-up serves them.
const BACKOFF_GRID: Duration = Duration::from_millis(250);

/// When a back-off of `wait` is over. A short one keeps its own time but for a sixty-fourth.
pub(crate) fn on_grid(now: Duration, wait: Duration) -> Duration {
    let (at, grid) = (now + wait, (wait / 64).min(BACKOFF_GRID).as_nanos().max(1));
    let late = at.as_nanos() % grid;
    if late == 0 { at } else { at + Duration::from_nanos(u64::try_from(grid - late).unwrap_or(0)) }
}

/// Evenly between nothing and `most`, by the seed.
pub(crate) fn within(most: Duration, seed: u64) -> Duration {
    let share = u32::try_from(splitmix(seed) % 1_000).unwrap_or(0);
    (most / 1_000).saturating_mul(share)
}

/// Between three and five quarters of `wait`, evenly by the seed.
pub(crate) fn jitter(wait: Duration, seed: u64) -> Duration {
    let share = u32::try_from(splitmix(seed) % 501).unwrap_or(250);
    (wait / 1_000).saturating_mul(750 + share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_longest_and_scatter_by_a_quarter() {
        let settings = Settings::default();
        for (attempts, minutes) in [(0, 5), (1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (6, 60), (127, 60), (255, 60)] {
            let middle = Duration::from_secs(60 * minutes);
            let waits: Vec<Duration> = (0..2_000).map(|seed| retry_after(attempts, &settings, seed)).collect();
            let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
            assert!(*least >= middle * 3 / 4 && *least < middle * 78 / 100, "{attempts}: {least:?}");
            assert!(*most <= middle * 5 / 4 && *most > middle * 122 / 100, "{attempts}: {most:?}");
        }
    }

    #[test]
    fn long_back_offs_end_at_few_moments_and_short_ones_in_time() {
        let (now, minute) = (Duration::from_millis(1_800_000_000_123), Duration::from_secs(60));
        let ends: std::collections::BTreeSet<Duration> =
            (0..5_000).map(|seed| on_grid(now, back_off(1, minute, minute, seed))).collect();
        assert!((100..=122).contains(&ends.len()), "{}", ends.len());
        for (wait, seed) in [(Duration::from_millis(10), 1), (Duration::from_secs(2), 2), (minute, 3)] {
            let late = on_grid(now, back_off(1, wait, wait, seed)) - now - back_off(1, wait, wait, seed);
            assert!(late <= wait / 50, "{late:?} of {wait:?}");
        }
        assert_eq!(on_grid(now, Duration::ZERO), now);
    }

    #[test]
    fn the_same_seed_gives_the_same_wait_and_extremes_do_not_overflow() {
        let settings = Settings { retry_first: Duration::MAX, retry_max: Duration::MAX, ..Settings::default() };
        assert_eq!(retry_after(200, &settings, 7), retry_after(200, &settings, 7));
        assert_eq!(back_off(u32::MAX, Duration::ZERO, Duration::ZERO, 1), Duration::ZERO);
    }
}
