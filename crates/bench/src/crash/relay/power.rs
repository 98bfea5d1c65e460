//! Power cuts of a relay: the spool of `mailrace serve` lies on a disk in memory whose power is cut under storms.
//!
//! As in the rig `images`, an image is what a disk may hold after losing power. It is taken while mail comes in, waits
//! for its filter, is changed and goes out; then the server is killed, and the next one starts from the image. The mail
//! that clients had seen acknowledged before the image must arrive; that of later, until the kill, may.

use super::{FILTER_FAILS_EVERY, SLOW, STALLED, Stage};
use crate::clock;
use crate::crash::cut::Survivors;
use crate::crash::device::Delays;
use crate::crash::disk::{Drive, FuseDisk, Mounted};
use crate::crash::host::Stop;
use crate::crash::random::Random;
use crate::crash::report::{CrashCase, CrashReport};
use crate::crash::{Context, FilterPlacement, Findings};
use crate::receiver::Manners;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Power cuts of a short run.
pub(crate) const SHORT: u64 = 5;
/// A long run ends after this time, however many cuts it has had; it says how many.
const LONGEST: Duration = Duration::from_secs(900);
/// Size of the disk and of the spool on it.
const DISK_BYTES: u64 = 256 << 20;
const SPOOL_BYTES: u64 = 160 << 20;
/// A control takes this for the moment of the cut: mail that is acknowledged in between is not in the image.
const TOO_LATE: Duration = Duration::from_secs(1);
/// Storms that a control may have until it is caught.
const CONTROL_CUTS: u64 = 40;

/// Runs the proofs, with the filter before and after the 250 or as asked for, and their controls.
pub(crate) fn run(context: &Context, cuts: u64, report: &mut CrashReport) {
    let placements = match context.filters {
        Some(filters) => vec![filters],
        None => vec![FilterPlacement::Before, FilterPlacement::After],
    };
    for filters in placements {
        let context = Context { workplace: Arc::clone(&context.workplace), filters: Some(filters), ..*context };
        let name = format!("mailrace serve with a filter {}, on a disk that loses power", filters.word());
        let mut proof = CrashCase::proof("power", name);
        let result = cut_again_and_again(&context, &mut proof, cuts);
        let is_skipped = matches!(result, Err(Stop::Skipped(_)));
        report.take(proof, result);
        if is_skipped {
            return;
        }
        let lost = |findings: &Findings| findings.lost;
        let mut late = CrashCase::control("power", format!("{}, an image that is too old", filters.word()), lost);
        let result = image_too_old(&context, &mut late);
        report.take(late, result);
        let unscreened = |findings: &Findings| findings.unscreened;
        let mut unasked =
            CrashCase::control("power", format!("{}, a filter that is not asked", filters.word()), unscreened);
        let result = without_asking_its_filter(&context, &mut unasked);
        report.take(unasked, result);
    }
}

fn cut_again_and_again(context: &Context, case: &mut CrashCase, cuts: u64) -> Result<(), Stop> {
    let mut power = PoweredStage::new(context, STALLED.0)?;
    let mut random = Random::new(context.seed ^ 0x2222);
    let end = clock::now() + LONGEST;
    while case.crashes < cuts && clock::now() < end {
        power.stage.receiver.behave(super::manners(&mut random));
        power.storm_and_cut(&mut random, Duration::ZERO)?;
        power.stage.scene.complaints(case);
        let is_last = case.crashes + 1 >= cuts || clock::now() >= end;
        if !is_last && random.percent(50) {
            case.crashes += 1;
            continue;
        }
        let server = power.stage.drain()?;
        power.stage.end(server)?;
        power.stage.scene.complaints(case);
        if case.count(power.stage.books.check()) {
            break;
        }
    }
    case.figures.extend(power.stage.books.figures());
    case.figures.extend(power.stage.scanner.as_ref().map(|scanner| ("screened", scanner.passed())));
    power.leave();
    Ok(())
}

/// Mail counts as promised that was acknowledged after the image.
fn image_too_old(context: &Context, case: &mut CrashCase) -> Result<(), Stop> {
    let power = PoweredStage::new(context, STALLED.1)?;
    // Mail is on its way when the server is killed.
    let slow = Manners { delay: SLOW, ..Manners::default() };
    cut_until_caught(power, case, Some(&slow), TOO_LATE, context.seed ^ 0x3333)
}

/// The configuration has the filter, and the listener does not name it.
fn without_asking_its_filter(context: &Context, case: &mut CrashCase) -> Result<(), Stop> {
    let mut power = PoweredStage::new(context, STALLED.1)?;
    power.stage.is_asked = false;
    cut_until_caught(power, case, None, Duration::ZERO, context.seed ^ 0x4444)
}

/// Cuts until the books show the fault that a control has, a bounded number of times.
fn cut_until_caught(
    mut power: PoweredStage,
    case: &mut CrashCase,
    manners: Option<&Manners>,
    too_late: Duration,
    seed: u64,
) -> Result<(), Stop> {
    let mut random = Random::new(seed);
    for _ in 0..CONTROL_CUTS {
        if let Some(manners) = manners {
            power.stage.receiver.behave(*manners);
        }
        power.storm_and_cut(&mut random, too_late)?;
        let server = power.stage.drain()?;
        power.stage.end(server)?;
        if case.count(power.stage.books.check()) {
            break;
        }
    }
    power.leave();
    Ok(())
}

/// A stage whose spool lies on a disk that loses power.
struct PoweredStage {
    stage: Stage,
    mounted: Mounted,
}

/// Numbers of acknowledged messages by the name of their storm.
type Promises = HashMap<String, HashSet<u64>>;

impl PoweredStage {
    fn new(context: &Context, stalled: Duration) -> Result<Self, Stop> {
        let mounted = FuseDisk::start(&context.workplace)?.create(DISK_BYTES, "")?;
        let mut stage = Stage::new(context, stalled)?;
        stage.scene.spool.path = mounted.path().join("spool");
        stage.scene.spool.size_max = SPOOL_BYTES;
        Ok(Self { stage, mounted })
    }

    /// Lets storms loose on a server and cuts the power of its disk. With `too_late` mail that is acknowledged until
    /// then, after the cut, counts as promised.
    fn storm_and_cut(&mut self, random: &mut Random, too_late: Duration) -> Result<(), Stop> {
        self.stage.fail_filter_every(FILTER_FAILS_EVERY);
        // A slow flush keeps more writes pending at the moment of the cut.
        let flush_ms = [0, 0, 2, 8].get(usize::try_from(random.below(4)).unwrap_or(0)).copied().unwrap_or(0);
        let drive = self.mounted.drive();
        drive.set_delays(Delays { flush: Duration::from_millis(flush_ms), ..Delays::default() })?;
        let survivors = Survivors::pick(random);
        let seed = random.next();
        let what = self.stage.next();
        let cut = |ledgers: &[(String, PathBuf)]| -> Result<(Promises, Drive), Stop> {
            let before = promises(ledgers)?;
            let (image, _) = drive.image(survivors, seed)?;
            if too_late.is_zero() {
                return Ok((before, image));
            }
            clock::pause(too_late);
            Ok((promises(ledgers)?, image))
        };
        let (at, (promised, image)) = self.stage.scene.storm_and(what, random, cut)?;
        self.stage.cut(at, &promised)?;
        let image = image.mount("")?;
        self.stage.scene.spool.path = image.path().join("spool");
        self.mounted = image;
        Ok(())
    }

    fn leave(self) {
        self.stage.scene.leave();
    }
}

/// Returns what storms have seen acknowledged so far. Their clients go on meanwhile.
fn promises(ledgers: &[(String, PathBuf)]) -> Result<Promises, Stop> {
    let read = |(run, ledger): &(String, PathBuf)| {
        let text = fs::read_to_string(ledger).map_err(|error| Stop::broken("reading a ledger", error))?;
        // The last line may be on its way.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let number = |line: &str| line.split(' ').next().and_then(|word| word.parse().ok());
        Ok((run.clone(), whole.lines().filter_map(number).collect()))
    };
    ledgers.iter().map(read).collect()
}
