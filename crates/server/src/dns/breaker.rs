//! Decides when to stop asking a resolver that does not answer.
//!
//! Time-outs in a row are no proof that the resolver is dead: a client whose reverse zone has dead servers can
//! produce them at will, and would switch off block lists for all. So after [`SUSPECT_AFTER`] of them the resolver
//! itself gets a question that it answers without help, and only if that times out too the resolver is skipped: for
//! [`SKIP_MIN`], then, while each probe after that fails, twice as long up to [`SKIP_MAX`].

use std::time::{Duration, Instant};

/// Time-outs in a row, without any answer between, until the resolver is probed.
pub(super) const SUSPECT_AFTER: u32 = 5;
pub(super) const SKIP_MIN: Duration = Duration::from_secs(5);
pub(super) const SKIP_MAX: Duration = Duration::from_secs(60);
/// Time until another caller may probe if the one that probes goes away without a report.
const PROBE_AGAIN: Duration = Duration::from_secs(1);

/// Action for a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Ask.
    Ask,
    /// Probe the resolver first; report with [`Breaker::answered`] or [`Breaker::probe_failed`].
    Probe,
    /// Do not ask.
    Skip,
}

#[derive(Debug, Default)]
pub(super) struct Breaker {
    time_outs: u32,
    /// The next question probes; others are asked meanwhile.
    suspect: bool,
    /// Questions are skipped until then; the next one after it probes.
    until: Option<Instant>,
    skip: Duration,
}

impl Breaker {
    /// Decides on a question that comes now. One caller at a time gets [`Course::Probe`].
    pub(super) fn course(&mut self, now: Instant) -> Course {
        match self.until {
            Some(until) if now < until => Course::Skip,
            Some(_) => {
                // Others skip while this one probes.
                self.until = Some(now + PROBE_AGAIN);
                Course::Probe
            }
            None if std::mem::take(&mut self.suspect) => Course::Probe,
            None => Course::Ask,
        }
    }

    /// Notes that the resolver sent a reply, be it an error. True if it was being skipped.
    pub(super) fn answered(&mut self) -> bool {
        let skipped = self.until.is_some();
        *self = Self::default();
        skipped
    }

    /// Notes that a question was not answered in time.
    pub(super) fn timed_out(&mut self) {
        self.time_outs = self.time_outs.saturating_add(1);
        self.suspect |= self.until.is_none() && self.time_outs.is_multiple_of(SUSPECT_AFTER);
    }

    /// Notes that the probe was not answered either. True if the resolver was not skipped before: worth a line in the
    /// log.
    pub(super) fn probe_failed(&mut self, now: Instant) -> bool {
        let first = self.skip.is_zero();
        self.skip = (self.skip * 2).clamp(SKIP_MIN, SKIP_MAX);
        self.until = Some(now + self.skip);
        first
    }

    /// Ends the skipping at another time.
    #[cfg(test)]
    pub(super) fn skip_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Returns whether questions are skipped now.
    pub(super) fn is_open(&self) -> bool {
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, Course, PROBE_AGAIN, SKIP_MAX, SKIP_MIN, SUSPECT_AFTER};
    use std::time::{Duration, Instant};

    #[expect(clippy::disallowed_methods, reason = "some instant; only differences count")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn time_outs_alone_skip_nothing() {
        let now = start();
        let mut breaker = Breaker::default();
        for number in 1..=100 {
            breaker.timed_out();
            let expected = if number % SUSPECT_AFTER == 0 { Course::Probe } else { Course::Ask };
            assert_eq!(breaker.course(now), expected, "{number}");
            assert_eq!(breaker.course(now), Course::Ask, "others are asked while one probes");
        }
        for _ in 0..100 {
            for _ in 1..SUSPECT_AFTER {
                breaker.timed_out();
            }
            assert!(!breaker.answered(), "it was not skipped");
            assert_eq!(breaker.course(now), Course::Ask);
        }
    }

    #[test]
    fn a_dead_resolver_is_skipped_longer_and_longer() {
        let mut now = start();
        let mut breaker = Breaker::default();
        assert!(breaker.probe_failed(now));
        let mut skip = SKIP_MIN;
        for _ in 0..8 {
            assert_eq!(breaker.course(now + skip - Duration::from_nanos(1)), Course::Skip);
            now += skip;
            assert_eq!(breaker.course(now), Course::Probe);
            assert_eq!(breaker.course(now), Course::Skip, "one probe at a time");
            assert!(!breaker.probe_failed(now));
            skip = (skip * 2).min(SKIP_MAX);
        }
        assert!(breaker.is_open());
        // A probe without a report does not keep the resolver skipped for ever.
        assert_eq!(breaker.course(now + SKIP_MAX), Course::Probe);
        assert_eq!(breaker.course(now + SKIP_MAX + PROBE_AGAIN), Course::Probe);
        assert!(breaker.answered());
        assert_eq!(breaker.course(now), Course::Ask);
    }
}
