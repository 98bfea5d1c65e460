//! One shadow stream of this node as the owner sees it: its writers, its phase, the index of its blocks, completions
//! that wait.

use super::bodies::BodyIndex;
use super::record_index::RecordIndex;
use crate::block::Block;
use crate::claim::Claim;
use crate::identity::{Epoch, Incarnation, Lane, NodeId, StreamId};
use crate::record::{Accepted, Completion, PieceList, Record, StoredBody};
use crate::settings::Settings;
use crate::status::{StreamState, StreamStatus};
use crate::stream_writer::{StreamTail, StreamWriter, WriterSettings};
use bytes::Bytes;
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Octets of a block from which the pace of a holder is learned.
const PACE_OCTETS_MIN: usize = 128 << 10;
/// The state of a stream of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its tail was not read since the start: mail of an earlier start may be in it.
    Unread,
    /// The own fence is stored; blocks of earlier starts are read, up to it.
    Scanning {
        /// The next sequence to read.
        next: u64,
        /// The sequence of the fence.
        fence: u64,
    },
    /// Mail may be written and delivered.
    Open,
    /// Another node fenced it; its records of adoption are read.
    Foreign(Foreign),
    /// The adoption is over; the local log drops the messages that were taken.
    Forgetting,
    /// Its mail was taken back. It is opened again when it can be reached.
    Abandoned,
    /// This node leaves the cluster: RELEASE is stored, and the tail is read until another node has adopted the mail.
    Released,
    /// This node leaves the cluster, and other nodes have its mail.
    HandedOver,
}

impl Phase {
    /// True when no message of an earlier start can turn up in the stream.
    pub(super) const fn is_resolved(&self) -> bool {
        matches!(self, Self::Open | Self::Abandoned | Self::Released | Self::HandedOver)
    }
}

/// The blocks that were read of a stream that another node fenced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Foreign {
    /// The next sequence to read.
    pub(super) next: u64,
    /// The messages taken by adopters.
    pub(super) taken: Vec<(QueueId, u16)>,
    /// The last record read says that the adoption is over.
    pub(super) is_over: bool,
    /// A block behind the fence is gone or cannot be read: it may have held a list of messages.
    pub(super) is_damaged: bool,
    is_behind_fence: bool,
    /// The last scan reached the end.
    is_at_end: bool,
    /// The last scan found nothing new: the tail is asked for next.
    pub(super) looks_at_tail: bool,
    /// The sequence of the last block, which the engine does not give or which cannot be read, and since when.
    lost_end: Option<(u64, Duration)>,
    /// Blocks of the present life of the owner's log are among them.
    pub(super) has_own: bool,
}

impl Foreign {
    pub(super) fn new() -> Self {
        Self { next: 1, ..Self::default() }
    }

    /// The sequence from which the stream is read on: that of the last block, once it was read. It stays until another
    /// one follows, so a stream without it has lost its end.
    pub(super) fn scan_from(&self) -> u64 {
        if self.is_at_end { self.next.saturating_sub(1).max(1) } else { self.next }
    }

    /// Takes the end of a scan; true when the stream has lost its blocks.
    pub(super) const fn scan_ended(&mut self, is_end: bool, is_empty: bool) -> bool {
        let had_blocks = self.next == 1 || self.is_at_end;
        self.is_at_end = is_end;
        is_end && is_empty && had_blocks
    }

    /// Takes the last block of the stream; returns since when it cannot be read. A scan does not show that the engine
    /// has lost the last one.
    pub(super) fn tail_read(&mut self, now: Duration, sequence: u64, is_readable: bool) -> Option<Duration> {
        let before = self.lost_end.take_if(|(at, _)| *at == sequence).map(|(_, since)| since);
        self.lost_end = (!is_readable && sequence > 0).then_some((sequence, before.unwrap_or(now)));
        self.lost_end.map(|(_, since)| since)
    }

    /// Takes the next block, or one that was read before; `None` for one that cannot be read.
    pub(super) fn read(&mut self, owner: (NodeId, Incarnation), sequence: u64, block: Option<&Block>) {
        if sequence < self.next {
            return;
        }
        let is_gap = sequence > self.next;
        self.next = self.next.max(sequence + 1);
        // Blocks before the fence are trimmed at any time, and none behind it.
        self.is_damaged |= self.is_behind_fence && (is_gap || block.is_none());
        let Some(block) = block else { return };
        if block.header.writer == owner.0 && !block.is_of_adoption() {
            (self.is_damaged, self.is_behind_fence) = (false, false);
            self.has_own |= block.header.incarnation == owner.1;
        }
        for record in &block.records {
            match record {
                Record::Adopted(adopted) => {
                    self.is_damaged |= !self.is_behind_fence;
                    self.taken.extend_from_slice(&adopted.taken);
                    self.is_over = adopted.is_last;
                }
                Record::Fence(fence) => {
                    self.is_over = false;
                    self.is_behind_fence |= fence.is_adoption;
                }
                _ => {}
            }
        }
    }
}

/// The place of the reader that looks at stored copies again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scrub {
    pub(super) lane: Lane,
    pub(super) next: u64,
    /// The last sequence of the lane when the question left.
    pub(super) last: u64,
    pub(super) at: Duration,
    pub(super) attempt: u64,
}

impl Scrub {
    pub(super) const fn new(at: Duration) -> Self {
        Self { lane: Lane::Messages, next: 1, last: 0, at, attempt: 0 }
    }

    /// Goes on with the other lane.
    pub(super) const fn turn(&mut self) {
        self.lane = match self.lane {
            Lane::Messages => Lane::Bodies,
            Lane::Bodies => Lane::Messages,
        };
        self.next = 1;
    }
}

/// A large body on its way to the lane of bodies.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub(super) body: u64,
    pub(super) pieces: u32,
    pub(super) stored: u32,
    pub(super) octets: u64,
    pub(super) crc: u32,
    pub(super) sequences: Option<(u64, u64)>,
    /// The record that waits for the pieces; `None` while the body arrives.
    pub(super) accepted: Option<Accepted>,
}

/// A stream of this node.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) stream: StreamId,
    pub(super) phase: Phase,
    pub(super) messages: StreamWriter,
    pub(super) bodies: StreamWriter,
    /// The tail behind which the next fence goes, while the phase is `Forgetting`.
    pub(super) foreign_tail: Option<StreamTail>,
    /// Octets before compression that the holder stores in a second, of messages and of bodies; `None` until it stored
    /// a large block.
    pace: (Option<u64>, Option<u64>),
    pub(super) index: RecordIndex,
    pub(super) body_index: BodyIndex,
    pub(super) uploads: BTreeMap<QueueId, Upload>,
    pub(super) bodies_begun: u64,
    pub(super) done: Vec<Completion>,
    pub(super) done_since: Option<Duration>,
    /// Completions that are not stored: how many of each time.
    pub(super) unstored: VecDeque<(Duration, usize)>,
    pub(super) unstored_count: usize,
    /// Octets of live messages.
    pub(super) live_octets: usize,
    pub(super) live: u64,
    /// When a block was last stored, or when the slot began.
    pub(super) stored_at: Duration,
    /// When nothing was last on its way to the holder.
    pub(super) agreed_at: Duration,
    pub(super) is_stalled: bool,
    pub(super) stalled_until: Duration,
    pub(super) scan_asked: Option<Duration>,
    pub(super) scan_at: Duration,
    pub(super) scan_attempt: u64,
    pub(super) scrub: Scrub,
    /// Ends of what the engine has removed, of both lanes.
    pub(super) trimmed: (u64, u64),
    pub(super) trim_at: Duration,

    pub(super) claim_attempt: u64,
    pub(super) claim_goal: Option<ClaimGoal>,
    pub(super) claim_at: Duration,
    /// The claim as it was last read or written since the stream was opened.
    pub(super) claim: Claim,
    /// The claim that was sent last.
    pub(super) claim_put: Claim,
    /// The time from which the claim may be written to take mail back; `None` before the store has answered.
    pub(super) take_back_at: Option<Duration>,
    /// Its holder has left the cluster and has no copy of it: nothing is written or asked until it joins again.
    pub(super) is_dormant: bool,
    pub(super) is_hostage_reported: bool,
    /// The engine said that the stream does not exist although it had blocks.
    pub(super) had_blocks: bool,
    /// The engine listed it when this node started: it had blocks, at least the own fence of an earlier start.
    pub(super) was_listed: bool,
    /// All that earlier disks of this node wrote to it is adopted, or was given up, and the lists of that are read.
    pub(super) is_read: bool,
    /// When it is opened again although its records of adoption are still needed.
    pub(super) reopen_at: Option<Duration>,
    /// The last claim was written over an adopter's, since the stream with its records is lost.
    pub(super) is_forced: bool,
    /// A lane lost blocks: the next generation takes the place of the stream as soon as it may.
    pub(super) is_damaged: bool,
    /// Since when the claim names an adopter whose fence was not seen, while this node wants to replace the stream.
    pub(super) superseded_at: Option<Duration>,
    /// The last piece of a body that a record of an earlier start refers to.
    pub(super) earlier_bodies_upto: u64,
    /// The stream was read, and the claim does not say yet that it is the owner's again.
    pub(super) awaits_reopen: bool,
    /// A compaction moves the messages up to here.
    pub(super) compact_upto: u64,
    /// Messages that it has read and not yet stored again.
    pub(super) compacting: BTreeSet<QueueId>,
    /// The epoch of the own fence that was stored last since the start; 0 for none.
    pub(super) held: Epoch,
    /// Another node fenced it, and it has no block of the present life of the local log.
    pub(super) is_of_other_life: bool,
    /// Messages of adopted parts: live set found by a scan.
    pub(super) found: BTreeMap<QueueId, Found>,
}

/// The change of the claim that a slot wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimGoal {
    /// All mail of earlier epochs is adopted by first copies in this stream, so that they may be written again.
    Decide,
    TakeBack,
    /// As `TakeBack`, and the next generation takes the place of the stream.
    Replace,
    Reopen,
}

/// A message that a scan of the own stream found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) sequence: u64,
    pub(super) epoch: Epoch,
    /// Without envelope and body: a stream may hold more than memory does.
    pub(super) accepted: Accepted,
    /// Octets of the record.
    pub(super) octets: usize,
    pub(super) completions: Vec<Completion>,
}

impl Found {
    pub(super) fn new(sequence: u64, epoch: Epoch, accepted: Accepted) -> Self {
        let octets = Record::Accept(accepted.clone()).octets();
        let mut accepted = accepted;
        accepted.envelope = Bytes::new();
        if let StoredBody::Whole(body) = &mut accepted.body {
            *body = Bytes::new();
        }
        Self { sequence, epoch, accepted, octets, completions: Vec::new() }
    }
}

impl Slot {
    pub(super) fn new(settings: &Settings, stream: StreamId, now: Duration) -> Self {
        let writer = |lane, heartbeat| {
            StreamWriter::new(WriterSettings {
                cluster: settings.cluster,
                stream,
                lane,
                reads: settings.block_versions,
                version: settings.block_version,
                compressed_octets_min: if lane == Lane::Messages { settings.compressed_octets_min } else { usize::MAX },
                writer: settings.node,
                incarnation: settings.incarnation,
                append_timeout: settings.append_timeout,
                tail_interval: settings.tail_interval,
                heartbeat,
                window: 1 + settings.sabotage.window_extra,
            })
        };
        let mut slot = Self {
            stream,
            phase: Phase::Unread,
            messages: writer(Lane::Messages, Some(settings.heartbeat)),
            bodies: writer(Lane::Bodies, None),
            foreign_tail: None,
            index: RecordIndex::default(),
            body_index: BodyIndex::default(),
            uploads: BTreeMap::new(),
            bodies_begun: 0,
            done: Vec::new(),
            done_since: None,
            unstored: VecDeque::new(),
            unstored_count: 0,
            live_octets: 0,
            live: 0,
            stored_at: now,
            agreed_at: now,
            pace: (None, None),
            is_stalled: false,
            stalled_until: now,
            scan_asked: None,
            scan_at: now,
            scan_attempt: 0,
            scrub: Scrub::new(now),
            trimmed: (0, 0),
            trim_at: now,
            claim_attempt: 0,
            claim_goal: None,
            claim_at: now,
            claim: Claim::default(),
            claim_put: Claim::default(),
            take_back_at: None,
            is_dormant: false,
            is_hostage_reported: false,
            had_blocks: false,
            was_listed: false,
            is_read: false,
            reopen_at: None,
            is_forced: false,
            is_damaged: false,
            superseded_at: None,
            earlier_bodies_upto: 0,
            awaits_reopen: false,
            compact_upto: 0,
            compacting: BTreeSet::new(),
            held: Epoch(0),
            is_of_other_life: false,
            found: BTreeMap::new(),
        };
        slot.messages.read_tail(now);
        slot.bodies.read_tail(now);
        slot
    }

    /// True when no message of an earlier start can turn up in it.
    pub(super) const fn is_resolved(&self) -> bool {
        self.is_dormant || self.phase.is_resolved()
    }

    /// True while another node may adopt, or have adopted, mail in it that an earlier disk of this node wrote.
    pub(super) fn may_have_former_mail(&self) -> bool {
        let is_of_others = matches!(self.phase, Phase::Foreign(_) | Phase::Scanning { .. });
        !self.is_read && !self.is_dormant && (self.was_listed || is_of_others)
    }

    /// True while its mail may have to be taken back because the stream is out of reach.
    pub(super) fn is_away(&self) -> bool {
        match self.phase {
            _ if self.is_dormant => false,
            Phase::Open => !self.messages.is_flowing(),
            Phase::Unread | Phase::Scanning { .. } | Phase::Foreign(_) => true,
            Phase::Forgetting | Phase::Abandoned | Phase::Released | Phase::HandedOver => false,
        }
    }

    /// True while no other node can have taken over the mail of this stream.
    pub(super) fn is_owned(&self, now: Duration, settings: &Settings) -> bool {
        self.phase == Phase::Open && self.messages.proven_at().is_some_and(|at| now < at + settings.own_time)
    }

    /// True while few completions would be repeated if the stream were adopted now.
    pub(super) fn is_current(&self, now: Duration, settings: &Settings) -> bool {
        let oldest = self.unstored.front().map(|(at, _)| *at);
        self.unstored_count < settings.done_unstored_max && oldest.is_none_or(|at| now < at + settings.done_lag_max)
    }

    /// True when new mail may be written to it.
    pub(super) fn takes_mail(&self, now: Duration, settings: &Settings) -> bool {
        self.takes_copies(now, settings) && !self.messages.is_given_up()
    }

    /// True when mail without a copy may be written to it. That takes RELEASE back, which is sent again behind it.
    pub(super) fn takes_copies(&self, now: Duration, settings: &Settings) -> bool {
        self.phase == Phase::Open
            && self.messages.is_flowing()
            && now >= self.stalled_until
            && self.messages.waiting_octets() < self.waiting_max(settings, Lane::Messages)
    }

    /// True when the body of a large message may begin. Small mail does not wait for pieces: its lane has blocks of its
    /// own in flight.
    pub(super) fn takes_large(&self, now: Duration, settings: &Settings) -> bool {
        let has_room = self.waiting_octets() < self.waiting_max(settings, Lane::Bodies);
        self.takes_mail(now, settings) && self.takes_pieces() && has_room
    }

    /// True when pieces of bodies that are in the local log may be written to it.
    pub(super) const fn takes_pieces(&self) -> bool {
        self.bodies.is_flowing() && !self.is_damaged
    }

    /// Octets that wait in both lanes.
    const fn waiting_octets(&self) -> usize {
        self.messages.waiting_octets() + self.bodies.waiting_octets()
    }

    /// True when new mail should rather go to another holder, and copies that nobody waits for should wait.
    pub(super) const fn is_busy(&self, settings: &Settings) -> bool {
        self.waiting_octets() >= settings.waiting_octets_min
    }

    /// Octets that may wait: a client waits for no longer than for a block without an answer.
    fn waiting_max(&self, settings: &Settings, lane: Lane) -> usize {
        let pace = match lane {
            Lane::Messages => self.pace.0.or(self.pace.1),
            Lane::Bodies => self.pace.1.or(self.pace.0),
        };
        let Some(pace) = pace else { return settings.waiting_octets_max };
        let in_time = usize::try_from(pace * settings.append_timeout.as_secs()).unwrap_or(usize::MAX);
        in_time.clamp(settings.waiting_octets_min, settings.waiting_octets_max)
    }

    /// Learns how fast the holder is from a block that was just stored. A small one says nothing: its time is that of
    /// the way and of the disk.
    pub(super) fn note_pace(&mut self, now: Duration, lane: Lane, octets: usize) {
        let writer = if lane == Lane::Messages { &self.messages } else { &self.bodies };
        let Some(sent_at) = writer.proven_at().filter(|_| octets >= PACE_OCTETS_MIN) else { return };
        let micros = u64::try_from(now.saturating_sub(sent_at).as_micros()).unwrap_or(u64::MAX).max(1);
        let found = (octets as u64).saturating_mul(1_000_000) / micros;
        let pace = if lane == Lane::Messages { &mut self.pace.0 } else { &mut self.pace.1 };
        *pace = Some(pace.map_or(found, |before| (3 * before + found) / 4));
    }

    /// Notes the time while the holder has all that the local log has.
    pub(super) fn note_agreement(&mut self, now: Duration) {
        if self.agrees() {
            self.agreed_at = now;
        }
    }

    fn agrees(&self) -> bool {
        let is_drained = self.messages.has_no_mail() && self.done.is_empty();
        self.phase == Phase::Open && is_drained && self.uploads.values().all(|upload| upload.accepted.is_none())
    }

    pub(super) fn status(&self, now: Duration) -> StreamStatus {
        let state = match self.phase {
            Phase::Unread => StreamState::Opening,
            Phase::Scanning { .. } => StreamState::Reading,
            Phase::Open if self.messages.is_flowing() && !self.is_stalled => StreamState::Open,
            Phase::Open => StreamState::Stalled,
            Phase::Foreign(_) | Phase::Forgetting | Phase::Released | Phase::HandedOver => StreamState::WithAdopter,
            Phase::Abandoned => StreamState::TakenBack,
        };
        StreamStatus {
            stream: self.stream,
            state,
            messages: self.live,
            stored_upto: self.messages.last_sequence(),
            waiting_octets: self.waiting_octets(),
            unstored_completions: self.unstored_count,
            lag: (!self.agrees()).then(|| now.saturating_sub(self.agreed_at)),
        }
    }

    /// Notes completions that the holder must learn.
    pub(super) fn complete(&mut self, now: Duration, completion: Completion) {
        self.done.push(completion);
        self.done_since.get_or_insert(now);
        self.unstored_count += 1;
        match self.unstored.back_mut() {
            Some((at, count)) if *at == now => *count += 1,
            _ => self.unstored.push_back((now, 1)),
        }
    }

    /// Hands completions to the writer when they are many or old enough.
    pub(super) fn flush_done(&mut self, now: Duration, settings: &Settings, is_urgent: bool) {
        let is_due = self.done_since.is_some_and(|since| now >= since + settings.done_delay);
        while !self.done.is_empty() && (is_due || is_urgent || self.done.len() >= settings.done_batch) {
            let count = self.done.len().min(settings.done_batch);
            let batch = self.done.drain(..count).collect();
            self.messages.push(Record::Done(batch), 0);
        }
        if self.done.is_empty() {
            self.done_since = None;
        }
    }

    /// Notes that completions are stored.
    pub(super) fn done_stored(&mut self, mut count: usize) {
        self.unstored_count = self.unstored_count.saturating_sub(count);
        while let Some((_, first)) = self.unstored.front_mut() {
            if *first > count {
                *first -= count;
                break;
            }
            count -= *first;
            self.unstored.pop_front();
        }
    }

    /// Begins a body under a number that no other body of the stream has.
    pub(super) fn new_upload(&mut self, settings: &Settings) -> Upload {
        self.bodies_begun += 1;
        let body = PieceList::number(settings.start, self.bodies_begun);
        Upload { body, pieces: 0, stored: 0, octets: 0, crc: 0, sequences: None, accepted: None }
    }

    /// Enters a message at its place.
    pub(super) fn index_message(&mut self, sequence: u64, id: QueueId, octets: usize) {
        self.index.insert(sequence, id, octets);
        self.compacting.remove(&id);
        self.live_octets += octets;
        self.live += 1;
        self.messages.set_live(self.live);
    }

    /// Removes a message from its place.
    pub(super) fn unindex_message(&mut self, sequence: u64, id: QueueId) {
        let Some(octets) = self.index.remove(sequence, id) else { return };
        self.compacting.remove(&id);
        self.live_octets = self.live_octets.saturating_sub(octets);
        self.live = self.live.saturating_sub(1);
        self.messages.set_live(self.live);
    }

    /// Removes blocks without live messages from the front of the index; the last block stays.
    pub(super) fn drop_dead_front(&mut self) {
        self.index.drop_dead_front(self.messages.last_sequence());
    }

    /// Returns up to `most` messages to write again at the end, so that a stream most of which is dead can be trimmed.
    pub(super) fn choose_to_compact(&mut self, settings: &Settings, most: usize) -> Vec<QueueId> {
        let (octets_min, last) = (settings.compaction_octets_min, self.bodies.last_sequence());
        let bodies_upto = self.body_index.compacts_upto(last, octets_min, settings.piece_octets);
        let records_upto = self.compacts_records_upto(octets_min);
        let bodies = bodies_upto.into_iter().flat_map(|upto| self.body_index.messages_upto(upto));
        let records = records_upto.into_iter().flat_map(|upto| self.index.messages_upto(upto));
        // Those under way stay at the front until they are stored; there are few.
        bodies.chain(records).filter(|id| !self.compacting.contains(id)).take(most).collect()
    }

    /// The block up to which live messages are written again; `None` while enough of the lane lives.
    fn compacts_records_upto(&mut self, octets_min: usize) -> Option<u64> {
        self.drop_dead_front();
        if self.index.first()? > self.compact_upto {
            let octets = self.index.octets();
            if octets <= octets_min || self.live_octets * 2 >= octets {
                return None;
            }
            self.compact_upto = self.messages.last_sequence();
        }
        Some(self.compact_upto)
    }

    /// The first block of a lane that must be there.
    pub(super) fn first_kept(&self, lane: Lane) -> Option<u64> {
        match lane {
            Lane::Messages => self.index.first(),
            Lane::Bodies => self.body_index.first(),
        }
    }

    /// Forgets all content, after it was adopted or taken back.
    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.body_index = BodyIndex::default();
        self.earlier_bodies_upto = 0;
        self.uploads.clear();
        self.compacting.clear();
        self.found.clear();
        self.done.clear();
        self.done_since = None;
        self.unstored.clear();
        self.unstored_count = 0;
        self.live_octets = 0;
        self.live = 0;
        self.messages.set_live(0);
        drop(self.messages.take_unsent());
        drop(self.bodies.take_unsent());
        self.is_hostage_reported = false;
    }
}
