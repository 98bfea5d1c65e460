//! Turns for checks of passwords: so many at once, given out by client.
//!
//! Each waiting client has one turn before one of them has two, so a flood from one client delays another by the
//! check that is in progress and no more. No client has more than half of the turns, if there are several. Pairs of
//! client and user that have logged in lately go first; of [`FIRST_MAX`] grants in a row to these the next one is
//! another's, so that every client gets a turn.
//!
//! Invariant: `free` and the turns that are out make `total`; a turn comes back when its [`Turn`] is dropped.

use crate::client_network::ClientNetwork;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Grants in a row to those that go first while others wait.
const FIRST_MAX: u32 = 4;
/// Length from which waiters of a client that have gone away are removed when another comes.
const SWEEP_LENGTH: usize = 64;

/// The client that shares turns; `None`: no client of the network.
type Owner = Option<ClientNetwork>;

/// The turns.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<HashTurnTable>);

#[derive(Debug)]
struct HashTurnTable {
    state: Mutex<HashTurnQueues>,
    /// Turns that a client may have at once.
    per_client: usize,
}

#[derive(Debug, Default)]
struct HashTurnQueues {
    free: usize,
    running: HashMap<Owner, usize>,
    first: HashQueue,
    others: HashQueue,
    /// Grants to `first` since the last one to `others`.
    in_a_row: u32,
}

/// One turn. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Turn {
    owner: Owner,
    /// `None`: it was never given out.
    shared: Option<Arc<HashTurnTable>>,
}

#[derive(Debug, Default)]
struct HashQueue {
    /// Clients that wait, the next one in front.
    order: VecDeque<Owner>,
    waiting: HashMap<Owner, VecDeque<oneshot::Sender<Turn>>>,
}

impl Turns {
    pub(super) fn new(total: usize) -> Self {
        let total = total.max(1);
        let state = HashTurnQueues { free: total, ..HashTurnQueues::default() };
        Self(Arc::new(HashTurnTable { state: Mutex::new(state), per_client: total.div_ceil(2) }))
    }

    /// Waits for a turn.
    ///
    /// # Cancel safety
    /// Yes: a turn that came too late goes to the next one.
    pub(super) async fn take(&self, owner: Owner, is_first: bool) -> Option<Turn> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.0.lock();
            let queue = if is_first { &mut state.first } else { &mut state.others };
            queue.push(owner, sender);
            self.0.grant(&mut state);
        }
        receiver.await.ok()
    }
}

impl HashTurnTable {
    fn lock(&self) -> MutexGuard<'_, HashTurnQueues> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants free turns.
    fn grant(self: &Arc<Self>, state: &mut HashTurnQueues) {
        while state.free > 0 {
            let HashTurnQueues { running, first, others, in_a_row, .. } = &mut *state;
            let may_run = |owner: &Owner| running.get(owner).copied().unwrap_or(0) < self.per_client;
            let prefers_others = *in_a_row >= FIRST_MAX;
            let next = if prefers_others { others.pop(&may_run) } else { None };
            let (next, is_first) = match next {
                Some(next) => (Some(next), false),
                None => match first.pop(&may_run) {
                    Some(next) => (Some(next), true),
                    None => (others.pop(&may_run), false),
                },
            };
            let Some((owner, sender)) = next else { return };
            let turn = Turn { owner, shared: Some(Arc::clone(self)) };
            match sender.send(turn) {
                Ok(()) => {
                    state.free -= 1;
                    *state.running.entry(owner).or_default() += 1;
                    state.in_a_row = if is_first { state.in_a_row.saturating_add(1) } else { 0 };
                }
                // The receiver has gone away. Dropping the turn here would ask for the lock that is held.
                Err(mut turn) => turn.shared = None,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        let mut state = shared.lock();
        state.free += 1;
        if let Some(running) = state.running.get_mut(&self.owner) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                state.running.remove(&self.owner);
            }
        }
        shared.grant(&mut state);
    }
}

impl HashQueue {
    fn push(&mut self, owner: Owner, sender: oneshot::Sender<Turn>) {
        let waiting = self.waiting.entry(owner).or_insert_with(|| {
            self.order.push_back(owner);
            VecDeque::new()
        });
        if waiting.len() >= SWEEP_LENGTH {
            waiting.retain(|sender| !sender.is_closed());
        }
        waiting.push_back(sender);
    }

    /// Returns the next one of the first client that may run; the client goes behind the others.
    fn pop(&mut self, may_run: &impl Fn(&Owner) -> bool) -> Option<(Owner, oneshot::Sender<Turn>)> {
        let mut at = 0;
        loop {
            let owner = *self.order.get(at)?;
            if !may_run(&owner) {
                at += 1;
                continue;
            }
            self.order.remove(at);
            let Some(waiting) = self.waiting.get_mut(&owner) else { continue };
            let next = std::iter::from_fn(|| waiting.pop_front()).find(|sender| !sender.is_closed());
            if waiting.is_empty() {
                self.waiting.remove(&owner);
            } else {
                self.order.push_back(owner);
            }
            if let Some(sender) = next {
                return Some((owner, sender));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    type Waiting = Pin<Box<dyn Future<Output = Option<Turn>>>>;

    fn owner(number: u8) -> Owner {
        Some(ClientNetwork::new([192, 0, 2, number].into()))
    }

    fn wait(turns: &Turns, number: u8, is_first: bool) -> Waiting {
        let turns = turns.clone();
        let mut waiting: Waiting = Box::pin(async move { turns.take(owner(number), is_first).await });
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        waiting
    }

    fn is_ready(waiting: &mut Waiting) -> Option<Turn> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => turn,
            Poll::Pending => None,
        }
    }

    /// Returns in which order these get the only turn, by their numbers.
    fn order(mut all: Vec<(u8, Waiting)>, first: Turn) -> Vec<u8> {
        let (mut order, mut turn) = (Vec::new(), Some(first));
        while !all.is_empty() {
            drop(turn.take());
            let mut found = None;
            for (at, (_, waiting)) in all.iter_mut().enumerate() {
                if let Some(ready) = is_ready(waiting) {
                    assert!(found.is_none(), "one turn");
                    (found, turn) = (Some(at), Some(ready));
                }
            }
            order.push(all.remove(found.unwrap()).0);
        }
        order
    }

    #[tokio::test]
    async fn a_flood_of_one_client_delays_another_by_one_check() {
        let turns = Turns::new(1);
        let held = turns.take(owner(1), false).await.unwrap();
        let mut all: Vec<(u8, Waiting)> = (0..100).map(|_| (1, wait(&turns, 1, false))).collect();
        all.extend([2, 3].map(|number| (number, wait(&turns, number, false))));
        let order = order(all, held);
        assert_eq!(order[..5], [1, 2, 3, 1, 1]);
    }

    #[tokio::test]
    async fn pairs_that_have_logged_in_go_first_and_never_keep_others_out() {
        let turns = Turns::new(1);
        let held = turns.take(owner(9), false).await.unwrap();
        let mut all: Vec<(u8, Waiting)> = (0..3).map(|_| (1, wait(&turns, 1, false))).collect();
        all.extend((0..12).map(|_| (2, wait(&turns, 2, true))));
        let order = order(all, held);
        assert_eq!(order[..10], [2, 2, 2, 2, 1, 2, 2, 2, 2, 1]);
    }

    #[tokio::test]
    async fn a_client_has_half_of_the_turns_at_most() {
        let turns = Turns::new(4);
        let held = [turns.take(owner(1), false).await.unwrap(), turns.take(owner(1), false).await.unwrap()];
        let mut third = wait(&turns, 1, false);
        let other = turns.take(owner(2), false).await.unwrap();
        assert!(is_ready(&mut third).is_none());
        drop(held);
        assert!(is_ready(&mut third).is_some());
        drop(other);
    }

    #[tokio::test]
    async fn those_that_go_away_take_no_turn_with_them() {
        let turns = Turns::new(1);
        let held = turns.take(owner(1), false).await.unwrap();
        let gone: Vec<Waiting> = (0..200).map(|_| wait(&turns, 1, false)).collect();
        drop(gone);
        let late = wait(&turns, 1, false);
        drop(held);
        // The turn was granted, and its client had gone.
        drop(late);
        drop(turns.take(owner(1), false).await.unwrap());
        let state = turns.0.lock();
        assert_eq!((state.free, state.running.len(), state.others.waiting.len()), (1, 0, 0));
    }
}
