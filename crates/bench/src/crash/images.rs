//! Power cuts: crash images of a real ext4 under a running writer, taken at any moment from below the file system.
//!
//! An image is what a disk may hold after losing power: everything flushed, and of the rest any choice of sectors. It
//! is mounted like after a reboot (the kernel replays the journal), and the spool on it is held against the promises
//! that were in the ledger before the image was taken. Every eighth image becomes the disk on which the next writer
//! goes on.

use crate::clock;
use crate::crash::Context;
use crate::crash::children::Subject;
use crate::crash::cut::Survivors;
use crate::crash::device::Delays;
use crate::crash::disk::{FuseDisk, Mounted};
use crate::crash::host::Stop;
use crate::crash::random::Random;
use crate::crash::report::{CrashCase, CrashReport};
use crate::crash::spools::{Saboteur, SpoolArguments};
use std::time::Duration;

/// Size of the disk: the spool at its largest, the journal, and some room.
const DISK_BYTES: u64 = 80 << 20;
/// Images taken from one run of the writer; the last becomes the next disk.
const IMAGES_PER_RUN: u64 = 8;
/// Images that a control may take until it must be caught: on a slow machine a writer does little between two.
const CONTROL_IMAGES: u64 = 300;
/// An image with its check may take this long on average before the run counts as stuck.
const SECONDS_PER_IMAGE: u64 = 10;

/// Runs the proof and its controls.
pub(crate) fn run(context: &Context, report: &mut CrashReport) {
    let mut proof = CrashCase::proof("images", "whole spool");
    let started = clock::now();
    let result = cut_again_and_again(context, &mut proof, None, context.images);
    let seconds = started.elapsed().as_secs().max(1);
    proof.figures.push(("images_per_minute", proof.crashes * 60 / seconds));
    let skipped = matches!(result, Err(Stop::Skipped(_)));
    report.take(proof, result);
    if skipped {
        return;
    }
    for saboteur in [Saboteur::AckBeforeSync, Saboteur::SkipLivemap, Saboteur::ReuseGeneration] {
        let mut control = CrashCase::control("images", saboteur.name(), saboteur.leads_to());
        let result = cut_again_and_again(context, &mut control, Some(saboteur), CONTROL_IMAGES);
        report.take(control, result);
    }
}

fn cut_again_and_again(
    context: &Context,
    case: &mut CrashCase,
    sabotage: Option<Saboteur>,
    images: u64,
) -> Result<(), Stop> {
    let disk = FuseDisk::start(&context.workplace)?;
    let (_, ledger) = context.room("images")?;
    let mut mounted = disk.create(DISK_BYTES, "")?;
    let spool = SpoolArguments { sabotage, ..SpoolArguments::at(mounted.path().join("spool")) };
    let mut subject = Subject::new(spool, ledger);
    let mut random = Random::new(context.seed ^ 0x1111);
    let end = clock::now() + Duration::from_secs(60 + images * SECONDS_PER_IMAGE);
    while case.crashes < images {
        if clock::now() > end {
            return Err(Stop::Broken(format!("only {} of {images} images in time", case.crashes)));
        }
        let round = IMAGES_PER_RUN.min(images - case.crashes);
        match one_run(&mut subject, &mounted, &mut random, case, round)? {
            Some(next) => mounted = next,
            None => break,
        }
    }
    Ok(())
}

/// One run of the writer with some images; the last image with its spool taken over, or nothing if the case is decided.
fn one_run(
    subject: &mut Subject,
    mounted: &Mounted,
    random: &mut Random,
    case: &mut CrashCase,
    images: u64,
) -> Result<Option<Mounted>, Stop> {
    // A slow flush keeps more writes pending at the moment of the cut.
    let flush_ms = [0, 0, 2, 8].get(usize::try_from(random.below(4)).unwrap_or(0)).copied().unwrap_or(0);
    mounted.drive().set_delays(Delays { flush: Duration::from_millis(flush_ms), ..Delays::default() })?;
    let writer = subject.start()?;
    if random.percent(75) {
        writer.ready()?;
    }
    let next = subject.ledger.with_extension("next");
    for taken in 1..=images {
        clock::pause(Duration::from_millis(random.between(5, 250)));
        let survivors = Survivors::pick(random);
        let before = subject.promised();
        let (image, cut) = mounted.drive().image(survivors, random.next())?;
        let after = subject.promised();
        let image = image.mount("")?;
        let at = image.path().join("spool");
        let last = taken == images;
        drop(std::fs::remove_file(&next));
        let checked = subject.check(&at, before, after, last.then_some(next.as_path()))?;
        if checked.findings.violations() > 0 {
            let what = format!("! survivors: {}, {} of {} pending sectors", survivors.name(), cut.kept, cut.pending);
            case.details.push(what);
        }
        if case.count(checked) {
            return Ok(None);
        }
        if last {
            writer.kill();
            subject.spool.path = at;
            subject.adopt(&next)?;
            return Ok(Some(image));
        }
    }
    Ok(None)
}
