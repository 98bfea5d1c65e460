//! The counts of one window.

use super::fact::Fact;
use crate::counters::Outcome;

/// The sums of some stretch of time.
///
/// `hosts` are transactions with next hops, `recipients` the recipients of them: one message to three recipients at one
/// host is one host and three recipients, as in the source's mailstat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that came.
    pub arrivals: u64,
    /// Their recipients.
    pub arrived_recipients: u64,
    /// Their octets.
    pub arrived_bytes: u64,
    /// Transactions in which a next hop has taken a message.
    pub sent_hosts: u64,
    /// Recipients that a next hop has taken.
    pub sent: u64,
    /// Octets of messages that next hops have taken, once for each transaction.
    pub sent_bytes: u64,
    /// Transactions and attempts after which recipients wait.
    pub deferred_hosts: u64,
    /// Recipients that wait for another attempt.
    pub deferred: u64,
    /// Transactions and attempts after which recipients are given up.
    pub failed_hosts: u64,
    /// Recipients that are given up.
    pub failed: u64,
    /// Commands, recipients and messages of clients that were refused.
    pub refused: u64,
    /// Reports about mail.
    pub reports: u64,
    /// Messages that were handed to a filter or another queue of the same machine and came back; part of `arrivals`
    /// and of `sent_hosts`.
    pub handovers: u64,
}

impl Counts {
    /// Counts a fact.
    pub fn record(&mut self, fact: &Fact<'_>) {
        match fact {
            Fact::Arrival(arrival) => {
                self.arrivals += 1;
                self.arrived_recipients += arrival.recipients;
                self.arrived_bytes += arrival.size;
            }
            Fact::Attempt(attempt) => {
                let (hosts, recipients) = match attempt.outcome {
                    Outcome::Sent => (&mut self.sent_hosts, &mut self.sent),
                    Outcome::Deferred => (&mut self.deferred_hosts, &mut self.deferred),
                    Outcome::Failed => (&mut self.failed_hosts, &mut self.failed),
                };
                *hosts += u64::from(attempt.is_transaction);
                *recipients += attempt.recipients;
                if attempt.outcome == Outcome::Sent && attempt.is_transaction {
                    self.sent_bytes += attempt.size;
                }
            }
            Fact::Refusal { .. } => self.refused += 1,
            Fact::Report => self.reports += 1,
            Fact::Handover => self.handovers += 1,
            Fact::Cloned { .. } | Fact::Ended { .. } => {}
        }
    }

    /// Adds the counts of another window.
    pub fn add(&mut self, other: &Self) {
        for (sum, value) in self.fields_mut().into_iter().zip(other.fields()) {
            *sum += value.1;
        }
    }

    /// Returns the recipients that were tried and not reached, whether they wait or are given up.
    #[must_use]
    pub const fn unsent(&self) -> u64 {
        self.deferred + self.failed
    }

    /// Returns the transactions and attempts without success.
    #[must_use]
    pub const fn unsent_hosts(&self) -> u64 {
        self.deferred_hosts + self.failed_hosts
    }

    /// Returns every count with its name in JSON.
    #[must_use]
    pub const fn fields(&self) -> [(&'static str, u64); 13] {
        [
            ("arrivals", self.arrivals),
            ("arrived_recipients", self.arrived_recipients),
            ("arrived_bytes", self.arrived_bytes),
            ("sent_hosts", self.sent_hosts),
            ("sent", self.sent),
            ("sent_bytes", self.sent_bytes),
            ("deferred_hosts", self.deferred_hosts),
            ("deferred", self.deferred),
            ("failed_hosts", self.failed_hosts),
            ("failed", self.failed),
            ("refused", self.refused),
            ("reports", self.reports),
            ("handovers", self.handovers),
        ]
    }

    /// Makes the counts of their values in the order of [`Counts::fields`].
    #[must_use]
    pub fn from_values(values: [u64; 13]) -> Self {
        let mut counts = Self::default();
        for (field, value) in counts.fields_mut().into_iter().zip(values) {
            *field = value;
        }
        counts
    }

    const fn fields_mut(&mut self) -> [&mut u64; 13] {
        [
            &mut self.arrivals,
            &mut self.arrived_recipients,
            &mut self.arrived_bytes,
            &mut self.sent_hosts,
            &mut self.sent,
            &mut self.sent_bytes,
            &mut self.deferred_hosts,
            &mut self.deferred,
            &mut self.failed_hosts,
            &mut self.failed,
            &mut self.refused,
            &mut self.reports,
            &mut self.handovers,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_of_fields_have_one_order() {
        let values: [u64; 13] = std::array::from_fn(|index| index as u64 + 1);
        let counts = Counts::from_values(values);
        assert_eq!(counts.fields().map(|(_, value)| value), values);
        let mut twice = counts;
        twice.add(&counts);
        assert_eq!(twice.fields().map(|(_, value)| value), values.map(|value| 2 * value));
        assert_eq!((counts.unsent(), counts.unsent_hosts()), (8 + 10, 7 + 9));
    }
}
