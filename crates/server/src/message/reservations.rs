//! Reserves recipients whose senders get a report although no connection tries them: the holder of a reservation
//! keeps other tasks from them.
//!
//! Between a report and the record that its recipient is done the spool says that the recipient waits. A recipient
//! that an operator bounces is not tried in that time; one that grew too old is not bounced, and the other way round.
//! Reservations are in memory alone: after a crash a recipient waits, or is done and reported.

use crate::sabotage::{Sabotage, is_sabotaged};
use mail::QueueId;
use schedule::Positions;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Purpose of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A command of an operator bounces it or sends it out of quarantine: no attempt is made any more.
    Command,
    /// It is overdue. An attempt may begin all the same.
    Overdue,
}

/// All reservations.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// Messages.
    count: AtomicUsize,
    claimed: Mutex<HashMap<QueueId, BTreeMap<u32, Purpose>>>,
}

impl Reservations {
    fn lock(&self) -> MutexGuard<'_, HashMap<QueueId, BTreeMap<u32, Purpose>>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the recipients that may be tried.
    pub(crate) fn unreserved<'a>(&self, id: QueueId, recipients: &'a Positions) -> Cow<'a, [u32]> {
        if is_sabotaged(Sabotage::Unclaimed) {
            return Cow::Borrowed(recipients.as_slice());
        }
        // Most of the time no such command is in progress.
        if self.count.load(Ordering::Acquire) == 0 {
            return Cow::Borrowed(recipients.as_slice());
        }
        let claimed = self.lock();
        let Some(message) = claimed.get(&id) else { return Cow::Borrowed(recipients.as_slice()) };
        let is_open = |position: &u32| message.get(position) != Some(&Purpose::Command);
        Cow::Owned(recipients.iter().filter(is_open).collect())
    }

    /// Reserves recipients that no other holder has and for which `is_free`.
    pub(crate) fn reserve(
        &self,
        id: QueueId,
        recipients: impl Iterator<Item = u32>,
        purpose: Purpose,
        is_free: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut claimed = self.lock();
        let message = claimed.entry(id).or_default();
        let mut taken = Vec::new();
        for position in recipients {
            if !message.contains_key(&position) && is_free(position) {
                message.insert(position, purpose);
                taken.push(position);
            }
        }
        if message.is_empty() {
            claimed.remove(&id);
        }
        self.count.store(claimed.len(), Ordering::Release);
        taken
    }

    /// `recipients` are in their order.
    pub(crate) fn release(&self, id: QueueId, recipients: &[u32]) {
        let mut claimed = self.lock();
        if let Some(message) = claimed.get_mut(&id) {
            message.retain(|position, _| recipients.binary_search(position).is_err());
            if message.is_empty() {
                claimed.remove(&id);
            }
        }
        self.count.store(claimed.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_recipient_is_not_tried_and_reported_once() {
        let reservations = Reservations::default();
        let all = Positions::from([0, 1, 2, 3].as_slice());
        let take = |purpose, positions: &[u32]| {
            reservations.reserve(QueueId::MIN, positions.iter().copied(), purpose, |position| position != 3)
        };
        assert_eq!(take(Purpose::Command, &[0, 1, 3]), [0, 1]);
        assert_eq!(take(Purpose::Overdue, &[1, 2]), [2]);
        assert!(take(Purpose::Command, &[1, 2, 3]).is_empty());
        assert_eq!(*reservations.unreserved(QueueId::MIN, &all), [2, 3]);
        assert_eq!(*reservations.unreserved(QueueId::MAX, &all), [0, 1, 2, 3]);
        reservations.release(QueueId::MIN, &[0, 1]);
        assert_eq!(*reservations.unreserved(QueueId::MIN, &all), [0, 1, 2, 3]);
        reservations.release(QueueId::MIN, &[2]);
        assert!(reservations.lock().is_empty() && reservations.count.load(Ordering::Acquire) == 0);
    }
}
