//! The adopter's side of the claim: the first copies that are gone, and the next part.

use super::content::Part;
use super::{Adopter, FirstCopies, Step};
use crate::action::{Action, Report, Token};
use crate::claim::{AdoptedCopy, Claim, ClaimError};
use crate::coordination::{CoordinationReply, KeyValue};
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
                if let Some(first) = self.firsts_left.pop_front()
                    && let Some(claim) = self.firsts.get_mut(&first.stream)
                {
                    *claim = std::mem::take(claim).decided(first.incarnation, first.epoch, AdoptedCopy::Second);
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

    /// Decides whether mail whose first copy is in another stream is taken from here.
    fn judge_first(&mut self, now: Duration, members: &Membership, found: Option<KeyValue>) {
        let Some(FirstCopies { stream: first, incarnation, epoch }) = self.firsts_left.front().copied() else { return };
        let revision = found.as_ref().map_or(0, |kv| kv.revision);
        let Some(claim) = read_claim(found.as_ref()) else { return };
        let is_settled = claim.decision(incarnation, epoch).is_some();
        self.firsts.insert(first, claim.clone());
        if is_settled || members.entry(first.holder).is_some() || !members.is_fresh(now) {
            self.firsts_left.pop_front();
            self.ask_at = now;
        } else {
            // Its holder is gone with the owner: from now on no adopter of that stream takes such mail.
            let decided = claim.decided(incarnation, epoch, AdoptedCopy::Second);
            self.put_claim(now, first, &decided, revision);
        }
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
        if claim.adopter.is_some_and(|adopter| adopter != self.settings.node) {
            // It names another node only behind the record of a part of this one.
            self.release_open_part();
        }
        self.is_handing_back = self.is_owner_back(members);
        self.part = if self.is_handing_back {
            Part { upto: self.content.finished_upto, is_last: true, messages: BTreeMap::new() }
        } else {
            self.content.part(&claim, &self.firsts, fence, self.settings.part_messages_max)
        };
        // A part that this node began before a crash must be ended, even if the owner is back.
        let is_own_open = claim.adopter == Some(self.settings.node) && claim.adopted_upto > self.content.finished_upto;
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
