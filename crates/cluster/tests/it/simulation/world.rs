//! A cluster in one thread and virtual time: machines with a mail process, a local log and an engine server each.
//!
//! A seed gives the nodes, their clocks, the mail, the network and the faults; a run repeats exactly. Time is in
//! microseconds.

use super::check::History;
use super::clients::body_of;
use super::engine::{EngineServer, KeyValueStore};
use super::event::{Due, Event};
use super::faults::Fault;
use super::local_log::{LocalLog, State};
use crate::chance::Chance;
use cluster::{
    Accepted, Action, BlockVersions, ClusterId, Content, CoordinationRequest, Incarnation, Lane, LogReply, LogRequest,
    NewMessage, Node, NodeId, OnNoReplica, Report, Settings, StoredBody, StreamId, Token,
};
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

pub(super) const SECOND: u64 = 1_000_000;
/// A version that only the simulation has.
const NEWER: u16 = cluster::BLOCK_VERSION + 1;
pub(super) const READS: BlockVersions = BlockVersions { oldest: 1, newest: NEWER };
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
    /// Percent of answers and requests that are lost or late.
    pub(super) noise: u64,
    pub(super) policy: OnNoReplica,
    pub(super) is_sync_always: bool,
    /// Large bodies arrive piece by piece; otherwise their pieces come at once.
    pub(super) has_slow_clients: bool,
    /// A node that starts again is of a program that reads and writes one more block version.
    pub(super) has_upgrade: bool,
    /// A watch tells nodes of keys.
    pub(super) has_watch: bool,
    pub(super) sabotage: cluster::Sabotage,
}

/// A machine with its mail process.
pub(super) struct Machine {
    pub(super) node: Option<Node>,
    pub(super) life: u32,
    start: u32,
    incarnation: u64,
    pub(super) log: LocalLog,
    pub(super) paused_until: u64,
    /// Recipients in transactions, and whether the other side has the message.
    pub(super) in_flight: BTreeMap<(QueueId, u32), bool>,
    pub(super) retry_at: BTreeMap<(QueueId, u32), u64>,
    wake: Option<u64>,
    /// Parts per million that its clock is fast, and the point it counts from.
    rate_ppm: i64,
    clock_base: u64,
    pub(super) wall_step: i64,
    pub(super) is_draining: bool,
    exits_at_release: bool,
    is_restarting: bool,
}

pub(super) struct World {
    pub(super) now: u64,
    numbers: u64,
    queue: BinaryHeap<Due>,
    pub(super) chance: Chance,
    pub(super) plan: Plan,
    pub(super) machines: Vec<Machine>,
    pub(super) engines: Vec<EngineServer>,
    store: KeyValueStore,
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
    is_logged: bool,
    /// Requests and answers too.
    is_detailed: bool,
    asked: BTreeMap<String, u64>,
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
            store: KeyValueStore::default(),
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

    fn detail(&self, node: usize, what: impl std::fmt::Debug) {
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
        while self.queue.peek().is_some_and(|Due(at, ..)| *at <= end_s * SECOND) {
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

    fn wall_us(&self, node: usize) -> u64 {
        (EPOCH_US + self.now).saturating_add_signed(self.machines[node].wall_step)
    }

    pub(super) fn settings(&self, node: usize) -> Settings {
        let machine = &self.machines[node];
        let id = NodeId(node as u16 + 1);
        let mut settings = Settings::new(CLUSTER, id, Incarnation(machine.incarnation), machine.start);
        settings.copies = self.plan.copies;
        settings.done_unstored_max = 8;
        settings.inline_body_max = 2_000;
        settings.piece_octets = 900;
        settings.compaction_octets_min = 6_000;
        settings.scan_octets = 2_000;
        settings.part_messages_max = 5;
        settings.block_versions.newest = if machine.life > 0 && self.plan.has_upgrade { NEWER } else { 1 };
        settings.sabotage = self.plan.sabotage;
        settings
    }

    /// Starts the mail process of a machine.
    pub(super) fn start(&mut self, node: usize) {
        if self.machines[node].node.is_some() {
            return;
        }
        self.machines[node].start += 1;
        let settings = self.settings(node);
        let now = self.local(node);
        let streams: Vec<StreamId> = self.streams.iter().copied().collect();
        let machine = &mut self.machines[node];
        machine.life += 1;
        machine.wake = None;
        (machine.is_draining, machine.exits_at_release, machine.is_restarting) = (false, false, false);
        let local = machine.log.live();
        let life = machine.life;
        machine.node = Some(Node::new(now, settings, format!("mx{node}"), &streams, local));
        let at = self.now;
        self.push(at + 50 * MILLI, Event::Tick { node, life });
        self.log(|| format!("mx{node} starts, life {life}"));
        self.poll(node);
    }

    /// Ends the mail process of a machine as `kill -9` does; the disk keeps what was synced.
    pub(super) fn crash(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if machine.node.take().is_none() {
            return;
        }
        machine.life += 1;
        machine.paused_until = 0;
        let past_dot = machine.in_flight.values().filter(|is_taken| **is_taken).count();
        machine.in_flight.clear();
        let lost = machine.log.crash();
        self.history.may_repeat += past_dot + lost;
        self.log(|| format!("mx{node} crashes; {past_dot} past the dot, {lost} results lost"));
    }

    /// Puts a new disk into a machine whose process does not run.
    pub(super) fn replace_disk(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        for (id, entry) in &machine.log.entries {
            if entry.state == State::Live {
                self.history.on_lost_disk.insert(*id);
            }
        }
        machine.log = LocalLog::default();
        machine.incarnation = self.chance.next();
        machine.start = 0;
        self.log(|| format!("mx{node} gets a new disk"));
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        from != to && self.cut.contains(&(from, to))
    }

    fn travel(&mut self, from: usize, to: usize) -> u64 {
        let usual = if from == to { self.chance.between(50, 300) } else { self.chance.between(200, 3 * MILLI) };
        let is_late = self.is_noisy && self.chance.percent(self.plan.noise / 2);
        if is_late { usual + self.chance.between(SECOND, 9 * SECOND) } else { usual }
    }

    fn is_lost(&mut self, from: usize, to: usize) -> bool {
        self.is_cut(from, to) || self.is_noisy && from != to && self.chance.percent(self.plan.noise)
    }

    /// An engine by which a machine reaches the key-value store now.
    fn store_engine(&self, node: usize) -> Option<usize> {
        if self.without_store.contains(&node) {
            return None;
        }
        let count = self.plan.nodes;
        // Two machines have a third server elsewhere as a voter.
        let voters = count.max(3);
        let sees = |a: usize, b: usize| !self.is_cut(a, b) && !self.is_cut(b, a);
        (0..count).map(|step| (node + step) % count).find(|engine| {
            let up = (0..count).filter(|other| self.engines[*other].is_up && sees(*engine, *other)).count();
            let outside = voters - count;
            self.engines[*engine].is_up && !self.is_cut(node, *engine) && (up + outside) * 2 > voters
        })
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

    /// Calls the node of a machine, and carries out what it wants.
    pub(super) fn with(&mut self, node: usize, call: impl FnOnce(&mut Node, Duration, u64)) {
        let (now, wall) = (self.local(node), self.wall_us(node));
        if let Some(machine) = &mut self.machines[node].node {
            call(machine, now, wall);
            self.poll(node);
        }
    }

    fn poll(&mut self, node: usize) {
        let (now, wall) = (self.local(node), self.wall_us(node));
        let mut actions = 0;
        while let Some(action) = self.machines[node].node.as_mut().and_then(|machine| machine.poll(now, wall)) {
            self.act(node, action);
            actions += 1;
            if actions > 100_000 {
                self.history.violate(format!("mx{node} does not stop to ask"));
                return;
            }
        }
        let machine = &mut self.machines[node];
        let Some(wake) = machine.node.as_ref().and_then(Node::wake_at) else { return };
        let wait = wake.saturating_sub(now).as_micros() as u64;
        let at = self.now + (wait + wait / 100).max(MILLI);
        if machine.wake.is_none_or(|wake| at < wake) {
            machine.wake = Some(at);
            let life = machine.life;
            self.push(at, Event::Wake { node, life, at });
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        if self.is_logged {
            let text = format!("{action:?}");
            *self.asked.entry(format!("mx{node} {}", text.chars().take(90).collect::<String>())).or_default() += 1;
        }
        self.detail(node, &action);
        let life = self.machines[node].life;
        match action {
            Action::Log { token, request } => {
                let engine = usize::from(request.stream.holder.0) - 1;
                self.streams.insert(request.stream);
                if !self.is_lost(node, engine) {
                    let at = self.now + self.travel(node, engine);
                    self.push(at, Event::AtEngine { from: node, life, engine, token, request });
                }
            }
            Action::Coordinate { token, request } => {
                let Some(engine) = self.store_engine(node) else { return };
                if !self.is_lost(node, engine) {
                    let at = self.now + self.travel(node, engine);
                    self.push(at, Event::AtStore { from: node, life, engine, token, request });
                }
            }
            Action::Answer { id, answer } => self.answer(node, id, answer),
            Action::Read { id } => {
                let at = self.now + self.chance.between(100, 5 * MILLI);
                self.push(at, Event::Read { node, life, id });
            }
            Action::Store(accepted) => self.store_adopted(node, life, *accepted),
            Action::Complete(list) => {
                for one in list {
                    self.machines[node].log.finish(one.id, one.recipient);
                }
            }
            Action::Forget { stream, messages } => {
                for (id, hops) in messages {
                    self.machines[node].log.forget(id, hops);
                }
                let at = self.now + self.chance.between(100, 30 * MILLI);
                self.push(at, Event::Forgotten { node, life, stream });
            }
            Action::Report(report) => {
                self.log(|| format!("mx{node} {report:?}"));
                self.history.report(&report);
                if let Report::PossibleDuplicate { id } | Report::AdoptionUnknown { id } = report {
                    self.machines[node].log.flag(id);
                }
                if let Report::AdoptionUnknown { id } = report {
                    self.history.unknown.insert(id);
                }
                if let Report::AdoptionBegan { .. } = report {
                    // The owner's results that the stream does not have, and its transactions.
                    self.history.may_repeat += self.settings(node).done_unstored_max + 3 * IN_FLIGHT_MAX;
                }
            }
        }
    }

    fn store_adopted(&mut self, node: usize, life: u32, accepted: Accepted) {
        let (id, hops) = (accepted.id, accepted.hops);
        let StoredBody::Whole(body) = accepted.body else { return self.history.violate("a body in pieces".into()) };
        if body != body_of(id) {
            self.history.violate(format!("{id} was adopted with other octets"));
        }
        if !self.machines[node].log.wants(id, hops) {
            let (now, _) = (self.local(node), ());
            if let Some(machine) = &mut self.machines[node].node {
                machine.store_refused(now, id);
            }
            return;
        }
        let new = NewMessage {
            id,
            queued_at_us: accepted.queued_at_us,
            expires_at_us: accepted.expires_at_us,
            recipients: accepted.recipients,
            envelope: accepted.envelope,
            content: Content::Whole(body),
        };
        self.machines[node].log.add(&new, hops, accepted.finished.into_iter().collect(), accepted.may_be_duplicate);
        let at = self.now + self.chance.between(500, 20 * MILLI);
        self.push(at, Event::Synced { node, life, id });
    }

    fn at_engine(&mut self, from: usize, life: u32, engine: usize, token: Token, request: LogRequest) {
        if !self.engines[engine].is_up || self.is_cut(from, engine) {
            return;
        }
        if self.engines[engine].is_slow {
            // Slow from the inside: the request waits, and may find another state than when it arrived.
            if self.chance.percent(60) {
                let at = self.now + self.chance.between(100 * MILLI, 2 * SECOND);
                self.push(at, Event::AtEngine { from, life, engine, token, request });
                return;
            }
        }
        let (stream, lane) = (request.stream, request.lane);
        let reply = self.engines[engine].perform(stream, lane, request.operation);
        if let LogReply::Appended { sequence } = reply {
            self.check_chain(engine, stream, lane, sequence);
        }
        if self.is_lost(engine, from) {
            return;
        }
        let at = self.now + self.chance.between(300, 4 * MILLI) + self.travel(engine, from);
        self.push(at, Event::LogAnswer { node: from, life, engine, token, reply });
    }

    fn at_store(&mut self, from: usize, life: u32, engine: usize, token: Token, request: CoordinationRequest) {
        let is_reached = self.store_engine(from).is_some() && self.engines[engine].is_up && !self.is_cut(from, engine);
        if !is_reached {
            return;
        }
        let now = self.now;
        let key = match &request {
            CoordinationRequest::Put { key, .. } | CoordinationRequest::Delete { key, .. } => Some(key.clone()),
            _ => None,
        };
        let reply = self.store.perform(now, request);
        if let Some(key) = key.filter(|_| self.plan.has_watch) {
            self.tell_watches(&key);
        }
        if self.is_lost(engine, from) {
            return;
        }
        let at = self.now + self.chance.between(MILLI, 8 * MILLI) + self.travel(engine, from);
        self.push(at, Event::StoreAnswer { node: from, life, engine, token, reply });
    }

    /// Some nodes learn of a key, also of one that did not change.
    fn tell_watches(&mut self, key: &str) {
        for node in 0..self.plan.nodes {
            if self.chance.percent(60) {
                let (at, life) = (self.now + self.chance.between(MILLI, SECOND), self.machines[node].life);
                self.push(at, Event::Changed { node, life, key: key.to_owned() });
            }
        }
    }

    fn tick(&mut self, node: usize, life: u32) {
        self.machines[node].log.results_synced();
        if self.chance.percent(4)
            && self.store_engine(node).is_some()
            && let Some(machine) = &mut self.machines[node].node
        {
            let streams: Vec<StreamId> = self.streams.iter().copied().collect();
            machine.known_streams(&streams);
        }
        self.start_deliveries(node, life);
        self.drain_on(node);
        let is_busy = self.machines[node].log.live_count() > 0 || self.machines[node].is_draining;
        let wait = if is_busy { self.chance.between(20 * MILLI, 100 * MILLI) } else { 500 * MILLI };
        self.push(self.now + wait, Event::Tick { node, life });
    }

    /// Begins a planned exit.
    pub(super) fn drain(&mut self, node: usize) {
        self.machines[node].is_draining = true;
        self.with(node, |machine, now, _| machine.drain(now));
    }

    fn drain_on(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if !machine.is_draining || !machine.in_flight.is_empty() {
            return;
        }
        let Some(process) = &mut machine.node else { return };
        process.release();
        if process.is_released() && !machine.exits_at_release {
            machine.exits_at_release = true;
            self.with(node, |machine, now, _| machine.leave(now));
        } else if self.machines[node].exits_at_release && !self.machines[node].is_restarting {
            // One tick later: the entry is gone, or will expire.
            self.machines[node].is_restarting = true;
        } else if self.machines[node].is_restarting {
            self.log(|| format!("mx{node} exits as planned"));
            self.machines[node].log.results_synced();
            let machine = &mut self.machines[node];
            machine.node = None;
            machine.life += 1;
            machine.log.crash();
        } else {
            self.poll(node);
        }
    }
}
