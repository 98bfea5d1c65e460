//! The state that nodes tell of their mail while others are gone.

use super::calm;
use super::faults::{Fault, FaultKind};
use super::world::World;
use cluster::{HostageReason, NodeId, StreamState};

fn gone(nodes: &[usize], kind: &FaultKind) -> Vec<Fault> {
    nodes.iter().map(|node| Fault { begin_s: 45, seconds: 60, node: *node, kind: kind.clone() }).collect()
}

#[test]
fn mail_at_a_holder_that_is_gone_is_counted() {
    let mut plan = calm();
    plan.faults = gone(&[0], &FaultKind::CrashMachine);
    let mut world = World::new(3, plan);
    world.play_until(44).unwrap();
    let before = world.status(1).unwrap();
    assert!(before.has_majority && before.is_member && before.at_gone_holders.is_empty(), "{before:?}");
    assert!(before.streams.iter().all(|stream| stream.state == StreamState::Open), "{before:?}");
    world.play_until(62).unwrap();
    let states: Vec<_> = (1..5).map(|node| world.status(node).unwrap()).collect();
    let holds = |(holder, messages): &(NodeId, usize)| *holder == NodeId(1) && *messages > 0;
    assert!(states.iter().any(|status| status.at_gone_holders.iter().any(holds)), "{states:?}");
    let stalled = states.iter().flat_map(|status| &status.streams).filter(|one| one.stream.holder == NodeId(1));
    assert!(stalled.clone().all(|stream| stream.state == StreamState::Stalled));
    world.run().unwrap();
}

#[test]
fn mail_that_died_with_its_holder_is_a_hostage() {
    let mut plan = calm();
    plan.faults = gone(&[0, 1], &FaultKind::CrashMachine);
    let mut world = World::new(3, plan);
    world.play_until(85).unwrap();
    let hostages: Vec<_> = (2..5).flat_map(|node| world.status(node).unwrap().hostages).collect();
    let pair = [NodeId(1), NodeId(2)];
    let is_lost = |one: &&cluster::HostageStatus| pair.contains(&one.stream.owner) && pair.contains(&one.stream.holder);
    assert!(hostages.iter().all(|one| is_lost(&one)), "{hostages:?}");
    assert!(hostages.iter().any(|one| one.why == HostageReason::HolderOutOfReach), "{hostages:?}");
    world.run().unwrap();
}

#[test]
fn without_a_majority_mail_waits_and_says_so() {
    let mut plan = calm();
    plan.faults = gone(&[0], &FaultKind::Crash);
    plan.faults.extend(gone(&[1, 2, 3], &FaultKind::CrashEngine));
    let mut world = World::new(3, plan);
    world.play_until(80).unwrap();
    let status = world.status(4).unwrap();
    assert!(!status.has_majority && status.adoptions.is_empty(), "{status:?}");
    let of_first = status.hostages.iter().filter(|one| one.stream.owner == NodeId(1));
    assert!(of_first.clone().any(|one| one.why == HostageReason::NoMajority), "{status:?}");
    world.run().unwrap();
}
