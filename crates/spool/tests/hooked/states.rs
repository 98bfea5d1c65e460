//! Recorded states: when they count as durable, and what those that cannot be stored do to the others.

use crate::disk::{Call, HookedDisk};
use crate::{append, change, done, id, open, small, work};
use spool::disk::sim::SimDisk;
use spool::{Status, Store};
use std::sync::{Arc, Mutex};

#[test]
fn a_repeated_change_is_durable_no_sooner_than_the_first() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &small(20));
    let spool = Arc::new(spool);
    drop(append(&spool, 1, 100).expect("room"));
    stepper.commit(0);
    let first = spool.record(&done(1)).expect("recorded");
    disk.advance(60_000);
    // The books know the end already, the disk does not: the queue is empty and the batch is being written.
    let (again, seen) = (Arc::downgrade(&spool), Arc::new(Mutex::new(None)));
    let told = Arc::clone(&seen);
    hooked.set(move |call, _| {
        if call == Call::Write
            && let Some(spool) = again.upgrade()
        {
            *told.lock().expect("sound") = Some(spool.record(&done(1)).expect("recorded").poll_now());
        }
        Ok(())
    });
    stepper.commit(0);
    hooked.clear();
    assert_eq!(*seen.lock().expect("sound"), Some(None), "nothing was durable at that moment");
    assert_eq!(first.poll_now(), Some(Ok(())));
}

#[test]
fn a_destination_too_long_to_store_is_ignored_and_harms_no_other_change() {
    let disk = SimDisk::new(1);
    let mut config = small(20);
    config.segment_bytes = 4 << 20;
    config.size_max = 20 * (4 << 20);
    config.batch_bytes_max = 1 << 20;
    let (spool, mut stepper, _) = open(disk.clone(), &config);
    for number in 1..4 {
        drop(append(&spool, number, 100).expect("room"));
    }
    stepper.commit(0);
    // One byte more than the length field of an entry can say.
    let mut long = change(1, 0, Status::Held);
    long.destination = Some(vec![b'x'; 65_535]);
    let commit = spool
        .record(&[long, change(2, 0, Status::Done), change(3, 0, Status::Held)])
        .expect("a name is no reason to refuse");
    work(&disk, &mut stepper);
    assert_eq!(commit.poll_now(), Some(Ok(())));
    drop((spool, stepper));
    let (spool, _stepper, _) = open(disk.crash(1), &config);
    let recipient = spool.envelope(id(1)).expect("there").recipients.remove(0);
    assert_eq!((recipient.state.status, &recipient.destination[..]), (Status::Held, &b"a.example"[..]));
    assert_eq!(spool.envelope(id(2)).expect("there").recipients.len(), 1, "a durable end came undone");
    assert_eq!(spool.envelope(id(3)).expect("there").recipients[0].state.status, Status::Held);
}

#[test]
fn a_state_larger_than_a_batch_takes_does_not_hold_up_those_behind_it() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &small(20));
    for number in 1..3 {
        drop(append(&spool, number, 100).expect("room"));
    }
    stepper.commit(0);
    let mut large = change(1, 0, Status::Waiting);
    large.destination = Some(vec![b'x'; 8_000]);
    drop(spool.record(&[large]).expect("recorded"));
    let behind = spool.record(&[change(2, 0, Status::Done)]).expect("recorded");
    for _ in 0..5 {
        work(&disk, &mut stepper);
    }
    assert_eq!(behind.poll_now(), Some(Ok(())));
}
