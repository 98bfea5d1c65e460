//! Bit rot in a closed spool: nothing wrong is ever read, nothing that is whole is ever lost, and damaged frames are
//! reported.

use super::world::{Plan, Random, World};
use super::{plan, small};
use mail::QueueId;
use spool::disk::Disk;
use spool::disk::sim::SimDisk;
use spool::inspect::{Fact, inspect};
use spool::{Error, Spool, Store};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROOT: &str = "/spool";

/// A spool with some mail in it, closed.
fn filled(seed: u64) -> (World, super::model::Model) {
    let config = small(16);
    let plan = Plan { config, steps: 250, crash_percent: 0, finish_percent: 40, images: 0, ..plan() };
    let mut world = World::new(seed, plan).expect("opens");
    world.run().expect("runs");
    let model = world.close();
    (world, model)
}

/// Messages with a frame that `range` of the file touches, by the index of the sound spool.
fn touched(disk: &SimDisk, file: &Path, range: &Range<u64>) -> BTreeSet<u64> {
    let (mut here, mut ids) = (false, BTreeSet::new());
    let told = inspect(disk, Path::new(ROOT), true, &mut |fact| match fact {
        Fact::Segment { path, .. } => here = path == file,
        Fact::Frame { offset, bytes, id: Some(id), live: true, .. } if here => {
            let frame = u64::from(*offset)..u64::from(*offset) + u64::from(*bytes);
            if frame.start < range.end && range.start < frame.end {
                ids.insert(id.to_u64());
            }
        }
        _ => {}
    });
    assert!(told.expect("inspects").damage.is_empty(), "sound before");
    ids
}

fn check(world: &World, model: &super::model::Model, disk: SimDisk, touched: &BTreeSet<u64>) -> Result<(), String> {
    let handle: Arc<dyn Disk> = Arc::new(disk);
    let opened = Spool::open_stepped(world.plan.config.clone(), handle);
    let (spool, _stepper, recovery) = opened.map_err(|error| format!("open: {error}"))?;
    for (id, message) in &model.messages {
        let id = QueueId::from_u64(*id).expect("an id");
        let reported = recovery.damage.iter().any(|damage| damage.id == Some(id) || damage.id.is_none());
        match spool.body(id) {
            Ok(body) if body.concat() == message.body => {}
            Ok(_) => return Err(format!("{id}: a wrong body was read")),
            Err(Error::Corrupt { .. }) if touched.contains(&id.to_u64()) => continue,
            Err(Error::Unknown(_)) if touched.contains(&id.to_u64()) && reported => continue,
            Err(error) => {
                return Err(format!("{id}: {error}; touched: {}; {recovery:?}", touched.contains(&id.to_u64())));
            }
        }
        match spool.envelope(id) {
            Ok(envelope) if envelope.head == message.head => {}
            Ok(_) => return Err(format!("{id}: a wrong envelope was read")),
            Err(Error::Corrupt { .. }) if touched.contains(&id.to_u64()) => {}
            Err(error) => return Err(format!("{id}: {error}")),
        }
    }
    Ok(())
}

#[test]
fn rot_anywhere_costs_only_what_it_touches() {
    let mut cases = 0;
    for seed in 1..=25 {
        let (world, model) = filled(seed);
        let mut random = Random(seed ^ 0xdead);
        let files: Vec<(PathBuf, u64)> =
            world.disk.files().into_iter().filter(|(path, _)| path.to_string_lossy().contains("seg-")).collect();
        for _ in 0..40 {
            let (path, size) = files[random.below(files.len() as u64) as usize].clone();
            let length = 1 << random.below(14);
            let start = random.below(size);
            // Within one block: rot that hits the last batch and the batch that attests it looks like a torn tail.
            let range = start..(start + length).min(size).min((start / 4096 + 1) * 4096);
            let touched = touched(&world.disk, &path, &range);
            let rotten = world.disk.crash_image(1);
            if random.chance(50) {
                rotten.rot(&path, range.clone(), random.next()).expect("rots");
            } else {
                rotten.flip_bit(&path, start, (random.below(8)) as u8).expect("flips");
            }
            cases += 1;
            if let Err(error) = check(&world, &model, rotten, &touched) {
                panic!("seed {seed}: {} {range:?}: {error}", path.display());
            }
        }
    }
    println!("{cases} places");
}

#[test]
fn verify_reports_rot_in_any_live_frame() {
    let mut found = 0;
    for seed in 1..=10 {
        let (world, model) = filled(seed);
        let mut frames = Vec::new();
        let mut file = PathBuf::new();
        inspect(&world.disk, Path::new(ROOT), true, &mut |fact| match fact {
            Fact::Segment { path, .. } => file.clone_from(path),
            Fact::Frame { offset, bytes, live: true, .. } => frames.push((file.clone(), *offset, *bytes)),
            _ => {}
        })
        .expect("inspects");
        assert!(frames.len() >= model.messages.len());
        let mut random = Random(seed);
        for (path, offset, bytes) in frames {
            let rotten = world.disk.crash_image(1);
            // Not in the padding behind the sections, which nothing depends on.
            let at = u64::from(offset) + random.below(u64::from(bytes) - 8);
            rotten.flip_bit(&path, at, random.below(8) as u8).expect("flips");
            let summary = inspect(&rotten, Path::new(ROOT), false, &mut |_| {}).expect("inspects");
            let reported = summary.damage.iter().any(|damage| damage.path == path);
            assert!(
                reported,
                "seed {seed}: {} offset {at} in the frame at {offset}: {:?}",
                path.display(),
                summary.damage
            );
            found += 1;
        }
    }
    println!("{found} frames");
}
