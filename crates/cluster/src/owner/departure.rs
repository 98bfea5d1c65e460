//! Departures for good: the hand-over of all mail of this node, and copies at holders that leave.
//!
//! A node that leaves writes RELEASE as in a planned exit, and then watches its streams until other nodes have adopted
//! them: their records name the mail that they took, which leaves the local log. Mail that nobody took stays there.
//!
//! A holder that leaves is given up by the claim, as one that is out of reach, without the long wait. A stream at a
//! holder that has left rests once it has no copy: its engine may be gone for good.

use super::slot::{Phase, Slot};
use super::{CopyPlace, Owner};
use crate::identity::{NodeId, StreamId};
use std::collections::BTreeSet;
use std::time::Duration;

/// Timeouts of an append after which mail is taken back from a stream that is out of reach, when its holder or this
/// node leaves.
const TAKE_BACK_TIMEOUTS: u32 = 2;

impl Owner {
    /// Begins to leave for good. Nothing changes before `drain` and `release`.
    pub(crate) const fn depart(&mut self) {
        self.is_departing = true;
    }

    /// Sets the nodes that leave for good or have left, and of them those that have left.
    pub(crate) fn set_departed(&mut self, now: Duration, departing: BTreeSet<NodeId>, departed: &BTreeSet<NodeId>) {
        self.departing = departing;
        let has_left = |slot: &Slot| departed.contains(&slot.stream.holder);
        for slot in self.slots.values_mut().filter(|slot| slot.is_dormant && !has_left(slot)) {
            slot.is_dormant = false;
            slot.stored_at = now;
            slot.messages.read_tail(now);
            slot.bodies.read_tail(now);
        }
        let may_rest = |slot: &&Slot| !slot.is_dormant && has_left(slot) && slot.is_empty();
        let resting: Vec<StreamId> = self.slots.values().filter(may_rest).map(|slot| slot.stream).collect();
        for stream in resting {
            let is_here = |copy: &CopyPlace| copy.stream == stream;
            let is_needed = self.has_uncertain || self.messages.values().any(|one| one.copies.iter().any(is_here));
            if let Some(slot) = self.slots.get_mut(&stream).filter(|_| !is_needed) {
                slot.rest();
            }
        }
    }

    /// Time without a stored block after which the mail of a stream that is out of reach is taken back.
    pub(super) fn take_back_wait(&self, slot: &Slot) -> Duration {
        let is_urgent = self.is_departing || self.departing.contains(&slot.stream.holder);
        match slot.phase {
            // Its adopter has it.
            Phase::Foreign(_) => self.settings.adopter_wait_max,
            _ if is_urgent => self.settings.append_timeout * TAKE_BACK_TIMEOUTS,
            // Only the stream has results of the time before this start that the local log lost.
            Phase::Unread | Phase::Scanning { .. } => self.settings.unread_wait_max,
            _ => self.settings.take_back_after,
        }
    }

    /// True while mail has to be taken back, and copied elsewhere, before this node gives its streams up.
    pub(super) fn has_mail_out_of_reach(&self) -> bool {
        let is_adopted = |slot: &Slot| matches!(slot.phase, Phase::Foreign(_));
        let has_mail = |slot: &Slot| slot.live > 0 || self.has_uncertain;
        self.slots.values().any(|slot| slot.is_away() && !is_adopted(slot) && has_mail(slot))
    }

    /// True when other nodes have adopted the mail of all streams. Messages that are left have no copy.
    pub(crate) fn is_handed_over(&self) -> bool {
        let has_copies = |slot: &Slot| {
            let is_here = |copy: &CopyPlace| copy.stream == slot.stream;
            self.has_uncertain || self.messages.values().any(|message| message.copies.iter().any(is_here))
        };
        // Mail without a copy may still get one there.
        let is_awaited = |slot: &Slot| !self.needs_copy.is_empty() && self.holders.contains(&slot.stream.holder);
        let is_over = |slot: &Slot| match slot.phase {
            Phase::HandedOver | Phase::Abandoned => true,
            Phase::Released => slot.live == 0,
            Phase::Foreign(_) | Phase::Forgetting => false,
            // Nothing can be written to it, and nothing has to be.
            Phase::Open | Phase::Unread | Phase::Scanning { .. } => {
                slot.is_dormant || slot.is_away() && !is_awaited(slot) && !has_copies(slot)
            }
        };
        self.is_departing && self.is_releasing && self.adopted.is_empty() && self.slots.values().all(is_over)
    }

    /// Messages that no other node has taken over, as far as their records were read.
    pub(crate) fn not_handed_over(&self) -> usize {
        let taken = |slot: &Slot| match &slot.phase {
            Phase::Foreign(foreign) => foreign.taken.len(),
            _ => 0,
        };
        self.messages.len().saturating_sub(self.slots.values().map(taken).sum())
    }
}

impl Slot {
    /// Ends the stream of a node that leaves: other nodes have its mail.
    pub(super) fn hand_over(&mut self) {
        self.clear();
        self.phase = Phase::HandedOver;
        self.foreign_tail = None;
        self.messages.close();
        self.bodies.close();
    }

    /// True when it has no copy, the holder knows all that was done, and no claim is under way.
    fn is_empty(&self) -> bool {
        let is_idle = match self.phase {
            Phase::Open => self.messages.has_no_mail() && self.done.is_empty() && self.unstored_count == 0,
            Phase::Abandoned | Phase::Unread => true,
            _ => false,
        };
        is_idle && self.live == 0 && self.claim_goal.is_none() && self.uploads.is_empty()
    }

    /// Lets the stream rest until its holder joins again.
    fn rest(&mut self) {
        self.clear();
        self.is_dormant = true;
        if self.phase == Phase::Open {
            // All mail in it is done.
            self.phase = Phase::Abandoned;
        }
        self.messages.close();
        self.bodies.close();
    }
}
