//! Answers kept until their time is over, and good ones for a while longer, in bounded memory.
//!
//! Two generations: entries that are asked for or learned go to the young one; when that has half the entries
//! allowed, the old one is dropped and the young one becomes old. Every operation takes constant time, and entries
//! that are often asked for stay.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Values by key, at most `entries_max` of them.
pub(super) struct Cache<K, V> {
    young: HashMap<K, Entry<V>>,
    old: HashMap<K, Entry<V>>,
    entries_max: usize,
}

struct Entry<V> {
    value: V,
    until: Instant,
    /// It may serve in need until then; `until` or later.
    stale_until: Instant,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// Makes a cache without entries; with `entries_max` 0 or 1 it stays so.
    pub(super) fn new(entries_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), entries_max }
    }

    /// Returns the value, if it is known and not too old.
    pub(super) fn get(&mut self, key: &K, now: Instant) -> Option<V> {
        self.entry(key, |entry| entry.until > now)
    }

    /// Returns the value, if it is known and may serve in need.
    pub(super) fn get_stale(&mut self, key: &K, now: Instant) -> Option<V> {
        self.entry(key, |entry| entry.stale_until > now)
    }

    fn entry(&mut self, key: &K, is_right: impl Fn(&Entry<V>) -> bool) -> Option<V> {
        if let Some(entry) = self.young.get(key) {
            return is_right(entry).then(|| entry.value.clone());
        }
        let entry = self.old.get(key).filter(|entry| is_right(entry))?;
        let value = entry.value.clone();
        if let Some((key, entry)) = self.old.remove_entry(key) {
            self.insert(key, entry);
        }
        Some(value)
    }

    /// Keeps a value for `time`, and as a stale one for `stale` longer.
    pub(super) fn put(&mut self, key: K, value: V, time: Duration, stale: Duration, now: Instant) {
        if !(time + stale).is_zero() {
            self.old.remove(&key);
            self.insert(key, Entry { value, until: now + time, stale_until: now + time + stale });
        }
    }

    /// Lets a stale value count for `time`, changed; not longer than it may.
    pub(super) fn renew(&mut self, key: &K, time: Duration, now: Instant, change: impl Fn(&mut V)) {
        let entry = match self.young.get_mut(key) {
            Some(entry) => entry,
            None => match self.old.get_mut(key) {
                Some(entry) => entry,
                None => return,
            },
        };
        if entry.stale_until > now {
            entry.until = (now + time).min(entry.stale_until);
            change(&mut entry.value);
        }
    }

    fn insert(&mut self, key: K, entry: Entry<V>) {
        let half = self.entries_max / 2;
        if half == 0 {
            return;
        }
        if self.young.len() >= half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, entry);
    }

    /// Entries, over-aged ones among them.
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;
    use std::time::{Duration, Instant};

    #[expect(clippy::disallowed_methods, reason = "some instant; only differences count")]
    fn start() -> Instant {
        Instant::now()
    }

    const MINUTE: Duration = Duration::from_secs(60);
    const NONE: Duration = Duration::ZERO;

    #[test]
    fn values_have_their_time() {
        let now = start();
        let mut cache = Cache::new(8);
        cache.put("a", 1, MINUTE, NONE, now);
        cache.put("b", 2, NONE, NONE, now);
        assert_eq!(cache.get(&"a", now + MINUTE - Duration::from_nanos(1)), Some(1));
        assert_eq!(cache.get(&"a", now + MINUTE), None);
        assert_eq!(cache.get_stale(&"a", now + MINUTE), None);
        assert_eq!(cache.get(&"b", now), None);
        cache.put("a", 3, MINUTE, NONE, now + MINUTE);
        assert_eq!(cache.get(&"a", now + MINUTE), Some(3));
    }

    #[test]
    fn some_serve_longer() {
        let now = start();
        let mut cache = Cache::new(8);
        cache.put("a", 1, MINUTE, 2 * MINUTE, now);
        assert_eq!((cache.get(&"a", now + MINUTE), cache.get_stale(&"a", now + MINUTE)), (None, Some(1)));
        cache.renew(&"a", MINUTE, now + MINUTE, |value| *value = 2);
        assert_eq!(cache.get(&"a", now + MINUTE), Some(2));
        // Not for ever.
        cache.renew(&"a", 10 * MINUTE, now + 2 * MINUTE, |value| *value = 3);
        assert_eq!(cache.get(&"a", now + 3 * MINUTE - Duration::from_nanos(1)), Some(3));
        assert_eq!((cache.get(&"a", now + 3 * MINUTE), cache.get_stale(&"a", now + 3 * MINUTE)), (None, None));
        cache.renew(&"a", MINUTE, now + 3 * MINUTE, |value| *value = 4);
        cache.renew(&"b", MINUTE, now, |value| *value = 4);
        assert_eq!((cache.get(&"a", now + 3 * MINUTE), cache.get_stale(&"b", now)), (None, None));
    }

    #[test]
    fn bounded_and_what_is_asked_stays() {
        let now = start();
        let mut cache = Cache::new(100);
        cache.put(0, 0, MINUTE, NONE, now);
        for key in 1..10_000 {
            cache.put(key, key, MINUTE, MINUTE, now);
            assert_eq!(cache.get(&0, now), Some(0), "asked after each of {key}");
            assert!(cache.len() <= 100);
        }
        assert_eq!(cache.get(&9_999, now), Some(9_999));
        assert_eq!(cache.get(&1, now), None);
        let mut none = Cache::new(0);
        none.put(1, 1, MINUTE, NONE, now);
        assert_eq!((none.get(&1, now), none.len()), (None, 0));
    }
}
