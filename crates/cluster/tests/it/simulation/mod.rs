//! Whole clusters over faults, by seed.
//!
//! `SIM_COUNT=10000 cargo test -p mailrace-cluster simulation` plays more seeds, from `SIM_FROM` on; `SIM_SEED=17
//! SIM_LOG=1 cargo test -p mailrace-cluster simulation::faults -- --nocapture` one of them with its log, and with all
//! requests and answers if `SIM_LOG` is 2. A seed that failed goes into `KEPT`, or into a test named after its rule.

mod by_hand;
mod check;
mod clients;
mod deliveries;
mod departure;
mod drain;
mod end;
pub(crate) mod engine;
mod event;
mod faults;
mod firsts;
mod handed_back;
mod lanes;
mod local_log;
mod lost_bodies;
mod lost_end;
mod moved;
mod network;
mod new_disk;
mod ownership;
mod pace;
mod pairs;
mod process;
mod status;
mod unreadable;
mod upgrade;
mod world;

use crate::chance::Chance;
use cluster::{OnNoReplica, Sabotage};
use faults::{FaultKind, fault};
use world::{Plan, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn plan(seed: u64) -> Plan {
    let mut chance = Chance::new(seed ^ 0x5eed);
    let nodes = chance.pick(&[2, 3, 3, 3, 4, 5]);
    let busy_s = chance.between(20, 120);
    let mut plan = plan_of(seed, &mut chance, nodes, busy_s);
    let mut chance = Chance::new(seed ^ 0xb17);
    if chance.percent(20) {
        faults::add_damage(&mut plan.faults, &mut chance, nodes, busy_s);
    }
    plan
}

/// No fault and no noise.
fn calm() -> Plan {
    let mut plan = plan(1);
    (plan.nodes, plan.copies, plan.messages, plan.busy_s) = (5, 2, 200, 40);
    plan.faults.clear();
    plan
}

fn plan_of(seed: u64, chance: &mut Chance, nodes: usize, busy_s: u64) -> Plan {
    Plan {
        nodes,
        copies: if nodes > 2 && chance.percent(25) { 3 } else { 2 },
        messages: chance.between(10, 80),
        busy_s,
        quiet_s: 420,
        faults: faults::choose(chance, nodes, busy_s),
        orders: Vec::new(),
        noise: chance.between(2, 20),
        policy: chance.pick(&[OnNoReplica::TempFail, OnNoReplica::AcceptLocal]),
        is_sync_always: true,
        newest: (1, 1),
        claims_max: None,
        compaction_octets_min: 6_000,
        has_watch: Chance::new(seed ^ 0x3a7c).percent(30),
        has_slow_clients: Chance::new(seed ^ 0xc11e).percent(50),
        has_ends_by_hand: false,
        sabotage: Sabotage::default(),
    }
}

#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    acknowledged: usize,
    orders: usize,
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
    totals.orders += world.history.orders;
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
    const KEPT: &[u64] = &[
        4, 7, 29, 104, 109, 219, 226, 238, 379, 594, 3254, 4008, 5477, 5567, 7341, 7559, 12503, 13176, 17387, 17461,
        24836, 30442, 31278, 74327, 401109, 1000358,
    ];
    campaign(KEPT, 250, plan);
}

/// An end by hand counts as a delivery: no other node may have the message then, and it comes back only as one of the
/// possible duplicates.
#[test]
fn mail_that_operators_end_is_theirs_to_end() {
    campaign(&[], 100, |seed| Plan { has_ends_by_hand: true, ..plan(seed) });
}

/// One run, kept for the rule that it once broke.
#[track_caller]
fn kept(seed: u64, plan: impl Fn(u64) -> Plan) {
    if let Err(error) = play(seed, plan(seed), &mut Totals::default()) {
        panic!("seed {seed}: {error}");
    }
}

/// The request for a new generation of a lost stream gets no answer.
#[test]
fn a_stream_is_made_even_if_the_first_request_is_lost() {
    kept(10070, plan);
}

/// Two large bodies begin in one block, and the first of them is done.
#[test]
fn a_block_of_bodies_stays_while_one_of_them_lives() {
    kept(15732, plan);
}

/// The owner is back when the answer to the deputy's last ADOPTED comes, so the deputy need not watch any more.
#[test]
fn a_deputy_delivers_what_it_adopted_before_the_owner_was_back() {
    kept(12439, plan);
}

/// Blocks of one node are damaged, and one other fault happens.
fn damage(seed: u64) -> Plan {
    let mut chance = Chance::new(seed ^ 0xf11b);
    let mut plan = plan(seed);
    plan.faults.retain(|fault| !fault.loses_data());
    plan.faults.truncate(1);
    faults::add_damage(&mut plan.faults, &mut chance, plan.nodes, plan.busy_s);
    plan
}

#[test]
fn damaged_blocks_lose_nothing() {
    campaign(&[71, 744], 150, damage);
}

/// An owner dies, often its holder too, and the nodes that adopt die again and again within their parts.
fn dying_adopters(seed: u64) -> Plan {
    let mut chance = Chance::new(seed ^ 0xad09);
    let nodes = chance.pick(&[3, 4, 5]);
    Plan {
        nodes,
        busy_s: 50,
        messages: chance.between(80, 250),
        faults: faults::dying_adopters(&mut chance, nodes),
        ..plan(seed)
    }
}

#[test]
fn adopters_that_die_lose_nothing() {
    campaign(&[3013], 60, dying_adopters);
}

/// The adopter of second copies dies within a part, and the owner opens the stream of the first copies meanwhile.
#[test]
fn a_part_of_second_copies_is_the_same_after_a_restart() {
    kept(709, dying_adopters);
}

/// An owner's process and perhaps its holder's die, their engines live, and the deputies that adopt die within parts.
fn dying_deputies(seed: u64) -> Plan {
    let mut chance = Chance::new(seed ^ 0xde9);
    let nodes = chance.pick(&[3, 4]);
    Plan {
        nodes,
        busy_s: 30,
        messages: chance.between(80, 250),
        faults: faults::dying_deputies(&mut chance, nodes),
        ..plan(seed)
    }
}

#[test]
fn deputies_that_die_lose_nothing() {
    campaign(&[176, 939, 1083, 1489], 40, dying_deputies);
}

/// The store does not list all claims at once, as that of the engine with more than 1,000 of them.
#[test]
fn deputies_find_their_parts_among_more_claims_than_a_list_takes() {
    campaign(&[176, 939, 1083, 1489], 10, |seed| Plan { claims_max: Some(3), ..dying_deputies(seed) });
}

/// A node gives its mail up and is back with a new disk before its holder has looked.
#[test]
fn released_mail_of_a_disk_that_was_replaced_is_adopted() {
    for seed in 1..=3 {
        kept(seed, |_| {
            let mut plan = calm();
            (plan.nodes, plan.messages, plan.busy_s) = (2, 60, 15);
            plan.faults = vec![
                fault(18, 14, 1, FaultKind::Pause),
                fault(19, 30, 0, FaultKind::Drain),
                fault(25, 2, 0, FaultKind::ReplaceDisk { with_engine: false }),
            ];
            plan
        });
    }
}

/// A node whose new disk counts fewer starts than the one before takes mail back from a stream that it has not read,
/// and dies again before the holder is back.
#[test]
fn a_disk_with_fewer_starts_takes_its_own_mail_back() {
    for seed in 1..=6 {
        kept(seed, |_| {
            let mut plan = calm();
            (plan.nodes, plan.messages, plan.busy_s) = (3, 200, 58);
            plan.faults = vec![
                fault(4, 1, 0, FaultKind::Crash),
                fault(7, 1, 0, FaultKind::Crash),
                fault(10, 1, 0, FaultKind::Crash),
                fault(20, 2, 0, FaultKind::ReplaceDisk { with_engine: false }),
                fault(60, 75, 1, FaultKind::CrashMachine),
                fault(60, 1, 0, FaultKind::Crash),
                fault(125, 60, 0, FaultKind::Crash),
            ];
            plan
        });
    }
}

/// Plays a run with a rule left out until a seed notices it; none does within `count` seeds if the checks are blind.
fn control(count: u64, plan: impl Fn(u64) -> Plan) {
    let mut totals = Totals::default();
    let noticed = (1..=count).find_map(|seed| Some((seed, play(seed, plan(seed), &mut totals).err()?)));
    let (seed, error) = noticed.expect("a rule is left out and no seed notices it");
    println!("seed {seed}: {error}");
}

#[test]
fn an_engine_that_syncs_late_is_noticed() {
    control(300, |seed| {
        let mut chance = Chance::new(seed);
        let mut plan = Plan { is_sync_always: false, ..plan(seed) };
        plan.faults = vec![faults::power_cut_and_disk(&mut chance, plan.nodes, plan.busy_s)];
        plan
    });
}

#[test]
fn several_blocks_in_flight_are_noticed() {
    control(100, |seed| {
        let mut plan = Plan { sabotage: Sabotage { window_extra: 7, ..Sabotage::default() }, ..plan(seed) };
        (plan.busy_s, plan.messages) = (60, 200);
        plan.faults = vec![faults::zombie(&mut Chance::new(seed), plan.nodes)];
        plan
    });
}

#[test]
fn an_adopter_that_does_not_wait_is_noticed() {
    control(300, |seed| Plan { sabotage: Sabotage { no_wait: true, ..Sabotage::default() }, ..plan(seed) });
}

#[test]
fn completions_left_out_are_noticed() {
    control(100, |seed| Plan { sabotage: Sabotage { no_done: true, ..Sabotage::default() }, ..plan(seed) });
}

#[test]
fn claims_left_out_are_noticed() {
    control(100, |seed| Plan { sabotage: Sabotage { no_claim: true, ..Sabotage::default() }, ..plan(seed) });
}
