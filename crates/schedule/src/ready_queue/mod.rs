//! The line of a site: whose job is next.
//!
//! Classes share by weight, and inside a class messages share by recipients, each message a transaction at a time. A
//! message with few recipients goes before lists, so it waits for one of their transactions at most; after
//! [`SMALL_TURNS`] such messages a list has its turn. Both shares are deficits kept as *virtual starts*: what was served
//! moves the start of its owner on by what it cost, and the least start is next. That is deficit round robin without the
//! rounds, so each call costs O(log n).
//!
//! The parts of one message that are of several destinations join in one transaction. What was lost without an answer stands in a
//! line of its own ([`SuspectQueue`]) and joins with nothing. Nothing here knows of connections, rates or back-off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mail::QueueId;

use crate::chance::ById;
use crate::job::{Class, DestinationId, Positions};
use crate::message_parts::{MessageParts, QUANTUM, QueueKey};
use crate::part::Part;
use crate::suspect_queue::{AT_ONCE, Rank, SuspectQueue};

/// Small messages of a class that go before a list that waits.
const SMALL_TURNS: u32 = 4;
/// What a recipient costs its class: 16, 4 and 1 parts.
const CLASS_COST: [u64; 3] = [1, 4, 16];

/// What goes in one transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) message: QueueId,
    pub(crate) first: Part,
    pub(crate) others: Vec<Part>,
    /// The first one was too large: its recipients as they were, and those that stay in the line.
    pub(crate) split: Option<(Positions, Positions)>,
    /// It was lost before: nothing is to go behind it.
    pub(crate) is_alone: bool,
    /// It is of a list.
    pub(crate) is_list: bool,
}

/// Where a part stood that comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueuePosition {
    /// Among others.
    Shared { class: Class, key: QueueKey, is_list: bool, since: Duration },
    /// Among those that were lost before.
    Isolated { rank: Rank, since: Duration },
}

#[derive(Debug, Default)]
struct ClassQueue {
    /// Messages with few recipients, before their first turn, by number. Those that went elsewhere are stepped over.
    small: VecDeque<(i64, QueueId)>,
    /// All others, by virtual start.
    large: BTreeMap<(u64, i64), QueueId>,
    /// The virtual start of the one that was served last.
    clock: u64,
    /// Small ones that were served while a large one waited.
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
    from_scans: usize,
    recipients: usize,
    /// Number places, so that none is mistaken for another: at the end of the line, and at its front.
    next: i64,
    front: i64,
    /// Parts that walks found and that are out of the line for a moment: their senders are being told.
    pub(crate) withdrawn: usize,
    /// What was lost without an answer.
    pub(crate) suspects: SuspectQueue,
}

/// The queue of a class.
fn class_queue(classes: &mut [ClassQueue; 3], class: Class) -> &mut ClassQueue {
    let [urgent, normal, bulk] = classes;
    match class {
        Class::Urgent => urgent,
        Class::Normal => normal,
        Class::Bulk => bulk,
    }
}

impl ReadyQueue {
    /// Parts that wait.
    pub(crate) const fn len(&self) -> usize {
        self.parts
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Whether some of it is urgent.
    pub(crate) const fn has_urgent(&self) -> bool {
        let [urgent, ..] = &self.classes;
        urgent.messages > 0
    }

    /// Transactions that the parts need, with up to `most` recipients each; more if some of them can join.
    pub(crate) fn transactions(&self, most: usize) -> usize {
        self.parts.max(self.recipients.div_ceil(most.max(1)))
    }

    /// Parts that walks found, those that are to come back included.
    pub(crate) const fn from_scans(&self) -> usize {
        self.from_scans + self.withdrawn
    }

    /// Puts a part in line.
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
            // It grew beyond what goes before lists.
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

    /// Puts a part back that had its turn: first of its class.
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

    /// Puts a part back that was taken out: where it stood.
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
                // It may be there still, to be stepped over.
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

    /// Takes what is next: parts of one message, with up to `most` recipients.
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

    /// Takes up to `most` recipients of a part that was lost before.
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

    /// Takes out those parts of a message at a destination for which this holds, and says where they stood.
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

    /// Has it asked at `at` by when recipients of a message are to be delivered, where nobody was to ask any more.
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

    /// Empties the line, the parts of a message together.
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
        (self.parts, self.from_scans, self.recipients) = (0, 0, 0);
        self.messages.shrink_to_fit();
        all
    }

    /// Since when the one that has waited for longest waits; of those in their turns, about.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        let firsts = self.classes.iter().flat_map(|queue| {
            [queue.small.front().map(|(_, message)| message), queue.large.first_key_value().map(|(_, message)| message)]
        });
        let waiting = firsts.flatten().filter_map(|message| self.messages.get(message)).map(|parts| parts.since);
        waiting.chain(self.suspects.first().map(|(_, since)| since)).min()
    }

    /// The destination of the part that is next.
    pub(crate) fn first_destination(&self) -> Option<DestinationId> {
        let Some(class) = self.next_class() else { return self.suspects.first().map(|(part, _)| part.destination) };
        let queue = self.classes.get(class.index())?;
        let small = queue.small.front().map(|(_, message)| message);
        let message = small.or_else(|| queue.large.first_key_value().map(|(_, message)| message))?;
        self.messages.get(message)?.head().map(|part| part.destination)
    }

    fn count_in(&mut self, part: &Part) {
        self.parts += 1;
        self.from_scans += usize::from(!part.fresh);
        self.recipients += part.recipients.len();
    }

    fn count_out(&mut self, part: &Part) {
        self.parts -= 1;
        self.from_scans -= usize::from(!part.fresh);
        self.recipients -= part.recipients.len();
    }

    /// The queue of a message that comes. A class that had nothing begins where the others are.
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

    /// Takes the message whose turn it is out of its key, and says where it stood.
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

    /// Forgets places in the line that nobody stands in any more.
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
