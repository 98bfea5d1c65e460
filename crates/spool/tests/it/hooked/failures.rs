//! Writes, syncs and growth that fail: mail with a 451 is not delivered, and a failure that passes leaves no trace.

use super::disk::{Call, HookedDisk, below, failure};
use super::{append, body, done, find, id, open, small};
use spool::disk::Disk;
use spool::disk::sim::SimDisk;
use spool::{Error, Spool, Stepper, Store};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn a_refused_message_stays_away_although_its_segment_cannot_be_emptied() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let config = small(24);
    let (spool, mut stepper, _) = open(hooked.clone(), &config);
    let kept = append(&spool, 1, 3000).expect("room");
    stepper.commit(0);
    assert_eq!(kept.poll_now(), Some(Ok(())));
    // Rot that keeps the first message from being moved out.
    let (path, at) = find(&disk, &body(1, 64));
    disk.flip_bit(&path, at + 10, 1).expect("flips");
    // The batch reaches the medium, and its sync is answered with an error.
    let refused = append(&spool, 2, 100).expect("room");
    hooked.fail(Call::Sync, "/");
    stepper.commit(0);
    hooked.clear();
    assert_eq!(refused.poll_now(), Some(Err(Error::Failed)));
    // The segment with the word that it ended is itself used again in time.
    for number in 10..70 {
        drop(append(&spool, number, 6000).expect("room"));
        stepper.commit(0);
        stepper.tidy(0);
        drop(spool.record(&done(number)).expect("recorded"));
        disk.advance(60_000);
        stepper.commit(0);
        stepper.tidy(0);
    }
    assert_eq!(spool.envelope(id(2)), Err(Error::Unknown(id(2))));
    drop((spool, stepper));
    let (spool, _stepper, _) = open(disk.kill(), &config);
    assert_eq!(spool.envelope(id(2)), Err(Error::Unknown(id(2))), "its sender was told to send it again");
}

/// Mail that stays, until the pool must have grown beyond the few segments it starts with.
fn grow(disk: &SimDisk, spool: &Spool, stepper: &mut Stepper) {
    for number in 0..400 {
        drop(append(spool, number, 6000));
        stepper.commit(0);
        // Growth rests for a while after each refusal.
        disk.advance(1_000_000);
        stepper.tidy(0);
    }
    assert!(spool.statistics().segments > 20, "{:?}", spool.statistics());
}

#[test]
fn growth_goes_on_after_a_new_file_could_not_be_opened() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &small(30));
    // Out of file descriptors for a moment, at every name that one attempt may try.
    let left = AtomicU64::new(2);
    hooked.set(move |call, _| {
        let one_less = |left: u64| left.checked_sub(1);
        if call == Call::Open && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            return Err(failure());
        }
        Ok(())
    });
    grow(&disk, &spool, &mut stepper);
}

#[test]
fn growth_takes_over_a_file_whose_renaming_was_done_and_reported_as_failed() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &small(30));
    let (behind, once) = (disk.clone(), AtomicBool::new(true));
    hooked.set(move |call, path| {
        if call == Call::Rename && below(path, "new-") && once.swap(false, Ordering::SeqCst) {
            behind.rename(path, &PathBuf::from(path.to_string_lossy().replace("new-", "seg-")))?;
            return Err(failure());
        }
        Ok(())
    });
    grow(&disk, &spool, &mut stepper);
}

#[test]
fn a_shard_that_takes_no_more_writes_has_nothing_left_to_do() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &small(20));
    // A good batch that a later one would have attested.
    drop(append(&spool, 1, 100).expect("room"));
    stepper.commit(0);
    hooked.fail(Call::Sync, "/00/");
    for number in 2..4 {
        let commit = append(&spool, number, 100).expect("room");
        stepper.commit(0);
        assert_eq!(commit.poll_now(), Some(Err(Error::Failed)));
    }
    assert!(matches!(append(&spool, 4, 100), Err(Error::Poisoned)));
    disk.advance(1_000_000);
    assert!(!stepper.commit(0), "its thread would never sleep again");
}
