//! The phases of an attempt to deliver, and how long each took: where the time of a slow delivery went.

use std::time::Duration;

/// A phase, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AttemptPhase {
    /// The hosts of the destination were looked up.
    Dns,
    /// The connection was made.
    Connect,
    /// The host sent its greeting.
    Greeting,
    /// EHLO, HELO or LHLO was answered, also behind the handshake.
    Hello,
    /// STARTTLS was answered, and the handshake done.
    Tls,
    /// AUTH was answered.
    Auth,
    /// MAIL was answered, with RSET before it.
    Mail,
    /// Each RCPT was answered.
    Rcpt,
    /// The content went out and was answered, with the 354 before it.
    Content,
}

impl AttemptPhase {
    /// Every phase.
    pub const ALL: [Self; 9] = [
        Self::Dns,
        Self::Connect,
        Self::Greeting,
        Self::Hello,
        Self::Tls,
        Self::Auth,
        Self::Mail,
        Self::Rcpt,
        Self::Content,
    ];

    /// The word in answers and in the history.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Greeting => "greeting",
            Self::Hello => "ehlo",
            Self::Tls => "tls",
            Self::Auth => "auth",
            Self::Mail => "mail",
            Self::Rcpt => "rcpt",
            Self::Content => "content",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }
}

/// How long each phase took, in microseconds. A phase that did not happen has none; an attempt over a connection that
/// was open before has none for opening it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PhaseTimes {
    us: [u32; AttemptPhase::ALL.len()],
}

impl PhaseTimes {
    /// Adds to the time of a phase. A phase that happened took a microsecond at least.
    pub fn add(&mut self, phase: AttemptPhase, took: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
        if let Some(sum) = self.us.get_mut(phase as usize) {
            *sum = sum.saturating_add(us);
        }
    }

    /// Adds the times of other phases of the same attempt.
    pub fn add_all(&mut self, others: &Self) {
        for (sum, us) in self.us.iter_mut().zip(&others.us) {
            *sum = sum.saturating_add(*us);
        }
    }

    /// Returns the phases that happened, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (AttemptPhase, Duration)> + use<'_> {
        let times = AttemptPhase::ALL.into_iter().zip(&self.us);
        times.filter(|(_, us)| **us > 0).map(|(phase, us)| (phase, Duration::from_micros(u64::from(*us))))
    }

    /// Returns whether no phase happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.us.iter().all(|us| *us == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_in_their_order() {
        let mut times = PhaseTimes::default();
        assert!(times.is_empty());
        times.add(AttemptPhase::Content, Duration::from_millis(2));
        times.add(AttemptPhase::Connect, Duration::ZERO);
        times.add(AttemptPhase::Content, Duration::from_millis(3));
        times.add(AttemptPhase::Dns, Duration::from_secs(1 << 40));
        let expected = [
            (AttemptPhase::Dns, Duration::from_micros(u64::from(u32::MAX))),
            (AttemptPhase::Connect, Duration::from_micros(1)),
            (AttemptPhase::Content, Duration::from_millis(5)),
        ];
        assert_eq!(times.iter().collect::<Vec<_>>(), expected);
        for phase in AttemptPhase::ALL {
            assert_eq!(AttemptPhase::of_name(phase.name()), Some(phase));
        }
    }
}
