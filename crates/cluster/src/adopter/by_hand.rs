//! Adoption by order of an operator, and the state of a stream for him.
//!
//! An order makes this node a candidate for any stream of an absent owner, and takes the place of the silence that is
//! waited for otherwise. Fence, wait and claims stay: the silence only keeps nodes from adopting too early, and the
//! owner's time is waited out behind the last block that was seen, also when there is an order.

use super::{Adopter, Step};
use crate::absent::AbsentState;
use crate::claim::Claim;
use crate::coordination::KeyValue;
use crate::identity::{NodeId, StreamId};
use crate::membership::Membership;
use crate::record::Record;
use crate::rendezvous::holders_of;
use crate::status::HostageReason;
use crate::stream_writer::StreamTail;
use std::time::Duration;

/// The tail of a stream, as far as an operator needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailView {
    /// The node that wrote the last block; `None` in an empty stream.
    writer: Option<NodeId>,
    is_of_adopter: bool,
    is_over: bool,
    /// The end of the part that the last block records.
    adopted_upto: u64,
}

impl TailView {
    pub(super) fn new(stream: StreamId, tail: &StreamTail, is_over: bool) -> Self {
        let Some(block) = &tail.block else {
            return Self { writer: None, is_of_adopter: false, is_over: false, adopted_upto: 0 };
        };
        let upto = |record: &Record| match record {
            Record::Adopted(adopted) => Some(adopted.upto),
            _ => None,
        };
        Self {
            writer: Some(block.header.writer),
            is_of_adopter: block.header.writer != stream.owner || block.is_of_adoption(),
            is_over,
            adopted_upto: block.records.iter().filter_map(upto).last().unwrap_or(0),
        }
    }

    /// True when the engine has no block of the stream.
    pub(super) const fn is_empty(&self) -> bool {
        self.writer.is_none()
    }
}

impl Adopter {
    /// Sets whether an order to adopt the stream stands. A new one has the tail read at once, and what stopped an
    /// earlier attempt is tried again.
    pub(crate) fn set_ordered(&mut self, now: Duration, is_ordered: bool) {
        if is_ordered && !self.is_ordered && self.step == Step::Watching {
            if !self.lacks_blocks {
                self.stopped = None;
            }
            self.writer.hasten_tail(now);
        }
        self.is_ordered = is_ordered;
    }

    /// The owner runs: the tail that was read may be of the time before.
    pub(crate) const fn forget_tail(&mut self) {
        self.tail = None;
    }

    /// Reads claim and tail anew, for an operator. A stopped attempt is not begun again by that.
    pub(crate) fn look(&mut self, now: Duration) {
        if self.step != Step::Watching {
            return;
        }
        (self.wants_claim, self.ask_at) = (true, now);
        if self.stopped.is_none() {
            self.is_looked_at = false;
            self.writer.hasten_tail(now);
        }
    }

    /// True when the state is that of the last look, or a later one.
    pub(crate) fn is_looked_at(&self) -> bool {
        self.step != Step::Watching || self.is_looked_at && !self.wants_claim
    }

    /// Takes the claim for an operator.
    pub(super) fn note_claim(&mut self, found: Option<&KeyValue>) {
        self.wants_claim = false;
        self.claim = match found {
            Some(kv) => Claim::read(&kv.value),
            None => Some(Claim::default()),
        };
    }

    /// True when the stream is empty or its adoption over, and all that this node took can be delivered.
    pub(crate) fn is_settled(&self) -> bool {
        let is_at_rest = self.step == Step::Watching && self.released.is_empty() && self.adopted.is_empty();
        is_at_rest && self.tail.is_some_and(|tail| tail.is_over || tail.writer.is_none())
    }

    /// True while an order can still come to something: there is mail to adopt, and nothing has stopped the attempt.
    pub(crate) fn is_pending(&self, now: Duration) -> bool {
        // Without some of its blocks, the rest of a stream is adopted all the same.
        let is_stopped = self.step == Step::Watching && !self.lacks_blocks && self.hostage_reason(now).is_some();
        !self.is_settled() && !is_stopped
    }

    /// The state of the stream, while its owner is absent.
    pub(crate) fn absent_state(&self, now: Duration, members: &Membership) -> AbsentState {
        let me = self.settings.node;
        if let Some(status) = self.status() {
            let since = now.saturating_sub(self.began_at);
            return AbsentState::UnderWay { by: me, since, step: Some(status.step), taken: status.taken };
        }
        let reason = self.hostage_reason(now);
        let Some(tail) = self.tail else {
            return reason.map_or(AbsentState::Unread, AbsentState::Waits);
        };
        let Some(writer) = tail.writer else { return AbsentState::Empty };
        match reason {
            // The end that was read stays, whether its holder can be reached now or not.
            None | Some(HostageReason::HolderOutOfReach) if tail.is_over => return AbsentState::Adopted { by: writer },
            Some(reason) => return AbsentState::Waits(reason),
            None => {}
        }
        let is_alive = |node| members.entry(node).is_some();
        if !tail.is_of_adopter {
            let StreamId { owner, holder, .. } = self.stream;
            let deputy = || holders_of(owner, members.entries().map(|entry| entry.node)).first().copied();
            return AbsentState::Owned { next: if is_alive(holder) { Some(holder) } else { deputy() } };
        }
        if let Some(by) = self.open_part(tail.adopted_upto).filter(|by| *by != me && !is_alive(*by)) {
            return AbsentState::Waits(HostageReason::PartOpen { by });
        }
        if writer == me || is_alive(writer) {
            let since = self.seen.map_or(Duration::ZERO, |(_, since)| now.saturating_sub(since));
            return AbsentState::UnderWay { by: writer, since, step: None, taken: 0 };
        }
        AbsentState::Stopped { by: writer }
    }

    /// The adopter in the claim, if the end of the stream does not record its part. For the status alone: a record
    /// further in front is not looked for.
    fn open_part(&self, adopted_upto: u64) -> Option<NodeId> {
        let claim = self.claim.as_ref()?;
        claim.adopter.filter(|_| claim.adopted_upto > adopted_upto)
    }
}
