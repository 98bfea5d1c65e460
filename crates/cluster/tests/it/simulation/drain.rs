//! Planned exits that one holder keeps from their end: the mail at the others is adopted at once all the same.

use super::by_hand::number;
use super::calm;
use super::faults::{Fault, FaultKind, fault};
use super::world::{Plan, World};
use cluster::holders_of;
use mail::QueueId;
use std::collections::BTreeSet;

/// The first two holders of the first of five nodes.
fn holders() -> [usize; 2] {
    let holders = holders_of(number(0), (0..5).map(number));
    [0, 1].map(|at: usize| usize::from(holders[at].0) - 1)
}

fn draining(faults: &[Fault]) -> Plan {
    Plan { faults: [faults, &[fault(45, 150, 0, FaultKind::Drain)]].concat(), ..calm() }
}

/// Those of some messages that nodes have as possible duplicates.
fn possible_duplicates(world: &World, mail: &BTreeSet<QueueId>) -> Vec<QueueId> {
    let entries = world.machines.iter().flat_map(|machine| &machine.log.entries);
    entries.filter(|(id, entry)| entry.may_be_duplicate && mail.contains(id)).map(|(id, _)| *id).collect()
}

/// One holder has no room. Another one looks at its stream only seconds after that was given up.
#[test]
fn mail_that_is_given_up_is_adopted_at_once_while_another_holder_has_no_room() {
    let [first, second] = holders();
    for seed in 1..=4 {
        let faults = [fault(42, 60, second, FaultKind::FullEngine), fault(45, 8, first, FaultKind::Pause)];
        let mut world = World::new(seed, draining(&faults));
        world.play_until(47).unwrap();
        let mail = world.live(0);
        world.play_until(60).unwrap();
        assert!(!mail.is_empty() && world.machines[0].node.is_some(), "seed {seed}: it waits for the other holder");
        assert_eq!(world.waiting(&mail, &[0]), [], "seed {seed}");
        world.play_until(110).unwrap();
        assert!(world.machines[0].node.is_none(), "seed {seed}: {:?}", world.status(0));
        assert_eq!(possible_duplicates(&world, &mail), [], "seed {seed}");
        world.run().unwrap();
    }
}

/// The holder of the mail is gone. After 24 seconds its owner takes the mail back, and another holder, to which it has
/// given an empty stream up, gets it.
#[test]
fn mail_that_is_taken_back_goes_to_a_holder_whose_stream_was_given_up() {
    let [first, _] = holders();
    let mut counts = BTreeSet::new();
    let seeds = (1..=4).map(|seed| (seed, 200)).chain((5..=12).map(|seed| (seed, 20))).chain([(65, 8)]);
    for (seed, messages) in seeds {
        let plan = draining(&[fault(44, 140, first, FaultKind::CrashEngine)]);
        let mut world = World::new(seed, Plan { messages, ..plan });
        world.play_until(60).unwrap();
        let mail = world.live(0);
        counts.insert(mail.len());
        if mail.is_empty() {
            continue;
        }
        world.play_until(95).unwrap();
        assert!(world.machines[0].node.is_none(), "seed {seed}, {messages} messages: {:?}", world.status(0));
        assert_eq!(world.waiting(&mail, &[0]), [], "seed {seed}, {messages} messages");
        assert_eq!(possible_duplicates(&world, &mail), [], "seed {seed}");
        world.run().unwrap();
    }
    assert!(counts.range(1..4).next().is_some() && counts.last() > Some(&10), "{counts:?}");
}
