//! Ids by name, where outsiders choose the names.
//!
//! One look-up costs one memory access and one comparison, however many names are known: thousands of dead hosts make
//! no message to others slower. The hash starts with a secret of the scheduler, so outsiders cannot make names collide.
//! Iteration is sorted.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::Arc;

use crate::chance::splitmix;

/// Maps names to ids.
#[derive(Debug)]
pub(crate) struct NameIndex<I>(HashMap<Arc<[u8]>, I, SeededHash>);

#[derive(Clone, Copy, Debug)]
struct SeededHash(u64);

impl BuildHasher for SeededHash {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

impl<I: Copy + Ord> NameIndex<I> {
    /// Creates an empty index. The hash reveals nothing of the `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(HashMap::with_hasher(SeededHash(splitmix(!seed))))
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<I> {
        self.0.get(name).copied()
    }

    pub(crate) fn insert(&mut self, name: Arc<[u8]>, id: I) {
        self.0.insert(name, id);
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.0.remove(name);
        // A peak leaves no memory behind.
        if self.0.len() < self.0.capacity() / 8 {
            self.0.shrink_to(self.0.len() * 2);
        }
    }

    /// Returns all ids in their order.
    pub(crate) fn ids(&self) -> Vec<I> {
        let mut ids: Vec<I> = self.0.values().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns all ids in the order of their names.
    pub(crate) fn by_name(&self) -> Vec<I> {
        let mut all: Vec<(&Arc<[u8]>, I)> = self.0.iter().map(|(name, id)| (name, *id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_and_go_and_are_listed_in_their_order() {
        let mut names = NameIndex::new(1);
        let of = |number: u64| -> Arc<[u8]> { format!("{:05}.example", number * 7_919 % 10_000).into_bytes().into() };
        for number in 0..10_000_u64 {
            names.insert(of(number), number);
        }
        assert!((0..10_000).all(|number| names.get(&of(number)) == Some(number)));
        assert!(names.ids().into_iter().eq(0..10_000));
        assert!(names.by_name().iter().map(|id| of(*id)).is_sorted());
        assert_eq!(names.get(b"other.example"), None);
        for number in 5..10_000 {
            names.remove(&of(number));
        }
        assert!(names.0.capacity() < 100, "{}", names.0.capacity());
        assert_eq!((names.ids(), names.get(&of(4)), names.get(&of(5))), (vec![0, 1, 2, 3, 4], Some(4), None));
    }

    #[test]
    fn the_hash_of_a_name_is_another_for_another_seed() {
        let hash = |seed| NameIndex::<u64>::new(seed).0.hasher().hash_one(b"x.example".as_slice());
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
