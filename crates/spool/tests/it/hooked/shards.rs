//! States that a shard has taken for one that cannot write: they are nowhere else, so that a second failure must spare
//! them.

use super::disk::{Call, HookedDisk, below, failure};
use super::{append, done, id, open, small, work};
use spool::disk::sim::SimDisk;
use spool::{Change, Config, Pressure, Spool, Store};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

fn config(shards: u16) -> Config {
    let mut config = small(30);
    config.shards = shards;
    config.size_max *= u64::from(shards);
    config
}

fn ends(numbers: Range<u64>) -> Vec<Change> {
    numbers.flat_map(done).collect()
}

fn back(spool: &Spool, numbers: Range<u64>) -> Vec<u64> {
    numbers.filter(|number| spool.envelope(id(*number)).is_ok()).collect()
}

#[test]
fn states_of_another_shard_outlive_the_failure_of_the_segment_that_holds_them() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let config = config(2);
    let (spool, mut stepper, _) = open(hooked.clone(), &config);
    for number in 0..20 {
        drop(append(&spool, number, 320).expect("room"));
    }
    work(&disk, &mut stepper);
    hooked.fail(Call::Write, "/00/");
    for number in 20..30 {
        drop(append(&spool, number, 100));
        work(&disk, &mut stepper);
    }
    let commit = spool.record(&ends(0..20)).expect("recorded");
    work(&disk, &mut stepper);
    assert_eq!(commit.poll_now(), Some(Ok(())));
    // One failure of the second shard, not two in a row: its segment is emptied, and was to be renamed away.
    let once = AtomicBool::new(true);
    hooked.set(move |call, path| {
        let first = call == Call::Write && below(path, "/00/");
        let second = call == Call::Sync && below(path, "/01/") && once.swap(false, Ordering::SeqCst);
        if first || second { Err(failure()) } else { Ok(()) }
    });
    for number in 40..60 {
        drop(append(&spool, number, 100));
        work(&disk, &mut stepper);
    }
    drop((spool, stepper));
    let (spool, _stepper, _) = open(disk.kill(), &config);
    assert_eq!(back(&spool, 0..20), [0; 0], "their ends were durable");
}

#[test]
fn states_of_another_shard_that_wait_go_on_to_a_third() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let config = config(3);
    let (spool, mut stepper, _) = open(hooked.clone(), &config);
    for number in 0..30 {
        drop(append(&spool, number, 320).expect("room"));
    }
    work(&disk, &mut stepper);
    hooked.fail(Call::Write, "/00/");
    for number in 30..50 {
        drop(append(&spool, number, 100));
        work(&disk, &mut stepper);
    }
    // The second shard stops while it holds the ends of the first one's messages, not yet written.
    hooked.set(|call, path| {
        let broken = below(path, "/00/") || below(path, "/01/");
        if call == Call::Write && broken { Err(failure()) } else { Ok(()) }
    });
    drop(spool.record(&ends(0..30)).expect("recorded"));
    for _ in 0..5 {
        work(&disk, &mut stepper);
    }
    for number in 50..60 {
        drop(append(&spool, number, 100));
        work(&disk, &mut stepper);
    }
    assert_ne!(spool.pressure(), Pressure::Poisoned, "the third shard writes throughout");
    drop((spool, stepper));
    let (spool, _stepper, _) = open(disk.kill(), &config);
    assert_eq!(back(&spool, 0..30), [0; 0], "finished long ago, and one shard could always write");
}
