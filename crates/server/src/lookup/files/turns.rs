//! Turns at reading: few at once for one user, and some for one directory of homes, so that hanging reads do not hold
//! up others.
//!
//! A look at a file of a file system that does not answer holds a thread until it does, whatever its time. A user
//! whose files hang has at most [`USER_MAX`] such threads, and every further question is answered at once with
//! trouble; users of one directory (`/home`) have [`DIRECTORY_MAX`], which leaves threads for users of other
//! directories and for lists.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Files of one user, or lists of one directory, that are read at once.
pub(super) const USER_MAX: usize = 2;
/// Files below one directory that are read at once.
pub(super) const DIRECTORY_MAX: usize = 48;
/// Number of names from which on those without a waiting task are forgotten.
const NAMES_MANY: usize = 1_000;

/// The turns of all users and directories.
#[derive(Debug, Default)]
pub(super) struct FileTurns(Mutex<HashMap<Box<str>, Arc<UserTurns>>>);

#[derive(Debug)]
struct UserTurns {
    free: Arc<Semaphore>,
    /// Turns that have taken too long since one came to its end.
    late: AtomicUsize,
}

/// The right to read, for as long as it lives.
#[derive(Debug)]
pub(super) struct FileTurn {
    places: [Arc<UserTurns>; 2],
    _permits: [OwnedSemaphorePermit; 2],
}

/// A question that waits for its turn, or has it.
#[derive(Debug)]
pub(super) struct FileTurnRequest([Arc<UserTurns>; 2]);

impl FileTurns {
    /// Gets a turn for a file of this user or these lists, below this directory. `None`: the last reads there hang.
    pub(super) fn wait(&self, group: &str, directory: &str) -> Option<FileTurnRequest> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= NAMES_MANY {
            places.retain(|_, place| Arc::strong_count(place) > 1);
        }
        let mut place = |name: String, max: usize| {
            let new = || Arc::new(UserTurns { free: Arc::new(Semaphore::new(max)), late: AtomicUsize::new(0) });
            Arc::clone(places.entry(name.into()).or_insert_with(new))
        };
        let waiting = FileTurnRequest([
            place(group.to_owned(), USER_MAX),
            place(format!("directory {directory}"), DIRECTORY_MAX),
        ]);
        (!waiting.0.iter().any(|place| place.hangs())).then_some(waiting)
    }
}

impl UserTurns {
    fn hangs(&self) -> bool {
        self.free.available_permits() == 0 && self.late.load(Ordering::Relaxed) > 0
    }
}

impl FileTurnRequest {
    /// Waits for the turn; `None`: never.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn turn(&self) -> Option<FileTurn> {
        let [user, directory] = &self.0;
        let permits = [
            Arc::clone(&user.free).acquire_owned().await.ok()?,
            Arc::clone(&directory.free).acquire_owned().await.ok()?,
        ];
        Some(FileTurn { places: self.0.clone(), _permits: permits })
    }

    /// Notes that the turn has taken too long.
    pub(super) fn is_late(&self) {
        self.0.iter().for_each(|place| {
            place.late.fetch_add(1, Ordering::Relaxed);
        });
    }
}

impl Drop for FileTurn {
    fn drop(&mut self) {
        self.places.iter().for_each(|place| place.late.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_user_whose_files_hang_holds_up_nobody_else() {
        let turns = FileTurns::default();
        let joe = turns.wait("joe", "/home").unwrap();
        let held = [joe.turn().await.unwrap(), joe.turn().await.unwrap()];
        // Others of the same user wait, until one was late.
        let next = turns.wait("joe", "/home").unwrap();
        assert!(tokio::time::timeout(std::time::Duration::from_millis(10), next.turn()).await.is_err());
        next.is_late();
        assert!(turns.wait("joe", "/home").is_none(), "it is said at once");
        assert!(turns.wait("ann", "/home").unwrap().turn().await.is_some());
        drop(held);
        assert!(turns.wait("joe", "/home").unwrap().turn().await.is_some(), "it answers again");
    }
}
