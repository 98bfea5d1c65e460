//! Copies of messages that were held, released or given another destination after they were accepted: they are written
//! again, so that an adopter finds the message as its owner had it.
//!
//! A hold is copied at once, since an adopter would deliver the message, and so is another destination, since an
//! adopter would deliver it where it must not go. A release is copied after [`RELEASE_REST`]: most released mail is
//! delivered by then, and until then an adopter would hold it, as it was.

use super::turns::Turns;
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
    ready: Turns<(StreamId, QueueId)>,
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

    /// The next time at which a release is copied.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.resting.front().map(|(at, _)| *at)
    }
}

impl Owner {
    /// A message changed in the local log: `at_once` if an adopter must not deliver it as it was; false after a
    /// release.
    pub(crate) fn changed(&mut self, now: Duration, id: QueueId, at_once: bool) {
        if self.settings.copies <= 1 || !self.messages.contains_key(&id) {
        } else if at_once {
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
        for (stream, id) in self.changed.ready.look(LOOK_MAX) {
            if self.reading.len() >= self.settings.reads_max {
                return self.changed.ready.go_back_to((stream, id));
            }
            let copies = self.messages.get(&id).map_or(&[][..], |message| &message.copies);
            let Some(copy) = copies.iter().find(|copy| copy.stream == stream) else {
                // A copy that was made meanwhile was read after the change.
                self.changed.ready.remove((stream, id));
                continue;
            };
            let takes = self
                .slots
                .get(&stream)
                .is_some_and(|slot| slot.takes_mail(now, &self.settings) && !slot.is_busy(&self.settings));
            if CopyPlace::is_stored(copy) && takes && !self.is_read_or_rests(id) {
                self.changed.ready.remove((stream, id));
                self.reading.insert(id, ReadPurpose::Compact(stream));
                self.actions.push_back(Action::Read { id });
            }
        }
    }
}
