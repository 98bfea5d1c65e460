//! Streams whose last block the engine loses while their owner waits for the end of an adoption, and streams that have
//! lost nothing.

use super::by_hand::number;
use super::calm;
use super::faults::{FaultKind, fault};
use super::world::{CLUSTER, Plan, SECOND, World};
use bytes::Bytes;
use cluster::{Block, Lane, Record, StreamId, StreamState, holders_of};

/// The taken messages in the last record of an adoption.
fn end_of_adoption(octets: &Bytes) -> Option<usize> {
    let block = Block::read(CLUSTER, octets).ok()?;
    block.records.iter().find_map(|record| match record {
        Record::Adopted(adopted) if adopted.is_last => Some(adopted.taken.len()),
        _ => None,
    })
}

/// A cluster in which an owner stands still, goes on within the adoption of its mail, and cannot tell others that it
/// does. The engine loses the end of the adoption before the owner reads it, or a bit of it changes.
///
/// Returns the stream and the number of messages in that end too; `None` if the owner goes on too early or too late.
fn with_lost_end(seed: u64, messages: u64, is_gone: bool) -> Option<(World, StreamId, usize)> {
    let holder = holders_of(number(0), (0..5).map(number))[0];
    let stream = StreamId { owner: number(0), holder, generation: 0 };
    let engine = usize::from(holder.0) - 1;
    let mut plan = Plan { messages, ..calm() };
    plan.faults = vec![
        fault(35, 60, 0, FaultKind::CutStore),
        fault(45, 15 + seed % 4, 0, FaultKind::Pause),
        fault(58, 37, engine, FaultKind::SlowEngine),
    ];
    let mut world = World::new(seed, plan);
    for at in (58 * SECOND..95 * SECOND).step_by(500) {
        world.play_until_us(at).unwrap();
        let lane = world.engines[engine].lanes.get_mut(&(stream, Lane::Messages)).unwrap();
        let Some(taken) = lane.blocks.get(&lane.last).and_then(end_of_adoption) else { continue };
        let mut octets = lane.blocks.remove(&lane.last).unwrap().to_vec();
        if !is_gone {
            octets[60] ^= 1;
            lane.blocks.insert(lane.last, octets.into());
        }
        let lost = (stream, Lane::Messages, lane.last);
        world.damaged.insert(lost);
        return (state(&world, stream) == Some(StreamState::WithAdopter)).then_some((world, stream, taken));
    }
    None
}

fn state(world: &World, stream: StreamId) -> Option<StreamState> {
    let streams = world.status(0).unwrap().streams;
    streams.iter().find(|one| one.stream == stream).map(|one| one.state)
}

/// The owner takes its mail back and goes on in the next generation of the stream.
#[track_caller]
fn owners_go_on(messages: u64, has_taken: bool) {
    let mut runs = 0;
    for (seed, is_gone) in (1..=12).flat_map(|seed| [(seed, true), (seed, false)]) {
        let Some((mut world, stream, taken)) = with_lost_end(seed, messages, is_gone) else { continue };
        runs += usize::from(has_taken == (taken > 0));
        let at = world.now / SECOND;
        world.play_until(at + 50).unwrap();
        let is_with_adopter = state(&world, stream) == Some(StreamState::WithAdopter);
        assert!(is_with_adopter || !is_gone, "seed {seed}: an adopter may go on for a minute");
        world.play_until(at.max(95) + 75).unwrap();
        let next = StreamId { generation: 1, ..stream };
        assert_eq!(state(&world, next), Some(StreamState::Open), "seed {seed}: {:?}", world.status(0));
        if let Err(error) = world.run() {
            panic!("seed {seed}, the block is gone: {is_gone}: {error}");
        }
    }
    assert!(runs > 2, "{runs} runs");
}

#[test]
fn an_owner_goes_on_when_the_list_of_its_adopted_mail_is_lost() {
    owners_go_on(200, true);
}

#[test]
fn an_owner_without_mail_goes_on_when_the_end_of_its_adoption_is_lost() {
    owners_go_on(0, false);
}

/// An owner stands still until its mail is adopted and its stream trimmed.
#[test]
fn an_owner_that_stood_still_takes_no_trimmed_block_for_a_lost_one() {
    for seed in 1..=6 {
        let mut world = World::new(seed, Plan { faults: vec![fault(45, 40, 0, FaultKind::Pause)], ..calm() });
        world.play_until(100).unwrap();
        assert!(world.history.given_up.iter().any(|(node, _)| *node == 0), "seed {seed}: its mail is adopted");
        assert!(world.history.unknown.is_empty(), "seed {seed}: {:?}", world.history.unknown);
    }
}
