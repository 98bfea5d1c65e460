//! The clocks of the server, and the only file of this crate that reads one.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn now() -> Instant {
    Instant::now()
}

/// Microseconds since 1970; 0 on a machine whose clock stands before that.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}
