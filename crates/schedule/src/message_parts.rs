//! The waiting parts of one message at a site, in their order. The parts of one destination are found without a search
//! through the others: a list may have thousands.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::job::{Class, DestinationId};
use crate::part::Part;

/// Recipients that a waiting message may have to go before lists; also the least cost of a transaction.
pub(crate) const QUANTUM: usize = 20;

/// The position of a message in its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKey {
    Small(i64),
    Large(u64, i64),
}

#[derive(Debug)]
pub(crate) struct MessageParts {
    pub(crate) class: Class,
    /// The next part. Most messages have only one.
    head: Option<Part>,
    /// The parts behind it, by number.
    rest: BTreeMap<i64, Part>,
    /// Their numbers, by destination.
    numbers_by_destination: BTreeSet<(DestinationId, i64)>,
    pub(crate) recipients: usize,
    /// More than [`QUANTUM`] recipients waited at one time.
    pub(crate) is_list: bool,
    pub(crate) key: QueueKey,
    /// Since when it waits for its turn.
    pub(crate) since: Duration,
}

impl MessageParts {
    pub(crate) fn new(part: Part, key: QueueKey, since: Duration) -> Self {
        let recipients = part.recipients.len();
        let (class, is_list) = (part.class, recipients > QUANTUM);
        let (rest, numbers_by_destination) = (BTreeMap::new(), BTreeSet::new());
        Self { class, head: Some(part), rest, numbers_by_destination, recipients, is_list, key, since }
    }

    /// Returns the next part.
    pub(crate) const fn head(&self) -> Option<&Part> {
        self.head.as_ref()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    pub(crate) fn pop(&mut self) -> Option<Part> {
        let part = self.head.take()?;
        self.recipients -= part.recipients.len();
        self.advance();
        Some(part)
    }

    /// Makes the first of the rest the next part.
    fn advance(&mut self) {
        if let Some((number, part)) = self.rest.pop_first() {
            self.numbers_by_destination.remove(&(part.destination, number));
            self.head = Some(part);
        }
    }

    pub(crate) fn push_front(&mut self, part: Part) {
        self.count(part.recipients.len());
        if let Some(before) = self.head.replace(part) {
            let number = self.rest.first_key_value().map_or(0, |(first, _)| first - 1);
            self.insert(number, before);
        }
    }

    pub(crate) fn push_back(&mut self, part: Part) {
        self.count(part.recipients.len());
        if self.head.is_none() {
            self.head = Some(part);
        } else {
            let number = self.rest.last_key_value().map_or(0, |(last, _)| last + 1);
            self.insert(number, part);
        }
    }

    fn insert(&mut self, number: i64, part: Part) {
        self.numbers_by_destination.insert((part.destination, number));
        self.rest.insert(number, part);
    }

    const fn count(&mut self, more: usize) {
        self.recipients += more;
        self.is_list |= self.recipients > QUANTUM;
    }

    /// Returns the numbers of the parts of a destination behind the head.
    fn numbers(&self, destination: DestinationId) -> Vec<i64> {
        let numbers = self.numbers_by_destination.range((destination, i64::MIN)..=(destination, i64::MAX));
        numbers.map(|(_, number)| *number).collect()
    }

    /// Removes the parts of a destination for which `is_it` holds, in their order.
    pub(crate) fn take_out(&mut self, destination: DestinationId, mut is_it: impl FnMut(&Part) -> bool) -> Vec<Part> {
        let mut out = Vec::new();
        let is_head = self.head.as_ref().is_some_and(|part| part.destination == destination && is_it(part));
        if is_head {
            out.extend(self.head.take());
        }
        for number in self.numbers(destination) {
            if self.rest.get(&number).is_some_and(&mut is_it) {
                self.numbers_by_destination.remove(&(destination, number));
                out.extend(self.rest.remove(&number));
            }
        }
        if is_head {
            self.advance();
        }
        self.recipients -= out.iter().map(|part| part.recipients.len()).sum::<usize>();
        out
    }

    /// Changes the parts of a destination. Their recipients must stay the same.
    pub(crate) fn change(&mut self, destination: DestinationId, mut change: impl FnMut(&mut Part)) {
        let numbers = self.numbers(destination);
        self.head.iter_mut().filter(|part| part.destination == destination).for_each(&mut change);
        for number in numbers {
            self.rest.get_mut(&number).into_iter().for_each(&mut change);
        }
    }
}
