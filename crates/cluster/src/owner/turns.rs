//! A set whose members are looked at in turn, some at each look.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// The set, and where the last look ended.
#[derive(Debug)]
pub(super) struct Turns<T> {
    members: BTreeSet<T>,
    last: Option<T>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { members: BTreeSet::new(), last: None }
    }
}

impl<T: Ord + Copy> Turns<T> {
    pub(super) fn insert(&mut self, member: T) {
        self.members.insert(member);
    }

    pub(super) fn extend(&mut self, members: impl IntoIterator<Item = T>) {
        self.members.extend(members);
    }

    pub(super) fn remove(&mut self, member: T) {
        self.members.remove(&member);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Up to `most` members behind those of the last look; fewer where the turn ends.
    pub(super) fn look(&mut self, most: usize) -> Vec<T> {
        let from = self.last.map_or(Unbounded, Excluded);
        let next: Vec<T> = self.members.range((from, Unbounded)).take(most).copied().collect();
        self.last = next.last().copied().filter(|_| next.len() == most);
        next
    }

    /// Lets the next look begin with this member.
    pub(super) fn go_back_to(&mut self, member: T) {
        self.last = self.members.range(..member).next_back().copied();
    }

    /// True when the next look begins a turn.
    pub(super) fn is_turn_over(&self) -> bool {
        self.last.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_is_looked_at_once_in_a_turn() {
        let mut turns = Turns::default();
        turns.extend(1..=7);
        assert_eq!((turns.look(3), turns.is_turn_over()), (vec![1, 2, 3], false));
        turns.remove(3);
        turns.insert(0);
        assert_eq!(turns.look(3), [4, 5, 6]);
        turns.go_back_to(5);
        assert_eq!(turns.look(2), [5, 6]);
        assert_eq!((turns.look(3), turns.is_turn_over()), (vec![7], true));
        assert_eq!(turns.look(2), [0, 1]);
        turns.go_back_to(0);
        assert_eq!(turns.look(9), [0, 1, 2, 4, 5, 6, 7]);
    }
}
