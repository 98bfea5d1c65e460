//! The end of a time limit: when the session must have moved, and what happens when it has not.
//!
//! A command is waited for from the end of the one before, not from its last octet, so dripping octets gain nothing.
//! While a question is open the client waits for us and no limit runs. Only [`Session::expire`] closes: a driver that
//! is late to read does not punish its client.

use std::time::Duration;

use super::phase::Phase;
use super::replies::CloseReason;
use super::session::Session;

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
        let (name, reason) = if now >= limits.session_time {
            ("smtp.session_time_max", CloseReason::SessionTooLong)
        } else if now >= self.long_deadline() {
            ("smtp.transaction_time_max", CloseReason::TimedOut)
        } else if let Some((since, octets)) = self.times.window {
            let wanted = u128::from(limits.rate_bytes) * now.saturating_sub(since).as_millis() / 1_000;
            if u128::from(octets) >= wanted.max(1) {
                self.times.window = Some((now, 0));
                return false;
            }
            ("smtp.rate_bytes_min", CloseReason::TooSlow)
        } else {
            ("smtp.command_time_max", CloseReason::TimedOut)
        };
        self.ending.timed_out = true;
        self.limit(name, reason);
        self.forget_abandon();
        true
    }
}
