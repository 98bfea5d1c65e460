//! The owner's side of the claim: mail taken back from a stream that is out of reach or lost, and messages whose copies
//! are known again.

use super::slot::{ClaimGoal, Phase, Slot};
use super::{CopyPlace, Gate, Message, Owner};
use crate::action::{Action, Purpose, Report, Token};
use crate::claim::{Claim, ClaimError};
use crate::coordination::{CoordinationReply, CoordinationRequest};
use crate::identity::{Epoch, StreamId};
use mail::QueueId;
use std::time::Duration;

/// Time after which a question that a watch hastens is asked, so that many changes make one question.
const HASTENED_WAIT: Duration = Duration::from_millis(50);

impl Owner {
    /// Begins to take back the mail of a stream that has been out of reach for long.
    pub(super) fn want_claim(&mut self, now: Duration, stream: StreamId) {
        // A holder that leaves and still answers is given up when another one takes the copies.
        let leaves = self.departing.contains(&stream.holder);
        let may_move = leaves && self.has_target(now);
        let Some(slot) = self.slots.get(&stream) else { return };
        if slot.claim_goal.is_some_and(|goal| goal != ClaimGoal::Decide) {
            return;
        }
        if slot.is_damaged && slot.phase == Phase::Open {
            if let Some(slot) = self.slots.get_mut(&stream) {
                slot.want(now, ClaimGoal::Replace);
            }
            return;
        }
        let is_lost = slot.is_away() && self.has_been_silent(now, slot);
        let is_left = may_move && slot.phase == Phase::Open && slot.live > 0 && now >= slot.claim_at;
        if !is_lost && !is_left {
            return;
        }
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let is_here = |copy: &CopyPlace| copy.stream == stream;
        // A holder that left never learns what was done: the claim says it.
        let lacks_ends = leaves && slot.unstored_count > 0;
        let has_mail = |message: &Message| message.is_uncertain || message.copies.iter().any(is_here);
        if lacks_ends || self.messages.values().any(has_mail) {
            let is_damaged = matches!(&slot.phase, Phase::Foreign(foreign) if foreign.is_damaged);
            slot.want(now, if is_damaged { ClaimGoal::Replace } else { ClaimGoal::TakeBack });
            slot.take_back_at = (is_left || self.is_departing).then_some(now);
            slot.claim_put = Claim::default();
        } else {
            slot.stored_at = now;
        }
    }

    /// True when the holder has stored nothing for as long as its mail waits for it.
    fn has_been_silent(&self, now: Duration, slot: &Slot) -> bool {
        now >= slot.stored_at + self.take_back_wait(slot)
    }

    /// The claim of a stream has changed: an adopter may have recorded more, or have ended.
    pub(crate) fn hasten(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if matches!(slot.phase, Phase::Foreign(_)) {
            slot.scan_at = slot.scan_at.min(now + HASTENED_WAIT);
        }
        if slot.claim_goal.is_some() {
            slot.claim_at = slot.claim_at.min(now + HASTENED_WAIT);
        }
    }

    /// Withdraws the goal to take mail back when the holder is back, unless the claim may be written already. The
    /// holder and the store of claims may have been away together, or this node may have stood still.
    fn withdraw_take_back(&mut self, now: Duration, stream: StreamId) {
        let leaves = self.departing.contains(&stream.holder);
        let Some(slot) = self.slots.get(&stream) else { return };
        let is_back = slot.phase == Phase::Open && slot.messages.is_flowing();
        let is_lost = !is_back || self.has_been_silent(now, slot);
        let is_unwritten = slot.claim_goal == Some(ClaimGoal::TakeBack) && slot.claim_put == Claim::default();
        if !leaves
            && !is_lost
            && is_unwritten
            && let Some(slot) = self.slots.get_mut(&stream)
        {
            slot.claim_goal = None;
        }
    }

    pub(super) fn poll_claim(&mut self, now: Duration, stream: StreamId) {
        self.withdraw_take_back(now, stream);
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
        self.withdraw_take_back(now, stream);
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let Some(goal) = slot.claim_goal.filter(|_| slot.claim_attempt == token.attempt) else { return };
        match reply {
            CoordinationReply::Found(found) => {
                let revision = found.as_ref().map_or(0, |kv| kv.revision);
                let claim = match &found {
                    Some(kv) => Claim::read(&kv.value),
                    None => Some(Claim::default()),
                };
                if goal == ClaimGoal::TakeBack
                    && !slot.may_take_back(now, self.settings.append_timeout + self.settings.tail_interval)
                {
                    return;
                }
                if let Some(claim) = claim {
                    slot.claim = claim.clone();
                    self.change_claim(now, stream, goal, claim, revision);
                }
            }
            CoordinationReply::Written { .. } => {
                slot.claim = std::mem::take(&mut slot.claim_put);
                self.claim_written(now, stream, goal);
            }
            CoordinationReply::Conflict | CoordinationReply::Unknown => {
                slot.claim_at = now + self.settings.tail_interval
            }
            CoordinationReply::Listed(_) => {}
        }
    }

    fn change_claim(&mut self, now: Duration, stream: StreamId, goal: ClaimGoal, claim: Claim, revision: u64) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let (held, incarnation) = (slot.held, self.settings.incarnation);
        let moved = if held == Epoch(0) { Epoch::before_start(self.settings.start) } else { held };
        let wanted = match goal {
            ClaimGoal::Reopen => Ok(claim.clone().reopened(held)),
            ClaimGoal::Decide => claim.clone().decided_by_owner(self.settings.node, incarnation, held),
            ClaimGoal::TakeBack | ClaimGoal::Replace if self.settings.sabotage.no_claim => {
                Ok(Claim { adopter: None, ..claim.clone().moved(incarnation, moved) })
            }
            ClaimGoal::TakeBack | ClaimGoal::Replace => {
                claim.clone().taken_back(self.settings.node, incarnation, held, moved)
            }
        };
        match wanted {
            Ok(wanted) if wanted == claim => self.claim_written(now, stream, goal),
            Ok(wanted) => self.put_claim(now, stream, &wanted, revision),
            Err(_) if goal == ClaimGoal::Replace && !slot.awaits_fence(now) => {
                // The stream is lost with the adopter's list of what it took: rather twice than never.
                slot.is_forced = true;
                let epoch = claim.epoch;
                let moved = claim.moved(incarnation, moved.max(epoch));
                let wanted = Claim { epoch: epoch.next(), adopter: None, ..moved };
                self.put_claim(now, stream, &wanted, revision);
            }
            Err(ClaimError::Superseded { .. } | ClaimError::PartOpen { .. }) => {
                // An adopter has it: only the stream itself says which mail, so it must be read.
                slot.claim_at = now + self.settings.tail_interval * 5;
                match goal {
                    ClaimGoal::TakeBack if slot.awaits_reopen => {
                        slot.want(now + self.settings.tail_interval * 5, ClaimGoal::Reopen);
                    }
                    ClaimGoal::TakeBack => (slot.claim_goal, slot.stored_at) = (None, now),
                    ClaimGoal::Decide => return slot.claim_goal = None,
                    ClaimGoal::Replace | ClaimGoal::Reopen => {}
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

    fn put_claim(&mut self, now: Duration, stream: StreamId, claim: &Claim, expected: u64) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.claim_attempt += 1;
        slot.claim_at = now + self.settings.append_timeout;
        slot.claim_put = claim.clone();
        let token = Token { purpose: Purpose::OwnerClaim(stream), attempt: slot.claim_attempt };
        let request = CoordinationRequest::Put { key: stream.claim_key(), value: claim.write(), expected, ttl: None };
        self.actions.push_back(Action::Coordinate { token, request });
    }

    fn claim_written(&mut self, now: Duration, stream: StreamId, goal: ClaimGoal) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        slot.claim_goal = None;
        slot.awaits_reopen &= goal == ClaimGoal::Decide;
        if matches!(goal, ClaimGoal::Reopen | ClaimGoal::Decide) {
            if !self.settings.sabotage.keeps_moved {
                self.drop_moved(stream);
            }
            return self.look_at_decisions(stream);
        }
        if std::mem::take(&mut slot.is_forced) {
            let is_here = |copy: &CopyPlace| copy.stream == stream;
            let may = self.messages.iter().filter(|(_, one)| one.is_uncertain || one.copies.iter().any(is_here));
            let reports = may.map(|(id, _)| Action::Report(Report::AdoptionUnknown { id: *id }));
            self.actions.extend(reports);
        }
        let is_replaced = goal == ClaimGoal::Replace || slot.is_damaged;
        slot.clear();
        slot.phase = Phase::Abandoned;
        slot.foreign_tail = None;
        slot.stored_at = now;
        slot.messages.read_tail(now);
        slot.bodies.read_tail(now);
        if is_replaced {
            self.begin_next_generation(now, stream);
        }
        let messages = self.detach(stream, false);
        self.report(Report::TakenBack { stream, messages });
    }

    /// Puts the next generation in the place of a stream that has no mail of this owner any more.
    pub(super) fn begin_next_generation(&mut self, now: Duration, stream: StreamId) {
        self.slots.remove(&stream);
        let next = StreamId { generation: stream.generation + 1, ..stream };
        let mut slot = Slot::new(&self.settings, next, now);
        slot.phase = Phase::Abandoned;
        self.slots.insert(next, slot);
    }

    /// Takes the copies in a stream off all messages; returns how many there were.
    pub(super) fn detach(&mut self, stream: StreamId, is_uncertain: bool) -> usize {
        let is_here = |copy: &CopyPlace| copy.stream == stream;
        let ids = self.messages.iter().filter(|(_, message)| message.copies.iter().any(is_here));
        let ids: Vec<QueueId> = ids.map(|(id, _)| *id).collect();
        ids.iter().for_each(|id| self.detach_copy(*id, stream, is_uncertain));
        ids.len()
    }

    /// Takes copies off their messages that an adopter passes over: the claim says that their owner has the mail back.
    /// An earlier start took it back, and ended before the holder was back and the stream was trimmed.
    fn drop_moved(&mut self, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        let life = self.settings.incarnation;
        let mut dropped = Vec::new();
        for (id, message) in &mut self.messages {
            let Some(copy) = message.copies.iter_mut().find(|copy| copy.stream == stream) else { continue };
            let Some(sequence) = copy.sequence.filter(|_| slot.claim.is_moved(life, copy.epoch)) else { continue };
            slot.unindex_message(sequence, *id);
            if copy.pending == 0 {
                slot.body_index.remove(*id);
                dropped.push(*id);
            } else {
                // The record on its way is of the present epoch, so that it counts.
                *copy = CopyPlace { pending: copy.pending, ..CopyPlace::on_its_way(stream) };
            }
        }
        dropped.into_iter().for_each(|id| self.detach_copy(id, stream, false));
    }

    fn detach_copy(&mut self, id: QueueId, stream: StreamId, is_uncertain: bool) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.copies.retain(|copy| copy.stream != stream);
        message.drop_unnamed(|other| self.slots.get(&other).is_none_or(Slot::is_resolved));
        message.is_uncertain |= is_uncertain;
        self.has_uncertain |= is_uncertain;
        self.widowed.insert(id);
        if message.copies.is_empty() && !self.adopted.contains_key(&id) {
            self.needs_copy.insert(id);
            if !is_uncertain && matches!(message.gate, Gate::Client { needs_copies: true, .. }) {
                self.awaited_reads.insert(id);
            }
        }
        self.settle(id);
    }

    /// Lets messages go whose copies no stream can have any more.
    pub(super) fn resolve_uncertain(&mut self) {
        if !self.has_uncertain || !self.slots.values().all(Slot::is_resolved) {
            return;
        }
        self.has_uncertain = false;
        for (id, message) in self.messages.iter_mut().filter(|(_, message)| message.is_uncertain) {
            message.is_uncertain = false;
            self.widowed.insert(*id);
            // One of two copies may lack an end that only the other one had.
            let may_lack_ends = message.copies.iter().all(|copy| copy.has_twin);
            if self.was_adopted && message.may_be_duplicate && may_lack_ends {
                self.actions.push_back(Action::Report(Report::ResultUnknown { id: *id }));
            }
            if message.copies.is_empty() {
                self.needs_copy.insert(*id);
            }
        }
    }
}

impl Slot {
    /// Sets the change that the claim needs. Answers to requests of an earlier goal do not count for this one.
    pub(super) const fn want(&mut self, now: Duration, goal: ClaimGoal) {
        self.claim_goal = Some(goal);
        self.claim_at = now;
        self.claim_attempt += 1;
        self.is_forced = false;
        self.superseded_at = None;
    }

    /// True while the lane of messages may show the fence of the adopter that the claim names. The engine has lost that
    /// fence if it stores a block of this node instead.
    fn awaits_fence(&mut self, now: Duration) -> bool {
        let since = *self.superseded_at.get_or_insert(now);
        let is_stored_since = self.messages.proven_at().is_some_and(|at| at > since);
        self.phase == Phase::Open && !self.messages.has_ended() && !is_stored_since
    }

    /// True when this time has passed since the first answer of the store of claims. By then the writer has asked a
    /// holder that came back together with the store.
    fn may_take_back(&mut self, now: Duration, after: Duration) -> bool {
        let at = *self.take_back_at.get_or_insert(now + after);
        if now < at {
            self.claim_at = at;
        }
        now >= at
    }
}
