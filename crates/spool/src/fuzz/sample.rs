//! A small spool with something of everything in it: the ground for whole-recovery fuzzing and for the fixtures of a
//! format version.
//!
//! Made on the simulated disk by ordinary calls, so it has the form that a spool of this version really leaves: all
//! types of frames, reused segments, moved messages, a segment retired after a failed write, and a torn tail. The same
//! on every run.

use crate::disk::Disk;
use crate::disk::sim::{Op, SimDisk};
use crate::envelope::Encoded;
use crate::inspect::{Fact, inspect};
use crate::store::{Change, Chunk, NewBody, State, Status, Store as _};
use crate::{Config, Hold, HoldKind, Spool, Stepper};
use mail::{
    Client, Envelope, HeloName, MailParams, Node, Protocol, QueueId, QueueIds, Received, Recipient, ReversePath,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the sample lies on its disk.
pub const ROOT: &str = "/spool";
/// 2026-01-01T00:00:00Z, when its first message came.
const START_US: u64 = 1_767_225_600_000_000;
/// Rounds after which something that was to happen will not.
const ROUNDS_MAX: usize = 400;

/// The spool and its required content.
#[derive(Debug)]
pub struct Sample {
    /// Its disk, after the power was cut; nothing has recovered it yet.
    pub disk: SimDisk,
    /// How it was made.
    pub config: Config,
    /// All messages that were acknowledged, also those that are finished.
    pub messages: Vec<Kept>,
    /// One whose batch is torn. It must not turn up, unless some further damage says that its batch was durable.
    pub torn: Kept,
}

/// A message and the states recorded for it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The envelope with all its recipients.
    pub envelope: Envelope,
    /// Its content; the first quarter counts as header section.
    pub body: Vec<u8>,
    /// The state and destination of each recipient.
    pub states: Vec<(State, Vec<u8>)>,
}

impl Kept {
    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.states.iter().all(|(state, _)| state.status == Status::Done)
    }

    /// Where its body begins in the content.
    #[must_use]
    pub fn body_offset(&self) -> usize {
        self.body.len() / 4
    }

    fn in_memory(&self) -> NewBody {
        NewBody::whole(self.body.clone(), u32::try_from(self.body_offset()).expect("small"))
    }
}

/// Makes the sample.
///
/// # Panics
/// When the spool no longer does what the sample needs.
#[must_use]
pub fn sample() -> Sample {
    let mut maker = Maker::new();
    maker.large();
    maker.churn();
    maker.fail_a_write();
    maker.last_words();
    maker.cut_power()
}

/// A spool of segments as small as they can be, that changes nothing by itself.
#[must_use]
pub fn config() -> Config {
    let mut config = Config::new(ROOT);
    config.segment_bytes = 64 << 10;
    config.size_max = 12 * u64::from(config.segment_bytes);
    config.free_min = 0;
    config.cache_bytes = 0;
    config.batch_bytes_max = 12 << 10;
    config.scrub_interval_ms = 0;
    config.uuid = Some(*b"\x5amailrace sample");
    config
}

struct Maker {
    disk: SimDisk,
    config: Config,
    spool: Spool,
    stepper: Stepper,
    ids: QueueIds,
    messages: Vec<Kept>,
}

impl Maker {
    fn new() -> Self {
        let (disk, config) = (SimDisk::new(1), config());
        let (spool, stepper, _) = open(&disk, &config);
        Self { disk, config, spool, stepper, ids: QueueIds::new(Node::default()), messages: Vec::new() }
    }

    /// Makes everything that was given durable.
    fn commit(&mut self) {
        while self.stepper.commit(0) {}
        self.disk.advance(1_000 * (self.config.state_delay_ms + 1));
        while self.stepper.commit(0) {}
    }

    fn next(&mut self, recipients: usize, body_bytes: usize) -> Kept {
        let number = self.messages.len();
        let id = self.ids.next(START_US + number as u64 * 1_000_000);
        let address = |text: String| text.parse().expect("letters and digits at a domain");
        let recipients: Vec<Recipient> = (0..recipients)
            .map(|at| Recipient::new(address(format!("reader{number}@host{}.example", (number + at) % 5))))
            .collect();
        let envelope = Envelope {
            id,
            sender: if number.is_multiple_of(4) {
                ReversePath::Null
            } else {
                ReversePath::Address(address(format!("bounces+{number}@lists.example")))
            },
            params: MailParams { size: Some(body_bytes as u64), ..MailParams::default() },
            received: Received {
                at_us: id.unix_us(),
                client: Client::Network(([192, 0, 2, 1], 25_000).into()),
                helo: HeloName::new(b"mx.example"),
                protocol: Protocol::Smtp,
            },
            recipients,
        };
        // Lines of sixteen bytes, all alike, so that a dump of the fixtures stays short.
        let line = format!("message {number:06}\r\n");
        let body = line.bytes().cycle().take(body_bytes).collect();
        let destinations = envelope.recipients.iter().map(|one| crate::envelope::default_destination(&one.address));
        let states = destinations.map(|name| (State::default(), name)).collect();
        Kept { envelope, body, states }
    }

    fn append(&mut self, recipients: usize, body_bytes: usize) -> QueueId {
        let kept = self.next(recipients, body_bytes);
        let commit = self.give(&kept, kept.in_memory());
        self.commit();
        assert_eq!(commit.poll_now(), Some(Ok(())), "a commit on a healthy disk");
        let id = kept.envelope.id;
        self.messages.push(kept);
        id
    }

    fn give(&self, kept: &Kept, body: NewBody) -> crate::Commit {
        let encoded = Encoded::new(&kept.envelope);
        self.spool.append(encoded.message(&encoded.recipients(), body)).expect("room for it")
    }

    /// Records a state of one recipient, and a destination if there is a new one.
    fn record(&mut self, id: QueueId, recipient: u32, state: State, destination: Option<&str>) {
        let destination = destination.map(|name| name.as_bytes().to_vec());
        let kept = self.messages.iter_mut().find(|kept| kept.envelope.id == id).expect("acknowledged");
        let known = kept.states.get_mut(recipient as usize).expect("a recipient");
        known.0 = state;
        known.1 = destination.clone().unwrap_or_else(|| std::mem::take(&mut known.1));
        let hold = Hold::new(HoldKind::Operator, "root", "message under examination");
        let changes = [Change { id, recipient, state, destination }];
        let recorded = match state.status {
            Status::Held => self.spool.record_hold(&changes, &hold),
            _ => self.spool.record(&changes),
        };
        drop(recorded.expect("not poisoned"));
    }

    fn finish(&mut self, id: QueueId) {
        let kept = self.messages.iter().find(|kept| kept.envelope.id == id).expect("acknowledged");
        for recipient in 0..u32::try_from(kept.states.len()).expect("few") {
            self.record(id, recipient, State { status: Status::Done, attempts: 1, due: 0 }, None);
        }
    }

    /// A message in chunks that stays, and one that is finished.
    fn large(&mut self) {
        for last in [false, true] {
            let kept = self.next(2, 25_000);
            let (header, body) = kept.body.split_at(kept.body_offset());
            for (piece, number) in body.chunks(6_250).zip(0..) {
                let mut chunk = Chunk::new(piece.len());
                chunk.push(piece);
                drop(self.spool.append_chunk(kept.envelope.id, number, chunk).expect("room for it"));
                self.commit();
            }
            let commit = self.give(&kept, NewBody::Chunks { header: header.to_vec().into(), count: 3, bytes: 18_750 });
            self.commit();
            assert_eq!(commit.poll_now(), Some(Ok(())), "a commit on a healthy disk");
            let id = kept.envelope.id;
            self.messages.push(kept);
            if last {
                self.finish(id);
            }
        }
    }

    /// Messages of which one in twelve stays, until some have been moved.
    fn churn(&mut self) {
        for round in 0..ROUNDS_MAX {
            let id = self.append(1 + round % 3, 100 + 997 * (round % 7));
            match round % 12 {
                // One of three recipients is left, later, held, elsewhere.
                2 => {
                    self.record(id, 0, State { status: Status::Done, attempts: 1, due: 0 }, None);
                    self.record(id, 1, State { status: Status::Waiting, attempts: 2, due: 1_800_000_000 }, None);
                    let held = State { status: Status::Held, attempts: 1, due: 0 };
                    self.record(id, 2, held, Some("[192.0.2.25]:smtp"));
                }
                _ => self.finish(id),
            }
            self.commit();
            self.stepper.tidy(0);
            if round % 16 == 15 && self.spool.statistics().relocated > 4 {
                return;
            }
        }
        panic!("nothing was moved in {ROUNDS_MAX} rounds");
    }

    /// A write that fails: its segment is retired, its message refused.
    fn fail_a_write(&mut self) {
        self.append(1, 300);
        self.disk.fail(Op::Write, 0);
        let refused = self.next(1, 300);
        let commit = self.give(&refused, refused.in_memory());
        self.commit();
        assert!(matches!(commit.poll_now(), Some(Err(_))), "the write failed");
        for _ in 0..ROUNDS_MAX {
            self.stepper.tidy(0);
            if self.disk.files().iter().any(|(path, _)| path.display().to_string().contains("bad-")) {
                return;
            }
            let id = self.append(1, 2_000);
            self.finish(id);
            self.commit();
        }
        panic!("the failed segment was not retired in {ROUNDS_MAX} rounds");
    }

    /// Things that stand in the last segment only.
    fn last_words(&mut self) {
        self.large();
        let ids = [self.append(3, 1_000), self.append(1, 0), self.append(2, 7_000), self.append(1, 500)];
        let [first, _, _, last] = ids;
        self.record(first, 1, State { status: Status::Waiting, attempts: 255, due: 1_767_300_000 }, Some("mx.example"));
        self.finish(last);
        self.commit();
        self.append(1, 700);
    }

    /// Writes one more batch and cuts the power when all of it but a sector is on the disk: its message does not count.
    fn cut_power(mut self) -> Sample {
        let lost = self.next(1, 3_000);
        let commit = self.give(&lost, lost.in_memory());
        // Once, and the clock stands: no later batch may attest this one.
        self.stepper.commit(0);
        assert_eq!(commit.poll_now(), Some(Ok(())), "a commit on a healthy disk");
        let disk = self.disk.crash(0);
        let (path, offset) = place(&disk, lost.envelope.id);
        let mut bytes = disk.contents(&path).expect("it was listed");
        bytes.get_mut(offset + 1024..offset + 1536).expect("inside of the body").fill(0);
        disk.set_contents(&path, &bytes).expect("the disk is healthy");
        let (_, _, recovery) = open(&disk.crash_image(0), &self.config);
        assert!(recovery.torn == 1 && recovery.damage.is_empty(), "a torn tail and no damage: {recovery:?}");
        Sample { disk, config: self.config, messages: self.messages, torn: lost }
    }
}

/// The segment in which a message lies, and where.
fn place(disk: &SimDisk, wanted: QueueId) -> (PathBuf, usize) {
    let (mut segment, mut found) = (PathBuf::new(), None);
    inspect(disk, Path::new(ROOT), true, &mut |fact| match fact {
        Fact::Segment { path, .. } => segment.clone_from(path),
        Fact::Frame { offset, id: Some(id), .. } if *id == wanted => found = Some((segment.clone(), *offset as usize)),
        _ => {}
    })
    .expect("a spool");
    found.expect("it was committed")
}

fn open(disk: &SimDisk, config: &Config) -> (Spool, Stepper, crate::Recovery) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Spool::open_stepped(config.clone(), disk).expect("a spool")
}

/// The types of frames in a spool, sorted; all but PAD, which is not read, and SEAL, which is behind the last batch.
///
/// # Errors
/// It cannot be opened.
pub fn kinds(disk: &dyn Disk, root: &Path) -> Result<Vec<String>, crate::OpenError> {
    let mut kinds = Vec::new();
    inspect(disk, root, true, &mut |fact| {
        if let Fact::Frame { kind, .. } = fact {
            kinds.push(kind.clone());
        }
    })?;
    kinds.sort();
    kinds.dedup();
    Ok(kinds)
}
