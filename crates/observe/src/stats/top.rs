//! The names that occur most, in bounded memory.
//!
//! The list has room for twice the names it keeps. When it is full the rarer half goes, and the highest count among
//! those that went is what a new name may already have had: so counts are exact until the room was full once, and from
//! then on too high by [`TopList::error`] at most, never too low.

use std::collections::HashMap;

/// Counts by name.
#[derive(Clone, Debug)]
pub struct TopList {
    keep: usize,
    names: HashMap<Box<str>, Weights>,
    error: u64,
}

/// The sums of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weights {
    count: u64,
    bytes: u64,
}

/// One name of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopName {
    /// The name.
    pub name: String,
    /// How often it occurred.
    pub count: u64,
    /// Octets that belong to it.
    pub bytes: u64,
}

impl TopList {
    /// The longest name in octets; longer ones are cut.
    const NAME_MAX: usize = 256;

    /// Makes an empty list that keeps this many names at least.
    #[must_use]
    pub fn new(keep: usize) -> Self {
        Self { keep: keep.max(1), names: HashMap::new(), error: 0 }
    }

    /// Counts a name.
    pub fn record(&mut self, name: &str, count: u64, bytes: u64) {
        let name = name.get(..name.floor_char_boundary(Self::NAME_MAX)).unwrap_or(name);
        if let Some(weights) = self.names.get_mut(name) {
            weights.count += count;
            weights.bytes += bytes;
            return;
        }
        if self.names.len() >= 2 * self.keep {
            self.drop_half();
        }
        self.names.insert(name.into(), Weights { count: self.error + count, bytes });
    }

    fn drop_half(&mut self) {
        let mut counts: Vec<u64> = self.names.values().map(|weights| weights.count).collect();
        // The list is full, so `keep` is less than the number of names.
        let at = counts.len().saturating_sub(self.keep);
        let least = *counts.select_nth_unstable(at).1;
        // The names with more come before those with just as many: the map has no order.
        let mut room = self.keep.saturating_sub(counts.iter().filter(|count| **count > least).count());
        let mut highest = self.error;
        self.names.retain(|_, weights| {
            if weights.count > least {
                return true;
            }
            let stays = weights.count == least && room > 0;
            if stays {
                room -= 1;
            } else {
                highest = highest.max(weights.count);
            }
            stays
        });
        self.error = highest;
    }

    /// Returns the names with the highest counts, the highest first, then by name.
    #[must_use]
    pub fn most(&self, number: usize) -> Vec<TopName> {
        self.sorted(number, |weights| weights.count)
    }

    /// Returns the names with the most octets, the most first, then by name.
    #[must_use]
    pub fn most_bytes(&self, number: usize) -> Vec<TopName> {
        self.sorted(number, |weights| weights.bytes)
    }

    fn sorted(&self, number: usize, key: impl Fn(&Weights) -> u64) -> Vec<TopName> {
        let mut all: Vec<(&str, &Weights)> = self.names.iter().map(|(name, weights)| (&**name, weights)).collect();
        let order = |(one, a): &(&str, &Weights), (other, b): &(&str, &Weights)| {
            key(b).cmp(&key(a)).then_with(|| one.cmp(other))
        };
        // A running server is asked for a few of many names while its workers wait.
        if number < all.len() {
            all.select_nth_unstable_by(number, order);
            all.truncate(number);
        }
        all.sort_unstable_by(order);
        let name = |(name, weights): (&str, &Weights)| TopName {
            name: name.to_owned(),
            count: weights.count,
            bytes: weights.bytes,
        };
        all.into_iter().take(number).map(name).collect()
    }

    /// Returns how much too high a count may be.
    #[must_use]
    pub const fn error(&self) -> u64 {
        self.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_names_are_counted_exactly() {
        let mut top = TopList::new(2);
        for (name, bytes) in [("a", 1), ("b", 50), ("a", 1), ("c", 3)] {
            top.record(name, 1, bytes);
        }
        let names = |list: Vec<TopName>| list.into_iter().map(|one| (one.name, one.count)).collect::<Vec<_>>();
        let owned = |list: &[(&str, u64)]| list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>();
        assert_eq!(names(top.most(9)), owned(&[("a", 2), ("b", 1), ("c", 1)]));
        assert_eq!(names(top.most_bytes(1)), owned(&[("b", 1)]));
        assert_eq!(top.error(), 0);
    }

    #[test]
    fn frequent_names_stay_and_counts_are_never_too_low() {
        let mut top = TopList::new(100);
        // Every third is one of four names, the others occur once.
        for turn in 0..30_000_u32 {
            let name = if turn.is_multiple_of(3) { format!("often{}", turn % 4) } else { format!("once{turn}") };
            top.record(&name, 1, 0);
            assert!(top.names.len() <= 200);
        }
        let most = top.most(4);
        for one in &most {
            assert!(one.name.starts_with("often"), "{most:?}");
            assert!(one.count >= 2_500 && one.count <= 2_500 + top.error(), "{most:?} {}", top.error());
        }
        assert!(top.error() > 0 && top.error() < 2_500);
    }

    #[test]
    fn long_names_are_cut() {
        let mut top = TopList::new(1);
        top.record(&"ü".repeat(1_000), 1, 0);
        assert_eq!(top.most(1).first().map(|one| one.name.len()), Some(TopList::NAME_MAX));
    }
}
