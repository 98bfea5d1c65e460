//! Mail that other nodes took over from this one while parts of adoptions are open that an earlier start of it began.
//!
//! An adopter copies what it takes before its part is recorded. If it comes back with a new disk, other nodes adopt
//! these copies, and the part is still its own. So it goes on with the part only when it has read which messages they
//! took, and leaves these out. A node that has its disk knows them from its local log.
//!
//! Until the part is over, the stream with the records of that is not opened again, for a minute at most: so the next
//! start would read them once more.

use super::Owner;
use crate::identity::{NodeId, StreamId};
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Messages that others took over since the start, while they may be needed.
#[derive(Debug, Default)]
pub(super) struct FormerMail {
    /// No part of an earlier start is open.
    is_over: bool,
    taken: BTreeMap<QueueId, u16>,
}

impl FormerMail {
    /// True when no part of an earlier start is open any more.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Notes what another node took, each with the hops that it had here.
    pub(super) fn note_taken(&mut self, taken: &[(QueueId, u16)]) {
        for (id, hops) in taken.iter().filter(|_| !self.is_over) {
            let known = self.taken.entry(*id).or_insert(*hops);
            *known = (*known).max(*hops);
        }
    }

    /// True for a message that was here with these hops or more, and is at another node now.
    pub(super) fn has_taken(&self, id: QueueId, hops: u16) -> bool {
        self.taken.get(&id).is_some_and(|known| *known >= hops)
    }
}

impl Owner {
    /// No part of an earlier start is open any more.
    pub(crate) fn end_former_parts(&mut self) {
        if !self.former.is_over {
            self.former = FormerMail { is_over: true, taken: BTreeMap::new() };
        }
    }

    /// Opens a stream again that waited for the end of such parts.
    pub(super) fn reopen_former(&mut self, now: Duration, stream: StreamId) {
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if slot.reopen_at.is_some_and(|at| now >= at || self.former.is_over) {
            slot.reopen_at = None;
            self.reopen(now, stream);
        }
    }

    /// True when no other node can take over what an earlier disk of this node copied from a part, except for what was
    /// read.
    ///
    /// `own_parts` are streams of this node in which it has an open part itself: others take nothing from them.
    /// `absent` is the owner of the part's mail while it is absent: it was so when the part began, and nothing was
    /// copied to it.
    pub(crate) fn knows_former_mail(&self, own_parts: &BTreeSet<StreamId>, absent: Option<NodeId>) -> bool {
        let is_safe = |stream: StreamId| own_parts.contains(&stream) || absent == Some(stream.holder);
        self.slots.values().all(|slot| !slot.may_have_former_mail() || is_safe(slot.stream))
    }
}
