//! The adopter's side of the claim: the first copies that are gone, and the next part.

use super::content::Part;
use super::watch::STUCK_SILENCES;
use super::{Adopter, FirstCopies, Step};
use crate::action::{Action, Report, Token};
use crate::claim::{AdoptedCopy, Claim, ClaimError};
use crate::coordination::{CoordinationReply, KeyValue};
use crate::identity::{Epoch, Incarnation, StreamId};
use crate::membership::Membership;
use crate::status::HostageReason;
use std::collections::BTreeMap;
use std::time::Duration;

/// Heartbeats before an adopter looks again at a stream in which another one stopped within a part.
const OPEN_PART_HEARTBEATS: u32 = 150;

impl Adopter {
    /// Takes an answer about a claim.
    pub(crate) fn claim_answered(
        &mut self,
        now: Duration,
        members: &Membership,
        token: Token,
        reply: CoordinationReply,
    ) {
        if token.attempt != self.attempt {
            return;
        }
        match (&self.step, reply) {
            (Step::Watching, CoordinationReply::Found(found)) => self.note_claim(found.as_ref()),
            (Step::Firsts { .. }, CoordinationReply::Found(found)) => self.judge_first(now, members, found),
            (Step::Firsts { .. }, CoordinationReply::Written { .. }) => {
                if let Some(first) = self.to_decide.pop_front() {
                    let copy = self.decides(first.stream);
                    if let Some(claim) = self.firsts.get_mut(&first.stream) {
                        *claim = std::mem::take(claim).decided(first.incarnation, first.epoch, copy);
                    }
                }
                self.ask_at = now;
            }
            (Step::Claiming { fence }, CoordinationReply::Found(found)) => {
                let fence = *fence;
                self.choose_part(now, members, fence, found);
            }
            (Step::Claiming { fence }, CoordinationReply::Written { .. }) => {
                let fence = *fence;
                self.begin_part(now, fence);
            }
            (_, reply @ (CoordinationReply::Conflict | CoordinationReply::Unknown)) => {
                self.is_claim_sent &= reply == CoordinationReply::Unknown;
                self.ask_at = now + self.settings.tail_interval;
            }
            _ => {}
        }
    }

    /// Asks which copies count of messages whose second copies are here, and decides about first copies that are.
    pub(super) fn begin_firsts(&mut self, now: Duration, fence: u64) {
        let firsts = self.content.first_streams().into_iter();
        let firsts = firsts.map(|((stream, incarnation), epoch)| FirstCopies { stream, incarnation, epoch });
        self.to_decide = firsts.collect();
        let before = Epoch(self.writer.epoch().0.saturating_sub(1));
        if let (Some(incarnation), false) = (self.content.owner, self.to_decide.is_empty()) {
            self.to_decide.push_front(FirstCopies { stream: self.stream, incarnation, epoch: before });
        }
        self.firsts_since = now;
        self.step = Step::Firsts { fence };
    }

    /// Looks at the claim that decides about first copies. Second copies stay until it has decided: the record of this
    /// adoption would be their end.
    fn judge_first(&mut self, now: Duration, members: &Membership, found: Option<KeyValue>) {
        let Some(FirstCopies { stream: first, incarnation, epoch }) = self.to_decide.front().copied() else { return };
        let revision = found.as_ref().map_or(0, |kv| kv.revision);
        let Some(claim) = read_claim(found.as_ref()) else { return };
        let is_settled = claim.decision(incarnation, epoch).is_some();
        self.firsts.insert(first, claim.clone());
        self.ask_at = now;
        let is_left = members.is_fresh(now) && members.entry(first.holder).is_none();
        let is_stuck = now >= self.firsts_since + self.settings.silence * STUCK_SILENCES;
        // Nothing is taken of an owner that is back, but for a part that is open already.
        let is_moot = is_settled || self.is_owner_back(members);
        if is_moot || self.settings.sabotage.no_first_wait && !is_left {
            self.to_decide.pop_front();
        } else if is_left || is_stuck || first == self.stream {
            // The holder is gone with the owner, or does not adopt: no adopter of that stream takes such mail any more.
            let decided = claim.decided(incarnation, epoch, self.decides(first));
            self.put_claim(now, first, &decided, revision);
        } else {
            // Its holder is about to decide, or its entry in the membership is about to expire.
            self.to_decide.rotate_left(1);
            self.ask_at = now + self.settings.tail_interval;
        }
    }

    fn has_undecided_firsts(&self) -> bool {
        let is_open = |((stream, incarnation), epoch): (&(StreamId, Incarnation), &Epoch)| {
            let claim = self.firsts.get(stream);
            claim.is_none_or(|claim| claim.decision(*incarnation, *epoch).is_none())
        };
        !self.settings.sabotage.no_first_wait && self.content.first_streams().iter().any(is_open)
    }

    /// The copies that this adopter has counted when the claim of a stream leaves it open.
    fn decides(&self, first: StreamId) -> AdoptedCopy {
        if first == self.stream { AdoptedCopy::First } else { AdoptedCopy::Second }
    }

    fn begin_part(&mut self, now: Duration, fence: u64) {
        (self.has_open_part, self.is_claim_sent) = (true, false);
        self.step = Step::Taking { next: 1, fence };
        self.ask_at = now;
    }

    fn choose_part(&mut self, now: Duration, members: &Membership, fence: u64, found: Option<KeyValue>) {
        let revision = found.as_ref().map_or(0, |kv| kv.revision);
        let Some(claim) = read_claim(found.as_ref()) else { return };
        self.is_claim_sent = false;
        let is_own_open = claim.adopter == Some(self.settings.node) && claim.adopted_upto > self.content.finished_upto;
        if claim.adopter.is_some_and(|adopter| adopter != self.settings.node) || self.is_resumed && !is_own_open {
            // It names another node only behind the record of a part of this one.
            self.release_open_part();
        }
        let knows_former = self.knows_former_copies || self.settings.sabotage.no_former_copies;
        if is_own_open && self.content.is_of_former_disk && !knows_former {
            // Messages of the part have copies of the earlier disk. The list of those that others adopt is awaited.
            self.resume_part();
            self.ask_at = now + self.settings.tail_interval;
            return;
        }
        self.is_handing_back = self.is_owner_back(members);
        if !self.is_handing_back && self.has_undecided_firsts() {
            // The owner was back when they were asked for, and is gone again.
            return self.begin_firsts(now, fence);
        }
        self.part = if self.is_handing_back {
            Part { upto: self.content.finished_upto, is_last: true, messages: BTreeMap::new() }
        } else {
            self.content.part(&claim, &self.firsts, fence, self.settings.part_messages_max)
        };
        // A part that this node began before a crash must be ended, even if the owner is back.
        if self.is_handing_back && is_own_open {
            self.part = self.content.part(&claim, &self.firsts, claim.adopted_upto, usize::MAX);
            self.part.messages.retain(|_, sequence| *sequence <= claim.adopted_upto);
            self.part.upto = claim.adopted_upto;
        }
        let (me, epoch) = (self.settings.node, self.writer.epoch());
        let wanted = claim.clone().adopted(me, epoch, self.content.owner, self.content.finished_upto, self.part.upto);
        match wanted {
            _ if self.settings.sabotage.no_claim => {
                let claim = Claim { epoch, adopter: Some(me), adopted_upto: self.part.upto, ..claim };
                self.put_claim(now, self.stream, &claim, revision);
            }
            Ok(wanted) if wanted == claim => self.begin_part(now, fence),
            Ok(wanted) => {
                self.is_claim_sent = true;
                self.put_claim(now, self.stream, &wanted, revision);
            }
            Err(ClaimError::Superseded { .. }) => self.watch(now, self.settings.heartbeat),
            Err(ClaimError::PartOpen { by }) => {
                let why =
                    if by == self.stream.owner { "its owner adopts it" } else { "an adopter stopped within a part" };
                self.outbox.push_back(Action::Report(Report::Hostage { stream: self.stream, why }));
                self.stopped = Some(HostageReason::PartOpen { by });
                self.watch(now, self.settings.heartbeat * OPEN_PART_HEARTBEATS);
            }
        }
    }
}

/// The claim in a key; the default for a key that does not exist, `None` for a value of another version.
fn read_claim(found: Option<&KeyValue>) -> Option<Claim> {
    match found {
        Some(kv) => Claim::read(&kv.value),
        None => Some(Claim::default()),
    }
}
