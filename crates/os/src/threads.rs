//! A few threads of their own for one kind of work that waits for a disk.
//!
//! Work on the runtime's blocking threads shares them with the work of other parts, and gets a new thread whenever none
//! is free at that very moment. Here there are never more than so many, however many threads others block. They are
//! started as they are needed, and end when there has been nothing to do for [`IDLE_MAX`] or when the last handle is
//! gone; an idle thread holds no data of its former work.
//!
//! Work here may wait for a disk alone, and never for other work: then all of it has its turn, in the order in which it
//! came.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// A thread that had nothing to do for so long ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// Why work was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// It panicked.
    BrokeOff,
    /// There is no thread, and the system gives none.
    NoThread,
}

/// Threads for one kind of work. They end after the last work when this goes.
#[derive(Debug)]
pub struct Threads {
    name: &'static str,
    threads_max: usize,
    /// How much the threads stand back where processors are short ([`Threads::nice`]).
    niceness: i32,
    shared: Arc<Shared>,
    /// The system gives no thread.
    #[cfg(any(test, feature = "sim"))]
    pub is_short: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<PoolState>,
    bell: Condvar,
}

#[derive(Default)]
struct PoolState {
    waiting: VecDeque<Work>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl std::fmt::Debug for PoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { waiting, threads, idle, is_over } = self;
        write!(f, "State {{ waiting: {}, threads: {threads}, idle: {idle}, is_over: {is_over} }}", waiting.len())
    }
}

impl Threads {
    /// None yet; at most `threads_max`, which bear this name.
    pub fn new(name: &'static str, threads_max: usize) -> Self {
        Self {
            name,
            threads_max,
            niceness: 0,
            shared: Arc::default(),
            #[cfg(any(test, feature = "sim"))]
            is_short: std::sync::atomic::AtomicBool::default(),
        }
    }

    /// The same, which stand back behind all other threads where processors are short: `nice(2)`, which on Linux is for
    /// a thread. Only for work that holds no lock that others wait for.
    pub fn nice(mut self, niceness: i32) -> Self {
        self.niceness = niceness;
        self
    }

    /// Does `work` when it is its turn.
    ///
    /// In the simulation it is done here and now after a moment, as [`super::blocking::run`] does it.
    ///
    /// # Errors
    /// The work panicked, or there is no thread to be had.
    /// # Cancel safety
    /// Yes: work that was not begun is not done; begun work goes on to its end, and its result is lost.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Undone> {
        #[cfg(any(test, feature = "sim"))]
        if super::clock::simulated::is_on() {
            return super::blocking::run(work).await.map_err(|_| Undone::BrokeOff);
        }
        let (tell, told) = oneshot::channel();
        self.hand_in(Box::new(move || {
            if !tell.is_closed() {
                // The task that waits may be dropped at any moment.
                drop(tell.send(work()));
            }
        }))?;
        told.await.map_err(|_| Undone::BrokeOff)
    }

    fn hand_in(&self, work: Work) -> Result<(), Undone> {
        let mut state = self.shared.lock();
        state.waiting.push_back(work);
        if state.waiting.len() <= state.idle || state.threads >= self.threads_max {
            drop(state);
            self.shared.bell.notify_one();
            return Ok(());
        }
        state.threads += 1;
        if self.begin().is_ok() {
            return Ok(());
        }
        state.threads -= 1;
        // With others it waits for them; alone it would wait for ever.
        if state.threads > 0 {
            return Ok(());
        }
        state.waiting.clear();
        Err(Undone::NoThread)
    }

    /// Starts a thread.
    fn begin(&self) -> std::io::Result<()> {
        #[cfg(any(test, feature = "sim"))]
        if self.is_short.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let (shared, niceness) = (Arc::clone(&self.shared), self.niceness);
        let life = move || {
            if niceness != 0 {
                // Where it is not allowed the work is done all the same.
                rustix::process::nice(niceness).ok();
            }
            shared.work();
        };
        std::thread::Builder::new().name(self.name.to_owned()).spawn(life).map(drop)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.bell.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a thread.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.waiting.pop_front() {
                drop(state);
                // The panic hook has reported the panic; the waiting task sees the end of its channel.
                drop(catch_unwind(AssertUnwindSafe(work)));
                state = self.lock();
                continue;
            }
            if state.is_over {
                break;
            }
            state.idle += 1;
            let (next, waited) = self.bell.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_deadline::TestDeadline;
    use std::sync::mpsc;

    const SOON: Duration = Duration::from_secs(60);

    /// Polls until a condition holds.
    #[track_caller]
    fn wait(what: &'static str, is_so: impl Fn() -> bool) {
        let patience = TestDeadline::new(what);
        while !is_so() {
            patience.check();
            std::thread::yield_now();
        }
    }

    /// Work that says when it begins, and ends when it is let go.
    fn held(begun: &mpsc::Sender<()>) -> (impl FnOnce() + Send + 'static, mpsc::Sender<()>) {
        let (begun, (go, may_go)) = (begun.clone(), mpsc::channel());
        let work = move || {
            begun.send(()).unwrap();
            may_go.recv().ok();
        };
        (work, go)
    }

    #[test]
    fn a_thread_that_is_free_serves_again_and_no_more_are_begun_than_may_be() {
        let threads = Threads::new("test", 2);
        let (tell, begun) = mpsc::channel();
        for _ in 0..3 {
            let (work, go) = held(&tell);
            threads.hand_in(Box::new(work)).unwrap();
            begun.recv_timeout(SOON).unwrap();
            assert_eq!(threads.shared.lock().threads, 1, "the one that was free");
            drop(go);
            wait("no thread becomes free", || threads.shared.lock().idle >= 1);
        }
        let (works, gates): (Vec<_>, Vec<_>) = (0..5).map(|_| held(&tell)).unzip();
        works.into_iter().for_each(|work| threads.hand_in(Box::new(work)).unwrap());
        for gate in gates {
            begun.recv_timeout(SOON).unwrap();
            assert!(threads.shared.lock().threads <= 2);
            drop(gate);
        }
        // The threads end when no handle is left that can hand in work.
        let shared = Arc::downgrade(&threads.shared);
        drop(threads);
        wait("a thread does not end", || shared.strong_count() == 0);
    }

    #[tokio::test]
    async fn a_panic_ends_its_work_alone_and_what_nobody_wants_is_not_begun() {
        let threads = Threads::new("test", 1);
        assert_eq!(threads.run(|| panic!("a test")).await, Err::<(), _>(Undone::BrokeOff));
        let (tell, begun) = mpsc::channel();
        let (work, go) = held(&tell);
        threads.hand_in(Box::new(work)).unwrap();
        begun.recv_timeout(SOON).unwrap();
        let unwanted = tokio::time::timeout(Duration::from_millis(10), threads.run(|| panic!("nobody waits for it")));
        assert!(unwanted.await.is_err());
        drop(go);
        assert_eq!(threads.run(|| 7).await, Ok(7));
        assert_eq!(threads.shared.lock().threads, 1);
    }

    #[tokio::test]
    async fn where_the_system_gives_no_thread_that_is_said_and_those_there_are_serve_on() {
        let threads = Threads::new("test", 2);
        threads.is_short.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(threads.run(|| 7).await, Err(Undone::NoThread));
        threads.is_short.store(false, std::sync::atomic::Ordering::Relaxed);
        let (tell, begun) = mpsc::channel();
        let (work, go) = held(&tell);
        threads.hand_in(Box::new(work)).unwrap();
        begun.recv_timeout(SOON).unwrap();
        threads.is_short.store(true, std::sync::atomic::Ordering::Relaxed);
        let (done, ()) = tokio::join!(threads.run(|| 7), async { drop(go) });
        assert_eq!(done, Ok(7));
    }
}
