//! Time limits: the time of the next progress, and the effect when there is none.
//!
//! A command is waited for from the end of the one before, not from its last octet, so dripping octets gain nothing.
//! While a question is open the client waits for us and no limit runs. Only [`Session::expire`] closes: a driver that
//! is late to read does not punish its client.

use std::time::Duration;

use super::replies::Farewell;
use super::session::{Phase, Session};

/// Moments, counted from the beginning of the session.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// When the line came that is being carried out.
    pub(super) now: Duration,
    /// Since when a command, or the first octet of content, is waited for.
    waiting: Duration,
    transaction: Option<Duration>,
    /// Since when the rate of content is measured, and the octets since then.
    window: Option<(Duration, u64)>,
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

impl Session {
    /// When, counted from the beginning, [`Session::expire`] is to be called unless the session moves before.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        match &self.phase {
            Phase::Asked(_) | Phase::Closing => Duration::MAX,
            Phase::Pause => self.settings.limits.session_time,
            _ => self.waiting_deadline().min(self.long_deadline()),
        }
    }

    /// Returns the time limit of the command or the content.
    fn waiting_deadline(&self) -> Duration {
        let limits = &self.settings.limits;
        match self.times.window {
            Some((since, _)) => since.saturating_add(limits.rate_window),
            None => self.times.waiting.saturating_add(limits.command_time),
        }
    }

    /// Of transaction and session.
    fn long_deadline(&self) -> Duration {
        let limits = &self.settings.limits;
        let transaction = self.times.transaction.map(|since| since.saturating_add(limits.transaction_time));
        transaction.unwrap_or(Duration::MAX).min(limits.session_time)
    }

    /// A deadline has passed: puts 421 in the output, and the next step is Close. False, and nothing has changed but
    /// perhaps the deadline, if none has really passed.
    ///
    /// The transaction is over; a driver that has content of it forgets it with the session.
    // RFC 5321 §4.5.3.2.7: at least five minutes for a command; RFC 5321 §4.5.3.2.4, §4.5.3.2.5 (gap: a client that
    // sends slowly but steadily is closed although the RFC asks no rate; the default asks a tenth of a slow modem)
    pub fn expire(&mut self, now: Duration) -> bool {
        // No input came because the driver was away with the content.
        self.times.resume(now);
        if now < self.deadline() {
            return false;
        }
        let limits = &self.settings.limits;
        let (name, farewell) = if now >= limits.session_time {
            ("smtp.session_time_max", Farewell::SessionTooLong)
        } else if now >= self.long_deadline() {
            ("smtp.transaction_time_max", Farewell::TimedOut)
        } else if let Some((since, octets)) = self.times.window {
            let wanted = u128::from(limits.rate_bytes) * now.saturating_sub(since).as_millis() / 1_000;
            if u128::from(octets) >= wanted.max(1) {
                self.times.window = Some((now, 0));
                return false;
            }
            ("smtp.rate_bytes_min", Farewell::TooSlow)
        } else {
            ("smtp.command_time_max", Farewell::TimedOut)
        };
        self.ending.timed_out = true;
        self.limit(name, farewell);
        self.forget_abandon();
        true
    }
}
