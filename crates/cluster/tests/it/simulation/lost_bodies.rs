//! Streams whose lane of bodies is damaged or lost while their owner cannot replace them at once: it reads them, or
//! another node has adopted them. Each is replaced behind that, so that it takes large mail again.

use super::calm;
use super::engine::LaneStore;
use super::faults::{FaultKind, fault};
use super::world::{Plan, World};
use cluster::{Lane, NodeId, StreamId, StreamState, StreamStatus, holders_of};

fn holder() -> NodeId {
    holders_of(NodeId(1), (1..=5).map(NodeId))[0]
}

fn engine() -> usize {
    usize::from(holder().0) - 1
}

fn at_holder(world: &World) -> StreamStatus {
    let streams = world.status(0).unwrap().streams;
    streams.into_iter().find(|one| one.stream.holder == holder()).unwrap()
}

#[track_caller]
fn is_replaced(world: &World, stream: StreamId, seed: u64) {
    let after = at_holder(world);
    let next = StreamId { generation: stream.generation + 1, ..stream };
    assert_eq!((after.state, after.stream), (StreamState::Open, next), "seed {seed}");
}

/// The engine loses the lane of bodies at second 42 of these faults, in which the owner is down. Returns the generation
/// of the stream at the end of a time, and whether mail was handed back meanwhile.
fn lost_while_down(seed: u64, plan: Plan, has_empty_lane: bool, until_s: u64) -> (u32, bool) {
    let mut world = World::new(seed, plan);
    world.play_until(39).unwrap();
    let lane = (at_holder(&world).stream, Lane::Bodies);
    world.play_until(42).unwrap();
    world.engines[engine()].lanes.remove(&lane);
    if has_empty_lane {
        world.engines[engine()].lanes.insert(lane, LaneStore::default());
    }
    world.play_until(until_s).unwrap();
    let found = (at_holder(&world).stream.generation, world.history.handed_back > 0);
    world.run().unwrap();
    found
}

/// The last block of the lane changes before the owner reads the stream at its start, without the store of claims.
#[test]
fn bodies_that_are_damaged_while_the_stream_is_read_are_replaced() {
    for seed in 1..=15 {
        let faults = vec![fault(40, 4, 0, FaultKind::Crash), fault(41, 15, 0, FaultKind::CutStore)];
        let mut world = World::new(seed, Plan { faults, ..calm() });
        world.play_until(39).unwrap();
        let stream = at_holder(&world).stream;
        world.play_until(42).unwrap();
        let lane = world.engines[engine()].lanes.get_mut(&(stream, Lane::Bodies)).unwrap();
        let (last, mut octets) = (lane.last, lane.blocks[&lane.last].to_vec());
        octets[60] ^= 1;
        lane.blocks.insert(last, octets.into());
        world.damaged.insert((stream, Lane::Bodies, last));
        world.play_until(75).unwrap();
        is_replaced(&world, stream, seed);
        world.run().unwrap();
    }
}

/// The engine has an empty lane, or none, when the owner starts again. Its records refer to bodies of before.
#[test]
fn bodies_that_are_lost_while_their_owner_is_down_are_missed() {
    for has_empty_lane in [false, true] {
        let plan = || Plan { faults: vec![fault(40, 4, 0, FaultKind::Crash)], ..calm() };
        let replaced = (1..=15).filter(|seed| lost_while_down(*seed, plan(), has_empty_lane, 75).0 > 0).count();
        assert!(replaced > 3, "{replaced} of 15 streams had live bodies and were replaced");
    }
}

/// The same, with an adoption in between that hands the rest back.
#[test]
fn bodies_that_are_lost_before_mail_is_handed_back_are_missed() {
    let is_replaced = |seed: &u64| {
        let crash = fault(40, 22 + seed % 6, 0, FaultKind::Crash);
        let faults = vec![crash, fault(45, 40, engine(), FaultKind::SlowEngine)];
        let (generation, is_handed_back) = lost_while_down(*seed, Plan { messages: 200, faults, ..calm() }, false, 120);
        is_handed_back && generation > 0
    };
    let replaced = (1..=40).filter(is_replaced).count();
    assert!(replaced > 2, "{replaced} streams with mail that was handed back were replaced");
}

/// The lane is lost after the owner took its mail back. The owner cannot reach the store of claims, stands still, and
/// its stream is adopted before it could be replaced.
#[test]
fn bodies_that_are_lost_before_an_adoption_are_replaced_behind_it() {
    let mut adoptions = 0;
    for seed in 1..=60 {
        let mut plan = calm();
        plan.faults = vec![
            fault(71, 60, 0, FaultKind::CutStore),
            fault(72, 4, engine(), FaultKind::SlowEngine),
            fault(80, 45, 0, FaultKind::Pause),
        ];
        let mut world = World::new(seed, plan);
        world.play_until(40).unwrap();
        let stream = at_holder(&world).stream;
        world.engines[engine()].is_up = false;
        world.play_until(70).unwrap();
        assert_eq!(at_holder(&world).state, StreamState::TakenBack, "seed {seed}");
        world.play_until(73).unwrap();
        world.engines[engine()].lanes.insert((stream, Lane::Bodies), LaneStore::default());
        world.engines[engine()].is_up = true;
        world.play_until(79).unwrap();
        adoptions += usize::from(at_holder(&world).state == StreamState::Open);
        world.play_until(170).unwrap();
        is_replaced(&world, stream, seed);
        world.run().unwrap();
    }
    assert!(adoptions > 2, "{adoptions} streams were open when their owner stood still");
}
