//! Watching a stream: whether its tail calls for an adoption by this node, and what its writer says.

use super::by_hand::TailView;
use super::content::StreamContent;
use super::{Adopter, Step};
use crate::action::{Action, Report};
use crate::block::Block;
use crate::identity::{Lane, StreamId};
use crate::membership::{Membership, NodeEntry};
use crate::record::Record;
use crate::rendezvous::holders_of;
use crate::status::HostageReason;
use crate::stream_writer::{StreamTail, WriterEvent};
use std::time::Duration;

/// True when the last block says that an adoption has ended.
fn is_over(tail: &StreamTail) -> bool {
    tail.block.as_ref().is_some_and(Block::ends_adoption)
}

/// Silences after which the adoption of another node counts as stuck.
pub(super) const STUCK_SILENCES: u32 = 4;

impl Adopter {
    /// Lets the messages of a part go whose record has no answer.
    pub(super) fn release_open_part(&mut self) {
        self.is_resumed = false;
        if std::mem::take(&mut self.has_open_part) {
            self.released.extend(std::mem::take(&mut self.part).messages.into_keys());
        }
    }

    /// The claim of the stream has changed: a part that was open may be over, or the owner has the stream again.
    pub(crate) fn hasten(&mut self, now: Duration) {
        if self.step == Step::Watching {
            self.writer.hasten_tail(now);
        }
    }

    pub(super) fn watch(&mut self, now: Duration, wait: Duration) {
        // The claim may be written: then no other node can end the part.
        self.has_open_part |= std::mem::take(&mut self.is_claim_sent);
        self.step = Step::Watching;
        self.content = StreamContent::default();
        self.waiting.clear();
        self.given.clear();
        self.large.clear();
        self.fetch = None;
        drop(self.writer.take_unsent());
        self.writer.read_tail(now + wait);
    }

    /// Keeps what the status tells of a tail.
    fn note_tail(&mut self, now: Duration, tail: &StreamTail) {
        self.watched_at = now;
        let is_over = is_over(tail);
        (self.tail, self.is_looked_at) = (Some(TailView::new(self.stream, tail, is_over)), true);
        if is_over {
            // Another node has gone on, so the reason why this one stopped is over.
            self.stopped = None;
        }
        if tail.sequence < self.highest {
            self.note_missing_blocks(
                "the engine lost the end of the copies; what it had goes on when its owner is back",
            );
        }
        self.highest = self.highest.max(tail.sequence);
        if self.lacks_blocks {
            self.stopped = Some(HostageReason::Damaged);
        } else if self.stopped == Some(HostageReason::Damaged) {
            self.stopped = None;
        }
        self.is_over = tail.sequence == 0 || is_over;
        self.handed_back = self.handed_back.filter(|_| is_over);
        let heartbeat = |record: &Record| match record {
            Record::Heartbeat { live } => Some(*live),
            _ => None,
        };
        let live = tail.block.iter().flat_map(|block| &block.records).filter_map(heartbeat).last();
        self.live = live.or(self.live);
    }

    /// Blocks that the stream had are gone. Their mail goes on when the owner is back.
    pub(super) fn note_missing_blocks(&mut self, why: &'static str) {
        if !std::mem::replace(&mut self.lacks_blocks, true) {
            self.outbox.push_back(Action::Report(Report::Hostage { stream: self.stream, why }));
        }
    }

    /// Decides whether the tail calls for an adoption by this node.
    fn is_due(&self, now: Duration, tail: &StreamTail, since: Duration, members: &Membership) -> bool {
        let (Some(block), StreamId { owner, holder, .. }) = (&tail.block, self.stream) else { return false };
        let writer = block.header.writer;
        let is_of_adopter = writer != owner || block.is_of_adoption();
        if !members.is_fresh(now) {
            return false;
        }
        if is_over(tail) {
            return self.is_rest_left(now, since, members);
        }
        let is_alive = |node| members.entry(node).is_some();
        let me = self.settings.node;
        let is_ordered = self.is_ordered && !is_alive(owner);
        let is_candidate =
            self.may_begin(members) || writer == me && !is_alive(holder) || self.has_open_part || owner == me;
        let is_silent = is_ordered || now >= since + self.settings.silence || self.settings.sabotage.no_wait;
        if !is_candidate {
            return false;
        }
        if is_of_adopter {
            // An adoption that stands still. The own one goes on at once, that of another when that node is gone, or
            // when it does not move.
            let is_stuck = now >= since + self.settings.silence * STUCK_SILENCES;
            // Two nodes may think that a part is theirs. The one that fenced last gets the time to read the claim, or
            // they would fence each other for ever; if the part is not its own, it stops then.
            let has_read = !is_alive(writer) || now >= since + self.settings.silence;
            return writer == me || self.has_open_part && has_read || is_silent && !is_alive(writer) || is_stuck;
        }
        if self.has_open_part || owner == me {
            return self.has_open_part;
        }
        if block.records.last() == Some(&Record::Release) {
            let is_of_another_disk = |entry: &NodeEntry| entry.incarnation != block.header.incarnation;
            return members.entry(owner).is_none_or(|entry| entry.is_draining || is_of_another_disk(entry));
        }
        match members.entry(owner) {
            Some(entry) => entry.incarnation != block.header.incarnation,
            None => is_silent,
        }
    }

    /// True for the node that adopts a stream when its owner is gone: the holder, which has the bytes on its own disk,
    /// or the next node in order when that is gone too. A node that leaves for good begins no adoption.
    fn may_begin(&self, members: &Membership) -> bool {
        let (StreamId { owner, holder, .. }, me) = (self.stream, self.settings.node);
        let is_ordered = self.is_ordered && members.entry(owner).is_none();
        let deputy = || holders_of(owner, members.staying()).first().copied();
        let is_deputy = || !members.stays(holder) && !members.stays(owner) && deputy() == Some(me);
        !members.is_departing() && (is_ordered || holder == me || is_deputy())
    }

    /// True when an adoption has ended, and this node, which has the rest or would adopt it, does not know whether
    /// there is one.
    fn is_rest_unknown(&self, now: Duration, tail: &StreamTail, since: Duration, members: &Membership) -> bool {
        let is_unknown = is_over(tail) && self.known_end != tail.sequence;
        let is_asked = self.may_begin(members) || self.stream.holder == self.settings.node;
        is_unknown && members.is_fresh(now) && is_asked && now >= since + self.settings.silence
    }

    /// True when mail was handed back to an owner that is gone again, or has lost its log, before it opened the stream.
    /// A node that leaves for good leaves it to others, unless the owner is back with a new log: then no other node
    /// would adopt it.
    fn is_rest_left(&self, now: Duration, since: Duration, members: &Membership) -> bool {
        let owner = members.entry(self.stream.owner);
        let is_gone = |life| owner.is_none_or(|entry| entry.incarnation != life);
        let is_of_others = members.is_departing() && owner.is_none();
        !is_of_others && self.handed_back.is_some_and(is_gone) && now >= since + self.settings.silence
    }

    /// True when the owner is back with the log that has this mail.
    pub(super) fn is_owner_back(&self, members: &Membership) -> bool {
        if self.stream.owner == self.settings.node {
            return self.content.owner == Some(self.settings.incarnation);
        }
        let entry = members.entry(self.stream.owner);
        entry.is_some_and(|entry| Some(entry.incarnation) == self.content.owner && !entry.is_draining)
    }

    pub(super) fn writer_event(&mut self, now: Duration, members: &Membership, event: WriterEvent) {
        match event {
            WriterEvent::TailRead(tail) => {
                let since = match self.seen {
                    Some((sequence, since)) if sequence == tail.sequence => since,
                    _ => now,
                };
                self.seen = Some((tail.sequence, since));
                self.note_tail(now, &tail);
                let is_owners = tail
                    .block
                    .as_ref()
                    .is_some_and(|block| block.header.writer == self.stream.owner && !block.is_of_adoption());
                if is_owners || is_over(&tail) || tail.block.is_none() {
                    // The adoption is over, so the record of the open part was stored, and only its answer is missing;
                    // or the stream is lost, and its owner too knows that recipients may get mail twice.
                    self.release_open_part();
                }
                if self.step == Step::Opening(tail.sequence) {
                    self.writer.fence(&tail, tail.epoch().next(), true);
                    let is_planned = tail.block.as_ref().is_some_and(|b| b.records.last() == Some(&Record::Release));
                    let sabotage = self.settings.sabotage;
                    if is_planned || sabotage.no_wait || self.is_ordered && sabotage.no_wait_by_hand {
                        self.seen = Some((tail.sequence, Duration::ZERO));
                    }
                } else if self.is_due(now, &tail, since, members) {
                    self.step = Step::Opening(tail.sequence);
                    self.writer.read_tail(now);
                } else if self.is_rest_unknown(now, &tail, since, members) {
                    self.step = Step::Looking(1);
                    self.content = StreamContent::default();
                    self.ask_scan(now, Lane::Messages, 1);
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
                (self.taken, self.is_handing_back, self.stopped) = (0, false, None);
                self.began_at = now;
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
            WriterEvent::Missing | WriterEvent::Damaged { .. } => self.lose_stream(now),
            WriterEvent::Newer { version } => self.stop_at_newer(now, version),
            WriterEvent::Stalled { .. } => {}
        }
    }

    /// Stops at a stream that the engine has lost. Its owner too knows that recipients may get mail twice.
    pub(super) fn lose_stream(&mut self, now: Duration) {
        self.release_open_part();
        (self.watched_at, self.stopped) = (now, Some(HostageReason::Damaged));
        self.is_looked_at = true;
        self.watch(now, self.settings.heartbeat * 5);
    }
}
