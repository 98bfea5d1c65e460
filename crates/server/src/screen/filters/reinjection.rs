//! Mail that filters give back by SMTP, in memory: the questions that are open, and the messages that have come back
//! for each.
//!
//! The session that asks a filter begins a question ([`Reinjections::begin`]), sends the message with a trace token,
//! and ends the question when the filter has answered. Meanwhile the filter gives the message back in a session of its
//! own, which hands it over by the token ([`Reinjections::give_back`]) and stores nothing: the message still belongs to
//! the client, or to the spool, so a crash of anything at any time leaves one message in one place.
//!
//! A question that ends without an answer is remembered for a while. The message of a filter that was too slow is
//! refused then, since it is asked about anew.

use super::trace_token::TraceToken;
use crate::secret_key::{SecretKey, random_number};
use mail::{Address, AddressKey, QueueId, ReversePath};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Questions without an answer that are remembered.
const GIVEN_UP_MAX: usize = 1_000;

/// A message as a filter gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReturnedMessage {
    pub(crate) sender: ReversePath,
    /// Recipients as the filter names them.
    pub(crate) recipients: Vec<Address>,
    /// The whole content without trace fields of ours.
    pub(crate) content: Vec<u8>,
}

/// The way of a message that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reinjection {
    /// It is the answer to an open question, and the filter may hear that it was taken.
    Taken,
    /// Its question ended without an answer, and is asked anew.
    GivenUp,
    /// It is mail of its own: no question is open, or it is for none of the recipients of one.
    OfItsOwn,
}

#[derive(Debug, Default)]
struct KnownQuestions {
    open: HashMap<u64, UnansweredQuestion>,
    /// Numbers of questions that ended without an answer, the oldest first.
    given_up: VecDeque<u64>,
}

#[derive(Debug)]
struct UnansweredQuestion {
    /// Recipients that the filter has accepted.
    asked: HashSet<AddressKey>,
    /// Those of them for which a message has come back.
    returned: HashSet<AddressKey>,
    messages: Vec<ReturnedMessage>,
}

/// The open questions of a server.
#[derive(Debug)]
pub(crate) struct Reinjections {
    key: Arc<SecretKey>,
    questions: Mutex<KnownQuestions>,
}

/// An open question, which ends without an answer where this is dropped.
#[derive(Debug)]
pub(super) struct FilterQuestion {
    of: Arc<Reinjections>,
    number: u64,
    /// The value of the trace field.
    pub(super) token: String,
}

impl Reinjections {
    /// Begins without a question.
    pub(crate) fn new(key: Arc<SecretKey>) -> Arc<Self> {
        Arc::new(Self { key, questions: Mutex::default() })
    }

    /// Begins the question about a message to the last of these filters, which has accepted these recipients.
    pub(super) fn begin(self: &Arc<Self>, id: QueueId, filters: &[String], asked: &[Address]) -> FilterQuestion {
        let number = random_number();
        let asked = asked.iter().map(Address::key).collect();
        let question = UnansweredQuestion { asked, returned: HashSet::new(), messages: Vec::new() };
        self.lock().open.insert(number, question);
        let token = TraceToken { id, question: number, filters: filters.to_vec() };
        FilterQuestion { of: Arc::clone(self), number, token: token.to_text(&self.key) }
    }

    /// Reads the value of a trace field; `None`: it is not one of this server.
    pub(crate) fn token(&self, text: &str) -> Option<TraceToken> {
        TraceToken::parse(text, &self.key)
    }

    /// Takes a message that comes back with a token. A recipient gets the first message that names it: those that come
    /// again are taken and dropped.
    pub(crate) fn give_back(&self, token: &TraceToken, mut message: ReturnedMessage) -> Reinjection {
        let mut questions = self.lock();
        if questions.given_up.contains(&token.question) {
            return Reinjection::GivenUp;
        }
        let Some(question) = questions.open.get_mut(&token.question) else { return Reinjection::OfItsOwn };
        if !message.recipients.iter().any(|one| question.asked.contains(&one.key())) {
            return Reinjection::OfItsOwn;
        }
        message.recipients.retain(|one| question.returned.insert(one.key()));
        if !message.recipients.is_empty() {
            question.messages.push(message);
        }
        Reinjection::Taken
    }

    fn lock(&self) -> MutexGuard<'_, KnownQuestions> {
        // Every change under the lock is a single step.
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FilterQuestion {
    /// Ends the question, which the filter has answered, and returns the messages that have come back.
    pub(super) fn end(self) -> Vec<ReturnedMessage> {
        let ended = self.of.lock().open.remove(&self.number);
        ended.map(|question| question.messages).unwrap_or_default()
    }
}

impl Drop for FilterQuestion {
    fn drop(&mut self) {
        let mut questions = self.of.lock();
        if questions.open.remove(&self.number).is_some() {
            questions.given_up.push_back(self.number);
            if questions.given_up.len() > GIVEN_UP_MAX {
                questions.given_up.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().expect("an address")
    }

    fn message(to: &[&str], content: &str) -> ReturnedMessage {
        let recipients = to.iter().map(|one| address(one)).collect();
        ReturnedMessage { sender: ReversePath::Null, recipients, content: content.as_bytes().to_vec() }
    }

    #[test]
    fn each_recipient_gets_one_message_however_often_it_comes() {
        let all = Reinjections::new(Arc::new(SecretKey::of_process()));
        let to = [address("a@x.test"), address("b@x.test")];
        let question = all.begin(QueueId::MIN, &["f".to_owned()], &to);
        let token = all.token(&question.token).expect("it is ours");
        assert_eq!(all.give_back(&token, message(&["a@X.test", "a@x.test"], "1")), Reinjection::Taken);
        assert_eq!(all.give_back(&token, message(&["a@x.test"], "2")), Reinjection::Taken, "a second time");
        assert_eq!(all.give_back(&token, message(&["postmaster@x.test"], "3")), Reinjection::OfItsOwn);
        assert_eq!(all.give_back(&token, message(&["b@x.test", "new@x.test"], "4")), Reinjection::Taken);
        let ended = question.end();
        assert_eq!(ended, [message(&["a@X.test"], "1"), message(&["b@x.test", "new@x.test"], "4")]);
        assert_eq!(all.give_back(&token, message(&["a@x.test"], "5")), Reinjection::OfItsOwn, "it was answered");
    }

    #[test]
    fn mail_for_a_question_that_was_given_up_is_refused() {
        let all = Reinjections::new(Arc::new(SecretKey::of_process()));
        let begin = || all.begin(QueueId::MIN, &["f".to_owned()], &[address("a@x.test")]);
        let question = begin();
        let token = all.token(&question.token).expect("it is ours");
        assert_eq!(all.give_back(&token, message(&["a@x.test"], "1")), Reinjection::Taken);
        drop(question);
        assert_eq!(all.give_back(&token, message(&["a@x.test"], "1")), Reinjection::GivenUp);
        (0..GIVEN_UP_MAX).for_each(|_| drop(begin()));
        assert_eq!(all.give_back(&token, message(&["a@x.test"], "1")), Reinjection::OfItsOwn, "memory is bounded");
        assert!(all.lock().open.is_empty() && all.lock().given_up.len() == GIVEN_UP_MAX);
    }
}
