//! The two copies of a message with `copies = 3`.
//!
//! The record of the first copy names the stream of the second. That of the second names the stream and the epoch of
//! the first; the claim of the stream with the first copy decides by this epoch which of them is adopted. So the first
//! copy is written again within its epoch, or when the claim says that first copies of its epoch are adopted: then the
//! old record of the second copy does not count any more, and it is written after the first one.
//!
//! | State | Next |
//! |---|---|
//! | one copy for [`LONE_REST`], and another holder takes mail | the copy is written again as the first of two |
//! | the second copy is not written, or names an earlier epoch of the first | the second copy is written |
//! | the claim says that first copies of its epoch are adopted | the first copy is written again, then the second |
//! | the claim says that second copies are adopted | the first copy is given up, and the second is one copy |
//!
//! Until the second copy is written again the message has one copy that counts. A crash between the two writes leaves a
//! pair that the next start finds uneven.

use super::slot::{ClaimGoal, Phase, Slot};
use super::turns::Turns;
use super::{CopyPlace, Gate, Message, Owner, ReadPurpose};
use crate::action::Action;
use crate::claim::AdoptedCopy;
use crate::identity::StreamId;
use crate::record::{Completion, Outcome, Twin};
use mail::QueueId;
use std::collections::VecDeque;
use std::time::Duration;

/// Time until a message that has one copy gets a second one: most mail is delivered by then.
const LONE_REST: Duration = Duration::from_secs(10);
/// Time between looks while nothing can be written.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Messages that one look takes.
const LOOK_MAX: usize = 256;

/// Messages whose copies may have to be written again as a pair.
#[derive(Debug, Default)]
pub(super) struct UnevenPairs {
    /// Messages with one copy, with the time from which they get another one.
    resting: VecDeque<(Duration, QueueId)>,
    ready: Turns<QueueId>,
    look_at: Duration,
}

impl UnevenPairs {
    /// Forgets a message that is gone. One that rests is passed over when its time has come.
    pub(super) fn remove(&mut self, id: QueueId) {
        self.ready.remove(id);
    }

    /// The next time at which a message has rested.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.resting.front().map(|(at, _)| *at)
    }
}

/// The next write of a message whose copies are no even pair.
enum PairStep {
    /// None: the copies are as they should be, or an event that is to come changes them.
    Nothing,
    /// It must wait: a holder takes nothing now, or the message is being read or is not in the local log yet.
    Later,
    /// The copy in this stream is written again.
    Write(StreamId),
    /// The copy in this stream is never adopted.
    GiveUp(StreamId),
}

impl Message {
    /// The first and the second of two copies, by the stored record of the first one.
    fn pair(&self) -> Option<(&CopyPlace, &CopyPlace)> {
        let [one, other] = self.copies.as_slice() else { return None };
        let is_first = |copy: &CopyPlace, other: &CopyPlace| {
            copy.twin.is_some_and(|twin| twin.is_first && twin.stream == other.stream)
        };
        let (first, second) = match (is_first(one, other), is_first(other, one)) {
            (true, false) => (one, other),
            (false, true) => (other, one),
            _ => return None,
        };
        second.twin.is_none_or(|twin| twin.stream == first.stream).then_some((first, second))
    }

    /// Takes away copies that no stored record names and that are not written. One in a stream that is not resolved may
    /// be found there.
    pub(super) fn drop_unnamed(&mut self, is_resolved: impl Fn(StreamId) -> bool) {
        let named: Vec<StreamId> = self.copies.iter().filter_map(|copy| Some(copy.twin?.stream)).collect();
        self.copies.retain(|copy| {
            copy.sequence.is_some() || copy.pending > 0 || named.contains(&copy.stream) || !is_resolved(copy.stream)
        });
    }
}

impl Owner {
    /// Looks at the copies of a message after a record of it was stored or found, or was taken away.
    pub(super) fn look_at_pair(&mut self, now: Duration, id: QueueId) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        if self.settings.copies > 2 {
            let slots = &self.slots;
            message.drop_unnamed(|stream| slots.get(&stream).is_none_or(Slot::is_resolved));
        }
        match message.copies.as_slice() {
            [copy] if copy.has_twin => self.widowed.insert(id),
            [_] if self.settings.copies > 2 => self.uneven.resting.push_back((now + LONE_REST, id)),
            [_, _] if message.pair().is_some_and(|(first, second)| is_uneven(first, second)) => {
                self.uneven.ready.insert(id);
            }
            _ => {}
        }
    }

    /// The claim of a stream is known: pairs whose first copy is in it may have to be written again.
    pub(super) fn look_at_decisions(&mut self, stream: StreamId) {
        let is_decided = |first: &CopyPlace| first.stream == stream && self.adopted_copy(first).is_some();
        let has_decided = |message: &Message| message.pair().is_some_and(|(first, _)| is_decided(first));
        let decided = self.messages.iter().filter(|(_, message)| has_decided(message));
        let decided: Vec<QueueId> = decided.map(|(id, _)| *id).collect();
        self.uneven.ready.extend(decided);
    }

    /// Asks for messages whose copies are written again as a pair.
    pub(super) fn read_for_pairs(&mut self, now: Duration) {
        while let Some((_, id)) = self.uneven.resting.pop_front_if(|(at, _)| *at <= now) {
            self.uneven.ready.insert(id);
        }
        if self.uneven.ready.is_empty() || now < self.uneven.look_at || self.is_draining {
            return;
        }
        let mut has_begun = false;
        for id in self.uneven.ready.look(LOOK_MAX) {
            if self.reading.len() >= self.settings.reads_max {
                return self.uneven.ready.go_back_to(id);
            }
            match self.pair_step(now, id) {
                PairStep::Later => continue,
                PairStep::Nothing => {}
                PairStep::GiveUp(stream) => self.give_up_first(now, id, stream),
                PairStep::Write(stream) => {
                    self.reading.insert(id, ReadPurpose::Compact(stream));
                    self.actions.push_back(Action::Read { id });
                    has_begun = true;
                }
            }
            self.uneven.ready.remove(id);
        }
        if !has_begun && self.uneven.ready.is_turn_over() {
            self.uneven.look_at = now + LOOK_INTERVAL;
        }
    }

    fn pair_step(&self, now: Duration, id: QueueId) -> PairStep {
        let Some(message) = self.messages.get(&id).filter(|message| !message.is_uncertain) else {
            return PairStep::Nothing;
        };
        if self.is_read_or_rests(id) || !message.is_local {
            return PairStep::Later;
        }
        let write = |stream: StreamId, may: bool| if may { PairStep::Write(stream) } else { PairStep::Later };
        if let [copy] = message.copies.as_slice() {
            return match copy.is_stored() && !copy.has_twin {
                true => write(copy.stream, self.takes_again(now, copy.stream) && self.new_twin(now, id).is_some()),
                false => PairStep::Nothing,
            };
        }
        let Some((first, second)) = message.pair() else { return PairStep::Nothing };
        if is_uneven(first, second) {
            return write(second.stream, self.takes_again(now, second.stream));
        }
        let Some(slot) = self.slots.get(&first.stream) else { return PairStep::Nothing };
        if !first.is_stored() || !second.is_stored() || first.epoch >= slot.messages.epoch() {
            return PairStep::Nothing;
        }
        match self.adopted_copy(first) {
            Some(AdoptedCopy::First) => {
                let may = self.takes_again(now, first.stream) && self.takes_again(now, second.stream);
                write(first.stream, may)
            }
            Some(AdoptedCopy::Second) => PairStep::GiveUp(first.stream),
            None => PairStep::Nothing,
        }
    }

    fn takes_again(&self, now: Duration, stream: StreamId) -> bool {
        let slot = self.slots.get(&stream);
        slot.is_some_and(|slot| slot.takes_mail(now, &self.settings) && !slot.is_busy(&self.settings))
    }

    /// Gives up the first copy of a pair whose second one is adopted.
    fn give_up_first(&mut self, now: Duration, id: QueueId, stream: StreamId) {
        let (Some(message), Some(slot)) = (self.messages.get_mut(&id), self.slots.get_mut(&stream)) else { return };
        let Some(at) = message.copies.iter().position(|copy| copy.stream == stream) else { return };
        let copy = message.copies.remove(at);
        slot.body_index.remove(id);
        if let Some(sequence) = copy.sequence {
            slot.unindex_message(sequence, id);
        }
        slot.complete(now, Completion { id, recipient: None, outcome: Outcome::Moved });
        self.widowed.insert(id);
    }

    /// A second stream for a message with one copy.
    fn new_twin(&self, now: Duration, id: QueueId) -> Option<Twin> {
        let message = self.messages.get(&id)?;
        let [copy] = message.copies.as_slice() else { return None };
        if self.settings.copies <= 2 || message.gate != Gate::Open || self.is_draining {
            return None;
        }
        let is_large = message.octets > self.settings.inline_body_max;
        let mut slots = self.holders.iter().filter_map(|holder| self.slot_of(*holder));
        let slot = slots.find(|slot| {
            // An end that waits would end the new copy.
            let is_ended = || slot.done.iter().any(|one| one.id == id);
            let takes = slot.stream != copy.stream && self.takes_again(now, slot.stream);
            takes && (!is_large || slot.takes_pieces()) && !is_ended()
        })?;
        Some(Twin { stream: slot.stream, epoch: slot.messages.epoch(), is_first: true })
    }

    /// The other copy that the record of a message names when it is written again; `None` if it must stay where it is.
    /// A second copy that is new is promised from then on.
    pub(super) fn twin_to_write_again(&mut self, now: Duration, id: QueueId, stream: StreamId) -> Option<Option<Twin>> {
        let slot = self.slots.get(&stream).filter(|slot| slot.phase == Phase::Open)?;
        let message = self.messages.get(&id)?;
        if let [copy] = message.copies.as_slice() {
            if copy.stream != stream {
                return None;
            }
            let twin = self.new_twin(now, id);
            if let (Some(twin), Some(message)) = (twin, self.messages.get_mut(&id)) {
                message.copies.push(CopyPlace::promised(twin.stream));
            }
            return Some(twin);
        }
        let (first, second) = message.pair()?;
        let twin = if first.stream == stream {
            let epoch = self.slots.get(&second.stream)?.messages.epoch();
            let may_move = first.epoch == slot.messages.epoch() || self.adopted_copy(first) == Some(AdoptedCopy::First);
            (may_move && !is_uneven(first, second)).then_some(Twin { stream: second.stream, epoch, is_first: true })?
        } else {
            Twin { stream: first.stream, epoch: first.epoch, is_first: false }
        };
        Some(Some(twin))
    }

    /// The copy by which mail in the epoch of a first copy is adopted, if the claim says it.
    fn adopted_copy(&self, first: &CopyPlace) -> Option<AdoptedCopy> {
        if self.settings.sabotage.no_decision {
            return Some(AdoptedCopy::First);
        }
        self.slots.get(&first.stream)?.claim.decision(self.settings.incarnation, first.epoch)
    }

    /// Whether the record of a message in a stream may move to its end. When the claim must decide about its epoch
    /// first, that is begun.
    pub(super) fn may_compact(&mut self, now: Duration, id: QueueId, stream: StreamId) -> bool {
        let Some(message) = self.messages.get(&id) else { return true };
        if message.copies.len() < 2 {
            return true;
        }
        // Which of two copies is the first one is not known while a record of them is on its way or not found.
        let Some((first, second)) = message.pair() else { return false };
        if first.stream != stream {
            return true;
        }
        let decision = self.adopted_copy(first);
        let (Some(slot), false) = (self.slots.get_mut(&stream), is_uneven(first, second)) else { return false };
        if first.epoch >= slot.messages.epoch() {
            return true;
        }
        match decision {
            Some(_) => self.uneven.ready.insert(id),
            None if slot.claim_goal.is_none() => slot.want(now, ClaimGoal::Decide),
            None => {}
        }
        false
    }
}

/// True when the first copy is stored, and the second is not written or names another epoch of the first.
fn is_uneven(first: &CopyPlace, second: &CopyPlace) -> bool {
    first.is_stored() && second.pending == 0 && second.twin.is_none_or(|twin| twin.epoch != first.epoch)
}
