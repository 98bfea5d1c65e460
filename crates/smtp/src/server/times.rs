//! The moments from which the time limits of a session are counted.

use std::time::Duration;

/// Moments, counted from the beginning of the session.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// When the line came that is being carried out.
    pub(super) now: Duration,
    /// Since when a command, or the first octet of content, is waited for.
    pub(super) waiting: Duration,
    pub(super) transaction: Option<Duration>,
    /// Since when the rate of content is measured, and the octets since then.
    pub(super) window: Option<(Duration, u64)>,
    /// The driver has been given content and has not come back.
    is_paused: bool,
}

impl Times {
    /// The client's turn begins.
    pub(super) fn wait_from(&mut self, now: Duration) {
        self.waiting = now;
        self.window = None;
    }

    pub(super) fn transaction_began(&mut self, now: Duration) {
        self.transaction = Some(now);
    }

    pub(super) fn transaction_over(&mut self) {
        self.transaction = None;
        self.window = None;
    }

    /// Content has come.
    pub(super) fn content(&mut self, octets: usize, now: Duration) {
        let (_, seen) = self.window.get_or_insert((now, 0));
        *seen = seen.saturating_add(octets as u64);
    }

    /// The time from here to the next content is ours: the driver takes the octets received.
    pub(super) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// The driver is back: the client's time limits count from here.
    pub(super) fn resume(&mut self, now: Duration) {
        if std::mem::take(&mut self.is_paused) && self.window.is_some() {
            self.window = Some((now, 0));
        }
    }
}
