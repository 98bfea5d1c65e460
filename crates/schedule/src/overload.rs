//! Whether it is we who are late.
//!
//! A connection that is woken asks for work at once, unless the machine has too much to do: no peer has a part in that. What waits
//! then waits for us. One more connection for it would be one more handshake, and everything would be later
//! still; so a site that has one gets no other for a moment.

use std::time::Duration;

/// TimerKey asks for work later than this after it was woken waited for its turn on the machine.
const LATE: Duration = Duration::from_millis(20);
/// How long that is taken to last.
const HOLD: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overload {
    until: Duration,
}

impl Overload {
    /// A connection that was woken at `woken` asks for work.
    pub(crate) fn woken(&mut self, woken: Duration, now: Duration) {
        if now.saturating_sub(woken) > LATE {
            self.until = now + HOLD;
        }
    }

    /// Until when we are late, if we are.
    pub(crate) fn until(self, now: Duration) -> Option<Duration> {
        Some(self.until).filter(|until| *until > now)
    }
}
