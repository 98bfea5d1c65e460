//! The state of *settle*: results and reasons that outlive an attempt, and the queue that it asks to look again.

use super::{DsnBatcher, PendingReport, Reasons};
use crate::context::Context;
use crate::intake::Enqueue;
use crate::message::MessageReader;
use mail::QueueId;
use spool::Spool;
use std::sync::{Arc, Weak};

/// The queue, as far as settle uses it: *dispatch* implements it.
pub(crate) trait ReportQueue: Enqueue {
    /// Has the lists of a message read again.
    fn look_at(&self, message: QueueId);
}

/// Settles attempts and makes the reports on them.
pub(crate) struct Settler {
    pub(crate) context: Arc<Context>,
    pub(super) spool: Arc<Spool>,
    /// Messages for reports.
    pub(super) messages: Arc<MessageReader>,
    /// Results that wait for a report to the sender.
    pub(crate) dsn_batcher: DsnBatcher,
    /// Reasons of the last deferrals, for operators.
    pub(crate) reasons: Reasons,
    /// It owns the settler: without it the server is gone.
    queue: Weak<dyn ReportQueue>,
}

impl Settler {
    /// Makes the settler of a queue that is being made. `reasons`: those of mail that waits from before.
    pub(crate) fn new(
        context: Arc<Context>,
        spool: Arc<Spool>,
        messages: Arc<MessageReader>,
        reasons: Reasons,
        queue: Weak<dyn ReportQueue>,
    ) -> Self {
        Self { context, spool, messages, dsn_batcher: DsnBatcher::default(), reasons, queue }
    }

    /// Returns whether a recipient failed, or was delivered, and only the report on it is not made yet.
    pub(crate) fn has_last_result(&self, id: QueueId, position: u32) -> bool {
        self.dsn_batcher.pending_report(id, position).is_some_and(PendingReport::is_last)
    }

    /// Returns the queue; `None` while the server is dropped.
    pub(super) fn queue(&self) -> Option<Arc<dyn ReportQueue>> {
        self.queue.upgrade()
    }
}
