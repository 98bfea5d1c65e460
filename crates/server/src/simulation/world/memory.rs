//! Looks now and then at what the server holds in memory.

use super::super::book::Book;
use super::super::machine::Machine;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(20);
/// Transactions of a connection at a time: docs/delivery.md, section 8.
const FLIGHTS: usize = 4;

/// Sizes of dispatch in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Destinations that are known.
    pub(crate) destinations: usize,
    /// Sites that are known.
    pub(crate) sites: usize,
    /// The most jobs of a destination that wait for a connection.
    pub(crate) ready: usize,
    /// Of each site: jobs that wait, destinations, and connections it may have.
    pub(crate) lines: Vec<(usize, usize, usize)>,
    /// Jobs that a connection has.
    pub(crate) in_flight: usize,
    /// Connections, opening and closing ones included.
    pub(crate) connections: usize,
    /// Places where connections wait for work.
    pub(crate) posts: usize,
    /// Sites and destinations of which the log said that they are down.
    pub(crate) down: usize,
}

/// Bounds of the sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Domains that there are.
    pub(super) destinations: usize,
    pub(super) sites: usize,
    /// Jobs of each destination that came fresh, and as many that walks found.
    pub(super) ready_max: usize,
    pub(super) connections_max: usize,
    /// And beside these, of silent hosts.
    pub(super) silent_max: usize,
}

impl Bounds {
    /// Returns the size that exceeds its bound.
    fn broken_by(self, sizes: &Sizes) -> Option<&'static str> {
        // Each lane has one place at least.
        let connections = self.connections_max.max(2) + self.silent_max;
        // And the jobs of connections, which come back when these end, a job for each transaction.
        let most = |destinations: usize, connections: usize| 2 * self.ready_max * destinations + FLIGHTS * connections;
        let is_long = |(ready, destinations, each): &(usize, usize, usize)| *ready > most(*destinations, *each);
        let back = sizes.lines.iter().map(|(.., each)| *each).max().unwrap_or(0);
        [
            (sizes.destinations > self.destinations, "destinations"),
            // A destination that moved leaves its site for a moment.
            (sizes.sites > self.sites, "sites"),
            (sizes.lines.iter().any(is_long), "jobs that wait"),
            (sizes.ready > most(1, back), "jobs of a destination"),
            (sizes.in_flight > FLIGHTS * sizes.connections, "jobs in flight"),
            (sizes.connections > connections, "connections"),
            (sizes.posts != sizes.connections, "posts"),
            (sizes.down > self.destinations + self.sites, "destinations that are down"),
        ]
        .into_iter()
        .find(|(is_broken, _)| *is_broken)
        .map(|(_, what)| what)
    }
}

/// Looks until the run ends.
pub(super) async fn watch(book: Arc<Book>, machine: Arc<Machine>, bounds: Bounds) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(sizes) = sizes(&machine) else { continue };
        if let Some(what) = bounds.broken_by(&sizes) {
            book.wrong(format!("MEMORY: too many {what}: {sizes:?}, {bounds:?}"));
            return;
        }
    }
}

/// Checks that with an empty queue, and some minutes later, no state is left.
pub(super) fn judge_calm(book: &Book, machine: &Machine) {
    if let Some(sizes) = sizes(machine)
        && machine.waiting() == Some(0)
        && sizes != (Sizes { down: sizes.down, ..Sizes::default() })
    {
        book.wrong(format!("MEMORY: nothing waits any more, and this is left: {sizes:?}"));
    }
}

fn sizes(machine: &Machine) -> Option<Sizes> {
    Some(machine.dispatch()?.sizes())
}
