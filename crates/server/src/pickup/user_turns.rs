//! Files that are ready, by user: users take turns, so that one who submits much does not delay the others.

use std::collections::{HashMap, VecDeque};

/// Items that are ready. Those of one user have an order, and users take turns.
#[derive(Debug)]
pub(super) struct UserTurnQueue<T> {
    users: HashMap<u32, VecDeque<T>>,
    /// Users with something ready, each once; the first has the next turn.
    order: VecDeque<u32>,
}

impl<T> Default for UserTurnQueue<T> {
    fn default() -> Self {
        Self { users: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> UserTurnQueue<T> {
    /// Adds an item behind those of this user.
    pub(super) fn push(&mut self, uid: u32, one: T) {
        self.of(uid).push_back(one);
    }

    /// Adds an item before those of this user.
    pub(super) fn push_first(&mut self, uid: u32, one: T) {
        self.of(uid).push_front(one);
    }

    fn of(&mut self, uid: u32) -> &mut VecDeque<T> {
        let ready = self.users.entry(uid).or_default();
        if ready.is_empty() {
            self.order.push_back(uid);
        }
        ready
    }

    /// Takes the next item of the next user for whom `place` has one; with that place.
    pub(super) fn next<P>(&mut self, mut place: impl FnMut(u32) -> Option<P>) -> Option<(P, u32, T)> {
        for _ in 0..self.order.len() {
            let uid = self.order.pop_front()?;
            let Some(place) = place(uid) else {
                self.order.push_back(uid);
                continue;
            };
            let ready = self.users.get_mut(&uid)?;
            let one = ready.pop_front();
            if ready.is_empty() {
                self.users.remove(&uid);
            } else {
                self.order.push_back(uid);
            }
            return one.map(|one| (place, uid, one));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_take_turns() {
        let mut turns = UserTurnQueue::default();
        (0..1_000).for_each(|number| turns.push(1, number));
        turns.push(2, 7);
        turns.push_first(2, 8);
        turns.push(3, 9);
        let mut taken: Vec<(u32, i32)> = Vec::new();
        while let Some(((), uid, number)) = turns.next(|_| Some(())) {
            taken.push((uid, number));
        }
        assert_eq!(taken[..6], [(1, 0), (2, 8), (3, 9), (1, 1), (2, 7), (1, 2)]);
        assert_eq!(taken.len(), 1_003);
        assert!(turns.users.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn a_user_without_a_place_does_not_stop_others() {
        let mut turns = UserTurnQueue::default();
        turns.push(1, 'a');
        turns.push(2, 'b');
        let others = |uid: u32| (uid != 1).then_some(());
        assert_eq!(turns.next(others), Some(((), 2, 'b')));
        assert_eq!(turns.next(others), None);
        assert_eq!(turns.next(|_| Some(())), Some(((), 1, 'a')));
    }
}
