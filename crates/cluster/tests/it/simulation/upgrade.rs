//! A rolling upgrade to a program with one more block version.

use super::faults::{Fault, FaultKind};
use super::world::World;
use super::{calm, campaign, plan};

#[test]
fn a_version_is_written_when_all_members_read_it() {
    let mut plan = calm();
    (plan.nodes, plan.has_upgrade) = (3, true);
    let drain = |node: usize| Fault { begin_s: 50 + 40 * node as u64, seconds: 8, node, kind: FaultKind::Drain };
    plan.faults = (0..3).map(drain).collect();
    let mut world = World::new(5, plan);
    world.play_until(128).unwrap();
    assert_eq!(world.versions(), [1].into(), "an old node is still there");
    world.run().unwrap();
    assert_eq!(world.versions(), [2].into());
}

#[test]
fn nodes_that_crash_into_an_upgrade_lose_nothing() {
    let restarts = |fault: &Fault| matches!(fault.kind, FaultKind::Crash | FaultKind::CrashMachine | FaultKind::Drain);
    campaign(&[800_927, 801_055], 60, |seed| {
        let mut plan = plan(seed);
        plan.has_upgrade = true;
        plan.faults.retain(restarts);
        plan
    });
}
