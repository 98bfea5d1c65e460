//! Counts events by key in a window of time that slides: connections of a client for `ClientRate:` of the access map,
//! failed logins of a client or a user, recipients of a login.
//!
//! A window is counted in [`SLOTS`] slots, as sendmail counts: events older than the window by at most one slot are
//! forgotten, so a key that has used up its number may come again after a whole window at the latest. A count costs a
//! fixed few octets whatever the limit is.
//!
//! Invariant: at most [`KEYS_MAX`] keys are counted. A key without events in a window is forgotten, which changes no
//! decision; only a flood of different keys makes the table forget earlier, which gives a key one window more.
//!
//! Time is given; nothing here reads a clock.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Keys that are counted. About 5 MB.
pub const KEYS_MAX: usize = 65_536;

/// Number of slots of a window.
pub const SLOTS: u64 = 6;
const COUNTS: usize = 6;

/// Recent events of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// The number of the youngest slot, counted since the limits were made.
    slot: u64,
    /// The youngest first.
    counts: [u32; COUNTS],
}

impl Window {
    /// Returns the same with `slot` as the youngest.
    fn at(mut self, slot: u64) -> Self {
        let steps = usize::try_from(slot.saturating_sub(self.slot)).unwrap_or(COUNTS).min(COUNTS);
        self.counts.rotate_right(steps);
        self.counts.iter_mut().take(steps).for_each(|count| *count = 0);
        self.slot = self.slot.max(slot);
        self
    }

    fn count(self, slot: u64) -> u32 {
        self.at(slot).counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// The counts of all keys.
#[derive(Debug)]
pub(crate) struct SlidingWindows<K> {
    slot_nanoseconds: u64,
    /// Keys with an event since `rotated`, and those from before.
    young: HashMap<K, Window>,
    old: HashMap<K, Window>,
    rotated: u64,
}

impl<K> Default for SlidingWindows<K> {
    fn default() -> Self {
        Self { slot_nanoseconds: 1, young: HashMap::new(), old: HashMap::new(), rotated: 0 }
    }
}

impl<K: Copy + Eq + Hash> SlidingWindows<K> {
    /// Makes windows without counts.
    pub(crate) fn new(window: Duration) -> Self {
        let slot = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / SLOTS;
        Self { slot_nanoseconds: slot.max(1), ..Self::default() }
    }

    /// Keys that are counted.
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Returns the count of a key in the window that ends now; `now` in nanoseconds.
    pub(crate) fn count(&self, key: &K, now: u64) -> u32 {
        let window = self.young.get(key).or_else(|| self.old.get(key));
        window.map_or(0, |window| window.count(now / self.slot_nanoseconds.max(1)))
    }

    /// Counts one more event of a key.
    pub(crate) fn record(&mut self, key: K, now: u64) {
        let slot = now / self.slot_nanoseconds.max(1);
        let window_time = self.slot_nanoseconds.saturating_mul(SLOTS);
        if now.saturating_sub(self.rotated) >= window_time || self.young.len() >= KEYS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.rotated = now;
        }
        let before = self.young.get(&key).copied().or_else(|| self.old.remove(&key)).unwrap_or_default();
        let mut window = before.at(slot);
        if let Some(youngest) = window.counts.first_mut() {
            *youngest = youngest.saturating_add(1);
        }
        self.young.insert(key, window);
    }

    /// Forgets the events of a key.
    pub(crate) fn forget(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}
