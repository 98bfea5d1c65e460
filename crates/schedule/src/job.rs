//! What goes into the scheduler and comes out of it: values only.
//!
//! A *destination* is a list of the spool, a *site* the next hop that one or many of them share. A *job* is the
//! recipients of one message that go to one site in one transaction. A message with more recipients there than one
//! transaction may have becomes several jobs.

use std::sync::Arc;
use std::time::Duration;

use mail::QueueId;

/// A destination as long as the scheduler knows it. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationId(pub(crate) u64);

/// A next hop as long as the scheduler knows it. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub(crate) u64);

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

impl SiteId {
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

    /// Whether `position` is among them, which are in ascending order.
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

/// How patient a connection is, and which budget it counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Short time-outs; the whole budget.
    Fast,
    /// The time-outs of RFC 5321; a tenth of the budget, for sites that were silent.
    Slow,
}

/// How urgent a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Before others: 16 parts.
    Urgent,
    /// As it comes: 4 parts.
    #[default]
    Normal,
    /// Lists and the like: 1 part.
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

    /// As the spool keeps it: 0 normal, 1 bulk, 2 urgent. Other bits than the lowest two are not looked at; 3 is normal.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            1 => Self::Bulk,
            2 => Self::Urgent,
            _ => Self::Normal,
        }
    }

    /// As the spool keeps it.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::Normal => 0,
            Self::Bulk => 1,
            Self::Urgent => 2,
        }
    }
}

/// What a site lets us do. All are effective values: whoever places a destination fills in the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time, at least 1.
    pub connections: u32,
    /// Transactions in a thousand seconds: 500 is one in two seconds. `None`: as fast as it goes.
    pub messages_per_second: Option<u32>,
    /// Recipients of one job, at least 1.
    pub recipients_per_transaction: usize,
    /// Jobs after which a connection is closed, at least 1.
    pub messages_per_connection: u32,
}

/// Where the mail of a destination goes.
#[derive(Clone, Copy, Debug)]
pub struct SiteAssignment<'a> {
    /// The key of the site: equal for all destinations with the same hosts, port, policy and limits.
    pub site: &'a [u8],
    /// What holds there, for all its destinations; the latest one counts.
    pub limits: Limits,
    /// How long its hosts took before, for the order among those that stand in line; `None`: unknown.
    pub expected: Option<Duration>,
    /// Asked again after this, when it has work.
    pub until: Duration,
}

/// Why a connection came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Somebody said no before there was a message: connection refused, no route, a 4xx or 5xx greeting, TLS.
    Refused,
    /// Nobody said anything: a time-out of connect, greeting or command.
    Silent,
    /// The site said 421 to the first message: it wants less.
    Throttled,
    /// The connection broke in the first message, without a word: that says nothing of a pace.
    Broken,
}

/// What is known of a connection that waits for longer than the fast lane allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lag {
    /// Other hosts of the site can be tried instead: the site keeps its lane.
    pub has_others: bool,
    /// The peer may have a whole message, whose answer is missing: who hangs up gets it taken twice.
    pub is_whole: bool,
}

/// Why the hosts of a destination are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolveFailure {
    /// The name servers of its domain, or its configuration: each time it is asked less soon.
    Domain,
    /// Our own resolver does not answer: that says nothing about the destination.
    Resolver,
}

/// Recipients of one message that go to one site in one transaction; they may be of several destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The message.
    pub message: QueueId,
    /// Its recipients for this transaction.
    pub recipients: Positions,
    /// It finds out whether a site that was down is up again.
    pub probe: bool,
}

/// An entry of the spool's list of a destination: one recipient that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEntry {
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
    /// How urgent its message is.
    pub class: Class,
    /// Its sender may have said by when it is to be delivered.
    pub timed: bool,
    /// It is delivered, and only the report on it is owed: it is never tried, and does not age.
    pub owed: bool,
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Find out where the mail of the destination goes, then call [`placed`](crate::Scheduler::placed) or
    /// [`unplaced`](crate::Scheduler::unplaced).
    Resolve {
        /// Whose hosts.
        destination: DestinationId,
    },
    /// Open a connection, then call [`ready`](crate::Scheduler::ready) or [`unreachable`](crate::Scheduler::unreachable);
    /// if the hosts are others by now, [`misplaced`](crate::Scheduler::misplaced); if others of them can be tried,
    /// [`host_failed`](crate::Scheduler::host_failed); if it is nobody's fault, [`closed`](crate::Scheduler::closed).
    Open {
        /// Where to; [`a_destination`](crate::Scheduler::a_destination) names one whose hosts these are.
        site: SiteId,
        /// Its name from now on.
        connection: ConnectionId,
        /// How long to wait for answers.
        lane: Lane,
    },
    /// The connection was told [`NextJob::Idle`], and now there is work: call [`take`](crate::Scheduler::take) for it.
    Wake(ConnectionId),
    /// The connection is idle, or [`lagging`](crate::Scheduler::lagging), or not ready yet, and its place is needed: close it, then
    /// call [`closed`](crate::Scheduler::closed). One that lags or opens is not idle: it ends in the middle of what it waits for. If
    /// that is the answer to a whole message by now, and was not, say so by `lagging` instead.
    Close(ConnectionId),
    /// Read the spool's list of the destination and answer with [`loaded`](crate::Scheduler::loaded).
    Load {
        /// Whose list.
        destination: DestinationId,
        /// Read behind this entry; from the start when `None`.
        after: Option<QueueEntry>,
        /// Read so many entries at most.
        limit: usize,
    },
    /// Tell the sender, record it in the spool, then call [`settled`](crate::Scheduler::settled); for
    /// [`Overdue::ByTime`] [`timed`](crate::Scheduler::timed).
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
    /// The time by which the sender wanted them delivered may be over, or is not known here: look, and say when it is. They
    /// fail, or the sender hears of the delay, as he said.
    ByTime,
    /// Delivered, and the sender is to hear of it: nobody has seen to that by the time at which they are due.
    Owed,
}

/// What became of a fresh message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddResult {
    /// In line for the next connection.
    Ready,
    /// In the spool only; a walk finds it in its turn.
    SpoolOnly,
    /// The destination cannot be reached. To be logged as deferred.
    Down {
        /// The words of the failure, as given to [`unreachable`](crate::Scheduler::unreachable) or
        /// [`unplaced`](crate::Scheduler::unplaced).
        why: Arc<str>,
        /// When it is tried again; in the past while a probe is under way.
        retry_at: Duration,
    },
}

/// The answer to a connection that can take a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextJob {
    /// Do this. It is to be answered with [`done`](crate::Scheduler::done) or [`give_back`](crate::Scheduler::give_back).
    Job(Job),
    /// Nothing now. Park until [`Action::Wake`] or [`Action::Close`]; after an idle time-out close.
    Idle,
    /// Nothing goes behind what is in flight: ask again when one of these jobs is over.
    Later,
    /// Finish what is in flight, close, call [`closed`](crate::Scheduler::closed).
    Close,
}

/// What a transaction says about the pace of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feedback {
    /// It went well: the window grows.
    Good,
    /// The site asked for less (421, a 4xx about rate or load): the window is halved.
    Slowdown,
    /// Neither.
    Neutral,
    /// The connection broke before an answer: the window is halved, and nothing is learned of the pace.
    Broken,
    /// Nothing was sent: the message is gone, cannot be read, or is none for this host. That says nothing about the site.
    Unsent,
    /// No answer came in the time there is, or its place was needed before: the site is silent, the window is halved,
    /// and the job does not count as one that the connection has done.
    NoReply,
}
