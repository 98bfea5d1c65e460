//! The clocks of the server, and the only file of this crate that reads one.
//!
//! Every stop takes the time from here and hands it to the pure rooms as an argument, so that a reader finds every
//! reading of a clock by this file's name. Monotonic time is for limits and delays, wall time for trace lines and queue
//! ids. Nothing here sleeps: waiting uses the timers of tokio.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock: that of the timers, which tests may stop and move.
#[must_use]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Time since the machine started, times in which it was suspended included (`CLOCK_BOOTTIME`): for promises that hold
/// between machines. It never steps.
#[must_use]
pub fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Microseconds since 1970; 0 on a machine whose clock stands before that.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn unix_us() -> u64 {
    #[cfg(any(test, feature = "sim"))]
    if let Some(us) = simulated::unix_us() {
        return us;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

/// Wall time that goes with the timers of tokio, for the simulation.
#[cfg(any(test, feature = "sim"))]
pub mod simulated {
    use super::now;
    use std::cell::Cell;
    use std::time::Instant;

    thread_local! {
        static EPOCH: Cell<Option<(u64, Instant)>> = const { Cell::new(None) };
    }

    /// It is `unix_us` now on this thread, until the guard goes.
    pub fn begin(unix_us: u64) -> Guard {
        EPOCH.set(Some((unix_us, now())));
        Guard(())
    }

    /// Whether this thread lives in simulated time.
    pub fn is_on() -> bool {
        EPOCH.get().is_some()
    }

    pub(super) fn unix_us() -> Option<u64> {
        let (epoch, began) = EPOCH.get()?;
        Some(epoch + u64::try_from(now().saturating_duration_since(began).as_micros()).unwrap_or(0))
    }

    /// Ends it.
    #[derive(Debug)]
    pub struct Guard(());

    impl Drop for Guard {
        fn drop(&mut self) {
            EPOCH.set(None);
        }
    }
}

/// The answer for one minute of wall time.
struct Cached {
    minute: u64,
    seconds: i32,
}

/// How far local time is ahead of UTC at `unix_us`, in seconds; negative to the west, 0 where the machine has no zone.
///
/// The zone is read again once a minute at most: a change of `/etc/localtime` or of daylight saving shows within that
/// time.
#[must_use]
pub fn local_offset_seconds(unix_us: u64) -> i32 {
    static CACHE: Mutex<Option<Cached>> = Mutex::new(None);
    let minute = unix_us / 60_000_000;
    let mut cache = CACHE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(cached) = cache.as_ref().filter(|cached| cached.minute == minute) {
        return cached.seconds;
    }
    let seconds = offset_in(&TimeZone::system(), unix_us);
    *cache = Some(Cached { minute, seconds });
    seconds
}

/// The abbreviation of the machine's zone at `unix_us`, as `MST`; `UTC` where the machine has no zone.
#[must_use]
pub fn zone_name(unix_us: u64) -> String {
    let at = i64::try_from(unix_us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    at.map_or_else(|| "UTC".to_owned(), |at| TimeZone::system().to_offset_info(at).abbreviation().to_owned())
}

fn offset_in(zone: &TimeZone, unix_us: u64) -> i32 {
    let Ok(microseconds) = i64::try_from(unix_us) else { return 0 };
    Timestamp::from_microsecond(microseconds).map_or(0, |timestamp| zone.to_offset(timestamp).seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_daylight_saving() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        // 2026-01-15 and 2026-07-15, noon in UTC.
        assert_eq!(offset_in(&zone, 1_768_478_400_000_000), 3600);
        assert_eq!(offset_in(&zone, 1_784_116_800_000_000), 7200);
    }

    #[test]
    fn times_nobody_can_write_down_have_no_offset() {
        assert_eq!(offset_in(&TimeZone::UTC, u64::MAX), 0);
        assert_eq!(offset_in(&TimeZone::UTC, i64::MAX as u64), 0);
    }

    #[test]
    fn the_cache_answers_the_same() {
        let at = unix_us();
        assert_eq!(local_offset_seconds(at), local_offset_seconds(at));
    }
}
