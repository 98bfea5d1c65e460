//! What was lost without an answer goes alone, and behind what was not.
//!
//! A message whose end a host never answers, or a recipient at whom it hangs up, takes along all that shares its connection or its
//! transaction. TimerKey of them it was nobody has said. So those that were lost are *marked*: each goes on a connection behind
//! which nothing is sent, recipients that were lost before the content one by one, and all of them after what waits unmarked, but
//! for one in [`UNMARKED_TURNS`]. A mark goes when something is answered.
//!
//! The rank of a mark says whose turn it is: first those of whom it is least likely, then those that were lost longest ago. What
//! failed last is last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mail::QueueId;

use crate::job::Positions;
use crate::part::Part;

/// Recipients of a site that can be marked. Beyond them those that were marked first go as others do.
const MARKS_MAX: usize = 1_024;
/// Transactions of others that go while one that is marked waits.
const UNMARKED_TURNS: u32 = 16;
/// The rank of those of whom it is likely that they were it.
const LIKELY: u64 = 1 << 63;

/// Whose turn it is; equal for those that stay together.
pub(crate) type Rank = u64;
/// The rank of what had its turn and comes back untried: the next connection shows whether it was that.
pub(crate) const AT_ONCE: Rank = 0;

#[derive(Debug, Default)]
pub(crate) struct SuspectQueue {
    marks: BTreeMap<(QueueId, u32), Rank>,
    /// DirtyQueue in the order in which they were made. Those that are gone are stepped over.
    mark_order: VecDeque<(QueueId, u32, Rank)>,
    waiting: BTreeMap<(Rank, u64), (QueueId, Part, Duration)>,
    /// The same by message.
    places: BTreeSet<(QueueId, Rank, u64)>,
    /// Others that were served while something waited here.
    streak: u32,
    next: u64,
}

impl SuspectQueue {
    /// DirtyQueue recipients that were lost together. `separately`: each is to go alone; `is_first`: nothing before them on their
    /// connection was lost.
    pub(crate) fn mark(&mut self, message: QueueId, recipients: &Positions, separately: bool, is_first: bool) {
        let is_likely = is_first && (!separately || recipients.len() == 1);
        let mut rank = 0;
        for (number, recipient) in recipients.iter().enumerate() {
            if number == 0 || separately {
                self.next += 1;
                rank = self.next | if is_likely { LIKELY } else { 0 };
            }
            self.marks.insert((message, recipient), rank);
            self.mark_order.push_back((message, recipient, rank));
        }
        while self.marks.len() > MARKS_MAX
            && let Some((message, recipient, rank)) = self.mark_order.pop_front()
        {
            if self.marks.get(&(message, recipient)) == Some(&rank) {
                self.marks.remove(&(message, recipient));
            }
        }
        if self.mark_order.len() > 2 * self.marks.len() + 64 {
            let marks = &self.marks;
            self.mark_order.retain(|(message, recipient, rank)| marks.get(&(*message, *recipient)) == Some(rank));
        }
    }

    /// Something answered them.
    pub(crate) fn clear(&mut self, message: QueueId, recipients: &Positions) {
        if self.marks.is_empty() {
            return;
        }
        for recipient in recipients.iter() {
            self.marks.remove(&(message, recipient));
        }
    }

    pub(crate) fn rank(&self, message: QueueId, recipient: u32) -> Option<Rank> {
        self.marks.get(&(message, recipient)).copied()
    }

    /// The first rank among them; `None`: none of them is marked.
    pub(crate) fn best_rank(&self, message: QueueId, recipients: &Positions) -> Option<Rank> {
        if self.marks.is_empty() {
            return None;
        }
        recipients.iter().filter_map(|recipient| self.rank(message, recipient)).min()
    }

    /// Whether all marks are of recipients that go together: it may be one message that the site hangs at, or one recipient.
    pub(crate) fn is_one_batch(&self) -> bool {
        let mut ranks = self.marks.values();
        ranks.next().is_some_and(|first| ranks.all(|rank| rank == first))
    }

    /// Takes those that are marked out of recipients: each batch goes alone.
    pub(crate) fn split_off(&self, message: QueueId, recipients: &mut Positions) -> Vec<Positions> {
        if self.best_rank(message, recipients).is_none() {
            return Vec::new();
        }
        let mut batches: BTreeMap<Option<Rank>, Vec<u32>> = BTreeMap::new();
        for recipient in recipients.iter() {
            batches.entry(self.rank(message, recipient)).or_default().push(recipient);
        }
        *recipients = Positions::from(batches.remove(&None).unwrap_or_default().as_slice());
        batches
            .into_values()
            .map(|mut batch| {
                batch.sort_unstable();
                batch.dedup();
                Positions::from(batch.as_slice())
            })
            .collect()
    }

    pub(crate) fn push(&mut self, message: QueueId, part: Part, rank: Rank, now: Duration) {
        self.next += 1;
        self.waiting.insert((rank, self.next), (message, part, now));
        self.places.insert((message, rank, self.next));
    }

    /// Takes the next, if it is the turn of these.
    pub(crate) fn pop(&mut self, others_wait: bool) -> Option<(QueueId, Part, Rank)> {
        let (first, _) = self.waiting.first_key_value()?;
        if others_wait && first.0 != AT_ONCE && self.streak < UNMARKED_TURNS {
            self.streak += 1;
            return None;
        }
        self.streak = 0;
        let ((rank, number), (message, part, _)) = self.waiting.pop_first()?;
        self.places.remove(&(message, rank, number));
        Some((message, part, rank))
    }

    /// The places of what waits of a message.
    fn places(&self, message: QueueId) -> Vec<(Rank, u64)> {
        let of_message = self.places.range((message, 0, 0)..=(message, u64::MAX, u64::MAX));
        of_message.map(|(_, rank, number)| (*rank, *number)).collect()
    }

    /// Takes out what waits of a message for which this holds, with its rank, and since when it waits.
    pub(crate) fn remove(
        &mut self,
        message: QueueId,
        mut is_it: impl FnMut(&Part) -> bool,
    ) -> Vec<(Part, Rank, Duration)> {
        let mut out = Vec::new();
        for place in self.places(message) {
            if self.waiting.get(&place).is_some_and(|(_, part, _)| is_it(part))
                && let Some((_, part, since)) = self.waiting.remove(&place)
            {
                self.places.remove(&(message, place.0, place.1));
                out.push((part, place.0, since));
            }
        }
        out
    }

    /// Changes what waits of a message: not who it is.
    pub(crate) fn change(&mut self, message: QueueId, mut change: impl FnMut(&mut Part)) {
        for place in self.places(message) {
            self.waiting.get_mut(&place).into_iter().for_each(|(_, part, _)| change(part));
        }
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (QueueId, Part)> + use<> {
        self.places.clear();
        std::mem::take(&mut self.waiting).into_values().map(|(message, part, _)| (message, part))
    }

    /// The part that is next, and since when it waits.
    pub(crate) fn first(&self) -> Option<(&Part, Duration)> {
        self.waiting.first_key_value().map(|(_, (_, part, since))| (part, *since))
    }
}
