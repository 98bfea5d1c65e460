//! Counts messages and octets by mailer since the start, for `mailstats`.

use crate::answers::MailerCounts;
use observe::{Event, Relay, Stat};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Holds the counts of all mailers.
#[derive(Debug, Default)]
pub struct MailerStatistics {
    rows: Mutex<BTreeMap<String, MailerCounts>>,
}

impl MailerStatistics {
    /// Counts an event.
    pub fn record(&self, event: &Event<'_>) {
        match event {
            Event::Accepted { relay, size, .. } => self.row(origin(relay), |row| {
                row.messages_from += 1;
                row.bytes_from += size;
            }),
            Event::TransactionRefused { relay, .. } => self.row(origin(relay), |row| row.rejected += 1),
            Event::Delivery { mailer, stat: Stat::Sent(_), .. } => self.row(mailer, |row| row.messages_to += 1),
            _ => {}
        }
    }

    /// Counts the octets of a message that a next hop accepted.
    pub fn count_sent(&self, mailer: &str, bytes: u64) {
        self.row(mailer, |row| row.bytes_to += bytes);
    }

    fn row(&self, mailer: &str, change: impl FnOnce(&mut MailerCounts)) {
        let mut rows = self.lock();
        match rows.get_mut(mailer) {
            Some(row) => change(row),
            None => change(rows.entry(mailer.to_owned()).or_default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, MailerCounts>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts of every mailer, by name.
    #[must_use]
    pub fn counts(&self) -> Vec<MailerCounts> {
        let with_name = |(name, row): (&String, &MailerCounts)| MailerCounts { mailer: name.clone(), ..row.clone() };
        self.lock().iter().map(with_name).collect()
    }
}

/// sendmail counts what processes hand in as mail from its local mailer.
fn origin(relay: &Relay<'_>) -> &'static str {
    match relay {
        Relay::Local { .. } => "local",
        _ => "esmtp",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up() {
        let statistics = MailerStatistics::default();
        let refused = Event::TransactionRefused {
            id: None,
            from: "<a@b.test>",
            size: 0,
            protocol: mail::Protocol::Local,
            daemon: "stdin",
            relay: Relay::Local { user: "joe" },
        };
        statistics.record(&refused);
        statistics.record(&refused);
        statistics.count_sent("esmtp", 1_000);
        let counts = statistics.counts();
        let [esmtp, local] = counts.as_slice() else { panic!("{counts:?}") };
        assert_eq!(local.rejected, 2);
        assert_eq!((esmtp.mailer.as_str(), esmtp.bytes_to), ("esmtp", 1_000));
    }
}
