//! `kill -9` again and again on one spool, so that recovery also starts from a spool that recovery left.
//!
//! The page cache survives a killed process, so this rig cannot see a missing sync (`images` does). It sees everything
//! that is wrong in the order of the process's own actions: acknowledging too early, forgetting ends of messages,
//! taking old bytes for new ones.

use crate::clock;
use crate::crash::Context;
use crate::crash::children::Subject;
use crate::crash::host::Stop;
use crate::crash::random::Random;
use crate::crash::report::{CrashCase, CrashReport};
use crate::crash::spools::{Saboteur, SpoolArguments};
use std::time::Duration;

/// Kills that a control may take until it must be caught: on a slow machine a writer does little before each.
const CONTROL_KILLS: u64 = 400;
/// A kill with its check may take this long on average before the run counts as stuck.
const SECONDS_PER_KILL: u64 = 10;

/// Runs the proof and its controls.
pub(crate) fn run(context: &Context, report: &mut CrashReport) {
    let mut proof = CrashCase::proof("kill", "whole spool");
    let result = kill_again_and_again(context, &mut proof, None, &[], context.kills);
    report.take(proof, result);
    let mut ahead = CrashCase::control("kill", "acknowledge before the spool has it", |findings| findings.lost);
    let result = kill_again_and_again(context, &mut ahead, None, &["--ledger-ahead"], CONTROL_KILLS);
    report.take(ahead, result);
    for saboteur in [Saboteur::SkipLivemap, Saboteur::ReuseGeneration] {
        let mut control = CrashCase::control("kill", saboteur.name(), saboteur.leads_to());
        let result = kill_again_and_again(context, &mut control, Some(saboteur), &[], CONTROL_KILLS);
        report.take(control, result);
    }
}

fn kill_again_and_again(
    context: &Context,
    case: &mut CrashCase,
    sabotage: Option<Saboteur>,
    habits: &[&'static str],
    kills: u64,
) -> Result<(), Stop> {
    let (dir, ledger) = context.room("kill")?;
    let mut subject = Subject::new(SpoolArguments { sabotage, ..SpoolArguments::at(dir.join("spool")) }, ledger);
    subject.habits = habits.to_vec();
    let mut random = Random::new(context.seed);
    let end = clock::now() + Duration::from_secs(60 + kills * SECONDS_PER_KILL);
    while case.crashes < kills {
        if clock::now() > end {
            return Err(Stop::Broken(format!("only {} of {kills} kills in time", case.crashes)));
        }
        let writer = subject.start()?;
        // One in five dies while it recovers from the last one.
        if case.crashes > 0 && random.percent(20) {
            clock::pause(Duration::from_millis(random.between(1, 60)));
        } else {
            writer.ready()?;
            clock::pause(Duration::from_millis(random.between(20, 300)));
        }
        writer.kill();
        if case.count(subject.check_and_adopt()?) {
            break;
        }
    }
    drop(std::fs::remove_dir_all(dir));
    Ok(())
}
