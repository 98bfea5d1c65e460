//! The spool with its threads on a real file system: sessions, deliveries and moves at once, then a restart.
#![allow(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "a test program with small numbers")]

use bytes::Bytes;
use mail::QueueId;
use spool::disk::real::RealDisk;
use spool::{Change, Chunk, Config, Error, NewBody, NewMessage, NewRecipient, Spool, State, Status, Store};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mailrace-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn config(directory: &Directory) -> Config {
    let mut config = Config::new(&directory.0);
    config.segment_bytes = 1 << 20;
    config.size_max = 48 << 20;
    config.free_min = 0;
    config.cache_bytes = 256 << 10;
    config
}

fn id(number: u64) -> QueueId {
    QueueId::from_u64(QueueId::MIN.to_u64() + 1 + number * 4096).expect("in range")
}

fn body(number: u64) -> Vec<u8> {
    let bytes = if number.is_multiple_of(50) { 700_000 / 4 } else { 200 + number as usize * 37 % 9000 };
    (0..bytes).map(|at| (at as u64 * 31 + number) as u8).collect()
}

fn give(spool: &Spool, number: u64) -> Result<(), Error> {
    let recipients = [NewRecipient { data: b"user@example", destination: b"example" }];
    let text = body(number);
    let inline = text.len() <= 64 << 10;
    let new_body = if inline {
        NewBody::whole(text, 0)
    } else {
        let pieces = text.chunks(50_000);
        let count = pieces.len() as u32;
        for (piece, at) in pieces.zip(0..) {
            let mut chunk = Chunk::new(50_000);
            chunk.push(piece);
            drop(spool.append_chunk(id(number), at, chunk)?);
        }
        NewBody::Chunks { header: Bytes::new(), count, bytes: text.len() as u64 }
    };
    loop {
        let message = NewMessage::new(id(number), b"head", &recipients, new_body.clone());
        match spool.append(message) {
            Ok(commit) => return commit.wait(),
            Err(Error::Busy) => spool.room(id(number)).wait()?,
            Err(Error::Full) => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn sessions_deliveries_and_moves_at_once() {
    const THREADS: u64 = 6;
    const MESSAGES: u64 = 400;
    let directory = Directory::new("threads");
    let stay = Mutex::new(HashSet::new());
    let next = AtomicU64::new(0);
    {
        let (spool, _) = Spool::open(config(&directory), Arc::new(RealDisk::new())).expect("opens");
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..MESSAGES {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        give(&spool, number).expect("stored");
                        assert_eq!(spool.body(id(number)).expect("reads").concat(), body(number));
                        // One in twenty is a straggler.
                        if number.is_multiple_of(20) {
                            stay.lock().expect("sound").insert(number);
                            continue;
                        }
                        let state = State { status: Status::Done, attempts: 1, due: 0 };
                        let change = Change { id: id(number), recipient: 0, state, destination: None };
                        drop(spool.record(&[change]).expect("recorded"));
                    }
                });
            }
        });
        let statistics = spool.statistics();
        assert!(statistics.relocated > 0, "the pool was meant to run short: {statistics:?}");
        assert!(statistics.commits == THREADS * MESSAGES && statistics.failures == 0, "{statistics:?}");
    }
    let stay = stay.into_inner().expect("sound");
    let (spool, recovery) = Spool::open(config(&directory), Arc::new(RealDisk::new())).expect("opens again");
    assert_eq!(recovery.messages, stay.len() as u64, "{recovery}");
    assert!(recovery.damage.is_empty(), "{recovery:?}");
    for number in stay {
        assert_eq!(spool.body(id(number)).expect("reads").concat(), body(number));
    }
}

#[test]
fn a_task_is_woken_when_its_commit_is_durable() {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let directory = Directory::new("task");
    let (spool, _) = Spool::open(config(&directory), Arc::new(RealDisk::new())).expect("opens");
    let recipients = [NewRecipient { data: b"user@example", destination: b"example" }];
    let message = NewMessage::new(id(1), b"", &recipients, NewBody::whole("", 0));
    let mut commit = std::pin::pin!(spool.append(message).expect("room"));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    while commit.as_mut().poll(&mut context) == Poll::Pending {
        std::thread::park();
    }
    assert_eq!(spool.statistics().messages, 1);
}
