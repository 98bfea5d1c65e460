//! The clocks of the measurements: wall time, processor time of the process, and the only place here that sleeps.
//!
//! Everything else in this crate takes its time from here, so that a reader finds every reading of a clock.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic wall clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Microseconds since 1970, for queue ids.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

/// Processor time all threads of this process have used so far, in user and system mode together.
#[must_use]
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Lets the calling thread rest. A measurement lasts as long as it says: here sleeping is the point.
#[cfg(feature = "rigs")]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
