//! A rolling upgrade to a program with one more block version.

use super::faults::{Fault, FaultKind, fault};
use super::new_disk::adopters_with_new_disks;
use super::world::{Plan, World};
use super::{calm, campaign, damage, plan};
use cluster::Lane;

#[test]
fn a_version_is_written_when_all_members_read_it() {
    let mut plan = calm();
    (plan.nodes, plan.newest) = (3, (1, 2));
    let drain = |node: usize| Fault { begin_s: 50 + 40 * node as u64, seconds: 8, node, kind: FaultKind::Drain };
    plan.faults = (0..3).map(drain).collect();
    let mut world = World::new(5, plan);
    world.play_until(128).unwrap();
    assert_eq!(world.versions(), [1].into(), "an old node is still there");
    world.run().unwrap();
    assert_eq!(world.versions(), [2].into());
}

/// Blocks of a lane of messages by the encoding of their records.
fn blocks(world: &World, encoding: u8) -> usize {
    let lanes = world.engines.iter().flat_map(|engine| &engine.lanes);
    let of_messages = lanes.filter(|((_, lane), _)| *lane == Lane::Messages);
    of_messages.flat_map(|(_, lane)| lane.blocks.values()).filter(|block| block[7] == encoding).count()
}

#[test]
fn copies_are_compressed_where_all_members_read_that() {
    for (newest, is_compressed) in [((1, 1), false), ((2, 2), true)] {
        let mut world = World::new(3, Plan { newest, ..calm() });
        world.play_until(75).unwrap();
        assert!(blocks(&world, 0) > 0);
        assert_eq!(blocks(&world, 1) > 0, is_compressed, "{newest:?}");
        world.run().unwrap();
    }
}

#[test]
fn faults_lose_nothing_where_copies_are_compressed() {
    campaign(&[], 60, |seed| Plan { newest: (2, 2), ..plan(seed) });
    campaign(&[], 30, |seed| Plan { newest: (2, 2), ..damage(seed) });
    campaign(&[], 30, |seed| Plan { newest: (2, 2), ..adopters_with_new_disks(seed) });
}

/// A node that starts again with an earlier program cannot read its streams. Its mail stays in them.
#[test]
fn an_earlier_program_takes_nothing_back() {
    for seed in 1..=10 {
        let mut plan = Plan { newest: (2, 1), ..calm() };
        plan.faults = vec![fault(45, 4, 0, FaultKind::Crash)];
        let mut world = World::new(seed, plan);
        world.play_until(49).unwrap();
        let before = world.history.taken_back;
        world.play_until(70).unwrap();
        let refusal = world.machines[0].node.as_ref().and_then(|node| node.refusal().map(|why| why.to_string()));
        assert!(refusal.is_some_and(|why| why.contains("version 2")), "seed {seed}");
        assert_eq!(world.history.taken_back, before, "seed {seed}");
    }
}

#[test]
fn nodes_that_crash_into_an_upgrade_lose_nothing() {
    let restarts = |fault: &Fault| matches!(fault.kind, FaultKind::Crash | FaultKind::CrashMachine | FaultKind::Drain);
    campaign(&[800_927, 801_055], 60, |seed| {
        let mut plan = plan(seed);
        plan.newest = (1, 2);
        plan.faults.retain(restarts);
        plan
    });
}
