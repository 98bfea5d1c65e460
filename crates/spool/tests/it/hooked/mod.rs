//! The spool on a disk whose calls a test can watch, fail, or use as the moment to do something else.
//!
//! The simulation finds what seeds can find; here are the meetings of threads, failures and moves that need exact
//! timing: a message aborted while it is being synced, a body read while its segment is emptied, a pool that can no
//! longer grow. Most tests step the spool by hand; those that need its threads wait for them through channels.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test program: small numbers, and a panic is its way to say no"
)]

mod chunks;
mod closing;
mod disk;
mod failures;
mod full;
mod groups;
mod headers;
mod holds;
mod rot;
mod shards;
mod sharing;
mod states;

use bytes::Bytes;
use mail::QueueId;
use spool::disk::Disk;
use spool::disk::sim::SimDisk;
use spool::{
    Change, Chunk, Commit, Config, Error, NewBody, NewMessage, NewRecipient, Recovery, Spool, State, Status, Stepper,
    Store,
};
use std::path::PathBuf;
use std::sync::Arc;

const RECIPIENTS: [NewRecipient<'_>; 2] = [
    NewRecipient { data: b"a@example", destination: b"a.example" },
    NewRecipient { data: b"b@example", destination: b"b.example" },
];

fn small(segments: u64) -> Config {
    let mut config = Config::new("/spool");
    config.segment_bytes = 64 << 10;
    config.size_max = segments * (64 << 10);
    config.free_min = 0;
    config.cache_bytes = 16 << 10;
    config.shared_bytes = 0;
    config.staged_bytes_max = 1 << 20;
    config.batch_bytes_max = 12 << 10;
    config.scrub_interval_ms = 0;
    config.uuid = Some([7; 16]);
    config
}

fn id(number: u64) -> QueueId {
    QueueId::from_u64(QueueId::MIN.to_u64() + (number << 12)).expect("in range")
}

fn body(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u64 * 31 + number) as u8).collect()
}

fn give(spool: &Spool, number: u64, body: NewBody, reserved: bool) -> Result<Commit, Error> {
    spool.append(NewMessage { reserved, ..NewMessage::new(id(number), b"head", &RECIPIENTS, body) })
}

fn append(spool: &Spool, number: u64, bytes: usize) -> Result<Commit, Error> {
    let header_bytes = u32::try_from(bytes / 5).expect("small");
    give(spool, number, NewBody::whole(body(number, bytes), header_bytes), false)
}

/// Appends the chunks of a body, but not yet its message.
fn append_chunks(spool: &Spool, number: u64, text: &[u8], each: usize) {
    for (piece, at) in text.chunks(each).zip(0..) {
        let mut chunk = Chunk::new(piece.len());
        chunk.push(piece);
        drop(spool.append_chunk(id(number), at, chunk).expect("room"));
    }
}

fn change(number: u64, recipient: u32, status: Status) -> Change {
    Change { id: id(number), recipient, state: State { status, attempts: 1, due: 77 }, destination: None }
}

/// The end of a message: both its recipients are done.
fn done(number: u64) -> Vec<Change> {
    vec![change(number, 0, Status::Done), change(number, 1, Status::Done)]
}

fn open(disk: impl Disk + 'static, config: &Config) -> (Spool, Stepper, Recovery) {
    Spool::open_stepped(config.clone(), Arc::new(disk)).expect("opens")
}

/// Lets every shard write and tidy what waits.
fn work(disk: &SimDisk, stepper: &mut Stepper) {
    for _ in 0..4 {
        disk.advance(60_000);
        for shard in 0..stepper.shards() {
            stepper.commit(shard);
            stepper.tidy(shard);
        }
    }
}

/// The segment file that holds these bytes, and where in it.
fn find(disk: &SimDisk, bytes: &[u8]) -> (PathBuf, u64) {
    for (path, _) in disk.files() {
        if path.to_string_lossy().contains("seg-") {
            let contents = disk.contents(&path).expect("there");
            if let Some(at) = contents.windows(bytes.len()).position(|window| window == bytes) {
                return (path, at as u64);
            }
        }
    }
    panic!("no segment holds the bytes")
}
