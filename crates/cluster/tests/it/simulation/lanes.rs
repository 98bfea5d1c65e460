//! The content of lanes: large bodies whose holder stops while they arrive, and copies that stay for long.

use super::calm;
use super::clients::body_of;
use super::world::{EPOCH_US, World};
use cluster::{Content, Lane, NodeId, OnNoReplica};
use mail::QueueId;

/// A node in a cluster of three that has sent the first piece of a body to its holder, which stopped then.
fn with_stopped_holder() -> (World, QueueId) {
    let mut plan = calm();
    (plan.nodes, plan.messages, plan.policy) = (3, 0, OnNoReplica::TempFail);
    let mut world = World::new(1, plan);
    world.play_until(8).unwrap();
    let id = QueueId::new(EPOCH_US, mail::Node::new(1).unwrap()).unwrap();
    world.history.submitted(id, 1, 0);
    world.with(0, |machine, now, _| machine.stream_body(now, id, &body_of(id).slice(..700)));
    let holders = cluster::holders_of(NodeId(1), (1..=3).map(NodeId));
    world.engines[usize::from(holders[0].0) - 1].is_up = false;
    (world, id)
}

/// The octets that the holder has are of no use, and no piece can follow: the message is read from the local log.
#[test]
fn another_holder_gets_the_body_from_the_local_log() {
    let (mut world, id) = with_stopped_holder();
    world.play_until(14).unwrap();
    world.accept(0, id, 1, Content::Streamed);
    world.play_until(15).unwrap();
    assert_eq!(world.history.acknowledged_count(), 1);
}

/// The holder stops answering only after the end of the body.
#[test]
fn a_body_whose_holder_stops_at_its_end_goes_to_another_one() {
    let (mut world, id) = with_stopped_holder();
    world.accept(0, id, 1, Content::Streamed);
    world.play_until(14).unwrap();
    assert_eq!(world.history.acknowledged_count(), 1);
}

/// Messages that stay for minutes do not keep everything behind them in the lanes of their two holders.
#[test]
fn two_copies_of_a_message_move_to_the_ends_of_their_lanes() {
    let mut plan = calm();
    (plan.nodes, plan.copies, plan.messages, plan.busy_s) = (3, 3, 360, 60);
    let mut world = World::new(7, plan);
    world.play_until(75).unwrap();
    assert_eq!(lanes_that_keep_too_much(&world), Vec::<String>::new());
    world.run().unwrap();
}

/// Lanes of messages with many octets beside those of their live messages.
pub(super) fn lanes_that_keep_too_much(world: &World) -> Vec<String> {
    let mut lanes = Vec::new();
    for status in (0..world.plan.nodes).flat_map(|node| world.status(node).unwrap().streams) {
        let engine = &world.engines[usize::from(status.stream.holder.0) - 1];
        let Some(lane) = engine.lanes.get(&(status.stream, Lane::Messages)) else { continue };
        let octets: usize = lane.blocks.values().map(bytes::Bytes::len).sum();
        let octets_max = 10_000 + 1_200 * status.messages as usize;
        if octets >= octets_max {
            lanes.push(format!("{} keeps {octets} of {octets_max} for {} messages", status.stream, status.messages));
        }
    }
    lanes
}
