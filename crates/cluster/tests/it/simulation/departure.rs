//! Departures for good: a node hands its mail over, the others take the copies that it holds elsewhere, and its engine
//! stops.

use super::faults::{Fault, FaultKind};
use super::world::{Plan, SECOND, World};
use super::{calm, campaign, plan};
use crate::chance::Chance;
use cluster::NodeId;

const LEAVING: NodeId = NodeId(1);

fn departure(begin_s: u64, seconds: u64, node: usize) -> Fault {
    Fault { begin_s, seconds, node, kind: FaultKind::Depart }
}

/// The first node leaves, and is back after two minutes.
fn leaving() -> Plan {
    let mut plan = calm();
    plan.faults = vec![departure(25, 130, 0)];
    plan
}

/// Plays until the first node has exited, and returns the second.
#[track_caller]
fn play_until_it_left(world: &mut World) -> u64 {
    for second in 26..150 {
        world.play_until(second).unwrap();
        if world.machines[0].node.is_none() {
            return second;
        }
    }
    panic!("it does not leave: {:?}", world.status(0));
}

/// The streams of the other nodes at the one that leaves, with their messages.
fn copies_at_it(world: &World) -> u64 {
    let streams = (1..world.plan.nodes).flat_map(|node| world.status(node).unwrap().streams);
    streams.filter(|one| one.stream.holder == LEAVING).map(|one| one.messages).sum()
}

#[test]
fn a_node_that_leaves_has_no_mail_and_no_copies_any_more() {
    for copies in [2, 3] {
        let mut world = World::new(3, Plan { copies, ..leaving() });
        world.play_until(24).unwrap();
        assert!(world.machines[0].log.live_count() > 0, "it has mail to hand over");
        assert!(copies_at_it(&world) > 0, "it has copies of others");
        let left_at = play_until_it_left(&mut world);
        assert!(left_at < 70, "copies wait for no time limit of an absent holder: {left_at} s");
        assert_eq!(world.machines[0].log.live_count(), 0);
        // Nothing asks its engine from now on.
        world.engines[0].is_up = false;
        world.play_until(left_at + 20).unwrap();
        assert_eq!(copies_at_it(&world), 0);
        for node in 1..world.plan.nodes {
            let status = world.status(node).unwrap();
            assert!(status.hostages.is_empty() && status.at_gone_holders.is_empty(), "{status:?}");
            assert!(status.streams.iter().all(|one| one.stream.holder != LEAVING), "{status:?}");
            let process = world.machines[node].node.as_ref().unwrap();
            let departed: Vec<_> = process.departed().map(|mark| (mark.node, mark.is_empty)).collect();
            assert_eq!(departed, [(LEAVING, true)]);
        }
        world.run().unwrap();
        assert_eq!(world.history.duplicates, 0);
        for node in 0..world.plan.nodes {
            let process = world.machines[node].node.as_ref().unwrap();
            assert_eq!(process.departed().count(), 0, "it has joined again");
        }
    }
}

/// An owner dies later: its stream at the engine that was empty has no mail of it.
#[test]
fn an_engine_that_was_left_empty_has_no_hostages() {
    let mut plan = leaving();
    plan.faults.push(Fault { begin_s: 90, seconds: 60, node: 1, kind: FaultKind::CrashMachine });
    let mut world = World::new(3, plan);
    play_until_it_left(&mut world);
    world.engines[0].is_up = false;
    world.play_until(135).unwrap();
    for node in 2..world.plan.nodes {
        let hostages = world.status(node).unwrap().hostages;
        assert!(hostages.iter().all(|one| one.stream.holder != LEAVING), "{hostages:?}");
    }
    world.run().unwrap();
}

/// The only other node has no third one for its copies: they stay at the engine, which is not empty.
#[test]
fn the_copies_of_the_last_other_node_stay() {
    let mut plan = leaving();
    plan.nodes = 2;
    let mut world = World::new(5, plan);
    let left_at = play_until_it_left(&mut world);
    assert_eq!(world.machines[0].log.live_count(), 0);
    world.play_until(left_at + 5).unwrap();
    let process = world.machines[1].node.as_ref().unwrap();
    let departed: Vec<_> = process.departed().map(|mark| (mark.node, mark.is_empty)).collect();
    assert!(matches!(departed.as_slice(), [(LEAVING, is_empty)] if !is_empty || copies_at_it(&world) == 0));
    world.run().unwrap();
}

/// A departure among other faults, often broken off.
fn with_departure(seed: u64) -> Plan {
    let mut chance = Chance::new(seed ^ 0x1ea7e);
    let mut plan = plan(seed);
    plan.faults.retain(|fault| !fault.loses_data());
    plan.faults.truncate(2);
    let node = chance.below(plan.nodes as u64) as usize;
    let begin_s = chance.between(5, plan.busy_s);
    plan.faults.push(departure(begin_s, chance.between(3, 100), node));
    plan
}

#[test]
fn departures_among_faults_lose_nothing() {
    campaign(&[], 120, with_departure);
}

#[test]
fn a_departure_that_is_broken_off_is_a_restart() {
    let mut plan = leaving();
    plan.faults = vec![departure(25, 4, 0)];
    let mut world = World::new(3, plan);
    world.play_until(30).unwrap();
    assert!(world.machines[0].node.is_some() && world.now >= 29 * SECOND);
    world.run().unwrap();
}
