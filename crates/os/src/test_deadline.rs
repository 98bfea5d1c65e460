//! A time limit for polling loops of tests: a test that hangs fails with a text.

use std::time::{Duration, Instant};

/// Far longer than anything here takes, on a machine that is busy with something else too.
const SOON: Duration = Duration::from_secs(60);

/// Until when a loop may go on, by a clock that no test stops.
pub struct TestDeadline {
    what: &'static str,
    begun: Instant,
}

impl TestDeadline {
    /// `what` is wrong if the loop does not end.
    #[expect(clippy::disallowed_methods, reason = "a limit for waiting")]
    pub fn new(what: &'static str) -> Self {
        Self { what, begun: Instant::now() }
    }

    /// Checks the limit; to be called in each round.
    ///
    /// # Panics
    /// The limit has passed.
    #[track_caller]
    pub fn check(&self) {
        assert!(self.begun.elapsed() < SOON, "{}", self.what);
    }
}
