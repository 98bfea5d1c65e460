//! Limits of the scheduler, and the waits after failures.

use std::time::Duration;

use mail::QueueId;

use crate::chance::splitmix;
use crate::clock_steps::ClockSteps;

/// Maximum number of jobs in memory while no connection is greeted: after a start many destinations wait at once.
pub(crate) const READY_UNGREETED: usize = 64;
/// `Overdue` actions of a destination that may be unanswered while its scan goes on.
pub(crate) const OVERDUE_MAX: usize = 1_024;
/// The same for all destinations: each action is a task of the driver. Scans leave further entries for `NOTICE_RETRY`.
pub(crate) const OVERDUE_MAX_ALL: usize = 4_096;
/// Wait before a notice without room is tried again.
pub(crate) const NOTICE_RETRY: Duration = Duration::from_secs(10);
/// Maximum number of recipients of one part in memory. A transaction may have more or fewer, by the limits of the site.
pub(crate) const PART_MAX: usize = 100;
/// Time for the attempt of an overdue part that is enqueued or put back.
pub(crate) const ATTEMPT_TIME: Duration = Duration::from_secs(60);
/// A part that waits for this long asks for its deliver-by time if that is unknown.
pub(crate) const ASK_DEADLINE_AFTER: Duration = Duration::from_secs(20);

/// The limits. [`Scheduler::reconfigure`](crate::Scheduler::reconfigure) changes them at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Connections of the whole server, opening ones included, at least 1. The slow lane has a tenth of them, at least
    /// one, and the fast lane the rest; with only one the lanes take turns. 1,000.
    pub connections_max: usize,
    /// Connections beside `connections_max` whose peers are silent in a transaction. They hold no place of the fast
    /// lane and return to it with the reply. 2,000.
    pub silent_max: usize,
    /// Initial window of a site; its maximum is in [`Limits`](crate::Limits). 5.
    pub window_start: u32,
    /// Jobs that wait for each connection of a site before one more opens: half a second of work at a host 30 ms away.
    /// 16.
    pub jobs_per_connection: u32,
    /// How long a job waits before one more connection opens for it. 0.5 s.
    pub job_wait_max: Duration,
    /// How long a connection keeps its place while a site without a connection waits. Sites share connections by time,
    /// in slices of this length. 5 s.
    pub time_slice: Duration,
    /// Maximum number of unanswered `Resolve` actions. 256.
    pub resolves_max: usize,
    /// Maximum number of waiting jobs in memory: fresh ones of each destination, and as many from scans of each site.
    /// 1,024.
    pub ready_max: usize,
    /// The same for all destinations together: with many of them the share of each shrinks, to at least 16. 500,000.
    pub jobs_max: usize,
    /// Wait after the first failure of a site, or of a look-up. 1 minute.
    pub down_first: Duration,
    /// Longest wait between probes of a site. 1 hour.
    pub down_max: Duration,
    /// Age at which the sender gets the delay warning; `None`: never. 4 hours.
    pub warn_after: Option<Duration>,
    /// Age at which a waiting recipient fails. 5 days.
    pub give_up_after: Duration,
    /// Whether the pace of a site is learned from its refusals. False only for comparison. True.
    pub learn_pace: bool,
    /// Whether nothing is sent behind an unanswered transaction of a list. False only for comparison. True.
    pub isolate_lists: bool,
    /// Whether fresh mail waits for an operator: entries with `due_s` 0 are not eligible. False.
    pub hold_fresh: bool,
    /// Steps of the wall clock, which are no age. None.
    pub clock_steps: ClockSteps,
}

/// A mechanism against slow hosts that a measurement switches off
/// ([`Scheduler::switch_off`](crate::Scheduler::switch_off)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Mechanism {
    /// Sites wait for connections in one queue, in the order in which they began to wait.
    WaitQueues,
    /// No opening connection is cancelled before its time-out.
    GreetingTimer,
    /// No idle connection lingers.
    Lingering,
    /// Sites open further connections while this machine is overloaded.
    Overload,
    /// Recipients without a reply are not marked.
    IsolatedRetry,
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
            down_first: Duration::from_secs(MINUTE),
            down_max: Duration::from_secs(HOUR),
            warn_after: Some(Duration::from_secs(4 * HOUR)),
            give_up_after: Duration::from_secs(5 * 24 * HOUR),
            learn_pace: true,
            isolate_lists: true,
            hold_fresh: false,
            clock_steps: ClockSteps::default(),
        }
    }
}

/// Smallest quota of a destination in memory, however many destinations there are.
const READY_QUOTA_MIN: usize = 16;

impl Settings {
    /// Returns the time from which the age of a message counts. Mail from the future counts as such at
    /// `now` only; with [`Duration::MAX`] it is due for attention in the future, and scans before it find its age.
    pub(crate) fn created(&self, message: QueueId, now: Duration) -> Duration {
        self.clock_steps.counts_from(Duration::from_micros(message.unix_us()), now)
    }

    /// Returns the quota of one of `destinations` in `jobs_max`.
    pub(crate) fn ready_quota(&self, destinations: usize) -> usize {
        let share = (self.jobs_max / destinations.max(1)).max(READY_QUOTA_MIN);
        self.ready_max.min(share)
    }
}

/// Returns `first · 2^(failures − 1)`, at most `max`, ± 25 % by the seed.
pub(crate) fn back_off(failures: u32, first: Duration, max: Duration, seed: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    jitter(first.saturating_mul(1 << doublings).min(max), seed)
}

/// Back-offs end at multiples of this, so that many hosts share one wake-up.
const BACKOFF_GRID: Duration = Duration::from_millis(250);

/// Returns when a back-off of `wait` ends: rounded up to the grid, by at most a sixty-fourth of `wait`.
pub(crate) fn on_grid(now: Duration, wait: Duration) -> Duration {
    let (at, grid) = (now + wait, (wait / 64).min(BACKOFF_GRID).as_nanos().max(1));
    let late = at.as_nanos() % grid;
    if late == 0 { at } else { at + Duration::from_nanos(u64::try_from(grid - late).unwrap_or(0)) }
}

/// Returns a duration between zero and `most`, uniform by the seed.
pub(crate) fn within(most: Duration, seed: u64) -> Duration {
    let share = u32::try_from(splitmix(seed) % 1_000).unwrap_or(0);
    (most / 1_000).saturating_mul(share)
}

/// Returns a duration between three and five quarters of `wait`, uniform by the seed.
pub(crate) fn jitter(wait: Duration, seed: u64) -> Duration {
    let share = u32::try_from(splitmix(seed) % 501).unwrap_or(250);
    (wait / 1_000).saturating_mul(750 + share)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
