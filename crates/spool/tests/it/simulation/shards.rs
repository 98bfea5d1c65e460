//! Several shards: mail spreads over them, and when one can no longer write, others take its states until a restart.

use super::small;
use mail::QueueId;
use spool::disk::sim::SimDisk;
use spool::disk::{Disk, DiskFile, Space};
use spool::{Change, Commit, Config, NewBody, NewMessage, NewRecipient, Spool, State, Status, Stepper, Store};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A disk whose files below `00` stop taking writes at a word.
#[derive(Debug)]
struct HalfBroken {
    disk: SimDisk,
    broken: Arc<AtomicBool>,
}

#[derive(Debug)]
struct BrokenFile {
    file: Box<dyn DiskFile>,
    broken: Arc<AtomicBool>,
}

impl DiskFile for BrokenFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(io::Error::other("broken"));
        }
        self.file.write_at(bufs, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Disk for HalfBroken {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.open(path, write)?;
        let first = path.to_string_lossy().contains("/00/");
        let broken = if first { Arc::clone(&self.broken) } else { Arc::default() };
        Ok(Box::new(BrokenFile { file, broken }))
    }
    fn create_filled(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.disk.create_filled(path, bytes)
    }
    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read_small(path)
    }
    fn replace_small(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.disk.replace_small(path, contents)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.disk.space(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(path)
    }
    fn now_us(&self) -> u64 {
        self.disk.now_us()
    }
}

fn config() -> Config {
    let mut config = small(30);
    config.shards = 3;
    config.size_max *= 3;
    config
}

fn id(number: u64) -> QueueId {
    QueueId::from_u64(QueueId::MIN.to_u64() + (number << 12)).expect("in range")
}

fn append(spool: &Spool, number: u64) -> Commit {
    let recipients = [
        NewRecipient { data: b"a@example", destination: b"a.example" },
        NewRecipient { data: b"b@example", destination: b"b.example" },
    ];
    let body = NewBody::whole(number.to_le_bytes().repeat(40), 0);
    spool.append(NewMessage::new(id(number), b"head", &recipients, body)).expect("room")
}

fn change(number: u64, recipient: u32, status: Status) -> Change {
    Change { id: id(number), recipient, state: State { status, attempts: 1, due: 77 }, destination: None }
}

fn work(disk: &SimDisk, stepper: &mut Stepper) {
    for _ in 0..4 {
        disk.advance(60_000);
        for shard in 0..stepper.shards() {
            stepper.commit(shard);
            stepper.tidy(shard);
        }
    }
}

#[test]
fn mail_spreads_over_shards_and_is_found_again() {
    let disk = SimDisk::new(1);
    let handle: Arc<dyn Disk> = Arc::new(disk.clone());
    let (spool, mut stepper, _) = Spool::open_stepped(config(), handle).expect("opens");
    let commits: Vec<_> = (0..60).map(|number| append(&spool, number)).collect();
    work(&disk, &mut stepper);
    assert!(commits.iter().all(|commit| commit.poll_now() == Some(Ok(()))));
    let recorded =
        spool.record(&(0..60).map(|number| change(number, 0, Status::Done)).collect::<Vec<_>>()).expect("recorded");
    assert_eq!(recorded.poll_now(), None, "not durable yet");
    work(&disk, &mut stepper);
    assert_eq!(recorded.poll_now(), Some(Ok(())), "durable on all shards");
    let files = disk.files();
    for shard in ["/00/", "/01/", "/02/"] {
        assert!(files.iter().any(|(path, _)| path.to_string_lossy().contains(shard)));
    }
    let all = spool.by_destination(b"b.example", None, 1000);
    assert_eq!(all.len(), 60);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let some = spool.by_destination(b"b.example", after, 7);
        after = some.last().copied();
        if some.is_empty() {
            break;
        }
        seen.extend(some);
    }
    assert_eq!(seen, all, "the same in pages");
    drop((spool, stepper));
    let handle: Arc<dyn Disk> = Arc::new(disk.crash(3));
    let (spool, _stepper, _) = Spool::open_stepped(config(), handle).expect("opens");
    assert_eq!((spool.statistics().messages, spool.statistics().recipients), (60, 60));
    for number in 0..60 {
        assert_eq!(spool.body(id(number)).expect("reads").concat(), number.to_le_bytes().repeat(40));
    }
}

#[test]
fn other_shards_take_the_states_of_one_that_cannot_write() {
    for seed in 1..=20 {
        let disk = SimDisk::new(seed);
        let broken = Arc::new(AtomicBool::new(false));
        let handle: Arc<dyn Disk> = Arc::new(HalfBroken { disk: disk.clone(), broken: Arc::clone(&broken) });
        let (spool, mut stepper, _) = Spool::open_stepped(config(), handle).expect("opens");
        for number in 0..60 {
            drop(append(&spool, number));
        }
        work(&disk, &mut stepper);
        broken.store(true, Ordering::SeqCst);
        // Two failures make the first shard read-only; its changes fail, the others go on.
        let mut failed = 0;
        for number in 60..90 {
            let commit = append(&spool, number);
            work(&disk, &mut stepper);
            failed += u64::from(commit.poll_now() != Some(Ok(())));
        }
        assert!((1..=4).contains(&failed), "{failed} appends failed");
        let finished: Vec<Change> =
            (0..30).flat_map(|n| [change(n, 0, Status::Done), change(n, 1, Status::Done)]).collect();
        let held: Vec<Change> = (30..60).map(|number| change(number, 1, Status::Held)).collect();
        let commits = [spool.record(&finished).expect("recorded"), spool.record(&held).expect("recorded")];
        work(&disk, &mut stepper);
        assert!(commits.iter().all(|commit| commit.poll_now() == Some(Ok(()))), "durable on the shards that can");
        drop((spool, stepper));
        let healed = disk.crash(seed);
        // Twice: the first start takes the states home, and may be cut off at any time.
        for round in 0..3 {
            let handle: Arc<dyn Disk> = Arc::new(healed.crash_image(round));
            let (spool, mut stepper, _) = Spool::open_stepped(config(), handle).expect("opens");
            for number in 0..30 {
                assert!(spool.envelope(id(number)).is_err(), "seed {seed}: {number} is back");
            }
            for number in 30..60 {
                let envelope = spool.envelope(id(number)).expect("there");
                assert_eq!(envelope.recipients[1].state.status, Status::Held, "seed {seed}: {number}");
            }
            work(&disk, &mut stepper);
        }
    }
}
