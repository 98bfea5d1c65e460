//! A node of the cluster: owner, adopters and membership behind one interface for the server.
//!
//! The driver reports events with the time, carries out the actions of [`Node::poll`], and calls it again at
//! [`Node::wake_at`]. It asks [`Node::may_start_delivery`] before a delivery begins and [`Node::may_send_final_dot`]
//! immediately before it sends the end of the content.
//!
//! Time is of a clock that never steps and also runs while the machine is suspended (`CLOCK_BOOTTIME`), from any fixed
//! point.

mod by_hand;

use crate::action::{Action, LocalMessage, NewMessage, OnNoReplica, Purpose, Token};
use crate::adopter::{Adopter, OpenParts};
use crate::coordination::CoordinationReply;
use crate::identity::{NodeId, StreamId};
use crate::membership::{DepartureMark, Membership, MembershipError, NODE_PREFIX, NodeEntry};
use crate::owner::{Owner, OwnershipDoubt};
use crate::record::{Completion, Outcome};
use crate::rendezvous::holders_of;
use crate::replica_log::LogReply;
use crate::settings::Settings;
use crate::shared_limits::{LIMIT_PREFIX, LimitGrant, LimitStatus, LimitUse, SharedLimits};
use crate::status::{ClusterStatus, HostageReason, HostageStatus, OwnerCounts};
use by_hand::HandOrders;
use bytes::Bytes;
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A node of the cluster.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    owner: Owner,
    membership: Membership,
    adopters: BTreeMap<StreamId, Adopter>,
    open_parts: OpenParts,
    by_hand: HandOrders,
    limits: SharedLimits,
    /// Streams that the engine lists.
    streams: BTreeSet<StreamId>,
}

impl Node {
    /// Begins with the mail of the local log.
    ///
    /// `streams` are the streams that the engine lists, or listed when it was last reached; `local` is all live mail of
    /// the log. Mail is delivered once the node knows where its copies are.
    #[must_use]
    pub fn new(
        now: Duration,
        settings: Settings,
        name: String,
        streams: &[StreamId],
        local: Vec<LocalMessage>,
    ) -> Self {
        let mut newest: BTreeMap<NodeId, StreamId> = BTreeMap::new();
        for stream in streams.iter().filter(|stream| stream.owner == settings.node) {
            let entry = newest.entry(stream.holder).or_insert(*stream);
            *entry = (*entry).max(*stream);
        }
        let newest: Vec<StreamId> = if settings.copies > 1 { newest.into_values().collect() } else { Vec::new() };
        let mut node = Self {
            owner: Owner::new(now, settings.clone(), &newest, local),
            membership: Membership::new(now, settings.clone(), name),
            adopters: BTreeMap::new(),
            open_parts: OpenParts::new(now, &settings),
            by_hand: HandOrders::default(),
            limits: SharedLimits::new(settings.node),
            streams: BTreeSet::new(),
            settings,
        };
        node.known_streams(streams);
        node
    }

    /// Tells the node of the streams that the engine lists; the driver asks for them every few seconds.
    pub fn known_streams(&mut self, streams: &[StreamId]) {
        self.streams = streams.iter().copied().collect();
    }

    /// Returns the next action. The driver calls it after each event and at [`Node::wake_at`], until it returns `None`.
    ///
    /// `wall_us` is the clock in microseconds since 1970; it goes into the node's entry only.
    pub fn poll(&mut self, now: Duration, wall_us: u64) -> Option<Action> {
        if self.membership.refusal().is_some() {
            return None;
        }
        if let Some(action) = self.membership.poll(now, wall_us) {
            return Some(action);
        }
        if let Some(action) = self.open_parts.poll(now, &self.settings) {
            return Some(action);
        }
        if let Some(action) = self.limits.poll(now) {
            return Some(action);
        }
        self.choose_adopters(now);
        self.follow_orders(now);
        self.follow_open_parts(now);
        loop {
            if let Some(action) = self.owner.poll(now) {
                return Some(action);
            }
            for adopter in self.adopters.values_mut() {
                if let Some(action) = adopter.poll(now, &self.membership) {
                    return Some(action);
                }
            }
            if !self.pass_adopted(now) {
                return None;
            }
        }
    }

    /// Passes messages between adopters and owner; true when there was something.
    fn pass_adopted(&mut self, now: Duration) -> bool {
        let mut is_busy = false;
        for (stream, adopter) in &mut self.adopters {
            for accepted in adopter.take_adopted() {
                is_busy = true;
                self.owner.adopt(accepted, *stream);
            }
            let released = adopter.take_released();
            is_busy |= !released.is_empty();
            self.by_hand.note_taken(now, *stream, released.len());
            self.owner.release_adopted(now, released, *stream);
        }
        for (stream, id) in self.owner.take_safe() {
            is_busy = true;
            if let Some(adopter) = self.adopters.get_mut(&stream) {
                adopter.is_safe(now, id);
            }
        }
        is_busy
    }

    /// Keeps an adopter for each stream that this node may have to adopt.
    fn choose_adopters(&mut self, now: Duration) {
        let me = self.settings.node;
        let foreign: BTreeSet<StreamId> = self.owner.foreign_streams().collect();
        let (members, by_hand) = (&self.membership, &self.by_hand);
        let is_fresh = members.is_fresh(now);
        let is_gone = |node| is_fresh && !members.stays(node);
        let is_wanted = |stream: &StreamId| {
            let is_absent = stream.owner != me && is_gone(stream.owner);
            let is_deputy = is_absent && is_gone(stream.holder);
            let is_watched = is_absent && by_hand.watches(now, stream.owner);
            stream.holder == me && stream.owner != me || foreign.contains(stream) || is_deputy || is_watched
        };
        self.adopters.retain(|stream, adopter| adopter.is_active() || is_wanted(stream));
        for stream in self.open_parts.take_found() {
            let adopter = self.adopters.entry(stream);
            adopter.or_insert_with(|| Adopter::new(now, &self.settings, stream)).resume_part();
        }
        for stream in self.streams.iter().filter(|stream| is_wanted(stream)) {
            if !self.adopters.contains_key(stream) {
                self.adopters.insert(*stream, Adopter::new(now, &self.settings, *stream));
            }
        }
    }

    /// Tells the adopters of parts that an earlier start left open whether they may go on, and the owner when none is
    /// left.
    fn follow_open_parts(&mut self, now: Duration) {
        let resumed = self.adopters.iter().filter(|(_, adopter)| adopter.is_resumed());
        let own: BTreeSet<StreamId> = resumed.map(|(stream, _)| *stream).collect();
        if own.is_empty() {
            if self.open_parts.is_known() {
                self.owner.end_former_parts();
            }
            return;
        }
        let (members, owner) = (&self.membership, &self.owner);
        let is_absent = |node: &NodeId| members.is_fresh(now) && members.entry(*node).is_none();
        for (stream, adopter) in self.adopters.iter_mut().filter(|(stream, _)| own.contains(stream)) {
            let absent = Some(stream.owner).filter(is_absent);
            adopter.set_former_copies(owner.knows_former_mail(&own, absent));
        }
    }

    /// The next time at which [`Node::poll`] has something to do, if no event comes before.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        if self.membership.refusal().is_some() {
            return None;
        }
        let adopters = self.adopters.values().map(Adopter::wake_at).min();
        let others = [self.owner.wake_at(), self.membership.wake_at(), self.limits.wake_at()];
        [adopters, self.open_parts.wake_at(), self.by_hand.wake_at()].into_iter().chain(others).flatten().min()
    }

    /// Takes an answer of the engine's log. A driver that gets none need not call it.
    pub fn log_answered(&mut self, now: Duration, token: Token, reply: LogReply) {
        match token.purpose {
            Purpose::AdopterWrite(stream) | Purpose::AdopterScan(stream) | Purpose::AdopterTrim(stream) => {
                if let Some(adopter) = self.adopters.get_mut(&stream) {
                    adopter.log_answered(now, &self.membership, token, reply);
                }
            }
            _ => self.owner.log_answered(now, token, reply),
        }
    }

    /// Takes an answer of the key-value store. A driver that gets none need not call it.
    pub fn coordination_answered(&mut self, now: Duration, wall_us: u64, token: Token, reply: CoordinationReply) {
        match token.purpose {
            Purpose::AdopterClaim(stream) => {
                if let Some(adopter) = self.adopters.get_mut(&stream) {
                    adopter.claim_answered(now, &self.membership, token, reply);
                }
            }
            Purpose::AdopterParts => {
                self.open_parts.answered(now, &self.settings, &self.streams, token.attempt, reply);
            }
            Purpose::Limit(number) => self.limits.answered(now, number, token.attempt, reply),
            Purpose::OwnerClaim(_) => self.owner.claim_answered(now, token, reply),
            _ => {
                self.membership.answered(now, wall_us, token, reply);
                self.choose_holders(now);
                self.choose_version();
            }
        }
    }

    /// Writes the newest block version that all members of the last view read.
    fn choose_version(&mut self) {
        let version = self.membership.version();
        if version != self.settings.block_version {
            self.settings.block_version = version;
            self.owner.set_version(version);
            self.adopters.values_mut().for_each(|adopter| adopter.set_version(version));
        }
    }

    /// Hastens the machines that a key concerns: a driver with a watch calls it for keys that it sees appear, change or
    /// vanish. Renewed entries of nodes need no call.
    ///
    /// It only moves questions forward. A change that is never told, told late, or told although nothing changed does
    /// no harm.
    pub fn coordination_changed(&mut self, now: Duration, key: &str) {
        if key.starts_with(NODE_PREFIX) {
            self.membership.changed(now, key);
        } else if key.starts_with(LIMIT_PREFIX) {
            self.limits.hasten(now, key);
        } else if let Some(stream) = StreamId::parse_claim_key(key) {
            self.owner.hasten(now, stream);
            if let Some(adopter) = self.adopters.get_mut(&stream) {
                adopter.hasten(now);
            }
        }
    }

    fn choose_holders(&mut self, now: Duration) {
        // Without a majority the last view stays: copies need none.
        if self.membership.is_fresh(now) {
            let departed: BTreeSet<NodeId> = self.membership.departed().map(|mark| mark.node).collect();
            let leaving = self.membership.entries().filter(|entry| entry.is_departing).map(|entry| entry.node);
            self.owner.set_departed(now, leaving.chain(departed.iter().copied()).collect(), &departed);
            let nodes = self.membership.entries().filter(|entry| !entry.is_draining).map(|entry| entry.node);
            self.owner.set_holders(now, holders_of(self.settings.node, nodes));
        }
    }

    /// Begins to accept a message. The answer comes as [`Action::Answer`]; at the same time the caller stores the
    /// message in the local log and calls [`Node::stored`] when it is durable.
    pub fn accept(&mut self, now: Duration, message: NewMessage, policy: OnNoReplica) {
        self.owner.accept(now, message, policy);
    }

    /// Sends a piece of a large body while it arrives; [`Node::accept`] with `Content::Streamed` ends it.
    pub fn stream_body(&mut self, now: Duration, id: QueueId, octets: &Bytes) {
        self.owner.stream_body(now, id, octets);
    }

    /// Ends a body whose transaction failed.
    pub fn abort_body(&mut self, id: QueueId) {
        self.owner.abort_body(id);
    }

    /// The local log has the message on stable storage.
    pub fn stored(&mut self, now: Duration, id: QueueId) {
        self.owner.stored(now, id);
    }

    /// The local log could not store a new message, or need not store an adopted one ([`Action::Store`]).
    pub fn store_refused(&mut self, now: Duration, id: QueueId) {
        self.owner.store_refused(now, id);
    }

    /// Answers [`Action::Read`].
    pub fn read(&mut self, now: Duration, id: QueueId, message: Option<NewMessage>) {
        self.owner.read(now, id, message);
    }

    /// Answers [`Action::Forget`]: the messages are gone for good.
    pub fn forgotten(&mut self, now: Duration, stream: StreamId) {
        self.owner.forgotten(now, stream);
    }

    /// Takes the end of a recipient; the local log has it already or has it soon.
    pub fn completed(&mut self, now: Duration, id: QueueId, recipient: Option<u32>, outcome: Outcome) {
        self.owner.completed(now, Completion { id, recipient, outcome });
    }

    /// Recipients of a message were held, released or given another destination in the local log: its copies are
    /// written again. `at_once` is false after a release: a copy that is late then has the message held, as it was.
    pub fn changed(&mut self, now: Duration, id: QueueId, at_once: bool) {
        self.owner.changed(now, id, at_once);
    }

    /// True if a delivery of this message may start now.
    ///
    /// Besides ownership this looks at completions that the holders do not have yet: while they are many or old,
    /// nothing starts, since all of them would be repeated after an adoption.
    #[must_use]
    pub fn may_start_delivery(&self, now: Duration, id: QueueId) -> bool {
        self.membership.refusal().is_none() && self.owner.may_start_delivery(now, id)
    }

    /// True if a transaction with this message may be completed now: asked immediately before the end of the content is
    /// sent. On false the transaction is broken off and the message waits.
    #[must_use]
    pub fn may_send_final_dot(&self, now: Duration, id: QueueId) -> bool {
        self.membership.refusal().is_none() && self.owner.may_send_final_dot(now, id)
    }

    /// The reason why an operator must not end this message by hand now, without a delivery; `None` if he may.
    ///
    /// As before a delivery, this looks at ownership and at completions that the holders do not have yet. A node that
    /// is drained owns its mail until it gives it up, so mail may be ended there. Mail without a copy may always be.
    #[must_use]
    pub fn doubt_about_end(&self, now: Duration, id: QueueId) -> Option<OwnershipDoubt> {
        if self.owner.is_here_alone(id) {
            return None;
        }
        let refused = self.membership.refusal().map(|_| OwnershipDoubt::Refused);
        refused.or_else(|| self.owner.doubt_about_end(now, id))
    }

    /// Takes a report on a next hop with a limit that all nodes keep together, and returns what may be done there until
    /// the next report, which comes within a second. A node that is refused may do nothing.
    pub fn use_limit(&mut self, now: Duration, name: &str, usage: LimitUse) -> LimitGrant {
        if self.membership.refusal().is_some() {
            return LimitGrant { amount: 0, excess: usage.in_use };
        }
        self.limits.report(now, name, self.nodes(), usage)
    }

    /// Shared limits that this node uses, by name.
    #[must_use]
    pub fn limits(&self, now: Duration) -> Vec<LimitStatus> {
        self.limits.status(now)
    }

    /// Reports so far on next hops that got nothing, because a node uses no more than `SHARED_LIMITS_MAX` at a time.
    #[must_use]
    pub const fn limits_left_out(&self) -> u64 {
        self.limits.left_out()
    }

    /// Nodes that belong to the cluster, as far as this one knows: those that run, and those that have streams and have
    /// not left.
    fn nodes(&self) -> u32 {
        let mut nodes: BTreeSet<NodeId> = self.streams.iter().flat_map(|one| [one.owner, one.holder]).collect();
        nodes.extend(self.membership.entries().map(|entry| entry.node));
        nodes.retain(|node| !self.membership.has_departed(*node));
        nodes.insert(self.settings.node);
        u32::try_from(nodes.len()).unwrap_or(u32::MAX)
    }

    /// Tells the other nodes that this one leaves soon, so that they bring it no new copies. Nothing else changes.
    pub const fn announce_drain(&mut self, now: Duration) {
        self.membership.set_draining(now);
    }

    /// Stops new mail, new copies of other nodes, and new deliveries; transactions in flight go on.
    pub fn drain(&mut self, now: Duration) {
        self.owner.drain();
        self.membership.set_draining(now);
    }

    /// Gives the mail of this node up, after the last transaction ended. [`Node::is_released`] says when all holders
    /// know it; they adopt without waiting, and nothing is delivered twice.
    pub const fn release(&mut self) {
        self.owner.release();
    }

    /// True when the node may exit.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.owner.is_released()
    }

    /// Removes the node's entry, as the last step before it exits.
    pub const fn leave(&mut self, now: Duration) {
        self.membership.leave(now);
    }

    /// Tells the other nodes that this one leaves for good: as [`Node::announce_drain`], and they take the copies that
    /// it holds elsewhere. From now on it begins no adoption.
    pub const fn announce_departure(&mut self, now: Duration) {
        self.membership.set_departing(now);
        self.owner.depart();
    }

    /// True behind [`Node::announce_departure`].
    #[must_use]
    pub const fn is_departing(&self) -> bool {
        self.membership.is_departing()
    }

    /// Ends the use of shared limits for good: [`Node::use_limit`] grants nothing, and no row is renewed. No use may be
    /// under way.
    pub fn close_limits(&mut self) {
        self.limits.close();
    }

    /// True when other nodes have adopted all mail of this one, after [`Node::announce_departure`] and
    /// [`Node::release`]. Mail that is still live here has no copy, and no other node takes it.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.owner.is_handed_over() && self.adoptions() == 0
    }

    /// Messages of this node that no other one has taken over, as far as it knows.
    #[must_use]
    pub fn not_handed_over(&self) -> usize {
        self.owner.not_handed_over()
    }

    /// Owners whose mail has copies on the engine of this node, each with their number if it is known. Mail of a node
    /// that has left is with others.
    #[must_use]
    pub fn copies_held(&self) -> Vec<(NodeId, Option<u64>)> {
        let me = self.settings.node;
        let is_held = |stream: &&StreamId| {
            let next = StreamId { generation: stream.generation + 1, ..**stream };
            let is_latest = !self.streams.contains(&next);
            stream.holder == me && stream.owner != me && is_latest && !self.membership.has_departed(stream.owner)
        };
        let copies = |stream: &StreamId| {
            let copies = self.adopters.get(stream).and_then(Adopter::copies_held);
            (stream.owner, copies)
        };
        self.streams.iter().filter(is_held).map(copies).filter(|(_, copies)| *copies != Some(0)).collect()
    }

    /// Writes the mark of this node, and removes its entry, as the last step before it exits for good. `is_empty`: no
    /// other node has copies on its engine. [`Node::is_member`] says when it is done.
    pub const fn depart(&mut self, now: Duration, is_empty: bool) {
        self.membership.depart(now, is_empty);
    }

    /// Nodes that left for good and have not come back.
    pub fn departed(&self) -> impl Iterator<Item = &DepartureMark> {
        self.membership.departed()
    }

    /// True for a live message of this node.
    #[must_use]
    pub fn has(&self, id: QueueId) -> bool {
        self.owner.has(id)
    }

    /// Copies of a live message that are known to be stored at holders, the local log aside.
    #[must_use]
    pub fn copies(&self, id: QueueId) -> usize {
        self.owner.copies(id)
    }

    /// Counts for status and metrics.
    #[must_use]
    pub fn counts(&self, now: Duration) -> OwnerCounts {
        self.owner.counts(now)
    }

    /// The state of the node, for people and metrics.
    #[must_use]
    pub fn status(&self, now: Duration) -> ClusterStatus {
        let has_majority = self.membership.is_fresh(now);
        let is_gone = |node: NodeId| has_majority && self.membership.entry(node).is_none();
        let streams = self.owner.streams(now);
        let mut at_gone_holders: BTreeMap<NodeId, usize> = BTreeMap::new();
        for stream in streams.iter().filter(|one| one.messages > 0 && is_gone(one.stream.holder)) {
            let messages = usize::try_from(stream.messages).unwrap_or(usize::MAX);
            *at_gone_holders.entry(stream.stream.holder).or_default() += messages;
        }
        ClusterStatus {
            node: self.settings.node,
            is_member: self.is_member(),
            has_majority,
            block_version: self.settings.block_version,
            block_version_newest: self.settings.block_versions.newest,
            counts: self.owner.counts(now),
            adopted_waiting: self.owner.adopted_waiting(),
            at_gone_holders: at_gone_holders.into_iter().collect(),
            streams,
            adoptions: self.adopters.values().filter_map(Adopter::status).collect(),
            hostages: self.hostages(now),
        }
    }

    /// Mail of absent owners that nobody can adopt now.
    fn hostages(&self, now: Duration) -> Vec<HostageStatus> {
        let (me, members) = (self.settings.node, &self.membership);
        let has_majority = members.is_fresh(now);
        let is_latest = |stream: &&StreamId| {
            let next = StreamId { generation: stream.generation + 1, ..**stream };
            stream.owner != me && !self.streams.contains(&next)
        };
        // Without a majority the last view counts, and the silence of the stream.
        let is_silent = |stream: &StreamId| self.adopters.get(stream).is_some_and(|adopter| adopter.is_silent(now));
        let is_absent =
            |stream: &&StreamId| members.entry(stream.owner).is_none() || !has_majority && is_silent(stream);
        // A node that left with an empty engine has nobody's mail.
        let empty: BTreeSet<NodeId> = members.departed().filter(|mark| mark.is_empty).map(|mark| mark.node).collect();
        let absent = self.streams.iter().filter(is_latest).filter(is_absent);
        let absent = absent.filter(|stream| !empty.contains(&stream.holder));
        absent
            .filter_map(|stream| {
                let adopter = self.adopters.get(stream)?;
                let why = if has_majority { adopter.hostage_reason(now)? } else { HostageReason::NoMajority };
                // Blocks that are lost may have had mail behind the last count.
                let messages = adopter.live().filter(|_| why != HostageReason::Damaged);
                Some(HostageStatus { stream: *stream, messages, why })
            })
            .filter(|hostage| hostage.messages != Some(0))
            .collect()
    }

    /// Adoptions under way.
    #[must_use]
    pub fn adoptions(&self) -> usize {
        self.adopters.values().filter(|adopter| adopter.is_active()).count()
    }

    /// The other nodes as this one sees them.
    pub fn members(&self) -> impl Iterator<Item = &NodeEntry> {
        self.membership.entries()
    }

    /// True once the node's own entry is written.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.membership.is_member()
    }

    /// The reason why this node must not run, if there is one; it does nothing any more.
    #[must_use]
    pub const fn refusal(&self) -> Option<&MembershipError> {
        self.membership.refusal()
    }
}
