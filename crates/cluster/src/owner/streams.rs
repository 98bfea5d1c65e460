//! The streams of the owner: their requests and answers, opening, stored blocks, trims.

use super::Owner;
use super::slot::{ClaimGoal, Phase, Slot};
use crate::action::{Action, Purpose, Report, Token};
use crate::identity::{Lane, StreamId};
use crate::record::{Record, StoredBody, Twin};
use crate::replica_log::{LogOperation, LogReply, LogRequest};
use crate::stream_writer::{StreamTail, WriterEvent};
use mail::QueueId;
use std::time::Duration;

/// Time between trims of a stream.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

impl Owner {
    /// Returns the next action. Call it until it returns `None`, after each event and at `wake_at`.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Action> {
        if self.actions.is_empty() {
            self.end_rests(now);
            self.read_for_copies(now);
            self.read_for_widowed(now);
            self.read_for_pairs(now);
            self.read_for_changed(now);
            self.read_for_compaction(now);
            let streams: Vec<StreamId> = self.slots.keys().copied().collect();
            for stream in streams {
                self.poll_slot(now, stream);
            }
            self.resolve_uncertain();
        }
        self.actions.pop_front()
    }

    fn poll_slot(&mut self, now: Duration, stream: StreamId) {
        let is_settled = self.needs_copy.is_empty() && self.reading.is_empty() && self.adopted.is_empty();
        let is_settled = is_settled && !(self.is_departing && self.is_releasing && self.has_mail_out_of_reach());
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if slot.phase == Phase::Open && slot.messages.is_flowing() {
            slot.flush_done(now, &self.settings, self.is_releasing);
            let may_release = self.is_releasing && is_settled && slot.uploads.is_empty();
            let may_release = may_release && !slot.messages.is_given_up() && !slot.is_damaged;
            if may_release && slot.done.is_empty() && slot.messages.is_drained() {
                slot.messages.push(Record::Release, 0);
            }
            if self.is_departing && slot.messages.is_given_up() && slot.messages.is_drained() {
                // The tail is watched from now on.
                slot.phase = Phase::Released;
                slot.messages.read_tail(now + self.settings.tail_interval);
            }
        }
        self.reopen_former(now, stream);
        self.want_claim(now, stream);
        self.poll_claim(now, stream);
        self.poll_scan(now, stream);
        self.poll_scrub(now, stream);
        for lane in [Lane::Messages, Lane::Bodies] {
            loop {
                let Some(slot) = self.slots.get_mut(&stream) else { return };
                let writer = if lane == Lane::Messages { &mut slot.messages } else { &mut slot.bodies };
                let mut events = Vec::new();
                let request = writer.poll(now, &mut events);
                let is_idle = events.is_empty() && request.is_none();
                if let Some((attempt, operation)) = request {
                    self.ask(Purpose::OwnerWrite(stream, lane), attempt, stream, lane, operation);
                }
                for event in events {
                    self.writer_event(now, stream, lane, event);
                }
                if is_idle {
                    break;
                }
            }
        }
        self.trim(now, stream);
        if let Some(slot) = self.slots.get_mut(&stream) {
            slot.note_agreement(now);
        }
    }

    pub(super) fn ask(
        &mut self,
        purpose: Purpose,
        attempt: u64,
        stream: StreamId,
        lane: Lane,
        operation: LogOperation,
    ) {
        let token = Token { purpose, attempt };
        self.actions.push_back(Action::Log { token, request: LogRequest { stream, lane, operation } });
    }

    /// The next time at which `poll` has something to do.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let of_slot = |slot: &Slot| {
            let claim = slot.claim_goal.map(|_| slot.claim_at);
            let takes_back = slot.stored_at + self.take_back_wait(slot);
            let may_take_back = slot.claim_goal.is_none() && slot.is_away();
            let takes_back = may_take_back.then_some(takes_back);
            let scan = matches!(slot.phase, Phase::Scanning { .. } | Phase::Foreign(_)).then_some(slot.scan_at);
            let done = slot.done_since.map(|since| since + self.settings.done_delay);
            let done = done.filter(|_| slot.phase == Phase::Open && slot.messages.is_flowing());
            let is_scrubbed = slot.phase == Phase::Open && slot.messages.is_flowing() && !self.is_releasing;
            let scrub = is_scrubbed.then_some(slot.scrub.at);
            [slot.messages.wake_at(), slot.bodies.wake_at(), claim, takes_back, scan, scrub, done, slot.reopen_at]
                .into_iter()
                .flatten()
                .min()
        };
        let of_mail = [self.uneven.wake_at(), self.changed.wake_at(), self.unreadable.wake_at()];
        self.slots.values().filter_map(of_slot).chain(of_mail.into_iter().flatten()).min()
    }

    /// Takes an answer of the log.
    pub(crate) fn log_answered(&mut self, now: Duration, token: Token, reply: LogReply) {
        match token.purpose {
            Purpose::OwnerWrite(stream, lane) => {
                let Some(slot) = self.slots.get_mut(&stream) else { return };
                let writer = if lane == Lane::Messages { &mut slot.messages } else { &mut slot.bodies };
                let mut events = Vec::new();
                writer.answered(now, token.attempt, reply, &mut events);
                for event in events {
                    self.writer_event(now, stream, lane, event);
                }
            }
            Purpose::OwnerScan(stream) => self.scanned(now, stream, token.attempt, reply),
            Purpose::OwnerScrub(stream) => self.scrubbed(now, stream, token.attempt, reply),
            Purpose::OwnerCreate(stream) => {
                let slot = self.slots.get_mut(&stream).filter(|slot| !slot.had_blocks);
                if let (LogReply::Created, Some(slot)) = (reply, slot) {
                    slot.messages.read_tail(now);
                    slot.bodies.read_tail(now);
                }
            }
            Purpose::OwnerTrim(stream) => {
                if let (LogReply::Trimmed, Some(slot)) = (reply, self.slots.get_mut(&stream)) {
                    slot.trimmed.0 = slot.trimmed.0.max(token.attempt);
                }
            }
            Purpose::OwnerTrimBodies(stream) => {
                if let (LogReply::Trimmed, Some(slot)) = (reply, self.slots.get_mut(&stream)) {
                    slot.trimmed.1 = slot.trimmed.1.max(token.attempt);
                }
            }
            _ => {}
        }
    }

    fn writer_event(&mut self, now: Duration, stream: StreamId, lane: Lane, event: WriterEvent) {
        if let WriterEvent::Stored { plain_octets, stored_octets, .. } = &event {
            self.copied_octets += *plain_octets as u64;
            self.stored_octets += *stored_octets as u64;
        }
        match (lane, event) {
            (Lane::Messages, WriterEvent::TailRead(tail)) => self.look_at_tail(now, stream, tail),
            (Lane::Messages, WriterEvent::Opened { sequence }) => self.opened(now, stream, sequence),
            (Lane::Messages, WriterEvent::Stored { sequence, plain_octets, records, .. }) => {
                self.block_stored(now, stream, sequence, plain_octets, records);
            }
            (_, WriterEvent::Stalled { is_full }) => self.leave_stalled(now, stream, is_full),
            (_, WriterEvent::Newer { .. }) => self.leave_stalled(now, stream, false),
            (Lane::Messages, WriterEvent::Fenced { epoch, by }) => {
                self.report(Report::Fenced { stream, epoch, by });
                self.leave_stalled(now, stream, false);
                self.begin_foreign(now, stream);
            }
            (_, WriterEvent::Missing) => self.stream_missing(now, stream, lane),
            (Lane::Bodies, WriterEvent::TailRead(tail)) => {
                self.look_at_tail_of_bodies(now, stream, &tail);
            }
            (Lane::Bodies, WriterEvent::Opened { sequence }) => {
                if let Some(slot) = self.slots.get_mut(&stream) {
                    slot.body_index.opened(sequence);
                }
                self.look_at_earlier_bodies(now, stream);
            }
            (Lane::Bodies, WriterEvent::Stored { sequence, plain_octets, records, .. }) => {
                self.pieces_stored(now, stream, (sequence, plain_octets), &records);
            }
            (_, WriterEvent::Damaged { why }) => self.damaged(now, stream, lane, why),
            (Lane::Bodies, WriterEvent::Fenced { epoch, by }) => {
                self.damaged(now, stream, lane, format!("{by} fenced the bodies of {stream} in epoch {}", epoch.0));
            }
        }
    }

    /// Decides what the tail of a stream that is not open means.
    fn look_at_tail(&mut self, now: Duration, stream: StreamId, tail: StreamTail) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.had_blocks |= tail.sequence > 0;
        let own = (self.settings.node, self.settings.incarnation);
        let (ends_at, last) = (tail.sequence, slot.messages.last_sequence());
        if slot.phase == Phase::Released && ends_at < last {
            let why = format!("{stream} ends at sequence {ends_at}, its owner gave it up behind that");
            return self.damaged(now, stream, Lane::Messages, why);
        }
        // A stream that lost blocks gives out their sequences again: earlier trims and late appends hit new blocks.
        if slot.phase == Phase::Abandoned && ends_at < last {
            let why = format!("{stream} ends at sequence {ends_at}, its owner stored {last}");
            return self.damaged(now, stream, Lane::Messages, why);
        }
        if tail.sequence == 0 && slot.was_listed && slot.phase == Phase::Unread {
            let why = format!("{stream} is empty, it had blocks of an earlier start");
            return self.damaged(now, stream, Lane::Messages, why);
        }
        let is_own = tail
            .block
            .as_ref()
            .is_none_or(|block| (block.header.writer, block.header.incarnation) == own && !block.is_of_adoption());
        if is_own && slot.phase == Phase::Released {
            slot.messages.read_tail(now + self.settings.tail_interval);
        } else if is_own {
            slot.messages.fence(&tail, tail.epoch().next_at_start(self.settings.start), false);
        } else {
            slot.foreign_tail = Some(tail);
            self.begin_foreign(now, stream);
        }
    }

    /// Opens the lane of bodies, if it has not lost blocks since this node gave its copies up.
    fn look_at_tail_of_bodies(&mut self, now: Duration, stream: StreamId, tail: &StreamTail) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let (ends_at, last) = (tail.sequence, slot.bodies.last_sequence());
        if ends_at < last {
            let why = format!("the bodies of {stream} end at sequence {ends_at}, its owner stored {last}");
            return self.damaged(now, stream, Lane::Bodies, why);
        }
        slot.bodies.fence(tail, tail.epoch().next_at_start(self.settings.start), false);
    }

    fn opened(&mut self, now: Duration, stream: StreamId, sequence: u64) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.stored_at = now;
        slot.is_stalled = false;
        slot.stalled_until = now;
        slot.is_hostage_reported = false;
        let was_abandoned = slot.phase == Phase::Abandoned;
        if was_abandoned || sequence == 1 {
            slot.index.clear();
            slot.index.block_stored(sequence, 0);
            slot.phase = Phase::Open;
            (slot.claim_goal, slot.awaits_reopen) = (None, false);
        } else {
            slot.found.clear();
            slot.phase = Phase::Scanning { next: 1, fence: sequence };
            slot.scan_at = now;
            slot.scan_asked = None;
        }
        (slot.had_blocks, slot.is_read) = (true, true);
        slot.held = slot.messages.epoch();
    }

    fn block_stored(&mut self, now: Duration, stream: StreamId, sequence: u64, octets: usize, records: Vec<Record>) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.stored_at = now;
        slot.is_stalled = false;
        slot.note_pace(now, Lane::Messages, octets);
        slot.index.block_stored(sequence, octets);
        let mut accepted = Vec::new();
        for record in records {
            match record {
                Record::Accept(one) => {
                    let body = match &one.body {
                        StoredBody::Pieces(list) => Some(list.body),
                        StoredBody::Whole(_) => None,
                    };
                    slot.body_index.record_stored(one.id, body);
                    accepted.push((one.id, one.twin));
                }
                Record::Done(list) => slot.done_stored(list.len()),
                _ => {}
            }
        }
        for (id, twin) in accepted {
            self.copy_stored(now, stream, sequence, id, twin);
        }
    }

    fn copy_stored(&mut self, now: Duration, stream: StreamId, sequence: u64, id: QueueId, twin: Option<Twin>) {
        let (Some(slot), Some(message)) = (self.slots.get_mut(&stream), self.messages.get_mut(&id)) else { return };
        let octets = message.octets;
        let Some(copy) = message.copies.iter_mut().find(|copy| copy.stream == stream) else { return };
        copy.pending = copy.pending.saturating_sub(1);
        (copy.epoch, copy.has_twin, copy.twin) = (slot.messages.epoch(), twin.is_some(), twin);
        if let Some(earlier) = copy.sequence.replace(sequence) {
            slot.unindex_message(earlier, id);
        }
        slot.index_message(sequence, id, octets);
        self.look_at_pair(now, id);
        self.settle(id);
    }

    fn pieces_stored(&mut self, now: Duration, stream: StreamId, (sequence, octets): (u64, usize), records: &[Record]) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.note_pace(now, Lane::Bodies, octets);
        slot.body_index.block_stored(sequence, octets);
        let mut whole = Vec::new();
        for record in records {
            let Record::Piece(piece) = record else { continue };
            let Some((id, upload)) = slot.uploads.iter_mut().find(|(_, upload)| upload.body == piece.body) else {
                continue;
            };
            upload.stored += 1;
            upload.sequences = Some((upload.sequences.map_or(sequence, |(first, _)| first), sequence));
            if upload.stored == upload.pieces {
                whole.push(*id);
            }
        }
        for id in whole {
            self.finish_upload(stream, id);
        }
    }

    fn stream_missing(&mut self, now: Duration, stream: StreamId, lane: Lane) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let was_used = match lane {
            Lane::Messages => slot.had_blocks || slot.was_listed && slot.phase == Phase::Unread,
            // Those of earlier starts are missed when the stream was read.
            Lane::Bodies => slot.bodies.last_sequence() > 0,
        };
        if was_used {
            self.damaged(now, stream, lane, format!("the engine has no {} any more", stream.name(lane)));
            return;
        }
        // Asked again when no answer comes.
        let again = now + self.settings.append_timeout;
        if lane == Lane::Messages { &mut slot.messages } else { &mut slot.bodies }.read_tail(again);
        self.ask(Purpose::OwnerCreate(stream), 0, stream, Lane::Messages, LogOperation::Create);
        self.ask(Purpose::OwnerCreate(stream), 0, stream, Lane::Bodies, LogOperation::Create);
    }

    /// Looks whether the lane of bodies begins behind all pieces that records of earlier starts refer to.
    pub(super) fn look_at_earlier_bodies(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let (opened_at, last) = (slot.body_index.opened_at(), slot.earlier_bodies_upto);
        if opened_at > 0 && last >= opened_at {
            let why = format!("the bodies of {stream} end before sequence {opened_at}, records refer to {last}");
            self.damaged(now, stream, Lane::Bodies, why);
        }
    }

    /// Begins to put the next generation in the place of a stream of which a lane lost blocks.
    ///
    /// The lane of messages is read to its end first where it can be: it has results that the local log may have lost,
    /// and the lists of adopters.
    pub(super) fn damaged(&mut self, now: Duration, stream: StreamId, lane: Lane, why: String) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if slot.claim_goal == Some(ClaimGoal::Replace) {
            return;
        }
        slot.is_damaged = true;
        let is_read = matches!(slot.phase, Phase::Open | Phase::Abandoned);
        self.report(Report::CopiesLost { stream, why });
        self.leave_stalled(now, stream, false);
        if let Some(slot) = self.slots.get_mut(&stream)
            && (is_read || lane == Lane::Messages)
        {
            slot.want(now, ClaimGoal::Replace);
            if slot.phase == Phase::Abandoned {
                // A fence of the other lane would open the stream before the claim is written.
                slot.messages.close();
                slot.bodies.close();
            }
        }
    }

    fn trim(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        // Until the claim says that the stream is the owner's again, the records of an adoption in front prove that the
        // part in the claim is over.
        if slot.phase != Phase::Open || now < slot.trim_at || slot.awaits_reopen {
            return;
        }
        slot.drop_dead_front();
        let last = slot.messages.last_sequence();
        let first_kept = slot.index.first().unwrap_or(last);
        let first_body = slot.body_index.first().unwrap_or_else(|| slot.bodies.last_sequence());
        let first_upload = slot.uploads.values().map(|upload| upload.sequences.map_or(0, |(first, _)| first)).min();
        let first_body = first_body.min(first_upload.unwrap_or(first_body));
        let wanted = (first_kept.saturating_sub(1), first_body.saturating_sub(1));
        let trimmed = slot.trimmed;
        if wanted.0 <= trimmed.0 && wanted.1 <= trimmed.1 {
            return;
        }
        slot.trim_at = now + TRIM_INTERVAL;
        if wanted.0 > trimmed.0 {
            let (purpose, operation) = (Purpose::OwnerTrim(stream), LogOperation::Trim { upto: wanted.0 });
            self.ask(purpose, wanted.0, stream, Lane::Messages, operation);
        }
        if wanted.1 > trimmed.1 {
            let (purpose, operation) = (Purpose::OwnerTrimBodies(stream), LogOperation::Trim { upto: wanted.1 });
            self.ask(purpose, wanted.1, stream, Lane::Bodies, operation);
        }
    }
}
