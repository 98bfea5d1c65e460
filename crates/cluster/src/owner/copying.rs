//! New mail, copies that are made anew, and compaction: everything that writes ACCEPT.

use super::slot::{Slot, Upload};
use super::{CopyPlace, Gate, Message, Owner, ReadPurpose};
use crate::action::{AcceptAnswer, Action, Content, NewMessage, OnNoReplica, Report};
use crate::identity::{Epoch, StreamId};
use crate::record::{Accepted, Piece, PieceList, Record, StoredBody, Twin};
use crate::settings::Settings;
use bytes::Bytes;
use mail::QueueId;
use std::time::Duration;

/// Messages with one of two copies that one look takes.
const WIDOWED_LOOK_MAX: usize = 4_096;

impl Owner {
    /// Begins the copies of a new message. The answer comes as an action, also for a refusal.
    ///
    /// The caller stores the message in the local log at the same time and calls `stored`.
    pub(crate) fn accept(&mut self, now: Duration, new: NewMessage, policy: OnNoReplica) {
        let id = new.id;
        let is_known = self.messages.contains_key(&id);
        if self.is_draining && !is_known {
            // Its pieces would keep the stream from being given up.
            self.abort_body(id);
        }
        if self.is_draining || is_known {
            self.actions.push_back(Action::Answer { id, answer: AcceptAnswer::TempFail });
            return;
        }
        let is_alone = self.settings.copies <= 1;
        let message = Message {
            hops: 0,
            recipients: new.recipients,
            finished: std::collections::BTreeSet::new(),
            octets: 0,
            copies: Vec::new(),
            is_local: false,
            gate: Gate::Client { policy, needs_copies: !is_alone },
            is_uncertain: false,
            may_be_duplicate: false,
        };
        self.messages.insert(id, message);
        if is_alone {
            return;
        }
        match new.content {
            Content::Whole(_) if self.place(now, &accepted_of(&new, 0, Vec::new())) == 0 => {
                self.accept_without_copy(now, id);
            }
            // The octets are in the local log alone.
            Content::Streamed if !self.end_upload(now, &new) => self.copy_from_log(now, id),
            Content::Whole(_) | Content::Streamed => {}
        }
    }

    /// Lets a client wait while its large message is copied from the local log, if a holder takes it now; else applies
    /// the client's rule.
    fn copy_from_log(&mut self, now: Duration, id: QueueId) {
        let waits = |message: &Message| {
            matches!(message.gate, Gate::Client { needs_copies: true, .. }) && message.copies.is_empty()
        };
        let slots = || self.holders.iter().filter_map(|holder| self.slot_of(*holder));
        let has_room = slots().any(|slot| slot.takes_large(now, &self.settings));
        if has_room && self.messages.get(&id).is_some_and(waits) {
            self.needs_copy.insert(id);
            self.awaited_reads.insert(id);
        } else {
            self.accept_without_copy(now, id);
        }
    }

    /// True when a holder takes mail without a copy.
    pub(super) fn has_target(&self, now: Duration) -> bool {
        let slots = self.holders.iter().filter_map(|holder| self.slot_of(*holder));
        slots.into_iter().any(|slot| slot.takes_copies(now, &self.settings))
    }

    /// Applies the client's rule to a message that no holder takes.
    pub(super) fn accept_without_copy(&mut self, now: Duration, id: QueueId) {
        self.awaited_reads.remove(&id);
        let Some(message) = self.messages.get_mut(&id) else { return };
        match &mut message.gate {
            Gate::Client { policy: OnNoReplica::TempFail, .. } => {
                self.actions.push_back(Action::Answer { id, answer: AcceptAnswer::TempFail });
                self.withdraw(now, id);
            }
            Gate::Client { needs_copies, .. } => {
                *needs_copies = false;
                if message.copies.is_empty() {
                    self.needs_copy.insert(id);
                }
                self.settle(id);
            }
            Gate::Open | Gate::Adoption { .. } => {
                if message.copies.is_empty() {
                    self.needs_copy.insert(id);
                }
                self.settle(id);
            }
        }
    }

    /// Writes the message to as many streams as are wanted and found; returns their number.
    pub(super) fn place(&mut self, now: Duration, accepted: &Accepted) -> usize {
        let wanted = self.settings.copies.saturating_sub(1);
        let is_large = body_of(accepted).is_some_and(|body| body.len() > self.settings.inline_body_max);
        let takes = |slot: &Slot| slot.takes_copies(now, &self.settings) && (!is_large || slot.takes_pieces());
        let slots = || self.holders.iter().filter_map(|holder| self.slot_of(*holder)).filter(|slot| takes(slot));
        let slots = idle_first(slots, &self.settings).take(wanted);
        let targets: Vec<(StreamId, Epoch)> = slots.map(|slot| (slot.stream, slot.messages.epoch())).collect();
        for (stream, _) in &targets {
            let twin = twin_of(&targets, *stream);
            self.push_copy(*stream, Accepted { twin, ..accepted.clone() });
        }
        targets.len()
    }

    fn push_copy(&mut self, stream: StreamId, accepted: Accepted) {
        let (Some(slot), Some(message)) = (self.slots.get_mut(&stream), self.messages.get_mut(&accepted.id)) else {
            return;
        };
        let id = accepted.id;
        match message.copies.iter_mut().find(|copy| copy.stream == stream) {
            Some(copy) => copy.pending += 1,
            None => message.copies.push(CopyPlace::on_its_way(stream)),
        }
        message.octets = Record::Accept(accepted.clone()).octets();
        self.needs_copy.remove(&id);
        self.awaited_reads.remove(&id);
        match &accepted.body {
            StoredBody::Whole(body) if body.len() > self.settings.inline_body_max => {
                let mut upload = slot.new_upload(&self.settings);
                for octets in body.chunks(self.settings.piece_octets) {
                    push_piece(slot, &mut upload, body.slice_ref(octets));
                }
                upload.accepted = Some(accepted);
                // An earlier upload of the same message does not end any more.
                if slot.uploads.insert(id, upload).is_some()
                    && let Some(copy) = message.copies.iter_mut().find(|copy| copy.stream == stream)
                {
                    copy.pending = copy.pending.saturating_sub(1);
                }
            }
            _ => slot.messages.push(Record::Accept(accepted), id.to_u64()),
        }
    }

    /// Sends a piece of a body that still arrives to as many holders as are wanted and found. Without a holder nothing
    /// happens: the whole goes later. A holder that stalls meanwhile is left out.
    pub(crate) fn stream_body(&mut self, now: Duration, id: QueueId, octets: &Bytes) {
        let begun = |slot: &&Slot| slot.uploads.contains_key(&id);
        let mut targets: Vec<StreamId> = self.slots.values().filter(begun).map(|slot| slot.stream).collect();
        // A body that began without a holder, or lost all of them, does not begin in its middle.
        if targets.is_empty() && self.streaming.insert(id) {
            let takes = |slot: &&Slot| slot.takes_large(now, &self.settings);
            let slots = || self.holders.iter().filter_map(|holder| self.slot_of(*holder)).filter(takes);
            let slots = idle_first(slots, &self.settings);
            targets = slots.take(self.settings.copies.saturating_sub(1)).map(|slot| slot.stream).collect();
        }
        for stream in targets {
            let Some(slot) = self.slots.get_mut(&stream) else { continue };
            let mut upload = slot.uploads.remove(&id).unwrap_or_else(|| slot.new_upload(&self.settings));
            let mut rest = octets.clone();
            while !rest.is_empty() {
                let piece = rest.split_to(rest.len().min(self.settings.piece_octets));
                push_piece(slot, &mut upload, piece);
            }
            slot.uploads.insert(id, upload);
        }
    }

    /// Drops the pieces of a body whose transaction failed.
    pub(crate) fn abort_body(&mut self, id: QueueId) {
        self.streaming.remove(&id);
        for slot in self.slots.values_mut() {
            slot.uploads.remove(&id);
        }
    }

    /// Lets the records follow the pieces; false when no holder has all of them.
    fn end_upload(&mut self, now: Duration, new: &NewMessage) -> bool {
        let id = new.id;
        self.streaming.remove(&id);
        let mut targets: Vec<(StreamId, Epoch)> = Vec::new();
        for slot in self.slots.values_mut().filter(|slot| slot.uploads.contains_key(&id)) {
            if slot.takes_mail(now, &self.settings) {
                targets.push((slot.stream, slot.messages.epoch()));
            } else {
                slot.uploads.remove(&id);
            }
        }
        for (stream, _) in &targets {
            let twin = twin_of(&targets, *stream);
            if let Some(upload) = self.slots.get_mut(stream).and_then(|slot| slot.uploads.get_mut(&id)) {
                upload.accepted = Some(Accepted { twin, ..accepted_of(new, 0, Vec::new()) });
            }
            if let Some(message) = self.messages.get_mut(&id) {
                message.copies.push(CopyPlace::on_its_way(*stream));
            }
        }
        for (stream, _) in &targets {
            self.finish_upload(*stream, id);
        }
        !targets.is_empty()
    }

    /// Writes the record of a body whose pieces are all stored.
    pub(super) fn finish_upload(&mut self, stream: StreamId, id: QueueId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let is_whole = |upload: &Upload| upload.stored == upload.pieces && upload.accepted.is_some();
        if !slot.uploads.get(&id).is_some_and(is_whole) {
            return;
        }
        let Some(upload) = slot.uploads.remove(&id) else { return };
        let Some(mut accepted) = upload.accepted else { return };
        let Some(message) = self.messages.get_mut(&id) else { return };
        let sequences = upload.sequences.unwrap_or_default();
        accepted.finished = message.finished.iter().copied().collect();
        let list =
            PieceList { body: upload.body, pieces: upload.pieces, octets: upload.octets, crc: upload.crc, sequences };
        accepted.body = StoredBody::Pieces(list);
        message.octets = Record::Accept(accepted.clone()).octets();
        slot.body_index.insert(id, &list);
        slot.messages.push(Record::Accept(accepted), id.to_u64());
    }

    /// Moves mail that was not sent yet to other holders, and ends the wait of clients whose mail was.
    pub(super) fn leave_stalled(&mut self, now: Duration, stream: StreamId, is_full: bool) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if !slot.is_stalled {
            slot.is_stalled = true;
            self.actions.push_back(Action::Report(Report::HolderStalled { stream, is_full }));
        }
        let wait = if is_full { 10 } else { 1 };
        slot.stalled_until = now + self.settings.tail_interval * wait;
        slot.compacting.clear();
        let mut unsent = Vec::new();
        for record in slot.messages.take_unsent() {
            match record {
                Record::Accept(accepted) => unsent.push(accepted),
                Record::Done(list) => slot.done.splice(0..0, list).for_each(drop),
                _ => {}
            }
        }
        if !slot.done.is_empty() {
            slot.done_since.get_or_insert(now);
        }
        let uploads = std::mem::take(&mut slot.uploads);
        drop(slot.bodies.take_unsent());
        unsent.extend(uploads.into_values().filter_map(|upload| upload.accepted));
        for accepted in unsent {
            self.place_again(now, stream, accepted);
        }
        let in_flight = self.messages.iter().filter(|(_, message)| {
            let is_here = |copy: &CopyPlace| copy.stream == stream && (!copy.is_stored() || message.is_widowed());
            matches!(message.gate, Gate::Client { needs_copies: true, .. }) && message.copies.iter().any(is_here)
        });
        let in_flight: Vec<QueueId> = in_flight.map(|(id, _)| *id).collect();
        for id in in_flight {
            self.accept_without_copy(now, id);
        }
    }

    fn place_again(&mut self, now: Duration, from: StreamId, accepted: Accepted) {
        let id = accepted.id;
        if let (Some(slot), StoredBody::Pieces(list)) = (self.slots.get_mut(&from), &accepted.body) {
            slot.body_index.record_given_up(id, list.body);
        }
        let Some(message) = self.messages.get_mut(&id) else { return };
        if let Some(copy) = message.copies.iter_mut().find(|copy| copy.stream == from) {
            copy.pending = copy.pending.saturating_sub(1);
        }
        message.copies.retain(|copy| copy.stream != from || copy.sequence.is_some() || copy.pending > 0);
        let finished = message.finished.iter().copied().collect();
        let accepted = Accepted { finished, twin: None, ..accepted };
        let is_whole = body_of(&accepted).is_some_and(|body| !body.is_empty());
        if message.copies.iter().any(|copy| copy.stream == from) {
            // It was to be written again; the record that is stored stays.
            self.look_at_pair(now, id);
            return self.settle(id);
        }
        if let Some(stream) = message.copies.first().map(|copy| copy.stream) {
            self.widow(stream, accepted, is_whole);
            return self.settle(id);
        }
        if !is_whole {
            self.copy_from_log(now, id);
        } else if self.place(now, &accepted) == 0 {
            self.accept_without_copy(now, id);
        }
    }

    /// Takes the twin off the record of the only copy that is left: it promises another one, whose adopter it would
    /// leave the message to.
    fn widow(&mut self, stream: StreamId, accepted: Accepted, is_whole: bool) {
        let id = accepted.id;
        let upload = self.slots.get_mut(&stream).and_then(|slot| slot.uploads.get_mut(&id));
        if let Some(waiting) = upload.and_then(|upload| upload.accepted.as_mut()) {
            waiting.twin = None;
        } else if is_whole {
            self.push_copy(stream, accepted);
        } else {
            // The pieces are in the other stream, so the body is read from the local log.
            self.widowed.insert(id);
        }
    }

    /// Asks for messages that need a copy, as many as may be read at a time.
    pub(super) fn read_for_copies(&mut self, now: Duration) {
        if self.settings.copies <= 1 {
            return;
        }
        if !self.has_target(now) {
            return self.end_waits(now);
        }
        let room = self.settings.reads_max.saturating_sub(self.reading.len());
        let wanted = self.awaited_reads.iter().chain(&self.needs_copy).filter(|id| {
            let is_local = self.messages.get(id).is_some_and(|message| message.is_local && !message.is_uncertain);
            is_local && !self.is_read_or_rests(**id)
        });
        let wanted: Vec<QueueId> = wanted.copied().take(room).collect();
        for id in wanted {
            if self.reading.insert(id, ReadPurpose::Copy).is_none() {
                self.actions.push_back(Action::Read { id });
            }
        }
    }

    /// Applies the clients' rule to messages that wait to be read from the local log.
    fn end_waits(&mut self, now: Duration) {
        for id in std::mem::take(&mut self.awaited_reads) {
            self.accept_without_copy(now, id);
        }
    }

    /// Asks for the live messages at the front of a stream most of which is dead.
    pub(super) fn read_for_compaction(&mut self, now: Duration) {
        let mut chosen = Vec::new();
        for slot in self.slots.values_mut() {
            if !slot.takes_mail(now, &self.settings) || slot.is_busy(&self.settings) {
                continue;
            }
            let room = self.settings.reads_max.saturating_sub(self.reading.len());
            let ids = slot.choose_to_compact(&self.settings, room);
            chosen.extend(ids.into_iter().map(|id| (slot.stream, id)));
        }
        for (stream, id) in chosen {
            let is_full = self.reading.len() >= self.settings.reads_max;
            if is_full || self.is_read_or_rests(id) || !self.may_compact(now, id, stream) {
                continue;
            }
            self.reading.insert(id, ReadPurpose::Compact(stream));
            if let Some(slot) = self.slots.get_mut(&stream) {
                slot.compacting.insert(id);
            }
            self.actions.push_back(Action::Read { id });
        }
    }

    /// Asks for messages whose record must be written again because the other copy that it names is gone.
    pub(super) fn read_for_widowed(&mut self, now: Duration) {
        for id in self.widowed.look(WIDOWED_LOOK_MAX) {
            let Some(message) = self.messages.get(&id).filter(|message| message.is_widowed()) else {
                self.widowed.remove(id);
                continue;
            };
            let Some(copy) = message.copies.first() else { continue };
            let takes = self.slots.get(&copy.stream).is_some_and(|slot| slot.takes_mail(now, &self.settings));
            if !message.is_local || !copy.is_stored() || !takes || self.is_read_or_rests(id) {
                continue;
            }
            if self.reading.len() >= self.settings.reads_max {
                return self.widowed.go_back_to(id);
            }
            self.reading.insert(id, ReadPurpose::Compact(copy.stream));
            self.actions.push_back(Action::Read { id });
        }
    }

    /// Takes a message that was read from the local log; `None` when the log does not have it, or cannot read it.
    pub(crate) fn read(&mut self, now: Duration, id: QueueId, found: Option<NewMessage>) {
        let Some(purpose) = self.reading.remove(&id) else { return };
        let is_stale = self.changed.was_read(id);
        let Some(new) = found else { return self.not_read(now, id, purpose) };
        let Some(message) = self.messages.get(&id) else { return };
        let finished = message.finished.iter().copied().collect();
        let mut accepted = accepted_of(&new, message.hops, finished);
        // Adopters say so again.
        accepted.may_be_duplicate = message.may_be_duplicate;
        match purpose {
            ReadPurpose::Copy if message.copies.is_empty() => {
                if self.place(now, &accepted) == 0 {
                    self.accept_without_copy(now, id);
                }
            }
            ReadPurpose::Copy => {}
            ReadPurpose::Compact(stream) => match self.twin_to_write_again(now, id, stream) {
                Some(twin) => self.push_copy(stream, Accepted { twin, ..accepted }),
                // Its twin cannot be written now: the record stays, and the next compaction chooses it again.
                None => self.stays_in_lane(stream, id),
            },
        }
        if is_stale {
            self.has_changed(id);
        }
    }

    /// A record that was to move to the end of its lane does not.
    pub(super) fn stays_in_lane(&mut self, stream: StreamId, id: QueueId) {
        if let Some(slot) = self.slots.get_mut(&stream) {
            slot.compacting.remove(&id);
        }
    }
}

/// The other copy as the record in a stream names it; the first of two targets has the first copy.
fn twin_of(targets: &[(StreamId, Epoch)], stream: StreamId) -> Option<Twin> {
    let (other, epoch) = targets.iter().find(|(other, _)| *other != stream)?;
    let is_first = targets.first().is_some_and(|(first, _)| *first == stream);
    Some(Twin { stream: *other, epoch: *epoch, is_first })
}

fn body_of(accepted: &Accepted) -> Option<&Bytes> {
    match &accepted.body {
        StoredBody::Whole(body) => Some(body),
        StoredBody::Pieces(_) => None,
    }
}

/// The holders without much that waits for them, then the others: a busy holder is better than none.
fn idle_first<'a, I: Iterator<Item = &'a Slot>>(
    slots: impl Fn() -> I,
    settings: &Settings,
) -> impl Iterator<Item = &'a Slot> {
    let is_busy = |slot: &&Slot| slot.is_busy(settings);
    slots().filter(move |slot| !is_busy(slot)).chain(slots().filter(move |slot| is_busy(slot)))
}

fn push_piece(slot: &mut Slot, upload: &mut Upload, octets: Bytes) {
    upload.crc = crc32c::crc32c_append(upload.crc, &octets);
    upload.octets += octets.len() as u64;
    slot.bodies.push(Record::Piece(Piece { body: upload.body, number: upload.pieces, octets }), 0);
    upload.pieces += 1;
}

fn accepted_of(new: &NewMessage, hops: u16, finished: Vec<u32>) -> Accepted {
    Accepted {
        id: new.id,
        hops,
        may_be_duplicate: false,
        queued_at_us: new.queued_at_us,
        expires_at_us: new.expires_at_us,
        recipients: new.recipients,
        finished,
        twin: None,
        envelope: new.envelope.clone(),
        body: StoredBody::Whole(match &new.content {
            Content::Whole(body) => body.clone(),
            Content::Streamed => Bytes::new(),
        }),
    }
}
