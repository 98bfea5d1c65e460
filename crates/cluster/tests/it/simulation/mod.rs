//! Whole clusters over faults, by seed.
//!
//! `SIM_COUNT=10000 cargo test -p mailrace-cluster simulation` plays more seeds, from `SIM_FROM` on; `SIM_SEED=17
//! SIM_LOG=1 cargo test -p mailrace-cluster simulation::faults -- --nocapture` one of them with its log. A seed that
//! failed goes into `KEPT` of its test and stays there.

mod check;
mod engine;
mod faults;
mod local_log;
mod world;

use crate::chance::Chance;
use cluster::{OnNoReplica, Sabotage};
use world::{Plan, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn plan(seed: u64) -> Plan {
    let mut chance = Chance::new(seed ^ 0x5eed);
    let nodes = chance.pick(&[2, 3, 3, 3, 4, 5]);
    let busy_s = chance.between(20, 120);
    Plan {
        nodes,
        copies: if nodes > 2 && chance.percent(25) { 3 } else { 2 },
        messages: chance.between(10, 80),
        busy_s,
        quiet_s: 420,
        faults: faults::choose(&mut chance, nodes, busy_s),
        noise: chance.between(2, 20),
        policy: chance.pick(&[OnNoReplica::TempFail, OnNoReplica::AcceptLocal]),
        is_sync_always: true,
        sabotage: Sabotage::default(),
    }
}

#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    acknowledged: usize,
    adoptions: usize,
    adopted: usize,
    handed_back: usize,
    taken_back: usize,
    duplicates: usize,
}

fn play(seed: u64, plan: Plan, totals: &mut Totals) -> Result<(), String> {
    let mut world = World::new(seed, plan);
    let result = world.run();
    totals.runs += 1;
    totals.acknowledged += world.history.acknowledged_count();
    totals.adoptions += world.history.adoptions;
    totals.adopted += world.history.adopted;
    totals.handed_back += world.history.handed_back;
    totals.taken_back += world.history.taken_back;
    totals.duplicates += world.history.duplicates;
    result
}

fn campaign(kept: &[u64], count: u64, plan: impl Fn(u64) -> Plan) -> Totals {
    let (from, only) = (number("SIM_FROM").unwrap_or(1), number("SIM_SEED"));
    let count = number("SIM_COUNT").unwrap_or(count);
    let mut totals = Totals::default();
    let seeds = kept.iter().copied().chain(from..from + count);
    let seeds: Vec<u64> = only.map_or_else(|| seeds.collect(), |seed| vec![seed]);
    let mut failed = Vec::new();
    for seed in seeds {
        if let Err(error) = play(seed, plan(seed), &mut totals) {
            println!("seed {seed}: {error}\n  {:?}", plan(seed));
            failed.push(seed);
        }
    }
    println!("{totals:?}");
    assert!(failed.is_empty(), "{} seeds failed: {failed:?}", failed.len());
    totals
}

#[test]
fn faults_lose_nothing() {
    const KEPT: &[u64] = &[];
    campaign(KEPT, 100, plan);
}
