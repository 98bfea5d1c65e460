//! The answer to `storms`: stretches of minutes with much mail.

use observe::stats::{Counts, MailStorm, Series};
use serde::{Deserialize, Serialize};

/// Minutes of a storm that are shown one by one.
const MINUTES_MAX: usize = 720;

/// The answer to `storms`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StormsAnswer {
    /// The present, in seconds of the civil time of the server.
    pub now: i64,
    /// Messages, recipients or deliveries from which on a minute belongs to a storm.
    pub least: u64,
    /// The storms of the last two days, the youngest first.
    pub storms: Vec<StormLine>,
}

/// A storm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StormLine {
    /// Its first second, in the civil time of the server.
    pub begin: i64,
    /// How long it took, in seconds.
    pub seconds: i64,
    /// It may go on.
    pub running: bool,
    /// Messages that came.
    pub arrivals: u64,
    /// Their recipients.
    pub arrived_recipients: u64,
    /// Their octets.
    pub arrived_bytes: u64,
    /// Recipients that next hops took.
    pub sent: u64,
    /// Attempts that are repeated, by recipients.
    pub deferred: u64,
    /// Recipients that were given up.
    pub failed: u64,
    /// Clients, commands and messages that were refused.
    pub refused: u64,
    /// Reports about mail.
    pub reports: u64,
    /// The most messages that came in a minute.
    pub arrivals_minute: u64,
    /// The most recipients that next hops took in a minute.
    pub sent_minute: u64,
    /// Its minutes: arrivals, recipients that were taken, recipients that were not.
    pub minutes: Vec<[u64; 3]>,
}

impl StormLine {
    /// Makes the line of a storm that was found in these minutes.
    #[must_use]
    pub fn of(storm: &MailStorm, minutes: &Series) -> Self {
        let Counts { arrivals, arrived_recipients, arrived_bytes, sent, deferred, failed, refused, reports, .. } =
            storm.counts;
        let within = minutes.slots().filter(|slot| (storm.begin..storm.end).contains(&slot.begin)).take(MINUTES_MAX);
        Self {
            begin: storm.begin,
            seconds: storm.end.saturating_sub(storm.begin),
            running: storm.is_running,
            arrivals,
            arrived_recipients,
            arrived_bytes,
            sent,
            deferred,
            failed,
            refused,
            reports,
            arrivals_minute: storm.arrivals_minute,
            sent_minute: storm.sent_minute,
            minutes: within.map(|slot| [slot.counts.arrivals, slot.counts.sent, slot.counts.unsent()]).collect(),
        }
    }
}
