//! Answers kept until their time is over, in bounded memory.
//!
//! Two generations: what is asked or learned goes to the young one; when that has half the entries allowed, the old one
//! is dropped and the young one grows old. Every operation takes constant time, and what is asked often stays.

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
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// A cache without entries; with `entries_max` 0 or 1 it stays so.
    pub(super) fn new(entries_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), entries_max }
    }

    /// The value, if it is known and not too old.
    pub(super) fn get(&mut self, key: &K, now: Instant) -> Option<V> {
        if let Some(entry) = self.young.get(key) {
            return (entry.until > now).then(|| entry.value.clone());
        }
        let (key, entry) = self.old.remove_entry(key)?;
        let value = (entry.until > now).then(|| entry.value.clone())?;
        self.insert(key, entry);
        Some(value)
    }

    /// Keeps a value for `time`.
    pub(super) fn put(&mut self, key: K, value: V, time: Duration, now: Instant) {
        if !time.is_zero() {
            self.old.remove(&key);
            self.insert(key, Entry { value, until: now + time });
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

    #[test]
    fn values_have_their_time() {
        let now = start();
        let mut cache = Cache::new(8);
        cache.put("a", 1, MINUTE, now);
        cache.put("b", 2, Duration::ZERO, now);
        assert_eq!(cache.get(&"a", now + MINUTE - Duration::from_nanos(1)), Some(1));
        assert_eq!(cache.get(&"a", now + MINUTE), None);
        assert_eq!(cache.get(&"b", now), None);
        cache.put("a", 3, MINUTE, now + MINUTE);
        assert_eq!(cache.get(&"a", now + MINUTE), Some(3));
    }

    #[test]
    fn bounded_and_what_is_asked_stays() {
        let now = start();
        let mut cache = Cache::new(100);
        cache.put(0, 0, MINUTE, now);
        for key in 1..10_000 {
            cache.put(key, key, MINUTE, now);
            assert_eq!(cache.get(&0, now), Some(0), "asked after each of {key}");
            assert!(cache.len() <= 100);
        }
        assert_eq!(cache.get(&9_999, now), Some(9_999));
        assert_eq!(cache.get(&1, now), None);
        let mut none = Cache::new(0);
        none.put(1, 1, MINUTE, now);
        assert_eq!((none.get(&1, now), none.len()), (None, 0));
    }
}
