//! Copies of messages that were held or released after they were accepted: they are written again, so that an adopter
//! finds the message as its owner had it.
//!
//! A hold is copied at once, since an adopter would deliver the message. A release is copied after [`RELEASE_REST`]:
//! most released mail is delivered by then, and until then an adopter would hold it, as it was.

use super::{CopyPlace, Owner, ReadPurpose};
use crate::action::Action;
use crate::identity::StreamId;
use mail::QueueId;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Time until the release of a message that is still here is copied.
const RELEASE_REST: Duration = Duration::from_secs(10);
/// Copies that are looked at in a step.
const LOOK_MAX: usize = 256;

/// The copies that differ from the local log.
#[derive(Debug, Default)]
pub(super) struct ChangedCopies {
    ready: BTreeSet<(StreamId, QueueId)>,
    /// Where the last look ended.
    seen: Option<(StreamId, QueueId)>,
    /// Released messages, with the time from which they are copied.
    resting: VecDeque<(Duration, QueueId)>,
    /// Messages that changed while they were read from the local log.
    while_read: BTreeSet<QueueId>,
}

impl ChangedCopies {
    /// A message was read. Returns whether it changed meanwhile.
    pub(super) fn was_read(&mut self, id: QueueId) -> bool {
        self.while_read.remove(&id)
    }

    /// Up to so many copies, each a while after all others.
    fn next(&mut self) -> Vec<(StreamId, QueueId)> {
        let behind = self.seen.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut next: Vec<_> = self.ready.range((behind, std::ops::Bound::Unbounded)).take(LOOK_MAX).copied().collect();
        self.seen = next.last().copied();
        if next.len() < LOOK_MAX {
            next.extend(self.ready.iter().take(LOOK_MAX - next.len()).copied());
            next.dedup();
            self.seen = None;
        }
        next
    }
}

impl Owner {
    /// A message was held or released in the local log.
    pub(crate) fn changed(&mut self, now: Duration, id: QueueId, is_held: bool) {
        if self.settings.copies <= 1 || !self.messages.contains_key(&id) {
        } else if is_held {
            self.has_changed(id);
        } else {
            self.changed.resting.push_back((now + RELEASE_REST, id));
        }
    }

    pub(super) fn has_changed(&mut self, id: QueueId) {
        let Some(message) = self.messages.get(&id) else { return };
        self.changed.ready.extend(message.copies.iter().map(|copy| (copy.stream, id)));
        if self.reading.contains_key(&id) {
            self.changed.while_read.insert(id);
        }
    }

    /// Asks for messages whose copies are to be written again.
    pub(super) fn read_for_changed(&mut self, now: Duration) {
        while let Some((_, id)) = self.changed.resting.pop_front_if(|(at, _)| *at <= now) {
            self.has_changed(id);
        }
        for (stream, id) in self.changed.next() {
            if self.reading.len() >= self.settings.reads_max {
                return;
            }
            let copies = self.messages.get(&id).map_or(&[][..], |message| &message.copies);
            let Some(copy) = copies.iter().find(|copy| copy.stream == stream) else {
                // A copy that was made meanwhile was read after the change.
                self.changed.ready.remove(&(stream, id));
                continue;
            };
            let takes = self
                .slots
                .get(&stream)
                .is_some_and(|slot| slot.takes_mail(now, &self.settings) && !slot.is_busy(&self.settings));
            if CopyPlace::is_stored(copy) && takes && !self.reading.contains_key(&id) {
                self.changed.ready.remove(&(stream, id));
                self.reading.insert(id, ReadPurpose::Compact(stream));
                self.actions.push_back(Action::Read { id });
            }
        }
    }
}
