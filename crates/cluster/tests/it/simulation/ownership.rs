//! Whether an operator may end a message by hand, while its owner is cut off and another node adopts it.

use super::calm;
use super::world::{EPOCH_US, World};
use cluster::{Content, OnNoReplica, Outcome, OwnershipDoubt};
use mail::QueueId;

/// Accepts a message at the first node that no delivery takes.
fn accept(world: &mut World, number: u64) -> QueueId {
    let id = QueueId::new(EPOCH_US + number * 10_000, mail::Node::new(1).unwrap()).unwrap();
    world.history.submitted(id, 1, u64::MAX);
    world.accept(0, id, 1, Content::Whole(super::clients::body_of(id)));
    id
}

fn doubt(world: &World, id: QueueId) -> Option<OwnershipDoubt> {
    world.machines[0].node.as_ref().unwrap().doubt_about_end(world.local(0), id)
}

/// Three nodes; the first one has a message with a copy.
fn with_a_message() -> (World, QueueId) {
    let mut plan = calm();
    (plan.nodes, plan.messages, plan.policy) = (3, 0, OnNoReplica::AcceptLocal);
    let mut world = World::new(1, plan);
    world.play_until(8).unwrap();
    let id = accept(&mut world, 0);
    assert_eq!(doubt(&world, id), Some(OwnershipDoubt::Unknown), "it is not accepted yet");
    world.play_until(9).unwrap();
    assert_eq!(doubt(&world, id), None);
    (world, id)
}

/// The ways between the first node and the others.
const PAIRS: [(usize, usize); 4] = [(0, 1), (1, 0), (0, 2), (2, 0)];

#[test]
fn the_owner_may_end_its_mail_until_it_is_cut_off_for_too_long() {
    let (mut world, id) = with_a_message();
    let other = accept(&mut world, 1);
    world.play_until(10).unwrap();
    world.cut.extend(PAIRS);
    world.with(0, |machine, now, _| machine.completed(now, other, Some(0), Outcome::Delivered));
    world.play_until(12).unwrap();
    assert_eq!(doubt(&world, id), None, "a moment later it is the owner still");
    world.play_until(15).unwrap();
    assert!(matches!(doubt(&world, id), Some(OwnershipDoubt::Behind(_))), "{:?}", doubt(&world, id));
    world.play_until(23).unwrap();
    assert!(matches!(doubt(&world, id), Some(OwnershipDoubt::Silent(_))), "{:?}", doubt(&world, id));
    world.play_until(45).unwrap();
    assert!(world.history.adopted >= 1);
    for pair in PAIRS {
        world.cut.remove(&pair);
    }
    for second in 46..70 {
        world.play_until(second).unwrap();
        assert!(doubt(&world, id).is_some(), "second {second}");
    }
    assert_eq!(doubt(&world, id), Some(OwnershipDoubt::Unknown), "it has left this node");
}

#[test]
fn mail_without_a_copy_may_be_ended_at_any_time() {
    let (mut world, id) = with_a_message();
    world.cut.extend(PAIRS);
    world.play_until(23).unwrap();
    let alone = accept(&mut world, 1);
    world.play_until(30).unwrap();
    assert_eq!(doubt(&world, alone), None, "no other node can have it");
    assert!(doubt(&world, id).is_some());
    world.with(0, |machine, _, _| machine.release());
    assert_eq!((doubt(&world, alone), doubt(&world, id)), (None, Some(OwnershipDoubt::Leaving)));
}

#[test]
fn a_node_that_is_drained_starts_no_delivery_and_may_end_its_mail() {
    let (mut world, id) = with_a_message();
    world.with(0, |machine, now, _| machine.drain(now));
    let node = world.machines[0].node.as_ref().unwrap();
    assert!(!node.may_start_delivery(world.local(0), id));
    assert_eq!(doubt(&world, id), None);
    world.with(0, |machine, _, _| machine.release());
    assert_eq!(doubt(&world, id), Some(OwnershipDoubt::Leaving));
}
