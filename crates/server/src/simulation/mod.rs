//! The whole server on a simulated machine: sessions, spool, dispatch, deliver and settle are the real ones, with a
//! simulated disk, network and clock.
//!
//! A run comes from a seed: messages, hosts and their moods ([`host`]), crashes and stops ([`machine`]), an operator
//! who holds and deletes. Virtual days pass in a moment. At the end [`check`] compares promises and facts: no message
//! that was answered 250 is lost, none comes twice without a crash or a silent host to blame, every body is the same
//! octet for octet, and senders get the reports they asked for, once, in time.
//!
//! ```text
//! SIM_COUNT=500 cargo test -p mailrace-server simulation   campaigns, from SIM_FROM on
//! SIM_SEED=17 SIM_LOG=1 cargo test … -- --nocapture        one run, with all that is said
//! ```
//!
//! A campaign ([`campaign`]) prints the command that plays a failed seed again. The seed goes into the list of its
//! campaign ([`KEPT`] and those below it) and stays. [`Sabotage`]s are faults made on purpose: each must be noticed.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

mod behind;
mod book;
mod bounce;
mod campaign;
mod check;
mod disk;
mod host;
mod late;
mod machine;
mod many;
mod moves;
mod mx;
mod paced;
mod plan;
mod race;
mod random;
mod receipts;
mod run;
mod scene;
mod sender;
mod sent_mail;
mod talk;
mod wire;
mod world;

use crate::config::Acknowledge;
use crate::sabotage::Sabotage;
pub(crate) use disk::{spool_on, spool_with};
pub(crate) use world::Sizes;

/// Seeds that once showed a fault.
const KEPT: &[u64] = &[134, 159, 226, 316, 346, 378, 2777, 2998, 5941];
/// The same of mail that may be delivered before it is durable, of domains that share hosts, and of queue mode.
const KEPT_EARLY: &[u64] = &[];
const KEPT_SITES: &[u64] = &[];
const KEPT_QUEUE: &[u64] = &[];
/// Runs of a usual test.
const COUNT: u64 = 40;

#[test]
fn nothing_is_lost_and_nothing_comes_twice() {
    campaign::play(nothing_is_lost_and_nothing_comes_twice, KEPT, COUNT, |seed| run::run(seed, None));
}

/// How mail is acknowledged that may be delivered before it is durable.
const EARLY: [Acknowledge; 2] = [Acknowledge::Race, Acknowledge::Interactive];

#[test]
fn what_is_delivered_before_it_is_durable_is_not_lost_either() {
    campaign::play(what_is_delivered_before_it_is_durable_is_not_lost_either, KEPT_EARLY, COUNT / 2, |seed| {
        let wrong_as = |how| run::run_early(seed, how, None).into_iter().map(move |wrong| format!("{how:?}: {wrong}"));
        EARLY.into_iter().flat_map(wrong_as).collect()
    });
}

#[test]
fn domains_that_share_hosts_lose_nothing() {
    campaign::play(domains_that_share_hosts_lose_nothing, KEPT_SITES, COUNT, |seed| run::run_sites(seed, None));
}

#[test]
fn in_queue_mode_nothing_leaves_without_a_command() {
    campaign::play(in_queue_mode_nothing_leaves_without_a_command, KEPT_QUEUE, 5, run::run_queue);
}

#[test]
fn a_run_repeats_to_the_letter() {
    for seed in [3, 4] {
        assert_eq!(run::fingerprint(seed), run::fingerprint(seed), "seed {seed}");
    }
}

/// Tests that the checkers notice faults.
#[test]
fn sabotage_is_noticed() {
    for sabotage in Sabotage::ALL {
        let seed = (1..=30).find(|seed| !run::run(*seed, Some(sabotage)).is_empty());
        assert!(seed.is_some(), "{sabotage:?} was not noticed");
        println!("{sabotage:?}: noticed with seed {seed:?}");
    }
}

#[test]
fn sabotage_is_noticed_where_domains_share_hosts() {
    for sabotage in Sabotage::ALL {
        let is_noticed = (1..=30).any(|seed| !run::run_sites(seed, Some(sabotage)).is_empty());
        assert!(is_noticed, "{sabotage:?} was not noticed");
    }
}

#[test]
fn sabotage_is_noticed_before_mail_is_durable() {
    for how in EARLY {
        for sabotage in [Sabotage::AnswerEarly, Sabotage::ForgetOutcome] {
            let is_noticed = (1..=30).any(|seed| !run::run_early(seed, how, Some(sabotage)).is_empty());
            assert!(is_noticed, "{how:?}: {sabotage:?} was not noticed");
        }
    }
}
