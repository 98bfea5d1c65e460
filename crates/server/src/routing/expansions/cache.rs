//! Expansions that are kept: the answers that each depends on, whether they are current, and which expansion is
//! dropped.

use super::super::Routing;
use super::{Expanded, ExpansionRequest, ExpansionSettings, PendingExpansion, QUESTIONS_IN_A_ROW};
use os::clock;
use route::Answers;
use route::question::{Answer, Question};
use route::resolve::SenderClass;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Answers that are asked again for every RCPT.
pub(super) const CHECKED_MAX: usize = 16;
/// How often the others are asked again where `maps.interval` is 0.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(5);
/// Expansions that are kept, however small.
const KEPT_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct State {
    /// By recipient.
    pub(super) kept: HashMap<Box<str>, Vec<Arc<CacheEntry>>>,
    pub(super) under_way: HashMap<(Box<str>, usize, SenderClass), Weak<PendingExpansion>>,
    /// The number of the next use.
    pub(super) uses: u64,
}

/// An expansion, and the answers that it depends on.
#[derive(Debug)]
pub(super) struct CacheEntry {
    pub(super) expanded: Expanded,
    pub(super) routing: Weak<Routing>,
    pub(super) class: SenderClass,
    /// Asked again each time.
    pub(super) often: Vec<(Question, Answer)>,
    /// Asked again from time to time.
    pub(super) seldom: Vec<(Question, Answer)>,
    pub(super) seldom_at: Mutex<Instant>,
    seldom_checks: tokio::sync::Mutex<()>,
    pub(super) is_stale: AtomicBool,
    /// Without the members, which others may share.
    pub(super) octets: usize,
    pub(super) members_octets: usize,
    pub(super) last_use: AtomicU64,
}

impl CacheEntry {
    pub(super) fn new(
        wanted: &ExpansionRequest,
        routing: &Arc<Routing>,
        class: SenderClass,
        expanded: Expanded,
        answers: Answers,
        at: Instant,
    ) -> Self {
        let (lists, others): (Vec<_>, Vec<_>) =
            answers.into_all().partition(|(question, _)| matches!(question, Question::Include { .. }));
        let mut often: Vec<_> = lists.into_iter().chain(others).collect();
        let seldom = often.split_off(often.len().min(CHECKED_MAX));
        let octets = often.iter().chain(&seldom).map(|(_, answer)| octets_of(answer)).sum::<usize>();
        let members_octets = if let Expanded::Members(members) = &expanded { members.octets() } else { 0 };
        Self {
            expanded,
            routing: Arc::downgrade(routing),
            class,
            often,
            seldom,
            seldom_at: Mutex::new(at),
            seldom_checks: tokio::sync::Mutex::new(()),
            is_stale: AtomicBool::new(false),
            octets: octets + wanted.recipient.to_string().len() + size_of::<Self>(),
            members_octets,
            last_use: AtomicU64::new(0),
        }
    }

    pub(super) fn is_of(&self, routing: &Arc<Routing>, class: &SenderClass) -> bool {
        // A weak reference keeps the address from being used again.
        std::ptr::eq(self.routing.as_ptr(), Arc::as_ptr(routing)) && self.class == *class
    }

    pub(super) fn age(&self) -> Duration {
        clock::now().saturating_duration_since(*self.seldom_at.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether all answers are still the same.
    pub(super) async fn is_current(self: &Arc<Self>, routing: &Arc<Routing>, settings: &ExpansionSettings) -> bool {
        let lookups = routing.lookups();
        for (question, answer) in &self.often {
            if lookups.answer(question).await != *answer {
                return false;
            }
        }
        let interval = if settings.interval.is_zero() { INTERVAL_DEFAULT } else { settings.interval };
        let age = self.age();
        if !self.seldom.is_empty() && age >= interval {
            if age >= 2 * interval {
                self.check_seldom(routing, interval).await;
            } else if let Ok(guard) = self.seldom_checks.try_lock() {
                drop(guard);
                let (kept, routing) = (Arc::clone(self), Arc::clone(routing));
                tokio::spawn(async move { kept.check_seldom(&routing, interval).await });
            }
        }
        !self.is_stale.load(Ordering::Acquire)
    }

    /// Asks for the others again, unless another task has done so meanwhile.
    pub(super) async fn check_seldom(&self, routing: &Arc<Routing>, interval: Duration) {
        let _alone = self.seldom_checks.lock().await;
        let began = clock::now();
        if self.age() < interval || self.is_stale.load(Ordering::Acquire) {
            return;
        }
        let lookups = routing.lookups();
        for (number, (question, answer)) in self.seldom.iter().enumerate() {
            if lookups.answer(question).await != *answer {
                self.is_stale.store(true, Ordering::Release);
                return;
            }
            if number % QUESTIONS_IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
        }
        *self.seldom_at.lock().unwrap_or_else(PoisonError::into_inner) = began;
    }
}

/// Returns about how many octets an answer takes.
fn octets_of(answer: &Answer) -> usize {
    /// Of a question with its answer, without texts.
    const ENTRY: usize = 200;
    ENTRY + if let Answer::Text { text, .. } = answer { text.len() } else { 0 }
}

impl State {
    pub(super) fn find(
        &mut self,
        recipient: &str,
        routing: &Arc<Routing>,
        class: &SenderClass,
    ) -> Option<Arc<CacheEntry>> {
        let found = self.kept.get(recipient)?.iter().find(|kept| kept.is_of(routing, class))?;
        self.uses += 1;
        found.last_use.store(self.uses, Ordering::Relaxed);
        Some(Arc::clone(found))
    }

    pub(super) fn remove(&mut self, recipient: &str, which: impl Fn(&Arc<CacheEntry>) -> bool) -> Vec<Arc<CacheEntry>> {
        let Some(kept) = self.kept.get_mut(recipient) else { return Vec::new() };
        let removed = kept.extract_if(.., |one| which(one)).collect();
        if kept.is_empty() {
            self.kept.remove(recipient);
        }
        removed
    }

    pub(super) fn insert(&mut self, recipient: &str, kept: &Arc<CacheEntry>) {
        self.uses += 1;
        kept.last_use.store(self.uses, Ordering::Relaxed);
        self.kept.entry(recipient.into()).or_default().push(Arc::clone(kept));
    }

    /// Returns how many are kept, and about how many octets they take.
    pub(super) fn size(&self) -> (usize, usize) {
        let mut lists = HashSet::new();
        let (mut count, mut octets) = (0, 0);
        for kept in self.kept.values().flatten() {
            (count, octets) = (count + 1, octets + kept.octets);
            if let Expanded::Members(members) = &kept.expanded
                && lists.insert(Arc::as_ptr(members))
            {
                octets += kept.members_octets;
            }
        }
        (count, octets)
    }

    /// Removes expansions of maps that are gone, and then those that were not used for the longest time, until the
    /// rest fits.
    pub(super) fn shrink(&mut self, octets_max: usize) -> Vec<Arc<CacheEntry>> {
        let mut removed = Vec::new();
        self.kept.retain(|_, kept| {
            removed.extend(kept.extract_if(.., |one| one.routing.strong_count() == 0));
            !kept.is_empty()
        });
        loop {
            let (count, octets) = self.size();
            if count <= KEPT_MAX && octets <= octets_max {
                return removed;
            }
            let uses = |kept: &Arc<CacheEntry>| kept.last_use.load(Ordering::Relaxed);
            let oldest = self.kept.iter().flat_map(|(name, all)| all.iter().map(move |one| (uses(one), name)));
            let Some((last_use, name)) = oldest.min().map(|(last_use, name)| (last_use, name.clone())) else {
                return removed;
            };
            removed.extend(self.remove(&name, |one| uses(one) == last_use));
        }
    }
}
