//! Header section and body are stored apart: the header section may change after the body has arrived.

use super::{append, append_chunks, body, change, done, give, id, open, small, work};
use bytes::Bytes;
use spool::disk::sim::SimDisk;
use spool::{Error, NewBody, Status, Store};

const BYTES: usize = 40;
const CHUNK_BYTES: usize = 20;

/// Content whose header section has so many bytes, in memory or with its body in chunks.
fn give_split(spool: &spool::Spool, number: u64, header_bytes: usize, in_chunks: bool) {
    let content = body(number, BYTES);
    let (header, rest) = content.split_at(header_bytes);
    let new = if in_chunks {
        append_chunks(spool, number, rest, CHUNK_BYTES);
        let (header, count) = (Bytes::copy_from_slice(header), rest.len().div_ceil(CHUNK_BYTES) as u32);
        NewBody::Chunks { header, count, bytes: rest.len() as u64 }
    } else {
        NewBody::whole(content, header_bytes as u32)
    };
    drop(give(spool, number, new, false).expect("room"));
}

/// Reads the content, all its ranges that begin or end beside the header section, and the header section alone.
fn check(spool: &spool::Spool, number: u64, header_bytes: usize, what: &str) {
    let content = body(number, BYTES);
    let what = format!("{what}: message {number}, header section of {header_bytes} bytes");
    assert_eq!(spool.body(id(number)).expect(&what).concat(), content, "{what}");
    assert_eq!(spool.header(id(number)).expect(&what), content[..header_bytes], "{what}");
    let envelope = spool.envelope(id(number)).expect(&what);
    assert_eq!((envelope.body_bytes, envelope.body_offset as usize), (BYTES as u64, header_bytes), "{what}");
    let part = spool.part(id(number), &[0]).expect(&what);
    assert_eq!(part.envelope.body_offset as usize, header_bytes, "{what}");
    for from in [0, header_bytes.saturating_sub(1), header_bytes, header_bytes + 1] {
        for to in [header_bytes.saturating_sub(1), header_bytes, header_bytes + 1, BYTES] {
            let (from, to) = (from.min(BYTES), to.min(BYTES));
            let read = spool.body_range(id(number), from as u64..to as u64).expect(&what);
            assert_eq!(read, content.get(from..to).unwrap_or_default(), "{what}: {from}..{to}");
        }
    }
}

#[test]
fn content_is_split_at_any_offset_and_read_as_one() {
    // With and without memory for fresh messages.
    for cache_bytes in [1 << 20, 0] {
        let config = spool::Config { cache_bytes, ..small(60) };
        let disk = SimDisk::new(1);
        let (spool, mut stepper, _) = open(disk.clone(), &config);
        let all: Vec<(u64, usize, bool)> =
            (0..=BYTES).flat_map(|at| [(at, false), (at, at < BYTES)]).zip(1..).map(flat).collect();
        for (number, header_bytes, in_chunks) in &all {
            give_split(&spool, *number, *header_bytes, *in_chunks);
            work(&disk, &mut stepper);
            check(&spool, *number, *header_bytes, "fresh");
        }
        drop((spool, stepper));
        let disk = disk.kill();
        let (spool, _stepper, recovery) = open(disk, &config);
        assert_eq!((recovery.damage.len(), recovery.messages), (0, all.len() as u64));
        for (number, header_bytes, _) in &all {
            check(&spool, *number, *header_bytes, "after a restart");
        }
    }
}

#[test]
fn what_is_split_moves_and_is_read_as_one() {
    let config = spool::Config { cache_bytes: 0, ..small(16) };
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &config);
    let stay: Vec<(u64, usize, bool)> =
        (0..=BYTES).step_by(8).flat_map(|at| [(at, false), (at, at < BYTES)]).zip(1..).map(flat).collect();
    let mut others = 1_000..;
    for (number, header_bytes, in_chunks) in &stay {
        give_split(&spool, *number, *header_bytes, *in_chunks);
        // Mail that ends leaves them alone in their segments, which are emptied.
        for other in others.by_ref().take(30) {
            drop(append(&spool, other, 6_000).expect("room"));
            work(&disk, &mut stepper);
            drop(spool.record(&done(other)).expect("recorded"));
        }
    }
    work(&disk, &mut stepper);
    assert!(spool.statistics().relocated >= stay.len() as u64 - 2, "{:?}", spool.statistics());
    for (number, header_bytes, _) in &stay {
        check(&spool, *number, *header_bytes, "moved");
    }
    drop((spool, stepper));
    let (spool, _stepper, recovery) = open(disk.kill(), &config);
    assert_eq!((recovery.damage.len(), recovery.messages), (0, stay.len() as u64));
    for (number, header_bytes, _) in stay {
        check(&spool, number, header_bytes, "moved, after a restart");
    }
}

fn flat(((at, in_chunks), number): ((usize, bool), u64)) -> (u64, usize, bool) {
    (number, at, in_chunks)
}

#[test]
fn the_header_section_may_be_written_after_the_last_chunk() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &small(20));
    append_chunks(&spool, 1, &body(1, 9_000), 3_000);
    work(&disk, &mut stepper);
    let header = Bytes::from_static(b"DKIM-Signature: of the whole body\r\n\r\n");
    drop(give(&spool, 1, NewBody::Chunks { header: header.clone(), count: 3, bytes: 9_000 }, false).expect("room"));
    work(&disk, &mut stepper);
    drop(spool.record(&[change(1, 0, Status::Held)]).expect("recorded"));
    drop((spool, stepper));
    let (spool, _stepper, _) = open(disk.kill(), &small(20));
    assert_eq!(spool.header(id(1)).expect("reads"), header);
    assert_eq!(spool.body(id(1)).expect("reads").concat(), [&header[..], &body(1, 9_000)].concat());
}

#[test]
fn a_header_section_beyond_its_limit_or_its_content_is_refused() {
    let config = small(20);
    let (spool, mut stepper, _) = open(SimDisk::new(1), &config);
    let max = config.header_bytes_max();
    assert_eq!(max, spool.header_bytes_max());
    let header = Bytes::from(body(1, max + 1));
    let refused = give(&spool, 1, NewBody::Chunks { header: header.clone(), count: 0, bytes: 0 }, false).err();
    let expected = Error::HeaderTooLarge { bytes: max as u64 + 1, max: max as u64 };
    assert_eq!(refused, Some(expected.clone()));
    assert_eq!(give(&spool, 1, NewBody::whole(header.clone(), max as u32 + 1), false).err(), Some(expected));
    let short = give(&spool, 1, NewBody::whole("short", 6), false).err();
    assert_eq!(short, Some(Error::HeaderTooLarge { bytes: 6, max: 5 }));
    let taken = give(&spool, 1, NewBody::whole(header, max as u32), false).expect("it is within the limit");
    stepper.commit(0);
    assert_eq!(taken.poll_now(), Some(Ok(())));
}
