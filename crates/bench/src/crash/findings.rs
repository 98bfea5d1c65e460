//! The outcome of a check, as the counts that a checker prints and its rig adds up.

use std::fmt;

/// The counts of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Messages acknowledged before the crash.
    pub acknowledged: u64,
    /// Those of them that were not finished before the crash for certain or possibly: these had to be there.
    pub required: u64,
    /// Messages in the spool.
    pub present: u64,
    /// Acknowledged messages or recipients that are gone.
    pub lost: u64,
    /// Bodies with a wrong byte or length.
    pub wrong_body: u64,
    /// Envelopes with a wrong head, recipient or destination.
    pub wrong_envelope: u64,
    /// Recipients in a state that was never recorded or was overtaken by a durable one.
    pub wrong_state: u64,
    /// Messages or recipients that are back although their end was durable.
    pub resurrected: u64,
    /// Messages that were not offered.
    pub invented: u64,
    /// Messages that are there and cannot be read.
    pub unreadable: u64,
    /// Recipients back whose end was recorded longer ago than the state window.
    pub stale: u64,
    /// The queues by destination are not those of the recipients, or the rig found something else out of order.
    pub miscounted: u64,
    /// Messages that arrived without the verdict of their filter.
    pub unscreened: u64,
    /// The spool did not open at all, or its recovery broke down.
    pub unusable: u64,
    /// Allowed after errors of the disk only: places that recovery reports as rotten.
    pub alarms: u64,
    /// Allowed: recipients back whose end was recorded just before the crash.
    pub repeated: u64,
    /// Allowed: messages there that were offered and not answered.
    pub unanswered: u64,
    /// Allowed after a crash: messages there although their append failed.
    pub refused: u64,
}

impl Findings {
    const NAMES: [&'static str; 18] = [
        "acknowledged",
        "required",
        "present",
        "lost",
        "wrong_body",
        "wrong_envelope",
        "wrong_state",
        "resurrected",
        "invented",
        "unreadable",
        "stale",
        "miscounted",
        "unscreened",
        "unusable",
        "alarms",
        "repeated",
        "unanswered",
        "refused",
    ];

    fn fields(&mut self) -> [&mut u64; 18] {
        [
            &mut self.acknowledged,
            &mut self.required,
            &mut self.present,
            &mut self.lost,
            &mut self.wrong_body,
            &mut self.wrong_envelope,
            &mut self.wrong_state,
            &mut self.resurrected,
            &mut self.invented,
            &mut self.unreadable,
            &mut self.stale,
            &mut self.miscounted,
            &mut self.unscreened,
            &mut self.unusable,
            &mut self.alarms,
            &mut self.repeated,
            &mut self.unanswered,
            &mut self.refused,
        ]
    }

    /// Names and values, in one order.
    pub(crate) fn pairs(mut self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::NAMES.into_iter().zip(self.fields().map(|field| *field))
    }

    /// Broken promises.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.lost
            + self.wrong_body
            + self.wrong_envelope
            + self.wrong_state
            + self.resurrected
            + self.invented
            + self.unreadable
            + self.stale
            + self.miscounted
            + self.unscreened
            + self.unusable
    }

    /// Adds the counts of another check.
    pub(crate) fn add(&mut self, other: Self) {
        for (mine, (_, theirs)) in self.fields().into_iter().zip(other.pairs()) {
            *mine += theirs;
        }
    }

    /// Reads the line a checker printed.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut findings = Self::default();
        let mut words = line.split(' ');
        for (field, name) in findings.fields().into_iter().zip(Self::NAMES) {
            *field = words.next()?.strip_prefix(name)?.strip_prefix('=')?.parse().ok()?;
        }
        Some(findings)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.pairs().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_come_back_as_they_were_printed() {
        let findings = Findings { acknowledged: 5, lost: 2, refused: 1, ..Findings::default() };
        assert_eq!(Findings::parse(&findings.to_string()), Some(findings));
        assert_eq!(findings.violations(), 2);
        assert_eq!(Findings::parse("nothing"), None);
    }
}
