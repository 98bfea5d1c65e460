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
use crate::message_parts::MessageParts;
use crate::suspect_queue::{AT_ONCE, Rank, SuspectQueue};

/// Recipients that a message may have here and still go before lists; what a transaction costs at least.
pub(crate) const QUANTUM: usize = 20;
/// Small messages of a class that go before a list that waits.
const SMALL_TURNS: u32 = 4;
/// What a recipient costs its class: 16, 4 and 1 parts.
const PRICES: [u64; 3] = [1, 4, 16];

/// What senders may hear of recipients that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoticeState {
    /// The sender was told of the delay already.
    pub(crate) warned: bool,
    /// Since when it is due, if it was late before: it is tried before that counts.
    pub(crate) due: Duration,
    /// Nobody is told of its age before.
    pub(crate) rest: Duration,
    /// When it is asked by when it is to be delivered, if that is not known.
    pub(crate) ask: Duration,
}

impl NoticeState {
    /// Of what just came.
    pub(crate) const FRESH: Self =
        Self { warned: false, due: Duration::ZERO, rest: Duration::ZERO, ask: Duration::MAX };
}

/// Recipients of one message at one destination that wait, or that a connection has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) destination: DestinationId,
    pub(crate) recipients: Positions,
    pub(crate) class: Class,
    pub(crate) wait: NoticeState,
    /// It came into memory when it was committed, and not by a walk.
    pub(crate) fresh: bool,
}

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

/// Where the message stands among those of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKey {
    Small(i64),
    Large(u64, i64),
}

/// Where a part stood that comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueuePosition {
    /// Among others.
    Shared { class: Class, place: QueueKey, is_list: bool, since: Duration },
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
    groups: usize,
}

#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    groups: ById<QueueId, MessageParts>,
    tiers: [ClassQueue; 3],
    /// The virtual start of the class that was served last.
    clock: u64,
    parts: usize,
    walked: usize,
    recipients: usize,
    /// Number places, so that none is mistaken for another: at the end of the line, and at its front.
    next: i64,
    front: i64,
    /// Parts that walks found and that are out of the line for a moment: their senders are being told.
    pub(crate) away: usize,
    /// What was lost without an answer.
    pub(crate) again: SuspectQueue,
}

impl Class {
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Urgent => 0,
            Self::Normal => 1,
            Self::Bulk => 2,
        }
    }
}

/// The tier of a class.
fn tier(tiers: &mut [ClassQueue; 3], class: Class) -> &mut ClassQueue {
    let [urgent, normal, bulk] = tiers;
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
        let [urgent, ..] = &self.tiers;
        urgent.groups > 0
    }

    /// Transactions that the parts need, with up to `most` recipients each; more if some of them can join.
    pub(crate) fn transactions(&self, most: usize) -> usize {
        self.parts.max(self.recipients.div_ceil(most.max(1)))
    }

    /// Parts that walks found, those that are to come back included.
    pub(crate) const fn walked(&self) -> usize {
        self.walked + self.away
    }

    /// Puts a part in line.
    pub(crate) fn push(&mut self, message: QueueId, part: Part, now: Duration) {
        self.count_in(&part);
        if let Some(rank) = self.again.rank_of(message, &part.recipients) {
            return self.again.push(message, part, rank, now);
        }
        let class = part.class;
        self.next += 1;
        let number = self.next;
        if let Some(group) = self.groups.get_mut(&message) {
            group.push_back(part);
            // It grew beyond what goes before lists.
            if matches!(group.place, QueueKey::Small(_)) && group.recipients > QUANTUM {
                let class = group.class;
                let tier = tier(&mut self.tiers, class);
                group.place = QueueKey::Large(tier.clock, number);
                tier.large.insert((tier.clock, number), message);
                self.tidy(class);
            }
            return;
        }
        let recipients = part.recipients.len();
        let tier = self.wake(class);
        let place = if recipients <= QUANTUM {
            tier.small.push_back((number, message));
            QueueKey::Small(number)
        } else {
            tier.large.insert((tier.clock, number), message);
            QueueKey::Large(tier.clock, number)
        };
        self.groups.insert(message, MessageParts::new(part, place, now));
    }

    /// Puts a part back that had its turn: first of its class.
    pub(crate) fn push_front(&mut self, message: QueueId, part: Part, now: Duration) {
        self.count_in(&part);
        if self.again.rank_of(message, &part.recipients).is_some() {
            return self.again.push(message, part, AT_ONCE, now);
        }
        let class = part.class;
        self.front -= 1;
        let number = self.front;
        if let Some(group) = self.groups.get_mut(&message) {
            group.push_front(part);
            let class = group.class;
            let tier = tier(&mut self.tiers, class);
            if let QueueKey::Large(start, number) = group.place {
                tier.large.remove(&(start, number));
            }
            group.place = QueueKey::Small(number);
            tier.small.push_front((number, message));
            self.tidy(class);
            return;
        }
        self.wake(class).small.push_front((number, message));
        let place = QueueKey::Small(number);
        self.groups.insert(message, MessageParts::new(part, place, now));
    }

    /// Puts a part back that was taken out: where it stood.
    pub(crate) fn put_back(&mut self, message: QueueId, part: Part, spot: Option<QueuePosition>, now: Duration) {
        let Some(spot) = spot else { return self.push_front(message, part, now) };
        if let Some(marked) = self.again.rank_of(message, &part.recipients) {
            self.count_in(&part);
            let (rank, since) = match spot {
                QueuePosition::Isolated { rank, since } => (rank, since),
                QueuePosition::Shared { since, .. } => (marked, since),
            };
            return self.again.push(message, part, rank, since);
        }
        let QueuePosition::Shared { class, place, is_list, since } = spot else {
            return self.push_front(message, part, now);
        };
        self.count_in(&part);
        if let Some(group) = self.groups.get_mut(&message) {
            return group.push_front(part);
        }
        let tier = self.wake(class);
        match place {
            QueueKey::Small(number) => {
                let at = tier.small.partition_point(|(other, _)| *other < number);
                // It may be there still, to be stepped over.
                if tier.small.get(at).is_none_or(|(other, _)| *other != number) {
                    tier.small.insert(at, (number, message));
                }
            }
            QueueKey::Large(start, number) => {
                tier.large.insert((start, number), message);
            }
        }
        let mut group = MessageParts::new(part, place, since);
        group.class = class;
        group.is_list |= is_list;
        self.groups.insert(message, group);
        self.tidy(class);
    }

    /// Takes what is next: parts of one message, with up to `most` recipients.
    pub(crate) fn take(&mut self, most: usize, now: Duration) -> Option<Transaction> {
        let most = most.max(1);
        let class = self.next_class();
        if let Some((message, part, rank)) = self.again.pop(class.is_some()) {
            return Some(self.take_alone(message, part, rank, most, now));
        }
        let class = class?;
        let (message, start) = self.turn(class)?;
        let group = self.groups.get_mut(&message)?;
        let mut first = group.pop()?;
        let mut split = None;
        if first.recipients.len() > most {
            let (head, rest) = first.recipients.as_slice().split_at(most);
            let (head, rest) = (Positions::from(head), Positions::from(rest));
            let whole = std::mem::replace(&mut first.recipients, head);
            group.push_front(Part { recipients: rest.clone(), ..first.clone() });
            split = Some((whole, rest));
        }
        let mut others = Vec::new();
        let mut count = first.recipients.len();
        while let Some(part) = group.head()
            && count + part.recipients.len() <= most
            && let Some(part) = group.pop()
        {
            count += part.recipients.len();
            others.push(part);
        }
        let cost = u64::try_from(count.max(QUANTUM)).unwrap_or(u64::MAX);
        let (is_over, is_list) = (group.is_empty(), group.is_list);
        self.next += 1;
        let number = self.next;
        let price = PRICES.get(class.index()).copied().unwrap_or(1);
        let tier = tier(&mut self.tiers, class);
        self.clock = tier.start;
        tier.start = tier.start.saturating_add(cost.saturating_mul(price));
        if is_over {
            tier.groups -= 1;
            self.groups.remove(&message);
        } else {
            let start = start.saturating_add(cost);
            (group.place, group.since) = (QueueKey::Large(start, number), now);
            tier.large.insert((start, number), message);
        }
        self.tidy(class);
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
    fn take_alone(&mut self, message: QueueId, mut first: Part, rank: Rank, most: usize, now: Duration) -> Transaction {
        let mut split = None;
        if first.recipients.len() > most {
            let (head, rest) = first.recipients.as_slice().split_at(most);
            let (head, rest) = (Positions::from(head), Positions::from(rest));
            let whole = std::mem::replace(&mut first.recipients, head);
            self.again.push(message, Part { recipients: rest.clone(), ..first.clone() }, rank, now);
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
        let alone = self.again.remove(message, |part| part.destination == destination && is_it(part)).into_iter();
        let mut out: Vec<_> =
            alone.map(|(part, rank, since)| (part, Some(QueuePosition::Isolated { rank, since }))).collect();
        if let Some(group) = self.groups.get_mut(&message) {
            let MessageParts { class, place, is_list, since, .. } = *group;
            let parts = group.take_out(destination, is_it).into_iter();
            out.extend(parts.map(|part| (part, Some(QueuePosition::Shared { class, place, is_list, since }))));
            if group.is_empty() {
                self.groups.remove(&message);
                let tier = tier(&mut self.tiers, class);
                tier.groups -= 1;
                if let QueueKey::Large(start, number) = place {
                    tier.large.remove(&(start, number));
                }
                self.tidy(class);
            }
        }
        for (part, _) in &out {
            self.count_out(part);
        }
        out
    }

    /// Has it asked at `at` by when recipients of a message are to be delivered, where nobody was to ask any more.
    pub(crate) fn ask(&mut self, message: QueueId, destination: DestinationId, whom: &[u32], at: Duration) {
        let whom: BTreeSet<u32> = whom.iter().copied().collect();
        let ask = |part: &mut Part| {
            let is_it = part.destination == destination && part.wait.ask == Duration::MAX;
            if is_it && part.recipients.iter().any(|recipient| whom.contains(&recipient)) {
                part.wait.ask = at;
            }
        };
        self.again.change(message, ask);
        if let Some(group) = self.groups.get_mut(&message) {
            group.change(destination, ask);
        }
    }

    /// Empties the line, the parts of a message together.
    pub(crate) fn drain(&mut self) -> Vec<(QueueId, Part)> {
        let mut all = Vec::with_capacity(self.parts);
        for tier in &mut self.tiers {
            let small = std::mem::take(&mut tier.small).into_iter().map(|(_, message)| message);
            for message in small.chain(std::mem::take(&mut tier.large).into_values()) {
                let Some(mut group) = self.groups.remove(&message) else { continue };
                while let Some(part) = group.pop() {
                    all.push((message, part));
                }
            }
            (tier.groups, tier.streak) = (0, 0);
        }
        all.extend(self.again.drain());
        (self.parts, self.walked, self.recipients) = (0, 0, 0);
        self.groups.shrink_to_fit();
        all
    }

    /// Since when the one that has waited for longest waits; of those in their turns, about.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        let firsts = self.tiers.iter().flat_map(|tier| {
            [tier.small.front().map(|(_, message)| message), tier.large.first_key_value().map(|(_, message)| message)]
        });
        let waiting = firsts.flatten().filter_map(|message| self.groups.get(message)).map(|group| group.since);
        waiting.chain(self.again.first().map(|(_, since)| since)).min()
    }

    /// The destination of the part that is next.
    pub(crate) fn first_destination(&self) -> Option<DestinationId> {
        let Some(class) = self.next_class() else { return self.again.first().map(|(part, _)| part.destination) };
        let tier = self.tiers.get(class.index())?;
        let small = tier.small.front().map(|(_, message)| message);
        let message = small.or_else(|| tier.large.first_key_value().map(|(_, message)| message))?;
        self.groups.get(message)?.head().map(|part| part.destination)
    }

    fn count_in(&mut self, part: &Part) {
        self.parts += 1;
        self.walked += usize::from(!part.fresh);
        self.recipients += part.recipients.len();
    }

    fn count_out(&mut self, part: &Part) {
        self.parts -= 1;
        self.walked -= usize::from(!part.fresh);
        self.recipients -= part.recipients.len();
    }

    /// The tier of a message that comes. A class that had nothing begins where the others are.
    fn wake(&mut self, class: Class) -> &mut ClassQueue {
        let clock = self.clock;
        let tier = tier(&mut self.tiers, class);
        if tier.groups == 0 {
            tier.start = tier.start.max(clock);
        }
        tier.groups += 1;
        tier
    }

    fn next_class(&self) -> Option<Class> {
        let classes = [Class::Urgent, Class::Normal, Class::Bulk];
        let with_work = self.tiers.iter().zip(classes).filter(|(tier, _)| tier.groups > 0);
        with_work.min_by_key(|(tier, class)| (tier.start, *class)).map(|(_, class)| class)
    }

    /// Takes the message whose turn it is out of its place, and says where it stood.
    fn turn(&mut self, class: Class) -> Option<(QueueId, u64)> {
        let tier = tier(&mut self.tiers, class);
        let is_small = !tier.small.is_empty() && (tier.streak < SMALL_TURNS || tier.large.is_empty());
        if is_small {
            let (_, message) = tier.small.pop_front()?;
            tier.streak = if tier.large.is_empty() { 0 } else { tier.streak + 1 };
            return Some((message, tier.clock));
        }
        let ((start, _), message) = tier.large.pop_first()?;
        (tier.clock, tier.streak) = (start, 0);
        Some((message, start))
    }

    /// Forgets places in the line that nobody stands in any more.
    fn tidy(&mut self, class: Class) {
        let groups = &self.groups;
        let tier = tier(&mut self.tiers, class);
        let stands = |(number, message): &(i64, QueueId)| {
            groups.get(message).is_some_and(|group| group.place == QueueKey::Small(*number))
        };
        while tier.small.front().is_some_and(|place| !stands(place)) {
            tier.small.pop_front();
        }
        if tier.small.len() > 2 * tier.groups + 64 {
            tier.small.retain(stands);
        }
    }
}

#[cfg(test)]
mod tests;
