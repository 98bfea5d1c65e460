//! The interface through which queue commands reach the queue manager.
//!
//! A command takes effect in the spool. The queue manager then reads the changed destinations again. It also knows what
//! the spool does not keep: the last reply of a next hop, and the attempts in progress. Every function except `bounce`
//! returns at once, and any thread may call it.

use super::steering::Steering;
use crate::answers::LimitLine;
use bytes::Bytes;
use mail::{Address, QueueId};
use os::clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Names the destinations whose recipients a command changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destinations<'a> {
    /// Perhaps all.
    All,
    /// These.
    These(&'a [Bytes]),
}

/// Controls deliveries on behalf of queue commands.
pub trait DeliveryControl: Send + Sync + fmt::Debug + 'static {
    /// Recipients at these destinations are no longer held: they wait and are due. Called after the spool has it.
    fn released(&self, destinations: Destinations<'_>);

    /// Recipients at these destinations were made due: try them now, whatever back-off they have. Called after the
    /// spool has it.
    fn retry(&self, destinations: Destinations<'_>);

    /// The time by which delivery goes, in microseconds since 1970: it decides which mail is due.
    fn now_us(&self) -> u64 {
        clock::unix_us()
    }

    /// The time from which the age of a message counts, in microseconds since 1970: that of its queue id, unless the
    /// clock of the machine was wrong then.
    fn counts_from_us(&self, id: QueueId) -> u64 {
        id.unix_us()
    }

    /// Why the recipient was not delivered when it was last tried, as far as that is still known.
    fn reason(&self, id: QueueId, recipient: u32) -> Option<String>;

    /// The kind of that reason.
    fn reason_kind(&self, _: QueueId, _: u32) -> Option<observe::Reason> {
        None
    }

    /// Why mail for these filters, as its hold names them, is not screened; none while they answer.
    fn filter_failure(&self, _: &str) -> Option<String> {
        None
    }

    /// Attempts for the recipient that the spool does not count, since no connection came about.
    fn unsent(&self, _: QueueId, _: u32) -> u32 {
        0
    }

    /// Whether an attempt for the recipient is under way. The next hop decides the result of such an attempt: a command
    /// on the recipient takes effect after it.
    fn is_active(&self, id: QueueId, recipient: u32) -> bool;

    /// Returns why a command must not end this message now: in a cluster another node may own it. `None`: this node
    /// owns it, or is no node of a cluster.
    fn doubt_about_end(&self, _: QueueId) -> Option<EndDoubt> {
        None
    }

    /// Returns the orders of operators that stay in force.
    fn steering(&self) -> Arc<Steering> {
        Arc::default()
    }

    /// Replaces the orders by what `change` makes of the present ones. On return they are durable, and every message
    /// that was stored by the old ones shows in the spool.
    ///
    /// Blocks: call it on a thread that may wait.
    ///
    /// # Errors
    /// The reason of `change`, or why they cannot be stored; nothing has changed.
    fn change_steering(&self, _: &mut dyn FnMut(&Steering) -> Result<Steering, String>) -> Result<(), String> {
        Err("the server does not deliver".to_owned())
    }

    /// Fails recipients for this reason, as if a host had refused them for good, and sends the DSNs that senders asked
    /// for. Recipients in delivery are left alone. The changes that it returns are durable. `None`: the dispatcher has
    /// ended.
    ///
    /// Blocks until the changes are durable: call it on a thread that may wait.
    fn bounce(&self, meant: Vec<RecipientSelection>, why: &GiveUpReason) -> Option<Vec<Bounced>>;

    /// Reads the name of a destination as an operator writes it, and returns it as the spool has it.
    ///
    /// # Errors
    /// It is none; the text says how to write it.
    fn read_destination(&self, text: &str) -> Result<Bytes, String>;

    /// Gives recipients another destination, those that wait due at `due_s` (seconds since 1970). Recipients in
    /// delivery are left alone. Returns before the change is durable.
    ///
    /// # Errors
    /// The spool cannot record it: all stay where they are.
    fn reroute(
        &self,
        meant: &RecipientSelection,
        from: &[u8],
        to: &Bytes,
        due_s: u32,
    ) -> Result<Rerouted, spool::Error>;

    /// Stores a copy of a message in quarantine, with a field that tells of it, and has it delivered: to the
    /// recipients, which are done with the original then, or to another address, and the original stays as it is.
    /// Recipients that are not held any more are left alone. The result is durable.
    ///
    /// Blocks until then: call it on a thread that may wait.
    ///
    /// # Errors
    /// Nothing was changed, unless the text says so.
    fn resubmit(&self, order: Resubmission) -> Result<Resubmitted, ResubmitError>;

    /// How a destination is, if the dispatcher has anything to do with it now.
    fn destination(&self, name: &[u8]) -> Option<DestinationState>;
}

/// The reason why a message must not be ended by a command now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndDoubt {
    /// The reason, with the next step.
    pub text: String,
    /// It may end by itself within a moment.
    pub may_pass: bool,
}

/// Why an operator gives recipients up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// For this reason, in words for the sender.
    Postmaster(Arc<str>),
    /// They have waited for long enough: as mail that is older than `delivery.give_up_after`.
    Expired,
}

/// Recipients that were given another destination.
#[derive(Debug, Default)]
pub struct Rerouted {
    /// How many.
    pub moved: usize,
    /// How many were left alone: a connection has them, or is about to.
    pub active: usize,
    /// Becomes durable.
    pub commit: Option<spool::Commit>,
}

/// Recipients of a message that are to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipientSelection {
    /// The message.
    pub id: QueueId,
    /// Their positions, in order.
    pub recipients: Vec<u32>,
}

/// The recipients of a message that were bounced, and those that were left alone. Those that are not in it were
/// delivered or deleted meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounced {
    /// The message.
    pub id: QueueId,
    /// Those that are done, in order.
    pub done: Vec<u32>,
    /// How many were left alone: a connection has them, or their report is on its way.
    pub active: u64,
    /// The number of recipients that are held, since no address is left to report to.
    pub held: u64,
    /// Why others stay as they are.
    pub trouble: Option<BounceError>,
}

/// An order to send a copy of a message in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resubmission {
    /// The recipients for whom it is kept.
    pub meant: RecipientSelection,
    /// The address that gets the copy; `None`: the recipients.
    pub to: Option<Address>,
}

/// A copy that was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resubmitted {
    /// Its name; `None`: no recipient was held any more.
    pub copy: Option<QueueId>,
    /// The recipients that were meant and still held, in order.
    pub recipients: Vec<u32>,
}

/// Why no copy of a message was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResubmitError {
    /// The message cannot be read.
    Unreadable(String),
    /// The address that is to get it is refused.
    Refused(String),
    /// The spool takes no copy, or no record, or the server does not deliver.
    NotStored(String),
    /// Another node of the cluster may own the message.
    NotOwned(String),
}

/// Why recipients are not bounced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BounceError {
    /// The message cannot be read.
    Unreadable(String),
    /// The spool takes no reports, or no records.
    NotStored(String),
    /// Another node of the cluster may own the message.
    NotOwned(String),
}

/// How a destination is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationState {
    /// It cannot be reached, and waits for its time.
    pub down: Option<DownState>,
    /// Connections to it.
    pub connections: u64,
    /// Messages on their way over them.
    pub in_flight: u64,
    /// The hosts its mail goes to, which other destinations may share, if they are known.
    pub site: Option<String>,
    /// Its hosts were silent: they have longer time limits and few connections.
    pub is_slow: bool,
    /// Connections its hosts may have now.
    pub window: u64,
    /// Transactions that its hosts may have in a thousand seconds, if that is limited.
    pub rate: Option<u32>,
    /// The same, as learned from refusals of its hosts with 421 or 4xx, while that pace applies.
    pub pace: Option<u32>,
    /// The node of the cluster by whose report it is down, or down for longer.
    pub reported_by: Option<u16>,
    /// The limit that an operator has set for it.
    pub set_limit: Option<LimitLine>,
    /// The cause why mail that is due is not attempted, if there is such mail.
    pub waits: Option<WaitCause>,
    /// Messages that are in memory and wait for a connection.
    pub ready: u64,
    /// The spool has, or may have, more that is due.
    pub has_more: bool,
}

/// The cause why mail that is due is not attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// For a connection.
    Connection {
        /// For so long.
        since: Duration,
        /// `delivery.connections_max`, of which all that it may have are in use.
        most: u32,
    },
    /// For a share of a limit that the nodes of the cluster keep together.
    Share,
    /// For the rate of its rule.
    Rate,
    /// For the pace that was learned.
    Pace,
}

/// Why and how long a destination is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownState {
    /// The failure of the last attempt.
    pub why: String,
    /// When the next one is made, since 1970.
    pub retry_at: Duration,
}

/// Stands for the queue manager in a server that does not deliver.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDelivery;

impl DeliveryControl for NoDelivery {
    fn released(&self, _: Destinations<'_>) {}

    fn retry(&self, _: Destinations<'_>) {}

    fn reason(&self, _: QueueId, _: u32) -> Option<String> {
        None
    }

    fn is_active(&self, _: QueueId, _: u32) -> bool {
        false
    }

    fn bounce(&self, _: Vec<RecipientSelection>, _: &GiveUpReason) -> Option<Vec<Bounced>> {
        None
    }

    fn read_destination(&self, _: &str) -> Result<Bytes, String> {
        Err("the server does not deliver".to_owned())
    }

    fn reroute(&self, _: &RecipientSelection, _: &[u8], _: &Bytes, _: u32) -> Result<Rerouted, spool::Error> {
        Ok(Rerouted::default())
    }

    fn resubmit(&self, _: Resubmission) -> Result<Resubmitted, ResubmitError> {
        Err(ResubmitError::NotStored("the server does not deliver".to_owned()))
    }

    fn destination(&self, _: &[u8]) -> Option<DestinationState> {
        None
    }
}
