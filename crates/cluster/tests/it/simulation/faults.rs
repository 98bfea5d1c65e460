//! The faults of a run: what begins, and what heals.

use super::world::{CLUSTER, World};
use crate::chance::Chance;
use cluster::{Block, Record};

/// A fault that lasts for a time.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) begin_s: u64,
    pub(super) seconds: u64,
    pub(super) node: usize,
    pub(super) kind: FaultKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// The mail process ends, the engine stays.
    Crash,
    /// Process and engine end.
    CrashMachine,
    /// The engine ends.
    CrashEngine,
    /// The process stands still: beyond `own_time` it is a zombie owner.
    Pause,
    /// The machine is cut off from all others.
    Isolate,
    /// One pair of machines is cut.
    CutPair(usize),
    /// One direction between two machines.
    CutOneWay(usize),
    /// The mail process cannot reach the key-value store.
    CutStore,
    /// The engine answers late.
    SlowEngine,
    /// Requests and answers everywhere are lost and late.
    Noise,
    /// The engine has no room.
    FullEngine,
    /// The engine loses all streams that it holds.
    LoseEngineData,
    /// The disk of the local log is new; the engine's too if it says so.
    ReplaceDisk { with_engine: bool },
    /// The clock of the day steps.
    ClockStep,
    /// A planned exit.
    Drain,
    /// A departure for good; the node joins again when it is healed.
    Depart,
    /// All machines lose power; this one comes back with a new disk for its local log.
    PowerCutAndDisk,
    /// All engines end.
    NoEngines,
    /// A bit of a stored block changes, or the engine notices that and drops the block.
    DamageBlock,
}

pub(super) const fn fault(begin_s: u64, seconds: u64, node: usize, kind: FaultKind) -> Fault {
    Fault { begin_s, seconds, node, kind }
}

impl Fault {
    pub(super) fn loses_data(&self) -> bool {
        self.kind.loses_data()
    }
}

impl FaultKind {
    fn loses_data(&self) -> bool {
        matches!(self, Self::LoseEngineData | Self::ReplaceDisk { .. } | Self::PowerCutAndDisk | Self::DamageBlock)
    }
}

/// One to four faults. At most one of them loses a disk, and one steps a clock.
pub(super) fn choose(chance: &mut Chance, nodes: usize, busy_s: u64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let (mut has_lost, mut has_stepped) = (false, false);
    for _ in 0..chance.between(1, 4) {
        let node = chance.below(nodes as u64) as usize;
        let other = (node + 1 + chance.below(nodes as u64 - 1) as usize) % nodes;
        let kind = match chance.below(20) {
            0 | 1 => FaultKind::Crash,
            2 | 3 => FaultKind::CrashMachine,
            4 => FaultKind::CrashEngine,
            5 | 6 => FaultKind::Pause,
            7 | 8 => FaultKind::Isolate,
            9 => FaultKind::CutPair(other),
            10 | 11 => FaultKind::CutOneWay(other),
            12 => FaultKind::CutStore,
            13 => FaultKind::SlowEngine,
            14 => FaultKind::Noise,
            15 => FaultKind::FullEngine,
            16 => FaultKind::LoseEngineData,
            17 => FaultKind::ReplaceDisk { with_engine: chance.percent(50) },
            18 => FaultKind::Drain,
            _ => chance.pick(&[0, 1, 2, 2]).into(),
        };
        if kind.loses_data() && std::mem::replace(&mut has_lost, true) {
            continue;
        }
        // Two steps of one clock are more than the others tolerate.
        if kind == FaultKind::ClockStep && std::mem::replace(&mut has_stepped, true) {
            continue;
        }
        let seconds = match chance.below(4) {
            0 => chance.between(1, 5),
            1 => chance.between(10, 30),
            2 => chance.between(20, 50),
            _ => chance.between(50, 110),
        };
        faults.push(Fault { begin_s: chance.between(4, busy_s), seconds, node, kind });
    }
    faults
}

/// Damages blocks at one node, if no other fault loses data.
pub(super) fn add_damage(faults: &mut Vec<Fault>, chance: &mut Chance, nodes: usize, busy_s: u64) {
    if faults.iter().any(|fault| fault.kind.loses_data()) {
        return;
    }
    let node = chance.below(nodes as u64) as usize;
    for _ in 0..chance.between(1, 3) {
        let begin_s = chance.between(6, busy_s + 60);
        faults.push(Fault { begin_s, seconds: 1, node, kind: FaultKind::DamageBlock });
    }
}

/// A process stands still until after its mail was adopted, and goes on with what piled up meanwhile.
pub(super) fn zombie(chance: &mut Chance, nodes: usize) -> Fault {
    let node = chance.below(nodes as u64) as usize;
    Fault { begin_s: chance.between(10, 25), seconds: chance.between(16, 35), node, kind: FaultKind::Pause }
}

/// One or two machines die for a minute or two, and from their adoption on the processes of others die in turn.
pub(super) fn dying_adopters(chance: &mut Chance, nodes: usize) -> Vec<Fault> {
    let node = chance.below(nodes as u64) as usize;
    let mut faults = Vec::new();
    let kind = if chance.percent(30) { FaultKind::Crash } else { FaultKind::CrashMachine };
    let (begin_s, seconds) = (chance.between(15, 45), chance.between(20, 120));
    faults.push(Fault { begin_s, seconds, node, kind });
    if chance.percent(60) {
        let other = (node + 1 + chance.below(nodes as u64 - 1) as usize) % nodes;
        let begin_s = begin_s + chance.below(12);
        faults.push(Fault { begin_s, seconds: chance.between(20, 120), node: other, kind: FaultKind::CrashMachine });
    }
    if chance.percent(60) {
        faults.push(Fault { begin_s: begin_s + 5, seconds: chance.between(20, 90), node, kind: FaultKind::Noise });
    }
    for _ in 0..chance.between(2, 8) {
        let other = (node + 1 + chance.below(nodes as u64 - 1) as usize) % nodes;
        let begin_s = begin_s + chance.between(14, 40);
        faults.push(Fault { begin_s, seconds: chance.between(1, 20), node: other, kind: FaultKind::Crash });
    }
    faults
}

/// The processes of two nodes die for most of a minute, and those of others within their adoptions.
pub(super) fn dying_deputies(chance: &mut Chance, nodes: usize) -> Vec<Fault> {
    let node = chance.below(nodes as u64) as usize;
    let other = |chance: &mut Chance| (node + 1 + chance.below(nodes as u64 - 1) as usize) % nodes;
    let crash = |begin_s, seconds, node| Fault { begin_s, seconds, node, kind: FaultKind::Crash };
    let begin_s = chance.between(15, 28);
    let mut faults = vec![crash(begin_s, chance.between(32, 45), node)];
    faults.push(crash(begin_s + chance.below(4), chance.between(30, 60), other(chance)));
    for _ in 0..chance.between(1, 4) {
        faults.push(crash(begin_s + chance.between(27, 36), chance.between(5, 25), other(chance)));
    }
    faults
}

/// All machines lose power within the busy time, and one comes back with a new disk.
pub(super) fn power_cut_and_disk(chance: &mut Chance, nodes: usize, busy_s: u64) -> Fault {
    let node = chance.below(nodes as u64) as usize;
    Fault { begin_s: chance.between(10, busy_s), seconds: 40, node, kind: FaultKind::PowerCutAndDisk }
}

impl From<u8> for FaultKind {
    fn from(number: u8) -> Self {
        match number {
            0 => Self::ClockStep,
            1 => Self::NoEngines,
            _ => Self::PowerCutAndDisk,
        }
    }
}

impl World {
    pub(super) fn begin_fault(&mut self, fault: &Fault) {
        let node = fault.node;
        match fault.kind {
            FaultKind::Crash => self.crash(node),
            FaultKind::CrashMachine => {
                self.crash(node);
                self.stop_engine(node);
            }
            FaultKind::CrashEngine => self.stop_engine(node),
            FaultKind::Pause => {
                let until = self.now + fault.seconds * super::world::SECOND;
                self.machines[node].paused_until = until;
            }
            FaultKind::Isolate => {
                for other in (0..self.plan.nodes).filter(|other| *other != node) {
                    self.cut.extend([(node, other), (other, node)]);
                }
            }
            FaultKind::CutPair(other) => self.cut.extend([(node, other), (other, node)]),
            FaultKind::CutOneWay(other) => drop(self.cut.insert((node, other))),
            FaultKind::CutStore => drop(self.without_store.insert(node)),
            FaultKind::SlowEngine => self.engines[node].is_slow = true,
            FaultKind::Noise => self.is_noisy = true,
            FaultKind::FullEngine => self.engines[node].is_full = true,
            FaultKind::LoseEngineData => {
                let keeps_names = self.chance.percent(50);
                self.engines[node].lose_all(keeps_names);
            }
            FaultKind::ReplaceDisk { with_engine } => {
                self.excuse_unreplicated(node);
                self.crash(node);
                self.replace_disk(node);
                if with_engine {
                    let keeps_names = self.chance.percent(50);
                    self.engines[node].lose_all(keeps_names);
                }
            }
            FaultKind::ClockStep => self.machines[node].wall_step += 50 * super::world::SECOND as i64,
            FaultKind::Drain => self.drain(node),
            FaultKind::Depart => self.depart(node),
            FaultKind::PowerCutAndDisk => {
                self.excuse_unreplicated(node);
                for machine in 0..self.plan.nodes {
                    self.crash(machine);
                    self.stop_engine(machine);
                }
                self.replace_disk(node);
            }
            FaultKind::DamageBlock => self.damage_block(node),
            FaultKind::NoEngines => (0..self.plan.nodes).for_each(|engine| self.stop_engine(engine)),
        }
    }

    fn damage_block(&mut self, engine: usize) {
        let engine = &mut self.engines[engine];
        let lanes: Vec<_> =
            engine.lanes.iter().filter(|(_, lane)| !lane.blocks.is_empty()).map(|(key, _)| *key).collect();
        if lanes.is_empty() {
            return;
        }
        let key = self.chance.pick(&lanes);
        let Some(lane) = engine.lanes.get_mut(&key) else { return };
        let sequences: Vec<u64> = lane.blocks.keys().copied().collect();
        let sequence = self.chance.pick(&sequences);
        let Some(block) = lane.blocks.remove(&sequence) else { return };
        let done = Block::read(CLUSTER, &block).map_or(0, |block| completions(&block));
        if self.chance.percent(70) {
            let mut octets = block.to_vec();
            let bit = self.chance.below(octets.len() as u64 * 8);
            octets[(bit / 8) as usize] ^= 1 << (bit % 8);
            lane.blocks.insert(sequence, octets.into());
        }
        self.damaged.insert((key.0, key.1, sequence));
        // Its completions may be all that an adopter has of them.
        self.history.may_repeat += done;
        self.log(|| format!("block {sequence} of {} is damaged", key.0.name(key.1)));
    }

    fn stop_engine(&mut self, engine: usize) {
        self.engines[engine].is_up = false;
        if !self.plan.is_sync_always {
            self.engines[engine].lose_unsynced();
        }
    }

    pub(super) fn heal_fault(&mut self, fault: &Fault) {
        let node = fault.node;
        match fault.kind {
            FaultKind::Crash | FaultKind::ReplaceDisk { .. } | FaultKind::Drain => self.start_again(node),
            FaultKind::CrashMachine | FaultKind::Depart => {
                self.engines[node].is_up = true;
                self.start_again(node);
            }
            FaultKind::CrashEngine => self.engines[node].is_up = true,
            FaultKind::Pause | FaultKind::LoseEngineData | FaultKind::ClockStep | FaultKind::DamageBlock => {}
            FaultKind::Isolate => self.cut.retain(|(a, b)| *a != node && *b != node),
            FaultKind::CutPair(other) | FaultKind::CutOneWay(other) => {
                self.cut.remove(&(node, other));
                self.cut.remove(&(other, node));
            }
            FaultKind::CutStore => drop(self.without_store.remove(&node)),
            FaultKind::SlowEngine => self.engines[node].is_slow = false,
            FaultKind::Noise => self.is_noisy = false,
            FaultKind::FullEngine => self.engines[node].is_full = false,
            FaultKind::PowerCutAndDisk | FaultKind::NoEngines => {
                for machine in 0..self.plan.nodes {
                    self.engines[machine].is_up = true;
                    self.start_again(machine);
                }
            }
        }
    }

    /// Starts a process that a fault ended, also one whose planned exit did not come to its end.
    fn start_again(&mut self, node: usize) {
        if self.machines[node].is_draining || self.machines[node].drain_at.is_some() {
            self.crash(node);
        }
        self.start(node);
    }
}

fn completions(block: &Block) -> usize {
    let of_record = |record: &Record| if let Record::Done(list) = record { list.len() } else { 0 };
    block.records.iter().map(of_record).sum()
}
