//! A spool on a simulated disk, driven step by step by a seed, with its model beside it.

use super::model::{Known, Message, Model, Recipient};
use bytes::Bytes;
use mail::QueueId;
use spool::disk::Disk;
use spool::disk::sim::{Op, SimDisk};
use spool::{
    Change, Chunk, Commit, Config, Error, Hold, HoldKind, NewBody, NewMessage, NewRecipient, OpenError, Spool, State,
    Status, Stepper, Store,
};
use std::sync::Arc;

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The operations of a simulation, and how often each is done.
#[derive(Clone, Debug)]
pub struct Plan {
    pub config: Config,
    pub steps: u64,
    /// Percent of steps that end in a crash.
    pub crash_percent: u64,
    /// Percent of steps before which a write or sync is made to fail.
    pub fault_percent: u64,
    /// Percent of acknowledged messages that are finished soon.
    pub finish_percent: u64,
    /// Percent of steps that store several messages all or none.
    pub group_percent: u64,
    /// Images taken at each step and recovered beside the running spool.
    pub images: u64,
}

/// A transaction that waits for its 250.
#[derive(Debug)]
struct InFlight {
    ids: Vec<u64>,
    commit: Commit,
}

/// Everything.
pub struct World {
    pub random: Random,
    pub disk: SimDisk,
    pub plan: Plan,
    pub model: Model,
    pub crashes: u64,
    pub recoveries: u64,
    spool: Option<(Spool, Stepper)>,
    in_flight: Vec<InFlight>,
    /// Calls of `record` whose handle has not resolved: number and handle.
    recorded: Vec<(u64, Commit)>,
    calls: u64,
    next_id: u64,
}

const DESTINATIONS: u64 = 7;

impl World {
    pub fn new(seed: u64, plan: Plan) -> Result<Self, String> {
        let disk = SimDisk::new(seed);
        let mut world = Self {
            random: Random(seed),
            disk,
            plan,
            model: Model::default(),
            crashes: 0,
            recoveries: 0,
            spool: None,
            in_flight: Vec::new(),
            recorded: Vec::new(),
            calls: 0,
            next_id: QueueId::MIN.to_u64() + 1,
        };
        world.open()?;
        Ok(world)
    }

    fn open(&mut self) -> Result<(), String> {
        // Some reads fail: then the spool opens none the worse, or not at all.
        if self.plan.fault_percent > 0 && self.random.chance(50) {
            let first = self.random.below(12);
            for n in 0..1 + self.random.below(4) {
                self.disk.fail(Op::Read, first + n);
            }
        }
        let open = |disk: &SimDisk| {
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            Spool::open_stepped(self.plan.config.clone(), disk)
        };
        let opened = match open(&self.disk) {
            Err(OpenError::Io { .. }) => {
                self.disk.clear_faults();
                open(&self.disk)
            }
            opened => opened,
        };
        self.disk.clear_faults();
        let (spool, stepper, recovery) = opened.map_err(|error| format!("open: {error}"))?;
        if let Some(damage) = recovery.damage.first() {
            return Err(format!("damage reported where none was done: {damage}"));
        }
        self.recoveries += 1;
        self.spool = Some((spool, stepper));
        Ok(())
    }

    pub fn run(&mut self) -> Result<(), String> {
        for step in 0..self.plan.steps {
            self.step().map_err(|error| format!("step {step}: {error}"))?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        if self.random.chance(self.plan.fault_percent) {
            let op = if self.random.chance(50) { Op::Write } else { Op::Sync };
            let n = self.random.below(3);
            self.disk.fail(op, n);
        }
        if self.plan.group_percent > 0 && self.random.chance(self.plan.group_percent) {
            self.append_group();
        }
        match self.random.below(100) {
            0..30 => self.append(),
            30..33 => self.append_large(),
            33..55 => self.change(),
            55..85 => self.commit(),
            85..90 => {
                if let Some((_, stepper)) = &mut self.spool {
                    stepper.tidy(0);
                }
            }
            90..95 => self.disk.advance(20_000),
            95..98 => self.check_running()?,
            _ => {}
        }
        self.settle();
        for _ in 0..self.plan.images {
            let choice = self.random.next();
            self.try_image(choice)?;
        }
        if self.random.chance(self.plan.crash_percent) {
            self.crash()?;
        }
        Ok(())
    }

    /// Lets everything become durable, then closes the spool; returns its content.
    pub fn close(&mut self) -> Model {
        for _ in 0..50 {
            self.disk.advance(100_000);
            self.commit();
            if let Some((_, stepper)) = &mut self.spool {
                stepper.tidy(0);
            }
            self.settle();
        }
        self.spool = None;
        let mut model = self.model.clone();
        model.messages.retain(|_, message| message.acknowledged && !message.finished());
        model
    }

    /// Records that all recipients of all mail are done, and writes that.
    pub fn finish_all(&mut self) {
        self.disk.clear_faults();
        self.rest(0);
        let spool = self.spool();
        for id in spool.messages() {
            let state = State { status: Status::Done, ..State::default() };
            let done = |recipient| Change { id, recipient, state, destination: None };
            let changes: Vec<Change> = spool.states(id).iter().map(|(entry, _)| done(entry.recipient)).collect();
            // A spool that takes no writes refuses it.
            drop(spool.record(&changes));
        }
        self.rest(0);
    }

    /// Lets time pass, the janitor do one round, and the committer write all that waits.
    pub fn rest(&mut self, us: u64) {
        self.disk.advance(us);
        if let Some((_, stepper)) = &mut self.spool {
            stepper.tidy(0);
        }
        for _ in 0..30 {
            self.disk.advance(60_000);
            self.commit();
        }
    }

    pub fn spool(&self) -> &Spool {
        &self.spool.as_ref().expect("open between crashes").0
    }

    fn body(&mut self, bytes: u64) -> Vec<u8> {
        let fill = self.random.next().to_le_bytes();
        (0..bytes).map(|at| fill[at as usize % 8] ^ (at >> 3) as u8).collect()
    }

    fn recipients(&mut self) -> Vec<Recipient> {
        let count = if self.random.chance(5) { 1 + self.random.below(40) } else { 1 + self.random.below(3) };
        (0..count)
            .map(|_| {
                let destination = format!("host{}.example", self.random.below(DESTINATIONS)).into_bytes();
                let data = format!("user{}@example", self.random.below(1000)).into_bytes();
                let durable = Known { state: State::default(), destination, hold: None };
                Recipient { data, durable, recorded: Vec::new() }
            })
            .collect()
    }

    /// Where the body of content begins: at its start, at its end, or between.
    fn split(&mut self, content: &[u8]) -> u64 {
        let most = content.len().min(self.plan.config.header_bytes_max()) as u64;
        match self.random.below(8) {
            0 => 0,
            1 => most,
            _ => self.random.below(most + 1),
        }
    }

    fn begin(&mut self, body: Vec<u8>, body_offset: u64) -> (QueueId, Message) {
        self.next_id += 1 + self.random.below(1 << 20);
        let id = QueueId::from_u64(self.next_id).expect("in range");
        let head = format!("head of {id}").into_bytes();
        let recipients = self.recipients();
        (id, Message { head, body, body_offset, recipients, acknowledged: false, group: id.to_u64() })
    }

    fn give(&mut self, id: QueueId, message: Message, body: NewBody) {
        let recipients: Vec<_> = message
            .recipients
            .iter()
            .map(|recipient| NewRecipient { data: &recipient.data, destination: &recipient.durable.destination })
            .collect();
        let new = NewMessage::new(id, &message.head, &recipients, body);
        match self.spool().append(new) {
            Ok(commit) => {
                self.in_flight.push(InFlight { ids: vec![id.to_u64()], commit });
                self.model.messages.insert(id.to_u64(), message);
            }
            Err(Error::Full | Error::Busy | Error::Poisoned | Error::Failed) => self.spool().abort(id),
            Err(error) => panic!("append refused: {error}"),
        }
    }

    fn append(&mut self) {
        let bytes = match self.random.below(10) {
            0 => 0,
            1..8 => self.random.below(600),
            8 => self.random.below(5000),
            _ => self.random.below(self.plan.config.inline_bytes_max() as u64),
        };
        let body = self.body(bytes);
        let body_offset = self.split(&body);
        let (id, message) = self.begin(body.clone(), body_offset);
        self.give(id, message, NewBody::whole(body, body_offset as u32));
    }

    fn append_large(&mut self) {
        let chunk_bytes = 1 + self.random.below(6000);
        let count = 1 + self.random.below(4);
        let bytes = chunk_bytes * (count - 1) + 1 + self.random.below(chunk_bytes);
        let header_bytes = if self.random.chance(20) { 0 } else { self.random.below(3000) };
        let body = self.body(header_bytes + bytes);
        let (id, message) = self.begin(body.clone(), header_bytes);
        let (header, body) = body.split_at(header_bytes as usize);
        for (number, piece) in body.chunks(chunk_bytes as usize).enumerate() {
            let mut chunk = Chunk::new(piece.len());
            chunk.push(piece);
            if self.spool().append_chunk(id, number as u32, chunk).is_err() {
                self.spool().abort(id);
                return;
            }
            if self.random.chance(40) {
                self.commit();
            }
        }
        if self.random.chance(15) {
            self.spool().abort(id);
            return;
        }
        let header = Bytes::copy_from_slice(header);
        self.give(id, message, NewBody::Chunks { header, count: count as u32, bytes });
    }

    /// Stores two to five messages all or none, some of them in chunks.
    fn append_group(&mut self) {
        let mut group: Vec<(QueueId, Message, NewBody)> = Vec::new();
        for _ in 0..2 + self.random.below(4) {
            let bytes_max = if self.random.chance(20) { 5000 } else { 500 };
            let bytes = self.random.below(bytes_max);
            let body = self.body(bytes);
            let body_offset = self.split(&body);
            let (id, mut message) = self.begin(body.clone(), body_offset);
            message.group = group.first().map_or(id, |(first, ..)| *first).to_u64();
            let is_whole = body.len() as u64 == body_offset || self.random.chance(70);
            let body = if is_whole { NewBody::whole(body, body_offset as u32) } else { self.chunks(body, body_offset) };
            group.push((id, message, body));
        }
        let first = group[0].0;
        for (id, message, body) in &group {
            let NewBody::Chunks { header, count, .. } = body else { continue };
            let body = message.body.split_at(header.len()).1;
            let each = body.len().div_ceil(*count as usize);
            for (piece, number) in body.chunks(each).zip(0..) {
                let mut chunk = Chunk::new(piece.len());
                chunk.push(piece);
                if self.spool().append_chunk_of(first, *id, number, chunk).is_err() {
                    group.iter().for_each(|(id, ..)| self.spool().abort(*id));
                    return;
                }
                if self.random.chance(30) {
                    self.commit();
                }
            }
        }
        let recipients: Vec<Vec<NewRecipient<'_>>> = group
            .iter()
            .map(|(_, message, _)| {
                message
                    .recipients
                    .iter()
                    .map(|of| NewRecipient { data: &of.data, destination: &of.durable.destination })
                    .collect()
            })
            .collect();
        let messages: Vec<NewMessage<'_>> = group
            .iter()
            .zip(&recipients)
            .map(|((id, message, body), recipients)| NewMessage::new(*id, &message.head, recipients, body.clone()))
            .collect();
        match self.spool().append_all(first, &messages) {
            Ok(commit) => {
                let ids = group.iter().map(|(id, ..)| id.to_u64()).collect();
                self.in_flight.push(InFlight { ids, commit });
                self.model.messages.extend(group.into_iter().map(|(id, message, _)| (id.to_u64(), message)));
            }
            // Frames that are too large together are refused as a group.
            Err(Error::Full | Error::Busy | Error::Poisoned | Error::Failed | Error::TooLarge { .. }) => {
                group.iter().for_each(|(id, ..)| self.spool().abort(*id));
            }
            Err(error) => panic!("append_all refused: {error}"),
        }
    }

    fn chunks(&mut self, content: Vec<u8>, body_offset: u64) -> NewBody {
        let bytes = content.len() as u64 - body_offset;
        let count = (1 + self.random.below(3)).min(bytes);
        // As many as pieces of equal length give.
        let count = bytes.div_ceil(bytes.div_ceil(count));
        let header = Bytes::from(content).slice(..body_offset as usize);
        NewBody::Chunks { header, count: count as u32, bytes }
    }

    /// A reason to hold recipients, or none.
    fn hold(&mut self) -> Option<Hold> {
        let kind = HoldKind::ALL[self.random.below(HoldKind::ALL.len() as u64) as usize];
        let text = "x".repeat(self.random.below(40) as usize);
        let hold = Hold::new(kind, &format!("rule {}", self.random.below(9)), &text);
        self.random.chance(60).then(|| hold.until(self.random.below(3) as u32))
    }

    /// Records what became of some recipients.
    fn change(&mut self) {
        let known: Vec<u64> = self
            .model
            .messages
            .iter()
            .filter(|(_, message)| message.acknowledged && !message.finished())
            .map(|(id, _)| *id)
            .collect();
        if known.is_empty() {
            return;
        }
        self.calls += 1;
        let mut changes = Vec::new();
        let hold = self.hold();
        for _ in 0..1 + self.random.below(4) {
            let id = known[self.random.below(known.len() as u64) as usize];
            let finish = self.random.chance(self.plan.finish_percent);
            let (roll, due) = (self.random.below(100), self.random.below(1 << 30) as u32);
            let moved =
                self.random.chance(20).then(|| format!("host{}.example", self.random.below(DESTINATIONS)).into_bytes());
            let message = self.model.messages.get_mut(&id).expect("known");
            let count = message.recipients.len() as u64;
            for (position, recipient) in message.recipients.iter_mut().enumerate() {
                let chosen = finish || position as u64 == roll % count;
                if !chosen || recipient.present().state.status == Status::Done {
                    continue;
                }
                let status = if finish || roll < 25 {
                    Status::Done
                } else if roll < 40 {
                    Status::Held
                } else if roll < 50 {
                    Status::Owed
                } else {
                    Status::Waiting
                };
                let attempts = recipient.present().state.attempts.saturating_add(1);
                let state = State { status, attempts, due };
                let destination = moved.clone().filter(|_| status != Status::Done);
                let to = destination.clone().unwrap_or_else(|| recipient.present().destination.clone());
                // A recipient that stays held keeps the reason where no new one is given.
                let hold = hold.clone().or_else(|| recipient.present().hold.clone());
                let hold = hold.filter(|_| status == Status::Held);
                recipient.recorded.push((self.calls, Known { state, destination: to, hold }));
                let id = QueueId::from_u64(id).expect("in range");
                changes.push(Change { id, recipient: position as u32, state, destination });
            }
        }
        let recorded = match &hold {
            Some(hold) => self.spool().record_hold(&changes, hold),
            None => self.spool().record(&changes),
        };
        match recorded {
            Ok(commit) => self.recorded.push((self.calls, commit)),
            // Nothing was changed by it.
            Err(Error::Poisoned) => self.model.unrecord(self.calls),
            Err(error) => panic!("record refused: {error}"),
        }
    }

    fn commit(&mut self) {
        if let Some((_, stepper)) = &mut self.spool {
            stepper.commit(0);
        }
    }

    /// Learns what the handles say.
    fn settle(&mut self) {
        for flight in std::mem::take(&mut self.in_flight) {
            match flight.commit.poll_now() {
                None => self.in_flight.push(flight),
                Some(Ok(())) => {
                    for id in flight.ids {
                        self.model.messages.get_mut(&id).expect("given").acknowledged = true;
                    }
                }
                // 451: the client gives it again under another id; this one may still turn up after a crash.
                Some(Err(_)) => {}
            }
        }
        for (call, commit) in std::mem::take(&mut self.recorded) {
            match commit.poll_now() {
                None => self.recorded.push((call, commit)),
                Some(Ok(())) => self.model.recorded_is_durable(call),
                Some(Err(_)) => {}
            }
        }
    }

    fn check_running(&self) -> Result<(), String> {
        self.model.check_running(self.spool())
    }

    /// Checks the image that a power cut at this moment would leave, beside the running spool.
    fn try_image(&mut self, choice: u64) -> Result<(), String> {
        let image = self.disk.crash_image(choice);
        image.clear_faults();
        let disk: Arc<dyn Disk> = Arc::new(image);
        let opened = Spool::open_stepped(self.plan.config.clone(), disk);
        let (spool, _, recovery) = opened.map_err(|error| format!("image {choice}: open: {error}"))?;
        if let Some(damage) = recovery.damage.first() {
            drop(spool);
            let image = describe(
                &self.disk.crash_image(choice),
                &damage.id.map_or(String::new(), |id| format!("{:x}", id.to_u64())),
            );
            return Err(format!("image {choice}: damage reported where none was done: {damage}\n{image}"));
        }
        self.recoveries += 1;
        let checked = self.model.clone().check_recovered(&spool);
        drop(spool);
        checked
            .map_err(|error| format!("image {choice}: {error}\n{}", describe(&self.disk.crash_image(choice), &error)))
    }

    fn crash(&mut self) -> Result<(), String> {
        self.crashes += 1;
        let choice = self.random.next();
        match self.random.below(4) {
            // In the middle of a write or sync.
            0 | 1 => {
                let after = self.random.below(3);
                self.disk.cut_power_after(after);
                for _ in 0..6 {
                    self.append();
                    self.change();
                    self.commit();
                    self.settle();
                }
                self.disk = self.disk.crash(choice);
            }
            2 => self.disk = self.disk.crash(choice),
            _ => self.disk = self.disk.kill(),
        }
        self.disk.clear_faults();
        self.spool = None;
        self.in_flight.clear();
        self.recorded.clear();
        self.open()?;
        let mut model = std::mem::take(&mut self.model);
        model.check_recovered(self.spool())?;
        self.model = model;
        Ok(())
    }
}

/// The frames of an image, for the reader of a failure.
fn describe(image: &SimDisk, error: &str) -> String {
    image.clear_faults();
    let mut text = String::new();
    let wanted =
        error.split([':', ' ']).next().and_then(|id| u64::from_str_radix(id, 16).ok()).and_then(QueueId::from_u64);
    let told = spool::inspect::inspect(image, std::path::Path::new("/spool"), true, &mut |fact| {
        let about = match fact {
            spool::inspect::Fact::Frame { id, kind, .. } => {
                *id == wanted || matches!(kind.as_str(), "DONE" | "STATE" | "LIVEMAP")
            }
            _ => true,
        };
        if about {
            text.push_str(&format!("{fact}\n"));
        }
    });
    format!("{text}{told:?}")
}
