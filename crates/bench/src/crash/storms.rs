//! `kill -9` of the whole server under storms, again and again on one spool.
//!
//! The server is `mailrace serve` in a process of its own, as an operator starts it. Two storms load it, one of small
//! and one of large messages that travel to the spool in chunks; their clients write acknowledged messages to ledgers.
//! Then it is killed, and a checker compares the spool with the ledgers. It marks most messages as done; the rest must
//! still be there after later kills. Some kills are not followed by a check, so that the server also starts from a
//! spool that a kill left.
//!
//! As with `kill`, the page cache survives: a missing sync cannot be seen here. The rig sees a 250 that is sent too
//! early, to the wrong client or for the wrong message, content that mixes, and a message that comes twice.

mod checker;

pub use checker::PostCheckerArguments;
pub(crate) use checker::run as check;

use crate::clock;
use crate::crash::Context;
use crate::crash::children::{Checked, checked};
use crate::crash::host::{self, Stop};
use crate::crash::mta::What;
use crate::crash::random::Random;
use crate::crash::report::{CrashCase, CrashReport};
use crate::crash::scene::{RECIPIENTS, SESSIONS, Scene};
use std::fs;
use std::time::Duration;

/// Kills of a short run.
pub(crate) const SHORT: u64 = 12;
/// A long run ends after this time, however many kills it has had; it says how many.
const LONGEST: Duration = Duration::from_secs(900);

/// Runs the proof and its controls.
pub(crate) fn run(context: &Context, kills: u64, report: &mut CrashReport) {
    let mut proof = CrashCase::proof("server", "mailrace serve under storms");
    let result = kill_again_and_again(context, &mut proof, kills);
    report.take(proof, result);
    let mut forged =
        CrashCase::control("server", "a forged line in the ledger", |findings| u64::from(findings.lost == 1));
    let result = one_kill(context, &mut forged, What::Serve, Some("18446744073709551615 0ABDrxS0241664 1\n"));
    report.take(forged, result);
    let all =
        |findings: &crate::crash::Findings| u64::from(findings.lost > 0 && findings.lost == findings.acknowledged);
    let mut sink = CrashCase::control("server", "mailrace sink, which keeps nothing", all);
    let result = one_kill(context, &mut sink, What::Sink, None);
    report.take(sink, result);
}

fn kill_again_and_again(context: &Context, case: &mut CrashCase, kills: u64) -> Result<(), Stop> {
    let mut scene = Scene::new(context, "server")?;
    let mut random = Random::new(context.seed);
    let end = clock::now() + LONGEST;
    while case.crashes < kills && clock::now() < end {
        // One in eight dies while it starts, from the spool that the last one left.
        if case.crashes > 0 && random.percent(12) {
            let server = scene.start(What::Serve)?;
            clock::pause(Duration::from_millis(random.between(1, 40)));
            server.kill();
        } else {
            scene.storm_and_kill(What::Serve, &mut random)?;
        }
        scene.complaints(case);
        let is_last = case.crashes + 1 >= kills;
        if !is_last && random.percent(25) {
            case.crashes += 1;
            continue;
        }
        if case.count(check_spool(&mut scene)?) {
            break;
        }
    }
    scene.leave();
    Ok(())
}

/// One storm, one kill, one check, with a line that no storm wrote in the ledger.
fn one_kill(context: &Context, case: &mut CrashCase, what: What, forged: Option<&str>) -> Result<(), Stop> {
    let mut scene = Scene::new(context, "server")?;
    // A moment late enough for something to have been acknowledged.
    let mut random = Random::new(context.seed);
    while scene.acknowledged == 0 {
        scene.storm_and_kill(what, &mut random)?;
    }
    if let Some(line) = forged {
        scene.forge(line)?;
    }
    case.count(check_spool(&mut scene)?);
    scene.leave();
    Ok(())
}

/// Holds the spool against the ledgers since the last check and the messages that it left.
fn check_spool(scene: &mut Scene) -> Result<Checked, Stop> {
    let next = scene.kept.with_extension("next");
    drop(fs::remove_file(&next));
    let mut command = host::own_program("crash-post-checker")?;
    command.args(scene.spool.words()).arg("--kept").arg(&scene.kept).arg("--next").arg(&next);
    command.arg(format!("--seed={}", scene.seed.wrapping_add(scene.storms)));
    // A message of each session may be on its way when the kill comes; two storms have a name each.
    command.arg(format!("--sessions={}", SESSIONS.0.max(SESSIONS.1))).arg(format!("--recipients={RECIPIENTS}"));
    for (run, ledger) in &scene.ledgers {
        command.arg(format!("--ledger={run}={}", ledger.display()));
    }
    let checked = checked(command)?;
    if next.exists() {
        fs::copy(&next, &scene.kept).map_err(|error| Stop::broken("keeping what was found", error))?;
    }
    for (_, ledger) in scene.ledgers.drain(..) {
        drop(fs::remove_file(ledger));
    }
    Ok(checked)
}
