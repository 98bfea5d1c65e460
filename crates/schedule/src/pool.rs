//! Connections of all destinations, and the budget they share.
//!
//! A connection is *opening* until it is greeted, then *awake* (about to ask for work), *busy* (it got a job and will ask
//! again when it can), *idle* (it asked and got nothing; only a wake brings it back) or *closing*. All of them count in
//! the budget until they are over.
//!
//! Left for later: a second, small budget for destinations that answer slowly.

use std::collections::{BTreeMap, VecDeque};

use mail::QueueId;

use crate::chance::ById;
use crate::job::{ConnectionId, DestinationId, Positions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Opening,
    Awake,
    Busy,
    Idle,
    Closing,
}

/// A job that a connection has.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) message: QueueId,
    pub(crate) recipients: Positions,
    pub(crate) warned: bool,
    /// When it was taken, by the scheduler's count of steps.
    pub(crate) taken: u64,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) destination: DestinationId,
    pub(crate) phase: Phase,
    /// What it has, in the order taken.
    pub(crate) flights: VecDeque<Flight>,
    /// Jobs it was given.
    pub(crate) taken: u32,
    /// A job of it came to an end.
    pub(crate) served: bool,
    /// It was told once that there is nothing to do.
    pub(crate) idled: bool,
    /// It was opened to see whether a destination is up again.
    pub(crate) probe: bool,
    /// When it was opened, by the scheduler's count of steps.
    pub(crate) opened: u64,
    /// Its place among those that may be closed for others.
    spare: Option<u64>,
}

/// Connections of one destination in each phase.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) opening: u32,
    pub(crate) awake: u32,
    pub(crate) busy: u32,
    pub(crate) idle: u32,
    pub(crate) closing: u32,
}

impl Counts {
    fn of(&mut self, phase: Phase) -> &mut u32 {
        match phase {
            Phase::Opening => &mut self.opening,
            Phase::Awake => &mut self.awake,
            Phase::Busy => &mut self.busy,
            Phase::Idle => &mut self.idle,
            Phase::Closing => &mut self.closing,
        }
    }

    pub(crate) const fn all(&self) -> u32 {
        self.live() + self.opening
    }

    /// Greeted and not over.
    pub(crate) const fn live(&self) -> u32 {
        self.staying() + self.closing
    }

    /// Greeted, and not told to close.
    pub(crate) const fn staying(&self) -> u32 {
        self.awake + self.busy + self.idle
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    connections: ById<ConnectionId, Connection>,
    closing: usize,
    /// Idle connections without a job in flight, longest idle first.
    spare: BTreeMap<u64, ConnectionId>,
    next: u64,
    next_spare: u64,
}

impl Pool {
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// The jobs of all connections.
    pub(crate) fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.connections.values().flat_map(|connection| &connection.flights)
    }

    /// Connections that were told to close and are not over.
    pub(crate) fn closing(&self) -> usize {
        self.closing
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    /// The connection that has been idle for longest.
    pub(crate) fn longest_idle(&self) -> Option<ConnectionId> {
        self.spare.values().next().copied()
    }

    pub(crate) fn open(
        &mut self,
        destination: DestinationId,
        counts: &mut Counts,
        probe: bool,
        opened: u64,
    ) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        counts.opening += 1;
        let connection = Connection {
            destination,
            phase: Phase::Opening,
            flights: VecDeque::new(),
            taken: 0,
            served: false,
            idled: false,
            probe,
            opened,
            spare: None,
        };
        self.connections.insert(id, connection);
        id
    }

    /// Brings a connection into another phase. `idle` is its destination's stack of idle ones.
    pub(crate) fn turn(&mut self, id: ConnectionId, to: Phase, counts: &mut Counts, idle: &mut Vec<ConnectionId>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let from = std::mem::replace(&mut connection.phase, to);
        if from == to {
            return;
        }
        *counts.of(from) -= 1;
        *counts.of(to) += 1;
        if from == Phase::Idle {
            idle.retain(|&other| other != id);
        }
        if to == Phase::Idle {
            connection.idled = true;
            idle.push(id);
        }
        if to == Phase::Closing {
            self.closing += 1;
        }
        self.judge_spare(id);
    }

    /// Puts a connection among those that may be closed for others, or takes it out.
    pub(crate) fn judge_spare(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_spare = connection.phase == Phase::Idle && connection.flights.is_empty();
        match (is_spare, connection.spare) {
            (true, None) => {
                connection.spare = Some(self.next_spare);
                self.spare.insert(self.next_spare, id);
                self.next_spare += 1;
            }
            (false, Some(place)) => {
                connection.spare = None;
                self.spare.remove(&place);
            }
            _ => {}
        }
    }

    /// Forgets a connection that is over.
    pub(crate) fn remove(
        &mut self,
        id: ConnectionId,
        counts: &mut Counts,
        idle: &mut Vec<ConnectionId>,
    ) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        *counts.of(connection.phase) -= 1;
        match connection.phase {
            Phase::Closing => self.closing -= 1,
            Phase::Idle => idle.retain(|&other| other != id),
            Phase::Opening | Phase::Awake | Phase::Busy => {}
        }
        if let Some(place) = connection.spare {
            self.spare.remove(&place);
        }
        Some(connection)
    }
}
