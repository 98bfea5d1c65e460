//! Writes one lane of a shadow stream: one block in flight, the next one filling.
//!
//! The expected sequence of an append is a fence only while a single block is in flight: with several of them the
//! block behind a refused one would expect just the sequence that the fence took. An append without an answer is never
//! guessed about: the writer reads the tail, and then either goes on or sends the same block again. A block keeps its
//! octets over all attempts, so an attempt that arrives late is recognised.
//!
//! States: closed → tail asked → closed (the caller looks at the tail) → fencing → ready ↔ sent → tail asked → … and
//! from any of them fenced or damaged, which end the writer.

use crate::block::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_SHRINKING_MAX, BLOCK_HEADER, Block, BlockError, BlockHeader, BlockVersions,
    WrittenBlock,
};
use crate::compression::Compressor;
use crate::identity::{ClusterId, Epoch, Incarnation, Lane, NodeId, StreamId};
use crate::record::{Fence, Record};
use crate::replica_log::{LogOperation, LogReply};
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// The constant part of the headers that a writer makes, and its time limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriterSettings {
    /// The cluster.
    pub(crate) cluster: ClusterId,
    /// The stream.
    pub(crate) stream: StreamId,
    /// The lane.
    pub(crate) lane: Lane,
    /// The block versions that this program reads.
    pub(crate) reads: BlockVersions,
    /// The block version that it writes.
    pub(crate) version: u16,
    /// This node.
    pub(crate) writer: NodeId,
    /// The life of this node's local log.
    pub(crate) incarnation: Incarnation,
    /// Time without an answer after which an append counts as unknown.
    pub(crate) append_timeout: Duration,
    /// Time between two questions for the tail.
    pub(crate) tail_interval: Duration,
    /// Time without an append after which a heartbeat goes out; `None` for none.
    pub(crate) heartbeat: Option<Duration>,
    /// Octets of records from which a block may be compressed.
    pub(crate) compressed_octets_min: usize,
    /// Blocks in flight. Any other number than 1 breaks the fence; tests show it.
    pub(crate) window: usize,
}

/// The last block of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamTail {
    /// Its sequence; 0 for a new lane.
    pub(crate) sequence: u64,
    /// The block; `None` for a new lane.
    pub(crate) block: Option<Block>,
}

impl StreamTail {
    /// The epoch of the last block; the lowest for a new lane.
    #[must_use]
    pub(crate) fn epoch(&self) -> Epoch {
        self.block.as_ref().map_or(Epoch(0), |block| block.header.epoch)
    }
}

/// A report of a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriterEvent {
    /// The tail of a closed writer; the caller decides whether to [`StreamWriter::fence`].
    TailRead(StreamTail),
    /// The writer's own fence is stored: it may write.
    Opened {
        /// The sequence of the fence.
        sequence: u64,
    },
    /// A block is on the holder's stable storage.
    Stored {
        /// Its sequence.
        sequence: u64,
        /// Its octets before they were compressed.
        plain_octets: usize,
        /// Its octets as they were stored.
        stored_octets: usize,
        /// Its records.
        records: Vec<Record>,
    },
    /// An append failed or has no answer: new mail goes elsewhere until the next `Stored`.
    Stalled {
        /// The holder has no room.
        is_full: bool,
    },
    /// A later version of the program wrote the last block. The tail is asked for again.
    Newer {
        /// The version of the block.
        version: u16,
    },
    /// A higher epoch took the stream; nothing is written any more.
    Fenced {
        /// The epoch.
        epoch: Epoch,
        /// The node that raised it.
        by: NodeId,
    },
    /// The engine has no such lane.
    Missing,
    /// The lane lost blocks or has blocks that do not belong: its copies count no more.
    Damaged {
        /// For the operator.
        why: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// The tail is wanted at this time.
    TailWanted(Duration),
    /// The tail was asked for at this time.
    TailAsked(Duration),
    Ready,
    /// The answer to an append is awaited.
    Sent,
    /// The holder has no room; the block goes out again at this time.
    Full(Duration),
    Ended,
}

/// A block on its way.
#[derive(Clone, Debug)]
struct SentBlock {
    octets: Bytes,
    /// Its octets before they were compressed.
    plain_octets: usize,
    crc: u32,
    number: u64,
    expected_last: u64,
    records: Vec<Record>,
    /// When its first attempt left.
    first_at: Duration,
    attempt_at: Duration,
    attempt: u64,
}

/// The last stored block.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    sequence: u64,
    number: u64,
    crc: u32,
}

/// Writes one lane of a stream.
#[derive(Debug)]
pub(crate) struct StreamWriter {
    settings: WriterSettings,
    state: State,
    epoch: Epoch,
    last: Position,
    is_fencing: bool,
    /// One with the right window.
    sent: Vec<SentBlock>,
    filling: std::collections::VecDeque<(Record, u64)>,
    filling_octets: usize,
    live: u64,
    attempts: u64,
    /// The last record that was pushed is RELEASE.
    is_given_up: bool,
    /// The buffer of the last stored block, for the next one.
    spare: BytesMut,
    compressor: Compressor,
    /// When the last stored append was first sent.
    proven_at: Option<Duration>,
    last_sent_at: Duration,
}

impl StreamWriter {
    /// A closed writer.
    #[must_use]
    pub(crate) fn new(settings: WriterSettings) -> Self {
        Self {
            settings,
            state: State::Closed,
            epoch: Epoch(0),
            last: Position::default(),
            is_fencing: false,
            sent: Vec::new(),
            filling: std::collections::VecDeque::new(),
            filling_octets: 0,
            live: 0,
            attempts: 0,
            is_given_up: false,
            spare: BytesMut::new(),
            compressor: Compressor::new(settings.compressed_octets_min),
            proven_at: None,
            last_sent_at: Duration::ZERO,
        }
    }

    /// Asks for the tail, as the first step of opening the lane. An ended writer begins anew.
    pub(crate) fn read_tail(&mut self, at: Duration) {
        self.sent.clear();
        (self.is_fencing, self.is_given_up) = (false, false);
        self.proven_at = None;
        self.state = State::TailWanted(at);
    }

    /// Writes and asks nothing until [`StreamWriter::read_tail`].
    pub(crate) fn close(&mut self) {
        self.sent.clear();
        drop(self.take_unsent());
        (self.is_fencing, self.is_given_up) = (false, false);
        self.proven_at = None;
        self.state = State::Closed;
    }

    /// Sets the version of the blocks to come.
    pub(crate) const fn set_version(&mut self, version: u16) {
        self.settings.version = version;
    }

    /// Moves a question for the tail that is planned forward.
    pub(crate) fn hasten_tail(&mut self, now: Duration) {
        if let State::TailWanted(at) = self.state {
            self.state = State::TailWanted(at.min(now));
        }
    }

    /// Writes a fence of this epoch behind the tail. Events: `Opened`, or `TailRead` when another block came first.
    pub(crate) fn fence(&mut self, tail: &StreamTail, epoch: Epoch, is_adoption: bool) {
        let header = tail.block.as_ref().map(|block| (block.header.number, block.crc));
        let (number, crc) = header.unwrap_or_default();
        self.last = Position { sequence: tail.sequence, number, crc };
        self.epoch = epoch;
        (self.is_fencing, self.is_given_up) = (true, false);
        self.state = State::Ready;
        let fence = Record::Fence(Fence { epoch, by: self.settings.writer, is_adoption });
        self.filling_octets += fence.octets();
        self.filling.push_front((fence, 0));
    }

    /// Adds a record to the block that fills. `local` is its local sequence, or 0.
    pub(crate) fn push(&mut self, record: Record, local: u64) {
        self.filling_octets += record.octets();
        self.is_given_up = matches!(record, Record::Release);
        self.filling.push_back((record, local));
    }

    /// Takes back the records that no append contains.
    pub(crate) fn take_unsent(&mut self) -> Vec<Record> {
        self.filling_octets = 0;
        self.is_given_up &= self.filling.is_empty();
        std::mem::take(&mut self.filling).into_iter().map(|(record, _)| record).collect()
    }

    /// Sets the number that heartbeats carry.
    pub(crate) const fn set_live(&mut self, live: u64) {
        self.live = live;
    }

    /// Octets that wait, without the block in flight.
    #[must_use]
    pub(crate) const fn waiting_octets(&self) -> usize {
        self.filling_octets
    }

    /// True when the writer may write and no append is overdue.
    #[must_use]
    pub(crate) const fn is_flowing(&self) -> bool {
        matches!(self.state, State::Ready | State::Sent) && !self.is_fencing
    }

    /// True after a fence of another node or damage: nothing is written until `read_tail` or `fence`.
    pub(crate) const fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// True when all that was pushed is stored.
    #[must_use]
    pub(crate) fn is_drained(&self) -> bool {
        self.sent.is_empty() && self.filling.is_empty()
    }

    /// True when nothing but heartbeats is on its way.
    #[must_use]
    pub(crate) fn has_no_mail(&self) -> bool {
        let is_plain = |record: &Record| matches!(record, Record::Heartbeat { .. });
        self.filling.is_empty() && self.sent.iter().all(|sent| sent.records.iter().all(is_plain))
    }

    /// True when RELEASE is the last record that was pushed. No heartbeat follows it: an adopter takes a stream at once
    /// only while RELEASE is its last record.
    #[must_use]
    pub(crate) const fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// When the last stored append was sent; no other node had fenced the stream then.
    #[must_use]
    pub(crate) const fn proven_at(&self) -> Option<Duration> {
        self.proven_at
    }

    /// The epoch of this writer's blocks.
    #[must_use]
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The sequence of the last stored block.
    #[must_use]
    pub(crate) const fn last_sequence(&self) -> u64 {
        self.last.sequence
    }

    /// The next time at which [`StreamWriter::poll`] has something to do, if no event comes before.
    #[must_use]
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        match self.state {
            State::Closed | State::Ended => None,
            State::TailWanted(at) | State::Full(at) => Some(at),
            State::TailAsked(at) => Some(at + self.settings.append_timeout),
            State::Sent => self.sent.first().map(|sent| sent.attempt_at + self.settings.append_timeout),
            State::Ready if !self.filling.is_empty() => Some(Duration::ZERO),
            State::Ready => self.heartbeat_at(),
        }
    }

    fn heartbeat_at(&self) -> Option<Duration> {
        self.settings.heartbeat.filter(|_| !self.is_given_up).map(|interval| self.last_sent_at + interval)
    }

    /// Returns the next request with the number that its answer must carry. Call it until it returns `None`.
    pub(crate) fn poll(&mut self, now: Duration, events: &mut Vec<WriterEvent>) -> Option<(u64, LogOperation)> {
        match self.state {
            State::Closed | State::Ended => None,
            State::TailWanted(at) => {
                if now < at {
                    return None;
                }
                self.state = State::TailAsked(now);
                Some((self.next_attempt(), LogOperation::Tail))
            }
            State::TailAsked(at) => {
                if now >= at + self.settings.append_timeout {
                    self.state = State::TailWanted(now);
                }
                None
            }
            State::Full(at) => {
                if now < at {
                    return None;
                }
                self.resend(now)
            }
            State::Sent => {
                let overdue = self.sent.first().is_some_and(|s| now >= s.attempt_at + self.settings.append_timeout);
                if overdue {
                    self.lose_answer(now, events);
                    return self.poll(now, events);
                }
                (self.sent.len() < self.settings.window && !self.filling.is_empty()).then(|| self.seal(now))
            }
            State::Ready => {
                let beats = self.heartbeat_at().is_some_and(|at| now >= at);
                if self.filling.is_empty() && beats {
                    self.push(Record::Heartbeat { live: self.live }, 0);
                }
                (!self.filling.is_empty()).then(|| self.seal(now))
            }
        }
    }

    /// Takes the answer to a request.
    pub(crate) fn answered(&mut self, now: Duration, attempt: u64, reply: LogReply, events: &mut Vec<WriterEvent>) {
        match reply {
            LogReply::Appended { sequence } => {
                let place = self.sent.iter().position(|sent| sent.attempt == attempt);
                if let Some(place) = place.filter(|_| self.state != State::Ended) {
                    self.store(place, sequence, events);
                }
            }
            LogReply::Tail { sequence, block } => {
                if matches!(self.state, State::TailAsked(_)) && attempt == self.attempts {
                    self.look_at_tail(now, sequence, block, events);
                }
            }
            LogReply::WrongLast => {
                if self.state == State::Sent && self.sent.iter().any(|sent| sent.attempt == attempt) {
                    self.state = State::TailWanted(now);
                }
            }
            LogReply::Full => {
                if self.state == State::Sent && self.sent.iter().any(|sent| sent.attempt == attempt) {
                    events.push(WriterEvent::Stalled { is_full: true });
                    self.state = State::Full(now + self.settings.tail_interval);
                }
            }
            LogReply::NoStream => {
                let is_current = attempt == self.attempts || self.sent.iter().any(|sent| sent.attempt == attempt);
                if is_current && !matches!(self.state, State::Closed | State::Ended) {
                    self.state = State::Ended;
                    events.push(WriterEvent::Missing);
                }
            }
            LogReply::Unknown => match self.state {
                State::Sent if self.sent.iter().any(|sent| sent.attempt == attempt) => self.lose_answer(now, events),
                State::TailAsked(_) if attempt == self.attempts => {
                    self.state = State::TailWanted(now + self.settings.tail_interval);
                }
                _ => {}
            },
            LogReply::Created | LogReply::Scanned { .. } | LogReply::Trimmed => {}
        }
    }

    fn next_attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }

    fn lose_answer(&mut self, now: Duration, events: &mut Vec<WriterEvent>) {
        events.push(WriterEvent::Stalled { is_full: false });
        self.state = State::TailWanted(now);
    }

    /// Makes a block of what waits and sends it.
    fn seal(&mut self, now: Duration) -> (u64, LogOperation) {
        let octets_max = if self.compressor.is_shrinking() { BLOCK_BYTES_SHRINKING_MAX } else { BLOCK_BYTES_MAX };
        let mut taken = self.take_records(octets_max);
        let (mut header, mut written) = self.write_block(&taken);
        if written.octets.len() > BLOCK_BYTES_MAX && taken.len() > 1 {
            // It did not shrink. A slow holder has no time for so large a block.
            self.give_back(taken);
            taken = self.take_records(BLOCK_BYTES_MAX);
            (header, written) = self.write_block(&taken);
        }
        let WrittenBlock { octets, crc, plain_octets } = written;
        let attempt = self.next_attempt();
        let expected_last = self.position_before().sequence;
        let block = octets.clone();
        self.sent.push(SentBlock {
            octets,
            plain_octets,
            crc,
            number: header.number,
            expected_last,
            records: taken.into_iter().map(|(record, _)| record).collect(),
            first_at: now,
            attempt_at: now,
            attempt,
        });
        self.last_sent_at = now;
        self.state = State::Sent;
        (attempt, LogOperation::Append { expected_last, block })
    }

    /// Takes the records of a block of so many octets, and at least one, with their local sequences.
    fn take_records(&mut self, octets_max: usize) -> Vec<(Record, u64)> {
        let (mut records, mut octets) = (Vec::new(), BLOCK_HEADER);
        while let Some((record, sequence)) = self.filling.pop_front() {
            if !records.is_empty() && octets + record.octets() > octets_max {
                self.filling.push_front((record, sequence));
                break;
            }
            octets += record.octets();
            self.filling_octets = self.filling_octets.saturating_sub(record.octets());
            records.push((record, sequence));
            // The fence is a block of its own: the mail behind it must not count before it is known to be stored.
            if self.is_fencing {
                break;
            }
        }
        records
    }

    /// Takes back what [`StreamWriter::take_records`] gave.
    fn give_back(&mut self, records: Vec<(Record, u64)>) {
        for (record, sequence) in records.into_iter().rev() {
            self.filling_octets += record.octets();
            self.filling.push_front((record, sequence));
        }
    }

    /// The place of the block behind which the next one goes.
    fn position_before(&self) -> Position {
        self.sent.last().map_or(self.last, |sent| Position {
            sequence: sent.expected_last + 1,
            number: sent.number,
            crc: sent.crc,
        })
    }

    /// Writes these records as the next block.
    fn write_block(&mut self, records: &[(Record, u64)]) -> (BlockHeader, WrittenBlock) {
        let before = self.position_before();
        let sequences = || records.iter().map(|(_, sequence)| *sequence).filter(|sequence| *sequence != 0);
        let header = BlockHeader {
            version: self.settings.version,
            cluster: self.settings.cluster,
            stream: self.settings.stream,
            lane: self.settings.lane,
            writer: self.settings.writer,
            incarnation: self.settings.incarnation,
            epoch: self.epoch,
            number: before.number + 1,
            local: sequences().min().zip(sequences().max()).unwrap_or_default(),
            previous_crc: before.crc,
            records: u32::try_from(records.len()).unwrap_or(u32::MAX),
        };
        let spare = std::mem::take(&mut self.spare);
        let written = header.write_into(spare, records.iter().map(|(record, _)| record), &mut self.compressor);
        (header, written)
    }

    fn resend(&mut self, now: Duration) -> Option<(u64, LogOperation)> {
        let attempt = self.next_attempt();
        let sent = self.sent.first_mut()?;
        sent.attempt = attempt;
        sent.attempt_at = now;
        self.last_sent_at = now;
        self.state = State::Sent;
        Some((attempt, LogOperation::Append { expected_last: sent.expected_last, block: sent.octets.clone() }))
    }

    fn store(&mut self, place: usize, sequence: u64, events: &mut Vec<WriterEvent>) {
        let sent = self.sent.remove(place);
        self.last = Position { sequence, number: sent.number, crc: sent.crc };
        self.proven_at = self.proven_at.max(Some(sent.first_at));
        if self.sent.is_empty() {
            self.state = State::Ready;
        }
        let (plain_octets, stored_octets) = (sent.plain_octets, sent.octets.len());
        // The engine's client may still have the octets; then the next block gets a new buffer.
        if let Ok(buffer) = sent.octets.try_into_mut() {
            self.spare = buffer;
        }
        if std::mem::take(&mut self.is_fencing) {
            events.push(WriterEvent::Opened { sequence });
        } else {
            events.push(WriterEvent::Stored { sequence, plain_octets, stored_octets, records: sent.records });
        }
    }

    fn look_at_tail(&mut self, now: Duration, sequence: u64, block: Option<Bytes>, events: &mut Vec<WriterEvent>) {
        let settings = &self.settings;
        let block = block
            .map(|octets| {
                Block::read_of_versions(settings.cluster, settings.reads, settings.stream, settings.lane, &octets)
            })
            .transpose();
        let block = match block {
            Ok(block) if block.is_some() == (sequence != 0) => block,
            Ok(_) => return self.damage(format!("block {sequence} of {} is gone", settings.stream), events),
            // A later program wrote it, so this one must not write behind it, nor count it as damaged.
            Err(BlockError::NewerVersion { version, .. }) => {
                self.state = State::TailWanted(now + self.settings.tail_interval);
                return events.push(WriterEvent::Newer { version });
            }
            Err(error) => return self.damage(error.to_string(), events),
        };
        let tail = StreamTail { sequence, block };
        let Some(sent) = self.sent.first() else {
            self.state = State::Closed;
            events.push(WriterEvent::TailRead(tail));
            return;
        };
        let crc = tail.block.as_ref().map_or(0, |block| block.crc);
        if sequence == sent.expected_last + 1 && crc == sent.crc {
            self.store(0, sequence, events);
        } else if sequence == sent.expected_last && crc == self.last.crc {
            self.state = State::Full(now);
        } else if self.is_fencing {
            self.sent.clear();
            self.is_fencing = false;
            self.state = State::Closed;
            events.push(WriterEvent::TailRead(tail));
        } else {
            match tail.block {
                Some(block) if block.header.epoch > self.epoch && sequence > sent.expected_last => {
                    self.state = State::Ended;
                    events.push(WriterEvent::Fenced { epoch: block.header.epoch, by: block.header.writer });
                }
                _ => {
                    let (stream, last) = (settings.stream, self.last.sequence);
                    self.damage(format!("{stream} ends at sequence {sequence}, its owner stored {last}"), events);
                }
            }
        }
    }

    fn damage(&mut self, why: String, events: &mut Vec<WriterEvent>) {
        self.state = State::Ended;
        events.push(WriterEvent::Damaged { why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Piece;

    const STREAM: StreamId = StreamId { owner: NodeId(1), holder: NodeId(2), generation: 0 };

    fn settings(version: u16) -> WriterSettings {
        WriterSettings {
            cluster: ClusterId([7; 16]),
            stream: STREAM,
            lane: Lane::Messages,
            reads: BlockVersions { oldest: 1, newest: version },
            version,
            compressed_octets_min: 2_000,
            writer: NodeId(1),
            incarnation: Incarnation(1),
            append_timeout: Duration::from_secs(3),
            tail_interval: Duration::from_secs(1),
            heartbeat: None,
            window: 1,
        }
    }

    #[test]
    fn a_tail_of_a_later_program_is_no_damage_and_is_asked_for_again() {
        let settings = settings(1);
        let header = BlockHeader {
            version: 2,
            cluster: settings.cluster,
            stream: STREAM,
            lane: settings.lane,
            writer: NodeId(1),
            incarnation: Incarnation(1),
            epoch: Epoch(5),
            number: 1,
            local: (0, 0),
            previous_crc: 0,
            records: 1,
        };
        let (block, _) = header.write(&[Record::Release]);
        let mut writer = StreamWriter::new(settings);
        let mut events = Vec::new();
        writer.read_tail(Duration::ZERO);
        let (attempt, _) = writer.poll(Duration::ZERO, &mut events).unwrap();
        writer.answered(Duration::ZERO, attempt, LogReply::Tail { sequence: 1, block: Some(block) }, &mut events);
        assert_eq!(events, [WriterEvent::Newer { version: 2 }]);
        let again = writer.poll(Duration::from_secs(1), &mut events);
        assert!(matches!(again, Some((_, LogOperation::Tail))), "{again:?}");
    }

    /// Stores what waits as the block with this sequence; returns its octets.
    fn store(writer: &mut StreamWriter, sequence: u64) -> usize {
        let mut events = Vec::new();
        let (attempt, operation) = writer.poll(Duration::ZERO, &mut events).unwrap();
        let LogOperation::Append { block, .. } = operation else { panic!("{operation:?}") };
        let octets = block.len();
        drop(block);
        writer.answered(Duration::ZERO, attempt, LogReply::Appended { sequence }, &mut events);
        octets
    }

    #[test]
    fn blocks_hold_twice_as_much_while_they_shrink_and_only_then() {
        let mut writer = StreamWriter::new(settings(2));
        writer.fence(&StreamTail { sequence: 0, block: None }, Epoch(1), false);
        store(&mut writer, 1);
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let alike: Vec<u8> = std::iter::repeat_with(&mut noise).take(50_000).collect();
        let piece = |octets: &[u8]| Record::Piece(Piece { body: 1, number: 0, octets: Bytes::copy_from_slice(octets) });
        (0..22).for_each(|_| writer.push(piece(&alike), 0));
        assert!(store(&mut writer, 2) < 100_000 && writer.waiting_octets() > 800_000, "five of them");
        assert!(store(&mut writer, 3) < 100_000 && writer.waiting_octets() < 400_000, "ten more");
        store(&mut writer, 4);
        for _ in 0..20 {
            let unlike: Vec<u8> = std::iter::repeat_with(&mut noise).take(50_000).collect();
            writer.push(piece(&unlike), 0);
        }
        let octets = store(&mut writer, 5);
        assert!((200_000..=BLOCK_BYTES_MAX).contains(&octets), "{octets}");
    }
}
