//! The recipients of a destination that are in memory or in flight, so that no scan takes them a second time.
//!
//! A recipient is *active* from the creation of its job to the end of it, and while an `Overdue` action for it is
//! unanswered. A message may have several jobs at a destination, each with its own recipients.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use mail::QueueId;

use crate::chance::ById;
use crate::job::Positions;

/// The active recipients, by message.
#[derive(Debug, Default)]
pub(crate) struct ActiveRecipients {
    messages: ById<QueueId, ActiveParts>,
}

#[derive(Debug)]
enum ActiveParts {
    One(Positions),
    Several(PartIndex),
}

/// Parts of one message without common recipients. A list may have a thousand of them at a destination.
#[derive(Debug, Default)]
struct PartIndex {
    /// By their first recipient.
    parts: BTreeMap<u32, Positions>,
    /// The recipients of all parts.
    recipients: BTreeSet<u32>,
}

impl PartIndex {
    fn insert(&mut self, part: Positions) {
        self.recipients.extend(part.iter());
        let first = part.iter().next();
        self.parts.extend(first.map(|first| (first, part)));
    }

    fn remove(&mut self, part: &Positions) -> bool {
        let Some(first) = part.iter().next().filter(|first| self.parts.get(first) == Some(part)) else { return false };
        self.parts.remove(&first);
        for recipient in part.iter() {
            self.recipients.remove(&recipient);
        }
        true
    }
}

impl ActiveRecipients {
    /// Adds recipients, in ascending order. None of them may be active.
    pub(crate) fn insert(&mut self, message: QueueId, recipients: Positions) {
        debug_assert!(recipients.as_slice().is_sorted(), "contains() searches by halves");
        debug_assert!(!self.has_any(message, &recipients), "{message:?} is active already");
        match self.messages.entry(message) {
            Entry::Vacant(vacant) => {
                vacant.insert(ActiveParts::One(recipients));
            }
            Entry::Occupied(mut occupied) => match occupied.get_mut() {
                ActiveParts::One(first) => {
                    let mut several = PartIndex::default();
                    several.insert(first.clone());
                    several.insert(recipients);
                    occupied.insert(ActiveParts::Several(several));
                }
                ActiveParts::Several(several) => several.insert(recipients),
            },
        }
    }

    /// Removes recipients that were added together. Returns false if they were not.
    pub(crate) fn remove(&mut self, message: QueueId, recipients: &Positions) -> bool {
        let Entry::Occupied(mut occupied) = self.messages.entry(message) else { return false };
        let (is_it, is_last) = match occupied.get_mut() {
            ActiveParts::One(only) => (only == recipients, only == recipients),
            ActiveParts::Several(several) => (several.remove(recipients), several.parts.is_empty()),
        };
        if is_last {
            occupied.remove();
        }
        is_it
    }

    /// Splits recipients that were added together into two parts, which may end independently.
    pub(crate) fn split(&mut self, message: QueueId, whole: &Positions, head: Positions, rest: Positions) {
        if self.remove(message, whole) {
            self.insert(message, head);
            self.insert(message, rest);
        }
    }

    /// Returns the messages in their order.
    pub(crate) fn messages(&self) -> Vec<QueueId> {
        let mut messages: Vec<QueueId> = self.messages.keys().copied().collect();
        messages.sort_unstable();
        messages
    }

    pub(crate) fn contains(&self, message: QueueId, recipient: u32) -> bool {
        match self.messages.get(&message) {
            None => false,
            Some(ActiveParts::One(part)) => part.as_slice().binary_search(&recipient).is_ok(),
            Some(ActiveParts::Several(several)) => several.recipients.contains(&recipient),
        }
    }

    pub(crate) fn has_any(&self, message: QueueId, recipients: &Positions) -> bool {
        self.messages.contains_key(&message) && recipients.iter().any(|recipient| self.contains(message, recipient))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns memory after a peak.
    pub(crate) fn shrink(&mut self) {
        if self.messages.is_empty() && self.messages.capacity() > 64 {
            self.messages.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> QueueId {
        QueueId::new(1_700_000_000_000_000 + number, mail::Node::default()).unwrap()
    }

    #[test]
    fn parts_of_a_message_come_and_go_apart() {
        let mut active = ActiveRecipients::default();
        let parts: Vec<Positions> = vec![[1, 4].into_iter().collect(), Positions::One(2), [3, 9].into_iter().collect()];
        for part in &parts {
            active.insert(id(1), part.clone());
        }
        assert!([1, 2, 3, 4, 9].into_iter().all(|recipient| active.contains(id(1), recipient)));
        assert!(!active.contains(id(1), 5) && !active.contains(id(2), 1));
        assert!(active.remove(id(1), &parts[0]) && !active.remove(id(1), &parts[0]));
        assert!(!active.contains(id(1), 4) && active.contains(id(1), 9));
        assert!(!active.has_any(id(1), &parts[0]) && active.has_any(id(1), &parts[2]));
        let [three, nine] = [Positions::One(3), Positions::One(9)];
        active.split(id(1), &parts[2], three.clone(), nine.clone());
        assert!(active.contains(id(1), 9) && active.remove(id(1), &three) && !active.contains(id(1), 3));
        assert!(active.remove(id(1), &nine) && !active.has_any(id(1), &parts[2]));
        active.insert(id(1), parts[2].clone());
        assert_eq!(active.messages(), [id(1)]);
        assert!(active.remove(id(1), &parts[1]) && active.remove(id(1), &parts[2]));
        assert!(active.is_empty());
    }
}
