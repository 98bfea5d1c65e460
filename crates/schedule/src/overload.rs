//! Detects that this machine is overloaded.
//!
//! A connection that is woken asks for work at once, unless the machine has too much to do. Jobs that wait then do not
//! wait for a peer. One more connection would be one more handshake and make everything later. So a site that has a
//! connection gets no other one for a moment.

use std::time::Duration;

/// A connection that asks for work later than this after its wake-up waited for the machine.
const LATE: Duration = Duration::from_millis(20);
/// How long an overload is assumed to last.
const HOLD: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overload {
    until: Duration,
}

impl Overload {
    /// Records that a connection that was woken at `woken` asks for work.
    pub(crate) fn woken(&mut self, woken: Duration, now: Duration) {
        if now.saturating_sub(woken) > LATE {
            self.until = now + HOLD;
        }
    }

    /// Returns until when an overload lasts, if there is one.
    pub(crate) fn until(self, now: Duration) -> Option<Duration> {
        Some(self.until).filter(|until| *until > now)
    }
}
