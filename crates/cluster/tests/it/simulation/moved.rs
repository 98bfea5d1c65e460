//! Owners that take mail back from a holder that is gone for long, and die after it is back.

use super::engine::LaneStore;
use super::faults::{FaultKind, fault};
use super::world::{Plan, World};
use super::{calm, campaign, control};
use crate::chance::Chance;
use cluster::{Lane, NodeId, Sabotage, StreamState, holders_of};
use std::collections::BTreeSet;

/// The first node takes its mail back from its holder, and restarts before the holder is back. No other node has room
/// until then. The disk of the first node is lost behind that.
fn taken_back(seed: u64, sabotage: Sabotage) -> Plan {
    let mut chance = Chance::new(seed ^ 0x30f3d);
    let holders = holders_of(NodeId(1), (1..=3).map(NodeId));
    let [first, second] = [0, 1].map(|at: usize| usize::from(holders[at].0) - 1);
    let mut plan = Plan { sabotage, ..calm() };
    (plan.nodes, plan.messages, plan.busy_s) = (3, 200, 30);
    // No record is written again for another reason.
    plan.compaction_octets_min = 4 << 20;
    let restart_s = chance.between(57, 61);
    let back_s = restart_s + chance.between(0, 3);
    plan.faults = vec![
        fault(5, 300, second, FaultKind::FullEngine),
        fault(31, back_s - 31, first, FaultKind::CrashMachine),
        fault(restart_s, 1, 0, FaultKind::Crash),
        fault(back_s + chance.between(4, 25), 120, 0, FaultKind::ReplaceDisk { with_engine: false }),
    ];
    plan
}

/// The records that the holder kept are passed over in an adoption, so they are no copies.
#[test]
fn mail_that_was_taken_back_gets_copies_that_count() {
    let plan = taken_back(1, Sabotage::default());
    let (restart_s, loss_s) = (plan.faults[2].begin_s, plan.faults[3].begin_s);
    let mut world = World::new(1, plan);
    let of = |world: &World, copies| world.by_copies(0).remove(&copies).unwrap_or_default();
    world.play_until(restart_s - 5).unwrap();
    let copied = of(&world, 1);
    world.play_until(restart_s - 1).unwrap();
    assert_eq!(of(&world, 1), BTreeSet::new(), "all is taken back");
    world.play_until(loss_s - 1).unwrap();
    let again = of(&world, 1);
    assert!(again.len() > 5 && again.is_subset(&copied), "{again:?}");
    assert_eq!(of(&world, 0).intersection(&copied).count(), 0);
    world.run().unwrap();
}

/// A lane that lost its blocks gives out their sequences again: earlier trims of its owner would hit new blocks.
#[test]
fn a_stream_that_is_lost_after_its_mail_was_taken_back_is_not_used_again() {
    let holder = holders_of(NodeId(1), (1..=5).map(NodeId))[0];
    let engine = usize::from(holder.0) - 1;
    for (seed, lane) in (1..=15).flat_map(|seed| [(seed, Lane::Messages), (seed, Lane::Bodies)]) {
        let mut world = World::new(seed, calm());
        let at_holder = |world: &World| {
            let streams = world.status(0).unwrap().streams;
            streams.into_iter().find(|one| one.stream.holder == holder).unwrap()
        };
        world.play_until(40).unwrap();
        let before = at_holder(&world);
        assert!(before.messages > 0, "{before:?}");
        world.engines[engine].is_up = false;
        world.play_until(70).unwrap();
        assert_eq!(at_holder(&world).state, StreamState::TakenBack);
        world.engines[engine].lanes.insert((before.stream, lane), LaneStore::default());
        world.engines[engine].is_up = true;
        world.play_until(90).unwrap();
        let after = at_holder(&world);
        assert_eq!((after.state, after.stream.generation), (StreamState::Open, 1), "seed {seed}, {lane:?}");
        world.run().unwrap();
    }
}

/// The store of claims was away with the holders, and is back with them.
#[test]
fn nothing_is_taken_back_from_holders_that_are_back() {
    for seed in 1..=15 {
        let mut plan = calm();
        plan.faults = vec![fault(40, 21 + seed, 0, FaultKind::NoEngines)];
        let mut world = World::new(seed, plan);
        world.run().unwrap();
        assert_eq!(world.history.taken_back, 0, "seed {seed}");
    }
}

#[test]
fn mail_that_was_taken_back_is_not_lost_with_its_owner() {
    campaign(&[], 20, |seed| taken_back(seed, Sabotage::default()));
}

#[test]
fn copies_that_count_after_they_were_taken_back_are_noticed() {
    control(10, |seed| taken_back(seed, Sabotage { keeps_moved: true, ..Sabotage::default() }));
}
