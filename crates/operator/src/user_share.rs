//! A bounded number of places for requests of users of this machine, and of them a bounded share for each user: one
//! user who takes all that are allowed leaves room for the others.
//!
//! Places are counted by the uid that the kernel tells, never by a value that a client sends. A place is free again
//! when its [`UserPlace`] is dropped, also when the task that holds it panics or is cancelled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places that are taken, in all and by user.
#[derive(Debug, Default)]
pub struct UserShares {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Users without a place have no entry.
    users: HashMap<u32, usize>,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct UserPlace {
    shares: Arc<UserShares>,
    uid: u32,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareError {
    /// The user has as many as one user may have.
    User,
    /// All are taken.
    All,
}

impl UserShares {
    /// Reserves a place for a user, of at most `all_max` in all and `user_max` of one user.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn reserve(self: &Arc<Self>, uid: u32, all_max: usize, user_max: usize) -> Result<UserPlace, ShareError> {
        let mut taken = self.lock();
        let own = taken.users.get(&uid).copied().unwrap_or_default();
        if own >= user_max {
            return Err(ShareError::User);
        }
        if taken.all >= all_max {
            return Err(ShareError::All);
        }
        taken.all += 1;
        taken.users.insert(uid, own + 1);
        Ok(UserPlace { shares: Arc::clone(self), uid })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Every change under this lock is a single step.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UserPlace {
    fn drop(&mut self) {
        let mut taken = self.shares.lock();
        taken.all = taken.all.saturating_sub(1);
        match taken.users.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.users.remove(&self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_does_not_take_all() {
        let shares = Arc::new(UserShares::default());
        let take = |uid| shares.reserve(uid, 6, 4);
        let own: Vec<_> = std::iter::from_fn(|| take(1_000).ok()).collect();
        assert_eq!((own.len(), take(1_000).unwrap_err()), (4, ShareError::User));
        let others: Vec<_> = (1_001..1_010).filter_map(|uid| take(uid).ok()).collect();
        assert_eq!((others.len(), take(1_005).unwrap_err()), (2, ShareError::All));
        drop(own);
        assert!(take(1_000).is_ok());
        drop(others);
        let taken = shares.lock();
        assert!(taken.users.is_empty() && taken.all == 0, "{taken:?}");
    }

    #[test]
    fn a_panic_gives_the_place_back() {
        let shares = Arc::new(UserShares::default());
        let there = Arc::clone(&shares);
        let thread = std::thread::spawn(move || {
            let _place = there.reserve(1, 1, 1);
            panic!("with a place");
        });
        assert!(thread.join().is_err());
        assert!(shares.reserve(2, 1, 1).is_ok());
    }
}
