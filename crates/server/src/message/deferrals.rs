//! Jobs that are to be logged as deferred, since their site cannot be reached.
//!
//! The line names recipients, for which the message is read. A few are read at a time, so that mail that can be sent
//! does not wait behind them for its turn ([`Reading`](super::Reading)). A job whose line has not been written is not
//! added again when its site comes and goes meanwhile, so the number of waiting lines is bounded by the number of
//! jobs.

use mail::QueueId;
use schedule::{Job, Positions};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Messages that are read at a time.
const READS_MAX: usize = 8;

/// Deferrals that wait to be logged.
#[derive(Debug)]
pub(crate) struct Deferrals {
    turns: Semaphore,
    waiting: Mutex<HashSet<(QueueId, Positions)>>,
}

/// Jobs in line, which leave it when they are dropped.
#[derive(Debug)]
pub(crate) struct DeferredJobs<'a> {
    deferrals: &'a Deferrals,
    jobs: std::vec::IntoIter<Job>,
}

impl Default for Deferrals {
    fn default() -> Self {
        Self { turns: Semaphore::new(READS_MAX), waiting: Mutex::default() }
    }
}

impl Deferrals {
    /// Adds those jobs that do not wait yet.
    pub(crate) fn line_up(&self, mut jobs: Vec<Job>) -> DeferredJobs<'_> {
        let mut waiting = self.waiting();
        jobs.retain(|job| waiting.insert((job.message, job.recipients.clone())));
        DeferredJobs { deferrals: self, jobs: jobs.into_iter() }
    }

    fn waiting(&self) -> MutexGuard<'_, HashSet<(QueueId, Positions)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeferredJobs<'_> {
    /// Returns the next job, when it may be read: until the turn that comes with it is dropped. From now on it may be
    /// in line again.
    ///
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn next(&mut self) -> Option<(Job, SemaphorePermit<'_>)> {
        if self.jobs.len() == 0 {
            return None;
        }
        // Closed never.
        let turn = self.deferrals.turns.acquire().await.ok()?;
        let job = self.jobs.next()?;
        self.deferrals.waiting().remove(&(job.message, job.recipients.clone()));
        Some((job, turn))
    }
}

impl Drop for DeferredJobs<'_> {
    fn drop(&mut self) {
        let mut waiting = self.deferrals.waiting();
        for job in self.jobs.by_ref() {
            waiting.remove(&(job.message, job.recipients));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(messages: std::ops::Range<u64>) -> Vec<Job> {
        let job = |number| Job {
            message: QueueId::from_u64(QueueId::MIN.to_u64() + number).unwrap(),
            recipients: Positions::One(0),
            probe: false,
        };
        messages.map(job).collect()
    }

    #[tokio::test]
    async fn a_job_is_in_line_once_until_it_is_read_or_given_up() {
        let deferrals = Deferrals::default();
        let mut first = deferrals.line_up(jobs(0..10));
        // Its site came up and went down again before anything was logged.
        let second = deferrals.line_up(jobs(5..12));
        assert_eq!(second.jobs.len(), 2);
        drop(second);
        let (job, turn) = first.next().await.unwrap();
        assert_eq!(deferrals.turns.available_permits(), READS_MAX - 1);
        drop(turn);
        assert_eq!(job, jobs(0..1)[0]);
        let again = deferrals.line_up(jobs(0..12));
        assert_eq!(again.jobs.len(), 3, "the one that was read, and the two that were given up");
        drop((first, again));
        assert!(deferrals.waiting().is_empty());
        assert_eq!(deferrals.turns.available_permits(), READS_MAX);
        assert!(deferrals.line_up(Vec::new()).next().await.is_none());
    }
}
