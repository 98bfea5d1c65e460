//! What an operator sees of a destination and of a site.

use std::sync::Arc;
use std::time::Duration;

use crate::job::{Lane, Limits};

/// How a destination is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It has no connection, and nothing is known against it.
    Idle,
    /// It has connections, open or opening.
    Up,
    /// It could not be reached.
    Down {
        /// The words of the last failure.
        why: Arc<str>,
        /// When it is probed next; in the past while a probe is under way.
        until: Duration,
    },
}

/// One destination as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationView {
    /// The destination, as the spool names it.
    pub name: Arc<[u8]>,
    /// Its next hop; `None` while nobody has said.
    pub site: Option<Arc<[u8]>>,
    /// How it is: down when its hosts are not known, or its site cannot be reached.
    pub health: Health,
    /// How patient its site is treated.
    pub lane: Lane,
    /// Its jobs in memory that wait for a connection.
    pub ready: usize,
    /// The same by class: urgent, normal, bulk.
    pub ready_by_class: [usize; 3],
    /// Its jobs that a connection has.
    pub in_flight: usize,
    /// Connections of its site, opening and closing ones included.
    pub connections: usize,
    /// Connections its site may have.
    pub window: u32,
    /// What its site lets us do; `None` while it has no site.
    pub limits: Option<Limits>,
    /// Transactions in 1,000 seconds that its site bears, as learned from what it refused; `None`: nothing was learned.
    pub pace: Option<u32>,
    /// The spool has, or may have, eligible recipients that are not in memory.
    pub more: bool,
}

/// One site as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteView {
    /// Its key.
    pub name: Arc<[u8]>,
    /// Destinations whose mail goes there, as far as they are in memory.
    pub destinations: usize,
    /// How it is.
    pub health: Health,
    /// How patient it is treated.
    pub lane: Lane,
    /// Jobs in memory that wait for a connection.
    pub ready: usize,
    /// Jobs that a connection has.
    pub in_flight: usize,
    /// Connections, opening and closing ones included.
    pub connections: usize,
    /// Connections it may have.
    pub window: u32,
    /// What it lets us do.
    pub limits: Limits,
    /// Transactions in 1,000 seconds that it bears, as learned from what it refused; `None`: nothing was learned.
    pub pace: Option<u32>,
    /// Work and connections are there, and the rate or the pace allows none now.
    pub waits_for_rate: bool,
    /// Since when it wants a connection that the budget does not have.
    pub waits_since: Option<Duration>,
}
