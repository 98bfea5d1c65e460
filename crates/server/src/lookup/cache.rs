//! Answers of outside sources, kept for a while.
//!
//! However many tasks wait for the same answer, it is asked for once. While no source answers, a value that is too
//! old still counts for some time. The answer that there is no value never counts beyond its time: mail would be
//! returned for it.

use os::clock;
use route::question::{Answer, Question};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long and how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLimits {
    /// A value.
    pub(super) positive: Duration,
    /// That there is none.
    pub(super) negative: Duration,
    /// Time for which a value counts beyond its own time, while no better one is available.
    pub(super) stale_max: Duration,
    /// The most answers.
    pub(super) entries_max: usize,
}

/// The answers of one source.
#[derive(Debug)]
pub(super) struct LookupCache {
    limits: CacheLimits,
    state: Mutex<LookupCacheState>,
}

/// Answers in two halves: when the young half is full the old one is forgotten, and the young is the old.
#[derive(Debug, Default)]
struct LookupCacheState {
    young: HashMap<Question, LookupEntry>,
    old: HashMap<Question, LookupEntry>,
    asked: HashMap<Question, watch::Receiver<Option<Answer>>>,
}

#[derive(Clone, Debug)]
struct LookupEntry {
    answer: Answer,
    kept_at: Instant,
}

impl LookupCache {
    /// Knows nothing yet.
    pub(super) fn new(limits: CacheLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, LookupCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kept answer, or asks with `ask` and keeps its answer.
    ///
    /// # Cancel safety
    /// Yes: the asking goes on for others, and its answer is kept.
    pub(super) async fn answer<F>(self: &Arc<Self>, question: &Question, ask: impl FnOnce() -> F) -> Answer
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut waiting = {
            let mut state = self.state();
            if let Some(entry) = state.find(question)
                && clock::now().saturating_duration_since(entry.kept_at) < self.limits.time_of(&entry.answer)
            {
                return entry.answer.clone();
            }
            if let Some(asked) = state.asked.get(question) {
                asked.clone()
            } else {
                let (tell, asked) = watch::channel(None);
                state.asked.insert(question.clone(), asked.clone());
                drop(state);
                let asking = PendingQuestion { cache: Arc::clone(self), question: question.clone() };
                let finding = ask();
                tokio::spawn(async move {
                    let answer = asking.keep(finding.await);
                    tell.send_replace(Some(answer));
                });
                asked
            }
        };
        let answered = waiting.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        answered.unwrap_or_else(|| Answer::Trouble("the asking broke off".into()))
    }
}

impl CacheLimits {
    fn time_of(&self, answer: &Answer) -> Duration {
        if is_value(answer) { self.positive } else { self.negative }
    }
}

/// Returns whether there is something.
const fn is_value(answer: &Answer) -> bool {
    !matches!(answer, Answer::Nothing | Answer::Routing { host: None, address: None } | Answer::Trouble(_))
}

impl LookupCacheState {
    /// Returns an answer of any age; an entry that is asked for moves to the young ones.
    fn find(&mut self, question: &Question) -> Option<&LookupEntry> {
        if let Some((question, entry)) = self.old.remove_entry(question) {
            self.young.insert(question, entry);
        }
        self.young.get(question)
    }

    fn insert(&mut self, question: Question, entry: LookupEntry, entries_max: usize) {
        self.old.remove(&question);
        if self.young.len() >= (entries_max / 2).max(1) && !self.young.contains_key(&question) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(question, entry);
        if self.young.len() + self.old.len() > entries_max {
            self.old.clear();
        }
    }
}

/// A question that is being asked; when it is dropped others may ask again.
struct PendingQuestion {
    cache: Arc<LookupCache>,
    question: Question,
}

impl PendingQuestion {
    /// Keeps an answer; instead of trouble the earlier answer, while it still counts.
    fn keep(self, answer: Answer) -> Answer {
        let limits = self.cache.limits;
        let mut state = self.cache.state();
        let now = clock::now();
        let kept = match answer {
            Answer::Trouble(why) => {
                let before = state
                    .find(&self.question)
                    .filter(|entry| is_value(&entry.answer))
                    .filter(|entry| now.saturating_duration_since(entry.kept_at) < limits.positive + limits.stale_max);
                before.map_or(Answer::Trouble(why), |entry| entry.answer.clone())
            }
            answer => {
                state.insert(
                    self.question.clone(),
                    LookupEntry { answer: answer.clone(), kept_at: now },
                    limits.entries_max,
                );
                answer
            }
        };
        drop(state);
        kept
    }
}

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        self.cache.state().asked.remove(&self.question);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SECOND: Duration = Duration::from_secs(1);

    fn cache(entries_max: usize) -> Arc<LookupCache> {
        LookupCache::new(CacheLimits {
            positive: 10 * SECOND,
            negative: 2 * SECOND,
            stale_max: 100 * SECOND,
            entries_max,
        })
    }

    fn question(key: &str) -> Question {
        Question::Map { source: "ldap:x".into(), key: key.into() }
    }

    fn value(value: &str) -> Answer {
        Answer::Value { value: value.into(), place: "there".into() }
    }

    fn trouble() -> Answer {
        Answer::Trouble("down".into())
    }

    /// Asks; `asked` counts how often it reaches outside.
    async fn ask(cache: &Arc<LookupCache>, key: &str, answer: Answer, asked: &Arc<AtomicUsize>) -> Answer {
        let asked = Arc::clone(asked);
        cache
            .answer(&question(key), move || async move {
                asked.fetch_add(1, Ordering::Relaxed);
                // The paused clock moves on when all wait.
                let never = std::future::pending::<()>();
                assert!(tokio::time::timeout(SECOND / 10, never).await.is_err());
                answer
            })
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn one_question_for_all_who_wait() {
        let (cache, asked) = (cache(10), Arc::new(AtomicUsize::new(0)));
        let all: Vec<_> = (0..100)
            .map(|_| {
                let (cache, asked) = (Arc::clone(&cache), Arc::clone(&asked));
                tokio::spawn(async move { ask(&cache, "k", value("v"), &asked).await })
            })
            .collect();
        for one in all {
            assert_eq!(one.await.unwrap(), value("v"));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // Another key is another question.
        ask(&cache, "other", Answer::Nothing, &asked).await;
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert!(cache.state().asked.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_takes_no_answer_with_him() {
        let (cache, asked) = (cache(10), Arc::new(AtomicUsize::new(0)));
        let gone = tokio::time::timeout(SECOND / 100, ask(&cache, "k", value("v"), &asked)).await;
        assert!(gone.is_err());
        assert_eq!(ask(&cache, "k", value("w"), &asked).await, value("v"));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn values_and_their_absence_have_their_times() {
        let (cache, asked) = (cache(10), Arc::new(AtomicUsize::new(0)));
        ask(&cache, "k", value("v"), &asked).await;
        ask(&cache, "none", Answer::Nothing, &asked).await;
        tokio::time::advance(3 * SECOND).await;
        assert_eq!(ask(&cache, "k", value("new"), &asked).await, value("v"));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert_eq!(ask(&cache, "none", value("born"), &asked).await, value("born"));
        tokio::time::advance(8 * SECOND).await;
        assert_eq!(ask(&cache, "k", value("new"), &asked).await, value("new"));
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_value_counts_while_nobody_answers_and_an_old_absence_does_not() {
        let (cache, asked) = (cache(10), Arc::new(AtomicUsize::new(0)));
        ask(&cache, "k", value("v"), &asked).await;
        ask(&cache, "none", Answer::Nothing, &asked).await;
        tokio::time::advance(60 * SECOND).await;
        assert_eq!(ask(&cache, "k", trouble(), &asked).await, value("v"));
        assert_eq!(ask(&cache, "none", trouble(), &asked).await, trouble());
        assert_eq!(ask(&cache, "unknown", trouble(), &asked).await, trouble());
        tokio::time::advance(60 * SECOND).await;
        assert_eq!(ask(&cache, "k", trouble(), &asked).await, trouble(), "not for ever");
        assert_eq!(ask(&cache, "k", value("back"), &asked).await, value("back"), "trouble is not kept");
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_grow_beyond_its_bound() {
        for entries_max in [1, 2, 7, 100] {
            let (cache, asked) = (cache(entries_max), Arc::new(AtomicUsize::new(0)));
            for number in 0..300 {
                // It is in use all the time.
                ask(&cache, "k", value("v"), &asked).await;
                ask(&cache, &number.to_string(), value("v"), &asked).await;
                let state = cache.state();
                assert!(state.young.len() + state.old.len() <= entries_max);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_asking_that_breaks_off_is_trouble_and_not_the_end() {
        let cache = cache(10);
        let answer = cache.answer(&question("k"), || async { panic!("a bug") }).await;
        assert!(matches!(answer, Answer::Trouble(_)));
        assert_eq!(cache.answer(&question("k"), || async { value("v") }).await, value("v"));
    }
}
