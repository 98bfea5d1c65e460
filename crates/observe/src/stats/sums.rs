//! All sums of a stream of facts.

use super::counts::Counts;
use super::delays::Delays;
use super::fact::Fact;
use super::series::Series;
use super::top::TopList;
use crate::counters::Outcome;

/// Names that each list keeps.
pub const TOP_MAX: usize = 1_000;

/// How many windows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSizes {
    /// Of a second.
    pub seconds: usize,
    /// Of a minute.
    pub minutes: usize,
    /// Of an hour.
    pub hours: usize,
}

impl WindowSizes {
    /// For a running server: an hour by seconds, two days by minutes, a month by hours. About 750 KB.
    pub const LIVE: Self = Self { seconds: 3_600, minutes: 2_880, hours: 744 };
    /// For logs: a day by seconds, a month by minutes, ten years by hours. About 23 MB where all of it is used.
    pub const LOGS: Self = Self { seconds: 86_400, minutes: 44_640, hours: 87_600 };
}

/// The sums.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// All facts, also those that are older than every window.
    pub total: Counts,
    /// By second.
    pub seconds: Series,
    /// By minute.
    pub minutes: Series,
    /// By hour.
    pub hours: Series,
    /// How long mail took.
    pub delays: Delays,
    /// Senders of messages that came.
    pub senders: TopList,
    /// Recipients that were tried.
    pub recipients: TopList,
    /// Next hops that took mail, by recipients.
    pub hosts: TopList,
    /// Next hops that did not take mail, by recipients.
    pub failing_hosts: TopList,
    /// Reasons for which mail waits.
    pub deferrals: TopList,
    /// Reasons for which mail was given up.
    pub failures: TopList,
    /// Reasons for which clients were refused.
    pub refusals: TopList,
}

impl Statistics {
    /// Makes empty sums.
    #[must_use]
    pub fn new(sizes: WindowSizes) -> Self {
        let top = || TopList::new(TOP_MAX);
        Self {
            total: Counts::default(),
            seconds: Series::new(1, sizes.seconds),
            minutes: Series::new(60, sizes.minutes),
            hours: Series::new(3_600, sizes.hours),
            delays: Delays::default(),
            senders: top(),
            recipients: top(),
            hosts: top(),
            failing_hosts: top(),
            deferrals: top(),
            failures: top(),
            refusals: top(),
        }
    }

    /// Counts a fact of this second.
    pub fn record(&mut self, time: i64, fact: &Fact<'_>) {
        self.total.record(fact);
        for series in [&mut self.seconds, &mut self.minutes, &mut self.hours] {
            if let Some(counts) = series.window_at(time) {
                counts.record(fact);
            }
        }
        match fact {
            Fact::Arrival(arrival) => self.senders.record(arrival.from, 1, arrival.size),
            Fact::Attempt(attempt) => {
                attempt.to.for_each(|address| self.recipients.record(address, 1, attempt.size));
                match attempt.outcome {
                    Outcome::Sent => {
                        self.hosts.record(attempt.host, attempt.recipients, attempt.size);
                        if let Some(delay) = attempt.delay {
                            self.delays.record(delay, attempt.recipients);
                        }
                    }
                    Outcome::Deferred => {
                        self.failing_hosts.record(attempt.host, attempt.recipients, 0);
                        self.deferrals.record(reason(attempt.text), attempt.recipients, 0);
                    }
                    Outcome::Failed => {
                        self.failing_hosts.record(attempt.host, attempt.recipients, 0);
                        self.failures.record(reason(attempt.text), attempt.recipients, 0);
                    }
                }
            }
            Fact::Refusal { text } => self.refusals.record(reason(words_of_refusal(text)), 1, 0),
            Fact::Report | Fact::Handover | Fact::Cloned { .. } | Fact::Ended { .. } => {}
        }
    }

    /// Counts octets of a message that a next hop has taken, where the fact of the attempt did not know them.
    pub fn add_sent_bytes(&mut self, time: i64, bytes: u64) {
        self.total.sent_bytes += bytes;
        for series in [&mut self.seconds, &mut self.minutes, &mut self.hours] {
            if let Some(counts) = series.window_at(time) {
                counts.sent_bytes += bytes;
            }
        }
    }
}

/// Returns the beginning of a text: a group that costs nothing and that a person recognises, although texts with
/// numbers or addresses of their own fall into many groups.
fn reason(text: &str) -> &str {
    const REASON_MAX: usize = 80;
    text.get(..text.floor_char_boundary(REASON_MAX)).unwrap_or(text)
}

/// Returns the words of `550 5.1.1 <a@b>... User unknown` and of `554 5.7.1 <a@b>: Access denied`: a group for all
/// addresses, and for logs with and without codes.
fn words_of_refusal(text: &str) -> &str {
    let is_code = |word: &&str| word.bytes().all(|octet| octet.is_ascii_digit() || octet == b'.') && word.len() >= 3;
    let mut words = text;
    while let Some((word, rest)) = words.split_once(' ')
        && is_code(&word)
    {
        words = rest;
    }
    let address = words.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let behind = address.and_then(|(_, rest)| rest.strip_prefix("... ").or_else(|| rest.strip_prefix(": ")));
    behind.filter(|rest| !rest.is_empty()).unwrap_or(words)
}

#[cfg(test)]
mod tests {
    use super::super::fact::{Addresses, Arrival, Attempt};
    use super::*;
    use std::time::Duration;

    #[test]
    fn refusals_are_grouped_by_their_words() {
        let words = words_of_refusal;
        assert_eq!(words("550 5.1.1 <a@b.test>... User unknown"), "User unknown");
        assert_eq!(words("554 5.7.1 <a@b.test>: Relay access denied"), "Relay access denied");
        assert_eq!(words("552 5.3.4 Message too large"), "Message too large");
        assert_eq!(
            [words("User unknown"), words("550"), words("<a@b>"), words("")],
            ["User unknown", "550", "<a@b>", ""]
        );
    }

    #[test]
    fn a_fact_is_in_every_sum() {
        let mut sums = Statistics::new(WindowSizes::LIVE);
        let arrival = Arrival { id: "A", from: "a@b", size: 10, recipients: 2, client: "c" };
        sums.record(100, &Fact::Arrival(arrival));
        let attempt = |outcome, text| {
            Fact::Attempt(Attempt {
                id: "A",
                to: Addresses::Text("<x@t>,<y@t>"),
                recipients: 2,
                host: "mx.test",
                outcome,
                delay: Some(Duration::from_secs(2)),
                size: 10,
                text,
                is_transaction: true,
            })
        };
        sums.record(101, &attempt(Outcome::Deferred, "450 later"));
        sums.record(170, &attempt(Outcome::Sent, "ok"));
        sums.record(170, &Fact::Refusal { text: "550 no" });
        let total = sums.total;
        assert_eq!((total.arrivals, total.sent, total.sent_hosts, total.deferred, total.refused), (1, 2, 1, 2, 1));
        assert_eq!(total.sent_bytes, 10);
        assert_eq!(sums.seconds.total(), total);
        assert_eq!(sums.minutes.slots().map(|slot| slot.counts.unsent()).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(sums.hours.slots().len(), 1);
        assert_eq!(sums.delays.count(), 2, "once for each recipient, not for each attempt");
        assert_eq!(sums.recipients.most(1).first().map(|one| one.count), Some(2));
        assert_eq!(sums.deferrals.most(1).first().map(|one| one.name.clone()), Some("450 later".to_owned()));
    }
}
