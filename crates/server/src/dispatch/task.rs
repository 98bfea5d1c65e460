//! The tasks that dispatch wants begun: connections, look-ups, pages of lists, reports on mail that is overdue.
//!
//! A decision sends a [`Task`] and never waits. `tasks` begins them, and owns what they begin.

use super::{ConnectTarget, ConnectionSignal};
use crate::dns::NoHosts;
use mail::QueueId;
use operator::queue::{Bounced, GiveUpReason, RecipientSelection, Resubmission, ResubmitError, Resubmitted};
use schedule::{ConnectionId, DestinationId, Job, Overdue, Positions, QueueEntry};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A task that dispatch gives away.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work for the task that owns connections.
pub(crate) enum Task {
    /// All waiting mail is due.
    Restore,
    /// Mail of old destinations that was in progress gets new ones.
    Rehome,
    /// Something else that the end of the server waits for.
    TaskFuture(TaskFuture),
    Resolve {
        name: Arc<[u8]>,
    },
    Defer {
        jobs: Vec<Job>,
        why: Arc<str>,
    },
    /// The same of a destination without hosts.
    DeferUnplaced {
        jobs: Vec<Job>,
        no: NoHosts,
    },
    Load {
        destination: DestinationId,
        name: Arc<[u8]>,
        after: Option<QueueEntry>,
        limit: usize,
    },
    Connect {
        way: ConnectTarget,
        connection: ConnectionId,
        post: Arc<ConnectionSignal>,
    },
    Overdue {
        destination: DestinationId,
        name: Arc<[u8]>,
        message: QueueId,
        recipients: Positions,
        kind: Overdue,
    },
    Bounce {
        meant: Vec<RecipientSelection>,
        why: GiveUpReason,
        answer: oneshot::Sender<Vec<Bounced>>,
    },
    Resubmit {
        order: Resubmission,
        answer: oneshot::Sender<Result<Resubmitted, ResubmitError>>,
    },
}
