//! Messages of one transaction: all are stored, or none.

use super::disk::{Call, HookedDisk, below, failure};
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Three messages, the second in two chunks.
fn group(spool: &Spool, chunks: usize) -> Result<Commit, Error> {
    let text = body(2, 9000);
    for (piece, number) in text.chunks(5000).take(chunks).zip(0..) {
        let mut chunk = Chunk::new(piece.len());
        chunk.push(piece);
        drop(spool.append_chunk_of(id(1), id(2), number, chunk)?);
    }
    let new = |number, body| NewMessage::new(id(number), b"head", &RECIPIENTS, body);
    let whole = |number| NewBody::whole(body(number, 700), 0);
    let chunked = NewBody::Chunks { header: Bytes::new(), count: 2, bytes: 9000 };
    spool.append_all(id(1), &[new(1, whole(1)), new(2, chunked), new(3, whole(3))])
}

/// Segments and batches with room for everything that a test here gives at once.
fn roomy() -> Config {
    let segment_bytes = 1 << 20;
    Config { segment_bytes, size_max: 24 << 20, batch_bytes_max: 128 << 10, ..small(24) }
}

fn there(spool: &Spool) -> Vec<u64> {
    (1..=3).filter(|number| spool.envelope(id(*number)).is_ok()).collect()
}

#[test]
fn a_cut_at_any_write_or_sync_leaves_all_or_none() {
    let mut seen = [0, 0];
    for cut in 0..8 {
        for choice in 0..40 {
            let disk = SimDisk::new(choice);
            let (spool, mut stepper, _) = open(disk.clone(), &small(24));
            drop(append(&spool, 9, 100).expect("room"));
            stepper.commit(0);
            disk.cut_power_after(cut);
            let commit = group(&spool, 2).expect("room");
            work(&disk, &mut stepper);
            let acknowledged = commit.poll_now() == Some(Ok(()));
            let after = disk.crash(choice);
            drop((spool, stepper));
            after.clear_faults();
            let (spool, _stepper, recovery) = open(after, &small(24));
            assert_eq!(recovery.damage, []);
            let found = there(&spool);
            assert!(found.is_empty() || found.len() == 3, "cut {cut}, image {choice}: only {found:?}");
            assert!(!acknowledged || found.len() == 3, "cut {cut}, image {choice}: acknowledged and lost");
            for number in found.iter().copied() {
                let bytes = if number == 2 { 9000 } else { 700 };
                assert_eq!(spool.body(id(number)).expect("reads").concat(), body(number, bytes));
            }
            seen[usize::from(!found.is_empty())] += 1;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "none, all: {seen:?}");
}

#[test]
fn all_are_durable_after_one_sync() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk, &roomy());
    stepper.commit(0);
    let before = spool.statistics().syncs;
    let commit = group(&spool, 2).expect("room");
    stepper.commit(0);
    assert_eq!(commit.poll_now(), Some(Ok(())));
    assert_eq!((spool.statistics().syncs - before, there(&spool)), (1, vec![1, 2, 3]));
}

#[test]
fn a_missing_chunk_fails_all_and_nothing_else() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &roomy());
    let before = append(&spool, 8, 300).expect("room");
    let commit = group(&spool, 1).expect("room");
    let text = body(10, 7000);
    append_chunks(&spool, 10, &text, 4000);
    let after = give(&spool, 10, NewBody::Chunks { header: Bytes::new(), count: 2, bytes: 7000 }, false).expect("room");
    stepper.commit(0);
    assert_eq!(commit.poll_now(), Some(Err(Error::Failed)));
    assert_eq!((before.poll_now(), after.poll_now()), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(there(&spool), []);
    drop((spool, stepper));
    let (spool, _stepper, recovery) = open(disk.kill(), &roomy());
    assert_eq!((recovery.damage.len(), recovery.messages), (0, 2));
    assert_eq!(there(&spool), []);
    assert_eq!(spool.body(id(10)).expect("reads").concat(), text);
}

#[test]
fn a_queue_id_twice_or_frames_too_large_together_take_nothing() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk, &small(24));
    let new = |number, bytes| NewMessage::new(id(number), b"head", &RECIPIENTS, NewBody::whole(body(number, bytes), 0));
    assert_eq!(spool.append_all(id(1), &[new(1, 5), new(2, 5), new(1, 5)]).err(), Some(Error::Exists(id(1))));
    let large = spool.append_all(id(1), &[new(1, 7000), new(2, 7000)]).err();
    assert!(matches!(large, Some(Error::TooLarge { .. })), "{large:?}");
    stepper.commit(0);
    assert_eq!(spool.messages(), []);
    assert_eq!(spool.append_all(id(1), &[]).map(|commit| commit.poll_now()), Ok(Some(Ok(()))));
}

/// Recipients whose new destinations leave `spare` bytes of the room that a batch has for recorded states.
fn long_destinations(spare: usize) -> Vec<Change> {
    let room = ((1 << 20) - 3 * 4096) / 8 - 4 * 40;
    let bytes = room - spare - 3 * 22;
    let lengths = [bytes / 3, bytes / 3, bytes - bytes / 3 * 2];
    let recipients = [(12, 0), (12, 1), (14, 0)];
    let changes = recipients.into_iter().zip(lengths).map(|((number, recipient), length)| Change {
        destination: Some(vec![b'x'; length]),
        ..change(number, recipient, Status::Waiting)
    });
    changes.collect()
}

#[test]
fn messages_refused_by_a_shard_that_fails_are_revoked_together_by_another() {
    let config = Config { shards: 2, size_max: 48 << 20, ..roomy() };
    for spare in (0..48).step_by(4) {
        let disk = SimDisk::new(1);
        let hooked = HookedDisk::new(&disk);
        let (spool, mut stepper, _) = open(hooked.clone(), &config);
        for (number, bytes) in [(11, 300), (12, 100), (14, 100)] {
            drop(append(&spool, number, bytes).expect("room"));
        }
        work(&disk, &mut stepper);
        // Odd numbers share a shard, so the group goes where message 11 is.
        let path = find(&disk, &body(11, 300)).0;
        let (part, broken, other) = if below(&path, "/00/") { ("/00/", 0, 1) } else { ("/01/", 1, 0) };
        let commit = group(&spool, 2).expect("room");
        // The group reaches the medium, and its sync is answered with an error; from then on nothing is written.
        let failed = AtomicBool::new(false);
        hooked.set(move |call, path| match call {
            Call::Sync if below(path, part) => {
                failed.store(true, Ordering::SeqCst);
                Err(failure())
            }
            Call::Write if below(path, part) && failed.load(Ordering::SeqCst) => Err(failure()),
            _ => Ok(()),
        });
        while commit.poll_now().is_none() {
            stepper.commit(broken);
        }
        assert_eq!(commit.poll_now(), Some(Err(Error::Failed)));
        drop(spool.record(&long_destinations(spare)).expect("recorded"));
        disk.advance(60_000);
        stepper.commit(broken);
        // One batch of the other shard, then the power is cut.
        stepper.commit(other);
        drop((spool, stepper));
        let (spool, _stepper, _) = open(disk.kill(), &config);
        let found = there(&spool);
        assert!(found.is_empty() || found.len() == 3, "{spare} bytes left: only {found:?}");
    }
}
