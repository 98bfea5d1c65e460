//! The whole server in a machine that does not exist: sessions, spool, dispatch, deliver and settle as they are, with a disk,
//! a network and a clock of our own.
//!
//! A run comes from a seed: messages, hosts and their moods ([`host`]), crashes and stops ([`machine`]), an operator who
//! holds and deletes. Virtual days pass in a moment. At the end [`check`] compares what was promised with what came to pass:
//! no message that was answered 250 is lost, none comes twice without a crash or a silent host to blame, every body is the
//! same octet for octet, and senders hear what they are to hear, once, in time.
//!
//! ```text
//! SIM_COUNT=500 cargo test -p mailrace-server simulation   a campaign, from SIM_FROM on
//! SIM_SEED=17 SIM_LOG=1 cargo test … -- --nocapture        one run, with all that is said
//! ```
//!
//! A seed that failed goes into [`KEPT`] and stays. [`Sabotage`]s are faults made on purpose: each must be noticed.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

mod book;
mod check;
mod disk;
mod host;
mod late;
mod machine;
mod many;
mod moves;
mod mx;
mod plan;
mod random;
mod receipts;
mod run;
mod sabotage;
mod scene;
mod sender;
mod talk;
mod wire;
mod world;

use crate::config::Acknowledge;
pub(crate) use disk::{spool_on, spool_with};
pub(crate) use sabotage::{Sabotage, hold_back, is_sabotaged, let_go};
pub(crate) use world::Sizes;

/// Seeds that once showed a fault.
const KEPT: &[u64] = &[134, 159, 226, 316, 346, 378, 2777, 2998, 5941];
/// Runs of a usual test.
const COUNT: u64 = 40;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn nothing_is_lost_and_nothing_comes_twice() {
    let (from, count) = (number("SIM_FROM").unwrap_or(1), number("SIM_COUNT").unwrap_or(COUNT));
    let only = number("SIM_SEED");
    let mut failed = Vec::new();
    let all = KEPT.iter().copied().chain(from..from + count);
    let seeds: Vec<u64> = only.map_or_else(|| all.collect(), |only| vec![only]);
    for seed in seeds {
        let wrong = run::run(seed, None);
        if let Some(first) = wrong.first() {
            println!("seed {seed}: {} things are wrong, first: {first}", wrong.len());
            if only.is_some() {
                println!("{wrong:#?}");
            }
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
}

#[test]
fn what_is_delivered_before_it_is_durable_is_not_lost_either() {
    let count = number("SIM_COUNT").unwrap_or(COUNT) / 2;
    for how in [Acknowledge::Race, Acknowledge::Interactive] {
        for seed in 1..=count {
            let wrong = run::run_early(seed, how, None);
            assert!(wrong.is_empty(), "{how:?}, seed {seed}: {wrong:#?}");
        }
        for sabotage in [Sabotage::AnswerEarly, Sabotage::ForgetOutcome] {
            let is_noticed = (1..=30).any(|seed| !run::run_early(seed, how, Some(sabotage)).is_empty());
            assert!(is_noticed, "{how:?}: {sabotage:?} was not noticed");
        }
    }
}

#[test]
fn domains_that_share_hosts_lose_nothing() {
    let mut failed = Vec::new();
    for seed in 1..=number("SIM_COUNT").unwrap_or(COUNT) {
        let wrong = run::run_sites(seed, None);
        if let Some(first) = wrong.first() {
            println!("seed {seed}: {} things are wrong, first: {first}", wrong.len());
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
    let is_noticed = |sabotage| (1..=30).any(|seed| !run::run_sites(seed, Some(sabotage)).is_empty());
    assert!(Sabotage::ALL.into_iter().all(is_noticed));
}

#[test]
fn in_queue_mode_nothing_leaves_without_a_command() {
    for seed in 1..=5 {
        let wrong = run::run_queue(seed);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    }
}

#[test]
fn a_run_repeats_to_the_letter() {
    for seed in [3, 4] {
        assert_eq!(run::fingerprint(seed), run::fingerprint(seed), "seed {seed}");
    }
}

/// The checkers must be able to say no.
#[test]
fn sabotage_is_noticed() {
    for sabotage in Sabotage::ALL {
        let seed = (1..=30).find(|seed| !run::run(*seed, Some(sabotage)).is_empty());
        assert!(seed.is_some(), "{sabotage:?} was not noticed");
        println!("{sabotage:?}: noticed with seed {seed:?}");
    }
}
