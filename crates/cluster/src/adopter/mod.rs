//! Adopts the mail of a stream whose owner is gone: watch, fence, wait out the owner's time, claim, take, record, trim.
//!
//! The fence makes the owner's appends fail. The owner may deliver for [`Settings::own_time`] after it sent its last
//! stored append, and this node saw the block of that append at the tail before it fenced; so it waits until that time
//! and a margin have passed since. Mail goes over in parts: the claim is written first, then the messages go into the
//! own log and own shadow streams, then ADOPTED is appended to the stream, and only then are they delivered. A crash
//! between any two steps leaves a state from which the same or another adopter goes on.
//!
//! An owner that returns before all is taken gets the rest back, by an ADOPTED that takes nothing.

mod content;

use crate::action::{Action, Purpose, Report, Token};
use crate::block::Block;
use crate::claim::{Claim, ClaimError};
use crate::coordination::{CoordinationReply, CoordinationRequest, KeyValue};
use crate::identity::{Lane, StreamId};
use crate::membership::Membership;
use crate::record::{Accepted, Adopted, PieceList, Record, StoredBody};
use crate::rendezvous::holders_of;
use crate::replica_log::{LogOperation, LogReply, LogRequest};
use crate::settings::Settings;
use crate::stream_writer::{StreamTail, StreamWriter, WriterEvent, WriterSettings};
use bytes::{Bytes, BytesMut};
use content::{Part, StreamContent};
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Messages of a part that may be on their way into the own log at a time.
const TAKING_MAX: usize = 256;
/// Silences after which the adoption of another node counts as stuck.
const STUCK_SILENCES: u32 = 4;
/// Heartbeats before an adopter looks again at a stream in which another one stopped within a part.
const OPEN_PART_HEARTBEATS: u32 = 150;

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Watching,
    /// The fence is wanted if the tail still has this sequence.
    Opening(u64),
    Waiting {
        until: Duration,
        fence: u64,
    },
    Scanning {
        next: u64,
        fence: u64,
    },
    /// The claims of other streams are asked for, one after the other.
    Firsts {
        fence: u64,
    },
    Claiming {
        fence: u64,
    },
    Taking {
        next: u64,
        fence: u64,
    },
    Marking {
        fence: u64,
    },
}

/// A large body that is read.
#[derive(Debug)]
struct Fetch {
    accepted: Accepted,
    list: PieceList,
    next: u64,
    pieces: u32,
    octets: BytesMut,
}

/// Adopts one stream.
#[derive(Debug)]
pub(crate) struct Adopter {
    settings: Settings,
    stream: StreamId,
    writer: StreamWriter,
    step: Step,
    /// The sequence at the tail, and since when this node has seen it.
    seen: Option<(u64, Duration)>,
    content: StreamContent,
    /// Claims of other streams, and whether their mail is taken from here.
    firsts: BTreeMap<StreamId, (Claim, bool)>,
    firsts_left: VecDeque<StreamId>,
    part: Part,
    waiting: BTreeSet<QueueId>,
    large: VecDeque<(Accepted, PieceList)>,
    fetch: Option<Fetch>,
    taken: usize,
    is_handing_back: bool,
    /// This node wrote a claim and has not recorded its part yet.
    has_open_part: bool,
    ask_at: Duration,
    attempt: u64,
    outbox: VecDeque<Action>,
    adopted: Vec<Accepted>,
    released: Vec<QueueId>,
}

impl Adopter {
    pub(crate) fn new(now: Duration, settings: &Settings, stream: StreamId) -> Self {
        let writer = StreamWriter::new(WriterSettings {
            cluster: settings.cluster,
            stream,
            lane: Lane::Messages,
            writer: settings.node,
            incarnation: settings.incarnation,
            append_timeout: settings.append_timeout,
            tail_interval: settings.tail_interval,
            heartbeat: None,
            window: 1,
        });
        let mut adopter = Self {
            settings: settings.clone(),
            stream,
            writer,
            step: Step::Watching,
            seen: None,
            content: StreamContent::default(),
            firsts: BTreeMap::new(),
            firsts_left: VecDeque::new(),
            part: Part::default(),
            waiting: BTreeSet::new(),
            large: VecDeque::new(),
            fetch: None,
            taken: 0,
            is_handing_back: false,
            has_open_part: false,
            ask_at: now,
            attempt: 0,
            outbox: VecDeque::new(),
            adopted: Vec::new(),
            released: Vec::new(),
        };
        adopter.writer.read_tail(now);
        adopter
    }

    /// True while an adoption is under way, or its results were not taken yet: the messages of a part that is recorded
    /// must become deliverable even if this node need not watch the stream any more.
    pub(crate) fn is_active(&self) -> bool {
        let has_results = !self.released.is_empty() || !self.adopted.is_empty() || !self.outbox.is_empty();
        self.step != Step::Watching || self.has_open_part || has_results
    }

    /// Messages to hand to the own log and the own streams.
    pub(crate) fn take_adopted(&mut self) -> Vec<Accepted> {
        std::mem::take(&mut self.adopted)
    }

    /// Messages whose part is recorded: they may be delivered.
    pub(crate) fn take_released(&mut self) -> Vec<QueueId> {
        std::mem::take(&mut self.released)
    }

    /// A message of the present part is safe in the own log.
    pub(crate) fn is_safe(&mut self, now: Duration, id: QueueId) {
        if self.waiting.remove(&id) && self.waiting.len() + 1 == TAKING_MAX {
            self.ask_at = now;
        }
    }

    pub(crate) fn wake_at(&self) -> Duration {
        let step = match self.step {
            Step::Watching | Step::Opening(_) | Step::Marking { .. } => None,
            Step::Waiting { until, .. } => Some(until),
            _ => Some(self.ask_at),
        };
        [step, self.writer.wake_at()].into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// Returns the next action. Call it until it returns `None`.
    pub(crate) fn poll(&mut self, now: Duration, members: &Membership) -> Option<Action> {
        if self.outbox.is_empty() {
            self.advance(now);
            loop {
                let mut events = Vec::new();
                let request = self.writer.poll(now, &mut events);
                let is_idle = events.is_empty() && request.is_none();
                if let Some((attempt, operation)) = request {
                    self.ask(Purpose::AdopterWrite(self.stream), attempt, Lane::Messages, operation);
                }
                for event in events {
                    self.writer_event(now, members, event);
                }
                if is_idle {
                    break;
                }
            }
        }
        self.outbox.pop_front()
    }

    fn ask(&mut self, purpose: Purpose, attempt: u64, lane: Lane, operation: LogOperation) {
        let token = Token { purpose, attempt };
        self.outbox.push_back(Action::Log { token, request: LogRequest { stream: self.stream, lane, operation } });
    }

    /// Lets the messages of a part go whose record has no answer.
    fn release_open_part(&mut self) {
        if std::mem::take(&mut self.has_open_part) {
            self.released.extend(std::mem::take(&mut self.part).messages.into_keys());
        }
    }

    fn watch(&mut self, now: Duration, wait: Duration) {
        self.step = Step::Watching;
        self.content = StreamContent::default();
        self.waiting.clear();
        self.large.clear();
        self.fetch = None;
        drop(self.writer.take_unsent());
        self.writer.read_tail(now + wait);
    }

    /// Decides whether the tail calls for an adoption by this node.
    fn is_due(&self, now: Duration, tail: &StreamTail, since: Duration, members: &Membership) -> bool {
        let (Some(block), StreamId { owner, holder, .. }) = (&tail.block, self.stream) else { return false };
        let writer = block.header.writer;
        let is_of_adopter = writer != owner || block.is_of_adoption();
        let is_over = |record: &Record| matches!(record, Record::Adopted(adopted) if adopted.is_last);
        if !members.is_fresh(now) || block.records.iter().any(is_over) {
            return false;
        }
        let is_alive = |node| members.entry(node).is_some();
        // The holder has the bytes on its own disk; when it is gone too, the owner itself or the next node in order.
        let me = self.settings.node;
        let deputy = || holders_of(owner, members.entries().map(|entry| entry.node)).first().copied();
        let is_candidate = holder == me
            || writer == me
            || self.has_open_part
            || owner == me
            || !is_alive(holder) && !is_alive(owner) && deputy() == Some(me);
        let is_silent = now >= since + self.settings.silence || self.settings.sabotage.no_wait;
        if !is_candidate {
            return false;
        }
        if is_of_adopter {
            // An adoption that stands still. The own one goes on at once, that of another when that node is gone, or
            // when it does not move.
            let is_stuck = now >= since + self.settings.silence * STUCK_SILENCES;
            return writer == me || self.has_open_part || is_silent && !is_alive(writer) || is_stuck;
        }
        if self.has_open_part || owner == me {
            return self.has_open_part;
        }
        if block.records.last() == Some(&Record::Release) {
            return members.entry(owner).is_none_or(|entry| entry.is_draining);
        }
        match members.entry(owner) {
            Some(entry) => entry.incarnation != block.header.incarnation,
            None => is_silent,
        }
    }

    /// True when the owner is back with the log that has this mail.
    fn is_owner_back(&self, members: &Membership) -> bool {
        if self.stream.owner == self.settings.node {
            return self.content.owner == Some(self.settings.incarnation);
        }
        let entry = members.entry(self.stream.owner);
        entry.is_some_and(|entry| Some(entry.incarnation) == self.content.owner && !entry.is_draining)
    }

    fn writer_event(&mut self, now: Duration, members: &Membership, event: WriterEvent) {
        match event {
            WriterEvent::TailRead(tail) => {
                let since = match self.seen {
                    Some((sequence, since)) if sequence == tail.sequence => since,
                    _ => now,
                };
                self.seen = Some((tail.sequence, since));
                let is_owners = tail
                    .block
                    .as_ref()
                    .is_some_and(|block| block.header.writer == self.stream.owner && !block.is_of_adoption());
                if is_owners {
                    // The owner writes again, so the adoption is over: the record of the open part was stored, and only
                    // its answer is missing.
                    self.release_open_part();
                }
                if self.step == Step::Opening(tail.sequence) {
                    self.writer.fence(&tail, tail.epoch().next(), true);
                    let is_planned = tail.block.as_ref().is_some_and(|b| b.records.last() == Some(&Record::Release));
                    if is_planned || self.settings.sabotage.no_wait {
                        self.seen = Some((tail.sequence, Duration::ZERO));
                    }
                } else if self.is_due(now, &tail, since, members) {
                    self.step = Step::Opening(tail.sequence);
                    self.writer.read_tail(now);
                } else {
                    self.step = Step::Watching;
                    self.writer.read_tail(now + self.settings.heartbeat);
                }
            }
            WriterEvent::Opened { sequence } => {
                let since = self.seen.map_or(now, |(_, since)| since);
                let is_unwaited = since.is_zero() && self.seen.is_some();
                let until = since + self.settings.own_time + self.settings.adoption_margin;
                let until = if is_unwaited { now } else { until.max(now) };
                self.seen = Some((sequence, now));
                self.content = StreamContent::default();
                (self.taken, self.is_handing_back) = (0, false);
                self.firsts.clear();
                self.step = Step::Waiting { until, fence: sequence };
                let (stream, wait) = (self.stream, until.saturating_sub(now));
                self.outbox.push_back(Action::Report(Report::AdoptionBegan { stream, wait }));
            }
            WriterEvent::Stored { records, .. } => {
                if records.iter().any(|record| matches!(record, Record::Adopted(_))) {
                    self.part_recorded(now);
                }
            }
            WriterEvent::Fenced { .. } => self.watch(now, self.settings.tail_interval),
            WriterEvent::Missing | WriterEvent::Damaged { .. } => {
                // The stream is lost, and its owner too knows that recipients may get mail twice.
                self.release_open_part();
                self.watch(now, self.settings.heartbeat * 5);
            }
            WriterEvent::Stalled { .. } => {}
        }
    }

    /// Takes the next step that needs no answer, or asks again for one that did not come.
    fn advance(&mut self, now: Duration) {
        if let Step::Waiting { until, fence } = self.step
            && now >= until
        {
            self.step = Step::Scanning { next: 1, fence };
            self.ask_at = now;
        }
        if let Step::Taking { fence, .. } = self.step {
            self.end_part(fence);
        }
        if now < self.ask_at {
            return;
        }
        let again = now + self.settings.append_timeout;
        match self.step {
            Step::Scanning { next, .. } => self.ask_scan(now, Lane::Messages, next),
            Step::Firsts { fence } => match self.firsts_left.front() {
                Some(first) => self.ask_claim(now, *first),
                None => {
                    self.step = Step::Claiming { fence };
                    self.ask_claim(now, self.stream);
                }
            },
            Step::Claiming { .. } => self.ask_claim(now, self.stream),
            Step::Taking { next, fence } if self.waiting.len() < TAKING_MAX => {
                if next <= self.part.upto.min(fence) && self.part.messages.values().any(|sequence| *sequence >= next) {
                    let first = self.part.messages.values().filter(|sequence| **sequence >= next).min();
                    self.ask_scan(now, Lane::Messages, first.copied().unwrap_or(next));
                } else if let Some(fetch) = &self.fetch {
                    self.ask_scan(now, Lane::Bodies, fetch.next);
                } else if let Some((accepted, list)) = self.large.pop_front() {
                    let next = list.sequences.0;
                    self.fetch = Some(Fetch { accepted, list, next, pieces: 0, octets: BytesMut::new() });
                    self.ask_scan(now, Lane::Bodies, next);
                } else {
                    self.ask_at = again;
                }
            }
            _ => self.ask_at = again,
        }
    }

    fn ask_scan(&mut self, now: Duration, lane: Lane, from: u64) {
        self.attempt += 1;
        self.ask_at = now + self.settings.append_timeout;
        let operation = LogOperation::Scan { from, octets_max: self.settings.scan_octets };
        self.ask(Purpose::AdopterScan(self.stream), self.attempt, lane, operation);
    }

    fn ask_claim(&mut self, now: Duration, of: StreamId) {
        self.attempt += 1;
        self.ask_at = now + self.settings.append_timeout;
        let token = Token { purpose: Purpose::AdopterClaim(self.stream), attempt: self.attempt };
        self.outbox.push_back(Action::Coordinate { token, request: CoordinationRequest::Get { key: of.claim_key() } });
    }

    fn put_claim(&mut self, now: Duration, of: StreamId, claim: Claim, expected: u64) {
        self.attempt += 1;
        self.ask_at = now + self.settings.append_timeout;
        let token = Token { purpose: Purpose::AdopterClaim(self.stream), attempt: self.attempt };
        let request = CoordinationRequest::Put { key: of.claim_key(), value: claim.write(), expected, ttl: None };
        self.outbox.push_back(Action::Coordinate { token, request });
    }

    /// Takes an answer of the log.
    pub(crate) fn log_answered(&mut self, now: Duration, members: &Membership, token: Token, reply: LogReply) {
        match token.purpose {
            Purpose::AdopterWrite(_) => {
                let mut events = Vec::new();
                self.writer.answered(now, token.attempt, reply, &mut events);
                for event in events {
                    self.writer_event(now, members, event);
                }
            }
            Purpose::AdopterScan(_) if token.attempt == self.attempt => match reply {
                LogReply::Scanned { blocks, is_end } => self.scanned(now, blocks, is_end),
                _ => self.ask_at = now + self.settings.tail_interval,
            },
            _ => {}
        }
    }

    fn scanned(&mut self, now: Duration, blocks: Vec<(u64, Bytes)>, is_end: bool) {
        self.ask_at = now;
        match self.step {
            Step::Scanning { next, fence } => {
                let mut after = next;
                for (sequence, octets) in blocks {
                    after = after.max(sequence + 1);
                    let (cluster, applies) = (self.settings.cluster, !self.settings.sabotage.no_done);
                    let read = self.content.read(cluster, self.stream, sequence, &octets, applies);
                    if let Err(error) = read {
                        self.pass_over(sequence, error.to_string());
                    }
                }
                if after > fence || is_end {
                    if self.content.finished_upto >= self.part.upto {
                        self.release_open_part();
                    }
                    self.firsts_left = self.content.first_streams().into_iter().collect();
                    self.step = Step::Firsts { fence };
                } else {
                    self.step = Step::Scanning { next: after, fence };
                }
            }
            Step::Taking { .. } if self.fetch.is_some() => self.pieces_read(blocks, is_end),
            Step::Taking { next, fence } => {
                let mut after = next;
                for (sequence, octets) in blocks {
                    after = after.max(sequence + 1);
                    if sequence <= self.part.upto {
                        self.take_block(sequence, &octets);
                    }
                }
                if is_end {
                    after = after.max(fence + 1);
                }
                self.step = Step::Taking { next: after, fence };
            }
            _ => {}
        }
    }

    fn pass_over(&mut self, sequence: u64, why: String) {
        let report = Report::BlockPassedOver { stream: self.stream, sequence, why };
        self.outbox.push_back(Action::Report(report));
    }

    /// Takes the messages of the present part that a block holds.
    fn take_block(&mut self, sequence: u64, octets: &Bytes) {
        let block = Block::read_of(self.settings.cluster, self.stream, Lane::Messages, octets);
        let block = match block {
            Ok(block) => block,
            Err(error) => return self.pass_over(sequence, error.to_string()),
        };
        for record in block.records {
            let Record::Accept(accepted) = record else { continue };
            if self.part.messages.get(&accepted.id) != Some(&sequence) {
                continue;
            }
            match accepted.body {
                StoredBody::Whole(_) => self.take_message(accepted),
                StoredBody::Pieces(list) => self.large.push_back((accepted, list)),
            }
        }
    }

    fn take_message(&mut self, mut accepted: Accepted) {
        let id = accepted.id;
        let Some(live) = self.content.get(id) else { return };
        accepted.finished = live.finished.iter().copied().collect();
        accepted.may_be_duplicate |= !self.content.is_released;
        accepted.hops = accepted.hops.saturating_add(1);
        if accepted.may_be_duplicate {
            self.outbox.push_back(Action::Report(Report::PossibleDuplicate { id }));
        }
        self.waiting.insert(id);
        self.adopted.push(accepted);
    }

    fn pieces_read(&mut self, blocks: Vec<(u64, Bytes)>, is_end: bool) {
        let Some(mut fetch) = self.fetch.take() else { return };
        for (sequence, octets) in blocks {
            fetch.next = fetch.next.max(sequence + 1);
            let Ok(block) = Block::read_of(self.settings.cluster, self.stream, Lane::Bodies, &octets) else { continue };
            for record in block.records {
                if let Record::Piece(piece) = record
                    && piece.body == fetch.list.body
                    && piece.number == fetch.pieces
                {
                    fetch.pieces += 1;
                    fetch.octets.extend_from_slice(&piece.octets);
                }
            }
        }
        if !is_end && fetch.next <= fetch.list.sequences.1 {
            self.fetch = Some(fetch);
            return;
        }
        let body = fetch.octets.freeze();
        if fetch.pieces == fetch.list.pieces && crc32c::crc32c(&body) == fetch.list.crc {
            self.take_message(Accepted { body: StoredBody::Whole(body), ..fetch.accepted });
        } else {
            let (id, sequence) = (fetch.accepted.id, fetch.list.sequences.0);
            self.part.messages.remove(&id);
            self.pass_over(sequence, format!("the body of {id} is incomplete"));
        }
    }

    /// Records the part once all its messages are safe.
    fn end_part(&mut self, fence: u64) {
        let Step::Taking { next, .. } = self.step else { return };
        let is_read = self.part.messages.values().all(|sequence| *sequence < next);
        if !is_read || !self.waiting.is_empty() || !self.adopted.is_empty() {
            return;
        }
        if self.fetch.is_some() || !self.large.is_empty() {
            return;
        }
        let hops = |id: &QueueId| self.content.get(*id).map_or(0, |live| live.hops);
        let adopted = Adopted {
            epoch: self.writer.epoch(),
            by: self.settings.node,
            upto: self.part.upto,
            is_last: self.part.is_last,
            taken: self.part.messages.keys().map(|id| (*id, hops(id))).collect(),
        };
        self.writer.push(Record::Adopted(adopted), 0);
        self.step = Step::Marking { fence };
    }

    fn part_recorded(&mut self, now: Duration) {
        let Step::Marking { fence } = self.step else { return };
        let part = std::mem::take(&mut self.part);
        self.has_open_part = false;
        self.taken += part.messages.len();
        self.released.extend(part.messages.into_keys());
        self.content.finished_upto = self.content.finished_upto.max(part.upto);
        if !part.is_last {
            self.step = Step::Claiming { fence };
            self.ask_at = now;
            return;
        }
        let (stream, messages, is_handed_back) = (self.stream, self.taken, self.is_handing_back);
        self.outbox.push_back(Action::Report(Report::AdoptionEnded { stream, messages, is_handed_back }));
        let upto = self.content.finished_upto.min(self.content.first_fence.saturating_sub(1));
        if upto > 0 {
            self.ask(Purpose::AdopterTrim(stream), 0, Lane::Messages, LogOperation::Trim { upto });
        }
        self.watch(now, self.settings.heartbeat);
    }

    /// Takes an answer about a claim.
    pub(crate) fn claim_answered(
        &mut self,
        now: Duration,
        members: &Membership,
        token: Token,
        reply: CoordinationReply,
    ) {
        if token.attempt != self.attempt {
            return;
        }
        match (&self.step, reply) {
            (Step::Firsts { .. }, CoordinationReply::Found(found)) => self.judge_first(now, members, found),
            (Step::Firsts { .. }, CoordinationReply::Written { .. }) => {
                if let Some(first) = self.firsts_left.pop_front()
                    && let Some((_, is_taken)) = self.firsts.get_mut(&first)
                {
                    *is_taken = true;
                }
                self.ask_at = now;
            }
            (Step::Claiming { fence }, CoordinationReply::Found(found)) => {
                let fence = *fence;
                self.choose_part(now, members, fence, found);
            }
            (Step::Claiming { fence }, CoordinationReply::Written { .. }) => {
                let fence = *fence;
                self.begin_part(now, fence);
            }
            (_, CoordinationReply::Conflict | CoordinationReply::Unknown) => {
                self.ask_at = now + self.settings.tail_interval;
            }
            _ => {}
        }
    }

    /// Decides whether mail whose first copy is in another stream is taken from here.
    fn judge_first(&mut self, now: Duration, members: &Membership, found: Option<KeyValue>) {
        let Some(first) = self.firsts_left.front().copied() else { return };
        let revision = found.as_ref().map_or(0, |kv| kv.revision);
        let Some(claim) = read_claim(found.as_ref()) else { return };
        let is_settled = claim.adopter.is_some() || claim.seconds_taken;
        if is_settled || members.entry(first.holder).is_some() || !members.is_fresh(now) {
            self.firsts.insert(first, (claim, claim.seconds_taken));
            self.firsts_left.pop_front();
            self.ask_at = now;
        } else {
            // Its holder is gone with the owner: from now on no adopter of that stream takes such mail.
            self.firsts.insert(first, (claim, false));
            self.put_claim(now, first, Claim { seconds_taken: true, ..claim }, revision);
        }
    }

    fn begin_part(&mut self, now: Duration, fence: u64) {
        self.has_open_part = true;
        self.step = Step::Taking { next: 1, fence };
        self.ask_at = now;
    }

    fn choose_part(&mut self, now: Duration, members: &Membership, fence: u64, found: Option<KeyValue>) {
        let revision = found.as_ref().map_or(0, |kv| kv.revision);
        let Some(claim) = read_claim(found.as_ref()) else { return };
        self.is_handing_back = self.is_owner_back(members);
        self.part = if self.is_handing_back {
            Part { upto: self.content.finished_upto, is_last: true, messages: BTreeMap::new() }
        } else {
            self.content.part(&claim, &self.firsts, fence, self.settings.part_messages_max)
        };
        // A part that this node began before a crash must be ended, even if the owner is back.
        let is_own_open = claim.adopter == Some(self.settings.node) && claim.adopted_upto > self.content.finished_upto;
        if self.is_handing_back && is_own_open {
            self.part = self.content.part(&claim, &self.firsts, claim.adopted_upto, usize::MAX);
            self.part.messages.retain(|_, sequence| *sequence <= claim.adopted_upto);
            self.part.upto = claim.adopted_upto;
        }
        let (me, epoch) = (self.settings.node, self.writer.epoch());
        let wanted = claim.adopted(me, epoch, self.content.finished_upto, self.part.upto);
        match wanted {
            _ if self.settings.sabotage.no_claim => {
                let claim = Claim { epoch, adopter: Some(me), adopted_upto: self.part.upto, ..claim };
                self.put_claim(now, self.stream, claim, revision);
            }
            Ok(wanted) if wanted == claim => self.begin_part(now, fence),
            Ok(wanted) => self.put_claim(now, self.stream, wanted, revision),
            Err(ClaimError::Superseded { .. }) => self.watch(now, self.settings.heartbeat),
            Err(ClaimError::PartOpen { by }) => {
                let why =
                    if by == self.stream.owner { "its owner adopts it" } else { "an adopter stopped within a part" };
                self.outbox.push_back(Action::Report(Report::Hostage { stream: self.stream, why }));
                self.watch(now, self.settings.heartbeat * OPEN_PART_HEARTBEATS);
            }
        }
    }
}

/// The claim in a key; the default for a key that does not exist, `None` for a value of another version.
fn read_claim(found: Option<&KeyValue>) -> Option<Claim> {
    match found {
        Some(kv) => Claim::read(&kv.value),
        None => Some(Claim::default()),
    }
}
