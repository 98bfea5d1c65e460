//! Messages with recipients that have no outcome yet, as a log tells of them: the source's mailqq.
//!
//! The number of recipients at the arrival may be less than that of the attempts, since an address may stand for a
//! list: so a message waits for the recipients that were not tried yet, and for each that was deferred and has no
//! outcome since.

use super::fact::{Arrival, Attempt, Fact};
use crate::counters::Outcome;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// Messages that are kept, and pairs of message and deferred recipient; further ones are counted.
pub const WAITING_MAX: usize = 500_000;
/// The longest sender that is kept, in octets.
const SENDER_MAX: usize = 256;

/// Messages that wait, fed with the facts of a log.
#[derive(Debug, Default)]
pub struct WaitingMessages {
    hasher: RandomState,
    messages: HashMap<Box<str>, MessageState>,
    /// Hashes of message and address.
    deferred: HashSet<u64>,
    left_out: u64,
}

#[derive(Debug)]
struct MessageState {
    arrived: i64,
    size: u64,
    from: Box<str>,
    untried: u64,
    deferred: u64,
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingMessage {
    /// The queue id.
    pub id: String,
    /// The second of its arrival.
    pub arrived: i64,
    /// Octets.
    pub size: u64,
    /// The sender; empty for the null sender.
    pub from: String,
    /// Recipients without an outcome.
    pub recipients: u64,
}

impl WaitingMessages {
    /// Takes a fact.
    pub fn record(&mut self, time: i64, fact: &Fact<'_>) {
        match fact {
            Fact::Arrival(arrival) => self.arrive(time, arrival),
            Fact::Attempt(attempt) => attempt.to.for_each(|address| self.attempt(attempt, address)),
            Fact::Cloned { id, clone } => self.move_to_clone(id, clone),
            Fact::Ended { id } => drop(self.messages.remove(*id)),
            _ => {}
        }
    }

    fn arrive(&mut self, time: i64, arrival: &Arrival<'_>) {
        if self.messages.len() >= WAITING_MAX {
            self.messages.retain(|_, message| message.untried + message.deferred > 0);
        }
        if self.messages.len() >= WAITING_MAX {
            self.left_out += 1;
            return;
        }
        let from = arrival.from.get(..arrival.from.floor_char_boundary(SENDER_MAX)).unwrap_or_default().into();
        let (size, untried) = (arrival.size, arrival.recipients);
        self.messages.insert(arrival.id.into(), MessageState { arrived: time, size, from, untried, deferred: 0 });
    }

    /// The address of the list is tried no more under the first id; its members wait once they are deferred.
    fn move_to_clone(&mut self, id: &str, clone: &str) {
        let Some(first) = self.messages.get_mut(id) else { return };
        first.untried = first.untried.saturating_sub(1);
        let MessageState { arrived, size, ref from, .. } = *first;
        let message = MessageState { arrived, size, from: from.clone(), untried: 0, deferred: 0 };
        if self.messages.len() < WAITING_MAX {
            self.messages.insert(clone.into(), message);
        }
    }

    fn attempt(&mut self, attempt: &Attempt<'_>, address: &str) {
        let Some(message) = self.messages.get_mut(attempt.id) else { return };
        if attempt.outcome == Outcome::Deferred {
            if self.deferred.len() >= WAITING_MAX {
                self.left_out += 1;
            } else if self.deferred.insert(self.hasher.hash_one((attempt.id, address))) {
                message.untried = message.untried.saturating_sub(1);
                message.deferred += 1;
            }
            return;
        }
        let waited = message.deferred > 0 && self.deferred.remove(&self.hasher.hash_one((attempt.id, address)));
        let sum = if waited { &mut message.deferred } else { &mut message.untried };
        *sum = sum.saturating_sub(1);
    }

    /// Returns the messages, those with the fewest recipients first, then by id.
    #[must_use]
    pub fn list(&self) -> Vec<WaitingMessage> {
        let waits = self.messages.iter().filter(|(_, message)| message.untried + message.deferred > 0);
        let mut all: Vec<WaitingMessage> = waits.map(|(id, message)| waiting(id, message)).collect();
        all.sort_unstable_by(|a, b| (a.recipients, &a.id).cmp(&(b.recipients, &b.id)));
        all
    }

    /// Returns the messages and attempts that found no room.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn waiting(id: &str, message: &MessageState) -> WaitingMessage {
    WaitingMessage {
        id: id.to_owned(),
        arrived: message.arrived,
        size: message.size,
        from: message.from.to_string(),
        recipients: message.untried + message.deferred,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fact::Addresses;
    use super::*;

    fn attempt(id: &'static str, to: &'static str, outcome: Outcome) -> Fact<'static> {
        let to = Addresses::Text(to);
        let (recipients, host, delay, size, text) = (to.count(), "mx.test", None, 0, "");
        Fact::Attempt(Attempt { id, to, recipients, host, outcome, delay, size, text, is_transaction: true })
    }

    #[test]
    fn recipients_wait_until_they_have_an_outcome() {
        let mut waiting = WaitingMessages::default();
        let list = |waiting: &WaitingMessages| {
            waiting.list().into_iter().map(|one| (one.id, one.recipients)).collect::<Vec<_>>()
        };
        let arrival = |id, recipients| Fact::Arrival(Arrival { id, from: "a@b", size: 5, recipients, client: "" });
        waiting.record(1, &arrival("B", 2));
        waiting.record(1, &arrival("A", 1));
        assert_eq!(list(&waiting), [("A".to_owned(), 1), ("B".to_owned(), 2)]);
        waiting.record(2, &attempt("B", "<x@t>,<y@t>", Outcome::Deferred));
        waiting.record(3, &attempt("B", "<x@t>,<y@t>", Outcome::Deferred));
        waiting.record(4, &attempt("B", "<x@t>", Outcome::Sent));
        // A list of three.
        waiting.record(4, &attempt("A", "<p@t>,<q@t>", Outcome::Sent));
        assert_eq!(list(&waiting), [("B".to_owned(), 1)]);
        waiting.record(5, &attempt("A", "<r@t>", Outcome::Deferred));
        assert_eq!(list(&waiting), [("A".to_owned(), 1), ("B".to_owned(), 1)]);
        waiting.record(6, &Fact::Ended { id: "B" });
        waiting.record(6, &attempt("A", "<r@t>", Outcome::Failed));
        assert_eq!(list(&waiting), []);
    }
}
