//! The calls that show the state of destinations, sites and connections. They change nothing.

use std::time::Duration;

use mail::QueueId;

use crate::job::{ConnectionId, DestinationId};
use crate::scheduler::Scheduler;
use crate::view::{DestinationView, Health, SiteView};

impl Scheduler {
    /// Returns the number of a destination, by which its look-up is answered; `None` if it is not known.
    #[must_use]
    pub fn destination_id(&self, destination: &[u8]) -> Option<DestinationId> {
        self.names.get(destination)
    }

    /// Returns the state of a destination; `None` if it is not known.
    #[must_use]
    pub fn destination_view(&self, destination: &[u8]) -> Option<DestinationView> {
        self.names.get(destination).and_then(|id| self.view(id))
    }

    /// Returns when a destination that is down is tried again; `None` if it is not down or not known.
    #[must_use]
    pub fn down_until(&self, destination: &[u8]) -> Option<Duration> {
        let destination = self.names.get(destination).and_then(|id| self.destinations.get(&id))?;
        let site = destination.site.and_then(|id| self.sites.get(&id));
        match destination.health(site) {
            Health::Down { until, .. } => Some(until),
            Health::Idle | Health::Up => None,
        }
    }

    /// Returns all destinations in the order of their names.
    pub fn destination_views(&self) -> impl Iterator<Item = DestinationView> + '_ {
        self.names.by_name().into_iter().filter_map(|id| self.view(id))
    }

    /// Returns all sites in the order of their names, as they are at `now`.
    pub fn site_views(&self, now: Duration) -> impl Iterator<Item = SiteView> + '_ {
        self.site_names.by_name().into_iter().filter_map(|id| self.sites.get(&id)).map(move |site| site.view(now))
    }

    /// Returns the site of a destination as it is at `now`; `None` if either is unknown.
    #[must_use]
    pub fn site_view(&self, destination: &[u8], now: Duration) -> Option<SiteView> {
        let id = self.names.get(destination)?;
        let site = self.destinations.get(&id)?.site?;
        self.sites.get(&site).map(|site| site.view(now))
    }

    /// Returns the number of connections, opening and closing ones included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pool.len()
    }

    /// Returns how many of them only wait for a silent server and hold no place
    /// ([`Settings::silent_max`](crate::Settings)).
    #[must_use]
    pub fn silent_connections(&self) -> usize {
        self.pool.len() - self.pool.counted()
    }

    /// Returns whether a recipient is in memory, in flight, or in an unanswered `Overdue` action.
    #[must_use]
    pub fn is_active(&self, destination: &[u8], message: QueueId, recipient: u32) -> bool {
        let found = self.names.get(destination).and_then(|id| self.destinations.get(&id));
        found.is_some_and(|destination| destination.active.contains(message, recipient))
    }

    /// Returns whether a connection has a job with this recipient. Looks at all connections: for operators only.
    #[must_use]
    pub fn is_in_flight(&self, message: QueueId, recipient: u32) -> bool {
        self.pool.in_flight_jobs().any(|flight| flight.message == message && flight.recipients.contains(recipient))
    }

    /// Returns the messages on their way over a connection.
    #[must_use]
    pub fn messages_of(&self, connection: ConnectionId) -> Vec<QueueId> {
        let found = self.pool.get(connection);
        found.map(|found| found.in_flight.iter().map(|flight| flight.message).collect()).unwrap_or_default()
    }

    fn view(&self, id: DestinationId) -> Option<DestinationView> {
        let destination = self.destinations.get(&id)?;
        let site = destination.site.and_then(|id| self.sites.get(&id));
        Some(destination.view(site))
    }
}
