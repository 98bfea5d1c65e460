//! Recipients whose mail still waits after an attempt: the source's latedudes.

use super::fact::{Attempt, Fact};
use crate::counters::Outcome;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Waiting pairs of message and recipient that are kept; further ones are counted.
pub const LATE_MAX: usize = 500_000;
/// The longest reply that is kept, in octets.
const REPLY_MAX: usize = 200;

/// Recipients with waiting mail, fed with the facts of a log.
#[derive(Debug, Default)]
pub struct LateRecipients {
    hasher: RandomState,
    /// Hashes of message and address: the pairs that wait, with the time of their first attempt.
    waiting: HashMap<u64, i64>,
    recipients: HashMap<Box<str>, RecipientState>,
    left_out: u64,
}

#[derive(Debug)]
struct RecipientState {
    messages: u64,
    attempts: u64,
    oldest: i64,
    last: i64,
    host: Box<str>,
    reply: Box<str>,
}

/// A recipient whose mail waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateRecipient {
    /// The address.
    pub address: String,
    /// The messages that wait.
    pub messages: u64,
    /// Attempts without success, of these messages and of earlier ones.
    pub attempts: u64,
    /// The second of the first attempt that failed while mail was waiting ever since.
    pub oldest: i64,
    /// The second of the last attempt.
    pub last: i64,
    /// The next hop of the last attempt.
    pub host: String,
    /// The reply to the last attempt, or the reason.
    pub reply: String,
}

impl LateRecipients {
    /// Takes a fact.
    pub fn record(&mut self, time: i64, fact: &Fact<'_>) {
        let Fact::Attempt(attempt) = fact else { return };
        attempt.to.for_each(|address| match attempt.outcome {
            Outcome::Deferred => self.defer(time, attempt, address),
            Outcome::Sent | Outcome::Failed => self.finish(attempt.id, address),
        });
    }

    fn defer(&mut self, time: i64, attempt: &Attempt<'_>, address: &str) {
        let key = self.hasher.hash_one((attempt.id, address));
        let is_new = !self.waiting.contains_key(&key);
        if is_new && self.waiting.len() >= LATE_MAX {
            self.left_out += 1;
            return;
        }
        let first = *self.waiting.entry(key).or_insert(time);
        if !self.recipients.contains_key(address) {
            let state = RecipientState {
                messages: 0,
                attempts: 0,
                oldest: first,
                last: time,
                host: "".into(),
                reply: "".into(),
            };
            self.recipients.insert(address.into(), state);
        }
        let Some(state) = self.recipients.get_mut(address) else { return };
        state.messages += u64::from(is_new);
        state.attempts += 1;
        state.last = time;
        if *state.host != *attempt.host {
            state.host = attempt.host.into();
        }
        let reply = attempt.text.get(..attempt.text.floor_char_boundary(REPLY_MAX)).unwrap_or_default();
        if *state.reply != *reply {
            state.reply = reply.into();
        }
    }

    fn finish(&mut self, id: &str, address: &str) {
        // Most mail is sent at the first attempt.
        if self.waiting.is_empty() || self.waiting.remove(&self.hasher.hash_one((id, address))).is_none() {
            return;
        }
        let Some(state) = self.recipients.get_mut(address) else { return };
        state.messages = state.messages.saturating_sub(1);
        if state.messages == 0 {
            self.recipients.remove(address);
        }
    }

    /// Returns the recipients, those with the fewest messages first, then by address.
    #[must_use]
    pub fn list(&self) -> Vec<LateRecipient> {
        let mut all: Vec<LateRecipient> = self.recipients.iter().map(|(address, state)| late(address, state)).collect();
        all.sort_unstable_by(|a, b| (a.messages, &a.address).cmp(&(b.messages, &b.address)));
        all
    }

    /// Returns the attempts that found no room.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn late(address: &str, state: &RecipientState) -> LateRecipient {
    LateRecipient {
        address: address.to_owned(),
        messages: state.messages,
        attempts: state.attempts,
        oldest: state.oldest,
        last: state.last,
        host: state.host.to_string(),
        reply: state.reply.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fact::Addresses;
    use super::*;

    fn attempt<'a>(id: &'a str, to: &'a str, outcome: Outcome, text: &'a str) -> Fact<'a> {
        let to = Addresses::Text(to);
        let (recipients, host, delay, size) = (to.count(), "mx.test", None, 0);
        Fact::Attempt(Attempt { id, to, recipients, host, outcome, delay, size, text, is_transaction: true })
    }

    #[test]
    fn a_recipient_waits_until_each_of_its_messages_has_an_outcome() {
        let mut late = LateRecipients::default();
        late.record(10, &attempt("A", "<x@t>,<y@t>", Outcome::Deferred, "450 one"));
        late.record(20, &attempt("B", "<x@t>", Outcome::Deferred, "450 two"));
        late.record(30, &attempt("A", "<x@t>,<y@t>", Outcome::Deferred, "450 three"));
        late.record(31, &attempt("A", "<y@t>", Outcome::Sent, ""));
        let list = late.list();
        let [x] = list.as_slice() else { panic!("{list:?}") };
        assert_eq!((x.address.as_str(), x.messages, x.attempts, x.oldest, x.last), ("x@t", 2, 3, 10, 30));
        assert_eq!(x.reply, "450 three");
        late.record(40, &attempt("A", "<x@t>", Outcome::Failed, "550 no"));
        assert_eq!(late.list().first().map(|x| x.messages), Some(1));
        late.record(40, &attempt("B", "<x@t>", Outcome::Sent, ""));
        late.record(40, &attempt("C", "<x@t>", Outcome::Sent, ""));
        assert_eq!(late.list(), []);
    }
}
