//! Recipients that are claimed for as long as their sender is told: [`Reservations`](crate::message::Reservations) has
//! the rules.

use super::Dispatch;
use crate::message::Purpose;
use mail::QueueId;
use std::sync::Arc;
use std::time::Duration;

/// Recipients for which one call asks whether a connection has them; deliveries wait for that.
const ASKED_MAX: usize = 64;
/// Time until lists with reserved recipients that wait on are read again. By then a task that took one of them from a
/// list has put it down.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Recipients of a message that are claimed until this is dropped.
#[must_use]
pub(super) struct Reservation {
    dispatch: Arc<Dispatch>,
    id: QueueId,
    /// In their order.
    pub(super) recipients: Vec<u32>,
    /// Attempts were kept from recipients that wait on.
    is_left: bool,
}

impl Reservation {
    /// Reserves recipients for a report that they are overdue, without those that another task reports.
    pub(super) fn overdue(dispatch: &Arc<Dispatch>, id: QueueId, recipients: &[u32]) -> Self {
        let recipients =
            dispatch.messages.reservations.reserve(id, recipients.iter().copied(), Purpose::Overdue, |_| true);
        Self { dispatch: Arc::clone(dispatch), id, recipients, is_left: false }
    }

    /// Reserves recipients for a command of an operator, without those that a connection has and those with a report in
    /// progress.
    pub(super) fn by_command(dispatch: &Arc<Dispatch>, id: QueueId, recipients: &[u32]) -> Self {
        let mut claim = Self { dispatch: Arc::clone(dispatch), id, recipients: Vec::new(), is_left: true };
        for some in recipients.chunks(ASKED_MAX) {
            // Under the lock by which connections take jobs: a connection that takes one later sees the reservation.
            let state = dispatch.lock();
            let is_free = |position: u32| {
                !state.scheduler.is_in_flight(id, position) && !dispatch.settler.has_last_result(id, position)
            };
            claim.recipients.extend(dispatch.messages.reservations.reserve(
                id,
                some.iter().copied(),
                Purpose::Command,
                is_free,
            ));
            drop(state);
        }
        claim
    }

    /// None of them waits any more.
    pub(super) fn fulfilled(mut self) {
        self.is_left = false;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.dispatch.messages.reservations.release(self.id, &self.recipients);
        if self.is_left && !self.recipients.is_empty() {
            let (dispatch, id) = (Arc::clone(&self.dispatch), self.id);
            self.dispatch.spawn(Box::pin(async move {
                tokio::time::sleep(LOOK_AGAIN).await;
                dispatch.look_at(id);
            }));
        }
    }
}
