//! Large bodies, which arrive as chunks before their message: aborted, moved, or left behind at an awkward moment.

use super::disk::{Call, HookedDisk};
use super::{append, append_chunks, body, done, give, id, open, small, work};
use bytes::Bytes;
use spool::disk::sim::SimDisk;
use spool::{Error, NewBody, Store};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const BYTES: usize = 9000;
const PIECES: NewBody = NewBody::Chunks { header: Bytes::new(), count: 3, bytes: BYTES as u64 };

#[test]
fn an_abort_while_the_message_is_being_synced_comes_too_late() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &small(20));
    let spool = Arc::new(spool);
    let text = body(1, BYTES);
    append_chunks(&spool, 1, &text, 3000);
    while stepper.commit(0) {}
    let commit = give(&spool, 1, PIECES, false).expect("room");
    // A session that is cut off while it waits for its 250.
    let session = Arc::downgrade(&spool);
    hooked.set(move |call, _| {
        if call == Call::Sync
            && let Some(spool) = session.upgrade()
        {
            spool.abort(id(1));
        }
        Ok(())
    });
    stepper.commit(0);
    hooked.clear();
    assert_eq!(commit.poll_now(), Some(Ok(())));
    assert_eq!(spool.body(id(1)).expect("reads").concat(), text);
    assert_eq!(spool.body_range(id(1), 0..BYTES as u64).expect("reads"), text);
}

#[test]
fn a_body_is_read_whole_while_its_chunks_move() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let mut config = small(12);
    config.cache_bytes = 0;
    let (spool, stepper, _) = open(hooked.clone(), &config);
    let (spool, stepper) = (Arc::new(spool), Arc::new(Mutex::new(stepper)));
    let text = body(1, BYTES);
    append_chunks(&spool, 1, &text, 3000);
    let commit = give(&spool, 1, PIECES, false).expect("room");
    while stepper.lock().expect("sound").commit(0) {}
    assert_eq!(commit.poll_now(), Some(Ok(())));
    let (reads, traffic) = (AtomicU64::new(0), (Arc::downgrade(&spool), Arc::downgrade(&stepper), disk.clone()));
    hooked.set(move |call, _| {
        // The message and a chunk are read, the next chunk is about to be.
        if call != Call::Read || reads.fetch_add(1, Ordering::SeqCst) != 2 {
            return Ok(());
        }
        let (Some(spool), Some(stepper)) = (traffic.0.upgrade(), traffic.1.upgrade()) else { return Ok(()) };
        let mut stepper = stepper.lock().expect("sound");
        let mut stragglers = Vec::new();
        // Mail that comes and goes, with a few that stay a while: the chunks move, and their segment is used again.
        for number in 100..700 {
            if append(&spool, number, 2000 + (number as usize * 37) % 3000).is_ok() {
                stepper.commit(0);
                if number % 12 == 0 {
                    stragglers.push(number);
                } else {
                    drop(spool.record(&done(number)).expect("recorded"));
                }
            }
            if stragglers.len() > 12 {
                drop(spool.record(&done(stragglers.remove(0))).expect("recorded"));
            }
            traffic.2.advance(60_000);
            stepper.commit(0);
            stepper.tidy(0);
        }
        Ok(())
    });
    let read = spool.body(id(1));
    hooked.clear();
    assert!(spool.statistics().relocated > 0, "the pool was meant to run short: {:?}", spool.statistics());
    assert_eq!(read.expect("reads").concat(), text);
}

#[test]
fn a_message_that_failed_does_not_keep_the_segments_of_its_chunks() {
    const FAILURES: u64 = 8;
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &small(20));
    for round in 0..FAILURES {
        let number = 1000 + round;
        append_chunks(&spool, number, &body(number, 3000), 3000);
        while stepper.commit(0) {}
        let commit =
            give(&spool, number, NewBody::Chunks { header: Bytes::new(), count: 1, bytes: 3000 }, false).expect("room");
        hooked.fail(Call::Sync, "/");
        stepper.commit(0);
        hooked.clear();
        assert_eq!(commit.poll_now(), Some(Err(Error::Failed)));
        for number in 0..20 {
            let number = 5000 + round * 100 + number;
            drop(append(&spool, number, 3000).expect("room"));
            stepper.commit(0);
            drop(spool.record(&done(number)).expect("recorded"));
            work(&disk, &mut stepper);
        }
    }
    let retired = disk.files().iter().filter(|(path, _)| super::disk::below(path, "bad-")).count();
    assert_eq!(retired as u64, FAILURES, "each failure cost one segment, and no more");
}
