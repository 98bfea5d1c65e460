//! The ready queue of a site: which job is next.
//!
//! Classes share by weight. Within a class messages share by recipients, one transaction at a time. A message with few
//! recipients goes before lists, so it waits for at most one of their transactions; after [`SMALL_TURNS`] such messages
//! a list has a turn. Both shares are deficits, kept as *virtual starts*: a transaction moves the start of its owner by
//! its cost, and the least start is next. This is deficit round robin without rounds; each call costs O(log n).
//!
//! The parts of one message for several destinations join in one transaction. Recipients that were lost without a reply
//! wait in a queue of their own ([`SuspectQueue`]) and join with nothing. This module knows no connections, rates or
//! back-off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mail::QueueId;

use crate::chance::ById;
use crate::job::{Class, DestinationId, Positions};
use crate::message_parts::{MessageParts, QUANTUM, QueueKey};
use crate::part::Part;
use crate::suspect_queue::{AT_ONCE, Rank, SuspectQueue};

/// Small messages of a class that go before a waiting list.
const SMALL_TURNS: u32 = 4;
/// Cost of a recipient for its class: weights 16, 4 and 1.
const CLASS_COST: [u64; 3] = [1, 4, 16];

/// The parts that go in one transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) message: QueueId,
    pub(crate) first: Part,
    pub(crate) others: Vec<Part>,
    /// The first part was too large: its recipients before the split, and those that stay in the queue.
    pub(crate) split: Option<(Positions, Positions)>,
    /// It is an isolated retry: nothing may be sent behind it.
    pub(crate) is_alone: bool,
    /// It belongs to a list.
    pub(crate) is_list: bool,
}

/// The position of a part that was taken out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueuePosition {
    /// In its class.
    Shared { class: Class, key: QueueKey, is_list: bool, since: Duration },
    /// In the queue of suspects.
    Isolated { rank: Rank, since: Duration },
}

#[derive(Debug, Default)]
struct ClassQueue {
    /// Messages with few recipients before their first turn, by number. Entries of messages that moved are skipped.
    small: VecDeque<(i64, QueueId)>,
    /// All others, by virtual start.
    large: BTreeMap<(u64, i64), QueueId>,
    /// The virtual start of the message that was served last.
    clock: u64,
    /// Small messages served while a large one waits.
    streak: u32,
    /// The virtual start of the class.
    start: u64,
    messages: usize,
}

#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    messages: ById<QueueId, MessageParts>,
    classes: [ClassQueue; 3],
    /// The virtual start of the class that was served last.
    clock: u64,
    parts: usize,
    scanned: usize,
    recipients: usize,
    /// Numbers for positions at the end and at the front; none is used twice.
    next: i64,
    front: i64,
    /// Parts from scans that are withdrawn for a notice.
    pub(crate) withdrawn: usize,
    /// Recipients that were lost without a reply.
    pub(crate) suspects: SuspectQueue,
}

/// Returns the queue of a class.
fn class_queue(classes: &mut [ClassQueue; 3], class: Class) -> &mut ClassQueue {
    let [urgent, normal, bulk] = classes;
    match class {
        Class::Urgent => urgent,
        Class::Normal => normal,
        Class::Bulk => bulk,
    }
}

impl ReadyQueue {
    /// Returns the number of waiting parts.
    pub(crate) const fn len(&self) -> usize {
        self.parts
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Returns whether urgent mail waits.
    pub(crate) const fn has_urgent(&self) -> bool {
        let [urgent, ..] = &self.classes;
        urgent.messages > 0
    }

    /// Returns how many transactions the parts need with up to `most` recipients each. It may be too many, because
    /// parts can join.
    pub(crate) fn transactions(&self, most: usize) -> usize {
        self.parts.max(self.recipients.div_ceil(most.max(1)))
    }

    /// Returns how many parts came from scans, withdrawn ones included.
    pub(crate) const fn scanned(&self) -> usize {
        self.scanned + self.withdrawn
    }

    /// Adds a part to the end.
    pub(crate) fn push(&mut self, message: QueueId, part: Part, now: Duration) {
        self.count_in(&part);
        if let Some(rank) = self.suspects.best_rank(message, &part.recipients) {
            return self.suspects.push(message, part, rank, now);
        }
        let class = part.class;
        self.next += 1;
        let number = self.next;
        if let Some(parts) = self.messages.get_mut(&message) {
            parts.push_back(part);
            // It is too large now to go before lists.
            if matches!(parts.key, QueueKey::Small(_)) && parts.recipients > QUANTUM {
                let class = parts.class;
                let queue = class_queue(&mut self.classes, class);
                parts.key = QueueKey::Large(queue.clock, number);
                queue.large.insert((queue.clock, number), message);
                self.drop_stale(class);
            }
            return;
        }
        let recipients = part.recipients.len();
        let queue = self.activate(class);
        let key = if recipients <= QUANTUM {
            queue.small.push_back((number, message));
            QueueKey::Small(number)
        } else {
            queue.large.insert((queue.clock, number), message);
            QueueKey::Large(queue.clock, number)
        };
        self.messages.insert(message, MessageParts::new(part, key, now));
    }

    /// Puts a part back that had its turn: to the front of its class.
    pub(crate) fn push_front(&mut self, message: QueueId, part: Part, now: Duration) {
        self.count_in(&part);
        if self.suspects.best_rank(message, &part.recipients).is_some() {
            return self.suspects.push(message, part, AT_ONCE, now);
        }
        let class = part.class;
        self.front -= 1;
        let number = self.front;
        if let Some(parts) = self.messages.get_mut(&message) {
            parts.push_front(part);
            let class = parts.class;
            let queue = class_queue(&mut self.classes, class);
            if let QueueKey::Large(start, number) = parts.key {
                queue.large.remove(&(start, number));
            }
            parts.key = QueueKey::Small(number);
            queue.small.push_front((number, message));
            self.drop_stale(class);
            return;
        }
        self.activate(class).small.push_front((number, message));
        let key = QueueKey::Small(number);
        self.messages.insert(message, MessageParts::new(part, key, now));
    }

    /// Puts a part back that was taken out: to its position.
    pub(crate) fn put_back(&mut self, message: QueueId, part: Part, position: Option<QueuePosition>, now: Duration) {
        let Some(position) = position else { return self.push_front(message, part, now) };
        if let Some(marked) = self.suspects.best_rank(message, &part.recipients) {
            self.count_in(&part);
            let (rank, since) = match position {
                QueuePosition::Isolated { rank, since } => (rank, since),
                QueuePosition::Shared { since, .. } => (marked, since),
            };
            return self.suspects.push(message, part, rank, since);
        }
        let QueuePosition::Shared { class, key, is_list, since } = position else {
            return self.push_front(message, part, now);
        };
        self.count_in(&part);
        if let Some(parts) = self.messages.get_mut(&message) {
            return parts.push_front(part);
        }
        let queue = self.activate(class);
        match key {
            QueueKey::Small(number) => {
                let at = queue.small.partition_point(|(other, _)| *other < number);
                // Its stale entry may still be there.
                if queue.small.get(at).is_none_or(|(other, _)| *other != number) {
                    queue.small.insert(at, (number, message));
                }
            }
            QueueKey::Large(start, number) => {
                queue.large.insert((start, number), message);
            }
        }
        let mut parts = MessageParts::new(part, key, since);
        parts.class = class;
        parts.is_list |= is_list;
        self.messages.insert(message, parts);
        self.drop_stale(class);
    }

    /// Removes the next transaction: parts of one message with up to `most` recipients.
    pub(crate) fn next_transaction(&mut self, most: usize, now: Duration) -> Option<Transaction> {
        let most = most.max(1);
        let class = self.next_class();
        if let Some((message, part, rank)) = self.suspects.pop(class.is_some()) {
            return Some(self.isolated_transaction(message, part, rank, most, now));
        }
        let class = class?;
        let (message, start) = self.next_message(class)?;
        let parts = self.messages.get_mut(&message)?;
        let mut first = parts.pop()?;
        let mut split = None;
        if first.recipients.len() > most {
            let (head, rest) = first.recipients.as_slice().split_at(most);
            let (head, rest) = (Positions::from(head), Positions::from(rest));
            let whole = std::mem::replace(&mut first.recipients, head);
            parts.push_front(Part { recipients: rest.clone(), ..first.clone() });
            split = Some((whole, rest));
        }
        let mut others = Vec::new();
        let mut count = first.recipients.len();
        while let Some(part) = parts.head()
            && count + part.recipients.len() <= most
            && let Some(part) = parts.pop()
        {
            count += part.recipients.len();
            others.push(part);
        }
        let cost = u64::try_from(count.max(QUANTUM)).unwrap_or(u64::MAX);
        let (is_over, is_list) = (parts.is_empty(), parts.is_list);
        self.next += 1;
        let number = self.next;
        let price = CLASS_COST.get(class.index()).copied().unwrap_or(1);
        let queue = class_queue(&mut self.classes, class);
        self.clock = queue.start;
        queue.start = queue.start.saturating_add(cost.saturating_mul(price));
        if is_over {
            queue.messages -= 1;
            self.messages.remove(&message);
        } else {
            let start = start.saturating_add(cost);
            (parts.key, parts.since) = (QueueKey::Large(start, number), now);
            queue.large.insert((start, number), message);
        }
        self.drop_stale(class);
        if split.is_none() {
            self.count_out(&first);
        } else {
            self.recipients -= first.recipients.len();
        }
        for part in &others {
            self.count_out(part);
        }
        Some(Transaction { message, first, others, split, is_alone: false, is_list })
    }

    /// Removes up to `most` recipients of a suspect part.
    fn isolated_transaction(
        &mut self,
        message: QueueId,
        mut first: Part,
        rank: Rank,
        most: usize,
        now: Duration,
    ) -> Transaction {
        let mut split = None;
        if first.recipients.len() > most {
            let (head, rest) = first.recipients.as_slice().split_at(most);
            let (head, rest) = (Positions::from(head), Positions::from(rest));
            let whole = std::mem::replace(&mut first.recipients, head);
            self.suspects.push(message, Part { recipients: rest.clone(), ..first.clone() }, rank, now);
            self.recipients -= first.recipients.len();
            split = Some((whole, rest));
        } else {
            self.count_out(&first);
        }
        Transaction { message, first, others: Vec::new(), split, is_alone: true, is_list: false }
    }

    /// Removes the parts of a message at a destination for which `is_it` holds, with their positions.
    pub(crate) fn take_out(
        &mut self,
        message: QueueId,
        destination: DestinationId,
        mut is_it: impl FnMut(&Part) -> bool,
    ) -> Vec<(Part, Option<QueuePosition>)> {
        let alone = self.suspects.remove(message, |part| part.destination == destination && is_it(part)).into_iter();
        let mut out: Vec<_> =
            alone.map(|(part, rank, since)| (part, Some(QueuePosition::Isolated { rank, since }))).collect();
        if let Some(parts) = self.messages.get_mut(&message) {
            let MessageParts { class, key, is_list, since, .. } = *parts;
            let taken = parts.take_out(destination, is_it).into_iter();
            out.extend(taken.map(|part| (part, Some(QueuePosition::Shared { class, key, is_list, since }))));
            if parts.is_empty() {
                self.messages.remove(&message);
                let queue = class_queue(&mut self.classes, class);
                queue.messages -= 1;
                if let QueueKey::Large(start, number) = key {
                    queue.large.remove(&(start, number));
                }
                self.drop_stale(class);
            }
        }
        for (part, _) in &out {
            self.count_out(part);
        }
        out
    }

    /// Sets when to ask for the deliver-by time of recipients, unless a time is set.
    pub(crate) fn ask_deadline_at(
        &mut self,
        message: QueueId,
        destination: DestinationId,
        recipients: &[u32],
        at: Duration,
    ) {
        let recipients: BTreeSet<u32> = recipients.iter().copied().collect();
        let ask = |part: &mut Part| {
            let is_it = part.destination == destination && part.notice.ask_at == Duration::MAX;
            if is_it && part.recipients.iter().any(|recipient| recipients.contains(&recipient)) {
                part.notice.ask_at = at;
            }
        };
        self.suspects.change(message, ask);
        if let Some(parts) = self.messages.get_mut(&message) {
            parts.change(destination, ask);
        }
    }

    /// Removes all parts, those of a message together.
    pub(crate) fn drain(&mut self) -> Vec<(QueueId, Part)> {
        let mut all = Vec::with_capacity(self.parts);
        for queue in &mut self.classes {
            let small = std::mem::take(&mut queue.small).into_iter().map(|(_, message)| message);
            for message in small.chain(std::mem::take(&mut queue.large).into_values()) {
                let Some(mut parts) = self.messages.remove(&message) else { continue };
                while let Some(part) = parts.pop() {
                    all.push((message, part));
                }
            }
            (queue.messages, queue.streak) = (0, 0);
        }
        all.extend(self.suspects.drain());
        (self.parts, self.scanned, self.recipients) = (0, 0, 0);
        self.messages.shrink_to_fit();
        all
    }

    /// Returns since when the oldest part waits; approximate for messages that had a turn.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        let firsts = self.classes.iter().flat_map(|queue| {
            [queue.small.front().map(|(_, message)| message), queue.large.first_key_value().map(|(_, message)| message)]
        });
        let waiting = firsts.flatten().filter_map(|message| self.messages.get(message)).map(|parts| parts.since);
        waiting.chain(self.suspects.first().map(|(_, since)| since)).min()
    }

    /// Returns the destination of the next part.
    pub(crate) fn first_destination(&self) -> Option<DestinationId> {
        let Some(class) = self.next_class() else { return self.suspects.first().map(|(part, _)| part.destination) };
        let queue = self.classes.get(class.index())?;
        let small = queue.small.front().map(|(_, message)| message);
        let message = small.or_else(|| queue.large.first_key_value().map(|(_, message)| message))?;
        self.messages.get(message)?.head().map(|part| part.destination)
    }

    fn count_in(&mut self, part: &Part) {
        self.parts += 1;
        self.scanned += usize::from(!part.fresh);
        self.recipients += part.recipients.len();
    }

    fn count_out(&mut self, part: &Part) {
        self.parts -= 1;
        self.scanned -= usize::from(!part.fresh);
        self.recipients -= part.recipients.len();
    }

    /// Counts a new message in its class, and returns the queue. An empty class starts level with the others.
    fn activate(&mut self, class: Class) -> &mut ClassQueue {
        let clock = self.clock;
        let queue = class_queue(&mut self.classes, class);
        if queue.messages == 0 {
            queue.start = queue.start.max(clock);
        }
        queue.messages += 1;
        queue
    }

    fn next_class(&self) -> Option<Class> {
        let classes = [Class::Urgent, Class::Normal, Class::Bulk];
        let with_work = self.classes.iter().zip(classes).filter(|(queue, _)| queue.messages > 0);
        with_work.min_by_key(|(queue, class)| (queue.start, *class)).map(|(_, class)| class)
    }

    /// Removes the message whose turn it is from its position, and returns its virtual start.
    fn next_message(&mut self, class: Class) -> Option<(QueueId, u64)> {
        let queue = class_queue(&mut self.classes, class);
        let is_small = !queue.small.is_empty() && (queue.streak < SMALL_TURNS || queue.large.is_empty());
        if is_small {
            let (_, message) = queue.small.pop_front()?;
            queue.streak = if queue.large.is_empty() { 0 } else { queue.streak + 1 };
            return Some((message, queue.clock));
        }
        let ((start, _), message) = queue.large.pop_first()?;
        (queue.clock, queue.streak) = (start, 0);
        Some((message, start))
    }

    /// Removes stale entries of `small`.
    fn drop_stale(&mut self, class: Class) {
        let messages = &self.messages;
        let queue = class_queue(&mut self.classes, class);
        let is_current = |(number, message): &(i64, QueueId)| {
            messages.get(message).is_some_and(|parts| parts.key == QueueKey::Small(*number))
        };
        while queue.small.front().is_some_and(|entry| !is_current(entry)) {
            queue.small.pop_front();
        }
        if queue.small.len() > 2 * queue.messages + 64 {
            queue.small.retain(is_current);
        }
    }
}

#[cfg(test)]
mod tests;
