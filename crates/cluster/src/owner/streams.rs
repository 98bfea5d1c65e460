//! The streams of the owner: opening, reading what earlier starts and other nodes wrote, claims, trims.

use super::slot::{ClaimGoal, Found, Phase, Slot};
use super::{CopyPlace, Gate, Owner};
use crate::action::{Action, Purpose, Report, Token};
use crate::block::Block;
use crate::claim::{Claim, ClaimError};
use crate::coordination::{CoordinationReply, CoordinationRequest};
use crate::identity::{Epoch, Lane, StreamId};
use crate::record::{Adopted, Completion, Outcome, Record};
use crate::replica_log::{LogOperation, LogReply, LogRequest};
use crate::stream_writer::{StreamTail, WriterEvent};
use bytes::Bytes;
use mail::QueueId;
use std::collections::BTreeSet;
use std::time::Duration;

/// Time between trims of a stream.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

impl Owner {
    /// Returns the next action. Call it until it returns `None`, after each event and at `wake_at`.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Action> {
        if self.actions.is_empty() {
            self.read_for_copies(now);
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
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if slot.phase == Phase::Open && slot.messages.is_flowing() {
            slot.flush_done(now, &self.settings, self.is_releasing);
            let may_release = self.is_releasing && is_settled && !slot.is_release_sent && slot.uploads.is_empty();
            if may_release && slot.done.is_empty() && slot.messages.is_drained() {
                slot.messages.push(Record::Release, 0);
                slot.is_release_sent = true;
            }
        }
        self.want_claim(now, stream);
        self.poll_claim(now, stream);
        self.poll_scan(now, stream);
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
    }

    fn ask(&mut self, purpose: Purpose, attempt: u64, stream: StreamId, lane: Lane, operation: LogOperation) {
        let token = Token { purpose, attempt };
        self.actions.push_back(Action::Log { token, request: LogRequest { stream, lane, operation } });
    }

    /// The next time at which `poll` has something to do.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let of_slot = |slot: &Slot| {
            let claim = slot.claim_goal.map(|_| slot.claim_at);
            let takes_back = slot.stored_at + self.settings.reshadow_after;
            let may_take_back = slot.claim_goal.is_none() && slot.is_away();
            let takes_back = may_take_back.then_some(takes_back);
            let scan = matches!(slot.phase, Phase::Scanning { .. } | Phase::Foreign { .. }).then_some(slot.scan_at);
            let done = slot.done_since.map(|since| since + self.settings.done_delay);
            let done = done.filter(|_| slot.phase == Phase::Open && slot.messages.is_flowing());
            [slot.messages.wake_at(), slot.bodies.wake_at(), claim, takes_back, scan, done].into_iter().flatten().min()
        };
        self.slots.values().filter_map(of_slot).min()
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
        match (lane, event) {
            (Lane::Messages, WriterEvent::TailRead(tail)) => self.look_at_tail(now, stream, tail),
            (Lane::Messages, WriterEvent::Opened { sequence }) => self.opened(now, stream, sequence),
            (Lane::Messages, WriterEvent::Stored { sequence, octets, records }) => {
                self.block_stored(now, stream, sequence, octets, records);
            }
            (_, WriterEvent::Stalled { is_full }) => self.leave_stalled(now, stream, is_full),
            (Lane::Messages, WriterEvent::Fenced { epoch, by }) => {
                self.report(Report::Fenced { stream, epoch, by });
                self.leave_stalled(now, stream, false);
                self.begin_foreign(now, stream);
            }
            (_, WriterEvent::Missing) => self.stream_missing(now, stream, lane),
            (Lane::Bodies, WriterEvent::TailRead(tail)) => {
                let start = self.settings.start;
                if let Some(slot) = self.slots.get_mut(&stream) {
                    slot.bodies.fence(&tail, tail.epoch().next_at_start(start), false);
                }
            }
            (Lane::Bodies, WriterEvent::Opened { .. }) => {}
            (Lane::Bodies, WriterEvent::Stored { sequence, records, .. }) => {
                self.pieces_stored(stream, sequence, &records);
            }
            (_, WriterEvent::Damaged { why }) => self.damaged(now, stream, why),
            (Lane::Bodies, WriterEvent::Fenced { epoch, by }) => {
                self.damaged(now, stream, format!("{by} fenced the bodies of {stream} in epoch {}", epoch.0));
            }
        }
    }

    /// Decides what the tail of a stream that is not open means.
    fn look_at_tail(&mut self, now: Duration, stream: StreamId, tail: StreamTail) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.had_blocks |= tail.sequence > 0;
        let own = (self.settings.node, self.settings.incarnation);
        if tail.sequence == 0 && slot.was_listed && slot.phase == Phase::Unread {
            let why = format!("{stream} is empty, it had blocks of an earlier start");
            return self.damaged(now, stream, why);
        }
        let is_own = tail
            .block
            .as_ref()
            .is_none_or(|block| (block.header.writer, block.header.incarnation) == own && !block.is_of_adoption());
        if is_own {
            slot.messages.fence(&tail, tail.epoch().next_at_start(self.settings.start), false);
        } else {
            slot.foreign_tail = Some(tail);
            self.begin_foreign(now, stream);
        }
    }

    fn begin_foreign(&mut self, now: Duration, stream: StreamId) {
        if let Some(slot) = self.slots.get_mut(&stream) {
            slot.phase = Phase::Foreign { next: 1, taken: Vec::new(), is_over: false };
            slot.scan_at = now;
            slot.scan_asked = None;
        }
    }

    fn opened(&mut self, now: Duration, stream: StreamId, sequence: u64) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.stored_at = now;
        slot.is_stalled = false;
        slot.stalled_until = now;
        slot.is_release_sent = false;
        slot.is_hostage_reported = false;
        let was_abandoned = slot.phase == Phase::Abandoned;
        if was_abandoned || sequence == 1 {
            slot.index.clear();
            slot.index.entry(sequence).or_default();
            slot.phase = Phase::Open;
            slot.claim_goal = None;
        } else {
            slot.found.clear();
            slot.phase = Phase::Scanning { next: 1, fence: sequence };
            slot.scan_at = now;
            slot.scan_asked = None;
        }
        slot.had_blocks = true;
        slot.held = slot.messages.epoch();
    }

    fn block_stored(&mut self, now: Duration, stream: StreamId, sequence: u64, octets: usize, records: Vec<Record>) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.stored_at = now;
        slot.is_stalled = false;
        slot.index.entry(sequence).or_default().octets = octets;
        let mut accepted = Vec::new();
        for record in records {
            match record {
                Record::Accept(one) => accepted.push(one.id),
                Record::Done(list) => slot.done_stored(list.len()),
                _ => {}
            }
        }
        for id in accepted {
            self.copy_stored(stream, sequence, id);
        }
    }

    fn copy_stored(&mut self, stream: StreamId, sequence: u64, id: QueueId) {
        let (Some(slot), Some(message)) = (self.slots.get_mut(&stream), self.messages.get_mut(&id)) else { return };
        let octets = message.octets;
        let Some(copy) = message.copies.iter_mut().find(|copy| copy.stream == stream) else { return };
        copy.pending = copy.pending.saturating_sub(1);
        if let Some(earlier) = copy.sequence.replace(sequence) {
            slot.unindex_message(earlier, id);
        }
        slot.index_message(sequence, id, octets);
        self.settle(id);
    }

    fn pieces_stored(&mut self, stream: StreamId, sequence: u64, records: &[Record]) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
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
        let was_used = slot.was_listed && slot.phase == Phase::Unread && lane == Lane::Messages;
        if slot.had_blocks || was_used {
            self.damaged(now, stream, format!("the engine has no {stream} any more"));
            return;
        }
        self.ask(Purpose::OwnerCreate(stream), 0, stream, Lane::Messages, LogOperation::Create);
        self.ask(Purpose::OwnerCreate(stream), 0, stream, Lane::Bodies, LogOperation::Create);
    }

    fn damaged(&mut self, now: Duration, stream: StreamId, why: String) {
        self.report(Report::CopiesLost { stream, why });
        self.leave_stalled(now, stream, false);
        if let Some(slot) = self.slots.get_mut(&stream) {
            slot.claim_goal = Some(ClaimGoal::Replace);
            slot.claim_at = now;
        }
    }

    /// Begins to take back the mail of a stream that has been out of reach for long.
    fn want_claim(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let is_due =
            slot.is_away() && slot.claim_goal.is_none() && now >= slot.stored_at + self.settings.reshadow_after;
        if !is_due {
            return;
        }
        let is_here = |copy: &CopyPlace| copy.stream == stream;
        if self.messages.values().any(|message| message.is_uncertain || message.copies.iter().any(is_here)) {
            slot.claim_goal = Some(ClaimGoal::TakeBack);
            slot.claim_at = now;
        } else {
            slot.stored_at = now;
        }
    }

    fn poll_claim(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if slot.claim_goal.is_none() || now < slot.claim_at {
            return;
        }
        slot.claim_attempt += 1;
        slot.claim_at = now + self.settings.append_timeout;
        let token = Token { purpose: Purpose::OwnerClaim(stream), attempt: slot.claim_attempt };
        let request = CoordinationRequest::Get { key: stream.claim_key() };
        self.actions.push_back(Action::Coordinate { token, request });
    }

    /// Takes an answer about a claim.
    pub(crate) fn claim_answered(&mut self, now: Duration, token: Token, reply: CoordinationReply) {
        let Purpose::OwnerClaim(stream) = token.purpose else { return };
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let Some(goal) = slot.claim_goal.filter(|_| slot.claim_attempt == token.attempt) else { return };
        match reply {
            CoordinationReply::Found(found) => {
                let revision = found.as_ref().map_or(0, |kv| kv.revision);
                let claim = match &found {
                    Some(kv) => Claim::read(&kv.value),
                    None => Some(Claim::default()),
                };
                if let Some(claim) = claim {
                    self.change_claim(now, stream, goal, claim, revision);
                }
            }
            CoordinationReply::Written { .. } => self.claim_written(now, stream, goal),
            CoordinationReply::Conflict | CoordinationReply::Unknown => {
                slot.claim_at = now + self.settings.tail_interval
            }
            CoordinationReply::Listed(_) => {}
        }
    }

    fn change_claim(&mut self, now: Duration, stream: StreamId, goal: ClaimGoal, claim: Claim, revision: u64) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let held = slot.held;
        let moved = if held == Epoch(0) { Epoch::before_start(self.settings.start) } else { held };
        let wanted = match goal {
            ClaimGoal::Reopen if claim.adopter.is_none() && !claim.seconds_taken => return slot.claim_goal = None,
            ClaimGoal::Reopen => Ok(claim.reopened(held)),
            ClaimGoal::TakeBack | ClaimGoal::Replace if self.settings.sabotage.no_claim => {
                Ok(Claim { adopter: None, moved_epoch: moved, ..claim })
            }
            ClaimGoal::TakeBack | ClaimGoal::Replace => claim.taken_back(self.settings.node, held, moved),
        };
        match wanted {
            Ok(wanted) if wanted == claim => self.claim_written(now, stream, goal),
            Ok(wanted) => self.put_claim(now, stream, wanted, revision),
            Err(_) if goal == ClaimGoal::Replace => {
                // The stream is lost with the adopter's list of what it took: rather twice than never.
                slot.is_forced = true;
                let moved_epoch = moved.max(claim.epoch);
                let wanted = Claim { epoch: claim.epoch.next(), adopter: None, moved_epoch, ..claim };
                self.put_claim(now, stream, wanted, revision);
            }
            Err(ClaimError::Superseded { .. } | ClaimError::PartOpen { .. }) => {
                // An adopter has it: only the stream itself says which mail, so it must be read.
                slot.claim_at = now + self.settings.tail_interval * 5;
                if goal == ClaimGoal::TakeBack {
                    slot.claim_goal = None;
                    slot.stored_at = now;
                }
                if !std::mem::replace(&mut slot.is_hostage_reported, true) {
                    self.report(Report::Hostage {
                        stream,
                        why: "another node adopts it and its holder is out of reach",
                    });
                }
            }
        }
    }

    fn put_claim(&mut self, now: Duration, stream: StreamId, claim: Claim, expected: u64) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.claim_attempt += 1;
        slot.claim_at = now + self.settings.append_timeout;
        let token = Token { purpose: Purpose::OwnerClaim(stream), attempt: slot.claim_attempt };
        let request = CoordinationRequest::Put { key: stream.claim_key(), value: claim.write(), expected, ttl: None };
        self.actions.push_back(Action::Coordinate { token, request });
    }

    fn claim_written(&mut self, now: Duration, stream: StreamId, goal: ClaimGoal) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.claim_goal = None;
        if goal == ClaimGoal::Reopen {
            return;
        }
        if std::mem::take(&mut slot.is_forced) {
            let is_here = |copy: &CopyPlace| copy.stream == stream;
            let may = self.messages.iter().filter(|(_, one)| one.is_uncertain || one.copies.iter().any(is_here));
            let reports = may.map(|(id, _)| Action::Report(Report::AdoptionUnknown { id: *id }));
            self.actions.extend(reports);
        }
        slot.clear();
        slot.phase = Phase::Abandoned;
        slot.foreign_tail = None;
        slot.stored_at = now;
        slot.messages.read_tail(now);
        slot.bodies.read_tail(now);
        if goal == ClaimGoal::Replace {
            self.slots.remove(&stream);
            let next = StreamId { generation: stream.generation + 1, ..stream };
            let mut slot = Slot::new(&self.settings, next, now);
            slot.phase = Phase::Abandoned;
            self.slots.insert(next, slot);
        }
        let messages = self.detach(stream, false);
        self.report(Report::TakenBack { stream, messages });
    }

    /// Takes the copies in a stream off all messages; returns how many there were.
    fn detach(&mut self, stream: StreamId, is_uncertain: bool) -> usize {
        let mut detached = Vec::new();
        for (id, message) in &mut self.messages {
            let before = message.copies.len();
            message.copies.retain(|copy| copy.stream != stream);
            if message.copies.len() < before {
                message.is_uncertain |= is_uncertain;
                self.has_uncertain |= is_uncertain;
                detached.push(*id);
            }
        }
        for id in &detached {
            if self.messages.get(id).is_some_and(|message| message.copies.is_empty()) && !self.adopted.contains_key(id)
            {
                self.needs_copy.insert(*id);
            }
            self.settle(*id);
        }
        detached.len()
    }

    /// Lets messages go whose copies no stream can have any more.
    fn resolve_uncertain(&mut self) {
        if !self.has_uncertain || !self.slots.values().all(|slot| slot.phase.is_resolved()) {
            return;
        }
        self.has_uncertain = false;
        for (id, message) in self.messages.iter_mut().filter(|(_, message)| message.is_uncertain) {
            message.is_uncertain = false;
            if message.copies.is_empty() {
                self.needs_copy.insert(*id);
            }
        }
    }

    fn poll_scan(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let from = match &slot.phase {
            Phase::Scanning { next, .. } | Phase::Foreign { next, .. } => *next,
            _ => return,
        };
        if now < slot.scan_at {
            return;
        }
        slot.scan_at = now + self.settings.append_timeout;
        slot.scan_attempt += 1;
        let (attempt, octets_max) = (slot.scan_attempt, self.settings.scan_octets);
        let operation = LogOperation::Scan { from, octets_max };
        self.ask(Purpose::OwnerScan(stream), attempt, stream, Lane::Messages, operation);
    }

    fn scanned(&mut self, now: Duration, stream: StreamId, attempt: u64, reply: LogReply) {
        let Some(slot) = self.slots.get_mut(&stream).filter(|slot| slot.scan_attempt == attempt) else { return };
        let LogReply::Scanned { blocks, is_end } = reply else {
            slot.scan_at = now + self.settings.tail_interval;
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
            Phase::Foreign { .. } => self.scan_foreign(now, stream, blocks, is_end),
            _ => {}
        }
    }

    /// Reads a block of the own stream into the set of messages that live.
    fn scan_own(&mut self, stream: StreamId, sequence: u64, octets: &Bytes) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let block = Block::read_of(self.settings.cluster, stream, Lane::Messages, octets);
        if let Phase::Scanning { next, .. } = &mut slot.phase {
            *next = (*next).max(sequence + 1);
        }
        // A block that cannot be read holds no copy that counts; its mail is copied anew.
        let Ok(block) = block else { return };
        slot.index.entry(sequence).or_default().octets = octets.len();
        for record in block.records {
            match record {
                Record::Accept(accepted) => {
                    let found = Found { sequence, accepted, completions: Vec::new() };
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
        slot.claim_goal = Some(ClaimGoal::Reopen);
        slot.claim_at = now;
        let mut lost = Vec::new();
        for (id, found) in found {
            let Found { sequence, accepted, completions } = found;
            let is_done = completions.iter().any(|one| one.recipient.is_none());
            let octets = Record::Accept(accepted.clone()).octets();
            let known = self.messages.get_mut(&id).filter(|message| message.hops == accepted.hops);
            let Some(slot) = self.slots.get_mut(&stream) else { return };
            let Some(message) = known else {
                if !is_done {
                    slot.complete(now, Completion { id, recipient: None, outcome: Outcome::Withdrawn });
                }
                continue;
            };
            message.octets = octets;
            message.is_uncertain = false;
            message.copies.retain(|copy| copy.stream != stream);
            message.copies.push(CopyPlace { stream, sequence: Some(sequence), pending: 0 });
            let twin =
                accepted.twin.map(|twin| twin.stream).filter(|twin| message.copies.iter().all(|c| c.stream != *twin));
            if let Some(twin) = twin.filter(|twin| self.slots.get(twin).is_some_and(|slot| !slot.phase.is_resolved())) {
                // The other copy counts until its stream was read.
                message.copies.push(CopyPlace { stream: twin, sequence: None, pending: 0 });
            }
            let Some(slot) = self.slots.get_mut(&stream) else { return };
            slot.index_message(sequence, id, octets);
            if let crate::record::StoredBody::Pieces(list) = &accepted.body {
                slot.body_index.insert(list.sequences.0, id);
            }
            self.needs_copy.remove(&id);
            // Recipients that the local log knows as finished and the copy does not, and the other way round.
            let in_copy: BTreeSet<u32> =
                accepted.finished.iter().copied().chain(completions.iter().filter_map(|one| one.recipient)).collect();
            for recipient in message.finished.difference(&in_copy) {
                slot.complete(now, Completion { id, recipient: Some(*recipient), outcome: Outcome::Delivered });
            }
            lost.extend(
                completions.into_iter().filter(|one| one.recipient.is_none_or(|r| !message.finished.contains(&r))),
            );
        }
        self.detach_unfound(stream);
        for completion in &lost {
            self.completed(now, *completion);
        }
        if !lost.is_empty() {
            self.actions.push_back(Action::Complete(lost));
        }
    }

    /// Drops copies that another stream's record promised and this stream does not have.
    fn detach_unfound(&mut self, stream: StreamId) {
        for message in self.messages.values_mut() {
            message.copies.retain(|copy| copy.stream != stream || copy.sequence.is_some());
        }
    }

    /// Reads the records of adoption of a stream that another node fenced.
    fn scan_foreign(&mut self, now: Duration, stream: StreamId, blocks: Vec<(u64, Bytes)>, is_end: bool) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let Phase::Foreign { next, taken, is_over } = &mut slot.phase else { return };
        for (sequence, octets) in blocks {
            *next = (*next).max(sequence + 1);
            let Ok(block) = Block::read_of(self.settings.cluster, stream, Lane::Messages, &octets) else { continue };
            for record in &block.records {
                match record {
                    Record::Adopted(adopted) => {
                        taken.extend_from_slice(&adopted.taken);
                        *is_over = adopted.is_last;
                    }
                    Record::Fence(_) => *is_over = false,
                    _ => {}
                }
            }
            slot.foreign_tail = Some(StreamTail { sequence, block: Some(block) });
        }
        if *is_over && is_end {
            let messages = std::mem::take(taken);
            slot.phase = Phase::Forgetting;
            slot.claim_goal = None;
            self.actions.push_back(Action::Forget { stream, messages: messages.clone() });
            self.give_up(now, stream, &messages);
        }
    }

    fn give_up(&mut self, now: Duration, stream: StreamId, taken: &[(QueueId, u16)]) {
        let mut messages = 0;
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
        slot.clear();
        slot.phase = Phase::Unread;
        slot.stored_at = now;
        let Some(tail) = slot.foreign_tail.take() else { return slot.messages.read_tail(now) };
        slot.messages.fence(&tail, tail.epoch().next_at_start(self.settings.start), false);
    }

    fn trim(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if slot.phase != Phase::Open || now < slot.trim_at {
            return;
        }
        slot.drop_dead_front();
        let last = slot.messages.last_sequence();
        let first_kept = slot.index.keys().next().copied().unwrap_or(last);
        let first_body = slot.body_index.keys().next().copied().unwrap_or_else(|| slot.bodies.last_sequence());
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
