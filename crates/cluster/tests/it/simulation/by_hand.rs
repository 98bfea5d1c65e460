//! Orders of operators to adopt the mail of absent nodes by hand.

use super::faults::{Fault, FaultKind, fault};
use super::world::{Plan, World};
use super::{calm, campaign, control, dying_adopters, dying_deputies, plan};
use crate::chance::Chance;
use cluster::{AbsentState, HandAdoption, HandAdoptionError, HostageReason, NodeId, Sabotage, StreamId, holders_of};

/// An operator has a node adopt the mail of another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandOrder {
    pub(super) at_ms: u64,
    node: usize,
    owner: usize,
}

pub(super) const fn number(node: usize) -> NodeId {
    NodeId(node as u16 + 1)
}

impl World {
    pub(super) fn order(&mut self, order: usize) {
        let HandOrder { node, owner, .. } = self.plan.orders[order];
        if self.now < self.machines[node].paused_until {
            return;
        }
        let mut answer = None;
        self.with(node, |machine, now, _| {
            machine.look_at_absent(now);
            answer = Some(machine.adopt_by_hand(now, number(owner)));
        });
        self.log(|| format!("mx{node} is to adopt the mail of mx{owner}: {answer:?}"));
        self.history.orders += usize::from(answer == Some(Ok(())));
    }

    /// The state of a stream of an absent node as another one sees it.
    fn absent(&self, node: usize, stream: StreamId) -> Option<AbsentState> {
        let now = self.local(node);
        let streams = self.machines[node].node.as_ref()?.absent_streams(now);
        streams.into_iter().find(|one| one.stream == stream).map(|one| one.state)
    }

    fn ordered(&mut self, node: usize, owner: NodeId) -> Result<(), HandAdoptionError> {
        let now = self.local(node);
        self.machines[node].node.as_mut().unwrap().adopt_by_hand(now, owner)
    }
}

/// Faults of any kind and one node that only lacks the key-value store. Operators have nodes adopt about the time when
/// the entries of others expire, and at any other time.
fn by_hand(seed: u64) -> Plan {
    let mut chance = Chance::new(seed ^ 0x4a2d);
    let mut plan = match chance.below(3) {
        0 => dying_adopters(seed),
        1 => dying_deputies(seed),
        _ => plan(seed),
    };
    let nodes = plan.nodes as u64;
    let (begin_s, seconds) = (chance.between(4, plan.busy_s), chance.between(20, 80));
    let node = chance.below(nodes) as usize;
    plan.faults.push(Fault { begin_s, seconds, node, kind: FaultKind::CutStore });
    for fault in &plan.faults {
        for _ in 0..6 {
            let at_ms = (fault.begin_s + 12) * 1_000 + chance.below(30_000);
            let node = (fault.node + 1 + chance.below(nodes - 1) as usize) % plan.nodes;
            plan.orders.push(HandOrder { at_ms, node, owner: fault.node });
        }
    }
    for _ in 0..10 {
        let at_ms = chance.below(plan.busy_s * 1_000 + 60_000);
        let [node, owner] = [0; 2].map(|_: u8| chance.below(nodes) as usize);
        plan.orders.push(HandOrder { at_ms, node, owner });
    }
    plan
}

#[test]
fn adoptions_by_hand_lose_nothing() {
    let totals = campaign(&[1159, 1373, 1480, 2223], 150, by_hand);
    assert!(totals.orders > 0, "{totals:?}");
}

/// An owner that lives, delivers and has lost nothing but the key-value store. Then its way to the holder is cut, so
/// that it does not learn of a fence, and an operator has the third node adopt at once.
fn cut_off_owner(_: u64) -> Plan {
    let mut plan = Plan { busy_s: 45, nodes: 3, messages: 200, ..calm() };
    let holders = holders_of(number(0), (0..3).map(number));
    let [holder, third] = [0, 1].map(|at: usize| usize::from(holders[at].0) - 1);
    let fault = |begin_s, seconds, kind| Fault { begin_s, seconds, node: 0, kind };
    plan.faults = vec![fault(20, 60, FaultKind::CutStore), fault(38, 30, FaultKind::CutPair(holder))];
    let order = |at_ms| HandOrder { at_ms, node: third, owner: 0 };
    plan.orders = [38_500, 39_500, 40_500, 41_500].map(order).to_vec();
    plan
}

#[test]
fn an_owner_that_is_only_cut_off_has_its_time_also_when_an_operator_is_in_a_hurry() {
    let totals = campaign(&[], 12, cut_off_owner);
    assert!(totals.orders > 0 && totals.adopted > 0, "{totals:?}");
}

#[test]
fn an_adopter_by_hand_that_does_not_wait_is_noticed() {
    let sabotage = Sabotage { no_wait_by_hand: true, ..Sabotage::default() };
    control(100, |seed| Plan { sabotage, ..cut_off_owner(seed) });
}

/// The holder's process has no majority, so it adopts nothing; the first other node in order is to, after a silence.
/// An operator asks a third one.
#[test]
fn a_node_that_is_neither_holder_nor_deputy_adopts_by_hand() {
    let mut plan = calm();
    let holders = holders_of(number(0), (0..5).map(number));
    let [holder, _, third, fourth] = [0, 1, 2, 3].map(|at: usize| usize::from(holders[at].0) - 1);
    let fault = |begin_s, node, kind| Fault { begin_s, seconds: 70, node, kind };
    plan.faults = vec![fault(40, holder, FaultKind::CutStore), fault(45, 0, FaultKind::Crash)];
    plan.orders = [62_000, 63_000].map(|at_ms| HandOrder { at_ms, node: third, owner: 0 }).to_vec();
    let mut world = World::new(3, plan);
    let stream = StreamId { owner: number(0), holder: holders[0], generation: 0 };
    let by = number(third);
    world.play_until(70).unwrap();
    world.with(fourth, |machine, now, _| machine.look_at_absent(now));
    world.play_until(72).unwrap();
    let [own, other] = [third, fourth].map(|node| world.absent(node, stream));
    assert!(matches!(own, Some(AbsentState::UnderWay { by: one, step: Some("wait"), .. }) if one == by), "{own:?}");
    assert!(matches!(other, Some(AbsentState::UnderWay { by: one, step: None, .. }) if one == by), "{other:?}");
    world.play_until(86).unwrap();
    let states = [third, fourth].map(|node| world.absent(node, stream));
    assert_eq!(states, [Some(AbsentState::Adopted { by }); 2]);
    let now = world.local(third);
    let orders = world.machines[third].node.as_ref().unwrap().hand_adoptions(now);
    let [HandAdoption { owner: NodeId(1), taken: 1.., is_running: false, is_owner_back: false, .. }] = orders[..]
    else {
        panic!("{orders:?}");
    };
    world.run().unwrap();
}

/// A cluster in which the owner is gone, and its holder dies within a part; with the second of that.
fn with_open_part(seed: u64, stream: StreamId) -> Option<(World, u64)> {
    let mut plan = calm();
    let holder = usize::from(stream.holder.0) - 1;
    plan.faults = vec![fault(45, 230, 0, FaultKind::Crash), fault(55, 60, holder, FaultKind::SlowEngine)];
    let mut world = World::new(seed, plan);
    for second in 56..115 {
        world.play_until(second).unwrap();
        let adoptions = world.status(holder).unwrap().adoptions;
        if adoptions.iter().any(|one| one.stream == stream && one.step == "take") {
            world.crash(holder);
            return Some((world, second));
        }
    }
    None
}

#[test]
fn an_order_ends_at_a_part_that_its_adopter_left_open_and_says_so() {
    let holders = holders_of(number(0), (0..5).map(number));
    let [holder, _, third, fourth] = [0, 1, 2, 3].map(|at: usize| usize::from(holders[at].0) - 1);
    let stream = StreamId { owner: number(0), holder: number(holder), generation: 0 };
    let found = (1..=5).find_map(|seed| with_open_part(seed, stream));
    let (mut world, died) = found.expect("an adopter that dies within a part");
    world.play_until(died + 20).unwrap();
    world.with(third, |machine, now, _| assert_eq!(machine.adopt_by_hand(now, number(0)), Ok(())));
    world.play_until(died + 110).unwrap();
    world.with(fourth, |machine, now, _| machine.look_at_absent(now));
    world.play_until(died + 113).unwrap();
    let states = [third, fourth].map(|node| world.absent(node, stream));
    let open = AbsentState::Waits(HostageReason::PartOpen { by: number(holder) });
    assert_eq!(states, [Some(open); 2]);
    let now = world.local(third);
    let orders = world.machines[third].node.as_ref().unwrap().hand_adoptions(now);
    assert!(matches!(orders[..], [HandAdoption { is_running: false, is_owner_back: false, .. }]), "{orders:?}");
    world.start(holder);
    world.run().unwrap();
}

#[test]
fn an_order_against_a_node_that_may_run_is_refused() {
    let mut plan = calm();
    plan.faults = vec![Fault { begin_s: 12, seconds: 60, node: 4, kind: FaultKind::CutStore }];
    let mut world = World::new(3, plan);
    world.play_until(11).unwrap();
    assert_eq!(world.ordered(4, number(4)), Err(HandAdoptionError::OwnMail));
    let alive = HandAdoptionError::Alive { name: "mx1".to_owned(), is_draining: false };
    assert_eq!(world.ordered(4, number(1)), Err(alive));
    let unknown = world.ordered(4, NodeId(9));
    assert!(matches!(unknown, Err(HandAdoptionError::NoStream { .. })), "{unknown:?}");
    world.play_until(30).unwrap();
    assert_eq!(world.ordered(4, number(1)), Err(HandAdoptionError::NoMajority));
    world.run().unwrap();
}
