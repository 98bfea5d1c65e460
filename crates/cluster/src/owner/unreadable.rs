//! Mail that the local log does not give: it is damaged, or its end is on the way here. It is asked for again after a
//! rest, so that it does not keep other mail from being read.

use super::{Owner, ReadPurpose};
use mail::QueueId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time until a message that the local log did not give is asked for again.
const READ_REST: Duration = Duration::from_secs(60);

/// The messages that rest.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    /// Each with the end of its rest.
    ids: BTreeMap<QueueId, Duration>,
    /// The ends in their order; that of a message that is gone is passed over.
    until: VecDeque<(Duration, QueueId)>,
}

impl Unreadable {
    /// Forgets a message that is gone. One that comes back under its id is read at once.
    pub(super) fn remove(&mut self, id: QueueId) {
        self.ids.remove(&id);
    }

    /// The next time at which a rest ends.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.until.front().map(|(at, _)| *at)
    }
}

impl Owner {
    pub(super) fn is_read_or_rests(&self, id: QueueId) -> bool {
        self.reading.contains_key(&id) || self.unreadable.ids.contains_key(&id)
    }

    /// Lets a message rest that was asked for and not given. A copy that was to be written again still is. A client
    /// that waits for the copy gets its answer.
    pub(super) fn not_read(&mut self, now: Duration, id: QueueId, purpose: ReadPurpose) {
        if !self.messages.contains_key(&id) || self.unreadable.ids.contains_key(&id) {
            return;
        }
        let until = now + READ_REST;
        self.unreadable.ids.insert(id, until);
        self.unreadable.until.push_back((until, id));
        if let ReadPurpose::Compact(_) = purpose {
            self.has_changed(id);
            self.look_at_pair(now, id);
        } else if self.awaited_reads.contains(&id) {
            self.accept_without_copy(now, id);
        }
    }

    /// Lets messages be read again that have rested.
    pub(super) fn end_rests(&mut self, now: Duration) {
        while let Some((at, id)) = self.unreadable.until.pop_front_if(|(at, _)| *at <= now) {
            if self.unreadable.ids.get(&id) != Some(&at) {
                continue;
            }
            self.unreadable.remove(id);
            for slot in self.slots.values_mut() {
                slot.compacting.remove(&id);
            }
        }
    }
}
