//! Messages with two copies whose owner or holders were gone: the copies are a pair again that counts.

use super::faults::{Fault, FaultKind, fault};
use super::lanes::lanes_that_keep_too_much;
use super::world::{Plan, World};
use super::{calm, campaign, control, plan};
use crate::chance::Chance;
use cluster::{NodeId, Sabotage};
use std::ops::Range;

/// Clusters with two copies of each message, in which mail stays for minutes.
pub(super) fn of_three_copies(nodes: usize, faults: Vec<Fault>) -> Plan {
    let mut plan = calm();
    (plan.nodes, plan.copies, plan.messages, plan.busy_s, plan.faults) = (nodes, 3, 400, 40, faults);
    plan
}

/// Checks that each of these nodes has live messages, and so many stored copies of each.
#[track_caller]
fn assert_copies(world: &World, nodes: Range<usize>, copies: usize) {
    for node in nodes {
        let counts = world.by_copies(node);
        assert!(counts.keys().eq([&copies]), "mx{node}: {counts:?}");
    }
}

#[test]
fn a_copy_that_is_lost_for_long_is_written_at_another_holder() {
    let mut world = World::new(5, of_three_copies(4, vec![fault(45, 200, 3, FaultKind::CrashMachine)]));
    world.play_until(60).unwrap();
    let before: Vec<_> = (0..3).map(|node| world.by_copies(node)).collect();
    assert!(before.iter().all(|counts| counts.contains_key(&2)), "{before:?}");
    world.play_until(130).unwrap();
    assert_copies(&world, 0..3, 2);
    world.run().unwrap();
}

/// There is no third holder until the one that was gone is back.
#[test]
fn a_holder_that_is_back_gets_copies_again() {
    let mut world = World::new(5, of_three_copies(3, vec![fault(20, 100, 2, FaultKind::CrashMachine)]));
    world.play_until(110).unwrap();
    assert_copies(&world, 0..2, 1);
    world.play_until(140).unwrap();
    assert_copies(&world, 0..2, 2);
    world.run().unwrap();
}

/// First copies of an earlier start move to the ends of their lanes too.
#[test]
fn copies_of_an_earlier_start_move_to_the_ends_of_their_lanes() {
    let faults = (0..3).map(|node| fault(35 + node as u64, 1, node, FaultKind::Crash)).collect();
    let mut world = World::new(7, Plan { messages: 600, ..of_three_copies(3, faults) });
    world.play_until(34).unwrap();
    let early: Vec<_> = (0..3).map(|node| world.live(node)).collect();
    world.play_until(95).unwrap();
    for (node, early) in early.into_iter().enumerate() {
        let still = world.live(node).intersection(&early).count();
        assert!(still > 3, "mx{node} has {still} messages of its first start");
    }
    assert_copies(&world, 0..3, 2);
    assert_eq!(lanes_that_keep_too_much(&world), Vec::<String>::new());
    world.run().unwrap();
}

/// An adopter of first copies hands mail back. Later its owner dies with the holder of the first copies.
#[test]
fn mail_that_was_handed_back_is_adopted_by_its_second_copies() {
    let holders = cluster::holders_of(NodeId(1), (1..=5).map(NodeId));
    let first = usize::from(holders[0].0) - 1;
    let mut handed_back = 0;
    for seed in 1..=12 {
        let mut plan = of_three_copies(5, vec![fault(45, 20 + seed, 0, FaultKind::Crash)]);
        plan.faults.push(fault(46, 35, first, FaultKind::SlowEngine));
        plan.faults.push(fault(95, 150, 0, FaultKind::CrashMachine));
        plan.faults.push(fault(95, 150, first, FaultKind::CrashMachine));
        let mut world = World::new(seed, plan);
        world.play_until(94).unwrap();
        handed_back += world.history.handed_back;
        world.play_until(160).unwrap();
        assert_eq!(world.waiting(&world.live(0), &[0, first]), [], "seed {seed}");
        world.run().unwrap();
    }
    assert!(handed_back > 3, "adopters handed back {handed_back} times");
}

/// Two copies of each message among faults, and restarts of their owners.
fn with_pairs(seed: u64) -> Plan {
    let mut chance = Chance::new(seed ^ 0x9a185);
    let mut plan = plan(seed);
    plan.nodes = chance.pick(&[3, 4, 4, 5]);
    plan.faults = super::faults::choose(&mut chance, plan.nodes, plan.busy_s);
    (plan.copies, plan.messages) = (3, chance.between(40, 160));
    if chance.percent(30) {
        let node = chance.below(plan.nodes as u64) as usize;
        plan.faults.push(fault(chance.between(5, plan.busy_s + 40), 60, node, FaultKind::SlowEngine));
    }
    for _ in 0..chance.between(1, 4) {
        let node = chance.below(plan.nodes as u64) as usize;
        let seconds = chance.pick(&[1, 2, 15, 20, 25, 30, 75]);
        let kind = if chance.percent(70) { FaultKind::Crash } else { FaultKind::CrashMachine };
        plan.faults.push(fault(chance.between(5, plan.busy_s + 80), seconds, node, kind));
    }
    plan
}

#[test]
fn pairs_among_faults_lose_nothing() {
    campaign(&[573], 80, with_pairs);
}

/// An owner dies with the holder of its first copies while it writes pairs again, slowly.
fn dying_within_pairs(seed: u64) -> Plan {
    let holders = cluster::holders_of(NodeId(1), (1..=5).map(NodeId));
    let [first, second] = [0, 1].map(|at: usize| usize::from(holders[at].0) - 1);
    let begin_s = 35 + seed % 12;
    let faults = vec![
        fault(32, 1, 0, FaultKind::Crash),
        fault(33, 40, second, FaultKind::SlowEngine),
        fault(begin_s, 150, 0, FaultKind::CrashMachine),
        fault(begin_s, 60, first, FaultKind::CrashMachine),
    ];
    // No new mail behind the restart: its epoch would be decided about with that of the pairs.
    Plan { messages: 500, busy_s: 28, ..of_three_copies(5, faults) }
}

#[test]
fn an_owner_that_dies_within_pairs_loses_nothing() {
    campaign(&[], 24, dying_within_pairs);
}

/// The old record of the second copy would be adopted beside the new one of the first copy.
#[test]
fn a_first_copy_that_moves_without_a_decision_is_noticed() {
    let sabotage = Sabotage { no_decision: true, ..Sabotage::default() };
    control(60, |seed| Plan { sabotage, ..dying_within_pairs(seed) });
}

/// An owner dies, and the holder of its first copies within two seconds, for good: it seems alive when the adoption of
/// the second copies begins.
fn dying_together(seed: u64, sabotage: Sabotage) -> Plan {
    let holders = cluster::holders_of(NodeId(1), (1..=5).map(NodeId));
    let first = usize::from(holders[0].0) - 1;
    let mut faults = Vec::new();
    for (node, at) in [(0, 45), (first, 46 + seed % 2)] {
        faults.push(fault(at, 200, node, FaultKind::CrashMachine));
        faults.push(fault(at + 1, 199, node, FaultKind::ReplaceDisk { with_engine: true }));
    }
    let busy_s = 40 + seed % 5;
    Plan { messages: 300, busy_s, sabotage, ..of_three_copies(5, faults) }
}

#[test]
fn second_copies_outlive_an_owner_and_a_holder_that_die_together() {
    campaign(&[], 20, |seed| dying_together(seed, Sabotage::default()));
}

#[test]
fn an_adopter_that_leaves_mail_to_a_dead_holder_is_noticed() {
    control(40, |seed| dying_together(seed, Sabotage { no_first_wait: true, ..Sabotage::default() }));
}
