//! Mail that the local log does not give for a time, while it is to be copied.

use super::calm;
use super::clients::body_of;
use super::faults::{FaultKind, fault};
use super::world::{EPOCH_US, Plan, SECOND, World};
use cluster::{Block, Content, Lane, NodeId, Record, holders_of};
use mail::QueueId;

/// No mail but that of the test; a client gets its answer also without a copy.
fn quiet(nodes: usize, copies: usize) -> Plan {
    Plan { nodes, copies, messages: 0, busy_s: 10, policy: cluster::OnNoReplica::AcceptLocal, ..calm() }
}

/// Has a node accept messages that are due after five minutes.
fn accept(world: &mut World, node: usize, messages: u64) -> Vec<QueueId> {
    let accept = |_| {
        world.submitted += 1;
        let id = QueueId::new(EPOCH_US + world.submitted, mail::Node::new(1).unwrap()).unwrap();
        world.history.submitted(id, 1, world.now + 300 * SECOND);
        world.accept(node, id, 1, Content::Whole(body_of(id)));
        id
    };
    (0..messages).map(accept).collect()
}

fn copies(world: &World, node: usize, ids: &[QueueId]) -> Vec<usize> {
    let process = world.machines[node].node.as_ref().unwrap();
    ids.iter().map(|id| process.copies(*id)).collect()
}

/// The places of the last stored record of a message, in all streams.
fn records(world: &World, id: QueueId) -> Vec<u64> {
    let has = |octets: &bytes::Bytes| {
        let block = Block::read(super::world::CLUSTER, octets).unwrap();
        block.records.iter().any(|record| matches!(record, Record::Accept(accepted) if accepted.id == id))
    };
    let lanes = world.engines.iter().flat_map(|engine| &engine.lanes).filter(|((_, lane), _)| *lane == Lane::Messages);
    lanes.filter_map(|(_, lane)| lane.blocks.iter().rfind(|(_, octets)| has(octets)).map(|(at, _)| *at)).collect()
}

/// As many messages cannot be read as are read at a time. They wait for a minute, and those behind them do not.
#[test]
fn mail_that_cannot_be_read_keeps_no_other_mail_from_being_copied() {
    let mut world = World::new(1, quiet(3, 2));
    world.play_until(8).unwrap();
    let holders = [1, 2];
    holders.iter().for_each(|holder| world.engines[*holder].is_full = true);
    // Heartbeats find that there is no room, so that no message is in an append.
    world.play_until(13).unwrap();
    let (damaged, sound) = (accept(&mut world, 0, 64), accept(&mut world, 0, 30));
    world.machines[0].log.unreadable.extend(damaged.iter().copied());
    world.play_until(14).unwrap();
    assert_eq!(world.history.acknowledged_count(), 94);
    holders.iter().for_each(|holder| world.engines[*holder].is_full = false);
    let is_copied = |second: &u64| {
        world.play_until(*second).unwrap();
        copies(&world, 0, &sound) == [1; 30]
    };
    let copied = (15..40).find(is_copied).expect("sound mail is copied");
    world.machines[0].log.unreadable.clear();
    world.play_until(copied + 55).unwrap();
    assert_eq!(copies(&world, 0, &damaged), [0; 64], "it is not asked for before a minute is over");
    world.play_until(copied + 65).unwrap();
    assert_eq!(copies(&world, 0, &damaged), [1; 64]);
    world.run().unwrap();
}

/// The copy of a message that an operator held is written again, although the message could not be read at once.
#[test]
fn a_copy_that_was_to_be_written_again_is_when_the_message_can_be_read() {
    let mut world = World::new(1, quiet(3, 2));
    world.play_until(8).unwrap();
    let id = accept(&mut world, 0, 1)[0];
    world.play_until(10).unwrap();
    let first = records(&world, id);
    world.machines[0].log.unreadable.insert(id);
    world.with(0, |machine, now, _| machine.changed(now, id, true));
    world.play_until(15).unwrap();
    world.machines[0].log.unreadable.clear();
    world.play_until(65).unwrap();
    assert_eq!((first.len(), records(&world, id)), (1, first.clone()), "it rests");
    world.play_until(75).unwrap();
    assert!(records(&world, id) > first, "{first:?}");
    world.run().unwrap();
}

/// The message cannot be read between the two writes that make a pair of its copies.
#[test]
fn the_second_copy_of_a_pair_is_written_when_the_message_can_be_read() {
    let mut world = World::new(1, quiet(3, 3));
    world.play_until(8).unwrap();
    world.engines[2].is_full = true;
    world.play_until(15).unwrap();
    let id = accept(&mut world, 0, 1)[0];
    world.play_until(16).unwrap();
    assert_eq!(copies(&world, 0, &[id]), [1]);
    world.engines[2].is_full = false;
    let is_promised =
        |world: &World| world.history.copied.get(&id).is_some_and(|all| all.iter().any(|(_, twin)| twin.is_some()));
    let is_reached = |at: &u64| {
        world.play_until_us(*at).unwrap();
        is_promised(&world)
    };
    let at = (16 * SECOND..60 * SECOND).step_by(200).find(is_reached).expect("the first copy is written again");
    world.machines[0].log.unreadable.insert(id);
    let began = at / SECOND;
    world.play_until(began + 5).unwrap();
    world.machines[0].log.unreadable.clear();
    world.play_until(began + 55).unwrap();
    assert_eq!(copies(&world, 0, &[id]), [1], "it rests");
    world.play_until(began + 65).unwrap();
    assert_eq!(copies(&world, 0, &[id]), [2]);
    world.run().unwrap();
}

/// A message rests; another node adopts it meanwhile and dies, and the first one has it back. No holder takes it then,
/// so that it must be read as soon as one does.
#[test]
fn a_message_that_comes_back_is_read_without_a_rest() {
    let first_of = |nodes: u16, node: u16| holders_of(NodeId(node), (1..=nodes).map(NodeId))[0].0;
    let of_nodes = |nodes: u16| (1..=nodes).map(move |node| (nodes, node, first_of(nodes, node)));
    let (nodes, owner, holder) = (3..=5)
        .flat_map(of_nodes)
        .find(|(nodes, owner, holder)| first_of(*nodes, *holder) == *owner)
        .expect("two nodes that hold the copies of each other");
    let [owner, holder] = [owner, holder].map(|node| usize::from(node) - 1);
    let mut plan = quiet(usize::from(nodes), 2);
    plan.faults = vec![fault(11, 19, owner, FaultKind::Pause), fault(35, 100, holder, FaultKind::Crash)];
    let others = (0..plan.nodes).filter(|node| ![owner, holder].contains(node));
    plan.faults.extend(others.map(|node| fault(9, 49, node, FaultKind::CrashEngine)));
    let mut world = World::new(1, plan);
    world.play_until(8).unwrap();
    let id = accept(&mut world, owner, 1)[0];
    world.play_until(10).unwrap();
    world.machines[owner].log.unreadable.insert(id);
    world.with(owner, |machine, now, _| machine.changed(now, id, true));
    let hops = |world: &World, node: usize| world.machines[node].log.entries.get(&id).map(|entry| entry.hops);
    world.play_until(34).unwrap();
    assert_eq!((hops(&world, holder), world.live(owner).len()), (Some(1), 0), "the holder has adopted it");
    assert_eq!(copies(&world, holder, &[id]), [1], "and copied it to the owner");
    world.play_until(57).unwrap();
    assert_eq!((hops(&world, owner), copies(&world, owner, &[id])), (Some(2), vec![0]), "the owner has it back");
    world.play_until(66).unwrap();
    assert_eq!(copies(&world, owner, &[id]), [1]);
    world.run().unwrap();
}

/// The octets of a large message are in the local log alone, which does not give them: the client does not wait for
/// another look at it.
#[test]
fn a_client_has_its_answer_at_once_when_its_message_cannot_be_read() {
    let mut world = World::new(1, quiet(3, 2));
    world.play_until(8).unwrap();
    let id = QueueId::new(EPOCH_US, mail::Node::new(1).unwrap()).unwrap();
    world.history.submitted(id, 1, world.now + 300 * SECOND);
    world.accept(0, id, 1, Content::Streamed);
    world.machines[0].log.unreadable.insert(id);
    world.play_until(9).unwrap();
    assert_eq!((world.history.acknowledged_count(), copies(&world, 0, &[id])), (1, vec![0]));
    world.machines[0].log.unreadable.clear();
    world.play_until(75).unwrap();
    assert_eq!(copies(&world, 0, &[id]), [1]);
    world.run().unwrap();
}
