//! Rot and strange files, as an opening spool finds them: acknowledged mail is there, or the damage is reported.

use super::{append, append_chunks, body, find, give, id, open, small, work};
use bytes::Bytes;
use spool::disk::sim::SimDisk;
use spool::{NewBody, Store};
use std::path::Path;

/// Five messages, acknowledged and attested, in one segment that no footer closes; the power is cut.
fn cut() -> SimDisk {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &small(20));
    for number in 1..6 {
        let commit = append(&spool, number, 500).expect("room");
        stepper.commit(0);
        assert_eq!(commit.poll_now(), Some(Ok(())));
    }
    for _ in 0..3 {
        work(&disk, &mut stepper);
    }
    drop((spool, stepper));
    disk.crash(1)
}

#[test]
fn rot_in_a_message_of_the_newest_segment_is_reported() {
    let disk = cut();
    let (path, at) = find(&disk, &body(3, 500));
    // Its header and its envelope; a torn tail looks the same but for the bytes that attest it.
    disk.rot(&path, at - 300..at, 5).expect("rots");
    let (spool, _stepper, recovery) = open(disk, &small(20));
    assert!(spool.envelope(id(3)).is_ok() || !recovery.damage.is_empty(), "gone, and nobody is told: {recovery}");
}

#[test]
fn rot_of_a_whole_block_of_the_newest_segment_is_reported_at_each_start() {
    let disk = cut();
    let (path, at) = find(&disk, &body(3, 500));
    let block = at / 4096 * 4096;
    disk.rot(&path, block..block + 4096, 5).expect("rots");
    for round in 0..3 {
        let (spool, mut stepper, recovery) = open(disk.crash_image(round), &small(20));
        assert!(!recovery.damage.is_empty(), "{recovery}");
        for number in [1, 2, 4, 5] {
            let read = spool.body(id(number)).expect("whole");
            assert_eq!(read.concat(), body(number, 500));
        }
        work(&disk, &mut stepper);
    }
}

#[test]
fn a_message_whose_chunk_list_rotted_keeps_its_envelope_and_has_no_empty_body() {
    const BYTES: u64 = 9000;
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &small(20));
    append_chunks(&spool, 1, &body(1, BYTES as usize), 3000);
    let commit =
        give(&spool, 1, NewBody::Chunks { header: Bytes::new(), count: 3, bytes: BYTES }, false).expect("room");
    while stepper.commit(0) {}
    assert_eq!(commit.poll_now(), Some(Ok(())));
    for _ in 0..3 {
        work(&disk, &mut stepper);
    }
    drop((spool, stepper));
    let disk = disk.crash(1);
    // The list begins with the bytes and the number of the chunks.
    let list = [&BYTES.to_le_bytes()[..], &3_u32.to_le_bytes(), &[0; 4]].concat();
    let (path, at) = find(&disk, &list);
    disk.flip_bit(&path, at, 0).expect("flips");
    let (spool, _stepper, _) = open(disk, &small(20));
    assert!(spool.envelope(id(1)).is_ok_and(|envelope| envelope.body_bytes > 0), "its sender can still be told");
    let part = spool.part(id(1), &[0]).expect("the same for whoever sends it");
    assert!(part.envelope.body_bytes > 0, "a body of no octets is sent without being asked for");
    assert!(spool.body(id(1)).is_err());
    assert!(spool.body_range(id(1), 0..BYTES).is_err(), "an empty body must not be delivered in its place");
}

#[test]
fn a_file_with_a_number_beyond_all_segments_is_left_alone() {
    let disk = SimDisk::new(1);
    let config = small(20);
    drop(open(disk.clone(), &config));
    let stray = Path::new("/spool/00/seg-065535");
    disk.set_contents(stray, b"x").expect("written");
    let (spool, mut stepper, _) = open(disk.clone(), &config);
    let commit = append(&spool, 1, 100).expect("room");
    stepper.commit(0);
    assert_eq!(commit.poll_now(), Some(Ok(())));
    assert_eq!(disk.contents(stray).expect("there"), b"x");
}
