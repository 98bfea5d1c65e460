//! The question whether this node surely owns a message: asked before a delivery, before its final dot, and before an
//! operator ends the message by hand.
//!
//! | Asked before | Ownership | Completions that the holders lack | Draining |
//! |---|---|---|---|
//! | a delivery | yes | few and young | starts nothing |
//! | the final dot | yes | any | goes on |
//! | an end by hand | yes | few and young | goes on |
//!
//! With many completions that no holder has, an adopter would deliver again what was ended here.

use super::slot::Phase;
use super::{CopyPlace, Gate, Owner};
use crate::identity::StreamId;
use mail::QueueId;
use std::time::Duration;

/// The reason why this node may not own a message, or not end it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipDoubt {
    /// This node must not take part in the cluster.
    Refused,
    /// This node gives its mail to other nodes.
    Leaving,
    /// The message is not accepted yet, or it is not known since the start which copies it has.
    Unknown,
    /// Another node fenced this stream and adopts its mail, or has adopted it.
    Adopted(StreamId),
    /// The holder of this stream stored nothing of this node for so long that another node may adopt the mail.
    Silent(StreamId),
    /// The holder of this stream lacks too many completions, or one for too long.
    Behind(StreamId),
}

impl OwnershipDoubt {
    /// Whether it may end by itself within a moment: after a start, after an adoption, and behind many completions.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::Unknown | Self::Behind(_))
    }
}

impl Owner {
    /// True if a delivery of this message may start now.
    pub(crate) fn may_start_delivery(&self, now: Duration, id: QueueId) -> bool {
        !self.is_draining && self.doubt_about_end(now, id).is_none()
    }

    /// True if a transaction with this message may be completed now.
    pub(crate) fn may_send_final_dot(&self, now: Duration, id: QueueId) -> bool {
        self.doubt_about_ownership(now, id).is_none()
    }

    /// True for a message that surely has no copy: no other node can have it.
    pub(crate) fn is_here_alone(&self, id: QueueId) -> bool {
        self.messages.get(&id).is_some_and(|message| {
            message.is_local && message.gate == Gate::Open && !message.is_uncertain && message.copies.is_empty()
        })
    }

    /// The reason why an operator must not end this message now; `None` if this node surely owns it, and its holders
    /// are up to date.
    pub(crate) fn doubt_about_end(&self, now: Duration, id: QueueId) -> Option<OwnershipDoubt> {
        self.doubt_about_ownership(now, id).or_else(|| {
            let is_current = |copy: &&CopyPlace| {
                self.slots.get(&copy.stream).is_some_and(|slot| slot.is_current(now, &self.settings))
            };
            let mut copies = self.messages.get(&id)?.copies.iter();
            copies.find(|copy| !is_current(copy)).map(|copy| OwnershipDoubt::Behind(copy.stream))
        })
    }

    /// The reason why another node may own this message; `None` if this node surely does.
    fn doubt_about_ownership(&self, now: Duration, id: QueueId) -> Option<OwnershipDoubt> {
        if self.is_releasing {
            return Some(OwnershipDoubt::Leaving);
        }
        let Some(message) = self.messages.get(&id) else { return Some(OwnershipDoubt::Unknown) };
        if !message.is_local || message.gate != Gate::Open || message.is_uncertain {
            return Some(OwnershipDoubt::Unknown);
        }
        message.copies.iter().find_map(|copy| self.doubt_about_stream(now, copy.stream))
    }

    fn doubt_about_stream(&self, now: Duration, stream: StreamId) -> Option<OwnershipDoubt> {
        let Some(slot) = self.slots.get(&stream) else { return Some(OwnershipDoubt::Unknown) };
        if slot.is_owned(now, &self.settings) {
            return None;
        }
        Some(match slot.phase {
            Phase::Foreign(_) | Phase::Forgetting => OwnershipDoubt::Adopted(stream),
            Phase::Released | Phase::HandedOver => OwnershipDoubt::Leaving,
            Phase::Unread | Phase::Scanning { .. } => OwnershipDoubt::Unknown,
            Phase::Open | Phase::Abandoned => OwnershipDoubt::Silent(stream),
        })
    }
}
