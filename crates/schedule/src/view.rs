//! The state of destinations and sites, for operators.

use std::sync::Arc;
use std::time::Duration;

use crate::job::{Lane, Limits, SiteShare};

/// Whether mail can be delivered now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// No connection, and no failure.
    Idle,
    /// Connections exist, open or opening.
    Up,
    /// It could not be reached.
    Down {
        /// The text of the last failure.
        why: Arc<str>,
        /// When it is probed next; in the past while a probe is in progress.
        until: Duration,
    },
}

/// The present state of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationView {
    /// The name of the destination in the spool.
    pub name: Arc<[u8]>,
    /// Its site; `None` before its first look-up.
    pub site: Option<Arc<[u8]>>,
    /// Down when its hosts are unknown or its site is down.
    pub health: Health,
    /// The lane of its site.
    pub lane: Lane,
    /// Its jobs in memory that wait for a connection.
    pub ready: usize,
    /// The same by class: urgent, normal, bulk.
    pub ready_by_class: [usize; 3],
    /// Its jobs in flight.
    pub in_flight: usize,
    /// Connections of its site, opening and closing ones included.
    pub connections: usize,
    /// Connections that its site may have.
    pub window: u32,
    /// The limits of its site; `None` without a site.
    pub limits: Option<Limits>,
    /// Transactions in 1,000 seconds that its site sustains, as learned from its refusals; `None`: unknown.
    pub pace: Option<u32>,
    /// The machine by whose report its site is down, or down for longer.
    pub reported_by: Option<u16>,
    /// The spool has, or may have, eligible recipients that are not in memory.
    pub more: bool,
}

/// The present state of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteView {
    /// Its key.
    pub name: Arc<[u8]>,
    /// Destinations with this site that are in memory.
    pub destinations: usize,
    /// Whether it is up.
    pub health: Health,
    /// Its lane.
    pub lane: Lane,
    /// Jobs in memory that wait for a connection.
    pub ready: usize,
    /// Jobs in flight.
    pub in_flight: usize,
    /// Connections, opening and closing ones included.
    pub connections: usize,
    /// Connections that it may have.
    pub window: u32,
    /// Its limits.
    pub limits: Limits,
    /// The part of them that this machine may use, if several share them.
    pub share: Option<SiteShare>,
    /// Transactions in 1,000 seconds that it sustains, as learned from its refusals; `None`: unknown.
    pub pace: Option<u32>,
    /// The machine by whose report it is down, or down for longer.
    pub reported_by: Option<u16>,
    /// Jobs and connections exist, and the rate or the pace allows no transaction now.
    pub waits_for_rate: bool,
    /// Since when it waits for a connection that the budget does not have.
    pub waits_since: Option<Duration>,
}

/// The use of a site whose limits several machines keep together, and its need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSite {
    /// Its key.
    pub name: Arc<[u8]>,
    /// The limits that the machines keep together.
    pub limits: Limits,
    /// The share of this machine.
    pub share: SiteShare,
    /// Connections, opening and closing ones included.
    pub connections: u32,
    /// Connections that its work needs; none while it is down and waits.
    pub wanted: u32,
    /// Transactions that are in flight or wait in memory.
    pub work: u32,
    /// Transactions that were started so far.
    pub started: u64,
}
