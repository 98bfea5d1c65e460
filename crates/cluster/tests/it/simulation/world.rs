//! A cluster in one thread and virtual time: machines with a mail process, a local log and an engine server each.
//!
//! A seed gives the nodes, their clocks, the mail, the network and the faults; a run repeats exactly. Time is in
//! microseconds.

use super::by_hand::HandOrder;
use super::check::History;
use super::engine::{EngineServer, KeyValueStore};
use super::event::{Due, Event};
use super::faults::Fault;
use super::local_log::LocalLog;
use crate::chance::Chance;
use cluster::{ClusterId, Lane, Node, OnNoReplica, StreamId};
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

pub(super) const SECOND: u64 = 1_000_000;
pub(super) const MILLI: u64 = 1_000;
pub(super) const CLUSTER: ClusterId = ClusterId([7; 16]);
/// 2026-01-01T00:00:00Z
pub(super) const EPOCH_US: u64 = 1_767_225_600_000_000;
/// Transactions of a node at a time.
pub(super) const IN_FLIGHT_MAX: usize = 6;
/// Events of a run; more are a loop.
const EVENTS_MAX: u64 = 500_000;

/// The conditions of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    pub(super) copies: usize,
    pub(super) messages: u64,
    /// Seconds in which mail is submitted and faults begin.
    pub(super) busy_s: u64,
    /// Seconds after the last fault healed.
    pub(super) quiet_s: u64,
    pub(super) faults: Vec<Fault>,
    /// Orders of operators to adopt by hand.
    pub(super) orders: Vec<HandOrder>,
    /// Percent of answers and requests that are lost or late.
    pub(super) noise: u64,
    pub(super) policy: OnNoReplica,
    pub(super) is_sync_always: bool,
    /// Large bodies arrive piece by piece; otherwise their pieces come at once.
    pub(super) has_slow_clients: bool,
    /// An operator ends mail by hand whose delivery has failed.
    pub(super) has_ends_by_hand: bool,
    /// The newest block version of the program that a node begins with, and of the one with which it starts again.
    pub(super) newest: (u16, u16),
    /// The most claims that the key-value store lists at a time.
    pub(super) claims_max: Option<usize>,
    /// Octets of a lane from which it is compacted.
    pub(super) compaction_octets_min: usize,
    /// A watch tells nodes of keys.
    pub(super) has_watch: bool,
    pub(super) sabotage: cluster::Sabotage,
}

/// A machine with its mail process.
pub(super) struct Machine {
    pub(super) node: Option<Node>,
    pub(super) life: u32,
    pub(super) start: u32,
    pub(super) incarnation: u64,
    pub(super) log: LocalLog,
    pub(super) paused_until: u64,
    /// Recipients in transactions, and whether the other side has the message.
    pub(super) in_flight: BTreeMap<(QueueId, u32), bool>,
    pub(super) retry_at: BTreeMap<(QueueId, u32), u64>,
    pub(super) wake: Option<u64>,
    /// Parts per million that its clock is fast, and the point it counts from.
    rate_ppm: i64,
    clock_base: u64,
    pub(super) wall_step: i64,
    pub(super) is_draining: bool,
    /// It leaves the cluster for good, and is drained at this time.
    pub(super) drain_at: Option<u64>,
    pub(super) exits_at_release: bool,
    pub(super) is_restarting: bool,
}

pub(super) struct World {
    pub(super) now: u64,
    numbers: u64,
    queue: BinaryHeap<Due>,
    pub(super) chance: Chance,
    pub(super) plan: Plan,
    pub(super) machines: Vec<Machine>,
    pub(super) engines: Vec<EngineServer>,
    pub(super) store: KeyValueStore,
    /// Directed links between machines that lose everything.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// Blocks that a fault has changed.
    pub(super) damaged: BTreeSet<(StreamId, Lane, u64)>,
    /// Machines that cannot reach the key-value store.
    pub(super) without_store: BTreeSet<usize>,
    pub(super) is_noisy: bool,
    /// All streams that were ever made.
    pub(super) streams: BTreeSet<StreamId>,
    pub(super) history: History,
    pub(super) submitted: u64,
    events: u64,
    pub(super) is_logged: bool,
    /// Requests and answers too.
    is_detailed: bool,
    pub(super) asked: BTreeMap<String, u64>,
}

impl World {
    pub(super) fn new(seed: u64, plan: Plan) -> Self {
        let mut chance = Chance::new(seed);
        let machine = |chance: &mut Chance| Machine {
            node: None,
            life: 0,
            start: 0,
            incarnation: chance.next(),
            log: LocalLog::default(),
            paused_until: 0,
            in_flight: BTreeMap::new(),
            retry_at: BTreeMap::new(),
            wake: None,
            rate_ppm: chance.between(0, 10_000) as i64 - 5_000,
            clock_base: chance.below(1_000 * SECOND),
            wall_step: chance.below(2 * SECOND) as i64 - SECOND as i64,
            is_draining: false,
            drain_at: None,
            exits_at_release: false,
            is_restarting: false,
        };
        let machines = (0..plan.nodes).map(|_| machine(&mut chance)).collect();
        let engine = || EngineServer { is_up: true, ..EngineServer::default() };
        let mut world = Self {
            now: 0,
            numbers: 0,
            queue: BinaryHeap::new(),
            chance,
            machines,
            engines: (0..plan.nodes).map(|_| engine()).collect(),
            store: KeyValueStore::with_claims_max(plan.claims_max),
            cut: BTreeSet::new(),
            damaged: BTreeSet::new(),
            without_store: BTreeSet::new(),
            is_noisy: false,
            streams: BTreeSet::new(),
            history: History::default(),
            submitted: 0,
            events: 0,
            asked: BTreeMap::new(),
            is_logged: std::env::var("SIM_LOG").is_ok(),
            is_detailed: std::env::var("SIM_LOG").is_ok_and(|level| level == "2"),
            plan,
        };
        for node in 0..world.plan.nodes {
            world.start(node);
        }
        for _ in 0..world.plan.messages {
            let at = 3 * SECOND + world.chance.below(world.plan.busy_s * SECOND);
            let node = world.chance.below(world.plan.nodes as u64) as usize;
            world.push(at, Event::Submit { node });
        }
        for number in 0..world.plan.faults.len() {
            let fault = &world.plan.faults[number];
            let (begin, end) = (fault.begin_s * SECOND, (fault.begin_s + fault.seconds) * SECOND);
            world.push(begin, Event::Begin(number));
            world.push(end, Event::Heal(number));
        }
        for number in 0..world.plan.orders.len() {
            let at = world.plan.orders[number].at_ms * MILLI;
            world.push(at, Event::Order(number));
        }
        if !world.plan.is_sync_always {
            world.push(10 * SECOND, Event::SyncEngines);
        }
        world
    }

    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.numbers += 1;
        self.queue.push(Due(at, self.numbers, event));
    }

    pub(super) fn log(&self, text: impl FnOnce() -> String) {
        if self.is_logged {
            println!("{:>12.6} {}", self.now as f64 / 1e6, text());
        }
    }

    pub(super) fn detail(&self, node: usize, what: impl std::fmt::Debug) {
        if self.is_detailed {
            let text: String = format!("{what:?}").chars().take(400).collect();
            self.log(|| format!("mx{node} {text}"));
        }
    }

    /// Plays the run and checks its end.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let last = self.plan.faults.iter().map(|fault| fault.begin_s + fault.seconds).max().unwrap_or(0);
        self.play_until(last.max(self.plan.busy_s) + self.plan.quiet_s)?;
        self.check_end()
    }

    /// Plays the run up to a second.
    pub(super) fn play_until(&mut self, end_s: u64) -> Result<(), String> {
        self.play_until_us(end_s * SECOND)
    }

    /// Plays the run up to a time.
    pub(super) fn play_until_us(&mut self, end: u64) -> Result<(), String> {
        while self.queue.peek().is_some_and(|Due(at, ..)| *at <= end) {
            let Some(Due(at, _, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            self.events += 1;
            if self.events > EVENTS_MAX {
                for (what, count) in self.asked.iter().filter(|(_, count)| **count > 3000) {
                    println!("{count} {what}");
                }
                let wakes = |node: usize| self.machines[node].node.as_ref().map(|n| (n.wake_at(), self.local(node)));
                let wakes: Vec<_> = (0..self.plan.nodes).map(wakes).collect();
                return Err(format!("{EVENTS_MAX} events: something turns in circles: {wakes:?}"));
            }
            self.take(event);
            if let Some(violation) = self.history.violation.take() {
                return Err(format!("at {:.6} s: {violation}", self.now as f64 / 1e6));
            }
        }
        Ok(())
    }

    /// The clock of a machine.
    pub(super) fn local(&self, node: usize) -> Duration {
        let machine = &self.machines[node];
        let skew = self.now as i64 * machine.rate_ppm / 1_000_000;
        Duration::from_micros((self.now + machine.clock_base).saturating_add_signed(skew))
    }

    pub(super) fn wall_us(&self, node: usize) -> u64 {
        (EPOCH_US + self.now).saturating_add_signed(self.machines[node].wall_step)
    }

    fn take(&mut self, event: Event) {
        if let Some((node, life)) = event.process() {
            let machine = &self.machines[node];
            if machine.life != life || machine.node.is_none() {
                return;
            }
            if self.now < machine.paused_until {
                let at = machine.paused_until;
                self.push(at, event);
                return;
            }
        }
        match event {
            Event::Submit { node } => self.submit(node),
            Event::Piece { node, id, recipients, from, .. } => self.piece(node, id, recipients, from),
            Event::AtEngine { from, life, engine, token, request } => {
                self.at_engine(from, life, engine, token, request)
            }
            Event::AtStore { from, life, engine, token, request } => self.at_store(from, life, engine, token, request),
            Event::LogAnswer { node, engine, token, reply, .. } => {
                self.detail(node, (token, &reply));
                if !self.is_cut(engine, node) {
                    self.with(node, |machine, now, _| machine.log_answered(now, token, reply));
                }
            }
            Event::StoreAnswer { node, engine, token, reply, .. } => {
                self.detail(node, (token, &reply));
                if !self.is_cut(engine, node) && !self.without_store.contains(&node) {
                    self.with(node, |machine, now, wall| machine.coordination_answered(now, wall, token, reply));
                }
            }
            Event::Changed { node, key, .. } => {
                self.with(node, |machine, now, _| machine.coordination_changed(now, &key));
            }
            Event::Wake { node, at, .. } => {
                // An earlier wake took the place of some.
                if self.machines[node].wake == Some(at) {
                    self.machines[node].wake = None;
                    self.poll(node);
                }
            }
            Event::Synced { node, id, .. } => {
                self.machines[node].log.synced(id);
                self.with(node, |machine, now, _| machine.stored(now, id));
            }
            Event::Forgotten { node, stream, .. } => {
                self.machines[node].log.moves_synced();
                self.with(node, |machine, now, _| machine.forgotten(now, stream));
            }
            Event::Read { node, id, .. } => {
                let found = self.machines[node].log.read(id);
                self.with(node, |machine, now, _| machine.read(now, id, found));
            }
            Event::Tick { node, life } => self.tick(node, life),
            Event::Dot { node, id, recipient, .. } => self.dot(node, id, recipient),
            Event::Taken { node, id, recipient, is_delivered, .. } => self.taken(node, id, recipient, is_delivered),
            Event::Begin(number) => self.begin(number),
            Event::Heal(number) => self.heal(number),
            Event::Order(number) => self.order(number),
            Event::SyncEngines => {
                self.engines.iter_mut().for_each(EngineServer::sync);
                let at = self.now + 120 * SECOND;
                self.push(at, Event::SyncEngines);
            }
        }
    }

    fn begin(&mut self, number: usize) {
        let fault = self.plan.faults[number].clone();
        self.log(|| format!("fault {fault:?}"));
        self.begin_fault(&fault);
    }

    fn heal(&mut self, number: usize) {
        let fault = self.plan.faults[number].clone();
        self.log(|| format!("heals {:?}", fault.kind));
        self.heal_fault(&fault);
    }
}
