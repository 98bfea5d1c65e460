//! The values that go into the scheduler and come out of it.
//!
//! A *destination* is a list of the spool. A *site* is the next hop that one or many destinations share. A *job* is the
//! recipients of one message that go to one site in one transaction. A message with more recipients at a site than one
//! transaction may have becomes several jobs.

use std::sync::Arc;
use std::time::Duration;

use mail::QueueId;

/// Identifies a destination while the scheduler knows it. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationId(pub(crate) u64);

/// Identifies a site while the scheduler knows it. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub(crate) u64);

/// Identifies a connection from its [`Action::Open`] to its end. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

impl DestinationId {
    /// Returns the number, for logs.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl SiteId {
    /// Returns the number, for logs.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl ConnectionId {
    /// Returns the number, for logs.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Names recipients of a message by their position in it. A value that the scheduler made is not empty, ascending and
/// without duplicates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Positions {
    /// Exactly one.
    One(u32),
    /// Several, shared between the job and the record of the active recipients.
    Several(Arc<[u32]>),
}

impl Positions {
    /// Iterates over the positions in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.as_slice().iter().copied()
    }

    /// Returns the positions in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(position) => std::slice::from_ref(position),
            Self::Several(positions) => positions,
        }
    }

    /// Returns the number of positions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns whether there is no position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Returns whether `position` is contained. The positions must be in ascending order.
    #[must_use]
    pub fn contains(&self, position: u32) -> bool {
        self.as_slice().binary_search(&position).is_ok()
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

/// Selects the time-outs of a connection and the budget that it counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Short time-outs; nine tenths of the budget.
    Fast,
    /// The time-outs of RFC 5321; a tenth of the budget, for sites that were silent or lagged.
    Slow,
}

/// Selects how urgent a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Weight 16.
    Urgent,
    /// Weight 4.
    #[default]
    Normal,
    /// Weight 1, for lists and the like.
    Bulk,
}

impl Class {
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Urgent => 0,
            Self::Normal => 1,
            Self::Bulk => 2,
        }
    }

    /// Decodes the class from the spool: 0 normal, 1 bulk, 2 urgent, 3 normal. Ignores all bits but the lowest two.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            1 => Self::Bulk,
            2 => Self::Urgent,
            _ => Self::Normal,
        }
    }

    /// Encodes the class for the spool.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::Normal => 0,
            Self::Bulk => 1,
            Self::Urgent => 2,
        }
    }
}

/// Bounds what the server may do at a site. All are effective values: the driver fills in the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections, at least 1.
    pub connections: u32,
    /// Transactions in 1,000 seconds: 500 is one in two seconds. `None`: no limit.
    pub messages_per_second: Option<u32>,
    /// Recipients of one job, at least 1.
    pub recipients_per_transaction: usize,
    /// Jobs after which a connection is closed, at least 1.
    pub messages_per_connection: u32,
}

/// The part of a site's limits that this machine may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteShare {
    /// Connections at once.
    pub connections: u32,
    /// Transactions in 1,000 seconds; `None`: no limit.
    pub messages_per_second: Option<u32>,
}

/// Assigns a destination to a site: the answer to [`Action::Resolve`].
#[derive(Clone, Copy, Debug)]
pub struct SiteAssignment<'a> {
    /// The key of the site: equal for all destinations with the same hosts, port, policy and limits.
    pub site: &'a [u8],
    /// The limits of the site for all its destinations; the latest assignment counts.
    pub limits: Limits,
    /// How long its hosts took before, for the order of sites that wait for a connection; `None`: unknown.
    pub expected: Option<Duration>,
    /// The destination is resolved again after this time, when it has work.
    pub until: Duration,
}

/// Tells why a connection could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The peer or the network refused before there was a message: connection refused, no route to the host, a 4xx or
    /// 5xx greeting.
    Refused,
    /// A time-out of connect, greeting or command.
    Silent,
    /// The site answered 421 to the first message: it accepts less than it was sent.
    Throttled,
    /// The connection broke in the first message without a reply. This says nothing about the pace.
    Broken,
    /// There is no TLS that mail waits for.
    Tls,
    /// This machine is the cause, as a lack of routes or a map that does not answer: other machines are told nothing.
    Local,
}

/// Describes a connection that waits for a reply longer than the fast lane allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lag {
    /// The driver can try other hosts of the site: the site keeps its lane.
    pub has_others: bool,
    /// The peer may have a whole message that it has not answered: closing the connection means sending it twice.
    pub is_whole: bool,
}

/// Tells why the hosts of a destination are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolveFailure {
    /// Its name servers or its configuration failed: the back-off grows.
    Domain,
    /// Our own resolver does not answer. This says nothing about the destination.
    Resolver,
}

/// Recipients of one message that go to one site in one transaction. They may belong to several destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The message.
    pub message: QueueId,
    /// Its recipients for this transaction.
    pub recipients: Positions,
    /// The first job of a connection that probes a site that is down.
    pub probe: bool,
}

/// One entry of a destination's list in the spool: a recipient that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// The message.
    pub message: QueueId,
    /// The recipient's position in it.
    pub recipient: u32,
    /// When it is due, in seconds since 1970; 0 if it was never tried.
    pub due_s: u32,
    /// Attempts so far.
    pub attempts: u8,
    /// The sender got the delay warning.
    pub warned: bool,
    /// Held until an operator releases it.
    pub held: bool,
    /// How urgent its message is.
    pub class: Class,
    /// The sender may have set a deliver-by time.
    pub timed: bool,
    /// Delivered, and only its report is owed: it is never tried and does not age.
    pub owed: bool,
}

/// Tells the driver what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look up the hosts of the destination, then call [`resolved`](crate::Scheduler::resolved) or
    /// [`resolve_failed`](crate::Scheduler::resolve_failed).
    Resolve {
        /// The destination to look up.
        destination: DestinationId,
    },
    /// Open a connection, then call [`greeted`](crate::Scheduler::greeted) or
    /// [`unreachable`](crate::Scheduler::unreachable). Call [`abandon`](crate::Scheduler::abandon) if other hosts can
    /// be tried, or if the destination has another site now; and [`closed`](crate::Scheduler::closed) if it ended
    /// without a failure.
    Open {
        /// The next hop; [`example_destination`](crate::Scheduler::example_destination) returns a destination to look
        /// it up.
        site: SiteId,
        /// Identifies the connection from now on.
        connection: ConnectionId,
        /// Selects the time-outs.
        lane: Lane,
    },
    /// There is work for a connection that got [`NextJob::Idle`]: call [`next_job`](crate::Scheduler::next_job) for it.
    Wake(ConnectionId),
    /// Close the connection, then call [`closed`](crate::Scheduler::closed): its place is needed. It is idle,
    /// [`lagging`](crate::Scheduler::lagging) or not greeted; the latter two end in the middle of what they wait for.
    /// If a connection has meanwhile begun to wait for the reply to a whole message, call `lagging` instead.
    Close(ConnectionId),
    /// Read a page of the destination's list, then call [`page_loaded`](crate::Scheduler::page_loaded).
    Load {
        /// The destination whose list is read.
        destination: DestinationId,
        /// The page starts after this entry; at the start of the list when `None`.
        after: Option<QueueEntry>,
        /// The maximum number of entries.
        limit: usize,
    },
    /// Tell the sender, record it in the spool, then call [`age_settled`](crate::Scheduler::age_settled). For
    /// [`Overdue::ByTime`] call [`deadline_settled`](crate::Scheduler::deadline_settled), for [`Overdue::Owed`]
    /// [`report_settled`](crate::Scheduler::report_settled).
    Overdue {
        /// The destination of the recipients.
        destination: DestinationId,
        /// The message.
        message: QueueId,
        /// The recipients that are overdue.
        recipients: Positions,
        /// The notice to send.
        kind: Overdue,
    },
}

/// Tells why recipients are overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overdue {
    /// Older than `give_up_after`: they fail.
    GiveUp,
    /// Older than `warn_after` for the first time: the sender gets the delay warning, and the attempts go on.
    Warn,
    /// The deliver-by time may be over, or is not known here: look it up and return it. If it is over, the recipients
    /// fail or the sender gets a delay warning, as the sender requested.
    ByTime,
    /// Delivered, and the report is due and not sent.
    Owed,
}

/// Tells what `add` did with a fresh message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddResult {
    /// It is in a ready queue.
    Ready,
    /// It is only in the spool; a scan finds it later.
    SpoolOnly,
    /// The destination is down. To be logged as deferred.
    Down {
        /// The text of the failure, as given to [`unreachable`](crate::Scheduler::unreachable) or
        /// [`resolve_failed`](crate::Scheduler::resolve_failed).
        why: Arc<str>,
        /// When it is tried again; in the past while a probe is in progress.
        retry_at: Duration,
    },
}

/// The answer to a connection that asks for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextJob {
    /// Run this job. The driver answers with [`job_done`](crate::Scheduler::job_done) or
    /// [`give_back`](crate::Scheduler::give_back).
    Job(Job),
    /// There is no work. Wait for [`Action::Wake`] or [`Action::Close`]; close after an idle time-out.
    Idle,
    /// Nothing may follow the jobs in flight: ask again when one of them is over.
    Later,
    /// Finish the jobs in flight, close, call [`closed`](crate::Scheduler::closed).
    Close,
}

/// Tells what a transaction says about the pace of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feedback {
    /// It succeeded: the window grows.
    Good,
    /// The site asked for less (421, a 4xx about rate or load): the window is halved.
    Slowdown,
    /// Neither.
    Neutral,
    /// The connection broke before a reply: the window is halved, and the pace does not change.
    Broken,
    /// Nothing was sent: the message is gone, cannot be read, or does not belong to this host. This says nothing about
    /// the site.
    Unsent,
    /// No reply came in time, or the connection was closed first: the site is silent, the window is halved, and the job
    /// does not count as answered.
    NoReply,
}
