//! Reading what earlier starts and other nodes wrote into the streams of the owner.

use super::slot::{ClaimGoal, Foreign, Found, Phase};
use super::{CopyPlace, Gate, Owner};
use crate::action::{Action, Purpose, Report};
use crate::claim::Claim;
use crate::identity::{Epoch, Lane, StreamId};
use crate::record::{Adopted, Completion, Outcome, Record, StoredBody};
use crate::replica_log::{LogOperation, LogReply};
use crate::stream_writer::StreamTail;
use bytes::Bytes;
use mail::QueueId;
use std::collections::BTreeSet;
use std::time::Duration;

impl Owner {
    pub(super) fn begin_foreign(&mut self, now: Duration, stream: StreamId) {
        if let Some(slot) = self.slots.get_mut(&stream) {
            slot.phase = Phase::Foreign(Foreign::new());
            // The list of the adopter can be read. Behind that, a stream that lost blocks is replaced.
            slot.claim_goal = slot.claim_goal.filter(|goal| *goal != ClaimGoal::Replace);
            slot.scan_at = now;
            slot.scan_asked = None;
        }
    }

    pub(super) fn poll_scan(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let octets_max = self.settings.scan_octets;
        let operation = match &slot.phase {
            Phase::Scanning { next, .. } => LogOperation::Scan { from: *next, octets_max },
            Phase::Foreign(foreign) if foreign.looks_at_tail => LogOperation::Tail,
            Phase::Foreign(foreign) => LogOperation::Scan { from: foreign.scan_from(), octets_max },
            _ => return,
        };
        if now < slot.scan_at {
            return;
        }
        slot.scan_at = now + self.settings.append_timeout;
        slot.scan_attempt += 1;
        let attempt = slot.scan_attempt;
        self.ask(Purpose::OwnerScan(stream), attempt, stream, Lane::Messages, operation);
    }

    pub(super) fn scanned(&mut self, now: Duration, stream: StreamId, attempt: u64, reply: LogReply) {
        let Some(slot) = self.slots.get_mut(&stream).filter(|slot| slot.scan_attempt == attempt) else { return };
        if let (LogReply::Tail { sequence, block }, Phase::Foreign(_)) = (&reply, &slot.phase) {
            return self.look_at_end(now, stream, *sequence, block.as_ref());
        }
        let LogReply::Scanned { blocks, is_end } = reply else {
            slot.scan_at = now + self.settings.tail_interval;
            if reply == LogReply::NoStream && matches!(slot.phase, Phase::Foreign(_)) {
                self.damaged(now, stream, Lane::Messages, format!("the engine has no {stream} any more"));
            }
            return;
        };
        slot.scan_at = if is_end { now + self.settings.heartbeat } else { now };
        match slot.phase {
            Phase::Scanning { fence, .. } => {
                for (sequence, octets) in blocks {
                    if sequence <= fence {
                        self.scan_own(stream, sequence, &octets);
                    }
                }
                let Some(slot) = self.slots.get_mut(&stream) else { return };
                match &mut slot.phase {
                    Phase::Scanning { next, fence } if *next <= *fence && !is_end => {}
                    Phase::Scanning { .. } => self.finish_scan(now, stream),
                    _ => {}
                }
            }
            Phase::Foreign(_) => self.scan_foreign(now, stream, blocks, is_end),
            _ => {}
        }
    }

    /// Reads a block of the own stream into the set of messages that live.
    fn scan_own(&mut self, stream: StreamId, sequence: u64, octets: &Bytes) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let block = self.settings.read_block(stream, Lane::Messages, octets);
        if let Phase::Scanning { next, .. } = &mut slot.phase {
            *next = (*next).max(sequence + 1);
        }
        // A block that cannot be read holds no copy that counts; its mail is copied anew.
        let block = match block {
            Ok(block) => block,
            Err(error) => return self.report(Report::CopiesLost { stream, why: error.to_string() }),
        };
        slot.index.block_stored(sequence, block.plain_octets);
        for record in block.records {
            match record {
                Record::Accept(accepted) => {
                    let found = Found::new(sequence, block.header.epoch, accepted);
                    slot.found.insert(found.accepted.id, found);
                }
                Record::Done(list) => {
                    for one in list {
                        if let Some(found) = slot.found.get_mut(&one.id) {
                            found.completions.push(one);
                        }
                    }
                }
                Record::Adopted(Adopted { upto, .. }) => slot.found.retain(|_, found| found.sequence > upto),
                _ => {}
            }
        }
    }

    /// Brings the local log and the copies of a stream together.
    fn finish_scan(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let found = std::mem::take(&mut slot.found);
        slot.phase = Phase::Open;
        slot.stored_at = now;
        let goal = match slot.claim_goal {
            _ if slot.is_damaged => ClaimGoal::Replace,
            // The store may have the claim already, or have it later: it is written again, for the present fence.
            Some(goal @ ClaimGoal::TakeBack) if slot.claim_put != Claim::default() => goal,
            _ => ClaimGoal::Reopen,
        };
        slot.want(now, goal);
        slot.awaits_reopen = true;
        let mut lost = Vec::new();
        for found in found.into_values() {
            lost.extend(self.join_found(now, stream, found));
        }
        self.detach_unfound(stream);
        self.look_at_earlier_bodies(now, stream);
        for completion in &lost {
            self.completed(now, *completion);
        }
        if !lost.is_empty() {
            self.actions.push_back(Action::Complete(lost));
        }
    }

    /// Joins a copy with its message; returns the completions that the local log has lost.
    fn join_found(&mut self, now: Duration, stream: StreamId, found: Found) -> Vec<Completion> {
        let Found { sequence, epoch, accepted, octets, completions } = found;
        let id = accepted.id;
        let twin = accepted.twin.map(|twin| twin.stream);
        // The other copy counts until its stream was read.
        let twin = twin.filter(|twin| self.slots.get(twin).is_some_and(|slot| !slot.is_resolved()));
        let Some(slot) = self.slots.get_mut(&stream) else { return Vec::new() };
        let known = self.messages.get_mut(&id).filter(|message| message.hops == accepted.hops);
        let Some(message) = known else {
            if completions.iter().all(|one| one.recipient.is_some()) {
                slot.complete(now, Completion { id, recipient: None, outcome: Outcome::Withdrawn });
            }
            return Vec::new();
        };
        message.octets = octets;
        message.is_uncertain = false;
        message.copies.retain(|copy| copy.stream != stream);
        message.copies.push(CopyPlace {
            stream,
            sequence: Some(sequence),
            pending: 0,
            epoch,
            has_twin: accepted.twin.is_some(),
            twin: accepted.twin,
        });
        if let Some(twin) = twin.filter(|twin| message.copies.iter().all(|copy| copy.stream != *twin)) {
            message.copies.push(CopyPlace::promised(twin));
        }
        if accepted.twin.is_some() && self.was_adopted && message.may_be_duplicate {
            // The adopted copy may have had an end that this one lacks.
            self.actions.push_back(Action::Report(Report::ResultUnknown { id }));
        }
        slot.index_message(sequence, id, octets);
        if let StoredBody::Pieces(list) = &accepted.body {
            slot.body_index.insert(id, list);
            if list.start() < self.settings.start {
                slot.earlier_bodies_upto = slot.earlier_bodies_upto.max(list.sequences.1);
            }
            slot.body_index.record_stored(id, Some(list.body));
        }
        self.needs_copy.remove(&id);
        self.look_at_pair(now, id);
        let Some(message) = self.messages.get_mut(&id) else { return Vec::new() };
        let Some(slot) = self.slots.get_mut(&stream) else { return Vec::new() };
        // Recipients that the local log knows as finished and the copy does not, and the other way round.
        let in_copy: BTreeSet<u32> =
            accepted.finished.iter().copied().chain(completions.iter().filter_map(|one| one.recipient)).collect();
        for recipient in message.finished.difference(&in_copy) {
            slot.complete(now, Completion { id, recipient: Some(*recipient), outcome: Outcome::Delivered });
        }
        let is_lost = |one: &Completion| one.recipient.is_none_or(|number| !message.finished.contains(&number));
        completions.into_iter().filter(is_lost).collect()
    }

    /// Drops copies that another stream's record promised and this stream does not have.
    fn detach_unfound(&mut self, stream: StreamId) {
        for (id, message) in &mut self.messages {
            let before = message.copies.len();
            message.copies.retain(|copy| copy.stream != stream || copy.sequence.is_some());
            if message.copies.len() < before {
                self.widowed.insert(*id);
            }
        }
    }

    /// Reads the records of adoption of a stream that another node fenced.
    fn scan_foreign(&mut self, now: Duration, stream: StreamId, blocks: Vec<(u64, Bytes)>, is_end: bool) {
        let me = (self.settings.node, self.settings.incarnation);
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let Phase::Foreign(foreign) = &mut slot.phase else { return };
        if foreign.scan_ended(is_end, blocks.is_empty()) {
            let why = format!("{stream} has lost the blocks of its adopter");
            return self.damaged(now, stream, Lane::Messages, why);
        }
        let before = foreign.next;
        for (sequence, octets) in blocks {
            let block = self.settings.read_block(stream, Lane::Messages, &octets).ok();
            foreign.read(me, sequence, block.as_ref());
            if block.is_some() {
                slot.foreign_tail = Some(StreamTail { sequence, block });
            }
        }
        if !foreign.is_over || !is_end {
            if is_end && foreign.next == before {
                (foreign.looks_at_tail, slot.scan_at) = (true, now);
            }
            return;
        }
        if foreign.is_damaged {
            let why = format!("{stream} has lost records of its adoption");
            return self.damaged(now, stream, Lane::Messages, why);
        }
        let messages = std::mem::take(&mut foreign.taken);
        slot.is_of_other_life = !foreign.has_own;
        slot.is_read = true;
        slot.phase = Phase::Forgetting;
        slot.claim_goal = None;
        self.actions.push_back(Action::Forget { stream, messages: messages.clone() });
        self.give_up(now, stream, &messages);
    }

    /// Looks at the last block of a stream that another node fenced. Its adopter may store more behind one that is
    /// lost; when nothing follows for long, it counts as the end of the adoption.
    fn look_at_end(&mut self, now: Duration, stream: StreamId, sequence: u64, block: Option<&Bytes>) {
        let is_readable = block.is_some_and(|octets| self.settings.read_block(stream, Lane::Messages, octets).is_ok());
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let Phase::Foreign(foreign) = &mut slot.phase else { return };
        foreign.looks_at_tail = false;
        slot.scan_at = now + self.settings.heartbeat;
        let lost_since = foreign.tail_read(now, sequence, is_readable);
        if lost_since.is_some_and(|since| now >= since + self.settings.adopter_wait_max) {
            let why = format!("block {sequence} of {stream}, the last one, is lost");
            self.damaged(now, stream, Lane::Messages, why);
        }
    }

    fn give_up(&mut self, now: Duration, stream: StreamId, taken: &[(QueueId, u16)]) {
        self.was_adopted = true;
        let mut messages = 0;
        self.former.note_taken(taken);
        for (id, hops) in taken {
            if self.messages.get(id).is_none_or(|message| message.hops > *hops) {
                continue;
            }
            let Some(message) = self.remove(*id) else { continue };
            messages += 1;
            if let Gate::Adoption { from, .. } = message.gate {
                self.safe.push((from, *id));
            }
            for copy in message.copies.iter().filter(|copy| copy.stream != stream) {
                if let Some(slot) = self.slots.get_mut(&copy.stream) {
                    slot.complete(now, Completion { id: *id, recipient: None, outcome: Outcome::Moved });
                }
            }
        }
        self.report(Report::GivenUp { stream, messages });
    }

    /// The local log has dropped the messages for good: the stream may be opened again.
    pub(crate) fn forgotten(&mut self, now: Duration, stream: StreamId) {
        self.detach(stream, true);
        let Some(slot) = self.slots.get_mut(&stream).filter(|slot| slot.phase == Phase::Forgetting) else { return };
        if self.is_departing && self.is_releasing {
            return slot.hand_over();
        }
        if slot.is_of_other_life && slot.held == Epoch(0) && !self.former.is_over() {
            slot.reopen_at = Some(now + self.settings.adopter_wait_max);
            return;
        }
        self.reopen(now, stream);
    }

    /// Opens a stream again whose adoption is over and read.
    pub(super) fn reopen(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream).filter(|slot| slot.phase == Phase::Forgetting) else { return };
        let epoch = slot.foreign_tail.as_ref().map_or(Epoch(0), StreamTail::epoch);
        let starts = Epoch::before_start(self.settings.start);
        // The starts of an earlier disk were more: an epoch behind theirs would not tell the start it is of.
        let has_earlier_starts = slot.is_of_other_life && slot.held == Epoch(0) && epoch > starts;
        if has_earlier_starts || slot.is_damaged {
            self.begin_next_generation(now, stream);
            return;
        }
        // The lane of bodies stays open.
        let bodies_opened_at = slot.body_index.opened_at();
        slot.clear();
        slot.body_index.opened(bodies_opened_at);
        slot.phase = Phase::Unread;
        slot.stored_at = now;
        let Some(tail) = slot.foreign_tail.take() else { return slot.messages.read_tail(now) };
        slot.messages.fence(&tail, tail.epoch().next_at_start(self.settings.start), false);
    }
}
