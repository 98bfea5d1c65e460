//! Parts that leave the ready queue while an `Overdue` action for them is unanswered.

use mail::QueueId;

use crate::chance::ById;
use crate::job::{Overdue, Positions};
use crate::part::Part;
use crate::ready_queue::QueuePosition;

/// Parts that left the ready queue until their `Overdue` action is answered.
#[derive(Debug, Default)]
pub(crate) struct PendingNotices {
    parts: ById<QueueId, Vec<PendingNotice>>,
    /// How many of them are fresh, and how many came from scans.
    pub(crate) fresh: usize,
    pub(crate) scanned: usize,
}

#[derive(Debug)]
pub(crate) struct PendingNotice {
    pub(crate) part: Part,
    pub(crate) position: Option<QueuePosition>,
    pub(crate) kind: Overdue,
}

impl PendingNotices {
    pub(crate) fn insert(&mut self, message: QueueId, pending: PendingNotice) {
        self.fresh += usize::from(pending.part.fresh);
        self.scanned += usize::from(!pending.part.fresh);
        self.parts.entry(message).or_default().push(pending);
    }

    pub(crate) fn remove(&mut self, message: QueueId, recipients: &Positions) -> Option<PendingNotice> {
        let parts = self.parts.get_mut(&message)?;
        let at = parts.iter().position(|pending| pending.part.recipients == *recipients)?;
        let pending = parts.swap_remove(at);
        if parts.is_empty() {
            self.parts.remove(&message);
        }
        self.fresh -= usize::from(pending.part.fresh);
        self.scanned -= usize::from(!pending.part.fresh);
        Some(pending)
    }

    /// Forgets positions in the queue of a site that the destination left.
    pub(crate) fn forget_positions(&mut self) {
        self.parts.values_mut().flatten().for_each(|pending| pending.position = None);
    }
}
