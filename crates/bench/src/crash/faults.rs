//! Failing disks: errors, delays and a full file system, real ones, below the writer's file system.
//!
//! The errors are injected into the sectors of segment files only. Elsewhere they would hit the journal of ext4, which
//! then takes no more writes for good; `errors=continue` keeps it going where it can. Flushes belong to no file: a
//! failed one may be the journal's, and then the spool has to live with a file system that became read-only, which is a
//! case worth having.
//!
//! After each case: no acknowledged message is lost across a power cut, and a new writer accepts mail on the remaining
//! spool. How long it takes until mail is accepted again is measured, reported and bounded.

use crate::clock;
use crate::crash::Context;
use crate::crash::children::{Subject, WriterAnswers, WriterProcess};
use crate::crash::cut::Survivors;
use crate::crash::device::{Delays, Fault, Operation};
use crate::crash::disk::{Drive, FuseDisk, Mounted};
use crate::crash::host::{self, Stop};
use crate::crash::random::Random;
use crate::crash::report::{CrashCase, CrashReport};
use crate::crash::spools::{Saboteur, SpoolArguments};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Size of the disk where it is not to fill up.
const DISK_BYTES: u64 = 80 << 20;
/// Size of the disk that is to fill up; less than the spool may take.
const SMALL_DISK_BYTES: u64 = 28 << 20;
/// How long a writer runs before, during and after a fault.
const PHASE: Duration = Duration::from_millis(700);
/// How long an expected event is waited for: on a busy machine it comes later, and the report says how much.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the writer is asked for it.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// When the spool accepts mail again at the latest: it tries refused allocations again after ten seconds
/// (docs/spool.md, section 5, "Room"), and everything else at once.
const AGAIN: Duration = Duration::from_secs(10);
/// Slack for a loaded machine, on which a round of the janitor and a flush take their time. No promise of the spool.
const LOADED: Duration = Duration::from_secs(20);
/// Single errors one after the other, with time for the spool to recover between them.
const SINGLE_ERRORS: u64 = 5;
/// Tries of the control.
const CONTROL_TRIES: u64 = 40;

/// One way to fail.
#[derive(Clone, Copy, Debug)]
struct FaultScenario {
    name: &'static str,
    disk_bytes: u64,
    size_max: u64,
    hoard: bool,
    trouble: Trouble,
    /// The answers the writer must have got.
    expect: Expect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// One request fails, several times with pauses.
    Single(Operation),
    /// All requests fail from a moment on.
    Forever(Operation),
    /// Reads fail while a new writer recovers.
    ReadsAtOpen,
    /// Flushes take half a second.
    Slow,
    /// There is no room.
    NoRoom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// Mail is accepted again after the fault.
    GoesOn,
    /// Appends are answered with failures until the restart.
    Stops,
    /// Appends are refused as full, none fails.
    Full,
    /// Nothing fails.
    Patience,
    /// Anything, as long as nothing is lost.
    Safe,
}

const WAYS: [FaultScenario; 9] = {
    let way = FaultScenario {
        name: "",
        disk_bytes: DISK_BYTES,
        size_max: 24 << 20,
        hoard: false,
        trouble: Trouble::Slow,
        expect: Expect::Patience,
    };
    [
        FaultScenario {
            name: "single write errors",
            trouble: Trouble::Single(Operation::Write),
            expect: Expect::GoesOn,
            ..way
        },
        FaultScenario {
            name: "single flush errors",
            trouble: Trouble::Single(Operation::Flush),
            expect: Expect::Safe,
            ..way
        },
        FaultScenario {
            name: "single read errors",
            trouble: Trouble::Single(Operation::Read),
            expect: Expect::GoesOn,
            ..way
        },
        FaultScenario {
            name: "all writes fail",
            trouble: Trouble::Forever(Operation::Write),
            expect: Expect::Stops,
            ..way
        },
        FaultScenario {
            name: "all flushes fail",
            trouble: Trouble::Forever(Operation::Flush),
            expect: Expect::Stops,
            ..way
        },
        FaultScenario { name: "read errors at open", trouble: Trouble::ReadsAtOpen, expect: Expect::Safe, ..way },
        FaultScenario { name: "flush takes 500 ms", ..way },
        FaultScenario {
            name: "spool at size_max",
            size_max: 8 << 20,
            hoard: true,
            trouble: Trouble::NoRoom,
            expect: Expect::Full,
            ..way
        },
        FaultScenario {
            name: "file system full",
            disk_bytes: SMALL_DISK_BYTES,
            size_max: 64 << 20,
            hoard: true,
            trouble: Trouble::NoRoom,
            expect: Expect::Full,
        },
    ]
};

/// Runs all ways, several times in a full run, and the control.
pub(crate) fn run(context: &Context, report: &mut CrashReport) {
    if let Err(stop) =
        host::require_images().and_then(|()| host::run("filefrag", ["-V"]).map(drop).or_else(no_filefrag))
    {
        report.take(CrashCase::proof("faults", "all"), Err(stop));
        return;
    }
    let rounds = if context.short { 1 } else { 10 };
    let mut random = Random::new(context.seed ^ 0x2222);
    for way in WAYS {
        let mut case = CrashCase::proof("faults", way.name).with_errors();
        let mut result = Ok(());
        for _ in 0..rounds {
            result = fail_in_that_way(context, &mut case, way, None, &mut random);
            if result.is_err() || case.total.violations() > 0 {
                break;
            }
        }
        report.take(case, result);
    }
    let saboteur = Saboteur::AckBeforeSync;
    let mut control = CrashCase::control("faults", "ack-before-sync with write errors", saboteur.leads_to());
    let way = FaultScenario { expect: Expect::Safe, ..WAYS[0] };
    let mut result = Ok(());
    for _ in 0..CONTROL_TRIES {
        result = fail_in_that_way(context, &mut control, way, Some(saboteur), &mut random);
        if result.is_err() || saboteur.leads_to()(&control.total) > 0 {
            break;
        }
    }
    report.take(control, result);
}

fn no_filefrag(stop: Stop) -> Result<(), Stop> {
    match stop {
        // It says its version and fails: it is there.
        Stop::Broken(why) if !why.starts_with("starting") => Ok(()),
        _ => Err(Stop::Skipped("no filefrag".to_owned())),
    }
}

fn fail_in_that_way(
    context: &Context,
    case: &mut CrashCase,
    way: FaultScenario,
    sabotage: Option<Saboteur>,
    random: &mut Random,
) -> Result<(), Stop> {
    let disk = FuseDisk::start(&context.workplace)?;
    let (_, ledger) = context.room("faults")?;
    let mounted = disk.create(way.disk_bytes, "errors=continue")?;
    let mut spool =
        SpoolArguments { sabotage, size_max: way.size_max, ..SpoolArguments::at(mounted.path().join("spool")) };
    if way.disk_bytes < way.size_max {
        spool.free_min = 0;
    }
    let mut subject = Subject::new(spool, ledger);
    subject.habits = if way.hoard { vec!["--hoard"] } else { Vec::new() };
    let answers = suffer(case, way, &mut subject, &mounted, random)?;
    if let Some(again) = answers.again {
        case.at_most("accepted_again_ms", again);
    }
    judge(case, way.expect, &answers);
    let (image, _) = mounted.drive().image(Survivors::None, 0)?;
    drop(mounted);
    recover(case, subject, image.mount("")?)
}

/// The answers that the writer had at the end of the trouble.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// Since the start, when the trouble ended.
    during: WriterAnswers,
    /// Since the start, some time later.
    end: WriterAnswers,
    /// From the end of the trouble until mail was accepted again, where that is expected.
    again: Option<Duration>,
}

fn suffer(
    case: &mut CrashCase,
    way: FaultScenario,
    subject: &mut Subject,
    mounted: &Mounted,
    random: &mut Random,
) -> Result<Answers, Stop> {
    let drive = mounted.drive();
    let mut writer = subject.start()?;
    writer.ready()?;
    clock::pause(PHASE);
    match way.trouble {
        Trouble::Single(operation) => {
            for _ in 0..SINGLE_ERRORS {
                let skip = random.below(20);
                inject(drive, subject, operation, skip, 1)?;
                clock::pause(PHASE / 2);
                drive.clear_faults()?;
                // Two errors in a row would be another case.
                if way.expect == Expect::GoesOn {
                    let before = writer.tally()?;
                    wait_for(&mut writer, Expect::GoesOn, &before)?;
                }
            }
        }
        Trouble::Forever(operation) => {
            inject(drive, subject, operation, random.below(20), u64::MAX)?;
            clock::pause(PHASE * 2);
        }
        Trouble::ReadsAtOpen => {
            writer.kill();
            for _ in 0..SINGLE_ERRORS {
                inject(drive, subject, Operation::Read, random.below(12), random.between(1, 4))?;
                // Each writer numbers its messages anew.
                subject.cycle += 1;
                writer = subject.start()?;
                // It may open the spool and go on, or refuse; it must not forget.
                drop(writer.ready());
                clock::pause(PHASE / 4);
                drop(writer);
                drive.clear_faults()?;
            }
            return Ok(Answers::default());
        }
        Trouble::Slow => {
            drive.set_delays(Delays { flush: Duration::from_millis(500), ..Delays::default() })?;
            clock::pause(PHASE * 5);
        }
        Trouble::NoRoom => clock::pause(PHASE * 4),
    }
    let during = match way.expect {
        // That comes from the trouble, not after it.
        Expect::Stops | Expect::Full => wait_for(&mut writer, way.expect, &WriterAnswers::default())?.0,
        _ => writer.tally()?,
    };
    drive.clear_faults()?;
    let (_, took) = wait_for(&mut writer, way.expect, &during)?;
    clock::pause(PHASE.saturating_sub(took));
    let end = writer.tally()?;
    let counts = drive.counts()?;
    case.progress(&format!("{during:?}, after {took:.1?} {end:?}, {} requests failed", counts.failed));
    // Killed before the cut: its promises are complete, the disk is not.
    writer.kill();
    Ok(Answers { during, end, again: (way.expect == Expect::GoesOn).then_some(took) })
}

/// Waits until the answers of the writer are as expected, or for a while. Returns the answers and the time that it
/// took.
fn wait_for(
    writer: &mut WriterProcess,
    expect: Expect,
    during: &WriterAnswers,
) -> Result<(WriterAnswers, Duration), Stop> {
    let start = clock::now();
    loop {
        let answers = Answers { during: *during, end: writer.tally()?, again: None };
        let took = start.elapsed();
        if complaint(expect, &answers).is_none() || took >= PATIENCE {
            return Ok((answers.end, took));
        }
        clock::pause(ASK_EVERY);
    }
}

/// Whether mail was accepted again too late.
fn is_late(again: Duration) -> bool {
    again > AGAIN + LOADED
}

fn inject(drive: &Drive, subject: &Subject, operation: Operation, skip: u64, times: u64) -> Result<(), Stop> {
    drive.add_fault(&Fault { operation, skip, times, ranges: segment_ranges(&subject.spool.path)? })
}

/// Where the segment files of a spool lie on the disk, in bytes, neighbouring ranges joined.
fn segment_ranges(spool: &Path) -> Result<Vec<Range<u64>>, Stop> {
    let list = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let shards = list(spool).filter(|path| path.is_dir());
    let segments: Vec<_> = shards
        .flat_map(|shard| list(&shard).collect::<Vec<_>>())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-")))
        .collect();
    let listing = host::run(
        "filefrag",
        ["-b4096", "-e"].map(AsRef::as_ref).into_iter().chain(segments.iter().map(|path| path.as_os_str())),
    )?;
    let mut ranges: Vec<Range<u64>> = listing.lines().filter_map(extent).collect();
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    Ok(joined)
}

/// Reads a line of filefrag such as `   0:        0..     127:       2048..      2175:    128:  last,eof`.
fn extent(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split(':');
    fields.next()?.trim().parse::<u64>().ok()?;
    let (from, to) = fields.nth(1)?.split_once("..")?;
    let block = |text: &str| text.trim().parse::<u64>().ok();
    Some(block(from)? * 4096..(block(to)? + 1) * 4096)
}

fn judge(case: &mut CrashCase, expect: Expect, answers: &Answers) {
    if let Some(complaint) = complaint(expect, answers) {
        case.violation(format!("{complaint}: {answers:?}"));
    }
}

/// Returns the fault of the answers.
fn complaint(expect: Expect, Answers { during, end, again }: &Answers) -> Option<&'static str> {
    Some(match expect {
        Expect::GoesOn if end.acknowledged <= during.acknowledged => "no mail is accepted after the trouble",
        Expect::GoesOn if again.is_some_and(is_late) => "mail is accepted too late after the trouble",
        Expect::GoesOn if end.poisoned > 0 => "single errors poisoned the spool",
        Expect::Stops if end.failed + end.poisoned == 0 => "no append failed",
        Expect::Full if end.full == 0 => "the spool never became full",
        Expect::Full | Expect::Patience if end.failed + end.poisoned > 0 => "appends failed without an error",
        Expect::Patience if end.acknowledged == 0 => "no mail is accepted by a slow disk",
        _ if end.other > 0 => "an append was answered with an error no rig expects",
        _ => return None,
    })
}

/// Restarts on the spool that the power cut left: everything promised is there, and mail is accepted again.
fn recover(case: &mut CrashCase, mut subject: Subject, image: Mounted) -> Result<(), Stop> {
    let promised = subject.promised();
    let next = subject.ledger.with_extension("next");
    drop(std::fs::remove_file(&next));
    let at = image.path().join("spool");
    let checked = subject.check(&at, promised, promised, Some(&next))?;
    if case.count(checked) {
        return Ok(());
    }
    subject.spool.path = at;
    subject.adopt(&next)?;
    subject.habits.clear();
    let mut writer = subject.start()?;
    writer.ready()?;
    // A spool that was full has room when the first of its mail is gone again.
    let (tally, took) = wait_for(&mut writer, Expect::Patience, &WriterAnswers::default())?;
    writer.kill();
    case.at_most("accepted_after_restart_ms", took);
    if let Some(complaint) = complaint_after_restart(&tally, took) {
        case.violation(format!("{complaint} after the restart: {tally:?} after {took:.1?}"));
    }
    case.count(subject.check_and_adopt()?);
    Ok(())
}

fn complaint_after_restart(tally: &WriterAnswers, took: Duration) -> Option<&'static str> {
    match tally.acknowledged {
        0 => Some("no mail is accepted"),
        _ => is_late(took).then_some("mail is accepted too late"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_that_is_accepted_too_late_is_a_violation() {
        let tally = |acknowledged| WriterAnswers { acknowledged, ..WriterAnswers::default() };
        let after = |acknowledged, again| {
            complaint(Expect::GoesOn, &Answers { during: tally(5), end: tally(acknowledged), again: Some(again) })
        };
        let late = AGAIN + LOADED + Duration::from_millis(1);
        assert_eq!(after(6, AGAIN + LOADED), None);
        assert_eq!(after(6, late), Some("mail is accepted too late after the trouble"));
        assert_eq!(after(5, Duration::ZERO), Some("no mail is accepted after the trouble"));
        assert_eq!(complaint_after_restart(&tally(1), AGAIN + LOADED), None);
        assert_eq!(complaint_after_restart(&tally(1), late), Some("mail is accepted too late"));
        assert_eq!(complaint_after_restart(&tally(0), Duration::ZERO), Some("no mail is accepted"));
    }

    #[test]
    fn extents_are_read_from_filefrag() {
        let line = "   0:        0..     127:       2048..      2175:    128:             last,eof";
        assert_eq!(extent(line), Some(2048 * 4096..2176 * 4096));
        assert_eq!(extent(" ext:     logical_offset:        physical_offset: length:   expected: flags:"), None);
        assert_eq!(extent("File size of seg-000000 is 524288 (128 blocks of 4096 bytes)"), None);
    }
}
