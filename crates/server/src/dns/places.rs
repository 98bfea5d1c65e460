//! Places for work of which some takes long: slow work does not hold up quick work.
//!
//! Work begins in a quick place. When it has taken [`QUICK`] it moves to a slow one as soon as there is one, and its
//! quick place is free for others. So name servers that are silent cost waiting work milliseconds, until all slow
//! places are taken as well; then work stays where it is meanwhile, and no question fails for it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant as Timer, timeout_at};

/// How long work holds a quick place while a slow one is free.
pub(super) const QUICK: Duration = Duration::from_millis(300);

/// Places of both kinds.
pub(super) struct Places {
    quick: Semaphore,
    slow: Semaphore,
}

impl Places {
    pub(super) fn new(quick: usize, slow: usize) -> Self {
        Self { quick: Semaphore::new(quick), slow: Semaphore::new(slow) }
    }

    /// Returns whether work would have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.quick.available_permits() == 0
    }

    /// Does the work when there is a place; `None` if there was none by `until`. First come, first served.
    ///
    /// # Cancel safety
    /// As the work has it.
    pub(super) async fn run<F: Future>(&self, until: Option<Timer>, work: F) -> Option<F::Output> {
        let place = match until {
            Some(until) => timeout_at(until, self.quick.acquire()).await.ok(),
            None => Some(self.quick.acquire().await),
        };
        // The semaphore is never closed.
        let place = place?.ok()?;
        let mut work = pin!(work);
        if let Ok(output) = timeout_at(Timer::now() + QUICK, work.as_mut()).await {
            return Some(output);
        }
        let (mut place, mut slow_place) = (Some(place), None);
        let mut slow = pin!(self.slow.acquire());
        let output = poll_fn(|context| {
            let output = work.as_mut().poll(context);
            if output.is_pending()
                && place.is_some()
                && let Poll::Ready(Ok(free)) = slow.as_mut().poll(context)
            {
                slow_place = Some(free);
                place = None;
            }
            output
        })
        .await;
        drop((place, slow_place));
        Some(output)
    }
}

#[cfg(test)]
impl Places {
    /// Takes all quick places.
    pub(super) async fn take_all(&self, number: usize) -> tokio::sync::SemaphorePermit<'_> {
        self.quick.acquire_many(u32::try_from(number).expect("few")).await.expect("it is open")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn slow_work_makes_room_while_there_is_any() {
        let places = Arc::new(Places::new(2, 3));
        let slow = |places: &Arc<Places>| {
            let places = Arc::clone(places);
            tokio::spawn(async move { places.run(None, std::future::pending::<()>()).await })
        };
        let first: Vec<_> = (0..2).map(|_| slow(&places)).collect();
        tokio::task::yield_now().await;
        let began = Timer::now();
        assert!(places.is_full());
        assert_eq!(places.run(None, async { 7 }).await, Some(7));
        assert_eq!((began.elapsed(), places.is_full()), (QUICK, false));
        // Now the slow places run out.
        let second: Vec<_> = (0..3).map(|_| slow(&places)).collect();
        tokio::task::yield_now().await;
        assert_eq!(places.run(Some(Timer::now() + 9 * QUICK), async { 8 }).await, None);
        first.iter().for_each(tokio::task::JoinHandle::abort);
        assert_eq!(places.run(None, async { 9 }).await, Some(9));
        drop(second);
    }
}
