//! Second copies of an owner that is gone, while the holder of the first ones lives and does not adopt: its engine is
//! away. They wait until the claim of the first copies has decided.

use super::by_hand::number;
use super::faults::{Fault, FaultKind, fault};
use super::pairs::of_three_copies;
use super::world::{MILLI, SECOND, World};
use cluster::{StreamId, holders_of};

/// The holders of the first and the second copies of the first of five nodes.
fn holders() -> [usize; 2] {
    let holders = holders_of(number(0), (0..5).map(number));
    [0, 1].map(|at: usize| usize::from(holders[at].0) - 1)
}

/// A cluster in which the engine of the holder of the first copies goes away before the owner does.
fn without_first_engine(seed: u64, of_owner: &[Fault]) -> World {
    let engine = fault(44, 250, holders()[0], FaultKind::CrashEngine);
    let mut world = World::new(seed, of_three_copies(5, [&[engine], of_owner].concat()));
    world.play_until(44).unwrap();
    let copies = world.by_copies(0);
    assert!(copies.keys().eq([&2]) && copies[&2].len() > 10, "{copies:?}");
    world
}

/// It has a minute to begin.
#[test]
fn second_copies_are_adopted_when_the_holder_of_the_first_ones_does_not_begin() {
    let gone =
        [fault(45, 249, 0, FaultKind::CrashMachine), fault(46, 248, 0, FaultKind::ReplaceDisk { with_engine: true })];
    let [first, second] = holders();
    for seed in 1..=3 {
        let mut world = without_first_engine(seed, &gone);
        world.play_until_us(46 * SECOND - MILLI).unwrap();
        let mail = world.live(0);
        world.play_until(70).unwrap();
        let adoptions = world.status(second).unwrap().adoptions;
        let is_asking = adoptions.iter().any(|one| one.stream.owner == number(0) && one.step == "claim");
        assert!(is_asking, "seed {seed}: {adoptions:?}");
        world.play_until(115).unwrap();
        assert_eq!(world.live(second).intersection(&mail).count(), 0, "seed {seed}: it has a minute");
        world.play_until(135).unwrap();
        assert_eq!(world.waiting(&mail, &[0, first]), [], "seed {seed}");
        world.run().unwrap();
    }
}

/// The owner is back while the adopter of its second copies asks for the claim of the first ones, so that this one has
/// nothing to take. The adopter loses the store when it asks for its own claim; meanwhile the owner is gone for good,
/// and the holder of the first copies too.
///
/// Returns whether the adopter learns of the end of the owner before it hands the mail back.
fn returned_owner(seed: u64) -> bool {
    let [first, second] = holders();
    let mut world = without_first_engine(seed, &[fault(45, 25, 0, FaultKind::Crash)]);
    let own = StreamId { owner: number(0), holder: number(second), generation: 0 }.claim_key();
    world.play_until(70).unwrap();
    let before = world.store.asked[&own];
    let has_asked = |at: &u64| {
        world.play_until_us(*at).unwrap();
        world.store.asked[&own] > before
    };
    let at = (70 * SECOND..75 * SECOND).step_by(200).find(has_asked).expect("the owner's return is seen");
    world.without_store.insert(second);
    for node in [0, first] {
        world.crash(node);
        world.replace_disk(node);
        world.engines[node].is_up = false;
        world.engines[node].lose_all(true);
    }
    let back = at + 20 * SECOND + seed * 300 * MILLI;
    world.play_until_us(back).unwrap();
    world.without_store.remove(&second);
    world.play_until_us(back + 10 * SECOND).unwrap();
    let is_noticed = world.history.handed_back == 0;
    world.play_until(200).unwrap();
    for node in [0, first] {
        world.engines[node].is_up = true;
        world.start(node);
    }
    if let Err(error) = world.run() {
        panic!("seed {seed}, handed back: {}: {error}", !is_noticed);
    }
    is_noticed
}

#[test]
fn second_copies_outlive_an_owner_that_was_back_for_a_moment() {
    let noticed = (1..=8).filter(|seed| returned_owner(*seed)).count();
    assert!(noticed > 1, "{noticed} adopters learn that the owner is gone again before they hand the mail back");
}
