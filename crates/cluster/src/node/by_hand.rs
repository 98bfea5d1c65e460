//! Orders of operators to adopt the mail of an absent node by hand, and the look at mail of absent nodes.
//!
//! An order makes the adopters of all streams of a node try at once, at this node, and ends when nothing is left that
//! could be tried, when the owner is back, or [`ORDER_TIME_MAX`] behind the last part. An adoption that was begun goes
//! on behind its end.

use super::Node;
use crate::absent::{AbsentState, AbsentStream, HandAdoption, HandAdoptionError};
use crate::adopter::Adopter;
use crate::identity::{NodeId, StreamId};
use crate::membership::Membership;
use crate::status::HostageReason;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time without a recorded part after which an order ends. It is longer than a wait and the time after which the
/// adoption of another node counts as stuck.
const ORDER_TIME_MAX: Duration = Duration::from_secs(180);

/// Time for which this node watches the streams of absent nodes behind a look.
const LOOK_TIME: Duration = Duration::from_secs(30);

/// An order, kept until the next one for the same node.
#[derive(Debug)]
struct Order {
    began: Duration,
    /// When it began, or the last part was recorded.
    moved: Duration,
    ended: Option<Duration>,
    is_owner_back: bool,
    taken: usize,
    /// Streams whose adoption was over while it stood: what their owner writes behind that, since it is not absent but
    /// cut off, is not meant.
    done: BTreeSet<StreamId>,
}

/// The orders, and the time of the last look.
#[derive(Debug, Default)]
pub(super) struct HandOrders {
    orders: BTreeMap<NodeId, Order>,
    /// When the next order ends for its age.
    ends_at: Option<Duration>,
    looked_until: Duration,
}

impl HandOrders {
    /// The order that stands for the mail of a node.
    fn standing(&mut self, owner: NodeId) -> Option<&mut Order> {
        self.orders.get_mut(&owner).filter(|order| order.ended.is_none())
    }

    /// True while the streams of an absent node are watched although this node need not adopt them by itself.
    pub(super) fn watches(&self, now: Duration, owner: NodeId) -> bool {
        now < self.looked_until || self.orders.get(&owner).is_some_and(|order| order.ended.is_none())
    }

    /// Counts messages of a recorded part.
    pub(super) fn note_taken(&mut self, now: Duration, stream: StreamId, messages: usize) {
        if let Some(order) = self.standing(stream.owner).filter(|_| messages > 0) {
            order.taken += messages;
            order.moved = now;
        }
    }

    /// The next time at which [`Node::follow_orders`] has something to do, if no event comes before.
    pub(super) const fn wake_at(&self) -> Option<Duration> {
        self.ends_at
    }
}

impl Node {
    /// Has this node adopt the mail of an absent node, whichever node holds it, without waiting until its streams are
    /// silent. Fences and the wait for the owner's time are as in any adoption. [`Node::hand_adoptions`] says how far
    /// it is; an order that stands goes on.
    ///
    /// # Errors
    /// The reason why nothing was begun.
    pub fn adopt_by_hand(&mut self, now: Duration, owner: NodeId) -> Result<(), HandAdoptionError> {
        let members = &self.membership;
        if owner == self.settings.node {
            return Err(HandAdoptionError::OwnMail);
        }
        if !members.is_member() || members.is_draining() {
            return Err(HandAdoptionError::NoMember);
        }
        if !members.is_fresh(now) {
            return Err(HandAdoptionError::NoMajority);
        }
        if let Some(entry) = members.entry(owner) {
            return Err(HandAdoptionError::Alive { name: entry.name.clone(), is_draining: entry.is_draining });
        }
        if !self.streams.iter().any(|stream| stream.owner == owner) {
            let owners: BTreeSet<NodeId> = self.streams.iter().map(|stream| stream.owner).collect();
            return Err(HandAdoptionError::NoStream { owners: owners.into_iter().collect() });
        }
        if self.by_hand.standing(owner).is_none() {
            let (ended, done) = (None, BTreeSet::new());
            let order = Order { began: now, moved: now, ended, is_owner_back: false, taken: 0, done };
            self.by_hand.orders.insert(owner, order);
        }
        Ok(())
    }

    /// Has this node read the streams of all absent nodes, and their claims, for [`Node::absent_streams`]. It watches
    /// them for half a minute.
    pub fn look_at_absent(&mut self, now: Duration) {
        self.by_hand.looked_until = now + LOOK_TIME;
        self.choose_adopters(now);
        let me = self.settings.node;
        for (_, adopter) in self.adopters.iter_mut().filter(|(stream, _)| is_absent(&self.membership, me, **stream)) {
            adopter.look(now);
        }
    }

    /// True when each stream of [`Node::absent_streams`] was read since the last look.
    #[must_use]
    pub fn has_looked(&self) -> bool {
        let me = self.settings.node;
        let mut absent = self.streams.iter().filter(|stream| is_absent(&self.membership, me, **stream));
        absent.all(|stream| self.adopters.get(stream).is_none_or(Adopter::is_looked_at))
    }

    /// The streams of nodes that are absent, as this one sees them. Without a majority the last view of the members
    /// counts.
    #[must_use]
    pub fn absent_streams(&self, now: Duration) -> Vec<AbsentStream> {
        let (me, has_majority) = (self.settings.node, self.membership.is_fresh(now));
        let absent = self.streams.iter().filter(|stream| is_absent(&self.membership, me, **stream));
        let state = |stream: &StreamId| {
            let adopter = self.adopters.get(stream);
            let state = adopter.map_or(AbsentState::Unread, |adopter| adopter.absent_state(now, &self.membership));
            match state {
                AbsentState::Adopted { .. } | AbsentState::Empty => state,
                _ if !has_majority => AbsentState::Waits(HostageReason::NoMajority),
                _ => state,
            }
        };
        let one = |stream: &StreamId| AbsentStream {
            stream: *stream,
            messages: self.adopters.get(stream).and_then(Adopter::live),
            state: state(stream),
        };
        absent.map(one).filter(|one| self.is_newest(one.stream) || one.has_mail()).collect()
    }

    /// The last orders to adopt by hand, one for each node.
    #[must_use]
    pub fn hand_adoptions(&self, now: Duration) -> Vec<HandAdoption> {
        let one = |(owner, order): (&NodeId, &Order)| HandAdoption {
            owner: *owner,
            taken: order.taken,
            time: order.ended.unwrap_or(now).saturating_sub(order.began),
            is_running: order.ended.is_none(),
            is_owner_back: order.is_owner_back,
        };
        self.by_hand.orders.iter().map(one).collect()
    }

    /// True for a stream without a next generation, which would have the owner's mail.
    fn is_newest(&self, stream: StreamId) -> bool {
        !self.streams.contains(&StreamId { generation: stream.generation + 1, ..stream })
    }

    /// Tells the adopters of orders, and ends orders that can come to nothing more.
    pub(super) fn follow_orders(&mut self, now: Duration) {
        let is_fresh = self.membership.is_fresh(now);
        for (stream, adopter) in &mut self.adopters {
            if is_fresh && self.membership.entry(stream.owner).is_some() {
                adopter.forget_tail();
            }
            let is_ordered = self.by_hand.standing(stream.owner).is_some_and(|order| {
                if adopter.is_settled() {
                    order.done.insert(*stream);
                }
                !order.done.contains(stream)
            });
            adopter.set_ordered(now, is_ordered);
        }
        for (owner, order) in self.by_hand.orders.iter_mut().filter(|(_, order)| order.ended.is_none()) {
            order.is_owner_back = is_fresh && self.membership.entry(*owner).is_some();
            let mut of_owner = self.streams.iter().filter(|stream| stream.owner == *owner);
            let is_pending = |stream: &StreamId| {
                let adopter = self.adopters.get(stream);
                !order.done.contains(stream) && adopter.is_none_or(|adopter| adopter.is_pending(now))
            };
            if order.is_owner_back || now >= order.moved + ORDER_TIME_MAX || !of_owner.any(is_pending) {
                order.ended = Some(now);
            }
        }
        let running = self.by_hand.orders.values().filter(|order| order.ended.is_none());
        self.by_hand.ends_at = running.map(|order| order.moved + ORDER_TIME_MAX).min();
    }
}

impl AbsentStream {
    /// True if the stream is known to have mail, or to be under adoption.
    const fn has_mail(&self) -> bool {
        matches!(
            self.state,
            AbsentState::Owned { .. }
                | AbsentState::UnderWay { .. }
                | AbsentState::Stopped { .. }
                | AbsentState::Waits(HostageReason::PartOpen { .. } | HostageReason::NewerVersion { .. })
        )
    }
}

fn is_absent(members: &Membership, me: NodeId, stream: StreamId) -> bool {
    stream.owner != me && members.entry(stream.owner).is_none()
}
