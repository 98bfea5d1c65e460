//! Gathers the results of a message over a few seconds, from all hosts, into one report to the sender.
//!
//! A list has recipients at many hosts, and some of them fail at the same time as others, or grow too old with them,
//! or are delivered and the sender asked for a report on it. The batcher keeps such a result for [`GATHER`]; its
//! recipient waits in the spool as if it had no result, or as one whose report is [owed](super::receipt). Then all
//! results go into one report ([`gathered_report`](super::gathered_report)), which is durable before their recipients
//! are done. A crash in between forgets the kept results: recipients that failed are tried again after [`PARKED`]
//! beyond that time, and fail again; for those that were delivered a walk over the spool's lists finds that a report is
//! owed ([`report_owed`](super::report_owed)). The result of a message with one recipient, or with all at one host, is
//! reported at once. The number of kept results is bounded, and so are the octets of their texts.
//!
//! A large list takes hours, and results come during all that time: each further report on a message waits twice as
//! long for others as the one before, up to [`GATHER_MAX`].
//!
//! Until the report is recorded a failure stands, and so does a delivery: it is logged and counted, and dispatch
//! leaves its recipient alone ([`DsnBatcher::pending_report`]). A recipient with a warning is tried as usual. A report
//! that the spool does not store is made again after [`REPORT_AGAIN`](super::REPORT_AGAIN), with the same results.

use super::AttemptOutcome;
use mail::QueueId;
use mail::report::Kind;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time from the first result for which a report waits for others; and the same for a further one on the same
/// message, at most.
const GATHER: Duration = Duration::from_secs(5);
const GATHER_MAX: Duration = Duration::from_secs(300);
/// Time after that, until a recipient without its report is tried again.
const PARKED: Duration = Duration::from_secs(115);
/// Messages that are known to have had a report; for others the next one counts as the first.
const REPORTED_MAX: usize = 10_000;
/// Recipients that are kept; beyond them reports on bad news are made at once, and good news is owed until there is
/// room.
const RECIPIENTS_MAX: usize = 100_000;
/// Octets of the texts of results, without regard to sharing; beyond them it is the same.
const OCTETS_MAX: usize = 32 << 20;

/// Results that wait for a report.
#[derive(Debug, Default)]
pub(crate) struct DsnBatcher(Mutex<PendingReports>);

#[derive(Debug, Default)]
struct PendingReports {
    messages: HashMap<QueueId, BTreeMap<u32, AttemptOutcome>>,
    recipients: usize,
    octets: usize,
    /// Results of a report in progress.
    told: HashMap<QueueId, BTreeMap<u32, PendingReport>>,
    reported: HashMap<QueueId, ReportCounts>,
    /// Those, the oldest first.
    reported_order: VecDeque<QueueId>,
}

/// Counts of reports on a message: of failures, of delays, of good news. A recipient is in one of each at most.
#[derive(Clone, Copy, Debug, Default)]
struct ReportCounts {
    failures: u32,
    delays: u32,
    others: u32,
}

impl ReportCounts {
    fn of(&mut self, kind: Kind) -> &mut u32 {
        match kind {
            Kind::Failed => &mut self.failures,
            Kind::Delayed => &mut self.delays,
            Kind::Delivered | Kind::Relayed | Kind::Traced | Kind::Expanded => &mut self.others,
        }
    }
}

/// Kind of a result that waits for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingReport {
    /// The recipient failed.
    Failed,
    /// The recipient waits for longer.
    Delayed,
    /// The recipient has the message, or a next hop does.
    Delivered,
}

impl PendingReport {
    pub(super) const fn of(fate: &AttemptOutcome) -> Self {
        match fate {
            AttemptOutcome::Failed(_) => Self::Failed,
            AttemptOutcome::Deferred(_) => Self::Delayed,
            AttemptOutcome::Delivered(_) | AttemptOutcome::Receipt(_) => Self::Delivered,
        }
    }

    /// Returns whether he is not tried again.
    pub(crate) const fn is_last(self) -> bool {
        matches!(self, Self::Failed | Self::Delivered)
    }
}

/// Effect of adding a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    /// It is the first of its message: the caller schedules the report.
    First,
    /// A report is scheduled already.
    More,
    /// There is no room.
    No,
}

impl DsnBatcher {
    fn kept(&self) -> MutexGuard<'_, PendingReports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the result of a recipient; the last one counts.
    pub(super) fn add(&self, id: QueueId, position: u32, fate: AttemptOutcome) -> Gathered {
        let mut kept = self.kept();
        let octets = octets_of(&fate);
        if kept.recipients >= RECIPIENTS_MAX || kept.octets + octets > OCTETS_MAX {
            return Gathered::No;
        }
        let message = kept.messages.entry(id).or_default();
        let is_first = message.is_empty();
        let before = message.insert(position, fate);
        kept.recipients += usize::from(before.is_none());
        kept.octets = kept.octets + octets - before.as_ref().map_or(0, octets_of);
        if is_first { Gathered::First } else { Gathered::More }
    }

    /// Returns the number of reports on a message with results of this kind.
    pub(super) fn report_count(&self, id: QueueId, kind: Kind) -> u32 {
        *self.kept().reported.get(&id).copied().unwrap_or_default().of(kind)
    }

    /// Counts one more report on a message.
    pub(super) fn count_report(&self, id: QueueId, kind: Kind) {
        let mut kept = self.kept();
        if !kept.reported.contains_key(&id) {
            kept.reported_order.push_back(id);
            if kept.reported_order.len() > REPORTED_MAX
                && let Some(oldest) = kept.reported_order.pop_front()
            {
                kept.reported.remove(&oldest);
            }
        }
        let count = kept.reported.entry(id).or_default().of(kind);
        *count = count.saturating_add(1);
    }

    /// Returns how long a report on this message waits for others.
    pub(super) fn patience(&self, id: QueueId) -> Duration {
        let reports = self.report_count(id, Kind::Failed).saturating_add(self.report_count(id, Kind::Delivered));
        GATHER.saturating_mul(1 << reports.min(8)).min(GATHER_MAX)
    }

    /// Returns how long after a failure its recipient is tried again, or a delivery is looked for, if no report comes
    /// about.
    pub(super) fn retry_delay(&self, id: QueueId) -> Duration {
        self.patience(id) + PARKED
    }

    /// Returns the kind of result that waits for a report on a recipient.
    pub(crate) fn pending_report(&self, id: QueueId, position: u32) -> Option<PendingReport> {
        self.kept().pending_report(id, position)
    }

    /// Adapts entries of the spool's list to the kept results: a recipient that failed or was delivered counts as
    /// held, and one whose delay is about to be reported counts as warned.
    pub(crate) fn apply_to_entries(&self, entries: &mut [schedule::QueueEntry]) {
        let kept = self.kept();
        if kept.messages.is_empty() && kept.told.is_empty() {
            return;
        }
        for entry in entries {
            match kept.pending_report(entry.message, entry.recipient) {
                Some(PendingReport::Failed | PendingReport::Delivered) => entry.held = true,
                Some(PendingReport::Delayed) => entry.warned = true,
                None => {}
            }
        }
    }

    /// Takes the results of a message. They count until [`Self::told`].
    pub(super) fn take(&self, id: QueueId) -> BTreeMap<u32, AttemptOutcome> {
        let mut kept = self.kept();
        let message = kept.messages.remove(&id).unwrap_or_default();
        kept.recipients -= message.len();
        kept.octets -= message.values().map(octets_of).sum::<usize>();
        let words = message.iter().map(|(position, fate)| (*position, PendingReport::of(fate)));
        kept.told.entry(id).or_default().extend(words);
        message
    }

    /// Forgets results that were reported and recorded, or are kept anew.
    pub(super) fn told(&self, id: QueueId, positions: &[u32]) {
        let mut kept = self.kept();
        if let Some(words) = kept.told.get_mut(&id) {
            words.retain(|position, _| positions.binary_search(position).is_err());
            if words.is_empty() {
                kept.told.remove(&id);
            }
        }
    }
}

impl PendingReports {
    fn pending_report(&self, id: QueueId, position: u32) -> Option<PendingReport> {
        let waits = self.messages.get(&id).and_then(|message| message.get(&position)).map(PendingReport::of);
        waits.or_else(|| self.told.get(&id)?.get(&position).copied())
    }
}

/// Returns the octets that a result takes.
fn octets_of(fate: &AttemptOutcome) -> usize {
    let said = match fate {
        AttemptOutcome::Delivered(reply) => reply.text_octets(),
        AttemptOutcome::Receipt(receipt) => receipt.octets(),
        AttemptOutcome::Deferred(cause) | AttemptOutcome::Failed(cause) => {
            let reply = cause.reply.as_ref().map_or(0, mail::Reply::text_octets);
            cause.text.len() + reply + cause.host.as_ref().map_or(0, |host| host.len())
        }
    };
    said + size_of::<(u32, AttemptOutcome)>()
}

#[cfg(test)]
mod tests {
    use super::super::Cause;
    use super::*;
    use mail::{EnhancedCode, Outcome};

    #[test]
    fn the_first_of_a_message_is_told_from_the_others_and_room_is_bounded() {
        let dsn_batcher = DsnBatcher::default();
        let fate =
            |text: &str| AttemptOutcome::Failed(Cause::new(EnhancedCode::of(Outcome::Permanent, 1, 1), text, None));
        let other = QueueId::from_u64(QueueId::MIN.to_u64() + 1).unwrap();
        assert_eq!(dsn_batcher.add(QueueId::MIN, 3, fate("a")), Gathered::First);
        assert_eq!(dsn_batcher.add(QueueId::MIN, 1, fate("b")), Gathered::More);
        assert_eq!(dsn_batcher.add(QueueId::MIN, 1, fate("c")), Gathered::More);
        assert_eq!(dsn_batcher.add(other, 0, fate("d")), Gathered::First);
        let taken = dsn_batcher.take(QueueId::MIN);
        assert_eq!(taken.into_iter().collect::<Vec<_>>(), [(1, fate("c")), (3, fate("a"))]);
        assert_eq!(dsn_batcher.kept().recipients, 1);
        // A result counts while its report is made, and is forgotten afterwards.
        assert_eq!(dsn_batcher.pending_report(QueueId::MIN, 1), Some(PendingReport::Failed));
        dsn_batcher.told(QueueId::MIN, &[1]);
        assert_eq!(
            (dsn_batcher.pending_report(QueueId::MIN, 1), dsn_batcher.pending_report(QueueId::MIN, 3)),
            (None, Some(PendingReport::Failed))
        );
        dsn_batcher.told(QueueId::MIN, &[3]);
        assert!(dsn_batcher.kept().told.is_empty());
        assert_eq!(dsn_batcher.pending_report(other, 0), Some(PendingReport::Failed));
        dsn_batcher.kept().recipients = RECIPIENTS_MAX;
        assert_eq!(dsn_batcher.add(other, 1, fate("e")), Gathered::No);
    }

    #[test]
    fn a_message_with_many_reports_waits_longer_for_each_and_the_memory_of_them_is_bounded() {
        let dsn_batcher = DsnBatcher::default();
        let id = |nth: u64| QueueId::from_u64(QueueId::MIN.to_u64() + nth).unwrap();
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(dsn_batcher.patience(id(0)).as_secs());
            dsn_batcher.count_report(id(0), Kind::Failed);
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(dsn_batcher.retry_delay(id(0)), GATHER_MAX + PARKED);
        assert_eq!(
            [Kind::Failed, Kind::Delayed, Kind::Relayed].map(|kind| dsn_batcher.report_count(id(0), kind)),
            [9, 0, 0]
        );
        for nth in 1..=REPORTED_MAX as u64 {
            dsn_batcher.count_report(id(nth), Kind::Delayed);
        }
        assert_eq!(
            (dsn_batcher.report_count(id(0), Kind::Failed), dsn_batcher.report_count(id(1), Kind::Delayed)),
            (0, 1)
        );
        assert_eq!((dsn_batcher.patience(id(1)), dsn_batcher.kept().reported.len()), (GATHER, REPORTED_MAX));
    }

    #[test]
    fn what_hosts_say_at_length_is_bounded_in_octets() {
        let dsn_batcher = DsnBatcher::default();
        let said = "x".repeat(4_000);
        let fate =
            || AttemptOutcome::Failed(Cause::new(EnhancedCode::of(Outcome::Permanent, 1, 1), said.as_str(), None));
        let most = (0..).find(|position| dsn_batcher.add(QueueId::MIN, *position, fate()) == Gathered::No).unwrap();
        assert!((7_000..8_400).contains(&most), "{most} recipients");
        assert_eq!(dsn_batcher.take(QueueId::MIN).len(), most as usize);
        let kept = dsn_batcher.kept();
        assert_eq!((kept.recipients, kept.octets), (0, 0));
    }
}
