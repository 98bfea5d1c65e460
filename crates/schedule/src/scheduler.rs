//! The calls: what happened goes in, what to do comes out.

use std::sync::Arc;
use std::time::Duration;

use mail::QueueId;

use crate::job::{Action, Added, ConnectionId, DestinationId, Feedback, Job, Positions, Take, Waiting};
use crate::settings::Settings;
use crate::view::View;

/// Decides which message goes to which connection, and when.
///
/// The driver's duties:
/// - After every call that changes something, call [`poll`](Self::poll) until it gives `None`, and once more when
///   [`wake_at`](Self::wake_at) has come.
/// - Record in the spool what became of a job *before* [`done`](Self::done) is called, so that no walk finds the old state.
/// - Before a job is tried, drop those of its recipients that the spool no longer has as waiting: an operator may have
///   held or deleted them meanwhile.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
}

impl Scheduler {
    /// Makes a scheduler that knows of nothing.
    #[must_use]
    pub fn new(settings: Settings, _seed: u64) -> Self {
        Self { settings }
    }

    /// Puts other limits in force. Connections above them end when they ask for work.
    pub fn set(&mut self, settings: Settings, _now: Duration) {
        self.settings = settings;
    }

    /// Takes a fresh message that was committed just now.
    pub fn add(&mut self, _destination: &[u8], _job: Job, _now: Duration) -> Added {
        Added::Waits
    }

    /// Says that the spool has recipients for a destination, as at the start.
    pub fn restore(&mut self, _destination: &[u8], _now: Duration) {}

    /// Gives the next thing to do; `None` when there is nothing more until something happens or `wake_at`.
    pub fn poll(&mut self, _now: Duration) -> Option<Action> {
        None
    }

    /// When to call [`poll`](Self::poll) although nothing happened.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        None
    }

    /// The name of a destination; `None` once it is forgotten. One that an action named is known until that is answered.
    #[must_use]
    pub fn name(&self, _destination: DestinationId) -> Option<&Arc<[u8]>> {
        None
    }

    /// Answers [`Action::Load`]: entries in the order of the list; `is_end` when there are none behind them.
    pub fn loaded(&mut self, _destination: DestinationId, _entries: &[Waiting], _is_end: bool, _now: Duration) {}

    /// Answers [`Action::Overdue`]: the sender was told and the spool knows it, or neither and it is to be tried again.
    pub fn settled(&mut self, _destination: DestinationId, _message: QueueId, _recipients: &Positions, _now: Duration) {
    }

    /// Says that a connection was greeted and can take work: the destination is alive.
    pub fn ready(&mut self, _connection: ConnectionId, _now: Duration) {}

    /// Gives a connection its next job. May be called while earlier ones are in flight.
    pub fn take(&mut self, _connection: ConnectionId, _now: Duration) -> Take {
        Take::Close
    }

    /// Says that a job is over and recorded; `retry`: when the first recipient that was deferred is due.
    ///
    /// If the connection has several jobs of the message, it is the one that was taken first.
    pub fn done(
        &mut self,
        _connection: ConnectionId,
        _message: QueueId,
        _feedback: Feedback,
        _retry: Option<Duration>,
        _now: Duration,
    ) {
    }

    /// Puts a job that was not tried back, first in line.
    pub fn give_back(&mut self, _connection: ConnectionId, _job: &Job, _now: Duration) {}

    /// Says that no connection came about, or that it was refused at the greeting or the hello. Ends the connection.
    ///
    /// Returns the jobs that do not wait for a connection any more because the destination is down now, to be logged as deferred.
    #[must_use]
    pub fn unreachable(&mut self, _connection: ConnectionId, _why: &str, _now: Duration) -> Vec<Job> {
        Vec::new()
    }

    /// Says that a connection is over. Its jobs that are not done are taken as given back.
    ///
    /// Returns what [`unreachable`](Self::unreachable) returns: a connection that ended without one job done counts as a failure.
    #[must_use]
    pub fn closed(&mut self, _connection: ConnectionId, _now: Duration) -> Vec<Job> {
        Vec::new()
    }

    /// Forgets the back-off of a destination, or of all that are known, and looks through its list.
    ///
    /// Due times stand: to have a recipient tried before its time, record an earlier one in the spool first.
    pub fn retry_now(&mut self, _destination: Option<&[u8]>, _now: Duration) {}

    /// One destination; `None` when nothing is known of it.
    #[must_use]
    pub fn state(&self, _destination: &[u8]) -> Option<View> {
        None
    }

    /// All destinations in the order of their names.
    pub fn views(&self) -> impl Iterator<Item = View> + '_ {
        std::iter::empty()
    }
}
