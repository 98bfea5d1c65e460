//! Counts messages and octets by mailer since the start, for `mailstats`.

use observe::{Event, Relay, Stat};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts the messages of one mailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MailerCounts {
    messages_from: u64,
    bytes_from: u64,
    messages_to: u64,
    bytes_to: u64,
    rejected: u64,
}

/// Holds the counts of all mailers.
#[derive(Debug, Default)]
pub(crate) struct MailerStatistics {
    rows: Mutex<BTreeMap<String, MailerCounts>>,
}

impl MailerStatistics {
    /// Counts an event.
    pub(crate) fn record(&self, event: &Event<'_>) {
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
    pub(crate) fn sent(&self, mailer: &str, bytes: u64) {
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

    /// Returns the fields of the answer to `mailers`.
    pub(crate) fn to_fields(&self) -> Map<String, Value> {
        let rows = self.lock();
        let mailers = rows.iter().map(|(name, row)| {
            let MailerCounts { messages_from, bytes_from, messages_to, bytes_to, rejected } = row;
            json!({
                "mailer": name, "messages_from": messages_from, "bytes_from": bytes_from,
                "messages_to": messages_to, "bytes_to": bytes_to, "rejected": rejected,
            })
        });
        Map::from_iter([("mailers".to_owned(), mailers.collect())])
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
        statistics.sent("esmtp", 1_000);
        let fields = statistics.to_fields();
        assert_eq!(fields["mailers"][1]["rejected"], 2);
        assert_eq!(
            (&fields["mailers"][0]["mailer"], &fields["mailers"][0]["bytes_to"]),
            (&json!("esmtp"), &json!(1_000))
        );
    }
}
