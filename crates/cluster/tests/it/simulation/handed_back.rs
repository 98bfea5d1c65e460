//! Mail that an adopter handed back to its owner, which dies before it has opened the stream.

use super::by_hand::number;
use super::faults::{FaultKind, fault};
use super::new_disk::adopters_with_new_disks;
use super::world::{MILLI, Plan, SECOND, World};
use super::{calm, damage};
use cluster::holders_of;
use mail::QueueId;
use std::collections::BTreeSet;

/// A cluster in which an owner is back while its mail is adopted, and cannot reach the holder; with that mail.
///
/// `None` if the holder hands nothing back.
fn handed_back(seed: u64, holder: usize) -> Option<(World, BTreeSet<QueueId>)> {
    let mut plan = calm();
    plan.faults = vec![
        fault(45, 20 + seed, 0, FaultKind::Crash),
        fault(45, 200, 0, FaultKind::CutPair(holder)),
        fault(46, 50, holder, FaultKind::SlowEngine),
    ];
    let mut world = World::new(seed, plan);
    world.play_until(46).unwrap();
    let mail = world.live(0);
    let is_handed_back = |at: &u64| {
        world.play_until_us(*at).unwrap();
        world.history.handed_back > 0
    };
    (46 * SECOND..96 * SECOND).step_by(MILLI as usize).find(is_handed_back)?;
    (!world.waiting(&mail, &[0]).is_empty()).then_some((world, mail))
}

/// A cluster whose first node has lost its disk behind the hand-back of its mail.
struct HandedBackRun {
    seed: u64,
    world: World,
    mail: BTreeSet<QueueId>,
    holder: usize,
}

/// Runs of the first seeds in which the holder hands mail back.
fn without_owner(seeds: u64) -> impl Iterator<Item = HandedBackRun> {
    let holder = usize::from(holders_of(number(0), (0..5).map(number))[0].0) - 1;
    (1..=seeds).filter_map(move |seed| {
        let (mut world, mail) = handed_back(seed, holder)?;
        world.crash(0);
        world.replace_disk(0);
        Some(HandedBackRun { seed, world, mail, holder })
    })
}

/// Holder and owner start again, the owner with a new disk.
#[test]
fn mail_that_was_handed_back_is_adopted_by_an_adopter_that_starts_again() {
    let mut runs = 0;
    for HandedBackRun { seed, mut world, mail, holder } in without_owner(12) {
        runs += 1;
        world.crash(holder);
        let at = world.now / SECOND;
        world.play_until(at + 2).unwrap();
        world.start(holder);
        if seed.is_multiple_of(2) {
            world.start(0);
        }
        world.play_until(at + 80).unwrap();
        assert_eq!(world.waiting(&mail, &[0]), [], "seed {seed}");
        world.start(0);
        world.run().unwrap();
    }
    assert!(runs > 2, "adopters handed mail back {runs} times");
}

/// The holder leaves for good when the owner is gone again: it leaves the rest to another node, and has copies until
/// that has adopted it. If the owner is back with a new disk, no other node would.
#[test]
fn a_node_that_leaves_for_good_adopts_no_mail_that_it_handed_back() {
    let mut runs = 0;
    for HandedBackRun { seed, mut world, mail, holder } in without_owner(6) {
        runs += 1;
        let is_back = seed.is_multiple_of(2);
        if is_back {
            world.start(0);
        }
        world.with(holder, |machine, now, _| machine.announce_departure(now));
        let has_copies = |world: &World| {
            let copies = world.machines[holder].node.as_ref().unwrap().copies_held();
            copies.iter().any(|(owner, _)| *owner == number(0))
        };
        let at = world.now / SECOND;
        world.play_until(at + 8).unwrap();
        assert!(has_copies(&world), "seed {seed}");
        for second in at + 9..at + 80 {
            world.play_until(second).unwrap();
            let status = world.status(holder).unwrap();
            let is_of_owner = |one: &cluster::AdoptionStatus| one.stream.owner == number(0);
            assert!(is_back || !status.adoptions.iter().any(is_of_owner), "seed {seed}: {status:?}");
        }
        assert_eq!(world.waiting(&mail, &[0]), [], "seed {seed}");
        assert!(!has_copies(&world), "seed {seed}");
        world.crash(holder);
        [0, holder].iter().for_each(|node| world.start(*node));
        world.run().unwrap();
    }
    assert!(runs > 1, "adopters handed mail back {runs} times");
}

/// The deliveries of a run whose nodes lose their disks one after the other when all mail is over; and those before.
fn with_late_losses(seed: u64, plan: Plan) -> Result<(usize, usize), String> {
    let nodes = plan.nodes;
    let mut world = World::new(seed, plan);
    world.run()?;
    let before = world.history.deliveries_count();
    for node in 0..nodes {
        world.crash(node);
        world.replace_disk(node);
        world.play_until(world.now / SECOND + 60)?;
        world.start(node);
        world.play_until(world.now / SECOND + 20)?;
    }
    Ok((world.history.deliveries_count(), before))
}

/// Streams that were given up keep no mail for adopters.
#[test]
fn nothing_goes_out_again_when_all_mail_is_over() {
    let mut repeated = Vec::new();
    for seed in [71, 744].into_iter().chain(1..=20) {
        for (name, plan) in [("damage", damage(seed)), ("adopters", adopters_with_new_disks(seed))] {
            match with_late_losses(seed, plan) {
                Ok((after, before)) if after == before => {}
                other => repeated.push((name, seed, other)),
            }
        }
    }
    assert!(repeated.is_empty(), "{repeated:?}");
}
