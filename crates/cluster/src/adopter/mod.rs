//! Adopts the mail of a stream whose owner is gone: watch, fence, wait out the owner's time, claim, take, record, trim.
//!
//! The fence makes the owner's appends fail. The owner may deliver for [`Settings::own_time`] after it sent its last
//! stored append, and this node saw the block of that append at the tail before it fenced; so it waits until that time
//! and a margin have passed since. Mail goes over in parts: the claim is written first, then the messages go into the
//! own log and own shadow streams, then ADOPTED is appended to the stream, and only then are they delivered. A crash
//! between any two steps leaves a state from which the same or another adopter goes on.
//!
//! An owner that returns before all is taken gets the rest back, by an ADOPTED that takes nothing.
//!
//! | File | What it holds |
//! |---|---|
//! | `watch` | the tail of the stream, and whether it calls for an adoption |
//! | `content` | the live mail of a fenced stream |
//! | `claims` | the claim of the stream and of streams with first copies; the next part |
//! | `open_parts` | parts that an earlier start of this node did not end |
//! | `take` | the messages of a part: read, stored, recorded |
//! | `by_hand` | orders of operators, and the state of the stream for them |

mod by_hand;
mod claims;
mod content;
mod open_parts;
mod take;
mod watch;

use crate::action::{Action, Purpose, Token};
use crate::claim::Claim;
use crate::coordination::CoordinationRequest;
use crate::identity::{Epoch, Incarnation, Lane, StreamId};
use crate::membership::Membership;
use crate::record::{Accepted, PieceList};
use crate::replica_log::{LogOperation, LogReply, LogRequest};
use crate::settings::Settings;
use crate::status::{AdoptionStatus, HostageReason};
use crate::stream_writer::{StreamWriter, WriterSettings};
use by_hand::TailView;
use bytes::BytesMut;
use content::{Part, StreamContent};
use mail::QueueId;
pub(crate) use open_parts::OpenParts;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Messages of a part that may be on their way into the own log at a time.
const TAKING_MAX: usize = 256;

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Watching,
    /// The adoption has ended, perhaps by handing mail back: what is left is looked for from this sequence on.
    Looking(u64),
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
    /// The claims that decide about first copies are asked for, one after the other, until all of them have.
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

/// First copies of messages in one stream; their second copies are in another one.
#[derive(Clone, Copy, Debug)]
struct FirstCopies {
    stream: StreamId,
    /// The life of the owner that wrote them.
    incarnation: Incarnation,
    /// Their highest epoch.
    epoch: Epoch,
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
    /// The claims that decide about first copies, as they were last read.
    firsts: BTreeMap<StreamId, Claim>,
    /// First copies whose claims are asked for until they have decided about them. Those in the own stream come first,
    /// since other adopters wait for them; then those in other streams, whose second copies are here.
    to_decide: VecDeque<FirstCopies>,
    /// Since when they are asked for.
    firsts_since: Duration,
    part: Part,
    waiting: BTreeSet<QueueId>,
    /// Messages of the present part that went to the own log, safe there or not yet.
    given: BTreeSet<QueueId>,
    large: VecDeque<(Accepted, PieceList)>,
    fetch: Option<Fetch>,
    taken: usize,
    is_handing_back: bool,
    /// The life of the owner that the rest of the mail was handed back to, until it opens the stream.
    handed_back: Option<Incarnation>,
    /// The sequence of the end of an adoption behind which `handed_back` is known.
    known_end: u64,
    /// This node wrote a claim and has not recorded its part yet.
    has_open_part: bool,
    /// The open part may be one that an earlier start of this node began. Then `has_open_part` holds too.
    is_resumed: bool,
    /// No other node can take over what an earlier disk of this node copied, except what `Owner` knows of.
    knows_former_copies: bool,
    /// A claim of the next part was sent, and its answer is not known.
    is_claim_sent: bool,
    /// When the tail was last read, or when this node began to watch.
    watched_at: Duration,
    /// Live messages by the last heartbeat that this node has seen.
    live: Option<u64>,
    /// The highest sequence that this node has seen at the tail.
    highest: u64,
    /// The tail says that an adoption has ended, or there is no block at all.
    is_over: bool,
    /// The engine lost blocks that it had: their mail waits for the owner.
    lacks_blocks: bool,
    /// The reason why the last attempt stopped.
    stopped: Option<HostageReason>,
    /// An operator has this node adopt the stream while its owner is absent.
    is_ordered: bool,
    /// When the adoption under way began.
    began_at: Duration,
    /// The tail as it was last read.
    tail: Option<TailView>,
    /// The claim as it was last read for an operator.
    claim: Option<Claim>,
    wants_claim: bool,
    is_looked_at: bool,
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
            reads: settings.block_versions,
            version: settings.block_version,
            // The blocks of an adopter are small and rare.
            compressed_octets_min: usize::MAX,
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
            to_decide: VecDeque::new(),
            firsts_since: now,
            part: Part::default(),
            waiting: BTreeSet::new(),
            given: BTreeSet::new(),
            large: VecDeque::new(),
            fetch: None,
            taken: 0,
            is_handing_back: false,
            handed_back: None,
            known_end: 0,
            has_open_part: false,
            is_resumed: false,
            knows_former_copies: false,
            is_claim_sent: false,
            watched_at: now,
            live: None,
            highest: 0,
            is_over: false,
            lacks_blocks: false,
            stopped: None,
            is_ordered: false,
            began_at: now,
            tail: None,
            claim: None,
            wants_claim: false,
            is_looked_at: false,
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
        !matches!(self.step, Step::Watching | Step::Looking(_)) || self.has_open_part || has_results
    }

    /// Goes on with a part that an earlier start of this node may have left open.
    pub(crate) fn resume_part(&mut self) {
        (self.has_open_part, self.is_resumed) = (true, true);
    }

    /// True until it is known that no earlier start of this node left a part open, or that part is over.
    pub(crate) const fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Sets whether the ends of all streams are known that an earlier disk of this node wrote.
    pub(crate) const fn set_former_copies(&mut self, are_known: bool) {
        self.knows_former_copies = are_known;
    }

    /// Sets the version of the blocks to come.
    pub(crate) const fn set_version(&mut self, version: u16) {
        self.settings.block_version = version;
        self.writer.set_version(version);
    }

    /// The adoption under way, if there is one.
    pub(crate) fn status(&self) -> Option<AdoptionStatus> {
        let step = match self.step {
            Step::Watching | Step::Looking(_) | Step::Opening(_) => return None,
            Step::Waiting { .. } => "wait",
            Step::Scanning { .. } => "scan",
            Step::Firsts { .. } | Step::Claiming { .. } => "claim",
            Step::Taking { .. } => "take",
            Step::Marking { .. } => "record",
        };
        Some(AdoptionStatus { stream: self.stream, step, taken: self.taken, in_part: self.waiting.len() })
    }

    /// Live messages by the last heartbeat that this node has seen, without those that it took.
    pub(crate) fn live(&self) -> Option<u64> {
        self.live.map(|live| live.saturating_sub(self.taken as u64))
    }

    /// The live messages of the stream by the last heartbeat, `None` if this node has seen none; 0 behind an adoption,
    /// `None` if that handed mail back which nothing has followed.
    pub(crate) fn copies_held(&self) -> Option<u64> {
        let has_rest = self.handed_back.is_some() && self.known_end >= self.highest;
        if self.is_over { (!has_rest).then_some(0) } else { self.live() }
    }

    /// True when the tail of the stream has not moved for long.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        self.seen.is_some_and(|(_, since)| now >= since + self.settings.silence)
    }

    /// The reason why the mail of an absent owner waits, if it does not wait for this node's own steps.
    pub(crate) fn hostage_reason(&self, now: Duration) -> Option<HostageReason> {
        let is_unread = now >= self.watched_at + self.settings.silence;
        // An owner fences a stream when it makes it: one without a block is lost, unless the owner died in between.
        let is_empty = self.is_silent(now) && self.tail.as_ref().is_some_and(TailView::is_empty);
        let reason = self.stopped.or_else(|| is_unread.then_some(HostageReason::HolderOutOfReach));
        let reason = reason.or_else(|| is_empty.then_some(HostageReason::Damaged));
        reason.filter(|_| self.step == Step::Watching)
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
            Step::Watching if self.wants_claim => Some(self.ask_at),
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

    pub(super) fn ask(&mut self, purpose: Purpose, attempt: u64, lane: Lane, operation: LogOperation) {
        let token = Token { purpose, attempt };
        self.outbox.push_back(Action::Log { token, request: LogRequest { stream: self.stream, lane, operation } });
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
            Step::Watching if self.wants_claim => self.ask_claim(now, self.stream),
            // No answer.
            Step::Looking(_) => self.watch(now, self.settings.heartbeat),
            Step::Scanning { next, .. } => self.ask_scan(now, Lane::Messages, next),
            Step::Firsts { fence } => match self.to_decide.front() {
                Some(first) => self.ask_claim(now, first.stream),
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

    pub(super) fn ask_scan(&mut self, now: Duration, lane: Lane, from: u64) {
        self.attempt += 1;
        self.ask_at = now + self.settings.append_timeout;
        let operation = LogOperation::Scan { from, octets_max: self.settings.scan_octets };
        self.ask(Purpose::AdopterScan(self.stream), self.attempt, lane, operation);
    }

    pub(super) fn ask_claim(&mut self, now: Duration, of: StreamId) {
        self.attempt += 1;
        self.ask_at = now + self.settings.append_timeout;
        let token = Token { purpose: Purpose::AdopterClaim(self.stream), attempt: self.attempt };
        self.outbox.push_back(Action::Coordinate { token, request: CoordinationRequest::Get { key: of.claim_key() } });
    }

    pub(super) fn put_claim(&mut self, now: Duration, of: StreamId, claim: &Claim, expected: u64) {
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
                // Bodies that are lost are missed when they end; the records behind them may be there.
                LogReply::NoStream if self.fetch.is_some() => self.scanned(now, Vec::new(), true),
                LogReply::NoStream => self.lose_stream(now),
                _ => self.ask_at = now + self.settings.tail_interval,
            },
            _ => {}
        }
    }
}
