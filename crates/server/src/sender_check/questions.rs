//! Questions of the checks of one message, which the resolver of the server answers within a time limit.

use crate::dns::Resolver;
use filter::dns_question::{DnsAnswer, DnsAnswers, DnsQuestion};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

/// Questions for one message: no set of records needs as many.
pub const QUESTIONS_MAX: usize = 200;

/// Asks, and keeps the answers.
pub(super) struct Questions<'a> {
    resolver: &'a Resolver,
    answers: DnsAnswers,
    asked: usize,
    until: Instant,
}

impl<'a> Questions<'a> {
    /// Begins without an answer. At `until` each open question has failed.
    pub(super) fn new(resolver: &'a Resolver, until: Instant) -> Self {
        Self { resolver, answers: DnsAnswers::default(), asked: 0, until }
    }

    /// Asks questions at once, those that have no answer yet.
    pub(super) async fn ask_all(&mut self, questions: impl Iterator<Item = DnsQuestion>) {
        let mut open: Vec<DnsQuestion> = Vec::new();
        for question in questions {
            if !self.answers.has(&question) && !open.contains(&question) {
                open.push(question);
            }
        }
        // The rest fails where a check asks for it.
        open.truncate(QUESTIONS_MAX.saturating_sub(self.asked));
        self.asked += open.len();
        let (resolver, until) = (self.resolver, self.until);
        let answers = join_all(open.iter().map(|question| within(resolver, question, until))).await;
        for (question, answer) in open.into_iter().zip(answers) {
            self.answers.insert(question, answer);
        }
    }

    /// Calls a check until no answer is missing.
    pub(super) async fn answer<T>(&mut self, mut check: impl FnMut(&DnsAnswers) -> Result<T, DnsQuestion>) -> T {
        loop {
            match check(&self.answers) {
                Ok(result) => return result,
                Err(question) => {
                    self.asked += 1;
                    let answer = match self.asked {
                        ..=QUESTIONS_MAX => within(self.resolver, &question, self.until).await,
                        _ => DnsAnswer::Failed,
                    };
                    self.answers.insert(question, answer);
                }
            }
        }
    }
}

async fn within(resolver: &Resolver, question: &DnsQuestion, until: Instant) -> DnsAnswer {
    timeout_at(until, resolver.answer(question)).await.unwrap_or(DnsAnswer::Failed)
}
