//! The side of dispatch that serves connections: they ask for jobs, and tell it how they and their jobs end.

use super::Dispatch;
use crate::resolve::Site;
use crate::sabotage::{Sabotage, is_sabotaged, let_go};
use mail::QueueId;
use operator::queue::glob;
use schedule::{ConnectionId, Feedback, Job, Lag, NextJob};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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

/// Where a connection waits for work, and what operators see of it.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSignal {
    /// Its number from 1; 0 in a trial.
    pub(crate) number: u64,
    /// Its destination and its site.
    pub(crate) names: Arc<[String]>,
    /// When it was opened, since 1970.
    opened_at: Duration,
    /// The host that it leads to, as the log names it; empty before there is one.
    host: Mutex<Box<str>>,
    /// An operator ends it.
    pub(crate) is_aborted: AtomicBool,
    /// Another node of the cluster may use its place soon.
    pub(crate) is_shed: AtomicBool,
    /// There is work, or the place is needed.
    pub(crate) bell: Notify,
    /// The place is needed: close.
    pub(crate) is_called_off: AtomicBool,
}

/// A connection as an operator sees it.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionView {
    pub(crate) number: u64,
    /// Its destination and its site.
    pub(crate) names: Arc<[String]>,
    /// Since 1970.
    pub(crate) opened_at: Duration,
    pub(crate) host: Box<str>,
    /// The messages on their way over it.
    pub(crate) messages: Vec<QueueId>,
}

impl ConnectionSignal {
    /// Makes the signal of a connection that opens now.
    pub(super) fn new(connection: ConnectionId, destination: &[u8], site: &[u8], now: Duration) -> Self {
        let names = [destination, site].map(|name| String::from_utf8_lossy(name).into_owned());
        Self { number: connection.get() + 1, names: Arc::new(names), opened_at: now, ..Self::default() }
    }

    /// Takes the host that the connection leads to.
    pub(crate) fn set_host(&self, host: &str) {
        *self.host.lock().unwrap_or_else(PoisonError::into_inner) = host.into();
    }

    /// Ends the connection, whatever it does.
    fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
        self.is_called_off.store(true, Ordering::Release);
        self.bell.notify_one();
    }

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
    /// Returns the connections to destinations, sites or hosts with such a name (`*` for any text), the oldest first.
    pub(crate) fn connection_views(&self, pattern: &str) -> Vec<ConnectionView> {
        let pattern = pattern.to_lowercase();
        let state = self.lock();
        let mut views = Vec::new();
        for (connection, post) in &state.posts {
            let host = post.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let is = |name: &str| glob(&pattern, &name.to_lowercase());
            if is(&host) || post.names.iter().any(|name| is(name)) {
                let messages = state.scheduler.messages_of(*connection);
                let (number, names, opened_at) = (post.number, Arc::clone(&post.names), post.opened_at);
                views.push(ConnectionView { number, names, opened_at, host, messages });
            }
        }
        drop(state);
        views.sort_unstable_by_key(|view| view.number);
        views
    }

    /// Ends a connection, and returns the destination for which it was opened. Messages whose content the host has, and
    /// whose answer is missing, may arrive twice. `None`: there is no such connection.
    pub(crate) fn abort_connection(&self, number: u64) -> Option<String> {
        let state = self.lock();
        let post = state.posts.values().find(|post| post.number == number)?;
        post.abort();
        Some(post.names.first().cloned().unwrap_or_default())
    }

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
