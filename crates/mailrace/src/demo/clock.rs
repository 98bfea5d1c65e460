//! The clock of the demonstration: its readings for figures, and the one place where it waits.

use std::time::{Duration, Instant};

/// How often a server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits before a server is asked again. The figures of the demonstration are as coarse as this.
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn pause() {
    std::thread::sleep(ASK_EVERY);
}
