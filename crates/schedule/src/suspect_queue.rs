//! Isolated retries.
//!
//! A message whose end-of-data a host never answers, or a recipient at which it disconnects, also loses all that shares
//! its connection or transaction. Which one was at fault is unknown, so all are *marked*. Marked recipients are sent
//! with nothing pipelined behind them, one per transaction if they were lost before the content, and after unmarked
//! mail except one in [`UNMARKED_TURNS`]. Any reply clears the mark.
//!
//! The rank of a mark gives the order: first the recipients that are least likely at fault, then the oldest mark.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mail::QueueId;

use crate::job::Positions;
use crate::part::Part;

/// Maximum number of marked recipients of a site. The oldest marks are dropped.
const MARKS_MAX: usize = 1_024;
/// Unmarked transactions that go while a marked one waits.
const UNMARKED_TURNS: u32 = 16;
/// Added to the rank of recipients that are likely at fault.
const LIKELY: u64 = 1 << 63;

/// The order of marked recipients; equal for those that stay together.
pub(crate) type Rank = u64;
/// The rank of a part that had its turn and returns untried: the next connection shows whether it was at fault.
pub(crate) const AT_ONCE: Rank = 0;

#[derive(Debug, Default)]
pub(crate) struct SuspectQueue {
    marks: BTreeMap<(QueueId, u32), Rank>,
    /// Marks in the order in which they were made. Stale ones are skipped.
    mark_order: VecDeque<(QueueId, u32, Rank)>,
    waiting: BTreeMap<(Rank, u64), (QueueId, Part, Duration)>,
    /// The waiting parts by message.
    places: BTreeSet<(QueueId, Rank, u64)>,
    /// Unmarked transactions since a part waits here.
    streak: u32,
    next: u64,
}

impl SuspectQueue {
    /// Marks recipients that were lost together. `separately`: each goes by itself; `is_first`: nothing before them on
    /// their connection was lost.
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

    /// Clears the marks of recipients that got a reply.
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

    /// Returns the lowest rank of the recipients; `None`: none is marked.
    pub(crate) fn best_rank(&self, message: QueueId, recipients: &Positions) -> Option<Rank> {
        if self.marks.is_empty() {
            return None;
        }
        recipients.iter().filter_map(|recipient| self.rank(message, recipient)).min()
    }

    /// Returns whether all marks belong to one batch: one message or one recipient may be the cause of all failures.
    pub(crate) fn is_one_batch(&self) -> bool {
        let mut ranks = self.marks.values();
        ranks.next().is_some_and(|first| ranks.all(|rank| rank == first))
    }

    /// Removes the marked recipients from `recipients` and returns them in batches. Each batch goes alone.
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

    /// Removes the next part, if it is the turn of marked ones.
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

    /// Returns the positions of the waiting parts of a message.
    fn places(&self, message: QueueId) -> Vec<(Rank, u64)> {
        let of_message = self.places.range((message, 0, 0)..=(message, u64::MAX, u64::MAX));
        of_message.map(|(_, rank, number)| (*rank, *number)).collect()
    }

    /// Removes the waiting parts of a message for which `is_it` holds, with their rank and the start of their wait.
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

    /// Changes the waiting parts of a message. Their recipients must stay the same.
    pub(crate) fn change(&mut self, message: QueueId, mut change: impl FnMut(&mut Part)) {
        for place in self.places(message) {
            self.waiting.get_mut(&place).into_iter().for_each(|(_, part, _)| change(part));
        }
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (QueueId, Part)> + use<> {
        self.places.clear();
        std::mem::take(&mut self.waiting).into_values().map(|(message, part, _)| (message, part))
    }

    /// Returns the next part, and since when it waits.
    pub(crate) fn first(&self) -> Option<(&Part, Duration)> {
        self.waiting.first_key_value().map(|(_, (_, part, since))| (part, *since))
    }
}
