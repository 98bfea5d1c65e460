//! Waiting for a batch: one cell per batch, shared by all callers whose bytes are in it.
//!
//! The committer settles a cell once, after the sync; that wakes all threads in one call and all tasks one after the
//! other. A handle is a future of no particular runtime, and can be waited for by a plain thread.

use crate::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

const PENDING: u8 = 0;
const DURABLE: u8 = 1;
const FAILED: u8 = 2;
const POISONED: u8 = 3;

/// The shared fate of a batch.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    fate: AtomicU8,
    waiting: Mutex<Waiting>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    threads: usize,
    wakers: Vec<Waker>,
}

impl Cell {
    /// Sets the result and wakes all waiting callers.
    pub(crate) fn settle(&self, result: &Result<(), Error>) {
        let fate = match result {
            Ok(()) => DURABLE,
            Err(Error::Poisoned) => POISONED,
            Err(_) => FAILED,
        };
        let (threads, wakers) = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            // A result that was given once is not taken back.
            if self.fate.compare_exchange(PENDING, fate, Ordering::Release, Ordering::Relaxed).is_err() {
                return;
            }
            (waiting.threads, std::mem::take(&mut waiting.wakers))
        };
        if threads > 0 {
            self.settled.notify_all();
        }
        for waker in wakers {
            waker.wake();
        }
    }

    fn fate(&self) -> Option<Result<(), Error>> {
        match self.fate.load(Ordering::Acquire) {
            PENDING => None,
            DURABLE => Some(Ok(())),
            POISONED => Some(Err(Error::Poisoned)),
            _ => Some(Err(Error::Failed)),
        }
    }
}

/// Resolves when the data given to the spool is on stable storage.
///
/// # Cancel safety
/// Dropping it loses nothing but the news.
#[derive(Debug)]
#[must_use = "nothing is durable before this resolves"]
pub struct Commit {
    cell: Arc<Cell>,
    /// Further batches that must be durable too, where one call wrote to several shards.
    others: Vec<Self>,
    /// This handle's waker is with the cell.
    registered: bool,
}

impl Commit {
    pub(crate) fn new(cell: &Arc<Cell>) -> Self {
        Self { cell: Arc::clone(cell), others: Vec::new(), registered: false }
    }

    /// A handle that has resolved already, for stores that write at once.
    pub fn settled(result: &Result<(), Error>) -> Self {
        let cell = Cell::default();
        cell.settle(result);
        Self { cell: Arc::new(cell), others: Vec::new(), registered: false }
    }

    /// Makes a handle and its resolver, for stores that are not the spool.
    pub fn pair() -> (Self, Settle) {
        let cell = Arc::new(Cell::default());
        (Self::new(&cell), Settle { cell })
    }

    /// A handle on both.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.others.push(other);
        self
    }

    /// Blocks the thread until the fate is known.
    ///
    /// # Errors
    /// `Failed` or `Poisoned`: not stored.
    pub fn wait(&self) -> Result<(), Error> {
        self.wait_own()?;
        self.others.iter().try_for_each(Self::wait)
    }

    fn wait_own(&self) -> Result<(), Error> {
        if let Some(fate) = self.cell.fate() {
            return fate;
        }
        let mut waiting = self.cell.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.threads += 1;
        loop {
            if let Some(fate) = self.cell.fate() {
                return fate;
            }
            waiting = self.cell.settled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The fate, if it is known.
    #[must_use]
    pub fn poll_now(&self) -> Option<Result<(), Error>> {
        let own = self.cell.fate()?;
        self.others.iter().try_fold(own, |before, other| other.poll_now().map(|fate| before.and(fate)))
    }
}

impl Future for Commit {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(fate) = self.cell.fate() {
            fate?;
            while let Some(other) = self.others.last_mut() {
                match Pin::new(other).poll(context) {
                    Poll::Ready(fate) => fate?,
                    Poll::Pending => return Poll::Pending,
                }
                self.others.pop();
            }
            return Poll::Ready(Ok(()));
        }
        let cell = Arc::clone(&self.cell);
        let mut waiting = cell.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if cell.fate().is_some() {
            drop(waiting);
            return self.poll(context);
        }
        // Few tasks poll twice; those search for their old waker, the others do not.
        let known = self.registered && waiting.wakers.iter().any(|waker| waker.will_wake(context.waker()));
        if !known {
            waiting.wakers.push(context.waker().clone());
            self.registered = true;
        }
        Poll::Pending
    }
}

/// Resolves the handles of one batch. Dropping it unused resolves them as failed, so that no caller waits for ever.
#[derive(Debug)]
pub struct Settle {
    cell: Arc<Cell>,
}

impl Settle {
    /// One more handle on the same batch.
    pub fn commit(&self) -> Commit {
        Commit::new(&self.cell)
    }

    /// Sets the result and wakes all waiting callers.
    pub fn settle(self, result: &Result<(), Error>) {
        self.cell.settle(result);
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        if self.cell.fate().is_none() {
            self.cell.settle(&Err(Error::Failed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_pair_shares_its_fate_and_a_dropped_one_fails() {
        let (commit, settle) = Commit::pair();
        let second = settle.commit();
        assert_eq!(commit.poll_now(), None);
        settle.settle(&Ok(()));
        assert_eq!((commit.wait(), second.wait()), (Ok(()), Ok(())));
        let (commit, settle) = Commit::pair();
        drop(settle);
        assert_eq!(commit.wait(), Err(Error::Failed));
    }

    #[test]
    fn threads_and_late_comers_learn_the_fate() {
        for (result, expected) in [(Ok(()), Ok(())), (Err(Error::Full), Err(Error::Failed))] {
            let cell = Arc::new(Cell::default());
            let handles: Vec<_> = (0..8)
                .map(|_| {
                    let commit = Commit::new(&cell);
                    thread::spawn(move || commit.wait())
                })
                .collect();
            cell.settle(&result);
            for handle in handles {
                assert_eq!(handle.join().unwrap(), expected);
            }
            assert_eq!(Commit::new(&cell).wait(), expected);
        }
    }

    #[test]
    fn a_future_is_woken_once_and_resolves() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let cell = Arc::new(Cell::default());
        let count = Arc::new(Count(0.into()));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut commit = std::pin::pin!(Commit::new(&cell));
        assert!(commit.as_mut().poll(&mut context).is_pending());
        assert!(commit.as_mut().poll(&mut context).is_pending());
        cell.settle(&Ok(()));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(commit.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    }
}
