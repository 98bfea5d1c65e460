//! What goes into the scheduler and comes out of it: values only.
//!
//! A *job* is the recipients of one message that go to one destination in one transaction. A message with more
//! recipients there than one transaction may have becomes several jobs.

use std::sync::Arc;
use std::time::Duration;

use mail::QueueId;

/// A destination as long as the scheduler knows it. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationId(pub(crate) u64);

/// A connection from its [`Action::Open`] to its end. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

impl DestinationId {
    /// The number, for logs.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl ConnectionId {
    /// The number, for logs.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Which recipients of a message, by their position in it. When the scheduler made it: not empty, ascending, each once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Positions {
    /// Exactly one.
    One(u32),
    /// Several, shared between the job and what remembers that it runs.
    Several(Arc<[u32]>),
}

impl Positions {
    /// The positions in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.as_slice().iter().copied()
    }

    /// The positions in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(position) => std::slice::from_ref(position),
            Self::Several(positions) => positions,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Whether `position` is among them.
    #[must_use]
    pub fn contains(&self, position: u32) -> bool {
        self.as_slice().contains(&position)
    }
}

impl From<&[u32]> for Positions {
    fn from(positions: &[u32]) -> Self {
        match positions {
            [one] => Self::One(*one),
            several => Self::Several(several.into()),
        }
    }
}

impl FromIterator<u32> for Positions {
    fn from_iter<I: IntoIterator<Item = u32>>(positions: I) -> Self {
        let positions: Vec<u32> = positions.into_iter().collect();
        Self::from(positions.as_slice())
    }
}

/// Recipients of one message that go to one destination in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The message.
    pub message: QueueId,
    /// Its recipients for this transaction.
    pub recipients: Positions,
    /// It finds out whether a destination that was down is up again.
    pub probe: bool,
}

/// An entry of the spool's list of a destination: one recipient that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The message.
    pub message: QueueId,
    /// The recipient's position in it.
    pub recipient: u32,
    /// When it is to be tried next, in seconds since 1970; 0 when it was never tried.
    pub due_s: u32,
    /// Attempts so far.
    pub attempts: u8,
    /// The sender was told of the delay.
    pub warned: bool,
    /// Kept until a person releases it.
    pub held: bool,
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a connection, then call [`ready`](crate::Scheduler::ready) or [`unreachable`](crate::Scheduler::unreachable).
    Open {
        /// Where to.
        destination: DestinationId,
        /// Its name from now on.
        connection: ConnectionId,
    },
    /// The connection was told [`Take::Idle`], and now there is work: call [`take`](crate::Scheduler::take) for it.
    Wake(ConnectionId),
    /// The connection is idle and its place is needed: close it, then call [`closed`](crate::Scheduler::closed).
    Close(ConnectionId),
    /// Read the spool's list of the destination and answer with [`loaded`](crate::Scheduler::loaded).
    Load {
        /// Whose list.
        destination: DestinationId,
        /// Read behind this entry; from the start when `None`.
        after: Option<Waiting>,
        /// Read so many entries at most.
        limit: usize,
    },
    /// Tell the sender, record it in the spool, then call [`settled`](crate::Scheduler::settled).
    Overdue {
        /// The destination they wait for.
        destination: DestinationId,
        /// The message.
        message: QueueId,
        /// Its recipients that are overdue.
        recipients: Positions,
        /// What to tell.
        kind: Overdue,
    },
}

/// Why recipients are overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overdue {
    /// Older than `give_up_after`: they fail.
    GiveUp,
    /// Older than `warn_after` for the first time: the sender hears of the delay, the attempts go on.
    Warn,
}

/// What became of a fresh message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// In line for the next connection.
    Ready,
    /// In the spool only; a walk finds it in its turn.
    Waits,
    /// The destination is down. To be logged as deferred.
    Down {
        /// The words of the failure, as given to [`unreachable`](crate::Scheduler::unreachable).
        why: Arc<str>,
        /// When the destination is tried again; in the past while a probe is under way.
        retry_at: Duration,
    },
}

/// The answer to a connection that can take a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// Do this. It is to be answered with [`done`](crate::Scheduler::done) or [`give_back`](crate::Scheduler::give_back).
    Job(Job),
    /// Nothing now. Park until [`Action::Wake`] or [`Action::Close`]; after an idle time-out close.
    Idle,
    /// Finish what is in flight, close, call [`closed`](crate::Scheduler::closed).
    Close,
}

/// What a transaction says about the pace of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feedback {
    /// It went well: the window grows.
    Good,
    /// The destination asked for less (421, a 4xx about rate or load): the window is halved.
    Slowdown,
    /// Neither.
    Neutral,
}
