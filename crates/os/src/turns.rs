//! Turns at something of which there is little, shared out between clients and not between requests.
//!
//! As many turns as there are may be held at a time. A request for one waits in the queue of its client, and the queues
//! are served in rotation: a client that asks for a hundred turns and one that asks for a single one each have every
//! second turn. Three limits bound what waits: requests of one client, requests in all, and the time of a request.
//!
//! A request whose caller goes away loses its place at no cost. A turn ends when it is dropped, also in a panic.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub struct TurnLimits {
    /// Turns that are held at a time.
    pub turns: usize,
    /// Requests of one client that wait.
    pub waiting_per_client: usize,
    /// Requests that wait in all.
    pub waiting: usize,
    /// How long a request waits.
    pub time: Duration,
}

/// Why there is no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTurnError {
    /// The client has too many requests that wait.
    ClientHasTooMany,
    /// There are too many requests that wait.
    AllHaveTooMany,
    /// The request has waited for too long.
    TooLate,
}

impl std::fmt::Display for NoTurnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ClientHasTooMany => "too many requests of this client wait already",
            Self::AllHaveTooMany => "too many requests wait already",
            Self::TooLate => "its turn did not come in time",
        })
    }
}

impl std::error::Error for NoTurnError {}

/// Turns for clients, which `K` tells apart.
#[derive(Debug)]
pub struct Turns<K: Clone + Eq + Hash> {
    limits: TurnLimits,
    state: Arc<Mutex<TurnState<K>>>,
}

/// The right to do something. It ends when it is dropped.
#[derive(Debug)]
pub struct Turn<K: Clone + Eq + Hash> {
    state: Option<Arc<Mutex<TurnState<K>>>>,
}

#[derive(Debug)]
struct TurnState<K: Clone + Eq + Hash> {
    free: usize,
    /// Clients with requests that wait, each once; the first has the next turn.
    order: VecDeque<K>,
    waiting: HashMap<K, VecDeque<oneshot::Sender<Turn<K>>>>,
}

impl<K: Clone + Eq + Hash> Turns<K> {
    /// All are free.
    pub fn new(limits: TurnLimits) -> Self {
        let state = TurnState { free: limits.turns, order: VecDeque::new(), waiting: HashMap::new() };
        Self { limits, state: Arc::new(Mutex::new(state)) }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// A limit is reached.
    /// # Cancel safety
    /// Yes: the request is forgotten.
    pub async fn take(&self, client: K) -> Result<Turn<K>, NoTurnError> {
        let asked = match self.ask(client, true)? {
            Ok(turn) => return Ok(turn),
            Err(asked) => asked,
        };
        match tokio::time::timeout(self.limits.time, asked).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(NoTurnError::TooLate),
        }
    }

    /// Waits for a turn for work that was begun, whatever the limits say.
    ///
    /// # Cancel safety
    /// Yes: the request is forgotten.
    pub async fn take_again(&self, client: K) -> Option<Turn<K>> {
        match self.ask(client, false) {
            Ok(Ok(turn)) => Some(turn),
            Ok(Err(asked)) => asked.await.ok(),
            Err(_) => None,
        }
    }

    /// Requests that wait now.
    pub fn waiting(&self) -> usize {
        let mut state = lock(&self.state);
        state.forget_abandoned();
        state.len()
    }

    /// A turn, or where it will come.
    fn ask(&self, client: K, is_limited: bool) -> Result<Result<Turn<K>, oneshot::Receiver<Turn<K>>>, NoTurnError> {
        let mut state = lock(&self.state);
        if state.free > 0 {
            state.free -= 1;
            return Ok(Ok(Turn { state: Some(Arc::clone(&self.state)) }));
        }
        if is_limited {
            state.forget_abandoned();
            if state.waiting.get(&client).map_or(0, VecDeque::len) >= self.limits.waiting_per_client {
                return Err(NoTurnError::ClientHasTooMany);
            }
            if state.len() >= self.limits.waiting {
                return Err(NoTurnError::AllHaveTooMany);
            }
        }
        let (tell, asked) = oneshot::channel();
        let queue = state.waiting.entry(client.clone()).or_default();
        queue.push_back(tell);
        if queue.len() == 1 {
            state.order.push_back(client);
        }
        Ok(Err(asked))
    }
}

impl<K: Clone + Eq + Hash> TurnState<K> {
    fn len(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    fn forget_abandoned(&mut self) {
        self.waiting.retain(|_, queue| {
            queue.retain(|request| !request.is_closed());
            !queue.is_empty()
        });
        let waiting = &self.waiting;
        self.order.retain(|client| waiting.contains_key(client));
    }

    /// The request that has the next turn.
    fn next(&mut self) -> Option<oneshot::Sender<Turn<K>>> {
        let client = self.order.pop_front()?;
        let queue = self.waiting.get_mut(&client)?;
        let request = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&client);
        } else {
            self.order.push_back(client);
        }
        request
    }
}

impl<K: Clone + Eq + Hash> Drop for Turn<K> {
    fn drop(&mut self) {
        let Some(shared) = self.state.take() else { return };
        let mut turn = Self { state: Some(Arc::clone(&shared)) };
        loop {
            let mut state = lock(&shared);
            let Some(request) = state.next() else {
                turn.state = None;
                state.free += 1;
                return;
            };
            drop(state);
            match request.send(turn) {
                Ok(()) => return,
                // Its caller went away.
                Err(back) => turn = back,
            }
        }
    }
}

fn lock<K: Clone + Eq + Hash>(state: &Mutex<TurnState<K>>) -> MutexGuard<'_, TurnState<K>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TurnLimits =
        TurnLimits { turns: 1, waiting_per_client: 10, waiting: 15, time: Duration::from_secs(30) };

    #[tokio::test(start_paused = true)]
    async fn a_client_with_many_requests_does_not_keep_others_from_their_turn() {
        let turns = Arc::new(Turns::new(LIMITS));
        let held = turns.take("busy").await.unwrap();
        let (tell, mut order) = tokio::sync::mpsc::unbounded_channel();
        let ask = |client: &'static str| {
            let (turns, tell) = (Arc::clone(&turns), tell.clone());
            tokio::spawn(async move {
                let turn = turns.take(client).await.unwrap();
                tell.send(client).unwrap();
                tokio::task::yield_now().await;
                drop(turn);
            })
        };
        let mut tasks = Vec::new();
        for client in ["busy", "busy", "busy", "busy", "other", "third", "other"] {
            tasks.push(ask(client));
            tokio::task::yield_now().await;
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        let mut served = Vec::new();
        while let Ok(client) = order.try_recv() {
            served.push(client);
        }
        assert_eq!(served, ["busy", "other", "third", "busy", "other", "busy", "busy"]);
        assert_eq!((turns.waiting(), lock(&turns.state).free), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_bounded_in_number_and_time_and_who_goes_away_leaves_nothing() {
        let turns = Arc::new(Turns::new(LIMITS));
        let held = turns.take("a").await.unwrap();
        let ask = |client: &'static str| {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take(client).await.map(drop) })
        };
        let tasks: Vec<_> = (0..10).map(|_| ask("a")).collect();
        tokio::task::yield_now().await;
        assert_eq!(turns.take("a").await.unwrap_err(), NoTurnError::ClientHasTooMany);
        let others: Vec<_> = (0..5).map(|_| ask("b")).collect();
        tokio::task::yield_now().await;
        assert_eq!(turns.take("c").await.unwrap_err(), NoTurnError::AllHaveTooMany);
        others.into_iter().for_each(|task| task.abort());
        tokio::task::yield_now().await;
        assert_eq!(turns.waiting(), 10, "what was given up counts no more");
        for task in tasks {
            assert_eq!(task.await.unwrap(), Err(NoTurnError::TooLate));
        }
        drop(held);
        let turn = turns.take_again("a").await.unwrap();
        let late = ask("b");
        tokio::task::yield_now().await;
        late.abort();
        tokio::task::yield_now().await;
        drop(turn);
        assert!(turns.take("c").await.is_ok(), "a turn that nobody takes is free again");
        assert_eq!((turns.waiting(), lock(&turns.state).free), (0, 1));
    }
}
