//! The side of dispatch that serves connections: they ask for jobs, and tell it how they and their jobs end.

use super::Dispatch;
use crate::resolve::Site;
use crate::sabotage::{Sabotage, is_sabotaged, let_go};
use schedule::{ConnectionId, Feedback, Job, Lag, NextJob};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Destination and patience of a connection to open.
#[derive(Clone, Debug)]
pub(crate) struct ConnectTarget {
    /// The name of the site.
    pub(crate) site: Arc<[u8]>,
    /// One of the destinations whose mail goes there.
    pub(crate) destination: Arc<[u8]>,
    /// Where the mail of this destination goes; `None`: the last answer has expired.
    pub(crate) answer: Option<Arc<Site>>,
    /// The lane, which decides its patience.
    pub(crate) lane: schedule::Lane,
}

/// Where a connection waits for work.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSignal {
    /// There is work, or the place is needed.
    pub(crate) bell: Notify,
    /// The place is needed: close.
    pub(crate) is_called_off: AtomicBool,
}

impl ConnectionSignal {
    /// Resolves when the place is needed while the connection is still opening.
    ///
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn called_off(&self) {
        while !self.is_called_off.load(Ordering::Acquire) {
            self.bell.notified().await;
        }
    }
}

impl Dispatch {
    /// Tells the scheduler that a connection can take work: its site is alive.
    pub(crate) fn reached(&self, way: &ConnectTarget, connection: ConnectionId) {
        self.with_scheduler(|scheduler, now| scheduler.greeted(connection, now));
        self.note_up(&way.site);
    }

    /// Tells the scheduler that a connection waits for longer than the fast lane allows.
    pub(crate) fn lagging(&self, connection: ConnectionId, lag: Lag) {
        if is_sabotaged(Sabotage::OneLane) {
            return;
        }
        self.with_scheduler(|scheduler, now| scheduler.lagging(connection, lag, now));
    }

    /// Ends a connection of which nothing follows for its site: other hosts of it can be tried, or the mail of its
    /// destination goes elsewhere now.
    pub(crate) fn abandon(&self, connection: ConnectionId) {
        self.with_scheduler(|scheduler, now| scheduler.abandon(connection, now));
        self.lock().posts.remove(&connection);
    }

    /// Tells the scheduler that the peer of a connection is silent in a transaction: no job is sent behind it, and
    /// its place goes to others.
    pub(crate) fn silent(&self, connection: ConnectionId) {
        if is_sabotaged(Sabotage::OneLane) {
            return;
        }
        self.with_scheduler(|scheduler, now| scheduler.silent(connection, now));
    }

    /// Tells the scheduler that a connection waits for the answer to a whole message: no job is sent behind it.
    pub(crate) fn stalling(&self, connection: ConnectionId) {
        if is_sabotaged(Sabotage::OneLane) {
            return;
        }
        self.with_scheduler(|scheduler, now| scheduler.stalling(connection, now));
    }

    /// Has a job without an answer, which is done in a moment, tried alone from now on; `apart`: each recipient of
    /// it.
    pub(crate) fn unanswered(&self, connection: ConnectionId, job: &Job, apart: bool) {
        self.with_scheduler(|scheduler, _| scheduler.unanswered(connection, job, apart));
    }

    /// Returns the next job for a connection.
    pub(crate) fn take(&self, connection: ConnectionId) -> NextJob {
        self.with_scheduler(|scheduler, now| scheduler.next_job(connection, now))
    }

    /// A job is over and recorded.
    pub(crate) fn done(&self, connection: ConnectionId, job: &Job, feedback: Feedback, retry: Option<Duration>) {
        let retry = retry.filter(|_| !is_sabotaged(Sabotage::DropDeferred));
        self.with_scheduler(|scheduler, now| scheduler.job_done(connection, job, feedback, retry, now));
        for name in let_go(|name| self.lock().scheduler.destination_view(name).is_none_or(|view| view.ready == 0)) {
            self.with_scheduler(|scheduler, now| scheduler.restore(&name, now));
        }
    }

    /// A job was not tried.
    pub(crate) fn give_back(&self, connection: ConnectionId, job: &Job) {
        self.with_scheduler(|scheduler, now| scheduler.give_back(connection, job, now));
    }

    /// Tells the scheduler that no host of the site could be reached. Returns the jobs that are deferred by it.
    pub(crate) fn unreachable(
        &self,
        way: &ConnectTarget,
        connection: ConnectionId,
        failure: schedule::Failure,
        why: &str,
    ) -> Vec<Job> {
        let failure = if is_sabotaged(Sabotage::OneLane) { schedule::Failure::Refused } else { failure };
        let jobs = self.with_scheduler(|scheduler, now| scheduler.unreachable(connection, failure, why, now));
        self.lock().posts.remove(&connection);
        self.note_down(&way.site, &way.destination, why);
        jobs
    }

    /// Tells the scheduler that a connection broke. Returns the jobs that are deferred by it: it may have ended
    /// without one answer.
    pub(crate) fn broken(&self, way: &ConnectTarget, connection: ConnectionId) -> Vec<Job> {
        let jobs = self.closed(connection);
        if !self.context.stop.has_begun() {
            let why = "Connection closed before a message was answered";
            self.note_down(&way.site, &way.destination, why);
        }
        jobs
    }

    /// Tells the scheduler that a connection is over. Returns the jobs that are deferred by it.
    pub(crate) fn closed(&self, connection: ConnectionId) -> Vec<Job> {
        let jobs = self.with_scheduler(|scheduler, now| scheduler.closed(connection, now));
        if is_sabotaged(Sabotage::KeepPosts) {
            return jobs;
        }
        self.lock().posts.remove(&connection);
        jobs
    }
}
