//! Counts what a command finds in the queue, for the last line of its answer.

use super::owner_check::RefusedEnds;
use super::scan::QueueScan;
use crate::answers::reply::ListPart;
use crate::answers::{QueueTotals, to_fields};
use mail::QueueId;

/// Tells the scan how to count a message, or to end.
pub(super) enum ScanStep {
    /// It counts, with so many recipients.
    Counts(u64),
    /// Nothing of it was left to do.
    Skip,
    /// No more.
    Stop,
}

impl ScanStep {
    /// Counts a message with so many recipients that were meant, if any.
    pub(super) fn of(recipients: usize) -> Self {
        if recipients == 0 { Self::Skip } else { Self::Counts(recipients as u64) }
    }
}

/// Counts the results of a scan.
#[derive(Default)]
pub(super) struct ScanTotals {
    pub(super) messages: u64,
    pub(super) recipients: u64,
    pub(super) missing: u64,
    pub(super) unreadable: u64,
    /// Messages beyond the limit that are meant as well.
    pub(super) more: u64,
    /// Messages beyond the limit that were not looked at.
    pub(super) unseen: u64,
}

impl ScanTotals {
    /// Counts the messages beyond the limit, as far as that costs no reading.
    pub(super) fn count_rest(&mut self, rest: &[QueueId], scan: &QueueScan<'_>) {
        let selection = scan.selection;
        if selection.needs_addresses() {
            self.unseen = rest.len() as u64;
        } else if selection.matches_whole_messages() && selection.ids.is_empty() {
            self.more = rest.len() as u64;
        } else {
            self.more = rest.iter().filter(|id| scan.may_match(**id)).count() as u64;
        }
    }

    /// Without messages that were left alone after they had been counted.
    pub(super) fn without(self, refused: &RefusedEnds) -> Self {
        let messages = self.messages.saturating_sub(refused.messages);
        Self { messages, recipients: self.recipients.saturating_sub(refused.recipients), ..self }
    }

    /// The counts as the last line has them.
    pub(super) fn into_totals(self) -> QueueTotals {
        let Self { messages, recipients, missing, unreadable, more, unseen } = self;
        QueueTotals {
            messages: Some(messages),
            recipients: Some(recipients),
            missing: Some(missing),
            unreadable: Some(unreadable),
            more,
            unseen: Some(unseen),
            ..QueueTotals::default()
        }
    }

    /// The last line of an answer that has nothing but the counts.
    pub(super) fn into_last(self) -> ListPart {
        last(self.into_totals())
    }
}

/// The last line of an answer.
pub(super) fn last(totals: QueueTotals) -> ListPart {
    ListPart::Last(to_fields(&totals))
}

/// A count for the last line; `None` for 0, which it leaves out.
pub(super) fn some_if_any(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}
