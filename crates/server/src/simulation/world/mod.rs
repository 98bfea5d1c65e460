//! The server in the simulated internet: the worlds, hosts and scripts of `mailrace sim` under virtual time.
//!
//! A run plays a [`sim::world::World`] whose hosts refuse, drop packets, hang, are slow, defer, throttle, break off
//! and attack, some always and some for a time. Lists go to hundreds of domains beside single, urgent and bulk mail;
//! some sites have a `[[destination]]` rule; the server is killed, stopped and loses power. At the end [`check`]
//! judges the facts of the hosts, and [`memory`] looks now and then at the tables of the scheduler.
//!
//! | File | Holds |
//! |---|---|
//! | [`script`] | what a seed means |
//! | [`net`] | the hosts of `sim` at in-process wires, and what they see |
//! | [`run`] | one run |
//! | [`check`] | what must be true at its end |
//! | [`memory`] | what must be true all the time |
//!
//! `SIM_COUNT`, `SIM_FROM`, `SIM_SEED` ([`campaign`]) and `SIM_LOG` are those of the simulation above. The DNS is
//! `[[dns.override]]`, so its troubles are not among those here. A seed that failed goes into [`KEPT`] and stays. With
//! `SIM_SABOTAGE=OneLane` (or another one) the control of that name alone runs, over `SIM_COUNT` seeds from `SIM_FROM`
//! on, and all that is wrong is printed.

mod check;
mod memory;
mod net;
mod run;
mod script;

use super::Sabotage;
use super::campaign::{self, number};
pub(crate) use memory::Sizes;
use std::time::Duration;

/// Seeds that once showed a fault.
const KEPT: &[u64] = &[19, 50, 179];
/// Runs of a usual test.
const COUNT: u64 = 12;
/// Seeds, from one that is known to notice it, among which a fault made on purpose must be noticed.
const TRIES: u64 = 20;

#[test]
fn a_world_gets_its_mail() {
    let (began, mut worlds, mut time, mut taken) = (processor_time(), 0, Duration::ZERO, 0);
    campaign::play(a_world_gets_its_mail, KEPT, COUNT, |seed| {
        let lived = run::run(seed, None);
        worlds += 1;
        time += lived.time;
        taken += lived.taken;
        lived.wrong
    });
    let (hours, spent) = (time.as_secs_f64() / 3_600.0, (processor_time() - began).as_secs_f64());
    let rate = hours / (spent / 60.0);
    println!(
        "{worlds} worlds: {hours:.0} simulated hours and {taken} deliveries in {spent:.1} s of this thread, {rate:.0} hours a minute"
    );
}

#[test]
fn a_world_repeats_to_the_letter() {
    for seed in [2, 5] {
        assert_eq!(run::run(seed, None).fingerprint, run::run(seed, None).fingerprint, "seed {seed}");
    }
}

/// Tests that each checker notices its fault, and reports it itself.
#[test]
fn what_is_broken_in_a_world_is_noticed() {
    let mut missed = Vec::new();
    let only = std::env::var("SIM_SABOTAGE").ok();
    // All words between stars must be in the text of the fault, so that it is about a host of that character.
    for (sabotage, words, first) in [
        (Sabotage::AnswerEarly, "LOST", 4),
        (Sabotage::DropReport, "LOST", 1),
        (Sabotage::DropDeferred, "in the queue", 1),
        (Sabotage::ForgetOutcome, "TWICE", 1),
        (Sabotage::ForgetLimits, "LIMIT connections", 2),
        (Sabotage::ForgetLimits, "LIMIT rate", 2),
        (Sabotage::ForgetLimits, "LIMIT recipients", 1),
        (Sabotage::ForgetLimits, "LIMIT messages", 1),
        (Sabotage::OneLane, "STARVED", 13),
        (Sabotage::SameHostAgain, "NO REASON", 19),
        (Sabotage::KnockAgain, "attempts at host", 2),
        (Sabotage::SinglesLast, "BEHIND A LIST", 42),
        (Sabotage::ListsAhead, "BEHIND A LIST: more than one", 169),
        (Sabotage::LoadAll, "MEMORY: too many jobs that wait", 13),
        (Sabotage::KeepPosts, "MEMORY: too many posts", 1),
        (Sabotage::Tireless, "attempts at host", 1),
        (Sabotage::Patient, "for a connection to host*which is hung;", 11),
        (Sabotage::Patient, "for a connection to host*which is hung-data", 1),
        (Sabotage::ForgetTls, "handshakes with host*whose TLS is broken", 1),
        (Sabotage::AllEars, "octets were taken from host", 2),
    ] {
        let has_all = |wrong: &String| words.split('*').all(|words| wrong.contains(words));
        let is_noticed = |seed: &u64| {
            let wrong = run::run(*seed, Some(sabotage)).wrong;
            if only.is_some() {
                println!("seed {seed}: {wrong:#?}");
            }
            wrong.iter().any(has_all)
        };
        let (from, tries) = match &only {
            Some(name) if *name == format!("{sabotage:?}") => {
                (number("SIM_FROM").unwrap_or(first), number("SIM_COUNT").unwrap_or(TRIES))
            }
            Some(_) => continue,
            None => (first, TRIES),
        };
        let seed = (from..from + tries).find(is_noticed);
        println!("{sabotage:?}: noticed as {words:?} with seed {seed:?}");
        missed.extend(seed.is_none().then_some((sabotage, words)));
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// Returns the processor time of this thread: other tests run beside it.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}
