//! An empty spool gives its segments back within a few rounds of the janitor, whatever happened to its mail before.
//!
//! The pool is large, so that nothing lacks: the janitor has no other reason to ask for LIVEMAPs.

use super::world::{Plan, World};
use super::{plan, small};
use spool::{Pressure, Store as _};

/// Rounds after the last recipient is done; a minute lies between two of them.
const ROUNDS_MAX: u64 = 8;
/// The open segments, one hot and one cold.
const OPEN: u64 = 2;

/// Ends all mail of a world and returns the number of rounds after which only open segments are in use; `None` if the
/// spool takes no writes any more.
fn rounds(seed: u64, plan: Plan) -> Option<u64> {
    let mut world = World::new(seed, plan).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    world.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    world.finish_all();
    let figures = world.spool().statistics();
    if world.spool().pressure() == Pressure::Poisoned {
        return None;
    }
    assert_eq!(figures.messages, 0, "seed {seed}");
    for round in 0..=ROUNDS_MAX {
        let figures = world.spool().statistics();
        if figures.segments - figures.segments_free <= OPEN {
            return Some(round);
        }
        world.rest(60_000_000);
    }
    panic!("seed {seed}: {:?}", world.spool().statistics());
}

fn all(seeds: u64, plan: impl Fn(u64) -> Plan) {
    let rounds: Vec<u64> = (1..=seeds).filter_map(|seed| rounds(seed, plan(seed))).collect();
    assert!(rounds.len() as u64 * 2 > seeds, "most spools are writable: {rounds:?}");
    println!("{} spools, at most {:?} rounds", rounds.len(), rounds.iter().max());
}

#[test]
fn after_deliveries() {
    all(40, |_| Plan { config: small(2000), crash_percent: 0, images: 0, finish_percent: 10, ..plan() });
}

#[test]
fn after_relocation_and_power_cuts() {
    all(40, |seed| Plan { config: small(12 + 40 * (seed % 2)), images: 0, steps: 800, ..plan() });
}

#[test]
fn after_failing_writes_and_syncs() {
    all(60, |_| Plan { config: small(2000), fault_percent: 2, images: 0, ..plan() });
}
