//! Parts that are out of the ready queue while their senders are told of them.

use mail::QueueId;

use crate::chance::ById;
use crate::job::{Overdue, Positions};
use crate::part::Part;
use crate::ready_queue::QueuePosition;

/// Parts that are out of the line since their senders are being told.
#[derive(Debug, Default)]
pub(crate) struct PendingNotices {
    parts: ById<QueueId, Vec<PendingNotice>>,
    /// Those of them that came fresh, and that walks found.
    pub(crate) fresh: usize,
    pub(crate) from_scans: usize,
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
        self.from_scans += usize::from(!pending.part.fresh);
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
        self.from_scans -= usize::from(!pending.part.fresh);
        Some(pending)
    }

    /// The places in line belong to a site that is not theirs any more.
    pub(crate) fn forget_positions(&mut self) {
        self.parts.values_mut().flatten().for_each(|pending| pending.position = None);
    }
}
